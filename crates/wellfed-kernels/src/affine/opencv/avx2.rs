//! Rows of OpenCV's affine maps with AVX2: 16 points at a time, and all channels of a pixel at once.
//!
//! The same operations as the scalar code, which maps what lies at the border of the source.

use std::arch::x86_64::*;

use super::{Border, LANES, Sampling, Warp};

/// Bytes that are read of a row for a pixel and the one to its right.
const READ: usize = 8;

/// Points of the source: where they lie, and how far behind the whole numbers.
struct Points {
    at: [[f32; LANES]; 2],
    whole: [[i32; LANES]; 2],
    rest: [[f32; LANES]; 2],
}

/// Maps row `y`.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn row<const N: usize>(warp: &Warp<'_>, y: usize, row: &mut [[u8; N]]) {
    let linear = warp.sampling == Sampling::Linear;
    let mut points = Points { at: [[0.0; LANES]; 2], whole: [[0; LANES]; 2], rest: [[0.0; LANES]; 2] };
    // Pixels that have all neighbours they need to their right and below.
    let missing = usize::from(linear);
    let inside = [warp.src.width() - missing, warp.src.height() - missing];
    let fill = match warp.border {
        Border::Constant(fill) => Some(fill),
        Border::Reflect101 => None,
    };
    for (group, row) in row.chunks_mut(LANES).enumerate() {
        map(warp, y, group * LANES, row.len() == LANES, &mut points);
        for (i, to) in row.iter_mut().enumerate() {
            let [x, y] = [points.whole[0][i], points.whole[1][i]];
            // What is negative is far too large then.
            if (x as u32 as usize) < inside[0] && (y as u32 as usize) < inside[1] {
                let at = y as usize * warp.src.stride() + x as usize * N;
                if !linear {
                    if let Some(pixel) = warp.src.data()[at..].first_chunk() {
                        *to = *pixel;
                    }
                    continue;
                }
                let upper = warp.src.data()[at..].first_chunk::<READ>();
                let lower = warp.src.data()[at + warp.src.stride()..].first_chunk::<READ>();
                if let (Some(upper), Some(lower)) = (upper, lower) {
                    let mixed = mix::<N>(upper, lower, points.rest[0][i], points.rest[1][i]);
                    to.copy_from_slice(&mixed[..N]);
                    continue;
                }
            } else if let Some(fill) = fill
                && (beyond(x, warp.src.width()) || beyond(y, warp.src.height()))
            {
                to.copy_from_slice(&fill[..N]);
                continue;
            }
            let point = [points.at[0][i], points.at[1][i]];
            *to = if linear { warp.linear(point) } else { warp.nearest(point) };
        }
    }
}

/// Whether neither column (or row) `at` nor the next one is one of `len`.
fn beyond(at: i32, len: usize) -> bool {
    i64::from(at) < -1 || i64::from(at) >= len as i64
}

/// Where [`LANES`] pixels of row `y` from column `first` on lie in the source. Those that are no whole group are
/// mapped in another order.
#[target_feature(enable = "avx2,fma")]
fn map(warp: &Warp<'_>, y: usize, first: usize, whole: bool, points: &mut Points) {
    let y = _mm256_set1_ps(y as f32);
    for axis in 0..2 {
        let [a, b, c] = [0, 1, 2].map(|i| warp.matrix[3 * axis + i]);
        let (a, b, c) = (_mm256_set1_ps(a), _mm256_set1_ps(b), _mm256_set1_ps(c));
        let of_row = _mm256_mul_ps(b, y);
        for half in 0..2 {
            let from = _mm256_set1_ps((first + 8 * half) as f32);
            let columns = _mm256_add_ps(from, _mm256_setr_ps(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0));
            let at = if whole {
                _mm256_fmadd_ps(a, columns, _mm256_add_ps(of_row, c))
            } else {
                _mm256_add_ps(_mm256_fmadd_ps(a, columns, of_row), c)
            };
            let (number, rest) = match warp.sampling {
                Sampling::Nearest => (_mm256_cvtps_epi32(at), _mm256_setzero_ps()),
                Sampling::Linear => {
                    let floor = _mm256_floor_ps(at);
                    (_mm256_cvttps_epi32(floor), _mm256_sub_ps(at, floor))
                }
            };
            // SAFETY: each array has two times eight elements.
            unsafe {
                _mm256_storeu_ps(points.at[axis].as_mut_ptr().add(8 * half), at);
                _mm256_storeu_si256(points.whole[axis].as_mut_ptr().add(8 * half).cast(), number);
                _mm256_storeu_ps(points.rest[axis].as_mut_ptr().add(8 * half), rest);
            }
        }
    }
}

/// The weighted mean of two pixels of `N` bytes each in `upper`, and two in `lower`.
#[inline]
#[target_feature(enable = "avx2,fma")]
fn mix<const N: usize>(upper: &[u8; READ], lower: &[u8; READ], right: f32, down: f32) -> [u8; 4] {
    let (right, down) = (_mm_set1_ps(right), _mm_set1_ps(down));
    let (upper, lower) = (across::<N>(upper, right), across::<N>(lower, right));
    let mixed = _mm_cvtps_epi32(_mm_fmadd_ps(down, _mm_sub_ps(lower, upper), upper));
    let words = _mm_packus_epi32(mixed, mixed);
    _mm_cvtsi128_si32(_mm_packus_epi16(words, words)).to_le_bytes()
}

#[inline]
#[target_feature(enable = "avx2,fma")]
fn across<const N: usize>(pair: &[u8; READ], right: __m128) -> __m128 {
    let both = u64::from_le_bytes(*pair);
    let float = |bytes: u64| _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi64_si128(bytes as i64)));
    let (one, other) = (float(both), float(both >> (8 * N)));
    _mm_fmadd_ps(right, _mm_sub_ps(other, one), one)
}
