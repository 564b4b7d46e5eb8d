"""Data sets over tables of pandas and Arrow: what is taken of each row is taken of all rows at once, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch.utils import data as stock

import wellfed as wf
from torch_same import same
from wellfed.torch._lower import frames

pytestmark = pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")

ROWS = 40
COLUMNS = ["a", "b", "c"]


def mixed() -> pd.DataFrame:
    make = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "a": make.normal(size=ROWS),
            "b": make.normal(size=ROWS).astype(np.float32),
            "c": np.arange(ROWS) + 2**53,
            "y": (np.arange(ROWS) % 3).astype(np.int32),
        }
    )


def single() -> pd.DataFrame:
    return pd.DataFrame(
        np.random.default_rng(1).normal(size=(ROWS, 4)), columns=[*COLUMNS, "y"], dtype=np.float32
    )


def whole() -> pd.DataFrame:
    return pd.DataFrame(np.arange(ROWS * 4).reshape(ROWS, 4) % 100, columns=[*COLUMNS, "y"], dtype=np.int64)


def gaps() -> pd.DataFrame:
    frame = mixed()
    frame.loc[3, "a"] = np.nan
    frame.loc[5, "b"] = np.inf
    return frame


def elsewhere() -> pd.DataFrame:
    """Labels of rows that are not their places."""
    frame = mixed()
    frame.index = frame.index[::-1]
    return frame


FRAMES = [mixed, single, whole, gaps, elsewhere]


class Held(stock.Dataset[Any]):
    """A table, and what is taken of its rows."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.df = frame
        self.columns = COLUMNS
        self.label = "y"

    def __len__(self) -> int:
        return len(self.df)


class Row(Held):
    def __getitem__(self, i: int) -> Any:
        row = self.df.iloc[i]
        return torch.tensor(row[self.columns].values, dtype=torch.float32), row[self.label]


class Numbers(Held):
    def __getitem__(self, i: int) -> Any:
        row = self.df.iloc[i]
        return {"x": torch.tensor(row[["a", "b"]].to_numpy()), "y": float(row["y"]), "z": np.float32(row.b)}


class Places(Held):
    def __getitem__(self, i: int) -> Any:
        return torch.from_numpy(self.df.iloc[i, :-1].to_numpy(np.float32)), self.df.iloc[i, -1]


class Values(Held):
    def __getitem__(self, i: int) -> Any:
        x = self.df.iloc[i].values[:2].astype(np.float32)
        return torch.from_numpy(x), torch.tensor(self.df["y"].iloc[i])


class Dropped(Held):
    def __getitem__(self, i: int) -> Any:
        row = self.df.iloc[i]
        return torch.tensor(row.drop("y").values).float(), torch.tensor(row["y"], dtype=torch.float64)


class Several(Held):
    def __getitem__(self, i: int) -> Any:
        x = np.array(self.df[self.columns].iloc[i], dtype=np.float32)
        return torch.tensor(x), np.float32(self.df["a"].iloc[i])


class Labels(Held):
    def __getitem__(self, i: int) -> Any:
        row = self.df.loc[i]
        return torch.tensor(row[["a", "c"]].values, dtype=torch.float16), torch.tensor([row["a"], row["b"]])


class Alone(Held):
    def __getitem__(self, i: int) -> Any:
        return torch.tensor(self.df.iloc[i].astype(np.float32).to_numpy())


