"""Memory: a loader stays within its budget, and what cannot be had is an error of its sample, never an abort.

Each test runs in a child process, whose memory is measured or limited by itself.
"""

from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="memory is limited and measured by Linux's means")
pytestmark = LINUX

MB = 1 << 20

# What the scripts of children begin with.
BEGIN = """
import json, resource, sys, time
import numpy as np
import wellfed as wf
from wellfed import transforms as T

def status(name):
    line = next(line for line in open("/proc/self/status") if line.startswith(name + ":"))
    return int(line.split()[1]) * 1024

def limit(more):
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + more,) * 2)
"""


def child(script: str, *args: Any) -> dict[str, Any]:
    command = [sys.executable, "-c", BEGIN + script, *map(str, args)]
    path = os.pathsep.join(path for path in sys.path if path)
    env = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def png(width: int, height: int, data: bytes | None = None, color: int = 6) -> bytes:
    """A PNG of zeros, or of what `data` inflates to."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    if data is None:
        packer = zlib.compressobj(9)
        row = bytes(1 + width * {0: 1, 2: 3, 6: 4}[color])
        parts = [packer.compress(row) for _ in range(height)]
        data = b"".join(parts) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def jpeg(width: int, height: int, **options: Any) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (width, height)).save(file, "jpeg", **options)
    return file.getvalue()


def small(folder: Path, count: int = 8) -> Path:
    (folder / "a").mkdir(parents=True)
    for i in range(count):
        (folder / "a" / f"{i:03}.jpg").write_bytes(jpeg(64, 48))
    return folder


@pytest.mark.parametrize(
    ("name", "bomb", "transforms"),
    [
        ("rgba.png", lambda: png(13_300, 13_300), "T.RandomResizedCrop(24), T.ToTensor()"),
        (
            "progressive.jpg",
            lambda: jpeg(12_000, 12_000, progressive=True),
            "T.Resize((24, 24)), T.ToTensor()",
        ),
        (
            "turned.png",
            lambda: png(9_000, 9_000, color=2),
            "T.RandomRotation(30), T.Resize((24, 24)), T.ToTensor()",
        ),
        (
            "floats.png",
            lambda: png(7_000, 7_000, color=2),
            "T.GaussianBlur(5), T.Resize((24, 24)), T.ToTensor()",
        ),
    ],
)
def test_an_image_without_memory_is_a_listed_error(
    tmp_path: Path, name: str, bomb: Any, transforms: str
) -> None:
    folder = small(tmp_path / "data")
    (folder / "a" / name).write_bytes(bomb())
    script = f"""
ds = wf.image_folder(sys.argv[1]).map({transforms}).batch(3)
ds = ds.with_options(on_error="skip", num_workers=2, memory_budget=8 << 30)
limit({150 * MB})
loader = ds.numpy()
samples = sum(len(labels) for _, labels in loader)
print(json.dumps({{"samples": samples, "errors": [[e.key, type(e.error).__name__] for e in loader.errors()]}}))
"""
    assert child(script, folder) == {"samples": 8, "errors": [[f"a/{name}", "LimitExceededError"]]}


def test_a_batch_without_memory_is_an_error(tmp_path: Path) -> None:
    script = """
ds = wf.from_tensor_slices(np.zeros((64, 64), np.float32)).batch(2)
big = wf.from_tensor_slices(np.zeros((400, 300, 300), np.float32)).batch(200)
limit(60 << 20)
result = []
for attempt in range(2):
    try:
        next(iter(big.numpy(memory_budget=1 << 30, num_workers=2)))
    except wf.LimitExceededError as e:
        result.append(isinstance(e, ValueError))
print(json.dumps({"raised": result, "after": len(list(ds.numpy()))}))
"""
    assert child(script) == {"raised": [True, True], "after": 32}


# Runs a pipeline under a budget with a slow consumer; says by how much memory grew, and what `stats()` saw.
MEASURE = """
def measure(ds):
    for warm_up in (True, False):
        if not warm_up:
            start = status("VmRSS")
            open("/proc/self/clear_refs", "w").write("5")
        else:
            next(iter(wf.from_tensor_slices(np.zeros((4, 4), np.uint8)).batch(2).numpy()))
    loader = ds.numpy()
    samples, most = 0, 0
    for number, batch in enumerate(loader):
        samples += len(batch[0])
        if number < 5:
            time.sleep(0.2)
        most = max(most, loader.stats()["memory"])
        del batch
    return {"samples": samples, "grown": status("VmHWM") - start, "most": most, "errors": loader.errors()}

