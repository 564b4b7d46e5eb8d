//! Caffe's `Datum`: one image with its label, as a protocol buffer.
//!
//! ```text
//! message Datum { channels = 1, height = 2, width = 3: int32; data = 4: bytes; label = 5: int32;
//!                 float_data = 6: repeated float; encoded = 7: bool }
//! ```
//!
//! Format: `caffe.proto` of <https://github.com/BVLC/caffe>. Pixels are planes, in the order that the writer gave them: Caffe's own
//! tools write blue, green, red.

use super::{
    plain_png,
    proto_wire::{Part, Wire},
};
use crate::{
    Error, Result, codec,
    sample::{DType, FieldKind, FieldSpec, PixelLayout, Value},
};

/// A message, taken apart.
#[derive(Debug, Default)]
pub(super) struct Datum<'a> {
    /// Channels, height, width.
    sides: [i64; 3],
    data: &'a [u8],
    label: i64,
    /// Bytes of the elements of `float_data`, little-endian.
    floats: Vec<u8>,
    encoded: bool,
}

/// What the images of a data set are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Images {
    /// Encoded: JPEG or PNG.
    Encoded,
    /// Planes of one size: channels, height, width.
    Planes([usize; 3]),
    /// Planes of 1, 3 or 4 channels whose size differs: they become PNGs.
    Sizes,
    /// Floating-point planes of one size.
    Floats([usize; 3]),
}

impl<'a> Datum<'a> {
    /// Reads a message, which must have what it states.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut this = Self::default();
        let mut rest = Part::whole(bytes);
        while let Some((number, value)) = rest.field()? {
            match (number, value) {
                // int32 is written in 64 bits where it is negative.
                (1..=3, Wire::Varint(side)) => this.sides[number as usize - 1] = i64::from(side as i32),
                (4, Wire::Bytes(data)) => this.data = data.bytes,
                (5, Wire::Varint(label)) => this.label = i64::from(label as i32),
                (6, Wire::Fixed32(float)) => this.floats.extend_from_slice(&float),
                (6, Wire::Bytes(packed)) if packed.bytes.len().is_multiple_of(4) => {
                    this.floats.extend_from_slice(packed.bytes);
                }
                (7, Wire::Varint(encoded)) => this.encoded = encoded != 0,
                (1..=7, _) => {
                    return Err(Error::corrupt(format!(
                        "is no Datum: field {number} of it is of another type"
                    )));
                }
                _ => {}
            }
        }
        let size =
            this.shape().and_then(|sides| sides.iter().try_fold(1, |all: usize, n| all.checked_mul(*n)));
        let given = if this.data.is_empty() { this.floats.len() / 4 } else { this.data.len() };
        if this.encoded {
            if this.data.is_empty() {
                return Err(Error::corrupt("is a Datum without its encoded image"));
            }
        } else if size != Some(given) || given == 0 {
            let sides = this.sides;
            return Err(Error::corrupt(format!("is a Datum of {sides:?} with {given} elements")));
        }
        Ok(this)
    }

    fn shape(&self) -> Option<[usize; 3]> {
        let [channels, height, width] = self.sides.map(|side| usize::try_from(side).ok());
        Some([channels?, height?, width?])
    }

    /// Whether it looks like one at all: any message of numbers could be one.
    pub(super) fn is_likely(&self) -> bool {
        !self.encoded || codec::detect(self.data).is_some()
    }

    fn images(&self) -> Images {
        let sides = self.shape().unwrap_or_default();
        if self.encoded {
            Images::Encoded
        } else if self.data.is_empty() {
            Images::Floats(sides)
        } else {
            Images::Planes(sides)
        }
    }
}

