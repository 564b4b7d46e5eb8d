//! [`Part`]: a decode that stops before the inverse DCT, for a device that goes on from there.
//!
//! What a GPU does badly is Huffman decoding, what it does best is everything after it. A part holds the quantized
//! coefficients of the blocks that a region needs, with the context that upsampling looks at, and says how they lie.
//! Whoever goes on multiplies with [`Part::quant`], transforms as `jidctint` does, upsamples each plane as
//! [`PartPlane::upsampling`] says and converts colours; the pixels are then those of [`Decoder::decode`].

use crate::decoder::{Decoder, prepare};
use crate::entropy;
use crate::frame::{Frame, Upsampling, Window};
use crate::header::File;
use crate::huffman::Spec;
use crate::index::RowIndex;
use crate::kernels::HEAD;
use crate::options::{Dct, Options};
use crate::output::{Format, Sink};
use crate::sequential::GROUP;
use crate::{Colour, Error, ErrorKind, Packed, Region, Result, Scale};

/// How coefficients are written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// For each plane, block row after block row, groups of four blocks that lie side by side, 256 numbers of 16 bits
    /// each, little-endian: coefficient (r, c) of block b of a group has the number `32 * r + 8 * b + c`.
    Plain,
    /// As [`Packed`] has them: for each plane a table of its block rows (32-bit offsets from the beginning of the part,
    /// one more than there are rows), then for each row the heads of its groups and behind them their bodies.
    Packed,
    /// Huffman codes without byte stuffing, and where in them to begin, as a row index says: see [`Scan`]. Coefficients are
    /// then [`Form::Plain`]'s, wherever they are put.
    Huffman,
}

/// Huffman codes, and where they can be read from. Offsets count from the beginning of the part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// [`SEGMENT`] bytes each, all numbers in the machine's order: the first bit (32 bits), the row of MCUs counted from the
    /// first one of the part, the column of the first MCU in the image, MCUs, and the DC predictors of three components
    /// (16 bits each). Longer ones come first.
    pub segments_at: usize,
    /// How many.
    pub segments: usize,
    /// [`TABLE`] bytes each: how many codes there are of 1 to 16 bits, and symbols.
    pub tables_at: usize,
    /// How many, at most 4.
    pub tables: usize,
    /// The codes, at a multiple of 4, and zeros up to the next one.
    pub codes_at: usize,
    /// Bytes of them, a multiple of 4.
    pub codes: usize,
    /// The first column of MCUs that is kept.
    pub left: usize,
}

/// Bytes of a segment.
pub const SEGMENT: usize = 16;

/// Bytes of a Huffman table.
pub const TABLE: usize = 16 + 256;

/// Tables that a part may have.
const MOST_TABLES: usize = 4;

/// How a plane reaches the resolution of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartUpsampling {
    /// It has it.
    #[default]
    None,
    /// Twice as wide by a triangle filter.
    H2V1,
    /// Twice as high by a triangle filter.
    H1V2,
    /// Both.
    H2V2,
    /// Samples are repeated, so often across and down.
    Repeat(u8, u8),
}

/// The coefficients of one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartPlane {
    /// Bytes from the beginning of the part.
    pub offset: usize,
    /// The plane's column and row of samples that the first block begins with.
    pub left: usize,
    /// See `left`.
    pub top: usize,
    /// Groups of four blocks in a block row.
    pub groups: usize,
    /// Block rows.
    pub rows: usize,
    /// Columns and rows of samples that the image reaches. Upsampling repeats the last ones.
    pub width: usize,
    /// See `width`.
    pub height: usize,
    /// How it reaches the resolution of the image.
    pub upsampling: PartUpsampling,
    /// What coefficients are multiplied by, by row and column.
    pub quant: [u16; 64],
    /// Blocks in an MCU, across and down.
    pub blocks: (usize, usize),
    /// Numbers of its Huffman tables, for DC and AC, if there are codes.
    pub tables: (usize, usize),
}

impl Default for PartPlane {
    fn default() -> Self {
        Self {
            offset: 0,
            left: 0,
            top: 0,
            groups: 0,
            rows: 0,
            width: 0,
            height: 0,
            upsampling: PartUpsampling::None,
            quant: [0; 64],
            blocks: (1, 1),
            tables: (0, 0),
        }
    }
}

