"""`feed`: everything of a loader is carried over, or the call is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data as stock

import wellfed as wf
import wellfed.torch as wt
from torch_same import same


def table() -> stock.TensorDataset:
    return stock.TensorDataset(torch.arange(30).view(10, 3), torch.arange(10))


def pairs(samples: list[Any]) -> tuple[int, list[Any]]:
    return len(samples), samples


class Stream(stock.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


class Twos(stock.Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        yield [1, 0]
        yield [5, 5, 2]

    def __len__(self) -> int:
        return 2


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"batch_size": 4, "shuffle": True},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": None},
        {"batch_size": None, "sampler": [3, 1]},
        {"batch_sampler": Twos()},
        {"batch_size": 3, "sampler": [0, 9, 4, 4]},
        {"batch_size": 3, "collate_fn": pairs},
        {"batch_size": 3, "generator": torch.Generator(), "shuffle": True},
        {"dataset": Stream(), "batch_size": 3},
        {"dataset": Stream(), "batch_size": None},
    ],
)
def test_a_loader_is_carried_over_whole(arguments: dict[str, Any]) -> None:
    dataset = arguments.pop("dataset", table())
    results = []
    for fed in (False, True):
        torch.manual_seed(4)
        if "generator" in arguments:
            arguments["generator"].manual_seed(4)
        loader = stock.DataLoader(dataset, **arguments)
        if fed:
            loader = wf.feed(loader)
            assert isinstance(loader, wt.DataLoader)
        results.append([list(loader), list(loader)])
    assert same(*results)


def test_every_argument_is_kept() -> None:
    def init(worker: int) -> None: ...

    given: dict[str, Any] = {
        "batch_size": 2,
        "num_workers": 2,
        "collate_fn": pairs,
        "pin_memory": True,
        "drop_last": True,
        "timeout": 9,
        "worker_init_fn": init,
        "multiprocessing_context": "fork",
        "generator": torch.Generator(),
        "prefetch_factor": 3,
        "persistent_workers": True,
        "in_order": False,
    }
    loader = stock.DataLoader(table(), **given)
    loader.note = "mine"  # type: ignore[attr-defined]
    fed = wf.feed(loader)
    for name in [*given, "dataset", "sampler", "note"]:
        assert getattr(fed, name) == getattr(loader, name), name


def test_arguments_stand_in_place_of_the_loaders() -> None:
    loader = stock.DataLoader(table(), batch_size=2, shuffle=True, num_workers=2, persistent_workers=True)
    assert [x[1].tolist() for x in wf.feed(loader, batch_size=5, shuffle=False, num_workers=0)] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ]
    own = stock.DataLoader(table(), batch_sampler=Twos())
    assert len(wf.feed(own, batch_size=5)) == 2
    assert [len(x[1]) for x in wf.feed(stock.DataLoader(table()), batch_sampler=Twos())] == [2, 3]
    with pytest.raises(ValueError, match="mutually exclusive"):
        wf.feed(loader, batch_sampler=Twos(), shuffle=True)


def test_data_sets_and_loaders_of_wellfed() -> None:
    fed = wf.feed(table(), batch_size=4, shuffle=True)
    assert isinstance(fed, wt.DataLoader)
    assert wf.feed(fed) is fed
    ours = wf.from_tensor_slices(np.arange(4)).batch(2)
    assert [x.tolist() for x in wf.feed(ours)] == [[0, 1], [2, 3]]
    loader = ours.torch()
    assert wf.feed(loader) is loader
    with pytest.raises(TypeError, match="give its dataset"):
        wf.feed(loader, batch_size=2)
    with pytest.raises(TypeError, match="not int"):
        wf.feed(3)


class Doubled(stock.DataLoader[Any]):
    def __iter__(self) -> Any:
        return (2 * x for (x,) in super().__iter__())


class Defaults(stock.DataLoader[Any]):
    def __init__(self, dataset: Any) -> None:
        super().__init__(dataset, batch_size=3)


def test_classes_that_change_how_a_loader_works_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Doubled has its own __iter__.*\nhint: derive it from wellfed"):
        wf.feed(Doubled(table()))
    assert same(list(wf.feed(Defaults(table()))), list(Defaults(table())))


def test_import_of_wellfed_leaves_torch_alone() -> None:
    code = (
        "import sys, wellfed; wellfed.feed; assert 'torch' not in sys.modules; "
        "wellfed.feed([1, 2]); assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_batch_sampler_gives_way_with_its_size() -> None:
    batches = stock.BatchSampler(stock.SequentialSampler(range(10)), 4, True)
    loader = stock.DataLoader(table(), batch_sampler=batches)
    shuffled = wf.feed(loader, shuffle=True)
    assert (shuffled.batch_size, shuffled.drop_last, len(shuffled)) == (4, True, 2)
    assert isinstance(shuffled.sampler, stock.RandomSampler)
    last = wf.feed(loader, drop_last=False)
    assert same(list(last), list(stock.DataLoader(table(), 4)))
    assert [len(x) for x, _ in wf.feed(loader, batch_size=5)] == [5, 5]
    own = stock.DataLoader(table(), batch_sampler=Twos())
    with pytest.raises(
        ValueError, match=r"shuffle cannot be changed alone(.|\n)*Twos\nhint: give batch_size"
    ):
        wf.feed(own, shuffle=True)
    assert wf.feed(own, shuffle=True, batch_size=3).batch_size == 3


@pytest.mark.filterwarnings("ignore:.*is deprecated:UserWarning")  # torchdata, on current torch
def test_a_loaded_state_goes_along() -> None:
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    for kind in (wt.DataLoader, torchdata.StatefulDataLoader):
        loader = kind(table(), batch_size=3)
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        again = kind(table(), batch_size=3)
        again.load_state_dict(state)
        fed = wf.feed(again, native=False)
        assert same(list(fed), list(stock.DataLoader(table(), 3))[1:])
        again.load_state_dict(state)
        with pytest.raises(ValueError, match=r"than batch_size would give\nhint: call load_state_dict"):
            wf.feed(again, batch_size=2)


def web_loader(*arguments: Any, **named: Any) -> Any:
    """webdataset's, if it is there; else a class that is made like it."""
    try:
        from webdataset import WebLoader
    except ImportError:
        return WebLoaderLike(*arguments, **named)
    return WebLoader(*arguments, **named)


