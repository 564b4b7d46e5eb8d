"""Data sets of one's own whose images are encoded bytes in memory: they are decoded where they lie."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torch.utils import data as stock

import wellfed as wf
import wellfed.torch as wt
from test_torch_lower_users import SMALL, batches, native, paths
from torch_same import same

for _name in ("cv2", "h5py", "pandas", "pyarrow"):
    pytest.importorskip(_name)
import bytes_sets as sets  # noqa: E402

__all__ = ["paths"]

KINDS = [sets.Listed, sets.Kept, sets.Rows, sets.Arrow, sets.Arrays, sets.Hdf5, sets.Decoded]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("more", [{}, {"batch_size": None}, {"collate_fn": list}])
def test_bytes_are_decoded_where_they_lie(kind: Any, more: dict[str, Any], paths: list[Path]) -> None:
    files = [path for path in paths if kind is not sets.Decoded or path.suffix == ".jpg"]
    theirs: Any = stock.DataLoader(kind(files, SMALL), **{"batch_size": 4, "shuffle": True, **more})
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" not in ours.explain(), ours.explain()
    assert same(batches(theirs), batches(ours))
    if not more:
        assert native(ours), ours.explain()
        assert ours._planned().native_source.in_python == 0


@pytest.mark.parametrize("kind", [sets.Listed, sets.Kept, sets.Arrays, sets.Rows])
def test_bytes_that_change_are_seen_in_the_next_epoch(kind: Any, paths: list[Path]) -> None:
    dataset = kind(paths, SMALL)
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    assert same(batches(theirs), batches(ours))
    if kind is sets.Arrays:
        file = io.BytesIO()
        Image.new("RGB", (40, 40), (9, 90, 200)).save(file, "bmp")
        dataset.blobs[3] = np.frombuffer(file.getvalue(), np.uint8)
        dataset.blobs[4][:] = dataset.blobs[4][::-1].copy()  # no image any more
        for loader in (theirs, ours):
            with pytest.raises(OSError, match="cannot identify"):
                batches(loader)
        return
    if kind is sets.Rows:
        dataset.table.at[2, "image"] = dataset.table.at[7, "image"]
    else:
        key = 2 if kind is sets.Listed else dataset.names[2]
        dataset.blobs[key] = dataset.blobs[7 if kind is sets.Listed else dataset.names[7]]
    assert same(batches(theirs), batches(ours))


def test_other_formats_are_left_to_pillow(paths: list[Path]) -> None:
    dataset = sets.Listed(paths, SMALL)
    for place in range(2):
        file = io.BytesIO()
        Image.open(paths[place]).convert("RGB").save(file, "bmp")
        dataset.blobs[place] = file.getvalue()
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    assert not native(ours)
    assert same(batches(theirs), batches(ours))


@pytest.mark.parametrize("bad", [b"", b"\xff\xd8\xff broken", b"none"])
def test_bytes_that_are_no_image(bad: bytes, paths: list[Path]) -> None:
    dataset = sets.Listed(paths[:8], SMALL)
    dataset.blobs[5] = bad
    loader: Any = wt.DataLoader(dataset, batch_size=4, on_error="skip")
    assert [len(images) for images, _ in loader] == [4, 3]
    assert [error.index for error in loader.errors()] == [5]
    with pytest.raises(OSError):
        list(wt.DataLoader(dataset, batch_size=4))
    dataset.blobs[5] = None
    for kind in (stock.DataLoader, wt.DataLoader):
        with pytest.raises((TypeError, OSError)):
            list(kind(dataset, batch_size=4))


def test_parts_of_bytes_and_files(paths: list[Path]) -> None:
    one, other = sets.Listed(paths, SMALL), sets.Listed(paths[3:9], SMALL)
    theirs: Any = stock.DataLoader(stock.ConcatDataset([one, stock.Subset(other, [4, 1])]), batch_size=5)
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(batches(theirs), batches(ours))
