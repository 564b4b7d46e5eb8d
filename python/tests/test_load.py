"""`wellfed.load`: what a file holds, by its extension."""

from __future__ import annotations

import io
import json
import pickle
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torchvision import transforms as v1  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    image = Image.fromarray(pixels)
    for name in ("a.jpg", "a.JPEG", "a.png", "a.seg.bmp", "a.gif", "a.tiff", "a.webp"):
        image.save(tmp_path / name)
    image.quantize(5).save(tmp_path / "mask.png")
    np.save(tmp_path / "tokens.npy", np.arange(12, dtype=np.uint16).reshape(3, 4))
    (tmp_path / "a.json").write_text(json.dumps({"é": [1, None]}))
    (tmp_path / "a.txt").write_bytes("grüß\r\n".encode())
    (tmp_path / "a.cls").write_text(" 17\n")
    (tmp_path / "a.bin").write_bytes(b"\0\xff")
    (tmp_path / "none").write_bytes(b"no extension")
    return tmp_path


def test_each_kind_is_what_its_extension_says(folder: Path) -> None:
    for name in ("a.jpg", "a.JPEG", "a.png", "a.seg.bmp", "a.gif", "a.tiff", "a.webp"):
        loaded = wf.load(folder / name)
        with Image.open(folder / name) as image:
            assert (np.asarray(loaded) == np.asarray(image.convert("RGB"))).all(), name
    tokens = wf.load(str(folder / "tokens.npy"))
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert wf.load(folder / "a.json") == {"é": [1, None]}
    assert wf.load(folder / "a.txt") == "grüß\r\n"
    assert wf.load(folder / "a.cls") == 17
    assert wf.load(folder / "a.bin") == b"\0\xff"
    assert wf.load(folder / "none") == b"no extension"


def test_it_is_what_a_shard_of_these_files_gives(folder: Path, tmp_path: Path) -> None:
    names = ["a.png", "a.json", "a.txt", "a.cls", "a.bin"]
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name in names:
            tar.add(folder / name, name)
        tar.add(folder / "tokens.npy", "a.npy")
    fields = [*(name[2:] for name in names), "npy"]
    [sample] = wf.webdataset(str(tmp_path / "a.tar"), fields=fields)
    ours = [wf.load(folder / name) for name in [*names, "tokens.npy"]]
    image, *others, tokens = sample
    assert (np.asarray(image).transpose(1, 2, 0) == np.asarray(ours[0])).all()
    for other, one in zip(others, ours[1:-1], strict=True):
        assert (other if isinstance(other, str | bytes | dict) else int(other)) == one
    assert np.array_equal(np.asarray(tokens), ours[-1])


def test_masks_keep_their_classes_without_a_mode(folder: Path) -> None:
    mask = wf.load(folder / "mask.png", mode=None)
    assert mask.mode == "P"
    with Image.open(folder / "mask.png") as image:
        assert (np.asarray(mask) == np.asarray(image)).all()
    assert int(np.asarray(mask).max()) < 5
    tensor = wf.load(folder / "mask.png", v1.PILToTensor(), mode=None)
    assert torch.equal(tensor[0], torch.from_numpy(np.asarray(mask).copy()))
    assert wf.load(folder / "mask.png", mode="L").mode == "L"


def test_transforms_are_done_and_draw_as_in_decode(folder: Path) -> None:
    steps = [v1.RandomCrop(20), v1.ToTensor()]
    made = wf.load(folder / "a.jpg", steps, generator=torch.Generator().manual_seed(3))
    same = wf.decode(folder / "a.jpg", steps, generator=torch.Generator().manual_seed(3))
    assert torch.equal(made, same)
    state = torch.get_rng_state()
    generator = torch.Generator().manual_seed(3)
    noisy: Any = [torch.from_numpy, lambda tokens: tokens.long() + torch.randint(0, 9, tokens.shape)]
    once = wf.load(folder / "tokens.npy", noisy, generator=generator)
    again = wf.load(folder / "tokens.npy", noisy, generator=generator)
    assert not torch.equal(once, again)
    assert torch.equal(torch.get_rng_state(), state)
    assert wf.load(folder / "a.txt", str.strip) == "grüß"
    assert wf.load(folder / "a.txt", []) == "grüß\r\n"


def test_errors_are_those_of_the_readers_and_name_the_file(folder: Path) -> None:
    (folder / "bad.json").write_text("{")
    (folder / "bad.txt").write_bytes(b"\xff")
    (folder / "bad.cls").write_text("three")
    (folder / "bad.jpg").write_text("no image")
    buffer = io.BytesIO()
    np.save(buffer, np.array([{"a": 1}], object), allow_pickle=True)
    (folder / "bad.npy").write_bytes(buffer.getvalue())
    (folder / "pickle.npy").write_bytes(pickle.dumps(print))
    for name, error in (
        ("bad.json", json.JSONDecodeError),
        ("bad.txt", UnicodeDecodeError),
        ("bad.cls", ValueError),
        ("bad.jpg", OSError),
        ("bad.npy", ValueError),
        ("pickle.npy", ValueError),
        ("missing.txt", FileNotFoundError),
        ("missing.png", FileNotFoundError),
    ):
        for mode in ("RGB", None):
            with pytest.raises(error) as raised:
                wf.load(folder / name, mode=mode)
            if sys.version_info >= (3, 11):
                assert any(name in note for note in raised.value.__notes__), name
    with pytest.raises(TypeError, match=r"wf\.decode takes bytes"):
        wf.load(b"bytes")  # type: ignore[arg-type]
