"""The CUDA kernels compile for all architectures, by the NVRTC and ptxas that torch brings. Nothing is run."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

BUILD = Path(__file__).resolve().parents[2] / "crates" / "wellfed-cuda" / "ptx" / "build.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("wellfed_cuda_build", BUILD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load()
PTX = build.PTX.read_text(encoding="utf-8")
NAMES = re.findall(r"\.visible \.entry (\w+)\(", PTX)


@pytest.fixture(scope="module")
def nvrtc() -> object:
    path = build.find_nvrtc()
    if path is None:
        pytest.skip("NVRTC is not installed (pip install nvidia-cuda-nvrtc): the kernels are not compiled")
    return build.Nvrtc(path)


ARCHITECTURES = ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100"]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_compile(nvrtc, arch: str) -> None:
    binary = nvrtc.compile(arch)
    assert binary.startswith(b"\x7fELF")
    for name in NAMES:
        assert f".text.{name}\0".encode() in binary


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_the_shipped_ptx_is_one_that_drivers_take(arch: str, tmp_path: Path) -> None:
    # What ptxas does, the driver does when it loads the module.
    spec = importlib.util.find_spec("triton")
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [path for folder in folders for path in folder.glob("backends/nvidia/bin/ptxas*")]
    if not found:
        pytest.skip("Triton's ptxas is not installed: the shipped PTX is not assembled")
    out = tmp_path / "kernels.cubin"
    done = subprocess.run(
        [min(found), f"-arch={arch}", "-o", out, build.PTX], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert out.read_bytes().startswith(b"\x7fELF")


def test_an_error_of_the_compiler_is_told_with_its_line(nvrtc, tmp_path: Path) -> None:
    (tmp_path / "device.cu").write_text("int broken = ;\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match=r"for sm_80:\ndevice\.cu\(1\): error"):
        nvrtc.compile("sm_80", tmp_path)


def test_the_shipped_ptx_is_of_these_sources() -> None:
    assert PTX.startswith(f"// wellfed kernels {build.source_hash()}:"), "run `make ptx`"
    assert NAMES


def test_a_change_of_any_source_changes_the_hash(tmp_path: Path) -> None:
    def value(name: str, text: bytes) -> str:
        (tmp_path / name).write_bytes(text)
        return str(build.source_hash(tmp_path))

    one = value("a.cu", b"one\n")
    assert value("a.cu", b"one\r\n") == one
    assert value("host.c", b"not on the device") == one
    assert len({one, value("a.cu", b"two\n"), value("b.h", b"")}) == 3


def test_a_library_is_found_by_its_file_or_folder(tmp_path: Path) -> None:
    assert build.find_nvrtc(str(tmp_path)) is None
    folder = tmp_path / "nvidia" / "cu13" / "lib"
    folder.mkdir(parents=True)
    for name in ("libnvrtc-builtins.so.13.2", "libnvrtc.alt.so.13", "libnvrtc.so.13"):
        (folder / name).write_bytes(b"")
    path = folder / "libnvrtc.so.13"
    assert build.find_nvrtc(str(tmp_path)) == build.find_nvrtc(str(path)) == path
