"""Worker processes: seeds, errors, deaths, memory, and that nothing is left of them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as Stock

import torch_worker_sets as sets
from wellfed.torch import DataLoader
from wellfed.torch._workers import supported
from wellfed.torch._workers.channel import Channel

pytestmark = pytest.mark.skipif(not supported(), reason="worker processes of wellfed need Linux")

METHODS = ["fork", "spawn", "forkserver"]


def drained(loader):
    return list(loader)


@pytest.mark.parametrize("method", METHODS)
def test_seeds_and_worker_info_are_those_of_torch(method):
    results = []
    for kind in (Stock, DataLoader):
        torch.manual_seed(3)
        loader = kind(sets.Seeds(12), batch_size=2, num_workers=2, multiprocessing_context="fork")
        if kind is DataLoader:
            torch.manual_seed(3)
            loader = kind(sets.Seeds(12), batch_size=2, num_workers=2, multiprocessing_context=method)
        results.append(torch.cat(drained(loader)))
    assert torch.equal(*results)


@pytest.mark.filterwarnings("ignore:.*use of fork")
def test_a_process_that_a_data_set_forks_keeps_out_of_the_memory_of_batches():
    [batch] = DataLoader(sets.Forks(), batch_size=4, num_workers=1)
    assert torch.equal(batch, torch.ones(4, 50_000))


def test_worker_init_fn_sees_its_data_set():
    loader = DataLoader(sets.Marked(4), num_workers=2, worker_init_fn=sets.init_marks)
    assert [int(x) for x in loader] == [1000, 1001, 1000, 1001]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("persistent", [False, True])
def test_shares_of_iterable_data_sets_end_one_by_one(persistent):
    loader = DataLoader(sets.Shares(0, 3, 7), batch_size=2, num_workers=3, persistent_workers=persistent)
    stock = Stock(sets.Shares(0, 3, 7), batch_size=2, num_workers=3)
    expected = [x.tolist() for x in stock]
    for _ in range(2):
        assert [x.tolist() for x in loader] == expected


def test_getitems_and_batch_samplers():
    batches = [[3, 1], [2], [5, 5, 5]]
    loader = DataLoader(sets.Bulk(), batch_sampler=batches, num_workers=2)
    assert [x.tolist() for x, _ in loader] == batches


def test_out_of_order_gives_every_batch_once():
    loader = DataLoader(sets.Slow(0.2, at=0), batch_size=2, num_workers=2, in_order=False)
    got = [x.tolist() for x in loader]
    assert sorted(got) == [[i, i + 1] for i in range(0, 24, 2)]


def test_persistent_workers_are_the_same_processes_with_the_same_copies():
    loader = DataLoader(sets.Counts(8), batch_size=4, num_workers=2, persistent_workers=True)
    one, two = (torch.cat(drained(loader)) for _ in range(2))
    assert one[:, 2].tolist() == two[:, 2].tolist()
    assert two[:, 1].tolist() == [5, 6, 7, 8] * 2
    # An epoch that is begun anew does not give batches of the one before.
    iterator = iter(loader)
    next(iterator)
    assert torch.cat(drained(loader))[:, 0].tolist() == list(range(8))
    fresh = DataLoader(sets.Counts(8), batch_size=4, num_workers=2)
    one, two = (torch.cat(drained(fresh)) for _ in range(2))
    assert not set(one[:, 2].tolist()) & set(two[:, 2].tolist())
    assert two[:, 1].tolist() == [1, 2, 3, 4] * 2


def test_a_word_that_comes_late_does_not_stop_the_epoch_that_runs(monkeypatch):
    """On a loaded machine, the worker's watching thread may hear of an epoch when the next one has begun."""
    receive = Channel.recv

    def late(channel, flags=0):
        message = receive(channel, flags)
        if threading.current_thread().name == "wellfed-watch":
            time.sleep(0.5)
        return message

    class Slow(sets.Squares):
        def __getitem__(self, i):
            time.sleep(0.05)
            return super().__getitem__(i)

    monkeypatch.setattr(Channel, "recv", late)
    loader = DataLoader(
        Slow(16),
        batch_size=2,
        num_workers=2,
        persistent_workers=True,
        timeout=20,
        multiprocessing_context="fork",
    )
    for _ in range(4):
        assert [int(x) for pair in drained(loader) for x in pair[1]] == [i * i for i in range(16)]


