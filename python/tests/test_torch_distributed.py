"""Two processes under torchrun, gloo between them: each gets its part, the parts are the whole, epochs differ."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pictures import write_folder

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What both processes wrote."""
    place = tmp_path_factory.mktemp("ranks")
    photos = write_folder(place / "photos", count=21)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(HERE / "two_ranks.py"), str(photos), str(place)]
    done = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads((place / f"{rank}.json").read_text()) for rank in range(2)]


def test_torchrun_says_who_is_who(ranks: list[dict[str, Any]]) -> None:
    assert [rank["env"] for rank in ranks] == [[0, 2, 2], [1, 2, 2]]


@pytest.mark.parametrize("kind", ["inline", "workers", "persistent", "images", "images in Python", "native"])
def test_parts_are_disjoint_complete_and_shuffled_anew(ranks: list[dict[str, Any]], kind: str) -> None:
    first, second = (rank[kind] for rank in ranks)
    for mine, yours in zip(first, second, strict=True):
        assert len(mine) == len(yours) == 11
        # 21 samples for 2 ranks: one is given twice.
        assert sorted(set(mine) | set(yours)) == list(range(21))
        assert len(set(mine) & set(yours)) <= 1
    assert first[0] != first[1] != first[2]


def test_all_ways_give_the_same_samples(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["inline"] == rank["workers"] == rank["persistent"]
        assert rank["images"] == rank["images in Python"] == rank["inline"]


def test_without_a_sampler_for_ranks_every_rank_gets_all(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["whole"] == ranks[1]["whole"]
    assert sorted(ranks[0]["whole"]) == list(range(21))


def test_accumulated_gradients_are_those_of_all_ranks(ranks: list[dict[str, Any]]) -> None:
    assert ranks[0]["weights"] == ranks[1]["weights"]
