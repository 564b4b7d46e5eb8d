//! `OpenCvAffine`: Albumentations' `Affine`, `ShiftScaleRotate`, `Rotate` and `SafeRotate`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{
    affine::opencv::{Border, Sampling, warp},
    image::Image,
};

use super::{
    Action, Class, ImageAction, ImageMemory, Interpolation, Operation, PaddingMode, PerChannel, PointMove,
    Shape, Size, Takes,
    image_action::elements,
    param::{MAX_SIDE, Repr, Tuple, check_positive_range, check_range, python_bool},
};
use crate::{Error, Result, rng::Rng};

/// Scales, turns, shears and moves the image around its centre by random numbers, as `Affine` of Albumentations 2 does with
/// `cv2.warpAffine`; the size stays. Pairs of pairs are ranges along x and along y.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OpenCvAffine {
    /// Least and greatest scale, above 0.
    pub scale: [[f64; 2]; 2],
    /// The scale along x is that along y, too.
    #[serde(default)]
    pub keep_ratio: bool,
    /// A range that reaches from below 1 to above is drawn from below and from above equally often.
    #[serde(default)]
    pub balanced_scale: bool,
    /// Least and greatest way as a share of the side, cut to whole pixels.
    #[serde(default)]
    pub translate_percent: Option<[[f64; 2]; 2]>,
    /// Least and greatest way in whole pixels, in place of shares.
    #[serde(default)]
    pub translate_px: Option<[[i64; 2]; 2]>,
    /// Least and greatest angle in degrees, counter-clockwise.
    pub rotate: [f64; 2],
    /// Least and greatest angle of the shear in degrees.
    pub shear: [[f64; 2]; 2],
    /// In place of everything else, the turned image is scaled so that all of it is seen: `SafeRotate`.
    #[serde(default)]
    pub fit: bool,
    /// opencv-nearest or opencv-linear.
    pub interpolation: Interpolation,
    /// What comes in from outside: constant or reflect.
    pub border: PaddingMode,
    /// Value of what comes in from outside, where that is constant. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
}

impl OpenCvAffine {
    /// Turns by an angle in degrees between these two.
    pub fn new(rotate: [f64; 2]) -> Self {
        Self {
            scale: [[1.0; 2]; 2],
            keep_ratio: false,
            balanced_scale: false,
            translate_percent: None,
            translate_px: None,
            rotate,
            shear: [[0.0; 2]; 2],
            fit: false,
            interpolation: Interpolation::OpenCvLinear,
            border: PaddingMode::Constant,
            fill: PerChannel::default(),
        }
    }

    fn drawn(&self, rng: &mut Rng) -> Map {
        let pixels = self.translate_px.map_or([0; 2], |ranges| {
            ranges.map(|[low, high]| low + rng.below(high.abs_diff(low) + 1) as i64)
        });
        let mut uniform = |[low, high]: [f64; 2]| rng.uniform(low, high);
        let shares = self.translate_percent.map_or([0.0; 2], |ranges| ranges.map(&mut uniform));
        let shear = self.shear.map(&mut uniform);
        let rotate = uniform(self.rotate);
        let scales = self.scale.map(|range| self.scale(range, rng));
        Map {
            scale: if self.keep_ratio { [scales[0]; 2] } else { scales },
            shares,
            pixels,
            rotate,
            shear,
            fit: self.fit,
            sampling: match self.interpolation {
                Interpolation::OpenCvNearest => Sampling::Nearest,
                _ => Sampling::Linear,
            },
            fill: (self.border == PaddingMode::Constant).then_some(self.fill),
        }
    }

    fn scale(&self, [low, high]: [f64; 2], rng: &mut Rng) -> f64 {
        if !self.balanced_scale {
            return rng.uniform(low, high);
        }
        match (low < 1.0, high > 1.0) {
            (true, true) if rng.chance(0.5) => rng.uniform(low, 1.0),
            (true, false) => rng.uniform(low, 1.0),
            (_, true) => rng.uniform(1.0, high),
            (false, false) => 1.0,
        }
    }
}

