//! [`RowIndex`]: points of a file at which later decodes can start: where each row of MCUs begins, and two more in
//! its left part.
//!
//! A row's first MCUs are passed over by every decode of a window to the right of them. Two points in between, a ninth
//! and a quarter of the row from its start, spare 61 to 70 % of that for the windows of random resized crops (areas of
//! 8 to 100 %, aspect ratios of 3:4 to 4:3), whose left edges crowd to the left; the second of them alone some 45 %,
//! one more some 10 % on top.
//!
//! Its form as bytes, version 2 (numbers little-endian, checksums rapidhash v3):
//!
//! | offset | bytes | what |
//! |---|---|---|
//! | 0 | 4 | `WFRI` |
//! | 4 | 1 | version: 2 |
//! | 5 | 1 | components: 1 to 4 |
//! | 6 | 2 | columns of MCUs: 1 to 8192 |
//! | 8 | 1 | of every eight rows so many have a point at a ninth of the row: column `(columns + 4) / 9` |
//! | 9 | 1 | and so many at a quarter: column `(columns + 2) / 4` |
//! | 10 | 4 | points |
//! | 14 | 8 | length of the file |
//! | 22 | 8 | checksum of the file |
//! | 30 | 12 for each row at most, and 9 | bits: see below |
//! | end | 8 | checksum of all bytes before |
//!
//! Points come in the order of the file. Each row has one at its start; the rows whose number modulo 8 is below what
//! bytes 8 and 9 say have the others, if their columns are behind the one before.
//!
//! Of the bits the highest of each byte is the first. They begin with the bit of the file at which the first point
//! lies (32 bits), and a parameter of 5 bits for each of the three places of points in a row, and for each
//! component. For each point follow its distance in the file from the start of its row, or of a start of a row from
//! the one before, as a difference to that of the last point of the same place (to 0 for the first), by the parameter
//! of the place; and the DC predictors as differences to those of the last point of the same place (for the first of
//! them to the point before, and to 0 for the first of all), by the parameter of the component.
//!
//! Differences are folded (0, -1, 1, -2, …). A number `n` by parameter `k` is `n >> k` zeros, a one, and the lowest `k`
//! bits of `n`; or, if there would be 12 zeros or more, 12 zeros, one less than the number of its bits in 5 bits, and
//! these bits. The last byte is filled up with zeros.
//!
//! Where all points would take more than 12 bytes a row, rows lose the one at a ninth, as many as must, and then the
//! one at a quarter. Starts of rows alone take less in any file.

use crate::bits::Bits;
use crate::entropy::Predictors;
use crate::{Error, Result};

const MAGIC: &[u8; 4] = b"WFRI";
const VERSION: u8 = 2;
const HEADER: usize = 30;
const TRAILER: usize = 8;

/// Places of points in a row.
const PLACES: usize = 3;

/// Kinds of numbers: of places, and of components.
const KINDS: usize = PLACES + 4;

/// Rows after which the pattern of points is repeated.
const CYCLE: usize = 8;

/// JPEGs have no more rows of pixels, nor columns of 8.
const MAX_ROWS: usize = u16::MAX as usize;
const MAX_COLUMNS: usize = 1 << 13;

/// Bytes of the points of a row.
const ROW_BYTES: usize = 12;

/// Bits from one point to the next. No 8-bit image has a row of 32 MiB.
const MAX_BITS: u32 = 1 << 28;

/// Predictors are below this in size: a DC coefficient of an 8-bit image has 11 bits and a sign (T.81 F.1.2.1).
const MAX_PREDICTOR: i32 = 1 << 12;

/// Points of one file at which decoding can start, recorded while it was decoded: up to three in each row of MCUs.
///
/// About eleven bytes a row as [`RowIndex::to_bytes`], never more than twelve. It knows its file by length and
/// checksum: with any other file a decoder takes no notice of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowIndex {
    length: u64,
    checksum: u64,
    components: usize,
    columns: usize,
    /// Of every eight rows so many have the second point, and so many the third.
    dense: [u8; PLACES - 1],
    /// For each point its MCU and its bit of the file, in order, and the predictors of its components.
    starts: Vec<(u32, u32)>,
    predictors: Vec<i16>,
}

