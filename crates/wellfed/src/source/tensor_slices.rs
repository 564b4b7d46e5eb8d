//! Arrays in memory, one sample a row. Nothing is copied: rows are handed out where they lie.
//!
//! Rows of a [`RaggedData`] differ in length: tokens, points, sounds.

use std::{fmt, ops::Range, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{Fingerprint, Source, SourceSpec, beyond_the_end};
use crate::{
    Error, ErrorKind, Result,
    sample::{DType, FieldKind, FieldSpec, PixelLayout, Record, Schema, Structure, Value},
};

/// Memory that belongs to somebody else, kept alive by this handle. It must not change while it is used.
pub type Memory = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// An array in C order, native byte order and somebody's memory.
#[derive(Clone)]
pub struct ArrayData {
    memory: Memory,
    dtype: DType,
    shape: Vec<usize>,
    row_bytes: usize,
}

impl fmt::Debug for ArrayData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.dtype.name(), self.shape)
    }
}

impl ArrayData {
    /// The array of `dtype` and `shape` `[n, ...]` whose elements are `memory`, without gaps.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if the shape has no dimension, or does not need exactly the bytes there are.
    pub fn new(memory: Memory, dtype: DType, shape: Vec<usize>) -> Result<Self> {
        let Some((&rows, row)) = shape.split_first() else {
            return Err(Error::config("a single number has no first dimension to take samples from"));
        };
        let row_bytes = row.iter().try_fold(dtype.size(), |size, n| size.checked_mul(*n));
        let needed = row_bytes.and_then(|size| size.checked_mul(rows));
        let given = (*memory).as_ref().len();
        match (row_bytes, needed) {
            (Some(row_bytes), Some(needed)) if needed == given => {
                Ok(Self { memory, dtype, shape, row_bytes })
            }
            _ => Err(Error::config(format!(
                "an array of {} and shape {shape:?} does not have {given} bytes",
                dtype.name()
            ))),
        }
    }

    /// The array that owns `bytes`; see [`ArrayData::new`].
    ///
    /// # Errors
    /// Those of [`ArrayData::new`].
    pub fn from_vec(bytes: Vec<u8>, dtype: DType, shape: Vec<usize>) -> Result<Self> {
        Self::new(Arc::new(bytes), dtype, shape)
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Shape, the number of rows first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.shape[0]
    }

    /// All elements.
    pub fn bytes(&self) -> &[u8] {
        (*self.memory).as_ref()
    }

    /// Row `index` of a one-dimensional array of int64.
    ///
    /// # Errors
    /// [`ErrorKind::State`] if there is no such row.
    pub fn whole(&self, index: usize) -> Result<i64> {
        let bytes = self.row(index).and_then(|row| row.try_into().ok());
        bytes.map(i64::from_ne_bytes).ok_or_else(|| {
            Error::new(ErrorKind::State, format!("an array of {self:?} has no whole number {index}"))
        })
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> Option<&[u8]> {
        if index >= self.rows() {
            return None;
        }
        let start = index * self.row_bytes;
        (*self.memory).as_ref().get(start..start + self.row_bytes)
    }
}

/// Rows that differ in length: the rows of `values` from one offset to the next.
#[derive(Clone, Debug)]
pub struct RaggedData {
    values: ArrayData,
    offsets: ArrayData,
}

impl RaggedData {
    /// Row `i` is `values[offsets[i]..offsets[i + 1]]`. `offsets` are int64, one more than there are rows.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if offsets are of another form, fall, or lead out of the values.
    pub fn new(values: ArrayData, offsets: ArrayData) -> Result<Self> {
        if offsets.dtype != DType::Int64 || offsets.shape.len() != 1 || offsets.shape[0] == 0 {
            return Err(Error::config(format!(
                "offsets are {offsets:?}; they must be int64 in one dimension, one more than there are rows"
            )));
        }
        let mut last = 0;
        for row in 0..offsets.rows() {
            let offset = offsets.whole(row)?;
            if offset < last {
                return Err(Error::config(format!("offset {row} is {offset}, less than {last}")));
            }
            last = offset;
        }
        if usize::try_from(last).is_ok_and(|last| last <= values.rows()) {
            return Ok(Self { values, offsets });
        }
        Err(Error::config(format!("the last offset is {last}, but there are {} values", values.rows())))
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.offsets.rows() - 1
    }

