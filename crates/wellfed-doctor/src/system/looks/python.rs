//! The threads of another process's Python interpreter, and their stacks, without its lock.
//!
//! The process runs on meanwhile. A frame that has just been left still says what it was, so what is found is the stack of a
//! moment, except for calls that begin and end within the microseconds of a look. What makes no sense is dropped: a frame
//! counts only if its code is a code object.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::ffi::OsStrExt,
};

use super::{
    elf,
    layout::{self, Layout},
    memory::{Memory, half, word},
    positions::{self, Position},
};

/// Frames of a stack that are followed.
const DEPTH: usize = 200;

/// Threads that are followed.
const MOST_THREADS: usize = 1000;

/// Offset of a thread's number for the kernel in what `pthread_t` points to; glibc.
const PTHREAD_ID: u64 = if cfg!(target_arch = "aarch64") { 208 } else { 720 };

/// Offset of the length of strings and bytes.
const LENGTH: u64 = 16;

/// Offset of the kind of a string.
const KIND: u64 = 32;

/// An interpreter in another process.
#[derive(Debug)]
pub(super) struct Python {
    memory: Memory,
    layout: Layout,
    /// Address of the interpreter's state, and the end of what is the whole runtime's.
    runtime: (u64, u64),
    /// The type of code objects, once one was seen.
    code_type: Option<u64>,
    /// Code objects by address: which of `seen`, and the generation it was compared in.
    codes: HashMap<u64, (u32, u32)>,
    /// All code objects that were seen, also those that are gone.
    seen: Vec<Code>,
    generation: u32,
}

/// A code object.
#[derive(Debug)]
struct Code {
    file: String,
    name: String,
    line: u32,
    table: Vec<u8>,
    /// Address of its table: another one has another, where its own place was used again.
    identity: (u64, u32),
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    /// The code, numbered as it was seen.
    pub(super) code: u32,
    /// Instruction, in units of two bytes from the first one on.
    pub(super) unit: u64,
}

/// A thread that runs Python.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PythonThread {
    /// Its number for the kernel.
    pub(super) tid: u32,
    /// Where the interpreter keeps its state.
    pub(super) state: u64,
}

/// What a place is called in the source.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Place {
    pub(super) file: String,
    pub(super) name: String,
    pub(super) position: Position,
    /// Whether nothing but the function's entry runs there.
    pub(super) entry: bool,
}

/// A piece of the memory that frames lie in.
#[derive(Debug)]
struct Piece {
    begin: u64,
    len: usize,
    bytes: [u8; PIECE],
}

/// Bytes that are read at once.
const PIECE: usize = 2048;

impl Default for Piece {
    fn default() -> Self {
        Self { begin: 0, len: 0, bytes: [0; PIECE] }
    }
}

impl Piece {
    /// So many bytes at an address: as they were when the piece was read, if they are in it.
    fn at(&mut self, memory: Memory, address: u64, size: usize) -> Option<&[u8]> {
        let inside = |this: &Self| {
            let at = usize::try_from(address.checked_sub(this.begin)?).ok()?;
            (at + size <= this.len).then_some(at)
        };
        if address == 0 {
            return None;
        }
        let at = inside(self).or_else(|| {
            // As far before it as that is memory at all.
            for before in [PIECE - size, 0] {
                self.begin = address.saturating_sub(before as u64);
                self.len = before + size;
                if memory.read(self.begin, &mut self.bytes[..self.len]).is_ok() {
                    return inside(self);
                }
            }
            self.len = 0;
            None
        })?;
        self.bytes.get(at..at + size)
    }
}

impl Python {
    /// That of a process.
    ///
    /// # Errors
    ///
    /// In words, if it may not be looked at, or is none whose layout is known.
    pub(super) fn of(pid: u32) -> Result<Self, String> {
        if cfg!(not(target_pointer_width = "64")) {
            return Err("Python's stacks are seen from outside on machines of 64 bits only".to_owned());
        }
        let memory = Memory::of(pid);
        let (base, file, path) = library(pid)?;
        let [runtime, version] =
            elf::symbols(&file, ["_PyRuntime", "Py_Version"]).map_err(|error| format!("{path}: {error}"))?;
        let runtime = runtime.ok_or_else(|| format!("{path} does not show where its interpreter is"))?;
        let start = base + runtime.offset;
        let denied = |error: io::Error| format!("memory of process {pid}: {error}");
        memory.word(start).map_err(denied)?;
        let minor = match version {
            Some(version) => {
                let version = memory.word(base + version.offset).map_err(denied)?;
                if version >> 24 == 3 { version >> 16 & 0xff } else { 0 }
            }
            // Python 3.10 does not tell; its file does.
            None if path.contains("python3.10") => 10,
            None => 0,
        };
        let layout = layout::of(minor).ok_or_else(|| format!("the Python of {path} is another version"))?;
        // From 3.13 on the runtime begins with a table for whoever looks at it, which tells whether there is a lock.
        if minor >= 13 {
            let head = memory.array::<24>(start).map_err(denied)?;
            if head[..8] != *b"xdebugpy" || word(&head, 16) != 0 {
                return Err(format!("the Python of {path} is built in another way"));
            }
        }
        let this = Self {
            memory,
            layout,
            runtime: (start, start + runtime.size),
            code_type: None,
            codes: HashMap::new(),
            seen: Vec::new(),
            generation: 0,
        };
        if this.states().is_empty() {
            return Err(format!("no thread of Python was found in process {pid}"));
        }
        Ok(this)
    }

