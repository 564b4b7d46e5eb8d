//! How batches are made: in workers or inline, what each cost, and what each sample cost.

use std::collections::BTreeMap;

use super::{mean, seconds};
use crate::{
    record::{self, Record},
    run_dir::{ProcessRecords, RunDir},
};

/// A batch that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Batch {
    /// Begin, nanoseconds.
    pub t0: u64,
    /// End, nanoseconds.
    pub t1: u64,
    /// Worker, -1 inline.
    pub worker: i64,
    /// Samples.
    pub samples: u32,
    /// Seconds.
    pub wall: f64,
    /// CPU seconds of the thread that made it.
    pub cpu: f64,
    /// CPU seconds of its process: with threads of NumPy and others.
    pub process_cpu: f64,
    /// Seconds it was runnable, but no core was free.
    pub delay: f64,
    /// Seconds of collation.
    pub collate: f64,
    /// CPU seconds of collation.
    pub collate_cpu: f64,
    /// Bytes read.
    pub bytes: f64,
    /// Bytes that came from storage.
    pub disk_bytes: f64,
    /// Files opened.
    pub opens: f64,
    /// Whether the kernel was asked about it, so that delay and bytes are its own.
    pub exact: bool,
    /// Batches it stands for: where they are short, not all are recorded.
    pub every: f64,
}

impl Batch {
    /// Seconds in which it neither ran nor could have run: waiting for storage, the network, a lock, or asleep.
    pub fn blocked(&self) -> f64 {
        (self.wall - self.cpu - self.delay).max(0.0)
    }

    /// How many cores its process kept busy while it was made, at least 1.
    pub fn parallel(&self) -> f64 {
        if self.cpu > 0.0 { (self.process_cpu / self.cpu).max(1.0) } else { 1.0 }
    }
}

/// A sample that was made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Its index, -1 if it is no number.
    pub index: i64,
    /// Seconds.
    pub wall: f64,
    /// CPU seconds.
    pub cpu: f64,
    /// Bytes read, if they were counted.
    pub bytes: Option<f64>,
    /// Files opened.
    pub opens: f64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Loading {
    /// Processes that make batches.
    pub pids: Vec<u32>,
    /// Whether they are workers, not the training process itself.
    pub in_workers: bool,
    /// Batches made in the steady state, in the order they were begun.
    pub batches: Vec<Batch>,
    /// Samples made in the steady state.
    pub samples: Vec<Sample>,
    /// Seconds a worker takes to send a batch, mean.
    pub send: f64,
    /// Of that, CPU seconds.
    pub send_cpu: f64,
    /// Bytes of a pickled batch, mean.
    pub send_bytes: f64,
    /// Seconds between two batches of a worker that has the next one to make already: to send one and be told of the other.
    pub gap: f64,
    /// Share of the time workers are busy with a batch, 0 to 1, mean over workers.
    pub busy: f64,
    /// Some files that were opened: path and size.
    pub files: Vec<(String, u64)>,
    /// The first files that each process opened, in order.
    pub opened: Vec<Vec<String>>,
}

impl Loading {
    pub(super) fn of(
        run: &RunDir,
        main: &ProcessRecords,
        loader: &record::Loader,
        window: (u64, u64),
    ) -> Self {
        let mut loading = Self { in_workers: loader.num_workers > 0, ..Self::default() };
        let mut sends = (0.0, 0.0, 0.0, 0u32);
        let mut workers = Vec::new();
        for process in family(run, main) {
            let mut made = false;
            let mut opened = Vec::new();
            for record in &process.records {
                match record {
                    Record::Fetch(fetch) if fetch.loader == loader.loader => {
                        made = true;
                        loading.batches.extend(batches(fetch).filter(|batch| ends_in(batch.t1, window)));
                    }
                    Record::Samples(samples) if samples.loader == loader.loader => {
                        loading.samples.extend(self::samples(samples, window));
                    }
                    Record::Send(send) if send.loader == loader.loader => {
                        for (i, (&t0, &t1)) in send.t0.iter().zip(&send.t1).enumerate() {
                            if ends_in(t1, window) {
                                sends.0 += seconds(t1.saturating_sub(t0));
                                sends.1 += send.cpu.get(i).map_or(0.0, |&cpu| seconds(cpu));
                                sends.2 += send.bytes.get(i).map_or(0.0, |&bytes| bytes as f64);
                                sends.3 += 1;
                            }
                        }
                    }
                    Record::Files(files) => {
                        let room = FIRST.saturating_sub(opened.len());
                        opened.extend(files.paths.iter().take(room).cloned());
                        let known = files.paths.iter().cloned().zip(files.sizes.iter().copied());
                        loading.files.extend(known.take(1_000 - loading.files.len().min(1_000)));
                    }
                    _ => {}
                }
            }
            if made {
                loading.pids.push(process.pid);
                workers.push(process.pid);
                loading.opened.push(opened);
            }
        }
        let count = f64::from(sends.3.max(1));
        (loading.send, loading.send_cpu, loading.send_bytes) =
            (sends.0 / count, sends.1 / count, sends.2 / count);
        let length = seconds(window.1.saturating_sub(window.0));
        if length > 0.0 {
            let concurrent = if loading.in_workers { loader.num_workers as f64 } else { 1.0 };
            loading.busy = (loading.batches.iter().map(|batch| batch.wall * batch.every).sum::<f64>()
                / (length * concurrent))
                .min(1.0);
        }
        loading.batches.sort_by_key(|batch| batch.t0);
        loading.gap = gap(&loading.batches);
        fill_unknown(&mut loading.batches);
        loading
    }

