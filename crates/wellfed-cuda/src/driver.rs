//! The driver's functions, found at run time, and what becomes of the codes they return.
//!
//! Those whose names end in `_v2` are what `cuda.h` calls by the name without it:
//! the names without a suffix are of 32-bit ABIs long gone. The variants for per-thread default streams (`_ptsz`) are
//! not used: stream 0 is the legacy default stream, as in PyTorch and JAX.

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_void},
    path::Path,
    ptr,
    sync::{Arc, OnceLock},
};

use crate::{
    error::{Error, Result},
    functions::functions,
    library::{Library, Loaded},
};

/// A `CUdevice`.
pub(crate) type RawDevice = c_int;
/// A pointer to what the driver alone knows, as `CUcontext` or `CUstream`: kept as a number, which any thread may hold.
pub(crate) type Handle = u64;
const _: () = assert!(size_of::<Handle>() == size_of::<*const c_void>(), "handles are pointers");

pub(crate) const OUT_OF_MEMORY: u32 = 2;
const NOT_READY: u32 = 600;
/// The oldest CUDA version of drivers that load the shipped PTX (ISA 8.0).
const OLDEST_VERSION: u32 = 12_000;

functions! {
    /// The driver's functions, by the names of their symbols.
    impl Driver;
    needed {
        init = "cuInit"(flags: c_uint);
        driver_version = "cuDriverGetVersion"(version: *mut c_int);
        device_count_raw = "cuDeviceGetCount"(count: *mut c_int);
        device_get = "cuDeviceGet"(device: *mut RawDevice, ordinal: c_int);
        device_name = "cuDeviceGetName"(name: *mut c_char, bytes: c_int, device: RawDevice);
        device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_uint, device: RawDevice);
        primary_retain = "cuDevicePrimaryCtxRetain"(context: *mut Handle, device: RawDevice);
        primary_release = "cuDevicePrimaryCtxRelease_v2"(device: RawDevice);
        push_current = "cuCtxPushCurrent_v2"(context: Handle);
        pop_current = "cuCtxPopCurrent_v2"(context: *mut Handle);
        get_current = "cuCtxGetCurrent"(context: *mut Handle);
        module_load = "cuModuleLoadDataEx"(module: *mut Handle, image: *const c_void, count: c_uint, options: *mut c_uint, values: *mut *mut c_void);
        module_unload = "cuModuleUnload"(module: Handle);
        module_function = "cuModuleGetFunction"(function: *mut Handle, module: Handle, name: *const c_char);
        launch = "cuLaunchKernel"(function: Handle, x: c_uint, y: c_uint, z: c_uint, threads_x: c_uint, threads_y: c_uint,
            threads_z: c_uint, shared_bytes: c_uint, stream: Handle, arguments: *mut *mut c_void, extra: *mut *mut c_void);
        mem_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
        mem_alloc = "cuMemAlloc_v2"(pointer: *mut u64, bytes: usize);
        mem_free = "cuMemFree_v2"(pointer: u64);
        host_alloc = "cuMemHostAlloc"(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
        host_free = "cuMemFreeHost"(pointer: *mut c_void);
        host_register = "cuMemHostRegister_v2"(pointer: *mut c_void, bytes: usize, flags: c_uint);
        host_unregister = "cuMemHostUnregister"(pointer: *mut c_void);
        copy_to_device = "cuMemcpyHtoDAsync_v2"(to: u64, from: *const c_void, bytes: usize, stream: Handle);
        copy_to_host = "cuMemcpyDtoHAsync_v2"(to: *mut c_void, from: u64, bytes: usize, stream: Handle);
        memset = "cuMemsetD8Async"(to: u64, value: u8, bytes: usize, stream: Handle);
        stream_create = "cuStreamCreateWithPriority"(stream: *mut Handle, flags: c_uint, priority: c_int);
        stream_destroy = "cuStreamDestroy_v2"(stream: Handle);
        stream_synchronize = "cuStreamSynchronize"(stream: Handle);
        stream_wait = "cuStreamWaitEvent"(stream: Handle, event: Handle, flags: c_uint);
        stream_query = "cuStreamQuery"(stream: Handle);
        event_create = "cuEventCreate"(event: *mut Handle, flags: c_uint);
        event_destroy = "cuEventDestroy_v2"(event: Handle);
        event_record = "cuEventRecord"(event: Handle, stream: Handle);
        event_query = "cuEventQuery"(event: Handle);
        event_synchronize = "cuEventSynchronize"(event: Handle);
        event_elapsed = "cuEventElapsedTime"(milliseconds: *mut f32, start: Handle, end: Handle);
    }
    plain {
        error_name = "cuGetErrorName"(u32, *mut *const c_char);
        error_text = "cuGetErrorString"(u32, *mut *const c_char);
    }
    optional {
        mem_alloc_async, has_alloc_async = "cuMemAllocAsync"(pointer: *mut u64, bytes: usize, stream: Handle);
        mem_free_async, has_free_async = "cuMemFreeAsync"(pointer: u64, stream: Handle);
    }
}

