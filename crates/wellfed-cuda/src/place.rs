//! Where kernels run: on a device or on the host, so that what launches them is written once.

use std::{ops::Range, sync::Arc};

use crate::{
    device::Device,
    error::{Error, Result},
    host::{Grid, Kernel},
    memory::{DeviceBuffer, check_range},
    module::Module,
    stream::Stream,
};

/// Where kernels run, and in which order.
#[derive(Clone, Debug)]
pub enum Place {
    /// On the host: what is launched is done when the launch returns.
    Host,
    /// On a device: what is launched is submitted to the stream.
    Device {
        /// The kernels.
        module: Arc<Module>,
        /// Their order.
        stream: Arc<Stream>,
    },
}

impl Place {
    /// A device by its number, with a stream of its own.
    ///
    /// # Errors
    /// Those of [`Device::open`], [`Module::load`] and [`Stream::new`].
    pub fn device(ordinal: u32) -> Result<Self> {
        Self::on(&Device::open(ordinal)?)
    }

    /// This device, with a stream of its own.
    ///
    /// # Errors
    /// Those of [`Module::load`] and [`Stream::new`].
    pub fn on(device: &Arc<Device>) -> Result<Self> {
        Ok(Self::Device {
            module: Arc::new(Module::load(device)?),
            stream: Arc::new(Stream::new(device, 0)?),
        })
    }

    /// The same place, with another order.
    ///
    /// # Errors
    /// [`Error::Argument`] on the host, and with another device's stream.
    pub fn in_stream(&self, stream: Arc<Stream>) -> Result<Self> {
        match self {
            Place::Device { module, .. } if module.device().ordinal() == stream.device().ordinal() => {
                Ok(Self::Device { module: Arc::clone(module), stream })
            }
            Place::Device { module, .. } => Err(Error::Argument(format!(
                "kernels of CUDA device {} cannot run in a stream of device {}",
                module.device().ordinal(),
                stream.device().ordinal()
            ))),
            Place::Host => Err(Error::Argument("the host has no streams".to_owned())),
        }
    }

    /// Launches a kernel in blocks of `threads` threads (on the host: of one). A grid without blocks is nothing to do.
    ///
    /// # Errors
    /// [`Error::NoKernel`], and those of [`Kernel::check`], on both sides alike; the driver's.
    ///
    /// # Safety
    /// `args` are what the kernel takes; its pointers are to memory of this place, valid for what it reads and writes
    /// until the stream has passed the launch.
    pub unsafe fn launch<T: Copy>(&self, kernel: &str, grid: Grid, threads: u32, args: &T) -> Result<()> {
        match self {
            Place::Host => {
                let kernel =
                    Kernel::find(kernel).ok_or_else(|| Error::NoKernel { name: kernel.to_owned() })?;
                kernel.check::<T>(grid, threads)?;
                // SAFETY: the caller's promise.
                unsafe { kernel.launch(args, grid) };
                Ok(())
            }
            // SAFETY: the caller's promise; the stream is of the module's device.
            Place::Device { module, stream } => unsafe {
                module.launch(kernel, grid, threads, args, stream.handle())
            },
        }
    }

    /// Takes memory. What it holds at first is anything.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::new`].
    pub fn buffer(&self, bytes: usize) -> Result<Buffer> {
        Ok(match self {
            Place::Host => Buffer::Host(HostBuffer::new(bytes)),
            Place::Device { stream, .. } => Buffer::Device(DeviceBuffer::new(stream, bytes)?),
        })
    }

    /// Takes memory for a copy of `bytes`.
    ///
    /// # Errors
    /// Those of [`Self::buffer`], and the driver's.
    pub fn buffer_of(&self, bytes: &[u8]) -> Result<Buffer> {
        let mut buffer = self.buffer(bytes.len())?;
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Waits until all that was launched is done.
    ///
    /// # Errors
    /// The driver's, also of work that failed.
    pub fn synchronize(&self) -> Result<()> {
        match self {
            Place::Host => Ok(()),
            Place::Device { stream, .. } => stream.synchronize(),
        }
    }
}

/// Bytes that memory is aligned to, on a device at least.
const ALIGNMENT: usize = 256;

/// Memory of a [`Place`].
#[derive(Debug)]
pub enum Buffer {
    /// The host's.
    Host(HostBuffer),
    /// A device's.
    Device(DeviceBuffer),
}

/// Memory of the host, aligned as a device's.
#[derive(Debug)]
pub struct HostBuffer {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl HostBuffer {
    fn new(bytes: usize) -> Self {
        // Not zeros, on which a kernel's test might rely.
        let memory = vec![0xCD; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, bytes }
    }

    fn range(&self, offset: usize, bytes: usize) -> Result<Range<usize>> {
        check_range(offset, bytes, self.bytes)?;
        Ok(self.start + offset..self.start + offset + bytes)
    }
}

impl Buffer {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        match self {
            Buffer::Host(buffer) => buffer.bytes,
            Buffer::Device(buffer) => buffer.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address, for the arguments of kernels; aligned to 256 bytes.
    pub fn pointer(&mut self) -> u64 {
        match self {
            Buffer::Host(buffer) => buffer.memory[buffer.start..].as_mut_ptr().expose_provenance() as u64,
            Buffer::Device(buffer) => buffer.pointer(),
        }
    }

    /// Copies bytes to it, from `offset` on.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::write`].
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result<()> {
        match self {
            Buffer::Host(buffer) => {
                let range = buffer.range(offset, from.len())?;
                buffer.memory[range].copy_from_slice(from);
                Ok(())
            }
            Buffer::Device(buffer) => {
                let stream = Arc::clone(buffer.stream());
                buffer.write(offset, from, &stream)
            }
        }
    }

    /// Copies bytes from it, from `offset` on, after what was launched in its place.
    ///
    /// # Errors
    /// Those of [`DeviceBuffer::read`].
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<()> {
        match self {
            Buffer::Host(buffer) => {
                to.copy_from_slice(&buffer.memory[buffer.range(offset, to.len())?]);
                Ok(())
            }
            Buffer::Device(buffer) => buffer.read(offset, to, buffer.stream()),
        }
    }
}
