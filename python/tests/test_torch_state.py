"""A loader that loaded a state goes on as the other would have: every position, kind of data set, and sampler."""

from __future__ import annotations

import json
import pickle
import pprint
import random
import time

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

import wellfed as wf  # noqa: E402
from wellfed.exceptions import StateError  # noqa: E402
from wellfed.torch import DataLoader, Stateful, StateMismatchError  # noqa: E402

WORKERS = [0, 2]


class Squares(Dataset):
    """Map-style, no state."""

    def __init__(self, n=23):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i, i * i


class Counting(Squares):
    """Map-style; its samples depend on how many this process has given."""

    def __init__(self, n=23):
        super().__init__(n)
        self.log = []

    def __getitem__(self, i):
        self.log.append(i)
        return i, len(self.log)

    def state_dict(self):
        return {"log": self.log}  # its own list, which goes on changing

    def load_state_dict(self, state):
        self.log = state["log"]


def share(n):
    """This worker's part of range(n); parts differ in size."""
    info = get_worker_info()
    return range(n) if info is None else range(n)[: n // 3] if info.id == 0 else range(n)[n // 3 :]


class Stream(IterableDataset):
    """Iterable, no state."""

    def __init__(self, n=23):
        self.n = n

    def __iter__(self):
        yield from share(self.n)


class Resumable(IterableDataset):
    """Iterable, a generator function with the state in the data set; forgets its place at the end."""

    def __init__(self, n=23):
        self.n = n
        self.at = 0
        self.epoch = 0
        self.seen = {}

    def __iter__(self):
        for i in list(share(self.n))[self.at :]:
            self.at += 1
            self.seen[str(i % 5)] = i
            yield i, self.epoch, sum(self.seen.values())
        self.at = 0
        self.epoch += 1

    def state_dict(self):
        return {"at": self.at, "epoch": self.epoch, "seen": self.seen}

    def load_state_dict(self, state):
        self.at, self.epoch, self.seen = state["at"], state["epoch"], state["seen"]


class Walk:
    """An iterator with a state of its own, random numbers included."""

    def __init__(self, values):
        self.values = values
        self.at = 0
        self.rng = random.Random(7)

    def __iter__(self):
        return self

    def __next__(self):
        if self.at == len(self.values):
            raise StopIteration
        self.at += 1
        return self.values[self.at - 1], self.rng.random()

    def state_dict(self):
        return {"at": self.at, "rng": self.rng.getstate()}

    def load_state_dict(self, state):
        version, numbers, gauss = state["rng"]
        self.at = state["at"]
        self.rng.setstate((version, tuple(numbers), gauss))


class Walks(IterableDataset):
    def __init__(self, n=23):
        self.n = n

    def __iter__(self):
        return Walk(list(share(self.n)))


class Numbering:
    """A collate function that counts its batches."""

    def __init__(self):
        self.batches = 0

    def __call__(self, samples):
        self.batches += 1
        return self.batches, samples

    def state_dict(self):
        return {"batches": self.batches}

    def load_state_dict(self, state):
        self.batches = state["batches"]


class Drawn(Sampler):
    """A sampler of the user's that draws from torch's default generator and knows of no state."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        yield from torch.randperm(self.n).tolist()


class Backwards(Sampler):
    """A sampler that carries state, and counts its epochs."""

    def __init__(self, n):
        self.n, self.given, self.epoch = n, 0, 0

    def __len__(self):
        return self.n

    def __iter__(self):
        for i in range(self.given, self.n):
            self.given += 1
            yield (self.n - 1 - i + self.epoch) % self.n
        self.given = 0
        self.epoch += 1

    def state_dict(self):
        return {"given": self.given, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.given, self.epoch = state["given"], state["epoch"]


def keep(samples):
    return samples


LOADERS = {
    "map": lambda **k: DataLoader(Squares(), 4, collate_fn=keep, **k),
    "map shuffled": lambda **k: DataLoader(Squares(), 4, shuffle=True, collate_fn=keep, **k),
    "map, drop_last": lambda **k: DataLoader(
        Squares(), 4, shuffle=True, drop_last=True, collate_fn=keep, **k
    ),
    "map unbatched": lambda **k: DataLoader(Squares(), None, shuffle=True, **k),
    "map with state": lambda **k: DataLoader(Counting(), 4, shuffle=True, collate_fn=keep, **k),
    "collate with state": lambda **k: DataLoader(Squares(), 4, collate_fn=Numbering(), **k),
    "user's sampler": lambda **k: DataLoader(Squares(), 4, sampler=Drawn(23), collate_fn=keep, **k),
    "sampler with state": lambda **k: DataLoader(Squares(), 4, sampler=Backwards(23), collate_fn=keep, **k),
    "batch sampler": lambda **k: DataLoader(
        Squares(),
        batch_sampler=BatchSampler(WeightedRandomSampler([1.0] * 23, 19), 4, False),
        collate_fn=keep,
        **k,
    ),
    "iterable": lambda **k: DataLoader(Stream(), 4, collate_fn=keep, **k),
    "iterable unbatched": lambda **k: DataLoader(Stream(), None, **k),
    "iterable with state": lambda **k: DataLoader(Resumable(), 4, collate_fn=keep, **k),
    "iterator with state": lambda **k: DataLoader(Walks(), 4, collate_fn=keep, **k),
}


def workers(number):
    return {"num_workers": number, "multiprocessing_context": "fork" if number else None}


def through(medium, state):
    if medium == "json":
        return json.loads(json.dumps(state))
    if medium == "pickle":
        return pickle.loads(pickle.dumps(state))
    return state


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("number", WORKERS)
@pytest.mark.parametrize("kind", LOADERS)
def test_resumes_at_every_position(kind, number, every):
    make = lambda: LOADERS[kind](snapshot_every_n_steps=every, **workers(number))  # noqa: E731
    torch.manual_seed(1)
    whole, states = [], []
    loader = make()
    for batch in loader:
        whole.append(batch)
        states.append(loader.state_dict())
    positions = (
        range(len(whole))
        if number == 0
        else sorted({0, 1, 2, len(whole) // 2, len(whole) - 2, len(whole) - 1})
    )
    for at in positions:
        torch.manual_seed(1000 + at)  # elsewhere
        resumed = make()
        resumed.load_state_dict(through(("json", "pickle", None)[at % 3], states[at]))
        assert list(resumed) == whole[at + 1 :], f"after batch {at}"


@pytest.mark.parametrize("number", WORKERS)
@pytest.mark.parametrize("kind", LOADERS)
def test_state_before_the_first_batch(kind, number):
    make = lambda: LOADERS[kind](**workers(number))  # noqa: E731
    torch.manual_seed(2)
    loader = make()
    state = loader.state_dict()
    whole = list(loader)
    torch.manual_seed(99)
    resumed = make()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert list(resumed) == whole


@pytest.mark.parametrize("number", WORKERS)
@pytest.mark.parametrize(
    "kind", ["map shuffled", "user's sampler", "sampler with state", "iterable", "map unbatched"]
)
def test_the_next_epoch_follows_the_end_of_one(kind, number):
    make = lambda: LOADERS[kind](**workers(number))  # noqa: E731
    torch.manual_seed(3)
    loader = make()
    first = list(loader)
    state = loader.state_dict()
    second, third = list(loader), list(loader)
    torch.manual_seed(98)
    resumed = make()
    resumed.load_state_dict(through("json", state))
    assert list(resumed) == second
    assert list(resumed) == third
    assert len(first) == len(second)


def test_a_resumed_epoch_is_followed_by_the_same_epochs():
    torch.manual_seed(4)
    loader = LOADERS["map shuffled"]()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest, after = list(batches), [list(loader), list(loader)]
    torch.manual_seed(97)
    resumed = LOADERS["map shuffled"]()
    resumed.load_state_dict(state)
    before = torch.get_rng_state()
    assert list(resumed) == rest
    assert torch.equal(
        before, torch.get_rng_state()
    )  # nothing was drawn that the interrupted run had drawn before
    assert [list(resumed), list(resumed)] == after


def test_restored_random_state_is_used():
    """Who restores torch's generator, too, gets the epochs of the uninterrupted run, whatever else draws from it."""

    def epoch(loader):
        seen = list(loader)
        torch.rand(3)  # as a model with dropout does
        return seen

    torch.manual_seed(5)
    loader = LOADERS["map shuffled"]()
    epoch(loader)
    batches = iter(loader)
    next(batches)
    state, numbers = loader.state_dict(), torch.get_rng_state()
    rest = list(batches)
    torch.rand(3)
    after = [epoch(loader), epoch(loader)]
    torch.manual_seed(96)
    resumed = LOADERS["map shuffled"]()
    resumed.load_state_dict(state)
    torch.set_rng_state(numbers)
    assert list(resumed) == rest
    torch.rand(3)
    assert [epoch(resumed), epoch(resumed)] == after


@pytest.mark.parametrize("number", WORKERS)
@pytest.mark.parametrize("sampler", [RandomSampler, SubsetRandomSampler, None])
def test_a_generator_goes_on_where_it_was(sampler, number):
    def make(seed):
        g = torch.Generator().manual_seed(seed)
        if sampler is None:
            return DataLoader(Squares(), 4, shuffle=True, generator=g, collate_fn=keep, **workers(number))
        source = sampler(range(23), generator=g)
        return DataLoader(Squares(), 4, sampler=source, generator=g, collate_fn=keep, **workers(number))

    loader = make(6)
    list(loader)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    rest, after = list(batches), list(loader)
    resumed = make(1234)
    resumed.load_state_dict(through("json", state))
    assert list(resumed) == rest
    assert list(resumed) == after


def test_same_order_as_torch():
    for arguments in ({"shuffle": True}, {"shuffle": True, "drop_last": True}, {"sampler": Drawn(23)}, {}):
        seen = []
        for kind in (torch.utils.data.DataLoader, DataLoader):
            torch.manual_seed(8)
            loader = kind(Squares(), 4, collate_fn=keep, **arguments)
            seen.append([list(loader), list(loader), torch.rand(1).item()])
        assert seen[0] == seen[1]


def test_a_state_does_not_change_later():
    loader = LOADERS["map with state"]()
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    text = json.dumps(state)
    list(batches)
    assert json.dumps(state) == text


def test_position_is_small():
    loader = DataLoader(Squares(1_000_000), 100, shuffle=True)
    batches = iter(loader)
    for _ in range(50):
        next(batches)
    assert len(json.dumps(loader.state_dict())) < 10_000


def test_state_is_known_after_the_iterator_is_gone():
    loader = LOADERS["map shuffled"]()
    seen = []
    for batch in loader:
        seen.append(batch)
        if len(seen) == 2:
            break
    resumed = LOADERS["map shuffled"]()
    resumed.load_state_dict(loader.state_dict())
    everything = sorted(i for batch in seen + list(resumed) for i, _ in batch)
    assert everything == list(range(23))


def test_an_empty_state_forgets():
    loader = LOADERS["map"]()
    batches = iter(loader)
    next(batches)
    loader.load_state_dict(loader.state_dict())
    loader.load_state_dict({})
    assert len(list(loader)) == 6


def test_loaders_can_still_be_pickled():
    loader = LOADERS["map"]()
    next(iter(loader))
    assert len(list(pickle.loads(pickle.dumps(loader)))) == 6


def test_protocol():
    assert isinstance(Counting(), Stateful)
    assert not isinstance(Squares(), Stateful)
    assert isinstance(DataLoader(Squares()), Stateful)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ([1], "a dict, but got a list"),
        ({"model": 1}, "not the state of a loader"),
        ({"_version": 99, "_num_yielded": 1}, "version 99"),
        ({"_num_yielded": 1}, "damaged"),
    ],
)
def test_wrong_states_are_refused_at_once(state, says):
    with pytest.raises(StateError, match=says) as caught:
        DataLoader(Squares()).load_state_dict(state)
    assert isinstance(caught.value, wf.WellfedError)


