//! `_native.Dataset`: plans as JSON in, plans as JSON out.

use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use wellfed::{
    Error, Options, Plan, Result, Sampler,
    plan::{Device, Node, Run, Workers},
    sample::DType,
    source::{ArrayData, Source, SourceSpec},
    store::LocalStore,
    transform::Transform,
    write::WriteOptions,
};

use crate::{enter, error::to_python, leaves, loader, memory, page_lock, sequence, writing};

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
        let inner = enter::slow(py, move || Ok(wellfed::Dataset::new(open(spec, arrays)?)))?;
        Ok(Self::new(inner))
    }

    /// Opens the sources of a whole plan. `arrays` are those of each source, depth first, or None.
    #[staticmethod]
    #[pyo3(signature = (plan, arrays))]
    fn from_json(py: Python<'_>, plan: &str, arrays: Vec<Given<'_>>) -> PyResult<Self> {
        let plan: Plan = parse(py, "plan", plan)?;
        let arrays = arrays.into_iter().map(|arrays| borrow(py, arrays)).collect::<PyResult<Vec<_>>>()?;
        let inner = enter::slow(py, move || {
            let mut arrays = arrays.into_iter();
            let mut sources: Vec<Arc<dyn Source>> = Vec::new();
            for spec in plan.root.sources() {
                sources.push(open(spec.clone(), arrays.next().flatten())?);
            }
            wellfed::Dataset::with_plan(sources, plan)
        })?;
        Ok(Self::new(inner))
    }

    /// Adds the verb that the JSON text describes, without its input, and checks that it makes sense here.
    fn verb(&self, py: Python<'_>, verb: &str) -> PyResult<Self> {
        let verb = parse_verb(py, verb, "input", |hole| hole)?;
        let inner = self.inner.clone();
        // A filter goes through all samples.
        if matches!(verb, Node::Filter { .. } | Node::BatchByDuration { .. }) {
            return Ok(Self::new(enter::slow(py, move || inner.verb(verb))?));
        }
        Ok(Self::new(enter::quick(py, move || inner.verb(verb))?))
    }

    /// Columns of a table as one field, as the JSON text describes it.
    fn stack(&self, py: Python<'_>, stack: &str) -> PyResult<Self> {
        let stack = parse(py, "stack", stack)?;
        let inner = self.inner.clone();
        Ok(Self::new(enter::quick(py, move || inner.stack(&stack))?))
    }

    /// Puts data sets together by the verb that the JSON text describes, without its inputs.
    #[staticmethod]
    fn combine(py: Python<'_>, verb: &str, datasets: Vec<Py<Dataset>>) -> PyResult<Self> {
        let verb = parse_verb(py, verb, "inputs", |hole| serde_json::Value::Array(vec![hole]))?;
        let inner: Vec<wellfed::Dataset> =
            datasets.iter().map(|dataset| dataset.get().inner.clone()).collect();
        Ok(Self::new(enter::quick(py, move || wellfed::Dataset::combine(verb, &inner))?))
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

    /// With stages where a run puts them that copies batches to `device`, and has Python steps run by so many `workers`,
    /// 0 for none, which are processes or `threads`.
    #[pyo3(signature = (device=None, workers=0, threads=false))]
    fn explain(&self, py: Python<'_>, device: Option<&str>, workers: u64, threads: bool) -> PyResult<String> {
        let (inner, run) = (self.inner.clone(), run(device, workers, threads));
        enter::slow(py, move || inner.explain_run(&run))
    }

    /// Whether batches that are copied to `device` are made in page-locked memory.
    fn page_locked(&self, device: &str) -> bool {
        self.inner.stages(&run(Some(device), 0, false)).page_locked()
    }

    fn analyze(&self, py: Python<'_>, batches: u64) -> PyResult<String> {
        let inner = self.inner.clone();
        enter::slow(py, move || inner.analyze(batches))
    }

    /// One sample of a source, made in this thread: no other one is started, so it may be asked for after a fork.
    #[pyo3(signature = (index, epoch, source=0))]
    fn sample(&self, py: Python<'_>, index: u64, epoch: u64, source: usize) -> PyResult<Vec<Py<PyAny>>> {
        let sampler = self.sampler.get_or_init(|| self.inner.sampler());
        loader::columns_of_one(py, enter::quick(py, || sampler.sample(source, index, epoch))?)
    }

    /// The sample at a position of an epoch, made as by `sample`.
    fn element(&self, py: Python<'_>, position: u64, epoch: u64) -> PyResult<Vec<Py<PyAny>>> {
        let sampler = self.sampler.get_or_init(|| self.inner.sampler());
        loader::columns_of_one(py, enter::quick(py, || sampler.element(position, epoch))?)
    }

    /// What makes samples of the sources by themselves, many at a time.
    #[pyo3(signature = (rows=None))]
    fn leaves(&self, rows: Option<Py<leaves::RowIndexes>>) -> leaves::Leaves {
        leaves::Leaves::new(&self.inner, rows.as_ref().map(Py::get))
    }

    /// Row indexes for so many processes that call `leaves`; None where none are wanted or of use.
    fn row_indexes(&self, py: Python<'_>, processes: u64) -> PyResult<Option<leaves::RowIndexes>> {
        let inner = self.inner.clone();
        Ok(enter::slow(py, move || inner.row_indexes(processes))?.map(leaves::RowIndexes::new))
    }

    /// Those of another process, by their descriptor, which is this process's own, and is closed.
    #[cfg(unix)]
    fn attach_row_indexes(
        &self,
        py: Python<'_>,
        descriptor: i32,
        limit: u64,
        processes: u64,
    ) -> PyResult<leaves::RowIndexes> {
        let (inner, file) = (self.inner.clone(), leaves::file(descriptor));
        // No thread is started: the process that attaches may be about to fork.
        let made = enter::quick(py, move || inner.attach_row_indexes(file, limit, processes))?;
        Ok(leaves::RowIndexes::new(made))
    }

    /// The order by itself, for those who make samples in Python.
    fn order(&self, py: Python<'_>) -> PyResult<sequence::Order> {
        let inner = self.inner.clone();
        Ok(sequence::Order::new(enter::slow(py, move || inner.sequence())?))
    }

    /// Of batches that are copied to `device`, if there is one; where they are page-locked, `page_lock` does that.
    #[pyo3(signature = (device=None, page_lock=None))]
    fn loader(
        &self,
        py: Python<'_>,
        device: Option<&str>,
        page_lock: Option<Bound<'_, PyAny>>,
    ) -> PyResult<loader::Loader> {
        let (device, page_lock) = (device.map(Device::new), page_lock.map(page_lock::shared));
        let inner = self.inner.clone();
        Ok(loader::Loader::new(enter::slow(py, move || inner.loader_for(device, page_lock))?))
    }

    /// A loader whose batches the caller chooses; with `lists`, images that may differ in size come as a list, else batches
    /// are for `device`, and may lie in memory that `page_lock` locks.
    #[pyo3(signature = (lists=false, device=None, page_lock=None))]
    fn loader_given(
        &self,
        py: Python<'_>,
        lists: bool,
        device: Option<&str>,
        page_lock: Option<Bound<'_, PyAny>>,
    ) -> PyResult<loader::Loader> {
        let inner = self.inner.clone();
        let (device, page_lock) = (device.map(Device::new), page_lock.map(page_lock::shared));
        let make = move || {
            if lists { inner.loader_given_lists() } else { inner.loader_given_for(device, page_lock) }
        };
        Ok(loader::Loader::new(enter::slow(py, make)?))
    }

    /// Begins to write tar shards to `destination`, as the options of the JSON text say.
    fn write(&self, py: Python<'_>, destination: String, options: &str) -> PyResult<writing::Writing> {
        let options: WriteOptions = parse(py, "write", options)?;
        let inner = self.inner.clone();
        writing::Writing::start(py, move |progress| {
            let written = wellfed::write::write(&inner, &destination, &options, progress)?;
            to_json(&written)
        })
    }

    /// Names of classes by label.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        self.inner.source().classes().map(<[String]>::to_vec)
    }

    /// Parts of the source that lie together, such as shards: the number of the first sample of each, and where the last
    /// one ends.
    fn parts(&self) -> Vec<(u64, u64)> {
        self.inner.source().parts().into_iter().map(|part| (part.samples.start, part.samples.end)).collect()
    }

    /// Samples of the largest group that the source decodes at once; None if it has no groups.
    fn group_samples(&self) -> Option<u64> {
        self.inner.source().groups().map(|sizes| sizes.samples)
    }

    /// What whoever opened the source should know: a sentence each.
    fn notes(&self) -> Vec<String> {
        self.inner.source().notes().to_vec()
    }

    /// Names of fields, in the order of columns.
    #[getter]
    fn fields(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        enter::quick(py, || Ok(self.inner.output()?.names))
    }

    /// How columns are handed out, as JSON: a tree whose leaves are numbers of columns.
    #[getter]
    fn structure(&self, py: Python<'_>) -> PyResult<String> {
        let output = enter::quick(py, || self.inner.output())?;
        to_json(&output.structure).map_err(|e| to_python(py, &e))
    }

    /// The structure of what each source gives by itself, depth first.
    #[getter]
    fn sources(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let one = |source: &Arc<dyn Source>| to_json(&source.schema().structure);
        self.inner.sources().iter().map(one).collect::<Result<_>>().map_err(|e| to_python(py, &e))
    }
}

