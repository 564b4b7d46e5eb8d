//! `ElasticTransform`: moves every pixel by smooth noise.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use wellfed_kernels::{
    image::Image,
    tensor::{
        Api,
        elastic::{Field, displace},
        grid::{Mode, Rule},
    },
};

use super::{
    Action, Class, ImageAction, ImageMemory, Interpolation, Operation, PerChannel, PointMove, Shape, Size,
    Takes,
    param::{Repr, Tuple, impossible, numbers},
};
use crate::{
    Error, Result,
    rng::{Rng, philox4x32},
};

/// Moves every pixel by noise that is blurred by a Gaussian. The size stays.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ElasticTransform {
    /// Strength along x and y; one number for both. Default: 50.
    #[serde(deserialize_with = "both")]
    pub alpha: [f64; 2],
    /// Standard deviations of the blur along x and y, in pixels: both above 0, or both 0 for none. Default: 5.
    #[serde(deserialize_with = "both")]
    pub sigma: [f64; 2],
    /// Filter: nearest or bilinear. Default: bilinear.
    pub interpolation: Interpolation,
    /// Value of what comes in from outside; `None` is black, into which the image fades. Default: 0.
    pub fill: Option<PerChannel>,
}

fn both<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 2], D::Error> {
    let allowed = "must be one number, or (x, y)";
    match numbers::<f64, D>(deserializer, &[1, 2], allowed)?[..] {
        [one] => Ok([one, one]),
        [x, y] => Ok([x, y]),
        _ => Err(D::Error::custom(allowed)),
    }
}

impl Default for ElasticTransform {
    fn default() -> Self {
        Self {
            alpha: [50.0; 2],
            sigma: [5.0; 2],
            interpolation: Interpolation::Bilinear,
            fill: Some(PerChannel::default()),
        }
    }
}

impl ElasticTransform {
    /// Of strength 50 and a deviation of 5 pixels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the strength along x and y.
    #[must_use]
    pub fn alpha(mut self, alpha: [f64; 2]) -> Self {
        self.alpha = alpha;
        self
    }

    /// Sets the standard deviations along x and y.
    #[must_use]
    pub fn sigma(mut self, sigma: [f64; 2]) -> Self {
        self.sigma = sigma;
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
        self.fill = Some(fill.into());
        self
    }
}

impl fmt::Display for ElasticTransform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let repr = Repr::new(f, "ElasticTransform")
            .field("alpha", Tuple(&self.alpha))
            .field("sigma", Tuple(&self.sigma))
            .field("interpolation", self.interpolation);
        match self.fill {
            Some(fill) => repr.field("fill", fill),
            None => repr.field("fill", "None"),
        }
        .finish()
    }
}

impl Operation for ElasticTransform {
    fn check(&self) -> Result<()> {
        if !self.alpha.iter().all(|alpha| alpha.is_finite()) {
            let what = format!("alpha is {}; both numbers must be finite", Tuple(&self.alpha));
            return Err(Error::config(what));
        }
        let blurs = self.sigma.iter().all(|sigma| *sigma > 0.0 && sigma.is_finite());
        if !blurs && self.sigma != [0.0; 2] {
            let what = format!("sigma is {}; both numbers must be above 0, or both 0", Tuple(&self.sigma));
            return Err(Error::config(what));
        }
        if !matches!(self.interpolation, Interpolation::Nearest | Interpolation::Bilinear) {
            let what = format!("interpolation is {}; must be nearest or bilinear", self.interpolation);
            return Err(Error::config(what));
        }
        self.fill.map_or(Ok(()), |fill| fill.check("fill"))
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
        self.fill.map_or(Ok(()), |fill| fill.check_channels("fill", size.channels))?;
        let elastic = Elastic { elastic: *self, seed: rng.next_u64() };
        // The border of the noise is mirrored without repeating its pixel, so half a kernel must fit into it.
        if !elastic.field(size).fits() {
            return Err(impossible(format!(
                "sigma {} needs an image of more than {} pixels a side, this one is {}",
                Tuple(&self.sigma),
                (4.0 * self.sigma[0].max(self.sigma[1])) as u64,
                Tuple(&[size.height, size.width])
            )));
        }
        Ok(Action::Image(Arc::new(elastic)))
    }
}

