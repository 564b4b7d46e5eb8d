"""What the doctor's probe costs: the same loops with and without it, in turns (A-B-B-A), in processes of their own.

    python benches/doctor/overhead.py [--rounds 4] [--case NAME ...]

Per case, the ratio (with / without) of the loop's wall-clock time and of the CPU time of all its processes: of the
sums over all rounds, and of the best rounds, since a busy machine only ever adds. Work per step is a fixed amount, not
a fixed time, so that whatever the probe takes from the loop shows.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parents[2] / "python"
INJECT = HOME / "wellfed" / "_doctor" / "inject"

# Steps, microseconds of work a step, data, worker processes.
CASES: dict[str, tuple[int, float, str, int]] = {
    "tensors, 20 us steps": (30_000, 0, "rows", 0),
    "tensors, 1 ms steps": (3_000, 1_000, "tensors", 0),
    "tensors, 1 ms steps of Python": (3_000, -1_000, "tensors", 0),
    "2 workers, 5 ms steps": (600, 5_000, "images", 2),
    "images inline": (150, 1_000, "images", 0),
}


def make_data(kind: str, steps: int) -> tuple[Any, int | None]:
    """A data set of so many batches, and the size of a batch."""
    import torch
    from torch.utils.data import Dataset, TensorDataset

    if kind == "rows":
        return TensorDataset(torch.zeros(steps, 8)), None
    if kind == "tensors":
        return TensorDataset(torch.zeros(steps * 16, 32), torch.zeros(steps * 16)), 16

    class Images(Dataset):  # type: ignore[type-arg]
        """Photographs in memory, decoded and resized."""

        def __init__(self) -> None:
            import numpy as np
            from PIL import Image

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

            with Image.open(self.path) as image:
                pixels = np.asarray(image.convert("RGB").resize((224, 224)))
            return torch.from_numpy(pixels.copy()).permute(2, 0, 1), i

    return Images(), 4


def work(amount: int, python: bool) -> None:
    """A fixed amount of work."""
    import torch

    if python:
        total = 0
        for i in range(amount):
            total += i & 3
        return
    a = torch.ones(64, 64)
    for _ in range(amount):
        a = torch.mm(a, a).clamp_(0, 1)


def calibrate(microseconds: float) -> int:
    """How much work takes so long."""
    if microseconds == 0:
        return 0
    python = microseconds < 0
    work(100, python)
    best = 1e9
    for _ in range(20):
        begin = time.perf_counter()
        work(200, python)
        best = min(best, time.perf_counter() - begin)
    return max(1, round(200 * abs(microseconds) * 1e-6 / best))


def child(case: str, amount: int) -> None:
    """The loop."""
    import torch
    from torch.utils.data import DataLoader

    torch.set_num_threads(1)
    steps, microseconds, kind, workers = CASES[case]
    data, size = make_data(kind, steps)
    loader = DataLoader(data, batch_size=size, num_workers=workers)
    python = microseconds < 0
    batches = iter(loader)
    for _ in range(20):
        next(batches)
    begin, cpu = time.perf_counter(), time.process_time()
    for _ in batches:
        if amount:
            work(amount, python)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    del batches
    # Workers have been waited for.
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    if kind == "images":
        data.path.unlink()
    done = {"wall": wall, "cpu": cpu + used.ru_utime + used.ru_stime, "steps": steps - 20}
    print(json.dumps(done))


def once(case: str, amount: int, probe: bool) -> dict[str, float]:
    """Runs the loop in a process of its own."""
    with tempfile.TemporaryDirectory() as directory:
        env = dict(os.environ)
        env.pop("WELLFED_DOCTOR_DIR", None)
        env["PYTHONPATH"] = f"{INJECT}{os.pathsep}{HOME}" if probe else str(HOME)
        if probe:
            env["WELLFED_DOCTOR_DIR"] = directory
        command = [sys.executable, __file__, "--child", case, "--amount", str(amount)]
        out = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout
        errors = list(Path(directory).glob("*.error"))
        if errors:
            raise RuntimeError(errors[0].read_text())
        return dict(json.loads(out.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--case", nargs="*", default=list(CASES))
    parser.add_argument("--child")
    parser.add_argument("--amount", type=int, default=0)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.amount)
        return
    print(f"{'':32}{'us/step':>10}{'wall':>9}{'best':>9}{'CPU':>9}{'best':>9}")
    for case in options.case:
        amount = calibrate(CASES[case][1])
        runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
        for _ in range(options.rounds):
            for probe in (False, True, True, False):
                runs[probe].append(once(case, amount, probe))
        row = []
        for name in ("wall", "cpu"):
            plain, with_probe = ([r[name] for r in runs[probe]] for probe in (False, True))
            row += [sum(with_probe) / sum(plain), min(with_probe) / min(plain)]
        step = min(r["wall"] / r["steps"] for r in runs[False]) * 1e6
        print(f"{case:32}{step:10.1f}" + "".join(f"{100 * (r - 1):+8.2f}%" for r in row), flush=True)


if __name__ == "__main__":
    main()
