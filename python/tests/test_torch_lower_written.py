"""Data sets written at random: whatever is understood of them, their samples are the stock loader's."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import wellfed as wf
from several_sets import mask
from test_torch_lower_users import SMALL, paths
from torch_same import same

__all__ = ["paths"]

VALUES = [
    *(
        "i",
        "-i",
        "i % 3",
        "i / 4",
        "(i, {'deep': self.labels[i]})",
        "[self.labels[i], i]",
        "sum(self.labels[: i % 3])",
    ),
    *(
        "self.labels[i]",
        "self.labels[i] * 2 + 1",
        "not self.labels[i]",
        "max(self.labels[i], 1)",
        "self.count(i)",
    ),
    *(
        "self.labels[i] if self.flag else 3",
        "self.labels.index(self.labels[i])",
        "torch.tensor([self.labels[i], i])",
    ),
    *(
        "self.array[i]",
        "self.array[i, 1]",
        "self.tensor[i]",
        "self.tensor[i].float()",
        "self.table.iloc[i, 1]",
    ),
    *(
        "self.rows[i][0]",
        "len(self.rows[i][0])",
        "self.rows[i][0].upper()",
        "[float(n) for n in self.rows[i][1:]]",
    ),
    *("int(self.rows[i][1])", "self.words[self.rows[i][1]]", "self.more.get(i, -1)", "self.named[i].label"),
    *("f'{i:03}-{self.labels[i]!r}'", "os.path.basename(self.paths[i])", "next(iter([i]))"),
]
"""What stands beside an image: some of it is not known, or is another thing for each sample."""


MASKS = [
    *("Image.open(self.masks[i])", "Image.open(self.masks[i]).convert('L')", "Image.open(self.mask_of(i))"),
    *("tv_tensors.Mask(Image.open(self.masks[i]))", "tv_tensors.Mask(np.array(Image.open(self.masks[i])))"),
    "tv_tensors.Mask(torch.from_numpy(np.array(Image.open(self.masks[i]).convert('L'))).long())",
    "np.array(Image.open(self.masks[i]).convert('L'), dtype=np.float32)",
    "(np.array(Image.open(self.masks[i])) > 3).astype(np.uint8)",
]
BOXES = [
    "tv_tensors.BoundingBoxes(self.boxes[i], format='XYXY', canvas_size=F2.get_size(image))",
    "tv_tensors.BoundingBoxes(torch.tensor(self.boxes[i]).long(), format='XYWH', canvas_size=image.size[::-1])",
    "tv_tensors.BoundingBoxes(self.boxes[i], format='CXCYWH', canvas_size=(image.height, image.width))",
    "tv_tensors.BoundingBoxes(self.boxes[i], format='XYXY', canvas_size=(60, 40))",
]


class Writer:
    """Writes a data set of pieces that people write, some of which are not known."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        pick = self.random.choice
        path = pick(
            ["self.paths[i]", "str(self.files[i])", "os.path.join(self.root, self.rows[i][0])", "name"]
        )
        before = ["name = self.rows[i][0]", "name = f'{self.root}/{name}'"] if path == "name" else []
        if path != "name" and pick([False, True]):
            before, path = [f"where = {path}"], "where"
        opening = pick(
            [
                [f"image = Image.open({path}).convert('RGB')"],
                [f"with open({path}, 'rb') as file:", "    image = Image.open(file).convert('RGB')"],
                [
                    f"image = Image.open({path})",
                    "if image.mode != 'RGB':",
                    "    image = image.convert('RGB')",
                ],
                [f"with Image.open({path}) as file:", "    image = file.convert('RGB')"],
                [f"image = self.load({path})"],
                [f"image = default_loader({path})"],
                ["image = Image.open(io.BytesIO(self.blobs[i])).convert('RGB')"],
                [
                    "file = io.BytesIO(self.named_blobs[self.paths[i]])",
                    "image = Image.open(file).convert('RGB')",
                ],
                [f"image = ImageOps.exif_transpose(Image.open({path})).convert('RGB')"],
                ["try:", f"    image = self.load({path})", "except OSError:", "    image = None"],
            ]
        )
        changing = pick(
            [
                ["image = self.transform(image)"],
                ["if self.transform is not None:", "    image = self.transform(image)"],
                ["image = F.resize(image, [20, 22])", "image = F.to_tensor(image)"],
                ["image = self.transform(image) if self.transform else F.to_tensor(image)"],
                ["image = apply(self.transform, image)"],
                ["image = self.transform(image.point(lambda v: v // 2))"],
                ["width, height = image.size", "image = self.transform(image)"],
                ["for _ in range(1):", "    image = self.transform(image)"],
            ]
        )
        return "\n".join([*before, *opening, *changing, *self.answer()])

    def several(self) -> str:
        """A data set whose samples are more than an image."""
        pick = self.random.choice
        opening = pick(["Image.open(self.paths[i]).convert('RGB')", "default_loader(self.paths[i])"])
        lines = [f"image = {opening}"]
        if pick([True, True, True, False]):
            mask = pick(MASKS)
            lines.append(f"mask = {mask}")
            if "tv_tensors" not in mask and pick([True, False]):
                lines.append("mask = tv_tensors.Mask(mask)")
            changing = [
                ["image, mask = self.joint(image, mask)"],
                ["if self.joint is not None:", "    image, mask = self.joint(image, mask)"],
                [
                    "sample = self.joint({'a': image, 'b': mask, 'c': [i, 'x']})",
                    "image, mask = sample['a'], sample['b']",
                ],
                ["image, mask = self.transform(image), self.small(mask)"],
                ["image, mask = self.transform(image), self.transform(mask)"],
                [
                    "mask = F.resize(mask, [20, 22], InterpolationMode.NEAREST)",
                    "image = self.transform(image)",
                ],
            ]
            named = "tv_tensors" in lines[-1]
            lines += pick(changing[:3] if named and pick([True] * 6 + [False]) else changing[3:])
            ending = pick(
                [
                    "mask",
                    "mask",
                    "mask.long()",
                    "mask / 255",
                    "(mask > 4)",
                    "np.array(mask)",
                    "mask.squeeze(0)",
                ]
            )
            lines.append(f"return {{'x': image, 'y': {ending}, 'z': {self.value()}}}")
            return "\n".join(lines)
        lines += ["target = {'labels': torch.tensor(self.marks[i])}", f"target['boxes'] = {pick(BOXES)}"]
        lines += pick(
            [
                [],
                ["target['more'] = torch.tensor(self.boxes[i])[:, 2:]"],
                [f"target['value'] = {self.value()}"],
            ]
        )
        lines.append(
            pick(["image, target = self.joint(image, target)", "image, target = self.clean(image, target)"])
        )
        return "\n".join([*lines, pick(["return image, target", "return [target, image, i]"])])

    def value(self) -> str:
        return self.random.choice(VALUES)

    def answer(self) -> list[str]:
        pick = self.random.choice
        one, two = self.value(), self.value()
        return pick(
            [
                [f"return image, {one}"],
                [f"return [{one}, image, {two}]"],
                [f"return {{'x': image, 'y': {one}, 'z': {two}}}"],
                [f"label = {one}", "return image, label"],
                [f"sample = {{'y': {one}}}", "sample['x'] = image", f"sample['z'] = {two}", "return sample"],
                [f"first, second = {one}, {two}", "return first, image, second"],
                [f"if self.flag and {one!r}:", f"    return image, {one}", f"return {two}, image"],
                ["return image"],
            ]
        )