    /// The file that is opened most, its size, and its share of all that is opened.
    pub fn most_opened(&self) -> Option<(&str, u64, f64)> {
        let mut times: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
        for (path, size) in &self.files {
            let entry = times.entry(path).or_insert((*size, 0));
            entry.1 += 1;
        }
        let (path, (size, count)) = times.into_iter().max_by_key(|(_, (_, count))| *count)?;
        (count > 1).then(|| (path, size, f64::from(count) / self.files.len() as f64))
    }

    /// Whether all processes open the same files in the same order: each of them reads everything.
    pub fn all_open_the_same(&self) -> bool {
        let mut lists = self.opened.iter();
        let Some(first) = lists.next().filter(|list| !list.is_empty()) else { return false };
        self.opened.len() > 1
            && lists.all(|list| !list.is_empty() && list.iter().zip(first).all(|(a, b)| a == b))
    }

    /// Samples a batch, mean.
    pub fn samples_per_batch(&self) -> f64 {
        mean(self.batches.iter().map(|batch| f64::from(batch.samples)))
    }

    /// Mean of something over all batches.
    pub fn mean(&self, what: impl Fn(&Batch) -> f64) -> f64 {
        mean(self.batches.iter().map(what))
    }
}

/// Files of each process that are kept in order.
const FIRST: usize = 64;

/// Processes that descend from `main`, and itself.
fn family<'a>(run: &'a RunDir, main: &'a ProcessRecords) -> impl Iterator<Item = &'a ProcessRecords> {
    let parents: BTreeMap<u32, u32> = run
        .processes
        .iter()
        .flat_map(|process| &process.records)
        .filter_map(
            |record| if let Record::Hello(hello) = record { Some((hello.pid, hello.ppid)) } else { None },
        )
        .collect();
    run.processes.iter().filter(move |process| {
        let mut pid = process.pid;
        // Process ids may be used again, so a chain could be a circle.
        for _ in 0..32 {
            if pid == main.pid {
                return true;
            }
            match parents.get(&pid) {
                Some(&parent) => pid = parent,
                None => return false,
            }
        }
        false
    })
}

/// Whether something belongs to a window by its end: of what takes as long as the window, hardly any lies wholly in it, and that would be
/// the short ones.
fn ends_in(end: u64, window: (u64, u64)) -> bool {
    end >= window.0 && end <= window.1
}

fn batches(fetch: &record::Fetch) -> impl Iterator<Item = Batch> {
    let at = |list: &[u64], i: usize| list.get(i).map_or(0.0, |&nanos| seconds(nanos));
    let count = |list: &[u64], i: usize| list.get(i).map_or(0.0, |&count| count as f64);
    fetch.t0.iter().zip(&fetch.t1).enumerate().map(move |(i, (&t0, &t1))| Batch {
        t0,
        t1,
        worker: fetch.worker,
        samples: fetch.n.get(i).copied().unwrap_or(0),
        wall: seconds(t1.saturating_sub(t0)),
        cpu: at(&fetch.cpu, i),
        process_cpu: at(&fetch.process_cpu, i),
        delay: at(&fetch.delay, i),
        collate: at(&fetch.collate, i),
        collate_cpu: at(&fetch.collate_cpu, i),
        bytes: count(&fetch.bytes, i),
        disk_bytes: count(&fetch.disk_bytes, i),
        opens: fetch.opens.get(i).map_or(0.0, |&opens| f64::from(opens)),
        exact: fetch.exact.as_ref().is_none_or(|exact| exact.contains(&(i as u32))),
        every: f64::from(fetch.every.max(1)),
    })
}

