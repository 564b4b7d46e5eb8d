//! Rows that come in bands, planar or interleaved, make the same bits as the whole image at once.

use proptest::prelude::*;
use wellfed_kernels::image::{Dtype, Image, Layout, Pixels, Planes, View};
use wellfed_kernels::level::Level;
use wellfed_kernels::points::{PointMap, PointOp};
use wellfed_kernels::resample::{Filter, Rect, Region, Resize, Resizer, Source};
use wellfed_kernels::write::{GeometryError, Output, PadMode, Window, Writer, write_at};

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

/// A map of each element type.
fn map(channels: usize, kind: usize) -> PointMap {
    let to = |dtype, scale| PointOp::ToDtype { dtype, scale };
    let each = |from: f32| (0..channels).map(|c| from + 0.03 * c as f32).collect::<Vec<_>>();
    let normalize = PointOp::Normalize { mean: each(0.45), std: each(0.22) };
    let ops = match kind {
        0 => vec![],
        1 => vec![to(Dtype::F32, true), normalize],
        2 => vec![to(Dtype::F16, true), normalize],
        _ => vec![to(Dtype::F32, true), normalize, to(Dtype::Bf16, false)],
    };
    PointMap::new(channels, &ops).unwrap()
}

/// `view` in planes, rows `stride` bytes apart, and nothing behind the last one.
fn split(view: View<'_>, stride: usize) -> Vec<Vec<u8>> {
    let (height, width, channels) = (view.height(), view.width(), view.channels());
    let mut planes = vec![vec![0xcc; (height - 1) * stride + width]; channels];
    for y in 0..height {
        for (i, value) in view.row(y).iter().enumerate() {
            planes[i % channels][y * stride + i / channels] = *value;
        }
    }
    planes
}

