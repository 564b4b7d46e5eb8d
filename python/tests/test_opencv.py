"""What is OpenCV's and Albumentations': the engine gives the same pixels for the same numbers."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import _opencv as O
from wellfed import transforms as T
from wellfed.torch._lower.opencv import different

cv2 = pytest.importorskip("cv2")
os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

FILTERS = {
    "opencv-nearest": cv2.INTER_NEAREST,
    "opencv-linear": cv2.INTER_LINEAR,
    "opencv-area": cv2.INTER_AREA,
}


def noise(rng: np.random.Generator, height: int, width: int, channels: int = 3) -> Any:
    """Random pixels, of which some are flat and some nearly so: rounding is seen there."""
    image = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
    image[: height // 4] //= 32
    image[:, : width // 5] = image[:, : width // 5, :1]
    return image


def resized(image: Any, height: int, width: int, flag: int) -> Any:
    return cv2.resize(image, (width, height), interpolation=flag).reshape(height, width, -1)


def images(dataset: wf.Dataset) -> Any:
    """The only image of the only batch."""
    [batch] = dataset.numpy()
    [image] = batch[0] if isinstance(batch, tuple) else batch
    return np.asarray(image)


@pytest.mark.parametrize("name", FILTERS)
def test_resizing_gives_opencv_s_pixels(name: str) -> None:
    rng = np.random.default_rng(5)
    for turn in range(150):
        height, width, rows, columns = (int(n) for n in rng.integers(1, 120, 4))
        if turn % 5 == 0:  # whole scales, for which OpenCV has other code
            height, width = rows * int(rng.integers(1, 5)), columns * int(rng.integers(1, 5))
        channels = (1, 3, 3, 4, 2)[turn % 5] if turn % 2 else 3
        if channels == 2:  # calling knows no images of two channels
            channels = 3
        image = noise(rng, height, width, channels)
        ours = T.Resize((rows, columns), interpolation=name)(image)
        theirs = resized(image, rows, columns, FILTERS[name])
        assert np.array_equal(ours, theirs), (name, image.shape, rows, columns)


def test_areas_are_for_sides_that_become_shorter() -> None:
    image = noise(np.random.default_rng(9), 40, 30)
    for rows, columns in [(39, 30), (40, 29), (20, 60), (60, 20), (41, 30), (80, 60), (10, 10)]:
        flag = cv2.INTER_AREA if rows < 40 or columns < 30 else cv2.INTER_LINEAR
        ours = T.Resize((rows, columns), interpolation="opencv-linear-area")(image)
        assert np.array_equal(ours, resized(image, rows, columns, flag)), (rows, columns)


@pytest.mark.parametrize("name", FILTERS)
def test_large_images_are_resized_alike(name: str) -> None:
    rng = np.random.default_rng(6)
    for (height, width), (rows, columns) in [
        ((1333, 2000), (224, 224)),
        ((375, 500), (513, 1027)),
        ((3, 4001), (2, 333)),
        ((2160, 61), (1080, 31)),
    ]:
        image = noise(rng, height, width)
        ours = T.Resize((rows, columns), interpolation=name)(image)
        assert np.array_equal(ours, resized(image, rows, columns, FILTERS[name]))


@pytest.mark.parametrize("name", FILTERS)
def test_crops_flips_and_files_make_no_difference(name: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    path = tmp_path / "photo.jpg"
    Image.fromarray(cv2.GaussianBlur(noise(rng, 211, 303), (5, 5), 2)).save(path, quality=85)
    pixels = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
    chain = [T.Resize((90, 77), interpolation=name), T.CenterCrop((41, 33)), T.RandomHorizontalFlip(1)]
    expected = resized(pixels, 90, 77, FILTERS[name])[24:65, 22:55][:, ::-1]
    assert np.array_equal(T.Compose(chain)(pixels), expected)
    made = wf.image_files([path]).map(*chain).with_options(layout="NHWC").batch(1)
    assert np.array_equal(images(made), expected)


def test_a_random_part_is_one_of_the_image() -> None:
    image = noise(np.random.default_rng(8), 12, 10)
    crop = T.RandomResizedCrop((7, 9), (0.3, 0.3), (0.8, 0.8), "opencv-linear")
    height, width = round((36 / 0.8) ** 0.5), round((36 * 0.8) ** 0.5)
    parts = {
        resized(image[y : y + height, x : x + width], 7, 9, cv2.INTER_LINEAR).tobytes()
        for y in range(12 - height + 1)
        for x in range(10 - width + 1)
    }
    made = {crop(image, seed).tobytes() for seed in range(200)}
    assert made <= parts
    assert len(made) > len(parts) // 2


def test_transforms_that_turn_images_refuse_opencv_s_filters() -> None:
    with pytest.raises(ValueError, match="images are turned with"):
        T.RandomRotation(10, "opencv-linear")
    torch = pytest.importorskip("torch")
    pytest.importorskip("torchvision")
    with pytest.raises(TypeError, match="opencv-linear"):
        T.Resize((2, 2), "opencv-linear")(torch.zeros(3, 4, 4))


# Colours.

SIZES = [(9, 64), (33, 75), (31, 31), (1, 33)]


def functions() -> Any:
    pytest.importorskip("albumentations")
    import albumentations.augmentations.pixel.functional as F

    return F


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
def test_color_jitter_equals_albumentations(name: str) -> None:
    theirs = getattr(functions(), f"adjust_{name}_torchvision")
    rng = np.random.default_rng(9)
    low, high = (-0.5, 0.5) if name == "hue" else (0.0, 2.5)
    factors = [low, high, 0.0, 0.5, *map(float, rng.uniform(low, high, 30))]
    if name != "hue":
        factors.append(1.0)
    for turn, factor in enumerate(factors):
        image = noise(rng, *SIZES[turn % len(SIZES)])
        neutral = dict.fromkeys(("brightness", "contrast", "saturation"), (1.0, 1.0)) | {"hue": (0.0, 0.0)}
        ours = O.OpenCvColorJitter(**(neutral | {name: (factor, factor)}))(image)
        assert np.array_equal(ours, theirs(image, factor)), (name, factor, image.shape)


def test_color_jitter_does_all_four_in_one_of_24_orders() -> None:
    import itertools

    F = functions()
    image = noise(np.random.default_rng(10), 9, 40)
    numbers = {"brightness": 1.3, "contrast": 0.6, "saturation": 1.7, "hue": 0.1}
    orders = set()
    for order in itertools.permutations(numbers):
        made = image
        for name in order:
            made = getattr(F, f"adjust_{name}_torchvision")(made, numbers[name])
        orders.add(made.tobytes())
    jitter = O.OpenCvColorJitter(**{name: (v, v) for name, v in numbers.items()})
    made = {jitter(image, seed).tobytes() for seed in range(200)}
    assert made <= orders
    assert len(made) > len(orders) // 2


def test_hue_saturation_value_equals_albumentations() -> None:
    F = functions()
    rng = np.random.default_rng(11)
    for turn in range(60):
        shifts = [float(v) for v in rng.uniform(-60, 60, 3)]
        if turn % 4 == 0:
            shifts = [float(round(v)) for v in shifts]
        if turn % 5 == 0:
            shifts[turn % 3] = 0.0
        image = noise(rng, *SIZES[turn % len(SIZES)])
        ours = O.HueSaturationValue(*((v, v) for v in shifts))(image)
        assert np.array_equal(ours, F.shift_hsv(image, *shifts)), (shifts, image.shape)


def test_brightness_and_contrast_equal_albumentations() -> None:
    pytest.importorskip("albumentations")
    import albumentations as A

    rng = np.random.default_rng(12)
    for turn in range(40):
        brightness, contrast = (float(v) for v in rng.uniform(-0.6, 0.6, 2))
        by_max = turn % 2 == 0
        image = noise(rng, 20, 31)
        theirs = A.RandomBrightnessContrast(
            (brightness, brightness), (contrast, contrast), brightness_by_max=by_max, p=1
        )
        ours = O.RandomBrightnessContrast((brightness, brightness), (contrast, contrast), by_max)
        assert np.array_equal(ours(image), theirs(image=image)["image"]), (brightness, contrast, by_max)


def test_holes_have_the_sizes_that_albumentations_draws() -> None:
    pytest.importorskip("albumentations")
    import albumentations as A

    image = np.full((40, 30, 3), 200, np.uint8)
    for heights, widths in [((0.1, 0.3), (0.2, 0.5)), ((3, 50), (2, 4)), ((2, 2), (5, 5))]:
        theirs = A.CoarseDropout((1, 1), heights, widths, fill=(1, 2, 3), p=1)
        ours = O.CoarseDropout((1, 1), heights, widths, (1, 2, 3))

        def areas(images: Any) -> set[tuple[int, int]]:
            found = set()
            for made in images:
                hole = (made == (1, 2, 3)).all(-1)
                assert (made[~hole] == 200).all()
                found.add((int(hole.any(1).sum()), int(hole.any(0).sum())))
            return found

        drawn = areas(theirs(image=image)["image"] for _ in range(400))
        made = areas(ours(image, seed) for seed in range(400))
        for side in (0, 1):
            sizes, same = {area[side] for area in made}, {area[side] for area in drawn}
            assert (min(sizes), max(sizes)) == (min(same), max(same))


def scene(rng: np.random.Generator) -> tuple[Any, dict[str, Any]]:
    """An image, and the numbers that are to be drawn for it: some of them neutral."""
    height, width = (int(n) for n in rng.integers(1, 140, 2))
    kind = int(rng.integers(5))
    numbers: dict[str, Any] = {"scale": [1.0, 1.0], "rotate": 0.0, "shear": [0.0, 0.0], "way": [0.0, 0.0]}
    if kind in (0, 3):
        numbers["rotate"] = float(rng.choice([rng.uniform(-400, 400), 90.0, 180.0, 45.0, 0.0]))
    if kind in (1, 3):
        numbers["scale"] = [float(v) for v in rng.uniform(0.2, 3, 2)]
    if kind in (2, 3):
        numbers["shear"] = [float(v) for v in rng.uniform(-40, 40, 2)]
    if kind != 0:
        numbers["way"] = [float(v) for v in rng.uniform(-0.6, 0.6, 2)]
    return noise(rng, height, width), numbers


@pytest.mark.parametrize("border", ["constant", "reflect"])
@pytest.mark.parametrize("name", ["opencv-nearest", "opencv-linear"])
def test_affine_maps_equal_albumentations(name: str, border: str) -> None:
    A = pytest.importorskip("albumentations")
    if reason := different("warp"):
        pytest.skip(reason)
    flag, mode = FILTERS[name], {"constant": cv2.BORDER_CONSTANT, "reflect": cv2.BORDER_REFLECT_101}[border]
    how = {"interpolation": flag, "border_mode": mode, "fill": (3.0, 90.0, 255.0), "p": 1}
    rng = np.random.default_rng(11)
    for _ in range(80):
        image, numbers = scene(rng)
        scale, shear, way = ([(v, v) for v in numbers[key]] for key in ("scale", "shear", "way"))
        rotate = (numbers["rotate"],) * 2
        theirs = A.Affine(
            scale=dict(zip("xy", scale)),
            translate_percent=dict(zip("xy", way)),
            rotate=rotate,
            shear=dict(zip("xy", shear)),
            **how,
        )
        same = {"interpolation": name, "border": border, "fill": (3, 90, 255)}
        ours = O.OpenCvAffine(scale, translate_percent=way, rotate=rotate, shear=shear, **same)
        assert np.array_equal(ours(image), theirs(image=image)["image"]), (image.shape, numbers)
        if min(image.shape[:2]) > 1:  # of a line, nothing may be left after the turn
            theirs = A.SafeRotate(rotate, **how)
            ours = O.OpenCvAffine(rotate=rotate, fit=True, **same)
            assert np.array_equal(ours(image), theirs(image=image)["image"]), (image.shape, numbers)


def test_random_scale_equals_albumentations() -> None:
    A = pytest.importorskip("albumentations")
    rng = np.random.default_rng(12)
    for name, flag in FILTERS.items():
        for _ in range(20):
            factor = float(rng.uniform(0.3, 2.5))
            image = noise(rng, *(int(n) for n in rng.integers(4, 90, 2)))
            theirs = A.RandomScale((factor - 1, factor - 1), flag, p=1)(image=image)["image"]
            limits = [1 + limit for limit in (factor - 1, factor - 1)]
            assert np.array_equal(O.RandomScale(limits, name)(image), theirs), (image.shape, factor)
    drawn = {O.RandomScale((0.5, 2), p=0.5)(image, seed).shape for seed in range(60)}
    assert len(drawn) > 20


def test_transforms_are_values_that_survive_a_plan() -> None:
    for transform in (
        O.RandomBrightnessContrast((-0.1, 0.2), (0.0, 0.3), False),
        O.HueSaturationValue((1, 2), (3, 4), (5, 6)),
        O.OpenCvColorJitter(hue=(-0.1, 0.1)),
        O.CoarseDropout((1, 3), (0.1, 0.2), (0.1, 0.2), (1, 2, 3)),
        O.NormalizeByReciprocal([1.0, 2.0, 3.0], [4.0]),
        O.OpenCvAffine(),
        O.OpenCvAffine(
            ((0.5, 1), (1, 2)), True, True, ((0, 0.1), (-0.1, 0)), None, (-9, 8), border="reflect"
        ),
        O.OpenCvAffine(translate_px=((-3, 4), (0, 0)), shear=((1, 2), (3, 4)), fit=True, fill=(1, 2, 3)),
        O.RandomScale((0.5, 1.5), "opencv-area", 0.25),
    ):
        assert T.Transform.from_plan(transform.to_plan()) == transform
        assert eval(repr(transform), vars(O)) == transform
        with pytest.raises(TypeError, match="torchvision has none"):
            transform.as_torchvision(None)
    with pytest.raises(ValueError, match="low must not exceed high"):
        O.HueSaturationValue((2, 1))
    with pytest.raises(wf.WellfedError, match="must be 3"):
        O.HueSaturationValue()(np.zeros((2, 2, 1), np.uint8))


# Files.


def jpeg(image: Image.Image, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def read(path: Path) -> Any:
    return images(
        wf.image_files([path]).with_options(mode="OPENCV", exif_orientation=True, layout="NHWC").batch(1)
    )


def test_jpegs_are_what_imread_gives(tmp_path: Path) -> None:
    rng = np.random.default_rng(13)
    picture = Image.fromarray(cv2.GaussianBlur(noise(rng, 45, 61), (5, 5), 2))
    path = tmp_path / "a.jpg"
    files = [
        jpeg(picture, subsampling=s, progressive=p, quality=q)
        for s in (0, 1, 2)
        for p in (0, 1)
        for q in (30, 95)
    ]
    files.append(jpeg(picture.convert("L")))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        files.append(jpeg(picture, exif=exif))
    for data in files:
        path.write_bytes(data)
        theirs = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        assert np.array_equal(read(path), theirs)


def test_files_of_which_opencv_makes_something_else_are_refused(tmp_path: Path) -> None:
    picture = Image.fromarray(noise(np.random.default_rng(14), 20, 30))
    (tmp_path / "inks.jpg").write_bytes(jpeg(picture.convert("CMYK")))
    picture.save(tmp_path / "a.png")
    for name in ("inks.jpg", "a.png"):
        with pytest.raises(wf.WellfedError, match="what OpenCV reads of this kind"):
            read(tmp_path / name)
