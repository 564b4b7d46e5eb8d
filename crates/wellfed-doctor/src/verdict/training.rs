//! The loop itself: copies to the device, synchronization and logging, steps too small for the device, and loops that are as fast as
//! they can be.

use super::{Case, Finding, Kind, Said, code, costs, fact, garbage, launch, loading, ms, percent};
use crate::{
    evidence::{self, Culprit, StageTime},
    model::Cost,
    record::Frame,
    report::{Fact, Fix, Verdict},
};

/// Share of the time that a loop waits from which on it is not called healthy.
pub(super) const UNEXPLAINED: f64 = 0.2;

pub(super) fn find(case: &Case) -> Vec<Finding> {
    let sync = sync(case);
    let launch = repeated(case).or_else(|| match &case.e.kernels {
        Some(kernels) => launch::find(case, kernels, sync.as_ref()),
        None => self::launch(case),
    });
    // Copies that nothing waits for may hold up the device all the same.
    let copies = || launch::copies(case, case.e.kernels.as_ref()?);
    [copy(case).or_else(copies), sync, launch, saving(case), python(case)].into_iter().flatten().collect()
}

/// The pipeline with `time` less in every step.
fn without(case: &Case, time: f64) -> crate::model::Pipeline {
    let step = crate::evidence::mean(case.p.step.iter().map(Cost::alone));
    without_share(case, time / step.max(1e-12))
}

/// The pipeline with so much less in every step of what is computed, and of what is waited for. A thread that waits for a core that
/// workers have is not held up by what it wants to do there.
fn without_parts(case: &Case, cpu: f64, blocked: f64) -> crate::model::Pipeline {
    let steps = &case.e.steps.steps;
    let computed = crate::evidence::mean(steps.iter().map(|step| step.thread_cpu));
    let waited = crate::evidence::mean(steps.iter().map(|step| step.compute - step.thread_cpu));
    let left = |part: f64, whole: f64| 1.0 - (part / whole.max(1e-12)).clamp(0.0, 1.0);
    // Stacks may find more of one of both than clocks do.
    let waits = left(blocked + (cpu - computed).max(0.0), waited);
    let runs = left(cpu, computed);
    case.p.with_step(|cost| Cost { cpu: cost.cpu * runs, blocked: cost.blocked * waits, ..*cost })
}

/// The pipeline without such a share of what each step computes.
pub(super) fn without_share(case: &Case, share: f64) -> crate::model::Pipeline {
    let share = share.min(1.0);
    case.p.with_step(|cost| Cost {
        blocked: cost.blocked * (1.0 - share),
        cpu: cost.cpu * (1.0 - share),
        ..*cost
    })
}

fn lines(stage: &StageTime) -> Vec<Fact> {
    costs::functions(stage)
}

