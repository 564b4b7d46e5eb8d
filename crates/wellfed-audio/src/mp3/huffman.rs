//! Huffman codes of layer III, decoded by tables: a look-up gives one or two groups of values with their signs.

use std::sync::LazyLock;

use super::{
    bits::Bits,
    huffman_tables::{LISTED, Listed, QUADS},
};

/// Bits of a look-up: nearly all groups of usual streams take one, and more than half of them come two at a time.
const FIRST: u32 = 11;

/// Look-ups whose bits come from one refill.
const LOOKUPS: usize = 5;

/// What a look-up gives. From the lowest bit on: 4 bits with the length of all groups and 4 with that of the first, signs and all; 1 bit,
/// whether there are two; 10 bits each with where the values of the groups are listed.
///
/// From `CODE` on it is a code of one pair whose signs, or the rest of whose values, come next: 8 bits with its length, 8 each with both
/// values. From `LINK` on it is the start of a longer code: 8 bits with the number of those that come next, and above where entries for
/// these begin.
type Entry = u32;

const CODE: Entry = 1 << 30;
const LINK: Entry = 2 << 30;

/// Values that a pair may have: 15 and the greatest number of 13 bits.
const VALUES: usize = 15 + (1 << 13);

/// A group with its signs that a look-up may begin with.
#[derive(Clone, Copy)]
struct Group {
    /// Bits of code and signs.
    length: u32,
    /// Where its values are listed.
    listed: u32,
}

/// Entries for groups by their first bits, two at a time where both have room. Of bits without a group they are 0.
fn entries(group: impl Fn(usize) -> Option<Group>) -> Box<[Entry; 1 << FIRST]> {
    let mut entries = Box::new([0; 1 << FIRST]);
    for (bits, entry) in entries.iter_mut().enumerate() {
        let Some(one) = group(bits) else { continue };
        // Bits that are not known are taken for 0: what follows counts only if its own bits are known.
        let rest = (bits << one.length) & ((1 << FIRST) - 1);
        let two = group(rest).filter(|two| one.length + two.length <= FIRST);
        let length = one.length + two.map_or(0, |two| two.length);
        *entry = length | one.length << 4 | u32::from(two.is_some()) << 8 | one.listed << 9;
        *entry |= two.map_or(0, |two| two.listed) << 19;
    }
    entries
}

/// The length of all groups of an entry, and the number of them.
#[inline(always)]
fn both(entry: Entry) -> (u32, usize) {
    (entry & 15, 1 + (entry >> 8 & 1) as usize)
}

/// Where the values of an entry's groups are listed.
#[inline(always)]
fn listed(entry: Entry) -> [usize; 2] {
    [entry >> 9, entry >> 19].map(|listed| listed as usize & 0x3ff)
}

/// A code of pairs.
#[derive(Debug)]
struct Code {
    first: Box<[Entry; 1 << FIRST]>,
    second: Vec<Entry>,
}

/// What is looked up.
#[derive(Debug)]
pub(super) struct Tables {
    /// The code of each number that a stream may choose, and its `linbits`.
    codes: [(usize, u32); 32],
    of_pairs: Vec<Code>,
    /// `x^(4/3)` and `y^(4/3)` with their signs, at `32 (2x + sign) + 2y + sign`.
    pairs: Box<[[f32; 2]; 1 << 10]>,
    /// `x^(4/3)`.
    powers: Vec<f32>,
    of_ones: [Box<[Entry; 1 << FIRST]>; 2],
    /// Four values that are 0, 1 or -1, as 2 bits each.
    ones: Box<[[f32; 4]; 1 << 8]>,
}

/// They take 300 kB, and are made when the first stream needs them.
static TABLES: LazyLock<Tables> = LazyLock::new(Tables::new);

/// A number of a code that no stream may choose.
const NONE: usize = usize::MAX;

