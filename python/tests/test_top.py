"""`wellfed top`: another process looks at the loaders of this user's processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from test_process import in_child
from wellfed.__main__ import main

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")

NATIVE = """
import wellfed as wf
from wellfed import transforms as T
loader = wf.image_folder({photos!r}).map(T.RandomResizedCrop(16), T.ToTensor()).batch(4).numpy()
"""

TORCH = """
import wellfed.torch as wt
from torchvision.datasets import ImageFolder
from torchvision.transforms import transforms as v1
chain = v1.Compose([v1.RandomResizedCrop(16), v1.ToTensor()])
loader = wt.DataLoader(ImageFolder({photos!r}, chain), batch_size=4)
"""

LOOP = """
import sys, threading
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), stop.set())).start()
first = True
while not stop.is_set():
    for batch in loader:
        pass
    if first:
        print("going", flush=True)
    first = False
"""


@contextmanager
def running(code: str) -> Iterator[int]:
    """A process that runs `code` until this ends; entered when it has printed a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"going\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(60)


def top(*arguments: object, **more: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "wellfed", "top", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


@pytest.mark.parametrize("code", [NATIVE, TORCH], ids=["native", "torch"])
def test_a_loader_of_another_process_is_shown(photos: Path, code: str) -> None:
    with running(code.format(photos=str(photos)) + LOOP) as process:
        done = top(process, "--once", "--json")
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        assert report["process"] == process
        (loader,) = report["loaders"]
        stats = loader["stats"]
        assert stats["samples"] >= 8
        assert stats["batches"] >= 2
        assert stats["errors"] == 0
        assert 0 < stats["memory"] <= stats["memory_budget"]
        assert 0 <= loader["ready"] <= stats["prefetch"] <= 64
        assert 0 <= loader["wait_share"] <= 1
        assert [stage["name"] for stage in loader["stages"]] == [
            "read",
            "decode",
            "transform",
            "write",
            "idle",
        ]
        assert all(0 <= stage["share"] <= 1 for stage in loader["stages"])
        text = top(process, "--once", "--interval", "0.2")
        assert text.returncode == 0, text.stderr
        assert f"process {process}" in text.stdout
        assert "samples/s" in text.stdout
        assert "decode" in text.stdout


def test_it_goes_on_until_the_process_ends(photos: Path) -> None:
    with running(NATIVE.format(photos=str(photos)) + LOOP) as process:
        command = [sys.executable, "-m", "wellfed", "top", str(process), "--json", "--interval", "0.1"]
        watcher = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert watcher.stdout is not None
        looks = [json.loads(watcher.stdout.readline()) for _ in range(3)]
    assert all(look["process"] == process for look in looks)
    _, errors = watcher.communicate(timeout=60)
    assert watcher.returncode == 0
    assert f"process {process} has ended" in errors


def test_a_process_without_a_loader() -> None:
    with running("print('going', flush=True); input()") as process:
        done = top(process, "--once")
    assert done.returncode == 1
    assert f"process {process} has no loader of wellfed at work" in done.stderr
    assert "hint: " in done.stderr


def test_a_forked_child_does_not_pass_for_its_parent(photos: Path) -> None:
    fork = """
    import os
    for batch in loader:
        pass
    child = os.fork()
    if child == 0:
        input()
        os._exit(0)
    print("going", flush=True)
    print(child, flush=True)
    os.waitpid(child, 0)
    """
    code = NATIVE.format(photos=str(photos)) + textwrap.dedent(fork)
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "going\n"
    done = top(process.stdout.readline().strip(), "--once")
    process.stdin.close()
    process.stdout.close()
    process.wait(60)
    assert done.returncode == 1
    assert f"process {process.pid} left it at a fork" in done.stderr


def test_a_dead_process() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait(60)
    done = top(process.pid, "--once")
    assert done.returncode == 1
    assert done.stderr == f"error: there is no process {process.pid}\n"


def test_a_process_of_another_user() -> None:
    if os.stat("/proc/1").st_uid != 0 or os.stat("/proc/self").st_uid not in (0, os.getuid()):
        pytest.skip("there is no process of another user")

    def look() -> str:
        if os.getuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        read, write = os.pipe()
        os.dup2(write, 2)
        status = main(["top", "1", "--once"])
        return f"{status} {os.read(read, 10_000).decode()}"

    told = in_child(look)
    assert told.startswith(
        "1 error: process 1 belongs to user 0, and the system does not let others look into it"
    )


def test_arguments_are_checked() -> None:
    for arguments in ([], ["me"], ["-1"], ["1", "--interval", "0"], ["1", "--interval", "nan"]):
        assert top(*arguments).returncode == 2
