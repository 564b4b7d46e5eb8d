//! From frames to spectra: Huffman codes, requantization and stereo, granule by granule.

use std::sync::LazyLock;

use super::{
    bands::{EMPHASIS, LONG_BANDS, SHORT, ranges},
    bits::Bits,
    head::Head,
    huffman::Tables,
    side::{Block, Granule, Side},
};

/// Values of a granule of a channel.
pub(super) const LINES: usize = 576;

/// The spectrum of a granule of a channel, as its transform takes it: short blocks have the values of their three windows in turns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) values: [f32; LINES],
    /// Values from here on are 0.
    pub(super) end: usize,
    pub(super) block: Block,
    /// What the values of each long band are yet to be multiplied by.
    pub(super) gains: [f32; LONG_BANDS],
    /// Whether this is, once it is multiplied, the sum of both channels or their difference.
    pub(super) mid_side: bool,
}

impl Row {
    pub(super) const EMPTY: Self =
        Self { values: [0.0; LINES], end: 0, block: Block::Long, gains: [1.0; LONG_BANDS], mid_side: false };
}

/// Bytes of main data that are kept before old ones are dropped.
const KEPT: usize = 1 << 15;

/// `2^(x / 4)`, from `x = LEAST` on.
static POWERS: LazyLock<[f32; 512]> =
    LazyLock::new(|| std::array::from_fn(|i| (f64::from(i as i32 + LEAST) / 4.0).exp2() as f32));

/// Below every exponent that a gain of 0, window gains of 7 and scale factors of 31 with emphasis give.
const LEAST: i32 = -448;

/// Decodes frames to spectra: what it keeps from frame to frame is main data.
#[derive(Debug, Default)]
pub(super) struct Spectra {
    /// Main data, of which frames refer to the last bytes.
    main: Vec<u8>,
    /// Bytes of it that no later frame may refer to.
    used: usize,
}

impl Spectra {
    /// Decodes a frame, of as many granules as `rows`.
    ///
    /// `None` if it breaks a rule, or is of a kind that is not decoded here; what there is of its rows then has no meaning. Granules whose
    /// bits are in frames that have not been seen are 0.
    pub(super) fn read(&mut self, head: &Head, frame: &[u8], rows: &mut [[Row; 2]]) -> Option<()> {
        let mut side = Side::parse(head, frame)?;
        let main = frame.get(head.side_begin() + head.side_size()..)?;
        if self.main.len() > KEPT {
            let dropped = self.used.max(self.main.len() - head.furthest_back());
            self.main.drain(..dropped);
            self.used = 0;
        }
        let there = self.main.len() - self.used;
        let begin = self.main.len() - side.back.min(there);
        self.main.extend_from_slice(main);
        let missing = 8 * side.back.saturating_sub(there);
        let used = self.read_granules(head, &mut side, begin, missing, rows)?;
        self.used = (begin + used.div_ceil(8)).min(self.main.len());
        Some(())
    }

    /// The number of bits that were used from byte `begin` on. As many as `missing` are not there before it.
    fn read_granules(
        &self,
        head: &Head,
        side: &mut Side,
        begin: usize,
        missing: usize,
        rows: &mut [[Row; 2]],
    ) -> Option<usize> {
        let data = &self.main[begin..];
        let (mut at, mut skipped) = (0, 0);
        for (number, rows) in rows.iter_mut().enumerate() {
            let [first, second] = &side.granules[number];
            if head.intensity || (head.joint && first.block != second.block) {
                return None;
            }
            if skipped < missing {
                // Even where a part of a granule is there, where its second channel begins is not known to be.
                skipped +=
                    side.granules[number][..head.channels].iter().map(|channel| channel.bits).sum::<usize>();
                at = skipped.saturating_sub(missing);
                rows[..head.channels].fill(Row::EMPTY);
                continue;
            }
            for (channel, row) in rows[..head.channels].iter_mut().enumerate() {
                let end = at + side.granules[number][channel].bits;
                let mut bits = Bits::new(data, at);
                side.read_factors(head, number, channel, &mut bits);
                let granule = &side.granules[number][channel];
                row.end = values(granule, &mut bits, end, &mut row.values)?;
                if bits.position().max(end) > 8 * data.len() {
                    return None;
                }
                (row.block, row.mid_side) = (granule.block, head.mid_side);
                if granule.block == Block::Short {
                    requantize_short(head, granule, row);
                    interleave(head, row);
                } else {
                    find_gains(granule, &mut row.gains);
                }
                at = end;
            }
            if head.mid_side {
                let end = rows[0].end.max(rows[1].end);
                rows.iter_mut().for_each(|row| row.end = end);
            }
        }
        Some(at)
    }
}

