//! One batch under way: its buffers, which workers fill sample by sample, and what went wrong in it.
//!
//! Invariant: every sample of a job is claimed exactly once (by the [`super::schedule`]), and a job is turned
//! into a batch only after every claim was returned. So no two threads ever hold the same part of a buffer.

use std::{
    ops::Range,
    sync::{Arc, Mutex, OnceLock},
};

use super::{
    batch::{Batch, Column, ColumnData, ColumnKind, ColumnSpec},
    ring::{Buffer, Pool},
};
use crate::{Error, ErrorKind, Result, lock, order::Span, plan::OnError};

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    pub(crate) span: Span,
    columns: Arc<[ColumnSpec]>,
    /// Samples that there is room for.
    room: usize,
    pool: Arc<Pool>,
    /// Made by the first worker that writes, since the schedule is locked where jobs are made.
    storage: OnceLock<Vec<Storage>>,
    failed: Mutex<Vec<Failure>>,
}

/// A bad sample of a job.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Its place in the batch.
    pub(crate) offset: usize,
    /// Why.
    pub(crate) error: Error,
    /// Whether another sample took its place.
    pub(crate) replaced: bool,
}

#[derive(Debug)]
enum Storage {
    Array(Buffer),
    List(Mutex<Vec<Vec<u8>>>),
}

impl Job {
    pub(crate) fn new(
        epoch: u64,
        number: u64,
        span: Span,
        batch_size: usize,
        columns: &Arc<[ColumnSpec]>,
        pool: &Arc<Pool>,
    ) -> Self {
        let (columns, pool) = (columns.clone(), pool.clone());
        let (storage, failed) = (OnceLock::new(), Mutex::default());
        Self { epoch, number, span, columns, room: batch_size, pool, storage, failed }
    }

    fn storage(&self) -> &[Storage] {
        self.storage.get_or_init(|| {
            let of = |column: &ColumnSpec| match column.kind {
                ColumnKind::Array { .. } => Storage::Array(self.pool.take(column.sample_bytes() * self.room)),
                _ => Storage::List(Mutex::new(vec![Vec::new(); self.span.len])),
            };
            self.columns.iter().map(of).collect()
        })
    }

    /// Notes that a sample could not be made, and whether another one stands in for it.
    pub(crate) fn fail(&self, offset: usize, error: Error, replaced: bool) {
        lock(&self.failed).push(Failure { offset, error, replaced });
    }

    /// All bad samples, in the order of the batch.
    pub(crate) fn failures(&self) -> Vec<Failure> {
        let mut failures = lock(&self.failed).clone();
        failures.sort_by_key(|failure| failure.offset);
        failures
    }

    /// The error that the batch is, of samples that have no stand-in: that of storage which failed for a while, whatever
    /// `on_error` says; else the first one, unless bad samples are skipped and others are left, or none are, but the
    /// caller gave the order and so expects an answer to every batch: then that is an empty one.
    fn fatal(&self, failed: &[Failure], on_error: OnError) -> Option<Error> {
        let outage = failed.iter().find(|failure| failure.error.kind() == ErrorKind::Transient);
        let skipped =
            on_error == OnError::Skip && (failed.len() < self.span.len || self.span.given().is_some());
        let first = outage.or_else(|| failed.first().filter(|_| !skipped))?;
        Some(first.error.clone())
    }

    /// Turns the finished job into what the consumer gets.
    ///
    /// # Errors
    /// That of [`Job::fatal`].
    pub(crate) fn into_batch(self, on_error: OnError, batched: bool) -> Result<Batch> {
        let mut failed = self.failures();
        failed.retain(|failure| !failure.replaced);
        if let Some(error) = self.fatal(&failed, on_error) {
            return Err(error);
        }
        let keep: Vec<usize> =
            (0..self.span.len).filter(|i| failed.binary_search_by_key(i, |f| f.offset).is_err()).collect();
        // A batch of bad samples only has none yet.
        self.storage();
        let columns = self
            .columns
            .iter()
            .zip(self.storage.into_inner().unwrap_or_default())
            .map(|(spec, storage)| {
                Ok(Column { name: spec.name.clone(), data: column(spec, storage, &keep, batched)? })
            })
            .collect::<Result<_>>()?;
        Ok(Batch { columns, len: keep.len(), epoch: self.epoch, number: self.number })
    }
}

fn column(spec: &ColumnSpec, storage: Storage, keep: &[usize], batched: bool) -> Result<ColumnData> {
    match (storage, &spec.kind) {
        (Storage::Array(mut bytes), ColumnKind::Array { dtype, shape }) => {
            let size = spec.sample_bytes();
            for (to, &from) in keep.iter().enumerate() {
                if to != from {
                    bytes.copy_within(from * size..(from + 1) * size, to * size);
                }
            }
            let mut full = Vec::with_capacity(shape.len() + 1);
            full.extend(batched.then_some(keep.len()));
            full.extend(shape);
            bytes.lend();
            Ok(ColumnData::Array { dtype: *dtype, shape: full, bytes })
        }
        (Storage::List(list), kind) => {
            let mut list = list.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
            let kept: Vec<Vec<u8>> = keep.iter().map(|&i| std::mem::take(&mut list[i])).collect();
            let text = |kept: Vec<Vec<u8>>| -> Result<Vec<String>> {
                kept.into_iter()
                    .map(|b| {
                        String::from_utf8(b).map_err(|e| Error::corrupt(format!("text is not UTF-8: {e}")))
                    })
                    .collect()
            };
            match kind {
                ColumnKind::Text => text(kept).map(ColumnData::Text),
                ColumnKind::Json => text(kept).map(ColumnData::Json),
                _ => Ok(ColumnData::Bytes(kept)),
            }
        }
        (Storage::Array(_), _) => {
            Err(Error::new(ErrorKind::Internal, format!("column {} has no array shape", spec.name)))
        }
    }
}