/// Cuts `pixels` into bands of heights that `heights` names again and again, each copied so that nothing around it
/// can be read, and hands them to `push`.
fn bands(
    view: View<'_>,
    planar: Option<usize>,
    heights: &[usize],
    mut push: impl FnMut(Pixels<'_>) -> Result<(), GeometryError>,
) -> Result<(), GeometryError> {
    let mut top = 0;
    for height in heights.iter().cycle() {
        let height = (*height).min(view.height() - top);
        let mut band = Image::new();
        band.copy_from(view.crop(top, 0, height, view.width()).unwrap()).unwrap();
        match planar {
            Some(gap) => {
                let stride = view.width() + gap;
                let planes = split(band.view(), stride);
                let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
                push(Planes::new(&planes, height, view.width(), stride).unwrap().into())?;
            }
            None => push(band.view().into())?,
        }
        top += height;
        if top == view.height() {
            break;
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 128 } else { 1500 }))]

    #[test]
    fn a_resize_in_bands_is_the_resize(
        (height, width, channels) in (1usize..150, prop_oneof![1usize..150, 100usize..400], 1usize..5),
        (out_height, out_width) in (1usize..150, prop_oneof![1usize..150, 190usize..260]),
        keep in 0usize..8,
        filter in 0usize..FILTERS.len(),
        kind in 0usize..4,
        (flip_h, flip_v, hwc, planar, grey) in any::<(bool, bool, bool, bool, bool)>(),
        cut in any::<[u16; 4]>(),
        margin in any::<[u8; 4]>(),
        heights in prop::collection::vec(1usize..40, 1..5),
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
        let [top, left] = [usize::from(cut[0]) % out_height, usize::from(cut[1]) % out_width];
        let window = Rect {
            top,
            left,
            height: 1 + usize::from(cut[2]) % (out_height - top),
            width: 1 + usize::from(cut[3]) % (out_width - left),
        };
        let region = region(FILTERS[filter], seed, (height, width));
        let resize = Resize::new(out_height, out_width, FILTERS[filter]).window(window).region(region);
        // One channel may fill three.
        let map = map(if channels == 1 && grey { 3 } else { channels }, kind);
        let layout = if hwc { Layout::Hwc } else { Layout::Chw };
        let output = Output { flip_h, flip_v, map: &map, layout };
        let len = output.slot_len(window.height, window.width).unwrap();
        let mut expected = vec![0; len];
        Resizer::with_level(Level::Scalar, 0).resize_write(view, &resize, output, &mut expected).unwrap();

        // A part of the source: what the window needs, and some more on each side.
        let (rows, columns) = Resizer::new().source(&resize, (height, width));
        let grow = |range: std::ops::Range<usize>, before: u8, after: u8, side: usize| {
            let first = range.start - usize::from(before) % 9 % (range.start + 1);
            (first, (range.end + usize::from(after) % 9).min(side) - first)
        };
        let (top, rows) = grow(rows, margin[0], margin[1], height);
        let (left, columns) = grow(columns, margin[2], margin[3], width);
        let part = Rect { top, left, height: rows, width: columns };
        let view = view.crop(top, left, rows, columns).unwrap();
        let planar = planar.then_some(usize::from(margin[3]) % 70);
        for level in Level::available() {
            let mut resizer = Resizer::with_level(level, 1 << 16);
            let mut slot = vec![0xaa; len];
            let mut stream = resizer.stream(&resize, (height, width), part, channels, output, &mut slot).unwrap();
            bands(view, planar, &heights, |band| stream.push(band)).unwrap();
            stream.finish().unwrap();
            prop_assert_eq!(&slot, &expected, "{:?}", level);

            let planes = split(view, columns + 3);
            let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
            let planes = Planes::new(&planes, rows, columns, columns + 3).unwrap();
            slot.fill(0);
            let source = Source::part(planes, (top, left), (height, width)).unwrap();
            resizer.resize_write(source, &resize, output, &mut slot).unwrap();
            prop_assert_eq!(&slot, &expected, "{:?}", level);
        }
    }

    #[test]
    fn a_crop_in_bands_is_the_crop(
        (height, width, channels) in (1usize..60, 1usize..60, 1usize..5),
        (top, left) in (-50i64..80, -50i64..80),
        (rows, columns) in (1usize..90, 1usize..150),
        pad in 0usize..4,
        kind in 0usize..4,
        (flip_h, flip_v, hwc, planar, grey) in any::<(bool, bool, bool, bool, bool)>(),
        heights in prop::collection::vec(1usize..40, 1..5),
        seed in any::<u32>(),
    ) {
        let data = noise(height * width * channels, seed);
        let view = View::new(&data, height, width, channels, width * channels).unwrap();
        let pad =
            [PadMode::Constant([3, 50, 100, 200]), PadMode::Edge, PadMode::Reflect, PadMode::Symmetric][pad];
        let window = Window { top, left, height: rows, width: columns };
        let map = map(if channels == 1 && grey { 3 } else { channels }, kind);
        let layout = if hwc { Layout::Hwc } else { Layout::Chw };
        let output = Output { flip_h, flip_v, map: &map, layout };
        let len = output.slot_len(rows, columns).unwrap();
        let mut expected = vec![0; len];
        write_at(Level::Scalar, view, window, pad, output, &mut expected).unwrap();
        // What an earlier image left in it must not show.
        let mut lines = vec![0x55; 100];
        for level in Level::available() {
            let mut slot = vec![0xaa; len];
            let size = (height, width);
            let mut writer =
                Writer::with_level(level, size, channels, window, pad, output, &mut slot, &mut lines).unwrap();
            bands(view, planar.then_some(5), &heights, |band| writer.push(band)).unwrap();
            prop_assert!(writer.is_complete());
            writer.finish().unwrap();
            prop_assert_eq!(&slot, &expected, "{:?}", level);
        }
    }
}

