"""Samples made one by one: the bits that loaders give, whatever came before, from threads and after a fork."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder

import wellfed as wf
from pictures import picture
from test_process import in_child
from wellfed import transforms as T

TRAIN = (T.RandomResizedCrop(24), T.ColorJitter(0.3, 0.3), T.RandomHorizontalFlip(), T.ToTensor())


def of_loader(ds: wf.Dataset, epochs: int = 2) -> list[list[Any]]:
    loader = ds.numpy()
    return [[image for image, *_ in loader] for _ in range(epochs)]


def pixels() -> wf.Dataset:
    images = np.stack([picture(i, 32, 32) for i in range(9)])
    chain = (T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToTensor())
    return wf.from_tensor_slices((images, np.arange(9))).map(*chain)


@pytest.mark.parametrize("kind", ["photographs", "pixels"])
def test_samples_have_the_bits_of_the_loader(photos: Path, kind: str) -> None:
    ds = wf.image_folder(photos).map(*TRAIN) if kind == "photographs" else pixels()
    for epoch, images in enumerate(of_loader(ds)):
        kept = [ds.sample(index, epoch)[0] for index in reversed(range(len(images)))]
        for ours, theirs in zip(reversed(kept), images, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_sizes_and_channels_may_differ_from_sample_to_sample(tmp_path: Path) -> None:
    folder = tmp_path / "class"
    folder.mkdir()
    rng = np.random.default_rng(0)
    shapes = [(9, 7), (9, 7, 3), (7, 9, 3), (8, 8), (9, 7, 4), (9, 7, 3)]
    pictures = [rng.integers(0, 256, shape, dtype=np.uint8) for shape in shapes]
    for i, array in enumerate(pictures):
        Image.fromarray(array).save(folder / f"{i}.png")
    ds = wf.image_folder(tmp_path).with_options(mode="UNCHANGED", layout="NHWC")
    for index in [0, 1, 2, 3, 4, 5, 5, 4, 2, 0]:
        image, _ = ds.sample(index)
        expected = pictures[index]
        np.testing.assert_array_equal(image, expected[:, :, None] if expected.ndim == 2 else expected)
    colour = ds.with_options(mode="RGB", layout="NCHW")
    chain = (T.Resize(6), T.ToTensor(), T.Normalize([0.5] * 3, [0.2] * 3))
    floats = colour.map(*chain)
    for index in [1, 2, 5, 3]:
        np.testing.assert_array_equal(floats.sample(index)[0], colour.map(*chain).sample(index)[0])


def test_a_bad_sample_is_told_and_the_next_one_is_right(own_photos: Path) -> None:
    for chain in [(T.CenterCrop(8),), ()]:
        ds = wf.image_folder(own_photos).map(*chain) if chain else wf.image_folder(own_photos)
        good = ds.sample(3)[0]
        path = Path(ImageFolder(own_photos).samples[2][0])
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 8])
        with pytest.raises(wf.CorruptSampleError) as raised:
            ds.sample(2)
        assert path.name in str(raised.value)
        np.testing.assert_array_equal(ds.sample(3)[0], good)
        path.write_bytes(whole)
        assert ds.sample(2)[0].shape[0] == 3
        with pytest.raises(wf.WellfedError):
            ds.sample(99)


def test_samples_from_several_threads(photos: Path) -> None:
    ds = wf.image_folder(photos).map(*TRAIN)
    (expected,) = of_loader(ds, 1)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            images = pool.map(lambda index: ds.sample(index)[0], range(len(expected)))
            for ours, theirs in zip(images, expected, strict=True):
                np.testing.assert_array_equal(ours, theirs)


def test_samples_start_no_thread_and_work_in_a_forked_child(photos: Path) -> None:
    ds = wf.image_folder(photos).map(*TRAIN)
    (expected,) = of_loader(ds, 1)
    before = set(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else set()
    stop = threading.Event()

    def busy() -> None:
        while not stop.is_set():
            ds.sample(1)

    def made() -> bool:
        return all(np.array_equal(ds.sample(i)[0], expected[i]) for i in range(len(expected)))

    assert made()
    if before:
        assert set(os.listdir("/proc/self/task")) <= before
    thread = threading.Thread(target=busy)
    thread.start()
    try:
        for _ in range(5):
            assert in_child(made) == "True"
            time.sleep(0.001)
    finally:
        stop.set()
        thread.join()
