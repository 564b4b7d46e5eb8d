"""`torchaudio.load`, `soundfile.read` and `librosa.load` under `accelerate`: sounds are decoded natively.

Invariant: what they return is what the library returns: values, dtype, shape, strides and sample rate. That is known of
PCM in WAV files and of FLAC, of whose integers a float32 has all bits. Everything else the library does: other formats,
more arguments, and all that is missing or damaged, so that errors are its own.
"""

from __future__ import annotations

import base64
import functools
import inspect
import os
import stat
import sys
import tempfile
import threading
import wave
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import _native
from ..exceptions import WellfedError

__all__ = [
    "TESTED",
    "WHOLE",
    "enter",
    "inside",
    "leave",
    "loader_of_torchaudio",
    "original_of",
    "see_libraries",
]

TESTED = {
    "torchaudio": ("2.9", "2.10", "2.11"),
    "soundfile": ("0.12", "0.13", "0.14"),
    "librosa": ("0.10", "0.11"),
}
"""Versions whose code was read and whose values are known."""

_EXACT = {"pcm_u8": 8, "pcm_s16le": 16, "pcm_s24le": 24, "pcm_f32le": 32, "flac": 24}
"""Codecs whose samples a float32 has in full, and their most bits."""

_PCM_MOST = 1 << 16
"""Bytes of a WAV file up to which libsndfile takes longer. Of FLAC it always does."""

_MOST = 1 << 28
"""Samples of a sound that is loaded here at most."""


class _Found(NamedTuple):
    sound: _native.Sound
    codec: str
    bits: int


class _State(threading.local):
    """Whether this thread makes samples now; and for all threads, who wants it and what stood there before."""

    inside = False
    lock = threading.Lock()
    users = everywhere = 0
    before: dict[str, tuple[Any, str, Any, Any]] = {}  # noqa: RUF012 - of the class, as all of these


_state = _State()


def inside(on: bool) -> None:
    """This thread begins to make samples, or ends."""
    _state.inside = on


def enter(everywhere: bool = True) -> None:
    """Replaces the functions of libraries that have been imported: for all threads, or for those that are `inside`."""
    with _State.lock:
        _State.users += 1
        _State.everywhere += everywhere
    see_libraries()


def see_libraries() -> None:
    """Replaces those of libraries that have been imported since."""
    with _State.lock:
        if not _State.users:
            return
        for library, name, wrapper in _REPLACED:
            module = sys.modules.get(library)
            if module is None or library in _State.before or not _is_known(module, library):
                continue
            original = getattr(module, name, None)
            # What somebody else has put there is called.
            if (getattr(original, "__module__", None) or "").partition(".")[0] != library:
                continue
            ours = wrapper(original)
            _State.before[library] = (module, name, original, ours)
            setattr(module, name, ours)


def leave(everywhere: bool = True) -> None:
    """Gives them back when nobody wants it any more. What somebody else put there meanwhile stays."""
    with _State.lock:
        _State.users -= 1
        _State.everywhere -= everywhere
        if _State.users:
            return
        for module, name, original, ours in _State.before.values():
            if getattr(module, name, None) is ours:
                setattr(module, name, original)
        _State.before.clear()


def _is_known(module: Any, library: str) -> bool:
    version = str(getattr(module, "__version__", ""))
    return ".".join(version.split(".")[:2]) in TESTED[library]


def original_of(library: str) -> Any:
    """The function of a library as it stood there before it was replaced here; None where there is none."""
    replaced = _State.before.get(library)
    if replaced is not None:
        return replaced[2]
    name = next(name for known, name, _ in _REPLACED if known == library)
    return getattr(sys.modules.get(library), name, None)


