"""Data that kept productions read. As `material.py`, which rules may be developed with, and this not."""

from __future__ import annotations

import csv
import datetime
import gzip
import io
import json
import os
import sqlite3
from pathlib import Path

import numpy as np
from grammar import SIZE, Maker
from material import DISTINCT, WORDS, encoded, linked_folder, picture, pictures, texts, vectors


def volumes(count: int, slices: int, packed: bool) -> Maker:
    """A folder of scans of so many slices each, as npy of int16, by gzip if packed."""

    def make(path: Path) -> None:
        path.mkdir()
        images = [image[..., 1].astype(np.int16) * 8 - 1000 for image in pictures(DISTINCT, SIZE)]
        for number in range(-(-count // slices)):
            out = io.BytesIO()
            np.save(out, np.stack([images[(number * slices + i) % DISTINCT] for i in range(slices)]))
            if packed:
                (path / f"{number:04}.npy.gz").write_bytes(gzip.compress(out.getvalue(), 6))
            else:
                (path / f"{number:04}.npy").write_bytes(out.getvalue())

    return make


def image_blobs(count: int, size: int) -> Maker:
    """A table of SQLite, `images`, with `id`, `jpeg` and `label`."""

    def make(path: Path) -> None:
        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE images (id INTEGER PRIMARY KEY, jpeg BLOB, label INTEGER)")
            rows = ((i, files[i % DISTINCT], i % 10) for i in range(count))
            base.executemany("INSERT INTO images VALUES (?, ?, ?)", rows)
        base.close()

    return make


def pixel_table(count: int, size: int) -> Maker:
    """A CSV of grey images: `emotion`, `pixels` (numbers with spaces between), `Usage`."""

    def make(path: Path) -> None:
        some = [" ".join(map(str, image[..., 0].ravel().tolist())) for image in pictures(DISTINCT, size)]
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["emotion", "pixels", "Usage"])
            out.writerows([i % 10, some[i % DISTINCT], "Training"] for i in range(count))

    return make


def class_tree(count: int, size: int) -> Maker:
    """A folder for each of ten classes, with JPEGs."""

    def make(path: Path) -> None:
        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        first: dict[int, Path] = {}
        for i in range(count):
            place = path / f"class_{i % 10}" / f"{i:05}.jpg"
            place.parent.mkdir(parents=True, exist_ok=True)
            if i % DISTINCT in first:
                os.link(first[i % DISTINCT], place)
            else:
                place.write_bytes(files[i % DISTINCT])
                first[i % DISTINCT] = place

    return make


def dated_rows(count: int, columns: int) -> Maker:
    """A CSV with a header: `date`, `label` and the columns."""

    def make(path: Path) -> None:
        begin = datetime.datetime(2023, 5, 1)
        with path.open("w", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(["date", "label", *(f"v{i}" for i in range(columns))])
            for i, row in enumerate(vectors(count, columns)):
                date = begin + datetime.timedelta(minutes=37 * i)
                out.writerow([f"{date:%Y-%m-%d %H:%M:%S}", i % 10, *(f"{value:.3f}" for value in row)])

    return make


def sensor_folder(count: int, length: int) -> Maker:
    """A CSV for each sample: a header, then a moment and a value a line."""

    def write(index: int) -> bytes:
        lines = (f"{moment / 50:.2f},{value:.3f}" for moment, value in enumerate(sensor(index, length)))
        return "\n".join(["time,value", *lines, ""]).encode()

    return linked_folder(write, count, "csv")


def sensor(index: int, length: int) -> np.ndarray:
    """What a sensor told."""
    return vectors(DISTINCT, length)[index % DISTINCT]


def sensor_array(count: int, length: int) -> Maker:
    """The same in one npy."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, np.stack([sensor(index, length) for index in range(count)]))

    return make


def shard_folder(count: int, features: int, rows: int) -> Maker:
    """Rows in a folder of npz of so many each, under `x`."""

    def make(path: Path) -> None:
        path.mkdir()
        whole = vectors(count, features)
        for number, begin in enumerate(range(0, count, rows)):
            with (path / f"shard_{number:04}.npz").open("wb") as file:
                np.savez(file, x=whole[begin : begin + rows])

    return make


def histories(count: int, length: int) -> Maker:
    """A CSV of events of all users by time: `user`, `time`, `value`."""

    def make(path: Path) -> None:
        rows = vectors(count, length)
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["user", "time", "value"])
            for time in range(length):
                out.writerows([f"u{user:05}", time, f"{rows[user, time]:.3f}"] for user in range(count))

    return make


def half_rows(count: int, features: int) -> Maker:
    """All rows as one npy of float16."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, vectors(count, features).astype(np.float16))

    return make


def logged_rows(count: int, features: int) -> Maker:
    """One row a line, as logs have them: `name=value` with spaces between."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            for i, row in enumerate(vectors(count, features)):
                pairs = " ".join(f"f{number}={value:.3f}" for number, value in enumerate(row))
                file.write(f"level=info label={i % 10} {pairs}\n")

    return make


def pages(count: int, words: int) -> Maker:
    """A page of HTML a line."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            for i, text in enumerate(texts(count, words)):
                parts = "".join(
                    f'<p class="c{n}">{part} &amp; <a href="#{n}">{WORDS[n % len(WORDS)]}</a></p>'
                    for n, part in enumerate(text.split(", "))
                )
                file.write(f"<html><head><title>Page {i}</title></head><body>{parts}</body></html>\n")

    return make


def corpus(count: int, words: int) -> Maker:
    """A JSON list of objects with `text` and `label`."""

    def make(path: Path) -> None:
        listed = [{"text": text, "label": i % 10} for i, text in enumerate(texts(count, words))]
        path.write_text(json.dumps(listed))

    return make


def settings(entries: int) -> Maker:
    """A JSON with settings, and so many names of classes."""

    def make(path: Path) -> None:
        classes = {f"class {i}": {"id": i, "colour": [i % 256, i * 7 % 256, 0]} for i in range(entries)}
        path.write_text(json.dumps({"first": 0, "size": SIZE, "classes": classes}, indent=2))

    return make


def split_names(count: int) -> Maker:
    """Names of samples, one a line, in an order that was drawn once."""

    def make(path: Path) -> None:
        order = np.random.default_rng(count).permutation(count)
        path.write_text("".join(f"sample_{i:06}\n" for i in order))

    return make


def series(length: int) -> Maker:
    """A series of float32 as npy."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, vectors(length, 1).ravel())

    return make
