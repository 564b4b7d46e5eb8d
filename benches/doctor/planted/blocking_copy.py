"""Each batch is copied to the device while the device waits. Fixed: the copy runs beside the step before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from common import Clock, Draw, arguments, device_step, settings
from fake_device import DeviceTensor, FakeDevice
from torch.utils.data import DataLoader, Dataset, default_collate


class Frames(Dataset):
    def __init__(self, size: int) -> None:
        self.frames = torch.randint(0, 256, (64, 3, size, size), dtype=torch.uint8)

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.frames[index % 64]


def on_device(samples: list[torch.Tensor]) -> torch.Tensor:
    return default_collate(samples).as_subclass(DeviceTensor)


def ahead(loader: DataLoader, device: FakeDevice) -> Iterator[torch.Tensor]:
    """Batches whose copy began before the step before them."""
    before = None
    for batch in loader:
        copying = batch.to(device, non_blocking=True)
        if before is not None:
            yield before
        before = copying
    if before is not None:
        yield before


def prepare(draw: Draw) -> dict:
    size, batch = draw.choice([64, 96]), draw.choice([16, 32])
    step = draw.uniform(8e-3, 25e-3)
    copy = step * (draw.gain(1.9) - 1)
    return {"size": size, "batch": batch, "step": step, "bandwidth": batch * 3 * size * size / copy}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    device = FakeDevice(s.bandwidth)
    loader = DataLoader(Frames(s.size), batch_size=s.batch, shuffle=True, collate_fn=on_device)
    clock = Clock(args)
    for _ in itertools.count():
        for batch in ahead(loader, device) if args.fixed else loader:
            if args.fixed:
                device.synchronize(batch.ready)
            else:
                batch = batch.to(device)
            loss = device_step(batch.as_subclass(torch.Tensor), s.step)
            if clock.step(len(batch), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
