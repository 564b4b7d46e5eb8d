"""Stop in the middle of an epoch, go on in another process: no photograph twice, none left out.

python examples/torch/resume.py [folder]
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torchvision import transforms
from torchvision.datasets import ImageFolder

from photos import folder
from wellfed.torch import DataLoader


def make(root: Path) -> DataLoader[Any]:
    """The same loader in both lives of the script."""
    crop = transforms.Compose([transforms.Resize(72), transforms.CenterCrop(64), transforms.ToTensor()])
    shuffled = torch.Generator().manual_seed(3)
    return DataLoader(
        ImageFolder(str(root), crop), batch_size=8, shuffle=True, num_workers=2, generator=shuffled
    )


def main() -> None:
    """Compares a run that was interrupted with one that was not."""
    root = folder()
    whole = [labels.tolist() for _, labels in make(root)]

    with tempfile.TemporaryDirectory() as place:
        checkpoint = Path(place) / "loader.pt"
        loader = make(root)
        head = []
        for _, labels in loader:
            head.append(labels.tolist())
            if len(head) == 3:
                torch.save(loader.state_dict(), checkpoint)  # with the model's and the optimizer's
                break

        loader = make(root)
        loader.load_state_dict(torch.load(checkpoint, weights_only=False))
        rest = [labels.tolist() for _, labels in loader]
    print(
        f"{len(head)} batches, then {len(rest)}: {'the same' if head + rest == whole else 'NOT the same'} as in one go"
    )


if __name__ == "__main__":
    main()
