//! From spectra to subbands: alias reduction, the inverse modified cosine transform with its windows, and the overlap of granules.
//!
//! Granules lie side by side, a lane each: neighbours overlap by what a lane has of the one before it.

use std::{f64::consts::PI, sync::LazyLock};

use super::{
    bands::ranges,
    side::Block,
    spectrum::{LINES, Row},
    synthesis::BANDS,
};
use crate::lanes::Lanes;

/// Samples of a subband in a granule.
pub(super) const SLOTS: usize = 18;

/// Lanes that there are at most.
const MOST_LANES: usize = 16;

/// Values at each border of subbands that alias reduction mixes.
const BUTTERFLIES: usize = 8;

/// Coefficients, the same for all lanes.
#[derive(Debug)]
struct Tables {
    /// Of alias reduction: table B.9.
    aliases: [[f32; 2]; BUTTERFLIES],
    /// Windows of long blocks by their kind, in the order in which the transform gives values.
    windows: [[f32; 36]; 4],
    /// The window of short blocks.
    short: [f32; 12],
    /// `cos((2n + 1)(2k + 1)pi / 24)`.
    sixes: [[f32; 6]; 6],
    /// `2 cos((2k + 1)pi / 72)`, which makes a transform of second type of one of fourth.
    turns_18: [f32; 18],
    /// `2 cos((2k + 1)pi / 36)`.
    turns_9: [f32; 9],
    /// `cos(k pi / 18)`.
    cosines: [f32; 9],
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| {
    let sine = |i: usize, n: usize| (PI * (i as f64 + 0.5) / n as f64).sin();
    let signed = |window: [f64; 36]| {
        // The transform's values 9 to 26 are its own with the other sign.
        std::array::from_fn(|i| (if i < 9 { window[i] } else { -window[i] }) as f32)
    };
    let long = std::array::from_fn(|i| sine(i, 36));
    let start: [f64; 36] = std::array::from_fn(|i| match i {
        0..18 => sine(i, 36),
        18..24 => 1.0,
        24..30 => sine(i - 18, 12),
        _ => 0.0,
    });
    let stop = std::array::from_fn(|i| start[35 - i]);
    let aliases = [-0.6, -0.535, -0.33, -0.185, -0.095, -0.041, -0.0142, -0.0037f64].map(|c| {
        let length = (1.0 + c * c).sqrt();
        [(1.0 / length) as f32, (c / length) as f32]
    });
    Tables {
        aliases,
        windows: [signed(long), signed(start), [0.0; 36], signed(stop)],
        short: std::array::from_fn(|i| {
            let window = sine(i, 12);
            (if i < 3 { window } else { -window }) as f32
        }),
        sixes: std::array::from_fn(|n| {
            std::array::from_fn(|k| (PI * ((2 * n + 1) * (2 * k + 1)) as f64 / 24.0).cos() as f32)
        }),
        turns_18: std::array::from_fn(|k| (2.0 * (PI * (2 * k + 1) as f64 / 72.0).cos()) as f32),
        turns_9: std::array::from_fn(|k| (2.0 * (PI * (2 * k + 1) as f64 / 36.0).cos()) as f32),
        cosines: std::array::from_fn(|k| (PI * k as f64 / 18.0).cos() as f32),
    }
});

/// Spectra of several granules, a lane each, of a channel.
#[derive(Debug)]
pub(super) struct Hybrid<L> {
    lines: Vec<L>,
    /// Granules that there are, and subbands that are not all 0.
    count: usize,
    bands: usize,
    /// What the last granule that there was leaves to the next, by subband.
    overlap: Vec<[f32; SLOTS]>,
    /// Subbands from here on overlap with nothing.
    reach: usize,
    windows: Windows<L>,
}

/// What is multiplied by, for granules of these kinds. Kinds that a lane is not of are 0 in it.
#[derive(Debug)]
struct Windows<L> {
    kinds: Vec<Block>,
    /// Of even subbands and odd ones, in which every second sample has the other sign.
    long: [[L; 36]; 2],
    short: [[L; 36]; 2],
    has_short: bool,
    /// Alias reduction, which short blocks do not have.
    aliases: [[L; 2]; BUTTERFLIES],
}

