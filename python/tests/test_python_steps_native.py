"""What the engine does below Python steps: shared row indexes, and samples that lie where their batch does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import default_collate

import wellfed as wf
from wellfed import _offer
from wellfed import transforms as T
from wellfed._steps.maker import Maker
from wellfed._steps.places import TRIES
from wellfed._steps.rows import SharedRows
from wellfed.torch._workers.arena import Arena
from wellfed.torch._workers.pack import LARGE, Packer
from wellfed.torch._workers.worker import in_slots

from .pictures import picture
from .test_python_steps import same

pytestmark = [
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),
    pytest.mark.filterwarnings("ignore:worker processes are forked while"),
]

COUNT = 26


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """JPEGs of several rows of blocks, the last of which is damaged."""
    root: Path = tmp_path_factory.mktemp("photos")
    for i in range(COUNT):
        Image.fromarray(picture(i, 300 + 8 * i, 260)).save(root / f"{i:03}.jpg", quality=90)
    (root / f"{COUNT:03}.jpg").write_bytes((root / "000.jpg").read_bytes()[:700])
    return root


def crops(photos: Path, side: int = 160, **options: Any) -> wf.Dataset:
    """Whole photographs only, cropped: a batch of 4 has more than 64 KB."""
    ds = wf.image_folder(photos, labels=None).take(COUNT).map(T.RandomCrop(side)).shuffle(seed=1)
    return ds.with_options(**options)


def identity(image: Any) -> Any:
    return image


def epochs(loader: Any, count: int = 3) -> list[list[Any]]:
    loader.set_epoch(0)
    return [[batch.clone() for batch in loader] for _ in range(count)]


@pytest.mark.parametrize("context", ["fork", "spawn", "thread"])
def test_workers_share_row_indexes(photos: Path, context: str) -> None:
    ds = crops(photos).map(identity).batch(4)
    with ds.torch(num_workers=0, row_index="off") as loader:
        expected = epochs(loader)
        assert loader.stats()["row_index"] is None
    with ds.torch(num_workers=2, multiprocessing_context=context) as loader:
        assert same(epochs(loader), expected)
        stats = loader.stats()["row_index"]
    # Of its own indexes alone no worker would have found one for each image from the second epoch on.
    assert stats["images"] == COUNT
    assert stats["used"] == 2 * COUNT
    assert stats["refused"] == 0
    assert 0 < stats["bytes"] < stats["limit"]


def test_they_are_native_loaders_indexes(photos: Path, tmp_path: Path) -> None:
    folder = f"{tmp_path}/rows"
    with crops(photos, row_index=folder).map(identity).batch(4).torch(num_workers=2) as loader:
        expected = epochs(loader, 1)
    with crops(photos, row_index=folder).batch(4).torch(num_workers=2) as native:
        assert native.stats()["row_index"]["images"] == COUNT
    # And the other way round: found in the file, from the first decode on.
    with crops(photos, row_index=folder).map(identity).batch(4).torch(num_workers=2) as loader:
        assert loader.stats()["row_index"]["images"] == COUNT
        assert same(epochs(loader, 1), expected)
        assert loader.stats()["row_index"]["used"] == COUNT
        assert loader.stats()["row_index"]["images"] == COUNT


def test_indexes_keep_to_the_budget(photos: Path) -> None:
    ds = crops(photos, memory_budget=32 << 20).map(identity).batch(4)
    with ds.torch(num_workers=2) as loader:
        assert loader.stats()["row_index"]["limit"] <= (32 << 20) // 8
    with ds.torch(num_workers=2, memory_budget=64 << 10) as loader:
        made = epochs(loader, 2)
        stats = loader.stats()["row_index"]
    assert 0 < stats["refused"] < 2 * COUNT
    assert stats["bytes"] <= stats["limit"] <= 8 << 10
    with ds.torch(num_workers=0, row_index="off") as loader:
        assert same(epochs(loader, 2), made)


def test_files_that_cannot_be_are_an_error_as_without_the_step(photos: Path) -> None:
    ds = wf.image_folder(photos, labels=None).map(T.RandomCrop(32)).map(identity).batch(2)
    with pytest.raises(wf.exceptions.ConfigError, match="row_index"):
        ds.torch(num_workers=1, row_index="besides")


SEEN: list[int] = []
KEPT: list[Any] = []


def noted(image: Any) -> Any:
    SEEN.append(image.__array_interface__["data"][0])
    return image


def whether_in_place(batch: Any) -> Any:
    """The batch, and whether it lies where its samples were."""
    return batch, torch.tensor(batch.data_ptr() == SEEN[-len(batch)])


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float16"])
def test_samples_that_steps_give_back_are_not_copied(photos: Path, dtype: Any) -> None:
    samples = crops(photos).map(T.ToDtype(dtype, scale=True))
    ds = samples.map(noted).batch(4).map(whether_in_place)
    with ds.torch(num_workers=1) as loader, samples.batch(4).torch(num_workers=1) as native:
        loader.set_epoch(0)
        made = [batch for _ in range(2) for batch in loader]
        expected = [batch for epoch in epochs(native, 2) for batch in epoch]
    assert same([batch for batch, _ in made], expected)
    # Before the first batch nobody knew what a sample looks like.
    assert [bool(there) for _, there in made] == [False] + [True] * (len(made) - 1)


def test_samples_made_ahead_take_a_bounded_number_of_bytes(photos: Path) -> None:
    ds = crops(photos)
    picks = [(row, index, 0) for row, index in enumerate([5, 3, 9, 1])]
    size = 3 * 160 * 160
    leaves = ds._native.leaves()
    for most, count in [(1, 1), (size, 1), (size + 1, 2), (3 * size, 3), (4 * size, 4)]:
        assert len(leaves.many(0, picks, [], most)) == count
    block = np.zeros((4, 3, 160, 160), np.uint8)
    made = leaves.many(0, picks, [(0, block)], 1)
    assert made == [[None]] * 4, "what lies in the batch takes nothing"
    for row, index, epoch in picks:
        assert np.array_equal(block[row], ds.sample(index, epoch))


def test_a_batch_is_offered_no_place_where_steps_make_something_else_of_samples(
    photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arena = Arena(ahead=1)
    monkeypatch.setattr(_offer, "current", arena)
    ds = crops(photos).map(thumbnail).batch(8)
    maker = Maker(ds, "raise", isolate=False, seeded=True, rows=SharedRows(ds, 1))
    for number in range(3):
        for _ in range(TRIES):
            maker[0, 0, number]
    # The first batch says what samples look like.
    assert arena.count == TRIES
    assert arena.collated == 0


def thumbnail(image: Any) -> Any:
    return image[:, ::40, ::40].copy()


@pytest.mark.parametrize("keep", ["nothing", "array", "part", "tensor"])
def test_what_is_kept_of_samples_decides_whether_their_batch_is_copied(keep: str) -> None:
    arena = Arena(ahead=1)
    collate = in_slots(arena, None)
    samples = [*arena.place(4 * LARGE)[: 4 * LARGE].reshape(4, LARGE)]
    slot = arena.taken[0]
    for number, sample in enumerate(samples):
        sample[...] = number
    kept = {
        "nothing": None,
        "array": samples[1],
        "part": samples[2][10:20],
        "tensor": torch.from_numpy(samples[0])[5:],
    }[keep]
    tensors = [torch.from_numpy(sample) for sample in samples]
    with arena.in_place():
        assert collate(tensors[1:]).shape == (3, LARGE)
        again = collate(tensors)
    assert arena.find(again.data_ptr()) is not slot, "a batch was made of them already"
    slot.collated = False
    elsewhere = collate(tensors)
    assert arena.find(elsewhere.data_ptr()) is not slot, "only where it is asked for"
    with arena.in_place():
        batch = collate(tensors)
    assert batch.data_ptr() == slot.mapping.address
    del samples, sample, tensors, again, elsewhere
    _, places = Packer(arena).pack(batch)
    assert [number == slot.number for number, *_ in places] == [keep == "nothing"]
    del kept


def changed_later(image: Any) -> Any:
    """Keeps all images, and spoils those before."""
    for kept in KEPT:
        kept[...] = 0
    if len(KEPT) == 9:
        KEPT.clear()
    KEPT.append(image[:1])
    return image + 0 if len(KEPT) == 9 else image


def twice(image: Any) -> Any:
    return {"one": image, "other": image, "part": torch.from_numpy(image)}


def before(image: Any) -> Any:
    """The last image in place of this one."""
    KEPT.append(image)
    return KEPT[-2] if len(KEPT) > 1 else image


def upside_down(image: Any) -> Any:
    image[...] = image[:, ::-1].copy()
    return image


@pytest.mark.parametrize("step", [changed_later, upside_down])
def test_steps_that_keep_or_change_their_arrays(photos: Path, step: Any) -> None:
    ds = crops(photos).map(step).batch(1)
    KEPT.clear()
    # In this process no sample lies in shared memory.
    with ds.torch(num_workers=0) as loader:
        expected = epochs(loader)
    KEPT.clear()
    with ds.torch(num_workers=1, prefetch=1) as loader:
        assert same(epochs(loader), expected)
    KEPT.clear()


def test_an_image_of_another_sample(photos: Path) -> None:
    ds = crops(photos).map(before).batch(4)
    KEPT.clear()
    with ds.torch(num_workers=0) as loader:
        expected = epochs(loader)
    KEPT.clear()
    with ds.torch(num_workers=1) as loader:
        assert same(epochs(loader), expected)
    KEPT.clear()


def test_one_array_in_two_fields_is_two_in_the_batch(photos: Path) -> None:
    with crops(photos).map(twice).batch(4).torch(num_workers=1) as loader:
        for batch in loader:
            one, other = batch["one"].clone(), batch["other"]
            batch["one"].zero_()
            assert torch.equal(other, one)
            assert torch.equal(batch["part"], one)


def collated_and_spoilt(samples: list[Any]) -> Any:
    batch = default_collate(samples)
    for sample in samples:
        sample[...] = 0
    return batch


def test_what_a_collate_function_does_to_samples_afterwards(photos: Path) -> None:
    with (
        crops(photos).map(identity).batch(4, collate_fn=collated_and_spoilt).torch(num_workers=1) as loader,
        crops(photos).batch(4).torch() as native,
    ):
        assert same(epochs(loader), epochs(native))


def some_bad(pair: Any) -> Any:
    if int(pair[0].sum()) % 3 == 0:
        raise ValueError("bad")
    return pair


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples_among_those_that_lie_together(photos: Path, on_error: Any) -> None:
    all_of_them = wf.image_folder(photos, labels=None).map(T.RandomCrop(160)).shuffle(seed=2)
    ds = wf.zip(all_of_them, crops(photos)).map(some_bad).batch(5)
    made, bad = [], []
    for workers in (0, 1, 3):
        with ds.torch(num_workers=workers, on_error=on_error) as loader:
            loader.set_epoch(0)
            made.append([batch for _ in range(2) for batch in loader])
            bad.append([(one.epoch, one.batch, one.cause, one.stage) for one in loader.errors()])
    assert same(made[0], made[1])
    assert same(made[0], made[2])
    assert bad[0] == bad[1] == bad[2]
    assert {stage for *_, stage in bad[0]} == {"decode", "some_bad"}


def test_what_was_made_ahead_for_a_bad_sample_is_not_its_substitutes(photos: Path) -> None:
    images = wf.image_folder(photos, labels=None).map(T.CenterCrop(160))
    numbers = wf.from_tensor_slices(np.arange(COUNT + 1))
    ds = wf.zip(images, numbers).map(identity).batch(COUNT + 1)
    with ds.torch(num_workers=1, on_error="replace") as loader:
        for pixels, found in loader:
            assert len(found) == COUNT + 1
            assert len(set(found.tolist())) == COUNT
            for image, number in zip(pixels, found.tolist()):
                assert np.array_equal(image, images[number])


def test_images_of_several_sizes_and_sources_in_turns(photos: Path) -> None:
    small, large = crops(photos, side=150).map(as_large), crops(photos)
    ds = wf.sample_from_datasets([small, large], seed=3).map(identity).batch(4)
    with ds.torch(num_workers=0) as loader:
        expected = epochs(loader)
    with ds.torch(num_workers=2) as loader:
        assert same(epochs(loader), expected)


def as_large(image: Any) -> Any:
    return np.pad(image, ((0, 0), (5, 5), (5, 5)))


def test_stats_are_printed_and_are_json(photos: Path) -> None:
    with crops(photos).map(identity).batch(4).torch(num_workers=1) as loader:
        epochs(loader, 1)
        assert "row_index, images" in str(loader.stats())
        assert json.loads(json.dumps(loader.stats()))["row_index"]["images"] == COUNT
