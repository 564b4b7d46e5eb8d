"""`explain()` of a data set with Python steps: what the engine does, where Python begins, what that costs."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING, Any

from .loader import StepsLoader, worker_count
from .program import steps_in

if TYPE_CHECKING:
    from ..dataset import Dataset

__all__ = ["explain"]


def explain(dataset: Dataset, batches: int, device: str | None = None, threads: bool = False) -> str:
    """The plan and its parts, of a loader that copies batches to `device`, with workers that may be `threads`.

    Args:
        dataset: What is explained.
        batches: As many are run to measure the parts, in this process; 0 for none.
        device: By its name.
        threads: Whether workers are threads.
    """
    plan = dataset._plan()
    workers = worker_count(plan["options"]["num_workers"])
    lines = [
        dataset._native.explain(device, workers, threads).rstrip("\n"),
        "python: a worker is told the number of a batch, and makes all of it, the native part included",
    ]
    for node in steps_in(plan["root"]):
        lines.append(f"  {node.get('name') or node['spec']['name']}: {_what(node)}")
    lines.append(
        "  samples are collated in shared memory, and those that steps give back as they were made lie there already; "
        "generators are seeded by the sample (about 7 us each)"
    )
    if "cache" in str([node["node"] for node in _all(plan["root"])]):
        lines.append("  cache: not used, as every worker decodes by itself")
    if plan["options"]["row_index"] != "off":
        lines.append("  row indexes of JPEGs: shared by all workers")
    if batches:
        lines += _measured(dataset, batches)
    return "\n".join(lines) + "\n"


def _what(node: dict[str, Any]) -> str:
    if node["node"] == "source":
        return "a data set of Python's"
    if node["kind"] == "collate":
        return "collate_fn"
    return "map, on " + ("elements" if node.get("field") is None else f"the field {node['field']!r}")


def _all(node: dict[str, Any]) -> list[dict[str, Any]]:
    inputs = node.get("inputs") or ([node["input"]] if "input" in node else [])
    return [node, *itertools.chain.from_iterable(map(_all, inputs))]


def _measured(dataset: Dataset, batches: int) -> list[str]:
    with StepsLoader(dataset.with_options(num_workers=0), None, "torch", None, None) as loader:
        since = time.perf_counter()
        for _ in itertools.islice(loader, batches):
            pass
        seconds = time.perf_counter() - since
        stats = loader.stats()
    samples = max(1, stats["samples"])
    whole = seconds / samples * 1e6
    lines = [f"analysis of up to {batches} batches in one process: {whole:.1f} us a sample"]
    rest = whole
    for name, milliseconds in stats["ms_per_sample"].items():
        rest -= milliseconds * 1e3
        lines.append(f"  {name:24} {milliseconds * 1e3:10.1f} us a sample")
    lines.append(f"  {'order, seeds, the loader':24} {max(0.0, rest):10.1f} us a sample")
    return lines
