//! The entropy-coded data of a scan: freed of byte stuffing, cut at restart markers, and walked through in order.
//!
//! Damaged data are handled as in libjpeg (`process_restart`, `jpeg_resync_to_restart`, `jpeg_fill_bit_buffer`):
//! what is missing reads as zero bits to the end of the MCU, and as empty blocks from there to the next restart.

use crate::bits::Bits;
use crate::kernels;
use crate::level::Level;
use crate::markers::{INVENTED, code, find};
use crate::memory::Ask;
use crate::{Error, ErrorKind, Limits, Result};

/// Zero bytes behind each piece, so that whole words can be loaded up to its end.
const PADDING: usize = 8;

/// Bytes that kernels may write behind what they append.
const VECTOR: usize = 64;

/// Entropy-coded data between two markers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    /// Where it lies in [`Entropy::data`].
    start: usize,
    end: usize,
    /// Where it lies in the file.
    raw_start: usize,
    raw_end: usize,
    /// Where its marks begin in [`Entropy::marks`].
    marks: usize,
    /// Up to where in the data the marks and the rules of stuffing hold: to the end, unless there are fill bytes.
    straight: usize,
    /// The marker behind it; `None` where the file ends.
    marker: Option<u8>,
}

/// A piece as it is kept: there may be one for each two bytes of a file.
#[derive(Clone, Copy, Debug)]
struct Kept {
    start: u32,
    end: u32,
    raw_start: u32,
    raw_end: u32,
    marks: u32,
    straight: u32,
    marker: Option<u8>,
}

impl From<Kept> for Piece {
    fn from(kept: Kept) -> Self {
        Piece {
            start: kept.start as usize,
            end: kept.end as usize,
            raw_start: kept.raw_start as usize,
            raw_end: kept.raw_end as usize,
            marks: kept.marks as usize,
            straight: kept.straight as usize,
            marker: kept.marker,
        }
    }
}

/// Pieces that a scan may have beyond one for each restart of its image: damaged files may have some.
const SPARE_PIECES: usize = 1024;

/// Which part of a file to take in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// From where on, and up to where at most.
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// MCUs between two restarts; 0 for none.
    pub(crate) interval: usize,
    /// MCUs that the scan has at most.
    pub(crate) mcus: usize,
}

/// What is behind the last MCU of a scan.
pub(crate) enum ScanEnd<'a> {
    /// A marker, and where it begins.
    Marker(usize),
    /// The end of the file: so many MCUs after the byte `start`, with these bits.
    Data { start: usize, bits: Bits<'a>, mcus: usize },
    /// The file ended before.
    Missing,
}

/// The data of a scan, or of a part of it.
#[derive(Debug, Default)]
pub(crate) struct Entropy {
    data: Vec<u8>,
    /// Length of `data` at every 64th byte of a piece in the file.
    marks: Vec<u32>,
    pieces: Vec<Kept>,
    /// Pieces from the first on whose restart markers are numbered as they should be.
    in_place: usize,
}

impl Entropy {
    /// Bytes allocated.
    pub(crate) fn capacity(&self) -> usize {
        self.data.capacity() + 4 * self.marks.capacity() + size_of::<Kept>() * self.pieces.capacity()
    }

    /// Takes in the scan's data from `start` to `end` at most: one piece, or all up to the first marker that is
    /// none of restarting if there are restart markers.
    ///
    /// # Errors
    /// `Memory` if there is none, `Limit` for more restart markers than the image has a use for.
    pub(crate) fn load(&mut self, level: Level, bytes: &[u8], part: Part, ask: Ask<'_>) -> Result<()> {
        let Part { start, end, interval, mcus } = part;
        self.data.clear();
        self.marks.clear();
        self.pieces.clear();
        self.in_place = 0;
        if start > bytes.len() {
            return self.load_invented(start, start - bytes.len(), ask);
        }
        let restarts = mcus.checked_div(interval).unwrap_or(0);
        let most = restarts.saturating_mul(2).saturating_add(SPARE_PIECES);
        let mut at = start;
        loop {
            // Kernels write whole vectors, and what they append is reserved here.
            ask.reserve(&mut self.data, end - at + VECTOR + PADDING)?;
            ask.reserve(&mut self.marks, (end - at).div_ceil(64) + 1)?;
            ask.reserve(&mut self.pieces, 1)?;
            let (begin, marks) = (self.data.len(), self.marks.len());
            let mut stop = at + kernels::unstuff(level, &bytes[at..end], &mut self.data, &mut self.marks);
            let straight = self.data.len();
            // Fill bytes before stuffing make no marker: together they are one FF, as for libjpeg.
            while let Some(after) = filled(&bytes[..end], stop) {
                self.data.push(0xFF);
                stop = after + kernels::unstuff(level, &bytes[after..end], &mut self.data, &mut self.marks);
            }
            let piece_end = self.data.len();
            self.data.extend_from_slice(&[0; PADDING]);
            // A lone FF at the very end may be cut off its second byte.
            let marker = if stop + 1 < end { find(bytes, stop) } else { None };
            if self.data.len() > u32::MAX as usize || stop > u32::MAX as usize {
                return Err(Error::new(ErrorKind::Limit, "JPEG has a scan of more than 4 GiB"));
            }
            let code = marker.map(|(code, _)| code);
            if self.in_place == self.pieces.len() && code == Some(code::RST0 + (self.in_place & 7) as u8) {
                self.in_place += 1;
            }
            self.pieces.push(Kept {
                start: begin as u32,
                end: piece_end as u32,
                raw_start: at as u32,
                raw_end: stop as u32,
                marks: marks as u32,
                straight: straight as u32,
                marker: code,
            });
            match marker {
                Some((code, after)) if interval != 0 && is_restart_or_reserved(code) && after <= end => {
                    Limits::check("has", self.pieces.len() as u64, most as u64, "restart markers in a scan")?;
                    at = after;
                }
                _ => return Ok(()),
            }
        }
    }

