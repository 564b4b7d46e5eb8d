"""hf:// on a server that speaks a hub's interface."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import wellfed as wf
from hub_server import TOKEN, Hub, hub_server
from pictures import write_folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("hub")
    write_folder(root / "train", count=14)
    with tarfile.open(root / "a b-0.tar", "w") as tar:
        for number, path in enumerate(sorted((root / "train").rglob("*.*"))):
            content = path.read_bytes()
            member = tarfile.TarInfo(f"{number:03}{path.suffix}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture(scope="module")
def hub(data: Path) -> Iterator[Hub]:
    with hub_server() as made:
        made.upload("datasets/u/photos", data)
        made.upload("datasets/u/photos", data / "train", "refs/convert/parquet")
        made.upload("models/u/photos", data)
        made.upload("datasets/u/closed", data)
        made.private.add("datasets/u/closed")
        yield made


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HF_TOKEN", "HF_TOKEN_PATH", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))


def test_folders_are_those_of_this_machine(data: Path, hub: Hub) -> None:
    options = {"endpoint_url": hub.url}
    local = wf.image_folder(data / "train")
    for url in (
        "hf://datasets/u/photos/train",
        "hf://u/photos@main/train",
        "hf://datasets/u/photos@~parquet",
    ):
        ds = wf.image_folder(url, storage_options=options)
        assert ds.classes == local.classes
        assert len(ds) == len(local) == 14
        for i in (0, 7, 13):
            ours, theirs = ds[i], local[i]
            assert np.array_equal(ours[0], theirs[0])
            assert ours[1] == theirs[1]
    shards = wf.webdataset("hf://datasets/u/photos/*.tar", fields="jpg;jpeg;png", storage_options=options)
    assert len(shards) == 14


def test_the_address_is_found_where_the_hubs_own_tools_find_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    assert len(wf.image_folder("hf://datasets/u/photos/train")) == 14


def test_tokens_go_to_the_hub_alone_and_stand_nowhere(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, options = "hf://datasets/u/closed/train", {"endpoint_url": hub.url}
    with pytest.raises(OSError, match="not permitted"):
        wf.image_folder(url, storage_options=options)
    ds = wf.image_folder(url, storage_options={**options, "token": TOKEN})
    hub.seen.clear()
    assert ds[3][0].shape[0] == 3
    servers = {server: headers.get("authorization") for server, _, headers in hub.seen}
    assert servers == {"hub": f"Bearer {TOKEN}", "files": None}
    for text in (repr(ds), ds.explain(), ds.to_json(), str(ds.batch(2).numpy().state_dict())):
        assert "hush" not in text, text
    # As `hf auth login` stores it.
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert len(wf.image_folder(url, storage_options=options)) == 14
    with pytest.raises(OSError, match="not permitted"):
        wf.image_folder(url, storage_options={**options, "anon": True})


def test_a_file_that_changes_is_an_error(data: Path, hub: Hub) -> None:
    hub.upload("datasets/u/moving", data)
    ds = wf.image_folder("hf://datasets/u/moving/train", storage_options={"endpoint_url": hub.url})
    before = ds[0][0]
    files = hub.repositories["datasets/u/moving"]["main"]
    names = sorted(name for name in files if name.startswith("train/"))
    files[names[0]] = files[names[1]]
    with pytest.raises(wf.ObjectChangedError):
        ds[0]
    assert before.size > 0


@pytest.mark.parametrize(
    ("url", "error", "what"),
    [
        ("hf://datasets/u/none/train", OSError, "does not exist"),
        ("hf://datasets/u/photos/nowhere", OSError, "nowhere"),
        ("hf://datasets/u/photos@v9/train", OSError, "does not exist"),
        ("hf://datasets", ValueError, "does not name a user"),
        ("hf://datasets/u/photos/train?colour=red", ValueError, "no option colour"),
    ],
)
def test_what_is_not_there_is_said(hub: Hub, url: str, error: type[Exception], what: str) -> None:
    options = None if "?" in url else {"endpoint_url": hub.url}
    with pytest.raises(error) as caught:
        wf.image_folder(url, storage_options=options)
    assert what in str(caught.value), str(caught.value)
