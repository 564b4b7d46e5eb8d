"""Collate functions that put samples side by side: batches are native, and are what torch's loader gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Subset
from torchvision.datasets import wrap_dataset_for_transforms_v2 as wrap
from torchvision.transforms import v2

import joint_sets as sets
import wellfed.torch as wt
from test_torch_lower_joint import FLOAT, check
from torchvision_sets import image_folder
from wellfed.torch._lower import lower
from wellfed.torch._lower.together import puts_together


def together(batch: list[Any]) -> Any:
    """With words about it."""
    return tuple(zip(*batch))


def strictly(batch: list[Any]) -> Any:
    return tuple(zip(*batch, strict=True))


def first(batch: list[Any]) -> Any:
    return batch[0]


def made() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    def of_enclosing(batch: Any) -> Any:
        return tuple(zip(*other))

    other: Any = ()

    def nested(samples: Any) -> Any:
        return tuple(zip(*samples))

    return nested, of_enclosing


def test_functions_are_known_by_what_they_do() -> None:
    nested, of_enclosing = made()
    for known in (together, nested, lambda b: b, lambda b: list(b), lambda b: list(zip(*b))):
        assert puts_together(known), known
    others: list[Any] = [strictly, first, of_enclosing, tuple, lambda b, c=1: b, lambda *b: b, lambda b: [b]]
    for other in others:
        assert not puts_together(other), other
    # As in files that import nothing from __future__, unlike this one.
    plain: dict[str, Any] = {}
    exec(compile("f = lambda batch: tuple(zip(*batch))", "<plain>", "exec", dont_inherit=True), plain)
    assert puts_together(plain["f"])
    shadowed: dict[str, Any] = {}
    exec("def zip(*a): return a\nf = lambda batch: tuple(zip(*batch))", shadowed)
    assert not puts_together(shadowed["f"])


SETTLED: list[Any] = [
    v2.Compose([v2.Resize((30, 36)), v2.RandomHorizontalFlip(1), v2.ToImage(), FLOAT]),
    v2.Compose([v2.Resize(33), v2.CenterCrop(30), v2.ToImage(), v2.ConvertBoundingBoxFormat("CXCYWH")]),
    v2.Compose([v2.Resize((30, 36)), v2.ToImage(), FLOAT, v2.Normalize([0.5], [0.5]), v2.ToPureTensor()]),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("place", range(len(SETTLED)))
def test_boxes_come_in_native_batches(tmp_path: Path, place: int, whole: bool) -> None:
    dataset = wrap(sets.coco(tmp_path, whole, transforms=SETTLED[place]))
    for data in (dataset, Subset(dataset, [5, 3, 0, 0, 6])):
        # One image has no boxes: its data set makes it.
        for workers in (0, 2):
            options: dict[str, Any] = {"batch_size": 2, "collate_fn": together}
            loader = wt.DataLoader(data, num_workers=workers, **options)
            assert lower(loader).kind == "native"
            for one, other in zip(loader, Stock(data, **options), strict=True):
                check(one, other)


def test_samples_without_boxes_come_side_by_side_too(tmp_path: Path) -> None:
    chain = v2.Compose([v2.Resize((30, 36)), v2.ToImage()])
    masks = wrap(sets.voc(tmp_path / "voc", transforms=chain))
    plain = image_folder(tmp_path, transform=chain, target_transform=str)
    for data in (masks, plain):
        for collate in (together, lambda batch: batch):
            loader = wt.DataLoader(data, 3, collate_fn=collate)
            assert lower(loader).kind == "native"
            for one, other in zip(loader, Stock(data, 3, collate_fn=collate), strict=True):
                check(one, other)


def test_other_functions_get_samples_one_by_one(tmp_path: Path) -> None:
    open_ = wrap(sets.coco(tmp_path, transforms=v2.Compose([v2.Resize(20), v2.ToImage()])))
    settled = wrap(sets.coco(tmp_path, transforms=SETTLED[0]))
    for data, kind, collate in ((open_, "native", together), (settled, "hybrid", strictly)):
        loader = wt.DataLoader(data, 2, collate_fn=collate)
        assert lower(loader).kind == kind
        for one, other in zip(loader, Stock(data, batch_size=2, collate_fn=collate), strict=True):
            check(one, other)
    lines = lower(wt.DataLoader(settled, 2)).lines
    assert any("tuple(zip(*batch))" in line.change for _, line in lines)


def test_a_bad_file_is_left_out_or_raised(tmp_path: Path) -> None:
    dataset = wrap(sets.coco(tmp_path, transforms=SETTLED[0]))
    (tmp_path / "images" / "5.jpg").write_bytes(b"no image")
    with pytest.raises(Exception, match="cannot identify image file"):
        list(wt.DataLoader(dataset, 2, collate_fn=together))
    loader = wt.DataLoader(dataset, 2, collate_fn=together, on_error="skip")
    assert sum(len(images) for images, _ in loader) == len(dataset) - 1


def test_what_the_data_set_cannot_make_either_is_raised_or_left_out(tmp_path: Path) -> None:
    # An image without boxes has no target to sanitize.
    chain = v2.Compose([v2.Resize((30, 36)), v2.ToImage(), v2.SanitizeBoundingBoxes()])
    dataset = wrap(sets.coco(tmp_path, transforms=chain))
    with pytest.raises(ValueError, match=r"boxes|labels"):
        list(wt.DataLoader(dataset, 2, collate_fn=together))
    loader = wt.DataLoader(dataset, 2, collate_fn=together, on_error="skip")
    batches = list(loader)
    assert sum(len(images) for images, _ in batches) == len(dataset) - 1
    assert all(isinstance(image, torch.Tensor) for images, _ in batches for image in images)
