//! How loading is set up: too few workers, workers that begin anew each epoch, samples that hold up others, the hand-over.

use serde_json::json;

use super::{Case, Finding, Kind, Said, code, fact, garbage, locks, ms, network, percent, pipeline};
use crate::{
    evidence::mean,
    model::Pipeline,
    report::{Fact, Fix},
};

pub(super) fn find(case: &Case) -> Vec<Finding> {
    [serial(case), restart(case), tail(case), hand_over(case)].into_iter().flatten().collect()
}

/// Facts about waiting that several verdicts begin with.
pub(super) fn waiting(case: &Case) -> Vec<Fact> {
    let (time, wait) = (case.e.steps.time(), case.e.steps.wait());
    vec![fact(
        format!(
            "A step takes {}; in {} of it ({}) the loop waits for data.",
            ms(time),
            ms(wait),
            percent(wait / time)
        ),
        wait / time,
        "share",
        "loader",
    )]
}

/// How many cores are in use.
pub(super) fn busy(case: &Case) -> Fact {
    let busy = case.e.load.busy;
    fact(format!("{busy:.1} of {:.0} cores are busy.", case.p.cores), busy, "cores", "/proc")
}

/// What a batch that came from a worker costs the training process: to rebuild it, by its size. A pickle of descriptors takes a
/// fifth of a millisecond; memory is mapped, not copied.
pub(super) const HAND_OVER: f64 = 0.0003;

/// Seconds that starting a worker process adds to the first batch of an epoch: by `fork`, of a process that has imported torch. 20 ms
/// for each of two or four on two cores, 45 ms for a single one.
const START: f64 = 0.025;

/// The pipeline with `workers` workers.
pub(crate) fn with_workers(p: &Pipeline, workers: usize) -> Pipeline {
    let mut changed = Pipeline { workers, prefetch: p.prefetch.max(2), ..p.clone() };
    if p.workers == 0 && workers > 0 {
        changed.receive += HAND_OVER;
        changed = changed.with_make(|cost| crate::model::Cost { cpu: cost.cpu + HAND_OVER, ..*cost });
    }
    changed
}

/// The most workers that make sense: as many as cores run them while others of them wait for storage, and never more than
/// eight a core.
pub(crate) fn most_workers(p: &Pipeline) -> usize {
    let cpu = mean(p.make.iter().map(|cost| cost.cpu)).max(1e-9);
    let whole = mean(p.make.iter().map(crate::model::Cost::alone));
    let fit = p.cores * (whole / cpu).max(1.0);
    (fit.floor() as usize)
        .clamp(p.cores.floor().max(1.0) as usize, 8 * p.cores.ceil().max(1.0) as usize)
        .min(64)
}

/// Whether making batches is mostly waiting for something that needs no core.
pub(super) fn mostly_blocked(case: &Case) -> bool {
    let blocked = mean(case.p.make.iter().map(|cost| cost.blocked));
    let whole = mean(case.p.make.iter().map(crate::model::Cost::alone));
    blocked > 0.5 * whole
}

/// Whether several workers share the samples of this loader. An iterable data set gives all of them in each worker, unless it was
/// written for several; those of these libraries are, and who has several workers already has seen to it.
pub(super) fn shares(case: &Case) -> bool {
    case.e.loader().is_none_or(|loader| {
        let written = ["webdataset.", "datasets.", "torchdata.", "litdata.", "streaming.", "wellfed."];
        !loader.iterable
            || loader.num_workers > 1
            || written.iter().any(|name| loader.dataset.starts_with(name))
    })
}