FORMS = [Row, Numbers, Places, Values, Dropped, Several, Labels, Alone]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each value of a sample that was laid out, whether all rows are made at once."""
    found: list[bool] = []
    original = frames.table

    def table(*arguments: Any) -> Any:
        made = original(*arguments)
        found.append(made is not None)
        return made

    monkeypatch.setattr(frames, "table", table)
    return found


def batches(loader: Any) -> Any:
    torch.manual_seed(2)
    return [list(loader) for _ in range(2)]


def outcome(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("form", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("workers", [0, 1])
def test_rows_are_those_of_the_stock_loader(form: Any, frame: Any, workers: int, taken: list[bool]) -> None:
    arguments: Any = {"batch_size": 7, "shuffle": True}
    expected = outcome(lambda: batches(stock.DataLoader(form(frame()), **arguments)))
    ours: Any = wf.feed(stock.DataLoader(form(frame()), num_workers=workers, **arguments))
    assert _equal(outcome(lambda: batches(ours)), expected)
    assert not isinstance(expected, str)
    assert taken
    assert all(taken) == (form is not Labels or frame is not elsewhere)


def _equal(one: Any, other: Any) -> bool:
    """As `same`, with NaNs that are equal."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and one.shape == other.shape and _bits(one) == _bits(other)
    if isinstance(one, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    return same(one, other)


def _bits(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().numpy().tobytes()


class Whole(Held):
    def __getitem__(self, i: int) -> Any:
        return int(self.df.iloc[i]["a"]), torch.tensor(self.df.iloc[i]["b"], dtype=torch.int64)


@pytest.mark.parametrize("bad", [np.nan, 1e30])
@pytest.mark.parametrize("column", ["a", "b"])
def test_numbers_that_are_no_integers_are_converted_one_by_one(
    bad: float, column: str, taken: list[bool]
) -> None:
    frame = mixed()
    frame["b"] = 1e3 * frame["b"]
    assert _equal(
        list(wf.feed(Whole(frame), batch_size=8)), list(stock.DataLoader(Whole(frame), batch_size=8))
    )
    assert all(taken)
    # None of the rows that are compared.
    frame.loc[9, column] = bad
    ours: Any = wf.feed(Whole(frame), batch_size=8)
    with pytest.raises((ValueError, RuntimeError, OverflowError)) as theirs:
        list(stock.DataLoader(Whole(frame), batch_size=8))
    with pytest.raises(theirs.type, match=re.escape(str(theirs.value))):
        list(ours)


class Array(Held):
    def __getitem__(self, i: int) -> Any:
        return torch.tensor(self.df.iloc[i].values, dtype=torch.int32)


def test_arrays_that_are_no_integers_are_converted_one_by_one(taken: list[bool]) -> None:
    frame = whole().astype(np.float64)
    frame.loc[9, "c"] = np.nan
    for workers in (0, 1):
        theirs: Any = stock.DataLoader(Array(frame), batch_size=8, num_workers=workers)
        assert _equal(list(wf.feed(theirs)), list(theirs))
    assert not any(taken)


def strings() -> pd.DataFrame:
    return mixed().assign(c="text")


def nullable() -> pd.DataFrame:
    return mixed().assign(c=pd.array([*range(ROWS - 1), None], dtype="Int64"))


def truths() -> pd.DataFrame:
    return mixed().assign(c=np.arange(ROWS) % 2 == 0)


def twice() -> pd.DataFrame:
    frame = mixed()
    frame.columns = pd.Index(["a", "b", "b", "y"])
    return frame


def numbered() -> pd.DataFrame:
    frame = mixed()
    frame.columns = pd.Index([3, 2, 1, 0])
    return frame


@pytest.mark.parametrize("frame", [strings, nullable, truths, twice, numbered], ids=lambda f: f.__name__)
@pytest.mark.parametrize("form", [Row, Places, Values, Alone, Several], ids=lambda f: f.__name__)
def test_other_tables_are_left_to_pandas(form: Any, frame: Any, taken: list[bool]) -> None:
    def of(loader: Any) -> Any:
        return outcome(lambda: list(loader))

    expected = of(stock.DataLoader(form(frame()), batch_size=6))
    assert _equal(of(wf.feed(form(frame()), batch_size=6)), expected)


@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_written_to_the_table_is_seen(workers: int) -> None:
    found = []
    for feed in (lambda loader: loader, wf.feed):
        dataset = Row(mixed())
        loader: Any = feed(stock.DataLoader(dataset, batch_size=7, num_workers=workers))
        epochs = [list(loader)]
        dataset.df.loc[3, "a"] = -5.0
        epochs.append(list(loader))
        dataset.df["y"] = dataset.df["y"].astype(np.float64) / 2
        epochs.append(list(loader))
        dataset.columns = ["b", "c"]
        dataset.df = dataset.df.iloc[::-1]
        epochs.append(list(loader))
        if workers == 0:
            during = []
            for number, batch in enumerate(loader):
                during.append(batch)
                dataset.df.iloc[-number - 1, 0] = number
                dataset.df.iloc[:, 3] = number
                if number == 2:
                    dataset.df["d"] = 1.5
                    dataset.df["c"] = dataset.df["c"].astype(np.float32)
                if number == 3:
                    dataset.df.insert(0, "first", 3)
                    dataset.columns = ["a", "first"]
            epochs.append(during)
        found.append(epochs)
    assert _equal(*found)


def test_batches_are_fresh_memory() -> None:
    for workers in (0, 1):
        ours: Any = wf.feed(Places(single()), batch_size=8, num_workers=workers)
        for batch in ours:
            for value in batch:
                value.zero_()
        assert _equal(list(ours), list(stock.DataLoader(Places(single()), batch_size=8)))


class Attributes(Held):
    def __getitem__(self, i: int) -> Any:
        row = self.df.iloc[i]
        return torch.tensor(row.a), row.name


def test_attributes_of_pandas_are_no_columns(taken: list[bool]) -> None:
    frame = mixed().assign(name=np.arange(ROWS))
    frame.loc[1, "name"] = 7
    theirs: Any = stock.DataLoader(Attributes(frame), batch_size=8)
    assert _equal(list(wf.feed(theirs)), list(theirs))
    assert taken == [True, False]


class Arrow(stock.Dataset[Any]):
    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, i: int) -> Any:
        return self.table.slice(i, 1).to_pydict()


class First(Arrow):
    def __getitem__(self, i: int) -> Any:
        row = {name: column[0] for name, column in self.table.slice(i, 1).to_pydict().items()}
        return torch.tensor([row["a"], row["b"]]), row["y"], row["name"]


class Listed(Arrow):
    def __getitem__(self, i: int) -> Any:
        return self.table.slice(offset=i, length=1).to_pylist()[0]


class Two(Arrow):
    def __getitem__(self, i: int) -> Any:
        return len(self.table.slice(i, 2).to_pydict()["a"])


@pytest.mark.parametrize("form", [Arrow, First, Listed, Two])
@pytest.mark.parametrize("null", [False, True])
def test_rows_of_arrow(form: Any, null: bool) -> None:
    table = pa.Table.from_pandas(mixed(), preserve_index=False)
    names: list[str | None] = [f"name {place}" for place in range(ROWS)]
    if null:
        names[9] = None
    table = pa.concat_tables([table.slice(0, 11), table.slice(11)]).append_column("name", pa.array(names))
    expected = outcome(lambda: batches(stock.DataLoader(form(table), batch_size=7)))
    ours: Any = wf.feed(form(table), batch_size=7)
    assert _equal(outcome(lambda: batches(ours)), expected)
    assert ("looked up" in ours.explain()) == (form is not Two)


class Slow(Held):
    """Something that is not known, of a row."""

    def __getitem__(self, i: int) -> Any:
        row = self.df.iloc[i]
        return torch.tensor(row[self.columns].rank().values, dtype=torch.float32), row["y"]


class Advised(Held):
    def __init__(self, frame: pd.DataFrame) -> None:
        super().__init__(frame)
        columns = self.columns
        scope: dict[str, Any] = {"df": frame.rank(axis=1), "columns": columns, "np": np, "self": self}
        exec(advised(wf.feed(Slow(frame), batch_size=8)), scope)
        self.y = frame["y"].to_numpy(np.float32)

    def __getitem__(self, i: int) -> Any:
        return self.x[i], self.y[i]


def advised(loader: Any) -> str:
    """The statement that `explain` says to write."""
    text: str = loader.explain()
    _, found, advice = text.partition("native with: ")
    assert found, text
    return advice.partition(" once, in __init__")[0]


def test_advice_for_other_code_is_what_runs_natively() -> None:
    assert advised(wf.feed(Slow(mixed()), batch_size=8)) == "self.x = df[columns].to_numpy(np.float32)"
    ours: Any = wf.feed(Advised(mixed()), batch_size=8)
    assert "python  Advised" not in ours.explain()
    theirs = list(stock.DataLoader(Advised(mixed()), batch_size=8))
    assert same(list(ours), theirs)
    table = pa.Table.from_pandas(mixed())
    assert "of each column once" in wf.feed(Two(table), batch_size=8).explain()


def test_no_advice_where_a_table_is_no_table_of_numbers() -> None:
    assert "to_numpy" not in wf.feed(Slow(strings()), batch_size=8).explain()


def _form(make: np.random.Generator) -> tuple[str, str]:
    """The source of values of a row that are picked at random."""
    rows = ["self.df.iloc[i]", "self.df.loc[i]", "self.df[['b', 'y', 'a']].iloc[i]"]
    arrays = [
        "{row}[['a', 'b']].values",
        "{row}.values",
        "{row}.to_numpy(np.float32)",
        "np.asarray({row})",
        "np.array({row}[['b', 'a']], dtype=np.float64)",
        "{row}.drop('y').to_numpy()",
        "{row}.values[1:]",
        "{row}.astype(np.int64).values",
    ]
    tensors = [
        "{array}",
        "torch.tensor({array})",
        "torch.tensor({array}, dtype=torch.float32)",
        "torch.as_tensor({array}).double()",
        "torch.tensor({array}).to(torch.int32)",
        "torch.tensor({array}).half()",
        "torch.FloatTensor({array})",
        "torch.tensor({array})[1]",
        "{array}.astype(np.float16)",
    ]
    numbers = [
        "{row}['y']",
        "{row}.b",
        "int({row}['y'])",
        "float({row}['a'])",
        "np.int64({row}['y'])",
        "torch.tensor(float({row}['a']))",
        "torch.tensor({row}['y'], dtype=torch.long)",
        "self.df['y'][i]",
        "self.df['b'].values[i]",
        "self.df['b'].to_numpy()[i]",
        "self.df.iat[i, 1]",
        "self.df.loc[i, 'b']",
        "self.df.at[i, 'b']",
        "{row}.values[0].item()",
    ]
    row = str(make.choice(rows))
    array = str(make.choice(arrays)).format(row=row)
    return str(make.choice(tensors)).format(array=array), str(make.choice(numbers)).format(row=row)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(40))
def test_random_forms(seed: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    make = np.random.default_rng(seed)
    x, y = _form(make)
    # Source is read of its file.
    (tmp_path / f"random_form_{seed}.py").write_text(
        "import numpy as np, torch\nfrom test_torch_lower_frames import Held\n"
        f"class Form(Held):\n    def __getitem__(self, i):\n        return {x}, {y}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    form = __import__(f"random_form_{seed}").Form
    frame = FRAMES[make.integers(len(FRAMES))]()
    expected = outcome(lambda: batches(stock.DataLoader(form(frame), batch_size=7, shuffle=True)))
    for workers in (0, 1):
        loader: Any = stock.DataLoader(form(frame), batch_size=7, shuffle=True, num_workers=workers)
        ours: Any = wf.feed(loader)
        assert _equal(outcome(lambda ours=ours: batches(ours)), expected), (x, y)
