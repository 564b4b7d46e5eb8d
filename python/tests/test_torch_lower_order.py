"""Order of samples and rows of tensors: the same batches as the stock loader's, from the same random numbers."""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data as stock
from torchvision.transforms import v2

import torchvision_sets as sets
import wellfed.torch as wt
from torch_same import same

N = 103


def table(n: int = N) -> stock.TensorDataset:
    return stock.TensorDataset(
        torch.arange(n * 3, dtype=torch.float32).view(n, 3), torch.arange(n), torch.ones(n, 2, 2) > 0
    )


def parts() -> stock.TensorDataset:
    return stock.TensorDataset(-torch.rand(40, 3), torch.arange(40) + 1000, torch.zeros(40, 2, 2) > 0)


SETS: dict[str, Callable[[], Any]] = {
    "whole": table,
    "subset": lambda: stock.Subset(table(), [5, 3, 99, 3, 40, 41, 42, 8, 9]),
    "range": lambda: stock.Subset(table(), range(10, 60)),
    "array": lambda: stock.Subset(table(), np.arange(0, 100, 3)),
    "concat": lambda: stock.ConcatDataset([table(), parts()]),
    "nested": lambda: stock.Subset(
        stock.ConcatDataset([stock.Subset(parts(), [7, 1, 2]), table(), parts()]), [2, 0, 50, 120, 3]
    ),
    "split": lambda: stock.random_split(table(), [60, 43], torch.Generator().manual_seed(1))[1],
}

ORDERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "sequential": lambda d: {"batch_size": 4},
    "one": lambda d: {},
    "shuffle": lambda d: {"batch_size": 4, "shuffle": True},
    "drop_last": lambda d: {"batch_size": 4, "shuffle": True, "drop_last": True},
    "replacement": lambda d: {"batch_size": 5, "sampler": stock.RandomSampler(d, True, 75)},
    "replacement of 64": lambda d: {"batch_size": 5, "sampler": stock.RandomSampler(d, True, 64)},
    "rounds": lambda d: {"batch_size": 5, "sampler": stock.RandomSampler(d, num_samples=2 * len(d) + 3)},
    "weights": lambda d: {"batch_size": 3, "sampler": stock.WeightedRandomSampler([0.1, 3.0, 0.5], 20)},
    "picked": lambda d: {"batch_size": 2, "sampler": stock.SubsetRandomSampler([4, 1, 2])},
    "rank": lambda d: {"batch_size": 3, "sampler": stock.DistributedSampler(d, 4, 1)},
    "rank in order": lambda d: {
        "batch_size": 3,
        "sampler": stock.DistributedSampler(d, 4, 3, shuffle=False, drop_last=True),
    },
    "more ranks than samples": lambda d: {"sampler": stock.DistributedSampler(stock.Subset(d, [0, 1]), 7, 6)},
    "own": lambda d: {"batch_sampler": Odd(len(d))},
    "list": lambda d: {"batch_size": 3, "sampler": [3, 1, 0, 2]},
    "from the end": lambda d: {"batch_size": 3, "sampler": [3, -1, 0, -2]},
}


