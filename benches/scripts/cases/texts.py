"""Lists of tokens, padded by the collate function."""

from pathlib import Path
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset


def padded(batch: Any) -> Any:
    tokens = pad_sequence([torch.tensor(tokens) for tokens, _ in batch], batch_first=True)
    return tokens, torch.tensor([label for _, label in batch])


class Samples(Dataset[Any]):
    def __init__(self, count: Any) -> None:
        make = torch.Generator().manual_seed(0)
        lengths = torch.randint(5, 200, (count * 20,), generator=make).tolist()
        self.tokens = [torch.randint(0, 30000, (n,), generator=make).tolist() for n in lengths]

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, i: int) -> Any:
        return self.tokens[i], i % 2


def loader(folder: Path, count: int, workers: int) -> Any:
    return DataLoader(Samples(count), batch_size=64, num_workers=workers, shuffle=True, collate_fn=padded)
