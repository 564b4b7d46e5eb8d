//! [`PointMap`]: the function from an 8-bit pixel value to an element of the finished tensor.
//!
//! The input has 256 values, so the function is a table of 256 entries a channel, filled in torchvision v2's
//! own arithmetic: **the table is the oracle**. Where a chain of float32 instructions reproduces every entry
//! bit for bit, the map carries it as well (`Chain`); kernels take whichever is faster on their instruction
//! set.

use std::fmt;

use half::{bf16, f16};

use crate::image::Dtype;

/// One transform that looks at one value at a time, named as in `torchvision.transforms.v2`.
#[derive(Clone, Debug, PartialEq)]
pub enum PointOp {
    /// `v2.ToDtype(dtype, scale)`: with `scale`, `uint8` 0..=255 maps to 0.0..=1.0 and back; without, values
    /// are converted as `tensor.to(dtype)` does.
    ToDtype {
        /// Element type afterwards.
        dtype: Dtype,
        /// Whether the range is scaled along.
        scale: bool,
    },
    /// `ToTensor`: `uint8` to float32, divided by 255. (Not the same bits as [`PointOp::ToDtype`] with
    /// `scale`, which multiplies by the rounded reciprocal.)
    ToTensorDiv,
    /// `v2.Normalize(mean, std)`: `(x - mean) / std` in the current floating-point type.
    Normalize {
        /// One value, or one a channel.
        mean: Vec<f32>,
        /// One value, or one a channel; none may be zero.
        std: Vec<f32>,
    },
    /// `(x - mean) * (1 / std)` in the current floating-point type, where the reciprocal is rounded first: what
    /// Albumentations' `Normalize` does to the values 0 to 255, with a mean and a deviation of that range.
    NormalizeByReciprocal {
        /// One value, or one a channel.
        mean: Vec<f32>,
        /// One value, or one a channel; none may be zero.
        std: Vec<f32>,
    },
}

/// Why a chain of [`PointOp`]s has no meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PointError {
    /// Images have 1 to 4 channels.
    Channels {
        /// What was asked for.
        channels: usize,
    },
    /// `mean` or `std` has neither one value nor one a channel.
    Length {
        /// `"mean"` or `"std"`.
        name: &'static str,
        /// Values given.
        len: usize,
        /// Channels of the image.
        channels: usize,
    },
    /// A `std` of zero divides by zero.
    ZeroStd {
        /// Its position in `std`.
        index: usize,
    },
    /// `Normalize` works on floating-point images only, as torchvision's does.
    NormalizeInteger,
    /// `ToTensor` takes 8-bit images only.
    ToTensorFloat,
}

impl fmt::Display for PointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PointError::Channels { channels } => write!(f, "an image has 1 to 4 channels, not {channels}"),
            PointError::Length { name, len, channels } => {
                write!(f, "Normalize has {len} values in {name}; the image has {channels} channels")
            }
            PointError::ZeroStd { index } => write!(f, "Normalize has std[{index}] = 0"),
            PointError::NormalizeInteger => write!(f, "Normalize takes a floating-point image, not uint8"),
            PointError::ToTensorFloat => write!(f, "ToTensor takes a uint8 image, not a floating-point one"),
        }
    }
}

impl std::error::Error for PointError {}

/// How a [`Chain`] starts: from the integer `v` as float32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    /// `v`
    None,
    /// `v * factor`
    Mul(f32),
    /// `v / divisor`, by the rounded reciprocal and one correction ([`divide`]).
    Div {
        /// Divisor.
        by: f32,
        /// `1 / by`, rounded.
        recip: f32,
    },
}

/// How a [`Chain`] ends, once the channel's mean is subtracted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quotient {
    /// Nothing to divide or subtract.
    None,
    /// `x * recip[c]`
    Mul,
    /// [`divide`] by `std[c]`.
    Div,
}

