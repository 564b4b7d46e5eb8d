"""What transforms without chance make of pixels, held against torchvision on Pillow images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import wellfed as wf
from pictures import picture
from wellfed import transforms as T

SHAPES = [(60, 80), (81, 37), (7, 5), (1, 9), (128, 128)]


def both(name: str, image: np.ndarray, *args: object, **kwargs: object) -> tuple[np.ndarray, np.ndarray]:
    """The transform `name` of wellfed, and of torchvision on a Pillow image."""
    ours = getattr(T, name)(*args, **kwargs)(image)
    pillow = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    theirs = np.asarray(getattr(v2, name)(*args, **kwargs)(pillow))
    return ours, theirs.reshape(ours.shape) if theirs.ndim == 2 else theirs


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "lanczos"])
@pytest.mark.parametrize("size", [16, (13, 29), (100, 90)])
def test_resize(shape: tuple[int, int], channels: int, interpolation: str, size: object) -> None:
    image = picture(1, *shape, channels)
    mode = v2.InterpolationMode(interpolation)
    ours, theirs = both("Resize", image, size, interpolation=mode)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("size", "max_size"), [(20, 24), (50, 51), (None, 30)])
@pytest.mark.parametrize("shape", SHAPES)
def test_resize_with_a_greatest_edge(shape: tuple[int, int], size: int | None, max_size: int) -> None:
    np.testing.assert_array_equal(*both("Resize", picture(2, *shape), size, max_size=max_size))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [1, 8, (33, 12), (61, 81), (200, 100)])
def test_center_crop(shape: tuple[int, int], size: object) -> None:
    np.testing.assert_array_equal(*both("CenterCrop", picture(3, *shape), size))


@pytest.mark.parametrize("padding", [3, (1, 4), (4, 3, 2, 1), 0])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(padding: object, mode: str) -> None:
    image = picture(4, 11, 8)
    np.testing.assert_array_equal(*both("Pad", image, padding, padding_mode=mode))
    if mode == "constant":
        np.testing.assert_array_equal(*both("Pad", image, padding, fill=(9, 200, 31)))


@pytest.mark.parametrize("name", ["RandomHorizontalFlip", "RandomVerticalFlip"])
@pytest.mark.parametrize("p", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_flips(name: str, p: int, shape: tuple[int, int]) -> None:
    np.testing.assert_array_equal(*both(name, picture(5, *shape), p=p))


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("angle", [0, 90, 180, 270, 30, -77.5, 361])
@pytest.mark.parametrize(
    "extra", [{}, {"expand": True}, {"center": (4, 9.5)}, {"fill": (7, 99, 200)}], ids=str
)
def test_rotation(interpolation: str, angle: float, extra: dict[str, object]) -> None:
    image = picture(6, 37, 50)
    mode = v2.InterpolationMode(interpolation)
    ours, theirs = both("RandomRotation", image, (angle, angle), interpolation=mode, **extra)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
@pytest.mark.parametrize("factor", [0.0, 0.21, 0.5, 1.0, 1.7, -0.1, -0.5, 12.0])
def test_color_factors(name: str, factor: float) -> None:
    if (name == "hue") != (-0.5 <= factor <= 0.5) and (name == "hue" or factor < 0):
        pytest.skip("no factor of this adjustment")
    image = picture(7, 40, 33)
    np.testing.assert_array_equal(*both("ColorJitter", image, **{name: (factor, factor)}))


@pytest.mark.parametrize("channels", [1, 3])
def test_gray(channels: int) -> None:
    image = picture(8, 20, 20, channels)
    np.testing.assert_array_equal(*both("RandomGrayscale", image, p=1))
    np.testing.assert_array_equal(*both("Grayscale", image, 1))
    np.testing.assert_array_equal(*both("Grayscale", image, 3))


@pytest.mark.parametrize("kernel", [1, 3, (5, 9), 23])
@pytest.mark.parametrize("sigma", [0.1, 0.8, 3.0])
def test_blur(kernel: object, sigma: float) -> None:
    # torchvision blurs in float32 and rounds; sums in another order may round the other way at a tie.
    ours, theirs = both("GaussianBlur", picture(9, 40, 50), kernel, sigma=sigma)
    difference = np.abs(ours.astype(int) - theirs.astype(int))
    assert difference.max() <= 1
    assert (difference == 0).mean() > 0.999


def test_values_and_types() -> None:
    image = picture(10, 9, 11)
    tensor = F.pil_to_tensor(Image.fromarray(image))
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for scale in (True, False):
            ds = wf.from_tensor_slices(image[None]).map(T.ToDtype(dtype, scale=scale)).batch(1)
            (ours,) = ds.torch()
            assert ours.dtype == dtype
            assert torch.equal(ours[0], F.to_dtype(tensor, dtype, scale=scale)), (dtype, scale)
    there_and_back = T.Compose([T.ToDtype("float32", scale=True), T.ToDtype("uint8", scale=True)])
    np.testing.assert_array_equal(there_and_back(image), image)
    np.testing.assert_array_equal(
        T.ToTensor()(image), F.to_image(Image.fromarray(image)).float().div(255).permute(1, 2, 0).numpy()
    )
    for mark in (T.ToImage(), T.PILToTensor(), T.Identity()):
        np.testing.assert_array_equal(mark(image), image)


@pytest.mark.parametrize("first", [T.ToDtype("float32", scale=True), T.ToTensor(), T.ToDtype("float32")])
def test_normalize(first: T.Transform) -> None:
    image = picture(11, 31, 45)
    chain = T.Compose([first, T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD)])
    tensor = torch.from_numpy(first(image)).permute(2, 0, 1)
    theirs = F.normalize(tensor, list(wf.IMAGENET_MEAN), list(wf.IMAGENET_STD)).permute(1, 2, 0).numpy()
    np.testing.assert_allclose(chain(image), theirs, rtol=1e-6, atol=1e-6)


def test_random_crop_takes_what_torchvision_pads() -> None:
    # All windows of a small image: ours must be among them, and all of them must come up.
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    for mode in ("constant", "edge", "reflect", "symmetric"):
        padded = np.asarray(v2.Pad(2, padding_mode=mode, fill=5)(Image.fromarray(image)))
        windows = {padded[y : y + 4, x : x + 4].tobytes() for y in range(5) for x in range(5)}
        crop = T.RandomCrop(4, padding=2, padding_mode=mode, fill=5)
        assert {crop(image, seed=seed).tobytes() for seed in range(400)} == windows


def test_random_crop_that_does_not_fit() -> None:
    image = picture(12, 10, 10)
    with pytest.raises(ValueError, match="11"):
        T.RandomCrop(11)(image)
    ours, theirs = both("RandomCrop", image, (10, 16), pad_if_needed=True, fill=3)
    assert ours.shape == theirs.shape


def test_erasing_covers_one_rectangle() -> None:
    image = np.zeros((40, 50, 3), np.uint8)
    for seed in range(50):
        erased = T.RandomErasing(p=1, scale=(0.1, 0.3), value=(1, 2, 3))(image, seed=seed)
        rows, columns = np.nonzero(erased[:, :, 0])
        box = erased[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (box == [1, 2, 3]).all()
        assert (erased.any(2)).sum() == box.shape[0] * box.shape[1]
        assert 0.07 < box.shape[0] * box.shape[1] / 2000 < 0.33


def test_erasing_with_noise() -> None:
    chain = T.Compose([T.ToDtype("float32"), T.RandomErasing(p=1, scale=(0.5, 0.5), value="random")])
    noise = chain(np.full((100, 100, 3), 99, np.uint8))
    noise = noise[noise != 99]
    assert abs(noise.mean()) < 0.05
    assert abs(noise.std() - 1) < 0.05


def test_images_that_are_none_are_refused() -> None:
    for image in (np.zeros((4, 4, 3), np.float32), np.zeros(4, np.uint8), np.zeros((1, 4, 4, 3), np.uint8)):
        with pytest.raises(TypeError, match="uint8"):
            T.Identity()(image)
    with pytest.raises(ValueError, match=r"channels|pixels|images"):
        T.Identity()(np.zeros((4, 4, 7), np.uint8))
