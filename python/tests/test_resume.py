"""A training loop that was interrupted sees what one that was not would have seen, whatever the pipeline and the loop.

States are written where programs write them: before an epoch, after a batch, after the last one, after the epoch. A
program goes on with one loader for all epochs, or with a new one for each, in the same process or another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data as stock

import wellfed as wf
import wellfed.torch as wt
from resumable import EPOCHS, KINDS, Numbers, rows, train

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    # A run that begins anew opens its sources anew.
    pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again"),
]

State = tuple[str, int, int, Any]


def uninterrupted(kind: str, anew: bool) -> tuple[list[list[str]], list[State]]:
    """What a loop sees, and the states that it could have written."""
    torch.manual_seed(3)
    whole = train(KINDS[kind](), anew)
    states: list[State] = []
    torch.manual_seed(3)
    again = train(KINDS[kind](), anew, saved=lambda *state: states.append(state))
    assert again == whole, "writing states changes nothing"
    assert whole[0] != whole[1] != whole[2] != whole[0], "epochs differ"
    return whole, states


def rest(whole: list[list[str]], epoch: int, batches: int) -> list[list[str]]:
    """What is left from batch `batches` of `epoch` on."""
    return [] if epoch == EPOCHS else [whole[epoch][batches:], *whole[epoch + 1 :]]


@pytest.mark.parametrize("anew", [False, True], ids=["one loader", "a loader for each epoch"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_goes_on_where_it_was(kind: str, anew: bool) -> None:
    whole, states = uninterrupted(kind, anew)
    make = KINDS[kind]()
    for place, epoch, batches, state in states:
        for again in (True, False):
            torch.manual_seed(99)
            # Over sources that were opened anew, and over those whose loaders are in another epoch already.
            found = train(KINDS[kind]() if again else make, anew, epoch, json.loads(json.dumps(state)))
            assert found == rest(whole, epoch, batches), (place, epoch, batches, again)


def test_a_loop_goes_on_in_a_new_process() -> None:
    cases, expected = [], []
    for kind in KINDS:
        for anew in (False, True):
            whole, states = uninterrupted(kind, anew)
            last = len(whole[1])
            for place, epoch, batches, state in states:
                if (place, epoch, batches) in (("inside", 1, 1), ("inside", 1, last), ("after", 2, 0)):
                    cases.append((kind, anew, epoch, state))
                    expected.append(rest(whole, epoch, batches))
    assert len(cases) == 3 * 2 * len(KINDS)
    path = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).parent / "resumable.py")],
        input=json.dumps(cases),
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for case, found, right in zip(cases, json.loads(done.stdout), expected, strict=True):
        assert found == right, case[:3]


def test_the_state_of_a_new_loader_is_of_the_epoch_that_it_begins() -> None:
    plain = rows().shuffle(seed=1)
    stream = wf.from_generator(lambda: iter(range(22)))
    steps = {"num_workers": 0}
    for ds, options in ((plain, {}), (plain.map(int), steps), (stream, steps)):
        batches: Any = ds.batch(4)
        for epoch in range(3):
            loader = batches.torch(**options)
            assert loader.state_dict()["epoch"] == epoch
            list(loader)
            assert loader.state_dict()["epoch"] == epoch + 1


@pytest.mark.parametrize("steps", [False, True])
def test_what_was_not_begun_is_not_passed_over(steps: bool) -> None:
    """An iterator that nobody asks for a batch, as progress bars and trainers make them, uses nothing up."""
    ds = rows().shuffle(seed=1)
    ds = (ds.map(int) if steps else ds).batch(4)
    options: dict[str, Any] = {"num_workers": 0} if steps else {}
    loader = ds.torch(**options)
    whole = [b.tolist() for b in loader]
    loader.set_epoch(0)
    next(iter(loader))
    again = ds.torch(**options)
    again.load_state_dict(loader.state_dict())
    iter(again)
    assert [b.tolist() for b in again] == whole[1:]


def test_a_state_that_is_refused_leaves_the_loader_as_it_was() -> None:
    for steps in (False, True):
        ds = rows().shuffle(seed=1)
        ds = (ds.map(int) if steps else ds).batch(4)
        options: dict[str, Any] = {"num_workers": 0} if steps else {}
        list(ds.torch(**options))
        loader = ds.torch(**options)
        with pytest.raises(wf.StateError):
            loader.load_state_dict({**loader.state_dict(), "plan": 1})
        assert loader.state_dict()["epoch"] == 1
        second = [b.tolist() for b in loader]
        loader.set_epoch(1)
        assert [b.tolist() for b in loader] == second


def test_bad_samples_before_a_resume_are_none_of_the_rest() -> None:
    """At the end of an epoch nothing is left, which is not the same as that all was bad."""
    bad = rows().map(lambda x: 1 // (int(x) - 3)).batch(4)
    stream = wf.from_generator(lambda: iter(range(22))).map(lambda x: 1 // (x - 3)).batch(4)
    for ds in (bad, stream):
        loader = ds.torch(num_workers=0, on_error="skip")
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        assert len(loader.errors()) == 1
        loader.load_state_dict(loader.state_dict())
        assert list(loader) == []


def test_set_epoch_is_what_a_state_says_also_with_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed.torch import _device

    class Stage:
        ahead = True

        def __init__(self, device: Any) -> None: ...
        def enter_thread(self) -> None: ...
        def begin(self, batch: Any) -> Any:
            return batch

        def finish(self, staged: Any) -> Any:
            return staged

    monkeypatch.setattr(_device, "target", torch.device)
    monkeypatch.setattr(_device, "Copies", Stage)
    monkeypatch.setattr("wellfed._loader._pages_for", lambda device: None)
    loader = rows().shuffle(seed=1).batch(4).torch(device="cuda", num_workers=1)
    batches = iter(loader)
    next(batches)
    while not batches._inner.ready():
        pass
    next(batches)  # the one after it is staged
    loader.set_epoch(7)
    assert loader.state_dict()["epoch"] == 7


def test_whoever_seeds_torch_after_a_resume_gets_that_order() -> None:
    """As in loops that seed each epoch: the numbers of the interrupted run are for those who do not."""

    def run(begin: int, state: Any = None) -> list[list[int]]:
        loader = wt.DataLoader(Numbers(), 4, shuffle=True)
        seen = []
        for epoch in range(begin, 4):
            torch.manual_seed(epoch)
            if state is not None:
                loader.load_state_dict(state)
                state = None
            seen.append([i for batch in loader for i in batch[0].tolist()])
        return seen

    whole = run(0)
    loader = wt.DataLoader(Numbers(), 4, shuffle=True)
    torch.manual_seed(1)
    batches = iter(loader)
    head = next(batches)[0].tolist()
    found = run(1, loader.state_dict())
    assert [head + found[0], *found[1:]] == whole[1:]


def test_another_data_set_draws_from_torchs_generator() -> None:
    """What loaders of a resumed data set draw from is their own."""
    torch.manual_seed(3)
    loader = wt.DataLoader(Numbers(), 4, shuffle=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    torch.manual_seed(8)
    expected = [batch[0].tolist() for batch in stock.DataLoader(Numbers(), 4, shuffle=True)]
    after = torch.rand(1)
    resumed = wt.DataLoader(Numbers(), 4, shuffle=True)
    resumed.load_state_dict(state)
    torch.manual_seed(8)
    list(resumed)
    assert [batch[0].tolist() for batch in wt.DataLoader(Numbers(), 4, shuffle=True)] == expected
    assert torch.equal(torch.rand(1), after)


def test_ranks_of_one_process_go_on_each_for_itself() -> None:
    ds = wf.from_tensor_slices(np.arange(24)).shuffle(seed=1)
    for epoch in range(2):
        parts = [[int(x) for b in ds.shard(rank, 2).batch(3).numpy() for x in b] for rank in range(2)]
        assert sorted(parts[0] + parts[1]) == list(range(24)), epoch
