//! Inverse DCTs that give 4x4, 2x2 or 1x1 samples a block (libjpeg's `jidctred`), as libjpeg-turbo's SSE2 code
//! computes the first two and its C code the last.

use crate::kernels::GROUP;

pub(super) fn idct(groups: &mut [i16], quant: &[u16; 64], size: usize, out: &mut [u8], stride: usize) {
    for (i, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        for b in 0..4 {
            let x = (i * 4 + b) * size;
            match size {
                4 => put(&idct4(group, b, quant), out, x, stride),
                2 => put(&idct2(group, b, quant), out, x, stride),
                _ => out[x] = idct1(group[b * 8], quant[0]),
            }
        }
        group.fill(0);
    }
}

fn put<const N: usize>(samples: &[[u8; N]; N], out: &mut [u8], x: usize, stride: usize) {
    for (r, row) in samples.iter().enumerate() {
        out[r * stride + x..][..N].copy_from_slice(row);
    }
}

/// The dequantized coefficient at (row, column) of block `b`, wrapped to 16 bits.
fn dequantize(group: &[i16], b: usize, quant: &[u16; 64], row: usize, column: usize) -> i16 {
    group[row * 32 + b * 8 + column].wrapping_mul(quant[row * 8 + column] as i16)
}

/// (v + half) >> shift, saturated to 16 bits.
fn round(v: i32, shift: u32) -> i16 {
    (v.wrapping_add(1 << (shift - 1)) >> shift).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
}

fn sample(x: i16) -> u8 {
    (x.clamp(-128, 127) + 128) as u8
}

/// Sum of products, wrapping like `pmaddwd` and `paddd` do.
fn dot<const N: usize>(x: [i16; N], constants: [i32; N]) -> i32 {
    (0..N).fold(0i32, |sum, i| sum.wrapping_add(i32::from(x[i]) * constants[i]))
}

/// Four outputs of one column or row: `x` holds coefficients 0 to 7 (4 is not used).
fn reduced4(x: [i16; 8], shift: u32) -> [i16; 4] {
    let even0 = i32::from(x[0]) << 14;
    let even2 = dot([x[2], x[6]], [15137, -6270]);
    let odd0 = dot([x[7], x[5], x[3], x[1]], [-1730, 11893, -17799, 8697]);
    let odd2 = dot([x[7], x[5], x[3], x[1]], [-4176, -4926, 7373, 20995]);
    let (sum, difference) = (even0.wrapping_add(even2), even0.wrapping_sub(even2));
    [
        round(sum.wrapping_add(odd2), shift),
        round(difference.wrapping_add(odd0), shift),
        round(difference.wrapping_sub(odd0), shift),
        round(sum.wrapping_sub(odd2), shift),
    ]
}

fn idct4(group: &[i16], b: usize, quant: &[u16; 64]) -> [[u8; 4]; 4] {
    let used = [1, 2, 3, 5, 6, 7];
    // As in the full transform, a block without rows 1 to 7 (here without the used ones) wraps, not saturates.
    let flat = used.iter().all(|r| group[r * 32 + b * 8..][..8].iter().all(|&x| x == 0));
    let mut rows = [[0i16; 8]; 4];
    for c in [0, 1, 2, 3, 5, 6, 7] {
        let column: [i16; 8] = std::array::from_fn(|r| dequantize(group, b, quant, r, c));
        let four = if flat { [column[0].wrapping_shl(2); 4] } else { reduced4(column, 12) };
        for r in 0..4 {
            rows[r][c] = four[r];
        }
    }
    rows.map(|row| reduced4(row, 19).map(sample))
}

fn idct2(group: &[i16], b: usize, quant: &[u16; 64]) -> [[u8; 2]; 2] {
    const CONSTANTS: [i32; 4] = [29692, -10426, 6967, -5906];
    let column = |c: usize| {
        let odd = dot([1, 3, 5, 7].map(|r| dequantize(group, b, quant, r, c)), CONSTANTS);
        let even = i32::from(dequantize(group, b, quant, 0, c)) << 15;
        [even.wrapping_add(odd), even.wrapping_sub(odd)]
    };
    // The first column stays in 32 bits; the others saturate to 16.
    let first = column(0).map(|v| v.wrapping_add(1 << 12) >> 13);
    let others = [1, 3, 5, 7].map(|c| column(c).map(|v| round(v, 13)));
    std::array::from_fn(|r| {
        let even = first[r].wrapping_shl(15);
        let odd = dot(others.map(|column| column[r]), CONSTANTS);
        [even.wrapping_add(odd), even.wrapping_sub(odd)].map(|v| sample(round(v, 20)))
    })
}

/// libjpeg masks the index into its range table to ten bits, hence the wrap.
fn idct1(dc: i16, quant: u16) -> u8 {
    let v = (i32::from(dc) * i32::from(quant as i16) + 4) >> 3;
    sample((v << 22 >> 22) as i16)
}
