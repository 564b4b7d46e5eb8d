"""Python imports this at its start, in the script and in every process that the script starts with its environment.

Invariant: the script runs as if this file were not there. The `sitecustomize` that Python would have found otherwise
runs in its place, and whatever goes wrong with the probe is written beside its records, not said.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _probe(directory: str) -> None:
    """Starts the probe."""
    if os.environ.get("WELLFED_DOCTOR_CONFINED"):
        _confine(directory)
    try:
        sys.path.insert(0, _HERE)
        try:
            import wellfed_probe  # type: ignore[import-not-found, unused-ignore]
        finally:
            sys.path.remove(_HERE)
        wellfed_probe.start(directory)
    except Exception:
        try:
            import traceback

            with open(os.path.join(directory, f"{os.getpid()}.error"), "a", encoding="utf-8") as out:
                out.write(traceback.format_exc())
        except OSError:
            pass  # There is nowhere left to say it.


def _confine(directory: str) -> None:
    """Forbids this process, and those that it starts, to change anything; ends it where that fails."""
    try:
        sys.path.insert(0, _HERE)
        try:
            from wellfed_probe import confine  # type: ignore[import-not-found, unused-ignore]
        finally:
            sys.path.remove(_HERE)
        confine.confine(directory)
    except BaseException:
        os._exit(97)


def _others() -> None:
    """Runs the `sitecustomize` that is next on the path, as this module."""
    import importlib.machinery
    import importlib.util

    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    # Neither this folder nor this module is to be found by the script.
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    if os.environ.get("WELLFED_DOCTOR_DIR"):
        _probe(os.environ["WELLFED_DOCTOR_DIR"])
    _others()
