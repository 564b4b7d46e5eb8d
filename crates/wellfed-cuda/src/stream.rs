//! Streams and events: the order in which a device works, and points in it that others wait for.
//!
//! Nothing here waits for a whole device: what waits, waits for one stream or one event.

use std::{ffi::c_uint, sync::Arc};

use crate::{
    device::Device,
    driver::{Handle, ready},
    error::{Error, Result},
};

/// `CU_STREAM_NON_BLOCKING`: the stream does not wait for the legacy default stream, nor that for it.
const NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_BLOCKING_SYNC`: who waits for the event sleeps, and leaves the core to those that decode.
const BLOCKING_SYNC: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: the event is cheaper.
const DISABLE_TIMING: c_uint = 2;

/// A stream: one of ours, destroyed with this value, or one of the framework's.
#[derive(Debug)]
pub struct Stream {
    device: Arc<Device>,
    raw: Handle,
    owned: bool,
}

impl Stream {
    /// Makes a stream that does not wait for the legacy default stream. Work of a lower `priority` (0 is the default, -1
    /// is before it) goes first; what the device does not have is clamped.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Arc<Device>, priority: i32) -> Result<Self> {
        let _entered = device.enter()?;
        let mut raw = 0;
        // SAFETY: `raw` lives as long as the call.
        unsafe { device.driver().stream_create(&mut raw, NON_BLOCKING, priority) }?;
        Ok(Self { device: Arc::clone(device), raw, owned: true })
    }

    /// A stream of somebody else's by its handle, as of `torch.cuda.current_stream().cuda_stream`; 0 is the legacy
    /// default stream. It is not destroyed with this value.
    ///
    /// # Safety
    /// The handle is that of a stream of this device, which lives as long as the value.
    pub unsafe fn borrowed(device: &Arc<Device>, handle: u64) -> Self {
        Self { device: Arc::clone(device), raw: handle, owned: false }
    }

    /// The legacy default stream, which is PyTorch's current one unless the script sets another.
    pub fn legacy_default(device: &Arc<Device>) -> Self {
        // SAFETY: every device has it, always.
        unsafe { Self::borrowed(device, 0) }
    }

    /// Its device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its handle, a `CUstream`.
    pub fn handle(&self) -> u64 {
        self.raw
    }

    /// Waits until all that was submitted to it is done. The driver may spin meanwhile; [`Event::synchronize`] sleeps.
    ///
    /// # Errors
    /// The driver's, also of work that failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the stream lives.
        unsafe { self.device.driver().stream_synchronize(self.raw) }
    }

    /// Whether all that was submitted to it is done.
    ///
    /// # Errors
    /// The driver's, also of work that failed.
    pub fn is_idle(&self) -> Result<bool> {
        let _entered = self.device.enter()?;
        // SAFETY: the stream lives.
        ready(unsafe { self.device.driver().stream_query(self.raw) })
    }

    /// Lets what is submitted to it from now on wait until the device has passed `event`, as it was recorded last. The
    /// caller does not wait. An event that was never recorded is not waited for.
    ///
    /// # Errors
    /// The driver's.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: both live. The event may be destroyed before the wait is over.
        unsafe { self.device.driver().stream_wait(self.raw, event.raw, 0) }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: `new` made it. What it has to do yet is done.
            self.device.on_drop(|driver| unsafe { driver.stream_destroy(self.raw) });
        }
    }
}

/// A point in the work of a stream.
#[derive(Debug)]
pub struct Event {
    device: Arc<Device>,
    raw: Handle,
}

impl Event {
    /// An event that is waited for.
    ///
    /// # Errors
    /// The driver's.
    pub fn new(device: &Arc<Device>) -> Result<Self> {
        Self::with(device, BLOCKING_SYNC | DISABLE_TIMING)
    }

    /// An event that also knows when it was passed: for [`Self::milliseconds_since`].
    ///
    /// # Errors
    /// The driver's.
    pub fn timed(device: &Arc<Device>) -> Result<Self> {
        Self::with(device, BLOCKING_SYNC)
    }

    fn with(device: &Arc<Device>, flags: c_uint) -> Result<Self> {
        let _entered = device.enter()?;
        let mut raw = 0;
        // SAFETY: `raw` lives as long as the call.
        unsafe { device.driver().event_create(&mut raw, flags) }?;
        Ok(Self { device: Arc::clone(device), raw })
    }

    /// Its handle, a `CUevent`.
    pub fn handle(&self) -> u64 {
        self.raw
    }

    /// Makes it the point in `stream` that is reached now. An earlier one is forgotten; those who wait for that one
    /// already still do.
    ///
    /// # Errors
    /// [`Error::Argument`] if the stream is another device's; the driver's.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        if stream.device.ordinal() != self.device.ordinal() {
            return Err(Error::Argument(format!(
                "an event of CUDA device {} cannot be recorded in a stream of device {}",
                self.device.ordinal(),
                stream.device.ordinal()
            )));
        }
        let _entered = self.device.enter()?;
        // SAFETY: both live.
        unsafe { self.device.driver().event_record(self.raw, stream.raw) }
    }

    /// Whether the device has passed it; also if it was never recorded.
    ///
    /// # Errors
    /// The driver's, also of work before it that failed.
    pub fn is_done(&self) -> Result<bool> {
        let _entered = self.device.enter()?;
        // SAFETY: the event lives.
        ready(unsafe { self.device.driver().event_query(self.raw) })
    }

    /// Waits until the device has passed it.
    ///
    /// # Errors
    /// The driver's, also of work before it that failed.
    pub fn synchronize(&self) -> Result<()> {
        let _entered = self.device.enter()?;
        // SAFETY: the event lives.
        unsafe { self.device.driver().event_synchronize(self.raw) }
    }

    /// Milliseconds of the device between `start` and this event, which are both timed and passed.
    ///
    /// # Errors
    /// The driver's: `CUDA_ERROR_NOT_READY` if one is not passed yet, `CUDA_ERROR_INVALID_HANDLE` if one is not timed.
    pub fn milliseconds_since(&self, start: &Event) -> Result<f32> {
        let _entered = self.device.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both live, and the number lives as long as the call.
        unsafe { self.device.driver().event_elapsed(&mut milliseconds, start.raw, self.raw) }?;
        Ok(milliseconds)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: `with` made it. What waits for it still does.
        self.device.on_drop(|driver| unsafe { driver.event_destroy(self.raw) });
    }
}
