//! `TimmAugment`: timm's RandAugment, AutoAugment, 3-Augment and AugMix, by their operations.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use wellfed_kernels::{color::blend_with_image, image::Image, tensor::add_weighted};

use super::{
    Action, Class, Filters, ImageAction, ImageMemory, Interpolation, Operation, PerChannel, Shape, Size,
    Takes, TimmOp,
    adjustment::check_channels,
    image_action::elements,
    mixing::log_gamma,
    param::{Repr, Tuple},
    random_affine::check_sampling,
    sequence::sequence,
    timm_op::{LEVEL_DENOM, Levels},
};
use crate::{Error, Result, rng::Rng};

/// Draws some of several policies and does the operations of each one after the other, each with its own probability and
/// at a magnitude that may be drawn, too: what timm's `RandAugment`, `AutoAugment` and `AugMixAugment` do to Pillow images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmAugment {
    /// What is drawn from: each a list of operations.
    pub policies: Vec<Vec<TimmOp>>,
    /// How many policies are drawn; of a mix for each of its chains, where 0 or less draws 1 to 3. Default: 1.
    #[serde(default = "one")]
    pub num_layers: i64,
    /// How likely each policy is, relative to the others: then none is drawn twice. Default: all alike.
    #[serde(default)]
    pub weights: Option<Vec<f64>>,
    /// Standard deviation of the normal distribution of magnitudes around the given one. Default: 0.
    #[serde(default)]
    pub magnitude_std: f64,
    /// Draw magnitudes from 0 to the given one. Default: false.
    #[serde(default)]
    pub uniform: bool,
    /// Greatest magnitude. Default: 10.
    #[serde(default = "level_denom")]
    pub magnitude_max: f64,
    /// Pixels that `TranslateX` moves by at magnitude 10. Default: 250.
    #[serde(default = "translate_const")]
    pub translate_const: f64,
    /// Share of its side that `TranslateXRel` moves an image by at magnitude 10. Default: 0.45.
    #[serde(default = "translate_pct")]
    pub translate_pct: f64,
    /// Filter, or two of which one is drawn: nearest, bilinear or bicubic. Default: bilinear or bicubic.
    #[serde(default = "either_filter")]
    pub interpolation: Filters,
    /// Value of what comes in from outside. Default: 128.
    #[serde(default = "gray")]
    pub fill: PerChannel,
    /// Mix the image with several chains of drawn operations. Default: it is replaced by one.
    #[serde(default)]
    pub mix: Option<TimmMix>,
}

/// How `AugMixAugment` mixes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimmMix {
    /// Parameter of the distributions of weights, above 0.
    pub alpha: f64,
    /// How many chains.
    pub width: usize,
    /// Blend the image with one chain after the other, in 8 bits.
    pub blended: bool,
}

fn one() -> i64 {
    1
}

fn level_denom() -> f64 {
    LEVEL_DENOM
}

fn translate_const() -> f64 {
    250.0
}

fn translate_pct() -> f64 {
    0.45
}

fn either_filter() -> Filters {
    [Interpolation::Bilinear, Interpolation::Bicubic].into()
}

fn gray() -> PerChannel {
    128.0.into()
}

/// What is done to an image, one after the other.
type Chain = Vec<Arc<dyn ImageAction>>;

impl TimmAugment {
    /// Most policies, operations of a policy, layers and chains: what a draw has numbers for.
    const MOST: usize = 100;

    /// One of `policies`, with timm's defaults.
    pub fn new(policies: impl IntoIterator<Item = Vec<TimmOp>>) -> Self {
        Self {
            policies: policies.into_iter().collect(),
            num_layers: one(),
            weights: None,
            magnitude_std: 0.0,
            uniform: false,
            magnitude_max: level_denom(),
            translate_const: translate_const(),
            translate_pct: translate_pct(),
            interpolation: either_filter(),
            fill: gray(),
            mix: None,
        }
    }

