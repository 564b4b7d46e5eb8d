//! tf.data whose elements Python makes.

use super::*;

/// Batches whose elements a generator makes in `make` seconds, which its nodes do not count; steps of 10 ms wait for them.
fn generated(make: f64, wait: f64, prefetch: bool) -> Evidence {
    let mut e = dataflow(0.0005);
    e.steps
        .steps
        .iter_mut()
        .for_each(|step| (step.wait, step.compute, step.thread_cpu) = (wait, 0.01, 0.001));
    e.loaders[0].loader.pipeline =
        ["FlatMap(flat_map_fn, generator)", "Batch(batch_size=8)"].map(str::to_owned).to_vec();
    e.load.ours = (make + 0.001) / e.steps.whole();
    if prefetch {
        let node = record::Node { name: "Prefetch".to_owned(), capacity: 2, ..record::Node::default() };
        e.flow.as_mut().unwrap().nodes.push(node);
    }
    e
}

#[test]
fn a_generator_is_not_told_to_run_in_parallel() {
    // Made ahead: a step takes as long as a batch.
    let e = generated(0.03, 0.02, true);
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "python-overhead", "{:?}", said(&e));
    let fix = judged.verdict.fix.unwrap();
    assert!(!fix.change.contains("num_parallel_calls") && fix.apply.is_none());
    assert!(!said(&e).contains(&"serial-loading".to_owned()));
    // Made when it is asked for: one batch ahead is worth as much as the step.
    let e = generated(0.02, 0.02, false);
    let ahead = found(&e, "serial-loading").unwrap();
    let apply = ahead.fix.unwrap().apply.unwrap();
    assert_eq!(apply.loader.keys().collect::<Vec<_>>(), ["prefetch"]);
    let gain = ahead.gain.unwrap().factor;
    assert!((1.35..1.6).contains(&gain), "{gain}");
}

#[test]
fn a_function_of_python_in_a_map_is_the_same_for_calls_at_once() {
    let mut e = dataflow(0.01);
    e.loaders[0].loader.pipeline = vec!["Map(<lambda>, py_function)".to_owned()];
    let judged = judge(&e);
    for verdict in [&judged.verdict].into_iter().chain(&judged.runner_up).chain(&judged.others) {
        let change = verdict.fix.as_ref().map_or("", |fix| fix.change.as_str());
        assert!(!change.contains("num_parallel_calls"), "{verdict:?}");
    }
    assert!(said(&e).contains(&"python-overhead".to_owned()), "{:?}", said(&e));
}

#[test]
fn python_that_only_names_files_is_not_what_takes_the_time() {
    let mut e = busy_dataflow(&["DecodeJpeg"], None);
    let before = said(&e);
    for first in ["FlatMap(flat_map_fn, generator)", "Map(<lambda>, py_function)"] {
        e.loaders[0].loader.pipeline = [first, "ParallelMap(decode)"].map(str::to_owned).to_vec();
        assert_eq!(said(&e), before, "{first}");
    }
    assert_eq!(before[0], "decode");
}
