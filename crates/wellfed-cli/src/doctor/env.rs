//! `wellfed doctor env`: what this machine offers to training, and what is wrong with it.

mod advice;
mod frameworks;
mod place;

use std::{env, io::Write, path::PathBuf, sync::Arc};

use clap::Args;
use serde::Serialize;
use wellfed::{
    Dataset,
    sample::{DType, Structure},
    source::{ArrayData, Pixels, TensorSlices},
};
use wellfed_doctor::system::Machine;

use self::{frameworks::Framework, place::Place};
use super::Setting;
use crate::output::{self, Failure, printable};

/// Check device, driver, cores, memory, disk and limits of this machine
#[derive(Debug, Args)]
pub(crate) struct Env {
    /// Folder of the data
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Interpreter whose torch and TensorFlow are looked at [default: the one that runs this command]
    #[arg(long, value_name = "EXE")]
    python: Option<std::ffi::OsString>,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

/// What was found. Names and meaning of the fields are kept from release to release.
#[derive(Debug, Default, Serialize)]
struct Facts {
    version: &'static str,
    /// The most pressing first.
    warnings: Vec<advice::Warning>,
    machine: Machine,
    driver: Option<Driver>,
    /// Files of devices in /dev, and whether they may be opened.
    device_files: Vec<DeviceFile>,
    /// Whether this is a notebook of Google Colab.
    colab: bool,
    frameworks: Vec<Framework>,
    /// Why the interpreter could not be asked.
    interpreter_problem: Option<String>,
    memory_available: Option<u64>,
    shm_free: Option<u64>,
    place: Option<Place>,
    /// Files a process may have open.
    open_files: Option<u64>,
    /// The most that it may raise this to.
    open_files_limit: Option<u64>,
    wellfed: Option<Engine>,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Driver {
    version: String,
    /// Newest CUDA it can run: major and minor.
    cuda: Option<(i32, i32)>,
}

#[derive(Clone, Debug, Serialize)]
struct DeviceFile {
    path: String,
    usable: bool,
}

/// What wellfed takes by itself.
#[derive(Clone, Debug, Serialize)]
struct Engine {
    threads: usize,
    memory_budget: u64,
}

impl Env {
    /// Looks and reports.
    pub(crate) fn run(self, setting: &Setting) -> Result<(), Failure> {
        let python = self.python.or_else(|| setting.interpreter.clone()).unwrap_or_else(|| "python3".into());
        let machine = Machine::this();
        let device_files = device_files();
        let try_device = machine.no_gpu.is_none() || !device_files.is_empty();
        let asked = frameworks::ask(&python, try_device);
        let (open_files, open_files_limit) = place::open_files().unzip();
        let mut facts = Facts {
            version: env!("CARGO_PKG_VERSION"),
            driver: driver(),
            device_files,
            colab: env::var_os("COLAB_RELEASE_TAG").is_some() || env::var_os("COLAB_GPU").is_some(),
            interpreter_problem: asked.as_ref().err().cloned(),
            frameworks: asked.unwrap_or_default(),
            memory_available: place::memory_available(),
            shm_free: place::space("/dev/shm".as_ref()).map(|(_, free)| free),
            place: place::of(&self.path),
            open_files,
            open_files_limit,
            wellfed: engine(),
            machine,
            ..Facts::default()
        };
        facts.warnings = advice::warnings(&facts);
        if self.json { output::json(&facts) } else { Ok(facts.print()?) }
    }
}

#[cfg(target_os = "linux")]
fn driver() -> Option<Driver> {
    let (version, cuda) = wellfed_doctor::system::driver().ok()?;
    Some(Driver { version, cuda })
}

#[cfg(not(target_os = "linux"))]
fn driver() -> Option<Driver> {
    None
}

fn device_files() -> Vec<DeviceFile> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir("/dev").into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("nvidia").is_some_and(|rest| rest.parse::<u32>().is_ok());
        if number || name == "nvidiactl" || name == "nvidia-uvm" || name == "dxg" {
            let usable = std::fs::OpenOptions::new().read(true).write(true).open(entry.path()).is_ok();
            files.push(DeviceFile { path: format!("/dev/{name}"), usable });
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Asks the engine itself: a loader of next to nothing.
fn engine() -> Option<Engine> {
    let data = ArrayData::from_vec(vec![0; 12], DType::UInt8, vec![1, 2, 2, 3]).ok()?;
    let source = TensorSlices::new(vec![("image".into(), data, Pixels::Infer)], Structure::Field(0)).ok()?;
    let loader = Dataset::new(Arc::new(source)).batch(1, false).loader().ok()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Some(Engine { threads, memory_budget: loader.stats().memory_budget })
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.1} GB", bytes as f64 / 1e9)
}

impl Facts {
    fn print(&self) -> std::io::Result<()> {
        let mut out = output::results();
        for warning in &self.warnings {
            writeln!(out, "warning: {}", printable(&warning.text))?;
            writeln!(out, "   hint: {}", printable(&warning.hint))?;
        }
        if !self.warnings.is_empty() {
            writeln!(out)?;
        }
        for (name, value) in self.lines() {
            writeln!(out, "{name:<12}{}", printable(&value))?;
        }
        if self.warnings.is_empty() {
            writeln!(out, "\nnothing to complain of")?;
        }
        out.flush()
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let machine = &self.machine;
        let mut lines = Vec::new();
        for gpu in &machine.gpus {
            lines.push(("device", format!("{}, {}, driver {}", gpu.name, gigabytes(gpu.memory), gpu.driver)));
        }
        if let Some(why) = &machine.no_gpu {
            lines.push(("device", format!("none: {why}")));
        }
        if let Some((major, minor)) = self.driver.as_ref().and_then(|driver| driver.cuda) {
            lines.push(("CUDA", format!("the driver runs programs of CUDA up to {major}.{minor}")));
        }
        for framework in &self.frameworks {
            lines.push((framework.name, framework.describe()));
        }
        if let Some(problem) = &self.interpreter_problem {
            lines.push(("Python", problem.clone()));
        }
        let quota =
            machine.cores_quota.map_or_else(String::new, |q| format!(", {q:.1} granted by a control group"));
        let name = if machine.processor.is_empty() { "unknown processor" } else { &machine.processor };
        lines.push((
            "cores",
            format!(
                "{:.1} to use: {} online, {} allowed{quota}; {name}",
                machine.cores, machine.cores_online, machine.cores_affinity
            ),
        ));
        let available =
            self.memory_available.map_or_else(String::new, |b| format!(", {} available", gigabytes(b)));
        let limit =
            machine.memory_limit.map_or_else(String::new, |b| format!(", limited to {}", gigabytes(b)));
        lines.push(("memory", format!("{}{available}{limit}", gigabytes(machine.memory))));
        if let Some(shm) = machine.shm {
            let free = self.shm_free.unwrap_or(0);
            lines.push(("/dev/shm", format!("{}, {} free", gigabytes(shm), gigabytes(free))));
        }
        if let Some(place) = &self.place {
            lines.push(("disk", place.describe()));
        }
        if let Some(soft) = self.open_files {
            let hard = self.open_files_limit.unwrap_or(soft);
            lines.push(("open files", format!("{soft}, can be raised to {hard}")));
        }
        if let Some(engine) = &self.wellfed {
            lines.push((
                "wellfed",
                format!(
                    "{} threads, {} for batches and caches",
                    engine.threads,
                    gigabytes(engine.memory_budget)
                ),
            ));
        }
        lines
    }
}
