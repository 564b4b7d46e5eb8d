//! `RandomRotation`: turns the image by a random angle.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize};
use wellfed_kernels::{
    alpha::{premultiply, unpremultiply},
    image::Image,
    recipe::{AffineMap, PixelOp},
    rotate::{self, Sampling},
};

use super::{
    Action, Class, ImageAction, ImageMemory, Interpolation, Operation, PerChannel, PointMove, Shape, Size,
    Spread, Takes,
    image_action::elements,
    param::{MAX_SIDE, Repr, Tuple, check_range, python_bool},
    random_affine::{check_sampling, sampling},
};
use crate::{Error, Result, rng::Rng};

/// Rotates counter-clockwise by an angle drawn uniformly from `degrees`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomRotation {
    /// Least and greatest angle; one number `d` means (-d, d).
    #[serde(deserialize_with = "degrees")]
    pub degrees: [f64; 2],
    /// Filter: nearest, bilinear or bicubic. Default: nearest.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Enlarge the image so that all of it stays visible. Default: false.
    #[serde(default)]
    pub expand: bool,
    /// Centre (x, y) in pixels from the upper left corner. Default: the middle.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
    /// Value of what comes in from outside. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

fn degrees<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    Ok(Spread::deserialize(deserializer)?.around(0.0))
}

impl RandomRotation {
    /// Rotates by up to `degrees` either way, or between two angles.
    pub fn new(degrees: impl Into<Spread>) -> Self {
        Self {
            degrees: degrees.into().around(0.0),
            interpolation: nearest(),
            expand: false,
            center: None,
            fill: PerChannel::default(),
        }
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Sets whether the image grows so that all of it stays visible.
    #[must_use]
    pub fn expand(mut self, expand: bool) -> Self {
        self.expand = expand;
        self
    }

    /// Sets the centre (x, y).
    #[must_use]
    pub fn center(mut self, center: [f64; 2]) -> Self {
        self.center = Some(center);
        self
    }

    /// Sets the value of what comes in from outside.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }
}

impl fmt::Display for RandomRotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomRotation")
            .field("degrees", format_args!("{:?}", self.degrees))
            .field("interpolation", self.interpolation)
            .field("expand", python_bool(self.expand))
            .field("fill", self.fill)
            .field_if(self.center.is_some(), "center", Tuple(self.center.as_ref().map_or(&[], |c| &c[..])))
            .finish()
    }
}

impl Operation for RandomRotation {
    fn check(&self) -> Result<()> {
        check_range("degrees", self.degrees, f64::NEG_INFINITY, f64::INFINITY)?;
        self.fill.check("fill")?;
        check_sampling(self.interpolation)?;
        match self.center {
            Some(center) if !center.iter().all(|c| c.abs() <= MAX_SIDE as f64) => {
                Err(Error::config(format!(
                    "center is {}; both numbers must be between {} and {MAX_SIDE}",
                    Tuple(&center),
                    -(MAX_SIDE as i64)
                )))
            }
            _ => Ok(()),
        }
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        Takes::Geometry
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        if !self.expand {
            return input;
        }
        match (self.degrees, input.height, input.width) {
            ([low, high], Some(height), Some(width)) if low == high => {
                let size = Size { height, width, channels: input.channels };
                let rotated = self.rotation(low).size(size);
                Shape { height: Some(rotated.height), width: Some(rotated.width), ..input }
            }
            _ => Shape { height: None, width: None, ..input },
        }
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        self.fill.check_channels("fill", size.channels)?;
        Ok(Action::Image(Arc::new(self.rotation(self.draw_angle(rng)))))
    }
}

impl RandomRotation {
    fn draw_angle(&self, rng: &mut Rng) -> f64 {
        rng.uniform(self.degrees[0], self.degrees[1])
    }

    pub(super) fn rotation(&self, angle: f64) -> Rotation {
        let sampling = sampling(self.interpolation);
        Rotation { angle, sampling, expand: self.expand, center: self.center, fill: self.fill }
    }
}

/// A rotation by a drawn angle.
#[derive(Clone, Debug)]
pub(super) struct Rotation {
    /// Degrees, counter-clockwise.
    angle: f64,
    sampling: Sampling,
    /// Enlarge the image so that all of it stays visible.
    expand: bool,
    /// Centre (x, y) in pixels from the upper left corner; `None` is the middle.
    center: Option<[f64; 2]>,
    /// Value of what comes in from outside.
    fill: PerChannel,
}

impl ImageAction for Rotation {
    fn size(&self, input: Size) -> Size {
        if self.expand { expanded(input, self.angle, self.center) } else { input }
    }

    fn memory(&self, input: Size) -> usize {
        elements(self.size(input))
    }

    fn pixel_ops(&self, input: Size) -> Option<Vec<PixelOp>> {
        let Self { angle, sampling, expand, center, fill } = *self;
        let fill = fill.bytes(input.channels);
        let after = self.size(input);
        let size = (after.height, after.width);
        let rotation = rotate::Rotation { angle, sampling, expand, center, fill };
        let (matrix, sampling) = rotation.as_affine((input.height, input.width), size);
        Some(vec![PixelOp::Affine(AffineMap { matrix, sampling, fill, size })])
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
        let after = self.size(size);
        let Self { angle, sampling, expand, center, fill } = *self;
        let fill = fill.bytes(size.channels);
        let rotation = rotate::Rotation { angle, sampling, expand, center, fill };
        // Pillow interpolates images with alpha premultiplied, but not where a turn only moves pixels.
        let alpha = matches!(size.channels, 2 | 4)
            && sampling != Sampling::Nearest
            && !rotation.moves_pixels(size.height, size.width);
        if alpha {
            premultiply(image);
        }
        rotate::rotate(image.view(), &rotation, (after.height, after.width), &mut memory.spare)?;
        std::mem::swap(image, &mut memory.spare);
        if alpha {
            unpremultiply(image);
        }
        Ok(())
    }

