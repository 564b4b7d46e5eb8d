"""An iterable data set of Hugging Face with a mapped function, shuffled in a buffer."""

from pathlib import Path
from typing import Any

import datasets
from made import photographs
from torch.utils.data import DataLoader
from torchvision import transforms

chain = transforms.Compose([transforms.Resize((224, 224)), transforms.ToTensor()])


def transformed(row: Any) -> Any:
    return {"image": chain(row["image"].convert("RGB")), "number": row["number"]}


def loader(folder: Path, count: int, workers: int) -> Any:
    paths = sorted(map(str, Path(photographs(folder, count)).rglob("*.jpg")))
    whole = datasets.Dataset.from_dict({"image": paths, "number": list(range(len(paths)))})
    whole = whole.cast_column("image", datasets.Image())
    stream = whole.to_iterable_dataset(num_shards=4).shuffle(seed=1, buffer_size=100).map(transformed)
    return DataLoader(stream, batch_size=32, num_workers=workers)
