//! From encoded bytes to pixels: the [`Codec`] trait, its registry, colour modes and EXIF orientation.

mod color;
mod jpeg;
mod orientation;
mod png;
mod unknown;

use serde::{Deserialize, Serialize};
use wellfed_jpeg::RowIndex;
use wellfed_kernels::image::Image;

pub(crate) use self::jpeg::error as jpeg_error;
pub use self::{jpeg::Jpeg, orientation::apply_orientation, png::Png};
use crate::{Error, Limits, Result};

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

impl Mode {
    /// Channels of an image decoded in this mode from a file of `stored` channels ([`Header::channels`]).
    pub fn channels(self, stored: usize) -> usize {
        match self {
            Mode::Rgb => 3,
            Mode::L => 1,
            Mode::Rgba => 4,
            Mode::Unchanged => stored,
        }
    }
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

impl Header {
    /// Height and width: as seen if `oriented` (EXIF orientation applied), else as stored.
    pub fn size(&self, oriented: bool) -> (usize, usize) {
        if oriented && orientation::swaps_sides(self.orientation) {
            (self.width, self.height)
        } else {
            (self.height, self.width)
        }
    }
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

impl Rect {
    /// Accepts a rectangle that is not empty and lies inside an image of `height` x `width`.
    ///
    /// # Errors
    /// `Config` otherwise.
    pub fn check_inside(&self, height: usize, width: usize) -> Result<()> {
        let inside = |start: usize, length: usize, of: usize| {
            length > 0 && start.checked_add(length).is_some_and(|end| end <= of)
        };
        if inside(self.top, self.height, height) && inside(self.left, self.width, width) {
            return Ok(());
        }
        Err(Error::config(format!(
            "region of {}x{} pixels at row {}, column {} does not lie inside an image of {width}x{height}",
            self.width, self.height, self.top, self.left
        )))
    }
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

    /// Decodes at least `request.region` into `out`, whose channels follow `request.mode`, in stored
    /// orientation.
    ///
    /// Pixels inside the region equal those of a full decode. Limits are checked before allocation, and
    /// against the full image whatever the region. After an error `out` holds unspecified pixels.
    fn decode(
        &self,
        bytes: &[u8],
        request: &Request,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Image,
    ) -> Result<Origin>;
}

/// What is known beforehand of where a JPEG's rows begin, and what its decode found out.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// From an earlier decode.
    pub(crate) known: Option<RowIndex>,
    /// Find out more.
    pub(crate) record: bool,
    /// What was found out beyond what was known.
    pub(crate) found: Option<RowIndex>,
}

/// Memory that decoders reuse from image to image.
#[derive(Debug, Default)]
pub struct Scratch {
    jpeg: wellfed_jpeg::Decoder,
    pub(crate) rows: Rows,
    pixels: Vec<u8>,
    image: Image,
}

impl Scratch {
    /// Bytes this keeps allocated.
    pub fn capacity(&self) -> usize {
        self.jpeg.capacity() + self.pixels.capacity() + self.image.capacity()
    }

    /// `size` bytes of unspecified value.
    fn pixels(&mut self, size: usize) -> &mut [u8] {
        at_least(&mut self.pixels, size)
    }
}

/// `size` bytes of unspecified value. The memory never shrinks, so that nothing is cleared twice.
fn at_least(memory: &mut Vec<u8>, size: usize) -> &mut [u8] {
    if memory.len() < size {
        memory.resize(size, 0);
    }
    &mut memory[..size]
}

/// True if `bytes` begin like a JPEG.
pub(crate) fn is_jpeg(bytes: &[u8]) -> bool {
    Jpeg.sniff(bytes)
}

/// All codecs, in the order in which they are asked.
static CODECS: [&dyn Codec; 2] = [&Jpeg, &Png];

/// The codec for `bytes`, by what they contain; names and extensions play no part.
pub fn detect(bytes: &[u8]) -> Option<&'static dyn Codec> {
    CODECS.into_iter().find(|codec| codec.sniff(bytes))
}

/// Like [`detect`], with an error that says what the bytes look like instead.
///
/// # Errors
/// `Unsupported` for image formats that have no codec, `Corrupt` for bytes that are no image at all.
pub fn require(bytes: &[u8]) -> Result<&'static dyn Codec> {
    detect(bytes).ok_or_else(|| unknown::describe(bytes))
}

/// What the header of an encoded image of any supported format says, and which codec read it.
///
/// # Errors
/// Those of [`require`] and [`Codec::header`].
pub fn image_header(bytes: &[u8]) -> Result<(&'static dyn Codec, Header)> {
    let codec = require(bytes)?;
    Ok((codec, codec.header(bytes)?))
}

/// Decodes an image of any supported format into `out`.
///
/// With `apply_orientation` the image is flipped and turned as its EXIF orientation says; `region` and the
/// origin that is returned are then in coordinates of the turned image, whose size is
/// [`Header::size`]`(true)`. `out` holds at least the region; its row 0, column 0 is the returned origin.
///
/// # Errors
/// `Unsupported` and `Corrupt` for bytes that cannot be decoded, `Limit` for too many pixels, `Config` for a
/// region outside the image.
pub fn decode_image(
    bytes: &[u8],
    mode: Mode,
    region: Option<Rect>,
    apply_orientation: bool,
    limits: &Limits,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<(Header, Origin)> {
    let (codec, header) = image_header(bytes)?;
    if !apply_orientation || header.orientation == 1 {
        let origin = codec.decode(bytes, &Request { mode, region }, limits, scratch, out)?;
        return Ok((header, origin));
    }
    let Header { height, width, orientation, .. } = header;
    let region = match region {
        Some(region) => {
            let (oriented_height, oriented_width) = header.size(true);
            region.check_inside(oriented_height, oriented_width)?;
            Some(orientation::stored_rect(region, orientation, height, width))
        }
        None => None,
    };
    let mut stored = std::mem::take(&mut scratch.image);
    let decoded = codec.decode(bytes, &Request { mode, region }, limits, scratch, &mut stored);
    let result = decoded.and_then(|origin| {
        let all = Rect { top: 0, left: 0, height: stored.height(), width: stored.width() };
        // Turn only what was asked for.
        let part = region.map_or(all, |r| Rect { top: r.top - origin.top, left: r.left - origin.left, ..r });
        let view = stored
            .view()
            .crop(part.top, part.left, part.height, part.width)
            .ok_or_else(|| Error::new(crate::ErrorKind::Internal, "codec decoded less than the region"))?;
        orientation::apply_orientation(view, orientation, out);
        let part = Rect { top: part.top + origin.top, left: part.left + origin.left, ..part };
        Ok((header, orientation::oriented_origin(part, orientation, height, width)))
    });
    scratch.image = stored;
    result
}
