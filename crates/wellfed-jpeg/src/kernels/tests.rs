//! Every level against the scalar oracle, and the oracle's arithmetic against plainer forms of it.

use proptest::prelude::*;

use super::*;

fn levels() -> impl Iterator<Item = Level> {
    Level::available().filter(|&level| level != Level::Scalar)
}

/// Samples that are often extreme.
fn bytes(len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(0), 1 => Just(255)], len)
}

/// Quantized coefficients: dense, sparse, small, extreme; flat groups, and groups of low frequencies
/// only, are likely.
fn groups() -> impl Strategy<Value = Vec<i16>> {
    let value = prop_oneof![
        Just(any::<i16>().boxed()),
        Just((-64i16..64).boxed()),
        Just(prop_oneof![9 => Just(0i16), 1 => -300i16..300].boxed()),
        Just(prop_oneof![30 => Just(0i16), 1 => any::<i16>()].boxed()),
        Just(prop_oneof![Just(i16::MIN), Just(i16::MAX), Just(0)].boxed()),
    ];
    let block = value.prop_flat_map(|v| prop::collection::vec(v, 64)).prop_flat_map(|block| {
        // How many rows, and how many columns, are kept.
        (prop_oneof![Just(8usize), 1usize..=8], prop_oneof![Just(8usize), 1usize..=8]).prop_map(
            move |(rows, columns)| {
                let mut block = block.clone();
                for (i, x) in block.iter_mut().enumerate() {
                    if i / 8 >= rows || i % 8 >= columns {
                        *x = 0;
                    }
                }
                block
            },
        )
    });
    let keep = |limit: usize, blocks: Vec<Vec<i16>>| -> Vec<Vec<i16>> {
        let low = |i: usize| i / 8 < limit && i % 8 < limit;
        blocks.iter().map(|b| (0..64).map(|i| if low(i) { b[i] } else { 0 }).collect()).collect()
    };
    let group = prop_oneof![
        4 => prop::collection::vec(block.clone(), 4),
        3 => (3usize..6, prop::collection::vec(block, 4)).prop_map(move |(limit, b)| keep(limit, b)),
        1 => any::<[i16; 4]>().prop_map(|dc| dc.map(|dc| {
            let mut block = vec![0; 64];
            block[0] = dc;
            block
        }).to_vec()),
    ];
    prop::collection::vec(group, 1..3).prop_map(|groups| {
        let mut out = vec![0; groups.len() * GROUP];
        for (g, blocks) in groups.iter().enumerate() {
            for (b, block) in blocks.iter().enumerate() {
                for (i, &x) in block.iter().enumerate() {
                    out[g * GROUP + i / 8 * 32 + b * 8 + i % 8] = x;
                }
            }
        }
        out
    })
}

fn quant() -> impl Strategy<Value = [u16; 64]> {
    prop_oneof![
        Just([1; 64]),
        prop::array::uniform(1u16..30),
        prop::array::uniform(1u16..256),
        prop::array::uniform(any::<u16>()),
    ]
}

