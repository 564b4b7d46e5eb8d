//! WebP: lossy, lossless, with alpha, and the first frame of animations, on Google's libwebp, which is what Pillow has, too.
//!
//! C and not the `image-webp` crate, whose pixels are the same: it takes half the time for lossy files, as it has SIMD, and
//! it spares what lies outside of the region (`benches/webp.py`). libwebp is compiled along, without system packages.
//!
//! The chunks are walked first, since a file may say more bytes than it has, and that is said in other words than damage.

use std::{marker::PhantomData, mem::MaybeUninit, ptr::null_mut, slice};

use libwebp_sys as sys;

use super::{Codec, Header, Mode, Part, Push, Rect, Scratch, at_least, region::push_columns};
use crate::{Error, ErrorKind, Limits, Result};

/// Pixels around a region that are decoded, too: colours lie at every other pixel, and are blended with those beside them.
/// Even, as regions of colours begin at even pixels.
const MARGIN: usize = 2;

/// The WebP codec.
#[derive(Clone, Copy, Debug)]
pub struct WebP;

impl Codec for WebP {
    fn name(&self) -> &'static str {
        "webp"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP")
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        Ok(open(bytes)?.header)
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        _: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Opened { header, animated } = open(bytes)?;
        let (count, region) = (header.height.saturating_mul(header.width), part.region);
        // The library takes its memory by itself: pixels of 4 bytes and their tables for lossless images and alpha; of
        // animations two screens, too.
        let own = count.saturating_mul(if animated { 12 } else { 5 }).saturating_add(1 << 20);
        scratch.reserve(own, 0)?;
        Vec::<u8>::new().try_reserve_exact(own).map_err(|_| Error::memory(own, "planes of a WebP"))?;
        let Scratch { pixels, converted, room, .. } = scratch;
        let room = room.as_deref();
        if animated {
            let player = Player::new(bytes)?;
            let rows = player.first(count)?;
            let rows = &rows[region.top * header.width * 4..][..region.height * header.width * 4];
            // The screen has alpha even where no frame has.
            let mode =
                if part.mode == Mode::Unchanged && header.channels == 3 { Mode::Rgb } else { part.mode };
            return push_columns(rows, (header.width, 4), (mode, region), converted, room, push);
        }
        let decoded = around(region, &header);
        let row = decoded.width * header.channels;
        let memory = at_least(pixels, decoded.height.saturating_mul(row), room)?;
        decode_part(bytes, decoded, header.channels, memory)?;
        let rows = &memory[(region.top - decoded.top) * row..][..region.height * row];
        let region = Rect { left: region.left - decoded.left, ..region };
        push_columns(rows, (decoded.width, header.channels), (part.mode, region), converted, room, push)
    }
}

/// What is decoded so that the pixels of `region` are those of the whole image.
fn around(region: Rect, header: &Header) -> Rect {
    let start = |start: usize| (start & !1).saturating_sub(MARGIN);
    let (top, left) = (start(region.top), start(region.left));
    Rect {
        top,
        left,
        height: (region.top + region.height + MARGIN).min(header.height) - top,
        width: (region.left + region.width + MARGIN).min(header.width) - left,
    }
}

