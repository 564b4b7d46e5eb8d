//! Huffman tables: as the file has them ([`Spec`]), and as the decoder reads them ([`PairTables`]).
//!
//! One look at the next ten bits gives up to two symbols and the first one's value. Each bit pattern's [`Entry`]
//! says how many bits both take, how far each moves through the block, and how many value bits the second has.
//! Nearly all photographs carry tables of their own, so that building counts: the second symbols that can follow
//! after `t` bits are laid out once for each `t`, and a first symbol's entries are then sums over consecutive
//! memory, which compilers turn into vector code.

use crate::bits::Bits;
use crate::{Error, Result};

/// Bits that one lookup sees.
pub(crate) const LOOKUP_BITS: u32 = 10;

/// Entries of one lookup table.
const SIZE: usize = 1 << LOOKUP_BITS;

/// Bits that the lookup at the start of a block sees: fewer, as it comes once a block, and all entries of a table
/// are as likely as each other. Tables of ten bits would leave no room in the first cache for the coefficients.
pub(crate) const DC_BITS: u32 = 8;

/// How far the end of a block moves: past every coefficient, and past what a damaged run can reach.
pub(crate) const END: u8 = 81;

/// Most bits that a symbol with its value may take to be looked up. What is longer takes the slow path, which takes
/// up to 31 bits: both together leave as many of 64 as the next lookup sees.
const MAX_BITS: u32 = 64 - 31 - LOOKUP_BITS;

/// A Huffman table as in the file: how many codes there are of each length 1 to 16, and their symbols in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spec {
    counts: [u8; 16],
    symbols: [u8; 256],
}

impl Spec {
    /// A table that is not checked yet: `symbols` are as many as the counts say, at most 256.
    pub(crate) fn new(counts: [u8; 16], symbols: &[u8]) -> Result<Self> {
        let total: usize = counts.iter().map(|&n| usize::from(n)).sum();
        if total > 256 || symbols.len() != total {
            return Err(Error::corrupt(format!(
                "Huffman table of {total} codes has {} symbols",
                symbols.len()
            )));
        }
        let mut spec = Spec { counts, symbols: [0; 256] };
        spec.symbols[..total].copy_from_slice(symbols);
        Ok(spec)
    }

    /// How many codes there are of 1 to 16 bits.
    pub(crate) fn counts(&self) -> &[u8; 16] {
        &self.counts
    }

    /// Symbols by their codes, shorter ones first, and zeros.
    pub(crate) fn symbols(&self) -> &[u8; 256] {
        &self.symbols
    }

    /// Refuses what libjpeg refuses when a scan uses the table (`jpeg_make_d_derived_tbl`): more codes than a
    /// length has room for, with the one of all ones left free; DC symbols of more than 15 bits.
    pub(crate) fn check(&self, is_dc: bool) -> Result<()> {
        let mut code = 0u32;
        for (&count, length) in self.counts.iter().zip(1..) {
            code += u32::from(count);
            if count > 0 && code >= 1 << length {
                return Err(Error::corrupt(format!("Huffman table has too many codes of {length} bits")));
            }
            code <<= 1;
        }
        match self.codes().find(|&(symbol, ..)| is_dc && symbol > 15) {
            Some((symbol, ..)) => Err(Error::corrupt(format!("DC Huffman table has the symbol {symbol}"))),
            None => Ok(()),
        }
    }

    /// Symbols with the length and the left-aligned 16 bits of their codes, in order.
    fn codes(&self) -> impl Iterator<Item = (u8, u32, u32)> {
        let lengths = self.counts.iter().zip(1u32..).flat_map(|(&n, length)| (0..n).map(move |_| length));
        let mut next = 0u32;
        self.symbols.iter().zip(lengths).map(move |(&symbol, length)| {
            let code = next;
            next += 1 << (16 - length);
            (symbol, length, code)
        })
    }

    /// The symbol whose code the 16 bits begin with, and the code's length. Bits that begin no code count as a
    /// code of 17 bits for symbol 0, as in libjpeg (`jpeg_huff_decode`).
    pub(crate) fn find(&self, bits: u32) -> (u8, u32) {
        self.find_from(1, 0, 0, bits)
    }

