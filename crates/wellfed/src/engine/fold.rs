//! Folds a run of geometric actions into one: crop, then resize, then a window (perhaps padded), then flips.
//!
//! Every kernel that makes pixels takes exactly this form, so a run that folds needs no image in between. Folding
//! is exact: [`Fold::push`] refuses what would change a bit, and the caller then makes an image of what was folded
//! so far and starts again from it.

use wellfed_kernels::{
    resample::{self, Region, Resize},
    write::{PadMode, Window},
};

use crate::codec::Scale;
use crate::transform::{Action, Interpolation, PaddingMode, Rect};

/// Several geometric actions as one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fold {
    /// The part of the image that is looked at.
    pub(crate) crop: Rect,
    /// What that part is resampled to.
    pub(crate) resize: Option<(usize, usize, Interpolation)>,
    /// What is resampled of it, if not all.
    region: Option<Region>,
    /// The part of the result that is kept, before flips. Reaches outside only with `pad` and without `resize`.
    pub(crate) window: Window,
    pub(crate) pad: PadMode,
    padded: bool,
    pub(crate) flip_h: bool,
    pub(crate) flip_v: bool,
}

impl Fold {
    /// The whole of an image of `height` x `width`.
    pub(crate) fn new(height: usize, width: usize) -> Self {
        Self {
            crop: Rect { top: 0, left: 0, height, width },
            resize: None,
            region: None,
            window: Window { top: 0, left: 0, height, width },
            pad: PadMode::Constant([0; 4]),
            padded: false,
            flip_h: false,
            flip_v: false,
        }
    }

    /// True if nothing was folded in that changes the image.
    pub(crate) fn is_identity(&self, height: usize, width: usize) -> bool {
        *self == Self::new(height, width)
    }

    /// True if something was added around the image.
    pub(crate) fn is_padded(&self) -> bool {
        self.padded
    }

    /// Rows and columns of the result.
    pub(crate) fn size(&self) -> (usize, usize) {
        (self.window.height, self.window.width)
    }

    /// Adds an action; false (and no change) if that cannot be folded exactly.
    pub(crate) fn push(&mut self, action: &Action, channels: usize) -> bool {
        match *action {
            Action::Keep => true,
            Action::Flip { horizontal, vertical } => {
                self.flip_h ^= horizontal;
                self.flip_v ^= vertical;
                true
            }
            Action::Crop(rect) | Action::CropAround(rect) => {
                self.narrow(rect);
                true
            }
            Action::PadCrop { top, left, height, width, mode, ref fill, .. } => {
                let (rows, columns) = self.size();
                if inside(top, height, rows) && inside(left, width, columns) {
                    self.narrow(Rect { top: top as usize, left: left as usize, height, width });
                    return true;
                }
                if self.padded || self.resize.is_some() {
                    return false;
                }
                // Padding is relative to what is left of the image: that becomes the crop, and what was a window of
                // it starts anew.
                self.settle_crop();
                let (top, left) = self.unflip(top, left, height, width);
                self.window = Window { top, left, height, width };
                self.padded = true;
                self.pad = match mode {
                    PaddingMode::Constant => {
                        PadMode::Constant(std::array::from_fn(|c| fill_u8(fill.channel(c.min(channels - 1)))))
                    }
                    PaddingMode::Edge => PadMode::Edge,
                    PaddingMode::Reflect => PadMode::Reflect,
                    PaddingMode::Symmetric => PadMode::Symmetric,
                };
                true
            }
            Action::Resize { crop, height, width, interpolation, .. } => {
                if self.resize.is_some() || self.padded || self.flip_h || self.flip_v {
                    return false;
                }
                self.narrow(crop);
                self.settle_crop();
                // Pillow copies where the size stays, whatever the filter, and so does OpenCV.
                if (height, width) != (self.crop.height, self.crop.width) {
                    self.resize = Some((height, width, interpolation));
                }
                self.window = Window { top: 0, left: 0, height, width };
                true
            }
            _ => false,
        }
    }

    /// Resamples `region` of the result; false (and no change) if that cannot be folded exactly.
    pub(crate) fn resize_region(
        &mut self,
        region: Region,
        (height, width): (usize, usize),
        interpolation: Interpolation,
    ) -> bool {
        let (rows, columns) = self.size();
        if self.resize.is_some()
            || self.padded
            || self.flip_h
            || self.flip_v
            || !region.is_inside(rows, columns)
        {
            return false;
        }
        self.settle_crop();
        self.resize = Some((height, width, interpolation));
        self.region = Some(region);
        self.window = Window { top: 0, left: 0, height, width };
        true
    }

    /// Keeps `rect` of the result.
    fn narrow(&mut self, rect: Rect) {
        let (top, left) = self.unflip(rect.top as i64, rect.left as i64, rect.height, rect.width);
        self.window = Window {
            top: self.window.top + top,
            left: self.window.left + left,
            height: rect.height,
            width: rect.width,
        };
    }

