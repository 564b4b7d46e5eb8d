//! `_native.Picture`: an encoded image that is decoded when its pixels are asked for; `_native.SeenRows`: what is known of
//! images that were decoded before; `_native.jpeg_head`.

use std::{cell::RefCell, sync::Arc};

use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use wellfed::{
    codec::{self, Mode},
    engine::{self, Form, Single, SingleScratch},
    transform::{ColorStep, Interpolation, Rect},
};

use crate::{enter, error::to_python, leaves, loader};

thread_local! {
    /// What one image leaves to the next of the same thread.
    static SCRATCH: RefCell<SingleScratch> = RefCell::default();
}

/// What the values of a tensor are, of an image with 1 or 3 channels.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Values(engine::Values);

#[pymethods]
impl Values {
    /// Those of torchvision's `ToTensor` with `divide`, else of `ToDtype(float32, scale=True)`; then normalized if there
    /// are a mean and a standard deviation.
    #[new]
    #[pyo3(signature = (channels, divide, mean=None, std=None))]
    fn new(
        py: Python<'_>,
        channels: usize,
        divide: bool,
        mean: Option<Vec<f32>>,
        std: Option<Vec<f32>>,
    ) -> PyResult<Self> {
        engine::Values::new(channels, divide, mean.zip(std)).map(Self).map_err(|e| to_python(py, &e))
    }

    /// Writes those of the pixels in `data` to the memory of `size` bytes at `address`, as `Picture.write_tensor` does.
    fn write(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyBytes>,
        width: usize,
        height: usize,
        address: usize,
        size: usize,
    ) -> PyResult<()> {
        let pixels = data.as_bytes();
        if address == 0 || !address.is_multiple_of(4) || pixels.len().checked_mul(4) != Some(size) {
            let given = pixels.len();
            return Err(PyValueError::new_err(format!(
                "{size} bytes at {address:#x} cannot take {given} values"
            )));
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: as in `Picture::write_tensor`.
        let slot = unsafe { std::slice::from_raw_parts_mut(start, size) };
        enter::quick(py, || self.0.write(pixels, height, width, slot))
    }
}

/// Row indexes of images, in memory that forked children share.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct SeenRows(Arc<engine::SeenRows>);

#[pymethods]
impl SeenRows {
    /// At most so many bytes of them; None where the system shares no memory.
    #[staticmethod]
    fn make(limit: usize) -> Option<Self> {
        engine::SeenRows::new(limit).map(|rows| Self(Arc::new(rows)))
    }

    /// Those of another process, by a descriptor that becomes this call's.
    #[staticmethod]
    #[cfg(unix)]
    fn attach(py: Python<'_>, descriptor: i32) -> PyResult<Self> {
        let rows = engine::SeenRows::attach(&leaves::file(descriptor)).map_err(|e| to_python(py, &e))?;
        Ok(Self(Arc::new(rows)))
    }

    /// The descriptor of the memory, which stays this object's; None in processes that attached to it.
    #[cfg(unix)]
    fn fileno(&self) -> Option<i32> {
        self.0.file().map(std::os::fd::AsRawFd::as_raw_fd)
    }

    /// What all processes recorded and used together, as JSON.
    fn stats(&self, py: Python<'_>) -> PyResult<String> {
        loader::text(py, &self.0.stats())
    }
}

/// Of a plain JPEG that begins with `data`, whose head Pillow takes without a word: width, height, number of components,
/// bytes of the head. None for others.
#[pyfunction]
pub(crate) fn jpeg_head(data: &[u8]) -> Option<(usize, usize, usize, usize)> {
    codec::jpeg_head(data).map(|head| (head.width, head.height, head.components, head.len))
}

/// Pillow's filter of a number, as its `Resampling` counts.
fn filter(number: u8) -> Option<Interpolation> {
    Some(match number {
        0 => Interpolation::Nearest,
        1 => Interpolation::Lanczos,
        2 => Interpolation::Bilinear,
        3 => Interpolation::Bicubic,
        _ => return None,
    })
}

/// A file's bytes and what is to be done to its image. Never changes: each step gives another one, or None if it cannot
/// be remembered exactly.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Picture {
    bytes: Py<PyBytes>,
    single: Single,
    rows: Option<Arc<engine::SeenRows>>,
}

impl Picture {
    fn then(&self, py: Python<'_>, single: Option<Single>) -> Option<Self> {
        Some(Self { bytes: self.bytes.clone_ref(py), single: single?, rows: self.rows.clone() })
    }

    fn render(&self, py: Python<'_>, form: Form<'_>, slot: &mut [u8]) -> PyResult<()> {
        let bytes = self.bytes.bind(py).as_bytes();
        let rows = self.rows.as_deref();
        enter::quick(py, || {
            SCRATCH.with_borrow_mut(|scratch| self.single.render(bytes, form, rows, scratch, slot))
        })
    }
}

