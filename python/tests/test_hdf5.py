"""HDF5 files that h5py wrote, in every form, against what h5py reads of them."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T

LIBVERS = ["earliest", "latest"]
FILTERS: dict[str, dict[str, Any]] = {
    "none": {},
    "gzip": {"compression": "gzip", "compression_opts": 1},
    "gzip+shuffle": {"compression": "gzip", "shuffle": True},
    "fletcher32": {"fletcher32": True},
    "lzf": {"compression": "lzf"},
    "all": {"compression": "lzf", "shuffle": True, "fletcher32": True},
}
DTYPES = ["?", "u1", "i1", ">u2", "<i2", ">i4", "<u4", "<i8", ">u8", "<f2", ">f4", "<f8"]


def picture(number: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (9, 7, 3), np.uint8)).save(file, "png")
    return file.getvalue()


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    return (np.random.default_rng(seed).integers(0, 250, shape) / 2).astype(dtype)


def check(path: Path, names: list[str], seed: int = 0) -> None:
    """Rows in order, shuffled, and one by one are those of h5py."""
    ds = wf.hdf5(path, fields=names, pixels="never")
    with h5py.File(path) as file:
        wanted = [file[name][()] for name in names]
    rows = len(wanted[0])
    assert len(ds) == rows
    rng = np.random.default_rng(seed)
    for row in rng.integers(0, rows, 5):
        for value, want in zip(ds.sample(int(row)), wanted):
            assert np.array_equal(value, want[row])
    numbered = wf.zip(ds, wf.from_tensor_slices(np.arange(rows)))
    for pipeline in (
        numbered,
        numbered.shuffle(seed=seed),
        numbered.shuffle(seed=seed, block_size=3, window=2),
    ):
        seen = []
        for values, which in pipeline.batch(int(rng.integers(1, 9))).with_options(num_workers=2).numpy():
            seen += which.tolist()
            for value, want in zip(values, wanted):
                assert value.dtype == want.dtype.newbyteorder("=")
                assert np.array_equal(value, want[which])
        assert sorted(seen) == list(range(rows))


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("filters", FILTERS)
def test_rows_are_those_of_h5py(tmp_path: Path, libver: str, filters: str) -> None:
    path = tmp_path / "a.h5"
    forms: list[dict[str, Any]] = [
        {"chunks": (4, 3, 2)},
        {"chunks": (1, 6, 5)},
        {"chunks": (23, 6, 5)},
        {"chunks": (5, 6, 5), "maxshape": (None, 6, 5)},
        {"chunks": (3, 2, 5), "maxshape": (40, None, 5)},
        {"chunks": (2, 3, 5), "maxshape": (None, None, 5)},
        {"chunks": (7, 4, 4), "maxshape": (50, 60, 5)},
    ]
    with h5py.File(path, "w", libver=libver) as file:
        for number, form in enumerate(forms):
            data = numbers((23, 6, 5), DTYPES[number % len(DTYPES)], number)
            file.create_dataset(f"d{number}", data=data, **form, **FILTERS[filters])
    check(path, [f"d{number}" for number in range(len(forms))])


@pytest.mark.parametrize("libver", LIBVERS)
def test_numbers_of_few_bits(tmp_path: Path, libver: str) -> None:
    """Scale-offset, of floating-point numbers with the digits that it keeps; nbit, which leaves numbers as they are."""
    path = tmp_path / "a.h5"
    names = []
    with h5py.File(path, "w", libver=libver) as file:
        for number, dtype in enumerate(["u1", "i1", ">u2", "<i2", ">i4", "<u4", "<i8", ">u8", ">f4", "<f8"]):
            for kind, form in (
                ("fill", {"scaleoffset": 0, "fillvalue": 3}),
                ("digits", {"scaleoffset": 2 if "f" in dtype else 0}),
                ("more", {"scaleoffset": 1, "shuffle": True, "compression": "gzip"}),
            ):
                if kind == "more" and "f" not in dtype:
                    form["scaleoffset"] = 8
                names.append(f"{dtype[-2:]}_{kind}")
                file.create_dataset(names[-1], data=numbers((23, 7), dtype, number), chunks=(4, 5), **form)
        for dtype, kind in (("i2", h5py.h5t.STD_I16BE), ("f4", h5py.h5t.IEEE_F32LE)):
            names.append(f"nbit_{dtype}")
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((4, 5))
            plist.set_filter(h5py.h5z.FILTER_NBIT)
            space = h5py.h5s.create_simple((23, 7))
            made = h5py.h5d.create(file.id, names[-1].encode(), kind, space, plist)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers((23, 7), dtype))
    check(path, names)


def test_a_file_that_plugins_wrote() -> None:
    """What hdf5plugin wrote with LZ4, Bitshuffle and Blosc, read without it."""
    path = Path(__file__).parents[2] / "crates/wellfed-hdf5/tests/files/plugins.h5"
    with h5py.File(path) as file:
        fields = {name: (found.dtype, found.shape) for name, found in file.items()}
    assert len(fields) > 40
    ds = wf.hdf5(path, fields=list(fields))
    (batch,) = ds.batch(len(ds)).numpy()
    for (name, (dtype, shape)), values in zip(fields.items(), batch):
        wanted = (np.arange(np.prod(shape)) * 7 + 3) % 251
        assert values.dtype == dtype.newbyteorder("="), name
        assert np.array_equal(values, wanted.reshape(shape)), name


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("plugin", ["lz4", "bitshuffle", "blosc", "zstd"])
def test_filters_of_plugins(tmp_path: Path, libver: str, plugin: str) -> None:
    hdf5plugin = pytest.importorskip("hdf5plugin")
    if plugin == "lz4":
        filters = [hdf5plugin.LZ4(size) for size in (0, 96, 4096)]
    elif plugin == "bitshuffle":
        filters = [
            hdf5plugin.Bitshuffle(count, cname) for count in (0, 8, 64) for cname in ("none", "lz4", "zstd")
        ]
    elif plugin == "blosc":
        codecs = ("blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd")
        filters = [hdf5plugin.Blosc(cname, 5, shuffle) for cname in codecs for shuffle in (0, 1, 2)]
    else:
        filters = [hdf5plugin.Zstd(3)]
    path = tmp_path / "a.h5"
    names = []
    with h5py.File(path, "w", libver=libver) as file:
        for number, how in enumerate(filters):
            dtype = DTYPES[1 + number % (len(DTYPES) - 1)]
            # Whether bytes repeat, and how far away, differs.
            rng = np.random.default_rng(number)
            for columns, chunks in ((7, (4, 5)), (900, (6, 900)), (3000, (23, 2000))):
                few = rng.integers(0, 200, int(rng.integers(2, 9000)))
                data = np.resize(few, (23, columns)).astype(dtype)
                data[5] = rng.integers(0, 200, columns)
                names.append(f"d{number}_{columns}")
                form = {"fletcher32": number % 2 == 1} if plugin != "bitshuffle" else {}
                file.create_dataset(names[-1], data=data, chunks=chunks, **how, **form)
    check(path, names)


@pytest.mark.parametrize("libver", LIBVERS)
def test_types(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    names = []
    with h5py.File(path, "w", libver=libver) as file:
        for dtype in DTYPES:
            for form in ({}, {"chunks": (4, 3), "compression": "gzip", "shuffle": True}):
                names.append(f"{dtype}{len(form)}")
                file.create_dataset(names[-1], data=numbers((11, 3), dtype), **form)
        file.create_dataset(
            "colour", data=np.arange(11) % 3, dtype=h5py.enum_dtype({"RED": 0, "BLUE": 2}, "u1")
        )
        file.create_dataset("vector", data=numbers((11, 2, 3), "f4"), dtype="f4")
        file["named"] = np.dtype("<i2")
        file.create_dataset("of_named", data=np.arange(11), dtype=file["named"])
        space = h5py.h5s.create_simple((11,))
        kind = h5py.h5t.array_create(h5py.h5t.IEEE_F32LE, (2, 3))
        made = h5py.h5d.create(file.id, b"arrays", kind, space)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers((11, 2, 3), "f4"), mtype=kind)
        file.create_dataset("text", data=np.array([f"é{i}".encode() for i in range(11)], "S5"))
        file.create_dataset("opaque", data=np.array([bytes([i, 0, 7]) for i in range(11)], "V3"))
    check(path, [*names, "colour", "vector", "of_named"])
    ds = wf.hdf5(path, fields=["text", "opaque", "arrays"])
    text, opaque, arrays = ds.sample(3)
    assert text == "é3"
    assert opaque == bytes([3, 0, 7])
    assert np.array_equal(arrays, numbers((11, 2, 3), "f4")[3])


@pytest.mark.parametrize("libver", LIBVERS)
def test_what_was_not_written_is_the_fill_value(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for name, form in (
            ("plain", {}),
            ("gzip", {"chunks": (3, 2), "compression": "gzip"}),
            ("grows", {"chunks": (2, 4), "maxshape": (None, 4)}),
        ):
            made = file.create_dataset(name, (20, 4), ">i4", fillvalue=-7, **form)
            if name != "plain":
                made[5:7, 1:3] = 9
        file.create_dataset("zeros", (20, 2), "f4", chunks=(5, 1), fletcher32=True)
    check(path, ["plain", "gzip", "grows", "zeros"])


@pytest.mark.parametrize("libver", LIBVERS)
def test_data_sets_that_grew_and_shrank(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for name, most, form in (("rows", (None, 3), {}), ("both", (None, None), {"compression": "gzip"})):
            made = file.create_dataset(name, (1, 3), "i4", chunks=(2, 2), maxshape=most, **form)
            for rows in (7, 40, 13, 31):
                made.resize((rows, 3))
                made[...] = numbers((rows, 3), "i4", rows)
    check(path, ["rows", "both"])


@pytest.mark.parametrize("libver", LIBVERS)
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_many_chunks(tmp_path: Path, libver: str, compression: str | None) -> None:
    """Indices of several levels and pages."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        for name, most in (("fixed", (9000,)), ("rows", (None,))):
            file.create_dataset(
                name, data=np.arange(5000, dtype="i4"), chunks=(1,), maxshape=most, compression=compression
            )
        file.create_dataset(
            "two",
            data=numbers((5000, 2), "u2"),
            chunks=(2, 1),
            maxshape=(None, None),
            compression=compression,
        )
    for name in ("fixed", "rows", "two"):
        ds = wf.hdf5(path, fields=name).batch(1000).with_options(num_workers=2)
        with h5py.File(path) as file:
            assert np.array_equal(np.concatenate([values for (values,) in ds.numpy()]), file[name][()])


