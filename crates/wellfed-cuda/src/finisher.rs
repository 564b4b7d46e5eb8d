//! [`Finisher`]: finishes batches of left images ([`crate::finish`]) in memory of its own, for frameworks that lend none.
//!
//! All of it is submitted to one stream, in whose order memory is used again at once. Finished images are the only memory
//! that others read: it is used again when its [`Finished`] is dropped, and until then nothing writes to it. What the
//! device reads of the host is kept until an event says that it was read.

use std::{
    any::Any,
    collections::VecDeque,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wellfed_kernels::{
    image::{Dtype, Layout},
    points::PointMap,
};

use crate::{
    augment::Output,
    error::{Error, Result},
    finish::{Decoded, Places, Plan, Shape},
    memory::PinnedBuffer,
    mix::{Blend, Images},
    place::{Buffer, Place},
    stream::{Event, Stream},
};

/// Bytes of scratch memory between the kernels; a batch that needs more is finished in parts.
const SCRATCH: u64 = 1 << 29;
/// Batches that the device may be behind: then a call waits for it, so that no more memory is taken.
const AHEAD: usize = 8;
/// Buffers that wait to be used again, at most.
const KEPT: usize = 16;
/// Sizes of buffers are multiples of this, so that batches of other sizes find one that fits.
const GRAIN: usize = 1 << 20;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of one place that nobody uses.
#[derive(Debug)]
struct Pool {
    place: Place,
    free: Mutex<Vec<Buffer>>,
}

impl Pool {
    /// Memory of `bytes` at least.
    fn take(self: &Arc<Self>, bytes: usize) -> Result<Lent> {
        let wanted = bytes.max(1).next_multiple_of(GRAIN);
        let found = {
            let mut free = lock(&self.free);
            // Not one that much larger batches need.
            let range = wanted..=wanted * 2 + GRAIN;
            let fits = free.iter().enumerate().filter(|(_, one)| range.contains(&one.len()));
            fits.min_by_key(|(_, one)| one.len()).map(|(at, _)| at).map(|at| free.swap_remove(at))
        };
        let buffer = match found {
            Some(buffer) => buffer,
            // A quarter more: records differ in size from batch to batch.
            None => self.place.buffer((wanted + wanted / 4).next_multiple_of(GRAIN))?,
        };
        Ok(Lent { buffer: Some(buffer), pool: Arc::clone(self) })
    }

    fn give_back(&self, buffer: Buffer) {
        let mut free = lock(&self.free);
        free.push(buffer);
        if free.len() > KEPT {
            let smallest = free.iter().enumerate().min_by_key(|(_, one)| one.len()).map(|(at, _)| at);
            drop(smallest.map(|at| free.swap_remove(at)));
        }
    }
}

/// Memory of a pool, which goes back to it.
#[derive(Debug)]
struct Lent {
    buffer: Option<Buffer>,
    pool: Arc<Pool>,
}

impl Lent {
    fn pointer(&mut self) -> u64 {
        self.buffer.as_mut().map_or(0, Buffer::pointer)
    }

    /// Submits a copy to its beginning.
    ///
    /// # Safety
    /// `from` stays as it is until the pool's stream has passed the copy.
    unsafe fn copy(&mut self, from: &[u8]) -> Result<()> {
        match &mut self.buffer {
            // SAFETY: the caller's promise.
            Some(Buffer::Device(buffer)) => unsafe { buffer.write_async(0, from, buffer.stream()) },
            Some(buffer) => buffer.write(0, from),
            None => Ok(()),
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.pool.give_back(buffer);
        }
    }
}

/// Finished images. Their memory is used again when this is dropped, by when whoever read it must be through.
#[derive(Debug)]
pub struct Finished {
    memory: Mutex<Lent>,
    over: Option<Arc<Event>>,
}

impl Finished {
    /// The address of the first image.
    pub fn pointer(&self) -> u64 {
        lock(&self.memory).pointer()
    }

    /// Lets what is submitted to `stream` from now on wait until the images are finished. The caller does not wait.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait_in(&self, stream: &Stream) -> Result<()> {
        self.over.as_ref().map_or(Ok(()), |over| stream.wait(over))
    }

    /// Waits until the images are finished.
    ///
    /// # Errors
    /// The driver's, also of work that failed.
    pub fn synchronize(&self) -> Result<()> {
        self.over.as_ref().map_or(Ok(()), |over| over.synchronize())
    }
}

/// What the device may still be reading of the host.
struct UnderWay {
    over: Arc<Event>,
    parameters: Option<PinnedBuffer>,
    _source: Box<dyn Any + Send>,
}

