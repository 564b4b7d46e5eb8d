"""`loader.accumulate(n)`: groups, their true sizes, and gradients that equal those of one large batch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import IterableDataset, Sampler, TensorDataset

from wellfed.torch import DataLoader


def rows(n: int, batch_size: int = 1, **arguments: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(float(n))), batch_size=batch_size, **arguments)


class Stream(IterableDataset[int]):
    """Says nothing of its length."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.n))


def groups(micros: Any) -> list[tuple[int, int, bool]]:
    return [(micro.index, micro.count, micro.last) for micro in micros]


@pytest.mark.parametrize(
    ("batches", "n", "sizes"),
    [(8, 4, [4, 4]), (10, 4, [4, 4, 2]), (3, 4, [3]), (3, 1, [1, 1, 1]), (0, 4, [])],
)
@pytest.mark.parametrize("stream", [False, True])
def test_groups_know_how_many_they_are(batches: int, n: int, sizes: list[int], stream: bool) -> None:
    loader: Any = DataLoader(Stream(batches), batch_size=1) if stream else rows(batches)
    expected = [(i, size, i == size - 1) for size in sizes for i in range(size)]
    micros = loader.accumulate(n)
    assert groups(micros) == expected
    assert groups(micros) == expected, "in the next epoch too"
    assert [float(x[0]) for x in (micro.batch for micro in micros)] == [float(i) for i in range(batches)]
    if not stream:
        assert len(micros) == batches
        assert micros.steps == len(sizes)


def test_gradients_equal_those_of_one_batch() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(20, 3), torch.randn(20, 1))
    model = nn.Linear(3, 1)

    def gradients(loader: Any) -> list[torch.Tensor]:
        found = []
        for micro in loader:
            x, y = micro.batch
            (nn.functional.mse_loss(model(x), y) / micro.count).backward()
            if micro.last:
                found.append(model.weight.grad.clone())
                model.zero_grad()
        return found

    # The last group is 2 batches of 2: dividing by 4 would halve its gradient.
    small = gradients(DataLoader(data, batch_size=2).accumulate(4))
    large = gradients(DataLoader(data, batch_size=8).accumulate(1))
    assert len(small) == len(large) == 3
    torch.testing.assert_close(small, large)


@pytest.mark.parametrize("n", [0, -1, 2.0, True, None])
def test_n_is_checked(n: Any) -> None:
    with pytest.raises(ValueError, match="positive number of batches per step, but got n="):
        rows(3).accumulate(n)


class Misstated(Sampler[int]):
    def __init__(self, said: int, gives: int) -> None:
        self.said, self.gives = said, gives

    def __len__(self) -> int:
        return self.said

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.gives))


@pytest.mark.parametrize(("said", "gives"), [(6, 5), (5, 6)])
def test_a_wrong_length_is_an_error_rather_than_a_lost_gradient(said: int, gives: int) -> None:
    micros = rows(9, sampler=Misstated(said, gives)).accumulate(4)
    with pytest.raises(RuntimeError, match=f"says it has {said} batches, and gave .*\n*hint: __len__"):
        list(micros)


class Synced(nn.Linear):
    """Has what `DistributedDataParallel` has."""

    log: list[str]

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        self.log.append("off")
        yield
        self.log.append("on")


class FullyShared(nn.Linear):
    """Has what `fully_shard` gives a module."""

    log: list[bool]

    def set_requires_gradient_sync(self, sync: bool) -> None:
        self.log.append(sync)


def test_gradients_are_exchanged_for_the_last_of_a_group() -> None:
    ddp, fsdp, plain = Synced(1, 1), FullyShared(1, 1), nn.Linear(1, 1)
    ddp.log, fsdp.log = [], []
    for micro in rows(5).accumulate(3):
        with micro.no_sync(ddp, fsdp, plain):
            ddp.log.append(f"batch {micro.index}")
    assert ddp.log == [
        "off",
        "batch 0",
        "on",
        "off",
        "batch 1",
        "on",
        "batch 2",
        "off",
        "batch 0",
        "on",
        "batch 1",
    ]
    assert fsdp.log == [False, False, True, False, True]