@pytest.mark.parametrize("libver", LIBVERS)
def test_chunks_that_were_made_beforehand(tmp_path: Path, libver: str) -> None:
    """Of such without filters, new files have no index at all."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver) as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((3, 2))
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        for name, most in (("fixed", None), ("larger", (20, 8))):
            space = h5py.h5s.create_simple((10, 5), most)
            made = h5py.h5d.create(file.id, name.encode(), h5py.h5t.STD_I16BE, space, plist)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, numbers((10, 5), "<i2"))
    check(path, ["fixed", "larger"])


@pytest.mark.parametrize("libver", LIBVERS)
def test_many_names(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver=libver, track_order=False) as file:
        for number in range(300):
            file[f"a group with a long name/data set number {number}"] = np.arange(3) + number
    ds = wf.hdf5(path, group="a group with a long name")
    assert len(ds) == 3
    sample = ds.sample(1)
    assert len(sample) == 300
    assert all(int(sample[f"data set number {number}"]) == number + 1 for number in range(300))


def test_fields_and_groups(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["train/images"] = numbers((6, 8, 8), "u1")
        file["train/labels"] = np.arange(6)
        file["train/classes"] = np.array([b"a", b"b"])
        file["mean"] = 0.5
    with pytest.warns(UserWarning, match=r"classes \[2\].*6 rows"):
        ds = wf.hdf5(path, group="train")
    assert list(ds.sample(0)) == ["images", "labels"]
    assert ds.sample(0)["images"].shape == (1, 8, 8)
    assert "without classes" in ds.batch(2).explain()
    named = wf.hdf5(path, fields={"x": "train/images", "y": "train/labels"})
    assert int(named.sample(4)["y"]) == 4
    assert "'x': 'train/images'" in repr(named)
    crops = named.map(T.RandomCrop(4)).batch(3).numpy()
    assert next(iter(crops))["x"].shape == (3, 1, 4, 4)
    for bad, match in (
        ({"fields": ["train/images", "train/classes"]}, "differ in length"),
        ({"fields": ["test/images"]}, "there is no test/images: its root has mean, train"),
        ({"group": "mean"}, "no group"),
        ({}, "train: name one with group="),
    ):
        with pytest.raises(ValueError, match=match):
            wf.hdf5(path, **bad)


def test_what_is_not_read_says_why(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["references"] = [file.ref, file.ref]
        file["records"] = np.zeros(2, [("a", "i4"), ("b", "f4")])
        file["complex"] = np.zeros(2, "c8")
        file["plain"] = np.arange(2)
        layout = h5py.VirtualLayout((2,), "i8")
        layout[:] = h5py.VirtualSource(file["plain"])
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (2,), "i4", external=[(str(tmp_path / "raw"), 0, 8)])
        file["far"] = h5py.ExternalLink("b.h5", "/x")
        file["good"] = np.arange(2)
    for name, match in (
        ("references", "references"),
        ("records", "compound"),
        ("complex", "compound|complex"),
        ("virtual", "virtual"),
        ("external", "other files"),
        ("far", "another file"),
    ):
        with pytest.raises(wf.UnsupportedSampleError, match=match):
            wf.hdf5(path, fields=["good", name])
    writer = h5py.File(tmp_path / "open.h5", "w", libver="latest")
    writer.create_dataset("x", data=np.arange(3), maxshape=(None,))
    writer.swmr_mode = True
    writer.flush()
    with pytest.raises(wf.UnsupportedSampleError, match="open for writing"):
        wf.hdf5(tmp_path / "open.h5")
    writer.close()
    assert len(wf.hdf5(tmp_path / "open.h5")) == 3
    text = tmp_path / "text.h5"
    text.write_text("no HDF5 at all")
    with pytest.raises(wf.CorruptSampleError, match="no HDF5 file"):
        wf.hdf5(text)


@pytest.mark.parametrize("libver", LIBVERS)
def test_elements_of_variable_length(tmp_path: Path, libver: str) -> None:
    path = tmp_path / "a.h5"
    rng = np.random.default_rng(0)
    lists = [rng.integers(0, 99, int(n)).astype("i4") for n in (0, 3, 70, 1, 5, 2, 9, 30, 0, 4)]
    texts = [f"é{'x' * (n * n)}" for n in range(9)] + [""]
    encoded = [np.frombuffer(picture(n), "u1") for n in range(10)]
    with h5py.File(path, "w", libver=libver) as file:
        for name, kind, values, form in (
            ("lists", h5py.vlen_dtype(">i4"), lists, {}),
            ("packed", h5py.vlen_dtype("i4"), lists, {"chunks": (3,), "compression": "gzip"}),
            ("texts", h5py.string_dtype(), texts, {}),
            ("images", h5py.vlen_dtype("u1"), encoded, {"chunks": (1,)}),
        ):
            made = file.create_dataset(name, (10,), kind, **form)
            for row, value in enumerate(values):
                made[row] = value
    ds = wf.hdf5(path, fields=["lists", "packed", "texts", "images"], images="images")
    for row in (9, 2, 0, 5, 7):
        first, second, text, image = ds.sample(row)
        assert first.tolist() == second.tolist() == lists[row].tolist()
        assert text == texts[row]
        assert image.shape == (3, 9, 7)
    images = wf.hdf5(path, fields={"image": "images", "text": "texts"}, images="image")
    shuffled = images.shuffle(seed=2).map(T.RandomCrop(4)).batch(4).with_options(num_workers=2).numpy()
    assert sorted(text for batch in shuffled for text in batch["text"]) == sorted(texts)
    plain = [
        row.tolist() for (batch,) in wf.hdf5(path, fields="lists").ragged_batch(4).numpy() for row in batch
    ]
    assert plain == [one.tolist() for one in lists]
    with pytest.raises(ValueError, match="encoded images"):
        wf.hdf5(path, fields="lists", images="lists")


def test_a_filter_that_h5py_has_not(tmp_path: Path) -> None:
    """Chunks may be written as they are, whether the library has their filter or not."""
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for name, code in (("deflate", 1), ("blosc2", 32026), ("unknown", 777)):
            plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            plist.set_chunk((4,))
            plist.set_filter(code, h5py.h5z.FLAG_OPTIONAL, (3,))
            made = h5py.h5d.create(
                file.id, name.encode(), h5py.h5t.STD_I32LE, h5py.h5s.create_simple((4,)), plist
            )
            made.write_direct_chunk((0,), zlib.compress(np.arange(4, dtype="i4").tobytes()))
    assert np.array_equal(wf.hdf5(path, fields="deflate").sample(3), [3])
    for name, match in (("blosc2", r"filter 32026 \(blosc2\)"), ("unknown", "filter 777")):
        with pytest.raises(wf.UnsupportedSampleError, match=match):
            wf.hdf5(path, fields=name)


def written(path: Path, rows: int = 40, start: int = 0) -> Path:
    with h5py.File(path, "w") as file:
        file.create_dataset("x", data=numbers((rows, 5), "f4"), chunks=(min(rows, 6), 5), compression="gzip")
        file.create_dataset("y", data=np.arange(start, start + rows))
    return path


def random_pipeline(
    ds: wf.Dataset,
    part: tuple[int, int],
    order: tuple[int, int] | None,
    shard: tuple[int, int] | None,
    batch: int,
) -> wf.Dataset:
    ds = ds.skip(part[0]).take(part[1])
    if order is not None:
        ds = ds.shuffle(seed=order[0], block_size=order[1], window=3)
    if shard is not None:
        ds = ds.shard(*shard)
    return ds.batch(batch)


@pytest.mark.usefixtures("epochs_not_counted")
def test_random_pipelines_are_those_of_arrays(tmp_path: Path) -> None:
    """Shuffles, shards, parts and positions give what the same rows in memory give."""
    for number in range(3):
        written(tmp_path / f"{number}.h5", 40, 40 * number)
    x, y = np.concatenate([numbers((40, 5), "f4")] * 3), np.arange(120)
    rng = np.random.default_rng(5)
    for _ in range(12):
        seed, block, batch = (int(n) for n in rng.integers(1, 20, 3))
        start, count, world = int(rng.integers(0, 30)), int(rng.integers(20, 90)), int(rng.integers(1, 4))
        shuffled, sharded = rng.random(2) < 0.6

        pipeline = partial(
            random_pipeline,
            part=(start, count),
            order=(seed, block) if shuffled else None,
            shard=(world - 1, world) if sharded else None,
            batch=batch,
        )
        workers = int(rng.choice([1, 2, 8]))
        ours = pipeline(wf.hdf5(tmp_path / "{0..2}.h5", fields=["x", "y"])).with_options(num_workers=workers)
        theirs = list(pipeline(wf.from_tensor_slices((x, y))).numpy())
        loader = ours.numpy()
        found = list(loader)
        assert len(found) == len(theirs)
        for (a, b), (c, d) in zip(found, theirs):
            assert np.array_equal(a, c)
            assert np.array_equal(b, d)
        if len(theirs) > 1:
            first = ours.numpy()
            iterator = iter(first)
            next(iterator)
            state = first.state_dict()
            resumed = ours.numpy()
            resumed.load_state_dict(state)
            for (a, b), (c, d) in zip(resumed, theirs[1:], strict=True):
                assert np.array_equal(a, c)
                assert np.array_equal(b, d)


def test_damage_is_a_bad_sample_of_its_chunk(tmp_path: Path) -> None:
    path = written(tmp_path / "a.h5")
    with h5py.File(path) as file:
        chunk = file["x"].id.get_chunk_info(2)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + chunk.size // 2] ^= 1
    path.write_bytes(data)
    ds = wf.hdf5(path, fields=["x", "y"])
    with pytest.raises(wf.CorruptSampleError, match="chunk 2 of x"):
        list(ds.batch(8).numpy())
    for workers in (1, 4):
        loader = ds.batch(8).with_options(on_error="skip", num_workers=workers).numpy()
        seen = [label for _, labels in loader for label in labels.tolist()]
        assert seen == [*range(12), *range(18, 40)]
        assert sorted(bad.index for bad in loader.errors()) == list(range(12, 18))
        replaced = ds.batch(8).with_options(on_error="replace", num_workers=workers).numpy()
        assert sum(len(labels) for _, labels in replaced) == 40
    path.write_bytes(data[:-100])
    with pytest.raises(wf.CorruptSampleError, match="it was cut"):
        wf.hdf5(path)


def test_files_far_away_and_in_folders(tmp_path: Path) -> None:
    for number in range(2):
        written(tmp_path / f"train-{number}.h5", 40, 40 * number)
    written(tmp_path / "test-0.h5", 5)
    assert len(wf.hdf5(tmp_path, split="train")) == 80
    assert len(wf.hdf5(tmp_path)) == 85
    far = wf.hdf5(f"delayed+file://{tmp_path}/train-*.h5?latency_ms=1", fields=["x", "y"])
    near = wf.hdf5([tmp_path / "train-0.h5", tmp_path / "train-1.h5"], fields=["x", "y"])
    for a, b in zip(far.shuffle(seed=1).batch(7).numpy(), near.shuffle(seed=1).batch(7).numpy(), strict=True):
        assert np.array_equal(a[0], b[0])
        assert np.array_equal(a[1], b[1])
    with h5py.File(tmp_path / "other-0.h5", "w") as file:
        file["x"], file["y"] = np.zeros((3, 5)), np.zeros(3)
    with pytest.raises(ValueError, match=r"other-0\.h5"):
        wf.hdf5([tmp_path / "train-0.h5", tmp_path / "other-0.h5"], fields=["x", "y"])


def test_inspect_knows_them(tmp_path: Path) -> None:
    path = written(tmp_path / "a.h5")
    command = [sys.executable, "-m", "wellfed", "inspect", str(path)]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    assert (report["format"], report["samples"], report["bad_samples"]) == ("hdf5", 40, [])
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "x: float32 [5]" in shown
    with h5py.File(path) as file:
        chunk = file["x"].id.get_chunk_info(0)
    data = bytearray(path.read_bytes())
    data[chunk.byte_offset + 9] ^= 1
    path.write_bytes(data)
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(json.loads(done.stdout)["bad_samples"]) == 6
