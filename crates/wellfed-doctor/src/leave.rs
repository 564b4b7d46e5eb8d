//! Statements that trials leave out: what that gains is the most that any fix of them can gain.
//!
//! Which ones is decided by where time goes, how by their form (`wellfed_probe/edits_left.py`). Pure functions of the evidence.

use serde::{Deserialize, Serialize};

use crate::{
    edit::Edit,
    evidence::{Evidence, LineTime},
    patch::Changed,
    proved::Tried,
    report::{Lines, Verdict},
};

/// Kinds of edits that leave something out.
const KINDS: [&str; 3] = ["skip", "keep", "first"];

/// Share of a step from which on a statement is worth a trial.
const WORTH_TRYING: f64 = 0.1;

/// Share of a step that a statement beside such a one has to take to be left out with it.
const BESIDE: f64 = 0.02;

/// Share of a statement's time in the model and its backward pass from which on it is theirs.
const COMPUTES: f64 = 0.3;

/// Share of another one's time from which on a statement is the same thing, further inside.
const SAME: f64 = 0.85;

/// A statement, or several that follow each other, as they are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Left {
    /// `skip`, `keep` or `first`; see `edits_left.py`.
    pub kind: String,
    /// The file, as the probes name it.
    pub file: String,
    /// First line.
    pub line: u32,
    /// Last line.
    pub last: u32,
    /// The line that takes most of the time.
    pub most: u32,
    /// The text of that line.
    pub code: String,
    /// Whether it makes batches; else it is of the loop.
    pub makes: bool,
    /// Its seconds, of a batch or a step, as a share of a step.
    pub share: f64,
    /// Of its time, what has to be done: reading, decoding, collating; in the loop what the model computes.
    pub needed: f64,
}

impl Left {
    /// Whether a fix is made within it.
    pub fn has(&self, verdict: &Verdict) -> bool {
        let place = verdict.fix.as_ref().and_then(|fix| fix.place.as_ref());
        place.is_some_and(|place| self.file == place.file && (self.line..=self.last).contains(&place.line))
    }
}

/// A statement under examination.
#[derive(Clone, Debug)]
struct Candidate {
    left: Left,
    hunks: Vec<Lines>,
    /// Frames of the script around it.
    depth: u32,
    function: String,
}

/// The statement to leave out next, after what was tried: the one that takes most time. None within another that gained nothing.
pub fn next(e: &Evidence, tried: &[Tried]) -> Option<Tried> {
    let known = || tried.iter().filter_map(|tried| tried.left.as_ref());
    let overlaps =
        |a: &Left, b: &Left| a.file == b.file && a.line <= b.last && b.line <= a.last && a.kind == b.kind;
    let all = candidates(e);
    let next = all.into_iter().find(|one| !known().any(|left| overlaps(left, &one.left)))?;
    let edit = Changed { file: next.left.file.clone(), lines: next.hunks };
    let title = format!("line {} of {} left out", next.left.most, next.left.file);
    Some(Tried { title, edit: Some(edit), left: Some(next.left), ..Tried::default() })
}

fn candidates(e: &Evidence) -> Vec<Candidate> {
    let step = e.steps.whole().max(1e-12);
    let workers = e.loader().map_or(0, |loader| loader.num_workers).max(1) as f64;
    let mut all: Vec<Candidate> = e
        .edits
        .iter()
        .filter(|edit| KINDS.contains(&edit.kind.as_str()) && !edit.hunks.is_empty())
        .filter_map(|edit| candidate(edit, &e.stages.lines, step, workers))
        .collect();
    all.retain(|one| one.left.share >= BESIDE);
    // Of statements that are one within the other, and take the same time, the outermost; it is called least often.
    all.sort_by(|a, b| a.depth.cmp(&b.depth).then(b.left.share.total_cmp(&a.left.share)));
    let mut chosen: Vec<Candidate> = Vec::new();
    for one in all {
        let same = |other: &Candidate| {
            let outer = other.depth < one.depth || other.left.line == one.left.line;
            let alike =
                one.left.share >= SAME * other.left.share && one.left.share <= other.left.share / SAME;
            other.left.makes == one.left.makes && outer && alike
        };
        if !chosen.iter().any(same) {
            chosen.push(one);
        }
    }
    chosen = together(chosen);
    chosen.retain(|one| one.left.share >= WORTH_TRYING);
    chosen.sort_by(|a, b| b.left.share.total_cmp(&a.left.share));
    chosen
}

/// Statements that an edit leaves out, if they take time. What the model and its backward pass do has to be done; only turns of a loop
/// over samples can be spared there.
fn candidate(edit: &Edit, lines: &[LineTime], step: f64, workers: f64) -> Option<Candidate> {
    let here = || {
        lines.iter().filter(|line| {
            line.file == edit.file
                && (edit.line..=edit.last).contains(&line.line)
                && line.func.rsplit('.').any(|name| name == edit.func)
        })
    };
    let most = here().max_by(|a, b| a.time.total_cmp(&b.time))?;
    let makes = most.makes;
    let of = |of: fn(&LineTime) -> f64| here().filter(|line| line.makes == makes).map(of).sum::<f64>();
    let (time, needed) = (of(|line| line.time), of(|line| line.needed));
    let first = edit.kind == "first";
    // Turns of loops in workers are few things each; what is around them is measured.
    if makes && first || !makes && first != (needed > COMPUTES * time) {
        return None;
    }
    let text = edit.hunks.iter().flat_map(|hunk| (hunk.line..).zip(hunk.code.split('\n')));
    let code = text.filter(|(line, _)| *line == most.line).map(|(_, text)| text.trim().to_owned()).next();
    let per_step = if makes { time / workers } else { time };
    let left = Left {
        kind: edit.kind.clone(),
        file: edit.file.clone(),
        line: edit.line,
        last: edit.last,
        most: most.line,
        code: code.unwrap_or_default(),
        makes,
        share: per_step / step,
        needed: needed / time.max(1e-12),
    };
    Some(Candidate { left, hunks: edit.hunks.clone(), depth: most.depth, function: edit.func.clone() })
}

/// Statements of the loop that follow each other are left out together: what is logged is often made by the lines before.
fn together(mut all: Vec<Candidate>) -> Vec<Candidate> {
    all.sort_by(|a, b| (&a.left.file, a.left.line).cmp(&(&b.left.file, b.left.line)));
    let mut merged: Vec<Candidate> = Vec::new();
    for one in all {
        let next = merged.last_mut().filter(|before| {
            !one.left.makes
                && !before.left.makes
                && before.left.kind != "first"
                && one.left.kind != "first"
                && before.left.file == one.left.file
                && before.function == one.function
                && before.left.last + 1 == one.left.line
        });
        match next {
            Some(before) => {
                let more = before.left.share + one.left.share;
                if one.left.share > before.left.share {
                    (before.left.most, before.left.code) = (one.left.most, one.left.code);
                }
                (before.left.last, before.left.share) = (one.left.last, more);
                before.hunks.extend(one.hunks);
            }
            None => merged.push(one),
        }
    }
    merged
}
