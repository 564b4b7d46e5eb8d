//! What is wrong with a machine. Facts in, sentences out: what was seen, then what to do.

use serde::Serialize;

use super::{Facts, gigabytes};

/// Batches of several workers lie in `/dev/shm` at once; containers get 64 MB of it by default.
const SMALL_SHM: u64 = 1 << 30;

/// Memory below which loading and training get into each other's way.
const LITTLE_MEMORY: u64 = 2 << 30;

/// Free disk space below which checkpoints and caches fail soon.
const LITTLE_DISK: u64 = 2 << 30;

/// Open files below which data sets of many shards and workers fail.
const FEW_FILES: u64 = 1024;

/// Something to mend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Warning {
    /// What was seen.
    pub(super) text: String,
    /// What to do.
    pub(super) hint: String,
}

/// The most pressing first.
pub(super) fn warnings(facts: &Facts) -> Vec<Warning> {
    let mut all = Vec::new();
    let mut warn = |text: String, hint: &str| all.push(Warning { text, hint: hint.to_owned() });
    device(facts, &mut warn);
    let machine = &facts.machine;
    if let Some(quota) = machine.cores_quota.filter(|quota| *quota < f64::from(machine.cores_affinity)) {
        warn(
            format!(
                "a control group grants {quota:.1} cores, but programs see {}: each starts too many threads",
                machine.cores_affinity
            ),
            &format!(
                "set OMP_NUM_THREADS={:.0}, and num_workers to at most that, or raise the limit of the container",
                quota.ceil()
            ),
        );
    }
    if let Some(shm) = machine.shm.filter(|shm| *shm < SMALL_SHM) {
        warn(
            format!(
                "/dev/shm has only {}: workers of torch's DataLoader hand over batches there",
                gigabytes(shm)
            ),
            "start the container with --shm-size=8g or --ipc=host",
        );
    } else if machine.shm.is_some() && facts.shm_free.is_some_and(|free| free < SMALL_SHM / 4) {
        warn(
            format!("/dev/shm is nearly full: {} free", gigabytes(facts.shm_free.unwrap_or(0))),
            "look for what programs that crashed left in /dev/shm",
        );
    }
    if let Some(free) = facts.memory_available.filter(|free| *free < LITTLE_MEMORY) {
        warn(
            format!("only {} of memory are available", gigabytes(free)),
            "end other programs, or use fewer workers and smaller batches",
        );
    }
    if let Some(place) = &facts.place {
        if place.free < LITTLE_DISK {
            warn(
                format!("only {} are free where {} lies", gigabytes(place.free), place.path),
                "remove files there: checkpoints and caches need room",
            );
        }
        if place.network {
            warn(
                format!(
                    "{} lies on {}, which answers every open and read over a network",
                    place.path, place.kind
                ),
                "copy the data to a local disk once, or pack it into tar shards",
            );
        } else if place.rotating == Some(true) {
            warn(
                format!("{} lies on a rotating disk: reads in random order are slow", place.path),
                "pack the data into tar shards, or copy it to a solid-state disk",
            );
        }
    }
    if let Some(soft) = facts.open_files.filter(|soft| *soft < FEW_FILES) {
        let hard = facts.open_files_limit.unwrap_or(soft);
        warn(
            format!("a process may have only {soft} files open"),
            &format!("run `ulimit -n {hard}` before training"),
        );
    }
    all
}

