"""Images that the device finishes: the same bits as without, by the kernels on the host and on a device."""

from __future__ import annotations

import io
import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import wellfed as wf
from wellfed import transforms as T
from wellfed._loader import Loader, torch_converter
from wellfed._options import left_to
from wellfed.torch._left import LeftImages

gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: what it makes is not compared"
)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    """JPEGs of several samplings, a progressive one, a grey one, a CMYK one, and a PNG."""
    root = tmp_path_factory.mktemp("photos")
    draw = random.Random(1)
    for k in range(24):
        width, height = draw.randrange(30, 200), draw.randrange(30, 200)
        noise = np.random.default_rng(k).integers(0, 256, (8, 8, 3), np.uint8)
        image = Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC)
        mode = {20: "L", 21: "CMYK"}.get(k, "RGB")
        folder = root / f"class_{k % 2}"
        folder.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        if k == 22:
            image.save(buffer, "PNG")
        else:
            extra: dict[str, Any] = {} if mode == "CMYK" else {"subsampling": k % 3} if mode == "RGB" else {}
            image.convert(mode).save(buffer, "JPEG", quality=60 + k, progressive=k % 5 == 4, **extra)
        (folder / f"{k:02d}.{'png' if k == 22 else 'jpg'}").write_bytes(buffer.getvalue())
    return str(root)


ENDS = [
    [],
    [T.ToTensor(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.3))],
    [T.ToDtype("bfloat16", scale=True)],
]
STEPS = [
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip()],
    [T.Resize(40, interpolation="bicubic"), T.CenterCrop((24, 36)), T.RandomVerticalFlip()],
    [T.ColorJitter(0.3, 0.3), T.Resize((20, 50))],
]
FOLLOWS: list[tuple[list[T.Transform], str]] = [
    ([T.RandomResizedCrop(32), T.GaussianBlur(5)], "RandomResizedCrop + GaussianBlur"),
    (
        [T.RandomResizedCrop((30, 41)), T.RandomRotation(30, "bilinear", fill=9), T.RandomHorizontalFlip()],
        "RandomResizedCrop + RandomRotation + RandomHorizontalFlip",
    ),
    (
        [
            T.Resize((40, 35)),
            T.RandomAffine(9, (0.1, 0.2), (0.8, 1.2), 5, "bicubic"),
            T.ColorJitter(0.3, 0.3, 0.3, 0.1),
            T.RandomCrop((30, 33), 2),
            T.RandomApply([T.GaussianBlur((3, 5))], 0.5),
        ],
        "Resize + RandomAffine + ColorJitter + RandomCrop + RandomApply",
    ),
    ([T.RandomResizedCrop(28), T.RandAugment()], "RandomResizedCrop + RandAugment"),
    ([T.CenterCrop(28), T.Grayscale(3), T.Resize((33, 20))], "CenterCrop + Grayscale + Resize"),
    # Before the resize images differ in size, and stay on the host.
    ([T.ColorJitter(0.5), T.Resize((20, 20)), T.RandomInvert()], "Resize + RandomInvert"),
]
"""Transforms, and those of them that are left to the device."""


def loader_of(dataset: Any, kind: str, **options: Any) -> Loader:
    """Batches that are left to a device, before they are."""
    return Loader(left_to(dataset.with_options(**options), "cuda", kind), torch_converter(), "torch", None)


