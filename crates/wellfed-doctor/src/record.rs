//! What the probes inside of the script's processes write: one JSON object a line, in one file a process.
//!
//! All times are nanoseconds of `CLOCK_MONOTONIC`, which all processes of a machine share; CPU times are those of the
//! thread unless said otherwise. A record that ends in the middle of a line (its process was killed) is left out. Lists of one
//! record belong together element by element.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::Path,
};

use serde::{Deserialize, Serialize};

/// Version of this format. Probes write it into their first record.
pub const VERSION: u32 = 1;

/// One line of a process's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "k", rename_all = "snake_case")]
pub enum Record {
    /// First record of each process.
    Hello(Hello),
    /// The process turned out to be a worker of a loader.
    Role(Role),
    /// A library that matters was imported.
    Module(Module),
    /// A loader was made.
    Loader(Loader),
    /// An iterator over a loader was made: the beginning of an epoch.
    Iter(Iter),
    /// Steps of the training loop, as seen from the loader's `__next__`.
    Steps(Steps),
    /// An epoch ended.
    End(End),
    /// Batches made, in a worker or inline.
    Fetch(Fetch),
    /// Single samples made.
    Samples(Samples),
    /// Batches serialized and sent by a worker.
    Send(Send),
    /// New entries of the process's table of frames.
    Frames(Frames),
    /// Stacks seen since the last such record.
    Stacks(Stacks),
    /// From now on stacks are looked at from outside: the first record of that file.
    Looks(Looks),
    /// What a process was at while another one waited for a lock that processes share.
    Held(Held),
    /// Collections of garbage.
    Garbage(Garbage),
    /// Some samples, call by call.
    Profile(Profile),
    /// How long the sampling thread waited for the interpreter's lock.
    Gil(Gil),
    /// Files that were opened.
    Files(Files),
    /// What one training step consists of.
    Model(Model),
    /// Steps of the device, by its own events.
    Device(Device),
    /// Kernels of the device in a few steps, by the framework's profiler.
    Kernels(Kernels),
    /// What wellfed's loader would do with the script's.
    Fed(Fed),
    /// Size and kind of the batches, from the first one.
    Batch(Batch),
    /// What each step of a tf.data pipeline did, about once a second and at an epoch's end.
    Pipeline(Pipeline),
    /// What the engine of a wellfed loader counted, as often as records are written.
    Engine(Engine),
    /// The main process is about to end.
    Exit(Exit),
    /// A kind this version does not know.
    #[serde(other)]
    Unknown,
}

/// See [`Record::Hello`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hello {
    /// [`VERSION`].
    pub v: u32,
    /// Process id.
    pub pid: u32,
    /// Its parent's.
    pub ppid: u32,
    /// Now.
    pub t: u64,
    /// `sys.argv`.
    pub argv: Vec<String>,
    /// `sys.orig_argv`'s interpreter.
    pub executable: String,
    /// Version of Python.
    pub python: String,
    /// Current directory.
    pub cwd: String,
    /// `RANK`, if set.
    pub rank: Option<u32>,
    /// `WORLD_SIZE`, if set.
    pub world_size: Option<u32>,
    /// `LOCAL_WORLD_SIZE`, if set.
    pub local_world_size: Option<u32>,
    /// Whether the interpreter has a lock.
    pub gil: bool,
}

/// See [`Record::Role`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Role {
    /// Now.
    pub t: u64,
    /// Worker's number within its loader.
    pub worker: i64,
    /// Number of workers.
    pub num_workers: u32,
    /// Thread that makes batches, as the kernel numbers it.
    pub tid: u32,
}

/// See [`Record::Module`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Module {
    /// `torch`, `tensorflow`, …
    pub name: String,
    /// Its `__version__`.
    pub version: String,
}

