"""An edit of the script that is tried: its lines are changed in what covers the script's folder, in memory.

`WELLFED_DOCTOR_EDIT` names the file and its lines. Python reads the file only after this, and so does whatever process
the script starts.
"""

from __future__ import annotations

import json
import os

__all__ = ["EDIT", "edit"]

EDIT = "WELLFED_DOCTOR_EDIT"


def edit(text: str, covered: list[str]) -> None:
    """Changes what `text` asks for.

    Raises:
        OSError: if the file lies in none of the `covered` folders, or is not what it was.
    """
    wanted = json.loads(text)
    path = os.path.realpath(wanted["file"])
    if not any(path.startswith(folder + os.sep) for folder in covered):
        raise OSError(f"{path} is not covered")
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    # From the end on, so that numbers of lines stay.
    for change in sorted(wanted["lines"], key=lambda change: -int(change["line"])):
        first = change["line"] - 1
        old = change["code"].encode().split(b"\n")
        there = lines[first : first + len(old)]
        if [line.removesuffix(b"\r") for line in there] != old:
            raise OSError(f"line {change['line']} of {path} is not what ran")
        end = b"\r" if there[0].endswith(b"\r") else b""
        lines[first : first + len(old)] = [line + end for line in change["change"].encode().split(b"\n")]
    with open(path, "wb") as file:
        file.write(b"\n".join(lines))
