//! nvJPEG's functions, found at run time, and what becomes of the statuses they return.

use std::{
    ffi::{c_int, c_uint, c_void},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    driver::Handle,
    error::{Error, Result},
    functions::functions,
    library::{Library, Loaded},
};

/// The oldest major version that is supported: that of CUDA 12.
const OLDEST_MAJOR: u32 = 12;

/// `nvjpegImage_t`: where the planes of an image lie, and the bytes of their rows.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawImage {
    pub(crate) channel: [u64; 4],
    pub(crate) pitch: [usize; 4],
}

/// Names of `nvjpegStatus_t`, from 0.
const STATUSES: [&str; 11] = [
    "NVJPEG_STATUS_SUCCESS",
    "NVJPEG_STATUS_NOT_INITIALIZED",
    "NVJPEG_STATUS_INVALID_PARAMETER",
    "NVJPEG_STATUS_BAD_JPEG",
    "NVJPEG_STATUS_JPEG_NOT_SUPPORTED",
    "NVJPEG_STATUS_ALLOCATOR_FAILURE",
    "NVJPEG_STATUS_EXECUTION_FAILED",
    "NVJPEG_STATUS_ARCH_MISMATCH",
    "NVJPEG_STATUS_INTERNAL_ERROR",
    "NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED",
    "NVJPEG_STATUS_INCOMPLETE_BITSTREAM",
];

/// What nvJPEG says of a stream, and not of itself: it is damaged, not supported, or incomplete.
pub(super) fn is_of_the_stream(error: &Error) -> bool {
    matches!(error, Error::Call { code: 3 | 4 | 10, .. })
}

functions! {
    /// nvJPEG's functions, by the names of their symbols.
    impl Nvjpeg;
    needed {
        property = "nvjpegGetProperty"(kind: c_int, value: *mut c_int);
        create = "nvjpegCreateEx"(backend: c_int, device_memory: *const c_void, pinned_memory: *const c_void, flags: c_uint,
            handle: *mut Handle);
        destroy = "nvjpegDestroy"(handle: Handle);
        state_create = "nvjpegJpegStateCreate"(handle: Handle, state: *mut Handle);
        state_destroy = "nvjpegJpegStateDestroy"(state: Handle);
        image_info = "nvjpegGetImageInfo"(handle: Handle, data: *const u8, bytes: usize, components: *mut c_int,
            subsampling: *mut c_int, widths: *mut c_int, heights: *mut c_int);
        stream_create = "nvjpegJpegStreamCreate"(handle: Handle, stream: *mut Handle);
        stream_destroy = "nvjpegJpegStreamDestroy"(stream: Handle);
        stream_parse_header = "nvjpegJpegStreamParseHeader"(handle: Handle, data: *const u8, bytes: usize, stream: Handle);
        batched_supported = "nvjpegDecodeBatchedSupported"(handle: Handle, stream: Handle, supported: *mut c_int);
        batched_initialize = "nvjpegDecodeBatchedInitialize"(handle: Handle, state: Handle, size: c_int, threads: c_int,
            format: c_int);
        batched_decode = "nvjpegDecodeBatched"(handle: Handle, state: Handle, data: *const *const u8, bytes: *const usize,
            images: *mut RawImage, stream: Handle);
    }
    plain {}
    optional {
        hardware_info, has_hardware_info = "nvjpegGetHardwareDecoderInfo"(handle: Handle, engines: *mut c_uint,
            cores: *mut c_uint);
    }
}

/// nvJPEG's library, loaded.
#[derive(Debug)]
pub struct Nvjpeg {
    functions: Functions,
    library: Loaded,
    version: (u32, u32, u32),
}

impl Nvjpeg {
    /// Finds nvJPEG: loaded by the framework already (torchvision brings it), in `site_packages` (folders of Python's
    /// packages), or on the system.
    ///
    /// # Errors
    /// [`Error::Library`]; [`Error::Symbol`] and [`Error::Argument`] of one that is too old.
    pub fn find(site_packages: &[PathBuf]) -> Result<Arc<Self>> {
        Self::new(Loaded::find(Library::Nvjpeg, site_packages)?)
    }

    /// The nvJPEG at `path`: for tests.
    ///
    /// # Errors
    /// As for [`Self::find`].
    pub fn load(path: &Path) -> Result<Arc<Self>> {
        Self::new(Loaded::load(Library::Nvjpeg, path)?)
    }

    fn new(library: Loaded) -> Result<Arc<Self>> {
        let mut this = Self { functions: Functions::find(&library)?, library, version: (0, 0, 0) };
        let property = |kind| {
            let mut value = 0;
            // SAFETY: `value` lives as long as the call.
            unsafe { this.property(kind, &mut value) }?;
            Ok(value.max(0).cast_unsigned())
        };
        this.version = (property(0)?, property(1)?, property(2)?);
        if this.version.0 < OLDEST_MAJOR {
            return Err(Error::Argument(format!(
                "{} is nvJPEG {}.{}, and {OLDEST_MAJOR} or later is needed\nhint: {}",
                this.path(),
                this.version.0,
                this.version.1,
                Library::Nvjpeg.hint()
            )));
        }
        Ok(Arc::new(this))
    }

    /// Its version: major (that of CUDA), minor, patch.
    pub fn version(&self) -> (u32, u32, u32) {
        self.version
    }

    /// Where it lies, or the name by which it was found.
    pub fn path(&self) -> &str {
        self.library.path()
    }

    /// Turns a status into a result.
    fn check(&self, call: &'static str, code: u32) -> Result<()> {
        if code == 0 {
            return Ok(());
        }
        let name =
            STATUSES.get(code as usize).map_or_else(|| format!("status {code}"), |&name| name.to_owned());
        let text = match code {
            3 => "the stream is damaged",
            4 => "the stream is of a kind that is not supported",
            5 => "memory is missing",
            6 => "the driver or a kernel failed",
            7 => "the device has not what it takes",
            10 => "the stream is incomplete",
            _ => "nvJPEG refused the call",
        };
        Err(Error::Call { call, code, name, text: text.to_owned() })
    }
}
