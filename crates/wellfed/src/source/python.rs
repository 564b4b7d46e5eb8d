//! Samples that Python makes: the engine knows how many there are, and decides when each comes.

use serde::{Deserialize, Serialize};

use super::{Fingerprint, Source, SourceSpec};
use crate::{
    Error, Result,
    sample::{FieldKind, Record, Schema},
};

/// A data set of Python's, as data. The object itself travels beside the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PythonSpec {
    /// What it is called.
    pub name: String,
    /// How many samples it has.
    pub count: u64,
}

/// See [`PythonSpec`].
#[derive(Debug)]
pub(crate) struct PythonSamples {
    spec: PythonSpec,
    schema: Schema,
}

impl PythonSamples {
    pub(crate) fn new(spec: PythonSpec) -> Self {
        Self { spec, schema: Schema::single("sample", FieldKind::LABEL) }
    }
}

impl Source for PythonSamples {
    fn name(&self) -> String {
        format!("from_dataset({})", self.spec.name)
    }

    fn len(&self) -> u64 {
        self.spec.count
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn spec(&self) -> SourceSpec {
        SourceSpec::Python(self.spec.clone())
    }

    fn key(&self, index: u64) -> String {
        index.to_string()
    }

    fn fetch(&self, _index: u64, _record: &mut Record) -> Result<()> {
        Err(Error::config(format!("samples of {} are made by Python, not by the engine", self.name())))
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = Fingerprint::new(&self.schema, self.len());
        hash.add(self.spec.name.as_bytes());
        hash.finish()
    }
}
