//! Arrays in memory, one sample a row. Nothing is copied: rows are handed out where they lie.

use std::{fmt, sync::Arc};

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
    /// Shape, the number of samples first.
    pub shape: Vec<usize>,
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
    /// How samples are handed out: one array alone, a tuple or a dict.
    pub structure: Structure,
}

/// Rows of arrays in memory. All fields but labels are resident; a one-dimensional int64 array is an integer field.
#[derive(Debug)]
pub struct TensorSlices {
    spec: TensorSlicesSpec,
    schema: Schema,
    arrays: Vec<ArrayData>,
    len: u64,
}

impl TensorSlices {
    /// Samples of named arrays of one length.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] if there is no array, a name twice, lengths differ, or `pixels` does not fit the shape.
    pub fn new(fields: Vec<(String, ArrayData, Pixels)>, structure: Structure) -> Result<Self> {
        let mut specs = Vec::with_capacity(fields.len());
        let mut arrays = Vec::with_capacity(fields.len());
        for (name, array, pixels) in fields {
            specs.push(ArraySpec { name, dtype: array.dtype, shape: array.shape.clone(), pixels });
            arrays.push(array);
        }
        Self::open(TensorSlicesSpec { fields: specs, structure }, arrays)
    }

    /// The source that `spec` describes, of these arrays.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] as of [`TensorSlices::new`], or if the arrays are not those described.
    pub fn open(spec: TensorSlicesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        Self::build(spec, arrays).map_err(|e| e.with_source("from_tensor_slices"))
    }

    fn build(spec: TensorSlicesSpec, arrays: Vec<ArrayData>) -> Result<Self> {
        if arrays.len() != spec.fields.len() {
            let (given, wanted) = (arrays.len(), spec.fields.len());
            return Err(Error::config(format!("{given} arrays were given for {wanted} fields")));
        }
        let Some(first) = arrays.first() else {
            return Err(Error::config("there is no array"));
        };
        if spec.structure == Structure::Single && arrays.len() > 1 {
            return Err(Error::config(format!("{} arrays cannot be handed out as one", arrays.len())));
        }
        let len = first.rows();
        let mut fields: Vec<FieldSpec> = Vec::with_capacity(arrays.len());
        for (array, want) in arrays.iter().zip(&spec.fields) {
            if (array.dtype, &array.shape) != (want.dtype, &want.shape) {
                let ArraySpec { name, dtype, shape, .. } = want;
                let dtype = dtype.name();
                return Err(Error::config(format!("{name} is {array:?} instead of {dtype} {shape:?}")));
            }
            if fields.iter().any(|field| field.name == want.name) {
                return Err(Error::config(format!("two arrays are called {}", want.name)));
            }
            fields.push(FieldSpec { name: want.name.clone(), kind: kind_of(want)? });
        }
        if arrays.iter().any(|array| array.rows() != len) {
            let lengths: Vec<String> = spec
                .fields
                .iter()
                .zip(&arrays)
                .map(|(f, a)| format!("{} has {}", f.name, a.rows()))
                .collect();
            return Err(Error::config(format!("arrays differ in length: {}", lengths.join(", "))));
        }
        let schema = Schema { fields, structure: spec.structure };
        Ok(Self { spec, schema, arrays, len: len as u64 })
    }

    /// The arrays in field order.
    pub fn arrays(&self) -> &[ArrayData] {
        &self.arrays
    }
}

