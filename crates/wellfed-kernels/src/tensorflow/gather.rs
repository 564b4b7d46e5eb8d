//! Linear interpolation across rows of bytes, sixteen numbers at a time: where their neighbours lie is the same for all
//! rows, so it is found once, as permutations of 64 bytes.

use super::bilinear::Between;

/// Numbers of one vector.
pub(super) const LANES: usize = 16;

/// Bytes that one permutation picks from.
const WINDOW: usize = 64;

/// Where sixteen numbers of every output row come from.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Pick {
    /// How far each number lies from its lower neighbour to the upper one.
    parts: [f32; LANES],
    /// The lower neighbours, then the upper ones: bytes of the window.
    bytes: [u8; 2 * LANES],
    /// The first byte of the window in a row.
    start: usize,
}

/// Where the numbers of a row come from.
#[derive(Debug)]
pub(super) struct Picks {
    picks: Vec<Pick>,
    /// Bytes of a row.
    row: usize,
}

impl Picks {
    /// For rows of `width` pixels; `None`, if neighbours of sixteen numbers lie too far apart, or rows are too short.
    pub(super) fn new(xs: &[Between], width: usize, channels: usize) -> Option<Self> {
        let row = width * channels;
        let last = row.checked_sub(WINDOW)?;
        let numbers = xs.len() * channels;
        let mut picks = Vec::with_capacity(numbers.div_ceil(LANES));
        for first in (0..numbers).step_by(LANES) {
            // What is beyond the row has the bytes of its last number.
            let from = |lane: usize| {
                let number = (first + lane).min(numbers - 1);
                (&xs[number / channels], number % channels)
            };
            // Neighbours never lie further left than those of the pixel before.
            let start = (from(0).0.lower * channels).min(last);
            let mut pick = Pick { parts: [0.0; LANES], bytes: [0; 2 * LANES], start };
            for lane in 0..LANES {
                let (x, channel) = from(lane);
                let byte = |pixel: usize| {
                    u8::try_from(pixel * channels + channel - start)
                        .ok()
                        .filter(|&at| usize::from(at) < WINDOW)
                };
                pick.bytes[lane] = byte(x.lower)?;
                pick.bytes[LANES + lane] = byte(x.upper)?;
                pick.parts[lane] = x.part;
            }
            picks.push(pick);
        }
        Some(Self { picks, row })
    }

    /// Interpolates one row. `out` has room for whole vectors.
    ///
    /// # Safety
    /// The processor has the features of `Level::Avx512`.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi")]
    pub(super) unsafe fn across(&self, row: &[u8], out: &mut [f32]) {
        use std::arch::x86_64::*;

        assert!(row.len() == self.row, "a row of other length");
        let out = out.as_chunks_mut::<LANES>().0;
        for (pick, out) in self.picks.iter().zip(out) {
            // SAFETY: every window begins 64 bytes or more before the end of a row, whose length was checked, and the
            // tables and the output have the sizes of the vectors.
            unsafe {
                let window = _mm512_loadu_si512(row.as_ptr().add(pick.start).cast());
                let bytes = _mm512_castsi256_si512(_mm256_loadu_si256(pick.bytes.as_ptr().cast()));
                let both = _mm512_castsi512_si256(_mm512_permutexvar_epi8(bytes, window));
                let left = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_castsi256_si128(both)));
                let right = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm256_extracti128_si256::<1>(both)));
                let apart = _mm512_mul_ps(_mm512_sub_ps(right, left), _mm512_loadu_ps(pick.parts.as_ptr()));
                _mm512_storeu_ps(out.as_mut_ptr(), _mm512_add_ps(left, apart));
            }
        }
    }
}
