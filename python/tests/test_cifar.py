"""CIFAR's Python version, which torchvision downloads: torchvision's images and labels, and nothing in it is run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import torchvision_sets as sets
import wellfed as wf


def images_of(dataset: wf.Dataset) -> tuple[Any, Any]:
    images, labels = next(iter(dataset.with_options(layout="NHWC").batch(len(dataset)).numpy()))
    return images, labels


def test_cifar10_is_that_of_torchvision(tmp_path: Path) -> None:
    theirs = sets.cifar10(tmp_path)
    images, labels = images_of(wf.cifar10(tmp_path))
    assert np.array_equal(images, theirs.data)
    assert labels.tolist() == theirs.targets


def test_cifar100_is_that_of_torchvision(tmp_path: Path) -> None:
    theirs = sets.cifar100(tmp_path)
    images, labels = images_of(wf.cifar100(tmp_path))
    assert np.array_equal(images, theirs.data)
    assert labels.tolist() == theirs.targets


class Trap:
    """What does something when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_nothing_in_a_file_is_run(tmp_path: Path, protocol: int) -> None:
    sprung = tmp_path / "sprung"
    content = {"data": Trap(sprung), "labels": [1]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol))
    with pytest.raises(wf.CorruptSampleError, match="none of the functions that arrays are written with"):
        wf.cifar10(tmp_path, train=False)
    assert not sprung.exists()


@pytest.mark.parametrize("protocol", [3, 4])
def test_files_that_python_3_wrote_are_read(tmp_path: Path, protocol: int) -> None:
    data = np.arange(2 * 3072, dtype=np.uint64).astype(np.uint8).reshape(2, 3072)
    content = {"data": data, "labels": [3, 9], "filenames": ["a.png", "b.png"]}
    (tmp_path / "test_batch").write_bytes(pickle.dumps(content, protocol))
    images, labels = images_of(wf.cifar10(tmp_path, train=False))
    assert np.array_equal(images, data.reshape(2, 3, 32, 32).transpose(0, 2, 3, 1))
    assert labels.tolist() == [3, 9]
