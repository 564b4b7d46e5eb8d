"""`Dataset.jax(on_device=...)`: the same bits as without, by the kernels on the host and on a device."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
import pytest

import wellfed as wf
from few_photographs import few_photographs
from wellfed import _native
from wellfed import transforms as T
from wellfed._handover.jax import JaxLoader, _Placing, leaving
from wellfed._handover.jax_left import Finishing, LeftImages


def devices() -> list[Any]:
    try:
        return list(jax.devices("cuda"))
    except RuntimeError:
        return []


gpu = pytest.mark.skipif(not devices(), reason="NO CUDA DEVICE: what it makes is not compared")
CPU = jax.devices("cpu")[0]
ENDS: list[list[T.Transform]] = [
    [],
    [T.ToTensor(), T.Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.3))],
    [T.ToDtype("bfloat16", scale=True)],
    [T.ToDtype("float16", scale=True)],
]
STEPS: list[list[T.Transform]] = [
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip()],
    [T.Resize(40, interpolation="bicubic"), T.CenterCrop((24, 36))],
    [T.RandomResizedCrop((30, 41)), T.RandomRotation(30, "bilinear", fill=9), T.GaussianBlur(5)],
    [T.RandomResizedCrop(28), T.RandAugment()],
]
pytestmark = pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return few_photographs(tmp_path_factory.mktemp("photos"))


class Pages:
    """Stands in for what page-locks memory."""

    def __init__(self) -> None:
        self.page_lock, self.begun, self.locked = self, 0, 0

    def begin(self) -> None:
        self.begun += 1

    def lock(self, address: int, nbytes: int) -> None:
        self.locked += 1

    def unlock(self, address: int) -> None:
        pass


class OnHost(Finishing):
    """The kernels on the host, for the CPU."""

    def __init__(self) -> None:
        super().__init__(None)
        self.locks = Pages()

    def pages(self) -> Any:
        return self.locks


def on_host(dataset: wf.Dataset, kind: str, finishing: Finishing | None = None) -> JaxLoader:
    return leaving(dataset, _Placing(CPU), finishing or OnHost(), kind)


def same(one: Any, other: Any) -> None:
    assert isinstance(other, jax.Array)
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def compare(plain: Any, left: Any) -> None:
    for loader in (plain, left):
        # Each loader of a data set begins at another epoch.
        if isinstance(loader, JaxLoader):
            loader.set_epoch(0)
    for wanted, given in zip(plain, left, strict=True):
        assert type(wanted) is type(given)
        for one, other in zip(wanted, given, strict=True):
            same(one, other)


@pytest.mark.parametrize("kind", ["resize", "decode", "auto"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_kernels_make_the_same_bits(photos: str, kind: str, layout: Any) -> None:
    for number, (steps, end) in enumerate(itertools.product(STEPS, ENDS)):
        source = wf.image_folder(photos)
        dataset = (source.cache() if number % 2 else source).shuffle(seed=5).map(*steps, *end).batch(7)
        dataset = dataset.with_options(layout=layout)
        finishing = OnHost()
        plain, left = dataset.jax(CPU), on_host(dataset, kind, finishing)
        for epoch in range(2):
            if kind == "auto":
                left._loader._share._apply(0.5 + epoch / 2)  # type: ignore[union-attr]
            plain.set_epoch(epoch)
            left.set_epoch(epoch)
            compare(plain, left)
        assert finishing.locks.begun == 2
        assert finishing.locks.locked
        decoded = left.stats()["decoded"]
        assert sum(decoded.values()) == 36
        assert (decoded["device"] > 0) == (kind != "resize")


@pytest.mark.parametrize("mixing", [T.MixUp(num_classes=2), T.CutMix(num_classes=2)], ids=str)
def test_batches_are_mixed_where_they_are_finished(photos: str, mixing: T.Transform) -> None:
    for dtype in ("float32", "float16", "bfloat16"):
        steps = [T.RandomResizedCrop((23, 30)), T.GaussianBlur(3), T.ToDtype(dtype, scale=True)]
        dataset = wf.image_folder(photos).shuffle(seed=2).map(*steps).batch(7).map(mixing)
        plain, left = dataset.jax(CPU), on_host(dataset, "decode")
        plain.set_epoch(1)
        left.set_epoch(1)
        compare(plain, left)


def test_states_are_the_same_with_and_without(photos: str) -> None:
    dataset = wf.image_folder(photos).shuffle(seed=5).map(T.RandomResizedCrop(16)).batch(5)
    plain, left = dataset.jax(CPU), on_host(dataset, "decode")
    ahead = iter(plain)
    next(ahead)
    state = ahead.get_state()
    left.load_state_dict(state)
    batches = iter(left)
    assert batches.get_state() == state
    compare(ahead, batches)


def test_arrays_are_jax_s_own_and_memory_is_used_again(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.Resize((40, 30)), T.ToTensor()).batch(6)
    left = on_host(dataset, "decode")
    wanted = [np.asarray(images) for images, _ in dataset.jax(CPU)]
    kept, used = [], jax.jit(lambda images: images + 1, donate_argnums=0)
    for epoch in range(6):
        left.set_epoch(0)
        for number, (images, _) in enumerate(left):
            assert np.array_equal(np.asarray(images), wanted[number])
            if epoch % 2:
                # Given away: what is held of it must not be asked.
                assert np.array_equal(np.asarray(used(images)), wanted[number] + 1)
            else:
                kept.append((images, wanted[number]))
    for images, expected in kept:
        assert np.array_equal(np.asarray(images), expected)


def column_of(dataset: wf.Dataset) -> tuple[Any, Any]:
    """A batch of records and their recipe."""
    loader = on_host(dataset, "decode")._loader
    images, _ = next(iter(loader))
    assert isinstance(images, LeftImages)
    return images._column, images._recipe


def test_finished_images_stay_until_all_that_share_them_are_gone(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.Resize((40, 30))).batch(6)
    column, recipe = column_of(dataset)
    finisher = _native.Finisher(None, *recipe._form)

    def place(array: Any) -> int:
        found: int = np.from_dlpack(array).__array_interface__["data"][0]
        return found

    first, decoded = finisher.finish(column.values, column.offsets, column.blends)
    assert (first.shape, first.dtype, sum(decoded)) == ((6, 3, 40, 30), "uint8", 6)
    assert first.__dlpack_device__() == (1, 0)
    assert "uint8 [6, 3, 40, 30]" in repr(first)
    view, at = np.from_dlpack(first), place(first)
    expected = view.copy()
    del first
    gc.collect()
    # The view holds it.
    second, _ = finisher.finish(column.values, column.offsets, column.blends)
    assert place(second) != at
    assert np.array_equal(view, expected)
    del view, second
    gc.collect()
    # Now it may be used again, for whatever needs as much: no more memory is taken.
    places = {place(finisher.finish(column.values, column.offsets, column.blends)[0]) for _ in range(20)}
    assert len(places) <= 6
    others = [finisher.finish(column.values, column.offsets, column.blends)[0] for _ in range(4)]
    assert len(set(map(place, others))) == 4
    del finisher
    assert all(np.array_equal(np.from_dlpack(one), expected) for one in others)
    with pytest.raises(BufferError, match="without a copy"):
        others[0].__dlpack__(copy=True)
    with pytest.raises(BufferError, match="without a copy"):
        others[0].__dlpack__(dl_device=(2, 0))
    with pytest.raises(TypeError, match="stream=0"):
        others[0].__dlpack__(stream=0)


def test_bad_tables_and_types_are_refused() -> None:
    with pytest.raises(RuntimeError, match="a table of 256 numbers for 3 channels"):
        _native.Finisher(None, [3, 4, 4], "float32", True, bytes(1024))
    with pytest.raises(RuntimeError, match="images of int64"):
        _native.Finisher(None, [3, 4, 4], "int64", True, bytes(3072))


def test_a_recipe_lets_go_what_was_read(photos: str) -> None:
    column, recipe = column_of(wf.image_folder(photos).map(T.Resize((8, 8))).batch(6))
    lent = []
    for _ in range(5):
        jax.block_until_ready(recipe.finish(column))
        lent.append(weakref.ref(recipe._read[-1][1]))
        jax.block_until_ready(recipe._read[-1][0])
    assert len(recipe._read) == 1
    gc.collect()
    assert [one() is None for one in lent] == [True, True, True, True, False]


def test_bad_samples_are_skipped(photos: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    whole = next(iter(Path(photos).glob("class_0/00.jpg"))).read_bytes()
    (tmp_path / "a" / "0.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "a" / "1.jpg").write_bytes(whole)
    dataset = wf.image_folder(str(tmp_path)).map(T.Resize((8, 8))).batch(2).with_options(on_error="skip")
    left = on_host(dataset, "decode")
    ((images, _),) = list(left)
    assert images.shape == (1, 3, 8, 8)
    assert [bad.stage for bad in left.errors()] == ["decode"]


def test_what_devices_do_not_run_stays_on_the_host(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.Resize((8, 8)), T.ToTensor(), T.GaussianNoise()).batch(4)
    left = on_host(dataset, "decode")
    assert "not possible" in left.explain()
    plain = dataset.jax(CPU)
    plain.set_epoch(0)
    left.set_epoch(0)
    compare(plain, left)
    dataset = wf.image_folder(photos).map(T.Resize((8, 8))).batch(4)
    assert (
        "decode (all but Huffman codes) + Resize -> batch, on the device"
        in on_host(dataset, "decode").explain()
    )


def test_wrong_use_is_told(photos: str) -> None:
    dataset = wf.image_folder(photos).map(T.Resize((8, 8))).batch(4)
    with pytest.raises(ValueError, match="on_device is 'gpu'; it is one of"):
        dataset.jax(on_device="gpu")  # type: ignore[arg-type]
    with pytest.raises(
        ValueError, match=r"is for CUDA devices, and batches go to .*(cpu|CPU).*\nhint: jax\(jax.devices"
    ):
        dataset.jax(CPU, on_device="decode")
    with pytest.raises(ValueError, match=r'"nvjpeg" is for torch\(\)'):
        dataset.jax(CPU, on_device="nvjpeg")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has Python steps"):
        on_host(wf.image_folder(photos).map(lambda x: x).batch(4), "decode")


WITHOUT_TORCH = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import os
sys.path.insert(0, os.path.dirname(sys.argv[1]))
import check_jax_left as check
import wellfed as wf
from wellfed import transforms as T

dataset = wf.image_folder(sys.argv[2]).map(T.RandomResizedCrop(16)).batch(4)
for kind in ("decode", "auto"):
    print(sum(len(images) for images, _ in check.on_host(dataset, kind)))
    for device in check.devices()[:1]:
        check.compare(dataset.jax(device), dataset.jax(device, on_device=kind))
assert "torch" not in sys.modules
"""


