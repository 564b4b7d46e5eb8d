"""JAX on the device: time of a batch of `ds.jax()` beyond `jax.device_put` of the same array.

    python benches/gpu/handover.py --out OUT

"again": the engine's first batch is handed over again and again, so that nothing is measured but the way from its
memory to JAX's array on the device. "from memory": the engine makes each batch by copying an array in memory.
"waiting" waits for each array (the time of the copy itself); "ahead" waits for the array of the step before the last.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

from common import BUDGET, Again, Results, arguments, close


def milliseconds(batches: Iterable[Any], seconds: float, ahead: int) -> dict[str, float]:
    """Of a batch, when the array of the batch `ahead` before is waited for."""
    source = iter(batches)
    waiting: deque[Any] = deque()
    took: list[float] = []
    begin = since = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        waiting.append(next(source))
        if len(waiting) > ahead:
            waiting.popleft().block_until_ready()
        now = time.perf_counter()
        took.append(now - since)
        since = now
    for one in waiting:
        one.block_until_ready()
    took = took[len(took) // 5 :]  # the first compile and allocate
    return {"median_ms": 1e3 * statistics.median(took), "mean_ms": 1e3 * statistics.fmean(took)}


def main() -> None:
    args = arguments(__doc__, seconds=1.5, limit=60)
    import jax
    import numpy as np

    import wellfed as wf

    device = jax.devices("cpu" if args.device == "cpu" else None)[0]
    with Results("handover", args) as results:
        results.put("device", str(device))
        for batch in (8,) if args.small else (64, 256):
            images = np.zeros((8 * batch, 3, 224, 224), np.float32)
            images += np.arange(len(images), dtype=np.float32)[:, None, None, None]
            dataset = wf.from_tensor_slices(images).repeat(100_000).batch(batch, drop_last=True)
            one = np.ascontiguousarray(images[:batch])
            nbytes = one.nbytes

            def put(array: Any = one) -> Iterable[Any]:
                while True:
                    yield jax.device_put(array, device)

            for ahead, word in ((0, "waiting"), (2, "ahead")):
                figures = {}
                for name in ("device_put", "ds.jax(), again", "ds.jax(), from memory"):

                    def run(name: str = name, ahead: int = ahead, dataset: Any = dataset) -> dict[str, float]:
                        if name == "device_put":
                            return milliseconds(put(), args.seconds, ahead)
                        loader = dataset.with_options(memory_budget=BUDGET).jax()
                        if "again" in name:
                            loader._loader._native = Again(loader._loader._native)
                        try:
                            return milliseconds(loader, args.seconds, ahead)
                        finally:
                            close(loader)

                    found = results.attempt(f"batch {batch}, {word}: {name}", run)
                    if found:
                        figures[name] = found["median_ms"]
                if "device_put" in figures:
                    beyond = {n: 1e3 * (ms - figures["device_put"]) for n, ms in figures.items()}
                    results.put(f"batch {batch}, {word}: beyond device_put, µs", beyond)
                    results.put(
                        f"batch {batch}, {word}: device_put, GB/s", nbytes / figures["device_put"] / 1e6
                    )
                    print(f"batch {batch}, {word}: beyond device_put, µs:", beyond, flush=True)


if __name__ == "__main__":
    main()
