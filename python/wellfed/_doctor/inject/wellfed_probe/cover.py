"""Covers the folders that a script writes into: what it writes is seen by this process and its children, and then gone.

An overlay in a mount namespace of this process alone: reads come from the folder, writes go into memory. Whatever is
mounted below a folder is put back read-only, so that no write reaches it.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys

__all__ = ["cover"]

_NEWNS, _NEWUSER = 0x20000, 0x10000000
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 0x1, 0x20, 0x1000, 0x4000, 0x40000
# Flags of a mount that must stay where it is put back: nosuid, nodev, noexec, noatime, nodiratime, relatime.
_KEPT = {"nosuid": 2, "nodev": 4, "noexec": 8, "noatime": 1024, "nodiratime": 2048, "relatime": 1 << 21}

# Said to children that begin as new programs: their folders are covered already.
_COVERED = "WELLFED_DOCTOR_COVERED"

# Bytes of memory that may be written, and the part of the memory that is free.
_MOST, _PART = 4 << 30, 8


def cover(directory: str) -> list[str]:
    """Covers the current folder, the script's and the user's own; gives those that are covered now.

    The kernel need not let us, and covers no folder with mounts below it in a namespace of users of its own.
    `directory` is the run's own and stays what it is.

    Raises:
        OSError: if that failed half-way.
    """
    if _COVERED in os.environ:
        # Whatever it says, only what is covered in our memory may be written.
        told = os.environ[_COVERED].split(os.pathsep)
        return [folder for folder in told if folder and _is_covered(folder, directory)]
    folders = _folders(directory)
    if not folders or not _own_mounts():
        os.environ[_COVERED] = ""
        return []
    here = os.getcwd()
    _mount(None, "/", None, _REC | _PRIVATE)
    memory = os.path.join(directory, "written")
    os.mkdir(memory)
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    _mount("tmpfs", memory, "tmpfs", 0, f"mode=700,size={min(_MOST, free // _PART)}")
    covered: list[str] = []
    for number, folder in enumerate(folders):
        upper, work = (os.path.join(memory, f"{number}-{kind}") for kind in ("upper", "work"))
        os.mkdir(upper)
        os.mkdir(work)
        options = f"lowerdir={folder},upperdir={upper},workdir={work}"
        try:
            below = [
                (path, flags, os.open(path, os.O_PATH | os.O_CLOEXEC)) for path, flags in _mounts(folder)
            ]
            _mount("overlay", folder, "overlay", 0, f"{options},userxattr" if _is_mapped() else options)
        except OSError:
            continue
        covered.append(folder)
        for path, flags, there in below:
            _mount(f"/proc/self/fd/{there}", path, None, _BIND)
            _mount(None, path, None, _REMOUNT | _BIND | _RDONLY | flags)
            os.close(there)
    # Whoever is in a folder stays in what it was.
    os.chdir(here)
    os.environ[_COVERED] = os.pathsep.join(covered)
    return covered


def _folders(directory: str) -> list[str]:
    """Folders to cover, none within another."""
    asked = [os.getcwd(), os.path.expanduser("~")]
    asked += [os.path.dirname(os.path.abspath(word)) for word in sys.orig_argv[1:] if word.endswith(".py")]
    own = os.path.realpath(directory)
    found: list[str] = []
    for folder in sorted({os.path.realpath(folder) for folder in asked}, key=len):
        # Overlays read such characters otherwise; what the kernel shows as files stays what it is.
        odd = folder == "/" or any(character in folder for character in ":,\\")
        kernels = any(_within(folder, other) for other in ("/dev", "/proc", "/sys"))
        inside = any(_within(folder, other) for other in found)
        if os.path.isdir(folder) and not (odd or kernels or inside or _within(own, folder)):
            found.append(folder)
    return found


def _is_covered(folder: str, directory: str) -> bool:
    """Whether a folder is an overlay whose upper layer lies in the run's own."""
    upper = os.fsencode(f"upperdir={os.path.join(directory, 'written')}/")
    return any(path == folder and upper in line for path, line in _all_mounts())


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _own_mounts() -> bool:
    """Gives this process mounts of its own; false where it may not have any."""
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.getuid(), os.getgid()
    if libc.unshare(_NEWNS) == 0:
        return True
    if libc.unshare(_NEWNS | _NEWUSER) != 0:
        return False
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return True


def _is_mapped() -> bool:
    """Whether this process is in a namespace of users that has not all of them."""
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split()[2:] != ["4294967295"]


def _mounts(folder: str) -> list[tuple[str, int]]:
    """Mounts below a folder, those that hold others first, and the flags that they have to keep."""
    found: dict[str, int] = {}
    for path, line in _all_mounts():
        if path != folder and _within(path, folder):
            found[path] = sum(_KEPT.get(flag, 0) for flag in line.split(b" ")[5].decode().split(","))
    return sorted(found.items())


def _all_mounts() -> list[tuple[str, bytes]]:
    """Where something is mounted, and what the kernel tells of it."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            # Spaces and the like are told by their octal numbers.
            path = re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), line.split(b" ")[4])
            found.append((os.fsdecode(path), line))
    return found


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    texts = [os.fsencode(text) if text is not None else None for text in (source, target, kind, options)]
    if libc.mount(texts[0], texts[1], texts[2], ctypes.c_ulong(flags), texts[3]) != 0:
        raise OSError(ctypes.get_errno(), "mounting", target)
