"""What the comparison with torch's DataLoader loads: data sets as people write them, and how each is iterated.

A case makes the arguments of a `torch.utils.data.DataLoader`; the same arguments go to every loader.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, TensorDataset

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def photos(root: Path) -> dict[str, Any]:
    """Photographs in class folders, augmented as ImageNet is."""
    from torchvision import datasets
    from torchvision import transforms as T

    steps = [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)]
    dataset = datasets.ImageFolder(str(root), T.Compose(steps))
    return {"dataset": dataset, "batch_size": 64, "shuffle": True, "drop_last": True}


def cifar(root: Path) -> dict[str, Any]:
    """CIFAR10's 50,000 pictures with its usual augmentation. The pixels are random; their values cost nothing."""
    from torchvision import datasets
    from torchvision import transforms as T

    steps = [
        T.RandomCrop(32, padding=4),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize((0.5,) * 3, (0.5,) * 3),
    ]
    # The constructor wants the archive; what it leaves behind is this.
    dataset = datasets.CIFAR10.__new__(datasets.CIFAR10)
    draw = np.random.default_rng(0)
    dataset.root, dataset.train = str(root), True
    dataset.data = draw.integers(0, 256, (50_000, 32, 32, 3), np.uint8)
    dataset.targets = draw.integers(0, 10, 50_000).tolist()
    dataset.transform, dataset.target_transform = T.Compose(steps), None
    dataset.transforms = datasets.vision.StandardTransform(dataset.transform, None)
    return {"dataset": dataset, "batch_size": 256, "shuffle": True, "drop_last": True}


def rows(root: Path) -> dict[str, Any]:
    """A million small rows and their labels."""
    dataset = TensorDataset(torch.randn(1_000_000, 16), torch.randint(0, 10, (1_000_000,)))
    return {"dataset": dataset, "batch_size": 256, "shuffle": True}


class Records(Dataset[Any]):
    """Parses JSON, works a little in NumPy and waits for 1 ms, as a read from a network disk would."""

    def __init__(self, length: int) -> None:
        draw = np.random.default_rng(0)
        self.lines = [json.dumps({"x": draw.random(64).tolist(), "y": i % 10}) for i in range(256)]
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[Any, int]:
        record = json.loads(self.lines[index % 256])
        x = np.asarray(record["x"], np.float32)
        x = (x - x.mean()) / (x.std() + 1e-6)
        time.sleep(0.001)
        return torch.from_numpy(np.outer(x, x)), record["y"]


def python(root: Path) -> dict[str, Any]:
    """Nothing but Python."""
    return {"dataset": Records(4_000), "batch_size": 32, "shuffle": True}


class Fields(Dataset[Any]):
    """Forty small tensors a sample, as tabular and language data have them."""

    def __init__(self, length: int) -> None:
        self.values = torch.arange(40 * 8, dtype=torch.float32).reshape(40, 8)
        self.names = [f"field_{k}" for k in range(40)]
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return dict(zip(self.names, self.values, strict=True))


def fields(root: Path) -> dict[str, Any]:
    """A dict of 40 small tensors."""
    return {"dataset": Fields(8_000), "batch_size": 16, "shuffle": True}


class Blocks(Dataset[Any]):
    """A megabyte a sample, which costs nothing to make: the way to the consumer is what is timed."""

    def __init__(self, length: int) -> None:
        self.block = torch.zeros(256, 1024)
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return self.block


def blocks(root: Path) -> dict[str, Any]:
    """Batches of 64 MB."""
    return {"dataset": Blocks(64 * 60), "batch_size": 64}


class Held(Dataset[Any]):
    """A data set that holds much in memory, and takes one row of it a sample."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: int) -> Any:
        row = self.held[index]
        return len(row) if isinstance(row, str) else torch.from_numpy(row)


def array(root: Path) -> dict[str, Any]:
    """An array of 2 GB, and workers that are spawned."""
    held = np.zeros((500_000, 1024), np.float32)
    held[:, 0] = 1.0
    held.fill(0.5)
    return {"dataset": Held(held), "batch_size": 64, "shuffle": True, "multiprocessing_context": "spawn"}


def strings(root: Path) -> dict[str, Any]:
    """A list of ten million strings, and workers that are spawned."""
    held = [f"folder/{k % 1000:03d}/{k:08d}.jpg" for k in range(10_000_000)]
    return {"dataset": Held(held), "batch_size": 64, "shuffle": True, "multiprocessing_context": "spawn"}


class Decoded(Dataset[Any]):
    """Photographs as Pillow decodes and shrinks them, in a data set that nobody but its author knows."""

    def __init__(self, root: Path) -> None:
        self.paths = sorted(root.rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(self.paths[index]) as image:
            pixels = np.asarray(image.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR))
        return torch.from_numpy(pixels.copy())


def pillow(root: Path) -> dict[str, Any]:
    """Python that spends its time in Pillow, which lets go of the interpreter lock: processes and threads."""
    return {"dataset": Decoded(root), "batch_size": 32, "shuffle": True}


@dataclass(frozen=True)
class Case:
    """One comparison."""

    make: Callable[[Path], dict[str, Any]]
    """Arguments of the loader, given the folder of photographs."""

    workers: tuple[int, ...]
    """`num_workers` that stock is run with; ours takes the last."""

    bar: str
    """What is promised, over the fastest stock setting."""

    threads: bool = False
    """Also run ours with `multiprocessing_context="thread"`."""

    first_batch: bool = False
    """Time the first batch of a fresh loader, and memory, instead of whole epochs."""


CASES = {
    "photos": Case(photos, (0, 2, 4), "within 5 % of the native pipeline"),
    "cifar": Case(cifar, (0, 2), ">= 15x"),
    "rows": Case(rows, (0,), ">= 20x"),
    "python": Case(python, (2,), ">= 1x"),
    "fields": Case(fields, (2,), ">= 2x"),
    "blocks": Case(blocks, (2,), ">= 1.5x"),
    "pillow": Case(pillow, (2,), "", threads=True),
    "array": Case(array, (2,), ">= 3x sooner", first_batch=True),
    "strings": Case(strings, (2,), ">= 3x sooner", first_batch=True),
}
