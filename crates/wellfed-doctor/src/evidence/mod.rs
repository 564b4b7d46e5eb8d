//! What a run shows, in numbers: the steady state of the loop, how batches are made, where time goes, what the machine did.
//!
//! Extraction judges nothing. Seconds are `f64`, "a step" is one turn of the training loop over the subject loader.

mod engine;
mod flow;
mod garbage;
mod kernels;
mod loading;
mod loops;
mod machine;
mod script;
mod stages;

pub use engine::{Engine, Requests};
pub use flow::Flow;
pub use garbage::Garbage;
pub use kernels::Kernels;
pub use loading::{Batch, Loading, Sample};
pub use loops::{FEWEST, Loop, Step};
pub use machine::{Load, Neighbour, Use};
pub use script::{Purpose, Script, loops, saves, straight};
pub use stages::{Culprit, LineTime, StageTime, Stages, Waited, Waits, Work};

use std::collections::BTreeMap;

use crate::{
    edit::Edit,
    exit::Exit,
    proved::Tried,
    record::{self, Record},
    run_dir::{ProcessRecords, RunDir},
    system::{Machine, Picture, Reads},
};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// What was run.
    pub command: Vec<String>,
    /// How it ended.
    pub exit: Exit,
    /// Seconds observed.
    pub duration: f64,
    /// The machine.
    pub machine: Machine,
    /// Libraries and their versions.
    pub software: BTreeMap<String, String>,
    /// Processes that iterate a loader of their own (ranks).
    pub ranks: u32,
    /// Ranks that share this machine, from the launcher's environment.
    pub local_ranks: u32,
    /// Loaders of the main process, and how they were used.
    pub loaders: Vec<LoaderUse>,
    /// The one this is about.
    pub subject: Option<usize>,
    /// Its loop.
    pub steps: Loop,
    /// How its batches are made.
    pub loading: Loading,
    /// What tf.data says of its pipeline.
    pub flow: Option<Flow>,
    /// What the engine says, if a wellfed loader has its batches made by it.
    pub engine: Option<Engine>,
    /// Where time goes.
    pub stages: Stages,
    /// Collections of garbage.
    pub garbage: Garbage,
    /// The machine while the loop was in its steady state.
    pub load: Load,
    /// Reads that were tried after the script ended.
    pub storage: Vec<Reads>,
    /// Some of the image files that were read.
    pub pictures: Vec<Picture>,
    /// The model, if the probes saw one.
    pub model: Option<record::Model>,
    /// The first batch.
    pub batch: Option<record::Batch>,
    /// What wellfed's loader would do with the script's.
    pub fed: Option<record::Fed>,
    /// Kernels of a step, if they were looked at.
    pub kernels: Option<Kernels>,
    /// Share of the time the device was busy, if anything says.
    pub device_busy: Option<f64>,
    /// The whole script, from its first loop on.
    pub script: Script,
    /// Changes that the syntax trees of the script's files allow.
    pub edits: Vec<Edit>,
    /// Changes that were tried after the run.
    pub tried: Vec<Tried>,
    /// Remarks on what is missing.
    pub notes: Vec<String>,
}

/// A loader and its use.
#[derive(Clone, Debug, Default)]
pub struct LoaderUse {
    /// As it was made.
    pub loader: record::Loader,
    /// Steps taken.
    pub steps: u64,
    /// Epochs begun.
    pub epochs: u32,
    /// Seconds in its loops, without loops of other loaders inside of them.
    pub own: f64,
    /// Seconds in its loops, with those of others inside of them.
    pub whole: f64,
}

impl Evidence {
    /// Extracts it, for the loader that most of the time is spent on.
    pub fn of(run: &RunDir) -> Self {
        Self::about(run, None)
    }

