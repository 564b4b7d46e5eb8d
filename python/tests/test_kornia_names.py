"""`wellfed.kornia`: kornia's names and parameters, what is refused, what is drawn, and pixels.

Where kornia is installed, signatures and pixels are compared with it.
"""

from __future__ import annotations

import copy
import inspect
import math
import pickle
import warnings
from typing import Any

import pytest
import torch

import wellfed.kornia as K
from wellfed import transforms as T
from wellfed._called import new_seed
from wellfed._opencv import FloorCenterCrop
from wellfed.kornia import _bytes
from wellfed.kornia._arguments import share_weights
from wellfed.kornia._intensity import _plus
from wellfed.kornia._module import Place
from wellfed.torch import Augment

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def images(count: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (count, channels, height, width), dtype=torch.uint8, generator=generator)


@pytest.fixture(scope="module")
def kornia() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("kornia.augmentation")


def chain() -> K.AugmentationSequential:
    return K.AugmentationSequential(
        K.RandomHorizontalFlip(p=0.5),
        K.RandomResizedCrop((24, 24), scale=(0.3, 1.0)),
        K.ColorJiggle(0.4, 0.4, 0.4, 0.1, p=0.8),
        K.RandomGrayscale(p=0.2),
        K.RandomGaussianBlur((9, 9), (0.1, 2.0), p=0.5),
        K.Normalize(MEAN, STD),
        data_keys=["input"],
    )


# Each with its equal among wellfed's transforms.
SAME: list[tuple[K.RandomInvert, list[T.Transform]]] = [
    (K.RandomHorizontalFlip(0.3), [T.RandomHorizontalFlip(0.3)]),
    (K.RandomVerticalFlip(), [T.RandomVerticalFlip(0.5)]),
    (K.CenterCrop(21), [FloorCenterCrop(21)]),
    (K.Resize((20, 31)), [T.Resize((20, 31))]),
    (K.Resize(17, resample="bicubic"), [T.Resize(17, "bicubic")]),
    (K.Resize(50, side="long", resample=0), [T.Resize(None, "nearest-exact", max_size=50)]),
    (K.RandomResizedCrop((20, 16)), [T.RandomResizedCrop((20, 16))]),
    (
        K.RandomResizedCrop((9, 30), (0.2, 0.9), (0.5, 3.0), "nearest"),
        [T.RandomResizedCrop((9, 30), (0.2, 0.9), (0.5, 3.0), "nearest-exact")],
    ),
    (
        K.RandomCrop((30, 40), (1, 2), fill=(0.1, 0.5, 1.0)),
        [T.RandomCrop((30, 40), (1, 2), fill=(26, 128, 255))],
    ),
    (
        K.RandomCrop((60, 40), pad_if_needed=True, padding_mode="replicate"),
        [T.RandomCrop((60, 40), None, True, padding_mode="edge")],
    ),
    (K.RandomRotation(30.0, p=1.0), [T.RandomRotation(30.0, "bilinear")]),
    (
        K.RandomAffine((-20, 10), (0.1, 0.2), (0.8, 1.2), (5, 8, -3, 3), padding_mode=3, fill_value=0.5),
        [
            T.RandomApply(
                [T.RandomAffine((-20, 10), (0.1, 0.2), (0.8, 1.2), (5, 8, -3, 3), "bilinear", 128)], 0.5
            )
        ],
    ),
    (
        K.ColorJitter(0.4, (0.5, 1.0), 0.3, 0.1, p=0.8),
        [T.RandomApply([T.ColorJitter(0.4, (0.5, 1.0), 0.3, 0.1)], 0.8)],
    ),
    (
        K.ColorJitter(0.4, 0, 0.3, order=(2, 1, 0)),
        [T.Compose([T.ColorJitter(saturation=0.3), T.ColorJitter(0.4)])],
    ),
    (
        K.ColorJiggle(contrast=0.5, hue=0.2),
        [T.RandomOrder([T.ColorJitter(0.5), T.ColorJitter(hue=0.2)])],
    ),
    (K.RandomContrast((0.5, 1.5)), [T.ColorJitter((0.5, 1.5))]),
    (K.RandomSaturation(0.5, p=0.4), [T.RandomApply([T.ColorJitter(saturation=0.5)], 0.4)]),
    (K.RandomHue((-0.2, 0.1)), [T.ColorJitter(hue=(-0.2, 0.1))]),
    (K.RandomGrayscale(torch.tensor([0.299, 0.587, 0.114])), [T.RandomGrayscale(0.1)]),
    (K.RandomGaussianBlur((3, 7), (0.5, 2.0), p=1.0), [T.GaussianBlur((7, 3), (0.5, 2.0))]),
    (K.RandomInvert(), [T.RandomInvert(0.5)]),
    (K.RandomEqualize(), [T.RandomEqualize(0.5)]),
    (K.RandomPosterize((4, 4), p=1.0), [T.RandomPosterize(4, 1.0)]),
    (K.RandomSolarize((0.5, 0.5), 0.0, p=1.0), [T.RandomSolarize(128, 1.0)]),
]


