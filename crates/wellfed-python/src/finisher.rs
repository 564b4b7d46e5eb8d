//! `_native.Finisher`: finishes images in memory of its own, and hands them to frameworks by DLPack: see
//! [`wellfed_cuda::finisher`].

use std::sync::Arc;

use pyo3::{
    exceptions::{PyBufferError, PyRuntimeError, PyTypeError},
    prelude::*,
    types::PyTuple,
};
use wellfed::sample::DType;
use wellfed_cuda::{
    device::Device,
    finish::Decoded,
    finisher::{self, Finished, Form},
    mix::Blend,
    place::Place,
    stream::Stream,
};
use wellfed_kernels::image::Layout;

use crate::{
    array::{Array, CPU, CUDA, capsule},
    finish::{element, module, run},
};

/// A blend: the weight of an image itself, and the rectangle `x1, y1, x2, y2` if it comes from the image before.
type Drawn = (f64, Option<[usize; 4]>);

/// Finishes batches of one column.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Finisher {
    inner: finisher::Finisher,
    form: Form,
    dtype: DType,
    device: Option<Arc<Device>>,
}

#[pymethods]
impl Finisher {
    /// On CUDA device `device`, in a stream of its own; None is the host. `size` is channels, height and width, and `table`
    /// has 256 numbers of 32 bits a channel.
    #[new]
    fn new(
        py: Python<'_>,
        device: Option<u32>,
        size: [usize; 3],
        dtype: &str,
        channels_first: bool,
        table: &[u8],
    ) -> PyResult<Self> {
        let own = match dtype {
            "uint8" => DType::UInt8,
            "float16" => DType::Float16,
            "bfloat16" => DType::BFloat16,
            _ => DType::Float32,
        };
        let element = element(dtype)
            .ok_or_else(|| PyRuntimeError::new_err(format!("images of {dtype} are not made on devices")))?;
        let layout = if channels_first { Layout::Chw } else { Layout::Hwc };
        let form = Form { size, dtype: element, layout };
        let words: Vec<u32> = table.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        run(py, || {
            let (place, device) = match device {
                None => (Place::Host, None),
                Some(ordinal) => {
                    let module = module(ordinal)?;
                    let device = Arc::clone(module.device());
                    let stream = Arc::new(Stream::new(&device, 0)?);
                    (Place::Device { module, stream }, Some(device))
                }
            };
            let inner = finisher::Finisher::new(place, form, &words)?;
            Ok(Self { inner, form, dtype: own, device })
        })
    }

    /// Submits what makes a batch of records (`values`, which nobody else looks at) and their `offsets`: the finished images,
    /// and how many were decoded by the host and how many the kernels decode.
    fn finish(
        &self,
        py: Python<'_>,
        values: &Bound<'_, Array>,
        offsets: &Bound<'_, Array>,
        blends: Vec<Drawn>,
    ) -> PyResult<(DeviceArray, (usize, usize))> {
        let (values, offsets) = (values.get(), offsets.get());
        let blends: Vec<Blend> =
            blends.into_iter().map(|(lam, corners)| corners.map_or(Blend::Sum(lam), Blend::Box)).collect();
        let (finished, decoded, count) = run(py, || {
            // SAFETY: the caller finishes a batch of the engine once, and looks at neither; offsets are numbers of 64 bits,
            // aligned as all memory of the engine. The boxed memory is theirs.
            unsafe {
                let source = Box::new((values.memory(), offsets.memory()));
                let bytes = offsets.bytes_mut();
                let offsets = std::slice::from_raw_parts(bytes.as_ptr().cast::<i64>(), bytes.len() / 8);
                let (finished, decoded) = self.inner.finish(values.bytes_mut(), offsets, &blends, source)?;
                Ok((finished, decoded, offsets.len().saturating_sub(1)))
            }
        })?;
        let [channels, height, width] = self.form.size;
        let shape = match self.form.layout {
            Layout::Chw => vec![count, channels, height, width],
            Layout::Hwc => vec![count, height, width, channels],
        };
        let Decoded { host, device, .. } = decoded;
        let finished = Arc::new(finished);
        let array = DeviceArray { finished, dtype: self.dtype, shape, device: self.device.clone() };
        Ok((array, (host, device)))
    }
}

/// Finished images, on the device that made them. Their memory is used again when this and all that came of it by DLPack
/// is gone, so whoever reads it on a device keeps it until that is over.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct DeviceArray {
    finished: Arc<Finished>,
    dtype: DType,
    shape: Vec<usize>,
    device: Option<Arc<Device>>,
}

impl DeviceArray {
    fn place(&self) -> (i32, i32) {
        self.device.as_ref().map_or((CPU, 0), |device| (CUDA, device.ordinal() as i32))
    }
}

#[pymethods]
impl DeviceArray {
    #[getter]
    fn dtype(&self) -> &'static str {
        self.dtype.name()
    }

    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.shape)
    }

    fn __repr__(&self) -> String {
        format!("<wellfed device array of {} {:?}>", self.dtype.name(), self.shape)
    }

    fn __dlpack_device__(&self) -> (i32, i32) {
        self.place()
    }

    /// The memory as a DLPack capsule. The consumer's `stream` (a `CUstream`, as the array API standard says) waits for the
    /// images; without one this call does, and with -1 nobody.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // A consumer that knows newer versions must accept this one.
        let _ = max_version;
        if dl_device.is_some_and(|device| device != self.place()) || copy == Some(true) {
            return Err(PyBufferError::new_err("finished images are shared where they are, without a copy"));
        }
        let stream: Option<i64> = match stream {
            Some(stream) => {
                Some(stream.extract::<u64>().map(u64::cast_signed).or_else(|_| stream.extract())?)
            }
            None => None,
        };
        let finished = &self.finished;
        let device = self.device.as_ref();
        if stream == Some(0) {
            // It may mean two streams, says the standard.
            return Err(PyTypeError::new_err("stream=0 is not one: 1 is the legacy default stream"));
        }
        run(py, || match (device, stream) {
            (None, _) | (_, Some(-1)) => Ok(()),
            (Some(_), None) => finished.synchronize(),
            (Some(device), Some(stream)) => {
                // SAFETY: the consumer says that it is a stream of this device, which lives during the call.
                let stream = unsafe { Stream::borrowed(device, stream.cast_unsigned()) };
                finished.wait_in(&stream)
            }
        })?;
        let data = std::ptr::with_exposed_provenance_mut(self.finished.pointer() as usize);
        capsule(py, data, self.place(), self.dtype, &self.shape, self.finished.clone())
    }
}