def test_batches_of_an_epoch_that_was_left_give_their_memory_back():
    class First(sets.Large):
        def __getitem__(self, i):
            if i == 0:
                time.sleep(0.2)
            return super().__getitem__(i)

    loader = DataLoader(First(), num_workers=2, persistent_workers=True, multiprocessing_context="fork")
    for _ in range(8):
        iterator = iter(loader)
        next(iterator)  # Those of the second worker have come before it.
    assert len(iterator._pool.members[1].mappings.mappings) <= 6


def test_the_next_epoch_begins_when_it_is_asked_for():
    """What a data set shares with its workers may be set between epochs, and holds from the first batch on."""

    class Scheduled(sets.Squares):
        epoch = torch.zeros((), dtype=torch.int64).share_memory_()

        def __getitem__(self, i):
            return int(self.epoch)

    dataset = Scheduled(12)
    loader = DataLoader(
        dataset, batch_size=2, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    for epoch in range(3):
        dataset.epoch.fill_(epoch)
        assert torch.cat(drained(loader)).tolist() == [epoch] * 12
        time.sleep(0.05)  # for whoever works ahead


@pytest.mark.parametrize(
    ("error", "kind"),
    [(KeyError("k"), KeyError), (ValueError("v"), ValueError), (sets.TwoArguments(1, 2), RuntimeError)],
)
def test_exceptions_come_with_their_traceback_and_the_index_of_the_sample(error, kind):
    loader = DataLoader(sets.Raises(error), batch_size=4, num_workers=2)
    iterator = iter(loader)
    got = [next(iterator) for _ in range(2)]
    with pytest.raises(kind) as caught:
        next(iterator)
    text = str(caught.value)
    assert f"Caught {type(error).__name__} in DataLoader worker process 0." in text
    assert "Original Traceback (most recent call last):" in text
    assert "in __getitem__" in text
    assert text.rstrip().endswith("sample 11, item 3 of its batch (batch 2)")
    # As in torch, the epoch can go on.
    assert len(got) + len(drained(iterator)) == 5


def test_exceptions_of_classes_that_cannot_travel():
    class Local(Exception):
        pass

    with pytest.raises(RuntimeError, match=r"Local \(its class cannot be pickled\)"):
        drained(DataLoader(sets.Raises(Local("x")), batch_size=4, num_workers=1))


def test_exceptions_of_collation_iteration_and_packing():
    def refuses(samples):
        raise TypeError("no")

    def local_class(samples):
        return type("Inner", (), {})()

    with pytest.raises(TypeError, match=r"collating the samples \[0, 1, 2\]"):
        drained(DataLoader(sets.Squares(), batch_size=3, num_workers=1, collate_fn=refuses))
    with pytest.raises(Exception, match=r"packing batch 0"):
        drained(DataLoader(sets.Squares(), batch_size=3, num_workers=1, collate_fn=local_class))
    with pytest.raises(ValueError, match="sample 2 of this worker's share"):
        drained(DataLoader(sets.Shares(4, fail=2), batch_size=3, num_workers=1))
    with pytest.raises(RuntimeError, match="init of 0 failed"):
        drained(DataLoader(sets.Squares(), num_workers=1, worker_init_fn=sets.init_fails))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("how", "said"),
    [
        (signal.SIGKILL, "killed by SIGKILL .*out of memory"),
        (signal.SIGBUS, "killed by SIGBUS"),
        ("exit", "exited with code 3"),
    ],
)
def test_a_dead_worker_is_an_error_that_says_how_it_died(method, how, said):
    loader = DataLoader(sets.Dies(how), batch_size=4, num_workers=2, multiprocessing_context=method)
    iterator = iter(loader)
    with pytest.raises(
        RuntimeError, match=r"(?s)DataLoader worker \(pid\(s\) \d+\) exited unexpectedly.*" + said
    ):
        drained(iterator)
    with pytest.raises(RuntimeError, match="exited unexpectedly"):
        next(iterator)