@pytest.mark.parametrize(("own", "transforms"), SAME, ids=lambda case: type(case).__name__)
def test_pixels_are_those_of_the_transforms(own: Any, transforms: list[T.Transform]) -> None:
    given = images(6, 3, 50, 44)
    torch.manual_seed(3)
    made = own(given)
    torch.manual_seed(3)
    augment = Augment([*transforms, T.ToTensor()], seed=0)
    if augment.transform.random:
        augment.epoch = new_seed()
    assert torch.equal(made, augment(given, range(6)))
    assert made.dtype == torch.float32
    place = Place((3, 50, 44), [], floats=False)
    assert eval(repr(own), dict(vars(K))).lower(place) == own.lower(place)


@pytest.mark.parametrize("seed", range(4))
def test_kernels_and_engine_agree(seed: int) -> None:
    given = images(5, 3, 40, 50, seed)
    for augment in (
        chain(),
        K.RandomErasing(p=0.8, value=0.4),
        K.RandomSolarize(p=0.9),
        K.RandomPosterize(0, p=0.9),
        K.ImageSequential(K.RandomBrightness(0.8), K.Normalize(MEAN, STD), K.RandomErasing(p=0.8)),
    ):
        inner = (augment._current() if hasattr(augment, "_current") else _own(augment))._augment(
            (3, 40, 50), torch.float32
        )
        inner.epoch = seed
        expected = inner._run(given, range(5), kernels=False)
        assert torch.equal(inner._run(given, range(5), kernels=True), expected)
        if torch.cuda.is_available():
            assert torch.equal(inner(given.to("cuda"), range(5)).cpu(), expected)


def _own(augment: Any) -> Any:
    augment(images(1, 3, 40, 50))
    return augment._own


def test_a_chain_has_draws_for_each_image_that_a_seed_decides() -> None:
    one = images(1, 3, 40, 50)
    batch = one.expand(40, -1, -1, -1)
    augment = chain()
    torch.manual_seed(1)
    first, second = augment(batch), augment(batch)
    assert len({tuple(image.flatten().tolist()) for image in [*first, *second]}) == 80
    torch.manual_seed(1)
    assert torch.equal(augment(batch), first)
    for copied in (pickle.loads(pickle.dumps(augment)), copy.deepcopy(augment)):
        torch.manual_seed(1)
        assert torch.equal(copied(batch), first)
    # What draws nothing leaves the generator alone.
    state = torch.get_rng_state()
    K.AugmentationSequential(K.CenterCrop(8), K.Normalize(MEAN, STD))(batch)
    assert torch.equal(torch.get_rng_state(), state)


def test_same_on_batch_draws_once() -> None:
    batch = images(1, 3, 40, 50).expand(9, -1, -1, -1)
    steps = [K.RandomResizedCrop((16, 16)), K.ColorJiggle(0.4, 0.4, 0.4, 0.1), K.CenterCrop(8)]
    augment = K.AugmentationSequential(*steps, same_on_batch=True)
    first, second = augment(batch), augment(batch)
    assert (first == first[:1]).all()
    assert not torch.equal(first, second)
    alone = K.RandomResizedCrop((16, 16), same_on_batch=True)(batch)
    assert (alone == alone[:1]).all()
    # What a container does not say, its augmentations do; an outer container has the last word.
    shared = K.RandomInvert(same_on_batch=True)
    mixed = K.AugmentationSequential(shared, K.RandomHorizontalFlip())
    with pytest.raises(ValueError, match=r"same_on_batch is True for RandomInvert.* and False"):
        mixed(batch)
    made = K.AugmentationSequential(mixed, same_on_batch=True)(batch)
    assert (made == made[:1]).all()
    assert len(K.AugmentationSequential(mixed, same_on_batch=False)(batch).unique(dim=0)) > 1
    # CenterCrop draws nothing, and does not have to agree.
    K.AugmentationSequential(shared, K.CenterCrop(8))(batch)


def even(values: torch.Tensor, low: float, high: float, slack: float = 0.0) -> None:
    """Kolmogorov and Smirnov: whether values are drawn evenly from low to high, to a millionth."""
    found = values.double().sort().values
    assert low - slack <= found[0], (found[0], low)
    assert found[-1] <= high + slack, (found[-1], high)
    expected = torch.linspace(0, 1, len(found), dtype=torch.float64)
    distance = ((found - low) / (high - low) - expected).abs().max()
    assert distance < 2.7 / math.sqrt(len(found)) + slack / (high - low), distance


