"""The benchmark of users' scripts: some of its cases with tiny data, and what it compares batches with."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

SCRIPTS = Path(__file__).resolve().parents[2] / "benches" / "scripts"


@pytest.fixture(scope="module")
def bench():
    before = [*sys.path]
    sys.path[:0] = [str(SCRIPTS)]
    try:
        import run
    finally:
        # It adds its own folders, where modules have names of which others may have some, too.
        sys.path[:] = before
    sys.path[:0] = [str(SCRIPTS), str(SCRIPTS.parent)]
    yield run
    sys.path[:] = before
    for name in ("run", "made", "turns"):
        sys.modules.pop(name, None)


def test_cases_give_the_same_batches_with_one_line_changed(bench, tmp_path: Path, capfd):
    cases = ["imagefolder_train", "iterable", "mnist", "nested_samples", "tensors", "texts"]
    assert bench.main(["--quick", "--folder", str(tmp_path), "--case", *cases]) == 0, capfd.readouterr().out
    assert [line.split() for line in capfd.readouterr().out.splitlines()] == [
        [case, "random" if case == "imagefolder_train" else "equal"] for case in cases
    ]


def test_every_case_has_one_line_to_change(bench):
    cases = sorted((SCRIPTS / "cases").glob("*.py"))
    assert len(cases) >= 39
    for case in cases:
        text = case.read_text()
        lines = [
            (a, b) for a, b in zip(text.splitlines(), bench.changed(text).splitlines(), strict=True) if a != b
        ]
        assert len(lines) == 1
        assert "from wellfed.torch import DataLoader" in lines[0][1]


def test_two_lines_to_change_are_an_error(bench):
    with pytest.raises(ValueError, match="2 lines import"):
        bench.changed("from torch.utils.data import DataLoader\n" * 2)


@pytest.mark.parametrize(
    "other",
    [
        {"x": [torch.ones(2), 2], "y": "b"},
        {"x": [torch.ones(2), 1], "y": "c"},
        {"x": [torch.ones(2, dtype=torch.float64), 1], "y": "b"},
        {"x": [torch.ones(3), 1], "y": "b"},
        {"x": (torch.ones(2), 1), "y": "b"},
        {"x": [torch.ones(2)], "y": "b"},
        {"x": [torch.ones(2), 1]},
    ],
)
def test_what_differs_is_seen(bench, other):
    one = {"x": [torch.ones(2), 1], "y": "b"}
    assert bench.different(one, {**one}) == ""
    assert bench.different(one, other) != ""
    assert bench.different(one, other, numbers=False) != ""


def test_random_numbers_may_differ_where_augmentation_draws_them(bench):
    assert bench.different(torch.zeros(2), torch.ones(2)) == "batch has other values"
    assert bench.different(torch.zeros(2), torch.ones(2), numbers=False) == ""
    assert bench.different(torch.tensor([1]), torch.tensor([2]), numbers=False) == "batch has other values"
