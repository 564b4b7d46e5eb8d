//! Ceilings without a disk: decoding of images that lie in memory, and handing over of batches that are finished.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use wellfed::{
    ColumnData, Dataset, Error, Loader,
    codec::{Request, Scratch, decode_image},
    sample::{FieldKind, Record, Structure, Value},
    source::{ArrayData, Pixels, Source, TensorSlices},
};
use wellfed_kernels::image::Image;

use super::repeat;
use crate::progress::Progress;

/// Bytes of finished samples, and of encoded ones, that are held.
const MAX_BYTES: usize = 256 << 20;

/// Samples a second if finished samples lie in memory and only batches are made of them. `None` if batches have no arrays.
pub(super) fn replay(
    loader: &Loader,
    batch_size: usize,
    time: Duration,
    progress: &mut Progress,
) -> Result<Option<f64>, Error> {
    let mut parts: Option<(Vec<u8>, _, Vec<usize>)> = None;
    for batch in loader.epoch()? {
        let batch = batch?;
        let array = batch.columns.iter().find_map(|column| match &column.data {
            ColumnData::Array { dtype, shape, .. } if shape.len() > 1 => {
                Some((column, *dtype, shape.clone()))
            }
            _ => None,
        });
        let Some((column, dtype, shape)) = array else { return Ok(None) };
        let bytes = column.data.as_bytes().unwrap_or_default();
        let (all, _, whole) = parts.get_or_insert_with(|| {
            let mut empty = shape.clone();
            empty[0] = 0;
            (Vec::new(), dtype, empty)
        });
        if whole[1..] != shape[1..] || all.len() + bytes.len() > MAX_BYTES {
            break;
        }
        whole[0] += shape[0];
        all.extend_from_slice(bytes);
    }
    let Some((bytes, dtype, shape)) = parts.filter(|(_, _, shape)| shape[0] > 0) else { return Ok(None) };
    let data = ArrayData::from_vec(bytes, dtype, shape)?;
    let source = TensorSlices::new(vec![("image".into(), data, Pixels::Never)], Structure::Field(0))?;
    let loader = Dataset::new(Arc::new(source)).shuffle(0).batch(batch_size, false).loader()?;
    // Threads and memory of the first batches are no part of it.
    repeat(&loader, Instant::now() + time / 4, progress)?;
    Ok(Some(repeat(&loader, Instant::now() + time * 3 / 4, progress)?.rate()))
}

/// Encoded images, in memory.
#[derive(Debug, Default)]
pub(super) struct Encoded {
    images: Vec<Vec<u8>>,
    /// Stored bytes of all samples that were read, and their number.
    bytes: u64,
    samples: u64,
    record: Record,
}

impl Encoded {
    /// The first bytes of `samples` samples from all over `source`, as far as they can be read in `time`. Bad samples are left out.
    pub(super) fn read(source: &dyn Source, samples: u64, time: Duration) -> Result<Self, Error> {
        let mut this = Self::default();
        let deadline = Instant::now() + time;
        let mut held = 0;
        for i in 0..samples.min(source.len()) {
            let index = (u128::from(i) * u128::from(source.len()) / u128::from(samples)) as u64;
            if source.fetch(index, &mut this.record).is_err() {
                continue;
            }
            this.samples += 1;
            for (field, spec) in source.schema().fields.iter().enumerate() {
                let resident = || source.resident(index, field).unwrap_or_default();
                let bytes = match this.record.values.get(field) {
                    Some(Value::Bytes(bytes)) => bytes.as_slice(),
                    Some(Value::Resident) => resident(),
                    _ => continue,
                };
                this.bytes += bytes.len() as u64;
                if matches!(spec.kind, FieldKind::Image) {
                    held += bytes.len();
                    this.images.push(bytes.to_vec());
                }
            }
            if held > MAX_BYTES || (Instant::now() >= deadline && this.samples >= 16) {
                break;
            }
        }
        Ok(this)
    }

    /// Stored bytes of a sample.
    pub(super) fn mean_bytes(&self) -> f64 {
        self.bytes as f64 / self.samples.max(1) as f64
    }

    /// Images a second that `threads` decode whole. `None` if nothing is encoded, or nothing can be decoded.
    pub(super) fn decode(&self, threads: usize, time: Duration) -> Option<f64> {
        if self.images.is_empty() {
            return None;
        }
        let (next, decoded) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let begin = Instant::now();
        let deadline = begin + time;
        let work = || {
            let (mut scratch, mut image) = (Scratch::default(), Image::default());
            while Instant::now() < deadline {
                let bytes = &self.images[next.fetch_add(1, Ordering::Relaxed) % self.images.len()];
                let done =
                    decode_image(bytes, &Request::default(), &self.record.limits, &mut scratch, &mut image);
                decoded.fetch_add(usize::from(done.is_ok()), Ordering::Relaxed);
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // With fewer threads the figure is lower than it could be, but not wrong.
                drop(thread::Builder::new().spawn_scoped(scope, work));
            }
            work();
        });
        let decoded = decoded.into_inner();
        (decoded > 0).then(|| decoded as f64 / begin.elapsed().as_secs_f64())
    }
}
