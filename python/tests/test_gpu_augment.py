"""`wellfed.torch.Augment`: the kernels of a device, run on the host, against the engine.

Where there is a device, the same kernels run on it as well.
"""

from __future__ import annotations

import json
import pickle
import random
from typing import Any

import pytest
import torch

import wellfed as wf
from wellfed import _native
from wellfed import transforms as T
from wellfed._called import _on_device
from wellfed.torch import Augment

INTERPOLATIONS = [
    "nearest",
    "nearest-exact",
    "bilinear",
    "bicubic",
    "lanczos",
    "torch-bilinear",
    "torch-bicubic",
]


def images(count: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


def side(draw: random.Random) -> int:
    return draw.randint(2, 70)


def on_bytes(draw: random.Random) -> T.Transform:
    padding_mode = draw.choice(["constant", "edge", "reflect", "symmetric"])
    interpolation = draw.choice(INTERPOLATIONS)
    choices: list[Any] = [
        lambda: T.RandomResizedCrop((side(draw), side(draw)), interpolation=interpolation),
        lambda: T.Resize((side(draw), side(draw)), interpolation=interpolation),
        lambda: T.Resize(side(draw), interpolation=interpolation),
        lambda: T.CenterCrop((side(draw), side(draw))),
        lambda: T.RandomCrop(side(draw), 3, pad_if_needed=True, fill=9, padding_mode=padding_mode),
        lambda: T.Pad(
            draw.randint(0, 4), fill=(1, 2, 3) if draw.random() < 0.1 else 5, padding_mode=padding_mode
        ),
        T.RandomHorizontalFlip,
        T.RandomVerticalFlip,
        lambda: T.ColorJitter(0.4, 0.4, 0.4, 0.2),
        lambda: T.ColorJitter(hue=0.5),
        lambda: T.RandomGrayscale(0.5),
        lambda: T.RandomPhotometricDistort(p=0.7),
        T.RandomInvert,
        lambda: T.RandomPosterize(draw.randint(1, 7)),
        lambda: T.RandomSolarize(draw.uniform(0, 255)),
        T.RandomAutocontrast,
        T.RandomEqualize,
        lambda: T.RandomErasing(0.8, value=200),
        lambda: T.GaussianBlur((2 * draw.randint(0, 2) + 1, 2 * draw.randint(0, 3) + 1), (0.2, 3)),
        lambda: T.RandomRotation(
            40, draw.choice(["nearest", "bilinear", "bicubic"]), fill=draw.randint(0, 255)
        ),
        lambda: T.RandomAffine(
            20, (0.2, 0.1), (0.7, 1.4), 8, draw.choice(["nearest", "bilinear", "bicubic"])
        ),
        lambda: T.RandomAffine(0, (0.2, 0.1), (0.7, 1.4)),
        lambda: T.RandomApply([T.GaussianBlur(3), T.RandomRotation((90, 90))], 0.5),
        lambda: T.RandomApply([T.ColorJitter(0.8, 0.8), T.RandomInvert(1)], 0.6),
    ]
    return draw.choice(choices)()


def after(draw: random.Random, channels: int) -> list[T.Transform]:
    """A cast and what may follow it, or nothing."""
    if draw.random() < 0.25:
        return []
    dtype = draw.choice(["float32", "float16", "bfloat16"])
    chain: list[T.Transform] = (
        [T.ToTensor()] if draw.random() < 0.2 else [T.ToDtype(dtype, draw.random() < 0.7)]
    )
    if draw.random() < 0.6:
        many = channels == 3 and draw.random() < 0.7
        chain.append(
            T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)) if many else T.Normalize(0.5, 0.3)
        )
    if draw.random() < 0.3:
        chain.append(T.RandomHorizontalFlip())
    if draw.random() < 0.4:
        chain.append(T.RandomErasing(0.8, value=draw.choice([0, 0.5, "random"])))
    return chain


def same(found: torch.Tensor, expected: torch.Tensor, what: object) -> None:
    assert found.dtype == expected.dtype, what
    assert found.shape == expected.shape, what
    assert found.stride() == expected.stride(), what
    # Bits: all numbers, negative zeros and what is no number.
    found, expected = (x.contiguous().view(torch.uint8) for x in (found, expected))
    assert torch.equal(found, expected), what


