//! The engine of wellfed: from bytes on disk to finished training batches.
//!
//! A *plan* flows down and data flows up:
//!
//! ```text
//! Dataset (verbs) -> plan::Plan -> plan::Program          what to do, then how
//! store -> source -> codec -> transform -> engine (ring)   bytes to a batch
//! ```
//!
//! The crate knows nothing of Python, of a command line or of CUDA.

pub mod codec;
pub mod dataset;
pub mod engine;
pub mod error;
pub mod limits;
pub mod meter;
pub mod order;
pub mod plan;
pub mod rng;
pub mod sample;
pub mod source;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
pub mod transform;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use dataset::{Dataset, apply};
pub use engine::{BadSample, Batch, Column, ColumnData, Loader, Next};
pub use error::{Error, ErrorKind, Result};
pub use limits::Limits;
pub use plan::{Options, Plan};

/// Locks a mutex. A panic while it was held is no reason to stop: every critical section here leaves its data
/// whole, and panics of samples are caught before.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
