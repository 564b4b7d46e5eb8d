"""Mixed precision: autocast, and a GradScaler where float16 needs one.

python examples/torch/mixed_precision.py [folder]
"""

from __future__ import annotations

import torch
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder

from photos import folder, network
from wellfed.torch import DataLoader


def main() -> None:
    """Trains in bfloat16 on a processor, in float16 on a GPU."""
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.float16 if device == "cuda" else torch.bfloat16
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    # Batches come on the device: with CUDA pinned, and copied while the step before is computed.
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, device=device)

    model = network(len(data.classes)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler(device, enabled=dtype == torch.float16)
    for epoch in range(3):
        for images, labels in loader:
            with torch.autocast(device, dtype):
                scores = model(images)
                loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        print(
            f"epoch {epoch}: loss {loss.item():.3f}, scores in {scores.dtype}, weights in {model[0].weight.dtype}"
        )


if __name__ == "__main__":
    main()
