"""Writes the small sound files and reference values that `crates/wellfed-audio/tests` reads.

    python benches/audio/fixtures.py

Files are written by soundfile (libsndfile, with LAME for MP3 and libvorbis), and decoded by soundfile (with mpg123 and
libvorbis). `sounds.csv` has a line a file: its name, rate, channels, frames, kind of reference, and the CRC-32 of the
reference's little-endian samples, channel by channel: as integers of 32 bits (`int32`) or floating-point numbers
(`float32`). Of lossy codecs (`near`) the first and the last 1,500 frames are kept, channel by channel, as little-endian
integers of 16 bits. ADPCM has no reference: symphonia rounds otherwise than libsndfile.

`tests/mp3` has MP3 files that the library's decoder is the reference for: of every rate, with clicks in them, before
which encoders change to short blocks.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

FOLDER = Path(__file__).parents[2] / "crates/wellfed-audio/tests/sounds"
MP3 = FOLDER.parent / "mp3"


def sound(rate: int, channels: int, seconds: float) -> NDArray[np.float64]:
    """Tones that move, noise that comes and goes, and a click; each channel another."""
    time = np.arange(int(rate * seconds)) / rate
    noise = np.random.default_rng(7).standard_normal((time.size, channels))
    values = np.zeros((time.size, channels))
    for channel in range(channels):
        tone = np.sin(2 * np.pi * (220 * (channel + 1) + 300 * time) * time)
        values[:, channel] = 0.5 * tone * np.cos(3 * time) + 0.05 * noise[:, channel] * (
            np.sin(11 * time) > 0
        )
    values[time.size // 3] = 0.95
    return values


def clicks(rate: int, channels: int, seconds: float) -> NDArray[np.float64]:
    """Noise that sets in suddenly and fades, silence, and a tone; the second channel has most of the first."""
    time = np.arange(int(rate * seconds)) / rate
    noise = np.random.default_rng(11).standard_normal((time.size, channels))
    values = 0.02 * noise + 0.3 * np.sin(2 * np.pi * 330 * time)[:, None]
    for begin in range(time.size // 7, time.size, time.size // 5):
        length = min(rate // 40, time.size - begin)
        fade = np.exp(-np.arange(length) / (rate / 300))
        values[begin : begin + length] += 0.9 * noise[begin : begin + length] * fade[:, None]
    values[time.size * 3 // 5 : time.size * 7 // 10] = 0
    if channels == 2:
        values[:, 1] = 0.8 * values[:, 0] + 0.2 * values[:, 1]
    return np.clip(values, -1, 1)


# Name, rate, channels, seconds, whether the bit rate varies, and 0 (most bits) to 1 (fewest).
CLICKS: list[tuple[str, int, int, float, str, float]] = [
    ("48k.mp3", 48_000, 2, 0.3, "VARIABLE", 0.3),
    ("44k.mp3", 44_100, 2, 0.18, "CONSTANT", 0.0),
    ("44k-average.mp3", 44_100, 2, 0.27, "AVERAGE", 0.5),
    ("32k.mp3", 32_000, 1, 0.5, "VARIABLE", 0.2),
    ("24k.mp3", 24_000, 2, 0.6, "VARIABLE", 0.4),
    ("22k.mp3", 22_050, 1, 0.4, "CONSTANT", 0.0),
    ("12k.mp3", 12_000, 2, 1.0, "CONSTANT", 0.6),
    ("11k.mp3", 11_025, 1, 1.0, "VARIABLE", 0.3),
    ("8k.mp3", 8_000, 2, 1.2, "AVERAGE", 0.4),
]


# Name, format, subtype, rate, channels, seconds, kind of reference, and what else the writer takes.
FILES: list[tuple[str, str, str, int, int, float, str, dict[str, Any]]] = [
    ("u8.wav", "WAV", "PCM_U8", 8_000, 1, 0.5, "int32", {}),
    ("s16.wav", "WAV", "PCM_16", 16_000, 2, 0.3, "int32", {}),
    ("s24.wav", "WAV", "PCM_24", 8_000, 2, 0.4, "int32", {}),
    ("s32.wav", "WAV", "PCM_32", 8_000, 1, 0.6, "float32", {}),
    ("f32.wav", "WAV", "FLOAT", 8_000, 2, 0.3, "float32", {}),
    ("f64.wav", "WAV", "DOUBLE", 8_000, 1, 0.3, "float32", {}),
    ("alaw.wav", "WAV", "ALAW", 8_000, 2, 1.0, "int32", {}),
    ("ulaw.wav", "WAV", "ULAW", 8_000, 1, 1.0, "int32", {}),
    ("extensible-s24.wav", "WAVEX", "PCM_24", 8_000, 6, 0.15, "int32", {}),
    ("extensible-f32.wav", "WAVEX", "FLOAT", 8_000, 3, 0.2, "float32", {}),
    ("ima.wav", "WAV", "IMA_ADPCM", 8_000, 1, 1.5, "none", {}),
    ("ms.wav", "WAV", "MS_ADPCM", 8_000, 2, 1.0, "none", {}),
    ("s8.aiff", "AIFF", "PCM_S8", 8_000, 1, 0.5, "int32", {}),
    ("s16.aiff", "AIFF", "PCM_16", 11_025, 2, 0.3, "int32", {}),
    ("s24.aiff", "AIFF", "PCM_24", 8_000, 2, 0.3, "int32", {}),
    ("s32.aiff", "AIFF", "PCM_32", 8_000, 1, 0.5, "float32", {}),
    ("f32.aiff", "AIFF", "FLOAT", 8_000, 1, 0.5, "float32", {}),
    ("little-s16.aiff", "AIFF", "PCM_16", 8_000, 1, 0.5, "int32", {"endian": "LITTLE"}),
    ("ulaw.aiff", "AIFF", "ULAW", 8_000, 1, 1.0, "int32", {}),
    ("s16.flac", "FLAC", "PCM_16", 16_000, 2, 0.4, "int32", {}),
    ("s24.flac", "FLAC", "PCM_24", 8_000, 1, 0.9, "int32", {}),
    ("long-s16.flac", "FLAC", "PCM_16", 8_000, 1, 1.8, "int32", {}),
    ("mono.ogg", "OGG", "VORBIS", 16_000, 1, 3.0, "near", {"compression_level": 0.9}),
    ("stereo.ogg", "OGG", "VORBIS", 44_100, 2, 1.0, "near", {"compression_level": 0.9}),
    (
        "cbr-8k.mp3",
        "MP3",
        "MPEG_LAYER_III",
        8_000,
        1,
        5.0,
        "near",
        {"bitrate_mode": "CONSTANT", "compression_level": 0.9},
    ),
    (
        "cbr-16k.mp3",
        "MP3",
        "MPEG_LAYER_III",
        16_000,
        1,
        3.0,
        "near",
        {"bitrate_mode": "CONSTANT", "compression_level": 0.9},
    ),
    (
        "vbr-16k.mp3",
        "MP3",
        "MPEG_LAYER_III",
        16_000,
        2,
        2.5,
        "near",
        {"bitrate_mode": "VARIABLE", "compression_level": 0.9},
    ),
    (
        "cbr-44k.mp3",
        "MP3",
        "MPEG_LAYER_III",
        44_100,
        2,
        1.3,
        "near",
        {"bitrate_mode": "CONSTANT", "compression_level": 0.9},
    ),
    (
        "vbr-48k.mp3",
        "MP3",
        "MPEG_LAYER_III",
        48_000,
        1,
        1.3,
        "near",
        {"bitrate_mode": "VARIABLE", "compression_level": 0.9},
    ),
]


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    lines = ["name,rate,channels,frames,reference,crc32"]
    for name, form, subtype, rate, channels, seconds, kind, more in FILES:
        path, values = FOLDER / name, sound(rate, channels, seconds)
        soundfile.write(path, values, rate, subtype=subtype, format=form, **more)
        if path.stat().st_size > 30_000:
            raise SystemExit(f"{name} has {path.stat().st_size} bytes")
        decoded, _ = soundfile.read(path, dtype="int32" if kind == "int32" else "float32", always_2d=True)
        crc = zlib.crc32(np.ascontiguousarray(decoded.T).tobytes())
        lines.append(f"{name},{rate},{channels},{len(decoded)},{kind},{crc}")
        if kind == "near":
            ends = np.concatenate([decoded[:1_500], decoded[-1_500:]]).T
            (FOLDER / f"{name}.i16").write_bytes(
                np.clip(np.round(ends * 32_768), -32_768, 32_767).astype("<i2").tobytes()
            )
        print(name, path.stat().st_size, len(values), len(decoded))
    (FOLDER / "sounds.csv").write_text("\n".join(lines) + "\n")
    write_clicks()


def write_clicks() -> None:
    MP3.mkdir(parents=True, exist_ok=True)
    for name, rate, channels, seconds, mode, level in CLICKS:
        soundfile.write(
            MP3 / name,
            clicks(rate, channels, seconds),
            rate,
            format="MP3",
            subtype="MPEG_LAYER_III",
            bitrate_mode=mode,
            compression_level=level,
        )
        print(name, (MP3 / name).stat().st_size)


if __name__ == "__main__":
    main()
