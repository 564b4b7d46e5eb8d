"""`cv2.imread` and `cv2.imdecode` under `accelerate`: OpenCV's arrays, decoded natively where that is known."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils.data import Dataset

import wellfed as wf
import wellfed.torch as wt
from wellfed._accelerate import opencv
from wellfed.torch._lower.functions import loads_rgb

cv2 = pytest.importorskip("cv2")

FLAGS = [
    cv2.IMREAD_COLOR,
    cv2.IMREAD_COLOR_RGB,
    cv2.IMREAD_GRAYSCALE,
    cv2.IMREAD_UNCHANGED,
    cv2.IMREAD_IGNORE_ORIENTATION | cv2.IMREAD_COLOR,
    cv2.IMREAD_REDUCED_COLOR_2,
    cv2.IMREAD_ANYDEPTH,
]


def exif(orientation: int, order: str = "<", kind: int = 3) -> bytes:
    head = {"<": b"II*\0", ">": b"MM\0*"}[order]
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    entries = struct.pack(order + "HHI", 0x010F, 3, 1) + bytes(4)
    entries += struct.pack(order + "HHI", 0x0112, kind, 1) + value
    return b"Exif\0\0" + head + struct.pack(order + "IH", 8, 2) + entries + bytes(4)


def files() -> dict[str, bytes]:
    rng = np.random.default_rng(2)
    image = Image.fromarray(cv2.GaussianBlur(rng.integers(0, 256, (47, 61, 3), dtype=np.uint8), (5, 5), 2))
    found = {}

    def add(name: str, of: Image.Image = image, kind: str = "JPEG", **options: Any) -> None:
        file = io.BytesIO()
        of.save(file, kind, **options)
        found[name] = file.getvalue()

    for subsampling in (0, 1, 2):
        for progressive in (False, True):
            add(f"{subsampling}{progressive}", subsampling=subsampling, progressive=progressive, quality=70)
    add("grey", image.convert("L"))
    add("inks", image.convert("CMYK"))
    add("png", image, "PNG")
    add("bmp", image, "BMP")
    add("comment", comment=b"hello", dpi=(30, 30))
    for orientation in (1, 3, 6, 9):
        for order in "<>":
            for kind in (3, 4):
                add(f"turned{orientation}{order}{kind}", exif=exif(orientation, order, kind))
    plain = found["2False"]
    found |= {
        "short": plain[:-300],
        "shorter": plain[:200],
        "damaged": plain[:-200] + bytes(100) + plain[-100:],
        "longer": plain + b"more",
        "empty": b"",
        "start": plain[:3],
        "odd exif": plain[:2] + b"\xff\xe1\0\x0cExif\0\0II*\0" + plain[2:],
        "odd marker": plain[:2] + b"\xff\xff" + plain[2:],
    }
    return found


def equal(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return one.dtype == other.dtype and np.array_equal(one, other) and one.flags == other.flags


@pytest.mark.parametrize("name", sorted(files()))
def test_arrays_are_opencv_s(name: str, tmp_path: Path) -> None:
    data = files()[name]
    path = tmp_path / "file"
    path.write_bytes(data)
    buffer = np.frombuffer(data, np.uint8)

    def read() -> list[Any]:
        calls: list[Any] = [lambda: cv2.imread(str(path)), lambda: cv2.imread(filename=str(path))]
        for flag in FLAGS:
            calls.append(lambda flag=flag: cv2.imread(str(path), flag))
            calls.append(lambda flag=flag: cv2.imread(str(path), flags=flag))
            calls.append(lambda flag=flag: cv2.imdecode(buffer, flag))
        results = []
        for call in calls:
            try:
                results.append(call())
            except cv2.error as error:
                results.append(str(error.code))
        return results

    plain = read()
    with wf.accelerate():
        ours = read()
    for a, b in zip(plain, ours, strict=True):
        assert a == b if isinstance(a, str) else equal(a, b), name


def test_the_engine_does_what_is_known() -> None:
    known = {name for name, data in files().items() if opencv._decoded(cv2, data, 1) is not None}
    plain = {"0False", "0True", "1False", "1True", "2False", "2True", "grey", "comment"}
    # Damage that libjpeg goes on after may be known; what is inside is compared above.
    assert known - {"damaged", "longer"} == plain | {f"turned1{order}3" for order in "<>"}


def test_damaged_files_give_the_same_or_are_opencv_s() -> None:
    rng = np.random.default_rng(4)
    whole = [files()[name] for name in ("0False", "2False", "2True", "grey", "turned1<3")]
    done = 0
    for turn in range(200):
        data = bytearray(whole[turn % len(whole)])
        for place in rng.integers(2 if turn % 3 else 600, len(data) - 40, int(rng.integers(1, 4))):
            if turn % 2:
                data[place] = int(rng.integers(256))
            else:
                del data[place : place + int(rng.integers(1, 20))]
        ours = opencv._decoded(cv2, bytes(data), 1)
        if ours is not None:
            done += 1
            assert equal(ours, cv2.imdecode(np.frombuffer(bytes(data), np.uint8), 1))
    assert done > 50


def test_opencv_is_given_back() -> None:
    before = cv2.imread, cv2.imdecode
    with wf.accelerate():
        assert (cv2.imread, cv2.imdecode) != before
        assert opencv.is_ours(cv2.imread)
        assert loads_rgb(lambda path: cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB))
        with wf.accelerate():
            pass
        assert opencv.is_ours(cv2.imread)
        kept = cv2.imread
    assert (cv2.imread, cv2.imdecode) == before
    assert kept("nowhere.jpg") is None


def test_what_others_put_there_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    # First, so that OpenCV's own is what is put back in the end.
    monkeypatch.setattr(cv2, "imread", cv2.imread)
    with wf.accelerate():
        cv2.imread = len
    assert cv2.imread is len


def test_other_versions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    opencv._known.cache_clear()
    monkeypatch.setattr(cv2, "__version__", "9.1.0")
    before = cv2.imread
    try:
        with wf.accelerate():
            assert cv2.imread is before
    finally:
        opencv._known.cache_clear()


def test_wrong_calls_raise_what_opencv_raises(tmp_path: Path) -> None:
    calls: list[Any] = [
        lambda: cv2.imread(),
        lambda: cv2.imread(3),
        lambda: cv2.imread("a", 1, 2, 3),
        lambda: cv2.imread("a", filename="b"),
        lambda: cv2.imdecode(np.zeros(3, np.uint8)),
        lambda: cv2.imdecode([1, 2], 1),
    ]

    def raised(call: Any) -> Any:
        try:
            return call()
        except Exception as error:
            return type(error), str(error)

    plain = [raised(call) for call in calls]
    with wf.accelerate():
        assert [raised(call) for call in calls] == plain


class Photos(Dataset[Any]):
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        return cv2.imread(self.path), opencv.is_ours(cv2.imread)


@pytest.mark.parametrize("accelerate", [False, True])
def test_worker_processes_switch_it_on(tmp_path: Path, accelerate: bool) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(files()["2False"])
    loader = wt.DataLoader(Photos(path), batch_size=3, num_workers=1, accelerate=accelerate)
    assert ("OpenCV's of JPEG" in loader.explain()) == accelerate
    for images, ours in loader:
        assert (images.numpy() == cv2.imread(str(path))).all()
        assert ours.tolist() == [accelerate] * 3
