"""`Dataset.write` and `verify`: shards. The engine does the work; here are arguments, progress and results."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _arguments as check
from . import _native

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from .dataset import Dataset

_FORMATS = ("tar", "tfrecord", "parquet", "mds")

# Seconds between two looks at how far it is.
_LOOK = 0.2


@dataclass(frozen=True)
class Skipped:
    """A sample that was left out.

    Attributes:
        position: Its place in the order.
        key: What it is called in its source.
        kind: The kind of the error.
        message: What is wrong with it.
    """

    position: int
    key: str
    kind: str
    message: str


@dataclass(frozen=True)
class Written:
    """What `Dataset.write` wrote.

    Attributes:
        urls: The shards as a pattern that the source of their format takes, and for tar shards the webdataset library;
            of MDS their folder.
        manifest: Path of the list of all shards: their check sums, names of classes, what was left out.
        shards: How many shards there are.
        shards_before: How many of them an earlier run had finished.
        samples: Samples in all shards.
        bytes: Bytes of all shards.
        skipped: Samples that were left out.
    """

    urls: str
    manifest: str
    shards: int
    shards_before: int
    samples: int
    bytes: int
    skipped: list[Skipped]


@dataclass(frozen=True)
class Problem:
    """Something that is not as it was written.

    Attributes:
        path: Path of a shard or manifest.
        key: Key of a sample and extension of a file of it, or None.
        message: What is wrong.
    """

    path: str
    key: str | None
    message: str


@dataclass(frozen=True)
class Verified:
    """What `verify` found.

    Attributes:
        manifests: Manifests that were looked at.
        shards: Shards that were read.
        samples: Samples in them.
        bytes: Bytes that were read.
        skipped: Samples that were left out when the shards were written.
        problems: What is wrong; empty if all is as it was written.
    """

    manifests: list[str]
    shards: int
    samples: int
    bytes: int
    skipped: int
    problems: list[Problem]


class Writes:
    """What can be written."""

    __slots__ = ()

    def write(  # type: ignore[misc]
        self: Dataset,
        path: str | bytes | os.PathLike[str],
        *,
        format: Literal["tar", "tfrecord", "parquet", "mds"] | None = None,  # noqa: A002  (as NumPy and pandas call it)
        max_bytes: int | None = None,
        max_samples: int | None = None,
        resize_shorter: int | None = None,
        quality: int | None = None,
        packed: bool = False,
        row_group_size: int | None = None,
        on_error: Literal["raise", "skip"] = "raise",
        num_workers: int | Literal["auto"] = "auto",
        progress: bool | Callable[[dict[str, Any]], object] = True,
    ) -> Written:
        """Writes the samples of one epoch, in their order, as shards: tar (WebDataset), TFRecord, Parquet or MDS.

        Images keep their bytes unless transforms or the arguments below change them. In tar shards labels become
        ``cls``, texts ``txt``, JSON ``json`` and arrays ``npy`` files, other fields ``<name>.<extension>``; elsewhere
        fields are features or columns of their names. Under its name a shard is complete. The same call goes on
        behind the finished shards where an earlier one was ended; the bytes that come out are the same, whatever the
        number of threads. A manifest beside the shards lists them with their check sums; see `verify`.

        Args:
            path: A folder, or names of shards such as ``"out/train-{:06d}.tar"``; of MDS a folder.
            format: The format. If it is not given, what names of shards end with, or tar.
            max_bytes: Most bytes of a shard, of Parquet before compression: 1 GB if it is not given, of MDS 64 MiB.
            max_samples: Most samples of a shard.
            resize_shorter: Images whose shorter side is longer are made so small, as by `transforms.Resize`, and
                compressed anew; others stay as they are.
            quality: Quality of JPEGs that are made, 1 to 100; 95 if it is not given. Without ``resize_shorter`` all
                images are made anew, apart from those with alpha. PNGs and pixels become JPEGs only if it is given.
            packed: Write JPEGs as coefficients without Huffman coding: half as large again, several times faster to
                decode, to the same pixels. Only wellfed reads them, in tar shards.
            row_group_size: Rows of a row group of Parquet: 65,536 if it is not given, or as many as have 64 MiB.
            on_error: What happens at a sample that cannot be read or made: ``"skip"`` leaves it out and lists it.
            num_workers: Threads.
            progress: Whether to show it where standard error is a terminal; or what is called with it a few times a
                second.

        Raises:
            ConfigError: For what cannot be written, and where shards of other samples or options are, before anything
                is written.
            StorageError: The disk is full, say. Finished shards stay, and nothing half-written.

        Example:
            >>> import tempfile
            >>> import numpy as np
            >>> import wellfed as wf
            >>> images, labels = np.zeros((10, 32, 32, 3), np.uint8), np.arange(10)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     ds = wf.from_tensor_slices({"image": images, "label": labels}).shuffle(seed=0)
            ...     written = ds.write(folder + "/train-{:04d}.tar", max_samples=4)
            ...     back = wf.webdataset(written.urls)
            ...     print(written.shards, len(back), wf.verify(folder).problems)
            3 10 []
        """
        options = {
            "format": _format(format),
            "max_bytes": None if max_bytes is None else check.whole(max_bytes, "max_bytes", 1),
            "max_samples": None if max_samples is None else check.whole(max_samples, "max_samples", 1),
            "resize_shorter": None
            if resize_shorter is None
            else check.whole(resize_shorter, "resize_shorter", 1),
            "quality": _quality(quality),
            "packed": bool(packed),
            "row_group_size": None
            if row_group_size is None
            else check.whole(row_group_size, "row_group_size", 1),
            "on_error": on_error,
            "num_workers": num_workers,
        }
        job = self._native.write(check.path(path, "path"), check.to_json(options))
        found = _wait(job, "writing", progress)
        skipped = [Skipped(**one) for one in found.pop("skipped")]
        return Written(skipped=skipped, **found)


def _format(name: str | None) -> str | None:
    if name is not None and name not in _FORMATS:
        raise ValueError(f"format is {name!r}; it must be one of {', '.join(_FORMATS)}")
    return name


def _quality(quality: int | None) -> int | None:
    if quality is None:
        return None
    number = check.whole(quality, "quality", 1)
    if number > 100:
        raise ValueError(f"quality is {number}; it must be 1 to 100")
    return number


def verify(
    path: str | bytes | os.PathLike[str],
    *,
    full: bool = False,
    num_workers: int | None = None,
    progress: bool | Callable[[dict[str, Any]], object] = True,
) -> Verified:
    """Reads all shards that `Dataset.write` has written to a folder, and compares them with what was written.

    Args:
        path: The folder, or the manifest in it.
        full: Also decode all images, and read all numbers, texts and arrays.
        num_workers: Threads; as many as the process may use if it is not given.
        progress: As of `Dataset.write`.

    Raises:
        NotFoundError: There is no manifest.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import wellfed as wf
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     written = wf.from_tensor_slices({"x": np.eye(3)}).write(folder)
        ...     with open(written.urls, "r+b") as file:
        ...         _ = file.write(b"?")
        ...     found = wf.verify(folder)
        >>> len(found.problems) > 0
        True
    """
    workers = None if num_workers is None else check.whole(num_workers, "num_workers", 1)
    found = _wait(_native.verify(check.path(path, "path"), bool(full), workers), "verifying", progress)
    problems = [Problem(**one) for one in found.pop("problems")]
    return Verified(problems=problems, **found)


def _wait(
    job: _native.Writing, what: str, progress: bool | Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """The result of a job, which ends with this call, however that ends."""
    show = progress if callable(progress) else _line(what) if progress and sys.stderr.isatty() else None
    try:
        while True:
            result = job.wait(int(_LOOK * 1000))
            if show is not None:
                show(json.loads(job.progress()))
            if result is not None:
                found: dict[str, Any] = json.loads(result)
                return found
    finally:
        job.stop()
        if show is not None and not callable(progress):
            sys.stderr.write("\r\x1b[K")


def _line(what: str) -> Callable[[dict[str, Any]], object]:
    """Shows progress as one line that is written over and over."""
    start = time.monotonic()

    def show(now: dict[str, Any]) -> None:
        seconds = max(time.monotonic() - start, 1e-3)
        done, rate = now["before"] + now["samples"], now["samples"] / seconds
        text = f"{what} {done:,}/{now['total']:,}  {rate:,.0f}/s  {now['bytes'] / seconds / 1e6:,.0f} MB/s"
        if rate > 0:
            text += f"  {(now['total'] - done) / rate:,.0f} s left  {now['held_back_by']} holds it back"
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()

    return show