/// Scales and tap counts that small images do not reach.
#[test]
fn large_reductions_in_bands_are_the_same() {
    for (height, width, out_height, out_width) in [
        (900, 1100, 21, 37),
        (40, 5000, 30, 100),
        (3000, 33, 10, 30),
        (700, 900, 224, 224),
        (1500, 2000, 224, 300),
    ] {
        let data = noise(height * width * 3, 9);
        let view = View::new(&data, height, width, 3, width * 3).unwrap();
        let map = map(3, 0);
        let output = Output::new(&map, Layout::Chw);
        for filter in FILTERS {
            let resize = Resize::new(out_height, out_width, filter);
            let mut expected = vec![0; output.slot_len(out_height, out_width).unwrap()];
            Resizer::with_level(Level::Scalar, 0).resize_write(view, &resize, output, &mut expected).unwrap();
            let part = Rect { top: 0, left: 0, height, width };
            for level in Level::available() {
                let mut slot = vec![0xaa; expected.len()];
                let mut resizer = Resizer::with_level(level, 0);
                let mut stream =
                    resizer.stream(&resize, (height, width), part, 3, output, &mut slot).unwrap();
                bands(view, Some(0), &[8, 16, 64], |band| stream.push(band)).unwrap();
                stream.finish().unwrap();
                assert!(slot == expected, "{filter:?} {height}x{width} {level:?}");
            }
        }
    }
}

#[test]
fn rows_that_were_not_announced_are_errors() {
    let data = noise(20 * 10 * 3, 1);
    let view = View::new(&data, 20, 10, 3, 30).unwrap();
    let planes = Planes::new(&[&data[..200], &data[200..400], &data[400..]], 20, 10, 10).unwrap();
    let map = PointMap::identity(3).unwrap();
    let output = Output::new(&map, Layout::Chw);
    let mut resizer = Resizer::new();
    let mut slot = vec![0u8; 75];
    let resize = Resize::new(5, 5, Filter::Bilinear);
    let part = Rect { top: 0, left: 0, height: 20, width: 10 };
    let mut stream = resizer.stream(&resize, (20, 10), part, 3, output, &mut slot).unwrap();
    stream.push(view.crop(0, 0, 8, 10).unwrap()).unwrap();
    let narrow = stream.push(view.crop(0, 0, 8, 9).unwrap());
    assert_eq!(narrow, Err(GeometryError::Width { expected: 10, actual: 9 }));
    assert_eq!(stream.push(planes), Err(GeometryError::Outside { what: "rows", end: 20, limit: 12 }));
    let planar = planes.crop(0, 0, 2, 10).unwrap();
    assert_eq!(stream.push(planar), Err(GeometryError::Channels { image: 1, map: 3 }));
    assert!(!stream.is_complete());
    assert_eq!(stream.finish(), Err(GeometryError::Missing { what: "rows", start: 8, end: 20 }));

    let mut stream = resizer.stream(&resize, (20, 10), part, 3, output, &mut slot).unwrap();
    assert_eq!(
        stream.push(Planes::new(&[&data], 1, 10, 10).unwrap()),
        Err(GeometryError::Channels { image: 1, map: 3 })
    );
    drop(stream);
    let outside = Rect { top: 1, ..part };
    assert!(resizer.stream(&resize, (20, 10), outside, 3, output, &mut slot).is_err());
    let lacking = Rect { height: 10, ..part };
    assert!(matches!(
        resizer.stream(&resize, (20, 10), lacking, 3, output, &mut slot).map(|_| ()),
        Err(GeometryError::Missing { what: "rows", .. })
    ));

    let window = Window { top: 0, left: 0, height: 5, width: 5 };
    let mut lines = Vec::new();
    let mut writer = Writer::new((20, 10), 3, window, PadMode::Edge, output, &mut slot, &mut lines).unwrap();
    writer.push(view.crop(0, 0, 4, 10).unwrap()).unwrap();
    assert!(!writer.is_complete());
    assert_eq!(writer.finish(), Err(GeometryError::Missing { what: "rows", start: 4, end: 5 }));
    assert!(Planes::new(&[], 1, 1, 1).is_none());
    assert!(Planes::new(&[&data, &data[1..]], 20, 30, 30).is_none());
}