fn kind_of(field: &ArraySpec) -> Result<FieldKind> {
    let row = &field.shape[1..];
    if field.dtype == DType::Int64 && row.is_empty() {
        return Ok(FieldKind::Int);
    }
    let array = FieldKind::Array { dtype: field.dtype, shape: row.to_vec() };
    let channels = |c: usize| matches!(c, 1 | 3 | 4);
    let image = match *row {
        _ if field.dtype != DType::UInt8 => None,
        [height, width] => Some((height, width, 1, PixelLayout::Hwc)),
        [height, width, c] if field.pixels != Pixels::Chw && channels(c) => {
            Some((height, width, c, PixelLayout::Hwc))
        }
        [c, height, width] if field.pixels != Pixels::Hwc && channels(c) => {
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
            let (name, dtype, shape) = (&field.name, field.dtype.name(), &field.shape);
            Err(Error::config(format!("{name} cannot be images: it is {dtype} {shape:?}")).with_hint(
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
        record.reset(self.arrays.len());
        for (field, value) in record.values.iter_mut().enumerate() {
            *value = Value::Resident;
            if self.schema.fields[field].kind == FieldKind::Int {
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
        self.arrays.get(field)?.row(usize::try_from(index).ok()?)
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len);
        // Sizes, not shapes: how the pixels of an image lie changes none of its draws.
        self.arrays.iter().for_each(|array| hash.number(array.row_bytes as u64));
        hash.finish()
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

    #[test]
    fn rows_are_handed_out_where_they_lie() {
        let fields: [(&str, DType, &[usize], Pixels); 4] = [
            ("image", DType::UInt8, &[5, 4, 6, 3], Pixels::Infer),
            ("label", DType::Int64, &[5], Pixels::Infer),
            ("weight", DType::Float32, &[5], Pixels::Infer),
            ("nothing", DType::Float32, &[5, 0, 3], Pixels::Infer),
        ];
        let source = source(&fields, Structure::Tuple).unwrap();
        conformance::check(&source);
        let kinds: Vec<_> = source.schema().fields.iter().map(|f| f.kind.clone()).collect();
        let layout = PixelLayout::Hwc;
        assert_eq!(kinds[0], FieldKind::Pixels { height: 4, width: 6, channels: 3, layout });
        assert_eq!(kinds[1], FieldKind::Int);
        assert_eq!(kinds[2], FieldKind::Array { dtype: DType::Float32, shape: vec![] });
        let row = source.resident(2, 0).unwrap();
        assert_eq!(row.as_ptr(), source.arrays()[0].row(2).unwrap().as_ptr(), "no copy");
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
            let source = source(&[("x", DType::UInt8, shape, pixels)], Structure::Single).unwrap();
            conformance::check(&source);
            let kind = match expected {
                Some((height, width, channels, layout)) => {
                    FieldKind::Pixels { height, width, channels, layout }
                }
                None => FieldKind::Array { dtype: DType::UInt8, shape: shape[1..].to_vec() },
            };
            assert_eq!(source.schema().fields[0].kind, kind, "{shape:?} {pixels:?}");
        }
        assert!(source(&[("x", DType::UInt8, &[2, 5, 8, 9], Hwc)], Structure::Single).is_err());
        assert!(source(&[("x", DType::Float32, &[2, 8, 9, 3], Hwc)], Structure::Single).is_err());
    }

    #[test]
    fn what_does_not_fit_is_an_error_with_numbers() {
        let (i64s, u8s) = (DType::Int64, DType::UInt8);
        let e =
            source(&[("a", u8s, &[3, 2], Pixels::Infer), ("b", i64s, &[4], Pixels::Infer)], Structure::Dict)
                .unwrap_err();
        assert!(e.message().contains("a has 3, b has 4"), "{e}");
        assert!(source(&[], Structure::Tuple).is_err());
        assert!(
            source(&[("a", u8s, &[3], Pixels::Infer), ("a", u8s, &[3], Pixels::Infer)], Structure::Dict)
                .is_err()
        );
        assert!(ArrayData::from_vec(vec![0; 5], u8s, vec![2, 3]).is_err());
        assert!(ArrayData::from_vec(vec![0; 1], u8s, vec![]).is_err());
        assert!(ArrayData::from_vec(vec![], i64s, vec![usize::MAX, usize::MAX]).is_err());
    }

    #[test]
    fn the_description_opens_the_same_source_with_the_same_arrays() {
        let first = source(&[("x", DType::UInt8, &[4, 2], Pixels::Infer)], Structure::Single).unwrap();
        let json = serde_json::to_string(&first.spec()).unwrap();
        let spec: SourceSpec = serde_json::from_str(&json).unwrap();
        assert_eq!(spec.clone().open_arrays(first.arrays().to_vec()).unwrap().len(), 4);
        assert!(spec.open_arrays(vec![array(DType::UInt8, &[5, 2])]).is_err());
    }
}
