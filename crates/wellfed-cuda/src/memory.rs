//! Memory of a device, and memory of the host that devices copy from at full speed.

use std::{
    ffi::{c_uint, c_void},
    ops::{Deref, DerefMut},
    ptr::{self, NonNull},
    sync::Arc,
};

use crate::{
    device::Device,
    driver::OUT_OF_MEMORY,
    error::{Error, Result},
    stream::Stream,
};

/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for all devices. Not write-combined: the host reads it, too.
const PORTABLE: c_uint = 1;

/// Page-locked memory of the host: a slice of bytes, zero at first.
#[derive(Debug)]
pub struct PinnedBuffer {
    device: Arc<Device>,
    data: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory, as a `Vec<u8>` does; the driver's functions may be called in any thread.
unsafe impl Send for PinnedBuffer {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for PinnedBuffer {}

impl PinnedBuffer {
    /// Takes memory. This takes milliseconds and may wait for the device: take it once, not for each batch.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the driver's.
    pub fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        let _entered = device.enter()?;
        let mut data = ptr::null_mut();
        // SAFETY: `data` lives as long as the call. There is no allocation of 0 bytes.
        let taken = unsafe { device.driver().host_alloc(&mut data, bytes.max(1), PORTABLE) };
        taken.map_err(|error| out_of_memory(error, "page-locked host", bytes, None))?;
        let data = NonNull::new(data.cast::<u8>()).ok_or_else(|| {
            Error::Argument(format!(
                "the driver gave no memory where {bytes} page-locked bytes were asked for"
            ))
        })?;
        // SAFETY: the memory has that many bytes. The driver does not promise what they hold.
        unsafe { data.write_bytes(0, bytes) };
        Ok(Self { device: Arc::clone(device), data, bytes })
    }
}

impl Deref for PinnedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `new` took and set that many bytes. Copies of the device are begun by unsafe functions, whose callers
        // promise that nobody looks meanwhile.
        unsafe { std::slice::from_raw_parts(self.data.as_ptr(), self.bytes) }
    }
}

impl DerefMut for PinnedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.data.as_ptr(), self.bytes) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // SAFETY: `new` took it. The driver waits for copies that are under way.
        self.device.on_drop(|driver| unsafe { driver.host_free(self.data.as_ptr().cast()) });
    }
}

/// Memory of a device, taken and given back in the order of a stream where the device can; else both may wait for the
/// whole device, so that buffers should be kept. What it holds at first is anything.
#[derive(Debug)]
pub struct DeviceBuffer {
    stream: Arc<Stream>,
    pointer: u64,
    bytes: usize,
}

impl DeviceBuffer {
    /// Takes memory. It may be used in `stream` at once, and by others when they have waited for it.
    ///
    /// When it is dropped, `stream` gives it back after what was submitted to it until then: work of other streams on
    /// it must lie before that, by events.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the bytes that are free; the driver's.
    pub fn new(stream: &Arc<Stream>, bytes: usize) -> Result<Self> {
        let device = stream.device();
        let _entered = device.enter()?;
        let mut pointer = 0;
        // There is no allocation of 0 bytes.
        let asked = bytes.max(1);
        let taken = if device.has_stream_memory() {
            // SAFETY: `pointer` lives as long as the call, and the stream lives.
            unsafe { device.driver().mem_alloc_async(&mut pointer, asked, stream.handle()) }
        } else {
            // SAFETY: `pointer` lives as long as the call.
            unsafe { device.driver().mem_alloc(&mut pointer, asked) }
        };
        taken.map_err(|error| out_of_memory(error, "device", bytes, Some(device)))?;
        Ok(Self { stream: Arc::clone(stream), pointer, bytes })
    }

    /// Its address on the device.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }

    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The stream in whose order it was taken and is given back.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Copies bytes to it, from `offset` on, and waits for that.
    ///
    /// # Errors
    /// [`Error::Argument`] beyond its end or with another device's stream; the driver's.
    pub fn write(&mut self, offset: usize, from: &[u8], stream: &Stream) -> Result<()> {
        // SAFETY: the copy is over before this returns.
        unsafe { self.write_async(offset, from, stream) }.and_then(|()| stream.synchronize())
    }