impl<L: Lanes> Windows<L> {
    fn new() -> Self {
        Self {
            kinds: Vec::new(),
            long: [[L::ZERO; 36]; 2],
            short: [[L::ZERO; 36]; 2],
            has_short: false,
            aliases: [[L::ZERO; 2]; BUTTERFLIES],
        }
    }

    /// Makes them for granules of these kinds, if they are for others.
    fn shape(&mut self, kinds: impl Iterator<Item = Block> + Clone) {
        if kinds.clone().eq(self.kinds.iter().copied()) {
            return;
        }
        self.kinds.clear();
        self.kinds.extend(kinds);
        let tables = &*TABLES;
        let kind = |lane: usize| self.kinds.get(lane).copied().unwrap_or_default();
        self.has_short = self.kinds.contains(&Block::Short);
        for odd in 0..2 {
            let sign = |i: usize| if odd * i % 2 == 1 { -1.0 } else { 1.0 };
            for i in 0..36 {
                self.long[odd][i] = L::of(|lane| sign(i) * tables.windows[kind(lane) as usize][i]);
                // A window's values 0 to 5 are those of a slot's sample, 6 to 11 those of the window six slots later.
                if !self.has_short {
                    continue;
                }
                self.short[odd][i] = L::of(|lane| {
                    let window = tables.short[i % 12];
                    let slot = 6 + 6 * (i / 12) + i % 12;
                    if kind(lane) == Block::Short { sign(slot) * window } else { 0.0 }
                });
            }
        }
        for (places, values) in self.aliases.iter_mut().zip(tables.aliases) {
            for (place, (value, none)) in places.iter_mut().zip(values.into_iter().zip([1.0, 0.0])) {
                *place = L::of(|lane| if kind(lane) == Block::Short { none } else { value });
            }
        }
    }
}

impl<L: Lanes> Hybrid<L> {
    pub(super) fn new() -> Self {
        Self {
            lines: vec![L::ZERO; LINES],
            count: 0,
            bands: 0,
            overlap: vec![[0.0; SLOTS]; BANDS],
            reach: 0,
            windows: Windows::new(),
        }
    }

