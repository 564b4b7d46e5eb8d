"""What the doctor does to single steps: those of one watched loop, compared with each other.

    python benches/doctor/direct.py [--steps 16000] [--case NAME ...]

Every 40 steps the probe's functions are taken out of torch's classes, and put back after the next 40: by how much steps
take longer with them is what hooks cost. Steps in which a sampler looked at the stacks (and, now and then, wrote what
was noted) are compared with those in which it did not, in the same phase: that is what looks cost. Neighbouring steps
see the same machine, so that this shows tenths of a percent where whole blocks, as overhead.py compares them, differ
by several percent on a shared machine. What the other processes cost, and workers, is not in it; nor is anything that
a watched process would suffer at every step, whatever is switched off in it.

Told are percent of a step with standard errors: hooks (20 % of the phases left out on either side), in the wait for
data and in the work; looks a second, and what they cost, in the first quarter of the steps, when there are most, and
after it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from array import array
from typing import Any

import overhead

# Most steps of microseconds are not recorded in any phase: there would be nothing to compare.
CASES = [name for name, (*_, workers) in overhead.CASES.items() if not workers and "10 us" not in name]
PHASE = 40
# Steps at the begin of a phase that are not counted: the interpreter adapts to the other functions.
ADAPTING = 4


def child(case: str, steps: int) -> None:
    """Nanoseconds of each step's wait and work, and whether the probe was in it and a look fell into it."""
    import torch
    from torch.utils.data import DataLoader
    from torch.utils.data._utils.fetch import _MapDatasetFetcher
    from torch.utils.data.dataloader import _BaseDataLoaderIter

    torch.set_num_threads(1)
    _, microseconds, kind_of_work, kind, _ = overhead.CASES[case]
    work = overhead.WORK[kind_of_work]
    amount = overhead.calibrate(microseconds, work)
    data, size = overhead.make_data(kind, steps)
    waits, works, hooked, looked = (array(code, [0]) * steps for code in "qqbb")
    now = time.perf_counter_ns
    with overhead.watched():
        from wellfed_probe.stacks import SAMPLER

        batches = iter(DataLoader(data, batch_size=size))
        places = [(_BaseDataLoaderIter, "__next__"), (_MapDatasetFetcher, "fetch")]
        patched = [vars(owner)[name] for owner, name in places]
        for step in range(steps):
            if step % PHASE == 0:
                hooks = step // PHASE % 2 == 0
                for (owner, name), function in zip(places, patched):
                    setattr(owner, name, function if hooks else function.__wrapped__)
            looks = SAMPLER._looks
            begin = now()
            next(batches)
            middle = now()
            work(amount)
            works[step] = now() - middle
            waits[step] = middle - begin
            hooked[step] = hooks
            looked[step] = SAMPLER._looks != looks
        for (owner, name), function in zip(places, patched):
            setattr(owner, name, function)
    if kind == "images":
        data.path.unlink()
    columns = {"wait": waits, "work": works, "hooked": hooked, "looked": looked}
    print(json.dumps({"case": case, **{name: list(column) for name, column in columns.items()}}))


def cost_of_hooks(run: dict[str, Any], part: str) -> tuple[float, float]:
    """Nanoseconds a step, and the standard error: phases with hooks against those that follow them."""
    means = []
    for begin in range(0, len(run[part]) // PHASE * PHASE, PHASE):
        steps = range(begin + ADAPTING, begin + PHASE)
        means.append(statistics.mean(run[part][i] for i in steps if not run["looked"][i]))
    differences = sorted(a - b for a, b in zip(means[::2], means[1::2]))
    cut = len(differences) // 5
    kept = differences[cut : len(differences) - cut]
    # Tukey and McLaughlin's error of a trimmed mean: that of values pulled in to those that are kept.
    pulled_in = [kept[0]] * cut + kept + [kept[-1]] * cut
    share = len(kept) / len(differences)
    return statistics.mean(kept), statistics.stdev(pulled_in) / (share * len(differences) ** 0.5)


def cost_of_looks(run: dict[str, Any], steps: range) -> tuple[float, float, float]:
    """Looks a second; nanoseconds a step that they cost, and the standard error."""
    both = [a + b for a, b in zip(run["wait"], run["work"])]
    found: dict[tuple[int, int], list[int]] = {}
    for i in steps:
        found.setdefault((run["hooked"][i], run["looked"][i]), []).append(both[i])
    cost = variance = 0.0
    looks = 0
    for hooked in (0, 1):
        with_look, without = found.get((hooked, 1), []), found[hooked, 0]
        looks += len(with_look)
        if len(with_look) > 1:
            cost += len(with_look) * (statistics.mean(with_look) - statistics.mean(without))
            variance += len(with_look) * statistics.variance(with_look)
    seconds = sum(both[i] for i in steps) * 1e-9
    return looks / seconds, cost / len(steps), variance**0.5 / len(steps)


def tell(run: dict[str, Any]) -> None:
    """One line."""
    count = len(run["wait"])
    step = statistics.mean(a + b for a, b in zip(run["wait"], run["work"]))
    text = f"{run['case']:34}{step / 1000:8.0f}"
    for part in ("wait", "work"):
        cost, error = cost_of_hooks(run, part)
        text += f"  {100 * cost / step:+5.2f} +- {100 * error / step:4.2f}"
    for steps in (range(count // 4), range(count // 4, count)):
        rate, cost, error = cost_of_looks(run, steps)
        text += f"  {rate:5.1f}/s {100 * cost / step:+5.2f} +- {100 * error / step:4.2f}"
    print(text, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=16_000)
    parser.add_argument("--case", nargs="*", default=CASES, choices=CASES)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.steps < 40 * PHASE:
        parser.error(f"--steps: {40 * PHASE} at least, or there are no means to compare")
    if options.child:
        child(options.child, options.steps)
        return
    print(f"{'':34}{'us/step':>8}  {'hooks: wait':>14}  {'work':>14}  {'looks: first':>22}  {'later':>22}")
    for case in options.case:
        command = [sys.executable, __file__, "--child", case, "--steps", str(options.steps)]
        tell(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout))


if __name__ == "__main__":
    main()
