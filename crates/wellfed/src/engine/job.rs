//! One batch under way: its buffers, which workers fill sample by sample, and what went wrong in it.
//!
//! Invariant: every sample of a job is claimed exactly once (by the [`super::schedule`]), and a job is turned
//! into a batch only after every claim was returned. So no two threads ever hold the same part of a buffer.

use std::{
    ops::Range,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use super::{
    batch::{Batch, Column, ColumnData, ColumnKind, ColumnSpec},
    ring::{Buffer, Pool},
};
use crate::{
    Error, ErrorKind, Result,
    budget::{Budget, Holder, Reservation},
    lock,
    order::Span,
    plan::OnError,
};

#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) epoch: u64,
    pub(crate) number: u64,
    pub(crate) span: Span,
    columns: Arc<[ColumnSpec]>,
    storage: Vec<Storage>,
    failed: Mutex<Vec<Failure>>,
    /// Bytes of lists' values, reserved before they are copied.
    lists: Mutex<Reservation>,
    /// Bytes of lists that there was no room for.
    wanted: AtomicU64,
    /// The whole batch cannot be made.
    impossible: OnceLock<Error>,
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
    ) -> Result<Self> {
        let storage = columns
            .iter()
            .map(|column| match column.kind {
                ColumnKind::Array { .. } => {
                    let bytes = column.sample_bytes().saturating_mul(batch_size);
                    pool.take(bytes).map(Storage::Array)
                }
                _ => Ok(Storage::List(Mutex::new(vec![Vec::new(); span.len]))),
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            epoch,
            number,
            span,
            columns: columns.clone(),
            storage,
            failed: Mutex::default(),
            lists: Mutex::new(pool.budget().reserve(0, Holder::Lists)?),
            wanted: AtomicU64::new(0),
            impossible: OnceLock::new(),
        })
    }

    /// A job that only says why it cannot be done.
    pub(crate) fn failed(epoch: u64, number: u64, span: Span, error: Error) -> Self {
        let budget = Budget::new();
        Self {
            epoch,
            number,
            span,
            columns: Arc::new([]),
            storage: Vec::new(),
            failed: Mutex::default(),
            lists: Mutex::new(Reservation::none(&budget)),
            wanted: AtomicU64::new(0),
            impossible: OnceLock::from(error),
        }
    }

    /// Bytes that lists take, with those that there was no room for.
    pub(crate) fn list_bytes(&self) -> u64 {
        lock(&self.lists).bytes() + self.wanted.load(Relaxed)
    }

    /// Bytes of lists that a sample found no room for, since this was last asked.
    pub(crate) fn take_wanted(&self) -> Option<u64> {
        Some(self.wanted.swap(0, Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// Gives the whole batch up: its samples are no worse than others, but there is no room for all of them.
    pub(crate) fn give_up(&self, error: Error) {
        // The first reason is as good as another.
        drop(self.impossible.set(error));
    }

    /// Whether the batch was given up.
    pub(crate) fn is_impossible(&self) -> bool {
        self.impossible.get().is_some()
    }

    /// A copy of `value` in place of one of `old` bytes that is gone.
    fn copy(&self, value: &[u8], old: usize) -> Result<Vec<u8>> {
        let bytes = value.len() as u64;
        let mut lists = lock(&self.lists);
        lists.shrink(old as u64);
        lists.grow(bytes).inspect_err(|_| {
            self.wanted.fetch_max(bytes, Relaxed);
        })?;
        drop(lists);
        let mut copy = Vec::new();
        copy.try_reserve_exact(value.len()).map_err(|_| {
            lock(&self.lists).shrink(bytes);
            Error::memory(value.len(), "a list")
        })?;
        copy.extend_from_slice(value);
        Ok(copy)
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

    /// Turns the finished job into what the consumer gets.
    ///
    /// # Errors
    /// The error of the first bad sample that has no stand-in, unless bad samples are skipped and others are left; or
    /// none are, but the caller gave the order and so expects an answer to every batch: then that is an empty one.
    pub(crate) fn into_batch(self, on_error: OnError, batched: bool) -> Result<Batch> {
        if let Some(error) = self.impossible.get() {
            return Err(error.clone());
        }
        let mut failed = self.failures();
        failed.retain(|failure| !failure.replaced);
        if let Some(first) = failed.first()
            && (on_error != OnError::Skip || failed.len() == self.span.len && self.span.given().is_none())
        {
            return Err(first.error.clone());
        }
        let keep: Vec<usize> =
            (0..self.span.len).filter(|i| failed.binary_search_by_key(i, |f| f.offset).is_err()).collect();
        let columns = self
            .columns
            .iter()
            .zip(self.storage)
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
        match &self.job.storage[column] {
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
    ///
    /// # Errors
    /// `Limit` if there is no room for it, or no memory.
    pub(crate) fn set(&mut self, column: usize, value: &[u8]) -> Result<()> {
        let column = self.first + column;
        match &self.job.storage[column] {
            Storage::List(list) => {
                let old = std::mem::take(&mut lock(list)[self.offset]);
                let copied = self.job.copy(value, old.len());
                lock(list)[self.offset] = copied?;
                Ok(())
            }
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
        Arc::new(Job::new(0, 0, order.batch(0, 0, 0), 4, &columns, &Pool::new(4)).unwrap())
    }

    fn fill(job: &Arc<Job>) {
        let mut claim = Claim { job: job.clone(), samples: 0..job.span.len };
        for i in 0..job.span.len {
            let mut slot = claim.slot(i);
            slot.array(0).fill(i as u8);
            slot.set(1, format!("s{i}").as_bytes()).unwrap();
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
        let empty = job(1);
        empty.fail(0, Error::corrupt("only"), false);
        assert!(Arc::into_inner(empty).unwrap().into_batch(OnError::Skip, true).is_err());
    }
}
