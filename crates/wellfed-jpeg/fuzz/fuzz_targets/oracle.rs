//! The verdict and the pixels are those of libjpeg-turbo as Pillow uses it, strict and tolerant.

#![no_main]

#[path = "../shared.rs"]
mod shared;

use libfuzzer_sys::fuzz_target;
use turbo::{Format, Turbo};
use wellfed_jpeg::{Decoder, ErrorKind, Image, Options};

fuzz_target!(|bytes: &[u8]| {
    let mut rng = shared::choices(bytes);
    let tolerant = rng.chance(50);
    let options = Options { tolerant, ..shared::options() };
    let limits = options.limits;
    let ours = Decoder::new().decode(bytes, &options);
    // What is refused for its kind or its size is no matter for comparison.
    if let Err(reason) = &ours
        && matches!(reason.kind(), ErrorKind::Unsupported | ErrorKind::Limit)
    {
        return;
    }
    let theirs =
        Turbo::decode(bytes, Format::Native, !tolerant, limits.max_pixels as usize, limits.max_scans);
    match (ours, theirs) {
        (Ok(Image { width, height, channels, pixels }), Ok((image, expected))) => {
            let size = (image.width as usize, image.height as usize, image.channels as usize);
            assert_eq!((width, height, channels), size);
            // Of fill bytes libjpeg-turbo's fast loop makes something else than its careful one.
            let filled = bytes.windows(2).any(|two| two == [0xFF; 2]);
            if let Some(at) = (0..pixels.len()).filter(|_| !filled).find(|&i| pixels[i] != expected[i]) {
                let (x, y) = (at / channels % width, at / channels / width);
                panic!("column {x}, row {y}: {} instead of {}", pixels[at], expected[at]);
            }
        }
        (Ok(_), Err(reason)) => panic!("decodes, but libjpeg-turbo: {reason}"),
        (Err(reason), Ok(_)) => panic!("libjpeg-turbo decodes: {reason}"),
        (Err(_), Err(_)) => {}
    }
});
