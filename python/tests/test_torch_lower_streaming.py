"""Data sets over shards of MosaicML's Streaming and of LitData: samples, order and batches are the library's.

One file for both, and so a long one: they share the data, the comparison with the library and the cases of states.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import pickle
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torch.utils.data import IterableDataset, get_worker_info
from torchvision import transforms
from torchvision.transforms import v2

import wellfed as wf
from pictures import picture
from torch_same import same
from wellfed.torch import DataLoader
from wellfed.torch._lower import shards, users
from wellfed.torch._lower.mosaic import _Entered
from wellfed.torch._lower.shards import Cells, Epoch, Packed, Shards, stamps, table_of
from wellfed.torch._lower.values import INDEX, Picture
from wellfed.torch._stateful import is_stateful

SMALL = transforms.Compose([transforms.Resize((12, 10)), transforms.ToTensor()])
SMALL_TENSOR = v2.Compose([v2.Resize((12, 10), antialias=True), v2.ToDtype(torch.float32, scale=True)])
COUNT = 53

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:worker processes are forked while",
        "ignore:This DataLoader will create",
        "ignore:The given NumPy array is not writable",
        "ignore:The given buffer is not writable",
        "ignore::DeprecationWarning",
        "ignore:Length of IterableDataset",
        "ignore:Trying to partition",
    ),
]


def jpeg(seed: int, height: int | None = None) -> Any:
    """An image as the libraries want it, which know that its file is a JPEG."""
    file = io.BytesIO()
    Image.fromarray(picture(seed, height or 24 + seed % 5, 20)).save(file, "jpeg")
    return Image.open(io.BytesIO(file.getvalue()))


# What does not need a library.


def packed_file(path: Path, rows: list[list[bytes]], sizes: list[int | None]) -> None:
    samples = [
        b"".join(np.uint32(len(value)).tobytes() for value, size in zip(row, sizes) if size is None)
        + b"".join(row)
        for row in rows
    ]
    ends = 4 * (len(rows) + 2) + np.cumsum([0, *map(len, samples)])
    path.write_bytes(np.uint32([len(rows), *ends]).tobytes() + b"".join(samples))


def test_values_are_found_in_packed_files(tmp_path: Path) -> None:
    rows = [[bytes([i]) * (i % 4), np.int64(i).tobytes(), f"text {i}".encode()] for i in range(150)]
    sizes = [None, 8, None]
    parts = [rows[:1], rows[1:1], *(rows[i : i + 2] for i in range(1, 150, 2))]
    paths = []
    for number, part in enumerate(parts):
        paths.append(tmp_path / f"{number}.bin")
        packed_file(paths[-1], part, sizes)
    packed = Packed([os.fspath(path) for path in paths], list(map(len, parts)), sizes)
    assert len(packed) == 150
    order = list(range(150))
    random.Random(0).shuffle(order)
    for i in order:
        assert [packed.value(i, place) for place in range(3)] == rows[i]


def test_a_packed_file_that_was_cut_is_an_error(tmp_path: Path) -> None:
    packed_file(tmp_path / "a", [[b"abcdef"], [b"gh"]], [None])
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:-1])
    packed = Packed([os.fspath(tmp_path / "a")], [2], [None])
    assert packed.value(0, 0) == b"abcdef"
    with pytest.raises(ValueError, match="cut short"):
        packed.value(1, 0)


class Barrier:
    """What enters the library's barrier."""

    def __init__(self, path: Path) -> None:
        self.filelock_path = os.fspath(path)
        self.lock: Any = None
        self.entered: list[int] = []

    def __call__(self, num_procs: int) -> None:
        with self.lock:
            self.entered.append(num_procs)


def test_a_barrier_is_entered_for_each_worker_unless_nobody_else_is_waited_for(tmp_path: Path) -> None:
    pytest.importorskip("filelock")
    barrier = Barrier(tmp_path / "lock")
    _Entered(barrier, 3)(3)
    assert barrier.entered == []
    _Entered(barrier, 3)(5)
    assert barrier.entered == [5, 5, 5]


def test_methods_that_need_arguments_are_no_state() -> None:
    class Counting:
        def state_dict(self, num_samples: int, from_beginning: bool = False) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            pass

    class Plain(Counting):
        def state_dict(self, *given: Any, **named: Any) -> dict[str, Any]:  # type: ignore[override]
            return {}

    assert not is_stateful(Counting())
    assert is_stateful(Plain())


class NeedsArguments(IterableDataset[int]):
    """Has such methods, and is iterated in workers."""

    def __iter__(self) -> Iterator[int]:
        yield from range(5)

    def state_dict(self, num_samples: int) -> dict[str, Any]:
        raise AssertionError

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError


@pytest.mark.parametrize("workers", [0, 1])
def test_they_are_not_called_in_workers(workers: int) -> None:
    loader = DataLoader(NeedsArguments(), batch_size=2, num_workers=workers)
    batches = [batch.tolist() for batch in loader]
    assert batches == [[0, 1], [2, 3], [4]]
    assert loader.state_dict()


class Library(IterableDataset[Any]):
    """Stands for a library whose shards are MDS: what it does that this file knows of, in a few lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.packed = Packed([os.fspath(folder / "shard.00000.mds")], [COUNT], [None, 8])

    def __getitem__(self, index: int) -> Any:
        image = Image.open(io.BytesIO(self.packed.value(index, 0)))
        return {"image": image, "label": int(np.frombuffer(self.packed.value(index, 1), np.int64)[0])}

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from map(self.__getitem__, range(first, COUNT, step))


class OfLibrary(Library):
    transform: Any = SMALL

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return self.transform(sample["image"].convert("RGB")), sample["label"]


class LabelOfLibrary(Library):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)["label"] * 2


class LibraryShards(Shards):
    library = "Library"

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.packed, self.files = dataset, dataset.packed, stamps(dataset.packed.paths)
        self.getters = (Library.__getitem__,)

    def cells(self, cells: Cells) -> Any:
        label = cells.row(1, lambda data: int(np.frombuffer(data, np.int64)[0]))
        return table_of({"image": cells.image(0, "image", Picture(INDEX)), "label": label})

    def engine(self, field: str) -> wf.Dataset:
        return wf.mds(self.dataset.folder, fields=[field])

    def sample(self, number: int) -> Any:
        return self.dataset[number]

    def begin(self, workers: int, persistent: bool) -> Epoch:
        return LibraryEpoch()


class LibraryEpoch(Epoch):
    def numbers(self, worker: Any, stages: Any) -> Iterator[int]:
        yield from range(0, COUNT, 1) if worker is None else range(worker.id, COUNT, worker.num_workers)

    def mark(self, finished: bool) -> None:
        return None


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is native must not depend on what else the machine does."""
    for module in (shards, users):
        monkeypatch.setattr(module, "_SLOWEST", 10.0)


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rows = []
    for i in range(COUNT):
        file = io.BytesIO()
        Image.fromarray(picture(i, 24, 20)).save(file, "png")
        rows.append([file.getvalue(), np.int64(i).tobytes()])
    packed_file(tmp_path / "shard.00000.mds", rows, [None, 8])
    shard = {
        "format": "mds",
        "samples": COUNT,
        "column_names": ["image", "label"],
        "column_encodings": ["png", "int"],
        "column_sizes": [None, 8],
        "compression": None,
        "zip_data": None,
        "raw_data": {
            "basename": "shard.00000.mds",
            "bytes": (tmp_path / "shard.00000.mds").stat().st_size,
            "hashes": {},
        },
    }
    (tmp_path / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    monkeypatch.setattr("wellfed.torch._lower.mosaic.is_known", lambda dataset: isinstance(dataset, Library))
    monkeypatch.setattr("wellfed.torch._lower.mosaic.read", LibraryShards)
    return tmp_path


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_samples_of_shards(library: Path, workers: int, drop_last: bool) -> None:
    for kind, plan in ((OfLibrary, "native"), (LabelOfLibrary, "tensors")):
        arguments: dict[str, Any] = {"batch_size": 4, "num_workers": workers, "drop_last": drop_last}
        fed = wf.feed(Stock(kind(library), **arguments))
        assert fed._planned().kind == plan
        assert same(list(fed), list(Stock(kind(library), **arguments)))
        assert same(list(fed), list(Stock(kind(library), **arguments)))
        assert fed._planned().stream.in_python == 0


def test_a_sample_of_shards_that_is_damaged(library: Path) -> None:
    dataset = OfLibrary(library)
    fed = wf.feed(Stock(dataset, batch_size=4))
    assert fed._planned().kind == "native"
    path = library / "shard.00000.mds"
    data = bytearray(path.read_bytes())
    at = int(np.frombuffer(data, np.uint32, 1, 4 * 7)[0]) + 4
    data[at : at + 4] = b"none"
    path.write_bytes(bytes(data))
    batches = iter(fed)
    next(batches)
    with pytest.raises(Exception, match="cannot identify image"):
        next(batches)


def test_a_batch_that_is_left_to_the_library(library: Path) -> None:
    fed = wf.feed(Stock(OfLibrary(library), batch_size=4))
    stream = fed._planned().stream
    wanted = list(Stock(OfLibrary(library), batch_size=4))
    numbers = np.arange(4, 8)
    assert same(stream.make_in_python(numbers, ValueError("the engine's")), wanted[1])
    assert stream.in_python == 1
    assert "1 batches so far" in fed.explain()


# MosaicML's Streaming.


class Mosaic:
    """Makes data sets, each of which has the memory that it shares with workers for itself."""

    def __init__(self, library: Any, root: Path) -> None:
        self.library, self.root = library, root
        self.shared: list[Any] = []
        columns = {
            "image": "jpeg",
            "label": "int",
            "name": "str",
            "x": "ndarray:float32:3",
            "any": "ndarray",
            "f": "float32",
            "u": "uint8",
            "j": "json",
            "b": "bytes",
        }
        for part, count in (("a", COUNT), ("b", 20)):
            with library.MDSWriter(out=os.fspath(root / part), columns=columns, size_limit=6000) as writer:
                for i in range(count):
                    writer.write(self.row(i))
        encoded = {"image": "bytes", "label": "int"}
        with library.MDSWriter(out=os.fspath(root / "bytes"), columns=encoded, size_limit=6000) as writer:
            for i in range(COUNT):
                file = io.BytesIO()
                Image.fromarray(picture(i, 24, 20)).save(file, "png")
                writer.write({"image": file.getvalue(), "label": i})
        raw = {"image": "pil", "label": "int"}
        with library.MDSWriter(out=os.fspath(root / "pil"), columns=raw, size_limit=9000) as writer:
            for i in range(COUNT):
                writer.write({"image": Image.fromarray(picture(i, 24, 20)), "label": i})
        with library.MDSWriter(
            out=os.fspath(root / "zip"), columns={"label": "int"}, compression="zstd"
        ) as writer:
            for i in range(COUNT):
                writer.write({"label": i})

    @staticmethod
    def row(i: int) -> dict[str, Any]:
        return {
            "image": jpeg(i),
            "label": i,
            "name": f"row {i}",
            "x": np.arange(3, dtype=np.float32) + i,
            "any": np.full((2, 2), i, np.int16),
            "f": np.float32(i / 4),
            "u": np.uint8(i),
            "j": {"i": i},
            "b": bytes([i, 1]),
        }

    def fresh(self) -> None:
        """Data sets before are gone, and with them the shared memory that the library keeps until the process ends."""
        gc.collect()
        for memory in self.shared:
            with contextlib.suppress(Exception):
                memory.cleanup()
        self.shared.clear()

    def same_epochs(
        self,
        make: Callable[[], Any],
        *,
        epochs: int = 3,
        loader: Any = Stock,
        kind: str = "native",
        **arguments: Any,
    ) -> Any:
        """That several epochs are the stock loader's, and what else can be asked of it; gives back ours."""
        arguments = {"batch_size": 4, **arguments}
        self.fresh()
        dataset = make()
        stock = loader(dataset, **arguments)
        wanted = [list(stock) for _ in range(epochs)]
        counts = len(stock), dataset.next_epoch
        del stock, dataset
        self.fresh()
        dataset = make()
        fed = wf.feed(loader(dataset, **arguments))
        found = [list(fed) for _ in range(epochs)]
        assert same(found, wanted)
        assert (len(fed), dataset.next_epoch) == counts
        assert fed._planned().kind == kind, fed.explain()
        return fed


@pytest.fixture(scope="module")
def mosaic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosaic]:
    library = pytest.importorskip("streaming")
    made = Mosaic(library, tmp_path_factory.mktemp("mds"))
    memory = library.base.shared.memory.SharedMemory
    before = memory.__init__

    def remembered(self: Any, *given: Any, **named: Any) -> None:
        before(self, *given, **named)
        made.shared.append(self)

    memory.__init__ = remembered
    yield made
    memory.__init__ = before
    made.fresh()


