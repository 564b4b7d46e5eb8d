//! CUDA kernels of wellfed, and the driver that runs them.
//!
//! Nothing of CUDA is needed to build, install or test this crate: the driver's library is looked for at run time.
//! The kernels' sources (`kernels/*.cu`) are CUDA C++ to NVRTC and C11 to the host's compiler, and [`host`] runs them
//! without a device: the same integer arithmetic, and so the same bits.

pub mod augment;
pub mod host;
