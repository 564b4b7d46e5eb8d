"""Transforms after which images differ in size: equal to torchvision v2's for equal draws, and batches of lists."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Subset
from torchvision import tv_tensors
from torchvision.datasets import wrap_dataset_for_transforms_v2 as wrap
from torchvision.ops import box_iou
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import joint_sets as sets
import wellfed as wf
import wellfed.torch as wt
from test_masks_boxes import FORMATS, Sample, compare, each
from test_torch_lower_joint import FLOAT, check
from wellfed import transforms as T
from wellfed.torch._lower import lower


def together(batch: list[Any]) -> Any:
    return tuple(zip(*batch))


def with_image(sample: Sample, given: dict[str, Any], want: dict[str, Any], image: Any) -> None:
    """All fields, and the pixels that torchvision makes of Pillow's image."""
    compare(given, want)
    assert torch.equal(given["image"], F.pil_to_tensor(image)), sample.image


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("seed", range(6))
def test_resizes_equal_those_of_torchvision(tmp_path: Path, seed: int, layout: str) -> None:
    sample = Sample(tmp_path, seed, [8, 16, 1][seed % 3], whole=seed >= 4)
    tv, picture = sample.tv(layout), Image.open(sample.image)
    height, width = sample.height, sample.width

    given = sample.run(T.RandomResize(11, 95), seed=seed, layout=layout)
    edge = min(given["mask"].shape[-2:])
    assert 11 <= edge < 95
    with_image(sample, given, each(tv, F.resize, [edge]), F.resize(picture, [edge]))

    edges = (17, 29, 64)
    given = sample.run(T.RandomShortestSize(edges, 70), seed=seed, layout=layout)
    size = list(given["mask"].shape[-2:])
    possible = []
    for edge in edges:
        made = v2.RandomShortestSize(edge, 70).make_params([torch.empty(3, height, width)])["size"]
        possible.append(list(made))
    assert size in possible
    with_image(sample, given, each(tv, F.resize, size), F.resize(picture, size))

    for scale in (0.5, 0.77, 1.3):
        jitter = v2.ScaleJitter((50, 61), (scale, scale))
        size = list(jitter.make_params([torch.empty(3, height, width)])["size"])
        given = sample.run(T.ScaleJitter((50, 61), (scale, scale), "bicubic"), layout=layout)
        bicubic = F.InterpolationMode.BICUBIC
        want = each(tv, F.resize, size)
        with_image(sample, given, want, F.resize(picture, size, interpolation=bicubic))


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("seed", range(6))
def test_canvases_equal_those_of_torchvision(tmp_path: Path, seed: int, layout: str) -> None:
    sample = Sample(tmp_path, seed, whole=seed >= 4)
    tv, picture = sample.tv(layout), Image.open(sample.image)
    for ratio in (1.0, 1.5, 2.71):
        zoom = T.RandomZoomOut(fill=(1, 2, 3), side_range=(ratio, ratio), p=1, mask_fill=255)
        given = sample.run(zoom, seed=seed, layout=layout)
        left, top = given["keypoints"][0].int().tolist()
        drawn = v2.RandomZoomOut(side_range=(ratio, ratio)).make_params(
            [torch.empty(3, sample.height, sample.width)]
        )["padding"]
        rows, columns = sample.height + drawn[1] + drawn[3], sample.width + drawn[0] + drawn[2]
        padding = [left, top, columns - sample.width - left, rows - sample.height - top]
        want = each(tv, F.pad, padding)
        want["mask"] = F.pad(tv["mask"], padding, fill=255)
        with_image(sample, given, want, F.pad(picture, padding, fill=[1, 2, 3]))


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("seed", range(8))
def test_crops_around_boxes_equal_those_of_torchvision(tmp_path: Path, seed: int, layout: str) -> None:
    sample = Sample(tmp_path, seed, whole=seed >= 4)
    # One box that parts may overlap well, so that there is always something to find.
    large = torch.tensor([[2, 2, sample.width - 2, sample.height - 2]]).to(sample.boxes["XYXY"].dtype)
    corners = torch.cat([sample.boxes["XYXY"], large])
    sample.labels = np.append(sample.labels, 5)
    sample.boxes[layout] = F.convert_bounding_box_format(corners, tv_tensors.BoundingBoxFormat.XYXY, layout)
    corners = F.convert_bounding_box_format(
        sample.boxes[layout], tv_tensors.BoundingBoxFormat(layout), tv_tensors.BoundingBoxFormat.XYXY
    )
    tv, picture = sample.tv(layout), Image.open(sample.image)
    seen = set()
    for draw, least in itertools.product(range(4), (0.1, 0.3)):
        crop = T.RandomIoUCrop(min_scale=0.4, sampler_options=[least])
        given = sample.run(crop, seed=draw, layout=layout)
        left, top = (-given["keypoints"][0]).int().tolist()
        height, width = given["mask"].shape[-2:]
        seen.add((left, top, height, width))
        assert 0.4 * sample.height - 1 < height <= sample.height
        assert 0.5 <= width / height <= 2

        middle = 0.5 * (corners[:, :2] + corners[:, 2:])
        inside = (middle > torch.tensor([left, top])).all(1)
        inside &= (middle < torch.tensor([left + width, top + height])).all(1)
        part = torch.tensor([[left, top, left + width, top + height]], dtype=corners.dtype)
        assert box_iou(corners[inside], part).max() >= least
        want = each(tv, F.crop, top, left, height, width)
        want["boxes"][~inside] = 0
        with_image(sample, given, want, F.crop(picture, top, left, height, width))

        # What became empty is removed with its label, and what comes before a crop moves the boxes that it looks at.
        chain = (T.RandomHorizontalFlip(1), crop, T.SanitizeBoundingBoxes())
        after = sample.run(*chain, seed=draw, layout=layout)
        assert len(after["boxes"]) == len(after["labels"]) >= 1
    assert len(seen) > 1


