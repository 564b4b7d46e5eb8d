"""What other profilers say of the planted scripts: torch.profiler, gpuprof, traceml (`traceml-ai`) and loadtune.

    python benches/doctor/rivals.py --cases all --seeds 0 --setup

Their whole text is kept in `.bench/doctor/rivals/<case>-<seed>/<rival>.txt`. Whether it names the planted cause is
judged by the words below: generous to the rival, for a word anywhere in its text counts. Only the scripts on PyTorch
are run: none of the four looks at TensorFlow.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from companions import PLANTED, NotPermitted, prepare, surroundings
from suite import CASES, Case, chosen

from run import LIMIT, ROOT, call, numbers

BENCH = ROOT / ".bench" / "doctor"
VENV = BENCH / "venv-rivals"
DRIVER = Path(__file__).resolve().parent / "rival_driver.py"
NAMES = ("torch.profiler", "gpuprof", "traceml", "loadtune")

WORDS = {
    "serial-loading": r"(increase|raise|more|add|set|try|use)\W+(\w+\W+){0,4}(num_)?workers|SingleProcess"
    r"|best: workers=[1-9]",
    "decode": r"decod|jpe?g|Image",
    "augment": r"augment|transform|solarize|blur",
    "python-overhead": r"per-sample|python overhead",
    "decompress": r"decompress|gzip|bz2|lzma|zlib",
    "storage-latency": r"storage (latency|throughput)|I/O[- ]bound|slow (disk|storage)|disk hot",
    "storage-bandwidth": r"storage (bandwidth|throughput)|I/O[- ]bound|slow (disk|storage)|disk hot",
    "network": r"network|http|download",
    "small-files": r"small files|many files|tiny files|pack(ed)? (the )?files|shards?\b",
    "page-cache-thrash": r"page cache|cache thrash|cold[- ]cache",
    "memory-limit": r"memory (limit|pressure)|swap|cgroup",
    "cpu-oversubscription": r"oversubscri|OMP_NUM_THREADS|thread contention|too many threads",
    "worker-restart": r"persistent_workers|best: .*\bpersistent\b",
    "collate": r"collate",
    "ipc": r"hand-?over|shared memory|\bIPC\b",
    "long-tail": r"long tail|tail latency|straggler|slow sample|imbalance",
    "h2d-copy": r"host[- ]to[- ]device|\bH2D\b.*(cause|bound)|pin_memory|non_blocking|pageable",
    "launch-bound": r"launch[- ](bound|overhead)|small batch|larger batch|batch size|CUDA graphs?",
    "sync-logging": r"\.item\(\)|synchroni[sz]|logging",
    "noisy-neighbour": r"other process|neighbou?r|steal|contention from",
    "compute-bound": r"compute[- ]bound|no major bottleneck|baseline looks fine|balanced|healthy",
    "healthy": r"no major bottleneck|baseline looks fine|balanced|healthy|compute[- ]bound",
}
KILLED = "ended by signal"
INPUT = (
    r"waiting on the loader|input[- ]bound|mildly contended|Input Wait took|DataLoaderIter"
    r"|data[- ]?(loader)?[- ]?(stall|wait)(?! \(?\d)"  # a share of the time blames nothing yet
)
"""Says at least that the input is to blame."""


def setup(python: str) -> None:
    """A virtual environment of their own, beside the packages of `python`."""
    if (VENV / "ready").exists():
        return
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    subprocess.run([python, "-m", "venv", str(VENV)], check=True)
    own = subprocess.run(
        [str(VENV / "bin" / "python"), "-c", where], capture_output=True, text=True, check=True
    )
    Path(own.stdout.strip(), "torch.pth").write_text(f"{site}\n")
    pip = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "gpuprof[host]", "traceml-ai", "loadtune"], check=True)
    (VENV / "ready").touch()


def ask(
    name: str, case: Case, seed: int, args: argparse.Namespace, kept: Path, settings: dict[str, Any]
) -> str:
    """Runs the script under one rival; gives its text."""
    python = str(VENV / "bin" / "python")
    # The last decides itself how long it looks at a loop.
    seconds = 2 * LIMIT if name == "loadtune" else args.seconds or case.time(seed)
    told = ["--seed", str(seed), "--seconds", str(seconds)]
    script = [str(PLANTED / f"{case.script}.py"), *told]
    command = [python, str(DRIVER), name, *script]
    if name == "traceml":
        logs = kept / "traceml-logs"
        shutil.rmtree(logs, ignore_errors=True)
        command = [
            str(VENV / "bin" / "traceml"),
            "run",
            "--logs-dir",
            str(logs),
            str(DRIVER),
            "--args",
            name,
            *script,
        ]
    text = kept / f"{name}.txt"
    with surroundings(settings, "") as around:
        env = {
            **around.env,
            "PLANTED_RESULT": str(kept / f"{name}.json"),
        }
        status = call(command, env, text, around.enter, kept)
    if status < 0:
        with text.open("a") as file:
            file.write(f"\n{KILLED} {-status}\n")
    return text.read_text(errors="replace")


def judged(case: Case, text: str) -> str:
    """`cause`, `input` (the input is blamed, not the cause), `nothing`, or `failed`."""
    text = text.replace(case.script, "")  # paths tell what is planted
    if not text.strip() or "Traceback (most recent call last)" in text or KILLED in text:
        return "failed"
    if any(re.search(WORDS[verdict], text, re.IGNORECASE) for verdict in case.accepted):
        return "cause"
    return "input" if re.search(INPUT, text, re.IGNORECASE) else "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", default="all")
    parser.add_argument("--seeds", type=numbers, default=[0])
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter with torch, whose packages they use"
    )
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument(
        "--setup", action="store_true", help="install them first, into an environment of their own"
    )
    parser.add_argument("--only", default=",".join(NAMES))
    parser.add_argument("--rejudge", action="store_true", help="only judge the kept texts again")
    args = parser.parse_args()
    if args.setup:
        setup(args.python)
    rows: dict[str, dict[str, str]] = {}
    for case in (c for c in chosen(args.cases) if c.needs == "torch"):
        for seed in args.seeds:
            kept = BENCH / "rivals" / f"{case.script}-{seed}"
            kept.mkdir(parents=True, exist_ok=True)
            script = [args.python, str(PLANTED / f"{case.script}.py"), "--seed", str(seed)]
            settings = {} if args.rejudge else prepare(script)
            row = rows.setdefault(f"{case.number} {case.script}-{seed}", {})
            for name in args.only.split(","):
                place = kept / f"{name}.txt"
                try:
                    text = (
                        place.read_text(errors="replace")
                        if args.rejudge
                        else ask(name, case, seed, args, kept, settings)
                    )
                    row[name] = judged(case, text)
                except (NotPermitted, OSError, RuntimeError, subprocess.TimeoutExpired) as error:
                    row[name] = "failed"
                    print(f"{case.script} {name}: {error}", file=sys.stderr)
            print(
                f"{case.number:>3} {case.script:20} {seed}  "
                + "  ".join(f"{n}: {w}" for n, w in row.items()),
                flush=True,
            )
    (BENCH / "rivals" / "result.json").write_text(json.dumps(rows, indent=1))
    print(f"\nof {len(rows)} runs ({len(CASES)} cases there are), the cause was named by")
    for name in args.only.split(","):
        said = [row.get(name, "failed") for row in rows.values()]
        other = f"only the input blamed {said.count('input')}, failed {said.count('failed')}"
        print(f"  {name:15} {said.count('cause')}; {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