fn copy(case: &Case) -> Option<Finding> {
    let stage = case.e.stages.get("copy")?;
    // A copy that blocks waits for what the device was told before, too. In the first step of all, or after a pause, the device has
    // nothing to do: what takes longer later is its work, which stays.
    let compute = case.e.steps.compute();
    let firsts = &case.e.steps.first_steps;
    let first = firsts.iter().copied().fold(f64::INFINITY, f64::min);
    let rest = compute - stage.time();
    let time = if firsts.is_empty() || first >= compute {
        stage.time()
    } else {
        stage.time().min((first - rest).max(0.0))
    };
    // Nor does what kernels take end with it, where that is known.
    let time = case.e.kernels.map_or(time, |kernels| time.min((compute - kernels.busy).max(0.0)));
    let changed = without(case, time);
    let line = stage.culprits.first()?;
    let line = line.call.as_ref().unwrap_or(&line.frame);
    let loader = case.e.loader()?;
    let pageable = !loader.pin_memory;
    let mut facts = vec![fact(
        format!(
            "{} of a step of {} go into copying the batch to the device, while nothing else happens.",
            ms(time),
            ms(case.e.steps.time())
        ),
        time,
        "s",
        "stacks",
    )];
    facts.extend(lines(stage));
    if let Some(batch) = &case.e.batch {
        facts.push(fact(
            format!(
                "A batch has {:.1} MB: {:.2} GB/s. {}",
                batch.bytes as f64 / 1e6,
                batch.bytes as f64 / time.max(1e-12) / 1e9,
                if pageable {
                    "Its memory is pageable, so the copy blocks."
                } else {
                    "Its memory is pinned, but the copy is waited for."
                }
            ),
            batch.bytes as f64,
            "bytes",
            "loader",
        ));
    }
    let asynchronous =
        format!("# and where batches are copied ({}): non_blocking=True", code::where_is(line));
    let copied = code::known(case.e, &["async"], &[stage]);
    let mut more = Vec::new();
    let (change, place) = if pageable {
        let (change, place) = code::loader_with(case.e, &[("pin_memory", "True".to_owned())]);
        let both = copied.filter(|edit| place.as_ref().is_some_and(|place| code::beside(edit, place)));
        more.extend(both.into_iter().flat_map(|edit| edit.hunks.clone()));
        (if more.is_empty() { format!("{change}\n{asynchronous}") } else { change }, place)
    } else {
        (asynchronous, Some(code::place_of(line)))
    };
    let title = "Copy the next batch while this one is computed";
    let why = "A copy from pinned memory that is not waited for runs beside the computation.";
    let fix = Fix { title: title.to_owned(), change, place, why: why.to_owned(), apply: None };
    let said = format!(
        "Copying batches to the device blocks the loop {} of the time",
        percent(time / case.e.steps.time())
    );
    let said = Said { title: said, facts, fix };
    let mut finding = case.finding(Kind::Work, "h2d-copy", "loop", said, &changed, 0.08);
    finding.verdict.more = more;
    Some(match copied {
        Some(edit) if !pageable => finding.edited(edit, title.to_owned(), why),
        _ => finding,
    })
}

fn sync(case: &Case) -> Option<Finding> {
    // Checkpoints, and functions that loop in Python, are causes of their own.
    let apart = |name: &str| {
        let stage = case.e.stages.get(name).cloned().unwrap_or_default();
        without_culprits(stage, |culprit| {
            saves(culprit) || garbage::collects(culprit) || loops_in_python(case, culprit)
        })
    };
    let (sync, log) = (&apart("sync"), &apart("log"));
    let step = case.e.steps.compute();
    // The device has to do its work: what is waited for in a synchronization is hidden behind the rest at most.
    let rest = (step - sync.time() - log.time()).max(0.0);
    // While the loop waits for data, the device works, too.
    let device = case.e.kernels.map_or(sync.blocked, |kernels| kernels.busy) - case.e.steps.wait();
    let left = rest.max(device);
    let spared = (step - left).max(0.0);
    let worst = if sync.time() > log.time() { sync } else { log };
    let line = worst.culprits.first()?;
    // The line of the loop, rather than what happens within the function that it calls.
    let line = line.call.as_ref().filter(|call| call.func != "<module>").unwrap_or(&line.frame);
    let part = spared / (sync.time() + log.time()).max(1e-12);
    let changed = without_parts(case, part * (sync.cpu + log.cpu), part * (sync.blocked + log.blocked));
    let mut facts = vec![fact(
        format!(
            "Of {} a step, {} wait for the device ({}), {} print and log.",
            ms(step),
            ms(sync.time()),
            percent(sync.time() / step.max(1e-12)),
            ms(log.time())
        ),
        sync.time() + log.time(),
        "s",
        "stacks",
    )];
    facts.extend(lines(sync));
    facts.extend(lines(log));
    let fix = Fix {
        title: "Look at the loss and log every 50 steps, not in each".to_owned(),
        change: format!("# every 50 steps, not in each: {}", line.call),
        place: Some(code::place_of(line)),
        why: "Reading a value from the device waits until all work before it is done; then the device waits for the loop to launch more.".to_owned(),
        apply: None,
    };
    let title = format!(
        "Synchronization and logging in the loop take {} of a step",
        percent((sync.time() + log.time()) / step.max(1e-12))
    );
    let finding = case.finding(Kind::Work, "sync-logging", "loop", Said { title, facts, fix }, &changed, 0.1);
    Some(match code::known(case.e, &["every"], &[worst]) {
        Some(edit) => finding.edited(
            edit,
            "Log every 50 steps, not in each".to_owned(),
            "What is logged has to be there first: reading a value from the device waits until all work before it is done.",
        ),
        None => finding,
    })
}

