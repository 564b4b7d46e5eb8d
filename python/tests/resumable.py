"""Pipelines of every kind, a training loop over them, and a program that goes on from states: for `test_resume.py`."""

from __future__ import annotations

import functools
import hashlib
import json
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils import data as stock
from torchvision import datasets
from torchvision.transforms import v2

import wellfed as wf
import wellfed.torch as wt
from wellfed import transforms as T

EPOCHS = 3

# More workers than cores are no matter here.
QUIET = {"multiprocessing_context": "fork"}


def noisy(x: Any) -> Any:
    return {"x": x, "draw": torch.rand(()).item() + np.random.rand() + random.random()}


def picky(x: Any) -> Any:
    if x % 7 == 3:
        raise ValueError(f"{x} is bad")
    return x


class Numbers(stock.Dataset[Any]):
    """Its samples show the seeds of the workers, if there are any."""

    def __len__(self) -> int:
        return 22

    def __getitem__(self, i: int) -> Any:
        worker = stock.get_worker_info()
        return i, 0 if worker is None else worker.seed


def cifar(transform: Any) -> Any:
    """torchvision's CIFAR10 without its files."""
    made = datasets.CIFAR10.__new__(datasets.CIFAR10)
    datasets.VisionDataset.__init__(made, "nowhere", transform=transform)
    made.train = True
    made.data = np.random.default_rng(1).integers(0, 256, (22, 32, 32, 3), np.uint8)
    made.targets = list(range(22))
    return made


