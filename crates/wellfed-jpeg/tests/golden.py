"""Renews `golden.txt`: what libjpeg-turbo, as Pillow uses it, makes of the generated files of the tests.

Run by hand after the generator has changed, with a Pillow whose wheel bundles libjpeg-turbo:

    cargo run -p wellfed-jpeg --example generate -- golden FOLDER
    python crates/wellfed-jpeg/tests/golden.py FOLDER

A line is the file's name, its CRC-32, and `error` or size, channels and the CRC-32 of the pixels in rows without
padding. Four channels are CMYK as in the file: Pillow inverts them, which is undone here.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

from PIL import Image, ImageChops, UnidentifiedImageError, features


def verdict(path: Path) -> str:
    """What Pillow makes of a file."""
    try:
        with Image.open(path, formats=["JPEG"]) as image:
            image.load()
    except (OSError, SyntaxError, UnidentifiedImageError):
        return "error"
    if image.mode == "CMYK":
        image = ImageChops.invert(image)
    return f"{image.width}x{image.height}x{len(image.getbands())} {zlib.crc32(image.tobytes()):08x}"


def main() -> None:
    """Write the hashes beside this file."""
    lines = [
        f"# Pillow {Image.__version__}, libjpeg-turbo {features.version('libjpeg_turbo')}; made by golden.py\n"
    ]
    for path in sorted(Path(sys.argv[1]).glob("*.jpg")):
        lines.append(f"{path.stem} {zlib.crc32(path.read_bytes()):08x} {verdict(path)}\n")
    Path(__file__).with_name("golden.txt").write_text("".join(lines))


if __name__ == "__main__":
    main()
