//! Changes of the script's lines, what is done beside its batches, several loops, and what trials showed.

use super::*;

/// A change of a known form at line 7 of `train.py`.
fn known(kind: &str) -> crate::edit::Edit {
    let hunk = |line, code: &str, change: &str| crate::report::Lines {
        line,
        code: code.to_owned(),
        change: change.to_owned(),
    };
    crate::edit::Edit {
        kind: kind.to_owned(),
        file: "/home/me/train.py".to_owned(),
        line: 7,
        last: 7,
        func: "start".to_owned(),
        hunks: vec![hunk(3, "    a", "    a\n    b"), hunk(7, "    slow()", "    fast()")],
    }
}

/// A stage whose time goes into line 7 of `train.py`.
fn at_line_7(name: &'static str, cpu: f64) -> StageTime {
    let frame = record::Frame { file: "/home/me/train.py".to_owned(), line: 7, ..record::Frame::default() };
    let culprit = crate::evidence::Culprit { frame, time: cpu, cpu, ..Default::default() };
    StageTime { name, cpu, culprits: vec![culprit], ..StageTime::default() }
}

fn changed(e: &Evidence, id: &str) -> Vec<(u32, String)> {
    let verdict = judge(e).verdict;
    assert_eq!(verdict.id, id);
    assert!(verdict.fix.as_ref().unwrap().apply.is_none());
    assert_eq!(verdict.fix.as_ref().unwrap().place.as_ref().unwrap().line, 7);
    let changed = crate::patch::Changed::of(&verdict).unwrap();
    assert_eq!(changed.file, "/home/me/train.py");
    changed.lines.into_iter().map(|lines| (lines.line, lines.change)).collect()
}

#[test]
fn known_forms_at_lines_that_take_the_time_are_changed_as_lines() {
    let both = [(3, "    a\n    b".to_owned()), (7, "    fast()".to_owned())];
    let mut e = loading(4, "python", 0.2, 0.0, 0.01);
    e.stages.loading = vec![at_line_7("python", 0.2)];
    e.edits = vec![known("map"), known("rows")];
    assert_eq!(changed(&e, "python-overhead"), both);
    // Elsewhere it is not what takes the time.
    e.edits[1].line = 8;
    e.edits[1].last = 8;
    assert!(crate::patch::Changed::of(&judge(&e).verdict).is_none());
    let mut e = loading(4, "read", 0.2, 0.0, 0.01);
    e.stages.loading = vec![at_line_7("read", 0.2)];
    assert_ne!(said(&e)[0], "whole-file");
    e.edits = vec![known("map")];
    assert_eq!(changed(&e, "whole-file"), both);
    let mut e = looping(2, 0.0, 0.02);
    e.stages.looping = vec![at_line_7("log", 0.015)];
    e.edits = vec![known("every")];
    assert_eq!(changed(&e, "sync-logging"), both);
    let mut e = loading(4, "collate", 0.2, 0.0, 0.01);
    e.loaders[0].loader.collate = "__main__.padded".to_owned();
    e.stages.loading = vec![at_line_7("collate", 0.2)];
    e.edits = vec![known("rows")];
    assert!(crate::patch::Changed::of(&judge(&e).verdict).is_none());
    e.edits = vec![known("pad")];
    assert_eq!(changed(&e, "collate"), both);
    let mut e = looping(2, 0.0, 0.02);
    e.loaders[0].loader.pin_memory = true;
    e.stages.looping = vec![at_line_7("copy", 0.015)];
    e.edits = vec![known("async")];
    assert_eq!(changed(&e, "h2d-copy"), both);
}

/// The loader of this evidence is made at line 9 of `train.py`.
fn made_at_line_9(e: &mut Evidence, dataset: &str) {
    let code = "loader = DataLoader(data)";
    let place = record::Place {
        file: "/home/me/train.py".to_owned(),
        line: 9,
        code: code.to_owned(),
        call: Some([9, code.len()]),
        ..record::Place::default()
    };
    e.loaders[0].loader.place = Some(place);
    e.loaders[0].loader.dataset = dataset.to_owned();
}

