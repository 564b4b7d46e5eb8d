"""Trains a small network on folders of images, with checkpoints from which it goes on to the bit.

    python examples/train.py data/train --epochs 3 --checkpoint run.pt

Stop it at any time and start it again with the same arguments: it continues with the batch after the last checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import nn

import wellfed as wf
from wellfed import transforms as T


def parse() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Trains a small network on folders of images.")
    parser.add_argument("root", help="a folder with one folder per class")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=128, help="side of the images that the network sees")
    parser.add_argument("--checkpoint", type=Path, help="file to write every 100 batches, and to go on from")
    return parser.parse_args()


def main() -> None:
    """Trains, and prints what happened."""
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    ds = (
        wf.image_folder(args.root)
        .shuffle(seed=0)
        .map(
            T.RandomResizedCrop(args.size, scale=(0.35, 1.0)),
            T.RandomHorizontalFlip(),
            T.ToDtype("float32", scale=True),
            T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
        )
        .batch(args.batch_size)
    )
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, len(ds.classes)),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    loader = ds.torch(device=device, on_error="replace")
    if args.checkpoint and args.checkpoint.exists():
        saved = torch.load(args.checkpoint, map_location=device)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        loader.load_state_dict(saved["loader"])

    def save() -> None:
        if args.checkpoint:
            state = {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "loader": loader.state_dict(),
            }
            torch.save(state, args.checkpoint)

    while (epoch := loader.state_dict()["epoch"]) < args.epochs:
        total = count = 0
        for number, (images, labels) in enumerate(loader, 1):
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(labels)
            count += len(labels)
            if number % 100 == 0:
                save()
        print(f"epoch {epoch}: loss {total / max(count, 1):.3f} over {count} images")
        save()
    for bad in loader.errors():
        print(f"replaced {bad.key}: {bad.cause}")
    print(loader.stats())


if __name__ == "__main__":
    main()
