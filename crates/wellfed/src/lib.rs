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
pub mod error;
pub mod limits;
pub mod rng;
pub mod sample;
pub mod source;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
pub mod transform;

pub use error::{Error, ErrorKind, Result};
pub use limits::Limits;