fn serial(case: &Case) -> Option<Finding> {
    let loader = case.e.loader()?;
    if case.e.loading.batches.is_empty() || loader.framework != "torch" || case.p.bandwidth.is_some() {
        return None;
    }
    // Workers wait for storage: what they lack is not cores. `storage` names that.
    if mostly_blocked(case) && case.p.workers > 0 {
        return None;
    }
    // Nor do those that wait for each other.
    if locks::held(case).is_some() {
        return None;
    }
    let cores = case.p.cores.floor().max(1.0) as usize;
    if case.p.workers >= cores {
        return None;
    }
    let limit = if shares(case) { most_workers(&case.p).min(cores.max(1)) } else { 1 };
    let (workers, _) = with_workers(&case.p, 1).best_workers(limit);
    if workers <= case.p.workers {
        return None;
    }
    let mut changed = with_workers(&case.p, workers);
    if loader.made > 1 && case.p.workers == 0 {
        changed.restart += START * workers as f64;
    }
    let mut facts = waiting(case);
    let make = case.e.loading.mean(|batch| batch.wall);
    facts.push(fact(
        format!(
            "A batch takes {} to make{}.",
            ms(make),
            if case.p.workers == 0 {
                ", in the training process itself, between two steps"
            } else {
                ", and too few workers make them"
            }
        ),
        make,
        "s",
        "loader",
    ));
    facts.push(busy(case));
    // Workers end with their loader: those of one that is made for each epoch cannot be kept.
    let persistent = case.e.steps.steps_per_epoch > 0.0 && loader.made <= 1;
    let mut arguments = vec![("num_workers", workers.to_string())];
    let mut apply = vec![("num_workers", json!(workers))];
    if persistent && !loader.persistent_workers {
        arguments.push(("persistent_workers", "True".to_owned()));
        apply.push(("persistent_workers", json!(true)));
    }
    let (change, place) = code::loader_with(case.e, &arguments);
    let title = if case.p.workers == 0 {
        format!(
            "Batches are made in the training process, one after the other: it waits {} of the time",
            percent(case.e.steps.wait() / case.e.steps.time())
        )
    } else {
        format!(
            "Too few workers: {} of {cores} cores' worth, and the loop waits {} of the time",
            case.p.workers,
            percent(case.e.steps.wait() / case.e.steps.time())
        )
    };
    // Workers that are forked must not read from a file of HDF5 that was opened before.
    let lazy = case.e.edits.iter().find(|edit| {
        edit.kind == "lazy"
            && code::of_data_set(edit, loader)
            && place.as_ref().is_some_and(|place| code::beside(edit, place))
    });
    let fix = Fix {
        title: format!("Load in {workers} worker process{}", if workers == 1 { "" } else { "es" }),
        change,
        place,
        why: "Workers make the next batches while the step computes; more of them than there are cores to run them would not help.".to_owned(),
        apply: Some(code::apply_loader(&apply)),
    };
    let said = Said { title, facts, fix };
    let mut finding = case.finding(Kind::Setting, "serial-loading", "loading", said, &changed, 0.06);
    finding.verdict.more = lazy.map(|edit| edit.hunks.clone()).unwrap_or_default();
    Some(finding)
}

fn restart(case: &Case) -> Option<Finding> {
    let loader = case.e.loader()?;
    let steps = &case.e.steps;
    if loader.persistent_workers || loader.num_workers <= 0 || steps.starts.is_empty() {
        return None;
    }
    let start = mean(steps.starts.iter().copied());
    let end = mean(steps.ends.iter().copied());
    // Workers that live on still have to make the first batch of an epoch.
    let first = case.e.loading.mean(|batch| batch.wall).min(start);
    let kept = (first - steps.wait()).max(0.0);
    let changed = Pipeline { restart: kept.min(case.p.restart), ..case.p.clone() };
    let facts = vec![
        fact(
            format!(
                "Each of the epochs begins with {} until its first batch; a step takes {}.",
                ms(start),
                ms(steps.time())
            ),
            start,
            "s",
            "loader",
        ),
        fact(
            format!("An epoch has {:.0} steps; its end takes {}.", steps.steps_per_epoch, ms(end)),
            steps.steps_per_epoch,
            "steps",
            "loader",
        ),
        fact(
            format!(
                "The first batch itself takes {} to make; the rest of the start is starting workers.",
                ms(first)
            ),
            first,
            "s",
            "workers",
        ),
    ];
    let (mut change, place) = code::loader_with(case.e, &[("persistent_workers", "True".to_owned())]);
    let remade = loader.made > 1;
    if remade {
        // Written here the argument would change nothing.
        change = "# once, before the loop over epochs, with persistent_workers=True: workers end with their loader".to_owned();
    }
    let fix = Fix {
        title: if remade { "Make the loader once, and keep its workers from epoch to epoch" } else { "Keep the workers from epoch to epoch" }.to_owned(),
        change,
        place,
        why: "Without it every epoch starts its worker processes anew: they import, receive the data set and fill the queue while the GPU waits.".to_owned(),
        apply: (!remade).then(|| code::apply_loader(&[("persistent_workers", json!(true))])),
    };
    let share = (start + end) / (start + end + steps.time() * steps.steps_per_epoch).max(1e-9);
    let title = format!("Workers are started anew each epoch: {} of the time goes into it", percent(share));
    Some(case.finding(Kind::Setting, "worker-restart", "loading", Said { title, facts, fix }, &changed, 0.05))
}

