"""`wf.keras`: Keras' data utilities under their own names, with wellfed's pipelines inside.

Arguments, defaults, printed lines and errors are those of Keras 3. Keras must be installed; it is imported when one of
them is used. docs/keras.md says what is equal to Keras' own, and what is left to it.

Example:
    >>> import wellfed as wf
    >>> sorted(wf.keras.__all__)[:2]
    ['ImageDataGenerator', 'image_dataset_from_directory']
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import layers as layers
    from ._generator import ImageDataGenerator as ImageDataGenerator
    from ._images import image_dataset_from_directory as image_dataset_from_directory
    from ._text import text_dataset_from_directory as text_dataset_from_directory
    from ._timeseries import timeseries_dataset_from_array as timeseries_dataset_from_array

__all__ = [
    "ImageDataGenerator",
    "image_dataset_from_directory",
    "layers",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
]

_HOMES = {
    "ImageDataGenerator": "_generator",
    "image_dataset_from_directory": "_images",
    "layers": "layers",
    "text_dataset_from_directory": "_text",
    "timeseries_dataset_from_array": "_timeseries",
}
"""Where the names are, which are imported when they are first asked for: Keras takes seconds."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f".{home}", __name__)
    found = module if home == name else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
