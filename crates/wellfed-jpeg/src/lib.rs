//! A JPEG decoder for training data.

mod bits;
mod decoder;
mod entropy;
mod error;
mod exif;
mod frame;
mod header;
mod huffman;
mod index;
mod kernels;
mod level;
mod limits;
mod markers;
mod multiscan;
mod output;
mod packed;
mod progressive;
mod reconstruct;
mod region;
mod sequential;

pub use decoder::{Decoder, Image, Info, Options};
pub use error::{Error, ErrorKind, Result};
pub use exif::exif_orientation;
pub use header::{Colour, Component, Density, Header, Process};
pub use index::RowIndex;
pub use level::Level;
pub use limits::Limits;
pub use output::{Format, Rows};
pub use packed::Packed;
pub use region::{Region, Scale};