/// Decodes the values of a granule of a channel until bit `end`: where they are 0 from.
fn values(granule: &Granule, bits: &mut Bits<'_>, end: usize, out: &mut [f32; LINES]) -> Option<usize> {
    let begin = bits.position();
    if begin >= end {
        out.fill(0.0);
        return (begin == end).then_some(0);
    }
    let tables = Tables::get();
    let ends = [
        granule.regions[0].min(granule.in_pairs),
        granule.regions[1].min(granule.in_pairs),
        granule.in_pairs,
    ];
    let mut at = 0;
    for (end, number) in ends.into_iter().zip(granule.tables) {
        if at < end {
            if !tables.has(usize::from(number)) {
                return None;
            }
            tables.pairs(usize::from(number), bits, &mut out[at..end]);
            at = end;
        }
    }
    if bits.position() > end {
        return None;
    }
    let mut count = tables.ones(granule.second_ones, bits, end, &mut out[at..]);
    if bits.position() > end {
        // Encoders that pad have the decoder read into what is none.
        count -= 4;
    }
    out[at + count..].fill(0.0);
    Some(at + count)
}

/// `2^(exponent / 4)`.
fn power(exponent: i32) -> f32 {
    POWERS[(exponent - LEAST) as usize & 511]
}

/// The gains of long bands.
fn find_gains(granule: &Granule, gains: &mut [f32; LONG_BANDS]) {
    let gain = i32::from(granule.global_gain) - 210;
    for ((place, factor), emphasis) in gains.iter_mut().zip(&granule.factors).zip(EMPHASIS) {
        let factor = factor + if granule.preflag { emphasis } else { 0 };
        *place = power(gain - i32::from(granule.factor_step) * i32::from(factor));
    }
}

/// Multiplies by the gains of short bands, of which each window has its own.
fn requantize_short(head: &Head, granule: &Granule, row: &mut Row) {
    let gain = i32::from(granule.global_gain) - 210;
    for (band, (begin, end)) in ranges(&SHORT[head.bands]).enumerate() {
        for window in 0..3 {
            let width = end - begin;
            let begin = 3 * begin + window * width;
            let lines = begin..row.end.min(begin + width);
            let factor = i32::from(granule.factor_step) * i32::from(granule.factors[3 * band + window]);
            let factor = power(gain - 8 * i32::from(granule.window_gains[window]) - factor);
            if let Some(values) = row.values.get_mut(lines) {
                values.iter_mut().for_each(|value| *value *= factor);
            }
        }
    }
    row.gains = [1.0; LONG_BANDS];
}

/// Brings the values of a short block's windows, which lie one after the other in each band, into turns.
fn interleave(head: &Head, row: &mut Row) {
    let from = row.values;
    for (begin, end) in ranges(&SHORT[head.bands]) {
        let (begin, end) = (3 * begin, 3 * end);
        if begin >= row.end {
            return;
        }
        let width = (end - begin) / 3;
        let (first, rest) = from[begin..end].split_at(width);
        let (second, third) = rest.split_at(width);
        let turns = row.values[begin..end].as_chunks_mut().0;
        for (((turn, first), second), third) in turns.iter_mut().zip(first).zip(second).zip(third) {
            *turn = [*first, *second, *third];
        }
        if end >= row.end {
            row.end = end;
            return;
        }
    }
}