/// The stage without some of what it consists of.
fn without_culprits(mut stage: StageTime, gone: impl Fn(&Culprit) -> bool) -> StageTime {
    let time: f64 = stage.culprits.iter().filter(|culprit| gone(culprit)).map(|culprit| culprit.time).sum();
    let left = 1.0 - (time / stage.time().max(1e-12)).min(1.0);
    stage.culprits.retain(|culprit| !gone(culprit));
    (stage.cpu, stage.blocked) = (stage.cpu * left, stage.blocked * left);
    stage
}

pub(super) fn frames(culprit: &Culprit) -> impl Iterator<Item = &Frame> {
    [Some(&culprit.frame), culprit.call.as_ref()].into_iter().flatten()
}

fn saves(culprit: &Culprit) -> bool {
    culprit.saves || frames(culprit).any(evidence::saves)
}

fn loops_in_python(case: &Case, culprit: &Culprit) -> bool {
    // What sleeps or waits is no Python.
    let waits =
        ["sleep(", ".wait(", ".join(", ".acquire("].iter().any(|word| culprit.frame.call.contains(word));
    !waits && frames(culprit).any(|frame| evidence::loops(frame, &case.e.edits))
}

/// Seconds a step of some of the loop's culprits, and the one that takes most.
pub(super) fn part<'a>(case: &'a Case, of: impl Fn(&Culprit) -> bool) -> Option<(f64, &'a Culprit)> {
    part_of(case, |culprit| if of(culprit) { culprit.time } else { 0.0 })
}

/// The same of such seconds of each culprit.
fn part_of<'a>(case: &'a Case, seconds: impl Fn(&Culprit) -> f64) -> Option<(f64, &'a Culprit)> {
    let all = || case.e.stages.looping.iter().flat_map(|stage| &stage.culprits).map(|it| (seconds(it), it));
    let (most, worst) = all().max_by(|a, b| a.0.total_cmp(&b.0))?;
    (most > 0.0).then(|| (all().map(|(time, _)| time).sum(), worst))
}

/// How many times as seldom a checkpoint is advised to be written.
const SELDOM: f64 = 10.0;

fn saving(case: &Case) -> Option<Finding> {
    let (time, worst) = part(case, saves)?;
    let line = worst.call.as_ref().filter(|call| !crate::stage::library(call)).unwrap_or(&worst.frame);
    let changed = without_share(case, time * (1.0 - 1.0 / SELDOM) / case.e.steps.compute().max(1e-12));
    let share = time / case.e.steps.time().max(1e-12);
    let facts = vec![fact(
        format!(
            "Of a step of {}, {} go into writing checkpoints, as a mean over all steps.",
            ms(case.e.steps.time()),
            ms(time)
        ),
        time,
        "s",
        "stacks",
    )];
    let fix = Fix {
        title: format!("Save {SELDOM:.0} times as seldom, or a copy of the weights in a thread"),
        change: format!("# less often: {}", line.call),
        place: Some(code::place_of(line)),
        why: "The loop stands still while a checkpoint is written; what a crash costs then is the time since the last one.".to_owned(),
        apply: None,
    };
    let title =
        format!("Saving checkpoints takes {} of the loop's time ({})", percent(share), code::where_is(line));
    Some(case.finding(Kind::Work, "checkpoint", "loop", Said { title, facts, fix }, &changed, 0.08))
}