    /// Places of `layers` policies.
    fn choose(&self, layers: usize, rng: &mut Rng) -> Vec<usize> {
        let Some(mut weights) = self.weights.clone() else {
            return (0..layers).map(|_| rng.below(self.policies.len() as u64) as usize).collect();
        };
        (0..layers)
            .map(|_| {
                let chosen = rng.weighted(&weights);
                weights[chosen] = 0.0;
                chosen
            })
            .collect()
    }

    /// The operations of `layers` policies for an image of `size`.
    fn chain(&self, layers: usize, size: Size, rng: &mut Rng) -> Chain {
        let chosen = self.choose(layers, rng);
        let ops = chosen.into_iter().flat_map(|policy| &self.policies[policy]);
        ops.filter_map(|op| self.action(*op, size, rng)).collect()
    }

    /// What an operation that was chosen does; `None` is nothing.
    fn action(
        &self,
        TimmOp(kind, prob, magnitude): TimmOp,
        size: Size,
        rng: &mut Rng,
    ) -> Option<Arc<dyn ImageAction>> {
        if !rng.chance(prob) {
            return None;
        }
        let drawn = if self.uniform {
            rng.uniform(0.0, magnitude)
        } else if self.magnitude_std > 0.0 {
            magnitude + self.magnitude_std * rng.normal()
        } else {
            magnitude
        };
        let levels = Levels { translate_const: self.translate_const, translate_pct: self.translate_pct };
        let argument = kind.argument(drawn.min(self.magnitude_max).max(0.0), levels, rng);
        // Only what looks for pixels between pixels draws a filter; of one filter, nothing is drawn.
        let filter = if kind.samples() { self.interpolation.draw(rng) } else { Interpolation::Nearest };
        kind.action(argument, (filter, self.fill), size)
    }

    fn mixture(&self, mix: TimmMix, size: Size, rng: &mut Rng) -> Mixture {
        let weights = dirichlet(mix.alpha, mix.width, rng);
        let rest = dirichlet(mix.alpha, 2, rng)[0] as f32;
        let mut chains: Vec<(f32, Chain)> = weights
            .into_iter()
            .map(|weight| {
                let layers = match usize::try_from(self.num_layers) {
                    Ok(layers) if layers > 0 => layers,
                    _ => 1 + rng.below(3) as usize,
                };
                (weight as f32, self.chain(layers, size, rng))
            })
            .collect();
        if mix.blended {
            // timm's `_calc_blended_weights`: what each blend has to weigh for all of them to come to these weights.
            let mut left = 1f32;
            for (weight, _) in chains.iter_mut().rev() {
                *weight = *weight * rest / left;
                left *= 1.0 - *weight;
            }
        }
        Mixture { chains, rest, blended: mix.blended }
    }
}

/// Weights that add up to one, of the symmetric Dirichlet distribution. Of two the first has the Beta distribution.
fn dirichlet(alpha: f64, n: usize, rng: &mut Rng) -> Vec<f64> {
    // By logarithms, since all numbers may be too small for a float where alpha is.
    let logs: Vec<f64> = (0..n).map(|_| log_gamma(alpha, rng)).collect();
    let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logs.iter().map(|log| (log - most).exp()).sum();
    logs.iter().map(|log| (log - most).exp() / sum).collect()
}

impl fmt::Display for TimmAugment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ops = self.policies.iter().map(Vec::len).sum::<usize>();
        let mut repr = Repr::new(f, "TimmAugment")
            .field("policies", format_args!("<{} of {ops} operations>", self.policies.len()))
            .field("num_layers", self.num_layers);
        if let Some(weights) = &self.weights {
            repr = repr.field("weights", Tuple(weights));
        }
        repr = repr
            .field_if(self.magnitude_std > 0.0, "magnitude_std", self.magnitude_std)
            .field_if(self.uniform, "uniform", "True")
            .field_if(self.magnitude_max != LEVEL_DENOM, "magnitude_max", self.magnitude_max)
            .field("interpolation", self.interpolation)
            .field("fill", self.fill);
        if let Some(mix) = self.mix {
            repr = repr.field("mix", format_args!("({}, {}, {})", mix.alpha, mix.width, mix.blended));
        }
        repr.finish()
    }
}

