//! Huffman codes of layer III, decoded by tables: a look-up gives a pair of values with their signs.

use std::sync::LazyLock;

use super::{
    bits::Bits,
    huffman_tables::{LISTED, Listed, QUADS},
};

/// Bits of the first look-up. With 11 nearly all pairs of usual streams take one; four of them fit the bits of one refill.
const FIRST: u32 = 11;

/// Pairs that are decoded from one refill.
const PAIRS: usize = 4;

/// An entry holds a length, in its lowest byte, and a number in each of the next two.
///
/// Entries below this are whole pairs: the numbers are places in [`Tables::signed`], the length that of code and signs.
const CODE: u32 = 1 << 30;

/// Entries from `CODE` on are codes whose signs, or the rest of whose values, come next: the numbers are the values. From this on they are
/// codes longer than the first look-up: the length is that of a second one, and the number above says where its entries begin.
const LINK: u32 = 2 << 30;

/// Values that a pair may have: 15 and the greatest number of 13 bits.
const VALUES: usize = 15 + (1 << 13);

/// A code of pairs.
#[derive(Debug)]
struct Code {
    first: Box<[u32; 1 << FIRST]>,
    second: Vec<u32>,
}

/// What is looked up.
#[derive(Debug)]
pub(super) struct Tables {
    /// The code of each number that a stream may choose, and its `linbits`.
    codes: [(usize, u32); 32],
    of_pairs: Vec<Code>,
    /// `x^(4/3)` of 0 to 15, with either sign one after the other.
    signed: [f32; 32],
    /// `x^(4/3)`.
    powers: Vec<f32>,
    /// The length and the values of four that are 0, 1 or -1, by 10 bits, for both codes.
    quads: [Box<[(u32, [f32; 4])]>; 2],
}

/// They take 200 kB, and are made when the first stream needs them.
static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

/// A number of a code that no stream may choose.
const NONE: usize = usize::MAX;

impl Code {
    fn new(listed: &Listed, has_linbits: bool) -> Self {
        let mut first = Box::new([0; 1 << FIRST]);
        // The longest code below each entry of the first look-up.
        let mut deepest = [0; 1 << FIRST];
        let codes = || listed.lengths.iter().map(|length| u32::from(*length)).zip(listed.bits).enumerate();
        for (number, (length, bits)) in codes() {
            let (x, y) = ((number / listed.side) as u32, (number % listed.side) as u32);
            let bits = usize::from(*bits);
            if length > FIRST {
                let deep = &mut deepest[bits >> (length - FIRST)];
                *deep = length.max(*deep);
                continue;
            }
            let signs = u32::from(x > 0) + u32::from(y > 0);
            let begin = bits << (FIRST - length);
            let room = &mut first[begin..begin + (1 << (FIRST - length))];
            if length + signs > FIRST || (has_linbits && x.max(y) == 15) {
                room.fill(CODE | length | x << 8 | y << 16);
                continue;
            }
            for (after, entry) in room.iter_mut().enumerate() {
                // The bits after the code are the signs of what is not 0.
                let signs_there = (after >> (FIRST - length - signs)) as u32;
                let (of_x, of_y) = if y > 0 { (signs_there >> 1, signs_there & 1) } else { (signs_there, 0) };
                let of_x = if x > 0 { of_x & 1 } else { 0 };
                *entry = (length + signs) | (2 * x + of_x) << 8 | (2 * y + of_y) << 16;
            }
        }
        let mut second = Vec::new();
        for (entry, deep) in first.iter_mut().zip(deepest).filter(|(_, deep)| *deep > 0) {
            *entry = LINK | (deep - FIRST) | (second.len() as u32) << 8;
            second.resize(second.len() + (1 << (deep - FIRST)), 0);
        }
        for (number, (length, bits)) in codes().filter(|(_, (length, _))| *length > FIRST) {
            let (x, y) = ((number / listed.side) as u32, (number % listed.side) as u32);
            let bits = usize::from(*bits);
            let link = first[bits >> (length - FIRST)];
            let (wide, offset) = (link & 0xff, (link & !LINK) as usize >> 8);
            let rest = bits & ((1 << (length - FIRST)) - 1);
            let spare = wide - (length - FIRST);
            let begin = offset + (rest << spare);
            second[begin..begin + (1 << spare)].fill(CODE | length | x << 8 | y << 16);
        }
        Self { first, second }
    }
}