/// Sizes around the widths of vectors.
fn width() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..70, 120usize..140, 180usize..200]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn inverse_dct_has_the_bits_of_the_oracle(groups in groups(), quant in quant(), gap in 0usize..3) {
        let stride = groups.len() / 8 + gap;
        let mut expected = vec![7; 8 * stride];
        idct(Level::Scalar, &mut groups.clone(), &quant, &mut expected, stride);
        for level in levels() {
            let (mut groups, mut out) = (groups.clone(), vec![7; 8 * stride]);
            idct(level, &mut groups, &quant, &mut out, stride);
            prop_assert_eq!(&out, &expected, "{:?}", level);
            prop_assert!(groups.iter().all(|&x| x == 0), "{:?} leaves coefficients", level);
        }
    }

    #[test]
    fn fast_inverse_dct_has_the_bits_of_the_oracle(groups in groups(), quant in quant(), gap in 0usize..3) {
        let stride = groups.len() / 8 + gap;
        let multipliers = fast_multipliers(&quant);
        let mut expected = vec![7; 8 * stride];
        idct_fast(Level::Scalar, &mut groups.clone(), &multipliers, &mut expected, stride);
        for level in levels() {
            let (mut groups, mut out) = (groups.clone(), vec![7; 8 * stride]);
            idct_fast(level, &mut groups, &multipliers, &mut out, stride);
            prop_assert_eq!(&out, &expected, "{:?}", level);
            prop_assert!(groups.iter().all(|&x| x == 0), "{:?} leaves coefficients", level);
        }
    }

    #[test]
    fn upsampling_has_the_bits_of_the_oracle(
        (near, far) in width().prop_flat_map(|n| (bytes(n + 2), bytes(n + 2))),
        upper in any::<bool>(),
    ) {
        let n = near.len() - 2;
        let run = |level| {
            let (mut a, mut b, mut c) = (vec![0; 2 * n], vec![0; 2 * n], vec![0; n + 2]);
            h2v1(level, &near, &mut a);
            h2v2(level, &near, &far, &mut b);
            h1v2(level, &near, &far, upper, &mut c);
            (a, b, c)
        };
        for level in levels() {
            prop_assert_eq!(run(level), run(Level::Scalar), "{:?}", level);
        }
    }

    #[test]
    fn colour_conversion_has_the_bits_of_the_oracle(
        planes in width().prop_flat_map(|n| prop::array::uniform4(bytes(n))),
    ) {
        let [y, cb, cr, k] = &planes;
        let n = y.len();
        let run = |level| {
            let mut planar = [vec![0; n], vec![0; n], vec![0; n]];
            ycc_to_planar(level, y, cb, cr, planar.each_mut().map(|p| &mut p[..]));
            let mut cmy = [vec![0; n], vec![0; n], vec![0; n]];
            ycck_to_cmyk(level, y, cb, cr, cmy.each_mut().map(|p| &mut p[..]));
            let (mut rgb, mut three, mut four) = (vec![0; 3 * n], vec![0; 3 * n], vec![0; 4 * n]);
            ycc_to_interleaved(level, y, cb, cr, &mut rgb);
            interleave3(level, [y, cb, cr], &mut three);
            interleave4(level, [y, cb, cr, k], &mut four);
            (planar, cmy, rgb, three, four)
        };
        for level in levels() {
            prop_assert_eq!(run(level), run(Level::Scalar), "{:?}", level);
        }
    }

    #[test]
    fn unstuffing_has_the_bytes_and_marks_of_the_oracle(
        src in (0usize..400, prop_oneof![Just(2u32), Just(20), Just(200)]).prop_flat_map(|(n, rare)| {
            let item = prop_oneof![
                rare => any::<u8>().prop_map(|b| vec![b]),
                rare => Just(vec![0xFF, 0]),
                1 => Just(vec![0xFF]),
                1 => Just(vec![0]),
            ];
            prop::collection::vec(item, n).prop_map(|items| items.concat())
        }),
        before in 0usize..3,
    ) {
        let run = |level| {
            let (mut out, mut marks) = (vec![9; before], vec![5]);
            let end = unstuff(level, &src, &mut out, &mut marks);
            (end, out, marks)
        };
        for level in levels() {
            prop_assert_eq!(run(level), run(Level::Scalar), "{:?}", level);
        }
    }
}

/// All 65,536 chroma pairs with enough lumas to see every offset from them, clamped or not.
#[test]
fn colour_conversion_is_exact_for_all_chroma() {
    let cb: Vec<u8> = (0..=255).flat_map(|cb| [cb; 256]).collect();
    let cr: Vec<u8> = (0..=255).cycle().take(65536).collect();
    for luma in [0, 77, 128, 200, 255] {
        let y = vec![luma; 65536];
        // The tables of `jdcolor.c`: each of R's and B's rounded, G's two summed with 16 bits and then shifted.
        let table = |factor: f64| -> Vec<i32> {
            let fixed = (factor * 65536.0 + 0.5) as i32;
            (0..256).map(|i| fixed * (i - 128)).collect()
        };
        let [red, blue] =
            [1.402, 1.772].map(|f| table(f).iter().map(|x| (x + 32768) >> 16).collect::<Vec<_>>());
        let [green_b, green_r] = [0.34414, 0.71414].map(table);
        let clamp = |x: i32| x.clamp(0, 255) as u8;
        for level in Level::available() {
            let mut out = [vec![0; 65536], vec![0; 65536], vec![0; 65536]];
            ycc_to_planar(level, &y, &cb, &cr, out.each_mut().map(|p| &mut p[..]));
            for i in 0..65536 {
                let (b, r) = (usize::from(cb[i]), usize::from(cr[i]));
                let luma = i32::from(luma);
                let green = (32768 - green_b[b] - green_r[r]) >> 16;
                let expected = [luma + red[r], luma + green, luma + blue[b]].map(clamp);
                assert_eq!([out[0][i], out[1][i], out[2][i]], expected, "{level:?} {luma} {b} {r}");
            }
        }
    }
}

