"""Runs our functions on a module right after the script imported it.

Invariant: the module, its loader and its specification are those that the script would see without us.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from .recorder import RECORDER

__all__ = ["catch_up", "install", "when_imported"]

Patch = Callable[[ModuleType], None]

_patches: dict[str, list[Patch]] = {}
_done: set[tuple[str, int]] = set()


def when_imported(name: str, patch: Patch) -> None:
    """Has `patch` called with the module of this name, once, after it was imported."""
    _patches.setdefault(name, []).append(patch)


def install() -> None:
    """Begins to watch imports, and patches what was imported before."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())
    catch_up()


def catch_up() -> bool:
    """Patches modules that came in by another way than our finder; false if some are still being imported."""
    all_done = True
    for name in _patches:
        module = sys.modules.get(name)
        if module is None or (name, id(module)) in _done:
            continue
        if being_imported(module):
            all_done = False
        else:
            run(module, name)
    return all_done


def being_imported(module: ModuleType) -> bool:
    """Whether its code runs still."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def run(module: ModuleType, name: str) -> None:
    """Calls the functions for this module."""
    if (name, id(module)) in _done:
        return
    _done.add((name, id(module)))
    for patch in _patches.get(name, ()):
        try:
            patch(module)
        except Exception:
            RECORDER.failed(f"patching {name}")


class Finder:
    """Asks the finders after it, and has their loader call us when it is done."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The specification that the others find, for the modules we are after; None for all else."""
        if name not in _patches:
            return None
        for finder in list(sys.meta_path):
            if isinstance(finder, Finder):
                continue
            find = getattr(finder, "find_spec", None)
            spec = None if find is None else find(name, path, target)
            if spec is not None:
                try:
                    listen(spec, name)
                except Exception:
                    RECORDER.failed(f"listening for {name}")
                return spec
        return None


def listen(spec: importlib.machinery.ModuleSpec, name: str) -> None:
    """Has the loader of `spec` call us."""
    loader: Any = spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None or getattr(loader, "name", None) != name:
        return  # A namespace, or a loader that serves several modules: `catch_up` will find it.

    def exec_module(module: ModuleType) -> None:
        with contextlib.suppress(AttributeError):  # Executed before.
            del loader.exec_module
        execute(module)
        run(module, name)

    # Some have no attributes of their own: `catch_up` will find the module.
    with contextlib.suppress(AttributeError):
        # On the instance, of which each module has its own; it is gone before the module runs.
        loader.exec_module = exec_module
