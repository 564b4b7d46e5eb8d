//! Locks that workers share, and work that is done again.

use super::*;
use crate::{
    evidence::{Waited, Work},
    record::Frame,
};

fn at(call: &str) -> Frame {
    Frame { file: "/home/me/train.py".to_owned(), line: 7, call: call.to_owned(), ..Frame::default() }
}

/// A change of a known form at the line of [`at`].
fn edit(kind: &str, func: &str) -> crate::edit::Edit {
    let hunk = crate::report::Lines { line: 7, code: "made".to_owned(), change: "kept".to_owned() };
    crate::edit::Edit {
        kind: kind.to_owned(),
        file: at("").file,
        line: 7,
        last: 7,
        func: func.to_owned(),
        hunks: vec![hunk],
    }
}

#[test]
fn workers_that_wait_for_each_other_need_no_more_of_them_and_no_disk() {
    let mut e = loading(2, "python", 0.005, 0.04, 0.001);
    e.stages.waited = vec![
        Waited { on: "shared-lock".to_owned(), time: 0.03, at: at("with lock:") },
        Waited { on: "sleep".to_owned(), time: 0.01, at: at("time.sleep(0.01)") },
    ];
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "lock-contention");
    assert_eq!(judged.verdict.fix.unwrap().place.unwrap().line, 7);
    assert!(!said(&e).iter().any(|id| id.starts_with("storage") || id == "serial-loading"), "{:?}", said(&e));
    // One worker waits for nobody, and a short wait is none.
    e.loaders[0].loader.num_workers = 1;
    assert!(!said(&e).contains(&"lock-contention".to_owned()));
    e.loaders[0].loader.num_workers = 2;
    e.stages.waited[0].time = 0.001;
    assert!(!said(&e).contains(&"lock-contention".to_owned()));
}

#[test]
fn a_file_is_loaded_again_only_if_it_is_the_same_one() {
    let mut e = loading(2, "read", 0.04, 0.0, 0.001);
    e.loading.batches.iter_mut().for_each(|batch| batch.opens = 16.0);
    e.stages.works = vec![Work { kind: "load", cpu: 0.038, blocked: 0.0, at: at("np.load(path)") }];
    let path = |i: usize| (format!("/data/{i}.npz"), 20_000_000);
    e.loading.files = (0..100).map(|_| path(0)).collect();
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "read-again");
    assert!(judged.verdict.title.contains("0.npz") && judged.verdict.gain.unwrap().factor > 2.0);
    e.loading.files = (0..100).map(path).collect();
    assert!(!said(&e).contains(&"read-again".to_owned()));
}

#[test]
fn a_file_for_each_sample_is_parsed_by_the_line_that_loads_it() {
    // Half of it is reading and half unpacking, for one and the same line.
    let mut e = loading(2, "read", 0.02, 0.0, 0.001);
    e.stages.loading.push(stage("decompress", 0.02, 0.0));
    e.loading.batches.iter_mut().for_each(|batch| {
        batch.cpu = 0.04;
        batch.opens = 16.0;
    });
    e.loading.files = (0..100).map(|i| (format!("/data/{i}.npz"), 40_000)).collect();
    e.stages.works = vec![Work { kind: "load", cpu: 0.036, blocked: 0.0, at: at("np.load(path)[\"x\"]") }];
    let verdict = judge(&e).verdict;
    assert_eq!((verdict.id.as_str(), verdict.fix.unwrap().place.unwrap().line), ("small-files", 7));
    assert!(verdict.gain.unwrap().factor > 3.0);
    // Bytes that something else decodes, and files that hold many samples, are another matter.
    let parsed =
        |e: &Evidence| judge(e).verdict.title.starts_with("A file is opened and parsed for each sample");
    assert!(parsed(&e));
    e.stages.works[0].at = at("path.read_bytes()");
    assert!(!parsed(&e));
    e.stages.works[0].at = at("np.load(path)");
    e.loading.batches.iter_mut().for_each(|batch| batch.opens = 1.0);
    assert!(!parsed(&e));
}