fn run(device: Option<&str>, workers: u64, threads: bool) -> Run {
    let python = match workers {
        0 => Workers::Caller,
        _ if threads => Workers::Threads(workers),
        _ => Workers::Processes(workers),
    };
    Run { python, device: device.map(Device::new) }
}

/// Whether a device of this name reads page-locked memory while it computes.
#[pyfunction]
pub(crate) fn device_has_streams(device: &str) -> bool {
    Device::new(device).has_streams()
}

fn open(spec: SourceSpec, arrays: Option<Vec<ArrayData>>) -> Result<Arc<dyn Source>> {
    match arrays {
        Some(arrays) => spec.open_arrays(arrays),
        None => spec.open(Arc::new(LocalStore::default())),
    }
}

/// A verb that is written without what it works on; that is filled in with something that is put aside again.
fn parse_verb(
    py: Python<'_>,
    json: &str,
    inputs: &str,
    fill: impl FnOnce(serde_json::Value) -> serde_json::Value,
) -> PyResult<Node> {
    let mut verb: serde_json::Map<String, serde_json::Value> = parse(py, "verb", json)?;
    let hole = serde_json::json!({ "node": "source", "spec": { "type": "custom", "name": "" } });
    verb.insert(inputs.to_owned(), fill(hole));
    serde_json::from_value(verb.into()).map_err(|e| to_python(py, &Error::config(format!("verb: {e}"))))
}

/// Default options as JSON.
#[pyfunction]
pub(crate) fn default_options(py: Python<'_>) -> PyResult<String> {
    to_json(&Options::default()).map_err(|e| to_python(py, &e))
}

/// Raises what is wrong with the parameters of the transform of the JSON text.
#[pyfunction]
pub(crate) fn check_transform(py: Python<'_>, transform: &str) -> PyResult<()> {
    let transform: Transform = parse(py, "transform", transform)?;
    transform.as_operation().check().map_err(|e| to_python(py, &e))
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

pub(crate) fn parse<T: DeserializeOwned>(py: Python<'_>, what: &str, json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|e| {
        // The place in a text that the user never saw is no help.
        let text = e.to_string();
        let fact = text.rsplit_once(" at line ").map_or(&*text, |(fact, _)| fact);
        to_python(py, &Error::config(format!("{what}: {fact}")))
    })
}

pub(crate) fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::config(format!("cannot be written as JSON: {e}")))
}
