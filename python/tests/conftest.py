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
def _epochs_from_the_first(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """New loaders begin with epoch 0, so that tests can compare them. Without it they go on: `counts_epochs`."""
    if request.node.get_closest_marker("counts_epochs") is None:
        monkeypatch.setattr("wellfed._passes.Passes.next", lambda passes, pipeline: 0)


@pytest.fixture
def own_photos(tmp_path: Path) -> Path:
    """Photographs that a test may damage."""
    return write_folder(tmp_path / "photos", count=12)
