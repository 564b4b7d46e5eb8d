"""Batches share the engine's memory, and nobody's memory changes under them."""

from __future__ import annotations

import gc
import hashlib
import threading
import weakref

import numpy as np
import pytest
import torch

import wellfed as wf
from wellfed import _native
from wellfed import transforms as T


def noise(count: int = 64) -> wf.Dataset:
    images = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    chain = (T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True))
    return wf.from_tensor_slices((images, np.arange(count))).shuffle(seed=1).map(*chain).batch(8)


def digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array)).hexdigest()


def test_frameworks_share_the_memory() -> None:
    columns = noise()._native.loader()
    columns.start_epoch()
    batch = columns.next()
    assert batch is not None
    array = batch[0]
    assert isinstance(array, _native.Array)
    assert array.__dlpack_device__() == (1, 0)
    views = [np.asarray(array), np.from_dlpack(array), torch.from_dlpack(array)]
    address = views[0].ctypes.data
    assert address % 64 == 0
    assert views[1].ctypes.data == address
    assert views[2].data_ptr() == address
    views[0][0, 0, 0, 0] = 17.0
    assert views[1][0, 0, 0, 0] == views[2][0, 0, 0, 0] == 17.0
    assert views[2].is_contiguous()
    with pytest.raises(BufferError):
        array.__dlpack__(copy=True)
    with pytest.raises(BufferError):
        array.__dlpack__(dl_device=(2, 0))


def test_memory_is_not_used_again_before_the_last_array_is_gone() -> None:
    loader = noise().repeat(50).torch(num_workers=1, prefetch=2)
    batches = iter(loader)
    held, _ = next(batches)
    address, part = held.data_ptr(), held[3:5, 1]
    expected = part.clone()
    del held
    seen = {next(batches)[0].data_ptr() for _ in range(100)}
    assert address not in seen
    assert torch.equal(part, expected)
    # Only a few buffers go round and round.
    assert len(seen) < 12
    # Given back, it is used again or freed: either way no more buffers are about than before.
    del part
    assert len({next(batches)[0].data_ptr() for _ in range(100)}) < 12


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("framework", ["torch", "numpy"])
@pytest.mark.parametrize("workers", [1, 3])
def test_kept_batches_never_change(framework: str, workers: int) -> None:
    loader = getattr(noise(), framework)(num_workers=workers)
    kept, sums = [], []
    for _ in range(5):
        for images, labels in loader:
            kept.append((images, labels))
            sums.append((digest(np.asarray(images)), digest(np.asarray(labels))))
    loader.close()
    for _ in noise().numpy():
        pass
    assert [(digest(np.asarray(a)), digest(np.asarray(b))) for a, b in kept] == sums
    assert len({a for a, _ in sums}) == len(sums)


def test_batches_outlive_their_loader_and_data_set() -> None:
    (first, _), *_ = list(noise().torch())
    expected = first.clone()
    gc.collect()
    assert torch.equal(first, expected)
    first.mul_(2)
    assert torch.equal(first, expected * 2)


@pytest.mark.usefixtures("epochs_not_counted")
def test_arrays_are_released_on_any_thread() -> None:
    batches = [batch for _ in range(4) for batch in noise().torch()]
    threads = [threading.Thread(target=batches.pop) for _ in range(len(batches))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert batches == []


def test_capsules_that_nobody_takes_free_their_memory() -> None:
    loader = noise()._native.loader()
    loader.start_epoch()
    (array, _) = loader.next() or ()
    capsules = [array.__dlpack__() for _ in range(100)]
    del array, capsules


@pytest.mark.parametrize("owner", ["numpy", "torch"])
def test_arrays_that_came_in_are_not_copied_and_kept_alive(owner: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    given = array if owner == "numpy" else torch.from_numpy(array)
    ds = wf.from_tensor_slices(given).batch(4)
    array[0, 0] = 99  # before anything was read
    (batch,) = ds.numpy(prefetch=1)
    assert batch[0, 0] == 99
    alive = weakref.ref(given)
    del given, array
    gc.collect()
    (batch,) = ds.numpy()
    assert batch[3, 2] == 11
    if owner == "numpy":
        assert alive() is not None
        del ds
        gc.collect()
        assert alive() is None


def test_a_small_budget_is_kept() -> None:
    loader = noise(512).numpy(memory_budget=4 << 20, num_workers=2)
    for _ in loader:
        assert loader.stats()["memory"] <= 4 << 20
    with pytest.raises(wf.LimitExceededError, match="memory budget"):
        noise().numpy(memory_budget=1000)


def test_epochs_leave_nothing_behind() -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    loader = noise(2048).torch()
    for _ in range(10):
        for _ in loader:
            pass
    before = resident()
    for _ in range(20):
        for _ in loader:
            pass
    assert resident() - before < 8 << 20
