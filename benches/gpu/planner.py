"""Whether `on_device="auto"` comes within 5 % of the best share of images that the device decodes, and how soon.

    python benches/gpu/planner.py --out OUT --photos FOLDER

For each setting one loader, whose share is held fast for the grid: 0, 1/4, 1/2, 3/4 and 1 (which is "decode"),
forwards and backwards, then the eighths beside the best; loaders of "copy" and "resize" are part of the grid. Before,
between and after that the same loader chooses by itself: first until its choice has stayed the same for some windows
("settled after", and the rate until then), then it is measured. "choice" is the grid's rate at the share that was kept
when it was last measured, "auto" what came out, which has what is tried now and then in it. Row indexes and packed
coefficients are there before anything is measured. A step of 60 % keeps the device for so much of the time that a batch
takes at the best rate without a step.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from common import (
    BUDGET,
    ENDLESS,
    MEAN,
    ONLY,
    SIZE,
    STD,
    Results,
    arguments,
    chosen,
    close,
    cores,
    images_of,
    left_loader,
    photographs,
    synchronize,
)
from machine import device_seconds
from rivals import waited

import wellfed as wf
from wellfed import transforms as T

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
SAME = 3
"""Windows after which a share that was kept is what it settled on."""
BAR = 0.95


class Setting(NamedTuple):
    """What is known of the photographs ("plain", "indexed", "packed"), threads, and the part of the time of a step."""

    source: str
    threads: int
    busy: float = 0.0

    @property
    def name(self) -> str:
        step = f", step {100 * self.busy:.0f} %" if self.busy else ""
        return f"{self.threads} threads, {self.source}{step}"


def settings(all_: int) -> list[Setting]:
    """The most important ones first: time may be over before the last."""
    few = min(2, all_)
    made = [
        Setting("indexed", few),
        Setting("packed", few),
        Setting("indexed", all_),
        Setting("indexed", few, 0.6),
        Setting("indexed", all_, 1.5),
        Setting("plain", few),
        Setting("packed", all_),
    ]
    return list(dict.fromkeys(made))


class Sources:
    """The photographs in each of the forms, made ready once."""

    def __init__(self, root: Path, folder: str, args: Any) -> None:
        self._files, self._folder, self._args = wf.image_folder(str(root)), folder, args
        self._ready: set[str] = set()
        self._size = 64 if args.small else SIZE

    def loader(self, source: str, on_device: str, threads: int) -> Any:
        """Endless batches. What earlier loaders noted of the photographs is there."""
        made = self._files.cache(max_bytes=BUDGET) if source == "packed" else self._files
        made = made.shuffle(seed=0).repeat(1 + ENDLESS // self._args.images)
        steps = [T.RandomResizedCrop(self._size), T.RandomHorizontalFlip()]
        steps += [T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD)]
        return left_loader(
            made.map(*steps).batch(self._args.batch, drop_last=True),
            self._args.device,
            on_device,
            num_workers=threads,
            memory_budget=BUDGET * (2 if source == "packed" else 1),
            row_index=self._folder if source == "indexed" else "off",
        )

    def prepare(self, source: str) -> None:
        """Passes with all threads, in which row indexes are found, or coefficients packed.

        A crop shows only the rows down to its end, so that one pass leaves indexes of which a part is missing.
        """
        if source == "plain" or source in self._ready:
            return
        loader = self.loader(source, "copy", cores())
        for _ in itertools.islice(loader, 1 + 3 * self._args.images // self._args.batch):
            pass
        close(loader)
        self._ready.add(source)


class Burn:
    """A step: matrices that are multiplied for so many seconds on the device."""

    def __init__(self, device: str, small: bool) -> None:
        self._side = 256 if small else 4096
        self._matrix = torch.zeros(self._side, self._side, device=device, dtype=torch.bfloat16)
        self._cuda = device.startswith("cuda")
        self._each = self._measured()

    def _measured(self) -> float:
        def work() -> None:
            for _ in range(20):
                torch.mm(self._matrix, self._matrix)

        if self._cuda:
            return device_seconds(work, 5) / 20
        work()
        begin = time.perf_counter()
        work()
        return (time.perf_counter() - begin) / 20

    def step(self, seconds: float) -> Callable[[], None]:
        count = round(seconds / self._each)

        def run() -> None:
            for _ in range(count):
                torch.mm(self._matrix, self._matrix)

        return run


class Loop:
    """A training loop over one loader, at most two steps ahead of the device."""

    def __init__(self, loader: Any, device: str, step: Callable[[], None]) -> None:
        self.loader, self._device, self._step = loader, device, step
        self._batches: Iterator[Any] = iter(())

    def begin(self) -> None:
        """A pass begins."""
        self._batches = self._stepped()

    def _stepped(self) -> Iterator[Any]:
        def stepped() -> Iterator[Any]:
            for batch in self.loader:
                self._step()
                yield batch

        # Waited for after the step: its event lies behind it.
        return waited(stepped(), self._device)

    def rate(self, seconds: float, warm: float) -> float:
        """Images a second, after those that lay ready and `warm` seconds."""
        ahead, begin = self.loader.stats()["prefetch"] + 2, time.perf_counter()
        while ahead > 0 or time.perf_counter() - begin < warm:
            next(self._batches)
            ahead -= 1
        images, begin = 0, time.perf_counter()
        while (took := time.perf_counter() - begin) < seconds:
            images += images_of(next(self._batches))
        return images / took

    def settle(self, share: Any, most: float) -> dict[str, Any]:
        """Runs until `share`, which chooses, keeps what it has, at most for so many seconds."""
        images, begin = 0, time.perf_counter()
        seen, last = newest(share), kept(share)
        since, same = 0.0, 0
        while same < SAME and (took := time.perf_counter() - begin) < most:
            images += images_of(next(self._batches))
            if newest(share) is seen:
                continue
            seen, now = newest(share), kept(share)
            if now == last:
                same += 1
            else:
                last, since, same = now, took, 0
        return {
            "settled": same >= SAME,
            "after_s": since,
            "looked_s": took,
            "images/s": images / took,
            "share": last,
            "windows": [[round(number, 4) for number in one] for one in share._windows],
        }


def newest(share: Any) -> Any:
    """The last window. How many there are says nothing: old ones are forgotten."""
    return share._windows[-1] if share._windows else None


def kept(share: Any) -> float:
    """The share that is in force, or to which it would go back from the one that is tried."""
    return float(share.share if share._before is None else share._before[0])


def measured(
    setting: Setting, sources: Sources, results: Results, args: Any, step: Callable[[], None]
) -> dict[str, Any]:
    """The grid and what "auto" makes of it."""
    device, seconds, warm = args.device, args.seconds, args.seconds / 4
    sources.prepare(setting.source)
    grid: dict[str, list[float]] = {}

    def enough(work: float) -> bool:
        return results.left() > work

    def fixed(kind: str) -> None:
        loader = sources.loader(setting.source, kind, setting.threads)
        try:
            loop = Loop(loader, device, step)
            loop.begin()
            grid.setdefault(kind, []).append(loop.rate(seconds, warm))
        finally:
            synchronize(device)
            close(loader)

    fixed("copy")
    loader = sources.loader(setting.source, "auto", setting.threads)
    share = loader._share
    loop = Loop(loader, device, step)
    auto: list[float] = []
    choices: list[float] = []

    def held(at: float) -> None:
        # The engine's share, set in place of what chooses it.
        loader._native.set_device_share(at)
        grid.setdefault(f"{at:g}", []).append(loop.rate(seconds, warm))

    def chooses() -> None:
        loader._share = share
        # What is in flight was made with a share of the grid.
        share._set(share.share)
        loop.begin()
        auto.append(loop.rate(2 * seconds, warm))
        choices.append(kept(share))
        loader._share = None
        loop.begin()

    try:
        loop.begin()
        settled = loop.settle(share, 12 * seconds)
        auto.append(loop.rate(2 * seconds, 0))
        choices.append(kept(share))
        loader._share = None
        loop.begin()
        for at in GRID:
            held(at)
        if enough(12 * seconds):
            chooses()
            for at in reversed(GRID):
                held(at)
        best = max((at for at in GRID), key=lambda at: statistics.median(grid[f"{at:g}"]))
        for at in (best - 0.125, best + 0.125):
            if 0 < at < 1 and enough(4 * seconds):
                held(at)
        # Last, as shares may be fine while what it chose is looked for in the grid.
        if enough(4 * seconds):
            chooses()
        windows = [[round(number, 4) for number in one] for one in share._windows]
    finally:
        synchronize(device)
        close(loader)
    fixed("resize")
    rates = {name: statistics.median(all_) for name, all_ in grid.items()}
    name, most = max(rates.items(), key=lambda item: item[1])
    choice = rates[f"{choices[-1]:g}"]
    return {
        "grid": [[one, rates[one], grid[one]] for one in sorted(rates)],
        "best": most,
        "best_is": name,
        "auto": statistics.median(auto),
        "choice": choice,
        "choice_is": choices[-1],
        "auto/best": statistics.median(auto) / most,
        "choice/best": choice / most,
        "choice_within_bar": choice >= BAR * most,
        "auto_within_bar": statistics.median(auto) >= BAR * most,
        "settled_after_s": settled["after_s"] if settled["settled"] else None,
        "settling_images/s": settled["images/s"],
        "autos": auto,
        "choices": choices,
        "settling": [settled],
        "windows": windows,
    }


COLUMNS = ("copy", "resize", *(f"{at:g}" for at in GRID))


def heading() -> None:
    """That of the lines of `told`."""
    print(f"{'images/s':32}" + "".join(f"{one:>8}" for one in COLUMNS) + "    best    auto  choice  settled")


def told(name: str, one: dict[str, Any]) -> None:
    """A setting on one line."""
    rates = {kind: rate for kind, rate, _ in one["grid"]}
    cells = "".join(f"{rates[kind]:8,.0f}" if kind in rates else f"{'':8}" for kind in COLUMNS)
    after = one["settled_after_s"]
    settled = "no" if after is None else f"{after:.1f} s"
    print(
        f"{name:32}{cells} {one['best_is']:>7} {100 * one['auto/best']:5.1f} % {100 * one['choice/best']:5.1f} %"
        f" {settled:>8}",
        flush=True,
    )


def main() -> None:
    warnings.filterwarnings("ignore", "a pipeline whose source was opened again")
    args = arguments(__doc__, seconds=1.0, limit=165, images=2_000, batch=64, only=ONLY)
    if args.small:
        args.images, args.batch = 256, 8
    with Results("planner", args) as results, tempfile.TemporaryDirectory() as folder:
        root = photographs(args)
        sources = Sources(root, folder, args)
        burn = Burn(args.device, args.small)
        results.put("batch", args.batch)
        found: dict[str, dict[str, Any]] = {}

        def one(setting: Setting) -> dict[str, Any]:
            step: Callable[[], None] = lambda: None  # noqa: E731
            if setting.busy:
                idle = found.get(setting._replace(busy=0.0).name)
                if idle is None:
                    raise RuntimeError(
                        "how long its step is depends on the setting without one, which was not measured"
                    )
                step = burn.step(setting.busy * args.batch / idle["best"])
            return measured(setting, sources, results, args, step)

        heading()
        cases = {setting.name: lambda s=setting: one(s) for setting in settings(cores())}
        for name, work in chosen(cases, args.only).items():
            # One takes some 30 measurements of time; half of a grid says nothing.
            if results.left() < 22 * args.seconds:
                results.put(name, {"left_out": "there was no time left for a grid"})
                print(f"{name:44} left out: no time", flush=True)
                continue
            figure = results.attempt(name, work, quiet=True)
            if figure is not None:
                found[name] = figure
                told(name, figure)
        within = {
            what: {name: one[f"{what}_within_bar"] for name, one in found.items()}
            for what in ("choice", "auto")
        }
        results.put("within the bar", within)


if __name__ == "__main__":
    main()
