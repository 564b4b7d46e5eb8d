"""Worker threads: torch's order and errors, one data set for all, and that nothing is left of them."""

from __future__ import annotations

import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader as Stock
from torch.utils.data import get_worker_info as stock_worker_info

import torch_worker_sets as sets
import wellfed.torch as wt
from torch_same import same
from wellfed.torch._workers import setup
from wellfed.torch._workers import threads as _threads


def DataLoader(dataset, *args, **kwargs):
    return wt.DataLoader(dataset, *args, multiprocessing_context="thread", **kwargs)


def crews() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("wellfed-worker")]


@pytest.mark.parametrize(
    "arguments", [{"batch_size": 5}, {"batch_size": 4, "drop_last": True}, {"batch_size": None}]
)
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_order_and_draws_of_the_caller_are_those_of_stock(arguments, shuffle):
    results = []
    own = {"persistent_workers": shuffle}
    for make in (Stock, DataLoader):
        torch.manual_seed(1)
        loader = make(sets.Squares(22), shuffle=shuffle, num_workers=2, prefetch_factor=3, **own, **arguments)
        results.append([list(loader), list(loader)])
    assert same(results[1], results[0])
    assert len(results[0][0]) > 4


def test_structures_are_those_of_stock():
    arguments = {"batch_size": 3, "num_workers": 2}
    assert same(list(DataLoader(sets.Structures(), **arguments)), list(Stock(sets.Structures(), **arguments)))


def test_out_of_order_gives_every_batch_once_and_first_what_is_first():
    class First(sets.Squares):
        def __getitem__(self, i):
            if i == 0:
                assert others.wait(60)
            if i > 8:
                others.set()
            return i

    others = threading.Event()
    got = [x.tolist() for x in DataLoader(First(), 2, num_workers=2, in_order=False)]
    assert got[0] != [0, 1]
    assert sorted(got) == [[i, i + 1] for i in range(0, 24, 2)]


def test_every_thread_has_the_data_set_itself_and_knows_its_number():
    class Who(sets.Squares):
        def __getitem__(self, i):
            info = wt.get_worker_info()
            assert info.dataset is self
            assert stock_worker_info() is None
            assert torch.get_num_threads() == 1
            return info.id, info.num_workers, info.seed, threading.get_ident()

    inited: list[tuple[int, int]] = []
    torch.manual_seed(3)
    cores = torch.get_num_threads()
    loader = DataLoader(
        Who(12),
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        worker_init_fn=lambda worker: inited.append((worker, threading.get_ident())),
    )
    one, two = (torch.cat([torch.stack(batch) for batch in loader], 1) for _ in range(2))
    assert one[0].tolist() == [0, 0, 1, 1] * 3
    assert set(one[1].tolist()) == {2}
    assert sorted(inited) == sorted({(int(w), int(t)) for w, t in zip(one[0], one[3], strict=True)})
    assert torch.equal(one, two)
    assert one[2, 2] == one[2, 0] + 1
    assert wt.get_worker_info() is None
    assert torch.get_num_threads() == cores
    in_process = wt.DataLoader(sets.Squares(4), num_workers=1, collate_fn=ids)
    assert list(in_process) == [0, 0, 0, 0]
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert seen == [cores]


def ids(samples):
    info = wt.get_worker_info()
    return None if info is None else info.id


def test_global_generators_are_neither_seeded_nor_drawn_from():
    random.seed(5)
    torch.manual_seed(5)
    expected = random.random()
    loader = DataLoader(sets.Squares(8), num_workers=2, generator=torch.Generator().manual_seed(0))
    list(loader)
    state = torch.get_rng_state()
    list(loader)
    assert torch.equal(torch.get_rng_state(), state)
    random.seed(5)
    list(loader)
    assert random.random() == expected


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KeyError("k"), KeyError), (sets.TwoArguments(1, 2), RuntimeError), (SystemExit(3), SystemExit)],
)
def test_exceptions_come_with_their_traceback_and_the_index_of_the_sample(error, kind):
    iterator = iter(DataLoader(sets.Raises(error), batch_size=4, num_workers=2))
    got = [next(iterator) for _ in range(2)]
    with pytest.raises(kind) as caught:
        next(iterator)
    text = str(caught.value)
    assert f"Caught {type(error).__name__} in DataLoader worker thread 0." in text
    assert "in __getitem__" in text
    if kind is not SystemExit:
        assert text.rstrip().endswith("sample 11, item 3 of its batch (batch 2)")
    assert len(got) + len(list(iterator)) == 5


