//! From a run to a report.

use crate::{
    evidence::{Culprit, Evidence, Purpose, StageTime, mean, seconds},
    proved::Tried,
    record::Record,
    report::{Function, Loader, Report, SCHEMA, Share, Stage, Steps, Timeline},
    run_dir::RunDir,
    system::Tick,
    verdict::{self, Judgement},
};

/// Points of a curve, at most.
const POINTS: usize = 600;

/// Functions of a stage, at most.
const FUNCTIONS: usize = 5;

/// Single steps in the timeline, at most.
const STEPS: usize = 400;

/// Judges a run. Whatever is missing from it is missing from the report, with a note.
pub fn diagnose(run: &RunDir) -> Report {
    let (evidence, judgement) = worst(run);
    let mut report = Report {
        schema: SCHEMA.to_owned(),
        command: evidence.command.clone(),
        duration: evidence.duration,
        exit: evidence.exit.clone(),
        machine: evidence.machine.clone(),
        software: evidence.software.clone(),
        ranks: evidence.ranks,
        loaders: loaders(&evidence),
        subject: evidence.subject,
        steps: steps(&evidence, &judgement),
        script: script(&evidence),
        stages: stages(&evidence),
        timeline: timeline(run, &evidence),
        notes: notes(&evidence),
        ..Report::default()
    };
    report.verdict = judgement.verdict;
    report.runner_up = judgement.runner_up;
    report.others = judgement.others;
    report
}

/// Share of the script's time from which on a loop may be the one to begin with.
const MATTERS: f64 = 0.1;

/// The loop whose fix gains the script most, and what is said of it; the one that most of the time is spent on where gains are alike.
fn worst(run: &RunDir) -> (Evidence, Judgement) {
    let first = Evidence::of(run);
    let judged = verdict::judge(&first);
    let gain = |judgement: &Judgement| judgement.verdict.gain.map_or(1.0, |gain| gain.factor);
    let others: Vec<usize> = (0..first.loaders.len())
        .filter(|&i| {
            let used = &first.loaders[i];
            first.subject != Some(i) && used.steps > 1 && used.own >= MATTERS * first.script.time
        })
        .collect();
    let mut best = (first, judged);
    for other in others {
        let evidence = Evidence::about(run, Some(other));
        let judged = verdict::judge(&evidence);
        if gain(&judged) > verdict::WORTH * gain(&best.1) {
            best = (evidence, judged);
        }
    }
    best
}

/// Parts of the script's time from its first loop on.
fn script(e: &Evidence) -> Vec<Share> {
    let whole = &e.script;
    if whole.time <= 0.0 {
        return Vec::new();
    }
    let mut parts: Vec<(&str, f64)> = Vec::new();
    for used in &e.loaders {
        let name = Purpose::of(used).name();
        match parts.iter_mut().find(|part| part.0 == name) {
            Some(part) => part.1 += used.own,
            None => parts.push((name, used.own)),
        }
    }
    let loops: f64 = parts.iter().map(|part| part.1).sum();
    let beside = whole.checkpoints + whole.metrics + whole.logging;
    // What is done between loops belongs to what is done besides, as far as there is any.
    let between = (whole.time - loops).max(0.0);
    let outside = beside.min(between);
    let within = beside - outside;
    for part in &mut parts {
        part.1 = (part.1 - within * part.1 / loops.max(1e-12)).max(0.0);
    }
    let rest = [
        ("metrics", whole.metrics),
        ("checkpoints", whole.checkpoints),
        ("logging", whole.logging),
        ("between", between - outside),
    ];
    parts.extend(rest);
    let share = |(name, time): (&str, f64)| Share { name: name.to_owned(), time, share: time / whole.time };
    parts.into_iter().filter(|part| part.1 >= 0.005 * whole.time).map(share).collect()
}

fn loaders(e: &Evidence) -> Vec<Loader> {
    let total: f64 = e.loaders.iter().map(|used| used.own).sum();
    e.loaders
        .iter()
        .map(|used| {
            let loader = &used.loader;
            let mut settings = Vec::new();
            if let Some(batch_size) = loader.batch_size {
                settings.push(format!("batch_size={batch_size}"));
            }
            settings.push(format!("num_workers={}", loader.num_workers));
            if loader.num_workers > 0 {
                settings.extend(loader.prefetch_factor.map(|factor| format!("prefetch_factor={factor}")));
                settings.extend(loader.persistent_workers.then(|| "persistent_workers=True".to_owned()));
            }
            settings.extend(loader.pin_memory.then(|| "pin_memory=True".to_owned()));
            let short = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
            Loader {
                name: format!("{} {}", loader.framework, short(&loader.class)),
                dataset: short(&loader.dataset),
                settings,
                place: loader.place.clone(),
                steps: used.steps,
                epochs: used.epochs,
                share: if total > 0.0 { used.own / total } else { 0.0 },
            }
        })
        .collect()
}

