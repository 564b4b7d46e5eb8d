//! `_native.FinishPlan`: finishes images on a device, or on the host, as wellfed-cuda plans it.
//!
//! Memory is the framework's, and comes as addresses: of the host's in [`FinishPlan::new`], of the device's in
//! [`FinishPlan::run`]. The module `wellfed.torch._left` is the only caller, and keeps what they belong to.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use pyo3::{exceptions::PyRuntimeError, prelude::*};
use wellfed::ErrorKind;
use wellfed_cuda::{
    augment::Output,
    device::Device,
    finish::{Decoded, Encoded, Places, Plan, Shape},
    mix::{Blend, Images},
    module::Module,
    nvjpeg::{self, Nvjpeg, Planes},
    place::Place,
    stream::{Event, Stream},
};

use wellfed_kernels::{
    image::{Dtype, Layout},
    points::PointMap,
};

use crate::{augment::AugmentPlan, enter};

/// How a batch is finished.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct FinishPlan {
    plan: Plan,
    /// The records on the host, and how many bytes they are.
    host: (usize, usize),
}

/// The kernels on each device that was asked for. They stay until the process ends.
pub(crate) fn module(ordinal: u32) -> wellfed_cuda::Result<Arc<Module>> {
    static MODULES: Mutex<Option<HashMap<u32, Arc<Module>>>> = Mutex::new(None);
    let mut modules = MODULES.lock().unwrap_or_else(PoisonError::into_inner);
    let modules = modules.get_or_insert_default();
    if let Some(module) = modules.get(&ordinal) {
        return Ok(Arc::clone(module));
    }
    let module = Arc::new(Module::load(&Device::open(ordinal)?)?);
    modules.insert(ordinal, Arc::clone(&module));
    Ok(module)
}

/// nvJPEG on one device, and its sessions that no call is using. They stay until the process ends.
struct Opened {
    decoder: Arc<nvjpeg::Decoder>,
    free: Vec<Used>,
}

/// A session, and when what it was last used for is over: in this stream after this event.
struct Used {
    session: nvjpeg::Session,
    stream: u64,
    over: Event,
}

/// nvJPEG on each device that it was opened on.
static OPENED: Mutex<Option<HashMap<u32, Opened>>> = Mutex::new(None);