HEAD = """
import io
import os
from typing import NamedTuple
import numpy as np
import torch
from PIL import Image, ImageOps
from torch.utils.data import Dataset
from torchvision import tv_tensors
from torchvision.datasets.folder import default_loader
from torchvision.transforms import InterpolationMode, functional as F
from torchvision.transforms.v2 import functional as F2


class Named(NamedTuple):
    file: str
    label: int


def apply(function, image):
    return function(image)


class Written(Dataset):
    def __init__(self, paths, transform, flag, table):
        self.files, self.transform, self.flag, self.table = paths, transform, flag, table
        self.paths = [str(path) for path in paths]
        self.root = os.path.dirname(os.path.dirname(self.paths[0]))
        self.labels = [(7 * place) % 4 for place in range(len(paths))]
        self.rows = [[os.path.relpath(path, self.root), str(place % 5)] for place, path in enumerate(self.paths)]
        self.words = {str(place): f"word {place}" for place in range(5)}
        self.array = np.arange(3 * len(paths), dtype=np.float32).reshape(-1, 3)
        self.tensor = torch.arange(len(paths))
        self.named = [Named(path, place) for place, path in enumerate(self.paths)]
        self.more = {2: 5, 3: 6}
        self.seen = 0
        self.blobs = [path.read_bytes() for path in paths]
        self.named_blobs = dict(zip(self.paths, self.blobs))
        self.boxes = [[[1.5 * n, 2.0, 10.0 + n, 12.0] for n in range(1 + place % 3)] for place in range(len(paths))]
        self.marks = [[1 + (place + n) % 4 for n in range(1 + place % 3)] for place in range(len(paths))]

    def __len__(self):
        return len(self.paths)

    def mask_of(self, i):
        return self.masks[i]

    def load(self, path):
        return Image.open(path).convert("RGB")

    def count(self, i):
        self.seen += 1
        return i

    def __getitem__(self, i):
"""


