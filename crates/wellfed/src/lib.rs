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
//!
//! ```
//! use std::sync::Arc;
//!
//! use wellfed::{
//!     Dataset,
//!     sample::{DType, Structure},
//!     source::{ArrayData, Pixels, TensorSlices},
//!     transform::{ImageDtype, RandomCrop, RandomHorizontalFlip, ToDtype, Transform},
//! };
//!
//! // Ten 8x8 RGB images; `source::ImageFolder` reads files in the same way.
//! let pixels = ArrayData::from_vec(vec![128; 10 * 8 * 8 * 3], DType::UInt8, vec![10, 8, 8, 3])?;
//! let source = TensorSlices::new(vec![("image".into(), pixels, Pixels::Infer)], Structure::Field(0))?;
//! let transforms: Vec<Transform> = vec![
//!     RandomCrop::new(8).padding(1).into(),
//!     RandomHorizontalFlip::default().into(),
//!     ToDtype::new(ImageDtype::Float32).scale(true).into(),
//! ];
//! let loader = Dataset::new(Arc::new(source)).shuffle(0).map(transforms).batch(4, false).loader()?;
//! for epoch in 0..2 {
//!     let sizes: Vec<usize> = loader.epoch()?.map(|batch| Ok(batch?.len)).collect::<wellfed::Result<_>>()?;
//!     assert_eq!(sizes, [4, 4, 2]);
//! }
//! # Ok::<(), wellfed::Error>(())
//! ```

pub(crate) mod budget;
pub mod codec;
pub(crate) mod column;
pub mod dataset;
pub mod engine;
pub mod error;
mod explain;
pub mod groups;
pub mod io;
pub mod limits;
pub mod memory;
pub mod meter;
pub mod order;
pub mod plan;
pub mod rng;
pub mod sample;
mod sampler;
mod sequence;
pub mod source;
pub mod store;
#[cfg(test)]
pub(crate) mod testing;
pub mod transform;
pub mod write;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use column::{ColumnForm, ColumnShape};
pub use dataset::{Dataset, apply};
pub use engine::{BadSample, Batch, Column, ColumnData, LeftImage, Loader, Next, RowIndexes};
pub use error::{Error, ErrorKind, Result};
pub use limits::Limits;
pub use plan::{Options, Plan};
pub use sampler::{Place, Sampler};
pub use sequence::Sequence;

/// Locks a mutex. A panic while it was held is no reason to stop: every critical section here leaves its data
/// whole, and panics of samples are caught before.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