    /// All values, of all rows.
    pub fn values(&self) -> &ArrayData {
        &self.values
    }

    /// Where rows begin, and where the last one ends.
    pub fn offsets(&self) -> &ArrayData {
        &self.offsets
    }

    /// Where row `index` begins and ends in the values.
    fn range(&self, index: usize) -> Option<Range<usize>> {
        let pair = self.offsets.bytes().get(index.checked_mul(8)?..)?.get(..16)?;
        let at = |bytes: &[u8]| usize::try_from(i64::from_ne_bytes(bytes.try_into().ok()?)).ok();
        Some(at(&pair[..8])?..at(&pair[8..])?)
    }

    /// Length of row `index`, in values.
    pub fn length(&self, index: usize) -> Option<usize> {
        let range = self.range(index)?;
        range.end.checked_sub(range.start)
    }

    /// The bytes of row `index`.
    pub fn row(&self, index: usize) -> Option<&[u8]> {
        let range = self.range(index)?;
        let size = self.values.row_bytes;
        self.values.bytes().get(range.start.checked_mul(size)?..range.end.checked_mul(size)?)
    }
}

/// The rows of one field.
#[derive(Clone, Debug)]
pub enum Rows {
    /// Of one size.
    Dense(ArrayData),
    /// Of different lengths.
    Ragged(RaggedData),
}

impl From<ArrayData> for Rows {
    fn from(array: ArrayData) -> Self {
        Self::Dense(array)
    }
}

impl From<RaggedData> for Rows {
    fn from(array: RaggedData) -> Self {
        Self::Ragged(array)
    }
}

impl Rows {
    fn len(&self) -> usize {
        match self {
            Self::Dense(array) => array.rows(),
            Self::Ragged(ragged) => ragged.rows(),
        }
    }

    fn row(&self, index: usize) -> Option<&[u8]> {
        match self {
            Self::Dense(array) => array.row(index),
            Self::Ragged(ragged) => ragged.row(index),
        }
    }

    /// What the plan says of them.
    fn spec(&self, name: String, pixels: Pixels) -> ArraySpec {
        let (array, shape, values) = match self {
            Self::Dense(array) => (array, array.shape.iter().copied().map(Some).collect(), None),
            Self::Ragged(ragged) => {
                let rest = ragged.values.shape[1..].iter().copied().map(Some);
                let shape = [Some(ragged.rows()), None].into_iter().chain(rest).collect();
                (&ragged.values, shape, Some(ragged.values.rows()))
            }
        };
        ArraySpec { name, dtype: array.dtype, shape, values, pixels }
    }
}

/// Whether rows of 8-bit numbers are images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pixels {
    /// By dtype and shape: uint8 `[n, h, w]` is grey; `[n, h, w, c]` with c of 1, 3 or 4 is interleaved; else
    /// `[n, c, h, w]` with such a c is planar. Anything else is no image.
    #[default]
    Infer,
    /// Images as `[n, h, w, c]` (or `[n, h, w]`).
    Hwc,
    /// Images as `[n, c, h, w]` (or `[n, h, w]`).
    Chw,
    /// No images: rows are arrays of numbers, which image transforms refuse.
    Never,
}

/// One array as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArraySpec {
    /// Field name.
    pub name: String,
    /// Element type.
    pub dtype: DType,
    /// Shape, the number of samples first. `None` second: rows differ in length, and are given as two arrays, values
    /// and offsets.
    pub shape: Vec<Option<usize>>,
    /// Of such rows, the length of all together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub values: Option<usize>,
    /// Whether its rows are images.
    #[serde(default)]
    pub pixels: Pixels,
}

/// Arrays in memory as data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TensorSlicesSpec {
    /// The arrays in order.
    pub fields: Vec<ArraySpec>,
    /// How samples are handed out.
    pub structure: Structure,
}

/// Rows of arrays in memory. All fields but labels are resident; a one-dimensional array is a scalar, and one of int64 a
/// label.
#[derive(Debug)]
pub struct TensorSlices {
    spec: TensorSlicesSpec,
    schema: Schema,
    rows: Vec<Rows>,
    len: u64,
}

