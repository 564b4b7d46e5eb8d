//! The kernels of `augment.cu` on the host against the kernels of the CPU: bit by bit, over random batches.

use proptest::prelude::*;
use wellfed_cuda::{
    augment::{AugmentError, Output, Plan, Source},
    host::Kernel,
};
use wellfed_kernels::{
    affine::Sampling,
    image::{Dtype, Layout, View},
    points::{PointMap, PointOp},
    recipe::{AffineMap, Fill, Geometry, Patch, PixelOp, Recipe, Stage},
    resample::{Filter, Rect},
    write::{PadMode, Window},
};

/// Random numbers of a seed that proptest draws: what a batch is depends on what was drawn before.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// From `low` to `high`, both of them.
    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    fn flag(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn rect(&mut self, height: usize, width: usize) -> Rect {
        let (rows, columns) = (self.between(1, height), self.between(1, width));
        let (top, left) = (self.below(height - rows + 1), self.below(width - columns + 1));
        Rect { top, left, height: rows, width: columns }
    }

    fn side(&mut self) -> usize {
        // Some many tiles large, some of a few pixels, some that are shrunk so much that they come in chunks.
        match self.below(6) {
            0 => self.between(1, 4),
            1 => self.between(200, 500),
            _ => self.between(5, 100),
        }
    }

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

    /// Of an image of this size, to `end` if it is given.
    fn geometry(&mut self, height: usize, width: usize, end: Option<(usize, usize)>) -> Geometry {
        let crop =
            if self.flag() { self.rect(height, width) } else { Rect { top: 0, left: 0, height, width } };
        let (rows, columns) = end.unwrap_or_else(|| (self.between(1, 90), self.between(1, 90)));
        let mut geometry = Geometry {
            crop,
            flip_h: self.flag(),
            flip_v: self.flag(),
            window: Window { top: 0, left: 0, height: rows, width: columns },
            ..Geometry::new(height, width)
        };
        if self.below(3) == 0 {
            let far = |draw: &mut Self, len: usize| draw.below(3 * len + 9) as i64 - len as i64 - 5;
            (geometry.window.top, geometry.window.left) = (far(self, crop.height), far(self, crop.width));
            geometry.pad = match self.below(4) {
                0 => PadMode::Constant([self.below(256) as u8, 2, 3, 4]),
                1 => PadMode::Edge,
                2 => PadMode::Reflect,
                _ => PadMode::Symmetric,
            };
            return geometry;
        }
        let (over, under) = (self.below(9), self.below(9));
        let (mut tall, mut wide) = (rows + over, columns + under);
        // Sides that stay, where a window fits.
        if self.below(4) == 0 && crop.height >= rows {
            tall = crop.height;
        }
        if self.below(4) == 0 && crop.width >= columns {
            wide = crop.width;
        }
        geometry.resize = Some((tall, wide, Self::FILTERS[self.below(10)]));
        geometry.window.top = self.below(tall - rows + 1) as i64;
        geometry.window.left = self.below(wide - columns + 1) as i64;
        geometry
    }

    fn patch(&mut self, height: usize, width: usize) -> Patch {
        let rect = self.rect(height, width);
        let fill = if self.flag() {
            Fill::Constant([0; 4].map(|_| self.uniform(-300.0, 300.0) as f32))
        } else {
            Fill::Each((0..rect.height * rect.width * 3).map(|_| self.uniform(-3.0, 300.0) as f32).collect())
        };
        Patch { rect, fill }
    }

    /// A blur or an affine map; some turns and moves are exact, some reach far outside.
    fn around(&mut self, height: usize, width: usize) -> PixelOp {
        if self.flag() {
            let kernel = [width, height].map(|side| 2 * self.below(side.min(7)) + 1);
            return PixelOp::Blur { kernel, sigma: [self.uniform(0.1, 3.0), self.uniform(0.1, 3.0)] };
        }
        let (x, y) = (self.uniform(-20.0, 20.0), self.uniform(-20.0, 20.0));
        let far = self.uniform(-9.0, 9.0);
        let matrix = match self.below(6) {
            0 => [1.0, 0.0, x.round(), 0.0, 1.0, y.round()],
            1 => [self.uniform(-2.0, 2.0), 0.0, x, 0.0, self.uniform(-2.0, 2.0), y],
            2 => [0.0, -1.0, width as f64, 1.0, 0.0, 0.0],
            // Past what fixed point holds.
            3 => [far * 3e3, 1e-3, x, self.uniform(-1.0, 1.0), self.uniform(-1.0, 1.0), y],
            _ => {
                let [a, b, d, e] = [0; 4].map(|_| self.uniform(-1.5, 1.5));
                [a, b, x, d, e, y]
            }
        };
        let sampling = [Sampling::Nearest, Sampling::Bilinear, Sampling::Bicubic][self.below(3)];
        let fill = [self.below(256) as u8, 20, 255, 4];
        PixelOp::Affine(AffineMap { matrix, sampling, fill, size: (height, width) })
    }

    fn op(&mut self, height: usize, width: usize) -> PixelOp {
        match self.below(15) {
            13 | 14 => self.around(height, width),
            0 => PixelOp::Brightness(self.uniform(0.0, 2.5)),
            1 => PixelOp::Contrast(self.uniform(0.0, 2.5)),
            2 => PixelOp::Saturation(self.uniform(0.0, 2.5)),
            3 => PixelOp::Hue(self.uniform(-0.5, 0.5)),
            4 => PixelOp::Gray(3),
            5 => PixelOp::Invert,
            6 => PixelOp::Posterize(self.below(9) as u32),
            7 => PixelOp::Solarize(self.uniform(-10.0, 270.0)),
            8 => PixelOp::SolarizeAdd(self.below(200) as u8),
            9 => PixelOp::Autocontrast,
            10 => PixelOp::Equalize,
            11 => PixelOp::Permute([[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]][self.below(4)]),
            _ => PixelOp::Erase(self.patch(height, width)),
        }
    }

    /// Of an image of this size and `channels`, to `end` and `out` channels.
    fn recipe(&mut self, (mut height, mut width): (usize, usize), end: (usize, usize), out: usize) -> Recipe {
        let mut stages = Vec::new();
        let count = self.between(1, 3);
        for last in (0..count).map(|i| i + 1 == count) {
            let geometry = if !last && self.below(3) == 0 {
                Geometry::new(height, width)
            } else {
                self.geometry(height, width, last.then_some(end))
            };
            (height, width) = geometry.size();
            let mut ops: Vec<PixelOp> = (0..self.below(7)).map(|_| self.op(height, width)).collect();
            if last {
                ops.retain(|op| !matches!(op, PixelOp::Gray(_)));
                if stages.is_empty() || self.flag() {
                    ops.insert(self.below(ops.len() + 1), PixelOp::Gray(out));
                } else {
                    ops.push(PixelOp::Gray(out));
                }
            }
            if !last && self.below(4) == 0 {
                let size = (self.between(1, 60), self.between(1, 60));
                if let PixelOp::Affine(map) = self.around(height, width) {
                    ops.push(PixelOp::Affine(AffineMap { size, ..map }));
                    (height, width) = size;
                }
            }
            stages.push(Stage { geometry, ops });
        }
        let patches = (0..self.below(3)).map(|_| self.patch(end.0, end.1)).collect();
        Recipe { stages, patches }
    }

    fn map(&mut self, channels: usize) -> PointMap {
        let to = |dtype, scale| PointOp::ToDtype { dtype, scale };
        let normalize =
            PointOp::Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] };
        let one = PointOp::Normalize { mean: vec![0.5], std: vec![0.25] };
        let normalize = if channels == 3 { normalize } else { one };
        let ops = match self.below(6) {
            0 => vec![],
            1 => vec![PointOp::ToTensorDiv, normalize],
            2 => vec![to(Dtype::F32, true), normalize],
            3 => vec![to(Dtype::F16, true), normalize],
            4 => vec![to(Dtype::F32, true), normalize, to(Dtype::Bf16, false)],
            _ => vec![to(Dtype::F32, false)],
        };
        PointMap::new(channels, &ops).unwrap()
    }
}

