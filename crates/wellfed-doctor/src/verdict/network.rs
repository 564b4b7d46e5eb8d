//! Samples that come over the network, in the workers of a script's loader: each answer is waited for, or bytes a second are the limit, or
//! the server asks to slow down.
//!
//! How long one request takes says nothing of that, so stacks decide: what grows with bytes is waited for in the body of an answer,
//! what does not before its beginning, and who was refused sleeps before it asks again. Where they do not show it (clients that
//! wait in a thread of their own), whether waits grow with how many read at once does; else nothing is claimed.

use serde_json::json;

use super::{Case, Finding, Kind, Said, code, fact, loading, ms, percent, storage};
use crate::{
    evidence::{StageTime, mean},
    model::{Cost, Pipeline},
    report::{Fact, Fix},
};

/// Share of the network's time from which on it goes into network rather than into making samples.
const MATTERS: f64 = 0.3;

/// Share of the time in which pauses between tries are the cause, and not a rare failure.
const PAUSES: f64 = 0.2;

/// Share of what stacks show that settles which part of an answer is waited for.
const MOSTLY: f64 = 0.6;

/// Share of the wait that a line through the batches gives to company, from which on company is what it grows with, and below which it
/// does not.
const BY_COMPANY: (f64, f64) = (0.5, 0.3);

/// What limits the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Latency,
    Bandwidth,
    Throttled,
    Unknown,
}

/// The stage, if it takes so much of the time that it matters.
fn stage<'a>(case: &Case<'a>) -> Option<&'a StageTime> {
    let make = case.e.loading.mean(|batch| batch.wall);
    case.e.stages.get("network").filter(|stage| stage.time() >= MATTERS * make)
}

/// Whether a server refuses requests: then samples that take long are those that it refused.
pub(super) fn refused(case: &Case) -> bool {
    stage(case).is_some_and(|stage| stage.waits.pause >= PAUSES)
}

pub(super) fn find(case: &Case) -> Option<Finding> {
    let stage = stage(case)?;
    Some(match limit(case, stage) {
        Limit::Latency => latency(case, stage),
        Limit::Bandwidth => bandwidth(case, stage),
        Limit::Throttled => throttled(case, stage),
        Limit::Unknown => unknown(case, stage),
    })
}

fn limit(case: &Case, stage: &StageTime) -> Limit {
    let waits = &stage.waits;
    if refused(case) {
        return Limit::Throttled;
    }
    let company = storage::explained(&storage::company(case));
    let (before, shown) = (waits.connection + waits.answer, waits.connection + waits.answer + waits.body);
    if shown >= 0.5 * (1.0 - waits.pause) {
        return match company {
            // A server that answers later the more is asked of it at once.
            Some(share) if before >= MOSTLY * shown && share < MOSTLY => Limit::Latency,
            None if before >= MOSTLY * shown => Limit::Latency,
            // Bytes that come as slowly to one alone: each connection has a limit of its own.
            Some(share) if waits.body >= MOSTLY * shown && share < 0.1 => Limit::Latency,
            _ if waits.body >= MOSTLY * shown => Limit::Bandwidth,
            _ => Limit::Unknown,
        };
    }
    match company {
        Some(share) if share > BY_COMPANY.0 => Limit::Bandwidth,
        Some(share) if share < BY_COMPANY.1 => Limit::Latency,
        _ => Limit::Unknown,
    }
}

/// The pipeline whose samples lie near.
fn near(case: &Case, stage: &StageTime) -> Pipeline {
    let all = case.e.loading.mean(crate::evidence::Batch::blocked);
    let cpu = case.e.loading.mean(|batch| batch.cpu);
    case.p.with_make(|cost| Cost {
        blocked: cost.blocked * (1.0 - (stage.blocked / all.max(1e-12)).min(1.0)),
        cpu: cost.cpu * (1.0 - (stage.cpu / cpu.max(1e-12)).min(1.0) * 0.9),
        ..*cost
    })
}

/// Facts that all of these have.
fn facts(case: &Case, stage: &StageTime) -> Vec<Fact> {
    let make = case.e.loading.mean(|batch| batch.wall);
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!("{} of the time of making a batch goes into the network.", percent(stage.time() / make)),
        stage.time(),
        "s",
        "stacks",
    ));
    facts.push(fact(
        format!("{:.1} MB/s are received.", case.e.load.received / 1e6),
        case.e.load.received,
        "bytes/s",
        "/proc",
    ));
    let waits = stage.waits;
    let parts = [
        (waits.connection, "for connections"),
        (waits.answer, "for the beginning of answers"),
        (waits.body, "for the rest of them"),
        (waits.pause, "for another try"),
    ];
    let told: Vec<String> = parts
        .iter()
        .filter(|(share, _)| *share >= 0.01)
        .map(|(share, what)| format!("{} {what}", percent(*share)))
        .collect();
    if !told.is_empty() {
        facts.push(fact(
            format!("Of that, requests wait {}.", told.join(", ")),
            waits.connection + waits.answer,
            "share",
            "stacks",
        ));
    }
    facts.extend(super::costs::functions(stage));
    facts
}

fn waits(case: &Case) -> String {
    percent(case.e.steps.wait() / case.e.steps.time())
}

/// Seconds a sample waits for the network.
fn each(case: &Case, stage: &StageTime) -> f64 {
    stage.time() / case.e.loading.samples_per_batch().max(1.0)
}

