//! What the machine did meanwhile: cores, processes, memory, disks, network, devices.

#[cfg(target_os = "linux")]
mod cgroup;
#[cfg(unix)]
mod clock;
#[cfg(target_os = "linux")]
mod cores;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod gpu;
#[cfg(target_os = "linux")]
mod looks;
#[cfg(target_os = "linux")]
mod machine;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod monitor;
#[cfg(target_os = "linux")]
mod neighbours;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod scaling;
mod trace;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

#[cfg(unix)]
pub use self::clock::monotonic;
#[cfg(not(target_os = "linux"))]
pub use self::elsewhere::Monitor;
#[cfg(target_os = "linux")]
pub use self::{
    gpu::driver,
    memory::{Space, space},
    monitor::Monitor,
    processes::MARK,
};

/// What there is to use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Machine {
    /// Cores of the machine that are online.
    pub cores_online: u32,
    /// Cores this process may run on.
    pub cores_affinity: u32,
    /// Cores a control group grants, if it limits them.
    pub cores_quota: Option<f64>,
    /// The smallest of these.
    pub cores: f64,
    /// Work that all usable cores together do, as a multiple of what one does alone; 0 if it was not measured. Less than
    /// `cores` where hardware threads share a core.
    pub scaling: f64,
    /// Model of the processor.
    pub processor: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Limit of the control group, if there is one.
    pub memory_limit: Option<u64>,
    /// Size of `/dev/shm`, if it exists.
    pub shm: Option<u64>,
    /// Devices.
    pub gpus: Vec<Gpu>,
    /// Why there are none, if the driver says.
    pub no_gpu: Option<String>,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Gpu {
    /// Its name.
    pub name: String,
    /// Bytes of memory.
    pub memory: u64,
    /// Version of the driver.
    pub driver: String,
}

/// A look at the machine. Counts and times are those since the look before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tick {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub t: u64,
    /// Share of the time each usable core was busy, 0 to 1.
    pub cores: Vec<f32>,
    /// Share of the time cores waited for input or output, mean over cores.
    pub iowait: f32,
    /// Share of the time a hypervisor took, mean over cores.
    pub steal: f32,
    /// CPU time of processes that are not the script's, nanoseconds.
    pub foreign_cpu: u64,
    /// Who used that time, in looks that look for it.
    pub neighbours: Option<Neighbours>,
    /// CPU time of processes of the script that began and ended since the look before, nanoseconds.
    pub short_lived: u64,
    /// Processes of the script, by process id.
    pub processes: BTreeMap<u32, Process>,
    /// Bytes that can be had without swapping.
    pub memory_available: u64,
    /// Page cache, bytes.
    pub page_cache: u64,
    /// Bytes swapped in.
    pub swap_in: u64,
    /// Page faults of the whole machine that were given a huge page, of 2 MB mostly.
    pub huge_faults: u64,
    /// Bytes the control group uses, with its page cache.
    pub cgroup_memory: Option<u64>,
    /// Time the control group was throttled, nanoseconds.
    pub throttled: u64,
    /// Share of time in which some task waited for: the processor, input and output, memory (pressure stall information).
    pub pressure: Option<Pressure>,
    /// All disks together.
    pub disk: Disk,
    /// Bytes received, all interfaces with loopback.
    pub received: u64,
    /// Bytes in use of `/dev/shm`.
    pub shm_used: u64,
    /// Devices.
    pub gpus: Vec<GpuTick>,
}

/// See [`Tick::neighbours`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Neighbours {
    /// Nanoseconds since they were looked at last.
    pub time: u64,
    /// Those that used the processor most meanwhile.
    pub processes: Vec<Foreign>,
}

/// A process that is not the script's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Foreign {
    /// Its number.
    pub pid: u32,
    /// Its program, and the script that it runs.
    pub name: String,
    /// CPU time, nanoseconds.
    pub cpu: u64,
}

/// See [`Tick::processes`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Process {
    /// CPU time of all threads, nanoseconds.
    pub cpu: u64,
    /// Of that, in the kernel.
    pub system: u64,
    /// Time threads were runnable but not running, nanoseconds, all threads.
    pub delay: u64,
    /// The same of the main thread alone.
    pub main_delay: u64,
    /// CPU time of the main thread alone.
    pub main_cpu: u64,
    /// Threads.
    pub threads: u32,
    /// Threads that used CPU time since the look before.
    pub active: u32,
    /// Resident bytes.
    pub rss: u64,
    /// Bytes through read calls.
    pub rchar: u64,
    /// Bytes from storage.
    pub read_bytes: u64,
    /// Read calls.
    pub reads: u64,
    /// Page faults that read from storage.
    pub major_faults: u64,
    /// Page faults that did not.
    pub minor_faults: u64,
    /// Times a thread was made to give up its core.
    pub preempted: u64,
    /// Whether its main thread waits for storage (state D).
    pub blocked: bool,
}

/// See [`Tick::pressure`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pressure {
    /// Processor.
    pub cpu: f32,
    /// Input and output.
    pub io: f32,
    /// Memory.
    pub memory: f32,
}

/// See [`Tick::disk`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Disk {
    /// Bytes read.
    pub bytes: u64,
    /// Reads.
    pub reads: u64,
    /// Time those reads took, added up, nanoseconds.
    pub read_time: u64,
    /// Share of time the busiest disk was busy, 0 to 1.
    pub busy: f32,
    /// Requests waiting or under way, mean.
    pub queue: f32,
}

/// See [`Tick::gpus`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuTick {
    /// Share of time a kernel was running, 0 to 1.
    pub busy: f32,
    /// Bytes in use.
    pub memory: u64,
    /// Clock of the multiprocessors, MHz.
    pub clock: u32,
    /// Bytes a second over PCIe to the device.
    pub pcie_rx: u64,
    /// Share of time the decoder was busy, 0 to 1.
    pub decoder: f32,
}

/// Reads that were tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reads {
    /// Readers at once.
    pub readers: u32,
    /// Files that were read.
    pub files: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Seconds that a reader took for a file, mean.
    pub time: f64,
    /// Seconds the round took.
    pub seconds: f64,
}

/// An image file that the script read, by its head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Picture {
    /// Height in pixels.
    pub height: u32,
    /// Width in pixels.
    pub width: u32,
}

/// The machine and all looks at it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// What there is.
    pub machine: Machine,
    /// Looks, in order of time. The first one is the begin: its counts are 0.
    pub ticks: Vec<Tick>,
    /// Reads that were tried after the script ended.
    pub storage: Vec<Reads>,
    /// Some of the image files that were read.
    pub pictures: Vec<Picture>,
    /// CPU time that looking took, nanoseconds.
    pub monitor_cpu: u64,
    /// What this system does not tell, a sentence each.
    pub missing: Vec<String>,
}