class Odd(stock.Sampler[list[int]]):
    """Batches of various sizes, drawn from torch's own generator."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[list[int]]:
        for size in (1, 4, 2):
            yield torch.randint(self.n, (size,)).tolist()


def epochs(loader: Any, count: int = 3) -> list[Any]:
    taken = []
    for epoch in range(count):
        if isinstance(loader.sampler, stock.DistributedSampler):
            loader.sampler.set_epoch(epoch)
        taken.append(list(loader))
    return [*taken, torch.rand(2)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", SETS)
def test_rows_of_tensors_come_as_from_the_stock_loader(kind: str, order: str) -> None:
    results = []
    for loader_of in (stock.DataLoader, wt.DataLoader):
        torch.manual_seed(7)
        dataset = SETS[kind]()
        loader = loader_of(dataset, **ORDERS[order](dataset))
        results.append(epochs(loader))
    assert "gathered" in loader.explain()
    assert same(*results)


@pytest.mark.parametrize("order", ["shuffle", "drop_last", "replacement", "rounds", "weights", "picked"])
@pytest.mark.parametrize("stop", [0, 2, None])
def test_a_generator_of_the_user_is_left_where_the_stock_loader_leaves_it(
    order: str, stop: int | None
) -> None:
    results = []
    for loader_of in (stock.DataLoader, wt.DataLoader):
        generator = torch.Generator().manual_seed(5)
        arguments = ORDERS[order](table())
        if "sampler" in arguments:
            arguments["sampler"].generator = generator
        loader = loader_of(table(), generator=generator, **arguments)
        batches = iter(loader)
        head = [next(batches) for _ in range(stop)] if stop is not None else list(batches)
        results.append([head, generator.get_state(), list(loader), generator.get_state()])
    assert same(*results)


def test_two_iterators_do_not_disturb_each_other() -> None:
    results = []
    for loader_of in (stock.DataLoader, wt.DataLoader):
        torch.manual_seed(0)
        loader = loader_of(table(), batch_size=10, shuffle=True)
        results.append(list(zip(loader, loader, strict=True)))
    assert same(*results)


def test_changes_between_epochs_are_seen() -> None:
    dataset = table()
    loader = wt.DataLoader(dataset, batch_size=100)
    first = next(iter(loader))[1]
    dataset.tensors = tuple(t.flip(0) for t in dataset.tensors)
    assert torch.equal(next(iter(loader))[1], dataset.tensors[1][:100])
    assert not torch.equal(first, dataset.tensors[1][:100])


def test_batches_are_fresh_memory() -> None:
    dataset = table()
    for batch in wt.DataLoader(dataset, batch_size=N):
        batch[0].fill_(-1)
    assert dataset.tensors[0].min() == 0


class Sub(stock.TensorDataset):
    def __getitem__(self, index: int) -> Any:
        return tuple(t + 1 for t in super().__getitem__(index))


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (Sub(torch.arange(4)), "subclass|Python code"),
        (stock.Subset(Sub(torch.arange(4)), [0, 1]), "Python"),
        (stock.TensorDataset(torch.rand(4, 2, requires_grad=True)), "gradients"),
        (stock.TensorDataset(torch.eye(4).to_sparse()), "dense"),
        (stock.Subset(table(), [0, -1]), "0 to 102"),
    ],
)
def test_what_may_differ_stays_in_python(dataset: Any, words: str) -> None:
    loader = wt.DataLoader(dataset, batch_size=2)
    assert loader.explain().splitlines()[0].endswith("Python: the data set runs as it is")
    assert re.search(words, loader.explain())
    if not isinstance(dataset, stock.TensorDataset) or not dataset.tensors[0].is_sparse:
        assert same(list(loader), list(stock.DataLoader(dataset, batch_size=2)))


def test_methods_of_the_instance_or_class_that_were_replaced_are_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stock.TensorDataset, "__getitem__", lambda self, index: index)
    assert next(iter(wt.DataLoader(table(), batch_size=3))).tolist() == [0, 1, 2]


@pytest.mark.parametrize("order", [name for name in ORDERS if name != "own"])
@pytest.mark.parametrize("stop", [1, 3, None])
def test_a_state_goes_on_where_it_was_taken(order: str, stop: int | None) -> None:
    arguments = ORDERS[order](table())
    torch.manual_seed(3)
    loader = wt.DataLoader(table(), **arguments)
    batches = iter(loader)
    for _ in itertools.islice(batches, stop):
        pass
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    rest = [*batches, *loader]
    torch.manual_seed(99)
    again = wt.DataLoader(table(), **arguments)
    again.load_state_dict(state)
    resumed = list(again)
    over = stop is None or stop > len(loader)
    assert same(resumed if over else [*resumed, *again], rest)
    assert len(pickle.dumps(state)) < 10_000


class ByLoss:
    """A sampler that chooses by what training has said so far."""

    def __init__(self) -> None:
        self.next = 0

    def __len__(self) -> int:
        return 6

    def __iter__(self) -> Any:
        for _ in range(6):
            yield self.next


class BatchesByLoss(ByLoss):
    def __iter__(self) -> Any:
        for _ in range(6):
            yield [self.next, self.next]


@pytest.mark.parametrize("batches", [False, True])
def test_a_sampler_that_looks_at_losses_is_asked_when_torch_asks_it(batches: bool, tmp_path: Path) -> None:
    def train(kind: Any) -> list[Any]:
        sampler: Any = BatchesByLoss() if batches else ByLoss()
        loader = kind(data, batch_sampler=sampler) if batches else kind(data, sampler=sampler)
        seen = []
        for _, y in loader:
            seen.append(y.tolist())
            sampler.next = (sampler.next + 1) % 6
        return seen

    data = sets.image_folder(tmp_path, transform=v2.Compose([v2.CenterCrop(8), v2.ToImage()]))
    assert train(wt.DataLoader) == train(stock.DataLoader)
    sampler: Any = ByLoss()
    text = wt.DataLoader(data, sampler=sampler).explain()
    assert text.startswith("DataLoader, native")
    assert "not before the batch" in text
    assert "several batches ahead" in wt.DataLoader(data, sampler=sampler, num_workers=1).explain()
