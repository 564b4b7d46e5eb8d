"""Runs of a composed script: plain, under the doctor, with each candidate fix alone, in turns.

Invariant: plain and fixed differ in the script's text, or in what stands around it, and in nothing else. All that a run
started is ended when it is over.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

DOCTOR = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(DOCTOR), str(DOCTOR / "planted")]

import material  # noqa: E402
import truth  # noqa: E402
from common import slow_reads  # noqa: E402
from companions import Surroundings, beside  # noqa: E402
from grammar import Script  # noqa: E402

SOURCES = DOCTOR.parents[1] / "python"
"""Where wellfed is, if it was built there."""

LIMIT = 240.0
"""Seconds after which a run is given up."""

START = 5.0
"""Seconds that a script takes to start, and the doctor to report, about."""

EPOCH = re.compile(r"^epoch (\d+): loss (\S+), ([0-9.]+) s$", re.M)

HOPELESS = 0.75
"""A candidate with less than this share of the best one's gain is measured once only, unless the doctor names it."""


@dataclass(frozen=True)
class Settings:
    """What all scripts of a draw are run with."""

    out: Path
    python: str
    tensorflow: str = ""
    """Interpreter with TensorFlow; empty: scripts on it are not drawn."""
    wellfed: list[str] = field(default_factory=list)
    seconds: float = 4.0
    """About how long a script trains after its first epoch."""
    rounds: int = 2
    doctor: bool = True

    def interpreter(self, script: Script) -> str:
        return self.tensorflow if script.about.kind == "tensorflow" else self.python


@dataclass
class Run:
    """What a script printed of its epochs."""

    seconds: list[float]
    losses: list[str]
    others: float
    """Cores that other processes used meanwhile."""

    @property
    def steady(self) -> list[float]:
        """Epochs after the first, which starts workers and fills caches."""
        return self.seconds[1:] or self.seconds


class FailedError(RuntimeError):
    """A script ended otherwise than it should."""


def busy_seconds() -> float:
    """CPU seconds that all cores have spent on processes so far; 0 where there is no /proc."""
    try:
        first = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system = (int(value) for value in first[:3])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def surroundings(script: Script, folder: Path) -> Iterator[Surroundings]:
    """What stands around a script."""
    limits = script.parts.get("limits")
    asked: dict[str, Any] = limits.around(script) if limits else {}  # type: ignore[attr-defined]
    around = Surroundings(dict(os.environ))
    # A change that is printed may need wellfed, which an environment of TensorFlow's need not have.
    if script.about.kind == "tensorflow" and any(SOURCES.glob("wellfed/_native*")):
        around.env["PYTHONPATH"] = os.pathsep.join(
            [str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])]
        )
    with contextlib.ExitStack() as ends:
        if slow := asked.get("slow"):
            around.env |= slow_reads(folder / "data", **slow)
        if count := asked.get("neighbours"):
            ends.enter_context(beside("neighbour.py", str(count)))
        if cores := asked.get("cores"):
            allowed = sorted(os.sched_getaffinity(0))[:cores]
            around.enter = lambda: os.sched_setaffinity(0, allowed)
        yield around


def call(
    command: list[str], script: Script, folder: Path, log: Path, more: dict[str, str] | None = None
) -> Run:
    """Runs a script, its output to a file."""
    spent, before, begin = os.times(), busy_seconds(), time.perf_counter()
    with surroundings(script, folder) as around, log.open("w") as out:
        process = subprocess.Popen(
            command, env={**around.env, **(more or {})}, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=around.enter, cwd=folder,
        )  # fmt: skip
        try:
            status = process.wait(LIMIT)
        except subprocess.TimeoutExpired as error:
            raise FailedError(f"{log.stem} took more than {LIMIT:.0f} s") from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    took = time.perf_counter() - begin
    now = os.times()
    own = now.children_user + now.children_system - spent.children_user - spent.children_system
    text = log.read_text(errors="replace")
    epochs = EPOCH.findall(text)
    if status or not epochs:
        raise FailedError(f"{log.stem} ended with {status}:\n" + "\n".join(text.splitlines()[-8:]))
    others = max(0.0, (busy_seconds() - before - own) / took)
    return Run([float(e[2]) for e in epochs], [e[1] for e in epochs], round(others, 2))


