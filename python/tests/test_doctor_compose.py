"""The composed suite of the doctor: its scripts compile and run, a fix changes what it is about, scores count right."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

COMPOSE = Path(__file__).resolve().parents[2] / "benches" / "doctor" / "compose"
if not COMPOSE.is_dir():
    pytest.skip("the suite is not part of an installed package", allow_module_level=True)
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the suite uses Linux's processes")


def module(name: str) -> ModuleType:
    """A module of the suite, as its own scripts import it."""
    if str(COMPOSE) not in sys.path:
        sys.path.insert(0, str(COMPOSE))
    return importlib.import_module(name)


grammar, drawing, truth, figures = (module(n) for n in ("grammar", "drawing", "truth", "figures"))
SEEDS = range(800)


@pytest.fixture(scope="module")
def scripts() -> list[tuple[str, Any]]:
    """Scripts of both sets, also on TensorFlow, with the set each is of."""
    return [(of, drawing.draw(seed, of, dataflow=True, cores=2)) for of in ("open", "kept") for seed in SEEDS]


def test_every_production_is_drawn_and_compiles(scripts: list[tuple[str, Any]]) -> None:
    seen = set()
    for of, script in scripts:
        compile(script.source(), f"{of}-{script.about.seed}", "exec")
        seen |= {type(part) for part in script.parts.values()}
    # OpenCV, torchvision and others may not be there.
    there = {part for part in drawing.productions() if all(map(importlib.util.find_spec, part.needs))}
    assert {part.__name__ for part in there - seen} == set()


def test_every_fix_is_known_changes_the_script_and_compiles(scripts: list[tuple[str, Any]]) -> None:
    seen = set()
    for of, script in scripts:
        source, lines = script.source(), [line for line, _ in script.lines()]
        assert len(lines) < 180
        for name, fixed in script.fixes().items():
            seen.add(name)
            assert name in truth.FIXES
            assert script.replaced(name)
            compile(fixed.source(), f"{of}-{script.about.seed}-{name}", "exec")
            around = set(script.replaced(name)) == {"limits"}
            assert (fixed.source() == source) == around
            assert fixed.parts != script.parts
    assert seen == set(truth.FIXES)


def test_a_seed_is_one_script() -> None:
    for of in ("open", "kept"):
        drawn = [drawing.draw(seed, of, cores=2) for seed in range(20)]
        again = [drawing.draw(seed, of, cores=2) for seed in range(20)]
        assert [script.source() for script in drawn] == [script.source() for script in again]
        assert len({script.source() for script in drawn}) == 20
        for one, other in zip(drawn, (drawing.draw(seed, of, True, 2) for seed in range(20))):
            assert other.about.kind == "tensorflow" or other.source() == one.source()
    assert drawing.draw(0, "open", cores=2).source() != drawing.draw(0, "kept", cores=2).source()
    with pytest.raises(ValueError, match="neither open nor kept"):
        drawing.draw(0, "both")


def test_kept_and_open_are_disjoint(scripts: list[tuple[str, Any]]) -> None:
    own = {of: {p for p in drawing.productions() if p.of == of} for of in ("open", "kept")}
    # Who develops rules need not see the kept ones: they lie apart.
    assert all((p.of == "kept") == p.__module__.startswith("kept_") for p in drawing.productions())
    for slot in ("storage", "access", "work", "collate", "loader", "step", "logging", "evaluation", "limits"):
        numbers = [sum(part.slot == slot for part in own[of]) for of in ("open", "kept")]
        # The open set grows by what was kept before, each time.
        assert 0.25 <= numbers[1] / numbers[0] <= 2.5
    for of, script in scripts:
        other = own["kept" if of == "open" else "open"]
        # Not even a fix shows what is kept.
        for form in (script, *script.fixes().values()):
            assert not {type(part) for part in form.parts.values()} & other


def test_lines_know_who_wrote_them() -> None:
    for seed in range(30):
        script = drawing.draw(seed, "open", cores=2)
        by_slot: dict[str, list[str]] = {}
        for line, slot in script.lines():
            by_slot.setdefault(slot, []).append(line)
        assert any("DataLoader(" in line for line in by_slot["loader"])
        assert "    for epoch in range(EPOCHS):" in by_slot[""]
        parts = {slot: part for slot, part in script.parts.items() if slot != "storage"}
        silent = {slot for slot, part in parts.items() if type(part).write is grammar.Production.write}
        assert not silent & set(by_slot)


RUN_ALL = """
import contextlib, io, json, runpy, sys, warnings
warnings.simplefilter("ignore")
import torch
torch.set_num_threads(1)
told = {}
for path in sys.argv[1:]:
    out, argv = io.StringIO(), sys.argv
    sys.argv = [path, "1"]
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(path, run_name="__main__")
        told[path] = out.getvalue()
    except Exception as error:
        told[path] = f"{type(error).__name__}: {error}"
    sys.argv = argv