impl TensorSlices {
    /// Samples of named arrays of one length.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is no array, a name twice, lengths differ, `pixels` does not fit the shape, or
    /// `structure` does not hand out every field once.
    pub fn new(fields: Vec<(String, impl Into<Rows>, Pixels)>, structure: Structure) -> Result<Self> {
        let mut specs = Vec::with_capacity(fields.len());
        let mut rows = Vec::with_capacity(fields.len());
        for (name, field, pixels) in fields {
            let field = field.into();
            specs.push(field.spec(name, pixels));
            rows.push(field);
        }
        Self::build(TensorSlicesSpec { fields: specs, structure }, rows)
            .map_err(|e| e.with_source("from_tensor_slices"))
    }

    /// The source that `spec` describes, of these arrays: one a field, but two (values and offsets) for rows that
    /// differ in length.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] as of [`TensorSlices::new`], or if the arrays are not those described.
    pub fn open(spec: TensorSlicesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        Self::gather(&spec, arrays)
            .and_then(|rows| Self::build(spec, rows))
            .map_err(|e| e.with_source("from_tensor_slices"))
    }

    fn gather(spec: &TensorSlicesSpec, arrays: Vec<ArrayData>) -> Result<Vec<Rows>> {
        let ragged = |field: &ArraySpec| field.shape.get(1) == Some(&None);
        let wanted: usize = spec.fields.iter().map(|field| 1 + usize::from(ragged(field))).sum();
        if arrays.len() != wanted {
            let (given, fields) = (arrays.len(), spec.fields.len());
            return Err(Error::config(format!("{given} arrays were given for {fields} fields")));
        }
        let mut arrays = arrays.into_iter();
        let mut rows = Vec::with_capacity(spec.fields.len());
        for want in &spec.fields {
            let (Some(first), second) = (arrays.next(), ragged(want).then(|| arrays.next()).flatten()) else {
                return Err(Error::config(format!("there is no array for {}", want.name)));
            };
            let have = match second {
                Some(offsets) => Rows::Ragged(
                    RaggedData::new(first, offsets)
                        .map_err(|e| Error::config(format!("{}: {}", want.name, e.message())))?,
                ),
                None => Rows::Dense(first),
            };
            let found = have.spec(want.name.clone(), want.pixels);
            if found != *want {
                return Err(Error::config(format!("{} instead of {}", found.describe(), want.describe())));
            }
            rows.push(have);
        }
        Ok(rows)
    }

    fn build(spec: TensorSlicesSpec, rows: Vec<Rows>) -> Result<Self> {
        let Some(first) = rows.first() else {
            return Err(Error::config("there is no array"));
        };
        let mut handed_out = spec.structure.fields();
        handed_out.sort_unstable();
        if !handed_out.iter().copied().eq(0..rows.len()) {
            let count = rows.len();
            return Err(Error::config(format!("{count} arrays are handed out as {:?}", spec.structure)));
        }
        let len = first.len();
        let mut fields: Vec<FieldSpec> = Vec::with_capacity(rows.len());
        for want in &spec.fields {
            if fields.iter().any(|field| field.name == want.name) {
                return Err(Error::config(format!("two arrays are called {}", want.name)));
            }
            fields.push(FieldSpec { name: want.name.clone(), kind: kind_of(want)? });
        }
        if rows.iter().any(|field| field.len() != len) {
            let lengths: Vec<String> =
                spec.fields.iter().zip(&rows).map(|(f, r)| format!("{} has {}", f.name, r.len())).collect();
            return Err(Error::config(format!("arrays differ in length: {}", lengths.join(", "))));
        }
        let schema = Schema { fields, structure: spec.structure.clone() };
        Ok(Self { spec, schema, rows, len: len as u64 })
    }

    /// The rows of each field, in order.
    pub fn rows(&self) -> &[Rows] {
        &self.rows
    }
}

impl ArraySpec {
    /// What its rows are as a field: numbers, arrays, or images, if its shape says so.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if `pixels` does not fit the shape.
    pub fn kind(&self) -> Result<FieldKind> {
        kind_of(self)
    }

