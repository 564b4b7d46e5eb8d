"""`DataLoader`: torch's class with other iterators behind it.

A subclass of torch's, so constructor checks, messages, attributes, `len` and `isinstance` are torch's own.
Which iterator runs is decided in one place, `_make_iterator`:

1. that of `_lower.lower(loader)`, if the whole loader can run in the engine (`native=False`: never),
2. `_inline.InlineIterator` for `num_workers=0`,
3. the worker threads of `_threads`, if they are asked for,
4. the worker processes of `_workers`, or the calling thread in their place if it was measured to be faster.

`_device.staged` does the last steps of a batch on its way to the caller: `float_dtype`, `pin_memory`, `device`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar

import torch
from torch.utils.data import dataloader as stock

from .._arguments import whole
from .._cores import auto_workers
from .._options import check_on_device
from . import _lower
from ._accumulate import MicroBatches
from ._bad import BadSample, BadSamples, checked
from ._device import staged, target
from ._inline import InlineIterator
from ._precision import float_dtype as as_float_dtype
from ._private import DatasetKind, StockWorkersIterator
from ._resume import Resume
from ._state import Checkpoints
from ._workers import supported as workers_supported
from ._workers.threads import THREAD, ThreadsIterator, check, in_threads
from ._workers.tuning import tuner_of

if workers_supported():
    from ._workers.choice import Choice, choice_of
    from ._workers.here import HereIterator
    from ._workers.processes import WorkersIterator
    from ._workers.reach import look

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)

# Taken now: some put our class in the place of torch's.
_CONTEXT: Any = vars(stock.DataLoader)["multiprocessing_context"]


class DataLoader(stock.DataLoader[T_co]):
    """torch's DataLoader with a faster and safer inside; takes the same arguments, and a few more.

    Args:
        dataset: Map-style or iterable data set.
        batch_size: Samples per batch; None: no batching.
        shuffle: Another order in every epoch.
        sampler: Indices, one by one.
        batch_sampler: Indices, batch by batch.
        num_workers: Worker processes; 0: the calling process does the work, as it does in later epochs where an epoch
            was measured to be faster so, with the values that workers give; `"auto"`: as many as there are
            cores to use, by affinity and control group, divided by `LOCAL_WORLD_SIZE`, and in later epochs more where
            these leave cores idle since samples wait for a disk or a network. What samples draw from the default
            random generators is then seeded batch by batch, so that no value depends on that number. It stays as it
            is with `persistent_workers`, with a `generator`, and with samplers of one's own.
        collate_fn: Makes a batch of a list of samples.
        pin_memory: Whether batches lie in pinned memory, where there is an accelerator.
        drop_last: Whether an incomplete last batch is left out.
        timeout: Seconds to wait for a batch of the workers; 0: no limit.
        worker_init_fn: Called in each worker with its number before it starts.
        multiprocessing_context: How workers are started: a context, or its name. `"thread"`: they are threads of this
            process, which share the data set (map-style) and the global random generators; meant for code that
            releases the interpreter lock, as Pillow, NumPy, zlib and reads of files do.
        generator: Source of random numbers for the order and for the workers' seeds.
        prefetch_factor: Batches that each worker prepares ahead.
        persistent_workers: Whether workers live on between epochs.
        pin_memory_device: As in torch: deprecated there.
        in_order: Whether batches come in the order of the sampler; False: as they are finished.
        device: Device on which batches are handed over; None or `"cpu"`: where they are made. For CUDA they are pinned
            and copied on a stream of their own, one step ahead, and are complete for the stream that is current.
        on_device: What of an image a CUDA `device` does where the engine makes whole batches of images: ``"copy"``
            (nothing), ``"resize"``, ``"decode"``, ``"auto"`` or ``"nvjpeg"``, as of `wellfed.Dataset.torch`. Values
            are the same, but for ``"nvjpeg"``. It is a `ValueError` where the engine does not make whole batches.
        float_dtype: Type of the floating point tensors in batches, such as `torch.bfloat16`; other tensors stay as they
            are. None: as they were made.
        native: Whether the engine may take over what it recognises.
        accelerate: Whether images are opened as under `wellfed.accelerate` while samples are made: with Pillow's
            pixels, in less time. In worker processes, and without workers in the calling thread, where images that
            outlive their batch are Pillow's own. With worker threads it is on where that was called.
        num_threads: Threads of the engine, where it makes whole batches; None: as many as pay, within this rank's share
            of the cores (`LOCAL_WORLD_SIZE`).
        memory_budget: Bytes that the engine may hold for batches, read-ahead and caches, where it makes whole batches;
            None: a share of the memory there is.
        on_error: What is done about a sample that cannot be made: ``"raise"``; ``"skip"``: its batch has one less;
            ``"replace"``: another sample of its batch takes its place. `errors` lists them. What may pass, such as a
            time-out, is raised all the same, and so is an error if no sample of a batch can be made. For map-style data
            sets with batches.
        snapshot_every_n_steps: How often what carries state (see `wellfed.torch.Stateful`) is asked for it: a large
            number makes `state_dict()` cheaper to have, and resuming slower; 0: only at the start.
        stall_warning: Seconds after which a worker that is waited for is reported with its stack;
            default: the environment variable `WELLFED_STALL_SECONDS`, or 60; 0: never.

    Example:
        >>> from torch.utils.data import Dataset
        >>> class Squares(Dataset):
        ...     def __len__(self):
        ...         return 6
        ...
        ...     def __getitem__(self, i):
        ...         return {"i": i, "square": i * i}
        >>> for batch in DataLoader(Squares(), batch_size=4, num_workers=2, multiprocessing_context="fork"):
        ...     print(batch["i"].tolist(), batch["square"].tolist())
        [0, 1, 2, 3] [0, 1, 4, 9]
        [4, 5] [16, 25]
    """

    num_workers: int

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        device: torch.device | str | int | None = None,
        on_device: Literal["copy", "resize", "decode", "auto", "nvjpeg"] = "copy",
        float_dtype: torch.dtype | str | None = None,
        native: bool = True,
        accelerate: bool = True,
        num_threads: int | None = None,
        memory_budget: int | None = None,
        on_error: Literal["raise", "skip", "replace"] = "raise",
        snapshot_every_n_steps: int | None = 1,
        stall_warning: float | None = None,
    ) -> None:
        auto = isinstance(num_workers, str)
        if isinstance(num_workers, str):
            if num_workers != "auto":
                raise ValueError(f"num_workers is {num_workers!r}\nhint: give a number, or 'auto'")
            num_workers = auto_workers()
        check_on_device(device, on_device, 'device="cuda", on_device=...')
        target(device)
        self.on_device = on_device
        self.device = None if device is None else torch.device(device)
        self.float_dtype = as_float_dtype(float_dtype)
        self.native = native
        self.accelerate = accelerate
        self.num_threads = None if num_threads is None else whole(num_threads, "num_threads", 1)
        self.memory_budget = None if memory_budget is None else whole(memory_budget, "memory_budget", 1)
        self.on_error = checked(on_error)
        self._bad = BadSamples()
        if snapshot_every_n_steps is not None and snapshot_every_n_steps < 0:
            raise ValueError(f"snapshot_every_n_steps is {snapshot_every_n_steps}, but must be 0 or more")
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self._checkpoints = Checkpoints()
        self._choices: dict[Any, Choice] = {}
        self.stall_warning = stall_warning
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        # An iterable data set is shared out by the number of workers anyway, and threads share the generators.
        self._seeds_by_batch = auto and self._dataset_kind == DatasetKind.Map and not self._threads
        self._tuner = tuner_of(self) if self._seeds_by_batch else None
        check(self)
        self._check_on_error()
        if on_device != "copy":
            # That it cannot be is told here, and not when the first batch is asked for.
            self._planned()

    @property
    def multiprocessing_context(self) -> Any:
        """How workers are started: a context; None: the default of the system; `"thread"`: as threads."""
        return THREAD if self._threads else _CONTEXT.__get__(self)

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        threads = isinstance(context, str) and context == THREAD
        if threads and self.num_workers == 0:
            raise ValueError(
                "multiprocessing_context='thread' can only be used with workers (num_workers > 0), but got "
                "num_workers=0"
            )
        _CONTEXT.__set__(self, None if threads else context)
        self._threads = threads

    def _check_on_error(self) -> None:
        if self.on_error == "raise":
            return
        why = ""
        if self._dataset_kind == DatasetKind.Iterable:
            why = "the data set is iterable, and an iterator that has raised cannot go on"
        elif not self._auto_collation:
            why = "there are no batches that could go without a sample"
        if why:
            raise ValueError(f"on_error={self.on_error!r} is not possible: {why}\nhint: on_error='raise'")

    def errors(self) -> list[BadSample]:
        """Samples that could not be made, in the order of their batches: of `on_error` other than ``"raise"``.

        Example:
            >>> class Holed:
            ...     def __len__(self):
            ...         return 4
            ...
            ...     def __getitem__(self, i):
            ...         return 10 // (i - 2)
            >>> loader = DataLoader(Holed(), batch_size=4, on_error="skip")
            >>> [batch.tolist() for batch in loader]
            [[-5, -10, 10]]
            >>> loader.errors()
            [BadSample(index=2, cause='ZeroDivisionError: integer division or modulo by zero', replaced_by=None)]
        """
        return [*self._bad.listed]

    def __iter__(self) -> Any:
        return self._checkpoints.iterate(self, super().__iter__)

    def state_dict(self) -> dict[str, Any]:
        """Where this loader is: what `load_state_dict` needs to go on after the last batch that was handed over.

        The protocol is that of torchdata's `StatefulDataLoader`. The state is small (the order of samples is stored as
        the seed it came from) and can be written as JSON, unless a data set, iterator, sampler or collate function with
        a state of its own (see `wellfed.torch.Stateful`) puts something else into it.

        At the end of an epoch, it is a state from which the next epoch begins.

        Example:
            >>> import torch
            >>> loader = DataLoader(range(8), batch_size=2, shuffle=True)
            >>> batches = iter(loader)
            >>> first = next(batches)
            >>> state = loader.state_dict()
            >>> again = DataLoader(range(8), batch_size=2, shuffle=True)
            >>> again.load_state_dict(state)
            >>> [b.tolist() for b in again] == [b.tolist() for b in batches]
            True
        """
        return self._checkpoints.state_dict(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Has the next ``iter()`` go on from where `state_dict` was called, in this process or another.

        The loader should be made as the other was. For map-style data sets without a state of their own,
        `num_workers` may differ. States of torchdata's `StatefulDataLoader` are taken, too.

        Args:
            state_dict: What `state_dict` returned; an empty dict: forget a state loaded before.

        Raises:
            StateError: It is not the state of a loader, or of a newer version. That it does not fit this loader is
                found when iteration starts (`StateMismatchError`).
        """
        self._checkpoints.load_state_dict(self, state_dict)

    def __repr__(self) -> str:
        known = vars(self)
        parts = [f"{name}={known[name]!r}" for name in ("batch_size", "num_workers") if name in known]
        dataset = type(known["dataset"]).__name__ if "dataset" in known else "nothing yet"
        name = f"{type(self).__module__.partition('._')[0]}.{type(self).__qualname__}"
        return f"<{name} of {dataset}, {', '.join(parts)}; explain() says what runs natively>"

    def accumulate(self, n: int) -> MicroBatches[T_co]:
        """One epoch in groups of `n` batches, for gradients of several batches in one step of the optimizer.

        Iterating gives `MicroBatch`es: `batch`, `count` (how many the group has; fewer than `n` in the last of an
        epoch), `last` (whether it is time for the step), and `no_sync(model)` for `DistributedDataParallel`.

        Args:
            n: Batches per step.

        Example:
            >>> from torch.utils.data import TensorDataset
            >>> loader = DataLoader(TensorDataset(torch.arange(10.0)), batch_size=2)
            >>> [(micro.index, micro.count, micro.last) for micro in loader.accumulate(3)]
            [(0, 3, False), (1, 3, False), (2, 3, True), (0, 2, False), (1, 2, True)]
            >>> loader.accumulate(3).steps
            2
        """
        return MicroBatches(self, n)

    def check_worker_number_rationality(self) -> None:
        """Warns of more worker processes than cores; threads that wait for a disk may well be more."""
        if not in_threads(self):
            super().check_worker_number_rationality()

    def _get_iterator(self) -> Any:
        return self._iterator_from(None)

    def _iterator_from(self, resume: Resume | None) -> Any:
        """An iterator that begins an epoch, or goes on from `resume`."""
        return staged(self, self._make_iterator(resume))

    def _make_iterator(self, resume: Resume | None = None) -> Any:
        plan = self._planned()
        iterator = plan.iterator(self, resume)
        if iterator is not None:
            return iterator
        # Samples whose images the engine makes come from another data set than the user's.
        source: Any = self if plan.dataset is self.dataset else _lower.LoaderView(self, plan.dataset)
        if self.num_workers == 0:
            return InlineIterator(source, resume)
        if in_threads(source):
            return ThreadsIterator(source, resume)
        if self._tuner is None:
            self.check_worker_number_rationality()
        else:
            self.num_workers = self._tuner.workers
        if not workers_supported():
            return StockWorkersIterator(source)
        choice = self._choice(plan)
        if choice is not None and choice.next(lambda: look(self.dataset, self.collate_fn)) == "here":
            return HereIterator(source, choice, resume)
        return WorkersIterator(source, resume, choice)

    def _choice(self, plan: _lower.Plan) -> Choice | None:
        """What was measured of worker processes and the calling thread; None where there is no choice."""
        if plan.kind != "python" or not workers_supported() or in_threads(self):
            return None
        return choice_of(self)

    def _planned(self) -> _lower.Plan:
        """What runs where; looked at anew before every epoch, since data sets and transforms may change."""
        plan = _lower.lower(self, getattr(self, "_plan", None), self.native)
        if self.on_device != "copy":
            _lower.check_left(self, plan)
        self._plan: _lower.Plan | None = plan
        return plan

    def explain(self) -> str:
        """What runs natively, what in Python and why, and the one change that would make more of it native.

        Example:
            >>> import torch
            >>> from torch.utils.data import TensorDataset
            >>> print(DataLoader(TensorDataset(torch.arange(4)), batch_size=2).explain())
            DataLoader, native: whole batches of rows are gathered at once
              native  TensorDataset             whole batches are gathered at once, in the calling thread
              python  order: SequentialSampler  torch's sampler, the same order; batch_size=2, drop_last=False
              native  num_workers=0             no processes: gathering takes less than handing over
              native  memory: batches on the CPU  not pinned
        """
        return _lower.explain(self, self._planned())
