"""What must hold however often it is tried, tried often: `python benches/soak.py [kills] [faults] [outage]`.

`kills`: writing tar shards is killed at `--kills` random moments and goes on each time; what it ends with must be the
bytes of a run that nobody killed. `faults`: a proxy harms 5 % of the requests, each epoch in another of its ways
(delays, truncated bodies, resets, 5xx, throttling, wrong lengths and ranges), for `--epochs` epochs of 200 photographs
on S3 (moto's), half of them as objects and half in tar shards; batches must be those of local files. `outage`: the
server is gone for 30 seconds, and the epoch goes on; then it is gone for good, and the error must name it within the
time configured.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))

import wellfed as wf
from store_servers import fault_proxy, s3_server
from wellfed import transforms as T

FAULTS = (
    "delay",
    "truncate",
    "reset",
    "reset midway",
    "outage",
    "throttle",
    "slow down",
    "too many",
    "wrong length",
    "wrong range",
)

WRITER = """
import sys, wellfed as wf
from wellfed import transforms as T
ds = wf.image_folder(sys.argv[1]).shuffle(seed=1).repeat(8)
ds.write(sys.argv[2] + "/t-{}.tar", max_samples=64, quality=90, num_workers=2, progress=False)
"""


def photographs(folder: Path, count: int) -> None:
    """JPEGs of noise and gradients in two class folders."""
    noise = np.random.default_rng(0)
    for number in range(count):
        path = folder / f"class{number % 2}" / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.linspace(0, 155, 240 * 320 * 3).reshape(240, 320, 3) + noise.uniform(
            0, 100, (240, 320, 3)
        )
        Image.fromarray(pixels.astype(np.uint8)).save(path, quality=95)


def hashes(folder: Path) -> dict[str, str]:
    """Of each file, by its path, but for indexes, which know the times of their shards."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".wfidx")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def kills(root: Path, count: int, seed: int) -> dict[str, Any]:
    """Kills a writer again and again, until `count` were killed; each run that ends must have written the same."""
    photographs(root / "photos", 400)
    draw = random.Random(seed)

    def start(to: Path) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WRITER, str(root / "photos"), str(to)])

    begun = time.perf_counter()
    assert start(root / "whole").wait() == 0
    length, wanted = time.perf_counter() - begun, hashes(root / "whole")
    killed = runs = midway = 0
    while killed < count:
        to = root / f"killed{runs}"
        while True:
            process = start(to)
            try:
                assert process.wait(draw.uniform(0, 1.1 * length) if killed < count else None) == 0
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed, there = killed + 1, len(list(to.glob("t-*.tar"))) if to.exists() else 0
                midway += 0 < there < len(list((root / "whole").glob("t-*.tar")))
        assert hashes(to) == wanted, f"{to} differs from what was written in one go"
        runs += 1
    return {
        "killed": killed,
        "of them between the first and the last shard": midway,
        "outputs": runs,
        "files": len(wanted),
    }


