//! Loaders that are made anew for each epoch.

use super::*;

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
