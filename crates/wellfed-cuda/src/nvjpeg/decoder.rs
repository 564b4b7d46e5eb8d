//! Batches of JPEGs, decoded by one of nvJPEG's engines into planes of red, green and blue.

use std::{ffi::c_int, ptr, sync::Arc};

use super::{
    head::{Head, Refusal},
    library::{Nvjpeg, RawImage, is_of_the_stream},
};
use crate::{
    device::Device,
    driver::Handle,
    error::{Error, Result},
    stream::Stream,
};

/// `NVJPEG_OUTPUT_RGB`: three planes.
const PLANES: c_int = 3;
/// `NVJPEG_FLAGS_BITSTREAM_STRICT`: what is incomplete is an error, and not grey.
const STRICT: u32 = 1 << 2;
/// `NVJPEG_FLAGS_UPSAMPLING_WITH_INTERPOLATION`.
const INTERPOLATE: u32 = 1 << 5;

/// Who decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The device's own decoder of JPEGs, which some have (A100, H100): takes sequential ones with one scan.
    Hardware,
    /// The device's cores; in batches of more than 50 images also for Huffman codes.
    GpuHybrid,
    /// Huffman codes on the host, the rest on the device's cores.
    Hybrid,
}

impl Engine {
    /// Its name, for reports.
    pub fn name(self) -> &'static str {
        match self {
            Engine::Hardware => "hardware",
            Engine::GpuHybrid => "gpu-hybrid",
            Engine::Hybrid => "hybrid",
        }
    }

    /// Its `nvjpegBackend_t`.
    fn backend(self) -> c_int {
        match self {
            Engine::Hardware => 3,
            Engine::GpuHybrid => 2,
            Engine::Hybrid => 1,
        }
    }
}

/// How a [`Decoder`] decodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The engine; `None`: the hardware's if there is one, else [`Engine::Hybrid`].
    pub engine: Option<Engine>,
    /// Chroma is interpolated, nearly as libjpeg-turbo does, and not repeated.
    pub interpolate: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { engine: None, interpolate: true }
    }
}

/// nvJPEG on one device by one engine. Threads share it, each with a [`Session`] of its own.
#[derive(Debug)]
pub struct Decoder {
    nvjpeg: Arc<Nvjpeg>,
    device: Arc<Device>,
    raw: Handle,
    engine: Engine,
    hardware: Option<(u32, u32)>,
    no_hardware: Option<Error>,
}

impl Decoder {
    /// Opens an engine.
    ///
    /// # Errors
    /// nvJPEG's: of `Engine::Hardware` on a device without one `NVJPEG_STATUS_ARCH_MISMATCH`, for example.
    pub fn new(nvjpeg: &Arc<Nvjpeg>, device: &Arc<Device>, options: Options) -> Result<Arc<Self>> {
        let open = |engine| Self::open(nvjpeg, device, engine, options.interpolate);
        if let Some(engine) = options.engine {
            return open(engine).map(Arc::new);
        }
        open(Engine::Hardware).map(Arc::new).or_else(|error| {
            let mut decoder = open(Engine::Hybrid)?;
            decoder.no_hardware = Some(error);
            Ok(Arc::new(decoder))
        })
    }

    fn open(nvjpeg: &Arc<Nvjpeg>, device: &Arc<Device>, engine: Engine, interpolate: bool) -> Result<Self> {
        let _entered = device.enter()?;
        let flags = if interpolate { STRICT | INTERPOLATE } else { STRICT };
        let mut raw = 0;
        // SAFETY: without allocators nvJPEG takes its own; `raw` lives as long as the call.
        unsafe { nvjpeg.create(engine.backend(), ptr::null(), ptr::null(), flags, &mut raw) }?;
        let (nvjpeg, device) = (Arc::clone(nvjpeg), Arc::clone(device));
        let mut this = Self { nvjpeg, device, raw, engine, hardware: None, no_hardware: None };
        if engine == Engine::Hardware && this.nvjpeg.has_hardware_info() {
            let (mut engines, mut cores) = (0, 0);
            // SAFETY: the handle was made above, and both numbers live as long as the call.
            unsafe { this.nvjpeg.hardware_info(raw, &mut engines, &mut cores) }?;
            if engines == 0 {
                return Err(Error::Argument(format!(
                    "{} has no engine that decodes JPEGs",
                    this.device.name()
                )));
            }
            this.hardware = Some((engines, cores));
        }
        Ok(this)
    }

    /// The engine that decodes.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// How many engines the hardware has, and how many cores each, if it is [`Engine::Hardware`] that decodes, and nvJPEG
    /// is new enough to tell.
    pub fn hardware(&self) -> Option<(u32, u32)> {
        self.hardware
    }

