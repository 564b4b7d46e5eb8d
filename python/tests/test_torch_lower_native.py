"""Whole loaders over the engine: the stock loader's samples, order, labels, structure and errors."""

from __future__ import annotations

import gc
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torchvision import datasets
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import torchvision_sets as sets
import wellfed as wf
import wellfed.torch as wt
from pictures import picture
from torch_same import apart, same

SMALL = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])
USUAL = v1.Compose(
    [v1.Resize(36), v1.CenterCrop(32), v1.ToTensor(), v1.Normalize((0.485, 0.456, 0.406), (0.2, 0.3, 0.4))]
)
RANDOM = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])


def head(loader: Any) -> str:
    """What explain() says first: how the whole is run."""
    return str(wf.feed(loader).explain().splitlines()[0].partition(", ")[2])


NATIVE = "native: the engine makes whole batches"
PARTLY = "partly native: the engine makes images up to the first Python part"
PYTHON = "Python: the data set runs as it is"


def both(
    dataset: Any, epochs: int = 2, expect: str = NATIVE, **arguments: Any
) -> tuple[list[Any], list[Any]]:
    """Batches of some epochs of the stock loader, and of ours, under the same seed."""
    results = []
    for ours in (False, True):
        torch.manual_seed(11)
        loader: Any = stock.DataLoader(dataset, **arguments)
        if ours:
            loader = wf.feed(loader)
            assert head(loader) == expect, loader.explain()
        results.append([list(loader) for _ in range(epochs)])
    return results[0], results[1]


@pytest.mark.parametrize("name", sets.READ)
def test_every_known_data_set_is_read_as_torchvision_reads_it(name: str, tmp_path: Path) -> None:
    theirs, ours = both(sets.READ[name](tmp_path, transform=SMALL), batch_size=3, shuffle=True)
    assert same(theirs, ours)


@pytest.mark.parametrize("name", sets.ANY_MODE)
def test_data_sets_that_keep_the_mode_of_files_need_rgb_said(name: str, tmp_path: Path) -> None:
    dataset = sets.ANY_MODE[name](tmp_path, transform=SMALL)
    assert "put v2.RGB() first" in wt.DataLoader(dataset).explain()
    dataset.transform = v2.Compose([v2.RGB(), v2.Resize(36), v2.CenterCrop(32), v2.ToImage()])
    assert same(*both(dataset, batch_size=4))


def test_files_that_the_engine_does_not_read_stay_in_python(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for number in range(4):
        Image.fromarray(picture(number, 40, 41)).save(tmp_path / "a" / f"{number}.bmp")
    bitmaps = datasets.ImageFolder(tmp_path, SMALL)
    assert (
        "4 of 4 files have other formats than JPEG, PNG, GIF, PPM or WebP" in wt.DataLoader(bitmaps).explain()
    )
    assert same(*both(bitmaps, expect=PYTHON, batch_size=2))


def test_gif_ppm_and_webp_are_read_as_pillow_reads_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    rgb, grey = Image.fromarray(picture(0, 40, 41)), Image.fromarray(picture(2, 37, 60, 1)[..., 0])
    steps = [Image.fromarray(picture(seed, 44, 45)) for seed in (3, 4)]
    images: dict[str, tuple[Image.Image, dict[str, Any]]] = {
        "colour.gif": (rgb, {}),
        "grey.gif": (grey, {}),
        "moving.gif": (steps[0], {"save_all": True, "append_images": steps[1:]}),
        "transparent.gif": (rgb.quantize(16), {"transparency": 3}),
        "plain.ppm": (rgb, {}),
        "UPPER.PPM": (rgb, {}),
        "lossy.webp": (rgb, {"quality": 60}),
        "exact.webp": (rgb, {"lossless": True}),
        "alpha.webp": (rgb.convert("RGBA"), {"quality": 60}),
        "moving.webp": (steps[0], {"save_all": True, "append_images": steps[1:]}),
    }
    for name, (image, how) in images.items():
        image.save(tmp_path / "a" / name, **how)

    load, extensions = datasets.folder.default_loader, (".gif", ".ppm", ".webp")
    folder = datasets.DatasetFolder(str(tmp_path), load, extensions, transform=SMALL)
    assert len(folder) == len(images)
    assert same(*both(folder, batch_size=3, shuffle=True))


@pytest.fixture(scope="module")
def folder(photos: Path) -> Any:
    return datasets.ImageFolder(photos, SMALL)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 5},
        {"batch_size": 1},
        {"batch_size": 5, "shuffle": True, "drop_last": True},
        {"batch_size": 5, "num_workers": 2, "shuffle": True},
        {"batch_size": None},
        {"batch_size": None, "sampler": [3, 0, 3]},
        {"batch_sampler": [[0], [1, 2, 3], [5, 5], [23]]},
        {"batch_sampler": [[0, -1], torch.tensor([3, 4]).tolist(), [np.int64(7)]]},
        {"sampler": stock.WeightedRandomSampler([0.5, 1.0, 2.0], 10), "batch_size": 4},
    ],
    ids=str,
)
def test_loaders_give_what_stock_gives(folder: Any, arguments: dict[str, Any]) -> None:
    assert same(*both(folder, **arguments))


