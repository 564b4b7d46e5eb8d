//! Where time goes: stacks seen in the steady state, sorted into stages and scaled to what a batch and a step took.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Loading, Loop, script};
use crate::{
    record::{Frame, Record, Stacks},
    run_dir::{ProcessRecords, RunDir},
    stage,
};

/// A function that takes time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Culprit {
    /// The function and where it was.
    pub frame: Frame,
    /// The expression of the user's code that led there.
    pub call: Option<Frame>,
    /// Seconds a batch or a step.
    pub time: f64,
    /// Of that, on a core.
    pub cpu: f64,
    /// Whether it is part of writing a checkpoint.
    pub saves: bool,
    /// The call that nearly all of it goes into, without a function of Python's within: native code does the work then.
    pub native: Option<Frame>,
}

/// Functions that are remembered of a stage. What saves or logs spreads over many.
const CULPRITS: usize = 24;

/// Share of a function's time from which on one expression is nearly all of it. Loops in Python spread over more.
const NEARLY_ALL: f64 = 0.8;

/// A stage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StageTime {
    /// One of [`stage::LOADING`] or [`stage::LOOP`].
    pub name: &'static str,
    /// CPU seconds a batch.
    pub cpu: f64,
    /// Seconds a batch in which it waited: for storage, the network, a lock, a device, or asleep.
    pub blocked: f64,
    /// What takes the time, most first.
    pub culprits: Vec<Culprit>,
    /// Of the stage `network`: what requests wait for.
    pub waits: Waits,
}

/// What requests to servers wait for, as shares of the stage's time. What stacks do not show is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waits {
    /// See [`stage::Wait::Connection`].
    pub connection: f64,
    /// See [`stage::Wait::Answer`].
    pub answer: f64,
    /// See [`stage::Wait::Body`].
    pub body: f64,
    /// See [`stage::Wait::Pause`].
    pub pause: f64,
}

impl StageTime {
    /// Seconds a batch.
    pub fn time(&self) -> f64 {
        self.cpu + self.blocked
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Stages {
    /// Of making a batch, in the order of [`stage::LOADING`].
    pub loading: Vec<StageTime>,
    /// Of the loop, in the order of [`stage::LOOP`].
    pub looping: Vec<StageTime>,
    /// Looks at stacks behind `loading`.
    pub loading_looks: u64,
    /// Of those, the ones from outside of the process.
    pub outside_looks: u64,
    /// What making a batch waits for, most time first; only looks from outside tell.
    pub waited: Vec<Waited>,
    /// Where workers are while others wait for a lock that processes share, most time first: the lines of the script, and their shares.
    pub holding: Vec<(Frame, f64)>,
    /// Work that may be done anew for each sample, if there is any: see [`Work`].
    pub works: Vec<Work>,
    /// Lines of the script that were seen.
    pub lines: Vec<LineTime>,
    /// Samples that were traced call by call.
    pub traced: u64,
    /// Looks behind `looping`.
    pub looping_looks: u64,
    /// How much later than asked for the sampling thread of the training process woke up, seconds, mean: it waited for
    /// the interpreter's lock.
    pub gil_late: f64,
    /// Python threads of the training process that were running or runnable, mean.
    pub gil_threads: f64,
}

/// A line of the script, with all that it calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineTime {
    /// Its file.
    pub file: String,
    /// Its number.
    pub line: u32,
    /// The function it is in.
    pub func: String,
    /// Whether it makes batches; else it is of the loop.
    pub makes: bool,
    /// Lines of the script that led there, at least.
    pub depth: u32,
    /// Seconds a batch or a step.
    pub time: f64,
    /// Of that, in stages that have to be: see `NEEDED`.
    pub needed: f64,
    /// Lines of the script that led there, by file and number.
    pub under: Vec<(String, u32)>,
    /// Whether the whole loop is run there.
    pub around: bool,
}

/// Stages of the loop, and of loading, that have to be in any script.
const NEEDED: [&str; 9] =
    ["copy", "forward", "backward", "optimizer", "network", "read", "decompress", "decode", "collate"];

/// Share of all looks at the loop that find a line calling it, from which on it is around the loop.
const AROUND: f64 = 0.9;

/// What looks found a line doing.
#[derive(Default)]
struct Found {
    line: LineTime,
    all: u64,
    needed: u64,
    /// With a function of the loop further inside.
    around: u64,
}

/// Time of lines: by whether they make batches, file and number.
#[derive(Default)]
struct Inclusive(HashMap<(bool, String, u32), Found>, [u64; 2]);

impl Inclusive {
    fn note(&mut self, makes: bool, stage: &str, list: &[&Frame], wall: u64, loops: &Functions) {
        self.1[usize::from(makes)] += wall;
        let users: Vec<&Frame> = list.iter().rev().copied().filter(|frame| !stage::library(frame)).collect();
        let looping = |frame: &&Frame| loops.contains(&(frame.file.clone(), frame.func.clone()));
        let begins = users.iter().position(looping).filter(|_| !makes).unwrap_or(0);
        let mut seen: Vec<(&str, u32)> = Vec::new();
        for (depth, frame) in users.into_iter().enumerate() {
            let here = (frame.file.as_str(), frame.line);
            if seen.contains(&here) {
                continue;
            }
            let new = || {
                let line = LineTime {
                    file: frame.file.clone(),
                    line: frame.line,
                    func: frame.func.clone(),
                    makes,
                    depth: depth as u32,
                    ..LineTime::default()
                };
                Found { line, ..Found::default() }
            };
            let Found { line, all, needed, around } =
                self.0.entry((makes, frame.file.clone(), frame.line)).or_insert_with(new);
            line.depth = line.depth.min(depth as u32);
            for (file, number) in &seen {
                if !line.under.iter().any(|(known, n)| (known.as_str(), n) == (*file, number)) {
                    line.under.push(((*file).to_owned(), *number));
                }
            }
            seen.push(here);
            *all += wall;
            *needed += if NEEDED.contains(&stage) { wall } else { 0 };
            *around += if depth < begins { wall } else { 0 };
        }
    }

