//! Looks at stacks of the script's processes from outside: what each of their threads runs or waits for, many times a second.
//!
//! A look from inside needs the interpreter's lock, so it finds a thread where that gives the lock up, not where it spends its
//! time. This one reads the process's memory, and asks the kernel whether the thread runs, or which system call it waits in. It
//! comes at moments that have nothing to do with what the script does, so a line that takes a third of a thread's CPU time is
//! found in a third of the looks that find the thread running, and so for each kind of waiting.
//!
//! The kernel says of a thread that it runs where it only would, if it had a core. For one that was interrupted that is no harm:
//! it befalls lines as they use the processor. One that has been woken is still at the line that waited, though. How long threads
//! waited for a core their clocks tell, and how often after a wait: so much is taken from the lines that wait.
//!
//! Processes are those whose probe writes into the run's directory. Whatever may not be looked at is left to the probe, and said.

mod elf;
mod layout;
mod memory;
mod positions;
mod python;
mod waits;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use self::{
    python::{Python, PythonThread, Spot},
    waits::Doing,
};
use super::{
    clock::{monotonic, thread_cpu},
    files::Kept,
    memory::value,
};
use crate::record::{self, Frame, Frames, Record, Stack, Stacks};

/// Shortest and longest time between two looks.
const SHORTEST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_millis(200);

/// Share of one core that looks may take, and after [`SETTLED`].
const MAX_SHARE: f64 = 0.01;
const SETTLED_SHARE: f64 = 0.005;

/// Time after which there is enough to have seen, nanoseconds.
const SETTLED: u64 = 10_000_000_000;

/// Time between two looks for the first process: a loop of a second is not to be over before.
const FIRST: Duration = Duration::from_millis(20);

/// Time between two looks for new processes and threads, and between two writings, nanoseconds.
const LIST: u64 = 200_000_000;
const WRITE: u64 = 500_000_000;

/// Writings after which code that is known is looked at again.
const OLD: u64 = 4;

/// Threads of a process that are looked at.
const MOST_THREADS: usize = 24;

/// Frames of a stack that are told.
const DEPTH: usize = 48;

/// Numbers of frames from here on are ours; the probe's begin with 0.
const FIRST_FRAME: u32 = 1 << 31;

/// What records call the wait for a core.
const CORE: &str = "core";

/// Frames of the probe itself, which are left out.
const PROBE: &str = "/wellfed_probe/";

/// Looks until it is stopped.
#[derive(Debug)]
pub(super) struct Looks {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Seen>>,
}

/// What is known when looking ended.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Which processes could not be looked at, and why.
    pub(super) problems: Vec<String>,
    /// CPU time that looking took, nanoseconds.
    pub(super) cpu: u64,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Mutex<bool>,
    wake: Condvar,
}

impl Looks {
    /// Begins to look at the processes whose probes write into `directory`, and writes there what it sees.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub(super) fn start(directory: &Path) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let (theirs, directory) = (Arc::clone(&shared), directory.to_owned());
        let thread = thread::Builder::new()
            .name("wellfed-looks".to_owned())
            .spawn(move || Looking::new(directory).run(&theirs))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Ends.
    pub(super) fn stop(mut self) -> Seen {
        self.end()
    }

    fn end(&mut self) -> Seen {
        *self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Looks {
    fn drop(&mut self) {
        self.end();
    }
}

/// What the thread has.
#[derive(Debug)]
struct Looking {
    directory: PathBuf,
    processes: Vec<Process>,
    /// Process ids that were tried, or are of no process of ours.
    tried: HashSet<u32>,
    problems: BTreeSet<String>,
    buffer: Vec<u8>,
}

impl Looking {
    fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            processes: Vec::new(),
            tried: HashSet::new(),
            problems: BTreeSet::new(),
            buffer: Vec::new(),
        }
    }

