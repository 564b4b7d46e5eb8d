//! Packed coefficients decode to the pixels of their file; no record, however damaged, does harm.

#![no_main]

#[path = "../shared.rs"]
mod shared;

use libfuzzer_sys::fuzz_target;
use shared::support::ways;
use wellfed_jpeg::Decoder;

fuzz_target!(|bytes: &[u8]| {
    let mut rng = shared::choices(bytes);
    let options = shared::options();
    // An input is a file to pack or itself a record.
    shared::same(ways::damage(bytes, &options));
    let full = Decoder::new().decode(bytes, &options);
    shared::same(ways::packed(bytes, &options, &full, &mut rng));
});