    /// Takes spectra of granules, of one to as many as there are lanes. `bands` are where long bands begin.
    #[inline(always)]
    pub(super) fn load<'r>(&mut self, rows: impl Iterator<Item = &'r Row> + Clone, bands: &[u16]) {
        self.windows.shape(rows.clone().map(|row| row.block));
        self.count = rows.clone().count();
        let end = rows.clone().map(|row| row.end).max().unwrap_or(0);
        // Alias reduction brings something into one subband more.
        self.bands = if end == 0 { 0 } else { (end.div_ceil(SLOTS) + 1).min(BANDS) };
        from_rows(rows.clone(), &mut self.lines[..SLOTS * self.bands]);
        for (band, (begin, end)) in ranges(bands).take_while(|(begin, _)| *begin < end).enumerate() {
            let mut gain = L::ZERO;
            for (gain, row) in gain.values_mut().iter_mut().zip(rows.clone()) {
                *gain = row.gains[band];
            }
            self.lines[begin..end].iter_mut().for_each(|line| *line = *line * gain);
        }
    }

    /// Makes both channels of their sums and differences, in lanes where that is what they are.
    #[inline(always)]
    pub(super) fn undo_mid_side(&mut self, other: &mut Self, mut is: impl FnMut(usize) -> bool) {
        // Where it is not, both stay: m + 0 s and 0 m + s.
        let mut on = L::ZERO;
        let mut both = [L::splat(1.0), L::splat(-1.0)];
        for lane in 0..self.count {
            if is(lane) {
                on.values_mut()[lane] = 1.0;
                both[0].values_mut()[lane] = std::f32::consts::FRAC_1_SQRT_2;
                both[1].values_mut()[lane] = 1.0;
            }
        }
        if on == L::ZERO {
            return;
        }
        let [scale, sign] = both;
        let end = SLOTS * self.bands.max(other.bands);
        for lines in [(&mut self.lines, self.bands), (&mut other.lines, other.bands)] {
            lines.0[SLOTS * lines.1..end].fill(L::ZERO);
        }
        self.bands = self.bands.max(other.bands);
        other.bands = self.bands;
        for (left, right) in self.lines[..end].iter_mut().zip(&mut other.lines[..end]) {
            let (mid, side) = (*left, *right);
            *left = (mid + side * on) * scale;
            *right = (mid * on - side * sign) * scale;
        }
    }

    /// Makes this the mean of both channels, of which the other keeps nothing, in lanes where both have blocks of one kind: their transforms
    /// are the same then. In other lanes each channel becomes its half.
    #[inline(always)]
    pub(super) fn mix(&mut self, other: &mut Self) {
        let (own, others) = (&self.windows.kinds, &other.windows.kinds);
        let same = L::of(|lane| f32::from(u8::from(own.get(lane) == others.get(lane))));
        let end = SLOTS * self.bands.max(other.bands);
        for lines in [(&mut self.lines, self.bands), (&mut other.lines, other.bands)] {
            lines.0[SLOTS * lines.1..end].fill(L::ZERO);
        }
        self.bands = self.bands.max(other.bands);
        if same == L::splat(1.0) {
            other.bands = 0;
            for (one, other) in self.lines[..end].iter_mut().zip(&other.lines[..end]) {
                *one = (*one + *other) * 0.5;
            }
            return;
        }
        other.bands = self.bands;
        let different = L::splat(1.0) - same;
        for (one, other) in self.lines[..end].iter_mut().zip(&mut other.lines[..end]) {
            *one = (*one + *other * same) * 0.5;
            *other = *other * different * 0.5;
        }
    }

    /// Whether there is nothing in it: no spectra, and nothing that overlaps with the next ones.
    pub(super) fn is_empty(&self) -> bool {
        self.bands == 0 && self.reach == 0
    }

    /// Makes the slots of all subbands.
    #[inline(always)]
    pub(super) fn apply(&mut self, out: &mut [[L; BANDS]; SLOTS]) {
        let tables = &*TABLES;
        let (count, bands) = (self.count, self.bands);
        let lines = &mut self.lines[..SLOTS * bands];
        for border in (SLOTS..lines.len()).step_by(SLOTS) {
            for (i, [own, other]) in self.windows.aliases.iter().enumerate() {
                let (below, above) = (lines[border - 1 - i], lines[border + i]);
                lines[border - 1 - i] = below * *own - above * *other;
                lines[border + i] = above * *own + below * *other;
            }
        }
        let reach = self.reach.max(bands);
        for band in 0..BANDS {
            if band >= reach {
                out.iter_mut().for_each(|slot| slot[band] = L::ZERO);
                continue;
            }
            let mut values = [L::ZERO; 36];
            if let Some(lines) = lines.get(SLOTS * band..).and_then(<[L]>::first_chunk) {
                long(lines, &self.windows.long[band % 2], tables, &mut values);
                if self.windows.has_short {
                    short(lines, &self.windows.short[band % 2], tables, &mut values);
                }
            }
            let overlap = &mut self.overlap[band];
            for slot in 0..SLOTS {
                let later = values[SLOTS + slot];
                out[slot][band] = values[slot] + later.after(overlap[slot]);
                overlap[slot] = later.values()[count - 1];
            }
        }
        self.reach = bands;
    }
}

/// Spectra as lanes: one value of each at every place. Lanes without a spectrum are 0.
#[inline(always)]
fn from_rows<'r, L: Lanes>(rows: impl Iterator<Item = &'r Row>, lines: &mut [L]) {
    let mut all = [&Row::EMPTY.values; MOST_LANES];
    all.iter_mut().zip(rows).for_each(|(values, row)| *values = &row.values);
    // Four by four, which the compiler does in registers.
    for (number, lines) in lines.chunks_mut(4).enumerate() {
        for (quad, rows) in all[..L::N].as_chunks::<4>().0.iter().enumerate() {
            let of = |row: usize| rows[row][4 * number..].first_chunk::<4>();
            let (Some(a), Some(b), Some(c), Some(d)) = (of(0), of(1), of(2), of(3)) else { return };
            for (i, line) in lines.iter_mut().enumerate() {
                line.values_mut()[4 * quad..][..4].copy_from_slice(&[a[i], b[i], c[i], d[i]]);
            }
        }
    }
}