/// Who decodes, how many engines and cores of each it has if it is hardware, and where the library lies.
type Engines = (&'static str, Option<(u32, u32)>, String);

/// Opens nvJPEG on CUDA device `device`, for the plans that need it: what decodes, and where the library lies. The
/// folders of Python's packages are `site_packages`.
#[pyfunction]
pub(crate) fn open_nvjpeg(py: Python<'_>, device: u32, site_packages: Vec<PathBuf>) -> PyResult<Engines> {
    run(py, move || {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = opened.get_or_insert_default();
        if let std::collections::hash_map::Entry::Vacant(entry) = opened.entry(device) {
            let library = Nvjpeg::find(&site_packages)?;
            let decoder = nvjpeg::Decoder::new(&library, &Device::open(device)?, nvjpeg::Options::default())?;
            entry.insert(Opened { decoder, free: Vec::new() });
        }
        let decoder = &opened[&device].decoder;
        Ok((decoder.engine().name(), decoder.hardware(), decoder.nvjpeg().path().to_owned()))
    })
}

/// Runs `work` with a session of device `ordinal`, for `stream`.
fn with_session<T>(
    ordinal: u32,
    stream: &Stream,
    work: impl FnOnce(&mut nvjpeg::Session) -> wellfed_cuda::Result<T>,
) -> wellfed_cuda::Result<T> {
    let lock = || OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = {
        let mut opened = lock();
        let opened = opened.get_or_insert_default().get_mut(&ordinal).ok_or_else(|| {
            wellfed_cuda::Error::Argument(format!("nvJPEG was not opened on CUDA device {ordinal}"))
        })?;
        // One that this stream used needs no wait.
        let own = opened.free.iter().position(|used| used.stream == stream.handle());
        match own.map(|at| opened.free.swap_remove(at)).or_else(|| opened.free.pop()) {
            Some(used) => Err(used),
            None => Ok(opened.decoder.session()?),
        }
    };
    let mut session = match taken {
        Ok(session) => session,
        Err(used) => {
            if used.stream != stream.handle() {
                used.over.synchronize()?;
            }
            used.session
        }
    };
    let done = work(&mut session);
    let over = Event::new(stream.device())?;
    over.record(stream)?;
    if let Some(opened) = lock().get_or_insert_default().get_mut(&ordinal) {
        opened.free.push(Used { session, stream: stream.handle(), over });
    }
    done
}

/// Has nvJPEG decode JPEGs among `records` into the scratch memory, and the CPU those that it does not take: how many.
fn decode(
    encoded: &[Encoded],
    records: &[u8],
    scratch: u64,
    ordinal: u32,
    stream: &Stream,
) -> wellfed_cuda::Result<usize> {
    let jpegs: Vec<&[u8]> = encoded.iter().map(|one| &records[one.bytes.clone()]).collect();
    let planes: Vec<Planes> = encoded
        .iter()
        .map(|one| {
            let plane = one.pitch as u64 * u64::from(one.height);
            Planes {
                pointers: [0, 1, 2].map(|c| scratch + one.at + c * plane),
                pitch: one.pitch,
                width: one.width,
                height: one.height,
            }
        })
        .collect();
    with_session(ordinal, stream, |session| {
        // SAFETY: the plan laid the planes out in the scratch memory, and the caller keeps it and the records until its
        // stream has passed.
        unsafe { nvjpeg::decode_all(session, &jpegs, &planes, stream) }
    })
}

/// CUDA device `device` in the order of its stream `stream`, which is the caller's current one; the host without a device.
pub(crate) fn place(device: Option<u32>, stream: u64) -> wellfed_cuda::Result<Place> {
    let Some(ordinal) = device else { return Ok(Place::Host) };
    let module = module(ordinal)?;
    // SAFETY: the caller names a stream of this device that is its current one.
    let stream = Arc::new(unsafe { Stream::borrowed(module.device(), stream) });
    Ok(Place::Device { module, stream })
}

/// Runs `work` without the interpreter; its errors become RuntimeErrors.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> wellfed_cuda::Result<T> + Send,
) -> PyResult<T> {
    let mut failed = None;
    let done = enter::quick(py, || {
        work().map_err(|error| {
            failed = Some(error.to_string());
            wellfed::Error::new(ErrorKind::Internal, "a device failed")
        })
    });
    done.map_err(|error| failed.map_or(error, PyRuntimeError::new_err))
}

/// Mixes finished images at `address`, `count` of `size` (channels, height, width), in the order of stream `stream` of CUDA
/// device `device`, or before this returns on the host: `lam` and `corners` are those of a blend.
#[pyfunction]
#[allow(clippy::too_many_arguments, reason = "what a batch is and where it lies")]
pub(crate) fn mix_images(
    py: Python<'_>,
    device: Option<u32>,
    stream: u64,
    address: u64,
    count: usize,
    size: [usize; 3],
    dtype: &str,
    channels_first: bool,
    lam: f64,
    corners: Option<[usize; 4]>,
) -> PyResult<()> {
    let dtype = element(dtype)
        .ok_or_else(|| PyRuntimeError::new_err(format!("images of {dtype} are not mixed on devices")))?;
    let layout = if channels_first { Layout::Chw } else { Layout::Hwc };
    let blend = corners.map_or(Blend::Sum(lam), Blend::Box);
    run(py, || {
        let place = place(device, stream)?;
        let Some(launch) = (Images { address, count, size, dtype, layout }).launch(blend)? else {
            return Ok(());
        };
        // SAFETY: the caller holds so many images there.
        unsafe { place.launch(launch.name, launch.grid, launch.threads, &launch.args) }
    })
}

/// The type of this name, if images may be of it.
pub(crate) fn element(dtype: &str) -> Option<Dtype> {
    match dtype {
        "uint8" => Some(Dtype::U8),
        "float16" => Some(Dtype::F16),
        "bfloat16" => Some(Dtype::Bf16),
        "float32" => Some(Dtype::F32),
        _ => None,
    }
}