def test_crops_need_boxes(tmp_path: Path) -> None:
    sample = Sample(tmp_path, 0)
    with pytest.raises(
        ValueError, match=r"looks at boxes, and there are none beside the image(.|\n)*map\(\)"
    ):
        next(iter(wf.annotated_images([sample.image]).map(T.RandomIoUCrop()).batch(1).numpy()))
    with pytest.raises(ValueError, match="looks at boxes"):
        T.RandomIoUCrop()(np.zeros((9, 9, 3), np.uint8))
    found = wf.annotated_images([sample.image], boxes=[np.zeros((0, 4), np.float32)])
    never = found.map(T.RandomIoUCrop(sampler_options=[0.5])).batch(1)
    with pytest.raises(wf.ShapeError, match="none of 20000 parts overlaps one of 0 boxes"):
        next(iter(never.numpy()))


CHAIN = (
    T.RandomZoomOut(side_range=(1, 2)),
    T.RandomIoUCrop(),
    T.RandomHorizontalFlip(),
    T.RandomShortestSize((16, 24, 30), max_size=40),
    T.SanitizeBoundingBoxes(),
    T.ToDtype("float32", scale=True),
)


def native(tmp_path: Path) -> wf.Dataset:
    sets.coco(tmp_path)
    return wf.coco_detection(tmp_path / "images", tmp_path / "notes.json")


@pytest.mark.usefixtures("epochs_not_counted")
def test_lists_are_the_same_however_they_are_made(tmp_path: Path) -> None:
    ds = native(tmp_path).map(*CHAIN).with_options(seed=3)
    alone = [ds.sample(i) for i in range(len(ds))]
    assert len({image.shape for image, _ in alone}) > 3
    for options in ({"num_workers": 1}, {"num_workers": 3}, {"layout": "NHWC"}, {"optimize": False}):
        at = 0
        for images, target in ds.batch(3).numpy(**options):
            assert isinstance(images, list)
            for place, image in enumerate(images):
                want, own = alone[at]
                turned = image.transpose(2, 0, 1) if "layout" in options else image
                assert np.array_equal(turned, want)
                assert np.array_equal(target["boxes"][place], own["boxes"])
                assert np.array_equal(target["labels"][place], own["labels"])
                at += 1
        assert at == len(alone)


