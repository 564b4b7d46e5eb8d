//! `RandomPerspective`: moves the corners of the image at random.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{
    affine::{Sampling, perspective},
    alpha::{premultiply, unpremultiply},
    image::Image,
};

use super::{
    Action, Class, ImageAction, ImageMemory, Interpolation, Operation, PerChannel, PointMove, Shape, Size,
    Takes,
    image_action::elements,
    param::{Repr, Tuple, check_probability, impossible},
    random_affine::{check_sampling, sampling},
};
use crate::{Error, Result, rng::Rng};

/// Moves each corner into the image by numbers of pixels drawn uniformly, with probability `p`. The size stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RandomPerspective {
    /// Greatest share of half a side that a corner moves by, 0 to 1. Default: 0.5.
    pub distortion_scale: f64,
    /// Probability, 0 to 1; 0.5 by default.
    pub p: f64,
    /// Filter: nearest, bilinear or bicubic. Default: bilinear.
    pub interpolation: Interpolation,
    /// Value of what comes in from outside. Default: 0.
    pub fill: PerChannel,
}

impl Default for RandomPerspective {
    fn default() -> Self {
        Self {
            distortion_scale: 0.5,
            p: 0.5,
            interpolation: Interpolation::Bilinear,
            fill: PerChannel::default(),
        }
    }
}

impl RandomPerspective {
    /// Moves corners by up to this share of half a side.
    pub fn new(distortion_scale: f64) -> Self {
        Self { distortion_scale, ..Self::default() }
    }

    /// Sets the probability.
    #[must_use]
    pub fn p(mut self, p: f64) -> Self {
        self.p = p;
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

    /// Where the four corners (x, y) come to lie: upper left, upper right, lower right, lower left.
    fn corners(&self, size: Size, rng: &mut Rng) -> [[i64; 2]; 4] {
        let reach = |side: usize| (self.distortion_scale * (side / 2) as f64) as u64;
        let mut near = |side: usize| rng.below(reach(side) + 1) as i64;
        let far = |side: usize, by: i64| side as i64 - 1 - by;
        let (w, h) = (size.width, size.height);
        [
            [near(w), near(h)],
            [far(w, near(w)), near(h)],
            [far(w, near(w)), far(h, near(h))],
            [near(w), far(h, near(h))],
        ]
    }
}

impl fmt::Display for RandomPerspective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Repr::new(f, "RandomPerspective")
            .field("distortion_scale", self.distortion_scale)
            .field("p", self.p)
            .field("interpolation", self.interpolation)
            .field("fill", self.fill)
            .finish()
    }
}

impl Operation for RandomPerspective {
    fn check(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.distortion_scale) {
            let what = format!("distortion_scale is {}; must be 0 to 1", self.distortion_scale);
            return Err(Error::config(what));
        }
        check_probability(self.p)?;
        check_sampling(self.interpolation)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        Takes::Geometry
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        self.fill.check_channels("fill", size.channels)?;
        if !rng.chance(self.p) {
            return Ok(Action::Keep);
        }
        if size.height.min(size.width) < 2 || size.height.max(size.width) > MAX_SIDE {
            let sides = Tuple(&[size.height, size.width]).to_string();
            return Err(impossible(format!(
                "an image of {sides} has no perspective; each side must be 2 to {MAX_SIDE}"
            )));
        }
        let corners = self.corners(size, rng);
        let coefficients = coefficients(size, corners).ok_or_else(|| {
            impossible(format!(
                "the corners of an image of {} were to come to lie at (x, y) {}, where no perspective leads",
                Tuple(&[size.height, size.width]),
                Tuple(&corners.map(|[x, y]| (x, y)))
            ))
            .with_hint("distortion_scale up to 0.5 has one for every draw")
        })?;
        Ok(Action::Image(Arc::new(Perspective {
            coefficients,
            sampling: sampling(self.interpolation),
            fill: self.fill,
        })))
    }
}

/// Greatest side for which what [`coefficients`] counts with fits 128 bits.
const MAX_SIDE: usize = 1 << 20;

