//! The decoder behind the protocol of `tests/compare.py`: paths in, verdicts out.
//!
//! Each file is decoded whole and then once more in every way that must give the same pixels: each level, a region,
//! with a row index. A difference between those is printed as the verdict.

#[path = "../tests/support/mod.rs"]
mod support;

use std::io::{BufRead, Write};
use std::time::Instant;

use support::ways;
use wellfed_jpeg::{Decoder, Options};

fn main() -> std::io::Result<()> {
    let tolerant = std::env::args().any(|a| a == "--tolerant");
    let plain = std::env::args().any(|a| a == "--plain");
    let mut decoder = Decoder::new();
    let mut out = std::io::stdout().lock();
    for path in std::io::stdin().lock().lines() {
        let bytes = std::fs::read(path?)?;
        // From here on the peak is that of this file; where the kernel does not offer this, it is the process's.
        let _ = std::fs::write("/proc/self/clear_refs", "5");
        let start = Instant::now();
        let options = Options { tolerant, ..ways::native() };
        let verdict = ways::verdict(&decoder.decode(&bytes, &options));
        let seconds = start.elapsed().as_secs_f64();
        let peak = peak().unwrap_or(0);
        let other = if plain { None } else { ways::ways(&bytes, &options) };
        writeln!(
            out,
            "{}\t{seconds}\t{peak}",
            other.map_or(verdict, |what| format!("inconsistent: {what}"))
        )?;
        out.flush()?;
    }
    Ok(())
}

/// The most memory that this process had, in bytes.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1024)
}