impl fmt::Display for OpenCvAffine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn pairs<T: fmt::Debug>([x, y]: &[[T; 2]; 2]) -> String {
            format!("({}, {})", Tuple(x), Tuple(y))
        }
        let percent = self.translate_percent.as_ref().map_or(String::new(), pairs);
        let pixels = self.translate_px.as_ref().map_or(String::new(), pairs);
        Repr::new(f, "OpenCvAffine")
            .field("scale", pairs(&self.scale))
            .field_if(self.keep_ratio, "keep_ratio", python_bool(true))
            .field_if(self.balanced_scale, "balanced_scale", python_bool(true))
            .field_if(self.translate_percent.is_some(), "translate_percent", percent)
            .field_if(self.translate_px.is_some(), "translate_px", pixels)
            .field("rotate", Tuple(&self.rotate))
            .field("shear", pairs(&self.shear))
            .field_if(self.fit, "fit", python_bool(true))
            .field("interpolation", self.interpolation)
            .field("border", self.border)
            .field("fill", self.fill)
            .finish()
    }
}

impl Operation for OpenCvAffine {
    fn check(&self) -> Result<()> {
        let free = |name, range| check_range(name, range, f64::NEG_INFINITY, f64::INFINITY);
        self.scale.iter().try_for_each(|range| check_positive_range("scale", *range))?;
        self.shear.iter().try_for_each(|range| free("shear", *range))?;
        free("rotate", self.rotate)?;
        let shares = self.translate_percent.iter().flatten();
        shares.into_iter().try_for_each(|range| free("translate_percent", *range))?;
        let most = MAX_SIDE as i64;
        for &[low, high] in self.translate_px.iter().flatten() {
            if !(-most <= low && low <= high && high <= most) {
                let what =
                    format!("translate_px is ({low}, {high}); must be low to high, within {most} pixels");
                return Err(Error::config(what));
            }
        }
        if !matches!(self.interpolation, Interpolation::OpenCvNearest | Interpolation::OpenCvLinear) {
            let what =
                format!("interpolation is {}; must be opencv-nearest or opencv-linear", self.interpolation);
            return Err(Error::config(what));
        }
        if !matches!(self.border, PaddingMode::Constant | PaddingMode::Reflect) {
            return Err(Error::config(format!("border is {}; must be constant or reflect", self.border)));
        }
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        Takes::Geometry
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        self.fill.check_channels("fill", size.channels)?;
        Ok(Action::Image(Arc::new(self.drawn(rng))))
    }
}

/// A drawn map.
#[derive(Clone, Debug)]
struct Map {
    scale: [f64; 2],
    /// The way along x and y as a share of the sides.
    shares: [f64; 2],
    /// More of it in pixels.
    pixels: [i64; 2],
    rotate: f64,
    shear: [f64; 2],
    fit: bool,
    sampling: Sampling,
    /// Value of what comes in from outside; `None`: the image is mirrored there.
    fill: Option<PerChannel>,
}

/// Rows of a matrix whose third one is 0, 0, 1.
type Matrix = [f64; 6];

/// What does `one` after `other`, with the fused sums of matrix products in NumPy.
fn after([a, b, c, d, e, f]: Matrix, [p, q, r, s, t, u]: Matrix) -> Matrix {
    let entry = |x: f64, y: f64, upper: f64, lower: f64| y.mul_add(lower, x * upper);
    [
        entry(a, b, p, s),
        entry(a, b, q, t),
        entry(a, b, r, u) + c,
        entry(d, e, p, s),
        entry(d, e, q, t),
        entry(d, e, r, u) + f,
    ]
}

