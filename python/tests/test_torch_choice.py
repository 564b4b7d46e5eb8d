"""Workers chosen by measuring: the rule as a function of numbers, and that no value depends on what was chosen."""

from __future__ import annotations

import argparse
import collections
import functools
import os
import pickle
import random
import sqlite3
import threading
import time
import types
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torch.utils.data import Dataset
from torchvision import transforms

from wellfed.torch import DataLoader
from wellfed.torch._workers import choice as choosing
from wellfed.torch._workers import defaults, here, reach, supported
from wellfed.torch._workers.choice import (
    Choice,
    Clock,
    Epoch,
    Stopwatch,
    at_best,
    fastest,
    promising,
    too_slow,
)
from wellfed.torch._workers.reach import look

pytestmark = [
    pytest.mark.skipif(not supported(), reason="worker processes of wellfed need Linux"),
    pytest.mark.filterwarnings(
        "ignore:worker processes are forked while", "ignore:This DataLoader will create"
    ),
]


# The rule.


def epoch(batches=100, step=0.0, waited=1e-3, fixed=0.05, handing=3e-4, making=2e-4) -> Epoch:
    seconds = batches * (step + waited) + fixed
    return Epoch(batches, seconds, batches * waited, fixed, batches * handing, making)


def test_the_calling_thread_is_tried_where_batches_took_longer_than_making_them() -> None:
    assert promising(epoch())
    assert not promising(epoch(making=5e-3))
    # What the loop does meanwhile costs it the same here and there.
    assert promising(epoch(step=1e-2, waited=4e-4, fixed=0.0))
    assert not promising(epoch(step=1e-2, waited=1e-4, fixed=0.0))
    # Few batches do not make up for the start of the workers.
    assert promising(epoch(batches=5, making=5e-3))
    assert not promising(epoch(batches=5, making=5e-2))
    assert not promising(epoch(batches=0))


def test_workers_are_at_best_as_fast_as_their_own_work() -> None:
    def own(**more):
        return epoch(**{"making": 8e-4, "handing": 1e-4, "fixed": 0.0, **more})

    # They share what one of them would take; taking batches over is the loop's.
    assert [at_best(own(), workers) for workers in (1, 4, 100)] == pytest.approx([8e-4, 2e-4, 1e-4])
    # A loop that has something to do meanwhile gets finished batches: only what it takes to get them counts.
    assert at_best(own(step=1e-2), 1) == pytest.approx(1e-2 + 1e-4)
    assert at_best(own(fixed=0.05), 1) == pytest.approx(8e-4 + 0.05 / 100)


def test_whatever_is_measured_nothing_slower_than_the_scripts_setting_is_chosen() -> None:
    draw = random.Random(5)
    chosen = collections.Counter()

    def look() -> tuple[None, str]:
        return None, "mark"

    for _ in range(5000):
        own = epoch(
            draw.randint(1, 2000),
            *(10 ** draw.uniform(-6, -1) for _ in range(5)),
        )
        others = {name: 10 ** draw.uniform(-6, 0) for name in ("here", "other")[: draw.randint(0, 2)]}
        best = fastest(own.each, others)
        assert best == "own" or others[best] < own.each
        assert all({"own": own.each, **others}[best] <= seconds for seconds in others.values())
        known, workers = Choice(), draw.choice([1, 2, 8])
        known.learn_own(own, workers, look)
        tried = known.next(look) == "here"
        assert tried == promising(own)
        if tried:
            trial = own._replace(seconds=own.seconds * draw.choice([0.01, 0.5, 0.999, 1.0, 1.001, 2.0]))
            known.learn_here(trial)
            after = known.next(look)
            sure = trial.each <= at_best(own, workers)
            assert (after == "here") == (trial.each < own.each and sure)
            chosen[after, "at once"] += 1
            if trial.each < own.each and not sure:
                # The workers' epoch may have been slow because it was the first one.
                assert known.watches
                warm = own._replace(seconds=own.seconds * draw.choice([1e-3, 0.9, 1.0]))
                known.learn_own(warm, workers, look)
                after = known.next(look)
                assert (after == "here") == (trial.each < warm.each and promising(warm))
                assert not known.watches
                chosen[after, "then"] += 1
    assert len(chosen) == 4
    assert min(chosen.values()) > 30