/// The edge cases of libjpeg's filters: with the outermost sample repeated, the formula gives it unchanged.
#[test]
fn upsampling_of_flat_rows_is_flat() {
    for level in Level::available() {
        for value in 0..=255u8 {
            let (row, mut out) = ([value; 40], [0; 76]);
            h2v1(level, &row, &mut out);
            assert_eq!(out, [value; 76]);
            h2v2(level, &row, &row, &mut out);
            assert_eq!(out, [value; 76]);
        }
    }
}

#[test]
fn unstuffing_stops_where_the_contract_says() {
    type Case<'a> = (&'a [u8], &'a [u8], usize);
    let cases: [Case; 8] = [
        (&[], &[], 0),
        (&[1, 0xFF, 0, 2], &[1, 0xFF, 2], 4),
        (&[1, 0xFF, 0xD9, 2], &[1], 1),
        (&[1, 0xFF, 0xFF, 0, 2], &[1], 1),
        (&[1, 0xFF], &[1], 1),
        (&[0xFF, 0], &[0xFF], 2),
        (&[0, 0, 0xFF, 0, 0], &[0, 0, 0xFF, 0], 5),
        (&[0xFF, 0, 0xFF, 0xD0], &[0xFF], 2),
    ];
    for level in Level::available() {
        for (src, expected, end) in cases {
            let (mut out, mut marks) = (Vec::new(), Vec::new());
            assert_eq!(unstuff(level, src, &mut out, &mut marks), end, "{level:?} {src:?}");
            assert_eq!(out, expected, "{level:?} {src:?}");
            assert_eq!(marks.len(), usize::from(!src.is_empty()));
        }
        // An FF as the last byte of a chunk, its 00 as the first of the next.
        let mut src = vec![1; 130];
        (src[63], src[64]) = (0xFF, 0);
        let (mut out, mut marks) = (Vec::new(), Vec::new());
        assert_eq!(unstuff(level, &src, &mut out, &mut marks), 130);
        assert_eq!((out.len(), marks), (129, vec![0, 64, 127]), "{level:?}");
    }
}

#[test]
fn repeats() {
    for factor in 1..6 {
        let mut out = vec![0; 3 * factor];
        repeat(&[4, 5, 6], factor, &mut out);
        let expected: Vec<u8> = [4, 5, 6].iter().flat_map(|&x| vec![x; factor]).collect();
        assert_eq!(out, expected);
    }
}

/// The inverse DCT in floating point; the reduced ones give the means of the areas that their samples stand for.
#[test]
fn inverse_dct_is_one() {
    let cosine = |x: usize, u: usize| {
        let scale = if u == 0 { 0.5f64.sqrt() } else { 1.0 };
        scale * ((2 * x + 1) as f64 * u as f64 * std::f64::consts::PI / 16.0).cos() / 2.0
    };
    let mut seed = 1u32;
    let mut random = || {
        seed = seed.wrapping_mul(1664525).wrapping_add(1013904223);
        (seed >> 16) as i16
    };
    for _ in 0..50 {
        let mut quant = [0; 64];
        quant.iter_mut().for_each(|q| *q = 1 + random().unsigned_abs() % 20);
        let group: Vec<i16> = (0..GROUP).map(|_| random() % 4).collect();
        let expected: Vec<f64> = (0..GROUP)
            .map(|i| {
                let (y, b, x) = (i / 32, i % 32 / 8, i % 8);
                let terms = (0..64).map(|k| {
                    let (v, u) = (k / 8, k % 8);
                    f64::from(group[v * 32 + b * 8 + u]) * f64::from(quant[k]) * cosine(x, u) * cosine(y, v)
                });
                terms.sum::<f64>() + 128.0
            })
            .collect();
        for size in [8, 4, 2, 1] {
            let mut group = group.clone();
            let mut out = vec![0; 4 * size * size];
            if size == 8 {
                idct(Level::Scalar, &mut group, &quant, &mut out, 32);
            } else {
                idct_scaled(Level::Scalar, &mut group, &quant, size, &mut out, 4 * size);
            }
            assert!(group.iter().all(|&x| x == 0));
            for (i, &sample) in out.iter().enumerate() {
                let (y, x, n) = (i / (4 * size), i % (4 * size), 8 / size);
                let area = (0..n * n).map(|k| expected[(y * n + k / n) * 32 + x * n + k % n]);
                let mean = (area.sum::<f64>() / (n * n) as f64).clamp(0.0, 255.0);
                assert!((f64::from(sample) - mean).abs() < 0.6, "size {size} at {i}: {sample}, {mean}");
            }
        }
    }
}