    fn for_mask(
        &self,
        fill: &dyn Fn(&PerChannel) -> Result<PerChannel>,
    ) -> Result<Option<Arc<dyn ImageAction>>> {
        Ok(Some(Arc::new(Self { sampling: Sampling::Nearest, fill: fill(&self.fill)?, ..self.clone() })))
    }

    fn moves(&self, canvas: Size) -> Option<PointMove> {
        let turn = Turn::new(self.angle, self.expand, self.center, canvas);
        Some(Box::new(move |point| {
            let [x, y] = turn.matrix(point);
            [x - turn.origin[0], y - turn.origin[1]]
        }))
    }
}

/// A rotation of points, as torchvision's `_affine_bounding_boxes_with_expand` makes it.
struct Turn {
    matrix: [f32; 6],
    /// Where the corner of an expanded image lies; 0 without `expand`.
    origin: [f32; 2],
}

impl Turn {
    fn new(angle: f64, expand: bool, center: Option<[f64; 2]>, canvas: Size) -> Self {
        let [cx, cy] = center.unwrap_or([canvas.width as f64 * 0.5, canvas.height as f64 * 0.5]);
        let (sin, cos) = (-angle).to_radians().sin_cos();
        let matrix =
            [cos, -sin, cos * -cx + -sin * -cy + cx, sin, cos, sin * -cx + cos * -cy + cy].map(|x| x as f32);
        let mut turn = Self { matrix, origin: [0.0; 2] };
        if expand {
            let (width, height) = (canvas.width as f32, canvas.height as f32);
            let corners =
                [[0.0, 0.0], [0.0, height], [width, height], [width, 0.0]].map(|point| turn.matrix(point));
            turn.origin = [0, 1]
                .map(|axis| corners.iter().fold(f32::INFINITY, |least, corner| least.min(corner[axis])));
        }
        turn
    }

    fn matrix(&self, [x, y]: [f32; 2]) -> [f32; 2] {
        let [a, b, c, d, e, f] = self.matrix;
        [x * a + y * b + c, x * d + y * e + f]
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
    use super::{
        super::{boxes::Boxes, testing::*},
        *,
    };
    use crate::sample::BoxFormat;

    #[test]
    fn angles_are_uniform() {
        let angles = (0..20_000).map(|index| RandomRotation::new([-10.0, 40.0]).draw_angle(&mut rng(index)));
        assert_uniform(angles, -10.0, 40.0);
    }

    #[test]
    fn the_size_is_fixed_unless_it_expands_by_a_random_angle() {
        let shape = Shape { height: Some(10), width: Some(20), channels: 3 };
        assert_eq!(RandomRotation::new(30.0).fixed_size(shape), shape);
        let expanding = RandomRotation::new(30.0).expand(true);
        assert_eq!(expanding.fixed_size(shape), Shape { height: None, width: None, ..shape });
        let quarter = RandomRotation::new([90.0, 90.0]).expand(true);
        assert_eq!(quarter.fixed_size(shape), Shape { height: Some(20), width: Some(10), ..shape });
    }

    #[test]
    fn parameters_are_checked() {
        assert!(
            check_error(RandomRotation::new(-3.0)).starts_with("degrees is (3.0, -3.0); must be (low, high)")
        );
        assert!(check_error(RandomRotation::new(f64::INFINITY)).starts_with("degrees"));
        assert!(
            check_error(RandomRotation::new(1.0).center([f64::NAN, 1.0])).starts_with("center is (NaN, 1.0)")
        );
        let lanczos = RandomRotation::new(1.0).interpolation(Interpolation::Lanczos);
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
        let gray = Size { channels: 1, ..size(1, 1) };
        assert!(RandomRotation::new(1.0).fill([1.0; 3]).draw(gray, &mut rng(0)).is_err());
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let rotation = read(r#"{"type":"RandomRotation","degrees":30,"center":[1,2],"fill":3}"#);
        assert_eq!(rotation, RandomRotation::new(30.0).center([1.0, 2.0]).fill(3.0).into());
        assert_eq!(
            rotation.to_string(),
            "RandomRotation(degrees=[-30.0, 30.0], interpolation=nearest, expand=False, fill=3, center=(1.0, 2.0))"
        );
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
            let rotation = RandomRotation { center, ..RandomRotation::new(0.0) };
            let rotate = |expand| rotation.expand(expand).rotation(angle);
            assert_eq!(rotate(true).size(size(h, w)), size(out_h, out_w), "{h}x{w} by {angle} at {center:?}");
            assert_eq!(rotate(false).size(size(h, w)), size(h, w));
        }
    }

    #[test]
    fn a_quarter_turn_moves_corners() {
        let turn = Action::Image(Arc::new(RandomRotation::new(0.0).expand(true).rotation(90.0)));
        // Counter-clockwise: the upper left corner comes to lie at the lower left.
        let mut boxes = Boxes::default();
        let bytes: Vec<u8> = [0.0f32, 0.0, 20.0, 10.0].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert!(boxes.load(&bytes, BoxFormat::Xyxy, false));
        boxes.run(&turn, size(100, 200)).unwrap();
        let turned = boxes.rows[0];
        for (is, should) in turned.iter().zip([0.0, 180.0, 10.0, 200.0]) {
            assert!((is - should).abs() < 1e-3, "{turned:?}");
        }
    }
}