/// Memory whose first byte is at a multiple of 64, and its address.
fn aligned(bytes: usize) -> (Vec<u8>, usize) {
    let memory = vec![0xA5; bytes + 64];
    let at = memory.as_ptr().align_offset(64);
    (memory, at)
}

/// An image of its own size, planar or interleaved, with room between its rows.
struct Picture {
    pixels: Vec<u8>,
    /// The same, interleaved and without room.
    plain: Vec<u8>,
    source: Source,
}

fn picture(draw: &mut Draw, (height, width): (usize, usize), channels: usize) -> Picture {
    let few = draw.below(4) == 0;
    let plain: Vec<u8> = (0..height * width * channels)
        .map(|_| if few { 100 + draw.below(20) as u8 } else { draw.below(256) as u8 })
        .collect();
    let gap = draw.below(4);
    let planar = draw.flag();
    let (pixel, row) = if planar { (1, width + gap) } else { (channels, width * channels + gap) };
    let plane = if planar { row * height } else { 1 };
    let mut pixels = vec![0; plane * channels + row * height + gap];
    for y in 0..height {
        for x in 0..width {
            for c in 0..channels {
                pixels[c * plane + y * row + x * pixel] = plain[(y * width + x) * channels + c];
            }
        }
    }
    let source = Source {
        address: pixels.as_ptr() as u64,
        height,
        width,
        channels,
        plane: plane as i64,
        row: row as i64,
        pixel: pixel as i64,
    };
    Picture { pixels, plain, source }
}

