//! `_native.Order`: which samples come when, for loaders whose samples Python makes.

use pyo3::prelude::*;
use wellfed::{
    Sequence,
    order::{Pick, State},
};

use crate::{enter, error::to_python};

/// Leaf, index, epoch.
type Parts = Vec<(usize, u64, u64)>;

/// The order of a data set.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Order {
    inner: Sequence,
}

impl Order {
    pub(crate) fn new(inner: Sequence) -> Self {
        Self { inner }
    }
}

#[pymethods]
impl Order {
    /// Batches of an epoch, of which `base` samples came before; None is without end.
    #[pyo3(signature = (epoch=0, base=0))]
    fn length_from(&self, epoch: u64, base: u64) -> Option<u64> {
        self.inner.len_from(epoch, base)
    }

    /// The fingerprint of the pipeline.
    #[getter]
    fn fingerprint(&self) -> u64 {
        self.inner.fingerprint()
    }

    #[getter]
    fn sharded(&self) -> bool {
        self.inner.sharded()
    }

    /// For each sample of a batch, what makes it.
    fn batch(&self, py: Python<'_>, epoch: u64, base: u64, number: u64) -> PyResult<Vec<Parts>> {
        let batch = enter::quick(py, || self.inner.batch(epoch, base, number))?;
        Ok(batch.into_iter().map(parts).collect())
    }

    /// What is tried in place of a bad sample.
    fn replacement(
        &self,
        py: Python<'_>,
        epoch: u64,
        base: u64,
        number: u64,
        offset: usize,
        attempt: u64,
    ) -> PyResult<Parts> {
        enter::quick(py, || self.inner.replacement((epoch, base, number), offset, attempt)).map(parts)
    }

    /// A position as JSON.
    fn state(&self, py: Python<'_>, epoch: u64, base: u64, number: u64) -> PyResult<String> {
        let state = self.inner.state(epoch, base, number);
        serde_json::to_string(&state).map_err(|e| {
            to_python(
                py,
                &wellfed::Error::new(wellfed::ErrorKind::Internal, format!("cannot be written as JSON: {e}")),
            )
        })
    }

    /// (epoch, base, number) of a position.
    fn restore(&self, py: Python<'_>, state: &str) -> PyResult<(u64, u64, u64)> {
        let state: State = serde_json::from_str(state).map_err(|e| {
            to_python(py, &wellfed::Error::config(format!("this is no state of a loader: {e}")))
        })?;
        enter::quick(py, || self.inner.restore(&state))
    }

    fn leaf_seed(&self, py: Python<'_>, leaf: usize) -> PyResult<u64> {
        enter::quick(py, || self.inner.leaf_seed(leaf))
    }

    /// Names of a source and of a sample in it.
    fn name_of(&self, py: Python<'_>, leaf: usize, index: u64) -> PyResult<(String, String)> {
        enter::quick(py, || self.inner.name_of(leaf, index))
    }
}

fn parts(picks: Vec<Pick>) -> Parts {
    picks.into_iter().map(|pick| (pick.leaf, pick.index, pick.epoch)).collect()
}
