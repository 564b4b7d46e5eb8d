"""The demo's generated photographs, its bookkeeping and its picture."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="the demo needs Pillow")

from PIL import Image

from wellfed import _demo, _demo_picture, _photos


def _contents(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.glob("*/*.jpg"))}


def test_photos_are_the_same_every_time(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    first = _photos.generate_photos(tmp_path / "a", 24, 3, seed=5, progress=lambda *at: calls.append(at))
    second = _photos.generate_photos(tmp_path / "b", 24, 3, seed=5, progress=None)
    other = _photos.generate_photos(tmp_path / "c", 24, 3, seed=6, progress=None)
    assert _contents(first) == _contents(second)
    assert _contents(first) != _contents(other)
    assert calls == [(k, 24) for k in range(1, 25)]
    assert {p.name: len(list(p.iterdir())) for p in first.iterdir() if p.is_dir()} == {
        "bricks": 8,
        "clouds": 8,
        "foliage": 8,
    }


def test_photos_that_are_there_are_kept_and_others_replaced(tmp_path: Path) -> None:
    root = _photos.generate_photos(tmp_path, 6, 2, progress=None)
    before = {p: p.stat().st_mtime_ns for p in root.glob("*/*.jpg")}
    _photos.generate_photos(tmp_path, 6, 2, progress=None)
    assert before == {p: p.stat().st_mtime_ns for p in root.glob("*/*.jpg")}
    _photos.generate_photos(tmp_path, 4, 2, progress=None)
    assert len(list(root.glob("*/*.jpg"))) == 4


def test_photos_resemble_imagenet_in_what_a_loader_sees(tmp_path: Path) -> None:
    root = _photos.generate_photos(tmp_path, 200, progress=None)
    size = pixels = width = height = 0
    modes = set()
    for path in root.glob("*/*.jpg"):
        with Image.open(path) as image:
            image.load()
            modes.add(image.mode)
            width, height = width + image.width, height + image.height
            pixels += image.width * image.height
        size += path.stat().st_size
    assert 0.5 < size / pixels < 0.7
    assert 440 < width / 200 < 495
    assert 375 < height / 200 < 430
    assert modes <= {"RGB", "L"}


@pytest.mark.parametrize(("count", "classes"), [(5, 0), (5, 11), (-1, 3)])
def test_photos_refuse_what_they_cannot_make(tmp_path: Path, count: int, classes: int) -> None:
    with pytest.raises(ValueError, match="classes must be"):
        _photos.generate_photos(tmp_path, count, classes)


def test_a_run_books_waiting_and_computing_apart() -> None:
    run = _demo.Run("x", steps=[(0.3, 0.1), (0.1, 0.5)], samples=20)
    assert run.seconds == pytest.approx(1.0)
    assert run.share == pytest.approx(0.4)
    assert run.rate == pytest.approx(20.0)
    assert _demo.Run("empty").rate == 0.0
    assert "40 %" in _demo.table([run])


def test_the_picture_shows_both_colours(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "timeline.png"
    slow, fast = [(0.06, 0.04)] * 30, [(0.001, 0.03)] * 30
    _demo_picture.draw(path, [("slow", slow, 640.0), ("fast", fast, 2000.0)])
    with Image.open(path) as image:
        colors = {color for _, color in image.getcolors(1 << 24) or []}
    assert {(0x2F, 0x7F, 0x79), (0xEF, 0x7B, 0x45)} <= colors


def test_a_picture_of_nothing_is_not_drawn(tmp_path: Path) -> None:
    _demo_picture.draw(tmp_path / "none.png", [("idle", [], 0.0)])
    assert not (tmp_path / "none.png").exists()


def test_the_demo_refuses_too_few_photographs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _demo.main(["--count", "3"])
    assert "--count is too small" in capsys.readouterr().err