fn steps(e: &Evidence, judgement: &Judgement) -> Steps {
    let time = e.steps.time();
    if time <= 0.0 {
        return Steps::default();
    }
    let whole = time + e.steps.restart();
    let ceiling = match judgement.ceiling {
        // A step on a device may go on while the loop waits. Without one, what is not waiting is the step, whatever the model makes of it.
        modelled if modelled > 0.0 && e.device_busy.is_none() => modelled.min(e.steps.compute()),
        modelled if modelled > 0.0 => modelled.min(whole),
        _ => e.steps.compute(),
    };
    let batch_size = e.batch_size();
    Steps {
        count: e.steps.steps.len() as u64,
        batch_size,
        time: whole,
        wait: e.steps.wait(),
        ceiling,
        efficiency: ceiling / whole,
        rate: batch_size / whole,
        ceiling_rate: batch_size / ceiling.max(1e-12),
        epoch_start: if e.steps.starts.is_empty() {
            e.steps.first_start
        } else {
            mean(e.steps.starts.iter().copied())
        },
        restart: e.steps.restart(),
        device_busy: e.device_busy,
        kernels: e.kernels,
    }
}

fn stages(e: &Evidence) -> Vec<Stage> {
    let engine = e.engine.as_ref().filter(|_| e.loading.batches.is_empty());
    let (workers, place) = match engine {
        Some(engine) => (f64::from(engine.workers.max(1)), "engine"),
        None if e.loading.in_workers => {
            (e.loader().map_or(1.0, |loader| loader.num_workers.max(1) as f64), "worker")
        }
        None => (1.0, "main"),
    };
    let cores = e.cores();
    // Alone, a stage is made by all workers at once, as far as there are cores for what it computes.
    let made = |stage: &StageTime| Stage {
        rate: (workers / stage.time().max(1e-12)).min(if stage.cpu > 0.0 {
            cores / stage.cpu
        } else {
            f64::INFINITY
        }),
        ..show(stage, place)
    };
    let looped = |stage: &StageTime| Stage { rate: 1.0 / stage.time().max(1e-12), ..show(stage, "main") };
    let mut stages: Vec<Stage> =
        e.stages.loading.iter().filter(|stage| stage.time() > 0.0).map(made).collect();
    if e.loading.in_workers && e.loading.send > 0.0 {
        let send = StageTime {
            name: "send",
            cpu: e.loading.send_cpu,
            blocked: (e.loading.send - e.loading.send_cpu).max(0.0),
            ..StageTime::default()
        };
        stages.push(made(&send));
    }
    let receive = mean(e.steps.steps.iter().map(|step| step.unpickle));
    if receive > 0.0 {
        stages.push(looped(&StageTime { name: "receive", cpu: receive, ..StageTime::default() }));
    }
    stages.extend(e.stages.looping.iter().filter(|stage| stage.time() > 0.0).map(looped));
    stages
}

fn show(stage: &StageTime, runs_in: &str) -> Stage {
    let function = |culprit: &Culprit| Function {
        name: culprit.frame.func.clone(),
        call: culprit.call.as_ref().unwrap_or(&culprit.frame).call.clone(),
        file: culprit.frame.file.clone(),
        line: culprit.frame.line,
        share: if stage.time() > 0.0 { (culprit.time / stage.time()).min(1.0) } else { 0.0 },
    };
    Stage {
        name: stage.name.to_owned(),
        runs_in: runs_in.to_owned(),
        time: stage.time(),
        cpu: stage.cpu,
        rate: 0.0,
        functions: stage.culprits.iter().take(FUNCTIONS).map(function).collect(),
    }
}

