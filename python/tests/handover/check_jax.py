"""`Dataset.jax` with a real JAX, on four devices of one CPU."""

from __future__ import annotations

import doctest
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

import wellfed as wf
from wellfed._handover import methods
from wellfed._handover.jax import _aliased
from wellfed.exceptions import ShapeError, StateError

X = np.arange(48, dtype=np.float32).reshape(24, 2)
Y = np.arange(24)
MESH = Mesh(np.array(jax.devices()), ("data",))
BY_DATA = NamedSharding(MESH, PartitionSpec("data"))
EVERYWHERE = NamedSharding(MESH, PartitionSpec())
PLACES = [None, jax.devices()[2], SingleDeviceSharding(jax.devices()[1]), BY_DATA, (BY_DATA, EVERYWHERE)]
pytestmark = pytest.mark.filterwarnings("ignore:a pipeline whose source was opened again")


def pairs() -> wf.Dataset:
    return wf.from_tensor_slices((X, Y)).shuffle(seed=1).batch(8)


def epoch(loader: Any) -> list[list[int]]:
    return [np.asarray(y).tolist() for _, y in loader]


def expected(number: int) -> list[list[int]]:
    loader = pairs().numpy()
    loader.set_epoch(number)
    return epoch(loader)


def test_docstring() -> None:
    found = doctest.DocTestFinder().find(methods.Frameworks.jax, globs={})
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert sum(runner.run(test).attempted for test in found) > 3
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.parametrize("place", PLACES, ids=["cpu", "device", "single", "sharded", "tree"])
def test_batches_epochs_and_places(place: Any) -> None:
    loader = pairs().jax(place)
    assert len(loader) == 3
    for number in range(3):
        batches = list(loader)
        assert epoch(batches) == expected(number)
        for x, y in batches:
            assert isinstance(x, jax.Array)
            np.testing.assert_array_equal(x, X[np.asarray(y)])
    if place is BY_DATA:
        assert [one.data.shape for one in x.addressable_shards] == [(2, 2)] * 4
    if isinstance(place, jax.Device):
        assert x.devices() == {place}
    if isinstance(place, tuple):
        assert y.sharding == EVERYWHERE


@pytest.mark.parametrize("place", PLACES[:1] + PLACES[3:4], ids=["cpu", "sharded"])
@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_states_are_exact(place: Any, taken: int) -> None:
    loader = pairs().jax(place)
    iterator = iter(loader)
    for _ in range(taken):
        next(iterator)
        # The batch after it is there, so that it is copied ahead, and must not be counted.
        time.sleep(0.02)
    state = iterator.get_state()
    assert state == loader.state_dict()
    rest, then = epoch(iterator), epoch(loader)
    assert len(rest) == 3 - taken
    other = pairs().jax(place)
    iterator = iter(other)
    next(iterator)
    iterator.set_state(state)
    assert iterator.get_state() == other.state_dict() == state
    assert epoch(iterator) == rest
    assert epoch(other) == then
    third = pairs().jax(place)
    third.load_state_dict(state)
    assert epoch(third) == rest


def test_breaking_off_and_beginning_anew() -> None:
    loader = pairs().jax()
    first = iter(loader)
    next(first)
    assert epoch(loader) == expected(1)
    with pytest.raises(StateError, match="no longer valid"):
        next(first)
    loader.set_epoch(5)
    assert epoch(loader) == expected(5)


def test_no_copy_and_memory_lives_as_long_as_its_arrays() -> None:
    array = np.arange(64 * 1000, dtype=np.float32).reshape(64, 1000)
    for place in (None, BY_DATA, jax.devices()[1]):
        held = list(wf.from_tensor_slices(array).batch(8).repeat(20).jax(place))
        assert len(held) == 160
        for i, one in enumerate(held):
            np.testing.assert_array_equal(one, array[8 * (i % 8) : 8 * (i % 8) + 8])
        # Computations that still run when their batch is forgotten.
        product = jax.jit(lambda x: (x @ x.T).sum(1))
        batches = wf.from_tensor_slices(array).batch(8).repeat(5).jax(place)
        for i, sums in enumerate([product(one) for one in batches]):
            part = array[8 * (i % 8) : 8 * (i % 8) + 8].astype(np.float64)
            np.testing.assert_allclose(sums, (part @ part.T).sum(1), rtol=1e-5)
        # A computation that may write its result where the batch lies.
        in_place = jax.jit(lambda x: x + 1, donate_argnums=0)
        held = [in_place(one) for one in wf.from_tensor_slices(array).batch(8).repeat(5).jax(place)]
        for i, one in enumerate(held):
            np.testing.assert_array_equal(one, array[8 * (i % 8) : 8 * (i % 8) + 8] + 1)
    loader = wf.from_tensor_slices(array).batch(8).numpy()
    native = loader._native
    native.start_epoch()
    (column,) = native.next()
    assert _aliased(column).unsafe_buffer_pointer() == column.__array_interface__["data"][0]


@pytest.mark.parametrize("place", PLACES[:2] + PLACES[3:4], ids=["cpu", "device", "sharded"])
@pytest.mark.parametrize(
    "dtype",
    ["bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32", ml_dtypes.bfloat16],
)
def test_dtypes(dtype: Any, place: Any) -> None:
    array = (np.arange(16).reshape(8, 2) % 120).astype(dtype)
    (made,) = wf.from_tensor_slices(array).batch(8).jax(place)
    assert made.dtype == array.dtype
    np.testing.assert_array_equal(np.asarray(made), array)


