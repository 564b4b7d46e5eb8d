"""The state of a loader: its keys, and what stands under them. The names are those of torchdata's StatefulDataLoader.

Invariant: a state is made of what is described here, and JSON can express it unless something of the user's put a state
of its own into it. What is written, `_progress` writes; what is read, `_resume` reads.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

VERSION: Final = 1
"""Of the states written here. Newer ones are refused; version 0 is what torchdata 0.11 writes."""


class PermutationState(TypedDict, total=False):
    """How the order of one epoch is drawn again.

    Attributes:
        yielded: Items given so far.
        seed: What torch's own shuffle was seeded with.
        length: Samples that it shuffled.
        epoch: Of a sampler with ``set_epoch``.
        rng, generator: Torch's default generator and the sampler's own, before the first item was drawn.
        rng_iter, generator_iter: The same before the sampler's iterator was made.
        end_generator: The sampler's own when the epoch had been drawn.
    """

    yielded: int
    seed: int
    length: int
    epoch: int
    rng: str
    generator: str
    rng_iter: str
    generator_iter: str
    end_generator: str


class BatchesState(TypedDict, total=False):
    """Of torch's own batch sampler: samples given so far, and the states of the sampler within."""

    samples_yielded: int
    sampler_state: Any
    sampler_iter_state: PermutationState | Any
    sampler_ended: bool


class OrderState(TypedDict, total=False):
    """Where the order stands, and the seeds of the epoch."""

    _index_sampler_state: Any
    _sampler_iter_state: BatchesState | PermutationState | Any
    _sampler_iter_yielded: int
    _IterableDataset_len_called: int | None
    _shared_seed: int | None
    _base_seed: int
    _num_workers: int


class FetcherState(TypedDict):
    """Of an iterable data set in one process: the state of its iterator, and whether that has ended."""

    dataset_iter_state: Any
    fetcher_ended: bool


class WorkerState(TypedDict, total=False):
    """What one worker carries, and how many batches it has made in the epoch."""

    worker_id: int
    dataset_state: Any
    fetcher_state: FetcherState | None
    collate_state: Any
    batches: int


class SnapshotState(TypedDict, total=False):
    """A pass with workers as it was some batches ago, or as it is now.

    Attributes:
        _yielded_ahead: Items of the order that were handed over before their turn, counted from the first that was not.
    """

    _snapshot_step: int
    _last_yielded_worker_id: int
    _main_snapshot: OrderState
    _worker_snapshots: dict[str, WorkerState]
    _yielded_ahead: list[int]


class LoaderState(OrderState, WorkerState, total=False):
    """What ``state_dict()`` returns.

    With workers, the place stands in `_snapshot`, and `_steps_since_snapshot` batches came after that. Without, it is
    what `OrderState`, `WorkerState` and `_num_yielded` say here.

    Attributes:
        _rng: Torch's default generator, if the order or the seeds of workers and of the engine come from it.
        _generator: The loader's, if the order did not come from it.
        _sampler_end: What the next epoch's order depends on, at the end of one.
        _samples_yielded: Samples before, by which the engine draws.
        _stream: Which epoch of the data set it is, where that counts them itself.
    """

    _version: int
    _dataset_kind: str
    _iterator_finished: bool
    _num_yielded: int
    _snapshot: SnapshotState
    _steps_since_snapshot: int
    _rng: str
    _generator: str
    _sampler_end: OrderState
    _samples_yielded: int
    _stream: dict[str, Any]


# Of `LoaderState`, `SnapshotState` and `OrderState`.
STATE_VERSION: Final = "_version"
DATASET_KIND: Final = "_dataset_kind"
INDEX_SAMPLER_STATE: Final = "_index_sampler_state"
SAMPLER_ITER_STATE: Final = "_sampler_iter_state"
SAMPLER_ITER_YIELDED: Final = "_sampler_iter_yielded"
NUM_YIELDED: Final = "_num_yielded"
LEN_CALLED: Final = "_IterableDataset_len_called"
SHARED_SEED: Final = "_shared_seed"
BASE_SEED: Final = "_base_seed"
FINISHED: Final = "_iterator_finished"
SNAPSHOT: Final = "_snapshot"
SNAPSHOT_STEP: Final = "_snapshot_step"
LAST_WORKER: Final = "_last_yielded_worker_id"
MAIN_SNAPSHOT: Final = "_main_snapshot"
WORKER_SNAPSHOTS: Final = "_worker_snapshots"
STEPS_SINCE_SNAPSHOT: Final = "_steps_since_snapshot"
NUM_WORKERS: Final = "_num_workers"
WORKER_ID: Final = "worker_id"
AHEAD: Final = "_yielded_ahead"
END: Final = "_sampler_end"
RNG: Final = "_rng"
GENERATOR: Final = "_generator"
SAMPLES: Final = "_samples_yielded"
STREAM: Final = "_stream"

# Of `WorkerState` and `FetcherState`.
DATASET_STATE: Final = "dataset_state"
FETCHER_STATE: Final = "fetcher_state"
DATASET_ITER_STATE: Final = "dataset_iter_state"
FETCHER_ENDED: Final = "fetcher_ended"
COLLATE_STATE: Final = "collate_state"
BATCHES: Final = "batches"

# Of `BatchesState` and `PermutationState`.
YIELDED: Final = "yielded"
SAMPLES_YIELDED: Final = "samples_yielded"
INNER_STATE: Final = "sampler_state"
INNER_ITER_STATE: Final = "sampler_iter_state"
SAMPLER_ENDED: Final = "sampler_ended"
SEED: Final = "seed"
LENGTH: Final = "length"
EPOCH: Final = "epoch"
END_GENERATOR: Final = "end_generator"