def report(found):
    found["errors"] = sorted({(e.key, type(e.error).__name__) for e in found["errors"]})
    print(json.dumps(found))
"""


def test_bombs_stay_within_the_budget(tmp_path: Path) -> None:
    folder = small(tmp_path / "data", 24)
    (folder / "a" / "0-bomb.png").write_bytes(png(13_300, 13_300))
    (folder / "a" / "1-bomb.jpg").write_bytes(jpeg(9_000, 9_000, progressive=True))
    for i in range(6):
        (folder / "a" / f"2-fits-{i}.jpg").write_bytes(jpeg(1_600, 1_600, progressive=True))
    script = f"""{MEASURE}
ds = wf.image_folder(sys.argv[1]).map(T.RandomResizedCrop(32), T.ToTensor()).batch(4)
report(measure(ds.with_options(on_error="skip", num_workers=4, memory_budget={64 * MB})))
"""
    found = child(script, folder)
    bombs = [["a/0-bomb.png", "LimitExceededError"], ["a/1-bomb.jpg", "LimitExceededError"]]
    assert (found["samples"], found["errors"]) == (30, bombs)
    # Threads' stacks, the interpreter and small caches of the allocator are no part of the budget.
    assert found["grown"] <= 64 * MB * 1.1 + 24 * MB, found
    assert found["most"] <= 64 * MB * 1.1, found


def shards(path: Path, sizes: list[int]) -> Path:
    noise = np.random.default_rng(0).integers(0, 256, max(sizes), np.uint8).tobytes()
    with tarfile.open(path, "w") as tar:
        for i, size in enumerate(sizes):
            member = tarfile.TarInfo(f"{i:05}.bin")
            member.size = size
            tar.addfile(member, io.BytesIO(noise[:size]))
    return path


def test_lists_and_large_records_stay_within_the_budget(tmp_path: Path) -> None:
    # Most are small, some are not, and one is larger than the budget.
    sizes = [200_000 + 50_000 * (i % 7) + (3 * MB if i % 16 == 15 else 0) for i in range(200)]
    sizes[77] = 100 * MB
    tar = shards(tmp_path / "s.tar", sizes)
    script = f"""{MEASURE}
ds = wf.webdataset(sys.argv[1], fields=["bin"]).batch(4)
report(measure(ds.with_options(on_error="skip", num_workers=4, prefetch=16, memory_budget={64 * MB})))
"""
    found = child(script, tar)
    assert found["errors"] == [[f"{tar}/00077", "LimitExceededError"]]
    assert found["samples"] == 199
    # The batch that Python holds is the consumer's.
    held = 2 * 4 * 4 * MB
    assert found["grown"] <= 64 * MB * 1.1 + 24 * MB + held, found
    assert found["most"] <= 64 * MB * 1.1, found


def test_a_batch_of_lists_that_can_never_fit_is_an_error_of_its_own(tmp_path: Path) -> None:
    tar = shards(tmp_path / "s.tar", [2 * MB] * 64)
    script = f"""
ds = wf.webdataset(sys.argv[1], fields=["bin"]).batch(32)
try:
    next(iter(ds.numpy(memory_budget={32 * MB}, on_error="skip", num_workers=3)))
except wf.LimitExceededError as e:
    print(json.dumps({{"text": str(e)}}))
"""
    text = child(script, tar)["text"]
    assert "lists of one batch" in text
    assert "batch_size" in text


# Arrays of so many kilobytes, by what their lengths leave.
ARRAYS = """
def arrays(kilobytes):
    offsets = np.concatenate([[0], np.cumsum(np.asarray(kilobytes) * 1000)])
    return wf.from_tensor_slices((wf.Ragged(np.ones(offsets[-1], np.uint8), offsets),))
"""


@pytest.mark.parametrize("verb", ["ragged_batch", "padded_batch"])
def test_columns_that_are_put_together_stay_within_the_budget(verb: str) -> None:
    # A batch has 4 to 14 MB; without a bound 16 of them would be under way.
    script = f"""{MEASURE}{ARRAYS}
ds = arrays([100 + 700 * (i * 7 % 5) for i in range(240)]).{verb}(4)
report(measure(ds.with_options(num_workers=4, prefetch=16, memory_budget={64 * MB})))
"""
    found = child(script)
    held = 2 * 14 * MB  # by Python: the batch at hand, and the one before while it is replaced
    assert (found["samples"], found["errors"]) == (240, [])
    assert found["grown"] <= 64 * MB * 1.1 + 24 * MB + held, found
    assert found["most"] <= 64 * MB * 1.1, found


def test_a_batch_that_can_never_be_put_together_is_an_error_of_its_own() -> None:
    script = f"""{ARRAYS}
