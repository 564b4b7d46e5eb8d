//! [`Packed`]: the quantized coefficients of an image without Huffman coding, as a record for memory or disk that
//! takes the place of the JPEG. About one and a half times its bytes, many times faster to decode, and any part
//! can be decoded without looking at the rest.
//!
//! # Format, version 1
//!
//! All numbers are little-endian. A record is: head, quantization tables, row table, block rows, checksum, with
//! nothing in between.
//!
//! | offset | bytes | head |
//! |---|---|---|
//! | 0 | 4 | `WFPC` |
//! | 4 | 1 | version: 1 |
//! | 5 | 1 | components: 1, 3 or 4 |
//! | 6 | 1 | colours: 0 grey, 1 YCbCr, 2 RGB, 3 CMYK, 4 YCCK |
//! | 7 | 1 | process of the JPEG: 0 baseline, 1 extended sequential, 2 progressive |
//! | 8 | 2 | width, 1 to 65500 |
//! | 10 | 2 | height, 1 to 65500 |
//! | 12 | 1 | EXIF orientation: 1 to 8 |
//! | 13 | 1 | Adobe marker: 0 none, 1 present |
//! | 14 | 1 | JFIF density: 0 none, else 1 plus its unit |
//! | 15 | 1 | quantization tables: 1 to 4 |
//! | 16 | 4 | JFIF density: x, y |
//! | 20 | 2 | restart interval of the JPEG |
//! | 22 | 2 | 0 |
//! | 24 | 16 | for each component, and zeros for those that are not there: identifier; sampling factors, 16 times the horizontal plus the vertical; number of its quantization table; 0 |
//! | 40 | 8 | length of the record |
//! | 48 | 8 | length of the JPEG |
//! | 56 | 8 | rapidhash v3 of the JPEG, seed 0 |
//!
//! *Quantization tables*: 64 numbers of 16 bits each, by row and column.
//!
//! *Row table*: for each component, for each of its block rows, the offset of the row in the record, 32 bits. Rows
//! follow each other without gaps in this order; the last ends where the checksum begins. A component of sampling
//! factors h of H and v of V (the largest ones) has `ceil(width * h / (8 * H))` blocks across and
//! `ceil(height * v / (8 * V))` down: the padding that a JPEG has beyond is left out.
//!
//! *Block row*: a group is four blocks that lie side by side, the last group of a row padded with blocks of zeros.
//! First the 14-byte heads of all groups of the row, then their bodies in the same order. Coefficient (r, c) of
//! block b of a group has the number `32 * r + 8 * b + c`.
//!
//! | offset | bytes | head of a group |
//! |---|---|---|
//! | 0 | 2 | size of its body |
//! | 2 | 4 | bit i is set if byte i of the map is not zero |
//! | 6 | 8 | DC coefficients of the four blocks |
//!
//! *Body*: (1) The bytes of the map that are not zero; the map has 256 bits, of which bit n (bit n % 8 of byte n / 8)
//! is set if coefficient n is an AC coefficient other than zero. (2) For each quarter of the map (64 bits), the
//! coefficients that it names as numbers of four bits, value plus 8, the first in the low half of a byte; a quarter
//! begins with a byte. Where a coefficient does not lie in -7..=7 the number is 0. (3) Those coefficients, a signed
//! byte each, -128 where one does not lie in -127..=127. (4) Those, two bytes each.
//!
//! *Checksum*: rapidhash v3 of all bytes before, seed 0, 8 bytes.

mod decode;
#[cfg(test)]
mod tests;
mod write;

use crate::frame::Frame;
use crate::header::{Colour, Component, Density, Header, Process};
use crate::kernels::{HEAD, Run};
use crate::{Error, ErrorKind, Result, Scale};

const MAGIC: [u8; 4] = *b"WFPC";
const VERSION: u8 = 1;

/// Bytes of the record's head.
const FIXED: usize = 64;
const TABLE: usize = 128;
const CHECKSUM: usize = 8;

