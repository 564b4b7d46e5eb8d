//! NumPy arrays that the engine reads where they lie.

use std::{ptr::NonNull, sync::Arc};

use pyo3::{
    exceptions::{PyTypeError, PyValueError},
    prelude::*,
    types::{PyDict, PyList},
};
use wellfed::{order, sample::DType, source::ArrayData};

use crate::error::to_python;

/// Memory of a NumPy array, which it keeps alive.
struct Borrowed {
    start: NonNull<u8>,
    len: usize,
    _owner: Py<PyAny>,
}

// SAFETY: the memory is plain bytes that live as long as `_owner`, which pyo3 lets any thread hold and drop. That it
// does not change meanwhile is the documented duty of whoever calls `from_tensor_slices`.
unsafe impl Send for Borrowed {}
// SAFETY: as above; all access is reading.
unsafe impl Sync for Borrowed {}

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `borrow` made `start` and `len` from a contiguous array that `_owner` keeps alive.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

/// The elements of `array`, a contiguous `numpy.ndarray`, taken as `dtype` (whose size they must have).
pub(crate) fn borrow(py: Python<'_>, array: &Bound<'_, PyAny>, dtype: DType) -> PyResult<ArrayData> {
    let Given { owner, start, len, shape, .. } = given(py, array, dtype)?;
    let memory = Borrowed { start, len, _owner: owner };
    ArrayData::new(Arc::new(memory), dtype, shape).map_err(|e| to_python(py, &e))
}

/// Where the elements of `array` lie, and its shape: to write to them, as long as the caller keeps it alive.
pub(crate) fn writable(
    py: Python<'_>,
    array: &Bound<'_, PyAny>,
    dtype: DType,
) -> PyResult<(NonNull<u8>, Vec<usize>)> {
    let given = given(py, array, dtype)?;
    if given.read_only {
        return Err(PyValueError::new_err("the array cannot be written to"));
    }
    Ok((given.start, given.shape))
}

/// An array in NumPy's words.
struct Given {
    owner: Py<PyAny>,
    start: NonNull<u8>,
    len: usize,
    shape: Vec<usize>,
    read_only: bool,
}

fn given(py: Python<'_>, array: &Bound<'_, PyAny>, dtype: DType) -> PyResult<Given> {
    let ndarray = py.import("numpy")?.getattr("ndarray")?;
    if !array.is_instance(&ndarray)? {
        return Err(PyTypeError::new_err("an array must be a numpy.ndarray"));
    }
    // A subclass may say anything of itself. NumPy's own class does not ask it: this view has the array's own memory,
    // and what it says of that can be relied on.
    let array = &ndarray.getattr("view")?.call1((array, &ndarray))?;
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let get = |name: &str| {
        interface.get_item(name)?.ok_or_else(|| PyValueError::new_err(format!("the array has no {name}")))
    };
    if !get("strides")?.is_none() {
        return Err(PyValueError::new_err("the array is not contiguous in C order"));
    }
    let shape: Vec<usize> = get("shape")?.extract()?;
    let (address, read_only): (usize, bool) = get("data")?.extract()?;
    let len: usize = array.getattr("nbytes")?.extract()?;
    let elements = shape.iter().try_fold(dtype.size(), |n, side| n.checked_mul(*side));
    if elements != Some(len) {
        let name = dtype.name();
        return Err(PyValueError::new_err(format!("{len} bytes are no array of {name} and shape {shape:?}")));
    }
    let start = match NonNull::new(std::ptr::with_exposed_provenance_mut(address)) {
        Some(start) if len > 0 => start,
        _ => NonNull::dangling(),
    };
    Ok(Given { owner: array.clone().unbind(), start, len, shape, read_only })
}

/// Indices of samples, of which there are `len`: a list of whole numbers, or anything that NumPy takes for a
/// one-dimensional array of them.
pub(crate) fn indices(py: Python<'_>, given: &Bound<'_, PyAny>, len: u64) -> PyResult<Vec<u64>> {
    let checked = |(offset, index): (usize, i64)| {
        u64::try_from(index).map_err(|_| to_python(py, &order::out_of_range(index, offset, len)))
    };
    if let Ok(list) = given.cast::<PyList>() {
        return list.iter().enumerate().map(|(i, item)| checked((i, item.extract::<i64>()?))).collect();
    }
    let numpy = py.import("numpy")?;
    let array = numpy.call_method1("asarray", (given,))?;
    let dtype = array.getattr("dtype")?;
    let kind: String = dtype.getattr("kind")?.extract()?;
    let dimensions: usize = array.getattr("ndim")?.extract()?;
    if !matches!(kind.as_str(), "i" | "u") || dimensions != 1 {
        return Err(PyTypeError::new_err(format!(
            "indices must be whole numbers in one dimension, not {dtype} in {dimensions}"
        )));
    }
    if kind == "u" {
        let array = borrow(py, &numpy.call_method1("ascontiguousarray", (array, "uint64"))?, DType::UInt64)?;
        let whole = |bytes: &[u8]| bytes.try_into().map(u64::from_ne_bytes);
        let all: Result<Vec<u64>, _> = (0..array.rows()).filter_map(|i| array.row(i)).map(whole).collect();
        return all.map_err(|_| PyValueError::new_err("an array of uint64 has elements of another size"));
    }
    // Without a copy where it is one already.
    let array = numpy.call_method1("ascontiguousarray", (array, "int64"))?;
    let array = borrow(py, &array, DType::Int64)?;
    let whole = |offset| array.whole(offset).map_err(|e| to_python(py, &e));
    (0..array.rows()).map(|offset| checked((offset, whole(offset)?))).collect()
}