/// Decodes `rect` of an image without frames into `into`, which has room for exactly its pixels of 3 or 4 channels.
fn decode_part(bytes: &[u8], rect: Rect, channels: usize, into: &mut [u8]) -> Result<()> {
    let small =
        |n: usize| i32::try_from(n).map_err(|_| Error::corrupt(format!("WebP has {n} pixels a side")));
    let stride = rect.width * channels;
    // The library is told this size, and writes no further.
    if into.len() != rect.height * stride {
        return Err(Error::new(ErrorKind::Internal, "memory of a WebP has another size than its pixels"));
    }
    let mut config = sys::WebPDecoderConfig::new()
        .map_err(|()| Error::new(ErrorKind::Internal, "libwebp is of another version than its interface"))?;
    config.options.use_cropping = 1;
    config.options.crop_left = small(rect.left)?;
    config.options.crop_top = small(rect.top)?;
    config.options.crop_width = small(rect.width)?;
    config.options.crop_height = small(rect.height)?;
    config.output.colorspace =
        if channels == 4 { sys::WEBP_CSP_MODE::MODE_RGBA } else { sys::WEBP_CSP_MODE::MODE_RGB };
    config.output.is_external_memory = 1;
    config.output.u.RGBA =
        sys::WebPRGBABuffer { rgba: into.as_mut_ptr(), stride: small(stride)?, size: into.len() };
    // SAFETY: `bytes` are read within their length, and `into` is written within the size that the buffer names, which
    // the library checks against stride and cropped size before it decodes (`CheckDecBuffer`). It keeps neither pointer.
    // Worth it: see the head of this file.
    let status = unsafe { sys::WebPDecode(bytes.as_ptr(), bytes.len(), &raw mut config) };
    match status {
        sys::VP8StatusCode::VP8_STATUS_OK => Ok(()),
        sys::VP8StatusCode::VP8_STATUS_OUT_OF_MEMORY => {
            Err(Error::memory(rect.height.saturating_mul(stride), "planes of a WebP"))
        }
        sys::VP8StatusCode::VP8_STATUS_NOT_ENOUGH_DATA | sys::VP8StatusCode::VP8_STATUS_SUSPENDED => {
            Err(Error::corrupt("WebP is damaged: its image ends early"))
        }
        sys::VP8StatusCode::VP8_STATUS_UNSUPPORTED_FEATURE => {
            Err(Error::corrupt("WebP is damaged: it has a feature that libwebp does not know"))
        }
        _ => Err(Error::corrupt("WebP is damaged: its image cannot be decoded")),
    }
}

struct Opened {
    header: Header,
    animated: bool,
}

fn open(bytes: &[u8]) -> Result<Opened> {
    walk(bytes)?;
    let chunks = Chunks::new(bytes)?;
    let (width, height) = (
        chunks.number(sys::WebPFormatFeature::WEBP_FF_CANVAS_WIDTH),
        chunks.number(sys::WebPFormatFeature::WEBP_FF_CANVAS_HEIGHT),
    );
    let flags = chunks.number(sys::WebPFormatFeature::WEBP_FF_FORMAT_FLAGS);
    let exif = chunks.exif().map(|exif| exif.strip_prefix(b"Exif\0\0").unwrap_or(exif));
    let header = Header {
        height: height as usize,
        width: width as usize,
        channels: if chunks.first_has_alpha()? { 4 } else { 3 },
        orientation: exif.and_then(wellfed_jpeg::exif_orientation).unwrap_or(1),
    };
    if header.height == 0 || header.width == 0 {
        return Err(Error::corrupt(format!("WebP is {width}x{height} pixels")));
    }
    Ok(Opened { header, animated: flags & sys::WebPFeatureFlags::ANIMATION_FLAG as u32 != 0 })
}

fn data(bytes: &[u8]) -> sys::WebPData {
    sys::WebPData { bytes: bytes.as_ptr(), size: bytes.len() }
}

/// The chunks of a file, as libwebp finds them.
struct Chunks<'a> {
    demuxer: *mut sys::WebPDemuxer,
    /// The library keeps a pointer to them.
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Chunks<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        let version = sys::WebPGetDemuxABIVersion();
        let data = data(bytes);
        // SAFETY: the bytes outlive the demuxer, which has their lifetime; no state is asked for.
        let demuxer = unsafe { sys::WebPDemuxInternal(&raw const data, 0, null_mut(), version) };
        if demuxer.is_null() {
            return Err(Error::corrupt("WebP is damaged: its chunks do not fit together"));
        }
        Ok(Self { demuxer, bytes: PhantomData })
    }

    fn number(&self, feature: sys::WebPFormatFeature) -> u32 {
        // SAFETY: the demuxer is alive.
        unsafe { sys::WebPDemuxGetI(self.demuxer, feature) }
    }

    /// Whether the first frame has alpha, by which Pillow chooses the mode.
    fn first_has_alpha(&self) -> Result<bool> {
        let mut frame = MaybeUninit::<sys::WebPIterator>::zeroed();
        // SAFETY: the demuxer is alive; the iterator is plain data, of which all zeros is a value, and is released.
        let (found, alpha) = unsafe {
            let found = sys::WebPDemuxGetFrame(self.demuxer, 1, frame.as_mut_ptr());
            let alpha = frame.assume_init_ref().has_alpha;
            sys::WebPDemuxReleaseIterator(frame.as_mut_ptr());
            (found, alpha)
        };
        if found == 0 { Err(Error::corrupt("WebP has no image")) } else { Ok(alpha != 0) }
    }

    fn exif(&self) -> Option<&'a [u8]> {
        let mut chunk = MaybeUninit::<sys::WebPChunkIterator>::zeroed();
        // SAFETY: as above; what a chunk points to lies in the file's own bytes, which have the lifetime `'a`.
        unsafe {
            let found = sys::WebPDemuxGetChunk(self.demuxer, c"EXIF".as_ptr(), 1, chunk.as_mut_ptr());
            let inside = chunk.assume_init_ref().chunk;
            sys::WebPDemuxReleaseChunkIterator(chunk.as_mut_ptr());
            let is_there = found != 0 && !inside.bytes.is_null();
            is_there.then(|| slice::from_raw_parts(inside.bytes, inside.size))
        }
    }
}

