//! Every instruction set computes the scalar code's bits; a window of a result is the same as the crop of all of it.

use proptest::prelude::*;
use wellfed_kernels::affine::{Sampling, affine_at};
use wellfed_kernels::image::{Dtype, Image, Layout, View};
use wellfed_kernels::level::Level;
use wellfed_kernels::points::{PointMap, PointOp};
use wellfed_kernels::resample::{Filter, Rect, Region, Resize, Resizer, Source};
use wellfed_kernels::write::{GeometryError, Output, PadMode, Window, write_at};

const FILTERS: [Filter; 10] = [
    Filter::Nearest,
    Filter::NearestExact,
    Filter::NearestCorner,
    Filter::Box,
    Filter::Bilinear,
    Filter::Hamming,
    Filter::Bicubic,
    Filter::Lanczos,
    Filter::TorchBilinear,
    Filter::TorchBicubic,
];

/// Noise, some of it at the ends of the range.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state & 0x300 == 0 { ((state >> 31) * 255) as u8 } else { (state >> 24) as u8 }
    };
    (0..len).map(|_| next()).collect()
}

/// Maps of every kind: identity, tables, arithmetic of each form, each element type.
fn map(channels: usize, kind: usize) -> PointMap {
    let to = |dtype, scale| PointOp::ToDtype { dtype, scale };
    let each = |from: f32| (0..channels).map(|c| from + 0.03 * c as f32).collect::<Vec<_>>();
    let normalize = PointOp::Normalize { mean: each(0.45), std: each(0.22) };
    let half = PointOp::Normalize { mean: vec![0.5], std: vec![0.5] };
    let ops = match kind {
        0 => vec![],
        1 => vec![to(Dtype::F32, true), to(Dtype::U8, false)],
        2 => vec![to(Dtype::F32, true), normalize.clone(), to(Dtype::U8, true)],
        3 => vec![to(Dtype::F32, true)],
        4 => vec![to(Dtype::F32, true), normalize],
        5 => vec![PointOp::ToTensorDiv, normalize],
        6 => vec![PointOp::ToTensorDiv, half],
        7 => vec![to(Dtype::F16, true)],
        8 => vec![to(Dtype::F16, true), normalize],
        9 => vec![to(Dtype::F32, true), normalize, to(Dtype::F16, false)],
        10 => vec![to(Dtype::F32, true), normalize, to(Dtype::Bf16, false)],
        11 => vec![to(Dtype::Bf16, true), half],
        // Float32 with two roundings to half precision on the way: no arithmetic, different tables.
        12 => vec![to(Dtype::F16, true), normalize, to(Dtype::F32, false)],
        13 => vec![to(Dtype::F16, true), half, to(Dtype::F32, false)],
        _ => vec![to(Dtype::F32, false)],
    };
    PointMap::new(channels, &ops).unwrap()
}

const KINDS: usize = 15;