    /// Where a rectangle of the flipped result lies before the flips.
    fn unflip(&self, top: i64, left: i64, height: usize, width: usize) -> (i64, i64) {
        let (rows, columns) = self.size();
        let mirrored = |start: i64, len: usize, side: usize| side as i64 - start - len as i64;
        (
            if self.flip_v { mirrored(top, height, rows) } else { top },
            if self.flip_h { mirrored(left, width, columns) } else { left },
        )
    }

    /// Makes the window the crop, if there is neither resize nor padding.
    fn settle_crop(&mut self) {
        debug_assert!(self.resize.is_none() && !self.padded);
        let Window { top, left, height, width } = self.window;
        self.crop =
            Rect { top: self.crop.top + top as usize, left: self.crop.left + left as usize, height, width };
        self.window = Window { top: 0, left: 0, height, width };
    }

    /// The same fold with as small a crop as its window allows, and the pixels of the image that it looks at.
    pub(crate) fn settled(mut self) -> (Self, Rect) {
        if self.resize.is_none() && !self.padded {
            self.settle_crop();
            return (self, self.crop);
        }
        let Some(resize) = self.kernel_resize() else { return (self, self.crop) };
        let rows = resize.source_rows(self.crop.height);
        let columns = resize.source_columns(self.crop.width);
        let needed = Rect {
            top: self.crop.top + rows.start,
            left: self.crop.left + columns.start,
            height: rows.len(),
            width: columns.len(),
        };
        (self, needed)
    }

    /// The fold for the image at the smallest scale that still leaves the crop no smaller, in either direction,
    /// than what it is resampled to, and that scale. Corners of the crop that fall between pixels of the smaller
    /// image move to the nearest corner there, by at most half a pixel of it.
    pub(crate) fn scaled(self) -> (Self, Scale) {
        let Some((height, width, _)) = self.resize.filter(|_| !self.is_nearest() && self.region.is_none())
        else {
            return (self, Scale::Full);
        };
        let fits =
            |(_, by): &(Scale, usize)| self.crop.height / by >= height && self.crop.width / by >= width;
        let scales = [(Scale::Eighth, 8), (Scale::Quarter, 4), (Scale::Half, 2)];
        let Some((scale, by)) = scales.into_iter().find(fits) else { return (self, Scale::Full) };
        // Rounding is the same at both ends, so that a side that holds the target still does.
        let span = |start: usize, len: usize| {
            let first = (start + by / 2) / by;
            (first, (start + len + by / 2) / by - first)
        };
        let (top, rows) = span(self.crop.top, self.crop.height);
        let (left, columns) = span(self.crop.left, self.crop.width);
        let crop = Rect { top, left, height: rows, width: columns };
        let resize = self.resize.filter(|_| (rows, columns) != (height, width));
        (Self { crop, resize, ..self }, scale)
    }

    /// True if the resize only moves pixels.
    pub(crate) fn is_nearest(&self) -> bool {
        matches!(
            self.resize,
            Some((
                _,
                _,
                Interpolation::Nearest
                    | Interpolation::PillowNearest
                    | Interpolation::NearestExact
                    | Interpolation::NearestCorner
                    | Interpolation::OpenCvNearest
            ))
        )
    }

    /// True if the resize is Pillow's, which multiplies by alpha before it. OpenCV and torch know nothing of alpha.
    pub(crate) fn knows_alpha(&self) -> bool {
        self.resize
            .is_some_and(|(_, _, interpolation)| !interpolation.is_opencv() && !interpolation.is_torch())
    }

    /// The resize as kernels take it.
    pub(crate) fn kernel_resize(&self) -> Option<Resize> {
        let (height, width, interpolation) = self.resize?;
        let window = resample::Rect {
            top: self.window.top as usize,
            left: self.window.left as usize,
            height: self.window.height,
            width: self.window.width,
        };
        let shorter = height < self.crop.height || width < self.crop.width;
        Some(Resize::new(height, width, filter(interpolation, shorter)).window(window).region(self.region))
    }
}

/// Whether `len` pixels from `start` lie inside a side.
fn inside(start: i64, len: usize, side: usize) -> bool {
    usize::try_from(start).is_ok_and(|start| start.checked_add(len).is_some_and(|end| end <= side))
}

/// A fill value as Pillow stores it in 8 bits: truncated, and kept in range.
fn fill_u8(value: f64) -> u8 {
    value.clamp(0.0, 255.0) as u8
}

