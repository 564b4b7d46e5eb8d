"""What of a torch loader runs in the engine instead: recognised by exact types, never guessed."""

from __future__ import annotations

from typing import Any

__all__ = ["plan"]


def plan(loader: Any) -> Any:
    """An iterator over the engine that stands for the whole of `loader`, or None where it stays in Python."""
    return None
