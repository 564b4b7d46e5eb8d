//! Smoothing of progressive images whose scans stop early: coefficients that no scan brought, or not to the last bit,
//! are estimated from the DC coefficients around, as in libjpeg-turbo (`decompress_smooth_data` in jdcoefct.c, after
//! T.81 K.8). [`Progress`] keeps what scans have brought; images that are complete pay for nothing else.

use crate::header::{Header, Scan};

/// Coefficients that are looked at: DC and the first nine others in the file's order.
const SAVED: usize = 10;

/// Weights of 5 x 5 DC coefficients around a block, row after row, in units of 1/256.
type Weights = [[i32; 5]; 5];

/// An estimated coefficient: its number in the file's order, its place in natural order, and what it is made of.
struct Estimate {
    number: usize,
    place: usize,
    weights: Weights,
}

const fn estimate(number: usize, place: usize, weights: Weights) -> Estimate {
    Estimate { number, place, weights }
}

/// The same across instead of down.
const fn transposed(weights: &Weights) -> Weights {
    let mut turned = [[0; 5]; 5];
    let mut i = 0;
    while i < 25 {
        turned[i % 5][i / 5] = weights[i / 5][i % 5];
        i += 1;
    }
    turned
}

const NONE: [i32; 5] = [0; 5];

/// Where nothing but DC is known: estimates from all around, a slight blur of DC among them.
static FROM_DC_ALONE: [Estimate; SAVED] = {
    const DC: Weights = [
        [-2, -6, -8, -6, -2],
        [-6, 6, 42, 6, -6],
        [-8, 42, 152, 42, -8],
        [-6, 6, 42, 6, -6],
        [-2, -6, -8, -6, -2],
    ];
    const SLOPE: Weights =
        [[-1, -3, -3, -3, -1], [-1, 13, 38, 13, -1], NONE, [1, -13, -38, -13, 1], [1, 3, 3, 3, 1]];
    const BEND: Weights =
        [[0, 0, 1, 0, 0], [0, 2, 7, 2, 0], [0, -5, -14, -5, 0], [0, 2, 7, 2, 0], [0, 0, 1, 0, 0]];
    const TWIST: Weights = [[-1, 0, 0, 0, 1], [0, 9, 0, -9, 0], NONE, [0, -9, 0, 9, 0], [1, 0, 0, 0, -1]];
    const THIRD: Weights = [NONE, [0, 1, 2, 1, 0], NONE, [0, -1, -2, -1, 0], NONE];
    const MIXED: Weights = [NONE, [0, 1, -3, 1, 0], NONE, [0, -1, 3, -1, 0], NONE];
    [
        estimate(1, 1, transposed(&SLOPE)),
        estimate(2, 8, SLOPE),
        estimate(3, 16, BEND),
        estimate(4, 9, TWIST),
        estimate(5, 2, transposed(&BEND)),
        estimate(6, 3, transposed(&THIRD)),
        estimate(7, 10, MIXED),
        estimate(8, 17, transposed(&MIXED)),
        estimate(9, 24, THIRD),
        estimate(0, 0, DC),
    ]
};

/// Where some of the others are known: estimates of the first five.
static BESIDE_OTHERS: [Estimate; 5] = {
    const SLOPE: Weights = [[0, 0, -7, 0, 0], [0, 0, 50, 0, 0], NONE, [0, 0, -50, 0, 0], [0, 0, 7, 0, 0]];
    const BEND: Weights =
        [[0, 0, -1, 0, 0], [0, 0, 13, 0, 0], [0, 0, -24, 0, 0], [0, 0, 13, 0, 0], [0, 0, -1, 0, 0]];
    const TWIST: Weights =
        [[0, -1, 0, 1, 0], [-1, 10, 0, -10, 1], NONE, [1, -10, 0, 10, -1], [0, 1, 0, -1, 0]];
    [
        estimate(1, 1, transposed(&SLOPE)),
        estimate(2, 8, SLOPE),
        estimate(3, 16, BEND),
        estimate(4, 9, TWIST),
        estimate(5, 2, transposed(&BEND)),
    ]
};

