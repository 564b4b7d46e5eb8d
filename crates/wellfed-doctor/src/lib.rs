//! Why a GPU idles: from what was measured in a training script to a verdict, a fix and its predicted gain.
//!
//! ```text
//! probes in the script's processes ──> record (JSON lines in a run directory) ─┐
//! /proc, cgroups, NVML ──────────────> system (a tick every 0.1 s) ────────────┴─> evidence
//!                                                                                    │
//!                     report <── advice <── verdict (what-if on a model of the pipeline) <──┘
//! ```
//!
//! Everything after `evidence` is a pure function of it, so that a kept run can be judged again.

mod diagnose;
pub mod edit;
pub mod evidence;
pub mod exit;
pub mod leave;
pub mod model;
pub mod patch;
pub mod proof;
pub mod proved;
pub mod record;
mod remade;
pub mod report;
pub mod run_dir;
pub mod show;
mod source;
pub mod stage;
pub mod sweep;
pub mod system;
pub mod verdict;

pub use diagnose::diagnose;
