"""What torchaudio's transforms become.

Invariant: only transforms of exactly the known types are lowered, as their library made them: from their parameters,
and only if the tensors they hold (windows, filters) are those that torchaudio makes of these. Everything else stays in
Python, with the reason.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from wellfed import transforms as T
from wellfed._accelerate.listening import unheard

from .extractors import Extracted, lower_extracted
from .forms import Form, RefusalError, is_stock
from .sounds import SEVERAL, ByFunction, Mean, Mono, ToRate

__all__ = ["is_sound", "lower_sound"]

Step = tuple[list[T.Transform], Form, str]

_METHODS = ("forward", "__call__", "_wrapped_call_impl", "_call_impl", "_fade_in", "_fade_out")
_MODULE = "torchaudio.transforms"
_LIBRARY = "use the class as its library made it"


def is_sound(form: Form) -> bool:
    """Whether it is that of a sound, and not of an image."""
    return form.kind in ("waveform", "mono", "samples", "spectrum")


def lower_sound(leaf: Any, form: Form) -> Step:
    """What the engine does for one transform of a sound, what that is then, and what there is to say.

    Raises:
        RefusalError: It stays in Python.
    """
    if type(leaf) is nn.Identity and _is_own(leaf):
        return [], form, ""
    if isinstance(leaf, Mono):
        return [T.ToMono(keepdim=False)], form.turned("samples"), ""
    if isinstance(leaf, Mean):
        if form.kind != "waveform":
            raise RefusalError(f"stands on {form}")
        return [T.ToMono(leaf.keepdim)], form.turned("waveform" if leaf.keepdim else "mono"), ""
    if isinstance(leaf, ToRate):
        return [_resampling(None, leaf.new, leaf.given)], replace(form, rate=leaf.new), ""
    if isinstance(leaf, ByFunction):
        _waveform(form)
        _check_rate(form, leaf.old, "orig_freq")
        given = (*leaf.given, ("dtype", "float32"))
        return [_resampling(leaf.old, leaf.new, given)], replace(form, rate=leaf.new), ""
    if isinstance(leaf, Extracted):
        return lower_extracted(leaf, form)
    handler = _HANDLERS.get(_known_name(leaf))
    if handler is None:
        raise RefusalError(*_why_unknown(leaf))
    _check(leaf)
    try:
        return handler(leaf, form)
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise RefusalError(str(getattr(error, "message", error)).partition("\n")[0]) from None


def _resampling(old: int | None, new: int, given: tuple[tuple[str, Any], ...]) -> T.Transform:
    try:
        return T.Resample(old, new, **dict(given))
    except (TypeError, ValueError) as error:
        raise RefusalError(str(getattr(error, "message", error)).partition("\n")[0]) from None


def _transforms() -> Any:
    return sys.modules.get(_MODULE)


def _known_name(leaf: Any) -> str:
    """The name of its class, if that is exactly one of torchaudio's."""
    name = type(leaf).__name__
    return name if getattr(_transforms(), name, None) is type(leaf) else ""


def _why_unknown(leaf: Any) -> tuple[str, str]:
    for base in type(leaf).__mro__[1:]:
        if base.__name__ in _HANDLERS and getattr(_transforms(), base.__name__, None) is base:
            return f"a subclass of {base.__name__} may do something else", f"use {base.__name__} itself"
    if _known_name(leaf):
        return "the engine has no such transform", ""
    return "Python code", ""


def _is_own(module: Any) -> bool:
    return is_stock(module, *_METHODS) and unheard(module)


def _check(module: Any, kind: str = "") -> None:
    """Refuses a module that does something else than its class, or whose tensors are not plain ones.

    Raises:
        RefusalError: It does.
    """
    if kind and _known_name(module) != kind:
        raise RefusalError(f"{type(module).__name__} stands in the place of {kind}", _LIBRARY)
    if not _is_own(module):
        raise RefusalError("its methods were replaced, or it has hooks", _LIBRARY)
    for name, tensor in (*module._buffers.items(), *module._parameters.items()):
        if tensor is None:
            continue
        plain = type(tensor) is torch.Tensor and tensor.dtype == torch.float32 and not tensor.requires_grad
        if not plain or tensor.device.type != "cpu":
            raise RefusalError(f"its {name} is no plain float32 tensor of the CPU")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _waveform(form: Form, rate: int | None = None) -> None:
    """Refuses what does not stand on a waveform, or on one of another rate.

    Raises:
        RefusalError: It does not.
    """
    if form.kind not in ("waveform", "mono"):
        raise RefusalError(f"stands on {form}")
    if rate is not None:
        _check_rate(form, rate, "sample_rate")