/// A place in the user's code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Place {
    /// File.
    pub file: String,
    /// Line, from 1.
    pub line: u32,
    /// Source text of the statement: whole lines if `call` is known, else in one line and shortened to 400 characters.
    pub code: String,
    /// Bytes of `code` where the call stands that made what this is about; nothing if it is not known.
    pub call: Option<[usize; 2]>,
    /// What the script calls wellfed, if it has imported it.
    pub wellfed: Option<String>,
}

/// See [`Record::Loader`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Loader {
    /// Now.
    pub t: u64,
    /// Number of the loader within the process, from 0.
    pub loader: u32,
    /// `torch`, `wellfed.torch`, `wellfed`, `tf.data`.
    pub framework: String,
    /// Qualified name of the loader's class.
    pub class: String,
    /// Qualified name of the data set's class.
    pub dataset: String,
    /// `repr` of the data set's transform, shortened to 400 characters.
    pub transform: String,
    /// Batches an epoch, if known.
    pub length: Option<u64>,
    /// Samples an epoch, if known.
    pub samples: Option<u64>,
    /// Samples a batch.
    pub batch_size: Option<u32>,
    /// Worker processes (torch), or parallel calls (tf.data; -1 is AUTOTUNE).
    pub num_workers: i64,
    /// Batches each worker makes ahead.
    pub prefetch_factor: Option<u32>,
    /// Whether workers outlive the epoch.
    pub persistent_workers: bool,
    /// Whether batches are copied to pinned memory.
    pub pin_memory: bool,
    /// Whether batches come in the order they were asked for.
    pub in_order: bool,
    /// Whether the data set is iterable-style.
    pub iterable: bool,
    /// Start method of workers, if one was chosen.
    pub multiprocessing_context: Option<String>,
    /// Qualified name of the collate function.
    pub collate: String,
    /// Where the loader was made.
    pub place: Option<Place>,
    /// Steps of a tf.data pipeline, from the source on, such as `ParallelMap(num_parallel_calls=-1)`.
    pub pipeline: Vec<String>,
    /// TensorFlow's operations in it that decode or parse, such as `DecodeJpeg`.
    pub decodes: Vec<String>,
    /// How many loaders this one stands for, if its line made it anew, for each epoch say; else 0. Found when records are read.
    #[serde(skip)]
    pub made: u32,
}

/// See [`Record::Iter`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Iter {
    /// Loader.
    pub loader: u32,
    /// Number of the iterator within the loader, from 0.
    pub iter: u32,
    /// Before `iter(loader)`.
    pub t0: u64,
    /// After it.
    pub t1: u64,
}

/// See [`Record::Steps`]. Step `i` waits from `t0[i]` to `t1[i]` and computes from `t1[i]` to `t0[i + 1]`.
///
/// Of steps of microseconds not all are recorded: the next record's `first` is then larger than this one's end. CPU times of
/// short steps are not all read; those between are estimated, and sums over many steps are right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Steps {
    /// Loader.
    pub loader: u32,
    /// Iterator.
    pub iter: u32,
    /// Number of the first step of this record within the iterator, from 0.
    pub first: u64,
    /// `__next__` was entered.
    pub t0: Vec<u64>,
    /// `__next__` was left.
    pub t1: Vec<u64>,
    /// CPU time of the calling thread at `t0`.
    pub c0: Vec<u64>,
    /// CPU time of the calling thread at `t1`.
    pub c1: Vec<u64>,
    /// CPU time of the whole process at `t0`.
    pub p0: Vec<u64>,
    /// CPU time of the whole process at `t1`.
    pub p1: Vec<u64>,
    /// Part of the wait that went into rebuilding the batch from what a worker sent.
    pub unpickle: Vec<u64>,
}

/// See [`Record::End`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// Loader.
    pub loader: u32,
    /// Iterator.
    pub iter: u32,
    /// `__next__` was entered for the last time.
    pub t0: u64,
    /// Now: it raised `StopIteration`.
    pub t: u64,
    /// Steps that there were, also those that were only counted.
    pub steps: Option<u64>,
}