/// A part of a source that is resampled, of one image in three; where the filter is Pillow's.
fn region(filter: Filter, seed: u32, (height, width): (usize, usize)) -> Option<Region> {
    let whole = [Filter::NearestExact, Filter::NearestCorner, Filter::TorchBilinear, Filter::TorchBicubic];
    if !seed.is_multiple_of(3) || whole.contains(&filter) {
        return None;
    }
    let share = |shift: u32| (seed >> shift & 0xff) as f32 / 256.0;
    let span = |side: usize, from: f32, part: f32| {
        let from = if from < 0.2 { 0.0 } else { from * side as f32 };
        (from, if part > 0.8 { side as f32 } else { from + (side as f32 - from) * part.max(0.01) })
    };
    let (top, bottom) = span(height, share(2), share(9));
    let (left, right) = span(width, share(16), share(23));
    Some(Region { top, left, bottom, right })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 96 } else { 1500 }))]

    #[test]
    fn resizing_is_the_same_on_every_level_and_in_every_window(
        (height, width, channels) in (1usize..150, 1usize..150, 1usize..5),
        (out_height, out_width) in (1usize..150, prop_oneof![1usize..150, 190usize..260]),
        keep in 0usize..8,
        filter in 0usize..FILTERS.len(),
        kind in 0usize..KINDS,
        (flip_h, flip_v, hwc) in any::<(bool, bool, bool)>(),
        cut in any::<[u16; 4]>(),
        seed in any::<u32>(),
    ) {
        let (out_height, out_width) = match keep {
            0 => (height, out_width),
            1 => (out_height, width),
            2 => (height, width),
            _ => (out_height, out_width),
        };
        let data = noise(height * width * channels, seed);
        let view = View::new(&data, height, width, channels, width * channels).unwrap();
        let region = region(FILTERS[filter], seed, (height, width));
        let whole = Resize::new(out_height, out_width, FILTERS[filter]).region(region);
        let mut full = Image::new();
        Resizer::with_level(Level::Scalar, 0).resize(view, &whole, &mut full).unwrap();

        let [top, left] = [usize::from(cut[0]) % out_height, usize::from(cut[1]) % out_width];
        let window = Rect {
            top,
            left,
            height: 1 + usize::from(cut[2]) % (out_height - top),
            width: 1 + usize::from(cut[3]) % (out_width - left),
        };
        let resize = whole.window(window);
        let crop = full.view().crop(top, left, window.height, window.width).unwrap();
        let map = map(channels, kind);
        let layout = if hwc { Layout::Hwc } else { Layout::Chw };
        let output = Output { flip_h, flip_v, map: &map, layout };
        let len = output.slot_len(window.height, window.width).unwrap();
        let mut expected = vec![0; len];
        write_at(Level::Scalar, crop, Window::full(crop), PadMode::Edge, output, &mut expected).unwrap();

        // Only the part of the source that the window needs, copied so that nothing else can be read.
        let (rows, columns) = (resize.source_rows(height), resize.source_columns(width));
        let (needed_rows, needed_columns) = Resizer::new().source(&resize, (height, width));
        prop_assert!(rows.start <= needed_rows.start && needed_rows.end <= rows.end);
        prop_assert!(columns.start <= needed_columns.start && needed_columns.end <= columns.end);
        let (first, left) = (needed_rows.start, needed_columns.start);
        let part = view.crop(first, left, needed_rows.len(), needed_columns.len()).unwrap();
        let mut exact = Image::new();
        exact.copy_from(part).unwrap();
        let part = Source::part(exact.view(), (first, left), (height, width)).unwrap();
        for level in Level::available() {
            let mut resizer = Resizer::with_level(level, 1 << 16);
            let mut slot = vec![0xaa; len + 1];
            for source in [Source::from(view), part] {
                // An odd address: the slot needs no alignment.
                resizer.resize_write(source, &resize, output, &mut slot[1..]).unwrap();
                prop_assert_eq!(&slot[1..], &expected[..], "{:?}", level);
            }
            let mut image = Image::new();
            resizer.resize(part, &resize, &mut image).unwrap();
            let mut dense = Image::new();
            dense.copy_from(crop).unwrap();
            prop_assert_eq!(&image, &dense, "{:?}", level);
        }
    }

    #[test]
    fn bilinear_maps_are_the_same_on_every_level(
        (height, width, channels) in (1usize..40, 1usize..40, 1usize..5),
        (out_height, out_width) in (1usize..50, 1usize..50),
        turn in prop::array::uniform4(prop_oneof![4 => -1.5f64..1.5, 1 => Just(0.0), 1 => Just(1.0), 1 => -300.0f64..300.0]),
        shift in prop::array::uniform2(prop_oneof![6 => -20.0f64..50.0, 1 => Just(0.0), 1 => any::<f64>()]),
        gap in 0usize..9,
        seed in any::<u32>(),
    ) {
        // No byte behind the last row: whatever is read beyond it would be missed.
        let stride = width * channels + gap;
        let data = noise((height - 1) * stride + width * channels, seed);
        let view = View::new(&data, height, width, channels, stride).unwrap();
        let matrix = [turn[0], turn[1], shift[0], turn[2], turn[3], shift[1]];
        let run = |level| {
            let mut image = Image::new();
            let size = (out_height, out_width);
            affine_at(level, view, &matrix, Sampling::Bilinear, [9; 4], size, &mut image).unwrap();
            image
        };
        let expected = run(Level::Scalar);
        for level in Level::available() {
            prop_assert_eq!(&run(level), &expected, "{:?}", level);
        }
    }

    #[test]
    fn writing_is_the_same_on_every_level(
        (height, width, channels) in (1usize..60, 1usize..60, 1usize..5),
        (top, left) in (-50i64..80, -50i64..80),
        (rows, columns) in (1usize..70, 1usize..150),
        pad in 0usize..4,
        kind in 0usize..KINDS,
        (flip_h, flip_v, hwc) in any::<(bool, bool, bool)>(),
        seed in any::<u32>(),
    ) {
        let data = noise(height * width * channels, seed);
        let view = View::new(&data, height, width, channels, width * channels).unwrap();
        let pad =
            [PadMode::Constant([3, 50, 100, 200]), PadMode::Edge, PadMode::Reflect, PadMode::Symmetric][pad];
        let window = Window { top, left, height: rows, width: columns };
        let map = map(channels, kind);
        let layout = if hwc { Layout::Hwc } else { Layout::Chw };
        let output = Output { flip_h, flip_v, map: &map, layout };
        let len = output.slot_len(rows, columns).unwrap();
        let mut expected = vec![0; len];
        // Pixel by pixel, by the definition.
        let size = map.dtype().size();
        let at = |position: i64, side: usize| {
            let n = side as i64;
            match pad {
                _ if (0..n).contains(&position) => Some(position as usize),
                PadMode::Constant(_) => None,
                PadMode::Edge => Some(position.clamp(0, n - 1) as usize),
                PadMode::Reflect if n == 1 => Some(0),
                PadMode::Reflect => {
                    let p = position.rem_euclid(2 * n - 2);
                    Some(p.min(2 * n - 2 - p) as usize)
                }
                PadMode::Symmetric => {
                    let p = position.rem_euclid(2 * n);
                    Some(p.min(2 * n - 1 - p) as usize)
                }
            }
        };
        for y in 0..rows {
            for x in 0..columns {
                for c in 0..channels {
                    let value = match (at(top + y as i64, height), at(left + x as i64, width), pad) {
                        (Some(row), Some(column), _) => view.row(row)[column * channels + c],
                        (_, _, PadMode::Constant(value)) => value[c],
                        _ => unreachable!("only constants have no pixel"),
                    };
                    let y = if flip_v { rows - 1 - y } else { y };
                    let x = if flip_h { columns - 1 - x } else { x };
                    let element = match layout {
                        Layout::Chw => (c * rows + y) * columns + x,
                        Layout::Hwc => (y * columns + x) * channels + c,
                    };
                    let bits = map.bits(c, value).to_le_bytes();
                    expected[element * size..][..size].copy_from_slice(&bits[..size]);
                }
            }
        }
        if cfg!(target_endian = "big") {
            return Ok(());
        }
        for level in Level::available() {
            let mut slot = vec![0x55; len + 2];
            write_at(level, view, window, pad, output, &mut slot[1..len + 1]).unwrap();
            prop_assert_eq!(&slot[1..len + 1], &expected[..], "{:?}", level);
            prop_assert_eq!((slot[0], slot[len + 1]), (0x55, 0x55));
        }
    }
}

