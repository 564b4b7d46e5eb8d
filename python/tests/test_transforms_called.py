"""Transforms called on images, as data sets of torchvision call what stands in ``transform=``."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torchvision import datasets, tv_tensors
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import torchvision_sets as sets
import wellfed as wf
import wellfed.torch as wt
from pictures import picture
from torch_same import same
from wellfed import transforms as T

PICTURE = Image.fromarray(picture(1, 60, 80))
CHW = torch.from_numpy(np.asarray(PICTURE).copy()).permute(2, 0, 1).contiguous()
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# Nothing is drawn: equal to torchvision's on Pillow images, in kind too.
SETTLED: list[tuple[T.Transform, Any]] = [
    (T.Resize(40), v2.Resize(40)),
    (T.Resize((20, 30), "bicubic"), v2.Resize((20, 30), v2.InterpolationMode.BICUBIC)),
    (T.CenterCrop(30), v2.CenterCrop(30)),
    (T.FiveCrop(30), v2.FiveCrop(30)),
    (T.TenCrop((20, 31)), v2.TenCrop((20, 31))),
    (T.TenCrop((21, 32), vertical_flip=True), v2.TenCrop((21, 32), vertical_flip=True)),
    (
        T.Compose([T.TenCrop(9), T.ToImage(), T.ToDtype("float32", scale=True)]),
        v2.Compose([v2.TenCrop(9), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    ),
    (T.Pad(3, fill=(1, 2, 3)), v2.Pad(3, fill=(1, 2, 3))),
    (T.RandomHorizontalFlip(1), v2.RandomHorizontalFlip(1)),
    (T.Grayscale(), v2.Grayscale()),
    (T.Grayscale(3), v2.Grayscale(3)),
    (T.Identity(), v2.Identity()),
    (T.ToTensor(), v1.ToTensor()),
    (T.PILToTensor(), v2.PILToTensor()),
    (T.ToImage(), v2.ToImage()),
    (
        T.Compose([T.ToImage(), T.ToDtype("float32", scale=True)]),
        v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]),
    ),
    (
        T.Compose([T.CenterCrop(30), T.PILToTensor(), T.ToDtype("bfloat16", scale=True)]),
        v2.Compose([v2.CenterCrop(30), v2.PILToTensor(), v2.ToDtype(torch.bfloat16, scale=True)]),
    ),
]


@pytest.mark.parametrize(("ours", "theirs"), SETTLED, ids=lambda t: type(t).__name__)
def test_pillow_images_become_what_torchvision_makes_of_them(ours: T.Transform, theirs: Any) -> None:
    assert same(ours(PICTURE), theirs(PICTURE))


def test_modes_of_pillow_images() -> None:
    for mode in ("L", "RGB", "RGBA"):
        cropped = T.CenterCrop(10)(PICTURE.convert(mode))
        assert (cropped.mode, cropped.size) == (mode, (10, 10))
    with pytest.raises(TypeError, match=r"mode 'P'(.|\n)*hint: image.convert"):
        T.CenterCrop(10)(PICTURE.convert("P"))


def test_tensors_stay_tensors_with_channels_first() -> None:
    assert same(T.CenterCrop(30)(CHW), v2.CenterCrop(30)(CHW))
    image = T.RandomResizedCrop(24)(tv_tensors.Image(CHW))
    assert type(image) is tv_tensors.Image
    assert image.shape == (3, 24, 24)
    batch = T.RandomCrop(20)(torch.stack([CHW, CHW]))
    assert batch.shape == (2, 3, 20, 20)
    assert torch.equal(batch[0], batch[1]), "one draw for all, as in torchvision"
    assert type(T.ToImage()(CHW)) is tv_tensors.Image


def test_what_the_engine_has_no_pixels_for_is_torchvisions() -> None:
    floats = CHW / 255
    assert same(T.Normalize(MEAN, STD)(floats), v2.Normalize(MEAN, STD)(floats))
    assert same(T.ToDtype("float16")(floats), v2.ToDtype(torch.float16)(floats))
    assert same(T.Resize((9, 8), "bicubic")(floats), v2.Resize((9, 8), v2.InterpolationMode.BICUBIC)(floats))
    torch.manual_seed(3)
    ours = T.Compose([T.RandomResizedCrop(24), T.ToTensor(), T.RandomErasing(1)])(floats)
    torch.manual_seed(3)
    assert same(ours, v2.Compose([v2.RandomResizedCrop(24), v2.RandomErasing(1)])(floats))


def test_boxes_and_masks_are_no_images() -> None:
    boxes = tv_tensors.BoundingBoxes([[0, 0, 3, 3]], format="XYXY", canvas_size=(9, 9))
    with pytest.raises(TypeError, match=r"called on a BoundingBoxes(.|\n)*hint: torchvision.transforms.v2"):
        T.CenterCrop(3)(boxes)


def test_arrays_keep_their_channels_last() -> None:
    array = np.asarray(PICTURE)
    assert T.CenterCrop((10, 20))(array).shape == (10, 20, 3)
    assert T.ToTensor()(array).dtype == np.float32
    assert T.CenterCrop(5)(array[:, :, 0]).shape == (5, 5, 1)
    with pytest.raises(TypeError, match="must be uint8"):
        T.CenterCrop(5)(array / 255)


RANDOM = [
    T.RandomCrop(20),
    T.RandomResizedCrop(20),
    T.RandomHorizontalFlip(),
    T.RandomVerticalFlip(),
    T.RandomRotation(60),
    T.ColorJitter(0.5),
    T.RandomGrayscale(0.5),
    T.GaussianBlur(5, (0.1, 3)),
    T.RandomErasing(0.5, value=3),
    T.Compose([T.Resize(30), T.RandomCrop(20)]),
]


@pytest.mark.parametrize("transform", RANDOM, ids=lambda t: type(t).__name__)
def test_each_call_draws_anew_and_torchs_seed_counts(transform: T.Transform) -> None:
    def run() -> list[bytes]:
        torch.manual_seed(11)
        return [transform(PICTURE).tobytes() for _ in range(12)]

    one = run()
    assert len(set(one)) > 1
    assert run() == one
    assert transform(PICTURE, seed=1).tobytes() == transform(PICTURE, seed=1).tobytes()


def test_what_draws_nothing_leaves_the_generator_alone() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    T.Compose([T.CenterCrop(9), T.ToTensor()])(PICTURE)
    T.RandomCrop(9)(PICTURE, seed=4)
    assert torch.equal(before, torch.get_rng_state())


def test_without_torch_numbers_are_pythons_and_a_forked_process_has_its_own(tmp_path: Path) -> None:
    code = """