def levels(augment: Any, value: int, count: int = 4000) -> torch.Tensor:
    torch.manual_seed(11)
    return (augment(torch.full((count, 3, 1, 1), value, dtype=torch.uint8))[:, 0, 0, 0] * 255).round()


def test_brightness_is_added_evenly() -> None:
    even(levels(K.RandomBrightness(0.4), 128) - 128, -102, 102, slack=0.5)
    even(levels(K.RandomBrightness((1.1, 1.3)), 100) - 100, 25.5, 76.5, slack=0.5)
    even(levels(K.ColorJiggle(0.4), 128) - 128, -102, 102, slack=0.5)
    assert (levels(K.RandomBrightness((0.8, 0.8)), 100) == 49).all()
    assert (levels(K.RandomBrightness((0.0, 0.0)), 255) == 0).all()
    assert (levels(K.RandomBrightness((2.0, 2.0)), 0) == 255).all()


@pytest.mark.parametrize("count", [-255, -254, -200, -103, -2, -1, 0, 1, 17, 128, 253, 254, 255])
def test_levels_are_added_exactly(count: int) -> None:
    ramp = torch.arange(256, dtype=torch.uint8).reshape(1, 1, 16, 16)
    expected = (ramp.int() + count).clamp(0, 255)
    assert torch.equal(Augment([_plus(count)], seed=0)(ramp).int(), expected)


def test_contrast_and_hue_are_drawn_evenly() -> None:
    even(levels(K.RandomContrast(0.4), 150) / 150, 0.6, 1.4, slack=1 / 150)
    even(levels(K.ColorJiggle(contrast=(0.2, 1.5)), 150) / 150, 0.2, 1.5, slack=1 / 150)


def test_bits_and_thresholds_are_drawn_as_kornia_rounds_them() -> None:
    assert share_weights(3.0, 8.0, -0.5) == [(3, 0.1), (4, 0.2), (5, 0.2), (6, 0.2), (7, 0.2), (8, 0.1)]
    assert share_weights(0.2, 0.9, -1.0) == [(1, 1.0)]
    # 255 keeps its highest bits.
    bits = torch.log2(256 / (256 - levels(K.RandomPosterize((3, 6), p=1.0), 255)))
    found = [(bits == number).double().mean().item() for number in range(3, 7)]
    assert found == pytest.approx([1 / 6, 1 / 3, 1 / 3, 1 / 6], abs=0.03)
    assert (levels(K.RandomPosterize((0, 0), p=1.0), 255) == 0).all()
    # 120 is inverted where the threshold is at most 120 / 255: a fraction of those from 0.4 to 0.6.
    inverted = levels(K.RandomSolarize(0.1, 0.0, p=1.0), 120) != 120
    assert inverted.double().mean().item() == pytest.approx((120 / 255 - 0.4) / 0.2, abs=0.03)
    even(levels(K.RandomSolarize((1.0, 1.0), 0.1, p=1.0), 120) - 120, -25.5, 25.5, slack=0.5)


def test_every_p_is_of_each_image() -> None:
    count = 3000
    batch = torch.zeros(count, 3, 4, 4, dtype=torch.uint8)
    batch[..., 0, 0] = torch.tensor([200, 10, 90], dtype=torch.uint8)
    torch.manual_seed(5)
    for p in (0.0, 0.2, 1.0):
        for augment in (
            K.RandomHorizontalFlip(p),
            K.RandomVerticalFlip(p),
            K.RandomInvert(p=p),
            K.RandomGrayscale(p=p),
            K.RandomEqualize(p=p),
            K.ColorJiggle((1.2, 1.2), (0.5, 0.5), p=p),
            K.RandomRotation((90, 90), p=p),
            K.RandomAffine((90, 90), p=p),
            K.RandomSolarize((0.0, 0.0), p=p),
            K.RandomErasing((1.0, 1.0), (1.0, 1.0), 1.0, p=p),
            K.RandomGaussianBlur(3, (2.0, 2.0), p=p),
            K.RandomPosterize((2, 2), p=p),
        ):
            changed = (augment(batch) * 255 != batch).flatten(1).any(1).double().mean().item()
            if isinstance(augment, K.RandomEqualize):
                assert changed == 0, "one bright pixel stays as it is"
            else:
                assert changed == pytest.approx(p, abs=0.03 if 0 < p < 1 else 0), (augment, changed)


