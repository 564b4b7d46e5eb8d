"""Records of TensorFlow's that composed scripts read, written without TensorFlow."""

from __future__ import annotations

import struct
from pathlib import Path

from grammar import Maker
from material import DISTINCT, encoded, picture


def jpeg_records(count: int, size: int) -> Maker:
    """TFRecords of examples with `image`, a JPEG, and `label`; written without TensorFlow."""

    def make(path: Path) -> None:
        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        made: dict[tuple[int, int], bytes] = {}
        with path.open("wb") as file:
            for i in range(count):
                key = (i % DISTINCT, i % 10)
                if key not in made:
                    made[key] = framed(example(files[key[0]], key[1]))
                file.write(made[key])

    return make


def example(image: bytes, label: int) -> bytes:
    """An `Example` of protocol buffers."""
    entries = b""
    for name, feature in (
        (b"image", field(1, field(1, image))),
        (b"label", field(3, field(1, varint(label)))),
    ):
        entries += field(1, field(1, name) + field(2, feature))
    return field(1, entries)


def field(number: int, body: bytes) -> bytes:
    """A field of bytes of protocol buffers."""
    return varint(number << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    """A number of protocol buffers."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def framed(body: bytes) -> bytes:
    """A record with its length and checksums."""
    length = struct.pack("<Q", len(body))
    return length + struct.pack("<I", masked(length)) + body + struct.pack("<I", masked(body))


def crc_table() -> list[int]:
    """Of CRC-32C by bytes."""
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC = crc_table()


def masked(body: bytes) -> int:
    """CRC-32C as records have it."""
    crc = 0xFFFFFFFF
    for byte in body:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
