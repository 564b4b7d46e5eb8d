"""Data sets as people write them: image files, transforms of one's own choice, and labels from all kinds of places."""

from __future__ import annotations

import csv
import os
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.utils.data as stock
from PIL import Image, ImageOps
from torch.utils.data import Dataset
from torchvision import datasets
from torchvision.datasets.folder import default_loader
from torchvision.transforms import functional as F
from torchvision.transforms import v2

MEAN, STD = (0.485, 0.456, 0.406), (0.2, 0.3, 0.4)


class Base(Dataset[Any]):
    """Paths, labels, a transform."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        self.paths = [str(path) for path in paths]
        self.labels = [place % 3 for place in range(len(paths))]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.paths)


class Plain(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        if self.transform:
            image = self.transform(image)
        return image, self.labels[i]


class Alone(Base):
    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.paths[i]).convert("RGB"))


class Named(Base):
    """As Hugging Face's trainer wants it."""

    def __getitem__(self, idx: int) -> Any:
        if torch.is_tensor(idx):
            idx = idx.tolist()  # type: ignore[unreachable]
        sample: dict[str, Any] = {"label": self.labels[idx]}
        sample["image"] = self.transform(Image.open(self.paths[idx]).convert("RGB"))
        sample["name"] = os.path.basename(self.paths[idx])
        sample["half"] = self.labels[idx] / 2
        return sample


class Listed(Base):
    """A list, the image in the middle, and a tensor beside it."""

    def __getitem__(self, i: int) -> Any:
        with open(self.paths[i], "rb") as file:
            image = Image.open(file)
            image = image.convert("RGB")
        target = torch.tensor([self.labels[i], i], dtype=torch.float32)
        return [f"{i:03d}", self.transform(image), target]


class Row(NamedTuple):
    file: str
    label: int


class Table(Base):
    """Rows of a csv file, and helpers of its own."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.root = paths[0].parent.parent
        file = self.root / "rows.csv"
        with open(file, "w", newline="") as out:
            for place, path in enumerate(paths):
                csv.writer(out).writerow([path.relative_to(self.root), place % 5, f"class{place % 5}"])
        with open(file, newline="") as given:
            self.rows = list(csv.reader(given))
        self.classes = {f"class{place}": place for place in range(5)}

    def load(self, name: str) -> Any:
        return Image.open(os.path.join(self.root, name)).convert("RGB")

    @property
    def chain(self) -> Any:
        return self.transform

    def __getitem__(self, i: int) -> Any:
        name, *numbers, kind = self.rows[i]
        return self.chain(self.load(name)), self.classes[kind], int(numbers[0])


class Tuples(Base):
    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.samples = [Row(str(path), place % 4) for place, path in enumerate(paths)]

    def __getitem__(self, i: int) -> Any:
        try:
            image = Image.open(self.samples[i].file)
            if image.mode != "RGB":
                image = image.convert("RGB")
        except OSError:
            return self[(i + 1) % len(self)]
        return self.transform(image), self.samples[i].label


class Expects(Base):
    """Knows not all of its labels."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.words = {path: f"word {place}" for place, path in enumerate(self.paths) if place != 20}

    def __getitem__(self, i: int) -> Any:
        image = self.transform(Image.open(self.paths[i]).convert("RGB"))
        try:
            word = self.words[self.paths[i]]
        except KeyError:
            word = "unknown"
        return image, word


