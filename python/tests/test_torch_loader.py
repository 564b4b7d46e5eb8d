"""wellfed.torch.DataLoader against torch's: what it takes, what it gives."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as Stock
from torch.utils.data import TensorDataset

import torch_worker_sets as sets
from wellfed._cores import auto_workers, cpu_quota
from wellfed.torch import DataLoader


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        assert one.layout == other.layout
        assert one.requires_grad == other.requires_grad
        if one.layout is torch.sparse_coo:
            one, other = one.to_dense(), other.to_dense()
        assert torch.equal(one.detach(), other.detach())
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
        assert one.flags.writeable
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for a, b in zip(one, other):
            same(a, b)
    elif isinstance(one, sets.Sample):
        same(vars(one), vars(other))
    else:
        assert one == other


def loaded(kind, dataset, **arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(kind(dataset, **arguments))


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 3},
        {"num_workers": 1, "prefetch_factor": -1},
        {"persistent_workers": True},
        {"sampler": [0], "shuffle": True},
        {"batch_sampler": [[0]], "batch_size": 2},
        {"batch_sampler": [[0]], "drop_last": True},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "bad"},
        {"num_workers": 1, "multiprocessing_context": object},
        {"drop_last": 3},
    ],
)
def test_wrong_arguments_are_refused_as_by_torch(arguments):
    with pytest.raises(Exception) as stock:
        Stock(sets.Squares(), **arguments)
    with pytest.raises(type(stock.value)) as ours:
        DataLoader(sets.Squares(), **arguments)
    assert str(ours.value) == str(stock.value)


def test_iterable_data_sets_refuse_what_torch_refuses():
    for arguments in ({"shuffle": True}, {"sampler": [0]}, {"batch_sampler": [[0]]}):
        with pytest.raises(ValueError) as stock:
            Stock(sets.Shares(3), **arguments)
        with pytest.raises(ValueError) as ours:
            DataLoader(sets.Shares(3), **arguments)
        assert str(ours.value) == str(stock.value)


def test_is_torchs_loader_with_its_attributes_and_guards():
    loader = DataLoader(sets.Squares(10), batch_size=4, shuffle=True, drop_last=True)
    stock = Stock(sets.Squares(10), batch_size=4, shuffle=True, drop_last=True)
    assert isinstance(loader, Stock)
    assert len(loader) == len(stock) == 2
    assert DataLoader[int] is not None
    for name, value in vars(stock).items():
        assert type(getattr(loader, name)) is type(value), name
    for name in ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers"):
        with pytest.raises(ValueError, match=f"{name} attribute should not be set after DataLoader is init"):
            setattr(loader, name, None)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 1, 4])
def test_structures_are_those_of_torch(workers, size):
    ours = loaded(DataLoader, sets.Structures(), batch_size=size, num_workers=workers)
    theirs = loaded(Stock, sets.Structures(), batch_size=size, num_workers=0)
    same(ours, theirs)


@pytest.mark.parametrize("workers", [0, 1])
def test_all_that_can_be_pickled_passes(workers):
    ours = loaded(DataLoader, sets.Oddities(), batch_size=None, num_workers=workers, collate_fn=sets.as_it_is)
    for one, other in zip(ours, sets.Oddities().make(), strict=True):
        if isinstance(other, np.ndarray) and not other.flags.writeable and workers == 0:
            continue
        same(one, other)
    both = ours[12]
    assert both[0] is both[1]
    assert ours[0].stride() == sets.Oddities().make()[0].stride()


@pytest.mark.parametrize("workers", [0, 2])
def test_order_follows_seed_and_generator_as_in_torch(workers):
    for arguments in ({"shuffle": True}, {"shuffle": True, "generator": 7}, {"sampler": [3, 1, 2]}):
        results = []
        for kind in (Stock, DataLoader):
            torch.manual_seed(5)
            own = dict(arguments)
            if "generator" in own:
                own["generator"] = torch.Generator().manual_seed(7)
            loader = kind(sets.Squares(), batch_size=5, num_workers=workers, **own)
            results.append([loaded(lambda x: x, loader), loaded(lambda x: x, loader), torch.rand(3)])
        same(results[1], results[0])


def test_auto_workers_divides_cores_by_ranks(monkeypatch, tmp_path: Path):
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert auto_workers(tmp_path) == 12
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert auto_workers(tmp_path) == 3
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert cpu_quota(tmp_path) == 2.5
    assert auto_workers(tmp_path) == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    assert auto_workers(tmp_path) == 2
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert cpu_quota(tmp_path) is None
    assert DataLoader(sets.Squares(), num_workers="auto").num_workers >= 1
    with pytest.raises(ValueError, match="num_workers is 'all'"):
        DataLoader(sets.Squares(), num_workers="all")


def test_older_control_groups_have_their_quota_in_two_files(tmp_path: Path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("150000")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert cpu_quota(tmp_path) == 1.5
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    assert cpu_quota(tmp_path) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_length_of_an_iterable_data_set_that_is_wrong_is_warned_of(workers):
    class Lying(sets.Shares):
        def __len__(self):
            return 2

    loader = DataLoader(Lying(3, 0), batch_size=None, num_workers=workers)
    assert len(loader) == 2
    with pytest.warns(UserWarning, match="was reported to be 2.*but 3 samples have been fetched"):
        list(loader)


def failed_at(loader) -> str:
    """What is noted on the exception that iterating ends with."""
    with pytest.raises(Exception) as caught:
        list(loader)
    assert "in DataLoader worker" not in str(caught.value)
    return "; ".join(getattr(caught.value, "__notes__", []))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"batch_size": 4}, "sample 11, item 3 of its batch"),
        ({"batch_sampler": [[1, 11, 2]]}, "sample 11, item 1 of its batch"),
        ({"batch_sampler": [torch.tensor([11, 2])]}, "sample tensor(11), item 0 of its batch"),
        ({"batch_sampler": [{11: 0, 2: 0}]}, "one of the samples {11: 0, 2: 0}"),
        ({"batch_size": None}, "sample 11"),
    ],
)
def test_exceptions_without_workers_keep_their_type_and_name_the_sample(arguments, said):
    error = sets.TwoArguments(1, 2)
    asked: list[int] = []

    class Asked(sets.Raises):
        def __getitem__(self, i):
            asked.append(int(i))
            return super().__getitem__(int(i))

    assert failed_at(DataLoader(Asked(error), **arguments)) == f"wellfed: {said}"
    assert asked.count(11) == 1


@pytest.mark.skipif(sys.version_info < (3, 11), reason="exceptions have notes since Python 3.11")
def test_exceptions_of_getitems_streams_and_collation_say_where_they_come_from():
    class Bulk(sets.Squares):
        def __getitems__(self, indices):
            raise OSError("gone")

    assert failed_at(DataLoader(Bulk(), 3)) == "wellfed: one of the samples [0, 1, 2], in __getitems__"
    stream = DataLoader(sets.Shares(10, fail=7), batch_size=3)
    assert failed_at(stream) == "wellfed: sample 7 of the data set"
    batches = iter(stream)
    next(batches)
    state = stream.state_dict()
    resumed = DataLoader(sets.Shares(10, fail=7), batch_size=3)
    resumed.load_state_dict(state)
    assert failed_at(resumed) == "wellfed: sample 7 of the data set"
    assert failed_at(DataLoader(sets.Shares(10, fail=7), None)) == "wellfed: sample 7 of the data set"

    def refuses(samples):
        raise TypeError("no")

    assert (
        failed_at(DataLoader(sets.Squares(), 2, collate_fn=refuses))
        == "wellfed: collating the samples [0, 1]"
    )
    stream = DataLoader(sets.Shares(10), batch_size=3, collate_fn=refuses)
    assert failed_at(stream) == "wellfed: collating samples 0 to 2 of the data set"


def test_worker_init_fn_is_called_also_where_no_worker_were_needed():
    loader = DataLoader(TensorDataset(torch.arange(4)), num_workers=1, worker_init_fn=sets.init_fails)
    with pytest.raises(RuntimeError, match="init of 0 failed"):
        list(loader)


def test_repr_names_data_and_batches() -> None:
    loader = DataLoader(range(4), batch_size=2)
    assert repr(loader).startswith("<wellfed.torch.DataLoader of range, batch_size=2, num_workers=0;")
