"""The scripts of examples/torch run, and the frameworks that they use keep our loader where it matters."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, Dataset, RandomSampler, SequentialSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler

import wellfed as wf
from pictures import write_folder
from wellfed.torch import DataLoader

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted((EXAMPLES / "torch").glob("*.py"))

# What each script prints when it has done what it shows; None: it is no script.
SAYS = {
    "bfloat16_batches.py": r"epoch 2: loss [\d.]+, images torch.bfloat16, labels torch.int64",
    "distributed.py": r"rank 1: weights equal on all ranks",
    "feed.py": r"native: the engine makes whole batches\n(.*\n)*epoch 2: loss [\d.]+",
    "gradient_accumulation.py": r"epoch 2: a step after 4 batches\nepoch 2: a step after 2 batches",
    "mixed_precision.py": r"epoch 2: loss [\d.]+, scores in torch.bfloat16, weights in torch.float32",
    "photos.py": None,
    "resume.py": r"3 batches, then 5: the same as in one go",
    "with_accelerate.py": r"epoch 2: loss [\d.]+, 8 batches for each process\n.*native: the engine makes whole",
    "with_lightning.py": r"8 steps, loader: wellfed.torch._loader",
    "with_transformers.py": r"native: the engine makes whole batches\n(.*\n)*8 steps",
}
NEEDS = {
    "with_accelerate.py": "accelerate",
    "with_lightning.py": "lightning",
    "with_transformers.py": "transformers",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("photos"), count=60)


def needs(package: str | None) -> None:
    if package is not None and importlib.util.find_spec(package) is None:
        pytest.skip(f"NOT TESTED HERE: needs {package}")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_run(script: Path, folder: Path, tmp_path: Path) -> None:
    expected = SAYS[script.name]
    if expected is None:
        return
    needs(NEEDS.get(script.name))
    command = [sys.executable]
    if script.name == "distributed.py":
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(script), str(folder)],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(expected, done.stdout), done.stdout + done.stderr


def test_scripts_are_small_and_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for script in SCRIPTS:
        assert script.name in listed
        assert len(script.read_text().splitlines()) <= 60, script.name


# What frameworks do to a loader


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, i: int) -> int:
        return i


def flat(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch]


@pytest.fixture
def lightning_data() -> Any:
    needs("lightning")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what it and its dependencies deprecate
        return importlib.import_module("lightning.pytorch.utilities.data")


def test_lightning_makes_the_loader_again_with_all_its_arguments(lightning_data: Any) -> None:
    loader = DataLoader(
        Numbers(),
        batch_size=3,
        drop_last=True,
        device="meta",
        float_dtype="bfloat16",
        native=False,
        snapshot_every_n_steps=5,
        stall_warning=7.0,
    )
    sampler = DistributedSampler(Numbers(), 2, 1, shuffle=False)
    again = lightning_data._update_dataloader(loader, sampler)
    assert type(again) is DataLoader
    assert again.sampler is sampler
    assert (again.batch_size, again.drop_last, again.native) == (3, True, False)
    assert (again.device, again.float_dtype) == (torch.device("meta"), torch.bfloat16)
    assert (again.snapshot_every_n_steps, again.stall_warning) == (5, 7.0)


def test_lightning_keeps_batch_samplers_and_subclasses(lightning_data: Any) -> None:
    class Own(DataLoader[int]):
        def __init__(self, dataset: Any, title: str = "", **arguments: Any) -> None:
            super().__init__(dataset, **arguments)
            self.title = title

    batches = BatchSampler(SequentialSampler(Numbers()), 4, False)
    hooked = importlib.import_module("lightning.fabric.utilities.data")
    with hooked._replace_dunder_methods(torch.utils.data.DataLoader, "dataset"):
        loader = Own(Numbers(), title="mine", batch_sampler=batches)
    again = lightning_data._update_dataloader(loader, DistributedSampler(Numbers(), 2, 0, shuffle=False))
    assert type(again) is Own
    assert again.title == "mine"
    assert flat(again) == [0, 2, 4, 6, 8]


@pytest.fixture
def accelerator() -> Any:
    needs("accelerate")
    from accelerate import Accelerator

    return Accelerator(cpu=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("shuffle", [False, True])
def test_feed_goes_underneath_what_accelerate_prepared(accelerator: Any, shuffle: bool) -> None:
    def prepared() -> Any:
        torch.manual_seed(0)
        rows = TensorDataset(torch.arange(10))
        return accelerator.prepare(torch.utils.data.DataLoader(rows, batch_size=3, shuffle=shuffle))

    def epochs(loader: Any) -> list[list[int]]:
        torch.manual_seed(1)
        return [flat(x for (x,) in loader) for _ in range(2)]

    expected = epochs(prepared())
    fed = wf.feed(loader := prepared())
    assert fed is loader, "Accelerate goes on knowing it"
    assert type(fed.base_dataloader) is DataLoader
    assert epochs(fed) == expected
    assert sorted(expected[0]) == list(range(10))
    assert len(fed) == 4
    assert "native" in fed.explain()
    assert wf.feed(fed) is fed


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_accelerate_tells_the_end_of_a_fed_loader(accelerator: Any) -> None:
    fed = wf.feed(accelerator.prepare(torch.utils.data.DataLoader(Numbers(), batch_size=4)))
    assert [fed.end_of_dataloader for _ in fed] == [False, False, True]


def test_samplers_of_others_keep_their_order() -> None:
    class Backwards(RandomSampler):
        def __iter__(self) -> Any:
            return iter(range(len(self.data_source) - 1, -1, -1))

    assert flat(DataLoader(Numbers(), batch_size=3, sampler=Backwards(Numbers()))) == list(range(9, -1, -1))
