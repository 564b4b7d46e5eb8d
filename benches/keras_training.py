"""Trains one small model through Keras' own input and through wellfed's: losses and accuracies.

    KERAS_BACKEND=tensorflow python benches/keras_training.py FOLDER [--seeds 8] [--epochs 8]
    KERAS_BACKEND=torch python benches/keras_training.py FOLDER
    KERAS_BACKEND=jax python benches/keras_training.py FOLDER

The first call makes JPEGs of gratings in FOLDER: those to train with lean to the right, those to validate with to both
sides, so that a model learns them by mirrored images only. TensorFlow comes first: it keeps the pixels that Keras
decodes, which are the other side where TensorFlow is not installed. The machine should have nothing else to do, though
no time is taken.

Without randomness the losses of all epochs are compared, which must be equal to the bit. With shuffle and flips each
side trains once for each seed, and mean and deviation of accuracies are compared. Prints both, and writes
FOLDER/<backend>.json, from which a call that was stopped, or had fewer seeds, goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from PIL import Image

import wellfed as wf

BACKEND = keras.backend.backend()
SIDE, BATCH, TRAIN, VALIDATE = 32, 32, 480, 240
ANGLES = (15, 45, 75)
WITHOUT = "without shuffle and flips"

Sides = dict[str, Callable[[int], Any]]


def generate(root: Path) -> None:
    """JPEGs of gratings with noise, in folders of classes."""
    draw = np.random.default_rng(0)
    for part, count in (("train", TRAIN), ("validate", VALIDATE)):
        for number in range(count):
            label = number % len(ANGLES)
            height, width = draw.integers(40, 64, 2)
            y, x = np.mgrid[:height, :width]
            sign = 1 if part == "train" else draw.choice([-1, 1])
            angle = np.radians(sign * (ANGLES[label] + draw.normal(0, 9)))
            phase = (x * np.cos(angle) + y * np.sin(angle)) / draw.uniform(1.5, 2.5) + draw.uniform(0, 7)
            wave = 128 + 50 * np.sin(phase)[..., None] + draw.normal(0, 70, (height, width, 3))
            place = root / part / str(ANGLES[label])
            place.mkdir(parents=True, exist_ok=True)
            image = Image.fromarray(np.clip(wave, 0, 255).astype(np.uint8))
            image.save(place / f"{number:04}.jpg", quality=92)


def made_model(seed: int) -> Any:
    keras.utils.set_random_seed(seed)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((SIDE, SIDE, 3)),
            layers.Rescaling(1 / 127.5, -1),
            layers.Conv2D(12, 5, strides=2, activation="relu"),
            layers.Conv2D(24, 3, strides=2, activation="relu"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(len(ANGLES)),
        ]
    )
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.005), loss, metrics=["accuracy"], jit_compile=False)
    return model


class InMemory(keras.utils.PyDataset):
    """Batches of arrays; shuffled and mirrored by NumPy's numbers if there is a seed."""

    def __init__(self, images: Any, labels: Any, seed: int | None = None) -> None:
        super().__init__()
        self._images, self._labels = images, labels
        self._draw = None if seed is None else np.random.default_rng(seed)
        self.on_epoch_begin()

    def on_epoch_begin(self) -> None:
        order = np.arange(len(self._labels))
        flips = np.zeros(len(order), bool)
        if self._draw is not None:
            order, flips = self._draw.permutation(order), self._draw.random(len(order)) < 0.5
        self._order, self._flips = order, flips

    def __len__(self) -> int:
        return -(-len(self._labels) // BATCH)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        part = slice(index * BATCH, (index + 1) * BATCH)
        images, flips = self._images[self._order[part]], self._flips[part, None, None, None]
        return np.where(flips, images[:, :, ::-1], images), self._labels[self._order[part]]


def utility(function: Callable[..., Any], root: Path, **options: Any) -> Any:
    return function(root, image_size=(SIDE, SIDE), batch_size=BATCH, verbose=False, **options)


def pixels(folder: Path, part: str) -> tuple[Any, Any]:
    """What Keras decodes, in its order; kept in a file for backends without TensorFlow."""
    kept = folder / f"{part}.npz"
    if BACKEND == "tensorflow":
        data = utility(keras.utils.image_dataset_from_directory, folder / part, shuffle=False)
        batches = list(data.as_numpy_iterator())
        np.savez(
            kept,
            images=np.concatenate([x for x, _ in batches]),
            labels=np.concatenate([y for _, y in batches]),
        )
    elif not kept.exists():
        sys.exit(f"{kept} is not there\nhint: run this with KERAS_BACKEND=tensorflow before")
    with np.load(kept) as found:
        return found["images"], found["labels"]


def files(root: Path) -> tuple[list[str], Any]:
    paths = [str(path) for name in sorted(root.iterdir()) for path in sorted(name.iterdir())]
    names = sorted({Path(path).parent.name for path in paths})
    return paths, np.array([names.index(Path(path).parent.name) for path in paths], np.int32)


def tf_data(root: Path, seed: int | None) -> Any:
    import tensorflow as tf

    def load(path: Any, label: Any) -> tuple[Any, Any]:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        image = tf.image.resize(image, [SIDE, SIDE])
        return (image if seed is None else tf.image.random_flip_left_right(image, seed)), label

    paths, labels = files(root)
    data = tf.data.Dataset.from_tensor_slices((paths, labels))
    data = data if seed is None else data.shuffle(len(paths), seed)
    return data.map(load, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True).batch(BATCH).prefetch(2)


def own_pipeline(root: Path, seed: int | None) -> Any:
    layers, (paths, labels) = wf.keras.layers, files(root)
    data = wf.image_files(paths, labels).with_options(mode="TENSORFLOW", layout="NHWC")
    if seed is not None:
        data = data.shuffle(seed=seed)
    flips = [] if seed is None else [layers.RandomFlip("horizontal")]
    return data.map(*flips, layers.Resizing(SIDE, SIDE)).batch(BATCH).keras()


def plain_sides(root: Path, arrays: tuple[Any, Any]) -> Sides:
    sides: Sides = {
        "Keras' pixels in memory": lambda _: InMemory(*arrays),
        "wf.keras.image_dataset_from_directory": lambda _: utility(
            wf.keras.image_dataset_from_directory, root, shuffle=False
        ),
        "ds.keras()": lambda _: own_pipeline(root, None),
    }
    if BACKEND == "tensorflow":
        theirs = keras.utils.image_dataset_from_directory
        del sides["Keras' pixels in memory"]
        return {
            "keras.utils.image_dataset_from_directory": lambda _: utility(theirs, root, shuffle=False),
            "tf.data": lambda _: tf_data(root, None),
            "wf.feed(tf.data)": lambda _: wf.feed(tf_data(root, None)),
            **sides,
        }
    return sides


def random_sides(root: Path, arrays: tuple[Any, Any]) -> Sides:
    def flipped(function: Callable[..., Any]) -> Callable[[int], Any]:
        def made(seed: int) -> Any:
            flip = keras.layers.RandomFlip("horizontal", seed=seed)
            data = utility(function, root, seed=seed)
            return data.map(lambda images, labels: (flip(images, training=True), labels))

        return made

    sides: Sides = {
        "Keras' pixels in memory": lambda seed: InMemory(*arrays, seed),
        "wf.keras.image_dataset_from_directory": flipped(wf.keras.image_dataset_from_directory),
        "ds.keras()": lambda seed: own_pipeline(root, seed),
    }
    if BACKEND == "tensorflow":
        del sides["Keras' pixels in memory"]
        return {
            "keras.utils.image_dataset_from_directory": flipped(keras.utils.image_dataset_from_directory),
            "tf.data": lambda seed: tf_data(root, seed),
            "wf.feed(tf.data)": lambda seed: wf.feed(tf_data(root, seed)),
            'wf.feed(tf.data, shuffle="global", random="native")': lambda seed: wf.feed(
                tf_data(root, seed), shuffle="global", random="native", seed=seed
            ),
            **sides,
        }
    return sides


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    folder, epochs = arguments.folder, arguments.epochs
    if not (folder / "train").exists():
        generate(folder)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        tf.config.experimental.enable_op_determinism()
    arrays, (held, answers) = pixels(folder, "train"), pixels(folder, "validate")
    print(f"Keras {keras.__version__} on {BACKEND}, wellfed {wf.__version__}, {os.cpu_count()} cores")

    kept = folder / f"{BACKEND}.json"
    result: dict[str, Any] = {
        "versions": {"keras": keras.__version__, "wellfed": wf.__version__, "numpy": np.__version__},
        "backend": BACKEND,
        "cores": os.cpu_count(),
        "epochs": epochs,
        "losses": {},
        "accuracies": {},
    }
    if kept.exists():
        before = json.loads(kept.read_text())
        if any(before[name] != result[name] for name in ("versions", "epochs")):
            sys.exit(f"{kept} is of another version, or of other epochs\nhint: remove it")
        result = before

    losses = result["losses"]
    for side, data in plain_sides(folder / "train", arrays).items():
        if side not in losses:
            history = made_model(0).fit(data(0), epochs=epochs, verbose=0, shuffle=False).history
            losses[side] = history["loss"]
    first, *others = losses
    ends = f"{losses[first][0]:.4f} to {losses[first][-1]:.4f}"
    print(f"losses of {epochs} epochs without randomness, {ends} with {first}")
    for side in others:
        most = max(abs(a - b) for a, b in zip(losses[first], losses[side], strict=True))
        print(f"  {side}: greatest difference {most}")

    accuracies = result["accuracies"]
    sides = random_sides(folder / "train", arrays) | {WITHOUT: lambda _: InMemory(*arrays)}
    for seed in range(arguments.seeds):
        for side, data in sides.items():
            found = accuracies.setdefault(side, [])
            if len(found) > seed:
                continue
            model = made_model(seed)
            model.fit(data(seed), epochs=epochs, verbose=0, shuffle=False)
            found.append(float(model.evaluate(held, answers, verbose=0)[1]))
            kept.write_text(json.dumps(result, indent=1) + "\n")
    first = next(iter(accuracies))
    reference = accuracies[first][: arguments.seeds]
    print(f"accuracy with shuffle and flips, {arguments.seeds} seeds")
    for side, found in accuracies.items():
        found = found[: arguments.seeds]
        mean, deviation = statistics.mean(found), statistics.stdev(found)
        line = f"  {side}: {mean:.4f}, deviation {deviation:.4f}"
        if side != first:
            error = np.sqrt((deviation**2 + statistics.variance(reference)) / arguments.seeds)
            difference = mean - statistics.mean(reference)
            line += f", {difference / error:+.2f} standard errors" if error else f", {difference:+}"
        print(line)


if __name__ == "__main__":
    main()
