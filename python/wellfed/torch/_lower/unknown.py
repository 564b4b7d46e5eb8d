"""That a piece of code is not understood."""

from __future__ import annotations

__all__ = ["UnknownError"]


class UnknownError(Exception):
    """A function is not understood: `why`, and where."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why
        self.place = ""

    def locate(self, place: str) -> None:
        """Says where it was, unless that is known more exactly."""
        self.place = self.place or place

    def __str__(self) -> str:
        return f"{self.place}: {self.why}" if self.place else self.why
