//! `RandomAffine`: turns, moves, scales and shears the image at random.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use wellfed_kernels::{
    affine::{Sampling, affine},
    alpha::{premultiply, unpremultiply},
    image::Image,
    recipe::{AffineMap, PixelOp},
};

use super::{
    Action, Class, ImageAction, ImageMemory, Interpolation, Operation, PerChannel, PointMove, Shape, Size,
    Spread, Takes,
    image_action::elements,
    param::{MAX_SIDE, Repr, Tuple, check_positive_range, check_range, numbers},
};
use crate::{Error, Result, rng::Rng};

/// Keeps the size and the centre, and turns, moves, scales and shears around it by numbers drawn uniformly.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RandomAffine {
    /// Least and greatest angle, clockwise; one number `d` means (-d, d).
    #[serde(deserialize_with = "degrees")]
    pub degrees: [f64; 2],
    /// Greatest share of the width and of the height that the image moves by, 0 to 1; in whole pixels. Default: none.
    #[serde(default)]
    pub translate: Option<[f64; 2]>,
    /// Least and greatest scale, above 0. Default: none.
    #[serde(default)]
    pub scale: Option<[f64; 2]>,
    /// Angles of the shear. Default: none.
    #[serde(default)]
    pub shear: Option<Shear>,
    /// Filter: nearest, bilinear or bicubic. Default: nearest.
    #[serde(default = "nearest")]
    pub interpolation: Interpolation,
    /// Value of what comes in from outside. Default: 0.
    #[serde(default)]
    pub fill: PerChannel,
    /// Centre (x, y) in pixels from the upper left corner. Default: the middle.
    #[serde(default)]
    pub center: Option<[f64; 2]>,
}

fn nearest() -> Interpolation {
    Interpolation::Nearest
}

fn degrees<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    Ok(Spread::deserialize(deserializer)?.around(0.0))
}

/// Least and greatest angles of a shear in degrees. Read from one number `d`, which is (-d, d) along x, from (low, high)
/// along x, or from (low, high, low, high) along x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shear {
    /// Along x: rows move by different amounts.
    pub x: [f64; 2],
    /// Along y: columns move by different amounts.
    pub y: Option<[f64; 2]>,
}

impl Shear {
    fn values(&self) -> Vec<f64> {
        self.x.into_iter().chain(self.y.into_iter().flatten()).collect()
    }
}

impl Serialize for Shear {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.values().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Shear {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let allowed = "must be one angle, (low, high) along x, or (low, high, low, high) along x and y";
        match numbers::<f64, D>(deserializer, &[1, 2, 4], allowed)?[..] {
            [by] => Ok(Self { x: [-by, by], y: None }),
            [low, high] => Ok(Self { x: [low, high], y: None }),
            [a, b, c, d] => Ok(Self { x: [a, b], y: Some([c, d]) }),
            _ => Err(D::Error::custom(allowed)),
        }
    }
}

impl RandomAffine {
    /// Turns by up to `degrees` either way, or between two angles.
    pub fn new(degrees: impl Into<Spread>) -> Self {
        Self {
            degrees: degrees.into().around(0.0),
            translate: None,
            scale: None,
            shear: None,
            interpolation: nearest(),
            fill: PerChannel::default(),
            center: None,
        }
    }

    /// Sets the greatest share of the width and of the height that the image moves by.
    #[must_use]
    pub fn translate(mut self, translate: [f64; 2]) -> Self {
        self.translate = Some(translate);
        self
    }

    /// Sets the least and greatest scale.
    #[must_use]
    pub fn scale(mut self, scale: [f64; 2]) -> Self {
        self.scale = Some(scale);
        self
    }

    /// Sets the angles of the shear along x and, if there are any, along y.
    #[must_use]
    pub fn shear(mut self, x: [f64; 2], y: Option<[f64; 2]>) -> Self {
        self.shear = Some(Shear { x, y });
        self
    }

    /// Sets the filter.
    #[must_use]
    pub fn interpolation(mut self, interpolation: Interpolation) -> Self {
        self.interpolation = interpolation;
        self
    }

