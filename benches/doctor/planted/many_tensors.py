"""Samples are dicts of many small tensors, which collate stacks one by one. Fixed: one packed tensor a sample."""

from __future__ import annotations

import itertools

import torch
from common import CORES, Clock, Draw, arguments, device_step, loading_seconds, settings
from torch.utils.data import DataLoader, Dataset


class Records(Dataset):
    def __init__(self, fields: int, packed: bool) -> None:
        table = torch.randn(1024, fields, 4, generator=torch.Generator().manual_seed(0))
        self.samples = (
            list(table) if packed else [{f"field_{i}": value for i, value in enumerate(row)} for row in table]
        )

    def __len__(self) -> int:
        return 32768

    def __getitem__(self, index: int) -> torch.Tensor | dict[str, torch.Tensor]:
        return self.samples[index % 1024]


def prepare(draw: Draw) -> dict:
    fields, batch = draw.randint(10, 40), draw.choice([1024, 2048])
    loader = DataLoader(Records(fields, False), batch_size=batch, num_workers=CORES)
    return {"fields": fields, "batch": batch, "step": loading_seconds(loader) / draw.gain(2.5)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    loader = DataLoader(
        Records(s.fields, packed=bool(args.fixed)),
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for batch in loader:
            first = batch[:, 0] if args.fixed else batch["field_0"]
            loss = device_step(first, s.step)
            if clock.step(len(first), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
