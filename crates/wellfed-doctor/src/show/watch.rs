//! What the live view shows, gathered from records and ticks as they come. Only the last steps and batches count.

use std::collections::{BTreeMap, VecDeque};

use crate::{
    record::Record,
    system::{GpuTick, Machine, Tick},
};

/// Steps and batches that count as now.
const RECENT: usize = 120;
/// Nanoseconds, in seconds.
const NANO: f64 = 1e-9;

/// What is known at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// What is run.
    pub command: String,
    /// Seconds since the start.
    pub elapsed: f64,
    /// Steps so far.
    pub steps: u64,
    /// Samples a batch; 0 if not known.
    pub batch_size: f64,
    /// Seconds the last steps waited for data, mean.
    pub wait: f64,
    /// Seconds they computed, mean.
    pub compute: f64,
    /// The last steps, oldest first: seconds of waiting and of computing.
    pub recent: Vec<[f64; 2]>,
    /// The way of the data, in order; the training step is no part of it.
    pub stages: Vec<LiveStage>,
    /// Worker processes; 0 if the loop loads itself.
    pub workers: u32,
    /// What the machine did since the look before.
    pub machine: MachineNow,
}

/// A stage, by its last batches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveStage {
    /// `load`, `collate`, `send`.
    pub name: String,
    /// Seconds a batch.
    pub time: f64,
    /// Batches a second that it alone could sustain.
    pub rate: f64,
}

/// See [`Snapshot::machine`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineNow {
    /// Share of the time each core was busy.
    pub cores: Vec<f32>,
    /// Cores the script used.
    pub script: f64,
    /// Cores that others used.
    pub foreign: f64,
    /// Resident bytes of the script's processes.
    pub memory: u64,
    /// Bytes there are.
    pub memory_limit: u64,
    /// Bytes a second from disk.
    pub disk: f64,
    /// Share of time the busiest disk was busy.
    pub disk_busy: f32,
    /// Bytes a second from the network.
    pub network: f64,
    /// Devices.
    pub gpus: Vec<GpuTick>,
}

/// Makes snapshots.
#[derive(Debug)]
pub struct Watch {
    command: String,
    limit: u64,
    begin: Option<u64>,
    now: u64,
    machine: MachineNow,
    loops: BTreeMap<(u32, u32), Loop>,
    fetches: BTreeMap<u32, VecDeque<Fetched>>,
    sends: BTreeMap<u32, VecDeque<f64>>,
}

/// A loader's loop in one process.
#[derive(Debug, Default)]
struct Loop {
    workers: u32,
    batch_size: f64,
    count: u64,
    recent: VecDeque<[f64; 2]>,
    /// Iterator, wait and end of the wait of the step that goes on.
    open: Option<(u32, u64, f64, u64)>,
}

#[derive(Debug)]
struct Fetched {
    time: f64,
    collate: f64,
    samples: u32,
}

impl Watch {
    /// A run of `command` on `machine`.
    pub fn new(command: &[String], machine: &Machine) -> Self {
        let limit = machine.memory_limit.map_or(machine.memory, |limit| limit.min(machine.memory));
        Self {
            command: command.join(" "),
            limit,
            begin: None,
            now: 0,
            machine: MachineNow::default(),
            loops: BTreeMap::new(),
            fetches: BTreeMap::new(),
            sends: BTreeMap::new(),
        }
    }

    /// A look at the machine. Counts are those since the one before.
    pub fn tick(&mut self, tick: &Tick) {
        let begin = *self.begin.get_or_insert(tick.t);
        let span = tick.t.saturating_sub(self.now.max(begin)) as f64 * NANO;
        let per_second = |count: u64| if span > 0.0 { count as f64 / span } else { 0.0 };
        self.now = tick.t;
        self.machine = MachineNow {
            cores: tick.cores.clone(),
            script: per_second(tick.processes.values().map(|process| process.cpu).sum()) * NANO,
            foreign: per_second(tick.foreign_cpu) * NANO,
            memory: tick.processes.values().map(|process| process.rss).sum(),
            memory_limit: self.limit,
            disk: per_second(tick.disk.bytes),
            disk_busy: tick.disk.busy,
            network: per_second(tick.received),
            gpus: tick.gpus.clone(),
        };
    }

    /// A record of process `pid`.
    pub fn record(&mut self, pid: u32, record: &Record) {
        match record {
            Record::Loader(loader) => {
                let of = self.loops.entry((pid, loader.loader)).or_default();
                of.workers = u32::try_from(loader.num_workers).unwrap_or(0);
                of.batch_size = loader.batch_size.map_or(0.0, f64::from);
            }
            Record::Steps(steps) => {
                let of = self.loops.entry((pid, steps.loader)).or_default();
                for (number, (&t0, &t1)) in (steps.first..).zip(steps.t0.iter().zip(&steps.t1)) {
                    // Of short steps some are only counted: when the one before those ended is not known.
                    if let Some((iter, before, wait, begin)) = of.open.take()
                        && (iter, before + 1) == (steps.iter, number)
                    {
                        push(&mut of.recent, [wait, t0.saturating_sub(begin) as f64 * NANO]);
                    }
                    of.open = Some((steps.iter, number, t1.saturating_sub(t0) as f64 * NANO, t1));
                    of.count += 1;
                }
            }
            Record::Fetch(fetch) => {
                let of = self.fetches.entry(fetch.loader).or_default();
                for (i, (&t0, &t1)) in fetch.t0.iter().zip(&fetch.t1).enumerate() {
                    let time = t1.saturating_sub(t0) as f64 * NANO;
                    let collate = fetch.collate.get(i).map_or(0.0, |collate| *collate as f64 * NANO);
                    push(of, Fetched { time, collate, samples: fetch.n.get(i).copied().unwrap_or(0) });
                }
            }
            Record::Send(send) => {
                let of = self.sends.entry(send.loader).or_default();
                for (&t0, &t1) in send.t0.iter().zip(&send.t1) {
                    push(of, t1.saturating_sub(t0) as f64 * NANO);
                }
            }
            _ => {}
        }
    }

