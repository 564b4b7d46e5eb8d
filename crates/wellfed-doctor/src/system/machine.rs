//! What this machine is made of, as far as this process may use it.

use std::fs;

use super::{Machine, cgroup::Cgroups, cores, gpu, memory};

impl Machine {
    /// The machine this process runs on.
    pub fn this() -> Self {
        let cgroups = Cgroups::own();
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (online, usable) = (count(&cores::online()), count(&cores::usable()));
        let fallback =
            std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        let or = |number: u32, other: u32| if number == 0 { other } else { number };
        let (cores_affinity, cores_quota) = (or(usable, fallback), cgroups.cores());
        let total =
            memory::value(read("/proc/meminfo").as_bytes(), "MemTotal:").unwrap_or(0).saturating_mul(1024);
        let (gpus, no_gpu) = match gpu::list() {
            Ok(gpus) => (gpus, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        Self {
            cores_online: or(online, cores_affinity),
            cores_affinity,
            cores_quota,
            cores: cores_quota.map_or(f64::from(cores_affinity), |quota| quota.min(cores_affinity.into())),
            scaling: 0.0,
            processor: processor(&read("/proc/cpuinfo")),
            memory: total,
            memory_limit: cgroups.memory_limit().filter(|limit| total == 0 || *limit < total),
            shm: memory::shm().map(|space| space.size),
            gpus,
            no_gpu,
        }
    }
}

fn count(numbers: &[usize]) -> u32 {
    u32::try_from(numbers.len()).unwrap_or(u32::MAX)
}

/// Its name, where the kernel says it.
fn processor(cpuinfo: &str) -> String {
    let field = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim().to_owned())
        })
    };
    ["model name", "Model", "Hardware", "cpu model"].iter().find_map(|name| field(name)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_processors() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\n"), "Some CPU @ 2 GHz");
        assert_eq!(processor("processor\t: 0\nHardware\t: A board\n"), "A board");
        assert_eq!(processor(""), "");
    }

    #[test]
    fn this_machine_is_a_machine() {
        let this = Machine::this();
        assert!(this.cores_affinity >= 1 && this.cores_online >= this.cores_affinity, "{this:?}");
        assert!(this.cores > 0.0 && this.cores <= f64::from(this.cores_affinity), "{this:?}");
        assert!(
            this.memory > 1 << 20 && this.memory_limit.is_none_or(|limit| limit < this.memory),
            "{this:?}"
        );
        assert_ne!(this.gpus.is_empty(), this.no_gpu.is_none(), "{this:?}");
    }
}
