"""Writes the files of the tests in `src/tests.rs` with h5py: `python make.py`.

Element i of a data set is (7 i + 3) mod 251.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

HERE = Path(__file__).parent
ROWS = 10


def numbers(shape: tuple[int, ...], dtype: Any) -> np.ndarray[Any, Any]:
    return ((np.arange(np.prod(shape, dtype=int)) * 7 + 3) % 251).reshape(shape).astype(dtype)


def fill(file: h5py.File) -> None:
    def add(name: str, shape: tuple[int, ...], dtype: Any, **how: Any) -> None:
        file.create_dataset(name, data=numbers((ROWS, *shape), dtype), track_times=False, **how)

    add("image", (4, 5), "u1")
    add("label", (), "i8")
    # Every filter, rows cut across, chunks over the edge of both axes.
    add("gzip", (3,), "<f4", chunks=(4, 2), compression="gzip", shuffle=True)
    add("sum", (3,), "<u2", chunks=(4, 3), compression="gzip", shuffle=True, fletcher32=True)
    add("lzf", (6,), ">i4", chunks=(3, 6), compression="lzf")
    add("one", (2,), "<f8", chunks=(1, 2), compression="gzip")
    add("plain", (3,), "<i2", chunks=(4, 3))
    # One chunk; an axis that grows; two that do.
    add("single", (2,), "u1", chunks=(ROWS, 2), compression="gzip")
    add("grows", (2,), "<u4", chunks=(3, 2), maxshape=(None, 2), compression="gzip")
    add("across", (4,), "u1", chunks=(3, 2), maxshape=(20, None), fletcher32=True)
    add("both", (2,), "<u4", chunks=(3, 1), maxshape=(None, None), compression="gzip")
    # Rows 4 to 6 were never written.
    some = file.create_dataset("some", (ROWS, 2), "<i4", chunks=(1, 2), fillvalue=-9, track_times=False)
    some[:4], some[7:] = numbers((ROWS, 2), "<i4")[:4], numbers((ROWS, 2), "<i4")[7:]
    file.create_dataset("none", (ROWS,), "<f4", fillvalue=2.5, track_times=False)
    file.create_dataset("flag", data=np.arange(ROWS) % 3 == 0, track_times=False)
    text = np.array([f"row {i}".encode() for i in range(ROWS)], "S8")
    file.create_dataset("text", data=text, track_times=False)
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_layout(h5py.h5d.COMPACT)
    plist.set_obj_track_times(False)
    space, data = h5py.h5s.create_simple((ROWS, 2)), numbers((ROWS, 2), "<i2")
    h5py.h5d.create(file.id, b"compact", h5py.h5t.STD_I16LE, space, plist).write(
        h5py.h5s.ALL, h5py.h5s.ALL, data
    )
    file.create_dataset("train/x", data=numbers((ROWS, 2), "u1"), track_times=False)
    file["link"] = h5py.SoftLink("/train/x")
    lists = file.create_dataset("varying/lists", (ROWS,), h5py.vlen_dtype("<i4"), track_times=False)
    names = file.create_dataset("varying/names", (ROWS,), h5py.string_dtype(), chunks=(3,), track_times=False)
    for row in range(ROWS):
        lists[row], names[row] = numbers((row % 4,), "<i4"), f"name {row}" * (row % 3)
    file.create_dataset("short", data=numbers((3,), "u1"), track_times=False)


for name, version in (("earliest", "earliest"), ("latest", "latest")):
    with h5py.File(HERE / f"{name}.h5", "w", libver=version) as written:
        fill(written)
