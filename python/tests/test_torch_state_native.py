"""State of loaders that the engine runs: rows of tensors and images, exact and small, and the same as in Python."""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torchvision")

from torch.utils import data as stock  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

from torch_same import same  # noqa: E402
from torchvision_sets import cifar10  # noqa: E402
from wellfed.torch import DataLoader  # noqa: E402

N = 43


def table():
    return stock.TensorDataset(torch.arange(N * 3.0).view(N, 3), torch.arange(N))


def generator():
    return torch.Generator().manual_seed(5)


class Odd:
    """A batch sampler of the user's, with batches of different sizes."""

    def __len__(self):
        return 8

    def __iter__(self):
        for i in range(8):
            yield list(range(i, i + 1 + i % 3))


LOADERS = {
    "in order": lambda **k: DataLoader(table(), 4, **k),
    "shuffled": lambda **k: DataLoader(table(), 4, shuffle=True, **k),
    "drop_last": lambda **k: DataLoader(table(), 4, shuffle=True, drop_last=True, **k),
    "unbatched": lambda **k: DataLoader(table(), None, shuffle=True, **k),
    "generator": lambda **k: DataLoader(table(), 4, shuffle=True, generator=generator(), **k),
    "own generator": lambda **k: DataLoader(
        table(), 4, sampler=stock.RandomSampler(range(N), True, 50, generator()), **k
    ),
    "weights": lambda **k: DataLoader(table(), 4, sampler=stock.WeightedRandomSampler([1.0] * N, 30), **k),
    "subset": lambda **k: DataLoader(table(), 4, sampler=stock.SubsetRandomSampler(range(5, 40)), **k),
    "a rank": lambda **k: DataLoader(table(), 4, sampler=stock.DistributedSampler(range(N), 2, 1), **k),
    "batch sampler": lambda **k: DataLoader(table(), batch_sampler=Odd(), **k),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", LOADERS)
def test_rows_go_on_at_every_position(kind, workers):
    torch.manual_seed(1)
    loader = LOADERS[kind](num_workers=workers)
    assert "native" in loader.explain()
    whole, states = [], [loader.state_dict()]
    for batch in loader:
        whole.append(batch)
        states.append(json.loads(json.dumps(loader.state_dict())))
    end = loader.state_dict()
    following = list(loader)
    for at, state in enumerate(states):
        torch.manual_seed(50 + at)
        resumed = LOADERS[kind](num_workers=workers)
        resumed.load_state_dict(state)
        assert same(list(resumed), whole[at:]), f"after {at} batches"
    assert len(json.dumps(end)) < 25_000
    torch.manual_seed(49)
    resumed = LOADERS[kind]()
    resumed.load_state_dict(end)
    assert same(list(resumed), following)


@pytest.mark.parametrize("kind", LOADERS)
@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True)])
def test_between_the_engine_and_python(kind, before, after):
    torch.manual_seed(2)
    loader = LOADERS[kind](native=before)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = list(batches)
    torch.manual_seed(51)
    resumed = LOADERS[kind](native=after)
    resumed.load_state_dict(state)
    assert same(list(resumed), rest)


@pytest.mark.parametrize(
    ("workers", "arguments"),
    [(0, {}), (2, {}), (0, {"shuffle": True}), (2, {"shuffle": True, "persistent_workers": True})],
)
def test_augmented_images_go_on(tmp_path, workers, arguments):
    random = v2.Compose(
        [v2.RandomCrop(24, 2), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    )
    pictures = cifar10(tmp_path, transform=random)

    def make():
        return DataLoader(pictures, 2, num_workers=workers, **arguments)

    torch.manual_seed(3)
    loader = make()
    assert "DataLoader, native" in loader.explain()
    whole, states = [], []
    for batch in loader:
        whole.append(batch)
        states.append(loader.state_dict())
    assert len(whole) > 3
    for at, state in enumerate(states):
        torch.manual_seed(50 + at)
        resumed = make()
        resumed.load_state_dict(state)
        assert same(list(resumed), whole[at + 1 :]), f"after batch {at}"
    if arguments:
        end, following = loader.state_dict(), list(loader)
        torch.manual_seed(49)
        resumed = make()
        resumed.load_state_dict(end)
        assert same(list(resumed), following)


def test_persistent_loaders_go_on():
    torch.manual_seed(4)
    make = lambda: DataLoader(table(), 4, shuffle=True, num_workers=2, persistent_workers=True)  # noqa: E731
    loader = make()
    list(loader)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest, following = list(batches), list(loader)
    torch.manual_seed(52)
    resumed = make()
    resumed.load_state_dict(state)
    assert same(list(resumed), rest)
    assert same(list(resumed), following)
