//! `AugMix`: a weighted sum of the image and of several chains of operations on it.
//!
//! torchvision turns Pillow images into tensors here, and its operations on tensors give other values than those on Pillow
//! images: they are those of [`wellfed_kernels::tensor`].

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{
    image::Image,
    tables,
    tensor::{
        self, Api,
        grid::{Mode, Rule},
    },
};

use super::{
    Action, Class, ImageAction, ImageMemory, Interpolation, Operation, PerChannel, Shape, Size, Takes,
    adjustment::check_channels,
    augment::{Op, linspace},
    image_action::elements,
    mixing::log_gamma,
    param::Repr,
    random_affine::Affine,
};
use crate::{Error, Result, rng::Rng};

/// Mixes the image with `mixture_width` chains of 1 to 3 operations on it, with random weights: Hendrycks et al., "AugMix"
/// (2020), as torchvision has it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugMix {
    /// How many of the ten magnitudes of every operation there are to choose from, weakest first: 1 to 10. Default: 3.
    pub severity: usize,
    /// How many chains: 1 to 100. Default: 3.
    pub mixture_width: usize,
    /// Operations of a chain, up to 100; none or fewer draws 1 to 3 for each chain. Default: -1.
    pub chain_depth: i64,
    /// Parameter of the distributions of weights, above 0. Default: 1.
    pub alpha: f64,
    /// Whether brightness, color, contrast and sharpness are among the operations. Default: true.
    pub all_ops: bool,
    /// Filter: nearest or bilinear. Default: bilinear.
    pub interpolation: Interpolation,
    /// Value of what comes in from outside; `None` is black, into which the image fades. Default: `None`.
    pub fill: Option<PerChannel>,
    /// Whose arithmetic it is. Default: that of v2.
    #[serde(skip_serializing_if = "Version::is_default")]
    pub version: Version,
}

/// Whose arithmetic [`AugMix`] has: the sums of torchvision's newer functions are rounded less often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    /// Of `torchvision.transforms`.
    V1,
    /// Of `torchvision.transforms.v2`.
    #[default]
    V2,
}

impl Version {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }

    fn api(self) -> Api {
        match self {
            Version::V1 => Api::V1,
            Version::V2 => Api::V2,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::V1 => "v1",
            Version::V2 => "v2",
        })
    }
}

/// What is chosen from; the first nine without `all_ops`.
const CHOICE: [Op; 13] = [
    Op::ShearX,
    Op::ShearY,
    Op::TranslateX,
    Op::TranslateY,
    Op::Rotate,
    Op::Posterize,
    Op::Solarize,
    Op::AutoContrast,
    Op::Equalize,
    Op::Brightness,
    Op::Color,
    Op::Contrast,
    Op::Sharpness,
];

/// How many magnitudes there are.
const MAGNITUDES: usize = 10;

/// Most chains, and most operations in one: what a draw has numbers for.
const MOST: usize = 100;

impl Default for AugMix {
    fn default() -> Self {
        Self {
            severity: 3,
            mixture_width: 3,
            chain_depth: -1,
            alpha: 1.0,
            all_ops: true,
            interpolation: Interpolation::Bilinear,
            fill: None,
            version: Version::default(),
        }
    }
}

impl AugMix {
    /// Three chains of weak operations.
    pub fn new() -> Self {
        Self::default()
    }

    fn mixture(&self, size: Size, rng: &mut Rng) -> Mixture {
        let halves = self.dirichlet(2, rng);
        let (original, rest) = (halves[0], halves[1]);
        let weights = self.dirichlet(self.mixture_width, rng);
        let chains = weights.into_iter().map(|weight| {
            let depth = match usize::try_from(self.chain_depth) {
                Ok(depth) if depth > 0 => depth,
                _ => 1 + rng.below(3) as usize,
            };
            (weight * rest, (0..depth).map(|_| self.op(size, rng)).collect())
        });
        let fill = self.fill.map(|fill| std::array::from_fn(|c| fill.channel(c).clamp(0.0, 255.0) as f32));
        let mode = if self.interpolation == Interpolation::Bilinear { Mode::Bilinear } else { Mode::Nearest };
        Mixture { original, chains: chains.collect(), rule: Rule { mode, fill, api: self.version.api() } }
    }

