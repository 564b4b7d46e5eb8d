//! `_native.Dataset`: plans as JSON in, plans as JSON out.

use std::sync::OnceLock;

use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use wellfed::{
    Error, Options, Plan, Result, Sampler,
    plan::Verb,
    sample::{DType, Structure},
    source::{ArrayData, SourceSpec},
    store::LocalStore,
    transform::Transform,
};

use crate::{enter, error::to_python, loader, memory};

/// Arrays as Python gives them: each with the name of its dtype, since NumPy cannot name all of them.
type Given<'py> = Option<Vec<(Bound<'py, PyAny>, String)>>;

/// A pipeline.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Dataset {
    inner: wellfed::Dataset,
    /// Made with the first sample that is asked for by itself.
    sampler: OnceLock<Sampler>,
}

impl Dataset {
    fn new(inner: wellfed::Dataset) -> Self {
        Self { inner, sampler: OnceLock::new() }
    }
}

#[pymethods]
impl Dataset {
    /// Opens the source that the JSON text describes.
    #[staticmethod]
    #[pyo3(signature = (spec, arrays=None))]
    fn open(py: Python<'_>, spec: &str, arrays: Given<'_>) -> PyResult<Self> {
        let spec: SourceSpec = parse(py, "source", spec)?;
        let arrays = borrow(py, arrays)?;
        let inner = enter::slow(py, move || {
            Ok(wellfed::Dataset::new(match arrays {
                Some(arrays) => spec.open_arrays(arrays)?,
                None => spec.open(std::sync::Arc::new(LocalStore::default()))?,
            }))
        })?;
        Ok(Self::new(inner))
    }

    /// Opens the source of a whole plan.
    #[staticmethod]
    #[pyo3(signature = (plan, arrays=None))]
    fn from_json(py: Python<'_>, plan: &str, arrays: Given<'_>) -> PyResult<Self> {
        let plan: Plan = parse(py, "plan", plan)?;
        let arrays = borrow(py, arrays)?;
        let inner = enter::slow(py, move || match arrays {
            Some(arrays) => wellfed::Dataset::with_plan(plan.source.clone().open_arrays(arrays)?, plan),
            None => wellfed::Dataset::from_plan(plan),
        })?;
        Ok(Self::new(inner))
    }

    /// Adds the verb that the JSON text describes, and checks that it makes sense here.
    fn verb(&self, py: Python<'_>, verb: &str) -> PyResult<Self> {
        let verb: Verb = parse(py, "verb", verb)?;
        let inner = enter::quick(py, || {
            let inner = match verb {
                Verb::Shuffle { seed } => self.inner.shuffle(seed),
                Verb::Map { field, transforms } => {
                    transforms.iter().try_for_each(|t| t.as_operation().check())?;
                    match field {
                        Some(field) => self.inner.map_field(&field, transforms),
                        None => self.inner.map(transforms),
                    }
                }
                Verb::Cache { path, max_bytes, .. } => self.inner.cache(path.as_deref(), max_bytes),
                Verb::Batch { batch_size, drop_last } => self.inner.batch(batch_size, drop_last),
                Verb::Repeat { count } => self.inner.repeat(count),
                Verb::Take { count } => self.inner.take(count),
                Verb::Skip { count } => self.inner.skip(count),
                Verb::Shard { rank, world_size } => self.inner.shard(rank, world_size),
            };
            inner.len().map(|_| inner)
        })?;
        Ok(Self::new(inner))
    }

    /// Replaces all options by those of the JSON text.
    fn with_options(&self, py: Python<'_>, options: &str) -> PyResult<Self> {
        let options: Options = parse(py, "options", options)?;
        Ok(Self::new(self.inner.with_options(options)))
    }

    fn to_json(&self, py: Python<'_>) -> PyResult<String> {
        to_json(self.inner.plan()).map_err(|e| to_python(py, &e))
    }

    fn length(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        enter::quick(py, || self.inner.len())
    }