/// Colours and processes by their numbers in the format.
const COLOURS: [Colour; 5] = [Colour::Grey, Colour::YCbCr, Colour::Rgb, Colour::Cmyk, Colour::Ycck];
const PROCESSES: [Process; 3] = [Process::Baseline, Process::Extended, Process::Progressive];

/// A record of packed coefficients: what [`Decoder::pack`](crate::Decoder::pack) makes, borrowed from the memory
/// or file mapping that holds it.
///
/// ```
/// # let jpeg = include_bytes!("../../tests/images/grey.jpg");
/// use wellfed_jpeg::{Decoder, Limits, Options, Packed, Region};
///
/// let mut decoder = Decoder::new();
/// let record = decoder.pack(jpeg, &Limits::default())?;
/// // Once, when it comes from a disk:
/// let packed = Packed::open(&record)?;
/// // As often as wanted:
/// let region = Some(Region { left: 2, top: 1, width: 5, height: 4 });
/// let options = Options { region, ..Options::default() };
/// let image = decoder.decode_packed(&Packed::reopen(&record)?, &options)?;
/// assert_eq!(image, decoder.decode(jpeg, &options)?);
/// # Ok::<(), wellfed_jpeg::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Packed<'a> {
    bytes: &'a [u8],
    header: Header,
    /// Of each component.
    quant: [[u16; 64]; 4],
    /// Of each component.
    layouts: [Layout; 4],
}

/// Where a component's rows are.
#[derive(Clone, Copy, Debug, Default)]
struct Layout {
    /// Offset of its part of the row table.
    table: usize,
    /// Block rows, and groups in each.
    rows: usize,
    groups: usize,
}

impl<'a> Packed<'a> {
    /// Opens a record and verifies its checksum: for records from a disk or a network. Reads all bytes once.
    ///
    /// # Errors
    /// `Unsupported` for another version; `Truncated` and `Corrupt` for what is not a whole, undamaged record.
    pub fn open(bytes: &'a [u8]) -> Result<Self> {
        let packed = Self::reopen(bytes)?;
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
        if hash(content).to_le_bytes() != checksum {
            return Err(Error::corrupt("packed coefficients do not have the checksum that they name"));
        }
        Ok(packed)
    }

    /// Opens a record without verifying its checksum, in well under a microsecond: for records that
    /// [`Packed::open`] saw, or that were packed by this process. Damage that nothing else shows gives wrong
    /// pixels, and nothing worse.
    ///
    /// # Errors
    /// `Unsupported` for another version; `Truncated` and `Corrupt` for a head that makes no sense.
    pub fn reopen(bytes: &'a [u8]) -> Result<Self> {
        let Some(head) = bytes.first_chunk::<FIXED>() else {
            return Err(truncated(bytes.len(), FIXED as u64));
        };
        if head[..4] != MAGIC {
            return Err(Error::corrupt("not a record of packed coefficients").at(0));
        }
        if head[4] != VERSION {
            let what = format!("packed coefficients of version {}; {VERSION} is supported", head[4]);
            return Err(Error::new(ErrorKind::Unsupported, what).at(4));
        }
        let two = |i: usize| u16::from_le_bytes([head[i], head[i + 1]]);
        let length = read_u64(head, 40);
        if bytes.len() as u64 != length {
            return Err(truncated(bytes.len(), length));
        }
        let bad = |at: usize| Error::corrupt("packed coefficients have a head that makes no sense").at(at);
        let count = usize::from(head[5]);
        let colour = *COLOURS.get(usize::from(head[6])).ok_or_else(|| bad(6))?;
        let process = *PROCESSES.get(usize::from(head[7])).ok_or_else(|| bad(7))?;
        let tables = usize::from(head[15]);
        if !(1..=4).contains(&tables) || head[13] > 1 || head[22..24] != [0; 2] {
            return Err(bad(13));
        }
        let mut components = [Component::default(); 4];
        for (component, c) in components.iter_mut().zip(head[24..40].chunks_exact(4)).take(count) {
            *component = Component { id: c[0], horizontal: c[1] >> 4, vertical: c[1] & 15, quant: c[2] };
            if usize::from(c[2]) >= tables {
                return Err(bad(24));
            }
        }
        let density = head[14].checked_sub(1).map(|unit| Density { unit, x: two(16), y: two(18) });
        let size = (usize::from(two(8)), usize::from(two(10)));
        let mut header = Header::assemble(size, colour, process, components, count).ok_or_else(|| bad(5))?;
        if !(1..=8).contains(&head[12]) {
            return Err(bad(12));
        }
        header.orientation = head[12];
        header.density = density;
        header.restart_interval = two(20);
        header.adobe = head[13] == 1;
        let mut packed = Packed { bytes, header, quant: [[0; 64]; 4], layouts: [Layout::default(); 4] };
        let rows_at = FIXED + tables * TABLE;
        let (layouts, rows_end) = layouts(&header, rows_at);
        packed.layouts = layouts;
        if rows_end + CHECKSUM > bytes.len() {
            return Err(truncated(bytes.len(), (rows_end + CHECKSUM) as u64));
        }
        for (quant, component) in packed.quant.iter_mut().zip(header.components()) {
            let table = &bytes[FIXED + usize::from(component.quant) * TABLE..][..TABLE];
            for (to, from) in quant.iter_mut().zip(table.chunks_exact(2)) {
                *to = u16::from_le_bytes([from[0], from[1]]);
            }
        }
        Ok(packed)
    }