    /// Weights that add up to one, of the symmetric Dirichlet distribution, in float32 as in torch.
    fn dirichlet(&self, n: usize, rng: &mut Rng) -> Vec<f32> {
        // By logarithms, since all numbers may be too small for a float where alpha is.
        let logs: Vec<f64> = (0..n).map(|_| log_gamma(self.alpha, rng)).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logs.iter().map(|log| (log - most).exp()).sum();
        logs.iter().map(|log| ((log - most).exp() / sum) as f32).collect()
    }

    /// An operation for an image of `size`, with its magnitude.
    fn op(&self, size: Size, rng: &mut Rng) -> (Op, f64) {
        let choice = if self.all_ops { &CHOICE[..] } else { &CHOICE[..9] };
        let op = choice[rng.below(choice.len() as u64) as usize];
        if !op.has_magnitude() {
            return (op, 0.0);
        }
        let bin = rng.below(self.severity as u64) as usize;
        let magnitude = magnitude(op, bin, size, self.version);
        (op, if op.is_signed() && rng.chance(0.5) { -magnitude } else { magnitude })
    }
}

/// Magnitude number `bin` of `op` for an image of `size`, without a sign: torchvision's `AugMix._augmentation_space`.
fn magnitude(op: Op, bin: usize, size: Size, version: Version) -> f64 {
    let up_to = |most: f64| linspace(0.0, most as f32, (bin, MAGNITUDES));
    match op {
        Op::ShearX | Op::ShearY => up_to(0.3),
        Op::TranslateX => up_to(size.width as f64 / 3.0),
        Op::TranslateY => up_to(size.height as f64 / 3.0),
        Op::Rotate => up_to(30.0),
        Op::Brightness | Op::Color | Op::Contrast | Op::Sharpness => up_to(0.9),
        Op::Posterize => f64::from(4.0 - (bin as f32 / 2.25).round_ties_even()),
        // Tensors are compared in float32.
        Op::Solarize if version == Version::V1 => linspace(255.0, 0.0, (bin, MAGNITUDES)),
        Op::Solarize => f64::from((255.0 * linspace(1.0, 0.0, (bin, MAGNITUDES))) as f32),
        Op::Identity | Op::AutoContrast | Op::Equalize | Op::Invert => 0.0,
    }
}

impl fmt::Display for AugMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut repr = Repr::new(f, "AugMix")
            .field("severity", self.severity)
            .field("mixture_width", self.mixture_width)
            .field("chain_depth", self.chain_depth)
            .field("alpha", self.alpha)
            .field("all_ops", super::param::python_bool(self.all_ops))
            .field("interpolation", self.interpolation);
        repr = match self.fill {
            Some(fill) => repr.field("fill", fill),
            None => repr.field("fill", "None"),
        };
        repr.field_if(!self.version.is_default(), "version", self.version).finish()
    }
}

