"""Torch's random generators: their states as text, and from which of them what was drawn."""

from __future__ import annotations

import base64
import binascii
import contextlib
import weakref
import zlib
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ..exceptions import StateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Generators", "Rng", "decode_generator", "encode_generator"]

T = TypeVar("T")


def encode_generator(state: torch.Tensor) -> str:
    """A generator's state as text: it can be written as JSON, and nobody can change it by accident."""
    return base64.b64encode(zlib.compress(state.numpy().tobytes(), 1)).decode("ascii")


def decode_generator(text: Any) -> torch.Tensor:
    """The reverse of `encode_generator`; takes the tensor itself too, which is what torchdata stores."""
    if isinstance(text, torch.Tensor):
        return text
    try:
        raw = zlib.decompress(base64.b64decode(text, validate=True))
    except (TypeError, ValueError, binascii.Error, zlib.error) as error:
        raise StateError(f"the state of a random generator is damaged: {error}") from error
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


class _Pinned:
    """A copy of the default generator of the run that was interrupted.

    Args:
        state: Where it is.
        seed: What the generator of this process was seeded with when the copy was made.
    """

    def __init__(self, state: torch.Tensor, seed: int) -> None:
        self.state, self.seed = state, seed
        self.inside = False


class _Resumed:
    """The copies by the data sets of which a loader was resumed: a loader that is made anew goes on with them."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], _Pinned]] = {}

    def note(self, dataset: Any, pinned: _Pinned | None) -> None:
        key = id(dataset)
        self._known.pop(key, None)
        # Of lists and ranges nobody can tell when they are gone.
        with contextlib.suppress(TypeError):
            if pinned is not None:
                self._known[key] = weakref.ref(dataset, lambda _: self._known.pop(key, None)), pinned

    def of(self, dataset: Any) -> _Pinned | None:
        known = self._known.get(id(dataset))
        return None if known is None or known[0]() is not dataset else known[1]


_RESUMED = _Resumed()


class Rng:
    """Where a loader draws its seeds from if it has no generator: torch's default generator.

    After a resume, the default generator may be anywhere. If it is not where the interrupted run left it, the seeds of
    later epochs come from a copy of that one, so that those epochs, too, are as they would have been; also those of
    loaders of the same data set that are made later. That ends when the caller seeds the default generator.
    """

    def __init__(self) -> None:
        self._pinned: _Pinned | None = None

    def resume(self, text: Any, dataset: Any) -> None:
        """Continues with the numbers that come after a state was taken, or with the default generator's for None."""
        self._pinned = None
        if text is not None:
            state = decode_generator(text)
            if not torch.equal(state, torch.get_rng_state()):
                self._pinned = _Pinned(state, torch.initial_seed())
        _RESUMED.note(dataset, self._pinned)

    def follow(self, dataset: Any) -> None:
        """Continues with the numbers that loaders of `dataset` draw that were resumed."""
        self._pinned = _RESUMED.of(dataset)

    def _copy(self) -> _Pinned | None:
        """What stands in for the default generator, unless that was seeded meanwhile."""
        if self._pinned is not None and self._pinned.seed != torch.initial_seed():
            self._pinned = None
        return self._pinned

    def state(self) -> str:
        """What `resume` takes."""
        pinned = self._copy()
        return encode_generator(torch.get_rng_state() if pinned is None else pinned.state)

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """What is drawn from the default generator within comes from here."""
        if self._pinned is not None and self._pinned.inside:
            yield
            return
        pinned = self._copy()
        if pinned is None:
            yield
            return
        outside = torch.get_rng_state()
        torch.set_rng_state(pinned.state)
        pinned.inside = True
        try:
            yield
        finally:
            pinned.inside = False
            pinned.state = torch.get_rng_state()
            torch.set_rng_state(outside)

    @contextlib.contextmanager
    def untouched(self) -> Iterator[None]:
        """What is drawn from the default generator within is as if it had not been."""
        outside = torch.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(outside)


class Generators:
    """What a sampler may draw from: the default generator, and one of its own if it has one.

    Args:
        rng: Where a loader draws from instead of the default generator.
        own: The sampler's own.
    """

    def __init__(self, rng: Rng, own: torch.Generator | None) -> None:
        self.rng, self.own = rng, own

    def note(self, when: str, work: Callable[[], T], drawn: dict[str, Any]) -> T:
        """Does `work`, and adds to `drawn` what the generators were at before, if it drew from them.

        The keys are ``rng`` and ``generator`` with `when` behind them.
        """
        with self.rng.scope():
            default = torch.get_rng_state()
            own = None if self.own is None else self.own.get_state()
            result = work()
            if not torch.equal(default, torch.get_rng_state()):
                drawn["rng" + when] = encode_generator(default)
            if self.own is not None and own is not None and not torch.equal(own, self.own.get_state()):
                drawn["generator" + when] = encode_generator(own)
        return result

    def rewind(self, when: str, drawn: Mapping[str, Any]) -> None:
        """Puts the generators to where they were when `note` added to `drawn`."""
        if "rng" + when in drawn:
            torch.set_rng_state(decode_generator(drawn["rng" + when]))
        if self.own is not None and "generator" + when in drawn:
            self.own.set_state(decode_generator(drawn["generator" + when]))