/// Runs a plan on the host; the finished elements.
fn run(plan: &Plan, out: &mut [u8]) {
    let (mut parameters, at) = aligned(plan.memory());
    let (mut scratch, from) = aligned(plan.scratch());
    parameters[at..at + plan.parameters().len()].copy_from_slice(plan.parameters());
    let (parameters, scratch) = (parameters[at..].as_mut_ptr() as u64, scratch[from..].as_mut_ptr() as u64);
    for launch in plan.launches(parameters, scratch) {
        // SAFETY: the plan's kernels, with memory of the sizes that it asked for.
        unsafe { Kernel::find(launch.name).unwrap().launch(&launch.args, launch.grid) };
    }
    assert!(!out.is_empty());
}

/// A random batch; geometry alone, if it is `plain`, and no resize if it `copies`.
fn check(seed: u64, plain: bool, copies: bool) {
    let mut draw = Draw(seed);
    // Copies come in higher tiles.
    let end = (draw.between(1, if copies { 300 } else { 90 }), draw.between(1, 90));
    let out = if draw.flag() { 3 } else { 1 };
    let map = draw.map(out);
    let layout = if draw.flag() { Layout::Chw } else { Layout::Hwc };
    let count = draw.between(1, 4);
    let mut pictures = Vec::new();
    let mut recipes = Vec::new();
    for _ in 0..count {
        let size = (draw.side(), draw.side());
        let channels = if draw.below(4) == 0 { 1 } else { 3 };
        pictures.push(picture(&mut draw, size, channels));
        let mut recipe = loop {
            let recipe = draw.recipe(size, end, out);
            // Without its changes of values its geometry must fit together.
            if !plain || recipe.stages.iter().all(|stage| stage.size() == stage.geometry.size()) {
                break recipe;
            }
        };
        if copies {
            recipe.stages.truncate(1);
            let geometry = &mut recipe.stages[0].geometry;
            *geometry = loop {
                let other = draw.geometry(size.0, size.1, Some(end));
                // Nothing but a window, inside or not.
                if other.resize.is_none() {
                    break other;
                }
            };
            if draw.flag() && geometry.crop.height >= end.0 && geometry.crop.width >= end.1 {
                geometry.window.top = draw.below(geometry.crop.height - end.0 + 1) as i64;
                geometry.window.left = draw.below(geometry.crop.width - end.1 + 1) as i64;
            }
        }
        if plain {
            pictures.pop();
            pictures.push(picture(&mut draw, size, out));
            recipe.stages.iter_mut().for_each(|stage| stage.ops.clear());
            recipe.patches.clear();
        }
        recipes.push(recipe);
    }
    let bytes = end.0 * end.1 * out * map.dtype().size();
    let mut made = vec![0xCC; bytes * count + 64];
    let sources: Vec<Source> = pictures.iter().map(|picture| picture.source).collect();
    // Places that are no multiple of what is stored at once, but of an element.
    let shift = draw.below(4) * 4;
    let at = made.as_ptr().align_offset(16) + shift;
    let output =
        Output { address: made[at..].as_mut_ptr() as u64, map: &map, layout, height: end.0, width: end.1 };
    let plan = Plan::new(&recipes, &sources, output).unwrap();
    run(&plan, &mut made);
    for (i, (picture, recipe)) in pictures.iter().zip(&recipes).enumerate() {
        let Source { height, width, channels, .. } = picture.source;
        let view = View::new(&picture.plain, height, width, channels, width * channels).unwrap();
        let mut expected = vec![0; bytes];
        recipe.run(view, &map, layout, &mut expected).unwrap();
        let found = &made[at + i * bytes..][..bytes];
        if let Some(place) = found.iter().zip(&expected).position(|(a, b)| a != b) {
            panic!(
                "seed {seed}, image {i}, byte {place}: {} instead of {}\n{recipe:?}\n{:?} {layout:?} {:?}",
                found[place],
                expected[place],
                picture.source,
                map.dtype()
            );
        }
        assert!(!picture.pixels.is_empty());
    }
    assert!(made[..at].iter().chain(&made[at + bytes * count..]).all(|&b| b == 0xCC), "seed {seed}: beside");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_batch_is_bit_equal_to_the_cpu_s(seed in any::<u64>()) {
        check(seed, false, false);
    }

    #[test]
    fn a_batch_of_which_no_values_change_is_bit_equal_to_the_cpu_s(seed in any::<u64>()) {
        check(seed, true, false);
    }

    #[test]
    fn a_batch_of_crops_is_bit_equal_to_the_cpu_s(seed in any::<u64>()) {
        check(seed, true, true);
    }
}