    fn scaled(self, making: f64, step: f64) -> Vec<LineTime> {
        let Self(lines, all) = self;
        let of = |Found { line, all: time, needed, around }| {
            let whole = all[usize::from(line.makes)].max(1) as f64;
            let seconds = |part: u64| part as f64 / whole * if line.makes { making } else { step };
            let around = around as f64 >= AROUND * whole;
            LineTime { time: seconds(time), needed: seconds(needed), around, ..line }
        };
        let mut lines: Vec<LineTime> = lines.into_values().map(of).collect();
        lines.sort_by(|a, b| (a.makes, &a.file, a.line).cmp(&(b.makes, &b.file, b.line)));
        lines
    }
}

/// Work of a kind that may be done once instead of for each sample, with all that it calls.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// `load`: a file is read into memory; `connect`: a data base is connected to; `query`: it is asked; `open`: an archive, a file of
    /// HDF5 or a mapped one is opened; `search`: a member of an archive is looked up; `list`: a folder is listed; `chunk`: HDF5 is read.
    pub kind: &'static str,
    /// CPU seconds a batch.
    pub cpu: f64,
    /// Seconds a batch of waiting.
    pub blocked: f64,
    /// The line of the script where most of it is.
    pub at: Frame,
}

/// What making a batch waits for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Waited {
    /// As [`Stack::on`](crate::record::Stack::on) has it.
    pub on: String,
    /// Seconds a batch.
    pub time: f64,
    /// The line of the script that waits most.
    pub at: Frame,
}

#[derive(Default)]
struct Sum {
    wall: u64,
    cpu: u64,
    culprits: HashMap<Culpable, Function>,
    /// Of `wall`, in the order of [`Waits`].
    waits: [u64; 4],
}

/// A function by its file and name, and whether it is part of writing a checkpoint.
type Culpable = (String, String, bool);

/// What a function took, line by line.
#[derive(Clone, Debug, Default)]
struct Function {
    wall: u64,
    cpu: u64,
    /// The function at a line, the expression of the user's code that led there, and the time there.
    lines: HashMap<(u32, u32), (Frame, Option<Frame>, u64)>,
    /// Time at each of its expressions.
    expressions: HashMap<Expression, (Frame, u64)>,
}

/// The line that a function is at, and what of it is evaluated, as [`Frame::span`] says.
type Expression = (u32, Option<(u32, u32, u32)>);

impl Function {
    /// The call that nearly all of its time goes into.
    fn native(&self) -> Option<Frame> {
        let (frame, wall) = self.expressions.values().max_by_key(|(frame, wall)| (*wall, frame.line))?;
        let nearly_all = *wall as f64 >= NEARLY_ALL * self.wall as f64;
        let call = headline(&frame.call);
        (nearly_all && frame.span.is_some() && call.ends_with(')')).then(|| Frame { call, ..frame.clone() })
    }

    /// The function where it takes most time.
    fn most(&self) -> Option<(&Frame, &Option<Frame>)> {
        let most = self.lines.iter().max_by_key(|&(key, &(_, _, wall))| (wall, key));
        most.map(|(_, (frame, call, _))| (frame, call))
    }
}

/// Lines of the script, by file and number, and the time of each.
type Lines = HashMap<(String, u32), (Frame, u64)>;

/// Time of waiting by what is waited for, and within by the line of the script.
type Waiting = BTreeMap<String, Lines>;