    /// Copies bytes from it, from `offset` on, after what was submitted to `stream`, and waits for that.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn read(&self, offset: usize, to: &mut [u8], stream: &Stream) -> Result<()> {
        // SAFETY: the copy is over before this returns.
        unsafe { self.read_async(offset, to, stream) }.and_then(|()| stream.synchronize())
    }

    /// Submits a copy to it to `stream`. From memory that is not page-locked the copy is slow, and this may wait.
    ///
    /// # Safety
    /// `from` stays as it is until `stream` has passed the copy.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub unsafe fn write_async(&self, offset: usize, from: &[u8], stream: &Stream) -> Result<()> {
        let to = self.range(offset, from.len(), stream)?;
        if from.is_empty() {
            return Ok(());
        }
        let _entered = stream.device().enter()?;
        let driver = stream.device().driver();
        // SAFETY: the range is of this buffer; `from` is the caller's promise; the stream lives.
        unsafe { driver.copy_to_device(to, from.as_ptr().cast::<c_void>(), from.len(), stream.handle()) }
    }

    /// Submits a copy from it to `stream`. To memory that is not page-locked the copy is slow, and this may wait.
    ///
    /// # Safety
    /// Nobody looks at `to`, which stays where it is, until `stream` has passed the copy.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub unsafe fn read_async(&self, offset: usize, to: &mut [u8], stream: &Stream) -> Result<()> {
        let from = self.range(offset, to.len(), stream)?;
        if to.is_empty() {
            return Ok(());
        }
        let _entered = stream.device().enter()?;
        let driver = stream.device().driver();
        // SAFETY: the range is of this buffer; `to` is the caller's promise; the stream lives.
        unsafe { driver.copy_to_host(to.as_mut_ptr().cast::<c_void>(), from, to.len(), stream.handle()) }
    }

    /// Submits to `stream` that all bytes become `value`.
    ///
    /// # Errors
    /// As for [`Self::write`].
    pub fn fill(&mut self, value: u8, stream: &Stream) -> Result<()> {
        let to = self.range(0, self.bytes, stream)?;
        if self.bytes == 0 {
            return Ok(());
        }
        let _entered = stream.device().enter()?;
        // SAFETY: the range is all of this buffer; the stream lives. The memory is given back in the order of its own
        // stream, before which the caller lets `stream` come (see `new`).
        unsafe { stream.device().driver().memset(to, value, self.bytes, stream.handle()) }
    }

    /// The address of `bytes` from `offset` on, in which `stream` may work.
    fn range(&self, offset: usize, bytes: usize, stream: &Stream) -> Result<u64> {
        check_range(offset, bytes, self.bytes)?;
        let (own, other) = (self.stream.device().ordinal(), stream.device().ordinal());
        if own != other {
            return Err(Error::Argument(format!(
                "memory of CUDA device {own} cannot be copied in a stream of device {other}"
            )));
        }
        Ok(self.pointer + offset as u64)
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        let device = self.stream.device();
        device.on_drop(|driver| {
            if device.has_stream_memory() {
                // SAFETY: `new` took it so, and the stream lives, as this buffer holds it.
                unsafe { driver.mem_free_async(self.pointer, self.stream.handle()) }
            } else {
                // SAFETY: `new` took it so. The driver waits for what the device is doing.
                unsafe { driver.mem_free(self.pointer) }
            }
        });
    }
}

/// Whether `bytes` from `offset` on lie in a buffer.
pub(crate) fn check_range(offset: usize, bytes: usize, buffer: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= buffer => Ok(()),
        _ => Err(Error::Argument(format!(
            "{bytes} bytes from offset {offset} on are beyond a buffer of {buffer} bytes"
        ))),
    }
}

/// The error of an allocation: with what is free on the device, if it is the memory that is missing.
fn out_of_memory(error: Error, what: &'static str, bytes: usize, device: Option<&Arc<Device>>) -> Error {
    match error {
        Error::Call { code: OUT_OF_MEMORY, .. } => Error::OutOfMemory {
            what,
            bytes: bytes as u64,
            free: device.and_then(|device| device.memory().ok()),
        },
        error => error,
    }
}
