//! The script's processes: the tree below the one that was started, also those whose parent has ended since.
//!
//! A process may vanish between any two calls; then its last figures stand, and nothing is an error.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs,
    io::Cursor,
    os::unix::ffi::OsStrExt,
};

use procfs_core::{
    FromRead,
    process::{Io, Stat},
};

use super::{
    Process,
    files::{Kept, page, tick},
    memory::value,
};

/// Environment variable whose value marks a process as the script's, wherever in the tree it ended up.
pub const MARK: &str = "WELLFED_DOCTOR_DIR";

/// Files that are kept open at most; beyond, each look opens anew.
const MAX_KEPT: usize = 300;

/// Threads are listed anew, and made to tell how often they were interrupted, every so many looks.
const SELDOM: u64 = 10;

/// What happened since the look before.
#[derive(Debug, Default)]
pub(super) struct ProcessesLook {
    pub(super) processes: BTreeMap<u32, Process>,
    /// CPU time of all of them, nanoseconds.
    pub(super) cpu: u64,
    /// CPU time of processes that began and ended in between.
    pub(super) short_lived: u64,
}

/// The tree.
#[derive(Debug)]
pub(super) struct Processes {
    root: u32,
    /// `WELLFED_DOCTOR_DIR=…` of the root, if it is set there.
    mark: Option<Vec<u8>>,
    /// All processes there are; `None` for foreign ones.
    known: HashMap<u32, Option<Watched>>,
    /// Processes whose environment was empty when they were found, as it is while they become another program.
    undecided: HashSet<u32>,
    looks: u64,
    /// Processes of the machine that had been begun when they were listed last, if the kernel tells.
    forks: Option<u64>,
    kept: usize,
    /// CPU time that parents report of ended children, less what was seen of these.
    ended: i64,
    buffer: Vec<u8>,
}

/// One process of the script.
#[derive(Debug)]
struct Watched {
    stat: Kept,
    io: Option<Kept>,
    start: u64,
    /// Everything so far.
    sum: Process,
    /// CPU time in the sum that no thread was seen to use. Threads that are listed later may tell of it again.
    untold: u64,
    /// CPU time of children that ended and were waited for.
    children: u64,
    threads: HashMap<u32, Thread>,
}

#[derive(Debug, Default)]
struct Thread {
    file: Option<Kept>,
    cpu: u64,
    delay: u64,
    preempted: u64,
}

impl Processes {
    /// The tree below `root`, this process or one that it started.
    pub(super) fn new(root: u32) -> Self {
        let mark = environment(root).and_then(|environ| marked(&environ));
        let mut this = Self {
            root,
            mark,
            known: HashMap::new(),
            undecided: HashSet::new(),
            looks: 0,
            forks: None,
            kept: 0,
            ended: 0,
            buffer: Vec::new(),
        };
        this.look(None);
        this
    }

    /// Whether the kernel tells how long threads wait for a core.
    pub(super) fn tells_delay() -> bool {
        fs::exists("/proc/self/schedstat").unwrap_or(false)
    }

    /// Whether a process is the script's.
    pub(super) fn owns(&self, pid: u32) -> bool {
        pid == self.root || self.known.get(&pid).is_some_and(Option::is_some)
    }

    /// `forks`: how many processes were begun on this machine. As long as that is the same, there is no new one to find.
    pub(super) fn look(&mut self, forks: Option<u64>) -> ProcessesLook {
        let first = self.looks == 0;
        let listed = forks.is_some() && forks == self.forks && self.undecided.is_empty();
        let vanished = if listed { 0 } else { self.find() };
        self.forks = forks;
        let mut look = ProcessesLook::default();
        let mut gone = Vec::new();
        let mut ended = -i64::try_from(vanished).unwrap_or(i64::MAX);
        let seldom = self.looks.is_multiple_of(SELDOM);
        for (pid, watched) in &mut self.known {
            let Some(watched) = watched else { continue };
            let before = watched.sum.clone();
            let children = watched.children;
            if !watched.read(*pid, seldom, &mut self.kept, &mut self.buffer) {
                gone.push(*pid);
                continue;
            }
            ended = ended.saturating_add_unsigned(watched.children.saturating_sub(children));
            let passed = since(&before, &watched.sum);
            look.cpu += passed.cpu;
            look.processes.insert(*pid, passed);
        }
        for pid in gone {
            ended -= i64::try_from(self.forget(pid)).unwrap_or(i64::MAX);
        }
        self.looks += 1;
        if first {
            // What the children of a tree that has existed for long once used is not of now.
            return look;
        }
        self.ended += ended;
        // A parent may wait for a child later than it ends, or never; a negative sum is made up for then. One that is never
        // made up for must not swallow the next ones.
        look.short_lived = u64::try_from(self.ended).unwrap_or(0);
        self.ended = self.ended.clamp(-1_000_000_000, 0);
        look
    }

