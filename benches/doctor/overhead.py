"""What the doctor costs: the same loop watched and not, in turns (A-B-B-A) within one process.

    python benches/doctor/overhead.py [--groups 8] [--case NAME ...] [--out FILE.json]

One process, since two runs of the same program differ by more than what is looked for: where its memory lies, what the
machine does meanwhile. A is the loop alone, B with the probe started and the machine watched from another process, as
`wellfed.doctor()` has it. Work per step is a fixed amount, not a fixed time, so that whatever is taken from the loop
shows; the first steps of each block, in which workers start, are not counted. A block is timed in parts, of which the
medians are compared, as a shared machine is slower now and then. Where the two blocks of A differ by more than 3 %,
the machine changed meanwhile: that group is left out, and another one is measured, up to three times as many. Told is
the median over the steady groups of B / A, of the wall-clock time of a step and of the CPU time of all processes, with
the quartiles, and how many groups were steady.
"""

from __future__ import annotations

import argparse
import functools
import io
import itertools
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wellfed._doctor._here import Diagnosis, probe

# Steps a block, microseconds of work a step, what that is, data, worker processes.
CASES: dict[str, tuple[int, float, str, str, int]] = {
    "tensors, 10 us steps": (200_000, 0, "tensors", "rows", 0),
    "tensors, 1 ms steps": (4_000, 1_000, "tensors", "tensors", 0),
    "calls in Python, 1 ms steps": (4_000, 1_000, "calls", "tensors", 0),
    "integers in Python, 1 ms steps": (4_000, 1_000, "integers", "tensors", 0),
    "2 workers, 5 ms steps": (600, 5_000, "tensors", "images", 2),
    "4 workers that keep all cores busy": (1_000, 0, "tensors", "images", 4),
    "images inline": (600, 1_000, "tensors", "images", 0),
    "a network on all cores, 20 ms steps": (300, 20_000, "network", "tensors", 0),
}
WARM = 20
PARTS = 8
STEADY = 0.03
TRIES = 3


def make_data(kind: str, steps: int) -> tuple[Any, int | None]:
    """A data set of so many batches, and the size of a batch."""
    import torch
    from torch.utils.data import Dataset, TensorDataset

    if kind == "rows":
        return TensorDataset(torch.zeros(steps, 8)), None
    if kind == "tensors":
        return TensorDataset(torch.zeros(steps * 16, 32), torch.zeros(steps * 16)), 16

    class Images(Dataset):  # type: ignore[type-arg]
        """Photographs in the page cache, decoded and resized.

        Where its buffers lie in memory decides on a tenth of what decoding the same file takes, and a few
        allocations before a block draw another lot for all of it (`layout.py`). So it is drawn for each sample, watched
        or not, by other buffers of random sizes that come and go between those of the images (as C. Curtsinger and
        E. D. Berger do, STABILIZER: Statistically Sound Performance Evaluation, ASPLOS 2013).
        """

        def __init__(self) -> None:
            import numpy as np
            from PIL import Image

            self.drawn = True
            self.between: list[Any] = []
            noise = np.random.default_rng(0).integers(0, 255, (15, 20, 3), dtype=np.uint8)
            file = io.BytesIO()
            Image.fromarray(noise).resize((320, 240)).save(file, "JPEG")
            self.path = Path(tempfile.gettempdir()) / f"overhead-{os.getpid()}.jpg"
            self.path.write_bytes(file.getvalue())

        def __len__(self) -> int:
            return steps * 4

        def __getitem__(self, i: int) -> Any:
            import numpy as np
            from PIL import Image

            for _ in range(3 if self.drawn else 0):
                self.between.append(np.empty(random.randrange(64, 100_000), np.uint8))
                if len(self.between) > 20:
                    self.between.pop(random.randrange(20))
            with Image.open(self.path) as image:
                pixels = np.asarray(image.convert("RGB").resize((224, 224)))
            return torch.from_numpy(pixels.copy()).permute(2, 0, 1), i

    return Images(), 4


def look_up(table: dict[str, int]) -> int:
    """What `calls` calls."""
    return table["key"]


def calls(amount: int) -> None:
    """Calls and look-ups in Python."""
    table = {"key": 1}
    for _ in itertools.repeat(None, amount):
        look_up(table)


def integers(amount: int) -> int:
    """Arithmetic in Python."""
    total = 0
    for i in range(amount):
        total += i * i % 7
    return total


def tensors(amount: int) -> None:
    """Small operations of torch's."""
    import torch

    a = torch.ones(64, 64)
    for _ in range(amount):
        a = torch.mm(a, a).clamp_(0, 1)


