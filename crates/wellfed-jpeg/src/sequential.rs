//! Entropy decoding of sequential scans, block after block: the loop that takes most of a decode's time.
//!
//! Written so that the compiler proves every access in range and no bounds checks remain: table indices have as
//! many bits as the table, coefficients are written into windows of 256 through indices of eight bits.

use std::hint::select_unpredictable;

use crate::bits::Bits;
use crate::entropy::{Predictors, Stream};
use crate::header::ZIGZAG;
use crate::huffman::{DC_BITS, END, LOOKUP_BITS, PairTables as Tables, extend};
use crate::level::Level;

/// Coefficients of four neighbouring blocks: row `r`, column `c` of block `b` at `32 r + 8 b + c`.
pub(crate) const GROUP: usize = 256;

/// Where coefficients lie in a group, by their number in the file's order, for the group's first block. What
/// comes after the last coefficient (in damaged data) is written over the last, as in libjpeg.
pub(crate) static PLACES: [u8; 256] = {
    let mut places = [231; 256];
    let mut k = 0;
    while k < 64 {
        places[k] = ZIGZAG[k] / 8 * 32 + ZIGZAG[k] % 8;
        k += 1;
    }
    places
};

/// A block to decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Which of the scan's lookup tables.
    pub(crate) table: u8,
    /// Which predictor.
    pub(crate) component: u8,
    /// Index of its first coefficient. 256 from there must exist.
    pub(crate) place: u32,
}

