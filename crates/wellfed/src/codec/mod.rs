//! From encoded bytes to pixels: the [`Codec`] trait, its registry, colour modes and EXIF orientation.

mod bmp;
mod color;
mod gif;
mod jpeg;
mod orientation;
mod packed;
mod plain_head;
mod png;
mod pnm;
mod region;
#[cfg(test)]
mod tests;
mod tiff;
mod unknown;
mod webp;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wellfed_jpeg::RowIndex;
pub use wellfed_jpeg::{Dct, Scale};
use wellfed_kernels::{
    image::{Image, Layout, Pixels},
    points::PointMap,
    write::{GeometryError, Output, PadMode, Window, Writer},
};

pub use self::{
    bmp::Bmp,
    gif::Gif,
    jpeg::Jpeg,
    orientation::apply_orientation,
    packed::PackedJpeg,
    plain_head::{JpegHead, jpeg_head},
    png::Png,
    pnm::Pnm,
    tiff::Tiff,
    webp::WebP,
};
pub(crate) use self::{jpeg::error as jpeg_error, png::is_plain as png_is_plain};
use crate::{Error, ErrorKind, Limits, Result, budget::Room, sample::DType};

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
    /// Three channels, as `cv2.imread` and a turn to RGB give them: those of `Rgb` for the files for which that is known,
    /// which are JPEGs without inks. Others are refused.
    #[serde(rename = "OPENCV")]
    OpenCv,
    /// Three channels, as TensorFlow's `tf.io.decode_jpeg(channels=3)` and its siblings give them: JPEGs by the fast inverse
    /// DCT. Files for which that is not known are refused; known are JPEGs without inks, and PNGs of 8 bits without a
    /// transparent colour.
    #[serde(rename = "TENSORFLOW")]
    TensorFlow,
    /// As `TensorFlow`, of JPEGs by the accurate inverse DCT, as with `dct_method="INTEGER_ACCURATE"`.
    #[serde(rename = "TENSORFLOW_ACCURATE")]
    TensorFlowAccurate,
    /// The channels of the file, as `tf.io.decode_jpeg` and its siblings give them; else as `TensorFlow`.
    #[serde(rename = "TENSORFLOW_UNCHANGED")]
    TensorFlowUnchanged,
    /// One channel, as `tf.io.decode_image(channels=1)` gives it: the brightness that JPEGs hold, by the fast inverse DCT, and
    /// PNGs in grey. Colours of PNGs are refused, since they are mixed by what is said of gamma, and so are JPEGs of RGB.
    #[serde(rename = "TENSORFLOW_L")]
    TensorFlowL,
    /// Four channels, as `tf.io.decode_image(channels=4)` gives them: of PNGs as `TensorFlow` knows them. It refuses JPEGs.
    #[serde(rename = "TENSORFLOW_RGBA")]
    TensorFlowRgba,
    /// The numbers of a mask as they are stored: one channel, or two that are the bytes of a 16-bit number in native
    /// order. What fields of masks are decoded to; no option asks for it.
    #[serde(skip)]
    Mask(MaskDepth),
}

/// What one pixel of a mask is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaskDepth {
    /// 0 or 1: grey of one bit, Pillow's mode `1`.
    Bit,
    /// The index of a colour in the palette (`P`), or grey of 2, 4 or 8 bits (`L`).
    Byte,
    /// Grey of 16 bits (`I;16`).
    Word,
    /// Any image as 8-bit grey, as [`Mode::L`] has it.
    Grey,
}

impl Mode {
    /// Channels of an image decoded in this mode from a file of `stored` channels ([`Header::channels`]).
    pub fn channels(self, stored: usize) -> usize {
        match self {
            Mode::Rgb | Mode::OpenCv | Mode::TensorFlow | Mode::TensorFlowAccurate => 3,
            Mode::L | Mode::TensorFlowL => 1,
            Mode::Rgba | Mode::TensorFlowRgba => 4,
            Mode::Unchanged | Mode::TensorFlowUnchanged => stored,
            Mode::Mask(MaskDepth::Bit | MaskDepth::Byte | MaskDepth::Grey) => 1,
            Mode::Mask(MaskDepth::Word) => 2,
        }
    }

