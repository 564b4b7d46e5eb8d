"""Sounds that tests write, and what they are when they are read."""

from __future__ import annotations

import pathlib
import wave

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def write(path: pathlib.Path, samples: npt.NDArray[np.int16], rate: int = 8000) -> pathlib.Path:
    """Writes 16-bit samples ``[channels, frames]``."""
    with wave.open(str(path), "wb") as file:
        file.setparams((len(samples), 2, rate, 0, "NONE", ""))
        file.writeframes(np.ascontiguousarray(samples.T).astype("<i2").tobytes())
    return path


def noise(seed: int, channels: int, frames: int) -> npt.NDArray[np.int16]:
    return np.random.default_rng(seed).integers(-20000, 20000, (channels, frames)).astype(np.int16)


def floats(samples: npt.NDArray[np.int16]) -> Floats:
    return samples.astype(np.float32) / np.float32(32768)
