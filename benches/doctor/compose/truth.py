"""What is right: what each candidate fix is, which advice of the doctor stands for which, and how a result is scored.

Invariant: advice is told from the report's fields alone: the verdict's name, what its fix would set, and where the fix
is to be made, which is compared with the lines of the fix's productions. Words of the report or of the script count
for nothing. Advice that is not in the table is scored as wrong and listed, so that a new verdict gets its line here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

WORTH = 1.05
"""A gain below this is none."""

ALIKE = 0.05
"""Gains that differ by less are the same: either fix is right."""

SCRIPT = "train.py"
"""Name of a composed script's file."""

FINE = frozenset({"healthy", "compute-bound"})
"""Verdicts that promise nothing."""


@dataclass(frozen=True)
class Fix:
    """A candidate fix."""

    families: tuple[str, ...]
    """Families of verdicts that are near it."""
    slots: tuple[str, ...] = ()
    """Slots whose lines advice must name; empty where the advice says all without a place."""
    placed: bool = True
    """Whether advice without a place is none. Settings of a loader are told by what they set, unless of another one."""
    same: bool = True
    """Whether all losses stay the same."""


FIXES: dict[str, Fix] = {
    # Of the loader. Random numbers of workers differ with how many there are, the first epoch's samples do not.
    "workers": Fix(("loading",), ("loader",), placed=False),
    "more-workers": Fix(("loading", "storage"), ("loader",), placed=False),
    "fewer-workers": Fix(("contention", "loading"), ("loader",), placed=False),
    "persistent": Fix(("loop", "loading"), ("loader",), placed=False),
    # Where each epoch makes a loader, settings of it keep no workers.
    "loader-once": Fix(("loop", "loading"), ("loader",)),
    "sampler-once": Fix(("loading", "cpu"), ("loader",)),
    "one-thread": Fix(("contention",)),
    "fewer-threads": Fix(("contention",)),
    "no-lock": Fix(("contention", "loading", "cpu"), ("loader", "storage", "access", "decoding")),
    "feed": Fix(("cpu", "loading", "loop")),
    # Of files and how they are read.
    "smaller-images": Fix(("cpu",), same=False),
    "reduced-decoding": Fix(("cpu",), same=False),
    "uncompressed": Fix(("cpu", "storage")),
    "pack": Fix(("storage", "cpu")),
    "sample-chunks": Fix(("storage", "cpu"), ("storage", "access")),
    "read-part": Fix(("storage", "cpu"), ("storage",)),
    "index-rows": Fix(("storage", "cpu"), ("storage", "access")),
    "load-once": Fix(("storage", "cpu"), ("storage",)),
    "keep-open": Fix(("storage", "cpu"), ("access",)),
    "list-once": Fix(("storage", "cpu"), ("access",)),
    "settings-once": Fix(("storage", "cpu"), ("access",)),
    "own-part": Fix(("cpu", "loading"), ("access", "storage")),
    "parse-once": Fix(("cpu",), ("storage",)),
    "to-arrays": Fix(("cpu",), ("storage",)),
    "batch-at-once": Fix(("cpu", "loading")),
    "local-copy": Fix(("storage",)),
    # Of samples.
    "shallow-copy": Fix(("cpu",), ("access",)),
    "cheaper-work": Fix(("cpu",), ("work",)),
    "tokenize-once": Fix(("cpu",), ("work",)),
    "pad-sequence": Fix(("cpu",)),
    "few-tensors": Fix(("cpu", "loading")),
    "stack-arrays": Fix(("cpu",)),
    # Of the loop.
    "larger-batch": Fix(("loop",), same=False),
    "average-at-once": Fix(("loop",), ("step",)),
    "forward-at-once": Fix(("loop",), ("step",)),
    "clip-at-once": Fix(("loop",), ("step",)),
    "loss-at-once": Fix(("loop",), ("step",)),
    "update-at-once": Fix(("loop",), ("step",)),
    "log-less": Fix(("loop",), ("logging",)),
    "collect-less": Fix(("loop",), ("logging",)),
    "evaluation-workers": Fix(("loading",), ("evaluation",)),
    "evaluation-batch": Fix(("loop", "loading"), ("evaluation",)),
    # Callbacks of Keras' are its logging.
    "checkpoint-less": Fix(("loop",), ("evaluation", "logging")),
    "metric-at-once": Fix(("loop", "cpu"), ("evaluation",)),
    # Of tf.data.
    "parallel-calls": Fix(("loading",)),
    "sequence-workers": Fix(("loading",)),
    "resize-once": Fix(("cpu",), same=False),
    "wellfed-csv": Fix(("cpu",)),
    # Around the script.
    "no-neighbour": Fix(("contention",)),
}
"""All candidate fixes."""

