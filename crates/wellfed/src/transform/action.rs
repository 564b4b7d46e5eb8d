//! [`Action`]: what to do to one image, with every random number settled. Plain data, held inline.

use std::{fmt, ops::Deref};

use super::{ImageDtype, Interpolation, Padding, PaddingMode, PerChannel, Rect, Size};
use crate::{Error, Result, codec::MaskDepth, rng::Rng, sample::BoxFormat};

/// One colour adjustment with its drawn factor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ColorStep {
    /// Blend with black.
    Brightness(f64),
    /// Blend with the mean luma.
    Contrast(f64),
    /// Blend with the grey image.
    Saturation(f64),
    /// Shift of hue, as a fraction of the circle in -0.5 to 0.5.
    Hue(f64),
}

/// Up to four colour adjustments in order.
#[derive(Clone, Copy)]
pub struct ColorSteps {
    steps: [ColorStep; 4],
    len: u8,
}

impl ColorSteps {
    /// The first four of `steps`.
    pub fn new(steps: impl IntoIterator<Item = ColorStep>) -> Self {
        let mut this = Self { steps: [ColorStep::Brightness(1.0); 4], len: 0 };
        for (slot, step) in this.steps.iter_mut().zip(steps) {
            *slot = step;
            this.len += 1;
        }
        this
    }
}

impl Deref for ColorSteps {
    type Target = [ColorStep];

    fn deref(&self) -> &[ColorStep] {
        &self.steps[..usize::from(self.len)]
    }
}

impl PartialEq for ColorSteps {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for ColorSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// What [`super::RandomErasing`] writes.
#[derive(Clone, Debug, PartialEq)]
pub enum EraseValue {
    /// These values.
    Constant(PerChannel),
    /// Standard normal noise per element, channel by channel and row by row.
    Noise(Noise),
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

/// What to do to one image, with every random number settled. Cloning does not allocate.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Nothing.
    Keep,
    /// Keep a rectangle that lies inside the image.
    Crop(Rect),
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
        /// What was added at the borders before the window was cut out; `None` where it was cut out at once. The same
        /// pixels, but boxes are cut at each of the two borders.
        added: Option<Padding>,
    },
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
    /// Rotate counter-clockwise.
    Rotate {
        /// Degrees.
        angle: f64,
        /// Filter: nearest, bilinear or bicubic.
        interpolation: Interpolation,
        /// Enlarge the image so that all of it stays visible.
        expand: bool,
        /// Centre (x, y) in pixels from the upper left corner; `None` is the middle.
        center: Option<[f64; 2]>,
        /// Value of what comes in from outside.
        fill: PerChannel,
    },
    /// Colour adjustments in this order.
    Color(ColorSteps),
    /// Luma, on one or three equal channels.
    Gray {
        /// 1 or 3.
        channels: usize,
    },
    /// Gaussian blur.
    Blur {
        /// Kernel size (x, y), odd.
        kernel: [usize; 2],
        /// Standard deviation (x, y) in pixels.
        sigma: [f64; 2],
    },
    /// Overwrite a rectangle.
    Erase {
        /// Where.
        rect: Rect,
        /// With what.
        value: EraseValue,
    },
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
    },
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
    /// Size of the result for an image of size `input`.
    pub fn size(&self, input: Size) -> Size {
        match *self {
            Action::Crop(Rect { height, width, .. })
            | Action::PadCrop { height, width, .. }
            | Action::Resize { height, width, .. } => Size { height, width, ..input },
            Action::Rotate { angle, expand: true, center, .. } => expanded(input, angle, center),
            Action::Gray { channels } => Size { channels, ..input },
            Action::Keep
            | Action::Flip { .. }
            | Action::Rotate { .. }
            | Action::Color(_)
            | Action::Blur { .. }
            | Action::Erase { .. }
            | Action::Cast { .. }
            | Action::Normalize { .. }
            | Action::ClampBoxes
            | Action::ConvertBoxes(_)
            | Action::SanitizeBoxes { .. } => input,
        }
    }

    /// What torchvision v2 does to a mask where it does this to an image: geometry, by nearest neighbours, and nothing
    /// else.
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
            Action::Keep | Action::Crop(_) | Action::Flip { .. } => {}
            Action::PadCrop { fill: value, .. } => *value = fill(value)?,
            Action::Resize { interpolation, cropped, .. } => {
                if *cropped || *interpolation != Interpolation::NearestExact {
                    *interpolation = Interpolation::NearestCorner;
                }
            }
            Action::Rotate { interpolation, fill: value, .. } => {
                *interpolation = Interpolation::Nearest;
                *value = fill(value)?;
            }
            _ => self = Action::Keep,
        }
        Ok(self)
    }
}

