"""A data set of Hugging Face with set_transform."""

from pathlib import Path
from typing import Any

import datasets
from made import photographs
from torch.utils.data import DataLoader
from torchvision import transforms

chain = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])


def transformed(rows: Any) -> Any:
    return {"image": [chain(image.convert("RGB")) for image in rows["image"]], "number": rows["number"]}


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(map(str, Path(photographs(folder, count)).rglob("*.jpg")))
    whole = datasets.Dataset.from_dict({"image": paths, "number": list(range(len(paths)))})
    whole = whole.cast_column("image", datasets.Image())
    whole.set_transform(transformed)
    return DataLoader(whole, batch_size=32, num_workers=workers, shuffle=True)
