"""What it costs to hand a finished batch to each framework: microseconds a batch, measured in turns.

    python benches/handover.py [--rounds 5] [--batches 200] [--out FILE]

Two tables. "Hand-over alone": one batch of 64x3x224x224 float32 and 64 int64 that was made before is given again and
again, so that nothing is measured but the way from the engine to the framework's arrays. "From memory": the engine
copies batches of an array in memory, as fast as it can, and each framework takes them; there the engine's copy of
38.5 MB is most of the time. Frameworks that are not installed are left out; `stock` is TensorFlow's own
`from_generator` over NumPy arrays.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np

import wellfed as wf

SHAPE = (64, 3, 224, 224)


class Again:
    """A loader of the engine that gives one batch again and again."""

    def __init__(self, native: Any, count: int) -> None:
        self._native, self._count, self._left = native, count, 0
        native.start_epoch()
        self._columns = native.next()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def start_epoch(self) -> None:
        self._left = self._count

    def next(self) -> Any:
        if not self._left:
            return None
        self._left -= 1
        return self._columns

    def ready(self) -> bool:
        return self._left > 0


def installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def ways(dataset: wf.Dataset) -> dict[str, tuple[Any, Callable[[], Iterable[Any]]]]:
    """By name: the loader, and what gives its batches."""
    found: dict[str, tuple[Any, Callable[[], Iterable[Any]]]] = {}
    for name in ("numpy", "torch"):
        if name == "numpy" or installed(name):
            loader = getattr(dataset, name)()
            found[name] = loader, lambda loader=loader: loader
    if installed("jax"):
        loader = dataset.jax()
        found["jax"] = loader._loader, lambda loader=loader: loader
    if installed("tensorflow"):
        import tensorflow as tf

        data = dataset.tf()
        found["tf, from Python"] = data.loader, lambda data=data: data
        taken = dataset.tf()
        found["tf, TensorFlow's iterator"] = taken.loader, lambda: taken._source
        graph = dataset.tf()

        @tf.function
        def step(iterator: Any) -> Any:
            return iterator.get_next()[1][0]

        def stepped(over: Any) -> Iterator[Any]:
            iterator = iter(over)
            try:
                while True:
                    yield step(iterator)
            except tf.errors.OutOfRangeError:
                pass

        found["tf, in a tf.function"] = graph.loader, lambda: stepped(graph)
        # What TensorFlow itself takes for a step over a batch that lies there.
        lying = dataset.tf()
        one = lying.take(1).cache().repeat(len(dataset))
        found["nothing, in a tf.function"] = lying.loader, lambda: stepped(one)
        mapped = dataset.tf()
        chain = mapped.map(lambda x, y: (x, y))
        found["tf, behind map"] = mapped.loader, lambda: chain
        arrays = dataset.numpy()
        spec = data.element_spec
        stock = tf.data.Dataset.from_generator(lambda: iter(arrays), output_signature=spec)
        found["stock from_generator"] = arrays, lambda: stock
        again = dataset.numpy()
        stock_too = tf.data.Dataset.from_generator(lambda: iter(again), output_signature=spec)
        found["stock, in a tf.function"] = again, lambda: stepped(stock_too)
    return found


def mean(batches: Callable[[], Iterable[Any]]) -> float:
    """Seconds a batch of one epoch, on average."""
    count, since = 0, time.perf_counter()
    for _ in batches():
        count += 1
    return (time.perf_counter() - since) / count


def usual(batches: Callable[[], Iterable[Any]]) -> float:
    """Seconds of the median batch of one epoch: what is made once for an iterator is left out."""
    times, since = [], time.perf_counter()
    for _ in batches():
        now = time.perf_counter()
        times.append(now - since)
        since = now
    return statistics.median(times)


def in_turns(
    found: dict[str, tuple[Any, Callable[[], Iterable[Any]]]],
    rounds: int,
    seconds: Callable[[Callable[[], Iterable[Any]]], float],
) -> dict[str, list[float]]:
    """Microseconds of a batch of each way, round by round; every second round goes backwards."""
    for _, batches in found.values():
        seconds(batches)
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds):
        order = list(found.items())
        for name, (_, batches) in order if number % 2 == 0 else reversed(order):
            times[name].append(1e6 * seconds(batches))
    return times


def report(title: str, times: dict[str, list[float]]) -> None:
    base = times.get("torch", times["numpy"])
    print(
        f"\n{title}: median of µs a batch, and beyond {'torch' if 'torch' in times else 'numpy'} in the same round"
    )
    for name, all_ in times.items():
        beyond = statistics.median(ours - theirs for ours, theirs in zip(all_, base))
        print(f"{name:24} {statistics.median(all_):10.1f} {beyond:+10.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    images = np.zeros((8 * SHAPE[0], *SHAPE[1:]), np.float32)
    images += np.arange(len(images), dtype=np.float32)[:, None, None, None]
    dataset = wf.from_tensor_slices((images, np.arange(len(images)))).batch(SHAPE[0])
    repeated = dataset.repeat(max(1, arguments.batches // len(dataset)))
    alone = ways(repeated)
    for loader, _ in alone.values():
        loader._native = Again(loader._native, len(repeated))
    results = {"alone": in_turns(alone, arguments.rounds, usual)}
    report("Hand-over alone", results["alone"])
    for loader, _ in alone.values():
        loader.close()
    results["memory"] = in_turns(ways(dataset.repeat(4)), arguments.rounds, mean)
    report("From memory", results["memory"])
    if arguments.out:
        kept = {"python": platform.python_version(), "wellfed": wf.__version__, "microseconds": results}
        arguments.out.write_text(json.dumps(kept, indent=1))


if __name__ == "__main__":
    main()
