//! [`Pad`]: what arrays that differ in size are padded to, and with what, as data.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use crate::{Error, Result, sample::DType};

/// What arrays that differ in size are padded to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pad {
    /// Shape of each field, in order; `None` as a side is that of the largest array of the batch, `None` as a shape
    /// leaves all sides that vary to the batch.
    pub padded_shapes: Option<Vec<Option<Vec<Option<usize>>>>>,
    /// What each field is filled up with, in order. `None` is 0.
    pub padding_values: Option<Vec<Option<PadValue>>>,
    /// Sides that are left to the batch are rounded up to a multiple of this. `None` is 1.
    pub multiple_of: Option<usize>,
    /// Whether the lengths of arrays before padding are handed out beside them.
    pub lengths: bool,
    /// Whether a mask is handed out beside them: which places along the side of lengths are not padding.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub mask: bool,
}

/// A number to pad with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PadValue {
    /// A whole number, negative perhaps.
    Int(i64),
    /// One that is larger.
    Unsigned(u64),
    /// Another number.
    Float(f64),
    /// What JSON has no number for: `nan`, `inf`, `-inf`.
    Named(String),
}

impl PadValue {
    /// One element of `dtype`, in native byte order.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] for a number that `dtype` cannot hold.
    pub(crate) fn element(&self, dtype: DType) -> Result<Vec<u8>> {
        let refused = || {
            let text = match self {
                Self::Int(value) => value.to_string(),
                Self::Unsigned(value) => value.to_string(),
                Self::Float(value) => value.to_string(),
                Self::Named(name) => name.clone(),
            };
            Error::config(format!("padding value {text} is no {}", dtype.name()))
        };
        let whole = match self {
            Self::Int(value) => Some(i128::from(*value)),
            Self::Unsigned(value) => Some(i128::from(*value)),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e18 => Some(*value as i128),
            Self::Float(_) | Self::Named(_) => None,
        };
        let float = match self {
            Self::Int(value) => Some(*value as f64),
            Self::Unsigned(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Named(name) => match name.as_str() {
                "nan" => Some(f64::NAN),
                "inf" => Some(f64::INFINITY),
                "-inf" => Some(f64::NEG_INFINITY),
                _ => None,
            },
        };
        macro_rules! whole {
            ($type:ty) => {
                whole
                    .and_then(|value| <$type>::try_from(value).ok())
                    .map(|value| value.to_ne_bytes().to_vec())
            };
        }
        let bytes = match dtype {
            DType::Bool => whole.filter(|value| matches!(value, 0 | 1)).map(|value| vec![value as u8]),
            DType::UInt8 => whole!(u8),
            DType::Int8 => whole!(i8),
            DType::UInt16 => whole!(u16),
            DType::Int16 => whole!(i16),
            DType::UInt32 => whole!(u32),
            DType::Int32 => whole!(i32),
            DType::UInt64 => whole!(u64),
            DType::Int64 => whole!(i64),
            DType::Float16 => float.map(|value| f16::from_f64(value).to_ne_bytes().to_vec()),
            DType::BFloat16 => float.map(|value| bf16::from_f64(value).to_ne_bytes().to_vec()),
            DType::Float32 => float.map(|value| (value as f32).to_ne_bytes().to_vec()),
            DType::Float64 => float.map(|value| value.to_ne_bytes().to_vec()),
        };
        bytes.ok_or_else(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padding_value_is_an_element_of_its_type_or_refused() {
        let element = |value: PadValue, dtype| value.element(dtype).ok();
        assert_eq!(element(PadValue::Int(-1), DType::Int16), Some((-1_i16).to_ne_bytes().to_vec()));
        assert_eq!(element(PadValue::Int(-1), DType::UInt16), None);
        assert_eq!(element(PadValue::Int(256), DType::UInt8), None);
        assert_eq!(element(PadValue::Unsigned(u64::MAX), DType::UInt64), Some(vec![255; 8]));
        assert_eq!(element(PadValue::Unsigned(u64::MAX), DType::Int64), None);
        assert_eq!(element(PadValue::Float(0.5), DType::Int64), None);
        assert_eq!(element(PadValue::Float(2.0), DType::Int8), Some(vec![2]));
        assert_eq!(element(PadValue::Int(2), DType::Bool), None);
        let inf = f32::NEG_INFINITY.to_ne_bytes().to_vec();
        assert_eq!(element(PadValue::Named("-inf".into()), DType::Float32), Some(inf));
        assert_eq!(element(PadValue::Named("none".into()), DType::Float32), None);
    }
}