    /// [`Spec::find`] among codes of at least `length` bits, of which `code` is the first, left-aligned in 16 bits,
    /// and `index` its place among the symbols.
    fn find_from(&self, length: u32, mut code: u32, mut index: usize, bits: u32) -> (u8, u32) {
        for (&count, length) in self.counts.iter().zip(1u32..).skip(length as usize - 1) {
            let step = 16 - length;
            let n = bits.wrapping_sub(code) >> step;
            if bits >= code && n < u32::from(count) {
                return (self.symbols[index + n as usize], length);
            }
            code += u32::from(count) << step;
            index += usize::from(count);
        }
        (0, 17)
    }

    /// The tables of T.81 annex K.3, which libjpeg-turbo assumes where a file has none (as Motion JPEG frames).
    pub(crate) fn standard(ac: bool, chroma: bool) -> Spec {
        const DC: [[u8; 16]; 2] = [
            [0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0],
            [0, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0],
        ];
        if ac {
            let (counts, symbols) = &AC[usize::from(chroma)];
            return Spec::new(*counts, symbols).expect("the standard's tables are valid");
        }
        let symbols: [u8; 12] = std::array::from_fn(|i| i as u8);
        Spec::new(DC[usize::from(chroma)], &symbols).expect("the standard's tables are valid")
    }
}

/// AC tables for luma and chroma, T.81 tables K.5 and K.6.
const AC: [([u8; 16], [u8; 162]); 2] = [
    (
        [0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125],
        [
            0x01, 0x02, 0x03, 0x00, 0x04, 0x11, 0x05, 0x12, 0x21, 0x31, 0x41, 0x06, 0x13, 0x51, 0x61, 0x07,
            0x22, 0x71, 0x14, 0x32, 0x81, 0x91, 0xa1, 0x08, 0x23, 0x42, 0xb1, 0xc1, 0x15, 0x52, 0xd1, 0xf0,
            0x24, 0x33, 0x62, 0x72, 0x82, 0x09, 0x0a, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x25, 0x26, 0x27, 0x28,
            0x29, 0x2a, 0x34, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48, 0x49,
            0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69,
            0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88, 0x89,
            0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7,
            0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3, 0xc4, 0xc5,
            0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda, 0xe1, 0xe2,
            0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf1, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
            0xf9, 0xfa,
        ],
    ),
    (
        [0, 2, 1, 2, 4, 4, 3, 4, 7, 5, 4, 4, 0, 1, 2, 119],
        [
            0x00, 0x01, 0x02, 0x03, 0x11, 0x04, 0x05, 0x21, 0x31, 0x06, 0x12, 0x41, 0x51, 0x07, 0x61, 0x71,
            0x13, 0x22, 0x32, 0x81, 0x08, 0x14, 0x42, 0x91, 0xa1, 0xb1, 0xc1, 0x09, 0x23, 0x33, 0x52, 0xf0,
            0x15, 0x62, 0x72, 0xd1, 0x0a, 0x16, 0x24, 0x34, 0xe1, 0x25, 0xf1, 0x17, 0x18, 0x19, 0x1a, 0x26,
            0x27, 0x28, 0x29, 0x2a, 0x35, 0x36, 0x37, 0x38, 0x39, 0x3a, 0x43, 0x44, 0x45, 0x46, 0x47, 0x48,
            0x49, 0x4a, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68,
            0x69, 0x6a, 0x73, 0x74, 0x75, 0x76, 0x77, 0x78, 0x79, 0x7a, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87,
            0x88, 0x89, 0x8a, 0x92, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99, 0x9a, 0xa2, 0xa3, 0xa4, 0xa5,
            0xa6, 0xa7, 0xa8, 0xa9, 0xaa, 0xb2, 0xb3, 0xb4, 0xb5, 0xb6, 0xb7, 0xb8, 0xb9, 0xba, 0xc2, 0xc3,
            0xc4, 0xc5, 0xc6, 0xc7, 0xc8, 0xc9, 0xca, 0xd2, 0xd3, 0xd4, 0xd5, 0xd6, 0xd7, 0xd8, 0xd9, 0xda,
            0xe2, 0xe3, 0xe4, 0xe5, 0xe6, 0xe7, 0xe8, 0xe9, 0xea, 0xf2, 0xf3, 0xf4, 0xf5, 0xf6, 0xf7, 0xf8,
            0xf9, 0xfa,
        ],
    ),
];

