//! What trials say in which a statement of the script was left out: no fix of it gains more, and one that nobody knows is told.

use super::{Case, Finding, Kind, Said, WORTH, code, fact, percent};
use crate::{
    evidence::LineTime,
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

/// Share of what a statement costs from which on a finding within it, or around it, is what is to be told of it.
const MOST: f64 = 0.5;

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

/// Lines that cost much, where no other finding is made at them, or explains most of what they cost.
///
/// Of statements one of which does the other, the one without which the script is faster: time is told once.
pub(super) fn find(case: &Case, findings: &[Finding]) -> Vec<Finding> {
    let lines = &case.e.stages.lines;
    let mut costs: Vec<(&Left, Measured)> = measured(case)
        .filter(|(left, bound)| {
            let told = findings.iter().any(|finding| explains(finding, left, bound, lines));
            !told && bound.factor >= LEAST && !(left.makes && left.needed > HAS_TO_BE)
        })
        .collect();
    costs.sort_by(|a, b| b.1.factor.total_cmp(&a.1.factor));
    let mut told: Vec<&Left> = Vec::new();
    costs.retain(|(left, _)| {
        let twice = told
            .iter()
            .any(|one| one.does(lines, &left.file, left.most) || left.does(lines, &one.file, one.most));
        if !twice {
            told.push(left);
        }
        !twice
    });
    let findings = costs.into_iter().map(|(left, bound)| costly(left, &bound));
    findings.filter(|finding| finding.factor() >= WORTH).collect()
}

/// Whether a finding is about a statement: it is made at one of its lines, or promises most of what it costs where it is called or calls it.
fn explains(finding: &Finding, left: &Left, bound: &Measured, lines: &[LineTime]) -> bool {
    if left.has(&finding.verdict) {
        return true;
    }
    let fix = finding.verdict.fix.as_ref().filter(|fix| fix.apply.is_none());
    let Some(place) = fix.and_then(|fix| fix.place.as_ref()) else { return false };
    let at = Left {
        file: place.file.clone(),
        line: place.line,
        last: place.line,
        makes: left.makes,
        ..Left::default()
    };
    let near = left.does(lines, &place.file, place.line) || at.does(lines, &left.file, left.most);
    let saved = |factor: f64| 1.0 - 1.0 / factor;
    near && saved(finding.factor()) >= MOST * saved(bound.factor)
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