impl Operation for AugMix {
    fn check(&self) -> Result<()> {
        let range = |name: &str, value: i64, least: i64, most: usize| {
            if (least..=most as i64).contains(&value) {
                return Ok(());
            }
            Err(Error::config(format!("{name} is {value}; must be {least} to {most}")))
        };
        range("severity", i64::try_from(self.severity).unwrap_or(i64::MAX), 1, MAGNITUDES)?;
        range("mixture_width", i64::try_from(self.mixture_width).unwrap_or(i64::MAX), 1, MOST)?;
        if self.chain_depth > MOST as i64 {
            let what = format!("chain_depth is {}; must be at most {MOST}", self.chain_depth);
            return Err(Error::config(what));
        }
        if !(self.alpha > 0.0 && self.alpha.is_finite()) {
            return Err(Error::config(format!("alpha is {}; must be above 0", self.alpha)));
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
        Takes::ImagesAlone
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_channels(size)?;
        self.fill.map_or(Ok(()), |fill| fill.check_channels("fill", size.channels))?;
        Ok(Action::Image(Arc::new(self.mixture(size, rng))))
    }
}

/// A drawn sum.
#[derive(Debug)]
struct Mixture {
    /// Weight of the image itself.
    original: f32,
    /// Of every chain its weight, and its operations with their magnitudes.
    chains: Vec<(f32, Vec<(Op, f64)>)>,
    /// How images are sampled, and whose arithmetic it is.
    rule: Rule,
}

impl ImageAction for Mixture {
    fn memory(&self, input: Size) -> usize {
        // Two more images, and one of float32.
        elements(input).saturating_mul(6)
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let ImageMemory { spare, other, floats, .. } = memory;
        let len = image.pixels().len();
        if len == 0 {
            return Ok(());
        }
        floats.clear();
        floats.try_reserve_exact(len).map_err(|_| Error::memory(4 * len, "pixels"))?;
        floats.extend(image.pixels().iter().map(|&v| self.original * f32::from(v)));
        for (weight, operations) in &self.chains {
            other.copy_from(image.view())?;
            for &(op, magnitude) in operations {
                self.apply(op, magnitude, other, spare)?;
            }
            tensor::add_weighted(floats, other.view(), *weight);
        }
        for (to, &sum) in image.pixels_mut().iter_mut().zip(&*floats) {
            *to = sum as u8;
        }
        Ok(())
    }
}

impl Mixture {
    /// torchvision's `_apply_op` on a tensor.
    fn apply(&self, op: Op, magnitude: f64, image: &mut Image, spare: &mut Image) -> Result<()> {
        let size = Size { height: image.height(), width: image.width(), channels: image.channels() };
        let api = self.rule.api;
        let slant = magnitude.atan().to_degrees();
        // Of tensors, centres are counted from the middle.
        let corner = [-0.5 * size.width as f64, -0.5 * size.height as f64];
        let (angle, translate, shear, center) = match op {
            Op::ShearX => (0.0, [0.0; 2], [slant, 0.0], corner),
            Op::ShearY => (0.0, [0.0; 2], [0.0, slant], corner),
            Op::TranslateX => (0.0, [magnitude.trunc(), 0.0], [0.0; 2], [0.0; 2]),
            Op::TranslateY => (0.0, [0.0, magnitude.trunc()], [0.0; 2], [0.0; 2]),
            Op::Rotate => match api {
                Api::V1 => (-magnitude, [0.0; 2], [0.0; 2], [0.0; 2]),
                Api::V2 if magnitude == 0.0 => return Ok(()),
                Api::V2 => (-magnitude.rem_euclid(360.0), [0.0; 2], [0.0; 2], [0.0; 2]),
            },
            _ => {
                let factor = 1.0 + magnitude;
                match op {
                    Op::Brightness => tensor::brightness(image, factor),
                    Op::Color => tensor::saturation(image, factor, api),
                    Op::Contrast => tensor::contrast(image, factor, api),
                    Op::Sharpness => tensor::sharpness(image, factor, api, spare)?,
                    Op::Posterize => tables::posterize(image, magnitude as u32),
                    Op::Solarize => tables::solarize(image, magnitude),
                    Op::AutoContrast => tensor::autocontrast(image, api),
                    Op::Equalize => tables::equalize(image),
                    Op::Invert => tables::invert(image),
                    _ => {}
                }
                return Ok(());
            }
        };
        let matrix = Affine::around(angle, translate, shear, center).inverse(size);
        tensor::grid::affine(image.view(), &matrix, self.rule, spare)?;
        std::mem::swap(image, spare);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::*, *};

    #[test]
    fn chains_operations_magnitudes_and_signs_are_equally_likely() {
        let mix = AugMix { severity: 4, ..AugMix::new() };
        let (mut depths, mut counts, mut bins) = ([0; 3], [0; 13], [0; 4]);
        let (mut negative, mut signed) = (0, 0);
        for index in 0..8_000 {
            let mixture = mix.mixture(size(90, 90), &mut rng(index));
            assert_eq!(mixture.chains.len(), 3);
            for (op, magnitude) in
                mixture.chains.iter().inspect(|c| depths[c.1.len() - 1] += 1).flat_map(|c| &c.1)
            {
                counts[CHOICE.iter().position(|other| other == op).unwrap()] += 1;
                if *op == Op::Rotate {
                    bins[(magnitude.abs() / 30.0 * 9.0).round() as usize] += 1;
                    if *magnitude != 0.0 {
                        signed += 1;
                        negative += usize::from(*magnitude < 0.0);
                    }
                }
            }
        }
        assert_uniform_counts(&depths);
        assert_uniform_counts(&counts);
        assert_uniform_counts(&bins);
        assert_probability(negative, signed, 0.5);
    }