def test_normalized_images_are_equal_but_for_the_last_bit(photos: Path) -> None:
    theirs, ours = both(datasets.ImageFolder(photos, USUAL), batch_size=8)
    for (x, y), (a, b) in zip(theirs[0], ours[0], strict=True):
        assert apart(x, a) <= 1e-6
        assert torch.equal(y, b)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda d: stock.Subset(d, [3, 20, 3, 7]),
        lambda d: stock.random_split(d, [0.5, 0.5], torch.Generator().manual_seed(0))[1],
        lambda d: stock.ConcatDataset([d, stock.Subset(d, range(4, 9))]),
        lambda d: stock.Subset(stock.ConcatDataset([stock.Subset(d, [5, 6]), d]), np.array([1, 0, 12])),
    ],
)
def test_wrappers(folder: Any, wrap: Any) -> None:
    assert same(*both(wrap(folder), batch_size=3, shuffle=True))


def test_parts_of_different_kinds(folder: Any, tmp_path: Path) -> None:
    cifar = sets.cifar10(tmp_path, transform=SMALL)
    mixed = stock.ConcatDataset([folder, cifar])
    assert same(*both(mixed, expect=PARTLY, batch_size=8, shuffle=True))
    again = sets.READ["CIFAR100"](tmp_path, transform=SMALL)
    assert same(*both(stock.ConcatDataset([cifar, again]), batch_size=8))
    other = datasets.ImageFolder(folder.root, v1.Compose([v1.Resize((32, 32)), v1.ToTensor()]))
    assert (
        "different transforms" in wt.DataLoader(stock.ConcatDataset([folder, other]), batch_size=2).explain()
    )
    assert same(*both(stock.ConcatDataset([folder, other]), expect=PARTLY, batch_size=4))


def test_targets_are_transformed(photos: Path) -> None:
    dataset = datasets.ImageFolder(
        photos, SMALL, target_transform=lambda y: {"label": y, "name": f"class {y}"}
    )
    assert same(*both(dataset, batch_size=5))
    assert "called on each label" in wt.DataLoader(dataset).explain()
    floats = datasets.ImageFolder(photos, SMALL, target_transform=float)
    assert same(*both(floats, batch_size=5))


def test_random_draws_are_reproducible_and_differ_between_epochs(photos: Path) -> None:
    def epochs(seed: int, **more: Any) -> list[Any]:
        torch.manual_seed(seed)
        loader = wt.DataLoader(datasets.ImageFolder(photos, RANDOM), batch_size=8, shuffle=True, **more)
        assert head(loader) == NATIVE
        return [list(loader) for _ in range(2)]

    one, again, other = epochs(1), epochs(1), epochs(2)
    assert same(one, again)
    assert not same(one[0], one[1])
    assert not same(one, other)
    assert same(one, epochs(1, num_workers=2))


def test_the_same_sample_twice_in_an_epoch_is_drawn_twice(photos: Path) -> None:
    loader = wt.DataLoader(datasets.ImageFolder(photos, RANDOM), batch_size=2, sampler=[4, 4])
    images, labels = next(iter(loader))
    assert labels[0] == labels[1]
    assert not torch.equal(images[0], images[1])