impl Tables {
    pub(super) fn get() -> &'static Self {
        &TABLES
    }

    fn new() -> Self {
        let of_pairs = LISTED.iter().map(|(number, listed)| Code::new(listed, *number >= 16)).collect();
        let place = |number: usize| LISTED.iter().position(|(listed, _)| *listed == number).unwrap_or(NONE);
        let codes = std::array::from_fn(|number| match number {
            0..16 => (place(number), 0),
            16..24 => (place(16), [1, 2, 3, 4, 6, 8, 10, 13][number - 16]),
            _ => (place(24), [4, 5, 6, 7, 8, 9, 11, 13][number - 24]),
        });
        let powers: Vec<f32> = (0..=VALUES).map(|value| (value as f64).powf(4.0 / 3.0) as f32).collect();
        let signed = std::array::from_fn(|i| if i % 2 == 0 { powers[i / 2] } else { -powers[i / 2] });
        let inverted: [(u8, u8); 16] = std::array::from_fn(|values| (4, 15 - values as u8));
        Self { codes, of_pairs, signed, powers, quads: [quads(&QUADS), quads(&inverted)] }
    }

    /// Whether a stream may choose this number of a code: of 0 all values are 0.
    pub(super) fn has(&self, number: usize) -> bool {
        number == 0 || self.codes.get(number).is_some_and(|(code, _)| *code != NONE)
    }

    /// Decodes pairs: of each value `|x|^(4/3)` with its sign. `number` is one that [`Self::has`].
    pub(super) fn pairs(&self, number: usize, bits: &mut Bits<'_>, out: &mut [f32]) {
        let (code, linbits) = self.codes[number & 31];
        let Some(code) = self.of_pairs.get(code) else {
            out.fill(0.0);
            return;
        };
        let mut pairs = out.as_chunks_mut::<2>().0.iter_mut();
        'refill: loop {
            bits.refill();
            for _ in 0..PAIRS {
                let Some(pair) = pairs.next() else { return };
                let entry = code.first[bits.ahead(FIRST)];
                if entry >= CODE {
                    *pair = self.long_pair(code, linbits, entry, bits);
                    continue 'refill;
                }
                bits.skip(entry & 0xff);
                *pair = [self.signed[(entry >> 8) as usize & 31], self.signed[(entry >> 16) as usize & 31]];
            }
        }
    }

    fn long_pair(&self, code: &Code, linbits: u32, entry: u32, bits: &mut Bits<'_>) -> [f32; 2] {
        // A code, its signs and two rests of values have at most 47 bits.
        bits.refill();
        let entry = if entry >= LINK {
            let wide = entry & 0xff;
            let within = bits.ahead(FIRST + wide) & ((1 << wide) - 1);
            code.second[((entry & !LINK) >> 8) as usize + within]
        } else {
            entry
        };
        bits.skip(entry & 0xff);
        [entry >> 8, entry >> 16].map(|value| {
            let mut value = value & 0xff;
            if value == 0 {
                return 0.0;
            }
            if value == 15 && linbits > 0 {
                value += bits.held(linbits);
            }
            let power = self.powers[value as usize];
            if bits.held(1) == 1 { -power } else { power }
        })
    }

    /// Decodes values of 0, 1 and -1 until bit `end`, or all of `out` is full: how many, which is a multiple of 4.
    ///
    /// The last four may have been made of bits beyond the end.
    pub(super) fn ones(&self, second: bool, bits: &mut Bits<'_>, end: usize, out: &mut [f32]) -> usize {
        let table = &self.quads[usize::from(second)];
        let mut left = end as isize - bits.position() as isize;
        let mut count = 0;
        for room in out.as_chunks_mut::<4>().0 {
            if left <= 0 {
                break;
            }
            bits.refill();
            let (length, values) = table[bits.ahead(10) & 0x3ff];
            bits.skip(length);
            left -= length as isize;
            *room = values;
            count += 4;
        }
        count
    }
}

