"""Gives the script `wellfed.torch.DataLoader` where it asks for torch's, to try what that gains.

What iterates a `tf.data.Dataset` is given `wellfed.feed` of it by `tensorflow`.

The script's own interpreter may not have wellfed: then that of the doctor is used, found beside this file, without
anything else that is installed there.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

from . import hooks
from .control import CONTROL
from .recorder import RECORDER

__all__ = ["install"]

_HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def install() -> None:
    """Exchanges the class once torch is imported, if that was asked for."""
    if CONTROL.feed:
        sys.meta_path.append(LastResort())
        hooks.when_imported("torch", _exchange)


class LastResort:
    """Finds `wellfed` where nothing else did."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The package this probe belongs to."""
        if name != "wellfed":
            return None
        return importlib.machinery.PathFinder.find_spec(name, [os.path.dirname(_HOME)])


def _exchange(torch: ModuleType) -> None:
    import importlib

    try:
        ours: Any = importlib.import_module("wellfed.torch")
    except ImportError:
        RECORDER.failed("importing wellfed in place of torch's loader")
        return
    importlib.import_module("torch.utils.data").DataLoader = ours.DataLoader  # type: ignore[attr-defined]
