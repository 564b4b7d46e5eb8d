"""Data sets for tests with worker processes: in a module, so that spawned workers can import them."""

from __future__ import annotations

import os
import random
import time
from collections import namedtuple
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, default_collate, get_worker_info

from wellfed import _offer

Pair = namedtuple("Pair", ["image", "label"])


@dataclass
class Sample:
    text: str
    values: Any


class Squares(Dataset):
    def __init__(self, n: int = 24):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        get_worker_info()  # so that it is called in workers: batches of it would be looked up
        return i, i * i


class Structures(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return {
            "image": torch.full((3, 80, 80), float(i)),
            "array": np.full((2, 3), i, np.int16),
            "pair": Pair(torch.tensor(i), i * 0.5),
            "text": f"sample {i}",
            "bytes": b"x" * i,
            "list": [i, (i, torch.tensor([True, False]))],
            "big": torch.arange(40_000, dtype=torch.int64) + i,
        }


class Oddities(Dataset):
    """Batches that are not plain contiguous tensors; for batch_size=None."""

    def __len__(self):
        return len(self.make())

    def make(self):
        generator = torch.Generator().manual_seed(0)
        base = torch.rand(4, 64, 90, 3, generator=generator)
        shared = torch.rand(100, 300, generator=generator)
        return [
            base.permute(0, 3, 1, 2),
            base[:, ::2, 1:],
            torch.rand(300, 1, generator=generator).expand(300, 200),
            torch.empty(0, 5),
            torch.tensor(3.5),
            torch.arange(100_000) % 3 == 0,
            torch.rand(200, 200, dtype=torch.complex64, generator=generator),
            torch.rand(200, 200, generator=generator).to(torch.bfloat16),
            torch.rand(3, generator=generator).to(torch.bfloat16),
            torch.rand(300, 300, generator=generator).conj() * 2,
            torch.rand(300, 300, dtype=torch.complex64, generator=generator).conj(),
            torch.eye(50).to_sparse(),
            [shared, shared],
            shared.requires_grad_(),
            torch.nn.Parameter(torch.ones(3)),
            np.asfortranarray(np.arange(60_000, dtype=np.float64).reshape(200, 300)),
            np.array([1, "a", None], dtype=object),
            np.broadcast_to(np.float32(2), (200, 200)),
            Sample("text", [torch.arange(20_000), np.arange(3)]),
            "x" * 200_000,
            None,
            {1, 2, 3},
        ]

    def __getitem__(self, i):
        return self.make()[i]


def as_it_is(value):
    return value


class Raises(Squares):
    def __init__(self, error: Any, at: int = 11):
        super().__init__()
        self.error, self.at = error, at

    def __getitem__(self, i):
        if i == self.at:
            raise self.error
        return i


class TwoArguments(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


class Dies(Squares):
    def __init__(self, how: Any, at: int = 11):
        super().__init__()
        self.how, self.at = how, at

    def __getitem__(self, i):
        if i == self.at:
            if self.how == "exit":
                os._exit(3)
            os.kill(os.getpid(), self.how)
            time.sleep(60)
        return i


class Seeds(Squares):
    def __getitem__(self, i):
        info = get_worker_info()
        assert info.seed == torch.initial_seed()
        assert info.dataset is self
        return torch.tensor(
            [info.id, info.num_workers, info.seed, random.getrandbits(32), np.random.randint(1 << 30)]
        )


class Counts(Squares):
    """Says how often this copy was asked, and which process it lives in."""

    asked = 0

    def __getitem__(self, i):
        self.asked += 1
        return torch.tensor([i, self.asked, os.getpid()])


class Bulk(Squares):
    def __getitems__(self, indices):
        return [(i, -i) for i in indices]


class Forks(Dataset):
    """Its samples are 1 where a process that it forked has a batch of its own outside of the worker's slots."""

    def __len__(self):
        return 4

    def __getitem__(self, i):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                batch = default_collate([torch.full((50_000,), -1.0)] * 4)
                code = int(_offer.current is not None or not batch.eq(-1).all() or in_slot(batch))
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        return torch.full((50_000,), 1.0 if status == 0 else 0.0)


def in_slot(batch):
    """Whether it lies in memory that a worker of wellfed shares with its caller."""
    address = batch.data_ptr()
    for line in Path("/proc/self/maps").read_text().splitlines():
        start, end = (int(part, 16) for part in line.split()[0].split("-"))
        if start <= address < end:
            return "memfd:wellfed" in line
    return False


class Shares(IterableDataset):
    """Worker k has sizes[k] samples."""

    def __init__(self, *sizes: int, fail: int = -1):
        self.sizes, self.fail = sizes, fail

    def __iter__(self):
        info = get_worker_info()
        k = 0 if info is None else info.id
        for i in range(self.sizes[k]):
            if i == self.fail:
                raise ValueError("a bad line")
            yield 100 * k + i


class Large(Squares):
    """Batches of `size` bytes a sample."""

    def __init__(self, n: int = 24, size: int = 1 << 20):
        super().__init__(n)
        self.size = size

    def __getitem__(self, i):
        return torch.full((self.size,), i % 251, dtype=torch.uint8)


class Keeps(Squares):
    """A collation that keeps what it made."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __getitem__(self, i):
        return torch.full((70_000,), float(i))


class KeepingCollate:
    def __init__(self):
        self.first = None

    def __call__(self, samples):
        batch = torch.utils.data.default_collate(samples)
        if self.first is None:
            self.first = batch
        return batch, float(self.first.mean())


class Holds(Squares):
    """Holds data that spawned workers get: an array, a view of a tensor, a string list."""

    def __init__(self):
        super().__init__(8)
        self.array = np.arange(200_000)
        self.tensor = torch.arange(100_000.0)
        self.view = self.tensor[10:20]
        self.names = [f"name {i}" for i in range(1000)]
        self.long = [f"\nname {i} \ud800" for i in range(150_000)]
        self.same = ["same"] * 150_000

    def __getitem__(self, i):
        self.array[0] += 1
        shared = self.view.data_ptr() == self.tensor.data_ptr() + 40
        assert self.long[140_000] == "\nname 140000 \ud800"
        assert len(self.long) == len(self.same) == 150_000
        assert self.same[0] is self.same[-1]
        return int(self.array[i]), float(self.view[0]), self.names[i], shared, os.getpid()


class OpenFile:
    """Opens a file when it is unpickled, as data sets of databases do."""

    def __init__(self, path: str):
        self.path = path
        self.file = open(path, "rb")  # noqa: SIM115

    def __getstate__(self):
        return {"path": self.path}

    def __setstate__(self, state):
        self.__init__(state["path"])


class Lines(Squares):
    """Reads whole passes of a file through a position that must not be shared."""

    def __init__(self, path: str):
        super().__init__(40)
        self.open = OpenFile(path)

    def __getitem__(self, i):
        file = self.open.file
        file.seek(i * 4)
        time.sleep(0.001)
        return int.from_bytes(file.read(4), "little")


class Unpicklable(Squares):
    def __reduce__(self):
        return fails_to_load, ()


def fails_to_load():
    raise ValueError("the data set does not like to be unpickled")


class Slow(Squares):
    def __init__(self, seconds: float, at: int = 11):
        super().__init__()
        self.seconds, self.at = seconds, at

    def __getitem__(self, i):
        if i == self.at:
            wait_for_a_long_time(self.seconds)
        return i


def wait_for_a_long_time(seconds):
    time.sleep(seconds)


def init_fails(worker_id):
    raise RuntimeError(f"init of {worker_id} failed")


def init_marks(worker_id):
    get_worker_info().dataset.n = 1000 + worker_id


class Marked(Squares):
    def __getitem__(self, i):
        return self.n