fn python(case: &Case) -> Option<Finding> {
    let loops =
        |culprit: &Culprit| loops_in_python(case, culprit) && !saves(culprit) && !garbage::collects(culprit);
    // What waits within a function is no loop in Python.
    let (time, worst) = part_of(case, |culprit| if loops(culprit) { culprit.cpu } else { 0.0 })?;
    let name = costs::short(&worst.frame.func);
    let line = worst.call.as_ref().filter(|call| !crate::stage::library(call)).unwrap_or(&worst.frame);
    let changed = without_share(case, time / case.e.steps.compute().max(1e-12));
    let share = time / case.e.steps.time().max(1e-12);
    let facts = vec![fact(
        format!("{name} takes {} of a step of {}, and loops in Python.", ms(time), ms(case.e.steps.time())),
        time,
        "s",
        "stacks",
    )];
    let fix = Fix {
        title: format!("Call {name} seldom, or have it work on whole tensors"),
        change: format!("# every 50 steps, or by operations on whole tensors: {}", line.call),
        place: Some(code::place_of(line)),
        why: "The loop waits for it after each step; Python takes some 50 ns for each operation on a number."
            .to_owned(),
        apply: None,
    };
    let title =
        format!("{name} takes {} of the loop's time ({})", percent(share), code::where_is(&worst.frame));
    Some(case.finding(Kind::Work, "python-step", "loop", Said { title, facts, fix }, &changed, 0.08))
}

/// Calls of a model in a step from which on its samples are given to it one by one, or nearly so, and as a share of the samples.
const REPEATED: (f64, f64) = (4.0, 0.5);

/// What is left of a model's calls once there is one for the whole batch: launches are shared, and matrix products are larger.
const AT_ONCE: f64 = 0.15;

/// A model that is called for each sample.
fn repeated(case: &Case) -> Option<Finding> {
    let times = f64::from(case.e.model.as_ref()?.repeats);
    let batch = case.e.batch_size();
    if times < REPEATED.0 || times < REPEATED.1 * batch {
        return None;
    }
    let stages = || ["forward", "backward"].into_iter().filter_map(|name| case.e.stages.get(name));
    let time: f64 = stages().map(StageTime::time).sum();
    let share = time / case.e.steps.compute().max(1e-12);
    let worst = stages().next()?.culprits.first()?;
    let line = worst.call.as_ref().unwrap_or(&worst.frame);
    let changed = without_share(case, (1.0 - AT_ONCE.max(1.0 / times)) * share);
    let facts = vec![fact(
        format!(
            "A step calls the model {times:.0} times for {batch:.0} samples; that and its backward passes take {} of {}.",
            ms(time),
            ms(case.e.steps.compute())
        ),
        times,
        "calls",
        "hooks",
    )];
    let fix = Fix {
        title: "Call the model once for the whole batch".to_owned(),
        change: format!("# once for the batch, not for each of its samples: {}", line.call),
        place: Some(code::place_of(line)),
        why: "Each call launches all of the model's operations, however few samples it gets.".to_owned(),
        apply: None,
    };
    let title = format!(
        "The model is called {times:.0} times a step, for {batch:.0} samples: {} of the step",
        percent(share.min(1.0))
    );
    Some(case.finding(Kind::Work, "launch-bound", "loop", Said { title, facts, fix }, &changed, 0.25))
}

/// Host time to launch the work of a module: its forward and backward pass and its optimizer step. Measured with modules too small to
/// compute anything (`benches/doctor/launch.py`): 16 us each of linear layers, norms and activations with SGD, to 88 us of transformer
/// layers with `AdamW`; this is the middle.
const LAUNCH: f64 = 45e-6;

/// One standard deviation of it, as a factor: 80 % of a normal distribution of logarithms lie between half and twice of it.
const LAUNCH_VARIES: f64 = 1.7;

/// How many times as large a batch is advised: what is launched is then paid once for so many.
pub(super) const LARGER: f64 = 8.0;

