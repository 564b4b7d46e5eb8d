//! [`Scanner`]: where rows begin and end in a text, a piece after the other.
//!
//! A quote opens a quoted field only where a field begins. So a text can be entered behind any `\n`, in one of two states: a row
//! begins there, or it lies within quotes. Pieces are scanned at the same time as if a row began; where that was wrong, the piece
//! is scanned again.

/// How a text is to be taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dialect {
    pub(super) delimiter: u8,
    /// Whether fields may be quoted.
    pub(super) quotes: bool,
    /// Whether there is one column only: then a line without anything is a row, and else none.
    pub(super) single: bool,
}

/// What the next byte is to be taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The first of a row.
    Row,
    /// The first of a field.
    Field,
    /// Within a field, or behind its closing quote.
    Plain,
    /// Within quotes.
    Quoted,
    /// Behind a quote within quotes: that was the closing one, unless another follows.
    Quote,
    /// Behind `\r`, which has ended a row: `\n` belongs to it.
    Return,
}

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    /// Its first byte.
    pub(super) start: u64,
    /// The byte behind its last one, before the end of the line.
    pub(super) end: u64,
    /// Lines before it.
    pub(super) line: u64,
}

/// Finds rows. Lines are counted as `\n` within quotes, and ends of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scanner {
    dialect: Dialect,
    pub(super) state: State,
    /// Where the open row begins, and lines before it.
    start: u64,
    start_line: u64,
    line: u64,
}

impl Scanner {
    /// A row begins at byte `at`.
    pub(super) fn new(dialect: Dialect, at: u64) -> Self {
        Self { dialect, state: State::Row, start: at, start_line: 0, line: 0 }
    }

    /// Goes on with `bytes`, which lie at `at`.
    pub(super) fn feed(&mut self, bytes: &[u8], at: u64, rows: &mut Vec<Row>) {
        let Some(&first) = bytes.first() else { return };
        let mut i = 0;
        match self.state {
            State::Return => {
                i = usize::from(first == b'\n');
                self.begin(at + i as u64);
            }
            State::Quote if first == b'"' => {
                i = 1;
                self.state = State::Quoted;
            }
            State::Quote => self.state = State::Plain,
            _ => {}
        }
        while i < bytes.len() {
            i = if self.state == State::Quoted {
                self.quoted(bytes, i)
            } else {
                self.plain(bytes, i, at, rows)
            };
        }
    }

    /// Goes on within quotes, as far as the next byte that counts.
    fn quoted(&mut self, bytes: &[u8], i: usize) -> usize {
        let Some(found) = memchr::memchr2(b'"', b'\n', &bytes[i..]) else { return bytes.len() };
        let found = i + found;
        if bytes[found] == b'\n' {
            self.line += 1;
            return found + 1;
        }
        match bytes.get(found + 1) {
            Some(b'"') => return found + 2,
            Some(_) => self.state = State::Plain,
            None => self.state = State::Quote,
        }
        found + 1
    }

    /// Goes on outside of quotes.
    fn plain(&mut self, bytes: &[u8], i: usize, at: u64, rows: &mut Vec<Row>) -> usize {
        let rest = &bytes[i..];
        let found = if self.dialect.quotes {
            memchr::memchr3(b'"', b'\n', b'\r', rest)
        } else {
            memchr::memchr2(b'\n', b'\r', rest)
        };
        let Some(found) = found else {
            let delimited = rest.last() == Some(&self.dialect.delimiter);
            self.state = if delimited { State::Field } else { State::Plain };
            return bytes.len();
        };
        let (p, here) = (i + found, at + (i + found) as u64);
        if bytes[p] == b'"' {
            let opens = match found {
                0 => matches!(self.state, State::Row | State::Field),
                _ => bytes[p - 1] == self.dialect.delimiter,
            };
            self.state = if opens { State::Quoted } else { State::Plain };
            return p + 1;
        }
        self.end(here, rows);
        if bytes[p] == b'\n' {
            self.begin(here + 1);
            return p + 1;
        }
        match bytes.get(p + 1) {
            Some(b'\n') => {
                self.begin(here + 2);
                p + 2
            }
            Some(_) => {
                self.begin(here + 1);
                p + 1
            }
            None => {
                self.state = State::Return;
                p + 1
            }
        }
    }

    fn begin(&mut self, at: u64) {
        (self.state, self.start, self.start_line) = (State::Row, at, self.line);
    }

    fn end(&mut self, at: u64, rows: &mut Vec<Row>) {
        if at > self.start || self.dialect.single {
            rows.push(Row { start: self.start, end: at, line: self.start_line });
        }
        self.line += 1;
    }

