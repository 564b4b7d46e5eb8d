"""Batches made in bfloat16 by the loader: half the memory, half the bytes to the device, no cast in the model.

python examples/torch/bfloat16_batches.py [folder]
"""

from __future__ import annotations

import torch
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder

from photos import folder, network
from wellfed.torch import DataLoader


def main() -> None:
    """Trains a network whose weights are bfloat16, too."""
    torch.manual_seed(0)
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    # Floating point tensors come in this type; labels stay int64. float16 works the same way.
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, float_dtype=torch.bfloat16)

    model = network(len(data.classes)).to(torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images).float(), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}, images {images.dtype}, labels {labels.dtype}")


if __name__ == "__main__":
    main()
