//! Conditions on rows: compared with what a file says of a group, to leave out those in which no row can hold them, and then
//! with the values of each row.
//!
//! As in pyarrow, a null holds no condition but `not in`, and NaN none but `!=` and `not in`.

use arrow_schema::DataType;
use wellfed::{
    Error, Result,
    source::tables::{Comparison, Condition},
};

use crate::{cells::Cells, kinds::Column};

/// A value that others are compared with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    Int(i128),
    Float(f64),
    Text(String),
}

impl Scalar {
    fn compare(&self, other: &Self) -> Option<std::cmp::Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(b),
            (Self::Int(a), Self::Float(b)) => compare_exactly(*a, *b),
            (Self::Float(a), Self::Int(b)) => compare_exactly(*b, *a).map(std::cmp::Ordering::reverse),
            (Self::Text(a), Self::Text(b)) => Some(a.cmp(b)),
            _ => None,
        }
    }
}

/// A whole number and a float, as the numbers that they are.
fn compare_exactly(whole: i128, float: f64) -> Option<std::cmp::Ordering> {
    if float.is_nan() {
        return None;
    }
    // Beyond this range a float is larger or smaller than any column's whole number; within, its floor is exact.
    if float.abs() >= 1e30 {
        return Some(if float > 0.0 { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater });
    }
    let floor = float.floor();
    let order = whole.cmp(&(floor as i128));
    Some(if order.is_eq() && floor < float { std::cmp::Ordering::Less } else { order })
}

/// Between what the values of a group lie that are neither null nor NaN.
#[derive(Debug)]
pub(crate) struct Bounds {
    pub(crate) least: Scalar,
    pub(crate) greatest: Scalar,
}

/// True if no value within these bounds holds the condition.
pub(crate) fn excludes(condition: &Condition, bounds: &Bounds) -> bool {
    use Comparison::{Equal, Greater, GreaterOrEqual, In, Less, LessOrEqual, NotEqual, NotIn};
    let Ok(values) = values(condition) else { return false };
    let outside = |value: &Scalar| {
        let below = bounds.least.compare(value).is_some_and(|order| order.is_gt());
        below || bounds.greatest.compare(value).is_some_and(|order| order.is_lt())
    };
    let Some(first) = values.first() else { return condition.1 == In };
    let (least, greatest) = (bounds.least.compare(first), bounds.greatest.compare(first));
    match condition.1 {
        Equal => outside(first),
        In => values.iter().all(outside),
        Less => least.is_some_and(|order| order.is_ge()),
        LessOrEqual => least.is_some_and(|order| order.is_gt()),
        Greater => greatest.is_some_and(|order| order.is_le()),
        GreaterOrEqual => greatest.is_some_and(|order| order.is_lt()),
        // There may be NaN, of which bounds say nothing.
        NotEqual => {
            let float = matches!(bounds.least, Scalar::Float(_));
            !float && least.is_some_and(|order| order.is_eq()) && greatest.is_some_and(|order| order.is_eq())
        }
        NotIn => false,
    }
}

/// The values a condition compares with: one, or those of a list.
fn values(condition: &Condition) -> Result<Vec<Scalar>> {
    let Condition(column, comparison, value) = condition;
    let one = |value: &serde_json::Value| -> Result<Scalar> {
        let scalar = match value {
            serde_json::Value::Bool(value) => Some(Scalar::Int(i128::from(*value))),
            serde_json::Value::String(text) => Some(Scalar::Text(text.clone())),
            serde_json::Value::Number(number) => {
                let whole = number.as_i64().map(i128::from).or(number.as_u64().map(i128::from));
                whole.map(Scalar::Int).or(number.as_f64().map(Scalar::Float))
            }
            _ => None,
        };
        scalar.ok_or_else(|| {
            Error::config(format!("the filter on {column:?} compares with {value}"))
                .with_hint("values are numbers, texts, booleans, and lists of them for in and not in")
        })
    };
    match (comparison, value) {
        (Comparison::In | Comparison::NotIn, serde_json::Value::Array(all)) => all.iter().map(one).collect(),
        (Comparison::In | Comparison::NotIn, _) => {
            Err(Error::config(format!("the filter on {column:?} compares with {value}, not with a list")))
        }
        _ => Ok(vec![one(value)?]),
    }
}

/// One condition, ready to be compared with rows.
#[derive(Debug)]
pub(crate) struct Test {
    comparison: Comparison,
    values: Vec<Scalar>,
    data_type: DataType,
}

impl Test {
    /// # Errors
    /// [`wellfed::ErrorKind::Config`] for values that cannot be compared with those of the column.
    pub(crate) fn new(condition: &Condition, column: &Column) -> Result<Self> {
        let values = values(condition)?;
        let mut data_type = &column.data_type;
        if let DataType::Dictionary(_, inner) = data_type {
            data_type = inner;
        }
        let text = matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
        let number =
            column.size > 1 || matches!(data_type, DataType::Boolean | DataType::Int8 | DataType::UInt8);
        let scalar = matches!(column.kind, wellfed::sample::FieldKind::Scalar { .. });
        let fits = |value: &Scalar| if matches!(value, Scalar::Text(_)) { text } else { number && scalar };
        if !(text || (number && scalar)) || !values.iter().all(fits) {
            let Condition(name, _, value) = condition;
            return Err(Error::config(format!(
                "column {name:?} is {}, which cannot be compared with {value}",
                column.data_type
            )));
        }
        Ok(Self { comparison: condition.1, values, data_type: data_type.clone() })
    }

