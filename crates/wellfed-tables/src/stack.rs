//! [`Layout`]: which fields the columns of a table become: fields of their own, or numbers of a stack, a row behind the other.
//!
//! A stack is made when a group is decoded, once for all epochs that find the group kept; a batch then copies one run of bytes a
//! row, and not one for each column.

use std::collections::HashMap;

use chrono::Timelike as _;
use wellfed::{
    Error, ErrorKind, Result,
    groups::Growth,
    sample::{DType, FieldKind},
    source::tables::{DatePart, Encoding, Stack, Stacked},
};

use crate::{
    cells::Cells,
    container::{Decoded, room},
    dates::{self, Written},
    kinds::Column,
};

/// Rows of which all columns are written before the next ones: what is written stays in the cache meanwhile.
const TILE: usize = 512;

/// Which fields some columns become.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    /// Columns that are fields of their own, in order. They come first.
    kept: Vec<usize>,
    matrices: Vec<Matrix>,
}

/// A stack of some columns.
#[derive(Debug)]
struct Matrix {
    name: String,
    dtype: DType,
    width: usize,
    inputs: Vec<Input>,
}

/// A column in a stack.
#[derive(Debug)]
struct Input {
    column: usize,
    /// Where in a row its numbers begin.
    at: usize,
    encoder: Encoder,
}

/// Where in a vocabulary a word stands. Each value of a column is looked up.
type Places<K> = HashMap<K, u32, rapidhash::fast::RandomState>;

/// An encoding, made ready.
#[derive(Debug)]
enum Encoder {
    Number { mean: f64, std: f64, missing: Option<f64>, indicator: bool },
    Texts { places: Places<Box<[u8]>>, oov: bool, one_hot: bool },
    Wholes { places: Places<i64>, oov: bool, one_hot: bool },
    Hash { bins: u64, one_hot: bool },
    Date { written: Written, parts: Vec<DatePart>, fractions: bool, missing: Option<f64>, indicator: bool },
}

/// What a row cannot be had for.
type Bad = (u32, Error);

impl Layout {
    /// The fields of `columns` with these stacks.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for columns that there are not or that are in two stacks, names that are taken, and encodings that
    /// do not fit.
    pub(crate) fn new(columns: &[Column], stacks: &[Stack]) -> Result<Self> {
        let mut taken = vec![false; columns.len()];
        let mut matrices = Vec::with_capacity(stacks.len());
        for stack in stacks {
            stack.check()?;
            matrices.push(Matrix::new(columns, stack, &mut taken)?);
        }
        let kept: Vec<usize> = (0..columns.len()).filter(|at| !taken[*at]).collect();
        let this = Self { kept, matrices };
        let fields = this.fields(columns);
        let twice = |at: usize| fields[..at].iter().any(|field| field.name == fields[at].name);
        match (0..fields.len()).find(|at| twice(*at)) {
            Some(at) => Err(Error::config(format!("two fields are called {:?}", fields[at].name))
                .with_hint("give the stack another name")),
            None => Ok(this),
        }
    }

    /// Whether all columns are fields as they are.
    pub(crate) fn is_plain(&self) -> bool {
        self.matrices.is_empty()
    }

    /// What the fields are, as columns.
    pub(crate) fn fields(&self, columns: &[Column]) -> Vec<Column> {
        let kept = self.kept.iter().map(|at| columns[*at].clone());
        let matrices = self.matrices.iter().map(|matrix| Column {
            name: matrix.name.clone(),
            root: usize::MAX,
            kind: FieldKind::Array { dtype: matrix.dtype, shape: vec![Some(matrix.width)] },
            size: matrix.dtype.size(),
            data_type: arrow_schema::DataType::Null,
        });
        kept.chain(matrices).collect()
    }

    /// The field that a column is, if it is one of its own.
    pub(crate) fn field_of(&self, column: usize) -> Option<usize> {
        self.kept.iter().position(|at| *at == column)
    }