#[test]
fn changes_that_belong_together_are_one_diff() {
    let lines = |e: &Evidence, id: &str| {
        let verdict = judge(e).verdict;
        assert_eq!(verdict.id, id);
        let lines = crate::patch::Changed::of(&verdict).unwrap().lines;
        lines.into_iter().map(|lines| lines.line).collect::<Vec<_>>()
    };
    let mut e = looping(2, 0.0, 0.02);
    made_at_line_9(&mut e, "");
    e.stages.looping = vec![at_line_7("copy", 0.015)];
    let change = |e: &Evidence| judge(e).verdict.fix.unwrap().change;
    assert!(change(&e).contains("# and where batches are copied (train.py:7)"));
    e.edits = vec![known("async")];
    assert_eq!(lines(&e, "h2d-copy"), [3, 7, 9]);
    assert_eq!(change(&e), "loader = DataLoader(data, pin_memory=True)");
    // In the loader's own line, or in another file, it cannot be both.
    e.edits[0].hunks[1].line = 9;
    assert_eq!(lines(&e, "h2d-copy"), [9]);
    e.edits = vec![known("async")];
    e.loaders[0].loader.place.as_mut().unwrap().file = "/home/me/data.py".to_owned();
    assert_eq!(lines(&e, "h2d-copy"), [9]);

    let mut e = loading(0, "decode", 0.02, 0.0, 0.02);
    made_at_line_9(&mut e, "torch.utils.data.dataset.Subset(Rows)");
    e.edits = vec![known("lazy")];
    e.edits[0].func = "Rows.__init__".to_owned();
    assert_eq!(lines(&e, "serial-loading"), [3, 7, 9]);
    e.edits[0].func = "Others.__init__".to_owned();
    assert_eq!(lines(&e, "serial-loading"), [9]);
}

#[test]
fn threads_that_the_script_asks_for_are_its_own_line() {
    let mut e = loading(4, "augment", 0.2, 0.0, 0.01);
    for batch in &mut e.loading.batches {
        batch.process_cpu = 4.0 * batch.cpu;
    }
    e.load.worker_threads = 8.0;
    e.load.busy = CORES;
    assert!(!judge(&e).verdict.fix.unwrap().apply.unwrap().env.is_empty());
    e.edits = vec![known("threads")];
    assert_eq!(changed(&e, "cpu-oversubscription").len(), 2);
    assert!(judge(&e).verdict.fix.unwrap().title.contains("start"));
}

/// The time of a step goes into these lines of the script: `call` with a function that loops in Python, or one that saves.
fn beside(cpu: f64, file: &str, func: &str, call: &str, compute: f64) -> Evidence {
    let mut e = looping(2, 1e-4, compute);
    let named = |file: &str, func: &str, line, call: &str| record::Frame {
        file: file.to_owned(),
        func: func.to_owned(),
        line,
        call: call.to_owned(),
        ..record::Frame::default()
    };
    let culprit = crate::evidence::Culprit {
        frame: named(file, func, 12, ""),
        call: Some(named("/home/me/train.py", "<module>", 40, call)),
        time: cpu,
        cpu,
        ..Default::default()
    };
    let rest = StageTime { name: "forward", cpu: compute - cpu, ..StageTime::default() };
    e.stages.looping =
        vec![rest, StageTime { name: "log", cpu, culprits: vec![culprit], ..StageTime::default() }];
    e.steps.steps.iter_mut().for_each(|step| step.thread_cpu = compute);
    e
}

#[test]
fn a_checkpoint_is_saving_and_not_logging() {
    let e = beside(0.012, "/x/site-packages/torch/serialization.py", "save", "torch.save(state, path)", 0.02);
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "checkpoint");
    assert!(verdict.title.contains("Saving checkpoints takes 60 %"), "{}", verdict.title);
    assert!((1.9..2.5).contains(&verdict.gain.unwrap().factor), "{:?}", verdict.gain);
    assert_eq!(verdict.fix.unwrap().place.unwrap().line, 40);
}

