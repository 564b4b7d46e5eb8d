//! [`Patches`]: how large an image may be, of which so many patches are made and no more.

use super::{
    Size,
    param::{MAX_SIDE, Tuple, impossible},
};
use crate::{Error, Result};

/// A model that takes images as sequences of patches: what timm's transforms for NaFlex aim at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patches {
    /// Height and width of a patch.
    pub size: [usize; 2],
    /// How many an image may have.
    pub most: usize,
    /// Whether the sides of images are multiples of those of patches.
    pub divisible: bool,
}

/// How near timm's search comes to the greatest scale, and the least one that it takes for a find.
const EPS: f64 = 1e-5;

/// Where the search begins.
const MOST: f64 = 100.0;

impl Patches {
    pub(super) fn check(self) -> Result<()> {
        if !self.size.iter().all(|side| (1..=MAX_SIDE).contains(side)) {
            let given = Tuple(&self.size);
            return Err(Error::config(format!("patch_size is {given}; both sides must be 1 to {MAX_SIDE}")));
        }
        if self.most == 0 {
            return Err(Error::config("max_seq_len is 0; must be at least 1"));
        }
        Ok(())
    }

    /// How many patches cover an image of `sides`, which are not smaller than a patch.
    pub(super) fn count(self, sides: [usize; 2]) -> usize {
        (sides[0] / self.size[0]).saturating_mul(sides[1] / self.size[1])
    }

    /// `sides`, made multiples of those of a patch, if they must be.
    pub(super) fn up(self, sides: [f64; 2]) -> [f64; 2] {
        if !self.divisible {
            return sides;
        }
        let up = |side: f64, patch: usize| patch as f64 * (side / patch as f64).ceil();
        [up(sides[0], self.size[0]), up(sides[1], self.size[1])]
    }

    /// `sides`, none smaller than that of a patch.
    pub(super) fn at_least(self, sides: [f64; 2]) -> [f64; 2] {
        [sides[0].max(self.size[0] as f64), sides[1].max(self.size[1] as f64)]
    }

    /// An image of `sides` scaled by `ratio`, made fit for patches.
    fn scaled(self, sides: [usize; 2], ratio: f64) -> [usize; 2] {
        self.at_least(self.up(sides.map(|side| side as f64 * ratio))).map(|side| side as usize)
    }

    /// The greatest scale, and the sides at it, of an image of `sides`: timm's `get_image_size_for_seq`, which searches
    /// for it by halves.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Shape`] where there is none.
    pub(super) fn fit(self, sides: [usize; 2], max_ratio: Option<f64>) -> Result<(f64, [usize; 2])> {
        let (mut least, mut most) = (EPS / 10.0, MOST);
        while most - least >= EPS {
            let middle = (least + most) / 2.0;
            if self.count(self.scaled(sides, middle)) <= self.most {
                least = middle;
            } else {
                most = middle;
            }
        }
        let ratio = max_ratio.map_or(least, |max| least.min(max));
        if ratio <= EPS {
            return Err(impossible(format!(
                "an image of {} is too large for {} patches of {}",
                Tuple(&sides),
                self.most,
                Tuple(&self.size)
            )));
        }
        Ok((ratio, self.scaled(sides, ratio)))
    }

    /// The sides of [`Patches::fit`] for an image of `size`.
    pub(super) fn sides(self, size: Size, max_ratio: Option<f64>) -> Result<[usize; 2]> {
        Ok(self.fit([size.height, size.width], max_ratio)?.1)
    }
}

/// Fails unless a bound of the scale is positive.
pub(super) fn check_max_ratio(max_ratio: Option<f64>) -> Result<()> {
    match max_ratio {
        Some(ratio) if !(ratio.is_finite() && ratio > 0.0) => {
            Err(Error::config(format!("max_ratio is {ratio}; must be above 0")))
        }
        _ => Ok(()),
    }
}

/// A patch of 16 by 16 pixels: what models have by default.
pub(super) fn default_patch() -> [usize; 2] {
    [16, 16]
}

/// How many patches timm's transforms allow by default.
pub(super) fn default_most() -> usize {
    1024
}

pub(super) fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_timm() {
        // (height, width), patch, most, divisible, max_ratio and what get_image_size_for_seq gave (timm 1.0).
        for ((height, width), size, most, divisible, max_ratio, expected) in KNOWN {
            let patches = Patches { size, most, divisible };
            patches.check().unwrap();
            let (ratio, sides) = patches.fit([height, width], max_ratio).unwrap();
            assert_eq!(sides, expected, "{height}x{width} {patches:?} {max_ratio:?}");
            assert!(ratio <= max_ratio.unwrap_or(MOST));
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let patches = Patches { size: [1, 1], most: 1, divisible: false };
        let e = patches.fit([1 << 20, 1 << 20], None).unwrap_err();
        assert_eq!(e.message(), "an image of (1048576, 1048576) is too large for 1 patches of (1, 1)");
        assert!(check_max_ratio(Some(0.0)).is_err() && check_max_ratio(None).is_ok());
        let message = |patches: Patches| patches.check().unwrap_err().message().to_owned();
        assert!(message(Patches { size: [0, 3], ..patches }).starts_with("patch_size is (0, 3)"));
        assert!(message(Patches { most: 0, ..patches }).starts_with("max_seq_len is 0"));
    }

    type Row = ((usize, usize), [usize; 2], usize, bool, Option<f64>, [usize; 2]);

    const KNOWN: [Row; 24] = [
        ((1327, 618), [1, 1], 1024, true, None, [46, 22]),
        ((1498, 2388), [16, 16], 576, true, None, [304, 480]),
        ((1777, 1713), [16, 16], 7, true, Some(0.3), [48, 32]),
        ((243, 2317), [16, 16], 7, true, None, [16, 112]),
        ((2364, 2399), [1, 1], 1, false, None, [1, 1]),
        ((3, 546), [1, 1], 7, true, Some(1.0), [1, 7]),
        ((2295, 2794), [14, 14], 1, true, None, [14, 14]),
        ((1526, 400), [32, 8], 1024, true, None, [992, 264]),
        ((2536, 844), [1, 1], 1024, true, Some(1.0), [55, 18]),
        ((1908, 2399), [1, 1], 128, true, None, [10, 12]),
        ((2864, 1000), [16, 16], 576, true, Some(0.3), [656, 224]),
        ((4, 2988), [8, 16], 576, false, None, [12, 9231]),
        ((2097, 1713), [14, 14], 128, true, Some(0.3), [168, 140]),
        ((1728, 161), [16, 16], 576, true, Some(1.0), [1216, 112]),
        ((1394, 2848), [8, 16], 576, true, Some(0.3), [192, 384]),
        ((282, 384), [8, 16], 256, true, None, [152, 208]),
        ((249, 2995), [8, 16], 1024, true, Some(0.3), [80, 912]),
        ((4, 2936), [8, 16], 1, false, Some(1.0), [8, 31]),
        ((689, 2503), [16, 16], 256, true, Some(1.0), [128, 480]),
        ((530, 1015), [1, 1], 256, false, Some(0.3), [11, 22]),
        ((331, 682), [1, 1], 256, true, None, [11, 23]),
        ((1764, 2254), [8, 16], 1024, true, Some(1.0), [320, 400]),
        ((2797, 1559), [14, 14], 7, true, None, [42, 28]),
        ((2, 2698), [16, 16], 256, false, None, [16, 4111]),
    ];
}
