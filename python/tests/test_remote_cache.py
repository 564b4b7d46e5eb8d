"""What was read of remote stores, kept on local disk: the same samples, fewer requests, nothing stale."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from store_servers import Proxy, fault_proxy, web_server

SHARDS, MEMBERS = 3, 20


def write_shards(root: Path, salt: int) -> None:
    for shard in range(SHARDS):
        with tarfile.open(root / f"{shard}.tar", "w") as tar:
            for number in range(MEMBERS):
                content = np.random.default_rng([salt, shard, number]).bytes(3000 + number)
                # Neighbours are far enough from each other to be asked for one by one.
                for name, data in ((f"{number:03}.bin", content), (f"{number:03}.pad", bytes(20_000))):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    root = tmp_path / "data"
    root.mkdir()
    write_shards(root, 0)
    return root


@pytest.fixture
def proxy(data: Path) -> Iterator[Proxy]:
    with web_server(data) as url, fault_proxy(url) as proxy:
        yield proxy


def dataset(proxy: Proxy) -> wf.Dataset:
    return wf.webdataset(f"{proxy.url}/{{0..{SHARDS - 1}}}.tar", fields="bin").shuffle(seed=4).batch(8)


def epochs(ds: wf.Dataset, count: int, **options: Any) -> tuple[list[list[bytes]], dict[str, Any]]:
    """The samples of some epochs, and the counters of the cache. A loader begins with epoch 0."""
    with ds.numpy(num_workers=2, **options) as loader:
        loader.set_epoch(0)
        found = [
            [member for batch in loader for members in batch for member in members] for _ in range(count)
        ]
        return found, loader.stats()["remote_cache"]


def test_what_was_read_is_not_downloaded_again(proxy: Proxy, tmp_path: Path) -> None:
    wanted, none = epochs(dataset(proxy), 2)
    assert none is None
    cache = tmp_path / "cache"
    found, first = epochs(dataset(proxy), 2, remote_cache=cache)
    assert found == wanted
    assert first["path"] == str(cache)
    assert first["misses"] == SHARDS * MEMBERS
    assert first["problem"] is None
    assert 0 < first["bytes"] <= first["limit"]
    # As another process has it: the data set is opened anew, for which the ends of shards are looked at.
    ds = dataset(proxy)
    proxy.forget()
    found, second = epochs(ds, 2, remote_cache=str(cache))
    assert found == wanted
    assert second["misses"] == 0
    assert second["hits"] >= 2 * SHARDS * MEMBERS
    assert len(proxy.seen) <= 4 * SHARDS


def test_a_changed_object_is_read_anew(data: Path, proxy: Proxy, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    before, _ = epochs(dataset(proxy), 1, remote_cache=cache)
    write_shards(data, 1)
    wanted, _ = epochs(dataset(proxy), 1)
    found, stats = epochs(dataset(proxy), 1, remote_cache=cache)
    assert found == wanted
    assert found != before
    assert stats["misses"] >= SHARDS * MEMBERS


def test_a_small_cache_keeps_its_budget(proxy: Proxy, tmp_path: Path) -> None:
    wanted, _ = epochs(dataset(proxy), 3)
    # A member takes one block of 4096 bytes.
    found, stats = epochs(dataset(proxy), 3, remote_cache=tmp_path / "cache", remote_cache_bytes=30 * 4096)
    assert found == wanted
    assert stats["limit"] == 30 * 4096
    assert stats["bytes"] <= stats["limit"]
    assert stats["hits"] > 0


def test_the_environment_names_a_cache(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WELLFED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WELLFED_CACHE_BYTES", "1 MiB")
    _, stats = epochs(dataset(proxy), 1)
    assert stats["path"] == str(tmp_path / "cache")
    assert stats["limit"] == 1 << 20
    assert "what has come is kept in" in dataset(proxy).explain()
    assert epochs(dataset(proxy), 1, remote_cache="off")[1] is None
    monkeypatch.setenv("WELLFED_CACHE_BYTES", "much")
    with pytest.raises(wf.ConfigError, match="no number of bytes"):
        epochs(dataset(proxy), 1)


def test_members_of_archives_are_kept(data: Path, proxy: Proxy, tmp_path: Path) -> None:
    def write(salt: int) -> None:
        with zipfile.ZipFile(data / "a.zip", "w") as archive:
            for number in range(10):
                archive.writestr(f"{number:03}.bin", np.random.default_rng([salt, number]).bytes(5000))

    def read(**options: Any) -> tuple[list[list[bytes]], dict[str, Any]]:
        return epochs(wf.webdataset(f"{proxy.url}/a.zip", fields="bin").batch(4), 1, **options)

    write(0)
    cache = tmp_path / "cache"
    wanted, _ = read()
    for _ in range(2):
        found, stats = read(remote_cache=cache)
        assert found == wanted
    assert stats["misses"] == 0
    write(1)
    wanted, _ = read()
    found, stats = read(remote_cache=cache)
    assert found == wanted
    assert stats["misses"] == 10


def test_local_files_are_not_kept(data: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    ds = wf.webdataset(str(data / "0.tar"), fields="bin").batch(4)
    assert epochs(ds, 1, remote_cache=cache)[1] is None
    assert not cache.exists()


def test_a_folder_of_something_else_is_refused(data: Path, proxy: Proxy) -> None:
    with pytest.raises(wf.ConfigError, match="something else than a cache"):
        epochs(dataset(proxy), 1, remote_cache=data)
    assert (data / "0.tar").exists()


def command(*arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "wellfed", "cache", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )


def test_the_command_fills_lists_and_empties_it(proxy: Proxy, tmp_path: Path) -> None:
    cache, url = tmp_path / "cache", f"{proxy.url}/{{0..{SHARDS - 1}}}.tar"
    nothing = command("ls", "--path", cache)
    assert nothing.returncode == 1
    assert "there is no cache in" in nothing.stderr
    warm = command("warm", url, "--bytes", "100MB", "--json", WELLFED_CACHE=str(cache))
    assert warm.returncode == 0, warm.stderr
    warmed = json.loads(warm.stdout)
    assert warmed["complete"]
    assert warmed["samples"] == SHARDS * MEMBERS
    listed = json.loads(command("ls", "--path", cache, "--json").stdout)
    assert listed["bytes"] == warmed["cache"]["bytes"] > 0
    (own,) = listed["data_sets"]
    assert "webdataset" in own["name"]
    assert not own["in_use"]
    # What the command has downloaded is what training wants.
    _, stats = epochs(dataset(proxy), 1, remote_cache=cache, remote_cache_bytes=10**8)
    assert stats["misses"] == 0
    text = command("ls", "--path", cache)
    assert "MB" in text.stdout
    assert "used" in text.stdout
    cleared = command("clear", "--path", cache)
    assert cleared.returncode == 0, cleared.stderr
    assert json.loads(command("ls", "--path", cache, "--json").stdout)["bytes"] == 0
    near = command("warm", tmp_path / "data", "--path", cache)
    assert near.returncode == 1
    assert "nothing to keep" in near.stderr
