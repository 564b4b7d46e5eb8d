//! [`Fields`]: where the fields of some whole rows lie, a matrix of places, whatever is wrong with single rows.

use std::borrow::Cow;

use super::scan::Dialect;

/// What is wrong with a row before any of its fields is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// It has another number of fields.
    Count(u32),
    /// A field that is not quoted has a quote in it.
    QuoteInside(u32),
    /// Something stands behind the closing quote of a field.
    BehindQuote(u32),
    /// The text ends within quotes.
    Open(u32),
}

/// Fields of rows.
#[derive(Debug, Default)]
pub(super) struct Fields {
    /// Fields of a row.
    width: usize,
    /// Where each row begins.
    starts: Vec<u32>,
    /// Where each field ends, row by row.
    ends: Vec<u32>,
    /// Rows with a flaw, in order: what `starts` and `ends` say of them is nothing.
    pub(super) flawed: Vec<(u32, Flaw)>,
}

/// Bits of a block of 64 bytes: those that delimit, quote or end a line.
fn marks(block: &[u8; 64], delimiter: u8, quote: u8) -> u64 {
    let mut bits = 0;
    for (i, part) in block.as_chunks::<8>().0.iter().enumerate() {
        let word = u64::from_le_bytes(*part);
        let found = equal(word, delimiter) | equal(word, quote) | equal(word, b'\n') | equal(word, b'\r');
        // The highest bit of each byte, gathered into one byte.
        let byte = (found >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        bits |= byte << (i * 8);
    }
    bits
}

/// The highest bit of each byte of `word` that is `byte`.
fn equal(word: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let differ = word ^ (u64::from(byte) * 0x0101_0101_0101_0101);
    // No carry leaves its byte.
    !(((differ & LOW) + LOW) | differ | LOW)
}

impl Fields {
    /// The fields of `text`, which begins with a row and ends before the line end of the last one: `width` each, in `rows` rows.
    /// `text` has less than 2 GiB.
    pub(super) fn split(text: &[u8], width: usize, dialect: Dialect, rows: usize) -> Self {
        let made = Self {
            width,
            starts: Vec::with_capacity(rows + 1),
            ends: Vec::with_capacity((rows + 1).saturating_mul(width)),
            flawed: Vec::new(),
        };
        let mut splitter = Splitter {
            text,
            dialect,
            made,
            rows,
            start: 0,
            field: 0,
            column: 0,
            flaw: None,
            quotes: Quotes::None,
        };
        let quote = if dialect.quotes { b'"' } else { dialect.delimiter };
        let (blocks, rest) = text.as_chunks::<64>();
        let mut last = [0; 64];
        last[..rest.len()].copy_from_slice(rest);
        let mut at = 0;
        // Bytes behind the end are 0, which marks nothing unless it is the delimiter.
        let valid = (1_u64 << rest.len()) - 1;
        let blocks = blocks.iter().map(|block| (block, u64::MAX)).chain([(&last, valid)]);
        for (block, valid) in blocks {
            let mut bits = marks(block, dialect.delimiter, quote) & valid;
            while bits != 0 {
                splitter.mark(at + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
            at += 64;
        }
        splitter.finish()
    }

    pub(super) fn rows(&self) -> usize {
        self.starts.len()
    }

    /// The field of row `row` in column `column`, as it stands in `text`, with its quotes.
    pub(super) fn raw<'a>(&self, text: &'a [u8], row: usize, column: usize) -> &'a [u8] {
        let place = row * self.width + column;
        let start = if column == 0 { self.starts[row] } else { self.ends[place - 1] + 1 };
        text.get(start as usize..self.ends[place] as usize).unwrap_or_default()
    }

    /// Bytes that it holds.
    pub(super) fn bytes(rows: u64, width: usize) -> u64 {
        (rows + 1).saturating_mul(4 * (width as u64 + 1))
    }
}

/// What a field says, without the quotes around it; doubled ones within are one.
pub(super) fn unquoted(raw: &[u8], quotes: bool) -> Cow<'_, [u8]> {
    match raw {
        [b'"', inner @ .., b'"'] if quotes => match memchr::memchr(b'"', inner) {
            None => Cow::Borrowed(inner),
            Some(_) => {
                let mut made = Vec::with_capacity(inner.len());
                let mut pair = false;
                for byte in inner {
                    pair = *byte == b'"' && !pair;
                    if !pair {
                        made.push(*byte);
                    }
                }
                Cow::Owned(made)
            }
        },
        raw => Cow::Borrowed(raw),
    }
}

/// Whether the current field is quoted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    None,
    Open,
    /// The place of a quote within, which closes the field unless another follows.
    Closed(usize),
}

struct Splitter<'a> {
    text: &'a [u8],
    dialect: Dialect,
    made: Fields,
    /// Rows that there are.
    rows: usize,
    /// Where the row and the field begin.
    start: usize,
    field: usize,
    column: usize,
    flaw: Option<Flaw>,
    quotes: Quotes,
}