ADVICE: dict[str, tuple[str, ...]] = {
    # What a fix sets, where it says what. `stock-loader` always sets that.
    "feed": ("feed",),
    "stock-loader": ("feed",),
    "num_workers up": ("workers", "more-workers", "evaluation-workers", "sequence-workers"),
    "num_workers down": ("fewer-workers",),
    "persistent_workers": ("persistent",),
    "num_parallel_calls": ("parallel-calls",),
    "prefetch": ("parallel-calls",),
    # `OMP_NUM_THREADS=1` is one thread for the step; it does not change what a script's own call tells workers.
    "env": ("fewer-threads",),
    # Verdicts whose fix is an edit.
    "serial-loading": ("workers", "evaluation-workers", "parallel-calls", "sequence-workers"),
    "worker-restart": ("persistent", "loader-once"),
    "decode": ("smaller-images", "reduced-decoding", "resize-once"),
    "augment": ("cheaper-work", "resize-once"),
    "decompress": ("uncompressed", "sample-chunks"),
    "collate": ("few-tensors", "pad-sequence", "stack-arrays", "batch-at-once"),
    "ipc": ("few-tensors",),
    "python-overhead": (
        "cheaper-work",
        "tokenize-once",
        "parse-once",
        "to-arrays",
        "keep-open",
        "list-once",
        "settings-once",
        "load-once",
        "batch-at-once",
        "index-rows",
        "shallow-copy",
        "sampler-once",
    ),
    # Its change is a call of `wellfed.csv`.
    "parse": ("wellfed-csv",),
    "small-files": ("pack",),
    # A mapped file that is opened for each sample looks like one that is read: the same advice at the same line. A list
    # of samples may be a file, too.
    "read-again": ("load-once", "keep-open", "list-once", "settings-once", "read-part", "index-rows"),
    "connect-again": ("keep-open",),
    "list-again": ("list-once",),
    "whole-chunks": ("sample-chunks", "read-part"),
    "read-by-each": ("own-part",),
    "lock-contention": ("no-lock",),
    "storage-latency": ("local-copy", "pack"),
    "storage-bandwidth": ("local-copy",),
    "cpu-oversubscription": ("one-thread", "fewer-workers"),
    "gil-contention": ("workers",),
    "noisy-neighbour": ("no-neighbour",),
    "launch-bound": ("larger-batch", "forward-at-once", "loss-at-once", "evaluation-batch"),
    "sync-logging": ("log-less", "checkpoint-less", "metric-at-once"),
    "checkpoint": ("checkpoint-less",),
    "python-step": (
        "metric-at-once",
        "average-at-once",
        "forward-at-once",
        "clip-at-once",
        "loss-at-once",
        "update-at-once",
    ),
    # At a line that no rule knows: what is done there once, seldom, or for the batch at once. Only fixes with a place.
    "costly-line": (
        "cheaper-work",
        "tokenize-once",
        "parse-once",
        "to-arrays",
        "load-once",
        "keep-open",
        "list-once",
        "settings-once",
        "index-rows",
        "shallow-copy",
        "log-less",
        "collect-less",
        "checkpoint-less",
        "metric-at-once",
        "average-at-once",
        "clip-at-once",
        "forward-at-once",
        "loss-at-once",
        "update-at-once",
    ),
    "long-tail": (),
    "h2d-copy": (),
    "garbage-collection": ("collect-less",),
    "page-faults": (),
    "memory-limit": (),
    "page-cache-thrash": (),
    "healthy": (),
    "compute-bound": (),
    "unknown": (),
}
"""Candidate fixes that advice stands for. Keys are what `advice` says."""


def advice(verdict: dict[str, Any], workers: int = 0) -> str:
    """What a verdict advises, as a key of `ADVICE`; `workers` are those of the loader that it is about."""
    apply = (verdict.get("fix") or {}).get("apply") or {}
    loader = apply.get("loader") or {}
    if apply.get("feed"):
        return "feed"
    if any("THREADS" in name for name in apply.get("env") or {}):
        return "env"
    if (wanted := loader.get("num_workers")) is not None:
        return "num_workers up" if wanted > workers else "num_workers down"
    for argument in ("num_parallel_calls", "persistent_workers"):
        if argument in loader:
            return argument
    if "prefetch" in loader:
        return "prefetch"
    return str(verdict.get("id", ""))


AS_ADVISED = "as advised"
"""Name among gains of the very change that the doctor printed, or would apply from outside."""


@dataclass(frozen=True)
class Asked:
    """What a script's result is scored by."""

    gains: dict[str, float]
    """Measured gain of each candidate fix."""
    verdict: dict[str, Any]
    """The doctor's first verdict; empty for none."""
    lines: dict[str, list[int]] = field(default_factory=dict)
    """By slot, the lines of the script that are its own, from 1 on."""
    workers: dict[str, int] = field(default_factory=dict)
    """By slot, the workers of its loaders."""
    named: float | None = None
    """Measured gain of the very change that is printed, or would be applied from outside; nothing where it is none."""

    @property
    def advice(self) -> str:
        """What the verdict advises: of the loader at its place, else of the one that trains."""
        at = places(self.verdict)
        slots = [slot for slot in self.workers if at & set(self.lines.get(slot, ()))]
        return advice(self.verdict, self.workers.get((slots or ["loader"])[0], 0))


