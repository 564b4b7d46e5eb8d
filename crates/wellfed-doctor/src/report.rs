//! What the doctor says, as data. The terminal, the page and `--json` all show this; `docs/doctor-json.md` documents it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{exit::Exit, record::Place, system::Machine};

/// Name and version of the format, first field of the JSON.
pub const SCHEMA: &str = "wellfed.doctor/1";

/// A whole diagnosis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// What was run.
    pub command: Vec<String>,
    /// Seconds of wall-clock time that were observed.
    pub duration: f64,
    /// How the script ended.
    pub exit: Exit,
    /// The machine.
    pub machine: Machine,
    /// Versions of libraries that matter.
    pub software: BTreeMap<String, String>,
    /// Processes that trained.
    pub ranks: u32,
    /// All loaders that were seen.
    pub loaders: Vec<Loader>,
    /// Which of them this diagnosis is about: the one most of the time was spent on.
    pub subject: Option<usize>,
    /// Its steps.
    pub steps: Steps,
    /// What the script's time goes into from its first loop on: `training`, `evaluation` and other loops, without what is done in them
    /// besides: `checkpoints`, `metrics` (functions of the script that loop in Python), `logging`; and what is `between` loops.
    pub script: Vec<Share>,
    /// Where the time goes, in the order of the data: the loader's stages, then the loop's.
    pub stages: Vec<Stage>,
    /// The answer.
    pub verdict: Verdict,
    /// What would be next, if it costs anything.
    pub runner_up: Option<Verdict>,
    /// Other causes that were looked at and cost something, largest gain first.
    pub others: Vec<Verdict>,
    /// Curves over time.
    pub timeline: Timeline,
    /// What could not be measured, and other remarks.
    pub notes: Vec<String>,
}

/// A loader.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Loader {
    /// Class, such as `torch DataLoader`.
    pub name: String,
    /// Data set, such as `ImageFolder`.
    pub dataset: String,
    /// Settings that matter: `batch_size=64`, `num_workers=0`, …
    pub settings: Vec<String>,
    /// Where it was made.
    pub place: Option<Place>,
    /// Steps taken.
    pub steps: u64,
    /// Epochs begun.
    pub epochs: u32,
    /// Share of the observed time spent in its loops, 0 to 1.
    pub share: f64,
}

/// Steps in the steady state: without the first epoch's start and other beginnings, which have their own numbers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Steps {
    /// How many were looked at.
    pub count: u64,
    /// Samples a step.
    pub batch_size: f64,
    /// Seconds a step, mean.
    pub time: f64,
    /// Of that, waiting for data, mean.
    pub wait: f64,
    /// Seconds a step would take if data were always there (the ceiling), mean.
    pub ceiling: f64,
    /// `ceiling / time`, 0 to 1: what `--fail-under` looks at.
    pub efficiency: f64,
    /// Samples a second.
    pub rate: f64,
    /// Samples a second at the ceiling.
    pub ceiling_rate: f64,
    /// Seconds from the begin of an epoch to its first batch, mean.
    pub epoch_start: f64,
    /// The part of `time` that beginnings and ends of epochs add to a step, beyond what each step waits, seconds.
    pub restart: f64,
    /// Share of the time the device was busy, 0 to 1, if there is one that says: kernels ran, where `kernels` is known.
    pub device_busy: Option<f64>,
    /// Kernels of a step, if torch's profiler was used for some steps.
    pub kernels: Option<Kernels>,
}

/// What a device does in a step, mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Kernels {
    /// Steps that were looked at.
    pub steps: u64,
    /// Kernels.
    pub count: f64,
    /// Seconds in which some kernel ran.
    pub busy: f64,
    /// Seconds that a kernel takes, mean.
    pub each: f64,
    /// Seconds in which something was copied between host and device.
    pub copies: f64,
    /// Of that, seconds in which no kernel ran.
    pub copies_alone: f64,
    /// Seconds that a step took while the profiler looked. It lengthens steps; `time` is without.
    pub profiled: f64,
}

/// A part of the script's time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Share {
    /// What it goes into.
    pub name: String,
    /// Seconds.
    pub time: f64,
    /// Of all, 0 to 1.
    pub share: f64,
}

/// Part of the way of a batch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Stage {
    /// Of loading: `network`, `read`, `decompress`, `decode`, `augment`, `python`, `collate`, `send`, `receive`; of the loop: `copy`,
    /// `forward`, `backward`, `optimizer`, `sync`, `log`, `compute` (what the script does besides), `other`.
    pub name: String,
    /// `worker`, `main`, `engine` (of wellfed) or `device`.
    pub runs_in: String,
    /// Seconds a batch, mean.
    pub time: f64,
    /// CPU seconds a batch, mean.
    pub cpu: f64,
    /// Batches a second it could sustain alone, with the cores and workers there are.
    pub rate: f64,
    /// Functions that take most of it.
    pub functions: Vec<Function>,
}

