"""A large model that is always fed, from pinned memory by workers. Nothing to fix."""

from __future__ import annotations

import torch
import torchvision
from clock import Clock, arguments
from torch.utils.data import DataLoader, Dataset


class Frames(Dataset):
    def __init__(self) -> None:
        self.frames = torch.randint(0, 256, (64, 3, 224, 224), dtype=torch.uint8)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.frames[index % 64], index % 10


def main() -> None:
    args = arguments()
    cuda = args.device.startswith("cuda")
    loader = DataLoader(Frames(), 8 if args.small else 128, shuffle=True, num_workers=4, pin_memory=cuda)
    make = torchvision.models.resnet18 if args.small else torchvision.models.resnet50
    model = make(num_classes=10).to(args.device, memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    clock = Clock(args.seconds)
    while True:
        for images, labels in loader:
            images = images.to(args.device, non_blocking=True)
            labels = labels.to(args.device, non_blocking=True)
            images = images.to(memory_format=torch.channels_last).float() / 255
            with torch.autocast(args.device.partition(":")[0], dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clock.step(len(images)):
                return


if __name__ == "__main__":
    main()