    /// What the JPEG said about its image.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// True if the record was made from this JPEG.
    pub fn matches(&self, jpeg: &[u8]) -> bool {
        read_u64(self.bytes, 48) == jpeg.len() as u64 && read_u64(self.bytes, 56) == hash(jpeg)
    }

    /// Block rows of a component, and groups in each.
    pub(crate) fn size(&self, c: usize) -> (usize, usize) {
        (self.layouts[c].rows, self.layouts[c].groups)
    }

    /// What coefficients of each component are multiplied by.
    pub(crate) fn quant(&self) -> &[[u16; 64]; 4] {
        &self.quant
    }

    /// The groups from number `from` to number `to` of a block row.
    pub(crate) fn run(&self, c: usize, row: usize, from: usize, to: usize) -> Result<Run<'a>> {
        let Layout { table, groups, .. } = self.layouts[c];
        let at = table + 4 * row;
        let run = || {
            let content = &self.bytes[..self.bytes.len() - CHECKSUM];
            let offset = |at: usize| read_u32(content, at) as usize;
            // Rows follow each other, so the offset of the row after this one is where it ends.
            let end = if at + 4 < self.rows_end() { offset(at + 4) } else { content.len() };
            let start = offset(at);
            let row = content.get(start..end)?;
            let (heads, _) = row.split_at_checked(groups * HEAD)?;
            let bodies = &content[start + heads.len()..];
            let end = row.len() - heads.len();
            let all = Run { heads: heads.as_chunks().0, bodies, end };
            let (_, run) = all.split(from)?;
            Some(Run { heads: run.heads.get(..to.checked_sub(from)?)?, ..run })
        };
        run().ok_or_else(|| damaged(at))
    }

    /// Where the row table ends.
    fn rows_end(&self) -> usize {
        let last = &self.layouts[self.header.components().len() - 1];
        last.table + 4 * last.rows
    }
}

/// Where the rows of all components are, given where the row table begins; and where it ends.
fn layouts(header: &Header, table: usize) -> ([Layout; 4], usize) {
    let frame = Frame::new(header, Scale::Full);
    let (mut layouts, mut end) = ([Layout::default(); 4], table);
    for (layout, plane) in layouts.iter_mut().zip(frame.all_planes()) {
        let (columns, rows) = plane.blocks;
        *layout = Layout { table: end, rows, groups: columns.div_ceil(4) };
        end += 4 * rows;
    }
    (layouts, end)
}

fn read_u32(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    four.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(four)
}

fn read_u64(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}

fn hash(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

fn truncated(length: usize, expected: u64) -> Error {
    let what = format!("packed coefficients have {length} bytes where {expected} are expected");
    Error::new(ErrorKind::Truncated, what)
}

fn damaged(at: usize) -> Error {
    Error::corrupt("packed coefficients are damaged in a block row").at(at)
}