/// What the next ten bits say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct Entry {
    /// Bits of both symbols with their values; 0 if ten bits are not enough, see [`PairTables::slow`].
    pub(crate) bits: u8,
    /// 64 less these bits: the shift that brings the last symbol's value down.
    pub(crate) shift: u8,
    /// Value bits of the last symbol, which end the entry's bits.
    pub(crate) size: u8,
    /// Coefficients from the last one before to the first symbol's.
    pub(crate) first_run: u8,
    /// Coefficients from there to the second symbol's; 0 if there is no second.
    pub(crate) second_run: u8,
    /// Bits of the first symbol with its value.
    pub(crate) first_bits: u8,
    /// Value of the first symbol, if there is a second.
    pub(crate) value: i16,
}

impl Entry {
    /// Ten bits that are not enough. Ends the block, so that nothing but the end needs to look for it.
    pub(crate) const SLOW: Entry =
        Entry { bits: 0, shift: 0, size: 0, first_run: END, second_run: 0, first_bits: 0, value: 0 };

    #[inline]
    fn from_bits(bits: u64) -> Self {
        let [bits, shift, size, first_run, second_run, first_bits, low, high] = bits.to_le_bytes();
        Entry { bits, shift, size, first_run, second_run, first_bits, value: i16::from_le_bytes([low, high]) }
    }

    /// As an integer, for sums over fields that do not overlap.
    fn to_bits(self) -> u64 {
        let [low, high] = self.value.to_le_bytes();
        let Entry { bits, shift, size, first_run, second_run, first_bits, .. } = self;
        u64::from_le_bytes([bits, shift, size, first_run, second_run, first_bits, low, high])
    }

    /// One symbol alone, whose value is still to be read.
    fn single(symbol: Symbol) -> Self {
        let bits = (symbol.length + u32::from(symbol.size)) as u8;
        let Symbol { run: first_run, size, .. } = symbol;
        Entry { bits, shift: 64 - bits, size, first_run, second_run: 0, first_bits: bits, value: 0 }
    }

    /// The first of two symbols, to which the second is added.
    fn first(symbol: Symbol, value: i16) -> Self {
        Entry { size: 0, value, ..Entry::single(symbol) }
    }

    /// What a second symbol adds: its bits and value bits to those of the first, and its run. It takes its bits
    /// from the shift, too: as 256 would be carried into the next field, the sum is one short there.
    fn second(symbol: Symbol) -> u64 {
        let bits = symbol.length as u64 + u64::from(symbol.size);
        (bits | u64::from(symbol.size) << 16 | u64::from(symbol.run) << 32).wrapping_sub(bits << 8)
    }
}

/// A symbol: its code's length, how far it moves through the block, the bits of its value.
#[derive(Clone, Copy)]
struct Symbol {
    length: u32,
    run: u8,
    size: u8,
}

impl Symbol {
    fn new(symbol: u8, length: u32, ac: bool) -> Self {
        let (run, size) = match (ac, symbol >> 4, symbol & 15) {
            (false, _, _) => (0, symbol),
            // Only a run of 15 goes on; the others that have no value end the block.
            (true, 15, 0) => (16, 0),
            (true, _, 0) => (END, 0),
            (true, run, size) => (run + 1, size),
        };
        Symbol { length, run, size }
    }
}

/// What the value bits of a symbol mean, by their number; 256 entries, so that a byte needs no check.
#[derive(Debug)]
pub(crate) struct Values {
    /// The bits themselves.
    masks: [u32; 256],
    /// The first value that is not negative.
    halves: [i32; 256],
    /// What is added to those below.
    lows: [i32; 256],
}

