//! Loaders that are made anew for each epoch.

use super::*;
use crate::system::Picture;

#[test]
fn images_larger_than_batches_have_them_are_told_by_their_heads() {
    let mut e = loading(4, "decode", 0.04, 0.0, 0.001);
    e.batch =
        Some(record::Batch { shapes: vec!["uint8[16, 3, 64, 64]".to_owned()], ..record::Batch::default() });
    let pictures = |side: u32| vec![Picture { height: side, width: side }; 9];
    e.pictures = pictures(256);
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "decode");
    assert!(verdict.title.starts_with("Images are decoded at 16.0 times the pixels"), "{}", verdict.title);
    assert!(verdict.fix.unwrap().title.contains("64 x 64") && verdict.gain.unwrap().factor > 3.0);
    // Those of the right size can be decoded faster, or not at all.
    e.pictures = pictures(64);
    assert!(!said(&e).contains(&"decode".to_owned()));
}

#[test]
fn wellfeds_engine_reads_what_it_knows_by_itself() {
    let mut e = loading(4, "read", 0.04, 0.0, 0.001);
    let fed = |plan: &str| Some(record::Fed { plan: plan.to_owned(), ..record::Fed::default() });
    e.fed = fed("python");
    assert!(!said(&e).contains(&"stock-loader".to_owned()));
    e.fed = fed("tensors");
    let verdict = judge(&e).verdict;
    assert!(verdict.id == "stock-loader" && verdict.fix.unwrap().apply.unwrap().feed);
}

/// Four workers that compute all the time, and a step whose threads want the same cores.
fn crowded(queued: f64) -> Evidence {
    let mut e = loading(4, "python", 0.03, 0.0, 0.02);
    for step in &mut e.steps.steps {
        (step.thread_cpu, step.process_cpu, step.wait) = (0.018, 0.05, 1e-3);
    }
    e.load.busy = CORES;
    e.load.making = crate::evidence::Use { cpu: 1.4, ..crate::evidence::Use::default() };
    e.load.training = crate::evidence::Use { cpu: 2.4, queued, ..crate::evidence::Use::default() };
    e
}

#[test]
fn work_of_workers_counts_where_a_step_wants_their_cores() {
    let gain = |queued| found(&crowded(queued), "python-overhead").map_or(1.0, |it| it.gain.unwrap().factor);
    let (apart, crowded) = (gain(0.0), gain(0.9));
    assert!(crowded > 1.2 * apart, "{crowded} {apart}");
}

/// Epochs of 20 steps that begin with half a second of starting workers.
fn restarting(made: u32) -> Evidence {
    let mut e = loading(2, "python", 0.002, 0.0, 0.01);
    e.loaders[0].loader.persistent_workers = false;
    e.steps.starts = vec![0.5; 5];
    e.steps.ends = vec![0.01; 5];
    e.steps.steps_per_epoch = 20.0;
    e.loaders[0].loader.made = made;
    e
}

#[test]
fn workers_of_a_loader_that_is_made_anew_are_kept_with_the_loader() {
    let fix = |made| {
        let verdict = judge(&restarting(made)).verdict;
        assert_eq!(verdict.id, "worker-restart");
        verdict.fix.unwrap()
    };
    assert!(fix(0).apply.is_some_and(|apply| apply.loader.contains_key("persistent_workers")));
    let fix = fix(5);
    // What is set from outside would end with each loader.
    assert!(fix.apply.is_none());
    assert!(
        fix.title.starts_with("Make the loader once") && fix.change.starts_with("# once, before the loop"),
        "{fix:?}"
    );
}

#[test]
fn workers_that_would_start_with_each_loader_have_to_be_worth_it() {
    let gain = |made| {
        let mut e = loading(0, "python", 0.01, 0.0, 0.01);
        e.loaders[0].loader.persistent_workers = false;
        e.steps.steps_per_epoch = 8.0;
        e.loaders[0].loader.made = made;
        found(&e, "serial-loading").map(|verdict| {
            let kept = verdict.fix.unwrap().apply.unwrap().loader.contains_key("persistent_workers");
            (verdict.gain.unwrap().factor, kept)
        })
    };
    let (once, kept) = gain(0).unwrap();
    assert!(once > 1.5 && kept, "{once}");
    // An epoch takes 160 ms, and starting two workers 50.
    assert!(gain(10).is_none_or(|(anew, kept)| anew < 0.85 * once && !kept));
}