    /// The data so many bytes behind the file's end, where end markers are invented: half of one may be left.
    fn load_invented(&mut self, start: usize, behind: usize, ask: Ask<'_>) -> Result<()> {
        ask.reserve(&mut self.data, 1 + PADDING)?;
        ask.reserve(&mut self.pieces, 1)?;
        self.data.extend(INVENTED.get(1).filter(|_| behind % 2 == 1));
        let end = self.data.len();
        self.data.extend_from_slice(&[0; PADDING]);
        let (raw, marker) = (start as u32, None);
        let end = end as u32;
        self.pieces.push(Kept { start: 0, end, raw_start: raw, raw_end: raw, marks: 0, straight: 0, marker });
        Ok(())
    }

    /// The first piece without stuffing.
    pub(crate) fn codes(&self) -> &[u8] {
        let Piece { start, end, .. } = self.piece(0);
        &self.data[start..end]
    }

    /// The bit of the first piece that is the file's `raw_bit`; `None` where that lies elsewhere.
    pub(crate) fn bit_of(&self, bytes: &[u8], raw_bit: usize) -> Option<usize> {
        self.find_bit(bytes, raw_bit).filter(|&(piece, _)| piece == 0).map(|(_, bit)| bit)
    }

    /// A piece by its number.
    fn piece(&self, number: usize) -> Piece {
        self.pieces[number].into()
    }

    /// What is behind a scan of `mcus` MCUs.
    pub(crate) fn end(&self, interval: usize, mcus: usize) -> ScanEnd<'_> {
        let Some(last) = self.pieces.last() else { return ScanEnd::Missing };
        let restarts = |piece: &Kept| piece.marker.is_some_and(|marker| marker >= code::SOF0);
        if last.marker == Some(code::EOI) && self.pieces.iter().all(restarts) {
            return ScanEnd::Marker(last.raw_end as usize);
        }
        // Which of the markers are passed does not depend on the data between them.
        let mut stream = Stream::new(self, interval);
        let mut left = mcus;
        while interval != 0 && left > interval && self.pieces[stream.piece].marker.is_some() {
            stream.restart();
            left -= interval;
        }
        let Piece { marker, raw_start, raw_end, .. } = self.piece(stream.piece);
        match marker {
            Some(_) => ScanEnd::Marker(raw_end),
            None if stream.stuck || interval != 0 && left > interval => ScanEnd::Missing,
            None => ScanEnd::Data { start: raw_start, bits: stream.bits, mcus: left },
        }
    }

    fn bits(&self, piece: usize) -> Bits<'_> {
        let Piece { start, end, .. } = self.piece(piece);
        Bits::new(&self.data[start..end + PADDING], 0)
    }

    /// The file's bit behind `bit` of a piece's data: byte times 8, plus bits. `None` behind fill bytes.
    fn raw_bit(&self, bytes: &[u8], piece: usize, bit: usize) -> Option<usize> {
        let Piece { start, end, raw_start, raw_end, marks, straight, .. } = self.piece(piece);
        let target = (start + bit / 8).min(end);
        if target > straight {
            return None;
        }
        let next = self.pieces.get(piece + 1).map_or(self.marks.len(), |next| next.marks as usize);
        let chunk =
            self.marks[marks..next].partition_point(|&length| length as usize <= target).saturating_sub(1);
        let mut raw = raw_start + 64 * chunk;
        let mut at = self.marks.get(marks + chunk).map_or(start, |&length| length as usize);
        while raw < raw_end {
            let stuffing = bytes[raw] == 0 && raw > raw_start && bytes[raw - 1] == 0xFF;
            if !stuffing {
                if at == target {
                    break;
                }
                at += 1;
            }
            raw += 1;
        }
        Some(8 * raw + bit % 8)
    }

    /// The piece and its bit where the file's bit lies; the reverse of [`Entropy::raw_bit`]. `None` outside.
    fn find_bit(&self, bytes: &[u8], raw_bit: usize) -> Option<(usize, usize)> {
        let raw = raw_bit / 8;
        let piece = self.pieces.partition_point(|piece| piece.raw_start as usize <= raw).checked_sub(1)?;
        let Piece { start, raw_start, raw_end, marks, .. } = self.piece(piece);
        if raw > raw_end {
            return None;
        }
        let chunk = (raw - raw_start) / 64;
        let (mut at, mut from) = match self.marks.get(marks + chunk) {
            Some(&length) => (length as usize, raw_start + 64 * chunk),
            None => (start, raw_start),
        };
        while from < raw {
            let stuffing = bytes[from] == 0 && from > raw_start && bytes[from - 1] == 0xFF;
            at += usize::from(!stuffing);
            from += 1;
        }
        Some((piece, 8 * (at - start) + raw_bit % 8))
    }
}

