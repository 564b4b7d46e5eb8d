//! Recording a row index changes nothing, and it leads to the same pixels; another file's index is not taken.

#![no_main]

#[path = "../shared.rs"]
mod shared;

use libfuzzer_sys::fuzz_target;
use shared::support::ways;
use wellfed_jpeg::{Decoder, Options};

fuzz_target!(|bytes: &[u8]| {
    let mut rng = shared::choices(bytes);
    let options = Options { tolerant: rng.chance(50), ..shared::options() };
    let mut decoder = Decoder::new();
    let full = decoder.decode(bytes, &Options { record: true, ..options });
    shared::same(ways::index(bytes, &options, &full, &mut rng));

    let Some(index) = decoder.take_index() else { return };
    let mut other = bytes.to_vec();
    let at = rng.below(other.len());
    other[at] ^= 1 << rng.below(8);
    let plain = decoder.decode(&other, &options);
    let with = decoder.decode(&other, &Options { index: Some(&index), ..options });
    shared::same(ways::differ(&with, &plain));
});
