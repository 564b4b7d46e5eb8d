"""Masks, boxes and points move with their image: equal to torchvision v2's functionals for equal parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

import wellfed as wf
from wellfed import transforms as T

FORMATS = ["XYXY", "XYWH", "CXCYWH"]


class Sample:
    """A picture with a mask, boxes and points, all of them random."""

    def __init__(self, folder: Path, seed: int, bits: int = 8, whole: bool = False) -> None:
        random = np.random.default_rng(seed)
        self.height, self.width = (int(n) for n in random.integers(20, 90, 2))
        pixels = random.integers(0, 256, (self.height, self.width, 3), np.uint8)
        self.image, self.mask = folder / f"{seed}.png", folder / f"{seed}m.png"
        Image.fromarray(pixels).save(self.image)
        if bits == 8:
            values = random.integers(0, 21, (self.height, self.width), np.uint8)
            picture = Image.fromarray(values, "L")
            if seed % 2:
                picture = Image.frombytes("P", picture.size, values.tobytes())
                picture.putpalette(bytes(range(256)) * 3)
        elif bits == 16:
            picture = Image.fromarray(random.integers(0, 1 << 16, (self.height, self.width), np.uint16))
        else:
            picture = Image.fromarray(
                random.integers(0, 2, (self.height, self.width), np.uint8) * 255
            ).convert("1")
        picture.save(self.mask)
        self.dtype = {8: "uint8", 16: "uint16", 1: "bool"}[bits]
        corners = np.sort(random.random((int(random.integers(0, 6)), 2, 2)), 1) * [self.width, self.height]
        xyxy = torch.tensor(corners.reshape(-1, 4), dtype=torch.int64 if whole else torch.float32)
        self.boxes = {
            name: F.convert_bounding_box_format(xyxy, tv_tensors.BoundingBoxFormat.XYXY, name)
            for name in FORMATS
        }
        self.labels = random.integers(0, 91, len(xyxy))

    @property
    def points(self) -> torch.Tensor:
        return torch.tensor([[0, 0], [self.width, self.height], [3.25, 7.5]])

    def run(self, *transforms: Any, seed: int = 0, layout: str = "XYXY") -> dict[str, Any]:
        ds = wf.annotated_images(
            [self.image],
            masks=[self.mask],
            mask_dtype=self.dtype,
            boxes=[self.boxes[layout]],
            box_format=layout,
            box_dtype=str(self.boxes[layout].dtype).removeprefix("torch."),
            labels=[self.labels],
            keypoints=[self.points],
        )
        batch = next(iter(ds.map(*transforms).with_options(seed=seed).batch(1).torch()))
        return {k: torch.as_tensor(v[0]) for k, v in batch.items()}

    def tv(self, layout: str = "XYXY") -> dict[str, Any]:
        size = (self.height, self.width)
        return {
            "mask": tv_tensors.Mask(Image.open(self.mask)),
            "boxes": tv_tensors.BoundingBoxes(self.boxes[layout], format=layout, canvas_size=size),
            "keypoints": tv_tensors.KeyPoints(self.points, canvas_size=size),
        }


def compare(given: dict[str, Any], want: dict[str, Any]) -> None:
    for name, value in want.items():
        plain = value.as_subclass(torch.Tensor)
        assert given[name].dtype == plain.dtype, name
        assert given[name].shape == plain.shape, name
        assert torch.equal(given[name], plain), (name, given[name], plain)


def each(sample: dict[str, Any], function: Any, *arguments: Any, **more: Any) -> dict[str, Any]:
    return {name: function(value, *arguments, **more) for name, value in sample.items()}


@pytest.mark.parametrize("bits", [8, 16, 1])
def test_masks_are_decoded_as_torchvision_has_them(tmp_path: Path, bits: int) -> None:
    for seed in range(4):
        sample = Sample(tmp_path, seed, bits)
        compare(sample.run(T.Identity()), sample.tv())


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("seed", range(12))
def test_geometry_equals_that_of_torchvision(tmp_path: Path, seed: int, layout: str) -> None:
    sample = Sample(tmp_path, seed, [8, 8, 16, 1][seed % 4], whole=seed >= 6)
    random = np.random.default_rng(1000 + seed)
    height, width = (int(n) for n in random.integers(10, 120, 2))
    tv = sample.tv(layout)

    compare(sample.run(T.Resize((height, width)), layout=layout), each(tv, F.resize, [height, width]))
    compare(sample.run(T.Resize(height), layout=layout), each(tv, F.resize, [height]))
    exact = sample.run(T.Resize((height, width), "nearest-exact"), layout=layout)
    compare(exact, each(tv, F.resize, [height, width], interpolation=F.InterpolationMode.NEAREST_EXACT))
    compare(sample.run(T.RandomHorizontalFlip(1), layout=layout), each(tv, F.horizontal_flip))
    compare(sample.run(T.RandomVerticalFlip(1), layout=layout), each(tv, F.vertical_flip))
    padding = [int(n) for n in random.integers(0, 9, 4)]
    compare(sample.run(T.Pad(padding, fill=1), layout=layout), each(tv, F.pad, padding, fill=1))
    height, width = int(random.integers(5, sample.height)), int(random.integers(5, sample.width))
    compare(
        sample.run(T.CenterCrop((height, width)), layout=layout), each(tv, F.center_crop, [height, width])
    )
    compare(sample.run(T.CenterCrop((97, 98)), layout=layout), each(tv, F.center_crop, [97, 98]))
    chain = [
        T.Resize(40),
        T.RandomHorizontalFlip(1),
        T.Pad(3),
        T.CenterCrop(30),
        T.ConvertBoundingBoxFormat("XYWH"),
    ]
    want = each(each(each(each(tv, F.resize, [40]), F.horizontal_flip), F.pad, [3]), F.center_crop, [30, 30])
    want["boxes"] = F.convert_bounding_box_format(want["boxes"], new_format="XYWH")
    compare(sample.run(*chain, layout=layout), want)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("seed", range(12))
def test_random_crops_equal_those_of_torchvision(tmp_path: Path, seed: int, layout: str) -> None:
    sample = Sample(tmp_path, seed, whole=seed >= 6)
    tv = sample.tv(layout)

    given = (
        sample.run(T.RandomCrop(24, padding=6, fill=3), seed=seed, layout=layout)
        if min(sample.height, sample.width) > 12
        else None
    )
    if given is not None:
        left, top = (-given["keypoints"][0]).int().tolist()
        want = each(each(tv, F.pad, [6, 6, 6, 6], fill=3), F.crop, top + 6, left + 6, 24, 24)
        compare(given, want)

    given = sample.run(T.RandomCrop(100, pad_if_needed=True), seed=seed, layout=layout)
    left, top = (-given["keypoints"][0]).int().tolist()
    y, x = max(100 - sample.height, 0), max(100 - sample.width, 0)
    want = each(each(tv, F.pad, [x, y, x, y]), F.crop, top + y, left + x, 100, 100)
    compare(given, want)

    given = sample.run(T.RandomResizedCrop((33, 47)), seed=seed, layout=layout)
    near, far = given["keypoints"][0], given["keypoints"][1]
    ratio = (far - near) / torch.tensor([sample.width, sample.height])
    left, top = (-near / ratio).round().int().tolist()
    width, height = (torch.tensor([47, 33]) / ratio).round().int().tolist()
    compare(given, each(tv, F.resized_crop, top, left, height, width, [33, 47]))


@pytest.mark.parametrize("seed", range(6))
def test_boxes_turn_as_in_torchvision_but_for_rounding(tmp_path: Path, seed: int) -> None:
    sample = Sample(tmp_path, seed)
    given = sample.run(T.RandomRotation((30, 30)))
    tv = sample.tv()
    for name in ("boxes", "keypoints"):
        want = F.rotate(tv[name], 30.0).as_subclass(torch.Tensor)
        assert torch.allclose(given[name], want, atol=1e-3), (given[name], want)


@pytest.mark.parametrize("seed", range(6))
def test_boxes_follow_affine_maps_as_in_torchvision_but_for_rounding(tmp_path: Path, seed: int) -> None:
    sample = Sample(tmp_path, seed)
    affine = T.RandomAffine((20, 20), scale=(0.8, 0.8), shear=(5, 5, -3, -3))
    # In a container they follow one map after the other, and the mask moves, too.
    apply = T.RandomApply([T.RandomInvert(1), affine, T.RandomRotation((30, 30))], p=1.0)
    for transform, turned in ((affine, False), (apply, True)):
        given = sample.run(transform)
        tv = sample.tv()
        for name in ("boxes", "keypoints"):
            want = F.affine(tv[name], 20.0, [0, 0], 0.8, [5.0, -3.0])
            want = (F.rotate(want, 30.0) if turned else want).as_subclass(torch.Tensor)
            assert torch.allclose(given[name], want, atol=1e-3), (given[name], want)
    assert not torch.equal(given["mask"], sample.run(T.Identity())["mask"])


def test_automatic_augmentations_refuse_what_would_have_to_move(tmp_path: Path) -> None:
    sample = Sample(tmp_path, 0)
    for transform in (T.RandAugment(), T.RandomApply([T.TrivialAugmentWide()])):
        with pytest.raises(ValueError, match=r"says nothing of the masks beside them(.|\n)*field="):
            sample.run(transform)


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("seed", range(8))
def test_sanitized_and_clamped_boxes_equal_torchvisions(tmp_path: Path, seed: int, layout: str) -> None:
    sample = Sample(tmp_path, seed, whole=seed >= 4)
    random = np.random.default_rng(seed)
    moved = sample.boxes["XYXY"] + torch.tensor(random.integers(-20, 20, (len(sample.labels), 4)))
    sample.boxes[layout] = F.convert_bounding_box_format(moved, tv_tensors.BoundingBoxFormat.XYXY, layout)
    boxes = sample.tv(layout)["boxes"]
    compare(sample.run(T.ClampBoundingBoxes(), layout=layout), {"boxes": F.clamp_bounding_boxes(boxes)})
    given = sample.run(T.SanitizeBoundingBoxes(8, 100), layout=layout)
    want, valid = F.sanitize_bounding_boxes(boxes, min_size=8, min_area=100)
    compare(given, {"boxes": want, "labels": torch.tensor(sample.labels)[valid]})
    alone = sample.run(T.SanitizeBoundingBoxes(8, 100, labels_getter=None), layout=layout)
    assert len(alone["labels"]) == len(sample.labels)


def test_colour_and_values_leave_masks_and_boxes_alone(tmp_path: Path) -> None:
    sample = Sample(tmp_path, 3)
    given = sample.run(
        T.ColorJitter(0.4, 0.4, 0.4),
        T.GaussianBlur(3),
        T.RandomGrayscale(1),
        T.ToDtype("float32", scale=True),
        T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
        T.RandomErasing(1),
    )
    compare(given, sample.tv())
    assert given["image"].dtype == torch.float32


def test_another_size_is_an_error_where_the_draw_depends_on_it(tmp_path: Path) -> None:
    sample, other = Sample(tmp_path, 1), Sample(tmp_path, 2)
    ds = wf.annotated_images([sample.image], masks=[other.mask])
    with pytest.raises(wf.ShapeError, match="first image of the sample"):
        next(iter(ds.map(T.RandomCrop(15)).batch(1).numpy()))
    batch = next(iter(ds.map(T.Resize((9, 8)), T.RandomCrop(5)).batch(1).numpy()))
    assert batch["image"].shape == (1, 3, 5, 5)
    assert batch["mask"].shape == (1, 1, 5, 5)


def test_a_mask_of_another_kind_is_an_error_with_both_kinds(tmp_path: Path) -> None:
    sample = Sample(tmp_path, 1, 16)
    ds = wf.annotated_images([sample.image], masks=[sample.mask], mask_dtype="uint8")
    with pytest.raises(wf.ShapeError, match="16 bits, but Byte is expected"):
        next(iter(ds.batch(1).numpy()))


def test_what_makes_no_sense_is_said_at_once(tmp_path: Path) -> None:
    sample = Sample(tmp_path, 1)
    boxes = [sample.boxes["XYXY"]]
    ds = wf.annotated_images([sample.image], boxes=boxes, masks=[sample.mask])
    with pytest.raises(wf.ConfigError, match="works on boxes"):
        ds.map(T.ClampBoundingBoxes(), field="mask").explain()
    with pytest.raises(wf.ConfigError, match="moves boxes and points with their image"):
        ds.map(T.Resize(20), field="boxes").explain()
    with pytest.raises(wf.ShapeError, match="fill has 3 values and the image 1 channels"):
        ds.map(T.Pad(1, fill=(1, 2, 3))).batch(1).explain()
    with pytest.raises(wf.ConfigError, match="masks take one value"):
        next(iter(ds.map(T.Pad(1, fill=(1, 2, 3)), T.CenterCrop(9)).batch(1).numpy()))
    with pytest.raises(wf.ShapeError, match="no place in repeated pixels"):
        next(
            iter(
                wf.annotated_images([sample.image], boxes=boxes)
                .map(T.Pad(1, padding_mode="edge"))
                .batch(1)
                .numpy()
            )
        )


@pytest.mark.usefixtures("epochs_not_counted")
def test_draws_are_the_same_for_any_number_of_threads(tmp_path: Path) -> None:
    samples = [Sample(tmp_path, seed) for seed in range(20)]
    ds = wf.annotated_images(
        [s.image for s in samples],
        masks=[s.mask for s in samples],
        boxes=[s.boxes["XYXY"] for s in samples],
        labels=[s.labels for s in samples],
    )
    ds = ds.map(T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.SanitizeBoundingBoxes()).batch(7)
    runs = [
        list(ds.with_options(num_workers=n, optimize=o).numpy())
        for n, o in ((1, True), (3, True), (2, False))
    ]
    for run in runs[1:]:
        for one, other in zip(runs[0], run, strict=True):
            for name in one:
                for a, b in zip(one[name], other[name], strict=True):
                    assert np.array_equal(a, b), name


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "I;16"])
def test_masks_of_any_kind_as_grey(tmp_path: Path, mode: str) -> None:
    """As Pillow's convert("L") and its NEAREST have them."""
    values = np.random.default_rng(3).integers(0, 256, (23, 31), np.uint8)
    if mode == "I;16":
        mask = Image.fromarray(values.astype(np.uint16))
    else:
        mask = Image.fromarray(values).convert("RGB").quantize(16) if mode == "P" else Image.fromarray(values)
        mask = mask.convert(mode)
    mask.save(tmp_path / "mask.png")
    Image.new("RGB", (31, 23)).save(tmp_path / "image.png")
    paths = [tmp_path / "image.png"], [tmp_path / "mask.png"]
    source = wf.annotated_images(paths[0], masks=paths[1], mask_mode="L")
    with Image.open(paths[1][0]) as opened:
        grey = opened.convert("L")
    (batch,) = source.batch(1).numpy()
    assert np.array_equal(batch["mask"][0, 0], np.array(grey))
    (batch,) = source.map(T.Resize((40, 17), "pillow-nearest"), field="mask").batch(1).numpy()
    assert np.array_equal(batch["mask"][0, 0], np.array(grey.resize((17, 40), Image.Resampling.NEAREST)))
    with pytest.raises(ValueError, match="mask_mode is 'RGB'"):
        wf.annotated_images(paths[0], masks=paths[1], mask_mode="RGB")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="uint16"):
        wf.annotated_images(paths[0], masks=paths[1], mask_mode="L", mask_dtype="uint16").batch(
            1
        )._native.loader()