    /// Sets the value of what comes in from outside.
    #[must_use]
    pub fn fill(mut self, fill: impl Into<PerChannel>) -> Self {
        self.fill = fill.into();
        self
    }

    /// Sets the centre (x, y).
    #[must_use]
    pub fn center(mut self, center: [f64; 2]) -> Self {
        self.center = Some(center);
        self
    }

    fn affine(&self, size: Size, rng: &mut Rng) -> Affine {
        let mut drawn = |[low, high]: [f64; 2]| rng.uniform(low, high);
        let angle = drawn(self.degrees);
        let translate = self.translate.map_or([0.0; 2], |[x, y]| {
            let most = [x * size.width as f64, y * size.height as f64];
            most.map(|most| drawn([-most, most]).round_ties_even())
        });
        Affine {
            angle,
            translate,
            scale: self.scale.map_or(1.0, &mut drawn),
            shear: self.shear.map_or([0.0; 2], |shear| [drawn(shear.x), shear.y.map_or(0.0, &mut drawn)]),
            center: self.center,
            sampling: sampling(self.interpolation),
            fill: self.fill,
        }
    }
}

impl fmt::Display for RandomAffine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |pair: &Option<[f64; 2]>| pair.map_or(Vec::new(), |pair| pair.to_vec());
        Repr::new(f, "RandomAffine")
            .field("degrees", format_args!("{:?}", self.degrees))
            .field_if(self.translate.is_some(), "translate", Tuple(&pair(&self.translate)))
            .field_if(self.scale.is_some(), "scale", Tuple(&pair(&self.scale)))
            .field_if(self.shear.is_some(), "shear", Tuple(&self.shear.map_or(Vec::new(), |s| s.values())))
            .field("interpolation", self.interpolation)
            .field("fill", self.fill)
            .field_if(self.center.is_some(), "center", Tuple(&pair(&self.center)))
            .finish()
    }
}

impl Operation for RandomAffine {
    fn check(&self) -> Result<()> {
        let free = |name, range| check_range(name, range, f64::NEG_INFINITY, f64::INFINITY);
        free("degrees", self.degrees)?;
        if let Some(translate) = self.translate
            && !translate.iter().all(|share| (0.0..=1.0).contains(share))
        {
            let what = format!("translate is {}; both numbers must be 0 to 1", Tuple(&translate));
            return Err(Error::config(what));
        }
        self.scale.map_or(Ok(()), |scale| check_positive_range("scale", scale))?;
        if let Some(shear) = self.shear {
            free("shear", shear.x)?;
            shear.y.map_or(Ok(()), |y| free("shear", y))?;
        }
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

    fn draws_by_size(&self) -> bool {
        self.translate.is_some()
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        self.fill.check_channels("fill", size.channels)?;
        Ok(Action::Image(Arc::new(self.affine(size, rng))))
    }
}

/// Pillow's filter of this name. Pillow knows one kind of nearest, and torchvision maps both names to it.
pub(super) fn sampling(interpolation: Interpolation) -> Sampling {
    match interpolation {
        Interpolation::Bilinear => Sampling::Bilinear,
        Interpolation::Bicubic => Sampling::Bicubic,
        _ => Sampling::Nearest,
    }
}

/// Fails for filters that are there for resizing alone.
pub(super) fn check_sampling(interpolation: Interpolation) -> Result<()> {
    if interpolation != Interpolation::Lanczos && !interpolation.is_opencv() && !interpolation.is_torch() {
        return Ok(());
    }
    Err(Error::config(format!("interpolation is {interpolation}; must be nearest, bilinear or bicubic")))
}

/// A drawn affine map, as torchvision's `functional.affine` has it.
#[derive(Clone, Debug)]
pub(super) struct Affine {
    /// Degrees, clockwise.
    pub(super) angle: f64,
    /// Pixels to the right and down.
    pub(super) translate: [f64; 2],
    pub(super) scale: f64,
    /// Degrees along x and y.
    pub(super) shear: [f64; 2],
    /// Centre (x, y) in pixels from the upper left corner; `None` is the middle.
    pub(super) center: Option<[f64; 2]>,
    pub(super) sampling: Sampling,
    /// Value of what comes in from outside.
    pub(super) fill: PerChannel,
}

impl Affine {
    /// A map without a scale, sampled and filled by others.
    pub(super) fn around(angle: f64, translate: [f64; 2], shear: [f64; 2], center: [f64; 2]) -> Self {
        let (sampling, fill) = (Sampling::Nearest, PerChannel::default());
        Self { angle, translate, scale: 1.0, shear, center: Some(center), sampling, fill }
    }

