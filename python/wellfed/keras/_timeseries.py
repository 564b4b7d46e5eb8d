"""`timeseries_dataset_from_array`: Keras' function of that name, with windows that are gathered a batch at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .. import sources
from .._handover.columns import Column
from ..exceptions import ConfigError
from ._own import handed_over, own

__all__ = ["timeseries_dataset_from_array"]


def timeseries_dataset_from_array(
    data: Any,
    targets: Any,
    sequence_length: int,
    sequence_stride: int = 1,
    sampling_rate: int = 1,
    batch_size: int | None = 128,
    shuffle: bool = False,
    seed: int | None = None,
    start_index: int | None = None,
    end_index: int | None = None,
    format: str = "tf",  # noqa: A002 (Keras' name)
    **options: Any,
) -> Any:
    """`keras.utils.timeseries_dataset_from_array`: the same windows of a series, in less time.

    What it gives is as of `image_dataset_from_directory`: a `tf.data.Dataset` on TensorFlow, and what `fit` and loops
    take on torch and JAX, without TensorFlow. Windows ``[batch, sequence_length, ...]`` and targets have the dtypes of
    the arrays; lists of Python's numbers become float32 or int32, as of TensorFlow. Windows are gathered when their
    batch is asked for. With ``shuffle`` all windows change places, anew in each epoch.

    Args:
        data: The series: an array, or what NumPy takes for one, with time as its first side.
        targets: One for each window, by its first time; or None.
        sequence_length: As of Keras, as all up to ``format``.
        sequence_stride: Times between the beginnings of two windows.
        sampling_rate: Times between two values of a window.
        batch_size: None gives single windows.
        shuffle: Whether windows come in a random order.
        seed: Of the order.
        start_index: Times before it are left out.
        end_index: Times from it on are left out.
        format: ``"tf"``; ``"grain"`` is refused.
        options: As of `wellfed.Dataset.with_options`.

    Raises:
        ValueError: As of Keras; there is no window; or the windows have fewer targets, of which Keras finds out later.
        ConfigError: ``"grain"``, or data that are no numbers.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> series = np.arange(10)
        >>> data = wf.keras.timeseries_dataset_from_array(series, series[3:], sequence_length=3, batch_size=4)
        >>> for windows, targets in data.take(1):
        ...     print(np.asarray(windows).tolist(), np.asarray(targets).tolist())
        [[0, 1, 2], [1, 2, 3], [2, 3, 4], [3, 4, 5]] [3, 4, 5, 6]
    """
    length, rate, stride = sequence_length, sampling_rate, sequence_stride
    _check(data, stride, rate, start_index, end_index, format)
    if format == "grain":
        raise ConfigError(
            'format="grain" is not known here\nhint: format="tf" needs no TensorFlow on torch and JAX'
        )
    begin, end = start_index or 0, len(data) if end_index is None else end_index
    count = end - begin - (length - 1) * rate
    if targets is not None:
        count = min(count, len(targets))
    series = _array(data[begin:end], "data")
    goals = None if targets is None else _array(targets[begin:end], "targets")
    positions = np.arange(0, count, stride)
    if length < 1 or not len(positions):
        raise ValueError(
            f"there is no window of {length} values, {rate} apart, in {end - begin} times"
            + ("" if targets is None else f" with {len(targets)} targets")
        )
    if goals is not None and positions[-1] >= len(goals):
        raise ValueError(
            f"the last window begins at {begin + positions[-1]}, but there are {len(targets)} targets\n"
            "hint: targets[i] belongs to the window that begins at i, counted from the beginning of data"
        )
    if shuffle and seed is None:
        seed = int(np.random.randint(1_000_000))
    source = sources.from_tensor_slices(positions)
    if shuffle:
        assert seed is not None
        source = source.shuffle(seed=seed)
    source = source.with_options(**options) if options else source
    return handed_over(source, [], batch_size, Windows(series, goals, length, rate))


def _check(data: Any, stride: Any, rate: Any, begin: Any, end: Any, form: Any) -> None:
    """Has Keras raise what it objects to."""
    wrong = (
        (begin and (begin < 0 or begin >= len(data)))
        or (end and ((begin and end <= begin) or end >= len(data) or end <= 0))
        or not 0 < rate < len(data)
        or not 0 < stride < len(data)
        or form not in ("tf", "grain")
    )
    if wrong:
        own("utils.timeseries_dataset_utils", "timeseries_dataset_from_array")(
            data, None, 1, stride, rate, start_index=begin, end_index=end, format=form
        )
        raise ConfigError("arguments that are not known here, though Keras takes them")


def _array(values: Any, name: str) -> Any:
    """Values as an array of the dtype that TensorFlow gives them."""
    array = np.ascontiguousarray(values)
    if isinstance(values, list | tuple):
        kinds = {type(leaf) for leaf in np.array(values, dtype=object).ravel()}
        if kinds <= {int, float}:
            array = array.astype(np.float32 if float in kinds else np.int32, casting="unsafe")
            if float not in kinds and not np.array_equal(array, np.asarray(values)):
                raise ConfigError(f"{name} has numbers beyond int32\nhint: give it as an array of int64")
    if array.dtype.kind not in "biufc":
        raise ConfigError(f"{name} is of dtype {array.dtype}; it must be an array of numbers")
    return array


class Windows:
    """Makes windows, and targets, of their positions: of what is known of a column, tensors and arrays.

    Example:
        >>> import numpy as np
        >>> Windows(np.arange(9.0), None, 3, 2)(np.array([1, 4])).tolist()
        [[1.0, 3.0, 5.0], [4.0, 6.0, 8.0]]
    """

    def __init__(self, series: Any, targets: Any, length: int, rate: int) -> None:
        self._parts = series, targets
        self._steps = np.arange(length) * rate
        # The same in the framework's memory, when it is first asked for.
        self._held: Any = None

    def __call__(self, position: Any) -> Any:
        series, targets = self._parts
        if isinstance(position, Column):

            def column(array: Any, sides: tuple[int, ...]) -> Column:
                shape = (*position.shape, *sides, *array.shape[1:])
                return replace(position, dtype=array.dtype.name, shape=shape)

            windows: Any = column(series, (len(self._steps),))
            return windows if targets is None else (windows, column(targets, ()))
        package = type(position).__module__.partition(".")[0]
        convert, taken = _NUMPY
        if package == "tensorflow":
            import tensorflow as tf

            convert, taken = tf.constant, tf.gather
        elif package == "torch":
            import torch

            convert, taken = torch.as_tensor, torch.Tensor.__getitem__
        if self._held is None:
            held = (series, targets, self._steps)
            self._held = [None if one is None else convert(one) for one in held]
        series, targets, steps = self._held
        windows = taken(series, position[..., None] + steps)
        return windows if targets is None else (windows, taken(targets, position))


_NUMPY: Any = (np.asarray, np.ndarray.__getitem__)