/// The map from where the corners of an image come to lie to where they were, as torchvision's
/// `_get_perspective_coeffs` has it: rounded to float32. `None` if there is none.
///
/// torchvision solves a system of eight equations; this is its solution in whole numbers (Heckbert, "Fundamentals of
/// texture mapping", 1989, section 2.2.3), divided at the end. Where the solution is 0, torchvision's is some 1e-15.
fn coefficients(size: Size, corners: [[i64; 2]; 4]) -> Option<[f64; 8]> {
    let [[x0, y0], [x1, y1], [x2, y2], [x3, y3]] = corners.map(|corner| corner.map(i128::from));
    let collinear = |[[ax, ay], [bx, by], [cx, cy]]: [[i64; 2]; 3]| {
        i128::from(bx - ax) * i128::from(cy - ay) == i128::from(by - ay) * i128::from(cx - ax)
    };
    if (0..4).any(|i| collinear([corners[i], corners[(i + 1) % 4], corners[(i + 2) % 4]])) {
        return None;
    }
    // From the unit square to the corners: (A x + B y + x0 N) / (G x + H y + N) and the same with D, E, y0.
    let ([dx1, dx2], [dy1, dy2]) = ([x1 - x2, x3 - x2], [y1 - y2, y3 - y2]);
    let (sx, sy) = (x0 - x1 + x2 - x3, y0 - y1 + y2 - y3);
    let n = dx1 * dy2 - dx2 * dy1;
    let (g, h) = (sx * dy2 - dx2 * sy, dx1 * sy - sx * dy1);
    let (a, b) = ((x1 - x0) * n + g * x1, (x3 - x0) * n + h * x3);
    let (d, e) = ((y1 - y0) * n + g * y1, (y3 - y0) * n + h * y3);
    // And back: the adjugate.
    let last = a * e - b * d;
    let [w, h_] = [size.width, size.height].map(|side| (side - 1) as f64);
    if last == 0 {
        return None;
    }
    let share = |scale: f64, numerator: i128| f64::from((scale * numerator as f64 / last as f64) as f32);
    let coefficients = [
        share(w, n * (e - y0 * h)),
        share(w, n * (x0 * h - b)),
        share(w, n * (b * y0 - x0 * e)),
        share(h_, n * (y0 * g - d)),
        share(h_, n * (a - x0 * g)),
        share(h_, n * (x0 * d - a * y0)),
        share(1.0, d * h - e * g),
        share(1.0, b * g - a * h),
    ];
    // Boxes and points are moved by the inverse, which is divided by this.
    (coefficients[0] * coefficients[4] != coefficients[1] * coefficients[3]).then_some(coefficients)
}

/// A drawn perspective.
#[derive(Debug)]
struct Perspective {
    /// Of the map from output to source; see [`perspective`].
    coefficients: [f64; 8],
    sampling: Sampling,
    /// Value of what comes in from outside.
    fill: PerChannel,
}

impl ImageAction for Perspective {
    fn memory(&self, input: Size) -> usize {
        elements(input)
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let sides @ (height, width) = (image.height(), image.width());
        let channels = image.channels();
        if height == 0 || width == 0 {
            return Ok(());
        }
        // Pillow interpolates images with alpha premultiplied.
        let alpha = matches!(channels, 2 | 4) && self.sampling != Sampling::Nearest;
        if alpha {
            premultiply(image);
        }
        let fill = self.fill.bytes(channels);
        perspective(image.view(), &self.coefficients, self.sampling, fill, sides, &mut memory.spare)?;
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
        let (coefficients, sampling) = (self.coefficients, Sampling::Nearest);
        Ok(Some(Arc::new(Self { coefficients, sampling, fill: fill(&self.fill)? })))
    }