    /// Turn and shear: [a, b] of x' = ax + by, [c, d] of y' = cx + dy. Its determinant is 1 (torchvision,
    /// `_get_inverse_affine_matrix`).
    fn turned(&self) -> [f64; 4] {
        let (turn, [sx, sy]) = (self.angle.to_radians(), self.shear.map(f64::to_radians));
        [
            (turn - sy).cos() / sy.cos(),
            -(turn - sy).cos() * sx.tan() / sy.cos() - turn.sin(),
            (turn - sy).sin() / sy.cos(),
            -(turn - sy).sin() * sx.tan() / sy.cos() + turn.cos(),
        ]
    }

    fn center(&self, size: Size) -> [f64; 2] {
        self.center.unwrap_or([size.width as f64 * 0.5, size.height as f64 * 0.5])
    }

    /// From output to source.
    pub(super) fn inverse(&self, size: Size) -> [f64; 6] {
        let ([a, b, c, d], [cx, cy], [tx, ty]) = (self.turned(), self.center(size), self.translate);
        let mut matrix = [d, -b, 0.0, -c, a, 0.0].map(|x| x / self.scale);
        matrix[2] += matrix[0] * (-cx - tx) + matrix[1] * (-cy - ty);
        matrix[5] += matrix[3] * (-cx - tx) + matrix[4] * (-cy - ty);
        matrix[2] += cx;
        matrix[5] += cy;
        matrix
    }

    /// From source to output.
    fn forward(&self, size: Size) -> [f64; 6] {
        let ([a, b, c, d], [cx, cy], [tx, ty]) = (self.turned(), self.center(size), self.translate);
        let mut matrix = [a, b, 0.0, c, d, 0.0].map(|x| x * self.scale);
        matrix[2] += matrix[0] * -cx + matrix[1] * -cy;
        matrix[5] += matrix[3] * -cx + matrix[4] * -cy;
        matrix[2] += cx + tx;
        matrix[5] += cy + ty;
        matrix
    }
}

impl ImageAction for Affine {
    fn memory(&self, input: Size) -> usize {
        elements(input)
    }