/// See [`Record::Fetch`]. Between two fetches a worker waits for work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fetch {
    /// Loader (of the parent, where this is a worker).
    pub loader: u32,
    /// Worker, -1 inline.
    pub worker: i64,
    /// Samples in the batch.
    pub n: Vec<u32>,
    /// Begin.
    pub t0: Vec<u64>,
    /// End.
    pub t1: Vec<u64>,
    /// CPU time of the thread.
    pub cpu: Vec<u64>,
    /// CPU time of the process, which includes threads of NumPy and others.
    pub process_cpu: Vec<u64>,
    /// Time it was runnable but not running (run-queue delay of the thread).
    pub delay: Vec<u64>,
    /// Part of the time that was collation.
    pub collate: Vec<u64>,
    /// Part of the CPU time that was collation.
    pub collate_cpu: Vec<u64>,
    /// Bytes that went through read calls of the process (`rchar`).
    pub bytes: Vec<u64>,
    /// Bytes that came from storage (`read_bytes`).
    pub disk_bytes: Vec<u64>,
    /// Files opened.
    pub opens: Vec<u32>,
    /// One in so many batches is recorded, where they are too short to record all; 0 and 1: each. CPU times and `collate` are
    /// estimates for some of those that are recorded, where reading clocks would cost too much: as they went for the last.
    pub every: u32,
    /// Positions in this record of the batches for which `delay`, `bytes` and `disk_bytes` were asked for; those of others
    /// are 0. `None`: all.
    pub exact: Option<Vec<u32>>,
}

/// See [`Record::Samples`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Samples {
    /// Loader.
    pub loader: u32,
    /// Worker, -1 inline.
    pub worker: i64,
    /// Begin.
    pub t0: Vec<u64>,
    /// Index of the sample, -1 if it is no number.
    pub index: Vec<i64>,
    /// Time.
    pub wall: Vec<u64>,
    /// CPU time of the thread.
    pub cpu: Vec<u64>,
    /// Bytes read (`rchar`); empty where they were not asked for.
    pub bytes: Vec<u64>,
    /// Files opened.
    pub opens: Vec<u32>,
}

/// See [`Record::Send`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Send {
    /// Loader.
    pub loader: u32,
    /// Worker.
    pub worker: i64,
    /// Begin of serialization.
    pub t0: Vec<u64>,
    /// End of serialization.
    pub t1: Vec<u64>,
    /// CPU time.
    pub cpu: Vec<u64>,
    /// Bytes of the pickle (without what travels in shared memory).
    pub bytes: Vec<u64>,
}

/// A function and the line and call it was at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Number within the process.
    pub id: u32,
    /// File of the code.
    pub file: String,
    /// Qualified name of the function.
    pub func: String,
    /// Line, from 1.
    pub line: u32,
    /// Last line of the expression being evaluated, from 1, and the columns of its begin and end, bytes from 0 (Python 3.11 and
    /// later).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub span: Option<(u32, u32, u32)>,
    /// Source text of that expression, or of the line, shortened to 200 characters. Probes give it only where there is no file to
    /// read it from, as for a notebook's cell; [`RunDir::read`](crate::run_dir::RunDir::read) adds the others.
    pub call: String,
}

/// See [`Record::Frames`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Frames {
    /// New frames.
    pub rows: Vec<Frame>,
}

/// A stack, and how much time was seen in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stack {
    /// Ids of frames, innermost first.
    pub frames: Vec<u32>,
    /// Times it was seen.
    pub n: u32,
    /// Time since the look before, added up.
    pub wall: u64,
    /// The part of it in which the thread ran, as far as looks tell.
    pub cpu: u64,
    /// What it waited for: `core`, `file`, `fault` (memory that is not there yet), `socket`, `pipe`, `gil`, `lock`, `shared-lock`
    /// (between processes), `file-lock`, `child`, `sleep`, `device`, `other`. Empty where it ran, and where nobody knows.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on: String,
}