#[test]
fn garbage_that_is_collected_in_each_step_is_its_own_cause() {
    let e = beside(0.012, "/home/me/util.py", "tidy", "gc.collect()", 0.02);
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "garbage-collection");
    assert!(verdict.title.starts_with("`gc.collect()` takes 60 % of the loop's time"), "{}", verdict.title);
    assert!((1.9..2.5).contains(&verdict.gain.unwrap().factor), "{:?}", verdict.gain);
    assert!(!said(&e).contains(&"sync-logging".to_owned()));
}

#[test]
fn a_function_of_the_loop_that_loops_in_python_is_the_verdict() {
    let mut e = beside(0.0116, "/home/me/metrics.py", "f1", "f1(out, y)", 0.02);
    e.edits = vec![crate::edit::Edit {
        kind: "loops".to_owned(),
        file: "/home/me/metrics.py".to_owned(),
        line: 10,
        last: 15,
        func: "f1".to_owned(),
        hunks: Vec::new(),
    }];
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "python-step");
    assert!(verdict.title.starts_with("f1 takes 58 % of the loop's time"), "{}", verdict.title);
    assert!((1.9..2.5).contains(&verdict.gain.unwrap().factor), "{:?}", verdict.gain);
}

#[test]
fn a_loop_that_waits_a_fifth_of_the_time_is_not_healthy() {
    for wait in [0.006, 0.02, 0.1] {
        let mut e = looping(2, wait, 0.02);
        // Nothing is known of how its batches are made.
        e.loaders[0].loader.framework = "mine".to_owned();
        assert_eq!(judge(&e).verdict.id, "unknown", "{wait}");
        // Unless wellfed's loader was tried, and makes nothing faster.
        let feed = crate::report::Apply { feed: true, ..Default::default() };
        e.tried = vec![Tried { apply: feed, before: 0.02, after: 0.021, ..Tried::default() }];
        let verdict = judge(&e).verdict;
        assert_eq!(verdict.id, "healthy", "{wait}");
        assert!(verdict.title.contains("nothing that is known"), "{}", verdict.title);
    }
    assert_eq!(judge(&looping(2, 0.001, 0.02)).verdict.family, "healthy");
}

#[test]
fn gains_are_of_the_script_and_the_loop_is_said_first() {
    let mut e = loading(0, "decode", 0.02, 0.0, 0.02);
    let alone = judge(&e).verdict.gain.unwrap().factor;
    let place = record::Place {
        file: "/home/me/train.py".to_owned(),
        line: 31,
        code: "val_loader = DataLoader(val_set)".to_owned(),
        ..record::Place::default()
    };
    e.loaders[0].loader.place = Some(place);
    e.loaders.push(e.loaders[0].clone());
    e.script.time = 18.0;
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "serial-loading");
    let start = "The evaluation loop (its loader: train.py:31), 50 % of the script's time: Batches";
    assert!(verdict.title.starts_with(start), "{}", verdict.title);
    let expected = 1.0 / (0.5 + 0.5 / alone);
    assert!((verdict.gain.unwrap().factor - expected).abs() < 1e-9);
}

#[test]
fn what_a_trial_refutes_is_no_fix_and_what_it_shows_is_said() {
    let mut e = loading(0, "decode", 0.02, 0.0, 0.02);
    let apply = judge(&e).verdict.fix.unwrap().apply.unwrap();
    assert!(judge(&e).verdict.measured.is_none());
    let tried = |after| Tried { apply: apply.clone(), before: 0.04, after, ..Tried::default() };
    e.tried = vec![tried(0.02)];
    assert!((judge(&e).verdict.measured.unwrap().factor - 2.0).abs() < 1e-9);
    e.tried = vec![tried(0.0395)];
    let judged = judge(&e);
    let all = [Some(judged.verdict), judged.runner_up].into_iter().flatten().chain(judged.others);
    assert!(all.filter_map(|verdict| verdict.fix?.apply).all(|other| other != apply));
    assert!(e.tried[0].note().unwrap().contains("1.01 times as fast"));
}

