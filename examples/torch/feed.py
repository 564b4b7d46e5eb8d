"""One changed line in a script that you have: `loader = wf.feed(loader)`.

python examples/torch/feed.py [folder]
"""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

import wellfed as wf
from photos import folder, network


def main() -> None:
    """What stands in many a script, and one line."""
    torch.manual_seed(0)
    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(64, scale=(0.35, 1.0)),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    data = ImageFolder(str(folder()), augment)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2)

    loader = wf.feed(loader)  # this one
    print(loader.explain())

    model = network(len(data.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for epoch in range(3):
        total = 0.0
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
        print(f"epoch {epoch}: loss {total / len(data):.3f}")


if __name__ == "__main__":
    main()