RANDOM = v2.Compose([v2.RandomCrop(24, 2), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


def rows(n: int = 22) -> wf.Dataset:
    return wf.from_tensor_slices(np.arange(n))


def crops() -> wf.Dataset:
    pixels = np.random.default_rng(0).integers(0, 256, (22, 24, 20, 3), np.uint8)
    return wf.from_tensor_slices((pixels, np.arange(22)))


def ragged() -> wf.Dataset:
    lengths = np.random.default_rng(2).integers(1, 30, 40)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = np.arange(offsets[-1], dtype=np.int32)
    return wf.from_tensor_slices({"x": wf.Ragged(values, offsets), "n": np.arange(40)})


def of(dataset: Any, **options: Any) -> Callable[[], Any]:
    return lambda: dataset.torch(**options)


def loaders(dataset: Any, **arguments: Any) -> Callable[[], Any]:
    return lambda: wt.DataLoader(dataset, 4, **arguments)


def fed(dataset: Any, **arguments: Any) -> Callable[[], Any]:
    return lambda: wf.feed(stock.DataLoader(dataset, 4, **arguments))


def counted() -> Iterator[int]:
    yield from range(22)


def native() -> wf.Dataset:
    return crops().shuffle(seed=1).map(T.RandomCrop(8), T.RandomHorizontalFlip()).batch(4)


# Each opens its sources, and gives what makes a loader over them.
KINDS: dict[str, Callable[[], Callable[[], Any]]] = {
    "native": lambda: of(native(), num_workers=2),
    "native, fed": lambda: functools.partial(wf.feed, native()),
    "native, samples": lambda: of(rows(7).shuffle(seed=3)),
    "native, a rank": lambda: of(crops().shuffle(seed=1).map(T.RandomCrop(8)).shard(1, 3).batch(2)),
    "native, shuffled batches": lambda: of(crops().map(T.RandomCrop(8)).batch(3).shuffle(seed=4).take(5)),
    "native, mixture": lambda: of(
        wf.sample_from_datasets(
            [rows(12).shuffle(seed=1), rows(9).shuffle(seed=2)], [0.6, 0.4], seed=3
        ).batch(4)
    ),
    "native, buckets": lambda: of(
        ragged().shuffle(seed=2).bucket_by_sequence_length("x", [8, 16], [6, 4, 3])
    ),
    "steps": lambda: of(rows().shuffle(seed=1).map(noisy).batch(4), num_workers=0),
    "steps, workers": lambda: of(rows().shuffle(seed=1).map(noisy).batch(4), num_workers=1, **QUIET),
    "steps, bad samples": lambda: of(
        rows().shuffle(seed=1).map(picky).batch(4), num_workers=0, on_error="skip"
    ),
    "stream": lambda: of(
        wf.from_generator(counted).shuffle(seed=3, buffer_size=5).map(noisy).batch(4), num_workers=0
    ),
    "torch": lambda: loaders(Numbers(), shuffle=True),
    "torch, generator": lambda: loaders(Numbers(), shuffle=True, generator=torch.Generator().manual_seed(5)),
    "torch, workers": lambda: loaders(Numbers(), shuffle=True, num_workers=1, **QUIET),
    "torch, workers in order": lambda: loaders(Numbers(), num_workers=1, **QUIET),
    "torch, rows": lambda: loaders(stock.TensorDataset(torch.arange(22)), shuffle=True),
    "torch, engine": lambda: loaders(cifar(RANDOM), shuffle=True),
    "torch, engine in order": lambda: loaders(cifar(RANDOM)),
    "torch, partly": lambda: loaders(
        cifar(v2.Compose([v2.CenterCrop(24), v2.Lambda(np.array)])), shuffle=True
    ),
    "fed": lambda: fed(Numbers(), shuffle=True),
    "fed, engine": lambda: fed(cifar(RANDOM), shuffle=True),
    "fed, engine in order": lambda: fed(cifar(RANDOM)),
}


def digest(batch: Any) -> str:
    """What is in a batch, in a few characters."""
    sum_ = hashlib.sha256()

    def add(value: Any) -> None:
        if isinstance(value, dict):
            value = list(value.items())
        if isinstance(value, list | tuple):
            for item in value:
                add(item)
        elif isinstance(value, torch.Tensor):
            sum_.update(f"{value.dtype}{tuple(value.shape)}".encode() + value.numpy().tobytes())
        elif isinstance(value, wf.Ragged):
            add([value.values, value.offsets])
        else:
            sum_.update(repr(value).encode())

    add(batch)
    return sum_.hexdigest()[:12]


def train(
    make: Callable[[], Any],
    anew: bool,
    begin: int = 0,
    state: Any = None,
    saved: Callable[[str, int, int, Any], None] | None = None,
) -> list[list[str]]:
    """The batches of each epoch from `begin` on.

    Args:
        make: Makes a loader.
        anew: Whether there is a new one for each epoch.
        begin: The first epoch.
        state: What the first loader goes on from.
        saved: Is given states where checkpoints are written: before an epoch, after each batch, after the epoch; each
            with the epoch that a program would go on with, and how many batches of it have been seen.
    """
    seen: list[list[str]] = []
    loader: Any = None
    for epoch in range(begin, EPOCHS):
        if anew or loader is None:
            loader = None  # as in `for batch in ds.torch()`, where the one before is gone
            loader = make()
            if state is not None:
                loader.load_state_dict(state)
        seen.append([])
        if saved is not None:
            saved("before", epoch, 0, loader.state_dict())
        length = len(loader) if state is None and has_length(loader) else None
        state = None
        for batch in loader:
            seen[-1].append(digest(batch))
            if saved is not None:
                saved("inside", epoch, len(seen[-1]), loader.state_dict())
        if saved is not None:
            saved("after", epoch + 1, 0, loader.state_dict())
        assert length in (None, len(seen[-1])), "the length that was said"
    return seen


def has_length(loader: Any) -> bool:
    try:
        len(loader)
    except TypeError:
        return False
    return True


def main() -> None:
    """Reads [kind, anew, epoch, state] from standard input, several times, and goes on from there."""
    results = []
    for kind, anew, epoch, state in json.load(sys.stdin):
        torch.manual_seed(99)
        results.append(train(KINDS[kind](), anew, epoch, state))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
