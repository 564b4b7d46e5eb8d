"""Data that kept productions read. As `material.py`, which rules may be developed with, and this not."""

from __future__ import annotations

import base64
import csv
import datetime
import io
import json
import os
import pickle
import sqlite3
import wave
from collections.abc import Callable
from pathlib import Path

import numpy as np
from grammar import SIZE, Maker
from material import DISTINCT, encoded, folder_of, picture, pictures, texts, vectors

CLASSES = [f"class-{number}" for number in range(10)]


def linked_folder(write: Callable[[int], bytes], count: int, ending: str) -> Maker:
    """A folder of one file for each sample, of which some are distinct."""

    def make(path: Path) -> None:
        path.mkdir()
        for i in range(count):
            place = path / f"{i:05}.{ending}"
            if i < DISTINCT:
                place.write_bytes(write(i))
            else:
                os.link(path / f"{i % DISTINCT:05}.{ending}", place)

    return make


def labelled_json(count: int, size: int) -> Maker:
    """A JSON for each image, as tools for labelling write it: polygons, and the image as base64 of a JPEG."""

    def write(image: np.ndarray) -> bytes:
        rng = np.random.default_rng(int(image[0, 0, 0]))
        shapes = [
            {"label": CLASSES[i % 10], "points": (rng.random((20, 2)) * size).round(2).tolist()}
            for i in range(12)
        ]
        data = base64.b64encode(encoded(image, "jpg")).decode()
        return json.dumps({"version": "5.0", "shapes": shapes, "imageData": data, "flags": {}}).encode()

    return folder_of(write, count, size, "json")


def annotation_folder(count: int, objects: int) -> Maker:
    """An XML for each image, as of Pascal VOC, with so many boxes."""

    def write(index: int) -> bytes:
        rng = np.random.default_rng([index, objects])
        lines = [f"<annotation><filename>{index:05}.jpg</filename>"]
        for _ in range(objects):
            x, y, w, h = rng.integers(1, 200, 4)
            lines.append(
                f"<object><name>{CLASSES[rng.integers(10)]}</name><pose>Unspecified</pose>"
                "<truncated>0</truncated><difficult>0</difficult>"
                f"<bndbox><xmin>{x}</xmin><ymin>{y}</ymin><xmax>{x + w}</xmax><ymax>{y + h}</ymax></bndbox>"
                "</object>"
            )
        return "\n".join([*lines, "</annotation>"]).encode()

    return linked_folder(write, count, "xml")


