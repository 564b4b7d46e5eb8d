"""The machine: card, driver, versions, bandwidths and launch times, and which CUDA libraries are there.

python benches/gpu/machine.py --out OUT
"""

from __future__ import annotations

import ctypes
import glob
import importlib.metadata
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from common import Results, arguments, cores

PACKAGES = ("torch", "torchvision", "numpy", "pillow", "jax", "jaxlib", "cupy-cuda13x", "triton", "pytest")
GPU = "name,driver_version,memory.total,pcie.link.gen.max,pcie.link.width.max,clocks.max.sm,clocks.max.mem,power.limit"
BACKENDS = {"default": 0, "hybrid": 1, "gpu_hybrid": 2, "hardware": 3}
"""nvjpegBackend_t."""


def command(*words: str) -> str:
    """What a command prints."""
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.strip()


def card() -> dict[str, str]:
    told = command("nvidia-smi", f"--query-gpu={GPU}", "--format=csv,noheader").splitlines()[0]
    return dict(zip(GPU.split(","), (field.strip() for field in told.split(","))))


def host() -> dict[str, Any]:
    with open("/proc/cpuinfo") as file:
        lines = file.read().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "?")
    flags = next((line.split(":")[1].split() for line in lines if line.startswith("flags")), [])
    shm = shutil.disk_usage("/dev/shm")
    return {
        "cpu": model,
        "cores": cores(),
        "avx512": "avx512bw" in flags,
        "kernel": platform.release(),
        "memory_gb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        "shm_gb": shm.total / 1e9,
    }


def versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch_cuda": str(torch.version.cuda)}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    found |= {tool: shutil.which(tool) or "not found" for tool in ("nvcc", "compute-sanitizer", "ncu")}
    return found


def device_seconds(work: Callable[[], Any], repeat: int) -> float:
    """Seconds of `work` on the current stream, by events: the median."""
    work()
    took = []
    for _ in range(repeat):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        work()
        last.record()
        last.synchronize()
        took.append(first.elapsed_time(last) / 1e3)
    return statistics.median(took)


def copies(nbytes: int, repeat: int) -> dict[str, float]:
    """GB/s between host and device for one copy of so many bytes at a time."""
    there = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    other = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    pinned = torch.ones(nbytes, dtype=torch.uint8).pin_memory()
    back = torch.empty(nbytes, dtype=torch.uint8).pin_memory()
    pageable = torch.ones(nbytes, dtype=torch.uint8)
    side = torch.cuda.Stream()

    def both() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            back.copy_(other, non_blocking=True)
        there.copy_(pinned, non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)

    ways: dict[str, Callable[[], Any]] = {
        "pinned_to_device": lambda: there.copy_(pinned, non_blocking=True),
        "device_to_pinned": lambda: back.copy_(there, non_blocking=True),
        "pageable_to_device": lambda: there.copy_(pageable),
        "both_directions_sum": both,
    }
    gbps = {name: nbytes / device_seconds(work, repeat) / 1e9 for name, work in ways.items()}
    gbps["both_directions_sum"] *= 2
    return gbps


def on_device(nbytes: int) -> float:
    """GB/s of a copy on the device, bytes read and written."""
    a = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * nbytes / device_seconds(lambda: b.copy_(a), 10) / 1e9


def launches() -> dict[str, float]:
    """Microseconds to launch: of a torch operation on one number, of an empty kernel, and there and back."""
    one = torch.zeros(1, device="cuda")

    def each(work: Callable[[], Any], count: int = 3000) -> float:
        for _ in range(100):
            work()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            work()
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - begin) / count

    def there_and_back() -> None:
        one.add_(1)
        torch.cuda.current_stream().synchronize()

    found = {"torch_add_us": each(lambda: one.add_(1)), "add_and_wait_us": each(there_and_back, 500)}
    try:
        import cupy

        empty = cupy.RawKernel('extern "C" __global__ void nothing() {}', "nothing")
        found["empty_cupy_us"] = each(lambda: empty((1,), (1,), ()))
    except Exception as error:
        print(f"no empty kernel by CuPy: {error}"[:200])
    return found


