"""Pinned memory and `device=`. The logic of streams is tested on stand-ins that write down
what is asked of them; with a GPU, on the GPU."""

from __future__ import annotations

import contextlib
import gc
import itertools
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from torchvision.datasets import ImageFolder
from torchvision.transforms import transforms as v1

import wellfed as wf
from wellfed.exceptions import StateError
from wellfed.torch import DataLoader, _device
from wellfed.torch._device import Copies, PageLock, Staged

# Tests of the engine in the same process leave its threads.
pytestmark = pytest.mark.filterwarnings("ignore:worker processes are forked while:RuntimeWarning")

gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="NOT TESTED HERE: needs a CUDA device")
META = torch.device("meta")


class Numbers(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> Any:
        return {"x": torch.full((3,), i / 2), "i": i, "name": f"n{i}"}


# Staging


class Source:
    """An iterator like the loader's, whose next batch is there or not as the test says."""

    def __init__(self, *batches: Any) -> None:
        self.batches = list(batches)
        self.is_ready = True
        self._num_yielded = 0

    def ready(self) -> bool:
        return self.is_ready

    def __len__(self) -> int:
        return 3

    def __next__(self) -> Any:
        if not self.batches:
            raise StopIteration
        batch = self.batches.pop(0)
        if isinstance(batch, Exception):
            raise batch
        self._num_yielded += 1
        return batch

    @property
    def _progress(self) -> Any:
        return self

    def place(self) -> int:
        return self._num_yielded

    def state_dict(self, place: int | None = None) -> dict[str, int]:
        return {"yielded": self._num_yielded if place is None else place}


class Aside:
    """A stage that writes down what it began with, and whether in the main thread."""

    ahead = True

    def __init__(self) -> None:
        self.log: list[tuple[Any, bool]] = []

    def enter_thread(self) -> None:
        pass

    def begin(self, batch: Any) -> Any:
        self.log.append((batch, threading.current_thread() is threading.main_thread()))
        if batch == "bad":
            raise ValueError("cannot be pinned")
        return batch

    def finish(self, staged: Any) -> Any:
        return staged


def aside(*batches: Any) -> tuple[Staged, Source, Aside]:
    source, stage = Source(*batches), Aside()
    return Staged(source, stage), source, stage


def test_the_next_batch_is_staged_in_a_thread_but_not_counted() -> None:
    batches, source, stage = aside("a", "b", "c")
    assert next(batches) == "a"
    assert source._num_yielded == 2
    assert batches._num_yielded == 1
    assert batches._progress.state_dict() == {"yielded": 1}
    assert next(batches) == "b"
    assert batches._progress.state_dict() == {"yielded": 2}
    assert next(batches) == "c"
    assert batches._progress.state_dict() == {"yielded": 3}
    with pytest.raises(StopIteration):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    assert stage.log == [("a", True), ("b", False), ("c", False)]
    assert len(batches) == 3


def test_nothing_waits_for_a_batch_that_is_not_there() -> None:
    batches, source, stage = aside("a", "b")
    source.is_ready = False
    assert next(batches) == "a"
    assert source._num_yielded == 1
    assert next(batches) == "b"
    assert stage.log == [("a", True), ("b", True)]


def test_errors_come_with_their_batch() -> None:
    batches, _, _ = aside("a", KeyError("worker"), "bad", "d")
    assert next(batches) == "a"
    assert batches._progress.state_dict() == {"yielded": 1}
    with pytest.raises(KeyError, match="worker"):
        next(batches)
    with pytest.raises(ValueError, match="cannot be pinned"):
        next(batches)
    assert next(batches) == "d"


def test_a_wait_that_is_interrupted_loses_no_batch() -> None:
    batches, _, stage = aside("a", "b", "c")
    interrupted, main = threading.Event(), threading.get_ident()

    def begin(batch: Any) -> Any:
        if batch == "b":
            # As Ctrl-C while the main thread waits for this batch.
            time.sleep(0.2)
            signal.pthread_kill(main, signal.SIGINT)
            assert interrupted.wait(10)
        return batch

    stage.begin = begin  # type: ignore[method-assign]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert next(batches) == "a"
        with pytest.raises(KeyboardInterrupt):
            next(batches)
    finally:
        signal.signal(signal.SIGINT, before)
    assert batches._num_yielded == 1
    assert batches._progress.state_dict() == {"yielded": 1}
    interrupted.set()
    assert list(batches) == ["b", "c"]


def test_dropped_iterators_leave_no_thread() -> None:
    before = set(threading.enumerate())
    batches, _, _ = aside("a", "b", "c")
    assert next(batches) == "a"
    assert next(batches) == "b"
    (thread,) = set(threading.enumerate()) - before
    del batches
    thread.join(30)
    assert not thread.is_alive()


class FakeStream:
    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def wait_event(self, event: Any) -> None:
        self.log.append(f"{self.name} waits")

    def __enter__(self) -> None:
        self.log.append(f"on {self.name}")

    def __exit__(self, *_: object) -> None:
        self.log.append(f"off {self.name}")


class FakeCuda:
    """Stands in for `torch.cuda`: one current stream, one more, events that are over when the test says so."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.over = False
        self.current = FakeStream(self.log, "current")

    def current_device(self) -> int:
        return 0

    def set_device(self, device: torch.device) -> None:
        self.log.append("set device")

    def Stream(self, device: torch.device) -> FakeStream:
        return FakeStream(self.log, "side")

    def stream(self, stream: FakeStream) -> FakeStream:
        return stream

    def current_stream(self, device: torch.device) -> FakeStream:
        return self.current

    def Event(self) -> Any:
        cuda = self

        class Event:
            def record(self, stream: FakeStream) -> None:
                cuda.log.append(f"event on {stream.name}")

            def query(self) -> bool:
                return cuda.over

            def synchronize(self) -> None:
                cuda.log.append("synchronize")

        return Event()


class Marked:
    """What can go ahead: has `record_stream`."""

    def __init__(self, log: list[str], name: str) -> None:
        self.log, self.name = log, name

    def pin_memory(self) -> Marked:
        self.log.append(f"pin {self.name}")
        return self

    def to(self, device: torch.device) -> Marked:
        self.log.append(f"copy {self.name}")
        return Marked(self.log, self.name)

    def record_stream(self, stream: FakeStream) -> None:
        self.log.append(f"mark {self.name} for {stream.name}")


class Unmarked:
    def __init__(self, log: list[str]) -> None:
        self.log = log

    def to(self, device: torch.device) -> Unmarked:
        self.log.append("copy unmarked")
        return self


def test_copies_are_ordered_before_their_use() -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    staged = copies.begin([Marked(cuda.log, "x"), Unmarked(cuda.log)])
    assert cuda.log == ["on side", "pin x", "copy x", "event on side", "off side"]
    cuda.log.clear()
    copies.finish(staged)
    # What cannot be marked is copied after the wait, on the caller's stream.
    assert cuda.log == ["current waits", "mark x for current", "copy unmarked"]


def test_all_loaders_copy_on_one_stream_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    made = []

    def stream(device: torch.device) -> FakeStream:
        made.append(device)
        return FakeStream(cuda.log, f"side {len(made)}")

    cuda.Stream = stream  # type: ignore[method-assign]
    one, two = Copies(META, cuda), Copies(META, cuda)
    assert made == [torch.device("meta", 0)]
    staged = [copies.begin([Marked(cuda.log, name)]) for copies, name in ((one, "x"), (two, "y"))]
    # Each waits for its own event.
    assert staged[0][1] is not staged[1][1]
    assert cuda.log.count("event on side 1") == 2
    Copies(torch.device("meta", 1), cuda)
    assert len(made) == 2
    # A forked child has streams of its own.
    monkeypatch.setattr("os.getpid", lambda: -1)
    Copies(META, cuda)
    assert len(made) == 3


def test_importing_the_device_stage_begins_nothing() -> None:
    script = "import torch, wellfed.torch._device as d; assert not d._STREAMS; assert not torch.cuda.is_initialized()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_sources_live_until_their_copies_are_over() -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    for name in "ab":
        copies.begin([Marked(cuda.log, name)])
    assert len(copies._sources) == 2
    cuda.over = True
    copies.begin([Marked(cuda.log, "c")])
    assert [source[0].name for _, source in copies._sources] == ["c"]
    cuda.log.clear()
    log = cuda.log
    del copies
    assert log == ["synchronize"]


def until(done: Any) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("ahead", [True, False])
def test_sources_go_after_a_pass_as_soon_as_their_copies_are_over(ahead: bool) -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    sources = [Marked(cuda.log, name) for name in "abc"]
    gone = [weakref.ref(source) for source in sources]
    source = Source(*([source] for source in sources))
    source.is_ready = ahead
    del sources
    batches = Staged(source, copies)
    # Neither the last batch nor the end is waited for.
    assert [batch[0].name for batch in batches] == ["a", "b", "c"]
    assert "synchronize" not in cuda.log
    assert len(copies._sources) == 3
    cuda.over = True
    until(lambda: not any(one() for one in gone))
    assert not copies._sources
    assert "synchronize" not in cuda.log


def test_sources_of_copies_that_are_over_need_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    copies.begin([Marked(cuda.log, "a")])
    cuda.over = True
    monkeypatch.setattr(threading, "Thread", lambda **_: pytest.fail("a thread"))
    copies.release()
    assert not copies._sources


def test_a_thread_that_waits_for_copies_does_not_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    copies.begin([Marked(cuda.log, "a")])
    # As in a signal handler while the lock is held, or where no thread can be started.
    with copies._lock:
        copies.release()
    before = threading.active_count()
    with monkeypatch.context() as patched:
        patched.setattr(
            threading.Thread, "start", lambda self: (_ for _ in ()).throw(RuntimeError("no thread"))
        )
        copies.release()
    assert threading.active_count() == before
    gone = weakref.ref(copies)
    del copies
    assert gone() is None
    assert cuda.log[-1] == "synchronize"
    cuda.over = True


class FakeRuntime:
    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> int:
        self.calls.append(("register", address, nbytes, flags))
        return self.answer

    def cudaHostUnregister(self, address: int) -> int:
        self.calls.append(("unregister", address))
        return 0


def test_page_locks_are_taken_and_given_back_once() -> None:
    runtime = FakeRuntime(0)
    lock = PageLock(4096, 100, runtime)
    assert lock.held
    lock.close()
    lock.close()
    assert runtime.calls == [("register", 4096, 100, 1), ("unregister", 4096)]


def test_a_refused_page_lock_is_not_given_back() -> None:
    runtime = FakeRuntime(2)
    lock = PageLock(4096, 100, runtime)
    assert not lock.held
    lock.close()
    assert len(runtime.calls) == 1


class Pages:
    """Page locks of a stand-in for CUDA that knows which memory is locked now."""

    def __init__(self, answer: int = 0) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._answer = answer
        self._locks: set[int] = set()
        self.page_lock = self

    def begin(self) -> None:
        """Needs no device."""

    def lock(self, address: int, nbytes: int) -> str | None:
        self.calls.append(("register", address, nbytes))
        if self._answer:
            return "no more pages"
        self._locks.add(address)
        return None

    def unlock(self, address: int) -> None:
        self._locks.remove(address)
        self.calls.append(("unregister", address))

    def covers(self, tensor: torch.Tensor) -> bool:
        """What `is_pinned` would say."""
        held = {call[1]: call[2] for call in self.calls if call[0] == "register" and call[1] in self._locks}
        return any(at <= tensor.data_ptr() < at + size for at, size in held.items())

    def count(self, name: str) -> int:
        return sum(call[0] == name for call in self.calls)


def placed(monkeypatch: pytest.MonkeyPatch, pages: Pages | None, stage: Any = None, **options: Any) -> Any:
    """A loader of the engine as for a device that the stand-ins make up, and its batches as they should be."""
    to = torch.device("cuda:0") if pages is not None else None
    monkeypatch.setattr("wellfed._loader._target", lambda device: to)
    monkeypatch.setattr("wellfed._loader._pages_for", lambda device: pages)
    monkeypatch.setattr("wellfed._loader._stage_for", lambda device: None if stage is None else lambda: stage)
    rows = np.arange(40 * 300, dtype=np.int32).reshape(40, 300)
    return wf.from_tensor_slices((rows, np.arange(40))).shuffle(seed=1).batch(8).torch(**options)


@pytest.mark.parametrize("answer", [0, 2])
@pytest.mark.parametrize("num_workers", [1, 3])
@pytest.mark.usefixtures("epochs_not_counted")
def test_batches_of_the_engine_are_made_in_page_locked_memory(
    answer: int, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = [batch[0].tolist() for batch in placed(monkeypatch, None, num_workers=num_workers)]
    pages = Pages(answer)
    loader = placed(monkeypatch, pages, num_workers=num_workers)
    warned = pytest.warns(RuntimeWarning, match="copied once more") if answer else contextlib.nullcontext()
    with warned:
        for epoch in range(4):
            for number, batch in enumerate(loader):
                assert [pages.covers(part) for part in batch] == [answer == 0] * 2
                assert epoch or batch[0].tolist() == plain[number]
    del batch
    locked = loader.stats()["page_locked"]
    assert (locked["problem"] is None) == (answer == 0)
    assert locked["refused"] == (pages.count("register") if answer else 0)
    if answer == 0:
        assert pages.count("register") <= 20, "buffers of 40 batches are used again"
    loader.close()
    gc.collect()
    assert not pages._locks
    assert pages.count("unregister") == (pages.count("register") if answer == 0 else 0)


@pytest.mark.usefixtures("epochs_not_counted")
def test_a_buffer_is_not_written_again_while_a_copy_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: pytest.fail("was copied on the host"))
    # A device's copy is of type meta here, and so has no stream to be marked for.
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    loader = placed(monkeypatch, Pages(), copies, num_workers=2, prefetch=1)
    seen: list[tuple[int, list[int]]] = []
    for _ in range(2):
        for _ in loader:
            pass
    for _, source in copies._sources:
        seen.append((source[0].data_ptr(), source[0].tolist()))
    assert len({at for at, _ in seen}) == len(seen) == 10, "no copy was said to be over"
    plain = placed(monkeypatch, None)
    assert [rows for _, rows in seen] == [batch[0].tolist() for _ in range(2) for batch in plain]
    cuda.over = True
    for _ in loader:
        pass
    assert len(copies._sources) <= 1


@pytest.mark.usefixtures("epochs_not_counted")
def test_closing_a_loader_lets_go_what_is_copied_once_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: None)
    pages = Pages()
    loader = placed(monkeypatch, pages, copies, num_workers=2, prefetch=1)
    batches = iter(loader)
    next(batches)
    loader.close()
    del batches
    assert "synchronize" not in cuda.log
    assert copies._sources
    assert pages._locks, "a copy reads it"
    # What the staging thread was at when the loader was closed.
    copies.begin([Marked(cuda.log, "late")])
    cuda.over = True
    until(lambda: not copies._sources and not pages._locks)


def test_a_batch_whose_copy_fails_half_way_is_kept_until_the_rest_is_over() -> None:
    cuda = FakeCuda()
    copies = Copies(META, cuda)

    class Fails(Marked):
        def to(self, device: torch.device) -> Marked:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        copies.begin([Marked(cuda.log, "x"), Fails(cuda.log, "y")])
    assert [source[0].name for _, source in copies._sources] == ["x"]


SCRIPT = """
import numpy as np, threading
import wellfed as wf, wellfed._loader
from wellfed.torch import _device

class Pages:
    def __init__(self):
        self.page_lock = self
    def begin(self):
        pass
    def lock(self, address, nbytes):
        return None
    def unlock(self, address):
        pass

wellfed._loader._target = lambda device: "cuda:0"
wellfed._loader._stage_for = lambda device: None
wellfed._loader._pages_for = lambda device: Pages()
loader = wf.from_tensor_slices(np.arange(100000)).batch(10).repeat().torch(num_workers=4)
batches = iter(loader)
kept = [next(batches) for _ in range(50)]
print("end")
"""


def test_explain_says_where_each_stage_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def stages(loader: Any) -> list[str]:
        lines: list[str] = loader.explain().splitlines()
        start = lines.index("stages, in the order of the data, by where they run") + 1
        return list(itertools.takewhile(lambda line: line.startswith("  "), lines[start:]))

    rows = wf.from_tensor_slices(np.arange(8)).shuffle(seed=0).batch(4)
    native = ["    from_tensor_slices(0)", "    batch(4)"]
    assert stages(rows.torch()) == stages(rows) == ["  threads of the engine", *native]
    copied = ["  meta", "    copy, when a batch is asked for"]
    assert stages(rows.torch(device="meta")) == ["  threads of the engine", *native, *copied]
    assert stages(rows.torch(device="cpu")) == stages(rows)
    locked = stages(placed(monkeypatch, Pages()))
    assert locked[0] == "  threads of the engine; batches in page-locked memory"
    assert locked[-2:] == ["  cuda:0", "    copy, while the batch before it is used"]
    monkeypatch.undo()
    steps = wf.from_tensor_slices(np.arange(8)).map(abs).batch(4)
    made = ["    from_tensor_slices(0)", "    map(abs)  # Python", "    batch(4)"]
    for options, where in [
        ({"num_workers": 0}, "the calling process"),
        ({"num_workers": 1}, "1 worker process"),
        ({"num_workers": 2, "multiprocessing_context": "thread"}, "2 worker threads"),
    ]:
        with steps.torch("meta", **options) as loader:
            assert stages(loader) == [f"  {where}", *made, *copied]


def test_an_interpreter_that_ends_amid_an_epoch_ends_well() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


def test_the_device_of_batches_is_the_one_that_is_current_when_the_first_pass_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[int] = []

    class Locks(Pages):
        def begin(self, device: int = -1) -> None:
            begun.append(device)

    # Making a loader starts nothing: a process may still fork then, or choose its device.
    monkeypatch.setattr("torch.cuda.current_device", lambda: pytest.fail("CUDA is asked too early"))
    monkeypatch.setattr("wellfed._loader._stage_for", lambda device: None)
    monkeypatch.setattr("wellfed.torch._device.target", torch.device)
    monkeypatch.setattr("wellfed._native.PageLocks", Locks)
    loader = wf.from_tensor_slices(np.arange(8)).batch(4).torch(device="cuda")
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    assert len(list(loader)) == 2
    assert begun == [3]
    locks = loader._pages.page_lock
    assert locks.count("register") > 0


def test_a_pass_that_ended_leaves_no_cycle() -> None:
    """What it staged must not wait for the garbage collector, which may run in any thread, or in a forked child."""

    class Inner(Iterator[int]):
        def __init__(self) -> None:
            self.left = [1, 2, 3]

        def ready(self) -> bool:
            return True

        def __next__(self) -> int:
            if not self.left:
                raise StopIteration
            return self.left.pop(0)

    gc.collect()
    gc.disable()
    try:
        batches = Staged(Inner(), Aside())
        assert list(batches) == [1, 2, 3]
        gone = weakref.ref(batches)
        del batches
        assert gone() is None
    finally:
        gc.enable()


class Large(Dataset[Any]):
    """Batches that lie in slots of the workers."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return torch.full((200, 200), i / 4), i


def test_large_batches_are_converted_into_their_slots() -> None:
    stock = torch.utils.data.DataLoader(Large(), batch_size=4)
    ours = DataLoader(
        Large(), batch_size=4, num_workers=2, float_dtype=torch.bfloat16, multiprocessing_context="fork"
    )
    for (x, i), (y, j) in zip(stock, ours, strict=True):
        assert (y.dtype, j.dtype) == (torch.bfloat16, torch.int64)
        torch.testing.assert_close(x.to(torch.bfloat16), y)
        assert torch.equal(i, j)


def test_slots_are_page_locked_once_and_let_go_with_their_memory() -> None:
    locks: list[tuple[int, int]] = []
    runtime = FakeRuntime(0)

    def lock(address: int, nbytes: int) -> PageLock:
        locks.append((address, nbytes))
        return PageLock(address, nbytes, runtime)

    loader = DataLoader(Large(), batch_size=1, num_workers=1, multiprocessing_context="fork", native=False)
    for x, _ in large_slots(loader, lock):
        del x
    assert 0 < len(locks) <= 6, "slots are used again"
    gc.collect()
    calls = [name for name, *_ in runtime.calls]
    assert calls.count("register") == calls.count("unregister") == len(locks)


def large_slots(loader: Any, lock: Any) -> Any:
    batches = iter(loader)
    batches._pool.members[0].mappings.page_lock = lock
    return batches


@pytest.mark.parametrize("taken", range(4))
@pytest.mark.parametrize("persistent", [False, True])
def test_a_state_counts_what_was_handed_out(taken: int, persistent: bool) -> None:
    class Ahead(DataLoader[Any]):
        """Its batches are staged as for a device, whenever one is there."""

        def _iterator_from(self, resume: Any) -> Any:
            return Staged(super()._make_iterator(resume), Aside())

    def make() -> Any:
        return Ahead(
            Numbers(),
            batch_size=3,
            shuffle=True,
            num_workers=1,
            generator=torch.Generator().manual_seed(4),
            persistent_workers=persistent,
            multiprocessing_context="fork",
        )

    def numbers(batches: Any) -> list[list[int]]:
        return [batch["i"].tolist() for batch in batches]

    first = make()
    whole = [numbers(first), numbers(first)]
    loader = make()
    batches = iter(loader)
    head = numbers(next(batches) for _ in range(taken))
    wait_for(batches)
    state = loader.state_dict()
    other = make()
    other.load_state_dict(state)
    assert head + numbers(other) == whole[0]
    assert numbers(other) == whole[1]


def wait_for(batches: Any) -> None:
    """Until the next batch has been staged or is there to be."""
    deadline = time.monotonic() + 60
    while batches._next is None and not batches._inner.ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_say_whether_the_next_batch_is_here() -> None:
    batches = iter(DataLoader(Numbers(), batch_size=5, num_workers=1, multiprocessing_context="fork"))
    deadline = time.monotonic() + 60
    while not batches.ready():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert next(batches)["i"].tolist() == [0, 1, 2, 3, 4]
    assert next(batches)["i"].tolist() == [5, 6, 7, 8, 9]
    assert not batches.ready()
    with pytest.raises(StopIteration):
        next(batches)


def photographs(root: Path, **more: Any) -> Any:
    chain = v1.Compose([v1.RandomResizedCrop(16), v1.ToTensor()])
    loader = DataLoader(ImageFolder(root, chain), batch_size=4, shuffle=True, **more)
    assert "decoded by the engine" in loader.explain()
    return loader


def test_the_engine_says_whether_the_next_batch_is_here(photos: Path) -> None:
    loader = photographs(photos)
    batches = iter(loader)
    assert not batches.ready()
    for _ in range(len(loader) - 1):
        next(batches)
        deadline = time.monotonic() + 60
        while not batches.ready():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    next(batches)
    assert not batches.ready()
    with pytest.raises(StopIteration):
        next(batches)
    assert not batches.ready()


@pytest.mark.parametrize("taken", range(4))
def test_batches_of_the_engine_are_staged_ahead(photos: Path, taken: int) -> None:
    def make() -> Any:
        return photographs(photos, generator=torch.Generator().manual_seed(4))

    plain = [labels.tolist() for _, labels in make()]
    loader = make()
    stage = Aside()
    batches: Any = Staged(loader._make_iterator(), stage)
    head = []
    for _ in range(taken):
        head.append(next(batches)[1].tolist())
        deadline = time.monotonic() + 60
        while batches._next is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            batches._look_ahead()
        batches._next.result()
    if taken:
        assert [begun_here for _, begun_here in stage.log] == [True, *[False] * taken]
    state = batches._progress.state_dict()
    rest = [labels.tolist() for _, labels in batches]
    assert head + rest == plain
    again = make()
    again.load_state_dict(state)
    assert [labels.tolist() for _, labels in again] == rest


# With a GPU


@gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_pinned_on_cuda(num_workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=num_workers, pin_memory=True)
    batches = list(loader)
    assert all(batch["x"].is_pinned() for batch in batches)
    assert torch.cat([batch["i"] for batch in batches]).tolist() == list(range(10))


@gpu
@pytest.mark.parametrize("num_workers", [0, 2])
def test_moved_to_cuda(num_workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=num_workers, device="cuda")
    for _ in range(3):
        batches = list(loader)
        assert all(batch["x"].is_cuda for batch in batches)
        assert torch.cat([batch["i"] for batch in batches]).tolist() == list(range(10))


@gpu
def test_page_locked_memory_is_pinned() -> None:
    memory = torch.zeros(1 << 20)
    lock = PageLock(memory.data_ptr(), memory.nbytes)
    assert lock.held
    assert memory.is_pinned()
    lock.close()
    assert not memory.is_pinned()


@gpu
def test_batches_of_the_engine_are_read_by_the_device_where_they_are_made() -> None:
    rows = np.arange(64 * 50_000, dtype=np.float32).reshape(64, -1)
    dataset = wf.from_tensor_slices(rows).shuffle(seed=2).batch(4)
    wanted = [batch.tolist() for _ in range(3) for batch in dataset.torch()]
    loader = dataset.torch(device="cuda")
    # A new loader goes on with the epoch after those of the others.
    loader.set_epoch(0)
    got = [batch for _ in range(3) for batch in loader]
    assert all(batch.is_cuda for batch in got)
    assert [batch.tolist() for batch in got] == wanted
    assert loader.stats()["page_locked"]["refused"] == 0
    assert loader.stats()["page_locked"]["buffers"] > 0


class Patient(Aside):
    """A stage that hands a batch out once the one after it is there, so that it is always staged ahead."""

    def __init__(self, wait: Any) -> None:
        super().__init__()
        self.wait = wait

    def finish(self, staged: Any) -> Any:
        self.wait()
        return staged


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("position", [1, 3, 6])
def test_a_state_has_the_random_numbers_that_the_step_left(
    num_workers: int, position: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout draws between a batch and its checkpoint; the next epoch's order comes after that."""
    if num_workers == 0:
        data: Any = ImageFolder(folder_of_pictures(tmp_path), v1.Compose([v1.Resize((8, 8)), v1.ToTensor()]))
    else:
        data = Numbers()

    def make() -> Any:
        # Processes: in the calling thread, which may be faster, no batch is there before it is asked for.
        context = "fork" if num_workers else None
        return DataLoader(
            data, batch_size=2, shuffle=True, num_workers=num_workers, multiprocessing_context=context
        )

    def staged_iter(loader: Any, epoch: int) -> Any:
        made = loader._make_iterator

        def patient(resume: Any = None) -> Any:
            inner = made(resume)
            deadline = time.monotonic() + 60

            def wait() -> None:
                while inner._num_yielded < len(loader) and not inner.ready():
                    assert time.monotonic() < deadline

            return Staged(inner, Patient(wait))

        monkeypatch.setattr(loader, "_iterator_from", patient)
        return iter(loader)

    def labels(batch: Any) -> list[int]:
        return (batch[1] if isinstance(batch, list) else batch["i"]).tolist()

    def run(loader: Any, epochs: int, stop: int | None = None) -> tuple[list[Any], Any]:
        seen = []
        for epoch in range(epochs):
            for batch in staged_iter(loader, epoch):
                seen.append(labels(batch))
                torch.rand(3)  # the step
                if len(seen) == stop:
                    return seen, (loader.state_dict(), torch.get_rng_state())
        return seen, None

    torch.manual_seed(7)
    whole, _ = run(make(), 3)
    torch.manual_seed(7)
    head, (state, rng) = run(make(), 3, position)
    torch.set_rng_state(rng)
    again = make()
    again.load_state_dict(state)
    rest, _ = run(again, 3 - (position - 1) // 5)
    assert head + rest == whole


def folder_of_pictures(root: Path) -> Path:
    from PIL import Image

    from pictures import picture

    for i in range(10):
        (root / "x" / str(i)).mkdir(parents=True)
        Image.fromarray(picture(i, 20, 20)).save(root / "x" / str(i) / "a.png")
    return root / "x"


def test_a_class_that_makes_its_own_iterator_is_not_resumed_wrongly() -> None:
    class Own(DataLoader[Any]):
        def _get_iterator(self) -> Any:
            return super()._get_iterator()

    loader = Own(Numbers(), batch_size=3)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    with pytest.raises(
        StateError, match=r"Own._get_iterator makes the iterator(.|\n)*hint: define _iterator_from"
    ):
        iter(loader)


@gpu
def test_loaders_that_share_a_stream_give_their_own_batches() -> None:
    """Train and validation at once, with a step that keeps the device busy."""
    train = wf.from_tensor_slices(np.arange(64 * 50_000, dtype=np.float32).reshape(64, -1)).batch(4)
    val = wf.from_tensor_slices(-np.arange(64 * 50_000, dtype=np.float32).reshape(64, -1)).batch(4)
    wanted = [(a.tolist(), b.tolist()) for a, b in zip(train.torch(), val.torch())]
    busy = torch.ones(2048, 2048, device="cuda")
    got = []
    for a, b in zip(train.torch(device="cuda"), val.torch(device="cuda")):
        busy = busy @ busy * 1e-4
        got.append((a + 0, b + 0))
    assert [(a.tolist(), b.tolist()) for a, b in got] == wanted
    assert len(_device._STREAMS[torch.cuda]) == 1


@gpu
def test_a_loader_for_each_epoch_keeps_no_memory_for_each() -> None:
    rows = wf.from_tensor_slices(np.zeros((64, 50_000), np.float32)).batch(16)

    def reserved() -> int:
        for _ in range(4):
            for batch in rows.torch(device="cuda"):
                batch.sum()
        torch.cuda.synchronize()
        return int(torch.cuda.memory_reserved())

    reserved()
    first = reserved()
    assert [reserved() for _ in range(6)][-1] <= first + (40 << 20)
