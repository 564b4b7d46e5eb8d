//! What trials say in which a statement of the script was left out: no fix of it gains more, and one that nobody knows is told.

use super::{Case, Finding, Kind, Said, WORTH, code, fact, percent};
use crate::{
    leave::Left,
    proved::LEAST,
    record::Frame,
    report::{Fix, Gain, Measured},
};

/// Name of the verdict at a line of which no rule knows what to do.
const ID: &str = "costly-line";

/// Causes whose fix leaves hardly anything of the statement: it is done once, seldom, or for the batch at once.
const WHOLLY: [&str; 7] = [
    "checkpoint",
    "connect-again",
    "launch-bound",
    "list-again",
    "python-step",
    "read-again",
    "sync-logging",
];

/// What is left of such a statement; and of work for samples in Python, as `costs` promises it.
const LEFT: (f64, f64) = (0.05, 0.2);

/// Share of the time of a statement that reads, decodes and collates from which on it is no case for a generic advice: that has to be done.
const HAS_TO_BE: f64 = 0.5;

/// Bounds promises by what was measured without their lines, and takes out those whose lines cost nothing.
pub(super) fn bound(case: &Case, findings: &mut Vec<Finding>) {
    findings.retain_mut(|finding| {
        let verdict = &mut finding.verdict;
        let edits = verdict.fix.as_ref().is_some_and(|fix| fix.apply.is_none());
        let mut at: Vec<_> = measured(case).filter(|(left, _)| edits && left.has(verdict)).collect();
        // Of one within another, the inner one.
        at.sort_by_key(|(left, _)| left.last - left.line);
        let Some((left, bound)) = at.first() else { return true };
        if left.makes && bound.factor < LEAST && verdict.measured.is_none() {
            return false;
        }
        verdict.bound = Some(bound.factor);
        if let Some(gain) = verdict.gain.as_mut().filter(|_| verdict.measured.is_none()) {
            let wholly = WHOLLY.contains(&verdict.id.as_str());
            if wholly && bound.factor >= LEAST {
                *gain = gained(bound, LEFT.0);
            } else if gain.factor > bound.factor && bound.factor >= LEAST {
                let by = bound.factor / gain.factor;
                *gain = Gain { factor: bound.factor, low: gain.low * by, high: bound.high };
            }
        }
        true
    });
}

/// Lines that cost much, where no other finding is made at them.
pub(super) fn find(case: &Case, findings: &[Finding]) -> Vec<Finding> {
    measured(case)
        .filter(|(left, bound)| {
            let told = findings.iter().any(|finding| left.has(&finding.verdict));
            !told && bound.factor >= LEAST && !(left.makes && left.needed > HAS_TO_BE)
        })
        .map(|(left, bound)| costly(left, &bound))
        .filter(|finding| finding.factor() >= WORTH)
        .collect()
}

fn measured<'a>(case: &'a Case) -> impl Iterator<Item = (&'a Left, Measured)> {
    case.e.tried.iter().filter_map(|tried| Some((tried.left.as_ref()?, tried.measured()?)))
}

/// What a fix gains that leaves so much of a statement.
fn gained(bound: &Measured, left: f64) -> Gain {
    let of = |bound: f64| 1.0 / (1.0 - (1.0 - left) * (1.0 - 1.0 / bound));
    Gain { factor: of(bound.factor), low: of(bound.low), high: bound.high }
}

fn costly(left: &Left, bound: &Measured) -> Finding {
    let line =
        Frame { file: left.file.clone(), line: left.most, call: left.code.clone(), ..Frame::default() };
    let (title, advice, why, gain) = match (left.makes, left.kind.as_str()) {
        (true, _) => (
            "Do this once ahead of time, keep its result, or do it for whole arrays",
            "once ahead of time, or kept, or by operations on whole arrays",
            "Each sample pays for it in each epoch, and the loop waits for the samples.",
            gained(bound, LEFT.1),
        ),
        (false, "first") => (
            "Do this once for the whole batch",
            "once for the batch, not for each of its samples",
            "Each turn costs its calls, however little it computes.",
            gained(bound, LEFT.0),
        ),
        (false, _) => (
            "Do this less often, or at once for the batch",
            "less often, or at once for the batch",
            "The loop stands still meanwhile, in each step.",
            gained(bound, LEFT.0),
        ),
    };
    let facts = vec![fact(
        format!(
            "Without it the script is {:.2} times as fast: it was left out for {:.0} s after the run.",
            bound.factor, bound.seconds
        ),
        bound.factor,
        "times",
        "trial",
    )];
    let fix = Fix {
        title: title.to_owned(),
        change: format!("# {advice}: {}", left.code),
        place: Some(code::place_of(&line)),
        why: why.to_owned(),
        apply: None,
    };
    let what = if left.makes { "Making batches" } else { "The loop" };
    let said = format!(
        "{what} spends {} of a step's time in one place ({})",
        percent(left.share.min(1.0)),
        code::where_is(&line)
    );
    let family = if left.makes { "cpu" } else { "loop" };
    let said = Said { title: said, facts, fix };
    let mut finding = said.into_finding(Kind::Work, ID, family, gain, String::new());
    finding.verdict.bound = Some(bound.factor);
    finding
}
