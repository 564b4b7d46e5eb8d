"""Data loading as tutorials write it, with one line changed: the same shapes, types and ranges of values as stock.

Every snippet is a function of the class `DataLoader`: the changed line is its import.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from torchvision import datasets, transforms
from torchvision.transforms import v2

import wellfed.torch
from pictures import picture, write_folder

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

pytestmark = pytest.mark.filterwarnings(
    # Tests of the engine in the same process leave its threads.
    "ignore:worker processes are forked while:RuntimeWarning",
    "ignore:'pin_memory' argument is set as true but no accelerator:UserWarning",
    # CIFAR10 unpickles arrays of an older NumPy.
    r"ignore:dtype\(\)",
)

Snippet = Callable[[Any, Path], Iterator[Any]]


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"NOT TESTED HERE: needs {package}")


def compare(snippet: Snippet, place: Path, *, equal: bool, atol: float = 1e-5) -> list[Any]:
    """Runs a snippet with torch's class and with ours; returns our batches.

    Args:
        snippet: Gives batches.
        place: Its folder.
        equal: Whether values must be equal; otherwise their range is compared, as for random augmentation.
        atol: By how much equal values may differ.
    """
    found = []
    for loader_class in (torch.utils.data.DataLoader, wellfed.torch.DataLoader):
        torch.manual_seed(0)
        found.append(list(snippet(loader_class, place)))
    stock, ours = found
    assert len(stock) == len(ours) > 0
    for one, other in zip(stock, ours):
        assert type(one) is type(other)
        for a, b in zip(leaves(one), leaves(other), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            if equal or not a.is_floating_point():
                torch.testing.assert_close(b, a, atol=atol, rtol=1e-5)
            else:
                reach = float(a.max() - a.min())
                assert abs(float(a.min() - b.min())) < 0.2 * reach
                assert abs(float(a.max() - b.max())) < 0.2 * reach
                assert abs(float(a.mean() - b.mean())) < 0.2 * reach
    return ours


def leaves(batch: Any) -> list[torch.Tensor]:
    if isinstance(batch, torch.Tensor):
        return [batch]
    return [leaf for part in (batch.values() if isinstance(batch, dict) else batch) for leaf in leaves(part)]


# CIFAR10, as in the PyTorch tutorial "Training a Classifier"


@pytest.fixture
def cifar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files in the layout of CIFAR10, with the checksums that torchvision's class expects exchanged for theirs."""
    base = tmp_path / "cifar-10-batches-py"
    base.mkdir()
    random = np.random.default_rng(0)

    def write(name: str, content: dict[str, Any]) -> tuple[str, str]:
        data = pickle.dumps(content)
        (base / name).write_bytes(data)
        return name, hashlib.md5(data).hexdigest()

    def batch(count: int) -> dict[str, Any]:
        pixels = random.integers(0, 256, (count, 3072), dtype=np.uint8)
        return {"data": pixels, "labels": random.integers(0, 10, count).tolist()}

    train = [write(f"data_batch_{i}", batch(20)) for i in range(1, 6)]
    test = [write("test_batch", batch(10))]
    meta = write("batches.meta", {"label_names": [f"class {i}" for i in range(10)]})
    monkeypatch.setattr(datasets.CIFAR10, "train_list", [list(entry) for entry in train])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [list(entry) for entry in test])
    monkeypatch.setattr(datasets.CIFAR10, "meta", {"filename": meta[0], "key": "label_names", "md5": meta[1]})
    return tmp_path


def cifar10(DataLoader: Any, root: Path) -> Iterator[Any]:
    transform = transforms.Compose(
        [transforms.ToTensor(), transforms.Normalize((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))]
    )
    batch_size = 4
    trainset = torchvision.datasets.CIFAR10(root=root, train=True, download=False, transform=transform)
    trainloader = DataLoader(trainset, batch_size=batch_size, shuffle=True, num_workers=2)
    testset = torchvision.datasets.CIFAR10(root=root, train=False, download=False, transform=transform)
    testloader = DataLoader(testset, batch_size=batch_size, shuffle=False, num_workers=2)
    dataiter = iter(trainloader)
    yield next(dataiter)
    for _epoch in range(2):
        for data in trainloader:
            inputs, labels = data
            yield inputs, labels
    yield from testloader


def test_cifar10(cifar: Path) -> None:
    ours = compare(cifar10, cifar, equal=True)
    images, labels = ours[0]
    assert (images.shape, images.dtype) == ((4, 3, 32, 32), torch.float32)
    assert labels.dtype == torch.int64
    assert -1 <= float(images.min()) < -0.9
    assert 0.9 < float(images.max()) <= 1


# ImageFolder, as in the "ImageNet training in PyTorch" example


def imagenet_val(DataLoader: Any, root: Path) -> Iterator[Any]:
    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    val_loader = DataLoader(
        datasets.ImageFolder(
            root,
            transforms.Compose(
                [transforms.Resize(256), transforms.CenterCrop(224), transforms.ToTensor(), normalize]
            ),
        ),
        batch_size=5,
        shuffle=False,
        num_workers=2,
        pin_memory=True,
    )
    yield from val_loader


def imagenet_train(DataLoader: Any, root: Path) -> Iterator[Any]:
    normalize = transforms.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225])
    train_dataset = datasets.ImageFolder(
        root,
        transforms.Compose(
            [
                transforms.RandomResizedCrop(64),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                normalize,
            ]
        ),
    )
    train_loader = DataLoader(
        train_dataset, batch_size=12, shuffle=True, num_workers=2, pin_memory=True, sampler=None
    )
    yield from train_loader


