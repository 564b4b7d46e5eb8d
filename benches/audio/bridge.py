"""wellfed's sound transforms by their example program, as a child that answers requests.

cargo build --locked --release -p wellfed-audio --example features
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Features", "Floats", "Refused"]

PROGRAM = Path(__file__).parents[2] / "target/release/examples/features"
NONE = np.zeros(0, np.float32)

Floats = NDArray[np.float32]


class Refused(Exception):
    """The transform's own error."""


class Features:
    """The child."""

    def __init__(self, program: Path = PROGRAM) -> None:
        self.child = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Features:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        assert self.child.stdin
        assert self.child.stdout
        self.child.stdin.close()
        self.child.stdout.close()
        self.child.wait()

    def timed(
        self, name: str, one: Floats = NONE, other: Floats = NONE, **values: Any
    ) -> tuple[Floats, float]:
        """What a transform gives, and the least seconds of `repeat` runs."""
        assert self.child.stdin
        assert self.child.stdout
        words = " ".join(f"{key}={value}" for key, value in values.items())
        self.child.stdin.write(f"{name} n={one.size} m={other.size} {words}\n".encode())
        self.child.stdin.write(one.astype("<f4").tobytes() + other.astype("<f4").tobytes())
        self.child.stdin.flush()
        head, _, rest = self.child.stdout.readline().decode().strip().partition(" ")
        if head != "ok":
            raise Refused(rest)
        count, seconds = rest.split()
        return np.frombuffer(self.child.stdout.read(4 * int(count)), "<f4"), float(seconds)

    def __call__(self, name: str, one: Floats = NONE, other: Floats = NONE, **values: Any) -> Floats:
        return self.timed(name, one, other, **values)[0]
