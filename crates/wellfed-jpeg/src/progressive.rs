//! Entropy decoding of progressive scans: T.81 annex G, with damaged data handled as in libjpeg (`jdphuff.c`).

use crate::bits::Bits;
use crate::entropy::Stream;
use crate::header::{Scan, Tables};
use crate::huffman::{SymbolTable, extend};
use crate::sequential::{Block, PLACES};
use crate::{Error, Result};

/// What a scan brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    DcFirst,
    DcRefine,
    AcFirst,
    AcRefine,
}

/// A decoder of one scan.
pub(crate) struct ScanDecoder {
    kind: Kind,
    /// First and last coefficient.
    start: u32,
    end: u32,
    /// Bit position of the scan.
    low: u32,
    /// For each member of the scan.
    tables: [SymbolTable; 4],
}

impl ScanDecoder {
    /// Checks what a scan header says; what breaks the order of scans is not looked at, as in libjpeg.
    pub(crate) fn new(scan: &Scan, tables: &Tables) -> Result<Self> {
        let (start, end) = scan.band;
        let dc = start == 0;
        let bad = if dc { end != 0 } else { start > end || end > 63 || scan.members().len() != 1 };
        if bad || scan.high != 0 && scan.low + 1 != scan.high || scan.low > 13 {
            return Err(Error::corrupt(format!(
                "JPEG has a progressive scan of {} components, coefficients {start} to {end}, bits {} to {}",
                scan.members().len(),
                scan.high,
                scan.low
            )));
        }
        let kind = match (dc, scan.high) {
            (true, 0) => Kind::DcFirst,
            (true, _) => Kind::DcRefine,
            (false, 0) => Kind::AcFirst,
            (false, _) => Kind::AcRefine,
        };
        let mut symbols: [SymbolTable; 4] = Default::default();
        if kind != Kind::DcRefine {
            for (table, member) in symbols.iter_mut().zip(scan.members()) {
                let number = if dc { member.dc } else { member.ac };
                table.build(tables.defined_huffman(!dc, number)?);
            }
        }
        Ok(ScanDecoder { kind, start: start.into(), end: end.into(), low: scan.low.into(), tables: symbols })
    }

    /// Decodes blocks, `mcu_blocks` to an MCU.
    pub(crate) fn run(&self, stream: &mut Stream<'_>, blocks: &[Block], mcu_blocks: usize, data: &mut [i16]) {
        let mut rest = blocks;
        while !rest.is_empty() {
            let n = stream.take(rest.len() / mcu_blocks);
            let (now, later) = rest.split_at(n * mcu_blocks);
            rest = later;
            if stream.exhausted {
                continue;
            }
            match self.kind {
                Kind::AcFirst => self.ac_first(stream, now, data),
                Kind::AcRefine => self.ac_refine(stream, now, data),
                Kind::DcFirst => self.mcus(stream, now, mcu_blocks, data, Self::dc_first),
                Kind::DcRefine => self.mcus(stream, now, mcu_blocks, data, Self::dc_refine),
            }
        }
    }

