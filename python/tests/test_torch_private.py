"""What `wellfed.torch` uses of torch's undocumented parts: in one file, and as expected in the torch at hand."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import torch
from torch.utils import data as stock

import wellfed.torch
from wellfed.torch import _private

FILES = sorted(Path(wellfed.torch.__file__).parent.rglob("*.py"))


def test_no_other_file_names_what_torch_keeps_for_itself() -> None:
    private = re.compile(
        r"from torch[\w.]* import .*\b_[a-z]\w*|from torch[\w.]*\._\w+|import torch[\w.]*\._\w+"
        r"|\b(?:torch(?:\.\w+)*|stock(?:_\w+)?)\._(?!_)\w+"
    )
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in FILES
        if path.name != "_private.py"
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if private.search(line) and "wellfed.torch._" not in line
    ]
    assert not found, "\n".join(found)


def test_it_was_checked_with_this_torch() -> None:
    have = ".".join(torch.__version__.split(".")[:2])
    if have != _private.CHECKED:
        pytest.skip(f"NOT CHECKED HERE: the file was checked with torch {_private.CHECKED}, this is {have}")


@pytest.mark.parametrize(
    ("thing", "parameters"),
    [
        (_private.BaseIterator.__init__, ["self", "loader"]),
        (_private.BaseIterator._reset, ["self", "loader", "first_iter"]),
        (_private.BaseIterator._next_index, ["self"]),
        (_private.BaseIterator._next_data, ["self"]),
        (_private.StockWorkersIterator.__init__, ["self", "loader"]),
        (_private.InlineFetcher.__init__, ["self", "dataset", "auto_collation", "collate_fn", "drop_last"]),
        (
            _private.InlineStreamFetcher.__init__,
            ["self", "dataset", "auto_collation", "collate_fn", "drop_last"],
        ),
        (_private.sharding_init, ["worker_init_fn", "world_size", "rank_id", "worker_id"]),
        (_private.generate_numpy_seed, ["base_seed", "worker_id"]),
        (_private.set_worker_signals, None),
        (_private.collate.collate_tensor_fn, ["batch", "collate_fn_map"]),
        (_private.tree_leaves, ["tree", "is_leaf"]),
        (torch._utils._get_obj_state, ["obj"]),
        (torch._utils._set_obj_state, ["obj", "state"]),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_functions_take_what_they_are_given(thing: object, parameters: list[str] | None) -> None:
    assert callable(thing)
    if parameters is not None:
        assert list(inspect.signature(thing).parameters) == parameters


def test_attributes_of_iterators_and_loaders() -> None:
    loader = stock.DataLoader(range(4), batch_size=2)
    iterator = iter(loader)
    for name in (
        *(
            "_dataset",
            "_dataset_kind",
            "_IterableDataset_len_called",
            "_auto_collation",
            "_drop_last",
            "_index_sampler",
        ),
        *("_num_workers", "_world_size", "_rank", "_timeout", "_collate_fn", "_sampler_iter", "_base_seed"),
        *("_persistent_workers", "_num_yielded", "_shared_seed", "_pin_memory"),
    ):
        assert hasattr(iterator, name), name
    for name in ("_dataset_kind", "_auto_collation", "_index_sampler", "_iterator", "_get_iterator"):
        assert hasattr(loader, name), name
    assert isinstance(vars(stock.DataLoader)["multiprocessing_context"], property)
    assert list(_private.InfiniteSampler.__mro__)[1] is stock.Sampler
    assert (_private.DatasetKind.Map, _private.DatasetKind.Iterable) == (0, 1)


def test_worker_info_is_what_torch_says() -> None:
    info = _private.WorkerInfo(id=1, num_workers=2, seed=3, dataset=None)
    try:
        _private.set_worker_info(info)
        assert stock.get_worker_info() is info
    finally:
        _private.set_worker_info(None)
    assert stock.get_worker_info() is None


def test_profiling_is_seen() -> None:
    assert not _private.profiling()
    with torch.autograd.profiler.profile():
        assert _private.profiling()


def test_storages_and_attributes_of_tensors() -> None:
    memory = torch.arange(8, dtype=torch.uint8)
    shared = torch.empty(0, dtype=torch.int16).new(_private.typed_storage(memory, torch.int16)).resize_(2, 2)
    assert shared.data_ptr() == memory.data_ptr()
    tensor = torch.ones(2)
    assert not _private.state_of(tensor)
    tensor.note = 1  # type: ignore[attr-defined]
    assert _private.set_state(torch.zeros(2), _private.state_of(tensor)).note == 1  # type: ignore[attr-defined]
    assert not _private.own_pickling(torch.Tensor)
    assert _private.own_pickling(torch.nn.Parameter)
    assert not _private.is_wrapper(tensor)
