"""Iterable data sets of Hugging Face's `datasets`: rows and their order are the library's, whoever makes them."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torchvision import transforms

from pictures import picture
from torch_same import same
from wellfed.torch import DataLoader

hf = pytest.importorskip("datasets")
distributed = pytest.importorskip("datasets.distributed")

SMALL = transforms.Compose([transforms.Resize((12, 10)), transforms.ToTensor()])

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:worker processes are forked while", "ignore:This DataLoader will create"
    ),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    before = hf.logging.get_verbosity()
    hf.logging.set_verbosity_error()  # more workers than shards
    yield
    hf.logging.set_verbosity(before)


def encoded(seed: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(seed, 24, 20)).save(file, "png" if seed % 3 else "jpeg")
    return file.getvalue()


IMAGES = [encoded(seed) for seed in range(40)]


def table(count: int = 23) -> Any:
    features = {
        "label": hf.ClassLabel(names=["a", "b"]),
        "image": hf.Image(),
        "name": hf.Value("string"),
        "weight": hf.Value("float32"),
    }
    rows = {
        "label": [i % 2 for i in range(count)],
        "image": [{"bytes": IMAGES[i], "path": None} for i in range(count)],
        "name": [f"row {i}" for i in range(count)],
        "weight": [i / 8 for i in range(count)],
    }
    return hf.Dataset.from_dict(rows, features=hf.Features(features))


def small(row: Any) -> Any:
    return {"image": SMALL(row["image"].convert("RGB"))}


def written(row: Any) -> Any:
    row["pixels"] = SMALL(row["image"].convert("RGB"))
    return row


def copied(row: Any) -> Any:
    return {**row, "image": SMALL(row["image"].convert("RGB"))}


def doubled(row: Any) -> Any:
    return {"twice": row["weight"] * 2}


def several(rows: Any) -> Any:
    return {"image": [SMALL(image.convert("RGB")) for image in rows["image"]]}


def both(dataset: Any, native: bool | None = True, epochs: int = 2, **arguments: Any) -> list[Any]:
    results = []
    for loader_of in (Stock, DataLoader):
        torch.manual_seed(3)
        loader = loader_of(dataset, **arguments)
        results.append([list(loader) for _ in range(epochs)])
    assert same(*results), arguments
    if native is not None:
        assert loader.explain().splitlines()[0].startswith("DataLoader, native") == native, loader.explain()
    return results[1]


@pytest.mark.parametrize("workers", [0, 2, 5])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches(workers: int, drop_last: bool) -> None:
    data = table().to_iterable_dataset(num_shards=4).map(small)
    both(data, batch_size=4, num_workers=workers, drop_last=drop_last)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (written, {"remove_columns": ["image", "name"]}),
        (copied, {}),
        (copied, {"remove_columns": ["label"]}),
        (several, {"batched": True, "batch_size": 7}),
    ],
)
def test_functions_and_the_columns_they_leave(function: Any, arguments: Any) -> None:
    both(table().to_iterable_dataset(num_shards=2).map(function, **arguments), batch_size=5, num_workers=2)


def test_functions_one_after_the_other() -> None:
    data = table().to_iterable_dataset().map(doubled).map(small, remove_columns=["name"]).take(9)
    (first, *_), _ = both(data, batch_size=4)
    assert list(first) == ["label", "image", "weight", "twice"]


def test_rows_of_the_format_torch() -> None:
    rows = table().cast_column("image", hf.Image(mode="RGB")).to_iterable_dataset(num_shards=3)
    both(rows.with_format("torch").shuffle(seed=1, buffer_size=6), batch_size=4, num_workers=2)


def test_rows_without_batches() -> None:
    both(table(7).to_iterable_dataset(num_shards=2).map(small), batch_size=None, num_workers=2)


@pytest.mark.parametrize("seed", range(25))
def test_random_stages(seed: int) -> None:
    draw = random.Random(seed)
    rows = table(draw.choice([1, 5, 23, 40]))
    if draw.random() < 0.3:
        rows = rows.shuffle(seed=seed)  # by an index, above the table
    data = rows.to_iterable_dataset(num_shards=draw.randint(1, min(5, len(rows))))
    mapped = False
    for _ in range(draw.randint(1, 5)):
        stage = draw.choice(["shuffle", "shuffle", "skip", "take", "map", "doubled", "ranks", "repeat"])
        if stage == "shuffle":
            data = data.shuffle(seed=draw.randrange(99), buffer_size=draw.choice([1, 4, 10, 100]))
        elif stage == "skip":
            data = data.skip(draw.randrange(4))
        elif stage == "take":
            data = data.take(draw.randint(1, 30))
        elif stage == "repeat":
            data = data.repeat(draw.randint(1, 2))
        elif stage == "doubled":
            data = data.map(doubled)
        elif stage == "map" and not mapped:
            mapped = True
            data = data.map(several, batched=True, batch_size=draw.choice([1, 3, 50]))
        elif stage == "ranks" and data._distributed is None:
            data = distributed.split_dataset_by_node(data, rank=draw.randrange(2), world_size=2)
    if not mapped:
        data = data.map(small)
    workers = draw.choice([0, 1, 2, 3])
    persistent = workers > 0 and draw.random() < 0.3
    results = []
    for loader_of in (Stock, DataLoader):
        torch.manual_seed(seed)
        loader = loader_of(
            data,
            batch_size=draw.choice([3]),
            num_workers=workers,
            persistent_workers=persistent,
        )
        epochs = []
        for epoch in (0, 1, 5):
            data.set_epoch(epoch)
            epochs.append(list(loader))
        data.set_epoch(0)
        results.append(epochs)
        del loader
    assert same(*results)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_states_fit_between_the_engine_and_python(workers: int, before: bool, after: bool) -> None:
    def make() -> Any:
        # Each has its own, since the library keeps a state in the data set.
        data = table(11).to_iterable_dataset(num_shards=2)
        if before and after:  # The library itself does not go on in the middle of a buffer.
            data = data.shuffle(seed=3, buffer_size=5)
        return data.map(small)

    whole = list(Stock(make(), batch_size=3, num_workers=workers))
    for taken in (0, 1, 2, len(whole)):
        loader = DataLoader(make(), batch_size=3, num_workers=workers, native=before)
        batches = iter(loader)
        for _ in range(taken):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict())) if before else loader.state_dict()
        again = DataLoader(make(), batch_size=3, num_workers=workers, native=after)
        again.load_state_dict(state)
        assert same(list(again), whole[taken:]), taken


def test_random_transforms_do_not_depend_on_workers() -> None:
    crop = transforms.Compose([transforms.RandomResizedCrop(8), transforms.ToTensor()])

    def cropped(row: Any) -> Any:
        return {"image": crop(row["image"].convert("RGB")), "label": row["label"]}

    data = table().to_iterable_dataset(num_shards=1).map(cropped, remove_columns=["name"])
    torch.manual_seed(1)
    first = list(DataLoader(data, batch_size=4))
    torch.manual_seed(1)
    assert same(list(DataLoader(data, batch_size=4)), first)
    assert not torch.equal(first[0]["image"], next(iter(DataLoader(data, batch_size=4)))["image"])


def test_what_cannot_be_decoded_is_what_the_library_says() -> None:
    rows = {"image": [{"bytes": IMAGES[0], "path": None}, {"bytes": b"\xff\xd8" + b"x" * 50, "path": None}]}
    data = hf.Dataset.from_dict(rows, features=hf.Features({"image": hf.Image()}))
    data = data.to_iterable_dataset().map(small)
    said = []
    for loader_of in (Stock, DataLoader):
        loader = iter(loader_of(data, batch_size=1))
        next(loader)
        with pytest.raises(Exception) as raised:
            next(loader)
        said.append((type(raised.value), str(raised.value).split(" at 0x")[0]))
    assert said[0] == said[1]


def test_a_changed_function_or_data_set_is_seen() -> None:
    sizes = {"size": 12}

    def resized(row: Any) -> Any:
        return {"image": transforms.Resize((sizes["size"], 10))(transforms.ToTensor()(row["image"]))}

    data = table(6).to_iterable_dataset().map(resized, remove_columns=["label", "name", "weight"])
    loader = DataLoader(data, batch_size=3)
    assert next(iter(loader))["image"].shape[2] == 12
    sizes["size"] = 8
    assert next(iter(loader))["image"].shape[2] == 8
    loader.dataset._ex_iterable = data.take(3)._ex_iterable
    assert len(list(loader)) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data.filter(lambda row: row["label"] == 1).map(small), "filter is Python code"),
        (lambda data: data.map(small, fn_kwargs={"a": 1}), "fn_kwargs="),
        (lambda data: data.map(small, with_indices=True), "with_indices="),
        (lambda data: data.map(small, input_columns=["image"]), "input_columns="),
        (lambda data: data.with_format("torch").map(small), "rows of a format"),
        (lambda data: data.rename_column("image", "photo"), "cast to others"),
        (lambda data: data.cast_column("weight", hf.Value("float64")).map(small), "cast to others"),
        (lambda data: hf.concatenate_datasets([data, data]).map(small), "Python code"),
    ],
)
def test_what_stays_in_python(change: Any, why: str) -> None:
    said = DataLoader(change(table().to_iterable_dataset()), batch_size=2).explain()
    assert said.startswith("DataLoader, Python"), said
    assert why in said, said


def test_rows_that_are_generated_stay_in_python() -> None:
    def rows() -> Any:
        yield from ({"x": i} for i in range(5))

    both(hf.IterableDataset.from_generator(rows), native=False, batch_size=2)


def test_a_state_of_the_data_set_is_its_own_affair() -> None:
    data = table().to_iterable_dataset().map(small)
    samples = iter(data)
    next(samples)
    data.load_state_dict(data.state_dict())
    assert "state of its own" in DataLoader(data, batch_size=2).explain()


def test_numbers_that_are_no_images_stay_in_python() -> None:
    data = hf.Dataset.from_dict({"x": np.arange(9).tolist()}).to_iterable_dataset()
    both(data, native=False, batch_size=2)