    /// Looks for new processes and forgets ended ones; gives the CPU time the latter were seen to use.
    fn find(&mut self) -> u64 {
        let Ok(folder) = fs::read_dir("/proc") else { return 0 };
        let mut present = HashSet::with_capacity(self.known.len() + 16);
        let mut new = Vec::new();
        for entry in folder.flatten() {
            let name = entry.file_name();
            let Some(pid) = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            present.insert(pid);
            if !self.known.contains_key(&pid) {
                new.push(pid);
            }
        }
        let ended: Vec<_> = self.known.keys().filter(|pid| !present.contains(pid)).copied().collect();
        let vanished = ended.into_iter().map(|pid| self.forget(pid)).sum();
        // A child may have a lower number than its parent, where numbers began anew.
        let mut parents: HashMap<u32, u32> = HashMap::new();
        for pid in &new {
            if let Some(stat) = stat_of(*pid, &mut self.buffer) {
                parents.insert(*pid, u32::try_from(stat.ppid).unwrap_or(0));
            }
        }
        let undecided = std::mem::take(&mut self.undecided);
        for pid in new {
            let Some(own) = self.belongs(pid, &parents).or_else(|| undecided.contains(&pid).then_some(false))
            else {
                self.undecided.insert(pid);
                continue;
            };
            let watched = own.then(|| Watched::open(pid, &mut self.kept)).flatten();
            self.known.insert(pid, watched);
        }
        vanished
    }

    /// Whether a new process is the script's; nothing if it cannot be told yet.
    fn belongs(&self, pid: u32, new: &HashMap<u32, u32>) -> Option<bool> {
        let mut at = pid;
        // No tree of processes is deeper than there are new ones and one known.
        for _ in 0..=new.len() {
            if at == self.root || self.known.get(&at).is_some_and(Option::is_some) {
                return Some(true);
            }
            match new.get(&at) {
                Some(parent) => at = *parent,
                None => break,
            }
        }
        // Its parent may have ended before anyone saw it; what it inherited tells.
        let Some(mark) = self.mark.as_ref() else { return Some(false) };
        let Ok(environ) = fs::read(format!("/proc/{pid}/environ")) else { return Some(false) };
        let is_ours = environ.split(|byte| *byte == 0).any(|variable| variable == mark);
        (is_ours || !environ.is_empty()).then_some(is_ours)
    }

    /// Gives the CPU time that was seen of the process and of children it waited for.
    fn forget(&mut self, pid: u32) -> u64 {
        let Some(Some(watched)) = self.known.remove(&pid) else { return 0 };
        let threads = watched.threads.values().filter(|thread| thread.file.is_some()).count();
        self.kept = self.kept.saturating_sub(2 + threads);
        watched.sum.cpu + watched.children
    }
}

/// The environment of a process that may have been started this moment: whoever started it goes on before the kernel has put the
/// environment in place, and until then it is empty.
fn environment(pid: u32) -> Option<Vec<u8>> {
    for _ in 0..50 {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environ) if !environ.is_empty() => return Some(environ),
            Ok(_) => std::thread::sleep(std::time::Duration::from_millis(2)),
            Err(_) => return None,
        }
    }
    None
}