impl Splitter<'_> {
    /// Takes the byte at `at`, which is a delimiter, a quote or the end of a line.
    #[inline]
    fn mark(&mut self, at: usize) {
        let byte = self.text[at];
        if self.quotes == Quotes::None && byte == self.dialect.delimiter {
            self.end_field(at);
            return;
        }
        self.other(at, byte);
    }

    #[inline]
    fn end_field(&mut self, at: usize) {
        if self.column < self.made.width {
            self.made.ends.push(at as u32);
        }
        self.column += 1;
        self.field = at + 1;
    }

    fn other(&mut self, at: usize, byte: u8) {
        match (self.quotes, byte) {
            (Quotes::Open, b'"') => self.quotes = Quotes::Closed(at),
            (Quotes::Open, _) => {}
            (Quotes::Closed(before), b'"') if before + 1 == at => self.quotes = Quotes::Open,
            (Quotes::None, b'"') if self.field == at => self.quotes = Quotes::Open,
            (_, b'"') if self.dialect.quotes => {
                self.flaw.get_or_insert(Flaw::QuoteInside(self.column as u32));
            }
            (_, b'\n') if at == self.start && at > 0 && self.text[at - 1] == b'\r' => {
                (self.start, self.field) = (at + 1, at + 1);
            }
            (quotes, byte) => {
                if matches!(quotes, Quotes::Closed(before) if before + 1 != at) {
                    self.flaw.get_or_insert(Flaw::BehindQuote(self.column as u32));
                }
                self.quotes = Quotes::None;
                self.end_field(at);
                if byte != self.dialect.delimiter {
                    self.end_row(at);
                }
            }
        }
    }

    /// Ends the row whose last field ends at `at`.
    fn end_row(&mut self, at: usize) {
        let made = &mut self.made;
        let blank = at == self.start && !self.dialect.single;
        if self.column != made.width {
            made.ends.truncate(made.starts.len() * made.width);
            if !blank {
                self.flaw.get_or_insert(Flaw::Count(self.column as u32));
            }
        }
        if let Some(flaw) = self.flaw.take() {
            made.flawed.push((made.starts.len() as u32, flaw));
        }
        if !blank {
            made.starts.push(self.start as u32);
            made.ends.resize(made.starts.len() * made.width, at as u32);
        }
        (self.start, self.field, self.column) = (at + 1, at + 1, 0);
    }

    fn finish(mut self) -> Fields {
        let end = self.text.len();
        let empty = self.dialect.single && self.made.starts.len() < self.rows;
        if self.start < end || empty {
            match self.quotes {
                Quotes::Open => self.flaw = Some(Flaw::Open(self.column as u32)),
                Quotes::Closed(before) if before + 1 != end => {
                    self.flaw.get_or_insert(Flaw::BehindQuote(self.column as u32));
                }
                _ => {}
            }
            self.end_field(end);
            self.end_row(end);
        }
        self.made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Dialect = Dialect { delimiter: b',', quotes: true, single: false };

    fn split(text: &str, width: usize, dialect: Dialect) -> (Vec<Vec<String>>, Vec<(u32, Flaw)>) {
        let text = text.as_bytes();
        let fields = Fields::split(text, width, dialect, 0);
        let one = |row, column| {
            String::from_utf8(unquoted(fields.raw(text, row, column), dialect.quotes).into_owned()).unwrap()
        };
        let rows =
            (0..fields.rows()).map(|row| (0..width).map(|column| one(row, column)).collect()).collect();
        (rows, fields.flawed)
    }

    #[test]
    fn marks_are_found_in_any_block() {
        let mut random = wellfed::rng::Rng::for_stage(1, 0, 0, 0);
        for _ in 0..2000 {
            let block: [u8; 64] = std::array::from_fn(|_| match random.next_u32() % 8 {
                0 => b',',
                1 => b'"',
                2 => b'\n',
                3 => b'\r',
                4 => b',' | 0x80,
                5 => b'-',
                _ => random.next_u32() as u8,
            });
            let expected = (0..64).filter(|i| matches!(block[*i], b',' | b'"' | b'\n' | b'\r'));
            assert_eq!(marks(&block, b',', b'"'), expected.fold(0, |bits, i| bits | 1 << i));
        }
    }

    #[test]
    fn fields_are_what_stands_between_delimiters_outside_of_quotes() {
        let (rows, flawed) = split("a,b\n\"c,\r\n\"\"x\"\"\",\r\n,\"\"\rlast,1", 2, ALL);
        assert!(flawed.is_empty(), "{flawed:?}");
        assert_eq!(rows, [["a", "b"], ["c,\r\n\"x\"", ""], ["", ""], ["last", "1"]]);
        let plain = Dialect { quotes: false, ..ALL };
        assert_eq!(split("\"a,b\"\r\n", 2, plain).0, [["\"a", "b\""]]);
        let tab = Dialect { delimiter: b'\t', ..ALL };
        assert_eq!(split("a,\tb\n\n\nc\t\n", 2, tab).0, [["a,", "b"], ["c", ""]]);
        let single = Dialect { single: true, ..ALL };
        assert_eq!(split("a\n\nb\n", 1, single).0, [["a"], [""], ["b"]]);
    }

    #[test]
    fn flaws_are_those_of_their_row() {
        let text = "1,2\n1\n1,2,3\n5\",2\n\"a\"b,2\n\"x\",2\n\"a\" ,\"b\"\n3,4\n\"a\"\"b\"c\",1\n7,\"8";
        let (rows, flawed) = split(text, 2, ALL);
        let expected = [
            (1, Flaw::Count(1)),
            (2, Flaw::Count(3)),
            (3, Flaw::QuoteInside(0)),
            (4, Flaw::BehindQuote(0)),
            (6, Flaw::BehindQuote(0)),
            (8, Flaw::QuoteInside(0)),
            (9, Flaw::Open(1)),
        ];
        assert_eq!(flawed, expected);
        assert_eq!(
            (rows.len(), &rows[5], &rows[7]),
            (10, &vec!["x".to_owned(), "2".into()], &vec!["3".into(), "4".into()])
        );
    }
}