@pytest.mark.parametrize("seed", range(120))
def test_kernels_give_the_engine_s_bits(seed: int) -> None:
    draw = random.Random(seed)
    channels = draw.choice([1, 3, 3])
    chain = [on_bytes(draw) for _ in range(draw.randint(0, 5))]
    # All images end alike.
    chain.insert(draw.randint(0, len(chain)), T.RandomResizedCrop((side(draw), side(draw))))
    given = images(draw.randint(1, 5), channels, draw.randint(20, 90), draw.randint(20, 90), seed)
    form = draw.choice(["plain", "last", "part"])
    if form == "last":
        given = given.contiguous(memory_format=torch.channels_last)
    elif form == "part":
        given = given[:, :, 1:, 2:].flip(0)[:, :, :, : -1 - draw.randint(0, 3)]
    augment = Augment(
        chain + after(draw, channels),
        seed=draw.getrandbits(64),
        channels_last=draw.choice([None, True, False]),
    )
    augment.epoch = draw.randint(0, 3)
    indices = [draw.randint(0, 1 << 40) for _ in range(len(given))]
    try:
        expected = augment(given, indices)
    except ValueError as error:
        # What makes no sense on one side makes none on the other.
        with pytest.raises(type(error)):
            augment._run(given, indices, kernels=True)
        return
    same(augment._run(given, indices, kernels=True), expected, augment)
    if torch.cuda.is_available():
        same(augment(given.to("cuda"), indices).cpu(), expected, augment)


def test_few_of_the_random_chains_are_refused() -> None:
    draw = random.Random(0)
    refused = 0
    for _ in range(100):
        try:
            Augment([on_bytes(draw), T.CenterCrop(20)], seed=1)(images(1, 3, 40, 50))
        except ValueError:
            refused += 1
    assert refused < 15


def test_a_common_chain_takes_one_launch_for_its_pixels() -> None:
    from wellfed import _native

    chain = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToDtype("float32", True)])
    with_hue = T.Compose([T.RandomResizedCrop(32), T.ColorJitter(0.1, 0, 0.1, 0.1)])
    with_contrast = T.Compose([T.RandomResizedCrop(32), T.ColorJitter(contrast=0.1)])
    for transform, expected in [
        (chain, ["augment_axes", "augment_plain"]),
        (with_hue, ["augment_axes", "augment"]),
        (with_contrast, ["augment_axes", "augment", "augment"]),
    ]:
        augment = Augment(transform, seed=0)
        made = _native.Augmentation(augment._plan, (3, 64, 64), False, 0)
        plan = made.plan(list(range(4)), 0, 4096, [3 * 64 * 64, 64 * 64, 64, 1], 4096)
        assert plan.kernels == expected


def test_draws_belong_to_seed_epoch_and_index() -> None:
    chain = [T.RandomResizedCrop(16), T.RandomHorizontalFlip()]
    one = images(1, 3, 50, 60)
    batch = one.expand(40, -1, -1, -1)
    made = Augment(chain, seed=3)(batch)
    assert len({tuple(image.flatten().tolist()) for image in made}) == 40, "each image has draws of its own"
    assert torch.equal(Augment(chain, seed=3)(batch), made)
    assert not torch.equal(Augment(chain, seed=4)(batch), made)
    # The same images in another order and other batches.
    augment = Augment(chain, seed=3)
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1))
    parts = [augment(batch[part], part) for part in order.split(7)]
    assert torch.equal(torch.cat(parts), made[order])
    augment.epoch = 1
    assert not torch.equal(augment(batch, range(40)), made)


def test_without_indices_images_are_counted() -> None:
    chain = T.RandomResizedCrop(16)
    batch = images(12, 3, 50, 60)
    counted, given = Augment(chain, seed=3), Augment(chain, seed=3)
    first, second = counted(batch[:5]), counted(batch[5:])
    assert counted.seen == 12
    assert torch.equal(torch.cat([first, second]), given(batch, range(12)))
    assert given.seen == 0
    torch.manual_seed(5)
    seeds = [Augment(chain).seed, Augment(chain).seed]
    torch.manual_seed(5)
    assert [Augment(chain).seed, Augment(chain).seed] == seeds
    assert seeds[0] != seeds[1]


def test_a_copy_goes_on_where_the_first_one_stands() -> None:
    augment = Augment([T.RandomResizedCrop(16), T.ColorJitter(0.5)], seed=3)
    batch = images(6, 3, 30, 20)
    augment(batch)
    augment.epoch = 2
    other = pickle.loads(pickle.dumps(augment))
    assert torch.equal(other(batch), augment(batch))
    assert (other.seen, other.epoch, repr(other)) == (12, 2, repr(augment))


