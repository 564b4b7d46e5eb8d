"""Photo-like JPEG files in learnable classes, generated: no download, no licence, the same for everybody.

What matters to a loader is kept close to ImageNet: the mix of sizes (mean about 468x401), the bytes per
pixel (about 0.6), the mix of JPEG qualities and chroma subsamplings, a few grayscale files. What matters to
a model is a surface (bricks, fur, water, ...) that fills most of the picture, so that its class survives
`RandomResizedCrop`; light, colour, scale, background and noise vary freely. An image depends only on the
seed and its number, so any part of the set can be made on any number of threads.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

Plane = npt.NDArray[Any]
"""One float32 value per pixel, height x width."""
Color = tuple[float, float, float]
"""Red, green and blue, 0..1."""

VERSION = 1
"""Goes up when the same seed gives other files, so that an older set is made anew."""
TILE = 1024
"""Side of the noise tiles, pixels; larger than any window an image takes from one."""

SIZES = (
    # (width, height, weight): what ImageNet's photographs mostly are
    (500, 375, 40),
    (375, 500, 14),
    (500, 333, 14),
    (333, 500, 6),
    (500, 500, 4),
    (500, 400, 4),
    (400, 300, 4),
    (640, 480, 4),
    (480, 360, 3),
    (320, 240, 3),
    (250, 200, 2),
    (800, 600, 1),
    (600, 900, 1),
)


SPECTRA = ((1.9, 1.0), (1.5, 1.0), (1.2, 1.0), (0.9, 1.0), (1.1, 7.0), (0.9, 12.0), (2.8, 1.0))
"""Each noise tile's fall of amplitude with frequency, and how far it is stretched along y."""
SMOOTH = 6
BACKGROUNDS: tuple[tuple[Color, Color], ...] = (
    # (above, below): sky over grass, a wall, leaves, sand, dusk, a room, stone, earth, snow
    ((0.62, 0.75, 0.88), (0.36, 0.45, 0.22)),
    ((0.72, 0.69, 0.64), (0.50, 0.45, 0.40)),
    ((0.22, 0.31, 0.16), (0.32, 0.36, 0.20)),
    ((0.78, 0.80, 0.80), (0.72, 0.62, 0.46)),
    ((0.42, 0.40, 0.50), (0.20, 0.18, 0.20)),
    ((0.34, 0.26, 0.20), (0.52, 0.40, 0.28)),
    ((0.46, 0.47, 0.48), (0.34, 0.33, 0.31)),
    ((0.28, 0.34, 0.30), (0.36, 0.27, 0.20)),
    ((0.55, 0.62, 0.70), (0.85, 0.87, 0.90)),
)


