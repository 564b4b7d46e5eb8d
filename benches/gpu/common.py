"""What the parts of the device benchmark share: arguments, results in one file, photographs, rates, loaders.

Invariant: a part that fails or runs out of time loses only the figures that it had not measured yet. Each figure is
written into `results.json` as soon as it is known, and a measurement that raises is recorded as `failed`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benches"))

SIZE = 224
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
ENDLESS = 10**7
"""Samples of an epoch that does not end while it is measured."""
BUDGET = 6 << 30
"""Bytes for a loader of wellfed. Machines whose memory grows as it is used would give a smaller share at the start."""


def arguments(
    doc: str | None,
    seconds: float,
    limit: float,
    images: int = 10_000,
    batch: int = 256,
    **more: dict[str, Any],
) -> argparse.Namespace:
    """The command line of a part; `more` are options of its own, by name."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of results.json")
    parser.add_argument("--seconds", type=float, default=seconds, help="of each measurement")
    parser.add_argument(
        "--limit", type=float, default=limit, help="no measurement begins after so many seconds"
    )
    parser.add_argument("--device", default="cuda", help="cpu: to see that the script works")
    parser.add_argument("--photos", type=Path, help="folder of JPEG photographs, in any depth")
    parser.add_argument("--images", type=int, default=images, help="files that they are copied to")
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--small", action="store_true", help="small sizes, to see that the script works")
    for name, option in more.items():
        parser.add_argument(f"--{name}", **option)
    return parser.parse_args()


class Results:
    """The figures of one part, in `results.json` among those of others. Parts run one after another."""

    def __init__(self, part: str, args: argparse.Namespace) -> None:
        self.figures: dict[str, Any] = {}
        self._part, self._file = part, args.out / "results.json"
        self._begin, self._limit = time.monotonic(), args.limit
        args.out.mkdir(parents=True, exist_ok=True)
        print(f"== {part}", flush=True)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        seconds = time.monotonic() - self._begin
        self.put("wall_seconds", round(seconds, 1))
        print(f"-- {self._part}: {seconds:.1f} s", flush=True)

    def left(self) -> float:
        """Seconds that this part has left."""
        return self._begin + self._limit - time.monotonic()

    def put(self, name: str, figure: Any) -> None:
        """Keeps a figure, and writes the file."""
        self.figures[name] = figure
        all_ = json.loads(self._file.read_text()) if self._file.exists() else {}
        all_[self._part] = self.figures
        half = self._file.with_suffix(".half")
        half.write_text(json.dumps(all_, indent=1, default=str) + "\n")
        half.replace(self._file)

    def attempt(self, name: str, work: Callable[[], Any], quiet: bool = False) -> Any:
        """What `work` gives, kept and printed; None where it failed or there was no time left."""
        if self.left() <= 0:
            self.put(name, {"left_out": f"the part's {self._limit:g} s were over"})
            print(f"{name:44} left out: no time", flush=True)
            return None
        try:
            figure = work()
        except Exception as error:
            where = traceback.format_exc(limit=-4)
            self.put(name, {"failed": f"{type(error).__name__}: {error}"[:600], "where": where[-1500:]})
            print(f"{name:44} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            return None
        self.put(name, figure)
        if not quiet:
            print(f"{name:44} {shown(figure)}", flush=True)
        return figure


def shown(figure: Any) -> str:
    """A figure on one line; lists are left out."""
    if isinstance(figure, Mapping):
        return "  ".join(f"{name} {shown(one)}" for name, one in figure.items() if not isinstance(one, list))
    if isinstance(figure, float):
        return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:.4g}"
    return str(figure)


def photographs(args: argparse.Namespace) -> Path:
    """A tree of 10 class folders with `--images` files, copied from the photographs there are."""
    images = 256 if args.small else args.images
    found = jpegs(args.photos)
    tree = Path(tempfile.gettempdir()) / f"wellfed-gpu-photos-{images}-{len(found)}"
    if tree.is_dir():
        return tree
    half = Path(tempfile.mkdtemp(prefix="wellfed-gpu-photos-"))
    for k in range(images):
        folder = half / f"class_{k % len(found) % 10:02d}"
        folder.mkdir(exist_ok=True)
        # Copies, not links: the page cache holds as much as that of a data set of this size.
        shutil.copyfile(found[k % len(found)], folder / f"photo_{k:05d}.jpg")
    half.rename(tree)
    return tree


def jpegs(folder: Path | None) -> list[Path]:
    """The photographs of a folder, those of other benchmarks, or generated ones."""
    if folder is not None:
        found = sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))
        if not found:
            raise FileNotFoundError(f"there are no .jpg or .jpeg files under {folder}")
        return found
    import photos

    real = photos.real_photos()
    if real:
        return real
    home = Path(tempfile.gettempdir()) / "wellfed-gpu-generated"
    made, _, _ = photos.prepare(home, 64, Path(sys.executable))
    print("note: no photographs were given; generated ones are used", flush=True)
    return sorted(made.rglob("*.jpg"))


def rate(batches: Iterable[Any], seconds: float, warm: int, count: Callable[[Any], int] = len) -> float:
    """Samples a second of endless batches, of which the first `warm` do not count."""
    source = iter(batches)
    for _ in range(warm):
        next(source)
    samples, begin = 0, time.perf_counter()
    while (took := time.perf_counter() - begin) < seconds:
        samples += count(next(source))
    return samples / took


ONLY: dict[str, Any] = {
    "default": "",
    "help": "only cases whose names have one of these texts, separated by commas",
}
"""An option of parts that have many cases."""


def chosen(cases: Mapping[str, Callable[[], float]], only: str) -> dict[str, Callable[[], float]]:
    """The cases that `--only` names, or all."""
    return {name: one for name, one in cases.items() if any(text in name for text in only.split(","))}