/// A place to start from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) mcu: usize,
    /// Where it begins in the file.
    pub(crate) bit: usize,
    pub(crate) predictors: Predictors,
}

impl Point {
    pub(crate) fn byte(self) -> usize {
        self.bit / 8
    }
}

impl RowIndex {
    /// An index without points of an image with so many columns of MCUs.
    pub(crate) fn new(bytes: &[u8], components: usize, columns: usize) -> Self {
        RowIndex {
            length: bytes.len() as u64,
            checksum: checksum(bytes),
            components,
            columns,
            dense: [CYCLE as u8; PLACES - 1],
            starts: Vec::new(),
            predictors: Vec::new(),
        }
    }

    /// True if this was recorded from these bytes.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.length == bytes.len() as u64 && self.checksum == checksum(bytes)
    }

    /// True if it can be one of an image with so many components and columns of MCUs.
    pub(crate) fn fits(&self, components: usize, columns: usize) -> bool {
        (self.components, self.columns) == (components, columns)
    }

    /// True if both belong to the same file and this one knows more rows, or more points of as many.
    pub fn extends(&self, other: &RowIndex) -> bool {
        let file = |index: &RowIndex| (index.length, index.checksum, index.components, index.columns);
        let known = |index: &RowIndex| (index.rows(), index.starts.len());
        file(self) == file(other) && known(self) > known(other)
    }

    /// Rows of MCUs whose beginning is known: the first ones.
    pub fn rows(&self) -> usize {
        self.starts.last().map_or(0, |&(mcu, _)| mcu as usize / self.columns + 1)
    }

    /// The MCU of the next point to note.
    pub(crate) fn next(&self) -> usize {
        self.starts.last().map_or(0, |&(mcu, _)| self.next_after(mcu as usize).0)
    }

    /// The MCU of the point behind the one at `mcu`, and its place in the row.
    fn next_after(&self, mcu: usize) -> (usize, usize) {
        let (row, column) = (mcu / self.columns, mcu % self.columns);
        for (place, at) in [(1, (self.columns + 4) / 9), (2, (self.columns + 2) / 4)] {
            if at > column && row % CYCLE < usize::from(self.dense[place - 1]) {
                return (row * self.columns + at, place);
            }
        }
        ((row + 1) * self.columns, 0)
    }

    /// Notes the next point; false, and nothing noted, if its numbers are larger than this form holds.
    pub(crate) fn push(&mut self, bit: usize, predictors: &Predictors) -> bool {
        let Ok(bit) = u32::try_from(bit) else { return false };
        let mcu = self.next();
        let follows = self.starts.last().is_none_or(|&(_, last)| bit > last && bit - last < MAX_BITS);
        let fits = predictors.iter().all(|&p| p.abs() < MAX_PREDICTOR);
        if !follows || !fits || mcu >= MAX_ROWS * self.columns {
            return false;
        }
        self.starts.push((mcu as u32, bit));
        self.predictors.extend(predictors[..self.components].iter().map(|&p| p as i16));
        true
    }

    /// The last point that is known of those up to `mcu`.
    pub(crate) fn before(&self, mcu: usize) -> Option<Point> {
        let after = self.starts.partition_point(|&(start, _)| start as usize <= mcu);
        self.get(after.checked_sub(1)?)
    }

    /// The first point that is known of those from `mcu` on.
    pub(crate) fn after(&self, mcu: usize) -> Option<Point> {
        self.get(self.starts.partition_point(|&(start, _)| (start as usize) < mcu))
    }

    fn get(&self, point: usize) -> Option<Point> {
        let &(mcu, bit) = self.starts.get(point)?;
        let mut predictors = [0; 4];
        for (to, from) in predictors.iter_mut().zip(self.predictors_of(point)) {
            *to = i32::from(*from);
        }
        Some(Point { mcu: mcu as usize, bit: bit as usize, predictors })
    }

    fn predictors_of(&self, point: usize) -> &[i16] {
        &self.predictors[point * self.components..][..self.components]
    }

    /// Bytes in memory.
    pub fn size(&self) -> usize {
        size_of::<Self>() + size_of::<(u32, u32)>() * self.starts.len() + 2 * self.predictors.len()
    }
}

