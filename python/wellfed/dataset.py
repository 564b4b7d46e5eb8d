"""`Dataset`: a pipeline as data, built by verbs that carry tf.data's names."""

from __future__ import annotations

import json
import os
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from . import _arguments as check
from . import _native
from ._batches import Batches
from ._handover.methods import Frameworks
from ._indexing import Elements, html_of, sliced
from ._loader import Loader, structured, to_numpy, torch_converter
from ._native import Dataset as NativeDataset
from ._of_class import of_class
from ._options import Options, flatten, left_to, merge
from ._parts import Parts
from ._passes import Passes
from ._repr import node_repr, verb_repr
from ._stack import Stacks
from ._steps.later import Later
from ._steps.program import name_of, steps_in
from ._tfdata._operations import joined
from ._transform import Transform, _known
from ._write import Writes
from .exceptions import StateError
from .transforms import __all__ as transforms_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from typing_extensions import Never, Unpack

    from ._steps.loader import StepsLoader

__all__ = ["Dataset"]


class Dataset(Writes, Frameworks, Batches, Parts, Stacks):
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

    __slots__ = ("_arrays", "_elements", "_later", "_made", "_passes", "_steps")

    def __init__(
        self,
        native: NativeDataset | Later,
        arrays: Sequence[Sequence[Any] | None] = (None,),
        passes: Passes | None = None,
        steps: Sequence[Any] = (),
    ) -> None:
        if not isinstance(native, NativeDataset | Later):
            raise TypeError(
                "a Dataset is made by image_folder, webdataset, from_tensor_slices and their siblings"
            )
        self._made: NativeDataset | None = None if isinstance(native, Later) else native
        self._later: Later | None = native if isinstance(native, Later) else None
        # Callables and Python data sets, in the order of the nodes that they belong to, inputs first.
        self._steps = tuple(steps)
        self._elements: Elements | None = None
        # Of each source, in the order of the plan: what of it is in memory, and so not in the plan.
        self._arrays = tuple(arrays)
        self._passes = passes or Passes()

    @property
    def _native(self) -> NativeDataset:
        """What the engine knows. Behind a filter it is there when the filter has been computed."""
        return self._open({})

    def _open(self, options: Mapping[str, Any]) -> NativeDataset:
        """What the engine knows; `options` are for what is to be computed for that."""
        if self._made is None:
            if self._later is None:
                raise StateError("the data set was not made by its constructor")
            self._made = self._later.make(options)
        return self._made

    def _verb(self, verb: str, *, steps: Sequence[Any] = (), **parameters: Any) -> Dataset:
        text = check.to_json({"node": verb, **parameters})
        if self._made is None:
            later = Later(lambda options: self._open(options).verb(text), self, json.loads(text))
            return self._with(later, steps)
        return self._with(self._made.verb(text), steps)

    def _with(self, native: NativeDataset | Later, steps: Sequence[Any] = ()) -> Dataset:
        """A data set of the same opened sources, with further steps."""
        return Dataset(native, self._arrays, self._passes, (*self._steps, *steps))

    def _python(self, kind: str, step: Any, field: str | None = None) -> Dataset:
        """A Python step above this data set."""
        return self._verb("python", kind=kind, name=name_of(step), field=field, steps=[step])

    def shuffle(
        self,
        *args: Never,
        seed: int = 0,
        block_size: int | None = None,
        window: int = 16,
        reshuffle_each_iteration: bool = True,
    ) -> Dataset:
        """Orders samples by a permutation of all of them, a new one in every epoch.

        The permutation is computed, not stored: it takes no memory, whatever the size of the data set. There is no
        buffer, as tf.data has one, and so no buffer size: every sample may come at any place.

        Args:
            args: Nothing: arguments are given by name.
            seed: 0 to 2**64 - 1. Same seed, same order; also the seed of random transforms, unless
                ``with_options(seed=...)`` says another.
            block_size: So many neighbours stay together as a block: the order of blocks is permuted, and what is in
                each window of ``window`` blocks. For sources in which far jumps are expensive, such as large files on
                a network. Samples of one block come within ``window * block_size`` places of each other, so a batch
                is a mixture of about ``window`` blocks: use whole permutations where neighbours are alike and reading
                allows it. None: one permutation of everything.
            window: How many blocks are mixed with each other.
            reshuffle_each_iteration: False: the order of epoch 0 in every epoch and each time round of `repeat`, so
                that `take` and `skip` behind it split the samples for good. Random transforms draw anew all the same.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(100)).shuffle(seed=7).batch(100)
            >>> sorted(next(iter(ds.numpy()))) == list(range(100))
            True
        """
        if args:
            raise TypeError(
                f"shuffle({args[0]!r}): shuffle takes its arguments by name\n"
                "hint: tf.data's first argument is the size of a buffer; here all samples are permuted without one, so "
                "leave it out, and write shuffle(seed=...) for another order"
            )
        size = None if block_size is None else check.whole(block_size, "block_size", 1)
        blocks = check.whole(window, "window", 1)
        # As in tf.data, None is True.
        anew = reshuffle_each_iteration is None or bool(reshuffle_each_iteration)
        fixed: dict[str, Any] = {} if anew else {"reshuffle_each_iteration": False}
        return self._verb("shuffle", seed=check.whole(seed, "seed"), block_size=size, window=blocks, **fixed)

    def map(self, *transforms: Transform | Callable[[Any], Any], field: str | None = None) -> Dataset:
        """Transforms images or sounds, or calls Python functions.

        Args:
            transforms: From `wellfed.transforms`, which the engine runs; or callables, each of which takes an element
                and returns anything that torch's ``default_collate`` takes. After `batch`, callables take batches.
                `MixUp`, `CutMix`, and `RandomChoice` or `RandomApply` of them stand after `batch`.
                Before callables run, the default generators of `random`, NumPy and torch are seeded by the sample, so
                what they draw depends neither on the number of workers nor on where a run was resumed. Callables
                run in worker processes; see `torch`.
            field: The field they work on; None is every field of images or sounds, and for callables the whole element.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> from wellfed import transforms as T
            >>> ds = wf.from_tensor_slices(np.zeros((3, 40, 40, 3), np.uint8))
            >>> ds.map(T.CenterCrop(32), T.ToTensor()).sample(0).shape
            (3, 32, 32)
            >>> wf.from_tensor_slices(np.arange(3)).map(lambda x: {"x": x, "twice": 2 * x})[2]
            {'x': array(2), 'twice': np.int64(4)}
        """
        if not transforms:
            raise ValueError("map needs at least one transform")
        if len(transforms) == 1 and isinstance(transforms[0], list | tuple):
            raise TypeError("map takes transforms one by one: map(*transforms)")
        this = self
        for where, group in groupby(transforms, _where):
            if where == "batches":
                if field is not None:
                    raise TypeError(
                        "map(field=...) is for transforms of samples; MixUp and CutMix have labels_getter"
                    )
                this = this._verb("mix", transforms=[_known(t).to_plan() for t in group])
            elif where == "samples":
                this = this._verb("map", field=field, transforms=joined([_known(t).to_plan() for t in group]))
            else:
                for step in group:
                    this = this._python("map", step, field)
        return this

    def filter(
        self,
        predicate: Callable[[Any], Any] | None = None,
        *,
        field: str | None = None,
        values: Sequence[int] | None = None,
        min: int | None = None,  # noqa: A002 (as in NumPy's clip)
        max: int | None = None,  # noqa: A002
    ) -> Dataset:
        """Keeps elements by a whole number in one of their fields, such as their label, or by a Python function.

        By a number, all samples are looked at once, when this is called; what is kept takes 8 bytes a sample. Folders
        and lists of images know their labels, so no file is read; of other sources each sample is. `explain` says
        which.

        By a function, they are looked at once, when the length or a batch is first asked for, by the workers that a
        loader would have; what is kept takes a bit for each. Either is known from then on to this data set and to all
        that is made from it, and goes before `shuffle`, as its answers must hold in every epoch.

        Args:
            predicate: Takes an element. Goes before random transforms, too.
            field: Or the name of a field.
            values: The numbers that are kept; None is all.
            min: The least that is kept.
            max: The greatest that is kept.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices({"x": np.arange(6.0), "label": np.array([0, 1, 2, 0, 1, 2])})
            >>> [float(sample["x"]) for sample in ds.filter(field="label", values=[0, 2]).numpy()]
            [0.0, 2.0, 3.0, 5.0]
            >>> some = wf.from_tensor_slices(np.arange(10)).filter(lambda x: x % 3 == 0).with_options(num_workers=1)
            >>> len(some), [int(x) for x in some]
            (4, [0, 3, 6, 9])
        """
        if (predicate is None) == (field is None):
            raise TypeError("filter takes either a callable, or field= with values=, min= or max=")
        if field is not None:
            given = None if values is None else [check.whole(value, "values", -(2**63)) for value in values]
            low = None if min is None else check.whole(min, "min", -(2**63))
            high = None if max is None else check.whole(max, "max", -(2**63))
            return self._verb("filter", field=field, values=given, min=low, max=high)
        if not callable(predicate):
            raise TypeError(f"filter takes a callable, not {predicate!r}")
        from ._steps import filtering

        if self._made is not None:
            filtering.check(self._plan())
        name = name_of(predicate)

        def make(options: Mapping[str, Any]) -> NativeDataset:
            native = self._open(options)
            filtering.check(self._plan())
            kept = filtering.kept(self.with_options(**options), predicate)
            return native.verb(json.dumps({"node": "python_filter", "name": name, "kept": kept}))

        later = Later(make, self, {"node": "python_filter", "name": name, "kept": None})
        return self._with(later)

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
                damaged is kept anew. In memory it is there as long as this data set, for one loader after the other
                (of two at a time, one begins anew), and files that change meanwhile are not noticed.
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

    def zip(self, *others: Dataset) -> Dataset:
        """Tuples of what this data set and the others give, as long as the shortest of them.

        Data sets of one length that are shuffled by one seed stay aligned. Fields of one name in several of them get
        the place of their data set in front (``"0.image"``), for ``map(..., field=...)``.

        Directly after `batch` of one size it makes tuples of batches. Smaller last ones must be left out
        (``drop_last=True``), or the data sets have one length.

        Raises:
            ValueError: Batches differ in size, or samples are zipped with batches.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> one, two = wf.from_tensor_slices(np.arange(3)), wf.from_tensor_slices((np.arange(9), np.arange(9) * 10))
            >>> list(one.zip(two).batch(3).numpy())
            [(array([0, 1, 2]), (array([0, 1, 2]), array([ 0, 10, 20])))]
        """
        return combined("zip", (self, *others))

    def concatenate(self, *others: Dataset) -> Dataset:
        """This data set, and then the others. All must have the same fields.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(3)).concatenate(wf.from_tensor_slices(np.arange(10, 12)))
            >>> [int(x) for x in ds.numpy()]
            [0, 1, 2, 10, 11]
        """
        return combined("concatenate", (self, *others))

    @of_class
    def sample_from_datasets(
        datasets: Sequence[Dataset],
        weights: Sequence[float] | None = None,
        seed: int = 0,
        stop_on_empty_dataset: bool = False,
    ) -> Dataset:
        """Each element from a data set that is chosen at random.

        Each data set gives its own elements in its own order. In every 64 elements it is chosen as often as its weight
        says, to within one or two, in a random order that is new in every epoch. Any position is found without
        going through those before it.

        Args:
            datasets: What is mixed. All must have the same fields.
            weights: How often each is chosen, in proportion; None is all alike.
            seed: Of the choice.
            stop_on_empty_dataset: Whether the first data set that has no more ends the epoch, as tf.data's does.
                Otherwise the others go on, by the weights that are left. A data set that should start over is given
                with `repeat`.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> small, large = wf.from_tensor_slices(np.arange(10)), wf.from_tensor_slices(np.arange(100, 200))
            >>> ds = wf.Dataset.sample_from_datasets([small.repeat(), large.repeat()], [0.8, 0.2], seed=1)
            >>> batch = next(iter(ds.batch(1000).numpy()))
            >>> 795 < sum(batch < 100) < 805
            np.True_
        """
        given = list(datasets)
        shares = [1.0] * len(given) if weights is None else [float(weight) for weight in weights]
        return combined(
            "sample_from_datasets",
            given,
            weights=shares,
            seed=check.whole(seed, "seed"),
            stop_on_empty_dataset=bool(stop_on_empty_dataset),
        )

    @of_class
    def interleave(datasets: Sequence[Dataset], block_length: int = 1) -> Dataset:
        """``block_length`` elements of each data set in turn; what has ended drops out.

        Args:
            datasets: What is mixed. All must have the same fields.
            block_length: Neighbours of one data set that stay together.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> parts = [wf.from_tensor_slices(np.arange(n, n + 3)) for n in (0, 10)]
            >>> [int(x) for x in wf.Dataset.interleave(parts, block_length=2).numpy()]
            [0, 1, 10, 11, 2, 12]
        """
        return combined(
            "interleave", list(datasets), block_length=check.whole(block_length, "block_length", 1)
        )

    def with_options(self, **options: Unpack[Options]) -> Dataset:
        """Sets how the pipeline is run. `torch` and `numpy` take the same options.

        Args:
            num_workers: Threads that decode and transform. ``"auto"`` (default) finds the best number, up to
                this rank's part of the cores: those of the machine divided by ``LOCAL_WORLD_SIZE`` (torchrun) or by the
                tasks of SLURM's job step.
            prefetch: Batches made ahead, or ``"auto"``.
            read_ahead: Threads that read files before they are needed, 0 for none, or ``"auto"``.
            memory_budget: Bytes that everything under way may take. None: a quarter of memory, at most 4 GiB,
                divided among the ranks of this machine in the same way. Bytes are reserved before memory is taken. A
                batch that does not fit beside others is made by itself; a little more than three times its bytes are
                always enough, and twice where all of its columns are of one kind. What cannot fit is an error of its
                sample or batch. See the guide on performance.
            on_error: ``"raise"`` (default), ``"skip"`` (a smaller batch; none, if nothing is left) or
                ``"replace"`` (by another sample). Bad samples are listed in `Loader.errors`.
            seed: Seed of random transforms. None: that of `shuffle`.
            layout: Of image batches: ``"NCHW"`` (default) or ``"NHWC"``.
            mode: Colours that images are decoded to: ``"RGB"`` (default), ``"L"``, ``"RGBA"``, ``"UNCHANGED"``.
                ``"OPENCV"`` is what ``cv2.imread`` gives, as RGB: of JPEGs in grey or RGB; others are refused.
                ``"TENSORFLOW"`` is what ``tf.io.decode_image(channels=3)`` gives, ``"TENSORFLOW_UNCHANGED"`` what it
                gives without ``channels``: of JPEGs in grey or RGB, and PNGs of 8 bits; others are refused.
                ``"TENSORFLOW_ACCURATE"`` is ``tf.io.decode_jpeg(channels=3, dct_method="INTEGER_ACCURATE")``.
                ``"TENSORFLOW_L"`` is ``tf.io.decode_image(channels=1)`` of JPEGs, and of PNGs in grey;
                ``"TENSORFLOW_RGBA"`` is ``tf.io.decode_image(channels=4)`` of PNGs.
            decode: ``"exact"`` (default): Pillow's pixels. ``"fast"``: a JPEG that a resize shrinks at least by 2, 4 or
                8 in both directions is decoded at that scale, like Pillow's ``draft``, and resized from there. Corners
                of crops move to whole pixels of that scale; pixels differ a little from the exact ones.
            exif_orientation: Turn images upright as their EXIF data says. Default: False, as in Pillow.
            lossless: Refuse sounds that decoders may decode in different ways, and those without frames: only PCM in
                WAV files and FLAC are left, of at most 24 bits, of which a float32 has all. Default: False.
            optimize: Fuse work and push crops into the decoder. Results are the same without. Default: True.
            row_index: Where row indexes are kept: where in a JPEG its rows begin, noted when it is first decoded,
                so that later crops of it start at the first row they need. ``"memory"`` (default, at most an eighth
                of the budget), ``"beside"`` (also in a file beside the images or shards), a folder for such files,
                or ``"off"``. Results are the same in any case.
            remote_cache: A folder on a local disk in which loaders keep what they read of remote stores, shared by all
                processes of the machine. What is needed last, by the order of this epoch and the next one, goes first.
                None (default): the one that ``WELLFED_CACHE`` of the environment names, if any; ``"off"``: none.
            remote_cache_bytes: Bytes that it may take. None: ``WELLFED_CACHE_BYTES``, or half of what is free on its
                disk, and what it has.
            trace: Keep what `Loader.write_trace` writes. Default: False.
            max_pixels: Greatest height times width of an image; larger ones are errors. Default: 178,956,970.
            max_bytes: Greatest encoded size of one field, in bytes. Default: 2**30.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> wf.from_tensor_slices(np.arange(3)).with_options(num_workers=2)
            from_tensor_slices(0: int64 [3])
                .with_options(num_workers=2)
        """
        if self._made is None:

            def make(more: Mapping[str, Any]) -> NativeDataset:
                native = self._open({**options, **more})
                merged = merge(json.loads(native.to_json())["options"], options)
                return native.with_options(check.to_json(merged))

            return self._with(Later(make, self, {"node": "with_options", **options}))
        merged = merge(self._plan()["options"], options)
        return self._with(self._made.with_options(check.to_json(merged)))

    def torch(
        self,
        device: Any = None,
        *,
        on_device: Literal["copy", "resize", "decode", "auto", "nvjpeg"] = "copy",
        multiprocessing_context: Any = None,
        **options: Unpack[Options],
    ) -> Loader | StepsLoader:
        """A loader of torch tensors. The tensors use the memory that the batch was made in, without a copy.

        Args:
            device: Where tensors should be. For CUDA, batches are pinned and copied on a stream of their own, one step
                ahead, and are complete for the stream that is current.
            on_device: What of an image a CUDA device does; the values are the same. ``"copy"``: nothing, finished
                batches are copied. ``"resize"``: it crops, resizes, flips, normalizes and casts. ``"decode"``: of JPEGs
                also all that comes after Huffman decoding; and that, too, from the second epoch on, where a row index
                knows the file (``row_index``), or after `cache`. ``"auto"``: of as many images as make the loop
                fastest, which is measured all the time (``stats()["on_device"]``). ``"nvjpeg"``: NVIDIA's library
                decodes, whose pixels differ a little. `explain` says what is left to the device.
            multiprocessing_context: For pipelines with Python steps: how their workers are started, a context or its
                name; or ``"thread"``, and they are threads of this process, which find no seeded generators.
            options: As of `with_options`. With Python steps, ``num_workers`` are processes: ``"auto"`` is one for each
                core, 0 is this process.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices({"x": np.arange(6), "y": np.zeros((6, 2), np.float32)}).batch(3)
            >>> for batch in ds.torch():
            ...     print(batch["x"].dtype, tuple(batch["y"].shape))
            torch.int64 (3, 2)
            torch.int64 (3, 2)
        """
        this = self.with_options(**options) if options else self
        this = left_to(this, device, on_device)
        if this._has_python():
            from ._steps.loader import StepsLoader

            return StepsLoader(this, None, "torch", device, multiprocessing_context)
        if multiprocessing_context is not None:
            raise ValueError("multiprocessing_context is for pipelines with Python steps; this one has none")
        return Loader(this, torch_converter(), "torch", device)

    def numpy(
        self, *, multiprocessing_context: Any = None, **options: Unpack[Options]
    ) -> Loader | StepsLoader:
        """A loader of NumPy arrays. The arrays use the memory that the batch was made in, without a copy.

        Args:
            multiprocessing_context: As of `torch`.
            options: As of `with_options`.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices((np.arange(4), np.eye(4))).batch(2)
            >>> for index, row in ds.numpy(num_workers=1):
            ...     print(index, row.shape)
            [0 1] (2, 4)
            [2 3] (2, 4)
        """
        this = self.with_options(**options) if options else self
        if this._has_python():
            from ._steps.collate import as_numpy
            from ._steps.loader import StepsLoader

            return StepsLoader(this, as_numpy, "numpy", None, multiprocessing_context)
        if multiprocessing_context is not None:
            raise ValueError("multiprocessing_context is for pipelines with Python steps; this one has none")
        return Loader(this, to_numpy, "numpy", None)

    def _has_python(self) -> bool:
        """Whether a part of it runs in Python; not a filter, of which it is known what it kept."""
        return bool(self._steps)

    def sample(self, index: int, epoch: int = 0, source: int = 0) -> Any:
        """One sample of a source, transformed as it would be in ``epoch``, as NumPy arrays.

        Useful to look at a sample, and to replay a bad one. What happens to whole batches has no part in it.

        Args:
            index: In the source, from 0: not changed by `shuffle`, `shard`, `take` or `skip`.
            epoch: Decides random parameters.
            source: Which of the sources, in the order in which they are written, where there are several. Of `zip` it
                is the part that comes from this source.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> wf.from_tensor_slices((np.arange(4), np.eye(4))).sample(2)
            (array(2), array([0., 0., 1., 0.]))
        """
        which = check.whole(source, "source")
        if self._has_python():
            at = check.whole(index, "index"), check.whole(epoch, "epoch")
            return self._indexed().sample(which, *at)
        columns = self._native.sample(check.whole(index, "index"), check.whole(epoch, "epoch"), which)
        return structured(self._native.sources[which], to_numpy)(columns)

    def explain(self, analyze: bool = False, batches: int = 20) -> str:
        """What was asked for, what the optimizer made of it, and what runs.

        Args:
            analyze: Run it, and add time and bytes per stage.
            batches: How many batches to run.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> text = wf.from_tensor_slices(np.arange(4)).batch(2).explain()
            >>> "batch" in text
            True
        """
        count = check.whole(batches, "batches", 1)
        if self._has_python():
            from ._steps.explain import explain

            return explain(self, count if analyze else 0)
        return self._native.analyze(count) if analyze else self._native.explain()

    @property
    def classes(self) -> list[str] | None:
        """Names of classes by label, if the source has them."""
        return self._native.classes

    @property
    def class_to_idx(self) -> dict[str, int] | None:
        """Labels by name of class, if the source has them."""
        names = self.classes
        return None if names is None else {name: label for label, name in enumerate(names)}

    def to_json(self) -> str:
        """The plan as JSON text, with a version.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> import json
            >>> plan = json.loads(wf.from_tensor_slices(np.arange(4)).batch(2).to_json())
            >>> plan["root"]["node"], plan["root"]["batch_size"], plan["root"]["input"]["node"]
            ('batch', 2, 'source')
        """
        return self._native.to_json()

    @classmethod
    def from_json(cls, text: str, arrays: Sequence[Any] | None = None) -> Dataset:
        """The data set whose plan is ``text``. Its sources are opened anew.

        Args:
            text: As `to_json` gives it.
            arrays: What of its source is not in the text: the arrays of ``from_tensor_slices`` in the order of the
                fields, or those that `image_files` and `encoded_images` made of their arguments. Where there are
                several sources, a list of such lists, with None for those that need none. Pickling keeps them.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(4)).batch(2)
            >>> len(wf.Dataset.from_json(ds.to_json(), [np.arange(4)]))
            2
        """
        if arrays is None:
            parts: Sequence[Any] = ()
        else:
            parts = tuple(arrays) if text.count('"node":"source"') > 1 else (arrays,)
        made = _restore(text, parts)
        if steps_in(made._plan()["root"]):
            raise TypeError(
                "the plan has Python steps, whose callables are not in its text\nhint: pickle the data set instead"
            )
        return made

    def _plan(self) -> dict[str, Any]:
        plan: dict[str, Any] = json.loads(self._native.to_json())
        return plan

    def __len__(self) -> int:
        length = self._native.length()
        if length is None:
            raise TypeError("a data set that repeats without end has no length")
        return length

    def _indexed(self) -> Elements:
        if self._elements is None:
            self._elements = Elements(self)
        return self._elements

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Element ``index`` of the order of epoch 0, as NumPy arrays; of a slice a data set, by `skip` and `take`.

        What is random in it is drawn anew at each call: from torch's default generator if torch is imported, so that
        ``torch.manual_seed`` and the seeds of workers count; Python steps draw from the generators as they are.
        `sample` is the reproducible one. So a data set can stand where torch expects one: in its ``DataLoader``,
        ``Subset``, ``random_split``.

        Raises:
            IndexError: There is no such element.

        Example:
            >>> import numpy as np
            >>> import wellfed as wf
            >>> ds = wf.from_tensor_slices(np.arange(10))
            >>> int(ds[3]), int(ds[-1]), len(ds[2:6])
            (3, 9, 4)
        """
        return sliced(self, index) if isinstance(index, slice) else self._indexed()[index]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> list[Any]:
        """Several elements, as torch's fetcher asks for them."""
        elements = self._indexed()
        return [elements[index] for index in indices]

    def __iter__(self) -> Iterator[Any]:
        """The elements of an epoch as NumPy arrays; each time those of the next epoch."""
        return iter(self.numpy())

    def _repr_html_(self) -> str:
        return html_of(self)

    def __reduce__(self) -> tuple[Any, ...]:
        text = self.to_json()
        secrets = _native.referred_secrets(text)
        parts = (text, self._arrays, self._steps)
        return _restore, (*parts, secrets) if secrets else parts

    def __repr__(self) -> str:
        if self._made is None and self._later is not None:
            return f"{self._later.base!r}\n    {verb_repr(self._later.node)}"
        plan = self._plan()
        lines = node_repr(plan["root"])
        options, defaults = flatten(plan["options"]), flatten(json.loads(_native.default_options()))
        changed = [f"{k}={v!r}" for k, v in options.items() if v != defaults.get(k)]
        if changed:
            lines.append(f"    .with_options({', '.join(changed)})")
        return "\n".join(lines)


