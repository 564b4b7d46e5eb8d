"""Data sets without images whose samples are looked up: batches made in the calling thread are the stock loader's."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils import data as stock

import wellfed as wf
import wellfed.torch as wt
from torch_same import same


class Held(stock.Dataset[Any]):
    """Something for each of 17 samples."""

    def __init__(self, tmp_path: Path) -> None:
        make = np.random.default_rng(3)
        self.array = make.normal(size=(17, 3, 2)).astype(np.float32)
        self.tensor = torch.arange(17 * 4).reshape(17, 4)
        self.labels = [place % 4 for place in range(17)]
        self.texts = [f"text {place}" for place in range(17)]
        self.tokens = [make.integers(0, 99, size=int(n)).tolist() for n in make.integers(1, 9, 17)]
        np.save(tmp_path / "rows.npy", self.array)
        self.mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
        with open(tmp_path / "rows.csv", "w", newline="") as file:
            csv.writer(file).writerows(
                [*map(float, row.ravel()), place] for place, row in enumerate(self.array)
            )
        with open(tmp_path / "rows.csv", newline="") as file:
            self.rows = list(csv.reader(file))
        self.scale = 2.0

    def __len__(self) -> int:
        return 17


class Arrays(Held):
    def __getitem__(self, i: int) -> Any:
        return self.array[i], self.tensor[i], self.labels[i]


class Mapped(Held):
    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(np.array(self.mapped[i])), i % 10


class Csv(Held):
    def __getitem__(self, i: int) -> Any:
        *values, label = self.rows[i]
        return torch.tensor([float(value) for value in values]), int(label)


class Texts(Held):
    def __getitem__(self, i: int) -> Any:
        return {"text": self.texts[i], "label": self.labels[i], "half": self.labels[i] / self.scale}


class Windows(Held):
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        return self.tensor[i : i + 4], self.tensor[i + 4, 0]


class Alone(Held):
    def __getitem__(self, i: int) -> Any:
        return torch.tensor(self.labels[i]) * 3


class Nested(Held):
    def __getitem__(self, i: int) -> Any:
        return [(self.labels[i], float(i)), {"deep": self.tensor[i].float()}]


KINDS = [Arrays, Mapped, Csv, Texts, Windows, Alone, Nested]


def looked_up(loader: Any) -> bool:
    return "looked up" in loader.explain()


def batches(loader: Any, epochs: int = 2) -> list[Any]:
    torch.manual_seed(5)
    return [list(loader) for _ in range(epochs)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arguments", [{}, {"num_workers": 1}, {"shuffle": True, "drop_last": True}])
def test_batches_are_those_of_the_stock_loader(kind: Any, arguments: Any, tmp_path: Path) -> None:
    dataset = kind(tmp_path)
    for data in (dataset, stock.Subset(dataset, [3, 3, 11, 0, 7, 2])):
        theirs: Any = stock.DataLoader(data, batch_size=4, **arguments)
        ours = wf.feed(theirs)
        assert looked_up(ours), ours.explain()
        assert same(batches(theirs), batches(ours))


class Sequences(Held):
    def __getitem__(self, i: int) -> Any:
        return self.tokens[i], self.labels[i]


class Named(Held):
    def __getitem__(self, i: int) -> Any:
        return {"ids": torch.tensor(self.tokens[i]), "label": self.labels[i], "text": self.texts[i]}


def padded(batch: Any) -> Any:
    tokens = pad_sequence([torch.tensor(tokens) for tokens, _ in batch], batch_first=True)
    return tokens, torch.tensor([label for _, label in batch])


def zipped(batch: Any) -> Any:
    tokens, labels = zip(*batch)
    return pad_sequence(
        [torch.LongTensor(t) for t in tokens], batch_first=True, padding_value=7
    ), torch.tensor(labels)


def named(batch: Any) -> Any:
    ids = [item["ids"] for item in batch]
    return {
        "ids": pad_sequence(ids),
        "text": [item["text"] for item in batch],
        "label": torch.tensor([item["label"] for item in batch], dtype=torch.float32),
    }


@pytest.mark.parametrize(("kind", "collate"), [(Sequences, padded), (Sequences, zipped), (Named, named)])
def test_collate_functions_that_pad_are_read(kind: Any, collate: Any, tmp_path: Path) -> None:
    theirs: Any = stock.DataLoader(kind(tmp_path), batch_size=4, shuffle=True, collate_fn=collate)
    ours = wf.feed(theirs)
    assert looked_up(ours), ours.explain()
    assert same(batches(theirs), batches(ours))


def longest(batch: Any) -> Any:
    most = max(len(tokens) for tokens, _ in batch)
    return torch.tensor([[*tokens, *[0] * (most - len(tokens))] for tokens, _ in batch])


def drawn(batch: Any) -> Any:
    return torch.tensor([label for _, label in batch]) + torch.rand(())


@pytest.mark.parametrize("collate", [longest, drawn])
def test_other_collate_functions_are_called(collate: Any, tmp_path: Path) -> None:
    theirs: Any = stock.DataLoader(Sequences(tmp_path), batch_size=4, collate_fn=collate)
    ours = wf.feed(theirs)
    assert not looked_up(ours)
    assert same(batches(theirs), batches(ours))


def check(theirs: Any, ours: Any) -> None:
    assert looked_up(ours)
    assert same(list(theirs), list(ours))


def test_what_changes_between_epochs_is_seen(tmp_path: Path) -> None:
    for kind, collate in ((Arrays, None), (Csv, None), (Texts, None), (Alone, None), (Sequences, padded)):
        dataset: Any = kind(tmp_path)
        theirs: Any = stock.DataLoader(dataset, batch_size=4, collate_fn=collate)
        ours = wf.feed(theirs)

        check(theirs, ours)
        dataset.labels[3] = 55
        check(theirs, ours)
        dataset.array[2] = -1
        dataset.tensor[4] = 9
        check(theirs, ours)
        dataset.rows[5][1] = "77.5"
        dataset.tokens[6].append(3)
        check(theirs, ours)
        dataset.rows.reverse()
        dataset.labels = dataset.labels[::-1]
        dataset.scale = 4.0
        check(theirs, ours)


def test_batches_are_fresh_memory(tmp_path: Path) -> None:
    for kind in (Arrays, Mapped, Csv, Windows):
        ours = wt.DataLoader(kind(tmp_path), batch_size=4)
        first = list(ours)
        expected = list(stock.DataLoader(kind(tmp_path), batch_size=4))
        for batch in first:
            for value in batch:
                value.zero_()
        assert same(list(ours), expected)


class Fails(Held):
    def __getitem__(self, i: int) -> Any:
        return torch.tensor(self.labels[i]), self.texts[i]


def test_errors_are_those_of_the_data_set(tmp_path: Path) -> None:
    dataset = Fails(tmp_path)
    ours = wt.DataLoader(dataset, batch_size=4)
    assert looked_up(ours)
    dataset.labels = dataset.labels[:14]
    with pytest.raises(IndexError, match="list index out of range"):
        list(ours)
    skipping = wt.DataLoader(dataset, batch_size=6, on_error="skip")
    assert not looked_up(skipping)
    assert sum(len(labels) for labels, _ in skipping) == 14


def test_indices_of_other_kinds_are_given_to_the_data_set(tmp_path: Path) -> None:
    class Answers(Held):
        def __getitem__(self, i: Any) -> Any:
            return self.labels[i], i

    for sampler in ([3, -1], torch.tensor([3, 1, 2]), np.array([2, 0])):
        theirs: Any = stock.DataLoader(Answers(tmp_path), batch_size=2, sampler=sampler)  # type: ignore[arg-type]
        assert same(list(theirs), list(wf.feed(theirs)))


def test_it_goes_on_where_it_was(tmp_path: Path) -> None:
    loader = wt.DataLoader(Csv(tmp_path), batch_size=3, shuffle=True, num_workers=1)
    given = iter(loader)
    next(given)
    next(given)
    state = loader.state_dict()
    rest = [*given, *loader]
    other = wt.DataLoader(Csv(tmp_path), batch_size=3, shuffle=True, num_workers=1)
    torch.manual_seed(8)
    other.load_state_dict(state)
    assert same([*other, *other], rest)


class Shared(Held):
    """Something that is set while workers run."""

    def __init__(self, tmp_path: Path) -> None:
        super().__init__(tmp_path)
        self.epoch = torch.zeros((), dtype=torch.int64).share_memory_()

    def __getitem__(self, i: int) -> Any:
        return i, int(self.epoch)


class Process(Held):
    """Says in which process it was made."""

    def __getitem__(self, i: int) -> Any:
        info = stock.get_worker_info()
        return i, -1 if info is None else info.id


@pytest.mark.parametrize("kind", [Shared, Process])
def test_what_depends_on_the_process_is_asked_there(kind: Any, tmp_path: Path) -> None:
    ours = wt.DataLoader(kind(tmp_path), batch_size=4, num_workers=1)
    assert not looked_up(ours)
    theirs = stock.DataLoader(kind(tmp_path), batch_size=4, num_workers=1)
    assert same(list(theirs), list(ours))


def test_without_workers_attributes_may_change_at_once(tmp_path: Path) -> None:
    found = []
    for loader_of in (stock.DataLoader, wt.DataLoader):
        dataset = Texts(tmp_path)
        loader: Any = loader_of(dataset, batch_size=4)
        given = []
        for number, batch in enumerate(loader):
            given.append(batch["half"].tolist())
            dataset.scale = float(number + 3)
        found.append(given)
    assert found[0] == found[1]
