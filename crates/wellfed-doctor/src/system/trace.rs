//! Looks joined to longer ones: a run of a day must not take more room than one of ten minutes.

use std::collections::{BTreeMap, btree_map::Entry};

use super::{Disk, GpuTick, Neighbours, Pressure, Process, Tick, Trace};

/// What [`Trace::missing`] begins with where stacks could not be looked at from outside of a process.
const OUTSIDE: &str = "stacks from outside: ";

impl Trace {
    /// Notes why the stacks of a process could not be looked at from outside.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nothing is looked at"))]
    pub(super) fn not_seen(&mut self, why: &str) {
        self.missing.push(format!("{OUTSIDE}{why}"));
    }

    /// Why the stacks of processes could not be looked at from outside.
    pub fn not_seen_from_outside(&self) -> impl Iterator<Item = &str> {
        self.missing.iter().filter_map(|missing| missing.strip_prefix(OUTSIDE))
    }

    /// Joins each two looks but the first, which is where counting begins.
    pub(super) fn halve(&mut self) {
        let mut joined: Vec<Tick> = Vec::with_capacity(self.ticks.len() / 2 + 2);
        let mut begin = 0;
        let mut ticks = std::mem::take(&mut self.ticks).into_iter();
        if let Some(first) = ticks.next() {
            begin = first.t;
            joined.push(first);
        }
        while let Some(mut tick) = ticks.next() {
            let end = tick.t;
            if let Some(next) = ticks.next() {
                tick.join(begin, next);
            }
            begin = tick.t.max(end);
            joined.push(tick);
        }
        self.ticks = joined;
    }
}

impl Tick {
    /// Becomes the look at the time from `begin`, where this one begins, until the end of `next`, which follows.
    pub(super) fn join(&mut self, begin: u64, next: Self) {
        let (own, other) = (self.t.saturating_sub(begin) as f64, next.t.saturating_sub(self.t) as f64);
        let weight = if own + other > 0.0 { other / (own + other) } else { 1.0 };
        let mean = |a: f32, b: f32| (f64::from(a) * (1.0 - weight) + f64::from(b) * weight) as f32;
        let means = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| mean(*a, *b)).collect::<Vec<_>>();
        *self = Self {
            t: next.t,
            cores: if self.cores.len() == next.cores.len() {
                means(&self.cores, &next.cores)
            } else {
                next.cores
            },
            iowait: mean(self.iowait, next.iowait),
            steal: mean(self.steal, next.steal),
            foreign_cpu: self.foreign_cpu + next.foreign_cpu,
            neighbours: join_neighbours(self.neighbours.take(), next.neighbours),
            short_lived: self.short_lived + next.short_lived,
            processes: join_processes(std::mem::take(&mut self.processes), next.processes),
            memory_available: next.memory_available,
            page_cache: next.page_cache,
            swap_in: self.swap_in + next.swap_in,
            huge_faults: self.huge_faults + next.huge_faults,
            cgroup_memory: next.cgroup_memory,
            throttled: self.throttled + next.throttled,
            pressure: match (&self.pressure, next.pressure) {
                (Some(a), Some(b)) => Some(Pressure {
                    cpu: mean(a.cpu, b.cpu),
                    io: mean(a.io, b.io),
                    memory: mean(a.memory, b.memory),
                }),
                (_, b) => b,
            },
            disk: Disk {
                bytes: self.disk.bytes + next.disk.bytes,
                reads: self.disk.reads + next.disk.reads,
                read_time: self.disk.read_time + next.disk.read_time,
                busy: mean(self.disk.busy, next.disk.busy),
                queue: mean(self.disk.queue, next.disk.queue),
            },
            received: self.received + next.received,
            shm_used: next.shm_used.max(self.shm_used),
            gpus: if self.gpus.len() == next.gpus.len() {
                let pairs = self.gpus.iter().zip(next.gpus);
                let join = |(a, b): (&GpuTick, GpuTick)| GpuTick {
                    busy: mean(a.busy, b.busy),
                    memory: b.memory,
                    clock: mean(a.clock as f32, b.clock as f32) as u32,
                    pcie_rx: (a.pcie_rx as f64 * (1.0 - weight) + b.pcie_rx as f64 * weight) as u64,
                    decoder: mean(a.decoder, b.decoder),
                };
                pairs.map(join).collect()
            } else {
                next.gpus
            },
        };
    }
}

fn join_neighbours(own: Option<Neighbours>, next: Option<Neighbours>) -> Option<Neighbours> {
    let Some(mut own) = own else { return next };
    let Some(next) = next else { return Some(own) };
    own.time += next.time;
    for process in next.processes {
        match own.processes.iter_mut().find(|it| it.pid == process.pid && it.name == process.name) {
            Some(it) => it.cpu += process.cpu,
            None => own.processes.push(process),
        }
    }
    Some(own)
}

fn join_processes(mut all: BTreeMap<u32, Process>, next: BTreeMap<u32, Process>) -> BTreeMap<u32, Process> {
    for (pid, next) in next {
        match all.entry(pid) {
            Entry::Vacant(entry) => drop(entry.insert(next)),
            Entry::Occupied(mut entry) => {
                let own = entry.get_mut();
                *own = Process {
                    cpu: own.cpu + next.cpu,
                    system: own.system + next.system,
                    delay: own.delay + next.delay,
                    main_delay: own.main_delay + next.main_delay,
                    main_cpu: own.main_cpu + next.main_cpu,
                    threads: next.threads,
                    active: own.active.max(next.active),
                    rss: next.rss,
                    rchar: own.rchar + next.rchar,
                    read_bytes: own.read_bytes + next.read_bytes,
                    reads: own.reads + next.reads,
                    major_faults: own.major_faults + next.major_faults,
                    minor_faults: own.minor_faults + next.minor_faults,
                    preempted: own.preempted + next.preempted,
                    blocked: next.blocked,
                };
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tick(t: u64, busy: f32, cpu: u64) -> Tick {
        let processes = BTreeMap::from([(1, Process { cpu, ..Process::default() })]);
        Tick { t, cores: vec![busy], foreign_cpu: cpu, processes, ..Tick::default() }
    }

    #[test]
    fn counts_add_up_and_shares_are_weighted() {
        let ticks = vec![tick(100, 0.0, 0), tick(200, 0.0, 5), tick(500, 1.0, 7), tick(600, 0.5, 1)];
        let mut trace = Trace { ticks, ..Trace::default() };
        trace.halve();
        assert_eq!(trace.ticks, [tick(100, 0.0, 0), tick(500, 0.75, 12), tick(600, 0.5, 1)]);
        trace.halve();
        assert_eq!(trace.ticks.len(), 2);
        assert_eq!(trace.ticks[1], tick(600, 0.7, 13));
        trace.halve();
        assert_eq!(trace.ticks.len(), 2);
    }

    #[test]
    fn nothing_is_nothing() {
        let mut trace = Trace::default();
        trace.halve();
        assert_eq!(trace, Trace::default());
    }
}