def test_what_does_not_fit_is_said():
    loader = LOADERS["map shuffled"]()
    next(iter(loader))
    state = loader.state_dict()
    for other, says in (
        (DataLoader(Stream(), 4), "map-style"),
        (DataLoader(Squares(), 4), "shuffle=True"),
        (DataLoader(Squares(24), 4, shuffle=True), "23 samples, but there are now 24"),
    ):
        other.load_state_dict(state)
        with pytest.raises(StateError, match=says):
            iter(other)

    loader = LOADERS["map with state"]()
    next(iter(loader))
    other = LOADERS["map with state"](**workers(2))
    other.load_state_dict(loader.state_dict())
    with pytest.raises(StateMismatchError, match="num_workers=0, but the loader has num_workers=2"):
        iter(other)
    with pytest.raises(AssertionError):  # torchdata's
        iter(other)


def test_a_generator_state_that_is_damaged():
    loader = DataLoader(Squares(), shuffle=True, generator=torch.Generator().manual_seed(1))
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    state["_sampler_iter_state"]["sampler_iter_state"]["generator"] = "AAAA"
    loader.load_state_dict(state)
    with pytest.raises(StateError, match="damaged"):
        iter(loader)


@pytest.mark.parametrize("value", [-1])
def test_arguments_are_checked(value):
    with pytest.raises(ValueError, match="snapshot_every_n_steps"):
        DataLoader(Squares(), snapshot_every_n_steps=value)


