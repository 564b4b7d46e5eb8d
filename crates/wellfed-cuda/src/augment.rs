//! [`Plan`]: a batch of [`Recipe`]s as parameters and launches of the kernels in `kernels/augment.cu`.
//!
//! A recipe becomes passes. What looks at all pixels of an image before it changes one (contrast, autocontrast,
//! equalize) comes first in a pass, and the pass before it counts; so does geometry that comes after changes of
//! values. What looks around (blurs, affine maps) has passes of its own, from and to scratch memory. The first passes of
//! all images are a launch for each kind of them, the second ones others. Images between passes lie in scratch memory, as
//! bytes.
//!
//! Addresses of parameters and scratch memory are not known yet when a plan is made: [`Plan::launches`] takes them.

mod areas;

use std::{collections::HashMap, fmt, ops::Range};

use wellfed_kernels::{
    erase,
    image::{Dtype, Layout},
    points::PointMap,
    recipe::{AffineMap, Fill, Geometry, Patch, PixelOp, Recipe},
    resample::{self, Filter},
    write::PadMode,
};

/// Pixels of a tile's side, and threads of a block: `AUGMENT_TILE` and `AUGMENT_THREADS`.
const TILE: usize = 32;
const THREADS: u32 = 256;

/// Tiles of a block, one below the other: `AUGMENT_STACK`.
const STACK: usize = 4;

/// Rows of a tile of `augment_copy`: `AUGMENT_COPY_TILE`.
const COPY_TILE: usize = 128;

/// Elements of a block of a blur, and pixels of the side of one of an affine map: `AREA_ITEMS` and `AREA_TILE`.
const AREA_ITEMS: usize = 1024;
const AREA_TILE: usize = 32;

/// Output samples of a block of `augment_axes`, and its threads.
const AXIS_THREADS: u32 = 128;

/// Longest side: places are 32 bits, with room for sums of two, and a grid has 65,535 tiles below each other.
const MAX_SIDE: usize = 1 << 21;

/// Parameters begin at multiples of this.
const ALIGN: usize = 64;

/// An 8-bit image in the memory that the kernels see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Address of the first pixel's first channel.
    pub address: u64,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
    /// 1 or 3.
    pub channels: usize,
    /// Bytes from one channel to the next.
    pub plane: i64,
    /// Bytes from one row to the next.
    pub row: i64,
    /// Bytes from one pixel to the next.
    pub pixel: i64,
}

/// Where finished images go, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Output<'a> {
    /// Address of the first image.
    pub address: u64,
    /// What becomes of pixels; its channels are those of the result.
    pub map: &'a PointMap,
    /// Order of the elements.
    pub layout: Layout,
    /// Rows of each image.
    pub height: usize,
    /// Columns of each image.
    pub width: usize,
}

/// Why a batch cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AugmentError {
    /// An image with other than 1 or 3 channels.
    Channels {
        /// Its place in the batch.
        image: usize,
        /// Its channels.
        channels: usize,
    },
    /// Recipes and images are not equally many.
    Count {
        /// Recipes.
        recipes: usize,
        /// Images.
        images: usize,
    },
    /// The result of a recipe is not as large as others, or has other channels.
    Size {
        /// The image's place in the batch.
        image: usize,
        /// Height, width and channels of its result.
        found: (usize, usize, usize),
        /// Those of the batch.
        expected: (usize, usize, usize),
    },
    /// A crop, a window or a rectangle reaches outside, or a side is empty or too long.
    Outside {
        /// The image's place in the batch.
        image: usize,
        /// What it is.
        what: &'static str,
    },
    /// A filter that the kernels do not have.
    Filter(Filter),
    /// The parameters of a batch would take more than 4 GiB.
    TooLarge,
}

impl fmt::Display for AugmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AugmentError::Channels { image, channels } => {
                write!(f, "image {image} of the batch has {channels} channels; must be 1 or 3")
            }
            AugmentError::Count { recipes, images } => {
                write!(f, "{recipes} recipes for {images} images")
            }
            AugmentError::Size { image, found: (h, w, c), expected: (height, width, channels) } => write!(
                f,
                "image {image} of the batch ends as {h}x{w}x{c}, others as {height}x{width}x{channels} \
                 (height x width x channels)"
            ),
            AugmentError::Outside { image, what } => {
                write!(f, "the {what} of image {image} of the batch is empty, too large or reaches outside")
            }
            AugmentError::Filter(filter) => write!(f, "there is no kernel for the filter {filter:?}"),
            AugmentError::TooLarge => write!(f, "the parameters of the batch take more than 4 GiB"),
        }
    }
}