    /// Channels of the bands that a codec gives: [`Mode::channels`], but one that stands for all three where a
    /// grey image is wanted in RGB.
    pub fn band_channels(self, stored: usize) -> usize {
        let rgb = !matches!(self, Mode::Unchanged | Mode::TensorFlowUnchanged) && self.channels(stored) == 3;
        if stored == 1 && rgb { 1 } else { self.channels(stored) }
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
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Colour mode of the output.
    pub mode: Mode,
    /// The pixels that are wanted, at the scale of the output and turned as that is; `None` for all.
    pub region: Option<Rect>,
    /// Turn the image as its EXIF orientation says.
    pub apply_orientation: bool,
    /// How much smaller than stored. Only codecs that say so ([`Codec::scales`]) do it.
    pub scale: Scale,
}

/// What a codec decodes: as [`Request`], settled, and as stored.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Colour mode of the output.
    pub mode: Mode,
    /// The pixels that are wanted, at the scale of the output. Lies inside the image.
    pub region: Rect,
    /// How much smaller than stored.
    pub scale: Scale,
    /// The inverse DCT of JPEGs.
    pub dct: Dct,
}

/// Takes bands of rows, from top to bottom.
pub type Push<'a> = dyn FnMut(Pixels<'_>) -> Result<()> + 'a;

/// A decoder of one image format. Stateless: scratch memory is the caller's.
pub trait Codec: Send + Sync + std::fmt::Debug {
    /// Short name, such as `jpeg`.
    fn name(&self) -> &'static str;

    /// True if `bytes` begin like this format.
    fn sniff(&self, bytes: &[u8]) -> bool;

    /// Reads the header only; never allocates by what it says.
    fn header(&self, bytes: &[u8]) -> Result<Header>;

    /// True if images can be decoded at a smaller scale.
    fn scales(&self) -> bool {
        false
    }

    /// Decodes exactly `part.region`, in stored orientation, and hands it to `push` band by band, with
    /// [`Mode::band_channels`] channels.
    ///
    /// The pixels equal those of a full decode. The caller has checked the limit of pixels against the full
    /// image; memory and work that it does not bound are this function's to bound. An error may come after bands
    /// were given out. The first error of `push` ends the decode.
    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()>;

    /// Decodes what [`Codec::decode`] does to where it belongs: pixel after pixel of [`Mode::channels`] channels, row after
    /// row. False, and nothing was done, where the codec only gives bands.
    ///
    /// # Errors
    /// Those of [`Codec::decode`]; `out` then holds unspecified values.
    fn decode_into(
        &self,
        _bytes: &[u8],
        _part: &Part,
        _limits: &Limits,
        _scratch: &mut Scratch,
        _out: &mut [u8],
    ) -> Result<bool> {
        Ok(false)
    }

    /// Decodes `part.region` no further than to coefficients, which are written behind what `out` holds. `None`, and
    /// nothing is written, where the image has none or they make other pixels than `mode` wants.
    ///
    /// # Errors
    /// Those of [`Codec::decode`].
    fn coefficients(
        &self,
        _bytes: &[u8],
        _part: &Part,
        _limits: &Limits,
        _scratch: &mut Scratch,
        _out: &mut Vec<u8>,
    ) -> Result<Option<wellfed_jpeg::Part>> {
        Ok(None)
    }
}

/// What is known beforehand of where a JPEG's rows begin, and what its decode found out.
#[derive(Debug, Default)]
pub(crate) struct RowHint {
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
    pub(crate) row_hint: RowHint,
    /// Packed coefficients need no look at their checksum.
    pub(crate) sound: bool,
    pixels: Vec<u8>,
    /// Pixels in the colours that are wanted, where a codec makes them in a second step.
    converted: Vec<u8>,
    /// An image as stored, and turned.
    turned: [Image; 2],
    /// Is asked before memory is taken.
    room: Option<Arc<Room>>,
}

impl Scratch {
    /// Memory that is reserved in `room` before it is taken.
    pub(crate) fn within(room: Option<Arc<Room>>) -> Self {
        Self { room, ..Self::default() }
    }

    /// Where memory is reserved.
    pub(crate) fn room(&self) -> Option<&Arc<Room>> {
        self.room.as_ref()
    }

    /// Reserves memory for an image where `held` bytes are allocated already.
    pub(crate) fn reserve(&self, bytes: usize, held: usize) -> Result<()> {
        reserve(self.room.as_deref(), bytes, held)
    }

    /// The decoder of JPEGs.
    pub(crate) fn decoder(&mut self) -> &mut wellfed_jpeg::Decoder {
        &mut self.jpeg
    }