@pytest.mark.parametrize(
    "kind", ["map with state", "iterable with state", "iterator with state", "collate with state"]
)
@pytest.mark.parametrize("every", [1, 3])
def test_workers_that_live_on(kind, every):
    make = lambda: LOADERS[kind](persistent_workers=True, snapshot_every_n_steps=every, **workers(2))  # noqa: E731
    torch.manual_seed(9)
    loader = make()
    first, end = list(loader), loader.state_dict()
    second = []
    for batch in loader:
        second.append(batch)
        if len(second) == 4:
            middle = loader.state_dict()
    third = list(loader)
    assert len(first) == len(second) == len(third)
    for state, expected in ((end, [second, third]), (middle, [second[4:], third])):
        torch.manual_seed(95)
        resumed = make()
        resumed.load_state_dict(through("pickle", state))
        assert [list(resumed), list(resumed)] == expected


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0), (2, 3), (3, 1)])
@pytest.mark.parametrize("kind", ["map shuffled", "user's sampler", "sampler with state", "map unbatched"])
def test_another_number_of_workers_where_nothing_depends_on_it(kind, before, after):
    torch.manual_seed(10)
    loader = LOADERS[kind](**workers(before))
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    rest = list(batches)
    torch.manual_seed(94)
    resumed = LOADERS[kind](**workers(after))
    resumed.load_state_dict(through("json", state))
    assert list(resumed) == rest


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(("before", "after"), [(2, 3), (2, 0), (0, 2)])
def test_another_number_of_workers_is_refused_where_each_has_its_share(before, after):
    loader = LOADERS["iterable"](**workers(before))
    batches = iter(loader)
    next(batches)
    resumed = LOADERS["iterable"](**workers(after))
    resumed.load_state_dict(loader.state_dict())
    with pytest.raises(
        StateMismatchError, match=f"num_workers={before}, but the loader has num_workers={after}"
    ):
        iter(resumed)


