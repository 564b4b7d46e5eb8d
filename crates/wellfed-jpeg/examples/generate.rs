//! Writes the generated files of the tests into a folder, for other decoders to read.
//!
//! `cargo run -p wellfed-jpeg --example generate -- golden|bulk|damaged FOLDER [COUNT] [FIRST]`

#[path = "../tests/support/mod.rs"]
mod support;

use std::path::Path;

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    let (Some(what), Some(folder)) = (arguments.first(), arguments.get(1)) else {
        return Err(std::io::Error::other("arguments: golden|bulk|damaged FOLDER [COUNT] [FIRST]"));
    };
    let folder = Path::new(folder);
    std::fs::create_dir_all(folder)?;
    let write = |case: support::Case| std::fs::write(folder.join(format!("{}.jpg", case.name)), case.bytes());
    match what.as_str() {
        "golden" => support::golden().into_iter().try_for_each(write),
        "damaged" => {
            (number(3, 0)..).take(number(2, 1000) as usize).map(support::damaged).try_for_each(write)
        }
        _ => (number(3, 0)..).take(number(2, 1000) as usize).map(support::bulk).try_for_each(write),
    }
}
