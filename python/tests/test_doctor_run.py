"""`wellfed doctor run`: scripts run as if it was not there, and something useful is said of every end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the doctor watches /proc")

# A shell in the background ignores Ctrl-C for what it starts, and so may whoever started these tests.
HEED = "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv[0] = 'wellfed'; "
DOCTOR = [sys.executable, "-c", HEED + "runpy.run_module('wellfed', run_name='__main__')", "doctor"]


def script(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def environment(folder: Path) -> dict[str, str]:
    """Temporary folders of the doctor appear in one that can be looked at."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return {**os.environ, "TMPDIR": str(temporary)}


def doctor(folder: Path, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [*DOCTOR, *words],
        input=stdin,
        capture_output=True,
        timeout=300,
        check=False,
        env=environment(folder),
        cwd=folder,
    )
    assert list((folder / "temporary").iterdir()) == []
    return done


def run(folder: Path, text: str, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return doctor(folder, "run", script(folder, text), *words, stdin=stdin)


def wait_for(path: Path, process: subprocess.Popen[bytes]) -> None:
    for _ in range(6000):
        if path.exists():
            return
        assert process.poll() is None, "ended before it was ready"
        time.sleep(0.02)
    raise AssertionError(f"{path} did not appear")


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("print(1)", 0),
        ("import sys; sys.exit(7)", 7),
        ("import sys; sys.exit('a message')", 1),
        ("raise ValueError('a defect')", 1),
        ("import os; os._exit(9)", 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 128 + 9),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", 128 + 11),
        ("a syntax error", 1),
    ],
)
def test_the_exit_status_is_the_scripts(tmp_path: Path, text: str, status: int) -> None:
    done = run(tmp_path, text)
    assert done.returncode == status, done.stderr
    assert b"panicked" not in done.stderr
    assert b"wellfed_probe" not in done.stderr
    if text.startswith("raise"):
        assert b"ValueError: a defect" in done.stderr


def test_output_and_input_are_the_scripts_byte_for_byte(tmp_path: Path) -> None:
    text = """
import sys
sys.stdout.buffer.write(bytes(range(256)) + sys.stdin.buffer.read())
print(sys.argv[1:], __name__, sys.path[0] == sys.argv[0].rsplit("/", 1)[0])
"""
    path = script(tmp_path, text)
    words = ["--steps", "3", "-m", "--", "ä b"]
    plain = subprocess.run(
        [sys.executable, path, *words], input=b"\x00in\xff", capture_output=True, check=True
    )
    done = doctor(tmp_path, "run", path, *words, stdin=b"\x00in\xff")
    assert done.stdout == plain.stdout
    assert done.returncode == 0


def test_modules_and_other_commands(tmp_path: Path) -> None:
    script(tmp_path, "import sys; print('module', sys.argv[1:])", "a_module.py")
    done = doctor(tmp_path, "run", "-m", "a_module", "-m", "x")
    assert (done.returncode, done.stdout) == (0, b"module ['-m', 'x']\n")
    done = doctor(tmp_path, "run", "sh", "-c", "echo $0; exit 4", "word")
    assert (done.returncode, done.stdout) == (4, b"word\n")
    done = doctor(tmp_path, "run", "a command that does not exist")
    assert done.returncode == 1
    assert b"cannot start" in done.stderr
    assert doctor(tmp_path, "run", "--stepz", "3", "train.py").returncode == 2


def test_what_has_no_loader_gets_a_sentence(tmp_path: Path) -> None:
    done = run(tmp_path, "import time; time.sleep(0.2)")
    assert b"No data loader was seen" in done.stderr
    assert b"Traceback" not in done.stderr
    done = doctor(tmp_path, "run", "sh", "-c", "true")
    assert b"no Python process was seen" in done.stderr


def test_a_least_speed_that_nothing_shows_is_not_met(tmp_path: Path) -> None:
    path = script(tmp_path, "import sys; sys.exit(int(sys.argv[1]))")
    done = doctor(tmp_path, "run", "--fail-under", "90%", path, "0")
    assert done.returncode == 3
    assert b"no steps were seen" in done.stderr
    assert doctor(tmp_path, "run", "--fail-under", "0.9", path, "5").returncode == 5
    assert doctor(tmp_path, "run", "--fail-under", "90", path, "0").returncode == 2


