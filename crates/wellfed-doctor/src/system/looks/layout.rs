//! Where CPython keeps what tells a thread's stack: offsets in bytes, by version.
//!
//! They follow from the headers of CPython (`Include/internal/pycore_{runtime,interp,frame,code}.h`), and stay the same within
//! 3.N on machines of 64 bits.

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// In `_PyRuntime`: the first interpreter.
    pub(super) interpreters: u64,
    /// In an interpreter: its first thread.
    pub(super) threads: u64,
    /// In a thread: the next one.
    pub(super) next: u64,
    /// In a thread: its interpreter.
    pub(super) interpreter: u64,
    /// In a thread: `pthread_t`.
    pub(super) pthread: u64,
    /// In a thread: its number for the kernel.
    pub(super) native: Option<u64>,
    /// In a thread: the frame, or what points to it.
    pub(super) frame: u64,
    /// In what points to the frame.
    pub(super) indirect: Option<u64>,
    /// In a frame: its code.
    pub(super) code: u64,
    /// In a frame: its caller's.
    pub(super) previous: u64,
    /// In a frame: the instruction that runs; a pointer, where the code has its instructions within.
    pub(super) instruction: u64,
    /// In a frame: who owns it. Those of the interpreter itself, which run no Python, are told by a number of 3 and more.
    pub(super) owner: Option<u64>,
    /// Bytes of a frame, as far as it is read.
    pub(super) frame_size: usize,
    /// In a code object: the first instruction, if it lies within.
    pub(super) instructions: Option<u64>,
    /// In a code object: file.
    pub(super) file: u64,
    /// In a code object: name, qualified where there is one.
    pub(super) name: u64,
    /// In a code object: the table of positions.
    pub(super) positions: u64,
    /// In a code object: first line.
    pub(super) line: u64,
    /// Bytes before the characters of a string of ASCII.
    pub(super) ascii: u64,
    /// Bytes before those of another one.
    pub(super) compact: u64,
}

/// The layout of Python 3.`minor`, if it is known.
pub(super) fn of(minor: u64) -> Option<Layout> {
    let common = Layout {
        interpreters: 40,
        threads: 72,
        next: 8,
        interpreter: 16,
        pthread: 136,
        native: Some(144),
        frame: 56,
        indirect: Some(0),
        code: 0,
        previous: 8,
        instruction: 56,
        owner: Some(70),
        frame_size: 72,
        instructions: Some(192),
        file: 112,
        name: 128,
        positions: 136,
        line: 68,
        ascii: 40,
        compact: 56,
    };
    match minor {
        10 => Some(Layout {
            interpreters: 32,
            threads: 8,
            pthread: 176,
            native: None,
            frame: 24,
            indirect: None,
            code: 32,
            previous: 24,
            instruction: 96,
            owner: None,
            frame_size: 104,
            instructions: None,
            file: 104,
            name: 112,
            positions: 120,
            line: 40,
            ascii: 48,
            compact: 72,
            ..common
        }),
        11 => Some(Layout {
            threads: 16,
            pthread: 152,
            native: Some(160),
            indirect: Some(8),
            code: 32,
            previous: 48,
            owner: None,
            instructions: Some(184),
            line: 72,
            ascii: 48,
            compact: 72,
            ..common
        }),
        12 => Some(common),
        13 => Some(Layout {
            interpreters: 632,
            threads: 7344,
            pthread: 152,
            native: Some(160),
            frame: 72,
            indirect: None,
            instructions: Some(200),
            ..common
        }),
        _ => None,
    }
}