def prepare(script: Script, folder: Path, cache: Path) -> dict[str, Script]:
    """Writes a script and its fixed forms into a folder, and makes their data; gives the forms by name."""
    folder.mkdir(parents=True, exist_ok=True)
    forms = {"train": script, **{f"fix-{name}": fixed for name, fixed in script.fixes().items()}}
    (folder / "data").mkdir(exist_ok=True)
    for name, form in forms.items():
        (folder / f"{name}.py").write_text(form.source())
        for entry, make in form.data().items():
            material.ensure(cache / entry, make)
            link = folder / "data" / entry
            if not link.is_symlink():
                link.symlink_to((cache / entry).resolve())
    return forms


def lines_of(script: Script) -> dict[str, list[int]]:
    """By slot, the numbers of its lines."""
    found: dict[str, list[int]] = {}
    for number, (line, slot) in enumerate(script.lines(), 1):
        if slot and line:
            found.setdefault(slot, []).append(number)
    return found


def differ(one: str, other: str) -> bool:
    """Whether losses differ by more than another order of sums makes them."""
    a, b = float(one), float(other)
    return not math.isclose(a, b, rel_tol=0.01, abs_tol=2e-4) and not (math.isnan(a) and math.isnan(b))


def report_of(path: Path) -> dict[str, Any] | None:
    """What results keep of a report. The whole one stays beside the script, with its evidence."""
    if not path.exists():
        return None
    report = json.loads(path.read_text())
    verdicts = [report.get("verdict") or {}, report.get("runner_up") or {}, *(report.get("others") or [])]
    for verdict in verdicts:
        verdict.pop("evidence", None)
    return {key: report.get(key) for key in ("verdict", "runner_up", "others", "notes")}


def doctored(settings: Settings, script: Script, folder: Path, epochs: int, apply: Any = None) -> Run:
    """A run under the doctor, which may make a change from outside."""
    name = "applied" if apply else "doctor"
    kept, report = folder / f"{name}-run", folder / f"{name}.json"
    shutil.rmtree(kept, ignore_errors=True)
    report.unlink(missing_ok=True)
    # As in a terminal, where what can be tried is.
    trial = "--no-trial" if apply else "--trial"
    told = [
        "--no-live",
        trial,
        "--python",
        settings.interpreter(script),
        "--keep",
        str(kept),
        "--json",
        str(report),
    ]
    command = [*settings.wellfed, "doctor", "run", *told, str(folder / "train.py"), str(epochs)]
    more = {"WELLFED_DOCTOR_APPLY": json.dumps(apply), **apply.get("env", {})} if apply else None
    run = call(command, script, folder, folder / f"{name}.txt", more)
    if apply:
        shutil.rmtree(kept, ignore_errors=True)
    return run


def one(settings: Settings, script: Script, of: str) -> dict[str, Any]:
    """All runs of a script, as one line of results."""
    begin = time.monotonic()
    folder = settings.out / "scripts" / f"{of}-{script.about.seed}"
    forms = prepare(script, folder, settings.out / "data")
    python = settings.interpreter(script)
    failed: dict[str, str] = {}

    def run(name: str, epochs: int) -> Run | None:
        command = [python, str(folder / f"{name}.py"), str(epochs)]
        try:
            return call(command, forms[name], folder, folder / f"{name}.txt")
        except FailedError as error:
            if name == "train":
                raise
            failed[name.removeprefix("fix-")] = str(error)
            return None

    first = run("train", 2)
    assert first is not None
    each = max(first.seconds[-1], 1e-3)
    # Two at least after the first, unless one is long enough by itself.
    epochs = 1 + min(max(round(settings.seconds / each), 1 if each > settings.seconds else 2), 40)
    result: dict[str, Any] = {
        "set": of,
        "seed": script.about.seed,
        "parts": script.names,
        "about": {"kind": script.about.kind, "count": script.about.count, "cores": script.about.cores},
        "workers": {
            slot: part.workers  # type: ignore[attr-defined]
            for slot, part in script.parts.items()
            if hasattr(part, "workers")
        },
        "lines": lines_of(script),
        "epochs": epochs,
    }
    verdict: dict[str, Any] = {}
    watched: Run | None = None
    if settings.doctor:
        watched = doctored(settings, script, folder, epochs)
        result["report"] = report_of(folder / "doctor.json")
        verdict = (result["report"] or {}).get("verdict") or {}
    apply = (verdict.get("fix") or {}).get("apply")
    literal = truth.pasted(script.source(), verdict)
    if literal:
        forms["advised"] = script
        (folder / "advised.py").write_text(literal)

    def advised(named: list[str]) -> Run | None:
        """The change that the doctor printed, or would make from outside where it is none of the candidates."""
        if literal:
            return run("advised", epochs) if "advised" not in failed else None
        return doctored(settings, script, folder, epochs, apply) if apply and not named else None

    def named(gains: dict[str, float]) -> list[str]:
        return truth.named(truth.Asked(gains, verdict, result["lines"], result["workers"]))

    fixes = [name for name in forms if name.startswith("fix-")]
    plain, fixed, extra = in_turns(settings.rounds, lambda name: run(name, epochs), fixes, named, advised)
    result["gains"] = {name: round(gain, 4) for name, gain in gains_of(plain, fixed).items()}
    if extra:
        result["named"] = round(gains_of(plain, {"advised": extra})["advised"], 4)
    if watched:
        usual = median([median(ran.steady) for ran in plain])
        result["doctor_cost"] = round(median(watched.steady) / usual - 1, 4)
    result["other_losses"] = other_losses(script, plain, watched, fixed)
    result["seconds"] = {
        "plain": [ran.seconds for ran in plain],
        **{name.removeprefix("fix-"): [ran.seconds for ran in runs] for name, runs in fixed.items()},
    }
    result["others"] = round(median([ran.others for ran in plain]), 2)
    result["failed"] = failed
    result["took"] = round(time.monotonic() - begin, 1)
    return result


