"""Data sets in the layout of COCO where pycocotools is not installed."""

from __future__ import annotations

import json
import sys
import types
from collections import defaultdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

from torchvision import datasets

__all__ = ["coco_detection"]


class COCO:
    """What CocoDetection uses of pycocotools."""

    def __init__(self, path: str) -> None:
        given = json.loads(Path(path).read_text())
        self.imgs = {image["id"]: image for image in given["images"]}
        self.anns = {note["id"]: note for note in given["annotations"]}
        self.imgToAnns: dict[int, list[Any]] = defaultdict(list)
        for note in given["annotations"]:
            self.imgToAnns[note["image_id"]].append(note)

    def loadImgs(self, image: int) -> list[Any]:
        return [self.imgs[image]]

    def getAnnIds(self, image: int) -> list[int]:
        return [note["id"] for note in self.imgToAnns[image]]

    def loadAnns(self, ids: list[int]) -> list[Any]:
        return [self.anns[i] for i in ids]


def coco_detection(root: Path, notes: Path, **extra: Any) -> Any:
    """torchvision's data set, as its own constructor makes it."""
    module = types.ModuleType("pycocotools.coco")
    module.COCO = COCO  # type: ignore[attr-defined]
    with patch.dict(
        sys.modules, {"pycocotools": types.ModuleType("pycocotools"), "pycocotools.coco": module}
    ):
        return datasets.CocoDetection(str(root), str(notes), **extra)
