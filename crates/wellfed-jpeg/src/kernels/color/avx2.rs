//! Colour conversion of 32 pixels at a time, by the method of the AVX-512 code.

use std::arch::x86_64::*;

use crate::kernels::x86::avx2::{load, padded, starts, store};

/// R, G and B of 32 pixels.
#[inline]
#[target_feature(enable = "avx2")]
fn convert(y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
    let zero = _mm256_setzero_si256();
    let center = _mm256_set1_epi8(-128);
    let (cb, cr) = (_mm256_xor_si256(cb, center), _mm256_xor_si256(cr, center));
    // Halves of the pixels, each within its 128 bits: packing puts them together again.
    let low = halves(
        _mm256_unpacklo_epi8(center, y),
        _mm256_unpacklo_epi8(_mm256_set1_epi8(126), y),
        _mm256_unpacklo_epi8(zero, cb),
        _mm256_unpacklo_epi8(zero, cr),
        _mm256_unpacklo_epi8(cb, cr),
    );
    let high = halves(
        _mm256_unpackhi_epi8(center, y),
        _mm256_unpackhi_epi8(_mm256_set1_epi8(126), y),
        _mm256_unpackhi_epi8(zero, cb),
        _mm256_unpackhi_epi8(zero, cr),
        _mm256_unpackhi_epi8(cb, cr),
    );
    [
        _mm256_packus_epi16(low[0], high[0]),
        _mm256_packus_epi16(low[1], high[1]),
        _mm256_packus_epi16(low[2], high[2]),
    ]
}

