//! Whole numbers in order, as `enumerate` puts them beside samples. No memory, no end.

use super::{Source, beyond_the_end};
use crate::{
    Result,
    sample::{FieldKind, Record, Schema, Structure, Value},
};

/// The numbers from a first one on.
#[derive(Debug)]
pub(crate) struct Counter {
    start: i64,
    schema: Schema,
}

impl Counter {
    /// The name of its field.
    pub(crate) const FIELD: &'static str = "index";

    pub(crate) fn new(start: i64) -> Self {
        Self { start, schema: Schema::new(Structure::Single, [(Self::FIELD, FieldKind::Int)]) }
    }
}

impl Source for Counter {
    fn name(&self) -> String {
        format!("enumerate({})", self.start)
    }

    fn len(&self) -> u64 {
        u64::MAX
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn key(&self, index: u64) -> String {
        index.to_string()
    }

    fn fetch(&self, index: u64, record: &mut Record) -> Result<()> {
        let number = i64::try_from(index).ok().and_then(|index| self.start.checked_add(index));
        let Some(number) = number else { return Err(beyond_the_end(self, index)) };
        record.reset(1);
        record.values[0] = Value::Int(number);
        Ok(())
    }

    fn in_memory(&self) -> bool {
        true
    }

    fn fingerprint(&self) -> u64 {
        self.start.cast_unsigned()
    }
}