impl std::error::Error for AugmentError {}

const FROM_SCRATCH: u32 = 1;
const TO_SCRATCH: u32 = 2;
const FLIP_H: u32 = 4;
const FLIP_V: u32 = 8;
const DOWN_FIRST: u32 = 16;
const FINISH: u32 = 32;
const SIGNED: u32 = 64;
const PAD_SHIFT: u32 = 8;

/// `AugmentPass` of `augment.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    source: u64,
    source_plane: i64,
    source_row: i64,
    source_pixel: i64,
    target: u64,
    target_plane: i64,
    target_row: i64,
    target_pixel: i64,
    height: i32,
    width: i32,
    out_height: i32,
    out_width: i32,
    top: i32,
    left: i32,
    flags: u32,
    fill: u32,
    vertical: u32,
    horizontal: u32,
    channels: u32,
    first_op: u32,
    ops: u32,
    first_patch: u32,
    patches: u32,
    luma: u32,
    histogram: u32,
    padding: u32,
}

/// `AugmentOp` of `augment.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Op {
    kind: u32,
    factor: f32,
    value: u32,
    statistic: u32,
    count: u64,
    rect: [i32; 4],
    fill: u32,
    each: u32,
}

/// `AugmentPatch` of `augment.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct PatchParameters {
    rect: [i32; 4],
    fill: [u32; 4],
    each: u32,
    padding: [u32; 3],
}

/// `AugmentAxis` of `augment.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct AxisJob {
    table: u32,
    taps: u32,
    input: i32,
    output: i32,
    first: i32,
    count: i32,
    filter: u32,
    padding: u32,
}

/// `AugmentArea` of `augment.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Area {
    matrix: [f64; 6],
    fixed: [i32; 6],
    kind: u32,
    taps: u32,
    weights: u32,
    fill: u32,
    padding: [u32; 2],
}

/// The arguments of all kernels: `AugmentArgs` of `augment.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AugmentArgs {
    passes: u64,
    ops: u64,
    patches: u64,
    bytes: u64,
    axes: u64,
    jobs: u64,
    lumas: u64,
    histograms: u64,
    table: u64,
    scratch: u64,
    areas: u64,
    element: u32,
    padding: u32,
}

/// One launch of a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Launch {
    /// Name of the kernel.
    pub name: &'static str,
    /// Blocks in each direction.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// Its arguments.
    pub args: AugmentArgs,
}

/// Parts of the parameters, as offsets in them.
#[derive(Clone, Debug, Default)]
struct Parts {
    ops: u64,
    patches: u64,
    bytes: u64,
    axes: u64,
    jobs: u64,
    lumas: u64,
    histograms: u64,
    table: u64,
    areas: u64,
    /// Of each launch of passes: where they begin, its grid, and the kernel.
    passes: Vec<(u64, [u32; 3], &'static str)>,
}

/// A batch, ready to run once its memory is there.
#[derive(Clone, Debug)]
pub struct Plan {
    parameters: Vec<u8>,
    memory: usize,
    scratch: usize,
    jobs: u32,
    longest: u32,
    element: u32,
    parts: Parts,
}

impl Plan {
    /// The passes that make `recipes` of `sources`, in this order.
    ///
    /// # Errors
    /// If images do not end alike, or something reaches outside of its image.
    pub fn new(recipes: &[Recipe], sources: &[Source], output: Output<'_>) -> Result<Self, AugmentError> {
        if recipes.len() != sources.len() {
            return Err(AugmentError::Count { recipes: recipes.len(), images: sources.len() });
        }
        let mut builder = Builder::new(output);
        for (image, (recipe, source)) in recipes.iter().zip(sources).enumerate() {
            builder.add(image, recipe, source)?;
        }
        builder.finish()
    }

    /// What is copied to the beginning of the parameters' memory.
    pub fn parameters(&self) -> &[u8] {
        &self.parameters
    }

    /// Bytes of the parameters' memory: it is longer than what is copied there.
    pub fn memory(&self) -> usize {
        self.memory
    }

    /// Bytes of scratch memory.
    pub fn scratch(&self) -> usize {
        self.scratch
    }