/// The variable of an environment that marks it.
fn marked(environ: &[u8]) -> Option<Vec<u8>> {
    let variables = environ.split(|byte| *byte == 0);
    let is_mark = |variable: &&[u8]| {
        variable.strip_prefix(MARK.as_bytes()).is_some_and(|rest| rest.len() > 1 && rest[0] == b'=')
    };
    variables.into_iter().find(is_mark).map(<[u8]>::to_vec)
}

fn stat_of(pid: u32, buffer: &mut Vec<u8>) -> Option<Stat> {
    parse_stat(Kept::open(format!("/proc/{pid}/stat")).ok()?.read(buffer).ok()?)
}

fn parse_stat(text: &[u8]) -> Option<Stat> {
    Stat::from_read(Cursor::new(text)).ok()
}

/// CPU time and run-queue delay, nanoseconds.
fn parse_schedstat(text: &[u8]) -> Option<(u64, u64)> {
    let mut words = std::str::from_utf8(text).ok()?.split_ascii_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Keeps the files open as long as there is room.
fn keep(kept: &mut usize, path: String) -> Option<Kept> {
    let file = Kept::open(path).ok()?;
    *kept += 1;
    Some(file)
}

impl Watched {
    fn open(pid: u32, kept: &mut usize) -> Option<Self> {
        let stat = keep(kept, format!("/proc/{pid}/stat"))?;
        let io = keep(kept, format!("/proc/{pid}/io"));
        let zero = Process::default();
        Some(Self { stat, io, start: 0, sum: zero, untold: 0, children: 0, threads: HashMap::new() })
    }

    /// Whether it is still there.
    fn read(&mut self, pid: u32, seldom: bool, kept: &mut usize, buffer: &mut Vec<u8>) -> bool {
        let Some(stat) = self.stat.read(buffer).ok().and_then(parse_stat) else { return false };
        if self.start == 0 {
            self.start = stat.starttime;
        }
        let sum = &mut self.sum;
        let threads = u32::try_from(stat.num_threads).unwrap_or(0);
        let listed = seldom || threads != sum.threads;
        let unit = tick();
        sum.system = stat.stime * unit;
        sum.threads = threads;
        sum.rss = stat.rss * page();
        sum.major_faults = stat.majflt;
        sum.minor_faults = stat.minflt;
        sum.blocked = stat.state == 'D';
        self.children = u64::try_from(stat.cutime + stat.cstime).unwrap_or(0) * unit;
        let whole = (stat.utime + stat.stime) * unit;
        // The counts of a process that has ended, but was not waited for, cannot be read any more.
        let io = self.io.as_ref().and_then(|file| file.read(buffer).ok());
        if let Some(io) = io.and_then(|text| Io::from_read(Cursor::new(text)).ok()) {
            (sum.rchar, sum.read_bytes, sum.reads) = (io.rchar, io.read_bytes, io.syscr);
        }
        if listed {
            self.list(pid, kept);
        }
        let passed = self.read_threads(pid, seldom, buffer);
        self.sum.cpu += account(&mut self.untold, whole, self.sum.cpu, passed, unit);
        true
    }

    fn list(&mut self, pid: u32, kept: &mut usize) {
        let Ok(folder) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
        let mut present = HashSet::new();
        for entry in folder.flatten() {
            let name = entry.file_name();
            let Some(tid) = std::str::from_utf8(name.as_bytes()).ok().and_then(|name| name.parse().ok())
            else {
                continue;
            };
            present.insert(tid);
            self.threads.entry(tid).or_insert_with(|| {
                let path = format!("/proc/{pid}/task/{tid}/schedstat");
                let file = if *kept < MAX_KEPT { keep(kept, path) } else { None };
                Thread { file, ..Thread::default() }
            });
        }
        let before = self.threads.values().filter(|thread| thread.file.is_some()).count();
        self.threads.retain(|tid, _| present.contains(tid));
        let after = self.threads.values().filter(|thread| thread.file.is_some()).count();
        *kept = kept.saturating_sub(before - after);
    }

    /// Gives the CPU time that threads used since they were read last, new ones since they began.
    fn read_threads(&mut self, pid: u32, seldom: bool, buffer: &mut Vec<u8>) -> u64 {
        let sum = &mut self.sum;
        sum.active = 0;
        let mut cpu_passed = 0;
        for (tid, thread) in &mut self.threads {
            let read = match &thread.file {
                Some(file) => file.read(buffer).ok().and_then(parse_schedstat),
                None => Kept::open(format!("/proc/{pid}/task/{tid}/schedstat"))
                    .ok()
                    .and_then(|file| file.read(buffer).ok().and_then(parse_schedstat)),
            };
            let Some((cpu, delay)) = read else { continue };
            let passed = cpu.saturating_sub(thread.cpu);
            let waited = delay.saturating_sub(thread.delay);
            (thread.cpu, thread.delay) = (cpu, delay);
            cpu_passed += passed;
            sum.delay += waited;
            sum.active += u32::from(passed > 0);
            if *tid == pid {
                sum.main_cpu += passed;
                sum.main_delay += waited;
            }
            if seldom && passed > 0 {
                let path = format!("/proc/{pid}/task/{tid}/status");
                let status = Kept::open(path)
                    .ok()
                    .and_then(|file| value(file.read(buffer).ok()?, "nonvoluntary_ctxt_switches:"));
                let preempted = status.unwrap_or(thread.preempted);
                sum.preempted += preempted.saturating_sub(thread.preempted);
                thread.preempted = preempted;
            }
        }
        cpu_passed
    }
}

/// What a process used since it was last read, when its threads tell `passed` and it had used `sum` by then. Threads that
/// began and ended in between, those not listed yet and those the kernel does not tell about are in `whole` only, what
/// the process says itself, in steps of `unit`; `untold` is how much of the sum came from there.
fn account(untold: &mut u64, whole: u64, sum: u64, passed: u64, unit: u64) -> u64 {
    // A thread that is listed late tells all it did since it began.
    let told_twice = passed.min(*untold).min((sum + passed).saturating_sub(whole));
    *untold -= told_twice;
    let passed = passed - told_twice;
    let missing = whole.saturating_sub(sum + passed);
    if missing <= 2 * unit {
        return passed;
    }
    *untold += missing;
    passed + missing
}

/// Counts since `before`; gauges as of now.
fn since(before: &Process, now: &Process) -> Process {
    Process {
        cpu: now.cpu.saturating_sub(before.cpu),
        system: now.system.saturating_sub(before.system),
        delay: now.delay.saturating_sub(before.delay),
        main_delay: now.main_delay.saturating_sub(before.main_delay),
        main_cpu: now.main_cpu.saturating_sub(before.main_cpu),
        threads: now.threads,
        active: now.active,
        rss: now.rss,
        rchar: now.rchar.saturating_sub(before.rchar),
        read_bytes: now.read_bytes.saturating_sub(before.read_bytes),
        reads: now.reads.saturating_sub(before.reads),
        major_faults: now.major_faults.saturating_sub(before.major_faults),
        minor_faults: now.minor_faults.saturating_sub(before.minor_faults),
        preempted: now.preempted.saturating_sub(before.preempted),
        blocked: now.blocked,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        process::{Child, Command, Stdio},
        time::{Duration, Instant},
    };

    use super::*;

    struct Running(Child);

    impl Drop for Running {
        fn drop(&mut self) {
            drop(self.0.kill());
            drop(self.0.wait());
        }
    }

    /// Marked by its script, so that tests that run at the same time do not take it for theirs.
    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env(MARK, script).stdin(Stdio::null()).stdout(Stdio::null());
        Running(command.spawn().unwrap())
    }

    /// Looks until `enough`, for half a minute at most.
    fn until(processes: &mut Processes, mut enough: impl FnMut(ProcessesLook) -> bool) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
            if enough(processes.look(None)) {
                return true;
            }
        }
        false
    }

    #[test]
    fn names_with_parentheses_and_spaces() {
        let text = "7 (a) b) R 3 7 7 0 -1 4194304 11 0 5 0 120 30 7 2 20 0 4 0 99 1000 250 \
            18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 1 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let stat = parse_stat(text.as_bytes()).unwrap();
        assert_eq!((stat.ppid, stat.utime, stat.stime, stat.num_threads, stat.rss), (3, 120, 30, 4, 250));
        assert_eq!((stat.cutime, stat.cstime, stat.starttime), (7, 2, 99));
        assert!(
            parse_stat(b"").is_none() && parse_stat(b"7 (a").is_none() && parse_stat(b"7 (a) R").is_none()
        );
    }

    #[test]
    fn scheduling_and_marks() {
        assert_eq!(parse_schedstat(b"12 34 5\n"), Some((12, 34)));
        assert_eq!(parse_schedstat(b"12"), None);
        assert_eq!(marked(b"A=1\0WELLFED_DOCTOR_DIR=/x\0"), Some(b"WELLFED_DOCTOR_DIR=/x".to_vec()));
        assert_eq!(marked(b"WELLFED_DOCTOR_DIRS=/x\0WELLFED_DOCTOR_DIR=\0"), None);
    }

    #[test]
    fn late_threads_are_not_counted_twice() {
        let unit = 10;
        let (mut untold, mut sum) = (0, 0);
        let mut look = |whole, passed| {
            let more = account(&mut untold, whole, sum, passed, unit);
            sum += more;
            more
        };
        // 200 each time, as far as the process tells.
        assert_eq!(look(200, 203), 203);
        // Other threads have come, and are not listed yet.
        assert_eq!(look(400, 7), 197);
        assert_eq!(look(600, 5), 200);
        // Now they are, and tell of the last three looks.
        assert_eq!(look(800, 591), 206);
        assert_eq!(look(1000, 205), 205);
        // They end, and nobody tells of what they did since the look before.
        assert_eq!(look(1200, 20), 189);
        assert_eq!(look(1400, 210), 200);
        assert_eq!(look(1600, 190), 190);
    }

    #[test]
    fn a_busy_child_shows_its_time() {
        let child = shell("while :; do :; done");
        let mut processes = Processes::new(child.0.id());
        let (mut cpu, mut active) = (0, 0);
        assert!(until(&mut processes, |look| {
            let process = &look.processes[&child.0.id()];
            cpu += process.cpu;
            active += process.active;
            cpu > 200_000_000
        }));
        assert!(active > 0);
    }

    #[test]
    fn orphans_stay_ours() {
        // The shell in between ends at once; its child sleeps on.
        let child = shell("sh -c 'sleep 60 & echo' ; sleep 60");
        let mut processes = Processes::new(child.0.id());
        let mut orphans = Vec::new();
        assert!(until(&mut processes, |look| {
            orphans = look.processes.into_keys().filter(|pid| *pid != child.0.id()).collect();
            let parent = |pid: u32| stat_of(pid, &mut Vec::new()).map(|stat| stat.ppid);
            orphans.len() == 2 && orphans.iter().any(|pid| parent(*pid) != i32::try_from(child.0.id()).ok())
        }));
        for pid in orphans {
            drop(Command::new("kill").arg(pid.to_string()).status());
        }
    }

    #[test]
    fn processes_are_listed_anew_once_one_was_begun() {
        let child = shell("sleep 60 & wait");
        let mut processes = Processes::new(child.0.id());
        assert!(until(&mut processes, |look| look.processes.len() == 2));
        processes.look(Some(1));
        // As if nobody had been seen yet.
        processes.known.clear();
        processes.undecided.clear();
        assert!(processes.look(Some(1)).processes.is_empty());
        assert_eq!(processes.look(Some(2)).processes.len(), 2);
        processes.known.clear();
        assert_eq!(processes.look(None).processes.len(), 2);
    }

    #[test]
    fn what_ends_between_two_looks_is_counted() {
        let child = shell(
            "i=0; while [ $i -lt 300 ]; do sh -c 'j=0; while [ $j -lt 3000 ]; do j=$((j+1)); done'; done",
        );
        let mut processes = Processes::new(child.0.id());
        let mut short = 0;
        assert!(until(&mut processes, |look| {
            short += look.short_lived;
            short > 50_000_000
        }));
    }

    #[test]
    fn a_process_that_is_gone_is_no_error() {
        let mut child = shell("exit 0");
        drop(child.0.wait());
        let mut processes = Processes::new(child.0.id());
        assert!(processes.look(None).processes.is_empty());
    }
}