/// Float32 instructions that reproduce a [`PointMap`]'s table bit for bit (checked when it is built):
/// scale, subtract `mean[c]`, divide by `std[c]`, round to the output type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chain {
    pub(crate) scale: Scale,
    pub(crate) mean: [f32; 4],
    pub(crate) std: [f32; 4],
    pub(crate) recip: [f32; 4],
    pub(crate) quotient: Quotient,
}

/// `x / by` from `recip`, the rounded reciprocal: one product and one correction with fused multiply-adds
/// (Markstein, "Computation of elementary functions on the IBM RISC System/6000 processor", 1990). Correctly
/// rounded for almost all operands; a [`Chain`] is only used where it is for all 256.
#[inline]
fn divide(x: f32, by: f32, recip: f32) -> f32 {
    let q = x * recip;
    (-q).mul_add(by, x).mul_add(recip, q)
}

impl Chain {
    fn value(&self, channel: usize, v: u8) -> f32 {
        let v = f32::from(v);
        let x = match self.scale {
            Scale::None => v,
            Scale::Mul(factor) => v * factor,
            Scale::Div { by, recip } => divide(v, by, recip),
        };
        match self.quotient {
            Quotient::None => x,
            Quotient::Mul => (x - self.mean[channel]) * self.recip[channel],
            Quotient::Div => divide(x - self.mean[channel], self.std[channel], self.recip[channel]),
        }
    }
}

/// The function from a `uint8` pixel value to an output element, for each channel of an image.
#[derive(Clone, Debug, PartialEq)]
pub struct PointMap {
    dtype: Dtype,
    /// Per channel and value, the element's bits in the low bytes.
    tables: Vec<[u32; 256]>,
    /// Per channel, the table as one plane for each byte of the element, low byte first.
    planes: Vec<Vec<[u8; 256]>>,
    identity: bool,
    uniform: bool,
    chain: Option<Chain>,
}

/// A value on its way through the operations: floats are kept in float32, rounded to their element type after
/// each step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// An 8-bit value.
    U8(u8),
    /// A value of any floating-point type.
    Float(f32),
}

/// Rounds to nearest even, as torch does.
fn round_to(x: f32, dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F16 => f16::from_f32(x).to_f32(),
        Dtype::Bf16 => bf16::from_f32(x).to_f32(),
        Dtype::F32 | Dtype::U8 => x,
    }
}

/// The bits of `x` in `dtype`.
fn bits(value: Value, dtype: Dtype) -> u32 {
    match (value, dtype) {
        (Value::U8(v), _) => u32::from(v),
        (Value::Float(x), Dtype::F16) => u32::from(f16::from_f32(x).to_bits()),
        (Value::Float(x), Dtype::Bf16) => u32::from(bf16::from_f32(x).to_bits()),
        (Value::Float(x), Dtype::F32 | Dtype::U8) => x.to_bits(),
    }
}