    /// The launches, in order, with parameters and scratch memory at these addresses, which are multiples of 64.
    pub fn launches(&self, parameters: u64, scratch: u64) -> impl Iterator<Item = Launch> + '_ {
        let parts = &self.parts;
        let args = AugmentArgs {
            passes: 0,
            ops: parameters + parts.ops,
            patches: parameters + parts.patches,
            bytes: parameters + parts.bytes,
            axes: parameters + parts.axes,
            jobs: parameters + parts.jobs,
            lumas: parameters + parts.lumas,
            histograms: parameters + parts.histograms,
            table: parameters + parts.table,
            scratch,
            areas: parameters + parts.areas,
            element: self.element,
            padding: 0,
        };
        let grid = [self.longest.div_ceil(AXIS_THREADS), self.jobs, 1];
        let axes = Launch { name: "augment_axes", grid, threads: AXIS_THREADS, args };
        let passes = parts.passes.iter().map(move |&(at, grid, name)| Launch {
            name,
            grid,
            threads: THREADS,
            args: AugmentArgs { passes: parameters + at, ..args },
        });
        (self.jobs > 0).then_some(axes).into_iter().chain(passes)
    }
}

/// The weights of one side of a resize.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    input: usize,
    output: usize,
    filter: Filter,
    window: Range<usize>,
}

/// What passes of one number are, as they are launched: those of one kind do not read what those of another write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Geometry and changes of values.
    Tiles,
    /// The first side of a blur, to floats.
    Across,
    /// The second side.
    Down,
    /// An affine map.
    Affine,
}

impl Kind {
    /// All of them. Each stands at its own number.
    const ALL: [Self; 4] = [Self::Tiles, Self::Across, Self::Down, Self::Affine];
}

/// A pass of one image before it is laid out.
enum Step<'r> {
    Tiles(Geometry, &'r [PixelOp]),
    Across(usize, f64),
    Down(usize, f64),
    Affine(&'r AffineMap),
}

struct Builder<'a> {
    output: Output<'a>,
    /// Passes of each number, by their kind.
    launches: Vec<[Vec<Pass>; Kind::ALL.len()]>,
    ops: Vec<Op>,
    areas: Vec<Area>,
    patches: Vec<PatchParameters>,
    bytes: Vec<u8>,
    /// Word 0 is none.
    axes: Vec<i32>,
    /// Words behind `axes` for what the device makes.
    made: usize,
    jobs: Vec<AxisJob>,
    known: HashMap<Side, u32>,
    lumas: u32,
    histograms: u32,
    /// Bytes of the images that passes of even and of odd number leave.
    scratch: [Vec<usize>; 2],
}

/// Where a pass reads.
#[derive(Clone, Copy)]
struct From {
    source: Source,
    scratch: bool,
}

impl<'a> Builder<'a> {
    fn new(output: Output<'a>) -> Self {
        Self {
            output,
            launches: Vec::new(),
            ops: Vec::new(),
            areas: Vec::new(),
            patches: Vec::new(),
            bytes: Vec::new(),
            axes: vec![0],
            made: 0,
            jobs: Vec::new(),
            known: HashMap::new(),
            lumas: 0,
            histograms: 0,
            scratch: [Vec::new(), Vec::new()],
        }
    }

    fn add(&mut self, image: usize, recipe: &Recipe, source: &Source) -> Result<(), AugmentError> {
        if !matches!(source.channels, 1 | 3) {
            return Err(AugmentError::Channels { image, channels: source.channels });
        }
        let (height, width) = recipe.size();
        let found = (height, width, recipe.channels(source.channels));
        let expected = (self.output.height, self.output.width, self.output.map.channels());
        if found != expected {
            return Err(AugmentError::Size { image, found, expected });
        }
        let mut from = From { source: *source, scratch: false };
        let steps = steps(recipe, (source.height, source.width));
        let last = steps.len() - 1;
        for (number, step) in steps.iter().enumerate() {
            from = match step {
                Step::Tiles(geometry, ops) => {
                    let next = match steps.get(number + 1) {
                        Some(Step::Tiles(_, ops)) => ops.first(),
                        _ => None,
                    };
                    self.pass(image, number, from, geometry, ops, next, number == last)?
                }
                Step::Across(kernel, sigma) => {
                    self.blur(image, number, from, Kind::Across, *kernel, *sigma)?
                }
                Step::Down(kernel, sigma) => self.blur(image, number, from, Kind::Down, *kernel, *sigma)?,
                Step::Affine(map) => self.affine(image, number, from, map)?,
            };
        }
        let patches = &recipe.patches;
        let first_patch = self.patches.len() as u32;
        for patch in patches {
            let patch = self.patch(image, patch)?;
            self.patches.push(patch);
        }
        if let Some(pass) = self.launches.get_mut(last).and_then(|[tiles, ..]| tiles.last_mut()) {
            (pass.first_patch, pass.patches) = (first_patch, patches.len() as u32);
            let bytes = self.output.height * self.output.width * self.output.map.channels();
            pass.target =
                self.output.address + image as u64 * (bytes * self.output.map.dtype().size()) as u64;
        }
        Ok(())
    }