@pytest.mark.parametrize(
    ("scale", "ratio"), [((0.02, 0.33), (0.3, 3.3)), ((0.1, 0.4), (1.5, 3.0)), ((0.5, 1.5), (0.2, 0.9))]
)
def test_erased_rectangles_are_drawn_as_kornia_draws_them(
    scale: tuple[float, float], ratio: tuple[float, float]
) -> None:
    height, width, count = 40, 60, 6000
    augment = K.RandomErasing(scale, ratio, value=1.0, p=1.0)
    torch.manual_seed(2)
    made = augment(torch.zeros(count, 1, height, width, dtype=torch.uint8))[:, 0] > 0
    rows, columns = made.any(2).sum(1).double(), made.any(1).sum(1).double()
    assert torch.equal(rows * columns, made.sum((1, 2)).double()), "a rectangle each"
    # The documented distribution.
    area = torch.empty(count).uniform_(*scale) * height * width
    if ratio[0] < 1 < ratio[1]:
        below = torch.rand(count) < 0.5
        drawn = torch.where(
            below, torch.empty(count).uniform_(ratio[0], 1), torch.empty(count).uniform_(1, ratio[1])
        )
    else:
        drawn = torch.empty(count).uniform_(*ratio)
    expected = [(area * drawn).sqrt().round().clamp(1, height), (area / drawn).sqrt().round().clamp(1, width)]
    for found, of in zip((rows, columns), expected):
        places = torch.arange(0.5, max(height, width))
        ours, theirs = (torch.bucketize(places, one.float().sort().values) / count for one in (found, of))
        assert (ours - theirs).abs().max() < 2.7 * math.sqrt(2 / count) + 0.02
    # Places: the first row is even among those that there are.
    tops = made.any(2).double().argmax(1)
    even((tops + 0.5) / (height - rows + 1), 0, 1, slack=0.5)


REFUSED: list[tuple[Any, str, type[Exception]]] = [
    (lambda: K.RandomHorizontalFlip(p_batch=0.5), "p_batch is 0.5; supported: p_batch=1", ValueError),
    (lambda: K.RandomHorizontalFlip(p=2), "p is 2", ValueError),
    (lambda: K.RandomHorizontalFlip(same_on_batch=None), "same_on_batch is None", TypeError),
    (lambda: K.RandomResizedCrop(224), "size is 224; it must be \\(height, width\\)", TypeError),
    (lambda: K.RandomResizedCrop((8, 8), p=0.5), "p is 0.5, which decides for all", ValueError),
    (
        lambda: K.RandomResizedCrop((8, 8), cropping_mode="resample"),
        "cropping_mode is 'resample'",
        ValueError,
    ),
    (lambda: K.RandomResizedCrop((8, 8), resample="lanczos"), "resample is 'lanczos'", ValueError),
    (lambda: K.RandomResizedCrop((8, 8), scale=(0.5, 0.1)), "scale", ValueError),
    (lambda: K.CenterCrop(8, p=0.5), "p is 0.5", ValueError),
    (
        lambda: K.RandomCrop((8, 8), padding=1, pad_if_needed=True),
        "pad_if_needed is True and padding",
        ValueError,
    ),
    (
        lambda: K.RandomCrop((8, 8), padding=1, padding_mode="circular"),
        "padding_mode is 'circular'",
        ValueError,
    ),
    (lambda: K.RandomCrop((8, 8), padding=1, fill=128), "fill is 128; must be 0 to 1", ValueError),
    (lambda: K.Resize(8, side="left"), "side is 'left'; must be one of short, long, vert, horz", ValueError),
    (lambda: K.RandomRotation(400), "degrees is .*400.0\\); must be", ValueError),
    (lambda: K.RandomAffine(5, scale=(1, 2, 1, 2)), "scale is .*another one along y", ValueError),
    (lambda: K.RandomAffine(5, padding_mode="border"), "padding_mode is 'border'", ValueError),
    (lambda: K.RandomAffine(5, padding_mode="fill", fill_value=9), "fill_value is 9", ValueError),
    (lambda: K.ColorJiggle(1.5), "brightness is \\(0.0, 2.5\\)", ValueError),
    (lambda: K.ColorJiggle(hue=0.7), "hue is", ValueError),
    (lambda: K.ColorJiggle(contrast=-1), "contrast is -1", ValueError),
    (lambda: K.ColorJiggle(contrast=math.nan), "contrast is .nan, nan", ValueError),
    (lambda: K.ColorJiggle(order=(0, 0)), "order is \\(0, 0\\)", ValueError),
    (lambda: K.RandomBrightness(0.5, clip_output=False), "clip_output is False; supported: True", ValueError),
    (lambda: K.RandomContrast(0.5, clip_output=False), "clip_output is False", ValueError),
    (lambda: K.RandomGrayscale(torch.ones(3)), "rgb_weights is", ValueError),
    (lambda: K.RandomGaussianBlur(4, (1, 2)), "kernel_size is", ValueError),
    (lambda: K.RandomGaussianBlur(3, (0, 2)), "sigma", ValueError),
    (lambda: K.RandomGaussianBlur(3, (1, 2), "constant"), "border_type is 'constant'", ValueError),
    (lambda: K.RandomInvert(255), "max_val is 255", ValueError),
    (lambda: K.RandomPosterize(9), "bits", ValueError),
    (lambda: K.RandomSolarize(0.7), "thresholds", ValueError),
    (lambda: K.RandomSolarize(additions=(-1, 0)), "additions", ValueError),
    (lambda: K.RandomErasing(value=128), "value is 128; must be 0 to 1", ValueError),
    (lambda: K.Normalize(0.5, 0.0), "std is", ValueError),
    (lambda: K.Normalize(torch.zeros(4, 3), 0.5), "mean has 4 rows, one for each image", ValueError),
    (lambda: K.Normalize(0.5, 0.5, p=0.5), "p is 0.5", ValueError),
    (lambda: K.AugmentationSequential(random_apply=2), "random_apply is 2; supported: False", ValueError),
    (lambda: K.AugmentationSequential(random_apply_weights=[1.0]), "random_apply_weights", ValueError),
    (lambda: K.AugmentationSequential(data_keys=["input", "mask"]), "data_keys has 'mask'", ValueError),
    (lambda: K.AugmentationSequential(data_keys=["input", "depth"]), "data_keys has 'depth'", ValueError),
    (lambda: K.AugmentationSequential(data_keys=["class", "input"]), "must begin with 'input'", ValueError),
    (lambda: K.AugmentationSequential(transformation_matrix_mode="rigid"), "matrix_mode", ValueError),
    (lambda: K.AugmentationSequential(extra_args={}), "extra_args", ValueError),
    (
        lambda: K.AugmentationSequential(torch.nn.ReLU()),
        "ReLU is no augmentation of wellfed.kornia",
        TypeError,
    ),
    (lambda: K.RandomPerspective, "no attribute 'RandomPerspective'", AttributeError),
    (lambda: K.RandomMixUpV2, "hint: wellfed.transforms.MixUp", AttributeError),
]


