"""`Dataset.jax`: batches as JAX arrays.

On the CPU an array is the memory that the batch was made in. JAX frees it, by DLPack's deleter, after the last array
and the last computation that reads it; only then is it written again. For other devices, and for shardings, a batch
that already waits is copied while the caller works on the one before it. `state_dict` does not count such a batch.
With `on_device` the device makes the images of such a batch (`jax_left`).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _native
from .._loader import BadSample, Loader, Stats
from .._options import check_on_device, left_to
from .._ragged import Ragged
from ..exceptions import ShapeError
from .passes import steps_loader, stream_loader

try:
    import jax

    from .jax_left import Finishing, LeftImages
except ModuleNotFoundError as e:
    raise ModuleNotFoundError(
        "jax() needs JAX, which is not installed\nhint: install jax, or iterate as .numpy()", name=e.name
    ) from None

if TYPE_CHECKING:
    from types import TracebackType

    from .._steps.loader import StepsLoader
    from .._steps.stream import StreamDataset, StreamLoader
    from ..dataset import Dataset

__all__ = ["JaxIterator", "JaxLoader", "make", "make_stream"]

_NARROWER = {"int64": np.int32, "uint64": np.uint32}
"""What JAX makes of whole numbers unless `jax_enable_x64` is set."""


def _unflattened(_: Any, parts: Any) -> Ragged:
    # JAX also puts things in it that are no arrays.
    ragged = object.__new__(Ragged)
    ragged.values, ragged.offsets = parts
    return ragged


# Somebody may have told JAX already.
with contextlib.suppress(ValueError):
    jax.tree_util.register_pytree_node(Ragged, lambda one: ((one.values, one.offsets), None), _unflattened)


def make(dataset: Dataset, sharding: Any, context: Any, on_device: str = "copy") -> JaxLoader:
    """The loader of a data set; `sharding` and `on_device` as of `Dataset.jax`."""
    place = _Placing(sharding)
    if on_device != "copy":
        device = place.only_cuda(on_device)
        return leaving(dataset, place, Finishing(device), on_device)
    host = _aliased if place.nowhere else _on_host
    if dataset._has_python():
        from .._steps.collate import as_numpy

        steps = steps_loader(dataset, lambda batch: _each(host, as_numpy(batch)), "JAX", context)
        return JaxLoader(steps, place)
    return JaxLoader(Loader(dataset, lambda column: _each(host, column), "JAX", None), place)


def leaving(dataset: Dataset, place: _Placing, finishing: Finishing, on_device: str) -> JaxLoader:
    """A loader whose images are left to what `finishing` stands for, on which they are placed."""
    dataset = left_to(dataset, finishing.name, on_device)
    # Other columns go the way over the host.
    place.nowhere = False
    loader = Loader(dataset, lambda column: _each(_on_host, column), "JAX", None, finishing)
    return JaxLoader(loader, place)


def make_stream(dataset: StreamDataset, sharding: Any, context: Any) -> JaxLoader:
    """The loader of a stream; the arguments are those of `make`."""
    from .._steps.collate import as_numpy

    place = _Placing(sharding)
    host = _aliased if place.nowhere else _on_host
    return JaxLoader(stream_loader(dataset, lambda batch: _each(host, as_numpy(batch)), context), place)


def _each(host: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `host` done to its arrays."""
    kind = type(value)
    if kind is _native.Array or isinstance(value, np.ndarray | np.generic):
        return host(value)
    if kind is _native.RaggedColumn:
        return Ragged(host(value.values), host(value.offsets))
    if isinstance(value, dict):
        return {key: _each(host, one) for key, one in value.items()}
    if isinstance(value, tuple | list):
        parts = [_each(host, one) for one in value]
        if isinstance(value, list):
            return parts
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def _aliased(array: Any) -> Any:
    """An array of JAX on the CPU, over the same memory where its dtype is one that JAX keeps."""
    if str(array.dtype) in _NARROWER:
        array = _narrowed(array)
        if isinstance(array, np.ndarray) and array.base is None:
            # Its own; this takes two thirds of the time that DLPack does.
            return jax.numpy.asarray(array)
    if isinstance(array, _native.Array) or array.flags.writeable:
        return jax.dlpack.from_dlpack(array)
    return jax.numpy.asarray(array)


def _on_host(array: Any) -> Any:
    """An array of NumPy, from where JAX copies it to devices."""
    if str(array.dtype) == "bfloat16" and isinstance(array, _native.Array):
        return np.asarray(jax.dlpack.from_dlpack(array))
    return _narrowed(np.asarray(array)) if str(array.dtype) in _NARROWER else np.asarray(array)


def _narrowed(array: Any) -> Any:
    """Whole numbers of 32 bits, as JAX would make them, unless that changes one: JAX does not say so."""
    if jax.config.jax_enable_x64:
        return array
    wide = np.asarray(array)
    narrow = _NARROWER[str(wide.dtype)]
    if wide.size:
        low, high, limits = int(wide.min()), int(wide.max()), np.iinfo(narrow)
        if low < limits.min or high > limits.max:
            raise OverflowError(
                f"a batch has {low if low < limits.min else high}, which JAX would cut to 32 bits\n"
                'hint: call jax.config.update("jax_enable_x64", True) first, or use smaller numbers'
            )
    return wide.astype(narrow)