    /// Whether row `row` holds the condition.
    pub(crate) fn holds(&self, cells: &Cells, row: usize) -> bool {
        use Comparison::{Equal, Greater, GreaterOrEqual, In, Less, LessOrEqual, NotEqual, NotIn};
        let Ok(bytes) = cells.slice(row) else { return self.comparison == NotIn };
        let Some(have) = scalar(&self.data_type, bytes) else { return false };
        let is = |test: fn(std::cmp::Ordering) -> bool| {
            self.values.first().and_then(|value| have.compare(value)).is_some_and(test)
        };
        let among = || self.values.iter().any(|value| have.compare(value).is_some_and(|order| order.is_eq()));
        match self.comparison {
            Equal => is(std::cmp::Ordering::is_eq),
            NotEqual => !is(std::cmp::Ordering::is_eq),
            Less => is(std::cmp::Ordering::is_lt),
            LessOrEqual => is(std::cmp::Ordering::is_le),
            Greater => is(std::cmp::Ordering::is_gt),
            GreaterOrEqual => is(std::cmp::Ordering::is_ge),
            In => among(),
            NotIn => !among(),
        }
    }
}

/// The value of a cell.
fn scalar(data_type: &DataType, bytes: &[u8]) -> Option<Scalar> {
    macro_rules! number {
        ($kind:ty) => {
            <$kind>::from_ne_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Scalar::Text(std::str::from_utf8(bytes).ok()?.to_owned())
        }
        DataType::Float16 => Scalar::Float(half(number!(u16))),
        DataType::Float32 => Scalar::Float(number!(f32).into()),
        DataType::Float64 => Scalar::Float(number!(f64)),
        DataType::Boolean | DataType::UInt8 => Scalar::Int(number!(u8).into()),
        DataType::Int8 => Scalar::Int(number!(i8).into()),
        DataType::Int16 => Scalar::Int(number!(i16).into()),
        DataType::UInt16 => Scalar::Int(number!(u16).into()),
        DataType::Int32 => Scalar::Int(number!(i32).into()),
        DataType::UInt32 => Scalar::Int(number!(u32).into()),
        DataType::UInt64 => Scalar::Int(number!(u64).into()),
        _ => Scalar::Int(number!(i64).into()),
    })
}

/// A float of 16 bits.
fn half(bits: u16) -> f64 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    match exponent {
        0 => sign * fraction * 2.0_f64.powi(-24),
        31 if fraction == 0.0 => sign * f64::INFINITY,
        31 => f64::NAN,
        exponent => sign * (1024.0 + fraction) * 2.0_f64.powi(exponent - 25),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(comparison: Comparison, value: serde_json::Value) -> Condition {
        Condition("x".into(), comparison, value)
    }

    #[test]
    fn whole_numbers_and_floats_compare_as_the_numbers_they_are() {
        use std::cmp::Ordering::{Equal, Greater, Less};
        let big = (1_i128 << 53) + 1;
        for (whole, float, order) in [
            (3, 3.0, Equal),
            (3, 3.5, Less),
            (-3, -3.5, Greater),
            (big, (1_i64 << 53) as f64, Greater),
            (5, f64::INFINITY, Less),
            (5, f64::NEG_INFINITY, Greater),
        ] {
            assert_eq!(Scalar::Int(whole).compare(&Scalar::Float(float)), Some(order), "{whole} {float}");
            assert_eq!(Scalar::Float(float).compare(&Scalar::Int(whole)), Some(order.reverse()));
        }
        assert_eq!(Scalar::Int(3).compare(&Scalar::Float(f64::NAN)), None);
    }

    #[test]
    fn bounds_exclude_only_what_no_value_within_them_holds() {
        use Comparison::{Equal, Greater, GreaterOrEqual, In, Less, LessOrEqual, NotEqual, NotIn};
        let all = [Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual];
        for (least, greatest) in [(0_i128, 3_i128), (2, 2), (-1, 5)] {
            let bounds = Bounds { least: Scalar::Int(least), greatest: Scalar::Int(greatest) };
            for value in -2..7 {
                for comparison in all {
                    let holds = |x: i128| match comparison {
                        Equal => x == value,
                        NotEqual => x != value,
                        Less => x < value,
                        LessOrEqual => x <= value,
                        Greater => x > value,
                        _ => x >= value,
                    };
                    let none = !(least..=greatest).any(holds);
                    let found = excludes(&condition(comparison, json!(value as i64)), &bounds);
                    assert_eq!(found, none, "{comparison:?} {value} in {least}..={greatest}");
                }
                let found = excludes(&condition(In, json!([value as i64, 100])), &bounds);
                assert_eq!(found, !(least..=greatest).contains(&value));
                assert!(!excludes(&condition(NotIn, json!([value as i64])), &bounds));
            }
        }
        let floats = Bounds { least: Scalar::Float(2.0), greatest: Scalar::Float(2.0) };
        assert!(!excludes(&condition(NotEqual, json!(2.0)), &floats), "there may be NaN");
        assert!(!excludes(&condition(Less, json!("a")), &floats), "what cannot be compared excludes nothing");
    }

    #[test]
    fn halves_are_floats() {
        for (bits, value) in
            [(0x3c00, 1.0), (0xc000, -2.0), (0x0001, 2.0_f64.powi(-24)), (0x7c00, f64::INFINITY)]
        {
            assert_eq!(half(bits), value);
        }
        assert!(half(0x7e00).is_nan());
    }
}