def libraries(pattern: str) -> list[str]:
    """Files of a CUDA library: of the framework's packages, of torchvision's wheel, of the system."""
    places = [f"{place}/nvidia/**/{pattern}" for place in sys.path if place.endswith("-packages")]
    places += [f"{place}/torchvision.libs/{pattern}" for place in sys.path if place.endswith("-packages")]
    places += [f"/usr/local/cuda*/**/{pattern}", f"/usr/lib/x86_64-linux-gnu/{pattern}"]
    found = [path for place in places for path in glob.glob(place, recursive=True)]
    return sorted(
        {os.path.realpath(path) for path in found if "builtins" not in path and ".alt." not in path}
    )


def first_loaded(pattern: str) -> tuple[ctypes.CDLL, str]:
    errors = []
    for path in libraries(pattern):
        try:
            return ctypes.CDLL(path), path
        except OSError as error:
            errors.append(f"{path}: {error}")
    raise FileNotFoundError(f"no library {pattern} can be loaded: {errors}")


def nvrtc() -> dict[str, Any]:
    library, path = first_loaded("libnvrtc*.so*")
    major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    architectures = (ctypes.c_int * max(1, count.value))()
    library.nvrtcGetSupportedArchs(architectures)
    return {
        "version": f"{major.value}.{minor.value}",
        "path": path,
        "architectures": list(architectures),
        "all": libraries("libnvrtc*.so*"),
    }


def nvjpeg() -> dict[str, Any]:
    """Version of nvJPEG, the backends that can be made, and its hardware engines."""
    library, path = first_loaded("libnvjpeg*.so*")
    torch.zeros(1, device="cuda")  # it needs a context
    numbers = []
    for property_ in range(3):
        value = ctypes.c_int()
        library.nvjpegGetProperty(property_, ctypes.byref(value))
        numbers.append(str(value.value))
    found: dict[str, Any] = {"version": ".".join(numbers), "path": path, "all": libraries("libnvjpeg*.so*")}
    handles = {}
    for name, backend in BACKENDS.items():
        handle = ctypes.c_void_p()
        status = library.nvjpegCreateEx(backend, None, None, 0, ctypes.byref(handle))
        found[f"create_{name}"] = "made" if status == 0 else f"status {status}"
        if status == 0:
            handles[name] = handle
    for name, handle in handles.items():
        if hasattr(library, "nvjpegGetHardwareDecoderInfo"):
            engines, each = ctypes.c_uint(), ctypes.c_uint()
            status = library.nvjpegGetHardwareDecoderInfo(handle, ctypes.byref(engines), ctypes.byref(each))
            found[f"engines_{name}"] = {"status": status, "engines": engines.value, "cores_each": each.value}
        library.nvjpegDestroy(handle)
    return found


def main() -> None:
    args = arguments(__doc__, seconds=1, limit=60)
    with Results("machine", args) as results:
        results.attempt("host", host)
        results.attempt("versions", versions)
        if args.device == "cuda":
            results.attempt("card", card)
            results.attempt("GB/s, 154 MB (float32 batch)", lambda: copies(256 * 3 * 224 * 224 * 4, 20))
            results.attempt("GB/s, 38.5 MB (uint8 batch)", lambda: copies(256 * 3 * 224 * 224, 40))
            results.attempt("GB/s, 1 GiB", lambda: copies(1 << 30, 5))
            results.attempt("GB/s on the device, read and written", lambda: on_device(4 << 30))
            results.attempt("launches", launches)
        results.attempt("nvrtc", nvrtc)
        # Last, since a library of another version could end the process.
        if args.device == "cuda":
            results.attempt("nvjpeg", nvjpeg)
        else:
            results.attempt("nvjpeg found", lambda: libraries("libnvjpeg*.so*"))


if __name__ == "__main__":
    main()
