"""States have the keys that the schema describes, and no others."""

from __future__ import annotations

import json
import typing
from typing import Any

import pytest
import torch
from torch.utils import data as stock

from wellfed.torch import DataLoader, _schema

pytestmark = pytest.mark.filterwarnings("ignore:worker processes are forked while:RuntimeWarning")


class Stream(stock.IterableDataset[int]):
    def __iter__(self) -> Any:
        return iter(range(9))


LOADERS: list[dict[str, Any]] = [
    {"dataset": range(9), "batch_size": 2},
    {"dataset": range(9), "batch_size": 2, "shuffle": True},
    {"dataset": range(9), "batch_size": 2, "shuffle": True, "generator": torch.Generator().manual_seed(1)},
    {"dataset": range(9), "batch_size": None, "sampler": stock.WeightedRandomSampler([1.0] * 9, 9)},
    {"dataset": range(9), "batch_size": 2, "sampler": stock.DistributedSampler(range(9), 2, 0)},
    {"dataset": range(9), "batch_size": 2, "shuffle": True, "num_workers": 2, "in_order": False},
    {"dataset": stock.TensorDataset(torch.arange(9)), "batch_size": 2, "shuffle": True},
    {"dataset": Stream(), "batch_size": 2},
    {"dataset": Stream(), "batch_size": 2, "num_workers": 1},
]


def check(value: Any, schema: Any) -> None:
    if isinstance(value, dict) and typing.get_origin(schema) is dict:
        for item in value.values():
            check(item, typing.get_args(schema)[1])
        return
    options = [kind for kind in (typing.get_args(schema) or (schema,)) if typing.is_typeddict(kind)]
    if not isinstance(value, dict) or not options:
        return
    fitting = [kind for kind in options if set(value) <= set(typing.get_type_hints(kind))]
    assert fitting, f"{sorted(value)} are not of {schema}"
    hints = typing.get_type_hints(fitting[0])
    for key, item in value.items():
        check(item, hints[key])


@pytest.mark.parametrize("arguments", LOADERS, ids=str)
@pytest.mark.parametrize("taken", [0, 2, 99])
def test_states_are_as_described(arguments: dict[str, Any], taken: int) -> None:
    loader = DataLoader(**arguments)
    batches = iter(loader)
    for _ in range(taken):
        next(batches, None)
    state = loader.state_dict()
    check(state, _schema.LoaderState)
    assert set(state) <= set(typing.get_type_hints(_schema.LoaderState))
    assert json.loads(json.dumps(state)) == state