def test_iterators_at_the_same_time(folder: Any) -> None:
    results = []
    for make in (stock.DataLoader, wt.DataLoader):
        torch.manual_seed(5)
        loader: Any = make(folder, batch_size=7, shuffle=True)
        first = iter(loader)
        next(first)
        results.append([*zip(loader, loader, strict=True), *first])
    assert same(*results)


def test_an_epoch_left_early_does_not_disturb_the_next(folder: Any) -> None:
    loader = wt.DataLoader(folder, batch_size=4)
    for _ in range(3):
        next(iter(loader))
    assert same(list(loader), list(stock.DataLoader(folder, batch_size=4)))


def test_persistent_iterators(folder: Any) -> None:
    results = []
    for make in (stock.DataLoader, wt.DataLoader):
        torch.manual_seed(5)
        loader: Any = make(folder, batch_size=7, shuffle=True, num_workers=1, persistent_workers=True)
        results.append([list(loader), list(loader)])
        del loader
    assert same(*results)


def test_changes_between_epochs_are_seen(photos: Path) -> None:
    dataset = datasets.ImageFolder(photos, SMALL)
    loader = wt.DataLoader(dataset, batch_size=24)
    before = next(iter(loader))
    dataset.transform.transforms[1].size = (16, 16)
    assert next(iter(loader))[0].shape[2:] == (16, 16)
    dataset.transform = SMALL
    dataset.samples[0] = (dataset.samples[0][0], 77)
    assert next(iter(loader))[1][0] == 77
    dataset.samples.reverse()
    assert torch.equal(next(iter(loader))[0], next(iter(stock.DataLoader(dataset, batch_size=24)))[0])
    assert len(before[1]) == 24
    dataset.transform = v1.Compose([v1.Lambda(lambda image: image), SMALL])
    assert head(loader) == PARTLY
    SMALL.transforms[1].size = (32, 32)


def damaged(root: Path, how: str) -> Any:
    dataset = datasets.ImageFolder(root, SMALL)
    path = Path(dataset.samples[5][0])
    if how == "missing":
        path.unlink()
    elif how == "no image":
        path.write_bytes(b"this is no image at all")
    elif how == "sgi":
        Image.fromarray(picture(3, 50, 60)).save(path, "SGI")
    return dataset


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
@pytest.mark.parametrize("native", [True, False])
def test_errors_name_the_sample_also_where_the_engine_makes_it_or_a_part_of_it(
    own_photos: Path, native: bool
) -> None:
    def refuse(image: Any) -> Any:
        seen.append(image)
        if len(seen) == 6:
            raise ValueError("not this one")
        return image

    seen: list[Any] = []
    damaged_files = damaged(own_photos, "missing")
    partly = datasets.ImageFolder(own_photos, v1.Compose([SMALL, v1.Lambda(refuse)]))
    for dataset in (damaged_files, partly):
        with pytest.raises((OSError, ValueError)) as caught:
            list(wt.DataLoader(dataset, batch_size=4, native=native))
        assert caught.value.__notes__ == ["wellfed: sample 5, item 1 of its batch"]


@pytest.mark.parametrize("how", ["missing", "no image"])
def test_bad_samples_raise_what_stock_raises_and_the_epoch_goes_on(own_photos: Path, how: str) -> None:
    dataset = damaged(own_photos, how)
    with pytest.raises(OSError) as theirs:
        list(stock.DataLoader(dataset, batch_size=2))
    loader = wt.DataLoader(dataset, batch_size=2)
    batches = iter(loader)
    assert head(loader) == NATIVE
    taken = [next(batches), next(batches)]
    with pytest.raises(type(theirs.value)) as ours:
        next(batches)
    assert str(ours.value) == str(theirs.value)
    cause = ours.value.__cause__
    assert isinstance(cause, wf.WellfedError)
    assert cause.index == 5
    assert cause.key is not None
    taken += list(batches)
    good = stock.DataLoader(dataset, batch_sampler=[[0, 1], [2, 3], [6, 7], [8, 9], [10, 11]])
    assert same(taken, list(good))