def _check_rate(form: Form, rate: int, name: str) -> None:
    """Refuses what is for another sample rate, which torchaudio does not see.

    Raises:
        RefusalError: It is.
    """
    if form.rate == SEVERAL:
        change = f"Resample(rate, {rate}) for the rate of each file before it"
        raise RefusalError(f"is for {rate} Hz, and files have several sample rates", change)
    if form.rate not in (0, rate):
        why = f"is for {rate} Hz, and stands on a sound of {form.rate} Hz"
        raise RefusalError(why, f"{name}={form.rate}")


def _spectrum(form: Form) -> None:
    if form.kind != "spectrum":
        raise RefusalError(f"stands on {form}")


def _resample(t: Any, form: Form) -> Step:
    rates = (t.orig_freq, t.new_freq)
    if any(type(rate) is not int for rate in rates):
        raise RefusalError(f"its rates are {rates[0]!r} and {rates[1]!r}", "whole numbers")
    _waveform(form)
    _check_rate(form, t.orig_freq, "orig_freq")
    given = (*rates, t.resampling_method, t.lowpass_filter_width, t.rolloff, t.beta)
    fresh = _fresh(t.__class__, given)
    _same(t, fresh, "kernel")
    if getattr(t, "width", None) != getattr(fresh, "width", None) or t.gcd != fresh.gcd:
        raise RefusalError("its filter was changed", _LIBRARY)
    return [T.Resample(*given)], replace(form, rate=t.new_freq), ""


@functools.lru_cache(64)
def _fresh(kind: type, given: tuple[Any, ...]) -> Any:
    """A new module of these parameters. torchaudio may have a warning for it, so it is not made before each epoch."""
    return kind(*given)


def _same(one: Any, other: Any, *names: str) -> None:
    """Refuses a module whose tensors of these names are others than those of a new one.

    Raises:
        RefusalError: They are.
    """
    for name in names:
        ours, theirs = one._buffers.get(name), other._buffers.get(name)
        if (ours is None) != (theirs is None) or not (ours is None or _equal(ours, theirs)):
            raise RefusalError(f"its {name} was changed", _LIBRARY)


def _equal(one: Any, other: Any) -> bool:
    """Whether tensors are equal. What torch makes by default may be of another dtype or device by now."""
    alike = (one.dtype, one.device) == (other.dtype, other.device)
    return alike and bool(torch.equal(one, other))


_WINDOWS = ("hann_window", "hamming_window", "blackman_window", "bartlett_window", "ones")


def _window(t: Any) -> str:
    """The name of a spectrogram's window."""
    window = t._buffers.get("window")
    for name in _WINDOWS:
        if window is not None and _equal(window, getattr(torch, name)(t.win_length)):
            return name
    raise RefusalError("its window is none that is known", f"a window of {', '.join(_WINDOWS[:-1])}")


def _of_spectrogram(t: Any) -> dict[str, Any]:
    """Its parameters, but for `onesided`."""
    _check(t, "Spectrogram")
    if t.power not in (1.0, 2.0):
        raise RefusalError(f"its power is {t.power}", "power=2.0 or 1.0")
    if any(type(value) is not int for value in (t.n_fft, t.win_length, t.hop_length, t.pad)):
        raise RefusalError("its sizes are no whole numbers")
    if type(t.normalized) not in (bool, str) or type(t.center) is not bool:
        raise RefusalError("its parameters are of types that are not known")
    names = ("n_fft", "win_length", "hop_length", "pad", "power", "normalized", "center", "pad_mode")
    return {**{name: getattr(t, name) for name in names}, "window_fn": _window(t)}


def _spectrogram(t: Any, form: Form) -> Step:
    _waveform(form)
    made = T.Spectrogram(**_of_spectrogram(t), onesided=t.onesided)
    return [made], form.turned("spectrum"), ""


def _of_mel(t: Any) -> tuple[int, dict[str, Any]]:
    """The sample rate of a mel spectrogram, and its other parameters."""
    _check(t, "MelSpectrogram")
    parameters = _of_spectrogram(t.spectrogram)
    scale = t.mel_scale
    _check(scale, "MelScale")
    if t.spectrogram.onesided is not True or scale.n_stft != t.spectrogram.n_fft // 2 + 1:
        raise RefusalError("its filters do not fit its spectrum", _LIBRARY)
    if type(scale.sample_rate) is not int or not _is_number(scale.f_min) or not _is_number(scale.f_max):
        raise RefusalError("its frequencies are no plain numbers", "a whole number as sample_rate")
    given = (
        scale.n_mels,
        scale.sample_rate,
        scale.f_min,
        scale.f_max,
        scale.n_stft,
        scale.norm,
        scale.mel_scale,
    )
    fresh = _fresh(scale.__class__, given)
    _same(scale, fresh, "fb")
    names = ("n_mels", "f_min", "f_max", "norm", "mel_scale")
    return scale.sample_rate, {**parameters, **{name: getattr(scale, name) for name in names}}


