"""Images that are encoded bytes in a list, read whole when the script begins."""

import io
from pathlib import Path
from typing import Any

from made import photographs
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Samples(Dataset[Any]):
    def __init__(self, paths: Any, transform: Any) -> None:
        self.blobs = [path.read_bytes() for path in paths]
        self.labels = [i % 4 for i in range(len(paths))]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.blobs)

    def __getitem__(self, i: int) -> Any:
        image = Image.open(io.BytesIO(self.blobs[i])).convert("RGB")
        return self.transform(image), self.labels[i]


def loader(folder: Path, count: int, workers: int) -> Any:
    chain = transforms.Compose(
        [
            transforms.Resize(256),
            transforms.CenterCrop(224),
            transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ]
    )
    dataset = Samples(sorted(Path(photographs(folder, count)).rglob("*.jpg")), chain)
    return DataLoader(dataset, batch_size=32, num_workers=workers, shuffle=True)
