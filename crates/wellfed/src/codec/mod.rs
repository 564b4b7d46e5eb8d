//! From encoded bytes to pixels: the [`Codec`] trait, its registry, colour modes and EXIF orientation.

use serde::{Deserialize, Serialize};
use wellfed_kernels::image::Image;

use crate::{Error, ErrorKind, Limits, Result};

/// Colour mode of a decoded image, named as Pillow names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Mode {
    /// Three channels. Grey is repeated, alpha dropped, as `Image.convert("RGB")` does.
    #[default]
    #[serde(rename = "RGB")]
    Rgb,
    /// One channel of luma (ITU-R 601-2), as `Image.convert("L")` does.
    #[serde(rename = "L")]
    L,
    /// Four channels; opaque where the file has no alpha.
    #[serde(rename = "RGBA")]
    Rgba,
    /// What the file has: 1 (grey), 2 (grey and alpha), 3 or 4 channels of 8 bits.
    #[serde(rename = "UNCHANGED")]
    Unchanged,
}

/// What the header of an encoded image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Rows, as stored (before EXIF orientation).
    pub height: usize,
    /// Columns, as stored.
    pub width: usize,
    /// Channels that [`Mode::Unchanged`] gives.
    pub channels: usize,
    /// EXIF orientation 1 to 8; 1 if there is none.
    pub orientation: u8,
}

/// A rectangle of pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Rect {
    /// First row.
    pub top: usize,
    /// First column.
    pub left: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

/// What the caller wants decoded.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Colour mode of the output.
    pub mode: Mode,
    /// The pixels that will be looked at, in stored coordinates; `None` for all.
    pub region: Option<Rect>,
}

/// Where the pixels in the output image lie in the full image: the decoder may give more than the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Row of the full image that is row 0 of the output.
    pub top: usize,
    /// Column of the full image that is column 0 of the output.
    pub left: usize,
}

/// A decoder of one image format. Stateless: scratch memory is the caller's.
pub trait Codec: Send + Sync + std::fmt::Debug {
    /// Short name, such as `jpeg`.
    fn name(&self) -> &'static str;

    /// True if `bytes` begin like this format.
    fn sniff(&self, bytes: &[u8]) -> bool;

    /// Reads the header only; never allocates by what it says.
    fn header(&self, bytes: &[u8]) -> Result<Header>;

    /// Decodes at least `request.region` into `out`, whose channels follow `request.mode`.
    ///
    /// Pixels inside the region equal those of a full decode. Limits are checked before allocation.
    fn decode(
        &self,
        bytes: &[u8],
        header: &Header,
        request: &Request,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Image,
    ) -> Result<Origin>;
}

/// Memory that decoders reuse from image to image.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Bytes for whatever a decoder needs between calls.
    pub bytes: Vec<u8>,
    /// Pixels before a change of mode.
    pub pixels: Vec<u8>,
}

impl Scratch {
    /// Bytes kept allocated.
    pub fn capacity(&self) -> usize {
        self.bytes.capacity() + self.pixels.capacity()
    }
}

fn no_codec() -> Error {
    Error::new(ErrorKind::Unsupported, "no codec for these bytes")
}

/// Reads the header of an image of any known format.
///
/// # Errors
/// If the format is not known or the header is damaged.
pub fn image_header(_bytes: &[u8]) -> Result<Header> {
    Err(no_codec())
}

/// Decodes an image of any known format.
///
/// # Errors
/// If the format is not known or the bytes are damaged.
pub fn decode_image(
    _bytes: &[u8],
    _mode: Mode,
    _region: Option<Rect>,
    _apply_orientation: bool,
    _limits: &Limits,
    _scratch: &mut Scratch,
    _out: &mut Image,
) -> Result<Origin> {
    Err(no_codec())
}
