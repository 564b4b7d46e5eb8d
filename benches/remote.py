"""Photographs that lie on a server, read from the first byte on: wellfed beside the libraries that stream, in turns.

    python benches/remote.py --photos DIR [--images 2000] [--rounds 3] [--delay-ms 0] [--link-mb 0] [--out FILE.json]

nginx on this machine (it must be installed; run as root it listens as nobody) serves `--images` photographs as
objects, as tar shards, in row groups of Parquet, as MDS and as LitData chunks. What is measured is opening the data set
and one epoch: all photographs, shuffled (Parquet by blocks, the libraries as they shuffle), cropped at random and
resized to 224x224 in batches of 64, without anything on local disk. Tar shards have no index beside them, or one from
before the upload (``indexed``); ``opened`` is an epoch without opening. The libraries run under torch's DataLoader with
2 and 4 workers, as their guides have it, the transforms are torchvision's; those that are not installed are left out.
`raw` only fetches the objects, by `--connections` threads. With `--delay-ms` nginx answers later (needs its echo
module), with `--link-mb` the loopback interface passes so much a second (needs root and `tc`; put back at the end).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import http.client
import importlib.util
import io
import json
import multiprocessing
import os
import queue
import shutil
import socket
import statistics
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.transforms import v2

import wellfed as wf
from wellfed import transforms as T

BATCH = 64
SHARD = 256
"""Photographs of a shard."""

CONFIG = """
{modules}
worker_processes 1;
error_log stderr crit;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; keepalive_timeout 600;
  types {{ }} default_type application/octet-stream;
  client_body_temp_path {folder}/t1; proxy_temp_path {folder}/t2; fastcgi_temp_path {folder}/t3;
  uwsgi_temp_path {folder}/t4; scgi_temp_path {folder}/t5;
  server {{
    listen 127.0.0.1:{port}; root {folder}/www;
    location / {{ {wait} }}
    location @file {{ }}
  }}
}}
"""


def transform(image: Any) -> torch.Tensor:
    """What torchvision makes of a photograph."""
    return _CHAIN(image.convert("RGB"))


_CHAIN = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.PILToTensor()])


ECHO = Path("/usr/lib/nginx/modules/ngx_http_echo_module.so")
"""Where Debian's package libnginx-mod-http-echo puts nginx's echo module."""


@contextlib.contextmanager
def served(folder: Path, delay_ms: float) -> Iterator[int]:
    """The port of a server of `folder`/www that waits before each answer."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = folder / "nginx.conf"
    modules, wait = "", ""
    if delay_ms:
        modules, wait = f"load_module {ECHO};", f"echo_sleep {delay_ms / 1e3}; echo_exec @file;"
    config.write_text(CONFIG.format(folder=folder, port=port, modules=modules, wait=wait))
    process = subprocess.Popen(["nginx", "-c", str(config), "-g", "daemon off;"])
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def shaped(megabytes: float) -> Iterator[None]:
    """Lets the loopback interface pass so many megabytes a second; 0 leaves it as it is."""
    if not megabytes:
        yield
        return
    rate = f"{megabytes * 8:.0f}mbit"
    shape = [
        "tc",
        "qdisc",
        "add",
        "dev",
        "lo",
        "root",
        "tbf",
        "rate",
        rate,
        "burst",
        "1mb",
        "latency",
        "200ms",
    ]
    subprocess.run(shape, check=True)
    try:
        yield
    finally:
        subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], check=True)


def write(www: Path, photos: list[Path], count: int) -> None:
    """All forms of `count` photographs, in a bucket of their own."""
    bucket = www / "bench"
    (bucket / "objects").mkdir(parents=True)
    (bucket / "tar").mkdir()
    contents = [path.read_bytes() for path in photos]
    for i in range(count):
        (bucket / "objects" / f"{i:06}.jpg").write_bytes(contents[i % len(contents)])
    for first in range(0, count, SHARD):
        with tarfile.open(
            bucket / "tar" / f"{first // SHARD:04}.tar", "w", format=tarfile.USTAR_FORMAT
        ) as tar:
            for i in range(first, min(first + SHARD, count)):
                for name, data in (
                    (f"{i:06}.jpg", contents[i % len(contents)]),
                    (f"{i:06}.cls", str(i % 10).encode()),
                ):
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    (bucket / "indexed").mkdir()
    for shard in sorted((bucket / "tar").iterdir()):
        shutil.copy(shard, bucket / "indexed")
    wf.webdataset(str(bucket / "indexed" / "*.tar"), fields=["jpg"], index="sidecar")
    for shard in (bucket / "indexed").glob("*.tar"):
        # As an upload leaves them: with another time than that of their index.
        os.utime(shard, (0, 0))
    images = [{"bytes": contents[i % len(contents)], "path": ""} for i in range(count)]
    table = pa.table({"image": images, "label": [i % 10 for i in range(count)]})
    pq.write_table(table, bucket / "photos.parquet", row_group_size=100)
    if importlib.util.find_spec("streaming"):
        from streaming import MDSWriter

        columns = {"image": "bytes", "label": "int"}
        with MDSWriter(out=str(bucket / "mds"), columns=columns, size_limit=1 << 25) as out:
            for i in range(count):
                out.write({"image": contents[i % len(contents)], "label": i % 10})
    if importlib.util.find_spec("litdata"):
        import litdata

        litdata.optimize(
            _LitSamples([str(path) for path in photos]), list(range(count)), str(bucket / "lit"),
            chunk_bytes="32MB", num_workers=1,
        )  # fmt: skip


