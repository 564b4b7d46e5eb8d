//! [`Cells`]: the values of one column of some rows, in a form from which one row, or many, can be copied.

use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    FixedSizeListArray, GenericListArray, LargeBinaryArray, LargeStringArray, OffsetSizeTrait, StringArray,
    StringViewArray, StructArray,
    cast::AsArray,
    types::{
        Date32Type, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
        Time32MillisecondType, Time32SecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
    },
};
use arrow_buffer::{ArrowNativeType, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, TimeUnit};
use wellfed::{Error, ErrorKind, Result};

/// Where values of different lengths begin.
#[derive(Debug)]
pub(crate) enum Offsets {
    Small(OffsetBuffer<i32>),
    Large(OffsetBuffer<i64>),
}

impl Offsets {
    fn range(&self, row: usize) -> Option<(usize, usize)> {
        Some(match self {
            Self::Small(all) => (all.get(row)?.as_usize(), all.get(row + 1)?.as_usize()),
            Self::Large(all) => (all.get(row)?.as_usize(), all.get(row + 1)?.as_usize()),
        })
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Small(all) => all.len() * 4,
            Self::Large(all) => all.len() * 8,
        }
    }
}

/// The values themselves.
#[derive(Debug)]
enum Values {
    /// Of one size, in bytes.
    Fixed(usize, Buffer),
    /// So many bytes an entry, from offset to offset.
    Varying(usize, Offsets, Buffer),
    /// Entries that are values of another column, from offset to offset.
    Lists(Offsets, Box<Cells>),
    /// So many entries each of another column.
    FixedLists(usize, Box<Cells>),
    /// Numbers of values of another column.
    Dictionary(Vec<u32>, Box<Cells>),
}

/// One column of some rows.
#[derive(Debug)]
pub(crate) struct Cells {
    rows: usize,
    nulls: Option<NullBuffer>,
    values: Values,
}

/// Why a value cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    /// It, or a part of it, is null.
    Null,
    /// The lists inside of a list differ in length.
    Uneven,
    /// There is no such row, or it leads out of the values.
    Lost,
}

