"""A data set as a sequence, in torch's own classes, and in a notebook."""

from __future__ import annotations

import io
import pickle
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset, default_collate, random_split

import wellfed as wf
from wellfed import transforms as T


def rows(n: int = 20) -> wf.Dataset:
    return wf.from_tensor_slices((np.arange(n), np.eye(n, 3, dtype=np.float32)))


def crops() -> wf.Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 40, 40, 3), np.uint8)
    return wf.from_tensor_slices((pixels, np.arange(6))).map(T.RandomCrop(8))


def test_elements_by_number() -> None:
    ds = rows()
    assert (len(ds), int(ds[3][0]), int(ds[-1][0]), int(ds[np.int64(4)][0])) == (20, 3, 19, 4)
    for index in (20, -21):
        with pytest.raises(IndexError, match="20 elements"):
            ds[index]
    with pytest.raises(TypeError):
        ds["a"]  # type: ignore[index]
    shuffled = ds.shuffle(seed=3)
    assert [int(shuffled[i][0]) for i in range(20)] == [int(x) for x, _ in shuffled.numpy()]
    batch = ds.batch(8)[2]
    assert (batch[0].tolist(), batch[1].shape) == ([16, 17, 18, 19], (4, 3))


def test_texts_bytes_and_json_of_one_sample_are_no_lists(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, content in {"a.txt": "grün".encode(), "a.json": b'{"x": [1]}', "a.bin": b"zz"}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    ds = wf.webdataset(tmp_path / "a.tar")
    expected = {"__key__": "a", "txt": "grün", "json": {"x": [1]}, "bin": b"zz"}
    assert ds[0] == ds.sample(0) == expected
    assert list(ds) == [expected]
    seen: list[Any] = []

    def look(sample: Any) -> Any:
        seen.append(sample)
        return sample["txt"].upper()

    mapped = ds.map(look)
    assert mapped[0] == mapped.sample(0) == "GRÜN"
    assert list(mapped.batch(1).numpy(num_workers=0)) == [["GRÜN"]]
    assert all(sample == expected for sample in seen)


def test_elements_are_drawn_anew_from_torchs_generator() -> None:
    ds = crops()
    torch.manual_seed(1)
    first = [ds[0][0] for _ in range(8)]
    assert len({image.tobytes() for image in first}) > 1
    torch.manual_seed(1)
    assert all(np.array_equal(a, ds[0][0]) for a in first)
    assert np.array_equal(ds.sample(0, 5)[0], ds.sample(0, 5)[0])


def test_nothing_is_drawn_where_nothing_is_random() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    rows()[0]
    assert torch.equal(expected, torch.rand(1))


def test_slices() -> None:
    ds = rows()
    numbers = [int(x) for x, _ in ds.numpy()]
    for part in (
        slice(5, 9),
        slice(None, 3),
        slice(15, None),
        slice(-4, -1),
        slice(8, 2),
        slice(0, 99),
        slice(None),
    ):
        assert [int(x) for x, _ in ds[part].numpy()] == numbers[part], part
    with pytest.raises(ValueError, match="step 2"):
        ds[::2]


def test_iterating_goes_through_epochs() -> None:
    ds = rows().shuffle(seed=0)
    first, second = [[int(x) for x, _ in ds] for _ in range(2)]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    x, y = next(iter(rows()))
    assert isinstance(x, np.ndarray)
    assert y.dtype == np.float32


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_torchs_loader_takes_it(context: str) -> None:
    loader: Any = DataLoader(rows(), batch_size=6, num_workers=2, multiprocessing_context=context)
    batches = list(loader)
    assert [b[0].tolist() for b in batches] == [list(range(i, min(i + 6, 20))) for i in range(0, 20, 6)]
    assert batches[0][1].dtype == torch.float32


def test_worker_seeds_count() -> None:
    def run() -> list[Any]:
        torch.manual_seed(3)
        return [b[0] for b in DataLoader(crops(), batch_size=3, num_workers=2)]  # type: ignore[arg-type]

    assert all(map(torch.equal, run(), run()))


def test_subsets_and_splits() -> None:
    ds: Any = rows()
    assert [int(x) for x, _ in Subset(ds, [3, 1, 2])] == [3, 1, 2]
    parts = random_split(ds, [15, 5], torch.Generator().manual_seed(0))
    assert sorted(int(x) for part in parts for x, _ in part) == list(range(20))
    assert next(iter(DataLoader(parts[1], batch_size=5)))[0].shape == (5,)


def test_default_collate_works_on_elements() -> None:
    ds = wf.from_tensor_slices({"x": np.arange(4), "y": np.zeros((4, 2))})
    batch = default_collate(ds.__getitems__([0, 2]))
    assert batch["x"].tolist() == [0, 2]
    assert batch["y"].shape == (2, 2)


def test_python_steps_by_number() -> None:
    ds = rows().map(lambda e: {"n": int(e[0])}).batch(2)
    assert ds[1]["n"].tolist() == [2, 3]
    assert rows().map(lambda e: {"n": int(e[0])})[7] == {"n": 7}
    assert rows().map(lambda e: {"n": int(e[0])}).sample(7) == {"n": 7}


def test_it_pickles_after_use() -> None:
    ds = rows()
    ds[0]
    iter(ds)
    assert int(pickle.loads(pickle.dumps(ds))[3][0]) == 3


def test_a_notebook_shows_samples() -> None:
    page = crops()._repr_html_()
    assert page.count("data:image/png") == 6
    assert "RandomCrop" in page
    assert crops()._repr_html_() == page


def test_a_notebook_shows_errors_and_never_waits() -> None:
    def broken(sample: Any) -> Any:
        raise ValueError("no <good>")

    page = rows().map(broken)._repr_html_()
    assert "ValueError: no &lt;good&gt;" in page

    released = threading.Event()

    def slow(sample: Any) -> Any:
        released.wait(60)

    assert "not made within" in rows().map(slow)._repr_html_()
    released.set()
    for thread in threading.enumerate():
        if thread.name == "wellfed-grid":
            thread.join()


def test_showing_disturbs_no_generator() -> None:
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    rows().map(lambda e: torch.rand(1))._repr_html_()
    assert torch.equal(expected, torch.rand(1))