def places(verdict: dict[str, Any]) -> set[int]:
    """Lines of the script that a fix is to be made at: of the statement there. None for a place in a library."""
    place = (verdict.get("fix") or {}).get("place")
    if not place or Path(place["file"]).name != SCRIPT:
        return set()
    return set(range(place["line"], place["line"] + len((place.get("code") or "").splitlines() or [""])))


def named(asked: Asked) -> list[str]:
    """Candidate fixes that the verdict names: of those whose lines are asked for, the ones that it points at."""
    at = places(asked.verdict)
    found = []
    for name in ADVICE.get(asked.advice, ()):
        if name not in asked.gains:
            continue
        fix = FIXES[name]
        own = {line for slot in fix.slots for line in asked.lines.get(slot, ())}
        if fix.slots and not at & own and (fix.placed or at):
            continue
        found.append(name)
    return found


@dataclass(frozen=True)
class Score:
    """How a verdict compares with what was measured."""

    right: bool
    family: bool
    alarm: bool | None
    """A promised gain where no candidate gains anything; nothing where one does."""
    best: str
    """The candidate that gains most; empty if none gains."""
    best_gain: float
    named: list[str]
    promised: float | None
    """Promised gain, nothing if none."""
    actual: float | None
    """Measured gain of what was named."""
    inside: bool | None
    """Whether that lies within the 80 % interval."""
    unknown: bool
    """Whether the advice is in no table."""

    @property
    def error(self) -> float | None:
        """How far the promise is off, as a share."""
        if self.promised is None or not self.actual:
            return None
        return abs(self.promised / self.actual - 1)

    @property
    def slower(self) -> bool:
        """Whether what was printed as a fix made the script slower, by more than two runs differ."""
        return self.actual is not None and self.actual < 0.97


def pasted(source: str, verdict: dict[str, Any]) -> str | None:
    """The script with the printed change in place of the lines that it is for; nothing where it is a comment."""
    fix = verdict.get("fix") or {}
    place, change = fix.get("place"), fix.get("change") or ""
    if not places(verdict) or not place.get("code") or change.lstrip().startswith("#"):
        return None
    lines, old = source.splitlines(), place["code"].splitlines()
    begin = place["line"] - 1
    if lines[begin : begin + len(old)] != old:
        return None
    return "\n".join([*lines[:begin], *change.splitlines(), *lines[begin + len(old) :]]) + "\n"


def stated(verdict: dict[str, Any]) -> dict[str, float] | None:
    """What the report says that the fix gains: as a trial measured it, where there was one; else as promised."""
    measured: dict[str, float] = verdict.get("measured") or {}
    # Reports of before have no interval of what was measured.
    return measured if "low" in measured else verdict.get("gain")


def score(asked: Asked) -> Score:
    """Scores one."""
    verdict = asked.verdict
    gains = dict(asked.gains)
    names = named(asked)
    if asked.named is not None:
        gains[AS_ADVISED] = asked.named
    gain = stated(verdict) if verdict.get("id") not in FINE else None
    promised = gain["factor"] if gain else None
    # What is printed was run as it is, if it is more than a comment. Else, of several candidates that one piece of
    # advice stands for, the one that gains most is what it comes to.
    actual = max((gains[name] for name in names), default=None) if asked.named is None else asked.named
    most = max(gains.values(), default=1.0)
    best = max(gains, key=lambda name: gains[name], default="") if most >= WORTH else ""
    alike = [name for name, value in gains.items() if value >= WORTH and value >= most * (1 - ALIKE)]
    if best:
        right = bool(set(names) & set(alike)) or AS_ADVISED in alike
        near = {family for name in alike if name in FIXES for family in FIXES[name].families}
    else:
        right = verdict.get("id") in FINE
        near = {"healthy", "compute"}
    return Score(
        right=right,
        family=right or verdict.get("family") in near,
        alarm=None if best else promised is not None and promised >= WORTH,
        best=best,
        best_gain=most,
        named=names,
        promised=promised,
        actual=actual,
        inside=gain["low"] <= actual <= gain["high"] if gain and actual is not None else None,
        unknown=bool(verdict) and asked.advice not in ADVICE,
    )


def gains(plain: list[list[float]], fixed: dict[str, list[list[float]]]) -> dict[str, float]:
    """Gain of each fix: the median over rounds of how much longer an epoch took without it.

    `plain` and `fixed` have seconds of epochs by round; a round's runs came one after the other, so what else went on
    around them is much the same.
    """
    found = {}
    for name, rounds in fixed.items():
        pairs = [median(p) / median(f) for p, f in zip(plain, rounds) if p and f]
        if pairs:
            found[name] = median(pairs)
    return found