def test_timeout_is_torchs():
    loader = DataLoader(sets.Slow(30, at=0), batch_size=2, num_workers=1, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0.5 seconds"):
        next(iter(loader))


def test_a_stuck_worker_is_reported_with_its_stack():
    loader = DataLoader(sets.Slow(2.5), batch_size=4, num_workers=2, stall_warning=0.5)
    with pytest.warns(
        RuntimeWarning, match=r"(?s)batch 2 \(samples \[8, 9, 10, 11\]\).*worker 0.*wait_for_a_long"
    ):
        assert len(drained(loader)) == 6


def test_batches_are_writable_and_slots_are_used_again():
    loader = DataLoader(sets.Large(40), batch_size=2, num_workers=1)
    iterator = iter(loader)
    for i, batch in enumerate(iterator):
        assert batch[:, 0].tolist() == [2 * i, 2 * i + 1]
        batch += 1
        assert len(iterator._pool.members[0].mappings.mappings) <= 5
        del batch


def test_all_batches_can_be_held_and_memory_goes_back():
    loader = DataLoader(sets.Large(40), batch_size=2, num_workers=2)
    iterator = iter(loader)
    held = list(iterator)
    assert [b[0, 0].item() for b in held] == list(range(0, 40, 2))
    del iterator
    gc.collect()
    # Tensors outlive the workers.
    assert [b[1, -1].item() for b in held] == list(range(1, 40, 2))
    assert mapped_batches() >= 20
    del held
    gc.collect()
    assert mapped_batches() == 0


def mapped_batches() -> int:
    return sum("memfd:wellfed-batch" in line for line in Path("/proc/self/maps").read_text().splitlines())


def test_labels_that_are_kept_do_not_keep_the_images():
    loader = DataLoader(sets.Structures(), batch_size=2, num_workers=1)
    iterator = iter(loader)
    kept = []
    for batch in iterator:
        kept.append(batch["pair"].image)
        del batch
    gc.collect()
    assert mapped_batches() == 0
    assert torch.cat(kept).tolist() == list(range(10))


def test_a_worker_may_keep_what_it_collated():
    loader = DataLoader(sets.Keeps(), batch_size=2, num_workers=1, collate_fn=sets.KeepingCollate())
    assert [mean for _, mean in loader] == [0.5] * 12


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_workers_share_what_they_hold_until_they_write(method):
    dataset = sets.Holds()
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context=method)
    for _ in range(2):
        rows = drained(loader)
        assert [row[0] for row in rows] == [1, 1, 2, 3, 4, 5, 6, 7]
        assert {row[1] for row in rows} == {10.0}
        assert [row[2] for row in rows] == dataset.names[:8]
        assert all(row[3] for row in rows)
        assert len({row[4] for row in rows}) == 2
    assert dataset.array[0] == 0
    dataset.names[0] = "changed"
    assert drained(loader)[0][2] == "changed"


def test_what_opens_files_when_unpickled_is_unpickled_by_each_worker(tmp_path: Path):
    path = tmp_path / "numbers"
    path.write_bytes(np.arange(40, dtype="<u4").tobytes())
    dataset = sets.Lines(str(path))
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context="spawn")
    assert torch.cat(drained(loader)).tolist() == list(range(40))
    dataset.open.file.close()


def test_a_data_set_that_cannot_be_sent_or_unpacked():
    unsendable = sets.Squares()
    unsendable.function = lambda: 1
    with pytest.warns(UserWarning, match="Got pickle error"), pytest.raises(Exception, match="lambda"):
        iter(DataLoader(unsendable, num_workers=1, multiprocessing_context="spawn"))
    with pytest.raises(RuntimeError, match="does not like to be unpickled"):
        drained(DataLoader(sets.Unpicklable(), num_workers=1, multiprocessing_context="spawn"))


