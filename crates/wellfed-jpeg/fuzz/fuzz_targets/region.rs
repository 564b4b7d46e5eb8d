//! A region is that part of the whole.

#![no_main]

#[path = "../shared.rs"]
mod shared;

use libfuzzer_sys::fuzz_target;
use shared::support::ways;
use wellfed_jpeg::{Decoder, Options, Scale};

fuzz_target!(|bytes: &[u8]| {
    let mut rng = shared::choices(bytes);
    let options = Options {
        scale: *rng.pick(&[Scale::Full, Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth]),
        tolerant: rng.chance(50),
        ..shared::options()
    };
    let full = Decoder::new().decode(bytes, &options);
    for _ in 0..3 {
        shared::same(ways::region(bytes, &options, &full, &mut rng));
    }
});
