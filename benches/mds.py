"""Shards of MosaicML Streaming: wellfed beside the library itself, in turns.

    python benches/mds.py --photos DIR [--images 2000] [--rounds 5] [--out FILE.json]

Photographs with a label in shards of 64 MB, cropped at random, resized to 224x224, in shuffled batches of 64: the
library's `StreamingDataset` on local shards (a subclass with torchvision's transforms, as its guide has it) under
torch's DataLoader with 0, 1 and 2 workers. Needs `mosaicml-streaming`; skips without it. Each round runs all of them
once, in turn; medians are over rounds.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

import wellfed as wf
from turns import in_turns, report
from wellfed import transforms as T

try:
    from streaming import MDSWriter, StreamingDataset
except ImportError:
    print("skipped: mosaicml-streaming is not installed here")
    sys.exit(0)

from torch.utils.data import DataLoader
from torchvision.transforms import v2

BATCH = 64


class Photos(StreamingDataset):
    """Samples of the shards, transformed."""

    def __init__(self, local: str) -> None:
        super().__init__(local=local, shuffle=True, batch_size=BATCH)
        self.transform = v2.Compose([v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()])

    def __getitem__(self, at: Any) -> Any:
        sample = super().__getitem__(at)
        return self.transform(sample["image"].convert("RGB")), sample["label"]


def write(folder: Path, photos: Path, count: int) -> None:
    """Shards of `count` photographs, each as it lies in its file."""
    files = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    with MDSWriter(out=str(folder), columns={"image": "jpeg", "label": "int"}, size_limit=1 << 26) as out:
        for i in range(count):
            out.write({"image": Image.open(files[i % len(files)]), "label": i % 10})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), options.photos, options.images)
        transforms = (T.RandomResizedCrop(224), T.RandomHorizontalFlip())
        loaders: dict[str, Any] = {
            "wellfed": wf.mds(name).shuffle(seed=0).map(*transforms).batch(BATCH).numpy()
        }
        for workers in (0, 1, 2):
            loaders[f"streaming, {workers} workers"] = DataLoader(
                Photos(name), batch_size=BATCH, num_workers=workers, persistent_workers=workers > 0
            )
        times = in_turns(loaders, options.rounds)
        results = report(times, options.images, "streaming")
    if options.out is not None:
        options.out.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