    /// Adds one pass; says where the next one reads.
    #[allow(clippy::too_many_arguments, reason = "what a pass is, at the one place that makes them")]
    fn pass(
        &mut self,
        image: usize,
        number: usize,
        from: From,
        geometry: &Geometry,
        ops: &[PixelOp],
        next: Option<&PixelOp>,
        last: bool,
    ) -> Result<From, AugmentError> {
        let outside = |what| AugmentError::Outside { image, what };
        let Source { address, height, width, channels, plane, row, pixel } = from.source;
        let crop = geometry.crop;
        let inside = |start: usize, len: usize, side: usize| {
            len > 0 && side <= MAX_SIDE && start.checked_add(len).is_some_and(|end| end <= side)
        };
        if !inside(crop.top, crop.height, height) || !inside(crop.left, crop.width, width) {
            return Err(outside("crop"));
        }
        let window = geometry.window;
        let near = |start: i64, len: usize| (1..=MAX_SIDE).contains(&len) && start.abs() <= MAX_SIDE as i64;
        if !near(window.top, window.height) || !near(window.left, window.width) {
            return Err(outside("window"));
        }
        let mut pass = Pass {
            source: address
                .wrapping_add_signed(crop.top as i64 * row)
                .wrapping_add_signed(crop.left as i64 * pixel),
            source_plane: plane,
            source_row: row,
            source_pixel: pixel,
            height: crop.height as i32,
            width: crop.width as i32,
            out_height: window.height as i32,
            out_width: window.width as i32,
            top: window.top as i32,
            left: window.left as i32,
            channels: channels as u32,
            first_op: self.ops.len() as u32,
            ops: ops.len() as u32,
            ..Pass::default()
        };
        pass.flags |= if from.scratch { FROM_SCRATCH } else { 0 };
        pass.flags |= if geometry.flip_h { FLIP_H } else { 0 } | if geometry.flip_v { FLIP_V } else { 0 };
        if let Some((rows, columns, filter)) = geometry.resize {
            let range = |start: i64, len: usize, side: usize| {
                let start = usize::try_from(start).ok().filter(|start| inside(*start, len, side));
                start.map(|start| start..start + len).ok_or_else(|| outside("window"))
            };
            let shown = range(window.top, window.height, rows)?;
            pass.vertical =
                self.side(Side { input: crop.height, output: rows, filter, window: shown.clone() })?;
            let over = range(window.left, window.width, columns)?;
            pass.horizontal =
                self.side(Side { input: crop.width, output: columns, filter, window: over.clone() })?;
            if signed(filter) {
                pass.flags |= SIGNED;
            }
            if resample::passes_down_first((crop.height, crop.width), (rows, columns), filter) {
                pass.flags |= DOWN_FIRST;
            }
            // A side that keeps its length is copied from where the window begins.
            if pass.vertical == 0 && pass.horizontal != 0 {
                pass.source = pass.source.wrapping_add_signed(shown.start as i64 * row);
            }
            if pass.horizontal == 0 && pass.vertical != 0 {
                pass.source = pass.source.wrapping_add_signed(over.start as i64 * pixel);
            }
        }
        let (mode, fill) = match geometry.pad {
            PadMode::Constant(fill) => (0, u32::from_le_bytes(fill)),
            PadMode::Edge => (1, 0),
            PadMode::Reflect => (2, 0),
            PadMode::Symmetric => (3, 0),
        };
        pass.flags |= mode << PAD_SHIFT;
        pass.fill = fill;
        let size = (window.height, window.width);
        for op in ops {
            let op = self.op(image, op, size)?;
            self.ops.push(op);
        }
        let channels = ops.iter().fold(channels, |channels, op| op.channels(channels));
        match next {
            Some(PixelOp::Contrast(_)) => {
                self.lumas += 1;
                pass.luma = self.lumas;
            }
            Some(PixelOp::Autocontrast | PixelOp::Equalize) => {
                self.histograms += 1;
                pass.histogram = self.histograms;
            }
            _ => {}
        }
        let (layout, bytes) = (self.output.layout, window.height * window.width * channels);
        let (height, width) = (window.height as i64, window.width as i64);
        (pass.target_plane, pass.target_row, pass.target_pixel) = match layout {
            Layout::Hwc if last => (1, width * channels as i64, channels as i64),
            _ => (height * width, width, 1),
        };
        if last {
            pass.flags |= FINISH;
        } else {
            pass.flags |= TO_SCRATCH;
            pass.target = self.take(number, bytes);
        }
        Ok(self.push(number, Kind::Tiles, pass, (window.height, window.width, channels)))
    }

