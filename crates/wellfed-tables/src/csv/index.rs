//! Where groups of rows lie in files, found in one pass by several threads, each of which scans another piece.

use std::{
    collections::BTreeMap,
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use wellfed::{Result, store::Store};

use super::{
    scan::{Dialect, Row, Scanner, State},
    text::Text,
};

/// Bytes that are scanned at once.
const PIECE: u64 = 4 << 20;

/// Threads: more than most machines have cores, since stores answer several at once.
const THREADS: usize = 8;

/// Bytes from which on a row is a group by itself, and a group ends whatever rows it has.
const MOST: u64 = 32 << 20;

/// Bytes that are read of a last row whose quotes are not closed, which may be all of the file.
const OPEN: u64 = 1 << 20;

/// Rows that are parsed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) rows: u64,
    /// Lines of the file before it.
    pub(super) line: u64,
}

/// What [`find`] is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub(super) dialect: Dialect,
    /// Whether the first row is no data.
    pub(super) header: bool,
    /// Rows of a group.
    pub(super) rows: u64,
}

/// The groups of each of these texts.
///
/// # Errors
/// Those of the store.
pub(super) fn find(store: &dyn Store, texts: &[&Text], wanted: Wanted) -> Result<Vec<Vec<Group>>> {
    let mut pieces = Vec::new();
    for (number, text) in texts.iter().enumerate() {
        let all = (text.start..text.size).step_by(PIECE as usize);
        pieces.extend(all.map(|at| (number, at, PIECE.min(text.size - at))));
    }
    let threads = THREADS.min(pieces.len()).max(1);
    let joint = Joint {
        texts,
        wanted,
        pieces: &pieces,
        next: AtomicUsize::new(0),
        failed: AtomicBool::new(false),
        state: Mutex::default(),
        changed: Condvar::new(),
        ahead: 2 * threads,
    };
    let found = thread::scope(|scope| {
        let run = || joint.run(store);
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(run)).collect();
        let mut result = run();
        for other in others {
            let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(other);
        }
        result
    });
    found?;
    let mut state = joint.state.into_inner().unwrap_or_else(PoisonError::into_inner);
    state.made.resize_with(texts.len(), Vec::new);
    Ok(state.made)
}

/// A piece that was scanned as if a row began behind its first line.
struct Scanned {
    bytes: Vec<u8>,
    /// Bytes up to and with that line.
    head: usize,
    rows: Vec<Row>,
    end: Scanner,
}

/// What was put together: all pieces before `next`.
#[derive(Default)]
struct Done {
    next: usize,
    waiting: BTreeMap<usize, Scanned>,
    made: Vec<Vec<Group>>,
    open: Option<Open>,
}

/// A text that is being put together.
struct Open {
    scanner: Scanner,
    header: bool,
}

struct Joint<'a> {
    texts: &'a [&'a Text],
    wanted: Wanted,
    pieces: &'a [(usize, u64, u64)],
    next: AtomicUsize,
    failed: AtomicBool,
    state: Mutex<Done>,
    changed: Condvar,
    /// Pieces that may wait to be put together.
    ahead: usize,
}

/// Tells the others, if a thread ends by a panic, that its piece will not come.
struct Failing<'a>(&'a Joint<'a>);

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.failed.store(true, Relaxed);
            self.0.changed.notify_all();
        }
    }
}

