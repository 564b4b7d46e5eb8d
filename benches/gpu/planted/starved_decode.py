"""The training process decodes photographs itself while the GPU waits. Fixed: worker processes do."""

from __future__ import annotations

import os

import torch
import torchvision
from clock import Clock, arguments
from torch.utils.data import DataLoader
from torchvision import transforms


def main() -> None:
    args = arguments()
    steps = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    data = torchvision.datasets.ImageFolder(args.photos, transforms.Compose(steps))
    workers = min(16, len(os.sched_getaffinity(0))) if args.fixed else 0
    loader = DataLoader(
        data, 16 if args.small else 64, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    model = torchvision.models.resnet18(num_classes=10).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    clock = Clock(args.seconds)
    while True:
        for images, labels in loader:
            images, labels = images.to(args.device), labels.to(args.device)
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if clock.step(len(images)):
                return


if __name__ == "__main__":
    main()
