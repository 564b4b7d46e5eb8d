"""What the benchmarks of vision tasks share: their arguments, photographs of a size, and torch's loaders."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from photos import real_photos
from turns import in_turns, report

__all__ = ["arguments", "compare", "pictures"]

WORKERS = (0, 1, 2, 3)


def arguments(description: str | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("photos", type=Path, nargs="?", help="a folder; default: those of the tests")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=400, help="samples")
    parser.add_argument("--out", type=Path, help="JSON file of the result")
    return parser.parse_args()


def pictures(folder: Path | None, count: int, boxes: list[tuple[int, int]]) -> Iterator[Image.Image]:
    """So many photographs, those of `folder` again and again, which fit into `boxes` (width, height) in turn."""
    found = real_photos()
    if folder is not None:
        found = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    if not found:
        raise SystemExit("there are no photographs: name a folder of JPEG files")
    for i in range(count):
        with Image.open(found[i % len(found)]) as image:
            picture = image.convert("RGB")
        picture.thumbnail(boxes[i % len(boxes)])
        yield picture


def compare(stock: Callable[[int], Any], ours: dict[str, Any], given: argparse.Namespace) -> None:
    """Measures `ours` beside what `stock` makes of a number of workers, and prints and keeps the result."""
    loaders = {f"torch, {workers} workers": stock(workers) for workers in WORKERS}
    result = report(in_turns({**loaders, **ours}, given.rounds), given.count)
    if given.out:
        given.out.write_text(json.dumps(result, indent=1))