fn launch(case: &Case) -> Option<Finding> {
    let model = case.e.model.as_ref()?;
    let calls = f64::from(model.module_calls);
    let step = case.e.steps.compute();
    let batch = case.e.batch_size();
    let thread = crate::evidence::mean(case.e.steps.steps.iter().map(|step| step.thread_cpu));
    let device_idle = case.e.device_busy.is_none_or(|busy| busy < 0.6);
    // Waiting for a core is no waiting for a device.
    let blocked = crate::evidence::mean(case.p.step.iter().map(|cost| cost.blocked));
    if calls < 4.0 || !device_idle || thread < 0.7 * (thread + blocked) {
        return None;
    }
    let compute: f64 = ["forward", "backward", "optimizer"].iter().map(|name| case.e.stages.time(name)).sum();
    let per_module = compute / calls;
    if compute < 0.5 * step {
        return None;
    }
    let rest = (case.e.steps.wait()).max(0.0);
    let launching = |launch: f64| (launch / per_module).min(0.985);
    let time = |launch: f64| {
        let fixed = launching(launch);
        let time = step * (fixed / LARGER + 1.0 - fixed);
        case.now * (time + rest) / (step + rest)
    };
    let unsure = (time(LAUNCH / LAUNCH_VARIES) / time(LAUNCH)).ln().min(0.2);
    let gain = case.gain_of(time(LAUNCH), unsure);
    let facts = vec![
        fact(
            format!(
                "A step takes {} for {batch:.0} samples, and the processor is busy with it {} of that.",
                ms(step),
                percent(thread / step)
            ),
            step,
            "s",
            "loader",
        ),
        fact(
            format!(
                "It calls {calls:.0} modules, {} each with backward pass and update; launching one takes some {}, however little it computes.",
                ms(per_module),
                ms(LAUNCH)
            ),
            per_module,
            "s",
            "stacks",
        ),
    ];
    let (change, place) = code::loader_with(case.e, &[("batch_size", format!("{:.0}", batch * LARGER))]);
    let fix = Fix {
        title: format!("A larger batch ({:.0} samples), torch.compile or CUDA graphs", batch * LARGER),
        change,
        place,
        why: "Each operation costs its launch, whatever the batch; with more samples a step the launches are shared. The gain is in samples a second.".to_owned(),
        apply: None,
    };
    let title = format!(
        "Steps are too small: launching {calls:.0} modules takes {} of the {} for {batch:.0} samples",
        percent(launching(LAUNCH)),
        ms(step)
    );
    let said = Said { title, facts, fix };
    Some(said.into_finding(Kind::Work, "launch-bound", "loop", gain, String::new()))
}

/// The loop waits, and nothing that is known here would gain something surely. `guessed`: something would gain, but nobody can say
/// how much.
pub(super) fn unexplained(case: &Case, guessed: bool) -> Option<Verdict> {
    let (time, wait) = (case.e.steps.time(), case.e.steps.wait());
    if wait < UNEXPLAINED * time && !(guessed && case.ideal <= (1.0 - UNEXPLAINED) * case.now) {
        return None;
    }
    let mut facts = loading::waiting(case);
    let mut stages: Vec<_> = case.e.stages.loading.iter().collect();
    stages.sort_by(|a, b| b.time().total_cmp(&a.time()));
    facts.extend(stages.into_iter().take(3).map(|stage| {
        let text =
            format!("{} takes {} a batch, {} of it CPU time.", stage.name, ms(stage.time()), ms(stage.cpu));
        fact(text, stage.time(), "s", "loader")
    }));
    let fix =
        super::longer(case.e, "As far as these steps tell, each cause that was considered may gain nothing; more steps may tell causes apart that look alike so far.".to_owned());
    Some(Verdict {
        id: "unknown".to_owned(),
        family: "unknown".to_owned(),
        title: format!("The loop waits {} of the time, and no single cause is certain", percent(wait / time)),
        evidence: facts,
        fix: Some(fix),
        ..Verdict::default()
    })
}

