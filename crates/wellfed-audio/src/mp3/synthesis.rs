//! From 32 subbands to samples: a cosine transform of each slot, and the window of the standard over the last 16.

use std::{f64::consts::PI, sync::LazyLock};

use super::hybrid::SLOTS;
use crate::lanes::Lanes;

/// Subbands, and samples of a slot.
pub(super) const BANDS: usize = 32;

/// Slots that a sample is made of.
const TAPS: usize = 16;

/// Slots of earlier granules that are kept.
const EARLIER: usize = SLOTS;

/// What the window multiplies sample `j` of a slot and sample `32 - j` by, of this slot and each before it.
type Taps = [[f32; 2]; TAPS];

/// For `j` of 0 to 16.
static WINDOW: LazyLock<[Taps; 17]> = LazyLock::new(|| {
    std::array::from_fn(|j| {
        std::array::from_fn(|tap| {
            // The transform's values from 32 on are those below with the other sign: ISO/IEC 11172-3, 2.4.3.2.2, of which the
            // vector V holds cos((16 + i)(2k + 1)pi/64) for i of 0 to 63.
            let own = if tap % 2 == 0 { 1.0 } else { -1.0 };
            // Sample 16 takes value 32, which is 0, of every second slot.
            let own = if j == 16 && tap % 2 == 0 { 0.0 } else { own };
            [own * window(j + 32 * tap), -window((32 - j + 32 * tap).min(511))]
        })
    })
});

/// The window's value number `i` of 512.
fn window(i: usize) -> f32 {
    let value = WINDOW_UNITS[i.min(512 - i)] as f32 / 65_536.0;
    if i > 256 && !i.is_multiple_of(64) { -value } else { value }
}

/// Half of the window, in units of 2^-16: table B.3.
#[rustfmt::skip]
static WINDOW_UNITS: [i32; 257] = [
    0, -1, -1, -1, -1, -1, -1, -2, -2, -2, -2, -3, -3, -4, -4, -5,
    -5, -6, -7, -7, -8, -9, -10, -11, -13, -14, -16, -17, -19, -21, -24, -26,
    -29, -31, -35, -38, -41, -45, -49, -53, -58, -63, -68, -73, -79, -85, -91, -97,
    -104, -111, -117, -125, -132, -139, -147, -154, -161, -169, -176, -183, -190, -196, -202, -208,
    213, 218, 222, 225, 227, 228, 228, 227, 224, 221, 215, 208, 200, 189, 177, 163,
    146, 127, 106, 83, 57, 29, -2, -36, -72, -111, -153, -197, -244, -294, -347, -401,
    -459, -519, -581, -645, -711, -779, -848, -919, -991, -1064, -1137, -1210, -1283, -1356, -1428, -1498,
    -1567, -1634, -1698, -1759, -1817, -1870, -1919, -1962, -2001, -2032, -2057, -2075, -2085, -2087, -2080, -2063,
    2037, 2000, 1952, 1893, 1822, 1739, 1644, 1535, 1414, 1280, 1131, 970, 794, 605, 402, 185,
    -45, -288, -545, -814, -1095, -1388, -1692, -2006, -2330, -2663, -3004, -3351, -3705, -4063, -4425, -4788,
    -5153, -5517, -5879, -6237, -6589, -6935, -7271, -7597, -7910, -8209, -8491, -8755, -8998, -9219, -9416, -9585,
    -9727, -9838, -9916, -9959, -9966, -9935, -9863, -9750, -9592, -9389, -9139, -8840, -8492, -8092, -7640, -7134,
    6574, 5959, 5288, 4561, 3776, 2935, 2037, 1082, 70, -998, -2122, -3300, -4533, -5818, -7154, -8540,
    -9975, -11455, -12980, -14548, -16155, -17799, -19478, -21189, -22929, -24694, -26482, -28289, -30112, -31947, -33791, -35640,
    -37489, -39336, -41176, -43006, -44821, -46617, -48390, -50137, -51853, -53534, -55178, -56778, -58333, -59838, -61289, -62684,
    -64019, -65290, -66494, -67629, -68692, -69679, -70590, -71420, -72169, -72835, -73415, -73908, -74313, -74630, -74856, -74992,
    75038,
];

/// What the cosine transforms multiply differences by: `1 / (2 cos((2k + 1)pi / 2N))`, for N of 32, 16, 8, 4 and 2, one after the other.
static FACTORS: LazyLock<[f32; 31]> = LazyLock::new(|| {
    let mut factors = [0.0; 31];
    let mut at = 0;
    for n in [32, 16, 8, 4, 2] {
        for k in 0..n / 2 {
            factors[at + k] = (0.5 / (PI * (2 * k + 1) as f64 / (2 * n) as f64).cos()) as f32;
        }
        at += n / 2;
    }
    factors
});

/// Slots of several granules, a lane each, of a channel.
#[derive(Debug)]
pub(super) struct Synthesis<L> {
    /// Transformed slots: those of the granule before each lane's, and then its own.
    slots: Vec<[L; BANDS]>,
    /// Those of the last granule that there was.
    last: Vec<[f32; BANDS]>,
}

impl<L: Lanes> Synthesis<L> {
    pub(super) fn new() -> Self {
        Self { slots: vec![[L::ZERO; BANDS]; EARLIER + SLOTS], last: vec![[0.0; BANDS]; SLOTS] }
    }

