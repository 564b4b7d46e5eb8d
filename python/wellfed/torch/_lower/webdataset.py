"""Pipelines of the webdataset library: what their stages say, and the order in which samples leave them.

Invariant: only stages of exactly the known kinds are recognized, as the library made them. The stages that decide the
order are run by the library itself, over the numbers of samples in place of their contents, so that whatever they draw,
the order is theirs.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlparse

import numpy as np
import numpy.typing as npt
from torch.utils.data import get_worker_info

from .._private import WorkerInfo, set_worker_info
from .forms import Form, RefusalError, name_of

__all__ = ["Streamed", "batches_of", "in_process", "is_known", "read", "samples_of"]

_IMAGES = ("jpg", "jpeg", "png")
_VALUES = ("cls", "cls2", "index", "inx", "id", "txt", "text", "transcript", "json", "jsn")
"""Extensions of which the engine makes what the library's decoder makes."""

_SPECS = {
    "pil": ("pil", "uint8"),
    "pilrgb": ("pil", "uint8"),
    "rgb8": ("array", "uint8"),
    "torchrgb8": ("tensor", "uint8"),
    "torchrgb": ("tensor", "float32"),
    "torch": ("tensor", "float32"),
}
"""What `decode` makes of an image: its kind and element type."""


@dataclass
class Streamed:
    """A pipeline, recognized.

    Attributes:
        dataset: The pipeline itself.
        urls: Its shards.
        paths: The files that they are.
        stamps: Size and time of change of each.
        fields: Names of the fields of a sample, as `to_tuple` names them.
        image: Which of them is the image.
        form: What the decoder makes of it.
        decoder: The decoder, as its author wrote it.
        functions: What `map_tuple` calls on each field; None for nothing.
        batch: Samples of the batches that it makes itself; None if it gives samples.
        order: Stages that decide which sample comes when, with a place where shards become numbers of samples.
        content: Stages that open shards, and those that change what a sample has.
        stages: All of them, as they were.
    """

    dataset: Any
    urls: list[str]
    paths: list[str]
    stamps: list[tuple[int, int]]
    fields: list[str]
    image: int
    form: Form
    decoder: str
    functions: list[Any]
    batch: int | None
    order: list[Any]
    content: tuple[list[Any], list[Any]]
    stages: list[Any]

    def same_shards(self, other: Streamed) -> bool:
        """Whether the engine has the same samples of both."""
        mine, its = ((of.urls, of.paths, of.stamps, of.fields) for of in (self, other))
        return mine == its


def is_known(dataset: Any) -> bool:
    """Whether it is a pipeline of webdataset, of exactly one of its two types."""
    module = sys.modules.get("webdataset")
    return module is not None and type(dataset) in (module.WebDataset, module.DataPipeline)


class _Numbers:
    """The place in a pipeline where shards become numbers of samples."""

    def __init__(self) -> None:
        self.samples: dict[str, range] = {}

    def __call__(self, shards: Iterable[dict[str, Any]]) -> Iterator[int]:
        for shard in shards:
            yield from self.samples[shard["url"]]


def read(dataset: Any) -> Streamed:
    """Recognizes a pipeline.

    Raises:
        RefusalError: The engine cannot make its samples, or their order may be another one.
    """
    if not _is_stock(dataset, "__iter__", "iterator", "iterator1", "invoke"):
        raise RefusalError("its methods were replaced", "use the class as its library made it")
    return _Reader(dataset).read()


