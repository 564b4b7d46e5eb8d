"""Makes the images of this folder and what Pillow reads in them. Needs Pillow and NumPy; deterministic.

JPEGs get a `.png` beside them that holds Pillow's RGB pixels. PNGs get lines `name mode height width crc32` in
`expected.txt`, the checksum being that of Pillow's converted pixels.
"""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

HERE = Path(__file__).parent
Y, X = np.mgrid[0:29, 0:35]
RGB = np.stack([X * 7, Y * 8, 255 - X * 3 - Y * 4], -1).astype(np.uint8)
RGB[8:17, 10:21] = [200, 30, 60]
IMAGE = Image.fromarray(RGB)


def jpeg(name, image, **options):
    """Writes a JPEG of `image`."""
    file = io.BytesIO()
    image.save(file, "JPEG", quality=70, **options)
    jpeg_bytes(name, file.getvalue())


def jpeg_bytes(name, data):
    """Writes a JPEG, and what Pillow reads in it."""
    (HERE / f"{name}.jpg").write_bytes(data)
    Image.open(io.BytesIO(data)).convert("RGB").save(HERE / f"{name}.jpg.png", optimize=True)


def adobe(data, transform):
    """The JPEG with an Adobe marker in place of JFIF."""
    assert data[2:4] == b"\xff\xe0"
    body = data[4 + int.from_bytes(data[4:6], "big") :]
    marker = b"\xff\xee\x00\x0eAdobe\x00\x64\0\0\0\0" + bytes([transform])
    return data[:2] + marker + body


def chunk(kind, data):
    """A PNG chunk."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def adam7(rows, bits):
    """The seven passes of an interlaced image, unfiltered."""
    out = b""
    for x0, y0, dx, dy in [
        (0, 0, 8, 8),
        (4, 0, 8, 8),
        (0, 4, 4, 8),
        (2, 0, 4, 4),
        (0, 2, 2, 4),
        (1, 0, 2, 2),
        (0, 1, 1, 2),
    ]:
        for y in range(y0, len(rows), dy):
            row = rows[y][x0::dx]
            if len(row):
                out += b"\0" + pack(row, bits)
    return out


def pack(row, bits):
    """Packs samples (a row of pixels, each a tuple of samples) into bytes."""
    samples = np.asarray(row).reshape(-1)
    if bits == 16:
        return samples.astype(">u2").tobytes()
    joined = "".join(format(int(s), f"0{bits}b") for s in samples)
    joined += "0" * (-len(joined) % 8)
    return bytes(int(joined[i : i + 8], 2) for i in range(0, len(joined), 8))


EXPECTED = []


def png(name, color, bits, channels, interlace=False, extra=b"", colors=None, cuts=1):
    """Writes a PNG of random samples."""
    rng = np.random.default_rng(color * 100 + bits)
    height, width = 11, 13
    pixels = rng.integers(0, colors or 1 << bits, (height, width, channels))
    if bits == 16:
        pixels[::3] //= 256  # Small values, too, where 16-bit grey is clipped.
    raw = adam7(pixels, bits) if interlace else b"".join(b"\0" + pack(r, bits) for r in pixels)
    header = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, int(interlace))
    data = zlib.compress(raw, 9)
    step = -(-len(data) // cuts)
    idat = b"".join(chunk(b"IDAT", data[i : i + step]) for i in range(0, len(data), step))
    png_bytes(name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + idat + chunk(b"IEND", b""))


def png_bytes(name, data, modes=("RGB", "L", "RGBA")):
    """Writes a PNG, and the checksums of what Pillow reads in it."""
    (HERE / f"{name}.png").write_bytes(data)
    image = Image.open(io.BytesIO(data))
    image.load()
    for mode in modes:
        pixels = np.asarray(image.convert(mode))
        EXPECTED.append(
            f"{name}.png {mode} {pixels.shape[0]} {pixels.shape[1]} {zlib.crc32(pixels.tobytes()):08x}"
        )


def main():
    """Makes all files."""
    for name, subsampling in [("444", 0), ("422", 1), ("420", 2)]:
        jpeg(name, IMAGE, subsampling=subsampling)
        jpeg(f"{name}_progressive", IMAGE, subsampling=subsampling, progressive=True)
        jpeg(f"{name}_restart", IMAGE, subsampling=subsampling, restart_marker_blocks=2)
    jpeg("grey", IMAGE.convert("L"))
    jpeg("grey_progressive", IMAGE.convert("L"), progressive=True)
    jpeg("rgb", IMAGE, keep_rgb=True)
    jpeg("one_pixel", IMAGE.crop((0, 0, 1, 1)))
    jpeg("comment", IMAGE, comment=b"\xff\xd9 not the end")
    cmyk = IMAGE.convert("CMYK")
    jpeg("cmyk", cmyk)
    file = io.BytesIO()
    cmyk.save(file, "JPEG", quality=70)
    jpeg_bytes("ycck", file.getvalue().replace(b"Adobe\0\x64\0\0\0\0\0", b"Adobe\0\x64\0\0\0\0\2"))
    file = io.BytesIO()
    IMAGE.save(file, "JPEG", quality=70, subsampling=0)
    jpeg_bytes("adobe_rgb", adobe(file.getvalue(), 0))
    jpeg_bytes("adobe_ycc", adobe(file.getvalue(), 1))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        if orientation in (3, 6):
            jpeg(f"orientation_{orientation}", IMAGE, exif=exif)

    palette = bytes(range(48))
    for bits in (1, 2, 4, 8, 16):
        png(f"grey{bits}", 0, bits, 1)
        png(f"grey{bits}_interlaced", 0, bits, 1, interlace=True)
    for bits in (1, 2, 4, 8):
        png(f"palette{bits}", 3, bits, 1, extra=chunk(b"PLTE", palette), colors=min(16, 1 << bits))
    png("palette4_interlaced", 3, 4, 1, interlace=True, extra=chunk(b"PLTE", palette))
    png(
        "palette4_transparent",
        3,
        4,
        1,
        extra=chunk(b"PLTE", palette) + chunk(b"tRNS", bytes(range(0, 200, 20))),
    )
    png("palette8_short", 3, 8, 1, extra=chunk(b"PLTE", palette[:12]), colors=9)
    png("grey8_transparent", 0, 8, 1, extra=chunk(b"tRNS", b"\0\7"), colors=9)
    png("grey16_transparent", 0, 16, 1, extra=chunk(b"tRNS", b"\0\7"), colors=9)
    png("rgb8_transparent", 2, 8, 3, extra=chunk(b"tRNS", b"\0\0\0\1\0\1"), colors=2)
    for bits in (8, 16):
        for color, channels, name in [(2, 3, "rgb"), (4, 2, "grey_alpha"), (6, 4, "rgba")]:
            png(f"{name}{bits}", color, bits, channels, cuts=3)
            png(f"{name}{bits}_interlaced", color, bits, channels, interlace=True)
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    IMAGE.crop((0, 0, 5, 9)).save(file, "PNG", exif=exif)
    png_bytes("exif", file.getvalue())
    frames = [IMAGE.crop((i, i, i + 9, i + 7)) for i in range(3)]
    file = io.BytesIO()
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    png_bytes("animated", file.getvalue())
    (HERE / "expected.txt").write_text("\n".join(EXPECTED) + "\n")


main()