#[test]
fn an_edit_is_tried_as_settings_are() {
    let mut e = loading(0, "read", 0.02, 0.0, 0.02);
    e.edits = vec![known("map")];
    e.stages.loading = vec![at_line_7("read", 0.02)];
    let advised = |e: &Evidence| {
        let judged = judge(e);
        [Some(judged.verdict), judged.runner_up]
            .into_iter()
            .flatten()
            .chain(judged.others)
            .find(|it| it.id == "whole-file")
    };
    let verdict = advised(&e).unwrap();
    let change = Tried { before: 0.04, after: 0.02, ..Tried::of(&verdict).unwrap() };
    assert_eq!(change.edit.as_ref().map(|edit| edit.lines.len()), Some(2));
    assert_eq!(change.apply, crate::report::Apply::default());
    e.tried = vec![change.clone()];
    let measured = advised(&e).unwrap().measured.unwrap();
    assert!((measured.factor - 2.0).abs() < 1e-9 && measured.low < 2.0 && measured.high > 2.0);
    // Another edit of the same file is another change.
    e.edits[0].hunks[0].change = "    c".to_owned();
    assert!(advised(&e).unwrap().measured.is_none());
    e.edits = vec![known("map")];
    e.tried[0].after = 0.0395;
    assert!(advised(&e).is_none());
    e.tried = vec![Tried { fails: true, problem: "the script fails with it".to_owned(), ..change }];
    assert!(advised(&e).is_none());
    assert!(e.tried[0].note().unwrap().contains("the script failed"));
}

#[test]
fn what_one_change_of_a_line_gained_others_of_it_do_not_gain_more_than() {
    let finding = |line: u32, factor: f64, measured: Option<f64>| {
        let place = record::Place { file: "train.py".to_owned(), line, ..Default::default() };
        let verdict = Verdict {
            fix: Some(Fix { place: Some(place), ..Fix::default() }),
            gain: Some(Gain { factor, low: 0.8 * factor, high: 1.25 * factor }),
            measured: measured.map(|factor| crate::report::Measured { factor, ..Default::default() }),
            ..Verdict::default()
        };
        Finding { verdict, kind: Kind::Work }
    };
    let mut findings = vec![finding(7, 4.0, Some(2.0)), finding(7, 9.0, None), finding(8, 9.0, None)];
    learn(&mut findings);
    let gain = findings[1].verdict.gain.unwrap();
    assert!((gain.factor - 3.0).abs() < 1e-9 && (gain.low - 2.4).abs() < 1e-9, "{gain:?}");
    assert_eq!(findings[2].verdict.gain.unwrap().factor, 9.0);
}

#[test]
fn functions_that_wait_do_not_loop_in_python() {
    let mut e = beside(0.02, "/home/me/train.py", "finish", "finish()", 0.03);
    let mut edit = known("loops");
    (edit.file, edit.line, edit.last) = ("/home/me/train.py".to_owned(), 10, 14);
    e.edits = vec![edit];
    assert_eq!(judge(&e).verdict.id, "python-step");
    for culprit in &mut e.stages.looping[1].culprits {
        culprit.cpu = 0.0;
    }
    assert!(!said(&e).contains(&"python-step".to_owned()));
}

#[test]
fn what_writes_a_checkpoint_is_known_by_what_called_it() {
    let mut e =
        beside(0.012, "/x/site-packages/h5py/_hl/dataset.py", "make_new_dset", "model.fit(data)", 0.02);
    e.stages.looping[1].culprits[0].saves = true;
    assert_eq!(judge(&e).verdict.id, "checkpoint");
}