def test_multiprocessings_own_objects_can_be_part_of_a_data_set():
    import multiprocessing

    context = multiprocessing.get_context("spawn")
    dataset = sets.Squares(4)
    dataset.counter = context.Value("i", 5)
    dataset.queue = context.Queue()
    loader = DataLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context="spawn")
    assert [x.tolist() for x, _ in loader] == [[0, 1], [2, 3]]
    dataset.queue.close()
    dataset.queue.join_thread()


def resources() -> tuple[int, int, str]:
    gc.collect()
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return len(os.listdir("/proc/self/fd")), threading.active_count(), children


@pytest.mark.parametrize(("method", "count"), [("fork", 30), ("spawn", 3)])
def test_loaders_dropped_half_way_leave_nothing(method, count):
    gc.collect()
    before = resources()
    for _ in range(count):
        iterator = iter(DataLoader(sets.Large(), batch_size=2, num_workers=2, multiprocessing_context=method))
        next(iterator)
    del iterator
    assert resources() == before
    assert mapped_batches() == 0


def test_dropping_does_not_wait_for_the_garbage_collector():
    iterator = iter(DataLoader(sets.Squares(), batch_size=2, num_workers=2))
    next(iterator)
    processes = iterator._workers
    gc.disable()
    try:
        del iterator
        assert not any(p.is_alive() for p in processes)
        assert [p.exitcode for p in processes] == [0, 0]
    finally:
        gc.enable()


PARENT = """
import signal, sys, time
# Where the tests run in a shell's background, SIGINT comes ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = {paths!r}
import torch_worker_sets as sets
from wellfed.torch import DataLoader
if __name__ == "__main__":
    iterator = iter(DataLoader(sets.Slow(1000), batch_size=2, num_workers=2, multiprocessing_context={method!r}))
    next(iterator)
    print(*[w.pid for w in iterator._workers], flush=True)
    {then}
"""


def start_parent(tmp_path: Path, method: str, then: str) -> tuple[subprocess.Popen[str], list[int]]:
    import wellfed

    script = tmp_path / "parent.py"
    paths = [str(Path(wellfed.__file__).parents[1]), str(Path(__file__).parent)]
    script.write_text(PARENT.format(paths=paths, method=method, then=then))
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    line = parent.stdout.readline()
    if not line:
        raise AssertionError(parent.communicate()[1])
    return parent, [int(pid) for pid in line.split()]


def gone(pids: list[int]) -> bool:
    """Whether the processes end; the limit is for loaded machines."""
    deadline = time.monotonic() + 60
    while any(runs(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(runs(pid) for pid in pids)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("method", METHODS)
def test_workers_end_with_a_killed_parent_even_in_the_middle_of_a_sample(tmp_path, method):
    parent, pids = start_parent(tmp_path, method, "time.sleep(1000)")
    assert len(pids) == 2
    parent.kill()
    parent.communicate()
    assert gone(pids)


@pytest.mark.parametrize(("method", "then"), [("fork", "pass"), ("fork", "raise OSError"), ("spawn", "pass")])
def test_workers_end_with_their_program(tmp_path, method, then):
    parent, pids = start_parent(tmp_path, method, then)
    _, errors = parent.communicate(timeout=120)
    assert parent.returncode == (0 if then == "pass" else 1), errors
    assert ("OSError" in errors) == (then != "pass")
    assert gone(pids)


def test_ctrl_c_is_the_consumers_to_answer(tmp_path):
    parent, pids = start_parent(tmp_path, "fork", "list(iterator)")
    for pid in pids:
        os.kill(pid, signal.SIGINT)
    time.sleep(0.3)
    assert all(runs(pid) for pid in pids)
    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors
    assert gone(pids)


def test_a_fork_while_other_threads_work_is_warned_of_once(monkeypatch):
    from wellfed.torch._workers import pool

    monkeypatch.setattr(pool, "warned", set())
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    thread = threading.Thread(target=spin, name="busy bee")
    thread.start()
    try:
        with pytest.warns(RuntimeWarning, match=r"(?s)forked while .*busy bee.*forkserver"):
            drained(DataLoader(sets.Squares(4), num_workers=1, multiprocessing_context="fork"))
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            drained(DataLoader(sets.Squares(4), num_workers=1, multiprocessing_context="fork"))
    finally:
        stop.set()
        thread.join()
