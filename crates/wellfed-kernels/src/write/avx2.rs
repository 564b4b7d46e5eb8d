//! Rows of pixels to their place with AVX2: 16 pixels at a time.
//!
//! Byte shuffles split pixels into channels and weave them together again; floats are computed by the map's
//! arithmetic [`Chain`], or looked up in its table one by one where it has none.

use std::arch::x86_64::*;

use super::{Output, Place};
use crate::image::{Dtype, Layout, Pixels};
use crate::points::{PointMap, Quotient, Scale};

/// Pixels in a block.
const BLOCK: usize = 16;

/// `SPLIT[C - 1][c][k]` picks channel `c` of 16 pixels out of the `k`th 16 bytes; the others are zeroed.
const SPLIT: [[[[u8; 16]; 4]; 4]; 4] = masks(true);
/// `WEAVE[C - 1][c][k]` puts channel `c` of 16 pixels into the `k`th 16 bytes; the others are zeroed.
const WEAVE: [[[[u8; 16]; 4]; 4]; 4] = masks(false);

const fn masks(split: bool) -> [[[[u8; 16]; 4]; 4]; 4] {
    let mut all = [[[[0x80; 16]; 4]; 4]; 4];
    let mut channels = 1;
    while channels <= 4 {
        let mut at = 0;
        while at < 16 * channels {
            let (c, pixel) = (at % channels, at / channels);
            let (k, byte) = (at / 16, at % 16);
            if split {
                all[channels - 1][c][k][pixel] = byte as u8;
            } else {
                all[channels - 1][c][k][byte] = pixel as u8;
            }
            at += 1;
        }
        channels += 1;
    }
    all
}