def combined(verb: str, datasets: Sequence[Dataset], **parameters: Any) -> Dataset:
    """Data sets put together by a verb that takes several."""
    for place, dataset in enumerate(datasets):
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"{verb}: data set {place} is of type {type(dataset).__name__}, not a wellfed.Dataset"
            )
    given = check.to_json({"node": verb, **parameters})
    native = _native.Dataset.combine(given, [dataset._native for dataset in datasets])
    arrays = [part for dataset in datasets for part in dataset._arrays]
    steps = [step for dataset in datasets for step in dataset._steps]
    # Of one that is put together anew in every epoch, the first one's sources tell that they are the same.
    return Dataset(native, arrays, datasets[0]._passes, steps)


def _restore(
    text: str,
    arrays: Sequence[Sequence[Any] | None],
    steps: Sequence[Any] = (),
    secrets: Sequence[tuple[str, str]] = (),
) -> Dataset:
    from .sources import as_array

    _native.keep_secrets(list(secrets))

    held = [None if part is None else [as_array(a) for a in part] for part in arrays]
    native = _native.Dataset.from_json(text, held)
    return Dataset(native, arrays or [None] * len(native.sources), steps=steps)


def _where(step: Any) -> str:
    """What runs it: the engine on samples, the engine on batches, or Python."""
    if not is_native(step):
        return "python"
    return "batches" if isinstance(step, Transform) and step.on_batches else "samples"


def is_native(step: Any) -> bool:
    """Whether the engine runs it; a class of transforms is one whose brackets were forgotten."""
    kind = type(step)
    twin = kind.__module__.startswith("torchvision.") and kind.__name__ in transforms_known
    forgotten = isinstance(step, type) and issubclass(step, Transform)
    return isinstance(step, Transform) or forgotten or twin or not callable(step)
