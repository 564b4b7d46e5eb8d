"""The device's share of the work: found by measuring, in a loop whose speed is made up."""

from __future__ import annotations

import itertools
from collections import deque

import pytest

from wellfed.torch._share import WINDOW, DeviceShare


class Machine:
    """A loop of which a batch takes the host, or the device, whichever is slower; both depend on the share.

    What a batch takes is by the share of so many batches `ahead`.
    """

    def __init__(
        self, host: float, host_at_1: float, step: float, device_at_1: float, ahead: int = 0
    ) -> None:
        self.now = 0.0
        self.host, self.host_at_1, self.step, self.device_at_1 = host, host_at_1, step, device_at_1
        self.share = DeviceShare(lambda share: None, lambda: self.now, lambda: ahead)
        self.made = deque([0.0] * ahead)

    def times(self, share: float) -> tuple[float, float]:
        host = self.host + (self.host_at_1 - self.host) * share
        return host, self.step + self.device_at_1 * share

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.made.append(self.share.share)
            host, device = self.times(self.made.popleft())
            self.now += max(host, device)
            self.share.note(max(0.0, host - device))

    def rate(self) -> float:
        """Batches a second with the share in force."""
        return 1 / max(self.times(self.share.share))

    def best(self) -> float:
        return max(1 / max(self.times(n / 4)) for n in range(5))


@pytest.mark.parametrize(
    ("host", "host_at_1", "step", "device_at_1"),
    [
        (100, 30, 50, 4),  # too few cores: the device takes all that it must
        (100, 30, 20, 4),
        (10, 3, 50, 4),  # a loop that never waits
        (100, 100, 50, 10),  # what it would take is no help
        (100, 20, 60, 60),  # the device is busy itself: a part
        (55, 20, 50, 30),
    ],
)
def test_the_share_is_within_five_percent_of_the_best(
    host: float, host_at_1: float, step: float, device_at_1: float
) -> None:
    machine = Machine(host, host_at_1, step, device_at_1)
    machine.share.begin()
    machine.run(40 * WINDOW)
    # What is tried now and then lasts a window: the share that was kept counts.
    kept = machine.share._before[0] if machine.share._before else machine.share.share
    machine.share.share = kept
    assert machine.rate() >= 0.95 * machine.best()


def test_a_loop_that_does_not_wait_leaves_the_device_alone() -> None:
    machine = Machine(10, 3, 50, 4)
    machine.share.begin()
    machine.run(20 * WINDOW)
    assert machine.share.share == 0
    assert machine.share.stats()["windows"][-1]["waiting"] == 0


def test_it_decides_again_when_conditions_drift() -> None:
    machine = Machine(100, 30, 50, 4)
    machine.share.begin()
    machine.run(20 * WINDOW)
    assert machine.share.share >= 0.75
    # The cores are free again.
    machine.host, machine.host_at_1 = 20, 5
    machine.run(40 * WINDOW)
    assert machine.share.share == 0


def test_what_lies_between_two_passes_is_not_measured() -> None:
    machine = Machine(10, 3, 50, 4)
    machine.share.begin()
    machine.run(10)
    machine.now += 1e6
    machine.share.begin()
    machine.run(2 * WINDOW)
    assert all(
        window["batches_per_second"] == pytest.approx(0.02) for window in machine.share.stats()["windows"]
    )


@pytest.mark.parametrize("batches", [2, 10, 32])
def test_short_passes_are_enough_to_decide(batches: int) -> None:
    machine = Machine(100, 30, 50, 4)
    while machine.now < 1e9 and len(machine.share._windows) < 40:
        machine.now += 1e6
        machine.share.begin()
        machine.run(batches)
    assert machine.rate() >= 0.95 * machine.best()
    rates = {1 / max(machine.times(n / 4)) for n in range(5)}
    for window in machine.share.stats()["windows"]:
        assert any(window["batches_per_second"] == pytest.approx(rate) for rate in rates)


@pytest.mark.parametrize(
    ("host", "host_at_1", "step", "device_at_1"),
    [
        (70, 60, 50, 400),  # a larger share is very bad
        (70, 60, 50, 2000),
        (90, 80, 50, 220),  # a larger share is somewhat bad
        (300, 20, 50, 4),  # a smaller share is bad
        (100, 20, 60, 60),
        (60, 59, 50, 50),
    ],
)
def test_what_comes_out_is_within_five_percent_of_the_best_with_all_that_is_tried(
    host: float, host_at_1: float, step: float, device_at_1: float
) -> None:
    machine = Machine(host, host_at_1, step, device_at_1)
    machine.share.begin()
    machine.run(20 * WINDOW)
    begin = machine.now
    machine.run(100 * WINDOW)
    assert 100 * WINDOW / (machine.now - begin) >= 0.95 * machine.best()


def test_a_bad_trial_ends_early() -> None:
    machine = Machine(70, 60, 50, 400)
    tried = 0
    while machine.share.share == 0:
        machine.run(1)
    while machine.share.share > 0:
        machine.run(1)
        tried += 1
    assert tried <= WINDOW // 2


def test_pauses_grow_and_begin_again_when_conditions_drift() -> None:
    machine = Machine(70, 60, 50, 120)

    def pauses(windows: int) -> list[int]:
        """Windows of share 0 between those of others."""
        seen = len(machine.share._windows)
        while len(machine.share._windows) < seen + windows:
            machine.run(1)
        shares = [share for share, _, _ in machine.share._windows[seen:]]
        tried = [n for n, share in enumerate(shares) if share > 0]
        return [after - before - 1 for before, after in itertools.pairwise(tried)]

    grown = pauses(70)
    assert grown == sorted(grown)
    assert grown[-1] >= 1.5 * grown[0] >= 12
    # The step needs less of the device, and the host more time.
    machine.host, machine.host_at_1, machine.device_at_1 = 140, 60, 10
    pauses(12)
    assert machine.share.share >= 0.75


def test_a_slow_device_is_found_although_the_loop_waits() -> None:
    machine = Machine(100, 90, 20, 4)
    machine.share.share = 1.0
    machine.run(10 * WINDOW)
    assert machine.share.share == 1
    # Images of the device take the longer the more there are; the loop waits for either.
    machine.times = lambda share: (100 + 100 * share, 20.0)  # type: ignore[method-assign]
    machine.run(20 * WINDOW)
    assert machine.share.share <= 0.25


def test_what_was_made_before_is_in_no_window() -> None:
    machine = Machine(100, 30, 50, 4, ahead=60)
    machine.share.begin()
    machine.run(100 * WINDOW)
    for share, rate, _ in machine.share._windows:
        assert rate == pytest.approx(1 / max(machine.times(share)))
    assert machine.rate() >= 0.95 * machine.best()


def test_waits_of_a_few_percent_are_worth_a_trial() -> None:
    machine = Machine(52, 20, 50, 0)
    machine.run(10 * WINDOW)
    assert machine.rate() == machine.best()


def test_where_a_larger_share_can_bring_nothing_a_smaller_one_is_tried() -> None:
    # It waits for 1.5 % of the time, with each of the shares.
    machine = Machine(50 / 0.985, 50 / 0.985, 50, 0)
    machine.share.share = 0.75
    machine.run(10 * WINDOW)
    assert machine.share.share == 0
