"""A state knows its source by names and sizes: it is refused by another one of the same length, and taken by a copy."""

from __future__ import annotations

import io
import json
import shutil
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import wellfed as wf

N = 6

Make = Callable[[Path, int], Any]


def png(value: int) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (value, value, value)).save(file, "PNG")
    return file.getvalue()


def written(folder: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    return folder


def folder(root: Path, which: int) -> Any:
    """Two folders of as many images in as many classes: training and validation, say."""
    return wf.image_folder(written(root, [f"{'ab'[i % 2]}/{which}{i}.png" for i in range(N)]))


def classes(root: Path, which: int) -> Any:
    return wf.image_folder(written(root, [f"{'abc'[i % 2 + which]}/{i}.png" for i in range(N)]))


def pattern(root: Path, which: int) -> Any:
    return wf.image_folder(f"{written(root, [f'{which}{i}.png' for i in range(N)])}/*.png")


def files(root: Path, which: int) -> Any:
    names = [f"{which}{i}.png" for i in range(N)]
    written(root, names)
    return wf.image_files([root / name for name in names], labels=list(range(N)))


def annotated(root: Path, which: int) -> Any:
    names = [f"{i}.png" for i in range(N)]
    written(root, names)
    return wf.annotated_images([root / name for name in names], boxes=[[[0, 0, 2 + which, 3]]] * N).map(
        wf.transforms.CenterCrop(4)
    )


def encoded(root: Path, which: int) -> Any:
    """In memory images have no names, but sizes."""
    images = [png(i) + bytes(which * (i == 2)) for i in range(N)]
    offsets = np.cumsum([0, *map(len, images)])
    return wf.encoded_images(np.frombuffer(b"".join(images), np.uint8), offsets)


def shard(root: Path, members: list[tuple[str, bytes]]) -> Any:
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / "0.tar", "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return wf.webdataset(root / "0.tar", fields=["txt"])


def shard_names(root: Path, which: int) -> Any:
    return shard(root, [(f"{which}{i}.txt", b"text") for i in range(N)])


def shard_sizes(root: Path, which: int) -> Any:
    return shard(root, [(f"{i}.txt", b"text" + b"s" * (which * (i == 3))) for i in range(N)])


def rows(root: Path, which: int) -> Any:
    return wf.from_tensor_slices(np.zeros((N, 3 + which)))


def fields(root: Path, which: int) -> Any:
    return wf.from_tensor_slices({"ab"[which]: np.arange(N)})


def dtypes(root: Path, which: int) -> Any:
    return wf.from_tensor_slices(np.zeros((N, 3), [np.int32, np.float32][which]))


def shapes(root: Path, which: int) -> Any:
    return wf.from_tensor_slices(np.zeros((N, *[(2, 6), (6, 2)][which]), np.float32))


def structure(root: Path, which: int) -> Any:
    return wf.from_tensor_slices([(np.zeros(N), np.zeros(N)), {"0": np.zeros(N), "1": np.zeros(N)}][which])


def cifar(root: Path, which: int) -> Any:
    root.mkdir(parents=True)
    labels = [which, *range(1, N)]
    (root / "test_batch.bin").write_bytes(b"".join(bytes([label]) + bytes(3072) for label in labels))
    return wf.cifar10(root, train=False)


def mnist(root: Path, which: int) -> Any:
    root.mkdir(parents=True)
    (root / "t10k-images-idx3-ubyte").write_bytes(struct.pack(">4i", 0x803, N, 28, 28) + bytes(N * 784))
    labels = bytes([which, *range(1, N)])
    (root / "t10k-labels-idx1-ubyte").write_bytes(struct.pack(">2i", 0x801, N) + labels)
    return wf.mnist(root, train=False)


class Ones(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return N

    def __getitem__(self, i: int) -> int:
        return 1


class Twos(Ones):
    """Of another name."""


def torchs(root: Path, which: int) -> Any:
    return wf.from_dataset((Ones, Twos)[which]())


def inside(make: Make) -> Make:
    """The same in a tree: the second of two data sets is another one."""
    return lambda root, which: wf.concatenate(make(root / "one", 0), make(root / "two", which))


def turned(root: Path, which: int) -> Any:
    """The same two data sets, in another order."""
    parts = [rows(root, 0), rows(root, 0)]
    parts[which] = parts[which].take(3)
    return wf.concatenate(*parts)


SOURCES: list[Make] = [
    folder,
    classes,
    pattern,
    files,
    annotated,
    encoded,
    shard_names,
    shard_sizes,
    rows,
    fields,
    dtypes,
    shapes,
    structure,
    cifar,
    mnist,
    torchs,
    inside(folder),
    turned,
]


def loader(dataset: Any) -> Any:
    return dataset.shuffle(seed=1).batch(2).numpy(num_workers=1)


@pytest.mark.parametrize("make", SOURCES, ids=lambda make: make.__qualname__)
def test_a_state_of_another_source_is_refused_and_of_a_copy_taken(make: Make, tmp_path: Path) -> None:
    one = make(tmp_path / "one", 0)
    first = loader(one)
    batches = iter(first)
    next(batches)
    state = json.loads(json.dumps(first.state_dict()))
    rest = [repr(batch) for batch in batches]
    other = make(tmp_path / "other", 1)
    assert len(other) == len(one), "a length alone does not tell them apart"
    with pytest.raises(wf.StateError, match="belongs to another data set or pipeline"):
        loader(other).load_state_dict(state)
    copy = make(tmp_path / "copy", 0)
    again = loader(copy)
    again.load_state_dict(state)
    assert [repr(batch) for batch in again] == rest


def test_a_folder_may_be_moved_but_not_lose_a_file(tmp_path: Path) -> None:
    first = loader(folder(tmp_path / "one", 0))
    next(iter(first))
    state = first.state_dict()
    shutil.move(tmp_path / "one", tmp_path / "two")
    loader(wf.image_folder(tmp_path / "two")).load_state_dict(state)
    (tmp_path / "two" / "a" / "00.png").rename(tmp_path / "two" / "a" / "renamed.png")
    with pytest.raises(wf.StateError, match="belongs to another data set"):
        loader(wf.image_folder(tmp_path / "two")).load_state_dict(state)