#[test]
fn a_model_that_is_called_for_each_sample_is_told() {
    let mut e = looping(2, 1e-4, 0.02);
    e.steps.steps.iter_mut().for_each(|step| step.thread_cpu = 0.02);
    let mut forward = at_line_7("forward", 0.008);
    forward.culprits[0].frame.call = "model(one[None])".to_owned();
    e.stages.looping = vec![forward, StageTime { name: "backward", cpu: 0.01, ..StageTime::default() }];
    let batch = e.batch_size();
    let of = |repeats: u32, e: &mut Evidence| {
        e.model = Some(record::Model { module_calls: 3 * repeats, repeats, ..record::Model::default() });
        judge(e).verdict
    };
    let verdict = of(batch as u32, &mut e);
    assert_eq!(verdict.id, "launch-bound");
    let fix = verdict.fix.unwrap();
    assert_eq!(fix.place.unwrap().line, 7);
    assert!(fix.change.contains("model(one[None])"), "{}", fix.change);
    assert!(!of(2, &mut e).title.contains("called"), "two views of each sample are as they should be");
}

#[test]
fn what_a_trial_measures_comes_before_what_is_promised() {
    let mut e = loading(0, "decode", 0.02, 0.0, 0.02);
    let workers = judge(&e).verdict.fix.unwrap().apply.unwrap();
    assert_eq!(judge(&e).runner_up.unwrap().id, "decode");
    // Workers gain less than decoding is promised to.
    let tried = |apply: &crate::report::Apply, after| Tried {
        apply: apply.clone(),
        before: 0.04,
        after,
        ..Tried::default()
    };
    e.tried = vec![tried(&workers, 0.036)];
    assert_eq!(said(&e)[..2], ["decode", "serial-loading"]);
    // wellfed's loader gains most, and nothing else says why.
    let feed = crate::report::Apply { feed: true, ..crate::report::Apply::default() };
    e.tried.push(tried(&feed, 0.01));
    let verdict = judge(&e).verdict;
    assert_eq!((verdict.id.as_str(), verdict.fix.unwrap().apply), ("stock-loader", Some(feed.clone())));
    assert!((verdict.gain.unwrap().factor - 4.0).abs() < 1e-9 && verdict.measured.is_some());
    e.tried[1] = tried(&feed, 0.039);
    assert!(!said(&e).contains(&"stock-loader".to_owned()));
}

#[test]
fn collating_in_python_is_not_said_to_stack_tensors() {
    let mut e = loading(4, "collate", 0.2, 0.0, 0.01);
    let why = |e: &Evidence| judge(e).verdict.fix.unwrap().why;
    assert!(why(&e).contains("Each tensor"));
    e.loaders[0].loader.collate = "padded".to_owned();
    assert!(!why(&e).contains("Each tensor") && why(&e).contains("collate function"));
}

#[test]
fn what_takes_long_in_a_function_without_a_loop_is_what_it_calls() {
    let mut e = loading(4, "python", 0.2, 0.0, 0.01);
    let mut stage = at_line_7("python", 0.2);
    stage.culprits[0].frame.call = "(scan * 2).clip(0, 1)".to_owned();
    e.stages.loading = vec![stage];
    let title = |e: &Evidence| judge(e).verdict.title;
    assert!(title(&e).starts_with("Python code for each sample"), "{}", title(&e));
    let of = |kind: &str, (line, last): (u32, u32)| crate::edit::Edit {
        line,
        last,
        hunks: Vec::new(),
        ..known(kind)
    };
    e.edits = vec![of("straight", (5, 9))];
    // Looks from inside find where the interpreter's lock is given up.
    assert!(title(&e).starts_with("Python code for each sample"), "{}", title(&e));
    e.stages.outside_looks = 100;
    assert!(title(&e).starts_with("`(scan * 2).clip(0, 1)` for each sample"), "{}", title(&e));
    // It is within another one, which loops.
    e.edits = vec![of("straight", (1, 30)), of("loops", (6, 8))];
    assert!(title(&e).starts_with("Python code for each sample"), "{}", title(&e));
}
