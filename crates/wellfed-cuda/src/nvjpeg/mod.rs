//! JPEGs by NVIDIA's nvJPEG: fast, and with pixels that differ slightly from libjpeg-turbo's.
//!
//! [`library`] are its functions, [`decoder`] decodes batches by one of its engines, and [`head`] looks at a stream first:
//! what an engine might decode wrongly or not at all is told of that image by [`Refusal`], and is the CPU's: [`fallback`].

pub mod decoder;
pub mod fallback;
pub mod head;
pub mod library;

pub use decoder::{Decoder, Engine, Options, Planes, Session};
pub use fallback::decode_all;
pub use head::{Head, Refusal};
pub use library::Nvjpeg;
