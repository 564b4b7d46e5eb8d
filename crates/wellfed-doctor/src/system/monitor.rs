//! The thread that looks at the machine while the script runs.
//!
//! It takes less than [`MAX_SHARE`] of one core: the more there is to look at, the more seldom it looks.

use std::{
    env, io,
    path::Path,
    sync::{Arc, Condvar, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::Duration,
};

use super::{
    Machine, Neighbours, Tick, Trace,
    cgroup::Cgroups,
    clock::{monotonic, nanoseconds, process_cpu, thread_cpu},
    cores::Cores,
    disk::{Disks, Network},
    gpu,
    looks::Looks,
    memory::{Memory, Stalls},
    neighbours,
    processes::Processes,
};

/// Share of one core that the looks may take.
const MAX_SHARE: f64 = 0.004;

/// Longest time between two looks.
const LONGEST: Duration = Duration::from_secs(1);

/// Time between two looks at who the neighbours are, nanoseconds.
const NEIGHBOURS: u64 = 1_000_000_000;

/// `inside` leaves looks at stacks to the probes, as where they are not possible from outside.
const LOOKS: &str = "WELLFED_DOCTOR_LOOKS";

/// Looks that are kept; then each two become one.
const MAX_TICKS: usize = 6000;

/// Looks at the machine until it is stopped.
#[derive(Debug)]
pub struct Monitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Trace>>,
    looks: Option<Looks>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: Mutex<bool>,
    wake: Condvar,
    latest: Mutex<Option<Tick>>,
}

