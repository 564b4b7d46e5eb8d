"""Samples that somebody else listed: `image_files` by path, `encoded_images` in memory."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wellfed as wf
from wellfed import _loader
from wellfed import transforms as T


def listed(photos: Path) -> tuple[list[Path], list[int]]:
    """As `image_folder` orders them."""
    paths = [path for folder in sorted(photos.iterdir()) for path in sorted(folder.iterdir())]
    classes = sorted({path.parent.name for path in paths})
    return paths, [classes.index(path.parent.name) for path in paths]


def batches(ds: wf.Dataset, **options: Any) -> list[tuple[Any, Any]]:
    transforms = (T.Resize(40), T.CenterCrop(32), T.ToTensor())
    loader = ds.shuffle(seed=4).map(*transforms).batch(7).numpy(**options)
    return [batch for _ in range(2) for batch in loader]


def equal(a: list[tuple[Any, Any]], b: list[tuple[Any, Any]]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for p, q in zip(a, b) for x, y in zip(p, q))


def encoded(paths: list[Path], labels: list[int] | None, chunks: int) -> wf.Dataset:
    files = [path.read_bytes() for path in paths]
    parts = np.array_split(np.arange(len(files)), chunks)
    data = [b"".join(files[i] for i in part) for part in parts]
    offsets = [np.cumsum([0, *(len(files[i]) for i in part)]).astype(np.int32) for part in parts]
    return wf.encoded_images(data, offsets, labels)


@pytest.mark.usefixtures("epochs_not_counted")
def test_lists_give_what_the_folder_gives(photos: Path) -> None:
    paths, labels = listed(photos)
    expected = batches(wf.image_folder(photos))
    for ds in (
        wf.image_files(paths, labels),
        wf.image_files(map(str, paths), torch.tensor(labels)),
        encoded(paths, labels, 1),
        encoded(paths, labels, 3),
    ):
        assert len(ds) == len(paths)
        for options in ({"num_workers": 1, "row_index": "off"}, {"num_workers": 3}):
            assert equal(batches(ds, **options), expected)
        assert equal(batches(ds.cache()), expected)
        assert equal(batches(pickle.loads(pickle.dumps(ds))), expected)
        again = wf.Dataset.from_json(ds.to_json(), ds._arrays[0])
        assert equal(batches(again), expected)
        with pytest.raises(ValueError, match="without its"):
            wf.Dataset.from_json(ds.to_json())


def test_the_cache_holds_images_of_both(photos: Path) -> None:
    paths, labels = listed(photos)
    jpegs = sum(path.suffix == ".jpg" for path in paths)
    for ds in (wf.image_files(paths, labels), encoded(paths, labels, 2)):
        loader = ds.cache().map(T.RandomCrop(24)).batch(7).numpy()
        for _ in range(2):
            list(loader)
        assert loader.stats()["cache"]["samples"] == jpegs


@pytest.mark.usefixtures("epochs_not_counted")
def test_row_indexes_are_those_of_the_folder(own_photos: Path, tmp_path: Path) -> None:
    paths, labels = listed(own_photos)
    kept = str(tmp_path / "rows")
    for mode in ("beside", kept):
        # The loader writes them when it ends.
        loader = wf.image_folder(own_photos).map(T.RandomCrop(24)).batch(4).numpy(row_index=mode)
        list(loader)
        loader.close()
        # One pass and no more, so that every index it uses was there before.
        ds = wf.image_files(paths, labels).map(T.RandomCrop(24)).with_options(row_index=mode)
        given = ds._native.loader_given()
        given.begin(0)
        given.submit(list(range(len(paths))))
        given.finish()
        assert given.next() is not None
        stats = _loader.Stats(*given.stats())
        assert stats["row_index"]["used"] == sum(path.suffix == ".jpg" for path in paths)
    with pytest.raises(ValueError, match="cannot be kept in files"):
        encoded(paths, labels, 1).map(T.RandomCrop(24)).batch(4).numpy(row_index=kept)


def test_a_missing_file_is_an_error_of_its_sample(own_photos: Path) -> None:
    paths, labels = listed(own_photos)
    paths[2] = own_photos / "no such.jpg"
    ds = wf.image_files(paths, labels).map(T.Resize((8, 8))).batch(4)
    with pytest.raises(FileNotFoundError, match=r"no such\.jpg") as caught:
        list(ds.numpy())
    assert isinstance(caught.value, wf.NotFoundError)
    assert (caught.value.index, caught.value.key) == (2, str(paths[2]))
    loader = ds.numpy(on_error="skip")
    assert [len(y) for _, y in loader] == [3, 4, 4]
    assert [bad.key for bad in loader.errors()] == [str(paths[2])]


def test_a_damaged_image_in_memory_is_an_error_of_its_sample(photos: Path) -> None:
    good = listed(photos)[0][0].read_bytes()
    ds = wf.encoded_images(good + good[:200] + good, [0, len(good), len(good) + 200, 2 * len(good) + 200])
    loader = ds.map(T.Resize((8, 8))).batch(3).numpy(on_error="skip")
    assert [len(images) for images in loader] == [2]
    assert [bad.index for bad in loader.errors()] == [1]
    with pytest.raises(wf.LimitExceededError, match="image"):
        ds.with_options(max_bytes=len(good) - 1).map(T.Resize((8, 8))).sample(0)


def test_memory_is_shared_and_kept_alive(photos: Path) -> None:
    good = np.frombuffer(listed(photos)[0][0].read_bytes(), np.uint8).copy()
    for data in (good, memoryview(good), torch.from_numpy(good)):
        ds = wf.encoded_images(data, np.array([0, len(good)]))
        assert ds._arrays[0] is not None
        assert np.shares_memory(ds._arrays[0][0], good)
    expected = ds.sample(0)
    del data, good
    assert np.array_equal(ds.sample(0), expected)


def test_a_table_of_arrow_is_read_where_it_lies(photos: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    paths, labels = listed(photos)
    column = pa.array([path.read_bytes() for path in paths], pa.binary())
    _, offsets, data = column.buffers()
    ds = wf.encoded_images(data, np.frombuffer(offsets, np.int32)[: len(paths) + 1], labels)
    assert equal(batches(ds), batches(wf.image_folder(photos)))


def test_what_does_not_fit_is_refused(photos: Path) -> None:
    with pytest.raises(TypeError, match="list of paths"):
        wf.image_files("a.jpg")
    for paths, labels, text in (
        (["a", "b"], [1], r"int64 \[1\] instead of int64 \[2\]"),
        (["a", ""], None, "path 1 is empty"),
        (["a\0b"], None, "2 paths were given for 1"),
        (["a", "b\udcff"], None, "path 1 is not UTF-8"),
        ([b"a", b"b\xff"], None, "path 1 is not UTF-8"),
    ):
        with pytest.raises(ValueError, match=text):
            wf.image_files(paths, labels)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="whole numbers"):
        wf.image_files(["a"], [0.5])
    for data, offsets, text in (
        (b"aa", [0, 3], "go to 3, but its data has 2 bytes"),
        (b"aa", [1, 0], "offset 1 of chunk 0 is 0, less than 1"),
        (b"aa", [-1, 2], "below 0"),
        (b"aa", [], "no offset"),
        ([b"aa"], [[0, 1], [0, 1]], "1 chunks, but there are offsets for 2"),
    ):
        with pytest.raises(ValueError, match=text):
            wf.encoded_images(data, offsets)
    with pytest.raises(TypeError):
        wf.encoded_images(np.zeros(3, np.int16), [0, 3])
    assert len(wf.image_files([])) == len(wf.encoded_images(b"", [0])) == len(wf.encoded_images([], [])) == 0


def test_they_say_what_they_are() -> None:
    assert repr(wf.image_files(["a", "b"], [0, 1])) == "image_files(2 paths, labels)"
    assert repr(wf.encoded_images(b"ab", [0, 1, 2])) == "encoded_images(2 images)"
