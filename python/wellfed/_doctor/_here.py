"""`doctor()`: the diagnosis of a part of the program that runs, from inside.

The probe is that of `wellfed doctor run`, which finds the modules it patches imported already. The machine is watched
by a process of its own, so that it sees a thread that holds the interpreter. Invariant: what runs inside of the `with`
block gives and raises what it would without; what goes wrong with the diagnosis is said in its text.
"""

from __future__ import annotations

import html
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Diagnosis", "doctor"]

_INJECT = Path(__file__).parent / "inject"
_COMMAND = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); from wellfed.__main__ import main; sys.exit(main())"
)
# Seconds for the process beside us to write what it saw, and for the report.
_PATIENCE = 60


class Diagnosis:
    """What the doctor says of the ``with`` block; empty until that ends.

    Attributes:
        data: The report as `wellfed doctor run --json` writes it; docs/doctor-json.md describes it.
        text: The report as the terminal shows it.
    """

    def __init__(self, quiet: bool) -> None:
        self.data: dict[str, Any] = {}
        self.text = ""
        self._page = ""
        self._quiet = quiet
        self._directory = ""
        self._watcher: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str | None] = {}
        self._begin = 0
        self._probe: Any = None

    @property
    def verdict(self) -> dict[str, Any]:
        """What holds the loop up most: `id`, `title`, `evidence`, `fix`, `gain`."""
        found: dict[str, Any] = self.data.get("verdict") or {}
        return found

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report as a page for browsers, or as JSON if the name ends in ``.json``."""
        text = json.dumps(self.data, indent=2) if os.fspath(path).endswith(".json") else self._page
        Path(path).write_text(text, encoding="utf-8")

    def __enter__(self) -> Diagnosis:
        self._directory = tempfile.mkdtemp(prefix="wellfed-doctor-")
        self._probe = probe()
        if not self._probe.start(self._directory):
            self._probe = None
            shutil.rmtree(self._directory, ignore_errors=True)
            self.text = "This process is under the doctor already: the report will be that one's."
            return self
        self._begin = time.monotonic_ns()
        # Workers that are not forked find the probe this way.
        others = os.environ.get("PYTHONPATH")
        path = str(_INJECT) if not others else f"{_INJECT}{os.pathsep}{others}"
        for name, value in (("WELLFED_DOCTOR_DIR", self._directory), ("PYTHONPATH", path)):
            self._environment[name] = os.environ.get(name)
            os.environ[name] = value
        with suppress(OSError):  # The report says that nobody watched.
            self._watcher = subprocess.Popen(
                self._command(
                    "doctor", "attach", str(os.getpid()), os.path.join(self._directory, "system.json")
                ),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=self._plain(),
                start_new_session=True,
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._probe is None:
            return
        reason, text = "finished", None
        if error is not None:
            reason = "interrupt" if isinstance(error, KeyboardInterrupt) else "exception"
            text = f"{type(error).__qualname__}: {error}"
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        try:
            self._probe.stop(reason, text)
            self._watched()
            self._write_run(reason, text)
            self._report()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)
        if not self._quiet:
            print(self.text, file=sys.stderr)

    @staticmethod
    def _command(*words: str) -> list[str]:
        return [sys.executable, "-c", _COMMAND, str(Path(__file__).parents[2]), *words]

    def _plain(self) -> dict[str, str]:
        """The environment without what the probe needs."""
        env = {name: value for name, value in os.environ.items() if name not in self._environment}
        env.update({name: value for name, value in self._environment.items() if value is not None})
        return env

    def _watched(self) -> None:
        """Has the process beside us write what it saw."""
        watcher, self._watcher = self._watcher, None
        if watcher is not None:
            try:
                watcher.communicate(timeout=_PATIENCE)
            except subprocess.TimeoutExpired:
                watcher.kill()
                watcher.communicate()
        path = Path(self._directory, "system.json")
        if not path.exists():
            path.write_text(
                json.dumps({"missing": ["the machine: it could not be watched"]}), encoding="utf-8"
            )

    def _write_run(self, reason: str, exception: str | None) -> None:
        run = {
            "command": getattr(sys, "orig_argv", None) or sys.argv,
            "pid": os.getpid(),
            "t0": self._begin,
            "t1": time.monotonic_ns(),
            "exit": {"code": None, "signal": None, "reason": reason, "exception": exception},
        }
        Path(self._directory, "run.json").write_text(json.dumps(run), encoding="utf-8")

    def _report(self) -> None:
        data, page = Path(self._directory, "report.json"), Path(self._directory, "report.html")
        command = self._command("doctor", "report", self._directory, "--json", str(data), "--html", str(page))
        try:
            done = subprocess.run(
                command,
                env=self._plain(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
            )
            self.text = done.stderr.decode(errors="replace").strip()
            self.data = json.loads(data.read_text(encoding="utf-8"))
            self._page = page.read_text(encoding="utf-8")
        except (OSError, ValueError, subprocess.TimeoutExpired) as e:
            self.text = f"{self.text}\nThe doctor could not report: {e}".strip()

    def __repr__(self) -> str:
        return self.text or "<wellfed.doctor(): nothing seen yet>"

    def _repr_html_(self) -> str:
        if not self._page:
            return f"<pre>{html.escape(repr(self))}</pre>"
        # In a frame, so that its styles are its own.
        page = html.escape(self._page, quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 40em; border: 0"></iframe>'


def probe() -> Any:
    """The package of the probe, which is on no path."""
    found = sys.modules.get("wellfed_probe")
    if found is None:
        sys.path.insert(0, str(_INJECT))
        try:
            import wellfed_probe as found  # type: ignore[import-not-found, no-redef, unused-ignore]
        finally:
            sys.path.remove(str(_INJECT))
    return found


def doctor(quiet: bool = False) -> Diagnosis:
    """Watches the training loop inside of a ``with`` block, and says what holds it up.

    Loaders made and epochs begun inside of the block are seen, with their workers; so are epochs inside of it over
    loaders that were made before. The report goes to standard error when the block ends; what the block raises is
    raised.

    Args:
        quiet: Whether nothing is printed.

    Example:
        >>> import torch, wellfed
        >>> from torch.utils.data import DataLoader
        >>> with wellfed.doctor(quiet=True) as diagnosis:
        ...     for batch in DataLoader(torch.arange(64), batch_size=8):
        ...         pass
        >>> diagnosis.data["schema"]
        'wellfed.doctor/1'
        >>> diagnosis.data["loaders"][0]["steps"]
        8
    """
    return Diagnosis(quiet)