impl Operation for TimmAugment {
    fn check(&self) -> Result<()> {
        let most = Self::MOST;
        let error = |what: String| Err(Error::config(what));
        if !(1..=most).contains(&self.policies.len()) {
            return error(format!("there are {} policies; there must be 1 to {most}", self.policies.len()));
        }
        for policy in &self.policies {
            if policy.len() > most {
                return error(format!("a policy has {} operations; must be 0 to {most}", policy.len()));
            }
            policy.iter().try_for_each(TimmOp::check)?;
        }
        // What may be drawn at most is bounded, too: a draw has so many random numbers and no more.
        let longest = self.policies.iter().map(Vec::len).max().unwrap_or(0);
        let layers = usize::try_from(self.num_layers).unwrap_or(0).max(1);
        let chains = self.mix.map_or(1, |mix| mix.width.max(1));
        if layers.saturating_mul(longest).saturating_mul(chains) > most * most {
            return error(format!(
                "{layers} layers of up to {longest} operations in {chains} chains are more than {} operations",
                most * most
            ));
        }
        if self.num_layers < 0 && self.mix.is_none() {
            return error(format!("num_layers is {}; must be at least 0", self.num_layers));
        }
        if let Some(weights) = &self.weights {
            let drawn = weights.iter().filter(|&&weight| weight > 0.0).count();
            let good = weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0);
            let layers = if self.num_layers > 0 { layers } else { 3 };
            if weights.len() != self.policies.len() || !good || drawn < layers {
                return error(format!(
                    "weights is {}; must be one for each policy, at least 0, and above 0 for as many as are drawn",
                    Tuple(weights)
                ));
            }
        }
        for (name, value) in [
            ("magnitude_std", self.magnitude_std),
            ("magnitude_max", self.magnitude_max),
            ("translate_const", self.translate_const),
            ("translate_pct", self.translate_pct),
        ] {
            if !(0.0..=1e6).contains(&value) {
                return error(format!("{name} is {value}; must be 0 to 1,000,000"));
            }
        }
        if let Some(mix) = self.mix {
            if !(mix.alpha > 0.0 && mix.alpha.is_finite()) {
                return error(format!("alpha is {}; must be above 0", mix.alpha));
            }
            if !(1..=most).contains(&mix.width) {
                return error(format!("width is {}; must be 1 to {most}", mix.width));
            }
        }
        self.interpolation.each().try_for_each(check_sampling)?;
        self.fill.check("fill")
    }

    fn class(&self) -> Class {
        Class::Image
    }

    fn takes(&self) -> Takes {
        Takes::ImagesAlone
    }

    fn draws_by_size(&self) -> bool {
        true
    }

    fn fixed_size(&self, input: Shape) -> Shape {
        input
    }

    fn draw(&self, size: Size, rng: &mut Rng) -> Result<Action> {
        check_channels(size)?;
        self.fill.check_channels("fill", size.channels)?;
        Ok(match self.mix {
            Some(mix) => Action::Image(Arc::new(self.mixture(mix, size, rng))),
            None => sequence(self.chain(usize::try_from(self.num_layers).unwrap_or(0), size, rng)),
        })
    }
}

/// A drawn mix of the image with chains of operations on it.
#[derive(Debug)]
struct Mixture {
    /// Weights and operations.
    chains: Vec<(f32, Chain)>,
    /// Weight of the chains together.
    rest: f32,
    /// Blend one after the other: weights are those of the blends.
    blended: bool,
}

impl ImageAction for Mixture {
    fn memory(&self, input: Size) -> usize {
        let inner = |chain: &Chain| chain.iter().map(|action| action.memory(input)).max().unwrap_or(0);
        let most = self.chains.iter().map(|(_, chain)| inner(chain)).max().unwrap_or(0);
        // Two more images, and one of float32.
        elements(input).saturating_mul(6).saturating_add(most)
    }

    fn run(&self, image: &mut Image, memory: &mut ImageMemory) -> Result<()> {
        let len = image.pixels().len();
        if len == 0 {
            return Ok(());
        }
        // What the operations are lent must not be what they work on.
        let mut work = std::mem::take(&mut memory.other);
        let mut floats = std::mem::take(&mut memory.floats);
        let mut before = Image::new();
        let result = self.mix(image, (&mut work, &mut before), &mut floats, memory);
        memory.other = work;
        memory.floats = floats;
        result
    }
}