/// Applies one operation as torchvision 0.29 does (`transforms/v2/functional/_misc.py`): each arithmetic step
/// in float32, rounded to the tensor's type. `dtype` is the type of `value`, and afterwards that of the
/// result.
///
/// # Errors
/// If the operation does not take such a value.
pub fn apply(op: &PointOp, channel: usize, value: Value, dtype: &mut Dtype) -> Result<Value, PointError> {
    Ok(match (op, value) {
        (PointOp::ToDtype { dtype: to, scale }, value) => {
            let from = std::mem::replace(dtype, *to);
            match (value, *to) {
                (Value::U8(v), Dtype::U8) => Value::U8(v),
                (Value::U8(v), to) => {
                    // 0..=255 is exact in every type; the factor is a float32 for each of them.
                    let x = f32::from(v);
                    Value::Float(if *scale { round_to(x * (1.0 / 255.0), to) } else { x })
                }
                (Value::Float(x), Dtype::U8) => {
                    let x = if *scale { round_to(x * 255.999, from) } else { x };
                    // torch converts through int64 and wraps.
                    Value::U8(x as i64 as u8)
                }
                (Value::Float(x), to) => Value::Float(round_to(x, to)),
            }
        }
        (PointOp::ToTensorDiv, Value::U8(v)) => {
            *dtype = Dtype::F32;
            Value::Float(f32::from(v) / 255.0)
        }
        (PointOp::ToTensorDiv, Value::Float(_)) => return Err(PointError::ToTensorFloat),
        (PointOp::Normalize { .. } | PointOp::NormalizeByReciprocal { .. }, Value::U8(_)) => {
            return Err(PointError::NormalizeInteger);
        }
        (PointOp::Normalize { mean, std }, Value::Float(x)) => {
            let pick = |values: &[f32]| round_to(values[channel.min(values.len() - 1)], *dtype);
            let x = round_to(x - pick(mean), *dtype);
            Value::Float(round_to(x / pick(std), *dtype))
        }
        (PointOp::NormalizeByReciprocal { mean, std }, Value::Float(x)) => {
            let pick = |values: &[f32]| round_to(values[channel.min(values.len() - 1)], *dtype);
            let x = round_to(x - pick(mean), *dtype);
            Value::Float(round_to(x * round_to(1.0 / pick(std), *dtype), *dtype))
        }
    })
}

impl PointMap {
    /// The map that leaves `uint8` values alone.
    ///
    /// # Errors
    /// If `channels` is not 1..=4.
    pub fn identity(channels: usize) -> Result<Self, PointError> {
        Self::new(channels, &[])
    }

    /// Applies `ops` one after the other to all 256 values of each channel.
    ///
    /// # Errors
    /// If the chain has no meaning: see [`PointError`].
    pub fn new(channels: usize, ops: &[PointOp]) -> Result<Self, PointError> {
        if !(1..=4).contains(&channels) {
            return Err(PointError::Channels { channels });
        }
        for op in ops {
            if let PointOp::Normalize { mean, std } | PointOp::NormalizeByReciprocal { mean, std } = op {
                for (name, len) in [("mean", mean.len()), ("std", std.len())] {
                    if len != 1 && len != channels {
                        return Err(PointError::Length { name, len, channels });
                    }
                }
                if let Some(index) = std.iter().position(|s| *s == 0.0) {
                    return Err(PointError::ZeroStd { index });
                }
            }
        }
        let mut dtype = Dtype::U8;
        let mut tables = vec![[0u32; 256]; channels];
        for (channel, table) in tables.iter_mut().enumerate() {
            for (v, entry) in table.iter_mut().enumerate() {
                dtype = Dtype::U8;
                let mut value = Value::U8(v as u8);
                for op in ops {
                    value = apply(op, channel, value, &mut dtype)?;
                }
                *entry = bits(value, dtype);
            }
        }
        let mut map = Self::of_tables(dtype, tables);
        map.chain = candidates(channels, ops).into_iter().find(|chain| map.matches(chain));
        Ok(map)
    }

    /// The one of which [`PointMap::bits`] are these, 256 for each of 1 to 4 channels; `None` for other numbers of them.
    pub fn of_bits(dtype: Dtype, bits: &[u32]) -> Option<Self> {
        let (tables, rest) = bits.as_chunks::<256>();
        (rest.is_empty() && (1..=4).contains(&tables.len())).then(|| Self::of_tables(dtype, tables.to_vec()))
    }

    fn of_tables(dtype: Dtype, tables: Vec<[u32; 256]>) -> Self {
        let planes = tables
            .iter()
            .map(|table| (0..dtype.size()).map(|byte| table.map(|bits| (bits >> (8 * byte)) as u8)).collect())
            .collect();
        let identity =
            dtype == Dtype::U8 && tables.iter().all(|t| t.iter().enumerate().all(|(v, b)| *b == v as u32));
        let uniform = tables.iter().all(|table| *table == tables[0]);
        Self { dtype, tables, planes, identity, uniform, chain: None }
    }

    /// Channels of the image.
    pub fn channels(&self) -> usize {
        self.tables.len()
    }

