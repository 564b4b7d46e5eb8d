"""Writes the small files of AAC and Opus, which soundfile cannot write, that `crates/wellfed-audio/tests` reads.

    python benches/audio/fixtures_ffmpeg.py

PyAV (ffmpeg, with libopus) writes and decodes them: AAC by ffmpeg, Opus by libopus, as it is in soundfile.
`ffmpeg.csv` is as `sounds.csv`, of which `fixtures.py` says more.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from fixtures import FOLDER, sound
from numpy.typing import NDArray

# Name, container, encoder, rate, channels, seconds, bits a second, and what else the encoder takes.
FILES: list[tuple[str, str, str, int, int, float, int, dict[str, str]]] = [
    ("mono.m4a", "ipod", "aac", 16_000, 1, 3.0, 32_000, {}),
    ("stereo.m4a", "ipod", "aac", 44_100, 2, 0.8, 96_000, {}),
    # Its noise is not left to the decoder, which may make any.
    ("no-pns.m4a", "ipod", "aac", 16_000, 1, 3.0, 32_000, {"aac_pns": "0"}),
    ("mono.aac", "adts", "aac", 22_050, 1, 0.8, 32_000, {}),
    ("silk.opus", "ogg", "libopus", 16_000, 1, 7.0, 12_000, {"application": "voip"}),
    ("hybrid.opus", "ogg", "libopus", 48_000, 1, 6.0, 24_000, {"application": "voip"}),
    ("celt.opus", "ogg", "libopus", 48_000, 2, 1.5, 96_000, {"application": "audio"}),
    ("short-packets.opus", "ogg", "libopus", 48_000, 1, 1.0, 64_000, {"frame_duration": "2.5"}),
    ("long-packets.opus", "ogg", "libopus", 24_000, 2, 5.0, 24_000, {"frame_duration": "60"}),
]


def write(
    path: Path, container: str, encoder: str, rate: int, channels: int, seconds: float, bits: int, more: Any
) -> None:
    """Encodes the sound of `fixtures.py`."""
    layout = {1: "mono", 2: "stereo"}[channels]
    values = sound(rate, channels, seconds)
    with av.open(str(path), "w", format=container) as file:
        stream = file.add_stream(encoder, rate=rate, layout=layout, options=more)
        stream.bit_rate = bits
        planar = stream.codec_context.format.name == "fltp"
        step = 1024 if planar else rate // 50
        for begin in range(0, len(values), step):
            part = values[begin : begin + step].astype(np.float32)
            if planar:
                frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(part.T), "fltp", layout)
            else:
                whole = np.clip(np.round(part * 32_767), -32_768, 32_767).astype(np.int16)
                frame = av.AudioFrame.from_ndarray(whole.reshape(1, -1), "s16", layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, begin, Fraction(1, rate)
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))


def decode(path: Path) -> tuple[int, NDArray[np.float32]]:
    """The rate, and samples as [frames, channels]."""
    with av.open(str(path)) as file:
        stream = file.streams.audio[0]
        if stream.codec_context.name != "opus":
            parts = [frame.to_ndarray().T for frame in file.decode(stream)]
            return stream.rate, np.concatenate(parts)
        # libopus' own decoder: ffmpeg's has other values, in the last bits of 16.
        decoder = av.CodecContext.create("libopus", "r")
        decoder.layout, decoder.sample_rate = stream.layout, 48_000
        decoder.extradata = stream.codec_context.extradata
        frames = [frame for packet in file.demux(stream) for frame in decoder.decode(packet)]
        whole = np.concatenate([frame.to_ndarray().reshape(-1, stream.channels) for frame in frames])
        return 48_000, whole.astype(np.float32) / 32_768


def main() -> None:
    lines = ["name,rate,channels,frames,reference,crc32"]
    for name, *arguments in FILES:
        path = FOLDER / name
        write(path, *arguments)
        if path.stat().st_size > 30_000:
            raise SystemExit(f"{name} has {path.stat().st_size} bytes")
        rate, decoded = decode(path)
        lines.append(f"{name},{rate},{decoded.shape[1]},{len(decoded)},near,0")
        ends = np.concatenate([decoded[:1_500], decoded[-1_500:]]).T
        (FOLDER / f"{name}.i16").write_bytes(
            np.clip(np.round(ends * 32_768), -32_768, 32_767).astype("<i2").tobytes()
        )
        print(name, path.stat().st_size, arguments[2] * arguments[4], decoded.shape)
    (FOLDER / "ffmpeg.csv").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
