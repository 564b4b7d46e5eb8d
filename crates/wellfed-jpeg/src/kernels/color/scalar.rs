//! The portable conversions: the oracle.

/// R, G and B of one pixel.
#[inline]
pub(super) fn pixel(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    // 1.402, 0.34414, 0.71414 and 1.772 times 2^16, rounded.
    let red = (91881 * cr + 32768) >> 16;
    let green = (-22554 * cb - 46802 * cr + 32768) >> 16;
    let blue = (116130 * cb + 32768) >> 16;
    [red, green, blue].map(|c| (y + c).clamp(0, 255) as u8)
}

pub(super) fn ycc_to_planar(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    for (i, ((&y, &cb), &cr)) in y.iter().zip(cb).zip(cr).enumerate() {
        let rgb = pixel(y, cb, cr);
        for c in 0..3 {
            out[c][i] = rgb[c];
        }
    }
}

pub(super) fn ycc_to_interleaved(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    for (((&y, &cb), &cr), rgb) in y.iter().zip(cb).zip(cr).zip(out.as_chunks_mut().0) {
        *rgb = pixel(y, cb, cr);
    }
}

pub(super) fn ycck_to_cmyk(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    for (i, ((&y, &cb), &cr)) in y.iter().zip(cb).zip(cr).enumerate() {
        let rgb = pixel(y, cb, cr);
        for c in 0..3 {
            out[c][i] = 255 - rgb[c];
        }
    }
}

pub(super) fn interleave<const N: usize>(planes: [&[u8]; N], out: &mut [u8]) {
    for (i, pixel) in out.as_chunks_mut::<N>().0.iter_mut().enumerate() {
        *pixel = planes.map(|plane| plane[i]);
    }
}
