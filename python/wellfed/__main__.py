"""The command `wellfed`, also as ``python -m wellfed``. All but the demo is done by crates/wellfed-cli."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from . import _native


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command with `argv`, by default the process's arguments; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["demo"]:
        from . import _demo

        return _demo.main(arguments[1:])
    if arguments[:1] == ["doctor"]:
        # Scripts run in this interpreter, with these probes.
        inject = Path(__file__).with_name("_doctor") / "inject"
        own = ["--interpreter", sys.executable, "--inject", str(inject)]
        arguments[1:1] = own if sys.executable else own[2:]
    try:
        return _native.run_command(["wellfed", *arguments])
    except KeyboardInterrupt:
        # 128 + SIGINT, as shells have it.
        return 130


if __name__ == "__main__":
    sys.exit(main())
