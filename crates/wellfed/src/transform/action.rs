//! [`Action`]: what to do to one image, with every random number settled.

use std::sync::Arc;

use super::{
    AddedNoise, Crops, ImageAction, ImageDtype, Interpolation, Padding, PaddingMode, PerChannel, Rect, Size,
    TfOp,
};
use crate::{Error, Result, codec::MaskDepth, rng::Rng, sample::BoxFormat};

/// What [`super::RandomErasing`] writes.
#[derive(Clone, Debug, PartialEq)]
pub enum EraseValue {
    /// These values.
    Constant(PerChannel),
    /// Standard normal noise per element, channel by channel and row by row.
    Noise(Noise),
}

/// A rectangle that lies inside the image, and what is written there.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Where.
    pub rect: Rect,
    /// With what.
    pub value: EraseValue,
}

/// Standard normal numbers without end. One [`Rng`] has too few for a large rectangle, so after every
/// `Noise::CHUNK` numbers comes another.
#[derive(Clone, Debug, PartialEq)]
pub struct Noise {
    seed: u64,
    drawn: u64,
    rng: Rng,
}

impl Noise {
    /// Numbers from one generator: four words each, a quarter of what it has.
    const CHUNK: u64 = 1 << 14;

    /// The numbers that belong to `seed`.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0, rng: Rng::for_stage(seed, 0, 0, 0) }
    }

    /// The next number.
    pub fn normal(&mut self) -> f64 {
        if self.drawn > 0 && self.drawn.is_multiple_of(Self::CHUNK) {
            self.rng = Rng::for_stage(self.seed, 0, self.drawn / Self::CHUNK, 0);
        }
        self.drawn += 1;
        self.rng.normal()
    }
}

/// What to do to one image, with every random number settled. Cloning does not allocate. Neighbours that are plain data
/// here are folded into one kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Keep a rectangle that lies inside the image.
    Crop(Rect),
    /// Keep a rectangle that lies inside the image; boxes whose middle lies outside of it become zeros.
    CropAround(Rect),
    /// Keep a window that may reach outside the image; what lies outside is filled.
    PadCrop {
        /// First row; negative is above the image.
        top: i64,
        /// First column; negative is left of the image.
        left: i64,
        /// Rows of the result.
        height: usize,
        /// Columns of the result.
        width: usize,
        /// How the outside is filled.
        mode: PaddingMode,
        /// With what, under [`PaddingMode::Constant`].
        fill: PerChannel,
        /// With what masks are filled, if not with `fill`.
        mask_fill: Option<f64>,
        /// What was added at the borders before the window was cut out; `None` where it was cut out at once. The same
        /// pixels, but boxes are cut at each of the two borders.
        added: Option<Padding>,
    },
    /// Make several images of one.
    Crops(Crops),
    /// Resample a rectangle of the image to a new size.
    Resize {
        /// What is resampled; pixels outside it do not influence the result.
        crop: Rect,
        /// Whether the rectangle was cut out first. Boxes are cut at its border then, be it that of the image.
        cropped: bool,
        /// Rows of the result.
        height: usize,
        /// Columns of the result.
        width: usize,
        /// Filter.
        interpolation: Interpolation,
    },
    /// Mirror.
    Flip {
        /// Left and right change places.
        horizontal: bool,
        /// Top and bottom change places.
        vertical: bool,
    },
    /// What needs the whole image and brings its own code.
    Image(Arc<dyn ImageAction>),
    /// Overwrite rectangles, one after the other.
    Erase(Arc<[Patch]>),
    /// Add a number of its own to every value.
    AddNoise(AddedNoise),
    /// Change the element type.
    Cast {
        /// New type.
        dtype: ImageDtype,
        /// Map the value range of the old type to that of the new one (0..255 and 0..1).
        scale: bool,
        /// Divide by 255 instead of multiplying by its reciprocal: what `ToTensor` does.
        divide: bool,
    },
    /// `(x - mean) / std` per channel, on floating point images.
    Normalize {
        /// One value, or one per channel.
        mean: PerChannel,
        /// One value, or one per channel; not 0.
        std: PerChannel,
        /// Multiply by the rounded reciprocal of `std` instead of dividing: what Albumentations does.
        by_reciprocal: bool,
    },
    /// TensorFlow's operations, none of which is random any more.
    TensorFlow(Arc<[TfOp]>),
    /// Cut boxes at the border of the image.
    ClampBoxes,
    /// Turn boxes into a format.
    ConvertBoxes(BoxFormat),
    /// Remove boxes that are too small or reach outside.
    SanitizeBoxes {
        /// Least width and height.
        min_size: f64,
        /// Least area.
        min_area: f64,
        /// Whether what belongs to boxes goes with them.
        labels: bool,
    },
}