/// A function, or an expression of the script, that takes time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Function {
    /// Such as `PIL.Image.Image.load`.
    pub name: String,
    /// Expression that called it, from the user's code.
    pub call: String,
    /// Where.
    pub file: String,
    /// Line.
    pub line: u32,
    /// Share of the stage's time, 0 to 1.
    pub share: f64,
}

/// A cause, what shows it, what to do, and what that gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Verdict {
    /// Such as `serial-loading`; docs/doctor.md lists all.
    pub id: String,
    /// `loading`, `cpu`, `storage`, `memory`, `contention`, `loop`, `compute`, `healthy`, `unknown`.
    pub family: String,
    /// One line that a tired person understands: `Loading runs in the training process; the GPU waits 62 % of the time`.
    pub title: String,
    /// Why it is believed: numbers with units, and where they come from.
    pub evidence: Vec<Fact>,
    /// What to change.
    pub fix: Option<Fix>,
    /// What that gains.
    pub gain: Option<Gain>,
    /// What limits the gain: the next bottleneck.
    pub cap: String,
    /// Lines of the fix's file that have to change as well; `fix.place` and `fix.change` are the first change.
    pub more: Vec<Lines>,
    /// What the fix gained when it was tried after the run; nothing if it was not: then `gain` is a prediction only.
    pub measured: Option<Measured>,
    /// How many times as fast the script was when a trial left the fix's lines out: no fix of them gains more. Nothing if that was not tried.
    pub bound: Option<f64>,
}

/// What a change did when it was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Measured {
    /// Steps a second with it, divided by steps a second without it.
    pub factor: f64,
    /// Lower end of its interval of 80 %, as short runs of the same script differ.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Seconds a step without it.
    pub before: f64,
    /// Seconds that as many samples take with it.
    pub after: f64,
    /// Seconds that the trial took.
    pub seconds: f64,
}

/// Whole lines of a file, and what stands in their place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Lines {
    /// The first of them, from 1.
    pub line: u32,
    /// As they are.
    pub code: String,
    /// As they should be.
    pub change: String,
}

/// A measured number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Fact {
    /// A sentence with the number in it.
    pub text: String,
    /// The number.
    pub value: f64,
    /// Its unit.
    pub unit: String,
    /// Where it comes from: `loader`, `workers`, `stacks`, `/proc`, `cgroup`, `nvml`, `profiler`, `reads`,
    /// `model`.
    pub source: String,
}

/// A change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Fix {
    /// One line: `Load in 2 worker processes`.
    pub title: String,
    /// The change as code of this script, such as `DataLoader(..., num_workers=2)`.
    pub change: String,
    /// Where to make it.
    pub place: Option<Place>,
    /// Why it works.
    pub why: String,
    /// How `wellfed doctor try` does it from outside; nothing if only an edit does.
    pub apply: Option<Apply>,
}

/// Changes that can be made without an edit of the script. Sent to the probes as JSON in `WELLFED_DOCTOR_APPLY`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Apply {
    /// Arguments of the loader to replace: `num_workers`, `prefetch_factor`, `pin_memory`, `persistent_workers`, `in_order`.
    /// For tf.data: `num_parallel_calls` where the script's `map` or `interleave` has none or fewer (-1 is AUTOTUNE), and `prefetch`,
    /// the elements that are made ahead, where the pipeline does not end in one; `private_threadpool_size`, threads of its own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub loader: BTreeMap<String, serde_json::Value>,
    /// Environment variables to set: `OMP_NUM_THREADS`, …
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Give the script `wellfed.torch.DataLoader` in place of torch's.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub feed: bool,
    /// Collect garbage seldom, from the first loader of torch on: `gc.freeze()` and `gc.set_threshold(100_000, 50, 50)`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub garbage: bool,
}

/// How many times as fast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Gain {
    /// Steps a second after, divided by steps a second before; 1 is no change.
    pub factor: f64,
    /// Lower end of the 80 % interval.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

/// Curves; all lists but `steps` have the same length. At most 600 points.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Timeline {
    /// Seconds since the start.
    pub t: Vec<f64>,
    /// Share of the usable cores that the script used, 0 to 1.
    pub cpu: Vec<f64>,
    /// Share that others used.
    pub foreign_cpu: Vec<f64>,
    /// MB a second from disk.
    pub disk: Vec<f64>,
    /// MB a second from the network.
    pub network: Vec<f64>,
    /// Resident memory of the script's processes, GB.
    pub memory: Vec<f64>,
    /// Share of the time the main process waited for data.
    pub wait: Vec<f64>,
    /// Samples a second.
    pub rate: Vec<f64>,
    /// Share of the time the device was busy; empty without one.
    pub gpu: Vec<f64>,
    /// Single steps (at most 400): begin in seconds since the start, wait and compute in seconds.
    pub steps: Vec<[f64; 3]>,
}
