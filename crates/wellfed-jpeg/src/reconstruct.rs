//! From coefficients to rows of pixels: inverse DCT into planes, upsampling, colour.
//!
//! Planes hold two rows of MCUs at a time, of the window's columns only: rows are given out as soon as the rows
//! around them are there that upsampling looks at.

use crate::frame::{Frame, Plane, Upsampling, Window};
use crate::header::Colour;
use crate::kernels::{self, RUN, Run};
use crate::level::Level;
use crate::memory::Ask;
use crate::options::Dct;
use crate::output::{Sink, Target};
use crate::part::Kept;
use crate::sequential::GROUP;
use crate::{Region, Result};

/// Bytes before the first column of a plane's rows, of which the last one repeats the image's edge.
const MARGIN: usize = 64;

/// Bytes that kernels may touch behind what they were asked for.
const SLACK: usize = 64;

/// The samples of one component.
#[derive(Debug, Default)]
struct Samples {
    data: Vec<u8>,
    stride: usize,
    /// Rows of one row of MCUs.
    band: usize,
    /// The image's column that is the plane's first.
    left: usize,
    /// A row at the resolution of the image.
    row: Vec<u8>,
}

impl Samples {
    /// Where row `y` begins.
    fn row_start(&self, y: usize) -> usize {
        (y % (2 * self.band)) * self.stride + MARGIN
    }
}

/// Turns coefficients into rows; keeps its memory from image to image.
#[derive(Debug)]
pub(crate) struct Reconstructor {
    samples: [Samples; 4],
    /// Colours of one row before they are interleaved, or of a band.
    band: Vec<u8>,
    /// Coefficients that are unpacked; all zero between uses.
    unpacked: Vec<i16>,
    /// Takes coefficients before they are transformed, if they are all that is wanted.
    pub(crate) kept: Option<Kept>,
    /// What coefficients of the components of the last image are multiplied by.
    pub(crate) quant: [[u16; 64]; 4],
}

impl Default for Reconstructor {
    fn default() -> Self {
        Self {
            samples: Default::default(),
            band: Vec::new(),
            unpacked: Vec::new(),
            kept: None,
            quant: [[0; 64]; 4],
        }
    }
}

/// What stays the same over an image.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) level: Level,
    pub(crate) frame: &'a Frame,
    pub(crate) colour: Colour,
    pub(crate) region: Region,
    pub(crate) window: Window,
    /// What coefficients of the components are multiplied by, in natural order: [`Dct::tables`].
    pub(crate) quant: &'a [[u16; 64]; 4],
    pub(crate) dct: Dct,
}

