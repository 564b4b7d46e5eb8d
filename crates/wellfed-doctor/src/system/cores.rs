//! How busy the cores are, from `/proc/stat`.

use super::files::{Kept, ranges, tick};

/// Time a core has spent so far, in ticks of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Core {
    busy: u64,
    idle: u64,
    iowait: u64,
    steal: u64,
}

/// What happened since the look before.
#[derive(Debug, Default)]
pub(super) struct CoresLook {
    /// Share of time each core was busy.
    pub(super) busy: Vec<f32>,
    pub(super) iowait: f32,
    pub(super) steal: f32,
    /// CPU time spent on all of them, nanoseconds.
    pub(super) cpu: u64,
    /// Processes and threads that were begun on this machine so far.
    pub(super) forks: Option<u64>,
}

/// The cores this process may run on.
#[derive(Debug)]
pub(super) struct Cores {
    file: Option<Kept>,
    usable: Vec<usize>,
    before: Vec<Core>,
    buffer: Vec<u8>,
}

impl Cores {
    pub(super) fn new() -> Self {
        let mut this = Self {
            file: Kept::open("/proc/stat").ok(),
            usable: usable(),
            before: Vec::new(),
            buffer: Vec::new(),
        };
        this.look();
        this
    }

    pub(super) fn look(&mut self) -> CoresLook {
        let text = self.file.as_ref().and_then(|file| file.read(&mut self.buffer).ok()).unwrap_or_default();
        let text = String::from_utf8_lossy(text);
        let before = std::mem::replace(&mut self.before, parse(&text, &self.usable));
        // A core that was switched off or on in between has no difference.
        let same = before.len() == self.before.len();
        let look = if same { since(&before, &self.before) } else { CoresLook::default() };
        CoresLook { forks: forks(&text), ..look }
    }
}

/// Numbers of the cores this process may run on.
pub(super) fn usable() -> Vec<usize> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let online = online();
    let allowed = allowed(&status);
    allowed.into_iter().filter(|core| online.is_empty() || online.contains(core)).collect()
}

/// Numbers of the cores that are switched on.
pub(super) fn online() -> Vec<usize> {
    ranges(&std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default())
}

fn allowed(status: &str) -> Vec<usize> {
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.map(ranges).unwrap_or_default()
}

/// Kernels that do not count, such as those of some sandboxes, say 0.
fn forks(text: &str) -> Option<u64> {
    let count = text.lines().rev().find_map(|line| line.strip_prefix("processes "))?;
    count.trim().parse().ok().filter(|count| *count > 0)
}

fn parse(text: &str, usable: &[usize]) -> Vec<Core> {
    let mut cores = Vec::new();
    for line in text.lines() {
        let Some(line) = line.strip_prefix("cpu") else { break };
        let mut words = line.split_ascii_whitespace();
        let number = if line.starts_with(' ') { None } else { words.next().and_then(|w| w.parse().ok()) };
        if !number.is_some_and(|number: usize| usable.contains(&number)) {
            continue;
        }
        let mut values = [0; 8];
        for (value, word) in values.iter_mut().zip(words) {
            *value = word.parse().unwrap_or(0);
        }
        // Time of guests is part of user and nice time.
        let [user, nice, system, idle, iowait, irq, softirq, steal] = values;
        cores.push(Core { busy: user + nice + system + irq + softirq, idle, iowait, steal });
    }
    cores
}

fn since(before: &[Core], now: &[Core]) -> CoresLook {
    let mut all = Core::default();
    let mut busy = Vec::new();
    for (before, now) in before.iter().zip(now) {
        // The kernel warns that times of idle cores may go back a little.
        let passed = Core {
            busy: now.busy.saturating_sub(before.busy),
            idle: now.idle.saturating_sub(before.idle),
            iowait: now.iowait.saturating_sub(before.iowait),
            steal: now.steal.saturating_sub(before.steal),
        };
        busy.push(share(passed.busy, passed.total()));
        all = Core {
            busy: all.busy + passed.busy,
            idle: all.idle + passed.idle,
            iowait: all.iowait + passed.iowait,
            steal: all.steal + passed.steal,
        };
    }
    CoresLook {
        busy,
        iowait: share(all.iowait, all.total()),
        steal: share(all.steal, all.total()),
        cpu: all.busy * tick(),
        forks: None,
    }
}

impl Core {
    fn total(self) -> u64 {
        self.busy + self.idle + self.iowait + self.steal
    }
}

fn share(part: u64, whole: u64) -> f32 {
    if whole == 0 { 0.0 } else { (part as f64 / whole as f64) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  30 0 3 60 0 0 0 0 0 0\n\
        cpu0 10 0 1 20 0 0 0 0 0 0\n\
        cpu1 10 0 1 20 0 0 0 0 0 0\n\
        cpu2 10 0 1 20 0 0 0 0 0 0\n\
        intr 1 2 3\nctxt 5\nprocesses 77\nprocs_running 2\n";
    const AFTER: &str = "cpu  60 0 3 90 0 0 0 0 0 0\n\
        cpu0 18 1 2 20 0 0 0 0 7 0\n\
        cpu1 99 0 1 20 0 0 0 0 0 0\n\
        cpu2 10 0 1 22 4 0 0 4 0 0\n";

    #[test]
    fn shares_of_usable_cores() {
        let usable = [0, 2];
        let look = since(&parse(BEFORE, &usable), &parse(AFTER, &usable));
        assert_eq!(look.busy, [1.0, 0.0]);
        assert_eq!((look.iowait, look.steal), (0.2, 0.2));
        assert_eq!(look.cpu, 10 * tick());
        assert_eq!((forks(BEFORE), forks(AFTER), forks("processes 0\n")), (Some(77), None, None));
    }

    #[test]
    fn nonsense_is_no_core() {
        assert!(parse("", &[0]).is_empty());
        assert!(parse("cpu\ncpux 1\ncpu0", &[1]).is_empty());
        assert_eq!(parse("cpu0", &[0]), [Core::default()]);
        assert_eq!(allowed("Name:\tx\nCpus_allowed:\t3\nCpus_allowed_list:\t0-1\n"), [0, 1]);
        assert!(allowed("").is_empty());
    }

    #[test]
    fn this_machine_has_cores() {
        assert!(!usable().is_empty());
        let mut cores = Cores::new();
        std::thread::sleep(std::time::Duration::from_millis(50));
        let look = cores.look();
        assert_eq!(look.busy.len(), usable().len());
        assert!(look.busy.iter().all(|share| (0.0..=1.0).contains(share)));
    }
}
