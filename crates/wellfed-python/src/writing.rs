//! `_native.Writing`: shards that are being written or verified, on threads of the engine's.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::JoinHandle,
    time::Duration,
};

use pyo3::prelude::*;
use wellfed::{Error, ErrorKind, Result, write::Progress};

use crate::{dataset::to_json, enter};

/// Longest time that the end of threads is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Work on shards. Whoever drops it ends it.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Writing {
    progress: Arc<Progress>,
    state: Mutex<State>,
}

struct State {
    /// The result as JSON.
    result: Receiver<Result<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Writing {
    /// Runs `work` on a thread.
    pub(crate) fn start(
        py: Python<'_>,
        work: impl FnOnce(&Progress) -> Result<String> + Send + 'static,
    ) -> PyResult<Self> {
        let progress = Arc::new(Progress::new());
        let (sender, result) = sync_channel(1);
        let shared = progress.clone();
        let thread = std::thread::Builder::new()
            .name("wellfed-write".to_owned())
            // Where the receiver is gone nobody wants the result.
            .spawn(move || drop(sender.send(enter::guarded(|| work(&shared)))));
        let thread = enter::quick(py, || thread.map_err(|e| Error::io("start", "a thread", e)))?;
        Ok(Self { progress, state: Mutex::new(State { result, thread: Some(thread) }) })
    }
}

#[pymethods]
impl Writing {
    /// The result as JSON, or None if it is not there after so many milliseconds.
    fn wait(&self, py: Python<'_>, milliseconds: u64) -> PyResult<Option<String>> {
        let wanted = Duration::from_millis(milliseconds.min(1000));
        let result = enter::quick(py, || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let result = match state.result.recv_timeout(wanted) {
                Ok(result) => result.map(Some),
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    Err(Error::new(ErrorKind::State, "the result was taken already"))
                }
            };
            drop(state.thread.take().map(JoinHandle::join));
            result
        })?;
        if result.is_none() {
            py.check_signals()?;
        }
        Ok(result)
    }

    /// How far it is, as JSON.
    fn progress(&self, py: Python<'_>) -> PyResult<String> {
        enter::quick(py, || to_json(&self.progress.now()))
    }

    /// Ends it; what is finished stays. Returns when its threads have ended, or after a second: one of them may hang in
    /// storage, and is left behind then.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.progress.stop();
        enter::quick(py, || {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if !matches!(state.result.recv_timeout(PATIENCE), Err(RecvTimeoutError::Timeout)) {
                drop(state.thread.take().map(JoinHandle::join));
            }
            Ok(())
        })
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.progress.stop();
    }
}

/// Begins to compare shards with what was written.
#[pyfunction]
pub(crate) fn verify(py: Python<'_>, path: String, full: bool, workers: Option<usize>) -> PyResult<Writing> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let workers = workers.unwrap_or_else(cores);
    Writing::start(py, move |progress| to_json(&wellfed::write::verify(&path, full, workers, progress)?))
}