    fn describe(&self) -> String {
        let sides: Vec<String> =
            self.shape.iter().map(|side| side.map_or("*".to_owned(), |side| side.to_string())).collect();
        format!("{} is {} [{}]", self.name, self.dtype.name(), sides.join(", "))
    }
}

/// What the rows of an array are: images, if their shape says so.
pub(super) fn kind_of(field: &ArraySpec) -> Result<FieldKind> {
    let row = &field.shape[1..];
    if row.is_empty() {
        return Ok(FieldKind::Scalar { dtype: field.dtype });
    }
    let array = FieldKind::Array { dtype: field.dtype, shape: row.to_vec() };
    let channels = |c: usize| matches!(c, 1 | 3 | 4);
    let image = match *row {
        _ if field.dtype != DType::UInt8 => None,
        [Some(height), Some(width)] => Some((height, width, 1, PixelLayout::Hwc)),
        [Some(height), Some(width), Some(c)] if field.pixels != Pixels::Chw && channels(c) => {
            Some((height, width, c, PixelLayout::Hwc))
        }
        [Some(c), Some(height), Some(width)] if field.pixels != Pixels::Hwc && channels(c) => {
            Some((height, width, c, PixelLayout::Chw))
        }
        _ => None,
    };
    match (field.pixels, image) {
        (Pixels::Never, _) | (Pixels::Infer, None) => Ok(array),
        (_, Some((height, width, channels, layout))) => {
            Ok(FieldKind::Pixels { height, width, channels, layout })
        }
        (Pixels::Hwc | Pixels::Chw, None) => {
            Err(Error::config(format!("{}, and so cannot be images", field.describe())).with_hint(
                "images are uint8 [n, h, w], [n, h, w, c] or [n, c, h, w] with 1, 3 or 4 channels",
            ))
        }
    }
}

impl Source for TensorSlices {
    fn name(&self) -> String {
        let names: Vec<&str> = self.schema.fields.iter().map(|field| field.name.as_str()).collect();
        format!("from_tensor_slices({})", names.join(", "))
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::TensorSlices(self.spec.clone())
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        if index < self.len { index.to_string() } else { String::new() }
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        if index >= self.len {
            return Err(beyond_the_end(self, index));
        }
        record.reset(self.rows.len());
        for (field, value) in record.values.iter_mut().enumerate() {
            *value = Value::Resident;
            if self.schema.fields[field].kind == FieldKind::LABEL {
                let bytes = self.resident(index, field).and_then(|bytes| bytes.try_into().ok());
                let bytes = bytes.ok_or_else(|| {
                    let message =
                        format!("the memory of field {} has shrunk", self.schema.fields[field].name);
                    super::located(Error::new(ErrorKind::State, message), self, index)
                })?;
                *value = Value::Int(i64::from_ne_bytes(bytes));
            }
        }
        Ok(())
    }

    fn resident(&self, index: u64, field: usize) -> Option<&[u8]> {
        self.rows.get(field)?.row(usize::try_from(index).ok()?)
    }

    fn length(&self, index: u64, field: usize) -> Option<u64> {
        let index = usize::try_from(index).ok()?;
        let length = match self.rows.get(field)? {
            Rows::Dense(array) => (index < array.rows()).then(|| array.shape.get(1).copied()).flatten(),
            Rows::Ragged(ragged) => ragged.length(index),
        };
        length.map(|length| length as u64)
    }

    fn fingerprint(&self) -> u64 {
        Fingerprint::new(&self.schema, self.len).finish()
    }

