"""A data set of Hugging Face with encoded images in its table, as tensors."""

from pathlib import Path
from typing import Any

import datasets
from made import photographs
from torch.utils.data import DataLoader


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    rows = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
    features = datasets.Features({"image": datasets.Image(mode="RGB"), "label": datasets.Value("int64")})
    whole = datasets.Dataset.from_dict({"image": rows, "label": list(range(len(rows)))}, features=features)
    return DataLoader(whole.with_format("torch"), batch_size=32, num_workers=workers, shuffle=True)
