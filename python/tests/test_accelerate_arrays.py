"""`numpy.load` while samples are made: NumPy's arrays, and NumPy's errors."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data as stock

import wellfed as wf
import wellfed.torch as wt
from torch_same import same
from wellfed._accelerate import arrays

ARRAYS: dict[str, Any] = {
    "floats": np.linspace(0, 1, 60, dtype=np.float32).reshape(3, 4, 5),
    "doubles": np.linspace(0, 1, 7),
    "bytes": np.arange(200, dtype=np.uint8).reshape(10, 20),
    "bools": np.array([True, False, True]),
    "complex": np.array([1 + 2j]),
    "scalar": np.float32(3),
    "empty": np.zeros((0, 4), np.float32),
    "fortran": np.asfortranarray(np.arange(12, dtype=np.float32).reshape(3, 4)),
    "line": np.asfortranarray(np.arange(12, dtype=np.float32)),
    "foreign": np.arange(5, dtype=">i4"),
    "text": np.array(["a", "bcd"]),
    "times": np.array(["2020-01-01"], "datetime64[D]"),
    "fields": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "many": np.zeros((1,) * 30, np.float32),
}


@pytest.fixture
def on() -> Any:
    arrays.enter()
    yield
    arrays.leave()


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_are_numpys(name: str, tmp_path: Path, on: None) -> None:
    path = tmp_path / "a.npy"
    np.save(path, ARRAYS[name])
    expected = np.load.__wrapped__(path)  # type: ignore[attr-defined]
    for given in (path, str(path)):
        found = np.load(given)
        assert type(found) is type(expected)
        assert (found.dtype, found.shape, found.strides) == (expected.dtype, expected.shape, expected.strides)
        assert found.flags.writeable == expected.flags.writeable
        assert np.array_equal(found, expected)
    with open(path, "rb") as file:
        assert np.array_equal(np.load(file), expected)
    assert np.array_equal(np.load(path, mmap_mode="r"), expected)


def test_other_files_are_numpys_business(tmp_path: Path, on: None) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.arange(100, dtype=np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole + b"more")
    assert np.array_equal(np.load(path), np.arange(100))
    for cut in (0, 5, 60, 128, 300):
        path.write_bytes(whole[:cut])
        with pytest.raises((ValueError, EOFError)) as found:
            np.load(path)
        with pytest.raises((ValueError, EOFError)) as expected:
            np.load.__wrapped__(path)  # type: ignore[attr-defined]
        assert str(found.value) == str(expected.value)
    # A header that promises more than there is takes no memory for it.
    path.write_bytes(whole.replace(b"(100,)", b"(1000000000,)")[: len(whole)])
    with pytest.raises(ValueError, match=r"cannot reshape|header|read"):
        np.load(path)
    np.savez(tmp_path / "b.npz", x=np.arange(3))
    assert np.load(tmp_path / "b.npz")["x"].tolist() == [0, 1, 2]
    np.save(tmp_path / "c.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle"):
        np.load(tmp_path / "c.npy")
    assert np.load(tmp_path / "c.npy", allow_pickle=True)[0] == {}
    with pytest.raises(FileNotFoundError):
        np.load(tmp_path / "gone.npy")
    with pytest.raises(IsADirectoryError):
        np.load(tmp_path)


class Files(stock.Dataset[Any]):
    def __init__(self, folder: Path) -> None:
        self.paths = [folder / f"{place}.npy" for place in range(12)]
        for place, path in enumerate(self.paths):
            np.save(path, np.random.default_rng(place).random((3, 80, 80), np.float32))

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(np.load(self.paths[i])), i


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_are_the_stock_loaders(workers: int, tmp_path: Path) -> None:
    theirs = stock.DataLoader(Files(tmp_path), batch_size=4, num_workers=workers)
    ours = wf.feed(theirs)
    for _ in range(3):
        assert same(list(theirs), list(ours))
    del ours
    gc.collect()  # what iterators hold of it is given back


def test_it_is_given_back(tmp_path: Path) -> None:
    before = np.load
    loader = wt.DataLoader(Files(tmp_path), batch_size=4)
    batches = iter(loader)
    next(batches)
    reads: list[Any] = []

    def other_thread() -> None:
        reads.append(arrays._state.inside)

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    assert reads == [False]
    list(batches)
    del batches
    gc.collect()
    assert np.load is before
    with wf.accelerate():
        assert np.load is not before
    assert np.load is before