def test_an_epoch_that_takes_longer_is_left() -> None:
    own = epoch(100, step=5.0, waited=1e-3, fixed=0.0)
    assert not too_slow(choosing.FEW - 1, 10.0, own)
    assert too_slow(choosing.FEW, choosing.FEW * 2e-3, own)
    assert not too_slow(50, 50 * 0.9e-3, own)


def test_a_clock_tells_the_script_from_the_waiting() -> None:
    now, used = [0.0], [0.0]
    clock = Clock(lambda: now[0], lambda: used[0])
    now[0] = 1.0  # the workers start
    for took in (2.0, 0.5, 0.25):
        clock.asked()
        now[0] += took
        used[0] += took / 2
        clock.came()
        now[0] += 3.0  # the script works
    clock.asked()
    now[0] += 0.125  # they end
    now[0] += 10.0
    clock.leave_out(10.0)
    measured = clock.finish(0.1)
    assert clock.asking == 2.75
    assert measured == Epoch(3, 1 + 2 + 0.5 + 0.25 + 9 + 0.125, 0.75, 3.125, 0.375, 0.1)
    assert measured.step == 3.0


def test_a_stopwatch_leaves_out_what_others_take_but_not_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now: dict[str, Any] = {"wall": 0.0, "used": 0.0, "waits": 5}
    monkeypatch.setattr(choosing.time, "perf_counter", lambda: now["wall"])
    monkeypatch.setattr(choosing.time, "thread_time", lambda: now["used"])
    monkeypatch.setattr(choosing, "_waits", lambda: now["waits"])
    busy = Stopwatch()
    now.update(wall=3.0, used=1.0)
    assert busy.seconds() == 1.0
    now.update(waits=6)
    assert busy.seconds() == 3.0
    now.update(waits=None)
    assert Stopwatch().seconds() == 0.0
    assert busy.seconds() == 3.0


def test_a_thread_that_waits_is_seen_to_wait() -> None:
    before = choosing._waits()
    time.sleep(0.01)
    assert before is None or choosing._waits() > before


def test_what_is_chosen_is_remembered_until_the_data_set_is_changed() -> None:
    known = Choice()
    assert known.next(lambda: (None, "a")) == "own"
    assert known.watches
    known.learn_own(epoch(), 2, lambda: (None, "a"))
    assert [known.next(lambda: (None, "a")) for _ in range(3)] == ["here"] * 3
    assert known.next(lambda: (None, "b")) == "own"
    assert known.watches
    known.learn_own(epoch(), 2, lambda: (None, "b"))
    assert known.next(lambda: ("it holds a File", "")) == "own"
    assert not known.watches
    assert "it holds a File" in known.words()
    slow = Choice()
    for turn in range(choosing.TURNS):
        assert slow.watches
        slow.learn_own(epoch(), 2, lambda: (None, "a"))
        assert slow.next(lambda: (None, "a")) == "here"
        slow.learn_here(epoch()._replace(seconds=10.0))
        assert slow.next(lambda: (None, "a")) == "own"
        assert slow.watches == (turn + 1 < choosing.TURNS)
    assert "1e+02 ms for a batch in the calling thread" in slow.words()
    other = Choice()
    other.learn_own(epoch(), 2, lambda: ("samples leave files open", ""))
    assert other.next(lambda: (None, "a")) == "own"
    assert pickle.loads(pickle.dumps(known)).watches


# Values.


class Rows(Dataset):
    """Samples without random numbers."""

    def __init__(self, n: int = 23) -> None:
        self.rows = np.arange(n * 4, dtype=np.float32).reshape(n, 4)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> Any:
        return {"row": self.rows[i], "at": (i, torch.tensor(float(i))), "name": f"n{i}"}


