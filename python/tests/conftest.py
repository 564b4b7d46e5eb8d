"""Fixtures that tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from pictures import write_folder

# Images here are so small that handing them to other threads takes most of the time.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("photos"))


@pytest.fixture(autouse=True)
def _no_pipeline_ran_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a program of its own: of a source that another test opened there is no warning."""
    monkeypatch.setattr("wellfed._passes._STARTED", set())


@pytest.fixture
def epochs_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every new loader begins with epoch 0: only for tests that compare several loaders of a pipeline."""
    monkeypatch.setattr("wellfed._passes.Passes.begun", lambda *_: None)


@pytest.fixture
def own_photos(tmp_path: Path) -> Path:
    """Photographs that a test may damage."""
    return write_folder(tmp_path / "photos", count=12)