class _Reader:
    """The stages of one pipeline, taken one by one."""

    def __init__(self, dataset: Any) -> None:
        from webdataset import cache, filters, shardlists, tariterators

        self.dataset = dataset
        self.cache, self.filters = cache, filters
        self.shardlists, self.tar = shardlists, tariterators
        self.rest = list(dataset.pipeline)
        self.order: list[Any] = []
        self.opening: list[Any] = []
        self.changing: list[Any] = []

    def read(self) -> Streamed:
        urls = self._shards()
        self._opened()
        decoder = self._decoded()
        fields, functions = self._fields()
        batch = self._batched()
        if self.rest:
            raise self._unknown("")
        paths, stamps = _files(urls)
        images = [i for i, name in enumerate(fields) if _kind(name.split(";")[0]) == "image"]
        if len(images) != 1:
            raise RefusalError(f"a sample has {len(images)} images", 'to_tuple("jpg;png", "cls")')
        form, spec = self._form(decoder)
        return Streamed(
            self.dataset,
            urls,
            paths,
            stamps,
            fields,
            images[0],
            form,
            f"decode({spec!r})",
            [*functions, *[None] * (len(fields) - len(functions))],
            batch,
            self.order,
            (self.opening, self.changing),
            list(self.dataset.pipeline),
        )

    # Stages.

    def _filter(self, *functions: Any) -> Any:
        """The next stage, if it is one of these functions of the library with arguments."""
        stage: Any = self.rest[0] if self.rest else None
        if type(stage) is not self.filters.FilterFunction or stage.f not in functions:
            return None
        if not _of_library(stage.f) or not _is_stock(stage, "__call__"):
            return None
        self._check_handler(stage.kw)
        return self.rest.pop(0)

    def _check_handler(self, options: dict[str, Any]) -> None:
        handler = options.get("handler")
        if handler is not None and (
            not _of_library(handler) or getattr(handler, "__name__", "") != "reraise_exception"
        ):
            raise RefusalError(
                f"its handler is {name_of(handler)}", "leave handler= out, so that errors are raised"
            )

    def _shuffle(self) -> bool:
        """Takes stages that only change the order of what comes."""
        stage = self._filter(self.filters._shuffle)
        if stage is None:
            is_det = bool(self.rest) and type(self.rest[0]) is self.filters.detshuffle
            if not is_det or not _is_stock(self.rest[0], "run"):
                return False
            stage = self.rest.pop(0)
        elif stage.kw.get("rng") is not None or len(stage.args) > 2:
            raise RefusalError("shuffle has a generator of its own", "shuffle(n, seed=...)")
        self.order.append(stage)
        return True

    def _shards(self) -> list[str]:
        lists = (self.shardlists.SimpleShardList, self.shardlists.ResampledShards)
        first: Any = self.rest[0] if self.rest else None
        if type(first) not in lists or not _is_stock(first, "__iter__"):
            raise self._unknown("a list of shards, or a text with braces")
        if getattr(first, "worker_seed", None) is not None and not _of_library(first.worker_seed):
            raise RefusalError("worker_seed is a function of the user", "leave worker_seed out")
        self.order.append(self.rest.pop(0))
        known = (
            self.shardlists.split_by_node,
            self.shardlists.single_node_only,
            self.shardlists.split_by_worker,
        )
        while self.rest:
            if self._shuffle():
                continue
            if not any(self.rest[0] is function for function in known) or not _of_library(self.rest[0]):
                break
            self.order.append(self.rest.pop(0))
        return list(dict.fromkeys(first.urls))

    def _opened(self) -> None:
        whole = self._filter(self.tar.tarfile_samples)
        if whole is not None:
            self._check_plain(whole)
            self.opening.append(whole)
        else:
            opener: Any = self.rest[0] if self.rest else None
            if type(opener) is not self.cache.StreamingOpen or not _is_stock(opener, "__call__"):
                raise self._unknown("WebDataset(urls) without a cache")
            self._check_handler({"handler": opener.handler})
            self.opening.append(self.rest.pop(0))
            for function in (self.tar.tar_file_expander, self.tar.group_by_keys):
                stage = self._filter(function)
                if stage is None:
                    raise self._unknown("WebDataset(urls)")
                self._check_plain(stage)
                self.opening.append(stage)
        self.order.append(_Numbers())
        compat = sys.modules["webdataset.compat"]
        if self.rest and self.rest[0] is compat.check_empty and _of_library(self.rest[0]):
            self.order.append(self.rest.pop(0))
        self._shuffled()

    def _check_plain(self, stage: Any) -> None:
        given = {name for name, value in stage.kw.items() if value is not None} - {"handler"}
        if stage.args or given:
            raise RefusalError(f"files of shards are chosen by {', '.join(sorted(given)) or 'arguments'}")

    def _shuffled(self) -> None:
        while self._shuffle():
            pass

    def _decoded(self) -> Any:
        from webdataset import autodecode

        stage = self._filter(self.filters._map, self.filters._decode)
        if stage is None:
            raise self._unknown('decode("pil")')
        if stage.f is self.filters._decode:
            handlers = [autodecode.ImageHandler(x) if isinstance(x, str) else x for x in stage.args]
            decoder = autodecode.Decoder(handlers, **{k: v for k, v in stage.kw.items() if k != "handler"})
        else:
            decoder = stage.args[0] if len(stage.args) == 1 else None
        if type(decoder) is not autodecode.Decoder or not _is_stock(decoder, "__call__", "decode", "decode1"):
            raise RefusalError(
                f"{name_of(decoder)} is called on whole samples", 'decode("pil"), to_tuple, map_tuple'
            )
        plain = (*autodecode.default_pre_handlers, *autodecode.default_post_handlers)
        images = [handler for handler in decoder.handlers if handler not in plain]
        known = len(images) == 1 and len(decoder.handlers) == 1 + len(plain) and all(map(_of_library, plain))
        if (
            not known
            or type(images[0]) is not autodecode.ImageHandler
            or not _is_stock(images[0], "__call__")
        ):
            raise RefusalError("its decoder has handlers of the user", 'decode("pil")')
        if (
            decoder.only is not None
            or decoder.partial
            or images[0].extensions != set(autodecode.IMAGE_EXTENSIONS)
        ):
            raise RefusalError("its decoder has arguments", 'decode("pil")')
        if not all(_of_library(autodecode.decoders.get(extension)) for extension in _VALUES):
            raise RefusalError("decoders of the library were replaced")
        self.changing.append(stage)
        self._shuffled()
        return images[0]

    def _form(self, handler: Any) -> tuple[Form, str]:
        spec = handler.imagespec
        if spec not in _SPECS:
            raise RefusalError(f"decode({spec!r}) is left to Python", 'decode("pil"), or "rgb8", "torchrgb"')
        kind, dtype = _SPECS[spec]
        return Form(kind, dtype, "RGB"), spec  # type: ignore[arg-type]

    def _fields(self) -> tuple[list[str], list[Any]]:
        stage = self._filter(self.filters._to_tuple)
        if stage is None:
            raise self._unknown('to_tuple("jpg;png", "cls")')
        if not stage.kw.get("missing_is_error", True) or stage.kw.get("none_is_error") is False:
            raise RefusalError("fields may be missing", "leave missing_is_error= out")
        given = list(stage.args)
        if len(given) == 1 and isinstance(given[0], str) and " " in given[0]:
            given = given[0].split()
        fields = [";".join(name) if isinstance(name, list | tuple) else name for name in given]
        for name in fields:
            kinds = {_kind(part) for part in name.split(";")} if isinstance(name, str) else {None}
            if None in kinds or len(kinds) != 1:
                raise RefusalError(f"field {name!r} is left to Python", f"{', '.join((*_IMAGES, *_VALUES))}")
        if len(set(fields)) < len(fields):
            raise RefusalError("a field is asked for twice")
        self.changing.append(stage)
        self._shuffled()
        functions: list[Any] = []
        stage = self._filter(self.filters._map_tuple)
        if stage is not None:
            functions = list(stage.args)[: len(fields)]
            self.changing.append(stage)
            self._shuffled()
        return fields, functions

    def _batched(self) -> int | None:
        stage = self._filter(self.filters._batched)
        if stage is None:
            return None
        names = ("batchsize", "collation_fn", "partial")
        options = {"batchsize": 20, "partial": True, **dict(zip(names, stage.args)), **stage.kw}
        collation = options.get("collation_fn", self.filters.default_collation_fn)
        if collation is not self.filters.default_collation_fn or not _of_library(collation):
            raise RefusalError(f"batched() collates by {name_of(collation)}", "leave collation_fn= out")
        lists = self.filters.batched(options["batchsize"], collation_fn=None, partial=options["partial"])
        self.order.append(lists)
        return int(options["batchsize"])

    def _unknown(self, wanted: str) -> RefusalError:
        if not self.rest:
            return RefusalError("stages are missing in its pipeline", wanted)
        stage = self.rest[0]
        function = getattr(stage, "f", stage)
        name = getattr(function, "__name__", "").strip("_") or type(function).__name__
        inner: Any = getattr(stage, "args", ())
        if name == "map" and len(inner) == 1:
            name = f"map({name_of(inner[0])})"
        # What stands there does something of its own, which no stage of the library need be equal to.
        return RefusalError(f"its stage {name} is Python code")