#[pymethods]
impl Picture {
    /// All of the image in `data`, in mode "L" or "RGB"; None if Pillow may not decode it without an error. What `rows` know
    /// of it is used, and what is found out is added.
    #[staticmethod]
    #[pyo3(signature = (data, mode, rows=None))]
    fn open(
        py: Python<'_>,
        data: &Bound<'_, PyBytes>,
        mode: &str,
        rows: Option<&SeenRows>,
    ) -> PyResult<Option<Self>> {
        let mode = match mode {
            "RGB" => Mode::Rgb,
            "L" => Mode::L,
            _ => return Ok(None),
        };
        // Not through the gateway: the header takes less time than to let go of the interpreter.
        let single = Single::open(data.as_bytes(), mode).map_err(|e| to_python(py, &e))?;
        let rows = rows.map(|rows| rows.0.clone());
        Ok(single.map(|single| Self { bytes: data.clone().unbind(), single, rows }))
    }

    /// Width and height.
    #[getter]
    fn size(&self) -> (usize, usize) {
        let (height, width) = self.single.size();
        (width, height)
    }

    /// Decodes a JPEG at a half, a quarter or an eighth of its size, as Pillow's `draft` has it.
    fn draft(&self, py: Python<'_>, by: usize) -> Option<Self> {
        self.then(py, self.single.draft(self.bytes.bind(py).as_bytes(), by))
    }

    /// Keeps a box.
    fn crop(&self, py: Python<'_>, left: usize, top: usize, right: usize, bottom: usize) -> Option<Self> {
        let part = Rect { top, left, height: bottom.checked_sub(top)?, width: right.checked_sub(left)? };
        self.then(py, self.single.crop(part))
    }

    /// Resamples with Pillow's filter of this number.
    fn resize(&self, py: Python<'_>, width: usize, height: usize, resample: u8) -> Option<Self> {
        self.then(py, self.single.resize(height, width, filter(resample)?))
    }

    /// Resamples a part, `(left, top, right, bottom)`, with Pillow's filter of this number.
    fn resize_box(
        &self,
        py: Python<'_>,
        width: usize,
        height: usize,
        resample: u8,
        part: (f32, f32, f32, f32),
    ) -> Option<Self> {
        self.then(py, self.single.resize_box(height, width, filter(resample)?, part))
    }

    /// Adds borders of one colour.
    fn pad(&self, py: Python<'_>, borders: (usize, usize, usize, usize), fill: [u8; 3]) -> Option<Self> {
        let (left, top, right, bottom) = borders;
        self.then(py, self.single.pad(left, top, right, bottom, fill))
    }

    /// Changes colours: brightness (0), contrast (1) or saturation (2) by a factor, hue (3) by a part of the circle.
    fn adjust(&self, py: Python<'_>, what: u8, by: f64) -> Option<Self> {
        let step = match what {
            0 => ColorStep::Brightness(by),
            1 => ColorStep::Contrast(by),
            2 => ColorStep::Saturation(by),
            3 => ColorStep::Hue(by),
            _ => return None,
        };
        self.then(py, self.single.adjust(step))
    }

    /// Does what Pillow's `transpose` of this number does.
    fn transpose(&self, py: Python<'_>, method: u8) -> Option<Self> {
        let single = match method {
            0 => self.single.flip(true, false),
            1 => self.single.flip(false, true),
            2 => self.single.turn(8),
            3 => self.single.flip(true, true),
            4 => self.single.turn(6),
            5 => self.single.turn(5),
            6 => self.single.turn(7),
            _ => None,
        };
        self.then(py, single)
    }

    /// The pixels: uint8, rows from top to bottom, channels next to each other.
    fn pixels<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.single.len(Form::Bytes), |slot| self.render(py, Form::Bytes, slot))
    }

    /// Writes the pixels, as `pixels` has them, to the memory of `size` bytes at `address`, which is known to nobody but the
    /// caller.
    fn write_pixels(&self, py: Python<'_>, address: usize, size: usize) -> PyResult<()> {
        let form = Form::Bytes;
        if address == 0 || size != self.single.len(form) {
            let wanted = self.single.len(form);
            return Err(PyValueError::new_err(format!("{size} bytes at {address:#x} cannot take {wanted}")));
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: as in `write_tensor`.
        let slot = unsafe { std::slice::from_raw_parts_mut(start, size) };
        self.render(py, form, slot)
    }

    /// Writes the pixels as `values` says to the memory of `size` bytes at `address`: float32 [channels, height,
    /// width], contiguous, and known to nobody but the caller. By its address, since a tensor that NumPy has seen cannot
    /// be resized any more, as those of torchvision can.
    fn write_tensor(&self, py: Python<'_>, address: usize, size: usize, values: &Values) -> PyResult<()> {
        let form = Form::Tensor(&values.0);
        if address == 0 || !address.is_multiple_of(4) || size != self.single.len(form) {
            let wanted = self.single.len(form);
            return Err(PyValueError::new_err(format!("{size} bytes at {address:#x} cannot take {wanted}")));
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the one caller, `wellfed._accelerate`, gives the memory of a tensor that it has just made and holds on
        // to, and its size. Written in place, as a copy of 600 KB would take a fifth of what the call takes.
        let slot = unsafe { std::slice::from_raw_parts_mut(start, size) };
        self.render(py, form, slot)
    }
}
