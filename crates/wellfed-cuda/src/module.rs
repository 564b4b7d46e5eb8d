//! The kernels on a device.

use std::{
    collections::HashMap,
    ffi::{CString, c_uint, c_void},
    ptr,
    sync::Arc,
};

use crate::{
    device::Device,
    driver::Handle,
    error::{Error, Result},
    host::{self, Grid, Kernel},
    ptx,
};

/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG_OPTIONS: [c_uint; 2] = [5, 6];
/// Bytes of the compiler's log that are kept.
const LOG_BYTES: usize = 4096;

/// All kernels, loaded on one device.
#[derive(Debug)]
pub struct Module {
    device: Arc<Device>,
    raw: Handle,
    functions: HashMap<&'static str, (Kernel, Handle)>,
}

impl Module {
    /// Loads the kernels. The driver compiles them for the device the first time, and keeps what it made on disk.
    ///
    /// # Errors
    /// [`Error::OldDevice`]; the driver's, with its compiler's log.
    pub fn load(device: &Arc<Device>) -> Result<Self> {
        if device.capability() < ptx::OLDEST_CAPABILITY {
            return Err(Error::OldDevice { name: device.name().to_owned(), capability: device.capability() });
        }
        let driver = device.driver();
        let _entered = device.enter()?;
        let mut log = vec![0u8; LOG_BYTES];
        let mut options = LOG_OPTIONS;
        // The size is passed in the pointer's place, and what was written comes back there.
        let mut values = [log.as_mut_ptr().cast::<c_void>(), ptr::without_provenance_mut(LOG_BYTES - 1)];
        let mut raw = 0;
        // SAFETY: the PTX ends with a zero; the options and their values, of which there are two, and the log live as
        // long as the call.
        let loaded = unsafe {
            driver.module_load(
                &mut raw,
                ptx::MODULE.as_ptr().cast(),
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        loaded.map_err(|error| with_log(error, &log))?;
        let mut module = Self { device: Arc::clone(device), raw, functions: HashMap::new() };
        for kernel in host::kernels() {
            let name = CString::new(kernel.name()).expect("a name in the table has no zero");
            let mut function = 0;
            // SAFETY: the module is loaded, and the name ends with a zero.
            unsafe { driver.module_function(&mut function, raw, name.as_ptr()) }?;
            module.functions.insert(kernel.name(), (kernel, function));
        }
        Ok(module)
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Launches a kernel on `stream` (0: the legacy default stream) and does not wait for it. A grid without blocks is
    /// nothing to do.
    ///
    /// # Errors
    /// [`Error::NoKernel`]; those of [`Kernel::check`]; the driver's, also of work before it that failed.
    ///
    /// # Safety
    /// `args` are what the kernel takes; its pointers are to memory of this device, valid for what it reads and writes,
    /// until `stream` has passed the launch; `stream` is one of this device's, not destroyed.
    pub unsafe fn launch<T: Copy>(
        &self,
        kernel: &str,
        grid: Grid,
        threads: u32,
        args: &T,
        stream: u64,
    ) -> Result<()> {
        let (kernel, function) =
            self.functions.get(kernel).copied().ok_or_else(|| Error::NoKernel { name: kernel.to_owned() })?;
        kernel.check::<T>(grid, threads)?;
        if grid.contains(&0) {
            return Ok(());
        }
        let _entered = self.device.enter()?;
        let [x, y, z] = grid;
        let mut arguments = [ptr::from_ref(args).cast_mut().cast::<c_void>()];
        // SAFETY: the kernel has one parameter, of the size that was checked, which the driver copies before it
        // returns. The rest is the caller's promise.
        unsafe {
            let arguments = arguments.as_mut_ptr();
            self.device.driver().launch(
                function,
                x,
                y,
                z,
                threads,
                1,
                1,
                0,
                stream,
                arguments,
                ptr::null_mut(),
            )
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: `load` made it, and its functions go with `self`. The driver waits for kernels that run.
        self.device.on_drop(|driver| unsafe { driver.module_unload(self.raw) });
    }
}

/// Adds the log of the driver's compiler to an error's text.
fn with_log(error: Error, log: &[u8]) -> Error {
    let log = log.split(|&byte| byte == 0).next().map(String::from_utf8_lossy).unwrap_or_default();
    match error {
        Error::Call { call, code, name, text } if !log.trim().is_empty() => {
            Error::Call { call, code, name, text: format!("{text}: {}", log.trim()) }
        }
        error => error,
    }
}
