//! Both passes in portable code: the oracle.

use super::axis::{Axis, PRECISION};
use super::pass::{Across, Rows};

/// Rounds half up and clamps to 0..=255.
fn clip(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

const HALF: i32 = 1 << (PRECISION - 1);

/// One row of one plane in the horizontal pass; `src` begins with column `pass.column()`.
pub(super) fn across(pass: &Across<'_>, src: &[u8], dst: &mut [u8]) {
    for (x, to) in dst.iter_mut().enumerate() {
        let (start, weights) = pass.axis().at(pass.first() + x);
        let mut sum = HALF;
        for (v, weight) in src[start - pass.column()..].iter().zip(weights) {
            sum = sum.wrapping_add(i32::from(*v) * weight);
        }
        *to = clip(sum);
    }
}

/// One row of the vertical pass.
pub(super) fn down(axis: &Axis, y: usize, src: Rows<'_>, dst: &mut [u8]) {
    const CHUNK: usize = 128;
    let (start, weights) = axis.at(y);
    let len = dst.len();
    for (n, out) in dst.chunks_mut(CHUNK).enumerate() {
        let mut sums = [HALF; CHUNK];
        let sums = &mut sums[..out.len()];
        for (t, weight) in weights.iter().enumerate() {
            let row = &src.row(start + t, len)[n * CHUNK..][..out.len()];
            for (sum, v) in sums.iter_mut().zip(row) {
                *sum = sum.wrapping_add(i32::from(*v) * weight);
            }
        }
        for (v, sum) in out.iter_mut().zip(sums) {
            *v = clip(*sum);
        }
    }
}