/// The kernel of copies is for them alone.
#[test]
fn crops_have_a_kernel_of_their_own() {
    let mut recipe = Recipe::new(30, 20);
    recipe.stages[0].geometry.window = Window { top: -2, left: 3, height: 24, width: 24 };
    let map = PointMap::identity(3).unwrap();
    let output = Output { address: 0, map: &map, layout: Layout::Chw, height: 24, width: 24 };
    let source = Source { address: 0, height: 30, width: 20, channels: 3, plane: 600, row: 20, pixel: 1 };
    let names = |recipe: &Recipe| {
        let plan = Plan::new(std::slice::from_ref(recipe), &[source], output).unwrap();
        plan.launches(0, 0).map(|launch| launch.name).collect::<Vec<_>>()
    };
    assert_eq!(names(&recipe), ["augment_copy"]);
    recipe.stages[0].ops = vec![PixelOp::Invert];
    assert_eq!(names(&recipe), ["augment"]);
    recipe.stages[0].ops.clear();
    recipe.stages[0].geometry.resize = Some((30, 40, Filter::Bilinear));
    recipe.stages[0].geometry.window = Window { top: 2, left: 3, height: 24, width: 24 };
    assert_eq!(names(&recipe), ["augment_axes", "augment_plain"]);
}

/// What looks around reads where the images lie, and one pass behind it finishes.
#[test]
fn blurs_and_affine_maps_have_passes_of_their_own() {
    let mut recipe = Recipe::new(30, 20);
    let blur = PixelOp::Blur { kernel: [3, 5], sigma: [1.0, 2.0] };
    let turn = PixelOp::Affine(AffineMap {
        matrix: [0.0, -1.0, 20.0, 1.0, 0.0, 0.0],
        sampling: Sampling::Nearest,
        fill: [0; 4],
        size: (20, 30),
    });
    recipe.stages[0].ops = vec![blur.clone(), turn];
    let map = PointMap::identity(3).unwrap();
    let output = Output { address: 0, map: &map, layout: Layout::Chw, height: 20, width: 30 };
    let source = Source { address: 0, height: 30, width: 20, channels: 3, plane: 600, row: 20, pixel: 1 };
    let plan = Plan::new(&[recipe.clone()], &[source], output).unwrap();
    let names: Vec<_> = plan.launches(0, 0).map(|launch| launch.name).collect();
    assert_eq!(names, ["augment_across", "augment_down", "augment_affine", "augment_copy"]);
    // Images without a blur go on with their own passes.
    let mut other = Recipe::new(30, 20);
    other.stages[0].ops = vec![PixelOp::Invert];
    recipe.stages[0].ops = vec![blur];
    let output = Output { height: 30, width: 20, ..output };
    let plan = Plan::new(&[recipe, other], &[source, source], output).unwrap();
    let names: Vec<_> = plan.launches(0, 0).map(|launch| (launch.name, launch.grid[1])).collect();
    assert_eq!(names, [("augment", 1), ("augment_across", 1), ("augment_down", 1), ("augment_copy", 1)]);
    let mut wide = Recipe::new(30, 20);
    wide.stages[0].ops = vec![PixelOp::Blur { kernel: [41, 3], sigma: [1.0; 2] }];
    let error = Plan::new(&[wide], &[source], output).unwrap_err();
    assert_eq!(error, AugmentError::Outside { image: 0, what: "blur" });
}

