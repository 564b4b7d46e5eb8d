"""A data set of Hugging Face with encoded images in its table, and torchvision's training chain in with_transform."""

from pathlib import Path
from typing import Any

import datasets
from made import photographs
from torch.utils.data import DataLoader
from torchvision import transforms

RANDOM = True

chain = transforms.Compose(
    [
        transforms.RandomResizedCrop(224),
        transforms.RandomHorizontalFlip(),
        transforms.ToTensor(),
        transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]
)


def transformed(rows: Any) -> Any:
    rows["pixel_values"] = [chain(image.convert("RGB")) for image in rows.pop("image")]
    return rows


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(Path(photographs(folder, count)).rglob("*.jpg"))
    rows = [{"bytes": path.read_bytes(), "path": path.name} for path in paths]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    whole = datasets.Dataset.from_dict({"image": rows, "label": list(range(len(rows)))}, features=features)
    return DataLoader(whole.with_transform(transformed), batch_size=32, num_workers=workers, shuffle=True)