    /// Bytes this keeps allocated.
    pub fn capacity(&self) -> usize {
        self.jpeg.capacity()
            + self.pixels.capacity()
            + self.converted.capacity()
            + self.turned.iter().map(Image::capacity).sum::<usize>()
    }
}

/// Reserves `bytes` of which `held` are allocated already.
fn reserve(room: Option<&Room>, bytes: usize, held: usize) -> Result<()> {
    match room {
        Some(room) if bytes > held => room.take(bytes - held),
        _ => Ok(()),
    }
}

/// `size` bytes of unspecified value. The memory never shrinks, so that nothing is cleared twice.
///
/// # Errors
/// `Limit` if there is no room for them, or no memory.
fn at_least<'a>(memory: &'a mut Vec<u8>, size: usize, room: Option<&Room>) -> Result<&'a mut [u8]> {
    if memory.len() < size {
        if memory.capacity() < size {
            reserve(room, size, memory.capacity())?;
            *memory = Vec::new();
            memory.try_reserve_exact(size).map_err(|_| Error::memory(size, "pixels"))?;
        }
        memory.resize(size, 0);
    }
    Ok(&mut memory[..size])
}

/// An error of the kernels in the engine's terms; only a lack of memory can come from an image's size.
pub(crate) fn kernel_error(error: GeometryError) -> Error {
    match error {
        GeometryError::Memory { bytes } => Error::memory(bytes, "pixels"),
        other => Error::new(ErrorKind::Internal, other.to_string()),
    }
}

/// True if `bytes` begin like a JPEG.
pub(crate) fn is_jpeg(bytes: &[u8]) -> bool {
    Jpeg.sniff(bytes)
}

/// All codecs, in the order in which they are asked.
static CODECS: [&dyn Codec; 8] = [&Jpeg, &Png, &PackedJpeg, &WebP, &Gif, &Tiff, &Bmp, &Pnm];

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
    let Encoded { codec, header, .. } = Encoded::open(bytes)?;
    Ok((codec, header))
}

/// Decodes an image of any supported format into `out`, which becomes exactly the region that is wanted.
///
/// # Errors
/// Those of [`Encoded::open`] and [`Encoded::decode`].
pub fn decode_image(
    bytes: &[u8],
    request: &Request,
    limits: &Limits,
    scratch: &mut Scratch,
    out: &mut Image,
) -> Result<Header> {
    let encoded = Encoded::open(bytes)?;
    let region = encoded.region(request, limits)?;
    let (bands, channels) = encoded.channels(request.mode);
    let slot = out.reshape(region.height, region.width, channels).map_err(kernel_error)?;
    if !encoded.decode_into(request, limits, scratch, slot)? {
        collect(region, (bands, channels), out, |push| encoded.decode(request, limits, scratch, push))?;
    }
    Ok(encoded.header)
}

/// An encoded image whose header was read.
#[derive(Clone, Copy, Debug)]
pub struct Encoded<'a> {
    bytes: &'a [u8],
    codec: &'static dyn Codec,
    header: Header,
}

