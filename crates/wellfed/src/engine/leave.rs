//! Writes down what is left of an image for the device that finishes it: a record that begins with [`Unfinished`].
//!
//! The kernels of a device run what most programs end with: a crop, two passes of weighted sums, flips, and a table from
//! 8-bit values to elements; of JPEGs also all that comes after Huffman decoding. What they do not run (padding, alpha,
//! OpenCV's resizes) is done here, and the record holds the finished pixels, of which only the values are left to map.
//! Colours, blurs, affine maps and erasing after all that are a recipe at the end of the record.

use std::{ops::Range, sync::atomic::Ordering::Relaxed};

use wellfed_jpeg::{Colour, Form, PartPlane, PartUpsampling};
use wellfed_kernels::{
    image::Layout,
    level::Level,
    resample::{AxisWeights, Resizer, Weights},
    unfinished::{ALIGNMENT, Plane, Unfinished, colour, kind, upsampling},
};

use super::{
    exec::Executor,
    fold::Fold,
    image::{Held, ImageScratch, Maker, identity},
    left::{LeftImage, finish, number, reserve},
};
use crate::{
    Error, Result,
    codec::{Request, Scale},
    meter::{Phase, Probe},
    plan::{
        OnDevice,
        field::{FieldProgram, ImageProgram},
    },
    transform::{Rect, Size},
};

impl Executor {
    /// What is left of images, column by column.
    pub(crate) fn left(&self) -> Vec<Option<LeftImage>> {
        let mut left = vec![None; self.columns().len()];
        for leaf in self.leaves() {
            for (field, program) in leaf.program.fields.iter().enumerate() {
                if let FieldProgram::Image(program) = program {
                    left[leaf.first_column + field] = left_image(program);
                }
            }
        }
        left
    }

    /// Of every 256 samples of plans with [`OnDevice::Auto`], leaves so many to the device from now on.
    pub(crate) fn set_device_share(&self, share: u32) {
        for leaf in self.leaves() {
            for program in &leaf.program.fields {
                if let FieldProgram::Image(program) = program {
                    program.device_share.store(share, Relaxed);
                }
            }
        }
    }

    /// Accepts leaves that leave the same to the device, if anything.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Config`] if two data sets that write one column leave different things.
    pub(crate) fn check_left(&self) -> Result<()> {
        let left = self.left();
        for leaf in self.leaves() {
            for (field, program) in leaf.program.fields.iter().enumerate() {
                let FieldProgram::Image(program) = program else { continue };
                let column = leaf.first_column + field;
                if left_image(program) != left[column] {
                    let name = &self.columns()[column].name;
                    let what =
                        format!("the data sets that make {name:?} leave different steps to the device");
                    return Err(Error::config(what).with_hint(
                        "end each with the same casts and Normalize, or leave on_device at \"copy\"",
                    ));
                }
            }
        }
        Ok(())
    }
}

fn left_image(program: &ImageProgram) -> Option<LeftImage> {
    let map = program.left()?;
    let table = (0..map.channels()).flat_map(|c| (0..=255).map(move |value| map.bits(c, value))).collect();
    let channels_first = program.layout == Layout::Chw;
    Some(LeftImage { size: program.chw(), dtype: program.element(), channels_first, table })
}

/// Bytes of weights that are kept for the next images.
const KEPT_WEIGHTS: usize = 4 << 20;