    fn explain(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.inner.clone();
        enter::slow(py, move || inner.explain())
    }

    fn analyze(&self, py: Python<'_>, batches: u64) -> PyResult<String> {
        let inner = self.inner.clone();
        enter::slow(py, move || inner.analyze(batches))
    }

    /// One sample, made in this thread: no other one is started, so it may be asked for after a fork.
    fn sample(&self, py: Python<'_>, index: u64, epoch: u64) -> PyResult<Vec<Py<PyAny>>> {
        let sampler = self.sampler.get_or_init(|| self.inner.sampler());
        loader::columns(py, enter::quick(py, || sampler.sample(index, epoch))?)
    }

    fn loader(&self, py: Python<'_>) -> PyResult<loader::Loader> {
        let inner = self.inner.clone();
        Ok(loader::Loader::new(enter::slow(py, move || inner.loader())?))
    }

    /// A loader whose batches the caller chooses.
    fn loader_given(&self, py: Python<'_>) -> PyResult<loader::Loader> {
        let inner = self.inner.clone();
        Ok(loader::Loader::new(enter::slow(py, move || inner.loader_given())?))
    }

    /// Names of classes by label.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        self.inner.source().classes().map(<[String]>::to_vec)
    }

    /// Names of fields, in the order of columns.
    #[getter]
    fn fields(&self) -> Vec<String> {
        self.inner.source().schema().fields.iter().map(|field| field.name.clone()).collect()
    }

    /// How columns are handed out: `single`, `tuple` or `dict`.
    #[getter]
    fn structure(&self) -> &'static str {
        match self.inner.source().schema().structure {
            Structure::Single => "single",
            Structure::Tuple => "tuple",
            Structure::Dict => "dict",
        }
    }
}

/// Default options as JSON.
#[pyfunction]
pub(crate) fn default_options(py: Python<'_>) -> PyResult<String> {
    to_json(&Options::default()).map_err(|e| to_python(py, &e))
}

/// Runs the transform of the JSON text on one uint8 image `[height, width, channels]`.
#[pyfunction]
pub(crate) fn apply(
    py: Python<'_>,
    transform: &str,
    image: &Bound<'_, PyAny>,
    seed: u64,
) -> PyResult<Py<PyAny>> {
    let transform: Transform = parse(py, "transform", transform)?;
    let image = memory::borrow(py, image, DType::UInt8)?;
    let options = Options { seed: Some(seed), layout: wellfed::plan::Batching::Nhwc, ..Options::default() };
    let batch = enter::slow(py, move || {
        transform.as_operation().check()?;
        let &[height, width, channels] = image.shape() else {
            return Err(Error::config(format!("an image has 3 dimensions, not {:?}", image.shape())));
        };
        let pixels: Vec<u8> = (0..height).filter_map(|y| image.row(y)).flatten().copied().collect();
        wellfed::apply([transform], &pixels, (height, width, channels), options)
    })?;
    let mut columns = loader::columns(py, batch)?;
    columns.pop().ok_or_else(|| to_python(py, &Error::config("there is no image")))
}

fn borrow(py: Python<'_>, arrays: Given<'_>) -> PyResult<Option<Vec<ArrayData>>> {
    let one = |(array, dtype): (Bound<'_, PyAny>, String)| {
        let dtype: DType = parse(py, "dtype", &format!("{dtype:?}"))?;
        memory::borrow(py, &array, dtype)
    };
    arrays.map(|arrays| arrays.into_iter().map(one).collect()).transpose()
}

fn parse<T: DeserializeOwned>(py: Python<'_>, what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|e| {
        // The place in a text that the user never saw is no help.
        let text = e.to_string();
        let fact = text.rsplit_once(" at line ").map_or(&*text, |(fact, _)| fact);
        to_python(py, &Error::config(format!("{what}: {fact}")))
    })
}

fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::config(format!("cannot be written as JSON: {e}")))
}