def test_orders_and_errors_leave_lists_in_line(tmp_path: Path) -> None:
    """Image and target belong together, whatever happens to the order."""
    base = native(tmp_path)
    (tmp_path / "images" / "2.jpg").write_bytes(b"no image")
    for on_error in ("skip", "replace"):
        ds = base.shuffle(seed=5).map(*CHAIN).with_options(on_error=on_error)
        for data in (
            ds.batch(3),
            ds.repeat(2).batch(2),
            ds.skip(1).take(4).batch(4),
            ds.shard(1, 2).batch(2),
        ):
            for images, target in data.torch():
                assert len(images) == len(target["boxes"]) == len(target["image_id"])
                assert 94 not in target["image_id"].tolist()
                for image, boxes in zip(images, target["boxes"], strict=True):
                    height, width = image.shape[-2:]
                    assert 1 <= min(height, width) <= 30
                    assert max(height, width) <= 40
                    limits = torch.tensor([width, height, width, height])
                    assert (torch.as_tensor(boxes) <= limits).all()


@pytest.mark.usefixtures("epochs_not_counted")
def test_lists_go_on_where_they_stopped(tmp_path: Path) -> None:
    ds = native(tmp_path).shuffle(seed=1).map(*CHAIN).batch(2)
    loader = ds.torch()
    whole = [image for images, _ in loader for image in images]
    for stop in range(1, 4):
        first, second = ds.torch(), ds.torch()
        batches = iter(first)
        seen = [image for _ in range(stop) for image in next(batches)[0]]
        second.load_state_dict(first.state_dict())
        seen += [image for images, _ in second for image in images]
        assert all(map(torch.equal, seen, whole))
        assert len(seen) == len(whole)


def test_padded_batches_hold_images_of_any_size(tmp_path: Path) -> None:
    sample = Sample(tmp_path, 1)
    ds = wf.annotated_images([sample.image] * 5, masks=[sample.mask] * 5)
    ds = ds.map(T.RandomResize(10, 60)).with_options(seed=2)
    alone = [ds.sample(i) for i in range(5)]
    values = {"image": 0, "mask": 255}
    (batch,) = ds.padded_batch(5, padding_values=values).numpy()
    for name, value in values.items():
        height = max(one[name].shape[1] for one in alone)
        width = max(one[name].shape[2] for one in alone)
        assert batch[name].shape[2:] == (height, width)
        for row, one in zip(batch[name], alone, strict=True):
            _, rows, columns = one[name].shape
            assert np.array_equal(row[:, :rows, :columns], one[name])
            assert (row[:, rows:] == value).all()
            assert (row[:, :, columns:] == value).all()


def test_samples_one_by_one_may_differ_in_size_and_ragged_batches_may_not(tmp_path: Path) -> None:
    ds = native(tmp_path).map(*CHAIN).with_options(seed=3)
    alone = [ds.sample(i) for i in range(len(ds))]
    for (image, target), (want, own) in zip(ds.numpy(), alone, strict=True):
        assert np.array_equal(image, want)
        assert np.array_equal(target["boxes"], own["boxes"])
    with pytest.raises(
        wf.ConfigError, match=r"image varies in more than its first dimension(.|\n)*padded_batch"
    ):
        ds.ragged_batch(2).numpy()


