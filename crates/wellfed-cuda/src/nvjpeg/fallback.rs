//! Batches of which nvJPEG does not take all: the others are decoded by the CPU, and copied to where they belong.

use std::ffi::c_void;

use wellfed_jpeg::Format;

use super::{Planes, Session};
use crate::{
    error::{Error, Result},
    stream::Stream,
};

/// As [`Session::decode`], of all of the batch. Says how many the CPU decoded; for them, it waits for their copies.
///
/// # Errors
/// Those of [`Session::decode`]; [`Error::Argument`] for a JPEG that the CPU does not decode either, with its number in
/// the batch.
///
/// # Safety
/// As for [`Session::decode`].
pub unsafe fn decode_all(
    session: &mut Session,
    jpegs: &[&[u8]],
    planes: &[Planes],
    stream: &Stream,
) -> Result<usize> {
    // SAFETY: the caller's promise.
    let outcomes = unsafe { session.decode(jpegs, planes, stream) }?;
    let refused = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_err());
    let mut count = 0;
    for (index, _) in refused {
        // SAFETY: as above; nvJPEG is done with a place before the copy, which is submitted after it.
        unsafe { by_cpu(jpegs[index], &planes[index], stream) }
            .map_err(|error| Error::Argument(format!("image {index} of the batch: {error}")))?;
        count += 1;
    }
    Ok(count)
}

/// Decodes on the host and copies to the device.
///
/// # Safety
/// As for [`decode_all`], of one image.
unsafe fn by_cpu(jpeg: &[u8], planes: &Planes, stream: &Stream) -> Result<()> {
    let &Planes { pointers, pitch, height, .. } = planes;
    let bytes = pitch * height as usize;
    let mut pixels = Vec::new();
    pixels
        .try_reserve_exact(3 * bytes)
        .map_err(|_| Error::Argument(format!("there is no memory for {} bytes of pixels", 3 * bytes)))?;
    pixels.resize(3 * bytes, 0);
    let (red, rest) = pixels.split_at_mut(bytes);
    let (green, blue) = rest.split_at_mut(bytes);
    let options = wellfed_jpeg::Options { format: Format::Rgb, ..Default::default() };
    wellfed_jpeg::Decoder::new()
        .decode_planar(jpeg, &options, [red, green, blue, &mut []], pitch)
        .map_err(|error| Error::Argument(error.to_string()))?;
    let device = stream.device();
    let _entered = device.enter()?;
    for (pointer, plane) in pointers.into_iter().zip(pixels.chunks_exact(bytes)) {
        // SAFETY: the plane is `bytes` on the device, as the caller promises, and `pixels` live until the copies are over.
        unsafe {
            device.driver().copy_to_device(
                pointer,
                plane.as_ptr().cast::<c_void>(),
                plane.len(),
                stream.handle(),
            )
        }?;
    }
    stream.synchronize()
}