@pytest.mark.parametrize("first", range(0, int(os.environ.get("WELLFED_WRITTEN_SETS", "60")), 20))
def test_data_sets_written_at_random(first: int, paths: list[Path], tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    read = 0
    masks = masks_of(paths, tmp_path, ("P", "L", "1", "I;16")[first // 20 % 4])
    for seed in range(first, first + 20):
        together = seed % 2 == 1
        body = Writer(seed).several() if together else Writer(seed).text()
        text = HEAD + "\n".join(f"        {line}" for line in body.split("\n")) + "\n"
        file = tmp_path / f"written_{seed}.py"
        file.write_text(text)
        space: dict[str, Any] = {"__name__": file.stem}
        exec(compile(text, file, "exec"), space)
        table = pandas.DataFrame({"a": range(len(paths)), "b": [2 * n for n in range(len(paths))]})
        shuffle, workers = seed % 2 == 0, int(seed % 7 == 0)
        results = []
        for ours in (False, True):
            dataset = space["Written"](paths, SMALL, seed % 3 == 0, table)
            dataset.masks, dataset.joint, dataset.clean = masks, JOINT[seed // 2 % len(JOINT)], CLEAN
            dataset.small = NEAREST if seed % 3 else SMALL
            collate = beside if together and seed % 5 else None
            loader: Any = stock.DataLoader(
                dataset, batch_size=5, shuffle=shuffle, num_workers=workers, collate_fn=collate
            )
            if ours:
                loader = wf.feed(loader)
                read += "Python: the data set runs as it is" not in loader.explain()
            torch.manual_seed(seed)
            results.append(answers(loader))
            dataset.labels[4] = 3
            dataset.rows[5][1] = "2"
            dataset.boxes[2][0][1] = 5.0
            torch.manual_seed(seed)
            results[-1] += answers(loader)
        assert same(*results), f"{body}\n{loader.explain()}"
    assert read >= 4  # most pieces are known


def masks_of(paths: list[Path], folder: Path, mode: str) -> list[str]:
    """Masks of images; one has another size, and one another mode."""
    found = []
    for place, path in enumerate(paths):
        with Image.open(path) as image:
            width, height = image.size
        size = (height, width) if place != 7 else (30, 31)
        values = np.random.default_rng(place).integers(0, 21, size, np.uint8)
        found.append(str(folder / f"mask_{place}.png"))
        mask(values, mode if place != 9 else "L").save(found[-1])
    return found


def beside(batch: Any) -> Any:
    return list(batch)


JOINT = [
    v2.Compose([v2.Resize((20, 22)), v2.RandomHorizontalFlip(1), v2.ToImage()]),
    v2.Compose([v2.Pad(3, fill=2), v2.CenterCrop(30), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    v2.Compose([v2.RandomVerticalFlip(1), v2.ToImage()]),
    v2.Compose([v2.ToImage(), v2.CenterCrop((44, 30)), v2.Pad(2), v2.ToPureTensor()]),
]
CLEAN = v2.Compose(
    [v2.Resize((30, 36)), v2.CenterCrop(28), v2.SanitizeBoundingBoxes(2), v2.ToImage(), v2.ToPureTensor()]
)
NEAREST = v1.Compose([v1.Resize((20, 22), v1.InterpolationMode.NEAREST), v1.PILToTensor()])


def answers(loader: Any) -> list[Any]:
    """Batches of an epoch, or the kind of error that ends it."""
    found = []
    try:
        for batch in loader:
            found.append(batch)
    except Exception as error:
        found.append(type(error).__name__)
    return found