/// See [`Record::Stacks`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Stacks {
    /// End of the interval.
    pub t: u64,
    /// Name of the thread.
    pub thread: String,
    /// Stacks.
    pub rows: Vec<Stack>,
    /// Whether they were seen from outside of the process, without the interpreter's lock.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub outside: bool,
}

/// See [`Record::Looks`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Looks {
    /// Now.
    pub t: u64,
}

/// See [`Record::Held`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Held {
    /// End of the interval.
    pub t: u64,
    /// Stacks of the main thread.
    pub rows: Vec<Stack>,
}

/// See [`Record::Garbage`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Garbage {
    /// End of the interval.
    pub t: u64,
    /// Collections in it.
    pub n: u64,
    /// CPU time they took together.
    pub cpu: u64,
}

/// See [`Record::Profile`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Profile {
    /// End of the interval.
    pub t: u64,
    /// Loader.
    pub loader: u32,
    /// Worker, -1 inline.
    pub worker: i64,
    /// Samples that were traced.
    pub samples: u32,
    /// What they consisted of: calls, with the time in each without the calls it made.
    pub rows: Vec<Stack>,
}

/// See [`Record::Gil`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gil {
    /// End of the interval.
    pub t: u64,
    /// Looks in the interval.
    pub n: u32,
    /// How much later than asked for they came, added up.
    pub late: u64,
    /// Threads that were running Python code or waiting to, on average.
    pub threads: f64,
}

/// See [`Record::Files`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Files {
    /// End of the interval.
    pub t: u64,
    /// Files opened for reading in the interval while a batch was made.
    pub opens: u64,
    /// Some of them.
    pub paths: Vec<String>,
    /// Their sizes.
    pub sizes: Vec<u64>,
}

/// See [`Record::Model`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Model {
    /// Calls of modules in one step.
    pub module_calls: u32,
    /// Calls of the module with parameters that the script itself called most often in that step.
    pub repeats: u32,
    /// Parameters of the optimizer.
    pub parameters: u64,
    /// Class of the optimizer.
    pub optimizer: String,
    /// Device of the parameters: `cpu`, `cuda:0`.
    pub device: String,
    /// Type of the parameters.
    pub dtype: String,
    /// Whether autocast was on in the step.
    pub autocast: bool,
}

/// See [`Record::Device`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// Loader.
    pub loader: u32,
    /// Iterator.
    pub iter: u32,
    /// Number of the first step.
    pub first: u64,
    /// From the moment the device reached the step's first event until it reached the last.
    pub busy: Vec<u64>,
}

/// See [`Record::Kernels`]. Nanoseconds, of all steps together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Kernels {
    /// Loader.
    pub loader: u32,
    /// Iterator.
    pub iter: u32,
    /// Why there is nothing to tell; else empty.
    pub why: String,
    /// Number of the first step that is not like others, since kernels were looked at in it.
    pub first: u64,
    /// Number of the last such step.
    pub last: Option<u64>,
    /// Before the profiler was started.
    pub t0: u64,
    /// After it was stopped and read.
    pub t1: u64,
    /// Steps that were looked at.
    pub steps: u64,
    /// What they took, with the profiler.
    pub profiled: u64,
    /// Kernels that ran.
    pub kernels: u64,
    /// Some kernel ran.
    pub busy: u64,
    /// Of all kernels, one by one.
    pub time: u64,
    /// Something was copied between host and device.
    pub copies: u64,
    /// Of that, while no kernel ran.
    pub alone: u64,
}

/// See [`Record::Batch`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Batch {
    /// Loader.
    pub loader: u32,
    /// Tensors in the batch.
    pub tensors: u32,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Such as `float32[64, 3, 224, 224]`.
    pub shapes: Vec<String>,
    /// Whether they lie in pinned memory.
    pub pinned: bool,
}