    fn run(mut self, shared: &Shared) -> Seen {
        let began = monotonic();
        let (mut listed, mut written, mut writings) = (0, began, 0);
        let (mut pace, mut phase) = (SHORTEST, 0.5);
        let mut used = thread_cpu();
        loop {
            // Looks at equal distances would find a loop of twice that period at the same two places each time.
            phase = (phase + 0.618_034) % 1.0;
            let none = self.processes.is_empty();
            let pause = if none { FIRST } else { pace.mul_f64(0.5 + phase) };
            let stop = shared.stop.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = shared.wake.wait_timeout_while(stop, pause, |stop| !*stop);
            let stop = *waited.unwrap_or_else(PoisonError::into_inner).0;
            let now = monotonic();
            let buffer = &mut self.buffer;
            self.processes.retain_mut(|process| process.look(now, buffer));
            if self.processes.iter().any(Process::waits_for_another) {
                self.processes.iter_mut().for_each(Process::note_what_others_wait_for);
            }
            if none || now.saturating_sub(listed) >= LIST {
                listed = now;
                self.list();
            }
            if stop || now.saturating_sub(written) >= WRITE {
                writings += 1;
                for process in &mut self.processes {
                    process.write(now);
                    if writings % OLD == 0 {
                        process.python.grow_old();
                    }
                }
                // What was allowed against what was used, but not all at once.
                let share = if now.saturating_sub(began) < SETTLED { MAX_SHARE } else { SETTLED_SHARE };
                let cpu = thread_cpu();
                let allowed = share * now.saturating_sub(written).max(1) as f64;
                let excess = (cpu.saturating_sub(used) as f64 / allowed).clamp(0.7, 2.0);
                pace = pace.mul_f64(excess).clamp(SHORTEST, LONGEST);
                (used, written) = (cpu, now);
            }
            if stop {
                break;
            }
        }
        Seen { problems: self.problems.into_iter().collect(), cpu: thread_cpu() }
    }

    /// Finds processes that are new, and threads.
    fn list(&mut self) {
        for process in &mut self.processes {
            process.list();
        }
        let Ok(entries) = fs::read_dir(&self.directory) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            let is_records = path.extension().is_some_and(|extension| extension == "jsonl");
            let pid = path.file_stem().and_then(|stem| stem.to_str()?.parse().ok());
            let Some(pid) = pid.filter(|pid| is_records && !self.tried.contains(pid)) else { continue };
            self.tried.insert(pid);
            // Within another namespace it would be another's number.
            if !writes(pid, &path) {
                continue;
            }
            match Process::open(pid, &path.with_extension("looks")) {
                Ok(process) => self.processes.push(process),
                Err(problem) => drop(self.problems.insert(problem)),
            }
        }
    }
}

/// Whether a process has a file open.
fn writes(pid: u32, path: &Path) -> bool {
    let Ok(file) = fs::metadata(path) else { return false };
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    open.flatten().any(|entry| {
        fs::metadata(entry.path()).is_ok_and(|other| (other.dev(), other.ino()) == (file.dev(), file.ino()))
    })
}

/// A process that is looked at.
#[derive(Debug)]
struct Process {
    pid: u32,
    python: Python,
    threads: Vec<Thread>,
    out: File,
    /// Frames that were seen.
    known: HashMap<Spot, Known>,
    /// Those that were not written yet.
    new: Vec<Frame>,
    /// What its main thread was at while another process waited for a lock that processes share: looks, and time.
    held: HashMap<Vec<u32>, (u32, u64)>,
}

/// What is known of a frame.
#[derive(Clone, Copy, Debug)]
struct Known {
    number: u32,
    /// Whether it is the probe's.
    own: bool,
    /// Whether it is what every thread begins with.
    begin: bool,
    /// Whether nothing but a function's entry runs there.
    entry: bool,
}

