//! A JPEG decoder for training data.

mod kernels;
mod level;

pub use level::Level;
