"""Each batch is copied to the device while the device waits. Fixed: the copy runs beside the step before."""

from __future__ import annotations

import itertools

import torch
from common import Clock, Draw, arguments, settings
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
        for batch in loader:
            batch = batch.to(device, non_blocking=bool(args.fixed))
            loss = device.launch(batch, s.step)
            device.synchronize(device.busy_until - 2 * s.step)  # the queue of a device is not endless
            if clock.step(len(batch), loss.value):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
