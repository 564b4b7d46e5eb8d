"""The installed Keras: those of its functions that are called here, and what its backend is given.

Functions are called, so that files, classes, splits, printed lines and errors are Keras' by construction. They are not
public, so what is missing in another version is a clear error here.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from ..exceptions import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .._transform import Transform
    from ..dataset import Dataset

__all__ = ["TESTED", "handed_over", "has_tensorflow", "own"]

TESTED = "3.15"
"""The version of Keras whose functions are known."""


def own(module: str, name: str) -> Any:
    """What Keras calls `name` in its module ``keras.src.<module>``.

    Raises:
        ModuleNotFoundError: Keras is not installed.
        ConfigError: This version has no such thing.
    """
    try:
        import keras
    except ModuleNotFoundError as e:
        if e.name != "keras":
            raise
        raise ModuleNotFoundError(
            "wf.keras needs Keras 3, which is not installed\nhint: install keras", name="keras"
        ) from None
    try:
        return getattr(importlib.import_module(f"keras.src.{module}"), name)
    except (ImportError, AttributeError):
        raise ConfigError(
            f"Keras {keras.__version__} has no keras.src.{module}.{name}; wf.keras was tested with Keras {TESTED}\n"
            "hint: install that version, or build the pipeline by wf.image_files(...).keras()"
        ) from None


def handed_over(
    source: Dataset, steps: Sequence[Transform], batch_size: int | None, finish: Callable[[Any], Any]
) -> Any:
    """What Keras' backend takes best: batches of `source` after `steps`, to which `finish` is done.

    Single samples without a size. `finish` is called with what is known of columns, too.
    """
    import keras

    if keras.backend.backend() == "tensorflow":
        from ._tensorflow import TensorData

        return TensorData.of(source, steps, batch_size, finish)
    from ._arrays import ArrayData

    return ArrayData.of(source, steps, batch_size, finish)


def has_tensorflow() -> bool:
    """Whether TensorFlow is installed; it is not imported."""
    return importlib.util.find_spec("tensorflow") is not None
