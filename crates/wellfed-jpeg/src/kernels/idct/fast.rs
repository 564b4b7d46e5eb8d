//! The fast inverse DCT of libjpeg (`jidctfst`, after Arai, Agui and Nakajima), as libjpeg-turbo's SIMD code computes it:
//! what TensorFlow decodes JPEGs with unless it is told otherwise.
//!
//! Coefficients are multiplied by the quantization table with the transform's scale factors in it, to two more bits, so
//! that a pass has five products. All values have 16 bits: sums wrap, and products keep the upper half of 32 bits. The
//! loops run over the 32 columns of a group.

use std::sync::LazyLock;

use super::check;
#[cfg(target_arch = "x86_64")]
use super::{fast_avx2, fast_avx512};
use crate::Level;
use crate::kernels::{GROUP, supported};

/// Columns of a group.
const WIDE: usize = 32;

/// Scale factors in natural order, with 14 fractional bits: 1 for the first row and column, and the cosine of k * 11.25
/// degrees times the square root of 2 for the k-th.
static SCALES: LazyLock<[u32; 64]> = LazyLock::new(|| {
    let scale = |k: usize| match k {
        0 => 1.0,
        k => (k as f64 * std::f64::consts::PI / 16.0).cos() * std::f64::consts::SQRT_2,
    };
    std::array::from_fn(|i| (16384.0 * scale(i / 8) * scale(i % 8)).round() as u32)
});

/// What coefficients are multiplied by: the quantization table with the scale factors and two more bits.
pub(crate) fn fast_multipliers(quant: &[u16; 64]) -> [u16; 64] {
    std::array::from_fn(|i| ((u32::from(quant[i]).wrapping_mul(SCALES[i]) + (1 << 11)) >> 12) as u16)
}

/// As [`super::idct`], by the fast transform; `multipliers` are those of [`fast_multipliers`].
///
/// # Panics
/// As [`super::idct`].
pub(crate) fn idct_fast(
    level: Level,
    groups: &mut [i16],
    multipliers: &[u16; 64],
    out: &mut [u8],
    stride: usize,
) {
    check(groups, 8, out, stride);
    match supported(level) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the features are there, and the lengths were checked.
        Level::Avx512 => unsafe { fast_avx512::idct(groups, multipliers, out, stride) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        Level::Avx2 => unsafe { fast_avx2::idct(groups, multipliers, out, stride) },
        _ => run(groups, multipliers, out, stride),
    }
}

type Row = [i16; WIDE];

fn run(groups: &mut [i16], multipliers: &[u16; 64], out: &mut [u8], stride: usize) {
    for (g, group) in groups.chunks_exact_mut(GROUP).enumerate() {
        let mut rows = [[0i16; WIDE]; 8];
        for (r, row) in rows.iter_mut().enumerate() {
            let coefficients = &group[r * WIDE..][..WIDE];
            for c in 0..WIDE {
                row[c] = coefficients[c].wrapping_mul(multipliers[r * 8 + c % 8] as i16);
            }
        }
        group.fill(0);
        pass(&mut rows);
        transpose(&mut rows);
        pass(&mut rows);
        transpose(&mut rows);
        for (r, row) in rows.iter().enumerate() {
            let samples = &mut out[g * WIDE + r * stride..][..WIDE];
            for (sample, &x) in samples.iter_mut().zip(row) {
                *sample = ((x >> 5).clamp(-128, 127) + 128) as u8;
            }
        }
    }
}

/// Transposes each of the four blocks.
fn transpose(rows: &mut [Row; 8]) {
    let before = *rows;
    for b in 0..4 {
        for r in 0..8 {
            for c in 0..8 {
                rows[c][b * 8 + r] = before[r][b * 8 + c];
            }
        }
    }
}

/// One-dimensional transforms of all columns, in place.
fn pass(rows: &mut [Row; 8]) {
    /// With eight fractional bits.
    const F_1_082: i16 = 277;
    const F_1_414: i16 = 362;
    const F_1_613: i16 = 413;
    const F_1_847: i16 = 473;

    let add = |a: &Row, b: &Row| -> Row { each(|c| a[c].wrapping_add(b[c])) };
    let sub = |a: &Row, b: &Row| -> Row { each(|c| a[c].wrapping_sub(b[c])) };
    let times = |a: &Row, constant: i16| -> Row {
        each(|c| ((i32::from(a[c] << 2) * i32::from(constant << 6)) >> 16) as i16)
    };

    let [x0, x1, x2, x3, x4, x5, x6, x7] = rows;
    let (sum04, difference04) = (add(x0, x4), sub(x0, x4));
    let sum26 = add(x2, x6);
    let difference26 = sub(&times(&sub(x2, x6), F_1_414), &sum26);
    let even = [
        add(&sum04, &sum26),
        add(&difference04, &difference26),
        sub(&difference04, &difference26),
        sub(&sum04, &sum26),
    ];

    let (z13, z10) = (add(x5, x3), sub(x5, x3));
    let (z11, z12) = (add(x1, x7), sub(x1, x7));
    let odd7 = add(&z11, &z13);
    let sum = times(&sub(&z11, &z13), F_1_414);
    let z5 = times(&add(&z10, &z12), F_1_847);
    // The constant 2.613 does not fit: 1.613, and the number itself.
    let odd6 = sub(&add(&sub(&times(&z10, -F_1_613), &z10), &z5), &odd7);
    let odd5 = sub(&sum, &odd6);
    let odd4 = add(&sub(&times(&z12, F_1_082), &z5), &odd5);

    *rows = [
        add(&even[0], &odd7),
        add(&even[1], &odd6),
        add(&even[2], &odd5),
        sub(&even[3], &odd4),
        add(&even[3], &odd4),
        sub(&even[2], &odd5),
        sub(&even[1], &odd6),
        sub(&even[0], &odd7),
    ];
}

fn each(f: impl Fn(usize) -> i16) -> Row {
    let mut row = [0; WIDE];
    for (c, x) in row.iter_mut().enumerate() {
        *x = f(c);
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scale_factors_are_those_of_libjpeg() {
        assert_eq!(SCALES[..8], [16384, 22725, 21407, 19266, 16384, 12873, 8867, 4520]);
        assert_eq!(SCALES[56..], [4520, 6270, 5906, 5315, 4520, 3552, 2446, 1247]);
        let table = fast_multipliers(&[16; 64]);
        assert_eq!((table[0], table[9], table[63]), (64, 123, 5));
    }

    #[test]
    fn a_flat_block_is_flat() {
        let mut group = [0; GROUP];
        group[..4 * 8].iter_mut().step_by(8).zip([-1000, -3, 5, 1000]).for_each(|(to, dc)| *to = dc);
        let mut out = [0; 8 * 32];
        idct_fast(Level::Scalar, &mut group, &fast_multipliers(&[8; 64]), &mut out, 32);
        for row in out.chunks(32) {
            for (block, expected) in row.chunks(8).zip([0, 125, 133, 255]) {
                assert_eq!(block, [expected; 8]);
            }
        }
        assert_eq!(group, [0; GROUP]);
    }
}
