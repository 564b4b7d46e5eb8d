"""`wellfed.decode`: what Pillow and torchvision give of a file."""

from __future__ import annotations

import io
import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

import wellfed as wf
from wellfed import _accelerate
from wellfed._accelerate.images import pillow

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision.transforms as v1  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

MEAN, STD = wf.IMAGENET_MEAN, wf.IMAGENET_STD


def _file(kind: str, mode: str = "RGB") -> bytes:
    pixels = np.random.default_rng(1).integers(0, 256, (83, 61, len(mode)), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode).save(file, kind)
    return file.getvalue()


FILES = {
    "rgb.jpg": _file("JPEG"),
    "grey.jpg": _file("JPEG", "L"),
    "cmyk.jpg": _file("JPEG", "CMYK"),
    "rgb.png": _file("PNG"),
    "alpha.png": _file("PNG", "RGBA"),
    "image.gif": _file("GIF", "L"),
    "image.bmp": _file("BMP"),
}
FILES["cut.jpg"] = FILES["rgb.jpg"][:2000]
FILES["none.jpg"] = b"no image"


def _transforms(rng: random.Random) -> Any:
    """Random transforms of v1 or v2, as one, a list, a tuple or a `Compose`."""
    of: Any = rng.choice([v1, v2])
    steps = rng.sample(
        [of.RandomResizedCrop(32), of.RandomHorizontalFlip(), of.Resize(40), of.CenterCrop(30), of.Pad(3)],
        rng.randint(0, 3),
    )
    if rng.random() < 0.2:
        steps.append(of.ColorJitter(0.4))
    if rng.random() < 0.7:
        steps += [v1.ToTensor()] if of is v1 else [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
        if rng.random() < 0.7:
            steps.append(of.Normalize(*rng.choice([(MEAN, STD), ([0.5], [0.3])])))
    if len(steps) == 1 and rng.random() < 0.5:
        return steps[0]
    return rng.choice([list, tuple, of.Compose])(steps) if steps else rng.choice([None, []])


def _applied(transforms: Any, image: Any) -> Any:
    if transforms is None:
        return image
    for step in transforms if isinstance(transforms, (list, tuple)) else [transforms]:
        image = step(image)
    return image


def _outcome(do: Any) -> tuple[Any, Any]:
    try:
        return do(), None
    except Exception as error:
        return None, error


@pytest.mark.parametrize("seed", range(120))
def test_it_gives_what_pillow_and_torchvision_give(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    name = rng.choice([*FILES])
    mode = rng.choice(["RGB", "RGB", "L", "RGBA"])
    transforms = _transforms(rng)
    path = tmp_path / name
    path.write_bytes(FILES[name])
    source = rng.choice([path, str(path), FILES[name]])
    own = torch.Generator().manual_seed(seed) if rng.random() < 0.5 else None
    torch.manual_seed(seed)
    theirs, their_error = _outcome(
        lambda: _applied(transforms, Image.open(io.BytesIO(FILES[name])).convert(mode))
    )
    draws = torch.rand(3)
    torch.manual_seed(-1 if own else seed)
    ours, our_error = _outcome(lambda: wf.decode(source, transforms, mode=mode, generator=own))
    what = f"{name} {mode} {transforms}"
    assert torch.equal(torch.rand(3, generator=own), draws), f"{what}: other draws"
    assert type(our_error) is type(their_error), f"{what}: {our_error!r} {their_error!r}"
    if isinstance(theirs, torch.Tensor):
        assert type(ours) is type(theirs), what
        assert ours.dtype is theirs.dtype, what
        assert torch.equal(ours, theirs), what
    elif their_error is None:
        assert (ours.mode, ours.size) == (theirs.mode, theirs.size), what
        assert ours.tobytes() == theirs.tobytes(), what


def test_wellfeds_own_transforms_are_run(tmp_path: Path) -> None:
    from wellfed import transforms as T

    steps = [T.CenterCrop(32), T.ToTensor(), T.Normalize(MEAN, STD)]
    expected = T.Compose(steps)(Image.open(io.BytesIO(FILES["rgb.jpg"])))
    for given in (steps, T.Compose(steps)):
        assert torch.equal(wf.decode(FILES["rgb.jpg"], given), expected)


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.jpg"
    path.write_bytes(FILES["cut.jpg"])
    noted = sys.version_info >= (3, 11)
    with pytest.raises(OSError, match="truncated") as cut:
        wf.decode(path, v1.ToTensor())
    assert not noted or str(path) in str(cut.value.__notes__)
    with pytest.raises(UnidentifiedImageError) as none:
        wf.decode(b"no image")
    assert not noted or "8 bytes" in str(none.value.__notes__)
    with pytest.raises(FileNotFoundError, match="missing"):
        wf.decode(tmp_path / "missing.jpg")
    with pytest.raises(TypeError, match="source is of type int"):
        wf.decode(3)  # type: ignore[arg-type]


def test_nothing_is_replaced_and_no_file_stays_open(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(FILES["rgb.jpg"])
    before = dict(Image.OPEN), v1.Compose.__call__, v1.functional.to_tensor
    image = wf.decode(path)
    assert type(image) in pillow().kinds
    assert (dict(Image.OPEN), v1.Compose.__call__, v1.functional.to_tensor) == before
    path.write_bytes(FILES["grey.jpg"])
    assert image.tobytes() == Image.open(io.BytesIO(FILES["rgb.jpg"])).convert("RGB").tobytes()


def test_other_pillows_do_it_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["PIL"], "__version__", "9.5.0")
    _accelerate.unusable.cache_clear()
    try:
        image = wf.decode(FILES["rgb.jpg"])
        assert type(image) is Image.Image
        assert image.tobytes() == Image.open(io.BytesIO(FILES["rgb.jpg"])).convert("RGB").tobytes()
    finally:
        _accelerate.unusable.cache_clear()


def test_it_goes_with_accelerate() -> None:
    steps = [v1.CenterCrop(32), v1.ToTensor(), v1.Normalize(MEAN, STD)]
    expected = v1.Compose(steps)(Image.open(io.BytesIO(FILES["rgb.jpg"])))
    for _ in range(2):
        with wf.accelerate():
            assert torch.equal(wf.decode(FILES["rgb.jpg"], steps), expected)
        assert torch.equal(wf.decode(FILES["rgb.jpg"], steps), expected)


def test_a_compose_that_is_listened_to_is_heard() -> None:
    steps = v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    heard: list[Any] = []
    steps.register_forward_hook(lambda *given: heard.append(given))
    wf.decode(FILES["rgb.jpg"], steps)
    assert len(heard) == 1


def test_a_generator_of_another_kind_is_refused() -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "PNG")
    with pytest.raises(TypeError, match=r"generator is of type int, but must be a torch\.Generator"):
        wf.decode(file.getvalue(), v1.RandomCrop(4), generator=3)  # type: ignore[arg-type]