    /// All of it, of the loader that has taken most steps.
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot {
            command: self.command.clone(),
            elapsed: self.now.saturating_sub(self.begin.unwrap_or(self.now)) as f64 * NANO,
            machine: self.machine.clone(),
            ..Snapshot::default()
        };
        let Some(((_, loader), of)) = self.loops.iter().max_by_key(|(_, of)| of.count) else {
            return snapshot;
        };
        snapshot.steps = of.count;
        snapshot.workers = of.workers;
        snapshot.batch_size = of.batch_size;
        snapshot.recent = of.recent.iter().copied().collect();
        snapshot.wait = mean(of.recent.iter().map(|step| step[0]));
        snapshot.compute = mean(of.recent.iter().map(|step| step[1]));
        let at_once = f64::from(of.workers.max(1));
        let stage = |name: &str, time: f64| LiveStage { name: name.to_owned(), time, rate: at_once / time };
        if let Some(fetches) = self.fetches.get(loader) {
            snapshot.stages.push(stage("load", mean(fetches.iter().map(|fetch| fetch.time - fetch.collate))));
            snapshot.stages.push(stage("collate", mean(fetches.iter().map(|fetch| fetch.collate))));
            if snapshot.batch_size == 0.0 {
                snapshot.batch_size = mean(fetches.iter().map(|fetch| f64::from(fetch.samples)));
            }
        }
        if let Some(sends) = self.sends.get(loader) {
            snapshot.stages.push(stage("send", mean(sends.iter().copied())));
        }
        snapshot.stages.retain(|stage| stage.time > 0.0);
        snapshot
    }
}

fn push<T>(list: &mut VecDeque<T>, item: T) {
    if list.len() == RECENT {
        list.pop_front();
    }
    list.push_back(item);
}

fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        record::{Fetch, Loader, Send, Steps},
        system::{Disk, Process},
    };

    const MS: u64 = 1_000_000;

    #[test]
    fn records_become_stages_and_steps() {
        let mut watch = Watch::new(&["python".into(), "train.py".into()], &Machine::default());
        assert_eq!(watch.snapshot().command, "python train.py");
        let loader = Loader { num_workers: 2, batch_size: Some(64), ..Loader::default() };
        watch.record(7, &Record::Loader(loader));
        // Three steps: each waits 30 ms and computes 10.
        let (t0, t1) = (vec![0, 40 * MS, 80 * MS], vec![30 * MS, 70 * MS, 110 * MS]);
        watch.record(7, &Record::Steps(Steps { t0, t1, ..Steps::default() }));
        // The next epoch: what lies between is no step.
        let (t0, t1) = (vec![900 * MS], vec![930 * MS]);
        watch.record(7, &Record::Steps(Steps { iter: 1, t0, t1, ..Steps::default() }));
        let (t0, t1) = (vec![0, 100 * MS], vec![80 * MS, 180 * MS]);
        watch.record(8, &Record::Fetch(Fetch { t0, t1, collate: vec![20 * MS; 2], ..Fetch::default() }));
        watch.record(8, &Record::Send(Send { t0: vec![0], t1: vec![MS], ..Send::default() }));
        let snapshot = watch.snapshot();
        assert_eq!((snapshot.steps, snapshot.workers, snapshot.batch_size), (4, 2, 64.0));
        let recent: Vec<_> =
            snapshot.recent.iter().map(|step| step.map(|time| (time * 1e3).round())).collect();
        assert_eq!(recent, [[30.0, 10.0]; 2]);
        let stages: Vec<_> =
            snapshot.stages.iter().map(|stage| (stage.name.as_str(), stage.rate.round())).collect();
        assert_eq!(stages, [("load", 33.0), ("collate", 100.0), ("send", 2000.0)]);
    }

    #[test]
    fn ticks_become_rates() {
        let machine = Machine { memory: 9, memory_limit: Some(5), ..Machine::default() };
        let mut watch = Watch::new(&[], &machine);
        let process = Process { cpu: 50 * MS, rss: 3, ..Process::default() };
        let mut tick =
            Tick { t: 5, processes: [(1, process.clone()), (2, process)].into(), ..Tick::default() };
        tick.disk = Disk { bytes: 1000, ..Disk::default() };
        watch.tick(&tick);
        // Before the first span has an end, nothing is known about rates.
        assert_eq!(watch.snapshot().machine.disk, 0.0);
        tick.t += 100 * MS;
        watch.tick(&tick);
        let now = watch.snapshot();
        assert_eq!((now.machine.script, now.machine.disk, now.machine.memory), (1.0, 10_000.0, 6));
        assert_eq!((now.machine.memory_limit, now.elapsed), (5, 0.1));
    }

    #[test]
    fn old_steps_are_forgotten() {
        let mut watch = Watch::new(&[], &Machine::default());
        let t: Vec<_> = (0..1000).map(|i| i * MS).collect();
        watch.record(1, &Record::Steps(Steps { t0: t.clone(), t1: t, ..Steps::default() }));
        let snapshot = watch.snapshot();
        assert_eq!((snapshot.steps, snapshot.recent.len()), (1000, RECENT));
    }
}
