//! Workers that wait for each other: a lock that processes share lets one of them on at a time.

use super::{Case, Finding, Kind, Said, code, fact, loading, ms, percent};
use crate::{
    evidence::Waited,
    model::{Cost, Pipeline},
    report::Fix,
};

/// Kinds of waiting that are for another worker.
const KINDS: [&str; 2] = ["shared-lock", "file-lock"];

/// Kinds of waiting that neither storage nor a server is to blame for.
const NO_STORAGE: [&str; 4] = ["shared-lock", "file-lock", "child", "gil"];

/// Share of making a batch from which on the lock is what limits workers.
const HELD: f64 = 0.1;

/// Share of the time that others wait from which on a line is named for which they do.
const NAMED: f64 = 0.3;

/// Seconds a batch that waits for anything but bytes, as far as that is known.
pub(super) fn elsewhere(case: &Case) -> f64 {
    case.e.stages.waits_for(&NO_STORAGE).0
}

/// The wait for a lock, if more workers would only wait longer for it.
pub(super) fn held<'a>(case: &Case<'a>) -> Option<(f64, &'a Waited)> {
    let (time, at) = case.e.stages.waits_for(&KINDS);
    let whole = case.e.loading.mean(|batch| batch.cpu + batch.blocked());
    at.filter(|_| time >= HELD * whole && case.p.workers > 1).map(|at| (time, at))
}

pub(super) fn find(case: &Case) -> Option<Finding> {
    let (time, at) = held(case)?;
    let all = case.e.loading.mean(crate::evidence::Batch::blocked).max(1e-12);
    let left = 1.0 - (time / all).min(1.0);
    let changed: Pipeline = case.p.with_make(|cost| Cost { blocked: cost.blocked * left, ..*cost });
    let whole = case.e.loading.mean(|batch| batch.cpu + batch.blocked());
    let share = (time / whole.max(1e-12)).min(1.0);
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "At `{}` ({}) a worker waits for a lock that another one has: {} of the {} that a batch takes.",
            at.at.call,
            code::where_is(&at.at),
            ms(time),
            ms(whole)
        ),
        time,
        "s",
        "stacks",
    ));
    let holder = case.e.stages.holding.first().filter(|(_, share)| *share >= NAMED);
    if let Some((line, share)) = holder {
        facts.push(fact(
            format!(
                "While one waits, another is at `{}` ({}), {} of the time.",
                line.call,
                code::where_is(line),
                percent(*share)
            ),
            *share,
            "share",
            "stacks",
        ));
    }
    facts.push(loading::busy(case));
    let what = match holder {
        Some((line, _)) => format!("`{}` ({}), if it need not be alone", line.call, code::where_is(line)),
        None => "what does not need it".to_owned(),
    };
    let fix = Fix {
        title: "Hold the lock only for what workers share, or give each worker its own".to_owned(),
        change: format!("# {}: take out of the lock {what}", at.at.call.trim_end_matches(':')),
        place: Some(code::place_of(&at.at)),
        why: "One worker at a time does what the lock guards, however many there are: more of them would wait longer.".to_owned(),
        apply: None,
    };
    let title = format!(
        "Workers wait for each other at a lock ({}), {} of making a batch",
        code::where_is(&at.at),
        percent(share)
    );
    Some(case.finding(
        Kind::Setting,
        "lock-contention",
        "contention",
        Said { title, facts, fix },
        &changed,
        0.15,
    ))
}
