//! [`Recipe`]s as bytes, for records that go to where they are run: words of 64 bits, little-endian.
//!
//! Invariant: [`Recipe::decode`] gives what was encoded, and `None` for other bytes; it takes no memory that they do not
//! account for.

use super::{AffineMap, Fill, Geometry, Patch, PixelOp, Recipe, Stage};
use crate::{
    affine::Sampling,
    resample::{Filter, Rect},
    write::{PadMode, Window},
};

/// Filters by their numbers.
const FILTERS: [Filter; 13] = [
    Filter::Nearest,
    Filter::NearestExact,
    Filter::NearestCorner,
    Filter::Box,
    Filter::Bilinear,
    Filter::Hamming,
    Filter::Bicubic,
    Filter::Lanczos,
    Filter::OpenCvNearest,
    Filter::OpenCvLinear,
    Filter::TorchBilinear,
    Filter::TorchBicubic,
    Filter::OpenCvArea,
];

impl Recipe {
    /// Appends it to `bytes`: a multiple of 8.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let mut to = Writer(bytes);
        to.count(self.stages.len());
        for stage in &self.stages {
            to.geometry(&stage.geometry);
            to.count(stage.ops.len());
            stage.ops.iter().for_each(|op| to.op(op));
        }
        to.count(self.patches.len());
        self.patches.iter().for_each(|patch| to.patch(patch));
    }

    /// The one that `bytes` are; `None` if they are none.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut from = Reader(bytes);
        let stages = from.list(|from| {
            let geometry = from.geometry()?;
            Some(Stage { geometry, ops: from.list(Reader::op)? })
        })?;
        let patches = from.list(Reader::patch)?;
        (from.0.is_empty() && !stages.is_empty()).then_some(Self { stages, patches })
    }
}

struct Writer<'a>(&'a mut Vec<u8>);

