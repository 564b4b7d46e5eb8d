//! No input makes any way of decoding panic, hang or ask for more memory than the limits allow.

#![no_main]

#[path = "../shared.rs"]
mod shared;

use libfuzzer_sys::fuzz_target;
use shared::support::ways;
use wellfed_jpeg::{Decoder, Format, Header, Options, Scale};

fuzz_target!(|bytes: &[u8]| {
    let mut rng = shared::choices(bytes);
    let options = Options {
        format: *rng.pick(&[Format::Native, Format::Rgb, Format::Grey]),
        scale: *rng.pick(&[Scale::Full, Scale::Full, Scale::Half, Scale::Quarter, Scale::Eighth]),
        tolerant: rng.chance(50),
        ..shared::options()
    };
    let header = Header::parse(bytes);
    let full = Decoder::new().decode(bytes, &options);
    // A tolerant decode makes up the rest of a header that is cut in its last segment.
    if let (Err(reason), Ok(_), false) = (&header, &full, options.tolerant) {
        panic!("decodes although its header does not: {reason}");
    }
    shared::same(ways::outputs(bytes, &options, &full));
});
