"""Renews `golden.txt`: what libjpeg-turbo, as Pillow uses it, makes of the generated files of the tests.

Run by hand after the generator has changed, with a Pillow whose wheel bundles libjpeg-turbo:

    cargo run -p wellfed-jpeg --example generate -- golden FOLDER
    python crates/wellfed-jpeg/tests/golden.py FOLDER

A line is the file's name, its CRC-32, and `error: WHY` or size, channels and the CRC-32 of the pixels in rows
without padding. Damaged files have a second verdict after `|`: that of the file followed by end-of-image markers,
which is what libjpeg invents where data ends early. Four channels are CMYK as in the file: Pillow inverts them,
which is undone here.
"""

from __future__ import annotations

import io
import sys
import zlib
from pathlib import Path

from PIL import Image, ImageChops, features


def verdict(path: Path | io.BytesIO) -> str:
    """What Pillow makes of a file."""
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            image.load()
    except Exception as reason:  # whatever it is, Pillow does not give this image
        return f"error: {type(reason).__name__}"
    if image.mode == "CMYK":
        image = ImageChops.invert(image)
    return f"{image.width}x{image.height}x{len(image.getbands())} {zlib.crc32(image.tobytes()):08x}"


def main() -> None:
    """Write the hashes beside this file."""
    lines = [
        f"# Pillow {Image.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}; made by golden.py\n"
    ]
    for path in sorted(Path(sys.argv[1]).glob("*.jpg")):
        both = [verdict(path)]
        if path.stem.startswith("damaged"):
            both.append(verdict(io.BytesIO(path.read_bytes() + b"\xff\xd9" * 40_000)))
        lines.append(f"{path.stem} {zlib.crc32(path.read_bytes()):08x} {' | '.join(both)}\n")
    Path(__file__).with_name("golden.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
