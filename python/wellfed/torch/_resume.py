"""`Resume`: a state dict that was checked, in the form the iterators need it; reads torchdata's, too.

Invariant: what is wrong with a state is said here, in terms of the state and the loader, before anything is changed.
"""

from __future__ import annotations

from typing import Any, cast

from ..exceptions import StateError
from . import _schema as p
from ._schema import BATCHES, COLLATE_STATE, DATASET_STATE, FETCHER_STATE
from ._source import carries

__all__ = ["Resume", "StateMismatchError"]


class StateMismatchError(StateError, AssertionError):
    """A state was loaded into a loader that cannot go on from it, as one with another number of workers.

    Also an AssertionError, which is what torchdata raises here.
    """


class Resume:
    """Where to go on from.

    Args:
        state: What ``state_dict()`` returned.

    Raises:
        StateError: It is not such a state, or one of a newer version.
    """

    def __init__(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise StateError(
                f"load_state_dict() takes what state_dict() returned, a dict, but got a {type(state).__name__}"
            )
        version = state.get(p.STATE_VERSION, 0)
        if not isinstance(version, int) or not 0 <= version <= p.VERSION:
            raise StateError(
                f"the state has version {version!r}, but this wellfed reads up to version {p.VERSION}"
                "\nhint: load it with the wellfed that made it, or a newer one"
            )
        self.version = version
        self.pool = p.SNAPSHOT in state
        if not self.pool and p.NUM_YIELDED not in state:
            raise StateError(
                "this is not the state of a loader: it has neither "
                f"{p.SNAPSHOT!r} nor {p.NUM_YIELDED!r}, but {sorted(map(str, state))[:12]}"
                "\nhint: was it the state of something else, such as a model or an optimizer?"
            )
        try:
            self._read(cast("p.LoaderState", state))
        except (KeyError, TypeError, AttributeError) as error:
            raise StateError(
                f"the state of a loader is damaged: {type(error).__name__} at {error}"
                "\nhint: pass what state_dict() returned as it was"
            ) from error

    def _read(self, state: p.LoaderState) -> None:
        self.finished: bool = state[p.FINISHED]
        self.rng: Any = state.get(p.RNG)
        self.generator: Any = state.get(p.GENERATOR)
        if self.pool:
            snapshot = state[p.SNAPSHOT]
            main = snapshot[p.MAIN_SNAPSHOT]
            workers = snapshot[p.WORKER_SNAPSHOTS]
            self.num_workers: int = main[p.NUM_WORKERS]
            self.num_yielded: int = snapshot[p.SNAPSHOT_STEP]
            self.steps: int = state[p.STEPS_SINCE_SNAPSHOT]
            self._last_worker: int = snapshot[p.LAST_WORKER]
            self._workers: list[Any] = [workers[f"worker_{i}"] for i in range(self.num_workers)]
            self.ahead = frozenset(snapshot.get(p.AHEAD, ()))
        else:
            main = state
            self.num_workers = 0
            self.num_yielded = state[p.NUM_YIELDED]
            self.steps = 0
            self._last_worker = -1
            flat = cast("dict[str, Any]", state)
            keys = (DATASET_STATE, FETCHER_STATE, COLLATE_STATE)
            self._workers = [{key: flat[key] for key in keys if key in flat} | {BATCHES: self.num_yielded}]
            self.ahead = frozenset()
        self.base_seed: int | None = main.get(p.BASE_SEED)
        self.shared_seed: int | None = main.get(p.SHARED_SEED)
        self.samples: int | None = state.get(p.SAMPLES)
        self.stream: dict[str, Any] | None = state.get(p.STREAM)
        self.len_called: int | None = main.get(p.LEN_CALLED)
        self.order = (main[p.INDEX_SAMPLER_STATE], main[p.SAMPLER_ITER_STATE], main[p.SAMPLER_ITER_YIELDED])
        end = state.get(p.END, main)
        self.end = (end[p.INDEX_SAMPLER_STATE], end[p.SAMPLER_ITER_STATE], main[p.SAMPLER_ITER_YIELDED])
        kind = state.get(p.DATASET_KIND)
        self.iterable: bool = (
            any((w or {}).get(FETCHER_STATE) for w in self._workers) if kind is None else kind == "iterable"
        )

    @property
    def carries(self) -> bool:
        """Whether a data set, its iterator or a collate function left something in this state."""
        return any(carries(state) for state in self._workers)

    @property
    def source(self) -> Any:
        """The state of the `Source` of an inline iterator."""
        return self.worker_states(1)[0] if self.num_workers == 0 else None

    def check(self, loader: Any, iterable: bool) -> None:
        """Raises a `StateMismatchError` if `loader` cannot go on from here."""
        if iterable != self.iterable:
            kinds = {False: "a map-style", True: "an iterable"}
            raise StateMismatchError(
                f"the state was taken of {kinds[self.iterable]} data set, but the loader has {kinds[iterable]} one"
            )
        if self.num_workers == loader.num_workers:
            if self.version == 0 and self.pool and iterable and not self.finished and not self.carries:
                raise StateMismatchError(
                    "a state of torchdata does not say how far each worker was if the data set carries no state"
                )
            return
        if self.finished and not (loader.persistent_workers and self.carries):
            return
        if iterable or self.carries:
            why = (
                "each worker has data of its own"
                if iterable
                else "each worker's data set left a state of its own"
            )
            raise StateMismatchError(
                f"the state was taken with num_workers={self.num_workers}, but the loader has "
                f"num_workers={loader.num_workers}: {why}\nhint: make the loader with num_workers={self.num_workers}; "
                "another number is possible for map-style data sets without state"
            )

    def worker_states(self, workers: int) -> list[Any]:
        """The state that each worker starts with."""
        if workers == max(self.num_workers, 1):
            return self._workers
        return [None] * workers

    def last_worker(self, workers: int) -> int:
        """The worker whose batch the caller got last."""
        return self._last_worker if workers == self.num_workers else workers - 1
