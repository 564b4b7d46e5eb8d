//! [`TimmOp`]: one operation of timm's automatic augmentations, and what it does to an image.
//!
//! Names, magnitudes and signs are those of timm 1.0's `auto_augment.py` (`LEVEL_TO_ARG`, `NAME_TO_OP`), which calls Pillow:
//! not those of torchvision, whose magnitudes are tables and whose shears are angles.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{
    affine::{Sampling, affine},
    box_blur,
    image::Image,
};

use super::{
    ColorStep, ColorSteps, ImageAction, ImageMemory, Interpolation, PerChannel, RandomRotation, Size,
    adjustment::Adjustment, image_action::elements, param::check_probability, random_affine::sampling,
};
use crate::{Error, Result, rng::Rng};

/// What is done, by timm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are timm's")]
pub enum TimmKind {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    PosterizeIncreasing,
    PosterizeOriginal,
    Solarize,
    SolarizeIncreasing,
    SolarizeAdd,
    Color,
    ColorIncreasing,
    Contrast,
    ContrastIncreasing,
    Brightness,
    BrightnessIncreasing,
    Sharpness,
    SharpnessIncreasing,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    TranslateXRel,
    TranslateYRel,
    Desaturate,
    GaussianBlur,
    GaussianBlurRand,
}

/// An operation, how often it is done where it was chosen, and its magnitude. In JSON `["Rotate", 0.5, 9]`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimmOp(pub TimmKind, pub f64, pub f64);

impl TimmOp {
    pub(super) fn check(&self) -> Result<()> {
        check_probability(self.1)?;
        if self.2.is_finite() && self.2.abs() <= 1e6 {
            return Ok(());
        }
        Err(Error::config(format!("the magnitude of {self} must be a number, at most 1,000,000")))
    }
}

impl fmt::Display for TimmOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?}, {}, {})", self.0, self.1, self.2)
    }
}

/// What a magnitude of 10 stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Levels {
    /// Pixels that the image is moved by.
    pub(super) translate_const: f64,
    /// Share of its side that it is moved by.
    pub(super) translate_pct: f64,
}

/// timm's `_LEVEL_DENOM`.
pub(super) const LEVEL_DENOM: f64 = 10.0;

impl TimmKind {
    /// Whether pixels between pixels are looked for.
    pub(super) fn samples(self) -> bool {
        use TimmKind::*;
        matches!(self, Rotate | ShearX | ShearY | TranslateX | TranslateY | TranslateXRel | TranslateYRel)
    }

    /// Its argument at a magnitude (`LEVEL_TO_ARG`), with a sign where it has one by chance.
    pub(super) fn argument(self, magnitude: f64, levels: Levels, rng: &mut Rng) -> f64 {
        use TimmKind::*;
        let level = magnitude / LEVEL_DENOM;
        let either = |v: f64, rng: &mut Rng| if rng.chance(0.5) { -v } else { v };
        let between = |low: f64, high: f64| (low + (high - low) * level).min(high).max(low);
        match self {
            AutoContrast | Equalize | Invert => 0.0,
            Rotate => either(level * 30.0, rng),
            Posterize => (level * 4.0).trunc(),
            PosterizeIncreasing => 4.0 - (level * 4.0).trunc(),
            PosterizeOriginal => (level * 4.0).trunc() + 4.0,
            Solarize => (level * 256.0).trunc().min(256.0),
            SolarizeIncreasing => 256.0 - (level * 256.0).trunc().min(256.0),
            SolarizeAdd => (level * 110.0).trunc().min(128.0),
            Color | Contrast | Brightness | Sharpness => level * 1.8 + 0.1,
            ColorIncreasing | ContrastIncreasing | BrightnessIncreasing | SharpnessIncreasing => {
                (1.0 + either(level * 0.9, rng)).max(0.1)
            }
            ShearX | ShearY => either(level * 0.3, rng),
            TranslateX | TranslateY => either(level * levels.translate_const, rng),
            TranslateXRel | TranslateYRel => either(level * levels.translate_pct, rng),
            Desaturate => between(0.5, 1.0),
            GaussianBlur => between(0.1, 2.0),
            GaussianBlurRand => rng.uniform(0.1, 2.0 * between(0.0, 1.0)),
        }
    }

