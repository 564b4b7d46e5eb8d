"""Accelerate's prepare() builds a torch DataLoader around the data set; feed() goes underneath it afterwards.

python examples/torch/with_accelerate.py [folder]
accelerate launch --num_processes 2 examples/torch/with_accelerate.py folder
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

import wellfed as wf
from photos import folder, network


def main() -> None:
    """Trains with two batches per step; Accelerate shards the data, and moves batches to the device."""
    torch.manual_seed(0)
    accelerator = Accelerator(gradient_accumulation_steps=2)
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    loader = DataLoader(data, batch_size=8, shuffle=True, num_workers=1)
    model = network(len(data.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    loader = wf.feed(loader)  # after prepare()

    for epoch in range(3):
        for images, labels in loader:
            with accelerator.accumulate(model):
                loss = nn.functional.cross_entropy(model(images), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
        accelerator.print(f"epoch {epoch}: loss {loss.item():.3f}, {len(loader)} batches for each process")
    accelerator.print(loader.explain())
    accelerator.end_training()


if __name__ == "__main__":
    main()