impl Code {
    fn new(listed: &Listed, has_linbits: bool) -> Self {
        let codes = || {
            let codes = listed.lengths.iter().zip(listed.bits).enumerate();
            codes.map(|(number, (length, bits))| {
                let pair = ((number / listed.side) as u32, (number % listed.side) as u32);
                (pair, u32::from(*length), usize::from(*bits))
            })
        };
        let mut pairs = [None; 1 << FIRST];
        let mut others: [Entry; 1 << FIRST] = [0; 1 << FIRST];
        // The longest code below each entry of the first look-up.
        let mut deepest = [0; 1 << FIRST];
        for ((x, y), length, bits) in codes() {
            if length > FIRST {
                let deep = &mut deepest[bits >> (length - FIRST)];
                *deep = length.max(*deep);
                continue;
            }
            let signs = u32::from(x > 0) + u32::from(y > 0);
            let room = (bits << (FIRST - length))..((bits + 1) << (FIRST - length));
            if length + signs > FIRST || (has_linbits && x.max(y) == 15) {
                others[room].fill(CODE | length | x << 8 | y << 16);
                continue;
            }
            for (after, pair) in pairs[room].iter_mut().enumerate() {
                // The bits after the code are the signs of what is not 0.
                let signs_there = (after >> (FIRST - length - signs)) as u32;
                let of_y = if y > 0 { signs_there & 1 } else { 0 };
                let of_x = if x > 0 { signs_there >> u32::from(y > 0) & 1 } else { 0 };
                let listed = 32 * (2 * x + of_x) + 2 * y + of_y;
                *pair = Some(Group { length: length + signs, listed });
            }
        }
        let mut first = entries(|bits| pairs[bits]);
        let mut second = Vec::new();
        for ((entry, other), deep) in first.iter_mut().zip(others).zip(deepest) {
            *entry |= other;
            if deep > 0 {
                *entry = LINK | (deep - FIRST) | (second.len() as u32) << 8;
                second.resize(second.len() + (1 << (deep - FIRST)), 0);
            }
        }
        for ((x, y), length, bits) in codes().filter(|(_, length, _)| *length > FIRST) {
            let more = length - FIRST;
            let link = first[bits >> more];
            let (wide, offset) = (link & 0xff, (link & !LINK) as usize >> 8);
            let begin = offset + ((bits & ((1 << more) - 1)) << (wide - more));
            second[begin..begin + (1 << (wide - more))].fill(CODE | length | x << 8 | y << 16);
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
        let signed = |i: usize| if i.is_multiple_of(2) { powers[i / 2] } else { -powers[i / 2] };
        let pairs = Box::new(std::array::from_fn(|i| [signed(i / 32), signed(i % 32)]));
        let one = |i: usize| [0.0, 1.0, -1.0, 0.0][i & 3];
        let ones = Box::new(std::array::from_fn(|i| [one(i >> 6), one(i >> 4), one(i >> 2), one(i)]));
        let of_ones = [of_ones(&QUADS), of_ones(&INVERTED)];
        Self { codes, of_pairs, pairs, powers, of_ones, ones }
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
        let (mut at, reader) = (0, bits);
        // Its own copy, as of `Bits::refill`.
        let mut bits = *reader;
        'refill: loop {
            bits.refill();
            for _ in 0..LOOKUPS {
                let entry = code.first[bits.ahead(FIRST)];
                let Some(room) = out.get_mut(at..).and_then(<[f32]>::first_chunk_mut::<4>) else {
                    break 'refill;
                };
                if entry >= CODE {
                    let pair;
                    (pair, bits) = self.long_pair(code, linbits, entry, bits);
                    [room[0], room[1]] = pair;
                    at += 2;
                    continue 'refill;
                }
                // Where there is one pair, the next look-up overwrites what is no second one.
                let [one, two] = listed(entry).map(|listed| self.pairs[listed]);
                *room = [one[0], one[1], two[0], two[1]];
                let (length, count) = both(entry);
                bits.skip(length);
                at += 2 * count;
            }
        }
        if let Some(room) = out.get_mut(at..).and_then(<[f32]>::first_chunk_mut::<2>) {
            bits.refill();
            let entry = code.first[bits.ahead(FIRST)];
            if entry >= CODE {
                (*room, bits) = self.long_pair(code, linbits, entry, bits);
            } else {
                *room = self.pairs[listed(entry)[0]];
                bits.skip(entry >> 4 & 15);
            }
        }
        *reader = bits;
    }

