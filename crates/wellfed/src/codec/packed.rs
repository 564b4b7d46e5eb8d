//! Packed coefficients in the place of their JPEG: what caches hold. The pixels are the JPEG's.

use std::cell::RefCell;

use wellfed_jpeg::{Ask, Colour, Packed};

use super::{
    Codec, Header, Part, Push, Scratch,
    jpeg::{allows, convert, error, format, header_of, interleaved, of_coefficients, of_part},
};
use crate::{Limits, Result};

/// The codec of [`wellfed_jpeg::Packed`] records.
#[derive(Clone, Copy, Debug)]
pub struct PackedJpeg;

/// The record, with a look at its checksum unless it is known to be `sound`.
fn open(bytes: &[u8], sound: bool) -> Result<Packed<'_>> {
    if sound { Packed::reopen(bytes) } else { Packed::open(bytes) }.map_err(error)
}

/// Whether a record has four channels of ink.
pub(super) fn has_inks(bytes: &[u8]) -> Result<bool> {
    let packed = Packed::reopen(bytes).map_err(error)?;
    Ok(matches!(packed.header().colour, Colour::Cmyk | Colour::Ycck))
}

/// Whether brightness is kept by itself.
pub(super) fn has_luma(bytes: &[u8]) -> Result<bool> {
    let packed = Packed::reopen(bytes).map_err(error)?;
    Ok(matches!(packed.header().colour, Colour::Grey | Colour::YCbCr))
}

impl Codec for PackedJpeg {
    fn name(&self) -> &'static str {
        "packed jpeg"
    }

    fn sniff(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(b"WFPC")
    }

    fn header(&self, bytes: &[u8]) -> Result<Header> {
        Ok(header_of(Packed::reopen(bytes).map_err(error)?.header()))
    }

    fn scales(&self) -> bool {
        true
    }

    fn decode(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        push: &mut Push<'_>,
    ) -> Result<()> {
        let Scratch { jpeg, sound, pixels, room, .. } = scratch;
        let (room, refusal) = (room.as_deref(), RefCell::new(None));
        let allowed = |bytes| allows(room, bytes, &refusal);
        let packed = open(bytes, *sound)?;
        let options = of_part(part, format(part.mode), limits, Ask::new(&allowed));
        let mut pushed = Ok(());
        let decoded = jpeg.decode_packed_rows(&packed, &options, |band| {
            if pushed.is_ok() {
                pushed = convert(band, part.mode, pixels, room, push);
            }
        });
        pushed?;
        decoded.map(|_| ()).map_err(|e| refusal.take().unwrap_or_else(|| error(e)))
    }

    fn decode_into(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut [u8],
    ) -> Result<bool> {
        let Scratch { jpeg, sound, room, .. } = scratch;
        let packed = open(bytes, *sound)?;
        let Some(format) = interleaved(part.mode, packed.header().colour) else { return Ok(false) };
        let (room, refusal) = (room.as_deref(), RefCell::new(None));
        let allowed = |bytes| allows(room, bytes, &refusal);
        let options = of_part(part, format, limits, Ask::new(&allowed));
        let stride = part.region.width * part.mode.channels(header_of(packed.header()).channels);
        let decoded = jpeg.decode_packed_into(&packed, &options, out, stride);
        decoded.map(|_| true).map_err(|e| refusal.take().unwrap_or_else(|| error(e)))
    }

    fn coefficients(
        &self,
        bytes: &[u8],
        part: &Part,
        limits: &Limits,
        scratch: &mut Scratch,
        out: &mut Vec<u8>,
    ) -> Result<Option<wellfed_jpeg::Part>> {
        if has_inks(bytes)? {
            return Ok(None);
        }
        let Scratch { jpeg, sound, room, .. } = scratch;
        let (room, refusal) = (room.as_deref(), RefCell::new(None));
        let allowed = |bytes| allows(room, bytes, &refusal);
        let packed = open(bytes, *sound)?;
        let options = of_coefficients(part, limits, Ask::new(&allowed));
        let part = jpeg.packed_part(&packed, &options, out);
        part.map(Some).map_err(|e| refusal.take().unwrap_or_else(|| error(e)))
    }
}