    fn mcus(
        &self,
        stream: &mut Stream<'_>,
        blocks: &[Block],
        mcu_blocks: usize,
        data: &mut [i16],
        decode: impl Fn(&Self, &mut Stream<'_>, &Block, &mut [i16]),
    ) {
        for mcu in blocks.chunks(mcu_blocks) {
            for block in mcu {
                decode(self, stream, block, data);
            }
            if stream.overran() {
                stream.exhausted = true;
                return;
            }
        }
    }

    #[inline]
    fn dc_first(&self, stream: &mut Stream<'_>, block: &Block, data: &mut [i16]) {
        let bits = &mut stream.bits;
        bits.refill();
        let (size, length) = self.tables[usize::from(block.table & 3)].look_up(bits);
        let end = length + u32::from(size);
        let difference = extend(bits.shifted((64 - end) as u8), size);
        bits.skip(end);
        let predictor = &mut stream.predictors[usize::from(block.component & 3)];
        *predictor = predictor.wrapping_add(difference);
        data[block.place as usize] = (*predictor << self.low) as i16;
    }

    #[inline]
    fn dc_refine(&self, stream: &mut Stream<'_>, block: &Block, data: &mut [i16]) {
        stream.bits.refill();
        data[block.place as usize] |= (stream.bits.peek(1) << self.low) as i16;
        stream.bits.skip(1);
    }

    fn ac_first(&self, stream: &mut Stream<'_>, blocks: &[Block], data: &mut [i16]) {
        let table = &self.tables[0];
        let mut i = 0;
        while i < blocks.len() {
            if stream.end_of_band_run > 0 {
                let n = (stream.end_of_band_run as usize).min(blocks.len() - i);
                stream.end_of_band_run -= n as u32;
                i += n;
                continue;
            }
            let place = blocks[i].place as usize;
            i += 1;
            let out: &mut [i16; 256] = (&mut data[place..place + 256]).try_into().expect("a slice of 256");
            let mut bits = stream.bits;
            let mut k = self.start;
            while k <= self.end {
                bits.refill();
                let (symbol, length) = table.look_up(&bits);
                let (run, size) = (u32::from(symbol >> 4), symbol & 15);
                if size != 0 {
                    k += run;
                    let end = length + u32::from(size);
                    let value = extend(bits.shifted((64 - end) as u8), size);
                    bits.skip(end);
                    out[usize::from(PLACES[(k & 255) as usize])] = (value << self.low) as i16;
                    k += 1;
                } else if run == 15 {
                    bits.skip(length);
                    k += 16;
                } else {
                    bits.skip(length);
                    stream.end_of_band_run = end_of_band(&mut bits, run) - 1;
                    break;
                }
            }
            stream.bits = bits;
            if stream.overran() {
                stream.exhausted = true;
                return;
            }
        }
    }

    fn ac_refine(&self, stream: &mut Stream<'_>, blocks: &[Block], data: &mut [i16]) {
        let table = &self.tables[0];
        let (plus, minus) = ((1i32 << self.low) as i16, (-1i32 << self.low) as i16);
        for block in blocks {
            let place = block.place as usize;
            let out: &mut [i16; 256] = (&mut data[place..place + 256]).try_into().expect("a slice of 256");
            let mut bits = stream.bits;
            let mut k = self.start;
            if stream.end_of_band_run == 0 {
                while k <= self.end {
                    bits.refill();
                    let (symbol, length) = table.look_up(&bits);
                    bits.skip(length);
                    let (mut run, size) = (u32::from(symbol >> 4), symbol & 15);
                    let mut value = 0;
                    if size != 0 {
                        // A new coefficient has one bit; other sizes are damage and taken for one.
                        value = if bits.peek(1) != 0 { plus } else { minus };
                        bits.skip(1);
                    } else if run != 15 {
                        stream.end_of_band_run = end_of_band(&mut bits, run);
                        break;
                    }
                    // Over coefficients that are there, and `run` that are not, to the new one's place.
                    while k <= self.end {
                        let coefficient = &mut out[usize::from(PLACES[(k & 255) as usize])];
                        if *coefficient != 0 {
                            refine(coefficient, &mut bits, plus, minus);
                        } else if run == 0 {
                            break;
                        } else {
                            run -= 1;
                        }
                        k += 1;
                    }
                    if value != 0 {
                        out[usize::from(PLACES[(k & 255) as usize])] = value;
                    }
                    k += 1;
                }
            }
            if stream.end_of_band_run > 0 {
                while k <= self.end {
                    let coefficient = &mut out[usize::from(PLACES[(k & 255) as usize])];
                    if *coefficient != 0 {
                        refine(coefficient, &mut bits, plus, minus);
                    }
                    k += 1;
                }
                stream.end_of_band_run -= 1;
            }
            stream.bits = bits;
            if stream.overran() {
                stream.exhausted = true;
                return;
            }
        }
    }
}

/// Blocks that end with an end-of-band symbol of `size`, this one included.
#[inline]
fn end_of_band(bits: &mut Bits<'_>, size: u32) -> u32 {
    if size == 0 {
        return 1;
    }
    let run = (1 << size) + bits.peek(size);
    bits.skip(size);
    run
}

/// Reads a correction bit for a coefficient that is not zero.
#[inline]
fn refine(coefficient: &mut i16, bits: &mut Bits<'_>, plus: i16, minus: i16) {
    bits.refill();
    let corrected = bits.peek(1) != 0 && *coefficient & plus == 0;
    bits.skip(1);
    if corrected {
        *coefficient = coefficient.wrapping_add(if *coefficient >= 0 { plus } else { minus });
    }
}