@pytest.mark.parametrize(("make", "message", "kind"), REFUSED, ids=[message for _, message, _ in REFUSED])
def test_what_is_not_supported_is_refused_by_name(make: Any, message: str, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=message):
        make()


def test_order_and_channels_are_checked_when_images_come() -> None:
    with pytest.raises(
        ValueError, match=r"RandomInvert.* comes after Normalize.*\nhint: put it before Normalize"
    ):
        K.AugmentationSequential(K.Normalize(0.5, 0.5), K.RandomInvert())(images(1, 3, 8, 8))
    for augment in (K.RandomSaturation(0.5), K.ColorJiggle(hue=0.1), K.RandomHue(0.1)):
        with pytest.raises(ValueError, match="images have 1 channels"):
            augment(images(1, 1, 8, 8))
    assert K.ColorJiggle(0.1, 0.1)(images(2, 1, 8, 8)).shape == (2, 1, 8, 8)
    with pytest.raises(ValueError, match="2 channels"):
        K.RandomInvert()(images(1, 2, 8, 8))
    with pytest.raises(ValueError, match="size is"):
        K.CenterCrop(9)(images(1, 3, 8, 8))
    with pytest.raises(ValueError, match="makes images of 20 x 1 into 8 x 0"):
        K.Resize(8, side="long")(images(1, 3, 20, 1))


def test_floating_point_images_are_rounded_to_bytes() -> None:
    given = images(2, 3, 9, 7)
    flip = K.RandomHorizontalFlip(p=1.0)
    for dtype in (torch.float32, torch.float64, torch.float16):
        made = flip(given.to(dtype) / 255)
        assert made.dtype == dtype
        assert torch.equal((made * 255).round().byte(), given.flip(3))
    assert torch.equal(flip(given.float() / 255), given.flip(3).float() / 255), "bytes come back as they were"
    assert flip(torch.rand(2, 3, 4, 4, dtype=torch.bfloat16)).dtype == torch.bfloat16
    fine = torch.rand(4, 3, 16, 16)
    assert (flip(fine) - fine.flip(3)).abs().max() <= 0.5001 / 255
    last = torch.rand(4, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    assert flip(last).is_contiguous(memory_format=torch.channels_last)
    # What arithmetic leaves outside is cut off.
    assert flip(torch.tensor([[[[-1e-4, 1 + 1e-4]]]])).tolist() == [[[[1.0, 0.0]]]]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.0, 255.0], "images are from 0 to 255; must be from 0 to 1\nhint: give images of uint8"),
        ([-2.1, 2.6], "images are from -2.1 to 2.6.*\nhint: augment images before they are normalized"),
        ([0.0, math.nan], "images hold NaN"),
        ([0.0, math.inf], "images are from 0 to inf"),
    ],
)
def test_values_outside_of_0_to_1_are_an_error(values: list[float], message: str) -> None:
    given = torch.tensor([[[values]]])
    with pytest.raises(ValueError, match=message):
        K.RandomHorizontalFlip()(given)
    if torch.cuda.is_available():
        with pytest.raises(ValueError, match=message):
            K.RandomHorizontalFlip()(given.to("cuda"))