#[pymethods]
impl FinishPlan {
    /// Plans a batch of `count` records, `nbytes` at `records`, whose offsets are at `offsets`: both are the host's memory,
    /// of which the records are written to. Of scratch memory no more than `limit` bytes are used, or what one image takes.
    #[new]
    fn new(
        py: Python<'_>,
        records: usize,
        nbytes: usize,
        offsets: usize,
        count: usize,
        limit: u64,
    ) -> PyResult<Self> {
        run(py, || {
            // SAFETY: the caller holds a batch of the engine: so many bytes, which nobody else looks at, and one offset
            // more than it has images.
            let (records, offsets) = unsafe {
                (
                    std::slice::from_raw_parts_mut(
                        std::ptr::with_exposed_provenance_mut::<u8>(records),
                        nbytes,
                    ),
                    std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<i64>(offsets), count + 1),
                )
            };
            let host = (records.as_ptr().expose_provenance(), records.len());
            Ok(Self { plan: Plan::new(records, offsets, limit)?, host })
        })
    }

    /// Bytes of scratch memory.
    #[getter]
    fn scratch(&self) -> u64 {
        self.plan.scratch()
    }

    /// Images that the host decoded or that were pixels, that the kernels decode, and that nvJPEG is asked to.
    #[getter]
    fn decoded(&self) -> (usize, usize, usize) {
        let Decoded { host, device, nvjpeg } = self.plan.decoded();
        (host, device, nvjpeg)
    }

    /// Channels, rows and columns of 8-bit images in between, where more follows for images that end with so many
    /// `channels`: then [`FinishPlan::run`] makes those.
    fn between(&self, channels: usize) -> Option<[usize; 3]> {
        self.plan.between(channels)
    }

    /// Plans what follows: from images in between at `address` to finished ones at `output`, of `size` (channels, height,
    /// width) and elements by `table`, of 256 numbers of 32 bits a channel.
    #[allow(clippy::too_many_arguments, reason = "what a batch is and where it lies")]
    fn after(
        &self,
        address: u64,
        output: u64,
        size: [usize; 3],
        dtype: &str,
        channels_first: bool,
        table: &[u8],
    ) -> PyResult<AugmentPlan> {
        let [channels, height, width] = size;
        let (words, rest) = table.as_chunks::<4>();
        let words: Vec<u32> = words.iter().map(|word| u32::from_ne_bytes(*word)).collect();
        let map = element(dtype)
            .filter(|_| rest.is_empty())
            .and_then(|dtype| PointMap::of_bits(dtype, &words))
            .filter(|map| map.channels() == channels)
            .ok_or_else(|| {
                let bytes = table.len();
                PyRuntimeError::new_err(format!("a table of {bytes} bytes for {channels} channels"))
            })?;
        let layout = if channels_first { Layout::Chw } else { Layout::Hwc };
        let output = Output { address: output, map: &map, layout, height, width };
        let plan = self.plan.after(address, output).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        Ok(AugmentPlan { plan })
    }

    /// Submits the work to a stream of CUDA device `device`; None is the host, where it is done when this returns. Says how
    /// many images nvJPEG did not take, which the CPU decoded.
    #[allow(clippy::too_many_arguments, reason = "what a batch is and where it lies")]
    fn run(
        &self,
        py: Python<'_>,
        device: Option<u32>,
        stream: u64,
        records: u64,
        offsets: u64,
        scratch: u64,
        table: u64,
        out: u64,
        channels: u32,
        element: u32,
        step: [i64; 4],
    ) -> PyResult<usize> {
        let places = Places { records, offsets, scratch, table, out };
        let shape = Shape { channels, element, step };
        run(py, || {
            let place = place(device, stream)?;
            // SAFETY: the caller still holds the batch that the plan was made of.
            let host = unsafe {
                std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(self.host.0), self.host.1)
            };
            let mut refused = 0;
            self.plan.run(
                places,
                shape,
                |encoded| match (&place, device) {
                    (Place::Device { stream, .. }, Some(ordinal)) => {
                        refused += decode(encoded, host, scratch, ordinal, stream)?;
                        Ok(())
                    }
                    _ => Err(wellfed_cuda::Error::Argument("nvJPEG decodes on a device only".to_owned())),
                },
                |kernel, grid, threads, args| {
                    // SAFETY: the plan was made of these records, and the caller holds memory as large as it says.
                    unsafe { place.launch(kernel, grid, threads, args) }
                },
            )?;
            Ok(refused)
        })
    }
}