    /// Takes scratch memory for what a pass of this number makes.
    fn take(&mut self, number: usize, bytes: usize) -> u64 {
        // Places are in the half that passes of this parity have, which `finish` puts behind the other one.
        let side = &mut self.scratch[number % 2];
        side.resize(side.len().max(number / 2 + 1), 0);
        let place = side[number / 2] as u64;
        side[number / 2] += bytes.next_multiple_of(16);
        place
    }

    /// Adds a pass that leaves bytes, channel by channel, of a `size` of rows, columns and channels; says where the next
    /// one reads.
    fn push(
        &mut self,
        number: usize,
        kind: Kind,
        pass: Pass,
        (height, width, channels): (usize, usize, usize),
    ) -> From {
        self.launches.resize_with(self.launches.len().max(number + 1), Default::default);
        self.launches[number][kind as usize].push(pass);
        let (plane, row) = ((height * width) as i64, width as i64);
        let source = Source { address: pass.target, height, width, channels, plane, row, pixel: 1 };
        From { source, scratch: true }
    }

    /// The table of a side, in words of `axes`; 0 if it is copied.
    fn side(&mut self, side: Side) -> Result<u32, AugmentError> {
        if side.input == side.output {
            return Ok(0);
        }
        if let Some(&table) = self.known.get(&side) {
            return Ok(table);
        }
        let Side { input, output, filter, ref window } = side;
        if output > MAX_SIDE {
            return Err(AugmentError::TooLarge);
        }
        let count = window.len();
        let exact = match filter {
            Filter::Box => Some((0, 0.5)),
            Filter::Bilinear => Some((1, 1.0)),
            Filter::Bicubic => Some((2, 2.0)),
            // Sines are not the same bits everywhere, and torch's weights look at the largest of all.
            _ => None,
        };
        // Words of the device's tables are counted behind those of the host's, whose number is not known yet.
        let table = if let Some((filter, support)) = exact {
            let scale = (input as f64 / output as f64).max(1.0);
            let taps = (support * scale).ceil() as usize * 2 + 1;
            let table = self.made;
            self.made += 1 + count * (2 + taps);
            self.jobs.push(AxisJob {
                table: u32::try_from(table).map_err(|_| AugmentError::TooLarge)?,
                taps: taps as u32,
                input: input as i32,
                output: output as i32,
                first: window.start as i32,
                count: count as i32,
                filter,
                padding: 0,
            });
            u32::try_from(table).ok().filter(|table| *table < MADE).ok_or(AugmentError::TooLarge)? | MADE
        } else {
            let axis = resample::axis_table(input, output, filter, window.clone())
                .ok_or(AugmentError::Filter(filter))?;
            let table = self.axes.len();
            self.axes.push(count as i32);
            self.axes.extend(&axis.starts);
            self.axes.extend(&axis.lens);
            let weights = &axis.weights;
            self.axes.extend((0..axis.taps).flat_map(|t| weights[t..].iter().step_by(axis.taps)));
            u32::try_from(table).ok().filter(|table| *table < MADE).ok_or(AugmentError::TooLarge)?
        };
        self.known.insert(side, table);
        Ok(table)
    }