    fn moves(&self, _canvas: Size) -> Option<PointMove> {
        let [a, b, c, d, e, f, g, h] = self.coefficients;
        let scale = a * e - b * d;
        // torchvision's `_compute_perspective_thetas`; in float32 from here on.
        let [a, b, c, d, e, f, g, h] = [
            e - f * h,
            -b + c * h,
            b * f - c * e,
            -d + f * g,
            a - c * g,
            -a * f + c * d,
            -e * g + d * h,
            -a * h + b * g,
        ]
        .map(|x| (x / scale) as f32);
        Some(Box::new(move |[x, y]| {
            let depth = x * g + y * h + 1.0;
            [(x * a + y * b + c) / depth, (x * d + y * e + f) / depth]
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn corners_move_inwards_by_uniform_numbers() {
        let perspective = RandomPerspective::new(0.5);
        let drawn: Vec<_> =
            (0..20_000).map(|index| perspective.corners(size(81, 40), &mut rng(index))).collect();
        // Up to 10 of 40 columns, and up to 20 of 81 rows.
        for (corner, [left, top]) in
            [[true, true], [false, true], [false, false], [true, false]].iter().enumerate()
        {
            let (mut across, mut down) = ([0; 11], [0; 21]);
            for corners in &drawn {
                let [x, y] = corners[corner];
                across[if *left { x } else { 39 - x } as usize] += 1;
                down[if *top { y } else { 80 - y } as usize] += 1;
            }
            assert_uniform_counts(&across);
            assert_uniform_counts(&down);
        }
    }

    #[test]
    fn corners_come_from_where_they_were() {
        let map = |c: [f64; 8], [x, y]: [f64; 2]| {
            let depth = c[6] * x + c[7] * y + 1.0;
            [(c[0] * x + c[1] * y + c[2]) / depth, (c[3] * x + c[4] * y + c[5]) / depth]
        };
        for index in 0..200 {
            let canvas = size(90, 70);
            let corners = RandomPerspective::new(0.8).corners(canvas, &mut rng(index));
            let found = coefficients(canvas, corners).unwrap();
            for (corner, from) in corners.iter().zip([[0.0, 0.0], [69.0, 0.0], [69.0, 89.0], [0.0, 89.0]]) {
                let [x, y] = map(found, corner.map(|v| v as f64));
                assert!((x - from[0]).abs() < 1e-3 && (y - from[1]).abs() < 1e-3, "{corners:?} {x} {y}");
                // And points follow.
                let perspective =
                    Perspective { coefficients: found, sampling: Sampling::Nearest, fill: 0.0.into() };
                let [x, y] = perspective.moves(canvas).unwrap()(from.map(|v| v as f32));
                assert!((x - corner[0] as f32).abs() < 1e-2 && (y - corner[1] as f32).abs() < 1e-2);
            }
        }
    }

    #[test]
    fn coefficients_are_torchvisions() {
        // torchvision 0.29: _get_perspective_coeffs(corners of (50, 100), [[3, 8], [90, 1], [77, 40], [10, 45]])
        let found = coefficients(size(50, 100), [[3, 8], [90, 1], [77, 40], [10, 45]]).unwrap();
        let theirs = [
            1.0820637,
            -0.20471475,
            -1.608473,
            0.077143304,
            0.958781,
            -7.901678,
            -0.0003200331,
            -0.005817815,
        ];
        assert_eq!(found, theirs.map(|c: f32| f64::from(c)));
        let still = [[0, 0], [99, 0], [99, 49], [0, 49]];
        assert_eq!(coefficients(size(50, 100), still), Some([1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]));
    }

    #[test]
    fn the_largest_sides_do_not_overflow() {
        let side = MAX_SIDE as i64 - 1;
        let half = side / 2;
        let corners = [[half, 0], [side - half + 1, half], [side, side - half], [0, side]];
        assert!(coefficients(size(MAX_SIDE, MAX_SIDE), corners).is_some());
        let corners = [[half, half], [side, 0], [side - half, side], [0, side - half]];
        assert!(coefficients(size(MAX_SIDE, MAX_SIDE), corners).is_some());
    }

    #[test]
    fn corners_on_one_line_are_an_error_with_their_places() {
        // With 2 columns and the greatest distortion both upper corners may come to lie in one place.
        let all = RandomPerspective::new(1.0).p(1.0);
        let e = (0..100).find_map(|i| all.draw(size(2, 2), &mut rng(i)).err()).unwrap();
        assert!(e.message().starts_with("the corners of an image of (2, 2) were to come to lie at"), "{e}");
        let e = RandomPerspective::default().p(1.0).draw(size(1, 9), &mut rng(0)).unwrap_err();
        assert!(e.message().contains("(1, 9)"), "{e}");
        assert!(RandomPerspective::default().p(0.0).draw(size(1, 9), &mut rng(0)).is_ok());
        for index in 0..2000 {
            RandomPerspective::new(0.5).p(1.0).draw(size(4, 2), &mut rng(index)).unwrap();
        }
    }

    #[test]
    fn it_happens_with_probability_p() {
        for p in [0.0, 0.3, 1.0] {
            let hits = draws(RandomPerspective::new(0.5).p(p), size(40, 40), 20_000)
                .filter(|action| *action != Action::Keep)
                .count();
            assert_probability(hits, 20_000, p);
        }
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(RandomPerspective::new(1.5)), "distortion_scale is 1.5; must be 0 to 1");
        assert_eq!(check_error(RandomPerspective::new(f64::NAN)), "distortion_scale is NaN; must be 0 to 1");
        assert!(check_error(RandomPerspective::default().p(-1.0)).starts_with("p is -1"));
        let lanczos = RandomPerspective::default().interpolation(Interpolation::Lanczos);
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
        let gray = Size { channels: 1, ..size(9, 9) };
        assert!(RandomPerspective::default().fill([1.0; 3]).draw(gray, &mut rng(0)).is_err());
        assert_eq!(
            read(r#"{"type":"RandomPerspective","interpolation":"nearest"}"#).to_string(),
            "RandomPerspective(distortion_scale=0.5, p=0.5, interpolation=nearest, fill=0)"
        );
    }
}
