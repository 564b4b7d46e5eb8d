//! Loaders that one line makes anew, for each epoch say: to a report they are one loader with several epochs.

use std::collections::HashMap;

use crate::{
    record::{Loader, Record},
    run_dir::ProcessRecords,
};

/// What a loader of a process is called instead, and how many iterators came before its own.
type Names = HashMap<u32, (u32, u32)>;

/// Gives loaders that the same line made, one after the other and with the same settings, the number of the first of them.
pub(crate) fn join(processes: &mut [ProcessRecords]) {
    let found: HashMap<u32, Names> =
        processes.iter().map(|process| (process.pid, names(&process.records))).collect();
    for process in processes {
        // Workers go by the numbers of the process that they were forked from.
        let parent = process.records.iter().find_map(|record| match record {
            Record::Hello(hello) => Some(hello.ppid),
            _ => None,
        });
        let own = found.get(&process.pid).filter(|names| !names.is_empty());
        if let Some(names) = own.or_else(|| found.get(&parent?)) {
            rename(&mut process.records, names);
        }
    }
}

/// When a loader's iterators began and ended, nanoseconds, and how many there were.
#[derive(Clone, Copy, Debug)]
struct Turns {
    begin: u64,
    end: u64,
    iterators: u32,
}

fn names(records: &[Record]) -> Names {
    let mut loaders: Vec<&Loader> = Vec::new();
    let mut turns: HashMap<u32, Turns> = HashMap::new();
    let mut turn = |loader: u32, iter: u32, begin: u64, end: u64| {
        let new = Turns { begin, end, iterators: 0 };
        let all = turns.entry(loader).or_insert(new);
        (all.begin, all.end) = (all.begin.min(begin), all.end.max(end));
        all.iterators = all.iterators.max(iter + 1);
    };
    for record in records {
        match record {
            Record::Loader(loader) => loaders.push(loader),
            Record::Iter(iter) => turn(iter.loader, iter.iter, iter.t0, iter.t1),
            Record::Steps(steps) => {
                let (first, last) = (steps.t0.first(), steps.t1.last());
                if let (Some(&first), Some(&last)) = (first, last) {
                    turn(steps.loader, steps.iter, first, last);
                }
            }
            Record::End(end) => turn(end.loader, end.iter, end.t0, end.t),
            _ => {}
        }
    }
    let mut names = Names::new();
    // The first of those that are alike, and their turns so far.
    let mut firsts: Vec<(&Loader, Turns)> = Vec::new();
    for loader in loaders {
        let Some(&own) = turns.get(&loader.loader) else { continue };
        match firsts.iter_mut().find(|(first, before)| alike(first, loader) && before.end <= own.begin) {
            Some((first, before)) => {
                names.insert(loader.loader, (first.loader, before.iterators));
                before.iterators += own.iterators;
                before.end = own.end;
            }
            None => firsts.push((loader, own)),
        }
    }
    names
}

/// Whether two loaders are the same but for when they were made. wellfed's own count over all of their epochs, so they stay apart.
fn alike(a: &Loader, b: &Loader) -> bool {
    let rest = |loader: &Loader| Loader { t: 0, loader: 0, ..loader.clone() };
    a.framework == "torch" && a.place.is_some() && rest(a) == rest(b)
}

fn rename(records: &mut Vec<Record>, names: &Names) {
    let mut made: HashMap<u32, u32> = HashMap::new();
    for (first, _) in names.values() {
        *made.entry(*first).or_insert(1) += 1;
    }
    records.retain_mut(|record| {
        match record {
            Record::Loader(loader) => {
                loader.made = made.get(&loader.loader).copied().unwrap_or_default();
                return !names.contains_key(&loader.loader);
            }
            Record::Iter(iter) => both(names, &mut iter.loader, &mut iter.iter),
            Record::Steps(steps) => both(names, &mut steps.loader, &mut steps.iter),
            Record::End(end) => both(names, &mut end.loader, &mut end.iter),
            Record::Device(device) => both(names, &mut device.loader, &mut device.iter),
            Record::Fetch(fetch) => one(names, &mut fetch.loader),
            Record::Samples(samples) => one(names, &mut samples.loader),
            Record::Send(send) => one(names, &mut send.loader),
            Record::Profile(profile) => one(names, &mut profile.loader),
            Record::Batch(batch) => one(names, &mut batch.loader),
            Record::Fed(fed) => one(names, &mut fed.loader),
            _ => {}
        }
        true
    });
}

fn both(names: &Names, loader: &mut u32, iter: &mut u32) {
    if let Some(&(first, before)) = names.get(loader) {
        (*loader, *iter) = (first, before + *iter);
    }
}

fn one(names: &Names, loader: &mut u32) {
    if let Some(&(first, _)) = names.get(loader) {
        *loader = first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Fetch, Hello, Iter, Place, Steps};

    fn loader(number: u32, line: u32, workers: i64) -> Record {
        let place = Place { file: "train.py".to_owned(), line, ..Place::default() };
        Record::Loader(Loader {
            t: u64::from(number),
            loader: number,
            framework: "torch".to_owned(),
            num_workers: workers,
            place: Some(place),
            ..Loader::default()
        })
    }

    fn turn(loader: u32, begin: u64) -> [Record; 2] {
        let steps = Steps { loader, t0: vec![begin + 1], t1: vec![begin + 5], ..Steps::default() };
        [Record::Iter(Iter { loader, t0: begin, t1: begin + 1, ..Iter::default() }), Record::Steps(steps)]
    }

    fn process(pid: u32, ppid: u32, records: impl IntoIterator<Item = Record>) -> ProcessRecords {
        let hello = Record::Hello(Hello { pid, ppid, ..Hello::default() });
        let records = std::iter::once(hello).chain(records).collect();
        ProcessRecords { pid, records, ..ProcessRecords::default() }
    }

    fn iterators(process: &ProcessRecords) -> Vec<(u32, u32)> {
        let of = |record: &Record| match record {
            Record::Iter(iter) => Some((iter.loader, iter.iter)),
            _ => None,
        };
        process.records.iter().filter_map(of).collect()
    }

    #[test]
    fn a_loader_that_is_made_for_each_epoch_is_one() {
        let made = [loader(0, 7, 2), loader(1, 7, 2), loader(2, 7, 2)];
        let turns = [turn(0, 100), turn(1, 200), turn(2, 300)].into_iter().flatten();
        let fetch = Record::Fetch(Fetch { loader: 2, ..Fetch::default() });
        let mut run = [process(1, 0, made.into_iter().chain(turns)), process(2, 1, [fetch])];
        join(&mut run);
        assert_eq!(iterators(&run[0]), [(0, 0), (0, 1), (0, 2)]);
        let loaders: Vec<u32> = run[0]
            .records
            .iter()
            .filter_map(|record| if let Record::Loader(loader) = record { Some(loader.made) } else { None })
            .collect();
        assert_eq!(loaders, [3]);
        assert!(matches!(&run[1].records[1], Record::Fetch(fetch) if fetch.loader == 0));
    }

    #[test]
    fn loaders_of_other_lines_or_settings_or_at_the_same_time_are_others() {
        for (second, begin) in [(loader(1, 8, 2), 200), (loader(1, 7, 4), 200), (loader(1, 7, 2), 103)] {
            let turns = [turn(0, 100), turn(1, begin)].into_iter().flatten();
            let mut run = [process(1, 0, [loader(0, 7, 2), second].into_iter().chain(turns))];
            let before = run.clone();
            join(&mut run);
            assert_eq!(run, before);
        }
    }
}
