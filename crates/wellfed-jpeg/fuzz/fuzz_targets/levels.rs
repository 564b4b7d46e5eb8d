//! Every instruction set of this processor gives what portable code gives.

#![no_main]

#[path = "../shared.rs"]
mod shared;

use libfuzzer_sys::fuzz_target;
use shared::support::ways;
use wellfed_jpeg::Options;

fuzz_target!(|bytes: &[u8]| {
    let mut rng = shared::choices(bytes);
    let options = Options { tolerant: rng.chance(50), ..shared::options() };
    shared::same(ways::levels(bytes, &options));
});
