//! Colour conversion of 64 pixels at a time, in 16-bit lanes.
//!
//! With 6 (R and B) or 7 (G) fractional bits the rounded sums of the contract come out exactly, although the
//! products lose bits: tests check all values of cb and cr.

use std::arch::x86_64::*;

use crate::kernels::x86::avx512::{load, load_part, permutation, store, store_part};

/// R, G and B of 64 pixels.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn convert(y: __m512i, cb: __m512i, cr: __m512i) -> [__m512i; 3] {
    let zero = _mm512_setzero_si512();
    let center = _mm512_set1_epi8(-128);
    let (cb, cr) = (_mm512_xor_si512(cb, center), _mm512_xor_si512(cr, center));
    // Halves of the pixels, each within its 128 bits: packing puts them together again.
    let low = halves(
        _mm512_unpacklo_epi8(center, y),
        _mm512_unpacklo_epi8(_mm512_set1_epi8(126), y),
        _mm512_unpacklo_epi8(zero, cb),
        _mm512_unpacklo_epi8(zero, cr),
        _mm512_unpacklo_epi8(cb, cr),
    );
    let high = halves(
        _mm512_unpackhi_epi8(center, y),
        _mm512_unpackhi_epi8(_mm512_set1_epi8(126), y),
        _mm512_unpackhi_epi8(zero, cb),
        _mm512_unpackhi_epi8(zero, cr),
        _mm512_unpackhi_epi8(cb, cr),
    );
    [
        _mm512_packus_epi16(low[0], high[0]),
        _mm512_packus_epi16(low[1], high[1]),
        _mm512_packus_epi16(low[2], high[2]),
    ]
}

