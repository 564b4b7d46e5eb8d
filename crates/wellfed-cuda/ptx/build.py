#!/usr/bin/env python3
"""Compiles ``kernels/device.cu`` with NVRTC: into ``kernels.ptx``, which is shipped, or for one architecture.

The shipped PTX is made by NVRTC 12.0: its ISA (8.0) is loaded by every driver of CUDA 12.0 (525) and later, while
newer compilers write newer ISAs, which older drivers refuse. It is for compute capability 7.5, and drivers compile it
for what device there is.

    pip install --target nvrtc nvidia-cuda-nvrtc-cu12==12.0.140
    python3 build.py --nvrtc nvrtc

The first line of the PTX holds a hash of the sources, by which a test of the crate sees that they have changed since.
Only the standard library is needed.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent / "kernels"
PTX = HERE / "kernels.ptx"
SHIPPED_VERSION = (12, 0)
SHIPPED_ARCH = "compute_75"
PACKAGE = "nvidia-cuda-nvrtc-cu12==12.0.140"
# Products and sums are rounded one by one, as on the host; denormals, division and roots are as IEEE 754 has them.
# The header that NVRTC includes by itself would leave 38 constants in the module, by its own guard.
OPTIONS = ("-D__NV_TARGET_H", "--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true")


def source_hash(folder: Path = KERNELS) -> str:
    """The hash of all ``*.cu`` and ``*.h`` in ``folder``, by name: 16 hexadecimal digits of 64-bit FNV-1a.

    Carriage returns do not count, so that it is the same where Git writes them. ``src/ptx.rs`` computes the same.
    """
    value = 0xCBF29CE484222325
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.suffix in (".cu", ".h"):
            for byte in path.name.encode() + b"\0" + path.read_bytes().replace(b"\r", b"") + b"\0":
                value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def find_nvrtc(place: str | None = None) -> Path | None:
    """The library of NVRTC: ``place`` itself, or below it if that is a folder; else that of the package ``nvidia``."""
    if place is not None and Path(place).is_file():
        return Path(place)
    if place is not None:
        folders = [Path(place)]
    else:
        spec = importlib.util.find_spec("nvidia")
        folders = [Path(folder) for folder in spec.submodule_search_locations or ()] if spec else []
    found = [
        path
        for folder in folders
        for pattern in ("libnvrtc.so.*", "libnvrtc.*.dylib", "nvrtc64_*.dll")
        for path in folder.rglob(pattern)
        if "alt" not in path.name
    ]
    return min(found, key=str, default=None)


class Nvrtc:
    """NVRTC's functions that are needed. Raises ``RuntimeError`` with the compiler's log."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            describe = self._library.nvrtcGetErrorString
            describe.restype = ctypes.c_char_p
            raise RuntimeError(f"{name} failed: {describe(status).decode()} ({status})")

    def version(self) -> tuple[int, int]:
        """NVRTC's version: (major, minor)."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("nvrtcVersion", ctypes.byref(major), ctypes.byref(minor))
        return major.value, minor.value

    def compile(self, arch: str, folder: Path = KERNELS) -> bytes:
        """``device.cu`` of ``folder`` as PTX for ``compute_NN``, or as a binary for ``sm_NN``."""
        program = ctypes.c_void_p()
        source = (folder / "device.cu").read_bytes()
        self._call("nvrtcCreateProgram", ctypes.byref(program), source, b"device.cu", 0, None, None)
        try:
            options = [option.encode() for option in (f"--gpu-architecture={arch}", f"-I{folder}", *OPTIONS)]
            try:
                self._call(
                    "nvrtcCompileProgram", program, len(options), (ctypes.c_char_p * len(options))(*options)
                )
            except RuntimeError as error:
                log = self._bytes("ProgramLog", program).rstrip(b"\0").decode(errors="replace")
                raise RuntimeError(f"{error}, for {arch}:\n{log}") from None
            return self._bytes("CUBIN" if arch.startswith("sm_") else "PTX", program)
        finally:
            self._call("nvrtcDestroyProgram", ctypes.byref(program))

    def _bytes(self, what: str, program: ctypes.c_void_p) -> bytes:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", program, text)
        return text.raw


def main() -> int:
    """Writes ``kernels.ptx``."""
    parser = argparse.ArgumentParser(description="compiles the kernels into kernels.ptx")
    parser.add_argument(
        "--nvrtc", metavar="PATH", help="NVRTC's library, or a folder somewhere below which it lies"
    )
    path = find_nvrtc(parser.parse_args().nvrtc)
    if path is None:
        print(
            f"error: NVRTC was not found\nhint: pip install --target FOLDER {PACKAGE}, --nvrtc FOLDER",
            file=sys.stderr,
        )
        return 1
    nvrtc = Nvrtc(path)
    version = nvrtc.version()
    if version != SHIPPED_VERSION:
        print(
            f"error: {path} is NVRTC {version[0]}.{version[1]}; what is shipped is made by "
            f"{SHIPPED_VERSION[0]}.{SHIPPED_VERSION[1]}, whose PTX all drivers of CUDA 12 load\n"
            f"hint: pip install --target FOLDER {PACKAGE}, --nvrtc FOLDER",
            file=sys.stderr,
        )
        return 1
    text = nvrtc.compile(SHIPPED_ARCH).rstrip(b"\0").decode()
    PTX.write_text(f"// wellfed kernels {source_hash()}: `make ptx` makes this file of kernels/*.cu\n{text}")
    print(f"{PTX}: {len(text)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
