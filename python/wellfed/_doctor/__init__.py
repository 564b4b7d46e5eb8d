"""What `wellfed doctor` runs inside of a training script, and `wellfed.doctor()`, which starts it in this process.

`inject/` goes first on `PYTHONPATH` of the script's processes; nothing there imports wellfed.
"""

from __future__ import annotations

from ._here import Diagnosis, doctor

__all__ = ["Diagnosis", "doctor"]
