"""What loaders leave behind when they are gone, and whether processes end that have some.

    python benches/gpu/lifecycle.py --out OUT --photos FOLDER

"loaders": so many are made, iterated for a batch or two, and dropped in one of the ways of `Makers`; then device
memory (by torch and by the driver), pinned and resident memory, threads and open files are what they were after the
first ones. "ends": processes that train are ended in each of the ways of `ENDS`, some at once: seconds until each is
gone, its status, and what it wrote that was not to be expected. One that is there after 20 s is a hang: it is told to
write where its threads are, and killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import random
import re
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from common import ONLY, Results, arguments, cores, jpegs, left_loader, synchronize

import wellfed as wf
from wellfed import transforms as T
from wellfed.torch import Augment

SIDE = 96
BATCH = 8
FIRST = 50
"""Loaders after which all that is made once is there: streams, kernels, the allocators' memory."""
KINDS = ("decode", "auto", "copy")
ALONE = "torch alone"
"""The kind of a process without a loader: what it does at its end is torch's or the interpreter's doing."""
HANG = 20.0
READY = "== ready"


def dataset(root: str, dtype: str = "float32") -> Any:
    """Endless photographs, small ones."""
    made = wf.image_folder(root).shuffle(seed=0).repeat(100_000)
    return made.map(T.RandomResizedCrop(SIDE), T.ToDtype(dtype, scale=dtype != "uint8")).batch(BATCH)


# Loaders.


class Planned(Exception):
    """What a consumer raises."""


class Makers:
    """Loaders of one opened source, as a script makes them that makes one for each epoch."""

    def __init__(self, root: str, device: str) -> None:
        self._device, self._made = device, {dtype: dataset(root, dtype) for dtype in ("float32", "uint8")}
        self._short = wf.image_folder(root).map(T.RandomResizedCrop(SIDE)).batch(BATCH)
        self._augment = Augment([T.RandomHorizontalFlip(), T.ToDtype("float32", scale=True)], seed=0)
        self.alive: list[weakref.ref[Any]] = []
        self.page_locked: Any = None

    def loader(self, kind: str, dtype: str = "float32") -> Any:
        made = left_loader(self._made[dtype], self._device, kind, num_workers=2)
        self.alive.append(weakref.ref(made))
        return made

    def dropped(self, kind: str) -> None:
        batches = iter(self.loader(kind))
        float(next(batches)[0].sum())

    def closed(self) -> None:
        loader = self.loader("decode")
        for (images, _), _ in zip(loader, range(2)):
            float(images.sum())
        self.page_locked = loader.stats()["page_locked"]
        loader.close()

    def raised(self) -> None:
        with contextlib.suppress(Planned):
            for images, _ in self.loader("decode"):
                images.mul_(2)
                raise Planned

    def augmented(self) -> None:
        for (images, _), _ in zip(self.loader("copy", "uint8"), range(2)):
            self._augment(images)

    def whole(self) -> None:
        loader = left_loader(self._short, self._device, "decode", num_workers=2)
        self.alive.append(weakref.ref(loader))
        for images, _ in loader:
            images.sum()

    def outlived(self) -> None:
        loader = self.loader("resize")
        kept = [images for (images, _), _ in zip(loader, range(2))]
        del loader
        float(kept[-1].sum())

    def twice(self) -> None:
        loader = self.loader("decode")
        first = iter(loader)
        next(first)
        second = iter(loader)
        next(second)

    def in_thread(self) -> None:
        thread = threading.Thread(target=self.dropped, args=("decode",))
        thread.start()
        thread.join()

    def unasked(self) -> None:
        iter(self.loader("decode"))

    def unused(self) -> None:
        self.loader("decode")

    def ways(self) -> dict[str, Callable[[], None]]:
        return {
            "decode, dropped in mid-epoch": lambda: self.dropped("decode"),
            "decode, closed in mid-epoch": self.closed,
            "copy, dropped in mid-epoch": lambda: self.dropped("copy"),
            "decode, the consumer raised": self.raised,
            "auto, dropped in mid-epoch": lambda: self.dropped("auto"),
            "copy and Augment": self.augmented,
            "decode, a whole epoch": self.whole,
            "resize, batches outlive it": self.outlived,
            "decode, a pass in a pass": self.twice,
            "decode, in another thread": self.in_thread,
            "decode, no batch was taken": self.unasked,
            "decode, never iterated": self.unused,
        }


