//! One column of a group: fields as values, and which rows have none.

use std::collections::BTreeMap;

use wellfed::source::tables::CsvDType;

use super::{
    number,
    split::{Fields, unquoted},
};
use crate::cells::Cells;

/// What stands for a missing value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Int32(Option<i32>),
    Int64(Option<i64>),
    Float32(Option<f32>),
    Float64(Option<f64>),
    Text(Option<String>),
}

impl Kind {
    /// Values of this type; `default` stands for missing ones. `None` if that is no value of the type.
    pub(super) fn new(dtype: CsvDType, default: Option<&str>) -> Option<Self> {
        fn value<T>(default: Option<&str>, parse: impl Fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
            default.map(|text| parse(text.as_bytes())).map_or(Some(None), |value| value.map(Some))
        }
        Some(match dtype {
            CsvDType::Int32 => Self::Int32(value(default, number::int32)?),
            CsvDType::Int64 => Self::Int64(value(default, number::int64)?),
            CsvDType::Float32 => Self::Float32(value(default, number::float32)?),
            CsvDType::Float64 => Self::Float64(value(default, number::float64)?),
            CsvDType::String => Self::Text(default.map(str::to_owned)),
        })
    }

    /// Bytes of one value; of texts those of their places.
    pub(super) fn size(&self) -> u64 {
        match self {
            Self::Int32(_) | Self::Float32(_) | Self::Text(_) => 4,
            Self::Int64(_) | Self::Float64(_) => 8,
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Int32(_) => "int32",
            Self::Int64(_) => "int64",
            Self::Float32(_) => "float32",
            Self::Float64(_) => "float64",
            Self::Text(_) => "text",
        }
    }
}

/// A group whose fields are known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group<'a> {
    pub(super) text: &'a [u8],
    pub(super) fields: &'a Fields,
    pub(super) quotes: bool,
    /// A text that stands for a missing value, as an empty one does.
    pub(super) missing: &'a [u8],
    /// Whether all of it is UTF-8.
    pub(super) utf8: bool,
}

/// Rows that have no value, and why. Those that are there already are left as they are.
pub(super) type Bad = BTreeMap<u32, Problem>;

/// What is wrong with a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Problem {
    /// The column in the file; `None` for the row as a whole.
    pub(super) column: Option<usize>,
    pub(super) what: String,
    pub(super) hint: Option<&'static str>,
}

impl Group<'_> {
    /// The values of column `column`. Rows without one get a zero, or an empty text, and are noted in `bad`.
    pub(super) fn column(&self, column: usize, kind: &Kind, bad: &mut Bad) -> Cells {
        match kind {
            Kind::Int32(default) => Cells::numbers(self.numbers(column, kind, number::int32, *default, bad)),
            Kind::Int64(default) => Cells::numbers(self.numbers(column, kind, number::int64, *default, bad)),
            Kind::Float32(default) => {
                Cells::numbers(self.numbers(column, kind, number::float32, *default, bad))
            }
            Kind::Float64(default) => {
                Cells::numbers(self.numbers(column, kind, number::float64, *default, bad))
            }
            Kind::Text(default) => self.texts(column, kind, default.as_deref(), bad),
        }
    }

    fn numbers<T: Copy + Default>(
        &self,
        column: usize,
        kind: &Kind,
        parse: impl Fn(&[u8]) -> Option<T>,
        default: Option<T>,
        bad: &mut Bad,
    ) -> Vec<T> {
        let missing = |text: &[u8]| text.is_empty() || text == self.missing;
        (0..self.fields.rows())
            .map(|row| {
                let raw = self.fields.raw(self.text, row, column);
                // What is missing may be a number: -999, say.
                if !raw.is_empty()
                    && raw != self.missing
                    && let Some(value) = parse(raw)
                {
                    return value;
                }
                let text = unquoted(raw, self.quotes);
                let value = if missing(&text) { default } else { parse(&text) };
                value.unwrap_or_else(|| {
                    bad.entry(row as u32).or_insert_with(|| wrong(column, kind, &text, missing(&text)));
                    T::default()
                })
            })
            .collect()
    }

    fn texts(&self, column: usize, kind: &Kind, default: Option<&str>, bad: &mut Bad) -> Cells {
        let rows = self.fields.rows();
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(rows + 1));
        ends.push(0_i32);
        for row in 0..rows {
            let text = unquoted(self.fields.raw(self.text, row, column), self.quotes);
            if text.is_empty() || *text == *self.missing {
                match default {
                    Some(default) => bytes.extend_from_slice(default.as_bytes()),
                    None => {
                        bad.entry(row as u32).or_insert_with(|| wrong(column, kind, &text, true));
                    }
                }
            } else if self.utf8 || std::str::from_utf8(&text).is_ok() {
                bytes.extend_from_slice(&text);
            } else {
                bad.entry(row as u32).or_insert_with(|| Problem {
                    column: Some(column),
                    what: format!("{}, which is not UTF-8", shown(&text)),
                    hint: None,
                });
            }
            // Groups have less than 2 GiB, and so have their texts, unless a default is long.
            let end = i32::try_from(bytes.len()).unwrap_or_else(|_| {
                let what = "one of so many texts that they have 2 GiB together".to_owned();
                bad.entry(row as u32).or_insert(Problem { column: Some(column), what, hint: None });
                bytes.truncate(ends.last().map_or(0, |end| *end as usize));
                bytes.len() as i32
            });
            ends.push(end);
        }
        Cells::texts(ends, bytes)
    }
}

fn wrong(column: usize, kind: &Kind, text: &[u8], missing: bool) -> Problem {
    let (what, hint) = if missing {
        (
            "missing, and has no default".to_owned(),
            "column_defaults=[...] says what stands for a missing value",
        )
    } else {
        let hint = "types follow from the first rows, unless column_defaults=[...] names them; num_rows_for_inference=None looks at \
                    all rows; ignore_errors=True leaves such rows out";
        (format!("{}, which is no {}", shown(text), kind.name()), hint)
    };
    Problem { column: Some(column), what, hint: Some(hint) }
}

/// The beginning of a text, for people.
pub(super) fn shown(text: &[u8]) -> String {
    const MOST: usize = 80;
    let start = String::from_utf8_lossy(text.get(..MOST * 4).unwrap_or(text));
    let mut short: String = start.chars().take(MOST).collect();
    if short.len() < start.len() || text.len() > MOST * 4 {
        short.push('…');
    }
    format!("{short:?}")
}