/// Each operation by itself on all kinds of colours, since a random batch has few of each.
#[test]
fn each_operation_is_bit_equal_on_many_colours() {
    let mut draw = Draw(5);
    let side = 180;
    let plain: Vec<u8> = (0..side * side * 3).map(|_| draw.below(256) as u8).collect();
    let view = View::new(&plain, side, side, 3, side * 3).unwrap();
    let source = Source {
        address: plain.as_ptr() as u64,
        height: side,
        width: side,
        channels: 3,
        plane: 1,
        row: side as i64 * 3,
        pixel: 3,
    };
    let map = PointMap::identity(3).unwrap();
    for round in 0..60 {
        let mut recipe = Recipe::new(side, side);
        recipe.stages[0].ops = vec![match round {
            0..30 => PixelOp::Hue(f64::from(round) / 29.0 - 0.5),
            30..40 => PixelOp::Saturation(f64::from(round - 30) / 4.0),
            40..50 => PixelOp::Brightness(f64::from(round - 40) / 4.0),
            _ => PixelOp::Contrast(f64::from(round - 50) / 4.0),
        }];
        let mut made = vec![0; plain.len()];
        let address = made.as_mut_ptr() as u64;
        let output = Output { address, map: &map, layout: Layout::Hwc, height: side, width: side };
        let plan = Plan::new(&[recipe.clone()], &[source], output).unwrap();
        assert_eq!(plan.launches(0, 0).count(), if round < 50 { 1 } else { 2 });
        run(&plan, &mut made);
        let mut expected = vec![0; plain.len()];
        recipe.run(view, &map, Layout::Hwc, &mut expected).unwrap();
        assert!(made == expected, "{:?}", recipe.stages[0].ops);
    }
}