    /// Extracts it, for a certain one of the loaders.
    pub fn about(run: &RunDir, subject: Option<usize>) -> Self {
        let mut evidence = Self {
            command: run.run.command.clone(),
            exit: exit(run),
            duration: seconds(run.run.t1.saturating_sub(run.run.t0)),
            machine: run.trace.machine.clone(),
            storage: run.trace.storage.clone(),
            pictures: run.trace.pictures.clone(),
            edits: run.edits.clone(),
            tried: run.tried.clone(),
            ..Self::default()
        };
        for process in &run.processes {
            for record in &process.records {
                if let Record::Module(module) = record {
                    evidence.software.insert(module.name.clone(), module.version.clone());
                }
            }
            if let Some(error) = &process.error {
                let last = error.lines().last().unwrap_or_default();
                evidence.notes.push(format!("The probe in process {} failed: {last}", process.pid));
            }
        }
        let mut trainers: Vec<&ProcessRecords> =
            run.processes.iter().filter(|process| trains(process)).collect();
        trainers.sort_by_key(|process| (rank(process), process.pid));
        evidence.ranks = trainers.len() as u32;
        evidence.local_ranks = evidence.ranks;
        let Some(main) = trainers.first() else {
            return evidence;
        };
        if let Some(Record::Hello(hello)) =
            main.records.iter().find(|record| matches!(record, Record::Hello(_)))
        {
            evidence.local_ranks = hello.local_world_size.unwrap_or(1).max(1);
            evidence.software.insert("python".to_owned(), hello.python.clone());
        }
        let loops = loops::Loops::of(main);
        evidence.loaders = loops.uses();
        script::leave_out_steps(&mut evidence.edits, main);
        evidence.script = Script::of(main, loops.span(), &evidence.edits);
        let Some(subject) = subject.filter(|&i| i < evidence.loaders.len()).or_else(|| loops.subject())
        else {
            return evidence;
        };
        let loader = evidence.loaders[subject].loader.clone();
        evidence.subject = Some(subject);
        evidence.steps = loops.steady(subject, &loader, &mut evidence.notes);
        let window = evidence.steps.window;
        evidence.loading = Loading::of(run, main, &loader, window);
        evidence.flow = Flow::of(main, loader.loader);
        evidence.stages = Stages::of(run, main, &evidence.loading, &evidence.steps);
        if evidence.stages.outside_looks == 0
            && let Some(why) = run.trace.not_seen_from_outside().next()
        {
            evidence.notes.push(format!(
                "Lines of Python were looked at from inside of the process, which finds code that gives up the interpreter's lock too often ({why})."
            ));
        }
        evidence.garbage = Garbage::of(run, main, &evidence.loading, &evidence.steps);
        evidence.load = Load::of(&run.trace, main.pid, &evidence.loading, window);
        evidence.engine = Engine::of(main, loader.loader, window);
        if let Some(engine) = &evidence.engine
            && evidence.loading.batches.is_empty()
        {
            evidence.stages.loading = engine.stage_times(evidence.beside_the_step());
        }
        for record in &main.records {
            match record {
                Record::Model(model) => evidence.model = Some(model.clone()),
                Record::Fed(fed) if fed.loader == loader.loader => evidence.fed = Some(fed.clone()),
                Record::Batch(batch) if batch.loader == loader.loader => evidence.batch = Some(batch.clone()),
                _ => {}
            }
        }
        evidence.kernels = Kernels::of(main, loader.loader, &mut evidence.notes);
        evidence.device_busy = match &evidence.kernels {
            Some(kernels) => Some(kernels.share(evidence.steps.whole())),
            None => device_busy(main, loader.loader, &evidence).or(evidence.load.gpu_busy),
        };
        evidence
    }

    /// The loader this is about.
    pub fn loader(&self) -> Option<&record::Loader> {
        self.subject.map(|subject| &self.loaders[subject].loader)
    }

    /// Share of the script's time, from its first loop on, that goes into this loop.
    pub fn share(&self) -> f64 {
        let whole = self.subject.map_or(0.0, |subject| self.loaders[subject].whole);
        if self.script.time > 0.0 { (whole / self.script.time).min(1.0) } else { 1.0 }
    }

    /// Samples a step, mean.
    pub fn batch_size(&self) -> f64 {
        let seen = self.loading.samples_per_batch();
        if seen > 0.0 {
            return seen;
        }
        let told = self.loader().and_then(|loader| loader.batch_size).map(f64::from);
        told.or_else(|| self.batch.as_ref()?.shapes.iter().find_map(|shape| first_size(shape))).unwrap_or(1.0)
    }

    /// Pixels of an image file, a median, and of an image in a batch, where both are known.
    pub fn pixels(&self) -> Option<(f64, f64)> {
        let file = quantile(self.pictures.iter().map(|it| f64::from(it.height) * f64::from(it.width)), 0.5);
        let used = self.batch.as_ref()?.shapes.iter().find_map(|shape| pixels(shape))?;
        (file > 0.0).then_some((file, used))
    }