    fn in_memory(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::conformance;

    fn bytes(n: usize) -> Vec<u8> {
        (0..n).map(|i| (i % 251) as u8).collect()
    }

    fn array(dtype: DType, shape: &[usize]) -> ArrayData {
        let n: usize = shape.iter().product::<usize>() * dtype.size();
        ArrayData::from_vec(bytes(n), dtype, shape.to_vec()).unwrap()
    }

    fn source(fields: &[(&str, DType, &[usize], Pixels)], structure: Structure) -> Result<TensorSlices> {
        let fields = fields.iter().map(|(n, d, s, p)| ((*n).to_owned(), array(*d, s), *p)).collect();
        TensorSlices::new(fields, structure)
    }

    fn pair() -> Structure {
        Structure::Dict(vec![("a".into(), Structure::Field(0)), ("b".into(), Structure::Field(1))])
    }

    fn ragged(lengths: &[usize], inner: &[usize]) -> RaggedData {
        let mut ends = vec![0_i64];
        ends.extend(lengths.iter().scan(0, |end, n| {
            *end += *n as i64;
            Some(*end)
        }));
        let mut shape = vec![lengths.iter().sum()];
        shape.extend(inner);
        let offsets = ends.iter().flat_map(|end| end.to_ne_bytes()).collect();
        let offsets = ArrayData::from_vec(offsets, DType::Int64, vec![ends.len()]).unwrap();
        RaggedData::new(array(DType::UInt16, &shape), offsets).unwrap()
    }

    #[test]
    fn rows_may_differ_in_length() {
        let tokens = ragged(&[3, 0, 2], &[2]);
        let fields: Vec<(String, Rows, Pixels)> = vec![
            ("a".into(), tokens.clone().into(), Pixels::Infer),
            ("b".into(), array(DType::UInt64, &[3]).into(), Pixels::Infer),
        ];
        let source = TensorSlices::new(fields, pair()).unwrap();
        conformance::check(&source);
        let kind = FieldKind::Array { dtype: DType::UInt16, shape: vec![None, Some(2)] };
        assert_eq!(source.schema().fields[0].kind, kind);
        assert_eq!(source.schema().fields[1].kind, FieldKind::Scalar { dtype: DType::UInt64 });
        assert_eq!(source.resident(2, 0).unwrap(), &bytes(20)[12..]);
        assert_eq!(source.resident(1, 0).unwrap().len(), 0);
        let lengths: Vec<_> = (0..4).map(|i| source.length(i, 0)).collect();
        assert_eq!(lengths, [Some(3), Some(0), Some(2), None]);
        assert_eq!(source.length(0, 1), None);
        let SourceSpec::TensorSlices(spec) = source.spec() else { panic!("another spec") };
        let arrays = vec![tokens.values().clone(), tokens.offsets().clone(), array(DType::UInt64, &[3])];
        assert_eq!(TensorSlices::open(spec.clone(), arrays.clone()).unwrap().len(), 3);
        assert!(TensorSlices::open(spec, arrays[..2].to_vec()).is_err());
    }

    #[test]
    fn offsets_that_lead_astray_are_refused() {
        let values = || array(DType::UInt8, &[4]);
        let offsets = |all: &[i64]| {
            let bytes = all.iter().flat_map(|at| at.to_ne_bytes()).collect();
            ArrayData::from_vec(bytes, DType::Int64, vec![all.len()]).unwrap()
        };
        assert_eq!(RaggedData::new(values(), offsets(&[1, 1, 4])).unwrap().length(1), Some(3));
        for bad in [&[][..], &[0, 3, 2], &[-1, 2], &[0, 5], &[i64::MIN], &[0, i64::MAX]] {
            assert!(RaggedData::new(values(), offsets(bad)).is_err(), "{bad:?}");
        }
        assert!(RaggedData::new(values(), array(DType::Int32, &[3])).is_err());
    }

    #[test]
    fn rows_are_handed_out_where_they_lie() {
        let fields: [(&str, DType, &[usize], Pixels); 4] = [
            ("image", DType::UInt8, &[5, 4, 6, 3], Pixels::Infer),
            ("label", DType::Int64, &[5], Pixels::Infer),
            ("weight", DType::Float32, &[5], Pixels::Infer),
            ("nothing", DType::Float32, &[5, 0, 3], Pixels::Infer),
        ];
        let source = source(&fields, Structure::Tuple((0..4).map(Structure::Field).collect())).unwrap();
        conformance::check(&source);
        let kinds: Vec<_> = source.schema().fields.iter().map(|f| f.kind.clone()).collect();
        let layout = PixelLayout::Hwc;
        assert_eq!(kinds[0], FieldKind::Pixels { height: 4, width: 6, channels: 3, layout });
        assert_eq!(kinds[1], FieldKind::LABEL);
        assert_eq!(kinds[2], FieldKind::Scalar { dtype: DType::Float32 });
        let row = source.resident(2, 0).unwrap();
        assert_eq!(row.as_ptr(), source.rows()[0].row(2).unwrap().as_ptr(), "no copy");
        assert_eq!(row, &bytes(5 * 72)[2 * 72..3 * 72]);
        assert!(source.resident(5, 0).is_none() && source.resident(0, 4).is_none());
        let mut record = Record::default();
        source.fetch(1, &mut record).unwrap();
        assert_eq!(record.values[1], Value::Int(i64::from_ne_bytes([8, 9, 10, 11, 12, 13, 14, 15])));
    }

    #[test]
    fn images_are_recognized_by_shape_unless_told() {
        use Pixels::{Chw, Hwc, Infer, Never};
        let cases: [(&[usize], Pixels, Option<_>); 10] = [
            (&[2, 8, 9], Infer, Some((8, 9, 1, PixelLayout::Hwc))),
            (&[2, 8, 9, 1], Infer, Some((8, 9, 1, PixelLayout::Hwc))),
            (&[2, 3, 8, 9], Infer, Some((8, 9, 3, PixelLayout::Chw))),
            (&[2, 3, 8, 4], Infer, Some((3, 8, 4, PixelLayout::Hwc))),
            (&[2, 3, 8, 4], Chw, Some((8, 4, 3, PixelLayout::Chw))),
            (&[2, 3, 3, 3], Hwc, Some((3, 3, 3, PixelLayout::Hwc))),
            (&[2, 5, 8, 9], Infer, None),
            (&[2, 8, 9, 3], Never, None),
            (&[2, 8], Infer, None),
            (&[2, 1, 8, 9, 3], Infer, None),
        ];
        for (shape, pixels, expected) in cases {
            let source = source(&[("x", DType::UInt8, shape, pixels)], Structure::Field(0)).unwrap();
            conformance::check(&source);
            let kind = match expected {
                Some((height, width, channels, layout)) => {
                    FieldKind::Pixels { height, width, channels, layout }
                }
                None => FieldKind::array(DType::UInt8, &shape[1..]),
            };
            assert_eq!(source.schema().fields[0].kind, kind, "{shape:?} {pixels:?}");
        }
        assert!(source(&[("x", DType::UInt8, &[2, 5, 8, 9], Hwc)], Structure::Field(0)).is_err());
        assert!(source(&[("x", DType::Float32, &[2, 8, 9, 3], Hwc)], Structure::Field(0)).is_err());
    }

    #[test]
    fn what_does_not_fit_is_an_error_with_numbers() {
        let (i64s, u8s) = (DType::Int64, DType::UInt8);
        let e = source(&[("a", u8s, &[3, 2], Pixels::Infer), ("b", i64s, &[4], Pixels::Infer)], pair())
            .unwrap_err();
        assert!(e.message().contains("a has 3, b has 4"), "{e}");
        assert!(source(&[], Structure::Tuple(Vec::new())).is_err());
        assert!(source(&[("a", u8s, &[3], Pixels::Infer), ("a", u8s, &[3], Pixels::Infer)], pair()).is_err());
        assert!(ArrayData::from_vec(vec![0; 5], u8s, vec![2, 3]).is_err());
        assert!(ArrayData::from_vec(vec![0; 1], u8s, vec![]).is_err());
        assert!(ArrayData::from_vec(vec![], i64s, vec![usize::MAX, usize::MAX]).is_err());
    }

    #[test]
    fn the_description_opens_the_same_source_with_the_same_arrays() {
        let first = source(&[("x", DType::UInt8, &[4, 2], Pixels::Infer)], Structure::Field(0)).unwrap();
        let json = serde_json::to_string(&first.spec()).unwrap();
        let spec: SourceSpec = serde_json::from_str(&json).unwrap();
        assert_eq!(spec.clone().open_arrays(vec![array(DType::UInt8, &[4, 2])]).unwrap().len(), 4);
        assert!(spec.open_arrays(vec![array(DType::UInt8, &[5, 2])]).is_err());
    }
}