@pytest.mark.parametrize("kind", ["resize", "decode", "auto"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("cached", [False, True])
def test_the_kernels_make_the_same_bits(photos: str, kind: str, layout: Any, cached: bool) -> None:
    source = wf.image_folder(photos)
    for steps, end in itertools.product(STEPS, ENDS):
        dataset = (source.cache() if cached else source).shuffle(seed=5).map(*steps, *end).batch(7)
        plain, left = dataset.torch(layout=layout), loader_of(dataset, kind, layout=layout)
        for epoch in range(2):
            if kind == "auto":
                # Half of the images in the first epoch, all of them in the second.
                left._share._apply(0.5 + epoch / 2)
            plain.set_epoch(epoch)
            left.set_epoch(epoch)
            for (wanted, labels), (images, others) in zip(plain, left, strict=True):
                assert isinstance(images, LeftImages)
                made = images.to("cpu")
                assert made.shape == wanted.shape
                assert made.dtype == wanted.dtype
                assert torch.equal(made, wanted)
                assert torch.equal(labels, others)


@pytest.mark.parametrize("kind", ["resize", "decode", "auto"])
@pytest.mark.parametrize("erased", [False, True])
@pytest.mark.usefixtures("epochs_not_counted")
def test_what_follows_the_first_geometry_is_left_too(photos: str, kind: str, erased: bool) -> None:
    for number, ((steps, names), end) in enumerate(itertools.product(FOLLOWS, ENDS)):
        last = [T.RandomErasing(0.7, value="random" if end == ENDS[1] else 3)] if erased else []
        dataset = wf.image_folder(photos).shuffle(seed=number).map(*steps, *end, *last).batch(7)
        layout: Any = ["NCHW", "NHWC"][number % 2]
        plain, left = dataset.torch(layout=layout), loader_of(dataset, kind, layout=layout)
        assert names in left.explain().split("on the device")[0], left.explain()
        if kind == "auto":
            left._share._apply(0.5)
        for (wanted, labels), (images, others) in zip(plain, left, strict=True):
            assert isinstance(images, LeftImages)
            made = images.to("cpu")
            assert made.dtype == wanted.dtype
            assert made.shape == wanted.shape
            assert torch.equal(made, wanted), (steps, end)
            assert torch.equal(labels, others)


def test_what_chooses_the_share_knows_how_many_batches_are_made_ahead(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.Resize((20, 20))).batch(2)
    assert loader_of(dataset, "auto", prefetch=3)._share._ahead() == 3


@pytest.mark.usefixtures("epochs_not_counted")
def test_pixels_of_one_size_are_left_from_the_first_transform_on() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (20, 32, 30, 3), np.uint8)
    steps = [T.GaussianBlur(3), T.RandomRotation(20), T.RandomCrop(28, 4), T.ToDtype("float32", scale=True)]
    dataset = wf.from_tensor_slices(pixels, pixels="hwc").shuffle(seed=1).map(*steps).batch(6)
    left = loader_of(dataset, "resize")
    assert "GaussianBlur + RandomRotation + RandomCrop + ToDtype -> batch, on the device" in left.explain()
    for wanted, images in zip(dataset.torch(), left, strict=True):
        assert torch.equal(images.to("cpu"), wanted)


@pytest.mark.usefixtures("epochs_not_counted")
def test_modes_with_alpha_and_grey_images_give_the_same_bits(photos: str) -> None:
    for mode in ("L", "RGBA", "OPENCV"):
        steps = [T.RandomResizedCrop(24), T.RandomRotation(20), T.GaussianBlur(3)]
        dataset = (
            wf.image_folder(photos)
            .with_options(mode=mode, on_error="skip")
            .shuffle(seed=2)
            .map(*steps)
            .batch(8)
        )
        left = loader_of(dataset, "decode")
        for (wanted, _), (images, _) in zip(dataset.torch(), left, strict=True):
            assert torch.equal(images.to("cpu"), wanted), mode


MIXES: list[list[T.Transform]] = [
    [T.MixUp(num_classes=2)],
    [T.CutMix(num_classes=2)],
    [T.RandomChoice([T.MixUp(num_classes=2), T.CutMix(num_classes=2)])],
    [T.RandomApply([T.CutMix(num_classes=2)], 0.5), T.MixUp(alpha=0.3, num_classes=2)],
]


@pytest.mark.parametrize("mixing", MIXES, ids=str)
def test_batches_are_mixed_where_they_are_finished(photos: str, mixing: list[T.Transform]) -> None:
    layouts: list[Any] = ["NCHW", "NHWC"]
    for number, dtype in enumerate(["float32", "float16", "bfloat16"]):
        steps = [T.RandomResizedCrop((23, 30)), T.GaussianBlur(3), T.ToDtype(dtype, scale=True)]
        dataset = wf.image_folder(photos).shuffle(seed=number).map(*steps).batch(7).map(*mixing)
        layout = layouts[number % 2]
        plain, left = dataset.torch(layout=layout), loader_of(dataset, "decode", layout=layout)
        for epoch in range(2):
            plain.set_epoch(epoch)
            left.set_epoch(epoch)
            for (wanted, labels), (images, others) in zip(plain, left, strict=True):
                assert isinstance(images, LeftImages)
                assert torch.equal(images.to("cpu"), wanted)
                assert torch.equal(labels, others)
                assert labels.dtype == others.dtype


@pytest.mark.usefixtures("epochs_not_counted")
def test_bad_samples_are_skipped_before_a_batch_is_mixed(photos: str, tmp_path: Path) -> None:
    for number, path in enumerate(sorted(Path(photos).glob("*/*.jpg"))[:9]):
        folder = tmp_path / str(number % 3)
        folder.mkdir(exist_ok=True)
        whole = path.read_bytes()
        (folder / f"{number}.jpg").write_bytes(whole[: len(whole) // 2] if number == 4 else whole)
    steps = [T.Resize((8, 8)), T.ToTensor()]
    dataset = wf.image_folder(str(tmp_path)).map(*steps).batch(5).map(T.CutMix(num_classes=3))
    dataset = dataset.with_options(on_error="skip")
    left = loader_of(dataset, "decode")
    for (wanted, labels), (images, others) in zip(dataset.torch(), left, strict=True):
        assert torch.equal(images.to("cpu"), wanted)
        assert torch.equal(labels, others)
    assert [bad.stage for bad in left.errors()] == ["decode"]


def test_states_are_the_same_with_and_without(photos: str) -> None:
    dataset = wf.image_folder(photos).shuffle(seed=5).map(T.RandomResizedCrop(16)).batch(5)
    plain, left = dataset.torch(), loader_of(dataset, "decode")
    ahead = iter(plain)
    next(ahead)
    left.load_state_dict(plain.state_dict())
    for (wanted, _), (images, _) in zip(ahead, left, strict=True):
        assert torch.equal(images.to("cpu"), wanted)


def test_what_devices_do_not_run_stays_on_the_host(photos: str) -> None:
    source = wf.image_folder(photos)
    noisy = source.map(T.Resize((8, 8)), T.ToTensor(), T.GaussianNoise()).batch(4)
    plain = [images for images, _ in noisy.torch()]
    left = loader_of(noisy, "decode")
    left.set_epoch(0)
    for (images, _), wanted in zip(left, plain, strict=True):
        assert torch.equal(images, wanted)
    assert "not possible" in left.explain()


def test_explain_says_what_is_left(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.RandomResizedCrop(16)).batch(5)
    text = loader_of(dataset, "decode").explain()
    assert "decode (all but Huffman codes) + RandomResizedCrop -> batch, on the device" in text


@pytest.mark.usefixtures("epochs_not_counted")
def test_it_is_counted_who_decodes(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.RandomResizedCrop(16)).batch(5)
    for kind, cpu, device in [("resize", 24, 0), ("decode", 2, 22)]:
        left = loader_of(dataset, kind)
        assert left.stats()["decoded"] == {"cpu": 0, "device": 0, "nvjpeg": 0}
        for images, _ in left:
            images.to("cpu")
        # A PNG, and the inks of a CMYK file, are the CPU's.
        assert left.stats()["decoded"] == {"cpu": cpu, "device": device, "nvjpeg": 0}
        said = f"images decoded by the CPU {cpu}, by the device's kernels {device}, by nvJPEG 0"
        assert said in left.explain(analyze=True)
        assert said not in left.explain()
    plain = dataset.torch()
    next(iter(plain))
    assert "decoded" not in plain.stats()
    assert "decoded by" not in plain.explain(analyze=True)


def test_wrong_use_is_told() -> None:
    dataset = wf.from_tensor_slices(np.zeros((4, 2), np.uint8)).batch(2)
    with pytest.raises(ValueError, match="on_device is 'gpu'; it is one of"):
        dataset.torch("cuda", on_device="gpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'hint: torch\(device="cuda"'):
        dataset.torch(on_device="decode")
    with pytest.raises(ValueError, match="has Python steps"):
        dataset.map(lambda x: x).torch("cuda", on_device="decode")


def test_a_bad_image_is_a_bad_sample(photos: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    whole = next(iter(Path(photos).glob("class_0/00.jpg"))).read_bytes()
    (tmp_path / "a" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "a" / "1.jpg").write_bytes(whole)
    dataset = wf.image_folder(str(tmp_path)).map(T.Resize((8, 8))).batch(2)
    left = loader_of(dataset, "decode", on_error="skip")
    ((images, _),) = list(left)
    assert images.to("cpu").shape == (1, 3, 8, 8)
    assert [bad.stage for bad in left.errors()] == ["decode"]


@gpu
@pytest.mark.parametrize("kind", ["resize", "decode"])
def test_a_device_makes_the_same_bits(photos: str, kind: Any) -> None:
    source = wf.image_folder(photos)
    for steps, end in itertools.product(STEPS, ENDS):
        for cached in (False, True):
            dataset = (source.cache() if cached else source).shuffle(seed=5).map(*steps, *end).batch(7)
            plain, left = dataset.torch(), dataset.torch("cuda", on_device=kind)
            for epoch in range(2):
                plain.set_epoch(epoch)
                left.set_epoch(epoch)
                for (wanted, _), (images, _) in zip(plain, left, strict=True):
                    assert images.is_cuda
                    assert torch.equal(images.cpu(), wanted)