/// To which bit coefficients are known: 0 for all of it, -1 for nothing.
type Bits = [i8; SAVED];

/// What the scans of an image have brought so far.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    scans: usize,
    now: [Bits; 4],
    /// Before the last scan: for rows that it did not reach.
    before: [Bits; 4],
    /// The last row of MCUs in which the last scan had data.
    pub(crate) last_fed: usize,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Progress { scans: 0, now: [[-1; SAVED]; 4], before: [[-1; SAVED]; 4], last_fed: 0 }
    }

    /// Takes note of a progressive scan whose header was checked.
    pub(crate) fn scan(&mut self, scan: &Scan) {
        self.scans += 1;
        let (start, end) = (usize::from(scan.band.0), usize::from(scan.band.1));
        for member in scan.members() {
            let (now, before) = (&mut self.now[member.component], &mut self.before[member.component]);
            for number in start.min(1)..SAVED {
                before[number] = if self.scans > 1 { now[number] } else { 0 };
            }
            for bit in now.iter_mut().take(end + 1).skip(start) {
                *bit = scan.low as i8;
            }
        }
    }

    /// How to smooth the image, if that is of use and possible: DC is known of all components, and something else is
    /// not.
    pub(crate) fn smoothing(&self, header: &Header, quant: &[[u16; 64]; 4]) -> Option<Smoothing> {
        let count = header.components().len();
        let (now, quant) = (&self.now[..count], &quant[..count]);
        let possible = now.iter().all(|bits| bits[0] >= 0)
            && quant.iter().all(|table| FROM_DC_ALONE.iter().all(|estimate| table[estimate.place] != 0));
        let of_use = now.iter().any(|bits| bits[1..].iter().any(|&bit| bit != 0));
        let before = if self.scans > 1 { self.before } else { [[-1; SAVED]; 4] };
        (possible && of_use).then_some(Smoothing { now: self.now, before, last_fed: self.last_fed })
    }
}

/// How an image is to be smoothed.
pub(crate) struct Smoothing {
    now: [Bits; 4],
    before: [Bits; 4],
    last_fed: usize,
}

/// The blocks of a component.
pub(crate) struct Blocks<'a> {
    pub(crate) component: usize,
    /// Blocks across and down that the image reaches.
    pub(crate) size: (usize, usize),
    /// Rows of blocks in a row of MCUs with all components, as the file has it: also where there is only one.
    pub(crate) per_mcu: usize,
    pub(crate) quant: &'a [u16; 64],
}

impl Blocks<'_> {
    /// Rows of blocks with those that fill up the last row of MCUs.
    pub(crate) fn padded_rows(&self) -> usize {
        self.size.1.next_multiple_of(self.per_mcu)
    }
}

impl Smoothing {
    /// Calls `change` with column, row, place (in natural order) and estimate of each coefficient for which there is
    /// one; it may take it if the coefficient is zero or DC. `dc` holds the DC coefficients: `size.0` for each of
    /// the padded rows.
    pub(crate) fn run(
        &self,
        blocks: &Blocks<'_>,
        dc: &[i16],
        mut change: impl FnMut(usize, usize, usize, i16),
    ) {
        let (columns, rows) = blocks.size;
        let mcu_rows = rows.div_ceil(blocks.per_mcu);
        for y in 0..rows {
            let mcu_row = y / blocks.per_mcu;
            let bits = if mcu_row > self.last_fed { &self.before } else { &self.now }[blocks.component];
            let alone = bits[1..].iter().all(|&bit| bit == -1);
            let estimates: &[Estimate] = if alone { &FROM_DC_ALONE } else { &BESIDE_OTHERS };
            let around = rows_around(y, mcu_row, mcu_rows, blocks);
            let around = around.map(|row| &dc[row * columns..][..columns]);
            for x in 0..columns {
                let column = |i: usize| (x + i).saturating_sub(2).min(columns - 1);
                let near: [[i32; 5]; 5] =
                    around.map(|row| std::array::from_fn(|i| i32::from(row[column(i)])));
                for Estimate { number, place, weights } in estimates {
                    if *number == 0 || bits[*number] != 0 {
                        let value = value(&near, weights, blocks.quant, *place, bits[*number]);
                        change(x, y, *place, value);
                    }
                }
            }
        }
    }
}

