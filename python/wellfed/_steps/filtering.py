"""What a `filter` keeps: one pass over its input, by the workers that a loader would have.

Invariant: the list is that of epoch 0, and the same however many workers found it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._loader import is_batched
from ..exceptions import ConfigError
from .program import is_random

if TYPE_CHECKING:
    from ..dataset import Dataset

__all__ = ["check", "kept"]

BATCH = 64
"""Elements that a worker looks at before it says so."""

SHUFFLING = ("shuffle", "sample_from_datasets")


class Test:
    """A predicate whose answers can be put into a batch."""

    def __init__(self, predicate: Callable[[Any], Any]) -> None:
        self.predicate = predicate
        self.__qualname__ = getattr(predicate, "__qualname__", type(predicate).__qualname__)

    def __call__(self, element: Any) -> bool:
        return bool(self.predicate(element))


def check(plan: dict[str, Any]) -> None:
    """Raises a ConfigError where a list of what is kept would not hold in every epoch."""
    if is_random(plan["root"]):
        raise ConfigError(
            "filter() comes after random transforms, so what it keeps would change from epoch to epoch\n"
            "hint: call filter() before them"
        )
    if is_batched(plan["root"]):
        raise ConfigError(
            "filter() comes after batch(), where it would work on whole batches\nhint: call filter() before batch()"
        )
    verb = _found(plan["root"], SHUFFLING)
    if verb is not None:
        raise ConfigError(
            f"filter() comes after {verb}(), so what it keeps would move from epoch to epoch\n"
            f"hint: call filter() before {verb}()"
        )


def _found(node: dict[str, Any], names: tuple[str, ...]) -> str | None:
    if node["node"] in names and node.get("reshuffle_each_iteration", True):
        return str(node["node"])
    inputs = node.get("inputs") or ([node["input"]] if "input" in node else [])
    return next((name for name in (_found(one, names) for one in inputs) if name is not None), None)


def kept(dataset: Dataset, predicate: Callable[[Any], Any]) -> tuple[int, str]:
    """What `predicate` keeps of `dataset`, as the plan has it in JSON.

    Bad samples are not kept, unless ``on_error="raise"``.
    """
    from .loader import StepsLoader

    count = len(dataset)
    if count == 0:
        return 0, ""
    options = dataset._plan()["options"]
    tested = dataset._python("map", Test(predicate), field=None).batch(BATCH)
    # With a replacement for a bad sample nobody would know whose answer it is.
    lenient = options["on_error"] != "raise"
    answers = np.zeros(-(-count // 8) * 8, bool)
    with StepsLoader(
        tested.with_options(on_error="skip" if lenient else "raise"), None, "torch", None, None
    ) as loader:
        for made in loader.made():
            start = made.task[2] * BATCH
            bad = {failure.offset for failure in made.failures}
            here = min(BATCH, count - start)
            good = [start + offset for offset in range(here) if offset not in bad]
            if made.batch is not None:
                answers[good] = made.batch.numpy()
    # Each digit has four answers, the first one in its lowest bit.
    packed = np.packbits(answers, bitorder="little")
    digits = np.stack([packed & 15, packed >> 4], axis=1).reshape(-1)
    return count, "".join(f"{digit:x}" for digit in digits)
