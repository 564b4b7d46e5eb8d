//! Pixel and sample kernels of wellfed.
//!
//! Each kernel lives in its own file or folder. Where SIMD versions exist, the scalar version is the oracle
//! that property tests hold them against.

pub mod affine;
pub mod alpha;
pub mod blur;
pub mod box_blur;
pub mod color;
pub mod erase;
pub mod gray;
pub mod hue;
pub mod image;
pub mod level;
pub mod mix;
pub mod opencv;
pub mod points;
pub mod recipe;
pub mod resample;
pub mod rotate;
pub mod sharpen;
pub mod tables;
pub mod tensor;
pub mod tensorflow;
pub mod unfinished;
pub mod write;
