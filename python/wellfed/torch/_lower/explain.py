"""`explain()`: what is native, what is Python, and the one change that would help; the order, workers and device.

Invariant: every part that a loader has is named; nothing is left out because it is inconvenient.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils.data import BatchSampler, IterableDataset

from ..._accelerate import opencv, unusable
from ..._accelerate.torchvision_io import taken_over
from .._device import has_streams
from .._order import sees_nothing
from .._workers.threads import in_threads
from .forms import Line, name_of
from .plan import Plan
from .spectra import is_sound

__all__ = ["explain", "outlook"]

_HEADS = {
    "native": "native: the engine makes whole batches",
    "tensors": "native: whole batches of rows are gathered at once",
    "hybrid": "partly native: the engine makes images up to the first Python part",
    "python": "Python: the data set runs as it is",
}


def explain(loader: Any, plan: Plan) -> str:
    """What `plan` makes of `loader`, as text."""
    rows: list[tuple[str, str, str]] = []
    for _, line in plan.lines:
        rows.append(("native" if line.native else "python", line.part, _words(line)))
    rows += [_order(loader, plan), _workers(loader, plan), _memory(loader), *_left(loader, plan)]
    rows += _asked(loader, plan)
    native = plan.native_source or plan.stream
    if native is not None and native.in_python:
        rows.append(
            (
                "python",
                f"{native.in_python} batches so far",
                "the engine could not make them, the data set could",
            )
        )
    wide = max(len(row[1]) for row in rows)
    head = _HEADS[plan.kind]
    if plan.flat is not None and any(is_sound(leaf.form) for leaf in plan.flat.leaves):
        head = head.replace("images", "sounds")
    text = [f"{type(loader).__name__}, {head}"]
    text += [f"  {kind:<7} {part:<{min(wide, 60)}}  {words}".rstrip() for kind, part, words in rows]
    changes = [line for _, line in plan.lines if not line.native and line.change]
    if changes:
        text.append(f"  to make more of it native: {changes[0].part}: {changes[0].change}")
    return "\n".join(text)


def _words(line: Line) -> str:
    if line.native or not line.change:
        return line.why
    return f"{line.why}; native with: {line.change}" if line.why else f"native with: {line.change}"


def _order(loader: Any, plan: Plan) -> tuple[str, str, str]:
    if plan.stream is not None:
        made = (
            f"batches of {loader.batch_size}"
            if loader._auto_collation
            else "batches as the pipeline makes them"
        )
        return "native", "batches", f"{made}, drop_last={loader.drop_last}"
    if isinstance(loader.dataset, IterableDataset):
        return "python", "order", "that of the data set"
    sampler = loader._index_sampler
    timing = "" if plan.kind != "native" or sees_nothing(sampler) else _timing(loader)
    words = f"torch's sampler, the same order; batch_size={loader.batch_size}"
    if loader._auto_collation:
        if type(sampler) is not BatchSampler:
            return (
                "python",
                f"order: {name_of(sampler)}",
                f"a batch sampler of the user, asked batch by batch{timing}",
            )
        sampler = sampler.sampler
        words += f", drop_last={loader.drop_last}"
    if not type(sampler).__module__.startswith("torch."):
        return "python", f"order: {name_of(sampler)}", f"a sampler of the user, asked index by index{timing}"
    return "python", f"order: {type(sampler).__name__}", words


def _timing(loader: Any) -> str:
    """When a sampler is asked that may look at what training does."""
    if loader.num_workers > 0:
        return ", several batches ahead, as workers do; num_workers=0: not before the batch"
    return ", not before the batch, since it may look at losses; num_workers=1: several batches ahead, which is faster"


def _workers(loader: Any, plan: Plan) -> tuple[str, str, str]:
    asked = f"num_workers={loader.num_workers}"
    if plan.kind == "native":
        extra = [
            name
            for name in ("worker_init_fn", "multiprocessing_context")
            if getattr(loader, name, None) is not None
        ]
        unused = f"; {' and '.join(extra)} not used" if extra else ""
        return "native", asked, f"threads of the engine in place of processes, as many as pay{unused}"
    if plan.kind == "tensors":
        return "native", asked, "no processes: gathering takes less than handing over"
    if loader.num_workers == 0:
        return (
            "python",
            asked,
            "samples are made in the calling thread; more workers would make them meanwhile",
        )
    if in_threads(loader):
        return (
            "python",
            f"{asked} threads",
            "as multiprocessing_context says: they share the data set and the global random generators",
        )
    choice = loader._choice(plan)
    if choice is not None and choice.is_here:
        words = f"in the calling thread, with the values of workers: {choice.words()}"
        return "python", asked.replace("=", "=auto: ") if loader._seeds_by_batch else asked, words
    if loader._seeds_by_batch:
        words = (
            "worker processes, at first as many as cores; random numbers are seeded batch by batch, "
            "whatever their number"
        )
        if loader._tuner is not None:
            words += "".join(f"; {learned}" for learned in loader._tuner.story)
        if choice is not None:
            words += choice.words()
        return "python", asked.replace("=", "=auto: "), words
    return "python", asked, "worker processes" + ("" if choice is None else choice.words())


def _left(loader: Any, plan: Plan) -> list[tuple[str, str, str]]:
    """What the device does of images."""
    native: Any = plan.native_source or getattr(plan.stream, "native", None)
    left = getattr(native, "left", None)
    if left is None:
        return []
    words = left.words(native._source)
    return [("native" if left.size is not None else "python", f"on_device={loader.on_device}", words)]


def _asked(loader: Any, plan: Plan) -> list[tuple[str, str, str]]:
    """What was asked of the engine and of errors, and whether it applies."""
    rows = []
    for name in ("num_threads", "memory_budget"):
        value = getattr(loader, name)
        if value is not None:
            native = plan.kind == "native"
            words = "of the engine" if native else "not used: the engine does not make whole batches"
            rows.append(("native" if native else "python", f"{name}={value}", words))
    opened = _opened(loader, plan) if loader.accelerate else []
    if opened:
        where = (
            "in the worker processes"
            if loader.num_workers
            else "in the calling thread, while it makes samples"
        )
        rows.append(("native", "accelerate", f"{' and '.join(opened)}, {where}"))
    if loader.on_error != "raise":
        what = {"skip": "batches get smaller", "replace": "another sample of the batch is taken"}[
            loader.on_error
        ]
        met = f"; {loader._bad.count} so far" if loader._bad.count else ""
        rows.append(("python", f"on_error={loader.on_error}", f"{what}; errors() lists bad samples{met}"))
    return rows


def outlook(loader: Any) -> dict[str, Any]:
    """What of a loader runs natively, as data, for those who predict what it gains.

    Returns:
        ``plan``: the kind of its `Plan`; ``images``: whether images are opened faster as samples are made; ``python``:
        the parts that stay in Python.
    """
    plan = loader._planned()
    return {
        "plan": plan.kind,
        "images": bool(loader.accelerate and _opened(loader, plan)),
        "python": [line.part for _, line in plan.lines if not line.native],
    }


def _opened(loader: Any, plan: Plan) -> list[str]:
    """The images that samples may open by a library that can be accelerated."""
    if plan.kind not in ("python", "hybrid") or in_threads(loader):
        return []
    found = []
    if "PIL.Image" in sys.modules and not unusable():
        found.append("Pillow's images of JPEG and PNG")
        if taken_over():
            found.append("torchvision.io's of JPEG")
    if loader.num_workers > 0 and opencv.applies():
        found.append("OpenCV's of JPEG")
    return found


def _memory(loader: Any) -> tuple[str, str, str]:
    device = getattr(loader, "device", None)
    if device is not None and device.type != "cpu":
        when = "while the batch before it is used" if has_streams(device) else "when a batch is asked for"
        return "native", f"memory: device={device}", f"copied there {when}"
    where = f"device={device}" if device is not None else "batches on the CPU"
    if not loader.pin_memory:
        return "native", f"memory: {where}", "not pinned"
    there = torch.accelerator.is_available()
    return (
        "native",
        f"memory: {where}",
        "pinned" if there else "pin_memory=True, but there is no accelerator: not pinned",
    )
