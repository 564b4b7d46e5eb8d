"""`TensorFlowOps`: TensorFlow's image operations, as the engine runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._transform import Transform

__all__ = ["TensorFlowOps", "joined"]


class TensorFlowOps(Transform):
    """A chain of TensorFlow's operations on a decoded image; comes last.

    Args:
        ops: Operations as the engine reads them: dicts with ``op`` and its parameters.

    Example:
        >>> TensorFlowOps([{"op": "flip", "horizontal": True}]).to_plan()["type"]
        'TensorFlowOps'
    """

    ops: tuple[dict[str, Any], ...]

    def __init__(self, ops: Sequence[dict[str, Any]]) -> None:
        self._set(ops=tuple(dict(op) for op in ops))

    @property
    def random(self) -> bool:
        """Whether one of them draws."""
        return any(op["op"].startswith("random") for op in self.ops)

    def to_plan(self) -> dict[str, Any]:
        """This transform as data that JSON can express."""
        return {"type": "TensorFlowOps", "ops": [dict(op) for op in self.ops]}


def joined(plans: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Transforms as data, with chains of operations that follow one another made one, since there may be one only."""
    found: list[dict[str, Any]] = []
    for plan in plans:
        if found and plan["type"] == found[-1]["type"] == TensorFlowOps.__name__:
            found[-1] = {**plan, "ops": [*found[-1]["ops"], *plan["ops"]]}
        else:
            found.append(plan)
    return found