impl Joint<'_> {
    fn run(&self, store: &dyn Store) -> Result<()> {
        let _failing = Failing(self);
        loop {
            let number = self.next.fetch_add(1, Relaxed);
            let Some((text, at, len)) = self.pieces.get(number) else { return Ok(()) };
            let mut state = self.lock();
            while number > state.next + self.ahead && !self.failed.load(Relaxed) {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            drop(state);
            if self.failed.load(Relaxed) {
                return Ok(());
            }
            let bytes = self.texts[*text].read(store, *at, *len).inspect_err(|_| {
                // Set while nobody is about to wait.
                let _state = self.lock();
                self.failed.store(true, Relaxed);
                self.changed.notify_all();
            })?;
            let head = memchr::memchr(b'\n', &bytes).map_or(bytes.len(), |found| found + 1);
            let mut end = Scanner::new(self.wanted.dialect, at + head as u64);
            let mut rows = Vec::new();
            end.feed(&bytes[head..], at + head as u64, &mut rows);
            let mut state = self.lock();
            state.waiting.insert(number, Scanned { bytes, head, rows, end });
            while let Some(scanned) = {
                let next = state.next;
                state.waiting.remove(&next)
            } {
                self.join(&mut state, scanned);
                state.next += 1;
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Done> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the next piece.
    fn join(&self, state: &mut Done, scanned: Scanned) {
        let (number, at, len) = self.pieces[state.next];
        let text = self.texts[number];
        let Scanned { bytes, head, rows: mut found, end } = scanned;
        let fresh = || Open { scanner: Scanner::new(self.wanted.dialect, at), header: self.wanted.header };
        let mut open = state.open.take().unwrap_or_else(fresh);
        let mut rows = Vec::new();
        open.scanner.feed(&bytes[..head], at, &mut rows);
        if open.scanner.state == State::Row && head > 0 {
            open.scanner.adopt(&end, &mut found);
            rows.append(&mut found);
        } else {
            open.scanner.feed(&bytes[head..], at + head as u64, &mut rows);
        }
        let last = at + len >= text.size;
        let unclosed = last && open.scanner.finish(text.size, &mut rows);
        state.made.resize_with(state.made.len().max(number + 1), Vec::new);
        let groups = &mut state.made[number];
        for row in rows {
            if !std::mem::take(&mut open.header) {
                add(groups, row, self.wanted.rows);
            }
        }
        if let (true, Some(group)) = (unclosed, groups.last_mut())
            && group.rows == 1
        {
            group.len = group.len.min(OPEN);
        }
        if !last {
            state.open = Some(open);
        }
    }
}

/// Adds a row to the last of some groups, or to a new one.
fn add(groups: &mut Vec<Group>, row: Row, most: u64) {
    let size = row.end - row.start;
    if let Some(group) = groups.last_mut()
        && group.rows < most
        && group.len.max(size) < MOST
    {
        group.rows += 1;
        group.len = row.end - group.offset;
        return;
    }
    groups.push(Group { offset: row.start, len: size, rows: 1, line: row.line });
}

/// A text for tests, and what is found in it piece by piece.
#[cfg(test)]
mod tests {
    use wellfed::store::LocalStore;

    use super::*;

    #[test]
    fn groups_are_those_of_one_scan_wherever_pieces_are_cut() {
        // Rows of which every fifth has a line end within quotes, longer than several pieces together.
        let mut bytes = b"id,text\n".to_vec();
        for i in 0..180_000 {
            let text = if i % 5 == 0 {
                format!("\"{i}\n\n,\"\"{}\"", "x\n".repeat(i % 97))
            } else {
                "y".repeat(i % 89)
            };
            bytes.extend_from_slice(format!("{i},{text}\r\n").as_bytes());
        }
        assert!(bytes.len() as u64 > 2 * PIECE);
        let dialect = Dialect { delimiter: b',', quotes: true, single: false };
        let wanted = Wanted { dialect, header: true, rows: 1000 };
        let (mut scanner, mut rows) = (Scanner::new(dialect, 0), Vec::new());
        scanner.feed(&bytes, 0, &mut rows);
        scanner.finish(bytes.len() as u64, &mut rows);
        let mut expected = Vec::new();
        rows.drain(..).skip(1).for_each(|row| add(&mut expected, row, 1000));
        let text = Text::memory("a.csv", bytes);
        for _ in 0..3 {
            let found = find(&LocalStore::new(), &[&text, &text], wanted).unwrap();
            assert_eq!(found, [expected.clone(), expected.clone()]);
        }
        assert_eq!(expected.iter().map(|group| group.rows).sum::<u64>(), 180_000);
        let empty = Text::memory("b.csv", Vec::new());
        assert_eq!(find(&LocalStore::new(), &[&empty], wanted).unwrap(), [vec![]]);
    }

    #[test]
    fn rows_that_are_large_stand_alone() {
        let mut groups = Vec::new();
        let row = |start, end| Row { start, end, line: 0 };
        for (start, end) in
            [(0, 10), (11, 20), (21, 21 + MOST), (MOST + 22, MOST + 30), (MOST + 31, MOST + 40)]
        {
            add(&mut groups, row(start, end), 2);
        }
        let sizes: Vec<(u64, u64)> = groups.iter().map(|group| (group.rows, group.len)).collect();
        assert_eq!(sizes, [(2, 20), (1, MOST), (2, 18)]);
    }
}