/// T.81 figure F.12.
pub(crate) static VALUES: Values = {
    let mut values = Values { masks: [0; 256], halves: [0; 256], lows: [0; 256] };
    let mut size = 1;
    while size < 16 {
        values.masks[size] = (1 << size) - 1;
        values.halves[size] = 1 << (size - 1);
        values.lows[size] = 1 - (1 << size);
        size += 1;
    }
    values
};

/// The value that the lowest `size` bits of `bits` stand for, T.81 figure F.12. 0 for a size of 0 or above 15.
#[inline(always)]
pub(crate) fn extend(bits: u32, size: u8) -> i32 {
    let size = usize::from(size);
    let raw = (bits & VALUES.masks[size]) as i32;
    // Signs are as good as random: a branch would be mispredicted half of the time.
    raw + std::hint::select_unpredictable(raw < VALUES.halves[size], VALUES.lows[size], 0)
}

/// Entries for blocks of one DC and one AC table.
#[derive(Clone, Debug)]
pub(crate) struct Lookup {
    /// By the next eight bits at the start of a block.
    pub(crate) dc: [Entry; 1 << DC_BITS],
    /// By the next ten bits after that.
    pub(crate) ac: [Entry; SIZE],
}

/// The first code that is longer than a lookup: left-aligned in 16 bits, and its place among the symbols.
#[derive(Clone, Copy, Debug, Default)]
struct Long {
    code: u32,
    index: usize,
}

/// The lookup tables of a scan, one for each pair of a DC and an AC table that its components use.
#[derive(Clone, Debug)]
pub(crate) struct PairTables {
    lookups: Box<[Lookup; 4]>,
    /// What each was built from.
    specs: [Option<(Spec, Spec)>; 4],
    /// Where the codes begin that are longer than a lookup, for DC and AC.
    long: [[Long; 2]; 4],
    /// AC symbols that may come second after `t` bits: `SIZE >> t` each, one after the other.
    second: Box<[u64; 2 * SIZE]>,
}

impl Default for PairTables {
    fn default() -> Self {
        const SLOW: Lookup = Lookup { dc: [Entry::SLOW; 1 << DC_BITS], ac: [Entry::SLOW; SIZE] };
        let lookups = Box::new([SLOW; 4]);
        PairTables {
            lookups,
            specs: [const { None }; 4],
            long: Default::default(),
            second: Box::new([0; 2 * SIZE]),
        }
    }
}

impl PairTables {
    /// Bytes in memory.
    pub(crate) const BYTES: usize = size_of::<Self>() + 4 * size_of::<Lookup>() + 2 * SIZE * size_of::<u64>();

    /// Builds table `i` of four, unless it is there already.
    pub(crate) fn build(&mut self, i: usize, dc: Spec, ac: Spec) {
        if self.specs[i].as_ref().is_some_and(|(old_dc, old_ac)| *old_dc == dc && *old_ac == ac) {
            return;
        }
        self.fill_second(&ac);
        let Lookup { dc: for_dc, ac: for_ac } = &mut self.lookups[i];
        self.long[i] =
            [fill_pairs(for_dc, &dc, false, &self.second), fill_pairs(for_ac, &ac, true, &self.second)];
        self.specs[i] = Some((dc, ac));
    }

    /// Table `i` of four.
    #[inline(always)]
    pub(crate) fn lookup(&self, i: u8) -> &Lookup {
        &self.lookups[usize::from(i & 3)]
    }

    /// The entry for codes that are longer than the lookup, or have longer values than usual: one symbol, whose
    /// code the 16 bits `next` begin with.
    #[cold]
    #[inline(never)]
    pub(crate) fn slow(&self, i: u8, is_dc: bool, next: u32) -> Entry {
        let i = usize::from(i & 3);
        let Some((dc, ac)) = &self.specs[i] else { return Entry::single(Symbol::new(0, 17, !is_dc)) };
        let (spec, looked_at) = if is_dc { (dc, DC_BITS) } else { (ac, LOOKUP_BITS) };
        let Long { code, index } = self.long[i][usize::from(!is_dc)];
        // Short codes come here only for values that are longer than in 8-bit images.
        let (symbol, length) =
            if next >= code { spec.find_from(looked_at + 1, code, index, next) } else { spec.find(next) };
        Entry::single(Symbol::new(symbol, length, !is_dc))
    }

