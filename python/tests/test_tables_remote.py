"""Row groups of tables in stores that answer later: the same rows as near by, through the I/O layer and its cache."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.ipc
import pyarrow.parquet
import pytest

import wellfed as wf
from store_servers import Proxy, fault_proxy, web_server

ROWS, GROUP = 600, 50
FAULTS = ["outage", "throttle", "slow down", "too many", "reset", "reset midway", "truncate", "delay"]


def table(salt: int = 0) -> pa.Table:
    rng = np.random.default_rng(salt)
    words = [rng.bytes(200 + i % 90) for i in range(ROWS)]
    columns = {"x": rng.normal(size=ROWS).astype(np.float32), "n": np.arange(ROWS), "blob": words}
    return pa.table(columns)


def write(root: Path, salt: int = 0) -> None:
    data = table(salt)
    pa.parquet.write_table(data, root / "t.parquet", row_group_size=GROUP)
    with pa.ipc.new_file(root / "t.arrow", data.schema) as file:
        file.write_table(data, max_chunksize=GROUP)
    pa.feather.write_feather(data, str(root / "t.feather"), chunksize=GROUP)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("tables")
    write(root)
    return root


@pytest.fixture
def proxy(data: Path) -> Iterator[Proxy]:
    with web_server(data) as url, fault_proxy(url) as proxy:
        yield proxy


FORMATS = {"t.parquet": wf.parquet, "t.arrow": wf.arrow, "t.feather": wf.arrow}


def opened(name: str, root: str) -> wf.Dataset:
    return FORMATS[name](f"{root}/{name}")


def rows(loader: Any) -> list[tuple[int, float, bytes]]:
    found: list[tuple[int, float, bytes]] = []
    for batch in loader:
        found += list(zip(batch["n"].tolist(), batch["x"].tolist(), batch["blob"]))
    return found


@pytest.mark.parametrize("shuffle", ["none", "all", "blocks"])
@pytest.mark.parametrize("name", FORMATS)
def test_rows_are_those_of_the_file(
    name: str, shuffle: str, data: Path, proxy: Proxy, tmp_path: Path
) -> None:
    def pipeline(root: str) -> wf.Dataset:
        ds = opened(name, root)
        if shuffle == "all":
            ds = ds.shuffle(seed=2)
        elif shuffle == "blocks":
            ds = ds.shuffle(block_size=GROUP, window=2, seed=2)
        return ds.batch(32)

    near = pipeline(str(data)).numpy()
    far = pipeline(proxy.url).numpy(num_workers=2, remote_cache=tmp_path / "cache")
    for _ in range(2):
        wanted = rows(near)
        assert rows(far) == wanted
        assert sorted(row[0] for row in wanted) == list(range(ROWS))
    stats = far.stats()
    assert stats["requests"]["requests"] >= 1
    assert stats["remote_cache"]["missed_bytes"] > ROWS * 200
    far.close()
    # Another process: nothing of the rows is downloaded again.
    ds = pipeline(proxy.url)
    with ds.numpy(num_workers=2, remote_cache=tmp_path / "cache") as again:
        again.set_epoch(1)
        assert rows(again) == wanted
        assert again.stats()["remote_cache"]["misses"] == 0
    assert "lies in a store that answers later" in ds.explain()


@pytest.mark.parametrize("name", FORMATS)
def test_no_fault_changes_or_loses_a_row(name: str, data: Path, proxy: Proxy) -> None:
    wanted = rows(opened(name, str(data)).shuffle(block_size=GROUP, window=2, seed=1).batch(32).numpy())
    ds = opened(name, proxy.url).shuffle(block_size=GROUP, window=2, seed=1).batch(32)
    for fault in FAULTS:
        proxy.forget()
        proxy.decide = lambda method, path, before, fault=fault: fault if before < 2 else None
        with ds.numpy(num_workers=2, on_error="skip") as loader:
            loader.set_epoch(0)
            assert rows(loader) == wanted, fault
            assert loader.errors() == []
        assert proxy.faults >= 1, fault


def test_a_jump_leaves_nothing_out(data: Path, proxy: Proxy) -> None:
    near, far = (
        opened("t.parquet", root).shuffle(seed=3).batch(50).numpy(num_workers=2)
        for root in (str(data), proxy.url)
    )
    proxy.decide = lambda method, path, before: "delay" if before % 3 == 0 else None
    for epoch in (0, 5, 1):
        for loader in (near, far):
            loader.set_epoch(epoch)
        first, second = iter(near), iter(far)
        for _ in range(3):
            assert next(first)["n"].tolist() == next(second)["n"].tolist()
    state = far.state_dict()
    far.load_state_dict(state)
    assert [batch["n"].tolist() for batch in far] == [batch["n"].tolist() for batch in first]
    far.close()


def test_a_file_that_changed_is_an_error_of_its_own(tmp_path: Path) -> None:
    write(tmp_path)
    with web_server(tmp_path) as url:
        ds = opened("t.parquet", url).batch(32)
        write(tmp_path, 1)
        with ds.numpy() as loader, pytest.raises(wf.WellfedError, match="changed"):
            rows(loader)


def test_a_server_that_is_gone_for_good_is_named(data: Path) -> None:
    with web_server(data) as url, fault_proxy(url) as proxy:
        storage = {"max_attempts": 2}
        ds = wf.parquet(f"{proxy.url}/t.parquet", storage_options=storage).batch(32)
        proxy.decide = lambda method, path, before: "outage"
        with ds.numpy() as loader, pytest.raises(wf.WellfedError, match=r"t\.parquet"):
            rows(loader)


def test_closing_while_groups_are_on_their_way_ends(data: Path, proxy: Proxy) -> None:
    proxy.decide = lambda method, path, before: "drip" if before > 3 else None
    loader = opened("t.parquet", proxy.url).batch(32).numpy(num_workers=2)
    next(iter(loader))
    closing = threading.Thread(target=loader.close, daemon=True)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()


def test_a_far_table_beside_near_samples(data: Path, proxy: Proxy) -> None:
    near = wf.from_tensor_slices({"i": np.arange(ROWS)})
    both = wf.zip(near, opened("t.parquet", proxy.url)).batch(40).numpy(num_workers=2)
    for mine, theirs in both:
        assert mine["i"].tolist() == theirs["n"].tolist()