    /// Whether an address is within what is the interpreter's alone: its lock, say.
    pub(super) fn owns(&self, address: u64) -> bool {
        (self.runtime.0..self.runtime.1).contains(&address)
    }

    /// Threads that run Python, of the first interpreter.
    pub(super) fn threads(&self, pid: u32) -> Vec<PythonThread> {
        let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
        let tasks: Vec<u32> = tasks.filter_map(name).collect();
        let mut found = Vec::new();
        let mut unknown = Vec::new();
        for state in self.states() {
            // A forked child keeps its parent's numbers in places.
            let native = self.layout.native.and_then(|native| self.memory.word(state + native).ok());
            let of_thread = || {
                let pthread = self.memory.word(state + self.layout.pthread).ok()?;
                self.memory.array(pthread.checked_add(PTHREAD_ID)?).ok().map(u32::from_ne_bytes)
            };
            let told = native.and_then(|native| u32::try_from(native).ok()).filter(|tid| tasks.contains(tid));
            match told.or_else(|| of_thread().filter(|tid| tasks.contains(tid))) {
                Some(tid) => found.push(PythonThread { tid, state }),
                None => unknown.push(state),
            }
        }
        if let [state] = unknown[..]
            && found.iter().all(|thread| thread.tid != pid)
        {
            found.push(PythonThread { tid: pid, state });
        }
        found
    }

    /// Addresses of the threads' states. Each says which interpreter it belongs to: a sign that this is what it seems.
    fn states(&self) -> Vec<u64> {
        let layout = &self.layout;
        let mut found = Vec::new();
        let Ok(interpreter) = self.memory.word(self.runtime.0 + layout.interpreters) else { return found };
        let mut state = self.memory.word(interpreter.wrapping_add(layout.threads)).unwrap_or(0);
        while state != 0 && found.len() < MOST_THREADS {
            if self.memory.word(state.wrapping_add(layout.interpreter)).ok() != Some(interpreter) {
                break;
            }
            found.push(state);
            state = self.memory.word(state.wrapping_add(layout.next)).unwrap_or(0);
        }
        found
    }

    /// What a thread is at, innermost first, and whether that is all down to its beginning: what changes meanwhile may hide the rest.
    pub(super) fn stack(&mut self, thread: PythonThread) -> (Vec<Spot>, bool) {
        let layout = self.layout;
        let mut spots = Vec::new();
        let pointer = self.memory.word(thread.state + layout.frame);
        let frame = match layout.indirect {
            Some(offset) => pointer.and_then(|pointer| self.memory.word(pointer.wrapping_add(offset))),
            None => pointer,
        };
        let mut frame = frame.unwrap_or(0);
        // Callers' frames lie before those they call, next to each other, unless they are generators' or older than 3.11: most of a
        // stack is had by one read.
        let mut piece = Piece::default();
        for _ in 0..DEPTH {
            let Some(bytes) = piece.at(self.memory, frame, layout.frame_size) else { break };
            frame = word(bytes, layout.previous);
            let own = |owner| bytes.get(owner as usize).is_some_and(|owner| *owner >= 3);
            if layout.owner.is_some_and(own) {
                continue;
            }
            let code = word(bytes, layout.code);
            let unit = match layout.instructions {
                Some(first) => {
                    word(bytes, layout.instruction).checked_sub(code.wrapping_add(first)).map(|n| n / 2)
                }
                None => Some(u64::from(half(bytes, layout.instruction))).filter(|unit| *unit < 1 << 31),
            };
            // A frame that is being made has not begun with its first instruction.
            let Some(unit) = unit.filter(|unit| *unit < 1 << 24) else { continue };
            let Some(code) = self.number(code) else { return (spots, false) };
            spots.push(Spot { code, unit });
        }
        (spots, frame == 0)
    }

    /// What has not been seen for a while is looked at again: code may have ended, and other code lie in its place.
    pub(super) fn grow_old(&mut self) {
        self.generation += 1;
    }