/// Size that holds all of a rotated image, as `PIL.Image.rotate(expand=True)` computes it: the corners are
/// mapped by a matrix rounded to 15 decimals, relative to an origin that depends on `center`.
fn expanded(input: Size, angle: f64, center: Option<[f64; 2]>) -> Size {
    let angle = angle.rem_euclid(360.0);
    if center.is_none() && (angle == 0.0 || angle == 180.0) {
        return input;
    }
    if center.is_none() && (angle == 90.0 || angle == 270.0) {
        return Size { height: input.width, width: input.height, ..input };
    }
    let (height, width) = (input.height as f64, input.width as f64);
    let [cx, cy] = center.unwrap_or([width / 2.0, height / 2.0]);
    let (sin, cos) = ((-angle.to_radians()).sin(), (-angle.to_radians()).cos());
    let (sin, cos) = (round_15(sin), round_15(cos));
    let x0 = cos * -cx + sin * -cy + cx;
    let y0 = -sin * -cx + cos * -cy + cy;
    let span = |a: f64, b: f64, origin: f64| {
        let corners = [(0.0, 0.0), (width, 0.0), (width, height), (0.0, height)];
        let ends = corners.map(|(x, y)| a * x + b * y + origin);
        let low = ends.into_iter().fold(f64::INFINITY, f64::min);
        let high = ends.into_iter().fold(f64::NEG_INFINITY, f64::max);
        (high.ceil() - low.floor()) as usize
    };
    Size { height: span(-sin, cos, y0), width: span(cos, sin, x0), ..input }
}

/// Rounds to 15 decimals, exactly as Python's `round(x, 15)`: both round the exact decimal value half to even.
fn round_15(x: f64) -> f64 {
    format!("{x:.15}").parse().unwrap_or(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(height: usize, width: usize) -> Size {
        Size { height, width, channels: 3 }
    }

    #[test]
    fn an_action_is_small_and_steps_are_in_order() {
        assert!(size_of::<Action>() <= 152, "{}", size_of::<Action>());
        let steps = [ColorStep::Hue(0.1), ColorStep::Contrast(2.0)];
        assert_eq!(*ColorSteps::new(steps), steps);
        assert!(ColorSteps::new([]).is_empty());
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
        assert_eq!(Action::Gray { channels: 1 }.size(input), Size { channels: 1, ..input });
        let interpolation = Interpolation::Bilinear;
        let resize = Action::Resize { crop: rect, cropped: true, height: 7, width: 8, interpolation };
        assert_eq!(resize.size(input), size(7, 8));
    }

    #[test]
    fn a_rotation_expands_as_in_pillow() {
        // (height, width), angle, centre and the size that PIL.Image.rotate(expand=True) gave (Pillow 12).
        let known = [
            ((69, 292), 90.0, None, (292, 69)),
            ((390, 231), -22.20380513910669, None, (450, 363)),
            ((15, 200), 0.0, None, (15, 200)),
            ((118, 303), 356.21655644313785, None, (138, 311)),
            ((333, 278), -392.636049156492, Some([201.8, 175.7]), (431, 414)),
            ((392, 225), 351.3336151588693, None, (422, 283)),
            ((347, 113), 208.75819003345646, None, (359, 267)),
            ((285, 329), -319.99978312309827, Some([294.6, 277.4]), (431, 436)),
            ((257, 217), 270.0, None, (217, 257)),
            ((256, 259), 0.0, None, (256, 259)),
            ((207, 213), 45.0, None, (297, 297)),
            ((340, 261), 180.0, None, (340, 261)),
            ((376, 16), -90.0, Some([2.7, 85.3]), (16, 377)),
            ((7, 395), -240.38690603007416, None, (347, 203)),
            ((177, 296), -117.38066995661427, None, (345, 294)),
            ((380, 263), 247.31192069798362, None, (390, 453)),
            ((29, 247), 296.0081241413119, Some([102.1, 23.6]), (235, 135)),
            ((213, 178), 450.0, None, (178, 213)),
            ((15, 118), 108.29687224156413, Some([94.2, 12.0]), (118, 53)),
            ((131, 17), 273.39586581927676, Some([7.7, 98.8]), (26, 133)),
            ((144, 128), 180.0, None, (144, 128)),
            ((86, 82), 180.0, Some([24.1, 60.4]), (87, 83)),
            ((255, 243), -90.0, None, (243, 255)),
            ((97, 133), -312.99064604366936, Some([57.4, 94.6]), (164, 163)),
        ];
        for ((h, w), angle, center, (out_h, out_w)) in known {
            let (interpolation, fill) = (Interpolation::Nearest, PerChannel::default());
            let rotate = |expand| Action::Rotate { angle, interpolation, expand, center, fill };
            assert_eq!(rotate(true).size(size(h, w)), size(out_h, out_w), "{h}x{w} by {angle} at {center:?}");
            assert_eq!(rotate(false).size(size(h, w)), size(h, w));
        }
    }
}