    /// Bytes that the stacks of so many rows take.
    pub(crate) fn bytes(&self, rows: u64) -> u64 {
        let one = |matrix: &Matrix| (matrix.width * matrix.dtype.size()) as u64;
        rows.saturating_mul(self.matrices.iter().map(one).sum())
    }

    /// The fields of a group, of its decoded `columns`; and how many bytes they hold.
    ///
    /// # Errors
    /// [`ErrorKind::Limit`] if there is no memory for the stacks.
    pub(crate) fn apply(
        &self,
        decoded: Vec<Decoded>,
        columns: &[Column],
        growth: &Growth<'_>,
    ) -> Result<(Vec<Decoded>, u64)> {
        let rows = decoded.first().map_or(0, Decoded::rows);
        growth.take(self.bytes(rows as u64))?;
        let mut bad: Vec<Bad> = Vec::new();
        let mut matrices = Vec::with_capacity(self.matrices.len());
        for matrix in &self.matrices {
            matrices.push(matrix.make(&decoded, columns, rows, &mut bad)?);
        }
        let held = decoded.iter().map(Decoded::bytes).sum::<u64>();
        // What was wrong before is said in the first column.
        let mut columns: Vec<Option<Decoded>> = decoded.into_iter().map(Some).collect();
        let known = columns.first_mut().and_then(Option::as_mut).map(|first| std::mem::take(&mut first.bad));
        let mut all = known.unwrap_or_default();
        bad.retain(|(row, _)| all.binary_search_by_key(row, |(known, _)| *known).is_err());
        all.extend(bad);
        all.sort_by_key(|(row, _)| *row);
        all.dedup_by_key(|(row, _)| *row);
        for cells in matrices.iter_mut().filter(|_| !all.is_empty()) {
            cells.leave_out(all.iter().map(|(row, _)| *row));
        }
        let kept = self.kept.iter().filter_map(|at| columns.get_mut(*at)?.take());
        let made =
            matrices.into_iter().map(|cells| Decoded { batch: rows, chunks: vec![cells], bad: Vec::new() });
        let mut fields: Vec<Decoded> = kept.chain(made).collect();
        if let Some(first) = fields.first_mut() {
            first.bad = all;
        }
        let now = fields.iter().map(Decoded::bytes).sum::<u64>();
        growth.give((held + self.bytes(rows as u64)).saturating_sub(now));
        Ok((fields, now))
    }
}

impl Matrix {
    fn new(columns: &[Column], stack: &Stack, taken: &mut [bool]) -> Result<Self> {
        let mut inputs = Vec::with_capacity(stack.columns.len());
        let mut at = 0;
        for Stacked { column: name, encoding } in &stack.columns {
            let column = columns.iter().position(|column| column.name == *name).ok_or_else(|| {
                let there: Vec<&str> = columns.iter().take(20).map(|column| column.name.as_str()).collect();
                Error::config(format!("there is no column {name:?} to stack: there are {}", there.join(", ")))
            })?;
            if taken[column] {
                return Err(Error::config(format!("column {name:?} is stacked twice")));
            }
            taken[column] = true;
            let encoder = Encoder::new(&columns[column], encoding, stack.dtype)?;
            inputs.push(Input { column, at, encoder });
            // `Stack::check` bounds it.
            at += encoding.width() as usize;
        }
        Ok(Self { name: stack.name.clone(), dtype: stack.dtype, width: at, inputs })
    }

    fn make(
        &self,
        decoded: &[Decoded],
        columns: &[Column],
        rows: usize,
        bad: &mut Vec<Bad>,
    ) -> Result<Cells> {
        match self.dtype {
            DType::Float32 => self.rows::<f32>(decoded, columns, rows, bad),
            DType::Float64 => self.rows::<f64>(decoded, columns, rows, bad),
            DType::Int32 => self.rows::<i32>(decoded, columns, rows, bad),
            _ => self.rows::<i64>(decoded, columns, rows, bad),
        }
    }

