"""Data sets without an index: generators and iterable data sets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import wellfed as wf


def count(n: int = 20) -> Iterator[int]:
    yield from range(n)


def noisy(x: int) -> Any:
    return {"x": x, "draw": float(np.random.rand()) + torch.rand(()).item()}


def elements(ds: Any, **options: Any) -> list[Any]:
    return [int(x) if np.ndim(x) == 0 else x.tolist() for x in ds.numpy(num_workers=0, **options)]


def test_verbs() -> None:
    ds = wf.from_generator(count)
    assert elements(ds) == list(range(20))
    assert elements(ds.map(lambda x: x * 2).take(3)) == [0, 2, 4]
    assert elements(ds.filter(lambda x: x % 5 == 0)) == [0, 5, 10, 15]
    assert elements(ds.skip(17)) == [17, 18, 19]
    assert elements(ds.batch(8)) == [list(range(8)), list(range(8, 16)), [16, 17, 18, 19]]
    assert elements(ds.batch(8, drop_last=True)) == [list(range(8)), list(range(8, 16))]
    assert elements(ds.take(3).repeat(2)) == [0, 1, 2, 0, 1, 2]
    assert elements(ds.shard(1, 3)) == [1, 4, 7, 10, 13, 16]
    assert elements(ds.batch(4, collate_fn=sum).take(2)) == [6, 22]
    assert elements(ds.repeat().skip(18).take(4)) == [18, 19, 0, 1]


def test_shuffle_needs_a_buffer() -> None:
    ds = wf.from_generator(count).shuffle(seed=1, buffer_size=5)
    loader = ds.numpy(num_workers=0)
    first, second = [int(x) for x in loader], [int(x) for x in loader]
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    with pytest.raises(TypeError, match="buffer_size"):
        wf.from_generator(count).shuffle(seed=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("make", [0, 1])
def test_the_same_with_a_worker_and_after_every_resume(make: int) -> None:
    ds = wf.from_generator(count).shuffle(seed=3, buffer_size=4).map(noisy).batch(3).repeat(2)
    whole = [(b["x"].tolist(), b["draw"].tolist()) for b in ds.torch(num_workers=make)]
    assert len(whole) == 14
    for position in range(0, 15, 1 if make == 0 else 6):
        loader = ds.torch(num_workers=make)
        loader.set_epoch(0)
        batches = iter(loader)
        for _ in range(position):
            next(batches)
        after = ds.torch(num_workers=make)
        after.load_state_dict(loader.state_dict())
        assert [(b["x"].tolist(), b["draw"].tolist()) for b in after] == whole[position:]


def bad(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"{x} is bad")
    return x


def breaks() -> Iterator[int]:
    yield 1
    raise RuntimeError("the generator broke")


def test_errors() -> None:
    ds = wf.from_generator(count).map(bad).batch(5)
    with pytest.raises(wf.StepError, match="3 is bad") as caught:
        list(ds.torch(num_workers=1))
    assert (caught.value.index, caught.value.stage) == (3, "bad")
    loader = ds.torch(num_workers=0, on_error="skip")
    assert [len(b) for b in loader] == [4, 5, 4, 4]
    assert [e.index for e in loader.errors()] == [3, 10, 17]
    with pytest.raises(wf.StepError, match="the generator broke"):
        list(wf.from_generator(breaks).torch(num_workers=0, on_error="skip"))
    with pytest.raises(wf.CorruptSampleError, match="no sample"):
        list(wf.from_generator(count).map(lambda x: 1 / 0).batch(4).torch(num_workers=0, on_error="skip"))


class Iterable(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(6))


def test_an_iterable_data_set_is_a_stream() -> None:
    ds = wf.from_dataset(Iterable())
    assert [b.tolist() for b in ds.batch(4).torch(num_workers=1)] == [[0, 1, 2, 3], [4, 5]]
    with pytest.raises(TypeError, match="no length"):
        len(ds.torch(num_workers=0))


def test_a_state_of_another_stream_is_refused() -> None:
    state = wf.from_generator(count).batch(2).numpy(num_workers=0).state_dict()
    with pytest.raises(wf.StateError, match="another stream"):
        wf.from_generator(count).batch(3).numpy(num_workers=0).load_state_dict(state)


def test_what_a_notebook_shows_uses_nothing_up() -> None:
    asked = []

    def once() -> Iterator[int]:
        asked.append(1)
        yield 1

    assert "stream" in wf.from_generator(once)._repr_html_()
    assert asked == []