impl Action {
    /// Size of the result for an image of size `input`; of several, that of each.
    pub fn size(&self, input: Size) -> Size {
        match *self {
            Action::Crop(Rect { height, width, .. })
            | Action::CropAround(Rect { height, width, .. })
            | Action::PadCrop { height, width, .. }
            | Action::Resize { height, width, .. } => Size { height, width, ..input },
            Action::Crops(Crops { size: [height, width], .. }) => Size { height, width, ..input },
            Action::Image(ref action) => action.size(input),
            Action::TensorFlow(ref ops) => super::tensorflow_ops::size_after(ops, input),
            Action::Keep
            | Action::Flip { .. }
            | Action::Erase(_)
            | Action::AddNoise(_)
            | Action::Cast { .. }
            | Action::Normalize { .. }
            | Action::ClampBoxes
            | Action::ConvertBoxes(_)
            | Action::SanitizeBoxes { .. } => input,
        }
    }

    /// What torchvision v2 does to a mask where it does this to an image: geometry, by nearest neighbours, and nothing
    /// else. Where images are resized as OpenCV does it, so are masks, as Albumentations has it.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a fill of several values.
    pub(crate) fn for_mask(mut self, depth: MaskDepth) -> Result<Self> {
        // A pixel of several bytes is moved like one of as many channels.
        let fill = |fill: &PerChannel| {
            let &[value] = &**fill else {
                return Err(Error::config(format!("fill is {fill}; masks take one value"))
                    .with_hint("map(field=...) works on the image alone"));
            };
            if depth != MaskDepth::Word {
                return Ok(value.clamp(0.0, 255.0).into());
            }
            let [low, high] = (value.clamp(0.0, 65535.0) as u16).to_ne_bytes().map(f64::from);
            Ok(PerChannel::from([low, high, 0.0]))
        };
        match &mut self {
            Action::Keep | Action::Crop(_) | Action::CropAround(_) | Action::Flip { .. } => {}
            Action::PadCrop { fill: value, mask_fill, .. } => {
                *value = fill(&mask_fill.map_or(*value, PerChannel::from))?;
            }
            Action::Resize { interpolation, cropped, .. } => {
                if interpolation.is_opencv() {
                    *interpolation = Interpolation::OpenCvNearest;
                } else if *interpolation != Interpolation::PillowNearest
                    && (*cropped || *interpolation != Interpolation::NearestExact)
                {
                    *interpolation = Interpolation::NearestCorner;
                }
            }
            Action::Image(action) => return Ok(action.for_mask(&fill)?.map_or(Action::Keep, Action::Image)),
            _ => self = Action::Keep,
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(height: usize, width: usize) -> Size {
        Size { height, width, channels: 3 }
    }

    #[test]
    fn an_action_is_small() {
        assert!(size_of::<Action>() <= 152, "{}", size_of::<Action>());
    }

    #[test]
    fn masks_are_resized_by_neighbours_as_the_library_of_the_filter_does() {
        use Interpolation::*;
        let resize = |interpolation, cropped| {
            let crop = Rect { top: 0, left: 0, height: 4, width: 4 };
            Action::Resize { crop, cropped, height: 2, width: 2, interpolation }
        };
        for (filter, cropped, expected) in [
            (Bilinear, false, NearestCorner),
            (Nearest, false, NearestCorner),
            (NearestExact, false, NearestExact),
            (NearestExact, true, NearestCorner),
            (PillowNearest, false, PillowNearest),
            (PillowNearest, true, PillowNearest),
            (OpenCvArea, false, OpenCvNearest),
        ] {
            let made = resize(filter, cropped).for_mask(MaskDepth::Byte).unwrap();
            assert_eq!(made, resize(expected, cropped), "{filter}");
        }
    }

    #[test]
    fn noise_does_not_repeat_and_is_standard_normal() {
        let mut noise = Noise::new(7);
        let numbers: Vec<f64> = (0..20 * Noise::CHUNK).map(|_| noise.normal()).collect();
        let mut first: Vec<f64> = numbers.chunks(Noise::CHUNK as usize).map(|chunk| chunk[0]).collect();
        first.sort_by(f64::total_cmp);
        first.dedup();
        assert_eq!(first.len(), 20);
        let n = numbers.len() as f64;
        let (mean, square) =
            (numbers.iter().sum::<f64>() / n, numbers.iter().map(|x| x * x).sum::<f64>() / n);
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.01, "{mean} {square}");
        assert_ne!(Noise::new(7).normal(), Noise::new(8).normal());
    }

    #[test]
    fn sizes_follow_the_action() {
        let input = size(10, 20);
        let rect = Rect { top: 1, left: 2, height: 3, width: 4 };
        assert_eq!(Action::Keep.size(input), input);
        assert_eq!(Action::Crop(rect).size(input), size(3, 4));
        let interpolation = Interpolation::Bilinear;
        let resize = Action::Resize { crop: rect, cropped: true, height: 7, width: 8, interpolation };
        assert_eq!(resize.size(input), size(7, 8));
    }
}