    /// Makes samples of `count` granules: values of each lane, 32 of a slot.
    #[inline(always)]
    pub(super) fn apply(&mut self, bands: &[[L; BANDS]; SLOTS], count: usize, out: &mut [[L; BANDS]; SLOTS]) {
        let factors = &*FACTORS;
        for ((bands, slot), (earlier, last)) in
            bands.iter().zip(0..SLOTS).zip((0..EARLIER).zip(&mut self.last))
        {
            let (before, own) = self.slots.split_at_mut(EARLIER);
            let (shifted, values) = (&mut before[earlier], &mut own[slot]);
            transform(bands, factors, values);
            for ((shifted, value), last) in shifted.iter_mut().zip(&*values).zip(last) {
                *shifted = value.after(*last);
                *last = value.values()[count - 1];
            }
        }
        let window = &*WINDOW;
        for (slot, out) in out.iter_mut().enumerate() {
            let begin = slot + EARLIER + 1 - TAPS;
            let Some(slots) = self.slots[begin..].first_chunk::<TAPS>() else { return };
            for (j, taps) in window.iter().enumerate() {
                let [high, low] = [(16 + j) % BANDS, 16 - j];
                // Four sums, so that none waits for the one before.
                let mut sums = [[L::ZERO; 2]; 2];
                for (pair, taps) in taps.as_chunks::<2>().0.iter().enumerate() {
                    let even = slots[TAPS - 1 - 2 * pair][high];
                    let odd = slots[TAPS - 2 - 2 * pair][low];
                    for side in 0..2 {
                        sums[side][0] = sums[side][0] + even * taps[0][side];
                        sums[side][1] = sums[side][1] + odd * taps[1][side];
                    }
                }
                out[j] = sums[0][0] + sums[0][1];
                if j % 16 > 0 {
                    out[BANDS - j] = sums[1][0] + sums[1][1];
                }
            }
        }
    }
}

/// The cosine transform of second type of 32 values: value `m` becomes the sum of `x[k] cos(m (2k + 1)pi / 64)`.
#[inline(always)]
fn transform<L: Lanes>(values: &[L; 32], factors: &[f32; 31], out: &mut [L; 32]) {
    let (of_32, factors) = factors.split_at(16);
    let mut halves = [[L::ZERO; 16]; 2];
    for k in 0..16 {
        halves[0][k] = values[k] + values[31 - k];
        halves[1][k] = (values[k] - values[31 - k]) * of_32[k];
    }
    for half in &mut halves {
        transform_16(half, factors);
    }
    join(out, &halves[0], &halves[1]);
}

macro_rules! transform {
    ($name:ident, $n:literal, $half:literal, $next:ident) => {
        #[inline(always)]
        fn $name<L: Lanes>(values: &mut [L; $n], factors: &[f32]) {
            let (own, factors) = factors.split_at($half);
            let mut halves = [[L::ZERO; $half]; 2];
            for k in 0..$half {
                halves[0][k] = values[k] + values[$n - 1 - k];
                halves[1][k] = (values[k] - values[$n - 1 - k]) * own[k];
            }
            for half in &mut halves {
                $next(half, factors);
            }
            join(values, &halves[0], &halves[1]);
        }
    };
}

transform!(transform_16, 16, 8, transform_8);
transform!(transform_8, 8, 4, transform_4);
transform!(transform_4, 4, 2, transform_2);

#[inline(always)]
fn transform_2<L: Lanes>(values: &mut [L; 2], factors: &[f32]) {
    let [a, b] = *values;
    *values = [a + b, (a - b) * factors[0]];
}

/// Even values are those of the sums; the odd ones sums of neighbours of the differences.
#[inline(always)]
fn join<L: Lanes>(values: &mut [L], even: &[L], odd: &[L]) {
    let n = even.len();
    for m in 0..n {
        values[2 * m] = even[m];
        values[2 * m + 1] = if m + 1 < n { odd[m] + odd[m + 1] } else { odd[m] };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Eight;

    /// As the standard's figure A.2 has it, of one channel.
    fn by_the_standard(slots: &[[f32; 32]]) -> Vec<f64> {
        let mut v = vec![0.0; 1_024];
        let mut out = Vec::new();
        for slot in slots {
            v.rotate_right(64);
            for (i, place) in v[..64].iter_mut().enumerate() {
                let angle = |k: usize| ((16 + i) * (2 * k + 1)) as f64 * PI / 64.0;
                *place = slot.iter().enumerate().map(|(k, x)| angle(k).cos() * f64::from(*x)).sum();
            }
            for j in 0..32 {
                let tap = |i: usize| {
                    let at = if i.is_multiple_of(2) { 64 * i + j } else { 64 * i + 32 + j };
                    v[at] * f64::from(window(j + 32 * i))
                };
                out.push((0..16).map(tap).sum());
            }
        }
        out
    }

    #[test]
    fn samples_are_the_standards_whatever_the_groups() {
        let granules = 11;
        let value = |i: usize| (i as u32).wrapping_mul(2_654_435_761) as i32 as f32 / 2_147_483_648.0;
        let slots: Vec<[f32; 32]> =
            (0..granules * SLOTS).map(|slot| std::array::from_fn(|k| value(slot * 32 + k))).collect();
        let expected = by_the_standard(&slots);
        let mut synthesis = Synthesis::<Eight>::new();
        let mut out = [[Eight::ZERO; BANDS]; SLOTS];
        let mut at = 0;
        for count in [8, 1, 2] {
            let bands = std::array::from_fn(|slot| {
                std::array::from_fn(|k| {
                    Eight::of(|lane| if lane < count { slots[(at + lane) * SLOTS + slot][k] } else { 0.0 })
                })
            });
            synthesis.apply(&bands, count, &mut out);
            for lane in 0..count {
                for (i, sample) in out.iter().flatten().enumerate() {
                    let (found, expected) =
                        (f64::from(sample.values()[lane]), expected[(at + lane) * 576 + i]);
                    assert!(
                        (found - expected).abs() < 3e-5,
                        "{i} of granule {}: {found}, {expected}",
                        at + lane
                    );
                }
            }
            at += count;
        }
    }
}
