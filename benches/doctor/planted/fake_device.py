"""A device that works on its own while the host goes on, as a GPU does: what is launched runs in order, results wait.

Uses no core: waiting is sleeping. Copies take bytes / bandwidth; a blocking copy holds the host, another runs on the
device's copy engine beside its compute.
"""

from __future__ import annotations

import time

import torch


class FakeDevice:
    def __init__(self, bandwidth: float = 0.0) -> None:
        self.busy_until = self.copying_until = 0.0
        self.bandwidth = bandwidth

    def launch(self, batch: torch.Tensor, seconds: float) -> Loss:
        """Queues forward, backward and optimizer; waits for the batch's copy, but not here."""
        ready = getattr(batch, "ready", 0.0)
        self.busy_until = max(time.perf_counter(), self.busy_until, ready) + seconds
        return Loss(
            self, self.busy_until, float(batch.as_subclass(torch.Tensor).flatten()[:64].float().mean())
        )

    def synchronize(self, until: float | None = None) -> None:
        """Waits for all that was launched, or for what was launched until then."""
        left = (self.busy_until if until is None else until) - time.perf_counter()
        if left > 0:
            time.sleep(left)


class Loss:
    """A number on the device."""

    def __init__(self, device: FakeDevice, ready: float, value: float) -> None:
        self.device, self.ready, self.value = device, ready, value

    def item(self) -> float:
        self.device.synchronize(self.ready)
        return self.value


class DeviceTensor(torch.Tensor):
    """A tensor whose `.to(fake device)` takes the time of a copy over a bus."""

    def to(self, device: FakeDevice, non_blocking: bool = False) -> DeviceTensor:
        seconds = self.numel() * self.element_size() / device.bandwidth
        # From pageable memory a copy comes in its turn, after what was launched; from pinned memory it runs beside it.
        before = device.copying_until if non_blocking else max(device.copying_until, device.busy_until)
        device.copying_until = max(time.perf_counter(), before) + seconds
        if not non_blocking:
            device.synchronize(device.copying_until)
        self.ready = device.copying_until
        return self
