"""The command `wellfed`, also as ``python -m wellfed``."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with `argv`, by default the process's arguments; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["demo"]:
        from . import _demo

        return _demo.main(arguments[1:])
    print("usage: wellfed demo", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
