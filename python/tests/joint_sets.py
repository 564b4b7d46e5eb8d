"""torchvision's data sets of masks and boxes over tiny files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torchvision import datasets

from coco_api import coco_detection
from pictures import picture


def _picture(path: Path, seed: int, height: int, width: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed, height, width)).save(path, quality=90)


def _mask(path: Path, seed: int, height: int, width: int, mode: str = "P") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, 21, (height, width), np.uint8)
    mask = Image.frombytes(mode, (width, height), values.tobytes())
    if mode == "P":
        mask.putpalette(bytes(range(256)) * 3)
    mask.save(path)


def voc(root: Path, count: int = 7, **extra: Any) -> Any:
    base = root / "VOCdevkit" / "VOC2012"
    for i in range(count):
        _picture(base / "JPEGImages" / f"{i}.jpg", i, 40 + i, 52 - i)
        _mask(base / "SegmentationClass" / f"{i}.png", i, 40 + i, 52 - i)
    lists = base / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True, exist_ok=True)
    (lists / "train.txt").write_text("".join(f"{i}\n" for i in range(count)))
    return datasets.VOCSegmentation(root, **extra)


def pets(root: Path, **extra: Any) -> Any:
    base = root / "oxford-iiit-pet"
    for i in range(5):
        _picture(base / "images" / f"Cat_{i}.jpg", i, 40 + i, 52 - i)
        _mask(base / "annotations" / "trimaps" / f"Cat_{i}.png", i, 40 + i, 52 - i, "L")
    (base / "annotations" / "trainval.txt").write_text("".join(f"Cat_{i} 1 1 1\n" for i in range(5)))
    return datasets.OxfordIIITPet(root, target_types="segmentation", **extra)


def coco(root: Path, whole: bool = False, count: int = 7, **extra: Any) -> Any:
    random = np.random.default_rng(5)
    images, notes = [], []
    for i in range(count):
        height, width = 40 + i, 52 - i
        _picture(root / "images" / f"{i}.jpg", i, height, width)
        images.append({"id": 100 - 3 * i, "file_name": f"{i}.jpg", "height": height, "width": width})
        for _ in range(0 if i == 3 else int(random.integers(1, 5))):
            near = random.random(2) * [width / 2, height / 2]
            box = [*near, *(random.random(2) * [width / 2, height / 2])]
            note = {"id": len(notes) + 1, "image_id": 100 - 3 * i, "category_id": int(random.integers(1, 91))}
            notes.append({**note, "bbox": [int(v) if whole else round(v, 2) for v in box], "iscrowd": 0})
    path = root / "notes.json"
    path.write_text(json.dumps({"images": images, "annotations": notes}))
    return coco_detection(root / "images", path, **extra)