    fn rows<T: Number>(
        &self,
        decoded: &[Decoded],
        columns: &[Column],
        rows: usize,
        bad: &mut Vec<Bad>,
    ) -> Result<Cells> {
        let count = room((rows * self.width * size_of::<T>()) as u64, "a stack")? / size_of::<T>();
        let mut out = vec![T::ZERO; count];
        for (tile, out) in out.chunks_mut(TILE * self.width).enumerate() {
            for input in &self.inputs {
                let (from, column) = (&decoded[input.column], &columns[input.column]);
                let mut to =
                    Rows { out: &mut *out, width: self.width, at: input.at, first: tile * TILE, bad };
                input.encoder.encode(from, column, &mut to);
            }
        }
        Ok(Cells::rows_of(out, self.width))
    }
}

/// Where the numbers of one column go, for some rows.
struct Rows<'a, T> {
    out: &'a mut [T],
    width: usize,
    at: usize,
    /// Number of the first row in the group.
    first: usize,
    bad: &'a mut Vec<Bad>,
}

impl<T: Number> Rows<'_, T> {
    fn count(&self) -> usize {
        self.out.len() / self.width
    }

    fn set(&mut self, row: usize, offset: usize, value: T) {
        self.out[row * self.width + self.at + offset] = value;
    }

    fn refuse(&mut self, row: usize, error: Error) {
        // Rows of a group are counted in 32 bits.
        self.bad.push((u32::try_from(self.first + row).unwrap_or(u32::MAX), error));
    }

    fn index(&mut self, row: usize, index: usize, one_hot: bool) {
        match one_hot {
            true => self.set(row, index, T::ONE),
            false => self.set(row, 0, T::of_f64(index as f64)),
        }
    }
}

/// What stacks hold.
trait Number: arrow_buffer::ArrowNativeType {
    const ZERO: Self;
    const ONE: Self;
    fn of_f64(value: f64) -> Self;
    /// `None`, if it does not fit.
    fn of_i64(value: i64) -> Option<Self>;
    fn of_u64(value: u64) -> Option<Self>;
}

macro_rules! number {
    ($kind:ty, $i64:expr, $u64:expr) => {
        impl Number for $kind {
            const ZERO: Self = 0 as $kind;
            const ONE: Self = 1 as $kind;
            fn of_f64(value: f64) -> Self {
                value as $kind
            }
            fn of_i64(value: i64) -> Option<Self> {
                $i64(value)
            }
            fn of_u64(value: u64) -> Option<Self> {
                $u64(value)
            }
        }
    };
}

number!(f32, |value| Some(value as f32), |value| Some(value as f32));
number!(f64, |value| Some(value as f64), |value| Some(value as f64));
number!(i32, |value| i32::try_from(value).ok(), |value| i32::try_from(value).ok());
number!(i64, Some, |value| i64::try_from(value).ok());

/// The type of a column's values, if each is one number.
fn scalar(column: &Column) -> Option<DType> {
    match &column.kind {
        FieldKind::Scalar { dtype } => Some(*dtype),
        _ => None,
    }
}

fn is_whole(dtype: DType) -> bool {
    !matches!(dtype, DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64)
}