/// Slots large enough to be stored past the caches, aligned and not.
#[test]
fn large_slots_are_the_same_on_every_level() {
    let data = noise(300 * 260 * 3, 5);
    let view = View::new(&data, 260, 300, 3, 900).unwrap();
    let map = map(3, 4);
    let resize = Resize::new(224, 224, Filter::Bilinear);
    for (flip_h, flip_v) in [(false, false), (true, true)] {
        let output = Output { flip_h, flip_v, map: &map, layout: Layout::Chw };
        let len = output.slot_len(224, 224).unwrap();
        let mut expected = vec![0; len];
        Resizer::with_level(Level::Scalar, 0).resize_write(view, &resize, output, &mut expected).unwrap();
        for level in Level::available() {
            let mut memory = vec![0; len + 128];
            let aligned = memory.as_ptr().align_offset(64);
            for offset in [aligned, aligned + 4] {
                let slot = &mut memory[offset..offset + len];
                Resizer::with_level(level, 0).resize_write(view, &resize, output, slot).unwrap();
                assert!(slot == &expected[..], "{level:?} at {offset}");
            }
        }
    }
}

/// Scales and tap counts that small images do not reach.
#[test]
fn large_reductions_are_the_same_on_every_level() {
    for (height, width, channels, out_height, out_width) in [
        (900, 1100, 3, 21, 37),
        (40, 5000, 3, 30, 100),
        (3000, 33, 1, 10, 30),
        (700, 900, 4, 224, 224),
        (1500, 2000, 3, 224, 300),
    ] {
        let data = noise(height * width * channels, 9);
        let view = View::new(&data, height, width, channels, width * channels).unwrap();
        for filter in FILTERS {
            let resize = Resize::new(out_height, out_width, filter);
            let mut expected = Image::new();
            Resizer::with_level(Level::Scalar, 0).resize(view, &resize, &mut expected).unwrap();
            for level in Level::available() {
                let mut image = Image::new();
                Resizer::with_level(level, 0).resize(view, &resize, &mut image).unwrap();
                assert!(image == expected, "{filter:?} {height}x{width} {level:?}");
            }
        }
    }
}