def test_a_size_that_is_settled_makes_arrays(tmp_path: Path) -> None:
    ds = native(tmp_path).map(*CHAIN[:4], T.Resize((20, 24)))
    for images, target in ds.batch(3).numpy():
        assert images.shape[1:] == (3, 20, 24)
        assert len(target["boxes"]) == len(images)


def test_explain_says_that_sizes_are_open(tmp_path: Path) -> None:
    text = native(tmp_path).map(*CHAIN).batch(2).explain()
    assert "[3, *, *]" in text


# feed


FIXED: list[Any] = [
    v2.Compose([v2.RandomShortestSize(24), v2.RandomHorizontalFlip(1), v2.ToImage(), FLOAT]),
    v2.Compose([v2.RandomResize(20, 21), v2.ToImage(), v2.ToPureTensor()]),
    v2.Compose([v2.ScaleJitter((40, 40), (1, 1)), v2.ToImage(), v2.ConvertBoundingBoxFormat("XYWH")]),
    v2.Compose([v2.RandomZoomOut(side_range=(1, 1), p=1), v2.ToImage(), v2.SanitizeBoundingBoxes()]),
    v2.Compose([v2.RandomIoUCrop(sampler_options=[1.0]), v2.ToImage()]),
    v2.Compose([v2.Resize(33, max_size=36), v2.ToImage(), FLOAT]),
    v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("place", range(len(FIXED)))
def test_lists_of_images_are_native(tmp_path: Path, place: int, whole: bool) -> None:
    if place == 4:
        # torchvision's crop raises where there are no boxes at all.
        data: Any = Subset(wrap(sets.coco(tmp_path, whole, transforms=FIXED[4])), [0, 1, 2, 4, 5, 6])
    else:
        data = Subset(wrap(sets.coco(tmp_path, whole, transforms=FIXED[place])), [5, 3, 0, 0, 6])
    if place == 3:
        data = Subset(data.dataset, [5, 2, 0, 0, 6])  # nor is there a target to sanitize
    for workers in (0, 2):
        options: dict[str, Any] = {"batch_size": 2, "collate_fn": together}
        loader = wt.DataLoader(data, num_workers=workers, **options)
        plan = lower(loader)
        assert plan.kind == "native", plan.lines
        assert all(line.native for _, line in plan.lines), plan.lines
        for one, other in zip(loader, Stock(data, **options), strict=True):
            check(one, other)


MASKS: list[Any] = [
    v2.Compose([v2.RandomShortestSize(24, max_size=30), v2.ToImage(), FLOAT]),
    v2.Compose([v2.Pad(3, fill={tv_tensors.Mask: 255, "others": 7}), v2.ToImage()]),
    v2.Compose([v2.RandomZoomOut({tv_tensors.Mask: 9, Image.Image: (1, 2, 3)}, (1, 1), 1), v2.ToImage()]),
    v2.Compose(
        [
            v2.Resize((20, 22)),
            v2.Pad((3, 4), {tv_tensors.Mask: 255, tv_tensors.Image: 3}),
            v2.ToImage(),
            FLOAT,
        ]
    ),
]


@pytest.mark.parametrize("place", range(len(MASKS)))
def test_masks_have_a_fill_of_their_own(tmp_path: Path, place: int) -> None:
    for make in (sets.voc, sets.pets):
        dataset = wrap(make(tmp_path / make.__name__, transforms=MASKS[place]))
        options: dict[str, Any] = {"batch_size": 3, "collate_fn": together}
        loader = wt.DataLoader(dataset, **options)
        assert lower(loader).kind == "native", lower(loader).lines
        for one, other in zip(loader, Stock(dataset, **options), strict=True):
            check(one, other)


def test_segmentation_as_torchvisions_references_train_it(tmp_path: Path) -> None:
    """Image and mask stay in line, and what is added to masks is what a loss ignores."""
    dataset = sets.voc(tmp_path)
    for image, mask in zip(dataset.images, dataset.masks, strict=True):
        grey = Image.open(image).convert("L").point(lambda value: min(value, 250))
        grey.save(mask)
        grey.convert("RGB").save(image, "png")
    dataset.transforms = v2.Compose(
        [
            v2.RandomResize(24, 96),
            v2.RandomHorizontalFlip(),
            v2.RandomCrop(48, pad_if_needed=True, fill={tv_tensors.Mask: 255, "others": 251}),
            v2.ToImage(),
        ]
    )
    loader = wt.DataLoader(wrap(dataset), batch_size=7)
    assert lower(loader).kind == "native"
    seen = set()
    for _ in range(3):
        for images, masks in loader:
            assert images.shape == (7, 3, 48, 48)
            added = masks[:, 0] == 255
            assert torch.equal(added, images[:, 0] == 251)
            assert not added.all()
            seen.add(images.sum().item())
    assert len(seen) == 3


def test_detection_as_torchvisions_references_train_it(tmp_path: Path) -> None:
    chain = v2.Compose(
        [
            v2.RandomZoomOut(fill={tv_tensors.Mask: 0, "others": (123, 117, 104)}),
            v2.RandomIoUCrop(),
            v2.RandomHorizontalFlip(0.5),
            v2.ScaleJitter((40, 40), (0.5, 1.5)),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.ConvertBoundingBoxFormat(tv_tensors.BoundingBoxFormat.XYXY),
            v2.SanitizeBoundingBoxes(),
        ]
    )
    dataset = Subset(wrap(sets.coco(tmp_path, transforms=chain)), [0, 1, 2, 4, 5, 6])
    loader = wt.DataLoader(dataset, batch_size=2, shuffle=True, collate_fn=together)
    plan = lower(loader)
    assert plan.kind == "native", plan.lines
    epochs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        epochs.append([*loader])
        for images, targets in epochs[-1]:
            for image, target in zip(images, targets, strict=True):
                assert type(image) is tv_tensors.Image
                boxes = target["boxes"]
                assert boxes.canvas_size == tuple(image.shape[-2:])
                assert len(boxes) == len(target["labels"])
                assert (boxes[:, 2:] - boxes[:, :2] >= 1).all()
                assert (boxes[:, 2:] <= torch.tensor([image.shape[2], image.shape[1]])).all()
    check(epochs[0], epochs[1])
    assert any(
        one.shape != other.shape or not torch.equal(one, other)
        for (a, _), (b, _) in zip(epochs[0], epochs[2], strict=True)
        for one, other in zip(a, b, strict=True)
    )


def test_what_stays_in_python_says_why(tmp_path: Path) -> None:
    boxes = wrap(sets.coco(tmp_path, transforms=v2.Compose([v2.RandomResize(20, 30), v2.ToImage()])))
    masks = sets.voc(tmp_path / "voc")
    for transform, why in (
        (v2.RandomIoUCrop(), "no boxes here"),
        (v2.RandomZoomOut(fill=(1, 2, 3)), "one value"),
        (v2.RandomZoomOut(fill={tv_tensors.Mask: (1, 2), "others": 0}), "one value"),
        (v2.ScaleJitter((9, 9), interpolation=v2.InterpolationMode.NEAREST_EXACT), "another rule"),
    ):
        masks.transforms = v2.Compose([transform, v2.ToImage()])
        plan = lower(wt.DataLoader(wrap(masks), batch_size=2, collate_fn=together))
        assert plan.kind == "hybrid"
        assert any(why in line.why for _, line in plan.lines), plan.lines
    # Without the collate function there are no batches, in torch either.
    plan = lower(wt.DataLoader(boxes, batch_size=2))
    assert plan.kind == "hybrid"
    masks.transforms = v2.Compose([v2.RandomResize(20, 30), v2.ToImage()])
    plan = lower(wt.DataLoader(wrap(masks), batch_size=1))
    assert plan.kind == "hybrid"
    assert any("differ in size" in line.why for _, line in plan.lines), plan.lines