impl Drop for Chunks<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `WebPDemuxInternal`, and not used afterwards.
        unsafe { sys::WebPDemuxDelete(self.demuxer) };
    }
}

/// What lays frames on a screen.
struct Player<'a> {
    decoder: *mut sys::WebPAnimDecoder,
    /// The library keeps a pointer to them.
    bytes: PhantomData<&'a [u8]>,
}

impl<'a> Player<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self> {
        let mut options = MaybeUninit::<sys::WebPAnimDecoderOptions>::zeroed();
        let data = data(bytes);
        // SAFETY: all zeros is a value of these options; the bytes outlive the decoder, which has their lifetime.
        let decoder = unsafe {
            sys::WebPAnimDecoderOptionsInit(options.as_mut_ptr());
            options.assume_init_mut().color_mode = sys::WEBP_CSP_MODE::MODE_RGBA;
            options.assume_init_mut().use_threads = 0;
            sys::WebPAnimDecoderNew(&raw const data, options.as_ptr())
        };
        if decoder.is_null() {
            return Err(Error::corrupt("WebP is damaged: its animation cannot be read, or is too large"));
        }
        Ok(Self { decoder, bytes: PhantomData })
    }

    /// The screen of `count` pixels after the first frame: red, green, blue and alpha.
    fn first(&self, count: usize) -> Result<&[u8]> {
        let mut info = sys::WebPAnimInfo::default();
        let (mut screen, mut moment) = (null_mut(), 0);
        // SAFETY: the decoder is alive, and writes to these.
        let found = unsafe {
            sys::WebPAnimDecoderGetInfo(self.decoder, &raw mut info) != 0
                && sys::WebPAnimDecoderGetNext(self.decoder, &raw mut screen, &raw mut moment) != 0
        };
        let pixels = info.canvas_width as usize * info.canvas_height as usize;
        if !found || screen.is_null() || pixels != count {
            return Err(Error::corrupt("WebP is damaged: its first frame cannot be decoded"));
        }
        // SAFETY: the screen has 4 bytes for each of its pixels, and stays until the next frame or the end of the decoder,
        // which `&self` outlives neither.
        Ok(unsafe { slice::from_raw_parts(screen, count * 4) })
    }
}

impl Drop for Player<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `WebPAnimDecoderNew`, and not used afterwards.
        unsafe { sys::WebPAnimDecoderDelete(self.decoder) };
    }
}

/// Every chunk must be there as long as it says.
fn walk(bytes: &[u8]) -> Result<()> {
    let length = |at: usize| bytes.get(at..)?.first_chunk::<4>().map(|b| u32::from_le_bytes(*b) as usize);
    let cut = |needed: usize| {
        Error::corrupt(format!("WebP ends after {} bytes of {needed}", bytes.len()))
            .with_hint("the file is truncated, as by an interrupted copy or download")
    };
    let end = length(4).ok_or_else(|| cut(12))?.saturating_add(8);
    if bytes.len() < end {
        return Err(cut(end));
    }
    let mut at = 12;
    while at + 8 <= end {
        let chunk = length(at + 4).ok_or_else(|| cut(at + 8))?;
        at = at.saturating_add(8).saturating_add(chunk);
        if at > end {
            return Err(Error::corrupt(format!(
                "WebP has a chunk that ends at {at}, behind its end at {end}"
            ))
            .with_offset(at as u64));
        }
        at += chunk % 2;
    }
    Ok(())
}