def test_formats_that_only_pillow_reads_are_read_by_pillow(own_photos: Path) -> None:
    dataset = damaged(own_photos, "sgi")
    assert same(*both(dataset, batch_size=4))
    loader = wt.DataLoader(dataset, batch_size=4)
    list(loader)
    assert "1 batches" in loader.explain()


def test_images_of_different_sizes(photos: Path) -> None:
    plain = datasets.ImageFolder(photos, v1.ToTensor())
    assert same(*both(plain, expect=PARTLY, batch_size=1))
    loader = wt.DataLoader(plain, batch_size=4)
    with pytest.raises(RuntimeError, match="equal size"):
        next(iter(loader))


def test_indices_out_of_range_raise_what_stock_raises(folder: Any) -> None:
    loader = wt.DataLoader(folder, sampler=[2, 999], batch_size=1)
    batches = iter(loader)
    next(batches)
    with pytest.raises(IndexError):
        next(batches)


def test_custom_collate_gets_samples(folder: Any) -> None:
    def names(samples: list[Any]) -> list[str]:
        return [f"{tuple(image.shape)} {label}" for image, label in samples]

    assert same(*both(folder, expect=PARTLY, batch_size=3, collate_fn=names))
    gc.collect()  # threads of loaders that are gone would be warned of
    assert same(*both(folder, expect=PARTLY, batch_size=3, collate_fn=names, num_workers=1))


class Special(datasets.ImageFolder):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image * 2, label