def test_many_images_are_drawn_and_made_in_several_threads() -> None:
    augment = Augment([T.RandomResizedCrop(8), T.ColorJitter(0.4, 0.4)], seed=9)
    batch = images(150, 3, 12, 13)
    whole = augment(batch, range(150))
    same(augment._run(batch, range(150), kernels=True), whole, augment)
    assert torch.equal(torch.cat([augment(batch[i : i + 1], [i]) for i in range(150)]), whole)


def test_empty_batches_stay_empty() -> None:
    augment = Augment([T.RandomResizedCrop(8), T.ToDtype("bfloat16", True)], seed=9)
    made = augment(images(3, 3, 12, 13)[:0])
    assert made.shape == (0, 3, 8, 8)
    assert made.dtype == torch.bfloat16


def test_the_memory_format_is_that_of_the_images_or_what_is_asked_for() -> None:
    batch = images(2, 3, 20, 24)
    last = batch.contiguous(memory_format=torch.channels_last)
    for given, asked, expected in [
        (batch, None, False),
        (last, None, True),
        (batch, True, True),
        (last, False, False),
    ]:
        made = Augment(T.Resize((9, 8)), channels_last=asked)(given)
        assert made.is_contiguous(memory_format=torch.channels_last) == expected
        assert made.is_contiguous() != expected


@pytest.mark.parametrize(
    ("chain", "stage"),
    [
        (T.RandomAdjustSharpness(2, 1), "RandomAdjustSharpness"),
        ([T.Resize((64, 64)), T.ElasticTransform()], "ElasticTransform"),
        (T.JPEG(50), "JPEG"),
        (T.FiveCrop(8), "FiveCrop"),
        ([T.ToTensor(), T.CenterCrop(8)], "CenterCrop"),
        (T.Resize((8, 8), "opencv-area"), "Resize"),
    ],
)
def test_what_a_device_does_not_have_is_refused_by_name(chain: Any, stage: str) -> None:
    with pytest.raises(wf.exceptions.ConfigError, match=stage) as caught:
        Augment(chain, seed=0)._run(images(2, 3, 30, 30), None, kernels=True)
    assert caught.value.stage == stage
    assert "CPU" in str(caught.value.hint)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("last", [False, True])
def test_batches_are_mixed_by_torch_s_formula(dtype: str, last: bool) -> None:
    chain = [T.RandomResizedCrop((20, 31)), T.ToDtype(dtype, scale=True)]
    choice = T.RandomChoice([T.MixUp(num_classes=5), T.CutMix(num_classes=5)])
    mixing = [T.RandomApply([choice], 0.7), T.MixUp(alpha=0.4, num_classes=5)]
    mixed, plain = (Augment(steps, seed=3, channels_last=last) for steps in ([*chain, *mixing], chain))
    kinds = set()
    for number in range(12):
        given, labels = images(7, 3, 40, 50, number), torch.arange(7) % 5
        indices = [9 * number + 2, *range(1, 7)]
        found, soft = mixed._mixed(given, indices, labels, kernels=True)
        expected, rows = plain(given, indices), torch.nn.functional.one_hot(labels, 5).float()
        plan = json.dumps([one.to_plan() for one in mixing])
        blends = _native.draw_blends(plan, (20, 31), 3, 0, indices[0])
        for weight, corners in blends:
            if corners is None:
                expected = expected.roll(1, 0).mul_(1 - weight).add_(expected.mul(weight))
            else:
                x1, y1, x2, y2 = corners
                before = expected.roll(1, 0)
                expected[:, :, y1:y2, x1:x2] = before[:, :, y1:y2, x1:x2]
            rows = rows.roll(1, 0).mul_(1 - weight).add_(rows.mul(weight))
        kinds.add(tuple(corners is None for _, corners in blends))
        same(found, expected, number)
        assert torch.equal(soft, rows)
        again, _ = mixed(given, indices, labels=labels)
        same(again, found, number)
        # Rows of probabilities are mixed as they are.
        _, of_rows = mixed(given, indices, labels=torch.nn.functional.one_hot(labels, 5).float())
        assert torch.equal(of_rows, rows)
    assert kinds == {(True,), (True, True), (False, True)}


CALLED: list[T.Transform] = [
    T.Compose([T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)]),
    T.GaussianBlur(3),
    # Sharpness has no kernel: batches in which it is drawn are the CPU's.
    T.RandAugment(),
    T.CenterCrop((20, 30)),
]


