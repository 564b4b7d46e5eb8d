//! One row of pixels to its place, in portable code: the oracle.

use super::{Output, Place, Row};
use crate::image::{Dtype, Layout};

/// Writes one row.
pub(super) fn row(row: Row<'_>, output: &Output<'_>, place: Place<'_>) {
    match output.map.dtype() {
        Dtype::U8 => elements(row, output, place, |bits| [bits as u8]),
        Dtype::F16 | Dtype::Bf16 => elements(row, output, place, |bits| (bits as u16).to_ne_bytes()),
        Dtype::F32 => elements(row, output, place, u32::to_ne_bytes),
    }
}

fn elements<const N: usize>(
    row: Row<'_>,
    output: &Output<'_>,
    place: Place<'_>,
    bytes: impl Fn(u32) -> [u8; N],
) {
    let channels = output.map.channels();
    let width = place.width;
    for c in 0..channels {
        let table = output.map.table(c);
        let values = row.data[c * row.plane..].iter().step_by(row.pixel).take(width);
        let (first, step) = match output.layout {
            Layout::Chw => ((c * place.height + place.y) * width, 1),
            Layout::Hwc => (place.y * width * channels + c, channels),
        };
        let end = first + (width - 1) * step + 1;
        let slots = place.slot[first * N..end * N].chunks_mut(step * N);
        let put = |(slot, v): (&mut [u8], &u8)| slot[..N].copy_from_slice(&bytes(table[usize::from(*v)]));
        if output.flip_h { slots.rev().zip(values).for_each(put) } else { slots.zip(values).for_each(put) }
    }
}