    /// Why it is not the hardware that decodes, where that was tried.
    pub fn no_hardware(&self) -> Option<&Error> {
        self.no_hardware.as_ref()
    }

    /// nvJPEG.
    pub fn nvjpeg(&self) -> &Arc<Nvjpeg> {
        &self.nvjpeg
    }

    /// What one batch after another is decoded with. For batches that overlap, take several.
    ///
    /// # Errors
    /// nvJPEG's.
    pub fn session(self: &Arc<Self>) -> Result<Session> {
        let _entered = self.device.enter()?;
        let mut session = Session { decoder: Arc::clone(self), state: 0, parsed: 0, size: 0 };
        // SAFETY: the handle lives as long as `self`, which the session holds.
        unsafe { self.nvjpeg.state_create(self.raw, &mut session.state) }?;
        // SAFETY: as above.
        unsafe { self.nvjpeg.stream_create(self.raw, &mut session.parsed) }?;
        Ok(session)
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: `open` made it, and sessions hold the decoder.
        self.device.on_drop(|_| unsafe { self.nvjpeg.destroy(self.raw) });
    }
}

/// Where an image goes: three planes of bytes on the device, red, green and blue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Where each plane begins.
    pub pointers: [u64; 3],
    /// Bytes from one row to the next, of each plane.
    pub pitch: usize,
    /// Pixels in a row: the image's.
    pub width: u32,
    /// Rows: the image's.
    pub height: u32,
}

/// Decodes batches, one at a time.
#[derive(Debug)]
pub struct Session {
    decoder: Arc<Decoder>,
    state: Handle,
    /// An `nvjpegJpegStream_t`, for headers.
    parsed: Handle,
    /// The size of batches that the state is made for.
    size: usize,
}

impl Session {
    /// The decoder.
    pub fn decoder(&self) -> &Arc<Decoder> {
        &self.decoder
    }