    /// Lays out what a second symbol adds to an entry whose first took `t` bits, for each `t`.
    fn fill_second(&mut self, ac: &Spec) {
        let mut all = [0u64; SIZE];
        let mut at = 0;
        // How many patterns, from the first, have a code of up to that many bits.
        let mut ends = [0usize; LOOKUP_BITS as usize + 1];
        for (symbol, length, _) in ac.codes() {
            if length > LOOKUP_BITS {
                break;
            }
            let symbol = Symbol::new(symbol, length, true);
            let end = at + (SIZE >> length);
            // Values of more bits than 8-bit images have are left to the slow path.
            all[at..end].fill(if symbol.size <= 11 { Entry::second(symbol) } else { 0 });
            at = end;
            ends[length as usize] = end;
        }
        for length in 1..ends.len() {
            ends[length] = ends[length].max(ends[length - 1]);
        }
        let mut rest = &mut self.second[..];
        for taken in 0..=LOOKUP_BITS {
            let (part, more) = rest.split_at_mut((SIZE >> taken).min(rest.len()));
            rest = more;
            // Codes that fit into what is left come first: codes are in order of their length.
            let fits = ends[(LOOKUP_BITS - taken) as usize];
            let n = fits.div_ceil(1 << taken).min(part.len());
            for (to, from) in part[..n].iter_mut().zip(all.iter().step_by(1 << taken)) {
                *to = *from;
            }
            part[n..].fill(0);
        }
    }
}

/// Fills one lookup table from its codes and from what may follow them.
fn fill_pairs(table: &mut [Entry], spec: &Spec, is_ac: bool, second: &[u64; 2 * SIZE]) -> Long {
    let (size, table_bits) = (table.len(), table.len().ilog2());
    let (mut at, mut index) = (0, 0);
    for (symbol, length, _) in spec.codes() {
        if length > table_bits {
            break;
        }
        index += 1;
        let symbol = Symbol::new(symbol, length, is_ac);
        let end = at + (size >> length);
        let mut slots = &mut table[at..end];
        at = end;
        let bits = length + u32::from(symbol.size);
        let single = if bits > MAX_BITS { Entry::SLOW } else { Entry::single(symbol) };
        if symbol.run == END || bits >= table_bits {
            slots.fill(single);
            continue;
        }
        // `slots` falls into one part for each value, and each part runs through what may come second.
        let part = size >> bits;
        let start = 2 * SIZE - 2 * part;
        let second = &second[start..start + part];
        let single = single.to_bits();
        for raw in 0..1u32 << symbol.size {
            let (now, later) = slots.split_at_mut(part);
            slots = later;
            let value = extend(raw, symbol.size) as i16;
            let pair = Entry::first(symbol, value).to_bits();
            for (slot, &adds) in now.iter_mut().zip(second) {
                *slot = Entry::from_bits(if adds == 0 { single } else { pair.wrapping_add(adds) });
            }
        }
    }
    table[at..].fill(Entry::SLOW);
    Long { code: (at as u32) << (16 - table_bits), index }
}

/// One symbol at a time: what progressive scans need, whose symbols mean other things.
#[derive(Clone, Debug)]
pub(crate) struct SymbolTable {
    /// Symbol and length by the next ten bits; length 0 for longer codes.
    fast: Box<[(u8, u8); SIZE]>,
    spec: Option<Spec>,
}

impl Default for SymbolTable {
    fn default() -> Self {
        SymbolTable { fast: Box::new([(0, 0); SIZE]), spec: None }
    }
}

impl SymbolTable {
    pub(crate) fn build(&mut self, spec: Spec) {
        let mut at = 0;
        for (symbol, length, _) in spec.codes().take_while(|&(_, length, _)| length <= LOOKUP_BITS) {
            let end = at + (SIZE >> length);
            self.fast[at..end].fill((symbol, length as u8));
            at = end;
        }
        self.spec = Some(spec);
    }

