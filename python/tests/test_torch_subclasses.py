"""Subclasses of tensors in batches of workers: as stock gives them, and in shared memory as plain tensors are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Dataset
from torchvision import tv_tensors

from wellfed.torch import DataLoader
from wellfed.torch._workers import supported
from wellfed.torch._workers.arena import Arena
from wellfed.torch._workers.pack import LARGE, Packer, unpack

pytestmark = [
    pytest.mark.skipif(not supported(), reason="worker processes of wellfed need Linux"),
    pytest.mark.filterwarnings("ignore:worker processes are forked while:RuntimeWarning"),
]


class Noted(torch.Tensor):
    """Has attributes of its own, in a slot and in its dict."""

    __slots__ = ("place",)


def noted(i: int) -> Noted:
    tensor = torch.full((3, 100, 80), float(i)).as_subclass(Noted)
    tensor.place = (i, i + 1)
    tensor.name_of_it = f"n{i}"
    return tensor


class Detection(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        image = tv_tensors.Image(torch.full((3, 200, 100 + i), i, dtype=torch.uint8))
        boxes = tv_tensors.BoundingBoxes(
            torch.arange(4 * (i + 1)).reshape(-1, 4), format="XYWH", canvas_size=(200, 100 + i)
        )
        mask = tv_tensors.Mask(torch.full((300, 400), i, dtype=torch.uint8))
        learned = torch.full((200, 100), float(i), requires_grad=True)
        parameter = nn.Parameter(torch.full((200, 100), float(i)), requires_grad=i % 2 == 0)
        return image, {
            "boxes": boxes,
            "mask": mask,
            "noted": noted(i),
            "learned": learned,
            "parameter": parameter,
        }


class Masks(Dataset[Any]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Any:
        image = tv_tensors.Image(torch.full((3, 200, 100), i, dtype=torch.uint8))
        return image, noted(i), tv_tensors.Mask(torch.full((3, 4), i))


def listed(samples: list[Any]) -> Any:
    return [list(column) for column in zip(*samples, strict=True)]


def check(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, list | tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            check(a, b)
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            check(one[key], other[key])
    elif isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape, one.requires_grad) == (other.dtype, other.shape, other.requires_grad)
        assert torch.equal(one, other)
        if isinstance(one, tv_tensors.BoundingBoxes):
            assert (one.format, one.canvas_size) == (other.format, other.canvas_size)
        for name in ("place", "name_of_it"):
            assert getattr(one, name, None) == getattr(other, name, None)
    else:
        assert one == other


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_subclasses_arrive_as_from_stock(method: str) -> None:
    for dataset, collate in ((Detection(), listed), (Masks(), None)):
        stock = Stock(dataset, 2, num_workers=1, collate_fn=collate)
        loader = DataLoader(dataset, 2, num_workers=1, collate_fn=collate, multiprocessing_context=method)
        check(list(loader), list(stock))


@pytest.mark.parametrize(
    "tensor",
    [
        tv_tensors.Image(torch.ones(3, 200, 200, dtype=torch.uint8)),
        tv_tensors.Mask(torch.ones(200, 400, dtype=torch.uint8)),
        noted(1),
        torch.ones(200, 200, requires_grad=True),
        torch.ones(200, 200).to(torch.bfloat16).as_subclass(Noted),
    ],
    ids=lambda t: type(t).__name__,
)
def test_subclasses_travel_in_slots(tensor: torch.Tensor) -> None:
    packer = Packer(Arena(1))
    skeleton, places = packer.pack([tensor])
    assert [size for _, _, size in places] == [tensor.nbytes]
    assert tensor.nbytes >= LARGE > 10 * len(skeleton)
    memory = [packer.arena.slots[slot].mapping.array()[at : at + size] for slot, at, size in places]
    check(unpack(skeleton, memory), [tensor])


def test_what_says_itself_how_it_is_pickled_is_asked() -> None:
    class Own(torch.Tensor):
        def __reduce_ex__(self, protocol: Any) -> Any:
            return str, ("own",)

    packer = Packer(Arena(1))
    assert unpack(*packer.pack(torch.ones(3).as_subclass(Own))) == "own"
    with pytest.raises(RuntimeError, match="non-leaf"):
        packer.pack([torch.ones(3, requires_grad=True) * 2])


def test_stacked_subclasses_take_no_named_shared_memory() -> None:
    class Where(Dataset[Any]):
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> Any:
            return tv_tensors.Image(torch.full((3, 200, 100), i, dtype=torch.uint8))

    def collate(samples: list[Any]) -> Any:
        batch = torch.utils.data.default_collate(samples)
        return batch, batch.is_shared()

    (batch, shared), *_ = DataLoader(
        Where(), 2, num_workers=1, collate_fn=collate, multiprocessing_context="fork"
    )
    assert batch[1].unique().tolist() == [1]
    assert not shared