def test_a_worker_init_fn_that_fails_is_the_end():
    with pytest.raises(RuntimeError, match=r"(?s)worker thread (\d).*init of \1 failed"):
        iter(DataLoader(sets.Squares(), num_workers=2, worker_init_fn=sets.init_fails))
    assert not crews()


def test_timeout_and_reports_of_stuck_threads():
    done = threading.Event()

    class Stuck(sets.Squares):
        def __getitem__(self, i):
            if i == 4:
                done.wait(60)
            return i

    iterator = iter(DataLoader(Stuck(), batch_size=2, num_workers=2, timeout=2, stall_warning=0.3))
    assert [next(iterator).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with (
        pytest.warns(
            RuntimeWarning, match=r"(?s)batch 2 \(samples \[4, 5\]\) of DataLoader worker thread 0.*done.wait"
        ),
        pytest.raises(RuntimeError, match="DataLoader timed out after 2 seconds"),
    ):
        next(iterator)
    done.set()
    assert next(iterator).tolist() == [4, 5]


def test_dropped_loaders_leave_no_thread_and_no_batch():
    class Batch:
        def __init__(self, samples):
            made.append(weakref.ref(self))

    made: list[weakref.ref[Batch]] = []
    gc.collect()
    gc.disable()
    try:
        for persistent in (False, True) * 5:
            loader = DataLoader(
                sets.Squares(), num_workers=3, collate_fn=Batch, persistent_workers=persistent
            )
            iterator = iter(loader)
            next(iterator)
            assert len(crews()) == 3
            del iterator, loader
            assert not crews()
            assert made
            assert not [batch for batch in made if batch() is not None]
    finally:
        gc.enable()


def test_threads_end_in_the_middle_of_a_batch():
    begun, asked = threading.Event(), []

    class Slow(sets.Squares):
        def __getitem__(self, i):
            asked.append(i)
            begun.set()
            time.sleep(0.05)
            return i

    iterator = iter(DataLoader(Slow(2000), batch_size=1000, num_workers=2))
    assert begun.wait(60)
    del iterator
    assert not crews()
    assert len(asked) < 1000


def test_a_thread_that_does_not_end_is_named(monkeypatch):
    monkeypatch.setattr(_threads, "STOP_GRACE", 0.2)
    assert setup.STOP_GRACE > 1
    done, begun = threading.Event(), threading.Event()

    class Stuck(sets.Squares):
        def __getitem__(self, i):
            begun.set()
            done.wait(60)
            return i

    iterator = iter(DataLoader(Stuck(), num_workers=1))
    assert begun.wait(60)
    threads = iterator._workers
    try:
        with pytest.warns(
            RuntimeWarning, match=r"(?s)worker thread 0 was told to end.*done.wait.*hint: a thread"
        ):
            del iterator
    finally:
        done.set()
    threads[0].join(60)
    assert not threads[0].is_alive()


def test_an_epoch_begun_anew_gives_no_batches_of_the_one_before():
    loader = DataLoader(sets.Squares(), batch_size=2, num_workers=2, persistent_workers=True)
    for taken in (1, 3, 11):
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
    assert [x.tolist() for x, _ in loader] == [[i, i + 1] for i in range(0, 24, 2)]
    assert len(crews()) == 2


@pytest.mark.parametrize("after", [1, 5, 12])
def test_states_are_those_of_processes(after):
    def make(context, **own):
        return wt.DataLoader(
            sets.Squares(),
            batch_size=2,
            shuffle=True,
            num_workers=2,
            multiprocessing_context=context,
            generator=torch.Generator().manual_seed(4),
            **own,
        )

    whole = [x.tolist() for x, _ in make("thread")]
    states = []
    for context in ("thread", "fork"):
        loader = make(context)
        batches = iter(loader)
        head = [next(batches)[0].tolist() for _ in range(after)]
        states.append(loader.state_dict())
        del batches
        for other in ("thread", "fork"):
            resumed = make(other, persistent_workers=True)
            resumed.load_state_dict(states[-1])
            assert head + [x.tolist() for x, _ in resumed] == whole
    assert states[0] == states[1]


def test_float_dtype_and_no_warning_of_processes():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = DataLoader(sets.Keeps(), batch_size=2, num_workers=8, float_dtype="bfloat16")
        assert {batch.dtype for batch in loader} == {torch.bfloat16}


class Countdown(sets.Squares):
    def state_dict(self):
        return {}

    def load_state_dict(self, state_dict):
        pass


@pytest.mark.parametrize(
    ("dataset", "why"),
    [(sets.Shares(3), "takes its share from torch"), (Countdown(), "the data set carries a state")],
)
def test_what_threads_cannot_do_is_refused(dataset, why):
    with pytest.raises(ValueError, match=f"'thread' is not possible for a {type(dataset).__name__}: .*{why}"):
        DataLoader(dataset, num_workers=1)
    with pytest.raises(ValueError, match="num_workers=0"):
        DataLoader(dataset)
    with pytest.raises(ValueError, match="valid start method"):
        wt.DataLoader(sets.Squares(), num_workers=1, multiprocessing_context="threads")


def test_workers_are_threads_only_where_that_is_asked_for(monkeypatch):
    """Also without the interpreter lock: threads share one generator, which nobody seeds."""
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: False, raising=False)
    loader = wt.DataLoader(sets.Squares(), num_workers=1)
    assert not isinstance(iter(loader), _threads.ThreadsIterator)
    assert "num_workers=1 threads" not in loader.explain()
    assert isinstance(iter(DataLoader(sets.Squares(), num_workers=1)), _threads.ThreadsIterator)