/// The right to write some samples of a job. Handed out by the schedule, once per sample.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) job: Arc<Job>,
    pub(crate) samples: Range<usize>,
}

impl Claim {
    /// Where sample `offset` goes.
    pub(crate) fn slot(&mut self, offset: usize) -> SampleSlot<'_> {
        assert!(self.samples.contains(&offset), "sample {offset} was not claimed");
        SampleSlot { job: &self.job, offset, first: 0 }
    }
}

/// The place of one sample in the columns of its batch.
#[derive(Debug)]
pub(crate) struct SampleSlot<'a> {
    job: &'a Job,
    offset: usize,
    /// The column that counts as 0.
    first: usize,
}

impl SampleSlot<'_> {
    /// The columns from `first` on: those of one of the sources of a sample.
    pub(crate) fn of_leaf(&mut self, first: usize) -> SampleSlot<'_> {
        SampleSlot { job: self.job, offset: self.offset, first: self.first + first }
    }

    /// Bytes of an array column.
    ///
    /// # Panics
    /// If the column is a list: the executor follows the same column specifications.
    pub(crate) fn array(&mut self, column: usize) -> &mut [u8] {
        let column = self.first + column;
        match &self.job.storage()[column] {
            Storage::Array(buffer) => {
                // SAFETY: the schedule hands out each sample once, a claim gives one slot at a time (`&mut`), and
                // a slot one column at a time (`&mut`); the job becomes a batch after all claims are back.
                // Splitting into `&mut [u8]` per sample up front would need a self-referential job.
                unsafe { buffer.part(self.offset, self.job.columns[column].sample_bytes()) }
            }
            Storage::List(_) => unreachable!("column {column} is a list"),
        }
    }

    /// Sets the value of a list column (text, JSON, bytes).
    pub(crate) fn set(&mut self, column: usize, value: &[u8]) {
        let column = self.first + column;
        match &self.job.storage()[column] {
            Storage::List(list) => lock(list)[self.offset] = value.to_vec(),
            Storage::Array(_) => unreachable!("column {column} is an array"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{order::Order, plan::Node, sample::DType, source::SourceSpec};

    fn job(n: u64) -> Arc<Job> {
        let columns: Arc<[ColumnSpec]> = Arc::new([
            ColumnSpec { name: "x".into(), kind: ColumnKind::Array { dtype: DType::UInt8, shape: vec![2] } },
            ColumnSpec { name: "t".into(), kind: ColumnKind::Text },
        ]);
        let leaf = Node::source(SourceSpec::Custom { name: String::new() });
        let order = Order::new(&leaf.batch(4, false), &[n]).unwrap();
        Arc::new(Job::new(0, 0, order.batch(0, 0, 0), 4, &columns, &Pool::new(4)))
    }

    fn fill(job: &Arc<Job>) {
        let mut claim = Claim { job: job.clone(), samples: 0..job.span.len };
        for i in 0..job.span.len {
            let mut slot = claim.slot(i);
            slot.array(0).fill(i as u8);
            slot.set(1, format!("s{i}").as_bytes());
        }
    }

    #[test]
    fn skipped_samples_leave_no_hole() {
        let job = job(4);
        fill(&job);
        job.fail(2, Error::corrupt("late"), false);
        job.fail(0, Error::corrupt("early"), false);
        let batch = Arc::into_inner(job).unwrap().into_batch(OnError::Skip, true).unwrap();
        assert_eq!(batch.len, 2);
        assert_eq!(batch.columns[0].data.as_bytes().unwrap(), [1, 1, 3, 3]);
        let ColumnData::Text(text) = &batch.columns[1].data else { panic!("text") };
        assert_eq!(text, &["s1", "s3"]);
    }

    #[test]
    fn the_first_bad_sample_is_raised_and_an_empty_batch_is_an_error() {
        let raise = job(4);
        fill(&raise);
        raise.fail(2, Error::corrupt("late"), false);
        raise.fail(1, Error::corrupt("early"), false);
        let error = Arc::into_inner(raise).unwrap().into_batch(OnError::Raise, true).unwrap_err();
        assert_eq!(error.message(), "early");
        for on_error in [OnError::Skip, OnError::Replace] {
            let outage = job(4);
            fill(&outage);
            outage.fail(1, Error::corrupt("bad"), on_error == OnError::Replace);
            outage.fail(2, Error::transient("no answer"), false);
            let error = Arc::into_inner(outage).unwrap().into_batch(on_error, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Transient, "an outage is not a bad sample");
        }
        let empty = job(1);
        empty.fail(0, Error::corrupt("only"), false);
        assert!(Arc::into_inner(empty).unwrap().into_batch(OnError::Skip, true).is_err());
    }
}