/// A table of values where kernels run.
#[derive(Debug)]
struct Table {
    address: u64,
    _memory: Buffer,
}

impl Table {
    fn new(place: &Place, words: &[u32]) -> Result<Self> {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut memory = place.buffer_of(&bytes)?;
        Ok(Self { address: memory.pointer(), _memory: memory })
    }
}

/// What the images of a column become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Channels, height and width.
    pub size: [usize; 3],
    /// Type of elements.
    pub dtype: Dtype,
    /// Their order.
    pub layout: Layout,
}

/// Finishes batches of one column.
pub struct Finisher {
    pool: Arc<Pool>,
    form: Form,
    map: PointMap,
    table: Table,
    identity: Table,
    under_way: Mutex<VecDeque<UnderWay>>,
    parameters: Mutex<Vec<PinnedBuffer>>,
}

impl fmt::Debug for Finisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finisher")
            .field("place", &self.pool.place)
            .field("form", &self.form)
            .finish_non_exhaustive()
    }
}

impl Finisher {
    /// For images of `form`, in the order of the stream of `place`. `table` has 256 numbers of 32 bits for each channel: from
    /// 8-bit values to elements.
    ///
    /// # Errors
    /// [`Error::Argument`] for another table; the driver's.
    pub fn new(place: Place, form: Form, table: &[u32]) -> Result<Self> {
        let map = PointMap::of_bits(form.dtype, table).filter(|map| map.channels() == form.size[0]);
        let map = map.ok_or_else(|| {
            Error::Argument(format!("a table of {} numbers for {} channels", table.len(), form.size[0]))
        })?;
        let same: Vec<u32> = (0..4).flat_map(|_| 0..256).collect();
        let (table, identity) = (Table::new(&place, table)?, Table::new(&place, &same)?);
        let pool = Arc::new(Pool { place, free: Mutex::default() });
        let (under_way, parameters) = (Mutex::default(), Mutex::default());
        Ok(Self { pool, form, map, table, identity, under_way, parameters })
    }

    /// Finishes a batch: `records`, which are written to, and where each begins, one number more than there are images. Then
    /// images are mixed by `blends`, in order. Says who decodes, too. On the host all is done when this returns.
    ///
    /// # Errors
    /// Those of [`Plan::new`] and [`crate::augment::Plan::new`]; [`Error::Argument`] for JPEGs that are left to nvJPEG; the
    /// driver's.
    ///
    /// # Safety
    /// `records` and `offsets` are memory of `source`, which nobody else writes to.
    pub unsafe fn finish(
        &self,
        records: &mut [u8],
        offsets: &[i64],
        blends: &[Blend],
        source: Box<dyn Any + Send>,
    ) -> Result<(Finished, Decoded)> {
        self.sweep()?;
        let count = offsets.len().saturating_sub(1);
        let bytes = count * self.form.size.iter().product::<usize>() * self.form.dtype.size();
        let mut out = self.pool.take(bytes)?;
        if count == 0 {
            return Ok((Finished { memory: Mutex::new(out), over: None }, Decoded::default()));
        }
        let plan = Plan::new(records, offsets, SCRATCH)?;
        let mut parameters = None;
        // SAFETY: the caller's promise; what is copied is kept below, or waited for.
        let submitted = unsafe { self.submit(&plan, records, offsets, blends, &mut out, &mut parameters) };
        let over = submitted.and_then(|()| self.mark());
        if over.is_err() {
            // Some of the copies may be under way.
            let _ = self.pool.place.synchronize();
        }
        let over = over?;
        if let Some(over) = &over {
            let over = Arc::clone(over);
            lock(&self.under_way).push_back(UnderWay { over, parameters, _source: source });
        }
        Ok((Finished { memory: Mutex::new(out), over }, plan.decoded()))
    }