#[derive(Debug)]
struct Thread {
    python: PythonThread,
    /// Whether it is the probe's, which nobody wants to know of.
    own: bool,
    schedule: Kept,
    call: Kept,
    /// When it was looked at last, and how long that was after the time before.
    t: u64,
    passed: u64,
    /// CPU time and times that it was given a core, as of then.
    counts: Option<(u64, u64)>,
    /// What it was found at.
    at: Option<(Vec<u32>, Doing)>,
    /// Looks, and time.
    rows: HashMap<(Vec<u32>, &'static str), (u32, u64)>,
    /// Time at each stack so far: running, and waiting.
    stacks: HashMap<Vec<u32>, (u64, u64)>,
    /// As of the first look.
    switches: Switches,
}

/// How a thread came and went, since it began.
#[derive(Clone, Copy, Debug, Default)]
struct Switches {
    /// Nanoseconds that it waited for a core.
    delay: u64,
    /// Times that it gave its core up by itself.
    waited: u64,
    /// Times that another one was given it.
    interrupted: u64,
}

impl Process {
    fn open(pid: u32, path: &Path) -> Result<Self, String> {
        let python = Python::of(pid)?;
        for name in ["syscall", "schedstat"] {
            let path = format!("/proc/{pid}/task/{pid}/{name}");
            let read = Kept::open(&path).and_then(|file| file.read(&mut Vec::new()).map(drop));
            read.map_err(|error| format!("{path}: {error}"))?;
        }
        let out = OpenOptions::new().append(true).create_new(true).open(path);
        let out = out.map_err(|error| format!("{}: {error}", path.display()))?;
        let mut process = Self {
            pid,
            python,
            threads: Vec::new(),
            out,
            known: HashMap::new(),
            new: Vec::new(),
            held: HashMap::new(),
        };
        process.list();
        let begin = Record::Looks(record::Looks { t: monotonic() });
        process.put(&[begin]);
        Ok(process)
    }

    /// Finds threads that are new, and forgets those that ended.
    fn list(&mut self) {
        let now = self.python.threads(self.pid);
        self.threads.retain(|thread| now.contains(&thread.python) || !thread.rows.is_empty());
        for python in now {
            if self.threads.len() >= MOST_THREADS || self.threads.iter().any(|known| known.python == python) {
                continue;
            }
            let task = format!("/proc/{}/task/{}", self.pid, python.tid);
            let open = |name: &str| Kept::open(format!("{task}/{name}"));
            if let (Ok(schedule), Ok(call)) = (open("schedstat"), open("syscall")) {
                let (t, rows, stacks) = (monotonic(), HashMap::new(), HashMap::new());
                self.threads.push(Thread {
                    python,
                    own: false,
                    schedule,
                    call,
                    t,
                    passed: 0,
                    counts: None,
                    at: None,
                    rows,
                    stacks,
                    switches: Switches::of(self.pid, python.tid),
                });
            }
        }
    }

    /// Looks at all threads. Whether the process is still there.
    fn look(&mut self, now: u64, buffer: &mut Vec<u8>) -> bool {
        let mut there = false;
        let Self { pid, python, threads, known, new, .. } = self;
        for thread in threads.iter_mut().filter(|thread| !thread.own) {
            let Some(found) = thread.look(*pid, python, buffer) else { continue };
            there = true;
            match found {
                Found::Same => {}
                Found::At(spots, is_whole, doing) => {
                    let frames = number(&spots, python, known, new);
                    // A part of a stack may be the probe's alone, where the script calls it; the main thread is the script's.
                    thread.own = frames.is_none() && is_whole && thread.python.tid != *pid;
                    thread.at = Some((frames.unwrap_or_default(), doing));
                }
                Found::Nothing => thread.at = None,
            }
            let passed = now.saturating_sub(std::mem::replace(&mut thread.t, now));
            thread.passed = passed;
            if let Some((frames, doing)) = &thread.at
                && !frames.is_empty()
            {
                let name = match doing {
                    Doing::Lock(address) if python.owns(*address) => "gil",
                    other => other.name(),
                };
                let row = thread.rows.entry((frames.clone(), name)).or_default();
                row.0 += 1;
                row.1 += passed;
            }
        }
        if !there {
            self.write(now);
        }
        there
    }

