"""The probe's look at a device's kernels, with a profiler made up."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from doctor_probe import INJECT

SECOND = 1_000_000_000
CUDA, CPU = SimpleNamespace(name="CUDA"), SimpleNamespace(name="CPU")


def event(name: str, begin: int, took: int, kind: Any = CUDA, index: int = 0, what: str = "kernel") -> Any:
    """What torch's profiler gives for each."""
    return SimpleNamespace(
        name=lambda: name,
        device_type=lambda: kind,
        device_index=lambda: index,
        start_ns=lambda: begin,
        duration_ns=lambda: took,
        activity_type=lambda: what,
    )


@pytest.fixture(scope="module")
def probe() -> Iterator[Any]:
    """The package, without anything started."""
    sys.path.insert(0, str(INJECT))
    try:
        parts = ("control", "hooks", "recorder", "stacks", "steps", "torch_kernels")
        yield SimpleNamespace(**{part: importlib.import_module(f"wellfed_probe.{part}") for part in parts})
    finally:
        sys.path.remove(str(INJECT))


class Profile:
    """A profiler that finds two kernels a step of 10 ms, and a copy."""

    running: Profile | None = None
    made = 0
    fails = ""
    clock: Callable[[], int]

    def __init__(self, **options: Any) -> None:
        assert options == {"use_cpu": False, "use_device": "cuda", "use_kineto": True}
        Profile.made += 1
        if Profile.fails == "made":
            raise RuntimeError("no CUPTI")

    def __enter__(self) -> Profile:
        if Profile.fails == "begun":
            raise RuntimeError("CUPTI_ERROR_NOT_INITIALIZED")
        assert os.environ["KINETO_LOG_LEVEL"] == "99"
        Profile.running = self
        self.begun = Profile.clock()
        return self

    def __exit__(self, *error: object) -> None:
        Profile.running = None
        if Profile.fails == "ended":
            raise RuntimeError("lost")
        events = []
        for t in range(self.begun, Profile.clock(), SECOND // 100):
            events += [event("gemm", t, 3000), event("add", t + 2000, 2000), event("a", t, 9, CPU)]
            events += [event("Memcpy HtoD (Pinned -> Device)", t + 3500, 1000)]
            events += [event("Memcpy DtoD (Device -> Device)", t + 9000, 500)]
            events += [event("Stream Sync", t, 10**6), event("step", t, 10**6, what="gpu_user_annotation")]
        self.kineto_results = SimpleNamespace(events=lambda: events)


class Loop:
    """Steps of 10 ms on a clock of its own, seen by the window."""

    def __init__(self, probe: Any, window: Any) -> None:
        self.probe, self.window = probe, window
        self.t = SECOND
        self.log = probe.steps.LoaderLog(lambda n: {"k": "loader", "loader": n})
        self.synchronized = 0

    def epoch(self, steps: int, wait: int = 1_000_000, each: Callable[[int], Any] | None = None) -> Any:
        iterator = self.probe.steps.Steps(self.log, self.t, self.t)
        self.probe.stacks.SAMPLER.stop()
        listener = self.window.listener(iterator)
        if listener is not None:
            iterator.listeners.append(listener)
        for n in range(steps):
            iterator.add((n, self.t, self.t + wait, 0))
            iterator.n += 1
            self.t += wait
            iterator.hear(None)
            if each is not None:
                each(n)
            self.t += SECOND // 100 - wait
        iterator.end(self.t)
        return iterator


@pytest.fixture
def loop(probe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A loop on a device, with a window of its own."""
    window = probe.torch_kernels.Window()
    loop = Loop(probe, window)
    Profile.running, Profile.made, Profile.fails, Profile.clock = None, 0, "", lambda: loop.t

    def synchronize() -> None:
        loop.synchronized += 1

    cuda = SimpleNamespace(
        is_initialized=lambda: True, is_current_stream_capturing=lambda: False, synchronize=synchronize
    )
    activity = SimpleNamespace(CUDA="cuda")
    autograd = SimpleNamespace(
        ProfilerActivity=activity,
        _supported_activities=lambda: {"cuda"},
        _profiler_enabled=lambda: False,
        profiler=SimpleNamespace(profile=Profile),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(autograd=autograd, cuda=cuda))
    monkeypatch.setitem(sys.modules, "torch.cuda", cuda)
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    for module in (probe.torch_kernels, probe.steps):
        monkeypatch.setattr(module, "now", lambda: loop.t)
    recorder = probe.recorder.RECORDER
    recorder.open(str(tmp_path))

    def records() -> list[dict[str, Any]]:
        recorder.flush()
        (file,) = tmp_path.glob("*.jsonl")
        return [r for r in map(json.loads, file.read_text().splitlines()) if r["k"] == "kernels"]

    loop.__dict__.update(records=records, cuda=cuda, autograd=autograd, folder=tmp_path)
    try:
        yield loop
    finally:
        probe.stacks.SAMPLER.stop()
        probe.steps.close_all()
        recorder.close()
        recorder.resets.remove(window._forked)


def test_kernels_of_some_steps_are_looked_at_once(loop: Any) -> None:
    loop.epoch(300)
    loop.epoch(300)
    (record,) = loop.records()
    assert (Profile.made, Profile.running, loop.synchronized) == (1, None, 1)
    assert (record["why"], record["steps"], record["last"] - record["first"]) == ("", 20, 20)
    # Two seconds of warming up.
    assert 199 <= record["first"] <= 201
    # Two kernels that overlap by 1 us and one that copies within the device; a copy, 0.5 us of it alone.
    busy = [record[name] / record["steps"] for name in ("kernels", "busy", "time", "copies", "alone")]
    assert busy == [3, 4500, 5500, 1000, 500]
    assert record["profiled"] == 20 * SECOND // 100
    assert record["t1"] - record["t0"] == 20 * SECOND // 100
    assert "KINETO_LOG_LEVEL" not in os.environ


def test_short_epochs_are_taken_as_far_as_they_go(loop: Any) -> None:
    for _ in range(60):
        loop.epoch(8)
    (record,) = loop.records()
    assert (record["first"], record["last"], record["steps"]) == (0, 8, 8)
    assert Profile.running is None


def test_epochs_of_a_step_or_two_are_left_alone_after_some_tries(loop: Any) -> None:
    for _ in range(260):
        loop.epoch(2)
    assert [record["why"] for record in loop.records()] == ["the loop ended"] * 3
    assert (Profile.made, Profile.running) == (3, None)


@pytest.mark.parametrize("when", ["made", "begun", "ended"])
def test_a_profiler_that_fails_does_not_hurt(loop: Any, when: str) -> None:
    Profile.fails = when
    loop.epoch(300)
    loop.epoch(300)
    (record,) = loop.records()
    assert record["why"].startswith("RuntimeError: ")
    # These steps are not like others all the same.
    assert record["first"] <= record["last"] <= record["first"] + 20
    assert (Profile.made, Profile.running) == (1, None)
    assert "looking at kernels" in next(loop.folder.glob("*.error")).read_text()


def test_no_profiler_where_the_device_is_not_used(loop: Any) -> None:
    loop.cuda.is_initialized = lambda: False
    iterator = loop.epoch(300)
    assert (Profile.made, loop.synchronized, loop.records()) == (0, 0, [])
    assert iterator.listeners == [], "nor is it asked for in each step for ever"


def test_no_profiler_for_a_loop_that_waits_for_data(loop: Any) -> None:
    loop.epoch(400, wait=8_000_000)
    assert (Profile.made, loop.records()) == (0, [])


def test_no_profiler_where_another_one_is(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loop.autograd._profiler_enabled = lambda: True
    loop.epoch(300)
    (record,) = loop.records()
    assert Profile.made == 0
    assert record["why"] == "the script uses a profiler itself"
    assert "last" not in record, "no step is left out for it"


def test_no_profiler_without_cupti_nor_beside_graphs(loop: Any) -> None:
    loop.autograd._supported_activities = set
    loop.epoch(300)
    assert (Profile.made, "no CUPTI" in loop.records()[0]["why"]) == (0, True)


def test_graphs_that_are_captured_forbid_it(loop: Any) -> None:
    loop.epoch(300, each=lambda n: loop.window.captured() if n == 5 else None)
    assert (Profile.made, loop.records()[0]["why"]) == (0, "the script uses CUDA graphs")


def test_a_script_that_begins_to_profile_itself_comes_first(loop: Any) -> None:
    def each(n: int) -> None:
        if n == 205:
            assert Profile.running
            loop.window.others()
            assert not Profile.running, "before the script's begins"

    loop.epoch(300, each=each)
    (record,) = loop.records()
    assert record["why"] == "the script uses a profiler itself"
    assert record["first"] <= 205 < record["last"] + 1
    assert Profile.made == 1


def test_a_script_that_fails_in_the_window_ends_it(loop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def each(n: int) -> None:
        if n == 203:
            raise ValueError(n)

    exits: list[Any] = []
    monkeypatch.setattr(loop.probe.torch_kernels.atexit, "register", exits.append)
    with pytest.raises(ValueError, match="203"):
        loop.epoch(300, each=each)
    assert Profile.running
    for function in exits:
        function()
    assert not Profile.running


def test_other_ranks_and_trials_are_left_alone(
    loop: Any, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    loop.epoch(300)
    assert Profile.made == 0
    asked: list[str] = []
    monkeypatch.setattr(probe.torch_kernels.hooks, "when_imported", lambda name, patch: asked.append(name))
    monkeypatch.setattr(probe.torch_kernels.torch_loader, "listen_to_steps", asked.append)
    monkeypatch.setenv("WELLFED_DOCTOR_APPLY", "{}")
    probe.torch_kernels.install()
    assert asked == []
    monkeypatch.delenv("WELLFED_DOCTOR_APPLY")
    probe.torch_kernels.install()
    assert len(asked) == 3


def test_the_busiest_device_is_told(probe: Any) -> None:
    events = [event("a", 0, 10), event("b", 0, 5, index=1), event("c", 100, 90, index=1)]
    found = probe.torch_kernels.busy(events)
    assert (found.kernels, found.busy) == (2, 95)
    assert probe.torch_kernels.busy([]).kernels == 0
    # Before torch 2.4 times were microseconds.
    old = event("a", 0, 0)
    del old.start_ns, old.duration_ns
    old.start_us, old.duration_us = lambda: 1, lambda: 7
    assert probe.torch_kernels.busy([old]).busy == 7000


SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from torch.autograd.profiler import profile

for n, (rows,) in enumerate(DataLoader(TensorDataset(torch.randn(800, 4)), 4)):
    torch.nn.functional.relu(rows).sum()
with profile(use_kineto=True) as own:
    rows.sum()
print(len(own.kineto_results.events()) > 0, type(own) is profile)
"""


def test_scripts_on_a_processor_see_nothing_of_it(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(SCRIPT)
    (records := tmp_path / "records").mkdir()
    env = {**os.environ, "PYTHONPATH": str(INJECT), "WELLFED_DOCTOR_DIR": str(records)}
    env["KINETO_LOG_LEVEL"] = "99"
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert list(records.glob("*.jsonl"))
    assert list(records.glob("*.error")) == []
    assert not any('"k":"kernels"' in file.read_text() for file in records.glob("*.jsonl"))