fn device(facts: &Facts, warn: &mut dyn FnMut(String, &str)) {
    let machine = &facts.machine;
    let has_files = !facts.device_files.is_empty();
    if machine.gpus.is_empty() {
        let why = machine.no_gpu.as_deref().unwrap_or("none was found");
        if facts.colab {
            warn(
                "this Colab runtime has no GPU".to_owned(),
                "Runtime > Change runtime type > Hardware accelerator: T4 GPU; then run everything again",
            );
        } else if why.contains("CUDA_VISIBLE_DEVICES") {
            warn(why.to_owned(), "unset CUDA_VISIBLE_DEVICES, or name devices that exist");
        } else if has_files {
            warn(
                format!("there are devices ({}), but {why}", facts.device_files[0].path),
                "in a container, start it with --gpus all (NVIDIA's container toolkit); else install the driver",
            );
        } else if facts.frameworks.iter().any(|framework| framework.cuda.is_some()) {
            warn(
                format!("torch or TensorFlow is built for CUDA, but there is no device: {why}"),
                "in a container, start it with --gpus all; on a cluster, ask for a node with a GPU",
            );
        }
        return;
    }
    let denied = |file: &&super::DeviceFile| !file.usable && file.path != "/dev/nvidia-uvm";
    if let Some(file) = facts.device_files.iter().find(denied) {
        warn(
            format!("{} cannot be opened by this user", file.path),
            "ask for access (often: membership in the group video)",
        );
    }
    let newest = facts.driver.as_ref().and_then(|driver| driver.cuda);
    for framework in &facts.frameworks {
        let name = framework.name;
        let Some((major, minor)) = framework.cuda else {
            warn(
                format!("{name} {} is built without CUDA: it trains on the processor", framework.version),
                "install the build for CUDA (see the project's page on installing)",
            );
            continue;
        };
        // Within a major version, older drivers run newer programs.
        if let Some((most, part)) = newest.filter(|(most, _)| *most < major) {
            let version = facts.driver.as_ref().map_or("", |driver| &driver.version);
            warn(
                format!(
                    "{name} is built for CUDA {major}.{minor}, but driver {version} runs CUDA up to {most}.{part}"
                ),
                &format!("install a newer driver, or a build of {name} for CUDA {most}"),
            );
        } else if framework.device_usable == Some(false) {
            warn(
                format!("{name} cannot use the device though the driver sees it"),
                &format!("start {name} alone and look at its message; often a library of CUDA is missing"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use wellfed_doctor::system::{Gpu, Machine};

    use super::{
        super::{Driver, frameworks::Framework, place::Place},
        *,
    };

    fn healthy() -> Facts {
        Facts {
            machine: Machine {
                cores_online: 8,
                cores_affinity: 8,
                cores: 8.0,
                memory: 64 << 30,
                shm: Some(32 << 30),
                gpus: vec![Gpu { name: "A device".into(), memory: 16 << 30, driver: "570.1".into() }],
                ..Machine::default()
            },
            driver: Some(Driver { version: "570.1".into(), cuda: Some((12, 8)) }),
            frameworks: vec![torch(Some((12, 9)), Some(true))],
            memory_available: Some(50 << 30),
            shm_free: Some(32 << 30),
            place: Some(Place { path: "data".into(), free: 99 << 30, ..Place::default() }),
            open_files: Some(65536),
            ..Facts::default()
        }
    }

    fn torch(cuda: Option<(i32, i32)>, device_usable: Option<bool>) -> Framework {
        Framework { name: "torch", version: "2.9".into(), cuda, device_usable }
    }

    fn texts(facts: &Facts) -> Vec<String> {
        warnings(facts).into_iter().map(|warning| warning.text + " -> " + &warning.hint).collect()
    }

    #[test]
    fn a_healthy_machine_is_not_complained_of() {
        assert_eq!(texts(&healthy()), [""; 0]);
    }

    #[test]
    fn devices_that_cannot_be_used_have_reasons() {
        let with = |framework| Facts { frameworks: vec![framework], ..healthy() };
        assert!(texts(&with(torch(Some((13, 0)), Some(false))))[0].contains("runs CUDA up to 12.8"));
        assert!(texts(&with(torch(None, Some(false))))[0].contains("without CUDA"));
        assert!(texts(&with(torch(Some((12, 1)), Some(false))))[0].contains("cannot use the device"));
        let none = || Machine { gpus: vec![], no_gpu: Some("no NVIDIA driver".into()), ..healthy().machine };
        let colab = Facts { machine: none(), colab: true, ..healthy() };
        assert!(texts(&colab)[0].contains("Change runtime type"));
        assert!(texts(&Facts { machine: none(), ..healthy() })[0].contains("--gpus all"));
        let processor = Facts { machine: none(), frameworks: vec![torch(None, None)], ..healthy() };
        assert_eq!(texts(&processor), [""; 0]);
    }

    #[test]
    fn limits_are_named_with_their_numbers() {
        let mut facts = healthy();
        facts.machine.cores_quota = Some(1.5);
        facts.machine.shm = Some(64 << 20);
        facts.memory_available = Some(1 << 30);
        facts.open_files = Some(256);
        facts.open_files_limit = Some(4096);
        facts.place =
            Some(Place { path: "data".into(), kind: "nfs4".into(), network: true, ..Place::default() });
        let texts = texts(&facts);
        let parts = [
            "OMP_NUM_THREADS=2",
            "--shm-size",
            "1.1 GB of memory",
            "0.0 GB are free",
            "nfs4",
            "ulimit -n 4096",
        ];
        assert_eq!(texts.len(), parts.len(), "{texts:?}");
        for (text, part) in texts.iter().zip(parts) {
            assert!(text.contains(part), "{text}");
        }
    }
}