/// R, G and B in 16-bit lanes, not yet clamped, from 256 y + 128, 256 y + 126, 256 cb, 256 cr, and cb beside cr.
#[inline]
#[target_feature(enable = "avx2")]
fn halves(y128: __m256i, y126: __m256i, cb: __m256i, cr: __m256i, both: __m256i) -> [__m256i; 3] {
    let y6 = _mm256_srli_epi16::<2>(y128); // 64 y + 32
    let y7 = _mm256_srli_epi16::<1>(y126); // 128 y + 63
    let red = _mm256_add_epi16(y6, _mm256_mulhi_epi16(cr, _mm256_set1_epi16(22971)));
    let blue = _mm256_add_epi16(y6, _mm256_mulhi_epi16(cb, _mm256_set1_epi16(29033)));
    let upper = _mm256_maddubs_epi16(_mm256_set1_epi16(91 << 8 | 44), both);
    let lower = _mm256_maddubs_epi16(_mm256_set1_epi16(105 << 8 | 13), both);
    let green = _mm256_subs_epi16(_mm256_sub_epi16(y7, _mm256_srai_epi16::<8>(lower)), upper);
    [_mm256_srai_epi16::<6>(red), _mm256_srai_epi16::<7>(green), _mm256_srai_epi16::<6>(blue)]
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn ycc_to_planar(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    planar(y, cb, cr, out, _mm256_setzero_si256());
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn ycck_to_cmyk(y: &[u8], cb: &[u8], cr: &[u8], out: [&mut [u8]; 3]) {
    planar(y, cb, cr, out, _mm256_set1_epi8(-1));
}

#[inline]
#[target_feature(enable = "avx2")]
fn planar(y: &[u8], cb: &[u8], cr: &[u8], [r, g, b]: [&mut [u8]; 3], flip: __m256i) {
    let n = y.len();
    let run = |y: &[u8], cb: &[u8], cr: &[u8], r: &mut [u8], g: &mut [u8], b: &mut [u8]| {
        let rgb = convert(load(y), load(cb), load(cr));
        store(r, _mm256_xor_si256(rgb[0], flip));
        store(g, _mm256_xor_si256(rgb[1], flip));
        store(b, _mm256_xor_si256(rgb[2], flip));
    };
    if n < 32 {
        let mut rgb = [[0; 32]; 3];
        let [few_r, few_g, few_b] = &mut rgb;
        run(&padded(y), &padded(cb), &padded(cr), few_r, few_g, few_b);
        r.copy_from_slice(&rgb[0][..n]);
        g.copy_from_slice(&rgb[1][..n]);
        b.copy_from_slice(&rgb[2][..n]);
    }
    for i in starts(n) {
        run(&y[i..], &cb[i..], &cr[i..], &mut r[i..], &mut g[i..], &mut b[i..]);
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn ycc_to_interleaved(y: &[u8], cb: &[u8], cr: &[u8], out: &mut [u8]) {
    if y.len() < 32 {
        let mut few = [0; 96];
        triples(convert(load(&padded(y)), load(&padded(cb)), load(&padded(cr))), &mut few);
        out.copy_from_slice(&few[..out.len()]);
    }
    for i in starts(y.len()) {
        triples(convert(load(&y[i..]), load(&cb[i..]), load(&cr[i..])), &mut out[3 * i..]);
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn interleave3([r, g, b]: [&[u8]; 3], out: &mut [u8]) {
    if r.len() < 32 {
        let mut few = [0; 96];
        triples([load(&padded(r)), load(&padded(g)), load(&padded(b))], &mut few);
        out.copy_from_slice(&few[..out.len()]);
    }
    for i in starts(r.len()) {
        triples([load(&r[i..]), load(&g[i..]), load(&b[i..])], &mut out[3 * i..]);
    }
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn interleave4([a, b, c, d]: [&[u8]; 4], out: &mut [u8]) {
    if a.len() < 32 {
        let mut few = [0; 128];
        quads([load(&padded(a)), load(&padded(b)), load(&padded(c)), load(&padded(d))], &mut few);
        out.copy_from_slice(&few[..out.len()]);
    }
    for i in starts(a.len()) {
        quads([load(&a[i..]), load(&b[i..]), load(&c[i..]), load(&d[i..])], &mut out[4 * i..]);
    }
}

/// Stores 32 pixels interleaved.
#[inline]
#[target_feature(enable = "avx2")]
fn triples(planes: [__m256i; 3], out: &mut [u8]) {
    // 16 pixels become 48 bytes. Byte j of the k-th 16 of them belongs to component (j + k) % 3, hence each
    // component is wanted at each j in one k only: it is shuffled once, then the outputs are put together.
    const fn order(component: usize) -> [i8; 16] {
        let mut table = [0; 16];
        let mut j = 0;
        while j < 16 {
            let k = (component + 16 - j + 2) % 3; // (component - j) mod 3, as 18 is a multiple of 3
            table[j] = ((16 * k + j) / 3) as i8;
            j += 1;
        }
        table
    }
    /// All ones where j % 3 is `residue`.
    const fn mask(residue: usize) -> [i8; 16] {
        let mut table = [0; 16];
        let mut j = 0;
        while j < 16 {
            table[j] = if j % 3 == residue { -1 } else { 0 };
            j += 1;
        }
        table
    }
    const ORDERS: [[i8; 16]; 3] = [order(0), order(1), order(2)];
    const MASKS: [[i8; 16]; 2] = [mask(1), mask(2)];
    // SAFETY: the tables are 16 bytes long.
    let table = |t: &[i8; 16]| unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(t.as_ptr().cast())) };
    let r = _mm256_shuffle_epi8(planes[0], table(&ORDERS[0]));
    let g = _mm256_shuffle_epi8(planes[1], table(&ORDERS[1]));
    let b = _mm256_shuffle_epi8(planes[2], table(&ORDERS[2]));
    let (second, third) = (table(&MASKS[0]), table(&MASKS[1]));
    let join =
        |x: __m256i, y: __m256i, z: __m256i| _mm256_blendv_epi8(_mm256_blendv_epi8(x, y, second), z, third);
    // The components at j % 3 = 0, 1, 2 of each 16 bytes.
    let (x, y, z) = (join(r, g, b), join(g, b, r), join(b, r, g));
    store(out, _mm256_permute2x128_si256::<0x20>(x, y));
    store(&mut out[32..], _mm256_permute2x128_si256::<0x30>(z, x));
    store(&mut out[64..], _mm256_permute2x128_si256::<0x31>(y, z));
}

/// Stores 32 pixels interleaved.
#[inline]
#[target_feature(enable = "avx2")]
fn quads([a, b, c, d]: [__m256i; 4], out: &mut [u8]) {
    let (ab_low, ab_high) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
    let (cd_low, cd_high) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
    // Pixels 0 to 3, 4 to 7, 8 to 11 and 12 to 15 of either half of the input.
    let p = _mm256_unpacklo_epi16(ab_low, cd_low);
    let q = _mm256_unpackhi_epi16(ab_low, cd_low);
    let r = _mm256_unpacklo_epi16(ab_high, cd_high);
    let s = _mm256_unpackhi_epi16(ab_high, cd_high);
    store(out, _mm256_permute2x128_si256::<0x20>(p, q));
    store(&mut out[32..], _mm256_permute2x128_si256::<0x20>(r, s));
    store(&mut out[64..], _mm256_permute2x128_si256::<0x31>(p, q));
    store(&mut out[96..], _mm256_permute2x128_si256::<0x31>(r, s));
}