/// What is left to do of a decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// How coefficients are written down.
    pub form: Form,
    /// What the components are.
    pub colour: Colour,
    /// The pixels that they are for.
    pub region: Region,
    /// Where Huffman codes are, if they were not read.
    pub scan: Scan,
    planes: [PartPlane; 4],
    count: usize,
}

impl Part {
    /// One for each component that the output needs.
    pub fn planes(&self) -> &[PartPlane] {
        &self.planes[..self.count]
    }

    /// Describes the coefficients of `window`, without saying where they are.
    fn new(
        form: Form,
        colour: Colour,
        frame: &Frame,
        region: Region,
        window: Window,
        quant: &[[u16; 64]; 4],
    ) -> Self {
        let mut planes = [PartPlane::default(); 4];
        // Whole groups of all components: see `Reconstructor::start`.
        let columns = (window.right - window.left).next_multiple_of(4);
        for ((part, plane), quant) in planes.iter_mut().zip(frame.planes()).zip(quant) {
            *part = PartPlane {
                offset: 0,
                left: window.left * plane.h * 8,
                top: window.top * plane.v * 8,
                groups: columns * plane.h / 4,
                rows: (window.bottom - window.top) * plane.v,
                width: plane.width,
                height: plane.height,
                upsampling: match plane.upsampling {
                    Upsampling::None => PartUpsampling::None,
                    Upsampling::H2V1 => PartUpsampling::H2V1,
                    Upsampling::H1V2 => PartUpsampling::H1V2,
                    Upsampling::H2V2 => PartUpsampling::H2V2,
                    // Sampling factors are 1 to 4.
                    Upsampling::Repeat { horizontal, vertical } => {
                        PartUpsampling::Repeat(horizontal as u8, vertical as u8)
                    }
                },
                quant: *quant,
                blocks: (plane.h, plane.v),
                tables: (0, 0),
            };
        }
        Part { form, colour, region, scan: Scan::default(), planes, count: frame.planes().len() }
    }
}

/// Coefficients that are kept instead of being transformed.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) out: Vec<u8>,
    /// Where each plane begins in `out`, how many groups its rows have, and its first block row.
    planes: [(usize, usize, usize); 4],
}

impl Kept {
    /// Keeps `groups` of block row `row` of component `c`, from block `block` of the window on, and zeroes them.
    pub(crate) fn put(&mut self, c: usize, row: usize, block: usize, groups: &mut [i16]) {
        let (start, across, first) = self.planes[c];
        let at = start + ((row - first) * across + block / 4) * GROUP * 2;
        for (to, from) in self.out[at..].as_chunks_mut().0.iter_mut().zip(groups.iter()) {
            *to = from.to_le_bytes();
        }
        groups.fill(0);
    }
}

impl Decoder {
    /// Decodes no further than to coefficients, which it writes behind what `out` holds. The scale must be 1 and the
    /// inverse DCT the accurate one. With [`Options::record`] rows are noted up to the file's end, whatever the region, so
    /// that [`Decoder::indexed_part`] finds all that it needs.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`]; then `out` is as long as before.
    pub fn part(&mut self, bytes: &[u8], options: &Options<'_>, out: &mut Vec<u8>) -> Result<Part> {
        check(options)?;
        let file = File::open(bytes, options.tolerant)?;
        let (frame, region, _) = prepare(&file.header, options)?;
        let window = frame.window(region);
        let one_scan = file.in_one_scan();
        // Those of several scans lie in groups from the image's first column on.
        let window = if one_scan { window } else { Window { left: window.left & !3, ..window } };
        let colour = file.header.colour;
        let mut part = Part::new(Form::Plain, colour, &frame, region, window, &[[0; 64]; 4]);
        let begin = out.len();
        let mut kept = Kept::default();
        let mut end = begin;
        for ((plane, layout), kept) in part.planes.iter_mut().zip(frame.planes()).zip(&mut kept.planes) {
            plane.offset = end - begin;
            *kept = (end, plane.groups, window.top * layout.v);
            end += plane.groups * plane.rows * GROUP * 2;
        }
        options.ask.at_least(out, end)?;
        kept.out = std::mem::take(out);
        self.reconstructor.kept = Some(kept);
        let mut nowhere = |_: crate::Rows<'_>| {};
        let decoded = self.run(bytes, file, frame, region, options, Sink::Bands(&mut nowhere));
        let kept = self.reconstructor.kept.take().unwrap_or_default();
        *out = kept.out;
        if let Err(error) = decoded {
            out.truncate(begin);
            return Err(error);
        }
        for (plane, quant) in part.planes.iter_mut().zip(self.reconstructor.quant) {
            plane.quant = quant;
        }
        Ok(part)
    }

