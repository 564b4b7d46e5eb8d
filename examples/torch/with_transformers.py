"""Hugging Face's Trainer makes its loaders itself; one overridden method puts wellfed underneath.

python examples/torch/with_transformers.py [folder]
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate
from torchvision import transforms
from torchvision.datasets import ImageFolder
from transformers import Trainer, TrainingArguments

import wellfed as wf
from photos import folder, network


class FedTrainer(Trainer):
    """The Trainer, fed."""

    def get_train_dataloader(self) -> Any:
        """As Trainer makes it: its sampler, its collator, its part of the data for this process."""
        return wf.feed(super().get_train_dataloader())

    def _prepare_inputs(self, inputs: Any) -> dict[str, torch.Tensor]:
        # Named here and not by a collate function of our own, so that batches can be made natively.
        images, labels = super()._prepare_inputs(inputs)
        return {"images": images, "labels": labels}


class Classifier(nn.Module):
    """Takes and gives what Trainer expects."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.network = network(classes)

    def forward(self, images: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and scores."""
        scores = self.network(images)
        return {"loss": nn.functional.cross_entropy(scores, labels), "logits": scores}


def main() -> None:
    """Trains for two epochs."""
    augment = transforms.Compose([transforms.RandomResizedCrop(64, scale=(0.35, 1.0)), transforms.ToTensor()])
    data = ImageFolder(str(folder()), augment)
    options = {"num_train_epochs": 2, "per_device_train_batch_size": 16, "learning_rate": 1e-2}
    quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True}
    arguments = TrainingArguments(dataloader_num_workers=2, remove_unused_columns=False, **options, **quiet)
    trainer = FedTrainer(Classifier(len(data.classes)), arguments, default_collate, data)
    print(trainer.get_train_dataloader().explain())
    print(f"{trainer.train().global_step} steps")


if __name__ == "__main__":
    main()