class Slow(Squares):
    """The first sample takes long: the others overtake it."""

    def __getitem__(self, i):
        if i == 0:
            time.sleep(0.5)
        return i


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("at", [1, 3, 6, 12, 19])
def test_out_of_order_every_sample_comes_once(at):
    make = lambda number: DataLoader(Slow(20), in_order=False, **workers(number))  # noqa: E731
    batches = iter(loader := make(2))
    seen = [next(batches).item() for _ in range(at)]
    state = through("json", loader.state_dict())
    resumed = make(2)
    resumed.load_state_dict(state)
    batches = iter(resumed)
    again = [next(batches).item() for _ in range(min(3, 20 - at))]
    twice = make(3)
    twice.load_state_dict(resumed.state_dict())
    rest = [batch.item() for batch in twice]
    assert sorted(seen + again + rest) == list(range(20))


def test_what_came_ahead_of_its_turn_is_left_out_of_the_resumed_epoch_only():
    make = lambda: DataLoader(  # noqa: E731
        Slow(20), in_order=False, num_workers=2, persistent_workers=True, multiprocessing_context="fork"
    )
    loader = make()
    batches = iter(loader)
    head = [int(next(batches)) for _ in range(4)]
    other = make()
    other.load_state_dict(loader.state_dict())
    assert sorted(head + [int(x) for x in other]) == list(range(20))
    assert sorted(int(x) for x in other) == list(range(20))