impl RowIndex {
    /// The versioned form for keeping it: some fifty bytes, and about eleven for each row. There may be fewer points
    /// in it, where all of them take more than twelve bytes a row.
    ///
    /// ```
    /// # let bytes = include_bytes!("../tests/images/grey.jpg");
    /// use wellfed_jpeg::{Decoder, Options, RowIndex};
    ///
    /// let mut decoder = Decoder::new();
    /// decoder.decode(bytes, &Options { record: true, ..Options::default() })?;
    /// let index = decoder.take_index().expect("a sequential file");
    /// let kept = index.to_bytes();
    /// let index = RowIndex::from_bytes(&kept)?;
    /// assert!(index.matches(bytes));
    /// decoder.decode(bytes, &Options { index: Some(&index), ..Options::default() })?;
    /// # Ok::<(), wellfed_jpeg::Error>(())
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let numbers = self.numbers();
        let (parameters, costs) = parameters(&numbers);
        let head = 32 + 5 * (PLACES + self.components);
        let bits = head + costs.iter().sum::<usize>();
        let room = head + 8 * ROW_BYTES * self.rows();
        if bits > room && self.dense != [0; 2] {
            // About as many bits for each point; not too many points at once, as some take fewer.
            let excess = (bits - room) * self.starts.len() / (bits - head);
            let steps = (excess * CYCLE / self.rows()).clamp(1, CYCLE) as u8;
            return self.thinned(steps).to_bytes();
        }

        let mut out = Vec::with_capacity(HEADER + bits.div_ceil(8) + TRAILER);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[VERSION, self.components as u8]);
        out.extend_from_slice(&(self.columns as u16).to_le_bytes());
        out.extend_from_slice(&self.dense);
        out.extend_from_slice(&(self.starts.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.length.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        let mut writer = Writer { out, bits: 0, count: 0 };
        writer.put(self.starts.first().map_or(0, |first| first.1), 32);
        parameters[..PLACES + self.components].iter().for_each(|&k| writer.put(k, 5));
        numbers.iter().for_each(|&(kind, number)| writer.put_number(number, parameters[kind]));
        let mut out = writer.finish();
        let sum = checksum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// The same with a point less in so many of every eight rows.
    fn thinned(&self, steps: u8) -> Self {
        let [second, third] = self.dense;
        let dense =
            if second > 0 { [second.saturating_sub(steps), third] } else { [0, third.saturating_sub(steps)] };
        let (starts, predictors) = (Vec::new(), Vec::new());
        let mut thin = RowIndex { dense, starts, predictors, ..*self };
        for (point, &start) in self.starts.iter().enumerate() {
            if start.0 as usize == thin.next() {
                thin.starts.push(start);
                thin.predictors.extend_from_slice(self.predictors_of(point));
            }
        }
        thin
    }

    /// What is written for the points, each with its kind.
    fn numbers(&self) -> Vec<(usize, u32)> {
        let mut numbers = Vec::with_capacity(self.starts.len() * (1 + self.components));
        let mut before = Before::new(self.starts.first().map_or(0, |first| first.1));
        let mut place = 0;
        for (point, &(mcu, bit)) in self.starts.iter().enumerate() {
            let distance = (bit - before.row) as i32;
            numbers.push((place, fold(distance - before.distances[place])));
            let reference = before.of(place);
            let predictors = self.predictors_of(point);
            for (c, (&now, before)) in predictors.iter().zip(reference).enumerate() {
                numbers.push((PLACES + c, fold(i32::from(now) - before)));
            }
            before.pass(place, bit, distance, predictors);
            place = self.next_after(mcu as usize).1;
        }
        numbers
    }

    /// Reads what [`RowIndex::to_bytes`] wrote.
    ///
    /// # Errors
    /// `Corrupt` for anything else: another version, damage, numbers that no file has. Never allocates more than
    /// a few times what is there.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).ok_or_else(|| Error::corrupt("row index is damaged, or of another version"))
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(TRAILER)?)?;
        let (header, packed) = body.split_at_checked(HEADER)?;
        let number = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let components = usize::from(header[5]);
        let columns = usize::from(u16::from_le_bytes([header[6], header[7]]));
        let dense = [header[8], header[9]];
        let points = u32::from_le_bytes(header[10..14].try_into().ok()?) as usize;
        let sound = header.starts_with(MAGIC)
            && header[4] == VERSION
            && (1..=4).contains(&components)
            && (1..=MAX_COLUMNS).contains(&columns)
            && dense.iter().all(|&rows| usize::from(rows) <= CYCLE)
            && 8 * packed.len() >= points.checked_mul(1 + components)?
            && sum == checksum(body).to_le_bytes();
        if !sound {
            return None;
        }
        let mut this = RowIndex {
            length: number(14)?,
            checksum: number(22)?,
            components,
            columns,
            dense,
            starts: Vec::with_capacity(points),
            predictors: Vec::with_capacity(points * components),
        };
        // The checksum behind them is the padding that a reader needs.
        let mut from = Bits::new(&bytes[HEADER..], 0);
        let mut before = Before::new(from.take_long(32) as u32);
        let mut parameters = [0; KINDS];
        for parameter in &mut parameters[..PLACES + components] {
            *parameter = from.take_long(5) as u32;
        }
        let mut place = 0;
        for point in 0..points {
            let difference = unfold(take(&mut from, parameters[place]));
            let distance = before.distances[place].checked_add(difference)?;
            let bit = before.row.checked_add(u32::try_from(distance).ok()?)?;
            let mut predictors = *before.of(place);
            for (predictor, &k) in predictors[..components].iter_mut().zip(&parameters[PLACES..]) {
                *predictor = predictor.checked_add(unfold(take(&mut from, k)))?;
            }
            if u64::from(bit) / 8 >= this.length || !this.push(bit as usize, &predictors) {
                return None;
            }
            before.pass(place, bit, distance, this.predictors_of(point));
            place = this.next_after(this.starts.last()?.0 as usize).1;
        }
        let rest = (8 * packed.len()).checked_sub(from.position())?;
        (rest < 8 && (rest == 0 || from.take_long(rest as u32) == 0)).then_some(this)
    }
}