def status() -> dict[str, float]:
    """Megabytes that the system counts."""
    found = re.findall(r"^(Vm\w+|Rss\w+):\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    wanted = ("VmRSS", "RssAnon", "RssShmem", "VmLck", "VmPin", "VmSize")
    return {name: int(kb) / 1e3 for name, kb in found if name in wanted}


def threads() -> Counter[str]:
    """Names of the process's threads."""
    names: Counter[str] = Counter()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            names[(task / "comm").read_text().strip()] += 1
    return names


def files() -> Counter[str]:
    """What the process has open, sockets and pipes without their numbers."""
    found: Counter[str] = Counter()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found[re.sub(r"\d{3,}", "N", str(one.readlink()))] += 1
    return found


def at_rest(most: float = 5.0) -> float:
    """Waits until there are no more threads to end: seconds."""
    begin = last = time.monotonic()
    count = sum(threads().values())
    while time.monotonic() - last < 0.3 and time.monotonic() - begin < most:
        time.sleep(0.02)
        now = sum(threads().values())
        if now < count:
            last = time.monotonic()
        count = now
    return last - begin


def device_used() -> float:
    """Megabytes of the device that are in use, by whichever process."""
    free, total = torch.cuda.mem_get_info()
    return (total - free) / 1e6


def measured(device: str) -> dict[str, Any]:
    """All that could be left behind, in megabytes or numbers."""
    gc.collect()
    synchronize(device)
    found: dict[str, Any] = {"threads end after_s": at_rest()}
    with contextlib.suppress(OSError, AttributeError):
        # What is free in the C library's memory is nobody's.
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    if device.startswith("cuda"):
        # What torch keeps for the next ones: of each of its 32 streams its own.
        found["torch cached"] = torch.cuda.memory_reserved() / 1e6
        found["torch pinned and cached"] = pinned().get("allocated_bytes.current", 0) / 1e6
        torch.cuda.empty_cache()
        with contextlib.suppress(AttributeError):
            torch.accelerator.empty_host_cache()
        found["torch allocated"] = torch.cuda.memory_allocated() / 1e6
        found["torch reserved"] = torch.cuda.memory_reserved() / 1e6
        found["torch pinned"] = pinned().get("allocated_bytes.current", 0) / 1e6
        found["torch pinned in use"] = pinned().get("active_bytes.current", 0) / 1e6
        found["device"] = device_used()
    found |= status()
    found["threads"], found["files"] = sum(threads().values()), sum(files().values())
    return found


def pinned() -> dict[str, Any]:
    """Statistics of torch's pinned memory, of those versions that have some."""
    told = getattr(torch.cuda, "host_memory_stats", dict)
    return dict(told())


RESIDENT = "VmRSS"
"""It grows until each of the C library's arenas was used: only the second half counts."""
MAY_GROW = {
    "torch allocated": 0.01,
    "torch reserved": 0.01,
    "torch pinned": 0.01,
    "torch pinned in use": 0.01,
    "device": 8.0,
    RESIDENT: 24.0,
    "VmLck": 0.01,
    "VmPin": 0.01,
    "threads": 0,
    "files": 0,
}
"""By how much each may have grown: the system's allocator, and the driver, take memory in larger pieces."""


def loaders(root: str, args: Any) -> dict[str, Any]:
    """Makes and drops them."""
    makers = Makers(root, args.device)
    ways = list(makers.ways().items())
    count, first = (60, 24) if args.small else (args.loaders, FIRST)
    took: dict[str, list[float]] = {name: [] for name, _ in ways}
    points: list[tuple[int, dict[str, Any]]] = []
    in_cycles, begin, half = 0, time.monotonic(), 0.0
    before: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for number in range(count):
        if number == first:
            points.append((number, measured(args.device)))
            before = threads(), files()
            half = (time.monotonic() + begin + args.seconds) / 2
            makers.alive.clear()
            # What is in cycles is counted.
            gc.disable()
        elif len(points) == 1 and (number == (first + count) // 2 or time.monotonic() > half):
            gc.enable()
            in_cycles += alive(makers)
            points.append((number, measured(args.device)))
            makers.alive.clear()
            gc.disable()
        # The part's other half needs its time as well.
        if number > first and time.monotonic() - begin > args.seconds:
            count = number
            break
        name, work = ways[number % len(ways)]
        start = time.perf_counter()
        work()
        took[name].append(1e3 * (time.perf_counter() - start))
    seconds = time.monotonic() - begin
    gc.enable()
    in_cycles += alive(makers)
    points.append((count, measured(args.device)))
    left = alive(makers)
    then, now = points[0][1], points[-1][1]
    grown = {
        name: now[name] - points[1 if name == RESIDENT else 0][1][name]
        for name in then
        if not name.endswith("_s")
    }
    fine = {name: grown[name] <= most for name, most in MAY_GROW.items() if name in grown}
    table("after loaders", points, grown, fine)
    for name, all_ in took.items():
        if all_:
            print(f"  {name:32} {statistics.median(all_):8.1f} ms (longest {max(all_):.1f})", flush=True)
    return {
        "loaders": count,
        "of": args.loaders,
        "seconds": seconds,
        "all fine": all(fine.values()) and left == 0,
        "not fine": [name for name, one in fine.items() if not one],
        "loaders alive": left,
        "page-locked by one": [makers.page_locked],
        "loaders in cycles": in_cycles,
        "fine": [fine],
        "points": [[number, point] for number, point in points],
        "grown": [grown],
        "new threads": sorted((threads() - before[0]).elements()),
        "new files": sorted((files() - before[1]).elements()),
        "ms": [{name: [statistics.median(all_), max(all_)] for name, all_ in took.items() if all_}],
    }


def alive(makers: Makers) -> int:
    """Loaders to which something still refers."""
    return sum(one() is not None for one in makers.alive)


def table(title: str, points: list[tuple[int, dict[str, Any]]], grown: Any, fine: Any) -> None:
    """Figures by number of loaders."""
    print(f"  {title:26}" + "".join(f"{number:>12}" for number, _ in points) + f"{'grown':>12}")
    for name in points[0][1]:
        cells = "".join(f"{point[name]:12,.2f}" for _, point in points)
        last = f"{grown[name]:12,.2f}" if name in grown else ""
        print(f"  {name:26}{cells}{last}  {'' if fine.get(name, True) else 'NOT FINE'}", flush=True)


# Ends of processes.


def steps(device: str, root: str, kind: str) -> Iterator[int]:
    """A small training that does not end."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    model.to(device)
    optimizer: Any = None
    for number, (images, labels) in enumerate(endless(device, root, kind)):
        loss = torch.nn.functional.cross_entropy(model(images), labels % 10)
        if optimizer is None:
            optimizer = torch.optim.SGD(model.parameters(), 0.01)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if number % 8 == 7:
            float(loss.detach())
        yield number


def endless(device: str, root: str, kind: str) -> Any:
    """Batches of a loader, or by torch alone."""
    if kind == ALONE:
        return torch_alone(device)
    return left_loader(dataset(root), device, kind, num_workers=2)


def torch_alone(device: str) -> Iterator[Any]:
    """The same batches again and again, copied as a loader copies them."""
    while True:
        images = torch.zeros(BATCH, 3, SIDE, SIDE, pin_memory=device.startswith("cuda"))
        labels = torch.zeros(BATCH, dtype=torch.int64)
        yield images.to(device, non_blocking=True).mul(2), labels.to(device)


def child(how: str, device: str, root: str, kind: str) -> None:
    """Trains until it ends as `how` says. Runs in a process of its own."""
    # A shell's background jobs begin with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1)
    warnings.filterwarnings("ignore", "a pipeline whose source was opened again")
    torch.set_num_threads(1)

    def say() -> None:
        print(READY, file=sys.stderr, flush=True)
        print(READY, flush=True)

    if how == DAEMON:
        begun = threading.Event()

        def take() -> None:
            for number, _ in enumerate(endless(device, root, kind)):
                if number == 4:
                    begun.set()

        threading.Thread(target=take, daemon=True).start()
        begun.wait()
        say()
        sys.stdin.readline()
        return

    def train() -> None:
        training = steps(device, root, kind)
        # It is gone last, when modules are cleared already.
        sys.kept_until_the_end = training  # type: ignore[attr-defined]
        for number in training:
            if number == 4:
                say()
            # Also where the parent is gone, whatever it was to send.
            if number >= 4 and select.select([0], [], [], 0)[0]:
                break
        if "exception" in how:
            raise RuntimeError("planned")
        if how.startswith("sys.exit"):
            sys.exit(3)

    if how == "SIGTERM, handled":
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    if how == "an exception in a thread":
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
    else:
        train()


DAEMON = "a daemon thread in mid-batch"
ENDS: dict[str, tuple[int, str]] = {
    "SIGINT": (-signal.SIGINT, "KeyboardInterrupt"),
    "SIGTERM": (-signal.SIGTERM, ""),
    "SIGTERM, handled": (7, ""),
    "SIGKILL": (-signal.SIGKILL, ""),
    "an exception in mid-batch": (1, "RuntimeError: planned"),
    "sys.exit in mid-epoch": (3, ""),
    "a loader alive at the end": (0, ""),
    "an exception in a thread": (0, "RuntimeError: planned"),
    DAEMON: (0, ""),
}
"""Ways, the status that is right, and the exception that is to be written."""


def unexpected(text: str, exception: str) -> list[str]:
    """Lines of stderr that are no part of the traceback that is to be there."""
    lines = text.partition(READY + "\n")[2].splitlines()
    rest = []
    for line in lines:
        expected = line.startswith((" ", "Traceback (most recent call last)", "Exception in thread"))
        if line.strip() and not (exception and (expected or line.strip() == exception)):
            rest.append(line[:200])
    return rest


def where(process: subprocess.Popen[str], log: Path) -> dict[str, Any]:
    """What a process is at that does not end: its threads, and the lines that they are in."""
    tasks = []
    for task in sorted(Path(f"/proc/{process.pid}/task").glob("*")):
        with contextlib.suppress(OSError):
            state = re.search(r"State:\s+(.*)", (task / "status").read_text())
            wait = (task / "wchan").read_text()
            tasks.append(f"{(task / 'comm').read_text().strip()}: {state and state[1]}, {wait}")
    size = log.stat().st_size
    process.send_signal(signal.SIGUSR1)
    time.sleep(1.0)
    return {"tasks": tasks[:60], "stacks": log.read_text(errors="replace")[size:][-4000:]}


def end(how: str, kind: str, device: str, root: str, folder: Path, seed: int) -> dict[str, Any]:
    """Starts a process, and ends it once it trains."""
    log = folder / f"{seed}.txt"
    words = [sys.executable, str(Path(__file__).resolve()), "child", how, device, root, kind]
    code, exception = ENDS[how]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, text=True
        )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        begin = time.monotonic()
        ready = select.select([process.stdout], [], [], 40)[0] and process.stdout.readline()
        started = time.monotonic() - begin
        if not ready:
            return {
                "how": how,
                "kind": kind,
                "failed": f"not ready: {process.poll()}; {log.read_text(errors='replace')[-600:]}",
            }
        # At whatever place of a step.
        time.sleep(random.Random(seed).uniform(0.05, 0.4))
        begin = time.monotonic()
        if how.startswith("SIG"):
            process.send_signal(getattr(signal, how.partition(",")[0]))
        else:
            process.stdin.write("go\n")
            process.stdin.flush()
        hang: dict[str, Any] = {}
        try:
            process.wait(HANG)
        except subprocess.TimeoutExpired:
            hang = {"hang": where(process, log)}
        seconds = time.monotonic() - begin
        text = "" if hang else log.read_text(errors="replace")
        wrote = unexpected(text, exception)
        if exception and not hang and exception not in text:
            wrote.append(f"(there is no {exception!r})")
        return {
            "how": how,
            "kind": kind,
            "ready_s": started,
            "seconds": seconds,
            "status": process.poll(),
            "right": not hang and process.poll() == code and not wrote,
            "unexpected": wrote[:12],
            **hang,
        }
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def ends(root: str, args: Any, results: Results, told_: list[dict[str, Any]]) -> dict[str, Any]:
    """All ways of all kinds, some at once."""
    cuda = args.device.startswith("cuda")
    synchronize(args.device)
    before = device_used() if cuda else 0.0
    wanted = [how for how in ENDS if any(text in how for text in args.only.split(","))]
    times = 1 if args.small else args.times
    cases = [(how, KINDS[number % len(KINDS)]) for number in range(times) for how in wanted]
    cases += [(how, ALONE) for how in (DAEMON, "SIGINT", "sys.exit in mid-epoch") if how in wanted]
    beside = max(2, min(12, 3 * cores() // 4))
    skipped = 0
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(beside) as pool:

        def one(case: tuple[int, tuple[str, str]]) -> dict[str, Any] | None:
            number, (how, kind) = case
            if results.left() <= 0:
                return None
            return end(how, kind, args.device, root, Path(folder), number)

        for found in pool.map(one, enumerate(cases)):
            skipped += found is None
            if found is not None:
                told_.append(found)
    back, begin = 0.0, time.monotonic()
    after = device_used() if cuda else 0.0
    while cuda and after > before + MAY_GROW["device"] and back < 5:
        time.sleep(0.1)
        after, back = device_used(), time.monotonic() - begin
    for how, alone in [(how, False) for how in wanted] + [(how, True) for how in wanted]:
        these = [one for one in told_ if one["how"] == how and (one["kind"] == ALONE) == alone]
        took = [one["seconds"] for one in these if "seconds" in one]
        if not took:
            continue
        right = sum(bool(one.get("right")) for one in these)
        codes = ", ".join(sorted({str(one.get("status")) for one in these}))
        print(
            f"  {how + (f' ({ALONE})' if alone else ''):44} {right} of {len(these)} right, gone after"
            f" {statistics.median(took):.2f} s (longest {max(took):.2f}), status {codes}",
            flush=True,
        )
    ours = [one for one in told_ if one["kind"] != ALONE]
    for one in ours:
        if not one.get("right"):
            what = one.get("failed") or one.get("unexpected") or one.get("hang") or one.get("status")
            print(f"  !! {one['how']}, {one['kind']}: {str(what)[:600]}", flush=True)
    return {
        "processes": len(ours),
        "right": sum(bool(one.get("right")) for one in ours),
        "hung": sum("hang" in one for one in ours),
        "failed to start": sum("failed" in one for one in told_),
        "left_out": skipped,
        "longest_s": max((one["seconds"] for one in ours if "seconds" in one), default=0.0),
        "device MB before": before,
        "device MB after": after,
        "device memory is back": after <= before + MAY_GROW["device"],
        "beside each other": beside,
    }


def main() -> None:
    warnings.filterwarnings("ignore", "a pipeline whose source was opened again")
    args = arguments(
        __doc__,
        seconds=40,
        limit=110,
        only=ONLY,
        loaders={"type": int, "default": 1000, "help": "that are made and dropped, in --seconds at most"},
        times={"type": int, "default": 3, "help": "processes for each way of ending"},
    )
    with Results("lifecycle", args) as results, tempfile.TemporaryDirectory() as folder:
        few = jpegs(args.photos)[:48]
        for number, photo in enumerate(few):
            place = Path(folder) / f"class_{number % 4}"
            place.mkdir(exist_ok=True)
            (place / f"{number:03d}.jpg").write_bytes(photo.read_bytes())
        if args.device.startswith("cuda"):
            torch.zeros(1, device=args.device)
        if not args.only:
            results.attempt("loaders", lambda: loaders(folder, args))
            gc.enable()
        each: list[dict[str, Any]] = []
        results.attempt("ends", lambda: ends(folder, args, results, each))
        results.put("each end", each)


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        main()
