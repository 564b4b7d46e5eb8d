"""Writes `plugins.h5` of the tests in `src/tests.rs` with hdf5plugin: `python make_plugins.py`.

Element i of a data set is (7 i + 3) mod 251.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np

HERE = Path(__file__).parent
ROWS = 10
DTYPES = ["u1", "<i2", "<f4", ">f8"]


def fill(file: h5py.File) -> None:
    def add(name: str, dtype: str, filters: Any, columns: int = 130, rows: int = 4, **how: Any) -> None:
        data = ((np.arange(ROWS * columns) * 7 + 3) % 251).reshape(ROWS, columns).astype(dtype)
        file.create_dataset(name, data=data, chunks=(rows, columns), track_times=False, **filters, **how)

    # A chunk of 520 bytes and more; of 7 columns: elements that are left over.
    for dtype in DTYPES:
        kind = dtype[-2:]
        for codec in ("lz4", "zstd"):
            add(f"bitshuffle_{codec}_{kind}", dtype, hdf5plugin.Bitshuffle(cname=codec))
    add("lz4", "<f4", hdf5plugin.LZ4())
    add("bitshuffle_none", "<i2", hdf5plugin.Bitshuffle(cname="none"))
    # Several blocks of which some are stored as they are; chunks smaller than a block.
    add("lz4_blocks", "<i2", hdf5plugin.LZ4(nbytes=256))
    add("bitshuffle_blocks", "<i2", hdf5plugin.Bitshuffle(nelems=64, cname="lz4"))
    add("bitshuffle_plain", "u1", hdf5plugin.Bitshuffle(nelems=64, cname="none"))
    for codec in ("none", "lz4", "zstd"):
        add(f"bitshuffle_{codec}_left", "<i2", hdf5plugin.Bitshuffle(cname=codec), 7, 3)
    shuffles = hdf5plugin.Blosc.NOSHUFFLE, hdf5plugin.Blosc.SHUFFLE, hdf5plugin.Blosc.BITSHUFFLE
    for number, codec in enumerate(("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")):
        for shuffle in shuffles:
            dtype = DTYPES[(number + shuffle) % len(DTYPES)]
            add(f"blosc_{codec}_{shuffle}", dtype, hdf5plugin.Blosc(codec, 9, shuffle))
        # Large enough for several blocks, of which the last is smaller.
        filters = hdf5plugin.Blosc(codec, 1, shuffles[number % 3])
        add(f"blosc_{codec}_blocks", DTYPES[number % 2], filters, 6500, ROWS)
    # What does not become smaller goes without the filter.
    add("blosc_left_out", "<i2", hdf5plugin.Blosc("lz4", 9), 7, 3)
    add("blosc_sum", "<i2", hdf5plugin.Blosc("zstd"), fletcher32=True)
    for dtype in ("u1", ">i4", "<u8"):
        add(f"scaleoffset_{dtype[-2:]}", dtype, {"scaleoffset": 0})
    # As many bits as there are: nothing is done.
    add("scaleoffset_all", "u1", {"scaleoffset": 8})
    # Packed twice, by the first of which it became larger.
    add("scaleoffset_twice", "<i2", {"scaleoffset": 15, "compression": "gzip"}, 2)
    add("scaleoffset_gzip", ">i2", {"scaleoffset": 0, "shuffle": True, "compression": "gzip"})
    for dtype in ("<f4", ">f8"):
        add(f"scaleoffset_{dtype[-2:]}", dtype, {"scaleoffset": 1})
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((4, 2))
    plist.set_filter(h5py.h5z.FILTER_NBIT)
    plist.set_obj_track_times(False)
    made = h5py.h5d.create(file.id, b"nbit", h5py.h5t.STD_I16BE, h5py.h5s.create_simple((ROWS, 2)), plist)
    made.write(
        h5py.h5s.ALL, h5py.h5s.ALL, ((np.arange(ROWS * 2) * 7 + 3) % 251).reshape(ROWS, 2).astype("i2")
    )


with h5py.File(HERE / "plugins.h5", "w", libver="latest") as written:
    fill(written)
with h5py.File(HERE / "plugins.h5") as made:
    for name, found in made.items():
        print(f"{name}: {found.chunks}, {found.nbytes} bytes, stored {found.id.get_storage_size()}")
