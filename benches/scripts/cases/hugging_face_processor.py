"""Rows of Hugging Face's datasets through an image processor of a vision transformer."""

from pathlib import Path
from typing import Any

import datasets
from made import photographs
from torch.utils.data import DataLoader
from transformers import ViTImageProcessor


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = [str(path) for path in sorted(Path(photographs(folder, count)).rglob("*.jpg"))]
    rows = datasets.Dataset.from_dict({"image": paths, "label": list(range(len(paths)))})
    processor = ViTImageProcessor()

    def transform(batch: Any) -> Any:
        inputs = processor([image.convert("RGB") for image in batch["image"]], return_tensors="pt")
        inputs["labels"] = batch["label"]
        return inputs

    rows = rows.cast_column("image", datasets.Image()).with_transform(transform)
    return DataLoader(rows, batch_size=32, num_workers=workers, shuffle=True)
