//! The one table from the engine's kinds of errors to Python's exceptions.

use pyo3::{
    exceptions::PyRuntimeError,
    prelude::*,
    types::{PyDict, PyType},
};
use wellfed::{Error, ErrorKind};

/// Name in `wellfed.exceptions` of the exception that an error of `kind` becomes.
fn exception(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::NotFound => "NotFoundError",
        ErrorKind::Io => "StorageError",
        ErrorKind::Transient => "TransientError",
        ErrorKind::Changed => "ObjectChangedError",
        ErrorKind::Corrupt => "CorruptSampleError",
        ErrorKind::Unsupported => "UnsupportedSampleError",
        ErrorKind::Limit => "LimitExceededError",
        ErrorKind::Config => "ConfigError",
        ErrorKind::Shape => "ShapeError",
        ErrorKind::Index => "SampleIndexError",
        ErrorKind::State => "StateError",
        ErrorKind::Internal => "InternalError",
    }
}

/// The Python exception for `error`, with all its facts as attributes.
pub(crate) fn to_python(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|e| {
        // Only if wellfed.exceptions cannot be imported: keep both texts.
        let raised = PyRuntimeError::new_err(error.to_string());
        raised.set_cause(py, Some(e));
        raised
    })
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let class = py.import("wellfed.exceptions")?.getattr(exception(error.kind()))?.cast_into::<PyType>()?;
    let facts = PyDict::new(py);
    facts.set_item("message", error.message())?;
    facts.set_item("source", error.source_name())?;
    facts.set_item("key", error.key())?;
    facts.set_item("index", error.index())?;
    facts.set_item("offset", error.offset())?;
    facts.set_item("stage", error.stage())?;
    facts.set_item("hint", error.hint())?;
    facts.set_item("errno", error.os_error())?;
    Ok(PyErr::from_value(class.call((error.to_string(),), Some(&facts))?))
}
