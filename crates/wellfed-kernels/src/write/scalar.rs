//! Rows of pixels to their place, in portable code: the oracle.

use super::{Output, Place};
use crate::image::{Dtype, Layout, Pixels};

/// Writes the rows of `band`.
pub(super) fn band(band: Pixels<'_>, output: &Output<'_>, place: Place<'_>) {
    match output.map.dtype() {
        Dtype::U8 => elements(band, output, place, |bits| [bits as u8]),
        Dtype::F16 | Dtype::Bf16 => elements(band, output, place, |bits| (bits as u16).to_ne_bytes()),
        Dtype::F32 => elements(band, output, place, u32::to_ne_bytes),
    }
}

fn elements<const N: usize>(
    band: Pixels<'_>,
    output: &Output<'_>,
    place: Place<'_>,
    bytes: impl Fn(u32) -> [u8; N],
) {
    let channels = output.map.channels();
    let width = place.width;
    for r in 0..band.height {
        let y = if output.flip_v { place.y - r } else { place.y + r };
        for c in 0..channels {
            let table = output.map.table(c);
            let row = &band.planes[c][r * band.stride..];
            let values = row.iter().step_by(band.pixel).take(width);
            let (first, step) = match output.layout {
                Layout::Chw => ((c * place.height + y) * width, 1),
                Layout::Hwc => (y * width * channels + c, channels),
            };
            let end = first + (width - 1) * step + 1;
            let slots = place.slot[first * N..end * N].chunks_mut(step * N);
            let put = |(slot, v): (&mut [u8], &u8)| slot[..N].copy_from_slice(&bytes(table[usize::from(*v)]));
            if output.flip_h {
                slots.rev().zip(values).for_each(put)
            } else {
                slots.zip(values).for_each(put)
            }
        }
    }
}
