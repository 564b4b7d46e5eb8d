"""Keras' `image_dataset_from_directory` and `flow_from_directory` against those of `wf.keras`.

    python benches/keras_directory.py FOLDER_OF_CLASSES [--rounds 5] [--batch-size 32] [--size 224] [--repeat 1]

The folder has one folder of images for each class, or images, of which one class is made. Both sides take turns in each
round; the median of rounds is printed, images a second, of batches that are iterated and not looked at. Keras' data set
needs TensorFlow; without it only the flows are compared. The affine of flows needs SciPy.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

import wellfed as wf

SUFFIXES = (".jpg", ".jpeg", ".png")


def linked(folder: Path, target: Path, repeat: int) -> int:
    """Links the folder's images into class folders; says how many there are."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    for number, path in enumerate(paths * repeat):
        label = path.parent.name if path.parent != folder else "all"
        (target / label).mkdir(exist_ok=True)
        (target / label / f"{number:06}{path.suffix}").symlink_to(path.resolve())
    return len(paths) * repeat


def data_set(
    function: Callable[..., Any], root: Path, size: int, batch_size: int, mapped: bool
) -> Callable[[], int]:
    data = function(root, image_size=(size, size), batch_size=batch_size, seed=0, verbose=False)
    if mapped:
        import tensorflow as tf

        data = data.map(lambda x, y: (x / 255.0, y), num_parallel_calls=tf.data.AUTOTUNE).prefetch(
            tf.data.AUTOTUNE
        )
    return lambda: sum(len(labels) for _, labels in data)


def route(root: Path, size: int, batch_size: int, flip: bool, cached: bool = False) -> Callable[[], int]:
    """The same pixels by a pipeline of wellfed's own, as `ds.keras()` gives it; with a cache of the first round."""
    layers = wf.keras.layers
    steps = [layers.Resizing(size, size), *([layers.RandomFlip("horizontal")] if flip else [])]
    stored = wf.image_folder(root).with_options(layout="NHWC", mode="TENSORFLOW")
    images = (stored.cache() if cached else stored).shuffle(seed=0)
    data = images.map(*steps, layers.Rescaling(1 / 255)).batch(batch_size).keras()
    return lambda: sum(len(labels) for _, labels in data)


def flow(kind: Any, root: Path, size: int, batch_size: int, arguments: dict[str, Any]) -> Callable[[], int]:
    flowing = kind(**arguments).flow_from_directory(
        root, (size, size), batch_size=batch_size, seed=0, class_mode="sparse", interpolation="bilinear"
    )

    def once() -> int:
        flowing.on_epoch_end()
        return sum(len(flowing[index][1]) for index in range(len(flowing)))

    return once


def compared(name: str, count: int, sides: dict[str, Callable[[], int]], rounds: int) -> None:
    """Runs both sides in turns, after a round that does not count, and prints medians."""
    rates: dict[str, list[float]] = {side: [] for side in sides}
    for number in range(rounds + 1):
        for side, once in sides.items():
            start = time.perf_counter()
            found = once()
            taken = time.perf_counter() - start
            assert found == count, (side, found, count)
            if number > 0:
                rates[side].append(count / taken)
    medians = {side: statistics.median(found) for side, found in rates.items()}
    told = ", ".join(f"{side} {rate:.0f}/s" for side, rate in medians.items())
    print(f"{name}: {told}: {medians['wf.keras'] / medians['Keras']:.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--repeat", type=int, default=1)
    arguments = parser.parse_args()
    size, batch_size, rounds = arguments.size, arguments.batch_size, arguments.rounds
    theirs = importlib.import_module("keras.src.legacy.preprocessing.image").ImageDataGenerator
    kinds = {"Keras": theirs, "wf.keras": wf.keras.ImageDataGenerator}
    functions = {
        "Keras": keras.utils.image_dataset_from_directory,
        "wf.keras": wf.keras.image_dataset_from_directory,
    }
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        count = linked(arguments.folder, root, arguments.repeat)
        backend = keras.backend.backend()
        print(
            f"{count} images, Keras {keras.__version__} on {backend}, wellfed {wf.__version__}, {os.cpu_count()} cores"
        )
        if importlib.util.find_spec("tensorflow") and backend == "tensorflow":
            for mapped in (False, True):
                sides = {
                    side: data_set(function, root, size, batch_size, mapped)
                    for side, function in functions.items()
                }
                name = "image_dataset_from_directory" + (", map with AUTOTUNE" if mapped else "")
                compared(name, count, sides, rounds)
                if mapped:
                    sides["wf.keras"] = route(root, size, batch_size, False)
                    compared(f"{name}, against ds.keras()", count, sides, rounds)
                    sides["wf.keras"] = route(root, size, batch_size, False, cached=True)
                    compared(f"{name}, against ds.cache().keras()", count, sides, rounds)
        flows: dict[str, dict[str, Any]] = {
            "rescale": {"rescale": 1 / 255},
            "rescale, flip": {"rescale": 1 / 255, "horizontal_flip": True},
        }
        if importlib.util.find_spec("scipy"):
            flows["rotation, shifts, zoom, flip"] = {
                "rescale": 1 / 255,
                "rotation_range": 20,
                "width_shift_range": 0.1,
                "height_shift_range": 0.1,
                "zoom_range": 0.1,
                "horizontal_flip": True,
            }
        for name, given in flows.items():
            sides = {side: flow(kind, root, size, batch_size, given) for side, kind in kinds.items()}
            compared(f"flow_from_directory, {name}", count, sides, rounds)
            if name == "rescale, flip" and importlib.util.find_spec("tensorflow") and backend == "tensorflow":
                sides["wf.keras"] = route(root, size, batch_size, True)
                compared(f"flow_from_directory, {name}, against ds.keras()", count, sides, rounds)
                sides["wf.keras"] = route(root, size, batch_size, True, cached=True)
                compared(f"flow_from_directory, {name}, against ds.cache().keras()", count, sides, rounds)


if __name__ == "__main__":
    main()