#[test]
fn bad_sizes_are_errors() {
    let data = noise(10 * 10 * 3, 1);
    let view = View::new(&data, 10, 10, 3, 30).unwrap();
    let map = PointMap::identity(3).unwrap();
    let output = Output::new(&map, Layout::Chw);
    let mut resizer = Resizer::new();
    let mut image = Image::new();
    let mut resize = |resize: Resize| resizer.resize(view, &resize, &mut image);
    let bilinear = |h, w| Resize::new(h, w, Filter::Bilinear);
    assert_eq!(resize(bilinear(0, 5)), Err(GeometryError::Empty));
    assert_eq!(resize(bilinear(5, 1 << 25)), Err(GeometryError::TooLarge { side: 1 << 25 }));
    let empty = Rect { top: 0, left: 0, height: 0, width: 5 };
    assert_eq!(resize(bilinear(5, 5).window(empty)), Err(GeometryError::Empty));
    let outside = Rect { top: 3, left: 0, height: 3, width: 5 };
    let error = GeometryError::Outside { what: "window", end: 6, limit: 5 };
    assert_eq!(resize(bilinear(5, 5).window(outside)), Err(error));

    let part = Source::part(view, (0, 0), (20, 10)).unwrap();
    let missing = resizer.resize(part, &bilinear(5, 5), &mut image);
    assert_eq!(missing, Err(GeometryError::Missing { what: "rows", start: 0, end: 20 }));
    assert!(Source::part(view, (11, 0), (20, 10)).is_err());

    let mut slot = vec![0; 74];
    assert_eq!(
        resizer.resize_write(view, &bilinear(5, 5), output, &mut slot),
        Err(GeometryError::Slot { expected: 75, actual: 74 })
    );
    let grey = PointMap::identity(1).unwrap();
    assert_eq!(
        resizer.resize_write(view, &bilinear(5, 5), Output::new(&grey, Layout::Chw), &mut slot),
        Err(GeometryError::Channels { image: 3, map: 1 })
    );
    let window = Window { top: 0, left: 0, height: 0, width: 3 };
    assert_eq!(
        write_at(Level::Scalar, view, window, PadMode::Edge, output, &mut slot),
        Err(GeometryError::Empty)
    );
    let window = Window { top: i64::MIN, left: 0, height: 1, width: 1 };
    assert!(write_at(Level::Scalar, view, window, PadMode::Edge, output, &mut slot[..3]).is_err());
}