/// There is nothing to fix about the input.
pub(super) fn well_fed(case: &Case) -> Verdict {
    let e = case.e;
    let (time, wait) = (e.steps.time(), e.steps.wait());
    let computing: f64 =
        ["forward", "backward", "optimizer", "compute", "copy"].iter().map(|name| e.stages.time(name)).sum();
    let bound = e.device_busy.unwrap_or_default() > 0.8 || computing > 0.8 * time;
    let mut facts = vec![fact(
        format!(
            "Of {} a step, the loop waits {} for data ({}).",
            ms(time),
            ms(wait),
            percent(wait / time.max(1e-12))
        ),
        wait / time.max(1e-12),
        "share",
        "loader",
    )];
    let kernels = e.kernels.as_ref();
    if let Some(kernels) = kernels {
        facts.push(launch::kernels_of(case, kernels));
    } else if let Some(busy) = e.device_busy {
        facts.push(fact(format!("The device is busy {} of the time.", percent(busy)), busy, "share", "nvml"));
    }
    if let Some(memory) = e.load.gpu_memory {
        facts.push(fact(
            format!("The device's memory is {} full.", percent(memory)),
            memory,
            "share",
            "nvml",
        ));
    }
    let most = e.stages.looping.iter().max_by(|a, b| a.time().total_cmp(&b.time()));
    if let Some(stage) = most {
        facts.extend(costs::functions(stage));
    }
    let device = e.model.as_ref().is_some_and(|model| model.device.starts_with("cuda"));
    let (id, family, title) = if wait >= UNEXPLAINED * time {
        let waits = percent(wait / time.max(1e-12));
        let title = format!("The loop waits {waits} of the time, and nothing that is known would gain 5 %");
        ("healthy", "healthy", title)
    } else if bound {
        (
            "compute-bound",
            "compute",
            format!(
                "Nothing to fix about the data: the loop waits {} of the time, the step itself is the limit",
                percent(wait / time.max(1e-12))
            ),
        )
    } else {
        (
            "healthy",
            "healthy",
            format!(
                "Nothing to fix about the data: the loop waits {} of the time",
                percent(wait / time.max(1e-12))
            ),
        )
    };
    let autocast = e.model.as_ref().is_some_and(|model| model.autocast || model.dtype.contains("16"));
    // Faster kernels are no help to a device that has few of them to run.
    let idle = kernels.is_some_and(|kernels| kernels.share(time) < launch::BUSY);
    let fix = (bound && device && !autocast && !idle).then(|| Fix {
        title: "If it should be faster: mixed precision, and a larger batch if memory allows".to_owned(),
        change: "# with torch.autocast(\"cuda\", dtype=torch.bfloat16): around the forward pass and the loss"
            .to_owned(),
        place: None,
        why: "Tensor cores do several times the work in 16 bits; the input has room for it.".to_owned(),
        apply: None,
    });
    Verdict {
        id: id.to_owned(),
        family: family.to_owned(),
        title,
        evidence: facts,
        fix,
        ..Verdict::default()
    }
}

/// The device's memory leaves room for a larger batch, or none for what is to come. Neither is a bottleneck by itself, so no gain is named.
pub(super) fn device_memory(case: &Case) -> Option<Verdict> {
    let used = case.e.load.gpu_memory?;
    let device = case.e.machine.gpus.first()?;
    let batch = case.e.batch_size();
    let told = fact(
        format!(
            "{:.1} of {:.1} GB of the device's memory are in use.",
            used * device.memory as f64 / 1e9,
            device.memory as f64 / 1e9
        ),
        used,
        "share",
        "nvml",
    );
    let (id, title, fix) = if used > 0.92 {
        let (change, place) =
            code::loader_with(case.e, &[("batch_size", format!("{:.0}", (batch / 2.0).max(1.0)))]);
        let fix = Fix {
            title: "Smaller batches, accumulated".to_owned(),
            change: format!("{change}\n# and an optimizer step after every second batch"),
            place,
            why: "One longer sequence or larger image ends the run; two half batches give the same gradient with half the activations.".to_owned(),
            apply: None,
        };
        ("gpu-memory-full", format!("The device's memory is {} full", percent(used)), fix)
    } else if used < 0.4 {
        let times = (0.8 / used.max(0.05)).min(8.0).floor().max(2.0);
        let (change, place) = code::loader_with(case.e, &[("batch_size", format!("{:.0}", batch * times))]);
        let fix = Fix {
            title: format!("There is room for batches about {times:.0} times as large"),
            change,
            place,
            why: "Larger batches use the device better; the learning rate may have to follow.".to_owned(),
            apply: None,
        };
        ("gpu-memory-empty", format!("Only {} of the device's memory are used", percent(used)), fix)
    } else {
        return None;
    };
    Some(Verdict {
        id: id.to_owned(),
        family: "compute".to_owned(),
        title,
        evidence: vec![told],
        fix: Some(fix),
        ..Verdict::default()
    })
}