impl Writer<'_> {
    fn word(&mut self, word: u64) {
        self.0.extend_from_slice(&word.to_le_bytes());
    }

    fn count(&mut self, count: usize) {
        self.word(count as u64);
    }

    fn number(&mut self, number: f64) {
        self.word(number.to_bits());
    }

    fn bytes(&mut self, bytes: [u8; 4]) {
        self.word(u64::from(u32::from_le_bytes(bytes)));
    }

    fn rect(&mut self, Rect { top, left, height, width }: Rect) {
        [top, left, height, width].into_iter().for_each(|side| self.count(side));
    }

    fn geometry(&mut self, geometry: &Geometry) {
        let Geometry { crop, resize, window, pad, flip_h, flip_v } = *geometry;
        self.rect(crop);
        let (height, width, filter) = resize.unwrap_or((0, 0, Filter::Nearest));
        self.word(u64::from(resize.is_some()));
        self.count(height);
        self.count(width);
        self.count(FILTERS.iter().position(|known| *known == filter).unwrap_or(FILTERS.len()));
        self.word(window.top as u64);
        self.word(window.left as u64);
        self.count(window.height);
        self.count(window.width);
        let (mode, fill) = match pad {
            PadMode::Constant(fill) => (0, fill),
            PadMode::Edge => (1, [0; 4]),
            PadMode::Reflect => (2, [0; 4]),
            PadMode::Symmetric => (3, [0; 4]),
        };
        self.word(mode);
        self.bytes(fill);
        self.word(u64::from(flip_h) | u64::from(flip_v) << 1);
    }

    fn op(&mut self, op: &PixelOp) {
        let kind = match op {
            PixelOp::Brightness(_) => 0,
            PixelOp::Contrast(_) => 1,
            PixelOp::Saturation(_) => 2,
            PixelOp::Hue(_) => 3,
            PixelOp::Gray(_) => 4,
            PixelOp::Invert => 5,
            PixelOp::Posterize(_) => 6,
            PixelOp::Solarize(_) => 7,
            PixelOp::SolarizeAdd(_) => 8,
            PixelOp::Autocontrast => 9,
            PixelOp::Equalize => 10,
            PixelOp::Permute(_) => 11,
            PixelOp::Erase(_) => 12,
            PixelOp::Blur { .. } => 13,
            PixelOp::Affine(_) => 14,
        };
        self.word(kind);
        match op {
            PixelOp::Brightness(x)
            | PixelOp::Contrast(x)
            | PixelOp::Saturation(x)
            | PixelOp::Hue(x)
            | PixelOp::Solarize(x) => self.number(*x),
            PixelOp::Gray(channels) => self.count(*channels),
            PixelOp::Posterize(bits) => self.word(u64::from(*bits)),
            PixelOp::SolarizeAdd(add) => self.word(u64::from(*add)),
            PixelOp::Invert | PixelOp::Autocontrast | PixelOp::Equalize => {}
            PixelOp::Permute(order) => order.iter().for_each(|channel| self.count(*channel)),
            PixelOp::Erase(patch) => self.patch(patch),
            PixelOp::Blur { kernel, sigma } => {
                kernel.iter().for_each(|side| self.count(*side));
                sigma.iter().for_each(|sigma| self.number(*sigma));
            }
            PixelOp::Affine(AffineMap { matrix, sampling, fill, size }) => {
                matrix.iter().for_each(|number| self.number(*number));
                self.word(match sampling {
                    Sampling::Nearest => 0,
                    Sampling::Bilinear => 1,
                    Sampling::Bicubic => 2,
                });
                self.bytes(*fill);
                self.count(size.0);
                self.count(size.1);
            }
        }
    }

    fn patch(&mut self, patch: &Patch) {
        self.rect(patch.rect);
        let (each, values) = match &patch.fill {
            Fill::Constant(values) => (0, &values[..]),
            Fill::Each(values) => (1, &values[..]),
        };
        self.word(each);
        self.count(values.len());
        values.iter().for_each(|value| self.word(u64::from(value.to_bits())));
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn word(&mut self) -> Option<u64> {
        let (word, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*word))
    }

    fn count(&mut self) -> Option<usize> {
        self.word()?.try_into().ok()
    }

    fn number(&mut self) -> Option<f64> {
        self.word().map(f64::from_bits)
    }

    fn bytes(&mut self) -> Option<[u8; 4]> {
        u32::try_from(self.word()?).ok().map(u32::to_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.word()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// As many as a count says, each of which takes a word at least.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.count().filter(|count| *count <= self.0.len() / 8)?;
        (0..count).map(|_| one(self)).collect()
    }

    fn rect(&mut self) -> Option<Rect> {
        Some(Rect { top: self.count()?, left: self.count()?, height: self.count()?, width: self.count()? })
    }

    fn geometry(&mut self) -> Option<Geometry> {
        let crop = self.rect()?;
        let resized = self.flag()?;
        let (height, width, filter) = (self.count()?, self.count()?, *FILTERS.get(self.count()?)?);
        let (top, left) = (self.word()? as i64, self.word()? as i64);
        let window = Window { top, left, height: self.count()?, width: self.count()? };
        let (mode, fill) = (self.word()?, self.bytes()?);
        let pad = match mode {
            0 => PadMode::Constant(fill),
            1 => PadMode::Edge,
            2 => PadMode::Reflect,
            3 => PadMode::Symmetric,
            _ => return None,
        };
        let flips = self.word().filter(|flips| *flips < 4)?;
        let resize = resized.then_some((height, width, filter));
        Some(Geometry { crop, resize, window, pad, flip_h: flips & 1 != 0, flip_v: flips & 2 != 0 })
    }

    fn op(&mut self) -> Option<PixelOp> {
        Some(match self.word()? {
            0 => PixelOp::Brightness(self.number()?),
            1 => PixelOp::Contrast(self.number()?),
            2 => PixelOp::Saturation(self.number()?),
            3 => PixelOp::Hue(self.number()?),
            4 => PixelOp::Gray(self.count()?),
            5 => PixelOp::Invert,
            6 => PixelOp::Posterize(self.word()?.try_into().ok()?),
            7 => PixelOp::Solarize(self.number()?),
            8 => PixelOp::SolarizeAdd(self.word()?.try_into().ok()?),
            9 => PixelOp::Autocontrast,
            10 => PixelOp::Equalize,
            11 => PixelOp::Permute([self.count()?, self.count()?, self.count()?]),
            12 => PixelOp::Erase(self.patch()?),
            13 => PixelOp::Blur {
                kernel: [self.count()?, self.count()?],
                sigma: [self.number()?, self.number()?],
            },
            14 => {
                let mut matrix = [0.0; 6];
                for number in &mut matrix {
                    *number = self.number()?;
                }
                let sampling =
                    *[Sampling::Nearest, Sampling::Bilinear, Sampling::Bicubic].get(self.count()?)?;
                let fill = self.bytes()?;
                PixelOp::Affine(AffineMap { matrix, sampling, fill, size: (self.count()?, self.count()?) })
            }
            _ => return None,
        })
    }

    fn patch(&mut self) -> Option<Patch> {
        let rect = self.rect()?;
        let each = self.flag()?;
        let values = self.list(|from| u32::try_from(from.word()?).ok().map(f32::from_bits))?;
        let fill = if each { Fill::Each(values) } else { Fill::Constant(values.try_into().ok()?) };
        Some(Patch { rect, fill })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipe() -> Recipe {
        let mut recipe = Recipe::new(9, 7);
        let geometry = &mut recipe.stages[0].geometry;
        geometry.resize = Some((20, 30, Filter::OpenCvArea));
        geometry.window = Window { top: -3, left: 4, height: 5, width: 6 };
        geometry.pad = PadMode::Constant([1, 2, 3, 4]);
        geometry.flip_v = true;
        let rect = Rect { top: 1, left: 2, height: 1, width: 2 };
        let each = Patch { rect, fill: Fill::Each(vec![1.5, -0.0]) };
        recipe.stages[0].ops = vec![
            PixelOp::Brightness(0.1),
            PixelOp::Contrast(0.2),
            PixelOp::Saturation(0.3),
            PixelOp::Hue(-0.4),
            PixelOp::Gray(3),
            PixelOp::Invert,
            PixelOp::Posterize(3),
            PixelOp::Solarize(99.5),
            PixelOp::SolarizeAdd(7),
            PixelOp::Autocontrast,
            PixelOp::Equalize,
            PixelOp::Permute([2, 0, 1]),
            PixelOp::Erase(each.clone()),
            PixelOp::Blur { kernel: [3, 5], sigma: [0.5, 2.0] },
            PixelOp::Affine(AffineMap {
                matrix: [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
                sampling: Sampling::Bicubic,
                fill: [9; 4],
                size: (5, 6),
            }),
        ];
        recipe.stages.push(Stage::new(5, 6));
        recipe.patches = vec![each, Patch { rect, fill: Fill::Constant([0.0, 1.0, 2.0, 3.0]) }];
        recipe
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let mut bytes = vec![];
        recipe().encode(&mut bytes);
        assert!(bytes.len().is_multiple_of(8));
        assert_eq!(Recipe::decode(&bytes), Some(recipe()));
    }

    #[test]
    fn other_bytes_are_refused() {
        let mut bytes = vec![];
        recipe().encode(&mut bytes);
        for end in 0..bytes.len() {
            assert_eq!(Recipe::decode(&bytes[..end]), None, "{end} bytes");
        }
        bytes.extend([0; 8]);
        assert_eq!(Recipe::decode(&bytes), None, "more than a recipe");
        assert_eq!(Recipe::decode(&[0xFF; 64]), None, "counts of more than there is");
        assert_eq!(Recipe::decode(&[0; 16]), None, "no stage");
    }
}