/// The driver, initialized.
#[derive(Debug)]
pub struct Driver {
    functions: Functions,
    library: Loaded,
    version: u32,
}

impl Driver {
    /// The driver of this process: found and initialized by the first call, whose outcome all later calls get.
    ///
    /// # Errors
    /// There is none, it lacks a function, is older than CUDA 12.0, or cannot be initialized ([`Error::Call`]; as when
    /// there is no device).
    pub fn get() -> Result<Arc<Self>> {
        static DRIVER: OnceLock<Result<Arc<Driver>>> = OnceLock::new();
        DRIVER.get_or_init(|| Self::new(Loaded::find(Library::Driver, &[])?).map(Arc::new)).clone()
    }

    /// The driver at `path`, beside that of the process: for tests.
    ///
    /// # Errors
    /// As for [`Self::get`].
    pub fn load(path: &Path) -> Result<Arc<Self>> {
        Self::new(Loaded::load(Library::Driver, path)?).map(Arc::new)
    }

    fn new(library: Loaded) -> Result<Self> {
        let mut driver = Self { functions: Functions::find(&library)?, library, version: 0 };
        let mut version = 0;
        // SAFETY: `version` is written before it is read; cuDriverGetVersion needs no initialization.
        unsafe { driver.driver_version(&mut version) }?;
        driver.version = version.cast_unsigned();
        if driver.version < OLDEST_VERSION {
            return Err(Error::OldDriver { version: driver.version });
        }
        // SAFETY: cuInit may be called at any time, any number of times.
        unsafe { driver.init(0) }?;
        Ok(driver)
    }

    /// The CUDA version that it supports: 1000 × major + 10 × minor.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Where its library lies, or the name by which it was found.
    pub fn path(&self) -> &str {
        self.library.path()
    }

    /// How many devices this process sees.
    ///
    /// # Errors
    /// The driver's.
    pub fn device_count(&self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: `count` lives as long as the call.
        unsafe { self.device_count_raw(&mut count) }?;
        Ok(count.max(0).cast_unsigned())
    }

    /// Turns what a function returned into a result: the one place where codes become errors.
    fn check(&self, call: &'static str, code: u32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        Err(Error::Call { call, code, name: self.describe(code, false), text: self.describe(code, true) })
    }

    /// The driver's name or text of a code; the code itself if it knows none.
    fn describe(&self, code: u32, text: bool) -> String {
        let function = if text { self.functions.error_text } else { self.functions.error_name };
        let mut found = ptr::null();
        // SAFETY: `found` lives as long as the call.
        let status = unsafe { function(code, &mut found) };
        if status != 0 || found.is_null() {
            return format!("code {code}");
        }
        // SAFETY: the driver gives a constant text that ends with a zero.
        unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned()
    }
}

/// Whether what was asked for is there: `Ok(false)` of `CUDA_ERROR_NOT_READY`.
pub(crate) fn ready(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(Error::Call { code: NOT_READY, .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
