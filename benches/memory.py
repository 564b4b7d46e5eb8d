"""How much memory loaders take, beside what they may: `python benches/memory.py [--budget MB] [--only NAME]`.

Each case runs in a process of its own with a slow consumer, and 1, 2 and 8 workers. Printed is by how much the resident
set grew at its peak beyond what the interpreter had before, as a share of the budget. The batch that the consumer holds
is left out, and the one value of a list that is there twice while it becomes Python's; so is `CONSTANT` for what is no
part of the budget: threads' stacks, code that is paged in, the allocator's own. A record that cannot fit is a
`LimitExceededError`; anything else is a failure.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

MB = 1 << 20
GIGABYTE = 1000 * MB
CONSTANT = 24 * MB
"""What does not grow with the budget."""

WORKERS = (1, 2, 8)

BEGIN = """
import json, sys, time
import numpy as np
import wellfed as wf
from wellfed import transforms as T

path, budget, workers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])

def status(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024

def size(value):
    if isinstance(value, dict):
        return sum(map(size, value.values()))
    if isinstance(value, (list, tuple)):
        return sum(map(size, value))
    if hasattr(value, "values") and hasattr(value, "offsets"):
        return size(value.values) + size(value.offsets)
    return getattr(value, "nbytes", None) or len(value)

def arrays():
    offsets = np.concatenate([[0], np.cumsum([100_000 + 700_000 * (i * 7 % 5) for i in range(400)])])
    return wf.from_tensor_slices((wf.Ragged(np.ones(offsets[-1], np.uint8), offsets),))

def gigabytes():
    offsets = np.cumsum([0, 1000, 1000 << 20, 1000 << 20, 5])
    return wf.from_tensor_slices((wf.Ragged(np.ones(offsets[-1], np.uint8), offsets),))

def largest(batch):
    columns = batch if isinstance(batch, tuple) else (batch,)
    return max((len(value) for column in columns if isinstance(column, list) for value in column), default=0)
"""

END = """
next(iter(wf.from_tensor_slices(np.zeros((4, 4), np.uint8)).batch(2).numpy()))
options = {"num_workers": workers, "memory_budget": budget, "on_error": "skip", "prefetch": 16}
loader = iter(ds.numpy(**options))
start = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
number = held = value = refused = 0
while True:
    try:
        batch = next(loader)
    except StopIteration:
        break
    except wf.LimitExceededError:
        refused += 1
        continue
    number += 1
    held = max(held, size(batch))
    value = max(value, largest(batch))
    if number < 8:
        # Long enough for the next one to be made meanwhile.
        time.sleep(0.3 + 2e-9 * size(batch))
    del batch
bad = sorted({type(e.error).__name__ for e in loader._loader.errors()})
grown = status("VmHWM") - start
found = {"grown": grown, "held": held, "value": value, "batches": number, "refused": refused, "bad": bad}
print(json.dumps(found))
"""


def noise(count: int) -> bytes:
    """Bytes that do not compress."""
    return os.urandom(min(count, MB)) * (count // MB + 1)


def shards(folder: Path, name: str, members: list[tuple[str, bytes]]) -> None:
    """A tar file of these members."""
    with tarfile.open(folder / name, "w") as tar:
        for key, data in members:
            member = tarfile.TarInfo(key)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def png(width: int, height: int) -> bytes:
    """Black, in colour with alpha: a thousandth of its size."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    packer = zlib.compressobj(9)
    data = b"".join(packer.compress(bytes(1 + width * 4)) for _ in range(height)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def lists(folder: Path) -> None:
    sizes = [200_000 + 50_000 * (i % 7) + (3 * MB if i % 16 == 15 else 0) for i in range(300)]
    data = noise(max(sizes))
    text = "wellfed " * (max(sizes) // 8)
    members = [
        (f"{i:05}.{kind}", data[:size] if kind == "bin" else text[:size].encode())
        for i, size in enumerate(sizes)
        for kind in ("bin", "txt")
    ]
    shards(folder, "s.tar", members)


def nothing(folder: Path) -> None:
    """What is in memory needs no files."""


def large(folder: Path) -> None:
    sizes = [1, 300 * MB, 2, 600 * MB, 3, 1000 * MB, 4, 300 * MB, 1100 * MB, 5]
    data = noise(max(sizes))
    shards(folder, "s.tar", [(f"{i:05}.bin", data[:size]) for i, size in enumerate(sizes)])


def gigabytes(folder: Path) -> None:
    data = noise(GIGABYTE)
    sizes = [1000, GIGABYTE, GIGABYTE, 5]
    shards(folder, "s.tar", [(f"{i:05}.bin", data[:size]) for i, size in enumerate(sizes)])


def gigabyte_arrays(folder: Path) -> None:
    import numpy as np

    head = io.BytesIO()
    described = {"descr": "|u1", "fortran_order": False, "shape": (GIGABYTE,)}
    np.lib.format.write_array_header_1_0(head, described)
    array = head.getvalue() + noise(GIGABYTE)[:GIGABYTE]
    shards(folder, "s.tar", [(f"{i:05}.npy", array) for i in range(3)])


def bombs(folder: Path) -> None:
    from PIL import Image

    (folder / "a").mkdir()

    def jpeg(side: int, name: str, progressive: bool) -> None:
        Image.new("RGB", (side, side)).save(folder / "a" / name, progressive=progressive)

    for i in range(24):
        jpeg(200, f"{i:03}.jpg", False)
        jpeg(1600, f"fits-{i:03}.jpg", True)
    for i in range(3):
        (folder / "a" / f"bomb-{i}.png").write_bytes(png(13_300, 13_300))
        jpeg(9_000, f"bomb-{i}.jpg", True)


def table(folder: Path) -> None:
    """1.5 million rows, some 190 MB: more than its budget."""
    with open(folder / "t.csv", "w") as file:
        file.write(",".join([*(f"x{i}" for i in range(12)), "word"]) + "\n")
        for first in range(0, 1_500_000, 1000):
            rows = range(first, first + 1000)
            file.writelines(
                ",".join([*(f"{row * (i + 7) % 99991 / 100:.4f}" for i in range(12)), f"word {row % 97}"])
                + "\n"
                for row in rows
            )


CSV = 'wf.csv(path + "/t.csv")'
STACKED = f'{CSV}.stack([f"x{{i}}" for i in range(12)])'
BLOCKS = ".shuffle(block_size=16384, window=4)"
TAR = 'wf.webdataset(path + "/s.tar", fields=[{fields}])'
CASES: dict[str, tuple[Callable[[Path], None], str]] = {
    "lists": (lists, TAR.format(fields='"bin", "txt"') + ".batch(4)"),
    "ragged": (nothing, "arrays().ragged_batch(4)"),
    "padded": (nothing, "arrays().padded_batch(4)"),
    "large records": (large, TAR.format(fields='"bin"') + ".batch(1)"),
    "1 GB bytes": (gigabytes, TAR.format(fields='"bin"') + ".batch(1)"),
    "1 GB dense": (gigabyte_arrays, TAR.format(fields='"npy"') + ".batch(1)"),
    "1 GB resident": (nothing, "wf.from_tensor_slices((np.ones((2, 1000 << 20), np.uint8),)).batch(1)"),
    "1 GB ragged": (nothing, "gigabytes().ragged_batch(1)"),
    "1 GB padded": (nothing, "gigabytes().padded_batch(1)"),
    "csv": (table, f"{CSV}.batch(1024)"),
    "csv blocks": (table, f"{CSV}{BLOCKS}.batch(1024)"),
    "csv stacked": (table, f"{STACKED}{BLOCKS}.batch(1024)"),
    "bombs": (bombs, "wf.image_folder(path).map(T.RandomResizedCrop(32), T.ToTensor()).batch(4)"),
}
BUDGETS = {"large records": (256, 1536, 4096)} | {name: (2048, 4096) for name in CASES if "1 GB" in name}


def measure(pipeline: str, folder: Path, budget: int, workers: int) -> dict[str, Any]:
    """One case in a process of its own."""
    command = [
        sys.executable,
        "-c",
        f"{BEGIN}\nds = {pipeline}\n{END}",
        str(folder),
        str(budget),
        str(workers),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        return {"failed": (done.stderr.strip().splitlines() or [str(done.returncode)])[-1]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--budget", type=int, default=128, help="MB; cases of large records have their own")
    parser.add_argument("--only", choices=sorted(CASES))
    given = parser.parse_args()
    print(
        f"{'case':14} {'workers':>7} {'budget':>8} {'peak':>8} {'of it':>6}  MB, peak without {CONSTANT // MB}"
    )
    over = 0
    for name, (make, pipeline) in CASES.items():
        if given.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as temporary:
            make(Path(temporary))
            for budget in BUDGETS.get(name, (given.budget,)):
                for workers in WORKERS:
                    found = measure(pipeline, Path(temporary), budget * MB, workers)
                    where = f"{name:14} {workers:7} {budget:8}"
                    if "failed" in found:
                        over += 1
                        print(f"{where} {found['failed']}", flush=True)
                        continue
                    peak = max(0, found["grown"] - found["held"] - found["value"] - CONSTANT) / MB
                    over += peak > 1.1 * budget
                    rest = {key: found[key] for key in ("batches", "refused", "bad", "held")}
                    print(f"{where} {peak:8.0f} {peak / budget:6.2f}  {rest}", flush=True)
    sys.exit(1 if over else 0)


if __name__ == "__main__":
    main()
