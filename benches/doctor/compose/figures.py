"""What results say: shares with confidence intervals, errors of promises, each script's truth beside what was said."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from statistics import median
from typing import Any

from truth import Asked, Score, places, score, stated

QUIET_MACHINE = 0.2
"""Cores that others may use while truth is measured."""


def asked(result: dict[str, Any]) -> Asked:
    """A line of results as it is scored."""
    return Asked(
        gains=result["gains"],
        verdict=(result.get("report") or {}).get("verdict") or {},
        lines=result["lines"],
        workers=result["workers"],
        named=result.get("named"),
    )


def told(part: int, whole: int) -> str:
    """A share with its 95 % interval, by Wilson's score."""
    from scipy.stats import binomtest

    if not whole:
        return "0 of 0"
    low, high = binomtest(part, whole).proportion_ci(0.95, "wilson")
    return f"{part} of {whole}, {part / whole:.0%} ({low:.0%} to {high:.0%})"


def middle(values: list[float]) -> str:
    """A median with its 95 % interval, by order statistics; fewer than six values have none."""
    from scipy.stats import quantile_test

    if not values:
        return "of none"
    low, high = quantile_test(values, q=median(values), p=0.5).confidence_interval(0.95)
    interval = f"({low:.1%} to {high:.1%})" if math.isfinite(low) and math.isfinite(high) else "(no interval)"
    return f"{median(values):.1%} {interval} of {len(values)}"


def said(result: dict[str, Any], which: str = "verdict") -> str:
    """What the doctor said, in few words: its `verdict` or its `runner_up`."""
    verdict = (result.get("report") or {}).get(which) or {}
    if not verdict:
        return "nothing"
    fix = verdict.get("fix") or {}
    text = str(verdict["id"])
    if (how := replace(asked(result), verdict=verdict).advice) != verdict["id"]:
        text += f" [{how}]"
    if gain := stated(verdict):
        tried = " tried" if gain is verdict.get("measured") else ""
        text += f"{tried} {gain['factor']:.2f} ({gain['low']:.2f}-{gain['high']:.2f})"
    if place := fix.get("place"):
        at = places(verdict)
        slots = [slot for slot, lines in result["lines"].items() if at & set(lines)]
        where = "+".join(slots) or ("no production's line" if at else place["file"].split("/")[-1])
        text += f" at line {place['line']} ({where})"
    return text


def name(result: dict[str, Any]) -> str:
    """Such as `open-7`."""
    return f"{result['set']}-{result['seed']}"


def line(result: dict[str, Any], scored: Score) -> str:
    """A script's truth and what was said of it."""
    truth = ", ".join(
        f"{name} {gain:.2f}" for name, gain in sorted(result["gains"].items(), key=lambda g: -g[1])
    )
    mark = "right " if scored.right else "family" if scored.family else "WRONG "
    actual = f", which gains {scored.actual:.2f}" if scored.actual is not None else ""
    parts = [part for part in result["parts"].values() if part not in QUIET]
    return (
        f"{name(result):9} {mark} {'+'.join(parts)}\n"
        f"      truth: {truth or 'no candidate'}\n"
        f"      said:  {said(result)}{actual}; then {said(result, 'runner_up')}"
    )


QUIET = frozenset(
    {
        *("Torch", "Dataflow", "Kept", "NotCoded", "NoWork", "Default"),
        *("NoLog", "NoCallback", "NoEvaluation", "NoLimits"),
    }
)
"""Productions that are the absence of something, which a line need not name."""


def summary(results: list[dict[str, Any]], lines: bool = True) -> str:
    """All figures as text."""
    pairs = [(result, score(asked(result))) for result in results if result.get("report")]
    if not pairs:
        return f"{len(results)} results, none of them with a report"
    scores = [scored for _, scored in pairs]
    healthy = [s for s in scores if s.alarm is not None]
    errors = [s.error for s in scores if s.error is not None]
    inside = [s.inside for s in scores if s.inside is not None]
    slower = [(result, s) for result, s in pairs if s.slower]
    alarms = [(result, s) for result, s in pairs if s.alarm]
    other = [result for result in results if result.get("other_losses")]
    strange = Counter(asked(result).advice for result, s in pairs if s.unknown)
    costs = [result["doctor_cost"] for result in results if result.get("doctor_cost") is not None]
    busy = [result["others"] for result in results if result.get("others") is not None]
    right, gaining = sum(s.right for s in scores), [s for s in scores if s.best]
    text = [
        f"{len(pairs)} scripts with a report; shares and medians with 95 % intervals",
        f"  right (the fix that gains most, or one within 5 % of it): {told(right, len(scores))}",
        f"  family right: {told(sum(s.family for s in scores), len(scores))}",
        f"  right where something gains: {told(sum(s.right for s in gaining), len(gaining))}",
        f"  false alarms where no candidate gains 5 %: {told(sum(bool(s.alarm) for s in healthy), len(healthy))}",
        f"  error of promised gains: median {middle(errors)}",
        f"  measured gains inside of the 80 % interval: {told(sum(inside), len(inside))}",
        f"  named fixes that made the script slower than 0.97: {len(slower)}",
        *([f"  the doctor's own cost: median {median(costs):+.1%}"] if costs else []),
    ]
    if busy and median(busy) > QUIET_MACHINE:
        text.append(
            f"  others used {median(busy):.2f} cores meanwhile: these figures are a look, and no more"
        )
    if other:
        told_of = (f"{name(r)} {', '.join(r['other_losses'])}" for r in other)
        text.append(f"  LOSSES THAT DIFFER: {'; '.join(told_of)}")
    if strange:
        text.append(f"  ADVICE THAT IS IN NO TABLE: {', '.join(f'{key} {n}' for key, n in strange.items())}")
    if broken := [name(r) for r in results if "advised" in r.get("failed", {})]:
        text.append(f"  PRINTED CHANGES THAT DO NOT RUN: {', '.join(broken)}")
    if failed := [f"{name(r)} {fix}" for r in results for fix in r.get("failed", {}) if fix != "advised"]:
        text.append(f"  candidates that did not run: {', '.join(failed)}")
    for title, some in (("Slower by what was named", slower), ("False alarms", alarms)):
        if some:
            text += ["", f"{title}:", *(line(result, s) for result, s in some)]
    if lines:
        text += ["", "All scripts:", *(line(result, s) for result, s in pairs)]
    text += ["", *by_production(pairs)]
    return "\n".join(text)


def by_production(pairs: list[tuple[dict[str, Any], Score]]) -> list[str]:
    """How often the doctor is right by production that stands in a script."""
    seen: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for result, s in pairs:
        for name in set(result["parts"].values()) - QUIET:
            seen[name] += 1
            right[name] += s.right
    return [
        "Right by production:",
        *(f"  {name:18} {right[name]:3} of {n}" for name, n in sorted(seen.items())),
    ]