/// Where data go on behind several FF and a 00 at `at`.
fn filled(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let fill = rest.iter().position(|&byte| byte != 0xFF)?;
    (fill > 1 && rest[fill] == 0).then_some(at + fill + 1)
}

fn is_restart_or_reserved(marker: u8) -> bool {
    marker < code::SOF0 || (code::RST0..=code::RST7).contains(&marker)
}

/// Predictions of DC coefficients, one for each component.
pub(crate) type Predictors = [i32; 4];

/// A place in the entropy-coded data, between two MCUs.
#[derive(Clone, Debug)]
pub(crate) struct Stream<'a> {
    entropy: &'a Entropy,
    pub(crate) bits: Bits<'a>,
    pub(crate) predictors: Predictors,
    /// Blocks that are still empty after an end of band (progressive scans only).
    pub(crate) end_of_band_run: u32,
    /// The data of this interval have ended before its MCUs.
    pub(crate) exhausted: bool,
    /// There were data at the start of an MCU since this was last looked at.
    pub(crate) fed: bool,
    piece: usize,
    /// The marker that ends the piece was met and not passed: the next interval has no data.
    stuck: bool,
    interval: usize,
    /// MCUs before the next restart.
    left: usize,
    /// Number of the next restart marker.
    next_restart: u8,
}

impl<'a> Stream<'a> {
    /// The beginning of a scan with a restart every `interval` MCUs, 0 for none.
    pub(crate) fn new(entropy: &'a Entropy, interval: usize) -> Self {
        Stream {
            entropy,
            bits: entropy.bits(0),
            predictors: [0; 4],
            end_of_band_run: 0,
            exhausted: false,
            fed: false,
            piece: 0,
            stuck: false,
            interval,
            left: if interval == 0 { usize::MAX } else { interval },
            next_restart: 0,
        }
    }