def loader_of_torchaudio() -> Any:
    """`torchaudio.load` as the library wrote it, whether or not it is replaced here.

    None if there is somebody else's in its place, or one of a version that is not known, or if it gives other samples
    than are decoded here.
    """
    module, replaced = sys.modules.get("torchaudio"), _State.before.get("torchaudio")
    if module is None or not _is_known(module, "torchaudio"):
        return None
    load = getattr(module, "load", None)
    if replaced is not None and load is replaced[3]:
        load = replaced[2]
    if (getattr(load, "__module__", None) or "").partition(".")[0] != "torchaudio":
        return None
    return load if _agrees(load, _tensor) else None


def _wanted() -> bool:
    return _State.everywhere > 0 or _state.inside


_FLAC = base64.b64decode(
    "ZkxhQwAAACIQABAAAACYAACYAfQC8AAAACjjJuWnp5oj8C6KhNmHUaNbhAAAKCAAAAByZWZlcmVuY2UgbGliRkxBQyAxLjQuMyAyMDIzMDYy"
    "MwAAAAD/+GQYACe0A2t+0YfUQYnPCrjrcdAACONHGw9udkK8Ln1ILOy8lRXg5bti9m79RINERfBH5Kgg0rwT08wPvmEyTayzc1v/qIeFQaL5"
    "jh7A0TJNrLNzW/+oh4VBovmOHsFeKQUyTJU7NxBoz9sLdRD3zG1j7m7p3zAK8mSSdcaXqIDazE6t+0YfUQYnPCrjrcdAACONHGCA3A=="
)
"""40 frames of two channels at 8 kHz, in 16 bits."""


@functools.cache
def _agrees(original: Any, load: Callable[[str], Any]) -> bool:
    """Whether a library gives the same of a few files: what it decodes with depends on how it was installed."""
    try:
        with tempfile.TemporaryDirectory(prefix="wellfed-") as folder:
            paths = [os.path.join(folder, name) for name in ("1.wav", "2.wav", "3.flac")]
            noise = (np.arange(900) * 7919 % 65536 - 32768).astype("<i2").tobytes()
            for path, channels, width in ((paths[0], 1, 2), (paths[1], 2, 3)):
                with wave.open(path, "wb") as file:
                    file.setparams((channels, width, 8000, 0, "NONE", ""))
                    file.writeframes(noise)
            with open(paths[2], "wb") as file:
                file.write(_FLAC)
            for path in paths:
                ours, theirs = load(path), original(path)
                if ours is None or type(ours[0]) is not type(theirs[0]) or ours[1] != theirs[1]:
                    return False
                a, b = np.asarray(ours[0]), np.asarray(theirs[0])
                if a.dtype != b.dtype or a.strides != b.strides or not np.array_equal(a, b):
                    return False
    except Exception:  # a library that lacks something is another one, and says so itself
        return False
    return True


def _loaded(
    path: Any, offset: int = 0, frames: int | None = None, pcm_most: int | None = None
) -> _Found | None:
    """Samples of a file; None for what is left to the library, as are WAV files of more than so many bytes."""
    if not isinstance(path, str | os.PathLike):
        return None
    try:
        # What is read of a pipe is gone for the library.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None
        with open(path, "rb", buffering=0) as file:
            kind = file.read(4)
            size = os.fstat(file.fileno()).st_size
            if kind not in (b"RIFF", b"fLaC") or (kind == b"RIFF" and size > (pcm_most or size)):
                return None
            data = kind + file.read()
    except (OSError, ValueError):
        return None
    head = _native.Sound.head(data)
    if head is None:
        return None
    codec, _, channels, whole, said = head
    # Heads of floating point need not say it.
    bits = 32 if codec == "pcm_f32le" else said
    if bits is None or bits > _EXACT.get(codec, 0) or not whole or whole * channels > _MOST:
        return None
    # Libraries differ in what they do with such parts.
    if not 0 <= offset < whole or (frames is not None and frames <= 0):
        return None
    try:
        return _Found(_native.Sound.decode(data, offset, frames), codec, bits)
    except WellfedError:
        return None


WHOLE = {"frame_offset": 0, "num_frames": -1, "normalize": True, "channels_first": True}
"""Arguments with which `torchaudio.load` gives all of a file as it is."""


