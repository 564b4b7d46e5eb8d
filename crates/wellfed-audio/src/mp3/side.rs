//! Side information and scale factors: how the values of each granule are coded.

use super::{
    bands::LONG,
    bits::Bits,
    head::{Head, Version},
};

/// Which window and transform a granule of a channel has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Block {
    #[default]
    Long,
    /// Long, before short ones.
    Start,
    Short,
    /// Long, after short ones.
    Stop,
}

/// Side information of a granule of a channel, and its scale factors.
#[derive(Clone, Copy, Debug)]
pub(super) struct Granule {
    /// Bits of scale factors and values.
    pub(super) bits: usize,
    /// Values that are coded in pairs; a multiple of 2, at most 576.
    pub(super) in_pairs: usize,
    pub(super) global_gain: u8,
    scalefac_compress: u16,
    pub(super) block: Block,
    /// Code numbers of three regions, and where the second and third begin.
    pub(super) tables: [u8; 3],
    pub(super) regions: [usize; 2],
    pub(super) window_gains: [u8; 3],
    /// Whether the emphasis of high bands is added to scale factors.
    pub(super) preflag: bool,
    /// Scale factors count for this many quarters of a power of two.
    pub(super) factor_step: u8,
    /// Whether ones are coded by the second table.
    pub(super) second_ones: bool,
    /// Of each band, or of each window of each band.
    pub(super) factors: [u8; 39],
}

/// Side information of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Side {
    /// Bytes that the frame's main data begins before those that are in it.
    pub(super) back: usize,
    /// Groups of scale factors that the second granule has in common with the first, by channel.
    common: [[bool; 4]; 2],
    pub(super) granules: [[Granule; 2]; 2],
}

impl Default for Granule {
    fn default() -> Self {
        Self {
            bits: 0,
            in_pairs: 0,
            global_gain: 0,
            scalefac_compress: 0,
            block: Block::Long,
            tables: [0; 3],
            regions: [0; 2],
            window_gains: [0; 3],
            preflag: false,
            factor_step: 2,
            second_ones: false,
            factors: [0; 39],
        }
    }
}

impl Side {
    /// Of a frame; `None` if it is not complete, breaks a rule or has blocks of both kinds in one granule.
    pub(super) fn parse(head: &Head, frame: &[u8]) -> Option<Self> {
        let begin = head.side_begin();
        let mut bits = Bits::new(frame.get(begin..begin + head.side_size())?, 0);
        let mut side = Self::default();
        let is_first = head.version == Version::Mpeg1;
        side.back = bits.take(if is_first { 9 } else { 8 }) as usize;
        // Private bits.
        bits.take(match (is_first, head.channels) {
            (true, 1) => 5,
            (true, _) => 3,
            (false, channels) => channels as u32,
        });
        if is_first {
            for common in &mut side.common[..head.channels] {
                *common = std::array::from_fn(|_| bits.flag());
            }
        }
        for granule in &mut side.granules[..head.granules()] {
            for channel in &mut granule[..head.channels] {
                *channel = Granule::parse(head, &mut bits)?;
            }
        }
        Some(side)
    }

    /// Reads scale factors, from where those of a granule of a channel begin.
    pub(super) fn read_factors(&mut self, head: &Head, granule: usize, channel: usize, bits: &mut Bits<'_>) {
        if head.version == Version::Mpeg1 {
            let (common, earlier) = (self.common[channel], self.granules[0][channel].factors);
            let common = common.map(|common| common && granule > 0);
            self.granules[granule][channel].read_factors(common, &earlier, bits);
        } else {
            self.granules[granule][channel].read_factors_of_mpeg2(bits);
        }
    }
}