    /// The next symbol and the length of its code. At least 17 bits must be loaded.
    #[inline(always)]
    pub(crate) fn look_up(&self, bits: &Bits<'_>) -> (u8, u32) {
        let (symbol, length) = self.fast[bits.peek(LOOKUP_BITS) as usize];
        if length != 0 { (symbol, u32::from(length)) } else { self.slow(bits.peek(16)) }
    }

    #[cold]
    #[inline(never)]
    fn slow(&self, next: u32) -> (u8, u32) {
        self.spec.as_ref().map_or((0, 17), |spec| spec.find(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every bit pattern gives what reading one symbol after the other gives.
    #[test]
    fn pairs_say_what_single_symbols_say() {
        let odd = Spec::new(
            [1; 16],
            &[0x01, 0x00, 0x11, 0x0a, 0xf0, 0x0b, 0x0f, 0x71, 0x02, 0x33, 0x1c, 0xf1, 0x10, 0x20, 0xff, 0xfa],
        )
        .unwrap();
        for ac in [Spec::standard(true, false), Spec::standard(true, true), odd] {
            let dc = Spec::standard(false, false);
            let mut tables = PairTables::default();
            tables.build(1, dc.clone(), ac.clone());
            let Lookup { dc: for_dc, ac: for_ac } = tables.lookup(1);
            for is_dc in [true, false] {
                let (entries, spec) = if is_dc { (&for_dc[..], &dc) } else { (&for_ac[..], &ac) };
                let looked_at = entries.len().ilog2();
                for (&entry, bits) in entries.iter().zip(0u32..) {
                    let (symbol, length) = spec.find(bits << (16 - looked_at));
                    let first = Symbol::new(symbol, length, !is_dc);
                    if entry == Entry::SLOW {
                        assert!(
                            length > looked_at || length + u32::from(first.size) > MAX_BITS,
                            "{bits:010b}"
                        );
                        continue;
                    }
                    let taken = length + u32::from(first.size);
                    assert_eq!(
                        (u32::from(entry.first_bits), entry.first_run),
                        (taken, first.run),
                        "{bits:010b}"
                    );
                    let second = (first.run != END && taken < looked_at).then(|| {
                        let rest = bits << taken & (entries.len() as u32 - 1);
                        let (symbol, length) = ac.find(rest << (16 - looked_at));
                        (Symbol::new(symbol, length, true), taken + length <= looked_at)
                    });
                    if let Some((second, true)) = second
                        && second.size <= 11
                    {
                        let raw = bits >> (looked_at - taken) & ((1 << first.size) - 1);
                        assert_eq!(i32::from(entry.value), extend(raw, first.size));
                        assert_eq!(entry.second_run, second.run);
                        assert_eq!(entry.shift, 64 - entry.bits);
                        assert_eq!(entry.size, second.size);
                        assert_eq!(u32::from(entry.bits), taken + second.length + u32::from(second.size));
                    } else {
                        assert_eq!(
                            (entry.second_run, entry.size, u32::from(entry.bits)),
                            (0, first.size, taken)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn codes_that_begin_nothing_count_as_seventeen_bits() {
        let spec = Spec::new([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[5]).unwrap();
        assert_eq!(spec.find(0x0000), (5, 2));
        assert_eq!(spec.find(0xffff), (0, 17));
    }

    #[test]
    fn tables_that_break_the_rules_are_refused() {
        let counts = |first, second| std::array::from_fn(|i| [first, second].get(i).copied().unwrap_or(0));
        assert!(Spec::new(counts(3, 0), &[1, 2, 3]).unwrap().check(false).is_err());
        assert!(Spec::new(counts(1, 2), &[1, 2, 3]).unwrap().check(false).is_err(), "all ones");
        assert!(Spec::new(counts(1, 1), &[1, 2]).unwrap().check(true).is_ok());
        assert!(Spec::new([0; 16], &[1]).is_err());
        assert!(
            Spec::new([0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[16]).unwrap().check(true).is_err()
        );
    }
}
