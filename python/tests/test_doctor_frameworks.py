"""Trainers that own the loop, under the doctor's probe: Lightning, Hugging Face's Trainer, Accelerate, torchrun.

What is asked of each: steps of the loader that trains, told apart from the one that validates; and unchanged losses.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from doctor_probe import Run, run

pytest.importorskip("torch")


def needs(name: str) -> pytest.MarkDecorator:
    """Skips where a library is missing."""
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"NOT TESTED HERE: {name} is not installed"
    )


HEAD = """
    import logging, os, sys, warnings
    warnings.simplefilter("ignore")
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self, n):
            self.n = n

        def __len__(self):
            return self.n

        def __getitem__(self, i):
            x = torch.full((4,), i / self.n)
            return {"x": x, "labels": x.sum().reshape(1)}

    def loaders(**keywords):
        train = DataLoader(Rows(48), batch_size=8, shuffle=True, **keywords)
        valid = DataLoader(Rows(16), batch_size=8)
        return train, valid
"""


def same_without_probe(folder: Path, source: str, **keywords: Any) -> Run:
    """Runs with and without the probe; both must print the same."""
    probed = run(folder, HEAD + source, **keywords)
    assert probed.failures == ""
    assert probed.code == 0, probed.err
    plain = run(folder, HEAD + source, probe=False, **keywords)
    assert plain.out == probed.out != ""
    return probed


def by_code(done: Run, text: str, pid: int | None = None) -> dict[str, Any]:
    """The loader that was made by a statement with this text."""
    (found,) = [r for r in done.of("loader", pid) if r["place"] and text in r["place"]["code"]]
    return found


def check_epochs(done: Run, train: str, valid: str, workers: int) -> None:
    """Two epochs of 6 batches, each followed by one of 2."""
    training, validation = by_code(done, train), by_code(done, valid)
    assert done.steps(training["loader"], done.pid) == 12
    assert done.steps(validation["loader"], done.pid) == 4
    assert training["num_workers"] == workers
    assert (training["dataset"], training["batch_size"], training["length"]) == ("Rows", 8, 6)


@needs("lightning")
@pytest.mark.parametrize("workers", [0, 2])
def test_lightning(tmp_path: Path, workers: int) -> None:
    done = same_without_probe(
        tmp_path,
        f"""
    import lightning as L

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def loss(self, batch):
            return nn.functional.mse_loss(self.layer(batch["x"]), batch["labels"])

        def training_step(self, batch, i):
            loss = self.loss(batch)
            print(i, float(loss))
            return loss

        def validation_step(self, batch, i):
            print("valid", float(self.loss(batch)))

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    if __name__ == "__main__":
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        L.seed_everything(0)
        trainer = L.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        )
        trainer.fit(Model(), *loaders(num_workers={workers}))
        """,
    )
    check_epochs(done, "Rows(48)", "Rows(16)", workers)


@needs("transformers")
@needs("accelerate")
def test_hugging_face_trainer(tmp_path: Path) -> None:
    done = same_without_probe(
        tmp_path,
        """
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x, labels):
            out = self.layer(x)
            return {"loss": nn.functional.mse_loss(out, labels), "logits": out}

    class Print(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **keywords):
            print({k: v for k, v in (logs or {}).items() if "loss" in k or "norm" in k})

    torch.manual_seed(0)
    arguments = TrainingArguments(
        "out", num_train_epochs=2, per_device_train_batch_size=8, per_device_eval_batch_size=8, use_cpu=True,
        logging_steps=1, eval_strategy="epoch", save_strategy="no", report_to=[], disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments, train_dataset=Rows(48), eval_dataset=Rows(16), callbacks=[Print()])
    trainer.remove_callback(PrinterCallback)  # It prints how long things took.
    trainer.train()
        """,
    )
    # The loader for validation is made anew each time.
    used = sorted(
        (r["length"], done.steps(r["loader"])) for r in done.main("loader") if done.steps(r["loader"])
    )
    assert used == [(2, 2), (2, 2), (6, 12)]


@needs("accelerate")
def test_accelerate(tmp_path: Path) -> None:
    done = same_without_probe(
        tmp_path,
        """
    from accelerate import Accelerator

    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(4, 1)
    model, optimizer, train, valid = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1), *loaders())
    for epoch in range(2):
        for batch in train:
            loss = nn.functional.mse_loss(model(batch["x"]), batch["labels"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            print(float(loss))
        with torch.no_grad():
            print(sum(float(nn.functional.mse_loss(model(b["x"]), b["labels"])) for b in valid))
        """,
    )
    # Accelerate makes loaders of its own from those of the script: what is iterated is told apart by its length.
    used = [r for r in done.main("loader") if done.steps(r["loader"])]
    steps = {length: sum(done.steps(r["loader"]) for r in used if r["length"] == length) for length in (6, 2)}
    # It takes one batch ahead of what it hands out, and each batch is counted where it was made.
    assert steps[6] % 12 == 0 < steps[6]
    assert steps[2] % 4 == 0 < steps[2]


def test_two_ranks_of_torchrun(tmp_path: Path) -> None:
    source = """
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data.distributed import DistributedSampler

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    rows = Rows(48)
    sampler = DistributedSampler(rows, seed=0)
    train = DataLoader(rows, batch_size=8, sampler=sampler)
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in train:
            loss = nn.functional.mse_loss(model(batch["x"]), batch["labels"])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(float(loss))
    for rank in range(2):
        dist.barrier()
        if dist.get_rank() == rank:
            print(rank, losses, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    """
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    probed = run(tmp_path, HEAD + source, python=torchrun)
    assert probed.failures == ""
    assert probed.code == 0, probed.err
    plain = run(tmp_path, HEAD + source, probe=False, python=torchrun)
    assert sorted(plain.out.splitlines()) == sorted(probed.out.splitlines()) != []
    ranks = {
        record["rank"]: pid
        for pid, records in probed.processes.items()
        for record in records
        if record["k"] == "hello" and any(r["k"] == "steps" for r in records)
    }
    assert sorted(ranks) == [0, 1]
    for rank, pid in ranks.items():
        (hello,) = probed.of("hello", pid)
        assert (hello["world_size"], hello["local_world_size"], hello["rank"]) == (2, 2, rank)
        assert probed.steps(by_code(probed, "DataLoader(rows", pid)["loader"], pid) == 6


def test_nested_loaders_are_told_apart(tmp_path: Path) -> None:
    done = same_without_probe(
        tmp_path,
        """
    train, valid = loaders()
    total = 0.0
    for i, batch in enumerate(train):
        if i % 3 == 2:
            for other in valid:
                total += float(other["x"].sum())
    # Iterators side by side, and one that is left early.
    for a, b in zip(train, valid):
        total += float(b["x"].sum())
    print(total)
        """,
    )
    training, validation = by_code(done, "Rows(48)"), by_code(done, "Rows(16)")
    assert done.steps(validation["loader"]) == 2 * 2 + 2
    # `zip` asks the first one for a batch more than the second has.
    assert done.steps(training["loader"]) == 6 + 3
    # The inner loops lie within steps of the outer one.
    outer = next(r for r in done.of("steps") if r["loader"] == training["loader"])
    inner = next(r for r in done.of("steps") if r["loader"] == validation["loader"])
    assert outer["t1"][2] <= inner["t0"][0]
    assert inner["t1"][1] <= outer["t0"][3]