/// A drawn displacement: it is made again for every field that follows it.
#[derive(Clone, Debug)]
struct Elastic {
    elastic: ElasticTransform,
    /// Key of the noise.
    seed: u64,
}

impl Elastic {
    fn field(&self, size: Size) -> Field<impl Fn(usize, usize, usize) -> [f32; 4] + use<>> {
        let key = [self.seed as u32, (self.seed >> 32) as u32];
        let noise = move |axis: usize, row: usize, four: usize| {
            // 24 random bits, as torch.rand has; then from 0..1 to -1..1.
            philox4x32([four as u32, row as u32, axis as u32, 0], key)
                .map(|word| (word >> 8) as f32 * (1.0 / (1 << 24) as f32) * 2.0 - 1.0)
        };
        let ElasticTransform { alpha, sigma, .. } = self.elastic;
        Field { size: (size.height, size.width), alpha, sigma, noise }
    }

    /// How points move: those of a place beside which `pixel` finds a whole pixel.
    fn follow(&self, canvas: Size, pixel: fn(f32) -> f32) -> PointMove {
        let field = self.field(canvas);
        let sides = [canvas.width, canvas.height];
        Box::new(move |point| {
            if sides.contains(&0) {
                return point;
            }
            let [column, row] = [0, 1].map(|i| (pixel(point[i]) as usize).min(sides[i] - 1));
            let (still, moved) = (field.still(row, column), field.at(row, column));
            // torchvision takes the displacement of the place where a point was for that of the place where it comes to lie.
            [0, 1].map(|i| (still[i] - moved[i] + 1.0) * (0.5 * sides[i] as f32) - 0.5)
        })
    }
}

impl ImageAction for Elastic {
    fn memory(&self, input: Size) -> usize {
        // A second image, and the displacements.
        let floats = self.field(input).memory();
        super::image_action::elements(input).saturating_add(floats.saturating_mul(4))
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
        if size.height == 0 || size.width == 0 {
            return Ok(());
        }
        let fill = self.elastic.fill.map(|fill| fill.bytes(size.channels).map(f32::from));
        let mode = match self.elastic.interpolation {
            Interpolation::Bilinear => Mode::Bilinear,
            _ => Mode::Nearest,
        };
        let moved = self.field(size).fill(&mut memory.floats)?;
        displace(image.view(), moved, Rule { mode, fill, api: Api::V2 }, &mut memory.spare)?;
        std::mem::swap(image, &mut memory.spare);
        Ok(())
    }

    fn for_mask(
        &self,
        fill: &dyn Fn(&PerChannel) -> Result<PerChannel>,
    ) -> Result<Option<Arc<dyn ImageAction>>> {
        let fill = self.elastic.fill.map(|value| fill(&value)).transpose()?;
        let elastic = ElasticTransform { interpolation: Interpolation::Nearest, fill, ..self.elastic };
        Ok(Some(Arc::new(Self { elastic, seed: self.seed })))
    }

    fn moves(&self, canvas: Size) -> Option<PointMove> {
        Some(self.follow(canvas, f32::trunc))
    }

