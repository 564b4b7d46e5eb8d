//! Finishes a batch of images that the engine left to the device: some five launches, or a few times as many where the
//! batch's pixels take more scratch memory than there may be.
//!
//! A batch is records one after the other ([`Unfinished`]) and where each begins. [`Plan::new`] looks at them while they
//! are still on the host: it says how much scratch memory they need, and writes into each record where in it its parts
//! go. Then records and offsets are copied to the device, and [`Plan::run`] launches.
//!
//! Where recipes follow, what these kernels make are 8-bit images in between ([`Plan::between`]), and the kernels of
//! [`crate::augment`] make the batch of those ([`Plan::after`]).

use std::ops::Range;

use wellfed_kernels::{
    recipe::Recipe,
    unfinished::{ALIGNMENT, Unfinished, kind},
};

use crate::{
    augment::{self, AugmentError, Output, Source},
    error::{Error, Result},
    host::Grid,
};

/// What all kernels of a batch take: `BatchArgs` of `kernels/unfinished.h`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BatchArgs {
    records: u64,
    offsets: u64,
    first: u32,
    channels: u32,
    scratch: u64,
    table: u64,
    out: u64,
    element: u32,
    padding: u32,
    step: [i64; 4],
}

const _: () = assert!(size_of::<BatchArgs>() == 88);

/// Channels of a finished image, at most: `CHANNELS` of `kernels/resample.cu`.
const CHANNELS: u32 = 4;

/// Where a batch lies, in the memory of the device that finishes it.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// The records, at a multiple of 16.
    pub records: u64,
    /// Where each begins: 64-bit numbers, one more than there are images.
    pub offsets: u64,
    /// [`Plan::scratch`] bytes, at a multiple of 16.
    pub scratch: u64,
    /// From 8-bit values to elements: for each channel 256 numbers of 32 bits, of which an element's bytes count.
    pub table: u64,
    /// The finished images.
    pub out: u64,
}

/// What the finished images look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Channels.
    pub channels: u32,
    /// Bytes of an element: 1, 2 or 4.
    pub element: u32,
    /// Elements from one image, channel, row and column to the next.
    pub step: [i64; 4],
}

/// A JPEG of a batch that nvJPEG decodes, before the kernels are launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Which image of the batch.
    pub number: usize,
    /// Its bytes among the records.
    pub bytes: Range<usize>,
    /// Where in the scratch memory its three planes go, one after the other.
    pub at: u64,
    /// Bytes from one row to the next.
    pub pitch: usize,
    /// Pixels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
}

/// Some images of a batch, and how many blocks of threads the largest of them takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Chunk {
    first: usize,
    count: usize,
    scratch: u64,
    packed: u64,
    segments: u64,
    groups: u64,
    words: u64,
    middle: u64,
    pixels: u64,
    encoded: Vec<Encoded>,
}

/// What follows for one image.
#[derive(Clone, Debug)]
struct Follows {
    /// Rows and columns before it.
    size: (usize, usize),
    /// With the channels that it begins with; none where only values are left to map.
    recipe: Option<(Recipe, usize)>,
}

/// How a batch is finished.
#[derive(Clone, Debug)]
pub struct Plan {
    chunks: Vec<Chunk>,
    follows: Vec<Follows>,
    decoded: Decoded,
}

/// Who decodes the images of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// The host did, or they were pixels from the start.
    pub host: usize,
    /// The kernels do, from coefficients or Huffman codes.
    pub device: usize,
    /// nvJPEG is asked to.
    pub nvjpeg: usize,
}