print(json.dumps(told))
"""


def test_scripts_run_and_fixes_change_no_losses(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    running = module("running")
    forms: dict[Path, tuple[Any, str]] = {}
    for of, seed in SAMPLE:
        script = drawing.draw(seed, of, cores=2, small=True)
        folder = tmp_path / f"{of}-{seed}"
        for name in running.prepare(script, folder, tmp_path / "data"):
            forms[folder / f"{name}.py"] = (script, name)
    command = [sys.executable, "-c", RUN_ALL, *map(str, forms)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout.splitlines()[-1])
    for path, (script, name) in forms.items():
        epochs = running.EPOCH.findall(told[str(path)])
        assert len(epochs) == 1, f"{path.parent.name} {name}: {told[str(path)]}"
        plain = running.EPOCH.findall(told[str(path.parent / "train.py")])
        if name != "train" and truth.FIXES[name.removeprefix("fix-")].same and not script.random:
            assert not running.differ(plain[0][1], epochs[0][1]), f"{path.parent.name} {name}"


SAMPLE = (("open", 320), ("open", 589), ("kept", 548))
"""Few scripts, with as many productions and fixes as they can have."""


LINES = {"work": [5, 6], "access": [9], "logging": [20], "loader": [30, 31], "evaluation": [40]}


def asked(
    gains: dict[str, float], verdict: str, line: int = 0, gain: tuple | None = None, **more: Any
) -> Any:
    """A made-up result."""
    apply, file, code = more.pop("apply", None), more.pop("file", "/at/train.py"), more.pop("code", "")
    told = {
        "id": verdict,
        "family": more.pop("family", "cpu"),
        "fix": {"apply": apply, "place": {"file": file, "line": line, "code": code} if line else None},
        "gain": dict(zip(("factor", "low", "high"), gain)) if gain else None,
    }
    return truth.Asked(gains, told, LINES, **more)


def test_the_fix_that_gains_most_is_right_and_one_that_is_alike() -> None:
    gains = {"cheaper-work": 2.0, "uncompressed": 1.95, "feed": 1.2}
    best = truth.score(asked(gains, "augment", 5, (1.8, 1.5, 2.2)))
    assert (best.right, best.family, best.best, best.named) == (True, True, "cheaper-work", ["cheaper-work"])
    assert best.error == pytest.approx(0.1)
    assert best.inside is True
    assert best.alarm is None
    assert truth.score(asked(gains, "decompress", 0, (1.8, 1.5, 1.9))).right
    assert truth.score(asked(gains, "decompress", 0, (1.8, 1.5, 1.9))).inside is False
    worse = truth.score(asked(gains, "augment", 0, (1.3, 1.2, 1.4), apply={"feed": True}))
    assert (worse.right, worse.family, worse.named, worse.actual) == (False, True, ["feed"], 1.2)


def test_an_edit_must_be_at_the_lines_of_what_it_repairs() -> None:
    gains = {"cheaper-work": 2.0, "keep-open": 1.5, "log-less": 1.0}
    assert truth.score(asked(gains, "python-overhead", 6)).named == ["cheaper-work"]
    assert truth.score(asked(gains, "python-overhead", 9)).named == ["keep-open"]
    assert truth.score(asked(gains, "python-overhead", 1)).named == []
    assert truth.score(asked(gains, "python-overhead")).right is False
    # A statement of several lines, and a line of a library that happens to have the number.
    assert truth.score(asked(gains, "python-overhead", 4, code="a = (\n    1\n)")).named == ["cheaper-work"]
    assert truth.score(asked(gains, "python-overhead", 6, file="/lib/PIL/ImageFile.py")).named == []


def test_the_loader_that_is_named_counts() -> None:
    gains = {"workers": 1.2, "evaluation-workers": 1.9}
    apply = {"loader": {"num_workers": 2}}
    assert truth.score(asked(gains, "serial-loading", 30, apply=apply)).named == ["workers"]
    assert truth.score(asked(gains, "serial-loading", 40, apply=apply)).named == ["evaluation-workers"]
    assert truth.score(asked(gains, "serial-loading", apply=apply)).named == ["workers"]
    workers = {"loader": 2, "evaluation": 0}
    assert asked(gains, "x", 40, apply=apply, workers=workers).advice == "num_workers up"
    assert asked(gains, "x", 30, apply=apply, workers=workers).advice == "num_workers down"


def test_what_is_printed_is_pasted_where_it_belongs() -> None:
    source = "a = 1\nb = f(\n    2,\n)\nc = 3\n"
    fix = {
        "change": "b = f(\n    2, 3\n)",
        "place": {"file": "x/train.py", "line": 2, "code": "b = f(\n    2,\n)"},
    }
    assert truth.pasted(source, {"fix": fix}) == "a = 1\nb = f(\n    2, 3\n)\nc = 3\n"
    for other in ({"change": "# f(2, 3)"}, {"place": None}, {"place": {**fix["place"], "line": 1}}):
        assert truth.pasted(source, {"fix": {**fix, **other}}) is None
    gains = {"workers": 1.5, "feed": 1.1}
    literal = asked(
        gains, "serial-loading", 30, (1.6, 1.2, 1.9), apply={"loader": {"num_workers": 1}}, named=0.9
    )
    # The kind of fix is the right one, and the very change that is printed is not.
    assert (truth.score(literal).right, truth.score(literal).actual, truth.score(literal).slower) == (
        True,
        0.9,
        True,
    )


def test_what_a_fix_sets_tells_what_it_is() -> None:
    def advice(workers: int, **apply: Any) -> str:
        return truth.advice({"id": "serial-loading", "fix": {"apply": apply}}, workers)

    assert advice(0, loader={"num_workers": 2}) == "num_workers up"
    assert advice(8, loader={"num_workers": 2}) == "num_workers down"
    assert advice(0, env={"OMP_NUM_THREADS": "1"}) == "env"
    assert advice(0, feed=True) == "feed"
    assert advice(0) == "serial-loading"
    # The variable is not the call that overrides it.
    overridden = asked({"one-thread": 2.0}, "x", apply={"env": {"OMP_NUM_THREADS": "1"}}, named=0.9)
    assert truth.score(overridden).right is False
    assert truth.score(overridden).slower


def test_alarms_healthy_ones_and_advice_that_nobody_listed() -> None:
    nothing = {"feed": 1.01, "workers": 0.9}
    healthy = truth.score(asked(nothing, "healthy", family="healthy"))
    assert (healthy.right, healthy.alarm, healthy.best) == (True, False, "")
    false = truth.score(asked(nothing, "x", gain=(1.5, 1.2, 1.9), apply={"loader": {"num_workers": 4}}))
    assert (false.right, false.alarm, false.slower, false.actual) == (False, True, True, 0.9)
    # What the doctor applied from outside gained, though no candidate is that: no false alarm.
    other = asked(
        nothing, "long-tail", gain=(1.5, 1.2, 1.9), apply={"loader": {"prefetch_factor": 8}}, named=1.5
    )
    assert (truth.score(other).right, truth.score(other).alarm) == (True, None)
    assert truth.score(asked(nothing, "a-new-verdict")).unknown
    assert {name for names in truth.ADVICE.values() for name in names} <= set(truth.FIXES)


def test_gains_are_of_rounds_that_ran_beside_each_other() -> None:
    plain, fixed = [[2.0, 2.2], [4.0, 4.0], [2.0, 2.0]], {"a": [[1.0, 1.1], [2.0, 2.0], [1.0, 1.0]], "b": []}
    assert truth.gains(plain, fixed) == {"a": pytest.approx(2.0)}


def test_intervals_and_figures() -> None:
    pytest.importorskip("scipy")
    assert figures.told(5, 10) == "5 of 10, 50% (24% to 76%)"
    assert figures.told(0, 10) == "0 of 10, 0% (0% to 28%)"
    assert figures.told(0, 0) == "0 of 0"
    # Of ten values the second and the ninth: 1 - 2 * 11 / 1024 of the time the median lies between them.
    assert figures.middle([i / 100 for i in range(1, 11)]) == "5.5% (2.0% to 9.0%) of 10"
    assert figures.middle([0.1, 0.2]) == "15.0% (no interval) of 2"

    def result(seed: int, gains: dict[str, float], verdict: Any) -> dict[str, Any]:
        return {
            "set": "open",
            "seed": seed,
            "parts": {"work": "SolarizeLoop", "access": "Kept"},
            "gains": gains,
            "lines": {"work": [5]},
            "workers": {"loader": 2},
            "report": {"verdict": verdict.verdict},
            "doctor_cost": 0.01,
            "others": 0.5,
        }

    some = [
        result(0, {"cheaper-work": 2.0}, asked({}, "augment", 5, (2.2, 1.8, 2.4))),
        result(1, {"cheaper-work": 2.0}, asked({}, "storage-latency", 0, (2.0, 1.8, 2.4), family="storage")),
        result(2, {"feed": 0.9}, asked({}, "augment", 0, (1.5, 1.2, 2.0), apply={"feed": True})),
        result(3, {"feed": 1.0}, asked({}, "healthy", family="healthy")),
    ]
    text = figures.summary(some)
    assert "within 5 % of it): 2 of 4, 50% (15% to 85%)" in text
    assert "no candidate gains 5 %: 1 of 2, 50%" in text
    assert "slower than 0.97: 1" in text
    assert "inside of the 80 % interval: 1 of 2" in text
    assert "others used 0.50 cores" in text
    assert "open-1    WRONG  SolarizeLoop" in text
    assert "augment [feed] 1.50 (1.20-2.00), which gains 0.90" in text


def test_runs_come_in_turns_and_hopeless_ones_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = module("running")
    script = drawing.draw(SAMPLE[0][1], SAMPLE[0][0], cores=2, small=True)
    fixes = list(script.fixes())
    best, hopeless = fixes[0], fixes[1]
    calls: list[str] = []

    def call(command: list[str], script: Any, folder: Path, log: Path, more: Any = None) -> Any:
        calls.append(log.stem)
        seconds = {f"fix-{best}": 0.5, f"fix-{hopeless}": 2.0}.get(log.stem, 1.0)
        return running.Run([9.0] + [seconds] * (int(command[-1]) - 1), ["0.5"] * int(command[-1]), 0.0)

    monkeypatch.setattr(running, "call", call)
    monkeypatch.setattr(
        running, "prepare", lambda s, *_: {"train": s, **{f"fix-{n}": f for n, f in s.fixes().items()}}
    )
    settings = running.Settings(tmp_path, sys.executable, seconds=3.0, rounds=2, doctor=False)
    result = running.one(settings, script, "open")
    assert result["epochs"] == 4
    assert result["gains"][best] == 2.0
    assert result["gains"][hopeless] == 0.5
    assert calls.count("train") == 3
    assert calls.count(f"fix-{best}") == 2
    assert calls.count(f"fix-{hopeless}") == 1
    assert json.loads(json.dumps(result)) == result


def test_what_a_script_prints_is_read_and_a_cut_line_is_no_result(tmp_path: Path) -> None:
    running = module("running")
    script = drawing.draw(0, "open", cores=2, small=True).having({"limits": module("limits").NoLimits()})
    path = tmp_path / "train.py"
    path.write_text(
        "import sys\nfor e in range(int(sys.argv[1])):\n    print(f'epoch {e}: loss 0.500000, 0.1 s')\n"
    )
    run = running.call([sys.executable, str(path), "3"], script, tmp_path, tmp_path / "log.txt")
    assert (run.seconds, run.losses, run.steady) == ([0.1] * 3, ["0.500000"] * 3, [0.1] * 2)
    path.write_text("raise SystemExit(3)")
    with pytest.raises(running.FailedError, match="ended with 3"):
        running.call([sys.executable, str(path), "3"], script, tmp_path, tmp_path / "log.txt")
    place = tmp_path / "results.jsonl"
    lines = [
        {"set": "open", "seed": 1, "x": 1},
        {"set": "kept", "seed": 1},
        {"set": "open", "seed": 1, "x": 2},
    ]
    place.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"set": "open", "se')
    assert running.results(place) == [lines[2], lines[1]]
