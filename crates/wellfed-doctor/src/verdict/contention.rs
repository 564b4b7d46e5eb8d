//! Others that want the same cores: neighbours, too many threads, the interpreter's lock.

use std::collections::BTreeMap;

use super::{
    Case, Finding, Kind, Said, code, fact, loading, ms, percent,
    pipeline::{self, MOST_SPUN, QUEUED, SHARED_OUT},
};
use crate::{
    evidence::{Evidence, Load, mean, quantile},
    model::{Cost, Pipeline},
    report::{Apply, Fix},
};

/// The name of too many threads.
pub(super) const THREADS: &str = "cpu-oversubscription";

/// The name of processes of others.
pub(super) const NEIGHBOUR: &str = "noisy-neighbour";

/// What of this is the script's own.
pub(super) fn find(case: &Case) -> Vec<Finding> {
    [threads(case), threads_of_the_step(case), lock(case)].into_iter().flatten().collect()
}

/// The evidence as it would be without neighbours, as far as that is known: what they use is idle, and nobody queues behind them.
pub(super) fn without_neighbours(e: &Evidence) -> Evidence {
    let mut alone = e.clone();
    let load = &mut alone.load;
    let ours = load.ours / (load.ours + load.foreign).max(1e-12);
    load.busy = (load.busy - load.foreign).max(0.0);
    load.queued *= ours;
    load.foreign = 0.0;
    load.neighbours.clear();
    alone
}

/// Those who use the cores, by name: `python spin.py (4711)`.
fn names(load: &Load) -> String {
    let named: Vec<String> = load
        .neighbours
        .iter()
        .filter(|neighbour| neighbour.cores >= NAMED * load.foreign)
        .take(3)
        .map(|neighbour| format!("{} ({})", neighbour.name, neighbour.pid))
        .collect();
    match named.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(", ")),
    }
}

/// Share of what all others use from which on one of them is named.
const NAMED: f64 = 0.1;

/// Processes that are not the script's and take cores it could use.
pub(super) fn neighbour(case: &Case) -> Option<Finding> {
    let load = &case.e.load;
    // What the machine does besides, and what the doctor does, is no neighbour.
    if load.foreign < 0.15 || load.foreign < 0.05 * case.p.cores {
        return None;
    }
    let mut changed = Pipeline { neighbours: 0.0, ..case.p.clone() };
    let mut unsure = 0.1;
    let parallel = mean(case.p.step.iter().map(|cost| cost.parallel));
    if parallel >= SHARED_OUT {
        // Each piece of the step waits for the thread that has no core.
        let left = (1.0 - spun(case, parallel + case.p.neighbours)).min(left_of_pieces(case));
        changed = changed.with_step(|cost| Cost { cpu: left * cost.cpu, ..*cost });
        // What a step waits for otherwise is not guessed: in one that sleeps, any thread besides looks like shared work.
        let computing = mean(case.p.step.iter().map(|cost| cost.cpu / cost.parallel));
        let blocked = mean(case.p.step.iter().map(|cost| cost.blocked));
        unsure += SPINNING * computing / (computing + blocked).max(1e-12);
    }
    let mut facts = vec![
        fact(
            format!("Other processes use {:.1} of {:.0} cores.", load.foreign, case.p.cores),
            load.foreign,
            "cores",
            "/proc",
        ),
        fact(
            format!("Threads of this script were runnable without a core {:.1} s a second.", load.queued),
            load.queued,
            "s/s",
            "/proc",
        ),
    ];
    for neighbour in load.neighbours.iter().take(3) {
        facts.push(fact(
            format!("{}, process {}, uses {:.1} cores.", neighbour.name, neighbour.pid, neighbour.cores),
            neighbour.cores,
            "cores",
            "/proc",
        ));
    }
    let named = names(load);
    let fix = Fix {
        title: "Free the cores that others use, or run elsewhere".to_owned(),
        change: if named.is_empty() {
            "# whose processes are not to be seen from here: another container's, perhaps".to_owned()
        } else {
            format!("# these end, or run elsewhere: {named}")
        },
        place: None,
        why: "They share the cores that loading needs.".to_owned(),
        apply: None,
    };
    let who = match (named.is_empty(), named.contains(" and ")) {
        (true, _) => "Another process takes".to_owned(),
        (false, false) => format!("Another process, {named}, takes"),
        (false, true) => format!("Other processes, {named}, take"),
    };
    let title = format!("{who} {:.1} of {:.0} cores", load.foreign, case.p.cores);
    Some(case.finding(Kind::Setting, NEIGHBOUR, "contention", Said { title, facts, fix }, &changed, unsure))
}

