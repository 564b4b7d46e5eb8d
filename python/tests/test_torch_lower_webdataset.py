"""Pipelines of webdataset: samples and order are the library's, whoever makes them."""

from __future__ import annotations

import gc
import io
import itertools
import json
import random
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torchvision import transforms

import wellfed as wf
from pictures import picture
from torch_same import same
from wellfed.torch import DataLoader

wds = pytest.importorskip("webdataset")

SMALL = transforms.Compose([transforms.Resize((12, 10)), transforms.ToTensor()])
RANDOM = transforms.Compose([transforms.RandomResizedCrop(8), transforms.ToTensor()])


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*shardshuffle.*")
        warnings.filterwarnings("ignore", message="worker processes are forked")
        warnings.filterwarnings("ignore", message="This DataLoader will create")
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        warnings.simplefilter("ignore", ResourceWarning)
        yield


@pytest.fixture(autouse=True, scope="module")
def _collected() -> Iterator[None]:
    """The library leaves it to the collector to close shards, which is then to say nothing."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def encoded(seed: int, kind: str = "jpeg", size: tuple[int, int] = (24, 20)) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(seed, *size)).save(file, kind)
    return file.getvalue()


def shard(path: Path, members: list[tuple[str, bytes]]) -> str:
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return str(path)


@pytest.fixture(scope="module")
def urls(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Five shards of 7, 3, 5, 1 and 6 samples."""
    folder, number, made = tmp_path_factory.mktemp("shards"), 0, []
    for i, count in enumerate((7, 3, 5, 1, 6)):
        members = []
        for _ in range(count):
            kind = "png" if number % 3 == 0 else "jpg"
            label = json.dumps({"label": number, "name": f"n{number}"}).encode()
            members += [
                (f"a/{number:03}.{kind}", encoded(number, "png" if kind == "png" else "jpeg")),
                (f"a/{number:03}.cls", f" {number}\n".encode()),
                (f"a/{number:03}.txt", f"sample {number}".encode()),
                (f"a/{number:03}.json", label),
                (f"a/{number:03}.pose.npy", b"not asked for"),
            ]
            number += 1
        made.append(shard(folder / f"s{i}.tar", [m for m in members if not m[0].endswith("npy")]))
    return made


def both(make: Any, native: bool = True, epochs: int = 2, **arguments: Any) -> list[Any]:
    """Epochs of a pipeline by torch's loader and by ours are the same."""
    results = []
    for kind in (Stock, DataLoader):
        torch.manual_seed(3)
        loader = kind(make(), **arguments)
        results.append([list(loader) for _ in range(epochs)])
    text = loader.explain()
    assert text.startswith("DataLoader, native") == native, text
    assert same(*results)
    return results[1]


def plain(urls: Any, chain: Any = SMALL, spec: str = "pil", **options: Any) -> Any:
    options.setdefault("shardshuffle", False)
    data = wds.WebDataset(urls, **options)
    return data.decode(spec).to_tuple("jpg;png", "cls").map_tuple(chain)


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_of_the_loader(urls: list[str], workers: int, drop_last: bool) -> None:
    both(lambda: plain(urls), batch_size=4, num_workers=workers, drop_last=drop_last)


@pytest.mark.parametrize("workers", [0, 2, 3])
def test_shuffled_samples_and_shards(urls: list[str], workers: int) -> None:
    def make() -> Any:
        data = wds.WebDataset(urls, shardshuffle=3, seed=5).shuffle(6, initial=2, seed=1)
        return data.decode("pil").to_tuple("jpg;png", "cls", "txt").map_tuple(SMALL, lambda y: y + 1, None)

    [[first, *_], _] = both(make, batch_size=3, num_workers=workers)
    assert first[1].tolist() != [1, 2, 3]
    assert isinstance(first[2][0], str)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_orders_that_change_from_epoch_to_epoch(urls: list[str], workers: int, persistent: bool) -> None:
    def make() -> Any:
        return plain(urls, shardshuffle=5, detshuffle=True, seed=4)

    more = {"persistent_workers": True} if persistent and workers else {}
    one, other, third = both(make, epochs=3, batch_size=5, num_workers=workers, **more)
    assert same(one, other) == (workers > 0 and not persistent)
    assert same(other, third) == (workers > 0 and not persistent)


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_the_pipeline(urls: list[str], workers: int) -> None:
    for partial in (True, False):
        both(
            lambda partial=partial: plain(urls).batched(4, partial=partial),
            batch_size=None,
            num_workers=workers,
        )
    both(lambda: plain(urls).batched(4).with_epoch(9), batch_size=None, num_workers=workers)
    both(lambda: plain(urls).with_epoch(30), batch_size=4, num_workers=workers)
    both(lambda: plain(urls).repeat(2), batch_size=4, num_workers=workers)