    /// CPU seconds a step that the script spends on other threads than the one of the loop.
    pub fn beside_the_step(&self) -> f64 {
        let thread = mean(self.steps.steps.iter().map(|step| step.thread_cpu + step.wait_cpu));
        (self.load.ours * self.steps.whole() - thread).max(0.0)
    }

    /// Cores this process group may count on: those of the machine, shared with the other ranks.
    pub fn cores(&self) -> f64 {
        let cores = if self.machine.cores > 0.0 { self.machine.cores } else { 1.0 };
        (cores / f64::from(self.local_ranks.max(1))).max(1.0)
    }
}

/// Nanoseconds as seconds.
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}

/// The value below which such a share of the values lies; 0 for none.
pub(crate) fn quantile(values: impl IntoIterator<Item = f64>, share: f64) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let at = (share * sorted.len().saturating_sub(1) as f64) as usize;
    sorted.get(at).copied().unwrap_or(0.0)
}

/// Mean; 0 of nothing.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0u32);
    for value in values {
        sum += value;
        count += 1;
    }
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

/// Pixels of an image of `uint8[32, 3, 224, 224]` or `float32[32, 224, 224, 3]`.
fn pixels(shape: &str) -> Option<f64> {
    let (_, sizes) = shape.split_once('[')?;
    let sizes: Vec<f64> =
        sizes.trim_end_matches(']').split(',').filter_map(|size| size.trim().parse().ok()).collect();
    let [_, a, b, c] = sizes.as_slice() else { return None };
    // Channels are few.
    if *a <= 4.0 { Some(b * c) } else { (*c <= 4.0).then_some(a * b) }
}

/// 32 of `uint8[32, 3, 224, 224]`.
fn first_size(shape: &str) -> Option<f64> {
    let (_, sizes) = shape.split_once('[')?;
    sizes.split([',', ']']).next()?.trim().parse().ok()
}

fn trains(process: &ProcessRecords) -> bool {
    process.records.iter().any(|record| matches!(record, Record::Steps(_)))
        && !process.records.iter().any(|record| matches!(record, Record::Role(_)))
}

fn rank(process: &ProcessRecords) -> u32 {
    process
        .records
        .iter()
        .find_map(|record| if let Record::Hello(hello) = record { hello.rank } else { None })
        .unwrap_or(0)
}

/// The starter knows status and signal, the probe knows the reason.
fn exit(run: &RunDir) -> Exit {
    let mut exit = run.run.exit.clone();
    for record in run.processes.iter().flat_map(|process| &process.records) {
        if let Record::Exit(seen) = record {
            if exit.reason.is_empty() || exit.reason == "finished" {
                exit.reason.clone_from(&seen.reason);
            }
            if exit.exception.is_none() {
                exit.exception.clone_from(&seen.exception);
            }
        }
    }
    exit
}

/// Device time by events over the time of the same steps.
fn device_busy(main: &ProcessRecords, loader: u32, evidence: &Evidence) -> Option<f64> {
    let busy: Vec<f64> = main
        .records
        .iter()
        .filter_map(|record| match record {
            Record::Device(device) if device.loader == loader => {
                Some(device.busy.iter().map(|&busy| seconds(busy)))
            }
            _ => None,
        })
        .flatten()
        .collect();
    let time = evidence.steps.time();
    (!busy.is_empty() && time > 0.0).then(|| (mean(busy) / time).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pixels_of_images_in_either_layout() {
        assert_eq!(pixels("uint8[32, 3, 64, 48]"), Some(3072.0));
        assert_eq!(pixels("float32[32, 64, 48, 3]"), Some(3072.0));
        assert!(pixels("float32[32, 1024]").is_none() && pixels("float32[8, 16, 64, 48]").is_none());
    }

    #[test]
    fn the_first_size_of_a_shape() {
        assert_eq!(first_size("uint8[32, 3, 224, 224]"), Some(32.0));
        assert_eq!(first_size("int64[5]"), Some(5.0));
        assert!(first_size("float32[]").is_none() && first_size("float32[?, 3]").is_none());
    }
}