impl Mixture {
    fn mix(
        &self,
        image: &mut Image,
        (work, before): (&mut Image, &mut Image),
        floats: &mut Vec<f32>,
        memory: &mut ImageMemory,
    ) -> Result<()> {
        if self.blended {
            before.copy_from(image.view())?;
            for (weight, chain) in &self.chains {
                work.copy_from(before.view())?;
                chain.iter().try_for_each(|action| action.run(work, memory))?;
                blend_with_image(image, work.view(), *weight);
            }
            return Ok(());
        }
        let len = image.pixels().len();
        floats.clear();
        floats.try_reserve_exact(len).map_err(|_| Error::memory(4 * len, "pixels"))?;
        floats.resize(len, 0.0);
        for (weight, chain) in &self.chains {
            work.copy_from(image.view())?;
            chain.iter().try_for_each(|action| action.run(work, memory))?;
            add_weighted(floats, work.view(), *weight);
        }
        for (to, &sum) in work.pixels_mut().iter_mut().zip(&*floats) {
            // Truncated, and cut off at 0 and 255, as floats are.
            *to = sum as u8;
        }
        blend_with_image(image, work.view(), self.rest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{super::TimmKind::*, super::testing::*, *};

    fn rand(num_layers: i64) -> TimmAugment {
        let ops = [Invert, Rotate, SolarizeAdd, Sharpness].map(|kind| vec![TimmOp(kind, 0.5, 9.0)]);
        TimmAugment { num_layers, ..TimmAugment::new(ops) }
    }

    #[test]
    fn policies_are_drawn_alike_and_operations_done_with_their_probability() {
        let (mut counts, mut done) = ([0; 4], 0);
        for index in 0..8000 {
            for place in rand(2).choose(2, &mut rng(index)) {
                counts[place] += 1;
            }
            done += rand(2).chain(2, size(9, 9), &mut rng(index)).len();
        }
        assert_uniform_counts(&counts);
        assert_probability(done, 16_000, 0.5);
    }

    #[test]
    fn weighted_policies_are_drawn_once_and_as_often_as_they_weigh() {
        let augment = TimmAugment { weights: Some(vec![1.0, 2.0, 0.0, 1.0]), ..rand(2) };
        augment.check().unwrap();
        let (mut first, mut pairs) = (0, 0);
        for index in 0..20_000 {
            let chosen = augment.choose(2, &mut rng(index));
            assert!(chosen[0] != chosen[1] && !chosen.contains(&2), "{chosen:?}");
            first += usize::from(chosen[0] == 1);
            pairs += usize::from(chosen == [0, 1]);
        }
        assert_probability(first, 20_000, 0.5);
        // A quarter, then 2 of what is left: 3.
        assert_probability(pairs, 20_000, 1.0 / 6.0);
    }

    #[test]
    fn magnitudes_are_normal_or_uniform_and_cut_off() {
        let angles = |augment: &TimmAugment| -> Vec<f64> {
            let draw =
                |index| augment.action(TimmOp(Brightness, 1.0, 5.0), size(9, 9), &mut rng(index)).unwrap();
            (0..4000u64)
                .map(|index| {
                    let shown = format!("{:?}", draw(index));
                    let number: String = shown.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
                    // Of the factor 0.1 + 1.8 * magnitude / 10.
                    (number.parse::<f64>().unwrap() - 0.1) / 0.18
                })
                .collect()
        };
        let uniform = angles(&TimmAugment { uniform: true, ..rand(1) });
        assert_uniform(uniform.iter().map(|m| m.clamp(0.0, 5.0)), 0.0, 5.0);
        let normal = angles(&TimmAugment { magnitude_std: 1.0, ..rand(1) });
        let mean = normal.iter().sum::<f64>() / 4000.0;
        let variance = normal.iter().map(|m| (m - mean).powi(2)).sum::<f64>() / 4000.0;
        assert!((mean - 5.0).abs() < 0.07 && (variance - 1.0).abs() < 0.1, "{mean} {variance}");
        let cut = angles(&TimmAugment { magnitude_std: 90.0, magnitude_max: 7.0, ..rand(1) });
        assert!(cut.iter().all(|m| (-1e-9..=7.0 + 1e-9).contains(m)));
        assert!(cut.iter().filter(|m| **m > 6.999).count() > 1000);
    }

    #[test]
    fn a_mix_weighs_as_timm_has_it() {
        let mix = TimmMix { alpha: 1.0, width: 3, blended: false };
        let augment = TimmAugment { mix: Some(mix), ..rand(-1) };
        augment.check().unwrap();
        let mixtures: Vec<Mixture> =
            (0..8000).map(|index| augment.mixture(mix, size(9, 9), &mut rng(index))).collect();
        assert_uniform(mixtures.iter().map(|m| f64::from(m.rest)), 0.0, 1.0);
        let share = |m: &Mixture| {
            assert!((m.chains.iter().map(|c| c.0).sum::<f32>() - 1.0).abs() < 1e-6);
            1.0 - (1.0 - f64::from(m.chains[1].0)).powi(2)
        };
        assert_uniform(mixtures.iter().map(share), 0.0, 1.0);
        // Blends of blends come to the same weights.
        for (index, plain) in mixtures.iter().enumerate().take(100) {
            let mixed = augment.mixture(TimmMix { blended: true, ..mix }, size(9, 9), &mut rng(index as u64));
            let mut left = 1.0f32;
            for ((weight, _), (wanted, _)) in mixed.chains.iter().zip(&plain.chains).rev() {
                assert!((weight * left - wanted * plain.rest).abs() < 1e-5, "{mixed:?}");
                left *= 1.0 - weight;
            }
        }
    }

    #[test]
    fn parameters_are_checked() {
        assert!(check_error(TimmAugment::new([])).starts_with("there are 0 policies"));
        let of = |op| TimmAugment::new([vec![op]]);
        assert!(check_error(of(TimmOp(Invert, 1.5, 9.0))).starts_with("p is 1.5"));
        assert!(check_error(of(TimmOp(Invert, 0.5, f64::NAN))).starts_with("the magnitude of (Invert"));
        assert!(check_error(rand(-1)).starts_with("num_layers is -1"));
        assert!(check_error(rand(20_000)).contains("more than 10000 operations"));
        for weights in [vec![1.0], vec![1.0, 0.0, 0.0, 0.0], vec![-1.0, 1.0, 1.0, 1.0]] {
            assert!(
                check_error(TimmAugment { weights: Some(weights), ..rand(2) }).starts_with("weights is (")
            );
        }
        let lanczos = TimmAugment { interpolation: Interpolation::Lanczos.into(), ..rand(2) };
        assert!(check_error(lanczos).contains("must be nearest, bilinear or bicubic"));
        let mix =
            |alpha, width| TimmAugment { mix: Some(TimmMix { alpha, width, blended: true }), ..rand(2) };
        assert!(check_error(mix(0.0, 3)).starts_with("alpha is 0"));
        assert!(check_error(mix(1.0, 0)).starts_with("width is 0"));
        assert!(
            check_error(TimmAugment { magnitude_std: -1.0, ..rand(2) }).starts_with("magnitude_std is -1")
        );
        assert!(rand(2).draw(Size { channels: 4, ..size(3, 3) }, &mut rng(0)).is_err());
    }

    #[test]
    fn it_reads_and_shows_what_it_is() {
        let json = r#"{"type":"TimmAugment","policies":[[["Rotate",0.5,9]],[["Invert",1,0],["Color",0.2,3.5]]],
            "num_layers":2,"uniform":true,"interpolation":"bicubic","fill":[1,2,3]}"#;
        assert_eq!(
            read(json).to_string(),
            "TimmAugment(policies=<2 of 3 operations>, num_layers=2, uniform=True, interpolation=bicubic, fill=(1, 2, 3))"
        );
        assert!(refuse(r#"{"type":"TimmAugment","policies":[[["Cutout",1,1]]]}"#).contains("Cutout"));
    }
}
