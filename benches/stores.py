"""Reading from S3 on the loopback interface, beside a raw client with as many connections: `python benches/stores.py`.

One server process (moto's, as the tests have it, or any that `--endpoint` names) serves tar shards of `--samples`
members of `--size` bytes. Both sides ask for every member once, in shuffled order, by ranges: the raw client with
`--connections` threads that do nothing else, and wellfed as batches of bytes. What wellfed reads in one request for
several neighbours, the raw client asks for one by one. Printed are seconds and MB/s of each round, and the best.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import queue
import sys
import tarfile
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))

import wellfed as wf
from store_servers import S3, s3_server

BUCKET = "bench"
SHARD = 256
"""Members of a shard."""


def shard(first: int, samples: int, size: int) -> tuple[bytes, list[int]]:
    """A tar shard, and where its members begin."""
    random, file, starts = np.random.default_rng(first), io.BytesIO(), []
    with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for number in range(first, first + samples):
            member = tarfile.TarInfo(f"{number:08}.bin")
            member.size = size
            starts.append(tar.offset + 512)
            tar.addfile(member, io.BytesIO(random.bytes(size)))
    return file.getvalue(), starts


def raw(url: str, wanted: list[tuple[str, int]], size: int, connections: int) -> tuple[float, int]:
    """Seconds and bytes of a client that keeps so many connections busy."""
    left: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for part in wanted:
        left.put(part)
    got = [0] * connections
    target = urlsplit(url)

    def work(number: int) -> None:
        connection = http.client.HTTPConnection(target.hostname or "", target.port)
        while True:
            try:
                name, start = left.get_nowait()
            except queue.Empty:
                break
            connection.request(
                "GET", f"/{BUCKET}/{name}", headers={"Range": f"bytes={start}-{start + size - 1}"}
            )
            got[number] += len(connection.getresponse().read())
        connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(connections)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - begun, sum(got)


def fed(ds: wf.Dataset) -> tuple[float, int]:
    """Seconds and bytes of an epoch."""
    begun = time.perf_counter()
    read = sum(len(member) for batch in ds.numpy() for members in batch for member in members)
    return time.perf_counter() - begun, read


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--size", type=int, default=110_000)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--endpoint", help="an S3 server that takes unsigned requests; default: moto's, started here"
    )
    args = parser.parse_args()
    with s3_server() if args.endpoint is None else nullcontext(S3(args.endpoint)) as server:
        server.bucket(BUCKET)
        members: list[tuple[str, int]] = []
        for first in range(0, args.samples, SHARD):
            name = f"{first // SHARD:04}.tar"
            data, starts = shard(first, min(SHARD, args.samples - first), args.size)
            server.put(f"{BUCKET}/{name}", data)
            members += [(name, start) for start in starts]
        ds = wf.webdataset(
            f"s3://{BUCKET}/*.tar",
            fields="bin",
            storage_options={
                "endpoint_url": server.url,
                "anon": True,
                "max_pool_connections": args.connections,
            },
        )
        order = np.random.default_rng(0).permutation(len(members))
        wanted = [members[i] for i in order]
        shuffled = ds.shuffle(seed=1).batch(32)
        results: dict[str, list[dict[str, Any]]] = {"raw": [], "wellfed": []}
        for _ in range(args.rounds):
            for name, run in (
                ("raw", lambda: raw(server.url, wanted, args.size, args.connections)),
                ("wellfed", lambda: fed(shuffled)),
            ):
                seconds, read = run()
                assert read == len(members) * args.size, f"{name} read {read} bytes"
                results[name].append({"seconds": round(seconds, 3), "MB/s": round(read / seconds / 1e6, 1)})
                print(name, json.dumps(results[name][-1]), flush=True)
        best = {name: max(runs, key=lambda run: run["MB/s"]) for name, runs in results.items()}
        print("best", json.dumps(best))


if __name__ == "__main__":
    main()