def on_s3(server: Any, root: Path, count: int) -> None:
    """`count` photographs as objects, and as tar shards of 50."""
    photographs(root / "train", count)
    paths = sorted((root / "train").rglob("*.jpg"))
    for shard in range(0, count, 50):
        with tarfile.open(root / f"shard-{shard // 50:03}.tar", "w") as tar:
            for path in paths[shard : shard + 50]:
                for name, data in (
                    (path.name, path.read_bytes()),
                    (f"{path.stem}.cls", path.parent.name[-1:].encode()),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    server.upload(server.bucket("soak"), root)


# Read-ahead goes on into the next epochs, within an eighth of the budget: so small a one that each epoch asks again.
BUDGET = 64 << 20


def pipelines(near: Path, url: str, count: int) -> list[tuple[Any, Any]]:
    """Far and near loaders of the same samples."""
    options = {"endpoint_url": url, "anon": True, "read_timeout": 5}
    shards = f"shard-{{000..{count // 50 - 1:03}}}.tar"
    fields = ["jpg", "cls"]
    pairs = [
        (wf.image_folder("s3://soak/train", storage_options=options), wf.image_folder(near / "train")),
        (
            wf.webdataset(f"s3://soak/{shards}", fields=fields, storage_options=options),
            wf.webdataset(f"{near}/{shards}", fields=fields),
        ),
    ]
    return [
        tuple(
            ds.shuffle(seed=0)
            .map(T.RandomCrop(64))
            .batch(20)
            .with_options(memory_budget=BUDGET)
            .numpy(num_workers=2)
            for ds in pair
        )  # type: ignore[misc]
        for pair in pairs
    ]


def faults(root: Path, epochs: int, seed: int) -> dict[str, Any]:
    """Epochs over a proxy that fails 5 % of the requests, each in one of its ways."""
    count, draw, lock, done = 200, random.Random(seed), threading.Lock(), dict.fromkeys(FAULTS, 0)
    samples = requests = 0
    way = FAULTS[0]

    def decide(method: str, path: str, before: int) -> str | None:
        nonlocal requests
        with lock:
            requests += 1
            if draw.random() >= 0.05:
                return None
            done[way] += 1
            return way

    with s3_server() as server, fault_proxy(server.url) as proxy:
        on_s3(server, root, count)
        pairs = pipelines(root, proxy.url, count)
        proxy.decide = decide
        for epoch in range(epochs):
            # Both pipelines meet every way.
            far, near = pairs[epoch // len(FAULTS) % 2]
            way = FAULTS[epoch % len(FAULTS)]
            for loader in (far, near):
                loader.set_epoch(epoch)
            for theirs, ours in zip(far, near, strict=True):
                assert all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True)), f"epoch {epoch}"
                samples += len(ours[0])
            assert not far.errors()
        retried = sum(far.stats()["requests"]["retried"] for far, _ in pairs)
    assert samples == epochs * count
    return {"epochs": epochs, "samples": samples, "requests": requests, "faults": done, "retried": retried}


def outage(root: Path) -> dict[str, Any]:
    """A server that is gone for 30 seconds, and one that does not come back."""
    count, gone = 200, threading.Event()
    with s3_server() as server, fault_proxy(server.url) as proxy:
        on_s3(server, root, count)
        far, near = pipelines(root, proxy.url, count)[0]
        proxy.decide = lambda method, path, before: "reset" if gone.is_set() else None
        begun, batches = time.perf_counter(), 0
        timer = threading.Timer(30, gone.clear)
        gone.set()
        timer.start()
        for theirs, ours in zip(far, near, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(theirs, ours, strict=True))
            batches += 1
        waited = time.perf_counter() - begun
        timer.join()
        url = proxy.url
        ds = wf.image_folder(
            "s3://soak/train", storage_options={"endpoint_url": url, "anon": True, "max_attempts": 3}
        )
    begun = time.perf_counter()
    try:
        for _ in ds.map(T.RandomCrop(64)).batch(20).numpy():
            pass
    except wf.TransientError as error:
        message = str(error)
    else:
        raise AssertionError("a server that is gone gave samples")
    assert urlsplit(url).netloc in message, message
    return {
        "batches after 30 s without a server": batches,
        "seconds": round(waited, 1),
        "error of a server that is gone, after seconds": round(time.perf_counter() - begun, 1),
        "message": message.replace(os.fspath(root), "…").replace(url.rsplit(":", 1)[1], "PORT"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="kills|faults|outage", help="all, if none is named")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for what in options.what or ["kills", "faults", "outage"]:
        if what not in ("kills", "faults", "outage"):
            parser.error(f"{what} is neither kills nor faults nor outage")
        with tempfile.TemporaryDirectory() as name:
            root = Path(name)
            if what == "kills":
                result = kills(root, options.kills, options.seed)
            elif what == "faults":
                result = faults(root, options.epochs, options.seed)
            else:
                result = outage(root)
        print(json.dumps({what: result}), flush=True)


if __name__ == "__main__":
    main()
