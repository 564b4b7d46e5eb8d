"""Runs a planted script under another profiler: `rival_driver.py NAME SCRIPT ARGUMENTS…`. Used by rivals.py.

Each gets the lines that its own documentation asks for in a plain PyTorch loop, put around the batches of the script's
loader from outside. What it says goes to standard output.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
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


class Caught(BaseException):
    """The script made its loader: that is all we wanted."""


def loadtune(script: str) -> None:
    """Its own loop over the script's data set; the step takes as long as the script's."""
    import loadtune as rival

    caught: dict[str, Any] = {}
    made = DataLoader.__init__

    def catch(self: DataLoader, dataset: Any, *args: Any, **options: Any) -> None:
        caught.update(dataset=dataset, **options)
        raise Caught

    DataLoader.__init__ = catch
    with contextlib.suppress(Caught):
        run(script)
    DataLoader.__init__ = made
    step = json.loads(Path(os.environ["PLANTED_SETTINGS"]).read_text()).get("step", 0.0)
    common = sys.modules["common"]

    def train(model: Any, optimizer: Any, batch: Any, device: Any) -> torch.Tensor:
        common.device_step(torch.zeros(1), step)
        return torch.zeros(())

    workload = rival.Workload(
        name="planted",
        make_dataset=lambda: caught["dataset"],
        make_model=lambda: torch.nn.Linear(1, 1),
        train_step=train,
        make_optimizer=lambda model: torch.optim.SGD(model.parameters(), 0.1),
        default_batch_size=caught.get("batch_size") or 1,
        collate_fn=caught.get("collate_fn"),
    )
    # It begins with no workers, whatever the script has.
    result = rival.tune(workload, steps=20, warmup=3, max_trials=4, fast=True, verbose=True)
    print(result.diagnosis)
    print(f"best: {result.best.knobs.label() if result.best else 'baseline'}, {result.speedup:.2f}x")


RIVALS = {"torch.profiler": torch_profiler, "gpuprof": gpuprof, "traceml": traceml, "loadtune": loadtune}


if __name__ == "__main__":
    name, script = sys.argv[1:3]
    sys.argv = [script, *sys.argv[3:]]
    RIVALS[name](script)
