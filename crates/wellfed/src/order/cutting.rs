//! Where the lengths come from by which batches are cut: one field of the samples, as the sources know it.

use std::sync::Arc;

use super::{
    Pick,
    cut::{Cuts, Cutter},
};
use crate::{Error, ErrorKind, Result, plan::Node, sample::FieldKind, source::Source};

/// The fields of all samples, and who knows their lengths.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields {
    /// Each with the first column that it writes.
    pub(crate) sources: Vec<(Arc<dyn Source>, usize)>,
    pub(crate) names: Vec<String>,
    pub(crate) kinds: Vec<FieldKind>,
}

/// A verb that cuts batches by length.
#[derive(Debug)]
pub(crate) struct Cutting {
    name: &'static str,
    field: String,
    column: usize,
    fields: Fields,
    pub(crate) cuts: Cuts,
    /// Samples in a batch at most, if the rule says so.
    pub(crate) batch_size: u64,
}

impl Cutting {
    /// The rule of `node`, if it cuts batches by length.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] for a rule that makes no sense, or a field whose lengths are not known.
    pub(crate) fn new(node: &Node, fields: &Fields) -> Result<Self> {
        let (field, cutter, batch_size) = match node {
            Node::BucketBySequenceLength {
                field,
                bucket_boundaries,
                bucket_batch_sizes,
                drop_remainder,
                pad_to_bucket_boundary,
                ..
            } => (
                field,
                Cutter::buckets(
                    bucket_boundaries,
                    bucket_batch_sizes,
                    *drop_remainder,
                    *pad_to_bucket_boundary,
                )?,
                bucket_batch_sizes.iter().copied().max().unwrap_or(1),
            ),
            Node::BatchByTokens { max_tokens, field, bucket_boundaries, drop_last, pad, .. } => {
                let multiple_of = pad.multiple_of.unwrap_or(1) as u64;
                (field, Cutter::tokens(*max_tokens, multiple_of, bucket_boundaries, *drop_last)?, 1)
            }
            _ => return Err(Error::config(format!("{}() does not cut by length", node.name()))),
        };
        let column = column(node.name(), field.as_deref(), fields)?;
        let this = Self {
            name: node.name(),
            field: fields.names[column].clone(),
            column,
            fields: fields.clone(),
            cuts: Cuts::new(cutter),
            batch_size,
        };
        this.check()?;
        Ok(this)
    }

    /// Whether all sources know the lengths.
    fn check(&self) -> Result<()> {
        for (leaf, (source, first)) in self.fields.sources.iter().enumerate() {
            let ours = (*first..first + source.schema().fields.len()).contains(&self.column);
            if ours && !source.is_empty() && self.length(Pick { leaf, index: 0, epoch: 0 }).is_none() {
                return Err(self.unknown().with_source(source.name()));
            }
        }
        Ok(())
    }

    /// What it is called in Python.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// The field whose length counts.
    pub(crate) fn field(&self) -> &str {
        &self.field
    }

    /// Length of the sample, if it is this source that has the field.
    pub(crate) fn length(&self, pick: Pick) -> Option<u64> {
        let (source, first) = self.fields.sources.get(pick.leaf)?;
        source.length(pick.index, self.column.checked_sub(*first)?)
    }

    pub(crate) fn unknown(&self) -> Error {
        let (name, field) = (self.name, &self.field);
        Error::new(
            ErrorKind::Config,
            format!("{name}(): the length of {field} is not known before a sample is read"),
        )
        .with_hint("arrays in memory know it; for others use padded_batch() or ragged_batch()")
    }
}

/// The column of the field whose length counts.
fn column(verb: &str, field: Option<&str>, fields: &Fields) -> Result<usize> {
    let varying: Vec<usize> = (0..fields.kinds.len()).filter(|at| fields.kinds[*at].varies()).collect();
    let names: Vec<&str> = varying.iter().map(|at| fields.names[*at].as_str()).collect();
    let error = |what: String| {
        Err(Error::config(format!("{verb}(): {what}; fields that differ in length are {names:?}")))
    };
    match field {
        Some(field) => match fields.names.iter().position(|name| name == field) {
            Some(at) if varying.contains(&at) => Ok(at),
            Some(_) => error(format!("the field {field:?} does not differ in length")),
            None => error(format!("there is no field {field:?}")),
        },
        None => match varying[..] {
            [at] => Ok(at),
            _ => error("name the field whose length counts".to_owned()),
        },
    }
}