@pytest.mark.parametrize("spec", ["pil", "pilrgb", "rgb8", "torchrgb8", "torchrgb", "torch"])
def test_what_decode_makes(urls: list[str], spec: str) -> None:
    chain = SMALL if spec.startswith("pil") else None
    both(lambda: plain(urls, chain, spec), batch_size=4)
    both(lambda: plain(urls, chain, spec).batched(4), batch_size=None)


def test_fields_and_functions(urls: list[str]) -> None:
    def make(*fields: str, functions: Any = (), **options: Any) -> Any:
        data = wds.WebDataset(urls, shardshuffle=False).decode("torchrgb").to_tuple(*fields)
        return data.map_tuple(*functions, **options) if functions else data

    both(lambda: make("jpg;png cls"), batch_size=4)
    both(lambda: make("png;jpg"), batch_size=4)
    both(lambda: make("cls", "jpg;png", "json", functions=(None, None, lambda j: j["label"])), batch_size=4)
    both(lambda: make("json", "jpg;png"), batch_size=4)
    both(lambda: make("txt", "jpg;png", functions=(len,)).batched(5), batch_size=None)


def test_the_other_way_to_write_a_pipeline(urls: list[str]) -> None:
    def make() -> Any:
        return wds.DataPipeline(
            wds.SimpleShardList(urls),
            wds.shuffle(3, seed=2),
            wds.split_by_node,
            wds.split_by_worker,
            wds.tarfile_to_samples(),
            wds.shuffle(5, seed=1),
            wds.decode("pil"),
            wds.to_tuple("jpg;png", "cls"),
            wds.map_tuple(SMALL),
            wds.batched(4),
        )

    for workers in (0, 2):
        both(make, batch_size=None, num_workers=workers)