def test_out_of_order_streams():
    make = lambda: DataLoader(Resumable(), 4, collate_fn=keep, in_order=False, **workers(2))  # noqa: E731
    whole = sorted(row for batch in make() for row in batch)
    batches = iter(loader := make())
    seen = [next(batches) for _ in range(4)]
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert sorted(row for batch in seen + list(resumed) for row in batch) == whole


class Faulty(Squares):
    def __getitem__(self, i):
        if i == 9:
            raise ValueError("sample 9 is bad")
        return i


@pytest.mark.parametrize("number", WORKERS)
def test_a_batch_that_failed_is_not_asked_for_again(number):
    make = lambda: DataLoader(Faulty(), 4, **workers(number))  # noqa: E731
    batches = iter(loader := make())
    next(batches), next(batches)
    with pytest.raises(ValueError, match="sample 9 is bad"):
        next(batches)
    state = loader.state_dict()
    rest = [b.tolist() for b in batches]
    resumed = make()
    resumed.load_state_dict(state)
    assert [b.tolist() for b in resumed] == rest == [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22]]


def test_spawned_workers_restore_their_state():
    make = lambda: DataLoader(  # noqa: E731
        Resumable(), 4, collate_fn=keep, num_workers=2, multiprocessing_context="spawn"
    )
    batches = iter(loader := make())
    for _ in range(2):
        next(batches)
    state = loader.state_dict()
    rest = list(batches)
    resumed = make()
    resumed.load_state_dict(state)
    assert list(resumed) == rest


def test_only_what_changed_travels():
    from wellfed.torch._stateful import Changes, Ledger

    changes, ledger = Changes(), Ledger()
    state = {"at": 0, "seen": {"a": [1]}, "buffer": list(range(1000)), "none": {}}
    deltas = []
    for step in range(4):
        state["at"] = step
        state["seen"]["a"].append(step)  # in place
        if step == 2:
            del state["none"]
            state["seen"]["b"] = {"c": torch.arange(3)}
        if step == 3:
            state["seen"] = {}
        deltas.append(changes.since(state))
        ledger = ledger.after(deltas[-1])
        got = ledger.state()
        assert pprint.pformat(got) == pprint.pformat(state)
        assert got["buffer"] is not state["buffer"]
        got["buffer"].clear()
    assert set(deltas[1][0]) == {("at",), ("seen", "a")}
    assert changes.since(state) is None


def test_a_state_that_cannot_travel_is_named():
    from wellfed.torch._stateful import Changes

    with pytest.raises(StateError, match=r"\['a'\]\['b'\] is a function"):
        Changes().since({"a": {"b": lambda: None}})


@pytest.mark.filterwarnings("ignore:.*set_vital", "ignore:worker processes are forked")
def test_states_of_torchdata_are_taken():
    torchdata = pytest.importorskip("torchdata.stateful_dataloader")
    for number in WORKERS:
        for make in (
            lambda kind: kind(Squares(), 4, shuffle=True, collate_fn=keep, **workers(number)),  # noqa: B023
            lambda kind: kind(Resumable(), 4, collate_fn=keep, **workers(number)),  # noqa: B023
        ):
            theirs = make(torchdata.StatefulDataLoader)
            batches = iter(theirs)
            for _ in range(3):
                next(batches)
            state = theirs.state_dict()
            state = pickle.loads(pickle.dumps(state))
            rest = list(batches)
            ours = make(DataLoader)
            ours.load_state_dict(state)
            assert list(ours) == rest
