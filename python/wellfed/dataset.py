"""`Dataset`: a pipeline as data, built by verbs that carry tf.data's names."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments as check
from . import _native
from ._loader import Loader, structured, to_numpy, torch_converter
from ._options import Options, flatten, merge
from .transforms import Transform, _known

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Never, Unpack

__all__ = ["Dataset"]


class Dataset:
    """Samples of a source, and what happens to them on the way to a batch.

    Made by `wellfed.image_folder` and its siblings. Every verb returns a new data set and leaves this one alone.
    Nothing is read until it is iterated, as `torch` or `numpy`.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> ds = wf.from_tensor_slices(np.arange(10)).shuffle(seed=1).batch(4)
        >>> ds
        from_tensor_slices(0: int64 [10])
            .shuffle(seed=1)
            .batch(4)
        >>> len(ds)
        3
        >>> [len(batch) for batch in ds.numpy()]
        [4, 4, 2]
    """

    __slots__ = ("_arrays", "_native")

    def __init__(self, native: _native.Dataset, arrays: Sequence[Sequence[Any] | None] = (None,)) -> None:
        if not isinstance(native, _native.Dataset):
            raise TypeError(
                "a Dataset is made by image_folder, webdataset, from_tensor_slices and their siblings"
            )
        self._native = native
        # Of each source, in the order of the plan: what of it is in memory, and so not in the plan.
        self._arrays = tuple(arrays)

    def _verb(self, verb: str, **parameters: Any) -> Dataset:
        return Dataset(self._native.verb(json.dumps({"node": verb, **parameters})), self._arrays)

    def shuffle(
        self, *given: Never, seed: int = 0, block_size: int | None = None, window: int = 16
    ) -> Dataset:
        """Orders samples by a permutation of all of them, a new one in every epoch.

        The permutation is computed, not stored: it takes no memory, whatever the size of the data set. There is no
        buffer, as tf.data has one, and so no buffer size: every sample may come at any place.

        Args:
            seed: 0 to 2**64 - 1. Same seed, same order; also the seed of random transforms, unless
                ``with_options(seed=...)`` says another. By keyword only.
            block_size: So many neighbours stay together as a block: the order of blocks is permuted, and what is in
                each window of ``window`` blocks. For sources in which far jumps are expensive, such as large files on
                a network. Samples of one block come within ``window * block_size`` places of each other, so a batch
                is a mixture of about ``window`` blocks: use whole permutations where neighbours are alike and reading
                allows it. None: one permutation of everything.
            window: How many blocks are mixed with each other.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(100)).shuffle(seed=7).batch(100)
            >>> sorted(next(iter(ds.numpy()))) == list(range(100))
            True
        """
        if given:
            raise TypeError(
                f"shuffle({given[0]!r}): shuffle takes its arguments by name\n"
                "hint: tf.data's first argument is the size of a buffer; here all samples are permuted without one, so "
                "leave it out, and write shuffle(seed=...) for another order"
            )
        size = None if block_size is None else check.whole(block_size, "block_size", 1)
        blocks = check.whole(window, "window", 1)
        return self._verb("shuffle", seed=check.whole(seed, "seed"), block_size=size, window=blocks)

    def map(self, *transforms: Transform, field: str | None = None) -> Dataset:
        """Transforms images.

        Args:
            transforms: From `wellfed.transforms`, in order.
            field: The field they work on; None is every image field.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> from wellfed import transforms as T
            >>> ds = wf.from_tensor_slices(np.zeros((3, 40, 40, 3), np.uint8))
            >>> ds.map(T.CenterCrop(32), T.ToTensor()).sample(0).shape
            (3, 32, 32)
        """
        if not transforms:
            raise ValueError("map needs at least one transform")
        if len(transforms) == 1 and isinstance(transforms[0], list | tuple):
            raise TypeError("map takes transforms one by one: map(*transforms)")
        return self._verb("map", field=field, transforms=[_known(t).to_plan() for t in transforms])

    def cache(
        self,
        decoded: Literal["coefficients"] = "coefficients",
        path: str | os.PathLike[str] | None = None,
        max_bytes: int | None = None,
    ) -> Dataset:
        """Keeps samples from the first time they are made on, so that later epochs make them from what is kept.

        JPEGs are kept as coefficients without Huffman coding: half as large again as the file, several times
        faster to decode, for any crop, to the same bits. Samples without a JPEG pass through. Goes before `map`
        and `batch`; random transforms stay random.

        Samples that do not fit are decoded from files in every epoch; ``Loader.stats()["cache"]`` counts them
        (``left_out``).

        Args:
            decoded: How far images are decoded: ``"coefficients"``.
            path: The folder to keep them in, for later runs and other processes too. None is memory. When a loader
                first asks for a sample, its path (or shard, and place in it), size and time of change are compared
                with those it was kept under; what differs is kept anew. Every record has checksums; what is
                damaged is kept anew. In memory, files that change while the loader lives are not noticed.
            max_bytes: What they may take. None: half of the memory that is available, or half of
                ``memory_budget`` if that is set; on disk without limit.

        Example:
            >>> import tempfile
            >>> import wellfed as wf
            >>> from wellfed import transforms as T
            >>> from PIL import Image
            >>> folder = tempfile.TemporaryDirectory()
            >>> for i in range(4):
            ...     Image.effect_mandelbrot((90, 60), (-2, -1, 1, 1), 20 + i).save(f"{folder.name}/{i}.jpg")
            >>> ds = wf.image_folder(f"{folder.name}/*.jpg").cache().map(T.RandomCrop(32)).batch(2)
            >>> loader = ds.numpy()
            >>> for epoch in range(3):
            ...     shapes = [batch.shape for batch in loader]
            >>> loader.stats()["cache"]["samples"]
            4
            >>> folder.cleanup()
        """
        if decoded != "coefficients":
            raise ValueError(f"decoded is {decoded!r}, but must be 'coefficients'")
        limit = None if max_bytes is None else check.whole(max_bytes, "max_bytes")
        folder = None if path is None else os.fspath(path)
        return self._verb("cache", decoded=decoded, path=folder, max_bytes=limit)

    def batch(self, batch_size: int, drop_last: bool = False) -> Dataset:
        """Stacks samples.

        Args:
            batch_size: Samples in a batch, at least 1.
            drop_last: Leave out a last batch that is smaller.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> len(wf.from_tensor_slices(np.arange(10)).batch(4, drop_last=True))
            2
        """
        size = check.whole(batch_size, "batch_size", 1)
        return self._verb("batch", batch_size=size, drop_last=bool(drop_last))

    def unbatch(self) -> Dataset:
        """Undoes `batch`: elements are samples again.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(10)).batch(4)
            >>> len(ds), len(ds.skip(1).unbatch())
            (3, 6)
        """
        return self._verb("unbatch")

    def enumerate(self, start: int = 0) -> Dataset:
        """Each sample with its number in the epoch: ``(number, sample)``.

        Args:
            start: The first number.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> list(wf.from_tensor_slices(np.arange(10, 13)).enumerate().batch(3).numpy())
            [(array([0, 1, 2]), array([10, 11, 12]))]
        """
        return self._verb("enumerate", start=check.whole(start, "start", -(2**63)))

    @staticmethod
    def combined(verb: str, datasets: Sequence[Dataset], **parameters: Any) -> Dataset:
    """Data sets put together by a verb that takes several."""
    for place, dataset in enumerate(datasets):
        if not isinstance(dataset, Dataset):
            raise TypeError(f"{verb}: data set {place} is of type {type(dataset).__name__}, not a wellfed.Dataset")
    given = json.dumps({"node": verb, **parameters})
    native = _native.Dataset.combine(given, [dataset._native for dataset in datasets])
    return Dataset(native, [arrays for dataset in datasets for arrays in dataset._arrays])


def _restore(text: str, arrays: Sequence[Sequence[Any] | None]) -> Dataset:
    from .sources import as_array

    held = [None if part is None else [as_array(a) for a in part] for part in arrays]
    native = _native.Dataset.from_json(text, held)
    return Dataset(native, arrays or [None] * len(native.sources))


def _node_repr(node: dict[str, Any]) -> list[str]:
    """A tree as it is written in Python, line by line."""
    if node["node"] == "source":
        return [_source_repr(node["spec"])]
    if "input" in node:
        return [*_node_repr(node["input"]), f"    {_verb_repr(node)}"]
    name, lists = node["node"], node["node"] in ("interleave", "sample_from_datasets")
    lines = [f"{name}({'[' if lists else ''}"]
    for part in node["inputs"]:
        inner = _node_repr(part)
        inner[-1] += ","
        lines += [f"    {line}" for line in inner]
    given = {k: v for k, v in node.items() if k not in ("node", "inputs")}
    if lists:
        return [*lines, f"], {', '.join(f'{k}={v!r}' for k, v in given.items())})"]
    return [*lines, ")"]


def _source_repr(spec: dict[str, Any]) -> str:
    spec = dict(spec)
    kind = spec.pop("type")
    if kind == "tensor_slices":
        return (
            f"from_tensor_slices({', '.join('{name}: {dtype} {shape}'.format(**f) for f in spec['fields'])})"
        )
    if kind == "files":
        return f"image_files({spec['count']} paths{', labels' if spec['labels'] else ''})"
    if kind == "encoded":
        return f"encoded_images({spec['count']} images{', labels' if spec['labels'] else ''})"
    first, *rest = spec.items()
    return f"{kind}({', '.join([repr(first[1]), *(f'{k}={v!r}' for k, v in rest)])})"


def _verb_repr(verb: dict[str, Any]) -> str:
    parameters = {k: v for k, v in verb.items() if k != "input"}
    match parameters.pop("node"):
        case "map":
            inner = [repr(Transform.from_plan(t)) for t in parameters["transforms"]]
            if parameters["field"] is not None:
                inner.append(f"field={parameters['field']!r}")
            return f".map({', '.join(inner)})"
        case "batch":
            dropping = ", drop_last=True" if parameters["drop_last"] else ""
            return f".batch({parameters['batch_size']}{dropping})"
        case "cache":
            given = [f"{k}={v!r}" for k, v in parameters.items() if v is not None and v != "coefficients"]
            return f".cache({', '.join(given)})"
        case "shuffle" if parameters["block_size"] is None:
            return f".shuffle(seed={parameters['seed']})"
        case "take" | "skip" as name:
            return f".{name}({parameters['count']})"
        case name:
            return f".{name}({', '.join(f'{k}={v!r}' for k, v in parameters.items())})"