def clips(count: int, frames: int, form: str) -> Maker:
    """A folder of clips of so many images each: `npy`, or `npz` with `frames`, compressed or not."""

    def make(path: Path) -> None:
        path.mkdir()
        images = list(pictures(DISTINCT, SIZE))
        for clip in range(-(-count // frames)):
            some = np.stack([images[(clip * frames + i) % DISTINCT] for i in range(frames)])
            with (path / f"{clip:05}.{'npy' if form == 'npy' else 'npz'}").open("wb") as file:
                if form == "npy":
                    np.save(file, some)
                else:
                    (np.savez_compressed if form == "packed" else np.savez)(file, frames=some)

    return make


def image_h5_bytes(count: int, size: int) -> Maker:
    """An HDF5 file of one JPEG under each name."""

    def make(path: Path) -> None:
        import h5py

        files = [np.void(encoded(picture(i, size), "jpg")) for i in range(min(count, DISTINCT))]
        with h5py.File(path, "w") as file:
            for i in range(count):
                file[f"scan_{i:06}"] = files[i % DISTINCT]

    return make


def pickled_batches(count: int, size: int, batches: int = 5) -> Maker:
    """A folder of pickles as of CIFAR: images by channels, one row each."""

    def make(path: Path) -> None:
        path.mkdir()
        rows = np.stack(list(pictures(count, size))).transpose(0, 3, 1, 2).reshape(count, -1)
        for number, part in enumerate(np.array_split(rows, batches), 1):
            with (path / f"data_batch_{number}").open("wb") as file:
                pickle.dump({b"data": part, b"batch_label": f"batch {number}".encode()}, file)

    return make


def series_csv(rows: int, channels: int) -> Maker:
    """A CSV of a minute a row: `time`, `station` and the channels."""

    def make(path: Path) -> None:
        begin = datetime.datetime(2024, 1, 1)
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["time", "station", *(f"c{i}" for i in range(channels))])
            for i, row in enumerate(vectors(rows, channels)):
                time = begin + datetime.timedelta(minutes=i)
                out.writerow([time.isoformat(), f"north-{i % 3}", *(f"{value:.3f}" for value in row)])

    return make


def graph(index: int, nodes: int, edges: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Begins, ends and weights of a graph's edges."""
    rng = np.random.default_rng([index % DISTINCT, nodes, edges])
    number = int(rng.integers(edges // 2, edges * 3 // 2))
    ends = rng.integers(0, nodes, (2, number))
    return ends[0], ends[1], (rng.integers(-2000, 2000, number) / 1000).astype(np.float32)


def graph_folder(count: int, nodes: int, edges: int) -> Maker:
    """A JSON for each graph: a list of edges."""

    def write(index: int) -> bytes:
        listed = [
            {"source": int(a), "target": int(b), "weight": round(float(w), 3)}
            for a, b, w in zip(*graph(index, nodes, edges))
        ]
        return json.dumps({"nodes": nodes, "edges": listed}).encode()

    return linked_folder(write, count, "json")


def graph_arrays(count: int, nodes: int, edges: int) -> Maker:
    """The same graphs in an npz: edges behind each other, and where each graph begins."""

    def make(path: Path) -> None:
        some = [graph(i, nodes, edges) for i in range(min(count, DISTINCT))]
        made = [some[i % DISTINCT] for i in range(count)]
        begins = np.cumsum([0, *(len(sources) for sources, _, _ in made)])
        sources, targets, weights = (np.concatenate(column) for column in zip(*made))
        with path.open("wb") as file:
            np.savez(file, begins=begins, sources=sources, targets=targets, weights=weights)

    return make


def wav_folder(count: int, frames: int) -> Maker:
    """A WAV of 16 bit for each sample."""

    def write(index: int) -> bytes:
        rng = np.random.default_rng([index, frames])
        tone = np.sin(np.arange(frames) * (0.01 + index * 0.003)) * 12_000
        out = io.BytesIO()
        with wave.open(out, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(16_000)
            sound.writeframes((tone + rng.normal(0, 500, frames)).astype("<i2").tobytes())
        return out.getvalue()

    return linked_folder(write, count, "wav")


def named_rows(count: int, features: int, indexed: bool) -> Maker:
    """A table of SQLite of rows that have a name, with or without an index of it."""

    def make(path: Path) -> None:
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE samples (name TEXT, label INTEGER, x BLOB)")
            rows = (
                (f"sample-{i:06}", i % 10, row.tobytes()) for i, row in enumerate(vectors(count, features))
            )
            base.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
            if indexed:
                base.execute("CREATE INDEX by_name ON samples (name)")
        base.close()

    return make


def row_records(count: int, features: int) -> Maker:
    """One JSON object a line, whose features have names."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            for i, row in enumerate(vectors(count, features)):
                named = {f"f{number}": round(float(value), 3) for number, value in enumerate(row)}
                file.write(json.dumps({"event": f"e{i}", "label": i % 10, "features": named}) + "\n")

    return make


def text_folder(count: int, words: int) -> Maker:
    """A file for each text."""

    def make(path: Path) -> None:
        path.mkdir()
        for i, text in enumerate(texts(count, words)):
            (path / f"{i:05}_{i % 10}.txt").write_text(text)

    return make


def text_table(count: int, words: int) -> Maker:
    """Texts in a table with tabs: `id`, `stars`, `text`."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            file.write("id\tstars\ttext\n")
            for i, text in enumerate(texts(count, words)):
                file.write(f"{i}\t{i % 5}\t{text}\n")

    return make


def annotated_records(count: int, number: int) -> Maker:
    """A JSON list with so many annotations for each sample, as of COCO."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(number)
        some = []
        for _ in range(DISTINCT):
            boxes = rng.integers(1, 200, (number, 4))
            some.append(
                [
                    {
                        "bbox": box.tolist(),
                        "category_id": int(box[0] % 10),
                        "area": int(box[2] * box[3]),
                        "segmentation": [(rng.random(8) * 200).round(1).tolist()],
                        "iscrowd": 0,
                    }
                    for box in boxes
                ]
            )
        records = [{"id": i, "height": 64, "annotations": some[i % DISTINCT]} for i in range(count)]
        path.write_text(json.dumps(records))

    return make


def run_lengths(count: int, runs: int) -> Maker:
    """A CSV of masks of images, as beginnings and lengths of runs of pixels."""

    def make(path: Path) -> None:
        rng = np.random.default_rng(runs)
        some = []
        for _ in range(DISTINCT):
            starts = np.sort(rng.choice(SIZE * SIZE // 4 - 1, runs, replace=False)) * 4 + 1
            some.append(
                " ".join(f"{start} {length}" for start, length in zip(starts, rng.integers(1, 4, runs)))
            )
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["ImageId", "EncodedPixels"])
            out.writerows([i, some[i % DISTINCT]] for i in range(count))

    return make


def mask_folder(count: int, size: int) -> Maker:
    """A grey PNG for each image: one of its channels, black or white."""

    def write(image: np.ndarray) -> bytes:
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(((image[..., 0] > 100) * 255).astype(np.uint8)).save(out, "PNG")
        return out.getvalue()

    return folder_of(write, count, size, "png")
