//! The machine while the loop was in its steady state: means over the looks that fall into it.

use std::collections::BTreeMap;

use super::{Loading, mean, seconds};
use crate::system::{GpuTick, Process, Tick, Trace};

/// Means over the steady state. "Cores" are CPU seconds a second.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Looks that were averaged. Without any, the rest is 0.
    pub looks: usize,
    /// Cores that were busy.
    pub busy: f64,
    /// Cores the script's processes used.
    pub ours: f64,
    /// Of that, the training process.
    pub main: f64,
    /// Of that, in the kernel.
    pub system: f64,
    /// Cores all others used.
    pub foreign: f64,
    /// Those of the others that used the most, the first ones first; none where they cannot be seen.
    pub neighbours: Vec<Neighbour>,
    /// Threads of ours that were runnable without a core.
    pub queued: f64,
    /// Share of the time the training process's main thread was runnable without a core.
    pub main_queued: f64,
    /// Threads of a worker that used the processor at all.
    pub worker_threads: f64,
    /// Share of the time the control group was throttled.
    pub throttled: f64,
    /// Share of the time a hypervisor took.
    pub steal: f64,
    /// Share of the time cores waited for storage.
    pub iowait: f64,
    /// Bytes a second through read calls of ours.
    pub rchar: f64,
    /// Bytes a second of ours from storage.
    pub read_bytes: f64,
    /// Page faults of ours that read from storage, a second.
    pub major_faults: f64,
    /// Page faults of the whole machine that were given a huge page, a second.
    pub huge_faults: f64,
    /// What the processes use that make batches.
    pub making: Use,
    /// What the training process uses.
    pub training: Use,
    /// Bytes a second from all disks.
    pub disk: f64,
    /// Seconds a read of a disk takes.
    pub disk_latency: f64,
    /// Share of the time the busiest disk was busy.
    pub disk_busy: f64,
    /// Bytes a second received.
    pub received: f64,
    /// Bytes a second swapped in.
    pub swap_in: f64,
    /// Memory in use over what may be used, 0 to 1; the control group's if it has a limit. Page cache counts.
    pub memory: f64,
    /// Resident bytes of all processes of ours.
    pub rss: f64,
    /// Share of `/dev/shm` in use, at most.
    pub shm: f64,
    /// Share of time tasks waited for memory.
    pub memory_pressure: f64,
    /// Share of the time the first device was busy.
    pub gpu_busy: Option<f64>,
    /// Share of the first device's memory in use.
    pub gpu_memory: Option<f64>,
}

/// What some processes use, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Use {
    /// Cores.
    pub cpu: f64,
    /// Of that, in the kernel.
    pub system: f64,
    /// Threads that were runnable without a core.
    pub queued: f64,
    /// Page faults that read nothing from storage.
    pub faults: f64,
    /// Bytes through read calls.
    pub read: f64,
}

/// A process that is not the script's.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Neighbour {
    /// Its number.
    pub pid: u32,
    /// What it runs.
    pub name: String,
    /// Cores it used.
    pub cores: f64,
}

/// Those who used the processor while these looks were made, the most first. They are looked at seldom: where no such look falls into
/// the steady state, all of them count.
fn neighbours(looks: &[(f64, &Tick)], trace: &Trace) -> Vec<Neighbour> {
    let mut ticks: Vec<&Tick> =
        looks.iter().map(|(_, tick)| *tick).filter(|tick| tick.neighbours.is_some()).collect();
    if ticks.is_empty() {
        ticks = trace.ticks.iter().filter(|tick| tick.neighbours.is_some()).collect();
    }
    let mut found: BTreeMap<(u32, &str), u64> = BTreeMap::new();
    let mut time = 0;
    for look in ticks.iter().filter_map(|tick| tick.neighbours.as_ref()) {
        time += look.time;
        for process in &look.processes {
            *found.entry((process.pid, &process.name)).or_default() += process.cpu;
        }
    }
    let cores = |cpu: u64| if time > 0 { cpu as f64 / time as f64 } else { 0.0 };
    let mut all: Vec<Neighbour> = found
        .into_iter()
        .map(|((pid, name), cpu)| Neighbour { pid, name: name.to_owned(), cores: cores(cpu) })
        .filter(|neighbour| neighbour.cores >= 0.05)
        .collect();
    all.sort_by(|a, b| b.cores.total_cmp(&a.cores));
    all
}

