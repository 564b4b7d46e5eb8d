"""The tests that do more where there is a device, run there.

    python benches/gpu/tests.py --out OUT [--files FILE ...]

The end of what pytest prints is in `tests.txt`.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Any

from common import ROOT, Results, arguments

FILES = [
    "python/tests/test_gpu_augment.py",
    "python/tests/test_torch_device.py",
    "python/tests/test_torch_device_values.py",
    "python/tests/test_torch_left.py",
    "python/tests/test_torch_feed_left.py",
    "python/tests/test_handover.py::test_checks[jax_left]",
    "python/tests/test_torch_of_dataset.py",
    "python/tests/test_doctor_probe_units.py",
]


def main() -> None:
    args = arguments(__doc__, seconds=100, limit=300, files={"nargs": "*", "default": FILES})
    with Results("tests", args) as results:

        def pytest() -> dict[str, Any]:
            words = [sys.executable, "-m", "pytest", "-rfEs", "-p", "no:cacheprovider", "--tb=short"]
            running = subprocess.Popen(
                [*words, *args.files], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            try:
                out, _ = running.communicate(timeout=args.seconds)
                status = str(running.returncode)
            except subprocess.TimeoutExpired:
                # As Ctrl-C: it says what failed until then.
                running.send_signal(signal.SIGINT)
                try:
                    out, _ = running.communicate(timeout=10)
                except subprocess.TimeoutExpired:
                    running.kill()
                    out, _ = running.communicate()
                status = f"stopped after {args.seconds:g} s"
            text = out.decode(errors="replace")
            (args.out / "tests.txt").write_text(text[-40_000:])
            print("\n".join(text.splitlines()[-25:]), flush=True)
            last = text.splitlines()[-1] if text else ""
            counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)
            return {"status": status, **{word: int(number) for number, word in counts}}

        results.attempt("pytest", pytest)


if __name__ == "__main__":
    main()
