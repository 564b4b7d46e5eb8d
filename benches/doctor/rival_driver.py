"""Runs a planted script under another profiler: `rival_driver.py NAME SCRIPT ARGUMENTS…`. Used by rivals.py.

Each gets the lines that its own documentation asks for in a plain PyTorch loop, put around the batches of the script's
loader from outside. What it says goes to standard output.
"""

from __future__ import annotations

import contextlib
import runpy
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import torch
from torch.utils.data import DataLoader


class Plain:
    """A loader whose iteration is torch's own."""

    def __init__(self, loader: DataLoader, begin: Callable[[DataLoader], Iterator[Any]]) -> None:
        self.loader, self.begin = loader, begin

    def __iter__(self) -> Iterator[Any]:
        return self.begin(self.loader)

    def __len__(self) -> int:
        return len(self.loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def around_batches(wrap: Callable[[Plain], Iterator[Any]]) -> None:
    """From now on all loaders' batches pass through `wrap`."""
    begin = DataLoader.__iter__
    DataLoader.__iter__ = lambda self: wrap(Plain(self, begin))


def run(script: str) -> None:
    """The script, as if it had been started itself."""
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


def torch_profiler(script: str) -> None:
    """`torch.profiler` over 30 steps (or as many as there are), and the table that its tutorial prints."""
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU])
    count = 0

    def steps(loader: Plain) -> Iterator[Any]:
        nonlocal count
        for batch in loader:
            count += 1
            if count == 4:
                profiler.start()
            elif count == 34:
                profiler.stop()
            yield batch

    around_batches(steps)
    run(script)
    if count < 34:
        profiler.stop()
    print(profiler.key_averages().table(sort_by="cpu_time_total", row_limit=15, max_name_column_width=60))


def gpuprof(script: str) -> None:
    """`with gpuprof.profile(...)`, its wrapped loader and its steps."""
    import gpuprof as rival

    with rival.profile("planted", auto=False) as profiler:
        count = iter(range(1 << 60))

        def steps(loader: Plain) -> Iterator[Any]:
            for batch in profiler.wrap_dataloader(loader):
                with profiler.step(next(count)):
                    yield batch

        around_batches(steps)
        run(script)


def traceml(script: str) -> None:
    """`traceml.init()` and `trace_step()`; started by `traceml run`, which tells at the end."""
    import traceml_ai as rival

    rival.init(mode="auto")
    model = torch.nn.Identity()

    def steps(loader: Plain) -> Iterator[Any]:
        batches = iter(loader)
        while True:
            with rival.trace_step(model):
                try:
                    batch = next(batches)
                except StopIteration:
                    return
                yield batch

    around_batches(steps)
    run(script)


class Over(BaseException):
    """The rival has seen enough of the script's loop."""


def loadtune(script: str) -> None:
    """`loadtune.tune()`: its own loaders over the script's data set, begun with no workers, whatever the script has.

    Its training step is a turn of the script's loop, which runs in the main thread and waits there for its batches.
    """
    import loadtune as rival

    batches: SimpleQueue[Any] = SimpleQueue()
    turns: SimpleQueue[None] = SimpleQueue()

    def train(model: Any, optimizer: Any, batch: Any, device: Any) -> torch.Tensor:
        batches.put(batch)
        turns.get()
        return torch.zeros(())

    def tune(loader: Plain) -> None:
        try:
            workload = rival.Workload(
                name="planted",
                make_dataset=lambda: loader.dataset,
                make_model=lambda: torch.nn.Linear(1, 1),
                train_step=train,
                make_optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
                default_batch_size=loader.batch_size,
                collate_fn=loader.collate_fn,
            )
            result = rival.tune(workload, steps=20, warmup=3, max_trials=4, fast=True, verbose=True)
            print(result.diagnosis)
            # Its best trial may be slower than what it began with.
            better = result.best if result.speedup > 1 else None
            print(f"best: {better.knobs.label()}, {result.speedup:.2f}x" if better else "best: baseline")
        finally:
            batches.put(Over)

    def handed() -> Iterator[Any]:
        while (batch := batches.get()) is not Over:
            yield batch
            turns.put(None)
        raise Over

    def steps(loader: Plain) -> Iterator[Any]:
        if threading.current_thread() is not threading.main_thread():
            return iter(loader)
        threading.Thread(target=tune, args=(loader,)).start()
        return handed()

    around_batches(steps)
    with contextlib.suppress(Over):
        run(script)


RIVALS = {"torch.profiler": torch_profiler, "gpuprof": gpuprof, "traceml": traceml, "loadtune": loadtune}


if __name__ == "__main__":
    name, script = sys.argv[1:3]
    sys.argv = [script, *sys.argv[3:]]
    RIVALS[name](script)