    /// A change of values of an image of this size.
    fn op(&mut self, image: usize, op: &PixelOp, size: (usize, usize)) -> Result<Op, AugmentError> {
        let kind = |kind| Op { kind, ..Op::default() };
        let blend = |kind, factor: f64| Op { kind, factor: factor as f32, ..Op::default() };
        let value = |kind, value| Op { kind, value, ..Op::default() };
        let count = (size.0 * size.1) as u64;
        Ok(match op {
            PixelOp::Brightness(factor) => blend(0, *factor),
            PixelOp::Contrast(factor) => Op { statistic: self.lumas, count, ..blend(1, *factor) },
            PixelOp::Saturation(factor) => blend(2, *factor),
            PixelOp::Hue(factor) => value(3, u32::from((factor * 255.0) as i32 as u8)),
            PixelOp::Gray(channels) => value(4, *channels as u32),
            PixelOp::Invert => kind(5),
            PixelOp::Posterize(bits) => value(6, u32::from(0xFF00u16.wrapping_shr((*bits).min(8)) as u8)),
            // Whole values are below a threshold where they are below the next whole number.
            PixelOp::Solarize(threshold) => value(7, threshold.ceil().clamp(0.0, 256.0) as u32),
            PixelOp::SolarizeAdd(add) => value(8, u32::from(*add)),
            PixelOp::Autocontrast => Op { statistic: self.histograms, count, ..kind(9) },
            PixelOp::Equalize => Op { statistic: self.histograms, count, ..kind(10) },
            PixelOp::Permute(order) => {
                value(11, order.iter().rev().fold(0, |word, from| word << 8 | (*from as u32).min(2)))
            }
            PixelOp::Blur { .. } | PixelOp::Affine(_) => {
                return Err(AugmentError::Outside { image, what: "pass of a blur or an affine map" });
            }
            PixelOp::Erase(patch) => {
                let rect = rect(image, patch, size)?;
                match &patch.fill {
                    Fill::Constant(values) => {
                        let fill = u32::from_le_bytes(values.map(|v| v as i64 as u8));
                        Op { rect, fill, ..kind(12) }
                    }
                    Fill::Each(values) => {
                        let fill = self.values(values, Dtype::U8)?;
                        Op { rect, fill, each: 1, ..kind(12) }
                    }
                }
            }
        })
    }

    fn patch(&mut self, image: usize, patch: &Patch) -> Result<PatchParameters, AugmentError> {
        let rect = rect(image, patch, (self.output.height, self.output.width))?;
        let dtype = self.output.map.dtype();
        Ok(match &patch.fill {
            Fill::Constant(values) => {
                let fill = values.map(|value| bits(value, dtype));
                PatchParameters { rect, fill, ..PatchParameters::default() }
            }
            Fill::Each(values) => {
                let fill = [self.values(values, dtype)?, 0, 0, 0];
                PatchParameters { rect, fill, each: 1, ..PatchParameters::default() }
            }
        })
    }

    /// Puts elements among the bytes; says where.
    fn values(&mut self, values: &[f32], dtype: Dtype) -> Result<u32, AugmentError> {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let at = u32::try_from(self.bytes.len()).map_err(|_| AugmentError::TooLarge)?;
        for value in values {
            self.bytes.extend_from_slice(&bits(*value, dtype).to_le_bytes()[..dtype.size()]);
        }
        Ok(at)
    }

