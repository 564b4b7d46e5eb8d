//! Devices, as the NVIDIA driver tells: a second library says nothing that this one does not.
//!
//! The driver is asked on a thread of its own, because some of its answers take 20 ms.

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use nvml_wrapper::{
    Device, Nvml,
    enum_wrappers::device::{Clock, PcieUtilCounter},
    error::NvmlError,
};

use super::{Gpu, GpuTick, clock::thread_cpu};

/// Time between two questions. The driver's own figures are means over a sixth of a second or more.
const EVERY: Duration = Duration::from_millis(200);

/// Questions about the bus are asked this seldom: each takes the driver 20 ms.
const BUS_EVERY: u32 = 5;

/// Devices that the script sees, or why there are none.
pub(super) fn list() -> Result<Vec<Gpu>, String> {
    let nvml = open()?;
    let driver = nvml.sys_driver_version().unwrap_or_default();
    let devices = visible(&nvml)?;
    let gpu = |device: &Device<'_>| Gpu {
        name: device.name().unwrap_or_default(),
        memory: device.memory_info().map_or(0, |memory| memory.total),
        driver: driver.clone(),
    };
    Ok(devices.iter().map(gpu).collect())
}

/// Version of the driver and the newest CUDA it can run, as (major, minor); `None` without a driver.
pub fn driver() -> Result<(String, Option<(i32, i32)>), String> {
    let nvml = open()?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let cuda = cuda.map(|version| (version / 1000, version % 1000 / 10));
    Ok((nvml.sys_driver_version().map_err(|error| why(&error))?, cuda))
}

fn open() -> Result<Nvml, String> {
    // The name without a number is there only where CUDA's development files are.
    let numbered = Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init();
    numbered.or_else(|error| if unloadable(&error) { Nvml::init() } else { Err(error) }).map_err(|e| why(&e))
}

fn unloadable(error: &NvmlError) -> bool {
    matches!(error, NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound)
}

fn why(error: &NvmlError) -> String {
    match error {
        error if unloadable(error) => "no NVIDIA driver (libnvidia-ml.so.1 cannot be loaded)".to_owned(),
        NvmlError::DriverNotLoaded => "the NVIDIA driver is installed but not loaded".to_owned(),
        NvmlError::NoPermission => "the NVIDIA driver denies access to /dev/nvidia*".to_owned(),
        error => format!("the NVIDIA driver says: {error}"),
    }
}

/// The devices that `CUDA_VISIBLE_DEVICES` leaves.
fn visible(nvml: &Nvml) -> Result<Vec<Device<'_>>, String> {
    let count = nvml.device_count().map_err(|error| why(&error))?;
    let all: Vec<_> = (0..count).filter_map(|index| nvml.device_by_index(index).ok()).collect();
    let names: Vec<_> = all.iter().map(|device| device.uuid().unwrap_or_default()).collect();
    let chosen = env::var("CUDA_VISIBLE_DEVICES").ok();
    let chosen = chosen.map_or_else(|| (0..all.len()).collect(), |list| choose(&list, &names));
    let mut all: Vec<_> = all.into_iter().map(Some).collect();
    let devices: Vec<_> = chosen.into_iter().filter_map(|index| all.get_mut(index)?.take()).collect();
    if devices.is_empty() {
        return Err(if count == 0 {
            "the NVIDIA driver knows no device".to_owned()
        } else {
            format!("CUDA_VISIBLE_DEVICES hides all {count} devices")
        });
    }
    Ok(devices)
}

/// Positions of the devices in `list`, which names them by number or by the begin of their names; as CUDA does, up to the
/// first that does not exist.
fn choose(list: &str, names: &[String]) -> Vec<usize> {
    let find = |word: &str| match word.parse::<usize>() {
        Ok(index) => (index < names.len()).then_some(index),
        Err(_) if word.is_empty() => None,
        // Part of a device: its figures are those of the whole.
        Err(_) if word.starts_with("MIG-") => (!names.is_empty()).then_some(0),
        Err(_) => names.iter().position(|name| name.starts_with(word)),
    };
    list.split(',').map_while(|word| find(word.trim())).collect()
}

/// Looks at the devices until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    latest: Arc<Mutex<Vec<GpuTick>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Watch {
    /// Begins, if there are devices and they tell how busy they are; else says what is missing.
    pub(super) fn start() -> Result<Self, String> {
        let (latest, stop) = (Arc::<Mutex<Vec<GpuTick>>>::default(), Arc::<AtomicBool>::default());
        let (result, stopped) = (Arc::clone(&latest), Arc::clone(&stop));
        let nvml = open()?;
        if visible(&nvml)?.iter().any(|device| device.utilization_rates().is_err()) {
            return Err("the driver does not tell how busy the device is".to_owned());
        }
        let work = move || {
            let Ok(devices) = visible(&nvml) else { return thread_cpu() };
            let mut look = 0;
            let mut bus = Vec::new();
            while !stopped.load(Ordering::Relaxed) {
                if look % BUS_EVERY == 0 {
                    bus = devices.iter().map(received).collect();
                }
                look += 1;
                let ticks = devices.iter().zip(&bus).map(|(device, bus)| tick(device, *bus)).collect();
                *result.lock().unwrap_or_else(PoisonError::into_inner) = ticks;
                thread::park_timeout(EVERY);
            }
            thread_cpu()
        };
        let thread = thread::Builder::new().name("wellfed-gpus".to_owned()).spawn(work);
        Ok(Self { latest, stop, thread: Some(thread.map_err(|error| format!("no thread: {error}"))?) })
    }

    /// The latest figures.
    pub(super) fn latest(&self) -> Vec<GpuTick> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends; gives the CPU time it took.
    pub(super) fn stop(mut self) -> u64 {
        self.end().unwrap_or(0)
    }

    fn end(&mut self) -> Option<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        thread.join().ok()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.end();
    }
}

fn received(device: &Device<'_>) -> u64 {
    u64::from(device.pcie_throughput(PcieUtilCounter::Receive).unwrap_or(0)) * 1024
}

fn tick(device: &Device<'_>, bus: u64) -> GpuTick {
    GpuTick {
        busy: device.utilization_rates().map_or(0.0, |rates| rates.gpu as f32 / 100.0),
        memory: device.memory_info().map_or(0, |memory| memory.used),
        clock: device.clock_info(Clock::SM).unwrap_or(0),
        pcie_rx: bus,
        decoder: device.decoder_utilization().map_or(0.0, |decoder| decoder.utilization as f32 / 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_chosen_as_cuda_does() {
        let names = ["GPU-aa11".to_owned(), "GPU-bb22".to_owned()];
        assert_eq!(choose("1,0", &names), [1, 0]);
        assert_eq!(choose("GPU-bb", &names), [1]);
        assert_eq!(choose("0,-1,1", &names), [0]);
        assert_eq!(choose("", &names), [0; 0]);
        assert_eq!(choose("7", &names), [0; 0]);
        assert_eq!(choose("MIG-1", &names), [0]);
    }

    #[test]
    fn without_a_driver_there_is_a_sentence() {
        match list() {
            Ok(gpus) => assert!(!gpus.is_empty()),
            Err(why) => {
                assert!(!why.is_empty() && driver().is_err() != why.contains("CUDA_VISIBLE"), "{why}")
            }
        }
    }
}