/// See [`Record::Fed`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Fed {
    /// Loader.
    pub loader: u32,
    /// `native`, `tensors`: whole batches; `hybrid`: images; `python`: nothing; `refused`: there would be no such loader.
    pub plan: String,
    /// Whether its workers would open images faster than Pillow does.
    pub images: bool,
    /// What would stay in Python, or TensorFlow.
    pub python: Vec<String>,
    /// What is to be given to `wellfed.feed`, if that is not where the loader was made.
    pub place: Option<Place>,
}

/// See [`Record::Engine`]. Counts and times are those since the engine's loader was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Engine {
    /// Now.
    pub t: u64,
    /// Loader.
    pub loader: u32,
    /// Batches handed out.
    pub batches: u64,
    /// Worker threads now.
    pub num_workers: u32,
    /// Bytes it holds now, and may hold.
    pub memory: u64,
    /// See `memory`.
    pub memory_budget: u64,
    /// Stages of its threads: `read`, `decode`, `transform`, `write`, `idle`.
    pub stages: Vec<EngineStage>,
    /// Requests to stores that answer later; nothing where samples lie near.
    pub requests: Option<Requests>,
}

/// See [`Engine::requests`]. Fields that an older engine does not tell are 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requests {
    /// Begun so far.
    pub requests: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Under way now.
    pub in_flight: u64,
    /// That may be under way now: as many as link and server were found to bear.
    pub limit: u64,
    /// What `limit` may come to.
    pub connections: u64,
    /// Bytes that may be under way or wait for workers.
    pub ahead: u64,
    /// Seconds that all answered ones took together.
    pub seconds: f64,
    /// Made again because they failed.
    pub retried: u64,
    /// How often a server asked to slow down.
    pub throttled: u64,
    /// Median time of the recent ones, seconds.
    pub p50: f64,
    /// The time that 95 % of them did not exceed.
    pub p95: f64,
}

/// One of [`Engine::stages`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineStage {
    /// Its name.
    pub name: String,
    /// Seconds of all threads.
    pub seconds: f64,
}

/// See [`Record::Pipeline`]. Counts and times are those since the iterator was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pipeline {
    /// Now.
    pub t: u64,
    /// Loader.
    pub loader: u32,
    /// Iterator.
    pub iter: u32,
    /// Steps after tf.data's rewrites, from the source on; the last is `Root`, which hands elements out.
    pub nodes: Vec<Node>,
}

/// A step of a tf.data pipeline as it runs, which may differ from [`Loader::pipeline`], as it was written: `map` and `batch`
/// become one node, and a `map` without `num_parallel_calls` may run in parallel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Such as `MapAndBatch`.
    pub name: String,
    /// Elements it handed on.
    pub elements: u64,
    /// Nanoseconds in it, without its inputs', all its threads together; a thread that sleeps or waits for its turn on a core
    /// or for the interpreter's lock counts.
    pub time: u64,
    /// Calls it runs at once at present, 0 where that does not apply.
    pub parallelism: u32,
    /// Elements its buffer holds at most, 0 if it has none.
    pub capacity: u64,
    /// Elements in its buffer now.
    pub buffered: u64,
    /// Bytes it handed on.
    pub bytes: u64,
}

/// See [`Record::Exit`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Exit {
    /// Now.
    pub t: u64,
    /// `finished`, `steps`, `time`, `interrupt`, `exception`.
    pub reason: String,
    /// Type and text of the exception.
    pub exception: Option<String>,
}

/// Reads the records of one process. Lines that are broken off or make no sense are counted, not an error: a killed
/// process leaves one.
pub fn read(path: &Path) -> io::Result<(Vec<Record>, usize)> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut records = Vec::new();
    let mut broken = 0;
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.read_until(b'\n', &mut line)? == 0 {
            return Ok((records, broken));
        }
        match serde_json::from_slice(&line) {
            Ok(record) => records.push(record),
            Err(_) => broken += 1,
        }
    }
}
