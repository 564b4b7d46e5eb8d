"""A map-style data set whose images the engine decodes and transforms, as far as it can; Python does the rest.

Invariant: it is used in place of the data set it wraps, gives what that gives (random draws have the same distribution,
from another stream), and starts no thread: it works in the process that made it, after a fork, and unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import Dataset

from wellfed.exceptions import WellfedError

from .datasets import Flat, Leaf, flatten
from .engine import Engine, accepts_for
from .forms import Chain, RefusalError
from .joint import Boxes
from .transforms import lower_leaf
from .users import Layout

__all__ = ["Hybrid"]


class Hybrid(Dataset[Any]):
    """`dataset`, made natively where possible.

    Random parameters of native transforms are keyed by a number from torch's default generator, one a sample:
    reproducible under ``torch.manual_seed``, and in workers by the seeds that torch gives them.
    """

    def __init__(self, dataset: Any) -> None:
        object.__setattr__(self, "_wrapped", dataset)
        object.__setattr__(self, "_ready", None)

    def _prepared(self) -> _Prepared | _Unprepared:
        ready: _Prepared | _Unprepared | None = self._ready
        if ready is None or ready.process != os.getpid() or not ready.current(self._wrapped):
            try:
                ready = _Prepared(self._wrapped)
            except RefusalError:
                # It was changed in a worker, or cannot be read there.
                ready = _Unprepared()
            object.__setattr__(self, "_ready", ready)
        return ready

    def __len__(self) -> int:
        return len(self._wrapped)

    def __getitem__(self, index: Any) -> Any:
        return self._prepared().sample(self._wrapped, index)

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Samples of one batch."""
        samples = self.wellfed_samples()
        return [samples[index] for index in indices]

    def wellfed_samples(self) -> _Samples:
        """The samples of one batch, one by one: who takes them knows which one failed."""
        return _Samples(self._prepared(), self._wrapped)

    def __getattr__(self, name: str) -> Any:
        # Only asked for what is not here: whoever looks for attributes means those of the data set.
        if name.startswith("__") or "_wrapped" not in vars(self):
            raise AttributeError(name)
        return getattr(self._wrapped, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._wrapped, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Hybrid, (self._wrapped,)

    def __repr__(self) -> str:
        return repr(self._wrapped)


class _Samples:
    """The data set as it is prepared now; whether it has changed is not asked again for every sample."""

    __slots__ = ("_ready", "_wrapped")

    def __init__(self, ready: _Prepared | _Unprepared, wrapped: Any) -> None:
        self._ready, self._wrapped = ready, wrapped

    def __getitem__(self, index: Any) -> Any:
        return self._ready.sample(self._wrapped, index)


class _Unprepared:
    """A data set that is Python here. It is not looked at again: that may take longer than a sample."""

    def __init__(self) -> None:
        self.process = os.getpid()

    def current(self, dataset: Any) -> bool:
        return True

    def sample(self, dataset: Any, index: Any) -> Any:
        return dataset[index]


class _Prepared:
    """What one process made of a data set."""

    def __init__(self, dataset: Any) -> None:
        self.process = os.getpid()
        self._flat: Flat = flatten(dataset)
        self._starts = self._flat.starts
        self._engines: list[tuple[Engine, Chain, Leaf]] = []
        for leaf in self._flat.leaves:
            chain = lower_leaf(leaf, accepts_for(leaf))
            self._engines.append((Engine([leaf], chain.native, chain.form, chain.outcome), chain, leaf))
        self._rests = [_called_in_turn(chain.suffix) for _, chain, _ in self._engines]
        self._transforms = [leaf.transform for leaf in self._flat.leaves]

    def current(self, dataset: Any) -> bool:
        """Whether it still holds, as far as can be told in no time: elements of lists are looked at once an epoch."""
        if not self._flat.current(dataset, deep=False):
            return False
        now = [transform_of(leaf) for leaf in self._flat.leaves]
        return all(a is b for a, b in zip(now, self._transforms, strict=True))

    def sample(self, dataset: Any, index: Any) -> Any:
        flat = self._flat
        try:
            at = int(index)
        except (TypeError, ValueError):
            return dataset[index]
        if not 0 <= at < flat.length:
            return dataset[index]
        row = at if flat.rows is None else int(flat.rows[at])
        place = 0
        while place + 1 < len(self._starts) and self._starts[place + 1] <= row:
            place += 1
        engine, chain, leaf = self._engines[place]
        row -= self._starts[place]
        # Only where it is needed: what is drawn here, the order of the next epoch does not see.
        draw = int(torch.randint(0, 1 << 32, (), dtype=torch.int64)) if chain.random else 0
        if leaf.follows is not None:
            return self._pair(dataset, index, engine, chain, leaf, row, draw)
        try:
            image = engine.sample(row, draw)
        except WellfedError:
            # The data set itself reads formats that the engine does not, and raises what is expected of it.
            return dataset[index]
        image = self._rests[place](image)
        if leaf.reading is not None and isinstance(leaf.reading.layout, Layout):
            try:
                return leaf.reading.layout.sample(image, row)
            except Exception:  # The data set may expect it.
                return dataset[index]
        target = leaf.targets[row]
        if leaf.target_transform is not None:
            target = leaf.target_transform(target)
        return image, target

    def _pair(
        self, dataset: Any, index: Any, engine: Engine, chain: Chain, leaf: Leaf, row: int, draw: int
    ) -> Any:
        follows = leaf.follows
        if isinstance(follows, Boxes) and row in follows.left_out:
            return dataset[index]
        try:
            sample: Any = engine.pair(row, draw)
        except WellfedError:
            return dataset[index]
        joint: list[Any] = list(chain.suffix)
        for transform in joint:
            sample = transform(*sample)
        return sample


def _called_in_turn(transforms: list[Callable[[Any], Any]]) -> Callable[[Any], Any]:
    """What calls transforms one after the other: torchvision's own, where acceleration does some of its in one pass."""
    modules = {type(transform).__module__ for transform in transforms}
    if any(module.startswith("torchvision.transforms.v2") for module in modules):
        from torchvision.transforms import v2

        return v2.Compose(transforms)  # type: ignore[no-any-return]
    if any(module.startswith("torchvision.transforms") for module in modules):
        from torchvision.transforms import Compose

        return Compose(transforms)  # type: ignore[no-any-return]

    def call(image: Any) -> Any:
        for transform in transforms:
            image = transform(image)
        return image

    return call


def transform_of(leaf: Leaf) -> Any:
    """What the data set of `leaf` calls on its images now."""
    dataset = leaf.dataset
    if leaf.table is not None:
        return None
    if leaf.reading is not None:
        return leaf.transform  # what was read holds while it is the same
    if leaf.follows is not None:
        return vars(dataset)["transforms"]
    if leaf.joint:
        return getattr(dataset.transforms, "transform", dataset.transforms)
    return dataset.transform
