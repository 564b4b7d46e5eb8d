//! Keras' random layers on images: what they draw, and what [`super::TfOp`] each of them becomes for an image.

use std::fmt;

use serde::{Deserialize, Serialize};
use wellfed_kernels::tensorflow::{Fill, Warp};

use super::{Size, TfOp, TfResize};
use crate::{Error, Result, rng::Rng};

/// What lies outside of an image, named as Keras' `fill_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs, reason = "the names are Keras'")]
pub enum TfFillMode {
    Reflect,
    Wrap,
    Constant,
    Nearest,
}

/// How pixels between pixels, and outside of the image, are read.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TfSampling {
    /// Between four neighbours; else the nearest one.
    pub bilinear: bool,
    /// What lies outside.
    pub fill_mode: TfFillMode,
    /// With [`TfFillMode::Constant`].
    pub fill_value: f32,
}

impl TfSampling {
    /// # Errors
    /// `Config` for a value that is not finite.
    pub(super) fn check(&self) -> Result<()> {
        check_span("fill_value", [self.fill_value; 2])
    }

    fn method(&self) -> &'static str {
        if self.bilinear { "bilinear" } else { "nearest" }
    }

    /// What the kernel is given for the pixels that `matrix` finds.
    pub(crate) fn warp(&self, matrix: [f32; 6]) -> Warp {
        let fill = match self.fill_mode {
            TfFillMode::Reflect => Fill::Reflect,
            TfFillMode::Wrap => Fill::Wrap,
            TfFillMode::Constant => Fill::Constant,
            TfFillMode::Nearest => Fill::Nearest,
        };
        Warp { matrix, bilinear: self.bilinear, fill, value: self.fill_value }
    }
}

impl fmt::Display for TfSampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fill = match self.fill_mode {
            TfFillMode::Reflect => "reflect",
            TfFillMode::Wrap => "wrap",
            TfFillMode::Constant => return write!(f, "({}, fill {})", self.method(), self.fill_value),
            TfFillMode::Nearest => "nearest",
        };
        write!(f, "({}, fill {fill})", self.method())
    }
}

/// A number that is drawn, in float32, as TensorFlow scales it.
pub(super) fn drawn(rng: &mut Rng, [low, high]: [f32; 2]) -> f32 {
    rng.unit_single() * (high - low) + low
}

/// The matrix of `RandomRotation`, with Keras' steps. Sine and cosine are rounded from float64.
pub(super) fn rotation(degrees: f32, size: Size) -> [f32; 6] {
    let (sin, cos) = f64::from(degrees * (std::f64::consts::PI / 180.0) as f32).sin_cos();
    let (sin, cos) = (sin as f32, cos as f32);
    let (x, y) = (0.5 * (size.width as f32 - 1.0), 0.5 * (size.height as f32 - 1.0));
    [cos, -sin, x - x * cos - y * -sin, sin, cos, y - x * sin - y * cos]
}

/// The matrix of `RandomZoom`.
pub(super) fn zoom([height, width]: [f32; 2], size: Size) -> [f32; 6] {
    let offset = |side: usize, zoom: f32| (side as f32 - 1.0) / 2.0 * (1.0 - zoom);
    [width, 0.0, offset(size.width, width), 0.0, height, offset(size.height, height)]
}

/// The matrix of `RandomTranslation`, by parts of the sides.
pub(super) fn translation([height, width]: [f32; 2], size: Size) -> [f32; 6] {
    [1.0, 0.0, -(width * size.width as f32), 0.0, 1.0, -(height * size.height as f32)]
}

/// The largest centre of an image with the aspect of `target`: top, left, height and width. `single` computes as Keras does
/// it in graphs and `ops.image.resize`; else as in Python.
pub(super) fn centre(size: Size, [height, width]: [usize; 2], single: bool) -> [usize; 4] {
    let side = |product: usize, other: usize| {
        if single {
            (product as f32 / other as f32) as usize
        } else {
            (product as f64 / other as f64) as usize
        }
    };
    let rows = side(size.width * height, width).min(size.height).max(1);
    let columns = side(size.height * width, height).min(size.width).max(1);
    [(size.height - rows) / 2, (size.width - columns) / 2, rows, columns]
}