/// A sample is slow if it takes eight times the median.
const SLOW: f64 = 8.0;

fn tail(case: &Case) -> Option<Finding> {
    let samples = &case.e.loading.samples;
    if samples.len() < 100 || network::refused(case) {
        return None;
    }
    let mut walls: Vec<f64> = samples.iter().map(|sample| sample.wall).collect();
    walls.sort_by(f64::total_cmp);
    let median = walls[walls.len() / 2];
    let slow: Vec<_> =
        samples.iter().filter(|sample| sample.wall > SLOW * median && sample.wall > 1e-3).collect();
    // Many slow samples are no tail, they are the data.
    if slow.is_empty() || slow.len() * 20 > samples.len() {
        return None;
    }
    let excess: f64 = slow.iter().map(|sample| sample.wall - median).sum();
    let share = excess / walls.iter().sum::<f64>();
    // Whichever sample a collection of garbage falls into is slow; it is no cause, and another one is next time.
    if garbage::of_making(case) > share / 2.0 {
        return None;
    }
    // Batches without what their slow samples cost: those that take longer than usual by a slow sample's time.
    let mut made: Vec<f64> = case.p.make.iter().map(crate::model::Cost::alone).collect();
    made.sort_by(f64::total_cmp);
    let shortest_slow = slow.iter().map(|sample| sample.wall).fold(f64::INFINITY, f64::min);
    let usual = made[made.len() / 4].max(made[made.len() / 2] - 0.5 * shortest_slow);
    let changed = case.p.with_make(|cost| {
        let alone = cost.alone();
        if alone > usual + 0.5 * (shortest_slow - median) {
            let scale = usual / alone;
            crate::model::Cost { blocked: cost.blocked * scale, cpu: cost.cpu * scale, ..*cost }
        } else {
            *cost
        }
    });
    if share < 0.1 {
        return None;
    }
    let worst = slow.iter().max_by(|a, b| a.wall.total_cmp(&b.wall))?;
    let mut indices: Vec<i64> = slow.iter().map(|sample| sample.index).filter(|&index| index >= 0).collect();
    indices.sort_unstable();
    indices.dedup();
    let list = indices.iter().take(6).map(i64::to_string).collect::<Vec<_>>().join(", ");
    let facts = vec![
        fact(
            format!(
                "{} of {} samples take more than {SLOW:.0} times the median of {}; the slowest {}.",
                slow.len(),
                samples.len(),
                ms(median),
                ms(worst.wall)
            ),
            slow.len() as f64 / samples.len() as f64,
            "share",
            "workers",
        ),
        fact(
            format!(
                "They take {} of all the time samples take. Indices: {list}{}.",
                percent(share),
                if indices.len() > 6 { ", …" } else { "" }
            ),
            share,
            "share",
            "workers",
        ),
    ];
    let (change, place) = code::loader_with(case.e, &[("prefetch_factor", "8".to_owned())]);
    let fix = Fix {
        title: "Make the slow samples faster, or leave them out".to_owned(),
        // Deeper queues hide short ones; the samples are the cause.
        change: if case.p.workers > 0 { change } else { format!("# look at samples {list}") },
        place,
        why: "Batches are delivered in order: one slow sample holds up all batches behind it, and then every step.".to_owned(),
        apply: None,
    };
    let title = format!(
        "A few slow samples hold up the rest: {} in a hundred take {} of the loading time",
        one_in(slow.len(), samples.len()),
        percent(share)
    );
    Some(case.finding(Kind::Setting, "long-tail", "loading", Said { title, facts, fix }, &changed, 0.1))
}

fn one_in(some: usize, all: usize) -> String {
    format!("{:.1}", 100.0 * some as f64 / all.max(1) as f64)
}

/// Whether wellfed's loader would put batches together itself: torch's own collate function does, in a loader that it takes.
pub(super) fn collates(case: &Case) -> bool {
    let refused = case.e.fed.as_ref().is_some_and(|fed| fed.plan == "refused");
    let own = |name: &str| !name.is_empty() && !name.starts_with("torch.") && !name.starts_with("wellfed.");
    !refused && !case.e.loader().is_some_and(|loader| own(&loader.collate))
}

