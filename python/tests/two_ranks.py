"""What each of two processes does in test_torch_distributed.py: `torchrun two_ranks.py PHOTOS OUT`.

Writes what it was given to `OUT/<rank>.json`; the test compares the two.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torchvision import transforms
from torchvision.datasets import ImageFolder

import wellfed as wf
from wellfed.torch import DataLoader

EPOCHS = 3


class Numbers(Dataset[int]):
    """Stays in Python."""

    def __len__(self) -> int:
        return 21

    def __getitem__(self, i: int) -> int:
        return i


def numbered(photos: str) -> ImageFolder:
    crop = transforms.Compose([transforms.Resize(40), transforms.CenterCrop(32), transforms.ToTensor()])
    data = ImageFolder(photos, crop)
    # Exactly the stock class, so that it is recognised; its targets say which photograph a row is.
    data.samples = data.imgs = [(path, i) for i, (path, _) in enumerate(data.samples)]
    data.targets = list(range(len(data.samples)))
    return data


def flat(batches: Any) -> list[int]:
    """The numbers that a loader gives, whose batches are numbers, or end in numbers."""
    found: list[int] = []
    for batch in batches:
        found += (batch if isinstance(batch, torch.Tensor) else batch[-1]).tolist()
    return found


def epochs(data: Any, **arguments: Any) -> list[list[int]]:
    sampler = DistributedSampler(data, seed=5)
    loader = DataLoader(data, batch_size=4, sampler=sampler, **arguments)
    stock = torch.utils.data.DataLoader(data, batch_size=4, sampler=sampler)
    given = []
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        given.append(flat(loader))
        assert given[-1] == flat(stock), "the order is torch's"
    return given


def accumulated() -> list[float]:
    """Weights after steps of groups of 2 micro-batches, gradients exchanged once per group."""
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(20, 3), torch.randn(20, 1))
    model = DistributedDataParallel(nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    exchanged = []
    model.register_comm_hook(None, lambda _, bucket: exchanged.append(1) or mean(bucket))
    sampler = DistributedSampler(data, shuffle=False)
    micros = DataLoader(data, batch_size=2, sampler=sampler).accumulate(2)
    for micro in micros:
        with micro.no_sync(model):
            x, y = micro.batch
            (nn.functional.mse_loss(model(x), y) / micro.count).backward()
        if micro.last:
            optimizer.step()
            optimizer.zero_grad()
    assert len(exchanged) == micros.steps == 3
    return [float(w) for w in model.module.weight.detach().flatten()]


def mean(bucket: Any) -> Any:
    work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True).get_future()
    return work.then(lambda done: done.value()[0])


def main(photos: str, out: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = numbered(photos)
    same = torch.Generator().manual_seed(9)
    native = wf.from_tensor_slices(list(range(21))).shuffle(seed=2).shard(rank, world_size).batch(4).numpy()
    report = {
        "env": [rank, world_size, int(os.environ["LOCAL_WORLD_SIZE"])],
        "inline": epochs(Numbers()),
        "workers": epochs(Numbers(), num_workers=1, multiprocessing_context="fork"),
        "persistent": epochs(
            Numbers(), num_workers=1, multiprocessing_context="fork", persistent_workers=True
        ),
        "images": epochs(data, num_workers=1, multiprocessing_context="fork"),
        "images in Python": epochs(data, native=False),
        "whole": flat(DataLoader(Numbers(), batch_size=4, sampler=RandomSampler(Numbers(), generator=same))),
        "native": [[int(x) for batch in native for x in batch] for _ in range(EPOCHS)],
        "weights": accumulated(),
    }
    Path(out, f"{rank}.json").write_text(json.dumps(report))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