fn notes(e: &Evidence) -> Vec<String> {
    let mut notes = e.notes.clone();
    notes.extend(e.tried.iter().filter_map(Tried::note));
    if e.subject.is_some() && e.load.looks == 0 {
        notes.push(
            "The machine was not watched in the steady state: processor, disk and memory are not known."
                .to_owned(),
        );
    }
    if e.ranks > 1 {
        notes.push(format!("{} ranks train; this is about the first of them.", e.ranks));
    }
    if e.subject.is_some() && e.stages.loading_looks > 0 && e.stages.loading_looks < 50 {
        notes.push(format!(
            "Stages of loading rest on {} looks only; a longer run says more.",
            e.stages.loading_looks
        ));
    }
    if e.load.throttled > 0.05 {
        notes.push(format!("The control group was throttled {:.0} % of the time: its quota is less than what the script wants.", 100.0 * e.load.throttled));
    }
    notes
}

fn timeline(run: &RunDir, e: &Evidence) -> Timeline {
    let mut timeline = Timeline::default();
    let start = run.run.t0;
    let cores = e.machine.cores.max(1.0);
    let looks: Vec<(f64, &Tick)> = run
        .trace
        .ticks
        .windows(2)
        .map(|pair| (seconds(pair[1].t.saturating_sub(pair[0].t)), &pair[1]))
        .collect();
    let steps = all_steps(run, e);
    for group in looks.chunks(looks.len().div_ceil(POINTS).max(1)) {
        let length: f64 = group.iter().map(|(length, _)| length).sum();
        let Some((_, last)) = group.last() else { continue };
        if length <= 0.0 {
            continue;
        }
        let over_time =
            |of: &dyn Fn(&Tick) -> f64| group.iter().map(|(_, tick)| of(tick)).sum::<f64>() / length;
        let end = last.t;
        let begin = end.saturating_sub((length * 1e9) as u64);
        timeline.t.push(seconds(end.saturating_sub(start)));
        timeline.cpu.push(
            over_time(&|tick| tick.processes.values().map(|process| seconds(process.cpu)).sum()) / cores,
        );
        timeline.foreign_cpu.push(over_time(&|tick| seconds(tick.foreign_cpu)) / cores);
        timeline.disk.push(over_time(&|tick| tick.disk.bytes as f64) / 1e6);
        timeline.network.push(over_time(&|tick| tick.received as f64) / 1e6);
        timeline.memory.push(last.processes.values().map(|process| process.rss as f64).sum::<f64>() / 1e9);
        // Waits that overlap with this interval, and steps that began in it.
        let waited: u64 = steps.iter().map(|&(t0, t1, _)| t1.min(end).saturating_sub(t0.max(begin))).sum();
        timeline.wait.push((seconds(waited) / length).min(1.0));
        let begun = steps.iter().filter(|&&(t0, _, _)| t0 >= begin && t0 < end).count();
        timeline.rate.push(begun as f64 * e.batch_size() / length);
        if let Some(gpu) = last.gpus.first() {
            timeline.gpu.push(f64::from(gpu.busy));
        }
    }
    if timeline.gpu.len() != timeline.t.len() {
        timeline.gpu.clear();
    }
    // Single steps are only legible one by one: those in the middle of the run.
    let from = (steps.len().saturating_sub(STEPS)) / 2;
    timeline.steps = steps[from..]
        .iter()
        .take(STEPS)
        .map(|&(t0, t1, next)| {
            [seconds(t0.saturating_sub(start)), seconds(t1 - t0), seconds(next.saturating_sub(t1))]
        })
        .collect();
    timeline
}

/// Steps of the subject: begin and end of the wait, begin of the next one.
fn all_steps(run: &RunDir, e: &Evidence) -> Vec<(u64, u64, u64)> {
    let Some(loader) = e.loader() else { return Vec::new() };
    let Some(main) = run.processes.iter().find(|process| {
        process.records.iter().any(|record| matches!(record, Record::Loader(seen) if seen == loader))
    }) else {
        return Vec::new();
    };
    let mut steps = Vec::new();
    for record in &main.records {
        if let Record::Steps(list) = record
            && list.loader == loader.loader
        {
            let pairs = list.t0.iter().zip(&list.t1);
            steps.extend((list.first..).zip(pairs).map(|(n, (&t0, &t1))| (t0, t1.max(t0), list.iter, n)));
        }
    }
    steps.sort_unstable();
    let computed = |i: usize| {
        let (_, t1, iter, number) = steps[i];
        match steps.get(i + 1) {
            // A pause between epochs is no computation, and what was only counted in between is no step.
            Some(&(next, _, of, then)) if of == iter && then == number + 1 => next.max(t1),
            _ => t1,
        }
    };
    (0..steps.len()).map(|i| (steps[i].0, steps[i].1, computed(i))).collect()
}