/// Whether batches are put together by torch's own function, tensor by tensor.
pub(super) fn torch_collates(case: &Case) -> bool {
    let torch = |name: &str| name.is_empty() || name.starts_with("torch.") || name.starts_with("wellfed.");
    case.e.loader().is_none_or(|loader| torch(&loader.collate))
}

/// Sending batches from workers and taking them up.
fn hand_over(case: &Case) -> Option<Finding> {
    let loading = &case.e.loading;
    if !loading.in_workers || loading.batches.is_empty() {
        return None;
    }
    let receive = mean(case.e.steps.steps.iter().map(|step| step.wait_cpu));
    let send = loading.send_cpu.max(loading.send);
    let speed = case.p.speed(case.e.load.busy.max(1.0));
    let changed =
        Pipeline { receive: case.p.receive.min(pipeline::WAKE), ..case.p.clone() }.with_make(|cost| {
            crate::model::Cost { cpu: (cost.cpu - 0.9 * loading.send_cpu * speed).max(0.0), ..*cost }
        });
    let tensors = case.e.batch.as_ref().map_or(0, |batch| batch.tensors);
    let bytes = case.e.batch.as_ref().map_or(0, |batch| batch.bytes);
    let facts = vec![
        fact(
            format!(
                "A worker takes {} to send a batch, the training process {} to take it up.",
                ms(send),
                ms(receive)
            ),
            send + receive,
            "s",
            "workers",
        ),
        fact(
            format!("A batch is {tensors} tensors and {:.1} MB.", bytes as f64 / 1e6),
            bytes as f64,
            "bytes",
            "loader",
        ),
    ];
    let fix = if collates(case) {
        let (change, place) = code::fed(case.e);
        Fix {
            title: "Hand batches over in shared memory that is used again".to_owned(),
            change,
            place,
            why: "torch sends a descriptor for every tensor of every batch; wellfed's workers write into memory that the training process has mapped already.".to_owned(),
            apply: Some(crate::report::Apply { feed: true, ..crate::report::Apply::default() }),
        }
    } else {
        // A collate function of the script's own may give anything, which wellfed's workers send as torch's do.
        Fix {
            title: "Few large tensors a batch instead of many small ones".to_owned(),
            change: "# collate_fn: stack what can be stacked".to_owned(),
            place: case.e.loader().and_then(|loader| loader.place.clone()),
            why: "torch sends a descriptor for every tensor of every batch.".to_owned(),
            apply: None,
        }
    };
    let title = format!("Handing batches over from the workers takes {} a step", ms(send + receive));
    Some(case.finding(Kind::Work, "ipc", "loading", Said { title, facts, fix }, &changed, 0.1))
}

/// wellfed's loader where a trial found it faster and nothing else says so. What of torch's loader it spares, no look shows.
pub(super) fn fed_as_tried(case: &Case, others: &[Finding]) -> Option<Finding> {
    let feeds = |finding: &Finding| {
        let apply = finding.verdict.fix.as_ref().and_then(|fix| fix.apply.as_ref());
        apply.is_some_and(|apply| apply.feed)
    };
    let tried = case.e.tried.iter().find(|tried| tried.apply.feed)?;
    let measured = tried.measured().filter(|measured| measured.factor >= BY_ITSELF)?;
    if others.iter().any(feeds) {
        return None;
    }
    let (change, place) = code::fed(case.e);
    let fix = Fix {
        title: FED.to_owned(),
        change,
        place,
        why: "It gives the same batches; how it makes and hands them over costs less.".to_owned(),
        apply: Some(tried.apply.clone()),
    };
    let title = format!("torch's loader itself costs {} of a step", percent(1.0 - 1.0 / measured.factor));
    let said = Said { title, facts: waiting(case), fix };
    let gain = case.gain_of(case.now / measured.factor, 0.0);
    let mut finding = said.into_finding(Kind::Work, "stock-loader", "loading", gain, String::new());
    finding.verdict.measured = Some(measured);
    Some(finding)
}

/// The measured gain from which on wellfed's loader is advised though nothing says why it gains: two short runs of the same script differ
/// by some percent.
const BY_ITSELF: f64 = 1.08;

/// What gives the loader to wellfed, in words.
pub const FED: &str = "Give the loader to wellfed.feed";
