//! The one gateway from Python into the engine.
//!
//! Whatever goes through it runs without the interpreter lock, answers Ctrl-C within [`POLL`], and turns a panic
//! into an exception.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread::JoinHandle,
    time::Duration,
};

use pyo3::prelude::*;
use wellfed::{Error, ErrorKind, Result};

use crate::error::to_python;

/// Longest time between two looks at signals.
pub(crate) const POLL: Duration = Duration::from_millis(50);

/// Runs `work` that ends soon.
pub(crate) fn quick<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    py.detach(|| guarded(work)).map_err(|e| to_python(py, &e))
}

/// Runs `step` until it has a result. It gets the longest time it may take.
pub(crate) fn poll<T: Send>(
    py: Python<'_>,
    mut step: impl FnMut(Duration) -> Result<Option<T>> + Send,
) -> PyResult<T> {
    loop {
        if let Some(done) = quick(py, || step(POLL))? {
            return Ok(done);
        }
        py.check_signals()?;
    }
}

/// Runs `work` that may take long and cannot be interrupted, on a thread of its own. After Ctrl-C the thread
/// finishes by itself, and what it made is dropped.
pub(crate) fn slow<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = sync_channel(1);
    let spawned = std::thread::Builder::new()
        .name("wellfed-call".to_owned())
        // The receiver is gone only after Ctrl-C: then nobody wants the result.
        .spawn(move || drop(sender.send(guarded(work))));
    let mut thread = Some(quick(py, || spawned.map_err(|e| Error::io("start", "a thread", e)))?);
    poll(py, move |timeout| {
        let result = match receiver.recv_timeout(timeout) {
            Ok(result) => result.map(Some),
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Error::new(ErrorKind::Internal, "a thread ended without a result"))
            }
        };
        // It has nothing left to do; after this it is gone for those who count threads, as fork() does.
        drop(thread.take().map(JoinHandle::join));
        result
    })
}

/// Runs `work`, and makes an error of a panic.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    // Nothing that a panic may leave half-done is looked at again: `work` owns or locks what it changes.
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Error::new(ErrorKind::Internal, format!("wellfed panicked: {}", text(&*panic)))
            .with_hint("this is a defect of wellfed; please report it with the text above"))
    })
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