    fn pixel_ops(&self, input: Size) -> Option<Vec<PixelOp>> {
        let (fill, size) = (self.fill.bytes(input.channels), (input.height, input.width));
        Some(vec![PixelOp::Affine(AffineMap {
            matrix: self.inverse(input),
            sampling: self.sampling,
            fill,
            size,
        })])
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
        if elements(size) == 0 {
            return Ok(());
        }
        let fill = self.fill.bytes(size.channels);
        // Pillow interpolates images with alpha premultiplied.
        let alpha = matches!(size.channels, 2 | 4) && self.sampling != Sampling::Nearest;
        if alpha {
            premultiply(image);
        }
        let (matrix, sides) = (self.inverse(size), (size.height, size.width));
        affine(image.view(), &matrix, self.sampling, fill, sides, &mut memory.spare)?;
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
        // In float32, as torchvision's `_affine_bounding_boxes_with_expand`.
        let [a, b, c, d, e, f] = self.forward(canvas).map(|x| x as f32);
        Some(Box::new(move |[x, y]| [x * a + y * b + c, x * d + y * e + f]))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn full() -> RandomAffine {
        RandomAffine::new(20.0).translate([0.25, 0.5]).scale([0.5, 2.0]).shear([-5.0, 10.0], Some([0.0, 3.0]))
    }

    #[test]
    fn numbers_are_uniform_in_their_ranges() {
        let affines: Vec<Affine> =
            (0..20_000).map(|index| full().affine(size(4000, 8000), &mut rng(index))).collect();
        let check = |value: fn(&Affine) -> f64, low, high| {
            assert_uniform(affines.iter().map(value), low, high);
        };
        check(|a| a.angle, -20.0, 20.0);
        check(|a| a.translate[0], -2000.0, 2000.0);
        check(|a| a.translate[1], -2000.0, 2000.0);
        check(|a| a.scale, 0.5, 2.0);
        check(|a| a.shear[0], -5.0, 10.0);
        check(|a| a.shear[1], 0.0, 3.0);
        assert!(affines.iter().all(|a| a.translate.iter().all(|t| t.fract() == 0.0)));
        let plain = RandomAffine::new(0.0).affine(size(9, 9), &mut rng(0));
        assert_eq!((plain.translate, plain.scale, plain.shear), ([0.0; 2], 1.0, [0.0; 2]));
    }

    #[test]
    fn points_move_as_pixels_do() {
        for index in 0..100 {
            let (affine, canvas) = (full().affine(size(90, 70), &mut rng(index)), size(90, 70));
            let [a, b, c, d, e, f] = affine.inverse(canvas);
            let follow = affine.moves(canvas).unwrap();
            for [x, y] in [[0.0f32, 0.0], [70.0, 10.0], [33.0, 90.0]] {
                let [u, v] = follow([x, y]).map(f64::from);
                let back = [u * a + v * b + c, u * d + v * e + f];
                assert!((back[0] - f64::from(x)).abs() < 1e-3, "{affine:?} {back:?}");
                assert!((back[1] - f64::from(y)).abs() < 1e-3, "{affine:?} {back:?}");
            }
        }
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(RandomAffine::new(-3.0)).starts_with("degrees is (3.0, -3.0); must be"));
        assert_eq!(
            check_error(RandomAffine::new(1.0).translate([0.1, 1.5])),
            "translate is (0.1, 1.5); both numbers must be 0 to 1"
        );
        assert!(check_error(RandomAffine::new(1.0).scale([0.0, 1.0])).starts_with("scale is (0.0, 1.0)"));
        assert!(check_error(RandomAffine::new(1.0).shear([2.0, 1.0], None)).starts_with("shear is"));
        assert!(check_error(RandomAffine::new(1.0).center([f64::NAN, 1.0])).starts_with("center is"));
        let lanczos = RandomAffine::new(1.0).interpolation(Interpolation::Lanczos);
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
        let gray = Size { channels: 1, ..size(1, 1) };
        assert!(RandomAffine::new(1.0).fill([1.0; 3]).draw(gray, &mut rng(0)).is_err());
        assert!(full().draws_by_size() && !RandomAffine::new(1.0).draws_by_size());
    }

    #[test]
    fn it_reads_and_shows_as_in_torchvision() {
        let affine = read(r#"{"type":"RandomAffine","degrees":30,"scale":[0.5,2],"shear":4,"fill":3}"#);
        let same = RandomAffine::new(30.0).scale([0.5, 2.0]).shear([-4.0, 4.0], None).fill(3.0);
        assert_eq!(affine, same.into());
        assert_eq!(
            affine.to_string(),
            "RandomAffine(degrees=[-30.0, 30.0], scale=(0.5, 2.0), shear=(-4.0, 4.0), interpolation=nearest, fill=3)"
        );
        let both = read(r#"{"type":"RandomAffine","degrees":0,"shear":[1,2,3,4]}"#);
        assert_eq!(both, RandomAffine::new(0.0).shear([1.0, 2.0], Some([3.0, 4.0])).into());
        assert!(
            refuse(r#"{"type":"RandomAffine","degrees":0,"shear":[1,2,3]}"#).contains("must be one angle")
        );
    }
}