    fn moves_corners(&self, canvas: Size) -> Option<PointMove> {
        Some(self.follow(canvas, f32::ceil))
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    fn drawn(elastic: ElasticTransform, index: u64) -> Elastic {
        Elastic { elastic, seed: rng(index).next_u64() }
    }

    #[test]
    fn noise_is_uniform_and_differs_from_place_to_place_and_axis_to_axis() {
        let field = drawn(ElasticTransform::new(), 3).field(size(90, 110));
        let all: Vec<f64> = (0..2 * 90 * 110)
            .map(|i| f64::from((field.noise)(i / 9900, i / 110 % 90, i % 110 / 4)[i % 110 % 4]))
            .collect();
        assert_uniform(all.iter().copied(), -1.0, 1.0);
        let mut different = all.clone();
        different.sort_by(f64::total_cmp);
        different.dedup();
        // Of 19,800 numbers of 24 bits, some 12 pairs are equal.
        assert!(all.len() - different.len() < 40);
        let other = drawn(ElasticTransform::new(), 4).field(size(90, 110));
        assert_ne!((field.noise)(0, 0, 0), (other.noise)(0, 0, 0));
    }

    #[test]
    fn pixels_points_and_corners_move_alike() {
        // A single white pixel in black: where it was, the points that follow it lie near what is left of it.
        let elastic = drawn(ElasticTransform::new().alpha([10.0, 15.0]).sigma([2.0, 3.0]), 1);
        let canvas = Size { channels: 1, ..size(40, 50) };
        for (row, column) in [(20, 25), (13, 31), (30, 12)] {
            let mut image = Image::new();
            let pixels = image.reshape(40, 50, 1).unwrap();
            pixels.fill(0);
            pixels[row * 50 + column] = 255;
            elastic.run(&mut image, &mut ImageMemory::default()).unwrap();
            let (mut mass, mut middle) = (0.0, [0.0; 2]);
            for (i, &v) in image.pixels().iter().enumerate() {
                mass += f64::from(v);
                middle[0] += f64::from(v) * (i % 50) as f64;
                middle[1] += f64::from(v) * (i / 50) as f64;
            }
            for moves in [elastic.moves(canvas), elastic.moves_corners(canvas)] {
                let [x, y] = moves.unwrap()([column as f32, row as f32]).map(f64::from);
                assert!((x - middle[0] / mass).abs() < 0.8 && (y - middle[1] / mass).abs() < 0.8);
            }
        }
        let moves = |corner: bool, point| {
            let moves = if corner { elastic.moves_corners(canvas) } else { elastic.moves(canvas) };
            moves.unwrap()(point)
        };
        assert_eq!(moves(true, [9.2, 4.7]), moves(false, [10.9, 5.1]));
        assert_eq!(moves(true, [99.0, -4.7]), moves(false, [49.0, 0.0]));
    }

    #[test]
    fn a_mask_moves_with_its_image() {
        let elastic = drawn(ElasticTransform::new().interpolation(Interpolation::Nearest).fill(7.0), 2);
        let mask = elastic.for_mask(&|fill| Ok(*fill)).unwrap().unwrap();
        let run = |action: &dyn ImageAction| {
            let mut image = Image::new();
            let pixels: Vec<u8> = (0..40 * 50).map(|i| (i % 251) as u8).collect();
            image.reshape(40, 50, 1).unwrap().copy_from_slice(&pixels);
            action.run(&mut image, &mut ImageMemory::default()).unwrap();
            image.pixels().to_vec()
        };
        assert_eq!(run(&elastic), run(&*mask));
    }

    #[test]
    fn parameters_are_checked() {
        let blur = |sigma| ElasticTransform::new().sigma(sigma);
        assert_eq!(
            check_error(blur([0.0, 1.0])),
            "sigma is (0.0, 1.0); both numbers must be above 0, or both 0"
        );
        assert!(check_error(blur([-1.0, 1.0])).starts_with("sigma is (-1.0, 1.0)"));
        assert!(blur([0.0; 2]).check().is_ok());
        assert!(
            check_error(ElasticTransform::new().alpha([f64::NAN, 1.0])).starts_with("alpha is (NaN, 1.0)")
        );
        let cubic = ElasticTransform::new().interpolation(Interpolation::Bicubic);
        assert_eq!(check_error(cubic), "interpolation is bicubic; must be nearest or bilinear");
        let e = ElasticTransform::new().draw(size(20, 90), &mut rng(0)).unwrap_err();
        assert_eq!(
            e.message(),
            "sigma (5.0, 5.0) needs an image of more than 20 pixels a side, this one is (20, 90)"
        );
        assert!(ElasticTransform::new().draw(size(21, 90), &mut rng(0)).is_ok());
        assert!(blur([1e300; 2]).draw(size(21, 90), &mut rng(0)).is_err());
        let gray = Size { channels: 1, ..size(30, 30) };
        assert!(ElasticTransform::new().fill([1.0; 3]).draw(gray, &mut rng(0)).is_err());
        assert_eq!(
            read(r#"{"type":"ElasticTransform","alpha":3,"fill":null}"#).to_string(),
            "ElasticTransform(alpha=(3.0, 3.0), sigma=(5.0, 5.0), interpolation=bilinear, fill=None)"
        );
        assert_eq!(read(r#"{"type":"ElasticTransform"}"#), ElasticTransform::new().into());
    }
}