impl Encoder {
    fn new(column: &Column, encoding: &Encoding, dtype: DType) -> Result<Self> {
        let name = &column.name;
        let refused = |what: String| Err(Error::config(format!("column {name:?} {what}")));
        let (text, number) = (column.kind == FieldKind::Text, scalar(column));
        match encoding {
            Encoding::Number { mean, std, missing, indicator } => {
                let Some(own) = number else {
                    return match text {
                        true => Err(Error::config(format!("column {name:?} is text, and no number"))
                            .with_hint("stack it as a Category, or leave it out")),
                        false => refused("is no column of single numbers, and cannot be stacked".to_owned()),
                    };
                };
                let changes =
                    *mean != 0.0 || *std != 1.0 || missing.is_some_and(|value| value.fract() != 0.0);
                if is_whole(dtype) && (!is_whole(own) || changes) {
                    return refused(format!(
                        "has {} values{}, which a stack of {} would cut",
                        own.name(),
                        if changes { " that are standardized" } else { "" },
                        dtype.name()
                    ));
                }
                Ok(Self::Number { mean: *mean, std: *std, missing: *missing, indicator: *indicator })
            }
            Encoding::Vocabulary { vocabulary, num_oov_indices, one_hot } => {
                let oov = *num_oov_indices > 0;
                let first = u32::from(*num_oov_indices);
                let one_hot = *one_hot;
                if text {
                    let places = vocabulary.iter().map(|word| word.as_bytes().into()).zip(first..).collect();
                    return Ok(Self::Texts { places, oov, one_hot });
                }
                if !number.is_some_and(is_whole) {
                    return refused("is neither text nor whole numbers, and has no vocabulary".to_owned());
                }
                let mut places =
                    Places::with_capacity_and_hasher(vocabulary.len(), rapidhash::fast::RandomState::new());
                for (word, place) in vocabulary.iter().zip(first..) {
                    let Ok(value) = word.parse::<i64>() else {
                        return refused(format!("has whole numbers, and its vocabulary has {word:?}"));
                    };
                    places.insert(value, place);
                }
                Ok(Self::Wholes { places, oov, one_hot })
            }
            Encoding::Hash { num_bins, one_hot } => {
                if !text && !number.is_some_and(is_whole) {
                    return refused("is neither text nor whole numbers, and is not hashed".to_owned());
                }
                Ok(Self::Hash { bins: u64::from(*num_bins), one_hot: *one_hot })
            }
            Encoding::Date { parts, format, missing, indicator } => {
                let written = match (text, format) {
                    (true, format) => Written::texts(format.as_deref())?,
                    (false, Some(format)) => {
                        return refused(format!("is no text, so that no format {format:?} is of use"));
                    }
                    (false, None) => match Written::numbers(&column.data_type) {
                        Some(written) => written,
                        None => return refused(format!("is {}, and no date", column.data_type)),
                    },
                };
                let (fractions, parts) = (!is_whole(dtype), parts.clone());
                Ok(Self::Date { written, parts, fractions, missing: *missing, indicator: *indicator })
            }
        }
    }