impl Cells {
    /// The values of `array`. Of a struct, those of its field `bytes`.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] for types that `kinds.rs` refuses.
    pub(crate) fn of(array: &ArrayRef) -> Result<Self> {
        let rows = array.len();
        let nulls = array.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
        let fixed = |size: usize, buffer: &Buffer| Values::Fixed(size, buffer.clone());
        macro_rules! primitive {
            ($kind:ty) => {{
                let values = array.as_primitive::<$kind>().values();
                fixed(size_of::<<$kind as ArrowPrimitiveType>::Native>(), values.inner())
            }};
        }
        // In batches, dates and times are whole numbers of 64 bits, whatever a file has.
        macro_rules! widened {
            ($kind:ty) => {{
                let values = array.as_primitive::<$kind>().values();
                let wide: Vec<i64> = values.iter().map(|value| i64::from(*value)).collect();
                Values::Fixed(8, Buffer::from_vec(wide))
            }};
        }
        let values = match array.data_type() {
            DataType::Boolean => Values::Fixed(1, bools(array.as_boolean())),
            DataType::Int8 => primitive!(Int8Type),
            DataType::UInt8 => primitive!(UInt8Type),
            DataType::Int16 => primitive!(Int16Type),
            DataType::UInt16 => primitive!(UInt16Type),
            DataType::Int32 => primitive!(Int32Type),
            DataType::UInt32 => primitive!(UInt32Type),
            DataType::Int64 => primitive!(Int64Type),
            DataType::UInt64 => primitive!(UInt64Type),
            DataType::Float16 => primitive!(Float16Type),
            DataType::Float32 => primitive!(Float32Type),
            DataType::Float64 => primitive!(Float64Type),
            DataType::Date32 => widened!(Date32Type),
            DataType::Time32(TimeUnit::Second) => widened!(Time32SecondType),
            DataType::Time32(_) => widened!(Time32MillisecondType),
            DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) | DataType::Duration(_) => {
                // All of them are 64 bits wide.
                let data = array.to_data();
                let buffer = data.buffers().first().ok_or_else(|| lost(array))?;
                fixed(8, &buffer.slice_with_length(data.offset() * 8, rows * 8))
            }
            DataType::Utf8 => {
                let array: &StringArray = array.as_string();
                Values::Varying(1, Offsets::Small(array.offsets().clone()), array.values().clone())
            }
            DataType::LargeUtf8 => {
                let array: &LargeStringArray = array.as_string();
                Values::Varying(1, Offsets::Large(array.offsets().clone()), array.values().clone())
            }
            DataType::Binary => {
                let array: &BinaryArray = array.as_binary();
                Values::Varying(1, Offsets::Small(array.offsets().clone()), array.values().clone())
            }
            DataType::LargeBinary => {
                let array: &LargeBinaryArray = array.as_binary();
                Values::Varying(1, Offsets::Large(array.offsets().clone()), array.values().clone())
            }
            DataType::Utf8View => {
                let array: &StringViewArray = array.as_string_view();
                gathered(array.iter().map(|value| value.map_or(&[][..], str::as_bytes)))
            }
            DataType::BinaryView => {
                let array: &BinaryViewArray = array.as_binary_view();
                gathered(array.iter().map(Option::unwrap_or_default))
            }
            DataType::FixedSizeBinary(size) => {
                let array: &FixedSizeBinaryArray = array.as_fixed_size_binary();
                let size = usize::try_from(*size).unwrap_or(0);
                Values::Fixed(size, array.values().clone())
            }
            DataType::List(_) => lists(array.as_list::<i32>())?,
            DataType::LargeList(_) => lists(array.as_list::<i64>())?,
            DataType::FixedSizeList(_, size) => {
                let array: &FixedSizeListArray = array.as_fixed_size_list();
                let (size, inner) = (usize::try_from(*size).unwrap_or(0), Self::of(array.values())?);
                match inner {
                    Self { nulls: None, values: Values::Fixed(one, bytes), .. } => {
                        Values::Fixed(one * size, bytes)
                    }
                    inner => Values::FixedLists(size, Box::new(inner)),
                }
            }
            DataType::Dictionary(..) => {
                let array = array.as_any_dictionary();
                // Without values, all rows are null.
                let keys = if array.values().is_empty() { vec![0; rows] } else { array.normalized_keys() };
                let keys = keys.into_iter().map(|key| u32::try_from(key).unwrap_or(u32::MAX)).collect();
                Values::Dictionary(keys, Box::new(Self::of(array.values())?))
            }
            DataType::Struct(_) => return Self::image(array.as_struct()),
            other => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!("values of type {other} cannot be read"),
                ));
            }
        };
        Ok(Self { rows, nulls, values })
    }

    fn image(array: &StructArray) -> Result<Self> {
        let bytes =
            array.column_by_name("bytes").ok_or_else(|| Error::corrupt("a struct has no field bytes"))?;
        let inner = Self::of(bytes)?;
        Ok(Self { nulls: NullBuffer::union(inner.nulls.as_ref(), array.nulls()), ..inner })
    }

    /// Numbers, one a row.
    pub(crate) fn numbers<T: ArrowNativeType>(values: Vec<T>) -> Self {
        Self {
            rows: values.len(),
            nulls: None,
            values: Values::Fixed(size_of::<T>(), Buffer::from_vec(values)),
        }
    }

    /// Rows of `width` numbers each.
    pub(crate) fn rows_of<T: ArrowNativeType>(values: Vec<T>, width: usize) -> Self {
        Self {
            rows: values.len().checked_div(width).unwrap_or(0),
            nulls: None,
            values: Values::Fixed(width * size_of::<T>(), Buffer::from_vec(values)),
        }
    }

    /// Texts that lie in `bytes`, each from one place to the next; the first place is 0.
    pub(crate) fn texts(places: Vec<i32>, bytes: Vec<u8>) -> Self {
        let offsets = Offsets::Small(OffsetBuffer::new(ScalarBuffer::from(places)));
        let rows = match &offsets {
            Offsets::Small(all) => all.len().saturating_sub(1),
            Offsets::Large(all) => all.len().saturating_sub(1),
        };
        Self { rows, nulls: None, values: Values::Varying(1, offsets, Buffer::from_vec(bytes)) }
    }

    /// Makes some rows null.
    pub(crate) fn leave_out(&mut self, rows: impl Iterator<Item = u32>) {
        let mut valid = vec![true; self.rows];
        for row in rows {
            if let Some(valid) = valid.get_mut(row as usize) {
                *valid = false;
            }
        }
        self.nulls = NullBuffer::union(self.nulls.as_ref(), Some(&NullBuffer::from(valid)));
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        let nulls = self.nulls.as_ref().map_or(0, |nulls| nulls.len() / 8);
        nulls
            + match &self.values {
                Values::Fixed(_, bytes) => bytes.len(),
                Values::Varying(_, offsets, bytes) => offsets.bytes() + bytes.len(),
                Values::Lists(offsets, inner) => offsets.bytes() + inner.bytes(),
                Values::FixedLists(_, inner) => inner.bytes(),
                Values::Dictionary(keys, inner) => keys.len() * 4 + inner.bytes(),
            }
    }

    /// True if row `row` is null.
    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| row < nulls.len() && nulls.is_null(row))
            || matches!(&self.values, Values::Dictionary(keys, inner) if keys.get(row).is_some_and(|key| inner.is_null(*key as usize)))
    }

    /// The bytes of a row that lie together: all but lists in lists.
    pub(crate) fn slice(&self, row: usize) -> Result<&[u8], Missing> {
        if row >= self.rows {
            return Err(Missing::Lost);
        }
        if self.is_null(row) {
            return Err(Missing::Null);
        }
        match &self.values {
            Values::Fixed(size, bytes) => bytes.get(row * size..(row + 1) * size).ok_or(Missing::Lost),
            Values::Varying(size, offsets, bytes) => {
                let (start, end) = offsets.range(row).ok_or(Missing::Lost)?;
                bytes.get(start * size..end * size).ok_or(Missing::Lost)
            }
            Values::Dictionary(keys, inner) => inner.slice(keys[row] as usize),
            Values::Lists(..) | Values::FixedLists(..) => Err(Missing::Lost),
        }
    }

    /// Bytes of a row, or of all that it is made of.
    pub(crate) fn len(&self, row: usize) -> usize {
        match self.inner(row) {
            None => self.slice(row).map_or(0, <[u8]>::len),
            Some((inner, start, end)) => (start..end).map(|row| inner.len(row)).sum(),
        }
    }

    /// Of lists, where the entries of a row are.
    fn inner(&self, row: usize) -> Option<(&Self, usize, usize)> {
        match &self.values {
            Values::Lists(offsets, inner) => {
                let (start, end) = offsets.range(row)?;
                Some((inner, start, end))
            }
            Values::FixedLists(size, inner) => Some((inner, row * size, (row + 1) * size)),
            Values::Dictionary(keys, inner) => inner.inner(*keys.get(row)? as usize),
            Values::Fixed(..) | Values::Varying(..) => None,
        }
    }

    /// Appends the bytes of a row to `into`, and the sides of lists to `shape`: of one entry of `size` bytes each.
    pub(crate) fn copy(
        &self,
        row: usize,
        size: usize,
        into: &mut Vec<u8>,
        shape: &mut Vec<usize>,
    ) -> Result<(), Missing> {
        if self.is_null(row) {
            return Err(Missing::Null);
        }
        let Some((inner, start, end)) = self.inner(row) else {
            let bytes = self.slice(row)?;
            // One element by itself has no side.
            if bytes.len() != size || !matches!(self.values, Values::Fixed(..)) {
                shape.push(bytes.len() / size.max(1));
            }
            into.extend_from_slice(bytes);
            return Ok(());
        };
        shape.push(end - start);
        let at = shape.len();
        for entry in start..end {
            if entry == start {
                inner.copy(entry, size, into, shape)?;
                continue;
            }
            let mut sides = Vec::with_capacity(1);
            inner.copy(entry, size, into, &mut sides)?;
            if sides != shape[at..] {
                return Err(Missing::Uneven);
            }
        }
        Ok(())
    }

    /// The values of all rows, one behind the other, if each has `size` bytes.
    pub(crate) fn plain(&self, size: usize) -> Option<&[u8]> {
        match &self.values {
            Values::Fixed(own, bytes) if *own == size => bytes.get(..self.rows.checked_mul(size)?),
            _ => None,
        }
    }

    /// The numbers of all rows, if each is one of this type. What Arrow calls numbers of a type is aligned for it.
    pub(crate) fn typed<T: ArrowNativeType>(&self) -> Option<&[T]> {
        match &self.values {
            Values::Fixed(size, bytes) if *size == size_of::<T>() => bytes.typed_data::<T>().get(..self.rows),
            _ => None,
        }
    }

    /// The number of a row, which is of this type; `None` for null.
    pub(crate) fn number<T: ArrowNativeType>(&self, row: usize) -> Option<T> {
        if self.is_null(row) {
            return None;
        }
        match &self.values {
            Values::Dictionary(keys, inner) => inner.number(*keys.get(row)? as usize),
            _ => self.typed::<T>()?.get(row).copied(),
        }
    }

    /// Whether some row is null.
    pub(crate) fn has_nulls(&self) -> bool {
        self.nulls.is_some() || matches!(&self.values, Values::Dictionary(_, inner) if inner.has_nulls())
    }
}

