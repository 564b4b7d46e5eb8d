//! Where there is no `/proc`: what the standard library knows, and what is missing.

use std::{io, path::Path, time::Duration};

use super::{Machine, Tick, Trace};

/// Says what this system cannot tell.
const MISSING: &str = "processes, memory, disks and devices are measured on Linux only";

impl Machine {
    /// The machine this process runs on.
    pub fn this() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(1));
        Self {
            cores_online: cores,
            cores_affinity: cores,
            cores: f64::from(cores),
            no_gpu: Some(MISSING.to_owned()),
            ..Self::default()
        }
    }

    /// Measures nothing here.
    pub fn measure_scaling(&mut self) {}
}

/// Looks at nothing, and says so.
#[derive(Debug)]
pub struct Monitor(());

impl Monitor {
    /// Begins.
    ///
    /// # Errors
    ///
    /// None on this system.
    pub fn start(_root_pid: u32, _interval: Duration, _records: Option<&Path>) -> io::Result<Self> {
        Ok(Self(()))
    }

    /// There is none.
    pub fn latest(&self) -> Option<Tick> {
        None
    }

    /// Ends.
    pub fn stop(self) -> Trace {
        Trace { machine: Machine::this(), missing: vec![MISSING.to_owned()], ..Trace::default() }
    }
}