def in_turns(
    rounds: int,
    run: Callable[[str], Run | None],
    fixes: list[str],
    named: Callable[[dict[str, float]], list[str]],
    advised: Callable[[list[str]], Run | None],
) -> tuple[list[Run], dict[str, list[Run]], list[Run]]:
    """Runs plain, each fix and what was advised, again and again: the runs of each.

    `named` says which fixes the doctor named, given the gains so far; they are not left out, however little they gain.
    """
    plain: list[Run] = []
    fixed: dict[str, list[Run]] = {name: [] for name in fixes}
    extra: list[Run] = []
    left = list(fixes)
    for number in range(rounds):
        ran = run("train")
        assert ran is not None
        plain.append(ran)
        # Every other round backwards, so that what slows the machine down slows no candidate alone.
        for name in list(left)[:: -1 if number % 2 else 1]:
            if again := run(name):
                fixed[name].append(again)
            else:
                left.remove(name)
        gains = gains_of(plain, fixed)
        told = named(gains)
        if again := advised(told):
            extra.append(again)
        most = max(gains.values(), default=1.0)
        hopeless = {n for n, gain in gains.items() if gain < HOPELESS * most and n not in told}
        left = [name for name in left if name.removeprefix("fix-") not in hopeless]
    return plain, fixed, extra


def gains_of(plain: list[Run], fixed: dict[str, list[Run]]) -> dict[str, float]:
    """Gains by name of the fix."""
    return truth.gains(
        [run.steady for run in plain],
        {name.removeprefix("fix-"): [run.steady for run in runs] for name, runs in fixed.items()},
    )


def other_losses(
    script: Script, plain: list[Run], watched: Run | None, fixed: dict[str, list[Run]]
) -> list[str]:
    """Who computed other losses than the plain script: the doctor ever, a fix that must not change values."""
    found = []
    if watched and all(run.losses == plain[0].losses for run in plain) and watched.losses != plain[0].losses:
        found.append("doctor")
    for name, runs in fixed.items():
        fix = truth.FIXES[name.removeprefix("fix-")]
        # Later epochs are shuffled otherwise, where workers are kept or started anew.
        if fix.same and not script.random and runs and differ(plain[0].losses[0], runs[0].losses[0]):
            found.append(name.removeprefix("fix-"))
    return found


def expected(settings: Settings, scripts: list[Script]) -> float:
    """Seconds that scripts will take, about."""
    each = START + 1.3 * settings.seconds
    runs = sum(
        1.5 + settings.doctor + settings.rounds * (1 + 0.7 * len(script.fixes())) for script in scripts
    )
    return each * runs


def results(place: Path) -> list[dict[str, Any]]:
    """Results so far; of lines for the same script the last counts. A line that is cut off is none."""
    if not place.exists():
        return []
    lines = [json.loads(text) for text in place.read_text().splitlines() if text.endswith("}")]
    return list({(result["set"], result["seed"]): result for result in lines}.values())


def rejudged(settings: Settings, result: dict[str, Any]) -> dict[str, Any]:
    """The same result with what the doctor says of the kept run now; nothing is run."""
    folder = settings.out / "scripts" / f"{result['set']}-{result['seed']}"
    if not (folder / "doctor-run").is_dir():
        return result
    command = [
        *settings.wellfed,
        "doctor",
        "report",
        str(folder / "doctor-run"),
        "--json",
        str(folder / "doctor.json"),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise FailedError(f"{folder.name} cannot be judged again:\n{done.stderr[-500:]}")
    return {**result, "report": report_of(folder / "doctor.json")}
