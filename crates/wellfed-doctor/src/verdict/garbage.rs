//! Looking for garbage: collections that are asked for in each step, and those that Python begins by itself.

use super::{Case, Finding, Kind, Said, code, fact, loading, ms, percent, training};
use crate::{
    evidence::Culprit,
    model::Cost,
    record::Frame,
    report::{Apply, Fix},
};

pub(super) fn find(case: &Case) -> Vec<Finding> {
    [asked_for(case), automatic(case)].into_iter().flatten().collect()
}

/// Whether a line asks for garbage to be looked for, or for a device's free memory to be given back.
fn collects_at(frame: &Frame) -> bool {
    ["gc.collect(", ".empty_cache("].iter().any(|word| frame.call.contains(word))
}

/// Whether it is such a line that takes the time.
pub(super) fn collects(culprit: &Culprit) -> bool {
    training::frames(culprit).any(collects_at)
}

/// Garbage that is collected in each step.
fn asked_for(case: &Case) -> Option<Finding> {
    let (time, worst) = training::part(case, collects)?;
    let line = training::frames(worst).find(|frame| collects_at(frame)).unwrap_or(&worst.frame);
    let changed = training::without_share(case, time / case.e.steps.compute().max(1e-12));
    let share = percent(time / case.e.steps.time().max(1e-12));
    let facts = vec![fact(
        format!("Of a step of {}, `{}` takes {}.", ms(case.e.steps.time()), line.call, ms(time)),
        time,
        "s",
        "stacks",
    )];
    let fix = Fix {
        title: "Leave garbage to Python and to the framework, or collect it once an epoch".to_owned(),
        change: format!("# once an epoch, or never: {}", line.call),
        place: Some(code::place_of(line)),
        why: "A full collection looks at every object of the process. Python frees most of them without it, and a framework uses a device's free memory again.".to_owned(),
        apply: None,
    };
    let title = format!("`{}` takes {share} of the loop's time ({})", line.call, code::where_is(line));
    Some(case.finding(Kind::Work, "garbage-collection", "loop", Said { title, facts, fix }, &changed, 0.08))
}

/// What is left of the time once what there is is not looked through, and the rest seldom. Measured with JSON of 3,000 objects a sample
/// beside 1.2 million others: nothing.
const LEFT: f64 = 0.1;

/// Share of the processor time of making batches, or of a step, from which on it is told.
const TOLD: f64 = 0.05;

/// Where workers begin with what the training process is at: everywhere but with these start methods. Python 3.14 changed the default.
fn workers_inherit(case: &Case) -> bool {
    let Some(loader) = case.e.loader() else { return false };
    let version = case.e.software.get("python").map(String::as_str).unwrap_or_default();
    let minor: u32 = version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    match loader.multiprocessing_context.as_deref() {
        _ if loader.num_workers == 0 => true,
        Some(method) => method == "fork",
        None => minor < 14,
    }
}

/// Share of the processor time of making batches that goes into looking for garbage: of a step's, where the training process makes them.
pub(super) fn of_making(case: &Case) -> f64 {
    let e = case.e;
    if e.loading.in_workers {
        (e.garbage.making / e.loading.mean(|batch| batch.cpu).max(1e-12)).min(1.0)
    } else {
        of_training(case)
    }
}

/// The same of a step, with the batch where the training process makes it; without what the loop asks for, which is a cause of its own.
fn of_training(case: &Case) -> f64 {
    let step = crate::evidence::mean(case.e.steps.steps.iter().map(|step| step.thread_cpu + step.wait_cpu));
    (in_training(case) / step.max(1e-12)).min(1.0)
}

/// CPU seconds of a step that go into collections which Python begins by itself.
fn in_training(case: &Case) -> f64 {
    let asked = training::part(case, collects).map_or(0.0, |(time, _)| time);
    (case.e.garbage.training - asked).max(0.0)
}

/// Collections that Python begins because objects were made.
fn automatic(case: &Case) -> Option<Finding> {
    let e = case.e;
    let in_workers = e.loading.in_workers;
    let (training, making) = (of_training(case), of_making(case));
    if training.max(making) < TOLD {
        return None;
    }
    let spared = |share: f64| 1.0 - share * (1.0 - LEFT);
    let changed = case
        .p
        .with_make(|cost| Cost { cpu: cost.cpu * spared(making), ..*cost })
        .with_step(|cost| Cost { cpu: cost.cpu * spared(training), ..*cost });
    let of_workers = in_workers && making >= training;
    let (time, share, what) = if of_workers {
        (e.garbage.making, making, "making a batch")
    } else {
        (in_training(case), training, "a step")
    };
    let mut facts = vec![fact(
        format!(
            "Of {what}, {} go into looking for garbage: {} of its processor time.",
            ms(time),
            percent(share)
        ),
        time,
        "s",
        "gc",
    )];
    facts.extend(loading::waiting(case));
    let lines = ["import gc", "gc.freeze()", "gc.set_threshold(100_000, 50, 50)"];
    let is_torch = e.loader().is_some_and(|loader| loader.framework != "tf.data");
    let (change, place) = if workers_inherit(case) {
        code::before_loader(e, &lines)
    } else {
        let place = e.loader().and_then(|loader| loader.place.clone());
        ("# in worker_init_fn: gc.freeze(), gc.set_threshold(100_000, 50, 50)".to_owned(), place)
    };
    let fix = Fix {
        title: "Collect garbage seldom, and what is there now never".to_owned(),
        change,
        place,
        why: "Python looks for garbage whenever some hundreds of objects more were made than freed, and at times through all that there are. \
              What nobody refers to is freed without that; only circles of objects need it."
            .to_owned(),
        apply: (is_torch && workers_inherit(case)).then(|| Apply { garbage: true, ..Apply::default() }),
    };
    let title = format!("Looking for garbage takes {} of {what}", percent(share));
    Some(case.finding(Kind::Setting, "garbage-collection", "cpu", Said { title, facts, fix }, &changed, 0.12))
}
