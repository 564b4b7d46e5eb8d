//! `_native.FinishPlan`: finishes images on a device, or on the host, as wellfed-cuda plans it.
//!
//! Memory is the framework's, and comes as addresses: of the host's in [`FinishPlan::new`], of the device's in
//! [`FinishPlan::run`]. The module `wellfed.torch._left` is the only caller, and keeps what they belong to.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use wellfed::ErrorKind;
use wellfed_cuda::{
    device::Device,
    finish::{Places, Plan, Shape},
    module::Module,
    place::Place,
    stream::Stream,
};

use crate::enter;

/// How a batch is finished.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct FinishPlan {
    plan: Plan,
}

/// The kernels on each device that was asked for. They stay until the process ends.
fn module(ordinal: u32) -> wellfed_cuda::Result<Arc<Module>> {
    static MODULES: Mutex<Option<HashMap<u32, Arc<Module>>>> = Mutex::new(None);
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let modules = modules.get_or_insert_default();
    if let Some(module) = modules.get(&ordinal) {
        return Ok(Arc::clone(module));
    }
    let module = Arc::new(Module::load(&Device::open(ordinal)?)?);
    modules.insert(ordinal, Arc::clone(&module));
    Ok(module)
}

/// CUDA device `device` in the order of its stream `stream`, which is the caller's current one; the host without a device.
pub(crate) fn place(device: Option<u32>, stream: u64) -> wellfed_cuda::Result<Place> {
    let Some(ordinal) = device else { return Ok(Place::Host) };
    let module = module(ordinal)?;
    // SAFETY: the caller names a stream of this device that is its current one.
    let stream = Arc::new(unsafe { Stream::borrowed(module.device(), stream) });
    Ok(Place::Device { module, stream })
}

/// Runs `work` without the interpreter; its errors become RuntimeErrors.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> wellfed_cuda::Result<T> + Send,
) -> PyResult<T> {
    let mut failed = None;
    let done = enter::quick(py, || {
        work().map_err(|error| {
            failed = Some(error.to_string());
            wellfed::Error::new(ErrorKind::Internal, "a device failed")
        })
    });
    done.map_err(|error| failed.map_or(error, PyRuntimeError::new_err))
}

#[pymethods]
impl FinishPlan {
    /// Plans a batch of `count` records, `nbytes` at `records`, whose offsets are at `offsets`: both are the host's memory,
    /// of which the records are written to. Of scratch memory no more than `limit` bytes are used, or what one image takes.
    #[new]
    fn new(
        py: Python<'_>,
        records: usize,
        nbytes: usize,
        offsets: usize,
        count: usize,
        limit: u64,
    ) -> PyResult<Self> {
        run(py, || {
            // SAFETY: the caller holds a batch of the engine: so many bytes, which nobody else looks at, and one offset
            // more than it has images.
            let (records, offsets) = unsafe {
                (
                    std::slice::from_raw_parts_mut(
                        std::ptr::with_exposed_provenance_mut::<u8>(records),
                        nbytes,
                    ),
                    std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<i64>(offsets), count + 1),
                )
            };
            Ok(Self { plan: Plan::new(records, offsets, limit)? })
        })
    }

    /// Bytes of scratch memory.
    #[getter]
    fn scratch(&self) -> u64 {
        self.plan.scratch()
    }

    /// Submits the work to a stream of CUDA device `device`; None is the host, where it is done when this returns.
    #[allow(clippy::too_many_arguments, reason = "what a batch is and where it lies")]
    fn run(
        &self,
        py: Python<'_>,
        device: Option<u32>,
        stream: u64,
        records: u64,
        offsets: u64,
        scratch: u64,
        table: u64,
        out: u64,
        channels: u32,
        element: u32,
        step: [i64; 4],
    ) -> PyResult<()> {
        let places = Places { records, offsets, scratch, table, out };
        let shape = Shape { channels, element, step };
        run(py, || {
            let place = place(device, stream)?;
            self.plan.run(places, shape, |kernel, grid, threads, args| {
                // SAFETY: the plan was made of these records, and the caller holds memory as large as it says.
                unsafe { place.launch(kernel, grid, threads, args) }
            })
        })
    }
}