/// Decodes blocks into `coefficients`, which hold zeros there.
#[inline(always)]
fn decode(
    from: &mut Bits<'_>,
    blocks: &[Block],
    tables: &Tables,
    predictors: &mut Predictors,
    coefficients: &mut [i16],
) {
    let mut bits = *from;
    for block in blocks {
        let lookup = tables.lookup(block.table);
        let place = block.place as usize;
        let out: &mut [i16; GROUP] =
            (&mut coefficients[place..place + GROUP]).try_into().expect("a slice of 256");
        let predictor = &mut predictors[usize::from(block.component & 3)];
        let (mut k, last) = start(&mut bits, tables, block.table, predictor);
        out[place_of(k)] = last as i16;
        out[0] = *predictor as i16;
        // Each lookup waits for the one before, and nothing else should be in between: the index is taken from what
        // is there (`MAX_BITS` keeps enough), and more is loaded while the table answers.
        while k < 63 {
            let mut first;
            let mut at;
            macro_rules! symbols {
                ($done:lifetime, $refill:expr) => {{
                    at = bits.peek(LOOKUP_BITS) as usize;
                    if $refill {
                        bits.refill();
                    }
                    first = k + u32::from(lookup.ac[at].first_run);
                    let second = first + u32::from(lookup.ac[at].second_run);
                    out[place_of(first)] = lookup.ac[at].value;
                    out[place_of(second)] =
                        extend(bits.shifted(lookup.ac[at].shift), lookup.ac[at].size) as i16;
                    if second >= 63 {
                        break $done;
                    }
                    k = second;
                    bits.skip(u32::from(lookup.ac[at].bits));
                }};
            }
            'done: loop {
                symbols!('done, false);
                symbols!('done, true);
            }
            let mut entry = lookup.ac[at];
            if entry.bits == 0 {
                bits.refill();
                entry = tables.slow(block.table, false, bits.peek(16));
                first = k + u32::from(entry.first_run);
                out[place_of(first)] = extend(bits.shifted(entry.shift), entry.size) as i16;
                bits.skip(u32::from(entry.bits));
                k = first;
                continue;
            }
            k = 63;
            if is_full(first) {
                unlikely();
                // A block that ends with its last coefficient has no end of block: what follows is another's.
                if entry.second_run != 0 {
                    out[place_of(63)] = entry.value;
                }
                bits.skip(u32::from(entry.first_bits));
            } else {
                bits.skip(u32::from(entry.bits));
            }
        }
    }
    *from = bits;
}

/// Reads a block's DC difference into its predictor, and the first AC symbol if the lookup has it: the number of the
/// last coefficient that was read, and its value (0 and the difference if there is only that).
#[inline(always)]
fn start(bits: &mut Bits<'_>, tables: &Tables, table: u8, predictor: &mut i32) -> (u32, i32) {
    let at = bits.peek(DC_BITS) as usize;
    bits.refill();
    let mut entry = tables.lookup(table).dc[at];
    if entry.bits == 0 {
        entry = tables.slow(table, true, bits.peek(16));
    }
    let k = u32::from(entry.second_run);
    let last = extend(bits.shifted(entry.shift), entry.size);
    let difference = select_unpredictable(k == 0, last, i32::from(entry.value));
    bits.skip(u32::from(entry.bits));
    *predictor = predictor.wrapping_add(difference);
    (k, last)
}

/// Where coefficient `k` lies; `k` is at most 62 and two runs.
#[inline(always)]
fn place_of(k: u32) -> usize {
    const { assert!(62 + 2 * (END as usize) < 256) };
    debug_assert!(k < 256);
    // SAFETY: no run of an entry is longer than `END`. Measured: 4 % of the time of a decode.
    usize::from(unsafe { *PLACES.get_unchecked(k as usize) })
}

/// True for the last coefficient, and for what is beyond it but not as far as an end of block reaches: damage,
/// which ends the block as well.
#[inline(always)]
fn is_full(k: u32) -> bool {
    k.wrapping_sub(63) < 17
}

/// Marks a branch that is seldom taken.
#[cold]
#[inline(always)]
fn unlikely() {}

/// Passes over the blocks of `mcus` MCUs, keeping only the predictors.
#[inline(always)]
fn pass(from: &mut Bits<'_>, mcu: &[Block], mcus: usize, tables: &Tables, predictors: &mut Predictors) {
    let mut bits = *from;
    for _ in 0..mcus {
        for block in mcu {
            let lookup = tables.lookup(block.table);
            let predictor = &mut predictors[usize::from(block.component & 3)];
            let (mut k, _) = start(&mut bits, tables, block.table, predictor);
            while k < 63 {
                let mut first;
                let mut at;
                macro_rules! symbols {
                    ($done:lifetime, $refill:expr) => {{
                        at = bits.peek(LOOKUP_BITS) as usize;
                        if $refill {
                            bits.refill();
                        }
                        first = k + u32::from(lookup.ac[at].first_run);
                        let second = first + u32::from(lookup.ac[at].second_run);
                        if second >= 63 {
                            break $done;
                        }
                        k = second;
                        bits.skip(u32::from(lookup.ac[at].bits));
                    }};
                }
                'done: loop {
                    symbols!('done, false);
                    symbols!('done, true);
                }
                let mut entry = lookup.ac[at];
                if entry.bits == 0 {
                    bits.refill();
                    entry = tables.slow(block.table, false, bits.peek(16));
                    first = k + u32::from(entry.first_run);
                    bits.skip(u32::from(entry.bits));
                    k = first;
                    continue;
                }
                k = 63;
                if is_full(first) {
                    unlikely();
                    bits.skip(u32::from(entry.first_bits));
                } else {
                    bits.skip(u32::from(entry.bits));
                }
            }
        }
    }
    *from = bits;
}

/// Both loops compiled for processors that shift without flags.
#[cfg(target_arch = "x86_64")]
mod bmi2 {
    use super::{Bits, Block, Predictors, Tables};

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    pub(super) fn decode(
        from: &mut Bits<'_>,
        blocks: &[Block],
        tables: &Tables,
        predictors: &mut Predictors,
        coefficients: &mut [i16],
    ) {
        super::decode(from, blocks, tables, predictors, coefficients);
    }

    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt")]
    pub(super) fn pass(
        from: &mut Bits<'_>,
        mcu: &[Block],
        mcus: usize,
        tables: &Tables,
        predictors: &mut Predictors,
    ) {
        super::pass(from, mcu, mcus, tables, predictors);
    }
}

fn decode_at(
    level: Level,
    from: &mut Bits<'_>,
    blocks: &[Block],
    tables: &Tables,
    predictors: &mut Predictors,
    coefficients: &mut [i16],
) {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: decoders hold no level that the processor lacks, and these levels include BMI1, BMI2 and LZCNT.
        // Measured: a fifth less time than the portable code.
        return unsafe { bmi2::decode(from, blocks, tables, predictors, coefficients) };
    }
    let _ = level;
    decode(from, blocks, tables, predictors, coefficients);
}

fn pass_at(
    level: Level,
    from: &mut Bits<'_>,
    mcu: &[Block],
    mcus: usize,
    tables: &Tables,
    predictors: &mut Predictors,
) {
    #[cfg(target_arch = "x86_64")]
    if level >= Level::Avx2 {
        // SAFETY: as in `decode_at`.
        return unsafe { bmi2::pass(from, mcu, mcus, tables, predictors) };
    }
    let _ = level;
    pass(from, mcu, mcus, tables, predictors);
}

/// Decodes the next MCUs: `blocks` lists their blocks, as many for each as `mcu_blocks` says.
pub(crate) fn decode_mcus(
    level: Level,
    stream: &mut Stream<'_>,
    blocks: &[Block],
    mcu_blocks: usize,
    tables: &Tables,
    coefficients: &mut [i16],
) {
    let mut rest = blocks;
    while !rest.is_empty() {
        let n = stream.take(rest.len() / mcu_blocks);
        let (now, later) = rest.split_at(n * mcu_blocks);
        rest = later;
        if stream.exhausted {
            continue;
        }
        let start = (stream.bits, stream.predictors);
        decode_at(level, &mut stream.bits, now, tables, &mut stream.predictors, coefficients);
        if !stream.overran() {
            continue;
        }
        // The data ended on the way: MCUs after the one in which they did stay empty.
        for block in now {
            clear(coefficients, block);
        }
        (stream.bits, stream.predictors) = start;
        for mcu in now.chunks(mcu_blocks) {
            decode_at(level, &mut stream.bits, mcu, tables, &mut stream.predictors, coefficients);
            if stream.overran() {
                stream.exhausted = true;
                break;
            }
        }
    }
}

fn clear(coefficients: &mut [i16], block: &Block) {
    for row in coefficients[block.place as usize..].chunks_mut(32).take(8) {
        row[..8].fill(0);
    }
}

/// Passes over the next `mcus` MCUs.
pub(crate) fn skip_mcus(
    level: Level,
    stream: &mut Stream<'_>,
    mut mcus: usize,
    mcu: &[Block],
    tables: &Tables,
) {
    while mcus > 0 {
        let n = stream.take(mcus);
        mcus -= n;
        if !stream.exhausted {
            pass_at(level, &mut stream.bits, mcu, n, tables, &mut stream.predictors);
            stream.exhausted = stream.overran();
        }
    }
}
