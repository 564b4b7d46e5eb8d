"""8-bit tensors are resampled as torch does it on this machine, or by torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
import torch.utils.data as stock
from torchvision.io import ImageReadMode, decode_image
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional as F

import wellfed as wf
from torch_same import same
from wellfed import transforms as T
from wellfed.torch._lower import resampling, transforms

MODES = ("bilinear", "bicubic")


@pytest.mark.skipif(bool(resampling.different_tensors()), reason=resampling.different_tensors() or "equal")
def test_pixels_are_those_of_torch() -> None:
    draw = np.random.default_rng(0)
    for _ in range(60):
        height, width, channels = draw.integers(1, 300), draw.integers(1, 300), draw.choice([1, 3, 4])
        to = (int(draw.integers(1, 200)), int(draw.integers(1, 200)))
        image = draw.integers(0, 256, (height, width, channels), np.uint8)
        if draw.random() < 0.3:
            image = (image > 127).astype(np.uint8) * 255
        for mode in MODES:
            theirs = F.resize(torch.from_numpy(image).permute(2, 0, 1), list(to), F.InterpolationMode(mode))
            ours = np.asarray(T.Resize(to, f"torch-{mode}")(image)).reshape(*to, channels)
            assert np.array_equal(ours, theirs.permute(1, 2, 0).numpy()), (mode, image.shape, to)


def test_tensors_are_resized_by_torchvision_itself() -> None:
    image = torch.randint(0, 256, (3, 40, 50), dtype=torch.uint8)
    for mode in MODES:
        theirs = F.resize(image, [20, 30], F.InterpolationMode(mode))
        assert torch.equal(T.Resize((20, 30), f"torch-{mode}")(image), theirs)
    with pytest.raises(ValueError, match="interpolation is 'torch-bilinear'"):
        T.RandomRotation(10, "torch-bilinear")


class Decoded(stock.Dataset[Any]):
    """As torchvision's documentation reads files."""

    def __init__(self, paths: list[str], transform: Any) -> None:
        self.paths, self.transform = paths, transform

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        return self.transform(decode_image(self.paths[index], mode=ImageReadMode.RGB)), index


@pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities")
@pytest.mark.parametrize("known", [True, False])
def test_files_decoded_by_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    if not known:
        monkeypatch.setattr(transforms, "different_tensors", lambda: "torch is another one")
    draw, paths = np.random.default_rng(1), []
    for number in range(6):
        pixels = draw.integers(0, 256, (3 + number, 4, 3), np.uint8)
        paths.append(str(tmp_path / f"{number}.jpg"))
        PIL.Image.fromarray(pixels).resize((70 + 9 * number, 60), PIL.Image.Resampling.BICUBIC).save(
            paths[-1]
        )
    chain = v2.Compose([v2.Resize(40), v2.CenterCrop(32), v2.ToDtype(torch.float32, scale=True)])
    theirs: Any = stock.DataLoader(Decoded(paths, chain), batch_size=4)
    ours = wf.feed(theirs)
    assert ("the engine makes whole batches" in ours.explain()) == (
        known and not resampling.different_tensors()
    )
    assert same(list(theirs), list(ours))
    if not known:
        assert "torch is another one" in ours.explain()
