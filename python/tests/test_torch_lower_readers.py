"""Data sets of one's own over readers of containers: equal batches natively, or left alone with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch.utils import data as stock

import wellfed as wf
from test_torch_lower_users import SMALL, batches, native, paths
from torch_same import same
from wellfed.torch._lower import lookups, several, users

for _name in ("cv2", "h5py", "lmdb", "pandas", "pyarrow"):
    pytest.importorskip(_name)
import lmdb  # noqa: E402

import readers_sets as sets  # noqa: E402

__all__ = ["paths"]


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is native must not depend on what else the machine does."""
    for module in (lookups, several, users):
        monkeypatch.setattr(module, "_SLOWEST", 10.0)


@pytest.fixture
def database(tmp_path: Path, paths: list[Path]) -> str:
    return sets.written(tmp_path / "images", paths)


@pytest.fixture
def made(database: str) -> Iterator[Any]:
    """Makes data sets, and closes their environments: a process may have one of a database only."""
    opened = []

    def make(kind: Any, length: int) -> Any:
        opened.append(kind(database, length, SMALL))
        return opened[-1]

    yield make
    for dataset in opened:
        dataset.close()


@pytest.mark.parametrize("kind", [sets.Keys, sets.Formatted, sets.Late, sets.Held, sets.Decoded])
@pytest.mark.parametrize("more", [{}, {"batch_size": None}, {"collate_fn": list}])
def test_entries_are_read_natively(kind: Any, more: dict[str, Any], made: Any, paths: list[Path]) -> None:
    if kind is sets.Decoded:
        dataset = stock.Subset(
            made(kind, len(paths)), [i for i, path in enumerate(paths) if path.suffix == ".jpg"]
        )
    else:
        dataset = made(kind, len(paths))
    theirs: Any = stock.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **more})
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" not in ours.explain(), ours.explain()
    found = batches(ours)
    assert same(batches(theirs), found)
    assert same(batches(ours), found)  # the data set has opened its environment meanwhile
    if not more:
        assert native(ours), ours.explain()


def test_late_environments_stay_closed_here(made: Any) -> None:
    dataset = made(sets.Late, 12)
    ours = wf.feed(stock.DataLoader(dataset, batch_size=4))
    found = batches(ours)
    assert dataset.env is None
    assert same(batches(stock.DataLoader(dataset, batch_size=4, num_workers=1)), found)


def test_entries_without_images_are_left_alone(made: Any) -> None:
    theirs: Any = stock.DataLoader(made(sets.Numbers, 20), batch_size=6, shuffle=True)
    ours = wf.feed(theirs)
    assert same(batches(theirs), batches(ours))
    assert "in less time" in ours.explain(), ours.explain()


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (sets.Writes, "an LMDB transaction that writes"),
        (sets.Buffers, "gives buffers"),
        (sets.Cursors, "cursor of an LMDB transaction"),
    ],
)
def test_what_is_not_known_is_left_alone(kind: Any, why: str, made: Any) -> None:
    theirs: Any = stock.DataLoader(made(kind, 12), batch_size=4, shuffle=True)
    ours = wf.feed(theirs)
    assert why in ours.explain(), ours.explain()
    assert same(batches(theirs), batches(ours))


def test_transactions_that_have_ended(made: Any) -> None:
    theirs: Any = stock.DataLoader(made(sets.Ended, 12), batch_size=4)
    ours = wf.feed(theirs)
    assert not native(ours)
    for loader in (theirs, ours):
        with pytest.raises(lmdb.Error):
            list(loader)


def test_keys_that_are_missing(made: Any) -> None:
    dataset = made(sets.Keys, 12)
    dataset.keys[7] = b"none"
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    for loader in (theirs, ours):
        with pytest.raises(OSError, match="cannot identify"):
            list(loader)


@pytest.mark.parametrize("kind", [sets.Late, sets.Formatted])
def test_what_is_written_is_seen_in_the_next_epoch(
    kind: Any, made: Any, database: str, paths: list[Path]
) -> None:
    dataset = made(kind, 12)
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    before = batches(ours)
    dataset.close()
    with lmdb.open(database, map_size=1 << 26) as env, env.begin(write=True) as txn:
        for key in (b"00000003", b"3"):
            txn.put(key, paths[9].read_bytes())
        txn.put(b"label-5", b"77")
    dataset.env = None
    dataset.prepare()
    after = batches(ours)
    assert same(batches(theirs), after)
    assert not same(before, after)


def test_environments_that_are_closed(made: Any) -> None:
    dataset = made(sets.Keys, 12)
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    batches(ours)
    dataset.close()
    for loader in (theirs, ours):
        with pytest.raises(lmdb.Error):
            list(loader)


def test_environments_of_other_classes(made: Any) -> None:
    class Traced:
        def __init__(self, env: Any) -> None:
            self.env = env

        def begin(self, **named: Any) -> Any:
            calls.append(1)
            return self.env.begin(**named)

    calls: list[int] = []
    dataset = made(sets.Keys, 12)
    env, dataset.env = dataset.env, Traced(dataset.env)
    ours = wf.feed(stock.DataLoader(dataset, batch_size=4))
    assert len(list(ours)) == 3
    assert not native(ours)
    assert len(calls) >= 12
    dataset.env = env


@pytest.mark.parametrize("kind", [sets.Columns, sets.Mapped, sets.Frame])
@pytest.mark.parametrize("more", [{}, {"batch_size": None}])
def test_tables_of_arrow(kind: Any, more: dict[str, Any], tmp_path: Path, paths: list[Path]) -> None:
    dataset = kind(tmp_path / "a.parquet", paths, SMALL)
    theirs: Any = stock.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **more})
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(batches(theirs), batches(ours))
    dataset.table = dataset.table[3:] if kind is sets.Frame else dataset.table.slice(3)
    dataset.length -= 3
    theirs, ours = stock.DataLoader(dataset, batch_size=4), wf.feed(stock.DataLoader(dataset, batch_size=4))
    assert same(batches(theirs), batches(ours))


@pytest.mark.parametrize("kind", [sets.ChunkedImages, sets.ChunkedValues])
def test_arrays_in_chunks(kind: Any, tmp_path: Path) -> None:
    dataset = kind(tmp_path / "a.h5", SMALL)
    theirs: Any = stock.DataLoader(dataset, batch_size=6, shuffle=True)
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" not in ours.explain(), ours.explain()
    assert native(ours) == (kind is sets.ChunkedImages), ours.explain()
    found = batches(ours)
    assert same(batches(theirs), found)


def test_arrays_in_chunks_that_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed.torch._lower import vocabulary

    monkeypatch.setattr(vocabulary, "MOST_IN_MEMORY", 1000)
    theirs: Any = stock.DataLoader(sets.ChunkedImages(tmp_path / "a.h5", SMALL), batch_size=6)
    ours = wf.feed(theirs)
    assert "too many for memory" in ours.explain(), ours.explain()
    assert same(batches(theirs), batches(ours))
