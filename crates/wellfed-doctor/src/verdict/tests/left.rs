//! What trials say in which statements were left out.

use super::*;
use crate::{leave::Left, proved::Tried, record::Frame};

const FILE: &str = "/home/me/train.py";

/// A trial without the statement at a line, after which 40 ms of a step are so much.
fn without(kind: &str, line: u32, makes: bool, after: f64) -> Tried {
    let left = Left {
        kind: kind.to_owned(),
        file: FILE.to_owned(),
        line,
        last: line,
        most: line,
        code: "scores = table(batch)".to_owned(),
        makes,
        share: 0.6,
        needed: 0.0,
    };
    Tried { left: Some(left), before: 0.04, after, seconds: 4.0, ..Tried::default() }
}

/// A loader that reads the same file again and again at a line, and what is promised there.
fn read_again() -> (Evidence, Verdict) {
    let mut e = loading(2, "read", 0.04, 0.0, 0.001);
    e.loading.batches.iter_mut().for_each(|batch| batch.opens = 16.0);
    let at = Frame { file: FILE.to_owned(), line: 7, call: "np.load(path)".to_owned(), ..Frame::default() };
    e.stages.works = vec![crate::evidence::Work { kind: "load", cpu: 0.038, blocked: 0.0, at }];
    e.loading.files = (0..100).map(|_| ("/data/0.npz".to_owned(), 20_000_000)).collect();
    let verdict = found(&e, "read-again").unwrap();
    assert_eq!(verdict.bound, None);
    (e, verdict)
}

#[test]
fn no_fix_is_promised_more_than_its_line_costs() {
    let (mut e, before) = read_again();
    assert!(before.gain.unwrap().factor > 2.0);
    // This one leaves nothing of the line: it gets near what leaving it out gained.
    e.tried = vec![without("keep", 7, true, 0.025)];
    let verdict = found(&e, "read-again").unwrap();
    let gain = verdict.gain.unwrap();
    assert!((verdict.bound.unwrap() - 1.6).abs() < 1e-9);
    assert!(1.5 < gain.factor && gain.factor < 1.6, "{gain:?}");
    assert!(gain.low < gain.factor && gain.factor < gain.high, "{gain:?}");
    // Another line bounds nothing of it.
    e.tried = vec![without("keep", 9, true, 0.025)];
    assert_eq!(found(&e, "read-again").unwrap().gain, before.gain);
}

#[test]
fn a_promise_above_what_a_line_costs_is_capped() {
    let mut e = loading(4, "python", 0.04, 0.0, 0.001);
    let at = Frame { file: FILE.to_owned(), line: 7, call: "self.file[i]".to_owned(), ..Frame::default() };
    e.stages.works = vec![crate::evidence::Work { kind: "chunk", cpu: 0.035, blocked: 0.0, at }];
    e.batch = Some(record::Batch { bytes: 100_000, ..record::Batch::default() });
    e.loading.batches.iter_mut().for_each(|batch| batch.bytes = 1_600_000.0);
    let before = found(&e, "whole-chunks").unwrap().gain.unwrap();
    assert!(before.factor > 1.6, "{before:?}");
    e.tried = vec![without("keep", 7, true, 0.025)];
    let gain = found(&e, "whole-chunks").unwrap().gain.unwrap();
    assert!((gain.factor - 1.6).abs() < 1e-9 && gain.low < gain.factor, "{gain:?}");
    // Where there is more to gain than is promised, the promise stays.
    e.tried = vec![without("keep", 7, true, 0.002)];
    assert_eq!(found(&e, "whole-chunks").unwrap().gain, Some(before));
}

#[test]
fn a_line_that_costs_nothing_has_no_fix() {
    let (mut e, _) = read_again();
    e.tried = vec![without("keep", 7, true, 0.039)];
    assert!(found(&e, "read-again").is_none());
    // A trial that came to nothing says nothing.
    e.tried[0].problem = "the script failed".to_owned();
    assert!(found(&e, "read-again").unwrap().bound.is_none());
}

#[test]
fn a_line_that_no_rule_knows_is_told_by_what_it_costs() {
    let mut e = looping(2, 1e-4, 0.04);
    assert_eq!(judge(&e).verdict.family, "healthy");
    e.tried = vec![without("keep", 31, false, 0.016)];
    let verdict = judge(&e).verdict;
    assert_eq!((verdict.id.as_str(), verdict.family.as_str()), ("costly-line", "loop"));
    assert_eq!(verdict.title, "The loop spends 60 % of a step's time in one place (train.py:31)");
    assert!((verdict.bound.unwrap() - 2.5).abs() < 1e-9);
    let fix = verdict.fix.unwrap();
    assert_eq!(fix.place.unwrap().line, 31);
    assert!(fix.change.starts_with("# ") && fix.change.ends_with(": scores = table(batch)"));
    let gain = verdict.gain.unwrap();
    assert!(gain.low < gain.factor && (2.2..2.5).contains(&gain.factor), "{gain:?}");
    assert!(verdict.evidence[0].text.contains("2.50 times as fast"), "{:?}", verdict.evidence);
    // What leaving it out hardly gains, is no cause.
    e.tried = vec![without("keep", 31, false, 0.039)];
    assert_eq!(judge(&e).verdict.family, "healthy");
}

#[test]
fn statements_one_of_which_does_the_other_are_told_once() {
    let mut e = looping(2, 1e-4, 0.04);
    let line = |line: u32, under: &[u32]| crate::evidence::LineTime {
        file: FILE.to_owned(),
        line,
        under: under.iter().map(|&line| (FILE.to_owned(), line)).collect(),
        ..Default::default()
    };
    let told = |e: &Evidence| {
        let judged = judge(e);
        let all = [Some(judged.verdict), judged.runner_up].into_iter().flatten().chain(judged.others);
        let costly = all.filter(|verdict| verdict.id == "costly-line");
        let mut lines: Vec<u32> = costly.map(|verdict| verdict.fix.unwrap().place.unwrap().line).collect();
        lines.sort_unstable();
        lines
    };
    e.tried = vec![without("keep", 9, false, 0.028), without("keep", 31, false, 0.016)];
    assert_eq!(told(&e), [9, 31]);
    // One calls the other, by a third.
    e.stages.lines = vec![line(31, &[40]), line(5, &[40, 31]), line(9, &[40, 31, 5])];
    assert_eq!(told(&e), [31]);
    // Without the inner one it is faster still.
    e.tried[0].after = 0.012;
    assert_eq!(told(&e), [9]);
    // The other way round, and where one's lines are the other's.
    e.stages.lines = vec![line(31, &[9])];
    assert_eq!(told(&e), [9]);
    e.stages.lines.clear();
    e.tried[1].left.as_mut().unwrap().line = 7;
    assert_eq!(told(&e), [9]);
}

#[test]
fn what_has_to_be_done_for_samples_is_no_costly_line() {
    let mut e = loading(2, "python", 0.04, 0.0, 0.001);
    let told = |e: &Evidence| said(e).contains(&"costly-line".to_owned());
    e.tried = vec![without("keep", 31, true, 0.016)];
    assert_eq!(found(&e, "costly-line").unwrap().family, "cpu");
    e.tried[0].left.as_mut().unwrap().needed = 0.8;
    assert!(!told(&e));
}