class Arrays(Base):
    """Labels in arrays of NumPy and tensors."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.numbers = np.arange(len(paths), dtype=np.int32)
        self.weights = torch.linspace(0, 1, len(paths))

    def __getitem__(self, i: int) -> Any:
        image = self.transform(Image.open(self.paths[i]).convert("RGB"))
        return image, self.numbers[i], self.weights[i], self.numbers[i].item() * 2


class Turned(Base):
    def __getitem__(self, i: int) -> Any:
        image = ImageOps.exif_transpose(Image.open(self.paths[i]))
        return self.transform(image.convert("RGB")), i


class Grey(Base):
    def __getitem__(self, i: int) -> Any:
        return F.to_tensor(F.resize(Image.open(self.paths[i]).convert("L"), [20, 30])), i


class Functions(Base):
    """The functions of torchvision instead of its transforms."""

    def __getitem__(self, i: int) -> Any:
        image = F.center_crop(F.resize(default_loader(self.paths[i]), 40), (32, 32))
        return F.normalize(F.to_tensor(image), mean=MEAN, std=[0.2, 0.3, 0.4]), i


class Tensors(Base):
    """A tv_tensors.Image, several transforms, one of them in a variable of the file."""

    def __getitem__(self, i: int) -> Any:
        image = RESIZE(Image.open(self.paths[i]).convert("RGB"))
        return v2.functional.to_dtype(v2.functional.to_image(image), torch.float32, scale=True), i


RESIZE = v2.Resize((24, 26))


class WithPaths(datasets.ImageFolder):
    """The one of which there are copies everywhere."""

    def __getitem__(self, index: int) -> Any:
        original = super().__getitem__(index)
        path = self.imgs[index][0]
        return (*original, path)


class Added(datasets.ImageFolder):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index) + (index,)  # noqa: RUF005


def closed(paths: list[Path], transform: Any) -> Any:
    """A class in a function, which uses variables of that."""
    files, numbers = list(map(str, paths)), range(100, 200)

    class Closed(stock.Dataset[Any]):
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, i: int) -> Any:
            return transform(Image.open(files[i]).convert("RGB")), numbers[i]

    return Closed()


class Doubles(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        return self.transform(image), self.transform(image)


READ: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        *(Plain, Alone, Named, Listed, Table, Tuples, Arrays, Turned, Grey, Functions, Tensors, Doubles),
        *(closed,),
    )
}
"""Those whose images the engine makes."""


# What is not read, with a part of the reason.


class Draws(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        if random.random() < 0.5:
            image = image.rotate(random.random())
        return self.transform(image), self.labels[i]


class Counts(Base):
    seen = 0

    def __getitem__(self, i: int) -> Any:
        self.seen += 1
        return self.transform(Image.open(self.paths[i]).convert("RGB")), self.labels[i]


class Keeps(Base):
    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, i: int) -> Any:
        if i not in self.kept:
            self.kept[i] = self.transform(Image.open(self.paths[i]).convert("RGB"))
        return self.kept[i], self.labels[i]


class Prints(Base):
    def __getitem__(self, i: int) -> Any:
        print(end="")
        return self.transform(Image.open(self.paths[i]).convert("RGB")), self.labels[i]


class Sizes(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        return self.transform(image), image.size


class Chooses(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i]).convert("RGB")
        return (self.transform(image) if self.labels[i] else F.to_tensor(image)[:, :32, :32]), i


class Asks(Base):
    def __getitem__(self, i: int) -> Any:
        image, grey = Image.open(self.paths[i]), 0
        if image.mode != "RGB":
            image = image.convert("RGB")
            grey = 1
        return self.transform(image), grey


class Leaves(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(self.paths[i])
        if image.mode != "RGB":
            image = image.convert("RGB")
            return self.transform(image), -1
        return self.transform(image), i


class Spends(Base):
    """Takes its labels from a generator."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.left = iter(range(1000))

    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.paths[i]).convert("RGB")), sum(
            [next(self.left), *list(self.left)[:0]]
        )


class Measured(Base):
    """Its length counts."""

    class Counter:
        asked = 0

        def __len__(self) -> int:
            self.asked += 1
            return self.asked

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.counter = self.Counter()

    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.paths[i]).convert("RGB")), len(self.counter)


class Shares(Base):
    """A dictionary that is changed after it became a part of another."""

    def __getitem__(self, i: int) -> Any:
        image = self.transform(Image.open(self.paths[i]).convert("RGB"))
        target = {"label": self.labels[i]}
        sample = {"image": image, "target": target}
        target["place"] = i
        return sample


class Foreign(Base):
    """Its list of files has its own way to be asked."""

    class Files(list[Any]):
        def __getitem__(self, place: Any) -> Any:
            return super().__getitem__(place)

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.files = self.Files(self.paths)

    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.files[i]).convert("RGB")), i


class Whole(Base):
    """Has a method for whole batches."""

    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.paths[i]).convert("RGB")), i

    def __getitems__(self, places: list[int]) -> Any:
        return [(self[i][0] + 1, i) for i in places]


class Looks(Base):
    def __getattr__(self, name: str) -> Any:
        if name == "number":
            return 3
        raise AttributeError(name)

    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.paths[i]).convert("RGB")), self.number


class Made(Base):
    exec("def __getitem__(self, i): return self.transform(Image.open(self.paths[i]).convert('RGB')), i")


class Part(Base):
    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(self.paths[i]).convert("RGB"))[:, 2:], i


REFUSED: dict[Any, str] = {
    Draws: "users_sets.py, line .*: rotate.. of an image is not known",
    Counts: "changes an object in place",
    Keeps: "depends on the sample|changes an object in place",
    Prints: "a call for its effect is not known",
    Sizes: "size of an image is not known",
    Asks: "asks for the mode of an image",
    Leaves: "asks for the mode of an image",
    Spends: "calls next",
    Measured: "Counter is no plain value",
    Shares: "has two names",
    Chooses: "depends on the sample",
    Foreign: "Files is not known|an item of",
    Whole: "its class has __getitems__",
    Looks: "its class has __getattr__",
    Made: "the source of .* is not there",
    Part: "looks at a part of an image",
}