# One array of 3 MB among small ones.
loader = iter(arrays([1] * 31 + [3000] + [1] * 32).padded_batch(32).numpy(
    memory_budget={64 * MB}, on_error="skip", num_workers=3
))
texts = []
try:
    next(loader)
except wf.LimitExceededError as e:
    texts.append(str(e))
(batch,) = next(loader)
print(json.dumps({{"texts": texts, "shape": batch.shape}}))
"""
    found = child(script)
    assert found["shape"] == [32, 1000]
    assert "columns of one batch" in found["texts"][0]
    assert "batch_size" in found["texts"][0]


@pytest.mark.parametrize(("budget", "fits"), [(256 * MB, False), (448 * MB, True)])
def test_records_of_hundreds_of_megabytes_fit_or_are_errors(tmp_path: Path, budget: int, fits: bool) -> None:
    large = 200 * MB
    tar = shards(tmp_path / "s.tar", [1000, large, 1000, large, 1000])
    script = f"""{MEASURE}
ds = wf.webdataset(sys.argv[1], fields=["bin"]).batch(1)
report(measure(ds.with_options(on_error="skip", num_workers=2, memory_budget={budget})))
"""
    found = child(script, tar)
    bad = [[f"{tar}/{i:05}", "LimitExceededError"] for i in (1, 3)]
    assert (found["samples"], found["errors"]) == ((5, []) if fits else (3, bad))
    # What the consumer holds: the record, and once more while it becomes Python's.
    held = 2 * large if fits else 0
    assert found["grown"] <= budget * 1.1 + 24 * MB + held, found
    assert found["most"] <= budget * 1.1, found


def arrays_in_a_tar(path: Path, sizes: list[int]) -> Path:
    with tarfile.open(path, "w") as tar:
        for i, size in enumerate(sizes):
            file = io.BytesIO()
            np.save(file, np.full(size, i, np.uint8))
            member = tarfile.TarInfo(f"{i:05}.npy")
            member.size = file.tell()
            file.seek(0)
            tar.addfile(member, file)
    return path


# What takes much of the budget in columns of every kind, and how many batches there are. Two neighbours are large.
LARGE = """
def large(kind, path, size):
    if kind == "bytes":
        return wf.webdataset(path, fields=["bin"]).batch(1)
    if kind == "dense":
        return wf.webdataset(path, fields=["npy"]).batch(1)
    if kind == "resident":
        return wf.from_tensor_slices((np.ones((3, size), np.uint8),)).batch(1)
    offsets = np.cumsum([0, 10, size, size, 20])
    ds = wf.from_tensor_slices((wf.Ragged(np.ones(offsets[-1], np.uint8), offsets),))
    return ds.ragged_batch(1) if kind == "ragged" else ds.padded_batch(1)
"""


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("kind", ["bytes", "dense", "resident", "ragged", "padded"])
def test_a_sample_of_nearly_half_of_the_budget_is_delivered(tmp_path: Path, kind: str, workers: int) -> None:
    size = 60 * MB
    budget = 2 * size + MB
    path = tmp_path / "s.tar"
    if kind == "bytes":
        shards(path, [10, size, size, 20])
    elif kind == "dense":
        arrays_in_a_tar(path, [size] * 3)
    script = f"""{MEASURE}{LARGE}
ds = large({kind!r}, sys.argv[1], {size})
report(measure(ds.with_options(num_workers={workers}, memory_budget={budget})))
"""
    found = child(script, path)
    assert (found["samples"], found["errors"]) == (3 if kind in ("dense", "resident") else 4, [])
    # What the consumer holds: the batch, and of a list its value once more while it becomes Python's.
    held = 2 * size
    assert found["grown"] <= budget * 1.1 + 24 * MB + held, found
    assert found["most"] <= budget * 1.1, found


def test_what_never_fits_says_how_much_there_is(tmp_path: Path) -> None:
    tar = shards(tmp_path / "s.tar", [10, 60 * MB, 20])
    script = f"""
loader = wf.webdataset(sys.argv[1], fields=["bin"]).batch(1).numpy(memory_budget={100 * MB}, on_error="skip")
samples = sum(len(names) for (names,) in loader)
print(json.dumps({{"samples": samples, "text": str(loader.errors()[0].error)}}))
"""
    found = child(script, tar)
    assert found["samples"] == 2
    for part in ("at least 629", "above the 52428800 that the memory budget has for one", "memory_budget="):
        assert part in found["text"], found["text"]
