//! [`PageLocks`]: memory of others that a device may read without a copy on the host in between.
//!
//! The driver is called from whatever thread makes or frees the memory, and nothing of Python is: an engine's thread in the
//! interpreter could be the one that collects garbage, and would run finalizers of the script's objects.

use std::{
    ffi::c_void,
    sync::{Arc, OnceLock},
};

use crate::{
    device::Device,
    error::{Error, Result},
};

/// `CU_MEMHOSTREGISTER_PORTABLE`: for all devices, whichever is current.
const PORTABLE: u32 = 1;

/// Locks memory to its pages for one device, which is opened when the first pass over the data begins.
#[derive(Debug, Default)]
pub struct PageLocks {
    device: OnceLock<Result<Arc<Device>>>,
}

impl PageLocks {
    /// Opens the device, if none is open yet. That it cannot be is told by [`PageLocks::lock`].
    pub fn begin(&self, ordinal: u32) {
        self.begin_with(|| Device::open(ordinal));
    }

    /// As [`PageLocks::begin`], of a device that `open` opens.
    pub fn begin_with(&self, open: impl FnOnce() -> Result<Arc<Device>>) {
        self.device.get_or_init(open);
    }

    fn device(&self) -> Result<&Arc<Device>> {
        match self.device.get() {
            Some(opened) => opened.as_ref().map_err(Clone::clone),
            None => Err(Error::Argument("no pass has begun, which says for which device".to_owned())),
        }
    }

    /// Locks `len` bytes from `start` on: whole pages, which nothing else lies in.
    ///
    /// # Errors
    /// That the device cannot be opened; the driver's, where the system does not give so much.
    pub fn lock(&self, start: *mut u8, len: usize) -> Result<()> {
        let device = self.device()?;
        let _entered = device.enter()?;
        // SAFETY: the driver looks the range up, and refuses what is no memory; nothing is written.
        unsafe { device.driver().host_register(start.cast::<c_void>(), len, PORTABLE) }
    }

    /// Undoes [`PageLocks::lock`]. False if that is not possible, as at the end of a process: then the memory must stay.
    pub fn unlock(&self, start: *mut u8) -> bool {
        let unlock = || {
            let device = self.device()?;
            let _entered = device.enter()?;
            // SAFETY: as above.
            unsafe { device.driver().host_unregister(start.cast::<c_void>()) }
        };
        unlock().is_ok()
    }
}
