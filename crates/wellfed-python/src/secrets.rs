//! Secrets of stores, which are no part of plans, on their way to another process.

use pyo3::prelude::*;
use wellfed::store::secrets;

/// What a plan refers to: numbers, and what is kept under them.
#[pyfunction]
pub(crate) fn referred_secrets(plan: &str) -> Vec<(String, String)> {
    secrets::referred(plan)
}

/// Keeps what `referred_secrets` gave in another process.
#[pyfunction]
pub(crate) fn keep_secrets(referred: Vec<(String, String)>) {
    referred.into_iter().for_each(|(number, pairs)| secrets::put(number, pairs));
}