def in_turns(
    results: Results, cases: Mapping[str, Callable[[], float]], rounds: int, unit: str
) -> dict[str, float]:
    """Runs each case once a round, every second round backwards; keeps and gives the medians."""
    seen: dict[str, list[float]] = {name: [] for name in cases}
    for number in range(rounds):
        order = list(cases.items())
        for name, work in order if number % 2 == 0 else reversed(order):
            one = results.attempt(f"{name}, round {number + 1}", work)
            if one is not None:
                seen[name].append(one)
    medians = {name: statistics.median(all_) for name, all_ in seen.items() if all_}
    results.put(f"median {unit}", medians)
    for name, median in medians.items():
        print(f"{name:44} {median:10,.0f} {unit} (median)", flush=True)
    return medians


def wellfed_loader(
    kind: str, root: Path, batch: int, threads: int, device: str | None, **options: Any
) -> Any:
    """Endless batches (images, labels) of training photographs by wellfed, delivered on `device`.

    This is the place where another way of making the same batches is added: `kind` says which one.

    Args:
        kind: "cpu": decoded, augmented and normalized to float32 by `threads` threads, then copied.
            "cpu uint8": the same without the normalization. "resize": decoded by the threads, the rest on the device.
            "decode": Huffman codes read by the threads, the rest on the device. "packed resize", "packed decode": the
            same from packed coefficients in memory, of which there are some once an epoch is over. "indexed decode":
            the device reads Huffman codes as well, once an epoch is over; "indexed copy" is the CPU with row indexes.
            "nvjpeg": NVIDIA's decoder.
        options: As of `Dataset.with_options`.
    """
    import wellfed as wf
    from wellfed import transforms as T

    # Each measurement begins with the same order, as is wanted here.
    warnings.filterwarnings("ignore", "a pipeline whose source was opened again")
    dataset = wf.image_folder(str(root))
    if kind.startswith("packed"):
        dataset = dataset.cache(max_bytes=BUDGET)
    dataset = dataset.shuffle(seed=0).repeat(1 + ENDLESS // 10_000)
    steps: tuple[Any, ...] = (T.RandomResizedCrop(SIZE), T.RandomHorizontalFlip())
    where: Any = "copy"
    match kind:
        case (
            "resize"
            | "decode"
            | "nvjpeg"
            | "indexed decode"
            | "indexed copy"
            | "packed copy"
            | "packed resize"
            | "packed decode"
            | "indexed auto"
            | "packed auto"
        ):
            where = kind.split()[-1]
            steps += (T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD))
        case "cpu":
            steps += (T.ToDtype("float32", scale=True), T.Normalize(MEAN, STD))
        case "cpu uint8":
            pass
        case _:
            raise ValueError(f"there is no loader {kind!r}")
    options = {
        "memory_budget": BUDGET * (2 if kind.startswith("packed") else 1),
        "row_index": "off",
        **options,
    }
    if kind.startswith("indexed"):
        options["row_index"] = "memory"
    dataset = dataset.map(*steps).batch(batch, drop_last=True)
    return dataset.torch(device, on_device=where, num_workers=threads, **options)


def left_loader(dataset: Any, device: str, on_device: str, **options: Any) -> Any:
    """`dataset.torch(device, on_device=on_device)`; of a device that is the CPU, the host runs the device's kernels.

    Args:
        options: As of `Dataset.with_options`.
    """
    if device.startswith("cuda") or on_device == "copy":
        return dataset.torch(device, on_device=on_device, **options)
    from wellfed._loader import Loader, torch_converter
    from wellfed._options import left_to
    from wellfed.torch._left import LeftImages

    left = left_to(dataset.with_options(**options), "cuda", on_device)
    loader = Loader(left, torch_converter(), "torch", None)
    build = loader._build
    loader._build = lambda columns: tuple(
        one.to("cpu") if isinstance(one, LeftImages) else one for one in build(columns)
    )
    return loader


class Again:
    """A loader of the engine that gives its first batch again and again."""

    def __init__(self, native: Any, pages: Any = None) -> None:
        self._native = native
        if pages is not None:
            pages.begin()
        native.start_epoch()
        self._columns = native.next()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._native, name)

    def start_epoch(self) -> None:
        pass

    def next(self) -> Any:
        return self._columns

    def ready(self) -> bool:
        return True


def torch_loader(root: Path, batch: int, workers: int, pin: bool = False) -> Any:
    """The same by torch's DataLoader, Pillow and torchvision's transforms v2, as most people have it."""
    import torch
    from torch.utils.data import DataLoader, RandomSampler
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    steps = [v2.RandomResizedCrop(SIZE), v2.RandomHorizontalFlip(), v2.PILToTensor()]
    steps += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    data = ImageFolder(str(root), v2.Compose(steps))
    order = RandomSampler(data, replacement=True, num_samples=ENDLESS)
    return DataLoader(data, batch, sampler=order, num_workers=workers, pin_memory=pin, drop_last=True)


def moved(batches: Iterable[Any], device: str) -> Iterator[Any]:
    """Batches copied to the device as training loops do it."""
    for images, labels in batches:
        yield images.to(device, non_blocking=True), labels.to(device, non_blocking=True)


def close(loader: Any) -> None:
    """Ends the threads of a loader of wellfed."""
    if hasattr(loader, "close"):
        loader.close()


def images_of(batch: Any) -> int:
    """Samples of a batch (images, labels)."""
    return len(batch[1])


def synchronize(device: str) -> None:
    """Waits for the device, where it is one."""
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def halves(most: int) -> list[int]:
    """1, 2, 4 and so on, up to `most`, which is always among them."""
    powers = itertools.takewhile(lambda n: n < most, (1 << k for k in itertools.count()))
    return [*powers, most]