fn lost(array: &ArrayRef) -> Error {
    Error::corrupt(format!("an array of {} has no values", array.data_type()))
}

fn bools(array: &BooleanArray) -> Buffer {
    let bytes: Vec<u8> = array.values().iter().map(u8::from).collect();
    Buffer::from_vec(bytes)
}

fn gathered<'a>(values: impl Iterator<Item = &'a [u8]>) -> Values {
    let (mut bytes, mut ends) = (Vec::new(), vec![0_i64]);
    for value in values {
        bytes.extend_from_slice(value);
        ends.push(bytes.len() as i64);
    }
    Values::Varying(1, Offsets::Large(OffsetBuffer::new(ScalarBuffer::from(ends))), Buffer::from_vec(bytes))
}

fn lists<O: OffsetSizeTrait>(array: &GenericListArray<O>) -> Result<Values> {
    let offsets: &[O] = array.value_offsets();
    let offsets = Offsets::Large(OffsetBuffer::new(offsets.iter().map(|at| at.as_usize() as i64).collect()));
    Ok(match Cells::of(array.values())? {
        Cells { nulls: None, values: Values::Fixed(size, bytes), .. } => {
            Values::Varying(size, offsets, bytes)
        }
        inner => Values::Lists(offsets, Box::new(inner)),
    })
}