impl Plan {
    /// Plans a batch of which `records` are in memory, in no more than `limit` bytes of scratch memory, or those of the
    /// largest image.
    ///
    /// # Errors
    /// For records that are cut short, or offsets that are not theirs.
    pub fn new(records: &mut [u8], offsets: &[i64], limit: u64) -> Result<Self> {
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut follows = Vec::new();
        let mut decoded = Decoded::default();
        for (n, pair) in offsets.windows(2).enumerate() {
            let range = usize::try_from(pair[0]).ok().zip(usize::try_from(pair[1]).ok());
            let record = range
                .filter(|(start, _)| start.is_multiple_of(ALIGNMENT))
                .and_then(|(start, end)| records.get_mut(start..end))
                .ok_or_else(|| {
                    Error::Argument(format!("record {n} lies at {pair:?}, which is not in the batch"))
                })?;
            let mut image = Unfinished::read(record)
                .filter(|image| image.bytes as usize == record.len())
                .ok_or_else(|| {
                    Error::Argument(format!(
                        "record {n} has {} bytes, which is not what it says",
                        record.len()
                    ))
                })?;
            follows
                .push(follow(&image, record).ok_or_else(|| {
                    Error::Argument(format!("what follows record {n} is not what it says"))
                })?);
            let own = layout(&mut image, 0);
            if chunks.last().is_none_or(|chunk| chunk.scratch + own > limit) {
                chunks.push(Chunk { first: n, ..Chunk::default() });
            }
            let Some(chunk) = chunks.last_mut() else {
                return Err(Error::Argument(format!("record {n} has no part of the batch to go to")));
            };
            chunk.scratch = layout(&mut image, chunk.scratch);
            chunk.count += 1;
            image.write(record);
            let coefficients = matches!(image.kind, kind::COEFFICIENTS | kind::PACKED | kind::HUFFMAN);
            match image.kind {
                kind::PIXELS => decoded.host += 1,
                kind::JPEG => decoded.nvjpeg += 1,
                _ => decoded.device += 1,
            }
            if image.kind == kind::JPEG {
                chunk.encoded.push(encoded(&image, n, pair[0] as usize)?);
            }
            let planes = &image.plane[..(image.planes as usize).min(3)];
            let groups = if coefficients { planes.iter().map(|plane| plane.count()).sum() } else { 0 };
            chunk.groups = chunk.groups.max(groups);
            if image.kind == kind::PACKED {
                chunk.packed = chunk.packed.max(groups);
            }
            if image.kind == kind::HUFFMAN {
                chunk.segments = chunk.segments.max(u64::from(image.segments));
            }
            let words = u64::from(image.width.div_ceil(4)) * u64::from(image.height);
            chunk.words = chunk.words.max(if coefficients { words } else { 0 });
            let (height, width) = middle(&image);
            chunk.middle = chunk.middle.max(fours(height, width));
            chunk.pixels = chunk.pixels.max(fours(u64::from(image.out_height), u64::from(image.out_width)));
        }
        Ok(Self { chunks, follows, decoded })
    }

    /// Channels, rows and columns of the 8-bit images in between, where recipes follow: those of the largest. Finished
    /// images have so many `channels`.
    pub fn between(&self, channels: usize) -> Option<[usize; 3]> {
        self.follows.iter().any(|one| one.recipe.is_some()).then(|| {
            let most = |of: &dyn Fn(&Follows) -> usize| self.follows.iter().map(of).max().unwrap_or(0);
            let given = most(&|one| one.recipe.as_ref().map_or(channels, |(_, given)| *given));
            // Rows begin at whole words.
            [given, most(&|one| one.size.0), most(&|one| one.size.1).next_multiple_of(4)]
        })
    }

    /// Plans what follows: from images in between at `address`, channel by channel, each as large as
    /// [`Plan::between`] says, to the batch.
    ///
    /// # Errors
    /// Those of [`augment::Plan::new`].
    pub fn after(
        &self,
        address: u64,
        output: Output<'_>,
    ) -> std::result::Result<augment::Plan, AugmentError> {
        let finished = output.map.channels();
        let [channels, rows, columns] = self.between(finished).unwrap_or_default();
        let (row, plane) = (columns as i64, (rows * columns) as i64);
        let image = (channels * rows * columns) as u64;
        let (mut recipes, mut sources) = (Vec::new(), Vec::new());
        for (number, one) in self.follows.iter().enumerate() {
            let (height, width) = one.size;
            let plain = || (Recipe::new(height, width), finished);
            let (recipe, channels) = one.recipe.clone().unwrap_or_else(plain);
            recipes.push(recipe);
            let address = address + number as u64 * image;
            sources.push(Source { address, height, width, channels, plane, row, pixel: 1 });
        }
        augment::Plan::new(&recipes, &sources, output)
    }

