//! Time that goes into memory: garbage that is looked for, pages that are asked for anew.

use super::*;
use crate::{
    evidence::{Garbage, Use},
    record::{Frame, Place},
};

/// A loader of 2 workers that the loop waits for, whose batches take 20 ms.
fn slow() -> Evidence {
    let mut e = loading(2, "python", 0.02, 0.0, 0.001);
    e.loaders[0].loader.place = Some(Place {
        file: "train.py".to_owned(),
        line: 9,
        code: "    loader = DataLoader(data, num_workers=2)".to_owned(),
        call: Some([13, 44]),
        wellfed: None,
    });
    e
}

#[test]
fn garbage_that_is_looked_for_while_batches_are_made_is_told() {
    let mut e = slow();
    e.garbage = Garbage { making: 0.012, training: 0.0 };
    let verdict = found(&e, "garbage-collection").unwrap();
    assert_eq!(verdict.title, "Looking for garbage takes 60 % of making a batch");
    let gain = verdict.gain.unwrap().factor;
    assert!((1.8..2.4).contains(&gain), "{gain}");
    let fix = verdict.fix.unwrap();
    assert_eq!(
        fix.change,
        "    import gc\n    gc.freeze()\n    gc.set_threshold(100_000, 50, 50)\n    loader = DataLoader(data, num_workers=2)"
    );
    assert!(fix.apply.unwrap().garbage);
    // Little of it is nothing to speak of.
    e.garbage.making = 0.0005;
    assert!(found(&e, "garbage-collection").is_none());
}

#[test]
fn workers_that_begin_anew_are_told_for_themselves() {
    let mut e = slow();
    e.garbage = Garbage { making: 0.012, training: 0.0 };
    e.loaders[0].loader.multiprocessing_context = Some("spawn".to_owned());
    let fix = found(&e, "garbage-collection").unwrap().fix.unwrap();
    assert!(fix.change.starts_with("# in worker_init_fn") && fix.apply.is_none(), "{fix:?}");
    e.loaders[0].loader.multiprocessing_context = None;
    e.software.insert("python".to_owned(), "3.14.1".to_owned());
    assert!(found(&e, "garbage-collection").unwrap().fix.unwrap().apply.is_none());
}

#[test]
fn pages_that_are_asked_for_anew_are_told() {
    let mut e = slow();
    // Both workers are at work nearly all the time, most of it in the kernel.
    e.load.making = Use { cpu: 1.9, system: 1.2, faults: 1e6, ..Use::default() };
    let verdict = found(&e, "page-faults").unwrap();
    assert!(
        verdict
            .title
            .starts_with("New memory for large arrays takes 63 % of the processor time of the workers"),
        "{}",
        verdict.title
    );
    let gain = verdict.gain.unwrap().factor;
    assert!((1.5..2.1).contains(&gain), "{gain}");
    let fix = verdict.fix.unwrap();
    assert!(fix.change.starts_with("MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=1073741824 "));
    assert_eq!(fix.apply.unwrap().env.len(), 2);
    // Kernel time without faults is something else, but for large pages.
    e.load.making.faults = 100.0;
    assert!(found(&e, "page-faults").is_none());
    (e.load.system, e.load.huge_faults, e.load.making.faults) = (1.2, 5e3, 5e3);
    assert!(found(&e, "page-faults").is_some());
    e.load.huge_faults = 0.0;
    // What a batch needs to be handed over is always new.
    e.load.making.faults = 1e6;
    let step = e.steps.whole();
    e.batch = Some(record::Batch { bytes: (0.95e6 * 4096.0 * step) as u64, ..record::Batch::default() });
    assert!(found(&e, "page-faults").is_none());
}

#[test]
fn a_step_whose_threads_have_no_core_of_their_own_is_told() {
    let mut e = loading(0, "decode", 0.01, 0.0, 0.04);
    (e.machine.cores, e.machine.scaling) = (2.0, 2.0);
    for step in &mut e.steps.steps {
        (step.thread_cpu, step.process_cpu) = (0.03, 0.055);
    }
    let told = |e: &Evidence| found(e, "cpu-oversubscription");
    assert!(told(&e).is_none(), "there are cores for both");
    (e.load.busy, e.load.foreign, e.load.ours, e.load.queued) = (2.0, 1.0, 1.0, 0.6);
    e.load.training = Use { cpu: 1.0, queued: 0.6, ..Use::default() };
    e.model = Some(record::Model { module_calls: 7, ..record::Model::default() });
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "cpu-oversubscription");
    assert_eq!(judged.runner_up.unwrap().id, "noisy-neighbour");
    let gain = judged.verdict.gain.unwrap().factor;
    assert!((2.0..4.0).contains(&gain), "{gain}");
    let apply = judged.verdict.fix.unwrap().apply.unwrap();
    assert_eq!(apply.env["OMP_NUM_THREADS"], "1");
    // Who does not wait for a core does not want fewer threads.
    e.load.training.queued = 0.05;
    assert!(told(&e).is_none());
}

#[test]
fn the_line_that_others_wait_for_is_named() {
    let mut e = loading(4, "python", 0.01, 0.03, 0.001);
    let at = |line: u32, call: &str| Frame {
        file: "/home/me/data.py".to_owned(),
        func: "Images.__getitem__".to_owned(),
        line,
        call: call.to_owned(),
        ..Frame::default()
    };
    e.stages.waited = vec![crate::evidence::Waited {
        on: "shared-lock".to_owned(),
        time: 0.028,
        at: at(11, "with self.lock:"),
    }];
    let plain = found(&e, "lock-contention").unwrap();
    assert_eq!(plain.fix.unwrap().change, "# with self.lock: take out of the lock what does not need it");
    e.stages.holding = vec![(at(13, "Image.open(path).convert(\"RGB\")"), 0.9), (at(12, "open(path)"), 0.1)];
    let verdict = found(&e, "lock-contention").unwrap();
    assert!(
        verdict.evidence.iter().any(|fact| fact.text
            == "While one waits, another is at `Image.open(path).convert(\"RGB\")` (data.py:13), 90 % of the time."),
        "{:?}",
        verdict.evidence
    );
    assert!(verdict.fix.unwrap().change.contains("take out of the lock `Image.open(path).convert(\"RGB\")`"));
}
