"""What the results of the planted suite say: how often the doctor is right, and how far its promises hold."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median
from typing import Any

from suite import CASES, FINE, WORTH, Case

BY_SCRIPT = {case.script: case for case in CASES}


def actual(case: Case, result: dict[str, Any]) -> float | None:
    """The measured gain of the fix that the verdict asks for; of the planted cause's, if the verdict is another."""
    if not case.fixes:
        return 1.0
    verdict = ((result.get("report") or {}).get("verdict") or {}).get("id", "")
    fixed = result.get("fixed") or {}
    run = fixed.get(verdict) or fixed.get("") or fixed.get(case.accepted[0])
    return run["samples_per_s"] / result["plain"]["samples_per_s"] if run else None


def named(result: dict[str, Any]) -> float | None:
    """The measured gain of the fix that was named, if that is not the planted cause's; both runs under the doctor."""
    run = result.get("named")
    return run["samples_per_s"] / result["doctor"]["samples_per_s"] if run else None


def share(part: int, whole: int) -> str:
    """A share with the numbers it comes from."""
    return f"{part}/{whole}" + (f" ({part / whole:.0%})" if whole else "")


def judge(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each result that has a report."""
    rows = []
    for result in results:
        case = BY_SCRIPT.get(result["case"])
        verdict = (result.get("report") or {}).get("verdict")
        if case is None or "doctor" not in result:
            continue
        verdict = verdict or {}
        name, gain, true = verdict.get("id", "none"), verdict.get("gain"), actual(case, result)
        runner_up = ((result["report"] or {}).get("runner_up") or {}).get("id")
        other = named(result)
        right = case.right(name, true, other)
        outweighed = right and not case.right(name, true)
        if right and case.runner_up:
            right = runner_up in case.accepted and runner_up != name
        promised = gain["factor"] if gain and name not in FINE else 1.0
        rows.append(
            {
                "case": case,
                "seed": result["seed"],
                "near": result["near"],
                "verdict": name,
                "right": right,
                "family": case.right_family(name, verdict.get("family", ""), true, other),
                "outweighed": outweighed,
                "alarm": case.control and name not in FINE and promised >= WORTH,
                "gain": gain,
                "promised": promised,
                "actual": other if outweighed else true,
                "overhead": result["plain"]["samples_per_s"] / result["doctor"]["samples_per_s"] - 1,
                "same": result["plain"]["losses"] == result["doctor"]["losses"],
            }
        )
    return rows


def summarize(results: list[dict[str, Any]]) -> None:
    """Prints all figures."""
    rows = judge(results)
    if not rows:
        print(f"{len(results)} results, none of them with a report")
        return
    healthy = [row for row in rows if row["case"].control]
    print(f"\n{len(rows)} runs, {sum(row['near'] for row in rows)} of them near the threshold")
    for label, some in (
        ("all", rows),
        ("clear", [r for r in rows if not r["near"]]),
        ("near", [r for r in rows if r["near"]]),
    ):
        right, family = sum(r["right"] for r in some), sum(r["family"] for r in some)
        print(f"  {label:6} verdict right {share(right, len(some))}, family right {share(family, len(some))}")
    outweighed = [f"{row['case'].script}-{row['seed']}" for row in rows if row["outweighed"]]
    print(f"    of them right since the fix that was named gains more: {', '.join(outweighed) or 'none'}")
    print(f"  false alarms on healthy controls {share(sum(r['alarm'] for r in healthy), len(healthy))}")
    # A promise is compared where the verdict is right: another verdict's fix was not measured.
    told = [r for r in rows if r["right"] and r["gain"] and r["actual"] and r["case"].fixes]
    if told:
        errors = [abs(r["promised"] / r["actual"] - 1) for r in told]
        inside = sum(r["gain"]["low"] <= r["actual"] <= r["gain"]["high"] for r in told)
        print(f"  predicted against actual gain: median error {median(errors):.1%} of {len(told)}")
        print(f"  actual gain inside of the 80 % interval {share(inside, len(told))}")
    losses = [r for r in rows if r["promised"] >= WORTH and r["right"] and r["actual"] and r["actual"] < 0.98]
    print(f"  promised gains that were losses {len(losses)}: {', '.join(r['case'].script for r in losses)}")
    overheads = [r["overhead"] for r in rows if math.isfinite(r["overhead"])]
    print(f"  the doctor's own cost: median {median(overheads):+.1%}, worst {max(overheads):+.1%}")
    other = [f"{r['case'].script}-{r['seed']}" for r in rows if not r["same"]]
    print(f"  losses not the same under the doctor: {', '.join(other) or 'none'}")
    print(
        "\ncase                 right  verdicts                                 seed: promised / actual gain"
    )
    for case in CASES:
        mine = [r for r in rows if r["case"] is case]
        if not mine:
            continue
        said = ", ".join(f"{name} {n}" for name, n in Counter(r["verdict"] for r in mine).most_common())
        pairs = " ".join(f"{r['seed']}:{r['promised']:.2f}/{r['actual'] or math.nan:.2f}" for r in mine)
        print(
            f"{case.number:>3} {case.script:19} {sum(r['right'] for r in mine)}/{len(mine)}  {said:40} {pairs}"
        )
    confusion(rows)


def confusion(rows: list[dict[str, Any]]) -> None:
    """Which verdict was given where another was right; a case with several right ones counts under the first."""
    pairs = Counter((r["case"].accepted[0], r["verdict"]) for r in rows if not r["right"])
    if not pairs:
        print("\nno verdict was mistaken for another")
        return
    print("\nplanted              said                 runs")
    for (planted, said), count in pairs.most_common():
        print(f"{planted:20} {said:20} {count:4}")
