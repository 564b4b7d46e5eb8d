"""Large batches are copied from pageable memory while the GPU waits. Fixed: from pinned memory, without waiting."""

from __future__ import annotations

import torch
import torchvision
from clock import Clock, arguments
from torch.utils.data import DataLoader, Dataset


class Batches(Dataset):
    """Batches that were made before, as a cache in memory has them."""

    def __init__(self, count: int, batch: int, pinned: bool) -> None:
        self.batches = [torch.rand(batch, 3, 224, 224) for _ in range(count)]
        if pinned:
            self.batches = [batch.pin_memory() for batch in self.batches]

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.batches[index % len(self.batches)]


def main() -> None:
    args = arguments()
    cuda = args.device.startswith("cuda")
    loader = DataLoader(Batches(4, 8 if args.small else 256, args.fixed and cuda), batch_size=None)
    model = torchvision.models.resnet18(num_classes=10).to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    clock = Clock(args.seconds)
    while True:
        for images in loader:
            images = images.to(args.device, non_blocking=args.fixed)
            with torch.autocast(args.device.partition(":")[0], dtype=torch.bfloat16):
                out = model(images.to(memory_format=torch.channels_last))
                loss = out.square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clock.step(len(images)):
                return


if __name__ == "__main__":
    main()