    /// Element type of the result.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// Whether every value maps to itself.
    pub fn is_identity(&self) -> bool {
        self.identity
    }

    /// The bits of the element that `v` maps to, in the low `dtype().size()` bytes.
    ///
    /// # Panics
    /// If `channel` is not below [`PointMap::channels`].
    pub fn bits(&self, channel: usize, v: u8) -> u32 {
        self.tables[channel][usize::from(v)]
    }

    /// The whole table of a channel.
    pub(crate) fn table(&self, channel: usize) -> &[u32; 256] {
        &self.tables[channel]
    }

    /// The table of a channel by bytes of the element, low byte first: `dtype().size()` planes.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn planes(&self, channel: usize) -> &[[u8; 256]] {
        &self.planes[channel]
    }

    /// Whether all channels share one table.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn is_uniform(&self) -> bool {
        self.uniform
    }

    /// Arithmetic with the same bits as the table, if there is any.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.chain.as_ref()
    }

    fn matches(&self, chain: &Chain) -> bool {
        self.tables.iter().enumerate().all(|(channel, table)| {
            table
                .iter()
                .enumerate()
                .all(|(v, entry)| bits(Value::Float(chain.value(channel, v as u8)), self.dtype) == *entry)
        })
    }
}

/// Chains worth trying for `ops`, cheapest first. Wrong ones cost nothing but the comparison with the table.
fn candidates(channels: usize, ops: &[PointOp]) -> Vec<Chain> {
    let mut scales = vec![Scale::None];
    let (mut mean, mut std) = ([0.0; 4], [1.0; 4]);
    let mut normalized = false;
    let mut last = Dtype::U8;
    for op in ops {
        match op {
            PointOp::ToDtype { dtype, scale } => {
                if last == Dtype::U8 && *scale {
                    scales = vec![Scale::Mul(1.0 / 255.0)];
                }
                last = *dtype;
            }
            PointOp::ToTensorDiv => {
                scales = vec![Scale::Mul(1.0 / 255.0), Scale::Div { by: 255.0, recip: 1.0 / 255.0 }];
                last = Dtype::F32;
            }
            PointOp::Normalize { mean: m, std: s } | PointOp::NormalizeByReciprocal { mean: m, std: s } => {
                if normalized {
                    return Vec::new();
                }
                normalized = true;
                for c in 0..channels {
                    mean[c] = m[c.min(m.len() - 1)];
                    std[c] = s[c.min(s.len() - 1)];
                }
            }
        }
    }
    if last == Dtype::U8 {
        return Vec::new();
    }
    let quotients: &[Quotient] = if normalized { &[Quotient::Mul, Quotient::Div] } else { &[Quotient::None] };
    let recip = std.map(|s| 1.0 / s);
    let mut chains = Vec::new();
    for scale in scales {
        for quotient in quotients {
            chains.push(Chain { scale, mean, std, recip, quotient: *quotient });
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: [f32; 3] = [0.485, 0.456, 0.406];
    const STD: [f32; 3] = [0.229, 0.224, 0.225];

    fn to(dtype: Dtype, scale: bool) -> PointOp {
        PointOp::ToDtype { dtype, scale }
    }

    fn imagenet() -> PointOp {
        PointOp::Normalize { mean: MEAN.to_vec(), std: STD.to_vec() }
    }

    #[test]
    fn the_table_is_torchvision_s_float32_arithmetic() {
        let map = PointMap::new(3, &[to(Dtype::F32, true), imagenet()]).unwrap();
        let div = PointMap::new(3, &[PointOp::ToTensorDiv, imagenet()]).unwrap();
        for c in 0..3 {
            for v in 0..=255u8 {
                let x = f32::from(v) * (1.0f32 / 255.0);
                assert_eq!(map.bits(c, v), ((x - MEAN[c]) / STD[c]).to_bits());
                let x = f32::from(v) / 255.0f32;
                assert_eq!(div.bits(c, v), ((x - MEAN[c]) / STD[c]).to_bits());
            }
        }
        assert!(map.chain().is_some(), "the common case has an arithmetic chain");
        assert!(div.chain().is_some(), "the common case has an arithmetic chain");
    }

    #[test]
    fn a_chain_equals_its_table() {
        let half = PointOp::Normalize { mean: vec![0.5], std: vec![0.5] };
        for ops in [
            vec![to(Dtype::F32, true)],
            vec![to(Dtype::F32, false)],
            vec![PointOp::ToTensorDiv],
            vec![to(Dtype::F32, true), half.clone()],
            vec![to(Dtype::F32, true), imagenet(), to(Dtype::F16, false)],
            vec![to(Dtype::F32, true), imagenet(), to(Dtype::Bf16, false)],
            vec![to(Dtype::F16, true)],
            vec![to(Dtype::Bf16, true)],
            vec![
                to(Dtype::F32, false),
                PointOp::NormalizeByReciprocal {
                    mean: MEAN.map(|m| m * 255.0).to_vec(),
                    std: STD.map(|s| s * 255.0).to_vec(),
                },
            ],
        ] {
            let map = PointMap::new(3, &ops).unwrap();
            let chain = map.chain().unwrap_or_else(|| panic!("{ops:?} has a chain"));
            for c in 0..3 {
                for v in 0..=255 {
                    assert_eq!(bits(Value::Float(chain.value(c, v)), map.dtype()), map.bits(c, v), "{ops:?}");
                }
            }
        }
    }

    #[test]
    fn rounding_in_half_precision_has_no_float32_chain_but_a_table() {
        let map = PointMap::new(3, &[to(Dtype::F16, true), imagenet()]).unwrap();
        assert_eq!(map.dtype(), Dtype::F16);
        // torch: tensor([100], uint8).to(float16).mul_(1 / 255), then sub and div in float16.
        let x = f16::from_f32(f16::from_f32(100.0 / 255.0).to_f32() - f16::from_f32(0.485).to_f32());
        let x = f16::from_f32(x.to_f32() / f16::from_f32(0.229).to_f32());
        assert_eq!(map.bits(0, 100), u32::from(x.to_bits()));
    }

    #[test]
    fn scaling_to_float_and_back_is_the_identity() {
        let map = PointMap::new(1, &[to(Dtype::F32, true), to(Dtype::U8, true)]).unwrap();
        assert!(map.is_identity());
        assert!(PointMap::identity(4).unwrap().is_identity());
        let truncated = PointMap::new(1, &[to(Dtype::F32, true), to(Dtype::U8, false)]).unwrap();
        assert_eq!((truncated.bits(0, 254), truncated.bits(0, 255)), (0, 1));
    }

    #[test]
    fn bad_configuration_is_an_error() {
        let normalize = |mean: &[f32], std: &[f32]| {
            let op = PointOp::Normalize { mean: mean.to_vec(), std: std.to_vec() };
            PointMap::new(3, &[to(Dtype::F32, true), op]).unwrap_err()
        };
        assert_eq!(normalize(&[0.5; 2], &[1.0]), PointError::Length { name: "mean", len: 2, channels: 3 });
        assert_eq!(normalize(&[0.5], &[]), PointError::Length { name: "std", len: 0, channels: 3 });
        assert_eq!(normalize(&[0.5], &[1.0, 0.0, 1.0]), PointError::ZeroStd { index: 1 });
        assert_eq!(PointMap::new(3, &[imagenet()]).unwrap_err(), PointError::NormalizeInteger);
        assert_eq!(
            PointMap::new(1, &[PointOp::ToTensorDiv, PointOp::ToTensorDiv]).unwrap_err(),
            PointError::ToTensorFloat
        );
        assert_eq!(PointMap::identity(5).unwrap_err(), PointError::Channels { channels: 5 });
        assert_eq!(PointMap::identity(0).unwrap_err(), PointError::Channels { channels: 0 });
    }
}
