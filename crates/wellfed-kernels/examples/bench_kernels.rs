//! Prints microseconds an image for resampling and writing, on each instruction set: the median of 9 rounds, the best
//! round in brackets, of this thread's own time. Run with `cargo run --release -p wellfed-kernels --example bench_kernels [part of a name] [level]`.
//!
//! `hot` writes to the same slot again and again, `cold` to the slots of a batch larger than the caches.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use wellfed_kernels::affine::{Sampling, affine_at, opencv};
use wellfed_kernels::image::{Dtype, Image, Layout, Planes, View};
use wellfed_kernels::level::Level;
use wellfed_kernels::mix::blend_at;
use wellfed_kernels::points::{PointMap, PointOp};
use wellfed_kernels::resample::{Filter, Rect, Resize, Resizer};
use wellfed_kernels::write::{Output, PadMode, Window, write_at};

fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn imagenet(dtype: Dtype) -> PointMap {
    let ops = [
        PointOp::ToDtype { dtype: Dtype::F32, scale: true },
        PointOp::Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] },
        PointOp::ToDtype { dtype, scale: false },
    ];
    PointMap::new(3, &ops).expect("constants are valid")
}

/// Seconds this thread has run: other processes do not count (Linux), or the wall clock's.
fn seconds(epoch: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split(' ').next()?.parse::<f64>().ok())
        .map_or_else(|| epoch.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

/// Times `run`, which takes the number of the image.
fn time(name: &str, level: Level, images: usize, mut run: impl FnMut(usize)) {
    let skip = |n: usize, text: &str| std::env::args().nth(n).is_some_and(|wanted| !text.contains(&wanted));
    if skip(1, name) || skip(2, &format!("{level:?}")) {
        return;
    }
    let epoch = Instant::now();
    for i in 0..images / 4 + 1 {
        run(i);
    }
    let mut rounds: Vec<f64> = (0..9)
        .map(|_| {
            let start = seconds(epoch);
            for i in 0..images {
                run(i);
            }
            (seconds(epoch) - start) * 1e6 / images as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{name:<46} {:<8} {:>9.2} us  [{:.2}]", format!("{level:?}"), rounds[4], rounds[0]);
}

fn main() {
    let photo = noise(500 * 375 * 3);
    let photo = View::new(&photo, 375, 500, 3, 1500).expect("valid");
    let planes: [Vec<u8>; 3] = [0, 1, 2].map(|_| noise(375 * 512));
    let f32s = imagenet(Dtype::F32);
    let f16s = imagenet(Dtype::F16);
    let bytes = PointMap::identity(3).expect("valid");
    let slot = 224 * 224 * 3 * 4;
    // As the engine's buffers are: aligned to a cache line.
    let mut memory = vec![0u8; slot * 128 + 64];
    let aligned = memory.as_ptr().align_offset(64);
    let batch = &mut memory[aligned..][..slot * 128];
    for level in Level::available() {
        let n = if level == Level::Scalar { 60 } else { 2000 };
        let mut resizer = Resizer::with_level(level, 4 << 20);
        let crop = photo.crop(60, 90, 264, 270).expect("inside");
        let crops: Vec<View<'_>> =
            (0..64).map(|i| photo.crop(i, 2 * i, 264 - i, 270 + i).expect("inside")).collect();
        let whole = Resize::new(224, 224, Filter::Bilinear);
        let out = |map, flip_h, layout| Output { flip_h, flip_v: false, map, layout };
        for (name, map, layout) in [
            ("photo 270x264 -> 224 f32 CHW", &f32s, Layout::Chw),
            ("photo 270x264 -> 224 f16 CHW", &f16s, Layout::Chw),
            ("photo 270x264 -> 224 u8 CHW", &bytes, Layout::Chw),
            ("photo 270x264 -> 224 u8 HWC", &bytes, Layout::Hwc),
            ("photo 270x264 -> 224 f32 HWC", &f32s, Layout::Hwc),
        ] {
            let len = 224 * 224 * 3 * map.dtype().size();
            time(&format!("{name}, flip, hot"), level, n, |_| {
                resizer.resize_write(crop, &whole, out(map, true, layout), &mut batch[..len]).expect("valid");
            });
        }
        time("photo 270x264 -> 224 f32 CHW, flip, cold", level, n, |i| {
            let slot = &mut batch[i % 128 * slot..][..slot];
            resizer.resize_write(crop, &whole, out(&f32s, true, Layout::Chw), slot).expect("valid");
        });
        time("photo 64 crop sizes -> 224 f32 CHW, hot", level, n, |i| {
            let view = crops[i % 64];
            resizer
                .resize_write(view, &whole, out(&f32s, i % 2 == 0, Layout::Chw), &mut batch[..slot])
                .expect("valid");
        });
        let mut fresh = Resizer::with_level(level, 0);
        time("photo 64 crop sizes, weights never kept", level, n, |i| {
            let view = crops[i % 64];
            fresh
                .resize_write(view, &whole, out(&f32s, i % 2 == 0, Layout::Chw), &mut batch[..slot])
                .expect("valid");
        });
        // What the JPEG decoder gives: planes, in bands of a row of blocks, of the columns that are needed.
        let planes = Planes::new(&[&planes[0], &planes[1], &planes[2]], 375, 500, 512).expect("valid");
        for (name, height, width, flip) in [
            ("270x264", 264, 270, true),
            ("375x500", 375, 500, true),
            ("200x180", 180, 200, false),
            ("160x320", 320, 160, false),
        ] {
            for (name, map) in
                [(format!("{name} -> 224 f32 CHW"), &f32s), (format!("{name} -> 224 u8 CHW"), &bytes)]
            {
                let len = 224 * 224 * 3 * map.dtype().size();
                let crop = planes.crop(20, 60.min(500 - width), height.min(355), width).expect("inside");
                let size = (crop.height(), crop.width());
                let part = Rect { top: 0, left: 0, height: size.0, width: size.1 };
                let output = out(map, flip, Layout::Chw);
                time(&format!("planar {name}, hot"), level, n, |_| {
                    resizer.resize_write(crop, &whole, output, &mut batch[..len]).expect("valid");
                });
                for rows in [8, 16] {
                    time(&format!("planar {name}, bands of {rows}, hot"), level, n, |_| {
                        let mut stream =
                            resizer.stream(&whole, size, part, 3, output, &mut batch[..len]).expect("valid");
                        for top in (0..size.0).step_by(rows) {
                            let band = crop.crop(top, 0, rows.min(size.0 - top), size.1).expect("inside");
                            stream.push(band).expect("valid");
                        }
                        stream.finish().expect("complete");
                    });
                }
            }
        }
        let square = photo.crop(0, 0, 224, 224).expect("inside");
        let mut turned = Image::new();
        for (name, matrix) in
            [("turned", [0.98, 0.17, -17.0, -0.17, 0.98, 21.0]), ("sheared", [1.0, 0.09, 0.0, 0.0, 1.0, 0.0])]
        {
            time(&format!("224 {name}, bilinear"), level, n, |_| {
                affine_at(level, square, &matrix, Sampling::Bilinear, [0; 4], (224, 224), &mut turned)
                    .expect("memory");
            });
        }
        let turn = [0.98, 0.17, -17.0, -0.17, 0.98, 21.0];
        for (name, sampling) in [("linear", opencv::Sampling::Linear), ("nearest", opencv::Sampling::Nearest)]
        {
            time(&format!("224 turned, OpenCV's {name}"), level, n, |_| {
                let border = opencv::Border::Constant([0; 4]);
                opencv::warp_at(level, square, &turn, sampling, border, &mut turned).expect("memory");
            });
        }
        for (name, dtype) in [("f32", Dtype::F32), ("f16", Dtype::F16), ("bf16", Dtype::Bf16)] {
            let len = 64 * 224 * 224 * 3 * dtype.size();
            // Numbers of a size that images have: sums of very small ones take their time.
            let one = match dtype {
                Dtype::F32 => 1.5f32.to_ne_bytes().to_vec(),
                _ => [0x3C00u16, 0x3C01].map(u16::to_ne_bytes).concat(),
            };
            batch[..len].chunks_exact_mut(4).for_each(|to| to.copy_from_slice(&one));
            time(&format!("mix 64 of 224 {name}"), level, 20, |_| {
                blend_at(level, &mut batch[..len], 64, dtype, 0.3);
            });
        }
        let window = Rect { top: 16, left: 58, height: 224, width: 224 };
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            let eval = Resize::new(256, 341, filter).window(window);
            time(&format!("eval 500x375 -> 256 -> 224 f32 CHW {filter:?}, hot"), level, n, |_| {
                resizer
                    .resize_write(photo, &eval, out(&f32s, false, Layout::Chw), &mut batch[..slot])
                    .expect("valid");
            });
        }
        let cifar = noise(32 * 32 * 3);
        let cifar = View::new(&cifar, 32, 32, 3, 96).expect("valid");
        for (name, map) in [("f32", &f32s), ("f16", &f16s), ("u8", &bytes)] {
            let len = 32 * 32 * 3 * map.dtype().size();
            time(&format!("CIFAR crop 32 padding 4, flip, {name} CHW, hot"), level, 50 * n, |i| {
                let window =
                    Window { top: (i % 9) as i64 - 4, left: (i / 9 % 9) as i64 - 4, height: 32, width: 32 };
                let pad = PadMode::Constant([0; 4]);
                write_at(level, cifar, window, pad, out(map, i % 2 == 0, Layout::Chw), &mut batch[..len])
                    .expect("valid");
            });
        }
        time("crop 224 of 500x375, flip, f32 CHW, hot", level, n, |i| {
            let window = Window { top: (i % 100) as i64, left: (i % 200) as i64, height: 224, width: 224 };
            let pad = PadMode::Constant([0; 4]);
            write_at(level, photo, window, pad, out(&f32s, i % 2 == 0, Layout::Chw), &mut batch[..slot])
                .expect("valid");
        });
    }
}