/// `keras.layers.CenterCrop`: the centre, or as much of it as there is, made larger.
pub(super) fn centre_crop(size: Size, [height, width]: [usize; 2], settled: &mut Vec<TfOp>) {
    if size.height >= height && size.width >= width {
        let (top, left) = ((size.height - height) / 2, (size.width - width) / 2);
        settled.push(TfOp::Crop { top, left, height, width });
        settled.push(FLOATS);
        return;
    }
    let [top, left, rows, columns] = centre(size, [height, width], false);
    settled.push(TfOp::Crop { top, left, height: rows, width: columns });
    settled.push(bilinear([height, width]));
}

/// `keras.layers.RandomCrop`: a place is drawn where there is room on both sides. Else it begins where the centre of the
/// target's aspect does, and what is less than the target is made larger.
pub(super) fn random_crop(size: Size, [height, width]: [usize; 2], rng: &mut Rng, settled: &mut Vec<TfOp>) {
    let mut place = |room: usize| rng.below(room as u64 + 1) as usize;
    let [top, left] = if size.height > height && size.width > width {
        [place(size.height - height), place(size.width - width)]
    } else {
        let [top, left, ..] = centre(size, [height, width], false);
        [top, left]
    };
    let (rows, columns) = (height.min(size.height - top), width.min(size.width - left));
    settled.push(TfOp::Crop { top, left, height: rows, width: columns });
    settled.push(if (rows, columns) == (height, width) { FLOATS } else { bilinear([height, width]) });
}

const FLOATS: TfOp = TfOp::Cast { dtype: super::ImageDtype::Float32 };

fn bilinear(size: [usize; 2]) -> TfOp {
    TfOp::Resize { method: TfResize::Bilinear, size, antialias: false }
}