    /// What its main thread was found at, and for how long.
    fn main_thread(&self) -> Option<(&[u32], Doing, u64)> {
        let thread = self.threads.iter().find(|thread| thread.python.tid == self.pid)?;
        let (frames, doing) = thread.at.as_ref().filter(|(frames, _)| !frames.is_empty())?;
        Some((frames, *doing, thread.passed))
    }

    /// Whether its main thread waits for a lock that another process may have.
    fn waits_for_another(&self) -> bool {
        self.main_thread().is_some_and(|(_, doing, _)| matches!(doing, Doing::SharedLock | Doing::FileLock))
    }

    /// Notes what its main thread is at, if that is not waiting itself: another process waits for a lock meanwhile.
    fn note_what_others_wait_for(&mut self) {
        if self.waits_for_another() {
            return;
        }
        if let Some((frames, _, passed)) = self.main_thread() {
            let frames = frames.to_vec();
            let row = self.held.entry(frames).or_default();
            *row = (row.0 + 1, row.1 + passed);
        }
    }

    /// Writes what was seen since the last time.
    fn write(&mut self, now: u64) {
        let mut records = Vec::new();
        let rows = std::mem::take(&mut self.new);
        if !rows.is_empty() {
            records.push(Record::Frames(Frames { rows }));
        }
        for thread in &mut self.threads {
            let rows = thread.take(self.pid);
            if !rows.is_empty() {
                let name = if thread.python.tid == self.pid { "MainThread" } else { "Thread" };
                records.push(Record::Stacks(Stacks { t: now, thread: name.to_owned(), rows, outside: true }));
            }
        }
        if !self.held.is_empty() {
            let held = self.held.drain();
            let rows =
                held.map(|(frames, (n, wall))| Stack { frames, n, wall, ..Stack::default() }).collect();
            records.push(Record::Held(record::Held { t: now, rows }));
        }
        self.put(&records);
    }

    fn put(&mut self, records: &[Record]) {
        let mut text = Vec::new();
        for record in records {
            if serde_json::to_writer(&mut text, record).is_ok() {
                text.push(b'\n');
            }
        }
        // Where nothing can be written any more, less is known.
        drop(self.out.write_all(&text));
    }
}

/// What a look at a thread finds.
#[derive(Debug)]
enum Found {
    /// It waits as it did.
    Same,
    /// It is here, which may not be all of the stack, and does this.
    At(Vec<Spot>, bool, Doing),
    /// The kernel tells nothing that is known.
    Nothing,
}

impl Thread {
    /// What it is at now; `None` if it has ended.
    fn look(&mut self, pid: u32, python: &mut Python, buffer: &mut Vec<u8>) -> Option<Found> {
        let counts = counts(self.schedule.read(buffer).ok()?);
        // Whoever waited and was given no core since then waits on.
        let waits = self.at.as_ref().is_some_and(|(_, doing)| *doing != Doing::Runs);
        if waits && counts.is_some() && counts == self.counts {
            return Some(Found::Same);
        }
        self.counts = counts;
        let doing = waits::doing(pid, self.call.read(buffer).ok()?);
        Some(doing.map_or(Found::Nothing, |doing| {
            let (spots, is_whole) = python.stack(self.python);
            Found::At(spots, is_whole, doing)
        }))
    }
}

/// Share of the time at a stack from which on that is one that waits.
const WAITS: f64 = 0.05;

/// Stacks that are told apart.
const MOST_STACKS: usize = 20_000;

impl Thread {
    /// What was seen since the last time.
    fn take(&mut self, pid: u32) -> Vec<Stack> {
        for ((frames, on), (_, wall)) in &self.rows {
            if self.stacks.len() < MOST_STACKS || self.stacks.contains_key(frames) {
                let (runs, waits) = self.stacks.entry(frames.clone()).or_default();
                *(if on.is_empty() { runs } else { waits }) += wall;
            }
        }
        let waits = |(runs, waits): &(u64, u64)| *waits as f64 > WAITS * (*runs + *waits) as f64;
        let woken = if self.rows.is_empty() { 0.0 } else { self.woken(pid) };
        let there: u64 = self.stacks.values().filter(|stack| waits(stack)).map(|(runs, _)| *runs).sum();
        let queued = (woken / there.max(1) as f64).min(1.0);
        let mut rows = Vec::new();
        for ((frames, on), (n, wall)) in self.rows.drain() {
            let row = |frames, on: &str, wall| {
                let cpu = if on.is_empty() { wall } else { 0 };
                Stack { frames, n, wall, cpu, on: on.to_owned() }
            };
            if on.is_empty() && self.stacks.get(&frames).is_some_and(waits) {
                let core = (wall as f64 * queued) as u64;
                rows.push(Stack { n: 0, ..row(frames.clone(), CORE, core) });
                rows.push(row(frames, on, wall - core));
            } else {
                rows.push(row(frames, on, wall));
            }
        }
        rows
    }

