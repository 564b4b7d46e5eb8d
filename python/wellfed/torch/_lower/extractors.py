"""Feature extractors of Hugging Face's `transformers` that are called on sounds: Whisper's and wav2vec 2.0's.

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
    """An extractor that is called on the samples of a sound, of whose batch of one the features are taken.

    Attributes:
        extractor: What is called.
        given: Arguments besides the sound, its rate and ``return_tensors="pt"``.
    """

    extractor: Any
    given: tuple[tuple[str, Any], ...] = ()

    def __call__(self, samples: Any) -> Any:
        rate = self.extractor.sampling_rate
        made = self.extractor(samples, sampling_rate=rate, return_tensors="pt", **dict(self.given))
        return made[_FEATURES[type(self.extractor).__name__]][0]

    def __repr__(self) -> str:
        return type(self.extractor).__name__


def is_extractor(value: Any) -> bool:
    """Whether it is a feature extractor that is known."""
    name = type(value).__name__
    folder = {"WhisperFeatureExtractor": "whisper", "Wav2Vec2FeatureExtractor": "wav2vec2"}.get(name)
    module = sys.modules.get(f"transformers.models.{folder}.feature_extraction_{folder}")
    return module is not None and type(value) is getattr(module, name, None)


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
    padding = {key: given.pop(key) for key in _PADDING if key in given}
    if arguments or given.keys() != {"raw_speech", "return_tensors", "sampling_rate"}:
        raise UnknownError(f'calls {name} with more than sounds, sampling_rate and return_tensors="pt"')
    speech = given["raw_speech"]
    if given["return_tensors"] != Known("pt") or given["sampling_rate"] != Known(extractor.sampling_rate):
        raise UnknownError(f"calls {name} for another sampling_rate, or for something else than tensors")
    if name == "WhisperFeatureExtractor" and padding:
        raise UnknownError(f"calls {name} with arguments of its own for how sounds are padded")
    if name == "Wav2Vec2FeatureExtractor":
        _check_padding(extractor, padding)
    known = tuple((key, value.value) for key, value in padding.items() if isinstance(value, Known))
    if not isinstance(speech, Column) or not isinstance(speech.item, Sound):
        raise UnknownError(f"calls {name} on something else than a list of sounds")
    return Features({_FEATURES[name]: Column(speech.item.after(Extracted(extractor, known)))})


_FEATURES = {"WhisperFeatureExtractor": "input_features", "Wav2Vec2FeatureExtractor": "input_values"}
"""What an extractor calls its features."""

_PADDING = ("padding", "max_length", "truncation", "pad_to_multiple_of", "return_attention_mask")
"""Arguments that say how sounds of several lengths are made one."""


def _check_padding(extractor: Any, given: Mapping[str, Value]) -> None:
    """Refuses what makes sounds of a batch depend on each other.

    Raises:
        UnknownError: They do, or there is more than one result.
    """
    if not all(isinstance(value, Known) for value in given.values()):
        raise UnknownError("pads sounds in a way that differs from sample to sample")
    known = {key: value.value for key, value in given.items() if isinstance(value, Known)}
    masks = known.get("return_attention_mask")
    if extractor.return_attention_mask if masks is None else masks:
        raise UnknownError(
            "returns an attention_mask, for which the length of each sound would have to be known"
        )
    fixed = known.get("padding") == "max_length" and known.get("truncation") is True
    length = known.get("max_length")
    if not fixed or type(length) is not int or length < 1 or known.get("pad_to_multiple_of") is not None:
        raise UnknownError(
            'pads sounds to the longest of a batch, or not at all; padding="max_length" with max_length= and '
            "truncation=True makes each the same"
        )


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
    if type(e).__name__ == "Wav2Vec2FeatureExtractor":
        return _lower_wav2vec2(leaf, form)
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


def _lower_wav2vec2(leaf: Extracted, form: Form) -> tuple[list[T.Transform], Form, str]:
    e = leaf.extractor
    length = dict(leaf.given)["max_length"]
    if type(e.sampling_rate) is not int or form.rate not in (0, e.sampling_rate):
        raise RefusalError(f"is for {e.sampling_rate} Hz, and stands on a sound of {form.rate} Hz")
    if (e.feature_size, e.padding_value, e.padding_side) != (1, 0.0, "right"):
        raise RefusalError("it pads on the left, by another value than 0, or has several features")
    if type(e.do_normalize) is not bool:
        raise RefusalError(f"its do_normalize is {e.do_normalize!r}", "do_normalize=True")
    steps: list[T.Transform] = [T.PadOrTrim(length)]
    if e.do_normalize:
        # Without a mask, zeros that are put behind a sound count as well.
        steps.append(T.Standardize(1e-7))
    key = settings(e), repr(leaf.given).encode()
    if key not in _checked:
        _checked[key] = _other_values(leaf, length)
    if _checked[key]:
        raise RefusalError(_checked[key])
    return steps, replace(form, kind="mono", sized=True), ""


def _other_values(leaf: Extracted, length: int) -> str:
    """Why an extractor makes other values than is known; empty if it does not."""
    i = np.arange(min(length, 4000) // 2 + 1, dtype=np.int64)
    signal = ((((i * i * 31) >> 3) ^ (i % 251)) & 1023).astype(np.float32) / 1024 - 0.25
    try:
        theirs = leaf(signal)
    except Exception as error:  # settings that it cannot work by: the script will hear of it
        return f"it raises {type(error).__name__}"
    ours = np.zeros(length)
    ours[: len(signal)] = signal[:length]
    if leaf.extractor.do_normalize:
        ours = (ours - ours.mean()) / np.sqrt(ours.var() + 1e-7)
    if theirs.dtype != torch.float32 or theirs.shape != (length,):
        return "it makes other features here than is known"
    if np.abs(theirs.numpy() - ours).max() > _NEAR * max(np.abs(ours).max(), 1.0):
        return "it makes other values here than is known"
    return ""


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