@pytest.mark.parametrize("value", [2.0, -3.0, math.nan])
def test_later_batches_on_a_device_are_checked_without_waiting(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Event:
        done = False

        def query(self) -> bool:
            return self.done

    events: list[Event] = []

    def start_copy(values: torch.Tensor) -> tuple[torch.Tensor, Event]:
        events.append(Event())
        return values.clone(), events[-1]

    monkeypatch.setattr(_bytes, "_start_copy", start_copy)
    to_bytes, good, bad = _bytes.ToBytes(), torch.tensor([0.0, 1.0]), torch.tensor([0.5, value])
    for given in (good, bad, good, good):
        to_bytes._look(given, waits=False)
    # The first copy saw good ones alone, the second all of them.
    assert len(events) == 1
    events[0].done = True
    to_bytes._look(good, waits=False)
    assert len(events) == 2
    to_bytes._look(good, waits=False)
    events[1].done = True
    with pytest.raises(ValueError, match="images"):
        to_bytes._look(good, waits=False)
    # Told once.
    to_bytes._look(good, waits=False)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_device_tells_of_later_batches() -> None:
    flip = K.RandomHorizontalFlip()
    good = torch.rand(2, 3, 8, 8, device="cuda")
    flip(good)
    flip(good * 9)
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="images are from"):
        flip(good)