def test_a_kept_run_is_reported_again(tmp_path: Path) -> None:
    path = script(tmp_path, "import os, time; os.chdir('/'); time.sleep(0.3)")
    done = doctor(tmp_path, "run", "--keep", "kept", "--json", "report.json", "--html", "report.html", path)
    assert done.returncode == 0, done.stderr
    kept = tmp_path / "kept"
    ended = json.loads((kept / "run.json").read_text())
    assert ended["command"][-1] == path
    assert ended["exit"]["code"] == 0
    assert ended["t1"] - ended["t0"] >= 300_000_000
    trace = json.loads((kept / "system.json").read_text())
    assert any(str(ended["pid"]) in tick["processes"] for tick in trace["ticks"])
    assert (tmp_path / "report.html").read_text().lstrip().lower().startswith("<!doctype html>")
    report = json.loads((tmp_path / "report.json").read_text())
    again = doctor(tmp_path, "report", "kept", "--json", "-")
    assert again.returncode == 0
    assert json.loads(again.stdout) == report
    # A second run must not be mixed into it.
    done = doctor(tmp_path, "run", "--keep", "kept", path)
    assert done.returncode == 1
    assert b"holds a run already" in done.stderr
    assert doctor(tmp_path, "report", "nothing").returncode == 1


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_script(tmp_path: Path, signal_number: signal.Signals) -> None:
    text = f"""
import pathlib, signal, sys, time
signal.signal({int(signal_number)}, lambda *_: sys.exit(5))
pathlib.Path("ready").write_text("")
time.sleep(120)
"""
    path = script(tmp_path, text)
    process = subprocess.Popen(
        [*DOCTOR, "run", path], stderr=subprocess.PIPE, env=environment(tmp_path), cwd=tmp_path
    )
    wait_for(tmp_path / "ready", process)
    process.send_signal(signal_number)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 5, said
    assert b"No data loader" in said


@pytest.mark.parametrize(("handled", "status"), [(True, 6), (False, 130)])
def test_ctrl_c_is_the_scripts_and_the_doctor_reports(tmp_path: Path, handled: bool, status: int) -> None:
    text = f"""
import pathlib, sys, time
try:
    pathlib.Path("ready").write_text("")
    time.sleep(120)
except KeyboardInterrupt:
    print("saving", flush=True)
    if {handled}:
        sys.exit(6)
    raise
"""
    path = script(tmp_path, text)
    # As a terminal does: all processes of the foreground get it.
    process = subprocess.Popen(
        [*DOCTOR, "run", path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
        cwd=tmp_path,
        start_new_session=True,
    )
    wait_for(tmp_path / "ready", process)
    os.killpg(process.pid, signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert out == b"saving\n"
    assert process.returncode == status, said
    assert b"No data loader" in said
    assert list((tmp_path / "temporary").iterdir()) == []


def test_the_environment_tells_where_probes_are_and_nothing_else_changes(tmp_path: Path) -> None:
    text = "import json, os, sys; json.dump(dict(os.environ), open(sys.argv[1], 'w'))"
    path = script(tmp_path, text)
    before = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), "/a/path"]))
    env = {**environment(tmp_path), "PYTHONPATH": before}
    subprocess.run([sys.executable, path, "plain.json"], env=env, cwd=tmp_path, check=True)
    subprocess.run(
        [*DOCTOR, "run", path, "doctor.json"], env=env, cwd=tmp_path, check=True, capture_output=True
    )
    plain, seen = (json.loads((tmp_path / name).read_text()) for name in ("plain.json", "doctor.json"))
    changed = {name for name in plain.keys() | seen.keys() if plain.get(name) != seen.get(name)}
    assert changed == {"PYTHONPATH", "WELLFED_DOCTOR_DIR"}
    assert seen["PYTHONPATH"].endswith("inject:" + before)


def test_env_is_text_and_json(tmp_path: Path) -> None:
    done = doctor(tmp_path, "env")
    assert done.returncode == 0, done.stderr
    assert b"cores" in done.stdout
    done = doctor(tmp_path, "env", "--json")
    found = json.loads(done.stdout)
    assert found["machine"]["cores"] > 0
    assert found["wellfed"]["threads"] >= 1
    assert all({"text", "hint"} == set(warning) for warning in found["warnings"])


@pytest.mark.parametrize("live", [True, False])
def test_a_terminal_may_get_a_live_view_and_the_output_stays_whole(tmp_path: Path, live: bool) -> None:
    text = """
import sys, time
for i in range(8):
    print("out", i, flush=True)
    print("err", i, file=sys.stderr)
    time.sleep(0.1)
"""
    path = script(tmp_path, text)
    ours, theirs = os.openpty()
    env = {**environment(tmp_path), "TERM": "xterm"}
    words = [*DOCTOR, "run", *([] if live else ["--no-live"]), path]
    process = subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=theirs, env=env, cwd=tmp_path
    )
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            # The other end of a terminal was closed.
            break
        said += part
    os.close(ours)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    assert out == b"".join(b"out %d\n" % i for i in range(8))
    opened, closed = b"\x1b[?1049h", b"\x1b[?1049l"
    assert (opened in said) == live
    rest = said.rsplit(closed, 1)[-1].replace(b"\r\n", b"\n")
    assert b"".join(b"err %d\n" % i for i in range(8)) in rest
    assert b"No data loader was seen" in rest
