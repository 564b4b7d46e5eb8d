"""Parts of the doctor's probe, one by one."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import linecache
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from doctor_probe import INJECT


@pytest.fixture(scope="module")
def probe() -> Iterator[Any]:
    """The package, without anything started."""
    sys.path.insert(0, str(INJECT))
    try:
        parts = (
            "clocks",
            "control",
            "garbage",
            "hooks",
            "lifecycle",
            "places",
            "recorder",
            "stacks",
            "steps",
            "torch_device",
            "torch_fetch",
        )
        yield SimpleNamespace(**{part: importlib.import_module(f"wellfed_probe.{part}") for part in parts})
    finally:
        sys.path.remove(str(INJECT))


@pytest.fixture
def written(probe: Any, tmp_path: Path) -> Iterator[Any]:
    """Records into a folder; gives what reads them."""
    recorder = probe.recorder.RECORDER
    recorder.open(str(tmp_path))

    def read(kind: str) -> list[dict[str, Any]]:
        recorder.flush()
        (file,) = tmp_path.glob("*.jsonl")
        return [r for r in map(json.loads, file.read_text().splitlines()) if r["k"] == kind]

    try:
        yield read
    finally:
        probe.stacks.SAMPLER.stop()
        probe.steps.close_all()
        recorder.close()


def test_clocks_that_are_not_read_are_estimated(probe: Any, written: Any) -> None:
    log = probe.steps.LoaderLog(lambda n: {"k": "loader", "loader": n})
    steps = probe.steps.Steps(log, 0, 0)
    probe.stacks.SAMPLER.stop()
    cpu = 5_000
    expected = []
    for n in range(40):
        t0, t1 = n * 1000, n * 1000 + 200
        expected.append((cpu, cpu + 100))
        if n % 10 < 2:
            steps.add((n, t0, t1, 0, cpu, cpu + 100, 3 * cpu, 3 * cpu + 300))
        else:
            steps.add((n, t0, t1, 0))
        cpu += 100 + 700
    (record,) = written("steps")
    assert record["t0"] == [n * 1000 for n in range(40)]
    # The wait takes half of its time, the rest 7/8; known from the second step on.
    assert list(zip(record["c0"], record["c1"]))[1:] == expected[1:]
    assert record["p1"][-1] == 3 * expected[-1][1]


def test_gaps_between_steps_end_records(probe: Any, written: Any) -> None:
    log = probe.steps.LoaderLog(lambda n: {"k": "loader", "loader": n})
    steps = probe.steps.Steps(log, 0, 0)
    probe.stacks.SAMPLER.stop()
    for n in (0, 1, 2, 50, 51):
        steps.add((n, n * 10, n * 10 + 5, 1))
    assert [(r["first"], len(r["t0"]), r["unpickle"]) for r in written("steps")] == [
        (0, 3, [1] * 3),
        (50, 2, [1] * 2),
    ]


@pytest.mark.parametrize(
    ("period", "least", "most"),
    # A quarter of a second; as long as they were recorded; not at all.
    [(10_000, 24_900, 25_100), (1_500_000, 256, 256), (2_500_000, -256, -256)],
)
def test_short_steps_are_counted_only(probe: Any, written: Any, period: int, least: int, most: int) -> None:
    log = probe.steps.LoaderLog(lambda n: {"k": "loader", "loader": n})
    steps = probe.steps.Steps(log, 0, 0)
    probe.stacks.SAMPLER.stop()
    for n in range(probe.steps.BURST):
        steps.add((n, n * period, n * period + period // 2, 0))
    steps.n = probe.steps.BURST
    steps.check()
    assert least <= steps.skip - steps.n <= most


def test_a_closed_recorder_keeps_nothing(probe: Any, tmp_path: Path) -> None:
    recorder = probe.recorder.RECORDER
    assert recorder.directory is None
    log = probe.steps.LoaderLog(lambda n: {"k": "loader", "loader": n})
    steps = probe.steps.Steps(log, 0, 0)
    steps.leave(steps.enter())
    recorder.emit("end", loader=0, iter=0, t0=1, t=2)
    assert (steps.rows, recorder._waiting, probe.stacks.SAMPLER.running) == ([], [], False)
    assert list(tmp_path.iterdir()) == []


class Event:
    """An event of a device that gets to it when the test says so."""

    clock = 0.0
    waited = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.asked = Event.clock
        self.reached = False

    def query(self) -> bool:
        return self.reached

    def elapsed_time(self, other: Event) -> float:
        assert self.reached
        assert other.reached
        return other.asked - self.asked

    def synchronize(self) -> None:
        Event.waited += 1


def test_events_of_a_device_are_never_waited_for(probe: Any) -> None:
    events: list[Event] = []

    def make(enable_timing: bool) -> Event:
        events.append(Event(enable_timing))
        return events[-1]

    cuda = SimpleNamespace(is_initialized=lambda: True, is_current_stream_capturing=lambda: False, Event=make)
    device = probe.torch_device.Device(cuda, 0, 1)
    for n in range(6):
        device.end(n)
        device.begin(n)
        Event.clock += 2.5
    assert list(device.drain()) == []
    for event in events:
        event.reached = True
    for n in range(6, 12):
        device.end(n)
        for event in events:
            event.reached = True
        device.begin(n)
        Event.clock += 1.5
    rows = [(r["first"] + i, busy) for r in device.drain() for i, busy in enumerate(r["busy"])]
    assert rows[:6] == [(n, 2_500_000) for n in range(6)]
    assert Event.waited == 0
    # A step whose next one is not seen has no end.
    device.begin(20)
    device.end(25)
    assert all(n != 20 for r in device.drain() for n in range(r["first"], r["first"] + len(r["busy"])))


def test_devices_that_are_not_in_use_are_left_alone(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(is_initialized=lambda: False))
    assert probe.torch_device.device_for(0, 0) is None


def test_patched_modules_look_as_others_do(
    probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "patched_by_probe.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[Any] = []
    probe.hooks.when_imported("patched_by_probe", lambda m: seen.append(m.value))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    probe.hooks.install()
    spec = importlib.util.find_spec("patched_by_probe")
    assert spec is not None
    assert seen == []
    module = importlib.import_module("patched_by_probe")
    assert seen == [1]
    assert vars(module.__loader__).keys() == {"name", "path"}
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    importlib.reload(module)
    assert seen == [1]
    del sys.modules["patched_by_probe"]


def test_limits_that_make_no_sense_are_noted(probe: Any, written: Any, tmp_path: Path) -> None:
    control = probe.control
    before = dict(vars(control.CONTROL))
    try:
        control.read(
            {"WELLFED_DOCTOR_STEPS": "many", "WELLFED_DOCTOR_TIME": "2.5", "WELLFED_DOCTOR_APPLY": "[1"}
        )
        assert control.CONTROL.time == 2_500_000_000
        assert control.CONTROL.steps == before["steps"]
    finally:
        vars(control.CONTROL).update(before)
    (errors,) = tmp_path.glob("*.error")
    assert "many" in errors.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="clocks of other threads are Linux's")
def test_looks_tell_whether_a_thread_runs(probe: Any) -> None:
    sampler = probe.stacks.Sampler()
    leave = threading.Event()
    data = bytes(1_000_000)

    def compress() -> None:
        while not leave.is_set():
            zlib.compress(data, 9)  # Without the interpreter's lock.

    threads = {"waits": threading.Thread(target=leave.wait), "works": threading.Thread(target=compress)}
    for thread in threads.values():
        thread.start()

    def look(name: str, late: int) -> bool:
        thread = threads[name]
        frame = sys._current_frames()[thread.ident or 0]
        sampler._seen.clear()
        sampler._note(name, thread.ident, thread.native_id, frame, 10_000_000, late)
        ((_, wall, ran),) = sampler._seen[name].values()
        assert wall == 10_000_000
        assert ran in (0, wall)
        return bool(ran)

    try:
        assert not any(look("waits", late) for late in (0, 5_000_000))
        # Others may have the cores for a while.
        deadline = time.monotonic() + 60
        while not look("works", 0):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        # A look that came 4 ms late, in which time the thread ran: it has only just begun to wait.
        clock, found = sampler._last[threads["waits"].ident or 0]
        for late, runs in ((4_000_000, True), (100_000, False), (9_000_000, False)):
            sampler._last[threads["waits"].ident or 0] = clock - 5_000_000, found
            assert look("waits", late) is runs, late
    finally:
        leave.set()
        for thread in threads.values():
            thread.join()


def test_collections_of_garbage_are_counted_while_it_records(probe: Any, written: Any) -> None:
    garbage = probe.garbage.GARBAGE
    garbage.begin()
    try:
        # No file is begun for collections alone, and those before there is one are not told.
        gc.collect()
        probe.recorder.RECORDER.flush()
        assert not probe.recorder.RECORDER.started
        gc.disable()
        probe.recorder.RECORDER.emit("module", name="numpy", version="2")
        assert written("module")
        assert not written("garbage")
        gc.collect()
        gc.collect()
        (counted,) = written("garbage")
        assert counted["n"] == 2
        assert counted["cpu"] > 0
    finally:
        gc.enable()
        garbage.end()
    assert garbage._event not in gc.callbacks
    before = garbage.count
    gc.collect()
    assert garbage.count == before


def test_prices_say_how_often(probe: Any) -> None:
    price = probe.clocks.Price()
    for _ in range(3):
        price.paid(900)
    assert price.every(1000, 0.01) == 1
    price.paid(10**9)
    # 900 ns may take 1 % of 10 us; one that was interrupted does not count.
    assert price.every(10_000, 0.01) == 9
    assert price.every(10_000_000, 0.01) == 1
    assert price.every(10_000, 0.01, 4) == 36
    try:
        probe.clocks.share_among(3)
        assert price.every(10_000, 0.01) == 27
    finally:
        probe.clocks.share_among(1)


def test_names_of_callables(probe: Any) -> None:
    import functools

    qualified = probe.places.qualified
    assert qualified(tuple) == "tuple"
    assert qualified(functools.partial(json.dumps, indent=1)) == "json.dumps"
    assert qualified(json.JSONEncoder()) == "json.encoder.JSONEncoder"
    assert probe.places.shorten("x" * 500) == "x" * 399 + "…"


def test_source_of_calls(probe: Any, tmp_path: Path) -> None:
    file = tmp_path / "ä.py"
    file.write_text("total = sum(\n    [1,\n     2]) + len('ä')\n", encoding="utf-8")
    text = probe.stacks.call_text(str(file), 1, 3, 8, 8)
    assert text == "sum( [1, 2])"
    assert probe.stacks.call_text(str(file), 3, None, None, None) == "2]) + len('ä')"
    assert probe.stacks.call_text(str(file), 3, 3, 11, 20) == "len('ä')"


def test_frames_have_positions_and_no_file_is_read_for_them(probe: Any, tmp_path: Path) -> None:
    code = compile("x = (1 +\n     abs(-2))\n", str(tmp_path / "none.py"), "exec")
    before = dict(linecache.cache)
    for lasti in range(0, len(code.co_code), 2):
        row = probe.stacks.resolve(7, code, lasti)
        assert row["id"] == 7
        assert row["file"] == code.co_filename
        assert row["func"] == "<module>"
        assert "call" not in row
        if sys.version_info >= (3, 11) and row.get("span") == [2, 5, 12]:
            assert row["line"] == 2
            break
    else:
        assert sys.version_info < (3, 11)
    assert linecache.cache == before


def test_cells_of_notebooks_are_quoted_by_the_process_that_has_them(probe: Any) -> None:
    name, text = "<cell 1>", "train(\n    loader)\n"
    code = compile(text, name, "exec")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    try:
        calls = {probe.stacks.resolve(0, code, lasti)["call"] for lasti in range(0, len(code.co_code), 2)}
    finally:
        del linecache.cache[name]
    assert ("train( loader)" if sys.version_info >= (3, 11) else "train(") in calls


def test_what_ended_in_a_worker_is_told_in_one_line(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "data.py", line 3, in __getitem__
    raise ValueError("sample 13 is damaged")
ValueError: sample 13 is damaged
"""
    for said, told in (
        (text, "Caught ValueError in DataLoader worker process 0. ValueError: sample 13 is damaged"),
        ("two\nlines", "two\nlines"),
        ("", ""),
    ):
        for name in "last_exc", "last_value":
            monkeypatch.setattr(sys, name, ValueError(said), raising=False)
        assert probe.lifecycle.ending() == ("exception", f"ValueError: {told}")