/// The rows that count as the two above a row, itself, and the two below. At the edges rows stand in for each other;
/// which do follows libjpeg's way of counting them.
fn rows_around(y: usize, mcu_row: usize, mcu_rows: usize, blocks: &Blocks<'_>) -> [usize; 5] {
    let last = mcu_row + 1 == mcu_rows;
    let height = if last { blocks.size.1 - mcu_row * blocks.per_mcu } else { blocks.per_mcu };
    // Counted as if all rows of MCUs had as many rows of blocks as this one.
    let number = mcu_row * height + y - mcu_row * blocks.per_mcu;
    let total = height * mcu_rows;
    let above = if number > 0 { y - 1 } else { y };
    let below = if number + 1 < total { y + 1 } else { y };
    [if number > 1 { y - 2 } else { above }, above, y, below, if number + 2 < total { y + 2 } else { below }]
}

/// The weighted sum around a block, brought to the scale of the coefficient at `place`, below what its scans left
/// open.
fn value(near: &[[i32; 5]; 5], weights: &Weights, quant: &[u16; 64], place: usize, bit: i8) -> i16 {
    let sum: i32 = near.iter().zip(weights).flat_map(|(n, w)| n.iter().zip(w)).map(|(n, w)| n * w).sum();
    let (sum, step) = (i64::from(quant[0]) * i64::from(sum), i64::from(quant[place]));
    let mut size = ((128 * step + sum.abs()) / (256 * step)) as i32;
    if place != 0 && bit > 0 {
        size = size.min((1 << bit) - 1);
    }
    (if sum < 0 { size.wrapping_neg() } else { size }) as i16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flat_image_stays_flat() {
        for estimates in [&FROM_DC_ALONE[..], &BESIDE_OTHERS] {
            for Estimate { place, weights, .. } in estimates {
                let value = value(&[[-37; 5]; 5], weights, &[9; 64], *place, -1);
                assert_eq!(value, if *place == 0 { -37 } else { 0 });
            }
        }
    }

    #[test]
    fn estimates_stay_below_what_is_open() {
        let steep = [[9000; 5], [9000; 5], [0; 5], [-9000; 5], [-9000; 5]];
        let slope = &BESIDE_OTHERS[1];
        assert_eq!(slope.number, 2);
        for bit in 1..8 {
            assert_eq!(value(&steep, &slope.weights, &[1; 64], slope.place, bit), (1 << bit) - 1);
        }
        assert_eq!(value(&steep, &slope.weights, &[1; 64], slope.place, -1), 3023);
    }

    #[test]
    fn rows_stand_in_for_each_other_at_the_edges() {
        let blocks = Blocks { component: 0, size: (1, 5), per_mcu: 2, quant: &[1; 64] };
        let around = |y| rows_around(y, y / 2, 3, &blocks);
        assert_eq!(around(0), [0, 0, 0, 1, 2]);
        assert_eq!(around(1), [0, 0, 1, 2, 3]);
        // The padding of the last row of MCUs counts for rows before it, not for itself.
        assert_eq!(around(3), [1, 2, 3, 4, 5]);
        assert_eq!(around(4), [2, 3, 4, 4, 4]);
        let short = Blocks { size: (1, 3), ..blocks };
        assert_eq!(rows_around(2, 1, 2, &short), [1, 1, 2, 2, 2]);
    }
}
