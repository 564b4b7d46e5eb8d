//! Unpacking with AVX2 and BMI2: each byte of the map names a shuffle that puts up to eight numbers in place.

use std::arch::x86_64::*;

use super::{Head, REACH, Run, padded};
use crate::kernels::GROUP;

/// For each byte of the map, which of the next eight numbers goes to each coefficient; 128 for none.
static PLACES: [[u8; 8]; 256] = {
    let mut table = [[128; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut n) = (0, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                table[byte][bit] = n;
                n += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    table
};

/// Unpacks one group; gives the length that its body announces.
///
/// # Safety
/// The features must be available, and [`REACH`] bytes be readable from `body` on.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
unsafe fn unpack_group(head: &Head, body: *const u8, group: &mut [i16; GROUP]) -> usize {
    let mut at = 0;
    let mut map = [0; 4];
    for (quarter, map) in map.iter_mut().enumerate() {
        let present = head.present >> (8 * quarter) & 255;
        // A byte of ones for each bit.
        let bytes = _pdep_u64(u64::from(present), 0x0101_0101_0101_0101).wrapping_mul(255);
        // SAFETY: at most 24 bytes of the map come before.
        let next = unsafe { body.add(at).cast::<u64>().read_unaligned() };
        *map = _pdep_u64(u64::from_le(next), bytes);
        at += present.count_ones() as usize;
    }

    let mut escaped = [0; 4];
    // Numbers of a quarter, and room for a load of eight behind the last.
    let mut numbers = [0i8; 72];
    for (quarter, named) in map.into_iter().enumerate() {
        if named == 0 {
            continue;
        }
        let count = named.count_ones();
        let mut smallest = 0;
        for half in 0..2 {
            // SAFETY: `at` is at most 32 + 3 * 32.
            let pairs = unsafe { _mm_loadu_si128(body.add(at + 16 * half).cast()) };
            let pairs = _mm256_cvtepu8_epi16(pairs);
            let both = _mm256_or_si256(pairs, _mm256_slli_epi16::<4>(pairs));
            let both = _mm256_and_si256(both, _mm256_set1_epi8(15));
            let values = _mm256_sub_epi8(both, _mm256_set1_epi8(8));
            let is_smallest = _mm256_cmpeq_epi8(values, _mm256_set1_epi8(-8));
            smallest |= u64::from(_mm256_movemask_epi8(is_smallest) as u32) << (32 * half);
            // SAFETY: there are more than 64 bytes.
            unsafe { _mm256_storeu_si256(numbers.as_mut_ptr().add(32 * half).cast(), values) };
        }
        at += (count as usize).div_ceil(2);
        // From the order of numbers to that of coefficients.
        escaped[quarter] = _pdep_u64(smallest, named);
        let mut n = 0;
        for i in 0..8 {
            let byte = (named >> (8 * i) & 255) as usize;
            // SAFETY: at most 56 numbers come before, and there are 72; a row of the table has 8 bytes, and the
            // group's quarter eight times 8 coefficients.
            unsafe {
                let next = _mm_loadl_epi64(numbers.as_ptr().add(n).cast());
                let places = _mm_loadl_epi64(PLACES[byte].as_ptr().cast());
                let values = _mm_cvtepi8_epi16(_mm_shuffle_epi8(next, places));
                _mm_storeu_si128(group.as_mut_ptr().add(64 * quarter + 8 * i).cast(), values);
            }
            n += byte.count_ones() as usize;
        }
    }

    let count: u32 = escaped.iter().map(|bits| bits.count_ones()).sum();
    let mut words = at + count as usize;
    for (escaped, quarter) in escaped.into_iter().zip(group.as_chunks_mut::<64>().0) {
        let mut left = escaped;
        while left != 0 {
            // SAFETY: `at` is less than 32 + 4 * 32 + 4 * 64.
            let byte = unsafe { body.add(at).cast::<i8>().read() };
            at += 1;
            let mut value = i16::from(byte);
            if byte == -128 {
                // SAFETY: `words` is at most 32 + 4 * 32 + 4 * 64 + 2 * 255.
                value = i16::from_le(unsafe { body.add(words).cast::<i16>().read_unaligned() });
                words += 2;
            }
            quarter[left.trailing_zeros() as usize] = value;
            left &= left - 1;
        }
    }
    for (b, &dc) in head.dc.iter().enumerate() {
        group[8 * b] = dc;
    }
    words
}

/// # Safety
/// The features must be available.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) unsafe fn unpack(run: Run<'_>, groups: &mut [i16]) -> bool {
    let mut at = 0;
    for (head, group) in run.heads.iter().zip(groups.as_chunks_mut().0) {
        let head = Head::read(head);
        let next = at + head.size;
        if next > run.end {
            return false;
        }
        let body = &run.bodies[at..];
        let buffer;
        let body = if body.len() >= REACH {
            body.as_ptr()
        } else {
            buffer = padded(body);
            buffer.as_ptr()
        };
        // SAFETY: either there is so much, or it was copied to where there is.
        if unsafe { unpack_group(&head, body, group) } != head.size {
            return false;
        }
        at = next;
    }
    true
}
