"""`on_error`, `num_threads` and `memory_budget` of the loader: natively, in workers, threads and inline."""

from __future__ import annotations

import errno
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import data as stock
from torchvision import datasets
from torchvision.transforms import v2

import torchvision_sets as sets
import wellfed as wf
import wellfed.torch as wt
from wellfed import _cores

pytestmark = pytest.mark.filterwarnings("ignore:worker processes are forked while:RuntimeWarning")


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """Threads of loaders that are gone would be warned of by other tests."""
    yield
    gc.collect()


BAD = (2, 3, 7)
WAYS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "thread"},
]


class Holed(stock.Dataset[int]):
    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> int:
        if i in BAD:
            raise self.error or ValueError(f"no {i}")
        return i


class Together(Holed):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[i] for i in indices]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    "dataset", [Holed(), Together(), stock.Subset(Holed(), range(10))], ids=lambda d: type(d).__name__
)
def test_bad_samples_are_left_out_or_replaced_and_listed(dataset: Any, way: dict[str, Any]) -> None:
    skipping = wt.DataLoader(dataset, 4, on_error="skip", **way)
    assert [batch.tolist() for batch in skipping] == [[0, 1], [4, 5, 6], [8, 9]]
    assert [(bad.index, bad.cause, bad.replaced_by) for bad in skipping.errors()] == [
        (i, f"ValueError: no {i}", None) for i in BAD
    ]
    replacing = wt.DataLoader(dataset, 4, on_error="replace", **way)
    assert [batch.tolist() for batch in replacing] == [[0, 1, 0, 0], [4, 5, 6, 4], [8, 9]]
    assert [bad.replaced_by for bad in replacing.errors()] == [0, 0, 4]
    assert "errors() lists bad samples; 3 so far" in replacing.explain()
    with pytest.raises(ValueError, match="no 2"):
        list(wt.DataLoader(dataset, 4, **way))


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_what_may_pass_is_no_bad_sample(way: dict[str, Any]) -> None:
    for error in (
        TimeoutError("slow"),
        ConnectionResetError("cut"),
        OSError(errno.EIO, "Input/output error"),
    ):
        loader = wt.DataLoader(Holed(error), 4, on_error="skip", **way)
        with pytest.raises(type(error)):
            list(loader)
        assert not loader.errors()
    truncated = wt.DataLoader(Holed(OSError("image file is truncated")), 4, on_error="skip", **way)
    assert sum(map(len, truncated)) == 7


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_batch_without_a_good_sample_is_an_error(way: dict[str, Any]) -> None:
    loader = wt.DataLoader(Holed(), 2, sampler=[0, 1, 2, 3], on_error="skip", **way)
    with pytest.raises(ValueError, match="no 2"):
        list(loader)


def test_a_state_goes_on_behind_bad_samples() -> None:
    def make() -> Any:
        return wt.DataLoader(
            Holed(), 4, shuffle=True, generator=torch.Generator().manual_seed(3), on_error="skip"
        )

    whole = [batch.tolist() for batch in make()]
    loader = make()
    batches = iter(loader)
    head = [next(batches).tolist(), next(batches).tolist()]
    other = make()
    other.load_state_dict(loader.state_dict())
    assert head + [batch.tolist() for batch in other] == whole


def test_native_batches_without_bad_files(tmp_path: Path) -> None:
    root = sets._folders(tmp_path / "x")
    (root / "ant" / "2.jpg").write_bytes(b"\xff\xd8 not a picture")
    ds = datasets.ImageFolder(root, v2.Compose([v2.CenterCrop(8), v2.ToImage()]))
    bad = [path.endswith("ant/2.jpg") for path, _ in ds.samples].index(True)
    loader = wf.feed(stock.DataLoader(ds, 3), on_error="skip", num_threads=1, memory_budget=1 << 28)
    text = loader.explain()
    assert text.startswith("DataLoader, native")
    assert "num_threads=1" in text
    assert f"memory_budget={1 << 28}" in text
    sizes = [(len(x), len(y)) for x, y in loader]
    assert sorted(sizes) == [(2, 2), (3, 3)]
    assert [sample.index for sample in loader.errors()] == [bad]
    with pytest.raises(Exception, match="cannot identify"):
        list(wt.DataLoader(ds, 3))
    fed = wf.feed(loader, batch_size=2)
    assert (fed.on_error, fed.num_threads, fed.memory_budget) == ("skip", 1, 1 << 28)


def test_a_budget_that_is_too_small_is_said_by_explain(tmp_path: Path) -> None:
    ds = sets.image_folder(tmp_path, transform=v2.Compose([v2.Resize((900, 900)), v2.ToImage()]))
    text = wt.DataLoader(ds, 4, memory_budget=1000).explain()
    assert not text.startswith("DataLoader, native")
    assert "memory_budget=1000" in text
    assert "not used" in text


def test_arguments_are_checked_and_explained() -> None:
    class Stream(stock.IterableDataset[int]):
        def __iter__(self) -> Any:
            return iter(range(3))

    with pytest.raises(ValueError, match="on_error is 'ignore'; it must be one of raise, skip, replace"):
        wt.DataLoader(Holed(), on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"an iterator that has raised cannot go on\nhint"):
        wt.DataLoader(Stream(), 2, on_error="skip")
    with pytest.raises(ValueError, match="there are no batches"):
        wt.DataLoader(Holed(), None, on_error="skip")
    with pytest.raises(ValueError, match="num_threads is 0"):
        wt.DataLoader(Holed(), num_threads=0)
    with pytest.raises(ValueError, match="memory_budget is -1"):
        wt.DataLoader(Holed(), memory_budget=-1)
    text = wt.DataLoader(Holed(), 2, num_threads=3).explain()
    assert "num_threads=3" in text
    assert "not used: the engine does not make whole batches" in text


def test_ranks_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_cores, "usable_cores", lambda _: 8.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert _cores.engine_threads() == 2
    assert _cores.engine_threads(5) == 5
    ds = sets.image_folder(tmp_path, transform=v2.Compose([v2.CenterCrop(8), v2.ToImage()]))
    source = wt.DataLoader(ds, 2)._planned().native_source
    assert source is not None
    assert '"num_workers":2' in source._source.to_json().replace(" ", "")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert _cores.engine_threads() == "auto"
