//! The command `wellfed`, started from Python.

use std::ffi::OsString;

use pyo3::prelude::*;

use crate::enter;

/// Runs the command with `args`, the first of which is the program's name. Returns the exit status.
#[pyfunction]
pub(crate) fn run_command(py: Python<'_>, args: Vec<OsString>) -> PyResult<i32> {
    enter::slow(py, move || Ok(wellfed_cli::run(args)))
}
