//! Where the lengths come from by which batches are cut: one field of the samples, as the sources know it.

use std::sync::Arc;

use super::{
    Pick,
    cut::{Cuts, Cutter},
};
use crate::{
    Error, ErrorKind, Result,
    plan::Node,
    sample::FieldKind,
    source::{Durations, Source, durations},
};

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
    /// Of sounds: the durations in each source, in nanoseconds, which are their lengths.
    durations: Option<Vec<Option<Arc<Durations>>>>,
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
            Node::BatchByDuration {
                max_duration, field, max_samples, bucket_boundaries, drop_last, ..
            } => (
                field,
                Cutter::durations(*max_duration, max_samples, bucket_boundaries, *drop_last)?,
                max_samples.iter().copied().max().unwrap_or(1),
            ),
            _ => return Err(Error::config(format!("{}() does not cut by length", node.name()))),
        };
        let sounds = matches!(node, Node::BatchByDuration { .. });
        let column = column(node.name(), field.as_deref(), fields, sounds)?;
        let durations = sounds.then(|| fields.durations(column)).transpose()?;
        let this = Self {
            durations,
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

    /// Whether all sources know the lengths. What is wrong with a single sample, its batch will say.
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

    /// Length of the sample, if it is this source that has the field: of sounds nanoseconds.
    pub(crate) fn length(&self, pick: Pick) -> Option<Result<u64>> {
        if let Some(durations) = &self.durations {
            return Some(durations.get(pick.leaf)?.as_ref()?.get(pick.index));
        }
        let (source, first) = self.fields.sources.get(pick.leaf)?;
        source.length(pick.index, self.column.checked_sub(*first)?).map(Ok)
    }

    pub(crate) fn unknown(&self) -> Error {
        let (name, field) = (self.name, &self.field);
        Error::new(
            ErrorKind::Config,
            format!("{name}(): the length of {field} is not known before a sample is read"),
        )
        .with_hint(match self.durations {
            Some(_) => {
                "files and tar shards of sounds know it; for others use padded_batch() or ragged_batch()"
            }
            None => "arrays in memory know it; for others use padded_batch() or ragged_batch()",
        })
    }
}

impl Fields {
    /// Durations of the sounds in `column`, for each source that has them.
    ///
    /// # Errors
    /// As [`durations`].
    pub(crate) fn durations(&self, column: usize) -> Result<Vec<Option<Arc<Durations>>>> {
        let of = |(source, first): &(Arc<dyn Source>, usize)| match column.checked_sub(*first) {
            Some(field) => durations(&**source, field),
            None => Ok(None),
        };
        self.sources.iter().map(of).collect()
    }
}

/// The column of the field whose length counts.
fn column(verb: &str, field: Option<&str>, fields: &Fields, sounds: bool) -> Result<usize> {
    let is_sound = |at: usize| fields.kinds[at] == FieldKind::Audio;
    let counts = |at: usize| if sounds { is_sound(at) } else { fields.kinds[at].varies() };
    let varying: Vec<usize> = (0..fields.kinds.len()).filter(|at| counts(*at)).collect();
    let names: Vec<&str> = varying.iter().map(|at| fields.names[*at].as_str()).collect();
    let which = if sounds { "that are sounds" } else { "that differ in length" };
    let has_sounds = (0..fields.kinds.len()).any(is_sound);
    let error = |what: String| {
        let error = Error::config(format!("{verb}(): {what}; fields {which} are {names:?}"));
        Err(if has_sounds && !sounds {
            error.with_hint("batch_by_duration() cuts by seconds of sounds")
        } else {
            error
        })
    };
    match field {
        Some(field) => match fields.names.iter().position(|name| name == field) {
            Some(at) if varying.contains(&at) => Ok(at),
            Some(_) if sounds => error(format!("the field {field:?} is no sound")),
            Some(_) => error(format!("the field {field:?} does not differ in length")),
            None => error(format!("there is no field {field:?}")),
        },
        None => match varying[..] {
            [at] => Ok(at),
            _ => error("name the field whose length counts".to_owned()),
        },
    }
}