@functools.cache
def small_network() -> tuple[Any, Any]:
    """A network whose steps all cores take part in, and its input."""
    import torch
    from torch import nn

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    layers = (
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    return nn.Sequential(*layers), torch.randn(4, 3, 32, 32)


def network(amount: int) -> None:
    """Forward and backward passes."""
    model, images = small_network()
    for _ in range(amount):
        model(images).sum().backward()


WORK: dict[str, Callable[[int], Any]] = {
    "calls": calls,
    "integers": integers,
    "tensors": tensors,
    "network": network,
}


def calibrate(microseconds: float, work: Callable[[int], Any]) -> int:
    """How much work takes so long."""
    if microseconds == 0:
        return 0
    work(100)
    best = 1e9
    for _ in range(20):
        begin = time.perf_counter()
        work(200)
        best = min(best, time.perf_counter() - begin)
    return max(1, round(200 * microseconds * 1e-6 / best))


def cpu_seconds() -> float:
    """CPU time of this process and of all that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


@contextmanager
def watched() -> Iterator[None]:
    """The loop inside is under the doctor, but for its report at the end."""
    directory = tempfile.mkdtemp(prefix="overhead-")
    watcher = subprocess.Popen(
        Diagnosis._command("doctor", "attach", str(os.getpid()), os.path.join(directory, "system.json")),
        stdin=subprocess.PIPE,
    )
    time.sleep(0.7)  # It is a program that starts, which is not what is asked here.
    if not probe().start(directory):
        raise RuntimeError("this process is under a doctor already")
    try:
        yield
    finally:
        probe().stop("finished")
        watcher.communicate()
        errors = list(Path(directory).glob("*.error"))
        if errors:
            raise RuntimeError(errors[0].read_text())
        shutil.rmtree(directory)


def block(case: str, amount: int, data: Any, size: int | None) -> dict[str, Any]:
    """One epoch: seconds a step of each part, and CPU seconds a step of it all."""
    from torch.utils.data import DataLoader

    steps, _, kind_of_work, _, workers = CASES[case]
    work = WORK[kind_of_work]
    cpu = cpu_seconds()
    batches = iter(DataLoader(data, batch_size=size, num_workers=workers))
    for _ in range(WARM):
        next(batches)
    part = (steps - WARM) // PARTS
    parts, before = [], time.perf_counter()
    for n, _ in enumerate(batches, 1):
        if amount:
            work(amount)
        if n % part == 0:
            t = time.perf_counter()
            parts.append((t - before) / part)
            before = t
    del batches  # Workers are waited for.
    return {"wall": parts, "cpu": [(cpu_seconds() - cpu) / steps]}


def child(case: str, groups: int) -> None:
    """All blocks of a case; a line for each."""
    import torch

    torch.set_num_threads(1)
    steps, microseconds, kind_of_work, kind, _ = CASES[case]
    amount = calibrate(microseconds, WORK[kind_of_work])
    data, size = make_data(kind, steps)
    block(case, amount, data, size)
    steady = 0
    for group in range(TRIES * groups):
        blocks = []
        for probed in (False, True, True, False):
            if probed:
                with watched():
                    done = block(case, amount, data, size)
            else:
                time.sleep(0.7)
                done = block(case, amount, data, size)
            blocks.append({"case": case, "group": group, "watched": probed, **done})
            print(json.dumps(blocks[-1]), flush=True)
        steady += is_steady(blocks)
        if steady == groups:
            break
    if kind == "images":
        data.path.unlink()


def is_steady(blocks: list[dict[str, Any]]) -> bool:
    """Whether the blocks of a group that were not watched took equally long."""
    first, last = (statistics.median(b["wall"]) for b in blocks if not b["watched"])
    return abs(last / first - 1) <= STEADY


def ratio(blocks: list[dict[str, Any]], what: str) -> float:
    """Median with over median without, of a group."""
    watched, alone = ([t for b in blocks if b["watched"] == side for t in b[what]] for side in (True, False))
    return statistics.median(watched) / statistics.median(alone)


def tell(case: str, blocks: list[dict[str, Any]]) -> None:
    """One line."""
    groups = [list(group) for _, group in itertools.groupby(blocks, lambda b: b["group"])]
    steady = [group for group in groups if is_steady(group)]
    alone = statistics.median(t for b in blocks if not b["watched"] for t in b["wall"])
    text = f"{case:34}{alone * 1e6:10.1f}"
    if len(steady) < 2:
        print(f"{text}  {len(steady)} of {len(groups)} groups steady: nothing to tell", flush=True)
        return
    for what in ("wall", "cpu"):
        quartiles = statistics.quantiles([ratio(group, what) for group in steady], n=4)
        low, middle, high = (100 * (q - 1) for q in quartiles)
        text += f"  {middle:+6.2f} % ({low:+6.2f} to {high:+6.2f})"
    print(f"{text}  {len(steady)} of {len(groups)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--case", nargs="*", choices=list(CASES), default=list(CASES), metavar="NAME")
    parser.add_argument("--out", type=Path, help="file for what each block took")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.groups < 2:
        parser.error("--groups: quartiles need 2 at least")
    if options.child:
        child(options.child, options.groups)
        return
    print(f"{'':34}{'us/step':>10}  {'wall':27}  {'CPU of all processes':27}  steady groups")
    kept: list[dict[str, Any]] = []
    for case in options.case:
        command = [sys.executable, __file__, "--child", case, "--groups", str(options.groups)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        blocks = [json.loads(line) for line in done.splitlines()]
        tell(case, blocks)
        kept += blocks
    if options.out:
        options.out.write_text("".join(json.dumps(b) + "\n" for b in kept))


if __name__ == "__main__":
    main()