/// How such work is known: by words of the script's expression, or a part of the path of a library that it calls.
const WORKS: [(&str, &[&str], &[&str]); 7] = [
    ("connect", &["connect("], &[]),
    (
        "open",
        &[
            "h5py.File(",
            "tarfile.open(",
            "TarFile(",
            "ZipFile(",
            "lmdb.open(",
            "memory_map(",
            "np.memmap(",
            "numpy.memmap(",
            "mmap.mmap(",
            "mmap_mode=",
            "ParquetFile(",
            "netCDF4.Dataset(",
            "open_dataset(",
            "rasterio.open(",
            "zarr.open",
            "VideoReader(",
            "VideoCapture(",
        ],
        &["/h5py/_hl/files.py"],
    ),
    ("query", &[".execute(", ".cursor(", ".close("], &[]),
    ("search", &["extractfile(", ".getmember(", ".getmembers(", ".getnames("], &[]),
    ("list", &["listdir(", "scandir(", "iterdir(", "glob(", "os.walk("], &["/glob.py"]),
    (
        "load",
        &[
            "np.load(",
            "numpy.load(",
            "torch.load(",
            "pickle.load(",
            "loadmat(",
            "read_csv(",
            "read_bytes(",
            "load_file(",
        ],
        &["/numpy/lib/", "/zipfile"],
    ),
    ("chunk", &[], &["/h5py/"]),
];

/// Time of each of [`WORKS`], by lines of the script.
#[derive(Default)]
struct Works {
    wall: u64,
    cpu: u64,
    of: [OfWork; WORKS.len()],
}

/// Time of one of [`WORKS`].
#[derive(Default)]
struct OfWork {
    wall: u64,
    cpu: u64,
    lines: Lines,
}

impl Works {
    fn note(&mut self, stage: &str, list: &[&Frame], wall: u64, cpu: u64) {
        self.wall += wall;
        self.cpu += cpu;
        let Some(user) = list.iter().position(|frame| !stage::library(frame)) else { return };
        let call = headline(&list[user].call);
        let mapped = call.contains("mmap_mode=");
        for ((kind, words, files), of) in WORKS.iter().zip(&mut self.of) {
            // What is read in the same line is not opening, and what is mapped is not read.
            let reads = *kind == "open" && list[..user].iter().any(|frame| frame.file.contains("/h5py/"));
            let named = !reads && words.iter().any(|word| call.contains(word));
            let within = list[..user].iter().any(|frame| files.iter().any(|part| frame.file.contains(part)));
            // Nor is decoding what is read in the same line reading.
            if (named || within) && !(*kind == "load" && (mapped || stage == "decode")) {
                (of.wall, of.cpu) = (of.wall + wall, of.cpu + cpu);
                let key = (list[user].file.clone(), list[user].line);
                of.lines.entry(key).or_insert_with(|| (list[user].clone(), 0)).1 += wall;
            }
        }
    }

    fn scaled(self, cpu: f64, blocked: f64) -> Vec<Work> {
        let idle = self.wall.saturating_sub(self.cpu);
        let of = WORKS.iter().zip(self.of).filter_map(|((kind, ..), work)| {
            let OfWork { wall, cpu: run, lines } = work;
            let (at, _) = lines.into_values().max_by_key(|(frame, wall)| (*wall, frame.line))?;
            let share = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
            let (cpu, blocked) =
                (cpu * share(run, self.cpu), blocked * share(wall.saturating_sub(run), idle));
            Some(Work { kind, cpu, blocked, at: Frame { call: headline(&at.call), ..at } })
        });
        of.collect()
    }
}