/// Refuses numbers that are not finite, and ranges that end before they begin.
pub(super) fn check_span(what: &str, [low, high]: [f32; 2]) -> Result<()> {
    if low.is_finite() && high.is_finite() && low <= high && (high - low).is_finite() {
        return Ok(());
    }
    Err(Error::config(format!(
        "{what} is from {low} to {high}; these must be finite, the first not above the second"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transform::{
        Action, TensorFlowOps,
        testing::{assert_probability, assert_uniform, check_error, draws, rng, size},
    };

    const SAMPLING: TfSampling =
        TfSampling { bilinear: true, fill_mode: TfFillMode::Reflect, fill_value: 0.0 };

    /// What 4,000 draws of a layer give for an image of 10 x 20.
    fn settled(op: TfOp) -> Vec<TfOp> {
        let one = |action| match action {
            Action::TensorFlow(ops) => ops[0].clone(),
            other => panic!("{other:?}"),
        };
        draws(TensorFlowOps::new(vec![op]), size(10, 20), 4000).map(one).collect()
    }

    fn matrices(op: TfOp) -> Vec<[f64; 6]> {
        let one = |op| match op {
            TfOp::Affine { matrix, .. } => matrix.map(f64::from),
            other => panic!("{other:?}"),
        };
        settled(op).into_iter().map(one).collect()
    }

    #[test]
    fn draws_are_uniform() {
        let turns = matrices(TfOp::RandomRotation { degrees: [-30.0, 60.0], sampling: SAMPLING });
        assert_uniform(turns.iter().map(|m| m[3].atan2(m[0]).to_degrees()), -30.0001, 60.0001);

        let zooms =
            matrices(TfOp::RandomZoom { height: [0.8, 1.4], width: Some([0.5, 1.0]), sampling: SAMPLING });
        assert_uniform(zooms.iter().map(|m| m[4]), 0.799_999, 1.400_001);
        assert_uniform(zooms.iter().map(|m| m[0]), 0.5, 1.0);
        // Each side by a draw of its own: their ranks differ.
        assert_uniform(zooms.iter().map(|m| ((m[4] - 0.8) / 0.6 + (m[0] - 0.5) / 0.5).fract()), 0.0, 1.0);
        let same = matrices(TfOp::RandomZoom { height: [0.8, 1.4], width: None, sampling: SAMPLING });
        assert!(same.iter().all(|m| m[0] == m[4]));

        let shifts =
            matrices(TfOp::RandomTranslation { height: [-0.5, 0.0], width: [0.1, 0.4], sampling: SAMPLING });
        assert_uniform(shifts.iter().map(|m| -m[5]), -5.0, 0.0);
        assert_uniform(shifts.iter().map(|m| -m[2]), 1.999_999, 8.000_001);

        let range = [-1.0, 1.0];
        let factors = settled(TfOp::RandomContrastLayer { factor: [0.5, 1.5], range });
        assert_uniform(
            factors.into_iter().map(|op| match op {
                TfOp::Contrast { factor, .. } => f64::from(factor),
                other => panic!("{other:?}"),
            }),
            0.5,
            1.5,
        );
        let deltas = settled(TfOp::RandomBrightnessLayer { factor: [-0.25, 0.5], range });
        assert_uniform(
            deltas.into_iter().map(|op| match op {
                TfOp::Brightness { delta, .. } => f64::from(delta),
                other => panic!("{other:?}"),
            }),
            -0.5,
            1.0,
        );
        let flips = settled(TfOp::RandomFlipBoth);
        let both = TfOp::Flip { horizontal: true, vertical: true };
        assert!(
            flips.iter().all(|op| *op == both || *op == TfOp::Flip { horizontal: false, vertical: false })
        );
        assert_probability(flips.iter().filter(|&op| *op == both).count(), 4000, 0.5);
    }

    #[test]
    fn impossible_layers_are_refused() {
        let error = |op| check_error(TensorFlowOps::new(vec![op]));
        let found = error(TfOp::RandomRotation { degrees: [3.0, 1.0], sampling: SAMPLING });
        assert!(found.contains("degrees is from 3 to 1"), "{found}");
        let sampling = TfSampling { fill_value: f32::NAN, ..SAMPLING };
        assert!(error(TfOp::Affine { matrix: [0.0; 6], sampling }).contains("fill_value"));
        let found = error(TfOp::RandomContrastLayer { factor: [0.0, 1.0], range: [1.0, 0.0] });
        assert!(found.contains("range is from 1 to 0"), "{found}");
    }

    /// The place that a matrix finds for a pixel.
    fn place([a, b, c, d, e, f]: [f32; 6], x: f32, y: f32) -> [f32; 2] {
        [a * x + b * y + c, d * x + e * y + f]
    }

    #[test]
    fn matrices_leave_the_centre_in_place() {
        for matrix in [rotation(37.0, size(9, 13)), zoom([0.7, 1.3], size(9, 13))] {
            let [x, y] = place(matrix, 6.0, 4.0);
            assert!((x - 6.0).abs() < 1e-5 && (y - 4.0).abs() < 1e-5, "{matrix:?}");
        }
        let [x, y] = place(rotation(90.0, size(9, 9)), 8.0, 4.0);
        assert!((x - 4.0).abs() < 1e-5 && (y - 8.0).abs() < 1e-5, "({x}, {y})");
        assert_eq!(place(translation([0.5, -0.25], size(8, 8)), 0.0, 0.0), [2.0, -4.0]);
    }

    #[test]
    fn crops_are_keras() {
        let settled = |height, width, target| {
            let mut ops = Vec::new();
            centre_crop(size(height, width), target, &mut ops);
            ops
        };
        let crop = |top, left, height, width| TfOp::Crop { top, left, height, width };
        assert_eq!(settled(7, 10, [4, 5]), [crop(1, 2, 4, 5), FLOATS]);
        assert_eq!(settled(7, 10, [8, 4]), [crop(0, 3, 7, 3), bilinear([8, 4])]);
        let random = |height, width, target| {
            let mut ops = Vec::new();
            random_crop(size(height, width), target, &mut rng(3), &mut ops);
            ops
        };
        // No room on one side: nothing is drawn.
        assert_eq!(random(7, 10, [7, 5]), [crop(0, 2, 7, 5), FLOATS]);
        assert_eq!(random(4, 10, [8, 8]), [crop(0, 3, 4, 7), bilinear([8, 8])]);
        let [TfOp::Crop { top, left, height: 3, width: 4 }, _] = random(5, 6, [3, 4])[..] else { panic!() };
        assert!(top <= 2 && left <= 2);
    }

    #[test]
    fn ranges_are_checked() {
        check_span("factor", [0.5, 0.5]).unwrap();
        for wrong in [[1.0, 0.0], [f32::NAN, 1.0], [f32::MIN, f32::MAX]] {
            assert!(check_span("factor", wrong).is_err(), "{wrong:?}");
        }
    }
}