impl Maker<'_> {
    /// Writes what is left of the image into `record`: `from` decoding on, where the image allows it.
    #[allow(clippy::too_many_arguments, reason = "as `render`, which it stands in for")]
    pub(super) fn leave(
        &self,
        held: Held<'_>,
        fold: &Fold,
        size: Size,
        from: OnDevice,
        scratch: &mut ImageScratch,
        record: &mut Vec<u8>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let mut head = Unfinished::new();
        record.clear();
        let (rows, columns) = fold.size();
        (head.out_height, head.out_width) = (number(rows)?, number(columns)?);
        let from = match from {
            OnDevice::Auto if self.is_for_device() => OnDevice::Decode,
            from => from,
        };
        let form = match from {
            OnDevice::Auto => None,
            _ => self.device_form(held, fold, size, scratch)?,
        };
        let Some((fold, needed, weights)) = form else {
            // Only values are left to map.
            (head.height, head.width) = (head.out_height, head.out_width);
            reserve(record, Unfinished::BYTES, &scratch.codec)?;
            record.resize(Unfinished::BYTES, 0);
            self.pixels(held, fold, size, (rows, columns), &mut head, scratch, record, probe)?;
            return finish(head, record);
        };
        (head.left, head.top) = (number(needed.left)?, number(needed.top)?);
        (head.width, head.height) = (number(needed.width)?, number(needed.height)?);
        (head.flip_h, head.flip_v) = (u32::from(fold.flip_h), u32::from(fold.flip_v));
        let (left, top) = (needed.left - fold.crop.left, needed.top - fold.crop.top);
        let window = (fold.window.left as usize, fold.window.top as usize);
        let across = window.0..window.0 + columns;
        let down = window.1..window.1 + rows;
        let (by_columns, by_rows) =
            weights.as_ref().map_or((None, None), |weights| (weights.columns(), weights.rows()));
        let words =
            [(by_columns, columns), (by_rows, rows)].map(|(axis, n)| axis.map_or(0, |a| n * (a.taps() + 1)));
        reserve(record, Unfinished::BYTES + 4 * (words[0] + words[1]) + ALIGNMENT, &scratch.codec)?;
        record.resize(Unfinished::BYTES, 0);
        head.vertical_first = u32::from(weights.as_ref().is_some_and(|weights| weights.vertical_first));
        match by_columns {
            Some(axis) => {
                (head.columns_at, head.column_taps) = table(record, axis, across, left..left + needed.width)?
            }
            None => head.column_skip = number(window.0 - left)?,
        }
        match by_rows {
            Some(axis) => {
                (head.rows_at, head.row_taps) = table(record, axis, down, top..top + needed.height)?
            }
            None => head.row_skip = number(window.1 - top)?,
        }
        record.resize(record.len().next_multiple_of(ALIGNMENT), 0);
        let begin = record.len();
        if let (OnDevice::Nvjpeg, Held::Encoded(encoded)) = (from, held)
            && let Some(jpeg) = encoded.common_jpeg(&self.request()?)?
        {
            reserve(record, jpeg.len() + ALIGNMENT, &scratch.codec)?;
            record.extend_from_slice(jpeg);
            (head.full_height, head.full_width) = (number(size.height)?, number(size.width)?);
            (head.kind, head.data_at, head.data_bytes) = (kind::JPEG, number(begin)?, number(jpeg.len())?);
            return finish(head, record);
        }
        if let (OnDevice::Decode, Held::Encoded(encoded)) = (from, held) {
            let request = Request { region: Some(needed), ..self.request()? };
            let part = encoded.coefficients(&request, self.limits, &mut scratch.codec, record);
            if let Some(part) = part.map_err(|e| e.with_stage("decode"))? {
                probe.lap(Phase::Decode, record.len() - begin);
                head.data_at = number(begin)?;
                head.kind = match part.form {
                    Form::Plain => kind::COEFFICIENTS,
                    Form::Packed => kind::PACKED,
                    Form::Huffman => kind::HUFFMAN,
                };
                let scan = &part.scan;
                head.mcu_left = number(scan.left)?;
                (head.segments_at, head.segments) =
                    (number(begin + scan.segments_at)?, number(scan.segments)?);
                (head.tables_at, head.tables) = (number(begin + scan.tables_at)?, number(scan.tables)?);
                (head.codes_at, head.codes) = (number(begin + scan.codes_at)?, number(scan.codes)?);
                head.planes = number(part.planes().len())?;
                head.colour = match part.colour {
                    Colour::Grey => colour::GREY,
                    Colour::YCbCr => colour::YCBCR,
                    _ => colour::RGB,
                };
                for (to, plane) in head.plane.iter_mut().zip(part.planes()) {
                    *to = component(plane, begin)?;
                }
                return finish(head, record);
            }
        }
        let Rect { top, left, height, width } = needed;
        let mut cut = Fold::new(size.height, size.width);
        if !cut.push(&crate::transform::Action::Crop(Rect { top, left, height, width }), size.channels) {
            return Err(Error::new(crate::ErrorKind::Internal, "a crop does not fold"));
        }
        self.pixels(held, &cut, size, (height, width), &mut head, scratch, record, probe)?;
        finish(head, record)
    }

    /// Whether this sample is among those that are left to the device.
    fn is_for_device(&self) -> bool {
        // Spreads neighbours: Fibonacci hashing, the golden ratio times 2^64.
        let place = (self.pick.index.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32;
        place < self.program.device_share.load(Relaxed)
    }

    /// The fold as devices run it, the pixels that it needs, and the weights of its resize; `None` if they do not run it.
    fn device_form(
        &self,
        held: Held<'_>,
        fold: &Fold,
        size: Size,
        scratch: &mut ImageScratch,
    ) -> Result<Option<(Fold, Rect, Option<Weights>)>> {
        let scaled = match held {
            Held::Encoded(encoded) if self.program.scales() && encoded.codec().scales() => {
                fold.scaled().1 != Scale::Full
            }
            _ => false,
        };
        let with_alpha = matches!(size.channels, 2 | 4) && fold.resize.is_some();
        if fold.is_padded() || scaled || with_alpha {
            return Ok(None);
        }
        let (fold, needed) = fold.settled();
        let Some(resize) = fold.kernel_resize() else { return Ok(Some((fold, needed, None))) };
        let maker = scratch.weights.get_or_insert_with(|| Resizer::with_level(Level::Scalar, KEPT_WEIGHTS));
        let weights = maker.weights(&resize, (fold.crop.height, fold.crop.width))?;
        Ok(weights.map(|weights| (fold, needed, Some(weights))))
    }

    /// Writes the pixels of `fold`, `height` x `width` of them, plane after plane.
    #[allow(clippy::too_many_arguments, reason = "as `leave`")]
    fn pixels(
        &self,
        held: Held<'_>,
        fold: &Fold,
        size: Size,
        (height, width): (usize, usize),
        head: &mut Unfinished,
        scratch: &mut ImageScratch,
        record: &mut Vec<u8>,
        probe: &mut Probe<'_>,
    ) -> Result<()> {
        let begin = record.len();
        let bytes = height * width * size.channels;
        reserve(record, bytes + ALIGNMENT, &scratch.codec)?;
        record.resize(begin + bytes, 0);
        head.data_at = number(begin)?;
        head.planes = number(size.channels)?;
        let map = identity(size.channels)?;
        self.render(held, fold, size, map, Layout::Chw, scratch, &mut record[begin..], probe)
    }
}