    /// What it does to an image of `size`; `None` is nothing.
    pub(super) fn action(
        self,
        argument: f64,
        (interpolation, fill): (Interpolation, PerChannel),
        size: Size,
    ) -> Option<Arc<dyn ImageAction>> {
        use TimmKind::*;
        let adjust = |adjustment: Adjustment| Some(Arc::new(adjustment) as Arc<dyn ImageAction>);
        let color = |step| Some(Arc::new(ColorSteps::new([step])) as Arc<dyn ImageAction>);
        let map = |matrix| {
            let sampling = sampling(interpolation);
            Some(Arc::new(Mapped { matrix, sampling, fill }) as Arc<dyn ImageAction>)
        };
        match self {
            AutoContrast => adjust(Adjustment::Autocontrast),
            Equalize => adjust(Adjustment::Equalize),
            Invert => adjust(Adjustment::Invert),
            Rotate => {
                let rotation =
                    RandomRotation { fill, ..RandomRotation::new(0.0).interpolation(interpolation) };
                Some(Arc::new(rotation.rotation(argument)))
            }
            Posterize | PosterizeIncreasing | PosterizeOriginal if argument >= 8.0 => None,
            Posterize | PosterizeIncreasing | PosterizeOriginal => {
                // Below 0 timm keeps no bit either: the mask of more than 8 bits is that of 8.
                adjust(Adjustment::Posterize(argument.max(0.0) as u32))
            }
            Solarize | SolarizeIncreasing => adjust(Adjustment::Solarize(argument)),
            SolarizeAdd => adjust(Adjustment::SolarizeAdd(argument as u8)),
            // Grey has no saturation.
            Color | ColorIncreasing | Desaturate if size.channels == 1 => None,
            Color | ColorIncreasing => color(ColorStep::Saturation(argument)),
            Desaturate => color(ColorStep::Saturation((1.0 - argument).clamp(0.0, 1.0))),
            Contrast | ContrastIncreasing => color(ColorStep::Contrast(argument)),
            Brightness | BrightnessIncreasing => color(ColorStep::Brightness(argument)),
            Sharpness | SharpnessIncreasing => adjust(Adjustment::Sharpness(argument)),
            ShearX => map([1.0, argument, 0.0, 0.0, 1.0, 0.0]),
            ShearY => map([1.0, 0.0, 0.0, argument, 1.0, 0.0]),
            TranslateX => map([1.0, 0.0, argument, 0.0, 1.0, 0.0]),
            TranslateY => map([1.0, 0.0, 0.0, 0.0, 1.0, argument]),
            TranslateXRel => map([1.0, 0.0, argument * size.width as f64, 0.0, 1.0, 0.0]),
            TranslateYRel => map([1.0, 0.0, 0.0, 0.0, 1.0, argument * size.height as f64]),
            GaussianBlur | GaussianBlurRand => Some(Arc::new(BoxBlur(argument as f32))),
        }
    }
}

/// Pillow's `Image.transform(size, AFFINE, matrix)`: from output to source, with no centre.
#[derive(Debug)]
struct Mapped {
    matrix: [f64; 6],
    sampling: Sampling,
    fill: PerChannel,
}

impl ImageAction for Mapped {
    fn memory(&self, input: Size) -> usize {
        elements(input)
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        if image.pixels().is_empty() {
            return Ok(());
        }
        let (sides, fill) = ((image.height(), image.width()), self.fill.bytes(image.channels()));
        affine(image.view(), &self.matrix, self.sampling, fill, sides, &mut memory.spare)?;
        std::mem::swap(image, &mut memory.spare);
        Ok(())
    }
}

/// Pillow's `ImageFilter.GaussianBlur` of this radius.
#[derive(Debug)]
struct BoxBlur(f32);

impl ImageAction for BoxBlur {
    fn memory(&self, input: Size) -> usize {
        box_blur::memory(input.height, input.width)
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let bytes = box_blur::memory(image.height(), image.width());
        memory.file.clear();
        memory.file.try_reserve_exact(bytes).map_err(|_| Error::memory(bytes, "lines"))?;
        box_blur::gaussian_blur(image, self.0, &mut memory.file);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, TimmKind::*, *};

    const LEVELS: Levels = Levels { translate_const: 250.0, translate_pct: 0.45 };

    #[test]
    fn arguments_are_timms() {
        let at = |kind: TimmKind, magnitude| kind.argument(magnitude, LEVELS, &mut rng(0)).abs();
        // Of timm 1.0.31: LEVEL_TO_ARG[name](magnitude, {"translate_const": 250}).
        for (kind, magnitude, expected) in [
            (Rotate, 9.0, 27.0),
            (Posterize, 9.0, 3.0),
            (PosterizeIncreasing, 9.0, 1.0),
            (PosterizeOriginal, 9.0, 7.0),
            (PosterizeOriginal, 10.0, 8.0),
            (Solarize, 9.0, 230.0),
            (Solarize, 11.0, 256.0),
            (SolarizeIncreasing, 9.0, 26.0),
            (SolarizeAdd, 9.0, 99.0),
            (SolarizeAdd, 12.0, 128.0),
            (Color, 9.0, 1.720_000_000_000_000_2),
            (ShearX, 9.0, 0.27),
            (TranslateX, 9.0, 225.0),
            (TranslateYRel, 10.0, 0.45),
            (Desaturate, 9.0, 0.95),
            (Desaturate, 30.0, 1.0),
            (GaussianBlur, 9.0, 1.81),
        ] {
            assert_eq!(at(kind, magnitude), expected, "{kind:?}");
        }
    }

    #[test]
    fn signs_are_even_and_what_increases_does_so_to_both_sides() {
        for kind in [Rotate, ShearX, ShearY, TranslateX, TranslateY, TranslateXRel, TranslateYRel] {
            let negative = (0..4000).filter(|&i| kind.argument(5.0, LEVELS, &mut rng(i)) < 0.0).count();
            assert_probability(negative, 4000, 0.5);
        }
        let below = (0..4000).filter(|&i| ColorIncreasing.argument(10.0, LEVELS, &mut rng(i)) < 1.0).count();
        assert_probability(below, 4000, 0.5);
        assert_eq!(ContrastIncreasing.argument(0.0, LEVELS, &mut rng(1)), 1.0);
        assert_uniform((0..4000).map(|i| GaussianBlurRand.argument(10.0, LEVELS, &mut rng(i))), 0.1, 2.0);
    }

    #[test]
    fn grey_has_no_saturation_and_eight_bits_are_all() {
        let outside = (Interpolation::Bicubic, 0.0.into());
        let gray = Size { channels: 1, ..size(3, 3) };
        for kind in [Color, ColorIncreasing, Desaturate] {
            assert!(kind.action(0.5, outside, gray).is_none());
            assert!(kind.action(0.5, outside, size(3, 3)).is_some());
        }
        assert!(PosterizeOriginal.action(8.0, outside, gray).is_none());
        assert!(Posterize.action(0.0, outside, gray).is_some());
    }
}