def test_resize_and_center_crop_with_pin_memory(tmp_path: Path) -> None:
    ours = compare(imagenet_val, write_folder(tmp_path / "photos", count=12), equal=True)
    assert [tuple(images.shape) for images, _ in ours] == [(5, 3, 224, 224)] * 2 + [(2, 3, 224, 224)]


def test_random_resized_crop(tmp_path: Path) -> None:
    compare(imagenet_train, write_folder(tmp_path / "photos", count=24), equal=False)


# Transforms on whole batches, where the model is


def raw_batches(DataLoader: Any, root: Path) -> Iterator[Any]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    load = v2.Compose([v2.ToImage(), v2.Resize((72, 72), antialias=True)])
    loader = DataLoader(datasets.ImageFolder(root, load), batch_size=8, num_workers=2, pin_memory=True)
    augment = v2.Compose(
        [
            v2.CenterCrop(64),
            v2.RandomHorizontalFlip(p=1.0),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    for images, labels in loader:
        assert images.dtype == torch.uint8
        images = augment(images.to(device, non_blocking=True))
        yield images.as_subclass(torch.Tensor).cpu(), labels


def test_gpu_side_transforms_on_raw_batches(tmp_path: Path) -> None:
    # On tensors, torchvision's resizing rounds otherwise than Pillow's, which ours equals: by one level of 255.
    compare(raw_batches, write_folder(tmp_path / "photos", count=12), equal=True, atol=1.01 / 255 / 0.224)


# A data set that only waits


class SlowDataset(Dataset[Any]):
    def __init__(self, n: int = 40) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, idx: int) -> tuple[torch.Tensor, int]:
        time.sleep(0.001)
        return torch.full((3, 8, 8), float(idx)), idx % 10


def slow(DataLoader: Any, _: Path) -> Iterator[Any]:
    loader = DataLoader(SlowDataset(), batch_size=8, shuffle=True, num_workers=2, prefetch_factor=2)
    for _epoch in range(2):
        yield from loader


def test_synthetic_data_set_that_sleeps(tmp_path: Path) -> None:
    compare(slow, tmp_path, equal=True)


# Albumentations


class AlbumentationsDataset(Dataset[Any]):
    """As in the documentation of Albumentations."""

    def __init__(self, file_paths: list[Path], labels: list[int], transform: Any = None) -> None:
        self.file_paths = file_paths
        self.labels = labels
        self.transform = transform

    def __len__(self) -> int:
        return len(self.file_paths)

    def __getitem__(self, idx: int) -> tuple[torch.Tensor, int]:
        image = np.array(Image.open(self.file_paths[idx]).convert("RGB"))
        if self.transform:
            image = self.transform(image=image)["image"]
        return image, self.labels[idx]


def albumentations(DataLoader: Any, root: Path) -> Iterator[Any]:
    import albumentations as A
    from albumentations.pytorch import ToTensorV2

    transform = A.Compose(
        [
            A.SmallestMaxSize(max_size=80),
            A.RandomCrop(height=64, width=64),
            A.HorizontalFlip(p=0.5),
            A.Normalize(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)),
            ToTensorV2(),
        ],
        seed=137,
    )
    paths = sorted(path for path in root.rglob("*") if path.is_file())
    dataset = AlbumentationsDataset(paths, [i % 3 for i in range(len(paths))], transform)
    yield from DataLoader(dataset, batch_size=8, shuffle=False, num_workers=2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
def test_albumentations_with_totensorv2(tmp_path: Path) -> None:
    needs("albumentations")
    ours = compare(albumentations, write_folder(tmp_path / "photos", count=24), equal=False)
    assert ours[0][0].shape == (8, 3, 64, 64)


# LMDB


class LMDBDataset(Dataset[Any]):
    """Opened where it is read: an environment must not cross a fork."""

    def __init__(self, path: str, transform: Any = None) -> None:
        import lmdb

        self.path = path
        self.transform = transform
        self.env: Any = None
        with lmdb.open(path, readonly=True, lock=False) as env, env.begin() as txn:
            self.length = txn.stat()["entries"]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        if self.env is None:
            import lmdb

            self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False)
        with self.env.begin(write=False) as txn:
            image, label = pickle.loads(txn.get(f"{index:08}".encode()))
        return (self.transform(image) if self.transform else image), label


def lmdb_backed(DataLoader: Any, root: Path) -> Iterator[Any]:
    dataset = LMDBDataset(str(root / "lmdb"), transforms.ToTensor())
    yield from DataLoader(dataset, batch_size=6, shuffle=True, num_workers=2, drop_last=True)


def test_lmdb(tmp_path: Path) -> None:
    needs("lmdb")
    import lmdb

    with lmdb.open(str(tmp_path / "lmdb"), map_size=1 << 24) as env, env.begin(write=True) as txn:
        for i in range(20):
            txn.put(f"{i:08}".encode(), pickle.dumps((picture(i, 32, 32), i)))
    assert len(compare(lmdb_backed, tmp_path, equal=True)) == 3


# Gradient accumulation


def accumulation(DataLoader: Any, root: Path) -> Iterator[Any]:
    transform = transforms.Compose([transforms.Resize((32, 32)), transforms.ToTensor()])
    loader = DataLoader(datasets.ImageFolder(root, transform), batch_size=2, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    accumulation_steps = 4
    optimizer.zero_grad()
    for i, (inputs, labels) in enumerate(loader):
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss = loss / accumulation_steps
        loss.backward()
        if (i + 1) % accumulation_steps == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
        yield inputs, labels
    yield model[1].weight.detach()


def test_gradient_accumulation_over_4_micro_batches(tmp_path: Path) -> None:
    compare(accumulation, write_folder(tmp_path / "photos", count=24), equal=True)
