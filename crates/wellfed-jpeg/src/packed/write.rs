//! From a JPEG to a record.

use super::{CHECKSUM, COLOURS, FIXED, MAGIC, PROCESSES, VERSION, hash, layouts};
use crate::decoder::{Decoder, check_end};
use crate::frame::Frame;
use crate::header::{File, Header, Process};
use crate::kernels::{HEAD, Head};
use crate::options::Options;
use crate::sequential::GROUP;
use crate::{Error, ErrorKind, Limits, Result, Scale};

/// Bytes of a group's body at most: a map, half a byte for each number, a byte and two for each that needs them.
const MOST: usize = GROUP / 8 + GROUP / 2 + GROUP + 2 * GROUP;

impl Decoder {
    /// Packs a JPEG's coefficients into a record that decodes to the same pixels, several times faster:
    /// [`Packed`](crate::Packed). Files that decoding refuses are refused.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`]; `Limit` also where the coefficients, two bytes each, take more than
    /// [`Limits::max_coefficient_bytes`], or the record more than 4 GiB.
    pub fn pack(&mut self, jpeg: &[u8], limits: &Limits) -> Result<Vec<u8>> {
        self.pack_with(jpeg, &Options { limits: *limits, ..Options::default() })
    }

    /// As [`Decoder::pack`], with the options `limits` and `ask`.
    ///
    /// # Errors
    /// Those of [`Decoder::pack`], and `Memory`.
    pub fn pack_with(&mut self, jpeg: &[u8], options: &Options<'_>) -> Result<Vec<u8>> {
        let options = Options { limits: options.limits, ask: options.ask, ..Options::default() };
        let limits = &options.limits;
        let file = File::open(jpeg, false)?;
        let mut header = file.header;
        let pixels = header.width as u64 * header.height as u64;
        Limits::check("has", pixels, limits.max_pixels, "pixels")?;
        let one_scan =
            header.process != Process::Progressive && file.scan.members().len() == header.components().len();
        let quant = if one_scan {
            let quant =
                self.coefficients.read(self.level, jpeg, file.clone(), &mut self.entropy, &options, true)?;
            check_end(&self.entropy, jpeg, &file, &Frame::new(&header, Scale::Full), false)?;
            quant
        } else {
            self.coefficients.read(self.level, jpeg, file, &mut self.entropy, &options, false)?
        };
        let tables = number_tables(&mut header, &quant);

        let mut record = vec![0; FIXED];
        for &component in &tables {
            record.extend(quant[component].iter().flat_map(|q| q.to_le_bytes()));
        }
        write_head(&header, tables.len(), jpeg, &mut record);
        let (layouts, end) = layouts(&header, record.len());
        options.ask.at_least(&mut record, end)?;
        for (c, layout) in layouts[..header.components().len()].iter().enumerate() {
            let columns = self.coefficients.columns(c);
            for row in 0..layout.rows {
                let start = record.len();
                let Ok(offset) = u32::try_from(start) else {
                    return Err(Error::new(ErrorKind::Limit, "packed coefficients take more than 4 GiB"));
                };
                record[layout.table + 4 * row..][..4].copy_from_slice(&offset.to_le_bytes());
                let groups = self.coefficients.groups(c, row, 0, columns);
                // What lies beyond the last block that the image reaches is never looked at.
                for block in columns..columns.next_multiple_of(4) {
                    let place = block / 4 * GROUP + block % 4 * 8;
                    (0..8).for_each(|r| groups[place + 32 * r..][..8].fill(0));
                }
                options.ask.reserve(&mut record, layout.groups * (HEAD + MOST))?;
                record.resize(start + layout.groups * HEAD, 0);
                for (g, group) in groups.as_chunks().0.iter().enumerate() {
                    let head = write_group(group, &mut record);
                    let place = record[start + g * HEAD..].first_chunk_mut();
                    head.write(place.expect("room was made for all heads"));
                }
            }
        }
        let length = (record.len() + CHECKSUM) as u64;
        record[40..48].copy_from_slice(&length.to_le_bytes());
        let checksum = hash(&record);
        record.extend(checksum.to_le_bytes());
        Ok(record)
    }
}