def test_what_has_no_pixels_of_8_bits_is_an_error() -> None:
    flip = K.RandomHorizontalFlip()
    with pytest.raises(ValueError, match="require gradients"):
        flip(torch.rand(1, 3, 4, 4, requires_grad=True))
    with torch.no_grad():
        flip(torch.rand(1, 3, 4, 4, requires_grad=True))
    with pytest.raises(TypeError, match=r"images are torch.int64"):
        flip(torch.zeros(1, 3, 4, 4, dtype=torch.int64))
    with pytest.raises(TypeError, match="images are list"):
        flip([1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"shape \[1, 1, 3, 4, 4\]"):
        flip(torch.zeros(1, 1, 3, 4, 4))
    with pytest.raises(ValueError, match=r"params are given.*\nhint: torch.manual_seed"):
        flip(torch.zeros(1, 3, 4, 4), params={})
    with pytest.raises(NotImplementedError, match="no inverse"):
        chain().inverse(torch.zeros(1, 3, 4, 4))
    with pytest.raises(AttributeError, match="cannot be changed"):
        flip.p = 0.1
    assert flip(images(0, 3, 4, 4)).shape == (0, 3, 4, 4)


def test_keepdim_gives_the_dimensions_back() -> None:
    image, plain = images(1, 3, 8, 6)[0], images(1, 1, 8, 6)[0, 0]
    assert K.RandomInvert()(image).shape == (1, 3, 8, 6)
    assert K.RandomInvert()(plain).shape == (1, 1, 8, 6)
    assert K.RandomInvert(keepdim=True)(image).shape == (3, 8, 6)
    assert K.RandomInvert(keepdim=True)(plain).shape == (8, 6)
    both = [K.RandomInvert(keepdim=True), K.CenterCrop(4)]
    assert K.AugmentationSequential(*both)(image).shape == (1, 3, 4, 4)
    assert K.AugmentationSequential(*both, keepdim=True)(image).shape == (3, 4, 4)
    assert K.ImageSequential(*both, keepdim=True)(images(2, 3, 8, 6)).shape == (2, 3, 4, 4)


def test_labels_stay_as_they_are() -> None:
    given, labels = images(4, 3, 8, 8), torch.arange(4)
    invert = K.RandomInvert(p=1.0)
    augment = K.AugmentationSequential(invert, data_keys=["input", "class"])
    made = augment(given, labels)
    assert isinstance(made, list)
    assert made[1] is labels
    assert torch.equal(made[0], (255 - given) / 255)
    with pytest.raises(ValueError, match="1 values are given for data_keys"):
        augment(given)
    alone = augment(given, data_keys=[0])
    assert torch.equal(alone, made[0])
    by_name = K.AugmentationSequential(invert, data_keys=None)
    found = by_name({"image_left": given, "label": labels, "path": "x"})
    assert list(found) == ["image_left", "label", "path"]
    assert found["label"] is labels
    assert torch.equal(found["image_left"], made[0])
    with pytest.raises(ValueError, match="data_keys has 'bbox'"):
        by_name({"image": given, "bbox-1": labels})
    with pytest.raises(ValueError, match="the dict has the images"):
        by_name({"label": labels})
    with pytest.raises(ValueError, match="no dict is given"):
        by_name(given)


def test_chains_hold_chains_and_may_be_changed() -> None:
    given = images(2, 3, 8, 8)
    augment = K.AugmentationSequential(K.ImageSequential(K.RandomInvert(p=1.0)), K.RandomVerticalFlip(p=1.0))
    assert torch.equal(augment(given), (255 - given).flip(2) / 255)
    augment.append(K.RandomInvert(p=1.0))
    assert torch.equal(augment(given), given.flip(2) / 255)
    augment.append(torch.nn.Identity())
    with pytest.raises(TypeError, match="Identity is no augmentation"):
        augment(given)
    assert torch.equal(
        torch.nn.Sequential(K.RandomInvert(p=1.0), torch.nn.Identity())(given), (255 - given) / 255
    )
    assert chain().to("cpu").eval().state_dict() == {}
    assert torch.equal(K.AugmentationSequential()(given), given / 255)


def test_denormalize_undoes_normalize() -> None:
    given = images(2, 3, 8, 8)
    augment = K.AugmentationSequential(K.Normalize(list(MEAN), torch.tensor(STD)), K.Denormalize(MEAN, STD))
    assert torch.allclose(augment(given), given / 255, atol=1e-6)
    one = K.Normalize(0.5, 0.25)(given)
    assert torch.allclose(one, (given / 255 - 0.5) / 0.25, atol=1e-6)


def test_what_a_chain_becomes_is_told() -> None:
    text = chain().explain((8, 3, 32, 40))
    assert text.startswith("(N, 3, 32, 40) uint8 to (N, 3, 24, 24) float32\n1. RandomHorizontalFlip(p=0.5)")
    assert "unlike kornia: shrinking is antialiased" in text
    assert "RandomChoice([205 transforms])" in text
    assert "\nOn a CUDA device a batch is made by: augment_axes, " in text
    assert repr(chain()).startswith(
        "AugmentationSequential(\n    RandomHorizontalFlip(p=0.5),\n    RandomResizedCrop("
    )
    assert repr(K.AugmentationSequential(data_keys=["input", "label"], keepdim=True)).endswith(
        "(\n    data_keys=['input', 'class'],\n    keepdim=True,\n)"
    )


def test_signatures_are_those_of_kornia(kornia: Any) -> None:
    for name in K.__all__:
        own, theirs = (inspect.signature(getattr(module, name)).parameters for module in (K, kornia))
        assert list(own) == list(theirs), name
        for parameter, given in theirs.items():
            default = own[parameter].default
            if parameter == "data_keys":
                continue
            assert own[parameter].kind == given.kind, (name, parameter)
            assert default == given.default, (name, parameter)


# What both make of the same images, and by how many levels they may differ, for pixels and on average.
DETERMINISTIC: list[tuple[str, tuple[Any, ...], dict[str, Any], float]] = [
    ("RandomHorizontalFlip", (), {"p": 1.0}, 0),
    ("RandomVerticalFlip", (), {"p": 1.0}, 0),
    ("CenterCrop", ((21, 30),), {}, 0),
    ("RandomCrop", ((40, 50),), {}, 0),
    ("RandomCrop", ((44, 58),), {"padding": (4, 2), "padding_mode": "reflect"}, 0),
    ("RandomCrop", ((45, 57),), {"padding": (1, 2, 6, 3), "padding_mode": "replicate"}, 0),
    ("RandomCrop", ((44, 58),), {"padding": (4, 2), "fill": (0.2, 0.4, 1.0)}, 0),
    ("RandomGrayscale", (), {"p": 1.0}, 1),
    ("RandomInvert", (), {"p": 1.0}, 0),
    ("RandomEqualize", (), {"p": 1.0}, 2),
    ("RandomBrightness", ((1.3, 1.3),), {}, 1),
    ("RandomBrightness", ((0.75, 0.75),), {}, 1),
    ("RandomContrast", ((1.4, 1.4),), {}, 1),
    ("RandomHue", ((0.2, 0.2),), {}, 12),
    ("ColorJitter", ((1.2, 1.2), (0.8, 0.8), (1.3, 1.3)), {"order": (0, 1, 2)}, 3),
    ("ColorJiggle", ((1.2, 1.2), (0.8, 0.8)), {"order": (0, 1)}, 1),
    ("RandomGaussianBlur", ((5, 9), (1.5, 1.5)), {"p": 1.0}, 1),
    ("RandomPosterize", ((3, 3),), {"p": 1.0}, 0),
    ("RandomSolarize", ((0.61, 0.61), (0.2, 0.2)), {"p": 1.0}, 0),
    ("Normalize", (MEAN, STD), {}, 0.01),
    ("Denormalize", (MEAN, STD), {}, 0.01),
]


def both(kornia: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """By how many levels kornia's images differ from ours."""
    given = images(4, 3, 40, 50)
    # Smooth ones: what is found between pixels depends on them.
    given = torch.nn.functional.interpolate(given[:, :, ::8, ::8].float(), (40, 50), mode="bilinear").byte()
    own = getattr(K, name)(*args, **kwargs)(given / 255)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = getattr(kornia, name)(*args, **kwargs)(given / 255)
    assert own.dtype == theirs.dtype
    assert own.shape == theirs.shape
    return (own - theirs).abs() * 255


@pytest.mark.parametrize(("name", "args", "kwargs", "most"), DETERMINISTIC, ids=lambda case: str(case)[:24])
def test_pixels_are_close_to_those_of_kornia(
    kornia: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], most: float
) -> None:
    difference = both(kornia, name, args, kwargs)
    assert difference.max().item() <= most + 1e-3, (difference.max(), difference.mean())


# On average, since borders and what is made of neighbours differ.
MOVED: list[tuple[str, tuple[Any, ...], dict[str, Any], float]] = [
    ("Resize", ((20, 25),), {"align_corners": False, "antialias": True}, 1.5),
    ("Resize", ((80, 100),), {"align_corners": False}, 0.6),
    ("Resize", ((80, 100),), {"align_corners": False, "resample": "nearest"}, 0),
    ("Resize", (20,), {"side": "long", "align_corners": False, "antialias": True}, 1.5),
    ("RandomResizedCrop", ((40, 50),), {"scale": (1, 1), "ratio": (1.25, 1.25)}, 0.1),
    ("RandomRotation", ((20, 20),), {"p": 1.0}, 3),
    ("RandomRotation", ((90, 90),), {"p": 1.0}, 0.1),
    ("RandomAffine", ((20, 20),), {"p": 1.0}, 3),
    ("RandomAffine", ((20, 20), None, (0.8, 0.8), (10, 10, -7, -7)), {"p": 1.0, "align_corners": True}, 3),
]


@pytest.mark.parametrize(("name", "args", "kwargs", "most"), MOVED, ids=lambda case: str(case)[:24])
def test_pixels_are_moved_as_by_kornia(
    kornia: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], most: float
) -> None:
    assert both(kornia, name, args, kwargs).mean().item() <= most