@pytest.mark.parametrize("transform", CALLED, ids=str)
def test_a_transform_called_on_a_batch_draws_for_each_image(transform: T.Transform) -> None:
    given = images(9, 3, 40, 50)
    for seed in range(5):
        made = _on_device(torch, transform, given, seed)
        one_by_one = Augment(transform, seed=0)
        one_by_one.epoch = seed
        assert made is not None
        same(made, one_by_one(given, range(9)), transform)
        same(_on_device(torch, transform, given, seed, kernels=False), made, transform)
    alike = given[:1].expand(9, -1, -1, -1)
    results = {bytes(one.numpy().tobytes()) for one in _on_device(torch, transform, alike, 3)}
    assert (len(results) > 1) == transform.random
    torch.manual_seed(5)
    first, second = (_on_device(torch, transform, given, None) for _ in range(2))
    torch.manual_seed(5)
    same(_on_device(torch, transform, given, None), first, transform)
    assert torch.equal(first, second) != transform.random


def test_what_kernels_do_not_have_is_left_to_torchvision() -> None:
    given = images(2, 3, 40, 50)
    assert _on_device(torch, T.ElasticTransform(), given, 0) is None
    assert _on_device(torch, T.FiveCrop(8), given, 0) is None
    assert _on_device(torch, T.CenterCrop(8), given.float(), 0) is None
    assert _on_device(torch, T.CenterCrop(8), given[0], 0) is None
    assert _on_device(torch, T.CenterCrop(8), torch.cat([given, given], 1), 0) is None
    assert _on_device(torch, T.CenterCrop(8), given[:0], 0).shape == (0, 3, 8, 8)


@pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: transforms are not called on its tensors"
)
def test_a_transform_called_on_a_device_s_batch_is_the_cpu_s() -> None:
    given = images(9, 3, 40, 50)
    for transform in CALLED:
        made = transform(given.cuda(), seed=4)
        assert made.is_cuda
        same(made.cpu(), _on_device(torch, transform, given, 4, kernels=False), transform)


def test_other_tensors_are_refused() -> None:
    augment = Augment(T.Resize((8, 8)))
    for wrong in [torch.zeros(2, 3, 8, 8), torch.zeros(3, 8, 8, dtype=torch.uint8), [1]]:
        with pytest.raises(TypeError, match="batches are uint8 tensors"):
            augment(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="images have 4 channels; must be 1 or 3"):
        augment(images(1, 4, 8, 8))
    with pytest.raises(ValueError, match="there are 2 indices for 1 images"):
        augment(images(1, 3, 8, 8), [1, 2])
    with pytest.raises(ValueError, match="indices begin with 0, and -1 is among them"):
        augment(images(1, 3, 8, 8), [-1])
    with pytest.raises(ValueError, match="seed is -1; must be 0 to"):
        Augment(T.Resize((8, 8)), seed=-1)
    with pytest.raises(TypeError, match="which mixes images of a batch"):
        Augment([T.MixUp(num_classes=3), T.CenterCrop(3)])
    with pytest.raises(TypeError, match="nothing mixes them"):
        augment(images(1, 3, 8, 8), labels=torch.zeros(1, dtype=torch.int64))
    mixing, given = Augment([T.ToTensor(), T.MixUp(num_classes=3)]), images(2, 3, 8, 8)
    with pytest.raises(TypeError, match="mixes labels as well"):
        mixing(given)
    with pytest.raises(TypeError, match=r"labels are torch.int64 of shape \[3\], for 2 images"):
        mixing(given, labels=torch.zeros(3, dtype=torch.int64))
    with pytest.raises(TypeError, match="they must be int64"):
        mixing(given, labels=torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"labels\[1\] is 3; must be from 0 to 2 with num_classes=3"):
        mixing(given, labels=torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="labels have 4 classes, and num_classes is 3"):
        mixing(given, labels=torch.zeros(2, 4))
    with pytest.raises(ValueError, match="num_classes must be passed"):
        Augment([T.ToTensor(), T.MixUp()])(given, labels=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="MixUp works on floating point images"):
        Augment(T.MixUp(num_classes=3))(given, labels=torch.zeros(2, dtype=torch.int64))
    with pytest.raises(TypeError, match="on meta; it knows CUDA devices and the CPU"):
        augment(torch.empty(1, 3, 8, 8, dtype=torch.uint8, device="meta"))
    with pytest.raises(TypeError, match="keep them on the CPU"):
        augment(images(1, 3, 8, 8), torch.zeros(1, dtype=torch.int64, device="meta"))
    with pytest.raises(ValueError, match="finished images differ in size"):
        Augment(T.RandomResize(8, 30), seed=1)(images(2, 3, 20, 20))