/// By 10 bits, which have every code with its signs.
fn quads(codes: &[(u8, u8); 16]) -> Box<[(u32, [f32; 4])]> {
    let mut table = vec![(0, [0.0; 4]); 1 << 10].into_boxed_slice();
    for (number, (length, bits)) in codes.iter().enumerate() {
        let (length, begin) = (u32::from(*length), usize::from(*bits) << (10 - length));
        for (after, entry) in table[begin..begin + (1 << (10 - length))].iter_mut().enumerate() {
            let mut at = 10 - length;
            entry.1 = std::array::from_fn(|place| {
                if number & (8 >> place) == 0 {
                    return 0.0;
                }
                at -= 1;
                if after >> at & 1 == 1 { -1.0 } else { 1.0 }
            });
            entry.0 = 10 - at;
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes bits, the most significant first.
    #[derive(Default)]
    struct Writer(Vec<bool>);

    impl Writer {
        fn put(&mut self, value: u32, count: u32) {
            self.0.extend((0..count).rev().map(|bit| value >> bit & 1 == 1));
        }

        fn bytes(&self) -> Vec<u8> {
            let byte = |bits: &[bool]| {
                bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | u8::from(*bit) << (7 - i))
            };
            self.0.chunks(8).map(byte).collect()
        }
    }

    #[test]
    fn codes_have_no_gaps() {
        for (number, listed) in LISTED {
            let filled: f64 = listed.lengths.iter().map(|length| 0.5f64.powi(i32::from(*length))).sum();
            assert_eq!((listed.lengths.len(), listed.bits.len()), (listed.side.pow(2), listed.side.pow(2)));
            assert_eq!(filled, 1.0, "code {number}");
        }
    }

    #[test]
    fn every_pair_of_every_code_comes_back() {
        let tables = Tables::get();
        for number in (0..32).filter(|number| tables.has(*number) && *number > 0) {
            let linbits = tables.codes[number].1;
            let (_, listed) = LISTED.iter().rfind(|(listed, _)| *listed <= number).unwrap();
            let (mut writer, mut expected) = (Writer::default(), Vec::new());
            for (code, (length, bits)) in listed.lengths.iter().zip(listed.bits).enumerate() {
                writer.put(u32::from(*bits), u32::from(*length));
                for (place, value) in [code / listed.side, code % listed.side].into_iter().enumerate() {
                    let more =
                        if value == 15 && linbits > 0 { (code as u32 * 97) % (1 << linbits) } else { 0 };
                    if value == 15 && linbits > 0 {
                        writer.put(more, linbits);
                    }
                    let negative = (code + place) % 3 == 0;
                    if value > 0 {
                        writer.put(u32::from(negative), 1);
                    }
                    let power = (value as f64 + f64::from(more)).powf(4.0 / 3.0) as f32;
                    expected.push(if negative { -power } else { power });
                }
            }
            let bytes = writer.bytes();
            let mut bits = Bits::new(&bytes, 0);
            let mut found = vec![0.5; expected.len()];
            tables.pairs(number, &mut bits, &mut found);
            assert_eq!(found, expected, "code {number}");
            assert_eq!(bits.position(), writer.0.len(), "code {number}");
        }
    }

    #[test]
    fn every_four_of_both_codes_come_back() {
        let inverted: [(u8, u8); 16] = std::array::from_fn(|values| (4, 15 - values as u8));
        for (second, codes) in [(false, QUADS), (true, inverted)] {
            let (mut writer, mut expected) = (Writer::default(), Vec::new());
            for (number, (length, bits)) in codes.iter().enumerate() {
                writer.put(u32::from(*bits), u32::from(*length));
                for place in 0..4 {
                    let there = number & (8 >> place) != 0;
                    let negative = (number + place) % 2 == 0;
                    if there {
                        writer.put(u32::from(negative), 1);
                    }
                    expected.push(f32::from(i8::from(there)) * if negative { -1.0 } else { 1.0 });
                }
            }
            let bytes = writer.bytes();
            let mut bits = Bits::new(&bytes, 0);
            let mut found = vec![0.5; expected.len() + 8];
            let count = Tables::get().ones(second, &mut bits, writer.0.len(), &mut found);
            assert_eq!(found[..count], expected);
            assert_eq!(bits.position(), writer.0.len());
        }
    }
}