def _of_library(function: Any) -> bool:
    return (getattr(function, "__module__", None) or "").partition(".")[0] == "webdataset"


def _is_stock(thing: Any, *methods: str) -> bool:
    """Whether these methods are those that the library wrote."""
    own = vars(thing)
    return not any(name in own for name in methods) and all(
        _of_library(getattr(type(thing), name)) for name in methods
    )


def _kind(extension: str) -> str | None:
    """What a field with this extension is; None of what is left to Python."""
    if extension != extension.strip().lower() or extension.startswith("."):
        return None
    last = extension.rpartition(".")[2]
    if last in _IMAGES:
        return "image"
    return last if last in _VALUES else None


def _files(urls: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """The files that shards are."""
    paths, stamps = [], []
    for url in urls:
        parsed = urlparse(url)
        path = parsed.path
        if (
            parsed.scheme not in ("", "file")
            or parsed.netloc
            or parsed.query
            or parsed.fragment
            or parsed.params
        ):
            raise RefusalError(f"shard {url} is no local file", "shards in a local or mounted folder")
        if any(mark in path for mark in "{}[]*?") or "::" in path:
            raise RefusalError(f"the name of shard {url} has marks that stand for others")
        try:
            stat = os.stat(path)
        except OSError as e:
            raise RefusalError(f"shard {url}: {e.strerror}") from None
        paths.append(path)
        stamps.append((stat.st_size, stat.st_mtime_ns))
    if not paths:
        raise RefusalError("it has no shards")
    return paths, stamps


# The order.


def batches_of(
    streamed: Streamed,
    samples: dict[str, range],
    size: int | None,
    drop_last: bool,
    worker: WorkerInfo | None,
    stages: list[Any] | None = None,
) -> Iterator[npt.NDArray[np.int64]]:
    """Numbers of the samples of each batch that one process of a loader gives, in its order.

    Args:
        streamed: The pipeline.
        samples: Numbers of the samples of each shard.
        size: Samples of a batch, where the loader makes batches; None where the pipeline does.
        drop_last: Whether an incomplete last batch is left out; of batches that the loader makes.
        worker: Which process it is; None for the caller's.
        stages: Those of the process, if they are not those of the pipeline.
    """
    order = copy.copy(streamed.dataset)
    order.pipeline = streamed.order if stages is None else stages
    for stage in order.pipeline:
        if isinstance(stage, _Numbers):
            stage.samples = samples
    numbers = in_process(iter(order), worker)
    while True:
        if size is None:
            batch = next(numbers, None)
            if batch is None:
                return
        else:
            batch = list(islice(numbers, size))
            if not batch or (drop_last and len(batch) < size):
                return
        yield np.asarray(batch, np.int64)
        if size is not None and len(batch) < size:
            return


def in_process(numbers: Iterator[Any], worker: WorkerInfo | None) -> Iterator[Any]:
    """`numbers` as they come in a worker, which stages ask for its number."""
    while True:
        before = get_worker_info()
        if worker is not None:
            set_worker_info(worker)
        try:
            number = next(numbers)
        except StopIteration:
            return
        finally:
            if worker is not None:
                set_worker_info(before)
        yield number


def samples_of(streamed: Streamed, samples: dict[str, range], numbers: list[int]) -> list[Any] | None:
    """These samples as the library makes them: read from the beginning of their shard. None if it has fewer samples."""
    opening, changing = streamed.content
    found: dict[int, Any] = {}
    for url, own in samples.items():
        wanted = {number for number in numbers if number in own}
        shard: Any = iter([{"url": url}] if wanted else [])
        for stage in opening:
            shard = stage(shard)
        for number, sample in zip(own, shard):
            if number in wanted:
                found[number] = sample
                wanted.remove(number)
            if not wanted:
                break
    if not all(number in found for number in numbers):
        return None
    return [_changed(found[number], changing) for number in numbers]


def _changed(sample: Any, stages: list[Callable[[Any], Any]]) -> Any:
    # A shallow copy, as it may be asked for twice.
    stream: Any = iter([dict(sample)])
    for stage in stages:
        stream = stage(stream)
    (changed,) = stream
    return changed