    /// How many of the next `n` MCUs come before the next restart, which is passed first if it is due.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> usize {
        // A restart may end this, which then counts from the next MCU on.
        let most = if self.exhausted { 1 } else { n };
        self.fed |= !self.exhausted;
        if self.left == 0 {
            self.restart();
        }
        let n = most.min(self.left);
        if self.interval != 0 {
            self.left -= n;
        }
        n
    }

    /// How many bits the piece has.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        let Piece { start, end, .. } = self.entropy.piece(self.piece);
        if self.stuck { 0 } else { 8 * (end - start) }
    }

    /// True if more bits were read than the piece has.
    #[inline]
    pub(crate) fn overran(&self) -> bool {
        self.stuck || self.bits.position() > self.end()
    }

    /// Passes a restart marker, or makes the best of what is there instead.
    fn restart(&mut self) {
        self.predictors = [0; 4];
        self.end_of_band_run = 0;
        self.left = self.interval;
        let wanted = self.next_restart;
        self.next_restart = (wanted + 1) & 7;
        loop {
            let passes = match self.entropy.pieces[self.piece].marker {
                None => false,
                // Reserved codes are taken for damage and passed, like restarts of the past.
                Some(marker) if marker < code::SOF0 => {
                    if !self.next_piece() {
                        break;
                    }
                    continue;
                }
                Some(marker @ code::RST0..=code::RST7) => {
                    match (marker - code::RST0).wrapping_sub(wanted) & 7 {
                        1 | 2 => false,
                        6 | 7 => {
                            if !self.next_piece() {
                                break;
                            }
                            continue;
                        }
                        _ => true,
                    }
                }
                Some(_) => false,
            };
            if passes && self.next_piece() {
                self.exhausted = false;
                self.stuck = false;
                return;
            }
            break;
        }
        // Up against a marker that belongs to later data: this interval is empty.
        self.stuck = true;
        self.bits = Bits::new(&[], 0);
    }

    fn next_piece(&mut self) -> bool {
        if self.piece + 1 >= self.entropy.pieces.len() {
            return false;
        }
        self.piece += 1;
        self.bits = self.entropy.bits(self.piece);
        true
    }

    /// Where in the file the marker behind the stream's position begins: from where to read on after the scan.
    pub(crate) fn raw_end(&self) -> usize {
        self.entropy.piece(self.piece).raw_end
    }

    /// Jumps to MCU `mcu` or to the last restart before it, if the restarts are all in place; says how many MCUs
    /// are left to pass. `here` is the MCU at which the stream stands.
    pub(crate) fn jump(&mut self, here: usize, mcu: usize) -> usize {
        if self.interval == 0 || mcu / self.interval <= here / self.interval {
            return mcu - here;
        }
        let piece = mcu / self.interval;
        if piece >= self.entropy.pieces.len() || piece > self.entropy.in_place {
            return mcu - here;
        }
        *self = Stream {
            piece,
            bits: self.entropy.bits(piece),
            next_restart: (piece & 7) as u8,
            ..Stream::new(self.entropy, self.interval)
        };
        mcu - piece * self.interval
    }

    /// The file's bit at which the stream stands; `None` where the data are damaged.
    pub(crate) fn raw_position(&self, bytes: &[u8]) -> Option<usize> {
        let sound = !self.exhausted && !self.stuck && !self.overran();
        if sound { self.entropy.raw_bit(bytes, self.piece, self.bits.position()) } else { None }
    }

    /// Jumps to a bit of the file, where MCU `mcu` begins; false if it is not in the data.
    pub(crate) fn seek(&mut self, bytes: &[u8], raw_bit: usize, mcu: usize, predictors: Predictors) -> bool {
        let Some((piece, bit)) = self.entropy.find_bit(bytes, raw_bit) else { return false };
        let Piece { start, end, .. } = self.entropy.piece(piece);
        self.bits = Bits::new(&self.entropy.data[start..end + PADDING], bit);
        (self.piece, self.predictors) = (piece, predictors);
        (self.exhausted, self.stuck) = (false, false);
        if self.interval != 0 && mcu > 0 {
            let passed = (mcu - 1) / self.interval;
            self.left = (passed + 1) * self.interval - mcu;
            self.next_restart = (passed & 7) as u8;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn restarts(count: usize) -> Vec<u8> {
        (0..count).flat_map(|i| [0xFF, code::RST0 + (i % 8) as u8]).collect()
    }

    #[test]
    fn restart_markers_take_no_more_memory_than_is_allowed() {
        let bytes = restarts(1 << 17);
        let part = |mcus| Part { start: 0, end: bytes.len(), interval: 1, mcus };
        let (level, mut entropy) = (Level::best(), Entropy::default());
        let error = entropy.load(level, &bytes, part(100), Ask::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Limit, "a hundred MCUs have no use for so many");
        assert!(entropy.capacity() < 1 << 20, "{}", entropy.capacity());
        entropy.load(level, &bytes, part(1 << 17), Ask::default()).unwrap();
        assert!(entropy.capacity() < 32 * bytes.len(), "{}", entropy.capacity());
        let (asked, mut entropy) = (std::cell::Cell::new(0), Entropy::default());
        let allowed = |more| {
            asked.set(asked.get() + more);
            asked.get() < 1 << 20
        };
        let error = entropy.load(level, &bytes, part(1 << 17), Ask::new(&allowed)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory);
        assert!(entropy.capacity() < 1 << 20, "{}", entropy.capacity());
    }

    #[test]
    fn a_jump_over_restarts_needs_no_look_at_those_before() {
        let mut bytes = restarts(64);
        let part = Part { start: 0, end: bytes.len(), interval: 1, mcus: 64 };
        let mut entropy = Entropy::default();
        entropy.load(Level::Scalar, &bytes, part, Ask::default()).unwrap();
        assert_eq!((entropy.in_place, Stream::new(&entropy, 1).jump(0, 60)), (64, 0));
        bytes[81] = code::RST0;
        bytes[83] = code::RST0;
        entropy.load(Level::Scalar, &bytes, part, Ask::default()).unwrap();
        assert_eq!(entropy.in_place, 41, "the one before is an RST0 by right");
        assert_eq!(Stream::new(&entropy, 1).jump(0, 60), 60, "damage is passed in order");
    }
}