impl Monitor {
    /// Begins to look at the machine, and at `root_pid` and all processes below it, every `interval`. Stacks of processes whose
    /// probes write into `records` are looked at, too, and written there.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    pub fn start(root_pid: u32, interval: Duration, records: Option<&Path>) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let theirs = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("wellfed-monitor".to_owned())
            .spawn(move || watch(root_pid, interval, &theirs))?;
        let wanted = env::var_os(LOOKS).is_none_or(|from| from != "inside");
        let looks = records.filter(|_| wanted).map(Looks::start).transpose()?;
        Ok(Self { shared, thread: Some(thread), looks })
    }

    /// The last look.
    pub fn latest(&self) -> Option<Tick> {
        self.shared.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends, and gives all looks. The last one is of now.
    pub fn stop(mut self) -> Trace {
        let seen = self.looks.take().map(Looks::stop).unwrap_or_default();
        let mut trace = self.end().unwrap_or_default();
        trace.monitor_cpu += seen.cpu;
        seen.problems.iter().for_each(|why| trace.not_seen(why));
        trace
    }

    fn end(&mut self) -> Option<Trace> {
        *self.shared.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.shared.wake.notify_all();
        self.thread.take()?.join().ok()
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until it is time to look; whether to end.
fn wait(shared: &Shared, time: Duration) -> bool {
    let stop = shared.stop.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = shared.wake.wait_timeout_while(stop, time, |stop| !*stop);
    *waited.unwrap_or_else(PoisonError::into_inner).0
}

fn watch(root: u32, interval: Duration, shared: &Shared) -> Trace {
    // The driver of the devices takes a second to begin: what the script does meanwhile is looked at.
    let (mut eyes, first) = Eyes::open(root);
    let mut trace = Trace { ticks: vec![first], ..Trace::default() };
    let asked = thread::Builder::new()
        .name("wellfed-machine".to_owned())
        .spawn(|| (Machine::this(), gpu::Watch::start(), thread_cpu()));
    let mut asked = asked.map_err(|error| trace.missing.push(format!("devices: no thread: {error}"))).ok();
    let mut cpu = 0;
    let mut granularity = nanoseconds(interval);
    let mut pace = interval;
    let mut joins = false;
    loop {
        let stop = wait(shared, pace);
        if let Some(thread) = asked.take_if(|thread| stop || thread.is_finished())
            && let Ok((machine, gpus, took)) = thread.join()
        {
            eyes.gpus = gpus
                .map_err(|why| {
                    if machine.no_gpu.is_none() {
                        trace.missing.push(format!("how busy the device is: {why}"));
                    }
                })
                .ok();
            trace.machine = machine;
            cpu += took;
        }
        let before = thread_cpu();
        let tick = eyes.look();
        *shared.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(tick.clone());
        let ticks = &mut trace.ticks;
        let begin = ticks.len().checked_sub(2).map(|i| ticks[i].t);
        match (ticks.last_mut(), begin) {
            (Some(last), Some(begin)) if joins => last.join(begin, tick),
            _ => ticks.push(tick),
        }
        if let [.., begin, last] = &ticks[..] {
            joins = last.t - begin.t + nanoseconds(pace) / 2 < granularity;
        }
        if ticks.len() > MAX_TICKS {
            trace.halve();
            granularity *= 2;
        }
        if stop {
            break;
        }
        // Half of what is allowed is what the clock's own steps may hide.
        let took = thread_cpu().saturating_sub(before);
        let fair = Duration::from_nanos((took as f64 / MAX_SHARE) as u64);
        let wanted = Duration::from_nanos(granularity).clamp(interval, LONGEST.max(interval));
        // One slow look is no reason; a few are.
        pace = (pace * 3 + fair.clamp(wanted, LONGEST.max(wanted))) / 4;
    }
    trace.missing.extend(eyes.missing());
    trace.monitor_cpu = cpu + thread_cpu() + eyes.gpus.take().map_or(0, gpu::Watch::stop);
    trace
}

/// Everything that is looked at.
#[derive(Debug)]
struct Eyes {
    /// Whether the script is this very process.
    within: bool,
    t: u64,
    cores: Cores,
    processes: Processes,
    memory: Memory,
    stalls: Stalls,
    cgroups: Cgroups,
    disks: Disks,
    network: Network,
    gpus: Option<gpu::Watch>,
    neighbours: neighbours::Watch,
    /// When neighbours were looked at last, and what all of them used since then, nanoseconds.
    looked: (u64, u64),
    /// CPU time of this process so far.
    own: u64,
    /// CPU time that was the script's before the cores' counts, which come in steps, showed it.
    owed: u64,
}

impl Eyes {
    fn open(root: u32) -> (Self, Tick) {
        let mut this = Self {
            within: root == std::process::id(),
            t: monotonic(),
            cores: Cores::new(),
            processes: Processes::new(root),
            memory: Memory::new(),
            stalls: Stalls::new(),
            cgroups: Cgroups::own(),
            disks: Disks::new(),
            network: Network::new(),
            gpus: None,
            neighbours: neighbours::Watch::default(),
            looked: (0, 0),
            own: process_cpu(),
            owed: 0,
        };
        let first = this.look();
        (this, first)
    }

    fn look(&mut self) -> Tick {
        let now = monotonic();
        let passed = now.saturating_sub(self.t);
        self.t = now;
        let cores = self.cores.look();
        let processes = self.processes.look(cores.forks);
        let own = process_cpu();
        let ours = if self.within { 0 } else { own.saturating_sub(self.own) };
        self.own = own;
        let known = processes.cpu + processes.short_lived + ours + self.owed;
        let foreign_cpu = cores.cpu.saturating_sub(known);
        // What the script used on cores that this process may not use never shows: it must not hide others forever.
        self.owed = known.saturating_sub(cores.cpu).min(200_000_000);
        let neighbours = self.look_around(now, foreign_cpu);
        let memory = self.memory.look();
        let cgroup = self.cgroups.look();
        Tick {
            t: now,
            cores: cores.busy,
            iowait: cores.iowait,
            steal: cores.steal,
            foreign_cpu,
            neighbours,
            short_lived: processes.short_lived,
            processes: processes.processes,
            memory_available: memory.available,
            page_cache: memory.page_cache,
            swap_in: memory.swap_in,
            huge_faults: memory.huge_faults,
            cgroup_memory: cgroup.memory,
            throttled: cgroup.throttled,
            pressure: self.stalls.look(passed),
            disk: self.disks.look(passed),
            received: self.network.look(),
            shm_used: memory.shm_used,
            gpus: self.gpus.as_ref().map_or_else(Vec::new, gpu::Watch::latest),
        }
    }

    /// Who the neighbours are, where it is time to look and they do something.
    fn look_around(&mut self, now: u64, foreign_cpu: u64) -> Option<Neighbours> {
        let (last, used) = self.looked;
        let used = used + foreign_cpu;
        let passed = now.saturating_sub(last);
        // At first to have something to compare with. Who uses a thirtieth of a core is no neighbour.
        if last != 0 && (passed < NEIGHBOURS || used < passed / 30) {
            self.looked.1 = used;
            return None;
        }
        self.looked = (now, 0);
        let (own, within, processes) = (std::process::id(), self.within, &self.processes);
        self.neighbours.look(now, |pid| processes.owns(pid) || (pid == own && !within))
    }

    /// What this kernel does not tell.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        if !Processes::tells_delay() {
            missing.push("how long threads wait for a core: the kernel has no /proc/*/schedstat".to_owned());
        }
        if !self.stalls.known() {
            missing.push("pressure stall information: the kernel has no /proc/pressure".to_owned());
        }
        if !self.disks.known() {
            missing.push("reads of the disks: /proc/diskstats shows none".to_owned());
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command},
        time::Instant,
    };

    use super::*;

    struct Busy(Child);

    impl Busy {
        fn start() -> Self {
            Self(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap())
        }
    }

    impl Drop for Busy {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    #[test]
    fn our_time_and_that_of_others_are_told_apart() {
        let (ours, theirs) = (Busy::start(), Busy::start());
        let monitor = Monitor::start(ours.0.id(), Duration::from_millis(50), None).unwrap();
        let sum = |trace: &Trace| {
            let own: u64 =
                trace.ticks.iter().filter_map(|tick| tick.processes.get(&ours.0.id())).map(|p| p.cpu).sum();
            let foreign: u64 = trace.ticks.iter().map(|tick| tick.foreign_cpu).sum();
            (own, foreign)
        };
        let begin = Instant::now();
        let (mut own, mut foreign, mut last) = (0, 0, 0);
        while begin.elapsed() < Duration::from_secs(30) && (own < 300_000_000 || foreign < 300_000_000) {
            thread::sleep(Duration::from_millis(10));
            let Some(tick) = monitor.latest().filter(|tick| tick.t > last) else { continue };
            last = tick.t;
            own += tick.processes.get(&ours.0.id()).map_or(0, |process| process.cpu);
            foreign += tick.foreign_cpu;
            assert!(!tick.processes.contains_key(&theirs.0.id()));
        }
        let trace = monitor.stop();
        assert!(own >= 300_000_000 && foreign >= 300_000_000, "{own} {foreign}");
        let (own, foreign) = sum(&trace);
        assert!(own >= 300_000_000 && foreign >= 300_000_000, "{own} {foreign}");
        assert!(trace.ticks.windows(2).all(|two| two[0].t < two[1].t));
        assert!(trace.machine.cores > 0.0 && trace.monitor_cpu > 0);
        assert_eq!(serde_json::from_str::<Trace>(&serde_json::to_string(&trace).unwrap()).unwrap(), trace);
    }

    #[test]
    fn the_end_of_the_script_is_no_trouble() {
        let mut child = Command::new("true").spawn().unwrap();
        let monitor = Monitor::start(child.id(), Duration::from_millis(5), None).unwrap();
        child.wait().unwrap();
        thread::sleep(Duration::from_millis(30));
        let trace = monitor.stop();
        assert!(trace.ticks.len() >= 2 && trace.ticks.last().unwrap().processes.is_empty());
    }
}