    /// Lays everything out.
    fn finish(mut self) -> Result<Plan, AugmentError> {
        let (even, odd) = (&self.scratch[0], &self.scratch[1]);
        let largest = |images: &[usize]| images.iter().copied().max().unwrap_or(0).next_multiple_of(ALIGN);
        let behind = largest(even) as u64;
        let scratch = largest(even) + largest(odd);
        let host = self.axes.len().next_multiple_of(ALIGN / 4);
        let words = u32::try_from(host + self.made).map_err(|_| AugmentError::TooLarge)?;
        let moved = |table: u32| if table & MADE == 0 { table } else { (table & !MADE) + host as u32 };
        for (number, passes) in self.launches.iter_mut().enumerate() {
            for pass in passes.iter_mut().flatten() {
                pass.vertical = moved(pass.vertical);
                pass.horizontal = moved(pass.horizontal);
                if pass.flags & TO_SCRATCH != 0 && number % 2 == 1 {
                    pass.target += behind;
                }
                if pass.flags & FROM_SCRATCH != 0 && number % 2 == 0 {
                    pass.source += behind;
                }
            }
        }
        for job in &mut self.jobs {
            job.table += host as u32;
        }
        let map = self.output.map;
        let table: Vec<u32> = (0..3)
            .flat_map(|c| (0..=255).map(move |v| if c < map.channels() { map.bits(c, v) } else { 0 }))
            .collect();
        let mut parameters = Vec::new();
        let mut parts = Parts::default();
        let kinds = self.launches.iter().flat_map(|passes| passes.iter().zip(Kind::ALL));
        for (passes, kind) in kinds.filter(|(passes, _)| !passes.is_empty()) {
            let plain = |pass: &Pass| pass.ops + pass.patches + pass.luma + pass.histogram == 0;
            let copy = |pass: &Pass| plain(pass) && pass.vertical == 0 && pass.horizontal == 0;
            let count = passes.len() as u32;
            let most = |of: &dyn Fn(&Pass) -> usize| {
                let most = passes.iter().map(of).max().unwrap_or(0);
                u32::try_from(most).map_err(|_| AugmentError::TooLarge)
            };
            let sides = |tall: usize, wide: usize| -> Result<[u32; 2], AugmentError> {
                Ok([
                    most(&|pass| (pass.out_width as usize).div_ceil(wide))?,
                    most(&|pass| (pass.out_height as usize).div_ceil(tall))?,
                ])
            };
            let (name, grid) = match kind {
                Kind::Tiles => {
                    let (name, tall) = if passes.iter().all(copy) {
                        ("augment_copy", COPY_TILE)
                    } else if passes.iter().all(plain) {
                        ("augment_plain", STACK * TILE)
                    } else {
                        ("augment", STACK * TILE)
                    };
                    let [across, down] = sides(tall, TILE)?;
                    (name, [across, down, count])
                }
                Kind::Across | Kind::Down => {
                    let elements = |pass: &Pass| {
                        pass.channels as usize * pass.out_height as usize * pass.out_width as usize
                    };
                    let name = if kind == Kind::Across { "augment_across" } else { "augment_down" };
                    (name, [most(&|pass| elements(pass).div_ceil(AREA_ITEMS))?, count, 1])
                }
                Kind::Affine => {
                    let tiles = |pass: &Pass| {
                        (pass.out_height as usize).div_ceil(AREA_TILE)
                            * (pass.out_width as usize).div_ceil(AREA_TILE)
                    };
                    ("augment_affine", [most(&tiles)?, count, 1])
                }
            };
            parts.passes.push((put(&mut parameters, passes), grid, name));
        }
        parts.areas = put(&mut parameters, &self.areas);
        parts.ops = put(&mut parameters, &self.ops);
        parts.patches = put(&mut parameters, &self.patches);
        parts.jobs = put(&mut parameters, &self.jobs);
        parts.table = put(&mut parameters, &table);
        parts.lumas = put(&mut parameters, &vec![0u64; self.lumas as usize]);
        parts.histograms = put(&mut parameters, &vec![0u32; self.histograms as usize * 768]);
        parts.bytes = put(&mut parameters, &self.bytes);
        self.axes.resize(host, 0);
        parts.axes = put(&mut parameters, &self.axes);
        let memory = parts.axes as usize + 4 * words as usize;
        if memory > u32::MAX as usize {
            return Err(AugmentError::TooLarge);
        }
        Ok(Plan {
            parameters,
            memory,
            scratch,
            jobs: self.jobs.len() as u32,
            longest: self.jobs.iter().map(|job| job.count as u32).max().unwrap_or(0),
            element: map.dtype().size() as u32,
            parts,
        })
    }
}

