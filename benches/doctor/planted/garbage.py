"""Labels as JSON beside many other objects, which Python looks through again and again. Fixed: it does so seldom."""

from __future__ import annotations

import gc
import itertools
import json

import torch
from common import CORES, Clock, Draw, arguments, cpu_seconds, device_step, settings
from torch.utils.data import DataLoader, Dataset


class Labels(Dataset):
    """Parses the labels of a sample, beside what is known of all of them."""

    def __init__(self, objects: int, known: int) -> None:
        points = [{"box": [i, i + 1], "name": str(i), "at": {"x": i}} for i in range(objects)]
        self.text = json.dumps(points)
        self.known = [{"id": i, "boxes": [[i, i + 1]], "at": {"x": i}} for i in range(known)]

    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> torch.Tensor:
        labels = json.loads(self.text)
        return torch.tensor([label["box"] for label in labels[:16]])


def prepare(draw: Draw) -> dict:
    known = 20_000 if draw.small else draw.choice([100_000, 200_000])
    objects, batch = draw.choice([1000, 2000]), draw.choice([8, 16])
    dataset = Labels(objects, known)
    cost = cpu_seconds(lambda: [dataset[i] for i in range(batch)])
    return {"known": known, "objects": objects, "batch": batch, "step": cost / CORES / draw.gain(2.0)}


def main() -> None:
    args = arguments()
    s = settings(args, prepare)
    torch.manual_seed(args.seed)
    dataset = Labels(s.objects, s.known)
    if args.fixed:
        gc.freeze()
        gc.set_threshold(100_000, 50, 50)
    loader = DataLoader(
        dataset,
        batch_size=s.batch,
        shuffle=True,
        num_workers=CORES,
        persistent_workers=True,
    )
    clock = Clock(args)
    for _ in itertools.count():
        for boxes in loader:
            loss = device_step(boxes.float(), s.step)
            if clock.step(len(boxes), loss):
                clock.report()
                return
        clock.epoch()


if __name__ == "__main__":
    main()
