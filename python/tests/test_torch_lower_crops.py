"""FiveCrop and TenCrop with the functions behind them: what is understood gives the stock loader's batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as v1
import torchvision.transforms.functional as F
from torch import nn, stack
from torch.utils.data import DataLoader as Stock
from torchvision import transforms
from torchvision.transforms import ToTensor, v2

import torchvision_sets as sets
import wellfed as wf
import wellfed.torch as wt
from torch_same import apart, same
from wellfed import transforms as T
from wellfed.torch._lower import lower

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
FLOAT = v2.ToDtype(torch.float32, scale=True)
normalize = v1.Normalize(MEAN, STD)
to_tensor = v1.Compose([v1.ToTensor(), nn.Sequential(normalize)])


def stacked(crops: Any) -> torch.Tensor:
    """As people write it who give functions names."""
    return torch.stack([transforms.ToTensor()(crop) for crop in crops], dim=0)


def around(transform: Any) -> Callable[[Any], torch.Tensor]:
    return lambda images: stack([transform(image) for image in images])


STACKED: list[list[Any]] = [
    [v1.FiveCrop(24), v1.Lambda(lambda crops: torch.stack([ToTensor()(crop) for crop in crops]))],
    [v1.TenCrop((20, 25)), v1.Lambda(stacked)],
    [v2.TenCrop(24, vertical_flip=True), stacked],
    [v2.FiveCrop([24]), around(v1.PILToTensor())],
    [v1.TenCrop(9), lambda crops: [F.to_tensor(crop) for crop in crops], torch.stack],
    [v1.ToTensor(), v1.FiveCrop(24), v1.Lambda(lambda crops: torch.stack(crops))],
    [v2.ToImage(), FLOAT, v2.TenCrop(24), lambda crops: torch.stack(crops)],
    [v2.TenCrop(24), v2.ToImage(), FLOAT, lambda crops: torch.stack(crops)],
    [v2.FiveCrop(7), v1.Lambda(lambda crops: torch.stack([v2.ToImage()(c) for c in crops])), FLOAT],
    [T.TenCrop(24, vertical_flip=True), lambda crops: torch.stack([T.ToTensor()(crop) for crop in crops])],
]

# They divide by a product of the reciprocal: the last bit may differ.
NORMALIZED: list[list[Any]] = [
    [v1.TenCrop(24), v1.Lambda(lambda crops: torch.stack([normalize(ToTensor()(crop)) for crop in crops]))],
    [v2.TenCrop(24), around(to_tensor), v2.Identity()],
    [v1.FiveCrop(24), v1.Lambda(stacked), normalize],
    [
        v1.TenCrop(24),
        v1.Lambda(lambda crops: torch.stack([transforms.ToTensor()(crop) for crop in crops])),
        v1.Lambda(lambda rows: torch.stack([v1.Normalize(mean=(0.5,), std=(0.2,))(row) for row in rows])),
    ],
    [
        v2.FiveCrop(9),
        lambda cs: torch.stack([v1.Compose([v1.ToTensor(), v1.Normalize(MEAN, STD)])(c) for c in cs]),
    ],
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return sets.image_folder(tmp_path_factory.mktemp("crops"))


def batches(loader: Any) -> list[Any]:
    return list(loader)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("place", range(len(STACKED)))
def test_stacked_crops_are_the_stock_loaders(folder: Any, place: int, workers: int) -> None:
    compose = v1.Compose if place % 2 else v2.Compose
    folder.transform = compose([v1.Resize(30), *STACKED[place]])
    stock = Stock(folder, batch_size=4)
    plan = lower(stock)
    assert plan.kind == "native", plan.lines
    for ours, theirs in zip(wt.DataLoader(folder, 4, num_workers=workers), stock, strict=True):
        assert same(ours, theirs)


@pytest.mark.parametrize("place", range(len(NORMALIZED)))
def test_normalized_crops_are_the_stock_loaders_but_for_the_last_bit(folder: Any, place: int) -> None:
    folder.transform = v1.Compose([v1.Resize(30), *NORMALIZED[place]])
    stock = Stock(folder, batch_size=4)
    assert lower(stock).kind == "native"
    for ours, theirs in zip(wt.DataLoader(folder, 4), stock, strict=True):
        assert ours[0].dtype == theirs[0].dtype
        assert apart(ours[0], theirs[0]) < 1e-6


def jittered(crops: Any) -> torch.Tensor:
    return torch.stack([v1.ToTensor()(v1.RandomCrop(9)(crop)) for crop in crops])


def shuffled(crops: Any) -> torch.Tensor:
    crops = crops[::-1]
    return torch.stack([ToTensor()(crop) for crop in crops])


@functools.wraps(F.to_tensor)
def only_named_so(image: Any) -> torch.Tensor:
    return F.to_tensor(image) * 2


STAYING: list[tuple[list[Any], str]] = [
    ([v1.FiveCrop(9)], "makes five images of one"),
    ([v2.TenCrop(9), lambda crops: crops[3]], "makes ten images of one"),
    ([v1.TenCrop(9), v1.Lambda(shuffled)], "makes ten images of one"),
    ([v1.TenCrop(9), jittered], "RandomCrop on each crop"),
    ([v1.TenCrop(9), lambda crops: torch.stack([ToTensor()(c) for c in crops if c])], "makes ten images"),
    ([v1.TenCrop(9), lambda crops: torch.stack([ToTensor()(c) for c in crops], 1)], "makes ten images"),
    ([v1.TenCrop(9), lambda crops: torch.cat([ToTensor()(c) for c in crops])], "makes ten images of one"),
    ([v1.TenCrop(9), lambda crops, flag=1: torch.stack([ToTensor()(c) for c in crops])], "makes ten images"),
    ([v1.TenCrop(9), lambda crops: torch.stack([only_named_so(c) for c in crops])], "Python code"),
    ([v1.TenCrop(9), lambda crops: torch.stack(crops)], "torch.stack refuses"),
    ([v1.FiveCrop(9), v1.Lambda(stacked), v1.RandomErasing()], "stands on 5 crops of an image"),
    ([v1.FiveCrop(9), v1.Lambda(stacked), v2.GaussianNoise()], "stands on 5 crops of an image"),
    ([v1.ToTensor(), v2.FiveCrop(9), FLOAT, torch.stack], "changes the first alone"),
    ([T.Compose([T.FiveCrop(9), T.ToTensor()]), torch.stack], "makes several images of one"),
    ([v1.RandomApply([v1.FiveCrop(9), v1.Lambda(stacked)], 1)], "makes five images of one"),
]


@pytest.mark.parametrize("place", range(len(STAYING)))
def test_what_is_not_known_of_crops_stays_in_python(folder: Any, place: int) -> None:
    rest, words = STAYING[place]
    folder.transform = v1.Compose([v1.Resize((20, 20)), *rest])
    plan = lower(Stock(folder))
    assert plan.kind == "hybrid"
    lines = [line for section, line in plan.lines if section == "transform"]
    assert lines[0].native
    assert any(words in f"{line.why}, {line.change}" for line in lines[1:]), lines
    try:
        expected = folder[0]
    except TypeError as e:
        with pytest.raises(TypeError, match=str(e)[:20]):
            plan.dataset[0]
        return
    torch.manual_seed(1)
    expected = folder[0]
    torch.manual_seed(1)
    made = plan.dataset[0]
    assert same(made, expected) or "Random" in repr(rest) or "Noise" in repr(rest) or jittered in rest


def test_a_function_is_read_anew_before_each_epoch(folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder.transform = v1.Compose([v1.Resize((20, 20)), v1.FiveCrop(9), v1.Lambda(around_global)])
    loader = wt.DataLoader(folder, 6)
    assert next(iter(loader))[0].dtype == torch.uint8
    monkeypatch.setitem(globals(), "changing", v1.ToTensor())
    assert next(iter(loader))[0].dtype == torch.float32
    monkeypatch.setitem(globals(), "changing", lambda crop: torch.zeros(1))
    assert next(iter(loader))[0].shape == (6, 5, 1)


changing: Any = v1.PILToTensor()


def around_global(crops: Any) -> torch.Tensor:
    return torch.stack([changing(crop) for crop in crops])


def test_images_that_are_too_small_raise_what_they_would(folder: Any) -> None:
    folder.transform = v1.Compose([v1.FiveCrop(300), v1.Lambda(stacked)])
    with pytest.raises(ValueError, match="bigger than input size"):
        next(iter(wt.DataLoader(folder)))


def test_mixed_batches_of_crops_are_made_in_python(folder: Any) -> None:
    folder.transform = v1.Compose([v1.Resize((20, 20)), v1.FiveCrop(9), v1.Lambda(stacked)])
    mix = v2.CutMix(num_classes=2)
    loader = Stock(folder, 4, collate_fn=lambda batch: mix(*torch.utils.data.default_collate(batch)))
    assert lower(loader).kind != "native"


def test_a_data_set_of_ones_own_may_make_crops(tmp_path: Any) -> None:
    from PIL import Image

    files = sorted(str(path) for path in sets._folders(tmp_path / "x").rglob("*.jpg"))
    crops = v1.Compose([v1.Resize((20, 20)), v1.TenCrop(9), v1.Lambda(stacked)])

    class Own(torch.utils.data.Dataset[Any]):
        def __init__(self) -> None:
            self.files, self.transform = files, crops

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> Any:
            image = Image.open(self.files[index]).convert("RGB")
            return self.transform(image), index

    stock = Stock(Own(), batch_size=4)
    assert lower(stock).kind == "native"
    assert all(map(same, wt.DataLoader(Own(), 4), stock))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("workers", [1, 3])
def test_verbs_around_crops(folder: Any, layout: Any, workers: int) -> None:
    """Each sample of any batch is what it is by itself, and what torchvision makes of it."""
    images = wf.image_folder(folder.root)
    ds = images.map(T.Resize((20, 22)), T.TenCrop(9), T.ToDtype("float32", scale=True))
    ds = ds.with_options(layout=layout, num_workers=workers, seed=4)
    alone = [ds.sample(i)[0] for i in range(len(ds))]
    folder.transform = v2.Compose([v2.Resize((20, 22)), v2.TenCrop(9), v2.ToImage(), FLOAT])
    for i, made in enumerate(alone):
        expected = torch.stack(list(folder[i][0]))
        assert same(torch.from_numpy(made), expected if layout == "NCHW" else expected.movedim(1, -1))
    shuffled = ds.shuffle(seed=1).repeat(2).skip(2).take(9).shard(1, 2)
    for batch in shuffled.batch(4, drop_last=False).numpy():
        for image, _ in zip(*batch, strict=True):
            assert any((image == one).all() for one in alone)


def test_batches_of_crops_are_not_mixed() -> None:
    pixels, labels = np.zeros((4, 9, 9, 3), np.uint8), np.arange(4)
    ds = wf.from_tensor_slices((pixels, labels)).map(T.FiveCrop(4)).batch(2)
    with pytest.raises(wf.ConfigError, match="images"):
        next(iter(ds.map(T.CutMix(num_classes=4)).numpy()))


def test_python_steps_get_crops_as_they_are() -> None:
    pixels = np.arange(2 * 9 * 9 * 3, dtype=np.uint32).astype(np.uint8).reshape(2, 9, 9, 3)
    ds = wf.from_tensor_slices(pixels).map(T.FiveCrop(4)).map(lambda crops: crops[1])
    (batch,) = ds.batch(2).torch()
    assert torch.equal(batch, torch.from_numpy(pixels[:, :4, 5:].transpose(0, 3, 1, 2).copy()))