/// The points before one, as far as its numbers refer to them.
struct Before {
    /// Bit of the last start of a row.
    row: u32,
    /// Of the last point of each place its distance from the start of its row, or from the row before.
    distances: [i32; PLACES],
    /// And its predictors, once there is one.
    predictors: [Option<Predictors>; PLACES],
    last: Predictors,
}

impl Before {
    fn new(row: u32) -> Self {
        Before { row, distances: [0; PLACES], predictors: [None; PLACES], last: [0; 4] }
    }

    /// The predictors to which those of the next point are differences.
    fn of(&self, place: usize) -> &Predictors {
        self.predictors[place].as_ref().unwrap_or(&self.last)
    }

    fn pass(&mut self, place: usize, bit: u32, distance: i32, predictors: &[i16]) {
        if place == 0 {
            self.row = bit;
        }
        for (to, from) in self.last.iter_mut().zip(predictors) {
            *to = i32::from(*from);
        }
        self.distances[place] = distance;
        self.predictors[place] = Some(self.last);
    }
}

/// For each kind of number the parameter that makes them shortest, or nearly, and the bits they take then: of the
/// parameter of the mean, the next one, and the one with which each number takes its bits and one more.
fn parameters(numbers: &[(usize, u32)]) -> ([u32; KINDS], [usize; KINDS]) {
    let (mut sums, mut counts, mut all) = ([0u64; KINDS], [0; KINDS], [0; KINDS]);
    for &(kind, number) in numbers {
        sums[kind] += u64::from(number);
        counts[kind] += 1;
        all[kind] |= number;
    }
    let candidates: [[u32; 4]; KINDS] = std::array::from_fn(|kind| {
        let mean = sums[kind].checked_div(counts[kind]).unwrap_or(0);
        let k = mean.checked_ilog2().unwrap_or(0);
        [k.saturating_sub(2), k.saturating_sub(1), k, bits_of(all[kind]).min(31)]
    });
    let mut costs = [[0; 4]; KINDS];
    for &(kind, number) in numbers {
        for (cost, k) in costs[kind].iter_mut().zip(candidates[kind]) {
            *cost += length(number, k);
        }
    }
    let best = |kind: usize| (0..4).min_by_key(|&i| costs[kind][i]).unwrap_or(0);
    (
        std::array::from_fn(|kind| candidates[kind][best(kind)]),
        std::array::from_fn(|kind| costs[kind][best(kind)] as usize),
    )
}