impl Granule {
    fn parse(head: &Head, bits: &mut Bits<'_>) -> Option<Self> {
        let is_first = head.version == Version::Mpeg1;
        let mut granule = Self {
            bits: bits.take(12) as usize,
            in_pairs: 2 * bits.take(9) as usize,
            global_gain: bits.take(8) as u8,
            scalefac_compress: bits.take(if is_first { 4 } else { 9 }) as u16,
            ..Self::default()
        };
        if granule.in_pairs > 576 {
            return None;
        }
        let long = &LONG[head.bands];
        if bits.flag() {
            granule.block = match bits.take(2) {
                1 => Block::Start,
                2 => Block::Short,
                3 => Block::Stop,
                _ => return None,
            };
            if bits.flag() && granule.block == Block::Short {
                // Long bands below short ones: no encoder in use makes these.
                return None;
            }
            granule.tables[..2].fill_with(|| bits.take(5) as u8);
            granule.window_gains.fill_with(|| bits.take(3) as u8);
            // The first region has 8 long bands, or 9 short ones of MPEG-1 and 2; there is no third.
            let is_short = granule.block == Block::Short;
            let first = match head.version {
                Version::Mpeg25 => usize::from(long[if is_short { 6 } else { 8 }]),
                Version::Mpeg2 if !is_short => 54,
                _ => 36,
            };
            granule.regions = [first, 576];
        } else {
            granule.tables.fill_with(|| bits.take(5) as u8);
            let first = bits.take(4) as usize + 1;
            let second = first + bits.take(3) as usize + 1;
            let begin = |band: usize| long.get(band).map_or(576, |begin| usize::from(*begin));
            granule.regions = [begin(first), begin(second)];
        }
        granule.preflag = is_first && bits.flag();
        granule.factor_step = if bits.flag() { 4 } else { 2 };
        granule.second_ones = bits.flag();
        Some(granule)
    }

    /// As MPEG-1 has them, where some groups are those of the first granule.
    fn read_factors(&mut self, common: [bool; 4], earlier: &[u8; 39], bits: &mut Bits<'_>) {
        let [low, high] = [
            [0, 0, 0, 0, 3, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4],
            [0, 1, 2, 3, 0, 1, 2, 3, 1, 2, 3, 1, 2, 3, 2, 3],
        ]
        .map(|widths| widths[usize::from(self.scalefac_compress) & 15]);
        if self.block == Block::Short {
            self.factors[..18].fill_with(|| bits.take(low) as u8);
            self.factors[18..36].fill_with(|| bits.take(high) as u8);
            return;
        }
        for ((group, width), common) in
            [0..6, 6..11, 11..16, 16..21].into_iter().zip([low, low, high, high]).zip(common)
        {
            if common {
                self.factors[group.clone()].copy_from_slice(&earlier[group]);
            } else {
                self.factors[group].fill_with(|| bits.take(width) as u8);
            }
        }
    }

    /// As MPEG-2 has them, without intensity stereo: 13818-3, 2.4.3.2.
    fn read_factors_of_mpeg2(&mut self, bits: &mut Bits<'_>) {
        let compress = u32::from(self.scalefac_compress);
        let is_short = self.block == Block::Short;
        let (widths, counts) = match compress {
            0..400 => (
                [(compress >> 4) / 5, (compress >> 4) % 5, (compress >> 2) % 4, compress % 4],
                if is_short { [9, 9, 9, 9] } else { [6, 5, 5, 5] },
            ),
            400..500 => {
                let rest = compress - 400;
                (
                    [(rest >> 2) / 5, (rest >> 2) % 5, rest % 4, 0],
                    if is_short { [9, 9, 12, 6] } else { [6, 5, 7, 3] },
                )
            }
            _ => {
                let rest = compress - 500;
                self.preflag = true;
                ([rest / 3, rest % 3, 0, 0], if is_short { [18, 18, 0, 0] } else { [11, 10, 0, 0] })
            }
        };
        let mut at = 0;
        for (width, count) in widths.into_iter().zip(counts) {
            self.factors[at..at + count].fill_with(|| bits.take(width) as u8);
            at += count;
        }
    }
}
