//! `_native.blend`: mixes a batch of tensors that torch made, in its memory.

use pyo3::{exceptions::PyValueError, prelude::*};
use wellfed::{engine, sample::DType};

use crate::enter;

/// Makes each of `samples` images `before * (1 - lam) + image * lam`, with torch's roundings: the memory of `size` bytes at
/// `address`, elements of `dtype` (float32, float16 or bfloat16), contiguous, and written to by nobody else meanwhile. By
/// its address, since NumPy knows no bfloat16.
#[pyfunction]
pub(crate) fn blend(
    py: Python<'_>,
    address: usize,
    size: usize,
    samples: usize,
    dtype: &str,
    lam: f64,
) -> PyResult<()> {
    let dtype = match dtype {
        "float32" => DType::Float32,
        "float16" => DType::Float16,
        "bfloat16" => DType::BFloat16,
        _ => return Err(PyValueError::new_err(format!("elements of {dtype} are not blended"))),
    };
    if address == 0
        || !address.is_multiple_of(dtype.size())
        || samples == 0
        || !size.is_multiple_of(samples * dtype.size())
    {
        let what = format!("{size} bytes at {address:#x} are no {samples} samples of {dtype:?}");
        return Err(PyValueError::new_err(what));
    }
    let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
    // SAFETY: the one caller, `wellfed.torch`, gives the memory of a tensor that it holds on to, and its size. In place, as
    // torch's operations, which make new tensors, take twice as long.
    let batch = unsafe { std::slice::from_raw_parts_mut(start, size) };
    enter::quick(py, || engine::blend(batch, samples, dtype, lam))
}