/// How unsure it is what spinning costs, as a standard deviation of a logarithm.
const SPINNING: f64 = 0.45;

/// Share of the processor time that is spun away where so many threads want to run. Threads that share out a piece of work wait for
/// each other, by spinning. Where k times as many want to run as there are cores, the last of them comes to its turn k times as late,
/// and the others burn their cores until then.
fn spun(case: &Case, wanted: f64) -> f64 {
    1.0 - (case.p.cores / wanted.max(1e-9)).clamp(0.02, 1.0)
}

fn threads(case: &Case) -> Option<Finding> {
    let loading = &case.e.loading;
    let parallel = loading.mean(crate::evidence::Batch::parallel);
    let threads = case.e.load.worker_threads.max(parallel);
    let wanted = case.p.workers as f64 * threads;
    if !loading.in_workers || parallel < SHARED_OUT || wanted < 1.5 * case.p.cores {
        return None;
    }
    // Threads that there are need not all run: who fights for cores keeps them busy, or waits for them.
    if pipeline::busy_share(case.e) < 0.7 && case.e.load.queued < 0.5 * case.p.cores {
        return None;
    }
    let left = 1.0 - spun(case, wanted);
    let changed = case.p.with_make(|cost| Cost { cpu: left * cost.cpu, parallel: 1.0, ..*cost });
    // The training process fights for the cores, too, whenever it wakes up: a step that did not have to is what it takes alone.
    let alone = quantile(case.e.steps.steps.iter().map(|step| step.compute), 0.1);
    let changed = Pipeline {
        receive: pipeline::receive_on_idle_cores(case.e, &case.p),
        ..changed.with_step(|cost| Cost { blocked: cost.blocked.min((alone - cost.cpu).max(0.0)), ..*cost })
    };
    let mut facts = loading::waiting(case);
    facts.push(fact(format!("{} workers use {parallel:.1} threads each at a time ({threads:.0} were seen): {wanted:.0} threads for {:.0} cores.", case.p.workers, case.p.cores), wanted, "threads", "/proc"));
    facts.push(fact(
        format!("Threads were runnable without a core {:.1} s a second.", case.e.load.queued),
        case.e.load.queued,
        "s/s",
        "/proc",
    ));
    let names = ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"];
    let fix = Fix {
        title: "One thread a worker".to_owned(),
        change: format!(
            "OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 {}",
            code::command(case.e)
        ),
        place: None,
        why: "Each worker's NumPy starts a thread for every core; together they fight for the cores and wait for each other.".to_owned(),
        apply: Some(Apply { env: names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect::<BTreeMap<_, _>>(), ..Apply::default() }),
    };
    let title = format!(
        "{} workers with {threads:.0} threads each fight for {:.0} cores",
        case.p.workers, case.p.cores
    );
    let finding =
        case.finding(Kind::Spinning, THREADS, "contention", Said { title, facts, fix }, &changed, SPINNING);
    // What the script asks for itself, a variable does not change.
    let own = case.e.edits.iter().find(|edit| edit.kind == "threads");
    Some(match own {
        Some(edit) => finding.edited(
            edit,
            format!("One thread a worker, not what {} asks for", edit.func),
            "Together the workers' threads fight for the cores and wait for each other; torch takes this number, whatever OMP_NUM_THREADS says.",
        ),
        None => finding,
    })
}

/// Seconds for which a thread keeps its core while another one wants it: the slice of Linux' scheduler.
const SLICE: f64 = 0.003;

/// Pieces of work of a module that are shared out among threads: in its forward and its backward pass, and for its parameters.
const PIECES: f64 = 3.0;

/// What is left of a step whose threads need not wait at each piece of work for a neighbour that computes all the time.
fn left_of_pieces(case: &Case) -> f64 {
    let training = &case.e.load.training;
    if training.queued < QUEUED * training.cpu {
        return 1.0;
    }
    let step = mean(case.p.step.iter().map(Cost::alone));
    let queued = training.queued / (training.cpu + training.queued);
    let pieces = case.e.model.as_ref().map_or(0.0, |model| PIECES * f64::from(model.module_calls));
    let spared = (pieces * SLICE).max(queued * step).min(step * (1.0 - 1.0 / MOST_SPUN));
    1.0 - spared / step.max(1e-12)
}

/// How unsure its gain is, as a standard deviation of a logarithm: how much it is, rather than whether there is one.
const OF_THE_STEP: f64 = 0.2;

