//! Files that end within their data, with no marker behind: libjpeg asks for bytes ahead of what it needs, and Pillow
//! takes the file for truncated when there are none, even if the last bits would have done. Whether it comes to that
//! depends on how many bytes libjpeg loads when, which is followed here (`jpeg_fill_bit_buffer` and `decode_mcu_fast` in
//! jdhuff.c). Only such files pay for it.

use crate::Result;
use crate::bits::Bits;
use crate::frame::Frame;
use crate::header::File;
use crate::huffman::SymbolTable;
use crate::trailer::BLOCK;

/// Bytes for each block that must be there for libjpeg's fast loop.
const AHEAD: usize = 512;

/// Data up to the end of the file.
#[derive(Clone, Copy)]
pub(crate) struct Rest<'a> {
    /// The whole file, and where the data begin.
    pub(crate) bytes: &'a [u8],
    pub(crate) start: usize,
    /// They, without stuffing.
    pub(crate) bits: Bits<'a>,
    /// MCUs that they should hold.
    pub(crate) mcus: usize,
}

/// Tables of a block.
struct Kind {
    dc: SymbolTable,
    ac: SymbolTable,
    count: usize,
}

/// What libjpeg knows between MCUs.
#[derive(Clone, Copy)]
struct State<'a> {
    bits: Bits<'a>,
    /// The next byte to load, and the end of what Pillow has read.
    at: usize,
    end: usize,
    /// Bits that are loaded and not used.
    left: u32,
    fast: bool,
}

/// There are not enough bytes, or not for the fast loop.
struct Short;

/// Whether libjpeg gets to the end of the image. `restarts` says whether there are restart markers, with which it
/// has no fast loop.
pub(crate) fn suffices(rest: Rest<'_>, restarts: bool, file: &File<'_>, frame: &Frame) -> Result<bool> {
    let mut kinds = Vec::new();
    for member in file.scan.members() {
        let plane = &frame.all_planes()[member.component];
        let mut kind =
            Kind { dc: SymbolTable::default(), ac: SymbolTable::default(), count: plane.h * plane.v };
        kind.dc.build(file.tables.huffman(false, member.dc)?);
        kind.ac.build(file.tables.huffman(true, member.ac)?);
        kinds.push(kind);
    }
    let blocks: usize = kinds.iter().map(|kind| kind.count).sum();
    let length = rest.bytes.len();
    let end = (rest.start + 1).next_multiple_of(BLOCK).min(length);
    let mut state = State { bits: rest.bits, at: rest.start, end, left: 0, fast: false };
    for _ in 0..rest.mcus {
        loop {
            let fast = !restarts && state.end - state.at >= AHEAD * blocks;
            let mut next = State { fast, ..state };
            let mut done = next.mcu(rest.bytes, &kinds);
            if fast && done.is_err() {
                next = State { fast: false, ..state };
                done = next.mcu(rest.bytes, &kinds);
            }
            match done {
                Ok(()) => {
                    state = next;
                    break;
                }
                Err(Short) if state.end == length => return Ok(false),
                Err(Short) => state.end = (state.end + BLOCK).min(length),
            }
        }
    }
    Ok(true)
}

impl State<'_> {
    fn mcu(&mut self, bytes: &[u8], kinds: &[Kind]) -> std::result::Result<(), Short> {
        for kind in kinds {
            for _ in 0..kind.count {
                let size = self.symbol(bytes, &kind.dc)?;
                self.value(bytes, size)?;
                let mut k = 1;
                while k < 64 {
                    let symbol = self.symbol(bytes, &kind.ac)?;
                    match (symbol >> 4, symbol & 15) {
                        (15, 0) => k += 16,
                        (_, 0) => break,
                        (run, size) => {
                            self.value(bytes, size)?;
                            k += 1 + run;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn symbol(&mut self, bytes: &[u8], table: &SymbolTable) -> std::result::Result<u8, Short> {
        self.bits.refill();
        let (symbol, length) = table.look_up(&self.bits);
        self.bits.skip(length);
        if self.fast {
            self.load_fast(bytes)?;
            self.left -= length;
            return Ok(symbol);
        }
        if self.left < 8 {
            self.load(bytes)?;
        }
        // Longer codes than eight bits take nine, and then one after the other.
        for n in std::iter::once(length.min(9)).chain((9..length).map(|_| 1)) {
            if self.left < n {
                self.load(bytes)?;
            }
            self.left -= n;
        }
        Ok(symbol)
    }

    fn value(&mut self, bytes: &[u8], size: u8) -> std::result::Result<(), Short> {
        let size = u32::from(size);
        self.bits.refill();
        self.bits.skip(size);
        if self.fast && size > 0 {
            self.load_fast(bytes)?;
        } else if self.left < size {
            self.load(bytes)?;
        }
        self.left -= size;
        Ok(())
    }

    /// Loads a byte of data: stuffing goes with it.
    fn byte(&mut self, bytes: &[u8]) -> std::result::Result<(), Short> {
        let rest = &bytes[self.at..self.end];
        let fill = rest.iter().take_while(|&&byte| byte == 0xFF).count();
        let taken = match (fill, rest.get(fill)) {
            (_, None) => return Err(Short),
            (0, _) => 1,
            // Markers do not occur here, and fill bytes are too much for the fast loop.
            (1, Some(_)) => 2,
            _ if self.fast => return Err(Short),
            _ => fill + 1,
        };
        self.at += taken;
        self.left += 8;
        Ok(())
    }

    fn load(&mut self, bytes: &[u8]) -> std::result::Result<(), Short> {
        while self.left < 57 {
            self.byte(bytes)?;
        }
        Ok(())
    }

    fn load_fast(&mut self, bytes: &[u8]) -> std::result::Result<(), Short> {
        if self.left <= 16 { (0..6).try_for_each(|_| self.byte(bytes)) } else { Ok(()) }
    }
}