impl Images {
    /// What holds for all of `examples`. `None` if there is no such thing, or no example.
    pub(super) fn of(examples: &[Datum<'_>]) -> Option<Self> {
        let mut all = examples.iter().map(Datum::images);
        let first = all.next()?;
        let as_png = |images: &Self| matches!(images, Self::Planes([1 | 3 | 4, ..]));
        let same = |a: Self, b: Self| match (a, b) {
            (a, b) if a == b => Some(a),
            (a, Self::Sizes) | (Self::Sizes, a) if as_png(&a) => Some(Self::Sizes),
            (a, b) if as_png(&a) && as_png(&b) => Some(Self::Sizes),
            _ => None,
        };
        all.try_fold(first, same)
    }

    /// The fields `image` and `label`.
    pub(super) fn fields(&self) -> Vec<FieldSpec> {
        let image = match *self {
            Self::Encoded | Self::Sizes => FieldKind::Image,
            Self::Planes([channels @ (1 | 3 | 4), height, width]) => {
                FieldKind::Pixels { height, width, channels, layout: PixelLayout::Chw }
            }
            Self::Planes(sides) => FieldKind::array(DType::UInt8, &sides),
            Self::Floats(sides) => FieldKind::array(DType::Float32, &sides),
        };
        let field = |name: &str, kind| FieldSpec { name: name.to_owned(), kind };
        vec![field("image", image), field("label", FieldKind::LABEL)]
    }

    /// Puts the image of `datum` into `value`.
    pub(super) fn read(&self, datum: &Datum<'_>, value: &mut Value) -> Result<(), String> {
        let found = datum.images();
        let as_png = matches!((self, &found), (Self::Sizes, Self::Planes([1 | 3 | 4, ..])));
        if found != *self && !as_png {
            return Err(format!("is a Datum of {found:?}, but the first ones are {self:?}"));
        }
        match found {
            Self::Planes([channels, height, width]) if as_png => {
                let side = |side: usize| {
                    u32::try_from(side).map_err(|_| format!("is an image with a side of {side}"))
                };
                let plane = height * width;
                let mut pixels = Vec::new();
                pixels
                    .try_reserve_exact(datum.data.len())
                    .map_err(|e| format!("has too many pixels: {e}"))?;
                for at in 0..plane {
                    pixels.extend((0..channels).filter_map(|channel| datum.data.get(channel * plane + at)));
                }
                *value = Value::Bytes(plain_png::of_pixels(
                    side(width)?,
                    side(height)?,
                    channels as u64,
                    &pixels,
                )?);
            }
            Self::Floats(_) => {
                let buffer = value.buffer();
                buffer.extend_from_slice(&datum.floats);
                if cfg!(target_endian = "big") {
                    buffer.chunks_exact_mut(4).for_each(<[u8]>::reverse);
                }
            }
            _ => value.buffer().extend_from_slice(datum.data),
        }
        Ok(())
    }
}

impl Datum<'_> {
    pub(super) fn label(&self) -> i64 {
        self.label
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A message as Caffe writes it.
    pub(in crate::source) fn message(sides: [u8; 3], data: &[u8], label: i32, encoded: bool) -> Vec<u8> {
        let mut all = vec![8, sides[0], 16, sides[1], 24, sides[2], 0x22];
        let number = |all: &mut Vec<u8>, mut n: u64| {
            while n > 127 {
                all.push(n as u8 | 128);
                n >>= 7;
            }
            all.push(n as u8);
        };
        number(&mut all, data.len() as u64);
        all.extend(data);
        all.push(40);
        number(&mut all, i64::from(label).cast_unsigned());
        all.extend([56, u8::from(encoded)]);
        all
    }

    fn read(images: &Images, bytes: &[u8]) -> Result<Value, String> {
        let mut value = Value::Empty;
        images.read(&Datum::parse(bytes).unwrap(), &mut value).map(|()| value)
    }

    #[test]
    fn planes_and_encoded_images_are_read() {
        let planes = message([3, 1, 2], &[1, 2, 3, 4, 5, 6], -7, false);
        let datum = Datum::parse(&planes).unwrap();
        assert_eq!((datum.label(), datum.is_likely()), (-7, true));
        let images = Images::of(&[datum]).unwrap();
        assert_eq!(images, Images::Planes([3, 1, 2]));
        assert_eq!(read(&images, &planes).unwrap(), Value::Bytes(vec![1, 2, 3, 4, 5, 6]));
        let other = message([3, 2, 1], &[1, 2, 3, 4, 5, 6], 0, false);
        assert!(read(&images, &other).unwrap_err().contains("Planes([3, 2, 1])"));
        let both = [&planes, &other].map(|bytes| Datum::parse(bytes).unwrap());
        let images = Images::of(&both).unwrap();
        assert_eq!((&images, images.fields()[0].kind.clone()), (&Images::Sizes, FieldKind::Image));
        let Value::Bytes(file) = read(&images, &planes).unwrap() else { panic!("no bytes") };
        let mut reader = png::Decoder::new(std::io::Cursor::new(file)).read_info().unwrap();
        let mut pixels = vec![0; 6];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!((reader.info().width, pixels), (2, vec![1, 3, 5, 2, 4, 6]));
        let encoded = message([3, 0, 0], b"\xff\xd8\xff rest", 3, true);
        let datum = Datum::parse(&encoded).unwrap();
        assert!(datum.is_likely() && Images::of(&[datum]) == Some(Images::Encoded));
        assert_eq!(read(&Images::Encoded, &encoded).unwrap(), Value::Bytes(b"\xff\xd8\xff rest".to_vec()));
        let mixed = [&planes, &encoded].map(|bytes| Datum::parse(bytes).unwrap());
        assert_eq!(Images::of(&mixed), None);
    }

    #[test]
    fn floats_are_read_packed_or_not() {
        let halves: Vec<u8> = [0.5_f32, -1.0].iter().flat_map(|x| x.to_le_bytes()).collect();
        let head = [8, 1, 16, 1, 24, 2];
        let packed = [&head[..], &[0x32, 8], &halves].concat();
        let single = [&head[..], &[0x35], &halves[..4], &[0x35], &halves[4..]].concat();
        for bytes in [packed, single] {
            let images = Images::of(&[Datum::parse(&bytes).unwrap()]).unwrap();
            assert_eq!(images.fields()[0].kind, FieldKind::array(DType::Float32, &[1, 1, 2]));
            let expected: Vec<u8> = [0.5_f32, -1.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
            assert_eq!(read(&images, &bytes).unwrap(), Value::Bytes(expected));
        }
    }

    #[test]
    fn what_is_no_datum_is_an_error() {
        let good = message([3, 1, 2], &[1, 2, 3, 4, 5, 6], 1, false);
        for bad in [
            message([3, 1, 3], &[1, 2, 3, 4, 5, 6], 1, false),
            message([0, 0, 0], &[], 1, false),
            message([3, 1, 1], &[], 1, true),
            vec![0x0A, 1, 5],
            vec![],
        ] {
            assert!(Datum::parse(&bad).is_err(), "{bad:?}");
        }
        for cut in 0..good.len() - 4 {
            assert!(Datum::parse(&good[..cut]).is_err(), "{cut}");
        }
    }
}