impl Stages {
    pub(super) fn of(run: &RunDir, main: &ProcessRecords, loading: &Loading, steps: &Loop) -> Self {
        let mut made: BTreeMap<&'static str, Sum> = BTreeMap::new();
        let mut looped: BTreeMap<&'static str, Sum> = BTreeMap::new();
        // Samples that were traced call by call say more than looks, which find what gives the interpreter's lock up.
        let mut traced: BTreeMap<&'static str, Sum> = BTreeMap::new();
        let mut stages = Self::default();
        let (mut late, mut looks, mut threads) = (0.0, 0.0, 0.0);
        let mut waiting = Waiting::new();
        let mut works = Works::default();
        let mut holding = Lines::new();
        let mut lines = Inclusive::default();
        let loops = loop_functions(main, steps.window);
        let left_out = super::kernels::left_out(main);
        for process in &run.processes {
            let is_main = process.pid == main.pid;
            if !is_main && !loading.pids.contains(&process.pid) {
                continue;
            }
            // Looks from inside find where a thread gives the interpreter's lock up; those from outside find where it is.
            let outside = process.records.iter().any(
                |record| matches!(record, Record::Stacks(stacks) if stacks.outside && in_window(stacks, steps.window)),
            );
            // Frames are described when there is time for it, maybe after the stacks they are in.
            let frames: HashMap<u32, &Frame> = process
                .records
                .iter()
                .filter_map(|record| if let Record::Frames(new) = record { Some(&new.rows) } else { None })
                .flatten()
                .map(|frame| (frame.id, frame))
                .collect();
            for record in &process.records {
                match record {
                    Record::Gil(gil) if is_main && gil.t >= steps.window.0 && gil.t <= steps.window.1 => {
                        late += gil.late as f64 * 1e-9;
                        looks += f64::from(gil.n);
                        threads += gil.threads * f64::from(gil.n);
                    }
                    Record::Held(held) if held.t >= steps.window.0 && held.t <= steps.window.1 => {
                        for stack in &held.rows {
                            let list: Vec<&Frame> =
                                stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
                            if let Some(fetch) = list.iter().position(|frame| is_fetch(frame)) {
                                note_line(&mut holding, &list[..=fetch], stack.wall);
                            }
                        }
                    }
                    Record::Profile(profile) => {
                        stages.traced += u64::from(profile.samples);
                        for stack in &profile.rows {
                            let list: Vec<&Frame> =
                                stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
                            if !list.is_empty() {
                                let (name, culprit) = stage::loading(&list);
                                let sum = traced.entry(name).or_default();
                                sum.add(&list, culprit, stack.wall, stack.cpu);
                                sum.wait(name, &list, stack.wall);
                            }
                        }
                    }
                    Record::Stacks(stacks)
                        if in_window(stacks, steps.window)
                            && stacks.outside == outside
                            && !left_out.iter().any(|&span| in_window(stacks, span)) =>
                    {
                        for stack in &stacks.rows {
                            // That is told by clocks, and is nothing that the line does.
                            if stack.on == "core" {
                                continue;
                            }
                            let list: Vec<&Frame> =
                                stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
                            // What makes a batch lies inside of torch's fetcher, wherever that runs.
                            let fetch = list.iter().position(|frame| is_fetch(frame));
                            let waits = list.iter().any(|frame| is_next(frame));
                            if let Some(fetch) = fetch {
                                stages.loading_looks += u64::from(stack.n);
                                stages.outside_looks += if outside { u64::from(stack.n) } else { 0 };
                                // The fetcher itself does nothing: a look that finds only it came between two calls.
                                if fetch == 0 && !list[0].call.contains("collate_fn") {
                                    continue;
                                }
                                let making = &list[..=fetch];
                                let (name, culprit) = stage::loading(making);
                                let sum = made.entry(name).or_default();
                                sum.add(making, culprit, stack.wall, stack.cpu);
                                sum.wait(name, making, stack.wall);
                                works.note(name, making, stack.wall, stack.cpu);
                                lines.note(true, name, making, stack.wall, &loops);
                                if !stack.on.is_empty() {
                                    note_line(
                                        waiting.entry(stack.on.clone()).or_default(),
                                        making,
                                        stack.wall,
                                    );
                                }
                            } else if is_main && !waits && stacks.thread == "MainThread" {
                                let (name, culprit) = stage::looping(&list);
                                lines.note(false, name, &list, stack.wall, &loops);
                                stages.looping_looks += u64::from(stack.n);
                                let sum = looped.entry(name).or_default();
                                sum.add_in(&list, culprit, Some((name, &loops)), stack.wall, stack.cpu);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
        if looks > 0.0 {
            stages.gil_late = late / looks;
            stages.gil_threads = threads / looks;
        }
        let cpu = loading.mean(|batch| batch.cpu);
        let blocked = loading.mean(super::Batch::blocked);
        // What requests wait for, looks find as surely as tracing does, and in more of them.
        let looked = made.get("network").filter(|sum| sum.wall > 0).map(Sum::waits);
        stages.waited = waited(waiting, blocked);
        stages.holding = shares(holding);
        stages.works = works.scaled(cpu, blocked);
        if stages.traced >= TRACED && stages.outside_looks < LOOKED {
            // Collation is no sample's.
            made = made.into_iter().filter(|&(name, _)| name == "collate").collect();
            fit(&mut traced, &mut made, loading);
        }
        stages.loading = scaled(made, &stage::LOADING, cpu, blocked);
        let network = stages.loading.iter_mut().find(|stage| stage.name == "network");
        if let (Some(network), Some(waits)) = (network, looked) {
            network.waits = waits;
        }
        correct_collation(&mut stages.loading, loading);
        let compute = steps.compute();
        stages.lines = lines.scaled(cpu + blocked, compute);
        let cpu = super::mean(steps.steps.iter().map(|step| step.thread_cpu)).min(compute);
        stages.looping = scaled(looped, &stage::LOOP, cpu, compute - cpu);
        stages
    }

    /// A stage by its name.
    pub fn get(&self, name: &str) -> Option<&StageTime> {
        self.loading.iter().chain(&self.looping).find(|stage| stage.name == name)
    }

    /// CPU seconds a batch of a stage; 0 if it was not seen.
    pub fn cpu(&self, name: &str) -> f64 {
        self.get(name).map_or(0.0, |stage| stage.cpu)
    }

    /// What making a batch waits for of such kinds, seconds a batch, and the line that waits most for it.
    pub fn waits_for(&self, kinds: &[&str]) -> (f64, Option<&Waited>) {
        let mut of = self.waited.iter().filter(|waited| kinds.contains(&waited.on.as_str()));
        let first = of.next();
        (first.map_or(0.0, |waited| waited.time) + of.map(|waited| waited.time).sum::<f64>(), first)
    }

    /// Seconds a batch of a stage; 0 if it was not seen.
    pub fn time(&self, name: &str) -> f64 {
        self.get(name).map_or(0.0, StageTime::time)
    }
}

impl Sum {
    fn scale(&mut self, by: f64) {
        let scaled = |value: u64| (value as f64 * by) as u64;
        (self.wall, self.cpu) = (scaled(self.wall), scaled(self.cpu));
        for function in self.culprits.values_mut() {
            (function.wall, function.cpu) = (scaled(function.wall), scaled(function.cpu));
            function.lines.values_mut().for_each(|(_, _, wall)| *wall = scaled(*wall));
            function.expressions.values_mut().for_each(|(_, wall)| *wall = scaled(*wall));
        }
        self.waits = self.waits.map(scaled);
    }

    /// Notes what a stack of the stage `network` waits for.
    fn wait(&mut self, name: &str, list: &[&Frame], wall: u64) {
        let place = match stage::network(list).filter(|_| name == "network") {
            Some(stage::Wait::Connection) => 0,
            Some(stage::Wait::Answer) => 1,
            Some(stage::Wait::Body) => 2,
            Some(stage::Wait::Pause) => 3,
            None => return,
        };
        self.waits[place] += wall;
    }

    fn waits(&self) -> Waits {
        let [connection, answer, body, pause] = self.waits.map(|wait| wait as f64 / self.wall.max(1) as f64);
        Waits { connection, answer, body, pause }
    }

    fn merge(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
        self.waits.iter_mut().zip(other.waits).for_each(|(wait, more)| *wait += more);
        for (key, function) in other.culprits {
            let ours = self.culprits.entry(key).or_default();
            ours.wall += function.wall;
            ours.cpu += function.cpu;
            for (line, (frame, call, wall)) in function.lines {
                ours.lines.entry(line).or_insert((frame, call, 0)).2 += wall;
            }
            for (place, (frame, wall)) in function.expressions {
                ours.expressions.entry(place).or_insert((frame, 0)).1 += wall;
            }
        }
    }

    fn add(&mut self, list: &[&Frame], decided: usize, wall: u64, cpu: u64) {
        self.add_in(list, decided, None, wall, cpu);
    }

    /// The same for a stage of the loop, whose functions are known: nobody of the script's called what happens in their own lines, or in a
    /// callback, and a wait for the device belongs to the line that asked for a value, not to what it is wrapped in.
    fn add_in(
        &mut self,
        list: &[&Frame],
        decided: usize,
        looped: Option<(&str, &Functions)>,
        wall: u64,
        cpu: u64,
    ) {
        self.wall += wall;
        self.cpu += cpu;
        // In users' code the function that does the work is named, not the one whose words told the stage.
        let at = match list.get(decided) {
            Some(frame) if stage::library(frame) => decided,
            Some(_) => list.iter().position(|frame| !stage::library(frame)).unwrap_or(decided).min(decided),
            None => return,
        };
        let own = looped.and_then(|(_, functions)| {
            let same = |frame: &Frame| {
                functions.iter().any(|(file, func)| *file == frame.file && *func == frame.func)
            };
            list.iter().position(|frame| same(frame))
        });
        let called = match (own, looped) {
            (Some(own), _) if own <= at => None,
            // A callback, which a library calls that runs the loop.
            (_, Some(_))
                if !stage::library(list[at])
                    && list.get(at + 1).is_some_and(|&next| stage::library(next)) =>
            {
                None
            }
            (Some(own), Some(("sync", _))) => Some(own),
            _ => (at + 1..list.len()).find(|&i| !stage::library(list[i])),
        };
        let call = called.map(|i| Frame { call: headline(&list[i].call), ..list[i].clone() });
        let saves = list.iter().any(|frame| script::saves(frame));
        let key = (list[at].file.clone(), list[at].func.clone(), saves);
        let function = self.culprits.entry(key).or_default();
        function.wall += wall;
        function.cpu += cpu;
        let line = (list[at].line, call.as_ref().map_or(0, |call| call.line));
        function.lines.entry(line).or_insert_with(|| (list[at].clone(), call, 0)).2 += wall;
        let place = (list[at].line, list[at].span);
        function.expressions.entry(place).or_insert_with(|| (list[at].clone(), 0)).1 += wall;
    }
}

/// Functions by file and name.
type Functions = HashSet<(String, String)>;

/// The script's functions that ask loaders for batches: where their loops are.
fn loop_functions(main: &ProcessRecords, window: (u64, u64)) -> Functions {
    let frames: HashMap<u32, &Frame> = main
        .records
        .iter()
        .filter_map(|record| if let Record::Frames(new) = record { Some(&new.rows) } else { None })
        .flatten()
        .map(|frame| (frame.id, frame))
        .collect();
    let stacks = main.records.iter().filter_map(|record| match record {
        Record::Stacks(stacks) if in_window(stacks, window) && stacks.thread == "MainThread" => {
            Some(&stacks.rows)
        }
        _ => None,
    });
    let asking = stacks.flatten().filter_map(|stack| {
        let list: Vec<&Frame> = stack.frames.iter().filter_map(|id| frames.get(id).copied()).collect();
        let next = list.iter().rposition(|frame| is_next(frame))?;
        let user = list[next + 1..].iter().find(|frame| !stage::library(frame))?;
        Some((user.file.clone(), user.func.clone()))
    });
    asking.collect()
}

fn in_window(stacks: &Stacks, window: (u64, u64)) -> bool {
    stacks.t >= window.0 && stacks.t <= window.1
}

/// Notes the time of a stack: at the innermost line of the script, or of whatever there is.
fn note_line(lines: &mut Lines, list: &[&Frame], wall: u64) {
    let Some(frame) = list.iter().find(|frame| !stage::library(frame)).or_else(|| list.first()) else {
        return;
    };
    lines.entry((frame.file.clone(), frame.line)).or_insert_with(|| ((*frame).clone(), 0)).1 += wall;
}

/// The same in seconds, of `blocked` in all.
fn waited(waiting: Waiting, blocked: f64) -> Vec<Waited> {
    let sum = |lines: &HashMap<_, (Frame, u64)>| lines.values().map(|(_, wall)| *wall).sum::<u64>();
    let all: u64 = waiting.values().map(sum).sum();
    let mut waited: Vec<Waited> = waiting
        .into_iter()
        .filter_map(|(on, lines)| {
            let time = blocked * sum(&lines) as f64 / all.max(1) as f64;
            let (at, _) = lines.into_values().max_by_key(|(frame, wall)| (*wall, frame.line))?;
            Some(Waited { on, time, at: Frame { call: headline(&at.call), ..at } })
        })
        .collect();
    waited.sort_by(|a, b| b.time.total_cmp(&a.time));
    waited
}

/// Lines and their shares, the largest first.
fn shares(lines: Lines) -> Vec<(Frame, f64)> {
    let mut lines: Vec<(Frame, u64)> = lines.into_values().collect();
    let all: u64 = lines.iter().map(|(_, wall)| *wall).sum();
    lines.sort_by_key(|(frame, wall)| (std::cmp::Reverse(*wall), frame.line));
    let share = |wall: u64| wall as f64 / all.max(1) as f64;
    lines.into_iter().map(|(at, wall)| (Frame { call: headline(&at.call), ..at }, share(wall))).collect()
}

/// Of a statement with a body, what stands before the body: a loop is not told in full.
fn headline(call: &str) -> String {
    let compound = ["for ", "while ", "with ", "if "].iter().any(|word| call.starts_with(word));
    match call.find(": ") {
        Some(end) if compound => call[..=end].to_owned(),
        _ => call.to_owned(),
    }
}

fn is_fetch(frame: &Frame) -> bool {
    frame.file.ends_with("_utils/fetch.py")
        || (frame.file.contains("/wellfed/torch/") && frame.func.ends_with("fetch"))
}

fn is_next(frame: &Frame) -> bool {
    let loader = frame.file.ends_with("/dataloader.py")
        || frame.file.contains("/torchdata/")
        || frame.file.contains("/wellfed/")
        || frame.file.contains("/tensorflow/python/data/");
    loader && frame.func.ends_with("__next__")
}

/// Traced samples from which on they are believed rather than looks from inside.
const TRACED: u64 = 6;

/// Looks from outside from which on they are believed rather than traced samples: shares are right within 4 % of the whole.
const LOOKED: u64 = 150;

/// Moves what was traced to `made`, in proportion to collation: as the clocks of batches say.
fn fit(traced: &mut BTreeMap<&'static str, Sum>, made: &mut BTreeMap<&'static str, Sum>, loading: &Loading) {
    let wall = loading.mean(|batch| batch.wall);
    let collate = loading.mean(|batch| batch.collate);
    let all: u64 = traced.values().map(|sum| sum.wall).sum();
    if let Some(sum) = made.get_mut("collate") {
        let scale = all as f64 * collate / (wall - collate).max(1e-9) / sum.wall.max(1) as f64;
        sum.scale(scale);
    }
    for (name, sum) in std::mem::take(traced) {
        made.entry(name).or_default().merge(sum);
    }
}

/// If looks find less than this part of the CPU time that clocks tell, they do not show where that went: a thread of many short
/// calls gives the interpreter's lock up between them, and is found waiting to get it back.
const SHOWN: f64 = 0.25;

/// Stages with the shares that stacks show of what clocks say: `cpu` and `blocked` seconds in all.
fn scaled(
    sums: BTreeMap<&'static str, Sum>,
    order: &[&'static str],
    cpu: f64,
    blocked: f64,
) -> Vec<StageTime> {
    let all_cpu: u64 = sums.values().map(|sum| sum.cpu.min(sum.wall)).sum();
    let all_wall: u64 = sums.values().map(|sum| sum.wall).sum();
    if all_wall == 0 {
        return Vec::new();
    }
    // Time in which a thread did not run is partly the run queue, which hits stages as they use the processor.
    let idle_seen = (all_wall - all_cpu) as f64;
    let scale_blocked = if idle_seen > 0.0 { blocked / idle_seen } else { 0.0 };
    let running = cpu / (cpu + blocked).max(1e-12) * all_wall as f64;
    let shown = (all_cpu as f64 / (SHOWN * running).max(1.0)).min(1.0);
    let scale_cpu = if all_cpu > 0 { shown * cpu / all_cpu as f64 } else { 0.0 };
    let scale_idle = if idle_seen > 0.0 { (1.0 - shown) * cpu / idle_seen } else { 0.0 };
    order
        .iter()
        .filter_map(|&name| {
            let sum = sums.get(name)?;
            let scale = |wall: u64, cpu: u64| {
                let idle = wall.saturating_sub(cpu) as f64;
                (cpu.min(wall) as f64 * scale_cpu + idle * scale_idle, idle * scale_blocked)
            };
            let (time, blocked) = scale(sum.wall, sum.cpu);
            let mut culprits: Vec<Culprit> = sum
                .culprits
                .iter()
                .filter_map(|((.., saves), function)| {
                    let (frame, call) = function.most()?;
                    let (cpu, blocked) = scale(function.wall, function.cpu);
                    Some(Culprit {
                        frame: frame.clone(),
                        call: call.clone(),
                        time: cpu + blocked,
                        cpu,
                        saves: *saves,
                        native: function.native(),
                    })
                })
                .collect();
            culprits.sort_by(|a, b| b.time.total_cmp(&a.time));
            culprits.truncate(CULPRITS);
            Some(StageTime { name, cpu: time, blocked, culprits, waits: sum.waits() })
        })
        .collect()
}

/// Collation is timed by itself, which is better than what stacks show.
fn correct_collation(stages: &mut Vec<StageTime>, loading: &Loading) {
    let cpu = loading.mean(|batch| batch.collate_cpu);
    let collate = loading.mean(|batch| batch.collate);
    let total = loading.mean(|batch| batch.cpu);
    if total <= 0.0 || collate <= 0.0 {
        return;
    }
    let others: f64 = stages.iter().filter(|stage| stage.name != "collate").map(|stage| stage.cpu).sum();
    if others > 0.0 {
        let scale = (total - cpu).max(0.0) / others;
        for stage in stages.iter_mut().filter(|stage| stage.name != "collate") {
            stage.cpu *= scale;
        }
    }
    match stages.iter_mut().find(|stage| stage.name == "collate") {
        Some(stage) => stage.cpu = cpu,
        None => stages.push(StageTime { name: "collate", cpu, ..StageTime::default() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_stacks_become_seconds_of_clocks() {
        let mut read = Sum::default();
        (read.wall, read.cpu) = (900, 100);
        let mut decode = Sum::default();
        (decode.wall, decode.cpu) = (300, 300);
        let stages = scaled(BTreeMap::from([("read", read), ("decode", decode)]), &stage::LOADING, 0.4, 1.6);
        assert_eq!(stages.iter().map(|stage| stage.name).collect::<Vec<_>>(), ["read", "decode"]);
        assert!((stages[0].cpu - 0.1).abs() < 1e-9 && (stages[0].blocked - 1.6).abs() < 1e-9);
        assert!((stages[1].cpu - 0.3).abs() < 1e-9 && stages[1].blocked.abs() < 1e-9);
    }

    #[test]
    fn lines_of_the_loop_are_told_from_those_that_call_it_and_from_callbacks() {
        let frame = |file: &str, func: &str, call: &str| Frame {
            file: file.into(),
            func: func.into(),
            call: call.into(),
            ..Frame::default()
        };
        let mine = |func: &str, call: &str| frame("/home/me/train.py", func, call);
        let library = frame("/x/site-packages/keras/trainer.py", "fit", "callback.on_batch_end()");
        let loops = Functions::from([("/home/me/train.py".to_owned(), "train".to_owned())]);
        let call_of = |stage: &str, list: &[&Frame]| {
            let mut sum = Sum::default();
            sum.add_in(list, 0, Some((stage, &loops)), 10, 10);
            let function = sum.culprits.into_values().next().unwrap();
            function.most().unwrap().1.as_ref().map(|call| call.call.clone())
        };
        let (train, main) = (mine("train", "print(loss.item())"), mine("main", "train(loader)"));
        assert_eq!(call_of("log", &[&train, &main]), None, "the loop's own line");
        let helper = mine("report", "print(value)");
        assert_eq!(call_of("log", &[&helper, &train, &main]).as_deref(), Some("print(loss.item())"));
        // What wraps a value waits for nothing of its own.
        let (inner, outer) = (mine("wait", "time.sleep(left)"), mine("item", "self.device.wait()"));
        assert_eq!(call_of("sync", &[&inner, &outer, &train]).as_deref(), Some("print(loss.item())"));
        assert_eq!(
            call_of("log", &[&mine("on_batch_end", "print(logs)"), &library, &main]),
            None,
            "a callback"
        );
    }

    #[test]
    fn a_line_holds_what_it_calls_and_may_be_around_the_loop() {
        let frame = |func: &str, line: u32| Frame {
            file: "/home/me/train.py".to_owned(),
            func: func.to_owned(),
            line,
            ..Frame::default()
        };
        let (main, train, helper) = (frame("main", 40), frame("train", 20), frame("measure", 5));
        let loops = Functions::from([(main.file.clone(), "train".to_owned())]);
        let mut lines = Inclusive::default();
        lines.note(false, "compute", &[&helper, &train, &main], 30, &loops);
        lines.note(false, "forward", &[&train, &main], 70, &loops);
        // What makes batches lies inside of the loader, whoever asks it.
        lines.note(true, "python", &[&helper, &train], 10, &loops);
        let told: Vec<_> = lines
            .scaled(1.0, 1.0)
            .into_iter()
            .map(|one| (one.makes, one.line, one.around, one.under.len(), (100.0 * one.time).round()))
            .collect();
        assert_eq!(
            told,
            [
                (false, 5, false, 2, 30.0),
                (false, 20, false, 1, 100.0),
                (false, 40, true, 0, 100.0),
                (true, 5, false, 1, 100.0),
                (true, 20, false, 0, 100.0),
            ]
        );
    }

    #[test]
    fn what_requests_wait_for_is_told_in_shares() {
        let frame =
            |file: &str, func: &str| Frame { file: file.into(), func: func.into(), ..Frame::default() };
        let status = frame("/usr/lib/python3.11/http/client.py", "HTTPResponse._read_status");
        let body = frame("/usr/lib/python3.11/http/client.py", "HTTPResponse.read");
        let mut sum = Sum::default();
        for (frame, wall) in [(&status, 600), (&body, 300)] {
            sum.add(&[frame], 0, wall, 0);
            sum.wait("network", &[frame], wall);
            // Of another stage nothing is told.
            sum.wait("read", &[frame], wall);
        }
        sum.add(&[&frame("/x/site-packages/fsspec/asyn.py", "sync")], 0, 100, 0);
        let mut twice = Sum::default();
        twice.merge(sum);
        twice.scale(0.5);
        let stages = scaled(BTreeMap::from([("network", twice)]), &stage::LOADING, 0.0, 1.0);
        let Waits { connection, answer, body, pause } = stages[0].waits;
        assert!((answer - 0.6).abs() < 1e-9 && (body - 0.3).abs() < 1e-9, "{:?}", stages[0].waits);
        assert_eq!((connection, pause), (0.0, 0.0));
    }

    #[test]
    fn what_runs_unseen_is_not_lost() {
        let sums = |seen: u64| {
            let (mut forward, mut backward) = (Sum::default(), Sum::default());
            (forward.wall, forward.cpu) = (400, 0);
            (backward.wall, backward.cpu) = (600 + seen, seen);
            BTreeMap::from([("forward", forward), ("backward", backward)])
        };
        // No look found the thread running, which it did all the time.
        let stages = scaled(sums(0), &stage::LOOP, 2.0, 0.0);
        assert!((stages[0].cpu - 0.8).abs() < 1e-9 && (stages[1].cpu - 1.2).abs() < 1e-9);
        // One in a hundred did: nearly the same.
        let stages = scaled(sums(10), &stage::LOOP, 2.0, 0.0);
        let all: f64 = stages.iter().map(|stage| stage.cpu).sum();
        assert!((all - 2.0).abs() < 1e-9 && stages[0].cpu > 0.7);
        // Many did: they are believed.
        let stages = scaled(sums(1000), &stage::LOOP, 2.0, 0.0);
        assert!(stages[0].cpu.abs() < 1e-9 && (stages[1].cpu - 2.0).abs() < 1e-9);
    }
}
