"""Processes, threads and signals: pickling, forking, Ctrl-C, and what is left when a loader is gone."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import wellfed as wf
from wellfed import transforms as T


def train(photos: Path) -> wf.Dataset:
    return wf.image_folder(photos).shuffle(seed=5).map(T.RandomResizedCrop(24), T.ToTensor()).batch(5)


def slices() -> wf.Dataset:
    images = np.random.default_rng(1).integers(0, 256, (50, 10, 10, 3), dtype=np.uint8)
    tensors = {"image": images, "label": np.arange(50), "half": torch.arange(50, dtype=torch.bfloat16)}
    return wf.from_tensor_slices(tensors).shuffle(seed=3).map(T.RandomCrop(8)).batch(7)


def contents(dataset: wf.Dataset) -> list[object]:
    def flat(batch: object) -> object:
        if isinstance(batch, dict):
            return {name: flat(value) for name, value in batch.items()}
        if isinstance(batch, tuple):
            return [flat(value) for value in batch]
        return batch.tolist()  # type: ignore[attr-defined]

    return [flat(batch) for batch in dataset.torch(num_workers=2)]


@pytest.mark.usefixtures("epochs_not_counted")
def test_data_sets_can_be_pickled(photos: Path) -> None:
    for ds in (train(photos), slices()):
        again = pickle.loads(pickle.dumps(ds))
        assert repr(again) == repr(ds)
        assert contents(again) == contents(ds)
        assert contents(pickle.loads(pickle.dumps(again))) == contents(ds)


def test_pickled_data_sets_give_the_same_batches_in_another_process(photos: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for ds in (train(photos), slices()):
            # With a limit: a pool whose processes cannot import this module would start new ones for ever.
            assert pool.apply_async(contents, (ds,)).get(300) == contents(ds)


def test_loaders_cannot_be_pickled() -> None:
    with pytest.raises(TypeError, match="pickle its dataset instead"):
        pickle.dumps(slices().numpy())


@pytest.mark.parametrize("kind", list(wf.exceptions.__all__))
def test_exceptions_can_be_pickled(kind: str) -> None:
    error = getattr(wf, kind)(
        "text\nhint: h",
        message="text",
        source="s",
        key="k",
        index=3,
        offset=4,
        stage="decode",
        hint="h",
        errno=13,
    )
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == "text\nhint: h"
    assert vars(again) == vars(error)
    if isinstance(error, OSError):
        assert again.errno == 13


def in_child(work: object) -> str:
    """What `work()` returns in a forked child."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            result = work()  # type: ignore[operator]
        except BaseException as e:
            result = f"{type(e).__name__}: {e}"
        os.write(write, str(result).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode()
    os.waitpid(child, 0)
    return text


def test_a_loader_in_a_forked_child_is_refused(photos: Path) -> None:
    loader = train(photos).numpy()
    batches = iter(loader)
    next(batches)

    def use() -> None:
        next(batches)

    for work in (use, loader.state_dict, lambda: list(loader), loader.errors):
        text = in_child(work)
        assert text.startswith("StateError: "), text
        assert "fork" in text
    # The parent goes on, and what the child leaves behind ends without waiting for threads it does not have.
    assert in_child(loader.close) == "None"
    assert len(list(batches)) == 4


@pytest.mark.usefixtures("epochs_not_counted")
def test_a_data_set_in_a_forked_child_works(photos: Path) -> None:
    for ds in (train(photos), slices()):
        expected = contents(ds)
        list(ds.numpy() if ds._arrays == (None,) else ds.torch())
        assert in_child(lambda ds=ds, expected=expected: contents(ds) == expected) == "True"


def threads() -> set[str]:
    """The engine's threads in this process. Of others, and of how many there are, nothing can be said."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "comm").read_text().startswith("wellfed"):
                found.add(task.name)
    return found


def wait_for_threads(before: set[str]) -> bool:
    """A thread that was joined may be listed a moment longer."""
    for _ in range(1000):
        if not threads() - before:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize("how", ["close", "with", "drop", "drop iterator", "exhaust", "error"])
def test_threads_end_with_the_loader(photos: Path, how: str) -> None:
    gc.collect()
    before = threads()
    loader = train(photos).numpy(num_workers=3)
    # A call from Python may run in a thread of its own: that ends with the call, or a moment later.
    assert wait_for_threads(before)
    batches = iter(loader)
    next(batches)
    assert threads() - before
    if how == "close":
        loader.close()
        loader.close()
        with pytest.raises(RuntimeError, match=r"closed|no longer valid"):
            next(batches)
        with pytest.raises(RuntimeError, match="closed"):
            iter(loader)
    elif how == "with":
        with loader:
            pass
    elif how == "drop":
        del loader, batches
    elif how == "drop iterator":
        del loader
        assert len(list(batches)) == 4
        del batches
    elif how == "exhaust":
        list(batches)
        del loader, batches
    else:
        try:
            for _ in loader:
                raise ZeroDivisionError
        except ZeroDivisionError:
            del loader, batches
    gc.collect()
    assert wait_for_threads(before)


def test_nothing_is_started_before_it_is_iterated(photos: Path) -> None:
    def ours() -> list[str]:
        names = [Path(f"/proc/self/task/{task}/comm") for task in os.listdir("/proc/self/task")]
        # Those that talk to stores are of the process, and stay once a store was used.
        mine = (name for name in map(_name, names) if name.startswith("wellfed-"))
        return [name for name in mine if name != "wellfed-net"]

    # Threads of other tests and libraries come and go: those of loaders are known by their names.
    assert wait_until(lambda: not ours())
    ds = train(photos)
    loaders = [ds.numpy(num_workers=2) for _ in range(20)]
    assert wait_until(lambda: not ours())
    next(iter(loaders[0]))
    # A thread gives itself its name, some time after it was started.
    assert wait_until(lambda: len([name for name in ours() if name.startswith("wellfed-work")]) == 2)
    del loaders


def _name(comm: Path) -> str:
    try:
        return comm.read_text().strip()
    except OSError:  # it has just ended
        return ""


def wait_until(done: Callable[[], bool]) -> bool:
    for _ in range(500):
        if done():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.usefixtures("epochs_not_counted")
def test_many_loaders_come_and_go(photos: Path) -> None:
    before = threads()
    for _ in range(30):
        next(iter(train(photos).numpy(num_workers=2)))
    assert wait_for_threads(before)


def test_several_threads_may_share_a_loader() -> None:
    ds = wf.from_tensor_slices(np.arange(4000)).batch(2)
    batches = iter(ds.numpy())
    taken: list[int] = []

    def take() -> None:
        for batch in batches:
            taken.extend(batch.tolist())

    workers = [threading.Thread(target=take) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(taken) == list(range(4000))


def test_other_threads_run_while_a_batch_is_waited_for(photos: Path) -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks
    for _ in wf.image_folder(photos).map(T.Resize((600, 600))).batch(24).repeat(3).numpy(num_workers=1):
        pass
    stop.set()
    thread.join()
    assert ticks - before > 5


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
import wellfed as wf
from wellfed import transforms as T
# Where the tests run in a shell's background, SIGINT comes ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
images = np.zeros((64, 64, 64, 3), np.uint8)
ds = wf.from_tensor_slices(images).map(T.Resize((3000, 3000)), T.ToTensor()).repeat().batch(32)
def work():
    if sys.argv[1] == "next":
        for _ in ds.numpy(num_workers=1, memory_budget=64 << 30):
            pass
    elif sys.argv[1] == "analyze":
        ds.with_options(num_workers=1, memory_budget=64 << 30).explain(analyze=True, batches=10000)
    else:
        for x in wf.from_tensor_slices(np.arange(10)).repeat().batch(2).numpy():
            pass
def announce():
    time.sleep(0.5)
    print("working", flush=True)
threading.Thread(target=announce).start()
try:
    work()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""


@pytest.mark.parametrize("what", ["next", "analyze", "fast"])
def test_ctrl_c_is_answered(what: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n", process.communicate()[1]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out == "interrupted\n", err
    assert process.returncode == 0


def test_leaving_in_the_middle_of_an_epoch_is_quiet(photos: Path) -> None:
    code = (
        "import sys, wellfed as wf\n"
        "from wellfed import transforms as T\n"
        "loader = wf.image_folder(sys.argv[1]).map(T.CenterCrop(9)).repeat().batch(4).torch()\n"
        "batches = iter(loader)\n"
        "kept = next(batches)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(photos)], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_torch_is_imported_only_when_it_is_asked_for() -> None:
    code = (
        "import sys, numpy as np, wellfed as wf\n"
        "from wellfed import transforms as T\n"
        "list(wf.from_tensor_slices(np.zeros((3, 4, 4, 3), np.uint8)).map(T.ToTensor()).batch(2).numpy())\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