class WebLoaderLike(stock.IterableDataset[Any]):
    """As webdataset 1.0 has it: a pipeline, of which the first stage is torch's loader."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.pipeline: list[Any] = [stock.DataLoader(*arguments, **named)]

    def __iter__(self) -> Iterator[Any]:
        items: Any = iter(self.pipeline[0])
        for stage in self.pipeline[1:]:
            items = stage(items)
        return iter(items)


WebLoaderLike.__module__ = "webdataset.compat"


def test_a_web_loader_is_fed_and_not_batched_again() -> None:
    loader = web_loader(table(), batch_size=4)
    loader.pipeline.append(doubled)
    expected = list(loader)
    fed = wf.feed(loader)
    assert type(fed) is type(loader)
    assert isinstance(fed.pipeline[0], wt.DataLoader)
    assert not isinstance(loader.pipeline[0], wt.DataLoader), "the given one is as it was"
    assert same(list(fed), expected)
    assert wf.feed(loader, batch_size=2).pipeline[0].batch_size == 2


def doubled(batches: Any) -> Iterator[Any]:
    for batch in batches:
        yield [batch[0] * 2, batch[1]]


def test_what_is_only_iterable_is_refused() -> None:
    class Batches:
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    with pytest.raises(TypeError, match=r"Batches\nhint: an iterable data set is derived"):
        wf.feed(Batches())