impl Load {
    pub(super) fn of(trace: &Trace, main: u32, loading: &Loading, window: (u64, u64)) -> Self {
        let looks: Vec<(f64, &Tick)> = trace
            .ticks
            .windows(2)
            .filter(|pair| pair[0].t >= window.0 && pair[1].t <= window.1)
            .map(|pair| (seconds(pair[1].t - pair[0].t), &pair[1]))
            .filter(|&(length, _)| length > 0.0)
            .collect();
        let total: f64 = looks.iter().map(|(length, _)| length).sum();
        if total <= 0.0 {
            return Self::default();
        }
        let over_time =
            |sum: &dyn Fn(&Tick) -> f64| looks.iter().map(|(_, tick)| sum(tick)).sum::<f64>() / total;
        let weighted = |of: &dyn Fn(&Tick) -> f64| {
            looks.iter().map(|(length, tick)| of(tick) * length).sum::<f64>() / total
        };
        let all = |tick: &Tick, of: &dyn Fn(&Process) -> f64| tick.processes.values().map(of).sum::<f64>();
        let of_main = |tick: &Tick, of: &dyn Fn(&Process) -> f64| tick.processes.get(&main).map_or(0.0, of);
        let workers: Vec<u32> = loading.pids.iter().copied().filter(|&pid| pid != main).collect();
        let used = |pids: &[u32]| {
            let over = |of: &dyn Fn(&Process) -> f64| {
                over_time(&|tick| pids.iter().filter_map(|pid| tick.processes.get(pid)).map(of).sum::<f64>())
            };
            Use {
                cpu: over(&|process| seconds(process.cpu)),
                system: over(&|process| seconds(process.system)),
                queued: over(&|process| seconds(process.delay)),
                faults: over(&|process| process.minor_faults as f64),
                read: over(&|process| process.rchar as f64),
            }
        };
        let machine = &trace.machine;
        let limit = machine.memory_limit.filter(|&limit| limit < machine.memory);
        let gpu = |of: &dyn Fn(&GpuTick) -> f64| {
            looks.iter().all(|(_, tick)| !tick.gpus.is_empty()).then(|| weighted(&|tick| of(&tick.gpus[0])))
        };
        let reads = over_time(&|tick| tick.disk.reads as f64);
        Self {
            looks: looks.len(),
            busy: weighted(&|tick| tick.cores.iter().map(|&busy| f64::from(busy)).sum()),
            ours: over_time(&|tick| all(tick, &|process| seconds(process.cpu))),
            main: over_time(&|tick| of_main(tick, &|process| seconds(process.cpu))),
            system: over_time(&|tick| all(tick, &|process| seconds(process.system))),
            foreign: over_time(&|tick| seconds(tick.foreign_cpu)),
            neighbours: neighbours(&looks, trace),
            queued: over_time(&|tick| all(tick, &|process| seconds(process.delay))),
            main_queued: over_time(&|tick| of_main(tick, &|process| seconds(process.main_delay))),
            worker_threads: weighted(&|tick| {
                mean(
                    workers
                        .iter()
                        .filter_map(|pid| tick.processes.get(pid))
                        .map(|process| f64::from(process.active)),
                )
            }),
            throttled: over_time(&|tick| seconds(tick.throttled)),
            steal: weighted(&|tick| f64::from(tick.steal)),
            iowait: weighted(&|tick| f64::from(tick.iowait)),
            rchar: over_time(&|tick| all(tick, &|process| process.rchar as f64)),
            read_bytes: over_time(&|tick| all(tick, &|process| process.read_bytes as f64)),
            major_faults: over_time(&|tick| all(tick, &|process| process.major_faults as f64)),
            huge_faults: over_time(&|tick| tick.huge_faults as f64),
            making: used(&loading.pids),
            training: used(&[main]),
            disk: over_time(&|tick| tick.disk.bytes as f64),
            disk_latency: if reads > 0.0 {
                over_time(&|tick| seconds(tick.disk.read_time)) / reads
            } else {
                0.0
            },
            disk_busy: weighted(&|tick| f64::from(tick.disk.busy)),
            received: over_time(&|tick| tick.received as f64),
            swap_in: over_time(&|tick| tick.swap_in as f64),
            memory: weighted(&|tick| match (limit, tick.cgroup_memory) {
                (Some(limit), Some(used)) => used as f64 / limit as f64,
                _ if machine.memory > 0 => 1.0 - tick.memory_available as f64 / machine.memory as f64,
                _ => 0.0,
            }),
            rss: weighted(&|tick| all(tick, &|process| process.rss as f64)),
            shm: looks
                .iter()
                .map(|(_, tick)| machine.shm.map_or(0.0, |size| tick.shm_used as f64 / size.max(1) as f64))
                .fold(0.0, f64::max),
            memory_pressure: weighted(&|tick| {
                tick.pressure.as_ref().map_or(0.0, |pressure| f64::from(pressure.memory))
            }),
            gpu_busy: gpu(&|gpu| f64::from(gpu.busy)),
            gpu_memory: machine
                .gpus
                .first()
                .and_then(|device| gpu(&|gpu| gpu.memory as f64 / device.memory.max(1) as f64)),
        }
    }
}
