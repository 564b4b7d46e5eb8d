"""`%%doctor`: the diagnosis of a notebook's cell."""

from __future__ import annotations

from typing import Any

from ._here import doctor

__all__ = ["register"]


def register(shell: Any) -> None:
    """Adds the magic to this IPython."""

    def magic(line: str, cell: str) -> Any:
        """Runs the cell under the doctor; its report is the cell's result."""
        with doctor(quiet=True) as diagnosis:
            result = shell.run_cell(cell)
        # What the cell raised has been shown by then, with the place in the cell.
        if result.success or diagnosis.data:
            return diagnosis
        return None

    shell.register_magic_function(magic, magic_kind="cell", magic_name="doctor")