    /// Ends the text at byte `size`. True if that is within quotes.
    pub(super) fn finish(&mut self, size: u64, rows: &mut Vec<Row>) -> bool {
        let open = !matches!(self.state, State::Row | State::Return);
        if open {
            rows.push(Row { start: self.start, end: size, line: self.start_line });
        }
        open && self.state == State::Quoted
    }

    /// Goes on with what another one found that began here, where a row begins, and counted lines from 0.
    pub(super) fn adopt(&mut self, other: &Self, found: &mut [Row]) {
        found.iter_mut().for_each(|row| row.line += self.line);
        let start_line = other.start_line + self.line;
        *self = Self { line: self.line + other.line, start_line, ..*other };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Dialect = Dialect { delimiter: b',', quotes: true, single: false };

    fn rows(text: &[u8], dialect: Dialect, cuts: &[usize]) -> (Vec<Row>, bool) {
        let (mut scanner, mut found, mut at) = (Scanner::new(dialect, 0), Vec::new(), 0);
        for end in cuts.iter().copied().chain([text.len()]) {
            scanner.feed(&text[at..end], at as u64, &mut found);
            at = end;
        }
        let open = scanner.finish(text.len() as u64, &mut found);
        (found, open)
    }

    fn texts(text: &str, dialect: Dialect) -> Vec<&str> {
        let (found, _) = rows(text.as_bytes(), dialect, &[]);
        found.iter().map(|row| &text[row.start as usize..row.end as usize]).collect()
    }

    #[test]
    fn rows_end_with_lines_outside_of_quotes() {
        assert_eq!(texts("a,b\nc,d", ALL), ["a,b", "c,d"]);
        assert_eq!(texts("a,b\r\nc,d\r\n", ALL), ["a,b", "c,d"]);
        assert_eq!(texts("a\rb\r\rc", ALL), ["a", "b", "c"]);
        assert_eq!(texts("\n\na,\"b\nc\"\n\n1,\"\"\"\n\"", ALL), ["a,\"b\nc\"", "1,\"\"\"\n\""]);
        assert_eq!(
            texts("5\",a\n6,\"\"\n", ALL),
            ["5\",a", "6,\"\""],
            "a quote within a field opens nothing"
        );
        assert_eq!(texts("\"a\"b\n\",\"\nc", ALL), ["\"a\"b", "\",\"", "c"]);
        let plain = Dialect { quotes: false, ..ALL };
        assert_eq!(texts("a,\"b\nc\"", plain), ["a,\"b", "c\""]);
        let single = Dialect { single: true, ..ALL };
        assert_eq!(texts("a\n\nb\n", single), ["a", "", "b"]);
        assert!(texts("", ALL).is_empty() && texts("", single).is_empty());
        assert!(rows(b"a,\"b\n", ALL, &[]).1, "open");
        assert!(!rows(b"a,\"b\"", ALL, &[]).1);
        let (found, _) = rows(b"a\n\"x\ny\",1\r\n\nb", ALL, &[]);
        assert_eq!(found.iter().map(|row| row.line).collect::<Vec<_>>(), [0, 1, 4]);
    }

    #[test]
    fn any_cuts_and_any_entry_behind_a_line_give_the_same_rows() {
        let mut random = wellfed::rng::Rng::for_stage(7, 0, 0, 0);
        let letters = b"a,\"\n\r;\"\n,b";
        for _ in 0..3000 {
            let len = random.next_u32() as usize % 40;
            let text: Vec<u8> =
                (0..len).map(|_| letters[random.next_u32() as usize % letters.len()]).collect();
            for dialect in [ALL, Dialect { single: true, ..ALL }, Dialect { quotes: false, ..ALL }] {
                let whole = rows(&text, dialect, &[]);
                for cut in 0..=len {
                    assert_eq!(rows(&text, dialect, &[cut]), whole, "{text:?} cut at {cut}");
                }
                let every: Vec<usize> = (0..len).collect();
                assert_eq!(rows(&text, dialect, &every), whole, "{text:?}");
                for at in (1..len).filter(|at| text[at - 1] == b'\n') {
                    let (mut first, mut found) = (Scanner::new(dialect, 0), Vec::new());
                    first.feed(&text[..at], 0, &mut found);
                    if first.state == State::Row {
                        let (mut second, mut more) = (Scanner::new(dialect, at as u64), Vec::new());
                        second.feed(&text[at..], at as u64, &mut more);
                        first.adopt(&second, &mut more);
                        found.append(&mut more);
                        let open = first.finish(len as u64, &mut found);
                        assert_eq!((found, open), whole);
                    } else {
                        assert_eq!(first.state, State::Quoted, "{text:?}");
                    }
                }
            }
        }
    }
}