/// Writes first samples, counted from where `there` begins, and weights of the output samples of `window`: where, and how
/// many each has. All have as many, the missing ones zero, and none lies outside of `there`.
fn table(
    record: &mut Vec<u8>,
    axis: AxisWeights<'_>,
    window: Range<usize>,
    there: Range<usize>,
) -> Result<(u32, u32)> {
    let at = number(record.len())?;
    let taps = window.clone().map(|o| axis.at(o).1.len()).max().unwrap_or(0);
    let last = there.end.saturating_sub(taps).max(there.start);
    let first = |o: usize| axis.at(o).0.min(last);
    for o in window.clone() {
        record.extend_from_slice(&number(first(o) - there.start)?.to_ne_bytes());
    }
    for o in window {
        let (start, weights) = axis.at(o);
        let before = start - first(o);
        for t in 0..taps {
            let weight = t.checked_sub(before).and_then(|t| weights.get(t)).copied().unwrap_or(0);
            record.extend_from_slice(&weight.to_ne_bytes());
        }
    }
    Ok((at, number(taps)?))
}

/// A component as devices know it.
fn component(plane: &PartPlane, begin: usize) -> Result<Plane> {
    let (upsampling, across, down) = match plane.upsampling {
        PartUpsampling::None => (upsampling::NONE, 1, 1),
        PartUpsampling::H2V1 => (upsampling::H2V1, 1, 1),
        PartUpsampling::H1V2 => (upsampling::H1V2, 1, 1),
        PartUpsampling::H2V2 => (upsampling::H2V2, 1, 1),
        PartUpsampling::Repeat(across, down) => (upsampling::REPEAT, u32::from(across), u32::from(down)),
    };
    Ok(Plane {
        at: number(begin + plane.offset)?,
        left: number(plane.left)?,
        top: number(plane.top)?,
        groups: number(plane.groups)?,
        rows: number(plane.rows)?,
        width: number(plane.width)?,
        height: number(plane.height)?,
        upsampling,
        across,
        down,
        h: number(plane.blocks.0)?,
        v: number(plane.blocks.1)?,
        dc: number(plane.tables.0)?,
        ac: number(plane.tables.1)?,
        quant: plane.quant,
    })
}