    /// As [`Decoder::part`], but no codes are read: those that the region needs are written behind what `out` holds, where
    /// [`Options::index`] knows all of its rows. `None` where it does not, for files of several scans or with restart
    /// markers, and for more than four Huffman tables; then nothing is written.
    ///
    /// # Errors
    /// Those of [`Decoder::part`].
    pub fn indexed_part(
        &mut self,
        bytes: &[u8],
        options: &Options<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<Part>> {
        check(options)?;
        let Some(index) = options.index else { return Ok(None) };
        let file = File::open(bytes, options.tolerant)?;
        let (frame, region, _) = prepare(&file.header, options)?;
        let window = frame.window(region);
        let (columns, count) = (frame.mcus.0, frame.all_planes().len());
        let known = file.in_one_scan()
            && file.tables.restart_interval == 0
            && count <= 3
            // All components are needed, in the order of the scan.
            && frame.planes().len() == count
            && file.scan.members().iter().enumerate().all(|(c, member)| member.component == c)
            && index.rows() >= window.bottom
            && index.fits(count, columns)
            && index.matches(bytes);
        if !known {
            return Ok(None);
        }
        let quant = file.quant()?;
        let kept = Window { left: window.left & !3, ..window };
        let mut part = Part::new(Form::Huffman, file.header.colour, &frame, region, kept, &quant);
        let mut tables: Vec<Spec> = Vec::new();
        for (plane, member) in part.planes.iter_mut().zip(file.scan.members()) {
            let mut number = |ac: bool, number: usize| {
                let spec = file.tables.huffman(ac, number)?;
                let known = tables.iter().position(|other| *other == spec);
                Ok(known.unwrap_or_else(|| {
                    tables.push(spec);
                    tables.len() - 1
                }))
            };
            plane.tables = (number(false, member.dc)?, number(true, member.ac)?);
        }
        if tables.len() > MOST_TABLES {
            return Ok(None);
        }
        let begin = out.len();
        let written = self.write_codes(bytes, index, window, columns, &tables, &mut part, options, out);
        match written {
            Ok(true) => Ok(Some(part)),
            // What the index says is not in the file.
            Ok(false) => {
                out.truncate(begin);
                Ok(None)
            }
            Err(error) => {
                out.truncate(begin);
                Err(error)
            }
        }
    }

    /// Writes segments, tables and codes; false where they do not fit each other.
    #[allow(clippy::too_many_arguments, reason = "all that a part with codes is made of")]
    fn write_codes(
        &mut self,
        bytes: &[u8],
        index: &RowIndex,
        window: Window,
        columns: usize,
        tables: &[Spec],
        part: &mut Part,
        options: &Options<'_>,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        let first = window.top * columns + window.left;
        let end = (window.bottom - 1) * columns + window.right;
        let Some(from) = index.before(first) else { return Ok(false) };
        let to = index.after(end).map_or(bytes.len(), |to| (to.byte() + 2).min(bytes.len()));
        let area = entropy::Part { start: from.byte(), end: to, interval: 0, mcus: 0 };
        self.entropy.load(self.level, bytes, area, options.ask)?;

        let mut segments = Vec::new();
        for row in window.top..window.bottom {
            let (start, last) = (row * columns + window.left, row * columns + window.right);
            let mut here = index.before(start);
            while let Some(point) = here.filter(|point| point.mcu < last) {
                here = index.after(point.mcu + 1);
                let stop = here.map_or(last, |next| next.mcu.min(last));
                let Some(bit) = self.entropy.bit_of(bytes, point.bit) else { return Ok(false) };
                if point.mcu < row * columns {
                    return Ok(false);
                }
                segments.push((stop - point.mcu, row - window.top, point, bit));
            }
        }
        // Threads that lie side by side shall have as much to do.
        segments.sort_by_key(|&(count, ..)| std::cmp::Reverse(count));

        let begin = out.len();
        let codes = self.entropy.codes();
        let padded = codes.len().next_multiple_of(4);
        let all = segments.len() * SEGMENT + tables.len() * TABLE + padded + 16;
        options.ask.reserve(out, all)?;
        out.resize(begin.next_multiple_of(4), 0);
        let scan = &mut part.scan;
        (scan.segments_at, scan.segments) = (out.len() - begin, segments.len());
        for (count, row, point, bit) in segments {
            let Ok(bit) = u32::try_from(bit) else { return Ok(false) };
            out.extend_from_slice(&bit.to_ne_bytes());
            for number in [row, point.mcu % columns, count] {
                out.extend_from_slice(&(number as u16).to_ne_bytes());
            }
            for predictor in &point.predictors[..3] {
                out.extend_from_slice(&(*predictor as i16).to_ne_bytes());
            }
        }
        (scan.tables_at, scan.tables) = (out.len() - begin, tables.len());
        for table in tables {
            out.extend_from_slice(table.counts());
            out.extend_from_slice(table.symbols());
        }
        (scan.codes_at, scan.codes) = (out.len() - begin, padded);
        scan.left = window.left & !3;
        out.extend_from_slice(codes);
        out.resize(begin + scan.codes_at + padded, 0);
        Ok(true)
    }

    /// As [`Decoder::part`], from a record of packed coefficients, whose block rows are copied as they are.
    ///
    /// # Errors
    /// `Corrupt` for a damaged row table; else those of [`Decoder::part`].
    pub fn packed_part(
        &mut self,
        packed: &Packed<'_>,
        options: &Options<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Part> {
        check(options)?;
        let (frame, region, _) = prepare(packed.header(), options)?;
        let window = frame.window(region);
        let window = Window { left: window.left & !3, ..window };
        let colour = packed.header().colour;
        let mut part = Part::new(Form::Packed, colour, &frame, region, window, packed.quant());
        let begin = out.len();
        let copied = copy_rows(packed, &frame, window, &mut part, begin, options, out);
        if let Err(error) = copied {
            out.truncate(begin);
            return Err(error);
        }
        Ok(part)
    }
}

/// Copies the block rows of `window` and their tables.
fn copy_rows(
    packed: &Packed<'_>,
    frame: &Frame,
    window: Window,
    part: &mut Part,
    begin: usize,
    options: &Options<'_>,
    out: &mut Vec<u8>,
) -> Result<()> {
    for (c, (plane, layout)) in part.planes.iter_mut().zip(frame.planes()).enumerate() {
        let (rows, groups) = packed.size(c);
        let from = window.left * layout.h / 4;
        let to = (window.right * layout.h).div_ceil(4).min(groups);
        let first = window.top * layout.v;
        // Padding is not in the record, and is never looked at.
        let last = (window.bottom * layout.v).min(rows);
        (plane.groups, plane.rows) = (to - from, last - first);
        out.resize(out.len().next_multiple_of(4), 0);
        plane.offset = out.len() - begin;
        let table = out.len();
        options.ask.at_least(out, table + 4 * (plane.rows + 1))?;
        for row in first..last {
            let at = u32::try_from(out.len() - begin).map_err(|_| too_large())?;
            out[table + 4 * (row - first)..][..4].copy_from_slice(&at.to_le_bytes());
            let run = packed.run(c, row, from, to)?;
            let bodies: usize =
                run.heads.iter().map(|head| usize::from(u16::from_le_bytes([head[0], head[1]]))).sum();
            let Some(bodies) = run.bodies.get(..bodies).filter(|bodies| bodies.len() <= run.end) else {
                return Err(Error::new(ErrorKind::Corrupt, "packed coefficients are damaged in a block row"));
            };
            options.ask.reserve(out, run.heads.len() * HEAD + bodies.len())?;
            out.extend_from_slice(run.heads.as_flattened());
            out.extend_from_slice(bodies);
        }
        let end = u32::try_from(out.len() - begin).map_err(|_| too_large())?;
        out[table + 4 * plane.rows..][..4].copy_from_slice(&end.to_le_bytes());
    }
    Ok(())
}

fn too_large() -> Error {
    Error::new(ErrorKind::Limit, "a part of packed coefficients takes more than 4 GiB")
}

/// Refuses what parts are not made for.
fn check(options: &Options<'_>) -> Result<()> {
    if options.scale != Scale::Full || options.dct != Dct::Accurate {
        let what = "coefficients are for scale 1 and the accurate inverse DCT";
        return Err(Error::new(ErrorKind::Argument, what));
    }
    if options.format == Format::Native {
        let what = "coefficients are for RGB or brightness: Format::Rgb or Format::Grey";
        return Err(Error::new(ErrorKind::Argument, what));
    }
    Ok(())
}
