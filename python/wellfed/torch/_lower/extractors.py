"""Feature extractors of Hugging Face's `transformers` that are called on sounds: Whisper's.

Invariant: an extractor is known only by its exact class, with the methods of its library and settings that the engine
has, and only if the engine's values equalled its own on a sound made up for that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from wellfed import _native
from wellfed import transforms as T

from .forms import Form, RefusalError, is_stock
from .unknown import UnknownError
from .values import Column, Features, Known, Sound, Value

__all__ = ["Extracted", "extracted", "is_extractor", "lower_extracted", "settings"]

_METHODS = (
    *("__call__", "pad", "_pad", "_truncate", "_get_padding_strategies", "zero_mean_unit_var_norm"),
    *("_torch_extract_fbank_features", "_np_extract_fbank_features"),
)

_NEAR = 1e-5
"""How far values may be apart, of the greatest one."""


@dataclass(frozen=True)
class Extracted:
    """An extractor that is called on the samples of a sound, of whose batch of one the features are taken."""

    extractor: Any

    def __call__(self, samples: Any) -> Any:
        rate = self.extractor.sampling_rate
        return self.extractor(samples, sampling_rate=rate, return_tensors="pt")["input_features"][0]

    def __repr__(self) -> str:
        return type(self.extractor).__name__


def is_extractor(value: Any) -> bool:
    """Whether it is Whisper's feature extractor."""
    module = sys.modules.get("transformers.models.whisper.feature_extraction_whisper")
    return module is not None and type(value) is getattr(module, "WhisperFeatureExtractor", None)


def settings(extractor: Any) -> str:
    """All that its result depends on, but for its filters."""
    return repr(sorted((name, value) for name, value in vars(extractor).items() if name != "mel_filters"))


def extracted(extractor: Any, arguments: list[Value], named: Mapping[str, Value]) -> Value:
    """What an extractor makes of a list of the samples of sounds.

    Raises:
        UnknownError: It is called in another way.
    """
    given = dict(named)
    if arguments:
        given["raw_speech"], *arguments = arguments
    name = type(extractor).__name__
    if arguments or given.keys() != {"raw_speech", "return_tensors", "sampling_rate"}:
        raise UnknownError(f'calls {name} with more than sounds, sampling_rate and return_tensors="pt"')
    speech = given["raw_speech"]
    if given["return_tensors"] != Known("pt") or given["sampling_rate"] != Known(extractor.sampling_rate):
        raise UnknownError(f"calls {name} for another sampling_rate, or for something else than tensors")
    if not isinstance(speech, Column) or not isinstance(speech.item, Sound):
        raise UnknownError(f"calls {name} on something else than a list of sounds")
    return Features({"input_features": Column(speech.item.after(Extracted(extractor)))})


def lower_extracted(leaf: Extracted, form: Form) -> tuple[list[T.Transform], Form, str]:
    """What the engine runs for it, and what the sound is then.

    Raises:
        RefusalError: It does more, or otherwise.
    """
    e = leaf.extractor
    if form.kind != "samples":
        raise RefusalError(f"stands on {form}")
    if not is_extractor(e) or not is_stock(e, *_METHODS):
        raise RefusalError("its methods were replaced", "use the class as its library made it")
    known = {"sampling_rate": 16_000, "hop_length": 160, "n_fft": 400, "dither": 0.0, "padding_value": 0.0}
    for name, value in known.items():
        if getattr(e, name) != value:
            raise RefusalError(f"its {name} is {getattr(e, name)!r}", f"{name}={value}")
    if form.rate not in (0, e.sampling_rate):
        raise RefusalError(f"is for {e.sampling_rate} Hz, and stands on a sound of {form.rate} Hz")
    if e.padding_side != "right" or e.return_attention_mask:
        raise RefusalError("it pads on the left, or returns masks")
    if type(e.n_samples) is not int or e.n_samples < 400 or type(e.feature_size) is not int:
        raise RefusalError("its sizes are not known")
    steps: list[T.Transform] = [T.PadOrTrim(e.n_samples), T.WhisperLogMel(e.feature_size)]
    _check(leaf)
    return steps, replace(form, kind="spectrum", sized=True), ""


_checked: dict[tuple[str, bytes], str] = {}
"""By settings and filters: why the engine has other values; empty if it has the same."""


def _check(leaf: Extracted) -> None:
    filters = np.ascontiguousarray(leaf.extractor.mel_filters)
    key = settings(leaf.extractor), filters.tobytes()
    if key not in _checked:
        _checked[key] = _different(leaf)
    if _checked[key]:
        raise RefusalError(_checked[key])


def _different(leaf: Extracted) -> str:
    e = leaf.extractor
    # Not a generator of anybody's, whose state would change.
    i = np.arange(min(e.n_samples, 48_000), dtype=np.int64)
    signal = ((((i * i * 31) >> 3) ^ (i % 251)) & 1023).astype(np.float32) / 1024 - 0.5
    try:
        theirs = leaf(signal)
    except Exception as error:  # settings that it cannot work by: the script will hear of it
        return f"it raises {type(error).__name__}"
    padded = np.zeros(e.n_samples, np.float32)
    padded[: len(signal)] = signal
    ours = torch.empty(e.feature_size, e.n_samples // 160)
    size = ours.numel() * 4
    _native.whisper_log_mel(padded.ctypes.data, (1, len(padded)), e.feature_size, ours.data_ptr(), size)
    if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
        return "it makes other features here than is known"
    if float((theirs - ours).abs().max()) > _NEAR * float(theirs.abs().max()):
        return "it makes other values here than is known"
    return ""
