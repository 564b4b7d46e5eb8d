"""The sets of files that the JPEG benchmark decodes, made once under `.bench/jpeg/`. Needs Pillow.

`original` is the photographs as they are. The others are saved with Pillow at quality 90, 4:2:0 as it does by
default: `small` with 240 pixels on the shorter side, `2mp` and `12mp` as mosaics of photographs at twice their
size, which keeps the amount of detail near that of a camera. `...-optimized` have Huffman tables of their own,
`...-progressive` are progressive. `large-windows` are RandomResizedCrop windows beside the originals.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from PIL import Image

WINDOWS = 4
"""Windows of each photograph."""


def window(width: int, height: int, rng: random.Random) -> tuple[int, int, int, int]:
    """torchvision's `RandomResizedCrop.get_params` with its defaults: x, y, width, height."""
    area = width * height
    for _ in range(10):
        target = area * rng.uniform(0.08, 1.0)
        aspect = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return rng.randint(0, width - w), rng.randint(0, height - h), w, h
    w, h = width, height
    if width / height < 3 / 4:
        h = round(w / (3 / 4))
    elif width / height > 4 / 3:
        w = round(h * (4 / 3))
    return (width - w) // 2, (height - h) // 2, w, h


def small(photos: list[Path]) -> Iterator[Image.Image]:
    """Each photograph with 240 pixels on its shorter side."""
    for path in photos:
        image = Image.open(path).convert("RGB")
        scale = 240 / min(image.size)
        yield image.resize([max(240, round(side * scale)) for side in image.size], Image.Resampling.BICUBIC)


def mosaics(photos: list[Path], width: int, height: int, count: int) -> Iterator[Image.Image]:
    """Photographs at twice their size side by side."""
    at = 0
    for _ in range(count):
        sheet = Image.new("RGB", (width, height))
        y = 0
        while y < height:
            x, row = 0, height
            while x < width:
                image = Image.open(photos[at % len(photos)]).convert("RGB")
                image = image.resize((image.width * 2, image.height * 2), Image.Resampling.BICUBIC)
                sheet.paste(image, (x, y))
                x += image.width
                row = min(row, image.height)
                at += 1
            y += row
        yield sheet


def save(images: Iterator[Image.Image], home: Path, name: str) -> None:
    """Three sets of the same pictures: standard tables, tables of their own, progressive."""
    kinds = {"": {}, "-optimized": {"optimize": True}, "-progressive": {"progressive": True}}
    for number, image in enumerate(images):
        for kind, options in kinds.items():
            folder = home / f"{name}{kind}"
            folder.mkdir(parents=True, exist_ok=True)
            image.save(folder / f"{number:05}.jpg", quality=90, **options)


def originals(photos: list[Path], home: Path) -> None:
    """Links to the photographs, progressive copies at quality 90, and the windows."""
    folder = home / "original"
    folder.mkdir(parents=True)
    rng = random.Random(12345)
    lines = []
    for number, path in enumerate(photos):
        name = f"{number:05}.jpg"
        (folder / name).symlink_to(path.resolve())
        with Image.open(path) as image:
            windows = [window(*image.size, rng) for _ in range(WINDOWS)]
        lines.append(" ".join([name, *(str(n) for w in windows for n in w)]))
    (home / "original-windows.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    """Make what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", type=Path)
    parser.add_argument("home", type=Path)
    args = parser.parse_args()
    photos = sorted(p for p in args.photos.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
    ready = args.home / "ready.json"
    wanted = {"photos": len(photos), "bytes": sum(p.stat().st_size for p in photos)}
    if ready.exists() and json.loads(ready.read_text()) == wanted:
        return
    shutil.rmtree(args.home, ignore_errors=True)  # sets of other photographs, or a part of these
    originals(photos, args.home)
    save((Image.open(p).convert("RGB") for p in photos), args.home, "500")
    save(small(photos), args.home, "240")
    save(mosaics(photos, 1632, 1224, 24), args.home, "2mp")
    save(mosaics(photos, 4000, 3000, 6), args.home, "12mp")
    ready.write_text(json.dumps(wanted))


if __name__ == "__main__":
    main()
