"""Stores in the cloud and on the web, on real servers: the samples of local files, whatever happens on the way."""

from __future__ import annotations

import io
import json
import pickle
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import wellfed as wf
from pictures import write_folder
from store_servers import S3, fault_proxy, s3_server, web_server

pytest.importorskip("moto", reason="moto is not installed")

KEY, SECRET = "AKIAHUSHHUSHHUSH", "hush/hush+hush&hush=hush"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs in class folders, the same in three shards."""
    root = tmp_path_factory.mktemp("stores")
    write_folder(root / "train", count=18)
    paths = sorted((root / "train").rglob("*.*"))
    for shard in range(3):
        with tarfile.open(root / f"shard-{shard:03}.tar", "w") as tar:
            for number, path in enumerate(paths[shard::3]):
                for name, content in (
                    (f"{number:03}{path.suffix}", path.read_bytes()),
                    (f"{number:03}.cls", path.parent.name[-1].encode()),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture(scope="module")
def s3(data: Path) -> Iterator[S3]:
    with s3_server() as server:
        server.upload(server.bucket("photos"), data, "sets/")
        yield server


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials of whoever runs the tests, and no machine that gives some."""
    for name in (
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


def options(server: Any, **more: Any) -> dict[str, Any]:
    return {"endpoint_url": server.url, "key": KEY, "secret": SECRET, **more}


def epochs(ds: wf.Dataset, count: int = 2) -> list[list[Any]]:
    """Batches of two epochs with draws in them."""
    ds = ds.map(wf.transforms.RandomCrop(32)).shuffle(seed=3).batch(4)
    loader = ds.numpy(num_workers=2)
    return [[[np.asarray(part).tolist() for part in batch] for batch in loader] for _ in range(count)]


def folder(root: Any, **more: Any) -> wf.Dataset:
    return wf.image_folder(root, **more)


def shards(root: Any, **more: Any) -> wf.Dataset:
    urls = f"{str(root).removesuffix('/train')}/shard-{{000..002}}.tar"
    return wf.webdataset(urls, fields=["jpg;png", "cls"], **more)


KINDS = [folder, shards]


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("kind", KINDS)
def test_s3_gives_the_samples_of_local_files(kind: Any, s3: S3, data: Path) -> None:
    far = kind("s3://photos/sets/train", storage_options=options(s3))
    near = kind(data / "train")
    assert len(far) == len(near) == 18
    assert getattr(far, "classes", None) == getattr(near, "classes", None)
    assert epochs(far) == epochs(near)


@pytest.mark.usefixtures("epochs_not_counted")
def test_lists_and_patterns(s3: S3, data: Path) -> None:
    near = sorted((data / "train").rglob("*.*"))
    keys = [path.relative_to(data).as_posix() for path in near]
    labels = list(range(len(near)))
    far = wf.image_files([f"s3://photos/sets/{key}" for key in keys], labels, storage_options=options(s3))
    assert epochs(far) == epochs(wf.image_files(near, labels))
    found = wf.image_folder("s3://photos/sets/**/*.jpg", storage_options=options(s3))
    assert len(found) == sum(path.suffix == ".jpg" for path in near)
    boxes = [[[0, 0, 9, 9]] for _ in near]
    annotated = wf.annotated_images(
        [f"s3://photos/sets/{key}" for key in keys], boxes=boxes, storage_options=options(s3)
    )
    sample = annotated.sample(1)
    assert np.array_equal(sample["image"], wf.annotated_images(near, boxes=boxes).sample(1)["image"])
    with pytest.raises(wf.ConfigError, match=r"path 1, s3://other/b\.jpg, lies in another store"):
        wf.image_files(["s3://photos/a.jpg", "s3://other/b.jpg"], storage_options=options(s3))


@pytest.mark.usefixtures("epochs_not_counted")
def test_web_servers_give_ranges(data: Path) -> None:
    with web_server(data) as url:
        assert epochs(shards(url)) == epochs(shards(data))
        names = sorted((data / "train").rglob("*.*"))
        urls = [f"{url}/{path.relative_to(data).as_posix()}" for path in names]
        assert epochs(wf.image_files(urls, [0] * 18)) == epochs(wf.image_files(names, [0] * 18))
        with pytest.raises(wf.WellfedError, match="web servers have no folders"):
            wf.image_folder(f"{url}/train")
        with pytest.raises(FileNotFoundError, match=r"none\.tar"):
            wf.webdataset(f"{url}/none.tar")
    with web_server(data, ranges=False) as url, pytest.raises(wf.WellfedError, match="only sends the whole"):
        shards(url)


@pytest.mark.usefixtures("epochs_not_counted")
def test_passwords_and_signatures_of_urls_stay_secret(data: Path) -> None:
    with web_server(data, password="hushhush") as url:
        with pytest.raises(wf.StorageError, match="403 Forbidden"):
            shards(url)
        signed = wf.webdataset(f"{url}/shard-{{000..002}}.tar?signature=hushhush", fields=["jpg;png", "cls"])
        headers = {"headers": {"Authorization": "Bearer hushhush"}}
        for ds in (signed, shards(url, storage_options=headers)):
            assert epochs(ds, 1) == epochs(shards(data), 1)
            batched = ds.batch(2)
            for text in (
                repr(batched),
                batched.to_json(),
                batched.explain(),
                json.dumps(batched.numpy().state_dict()),
            ):
                assert "hush" not in text


# Each request fails once in its way, and comes right when it is made again.
FAULTS = [
    "outage",
    "throttle",
    "slow down",
    "too many",
    "reset",
    "reset midway",
    "truncate",
    "delay",
    "wrong length",
    "wrong range",
]


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_changes_or_loses_a_sample(kind: Any, s3: S3, data: Path) -> None:
    near = epochs(kind(data / "train"), 1)
    with fault_proxy(s3.url) as proxy:
        ds: Any = None
        for fault in FAULTS:
            proxy.forget()
            proxy.decide = lambda method, path, before, fault=fault: fault if before == 0 else None
            if fault in ("outage", "truncate", "too many"):
                # Opened under it, too.
                ds = kind("s3://photos/sets/train", storage_options=options(proxy))
                proxy.forget()
            loader = ds.map(wf.transforms.RandomCrop(32)).shuffle(seed=3).batch(4)
            loader = loader.numpy(num_workers=2, on_error="skip")
            far = [[np.asarray(part).tolist() for part in batch] for batch in loader]
            assert [far] == near, fault
            assert loader.errors() == [], fault
            loader.close()
            assert proxy.faults >= 3, fault


def test_what_drips_is_given_up_and_asked_for_again(s3: S3, data: Path) -> None:
    with fault_proxy(s3.url) as proxy:
        ds = folder("s3://photos/sets/train", storage_options=options(proxy, read_timeout=1.5))
        proxy.decide = lambda method, path, before: (
            "drip" if before == 0 and path.endswith("000.jpg") else None
        )
        labels = [
            label for _, batch in ds.map(wf.transforms.CenterCrop(32)).batch(6).numpy() for label in batch
        ]
        assert len(labels) == 18
        assert proxy.faults == 1


def test_throttling_slows_down_without_an_error(s3: S3) -> None:
    with fault_proxy(s3.url) as proxy:
        ds = folder("s3://photos/sets/train", storage_options=options(proxy, max_attempts=1))
        # More often than anything else would be tried again.
        proxy.decide = lambda method, path, before: "throttle" if before < 4 else None
        assert sum(len(labels) for _, labels in ds.map(wf.transforms.CenterCrop(32)).batch(6).numpy()) == 18
        assert proxy.faults > 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_object_that_changed_is_an_error_of_its_own(kind: Any, s3: S3, data: Path) -> None:
    bucket = s3.bucket(f"changing-{kind.__name__}")
    s3.upload(bucket, data)
    ds = kind(f"s3://{bucket}/train", storage_options=options(s3)).map(wf.transforms.CenterCrop(32)).batch(4)
    assert len(list(ds.numpy())) == 5
    for path in ("train/class0/000.jpg", "shard-001.tar"):
        s3.put(f"{bucket}/{path}", (data / path).read_bytes()[::-1])
    with pytest.raises(wf.ObjectChangedError, match="has changed since it was listed or first read"):
        list(ds.numpy())
    loader = ds.numpy(on_error="skip")
    kept = sum(len(labels) for _, labels in loader)
    assert 0 < kept < 18
    assert len(loader.errors()) == 18 - kept
    # Opened again, it is what is there now.
    if kind is folder:
        assert len(kind(f"s3://{bucket}/train", storage_options=options(s3))) == 18
    with fault_proxy(s3.url) as proxy:
        ds = folder("s3://photos/sets/train", storage_options=options(proxy)).map(
            wf.transforms.CenterCrop(32)
        )
        proxy.decide = lambda method, path, before: "changed" if path.endswith("000.jpg") else None
        with pytest.raises(wf.ObjectChangedError):
            list(ds.batch(4).numpy())


def test_outages_are_raised_whatever_on_error_says(s3: S3) -> None:
    with fault_proxy(s3.url) as proxy:
        ds = folder("s3://photos/sets/train", storage_options=options(proxy, max_attempts=2))
        proxy.decide = lambda method, path, before: "outage"
        with pytest.raises(wf.TransientError, match="500 Internal Server Error, InternalError") as caught:
            list(ds.batch(4).numpy(on_error="skip"))
        assert "failed 2 times" in str(caught.value)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    nowhere = {"endpoint_url": f"http://127.0.0.1:{port}", "anon": True, "max_attempts": 2}
    with pytest.raises(wf.TransientError, match=f"cannot connect to 127.0.0.1:{port}: "):
        folder("s3://photos/sets/train", storage_options=nowhere)


def test_secrets_appear_nowhere(s3: S3, capfd: pytest.CaptureFixture[str]) -> None:
    url = f"s3://photos/sets/train?endpoint_url={s3.url.replace(':', '%3A').replace('/', '%2F')}"
    secret = "secret=hush%2Fhush%2Bhush%26hush%3Dhush"
    for ds in (
        folder("s3://photos/sets/train", storage_options=options(s3)),
        folder(f"{url}&key={KEY}&{secret}"),
        wf.image_files(["s3://photos/sets/train/class0/000.jpg"], storage_options=options(s3)),
    ):
        ds = ds.map(wf.transforms.CenterCrop(32)).batch(1)
        loader = ds.numpy()
        assert len(list(loader)) >= 1
        texts = [
            repr(ds),
            ds.to_json(),
            ds.explain(),
            ds.explain(analyze=True, batches=2),
            repr(loader),
            str(loader.stats()),
        ]
        texts += [json.dumps(loader.state_dict()), *map(str, loader.errors())]
        # Another process gets them, and nobody else.
        again = pickle.loads(pickle.dumps(ds))
        assert len(list(again.numpy())) == len(ds)
        plan = ds.to_json()
        if "image_folder" in plan:
            assert len(wf.Dataset.from_json(plan)) == len(ds)
            lost = plan.replace("sealed=", "sealed=0")
            with pytest.raises(wf.ConfigError, match="secrets that this process does not have") as caught:
                wf.Dataset.from_json(lost)
            texts.append(str(caught.value))
        for text in texts:
            assert "hush" not in text.lower()
    wrong = [
        ("s3://photos/none", {}),
        ("s3://nowhere/none", {}),
        ("s3://photos/sets/train", {"colour": SECRET}),
        ("s3://photos/sets/train", {"max_attempts": SECRET}),
        ("s3://photos/sets/train", {"endpoint_url": f"http://{KEY}:{SECRET}@127.0.0.1:1", "max_attempts": 1}),
    ]
    for place, more in wrong:
        with pytest.raises(wf.WellfedError) as caught:
            folder(place, storage_options={**options(s3), **more})
        assert "hush" not in str(caught.value).lower()
    out, err = capfd.readouterr()
    assert "hush" not in (out + err).lower()


def test_credentials_are_found_where_the_tools_look(
    s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(s3.url) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.url)

        def key(**given: Any) -> str | None:
            """The key that requests are signed with."""
            proxy.seen.clear()
            assert len(folder("s3://photos/sets/train", storage_options=given)) == 18
            signatures = [
                headers.get("authorization", headers.get("Authorization")) for _, headers in proxy.seen
            ]
            assert len({signature.split("/")[0] if signature else None for signature in signatures}) == 1
            return signatures[0].split("Credential=")[1].split("/")[0] if signatures[0] else None

        with pytest.raises(wf.StorageError, match="no credentials for s3://"):
            key()
        assert key(anon=True) is None
        (tmp_path / "credentials").write_text(
            "[default]\naws_access_key_id=ofdefault\naws_secret_access_key=x\n"
        )
        (tmp_path / "config").write_text(
            "[profile work]\naws_access_key_id=ofwork\naws_secret_access_key=x\n"
        )
        assert key() == "ofdefault"
        monkeypatch.setenv("AWS_PROFILE", "work")
        assert key() == "ofwork"
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ofenv")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
        assert key() == "ofenv"
        assert key(profile="work") == "ofwork"
        assert key(key="given", secret="x") == "given"
        assert key(anon=True) is None
        with pytest.raises(wf.ConfigError, match="there is no profile other"):
            key(profile="other")
        assert key(key="given", secret="x", client_kwargs={"region_name": "eu-west-1"}) == "given"
        assert "/eu-west-1/s3/" in str(proxy.seen[0][1])
        assert key(requester_pays=True) == "ofenv"
        assert "x-amz-request-payer" in {name.lower() for _, headers in proxy.seen for name in headers}


def test_options_that_make_no_sense() -> None:
    with pytest.raises(wf.ConfigError, match="no option colour") as caught:
        wf.image_folder("s3://photos/x", storage_options={"anon": True, "colour": "red"})
    assert "endpoint_url" in str(caught.value)
    with pytest.raises(ValueError, match="which is a local path"):
        wf.image_folder("data", storage_options={"anon": True})
    with pytest.raises(TypeError, match="of type list"):
        wf.image_folder("s3://photos/x", storage_options={"key": ["x"]})
    with pytest.raises(wf.ConfigError, match="account of container"):
        wf.image_folder("az://photos/x")
    with pytest.raises(wf.ConfigError, match="names no bucket"):
        wf.image_folder("s3:///x")


def _mean(sample: Any) -> float:
    return float(np.asarray(sample[0]).mean())


def test_workers_read_for_themselves(s3: S3, tmp_path: Path) -> None:
    far = folder("s3://photos/sets/train", storage_options=options(s3))
    means = [_mean(far.sample(i)) for i in range(18)]
    forked = torch.utils.data.DataLoader(far, batch_size=None, num_workers=2, multiprocessing_context="fork")
    assert [_mean(sample) for sample in forked] == pytest.approx(means)
    steps = far.map(_mean).batch(3).numpy(num_workers=2)
    assert np.concatenate(list(steps)).tolist() == pytest.approx(means)
    # A process that has nothing but the pickle.
    path = tmp_path / "pickled"
    path.write_bytes(pickle.dumps(far))
    code = (
        "import pickle, sys\nds = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print([float(ds.sample(i)[0].mean()) for i in range(len(ds))])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False, timeout=120
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == pytest.approx(means)


def test_the_command_reads_from_stores(s3: S3) -> None:
    url = f"s3://photos/sets/train?endpoint_url={s3.url}&key={KEY}&secret=hush"
    ran = subprocess.run(
        [sys.executable, "-m", "wellfed", "inspect", url],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
    assert "a folder of class folders, 18 samples" in ran.stderr
    assert "hush" not in (ran.stdout + ran.stderr).lower()
