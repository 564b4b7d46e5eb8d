//! The kernels of `mix.cu` on the host against those of the CPU: bit by bit, over random batches.

use proptest::prelude::*;
use wellfed_cuda::{
    host::Kernel,
    mix::{Blend, Images},
};
use wellfed_kernels::{
    image::{Dtype, Layout},
    mix::{Runs, blend, paste},
};

/// What the kernel makes of a batch that begins `shift` elements after a multiple of 16.
fn mixed(batch: &[u8], shift: usize, images: Images, how: Blend) -> Vec<u8> {
    let mut memory = vec![0xEE; batch.len() + 64];
    let at = memory.as_ptr().align_offset(16) + shift * images.dtype.size();
    memory[at..at + batch.len()].copy_from_slice(batch);
    let images = Images { address: memory[at..].as_mut_ptr() as u64, ..images };
    if let Some(launch) = images.launch(how).unwrap() {
        let kernel = Kernel::find(launch.name).unwrap();
        kernel.check::<wellfed_cuda::mix::MixArgs>(launch.grid, launch.threads).unwrap();
        // SAFETY: the images lie in `memory`.
        unsafe { kernel.launch(&launch.args, launch.grid) };
    }
    assert!(memory[..at].iter().chain(&memory[at + batch.len()..]).all(|&byte| byte == 0xEE), "beside");
    memory[at..at + batch.len()].to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn sums_are_bit_equal_to_the_cpu_s(
        values in proptest::collection::vec(any::<u16>(), 1..200),
        count in 1..5_usize,
        lam in 0.0..=1.0_f64,
        kind in 0..3_usize,
        shift in 0..3_usize,
    ) {
        let dtype = [Dtype::F32, Dtype::F16, Dtype::Bf16][kind];
        let one: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let one = if dtype == Dtype::F32 { one.repeat(2) } else { one };
        let size = [1, 1, one.len() / dtype.size()];
        let mut batch = one.repeat(count);
        // Images differ, and what is no number has bits of its own, which nobody promises.
        batch.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= (at / one.len()) as u8);
        batch.chunks_exact_mut(2).for_each(|two| two[1] &= 0xBF);
        let images = Images { address: 0, count, size, dtype, layout: Layout::Chw };
        let made = mixed(&batch, shift, images, Blend::Sum(lam));
        blend(&mut batch, count, dtype, lam);
        prop_assert_eq!(made, batch);
    }

    #[test]
    fn rectangles_are_bit_equal_to_the_cpu_s(
        (height, width) in (1..9_usize, 1..9_usize),
        sides in any::<[u8; 4]>(),
        count in 1..5_usize,
        kind in 0..4_usize,
        channels in 1..4_usize,
        planar in any::<bool>(),
        shift in 0..3_usize,
    ) {
        let dtype = [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::Bf16][kind];
        let cut = |a: u8, b: u8, side: usize| {
            let (a, b) = (usize::from(a) % (side + 1), usize::from(b) % (side + 1));
            (a.min(b), a.max(b))
        };
        let ((x1, x2), (y1, y2)) = (cut(sides[0], sides[1], width), cut(sides[2], sides[3], height));
        let own = channels * height * width * dtype.size();
        let mut batch: Vec<u8> = (0..own * count).map(|at| (at * 7 + at / 251) as u8).collect();
        let layout = if planar { Layout::Chw } else { Layout::Hwc };
        let images = Images { address: 0, count, size: [channels, height, width], dtype, layout };
        let made = mixed(&batch, shift, images, Blend::Box([x1, y1, x2, y2]));
        let (planes, pixel) = if planar { (channels, dtype.size()) } else { (1, dtype.size() * channels) };
        for plane in 0..planes {
            let first = (plane * height + y1) * width * pixel + x1 * pixel;
            paste(&mut batch, count, &Runs { first, run: (x2 - x1) * pixel, stride: width * pixel, count: y2 - y1 });
        }
        prop_assert_eq!(made, batch);
    }
}

/// Each number of half precision, by itself and in sums whose rounding is a tie.
#[test]
fn all_halves_are_rounded_as_on_the_cpu() {
    for dtype in [Dtype::F16, Dtype::Bf16] {
        let all: Vec<u8> = (0..=u16::MAX)
            .map(|bits| if dtype == Dtype::F16 && bits & 0x7C00 == 0x7C00 { 0 } else { bits })
            .map(|bits| if dtype == Dtype::Bf16 && bits & 0x7F80 == 0x7F80 { 0 } else { bits })
            .flat_map(u16::to_ne_bytes)
            .collect();
        let rolled: Vec<u8> = all[2 * 12_345..].iter().chain(&all[..2 * 12_345]).copied().collect();
        for lam in [0.0, 0.5, 0.3, 1.0] {
            let mut batch = [&all[..], &rolled].concat();
            let size = [1, 256, 256];
            let images = Images { address: 0, count: 2, size, dtype, layout: Layout::Chw };
            let made = mixed(&batch, 0, images, Blend::Sum(lam));
            blend(&mut batch, 2, dtype, lam);
            assert!(made == batch, "{dtype:?} {lam}");
        }
    }
}

#[test]
fn what_cannot_be_mixed_is_an_error() {
    let images = Images { address: 0, count: 2, size: [3, 4, 5], dtype: Dtype::U8, layout: Layout::Chw };
    let error = |images: Images, blend| images.launch(blend).unwrap_err().to_string();
    assert!(error(images, Blend::Sum(0.5)).contains("whole numbers"));
    assert!(error(images, Blend::Box([0, 0, 6, 1])).contains("no rectangle of images of 4 x 5"));
    let large = Images { size: [3, 1 << 40, 1 << 30], ..images };
    assert!(error(large, Blend::Box([0, 0, 1, 1])).contains("too large"));
    assert!(images.launch(Blend::Box([1, 1, 1, 3])).unwrap().is_none());
    assert!(Images { count: 0, ..images }.launch(Blend::Box([0, 0, 1, 1])).unwrap().is_none());
}
