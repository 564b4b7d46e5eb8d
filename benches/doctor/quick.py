"""Runs each planted script plain and fixed for a moment with little data, to see that it works: `quick.py OUT SECONDS`.

Every run is a fork of one process that imported torch, which saves the seconds that importing takes; so what is
preloaded into a new process (the slow disk) is missing here. Writes one line of JSON for each run to OUT.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from pathlib import Path

from companions import PLANTED, NotPermitted, surroundings
from suite import CASES, Case


def forked(case: Case, out: Path, env: dict[str, str], enter: object, *more: str) -> int:
    """Runs a script in a fork; gives its exit status."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    status = 1
    try:
        os.environ.update(env)
        if callable(enter):
            enter()
        with out.open("w") as file:
            os.dup2(file.fileno(), 1)
            sys.argv = [str(PLANTED / f"{case.script}.py"), "--seed", "1", "--small", *more]
            runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    import torch

    torch.set_num_threads(1)  # forks cannot use the threads of their parent
    out, seconds = Path(sys.argv[1]), sys.argv[2]
    sys.path.insert(0, str(PLANTED))
    for case in CASES:
        if case.needs != "torch":
            continue
        text = out.with_name(f"{case.script}.out")
        result: dict[str, object] = {"case": case.script, "status": forked(case, text, {}, None, "--prepare")}
        if result["status"] == 0:
            settings = json.loads(text.read_text().splitlines()[-1])
            for fixed in ("", *sorted(set(case.fixes.values()))):
                told = out.with_name(f"{case.script}-{fixed}.json")
                more = ["--seconds", seconds, *(["--fixed", fixed] if fixed else [])]
                try:
                    with surroundings(settings, fixed) as around:
                        env = {k: v for k, v in around.env.items() if k != "LD_PRELOAD"}
                        status = forked(case, text, {**env, "PLANTED_RESULT": str(told)}, around.enter, *more)
                    result[fixed or "plain"] = json.loads(told.read_text()) if status == 0 else status
                except NotPermitted as error:
                    result["left_out"] = str(error)
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
