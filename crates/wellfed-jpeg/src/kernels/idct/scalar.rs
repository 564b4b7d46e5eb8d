//! The portable inverse DCT: the oracle. Its loops run over the eight columns, so that compilers vectorize them.

use std::ops::Range;

use super::constants::*;
use crate::kernels::GROUP;

pub(super) fn idct(groups: &mut [i16], quant: &[u16; 64], out: &mut [u8], stride: usize) {
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        idct_blocks(group, 0..4, quant, &mut out[g * 32..], stride);
    }
}

/// Transforms some of a group's blocks into their part of eight rows of 32 samples, and zeroes them.
pub(in crate::kernels) fn idct_blocks(
    group: &mut [i16],
    blocks: Range<usize>,
    quant: &[u16; 64],
    out: &mut [u8],
    stride: usize,
) {
    for b in blocks {
        let mut rows = [[0i16; 8]; 8];
        let mut below = 0;
        for r in 0..8 {
            for c in 0..8 {
                let coefficient = std::mem::take(&mut group[r * 32 + b * 8 + c]);
                rows[r][c] = coefficient.wrapping_mul(quant[r * 8 + c] as i16);
                below |= if r > 0 { coefficient } else { 0 };
            }
        }
        let columns = if below == 0 {
            // The shortcut: what `pass` gives, but it wraps where `pass` saturates.
            [rows[0].map(|x| x.wrapping_shl(2)); 8]
        } else {
            pass::<11>(&rows)
        };
        let samples = transpose(&pass::<18>(&transpose(&columns)));
        for (r, row) in samples.iter().enumerate() {
            for (sample, &x) in out[r * stride + b * 8..][..8].iter_mut().zip(row) {
                *sample = (x.clamp(-128, 127) + 128) as u8;
            }
        }
    }
}

fn transpose(m: &[[i16; 8]; 8]) -> [[i16; 8]; 8] {
    let mut t = [[0; 8]; 8];
    for r in 0..8 {
        for c in 0..8 {
            t[c][r] = m[r][c];
        }
    }
    t
}

/// One-dimensional transforms of the eight columns, rounded and shifted right by `SHIFT`, saturated to 16 bits.
fn pass<const SHIFT: u32>(rows: &[[i16; 8]; 8]) -> [[i16; 8]; 8] {
    let mut out = [[0; 8]; 8];
    for c in 0..8 {
        let x: [i16; 8] = std::array::from_fn(|r| rows[r][c]);
        let times = |a: i16, constant: i16| i32::from(a) * i32::from(constant);
        let store = |v: i32| (v >> SHIFT).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16;

        let even2 = times(x[2], F_0_541) + times(x[6], F_0_541 - F_1_847);
        let even3 = times(x[2], F_0_541 + F_0_765) + times(x[6], F_0_541);
        let even0 = (i32::from(x[0].wrapping_add(x[4])) << 13) + (1 << (SHIFT - 1));
        let even1 = (i32::from(x[0].wrapping_sub(x[4])) << 13) + (1 << (SHIFT - 1));
        let even = [even0 + even3, even1 + even2, even1 - even2, even0 - even3];

        let (z3, z4) = (x[7].wrapping_add(x[3]), x[5].wrapping_add(x[1]));
        let odd3 = times(z3, F_1_175 - F_1_961) + times(z4, F_1_175);
        let odd4 = times(z3, F_1_175) + times(z4, F_1_175 - F_0_390);
        let odd = [
            times(x[7], -F_0_899) + times(x[1], F_1_501 - F_0_899) + odd4,
            times(x[5], -F_2_562) + times(x[3], F_3_072 - F_2_562) + odd3,
            times(x[5], F_2_053 - F_2_562) + times(x[3], -F_2_562) + odd4,
            times(x[7], F_0_298 - F_0_899) + times(x[1], -F_0_899) + odd3,
        ];
        for k in 0..4 {
            out[k][c] = store(even[k] + odd[k]);
            out[7 - k][c] = store(even[k] - odd[k]);
        }
    }
    out
}