    /// Time since the first look that it had been woken and waited for a core, nanoseconds: the share of its waits for a core that
    /// goes with the number of times it gave its core up by itself.
    fn woken(&self, pid: u32) -> f64 {
        let now = Switches::of(pid, self.python.tid);
        let since = |now: u64, before: u64| now.saturating_sub(before) as f64;
        let waited = since(now.waited, self.switches.waited);
        let interrupted = since(now.interrupted, self.switches.interrupted);
        since(now.delay, self.switches.delay) * waited / (waited + interrupted).max(1.0)
    }
}

impl Switches {
    /// Those of a thread; none if it has ended.
    fn of(pid: u32, tid: u32) -> Self {
        let read = |name: &str| {
            let file = Kept::open(format!("/proc/{pid}/task/{tid}/{name}"));
            file.and_then(|file| file.read(&mut Vec::new()).map(<[u8]>::to_vec)).unwrap_or_default()
        };
        let (schedule, status) = (read("schedstat"), read("status"));
        let delay = std::str::from_utf8(&schedule)
            .ok()
            .and_then(|text| text.split_ascii_whitespace().nth(1)?.parse().ok());
        let count = |name| value(&status, name).unwrap_or(0);
        Self {
            delay: delay.unwrap_or(0),
            waited: count("voluntary_ctxt_switches:"),
            interrupted: count("nonvoluntary_ctxt_switches:"),
        }
    }
}

/// CPU time, and how often it was given a core.
fn counts(text: &[u8]) -> Option<(u64, u64)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.nth(1)?.parse().ok()?))
}

/// Numbers of a stack's frames, innermost first; nothing for a thread of the probe's own.
fn number(
    spots: &[Spot],
    python: &Python,
    known: &mut HashMap<Spot, Known>,
    new: &mut Vec<Frame>,
) -> Option<Vec<u32>> {
    let mut frames = Vec::new();
    let (mut probes, mut others) = (false, false);
    for spot in spots {
        let next = FIRST_FRAME + known.len() as u32;
        let frame = *known.entry(*spot).or_insert_with(|| {
            let place = python.place(*spot).unwrap_or_default();
            let own = place.file.contains(PROBE);
            let begin = place.file.ends_with("/threading.py");
            if !own {
                new.push(Frame {
                    id: next,
                    file: place.file,
                    func: place.name,
                    line: place.position.line,
                    span: place.position.span,
                    call: String::new(),
                });
            }
            Known { number: next, own, begin, entry: place.entry }
        });
        probes |= frame.own;
        others |= !frame.own && !frame.begin;
        // Who enters a function does so for the line that calls it.
        let entering = frame.entry && frames.is_empty();
        if !frame.own && !entering && frames.len() < DEPTH {
            frames.push(frame.number);
        }
    }
    (others || !probes).then_some(frames)
}