fn place(stage: &StageTime) -> Option<crate::record::Place> {
    let culprit = stage.culprits.first()?;
    Some(code::place_of(culprit.call.as_ref().unwrap_or(&culprit.frame)))
}

/// Data in a form that wellfed reads over the same URL, if the data set's class tells it: what it is, and how it is opened.
fn known_form(case: &Case) -> Option<&'static str> {
    let dataset = &case.e.loader()?.dataset;
    let forms = [
        ("webdataset.", "wellfed.webdataset(urls, fields=[…])"),
        ("torchdata.datapipes", "wellfed.webdataset(urls, fields=[…])"),
        ("streaming.", "wellfed.mds(url)"),
        ("torchvision.datasets.folder.", "wellfed.image_folder(url)"),
        ("datasets.", "wellfed.parquet(urls)"),
    ];
    forms.iter().find(|(class, _)| dataset.starts_with(class)).map(|&(_, opened)| opened)
}

fn local(title: &str, why: String, stage: &StageTime) -> Fix {
    Fix {
        title: title.to_owned(),
        change: "# download once, or keep a local cache of what was read".to_owned(),
        place: place(stage),
        why,
        apply: None,
    }
}

/// Requests wait for answers, whatever their size: more of them at once.
fn latency(case: &Case, stage: &StageTime) -> Finding {
    let title = format!(
        "Each request waits for its answer ({} a sample), too few are made at once, and the loop waits {} of the time",
        ms(each(case, stage)),
        waits(case)
    );
    let mut facts = facts(case, stage);
    let at_once = mean(case.e.loading.batches.iter().map(|batch| batch.wall)) / case.now.max(1e-12)
        * (stage.time() / case.e.loading.mean(|batch| batch.wall)).min(1.0);
    facts.push(fact(
        format!("{at_once:.1} requests are under way at once, as each worker makes one after the other."),
        at_once,
        "requests",
        "workers",
    ));
    let most = loading::most_workers(&case.p).max(case.p.workers);
    let (workers, _) = loading::with_workers(&case.p, 1).best_workers(most);
    let more = loading::with_workers(&case.p, workers);
    let engine = known_form(case).map_or_else(String::new, |opened| {
        format!(" {opened} makes hundreds of requests at once, without workers.")
    });
    if workers > case.p.workers
        && (workers <= 1 || loading::shares(case))
        && case.gain(&more, 0.12).factor >= super::WORTH
        && case.e.loader().is_some_and(|loader| loader.framework == "torch")
    {
        let (change, place) = code::loader_with(case.e, &[("num_workers", workers.to_string())]);
        let fix = Fix {
            title: format!("Make more requests at once: {workers} workers, which mostly wait"),
            change,
            place,
            why: format!(
                "While one worker waits for an answer, others wait for theirs, until the link is full or the server has enough.{engine}"
            ),
            apply: Some(code::apply_loader(&[("num_workers", json!(workers))])),
        };
        return case.finding(
            Kind::Work,
            "network-latency",
            "storage",
            Said { title, facts, fix },
            &more,
            0.12,
        );
    }
    let mut fix = local(
        "Copy the data to a local disk before training, or ask for several samples at once",
        format!("Each worker waits for one answer at a time.{engine}"),
        stage,
    );
    fix.change =
        "# download once; or __getitems__(self, indices) that fetches in a pool of threads".to_owned();
    case.finding(
        Kind::Work,
        "network-latency",
        "storage",
        Said { title, facts, fix },
        &near(case, stage),
        0.15,
    )
}

/// Bytes a second are the limit.
fn bandwidth(case: &Case, stage: &StageTime) -> Finding {
    let title = format!(
        "The network gives {:.1} MB/s, and the loop waits {} of the time for it",
        case.e.load.received / 1e6,
        waits(case)
    );
    let why = "Every epoch fetches the same bytes over the network again, and more workers would share the same link.";
    let fix = local("Copy the data to a local disk before training", why.to_owned(), stage);
    let said = Said { title, facts: facts(case, stage), fix };
    case.finding(Kind::Work, "network-bandwidth", "storage", said, &near(case, stage), 0.12)
}

/// The server refuses some requests, which are tried again later.
fn throttled(case: &Case, stage: &StageTime) -> Finding {
    let title = format!(
        "Requests are refused and tried again: {} of the network's time are pauses in between, and the loop waits {} of the time",
        percent(stage.waits.pause),
        waits(case)
    );
    let why = "The server takes only so many requests a second, or fails. More workers would be refused more often; a local copy asks \
               once, and shards ask once for many samples.";
    let fix = local("Copy the data to a local disk before training", why.to_owned(), stage);
    let said = Said { title, facts: facts(case, stage), fix };
    case.finding(Kind::Work, "network-throttled", "storage", said, &near(case, stage), 0.15)
}

/// The network, and nobody can say what about it.
fn unknown(case: &Case, stage: &StageTime) -> Finding {
    let title = format!("Samples come over the network, and the loop waits {} of the time", waits(case));
    let why = "Every epoch fetches the same bytes over the network again.".to_owned();
    let fix = local("Copy the data to a local disk before training", why, stage);
    let said = Said { title, facts: facts(case, stage), fix };
    case.finding(Kind::Work, "network", "storage", said, &near(case, stage), 0.12)
}
