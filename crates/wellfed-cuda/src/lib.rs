//! CUDA kernels of wellfed, and the driver that runs them.
//!
//! Nothing of CUDA is needed to build, install or test this crate: the driver's library is looked for at run time.
//! The kernels' sources (`kernels/*.cu`) are CUDA C++ to NVRTC and C11 to the host's compiler, and [`host`] runs them
//! without a device: the same integer arithmetic, and so the same bits.
//!
//! [`finish`] finishes the images that the engine left to a device, and [`finisher`] does so in memory of its own. [`place::Place`] is where kernels run, a device or the
//! host, so that callers are written once. Below it lie [`module`] (the kernels on a device), [`memory`], [`stream`],
//! [`device`], [`driver`] and [`library`]. [`nvjpeg`] decodes JPEGs by NVIDIA's library.

pub mod augment;
pub mod device;
pub mod driver;
pub mod error;
pub mod finish;
pub mod finisher;
mod functions;
pub mod host;
pub mod library;
pub mod memory;
pub mod mix;
pub mod module;
pub mod nvjpeg;
pub mod page_lock;
pub mod place;
mod ptx;
pub mod stream;

pub use error::{Error, Result};
