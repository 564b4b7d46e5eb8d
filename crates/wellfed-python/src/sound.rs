//! `_native.Sound`: an audio file whose samples are written where the caller has room for them; and Whisper's log-mel of samples in memory.

use pyo3::{exceptions::PyValueError, prelude::*, types::PyBytes};
use wellfed::{Error, ErrorKind};
use wellfed_audio::{Head, Limits, Scratch, Segment, Waveform, whisper::WhisperLogMel};

use crate::{enter, error::to_python};

/// Samples of an audio file, or of a part of it.
#[pyclass(frozen, module = "wellfed._native")]
pub(crate) struct Sound(Waveform);

/// Codec, sample rate, channels, frames, bits of a sample.
type About = (&'static str, u32, u32, Option<u64>, Option<u32>);

#[pymethods]
impl Sound {
    /// What the file in `data` says of itself: codec, sample rate in Hz, channels, frames and bits of a sample, the last two as far as it
    /// says them. None for bytes that are no sound.
    #[staticmethod]
    fn head(data: &[u8]) -> Option<About> {
        // Not through the gateway: the head takes less time than to let go of the interpreter.
        let head = Head::parse(data, &Limits::default()).ok()?;
        Some((head.codec, head.sample_rate, head.channels, head.frames, head.bits_per_sample))
    }

    /// Decodes the frames of the file in `data` from `offset` on: `frames` of them, or all.
    #[staticmethod]
    #[pyo3(signature = (data, offset=0, frames=None))]
    fn decode(py: Python<'_>, data: &Bound<'_, PyBytes>, offset: u64, frames: Option<u64>) -> PyResult<Self> {
        let bytes = data.as_bytes();
        enter::quick(py, || {
            wellfed_audio::decode(bytes, Segment { offset, frames }, &Limits::default())
                .map_err(|e| Error::new(ErrorKind::Corrupt, e.message()))
        })
        .map(Self)
    }

    /// Frames a second, Hz.
    #[getter]
    fn sample_rate(&self) -> u32 {
        self.0.sample_rate
    }

    /// Channels and frames.
    #[getter]
    fn shape(&self) -> (usize, usize) {
        (self.0.channels.len(), self.0.frames())
    }

    /// Writes the samples to the memory of `size` bytes at `address`, which is known to nobody but the caller: as "float32" or "float64"
    /// from -1 to 1, or as "int16", channel after channel, or with `interleaved` frame after frame.
    fn write(
        &self,
        py: Python<'_>,
        address: usize,
        size: usize,
        dtype: &str,
        interleaved: bool,
    ) -> PyResult<()> {
        let (channels, frames) = self.shape();
        let bytes = match dtype {
            "float32" => 4,
            "float64" => 8,
            "int16" => 2,
            _ => return Err(to_python(py, &Error::config(format!("dtype is {dtype}")))),
        };
        let wanted = channels * frames * bytes;
        if address == 0 || !address.is_multiple_of(bytes) || size != wanted {
            return Err(PyValueError::new_err(format!("{size} bytes at {address:#x} cannot take {wanted}")));
        }
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the one caller, `wellfed._accelerate`, gives the memory of an array that it has just made and holds on to, and its
        // size. Written in place, as a copy would take as long as decoding does of PCM.
        let slot = unsafe { std::slice::from_raw_parts_mut(start, size) };
        enter::quick(py, || {
            match bytes {
                4 => self.fill(slot, interleaved, f32::to_ne_bytes),
                8 => self.fill(slot, interleaved, |value| f64::from(value).to_ne_bytes()),
                // Exact for samples of up to 16 bits, which these were.
                _ => self.fill(slot, interleaved, |value| ((value * 32_768.0) as i16).to_ne_bytes()),
            }
            Ok(())
        })
    }
}

/// Writes Whisper's log-mel of waveforms of float32 of the `shape` (rows, samples), one after the other at `waveforms`, to the memory of `size`
/// bytes at `output`, which is known to nobody but the caller: `n_mels` by `samples / 160` float32 each.
#[pyfunction]
pub(crate) fn whisper_log_mel(
    py: Python<'_>,
    waveforms: usize,
    shape: (usize, usize),
    n_mels: usize,
    output: usize,
    size: usize,
) -> PyResult<()> {
    let (rows, samples) = shape;
    let made = WhisperLogMel::new(n_mels).map_err(|e| Error::config(e.message()));
    let transform = made.map_err(|e| to_python(py, &e))?;
    let each = n_mels * transform.frames(samples);
    let aligned = waveforms.is_multiple_of(4) && output.is_multiple_of(4) && waveforms != 0 && output != 0;
    let (read, written) = (rows.checked_mul(samples), rows.checked_mul(each));
    let (Some(read), Some(written)) = (read, written.filter(|values| values.checked_mul(4) == Some(size)))
    else {
        return Err(PyValueError::new_err(format!("{size} bytes cannot take {rows} x {each} float32")));
    };
    if !aligned || samples == 0 || each == 0 {
        return Err(PyValueError::new_err(format!("{samples} samples at {waveforms:#x} are no waveforms")));
    }
    // SAFETY: the one caller, `wellfed.torch._lower.extractors`, gives the memory of two arrays of that many float32, which it has just
    // made and holds on to.
    let (input, output) = unsafe {
        (
            std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<f32>(waveforms), read),
            std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut::<f32>(output), written),
        )
    };
    enter::quick(py, || {
        let mut scratch = Scratch::default();
        for (waveform, out) in input.chunks_exact(samples).zip(output.chunks_exact_mut(each)) {
            transform
                .fill(waveform, &mut scratch, out)
                .map_err(|e| Error::new(ErrorKind::Shape, e.message()))?;
        }
        Ok(())
    })
}

impl Sound {
    fn fill<const BYTES: usize>(
        &self,
        slot: &mut [u8],
        interleaved: bool,
        element: impl Fn(f32) -> [u8; BYTES],
    ) {
        let channels = &self.0.channels;
        if channels.is_empty() || self.0.frames() == 0 {
            return;
        }
        if interleaved {
            for (number, channel) in channels.iter().enumerate() {
                let places = slot.chunks_exact_mut(BYTES).skip(number).step_by(channels.len());
                places.zip(channel).for_each(|(place, value)| place.copy_from_slice(&element(*value)));
            }
        } else {
            let rows = slot.chunks_exact_mut(BYTES * self.0.frames());
            for (row, channel) in rows.zip(channels) {
                let places = row.chunks_exact_mut(BYTES);
                places.zip(channel).for_each(|(place, value)| place.copy_from_slice(&element(*value)));
            }
        }
    }
}