#[test]
fn connections_and_chunks_are_told_by_the_line_that_makes_them() {
    let mut e = loading(4, "python", 0.04, 0.0, 0.001);
    e.stages.works = vec![Work { kind: "connect", cpu: 0.02, blocked: 0.0, at: at("sqlite3.connect(path)") }];
    let judged = judge(&e);
    assert_eq!(judged.verdict.id, "connect-again");
    assert!(judged.verdict.fix.unwrap().change.contains("self.connection = sqlite3.connect(path)"));
    e.edits = vec![edit("connect", "__getitem__")];
    assert_eq!(judge(&e).verdict.fix.unwrap().change, "kept");
    e.stages.works = vec![Work { kind: "open", cpu: 0.02, blocked: 0.0, at: at("h5py.File(path)") }];
    // It may be another file each time.
    assert!(!said(&e).contains(&"connect-again".to_owned()));
    e.edits = vec![edit("same", "open")];
    let change = judge(&e).verdict.fix.unwrap().change;
    assert_eq!(change, "# once in each process: if self.file is None: self.file = h5py.File(path)");
    // What is looked up in an archive, one that is kept open knows.
    e.stages.works = vec![
        Work { kind: "open", cpu: 0.002, blocked: 0.0, at: at("return tarfile.open(path)") },
        Work { kind: "search", cpu: 0.03, blocked: 0.0, at: at("file.extractfile(name)") },
    ];
    let verdict = judge(&e).verdict;
    assert!(verdict.fix.unwrap().change.ends_with("self.file = tarfile.open(path)"));
    assert!(verdict.gain.unwrap().factor > 2.0);
    e.stages.works = vec![Work { kind: "open", cpu: 0.02, blocked: 0.0, at: at("h5py.File(path)") }];
    e.edits = vec![edit("open", "__getitem__")];
    let verdict = judge(&e).verdict;
    assert_eq!((verdict.id.as_str(), verdict.fix.unwrap().change.as_str()), ("connect-again", "kept"));
    assert!(verdict.title.contains("opened for each of them"), "{}", verdict.title);
    let opened = e.stages.works[0].clone();
    e.stages.works = vec![Work { kind: "chunk", cpu: 0.035, blocked: 0.0, at: at("self.file[i]") }];
    e.batch = Some(record::Batch { bytes: 100_000, ..record::Batch::default() });
    e.loading.batches.iter_mut().for_each(|batch| batch.bytes = 150_000.0);
    assert!(!said(&e).contains(&"whole-chunks".to_owned()));
    e.loading.batches.iter_mut().for_each(|batch| batch.bytes = 1_600_000.0);
    assert_eq!(judge(&e).verdict.id, "whole-chunks");
    e.stages.works.push(opened);
    assert!(!said(&e).contains(&"whole-chunks".to_owned()), "it reads what it takes to open the file");
}

#[test]
fn a_folder_is_listed_by_the_line_that_lists_it() {
    let mut e = loading(4, "read", 0.04, 0.0, 0.001);
    e.stages.works =
        vec![Work { kind: "list", cpu: 0.03, blocked: 0.0, at: at("sorted(root.iterdir())[index]") }];
    let verdict = judge(&e).verdict;
    assert_eq!(verdict.id, "list-again");
    assert!(verdict.fix.unwrap().change.ends_with("sorted(root.iterdir())[index]"));
    e.stages.works[0].cpu = 0.002;
    assert!(!said(&e).contains(&"list-again".to_owned()));
}

#[test]
fn workers_that_open_the_same_files_in_the_same_order_do_the_same() {
    let mut e = loading(2, "python", 0.04, 0.0, 0.001);
    e.loaders[0].loader.iterable = true;
    let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    e.loading.opened = vec![list(&["a", "b", "a"]), list(&["a", "b"])];
    assert_eq!(judge(&e).verdict.id, "read-by-each");
    e.loaders[0].loader.dataset = "__main__.Lines".to_owned();
    e.edits = vec![edit("share", "Others.__iter__")];
    assert_ne!(judge(&e).verdict.fix.unwrap().change, "kept");
    e.edits = vec![edit("share", "Lines.__iter__")];
    assert_eq!(judge(&e).verdict.fix.unwrap().change, "kept");
    e.loading.opened = vec![list(&["a", "c"]), list(&["b", "d"])];
    assert!(!said(&e).contains(&"read-by-each".to_owned()));
    e.loading.opened = vec![list(&["a"]), Vec::new()];
    assert!(!said(&e).contains(&"read-by-each".to_owned()));
}