class _LitSamples:
    """Makes a sample of a number."""

    def __init__(self, photos: list[str]) -> None:
        self.photos = photos

    def __call__(self, i: int) -> dict[str, Any]:
        return {"image": Path(self.photos[i % len(self.photos)]).read_bytes(), "label": i % 10}


def epoch(opened: Callable[[], Any], count: int) -> float:
    """Seconds of opening a data set and of an epoch of its `count` photographs."""
    begun, seen = time.perf_counter(), 0
    for batch in opened():
        seen += len(batch[0])
    assert count - BATCH < seen <= count + 4 * BATCH, f"{seen} of {count} photographs"
    return time.perf_counter() - begun


def raw(port: int, count: int, connections: int) -> float:
    """Seconds of fetching all objects."""
    left: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in range(count):
        left.put(i)

    def work() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        with contextlib.suppress(queue.Empty):
            while True:
                connection.request("GET", f"/bench/objects/{left.get_nowait():06}.jpg")
                connection.getresponse().read()

    threads = [threading.Thread(target=work) for _ in range(connections)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun


def in_process(run: Callable[[], float]) -> float:
    """What `run` gives in a process of its own: libraries leave shared memory, clients and settings behind."""
    context = multiprocessing.get_context("fork")
    ours, its = context.Pipe(duplex=False)
    process = context.Process(target=lambda: its.send(run()))
    process.start()
    its.close()
    try:
        return ours.recv()
    except EOFError:
        raise SystemExit(f"{run.__name__} failed") from None
    finally:
        process.join()


def ours(port: int, count: int) -> dict[str, Callable[[], float]]:
    """wellfed, of objects and of shards."""
    store = {"endpoint_url": f"http://127.0.0.1:{port}", "anon": True}
    shards = -(-count // SHARD) - 1
    url_of_shards = f"s3://bench/tar/{{0000..{shards:04}}}.tar"

    def objects() -> float:
        urls = [f"s3://bench/objects/{i:06}.jpg" for i in range(count)]
        labels = [i % 10 for i in range(count)]
        return epoch(lambda: chain(wf.image_files(urls, labels=labels, storage_options=store)), count)

    def tar() -> float:
        how: dict[str, Any] = {"fields": ["jpg", "cls"], "storage_options": store}
        return epoch(lambda: chain(wf.webdataset(url_of_shards, **how)), count)

    def indexed() -> float:
        url, how = url_of_shards.replace("/tar/", "/indexed/"), {"fields": ["jpg", "cls"]}
        return epoch(lambda: chain(wf.webdataset(url, storage_options=store, **how)), count)

    def parquet() -> float:
        ds = functools.partial(
            wf.parquet, "s3://bench/photos.parquet", images=["image"], fields=["image", "label"]
        )
        return epoch(lambda: chain(ds(storage_options=store), block_size=100, window=4), count)

    def opened() -> float:
        loader = chain(wf.webdataset(url_of_shards, fields=["jpg", "cls"], storage_options=store))
        return epoch(lambda: loader, count)

    def chain(ds: wf.Dataset, **blocks: int) -> Any:
        return (
            ds.shuffle(seed=0, **blocks)
            .map(T.RandomResizedCrop(224), T.RandomHorizontalFlip())
            .batch(BATCH)
            .numpy()
        )

    return {
        "wellfed, objects": objects,
        "wellfed, tar shards": tar,
        "wellfed, tar shards, indexed": indexed,
        "wellfed, tar shards, opened": opened,
        "wellfed, Parquet": parquet,
    }


def theirs(port: int, count: int, workers: int) -> dict[str, Callable[[], float]]:
    """The libraries that are installed."""
    url, found = f"http://127.0.0.1:{port}", {}
    # litdata makes "spawn" the default of the process; forking is torch's, and starts sooner.
    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers, "multiprocessing_context": "fork"}
    shards = -(-count // SHARD) - 1

    if importlib.util.find_spec("webdataset"):
        import webdataset as wds

        def by_webdataset() -> float:
            urls = f"{url}/bench/tar/{{0000..{shards:04}}}.tar"

            def opened() -> Any:
                data = wds.WebDataset(urls, shardshuffle=100, empty_check=False, nodesplitter=None)
                data = data.shuffle(1000).decode("pil").to_tuple("jpg", "cls").map_tuple(transform, None)
                return DataLoader(data, **options)

            return epoch(opened, count)

        found[f"webdataset, {workers} workers"] = by_webdataset

    if importlib.util.find_spec("streaming"):

        def by_streaming() -> float:
            os.environ.update(
                S3_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y", AWS_REGION="us-east-1"
            )
            with tempfile.TemporaryDirectory() as local:
                from streaming.base.util import clean_stale_shared_memory

                clean_stale_shared_memory()
                return epoch(lambda: DataLoader(_mosaic(f"{local}/cache"), **options), count)

        found[f"streaming, {workers} workers"] = by_streaming

    if importlib.util.find_spec("litdata"):
        import litdata

        def by_litdata() -> float:
            keys = {
                "endpoint_url": url,
                "aws_access_key_id": "x",
                "aws_secret_access_key": "y",
                "region_name": "us-east-1",
            }
            with tempfile.TemporaryDirectory() as cache:
                how = {"cache_dir": cache, "shuffle": True, "storage_options": keys, "transform": _of_bytes}
                return epoch(
                    lambda: litdata.StreamingDataLoader(
                        litdata.StreamingDataset("s3://bench/lit", **how), **options
                    ),
                    count,
                )

        found[f"litdata, {workers} workers"] = by_litdata

    if importlib.util.find_spec("s3torchconnector"):
        from s3torchconnector import S3MapDataset

        def by_connector() -> float:
            os.environ.update(AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="y")
            urls = [f"s3://bench/objects/{i:06}.jpg" for i in range(count)]
            how = {"region": "us-east-1", "endpoint": url, "transform": _of_object}
            return epoch(
                lambda: DataLoader(S3MapDataset.from_objects(urls, **how), shuffle=True, **options), count
            )

        found[f"s3torchconnector, {workers} workers"] = by_connector
    return found


def _of_bytes(sample: dict[str, Any]) -> tuple[torch.Tensor, int]:
    return transform(Image.open(io.BytesIO(sample["image"]))), sample["label"]


def _of_object(read: Any) -> tuple[torch.Tensor, int]:
    return transform(Image.open(io.BytesIO(read.read()))), int(read.key[-5])


def _mosaic(local: str) -> Any:
    from streaming import StreamingDataset

    class Photos(StreamingDataset):
        def __getitem__(self, at: Any) -> Any:
            return _of_bytes(super().__getitem__(at))

    return Photos(remote="s3://bench/mds", local=local, shuffle=True, batch_size=BATCH)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--delay-ms", type=float, default=0)
    parser.add_argument("--link-mb", type=float, default=0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--only", nargs="+", help="words that names of ways begin with")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not shutil.which("nginx"):
        raise SystemExit("nginx is not installed\nhint: apt-get install nginx-light")
    photos = sorted(path for path in options.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    count = options.images
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        write(folder / "www", photos, count)
        size = sum(path.stat().st_size for path in (folder / "www/bench/objects").iterdir())
        with served(folder, options.delay_ms) as port, shaped(options.link_mb):
            ways: dict[str, Callable[[], float]] = {
                "raw": lambda: raw(port, count, options.connections),
                **ours(port, count),
            }
            for workers in (2, 4):
                peers = theirs(port, count, workers)
                ways |= {way: functools.partial(in_process, run) for way, run in peers.items()}
            if options.only:
                ways = {way: run for way, run in ways.items() if way.startswith(tuple(options.only))}
            seconds: dict[str, list[float]] = {way: [] for way in ways}
            for number in range(options.rounds):
                for way, run in ways.items() if number % 2 == 0 else reversed(ways.items()):
                    seconds[way].append(run())
                    print(f"{way:28} {count / seconds[way][-1]:8.0f} images/s", flush=True)
    report = {
        way: {
            "images_per_second": count / statistics.median(all_),
            "megabytes_per_second": size / 1e6 / statistics.median(all_),
            "seconds": all_,
        }
        for way, all_ in seconds.items()
    }
    print()
    for way, result in report.items():
        print(
            f"{way:28} {result['images_per_second']:8.0f} images/s {result['megabytes_per_second']:8.1f} MB/s"
        )
    if options.out is not None:
        options.out.write_text(
            json.dumps({"delay_ms": options.delay_ms, "link_mb": options.link_mb, "ways": report}, indent=1)
        )


if __name__ == "__main__":
    main()
