"""Batches of token arrays of varying length: wellfed beside torch's DataLoader, in turns.

    python benches/tokens.py [--samples 20000] [--rounds 5] [--out FILE.json]

Lengths are 10 to 2,000, log-uniform. Two tasks: batches of 64 padded to the longest, and the same samples in buckets by
length (torch: a batch sampler that cuts its shuffled order by the same rule). torch pads with `pad_sequence`, with 0, 1
and 2 workers; its best number of workers is what counts. Each round runs all of them once, in turn; medians are over
rounds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import wellfed as wf
from turns import in_turns, report

BATCH = 64
BOUNDARIES = [32, 64, 128, 256, 512, 1024, 1536]


class Tokens(Dataset[tuple[torch.Tensor, int]]):
    """Token arrays as tensors over one block of memory, and labels."""

    def __init__(self, values: torch.Tensor, offsets: list[int]) -> None:
        self.values, self.offsets = values, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.values[self.offsets[index] : self.offsets[index + 1]], index


def collate(samples: list[tuple[torch.Tensor, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    tokens, labels = zip(*samples)
    return pad_sequence(list(tokens), batch_first=True), torch.tensor(labels)


class Buckets:
    """A batch sampler by the rule of tf.data's bucket_by_sequence_length."""

    def __init__(self, lengths: np.ndarray[Any, Any], sizes: list[int]) -> None:
        self.bucket_of = np.searchsorted(BOUNDARIES, lengths, side="right").tolist()
        self.sizes = sizes

    def __iter__(self) -> Iterator[list[int]]:
        open_: list[list[int]] = [[] for _ in self.sizes]
        for index in torch.randperm(len(self.bucket_of)).tolist():
            bucket = self.bucket_of[index]
            open_[bucket].append(index)
            if len(open_[bucket]) == self.sizes[bucket]:
                yield open_[bucket]
                open_[bucket] = []
        yield from filter(None, open_)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    lengths = np.exp(rng.uniform(np.log(10), np.log(2000), args.samples)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    values = rng.integers(0, 50_000, int(offsets[-1]))
    sizes = [BATCH] * (len(BOUNDARIES) + 1)
    theirs = Tokens(torch.from_numpy(values), offsets.tolist())
    ours = wf.from_tensor_slices((wf.Ragged(values, offsets), np.arange(args.samples))).shuffle(seed=0)
    tasks: dict[str, dict[str, Callable[[], Iterable[Any]]]] = {
        "padded": {"wellfed": ours.padded_batch(BATCH).torch},
        "bucketed": {"wellfed": ours.bucket_by_sequence_length(0, BOUNDARIES, sizes).torch},
    }
    for workers in (0, 1, 2):
        tasks["padded"][f"torch {workers} workers"] = lambda workers=workers: DataLoader(
            theirs,
            BATCH,
            shuffle=True,
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        tasks["bucketed"][f"torch {workers} workers"] = lambda workers=workers: DataLoader(
            theirs,
            batch_sampler=Buckets(lengths, sizes),
            collate_fn=collate,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
    results: dict[str, Any] = {}
    for task, makers in tasks.items():
        print(task)
        loaders = {name: make() for name, make in makers.items()}
        results[task] = report(in_turns(loaders, args.rounds), args.samples)
        del loaders
    if args.out:
        with open(args.out, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