    /// Bytes of scratch memory.
    pub fn scratch(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.scratch).max().unwrap_or(0)
    }

    /// Who decodes its images.
    pub fn decoded(&self) -> Decoded {
        self.decoded
    }

    /// Whether some images are JPEGs that are to be decoded first.
    pub fn has_encoded(&self) -> bool {
        self.chunks.iter().any(|chunk| !chunk.encoded.is_empty())
    }

    /// Has JPEGs decoded by `decode`, then launches kernels by `launch`, which takes a kernel's name, a grid of blocks, the
    /// threads of a block, and what the kernel takes: for each part of the batch that the scratch memory is used for.
    ///
    /// # Errors
    /// Those of `decode` and `launch`; [`Error::Argument`] for more than 4 channels.
    pub fn run(
        &self,
        places: Places,
        shape: Shape,
        mut decode: impl FnMut(&[Encoded]) -> Result<()>,
        mut launch: impl FnMut(&'static str, Grid, u32, &BatchArgs) -> Result<()>,
    ) -> Result<()> {
        if shape.channels > CHANNELS {
            return Err(Error::Argument(format!(
                "images of {} channels cannot be finished, of {CHANNELS} at most",
                shape.channels
            )));
        }
        for chunk in &self.chunks {
            if !chunk.encoded.is_empty() {
                decode(&chunk.encoded)?;
            }
            let args = BatchArgs {
                records: places.records,
                offsets: places.offsets,
                first: chunk.first as u32,
                channels: shape.channels,
                scratch: places.scratch,
                table: places.table,
                out: places.out,
                element: shape.element,
                padding: 0,
                step: shape.step,
            };
            let kernels = [
                ("unpack", chunk.packed, 8, 256),
                ("huffman", chunk.segments, 32, 128),
                ("idct", chunk.groups, 8, 256),
                ("colour", chunk.words, 128, 128),
                ("resample_first", chunk.middle, 128, 128),
                ("resample_second", chunk.pixels, 256, 128),
            ];
            for (name, items, each, threads) in kernels {
                let blocks = u32::try_from(items.div_ceil(each)).map_err(|_| {
                    Error::Argument(format!("{name} would take {items} threads for one image"))
                })?;
                if blocks > 0 {
                    launch(name, [blocks, 1, chunk.count as u32], threads, &args)?;
                }
            }
        }
        Ok(())
    }
}

/// What follows the image of a record; `None` if that is none.
fn follow(image: &Unfinished, record: &[u8]) -> Option<Follows> {
    let size = (image.out_height as usize, image.out_width as usize);
    let (at, bytes) = (image.recipe_at as usize, image.recipe_bytes as usize);
    let recipe = if bytes == 0 {
        None
    } else {
        let recipe = Recipe::decode(record.get(at..at.checked_add(bytes)?)?)?;
        let channels = image.recipe_channels;
        matches!(channels, 1 | 3).then_some(())?;
        Some((recipe, channels as usize))
    };
    Some(Follows { size, recipe })
}

/// Where a JPEG is, and where it goes.
fn encoded(image: &Unfinished, number: usize, record: usize) -> Result<Encoded> {
    let (at, end) = (image.data_at as usize, image.data_at as u64 + u64::from(image.data_bytes));
    if end > u64::from(image.bytes) {
        return Err(Error::Argument(format!("the JPEG of record {number} does not end in it")));
    }
    Ok(Encoded {
        number,
        bytes: record + at..record + end as usize,
        at: image.rgb,
        pitch: image.full_width.next_multiple_of(4) as usize,
        width: image.full_width,
        height: image.full_height,
    })
}

/// Words of four neighbours in rows or in columns, whichever are more: what a thread of a pass makes.
fn fours(height: u64, width: u64) -> u64 {
    (width.div_ceil(4) * height).max(height.div_ceil(4) * width)
}

/// Rows and columns between the passes.
fn middle(image: &Unfinished) -> (u64, u64) {
    let (height, width) = if image.vertical_first != 0 {
        (image.out_height, image.width)
    } else {
        (image.height, image.out_width)
    };
    (u64::from(height), u64::from(width))
}

/// Lays out an image's scratch memory from `at` on, and says where it ends.
fn layout(image: &mut Unfinished, at: u64) -> u64 {
    let mut end = at;
    let mut take = |bytes: u64| {
        let start = end;
        end += bytes.next_multiple_of(ALIGNMENT as u64);
        start
    };
    let planes = (image.planes as usize).min(3);
    if image.kind == kind::JPEG {
        let stride = u64::from(image.full_width).next_multiple_of(4);
        image.rgb = take(stride * u64::from(image.full_height) * 3);
    } else if image.kind != kind::PIXELS {
        let groups: u64 = image.plane[..planes].iter().map(|plane| plane.count()).sum();
        image.coefficients = take(if image.kind == kind::COEFFICIENTS { 0 } else { groups * 512 });
        for (place, plane) in image.samples.iter_mut().zip(&image.plane[..planes]) {
            *place = take(plane.count() * 256);
        }
        let stride = u64::from(image.width).next_multiple_of(4);
        image.rgb = take(stride * u64::from(image.height) * u64::from(image.planes));
    }
    let (height, width) = middle(image);
    image.middle = take(width.next_multiple_of(4) * height * u64::from(image.planes));
    end
}