    /// Writes the numbers of some rows.
    fn encode<T: Number>(&self, from: &Decoded, column: &Column, to: &mut Rows<'_, T>) {
        match self {
            Self::Number { mean, std, missing, indicator } => {
                let how = Standard { mean: *mean, std: *std, missing: *missing, indicator: *indicator };
                how.encode(from, column, to);
            }
            Self::Texts { places, oov, one_hot } => {
                for row in 0..to.count() {
                    let word = bytes_of(from, to.first + row);
                    let place = word.and_then(|word| places.get(word).copied());
                    placed(place, *oov, *one_hot, row, to, || word.map(beginning), column);
                }
            }
            Self::Wholes { places, oov, one_hot } => {
                for row in 0..to.count() {
                    let value = whole_of(from, to.first + row, column);
                    let known = value.and_then(|value| i64::try_from(value).ok());
                    let place = known.and_then(|value| places.get(&value).copied());
                    placed(place, *oov, *one_hot, row, to, || value.map(|value| value.to_string()), column);
                }
            }
            Self::Hash { bins, one_hot } => {
                for row in 0..to.count() {
                    let hash = match scalar(column) {
                        None => {
                            rapidhash::v3::rapidhash_v3(bytes_of(from, to.first + row).unwrap_or_default())
                        }
                        Some(_) => {
                            let text = whole_of(from, to.first + row, column).map(|value| value.to_string());
                            rapidhash::v3::rapidhash_v3(text.unwrap_or_default().as_bytes())
                        }
                    };
                    to.index(row, (hash % bins) as usize, *one_hot);
                }
            }
            Self::Date { written, parts, fractions, missing, indicator } => {
                for row in 0..to.count() {
                    match date_of(from, to.first + row, column, written) {
                        Ok(Some(time)) => {
                            // The second that has begun, also before 1970.
                            let whole = time.with_nanosecond(0).filter(|_| !fractions).unwrap_or(time);
                            for (at, which) in parts.iter().enumerate() {
                                to.set(row, at, T::of_f64(dates::part(&whole, *which)));
                            }
                        }
                        Ok(None) => match missing {
                            Some(missing) => {
                                (0..parts.len()).for_each(|at| to.set(row, at, T::of_f64(*missing)));
                                if *indicator {
                                    to.set(row, parts.len(), T::ONE);
                                }
                            }
                            None => {
                                let error = Error::corrupt(format!("column {:?} has no date", column.name));
                                to.refuse(
                                    row,
                                    error.with_hint("Date(column, missing=0) has a number for it"),
                                );
                            }
                        },
                        Err(what) => {
                            let error = Error::corrupt(format!(
                                "column {:?} has {what}, which is no date of this form",
                                column.name
                            ));
                            to.refuse(
                                row,
                                error.with_hint("Date(column, format=\"%d/%m/%Y\") says another form"),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// The date of a row; none for null and empty texts. Else what there is in its place.
fn date_of(
    from: &Decoded,
    row: usize,
    column: &Column,
    written: &Written,
) -> std::result::Result<Option<chrono::NaiveDateTime>, String> {
    if scalar(column).is_some() {
        let Some(value) = whole_of(from, row, column) else { return Ok(None) };
        let time = i64::try_from(value).ok().and_then(|value| written.of_number(value));
        return time.map(Some).ok_or_else(|| value.to_string());
    }
    match bytes_of(from, row) {
        None | Some([]) => Ok(None),
        Some(bytes) => {
            let time = std::str::from_utf8(bytes).ok().and_then(|text| written.of_text(text));
            time.map(Some).ok_or_else(|| beginning(bytes))
        }
    }
}

/// The beginning of a text, for people.
fn beginning(text: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&text[..text.len().min(100)]))
}

/// Writes the place of a value in a vocabulary, or refuses the row.
fn placed<T: Number>(
    place: Option<u32>,
    oov: bool,
    one_hot: bool,
    row: usize,
    to: &mut Rows<'_, T>,
    value: impl Fn() -> Option<String>,
    column: &Column,
) {
    match place {
        Some(place) => to.index(row, place as usize, one_hot),
        None if oov => to.index(row, 0, one_hot),
        None => {
            let what = value().map_or("is null".to_owned(), |value| format!("has {value}"));
            let error =
                Error::corrupt(format!("column {:?} {what}, which its vocabulary has not", column.name));
            to.refuse(row, error.with_hint("num_oov_indices=1 keeps an index for such values"));
        }
    }
}

/// The bytes of a value; `None` for null.
fn bytes_of(from: &Decoded, row: usize) -> Option<&[u8]> {
    let (cells, at) = from.at(row)?;
    cells.slice(at).ok()
}

/// A whole number; `None` for null.
fn whole_of(from: &Decoded, row: usize, column: &Column) -> Option<i128> {
    let (cells, at) = from.at(row)?;
    Some(match scalar(column)? {
        DType::Bool | DType::UInt8 => cells.number::<u8>(at)?.into(),
        DType::Int8 => cells.number::<i8>(at)?.into(),
        DType::UInt16 => cells.number::<u16>(at)?.into(),
        DType::Int16 => cells.number::<i16>(at)?.into(),
        DType::UInt32 => cells.number::<u32>(at)?.into(),
        DType::Int32 => cells.number::<i32>(at)?.into(),
        DType::UInt64 => cells.number::<u64>(at)?.into(),
        DType::Int64 => cells.number::<i64>(at)?.into(),
        _ => return None,
    })
}

/// A number, standardized.
struct Standard {
    mean: f64,
    std: f64,
    missing: Option<f64>,
    indicator: bool,
}

impl Standard {
    fn encode<T: Number>(&self, from: &Decoded, column: &Column, to: &mut Rows<'_, T>) {
        let plain = self.mean == 0.0 && self.std == 1.0;
        macro_rules! wholes {
            ($kind:ty, $of:path) => {
                self.each::<$kind, T>(from, column, to, |value| match plain {
                    true => $of(value.into()),
                    false => Some(T::of_f64((value as f64 - self.mean) / self.std)),
                })
            };
        }
        macro_rules! floats {
            ($kind:ty) => {
                self.each::<$kind, T>(from, column, to, |value| {
                    let value = f64::from(value);
                    Some(T::of_f64(if plain { value } else { (value - self.mean) / self.std }))
                })
            };
        }
        match scalar(column) {
            Some(DType::Bool | DType::UInt8) => wholes!(u8, T::of_i64),
            Some(DType::Int8) => wholes!(i8, T::of_i64),
            Some(DType::UInt16) => wholes!(u16, T::of_i64),
            Some(DType::Int16) => wholes!(i16, T::of_i64),
            Some(DType::UInt32) => wholes!(u32, T::of_i64),
            Some(DType::Int32) => wholes!(i32, T::of_i64),
            Some(DType::UInt64) => wholes!(u64, T::of_u64),
            Some(DType::Int64) => wholes!(i64, T::of_i64),
            Some(DType::Float16) => floats!(half::f16),
            Some(DType::Float32) => floats!(f32),
            Some(DType::Float64) => floats!(f64),
            // `Encoder::new` takes no others.
            Some(DType::BFloat16) | None => {}
        }
    }

    fn each<V: arrow_buffer::ArrowNativeType, T: Number>(
        &self,
        from: &Decoded,
        column: &Column,
        to: &mut Rows<'_, T>,
        number: impl Fn(V) -> Option<T>,
    ) {
        let count = to.count();
        let missing = self.missing.map(|value| T::of_f64((value - self.mean) / self.std));
        let mut row = 0;
        while row < count {
            let Some((cells, at)) = from.at(to.first + row) else { return };
            let run = (cells.rows() - at).min(count - row);
            let values = cells.typed::<V>();
            match values.filter(|_| !cells.has_nulls() && self.missing.is_none() && !self.indicator) {
                Some(values) => {
                    let width = to.width;
                    let out = to.out[row * width + to.at..].iter_mut().step_by(width);
                    let mut lost = false;
                    for (out, value) in out.zip(&values[at..at + run]) {
                        match number(*value) {
                            Some(value) => *out = value,
                            None => lost = true,
                        }
                    }
                    if lost {
                        for i in (0..run).filter(|i| number(values[at + i]).is_none()) {
                            self.does_not_fit(values[at + i], row + i, column, to);
                        }
                    }
                }
                None => {
                    for i in 0..run {
                        let value = self.value::<V>(cells, at + i);
                        match (value, missing) {
                            (Some(value), _) => match number(value) {
                                Some(value) => to.set(row + i, 0, value),
                                None => self.does_not_fit(value, row + i, column, to),
                            },
                            (None, Some(missing)) => to.set(row + i, 0, missing),
                            (None, None) => {
                                let error = Error::corrupt(format!("column {:?} is null", column.name));
                                to.refuse(
                                    row + i,
                                    error.with_hint("Number(column, missing=0.0) has a number for it"),
                                );
                            }
                        }
                        if self.indicator {
                            to.set(row + i, 1, if value.is_none() { T::ONE } else { T::ZERO });
                        }
                    }
                }
            }
            row += run;
        }
    }

    /// A value; `None` for null, and for NaN if that is a missing value.
    fn value<V: arrow_buffer::ArrowNativeType>(&self, cells: &Cells, row: usize) -> Option<V> {
        let value: V = cells.number(row)?;
        // Only NaN differs from itself.
        #[allow(clippy::eq_op, reason = "of floats, that is the question")]
        let nan = value != value;
        (!nan || (self.missing.is_none() && !self.indicator)).then_some(value)
    }

    fn does_not_fit<V: std::fmt::Debug, T: Number>(
        &self,
        value: V,
        row: usize,
        column: &Column,
        to: &mut Rows<'_, T>,
    ) {
        let error = Error::new(
            ErrorKind::Corrupt,
            format!(
                "column {:?} has {value:?}, which does not fit the stack's numbers of {} bits",
                column.name,
                8 * size_of::<T>()
            ),
        );
        to.refuse(row, error.with_hint("stack with dtype=\"int64\" or \"float64\""));
    }
}
