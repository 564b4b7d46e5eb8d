"""Detection with joint transforms: torch's DataLoader at several worker counts against feed and the native pipeline.

Data are photographs of a folder, 500x400 to 640x480, with 1 to 20 boxes each, in COCO's layout; batches are lists, as
torchvision's references collate them. Before anything is measured, boxes, labels and images of transforms without draws
must be torchvision's.

    python benches/detection.py [PHOTOS] [--rounds 5] [--count 400] [--out FILE.json]
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import wrap_dataset_for_transforms_v2
from torchvision.transforms import v2

import wellfed as wf
from vision import arguments, compare, pictures
from wellfed import transforms as T

sys.path.append(str(Path(__file__).resolve().parent.parent / "python" / "tests"))
from coco_api import coco_detection

BATCH, SIZE = 16, 320
SIZES = [(640, 480), (500, 400), (560, 420)]


def together(batch: list[Any]) -> Any:
    """torchvision's references collate like this."""
    return tuple(zip(*batch))


def lay_out(photos: Path | None, root: Path, count: int) -> None:
    """Makes a folder of images, and notes.json."""
    (root / "images").mkdir()
    draw = random.Random(0)
    images: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for i, picture in enumerate(pictures(photos, count, SIZES)):
        name = f"{i:012d}.jpg"
        picture.save(root / "images" / name, quality=90)
        width, height = picture.size
        images.append({"id": i, "file_name": name, "width": width, "height": height})
        for _ in range(draw.randint(1, 20)):
            w, h = draw.uniform(8, width / 2), draw.uniform(8, height / 2)
            box = [draw.uniform(0, width - w), draw.uniform(0, height - h), w, h]
            note = {"id": len(notes) + 1, "image_id": i, "category_id": draw.randint(1, 90), "iscrowd": 0}
            notes.append({**note, "bbox": [round(side, 2) for side in box], "area": w * h})
    (root / "notes.json").write_text(json.dumps({"images": images, "annotations": notes}))


def chain(crop: Any, flip: float) -> Any:
    """torchvision's transforms. The crop works on Pillow images, whose rule of resizing the engine keeps to."""
    return v2.Compose(
        [
            crop,
            v2.ToImage(),
            v2.RandomHorizontalFlip(flip),
            v2.ClampBoundingBoxes(),
            v2.SanitizeBoundingBoxes(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
        ]
    )


def native(root: Path, crop: Any, flip: float) -> wf.Dataset:
    """The same as a pipeline."""
    return wf.coco_detection(root / "images", root / "notes.json").map(
        crop,
        T.RandomHorizontalFlip(flip),
        T.ClampBoundingBoxes(),
        T.SanitizeBoundingBoxes(),
        T.ToDtype("float32", scale=True),
        T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
    )


def stock(root: Path, joint: Any, workers: int, shuffle: bool = True) -> Any:
    """torch's loader of torchvision's data set."""
    dataset = wrap_dataset_for_transforms_v2(
        coco_detection(root / "images", root / "notes.json", transforms=joint)
    )
    return DataLoader(
        dataset,
        BATCH,
        shuffle=shuffle,
        collate_fn=together,
        num_workers=workers,
        persistent_workers=workers > 0,
    )


def same(name: str, batches: Iterable[Any], expected: list[Any]) -> None:
    """Images, boxes and labels of every sample."""
    count = 0
    for (images, boxes, labels), (their_images, their_targets) in zip(batches, expected, strict=True):
        for image, box, label, their_image, target in zip(
            images, boxes, labels, their_images, their_targets, strict=True
        ):
            assert torch.equal(torch.as_tensor(box), target["boxes"].as_subclass(torch.Tensor)), name
            assert torch.equal(label, target["labels"]), name
            assert (image - their_image.as_subclass(torch.Tensor)).abs().max() < 1e-4, name
            count += 1
    print(f"{name}: {count} samples are torchvision's: boxes and labels to the bit, images to 1e-4")


def check(root: Path) -> None:
    """Raises unless transforms without draws give what torchvision gives."""
    loader = stock(root, chain(v2.Resize((SIZE, SIZE)), 1.0), 0, shuffle=False)
    expected = list(loader)
    fed = (
        (i, [t["boxes"] for t in targets], [t["labels"] for t in targets]) for i, targets in wf.feed(loader)
    )
    same("feed", fed, expected)
    pipeline = native(root, T.Resize((SIZE, SIZE)), 1.0).batch(BATCH).torch()
    same("native", ((i, t["boxes"], t["labels"]) for i, t in pipeline), expected)


def main() -> None:
    given = arguments(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        lay_out(given.photos, root, given.count)
        check(root)
        joint = chain(v2.RandomResizedCrop(SIZE), 0.5)
        pipeline = native(root, T.RandomResizedCrop(SIZE), 0.5).shuffle(seed=0).batch(BATCH)
        ours = {
            "feed": wf.feed(stock(root, joint, 0)),
            "feed, 2 workers": wf.feed(stock(root, joint, 2)),
            "native": pipeline.torch(),
        }
        compare(lambda workers: stock(root, joint, workers), ours, given)


if __name__ == "__main__":
    main()
