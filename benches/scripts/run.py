"""Scripts as people write them, run with torch's DataLoader and with one line changed.

    python benches/scripts/run.py                      # all cases
    python benches/scripts/run.py --case mixup texts   # some
    python benches/scripts/run.py --quick              # tiny data, one round: do they all work?

Each file of `cases/` is such a script: `loader(folder, count, workers)` makes its loader. It is loaded twice, once as
it is and once with `DataLoader` imported from `wellfed.torch` in place of ``torch.utils.data``.
torch's loader is tried without workers and with `--workers`, and what is faster is the script's own setting; then both
run with it, in turns. A ratio above 1 says that wellfed takes less time: the median of the rounds, and the lowest and
highest round.

Both must give the same batches for the same seed. Of a case with `RANDOM`, whose augmentation may draw its random
numbers natively, from a stream of its own, only types, shapes and integers are compared; with `RANDOM_SIZES`, where it
draws sizes and what becomes of masks and boxes as well, only types and numbers of dimensions.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import statistics
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
from turns import seconds  # noqa: E402

IMPORT = re.compile(r"^from torch\.utils\.data import (?P<names>[\w, ]*\bDataLoader\b[\w, ]*)$", re.MULTILINE)


def changed(text: str) -> str:
    """A script whose loader is wellfed's; what else the line imports still comes from torch."""

    def line(found: re.Match[str]) -> str:
        others = [name for name in found["names"].split(", ") if name != "DataLoader"]
        rest = f"from torch.utils.data import {', '.join(others)}; " if others else ""
        return f"{rest}from wellfed.torch import DataLoader"

    text, lines = IMPORT.subn(line, text)
    if lines != 1:
        raise ValueError(f"{lines} lines import torch's DataLoader, but there must be one")
    return text


def scripts(path: Path) -> tuple[ModuleType, ModuleType]:
    """The script as it is, and with one line changed."""
    text = path.read_text()
    return _module(path, text, "torch"), _module(path, changed(text), "wellfed")


def _module(path: Path, text: str, of: str) -> ModuleType:
    spec = importlib.util.spec_from_loader(f"{path.stem}_with_{of}", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    exec(compile(text, path, "exec"), vars(module))
    return module


def different(one: Any, other: Any, numbers: bool = True, at: str = "batch", sizes: bool = True) -> str:
    """Where two batches differ; empty if they do not. Without `numbers`, floating point values may, and without `sizes`
    all values and sizes of tensors."""
    if type(one) is not type(other):
        return f"{at} is a {type(one).__name__} with torch, and a {type(other).__name__} with wellfed"
    if isinstance(one, torch.Tensor):
        if one.dtype == other.dtype and one.ndim == other.ndim and not sizes:
            return ""
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"{at} is {one.dtype} {[*one.shape]} with torch, and {other.dtype} {[*other.shape]} with wellfed"
        same = (one.is_floating_point() and not numbers) or torch.equal(one, other)
        return "" if same else f"{at} has other values"
    if isinstance(one, Mapping):
        if [*one] != [*other]:
            return f"{at} has other keys"
        return next(
            filter(None, (different(one[k], other[k], numbers, f"{at}[{k!r}]", sizes) for k in one)), ""
        )
    if isinstance(one, Sequence) and not isinstance(one, str | bytes):
        if len(one) != len(other):
            return f"{at} has {len(one)} parts with torch, and {len(other)} with wellfed"
        pairs = enumerate(zip(one, other))
        return next(filter(None, (different(a, b, numbers, f"{at}[{i}]", sizes) for i, (a, b) in pairs)), "")
    return "" if one == other else f"{at} is {one!r} with torch, and {other!r} with wellfed"


def compared(theirs: Any, ours: Any, numbers: bool, sizes: bool = True) -> str:
    """Where two loaders differ in an epoch from the same seed; empty if they do not."""
    epochs = []
    for loader in (theirs, ours):
        torch.manual_seed(1)
        epochs.append(list(loader))
    if len(epochs[0]) != len(epochs[1]):
        return f"{len(epochs[0])} batches with torch, and {len(epochs[1])} with wellfed"
    return next(filter(None, (different(a, b, numbers, sizes=sizes) for a, b in zip(*epochs))), "")


def run(path: Path, options: argparse.Namespace) -> dict[str, Any]:
    """One case: what is different, and how much faster it is."""
    before, after = scripts(path)
    count = 12 if options.quick else options.count
    settings = (options.workers,) if options.quick else (0, options.workers)
    free = getattr(before, "RANDOM_SIZES", False)
    random = free or getattr(before, "RANDOM", False)
    difference = ""
    for workers in settings:
        torch.manual_seed(0)
        theirs = before.loader(options.folder, count, workers)
        torch.manual_seed(0)
        ours = after.loader(options.folder, count, workers)
        difference = difference or compared(theirs, ours, not random, not free)
    result: dict[str, Any] = {
        "case": path.stem,
        "difference": difference,
        "values": "random" if random else "equal",
    }
    if options.quick:
        return result
    tried = {w: seconds(before.loader(options.folder, count, w), options.seconds) for w in settings}
    workers = min(tried, key=tried.__getitem__)
    loaders = [before.loader(options.folder, count, workers), after.loader(options.folder, count, workers)]
    rounds: list[list[float]] = []
    for number in range(options.rounds):
        times = [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            times[which] = seconds(loaders[which], options.seconds)
        rounds.append(times)
    ratios = [theirs / ours for theirs, ours in rounds]
    result |= {"workers": workers, "rounds": rounds, "ratios": ratios}
    return result


def line(result: dict[str, Any]) -> str:
    """One line of the table."""
    values = f"OTHER: {result['difference']}" if result["difference"] else result["values"]
    if "ratios" not in result:
        return f"{result['case']:24} {values}"
    ratios = result["ratios"]
    spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return f"{result['case']:24} {result['workers']:>7} {statistics.median(ratios):>7.2f}x {spread:>16}  {values}"


def main(arguments: list[str] | None = None) -> int:
    """Run the cases; the status says whether all of them work and give the same batches."""
    known = sorted(path.stem for path in (HERE / "cases").glob("*.py"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case", nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known)
    )
    parser.add_argument(
        "--folder", type=Path, default=Path(".bench/scripts"), help="where data is made and kept"
    )
    parser.add_argument(
        "--count", type=int, default=400, help="files of a case; of rows, there are 20 to 100 times as many"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="that a turn has at least")
    parser.add_argument("--quick", action="store_true", help="tiny data, nothing is timed")
    parser.add_argument("--out", type=Path, help="raw numbers as JSON")
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    options.folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="worker processes are forked while")
    if not options.quick:
        print(f"{'case':24} {'workers':>7} {'median':>8} {'lowest, highest':>16}  values", flush=True)
    results, failed = [], 0
    for name in options.case:
        try:
            result = run(HERE / "cases" / f"{name}.py", options)
        except ModuleNotFoundError as error:
            if error.name in ("made", "torch", "turns", "wellfed"):
                raise
            print(f"{name:24} left out: {error}", flush=True)
            continue
        except Exception as error:
            failed += 1
            first = str(error).strip().partition("\n")[0]
            print(f"{name:24} FAILED: {type(error).__name__}: {first}", flush=True)
            continue
        failed += bool(result["difference"])
        results.append(result)
        print(line(result), flush=True)
    if options.out:
        options.out.write_text(json.dumps(results, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