class Draws(Rows):
    """Some samples draw, from any of the default generators."""

    def __getitem__(self, i: int) -> Any:
        value = 0.0
        if i % 3 == 1:
            value += np.random.randn() + random.gauss(0, 1)
        if i % 4 == 2:
            value += torch.rand(()).item() + float(np.random.rand()) + random.random()
        return i, value


class Late(Rows):
    """The last sample draws, when many have not."""

    def __getitem__(self, i: int) -> Any:
        return i, np.random.randn() if i in (13, 17, 22) else 0.0


class Bulk(Rows):
    def __getitems__(self, indices: list[int]) -> Any:
        return [(i, torch.rand(2)) for i in indices]


class Failing(Draws):
    def __getitem__(self, i: int) -> Any:
        sample = super().__getitem__(i)
        if i % 7 == 3:
            raise ValueError(f"sample {i}")
        return sample


class Computes(Rows):
    """Its values depend on what is set for the thread that computes them."""

    def __getitem__(self, i: int) -> Any:
        grown = torch.ones(4, 4, requires_grad=True) * (1 + i / 3)
        return (grown @ grown).detach(), grown.requires_grad, torch.tensor([0.5]).dtype.itemsize


@pytest.fixture
def chooses_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The calling thread is chosen wherever it may be, whatever takes how long on this machine."""
    monkeypatch.setattr(choosing, "promising", lambda *_: True)
    monkeypatch.setattr(choosing, "fastest", lambda *_: "here")
    monkeypatch.setattr(here, "too_slow", lambda *_: False)
    monkeypatch.setattr("wellfed.torch._workers.worker.LONGEST", 60.0)
    monkeypatch.setattr("wellfed.torch._workers.processes.LONGEST_LOOK", 60.0)


def made(dataset: Any, batch_size: int | None = 1, **arguments: Any) -> Any:
    """A loader of ours whose samples stay in Python, though they could be read."""
    return DataLoader(dataset, batch_size, native=False, **arguments)


def plain(value: Any) -> Any:
    """Values that can be compared, of a batch or a list of them."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), value.tolist()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list | tuple) else value


def epochs_of(loader: Any, number: int = 3, draws: bool = True) -> tuple[list[Any], list[str]]:
    """Values of some epochs and what the script draws meanwhile; and which iterators gave them."""
    torch.manual_seed(3)
    random.seed(4)
    np.random.seed(5)
    seen, kinds = [], []
    for _ in range(number):
        batches = iter(loader)
        kinds.append(type(batches).__name__)
        for batch in batches:
            own = (random.random(), np.random.randn(), torch.rand(()).item()) if draws else ()
            seen.append((plain(batch), own))
    return seen, kinds


def compared(dataset: Any, number: int = 3, **arguments: Any) -> None:
    """The stock loader's values, though all epochs but the first come from the calling thread."""
    theirs, _ = epochs_of(stock.DataLoader(dataset, **{"num_workers": 2, **arguments}), number)
    loader = made(dataset, **{"num_workers": 2, **arguments})
    ours, kinds = epochs_of(loader, number)
    assert ours == theirs
    assert kinds == ["WorkersIterator"] + ["HereIterator"] * (number - 1), loader.explain()


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize("kind", [Rows, Draws, Late, Bulk, Computes])
def test_values_are_those_of_worker_processes(kind: Any) -> None:
    compared(kind(), batch_size=4, shuffle=True)


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 5, "num_workers": 3, "drop_last": True, "prefetch_factor": 1},
        {"batch_sampler": [[3, 1], [2], [13, 5, 4], [1, 1]], "num_workers": 1},
        {"batch_size": 30},
    ],
)
def test_values_do_not_depend_on_how_batches_are_made(arguments: Any) -> None:
    compared(Draws(), 2, **arguments)


