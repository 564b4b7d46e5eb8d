//! Files that are read whole for each sample, of which a part is used.

use super::{Case, Finding, Kind, Said, code, costs, fact, loading, ms, percent};
use crate::{evidence::StageTime, model::Cost, report::Fix};

/// What maps a file, in words.
pub(super) const TITLE: &str = "Map the file, and read what is used of it";

/// Why that helps.
pub(super) const WHY: &str = "A mapped array reads the pages that an index touches. Copy-on-write: what is written to it stays in memory, as before.";

/// Of the time that reading the whole file takes, what reading a part of it is taken for.
const LEFT: f64 = 0.1;

pub(super) fn find(case: &Case) -> Option<Finding> {
    let read = case.e.stages.get("read").filter(|_| !case.e.loading.batches.is_empty())?;
    let edit = code::known(case.e, &["map"], &[read])?;
    let at_line = |stage: &StageTime| -> f64 {
        let at = stage.culprits.iter().filter(|culprit| {
            [Some(&culprit.frame), culprit.call.as_ref()].into_iter().flatten().any(|frame| edit.is_at(frame))
        });
        at.map(|culprit| culprit.time).sum()
    };
    let share = (at_line(read) / read.time().max(1e-12)).min(1.0);
    let (cpu, blocked) = (share * read.cpu, share * read.blocked);
    let all_cpu = case.e.loading.mean(|batch| batch.cpu).max(1e-12);
    let all_blocked = case.e.loading.mean(crate::evidence::Batch::blocked).max(1e-12);
    let changed = case.p.with_make(|cost| Cost {
        cpu: cost.cpu * (1.0 - (1.0 - LEFT) * (cpu / all_cpu).min(1.0)),
        blocked: cost.blocked * (1.0 - (1.0 - LEFT) * (blocked / all_blocked).min(1.0)),
        ..*cost
    });
    let samples = case.e.loading.samples_per_batch().max(1.0);
    let bytes = case.e.loading.mean(|batch| batch.bytes) / samples;
    let mut facts = loading::waiting(case);
    facts.push(fact(
        format!(
            "A sample reads {:.1} MB of files; {} of a batch goes into it.",
            bytes / 1e6,
            ms(cpu + blocked)
        ),
        bytes,
        "bytes",
        "/proc",
    ));
    facts.extend(costs::functions(read));
    let title = format!(
        "Each sample reads a whole file to use a part of it: {} of making a batch",
        percent((cpu + blocked) / case.e.loading.mean(|batch| batch.wall).max(1e-12))
    );
    let finding = case.finding(
        Kind::Work,
        "whole-file",
        "storage",
        Said { title, facts, fix: Fix::default() },
        &changed,
        0.2,
    );
    Some(finding.edited(edit, TITLE.to_owned(), WHY))
}