def _mosaic_classes() -> dict[str, Any]:
    from streaming import StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]
        def __init__(self, transform: Any = SMALL, **arguments: Any) -> None:
            super().__init__(**arguments)
            self.transform = transform

        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            return self.transform(sample["image"].convert("RGB")), sample["label"]

    class Kept(Images):
        def __getitem__(self, index: int) -> Any:
            sample = StreamingDataset.__getitem__(self, index)
            sample["image"] = self.transform(sample["image"].convert("RGB"))
            return sample

    class Got(Images):
        __getitem__ = StreamingDataset.__getitem__

        def get_item(self, sample_id: int, retry: int = 7) -> Any:
            sample = super().get_item(sample_id)
            return {"image": self.transform(sample["image"].convert("RGB")), "name": sample["name"]}

    class Opened(Images):
        def __getitem__(self, index: int) -> Any:
            return super(Images, self).__getitem__(index)

    class Encoded(Images):
        def __getitem__(self, index: int) -> Any:
            sample = StreamingDataset.__getitem__(self, index)
            image = Image.open(io.BytesIO(sample["image"])).convert("RGB")
            return self.transform(image), torch.tensor(sample["label"])

    class Values(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            del sample["image"]
            return sample

    class Tokens(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            sample = super().__getitem__(index)
            return torch.from_numpy(np.frombuffer(sample["b"], dtype=np.uint8).astype(np.int64))

    class Indexed(Images):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)[0], index

    class Next(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index + 1)["label"]

    class Iterated(Images):
        def __iter__(self) -> Iterator[Any]:
            yield from super().__iter__()

    return {name: value for name, value in locals().items() if isinstance(value, type)}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", ["Images", "Kept", "Got"])
def test_images_of_mds(mosaic: Mosaic, name: str, shuffle: bool, workers: int) -> None:
    kind = _mosaic_classes()[name]
    where = os.fspath(mosaic.root / "a")
    fed = mosaic.same_epochs(lambda: kind(local=where, batch_size=4, shuffle=shuffle), num_workers=workers)
    assert "Streaming's own" in fed.explain()
    assert fed._planned().stream.in_python == 0


@pytest.mark.parametrize("folder", ["bytes", "pil"])
def test_images_that_are_encoded_by_the_user_or_not_at_all(mosaic: Mosaic, folder: str) -> None:
    kind = _mosaic_classes()["Encoded" if folder == "bytes" else "Images"]
    where = os.fspath(mosaic.root / folder)
    fed = mosaic.same_epochs(lambda: kind(local=where, batch_size=4, shuffle=True), num_workers=2)
    assert fed._planned().stream.in_python == 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", ["Values", "Tokens"])
def test_values_of_mds(mosaic: Mosaic, name: str, workers: int) -> None:
    kind = _mosaic_classes()[name]
    where = os.fspath(mosaic.root / "a")
    mosaic.same_epochs(
        lambda: kind(local=where, batch_size=4, shuffle=True), num_workers=workers, kind="tensors"
    )


def test_the_bare_class(mosaic: Mosaic) -> None:
    root = mosaic.root / "bare"
    with mosaic.library.MDSWriter(
        out=os.fspath(root), columns={"t": "ndarray:int32:8", "i": "int64"}
    ) as writer:
        for i in range(COUNT):
            writer.write({"t": np.arange(8, dtype=np.int32) * i, "i": np.int64(i)})
    mosaic.same_epochs(
        lambda: mosaic.library.StreamingDataset(local=os.fspath(root), batch_size=4, shuffle=True),
        num_workers=2,
        kind="tensors",
    )


def test_several_streams(mosaic: Mosaic) -> None:
    kind, stream = _mosaic_classes()["Images"], mosaic.library.Stream

    def make() -> Any:
        streams = [
            stream(local=os.fspath(mosaic.root / "a"), proportion=0.25),
            stream(local=os.fspath(mosaic.root / "b"), proportion=0.75),
        ]
        return kind(streams=streams, epoch_size=60, batch_size=4, shuffle=True, batching_method="stratified")

    mosaic.same_epochs(make, num_workers=2)


@pytest.mark.parametrize("seed", range(12))
def test_random_combinations_of_mds(mosaic: Mosaic, seed: int) -> None:
    draw = random.Random(seed)
    kind = _mosaic_classes()[draw.choice(["Images", "Kept", "Got", "Values", "Tokens"])]
    where = os.fspath(mosaic.root / draw.choice("ab"))
    size = draw.choice([1, 3, 4, 7])
    given: dict[str, Any] = {
        "shuffle": draw.random() < 0.7,
        "shuffle_algo": draw.choice(["py1e", "py1s", "py1br", "py2s", "naive"]),
        "shuffle_seed": draw.randrange(1000),
        "num_canonical_nodes": draw.choice([None, 1, 2]),
        "batch_size": draw.choice([size, 4]),
        "epoch_size": draw.choice([None, None, 30, 70]),
        "sampling_method": draw.choice(["balanced", "fixed"]),
    }
    workers = draw.choice([0, 1, 2, 3])
    arguments: dict[str, Any] = {"num_workers": workers, "drop_last": draw.random() < 0.5, "batch_size": size}
    if workers and draw.random() < 0.3:
        arguments["persistent_workers"] = True
    pixels = kind.__name__ in ("Images", "Kept", "Got")
    mosaic.same_epochs(
        lambda: kind(local=where, **given), epochs=2, kind="native" if pixels else "tensors", **arguments
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_that_is_left(mosaic: Mosaic, workers: int) -> None:
    kind = _mosaic_classes()["Images"]
    found = []
    for feed in (wf.feed, lambda loader: loader):
        mosaic.fresh()
        dataset = kind(local=os.fspath(mosaic.root / "a"), batch_size=4, shuffle=True)
        loader = feed(Stock(dataset, batch_size=4, num_workers=workers))
        batches = iter(loader)
        first = [next(batches) for _ in range(3)]
        del batches
        found.append([first, list(loader)])
        del loader, dataset
    assert same(*found)


@pytest.mark.parametrize("workers", [0, 2])
def test_the_loader_of_streaming_and_its_state(mosaic: Mosaic, workers: int) -> None:
    kind, streaming_loader = _mosaic_classes()["Images"], mosaic.library.StreamingDataLoader
    where = os.fspath(mosaic.root / "a")
    fed = mosaic.same_epochs(
        lambda: kind(local=where, batch_size=4, shuffle=True), loader=streaming_loader, num_workers=workers
    )
    assert isinstance(fed, streaming_loader)
    assert isinstance(fed, DataLoader)
    found = []
    for feed in (wf.feed, lambda loader: loader):
        mosaic.fresh()
        dataset = kind(local=where, batch_size=4, shuffle=True)
        loader = feed(streaming_loader(dataset, batch_size=4, num_workers=workers))
        list(loader)
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
        del batches, loader, dataset
        mosaic.fresh()
        dataset = kind(local=where, batch_size=4, shuffle=True)
        loader = feed(streaming_loader(dataset, batch_size=4, num_workers=workers))
        loader.load_state_dict(state)
        found.append([state, list(loader), list(loader), loader.state_dict()])
        del loader, dataset
    assert same(*found)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("left", [0, 3, 99])
def test_states_of_loaders_over_mds(mosaic: Mosaic, workers: int, left: int) -> None:
    kind = _mosaic_classes()["Images"]

    def make() -> Any:
        mosaic.fresh()
        dataset = kind(local=os.fspath(mosaic.root / "a"), batch_size=4, shuffle=True)
        return wf.feed(Stock(dataset, batch_size=4, num_workers=workers))

    loader = make()
    list(loader)
    batches = iter(loader)
    for _ in range(left):
        if next(batches, None) is None:
            break
    state = loader.state_dict()
    rest, then = list(batches), list(loader)
    del loader, batches
    loader = make()
    loader.load_state_dict(state)
    if left == 99:
        assert same(list(loader), then)
    else:
        assert same([list(loader), list(loader)], [rest, then])


def _refused_classes(mosaic: Mosaic) -> dict[str, tuple[Callable[[], Any], str]]:
    kinds = _mosaic_classes()
    a = os.fspath(mosaic.root / "a")

    def remote() -> Any:
        local = mosaic.root / "fetched"
        shutil.rmtree(local, ignore_errors=True)
        return kinds["Images"](remote=a, local=os.fspath(local), batch_size=4)

    return {
        "zip": (
            lambda: mosaic.library.StreamingDataset(local=os.fspath(mosaic.root / "zip"), batch_size=4),
            "its shards are compressed",
        ),
        "index": (lambda: kinds["Indexed"](local=a, batch_size=4), "Python code"),
        "next": (lambda: kinds["Next"](local=a, batch_size=4, epoch_size=8), "Python code"),
        "iter": (lambda: kinds["Iterated"](local=a, batch_size=4), "has __iter__ of its own"),
        "remote": (remote, "shard"),
        "cache": (
            lambda: kinds["Images"](local=a, batch_size=4, cache_limit="1gb"),
            "cache_limit removes shards",
        ),
        "pil": (lambda: kinds["Opened"](local=a, batch_size=4), "image"),
        "lambda": (
            lambda: kinds["Images"](local=a, batch_size=4, transform=lambda image: SMALL(image.rotate(3))),
            "",
        ),
    }


@pytest.mark.parametrize("name", ["zip", "index", "next", "iter", "remote", "cache", "lambda"])
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_left_to_streaming(mosaic: Mosaic, name: str, workers: int) -> None:
    make, why = _refused_classes(mosaic)[name]
    mosaic.fresh()
    fed = wf.feed(Stock(make(), batch_size=4))
    assert fed._planned().kind == "python"
    assert why in fed.explain()
    del fed
    if name not in ("next", "remote", "zip"):  # whose shards are here after the first epoch
        mosaic.same_epochs(make, kind="python", num_workers=workers, epochs=2)


def test_shards_that_were_fetched_are_read_from_then_on(mosaic: Mosaic) -> None:
    make, _ = _refused_classes(mosaic)["remote"]
    mosaic.fresh()
    stock = Stock(make(), batch_size=4)
    wanted = [list(stock) for _ in range(3)]
    del stock
    mosaic.fresh()
    fed = wf.feed(Stock(make(), batch_size=4))
    kinds, found = [], []
    for _ in range(3):
        kinds.append(fed._planned().kind)
        found.append(list(fed))
    assert same(found, wanted)
    assert kinds == ["python", "native", "native"]


@pytest.mark.parametrize("name", ["Images", "Got", "Values", "Tokens"])
def test_batches_that_are_left_to_streaming(mosaic: Mosaic, name: str) -> None:
    def make() -> Any:
        mosaic.fresh()
        return _mosaic_classes()[name](local=os.fspath(mosaic.root / "a"), batch_size=4)

    wanted = list(Stock(make(), batch_size=4))
    fed = wf.feed(Stock(make(), batch_size=4))
    numbers = np.arange(8, 12)
    assert same(fed._planned().stream.make_in_python(numbers, ValueError("the engine's")), wanted[2])


def test_what_a_transform_of_the_user_changes_is_seen(mosaic: Mosaic) -> None:
    mosaic.fresh()
    dataset = _mosaic_classes()["Images"](local=os.fspath(mosaic.root / "a"), batch_size=4)
    fed = wf.feed(Stock(dataset, batch_size=4))
    before = next(iter(fed))[0]
    dataset.transform = transforms.Compose([transforms.Resize((6, 6)), transforms.ToTensor()])
    assert next(iter(fed))[0].shape[-2:] == (6, 6) != before.shape[-2:]
    dataset.transform.transforms.insert(0, transforms.CenterCrop(4))
    dataset.transform.transforms.pop(1)
    assert next(iter(fed))[0].shape[-2:] == (4, 4)
    plan = fed._planned()
    assert plan.kind == "native"
    assert fed._planned() is plan


def test_what_was_refused_is_not_read_again(mosaic: Mosaic) -> None:
    mosaic.fresh()
    kinds = _mosaic_classes()
    for kind in (kinds["Indexed"], kinds["Next"]):
        dataset = kind(local=os.fspath(mosaic.root / "a"), batch_size=4)
        fed = wf.feed(Stock(dataset, batch_size=4))
        plan = fed._planned()
        assert plan.kind == "python"
        assert fed._planned() is plan
        del fed, dataset, plan
        mosaic.fresh()


_RANK = """
import gc, os, pickle, sys
sys.path.insert(0, {tests!r})
import torch.distributed as dist
from torch.utils.data import DataLoader as Stock
from test_torch_lower_streaming import _mosaic_classes
import wellfed as wf
dist.init_process_group("gloo")
rank = dist.get_rank()
found = {{}}
for workers in (0, 2):
    for fed in ("neither", "both", "second"):
        dataset = _mosaic_classes()["Images"](local={local!r}, batch_size=4, shuffle=True)
        loader = Stock(dataset, batch_size=4, num_workers=workers)
        if fed == "both" or (fed == "second" and rank == 1):
            loader = wf.feed(loader)
            assert loader._planned().kind == "native"
        found[workers, fed] = [[y.tolist() for x, y in loader] for _ in range(3)]
        dist.barrier()
        del dataset, loader
        gc.collect()
        dist.barrier()
pickle.dump(found, open({out!r} + str(rank), "wb"))
dist.barrier()
"""


def test_ranks_of_a_node(mosaic: Mosaic, tmp_path: Path) -> None:
    mosaic.fresh()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = os.fspath(tmp_path / "rank")
    code = _RANK.format(tests=os.path.dirname(__file__), local=os.fspath(mosaic.root / "a"), out=out)
    common = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, **common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()[-3000:]
    for rank in range(2):
        found = pickle.loads(Path(out + str(rank)).read_bytes())
        for workers in (0, 2):
            # Also where only one of the ranks has workers of the library's.
            assert found[workers, "both"] == found[workers, "neither"]
            assert found[workers, "second"] == found[workers, "neither"]


# LitData.


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("workers", [0, 2])
def test_ranks_of_litdata(lit: Lit, monkeypatch: pytest.MonkeyPatch, rank: int, workers: int) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("GLOBAL_RANK", str(rank))
    fed = lit.same_epochs(
        lambda: _lit_class()(lit.at("pil"), shuffle=True),
        num_workers=workers,
        loader=lit.library.StreamingDataLoader,
    )
    assert len(fed) == 6


class Lit:
    """Makes data sets of LitData."""

    def __init__(self, library: Any, root: Path) -> None:
        self.library, self.root = library, root
        self.write("jpeg", lambda i: {"image": jpeg(i), "label": i, "more": {"w": i / 7, "t": f"row {i}"}})
        self.write("alike", lambda i: {"image": jpeg(i, 24), "label": i})
        self.write("pil", lambda i: (Image.fromarray(picture(i, 24, 20)), i))
        self.write(
            "values",
            lambda i: {
                "x": np.arange(5) + i,
                "y": i,
                "s": f"row {i}",
                "t": torch.arange(3) + i,
                "b": bytes([i]),
                "f": i / 3,
                "list": [i, [i * 2, i / 2]],
                "is": i % 2 == 0,
            },
        )
        self.write("one", lambda i: i)
        loaders = library.streaming.item_loader
        for name, kind in (("tokens", torch.tensor), ("numpy tokens", np.array)):
            self.write(name, lambda i, kind=kind: kind(range(i, i + 11)), item_loader=loaders.TokensLoader())

    def write(self, name: str, make: Callable[[int], Any], **options: Any) -> None:
        from litdata.streaming.writer import BinaryWriter

        where = self.root / name
        where.mkdir(exist_ok=True)
        writer = BinaryWriter(os.fspath(where), chunk_size=7, **options)
        for i in range(COUNT):
            writer[i] = make(i)
        writer.done()
        writer.merge()

    def tokens(self, where: str, **arguments: Any) -> Any:
        """A data set of blocks."""
        loader = self.library.streaming.item_loader.TokensLoader(block_size=5)
        return self.library.StreamingDataset(where, item_loader=loader, **arguments)

    def at(self, name: str) -> str:
        return os.fspath(self.root / name)

    def same_epochs(
        self,
        make: Callable[[], Any],
        *,
        epochs: int = 3,
        loader: Any = Stock,
        kind: str = "native",
        set_epoch: bool = False,
        **arguments: Any,
    ) -> Any:
        """That several epochs are the stock loader's, and what else can be asked of it; gives back ours."""
        arguments = {"batch_size": 4, **arguments}
        found = []
        for feed in (lambda given: given, wf.feed):
            dataset = make()
            fed = feed(loader(dataset, **arguments))
            all_batches = []
            for epoch in range(epochs):
                if set_epoch:
                    dataset.set_epoch(epoch + 5)
                all_batches.append(list(fed))
            found.append([all_batches, len(fed), dataset.current_epoch])
        assert same(*found)
        assert fed._planned().kind == kind, fed.explain()
        return fed


@pytest.fixture(scope="module")
def lit(tmp_path_factory: pytest.TempPathFactory) -> Lit:
    library = pytest.importorskip("litdata")
    return Lit(library, tmp_path_factory.mktemp("lit"))


def small_dict(sample: Any) -> Any:
    return SMALL_TENSOR(sample["image"]), sample["label"], sample["more"]


def _lit_class() -> Any:
    from litdata import StreamingDataset

    class Images(StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            image, label = super().__getitem__(index)
            return {"image": SMALL(image.convert("RGB")), "label": label}

    return Images


_LIT: dict[str, tuple[str, str, Callable[[Lit], Callable[..., Any]]]] = {
    "transform": (
        "jpeg",
        "native",
        lambda lit: lambda where, **k: lit.library.StreamingDataset(where, transform=small_dict, **k),
    ),
    "alike": ("alike", "native", lambda lit: lit.library.StreamingDataset),
    "class": ("pil", "native", lambda lit: _lit_class()),
    "values": ("values", "tensors", lambda lit: lit.library.StreamingDataset),
    "one": ("one", "tensors", lambda lit: lit.library.StreamingDataset),
    "tokens": ("tokens", "tensors", lambda lit: lit.tokens),
    "numpy tokens": ("numpy tokens", "tensors", lambda lit: lit.tokens),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("name", list(_LIT))
@pytest.mark.parametrize("own_loader", [False, True])
def test_samples_of_litdata(lit: Lit, name: str, shuffle: bool, workers: int, own_loader: bool) -> None:
    folder, kind, make = _LIT[name]
    loader = lit.library.StreamingDataLoader if own_loader else Stock
    fed = lit.same_epochs(
        lambda: make(lit)(lit.at(folder), shuffle=shuffle), num_workers=workers, kind=kind, loader=loader
    )
    assert isinstance(fed, loader)
    assert "LitData's own" in fed.explain()
    assert fed._planned().stream.in_python == 0


@pytest.mark.parametrize("seed", range(12))
def test_random_combinations_of_litdata(lit: Lit, seed: int) -> None:
    draw = random.Random(seed)
    folder, kind, make = _LIT[draw.choice(list(_LIT))]
    given: dict[str, Any] = {
        "shuffle": draw.random() < 0.7,
        "drop_last": draw.choice([None, True, False]),
        "seed": draw.randrange(100),
        "item_shuffle_window": draw.choice([None, 0, 3]),
    }
    workers = draw.choice([0, 1, 2, 3])
    arguments: dict[str, Any] = {"num_workers": workers, "batch_size": draw.choice([1, 3, 4, 9])}
    own_loader = draw.random() < 0.5
    if not own_loader:
        arguments["drop_last"] = draw.random() < 0.5
    if workers and draw.random() < 0.3:
        arguments["persistent_workers"] = True
    lit.same_epochs(
        lambda: make(lit)(lit.at(folder), **given),
        loader=lit.library.StreamingDataLoader if own_loader else Stock,
        set_epoch=not own_loader and draw.random() < 0.5,
        # A batch of one image cannot be compared with others of its batch.
        kind=kind if arguments["batch_size"] > 1 or folder != "alike" else "python",
        **arguments,
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_the_state_of_litdatas_loader(lit: Lit, workers: int) -> None:
    kind = _lit_class()
    found = []
    for feed in (wf.feed, lambda loader: loader):
        loader = feed(
            lit.library.StreamingDataLoader(
                kind(lit.at("pil"), shuffle=True), batch_size=4, num_workers=workers
            )
        )
        list(loader)
        batches = iter(loader)
        for _ in range(5):
            next(batches)
        state = loader.state_dict()
        del batches
        loader = feed(
            lit.library.StreamingDataLoader(
                kind(lit.at("pil"), shuffle=True), batch_size=4, num_workers=workers
            )
        )
        loader.load_state_dict(state)
        found.append([state, list(loader), list(loader), loader.state_dict()])
    for one, other in zip(*found, strict=True):
        assert same(one, other)


@pytest.mark.parametrize("name", list(_LIT))
def test_batches_that_are_left_to_litdata(lit: Lit, name: str) -> None:
    folder, _, make = _LIT[name]
    wanted = list(Stock(make(lit)(lit.at(folder)), batch_size=4))
    stream = wf.feed(Stock(make(lit)(lit.at(folder)), batch_size=4))._planned().stream
    for place in (2, 0, 3):
        numbers = np.arange(4 * place, 4 * place + 4)
        assert same(stream.make_in_python(numbers, ValueError("the engine's")), wanted[place])


def test_a_loader_of_litdata_with_other_arguments(lit: Lit) -> None:
    own = lit.library.StreamingDataLoader
    fed = wf.feed(own(_lit_class()(lit.at("pil"), shuffle=True), batch_size=4))
    again = wf.feed(fed, batch_size=5)
    assert isinstance(again, own)
    assert same(list(again), list(own(_lit_class()(lit.at("pil"), shuffle=True), batch_size=5)))


def test_images_that_the_engine_does_not_read(lit: Lit) -> None:
    def make() -> Any:
        return _lit_class()(lit.at("palettes"))

    lit.write("palettes", lambda i: (Image.fromarray(picture(i, 24, 20)).quantize(4), i))
    fed = lit.same_epochs(make, kind="python", epochs=2)
    assert "sample 0" in fed.explain()


def test_an_epoch_of_litdata_that_is_left(lit: Lit) -> None:
    found = []
    for feed in (wf.feed, lambda loader: loader):
        loader = feed(Stock(_lit_class()(lit.at("pil"), shuffle=True), batch_size=4))
        batches = iter(loader)
        first = [next(batches) for _ in range(3)]
        del batches
        found.append([first, list(loader), list(loader)])
    assert same(*found)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("left", [0, 3, 99])
@pytest.mark.parametrize("persistent", [False, True])
def test_states_of_loaders_over_litdata(lit: Lit, workers: int, left: int, persistent: bool) -> None:
    if persistent and not workers:
        pytest.skip("no workers")

    def make() -> Any:
        dataset = _lit_class()(lit.at("pil"), shuffle=True)
        return wf.feed(Stock(dataset, batch_size=4, num_workers=workers, persistent_workers=persistent))

    loader = make()
    list(loader)
    batches = iter(loader)
    for _ in range(left):
        if next(batches, None) is None:
            break
    state = loader.state_dict()
    rest, then = list(batches), list(loader)
    loader = make()
    loader.load_state_dict(state)
    if left == 99:
        assert same(list(loader), then)
    else:
        assert same([list(loader), list(loader)], [rest, then])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("zip", "its chunks are compressed"),
        ("subsample", "subsample= leaves samples out"),
        ("python", "Python code"),
        ("serializers", "it has serializers="),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_what_is_left_to_litdata(lit: Lit, name: str, why: str, workers: int) -> None:
    from litdata.streaming.serializers import IntegerSerializer

    kind = lit.library.StreamingDataset
    make: Callable[[], Any] = {
        "zip": lambda: kind(lit.at("zip")),
        "subsample": lambda: kind(lit.at("one"), subsample=0.5),
        "python": lambda: kind(lit.at("one"), transform=lambda i: random.Random(i).random()),
        "serializers": lambda: kind(lit.at("one"), serializers={"int": IntegerSerializer()}),
    }[name]
    if name == "zip" and not (lit.root / "zip" / "index.json").exists():
        try:
            lit.write("zip", lambda i: {"y": i}, compression="zstd")
        except ValueError as error:
            pytest.skip(str(error))  # its compression is not installed
    fed = lit.same_epochs(make, kind="python", num_workers=workers, epochs=2)
    assert why in fed.explain()