    #[test]
    fn weights_are_of_the_dirichlet_distribution() {
        // Of three weights of alpha 1 each has the distribution function 1 - (1 - x)^2, and that of the image is uniform.
        let mixtures: Vec<Mixture> =
            (0..20_000).map(|index| AugMix::new().mixture(size(9, 9), &mut rng(index))).collect();
        assert_uniform(mixtures.iter().map(|m| f64::from(m.original)), 0.0, 1.0);
        let share = |m: &Mixture| {
            let all: f32 = m.chains.iter().map(|c| c.0).sum();
            assert!((all + m.original - 1.0).abs() < 1e-6);
            1.0 - (1.0 - f64::from(m.chains[1].0 / all)).powi(2)
        };
        assert_uniform(mixtures.iter().map(share), 0.0, 1.0);
        // Weights of a tiny alpha are 0 and 1.
        let tiny = AugMix { alpha: 1e-4, ..AugMix::new() };
        for index in 0..200 {
            let weights = tiny.dirichlet(3, &mut rng(index));
            assert!((weights.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{weights:?}");
        }
    }

    #[test]
    fn without_all_operations_colours_stay_and_depth_is_what_was_asked_for() {
        let mix = AugMix { all_ops: false, chain_depth: 5, mixture_width: 2, ..AugMix::new() };
        for index in 0..200 {
            let mixture = mix.mixture(size(9, 9), &mut rng(index));
            assert!(mixture.chains.iter().all(|chain| chain.1.len() == 5));
            assert!(mixture.chains.iter().flat_map(|c| &c.1).all(|(op, _)| CHOICE[..9].contains(op)));
        }
    }

    #[test]
    fn magnitudes_are_torchvisions() {
        let bits: Vec<f64> =
            (0..10).map(|bin| magnitude(Op::Posterize, bin, size(1, 1), Version::V2)).collect();
        assert_eq!(bits, [4.0, 4.0, 3.0, 3.0, 2.0, 2.0, 1.0, 1.0, 0.0, 0.0]);
        let threshold = |version| magnitude(Op::Solarize, 3, size(1, 1), version);
        assert_eq!([threshold(Version::V1), threshold(Version::V2)], [170.0, 170.0]);
    }

    #[test]
    fn the_sum_is_rounded_as_torch_rounds_it() {
        // torch: (0.3 * x + 0.25 * x + 0.45 * x.bitwise_and(0xF0)).to(torch.uint8) in float32, for 0 to 255.
        let rule = Rule { mode: Mode::Nearest, fill: None, api: Api::V2 };
        let chains = vec![(0.25, vec![(Op::Rotate, 0.0)]), (0.45, vec![(Op::Posterize, 4.0)])];
        let mut image = Image::new();
        image.reshape(16, 16, 1).unwrap().copy_from_slice(&(0..=255).collect::<Vec<u8>>());
        Mixture { original: 0.3, chains, rule }.run(&mut image, &mut ImageMemory::default()).unwrap();
        let sum: u64 = (1u64..).zip(image.pixels()).map(|(place, &v)| place * u64::from(v)).sum();
        assert_eq!(sum, 5464416);
    }

    #[test]
    fn parameters_are_checked() {
        assert_eq!(check_error(AugMix { severity: 11, ..AugMix::new() }), "severity is 11; must be 1 to 10");
        let none = AugMix { mixture_width: 0, ..AugMix::new() };
        assert_eq!(check_error(none), "mixture_width is 0; must be 1 to 100");
        let deep = AugMix { chain_depth: 101, ..AugMix::new() };
        assert_eq!(check_error(deep), "chain_depth is 101; must be at most 100");
        assert_eq!(check_error(AugMix { alpha: 0.0, ..AugMix::new() }), "alpha is 0; must be above 0");
        let cubic = AugMix { interpolation: Interpolation::Bicubic, ..AugMix::new() };
        assert_eq!(check_error(cubic), "interpolation is bicubic; must be nearest or bilinear");
        let colors = AugMix { fill: Some([1.0; 3].into()), ..AugMix::new() };
        assert!(colors.draw(Size { channels: 1, ..size(2, 2) }, &mut rng(0)).is_err());
        assert!(AugMix::new().draw(Size { channels: 4, ..size(2, 2) }, &mut rng(0)).is_err());
        assert_eq!(
            read(r#"{"type":"AugMix","severity":5,"version":"v1"}"#).to_string(),
            "AugMix(severity=5, mixture_width=3, chain_depth=-1, alpha=1, all_ops=True, interpolation=bilinear, \
             fill=None, version=v1)"
        );
    }
}
