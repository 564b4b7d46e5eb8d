//! [`PageLock`] by the CUDA driver ([`PageLocks`]), or by a Python object with `lock(address, nbytes)`, which gives None
//! or why it was refused, and `unlock(address)`: what stands in for a device in tests.
//!
//! The engine calls it from threads of its own, and from whatever thread drops the last view of a batch. Invariant:
//! after [`end_page_locks`], which runs before the interpreter ends, no thread waits for the interpreter here, as one
//! that does then is killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use pyo3::prelude::*;
use wellfed::{Error, ErrorKind, Result, memory::PageLock};

use crate::enter;

/// The interpreter is about to end.
static ENDING: AtomicBool = AtomicBool::new(false);
/// Calls under way.
static CALLS: AtomicUsize = AtomicUsize::new(0);

/// Locks memory by the driver: no thread of the engine enters the interpreter for it.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct PageLocks(Arc<ByDriver>);

#[derive(Debug, Default)]
struct ByDriver(wellfed_cuda::page_lock::PageLocks);

#[pymethods]
impl PageLocks {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    /// Says for which CUDA device, before the first batch is made.
    fn begin(&self, py: Python<'_>, device: u32) -> PyResult<()> {
        enter::quick(py, || {
            self.0.0.begin(device);
            Ok(())
        })
    }
}

impl PageLock for ByDriver {
    fn lock(&self, start: *mut u8, len: usize) -> Result<()> {
        self.0.lock(start, len).map_err(|error| Error::new(ErrorKind::Limit, error.to_string()))
    }

    fn unlock(&self, start: *mut u8) -> bool {
        self.0.unlock(start)
    }
}

#[derive(Debug)]
struct ByPython(Py<PyAny>);

/// What the engine takes.
pub(crate) fn shared(object: Bound<'_, PyAny>) -> Arc<dyn PageLock> {
    match object.cast::<PageLocks>() {
        Ok(locks) => locks.get().0.clone(),
        Err(_) => Arc::new(ByPython(object.unbind())),
    }
}

/// Runs `call` with the interpreter; None if that is about to end.
fn called<T>(call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<PyResult<T>> {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            CALLS.fetch_sub(1, SeqCst);
        }
    }
    CALLS.fetch_add(1, SeqCst);
    let _counted = Counted;
    if ENDING.load(SeqCst) {
        return None;
    }
    Python::try_attach(|py| {
        // Memory may go while an exception is on its way through this thread.
        let pending = PyErr::take(py);
        let result = call(py);
        if let Some(pending) = pending {
            pending.restore(py);
        }
        result
    })
}

impl PageLock for ByPython {
    fn lock(&self, start: *mut u8, len: usize) -> Result<()> {
        let refused = called(|py| -> PyResult<Option<String>> {
            self.0.bind(py).call_method1("lock", (start.expose_provenance(), len))?.extract()
        });
        let reason = match refused {
            Some(Ok(None)) => return Ok(()),
            Some(Ok(Some(reason))) => reason,
            Some(Err(error)) => error.to_string(),
            None => "the interpreter ends".to_owned(),
        };
        Err(Error::new(ErrorKind::Limit, reason))
    }

    fn unlock(&self, start: *mut u8) -> bool {
        let done = called(|py| self.0.bind(py).call_method1("unlock", (start.addr(),)).map(drop));
        matches!(done, Some(Ok(())))
    }
}

/// From now on nothing is page-locked or unlocked: memory that is locked stays so until the process ends.
#[pyfunction]
pub(crate) fn end_page_locks(py: Python<'_>) {
    ENDING.store(true, SeqCst);
    py.detach(|| {
        while CALLS.load(SeqCst) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}