def test_it_needs_no_torch(photos: str) -> None:
    words = [sys.executable, "-c", WITHOUT_TORCH, __file__, photos]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["18", "18"], done.stderr


@gpu
@pytest.mark.parametrize("kind", ["resize", "decode", "auto"])
def test_a_device_makes_the_same_bits(photos: str, kind: Any) -> None:
    device = devices()[0]
    for number, (steps, end) in enumerate(itertools.product(STEPS, ENDS)):
        source = wf.image_folder(photos)
        dataset = (source.cache() if number % 2 else source).shuffle(seed=5).map(*steps, *end).batch(7)
        plain, left = dataset.jax(CPU), dataset.jax(device, on_device=kind)
        for epoch in range(3):
            plain.set_epoch(epoch)
            left.set_epoch(epoch)
            if left._loader._share is not None:  # type: ignore[union-attr]
                left._loader._share._apply(epoch / 2)  # type: ignore[union-attr]
            for (wanted, _), (images, labels) in zip(plain, left, strict=True):
                assert images.devices() == labels.devices() == {device}
                same(wanted, images)
        assert (left.stats()["page_locked"] or {}).get("problem") is None
    dataset = dataset.map(T.MixUp(num_classes=2))
    compare(dataset.jax(CPU), dataset.jax(device, on_device=kind))


@gpu
def test_a_device_s_memory_is_not_written_before_it_is_read(photos: str) -> None:
    # Work of the loop that takes longer than a batch, so that copies of images wait in JAX's stream.
    dataset = wf.image_folder(photos).map(T.Resize((224, 224)), T.ToTensor()).batch(6).repeat(40)
    step = jax.jit(
        lambda images, weights: jax.lax.fori_loop(0, 40, lambda _, w: w @ w, weights)[0, 0] + images.sum()
    )
    weights = jax.device_put(np.eye(2048, dtype=np.float32), devices()[0])
    sums: list[list[jax.Array]] = []
    kept = []
    for on_device in ("copy", "decode"):
        loader = dataset.jax(devices()[0], on_device=on_device)
        loader.set_epoch(0)
        found = []
        for number, (images, _) in enumerate(loader):
            found.append(step(images, weights))
            if number % 10 == 0:
                kept.append((number, images))
        sums.append(found)
    assert [float(one) for one in sums[0]] == [float(one) for one in sums[1]]
    half = len(kept) // 2
    for (_, one), (_, other) in zip(kept[:half], kept[half:], strict=True):
        same(one, other)
