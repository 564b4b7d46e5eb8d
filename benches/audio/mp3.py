"""Decoding MP3 on one thread: wellfed, symphonia and soundfile, in turns.

    cargo build --locked --release -p wellfed-audio --example mp3
    python benches/audio/mp3.py [--rounds 7]

Files are 10 seconds at 44.1 kHz in stereo, as those of `loader.py`, with bit rates that vary and constant ones, and of
noise that sets in suddenly, for which encoders take short blocks. Each round has the least of 15 runs of each; what is
printed is the median of rounds, in milliseconds.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from fixtures import clicks
from loader import voice

PROGRAM = Path(__file__).parents[2] / "target/release/examples/mp3"
RATE, SECONDS, RUNS = 44_100, 10, 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    left, right = voice(SECONDS * RATE, RATE, rng), voice(SECONDS * RATE, RATE, rng)
    voices = np.stack([left, 0.5 * left + right], 1)
    struck = np.concatenate([clicks(RATE, 2, 0.5)] * 20)
    files: list[tuple[str, Any, dict[str, Any]]] = [
        ("variable", voices, {}),
        ("constant", voices, {"bitrate_mode": "CONSTANT", "compression_level": 0.6}),
        ("320 kbit/s", voices, {"bitrate_mode": "CONSTANT", "compression_level": 0.0}),
        ("clicks", struck, {}),
    ]
    with tempfile.TemporaryDirectory() as folder:
        for name, samples, more in files:
            path = Path(folder) / "sound.mp3"
            soundfile.write(path, samples, RATE, subtype="MPEG_LAYER_III", **more)
            times: dict[str, list[float]] = {"wellfed": [], "symphonia": [], "soundfile": []}
            for _ in range(options.rounds):
                run = subprocess.run([PROGRAM, path], capture_output=True, text=True, check=True)
                for who, milliseconds in re.findall(r"(\w+) ([\d.]+) ms", run.stdout):
                    times[who].append(float(milliseconds))
                least = float("inf")
                for _ in range(RUNS):
                    since = time.perf_counter()
                    soundfile.read(path, dtype="float32")
                    least = min(least, time.perf_counter() - since)
                times["soundfile"].append(1e3 * least)
            medians = ", ".join(f"{who} {statistics.median(each):.2f} ms" for who, each in times.items())
            kilobits = 8 * path.stat().st_size / SECONDS / 1000
            print(f"{name}, {kilobits:.0f} kbit/s: {medians}")


if __name__ == "__main__":
    main()