@pytest.mark.parametrize("place", PLACES[:1] + PLACES[3:4], ids=["cpu", "sharded"])
def test_64_bits(place: Any) -> None:
    def made(array: Any) -> Any:
        (one,) = wf.from_tensor_slices(array).batch(len(array)).jax(place)
        return one

    edges = np.array([2**31 - 1, -(2**31), 0, 5])
    large = [edges.copy() for _ in range(2)]
    large[0][1], large[1][2] = 2**31, -(2**31) - 1
    unsigned = np.array([0, 1, 2, 2**32 - 1], np.uint64)
    assert made(edges).dtype == np.int32
    assert made(edges).tolist() == edges.tolist()
    assert made(unsigned).dtype == np.uint32
    assert made(unsigned).tolist() == unsigned.tolist()
    for wrong in (*large, unsigned + np.uint64(1)):
        with pytest.raises(OverflowError, match="jax_enable_x64"):
            made(wrong)
    assert made(np.linspace(0, 1, 4)).dtype == np.float32
    jax.config.update("jax_enable_x64", True)
    try:
        for array in (*large, unsigned, np.linspace(0, 1, 4)):
            assert made(array).dtype == array.dtype
            assert made(array).tolist() == array.tolist()
    finally:
        jax.config.update("jax_enable_x64", False)


def test_ragged_text_and_samples(tmp_path: Path) -> None:
    rows = [[1, 2], [3], [4, 5, 6], []]
    (batch,) = wf.from_tensor_slices({"a": rows}).ragged_batch(4).jax()
    assert isinstance(batch["a"], wf.Ragged)
    assert [row.tolist() for row in batch["a"]] == rows
    doubled = jax.tree.map(lambda part: 2 * part, batch)
    assert doubled["a"].values.tolist() == [2, 4, 6, 8, 10, 12]
    assert jax.jit(lambda one: one["a"].values.sum())(batch) == 21
    path = tmp_path / "a.jsonl"
    path.write_text('{"t": "é", "n": 1}\n{"t": "b", "n": 2}\n', encoding="utf-8")
    for place in (None, jax.devices()[1]):
        (batch,) = wf.jsonl(str(path)).batch(2).jax(place)
        assert batch["t"] == ["é", "b"]
        assert batch["n"].tolist() == [1, 2]
    assert [int(y) for y in wf.from_tensor_slices(Y).jax()] == list(range(24))
    assert list(wf.from_tensor_slices(Y[:0]).batch(2).jax()) == []


def test_wrong_use() -> None:
    with pytest.raises(ShapeError, match="drop_last"):
        list(wf.from_tensor_slices((X, Y)).batch(7).jax(BY_DATA))
    with pytest.raises(ShapeError, match="padded_batch"):
        list(wf.from_tensor_slices([[1, 2], [3], [4, 5, 6], []]).ragged_batch(4).jax(BY_DATA))
    with pytest.raises(TypeError, match="there is no option devce"):
        pairs().jax(devce=1)  # type: ignore[call-arg]


def test_a_late_error_comes_with_its_batch(tmp_path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no image")
    paths = [str(tmp_path / f"{name}.png") for name in "ab"]
    for place in (None, jax.devices()[1]):
        loader = wf.image_files(paths, labels=[0, 1]).batch(1).jax(place)
        iterator = iter(loader)
        time.sleep(0.05)
        assert next(iterator)[0].shape == (1, 3, 8, 8)
        with pytest.raises(wf.WellfedError, match=r"b\.png"):
            next(iterator)
        assert len(list(wf.image_files(paths, labels=[0, 1]).batch(1).jax(place, on_error="skip"))) == 1


ONE_OF_TWO = """
import os, sys
rank, port = int(sys.argv[1]), sys.argv[2]
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np, wellfed as wf
jax.distributed.initialize(f"localhost:{port}", 2, rank)
from jax.sharding import Mesh, NamedSharding, PartitionSpec
sharding = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
ds = wf.from_tensor_slices((np.arange(32, dtype=np.float32)[:, None], np.arange(32)))
loader = ds.shuffle(seed=0).shard(rank, 2).batch(4, drop_last=True).jax(sharding)
for x, y in loader:
    assert x.shape == (8, 1) and y.shape == (8,) and not y.is_fully_addressable
    print("mine", *(int(value) for part in y.addressable_shards for value in part.data))
"""


def test_global_arrays_of_two_processes() -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    command = [sys.executable, "-c", ONE_OF_TWO]
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    both = [subprocess.Popen([*command, str(rank), port], **pipe) for rank in range(2)]  # type: ignore[call-overload]
    seen = []
    for one in both:
        out, err = one.communicate(timeout=120)
        assert one.returncode == 0, err
        lines = [line.split()[1:] for line in out.splitlines() if line.startswith("mine")]
        assert [len(line) for line in lines] == [4] * 4
        seen += [int(value) for line in lines for value in line]
    assert sorted(seen) == list(range(32))


def twice(sample: Any) -> Any:
    return {"x": 2 * sample[0], "name": f"nr {sample[1]}"}


def test_python_steps() -> None:
    pytest.importorskip("torch")
    for place in (None, BY_DATA):
        batches = list(wf.from_tensor_slices((X, Y)).map(twice).batch(8).jax(place, num_workers=0))
        np.testing.assert_array_equal(np.concatenate([one["x"] for one in batches]), 2 * X)
        assert batches[1]["name"][0] == "nr 8"