/// R, G and B in 16-bit lanes, not yet clamped, from 256 y + 128, 256 y + 126, 256 cb, 256 cr, and cb beside cr.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn halves(y128: __m512i, y126: __m512i, cb: __m512i, cr: __m512i, both: __m512i) -> [__m512i; 3] {
    let y6 = _mm512_srli_epi16::<2>(y128); // 64 y + 32
    let y7 = _mm512_srli_epi16::<1>(y126); // 128 y + 63
    // 1.402 * 2^14 and 1.772 * 2^14: any of 22970..=22973, and only 29033, give exact results.
    let red = _mm512_add_epi16(y6, _mm512_mulhi_epi16(cr, _mm512_set1_epi16(22971)));
    let blue = _mm512_add_epi16(y6, _mm512_mulhi_epi16(cb, _mm512_set1_epi16(29033)));
    // 22554 / 2 = 256 * 44 + 13 and 46802 / 2 = 256 * 91 + 105. Of the sum's lower part only what reaches the
    // upper counts; it is rounded down, which 63 instead of 64 above makes good. What would pass 32767 saturates,
    // to 255 in the end.
    let upper = _mm512_maddubs_epi16(_mm512_set1_epi16(91 << 8 | 44), both);
    let lower = _mm512_maddubs_epi16(_mm512_set1_epi16(105 << 8 | 13), both);
    let green = _mm512_subs_epi16(_mm512_sub_epi16(y7, _mm512_srai_epi16::<8>(lower)), upper);
    [_mm512_srai_epi16::<6>(red), _mm512_srai_epi16::<7>(green), _mm512_srai_epi16::<6>(blue)]
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn ycc_to_planar(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    planar(y, cb, cr, out, _mm512_setzero_si512());
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn ycck_to_cmyk(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    planar(y, cb, cr, out, _mm512_set1_epi8(-1));
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn planar(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3], flip: __m512i) {
    let ((y, y_rest), (cb, cb_rest), (cr, cr_rest)) = (y.as_chunks(), cb.as_chunks(), cr.as_chunks());
    let [r, g, b] = out;
    let ((r, r_rest), (g, g_rest), (b, b_rest)) = (r.as_chunks_mut(), g.as_chunks_mut(), b.as_chunks_mut());
    for (((y, cb), cr), ((r, g), b)) in y.iter().zip(cb).zip(cr).zip(r.iter_mut().zip(g).zip(b)) {
        let rgb = convert(load(y), load(cb), load(cr));
        store(r, _mm512_xor_si512(rgb[0], flip));
        store(g, _mm512_xor_si512(rgb[1], flip));
        store(b, _mm512_xor_si512(rgb[2], flip));
    }
    if !y_rest.is_empty() {
        let rgb = convert(load_part(y_rest), load_part(cb_rest), load_part(cr_rest));
        store_part(r_rest, _mm512_xor_si512(rgb[0], flip));
        store_part(g_rest, _mm512_xor_si512(rgb[1], flip));
        store_part(b_rest, _mm512_xor_si512(rgb[2], flip));
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn ycc_to_interleaved(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    let ((y, y_rest), (cb, cb_rest), (cr, cr_rest)) = (y.as_chunks(), cb.as_chunks(), cr.as_chunks());
    let (pixels, rest) = out.as_chunks_mut::<192>();
    for (((y, cb), cr), pixels) in y.iter().zip(cb).zip(cr).zip(pixels) {
        let rgb = triples(convert(load(y), load(cb), load(cr)));
        for (out, v) in pixels.as_chunks_mut().0.iter_mut().zip(rgb) {
            store(out, v);
        }
    }
    if !rest.is_empty() {
        let rgb = triples(convert(load_part(y_rest), load_part(cb_rest), load_part(cr_rest)));
        for (out, v) in rest.chunks_mut(64).zip(rgb) {
            store_part(out, v);
        }
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
pub(super) unsafe fn interleave3(planes: [&[u8]; 3], out: &mut [u8]) {
    let [r, g, b] = planes;
    let ((r, r_rest), (g, g_rest), (b, b_rest)) = (r.as_chunks(), g.as_chunks(), b.as_chunks());
    let (pixels, rest) = out.as_chunks_mut::<192>();
    for (((r, g), b), pixels) in r.iter().zip(g).zip(b).zip(pixels) {
        let rgb = triples([load(r), load(g), load(b)]);
        for (out, v) in pixels.as_chunks_mut().0.iter_mut().zip(rgb) {
            store(out, v);
        }
    }
    let rgb = triples([load_part(r_rest), load_part(g_rest), load_part(b_rest)]);
    for (out, v) in rest.chunks_mut(64).zip(rgb) {
        store_part(out, v);
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) unsafe fn interleave4(planes: [&[u8]; 4], out: &mut [u8]) {
    let [a, b, c, d] = planes;
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks(), b.as_chunks());
    let ((c, c_rest), (d, d_rest)) = (c.as_chunks(), d.as_chunks());
    let (pixels, rest) = out.as_chunks_mut::<256>();
    for ((((a, b), c), d), pixels) in a.iter().zip(b).zip(c).zip(d).zip(pixels) {
        let abcd = quads([load(a), load(b), load(c), load(d)]);
        for (out, v) in pixels.as_chunks_mut().0.iter_mut().zip(abcd) {
            store(out, v);
        }
    }
    let abcd = quads([load_part(a_rest), load_part(b_rest), load_part(c_rest), load_part(d_rest)]);
    for (out, v) in rest.chunks_mut(64).zip(abcd) {
        store_part(out, v);
    }
}

/// 64 pixels interleaved.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
fn triples([r, g, b]: [__m512i; 3]) -> [__m512i; 3] {
    /// For byte i of vector k: where the first two components are (the second at 64 and up), and which bytes are
    /// the third's and where it is.
    const fn order(k: usize) -> ([u8; 64], u64, [u8; 64]) {
        let (mut two, mut mask, mut third) = ([0; 64], 0, [0; 64]);
        let mut i = 0;
        while i < 64 {
            let (pixel, component) = ((k * 64 + i) / 3, (k * 64 + i) % 3);
            two[i] = (component % 2 * 64 + pixel) as u8;
            third[i] = pixel as u8;
            mask |= ((component == 2) as u64) << i;
            i += 1;
        }
        (two, mask, third)
    }
    const ORDERS: [([u8; 64], u64, [u8; 64]); 3] = [order(0), order(1), order(2)];
    let mut out = [b; 3];
    for (v, (two, mask, third)) in out.iter_mut().zip(ORDERS) {
        let rg = _mm512_permutex2var_epi8(r, permutation(two), g);
        *v = _mm512_mask_permutexvar_epi8(rg, mask, permutation(third), b);
    }
    out
}

/// 64 pixels interleaved.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn quads([a, b, c, d]: [__m512i; 4]) -> [__m512i; 4] {
    // Four pixels of each plane are 32 bits; they go where unpacking, which works within 128 bits, wants them.
    let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let (a, b) = (_mm512_permutexvar_epi32(order, a), _mm512_permutexvar_epi32(order, b));
    let (c, d) = (_mm512_permutexvar_epi32(order, c), _mm512_permutexvar_epi32(order, d));
    let (ab_low, ab_high) = (_mm512_unpacklo_epi8(a, b), _mm512_unpackhi_epi8(a, b));
    let (cd_low, cd_high) = (_mm512_unpacklo_epi8(c, d), _mm512_unpackhi_epi8(c, d));
    [
        _mm512_unpacklo_epi16(ab_low, cd_low),
        _mm512_unpackhi_epi16(ab_low, cd_low),
        _mm512_unpacklo_epi16(ab_high, cd_high),
        _mm512_unpackhi_epi16(ab_high, cd_high),
    ]
}
