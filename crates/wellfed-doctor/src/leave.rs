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

/// Share of the cores that has to be busy for those who make batches to be in a step's way.
const CROWDED: f64 = 0.85;

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
        place.is_some_and(|place| self.holds(&place.file, place.line))
    }

    /// Whether it does what a line does: that is one of its own, or is called by one.
    pub fn does(&self, lines: &[LineTime], file: &str, line: u32) -> bool {
        let there = |one: &&LineTime| one.makes == self.makes && one.line == line && one.file == file;
        let mut callers = lines.iter().filter(there).flat_map(|one| &one.under);
        self.holds(file, line) || callers.any(|(file, line)| self.holds(file, *line))
    }

    fn holds(&self, file: &str, line: u32) -> bool {
        self.file == file && (self.line..=self.last).contains(&line)
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
    let file = next.left.file.rsplit(['/', '\\']).next().unwrap_or_default();
    let title = format!("{file}:{} left out", next.left.most);
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
    let held_up = held_up(e, step);
    all.retain(|one| one.left.share >= BESIDE && (!one.left.makes || held_up));
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

/// Whether the loop is held up by what makes batches: it waits for them, or they take cores that it wants. Else they cost it nothing.
fn held_up(e: &Evidence, step: f64) -> bool {
    let waits = e.steps.wait() + e.steps.restart() >= WORTH_TRYING * step;
    waits || e.load.busy >= CROWDED * e.machine.cores && e.load.main_queued >= WORTH_TRYING
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
    if most.around || makes && first || !makes && first != (needed > COMPUTES * time) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        evidence::{LoaderUse, Loop, Step},
        record,
        report::{Fix, Gain},
    };

    const FILE: &str = "/home/me/train.py";

    fn line(line: u32, func: &str, makes: bool, depth: u32, time: f64) -> LineTime {
        LineTime {
            file: FILE.to_owned(),
            line,
            func: func.to_owned(),
            makes,
            depth,
            time,
            ..LineTime::default()
        }
    }

    fn edit(kind: &str, line: u32, last: u32, func: &str) -> Edit {
        let code = (line..=last).map(|line| format!("    line_{line}()")).collect::<Vec<_>>().join("\n");
        let hunk = Lines { line, code, change: "    pass".to_owned() };
        Edit {
            kind: kind.to_owned(),
            file: FILE.to_owned(),
            line,
            last,
            func: func.to_owned(),
            hunks: vec![hunk],
        }
    }

    /// A loop whose steps wait and compute half a second each, with these lines and edits.
    fn evidence(lines: Vec<LineTime>, edits: Vec<Edit>) -> Evidence {
        let loader = record::Loader { num_workers: 2, ..record::Loader::default() };
        let step = Step { wait: 0.5, compute: 0.5, ..Step::default() };
        let mut e = Evidence {
            loaders: vec![LoaderUse { loader, ..LoaderUse::default() }],
            subject: Some(0),
            steps: Loop { steps: vec![step; 20], ..Loop::default() },
            edits,
            ..Evidence::default()
        };
        e.machine.cores = 4.0;
        e.stages.lines = lines;
        e
    }

    /// Lines that are left out, one trial after the other.
    fn all(e: &Evidence) -> Vec<(String, u32, u32)> {
        let mut tried = Vec::new();
        while let Some(one) = next(e, &tried) {
            assert!(tried.len() < 9, "{tried:?}");
            tried.push(one);
        }
        let lefts = tried.into_iter().filter_map(|tried| tried.left);
        lefts.map(|left| (left.kind, left.line, left.last)).collect()
    }

    #[test]
    fn what_costs_most_is_left_out_first_and_nothing_twice_or_that_costs_little() {
        let lines = vec![
            line(3, "Rows.__getitem__", true, 0, 0.5),
            line(20, "train", false, 0, 0.3),
            line(24, "train", false, 0, 0.4),
            line(28, "train", false, 0, 0.09),
        ];
        let edits = vec![
            edit("keep", 3, 3, "__getitem__"),
            edit("skip", 20, 20, "train"),
            edit("keep", 24, 24, "train"),
            edit("skip", 28, 28, "train"),
            // Others than those that leave something out are no matter of trials like these.
            edit("every", 24, 24, "train"),
        ];
        let e = evidence(lines, edits);
        let kept = |line| ("keep".to_owned(), line, line);
        // What two workers make in half a second is a quarter of a second of a step.
        assert_eq!(all(&e), [kept(24), ("skip".to_owned(), 20, 20), kept(3)]);
        let first = next(&e, &[]).unwrap();
        assert_eq!(first.title, "train.py:24 left out");
        assert_eq!(first.edit.unwrap().lines.len(), 1);
        let left = first.left.unwrap();
        assert_eq!((left.most, left.code.as_str(), left.makes), (24, "line_24()", false));
        assert!((left.share - 0.4).abs() < 1e-9);
    }

    #[test]
    fn batches_that_nobody_waits_for_cost_nothing() {
        let edits = vec![edit("keep", 3, 3, "__getitem__")];
        let mut e = evidence(vec![line(3, "Rows.__getitem__", true, 0, 1.5)], edits);
        assert_eq!(all(&e).len(), 1);
        e.steps.steps.iter_mut().for_each(|step| (step.wait, step.compute) = (0.01, 0.99));
        assert!(next(&e, &[]).is_none());
        // Unless they take the cores that the step wants.
        (e.load.busy, e.load.main_queued) = (3.9, 0.2);
        assert!(next(&e, &[]).is_some());
    }

    #[test]
    fn of_statements_within_each_other_the_outermost_is_left_out() {
        let lines = vec![
            line(9, "measure", false, 1, 0.38),
            line(10, "measure", false, 1, 0.1),
            line(24, "train", false, 0, 0.4),
        ];
        let edits = vec![
            edit("keep", 9, 9, "measure"),
            edit("keep", 24, 24, "train"),
            // The same line in a function of another name is another one.
            edit("keep", 24, 24, "test"),
        ];
        assert_eq!(all(&evidence(lines.clone(), edits.clone())), [("keep".to_owned(), 24, 24)]);
        // What takes much less than what is around it is something else.
        let mut fewer = lines;
        fewer[0].time = 0.2;
        let told = all(&evidence(fewer, edits));
        assert_eq!(told.iter().map(|(_, line, _)| *line).collect::<Vec<_>>(), [24, 9]);
    }

    #[test]
    fn statements_of_the_loop_that_follow_each_other_are_left_out_together() {
        let edits = || {
            vec![
                edit("keep", 20, 20, "train"),
                edit("skip", 21, 22, "train"),
                edit("skip", 24, 24, "train"),
                edit("keep", 3, 3, "__getitem__"),
                edit("keep", 4, 4, "__getitem__"),
            ]
        };
        let lines = vec![
            line(20, "train", false, 0, 0.05),
            line(22, "train", false, 0, 0.2),
            line(24, "train", false, 0, 0.3),
            line(3, "Rows.__getitem__", true, 0, 0.44),
            line(4, "Rows.__getitem__", true, 0, 0.3),
        ];
        let mut e = evidence(lines, edits());
        let told = all(&e);
        let spans: Vec<(u32, u32)> = told.iter().map(|(_, line, last)| (*line, *last)).collect();
        assert_eq!(spans, [(24, 24), (20, 22), (3, 3), (4, 4)]);
        let tried = vec![next(&e, &[]).unwrap()];
        let both = next(&e, &tried).unwrap();
        assert_eq!(both.edit.unwrap().lines.len(), 2);
        let left = both.left.unwrap();
        assert_eq!((left.most, left.code.as_str()), (22, "line_22()"));
        assert!((left.share - 0.25).abs() < 1e-9);
        // What hardly takes time has nothing to do with it.
        e.stages.lines[0].time = 0.01;
        assert!(all(&e).iter().any(|(_, line, last)| (*line, *last) == (21, 22)));
    }

    #[test]
    fn of_the_model_only_turns_of_a_loop_can_be_spared() {
        let kinds = ["keep", "first"];
        let edits: Vec<Edit> = kinds.iter().map(|kind| edit(kind, 24, 24, "train")).collect();
        let mut model = line(24, "train", false, 0, 0.4);
        model.needed = 0.35;
        let told = |line: &LineTime| all(&evidence(vec![line.clone()], edits.clone()));
        assert_eq!(told(&model), [("first".to_owned(), 24, 24)]);
        model.needed = 0.0;
        assert_eq!(told(&model), [("keep".to_owned(), 24, 24)]);
        // Loops of workers are left as they are.
        model.makes = true;
        model.needed = 0.35;
        assert_eq!(told(&model), [("keep".to_owned(), 24, 24)]);
        // Without what runs the loop there are no steps to measure.
        let whole = LineTime { around: true, makes: false, needed: 0.0, ..model };
        assert_eq!(told(&whole), []);
    }

    #[test]
    fn a_fix_is_within_what_was_left_out_by_its_place() {
        let left = Left { file: FILE.to_owned(), line: 20, last: 22, ..Left::default() };
        let at = |file: &str, line| {
            let place = record::Place { file: file.to_owned(), line, ..record::Place::default() };
            let fix = Some(Fix { place: Some(place), ..Fix::default() });
            left.has(&Verdict { fix, gain: Some(Gain::default()), ..Verdict::default() })
        };
        assert_eq!([at(FILE, 19), at(FILE, 20), at(FILE, 22), at(FILE, 23)], [false, true, true, false]);
        assert!(!at("other.py", 21) && !left.has(&Verdict::default()));
    }
}
