//! `JPEG`: what compression leaves of the image.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use wellfed_jpeg::{Decoder, encode, most_bytes};
use wellfed_kernels::image::Image;

use super::{
    Action, Class, ImageAction, ImageMemory, Operation, Shape, Size,
    adjustment::check_channels,
    param::{Repr, Tuple, impossible, numbers},
};
use crate::{Error, ErrorKind, Result, rng::Rng};

/// Compresses the image as a JPEG of a quality drawn uniformly, and decodes it again: with the pixels of libjpeg-turbo.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::upper_case_acronyms, reason = "the name is torchvision's")]
pub struct JPEG {
    /// Least and greatest quality, 1 to 100; one number is both.
    #[serde(deserialize_with = "qualities")]
    pub quality: [u8; 2],
}

fn qualities<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[u8; 2], D::Error> {
    let allowed = "must be one whole number, or (least, greatest), of 1 to 100";
    match numbers::<u8, D>(deserializer, &[1, 2], allowed)?[..] {
        [one] => Ok([one, one]),
        [least, greatest] => Ok([least, greatest]),
        _ => Err(D::Error::custom(allowed)),
    }
}

impl JPEG {
    /// Compresses with a quality between these two.
    pub fn new(quality: [u8; 2]) -> Self {
        Self { quality }
    }
}

impl fmt::Display for JPEG {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "JPEG").field("quality", Tuple(&self.quality)).finish()
    }
}

impl Operation for JPEG {
    fn check(&self) -> Result<()> {
        let [least, greatest] = self.quality;
        if 1 <= least && least <= greatest && greatest <= 100 {
            return Ok(());
        }
        let what = format!("quality is {}; must be (least, greatest) of 1 to 100", Tuple(&self.quality));
        Err(Error::config(what))
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_channels(size)?;
        let [least, greatest] = self.quality;
        let quality = least + rng.below(u64::from(greatest - least) + 1) as u8;
        Ok(Action::Image(Arc::new(Compressed { quality })))
    }
}

/// Compression with a drawn quality.
#[derive(Debug)]
struct Compressed {
    quality: u8,
}

/// What decoding takes beside the file: tables, and some rows of every channel.
fn decoding(input: Size) -> usize {
    (1 << 19) + input.width.saturating_mul(256)
}

impl ImageAction for Compressed {
    fn memory(&self, input: Size) -> usize {
        most_bytes(input.height, input.width, input.channels).saturating_add(decoding(input))
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let size = (image.height(), image.width(), image.channels());
        if image.pixels().is_empty() {
            return Ok(());
        }
        let ImageMemory { file, decoder, .. } = memory;
        let failed = |e: wellfed_jpeg::Error| match e.kind() {
            wellfed_jpeg::ErrorKind::Memory => Error::new(ErrorKind::Limit, e.message().to_owned()),
            _ => impossible(e.message().to_owned()),
        };
        encode(image.pixels(), size, self.quality, file).map_err(failed)?;
        let stride = size.1 * size.2;
        let options = wellfed_jpeg::Options::default();
        decoder
            .get_or_insert_with(|| Box::new(Decoder::new()))
            .decode_into(file, &options, image.pixels_mut(), stride)
            .map_err(failed)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn all_qualities_are_equally_likely() {
        let mut counts = [0; 11];
        for action in draws(JPEG::new([20, 30]), size(9, 9), 11_000) {
            let shown = format!("{action:?}");
            let digits: String = shown.chars().filter(char::is_ascii_digit).collect();
            counts[digits.parse::<usize>().unwrap() - 20] += 1;
        }
        assert_uniform_counts(&counts);
    }

    #[test]
    fn compression_changes_little_at_high_quality_and_much_at_low() {
        let before: Vec<u8> = (0..40 * 50 * 3).map(|i| ((i / 150) * 5 + (i % 150) / 2) as u8).collect();
        let mut memory = ImageMemory::default();
        let mut apart = |quality| {
            let mut image = Image::new();
            image.reshape(40, 50, 3).unwrap().copy_from_slice(&before);
            Compressed { quality }.run(&mut image, &mut memory).unwrap();
            let sum: u64 = image.pixels().iter().zip(&before).map(|(a, b)| u64::from(a.abs_diff(*b))).sum();
            sum / before.len() as u64
        };
        assert!(apart(1) > 10 + apart(100));
        let size = Size { height: 40, width: 50, channels: 3 };
        assert!(memory.capacity() <= Compressed { quality: 1 }.memory(size), "{}", memory.capacity());
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(
            check_error(JPEG::new([0, 9])),
            "quality is (0, 9); must be (least, greatest) of 1 to 100"
        );
        assert!(check_error(JPEG::new([9, 8])).starts_with("quality is (9, 8)"));
        assert!(refuse(r#"{"type":"JPEG","quality":300}"#).contains("must be one whole number"));
        assert_eq!(read(r#"{"type":"JPEG","quality":75}"#).to_string(), "JPEG(quality=(75, 75))");
        assert!(JPEG::new([1, 2]).draw(Size { channels: 4, ..size(2, 2) }, &mut rng(0)).is_err());
        let wide = Size { height: 1, width: 70_000, channels: 1 };
        let Action::Image(action) = JPEG::new([9, 9]).draw(wide, &mut rng(0)).unwrap() else { panic!() };
        let mut image = Image::new();
        image.reshape(1, 70_000, 1).unwrap();
        let e = action.run(&mut image, &mut ImageMemory::default()).unwrap_err();
        assert!(e.message().contains("sides are 1 to 65500"), "{e}");
    }
}