import os, random, sys
import numpy as np
from wellfed import transforms as T
image = np.arange(64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 64, 3)
crop = T.RandomCrop(8)
draw = lambda: [int(crop(image)[0, 0, 0]) for _ in range(8)]
random.seed(5); one = draw()
random.seed(5); assert draw() == one
assert len(set(one)) > 1
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, repr(draw()).encode())
    os._exit(0)
os.wait()
assert os.read(read, 999).decode() != repr(draw())
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env=dict(os.environ))


def folder(root: Path, transform: Any) -> Any:
    return datasets.ImageFolder(sets._folders(root / "x"), transform)


def test_workers_draw_with_their_own_seeds(tmp_path: Path) -> None:
    ds = folder(tmp_path, v1.Compose([T.RandomResizedCrop(24), T.ToTensor()]))

    def epoch(seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return [x for x, _ in Stock(ds, 1, num_workers=2, sampler=[0] * 6)]

    one = epoch(1)
    assert len({x.numpy().tobytes() for x in one}) == 6
    assert same(one, epoch(1))


LOWERED: list[Any] = [
    T.Compose([T.CenterCrop(30), T.ToTensor(), T.Normalize(MEAN, STD)]),
    v1.Compose([T.CenterCrop(30), v1.ToTensor(), T.Normalize(MEAN, STD)]),
    v2.Compose([v2.Resize((40, 44)), T.CenterCrop(30), v2.ToImage(), T.ToDtype("float32", scale=True)]),
    v2.Compose([T.Compose([T.Resize((20, 24))]), T.Grayscale(), T.ToImage()]),
    v2.Compose([T.Resize((20, 24)), T.ToDtype(torch.float32, scale=True)]),
    v1.Compose([T.RandomCrop(20), T.RandomHorizontalFlip(), T.ToTensor(), T.RandomErasing(1)]),
]


@pytest.mark.parametrize("transform", LOWERED, ids=range(len(LOWERED)))
def test_feed_makes_whole_batches_of_them(transform: Any, tmp_path: Path) -> None:
    ds = folder(tmp_path, transform)
    loader = wf.feed(Stock(ds, 4))
    text = loader.explain()
    assert text.startswith("DataLoader, native"), text
    for ours, theirs in zip(loader, Stock(ds, 4), strict=True):
        assert same(ours[1], theirs[1])
        assert (type(ours[0]), ours[0].shape, ours[0].dtype) == (
            type(theirs[0]),
            theirs[0].shape,
            theirs[0].dtype,
        )
        if not any(getattr(t, "random", False) for t in getattr(transform, "transforms", [])):
            assert torch.allclose(ours[0].float(), theirs[0].float(), atol=1e-6)


def test_a_cut_chain_calls_the_rest_in_python(tmp_path: Path) -> None:
    def turned(image: Any) -> Any:
        return image.rotate(90)

    ds = folder(tmp_path, v1.Compose([T.CenterCrop(30), turned, T.CenterCrop(20), T.ToTensor()]))
    loader = wt.DataLoader(ds, 3)
    assert "partly native" in loader.explain()
    assert same(list(loader), list(Stock(ds, 3)))


def test_on_floats_only_what_the_engine_does_alike_is_native(tmp_path: Path) -> None:
    ds = folder(tmp_path, v1.Compose([v1.CenterCrop(30), v1.ToTensor(), T.Resize((9, 9))]))
    loader = wt.DataLoader(ds, 3)
    # Resized as bytes it would be another image.
    assert "stands on a tensor of float32" in loader.explain()
    assert "put it before" not in loader.explain()
    assert same(list(loader), list(Stock(ds, 3)))


def test_a_subclass_of_ours_is_python(tmp_path: Path) -> None:
    loader = wt.DataLoader(folder(tmp_path, v1.Compose([Own(30), T.ToTensor()])), 3)
    assert "Python: " in loader.explain() or "partly" in loader.explain()
    assert next(iter(loader))[0].shape == (3, 3, 30, 30)


class Own(T.CenterCrop):
    def __call__(self, image: Any, seed: int | None = None) -> Any:
        return super().__call__(image, seed).rotate(180)

    def to_plan(self) -> dict[str, Any]:
        return {**super().to_plan(), "type": "CenterCrop"}


def test_called_transforms_travel_by_pickle() -> None:
    assert pickle.loads(pickle.dumps(T.RandomCrop(3)))(PICTURE).size == (3, 3)