impl<'a> Encoded<'a> {
    /// Finds the codec and reads the header.
    ///
    /// # Errors
    /// Those of [`require`] and [`Codec::header`].
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let codec = require(bytes)?;
        Ok(Self { bytes, codec, header: codec.header(bytes)? })
    }

    /// What the header says.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The codec of its format.
    pub fn codec(&self) -> &'static dyn Codec {
        self.codec
    }

    /// The same image with another EXIF orientation than its file says.
    pub(crate) fn turned(mut self, orientation: u8) -> Self {
        self.header.orientation = orientation;
        self
    }

    /// Height and width that a decode of all of the image gives.
    pub fn size(&self, request: &Request) -> (usize, usize) {
        self.stored(request.scale).size(request.apply_orientation)
    }

    /// Decodes what is wanted and hands exactly that to `push`, band by band from top to bottom, with
    /// [`Mode::band_channels`] channels. Pixels equal those of a full decode at the same scale.
    ///
    /// # Errors
    /// `Unsupported` and `Corrupt` for bytes that cannot be decoded, perhaps after bands were given out; `Limit`
    /// for too many pixels, of the whole image as stored; `Config` for a region outside the image; the errors of
    /// `push`.
    pub fn decode(
        &self,
        request: &Request,
        limits: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let part = self.part(request, limits)?;
        let orientation = self.header.orientation;
        if !self.is_turned(request) {
            return self.codec.decode(self.bytes, &part, limits, scratch, push);
        }
        let Header { height, width, .. } = self.stored(part.scale);
        let region = orientation::stored_rect(part.region, orientation, height, width);
        let part = Part { region, ..part };
        let bands = part.mode.band_channels(self.header.channels);
        let held: usize = scratch.turned.iter().map(Image::capacity).sum();
        scratch.reserve(2 * region.height * region.width * bands, held)?;
        let [mut stored, mut turned] = std::mem::take(&mut scratch.turned);
        let result = collect(region, (bands, bands), &mut stored, |push| {
            self.codec.decode(self.bytes, &part, limits, scratch, push)
        });
        let result = result.and_then(|()| {
            orientation::apply_orientation(stored.view(), orientation, &mut turned)?;
            push(turned.view().into())
        });
        scratch.turned = [stored, turned];
        result
    }

    /// Decodes what is wanted into `out`, of [`Mode::channels`] interleaved, as [`Codec::decode_into`]. False, and nothing was
    /// done, also where the image is turned.
    ///
    /// # Errors
    /// Those of [`Encoded::decode`].
    pub(crate) fn decode_into(
        &self,
        request: &Request,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<bool> {
        if self.is_turned(request) {
            return Ok(false);
        }
        self.codec.decode_into(self.bytes, &self.part(request, limits)?, limits, scratch, out)
    }

    /// What the codec is asked for, before it is turned.
    fn part(&self, request: &Request, limits: &Limits) -> Result<Part> {
        let dct = match request.mode {
            Mode::TensorFlow | Mode::TensorFlowUnchanged | Mode::TensorFlowL => Dct::Fast,
            _ => Dct::Accurate,
        };
        let region = self.region(request, limits)?;
        Ok(Part { mode: self.mode(request.mode)?, region, scale: request.scale, dct })
    }

    /// Whether the image is turned as its EXIF orientation says.
    fn is_turned(&self, request: &Request) -> bool {
        request.apply_orientation && self.header.orientation != 1
    }

    /// The file, if it is a JPEG of a kind that every decoder knows, and is wanted as RGB and not turned.
    ///
    /// # Errors
    /// Those of [`Encoded::decode`] for headers.
    pub(crate) fn common_jpeg(&self, request: &Request) -> Result<Option<&'a [u8]>> {
        let common = self.codec.name() == "jpeg" && !self.is_turned(request) && request.mode == Mode::Rgb;
        Ok((common && jpeg::is_common(self.bytes)?).then_some(self.bytes))
    }

    /// Decodes what is wanted no further than to coefficients, as [`Codec::coefficients`]. `None` also where the image is
    /// turned or made smaller by the decoder.
    ///
    /// # Errors
    /// Those of [`Encoded::decode`].
    pub(crate) fn coefficients(
        &self,
        request: &Request,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<wellfed_jpeg::Part>> {
        let region = self.region(request, limits)?;
        // Others make other pixels, or other channels.
        let plain = matches!(request.mode, Mode::Rgb | Mode::OpenCv | Mode::TensorFlowAccurate);
        if self.is_turned(request) || !plain || request.scale != Scale::Full {
            return Ok(None);
        }
        let mode = self.mode(request.mode)?;
        let part = Part { mode, region, scale: Scale::Full, dct: Dct::Accurate };
        self.codec.coefficients(self.bytes, &part, limits, scratch, out)
    }

    /// The mode that the codec is asked for. Of masks that are no PNG, those of 8-bit grey are known. Of what OpenCV reads,
    /// JPEGs are known whose colours it does not mix itself.
    fn mode(&self, mode: Mode) -> Result<Mode> {
        match mode {
            Mode::Mask(MaskDepth::Grey) => Ok(Mode::L),
            Mode::Mask(_) if self.codec.name() == "png" => Ok(mode),
            Mode::Mask(MaskDepth::Byte) if self.header.channels == 1 => Ok(Mode::L),
            Mode::Mask(_) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("a mask is a {} of {} channels", self.codec.name(), self.header.channels),
            )
            .with_hint("store masks as PNG with a palette or in grey")),
            Mode::OpenCv if self.codec.name() == "jpeg" && !jpeg::has_inks(self.bytes)? => Ok(Mode::Rgb),
            Mode::OpenCv => Err(Error::new(
                ErrorKind::Unsupported,
                format!("what OpenCV reads of this kind of {} is not known", self.codec.name()),
            )
            .with_hint("store images as JPEG in grey or RGB")),
            Mode::TensorFlow
            | Mode::TensorFlowAccurate
            | Mode::TensorFlowUnchanged
            | Mode::TensorFlowL
            | Mode::TensorFlowRgba => {
                let grey = self.header.channels == 1;
                let known = match self.codec.name() {
                    "jpeg" | "packed jpeg" if mode == Mode::TensorFlowRgba => false,
                    "jpeg" if mode == Mode::TensorFlowL => jpeg::has_luma(self.bytes)?,
                    "packed jpeg" if mode == Mode::TensorFlowL => packed::has_luma(self.bytes)?,
                    "jpeg" => !jpeg::has_inks(self.bytes)?,
                    "packed jpeg" => !packed::has_inks(self.bytes)?,
                    "png" => (grey || mode != Mode::TensorFlowL) && png::is_common(self.bytes)?,
                    _ => false,
                };
                if !known {
                    let wanted = match mode {
                        Mode::TensorFlowL => ", as grey,",
                        Mode::TensorFlowRgba => ", as RGBA,",
                        _ => "",
                    };
                    let what = format!(
                        "what TensorFlow reads of this kind of {} ({} channels){wanted} is not known",
                        self.codec.name(),
                        self.header.channels
                    );
                    return Err(Error::new(ErrorKind::Unsupported, what).with_hint(match mode {
                        Mode::TensorFlowL => "store images as JPEG, or as PNG in grey of 8 bits",
                        Mode::TensorFlowRgba => "store images as PNG of 8 bits",
                        _ => "store images as JPEG in grey or RGB, or as PNG of 8 bits",
                    }));
                }
                Ok(match mode {
                    Mode::TensorFlowUnchanged => Mode::Unchanged,
                    Mode::TensorFlowRgba => Mode::Rgba,
                    Mode::TensorFlowL if self.codec.name() == "png" => Mode::L,
                    Mode::TensorFlowL => mode,
                    _ => Mode::Rgb,
                })
            }
            _ => Ok(mode),
        }
    }

    /// Checks the limit, and the region that is wanted.
    fn region(&self, request: &Request, limits: &Limits) -> Result<Rect> {
        limits.check_pixels(self.header.height, self.header.width)?;
        if request.scale != Scale::Full && !self.codec.scales() {
            return Err(Error::config(format!("{} is not decoded at a smaller scale", self.codec.name())));
        }
        let (height, width) = self.size(request);
        let region = request.region.unwrap_or(Rect { top: 0, left: 0, height, width });
        region.check_inside(height, width)?;
        Ok(region)
    }

    /// Channels of bands, and of the image.
    fn channels(&self, mode: Mode) -> (usize, usize) {
        (mode.band_channels(self.header.channels), mode.channels(self.header.channels))
    }

    /// The header of the image at `scale`.
    fn stored(&self, scale: Scale) -> Header {
        let (width, height) = scale.size(self.header.width, self.header.height);
        Header { height, width, ..self.header }
    }
}