    /// Reads the header of a JPEG, on the host.
    ///
    /// # Errors
    /// nvJPEG's, but those that are about the JPEG: they are the refusal.
    pub fn look(&mut self, jpeg: &[u8]) -> Result<Result<Head, Refusal>> {
        let head = match Head::read(jpeg) {
            Ok(head) => head,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Decoder { nvjpeg, raw, engine, .. } = &*self.decoder;
        let (data, bytes) = (jpeg.as_ptr(), jpeg.len());
        let (mut components, mut subsampling, mut widths, mut heights, mut refused) =
            (0, 0, [0; 4], [0; 4], 0);
        let _entered = self.decoder.device.enter()?;
        let mut tell = || {
            let (widths, heights) = (widths.as_mut_ptr(), heights.as_mut_ptr());
            // SAFETY: handles and numbers live; widths and heights are NVJPEG_MAX_COMPONENT, which is 4, numbers.
            unsafe {
                nvjpeg.image_info(*raw, data, bytes, &mut components, &mut subsampling, widths, heights)
            }?;
            // The other engines take all that `Head` does.
            if *engine == Engine::Hardware {
                // SAFETY: as above; the stream keeps nothing of `jpeg` but its headers.
                unsafe { nvjpeg.stream_parse_header(*raw, data, bytes, self.parsed) }?;
                // SAFETY: as above. It gives 0 of what is supported.
                unsafe { nvjpeg.batched_supported(*raw, self.parsed, &mut refused) }?;
            }
            Ok(())
        };
        match tell() {
            Err(error) if is_of_the_stream(&error) => return Ok(Err(refusal(&error))),
            other => other?,
        }
        // Planes are as large as our reading of the header says: nvJPEG must not write another size.
        let same = (i64::from(widths[0]), i64::from(heights[0])) == (head.width.into(), head.height.into());
        Ok(match refused {
            _ if !same => Err(Refusal::Size),
            0 => Ok(head),
            _ => Err(Refusal::Engine),
        })
    }

    /// Submits to `stream` that JPEGs are decoded into planes, and tells of each whether it is: those that are not are left
    /// as they were, or half-written if it was nvJPEG that failed. Not all damage is seen: engines decode what they can.
    ///
    /// # Errors
    /// [`Error::Argument`] if planes are not of their image's size, or lists differ in length; nvJPEG's, but those that
    /// are about a JPEG.
    ///
    /// # Safety
    /// The planes are memory of this device, `pitch` times `height` bytes each from its pointer on; they and the JPEGs
    /// stay, and nobody changes them or looks at the planes, until `stream` has passed the decoding.
    pub unsafe fn decode(
        &mut self,
        jpegs: &[&[u8]],
        planes: &[Planes],
        stream: &Stream,
    ) -> Result<Vec<Result<(), Refusal>>> {
        if jpegs.len() != planes.len() {
            return Err(Error::Argument(format!("{} JPEGs have {} places", jpegs.len(), planes.len())));
        }
        if stream.device().ordinal() != self.decoder.device.ordinal() {
            return Err(Error::Argument(format!(
                "nvJPEG of CUDA device {} cannot decode in a stream of device {}",
                self.decoder.device.ordinal(),
                stream.device().ordinal()
            )));
        }
        let mut outcomes = Vec::with_capacity(jpegs.len());
        let mut batch = Batch::default();
        for (index, (&jpeg, planes)) in jpegs.iter().zip(planes).enumerate() {
            let looked = self.look(jpeg)?;
            if let Ok(head) = looked {
                batch.push(index, jpeg, planes, head)?;
            }
            outcomes.push(looked.map(drop));
        }
        if batch.indices.is_empty() {
            return Ok(outcomes);
        }
        let device = Arc::clone(&self.decoder.device);
        let _entered = device.enter()?;
        // SAFETY: the caller's promise.
        match unsafe { self.submit(&mut batch, stream) } {
            // It is not told which one: each by itself.
            Err(error) if is_of_the_stream(&error) => {
                for mut one in batch.split() {
                    // SAFETY: the caller's promise.
                    match unsafe { self.submit(&mut one, stream) } {
                        Err(error) if is_of_the_stream(&error) => {
                            outcomes[one.indices[0]] = Err(refusal(&error))
                        }
                        other => other?,
                    }
                }
            }
            other => other?,
        }
        Ok(outcomes)
    }

    /// Decodes a batch.
    ///
    /// # Safety
    /// As for [`Self::decode`], of the batch.
    unsafe fn submit(&mut self, batch: &mut Batch, stream: &Stream) -> Result<()> {
        let Decoder { nvjpeg, raw, .. } = &*self.decoder;
        let size = batch.indices.len();
        if self.size != size {
            let count =
                c_int::try_from(size).map_err(|_| Error::Argument(format!("a batch of {size} JPEGs")))?;
            // Not the size of either, if it fails.
            self.size = 0;
            // SAFETY: both handles live.
            unsafe { nvjpeg.batched_initialize(*raw, self.state, count, 1, PLANES) }?;
            self.size = size;
        }
        let (data, bytes, images) = (batch.data.as_ptr(), batch.bytes.as_ptr(), batch.images.as_mut_ptr());
        // SAFETY: the handles live, and the state is made for as many images as the lists have; the rest is the caller's
        // promise.
        unsafe { nvjpeg.batched_decode(*raw, self.state, data, bytes, images, stream.handle()) }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let nvjpeg = &self.decoder.nvjpeg;
        self.decoder.device.on_drop(|_| {
            if self.parsed != 0 {
                // SAFETY: `session` made it, and the decoder lives.
                unsafe { nvjpeg.stream_destroy(self.parsed) }?;
            }
            if self.state != 0 {
                // SAFETY: as above.
                unsafe { nvjpeg.state_destroy(self.state) }?;
            }
            Ok(())
        });
    }
}

/// Images that are decoded together, as nvJPEG takes them: one list of each thing.
#[derive(Default)]
struct Batch {
    /// Which of the caller's images they are.
    indices: Vec<usize>,
    data: Vec<*const u8>,
    bytes: Vec<usize>,
    images: Vec<RawImage>,
}

impl Batch {
    fn push(&mut self, index: usize, jpeg: &[u8], planes: &Planes, head: Head) -> Result<()> {
        let &Planes { pointers: [red, green, blue], pitch, width, height } = planes;
        if (width, height) != (head.width, head.height) || pitch < width as usize {
            return Err(Error::Argument(format!(
                "JPEG {index} has {} x {} pixels, and its planes {width} x {height} in rows of {pitch} bytes",
                head.width, head.height
            )));
        }
        self.indices.push(index);
        self.data.push(jpeg.as_ptr());
        self.bytes.push(jpeg.len());
        self.images.push(RawImage { channel: [red, green, blue, 0], pitch: [pitch, pitch, pitch, 0] });
        Ok(())
    }

    /// Each image as a batch.
    fn split(self) -> impl Iterator<Item = Self> {
        let lists = self.data.into_iter().zip(self.bytes).zip(self.images);
        self.indices.into_iter().zip(lists).map(|(index, ((data, bytes), image))| Self {
            indices: vec![index],
            data: vec![data],
            bytes: vec![bytes],
            images: vec![image],
        })
    }
}

fn refusal(error: &Error) -> Refusal {
    match error {
        Error::Call { name, .. } => Refusal::Status(name.clone()),
        other => Refusal::Status(other.to_string()),
    }
}
