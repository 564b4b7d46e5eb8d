"""Lightning takes a wellfed loader as it takes torch's, and gives it a DistributedSampler where it needs one.

python examples/torch/with_lightning.py [folder]
"""

from __future__ import annotations

import lightning
import torch
from torch import nn
from torchvision import transforms
from torchvision.datasets import ImageFolder

from photos import folder, network
from wellfed.torch import DataLoader


class Classifier(lightning.LightningModule):
    """A small network."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = network(classes)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a batch, which Lightning has moved to the device."""
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """What Lightning asks for."""
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    """Trains for two epochs."""
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, persistent_workers=True)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="auto", devices=1, enable_model_summary=False, **quiet
    )
    trainer.fit(Classifier(len(data.classes)), loader)
    print(f"{trainer.global_step} steps, loader: {type(trainer.train_dataloader).__module__}")


if __name__ == "__main__":
    main()