/// The transform of a long block, times its window: 18 values become 36.
#[inline(always)]
fn long<L: Lanes>(lines: &[L; SLOTS], window: &[L; 36], tables: &Tables, out: &mut [L; 36]) {
    let values = fourth_of_18(lines, tables);
    for i in 0..9 {
        out[i] = values[i + 9] * window[i];
        out[i + 27] = values[i] * window[i + 27];
    }
    for i in 9..27 {
        out[i] = values[26 - i] * window[i];
    }
}

/// The transforms of a short block's three windows, which overlap, times these: added to `out`.
#[inline(always)]
fn short<L: Lanes>(lines: &[L; SLOTS], windows: &[L; 36], tables: &Tables, out: &mut [L; 36]) {
    for part in 0..3 {
        let mut values = [L::ZERO; 6];
        for (value, cosines) in values.iter_mut().zip(&tables.sixes) {
            for k in 0..6 {
                *value = *value + lines[3 * k + part] * cosines[k];
            }
        }
        for i in 0..12 {
            let value = match i {
                0..3 => values[i + 3],
                3..9 => values[8 - i],
                _ => values[i - 9],
            };
            let place = &mut out[6 + 6 * part + i];
            *place = *place + value * windows[12 * part + i];
        }
    }
}

/// The cosine transform of fourth type of 18 values: value `n` becomes the sum of `x[k] cos((2n + 1)(2k + 1)pi / 72)`.
///
/// One of second type, of values times `2 cos((2k + 1)pi / 72)`, gives sums of neighbours of these.
#[inline(always)]
fn fourth_of_18<L: Lanes>(x: &[L; 18], tables: &Tables) -> [L; 18] {
    let [mut sums, mut differences] = [[L::ZERO; 9]; 2];
    for k in 0..9 {
        let (low, high) = (x[k] * tables.turns_18[k], x[17 - k] * tables.turns_18[17 - k]);
        sums[k] = low + high;
        differences[k] = (low - high) * tables.turns_9[k];
    }
    let even = second_of_9(&sums, &tables.cosines);
    let odd = second_of_9(&differences, &tables.cosines);
    let mut out = [L::ZERO; 18];
    out[0] = even[0] * 0.5;
    let mut before = odd[0] * 0.5;
    for m in 0..9 {
        if m > 0 {
            before = odd[m] - before;
            out[2 * m] = even[m] - out[2 * m - 1];
        }
        out[2 * m + 1] = before - out[2 * m];
    }
    out
}

/// The cosine transform of second type of 9 values: value `m` becomes the sum of `x[k] cos(m (2k + 1)pi / 18)`. `c` is `cos(k pi / 18)`.
#[inline(always)]
fn second_of_9<L: Lanes>(x: &[L; 9], c: &[f32; 9]) -> [L; 9] {
    let s = [x[0] + x[8], x[1] + x[7], x[2] + x[6], x[3] + x[5]];
    let d = [x[0] - x[8], x[1] - x[7], x[2] - x[6], x[3] - x[5]];
    let half = s[1] * 0.5;
    let (without, with) = (half - x[4], x[4] - half);
    let rest = s[0] + s[2] + s[3];
    let third = d[1] * c[3];
    [
        rest + s[1] + x[4],
        d[0] * c[1] + third + d[2] * c[5] + d[3] * c[7],
        s[0] * c[2] - s[2] * c[8] - s[3] * c[4] + without,
        (d[0] - d[2] - d[3]) * c[3],
        s[0] * c[4] - s[2] * c[2] + s[3] * c[8] + with,
        d[0] * c[5] - third - d[2] * c[7] + d[3] * c[1],
        rest * 0.5 - s[1] - x[4],
        d[0] * c[7] - third + d[2] * c[1] - d[3] * c[5],
        s[0] * c[8] + s[2] * c[4] - s[3] * c[2] + with,
    ]
}