/// A checksum of a whole file, at several bytes a cycle.
fn checksum(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

/// Small numbers of either sign as small numbers.
fn fold(value: i32) -> u32 {
    ((value << 1) ^ (value >> 31)) as u32
}

fn unfold(value: u32) -> i32 {
    (value >> 1) as i32 ^ -((value & 1) as i32)
}

/// Zeros behind which a number comes with how many bits it has.
const MAX_ZEROS: u32 = 12;

/// How many bits a number has, at least one.
fn bits_of(number: u32) -> u32 {
    u32::BITS - (number | 1).leading_zeros()
}

/// Bits that a number takes by parameter `k`.
fn length(number: u32, k: u32) -> u32 {
    match number >> k {
        zeros if zeros < MAX_ZEROS => zeros + 1 + k,
        _ => MAX_ZEROS + 5 + bits_of(number),
    }
}

/// The next number by parameter `k`, below 32.
fn take(from: &mut Bits<'_>, k: u32) -> u32 {
    from.refill();
    let zeros = from.peek(MAX_ZEROS).leading_zeros() - (32 - MAX_ZEROS);
    if zeros == MAX_ZEROS {
        from.skip(MAX_ZEROS);
        let bits = from.take_long(5) as u32 + 1;
        return from.take_long(bits) as u32;
    }
    from.skip(zeros + 1);
    let low = if k == 0 { 0 } else { from.take_long(k) as u32 };
    zeros.wrapping_shl(k) | low
}

/// Appends bits to bytes, the highest first.
struct Writer {
    out: Vec<u8>,
    bits: u64,
    /// How many of the lowest bits are not written yet: up to 7.
    count: u32,
}

impl Writer {
    /// The lowest `count` bits, up to 32.
    fn put(&mut self, bits: u32, count: u32) {
        self.bits = self.bits << count | u64::from(bits) & ((1 << count) - 1);
        self.count += count;
        while self.count >= 8 {
            self.count -= 8;
            self.out.push((self.bits >> self.count) as u8);
        }
    }

    /// A number by parameter `k`.
    fn put_number(&mut self, number: u32, k: u32) {
        if number >> k < MAX_ZEROS {
            self.put(1, (number >> k) + 1);
            self.put(number, k);
        } else {
            self.put(0, MAX_ZEROS);
            self.put(bits_of(number) - 1, 5);
            self.put(number, bits_of(number));
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.put(0, (8 - self.count) % 8);
        self.out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FILE: &[u8] = &[7; 70_000];

    /// Indexes of `FILE`, as decoding it might make them.
    fn indexes() -> impl Strategy<Value = RowIndex> {
        let points = prop::collection::vec((1usize..1500, prop::array::uniform4(-4095i32..4096)), 0..360);
        let spread = prop::sample::select(vec![1, 30, 4096]);
        (1usize..5, points, 1usize..60, spread).prop_map(|(components, points, columns, spread)| {
            let mut index = RowIndex::new(FILE, components, columns);
            let mut bit = 600;
            for (bits, predictors) in points {
                bit += bits;
                let mut predictors = predictors.map(|p| p % spread);
                predictors[components..].fill(0);
                assert!(index.push(bit, &predictors));
            }
            index
        })
    }

    /// What is left of an index where it is to be no longer than its bytes.
    fn kept(index: &RowIndex, dense: [u8; 2]) -> RowIndex {
        let mut kept = index.clone();
        while kept.dense != dense {
            kept = kept.thinned(1);
        }
        kept
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_and_is_small(index in indexes()) {
            let bytes = index.to_bytes();
            prop_assert!(bytes.len() <= 38 + 9 + 12 * index.rows());
            let read = RowIndex::from_bytes(&bytes).unwrap();
            prop_assert_eq!(read.rows(), index.rows());
            prop_assert!(!read.extends(&index));
            prop_assert_eq!(&read, &kept(&index, read.dense));
            prop_assert_eq!(read.to_bytes(), bytes);
        }

        #[test]
        fn points_are_found(index in indexes(), row in 0usize..400, column: prop::sample::Index) {
            let mcu = row * index.columns + column.index(index.columns);
            let all: Vec<Point> = (0..index.starts.len()).filter_map(|i| index.get(i)).collect();
            prop_assert!(all.is_sorted_by(|a, b| a.mcu < b.mcu && a.bit < b.bit));
            prop_assert_eq!(index.before(mcu), all.iter().rfind(|point| point.mcu <= mcu).copied());
            prop_assert_eq!(index.after(mcu), all.iter().find(|point| point.mcu >= mcu).copied());
            prop_assert_eq!(
                (0..index.rows()).all(|row| all.iter().any(|p| p.mcu == row * index.columns)), true
            );
        }

        #[test]
        fn every_change_of_a_byte_is_noticed(index in indexes(), at: prop::sample::Index, bit in 0..8u32) {
            let mut bytes = index.to_bytes();
            let at = at.index(bytes.len());
            bytes[at] ^= 1u8 << bit;
            prop_assert!(RowIndex::from_bytes(&bytes).is_err());
            prop_assert!(RowIndex::from_bytes(&bytes[..at]).is_err());
        }

        /// Where the checksum was made to fit, what is read is none, or at least something a file may have.
        #[test]
        fn lies_do_no_harm(index in indexes(), at: prop::sample::Index, with: u8, cut in 0usize..3) {
            let mut bytes = index.to_bytes();
            bytes.truncate(bytes.len() - TRAILER);
            let at = at.index(bytes.len());
            bytes[at] = with;
            bytes.truncate(bytes.len().saturating_sub(cut));
            let sum = checksum(&bytes);
            bytes.extend_from_slice(&sum.to_le_bytes());
            if let Ok(read) = RowIndex::from_bytes(&bytes) {
                prop_assert!(read.starts.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1));
                prop_assert!(read.starts.iter().all(|start| u64::from(start.1) / 8 < read.length));
                prop_assert_eq!(read.predictors.len(), read.starts.len() * read.components);
            }
        }

        #[test]
        fn anything_can_be_read(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(RowIndex::from_bytes(&bytes).is_err());
        }
    }

    #[test]
    fn numbers_that_no_photograph_has_end_an_index() {
        let mut index = RowIndex::new(FILE, 3, 32);
        assert!(index.push(5000, &[1, 2, 3, 0]));
        assert!(!index.push(5000, &[1, 2, 3, 0]));
        assert!(!index.push(4000, &[1, 2, 3, 0]));
        assert!(!index.push(5001, &[5000, 2, 3, 0]));
        assert!(!index.push(5000 + (1 << 28), &[1, 2, 3, 0]));
        assert!(!index.push(1 << 40, &[1, 2, 3, 0]));
        assert!(index.push(5001, &[-4095, 4095, 3, 0]));
        assert_eq!(RowIndex::from_bytes(&index.to_bytes()).unwrap(), index);
    }

    #[test]
    fn photographs_keep_all_points() {
        // Rows of some 22,000 bits, predictors as of a quality of 75.
        let (mut index, mut bit) = (RowIndex::new(FILE, 3, 32), 600);
        for i in 0..72i32 {
            bit += 5000 + (i * 7919 % 3001) as usize;
            let predictors = [i * 7919 % 97 - 48, i * 6007 % 17 - 8, i * 4099 % 17 - 8, 0];
            assert!(index.push(bit, &predictors));
        }
        assert_eq!(RowIndex::from_bytes(&index.to_bytes()).unwrap(), index);
    }

    #[test]
    fn another_file_does_not_match() {
        let index = RowIndex::new(FILE, 3, 32);
        let mut other = FILE.to_vec();
        assert!(index.matches(&other));
        other[69_999] ^= 1;
        assert!(!index.matches(&other) && !index.matches(&FILE[1..]));
    }
}