/// What masks are that are stored as the one in `bytes`.
///
/// # Errors
/// Those of [`require`]; `Unsupported` for what is no mask.
pub(crate) fn mask_depth(bytes: &[u8]) -> Result<DType> {
    let (codec, header) = image_header(bytes)?;
    if codec.name() == "png" {
        return png::mask_dtype(bytes);
    }
    Encoded { bytes, codec, header }.mode(Mode::Mask(MaskDepth::Byte)).map(|_| DType::UInt8)
}

/// Collects bands of `bands` channels that make up an image of the size of `region` in `out`, with `channels`.
pub(crate) fn collect(
    region: Rect,
    (bands, channels): (usize, usize),
    out: &mut Image,
    decode: impl FnOnce(&mut Push<'_>) -> Result<()>,
) -> Result<()> {
    let Rect { height, width, .. } = region;
    let map =
        PointMap::identity(channels).map_err(|error| Error::new(ErrorKind::Internal, error.to_string()))?;
    let window = Window { top: 0, left: 0, height, width };
    let output = Output::new(&map, Layout::Hwc);
    let slot = out.reshape(height, width, channels).map_err(kernel_error)?;
    let mut lines = Vec::new();
    let writer = Writer::new((height, width), bands, window, PadMode::Edge, output, slot, &mut lines);
    let mut writer = writer.map_err(kernel_error)?;
    decode(&mut |band| writer.push(band).map_err(kernel_error))?;
    writer.finish().map_err(kernel_error)
}