impl Map {
    /// From source to output, centres of pixels at whole numbers; `None` if it is as good as nothing.
    fn matrix(&self, size: Size) -> Option<Matrix> {
        let [width, height] = [size.width as f64, size.height as f64];
        let [x, y] = [width / 2.0 - 0.5, height / 2.0 - 0.5];
        let matrix = if self.fit {
            self.fitting([width, height], [x, y])
        } else {
            self.around([width, height], [x, y])
        };
        // As `numpy.allclose` compares it with the identity.
        let near = |(v, one): (&f64, &f64)| (v - one).abs() <= 1e-8 + 1e-5 * one;
        let nothing = matrix.iter().zip(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]).all(near);
        (!nothing).then_some(matrix)
    }

    /// `create_affine_transformation_matrix` of Albumentations.
    fn around(&self, sides: [f64; 2], [x, y]: [f64; 2]) -> Matrix {
        let (sin, cos) = self.rotate.rem_euclid(360.0).to_radians().sin_cos();
        let [across, down] = self.shear.map(|angle| (-angle).to_radians().tan());
        let way = [0, 1].map(|i| (self.shares[i] * sides[i]).trunc() + self.pixels[i] as f64);
        [
            [1.0, 0.0, way[0], 0.0, 1.0, way[1]],
            [1.0, across, 0.0, down, 1.0, 0.0],
            [cos, sin, 0.0, -sin, cos, 0.0],
            [self.scale[0], 0.0, 0.0, 0.0, self.scale[1], 0.0],
            [1.0, 0.0, -x, 0.0, 1.0, -y],
        ]
        .into_iter()
        .fold([1.0, 0.0, x, 0.0, 1.0, y], after)
    }

    /// `_create_safe_rotate_matrix` of Albumentations, over `cv2.getRotationMatrix2D`.
    fn fitting(&self, [width, height]: [f64; 2], [x, y]: [f64; 2]) -> Matrix {
        let (sin, cos) = self.rotate.to_radians().sin_cos();
        let [wide, high] =
            [height * sin.abs() + width * cos.abs(), height * cos.abs() + width * sin.abs()].map(f64::trunc);
        let turn = [
            cos,
            sin,
            (1.0 - cos) * x - sin * y + (wide / 2.0 - x),
            -sin,
            cos,
            sin * x + (1.0 - cos) * y + (high / 2.0 - y),
        ];
        after([width / wide, 0.0, 0.0, 0.0, height / high, 0.0], turn)
    }
}

impl ImageAction for Map {
    fn memory(&self, input: Size) -> usize {
        elements(input)
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
        let Some(matrix) = self.matrix(size).filter(|_| elements(size) > 0) else { return Ok(()) };
        let border = self.fill.map_or(Border::Reflect101, |fill| Border::Constant(fill.bytes(size.channels)));
        warp(image.view(), &matrix, self.sampling, border, &mut memory.spare)?;
        std::mem::swap(image, &mut memory.spare);
        Ok(())
    }

    fn for_mask(
        &self,
        fill: &dyn Fn(&PerChannel) -> Result<PerChannel>,
    ) -> Result<Option<Arc<dyn ImageAction>>> {
        let fill = self.fill.as_ref().map(fill).transpose()?;
        Ok(Some(Arc::new(Self { sampling: Sampling::Nearest, fill, ..self.clone() })))
    }