/// The training process shares each step's work out among more threads than there are cores left: at each piece of it the others wait,
/// spinning, for the one that has no core.
fn threads_of_the_step(case: &Case) -> Option<Finding> {
    let (load, e) = (&case.e.load, case.e);
    let parallel = mean(case.p.step.iter().map(|cost| cost.parallel));
    let others = load.foreign + if e.loading.in_workers { load.making.cpu } else { 0.0 };
    let of_torch = e.loader().is_some_and(|loader| loader.framework != "tf.data");
    // Where there are cores for all of its threads, fewer of them gain nothing.
    if !of_torch
        || parallel < SHARED_OUT
        || others < 0.3
        || load.training.queued < QUEUED * load.training.cpu
        || pipeline::busy_share(e) < 0.85
    {
        return None;
    }
    let left = if load.foreign >= 0.5 * others {
        left_of_pieces(case)
    } else {
        // Without waiting, one thread does what several did as fast as the cores let them.
        (1.0 - case.p.stall.map_or(0.0, |stall| stall.share)) * parallel.min(case.p.scaling)
    };
    let serial = case.p.with_step(|cost| Cost {
        cpu: left * cost.cpu / cost.parallel.max(1.0),
        blocked: left * cost.blocked,
        parallel: 1.0,
        ..*cost
    });
    let changed = Pipeline { stall: None, ..serial };
    // Rounded down: as many as there are cores is what the step has already.
    let threads = (case.p.cores - others).floor().max(1.0);
    let facts = vec![
        fact(
            format!(
                "A step's work is shared out among threads that use {parallel:.1} cores; others use {others:.1} of {:.0}.",
                case.p.cores
            ),
            parallel,
            "cores",
            "/proc",
        ),
        fact(
            format!(
                "Threads of the training process were runnable without a core {:.1} s a second.",
                load.training.queued
            ),
            load.training.queued,
            "s/s",
            "/proc",
        ),
    ];
    let names = ["OMP_NUM_THREADS", "MKL_NUM_THREADS"];
    let fix = Fix {
        title: format!("{threads:.0} {} for the step", if threads < 2.0 { "thread" } else { "threads" }),
        change: format!("OMP_NUM_THREADS={threads:.0} MKL_NUM_THREADS={threads:.0} {}", code::command(e)),
        place: None,
        why: "A thread that has finished its part waits, spinning, for the one that has no core: for as long as another process keeps that."
            .to_owned(),
        apply: Some(Apply {
            env: names.iter().map(|name| ((*name).to_owned(), format!("{threads:.0}"))).collect(),
            ..Apply::default()
        }),
    };
    let title = format!(
        "A step's threads wait for each other: others use {others:.1} of {:.0} cores, and they want {:.1}",
        case.p.cores,
        load.training.cpu + load.training.queued
    );
    let said = Said { title, facts, fix };
    Some(case.finding(Kind::Setting, THREADS, "contention", said, &changed, OF_THE_STEP))
}

fn lock(case: &Case) -> Option<Finding> {
    let stages = &case.e.stages;
    // A switch of the lock is asked for after 5 ms (sys.getswitchinterval): whoever waits that long waits for a thread that computes.
    if stages.gil_late < 0.002 || stages.gil_threads < 1.8 {
        return None;
    }
    let share = (1.0 - 1.0 / stages.gil_threads).min(0.5);
    let time = case.now * (1.0 - share * 0.7);
    let facts = vec![
        fact(
            format!(
                "A thread that wants to run Python waits {} for the interpreter's lock.",
                ms(stages.gil_late)
            ),
            stages.gil_late,
            "s",
            "stacks",
        ),
        fact(
            format!(
                "{:.1} threads of the training process want to run Python at a time.",
                stages.gil_threads
            ),
            stages.gil_threads,
            "threads",
            "stacks",
        ),
    ];
    let fix = Fix {
        title: "Move Python work out of the training process".to_owned(),
        change: "# worker processes in place of threads, or work that gives up the lock".to_owned(),
        place: None,
        why: "Only one thread of a process runs Python at a time; the others wait, the training loop among them.".to_owned(),
        apply: None,
    };
    let title = format!(
        "Threads of the training process wait for the interpreter's lock, {} of the time",
        percent(share)
    );
    let said = Said { title, facts, fix };
    Some(said.into_finding(
        Kind::Setting,
        "gil-contention",
        "contention",
        case.gain_of(time, 0.3),
        String::new(),
    ))
}