/// Lets components name their quantization tables by the order of first use; gives the components that have them.
fn number_tables(header: &mut Header, quant: &[[u16; 64]; 4]) -> Vec<usize> {
    let mut tables: Vec<usize> = Vec::new();
    for (c, component) in header.components_mut().iter_mut().enumerate() {
        let number = tables.iter().position(|&t| quant[t] == quant[c]).unwrap_or_else(|| {
            tables.push(c);
            tables.len() - 1
        });
        component.quant = number as u8;
    }
    tables
}

/// Writes everything but the record's length.
fn write_head(header: &Header, tables: usize, jpeg: &[u8], record: &mut [u8]) {
    let position = |found: Option<usize>| found.expect("the format has a number for each") as u8;
    record[..4].copy_from_slice(&MAGIC);
    record[4] = VERSION;
    record[5] = header.components().len() as u8;
    record[6] = position(COLOURS.iter().position(|&c| c == header.colour));
    record[7] = position(PROCESSES.iter().position(|&p| p == header.process));
    record[8..10].copy_from_slice(&(header.width as u16).to_le_bytes());
    record[10..12].copy_from_slice(&(header.height as u16).to_le_bytes());
    record[12] = header.orientation;
    record[13] = u8::from(header.adobe);
    if let Some(density) = header.density {
        // Units that no standard knows count as none.
        record[14] = 1 + density.unit.min(2);
        record[16..18].copy_from_slice(&density.x.to_le_bytes());
        record[18..20].copy_from_slice(&density.y.to_le_bytes());
    }
    record[15] = tables as u8;
    record[20..22].copy_from_slice(&header.restart_interval.to_le_bytes());
    for (c, component) in header.components().iter().enumerate() {
        let sampling = component.horizontal << 4 | component.vertical;
        record[24 + 4 * c..][..3].copy_from_slice(&[component.id, sampling, component.quant]);
    }
    record[48..56].copy_from_slice(&(jpeg.len() as u64).to_le_bytes());
    record[56..64].copy_from_slice(&hash(jpeg).to_le_bytes());
}

/// Appends the body of a group, and gives its head.
///
/// Looks only at coefficients other than zero, of which there are few: an eighth of the time of a look at each.
pub(super) fn write_group(group: &[i16; GROUP], record: &mut Vec<u8>) -> Head {
    let start = record.len();
    let mut present = 0;
    let mut map = [0u64; 4];
    for (i, eight) in group.as_chunks::<8>().0.iter().enumerate() {
        // DC coefficients are the first of the first four eights.
        let byte = bits_of(eight) & if i < 4 { 0xFE } else { 0xFF };
        if byte != 0 {
            present |= 1 << i;
            record.push(byte);
        }
        map[i / 8] |= u64::from(byte) << (8 * (i % 8));
    }
    let (mut bytes, mut words) = ([0u8; GROUP], [[0u8; 2]; GROUP]);
    let (mut escaped, mut wide) = (0, 0);
    for (quarter, mut map) in group.as_chunks::<64>().0.iter().zip(map) {
        let (mut numbers, mut count) = ([0u8; 32], 0);
        while map != 0 {
            let value = quarter[map.trailing_zeros() as usize];
            map &= map - 1;
            let mut number = value.wrapping_add(8) as u8;
            if !(-7..=7).contains(&value) {
                number = 0;
                bytes[escaped] = value as u8;
                if !(-127..=127).contains(&value) {
                    bytes[escaped] = 0x80;
                    words[wide] = value.to_le_bytes();
                    wide += 1;
                }
                escaped += 1;
            }
            numbers[count / 2] |= number << (4 * (count % 2));
            count += 1;
        }
        record.extend_from_slice(&numbers[..count.div_ceil(2)]);
    }
    record.extend_from_slice(&bytes[..escaped]);
    record.extend_from_slice(words[..wide].as_flattened());
    Head { size: record.len() - start, present, dc: std::array::from_fn(|b| group[8 * b]) }
}

/// Bit i is set if number i is not zero.
fn bits_of(eight: &[i16; 8]) -> u8 {
    let flags = eight.map(|value| u8::from(value != 0));
    // Byte i of the flags moves to bit 56 + i; no two products meet, so nothing carries.
    (u64::from_le_bytes(flags).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