fn samples(samples: &record::Samples, window: (u64, u64)) -> impl Iterator<Item = Sample> {
    samples.wall.iter().enumerate().filter_map(move |(i, &wall)| {
        if samples.t0.get(i).is_some_and(|&t0| !ends_in(t0.saturating_add(wall), window)) {
            return None;
        }
        Some(Sample {
            index: samples.index.get(i).copied().unwrap_or(-1),
            wall: seconds(wall),
            cpu: samples.cpu.get(i).map_or(0.0, |&cpu| seconds(cpu)),
            bytes: samples.bytes.get(i).map(|&bytes| bytes as f64),
            opens: samples.opens.get(i).map_or(0.0, |&opens| f64::from(opens)),
        })
    })
}

/// A low quantile, since a worker that is ahead waits until it is asked. Where batches are so short that not all are recorded, nothing
/// can be said.
fn gap(batches: &[Batch]) -> f64 {
    let mut ends: BTreeMap<i64, u64> = BTreeMap::new();
    let mut gaps: Vec<f64> = batches
        .iter()
        .filter(|batch| batch.worker >= 0)
        .filter_map(|batch| Some(seconds(batch.t0.saturating_sub(ends.insert(batch.worker, batch.t1)?))))
        .collect();
    if batches.iter().any(|batch| batch.every > 1.0) {
        return 0.0;
    }
    gaps.sort_by(f64::total_cmp);
    let gap = gaps.get(gaps.len() / 5).copied().unwrap_or(0.0);
    if gap < mean(batches.iter().map(|batch| batch.wall)) { gap } else { 0.0 }
}

/// The kernel is asked about some batches only where they are short. Gives the others the mean of those, so that sums stay true.
fn fill_unknown(batches: &mut [Batch]) {
    let seen: Vec<Batch> = batches.iter().copied().filter(|batch| batch.exact).collect();
    if seen.is_empty() {
        return;
    }
    let (delay, bytes, disk_bytes) = (
        mean(seen.iter().map(|batch| batch.delay)),
        mean(seen.iter().map(|batch| batch.bytes)),
        mean(seen.iter().map(|batch| batch.disk_bytes)),
    );
    for batch in batches.iter_mut().filter(|batch| !batch.exact) {
        (batch.delay, batch.bytes, batch.disk_bytes) = (delay.min(batch.wall), bytes, disk_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_time_is_what_neither_ran_nor_waited_for_a_core() {
        let batch = Batch { wall: 1.0, cpu: 0.25, process_cpu: 0.5, delay: 0.25, ..Batch::default() };
        assert!((batch.blocked() - 0.5).abs() < 1e-12);
        assert!((batch.parallel() - 2.0).abs() < 1e-12);
    }

    #[test]
    fn batches_that_take_longer_than_the_window_count() {
        const S: u64 = 1_000_000_000;
        let hello = Record::Hello(record::Hello { pid: 10, ppid: 1, ..record::Hello::default() });
        let fetch = Record::Fetch(record::Fetch {
            worker: 0,
            n: vec![8; 4],
            t0: vec![0, 3 * S, 6 * S, 9 * S],
            t1: vec![3 * S, 6 * S, 9 * S, 12 * S],
            cpu: vec![S; 4],
            every: 1,
            ..record::Fetch::default()
        });
        let process = ProcessRecords { pid: 10, records: vec![hello, fetch], ..ProcessRecords::default() };
        let run = RunDir { processes: vec![process], ..RunDir::default() };
        let loader = record::Loader { num_workers: 1, ..record::Loader::default() };
        let made = |window| Loading::of(&run, &run.processes[0], &loader, window).batches.len();
        assert_eq!(made((4 * S, 7 * S)), 1);
        assert_eq!(made((4 * S, 9 * S)), 2);
        assert_eq!(made((13 * S, 14 * S)), 0);
    }

    #[test]
    fn only_the_family_of_the_main_process_counts() {
        let hello = |pid, ppid| ProcessRecords {
            pid,
            records: vec![Record::Hello(record::Hello { pid, ppid, ..record::Hello::default() })],
            ..ProcessRecords::default()
        };
        let run = RunDir {
            processes: vec![hello(10, 1), hello(11, 10), hello(12, 11), hello(20, 1)],
            ..RunDir::default()
        };
        let pids: Vec<u32> = family(&run, &run.processes[0]).map(|process| process.pid).collect();
        assert_eq!(pids, [10, 11, 12]);
    }
}
