//! libjpeg-turbo behind the protocol of `compare.py`: does the reference that fuzzing links agree with Pillow?

use std::io::{BufRead, Write};
use std::time::Instant;

use turbo::{Format, Turbo};

#[path = "../../../../crates/wellfed-jpeg/tests/support/mod.rs"]
mod support;

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for path in std::io::stdin().lock().lines() {
        let bytes = std::fs::read(path?)?;
        let start = Instant::now();
        let verdict = match Turbo::decode(&bytes, Format::Native, true, 178_956_970, 500) {
            Ok((image, pixels)) => {
                let crc = support::crc32(&pixels);
                format!("{}x{}x{} {crc:08x}", image.width, image.height, image.channels)
            }
            Err(reason) => format!("error: {reason}"),
        };
        writeln!(out, "{verdict}\t{}\t0", start.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    Ok(())
}