    /// Submits copies and kernels.
    ///
    /// # Safety
    /// `records`, `offsets` and `parameters` stay as they are until the stream has passed.
    unsafe fn submit(
        &self,
        plan: &Plan,
        records: &[u8],
        offsets: &[i64],
        blends: &[Blend],
        out: &mut Lent,
        parameters: &mut Option<PinnedBuffer>,
    ) -> Result<()> {
        let (place, Form { size, dtype, layout }) = (&self.pool.place, self.form);
        let [channels, height, width] = size;
        let count = offsets.len() - 1;
        let too_much = |_| Error::Argument("a batch takes more memory than there can be".to_owned());
        let mut given = self.pool.take(records.len())?;
        let mut begins = self.pool.take(size_of_val(offsets))?;
        let mut scratch = self.pool.take(usize::try_from(plan.scratch()).map_err(too_much)?)?;
        // SAFETY: numbers have no padding, and any byte may be read. Both stay as they are, as the caller says.
        unsafe {
            given.copy(records)?;
            begins.copy(std::slice::from_raw_parts(offsets.as_ptr().cast(), size_of_val(offsets)))?;
        }
        let between = plan.between(channels);
        let mut made = match between {
            Some(sides) => Some(self.pool.take(count * sides.iter().product::<usize>())?),
            None => None,
        };
        let address = made.as_mut().map_or_else(|| out.pointer(), Lent::pointer);
        let places = Places {
            records: given.pointer(),
            offsets: begins.pointer(),
            scratch: scratch.pointer(),
            table: if between.is_some() { self.identity.address } else { self.table.address },
            out: address,
        };
        let planar = |[c, h, w]: [usize; 3]| [c * h * w, h * w, w, 1];
        let (sides, element, step) = match (between, layout) {
            (Some(sides), _) => (sides, 1, planar(sides)),
            (None, Layout::Chw) => (size, dtype.size(), planar(size)),
            (None, Layout::Hwc) => {
                (size, dtype.size(), [channels * height * width, 1, width * channels, channels])
            }
        };
        let shape =
            Shape { channels: sides[0] as u32, element: element as u32, step: step.map(|n| n as i64) };
        plan.run(
            places,
            shape,
            |_| Err(Error::Argument("nvJPEG decodes in memory of the framework only".to_owned())),
            // SAFETY: the plan was made of these records, for memory as large as it says.
            |kernel, grid, threads, args| unsafe { place.launch(kernel, grid, threads, args) },
        )?;
        if made.is_some() {
            let output = Output { address: out.pointer(), map: &self.map, layout, height, width };
            let after = plan.after(address, output).map_err(|error| Error::Argument(error.to_string()))?;
            let mut numbers = self.pool.take(after.memory())?;
            let mut between = self.pool.take(after.scratch())?;
            *parameters = self.pinned(after.parameters())?;
            let from = parameters.as_deref().unwrap_or_else(|| after.parameters());
            // SAFETY: page-locked memory is the caller's to keep; on the host the copy is over when this returns.
            unsafe { numbers.copy(&from[..after.parameters().len()])? };
            for launch in after.launches(numbers.pointer(), between.pointer()) {
                // SAFETY: as above.
                unsafe { place.launch(launch.name, launch.grid, launch.threads, &launch.args)? };
            }
        }
        for blend in blends {
            let images = Images { address: out.pointer(), count, size, dtype, layout };
            if let Some(launch) = images.launch(*blend)? {
                // SAFETY: there are so many images.
                unsafe { place.launch(launch.name, launch.grid, launch.threads, &launch.args)? };
            }
        }
        Ok(())
    }

    /// A copy of parameters that a device reads without waiting; none on the host.
    fn pinned(&self, bytes: &[u8]) -> Result<Option<PinnedBuffer>> {
        let Place::Device { stream, .. } = &self.pool.place else { return Ok(None) };
        let kept = {
            let mut kept = lock(&self.parameters);
            kept.iter().position(|one| one.len() >= bytes.len()).map(|at| kept.swap_remove(at))
        };
        let mut memory = match kept {
            Some(memory) => memory,
            None => PinnedBuffer::new(stream.device(), (bytes.len() * 2).next_multiple_of(GRAIN))?,
        };
        memory[..bytes.len()].copy_from_slice(bytes);
        Ok(Some(memory))
    }

    /// The point that the stream has reached; none on the host.
    fn mark(&self) -> Result<Option<Arc<Event>>> {
        let Place::Device { stream, .. } = &self.pool.place else { return Ok(None) };
        let over = Event::new(stream.device())?;
        over.record(stream)?;
        Ok(Some(Arc::new(over)))
    }

    /// Lets go what the device has read, and waits where it is too far behind.
    fn sweep(&self) -> Result<()> {
        let mut read = Vec::new();
        {
            let mut under_way = lock(&self.under_way);
            if let Some(last) = under_way.len().checked_sub(AHEAD) {
                under_way[last].over.synchronize()?;
            }
            while let Some(first) = under_way.front()
                && first.over.is_done()?
            {
                read.extend(under_way.pop_front());
            }
        }
        lock(&self.parameters).extend(read.iter_mut().filter_map(|one| one.parameters.take()));
        Ok(())
    }
}

impl Drop for Finisher {
    fn drop(&mut self) {
        for one in lock(&self.under_way).drain(..) {
            // Where that fails, the device is lost and reads nothing.
            let _ = one.over.synchronize();
        }
    }
}
