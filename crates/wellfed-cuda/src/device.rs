//! A device: its primary context, which PyTorch and JAX use, too, and what it is.

use std::{
    ffi::{c_char, c_int, c_uint},
    marker::PhantomData,
    sync::Arc,
};

use crate::{
    driver::{Driver, Handle, RawDevice},
    error::{Error, Result},
};

/// `CUdevice_attribute`s.
mod attribute {
    pub(super) const MULTIPROCESSORS: u32 = 16;
    pub(super) const COPY_ENGINES: u32 = 40;
    pub(super) const CAPABILITY_MAJOR: u32 = 75;
    pub(super) const CAPABILITY_MINOR: u32 = 76;
    pub(super) const MEMORY_POOLS: u32 = 115;
}

/// A device whose primary context is held: there is one for a process, and so its memory and streams are the framework's.
#[derive(Debug)]
pub struct Device {
    driver: Arc<Driver>,
    raw: RawDevice,
    context: Handle,
    /// The process that opened it: in a child made by fork(), nothing of it is valid, not even to be released.
    process: u32,
    ordinal: u32,
    name: String,
    capability: (u32, u32),
    multiprocessors: u32,
    copy_engines: u32,
    pools: bool,
}

impl Device {
    /// Opens the device of this number, as PyTorch counts them (`cuda:1`): `CUDA_VISIBLE_DEVICES` holds for both.
    ///
    /// # Errors
    /// [`Driver::get`]'s; [`Error::NoDevice`]; the driver's, as when no memory is left for a context.
    pub fn open(ordinal: u32) -> Result<Arc<Self>> {
        Self::open_with(Driver::get()?, ordinal)
    }

    /// As [`Self::open`], of this driver.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_with(driver: Arc<Driver>, ordinal: u32) -> Result<Arc<Self>> {
        let count = driver.device_count()?;
        let number = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
        let number = number.ok_or(Error::NoDevice { ordinal, count })?;
        let mut raw = 0;
        // SAFETY: `raw` lives as long as the call.
        unsafe { driver.device_get(&mut raw, number) }?;
        let name = name(&driver, raw)?;
        let get = |attribute| self::get(&driver, raw, attribute);
        let capability = (get(attribute::CAPABILITY_MAJOR)?, get(attribute::CAPABILITY_MINOR)?);
        let multiprocessors = get(attribute::MULTIPROCESSORS)?;
        let copy_engines = get(attribute::COPY_ENGINES)?;
        let pools = driver.has_alloc_async() && driver.has_free_async() && get(attribute::MEMORY_POOLS)? != 0;
        let mut context = 0;
        // SAFETY: `raw` is a device of the driver. `drop` releases what is retained here, once.
        unsafe { driver.primary_retain(&mut context, raw) }?;
        let process = std::process::id();
        Ok(Arc::new(Self {
            driver,
            raw,
            context,
            process,
            ordinal,
            name,
            capability,
            multiprocessors,
            copy_engines,
            pools,
        }))
    }

    /// Makes its context the current one of this thread, until the guard is dropped. Cheap where it is that already, as
    /// in threads in which PyTorch has used the device.
    ///
    /// # Errors
    /// The driver's; [`Error::Argument`] in a process that was forked off after the device was opened.
    pub fn enter(&self) -> Result<Entered<'_>> {
        if !self.is_mine() {
            return Err(Error::Argument(format!(
                "CUDA device {} was opened before this process was forked off\nhint: CUDA does not survive fork(): \
                 start processes by spawn or forkserver",
                self.ordinal
            )));
        }
        let mut current = 0;
        // SAFETY: `current` lives as long as the call.
        unsafe { self.driver.get_current(&mut current) }?;
        let pushed = current != self.context;
        if pushed {
            // SAFETY: the context is retained until this device is dropped, which the guard's lifetime forbids.
            unsafe { self.driver.push_current(self.context) }?;
        }
        Ok(Entered { device: self, pushed, thread: PhantomData })
    }

    /// Its driver.
    pub fn driver(&self) -> &Arc<Driver> {
        &self.driver
    }

    /// Its number.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }

    /// Its name, as `NVIDIA H100 80GB HBM3`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its compute capability: major, minor.
    pub fn capability(&self) -> (u32, u32) {
        self.capability
    }

    /// How many streaming multiprocessors it has.
    pub fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    /// How many copies can run beside kernels, at once.
    pub fn copy_engines(&self) -> u32 {
        self.copy_engines
    }

    /// Whether memory can be taken and given back in the order of a stream, without waiting for the device.
    pub fn has_stream_memory(&self) -> bool {
        self.pools
    }

    /// Bytes of its memory: free, and all.
    ///
    /// # Errors
    /// The driver's.
    pub fn memory(&self) -> Result<(u64, u64)> {
        let _entered = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both live as long as the call.
        unsafe { self.driver.mem_info(&mut free, &mut total) }?;
        Ok((free as u64, total as u64))
    }

    /// Whether this process opened it, and not one that it was forked off.
    pub(crate) fn is_mine(&self) -> bool {
        self.process == std::process::id()
    }

    /// Runs `free` with the context entered, when something is dropped: errors have nobody to go to, and after fork() or
    /// at the end of the process, when the driver is gone, there is nothing to free.
    pub(crate) fn on_drop(&self, free: impl FnOnce(&Driver) -> Result<()>) {
        if let Ok(_entered) = self.enter() {
            let _ = free(&self.driver);
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.is_mine() {
            // SAFETY: `open` retained the context; all that was made in it holds this device, and so is gone.
            let _ = unsafe { self.driver.primary_release(self.raw) };
        }
    }
}

/// While it lives, a device's context is the current one of this thread.
#[derive(Debug)]
pub struct Entered<'a> {
    device: &'a Device,
    pushed: bool,
    /// Contexts are current in a thread: it must be dropped in the one where it was made.
    thread: PhantomData<*const ()>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped = 0;
            // SAFETY: `popped` lives as long as the call; `enter` pushed in this thread.
            let result = unsafe { self.device.driver.pop_current(&mut popped) };
            debug_assert!(
                result.is_err() || popped == self.device.context,
                "contexts are popped in their order"
            );
        }
    }
}

fn get(driver: &Driver, device: RawDevice, attribute: c_uint) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `value` lives as long as the call.
    unsafe { driver.device_attribute(&mut value, attribute, device) }?;
    Ok(value.max(0).cast_unsigned())
}

fn name(driver: &Driver, device: RawDevice) -> Result<String> {
    let mut name = [0u8; 256];
    // SAFETY: the driver writes at most as many bytes as it is told, of which one stays zero.
    unsafe { driver.device_name(name.as_mut_ptr().cast::<c_char>(), name.len() as c_int - 1, device) }?;
    Ok(String::from_utf8_lossy(name.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned())
}