/// Writes the rows of `band`.
///
/// # Safety
/// The processor has AVX2, FMA and F16C; each row of the band has `place.width` pixels of
/// `output.map.channels()` channels; the band's rows fit between `place.y` and the end they run to, and the
/// slot has `height * width` pixels of the map's elements.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn band(band: Pixels<'_>, output: &Output<'_>, place: Place<'_>) {
    // SAFETY: the caller's.
    unsafe {
        match output.map.channels() {
            1 => rows::<1>(band, output, place),
            2 => rows::<2>(band, output, place),
            3 => rows::<3>(band, output, place),
            _ => rows::<4>(band, output, place),
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: 16 bytes are there.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn rows<const C: usize>(band: Pixels<'_>, output: &Output<'_>, place: Place<'_>) {
    let size = output.map.dtype().size();
    let planar = band.pixel == 1;
    let (height, width) = (place.height, place.width);
    if planar && output.layout == Layout::Chw {
        // SAFETY: the caller's.
        return unsafe { planes(band, output, place) };
    }
    // One emitter a plane, or one for each 16 bytes of interleaved pixels.
    let chw = output.layout == Layout::Chw;
    let emit: [Emit<'_>; C] =
        std::array::from_fn(|c| Emit::new(output.map, |e| if chw { c } else { (16 * c + e) % C }));
    let backwards = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for r in 0..band.height {
        let y = if output.flip_v { place.y - r } else { place.y + r };
        let row = band.planes.map(|plane| plane.as_ptr().wrapping_add(r * band.stride));
        for x in (0..width).step_by(BLOCK) {
            let n = BLOCK.min(width - x);
            let from = if output.flip_h { width - x - n } else { x };
            // SAFETY: `n` pixels from `from` on are in the row; fewer than 16 are copied out of it first.
            let mut planes: [__m128i; C] = unsafe {
                if planar {
                    std::array::from_fn(|c| part::<1>(row[c].wrapping_add(from), n)[0])
                } else {
                    let bytes = part::<C>(row[0].wrapping_add(from * C), n);
                    std::array::from_fn(|c| {
                        let mut plane = _mm_setzero_si128();
                        for (k, bytes) in bytes.iter().enumerate() {
                            plane = _mm_or_si128(plane, _mm_shuffle_epi8(*bytes, load(&SPLIT[C - 1][c][k])));
                        }
                        plane
                    })
                }
            };
            if output.flip_h {
                // The block's first pixel is its last in the row: move the `n` pixels to the front.
                let shift = _mm_sub_epi8(backwards, _mm_set1_epi8((BLOCK - n) as i8));
                planes = planes.map(|plane| _mm_shuffle_epi8(plane, shift));
            }
            for (k, emit) in emit.iter().enumerate() {
                let (v, elements, at) = if chw {
                    (planes[k], n, (k * height + y) * width + x)
                } else {
                    let mut woven = _mm_setzero_si128();
                    for (c, plane) in planes.iter().enumerate() {
                        woven = _mm_or_si128(woven, _mm_shuffle_epi8(*plane, load(&WEAVE[C - 1][c][k])));
                    }
                    ((woven), (n * C).saturating_sub(16 * k).min(16), (y * width + x) * C + 16 * k)
                };
                let to = place.slot.as_mut_ptr().wrapping_add(at * size);
                // SAFETY: `elements` elements from `at` on are in the slot.
                unsafe {
                    if elements == 16 {
                        emit.store(v, to);
                    } else if elements > 0 {
                        let mut rest = [0u8; 64];
                        emit.store(v, rest.as_mut_ptr());
                        std::ptr::copy_nonoverlapping(rest.as_ptr(), to, elements * size);
                    }
                }
            }
        }
    }
}

/// Planes to planes.
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn planes(band: Pixels<'_>, output: &Output<'_>, place: Place<'_>) {
    let (width, size) = (place.width, output.map.dtype().size());
    let (blocks, rest) = (width / BLOCK, width % BLOCK);
    let backwards = _mm_setr_epi8(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for c in 0..output.map.channels() {
        let emit = Emit::new(output.map, |_| c);
        for r in 0..band.height {
            let y = if output.flip_v { place.y - r } else { place.y + r };
            let from = band.planes[c].as_ptr().wrapping_add(r * band.stride);
            let to = place.slot.as_mut_ptr().wrapping_add((c * place.height + y) * width * size);
            // SAFETY: the row has `width` bytes, and as many elements from `to` on are in the slot.
            unsafe {
                let part = |at: usize| _mm_loadu_si128(from.wrapping_add(at).cast());
                if output.flip_h {
                    emit.row(|b| _mm_shuffle_epi8(part(width - BLOCK * (b + 1)), backwards), blocks, to);
                } else {
                    emit.row(|b| part(BLOCK * b), blocks, to);
                }
                if rest > 0 {
                    let mut bytes = [0u8; BLOCK];
                    let (mut elements, first) = ([0u8; 64], if output.flip_h { 0 } else { width - rest });
                    std::ptr::copy_nonoverlapping(from.wrapping_add(first), bytes.as_mut_ptr(), rest);
                    if output.flip_h {
                        bytes[..rest].reverse();
                    }
                    emit.store(load(&bytes), elements.as_mut_ptr());
                    let to = to.wrapping_add((width - rest) * size);
                    std::ptr::copy_nonoverlapping(elements.as_ptr(), to, rest * size);
                }
            }
        }
    }
}

/// `n` pixels of `K` bytes in `K` registers; bytes past them are unspecified, and not read.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn part<const K: usize>(at: *const u8, n: usize) -> [__m128i; K] {
    let mut rest = [0u8; 64];
    let mut from = at;
    if n < BLOCK {
        // SAFETY: `n` pixels are there, at most 60 bytes.
        unsafe { std::ptr::copy_nonoverlapping(at, rest.as_mut_ptr(), n * K) };
        from = rest.as_ptr();
    }
    // SAFETY: 16 * K bytes are there.
    std::array::from_fn(|k| unsafe { _mm_loadu_si128(from.wrapping_add(16 * k).cast()) })
}

/// What becomes of 16 bytes.
enum Emit<'a> {
    Copy,
    /// Float32 arithmetic, rounded to the element type; constants for 2 x 8 lanes.
    Chain {
        dtype: Dtype,
        divide: Option<(f32, f32)>,
        factor: f32,
        exact: bool,
        lanes: [[__m256; 2]; 3],
    },
    /// One lookup after the other; the channel of each lane.
    Table {
        map: &'a PointMap,
        channels: [u8; 16],
    },
}

impl<'a> Emit<'a> {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn new(map: &'a PointMap, channel: impl Fn(usize) -> usize) -> Self {
        if map.is_identity() {
            return Emit::Copy;
        }
        let Some(chain) = map.chain() else {
            return Emit::Table { map, channels: std::array::from_fn(|e| channel(e) as u8) };
        };
        let spread = |values: [f32; 4]| {
            [0, 8].map(|first: usize| {
                let lanes: [f32; 8] = std::array::from_fn(|e| values[channel(first + e)]);
                // SAFETY: 32 bytes are there.
                unsafe { _mm256_loadu_ps(lanes.as_ptr()) }
            })
        };
        let (divide, factor) = match chain.scale {
            Scale::None => (None, 1.0),
            Scale::Mul(factor) => (None, factor),
            Scale::Div { by, recip } => (Some((by, recip)), 1.0),
        };
        // Without a quotient the mean is 0 and the reciprocal 1: exact.
        Emit::Chain {
            dtype: map.dtype(),
            divide,
            factor,
            exact: chain.quotient == Quotient::Div,
            lanes: [spread(chain.mean), spread(chain.std), spread(chain.recip)],
        }
    }

    /// Writes `blocks` times 16 elements.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn row(&self, block: impl Fn(usize) -> __m128i, blocks: usize, to: *mut u8) {
        // SAFETY: the caller has room for them at `to`.
        unsafe {
            match self {
                Emit::Copy => {
                    for b in 0..blocks {
                        _mm_storeu_si128(to.wrapping_add(16 * b).cast(), block(b));
                    }
                }
                Emit::Chain { dtype: Dtype::F32, divide: None, factor, exact: true, lanes } => {
                    for b in 0..blocks {
                        let x = chain(block(b), None, *factor, true, lanes);
                        put(Dtype::F32, x, to.wrapping_add(64 * b));
                    }
                }
                _ => {
                    let bytes = match self {
                        Emit::Chain { dtype, .. } => dtype.size(),
                        Emit::Table { map, .. } => map.dtype().size(),
                        Emit::Copy => 1,
                    };
                    for b in 0..blocks {
                        self.store(block(b), to.wrapping_add(16 * bytes * b));
                    }
                }
            }
        }
    }

    /// Writes 16 elements.
    #[inline]
    #[target_feature(enable = "avx2,fma,f16c")]
    unsafe fn store(&self, v: __m128i, to: *mut u8) {
        // SAFETY: the caller has room for 16 elements at `to`.
        unsafe {
            match self {
                Emit::Copy => _mm_storeu_si128(to.cast(), v),
                Emit::Chain { dtype, divide, factor, exact, lanes } => {
                    put(*dtype, chain(v, *divide, *factor, *exact, lanes), to);
                }
                Emit::Table { map, channels } => {
                    let mut values = [0u8; 16];
                    _mm_storeu_si128(values.as_mut_ptr().cast(), v);
                    for (e, (v, c)) in values.into_iter().zip(channels).enumerate() {
                        let bits = map.bits(usize::from(*c), v);
                        match map.dtype().size() {
                            1 => to.add(e).write(bits as u8),
                            2 => to.cast::<u16>().add(e).write_unaligned(bits as u16),
                            _ => to.cast::<u32>().add(e).write_unaligned(bits),
                        }
                    }
                }
            }
        }
    }
}

/// Sixteen values by the arithmetic of an [`Emit::Chain`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn chain(
    v: __m128i,
    divide: Option<(f32, f32)>,
    factor: f32,
    exact: bool,
    [mean, std, recip]: &[[__m256; 2]; 3],
) -> [__m256; 2] {
    let halves = [v, _mm_srli_si128::<8>(v)];
    std::array::from_fn(|h| {
        let v = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(halves[h]));
        let x = match divide {
            None => _mm256_mul_ps(v, _mm256_set1_ps(factor)),
            Some((by, recip)) => {
                let (by, recip) = (_mm256_set1_ps(by), _mm256_set1_ps(recip));
                let q = _mm256_mul_ps(v, recip);
                _mm256_fmadd_ps(_mm256_fnmadd_ps(q, by, v), recip, q)
            }
        };
        let x = _mm256_sub_ps(x, mean[h]);
        let q = _mm256_mul_ps(x, recip[h]);
        if exact { _mm256_fmadd_ps(_mm256_fnmadd_ps(q, std[h], x), recip[h], q) } else { q }
    })
}

/// Writes sixteen values as `dtype`.
///
/// # Safety
/// There is room for them at `to`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn put(dtype: Dtype, x: [__m256; 2], to: *mut u8) {
    // SAFETY: the caller's.
    unsafe {
        match dtype {
            Dtype::F32 | Dtype::U8 => {
                _mm256_storeu_ps(to.cast(), x[0]);
                _mm256_storeu_ps(to.cast::<f32>().add(8), x[1]);
            }
            Dtype::F16 => {
                let [low, high] = x.map(|x| _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x));
                _mm_storeu_si128(to.cast(), low);
                _mm_storeu_si128(to.add(16).cast(), high);
            }
            Dtype::Bf16 => {
                // Nearest even: add half of the last place, less one if that place is even.
                let [low, high] = x.map(|x| {
                    let bits = _mm256_castps_si256(x);
                    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
                    let round = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
                    _mm256_srli_epi32::<16>(_mm256_add_epi32(bits, round))
                });
                let words = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packus_epi32(low, high));
                _mm256_storeu_si256(to.cast(), words);
            }
        }
    }
}
