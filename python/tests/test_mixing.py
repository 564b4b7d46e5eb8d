"""`MixUp` and `CutMix` after `batch`: torchvision's values, and draws that depend on the data set alone."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torchvision.transforms import v2

import wellfed as wf
from wellfed import transforms as T

CLASSES = 4
SHAPE = (11, 7, 3)


def source(n: int = 22, dtype: str = "float32") -> wf.Dataset:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (n, *SHAPE), np.uint8)
    return (
        wf.from_tensor_slices((images, np.arange(n) % CLASSES))
        .shuffle(seed=3)
        .map(T.ToDtype(dtype, scale=dtype != "uint8"))
    )


def by_torchvision(kind: str, images: torch.Tensor, labels: torch.Tensor, params: dict[str, Any]) -> Any:
    """What torchvision's own transform makes of a batch for given draws."""
    transform = getattr(v2, kind)(num_classes=CLASSES)
    transform.make_params = lambda flat_inputs: params
    return transform(images, labels)


def lam_of(labels: torch.Tensor, soft: torch.Tensor) -> float:
    row = int((labels != labels.roll(1)).nonzero()[0])
    return float(soft[row, labels[row]])


def box_of(images: torch.Tensor, mixed: torch.Tensor) -> tuple[int, int, int, int]:
    """The rectangle that changed; where images agree inside of it, a smaller one that gives the same."""
    ys, xs = (mixed != images).any(0).any(0).nonzero(as_tuple=True)
    if not len(ys):
        return 0, 0, 0, 0
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_mixup_has_torchvisions_bits(dtype: str, alpha: float) -> None:
    plain = source(dtype=dtype).batch(5)
    lams = set()
    mixed = plain.map(T.MixUp(alpha=alpha, num_classes=CLASSES))
    for (images, labels), (values, soft) in zip(plain.torch(), mixed.torch(), strict=True):
        lam = lam_of(labels, soft)
        lams.add(lam)
        expected = by_torchvision("MixUp", images, labels, {"lam": lam})
        assert torch.equal(values, expected[0])
        assert torch.equal(soft, expected[1])
        assert soft.dtype == torch.float32
    assert len(lams) == 5


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_cutmix_has_torchvisions_bits(dtype: str, layout: Any) -> None:
    plain = source(dtype=dtype).batch(5).with_options(layout=layout)
    boxes = set()
    mixed = plain.map(T.CutMix(num_classes=CLASSES))
    for (images, labels), (values, soft) in itertools.chain(
        *[zip(plain.torch(), mixed.torch()) for _ in "ab"]
    ):
        if layout == "NHWC":
            images, values = images.permute(0, 3, 1, 2), values.permute(0, 3, 1, 2)
        box = box_of(images, values)
        boxes.add(box)
        x1, y1, x2, y2 = box
        lam = 1.0 - (x2 - x1) * (y2 - y1) / (SHAPE[0] * SHAPE[1])
        expected = by_torchvision("CutMix", images, labels, {"box": box, "lam_adjusted": lam})
        assert torch.equal(values, expected[0])
        assert torch.equal(soft, expected[1])
    assert len(boxes) > 3


def epochs(ds: wf.Dataset, count: int = 2, **options: Any) -> list[Any]:
    loader = ds.torch(**options)
    return [batch for _ in range(count) for batch in loader]


def assert_same(some: list[Any], others: list[Any]) -> None:
    assert len(some) == len(others)
    for (a, b), (c, d) in zip(some, others, strict=True):
        assert torch.equal(a, c)
        assert b.dtype == d.dtype
        assert torch.equal(b, d)


