"""Data sets whose masks and boxes move with their images: what is native gives what torchvision gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader as Stock
from torchvision import tv_tensors
from torchvision.datasets import wrap_dataset_for_transforms_v2 as wrap
from torchvision.transforms import v2

import joint_sets as sets
import wellfed as wf
import wellfed.torch as wt
from torch_same import apart, same
from wellfed.torch._lower import lower

FLOAT = v2.ToDtype(
    {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True
)

# Without draws, so that both give the same.
FIXED: list[Any] = [
    v2.Compose([v2.ToImage()]),
    v2.Compose([v2.Resize((30, 36)), v2.RandomHorizontalFlip(1), v2.ToImage(), FLOAT]),
    v2.Compose([v2.Resize(33), v2.CenterCrop(30), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    v2.Compose([v2.ToImage(), v2.Pad(3, fill=2), v2.RandomVerticalFlip(1), v2.CenterCrop((20, 60))]),
    v2.Compose([v2.Resize((30, 36)), v2.ToImage(), FLOAT, v2.Normalize([0.5], [0.5]), v2.ToPureTensor()]),
    v2.Compose([v2.Pad((1, 2, 3, 4), fill=4), v2.CenterCrop(36), v2.PILToTensor()]),
]
BOXES: list[Any] = [
    v2.Compose([v2.RandomPerspective(p=0), v2.RandomPhotometricDistort(p=0), v2.ToImage()]),
    v2.Compose([v2.Resize((30, 36)), v2.CenterCrop(20), v2.SanitizeBoundingBoxes(4, 20), v2.ToImage()]),
    v2.Compose(
        [v2.ConvertBoundingBoxFormat("CXCYWH"), v2.Pad(5), v2.ClampBoundingBoxes(), v2.ToImage(), FLOAT]
    ),
    v2.Compose(
        [v2.RandomHorizontalFlip(1), v2.ConvertBoundingBoxFormat("XYWH"), v2.ToImage(), v2.ToPureTensor()]
    ),
]


def crossing(image: Any, target: Any) -> Any:
    """A joint transform that is Python."""
    return image, {"seen": target}


def together(batch: list[Any]) -> Any:
    return list(zip(*batch, strict=True))


def check(one: Any, other: Any) -> None:
    """Same structure, types and bits; images may differ by rounding of what stands on tensors."""
    if isinstance(one, torch.Tensor) and one.dtype == torch.float32 and one.shape[-3:-2] == (3,):
        assert type(one) is type(other)
        assert apart(one, other) <= 1e-6
        return
    if isinstance(one, list | tuple):
        assert type(one) is type(other)
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            check(a, b)
        return
    if isinstance(one, tv_tensors.BoundingBoxes):
        assert type(other) is tv_tensors.BoundingBoxes
        assert (one.format, one.canvas_size) == (other.format, other.canvas_size)
    if isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            check(one[key], other[key])
        return
    assert same(one, other), (one, other)


@pytest.mark.parametrize("make", [sets.voc, sets.pets])
@pytest.mark.parametrize("place", range(len(FIXED)))
def test_masks_come_as_from_torchvision(tmp_path: Path, make: Callable[..., Any], place: int) -> None:
    dataset = wrap(make(tmp_path, transforms=FIXED[place]))
    for more in ({"batch_size": 1}, {"batch_size": None}, {"batch_size": 3, "collate_fn": together}):
        loader = wt.DataLoader(dataset, **more)
        for one, other in zip(loader, Stock(dataset, **more), strict=True):
            check(one, other)


@pytest.mark.parametrize("place", [1, 4])
def test_whole_batches_are_native_where_sizes_are_settled(tmp_path: Path, place: int) -> None:
    dataset = wrap(sets.voc(tmp_path, transforms=FIXED[place]))
    loader = wt.DataLoader(dataset, batch_size=3)
    assert lower(loader).kind == "native"
    for one, other in zip(loader, Stock(dataset, batch_size=3), strict=True):
        check(one, other)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("place", range(len(FIXED) + len(BOXES)))
def test_boxes_come_as_from_torchvision(tmp_path: Path, place: int, whole: bool) -> None:
    transform = [*FIXED, *BOXES][place]
    dataset = wrap(sets.coco(tmp_path, whole, transforms=transform))
    loader = wt.DataLoader(dataset, batch_size=2, collate_fn=together)
    plan = lower(loader)
    assert plan.kind == "hybrid"
    assert all(line.native for section, line in plan.lines if section == "transform"), plan.lines
    # An image without boxes has no target to sanitize, in torchvision either.
    rows = [row for row in range(len(dataset)) if row != len(dataset) - 1 - 3]
    for row in rows:
        check(plan.dataset[row], dataset[row])
        assert type(plan.dataset[row][1]) is dict


def test_an_image_without_boxes_is_made_by_its_data_set(tmp_path: Path) -> None:
    dataset = wrap(sets.coco(tmp_path, transforms=v2.Compose([v2.Resize(20), v2.ToImage()])))
    loader = wt.DataLoader(dataset, batch_size=2, collate_fn=together)
    for one, other in zip(loader, Stock(dataset, batch_size=2, collate_fn=together), strict=True):
        check(one, other)


def test_image_and_mask_are_drawn_together(tmp_path: Path) -> None:
    """The image is its own mask: wherever both come to lie, they agree."""
    dataset = sets.voc(tmp_path)
    for image, mask in zip(dataset.images, dataset.masks, strict=True):
        from PIL import Image

        grey = Image.open(image).convert("L")
        grey.save(mask)
        grey.convert("RGB").save(image, "png")
    chain = [v2.RandomResizedCrop(24, interpolation=v2.InterpolationMode.NEAREST), v2.RandomHorizontalFlip()]
    dataset.transforms = v2.Compose([v2.RandomCrop(30), *chain[1:], v2.ToImage()])
    loader = wt.DataLoader(wrap(dataset), batch_size=7)
    assert lower(loader).kind == "native"
    seen = set()
    for _ in range(3):
        for images, masks in loader:
            assert torch.equal(images[:, :1], masks)
            seen.add(masks.sum().item())
    assert len(seen) == 3


REFUSED: list[tuple[Any, str]] = [
    (v2.RandomRotation(30), "another rule"),
    (v2.RandomAffine(30), "another rule"),
    (v2.RandomPerspective(), "another rule"),
    (v2.AugMix(), "in its own way"),
    (v2.ElasticTransform(fill=[1, 2, 3]), "one value"),
    (v2.RandomApply([v2.RandomInvert()]), "in its own way"),
    (v2.Pad(2, fill=(1, 2, 3)), "one value"),
    (v2.ToPILImage(), "changes targets too"),
    (v2.Resize(9, v2.InterpolationMode.NEAREST_EXACT), "another rule"),
    (v2.RandomChannelPermutation(), "no such transform"),
    (crossing, "Python code"),
]


@pytest.mark.parametrize("place", range(len(REFUSED)))
def test_what_is_not_known_is_python_and_says_so(tmp_path: Path, place: int) -> None:
    leaf, why = REFUSED[place]
    dataset = wrap(sets.voc(tmp_path, transforms=v2.Compose([v2.Resize((30, 36)), leaf, v2.ToImage()])))
    loader = wt.DataLoader(dataset, batch_size=None)
    plan = lower(loader)
    assert plan.kind == "hybrid"
    assert any(why in line.why for _, line in plan.lines), plan.lines
    if isinstance(leaf, v2.Resize | v2.RandomRotation | v2.RandomChannelPermutation):
        assert type(plan.dataset[0][0]) is tv_tensors.Image


def test_what_python_does_after_native_parts_gets_what_torchvision_gives(tmp_path: Path) -> None:
    for leaf in (crossing, v2.Identity()):
        dataset = wrap(sets.voc(tmp_path, transforms=v2.Compose([v2.Resize((30, 36)), leaf])))
        loader = wt.DataLoader(dataset, batch_size=None)
        for one, other in zip(loader, Stock(dataset, batch_size=None), strict=True):
            check(one, other)


def test_masks_follow_elastic_transforms(tmp_path: Path) -> None:
    chain = [
        v2.Resize((30, 36)),
        v2.ElasticTransform(0.0, 2.0),
        v2.RandomPhotometricDistort(p=0),
        v2.ToImage(),
    ]
    dataset = wrap(sets.voc(tmp_path, transforms=v2.Compose(chain)))
    loader = wt.DataLoader(dataset, batch_size=3)
    assert lower(loader).kind == "native"
    for one, other in zip(loader, Stock(dataset, batch_size=3), strict=True):
        check(one, other)


def test_unwrapped_data_sets_with_transforms_of_each(tmp_path: Path) -> None:
    """Image and target are transformed apart: the image natively, the target in Python."""
    image = v2.Compose([v2.Resize((30, 36)), v2.ToImage()])
    mask = v2.Compose([v2.Resize((30, 36), v2.InterpolationMode.NEAREST), v2.PILToTensor()])
    dataset = sets.voc(tmp_path, transform=image, target_transform=mask)
    loader = wt.DataLoader(dataset, batch_size=3)
    assert lower(loader).kind == "native"
    for one, other in zip(loader, Stock(dataset, batch_size=3), strict=True):
        check(one, other)
    boxes = sets.coco(tmp_path / "coco", transform=image)
    loader = wt.DataLoader(boxes, batch_size=2, collate_fn=together)
    assert lower(loader).kind == "hybrid"
    for one, other in zip(loader, Stock(boxes, batch_size=2, collate_fn=together), strict=True):
        check(one, other)


def test_unwrapped_data_sets_with_joint_transforms_say_how_to_wrap_them(tmp_path: Path) -> None:
    dataset = sets.voc(tmp_path, transforms=v2.Compose([v2.Resize((30, 36)), v2.ToImage()]))
    loader = wt.DataLoader(dataset, batch_size=3)
    plan = lower(loader)
    assert plan.kind == "python"
    assert any("wrap_dataset_for_transforms_v2" in line.change for _, line in plan.lines)
    for one, other in zip(loader, Stock(dataset, batch_size=3), strict=True):
        check(one, other)


def test_workers_and_bad_files(tmp_path: Path) -> None:
    dataset = wrap(sets.voc(tmp_path, transforms=FIXED[1]))
    Path(dataset.masks[2]).write_bytes(b"no png")
    loader = wt.DataLoader(dataset, batch_size=2, num_workers=2)
    with pytest.raises(Exception, match="cannot identify image file"):
        list(loader)


def test_native_sources_read_the_same_layouts(tmp_path: Path) -> None:
    dataset = wrap(sets.voc(tmp_path))
    T = wf.transforms
    native = wf.voc_segmentation(tmp_path).map(T.Resize((30, 36)))
    for (image, mask), (_, target) in zip(native.batch(1).torch(), dataset, strict=True):
        assert image.shape == (1, 3, 30, 36)
        assert torch.equal(mask[0], v2.functional.resize(target, [30, 36]).as_subclass(torch.Tensor))
    boxes = wrap(sets.coco(tmp_path / "coco"))
    found = wf.coco_detection(tmp_path / "coco" / "images", tmp_path / "coco" / "notes.json")
    for (_, sample), (_, target) in zip(found.map(T.Resize((9, 9))).batch(1).numpy(), boxes, strict=True):
        assert sample["image_id"].tolist() == [target["image_id"]]
        assert sample["labels"][0].tolist() == target.get("labels", torch.empty(0)).tolist()
        if "boxes" in target:
            want = v2.functional.resize(target["boxes"], [9, 9]).as_subclass(torch.Tensor)
            assert torch.equal(torch.as_tensor(sample["boxes"][0]), want)