/// The kernel makes hues of integers and float32, Pillow of float32 and double: no colour tells them apart.
#[test]
fn hues_are_bit_equal_on_all_colours() {
    let side = 1 << 12;
    let plain: Vec<u8> =
        (0..1u32 << 24).flat_map(|colour| colour.to_le_bytes().into_iter().take(3)).collect();
    let view = View::new(&plain, side, side, 3, side * 3).unwrap();
    let (row, address) = (side as i64 * 3, plain.as_ptr() as u64);
    let source = Source { address, height: side, width: side, channels: 3, plane: 1, row, pixel: 3 };
    let map = PointMap::identity(3).unwrap();
    let mut recipe = Recipe::new(side, side);
    recipe.stages[0].ops = vec![PixelOp::Hue(0.07)];
    let mut made = vec![0; plain.len()];
    let address = made.as_mut_ptr() as u64;
    let output = Output { address, map: &map, layout: Layout::Hwc, height: side, width: side };
    run(&Plan::new(&[recipe.clone()], &[source], output).unwrap(), &mut made);
    let mut expected = vec![0; plain.len()];
    recipe.run(view, &map, Layout::Hwc, &mut expected).unwrap();
    let differs = made.iter().zip(&expected).position(|(made, expected)| made != expected);
    assert_eq!(differs.map(|at| (&plain[at / 3 * 3..][..3], at % 3, made[at], expected[at])), None);
}

/// A resize is one launch, and a second one for the weights that the device makes.
#[test]
fn a_batch_without_reductions_takes_two_launches() {
    let mut recipe = Recipe::new(300, 200);
    recipe.stages[0].geometry.resize = Some((224, 224, Filter::Bilinear));
    recipe.stages[0].geometry.window = Window { top: 0, left: 0, height: 224, width: 224 };
    recipe.stages[0].ops = vec![PixelOp::Hue(0.1), PixelOp::Invert];
    let map = PointMap::identity(3).unwrap();
    let output = Output { address: 0, map: &map, layout: Layout::Chw, height: 224, width: 224 };
    let source =
        Source { address: 0, height: 300, width: 200, channels: 3, plane: 60_000, row: 200, pixel: 1 };
    let plan = Plan::new(&[recipe.clone(), recipe.clone()], &[source, source], output).unwrap();
    let launches: Vec<_> = plan.launches(0, 0).map(|launch| (launch.name, launch.grid)).collect();
    assert_eq!(launches, [("augment_axes", [2, 2, 1]), ("augment", [7, 2, 2])], "equal images share weights");
    assert_eq!(plan.scratch(), 0);
}

#[test]
fn what_does_not_fit_is_an_error() {
    let map = PointMap::identity(3).unwrap();
    let output = Output { address: 0, map: &map, layout: Layout::Chw, height: 8, width: 8 };
    let source = Source { address: 0, height: 8, width: 8, channels: 3, plane: 64, row: 8, pixel: 1 };
    let plain = Recipe::new(8, 8);
    let error = |recipe: &Recipe, source: Source| {
        Plan::new(std::slice::from_ref(recipe), &[source], output).unwrap_err()
    };
    assert_eq!(
        error(&plain, Source { channels: 4, ..source }),
        AugmentError::Channels { image: 0, channels: 4 }
    );
    let small = Recipe::new(8, 7);
    let expected = (8, 8, 3);
    assert_eq!(error(&small, source), AugmentError::Size { image: 0, found: (8, 7, 3), expected });
    assert_eq!(
        error(&plain, Source { height: 7, ..source }),
        AugmentError::Outside { image: 0, what: "crop" }
    );
    let mut resized = plain.clone();
    resized.stages[0].geometry.crop.height = 4;
    resized.stages[0].geometry.resize = Some((8, 8, Filter::OpenCvLinear));
    assert_eq!(error(&resized, source), AugmentError::Filter(Filter::OpenCvLinear));
    let mut window = plain.clone();
    window.stages[0].geometry.resize = Some((8, 8, Filter::Bilinear));
    window.stages[0].geometry.window.top = 1;
    assert_eq!(error(&window, source), AugmentError::Outside { image: 0, what: "window" });
    let mut patch = plain.clone();
    let rect = Rect { top: 7, left: 0, height: 2, width: 1 };
    patch.patches.push(Patch { rect, fill: Fill::Constant([0.0; 4]) });
    assert_eq!(error(&patch, source), AugmentError::Outside { image: 0, what: "rectangle" });
    assert!(matches!(Plan::new(&[], &[source], output), Err(AugmentError::Count { .. })));
    assert!(AugmentError::Size { image: 3, found: (1, 2, 3), expected }.to_string().contains("1x2x3"));
}
