"""torch's fetchers of one batch, which know at which sample they failed.

Invariant: they ask the data set for what torch's ask, as often and in the same order. Where a fetch failed is worked
out when it has failed: batches that succeed pay nothing for it.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ._bad import BadSample, WithBad, may_pass
from ._private import InlineFetcher, InlineStreamFetcher

__all__ = ["IterableFetcher", "MapFetcher", "Stopped", "located", "note", "shorten", "with_bad"]


class Stopped(BaseException):
    """The batch in the making is not wanted any more."""


class MapFetcher(InlineFetcher):
    """Batches of a map-style data set.

    Attributes:
        at: Where the last fetch failed, in words; None if it did not.
        stopped: Asked between samples: True ends the fetch with `Stopped`. None: nobody stops it.
        on_error: What is done about samples that cannot be made: ``"raise"``, ``"skip"`` or ``"replace"``.
        bad: Samples that are missing in the last batch.
    """

    at: str | None = None
    stopped: Callable[[], bool] | None = None
    on_error: str = "raise"
    bad: Sequence[BadSample] = ()

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The batch of these indices."""
        self.at = None
        index = possibly_batched_index
        if self.on_error != "raise":
            data = self._good(index)
        else:
            data = self._samples(index) if self.auto_collation else self._sample(index)
        try:
            return self.collate_fn(data)
        except Exception:
            self.at = f"collating the samples {shorten(index)}"
            raise

    def _good(self, indices: Any) -> list[Any]:
        """The samples of a batch without the bad ones, or with others of the batch in their place."""
        given = [*indices]
        self.bad = ()
        if hasattr(self.dataset, "__getitems__") and not hasattr(type(self.dataset), "wellfed_samples"):
            try:
                return list(self._samples(given))
            except Exception:
                self.at = None  # Which of them it was is found one by one.
        samples: list[Any] = []
        errors: dict[int, Exception] = {}
        for place, index in enumerate(given):
            if self.stopped is not None and self.stopped():
                raise Stopped
            try:
                samples.append(self.dataset[index])
            except Exception as error:
                if may_pass(error):
                    self.at = f"sample {shorten(index)}, item {place} of its batch"
                    raise
                samples.append(None)
                errors[place] = error
        if not errors:
            return samples
        good = [place for place in range(len(given)) if place not in errors]
        if not good:
            self.at = f"none of the samples {shorten(given)} could be made; the first error is"
            raise next(iter(errors.values()))
        # A sample of the same batch: what the sampler leaves out stays out, and all is decided by the batch alone.
        instead = {place: min(good, key=lambda other: (other - place) % len(given)) for place in errors}
        skip = self.on_error == "skip"
        self.bad = [
            BadSample(
                given[place], f"{type(error).__name__}: {error}", None if skip else given[instead[place]]
            )
            for place, error in errors.items()
        ]
        if skip:
            return [samples[place] for place in good]
        for place, other in instead.items():
            samples[place] = self.dataset[given[other]]
        return samples

    def _sample(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except Exception:
            self.at = f"sample {shorten(index)}"
            raise

    def _samples(self, indices: Any) -> Any:
        dataset = self.dataset
        if hasattr(type(dataset), "wellfed_samples"):
            dataset = dataset.wellfed_samples()
        elif hasattr(dataset, "__getitems__") and dataset.__getitems__:
            try:
                return dataset.__getitems__(indices)
            except Exception:
                self.at = f"one of the samples {shorten(indices)}, in __getitems__"
                raise
        places = iter(indices)
        try:
            if self.stopped is None:
                return [dataset[index] for index in places]
            return [dataset[index] for index in _until(self.stopped, places)]
        except Exception:
            self.at = _failed(indices, places)
            raise


def _until(stopped: Callable[[], bool], places: Iterator[Any]) -> Iterator[Any]:
    for index in places:
        if stopped():
            raise Stopped
        yield index


def _failed(indices: Any, places: Iterator[Any]) -> str:
    """Which of `indices` was at hand, given the iterator over them: it says how many are left."""
    left = operator.length_hint(places, -1)
    if left >= 0 and hasattr(indices, "__len__") and hasattr(indices, "__getitem__"):
        item = len(indices) - left - 1
        if 0 <= item < len(indices) and not isinstance(indices, Mapping):
            return f"sample {shorten(indices[item])}, item {item} of its batch"
    return f"one of the samples {shorten(indices)}"


class IterableFetcher(InlineStreamFetcher):
    """Batches of an iterable data set.

    Attributes:
        at: Where the last fetch failed, in words; None if it did not.
        stopped: As of `MapFetcher`.
        count: Samples that were given before.
        share: What the samples are counted in.
    """

    at: str | None = None
    stopped: Callable[[], bool] | None = None
    count = 0
    share = "the data set"

    def fetch(self, possibly_batched_index: Any) -> Any:
        """The next batch; the index only says how many samples it has."""
        self.at = None
        if self.ended:
            raise StopIteration
        data = self._samples(possibly_batched_index) if self.auto_collation else self._sample()
        try:
            return self.collate_fn(data)
        except Exception:
            first = self.count - len(data) if self.auto_collation else self.count - 1
            self.at = f"collating samples {first} to {self.count - 1} of {self.share}"
            raise

    def _sample(self) -> Any:
        try:
            sample = next(self.dataset_iter)
        except StopIteration:
            raise
        except Exception:
            self.at = f"sample {self.count} of {self.share}"
            raise
        self.count += 1
        return sample

    def _samples(self, wanted: Any) -> list[Any]:
        data: list[Any] = []
        try:
            for _ in wanted:
                if self.stopped is not None and self.stopped():
                    raise Stopped
                try:
                    data.append(next(self.dataset_iter))
                except StopIteration:
                    self.ended = True
                    break
        except Exception:
            self.at = f"sample {self.count + len(data)} of {self.share}"
            raise
        finally:
            self.count += len(data)
        if len(data) == 0 or (self.drop_last and len(data) < len(wanted)):
            raise StopIteration
        return data


def with_bad(fetcher: Any, batch: Any) -> Any:
    """What a worker sends: the batch, and what is missing in it."""
    bad = getattr(fetcher, "bad", ())
    return WithBad(batch, list(bad)) if bad else batch


def note(error: BaseException, at: str | None) -> None:
    """Has the traceback of `error` say where it came from (Python 3.11 and later have room for that)."""
    if at is not None and sys.version_info >= (3, 11):
        error.add_note(f"wellfed: {at}")


def located(wrapped: Any, at: str | None, batch: int) -> Any:
    """The wrapper that torch puts around an exception of a worker; its text now says where that came from."""
    if at is not None:
        wrapped.exc_msg = f"{wrapped.exc_msg}\nwellfed: {at} (batch {batch})"
    return wrapped


def shorten(value: Any, limit: int = 200) -> str:
    """`value` as text of a bounded length, in one line."""
    try:
        if isinstance(value, (list, tuple)) and len(value) > 20:
            return f"{shorten(value[:20], limit - 20)[:-1]}, ... {len(value)} in all]"
        text = " ".join(repr(value).split())
    except Exception as e:
        text = f"<repr failed: {type(e).__name__}>"
    return text if len(text) <= limit else text[: limit - 4] + " ..."