    /// Number of the code object at this address, if there is one.
    fn number(&mut self, address: u64) -> Option<u32> {
        if let Some((number, generation)) = self.codes.get_mut(&address) {
            if *generation == self.generation {
                return Some(*number);
            }
            let positions = self.memory.word(address + self.layout.positions).unwrap_or(0);
            let line = self.memory.array(address + self.layout.line).map_or(0, u32::from_ne_bytes);
            if self.seen.get(*number as usize).is_some_and(|code| code.identity == (positions, line)) {
                *generation = self.generation;
                return Some(*number);
            }
        }
        let code = self.read_code(address).ok()?;
        let number = u32::try_from(self.seen.len()).ok()?;
        self.seen.push(code);
        self.codes.insert(address, (number, self.generation));
        Some(number)
    }

    fn read_code(&mut self, address: u64) -> io::Result<Code> {
        let bytes = self.memory.array::<176>(address)?;
        let kind = word(&bytes, 8);
        if self.code_type != Some(kind) {
            let name = self.memory.word(kind.wrapping_add(24))?;
            if self.memory.array(name)? != *b"code\0" {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.code_type = Some(kind);
        }
        let at = |offset| word(&bytes, offset);
        let line = half(&bytes, self.layout.line);
        let table = at(self.layout.positions);
        let len = self.memory.word(table.wrapping_add(LENGTH))?;
        Ok(Code {
            file: self.text(at(self.layout.file))?,
            name: self.text(at(self.layout.name))?,
            line,
            table: self.memory.bytes(table.wrapping_add(32), len)?,
            identity: (table, line),
        })
    }

    /// A string.
    fn text(&self, address: u64) -> io::Result<String> {
        let head = self.memory.array::<40>(address)?;
        let (len, state) = (word(&head, LENGTH), half(&head, KIND));
        let (width, compact, ascii) = (u64::from(state >> 2 & 7), state >> 5 & 1 == 1, state >> 6 & 1 == 1);
        if !compact || !matches!(width, 1 | 2 | 4) || len > 1 << 16 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let begin = if ascii { self.layout.ascii } else { self.layout.compact };
        let bytes = self.memory.bytes(address.wrapping_add(begin), len * width)?;
        let character = |bytes: &[u8]| {
            let mut value = [0; 4];
            value[..bytes.len()].copy_from_slice(bytes);
            char::from_u32(u32::from_le_bytes(value)).unwrap_or(char::REPLACEMENT_CHARACTER)
        };
        Ok(bytes.chunks_exact(width as usize).map(character).collect())
    }

    /// What a spot is called; nothing if it has not been seen.
    pub(super) fn place(&self, spot: Spot) -> Option<Place> {
        let code = self.seen.get(spot.code as usize)?;
        let new = self.layout.instructions.is_some();
        let mut position = if new {
            positions::of(&code.table, code.line, spot.unit)
        } else {
            positions::of_lines(&code.table, code.line, spot.unit)
        };
        let entry = position.line == code.line
            && position.span.is_some_and(|(last, begin, end)| last == code.line && begin == end);
        if position.line == 0 {
            position.line = code.line;
        }
        Some(Place { file: code.file.clone(), name: code.name.clone(), position, entry })
    }
}

/// The file that holds the interpreter, opened as the process sees it, where its first byte lies in memory, and its name.
fn library(pid: u32) -> Result<(u64, File, String), String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).map_err(|error| format!("process {pid}: {error}"))?;
    let program = fs::read_link(format!("/proc/{pid}/exe"));
    let program = program.map(|path| path.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    let mut found: Option<(u64, String, String)> = None;
    for line in maps.split(|byte| *byte == b'\n') {
        // start-end permissions offset device inode path
        let text = String::from_utf8_lossy(line);
        let mut words = text.split_ascii_whitespace();
        let (Some(range), Some(offset)) = (words.next(), words.nth(1)) else { continue };
        let path = text.find('/').map_or("", |at| &text[at..]);
        let name = path.rsplit('/').next().unwrap_or_default();
        let shared = name.starts_with("libpython3");
        if u64::from_str_radix(offset, 16) != Ok(0) || !(shared || path.as_bytes() == program) {
            continue;
        }
        let start = range.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
        if let Some(start) = start.filter(|_| shared || found.is_none()) {
            found = Some((start, range.to_owned(), path.to_owned()));
            if shared {
                break;
            }
        }
    }
    let (start, range, path) = found.ok_or_else(|| format!("process {pid} runs no Python that is known"))?;
    // By the range where that is allowed: the path may lead elsewhere by now.
    let file = File::open(format!("/proc/{pid}/map_files/{range}"))
        .or_else(|_| File::open(format!("/proc/{pid}/root{path}")))
        .or_else(|_| File::open(&path))
        .map_err(|error| format!("{path}: {error}"))?;
    Ok((start, file, path))
}