def _torchaudio_load(original: Any) -> Callable[..., Any]:
    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        # A part of a file is a view there, of a tensor of all of it.
        plain = len(args) == 1 and all(
            type(value) is type(WHOLE.get(name)) and value == WHOLE[name] for name, value in kwargs.items()
        )
        made = _tensor(args[0]) if plain and _wanted() and _agrees(original, _tensor) else None
        return original(*args, **kwargs) if made is None else made

    return load


def _tensor(uri: Any) -> Any:
    import torch

    found = None if torch.jit.is_tracing() else _loaded(uri)
    if found is None:
        return None
    waveform = torch.empty(found.sound.shape, dtype=torch.float32, device="cpu")
    found.sound.write(waveform.data_ptr(), waveform.nbytes, "float32", False)
    return waveform, found.sound.sample_rate


def _soundfile_read(original: Any) -> Callable[..., Any]:
    # Later versions have more arguments.
    signature = inspect.signature(original)

    @functools.wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        made = None
        if _wanted() and _agrees(original, _array):
            try:
                given = signature.bind(*args, **kwargs)
            except TypeError:
                return original(*args, **kwargs)
            made = _array(**given.arguments)
        return original(*args, **kwargs) if made is None else made

    return read


def _array(
    file: Any,
    frames: Any = -1,
    start: Any = 0,
    stop: Any = None,
    dtype: Any = "float64",
    always_2d: Any = False,
    fill_value: Any = None,
    out: Any = None,
    **others: Any,
) -> Any:
    plain = fill_value is None and out is None and stop is None and type(frames) is int and type(start) is int
    if not plain or start < 0 or others.pop("closefd", True) is not True:
        return None
    if any(value is not None for value in others.values()) or dtype not in ("float64", "float32", "int16"):
        return None
    found = _loaded(file, start, None if frames < 0 else frames, _PCM_MOST)
    if found is None or (dtype == "int16" and (found.bits > 16 or found.codec == "pcm_f32le")):
        return None
    channels, length = found.sound.shape
    samples = np.empty((length, channels) if channels > 1 or always_2d else (length,), dtype)
    if samples.size:
        found.sound.write(samples.ctypes.data, samples.nbytes, dtype, True)
    return samples, found.sound.sample_rate


def _librosa_load(original: Any) -> Callable[..., Any]:
    own = functools.partial(original, sr=None, mono=False)

    @functools.wraps(original)
    def load(path: Any, *args: Any, **kwargs: Any) -> Any:
        # Resampling and mixing are librosa's; with `sr=None` and one channel there are none.
        plain = not args and set(kwargs) <= {"sr", "mono", "offset", "duration", "dtype"}
        plain = plain and "sr" in kwargs and kwargs["sr"] is None
        plain = plain and kwargs.get("dtype", np.float32) in (np.float32, "float32")
        plain = plain and not kwargs.get("offset") and kwargs.get("duration") is None
        made = _channels(path) if plain and _wanted() and _agrees(own, _channels) else None
        if made is None or made[0].ndim > 1:
            return original(path, *args, **kwargs)
        return made

    return load


def _channels(path: Any) -> Any:
    found = _loaded(path, pcm_most=_PCM_MOST)
    if found is None:
        return None
    channels, length = found.sound.shape
    # Several are frames seen as channels there.
    samples = np.empty((length, channels) if channels > 1 else (length,), np.float32)
    if samples.size:
        found.sound.write(samples.ctypes.data, samples.nbytes, "float32", True)
    return samples.T, found.sound.sample_rate


_REPLACED: list[tuple[str, str, Callable[[Any], Any]]] = [
    ("torchaudio", "load", _torchaudio_load),
    ("soundfile", "read", _soundfile_read),
    ("librosa", "load", _librosa_load),
]
"""The library, its function, and what makes the replacement of it."""


def _renew_lock() -> None:
    _State.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    # Whoever held it is not in the child.
    os.register_at_fork(after_in_child=_renew_lock)