def test_shards_by_ranks(urls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        both(lambda: plain(urls, nodesplitter=wds.split_by_node), batch_size=4, num_workers=2)


def test_resampled_shards(urls: list[str]) -> None:
    def make() -> Any:
        data = wds.DataPipeline(
            wds.ResampledShards(urls, deterministic=True, seed=3), wds.tarfile_to_samples()
        )
        return data.compose(
            wds.decode("pil"), wds.to_tuple("jpg;png", "cls"), wds.map_tuple(SMALL)
        ).with_epoch(40)

    for workers in (0, 2):
        both(make, batch_size=4, num_workers=workers)


@pytest.mark.parametrize("seed", range(8))
def test_random_pipelines(urls: list[str], seed: int) -> None:
    draw = random.Random(seed)
    workers = draw.choice([0, 0, 1, 2, 3])
    batched = draw.random() < 0.5

    def make() -> Any:
        pick = random.Random(seed)
        chosen = [pick.choice(urls) for _ in range(pick.randint(3, 6))]
        data = wds.WebDataset(
            chosen, shardshuffle=pick.choice([False, 2, 9]), detshuffle=pick.random() < 0.5, seed=seed
        )
        if pick.random() < 0.5:
            data = data.shuffle(pick.randint(1, 12), initial=pick.randint(1, 12), seed=seed)
        data = data.decode("pil")
        if pick.random() < 0.3:
            data = data.shuffle(3, seed=seed)
        data = data.to_tuple("jpg;png", "cls").map_tuple(SMALL)
        if pick.random() < 0.3:
            data = data.compose(wds.detshuffle(4, 1, seed=seed))
        if batched:
            data = data.batched(pick.randint(1, 9), partial=pick.random() < 0.7)
        if pick.random() < 0.4:
            data = data.with_epoch(pick.randint(1, 15))
        return data

    size = None if batched else draw.randint(2, 9)
    both(make, batch_size=size, num_workers=workers, drop_last=bool(size) and draw.random() < 0.5)


def test_random_transforms_do_not_depend_on_workers(urls: list[str]) -> None:
    torch.manual_seed(1)
    loader = DataLoader(plain(urls, RANDOM), batch_size=4)
    one, other = list(loader), list(loader)
    assert not torch.equal(one[0][0], other[0][0])
    torch.manual_seed(1)
    assert same(list(DataLoader(plain(urls, RANDOM), batch_size=4)), one)
    assert one[0][0].shape == (4, 3, 8, 8)


# States.


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("batched", [False, True])
def test_a_state_goes_on_where_it_was_taken(urls: list[str], workers: int, batched: bool) -> None:
    def make() -> Any:
        data = plain(urls, RANDOM, shardshuffle=3, seed=1)
        data = data.batched(3) if batched else data
        torch.manual_seed(5)
        return DataLoader(data, batch_size=None if batched else 3, num_workers=workers)

    whole = list(make())
    for cut in (0, 1, 4, len(whole) - 1, len(whole)):
        loader = make()
        assert loader.explain().startswith("DataLoader, native")
        list(itertools.islice(loader, cut)) if cut < len(whole) else list(loader)
        state = json.loads(json.dumps(loader.state_dict()))
        again = make()
        torch.manual_seed(99)
        again.load_state_dict(state)
        rest = list(again)
        if cut < len(whole):
            assert same(rest, whole[cut:]), cut


@pytest.mark.parametrize("workers", [0, 2])
def test_states_fit_between_the_engine_and_python(urls: list[str], workers: int) -> None:
    def make(native: bool) -> Any:
        return DataLoader(
            plain(urls, shardshuffle=3, seed=1), batch_size=3, num_workers=workers, native=native
        )

    whole = list(make(False))
    for first, then in ((True, False), (False, True)):
        loader = make(first)
        list(itertools.islice(loader, 3))
        again = make(then)
        again.load_state_dict(loader.state_dict())
        assert same(list(again), whole[3:])


# Files that change, and samples that the engine cannot make.


def test_shards_that_change_are_seen(tmp_path: Path) -> None:
    path = shard(tmp_path / "a.tar", [("a.jpg", encoded(1)), ("a.cls", b"1")])
    loader = DataLoader(plain([path]), batch_size=2)
    assert [labels.tolist() for _, labels in loader] == [[1]]
    shard(
        tmp_path / "a.tar", [("b.jpg", encoded(2)), ("b.cls", b"2"), ("c.jpg", encoded(3)), ("c.cls", b"3")]
    )
    assert [labels.tolist() for _, labels in loader] == [[2, 3]]


def test_images_that_the_engine_does_not_read_are_read_in_python(tmp_path: Path) -> None:
    members = []
    for i in range(6):
        data = encoded(i, "sgi" if i == 3 else "jpeg")
        members += [(f"{i}.jpg", data), (f"{i}.cls", str(i).encode())]
    path = shard(tmp_path / "a.tar", members)
    for workers in (0, 1):
        both(lambda: plain([path]), batch_size=2, num_workers=workers)
    loader = DataLoader(plain([path]), batch_size=2)
    list(loader)
    assert "1 batches so far" in loader.explain()


@pytest.mark.parametrize("workers", [0, 2])
def test_what_the_library_raises_is_raised(tmp_path: Path, workers: int) -> None:
    good = [("1.jpg", encoded(1)), ("1.cls", b"1"), ("2.jpg", encoded(1)), ("2.cls", b"1")]
    bad = {
        "broken": [("3.jpg", b"rubbish"), ("3.cls", b"3")],
        "missing": [("3.jpg", encoded(3)), ("3.txt", b"3")],
        "label": [("3.jpg", encoded(3)), ("3.cls", b"three")],
    }
    for name, members in bad.items():
        paths = [shard(tmp_path / f"{name}{i}.tar", [*good, *members, *good[:2]]) for i in range(2)]
        raised = []
        for kind in (Stock, DataLoader):
            loader = kind(plain(paths), batch_size=2, num_workers=workers)
            batches = iter(loader)
            for _ in range(2 if workers else 1):
                next(batches)
            with pytest.raises(Exception) as error:
                next(batches)
            raised.append(type(error.value))
        assert loader.explain().startswith("DataLoader, native"), loader.explain()
        assert raised[0] is raised[1], name


def test_fewer_shards_than_workers_raise_as_they_did(urls: list[str]) -> None:
    for kind in (Stock, DataLoader):
        with pytest.raises(ValueError, match="No samples found"):
            list(kind(plain(urls[:1]), batch_size=2, num_workers=2))
    both(lambda: plain(urls[:1], empty_check=False), batch_size=2, num_workers=3)


# What is not known.


def own(sample: Any) -> Any:
    return sample


REFUSED: dict[str, tuple[Any, str]] = {
    "map": (lambda u: wds.WebDataset(u, shardshuffle=False).decode("pil").map(own), "map(own)"),
    "no decoder": (
        lambda u: wds.WebDataset(u, shardshuffle=False).to_tuple("jpg;png", "cls"),
        "its stage to_tuple is Python code",
    ),
    "a decoder": (
        lambda u: wds.WebDataset(u, shardshuffle=False).decode(lambda k, d: None).to_tuple("jpg"),
        "decoder",
    ),
    "alpha": (lambda u: plain(u, None, "torchrgba"), "torchrgba"),
    "a handler": (lambda u: plain(u, handler=wds.warn_and_continue), "handler"),
    "bytes": (lambda u: wds.WebDataset(u, shardshuffle=False).decode("pil").to_tuple("jpg", "npy"), "'npy'"),
    "a key": (
        lambda u: wds.WebDataset(u, shardshuffle=False).decode("pil").to_tuple("jpg", "__key__"),
        "__key__",
    ),
    "Pillow images": (lambda u: plain(u, None), "Pillow images"),
    "a Python transform": (lambda u: plain(u, transforms.Compose([own, SMALL])), "own"),
    "a generator": (lambda u: plain(u).shuffle(3, rng=random.Random(1)), "generator of its own"),
    "a collation": (lambda u: plain(u).batched(2, collation_fn=own), "collates by own"),
    "batches of batches": (lambda u: plain(u).batched(2), "batches of batches"),
    "a pipe": (lambda u: plain([f"pipe:cat {u[0]}"]), "no local file"),
    "select": (lambda u: wds.WebDataset(u, shardshuffle=False).select(own).decode("pil"), "select"),
    "chosen files": (lambda u: plain(u, select_files=own), "select_files"),
    "one that is not there": (lambda u: plain(["none.tar"]), "none.tar"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_known_stays_in_python(urls: list[str], case: str) -> None:
    make, words = REFUSED[case]
    text = DataLoader(make(urls), batch_size=2).explain()
    assert text.startswith("DataLoader, Python"), text
    assert words in text, text


def test_subclasses_and_replaced_functions_stay_in_python(
    urls: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Mine(wds.WebDataset):
        pass

    def explained(data: Any) -> str:
        return DataLoader(
            data.decode("pil").to_tuple("jpg;png", "cls").map_tuple(SMALL), batch_size=2
        ).explain()

    assert explained(Mine(urls, shardshuffle=False)).startswith("DataLoader, Python")
    assert explained(wds.WebDataset(urls, shardshuffle=False)).startswith("DataLoader, native")
    monkeypatch.setitem(wds.autodecode.decoders, "cls", lambda data: 7)
    assert explained(wds.WebDataset(urls, shardshuffle=False)).startswith("DataLoader, Python")


def test_shards_that_a_stream_reads_otherwise_stay_in_python(tmp_path: Path) -> None:
    members = [("f/a.jpg", encoded(1)), ("f/a.cls", b"1"), ("f/b.jpg", encoded(2)), ("f/b.cls", b"2")]
    hidden = shard(tmp_path / "hidden.tar", [*members, ("f/.c.txt", b"")])
    text = DataLoader(plain([hidden]), batch_size=2).explain()
    assert "belong to no sample" in text
    with tarfile.open(tmp_path / "packed.tar.gz", "w:gz") as tar:
        tar.add(hidden)
    assert (
        DataLoader(plain([str(tmp_path / "packed.tar.gz")]), batch_size=2)
        .explain()
        .startswith("DataLoader, Python")
    )
    whole = Path(shard(tmp_path / "whole.tar", members)).read_bytes()
    (tmp_path / "open.tar").write_bytes(whole[: len(whole) // 10240 * 10240 - 9000])
    both(lambda: plain([str(tmp_path / "whole.tar")]), batch_size=2)


def test_feed_takes_their_loader(urls: list[str]) -> None:
    def make() -> Any:
        return wds.WebLoader(plain(urls).batched(4), batch_size=None, num_workers=2).unbatched().batched(6)

    expected = [(x.tolist(), y.tolist()) for x, y in make()]
    given = [(x.tolist(), y.tolist()) for x, y in wf.feed(make())]
    assert given == expected
    assert np.concatenate([y for _, y in given]).tolist() != list(range(22))
