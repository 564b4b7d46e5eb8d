"""Two builds of wellfed, side by side: ``python benches/builds.py OLD NEW``, each a folder with the package `wellfed`.

Says whether a change of the engine kept its speed. Rounds go over the builds in turn, each round beginning with the
other one; a measurement is a process of its own. Besides images a second there is CPU time a sample, which a busy
machine disturbs less. Figures are medians over rounds, ratios medians of the ratios within each round.
Needs torch and torchvision in the interpreter that runs it. The result goes to `benches/runs/`.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
MARK = "BUILD "

Epoch = Callable[[], Iterable[Any]]


def photos_native(root: Path) -> Epoch:
    """Photographs through a pipeline of wellfed's verbs."""
    import wellfed as wf
    from wellfed import transforms as T

    ds = wf.image_folder(str(root)).shuffle(seed=0)
    ds = ds.map(T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True))
    ds = ds.map(T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD)).batch(64)
    loader = ds.torch(num_workers=2)
    return lambda: loader


def small_native(root: Path) -> Epoch:
    """32x32 images in memory."""
    import numpy as np

    import wellfed as wf
    from wellfed import transforms as T

    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (200_000, 32, 32, 3), np.uint8)
    ds = wf.from_tensor_slices((images, np.arange(len(images)))).shuffle(seed=0)
    ds = ds.map(T.RandomCrop(32, padding=4), T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True))
    ds = ds.map(T.Normalize((0.5,) * 3, (0.25,) * 3)).batch(256)
    loader = ds.torch(num_workers=2)
    return lambda: loader


def numbers_native(root: Path) -> Epoch:
    """Rows of 16 floats in memory: what remains is the work around the pixels."""
    import numpy as np

    import wellfed as wf

    rows = np.random.default_rng(0).random((1_000_000, 16), np.float32)
    ds = wf.from_tensor_slices((rows, np.arange(len(rows)))).shuffle(seed=0).batch(256)
    loader = ds.torch(num_workers=1)
    return lambda: loader


def feed(dataset: Any, batch_size: int) -> Epoch:
    """`wellfed.feed` of torch's loader over a data set."""
    from torch.utils.data import DataLoader

    import wellfed as wf

    loader = wf.feed(DataLoader(dataset, batch_size=batch_size, shuffle=True, num_workers=2))
    return lambda: loader


def photos_feed(root: Path) -> Epoch:
    """torchvision's `ImageFolder` through `feed`."""
    from torchvision import datasets
    from torchvision import transforms as T

    steps = [
        T.RandomResizedCrop(224),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize((0.5,) * 3, (0.25,) * 3),
    ]
    return feed(datasets.ImageFolder(str(root), T.Compose(steps)), 64)


def cifar_feed(root: Path) -> Epoch:
    """torchvision's `CIFAR10` through `feed`, with random pixels."""
    sys.path.append(str(HERE / "torch_loader"))
    from cases import cifar

    arguments = cifar(root)
    return feed(arguments["dataset"], arguments["batch_size"])


CASES: dict[str, Callable[[Path], Epoch]] = {
    "photographs": photos_native,
    "32x32": small_native,
    "rows of 16 floats": numbers_native,
    "feed(ImageFolder)": photos_feed,
    "feed(CIFAR10)": cifar_feed,
}


def size(batch: Any) -> int:
    """Samples of a batch."""
    first = batch[0] if isinstance(batch, list | tuple) else batch
    return len(first)


def cpu() -> float:
    """CPU seconds of this process and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def measure(case: str, root: Path, seconds: float) -> dict[str, float]:
    """Whole epochs after the first one, until `seconds` are over."""
    epoch = CASES[case](root)
    sum(size(batch) for batch in epoch())
    samples, began, used = 0, time.perf_counter(), cpu()
    while time.perf_counter() - began < seconds:
        samples += sum(size(batch) for batch in epoch())
    elapsed = time.perf_counter() - began
    return {"rate": samples / elapsed, "cpu_us": 1e6 * (cpu() - used) / samples}


def one(package: Path, case: str, root: Path, seconds: float) -> dict[str, float]:
    """A measurement in a process of its own."""
    command = [sys.executable, __file__, "--measure", case, "--photos", str(root), "--seconds", str(seconds)]
    env = {**os.environ, "PYTHONPATH": str(package)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd="/")
    for line in done.stdout.splitlines():
        if line.startswith(MARK):
            found: dict[str, float] = json.loads(line.removeprefix(MARK))
            return found
    raise SystemExit(f"{case} with {package} failed:\n{done.stderr}")


def main() -> None:
    """Measures, prints a table, and keeps raw numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("builds", nargs="*", type=Path, metavar="OLD NEW")
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, help="folder for raw numbers and summary")
    parser.add_argument("--photos", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--measure", choices=list(CASES), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measure:
        print(MARK + json.dumps(measure(args.measure, args.photos, args.seconds)), flush=True)
        return
    if len(args.builds) != 2:
        parser.error(f"needs two folders that hold the package wellfed, and got {len(args.builds)}")
    sys.path.insert(0, str(HERE))
    import photos

    root, images, described = photos.prepare(ROOT / ".bench", args.images, Path(sys.executable))
    photos.warm(root)
    builds = [path.resolve() for path in args.builds]
    raw: list[dict[str, Any]] = []
    for number in range(args.rounds):
        for case in args.case or CASES:
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                found = one(builds[which], case, root, args.seconds)
                raw.append({"round": number, "case": case, "build": ("old", "new")[which], **found})
                print(f"{number} {case} {raw[-1]['build']}: {found['rate']:.0f}/s", file=sys.stderr)
    lines = [
        "| case | old, /s | new, /s | new / old | CPU us a sample, old | new | new / old |",
        "|---|---|---|---|---|---|---|",
    ]
    for case in args.case or CASES:
        pairs = [
            [
                next(r for r in raw if (r["round"], r["case"], r["build"]) == (k, case, b))
                for b in ("old", "new")
            ]
            for k in range(args.rounds)
        ]
        cells = []
        for key, form in (("rate", ",.0f"), ("cpu_us", ".2f")):
            cells += [format(statistics.median(p[i][key] for p in pairs), form) for i in (0, 1)]
            cells.append(f"{statistics.median(p[1][key] / p[0][key] for p in pairs):.3f}")
        lines.append(f"| {case} | {' | '.join(cells)} |")
    text = "\n".join(lines)
    print(text)
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        (args.out / "raw.json").write_text(json.dumps(raw, indent=1) + "\n")
        title = f"# Two builds side by side, {datetime.date.today()}"
        what = f"{described}, {images} images; {args.rounds} rounds of {args.seconds:g} s"
        machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
        (args.out / "summary.md").write_text(f"{title}\n\n{what}; {machine}.\n\n{text}\n")


if __name__ == "__main__":
    main()
