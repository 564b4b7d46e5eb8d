"""The device's share of the work: found by measuring, in a loop whose speed is made up."""

from __future__ import annotations

import pytest

from wellfed._share import WINDOW, DeviceShare


class Machine:
    """A loop of which a batch takes the host, or the device, whichever is slower; both depend on the share."""

    def __init__(self, host: float, host_at_1: float, step: float, device_at_1: float) -> None:
        self.now = 0.0
        self.host, self.host_at_1, self.step, self.device_at_1 = host, host_at_1, step, device_at_1
        self.share = DeviceShare(lambda share: None, lambda: self.now)

    def times(self, share: float) -> tuple[float, float]:
        host = self.host + (self.host_at_1 - self.host) * share
        return host, self.step + self.device_at_1 * share

    def run(self, batches: int) -> None:
        for _ in range(batches):
            host, device = self.times(self.share.share)
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