/// The kernels' filter, of a resize that makes some side `shorter` or not.
fn filter(interpolation: Interpolation, shorter: bool) -> resample::Filter {
    match interpolation {
        Interpolation::Nearest | Interpolation::PillowNearest => resample::Filter::Nearest,
        Interpolation::NearestExact => resample::Filter::NearestExact,
        Interpolation::NearestCorner => resample::Filter::NearestCorner,
        Interpolation::Bilinear => resample::Filter::Bilinear,
        Interpolation::Bicubic => resample::Filter::Bicubic,
        Interpolation::Lanczos => resample::Filter::Lanczos,
        Interpolation::OpenCvNearest => resample::Filter::OpenCvNearest,
        Interpolation::OpenCvLinear => resample::Filter::OpenCvLinear,
        Interpolation::TorchBilinear => resample::Filter::TorchBilinear,
        Interpolation::TorchBicubic => resample::Filter::TorchBicubic,
        Interpolation::OpenCvLinearArea if !shorter => resample::Filter::OpenCvLinear,
        Interpolation::OpenCvArea | Interpolation::OpenCvLinearArea => resample::Filter::OpenCvArea,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crop(top: usize, left: usize, height: usize, width: usize) -> Action {
        Action::Crop(Rect { top, left, height, width })
    }

    const FLIP: Action = Action::Flip { horizontal: true, vertical: false };

    #[test]
    fn crops_add_up_and_mirror_under_flips() {
        let mut fold = Fold::new(100, 200);
        assert!(fold.push(&crop(10, 20, 50, 60), 3));
        assert!(fold.push(&FLIP, 3));
        assert!(fold.push(&crop(1, 2, 10, 10), 3));
        let (fold, needed) = fold.settled();
        // Columns 2..12 of the mirrored 60 are columns 48..58 of the plain ones.
        assert_eq!(needed, Rect { top: 11, left: 68, height: 10, width: 10 });
        assert!(fold.flip_h && fold.window == Window { top: 0, left: 0, height: 10, width: 10 });
    }

    #[test]
    fn a_resize_takes_crops_before_and_after_but_no_flip_before() {
        let resize = |crop| Action::Resize {
            crop,
            cropped: true,
            height: 50,
            width: 50,
            interpolation: Interpolation::Bilinear,
        };
        let whole = Rect { top: 0, left: 0, height: 80, width: 80 };
        let mut fold = Fold::new(100, 100);
        assert!(fold.push(&crop(10, 10, 80, 80), 3));
        assert!(fold.push(&resize(whole), 3));
        assert!(fold.push(&crop(0, 0, 10, 50), 3));
        let (fold, needed) = fold.settled();
        assert_eq!((fold.crop.top, needed.top, needed.width), (10, 10, 80));
        assert!(needed.height < 20, "ten of fifty rows need less than a quarter: {needed:?}");
        let mut flipped = Fold::new(80, 80);
        assert!(flipped.push(&FLIP, 3));
        assert!(!flipped.push(&resize(whole), 3));
    }

    #[test]
    fn the_scale_leaves_enough_and_the_crop_lies_inside() {
        let fold = |rect: Rect, interpolation| {
            let mut fold = Fold::new(1000, 777);
            assert!(fold.push(
                &Action::Resize { crop: rect, cropped: true, height: 50, width: 40, interpolation },
                3
            ));
            fold
        };
        for top in 0..9 {
            for height in (40..990).step_by(7) {
                let width = (height * 4 / 5).min(770);
                let rect = Rect { top, left: 777 - width - top % 3, height, width };
                let (scaled, scale) = fold(rect, Interpolation::Bilinear).scaled();
                let (width, rows) = scale.size(777, 1000);
                let crop = scaled.crop;
                assert!(crop.top + crop.height <= rows && crop.left + crop.width <= width, "{rect:?}");
                assert!(scale == Scale::Full || crop.height >= 50 && crop.width >= 40, "{rect:?}: {crop:?}");
                let by = [(400, Scale::Eighth), (200, Scale::Quarter), (100, Scale::Half), (0, Scale::Full)];
                let enough = |least: usize| rect.height >= least && rect.width >= least * 4 / 5;
                assert_eq!(scale, by.into_iter().find(|(least, _)| enough(*least)).unwrap().1, "{rect:?}");
                assert_eq!(scaled.size(), (50, 40));
            }
        }
        let rect = Rect { top: 0, left: 0, height: 400, width: 320 };
        // What has the size already at its scale is not resampled.
        assert_eq!(fold(rect, Interpolation::Bicubic).scaled().0.resize, None);
        assert_eq!(fold(rect, Interpolation::Nearest).scaled().1, Scale::Full);
        assert_eq!(Fold::new(1000, 777).scaled().1, Scale::Full);
    }

    #[test]
    fn padding_folds_once() {
        let pad = Action::PadCrop {
            top: -4,
            left: 2,
            height: 32,
            width: 32,
            mode: PaddingMode::Constant,
            fill: 7.0.into(),
            mask_fill: None,
            added: None,
        };
        let mut fold = Fold::new(32, 32);
        assert!(fold.push(&pad, 3));
        assert_eq!(fold.pad, PadMode::Constant([7; 4]));
        assert_eq!((fold.window.top, fold.window.left), (-4, 2));
        assert!(!fold.push(&pad, 3));
        assert!(fold.push(&crop(4, 0, 28, 30), 3));
        assert_eq!(fold.window, Window { top: 0, left: 2, height: 28, width: 30 });
    }
}