EITHER = T.RandomChoice([T.CutMix(num_classes=CLASSES), T.MixUp(alpha=0.4, num_classes=CLASSES)])
SOMETIMES = T.RandomApply([T.MixUp(num_classes=CLASSES)], p=0.5)


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("place", range(2))
@pytest.mark.parametrize("after", ["plain", "take", "skip", "shard", "repeat"])
def test_workers_and_resume_change_no_bit(place: int, after: str) -> None:
    ds = source().batch(4).map([EITHER, SOMETIMES][place])
    verbs = {"take": ds.take(3), "skip": ds.skip(2), "shard": ds.shard(1, 2), "repeat": ds.repeat(2)}
    ds = verbs.get(after, ds)
    whole = epochs(ds, num_workers=1)
    for workers in (2, 8):
        assert_same(whole, epochs(ds, num_workers=workers))
    for stop in range(len(whole) // 2):
        begun = ds.torch(num_workers=2)
        batches = iter(begun)
        for _ in range(stop):
            next(batches)
        state = begun.state_dict()
        resumed = ds.torch(num_workers=3)
        resumed.load_state_dict(state)
        assert_same(whole[stop:], [*resumed, *resumed])
    assert not all(torch.equal(a[0], b[0]) for a, b in zip(whole, whole[len(whole) // 2 :]))


def test_verbs_after_it_take_the_same_batches() -> None:
    ds = source().batch(4).map(EITHER)
    whole = epochs(ds, 1)
    assert_same(whole[:3], epochs(ds.take(3), 1))
    assert_same(whole[2:], epochs(ds.skip(2), 1))
    assert_same(whole[1::2], epochs(ds.shard(1, 2), 1))
    ranks = [epochs(source().shard(rank, 2).batch(4).map(T.MixUp(num_classes=CLASSES)), 1) for rank in (0, 1)]
    lams = [[float(soft.max()) for _, soft in batches] for batches in ranks]
    assert set(lams[0]).isdisjoint(lams[1]), "ranks draw by themselves"


def test_labels_that_are_not_mixed_stay_numbers() -> None:
    kinds = {soft.dtype for _, soft in epochs(source(200).batch(4).map(SOMETIMES), 1)}
    assert kinds == {torch.int64, torch.float32}
    plain = source(40).batch(4)
    never = plain.map(T.RandomApply([T.MixUp(num_classes=CLASSES)], p=0))
    assert_same(epochs(plain, 1), epochs(never, 1))
    one = source(8).batch(4).map(T.CutMix(num_classes=CLASSES), T.MixUp())
    for _, soft in epochs(one, 1):
        assert soft.shape == (4, CLASSES)


def test_one_sample_and_one_class() -> None:
    rng = np.random.default_rng(0)
    images = rng.random((5, 3, 4, 6), np.float32)
    ds = wf.from_tensor_slices((images, np.zeros(5, np.int64))).batch(2).map(T.MixUp(num_classes=1))
    batches = epochs(ds, 1)
    assert [tuple(soft.shape) for _, soft in batches] == [(2, 1), (2, 1), (1, 1)]
    values, soft = batches[-1]
    assert torch.allclose(values, torch.from_numpy(images[4:]))
    assert torch.allclose(soft, torch.ones(1, 1))


def test_soft_labels_and_fields_by_name() -> None:
    rng = np.random.default_rng(0)
    fields = {
        "key": np.arange(6),
        "image": rng.random((6, 3, 4, 6), np.float32),
        "truth": rng.random((6, CLASSES), np.float32),
    }
    plain = wf.from_tensor_slices(fields).batch(3)
    with pytest.raises(wf.ConfigError, match="which field has the labels"):
        plain.map(T.MixUp())
    for batch, made in zip(plain.torch(), plain.map(T.MixUp(labels_getter="truth")).torch()):
        assert torch.equal(batch["key"], made["key"])
        weight = (made["truth"] - batch["truth"].roll(1, 0)) / (batch["truth"] - batch["truth"].roll(1, 0))
        other = (made["image"] - batch["image"].roll(1, 0)) / (batch["image"] - batch["image"].roll(1, 0))
        assert torch.allclose(weight.median(), other.median(), atol=1e-4)


@pytest.mark.parametrize("on_error", ["skip", "replace", "raise"])
def test_bad_samples(tmp_path: Any, on_error: Any) -> None:
    from PIL import Image

    for i in range(9):
        pixels = np.random.default_rng(i).integers(0, 256, (12, 10, 3), np.uint8)
        (tmp_path / f"{i % 3}").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(tmp_path / f"{i % 3}" / f"{i}.png")
    (tmp_path / "0" / "3.png").write_bytes(b"no image")
    plain = wf.image_folder(tmp_path).map(T.ToTensor()).batch(3).with_options(on_error=on_error)
    mixed = plain.map(T.MixUp(num_classes=3))
    if on_error == "raise":
        with pytest.raises(wf.CorruptSampleError):
            list(mixed.torch())
        return
    for (images, labels), (values, soft) in zip(plain.torch(), mixed.torch(), strict=True):
        assert len(images) == (2 if on_error == "skip" and len(images) < 3 else 3)
        if len(labels.unique()) > 1:
            lam = lam_of(labels, soft)
            transform = v2.MixUp(num_classes=3)
            transform.make_params = lambda flat_inputs, lam=lam: {"lam": lam}
            expected = transform(images, labels)
            assert torch.equal(values, expected[0])
            assert torch.equal(soft, expected[1])


@pytest.mark.parametrize("on_error", ["skip", "replace", "raise"])
def test_a_label_out_of_range_is_an_error_of_its_batch(on_error: Any) -> None:
    ds = source().batch(22).map(T.CutMix(num_classes=3)).with_options(on_error=on_error)
    with pytest.raises(wf.ShapeError, match=r"label 3 at place .* is none of 3 classes"):
        list(ds.torch())


def test_what_cannot_be_mixed_is_refused() -> None:
    mix = T.MixUp(num_classes=CLASSES)
    batches = source().batch(4)
    mixed = batches.map(mix)
    refused: list[tuple[Any, str]] = [
        (lambda: source().map(mix), "works on batches"),
        (lambda: mixed.unbatch(), "unbatch.. comes after MixUp"),
        (lambda: wf.zip(mixed, mixed), "zip.. comes after MixUp"),
        (lambda: mixed.concatenate(mixed), "concatenate.. comes after MixUp"),
        (lambda: mixed.map(lambda batch: batch), "map.. comes after MixUp"),
        (lambda: source().map(lambda x: x).batch(4).map(mix), "comes after a Python step"),
        (lambda: source(dtype="uint8").batch(4).map(mix).torch(), "MixUp works on float32"),
        (lambda: batches.map(T.MixUp()).torch(), "num_classes must be passed"),
        (lambda: batches.map(mix, T.CutMix(num_classes=9)).torch(), "num_classes is 4 and 9"),
        (lambda: source().enumerate().batch(4).map(mix), "which field has the labels"),
        (lambda: wf.from_tensor_slices(np.zeros((4, 5))).batch(2).map(mix), "which field has the labels"),
        (lambda: mixed[0], "cannot be made one by one"),
    ]
    for make, words in refused:
        with pytest.raises(wf.ConfigError, match=words):
            make()
    with pytest.raises(TypeError, match="labels_getter"):
        batches.map(mix, field="0")
    with pytest.raises(ValueError, match="beside transforms of images"):
        batches.map(T.RandomChoice([mix, T.Identity()]))
    with pytest.raises(TypeError, match="works on batches"):
        T.RandomApply([mix])(np.zeros((4, 4, 3), np.uint8))
    with pytest.raises(ValueError, match="RandomOrder has no transforms of batches"):
        T.RandomOrder([mix])
    for wrong in ({"alpha": 0}, {"num_classes": 0}, {"alpha": float("nan")}):
        with pytest.raises((ValueError, wf.ConfigError)):
            batches.map(T.MixUp(**{"num_classes": CLASSES, **wrong}))  # type: ignore[arg-type]


def test_plans_say_what_they_do_and_come_back() -> None:
    ds = source().batch(4).map(EITHER)
    assert (
        "map(RandomChoice([CutMix(alpha=1, num_classes=4), MixUp(alpha=0.4, num_classes=4)]))" in ds.explain()
    )
    assert "drawn once a batch" in ds.explain()
    assert "CutMix(alpha=1.0, num_classes=4, labels_getter='default')" in repr(ds)
    assert T.Transform.from_plan(EITHER.to_plan()) == EITHER
    images, labels = next(iter(source().batch(4).torch()))
    values, soft = T.MixUp(num_classes=CLASSES)(images, labels)
    assert values.shape == images.shape
    assert soft.shape == (4, CLASSES)
    state = source().batch(4).torch().state_dict()
    with pytest.raises(wf.StateError):
        ds.torch().load_state_dict(state)