def test_what_only_looks_known_is_python(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    special = Special(photos, SMALL)
    assert same(*both(special, expect=PYTHON, batch_size=4))
    assert "subclass of ImageFolder" in wt.DataLoader(special).explain()
    loaded = datasets.ImageFolder(photos, SMALL, loader=lambda path: Image.new("RGB", (40, 40), (1, 2, 3)))
    assert same(*both(loaded, expect=PYTHON, batch_size=4))
    assert "its loader is" in wt.DataLoader(loaded).explain()
    late = datasets.ImageFolder(photos, SMALL)
    late.__getitem__ = lambda index: None  # type: ignore[method-assign]
    assert head(wt.DataLoader(late)) == PYTHON
    monkeypatch.setattr(datasets.DatasetFolder, "__getitem__", lambda self, index: index)
    assert next(iter(wt.DataLoader(datasets.ImageFolder(photos, SMALL), batch_size=2))).tolist() == [0, 1]


def test_native_can_be_switched_off(folder: Any) -> None:
    loader = wt.DataLoader(folder, batch_size=4, native=False)
    assert loader.explain().splitlines()[0] == f"DataLoader, {PYTHON}"
    assert same(list(loader), list(stock.DataLoader(folder, batch_size=4)))


def test_it_goes_on_where_it_was(photos: Path) -> None:
    dataset = datasets.ImageFolder(photos, RANDOM)
    loader = wt.DataLoader(dataset, batch_size=4, shuffle=True)
    batches = iter(loader)
    for _ in range(2):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [*batches, *loader]
    other = wt.DataLoader(dataset, batch_size=4, shuffle=True)
    torch.manual_seed(99)
    other.load_state_dict(state)
    assert same([*other, *other], rest)


def test_loaders_with_a_plan_can_be_pickled(folder: Any) -> None:
    loader = wt.DataLoader(folder, batch_size=4)
    first = next(iter(loader))
    assert same(next(iter(pickle.loads(pickle.dumps(loader)))), first)


def test_dropped_loaders_leave_no_thread_and_no_descriptor(folder: Any) -> None:
    list(wt.DataLoader(folder, batch_size=4))
    gc.collect()
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        loader = wt.DataLoader(folder, batch_size=4)
        next(iter(loader))
        del loader
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before[0] + 1
    assert threading.active_count() <= before[1]


def test_after_a_fork_it_is_made_anew(photos: Path) -> None:
    code = f"""
    import os, torch
    from torchvision import datasets
    from torchvision.transforms import transforms as v1
    import wellfed.torch as wt
    torch.set_num_threads(1)
    chain = v1.Compose([v1.Resize((20, 20)), v1.ToTensor()])
    loader = wt.DataLoader(datasets.ImageFolder({str(photos)!r}, chain), batch_size=6)
    mine = list(loader)
    child = os.fork()
    if child == 0:
        theirs = list(loader)
        os._exit(0 if all(torch.equal(a[0], b[0]) for a, b in zip(mine, theirs)) else 3)
    assert os.waitpid(child, 0)[1] == 0
    assert len(list(loader)) == 4
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_ctrl_c_comes_through(photos: Path, tmp_path: Path) -> None:
    code = f"""
    import signal, torch
    from torchvision import datasets
    from torchvision.transforms import transforms as v1
    import wellfed.torch as wt
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chain = v1.Compose([v1.RandomResizedCrop(64), v1.ToTensor()])
    dataset = datasets.ImageFolder({str(photos)!r}, chain)
    loader = wt.DataLoader(dataset, batch_size=16, sampler=torch.utils.data.RandomSampler(dataset, True, 10**7))
    try:
        for i, batch in enumerate(loader):
            if i == 1:
                print("going", flush=True)
    except KeyboardInterrupt:
        print("stopped", flush=True)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert out == "stopped\n"
    assert process.returncode == 0


class Looping(stock.Sampler[int]):
    """Indices from a file of the user's, so to say: no known sampler."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[int]:
        yield from reversed(range(len(self.dataset)))

    def __len__(self) -> int:
        return len(self.dataset)


def test_samplers_of_the_user(folder: Any) -> None:
    assert same(*both(folder, batch_size=5, sampler=Looping(folder)))
    assert "a sampler of the user" in wt.DataLoader(folder, sampler=Looping(folder)).explain()


def test_explain_says_all_of_it(photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos, tmp_path / "copy")
    dataset = datasets.ImageFolder(
        tmp_path / "copy", v1.Compose([v1.RandomResizedCrop(24), v1.Lambda(abs), v1.ToTensor()])
    )
    text = wt.DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, pin_memory=True).explain()
    for words in (
        "ImageFolder",
        "RandomResizedCrop",
        "Lambda",
        "Python code",
        "ToTensor",
        "RandomSampler",
        "num_workers=2",
    ):
        assert words in text
    assert "to make more of it native" not in text  # nobody knows what would do the same
    assert "pinned" in text


@pytest.mark.parametrize("name", ["CIFAR10", "STL10", "MNIST", "several"])
@pytest.mark.parametrize("shared", [False, True])
def test_arrays_that_are_changed_in_place_are_seen_in_the_next_epoch(
    name: str, shared: bool, tmp_path: Path
) -> None:
    if name == "several":
        parts = [
            sets.READ["CIFAR10"](tmp_path, transform=SMALL),
            sets.READ["CIFAR100"](tmp_path, transform=SMALL),
        ]
        dataset: Any = stock.ConcatDataset(parts)
    else:
        parts = [sets.READ[name](tmp_path, transform=SMALL)]
        dataset = parts[0]
    # Somebody else who looks at the same memory may change it, too.
    held = [part.data for part in parts] if shared else []
    loader = wt.DataLoader(dataset, batch_size=3)
    assert head(loader) == NATIVE
    first = list(loader)
    for array in held or [part.data for part in parts]:
        array[1:] = 255 - array[1:]
    second = list(loader)
    assert not same(first, second)
    assert same(second, list(stock.DataLoader(dataset, batch_size=3)))


def test_targets_of_several_columns_that_are_changed_in_place_are_seen(tmp_path: Path) -> None:
    dataset = sets.READ["QMNIST"](tmp_path, transform=v1.ToTensor())
    loader = wt.DataLoader(dataset, batch_size=3)
    assert head(loader) == NATIVE
    list(loader)
    dataset.targets[:, 0] += 1
    assert same(list(loader), list(stock.DataLoader(dataset, batch_size=3)))


def test_an_array_that_nobody_else_holds_is_put_in_order_once(tmp_path: Path) -> None:
    dataset = sets.READ["CIFAR10"](tmp_path, transform=SMALL)
    before = dataset.data.copy()
    wt.DataLoader(dataset, batch_size=3).explain()
    assert dataset.data.flags.c_contiguous
    assert np.array_equal(dataset.data, before)
    other = sets.READ["CIFAR100"](tmp_path, transform=SMALL)
    held = other.data
    wt.DataLoader(other, batch_size=3).explain()
    assert other.data is held