impl Reconstructor {
    /// Bytes allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.samples.iter().map(|s| s.data.capacity() + s.row.capacity()).sum::<usize>()
            + self.band.capacity()
            + 2 * self.unpacked.capacity()
    }

    /// Makes room for the window's columns. `columns` is how many MCUs are decoded at most: those of the window,
    /// rounded up to whole groups.
    pub(crate) fn start(&mut self, job: &Job<'_>, columns: usize, ask: Ask<'_>) -> Result<()> {
        self.quant = *job.quant;
        if self.kept.is_some() {
            return Ok(());
        }
        for (samples, plane) in self.samples.iter_mut().zip(job.frame.planes()) {
            let width = (columns * plane.h).next_multiple_of(4) * plane.size;
            samples.stride = MARGIN + width.next_multiple_of(64) + SLACK;
            samples.band = plane.v * plane.size;
            samples.left = job.window.left * plane.h * plane.size;
            let bytes = 2 * samples.band * samples.stride + SLACK;
            ask.at_least(&mut samples.data, bytes)?;
            ask.at_least(&mut samples.row, job.region.width + 16 + SLACK)?;
        }
        Ok(())
    }

    /// Transforms `groups` of block row `row` of component `c` to columns from block `block` of the window on,
    /// and leaves them zeroed.
    pub(crate) fn transform(
        &mut self,
        job: &Job<'_>,
        c: usize,
        row: usize,
        block: usize,
        groups: &mut [i16],
    ) {
        if let Some(kept) = &mut self.kept {
            return kept.put(c, row, block, groups);
        }
        let plane = &job.frame.planes()[c];
        let samples = &mut self.samples[c];
        let start = samples.row_start(row * plane.size) + block * plane.size;
        let out = &mut samples.data[start..];
        match (plane.size, job.dct) {
            (8, Dct::Accurate) => kernels::idct(job.level, groups, &job.quant[c], out, samples.stride),
            (8, Dct::Fast) => kernels::idct_fast(job.level, groups, &job.quant[c], out, samples.stride),
            (size, _) => {
                kernels::idct_scaled(job.level, groups, &job.quant[c], size, out, samples.stride);
            }
        }
        debug_assert_eq!(groups.len() % GROUP, 0);
    }

    /// Transforms packed groups of block row `row` of component `c`, from the window's first block on; false if
    /// they are damaged.
    pub(crate) fn transform_packed(&mut self, job: &Job<'_>, c: usize, row: usize, run: Run<'_>) -> bool {
        let plane = &job.frame.planes()[c];
        let samples = &mut self.samples[c];
        let start = samples.row_start(row * plane.size);
        let (out, stride, quant) = (&mut samples.data[start..], samples.stride, &job.quant[c]);
        self.unpacked.resize(RUN * GROUP, 0);
        let scratch = &mut self.unpacked[..];
        match (plane.size, job.dct) {
            (8, Dct::Accurate) => kernels::unpack_idct(job.level, run, quant, scratch, out, stride),
            (8, Dct::Fast) => kernels::unpack_fast(job.level, run, quant, scratch, out, stride),
            (size, _) => kernels::unpack_scaled(job.level, run, quant, size, scratch, out, stride),
        }
    }

    /// The rows that are complete once the MCUs of row `mcu` are transformed: up to the region's end.
    pub(crate) fn ready(job: &Job<'_>, mcu: usize) -> usize {
        let end = job.region.top + job.region.height;
        if mcu + 1 == job.window.bottom {
            return end;
        }
        let context = usize::from(job.frame.planes().iter().any(|plane| plane.upsampling.needs_rows()));
        ((mcu + 1) * job.frame.mcu.1).saturating_sub(context).min(end)
    }

    /// Gives out rows `from..to` of the image.
    pub(crate) fn emit(
        &mut self,
        job: &Job<'_>,
        from: usize,
        to: usize,
        target: &mut Target<'_, '_>,
        ask: Ask<'_>,
    ) -> Result<()> {
        if from >= to || self.kept.is_some() {
            return Ok(());
        }
        let (width, channels) = (job.region.width, target.channels());
        let stride = width.next_multiple_of(64);
        if let Sink::Bands(_) = target.sink {
            let bytes = channels * (to - from) * stride;
            ask.at_least(&mut self.band, bytes)?;
        }
        let count = job.frame.planes().len();
        for y in from..to {
            // Where each component's row lies: in its plane, or upsampled.
            let mut starts = [None; 4];
            for (c, plane) in job.frame.planes().iter().enumerate() {
                starts[c] = self.upsample(job, plane, c, y);
            }
            let row = |c: usize| {
                let samples = &self.samples[c];
                match starts[c] {
                    Some(start) => &samples.row[start..start + width],
                    None => {
                        let start = samples.row_start(y) + job.region.left - samples.left;
                        &samples.data[start..start + width]
                    }
                }
            };
            let rows: [&[u8]; 4] = std::array::from_fn(|c| if c < count { row(c) } else { &[] as &[u8] });
            target.write_row(
                job.level,
                job.colour,
                y - job.region.top,
                y - from,
                to - from,
                &rows,
                &mut self.band,
                stride,
            );
        }
        target.end_band(from - job.region.top, to - from, &self.band, stride, width);
        Ok(())
    }

    /// Brings a component's row to the resolution of the image: where in `Samples::row` the region's first column
    /// lies, or `None` if the plane's own row will do.
    fn upsample(&mut self, job: &Job<'_>, plane: &Plane, c: usize, y: usize) -> Option<usize> {
        let samples = &mut self.samples[c];
        let (x, width) = (job.region.left, job.region.width);
        let (near, far) = match plane.upsampling {
            Upsampling::None => return None,
            Upsampling::H2V1 => (y, y),
            Upsampling::Repeat { vertical, .. } => (y / vertical, y / vertical),
            Upsampling::H1V2 | Upsampling::H2V2 => {
                let near = y / 2;
                let far = if y.is_multiple_of(2) {
                    near.saturating_sub(1)
                } else {
                    (near + 1).min(plane.height - 1)
                };
                (near, far)
            }
        };
        let (near, far) = (samples.row_start(near), samples.row_start(far));
        let ratio = match plane.upsampling {
            Upsampling::H2V1 | Upsampling::H2V2 => 2,
            Upsampling::Repeat { horizontal, .. } => horizontal,
            _ => 1,
        };
        // Columns of samples that the region needs, without context.
        let (first, last) = (x / ratio, (x + width - 1) / ratio);
        let n = last - first + 1;
        if plane.upsampling.needs_columns() {
            // At the image's edges the neighbour is the edge itself.
            for start in [near, far] {
                if first == 0 {
                    samples.data[start - 1] = samples.data[start];
                }
                if last + 1 == plane.width {
                    let edge = start + last - samples.left;
                    samples.data[edge + 1] = samples.data[edge];
                }
            }
        }
        let Samples { data, row, left, .. } = samples;
        let at = first - *left;
        let exact = |start: usize| &data[start + at..start + at + n];
        let padded = |start: usize| &data[start + at - 1..start + at + n + 1];
        match plane.upsampling {
            Upsampling::None => return None,
            Upsampling::H2V1 => kernels::h2v1(job.level, padded(near), &mut row[..2 * n]),
            Upsampling::H2V2 => kernels::h2v2(job.level, padded(near), padded(far), &mut row[..2 * n]),
            Upsampling::H1V2 => {
                kernels::h1v2(job.level, exact(near), exact(far), y.is_multiple_of(2), &mut row[..n])
            }
            Upsampling::Repeat { .. } => kernels::repeat(exact(near), ratio, &mut row[..ratio * n]),
        }
        Some(x - first * ratio)
    }
}
