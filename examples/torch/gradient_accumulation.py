"""Gradient accumulation: four micro-batches make one step, and the last group of an epoch is averaged right.

python examples/torch/gradient_accumulation.py [folder]
"""

from __future__ import annotations

import torch
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder

from photos import folder, network
from wellfed.torch import DataLoader


def main() -> None:
    """The effective batch has 40 photographs; 10 are in memory at a time."""
    torch.manual_seed(0)
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    loader = DataLoader(data, batch_size=10, shuffle=True, num_workers=2)

    model = network(len(data.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    micros = loader.accumulate(4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-2, total_steps=3 * micros.steps)
    for epoch in range(3):
        for micro in micros:
            with micro.no_sync(model):  # matters for DistributedDataParallel only
                images, labels = micro.batch
                loss = nn.functional.cross_entropy(model(images), labels) / micro.count
                loss.backward()
            if micro.last:
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
                print(f"epoch {epoch}: a step after {micro.count} batches")


if __name__ == "__main__":
    main()
