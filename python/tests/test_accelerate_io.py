"""`torchvision.io` under `accelerate()`: its tensors, errors and warnings, of whatever file."""

from __future__ import annotations

import io
import os
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed._accelerate import torchvision_io

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

import torchvision  # noqa: E402
from torchvision.io import ImageReadMode, decode_image, decode_jpeg, read_image  # noqa: E402

pytestmark = [
    pytest.mark.skipif(
        ".".join(torchvision.__version__.split(".")[:2]) not in torchvision_io.TESTED, reason="not known"
    ),
    pytest.mark.filterwarnings("ignore:The image decoding and encoding:DeprecationWarning"),
]


def _image(mode: str, width: int, height: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    waves = [127 + 100 * np.sin(x / (5 + 3 * c)) * np.cos(y / (7 + 2 * c)) for c in range(len(mode))]
    pixels = np.stack(waves, -1) + rng.normal(0, 20, (height, width, len(mode)))
    pixels = pixels.clip(0, 255).astype(np.uint8)
    return Image.fromarray(pixels[:, :, 0] if len(mode) == 1 else pixels, mode)


def _file(mode: str = "RGB", size: tuple[int, int] = (67, 45), kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    _image(mode, *size, seed=size[0]).save(file, kind, **options)
    return file.getvalue()


def _orientation(number: int) -> Any:
    exif = Image.Exif()
    exif[0x0112] = number
    return exif.tobytes()


FILES = {
    "420": _file(),
    "422": _file(subsampling=1),
    "444": _file(subsampling=0, quality=97),
    "progressive": _file(progressive=True, quality=50),
    "restarts": _file(restart_marker_blocks=2),
    "grey": _file("L"),
    "cmyk": _file("CMYK"),
    "1x1": _file(size=(1, 1)),
    "1x70": _file(size=(1, 70)),
    "profile": _file(icc_profile=bytes(300)),
    "png": _file(kind="PNG"),
    "alpha": _file("RGBA", kind="PNG"),
    "gif": _file("L", kind="GIF"),
}
FILES |= {f"orientation {number}": _file(exif=_orientation(number), dpi=(72, 72)) for number in range(1, 9)}
FILES["cut"] = FILES["420"][:900]
FILES["cut end"] = FILES["420"][:-2]
FILES["trailing"] = FILES["420"] + b"more"
FILES["damaged"] = FILES["420"][:800] + bytes(60) + FILES["420"][860:]
FILES["none"] = b"no image"
FILES["empty"] = b""


def _outcome(do: Any) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            made = do()
            said: Any = made.tolist(), made.shape, made.stride(), made.dtype, type(made)
        except Exception as error:
            said = type(error), str(error)
    return said, [(word.category, str(word.message)) for word in caught]


def _same(do: Any, what: str) -> None:
    theirs = _outcome(do)
    with wf.accelerate():
        assert _outcome(do) == theirs, what


@pytest.mark.parametrize("name", FILES)
def test_tensors_are_torchvisions(name: str, tmp_path: Path) -> None:
    path = tmp_path / "image"
    path.write_bytes(FILES[name])
    data = torch.from_numpy(np.frombuffer(FILES[name], np.uint8).copy())
    for mode in ImageReadMode:
        for turned in (False, True):
            what = f"{name}, {mode}, {turned}"
            _same(lambda: read_image(str(path), mode, turned), what)  # noqa: B023
            _same(lambda: decode_image(data, mode, turned), what)  # noqa: B023
            _same(lambda: decode_jpeg(data, mode, apply_exif_orientation=turned), what)  # noqa: B023
    _same(lambda: decode_image(str(path), "RGB"), name)


def test_other_tensors_are_torchvisions() -> None:
    data = torch.from_numpy(np.frombuffer(FILES["420"], np.uint8).copy())
    for other in (
        data.repeat_interleave(2)[::2],
        torch.stack([data, data]),
        data.float(),
        torch.cat([torch.zeros(3, dtype=torch.uint8), data])[3:],
    ):
        _same(lambda: decode_jpeg(other), str(other.shape))  # noqa: B023
    with wf.accelerate():
        both = decode_jpeg([data, data])
    assert torch.equal(both[0], decode_jpeg(data))
    assert torch.equal(both[1], both[0])


def test_jpegs_are_decoded_natively_and_the_operators_given_back() -> None:
    before = torch.ops.image.decode_jpeg, torch.ops.image.decode_image
    data = torch.from_numpy(np.frombuffer(FILES["420"], np.uint8).copy())
    with wf.accelerate():
        replaced = torch.ops.image.decode_image
        assert type(replaced) is torchvision_io.Operator
        assert replaced.default is before[1].default
        assert repr(replaced) == repr(before[1])
        assert torchvision_io._decoded(data, 3) is not None
        tensor = decode_image(data)
        tensor += 1
        assert not torch.equal(tensor, decode_image(data)), "a tensor is one's own"
    assert (torch.ops.image.decode_jpeg, torch.ops.image.decode_image) == before


def test_other_versions_and_other_pixels_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.ops.image.decode_jpeg
    assert torchvision_io.unusable(original) == ""

    def other(data: Any, mode: int, turned: bool) -> Any:
        return original(data, mode, turned) ^ 1

    assert "another JPEG library" in torchvision_io.unusable(other)
    assert torchvision_io.replaced(other) is other
    monkeypatch.setattr(torchvision, "__version__", "0.11.2+cu1")
    torchvision_io.unusable.cache_clear()
    try:
        assert "this is 0.11.2" in torchvision_io.unusable(original)
    finally:
        torchvision_io.unusable.cache_clear()


def test_explain_says_that_it_is_taken_over() -> None:
    from wellfed.torch import DataLoader

    class Photos(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return 1

        def __getitem__(self, i: int) -> Any:
            return decode_jpeg(torch.from_numpy(np.frombuffer(FILES["420"], np.uint8).copy()))

    loader = DataLoader(Photos(), num_workers=1)
    assert "torchvision.io's of JPEG" in loader.explain()
    with wf.accelerate():
        assert "torchvision.io's of JPEG" in loader.explain()
    assert "torchvision.io" not in DataLoader(Photos(), num_workers=1, accelerate=False).explain()
    with warnings.catch_warnings():
        theirs = decode_jpeg(torch.from_numpy(np.frombuffer(FILES["420"], np.uint8).copy()))
    assert all(torch.equal(batch[0], theirs) for batch in loader)


@pytest.mark.skipif("WELLFED_TEST_DATA" not in os.environ, reason="WELLFED_TEST_DATA names no photographs")
def test_photographs_are_torchvisions() -> None:
    paths = sorted(Path(os.environ["WELLFED_TEST_DATA"], "photos").iterdir())
    with warnings.catch_warnings():
        for path in random.Random(1).sample(paths, 20):
            data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
            for mode in (ImageReadMode.UNCHANGED, ImageReadMode.RGB):
                theirs = decode_jpeg(data, mode)
                with wf.accelerate():
                    assert torch.equal(decode_jpeg(data, mode), theirs), path


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning", "ignore:.*torch.jit.*:DeprecationWarning")
@pytest.mark.parametrize("function", [decode_image, decode_jpeg])
def test_functions_that_call_operators_can_be_scripted(function: Any) -> None:
    data = torch.frombuffer(bytearray(FILES["420"]), dtype=torch.uint8)
    expected = function(data)
    for _ in range(2):
        with wf.accelerate():
            assert isinstance(torch.ops.image.decode_jpeg, torchvision_io.Operator)
            scripted = torch.jit.script(function)
            assert torch.equal(scripted(data), expected)
        assert torch.equal(scripted(data), expected)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning", "ignore:.*torch.jit.*:DeprecationWarning")
def test_what_is_recorded_decodes_other_files_too() -> None:
    one, other = (torch.frombuffer(bytearray(FILES[name]), dtype=torch.uint8) for name in ("420", "444"))
    with wf.accelerate():
        traced = torch.jit.trace(lambda data: torch.ops.image.decode_jpeg(data, 3, False), one)
    assert torch.equal(traced(other), decode_jpeg(other, ImageReadMode.RGB))