    #[inline(never)]
    fn long_pair<'b>(
        &self,
        code: &Code,
        linbits: u32,
        entry: Entry,
        mut bits: Bits<'b>,
    ) -> ([f32; 2], Bits<'b>) {
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
        let pair = [entry >> 8, entry >> 16].map(|value| {
            let mut value = value & 0xff;
            if value == 0 {
                return 0.0;
            }
            if value == 15 && linbits > 0 {
                value += bits.held(linbits);
            }
            let power = self.powers[value as usize];
            if bits.held(1) == 1 { -power } else { power }
        });
        (pair, bits)
    }

    /// Decodes values of 0, 1 and -1 until bit `end`, or all of `out` is full: how many, which is a multiple of 4.
    ///
    /// The last four may have been made of bits beyond the end.
    pub(super) fn ones(&self, second: bool, bits: &mut Bits<'_>, end: usize, out: &mut [f32]) -> usize {
        let entries = &self.of_ones[usize::from(second)];
        let (mut at, reader) = (0, bits);
        let mut bits = *reader;
        // Two at a time only where both begin before the end.
        while end.saturating_sub(bits.position()) > LOOKUPS * FIRST as usize && out.len() >= at + 8 * LOOKUPS
        {
            bits.refill();
            for _ in 0..LOOKUPS {
                let entry = entries[bits.ahead(FIRST)];
                let Some(room) = out.get_mut(at..).and_then(<[f32]>::first_chunk_mut::<8>) else { break };
                let [one, two] = listed(entry).map(|listed| self.ones[listed & 0xff]);
                let (low, high) = room.split_at_mut(4);
                low.copy_from_slice(&one);
                high.copy_from_slice(&two);
                let (length, count) = both(entry);
                bits.skip(length);
                at += 4 * count;
            }
        }
        while bits.position() < end {
            let Some(room) = out.get_mut(at..).and_then(<[f32]>::first_chunk_mut::<4>) else { break };
            bits.refill();
            let entry = entries[bits.ahead(FIRST)];
            *room = self.ones[listed(entry)[0] & 0xff];
            bits.skip(entry >> 4 & 15);
            at += 4;
        }
        *reader = bits;
        at
    }
}

/// The second code of four values: their bits, inverted.
const INVERTED: [(u8, u8); 16] = {
    let mut codes = [(4, 0); 16];
    let mut number = 0;
    while number < 16 {
        codes[number].1 = 15 - number as u8;
        number += 1;
    }
    codes
};

/// Entries for groups of four values.
fn of_ones(codes: &[(u8, u8); 16]) -> Box<[Entry; 1 << FIRST]> {
    let mut groups = [None; 1 << FIRST];
    for (number, (length, bits)) in codes.iter().enumerate() {
        let (length, bits) = (u32::from(*length), usize::from(*bits));
        let room = (bits << (FIRST - length))..((bits + 1) << (FIRST - length));
        for (after, group) in groups[room].iter_mut().enumerate() {
            let mut at = FIRST - length;
            let listed = (0..4).fold(0, |listed, place| {
                if number & (8 >> place) == 0 {
                    return listed << 2;
                }
                at -= 1;
                listed << 2 | if after >> at & 1 == 1 { 2 } else { 1 }
            });
            *group = Some(Group { length: FIRST - at, listed });
        }
    }
    entries(|bits| groups[bits])
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
        for (second, codes) in [(false, QUADS), (true, INVERTED)] {
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