    fn moves(&self, canvas: Size) -> Option<PointMove> {
        let [a, b, c, d, e, f] = self.matrix(canvas)?;
        // Points are counted from the corner of a pixel, and the matrix from its centre.
        Some(Box::new(move |point| {
            let [x, y] = point.map(|v| f64::from(v) - 0.5);
            [x * a + y * b + c, x * d + y * e + f].map(|v| (v + 0.5) as f32)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn full() -> OpenCvAffine {
        OpenCvAffine {
            scale: [[0.5, 2.0], [0.75, 1.25]],
            translate_percent: Some([[-0.25, 0.5], [0.0, 0.1]]),
            shear: [[-5.0, 10.0], [0.0, 3.0]],
            ..OpenCvAffine::new([-20.0, 40.0])
        }
    }

    fn maps(affine: OpenCvAffine) -> Vec<Map> {
        affine.check().unwrap();
        (0..20_000).map(|index| affine.drawn(&mut rng(index))).collect()
    }

    #[test]
    fn numbers_are_uniform_in_their_ranges() {
        let drawn = maps(full());
        let check = |value: fn(&Map) -> f64, low, high| assert_uniform(drawn.iter().map(value), low, high);
        check(|m| m.scale[0], 0.5, 2.0);
        check(|m| m.scale[1], 0.75, 1.25);
        check(|m| m.shares[0], -0.25, 0.5);
        check(|m| m.shares[1], 0.0, 0.1);
        check(|m| m.rotate, -20.0, 40.0);
        check(|m| m.shear[0], -5.0, 10.0);
        check(|m| m.shear[1], 0.0, 3.0);
        let pixels = OpenCvAffine { translate_px: Some([[-2, 3], [7, 7]]), ..OpenCvAffine::new([0.0; 2]) };
        let mut counts = [0; 6];
        for map in maps(pixels) {
            assert_eq!(map.pixels[1], 7);
            counts[(map.pixels[0] + 2) as usize] += 1;
        }
        assert_uniform_counts(&counts);
    }

    #[test]
    fn scales_may_be_bound_together_and_balanced() {
        assert!(maps(OpenCvAffine { keep_ratio: true, ..full() }).iter().all(|m| m.scale[0] == m.scale[1]));
        let balanced = maps(OpenCvAffine { balanced_scale: true, ..full() });
        let (below, above): (Vec<f64>, Vec<f64>) =
            balanced.iter().map(|m| m.scale[0]).partition(|s| *s < 1.0);
        assert_probability(below.len(), 20_000, 0.5);
        assert_uniform(below, 0.5, 1.0);
        assert_uniform(above, 1.0, 2.0);
        let of = |range| OpenCvAffine { balanced_scale: true, scale: [range; 2], ..full() };
        assert!(maps(of([1.5, 2.0])).iter().all(|m| (1.0..2.0).contains(&m.scale[0])));
        assert!(maps(of([0.5, 0.75])).iter().all(|m| (0.5..1.0).contains(&m.scale[0])));
        assert!(maps(of([1.0, 1.0])).iter().all(|m| m.scale == [1.0; 2]));
    }

    #[test]
    fn a_quarter_turn_moves_pixels_and_points_alike() {
        let quarter = OpenCvAffine::new([90.0; 2]).drawn(&mut rng(0));
        let mut image = Image::new();
        image.reshape(2, 2, 1).unwrap().copy_from_slice(&[1, 2, 3, 4]);
        quarter.run(&mut image, &mut ImageMemory::default()).unwrap();
        assert_eq!(image.pixels(), [2, 4, 1, 3]);
        let [x, y] = quarter.moves(Size { channels: 1, ..size(2, 2) }).unwrap()([0.5, 0.5]);
        assert!((x - 0.5).abs() < 1e-6 && (y - 1.5).abs() < 1e-6, "{x} {y}");
        let nothing = OpenCvAffine::new([360.0; 2]).drawn(&mut rng(0));
        assert!(nothing.matrix(size(9, 7)).is_none() && nothing.moves(size(9, 7)).is_none());
    }

    #[test]
    fn parameters_are_checked() {
        let ok = full();
        assert!(
            check_error(OpenCvAffine { scale: [[0.0, 1.0]; 2], ..ok }).starts_with("scale is (0.0, 1.0)")
        );
        assert!(check_error(OpenCvAffine { rotate: [2.0, 1.0], ..ok }).starts_with("rotate is"));
        assert!(check_error(OpenCvAffine { shear: [[0.0, f64::NAN]; 2], ..ok }).starts_with("shear is"));
        let far = OpenCvAffine { translate_px: Some([[0, i64::MAX]; 2]), ..ok };
        assert!(check_error(far).starts_with("translate_px is (0, 9223372036854775807)"));
        let cubic = OpenCvAffine { interpolation: Interpolation::Bicubic, ..ok };
        assert!(check_error(cubic).contains("must be opencv-nearest or opencv-linear"));
        assert!(check_error(OpenCvAffine { border: PaddingMode::Edge, ..ok }).starts_with("border is edge"));
        let json = serde_json::to_string(&super::super::Transform::from(ok)).unwrap();
        assert_eq!(read(&json), ok.into());
        assert_eq!(
            ok.to_string(),
            "OpenCvAffine(scale=((0.5, 2.0), (0.75, 1.25)), translate_percent=((-0.25, 0.5), (0.0, 0.1)), \
             rotate=(-20.0, 40.0), shear=((-5.0, 10.0), (0.0, 3.0)), interpolation=opencv-linear, border=constant, \
             fill=0)"
        );
    }
}