/// The passes of a recipe for an image of `size`, rows and columns. The last one is of tiles.
fn steps(recipe: &Recipe, mut size: (usize, usize)) -> Vec<Step<'_>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    for (number, stage) in recipe.stages.iter().enumerate() {
        let (mut geometry, mut rest) = (stage.geometry, &stage.ops[..]);
        loop {
            let idle = geometry == Geometry::new(size.0, size.1);
            // What looks at all pixels goes to the next pass, with what comes behind it: one that counted for it.
            let counted = idle && matches!(steps.last(), Some(Step::Tiles(..)));
            let cut = rest
                .iter()
                .enumerate()
                .position(|(at, op)| op.looks_around() || op.looks_at_all() && (at > 0 || !counted));
            let (now, later) = rest.split_at(cut.unwrap_or(rest.len()));
            let around = later.first().is_some_and(PixelOp::looks_around);
            let over = later.is_empty() && number + 1 < recipe.stages.len();
            // A copy is spared where another pass reads as well.
            if !idle || !now.is_empty() || !(around || over) {
                steps.push(Step::Tiles(geometry, now));
            }
            size = geometry.size();
            match later.split_first() {
                Some((PixelOp::Blur { kernel, sigma }, behind)) => {
                    steps.push(Step::Across(kernel[0], sigma[0]));
                    steps.push(Step::Down(kernel[1], sigma[1]));
                    rest = behind;
                }
                Some((PixelOp::Affine(map), behind)) => {
                    steps.push(Step::Affine(map));
                    (size, rest) = (map.size, behind);
                }
                Some(_) => rest = later,
                None => break,
            }
            geometry = Geometry::new(size.0, size.1);
        }
    }
    steps
}

/// Whether weights of this filter can be negative, or are not known not to be.
fn signed(filter: Filter) -> bool {
    !matches!(
        filter,
        Filter::Nearest
            | Filter::NearestExact
            | Filter::NearestCorner
            | Filter::Box
            | Filter::Bilinear
            | Filter::Hamming
    )
}

/// Marks a table that the device makes, until its place is known.
const MADE: u32 = 1 << 31;

/// A rectangle inside an image of this size: top, left, height, width.
fn rect(image: usize, patch: &Patch, (height, width): (usize, usize)) -> Result<[i32; 4], AugmentError> {
    let rect = patch.rect;
    let inside = |start: usize, len: usize, side: usize| {
        start.checked_add(len).is_some_and(|end| end <= side && side <= MAX_SIDE)
    };
    if !inside(rect.top, rect.height, height) || !inside(rect.left, rect.width, width) {
        return Err(AugmentError::Outside { image, what: "rectangle" });
    }
    Ok([rect.top, rect.left, rect.height, rect.width].map(|side| side as i32))
}

/// The bits that [`erase::erase`] writes.
fn bits(value: f32, dtype: Dtype) -> u32 {
    let mut element = [0; 4];
    let rect = resample::Rect { top: 0, left: 0, height: 1, width: 1 };
    erase::erase(&mut element[..dtype.size()], (1, 1, 1), dtype, Layout::Chw, rect, |_| value);
    u32::from_le_bytes(element)
}

/// Appends `items` at a multiple of [`ALIGN`]; says where.
fn put<T: Plain>(bytes: &mut Vec<u8>, items: &[T]) -> u64 {
    bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
    let at = bytes.len() as u64;
    // SAFETY: `Plain` types have no padding and no pointers, so that all of their bytes are initialized.
    bytes.extend_from_slice(unsafe {
        std::slice::from_raw_parts(items.as_ptr().cast::<u8>(), size_of_val(items))
    });
    at
}

/// Types all of whose bytes are numbers.
///
/// # Safety
/// They have no padding.
unsafe trait Plain: Copy {}

// SAFETY: a number.
unsafe impl Plain for u8 {}
// SAFETY: a number.
unsafe impl Plain for i32 {}
// SAFETY: a number.
unsafe impl Plain for u32 {}
// SAFETY: a number.
unsafe impl Plain for u64 {}
// SAFETY: 8 fields of 8 bytes, then 18 of 4.
unsafe impl Plain for Pass {}
// SAFETY: 4 fields of 4 bytes, one of 8, and 6 of 4.
unsafe impl Plain for Op {}
// SAFETY: 12 fields of 4 bytes.
unsafe impl Plain for PatchParameters {}
// SAFETY: 8 fields of 4 bytes.
unsafe impl Plain for AxisJob {}
// SAFETY: 6 fields of 8 bytes, then 12 of 4.
unsafe impl Plain for Area {}

const _: () = {
    assert!(size_of::<Pass>() == 8 * 8 + 18 * 4);
    assert!(size_of::<Op>() == 4 * 4 + 8 + 6 * 4);
    assert!(size_of::<PatchParameters>() == 12 * 4);
    assert!(size_of::<AxisJob>() == 8 * 4);
    assert!(size_of::<Area>() == 6 * 8 + 12 * 4);
    assert!(size_of::<AugmentArgs>() == 11 * 8 + 2 * 4);
};
