"""Masks that data sets calculate with: what is read of them gives the numbers that they give."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torchvision import tv_tensors
from torchvision.transforms import v2

import calculated_sets as calculated
import several_sets as sets
import wellfed as wf
from test_torch_lower_several import batches, check, native
from torch_same import same

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

KNOWN = [
    calculated.InPlace,
    calculated.Encoded,
    calculated.Remade,
    calculated.Looked,
    calculated.Chosen,
    calculated.Tensors,
    calculated.Divided,
]


@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_numbers_are_those_of_the_data_set(tmp_path: Path, kind: Any) -> None:
    root = sets.write(tmp_path)
    check(kind(root))
    check(kind(root), collate_fn=lambda batch: tuple(zip(*batch)), batch_size=3)


@pytest.mark.parametrize("mode", ["I;16", "1"])
@pytest.mark.parametrize("kind", KNOWN, ids=lambda kind: kind.__name__)
def test_masks_of_other_depths_are_equal_or_refused(tmp_path: Path, mode: str, kind: Any) -> None:
    """Also where calculating raises, as an index of 60 thousand does in a table of 256."""

    class Whole(kind):  # type: ignore[misc]
        def opened(self, path: str) -> Any:
            return Image.open(path)

    root = sets.write(tmp_path, mode, count=1)
    theirs: Any = stock.DataLoader(Whole(root), batch_size=1)
    ours = wf.feed(stock.DataLoader(Whole(root), batch_size=1))
    try:
        wanted = list(theirs)
    except Exception as error:
        with pytest.raises(type(error)):
            list(ours)
    else:
        assert same(wanted, list(ours))


def test_masks_of_32_bits_are_left_to_pillow(tmp_path: Path) -> None:
    root = sets.write(tmp_path)
    for path in root.glob("masks/*"):
        Image.fromarray(np.array(Image.open(path)).astype(np.int32) * 1000).save(path.with_suffix(".tif"))
        path.unlink()
    theirs: Any = stock.DataLoader(calculated.Divided(root), batch_size=4)
    ours = wf.feed(theirs)
    assert same(list(theirs), list(ours))


@pytest.mark.parametrize("kind", calculated.REFUSED, ids=lambda kind: kind.__name__)
def test_what_is_not_known_is_called_as_ever(tmp_path: Path, kind: Any) -> None:
    theirs: Any = stock.DataLoader(kind(sets.write(tmp_path)), batch_size=4)
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" in ours.explain()
    assert re.search(calculated.REFUSED[kind], ours.explain()), ours.explain()
    assert same(batches(theirs), batches(ours))


def test_an_index_of_numbers_is_left_to_the_data_set(tmp_path: Path) -> None:
    check(calculated.Picked(sets.write(tmp_path)), in_python=None)


def test_a_table_that_changes_is_seen_in_the_next_epoch(tmp_path: Path) -> None:
    dataset = calculated.Looked(sets.write(tmp_path))
    dataset.table = dataset.table.copy()  # type: ignore[misc]
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    assert same(list(theirs), list(ours))
    dataset.table[7] = 99
    assert same(list(theirs), list(ours))
    assert native(ours)


def test_masks_that_were_calculated_with_are_moved(tmp_path: Path) -> None:
    root = sets.write(tmp_path)
    for steps in (
        [v2.Resize((30, 36)), v2.RandomHorizontalFlip(1)],
        [v2.Pad(3), v2.CenterCrop(50)],
        [v2.Pad(3, fill={tv_tensors.Mask: 1, "others": 0}), v2.CenterCrop(50)],
        [v2.Pad(3, fill={tv_tensors.Mask: 3, "others": 0}), v2.CenterCrop(50)],
    ):
        chain = v2.Compose([*steps, v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
        theirs: Any = stock.DataLoader(calculated.Moved(root, chain), batch_size=4)
        ours = wf.feed(theirs)
        assert same(batches(theirs), batches(ours))
        # Zero stays zero; but what is filled with 1 or 3 would be taken for a number of the file.
        assert native(ours) == (getattr(steps[0], "fill", 0) in (0, {})), ours.explain()


def test_pipelines_of_albumentations_move_them(tmp_path: Path) -> None:
    A = pytest.importorskip("albumentations")
    from albumentations.pytorch import ToTensorV2

    root = sets.write(tmp_path)
    for chain in (
        [A.Resize(30, 36), A.HorizontalFlip(p=1), A.Normalize(), ToTensorV2()],
        [A.CenterCrop(30, 30), A.VerticalFlip(p=1), ToTensorV2()],
        [A.Affine(rotate=(12, 12), scale=(0.9, 0.9), p=1), A.Resize(30, 36), ToTensorV2()],
    ):
        check(calculated.Augmented(root, A.Compose(chain)))
