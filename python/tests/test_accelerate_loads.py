"""Libraries that load an image right after opening it: what they give stays lazy, and is what it was."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from pictures import picture
from torch_same import same
from wellfed._accelerate import loads
from wellfed._accelerate.images import pillow, sparing

torch = pytest.importorskip("torch")
hf = pytest.importorskip("datasets")
wds = pytest.importorskip("webdataset")

from torchvision import transforms  # noqa: E402
from webdataset.autodecode import ImageHandler, imagespecs  # noqa: E402


def saved(mode: str, kind: str, orientation: int = 0, **options: Any) -> bytes:
    image = Image.fromarray(picture(1, 37, 50, 3)).convert(mode)
    if orientation:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def broken() -> dict[str, bytes]:
    jpeg, png = saved("RGB", "JPEG"), saved("RGB", "PNG")
    return {"cut.jpg": jpeg[: len(jpeg) // 2], "cut.png": png[: len(png) // 2], "none.jpg": b"none"}


FILES = {
    "rgb.jpg": saved("RGB", "JPEG"),
    "grey.jpg": saved("L", "JPEG"),
    "cmyk.jpg": saved("CMYK", "JPEG"),
    "progressive.jpg": saved("RGB", "JPEG", progressive=True),
    "rgb.png": saved("RGB", "PNG"),
    "grey.png": saved("L", "PNG"),
    "alpha.png": saved("RGBA", "PNG"),
    "palette.png": saved("P", "PNG"),
    "image.bmp": saved("RGB", "BMP"),
    **{f"turned{i}.jpg": saved("RGB", "JPEG", i) for i in range(1, 9)},
    **{f"turned{i}.png": saved("RGB", "PNG", i) for i in (1, 3, 6)},
}


def seen(image: Image.Image) -> Any:
    """All that can be seen of an image."""
    about = (image.mode, image.size, image.format, sorted(map(str, image.info)), dict(image.getexif()))
    return about, np.asarray(image).tolist()


@pytest.mark.parametrize("mode", [None, "RGB", "L"])
@pytest.mark.parametrize("by_path", [False, True])
def test_images_of_hugging_face_are_what_they_were(tmp_path: Path, mode: str | None, by_path: bool) -> None:
    feature = hf.Image(mode=mode)
    lazy = set()
    for name, data in FILES.items():
        (tmp_path / name).write_bytes(data)
        value = {"bytes": None if by_path else data, "path": str(tmp_path / name)}
        expected = seen(feature.decode_example(dict(value)))
        with wf.accelerate():
            image = feature.decode_example(dict(value))
            if type(image) in pillow().kinds:
                lazy.add(name)
            assert seen(image) == expected, name
    # An image that was turned upright is one of colour, of which grey is Pillow's to make.
    upright = set() if mode == "L" else {"turned1.jpg", "turned6.jpg", "turned1.png"}
    assert {"rgb.jpg", "grey.jpg", "rgb.png", *upright} <= lazy


@pytest.mark.parametrize("spec", sorted(imagespecs))
def test_images_of_webdataset_are_what_they_were(spec: str) -> None:
    handler = ImageHandler(spec)
    for name, data in FILES.items():
        expected = handler(f".{name}", data)
        with wf.accelerate():
            given = handler(f".{name}", data)
        if isinstance(expected, Image.Image):
            assert np.array_equal(np.asarray(given), np.asarray(expected)), name
            assert (given.mode, given.size) == (expected.mode, expected.size)
        else:
            assert same([expected], [given]), name


@pytest.mark.parametrize(
    "make",
    [
        lambda d: hf.Image().decode_example({"bytes": d, "path": None}),
        lambda d: ImageHandler("pil")(".jpg", d),
    ],
)
def test_files_that_pillow_refuses_raise_its_errors_at_once(make: Callable[[bytes], Any]) -> None:
    for name, data in broken().items():
        with pytest.raises(Exception) as expected:
            make(data)
        with wf.accelerate(), pytest.raises(type(expected.value)) as given:
            make(data)
        # Addresses differ.
        assert str(given.value).partition("0x")[0] == str(expected.value).partition("0x")[0], name


def test_loads_are_spared_nowhere_else() -> None:
    with wf.accelerate():
        image = Image.open(io.BytesIO(FILES["rgb.jpg"]))
        hf.Image().decode_example({"bytes": FILES["rgb.jpg"], "path": None})
        assert image.load() is not None
        assert type(image) not in pillow().kinds
        with pytest.raises(KeyError):
            hf.Image().decode_example({})
        assert sparing.depth == 0
        others: list[int] = []
        sparing.depth = 1
        thread = threading.Thread(target=lambda: others.append(sparing.depth))
        thread.start()
        thread.join()
        sparing.depth = 0
        assert others == [0]


def test_versions_that_are_not_known_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    original = hf.Image.decode_example
    monkeypatch.setattr(hf, "__version__", "99.0")
    with wf.accelerate():
        assert hf.features.image.Image.decode_example is original
    monkeypatch.undo()
    with wf.accelerate():
        assert hf.features.image.Image.decode_example is not original
    assert hf.features.image.Image.decode_example is original
    assert loads.OF_LIBRARIES


def transformed(rows: Any) -> Any:
    chain = transforms.Compose([transforms.Resize((16, 20)), transforms.ToTensor()])
    return {"x": [chain(image.convert("RGB")) for image in rows["image"]], "y": rows["y"]}


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_with_a_transform_are_those_of_the_stock_loader(workers: int) -> None:
    from torch.utils.data import DataLoader as Stock

    from wellfed.torch import DataLoader

    rows = [{"bytes": data, "path": None} for data in FILES.values()]
    table = hf.Dataset.from_dict({"image": rows, "y": list(range(len(rows)))}).cast_column(
        "image", hf.Image()
    )
    for data in (table.with_transform(transformed), table.shuffle(seed=1).with_transform(transformed)):
        batches = []
        for kind in (Stock, DataLoader):
            torch.manual_seed(0)
            batches.append(list(kind(data, batch_size=4, shuffle=True, num_workers=workers)))
        assert same(*batches)