def _mel_spectrogram(t: Any, form: Form) -> Step:
    rate, parameters = _of_mel(t)
    _waveform(form, rate)
    return [T.MelSpectrogram(sample_rate=rate, **parameters)], form.turned("spectrum"), ""


def _decibels(t: Any, stype: str | None = None, top_db: float | None = None) -> T.AmplitudeToDB:
    _check(t, "AmplitudeToDB")
    expected = {"power": 10.0, "magnitude": 20.0}.get(t.stype)
    if t.multiplier != expected or (t.amin, t.ref_value, t.db_multiplier) != (1e-10, 1.0, 0.0):
        raise RefusalError("its reference was changed", _LIBRARY)
    if stype is not None and (t.stype, t.top_db) != (stype, top_db):
        raise RefusalError("its decibels were changed", _LIBRARY)
    return T.AmplitudeToDB(t.stype, t.top_db)


def _amplitude_to_db(t: Any, form: Form) -> Step:
    _spectrum(form)
    return [_decibels(t)], form, ""


def _mfcc(t: Any, form: Form) -> Step:
    rate, parameters = _of_mel(t.MelSpectrogram)
    _waveform(form, rate)
    _decibels(t.amplitude_to_DB, "power", 80.0)
    fresh = sys.modules["torchaudio.functional"].create_dct(t.n_mfcc, parameters["n_mels"], t.norm)
    if not _equal(t._buffers["dct_mat"], fresh):
        raise RefusalError("its dct_mat was changed", _LIBRARY)
    made = T.MFCC(rate, t.n_mfcc, t.dct_type, t.norm, t.log_mels, parameters)
    return [made], form.turned("spectrum"), ""


def _lfcc(t: Any, form: Form) -> Step:
    parameters = _of_spectrogram(t.Spectrogram)
    if t.Spectrogram.onesided is not True:
        raise RefusalError("its spectrum has both halves", "onesided=True")
    if type(t.sample_rate) is not int or not _is_number(t.f_min) or not _is_number(t.f_max):
        raise RefusalError("its frequencies are no plain numbers", "a whole number as sample_rate")
    _waveform(form, t.sample_rate)
    _decibels(t.amplitude_to_DB, "power", 80.0)
    functional = sys.modules["torchaudio.functional"]
    bins = t.Spectrogram.n_fft // 2 + 1
    for name, fresh in (
        ("filter_mat", functional.linear_fbanks(bins, t.f_min, t.f_max, t.n_filter, t.sample_rate)),
        ("dct_mat", functional.create_dct(t.n_lfcc, t.n_filter, t.norm)),
    ):
        if not _equal(t._buffers[name], fresh):
            raise RefusalError(f"its {name} was changed", _LIBRARY)
    given = (t.sample_rate, t.n_filter, t.f_min, t.f_max, t.n_lfcc, t.dct_type, t.norm, t.log_lf)
    return [T.LFCC(*given, speckwargs=parameters)], form.turned("spectrum"), ""


def _vol(t: Any, form: Form) -> Step:
    _waveform(form)
    return [T.Vol(t.gain, t.gain_type)], form, ""


def _fade(t: Any, form: Form) -> Step:
    _waveform(form)
    return [T.Fade(t.fade_in_len, t.fade_out_len, t.fade_shape)], form, ""


def _masking(make: Callable[[Any], T.Transform], axis: int) -> Callable[[Any, Form], Step]:
    def handle(t: Any, form: Form) -> Step:
        _spectrum(form)
        if t.iid_masks:
            raise RefusalError("iid_masks=True masks each channel by itself", "iid_masks=False")
        if t.axis != axis or (axis == 1 and t.p != 1.0):
            raise RefusalError("its axis or share was changed", _LIBRARY)
        return [make(t)], form, ""

    return handle


_HANDLERS: dict[str, Callable[[Any, Form], Step]] = {
    "Resample": _resample,
    "Spectrogram": _spectrogram,
    "MelSpectrogram": _mel_spectrogram,
    "AmplitudeToDB": _amplitude_to_db,
    "MFCC": _mfcc,
    "LFCC": _lfcc,
    "Vol": _vol,
    "Fade": _fade,
    "FrequencyMasking": _masking(lambda t: T.FrequencyMasking(t.mask_param), 1),
    "TimeMasking": _masking(lambda t: T.TimeMasking(t.mask_param, p=t.p), 2),
}
