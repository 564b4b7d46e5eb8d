//! [`Array`]: a column of a batch, handed to NumPy, torch and others without a copy.
//!
//! The memory goes back to the ring when the last of those who share it lets go. Two doors lead to it:
//! `__array_interface__` (NumPy keeps this object alive) and DLPack (the capsule keeps the buffer alive). The
//! structures are those of DLPack 1.0's `dlpack.h`, in the form without a version, which all frameworks read.

use std::{
    any::Any,
    ffi::{CStr, c_void},
    fmt::Write as _,
    ptr::NonNull,
    sync::Arc,
};

use pyo3::{
    exceptions::{PyBufferError, PyTypeError},
    ffi,
    prelude::*,
    types::{PyDict, PyTuple},
};
use wellfed::{engine::Buffer, sample::DType};

/// Finished values of one field of a batch.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Array {
    dtype: DType,
    shape: Vec<usize>,
    start: NonNull<u8>,
    memory: Arc<Buffer>,
}

// SAFETY: `start` points into `memory`, which is Send and Sync; nothing here reads or writes through it.
unsafe impl Send for Array {}
// SAFETY: as above.
unsafe impl Sync for Array {}

impl Array {
    /// An array of `dtype` and `shape` in C order at the start of `memory`.
    pub(crate) fn new(dtype: DType, shape: Vec<usize>, mut memory: Buffer) -> Self {
        debug_assert!(shape.iter().product::<usize>() * dtype.size() <= memory.len());
        // The pointer is taken while the buffer is exclusive, since its holder may write through it. It stays valid
        // when the buffer moves, as its bytes lie on the heap.
        let start = NonNull::from(&mut *memory).cast();
        Self { dtype, shape, start, memory: Arc::new(memory) }
    }

    /// Arrays of `shapes` that lie one after the other in `memory`, which goes back when the last of them is gone.
    pub(crate) fn several(dtype: DType, shapes: Vec<Vec<usize>>, mut memory: Buffer) -> Vec<Self> {
        let (end, mut at) = (memory.len(), 0);
        let all: NonNull<u8> = NonNull::from(&mut *memory).cast();
        let memory = Arc::new(memory);
        let one = |shape: Vec<usize>| {
            let from = at;
            at += shape.iter().product::<usize>() * dtype.size();
            assert!(at <= end, "{at} bytes of {end}");
            // SAFETY: `from` is at most `end`, the length of the allocation (just checked).
            let start = unsafe { all.add(from) };
            Self { dtype, shape, start, memory: memory.clone() }
        };
        shapes.into_iter().map(one).collect()
    }

    /// Its values as bytes.
    ///
    /// # Safety
    /// Nobody else looks at them while the slice is used.
    #[allow(clippy::mut_from_ref, reason = "the caller says that nobody else has a reference")]
    pub(crate) unsafe fn bytes_mut(&self) -> &mut [u8] {
        let len = self.shape.iter().product::<usize>() * self.dtype.size();
        // SAFETY: so many bytes lie there; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), len) }
    }

    /// What keeps its memory.
    pub(crate) fn memory(&self) -> Arc<Buffer> {
        self.memory.clone()
    }
}

#[pymethods]
impl Array {
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __repr__(&self) -> String {
        format!("<wellfed array of {} {:?}>", self.dtype.name(), self.shape)
    }

    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", type_string(self.dtype)?)?;
        interface.set_item("shape", PyTuple::new(py, &self.shape)?)?;
        interface.set_item("data", (self.start.as_ptr().expose_provenance(), false))?;
        Ok(interface)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        (CPU, 0)
    }

    /// The memory as a DLPack capsule. Parameters are those of the array API standard.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A consumer that knows newer versions must accept this one; streams are a matter of devices.
        let _ = (stream, max_version);
        if dl_device.is_some_and(|device| device != (CPU, 0)) || copy == Some(true) {
            return Err(PyBufferError::new_err("batches are shared in CPU memory, without a copy"));
        }
        capsule(py, self.start.as_ptr().cast(), (CPU, 0), self.dtype, &self.shape, self.memory.clone())
    }
}

