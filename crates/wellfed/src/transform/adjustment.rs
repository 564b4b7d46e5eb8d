//! [`Adjustment`]: what is done to the values of an image by `RandomInvert` and its neighbours.

use std::sync::Arc;

use wellfed_kernels::{image::Image, recipe::PixelOp, sharpen, tables};

use super::{Action, ImageAction, ImageMemory, Size, image_action::elements, param::impossible};
use crate::{Result, rng::Rng};

/// A change of values, as Pillow's `ImageOps` and `ImageEnhance.Sharpness` make it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Adjustment {
    Invert,
    /// Highest bits to keep, 0 to 8.
    Posterize(u32),
    /// Least value that is turned around.
    Solarize(f64),
    /// What is added to values below 128.
    SolarizeAdd(u8),
    /// 0 is smooth, 1 leaves the image alone.
    Sharpness(f64),
    Autocontrast,
    Equalize,
}

impl Adjustment {
    /// This with probability `p`, for an image of `size`.
    pub(super) fn chance(self, p: f64, size: Size, rng: &mut Rng) -> Result<Action> {
        check_channels(size)?;
        Ok(if rng.chance(p) { Action::Image(Arc::new(self)) } else { Action::Keep })
    }
}

impl ImageAction for Adjustment {
    fn pixel_ops(&self, _input: Size) -> Option<Vec<PixelOp>> {
        Some(vec![match *self {
            Adjustment::Invert => PixelOp::Invert,
            Adjustment::Posterize(bits) => PixelOp::Posterize(bits),
            Adjustment::Solarize(threshold) => PixelOp::Solarize(threshold),
            Adjustment::SolarizeAdd(add) => PixelOp::SolarizeAdd(add),
            // It looks at neighbours.
            Adjustment::Sharpness(_) => return None,
            Adjustment::Autocontrast => PixelOp::Autocontrast,
            Adjustment::Equalize => PixelOp::Equalize,
        }])
    }

    fn memory(&self, input: Size) -> usize {
        if matches!(self, Adjustment::Sharpness(_)) { elements(input) } else { 0 }
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        match *self {
            Adjustment::Invert => tables::invert(image),
            Adjustment::Posterize(bits) => tables::posterize(image, bits),
            Adjustment::Solarize(threshold) => tables::solarize(image, threshold),
            Adjustment::SolarizeAdd(add) => tables::solarize_add(image, add),
            Adjustment::Sharpness(factor) => sharpen::sharpness(image, factor, &mut memory.spare)?,
            Adjustment::Autocontrast => tables::autocontrast(image),
            Adjustment::Equalize => tables::equalize(image),
        }
        Ok(())
    }
}

/// Fails unless the image is grey or has three colours: Pillow's functions take no others.
pub(super) fn check_channels(size: Size) -> Result<()> {
    if matches!(size.channels, 1 | 3) {
        return Ok(());
    }
    Err(impossible(format!("the image has {} channels; must be 1 or 3", size.channels))
        .with_hint("decode as \"RGB\" or \"L\""))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            RandomAdjustSharpness, RandomAutocontrast, RandomEqualize, RandomInvert, RandomPosterize,
            RandomSolarize, Transform, testing::*,
        },
        *,
    };

    /// All of them, done with probability `p`, and what they do then.
    fn all(p: f64) -> [(Transform, Adjustment); 6] {
        [
            (RandomInvert::new().p(p).into(), Adjustment::Invert),
            (RandomPosterize::new(4).p(p).into(), Adjustment::Posterize(4)),
            (RandomSolarize::new(192.5).p(p).into(), Adjustment::Solarize(192.5)),
            (RandomAdjustSharpness::new(2.5).p(p).into(), Adjustment::Sharpness(2.5)),
            (RandomAutocontrast::new().p(p).into(), Adjustment::Autocontrast),
            (RandomEqualize::new().p(p).into(), Adjustment::Equalize),
        ]
    }

    #[test]
    fn each_is_done_with_probability_p() {
        for p in [0.0, 0.3, 1.0] {
            for (transform, adjustment) in all(p) {
                let operation = transform.as_operation();
                operation.check().unwrap();
                let mut hits = 0;
                for index in 0..20_000 {
                    let drawn = operation.draw(size(4, 4), &mut rng(index)).unwrap();
                    if drawn != Action::Keep {
                        hits += 1;
                        // What is drawn is the same each time: showing it is what takes long.
                        if hits == 1 {
                            assert_eq!(drawn, Action::Image(Arc::new(adjustment)));
                        }
                    }
                }
                assert_probability(hits, 20_000, p);
            }
        }
    }

    #[test]
    fn each_wants_a_probability_and_an_image_of_one_or_three_channels() {
        for (transform, _) in all(1.5) {
            let e = transform.as_operation().check().unwrap_err();
            assert_eq!(e.message(), "p is 1.5; must be 0 to 1", "{transform}");
        }
        for (transform, _) in all(0.5) {
            let draw = |channels| {
                transform.as_operation().draw(Size { channels, ..size(2, 2) }, &mut rng(0)).map(|_| ())
            };
            for channels in [2, 4] {
                let e = draw(channels).unwrap_err();
                assert_eq!(e.message(), format!("the image has {channels} channels; must be 1 or 3"));
            }
            draw(1).unwrap();
            draw(3).unwrap();
        }
    }
}
