"""Row indexes and caches: later epochs are faster and nothing else is different."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import wellfed as wf
from wellfed import transforms as T


@pytest.fixture
def jpegs(tmp_path: Path) -> Path:
    """Two classes of six photographs; one of them is a PNG."""
    rng = np.random.default_rng(0)
    for number in range(12):
        folder = tmp_path / "photos" / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(rng.integers(0, 256, (9, 11, 3), np.uint8))
        image = coarse.resize((150 + 3 * number, 120 - number), Image.Resampling.BICUBIC)
        image.save(folder / (f"{number}.png" if number == 7 else f"{number}.jpg"), quality=88)
    return tmp_path / "photos"


def pipeline(ds: wf.Dataset) -> wf.Dataset:
    return ds.shuffle(seed=5).map(T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()).batch(5)


def epochs(loader: Any, count: int = 3) -> list[np.ndarray]:
    return [array for _ in range(count) for batch in loader for array in batch]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_nothing_differs(jpegs: Path, tmp_path: Path, workers: int) -> None:
    source = wf.image_folder(jpegs)
    expected = epochs(pipeline(source).numpy(row_index="off"))
    for where in ("memory", "beside", tmp_path / "rows"):
        assert same(epochs(pipeline(source).numpy(row_index=where, num_workers=workers)), expected)
    for path in (None, tmp_path / "cache", tmp_path / "cache"):
        loader = pipeline(source.cache(path=path)).numpy(num_workers=workers)
        assert same(epochs(loader), expected)
        stats = loader.stats()["cache"]
        assert (stats["samples"], stats["passed"], stats["left_out"]) == (11, 1, 0)
        assert stats["hits"] >= 15
        loader.close()


@pytest.mark.usefixtures("epochs_not_counted")
def test_the_next_loader_finds_what_an_earlier_one_cached(jpegs: Path) -> None:
    source = wf.image_folder(jpegs)
    cached = source.cache()
    expected = epochs(pipeline(source).numpy(), 1)

    def there(ds: wf.Dataset, **options: Any) -> int:
        """Samples that a new loader finds in its cache, before an epoch that fills it."""
        loader = ds.numpy(**options)
        found: int = loader.stats()["cache"]["samples"]
        assert len(epochs(loader, 1)) == len(expected)
        loader.close()
        return found

    assert there(pipeline(cached)) == 0
    assert same([array for batch in pipeline(cached) for array in batch], expected)
    # Of the same data set, whatever comes after it.
    assert there(pipeline(cached)) == 11
    assert same(epochs(pipeline(cached).numpy(), 1), expected)
    assert there(pipeline(cached.shuffle(seed=1)), num_workers=1) == 11
    # One that is under way keeps its own.
    with pipeline(cached).numpy() as loader:
        batches = iter(loader)
        next(batches)
        assert there(pipeline(cached)) == 0
        assert sum(len(batch[1]) for batch in batches) == 7
    assert there(pipeline(cached)) == 11
    # One that may have less begins anew; one that may have more goes on from there.
    assert there(pipeline(source.cache(max_bytes=30_000))) == 0
    assert there(pipeline(cached)) < 11
    assert there(pipeline(cached)) == 11
    assert there(pipeline(wf.image_folder(jpegs).cache())) == 0


@pytest.mark.usefixtures("epochs_not_counted")
def test_row_indexes_are_kept_and_counted(jpegs: Path) -> None:
    loader = pipeline(wf.image_folder(jpegs)).numpy(row_index="beside")
    first = epochs(loader, 1)
    assert loader.stats()["row_index"]["images"] == 11
    loader.close()
    assert (jpegs / ".wfrows").exists()
    again = pipeline(wf.image_folder(jpegs)).numpy(row_index="beside")
    assert again.stats()["row_index"]["images"] == 11
    assert same(epochs(again, 1), first)
    assert again.stats()["row_index"]["used"] >= 11
    again.close()
    (jpegs / ".wfrows").write_bytes(b"something else")
    assert same(epochs(pipeline(wf.image_folder(jpegs)).numpy(row_index="beside"), 1), first)


@pytest.mark.usefixtures("epochs_not_counted")
def test_a_replaced_file_is_seen(jpegs: Path, tmp_path: Path) -> None:
    def run(cached: bool) -> list[np.ndarray]:
        source = wf.image_folder(jpegs)
        loader = pipeline(source.cache(path=tmp_path / "cache") if cached else source).numpy(
            row_index="beside"
        )
        result = epochs(loader)
        loader.close()
        return result

    before = run(True)
    Image.new("RGB", (133, 77), "teal").save(jpegs / "class0" / "4.jpg")
    after = run(True)
    assert not same(before, after)
    assert same(after, run(False))


def test_folders_that_share_a_cache_keep_their_images_and_labels(jpegs: Path, tmp_path: Path) -> None:
    """Training and validation of one form, with the times that an archive gives all of its files."""
    names = [f"{number}.jpg" for number in range(4)]
    photographs = {
        part: [(jpegs / f"class{i % 2}" / f"{i}.jpg").read_bytes() for i in numbers]
        for part, numbers in (("train", (0, 2, 4, 6)), ("val", (1, 3, 5, 9)))
    }
    longest = max(len(data) for part in photographs.values() for data in part)
    for part, files in photographs.items():
        for number, (name, data) in enumerate(zip(names, files)):
            path = tmp_path / part / "ab"[number // 2] / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.ljust(longest, b"\0"))  # what follows the end is not looked at
            os.utime(path, (10**9, 10**9))
    # One class more comes first, so that the others have other labels.
    (tmp_path / "val" / "0").mkdir()
    (tmp_path / "val" / "0" / "4.jpg").write_bytes((jpegs / "class1" / "11.jpg").read_bytes())

    def run(part: str, cached: bool) -> list[np.ndarray]:
        source = wf.image_folder(tmp_path / part)
        source = source.cache(path=tmp_path / "cache") if cached else source
        with source.map(T.CenterCrop(40)).batch(5).numpy() as loader:
            return epochs(loader, 2)

    for _ in range(2):
        for part in ("train", "val"):
            assert same(run(part, True), run(part, False)), part


def test_a_class_that_is_added_changes_labels_that_were_cached(jpegs: Path, tmp_path: Path) -> None:
    def labels() -> list[int]:
        source = wf.image_folder(jpegs).cache(path=tmp_path / "cache")
        with source.map(T.CenterCrop(40)).batch(20).numpy() as loader:
            ((_, found),) = loader
            return [int(label) for label in found]

    assert sum(labels()) == 6
    (jpegs / "a class before").mkdir()
    (jpegs / "class0" / "4.jpg").rename(jpegs / "a class before" / "4.jpg")
    assert labels() == [0] + [1] * 5 + [2] * 6


def test_what_does_not_fit_is_said(jpegs: Path) -> None:
    loader = pipeline(wf.image_folder(jpegs).cache(max_bytes=20_000)).numpy()
    assert same(epochs(loader), epochs(pipeline(wf.image_folder(jpegs)).numpy()))
    stats = loader.stats()
    assert stats["cache"]["left_out"] > 0
    assert stats["cache"]["bytes"] <= 20_000
    assert "do not fit" in str(stats)


def test_states_fit_with_and_without(jpegs: Path) -> None:
    plain = pipeline(wf.image_folder(jpegs)).numpy()
    cached = pipeline(wf.image_folder(jpegs).cache()).numpy()
    epochs(cached, 1)
    batches = iter(cached)
    next(batches)
    state = cached.state_dict()
    rest = [array for batch in batches for array in batch]
    plain.load_state_dict(state)
    assert same(epochs(plain, 1), rest)


def test_the_face(jpegs: Path, tmp_path: Path) -> None:
    ds = wf.image_folder(jpegs).cache(path=tmp_path / "c", max_bytes=10**9).map(T.CenterCrop(8))
    assert f".cache(path={str(tmp_path / 'c')!r}, max_bytes=1000000000)" in repr(ds)
    assert repr(pickle.loads(pickle.dumps(ds))) == repr(ds)
    assert "cache: JPEGs are kept" in ds.explain()
    with pytest.raises(ValueError, match=r"before map\(\)"):
        wf.image_folder(jpegs).map(T.CenterCrop(4)).cache()
    with pytest.raises(ValueError, match="decoded"):
        wf.image_folder(jpegs).cache(decoded="pixels")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="neither"):
        ds.numpy(row_index="besides")
    with pytest.raises(ValueError, match="no encoded images"):
        wf.from_tensor_slices(np.zeros(3)).cache().numpy()
