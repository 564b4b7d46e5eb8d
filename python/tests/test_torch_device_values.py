"""What becomes of the values of batches: nested ones, precision, and devices that are named wrongly or not there."""

from __future__ import annotations

from collections import UserDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence
from torch.utils.data import TensorDataset

from test_torch_device import META, Numbers
from wellfed.torch import DataLoader
from wellfed.torch._device import move, pin, target
from wellfed.torch._nested import map_leaves
from wellfed.torch._precision import cast

# Tests of the engine in the same process leave its threads.
pytestmark = pytest.mark.filterwarnings("ignore:worker processes are forked while:RuntimeWarning")

Pair = namedtuple("Pair", "left right")


@dataclass(frozen=True)
class Boxes:
    corners: torch.Tensor
    names: list[str]


class Custom:
    """A batch class as the documentation of torch's `pin_memory` describes it."""

    def __init__(self, values: torch.Tensor, where: str = "made") -> None:
        self.values = values
        self.where = where

    def pin_memory(self) -> Custom:
        return Custom(self.values, "pinned")

    def to(self, device: torch.device) -> Custom:
        return Custom(self.values.to(device), str(device))


class MovesItself:
    def to(self, device: torch.device) -> None:
        self.place = device


# Walking


def test_types_of_nested_batches_are_kept() -> None:
    batch = {
        "pair": Pair(torch.ones(2), "text"),
        "list": [torch.ones(1), (torch.ones(1), b"bytes")],
        "boxes": Boxes(torch.ones(4), ["a"]),
        "user": UserDict(x=torch.ones(1)),
        "range": range(3),
        "array": np.ones(2),
        "none": None,
    }
    out = cast(batch, torch.float16)
    assert type(out["pair"]) is Pair
    assert out["pair"].left.dtype == torch.float16
    assert out["list"][1][0].dtype == torch.float16
    assert out["list"][1][1] == b"bytes"
    assert type(out["boxes"]) is Boxes
    assert out["boxes"].corners.dtype == torch.float16
    assert type(out["user"]) is UserDict
    assert out["user"]["x"].dtype == torch.float16
    assert list(out["range"]) == [0, 1, 2]
    assert out["array"].dtype == np.float64
    assert out["none"] is None
    assert batch["boxes"].corners.dtype == torch.float32, "the batch that went in is as it was"
    assert batch["list"][0].dtype == torch.float32


def test_walking_stops_at_leaves() -> None:
    packed = pack_sequence([torch.ones(2), torch.ones(1)])
    assert map_leaves([packed], lambda _: "leaf", lambda value: isinstance(value, PackedSequence)) == ["leaf"]


# Precision


def test_float_dtype_changes_floats_only() -> None:
    loader = DataLoader(Numbers(), batch_size=4, float_dtype=torch.bfloat16)
    batch = next(iter(loader))
    assert batch["x"].dtype == torch.bfloat16
    assert batch["x"][3].tolist() == [1.5] * 3
    assert batch["i"].dtype == torch.int64
    assert batch["name"] == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_float_dtype_wherever_batches_are_made(num_workers: int) -> None:
    loader = DataLoader(Numbers(), batch_size=4, num_workers=num_workers, float_dtype="float16")
    assert [batch["x"].dtype for batch in loader] == [torch.float16] * 3


def test_float_dtype_of_tensor_datasets() -> None:
    rows = TensorDataset(torch.arange(6.0), torch.arange(6))
    x, i = next(iter(DataLoader(rows, batch_size=3, float_dtype=torch.float16)))
    assert (x.dtype, i.dtype) == (torch.float16, torch.int64)


def test_float_dtype_is_checked() -> None:
    with pytest.raises(ValueError, match="must be a floating point type"):
        DataLoader(Numbers(), float_dtype=torch.int32)
    with pytest.raises(TypeError, match="float_dtype='half-ish'"):
        DataLoader(Numbers(), float_dtype="half-ish")


# Without a GPU


def test_cpu_is_where_batches_are_already() -> None:
    assert target("cpu") is None
    x = next(iter(DataLoader(Numbers(), batch_size=2, device="cpu")))["x"]
    assert x.device.type == "cpu"


def test_meta_and_other_devices() -> None:
    batches = list(DataLoader(Numbers(), batch_size=4, device="meta"))
    assert [batch["x"].device.type for batch in batches] == ["meta"] * 3
    assert [tuple(batch["x"].shape) for batch in batches] == [(4, 3), (4, 3), (2, 3)]
    assert batches[0]["name"] == ["n0", "n1", "n2", "n3"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a CUDA device")
def test_cuda_without_cuda_says_so() -> None:
    with pytest.raises(RuntimeError, match=r"device='cuda' cannot be used: .*\nhint: device=None"):
        DataLoader(Numbers(), device="cuda")


@pytest.mark.skipif(torch.accelerator.is_available(), reason="here is an accelerator")
def test_pin_memory_without_an_accelerator_warns_as_torch_does() -> None:
    def messages(loader: Any) -> list[str]:
        with pytest.warns(UserWarning, match="pin_memory") as caught:
            batches = list(loader)
        assert not batches[0]["x"].is_pinned()
        return [str(warning.message) for warning in caught]

    ours = messages(DataLoader(Numbers(), batch_size=4, pin_memory=True))
    assert ours == messages(torch.utils.data.DataLoader(Numbers(), batch_size=4, pin_memory=True))
    assert "no accelerator is found" in ours[0]


def test_objects_move_as_they_say() -> None:
    itself = MovesItself()
    custom, plain, moved = move([Custom(torch.ones(1)), "text", itself], META)
    assert custom.where == "meta"
    assert plain == "text"
    assert moved is itself
    assert moved.place == META


def test_objects_pin_as_they_say() -> None:
    assert pin({"a": [Custom(torch.ones(1))]})["a"][0].where == "pinned"
