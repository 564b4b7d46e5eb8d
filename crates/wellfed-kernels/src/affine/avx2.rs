//! Bilinear affine maps with AVX2: four pixels at a time, wherever everything they need lies inside the source.
//!
//! The same operations in double precision as the scalar code, in the same order and none of them fused: the same bits.

use std::arch::x86_64::*;

use super::{bilinear, span};
use crate::image::View;

/// Output pixels that are sampled at once.
const BLOCK: usize = 4;
/// Bytes that are read of a row for a pixel and the one to its right.
const READ: usize = 8;

/// For channel `c`, where the pixel and the one to its right have it, in each half of two times 8 bytes.
const fn picks<const N: usize>() -> [[[u8; 16]; 2]; N] {
    let mut all = [[[0x80; 16]; 2]; N];
    let mut c = 0;
    while c < N {
        let mut right = 0;
        while right < 2 {
            all[c][right][0] = (right * N + c) as u8;
            all[c][right][READ] = (READ + right * N + c) as u8;
            right += 1;
        }
        c += 1;
    }
    all
}

/// The lowest `N` bytes of each 4.
const fn dense<const N: usize>() -> [u8; 16] {
    let mut all = [0x80; 16];
    let mut at = 0;
    while at < N * BLOCK {
        all[at] = (at / N * 4 + at % N) as u8;
        at += 1;
    }
    all
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes are there.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// The [`READ`] bytes at `offset`.
#[inline]
#[target_feature(enable = "avx2")]
fn read(data: &[u8], offset: usize) -> i64 {
    match data[offset..].first_chunk::<READ>() {
        Some(bytes) => i64::from_le_bytes(*bytes),
        None => 0,
    }
}

/// The [`READ`] bytes at each of four places. Written out: a closure of this function's instruction set would not
/// become part of `map`, which has another one.
#[inline]
#[target_feature(enable = "avx2")]
fn gather(data: &[u8], [a, b, c, d]: [usize; BLOCK]) -> __m256i {
    _mm256_set_epi64x(read(data, d), read(data, c), read(data, b), read(data, a))
}

/// Samples the output row `y`, counted from 0 to the middle of the row, into `out`; what comes from outside of `src`
/// is left alone.
#[target_feature(enable = "avx2")]
pub(super) fn row<const N: usize>(src: View<'_>, matrix: &[f64; 6], y: f64, out: &mut [u8]) {
    let [a, b, c, d, e, f] = *matrix;
    // Last places at which a read stays inside of its row, and there is a row below.
    let last_x = src.width() as i64 - READ.div_ceil(N) as i64;
    let last_y = src.height() as i64 - 2;
    let (data, stride) = (src.data(), src.stride());
    // Places are added up in 32 bits.
    if last_x < 0 || last_y < 0 || i32::try_from(data.len()).is_err() {
        span(src, matrix, y, 0, out, bilinear::<N>);
        return;
    }
    let (last_x, last_y) = (_mm_set1_epi32(last_x as i32), _mm_set1_epi32(last_y as i32));
    let (row_bytes, pixel_bytes) = (_mm_set1_epi32(stride as i32), _mm_set1_epi32(N as i32));
    let half = _mm256_set1_pd(0.5);
    // a*x + b*y + c for four x, less half a pixel.
    let place = |x: __m256d, [a, b, c]: [f64; 3]| {
        let ax = _mm256_mul_pd(_mm256_set1_pd(a), x);
        let sum = _mm256_add_pd(_mm256_add_pd(ax, _mm256_set1_pd(b * y)), _mm256_set1_pd(c));
        _mm256_sub_pd(sum, half)
    };
    // The byte v in the low bits of 2^52 is 2^52 + v.
    let magic = _mm256_set1_pd((1u64 << 52) as f64);
    let float = |bytes: __m256i, pick: &[u8; 16]| {
        let pick = _mm256_broadcastsi128_si256(load(pick));
        _mm256_or_pd(_mm256_castsi256_pd(_mm256_shuffle_epi8(bytes, pick)), magic)
    };
    let across = |bytes: __m256i, [left, right]: &[[u8; 16]; 2], dx: __m256d| {
        let (left, right) = (float(bytes, left), float(bytes, right));
        let change = _mm256_mul_pd(_mm256_sub_pd(right, left), dx);
        _mm256_add_pd(_mm256_sub_pd(left, magic), change)
    };
    for (block, to) in out.chunks_mut(BLOCK * N).enumerate() {
        let first = block * BLOCK;
        let x = _mm256_add_pd(_mm256_set1_pd(first as f64), _mm256_setr_pd(0.5, 1.5, 2.5, 3.5));
        let (x, y_) = (place(x, [a, b, c]), place(x, [d, e, f]));
        let (left, top) = (_mm256_floor_pd(x), _mm256_floor_pd(y_));
        // What does not fit 32 bits becomes the least number: outside.
        let (column, line) = (_mm256_cvttpd_epi32(left), _mm256_cvttpd_epi32(top));
        let outside = _mm_or_si128(
            _mm_or_si128(column, _mm_sub_epi32(last_x, column)),
            _mm_or_si128(line, _mm_sub_epi32(last_y, line)),
        );
        if to.len() < BLOCK * N || _mm_movemask_ps(_mm_castsi128_ps(outside)) != 0 {
            span(src, matrix, y, first, to, bilinear::<N>);
            continue;
        }
        let (dx, dy) = (_mm256_sub_pd(x, left), _mm256_sub_pd(y_, top));
        let offsets = _mm_add_epi32(_mm_mullo_epi32(line, row_bytes), _mm_mullo_epi32(column, pixel_bytes));
        let [p, q, r, s] = [
            _mm_extract_epi32::<0>(offsets) as usize,
            _mm_extract_epi32::<1>(offsets) as usize,
            _mm_extract_epi32::<2>(offsets) as usize,
            _mm_extract_epi32::<3>(offsets) as usize,
        ];
        let upper = gather(data, [p, q, r, s]);
        let lower = gather(data, [p + stride, q + stride, r + stride, s + stride]);
        let mut pixels = _mm_setzero_si128();
        let picks = const { &picks::<N>() };
        for picks in picks.iter().rev() {
            let (upper, lower) = (across(upper, picks, dx), across(lower, picks, dx));
            let value = _mm256_add_pd(upper, _mm256_mul_pd(_mm256_sub_pd(lower, upper), dy));
            pixels = _mm_or_si128(_mm_slli_epi32::<8>(pixels), _mm256_cvttpd_epi32(value));
        }
        let mut bytes = [0; 16];
        let dense = _mm_shuffle_epi8(pixels, load(const { &dense::<N>() }));
        // SAFETY: there is room for 16 bytes.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), dense) };
        to.copy_from_slice(&bytes[..BLOCK * N]);
    }
}