@pytest.mark.usefixtures("chooses_here")
def test_values_of_random_combinations() -> None:
    draw = random.Random(11)
    for _ in range(5):
        arguments: dict[str, Any] = {
            "batch_size": draw.randint(1, 9),
            "shuffle": draw.random() < 0.6,
            "drop_last": draw.random() < 0.5,
            "num_workers": draw.choice([1, 2, 3]),
            "prefetch_factor": draw.choice([1, 2, 4]),
        }
        if draw.random() < 0.5:
            arguments["generator"] = torch.Generator().manual_seed(7)
        found = []
        data = draw.choice([Draws, Late, Rows])(draw.randint(1, 30))
        for loader_of in (stock.DataLoader, made):
            if "generator" in arguments:
                arguments["generator"].manual_seed(7)
            found.append(epochs_of(loader_of(data, **arguments), 2)[0])
        assert found[0] == found[1], arguments


@pytest.mark.usefixtures("chooses_here")
def test_what_is_set_for_the_calling_thread_is_not_set_for_samples() -> None:
    seen = []
    loader = made(Computes(8), batch_size=4, num_workers=1)
    for _ in range(2):
        batches = iter(loader)
        with torch.no_grad(), torch.autocast("cpu"):
            torch.set_default_dtype(torch.float64)
            try:
                seen.append(plain(list(batches)))
                assert torch.get_default_dtype() == torch.float64
            finally:
                torch.set_default_dtype(torch.float32)
    assert type(batches).__name__ == "HereIterator"
    assert seen[0] == seen[1]


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples_are_those_of_workers(on_error: Any) -> None:
    found = []
    for there in (True, False):
        torch.manual_seed(1)
        context: Any = {"multiprocessing_context": "fork"} if there else {}
        loader = made(Failing(), 4, num_workers=2, on_error=on_error, **context)
        found.append(([plain(list(loader)) for _ in range(2)], [(b.index, b.cause) for b in loader.errors()]))
    assert found[0] == found[1]


