//! wellfed's own engine: it decodes and transforms on all cores already, so what is left is less work, or faster storage.

use super::{Case, Finding, Kind, Said, fact, loading, ms, percent, remote};
use crate::{
    evidence::{Engine, StageTime},
    model::{Cost, Pipeline},
    report::{Fact, Fix},
};

/// What decoding costs from kept coefficients, against from files: an estimate. Whole samples took 0.38 of the time
/// (benches/runs/2026-11-21-wellfed-jpeg), and decoding is some four fifths of them.
const KEPT: f64 = 0.25;

pub(super) fn find(case: &Case) -> Vec<Finding> {
    let Some(engine) = &case.e.engine else { return Vec::new() };
    if !case.e.loading.batches.is_empty() {
        return Vec::new();
    }
    // Threads that wait for a store need no more threads, and no less work.
    if let Some(waits) = remote::find(case) {
        return vec![waits];
    }
    [threads(case, engine), storage(case, engine), work(case, engine)].into_iter().flatten().collect()
}

fn facts(case: &Case, engine: &Engine) -> Vec<Fact> {
    let mut facts = loading::waiting(case);
    let stages: Vec<String> =
        engine.stages.iter().map(|(name, time)| format!("{name} {}", ms(*time))).collect();
    facts.push(fact(
        format!(
            "The engine's {} threads take {} for a batch: {}.",
            engine.workers,
            ms(engine.work()),
            stages.join(", ")
        ),
        engine.work(),
        "s",
        "loader",
    ));
    facts.push(loading::busy(case));
    facts
}

fn waits(case: &Case) -> String {
    percent(case.e.steps.wait() / case.e.steps.time())
}

/// Fewer threads than cores, by an option that says so: left to itself the engine takes what there is.
fn threads(case: &Case, engine: &Engine) -> Option<Finding> {
    let cores = case.p.cores.floor().max(1.0) as usize;
    if case.p.workers >= cores {
        return None;
    }
    let changed = Pipeline { workers: cores, ..case.p.clone() };
    let fix = Fix {
        title: "Let the engine have all cores".to_owned(),
        change: "# the data set .with_options(num_workers=\"auto\")".to_owned(),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        why: "Its governor adds threads while the loop waits and cores idle.".to_owned(),
        apply: None,
    };
    let title = format!(
        "The engine has {} of {cores} cores' worth of threads: the loop waits {} of the time",
        case.p.workers,
        waits(case)
    );
    Some(case.finding(
        Kind::Setting,
        "serial-loading",
        "loading",
        Said { title, facts: facts(case, engine), fix },
        &changed,
        0.08,
    ))
}

fn storage(case: &Case, engine: &Engine) -> Option<Finding> {
    let read = case.e.stages.get("read")?;
    if read.blocked < 0.5 * engine.work() {
        return None;
    }
    let changed = case.p.with_make(|cost| Cost { blocked: 0.0, ..*cost });
    let mut facts = facts(case, engine);
    facts.push(fact(
        format!(
            "Of that, {} are waiting for reads; {:.1} MB/s arrive.",
            ms(read.blocked),
            case.e.load.rchar / 1e6
        ),
        read.blocked,
        "s",
        "loader",
    ));
    let fix = Fix {
        title: "Read from a disk that answers sooner, or more at once".to_owned(),
        change:
            "# the data set .with_options(read_ahead=16), or a local copy, or shards that are read in a row"
                .to_owned(),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        why: "Readers wait for storage, not for cores.".to_owned(),
        apply: None,
    };
    let title = format!("The engine's reads are waited for: the loop waits {} of the time", waits(case));
    Some(case.finding(Kind::Work, "storage-latency", "storage", Said { title, facts, fix }, &changed, 0.15))
}

/// The stage that takes most of the engine's processor time.
fn work(case: &Case, engine: &Engine) -> Option<Finding> {
    let stage = case.e.stages.loading.iter().max_by(|a, b| a.cpu.total_cmp(&b.cpu))?;
    let (id, left, unsure, title, change, why) = remedy(stage)?;
    let factor = 1.0 - (1.0 - left) * (stage.cpu / engine.work().max(1e-12)).min(1.0);
    let changed = case.p.with_make(|cost| Cost { cpu: cost.cpu * factor, ..*cost });
    let fix = Fix {
        title: title.to_owned(),
        change: change.to_owned(),
        place: case.e.loader().and_then(|loader| loader.place.clone()),
        why: why.to_owned(),
        apply: None,
    };
    let title = format!(
        "The engine is at the limit of the cores, mostly with {}: the loop waits {} of the time",
        if stage.name == "decode" { "decoding" } else { "transforms" },
        waits(case)
    );
    Some(case.finding(
        Kind::Work,
        id,
        "cpu",
        Said { title, facts: facts(case, engine), fix },
        &changed,
        unsure,
    ))
}

type Remedy = (&'static str, f64, f64, &'static str, &'static str, &'static str);

/// Verdict, what is left of the stage, how unsure that is, and the words of the fix.
fn remedy(stage: &StageTime) -> Option<Remedy> {
    match stage.name {
        "decode" => Some((
            "decode",
            KEPT,
            0.2,
            "Keep JPEGs half decoded from epoch to epoch",
            "# the data set .cache(decoded=\"coefficients\"), or decode=\"fast\", or images stored smaller",
            "From the second epoch on, nothing of a JPEG is decoded but the part a crop looks at. The pixels stay the same.",
        )),
        "augment" => Some((
            "augment",
            0.1,
            0.2,
            "Fewer or cheaper transforms, or a smaller output",
            "# what each costs: print(ds.explain(analyze=True))",
            "The engine runs them on all cores already; only less work makes more batches.",
        )),
        _ => None,
    }
}