def test_the_argument_survives_pickling_and_feed():
    import pickle

    loader = pickle.loads(pickle.dumps(DataLoader(sets.Squares(), num_workers=1)))
    assert loader.multiprocessing_context == "thread"
    fed = wt.feed(loader, batch_size=3)
    assert fed.multiprocessing_context == "thread"
    fed = wt.feed(Stock(sets.Squares(), num_workers=1), multiprocessing_context="thread")
    assert isinstance(iter(fed), _threads.ThreadsIterator)
    assert wt.feed(loader, num_workers=0).multiprocessing_context is None


PROGRAM = """
import signal, sys, threading
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = {paths!r}
import torch_worker_sets as sets
from wellfed.torch import DataLoader
iterator = iter(DataLoader(sets.Slow({seconds}), batch_size=2, num_workers=2, multiprocessing_context="thread"))
next(iterator)
print("begun", flush=True)
{then}
"""


@pytest.mark.parametrize("then", ["interrupted", "left"])
def test_programs_end_when_they_are_interrupted_or_through(tmp_path, then):
    script = tmp_path / "program.py"
    paths = [str(Path(wt.__file__).parents[2]), str(Path(__file__).parent)]
    seconds, code = (3, "list(iterator)") if then == "interrupted" else (0.2, "sys.exit(7)")
    script.write_text(PROGRAM.format(paths=paths, seconds=seconds, then=code))
    program = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "begun\n", program.communicate()[1]
    if then == "interrupted":
        time.sleep(0.3)
        program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=120)
    if then == "interrupted":
        assert "KeyboardInterrupt" in errors
    else:
        assert (program.returncode, errors) == (7, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_iterator_in_a_forked_child_says_that_its_threads_are_elsewhere(monkeypatch):
    iterator = iter(DataLoader(sets.Squares(), num_workers=1, prefetch_factor=1))
    list(iterator._pool.wait(0))
    pool = iterator._pool
    for member in pool.members:
        member.tasks.put(None)  # a fork has no threads but its own
        member.thread.join()
    iterator._inbox.clear()
    monkeypatch.setattr(pool, "owner", -1)
    monkeypatch.setattr(_threads, "LOOK", 0.05)
    with pytest.raises(RuntimeError, match="forked from"):
        list(iterator)


def test_our_class_may_stand_in_the_place_of_torchs(monkeypatch):
    monkeypatch.setattr("torch.utils.data.dataloader.DataLoader", wt.DataLoader)
    assert DataLoader(sets.Squares(4), num_workers=1).multiprocessing_context == "thread"
    assert wt.DataLoader(sets.Squares(4), num_workers=1).multiprocessing_context is None
