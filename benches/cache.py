"""What a cache on local disk spares: bytes that a server sends in each epoch, and time: `python benches/cache.py`.

One server process on the loopback interface (moto's S3, as the tests have it) serves tar shards of `--samples` members
of `--size` bytes. Loaders read every member once an epoch, in an order of its own: without a cache, and with one of
`--part` of the data; beside it is what a cache of that size would download that evicts what was used least lately,
played over the same order. Printed are the bytes that came from the server and the seconds of each epoch.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import wellfed as wf
from store_servers import s3_server
from stores import BUCKET, SHARD, shard


def lru(orders: list[list[bytes]], room: int) -> list[int]:
    """Members that a cache of `room` members downloads in each epoch, if it evicts what was used least lately."""
    kept: OrderedDict[bytes, None] = OrderedDict()
    downloads = []
    for order in orders:
        missed = 0
        for member in order:
            missed += member not in kept
            kept.pop(member, None)
            kept[member] = None
            if len(kept) > room:
                kept.popitem(last=False)
        downloads.append(missed)
    return downloads


def epochs(ds: wf.Dataset, count: int, **options: Any) -> tuple[list[dict[str, float]], list[list[bytes]]]:
    """Seconds and bytes from the store of each epoch, by a loader of its own; the first bytes of each member."""
    results, orders = [], []
    for epoch in range(count):
        with ds.numpy(**options) as loader:
            loader.set_epoch(epoch)
            begun = time.perf_counter()
            members = [member for batch in loader for members in batch for member in members]
            seconds = time.perf_counter() - begun
            stats = loader.stats()
        cache, requests = stats["remote_cache"], stats["requests"]
        # Read-ahead has begun with the next epoch: requests of that are counted, too.
        missed = requests["bytes"] if cache is None else cache["missed_bytes"]
        results.append({"seconds": round(seconds, 3), "MB from the store": round(missed / 1e6, 1)})
        orders.append([member[:32] for member in members])
    return results, orders


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--size", type=int, default=110_000)
    parser.add_argument("--part", type=float, default=0.5)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument(
        "--memory-budget", type=int, default=64 << 20, help="of the loaders: how far they read ahead"
    )
    args = parser.parse_args()
    with s3_server() as server, tempfile.TemporaryDirectory() as folder:
        server.bucket(BUCKET)
        for first in range(0, args.samples, SHARD):
            data, _ = shard(first, min(SHARD, args.samples - first), args.size)
            server.put(f"{BUCKET}/{first // SHARD:04}.tar", data)
        ds = wf.webdataset(
            f"s3://{BUCKET}/*.tar",
            fields="bin",
            storage_options={"endpoint_url": server.url, "anon": True},
        )
        shuffled = ds.shuffle(seed=1).batch(32).with_options(memory_budget=args.memory_budget)
        # What an entry takes on the disk.
        block = (args.size + 32 + 4095) // 4096 * 4096
        room = int(args.part * args.samples)
        without, _ = epochs(shuffled, args.epochs, remote_cache="off")
        with_cache, orders = epochs(
            shuffled, args.epochs, remote_cache=str(Path(folder) / "cache"), remote_cache_bytes=room * block
        )
        least = [args.samples] + [args.samples - room] * (args.epochs - 1)
        for epoch, missed in enumerate(lru(orders, room)):
            line = {
                "epoch": epoch,
                "without": without[epoch],
                "with": with_cache[epoch],
                "least MB": round(least[epoch] * args.size / 1e6, 1),
                "LRU MB": round(missed * args.size / 1e6, 1),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
