//! Launches, computing and copies, as kernels tell them apart where the driver does not.

use super::*;
use crate::{
    evidence::{Culprit, Kernels},
    record::Frame,
};

/// A loop on a device that its driver calls busy, with so many kernels a step of so many seconds each; a step takes `step`.
fn on_device(count: f64, each: f64, step: f64) -> Evidence {
    let mut e = looping(0, 3e-4, step);
    e.steps.steps.iter_mut().for_each(|it| (it.thread_cpu, it.process_cpu) = (step, step));
    e.model =
        Some(record::Model { module_calls: 300, device: "cuda:0".to_owned(), ..record::Model::default() });
    e.stages.looping = vec![
        stage("forward", 0.34 * step, 0.0),
        stage("backward", 0.48 * step, 0.0),
        stage("optimizer", 0.1 * step, 0.0),
        stage("compute", 0.07 * step, 0.0),
    ];
    e.load.gpu_busy = Some(1.0);
    let busy = count * each;
    e.kernels = Some(Kernels { steps: 20, count, busy, each, ..Kernels::default() });
    e.device_busy = e.kernels.map(|kernels| kernels.share(e.steps.whole()));
    e
}

#[test]
fn many_short_kernels_with_gaps_are_launches() {
    let verdict = judge(&on_device(1100.0, 2.2e-6, 0.033)).verdict;
    assert_eq!(verdict.id, "launch-bound");
    let gain = verdict.gain.unwrap();
    assert!((6.0..8.0).contains(&gain.factor) && gain.low > 3.0, "{gain:?}");
    assert!(verdict.title.contains("7 %") && verdict.title.contains("1100 kernels"), "{}", verdict.title);
    let told: Vec<&str> = verdict.evidence.iter().map(|fact| fact.source.as_str()).collect();
    assert_eq!(told, ["profiler", "stacks", "nvml"]);
    assert!(verdict.fix.unwrap().title.contains("CUDA graphs"));
}

#[test]
fn kernels_that_fill_a_step_compute() {
    let judgement = judge(&on_device(900.0, 36e-6, 0.033));
    assert_eq!(judgement.verdict.id, "compute-bound");
    assert!(judgement.verdict.evidence.iter().any(|fact| fact.source == "profiler"));
    assert!(judgement.verdict.fix.unwrap().title.contains("mixed precision"));
    assert!(judgement.runner_up.is_none(), "{:?}", judgement.runner_up);
}

#[test]
fn without_kernels_a_busy_device_is_no_evidence_of_launches() {
    let mut e = on_device(1100.0, 2.2e-6, 0.033);
    (e.kernels, e.device_busy) = (None, Some(1.0));
    assert_eq!(judge(&e).verdict.id, "compute-bound");
}

#[test]
fn what_grows_with_the_batch_is_not_promised() {
    let gain = |each: f64| judge(&on_device(500.0, each, 0.02)).verdict.gain.unwrap().factor;
    // Half of the time is kernels': a batch eight times as large takes nearly eight times as long on the device.
    assert!((1.8..2.6).contains(&gain(20e-6)), "{}", gain(20e-6));
    assert!(gain(3e-6) > 2.0 * gain(20e-6));
}

#[test]
fn a_device_that_waits_for_something_else_does_not_wait_for_launches() {
    // A quarter of a millisecond for each kernel: the loop computes, in Python say.
    let judgement = judge(&on_device(100.0, 5e-6, 0.03));
    assert_ne!(judgement.verdict.id, "launch-bound");
    assert!(judgement.verdict.fix.is_none(), "nor do faster kernels help");
    // Copies take the time.
    let mut e = on_device(1100.0, 2.2e-6, 0.033);
    e.stages.looping =
        vec![stage("copy", 0.0, 0.025), stage("forward", 0.004, 0.0), stage("backward", 0.004, 0.0)];
    assert_ne!(judge(&e).verdict.id, "launch-bound");
}

#[test]
fn reading_values_in_each_step_comes_before_launches() {
    let mut e = on_device(600.0, 8e-6, 0.02);
    let call = "[loss.item() for p in model.parameters()]".to_owned();
    let frame = Frame { file: "/home/me/train.py".to_owned(), line: 9, call, ..Frame::default() };
    let culprit = Culprit { frame, time: 0.005, ..Culprit::default() };
    let sync =
        StageTime { name: "sync", cpu: 0.004, blocked: 0.001, culprits: vec![culprit], ..Default::default() };
    e.stages.looping.iter_mut().for_each(|stage| stage.cpu *= 0.75);
    e.stages.looping.push(sync);
    let judgement = judge(&e);
    assert_eq!(judgement.verdict.id, "sync-logging");
    assert!(judgement.runner_up.is_none_or(|next| next.id != "launch-bound"));
}

#[test]
fn a_copy_gains_no_more_than_kernels_leave() {
    let mut e = on_device(300.0, 73e-6, 0.048);
    let frame = Frame {
        file: "/home/me/train.py".to_owned(),
        line: 9,
        call: "x.to()".to_owned(),
        ..Frame::default()
    };
    let culprit = Culprit { frame, time: 0.039, ..Culprit::default() };
    let copy = StageTime { name: "copy", cpu: 0.039, culprits: vec![culprit], ..StageTime::default() };
    e.stages.looping = vec![copy, stage("forward", 0.004, 0.0), stage("backward", 0.005, 0.0)];
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "h2d-copy");
    let gain = verdict.gain.unwrap();
    assert!((1.9..2.3).contains(&gain.factor), "a step of kernels takes 22 ms: {gain:?}");
}

#[test]
fn copies_in_the_stream_of_the_kernels_are_told_though_nothing_waits_for_them() {
    let mut e = on_device(600.0, 33e-6, 0.03);
    let kernels = e.kernels.as_mut().unwrap();
    (kernels.copies, kernels.copies_alone) = (0.009, 0.009);
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "h2d-copy");
    let gain = verdict.gain.unwrap();
    assert!((1.3..1.5).contains(&gain.factor), "{gain:?}");
    // Beside kernels they cost nothing.
    e.kernels.as_mut().unwrap().copies_alone = 0.0005;
    assert_eq!(judge(&e).verdict.id, "compute-bound");
}
