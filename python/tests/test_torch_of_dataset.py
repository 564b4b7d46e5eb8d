"""What `Dataset.torch()` returns: on a device by the same stage as `wellfed.torch`, and in the hands of trainers."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import wellfed as wf
from wellfed.torch import _device

N, SIZE = 22, 4


def dataset() -> wf.Dataset:
    rows = (np.arange(N * 3, dtype=np.float32).reshape(N, 3), np.arange(N))
    return wf.from_tensor_slices(rows).shuffle(seed=3).batch(SIZE)


class Stage:
    """Stands in for the copies to a CUDA device: the next batch is always staged before one is handed out."""

    ahead = True

    def __init__(self, device: Any = None) -> None:
        self.begun = 0

    def enter_thread(self) -> None:
        pass

    def begin(self, batch: Any) -> Any:
        self.begun += 1
        return batch

    def finish(self, staged: Any) -> Any:
        return staged


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> list[Stage]:
    """A machine with a CUDA device, as far as the loader can tell."""
    made: list[Stage] = []

    def copies(device: Any) -> Stage:
        made.append(Stage(device))
        return made[-1]

    monkeypatch.setattr(_device, "target", lambda device: torch.device(device))
    monkeypatch.setattr(_device, "Copies", copies)
    monkeypatch.setattr("wellfed._loader._pages_for", lambda device: None)
    return made


def labels(batches: Any) -> list[list[int]]:
    return [y.tolist() for _, y in batches]


@pytest.mark.usefixtures("epochs_not_counted")
def test_batches_go_to_the_device_ahead_by_one_stage(cuda: list[Stage]) -> None:
    plain = dataset().torch()
    loader = dataset().torch(device="cuda")
    assert not cuda, "nothing is asked of the device before it is iterated"
    for _ in range(2):
        assert labels(loader) == labels(plain)
    assert len(cuda) == 1
    batches = iter(loader)
    next(batches)
    wait(batches)
    next(batches)
    assert cuda[0].begun > 2 * 6 + 2 - 1
    assert batches._num_yielded == 2


def wait(batches: Any) -> None:
    deadline = time.monotonic() + 60
    while not batches._inner.ready():
        assert time.monotonic() < deadline


@pytest.mark.usefixtures("epochs_not_counted")
@pytest.mark.parametrize("taken", range(8))
def test_a_state_is_that_of_a_loader_without_a_device(taken: int, cuda: list[Stage]) -> None:
    """Whatever is staged already: batches that were not handed out do not count."""
    plain, loader = dataset().torch(), dataset().torch(device="cuda")
    expected, batches = iter(plain), iter(loader)
    for i in range(taken):
        one, other = next(expected, None), next(batches, None)
        assert (one is None) == (other is None) == (i >= 6)
        if 0 < i < 4:
            assert loader.state_dict() == plain.state_dict()
            wait(batches)  # what comes next has been made, so that the batch after it is staged
    state = loader.state_dict()
    assert state == plain.state_dict()
    loader.load_state_dict(state)
    plain.load_state_dict(state)
    assert labels(loader) == labels(plain)
    assert loader.state_dict() == plain.state_dict()


def test_ragged_columns_go_to_the_device_whole() -> None:
    ragged = wf.Ragged(np.arange(5), np.array([0, 2, 2, 5]))
    (batch,) = wf.from_tensor_slices(ragged).ragged_batch(3).torch(device="meta")
    assert type(batch) is wf.Ragged
    assert (batch.values.device.type, batch.offsets.device.type) == ("meta", "meta")
    assert (batch.values.shape, batch.offsets.shape) == ((5,), (4,))


@pytest.mark.usefixtures("epochs_not_counted")
def test_other_devices_and_those_that_are_not_there() -> None:
    assert {x.device.type for x, _ in dataset().torch(device="meta")} == {"meta"}
    assert {x.device.type for x, _ in dataset().torch(device="cpu")} == {"cpu"}
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="device='cuda' cannot be used"):
            dataset().torch(device="cuda")


def test_ranks_of_a_machine_share_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed import _cores

    monkeypatch.setattr(_cores, "usable_cores", lambda _: 2.0)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    loader = dataset().torch()
    list(loader)
    assert loader.stats()["num_workers"] == 1
    assert loader.dataset.to_json() == dataset().to_json()


# Trainers. They are asked whether they take it, and whether all samples arrive once.


@pytest.mark.filterwarnings("ignore::Warning")  # its own, on current torch
def test_lightning_takes_it() -> None:
    lightning = pytest.importorskip("lightning", reason="NOT TESTED HERE: needs lightning")
    seen: list[int] = []

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            x, y = batch
            seen.extend(y.tolist())
            return self.layer(x).mean()

        def validation_step(self, batch: Any, _: int) -> None:
            assert batch[0].shape[1] == 3

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 1e-6)

    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
    )
    trainer.fit(Module(), dataset().torch(), dataset().torch())
    assert sorted(seen) == sorted([*range(N)] * 2)
    assert seen[:N] != seen[N:], "another order in the second epoch"


@pytest.mark.filterwarnings("ignore::Warning")
def test_accelerate_takes_it() -> None:
    accelerate = pytest.importorskip("accelerate", reason="NOT TESTED HERE: needs accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model = nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 1e-6), dataset().torch(device=accelerator.device)
    )
    seen = []
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).mean())
            optimizer.step()
            optimizer.zero_grad()
        seen += y.tolist()
    assert sorted(seen) == [*range(N)]


@pytest.mark.filterwarnings("ignore::Warning")
def test_the_trainer_of_transformers_takes_it(tmp_path: Any) -> None:
    transformers = pytest.importorskip("transformers", reason="NOT TESTED HERE: needs transformers")
    pytest.importorskip("accelerate", reason="NOT TESTED HERE: needs accelerate")
    seen: list[int] = []

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Any, index: Any) -> Any:
            seen.extend(index.tolist())
            return {"loss": self.layer(x).mean()}

    rows = {"x": np.ones((N, 3), np.float32), "index": np.arange(N)}
    loader = wf.from_tensor_slices(rows).shuffle(seed=1).batch(SIZE).torch()

    class Trainer(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return self.accelerator.prepare(loader)

    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=2,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments)
    result = trainer.train()
    assert result.global_step == 2 * len(loader)
    assert sorted(seen) == sorted([*range(N)] * 2)
    assert seen[:N] != seen[N:]


def test_what_a_loader_over_a_data_set_advises_gives_the_same_batches() -> None:
    ds = wf.from_tensor_slices((np.arange(10.0), np.arange(10)))
    for arguments in ({}, {"shuffle": True}, {"drop_last": True, "shuffle": True}):
        loader = wf.feed(DataLoader(ds, batch_size=4, **arguments))  # type: ignore[arg-type]
        told = next(line for line in loader.explain().splitlines() if "to make more of it native" in line)
        pipeline = eval("ds" + told[told.index("loader: ") + len("loader: ") :])
        sizes = [len(y) for _, y in pipeline]
        assert sizes == [len(y) for _, y in loader]
        values = torch.cat([y for _, y in pipeline])
        assert len(set(values.tolist())) == len(values)
        assert ("shuffle" in arguments) == (values.tolist() != list(range(len(values))))
    batches = wf.feed(DataLoader(ds.batch(4), batch_size=2))  # type: ignore[arg-type]
    assert "its own torch()" in batches.explain()