/// A DLPack capsule of an array in C order at `data`, memory of the device of this kind and number that `memory` keeps.
pub(crate) fn capsule<'py>(
    py: Python<'py>,
    data: *mut c_void,
    device: (i32, i32),
    dtype: DType,
    shape: &[usize],
    memory: Arc<dyn Any + Send + Sync>,
) -> PyResult<Bound<'py, PyAny>> {
    let shape: Box<[i64]> = shape.iter().map(|&side| side as i64).collect();
    let mut strides: Box<[i64]> = shape.clone();
    let mut step = 1;
    for (stride, side) in strides.iter_mut().zip(&shape).rev() {
        *stride = step;
        step *= side;
    }
    let mut export = Box::new(Export {
        managed: ManagedTensor {
            tensor: Tensor {
                data,
                device: device.into(),
                ndim: shape.len() as i32,
                dtype: data_type(dtype),
                shape: std::ptr::null_mut(),
                strides: std::ptr::null_mut(),
                byte_offset: 0,
            },
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(release),
        },
        shape,
        strides,
        _memory: memory,
    });
    export.managed.tensor.shape = export.shape.as_mut_ptr();
    export.managed.tensor.strides = export.strides.as_mut_ptr();
    let export = Box::into_raw(export);
    // SAFETY: `export` is a live allocation; the name is static; the destructor takes what consumers left.
    unsafe {
        (*export).managed.manager_ctx = export.cast();
        let managed = &raw mut (*export).managed;
        let capsule = ffi::PyCapsule_New(managed.cast(), UNUSED.as_ptr(), Some(drop_capsule));
        if capsule.is_null() {
            release(managed);
        }
        Bound::from_owned_ptr_or_err(py, capsule)
    }
}

/// Arrays that differ in length, one after the other, and where they begin and end.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct RaggedColumn {
    #[pyo3(get)]
    pub(crate) values: Py<Array>,
    #[pyo3(get)]
    pub(crate) offsets: Py<Array>,
    /// How a device is to mix the images that it finishes of these: for each blend, in order, the weight of an image
    /// itself, and the rectangle `x1, y1, x2, y2` if it comes from the image before.
    #[pyo3(get)]
    pub(crate) blends: Vec<(f64, Option<[usize; 4]>)>,
}

/// NumPy's name of `dtype`.
fn type_string(dtype: DType) -> PyResult<String> {
    let kind = match dtype {
        DType::Bool => 'b',
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => 'u',
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => 'i',
        DType::Float16 | DType::Float32 | DType::Float64 => 'f',
        DType::BFloat16 => return Err(PyTypeError::new_err("NumPy has no bfloat16")),
    };
    let order = match dtype.size() {
        1 => '|',
        _ if cfg!(target_endian = "big") => '>',
        _ => '<',
    };
    let mut name = String::from(order);
    write!(name, "{kind}{}", dtype.size()).expect("strings can be written to");
    Ok(name)
}

/// kDLCPU.
pub(crate) const CPU: i32 = 1;
/// kDLCUDA.
pub(crate) const CUDA: i32 = 2;
/// Name of a capsule that nobody has taken yet.
const UNUSED: &CStr = c"dltensor";

#[repr(C)]
struct Device {
    kind: i32,
    id: i32,
}

impl From<(i32, i32)> for Device {
    fn from((kind, id): (i32, i32)) -> Self {
        Self { kind, id }
    }
}

#[repr(C)]
struct DataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Device,
    ndim: i32,
    dtype: DataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct ManagedTensor {
    tensor: Tensor,
    manager_ctx: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedTensor)>,
}

/// What a consumer holds: the tensor, and what its pointers point to.
struct Export {
    managed: ManagedTensor,
    shape: Box<[i64]>,
    strides: Box<[i64]>,
    _memory: Arc<dyn Any + Send + Sync>,
}

fn data_type(dtype: DType) -> DataType {
    let code = match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => 0,
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => 1,
        DType::Float16 | DType::Float32 | DType::Float64 => 2,
        DType::BFloat16 => 4,
        DType::Bool => 6,
    };
    DataType { code, bits: 8 * dtype.size() as u8, lanes: 1 }
}

/// Called once by whoever holds the tensor, on any thread, with or without the interpreter lock.
///
/// # Safety
/// `managed` is the tensor of an [`Export`] that was not released before.
unsafe extern "C" fn release(managed: *mut ManagedTensor) {
    // SAFETY: `manager_ctx` is the `Export` that `__dlpack__` boxed, and this is its only release.
    drop(unsafe { Box::from_raw((*managed).manager_ctx.cast::<Export>()) });
}

/// Frees a capsule; one that was never taken frees its tensor as well.
///
/// # Safety
/// `capsule` is a capsule made by `__dlpack__`, and the interpreter lock is held.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: consumers rename the capsule when they take the tensor, so under this name it is still ours.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, UNUSED.as_ptr()) == 1 {
            release(ffi::PyCapsule_GetPointer(capsule, UNUSED.as_ptr()).cast());
        }
    }
}