@cache
def _tiles(seed: int) -> tuple[Plane, ...]:
    """Periodic noise tiles with zero mean and unit spread, one for each entry of `SPECTRA`.

    Filtered in the frequency domain: amplitude 1/f^slope, the spectrum of natural scenes for slope 1.
    """
    frequency = np.fft.fftfreq(TILE).astype(np.float32) * TILE
    y, x = frequency[:, None], frequency[None, : TILE // 2 + 1]
    tiles = []
    for k, (slope, squeeze) in enumerate(SPECTRA):
        white = np.random.default_rng([seed, 1, k]).standard_normal((TILE, TILE), dtype=np.float32)
        radius = np.maximum(np.hypot(y * squeeze, x), 2.0)
        tile = np.fft.irfft2(np.fft.rfft2(white) * radius**-slope, s=(TILE, TILE)).astype(np.float32)
        tiles.append((tile - tile.mean()) / tile.std())
    return tuple(tiles)


class _Scene:
    """The random draws and coordinates of one image that all surfaces share."""

    def __init__(self, rng: np.random.Generator, seed: int, height: int, width: int) -> None:
        self.rng, self.height, self.width = rng, height, width
        self.tiles = _tiles(seed)
        y = np.arange(height, dtype=np.float32)[:, None]
        x = np.arange(width, dtype=np.float32)[None, :]
        self.y, self.x = y / height, x / width
        angle = rng.uniform(-0.35, 0.35)
        # The same surface seen from nearer or farther: a period of 22 to 48 pixels, with some perspective.
        period = rng.uniform(22, 48) * math.sqrt(width * height / 187_000)
        far = 1 + rng.uniform(0.0, 0.7) * (1 - self.y)
        warp = rng.uniform(0.10, 0.3)
        self.u = (x * math.cos(angle) + y * math.sin(angle)) / period * far + warp * self.noise(1)
        self.v = (y * math.cos(angle) - x * math.sin(angle)) / period * far + warp * self.noise(1)

    def noise(self, tile: int, turn: bool = False) -> Plane:
        """A random window of a noise tile, mirrored at random, turned by 90 degrees if asked for."""
        field = self.tiles[tile].T if turn else self.tiles[tile]
        top = int(self.rng.integers(0, TILE - self.height + 1))
        left = int(self.rng.integers(0, TILE - self.width + 1))
        window = field[top : top + self.height, left : left + self.width]
        return window[:: self.rng.choice((-1, 1)), :: self.rng.choice((-1, 1))]


def _step(value: Plane, low: float, high: float) -> Plane:
    """A smooth step from 0 at `low` to 1 at `high`."""
    t = np.clip((value - low) / (high - low), 0, 1)
    stepped: Plane = t * t * (3 - 2 * t)
    return stepped


def _hash(a: Plane, b: Plane) -> Plane:
    """A value in 0..1 for each pair of whole numbers, the same wherever the pair occurs."""
    mixed: Plane = np.sin(a * np.float32(12.9898) + b * np.float32(78.233)) * np.float32(437.5453)
    return mixed - np.floor(mixed)


def _bricks(s: _Scene) -> Plane:
    row = np.floor(s.v)
    along = s.u * 0.45 + 0.5 * (row % 2)
    column = np.floor(along)
    edge = np.minimum(
        np.minimum(along - column, column + 1 - along) * 2.2, np.minimum(s.v - row, row + 1 - s.v)
    )
    face = 0.55 + 0.4 * (_hash(row, column) - 0.5) + 0.12 * s.noise(3)
    mortar = _step(edge, 0.04, 0.11)
    return face * mortar + (1 - mortar) * (1.0 + 0.05 * s.noise(3))


def _clouds(s: _Scene) -> Plane:
    return _step(s.noise(0) * 0.8 + s.noise(1) * 0.3 + s.rng.uniform(-0.2, 0.4), -1.2, 1.3)


def _foliage(s: _Scene) -> Plane:
    bend, turn = 1.6 * s.noise(1), 1.6 * s.noise(1)
    leaves: Plane = np.abs(np.sin(2.9 * s.u + bend) * np.sin(2.9 * s.v + turn)) * (0.75 + 0.2 * s.noise(1))
    return np.clip(leaves + 0.1 * s.noise(2) + 0.08 * s.noise(3), 0, 1)


def _fur(s: _Scene) -> Plane:
    return np.clip(0.5 + 0.19 * s.noise(5) + 0.13 * s.noise(4) + 0.08 * s.noise(0), 0, 1)


def _honeycomb(s: _Scene) -> Plane:
    third = np.float32(2 * math.pi / 3)
    waves = [
        np.cos(np.float32(5.2) * (s.u * math.cos(k * third) + s.v * math.sin(k * third))) for k in range(3)
    ]
    return _step(waves[0] + waves[1] + waves[2], -1.1, 0.4) * (0.85 + 0.1 * s.noise(3))


def _leopard(s: _Scene) -> Plane:
    row = np.floor(s.v)
    shift = s.u + 0.5 * (row % 2)
    column = np.floor(shift)
    dx = shift - column - 0.5 + 0.35 * (_hash(row, column) - 0.5)
    dy = s.v - row - 0.5 + 0.35 * (_hash(column, row) - 0.5)
    distance = np.hypot(dx, dy) + 0.07 * s.noise(2)
    spot = _step(distance, 0.2, 0.13) * 0.45 + _step(np.abs(distance - 0.3), 0.1, 0.05)
    return np.clip(0.85 - spot + 0.07 * s.noise(5), 0, 1)


def _marble(s: _Scene) -> Plane:
    vein = np.abs(np.sin(0.55 * s.u + 0.25 * s.v + 1.9 * s.noise(0) + 0.45 * s.noise(1)))
    return np.clip(np.sqrt(vein) * 0.85 + 0.12 + 0.05 * s.noise(2), 0, 1)


def _water(s: _Scene) -> Plane:
    swell = np.sin(2.6 * s.v + 1.2 * s.noise(4, turn=True)) * 0.25
    swell += s.noise(4, turn=True) * 0.17 + s.noise(5, turn=True) * 0.1
    return np.clip(0.45 + swell, 0, 1)


def _wood(s: _Scene) -> Plane:
    along = 0.12 * s.u + s.rng.uniform(-1, 1)
    rings = np.sin(5.5 * np.hypot(s.v * 0.55 + 0.3 * s.noise(4, turn=True), along))
    return np.clip(0.55 + 0.2 * rings + 0.12 * s.noise(5, turn=True), 0, 1)


def _zebra(s: _Scene) -> Plane:
    return _step(
        np.sin(3.3 * s.u + 1.3 * s.noise(1) + 0.9 * np.sin(0.8 * s.v)), -0.16, 0.16
    ) * 0.92 + 0.02 * s.noise(5)


Surface = Callable[[_Scene], Plane]
CLASSES: dict[str, tuple[Surface, Color, Color]] = {
    # name: (its pattern, 0..1; the colour at 0; the colour at 1)
    "bricks": (_bricks, (0.42, 0.16, 0.11), (0.78, 0.70, 0.64)),
    "clouds": (_clouds, (0.28, 0.50, 0.80), (0.97, 0.97, 0.99)),
    "foliage": (_foliage, (0.06, 0.15, 0.04), (0.48, 0.66, 0.20)),
    "fur": (_fur, (0.20, 0.12, 0.07), (0.78, 0.60, 0.42)),
    "honeycomb": (_honeycomb, (0.35, 0.18, 0.03), (0.95, 0.68, 0.18)),
    "leopard": (_leopard, (0.10, 0.07, 0.05), (0.88, 0.68, 0.38)),
    "marble": (_marble, (0.36, 0.36, 0.40), (0.93, 0.91, 0.89)),
    "water": (_water, (0.03, 0.18, 0.26), (0.62, 0.82, 0.86)),
    "wood": (_wood, (0.26, 0.13, 0.06), (0.76, 0.54, 0.32)),
    "zebra": (_zebra, (0.07, 0.07, 0.08), (0.93, 0.91, 0.86)),
}


def _vary(rng: np.random.Generator, color: Color, by: float) -> npt.NDArray[Any]:
    """The colour in another light: a shift of all channels together and of each by itself."""
    shifted = np.array(color) + rng.normal(0, by) + rng.normal(0, by * 0.6, 3)
    return np.clip(shifted, 0, 1).astype(np.float32)


def _paint(s: _Scene, name: str) -> npt.NDArray[Any]:
    """Height x width x 3, about 0..1: the class's surface before some background, in some light."""
    rng = s.rng  # its scalars are Python floats, which leave float32 arrays float32
    surface, dark, bright = CLASSES[name]
    pattern = surface(s)[..., None]
    low, high = _vary(rng, dark, 0.06), _vary(rng, bright, 0.08)
    image: npt.NDArray[Any] = low + (high - low) * pattern

    # A body with a soft, irregular outline stands out of a blurred background of any colour.
    cy, cx = rng.uniform(0.35, 0.65), rng.uniform(0.35, 0.65)
    ry, rx = rng.uniform(0.42, 0.75), rng.uniform(0.42, 0.75)
    outline = np.hypot((s.y - cy) / ry, (s.x - cx) / rx) + 0.14 * s.noise(SMOOTH)
    sharp = rng.uniform(0.01, 0.06)
    body = _step(outline, 1 + sharp, 1 - sharp)
    above, below = (_vary(rng, color, 0.06) for color in BACKGROUNDS[rng.integers(len(BACKGROUNDS))])
    horizon = rng.uniform(0.2, 0.8)
    mix = _step(s.y + 0.05 * s.noise(SMOOTH), horizon - rng.uniform(0.02, 0.4), horizon + 0.02)[..., None]
    behind = above + (below - above) * mix + (0.05 * s.noise(SMOOTH) + 0.04 * s.noise(0))[..., None]
    behind += rng.uniform(0.0, 0.05) * s.noise(2)[..., None]
    image = behind + (image - behind) * body[..., None]
    image *= (1 - 0.35 * np.exp(-(((outline - 1.03) / 0.07) ** 2)) * (1 - body))[..., None]  # its shadow

    angle = rng.uniform(0, 2 * math.pi)
    light = 1 + rng.uniform(0.1, 0.4) * ((s.x - 0.5) * math.cos(angle) + (s.y - 0.5) * math.sin(angle))
    light += 0.09 * s.noise(0) - rng.uniform(0.1, 0.45) * ((s.x - 0.5) ** 2 + (s.y - 0.5) ** 2)
    warmth = 1 + rng.normal(0, 0.05, 3).astype(np.float32)
    image *= (light * rng.uniform(0.8, 1.15))[..., None] * warmth
    return image


def _photo(seed: int, number: int, name: str) -> tuple[Image.Image, dict[str, Any]]:
    """One image and the options it is to be saved with."""
    rng = np.random.default_rng([seed, 2, number])
    weights = np.array([w for *_, w in SIZES], dtype=float)
    width, height, _ = SIZES[rng.choice(len(SIZES), p=weights / weights.sum())]
    if rng.random() < 0.25:  # a quarter was cropped by hand to some odd size
        width, height = (max(96, int(n * rng.uniform(0.75, 1.2))) for n in (width, height))
    scene = _Scene(rng, seed, min(height, TILE), min(width, TILE))
    image = _paint(scene, name)
    image += (rng.gamma(2.0, 0.019) * rng.standard_normal(image.shape[:2], dtype=np.float32))[
        ..., None
    ]  # film grain
    pixels = np.clip(image * 255, 0, 255).astype(np.uint8)
    photo = Image.fromarray(pixels)
    if rng.random() < 0.01:
        photo = photo.convert("L")
    quality = int(rng.choice((75, 85, 90, 92, 95, 96), p=(0.06, 0.10, 0.17, 0.2, 0.27, 0.2)))
    options: dict[str, Any] = {"quality": quality}
    if photo.mode == "RGB":
        options["subsampling"] = "4:2:0" if rng.random() < 0.7 else "4:4:4"
    return photo, options


def _report(done: int, total: int) -> None:
    """Progress on standard error: one moving line on a terminal, a line a quarter elsewhere."""
    if sys.stderr.isatty():
        filled = 30 * done // total
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r  photographs [{'#' * filled}{'.' * (30 - filled)}] {done:,}/{total:,}{end}")
        sys.stderr.flush()
    elif done * 4 // total > (done - 1) * 4 // total:
        print(f"  photographs {done:,}/{total:,}", file=sys.stderr, flush=True)


def generate_photos(
    root: str | os.PathLike[str],
    count: int = 2000,
    classes: int = 10,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = _report,
) -> Path:
    """Fills `root` with `count` JPEG files in a folder per class; does nothing if the same set is there.

    Image `k` belongs to class `k % classes`. `progress(done, total)` is called after each file. Raises
    `ValueError` for fewer than one or more than ten classes, and for a negative count.
    """
    if not 1 <= classes <= len(CLASSES) or count < 0:
        raise ValueError(
            f"classes must be 1..{len(CLASSES)} and count not negative, got {classes} and {count}"
        )
    root = Path(root)
    wanted = {"version": VERSION, "count": count, "classes": classes, "seed": seed}
    stamp = root / ".generated.json"
    if stamp.exists() and json.loads(stamp.read_text()) == wanted:
        return root
    names = list(CLASSES)[:classes]
    for name in names:
        folder = root / name
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.jpg"):  # of another seed or count
            old.unlink()

    def make(number: int) -> None:
        name = names[number % classes]
        photo, options = _photo(seed, number, name)
        photo.save(root / name / f"{number:06d}.jpg", "JPEG", **options)

    _tiles(seed)  # before the threads, which would each make them
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(cores) as pool:
        for done, made in enumerate(as_completed([pool.submit(make, n) for n in range(count)]), 1):
            made.result()
            if progress is not None:
                progress(done, count)
    stamp.write_text(json.dumps(wanted))
    return root


def main() -> None:
    """`python _photos.py ROOT [--count N]`: for benchmarks, where no wellfed is installed."""
    parser = argparse.ArgumentParser(description="Generate photo-like JPEG files in class folders.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    start = time.perf_counter()
    generate_photos(args.root, args.count, args.classes, args.seed)
    print(f"{args.count} photographs in {time.perf_counter() - start:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