@pytest.mark.usefixtures("chooses_here")
def test_an_exception_is_raised_where_its_batch_would_be_and_the_epoch_goes_on() -> None:
    loader = made(Failing(), batch_size=4, num_workers=2, shuffle=False)
    stay = made(Failing(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    # An epoch that fails is not measured, so it is told.
    loader._choice(loader._planned()).learn_own(epoch(), 2, lambda: look(loader.dataset, loader.collate_fn))
    found = []
    for one in (stay, loader):
        torch.manual_seed(1)
        batches, seen = iter(one), []
        for _ in range(6):
            try:
                seen.append(plain(next(batches)))
            except ValueError as error:
                caught, _, text = str(error).partition("\nValueError: ")
                seen.append((caught.startswith("Caught ValueError in "), text.partition("\n")[0]))
        found.append(seen)
    assert type(batches).__name__ == "HereIterator"
    assert found[0] == found[1]
    assert found[0][0] == (True, "sample 3")


class Interrupted(Draws):
    """Ctrl-C in the middle of a sample."""

    signals: tuple[int, ...] = (13, 14)

    def __getitem__(self, i: int) -> Any:
        sample = super().__getitem__(i)
        if i in self.signals:
            raise KeyboardInterrupt
        return sample


def test_ctrl_c_leaves_the_scripts_generators_alone_and_the_batch_to_be_made(monkeypatch: Any) -> None:
    known = Choice()
    known.learn_own(epoch(), 2, lambda: (None, ""))
    monkeypatch.setattr(
        choosing._REMEMBERED, "of", lambda *_: types.SimpleNamespace(setdefault=lambda *_: known)
    )
    monkeypatch.setattr(known, "next", lambda _: "here")
    loader = made(Interrupted(), batch_size=4, num_workers=2)
    batches = iter(loader)
    head = [plain(next(batches)) for _ in range(3)]
    before = random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[2:]
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    assert (random.getstate(), torch.get_rng_state().tolist(), np.random.get_state()[2:]) == before
    monkeypatch.setattr(Interrupted, "signals", ())
    assert [row[0] for row in [plain(next(batches))]] == [("torch.int64", [12, 13, 14, 15])]
    assert len(head) == 3


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize(("kind", "stop"), [(Rows, 1), (Draws, 3), (Draws, 6)])
def test_states_are_taken_and_loaded_with_any_choice(kind: Any, stop: int) -> None:
    dataset = kind()
    rests = []
    taken = made(dataset, batch_size=4, shuffle=True, num_workers=2)
    assert len(list(taken)) == 6
    forked: Any = {"multiprocessing_context": "fork"}
    for before in ({}, forked):
        torch.manual_seed(8)
        loader = made(dataset, batch_size=4, shuffle=True, num_workers=2, **before)
        batches = iter(loader)
        assert (type(batches).__name__ == "HereIterator") == (not before)
        for _ in range(stop):
            next(batches)
        state = loader.state_dict()
        rests.append(state)
        for after in ({}, forked):
            other = made(dataset, batch_size=4, shuffle=True, num_workers=2, **after)
            other.load_state_dict(state)
            torch.manual_seed(99)
            rests.append([plain(list(other)) for _ in range(2)])
    # Of the two ways to take a state, each loaded in two ways.
    assert rests[0] == rests[3]
    assert rests[1] == rests[2] == rests[4] == rests[5]


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize("kind", [Rows, Late, Draws])
@pytest.mark.parametrize("workers", [2, "auto"])
def test_an_epoch_may_go_on_in_processes(kind: Any, workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wellfed.torch._loader.auto_workers", lambda: 2)
    monkeypatch.setattr(here, "too_slow", lambda batches, *_: batches == 3)
    arguments: Any = {"batch_size": 2, "num_workers": workers}
    forked = epochs_of(made(kind(), multiprocessing_context="fork", **arguments), 2)[0]
    loader = made(kind(), **arguments)
    ours, kinds = epochs_of(loader, 2)
    assert ours == forked
    assert kinds == ["WorkersIterator", "HereIterator"]
    # Workers cannot take over where one of theirs has drawn numbers of its own.
    stays = kind is not Draws or workers == "auto"
    assert ("the calling thread took longer" in loader.explain()) == stays


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize("when", ["iter", "next"])
def test_a_thread_that_is_not_the_main_one_gets_batches_of_processes(when: str) -> None:
    """Samples that were made there would draw while the main thread does."""
    loader = made(Draws(), batch_size=4, num_workers=2)
    stay = made(Draws(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    assert len(list(loader)) == 6
    found: list[Any] = []
    for one in (stay, loader):
        torch.manual_seed(1)
        batches: Any = iter(one) if when == "next" else one
        other = threading.Thread(target=lambda batches=batches: found.append(plain(list(batches))))
        other.start()
        other.join()
    assert found[0] == found[1]
    if when == "next":
        assert type(batches).__name__ == "HereIterator"
        assert not batches._pool.here
        assert "asked for in a thread" in loader.explain()


@pytest.mark.usefixtures("chooses_here")
def test_auto_draws_the_same_wherever_samples_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wellfed.torch._loader.auto_workers", lambda: 2)
    found = []
    for context in ({"multiprocessing_context": "fork"}, {}):
        loader = made(Draws(), batch_size=4, num_workers="auto", shuffle=True, **context)
        seen, kinds = epochs_of(loader)
        found.append(seen)
    assert kinds == ["WorkersIterator", "HereIterator", "HereIterator"]
    assert found[0] == found[1]
    assert "num_workers=auto: 2" in loader.explain()
    assert "in the calling thread" in loader.explain()


@pytest.mark.usefixtures("chooses_here")
def test_a_loader_that_is_made_anew_goes_on_with_what_was_found_out() -> None:
    dataset = Rows()
    kinds = []
    for _ in range(3):
        batches = iter(made(dataset, batch_size=4, num_workers=2))
        kinds.append(type(batches).__name__)
        assert len(list(batches)) == 6
    assert kinds == ["WorkersIterator", "HereIterator", "HereIterator"]
    again = pickle.loads(pickle.dumps(made(dataset, batch_size=4, num_workers=2)))
    assert type(iter(again)).__name__ == "WorkersIterator"


@pytest.mark.usefixtures("chooses_here")
def test_an_epoch_that_is_over_starts_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    loader = made(Rows(), batch_size=4, num_workers=2)
    assert len(list(loader)) == 6
    batches = iter(loader)
    assert len(list(batches)) == 6
    monkeypatch.setattr(here, "too_slow", lambda *_: True)
    assert [next(batches, None) for _ in range(3)] == [None] * 3
    assert batches._pool.here


@pytest.mark.usefixtures("chooses_here")
def test_an_epoch_that_was_broken_off_says_nothing() -> None:
    loader = made(Rows(), batch_size=4, num_workers=2)
    next(iter(loader))
    assert loader._choice(loader._planned()).watches
    assert len(list(loader)) == 6
    assert type(iter(loader)).__name__ == "HereIterator"


class Stateful:
    """A collate function that counts."""

    def __call__(self, samples: Any) -> Any:
        return len(samples)

    def state_dict(self) -> Any:
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize(
    "arguments",
    [
        {"persistent_workers": True},
        {"worker_init_fn": print},
        {"timeout": 60},
        {"multiprocessing_context": "fork"},
        {"batch_size": None},
        {"collate_fn": Stateful()},
    ],
)
def test_what_the_script_says_of_its_workers_holds(arguments: Any) -> None:
    loader = made(Rows(4), **{"batch_size": 2, "num_workers": 1, **arguments})
    for _ in range(2):
        batches = iter(loader)
        assert len(list(batches)) > 0
        assert type(batches).__name__ == "WorkersIterator"


HELD = torch.zeros(2)
ROWS = Rows()


def padded(samples: Any) -> Any:
    rows = [torch.from_numpy(sample["row"])[: 1 + i % 3] for i, sample in enumerate(samples)]
    return torch.nn.utils.rnn.pad_sequence(rows), {"names": [sample["name"] for sample in samples]}


def stacked(samples: Any) -> Any:
    batch = stock.default_collate(samples)
    return {**batch, "sum": batch["row"].sum(1)}


COLLATES: list[tuple[Any, bool]] = [
    (padded, True),
    (stacked, True),
    (lambda samples: (np.stack([s["row"] for s in samples]), [1, "a"]), True),
    (list, False),
    (lambda samples: tuple(zip(*[(s["row"], s["name"]) for s in samples])), False),
    (lambda samples: [s["at"][1] for s in samples], False),
    (lambda samples: (stock.default_collate(samples), HELD), False),
    (lambda samples: (stock.default_collate(samples), ROWS.rows[0]), False),
    (lambda samples: torch.from_numpy(ROWS.rows[samples[0]["at"][0] :]), False),
    (lambda samples: torch.from_numpy(ROWS.rows[samples[0]["at"][0]]), False),
    (lambda samples: torch.arange(10.0)[:5], False),
    (lambda samples: {1, 2}, False),
]


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize(("collate", "new"), COLLATES, ids=lambda _: "collate")
def test_a_batch_of_the_calling_thread_is_the_scripts_own(collate: Any, new: bool) -> None:
    loader = made(Rows(), batch_size=4, num_workers=1, collate_fn=collate)
    stay = stock.DataLoader(Rows(), batch_size=4, num_workers=1, collate_fn=collate)
    seen = [plain(batch) for batch in stay]
    assert [plain(batch) for batch in loader] == seen
    assert [plain(batch) for batch in loader] == seen
    assert (type(iter(loader)).__name__ == "HereIterator") == new, loader.explain()
    assert ("not its own" in loader.explain()) != new


# What is not safe.


class Counts(Rows):
    count = 0

    def __getitem__(self, i: int) -> Any:
        self.count += 1
        return i, self.count


class Caches(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.cache: dict[int, int] = {}

    def __getitem__(self, i: int) -> Any:
        return self.cache.setdefault(i, i)


class Fills(Rows):
    def __getitem__(self, i: int) -> Any:
        self.rows[i] += 1
        return self.rows[i].copy()


OPENED: dict[int, Any] = {}


class Opens(Rows):
    def __getitem__(self, i: int) -> Any:
        if os.devnull not in OPENED:
            OPENED[os.devnull] = open(os.devnull)  # noqa: SIM115
        return i


@pytest.mark.usefixtures("chooses_here")
@pytest.mark.parametrize(
    ("kind", "why"),
    [(Counts, "change"), (Caches, "change"), (Fills, "change"), (Opens, "leave files open")],
)
def test_samples_that_change_something_stay_in_processes(kind: Any, why: str) -> None:
    dataset = kind()
    found = []
    for loader_of in (stock.DataLoader, made):
        loader: Any = loader_of(dataset, batch_size=4, num_workers=1)
        found.append([plain(list(loader)) for _ in range(2)])
    assert found[0] == found[1]
    assert why in loader.explain()
    assert "in the calling thread, with" not in loader.explain()


@pytest.mark.usefixtures("chooses_here")
def test_a_data_set_that_was_changed_is_measured_anew() -> None:
    dataset = Rows()
    loader = made(dataset, batch_size=4, num_workers=2)
    kinds = []
    for number in range(5):
        if number in (2, 3):
            dataset.rows = dataset.rows + 1
        batches = iter(loader)
        kinds.append(type(batches).__name__.removesuffix("Iterator"))
        assert next(batches)["row"][0, 0] == max(0, min(number, 3) - 1)
        list(batches)
    assert kinds == ["Workers", "Here", "Workers", "Workers", "Here"]


COUNTER = 0
RNG = np.random.default_rng(3)


@functools.lru_cache
def cached(i: int) -> int:
    return i


class Asks(Rows):
    def __getitem__(self, i: int) -> Any:
        return self.inner(i)

    def inner(self, i: int) -> Any:
        return os.getpid()


class Global(Rows):
    def __getitem__(self, i: int) -> Any:
        global COUNTER
        COUNTER += 1
        return COUNTER


class Generates(Rows):
    def __getitem__(self, i: int) -> Any:
        return RNG.random()


class Cached(Rows):
    def __getitem__(self, i: int) -> Any:
        return [cached(j) for j in range(i)]


class Imports(Rows):
    def __getitem__(self, i: int) -> Any:
        import multiprocessing

        return multiprocessing.cpu_count()


class Seeds(Rows):
    def __getitem__(self, i: int) -> Any:
        torch.manual_seed(i)
        return torch.rand(2)


class Info(Rows):
    def __getitem__(self, i: int) -> Any:
        return stock.get_worker_info().id


class Holds(Rows):
    def __init__(self, held: Any) -> None:
        super().__init__()
        self.held = [{"deep": (held,)}]


def unsafe() -> list[tuple[Any, str]]:
    file = open(os.devnull)  # noqa: SIM115
    held = [
        (sqlite3.connect(":memory:"), "sqlite3.Connection"),
        (file, "TextIOWrapper"),
        (random.Random(3), "random.Random"),
        (np.random.default_rng(3), "Generator"),
        (np.random.RandomState(3), "RandomState"),
        (torch.Generator(), "Generator"),
        (iter([1]), "list_iterator"),
        (threading.Lock(), "lock"),
        (torch.zeros(3).share_memory_(), "share"),
        (torch.multiprocessing.Value("i", 3), "Synchronized"),
        (cached, "lru_cache"),
        (memoryview(b"abc"), "memoryview"),
        (Image.new("RGB", (2, 2)), "Imaging"),
        (np.frombuffer(bytearray(8)), "not its own"),
    ]
    sets: list[tuple[Any, str]] = [(Holds(value), name) for value, name in held]
    return [
        *sets,
        (Asks(), "getpid"),
        (Global(), "COUNTER"),
        (Generates(), "Generator"),
        (Cached(), "lru_cache"),
        (Imports(), "multiprocessing"),
        (Seeds(), "manual_seed"),
        (Info(), "get_worker_info"),
    ]


@pytest.mark.parametrize(
    ("dataset", "why"), unsafe(), ids=lambda value: value if type(value) is str else "set"
)
def test_what_is_not_safe_here_is_known_by_its_type_or_code(dataset: Any, why: str) -> None:
    found = look(dataset)
    assert found.why is not None
    assert why in found.why


def test_an_hdf5_file_stays_in_processes(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(4)
    with h5py.File(tmp_path / "a.h5") as file:
        assert "h5py" in (look(Holds(file)).why or "")
        assert "h5py" in (look(Holds(file["x"])).why or "")


class Tricky(Rows):
    """Everything about it can tell that it was looked at."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)

    @property
    def size(self) -> int:
        raise AssertionError

    def __eq__(self, other: object) -> bool:
        raise AssertionError

    __hash__ = None  # type: ignore[assignment]


class Listed(list[Any]):
    def __iter__(self) -> Any:
        raise AssertionError

    def __len__(self) -> int:
        raise AssertionError


SAFE: list[Any] = [
    Rows(),
    Draws(),
    Tricky(),
    stock.Subset(Rows(), [3, 1]),
    stock.ConcatDataset([Rows(), Draws()]),
    Holds(
        transforms.Compose([transforms.RandomCrop(3), transforms.RandomApply([transforms.RandomInvert()])])
    ),
    Holds({"paths": [f"{i}.jpg" for i in range(10_000)], "ids": set(range(100)), "kind": np.int64(3)}),
    Holds(collections.defaultdict(list, {1: [2]})),
    Holds(functools.partial(max, 3)),
    Holds(argparse.Namespace(size=3, kinds=["a"])),
    Holds(Listed([1, 2])),
    Holds(np.array(["a", "b"], dtype=object)),
    Holds(torch.arange(10).numpy()),
]


@pytest.mark.parametrize("dataset", SAFE, ids=lambda _: "set")
def test_what_is_safe_is_known_and_none_of_its_code_is_run(dataset: Any) -> None:
    found = look(dataset, torch.utils.data.default_collate)
    assert found.why is None
    assert look(dataset, torch.utils.data.default_collate) == found


def test_each_change_changes_the_mark() -> None:
    dataset = Holds({"a": [1, 2, 3], "b": torch.zeros(3), "c": np.zeros(100_000), "d": {}, "e": Rows()})
    held = dataset.held[0]["deep"][0]
    marks = {look(dataset).mark}
    changes = [
        lambda: held["a"].append(1),
        lambda: held["a"].__setitem__(0, 9),
        lambda: held["b"].add_(1),
        lambda: held["c"].fill(1),
        lambda: held["d"].update(x=1),
        lambda: setattr(held["e"], "new", 1),
        lambda: setattr(held["e"], "rows", held["e"].rows.copy()),
        lambda: setattr(dataset, "held", [*dataset.held]),
    ]
    for number, change in enumerate(changes, 2):
        change()
        marks.add(look(dataset).mark)
        assert len(marks) == number
    assert look(dataset).mark in marks


def test_a_look_has_an_end() -> None:
    deep: list[Any] = []
    for _ in range(reach.MOST + 10):
        deep = [deep]
    assert "parts" in (look(deep).why or "")
    around: list[Any] = []
    around.append(around)
    assert look(around).why is None


# The default generators.


@pytest.mark.parametrize("kept", [False, True])
def test_what_is_drawn_is_noticed_and_put_back(kept: bool) -> None:
    draws: list[Any] = [
        random.random,
        lambda: random.gauss(0, 1),
        np.random.rand,
        np.random.randn,
        lambda: torch.rand(1),
        lambda: np.random.seed(3),
        lambda: random.seed(3),
    ]
    for draw in draws:
        watch = defaults.Watch()
        for _ in range(3):
            random.seed(1)
            np.random.seed(2)
            torch.manual_seed(3)
            if kept:
                np.random.randn()  # a second number is kept for the next call
            before = defaults.taken()
            watch.begin()
            assert not watch.drew()
            watch.begin()
            draw()
            assert watch.drew()
            after = defaults.taken()
            assert after.python == before.python
            assert torch.equal(after.torch, before.torch)
            assert all(np.array_equal(a, b) for a, b in zip(after.numpy, before.numpy))
            # And what the script draws in between is its own.
            np.random.randn()
            random.random()
