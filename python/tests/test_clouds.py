"""Google Cloud Storage and Azure on servers that speak their protocols; certificates of one's own; proxies."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import wellfed as wf
from cloud_servers import ACCOUNT, ACCOUNT_KEY, BEARER, SAS, Cloud, certificate, cloud, forward_proxy
from pictures import write_folder
from store_servers import fault_proxy, web_server

SERVICES = ["gcs", "azure"]
SCHEME = {"gcs": "gs", "azure": "az"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs in class folders, the same in two shards."""
    root = tmp_path_factory.mktemp("clouds")
    write_folder(root / "train", count=18)
    paths = sorted((root / "train").rglob("*.*"))
    for shard in range(2):
        with tarfile.open(root / f"shard-{shard}.tar", "w") as tar:
            for number, path in enumerate(paths[shard::2]):
                for name, content in (
                    (f"{number:03}{path.suffix}", path.read_bytes()),
                    (f"{number:03}.cls", path.parent.name[-1].encode()),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture(scope="module", params=SERVICES)
def service(request: pytest.FixtureRequest, data: Path) -> Iterator[tuple[str, Cloud]]:
    with cloud(request.param, "photos", "public-photos") as made:
        made.upload("photos", data, "sets/")
        made.upload("public-photos", data)
        yield request.param, made


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials and proxies of whoever runs the tests."""
    for name in (
        "AZURE_STORAGE_ACCOUNT",
        "AZURE_STORAGE_ACCOUNT_NAME",
        "AZURE_STORAGE_CONNECTION_STRING",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "STORAGE_EMULATOR_HOST",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "AWS_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def options(kind: str, url: str, **more: Any) -> dict[str, Any]:
    if kind == "gcs":
        return {"endpoint_url": url, "token": BEARER, **more}
    return {"endpoint_url": url, "account_name": ACCOUNT, "account_key": ACCOUNT_KEY, **more}


def through(kind: str, proxy: str) -> str:
    """The endpoint of a service behind the fault proxy at this address."""
    return proxy if kind == "gcs" else f"{proxy}/{ACCOUNT}"


def epochs(ds: wf.Dataset, count: int = 2) -> list[list[Any]]:
    loader = ds.map(wf.transforms.RandomCrop(32)).shuffle(seed=3).batch(4).numpy(num_workers=2)
    return [[[np.asarray(part).tolist() for part in batch] for batch in loader] for _ in range(count)]


def shards(root: Any, **more: Any) -> wf.Dataset:
    return wf.webdataset(f"{root}/shard-{{0..1}}.tar", fields=["jpg;png", "cls"], **more)


@pytest.mark.usefixtures("epochs_not_counted")
def test_the_samples_are_those_of_local_files(service: tuple[str, Cloud], data: Path) -> None:
    kind, server = service
    given = options(kind, server.url)
    root = f"{SCHEME[kind]}://photos/sets"
    far, near = wf.image_folder(f"{root}/train", storage_options=given), wf.image_folder(data / "train")
    assert (len(far), far.classes) == (len(near), near.classes)
    assert epochs(far) == epochs(near)
    server.seen.clear()
    assert epochs(shards(root, storage_options=given)) == epochs(shards(data))
    # Members are read as ranges, of the object that was first seen.
    ranges = [
        headers for method, _, headers in server.seen if method == "GET" and "range" in str(headers).lower()
    ]
    assert ranges
    assert any("if-match" in {name.lower() for name in headers} for headers in ranges)
    found = wf.image_folder(f"{root}/**/*.jpg", storage_options=given)
    assert len(found) == sum(path.suffix == ".jpg" for path in data.rglob("*.*"))
    assert not any(secret in found.to_json() + found.explain() for secret in (ACCOUNT_KEY, BEARER))


def test_lists_of_many_pages_and_names_of_any_kind(service: tuple[str, Cloud], data: Path) -> None:
    kind, server = service
    picture = next((data / "train").rglob("*.jpg")).read_bytes()
    server.objects["many"] = {f"set/class {c}/ü&<{i:03}> #%20+.jpg": picture for c in "ab" for i in range(20)}
    ds = wf.image_folder(f"{SCHEME[kind]}://many/set", storage_options=options(kind, server.url))
    assert len(ds) == 40
    assert ds.classes[:2] == ["class a", "class b"]
    assert sum(len(labels) for _, labels in ds.map(wf.transforms.CenterCrop(8)).batch(9).numpy()) == 40


def test_a_folder_of_nothing_but_its_marker_is_an_empty_one(service: tuple[str, Cloud], data: Path) -> None:
    kind, server = service
    picture = next((data / "train").rglob("*.jpg")).read_bytes()
    # What consoles make when somebody makes a folder there.
    server.objects["marked"] = {"set/a/1.jpg": picture, "set/b/2.jpg": picture, "set/c/": b""}
    given = options(kind, server.url)
    ds = wf.image_folder(f"{SCHEME[kind]}://marked/set", allow_empty=True, storage_options=given)
    assert (ds.classes, len(ds)) == (["a", "b", "c"], 2)
    with pytest.raises(FileNotFoundError, match=r"\bc\b"):
        wf.image_folder(f"{SCHEME[kind]}://marked/set", storage_options=given)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        wf.image_folder(f"{SCHEME[kind]}://marked/none", storage_options=given)


# Each request fails once in its way, and comes right when it is made again.
FAULTS = ["reset midway", "truncate", "wrong range"]


@pytest.mark.usefixtures("epochs_not_counted")
def test_no_fault_changes_or_loses_a_sample(service: tuple[str, Cloud], data: Path) -> None:
    kind, server = service
    near = epochs(wf.image_folder(data / "train"), 1)
    with fault_proxy(server.url) as proxy:
        given = options(kind, through(kind, proxy.url))
        for fault in FAULTS:
            proxy.forget()
            proxy.decide = lambda method, path, before, fault=fault: fault if before == 0 else None
            ds = wf.image_folder(f"{SCHEME[kind]}://photos/sets/train", storage_options=given)
            assert epochs(ds, 1) == near, fault
            assert proxy.faults >= 3, fault


def test_the_services_own_words_for_too_much_slow_down_without_an_error(service: tuple[str, Cloud]) -> None:
    kind, server = service
    given = options(kind, server.url, max_attempts=1)
    ds = wf.image_folder(f"{SCHEME[kind]}://photos/sets/train", storage_options=given)
    loader = ds.map(wf.transforms.CenterCrop(32)).batch(6).numpy()
    server.busy = 5
    assert sum(len(labels) for _, labels in loader) == 18
    requests = loader.stats()["requests"]
    assert server.busy == 0
    assert requests["throttled"] >= 1
    assert (requests["retried"], requests["hedged"]) == (0, 0)


def test_an_object_that_changed_is_an_error_until_it_is_opened_again(
    service: tuple[str, Cloud], data: Path
) -> None:
    kind, server = service
    server.objects["changing"] = {}
    server.upload("changing", data)
    where, given = f"{SCHEME[kind]}://changing", options(kind, server.url)
    ds = wf.image_folder(f"{where}/train", storage_options=given).map(wf.transforms.CenterCrop(32)).batch(4)
    tars = shards(where, storage_options=given).map(wf.transforms.CenterCrop(32)).batch(4)
    assert (len(list(ds.numpy())), len(list(tars.numpy()))) == (5, 5)
    first = min(key for key in server.objects["changing"] if key.startswith("train/"))
    for key in (first, "shard-0.tar"):
        server.objects["changing"][key] += b"!"
    for changed in (ds, tars):
        with pytest.raises(wf.ObjectChangedError):
            list(changed.numpy())
    again = wf.image_folder(f"{where}/train", storage_options=given)
    assert len(list(again.map(wf.transforms.CenterCrop(32)).batch(4).numpy())) == 5


def test_errors_say_what_the_service_says(service: tuple[str, Cloud]) -> None:
    kind, server = service
    scheme, given = SCHEME[kind], options(kind, server.url)
    wrong = {"token": "hush-wrong"} if kind == "gcs" else {"account_key": "aHVzaA=="}
    status = "401 Unauthorized" if kind == "gcs" else "403 Forbidden, AuthenticationFailed"
    with pytest.raises(wf.StorageError, match=status) as caught:
        wf.image_folder(f"{scheme}://photos/sets/train", storage_options={**given, **wrong})
    assert "hush" not in str(caught.value)
    with pytest.raises(FileNotFoundError, match=r"no such (bucket|container)"):
        wf.image_folder(f"{scheme}://nowhere/train", storage_options=given)
    with pytest.raises(FileNotFoundError, match=r"none\.tar"):
        wf.webdataset(f"{scheme}://photos/none.tar", storage_options=given)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        wf.image_folder(f"{scheme}://photos/none", storage_options=given)


def test_credentials_of_google(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cloud("gcs", "photos", "public-photos") as server:
        server.upload("photos", data)
        server.upload("public-photos", data)

        def count(bucket: str = "photos", **given: Any) -> int:
            return len(wf.image_folder(f"gs://{bucket}/train", storage_options=given))

        assert count(endpoint_url=server.url, token=BEARER) == 18
        assert count("public-photos", endpoint_url=server.url, anon=True) == 18
        assert count("public-photos", endpoint_url=server.url, token="anon") == 18
        with pytest.raises(wf.StorageError, match="401"):
            count(endpoint_url=server.url, anon=True)
        server.seen.clear()
        assert count(endpoint_url=server.url, token=BEARER, requester_pays=True, project="mine") == 18
        assert {headers.get("x-goog-user-project") for _, _, headers in server.seen} == {"mine"}
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url.removeprefix("http://"))
        assert count("public-photos") == 18


def test_credentials_of_azure(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cloud("azure", "photos", "public-photos") as server:
        server.upload("photos", data)
        server.upload("public-photos", data)
        base = {"endpoint_url": server.url, "account_name": ACCOUNT}

        def count(bucket: str = "photos", **given: Any) -> int:
            return len(wf.image_folder(f"az://{bucket}/train", storage_options=given))

        assert count(**base, account_key=ACCOUNT_KEY) == 18
        assert count(**base, sas_token=SAS) == 18
        assert count(**base, sas_token=f"?{SAS}") == 18
        assert count(**base, token=BEARER) == 18
        assert count("public-photos", **base, anon=True) == 18
        with pytest.raises(wf.StorageError, match="403"):
            count(**base, anon=True)
        text = f"AccountName={ACCOUNT};AccountKey={ACCOUNT_KEY};BlobEndpoint={server.url};"
        assert count(connection_string=text) == 18
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", text)
        assert count() == 18
        ds = wf.image_folder("az://photos/train").map(wf.transforms.CenterCrop(8)).batch(6)
        loader = ds.numpy()
        assert len(list(loader)) == 3
        texts = (repr(ds), ds.to_json(), ds.explain(), json.dumps(loader.state_dict()))
        assert not any(ACCOUNT_KEY in text or "hush hush" in text for text in texts)


def test_certificates_of_ones_own(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificate(tmp_path)
    if made is None:
        pytest.skip("openssl is not installed")
    authority, *pair = made
    for kind in SERVICES:
        with cloud(kind, "photos", tls=(pair[0], pair[1])) as server:
            server.upload("photos", data)

            def count(**given: Any) -> int:
                given = options(kind, server.url, max_attempts=1, **given)  # noqa: B023
                return len(wf.image_folder(f"{SCHEME[kind]}://photos/train", storage_options=given))  # noqa: B023

            assert server.url.startswith("https://")
            with pytest.raises(wf.StorageError, match="certificate") as caught:
                count()
            assert "verify=FILE" in str(caught.value)
            assert count(verify=str(authority)) == 18
            assert count(verify=False) == 18
            monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority))
            assert count() == 18
            monkeypatch.delenv("REQUESTS_CA_BUNDLE")
            with pytest.raises(wf.ConfigError, match="no certificates"):
                count(verify=str(pair[1]))
            with pytest.raises(FileNotFoundError, match=r"none\.pem"):
                count(verify=str(tmp_path / "none.pem"))


@pytest.mark.filterwarnings(  # of the proxy's own sockets
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("kind", SERVICES)
def test_proxies(kind: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = certificate(tmp_path)
    with cloud(kind, "photos") as server, forward_proxy("hushhush") as (proxy, asked):
        server.upload("photos", data)
        named = proxy.replace("http://", "http://hush:hushhush@")

        def count(url: str, **given: Any) -> int:
            given = options(kind, url, max_attempts=1, **given)
            ds = wf.image_folder(f"{SCHEME[kind]}://photos/train", storage_options=given)
            assert "hushhush" not in ds.to_json() + ds.explain()
            return sum(len(labels) for _, labels in ds.map(wf.transforms.CenterCrop(8)).batch(6).numpy())

        assert count(server.url, proxy_url=named) == 18
        assert len(asked) >= 18
        assert all(entry.split(" ")[1].startswith("http://127.0.0.1") for entry in asked)
        with pytest.raises(wf.StorageError, match="407") as caught:
            count(server.url, proxy_url=proxy.replace("http://", "http://hush:hushwrong@"))
        assert "hushwrong" not in str(caught.value)
        if made is not None:
            asked.clear()
            with cloud(kind, "photos", tls=(made[1], made[2])) as secure:
                secure.upload("photos", data)
                assert count(secure.url, proxy_url=named, verify=str(made[0])) == 18
            assert {entry.split(" ")[0] for entry in asked} == {"CONNECT"}
    with cloud(kind, "photos") as server, forward_proxy() as (proxy, asked):
        server.upload("photos", data)
        monkeypatch.setenv("HTTP_PROXY", proxy)
        assert count(server.url) == 18
        assert asked
        asked.clear()
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert count(server.url) == 18
        assert not asked


@pytest.mark.usefixtures("epochs_not_counted")
def test_requests_are_counted(data: Path) -> None:
    with web_server(data) as url:
        ds = shards(url).map(wf.transforms.CenterCrop(16)).batch(4)
        loader = ds.numpy(num_workers=2)
        assert len(list(loader)) == 5
        stats = loader.stats()
        requests = stats["requests"]
        assert requests["requests"] >= 2
        assert requests["bytes"] > 1000
        assert 0 < requests["p50"] <= requests["p95"] <= requests["p99"]
        assert (requests["retried"], requests["throttled"]) == (0, 0)
        assert 1 <= requests["limit"] <= 512
        assert f"{requests['requests']} requests" in str(stats)
    near = shards(data).map(wf.transforms.CenterCrop(16)).batch(4).numpy()
    assert len(list(near)) == 5
    assert near.stats()["requests"] is None
