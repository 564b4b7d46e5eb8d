"""Segmentation of one's own: image and mask are resized apart, as data sets of U-Nets have it."""

from pathlib import Path
from typing import Any

from made import voc
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms


class Samples(Dataset[Any]):
    def __init__(self, root: Path) -> None:
        self.images = sorted((root / "JPEGImages").glob("*.jpg"))
        self.masks = sorted((root / "SegmentationClass").glob("*.png"))
        self.transform = transforms.Compose([transforms.Resize((256, 256)), transforms.ToTensor()])

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.images[i]).convert("RGB")
        mask = Image.open(self.masks[i]).convert("L")
        return self.transform(image), self.transform(mask)


def loader(folder: Path, count: int, workers: int) -> Any:
    dataset = Samples(Path(voc(folder, count)) / "VOCdevkit" / "VOC2012")
    return DataLoader(dataset, batch_size=8, num_workers=workers, shuffle=True, drop_last=True)
