//! A JPEG decoder for training data: the pixels of libjpeg-turbo, in half the time, and only those that are wanted.
//!
//! Training loops decode each photograph many times and look at a part of it each time. [`Decoder`] decodes that part
//! ([`Options::region`]): nothing below it is read, and nothing beside it is transformed. What it gives equals the
//! same part of a full decode, and that equals what libjpeg-turbo makes with its defaults (accurate inverse DCT, triangle
//! filters for chroma), as Pillow, torchvision and OpenCV use it, or with its fast inverse DCT ([`Dct::Fast`]), as TensorFlow
//! uses it.
//!
//! ```
//! # let bytes = include_bytes!("../tests/images/grey.jpg");
//! use wellfed_jpeg::{Decoder, Format, Header, Options, Region};
//!
//! let header = Header::parse(bytes)?;
//! let region = Region { left: header.width / 4, top: header.height / 4, width: 8, height: 8 };
//! let options = Options { region: Some(region), format: Format::Rgb, ..Options::default() };
//!
//! let mut decoder = Decoder::new(); // one for each thread
//! let image = decoder.decode(bytes, &options)?;
//! assert_eq!(image.pixels.len(), 8 * 8 * 3);
//! # Ok::<(), wellfed_jpeg::Error>(())
//! ```
//!
//! # Output
//!
//! 8-bit samples, interleaved ([`Decoder::decode`], [`Decoder::decode_into`]), planar ([`Decoder::decode_planar`]), or
//! planar in bands of a few rows while they are in the cache ([`Decoder::decode_rows`]). [`Format`] chooses channels,
//! [`Options::scale`] takes libjpeg's shortcut to smaller images.
//!
//! # The second time
//!
//! Most of a decode's time goes into Huffman codes, which can only be read from the start. Two things spare that:
//!
//! - a [`RowIndex`], some eleven bytes for each row of MCUs, noted while a file is decoded ([`Options::record`]) and
//!   used from then on ([`Options::index`]): decoding starts at the first row that is needed, and in each row at the
//!   last of up to three points before the window;
//! - packed coefficients ([`Decoder::pack`]): the image without Huffman coding, larger than the file, of which any
//!   part is ready to be transformed.
//!
//! # What it decodes
//!
//! Baseline, extended sequential and progressive files of 8 bits; grey, YCbCr, RGB, CMYK and YCCK; all sampling factors
//! that are multiples of each other; one scan or several; restart markers; tables of 8 and 16 bits. Arithmetic coding,
//! 12 bits, lossless and hierarchical files are [`ErrorKind::Unsupported`].
//!
//! # Damaged files
//!
//! What decodes and what does not is as with Pillow, which uses libjpeg-turbo with a data source that ends where the
//! file does: a file that ends within its data is [`ErrorKind::Truncated`], one that ends after them is fine. With
//! [`Options::tolerant`] decoding goes on as libjpeg-turbo does with end markers behind the file's end. Missing data are
//! grey, or as rough as the scans before left them, and then smoothed as libjpeg-turbo does. Nothing in a file makes
//! this crate panic, read elsewhere, or take more than [`Limits`] allow. Four differences are meant:
//!
//! - The unsupported kinds above: Pillow decodes arithmetic-coded and lossless files, which cameras, phones and the web do
//!   not produce and browsers do not show.
//! - Pillow reads headers with a parser of its own before libjpeg does. What only that one minds (markers of vendors
//!   that it takes apart, quantization tables that are not used, bytes between segments) is no error here.
//! - A file of more pixels, scans or memory than [`Limits`] allow is [`ErrorKind::Limit`]; Pillow has a limit of pixels
//!   only.
//! - Fill bytes before a stuffed zero (FF FF 00, which no encoder writes) are one data byte FF, as in libjpeg.
//!   libjpeg-turbo's fast loop meets them halfway through an MCU, starts that again, and leaves in it what it had
//!   made up in the meantime.
//!
//! # How it is built
//!
//! | module | what it owns |
//! |---|---|
//! | `markers`, `header` | segments; what is known before the first scan |
//! | `ending`, `trailer` | whether data are all there; what comes after them |
//! | `huffman` | tables; two symbols a lookup |
//! | `bits`, `entropy` | bits without byte stuffing; restarts, damage, positions in the file |
//! | `sequential`, `walk` | the loop over blocks; the way through a scan, with jumps and what is noted on it |
//! | `progressive`, `multiscan` | progressive scans; coefficients of a whole image |
//! | `smoothing` | what stands in for coefficients that no scan brought |
//! | `frame` | geometry: MCUs, components, windows |
//! | `reconstruct`, `output` | inverse DCT to rows; where rows go |
//! | `index`, `packed` | what spares Huffman codes the second time |
//! | `part` | decodes that stop before the inverse DCT, for a GPU |
//! | `encode` | the other way round: files that decode to the pixels of libjpeg-turbo's |
//! | `options`, `limits`, `memory` | what is wanted; what may be taken for it |
//! | `kernels` | arithmetic: scalar, AVX2, AVX-512, NEON |

mod bits;
mod decoder;
mod encode;
mod ending;
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
mod memory;
mod multiscan;
mod options;
mod output;
mod packed;
mod part;
mod progressive;
mod reconstruct;
mod region;
mod sequential;
mod smoothing;
mod trailer;
mod walk;

pub use decoder::{Decoder, Image};
pub use encode::{encode, encode_compact, most_bytes};
pub use error::{Error, ErrorKind, Result};
pub use exif::exif_orientation;
pub use header::{Colour, Component, Density, Header, Process};
pub use index::RowIndex;
pub use level::Level;
pub use limits::Limits;
pub use memory::Ask;
pub use options::{Dct, Info, Options};
pub use output::{Format, Rows};
pub use packed::Packed;
pub use part::{Form, Part, PartPlane, PartUpsampling, SEGMENT, Scan, TABLE};
pub use region::{Region, Scale};
