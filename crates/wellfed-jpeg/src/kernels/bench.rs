//! Times of the kernels, printed by a test that is run by hand:
//! `cargo test --release -p wellfed-jpeg kernel_times -- --ignored --nocapture`.

#![allow(clippy::print_stderr)]

use std::time::Instant;

use super::*;

/// The best of many runs, in nanoseconds.
fn best(mut run: impl FnMut()) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..400 {
        let start = Instant::now();
        run();
        best = best.min(start.elapsed().as_nanos() as f64);
    }
    best
}

fn random(n: usize) -> Vec<u8> {
    let mut seed = 1u64;
    let mut next = || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 56) as u8
    };
    (0..n).map(|_| next()).collect()
}

#[test]
#[ignore = "prints times"]
fn kernel_times() {
    const N: usize = 4096;
    const STRIDE: usize = 1056;
    let [y, cb, cr] = [0, 1, 2].map(|i| random(N + 2 + i)[i..][..N + 2].to_vec());
    // As many coefficients as a photograph of high quality has, smaller to the lower right.
    let noise = random(32 * GROUP);
    let coefficients: Vec<i16> = (0..32 * GROUP)
        .map(|i| {
            let (row, column) = (i % GROUP / 32, i % 8);
            i16::from(noise[i] as i8) >> (row + column + 2).min(15)
        })
        .collect();
    let low: Vec<i16> = coefficients
        .iter()
        .enumerate()
        .map(|(i, &x)| if i % GROUP < 128 && i % 8 < 4 { x } else { 0 })
        .collect();
    let dc_only: Vec<i16> =
        (0..32 * GROUP).map(|i| if i % 8 == 0 && i % GROUP < 32 { i16::from(noise[i]) } else { 0 }).collect();
    let quant: [u16; 64] = std::array::from_fn(|i| 3 + i as u16 / 4);
    let mut stuffed: Vec<u8> = Vec::new();
    for &byte in &random(100_000) {
        stuffed.push(byte);
        if byte == 0xFF {
            stuffed.push(0);
        }
    }
    for level in Level::available() {
        let mut out = vec![0; 8 * STRIDE];
        let mut idct_of = |source: &[i16]| {
            let mut memory = vec![0; source.len() + 32];
            let at = memory.as_ptr().align_offset(64);
            let groups = &mut memory[at..][..source.len()];
            let copy = best(|| groups.copy_from_slice(std::hint::black_box(source)));
            let both = best(|| {
                groups.copy_from_slice(source);
                idct(level, groups, std::hint::black_box(&quant), &mut out, STRIDE);
            });
            (both - copy) / 128.0
        };
        let (dense, low, flat) = (idct_of(&coefficients), idct_of(&low), idct_of(&dc_only));
        eprintln!("{level:?}: idct {dense:.2} ns a block, low {low:.2}, DC only {flat:.2}");

        let mut wide = vec![0; 2 * N];
        let mut planes = [vec![0; N], vec![0; N], vec![0; N]];
        let mut many = vec![0; 4 * N];
        let show = |name: &str, ns: f64| eprint!("  {name} {:.1}", N as f64 / ns);
        let (y1, cb1, cr1) = (&y[..N], &cb[..N], &cr[..N]);
        show("h2v1", best(|| h2v1(level, std::hint::black_box(&y), &mut wide)));
        show("h2v2", best(|| h2v2(level, std::hint::black_box(&y), &cb, &mut wide)));
        show("h1v2", best(|| h1v2(level, std::hint::black_box(y1), cb1, true, &mut planes[0])));
        show(
            "planar",
            best(|| {
                let out = planes.each_mut().map(|p| &mut p[..]);
                ycc_to_planar(level, std::hint::black_box(y1), cb1, cr1, out);
            }),
        );
        show(
            "interleaved",
            best(|| {
                ycc_to_interleaved(level, std::hint::black_box(y1), cb1, cr1, &mut many[..3 * N]);
            }),
        );
        show(
            "interleave3",
            best(|| interleave3(level, [std::hint::black_box(y1), cb1, cr1], &mut many[..3 * N])),
        );
        show(
            "interleave4",
            best(|| {
                interleave4(level, [std::hint::black_box(y1), cb1, cr1, y1], &mut many);
            }),
        );
        show("repeat2", best(|| repeat(std::hint::black_box(y1), 2, &mut wide)));
        let (mut bytes, mut marks) = (Vec::with_capacity(200_000), Vec::with_capacity(4000));
        let ns = best(|| {
            bytes.clear();
            marks.clear();
            unstuff(level, std::hint::black_box(&stuffed), &mut bytes, &mut marks);
        });
        eprintln!("  unstuff {:.1}: input samples (pixels, bytes) a ns", stuffed.len() as f64 / ns);
    }
}
