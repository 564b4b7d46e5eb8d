"""TFRecord files and messages of `tf.train.Example`, written without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """CRC-32C as TFRecord has it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _TABLE[(crc ^ byte) & 0xFF]
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def framed(records: Iterable[bytes]) -> bytes:
    """A file of these records."""
    parts = []
    for record in records:
        length = struct.pack("<Q", len(record))
        parts += [
            length,
            struct.pack("<I", masked_crc(length)),
            record,
            struct.pack("<I", masked_crc(record)),
        ]
    return b"".join(parts)


def write(path: Path, records: Iterable[bytes]) -> Path:
    """Writes a file of these records."""
    path.write_bytes(framed(records))
    return path


def _varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _message(field: int, data: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(data)) + data


def feature(values: Any) -> bytes:
    """A feature of a list of bytes, texts, floats or whole numbers; of None, one without values."""
    if values is None:
        return b""
    values = values if isinstance(values, list) else [values]
    if values and isinstance(values[0], str | bytes):
        encoded = (value.encode() if isinstance(value, str) else value for value in values)
        return _message(1, b"".join(_message(1, value) for value in encoded))
    if values and isinstance(values[0], float):
        return _message(2, _message(1, struct.pack(f"<{len(values)}f", *values)))
    return _message(3, _message(1, b"".join(map(_varint, values))))


def _map(entries: Mapping[str, bytes]) -> bytes:
    pairs = (_message(1, key.encode()) + _message(2, value) for key, value in entries.items())
    return b"".join(_message(1, pair) for pair in pairs)


def example(features: Mapping[str, Any]) -> bytes:
    """A serialized `tf.train.Example`."""
    return _message(1, _map({key: feature(values) for key, values in features.items()}))


def sequence_example(context: Mapping[str, Any], lists: Mapping[str, list[Any]]) -> bytes:
    """A serialized `tf.train.SequenceExample`."""
    steps = {key: b"".join(_message(1, feature(step)) for step in of) for key, of in lists.items()}
    return example(context) + _message(2, _map(steps))