class _Placing:
    """Where batches go."""

    def __init__(self, sharding: Any) -> None:
        self._sharding = sharding
        default = jax.config.jax_default_device
        if default is None or isinstance(default, str):
            default = jax.local_devices(backend=default)[0]
        self._default = default
        self.nowhere = sharding is None and default.platform == "cpu"
        """True if batches stay where they are made."""

    def only_cuda(self, on_device: str) -> jax.Device:
        """The one CUDA device of this process that all goes to.

        Raises:
            ValueError: There is another one, or several.
        """
        if on_device == "nvjpeg":
            raise ValueError(
                'on_device="nvjpeg" is for torch(), and this is jax()\nhint: on_device="decode", which was faster, too'
            )
        check_on_device("cuda", on_device, "")
        places = [self._default] if self._sharding is None else jax.tree.leaves(self._sharding)
        devices = {
            device
            for where in places
            for device in ([where] if isinstance(where, jax.Device) else where.device_set)
        }
        names = ", ".join(sorted(map(str, devices)))
        if len(devices) > 1:
            raise ValueError(
                f"on_device={on_device!r} is for one device, and batches go to {names}"
                '\nhint: a process for each device, with shard(); or leave it at "copy"'
            )
        (device,) = devices
        version = str(getattr(device.client, "platform_version", "")).lower()
        if device.platform not in ("gpu", "cuda") or "rocm" in version:
            raise ValueError(
                f"on_device={on_device!r} is for CUDA devices, and batches go to {names}"
                '\nhint: jax(jax.devices("cuda")[0], on_device=...), or leave it at "copy"'
            )
        return device

    def __call__(self, batch: Any) -> Any:
        if self.nowhere:
            return batch
        if self._sharding is None:
            return jax.tree.map(lambda one: self._put(one, self._default), batch)
        if isinstance(self._sharding, jax.sharding.Sharding | jax.Device):
            return jax.tree.map(lambda one: self._put(one, self._sharding), batch)
        return jax.tree.map(self._put, batch, self._sharding)

    def _put(self, one: Any, where: Any) -> Any:
        if isinstance(one, LeftImages):
            one = one.finish()
        if not isinstance(one, np.ndarray | jax.Array):
            return one
        if isinstance(where, jax.Device) or len(where.device_set) == 1:
            return jax.device_put(one, where)
        try:
            return jax.make_array_from_process_local_data(where, one)
        except ValueError as e:
            raise ShapeError(
                f"a batch of shape {list(one.shape)} cannot be laid out as {where}: {e}\n"
                "hint: leave out smaller last batches with batch(..., drop_last=True), and choose a batch size that "
                "the devices of this process divide; of ragged columns the sizes differ, so use padded_batch()"
            ) from e


class JaxLoader:
    """Batches of a data set as JAX arrays. Every iteration is the next epoch; see `wellfed.Dataset.jax`.

    All else is as of `wellfed.Loader`, over which it stands.
    """

    def __init__(self, loader: Loader | StepsLoader | StreamLoader, place: _Placing) -> None:
        self._loader, self._place = loader, place
        self._current: JaxIterator | None = None

    @property
    def dataset(self) -> Dataset | StreamDataset:
        """What is loaded."""
        dataset: Dataset | StreamDataset = self._loader.dataset
        return dataset

    def __iter__(self) -> JaxIterator:
        self._current = JaxIterator(self)
        return self._current

    def __len__(self) -> int:
        return len(self._loader)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch that was handed out, as of `wellfed.Loader.state_dict`."""
        held = None if self._current is None else self._current._held
        return self._loader.state_dict() if held is None else held

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Makes the next iteration go on where `state_dict` was called, to the bit."""
        self._loader.load_state_dict(state)
        self._current = None

    def set_epoch(self, epoch: int) -> None:
        """Makes the next iteration that of ``epoch``, from 0."""
        self._loader.set_epoch(epoch)
        self._current = None

    def stats(self) -> Stats:
        """As of `wellfed.Loader.stats`."""
        return self._loader.stats()

    def errors(self) -> list[BadSample]:
        """Samples that could not be made, in the order they were met."""
        return self._loader.errors()

    def explain(self) -> str:
        """As of `wellfed.Loader.explain`."""
        return self._loader.explain()

    def write_trace(self, path: str | os.PathLike[str]) -> None:
        """As of `wellfed.Loader.write_trace`."""
        self._loader.write_trace(path)

    def close(self) -> None:
        """Ends the workers. Can be called twice."""
        self._loader.close()

    def __enter__(self) -> JaxLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._loader)


class JaxIterator(Iterator[Any]):
    """One pass over a loader."""

    def __init__(self, loader: JaxLoader) -> None:
        self._loader, self._place = loader, loader._place
        self._batches = iter(loader._loader)
        self._ahead: list[tuple[Any, BaseException | None]] = []
        self._held: dict[str, Any] | None = None

    def __next__(self) -> Any:
        if self._ahead:
            (batch, error), self._held = self._ahead.pop(), None
            if error is not None:
                raise error
        else:
            batch = self._place(next(self._batches))
        if not self._place.nowhere:
            self._copy_ahead()
        return batch

    def _copy_ahead(self) -> None:
        """Begins to copy the next batch, if it is there: what comes now is not waited for."""
        ready = getattr(self._batches, "ready", None)
        if ready is None or not ready():
            return
        self._held = self._loader._loader.state_dict()
        try:
            self._ahead.append((self._place(next(self._batches)), None))
        except Exception as e:
            self._ahead.append((None, e))

    def get_state(self) -> dict[str, Any]:
        """As `state_dict` of the loader: JSON can express it."""
        return self._loader._loader.state_dict() if self._held is None else self._held

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on where `get_state` was called, to the bit."""
        self._loader.load_state_dict(state)
        self._ahead, self._held = [], None
        self._batches = iter(self._loader._loader)
        self._loader._current = self
