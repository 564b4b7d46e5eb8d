//! Unpacking with VBMI2: the map says where numbers go, so that one expansion puts 64 of them in place, and rows go
//! on into the inverse DCT without having been in memory.

use std::arch::asm;
use std::arch::x86_64::*;

use super::{Head, REACH, Run, padded, scalar};
use crate::kernels::GROUP;
use crate::kernels::idct::avx512::{Done, idct_rows, quant_rows};
use crate::kernels::idct::scalar::idct_blocks;
use crate::kernels::x86::avx512::permutation;

/// The same vector, of which the compiler no longer knows that it comes from memory: expansions with an operand in
/// memory take several times as long as a load before them (Zen 4).
#[inline]
#[target_feature(enable = "avx512f")]
fn in_register(mut v: __m512i) -> __m512i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(zmm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// The rows of a group's coefficients, and the length that the body announces. `FUSED` says who calls, as in
/// [`idct_rows`].
///
/// # Safety
/// The features must be available, and [`REACH`] bytes be readable from `body` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
unsafe fn rows<const FUSED: bool>(head: &Head, body: *const u8) -> ([__m512i; 8], usize) {
    let mut at = head.present.count_ones() as usize;
    // SAFETY: see `REACH`.
    let map = in_register(_mm512_castsi256_si512(unsafe { _mm256_loadu_si256(body.cast()) }));
    let map = _mm256_maskz_expand_epi8(head.present, _mm512_castsi512_si256(map));
    let map = [
        _mm256_extract_epi64::<0>(map) as u64,
        _mm256_extract_epi64::<1>(map) as u64,
        _mm256_extract_epi64::<2>(map) as u64,
        _mm256_extract_epi64::<3>(map) as u64,
    ];

    // Two numbers of four bits in each byte.
    let mut quarters = [_mm512_setzero_si512(); 4];
    for (quarter, named) in quarters.iter_mut().zip(map) {
        // SAFETY: `at` is at most 32 + 3 * 32.
        let pairs = unsafe { _mm256_loadu_si256(body.add(at).cast()) };
        at += (named.count_ones() as usize).div_ceil(2);
        let pairs = _mm512_cvtepu8_epi16(pairs);
        // (pairs | pairs << 4) & 15
        let numbers =
            _mm512_ternarylogic_epi32::<0xA8>(pairs, _mm512_slli_epi16::<4>(pairs), _mm512_set1_epi8(15));
        *quarter = _mm512_maskz_expand_epi8(named, _mm512_sub_epi8(numbers, _mm512_set1_epi8(8)));
    }

    // Bytes in place of those that are -8.
    let mut wide = [0; 4];
    for (quarter, wide) in quarters.iter_mut().zip(&mut wide) {
        let escaped = _mm512_cmpeq_epi8_mask(*quarter, _mm512_set1_epi8(-8));
        // SAFETY: `at` is at most 32 + 4 * 32 + 3 * 64.
        let bytes = in_register(unsafe { _mm512_loadu_si512(body.add(at).cast()) });
        at += escaped.count_ones() as usize;
        *quarter = _mm512_mask_expand_epi8(*quarter, escaped, bytes);
        *wide = _mm512_cmpeq_epi8_mask(*quarter, _mm512_set1_epi8(-128));
    }

    let mut rows = [_mm512_setzero_si512(); 8];
    for r in 0..4 {
        rows[2 * r] = _mm512_cvtepi8_epi16(_mm512_castsi512_si256(quarters[r]));
        rows[2 * r + 1] = _mm512_cvtepi8_epi16(_mm512_extracti64x4_epi64::<1>(quarters[r]));
    }
    // Words in place of those that are -128: in every tenth group of photographs, mostly of the first rows.
    if wide[0] | wide[1] | wide[2] | wide[3] != 0 {
        for r in 0..8 {
            let named = (wide[r / 2] >> (r % 2 * 32)) as u32;
            // SAFETY: `at` is at most 32 + 4 * 32 + 4 * 64 + 7 * 64.
            let words = in_register(unsafe { _mm512_loadu_si512(body.add(at).cast()) });
            at += 2 * named.count_ones() as usize;
            rows[r] = _mm512_mask_expand_epi16(rows[r], named, words);
        }
    }
    // SAFETY: these are 8 bytes.
    let dc = _mm512_castsi128_si512(unsafe { _mm_loadl_epi64(head.dc.as_ptr().cast()) });
    rows[0] = _mm512_mask_permutexvar_epi16(rows[0], 0x0101_0101, const { dc_order() }, dc);
    (rows, at)
}

/// Word b for the first word of lane b.
const fn dc_order() -> __m512i {
    let mut table = [0; 64];
    let mut b = 0;
    while b < 4 {
        table[16 * b] = b as u8;
        b += 1;
    }
    permutation(table)
}

/// Calls `$each` with a group's number, head and rows; returns false from the function at damage.
macro_rules! for_each_group {
    ($run:expr, $fused:literal, |$g:ident, $head:ident, $at:ident, $rows:ident| $each:block) => {{
        let Run { heads, bodies, end } = $run;
        let mut $at = 0;
        for ($g, head) in heads.iter().enumerate() {
            let $head = Head::read(head);
            let next = $at + $head.size;
            if next > end {
                return false;
            }
            let body = &bodies[$at..];
            let buffer;
            let body = if body.len() >= REACH {
                body.as_ptr()
            } else {
                buffer = padded(body);
                buffer.as_ptr()
            };
            // SAFETY: either there is so much, or it was copied to where there is.
            let ($rows, size) = unsafe { rows::<$fused>(&$head, body) };
            if size != $head.size {
                return false;
            }
            $each
            $at = next;
        }
        true
    }};
}

/// # Safety
/// The features must be available, and `groups` hold as many groups as there are heads.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(super) unsafe fn unpack(run: Run<'_>, groups: &mut [i16]) -> bool {
    for_each_group!(run, false, |g, head, at, rows| {
        let group = &mut groups[g * GROUP..][..GROUP];
        for (row, out) in rows.into_iter().zip(group.chunks_exact_mut(32)) {
            // SAFETY: 32 numbers are 64 bytes.
            unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), row) };
        }
    })
}

/// # Safety
/// The features must be available, and `out` hold eight rows of 32 samples a group, `stride` apart.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
pub(super) unsafe fn unpack_idct(
    run: Run<'_>,
    quant: &[u16; 64],
    scratch: &mut [i16],
    out: &mut [u8],
    stride: usize,
) -> bool {
    let quant_rows = quant_rows(quant);
    let quant_rows = quant_rows.get();
    for_each_group!(run, true, |g, head, at, rows| {
        let samples = &mut out[g * 32..];
        // SAFETY: the caller promises 32 samples a group in each of eight rows.
        let done = unsafe { idct_rows::<true>(rows, quant_rows, samples.as_mut_ptr(), stride) };
        if done == Done::Nothing {
            let group = &mut scratch[..GROUP];
            if scalar::unpack_group(&head, &run.bodies[at..][..head.size], group).is_none() {
                group.fill(0);
                return false;
            }
            idct_blocks(group, 0..4, quant, samples, stride);
        }
    })
}