def test_sides_are_those_of_kornia(kornia: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    sizes = torch.randint(10, 400, (150, 3), generator=generator).tolist()
    for height, width, size in [*sizes, (100, 300, 224), (300, 100, 224), (7, 21, 299)]:
        for side in ("short", "long", "vert", "horz"):
            own = K.Resize(size, side=side).lower(Place((3, height, width), [], floats=False))[0].size
            theirs = kornia.Resize(size, side=side).forward_parameters((1, 3, height, width))["output_size"]
            assert list(own) == theirs[0].tolist(), (height, width, size, side)


def test_parts_are_drawn_as_by_kornia(kornia: Any) -> None:
    """Of `RandomResizedCrop`: height, width and place of parts, where not all attempts fit."""
    count, height, width = 4000, 40, 60
    args = ((16, 16), (0.3, 1.0), (0.75, 4.0))
    ramp = torch.stack(
        [
            torch.arange(height)[:, None].expand(height, width) * 6,
            torch.arange(width)[None].expand(height, width) * 4,
            torch.zeros(height, width),
        ]
    ).byte()
    torch.manual_seed(4)
    made = K.RandomResizedCrop(*args, resample="nearest")(ramp.expand(count, -1, -1, -1)) * 255
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = kornia.RandomResizedCrop(*args, resample="nearest", align_corners=False)
        expected = theirs(ramp.expand(count, -1, -1, -1).float())
    for channel, step in ((0, 6), (1, 4)):
        for at in (0, -1):
            places = torch.arange(0.5, 70)
            found, other = (
                torch.bucketize(places, (part[:, channel, at, at] / step).round().sort().values) / count
                for part in (made, expected)
            )
            assert (found - other).abs().max() < 2.7 * math.sqrt(2 / count), (channel, at)
