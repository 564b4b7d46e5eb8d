"""Data that composed scripts read: made once by name, the same for all scripts that name it.

Invariant: what is made depends on the arguments alone, and a data set in another format holds the same samples.
"""

from __future__ import annotations

import base64
import csv
import datetime
import gzip
import io
import json
import os
import pickle
import sqlite3
import tarfile
import wave
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from grammar import SIZE, Maker

DISTINCT = 32
"""Different images of a data set: the others are copies, which cost as much to read."""

WORDS = [
    *("the", "of", "signal", "image", "deep", "batch", "learning", "and", "to", "layer"),
    *("gradient", "in", "rate", "with", "weights", "noise", "loss", "for"),
]


def ensure(path: Path, make: Maker) -> None:
    """Makes data unless it is there, so that no other process sees half of it."""
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{os.getpid()}.{path.name}")
    make(half)
    half.rename(path)


def picture(index: int, size: int) -> np.ndarray:
    """A photograph-like image: soft areas, edges, grain. uint8, size x size x 3."""
    from PIL import Image

    rng = np.random.default_rng([index % DISTINCT, size])
    image = np.zeros((size, size, 3), np.float32)
    for cells, weight in ((4, 0.5), (16, 0.3), (48, 0.2)):
        coarse = rng.integers(0, 255, (cells, cells, 3), np.uint8)
        image += np.asarray(Image.fromarray(coarse).resize((size, size), 3), np.float32) * weight
    return (image + rng.normal(0, 5, image.shape)).clip(0, 255).astype(np.uint8)


def pictures(count: int, size: int) -> Iterator[np.ndarray]:
    """So many images, of which some are distinct."""
    made = [picture(i, size) for i in range(min(count, DISTINCT))]
    for i in range(count):
        yield made[i % DISTINCT]


def vectors(count: int, features: int) -> np.ndarray:
    """Rows of float32 with few digits, so that text holds them exactly."""
    rng = np.random.default_rng(features)
    return (rng.integers(-4000, 4000, (count, features)) / 1000).astype(np.float32)


def texts(count: int, words: int) -> list[str]:
    """Sentences of half to one and a half times so many words, with numbers and punctuation."""
    rng = np.random.default_rng(words)
    made = []
    for _ in range(count):
        picked = rng.integers(0, len(WORDS), rng.integers(words // 2, words * 3 // 2) + 1)
        parts = [
            WORDS[w] + ("," if w % 5 == 0 else "") + (f" {w * 37}" if w % 7 == 0 else "") for w in picked
        ]
        made.append(" ".join(parts).capitalize() + ".")
    return made


def encoded(image: np.ndarray, form: str) -> bytes:
    """An image as a file: `jpg` or `png`."""
    from PIL import Image

    out = io.BytesIO()
    if form == "jpg":
        Image.fromarray(image).save(out, "JPEG", quality=90)
    else:
        Image.fromarray(image).save(out, "PNG", compress_level=6)
    return out.getvalue()


def folder_of(write: Callable[[np.ndarray], bytes], count: int, size: int, ending: str) -> Maker:
    """A folder of one file for each image."""

    def make(path: Path) -> None:
        path.mkdir()
        for i, image in enumerate(pictures(count, size)):
            place = path / f"{i:05}.{ending}"
            if i < DISTINCT:
                place.write_bytes(write(image))
            else:
                os.link(path / f"{i % DISTINCT:05}.{ending}", place)

    return make


def image_folder(count: int, size: int, form: str) -> Maker:
    """JPEGs or PNGs."""
    return folder_of(lambda image: encoded(image, form), count, size, form)


def npz_folder(count: int, size: int, compressed: bool) -> Maker:
    """One npz for each image, under the key `image`."""

    def write(image: np.ndarray) -> bytes:
        out = io.BytesIO()
        (np.savez_compressed if compressed else np.savez)(out, image=image)
        return out.getvalue()

    return folder_of(write, count, size, "npz")


def pickle_folder(count: int, size: int, packed: bool) -> Maker:
    """One pickle of a dict for each image, by gzip if packed."""

    def write(image: np.ndarray) -> bytes:
        whole = pickle.dumps({"image": image, "shape": image.shape})
        return gzip.compress(whole, 6) if packed else whole

    return folder_of(write, count, size, "pkl.gz" if packed else "pkl")


def image_array(count: int, size: int) -> Maker:
    """All images as one npy."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, np.stack(list(pictures(count, size))))

    return make


def image_tar(count: int, size: int) -> Maker:
    """A tar of JPEGs."""

    def make(path: Path) -> None:
        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        with tarfile.open(path, "w") as tar:
            for i in range(count):
                member = tarfile.TarInfo(f"{i:05}.jpg")
                member.size = len(files[i % DISTINCT])
                tar.addfile(member, io.BytesIO(files[i % DISTINCT]))

    return make


def image_h5(count: int, size: int, chunk: int, gzipped: bool) -> Maker:
    """An HDF5 file with the data set `images`, in chunks of so many; 0: contiguous."""

    def make(path: Path) -> None:
        import h5py

        with h5py.File(path, "w") as file:
            shape = (count, size, size, 3)
            how = {"chunks": (min(chunk, count), size, size, 3)} if chunk else {}
            images = file.create_dataset(
                "images", shape, np.uint8, compression="gzip" if gzipped else None, **how
            )
            images[:] = np.stack(list(pictures(count, size)))
            file["labels"] = np.arange(count) % 10

    return make


def vector_array(count: int, features: int) -> Maker:
    """All rows as one npy."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            np.save(file, vectors(count, features))

    return make


def vector_npz(count: int, features: int, compressed: bool) -> Maker:
    """All rows as one npz under the key `x`."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            (np.savez_compressed if compressed else np.savez)(file, x=vectors(count, features))

    return make


def vector_csv(count: int, features: int, zipped: bool) -> Maker:
    """CSV without a header: the label, then the features."""

    def make(path: Path) -> None:
        with gzip.open(path, "wt") if zipped else path.open("w") as file:
            out = csv.writer(file)
            for i, row in enumerate(vectors(count, features)):
                out.writerow([i % 10, *(f"{value:.3f}" for value in row)])

    return make


def vector_sqlite(count: int, features: int) -> Maker:
    """A table `samples` with `id`, `x` (float32 as bytes) and `label`."""

    def make(path: Path) -> None:
        with sqlite3.connect(path) as base:
            base.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, x BLOB, label INTEGER)")
            rows = ((i, row.tobytes(), i % 10) for i, row in enumerate(vectors(count, features)))
            base.executemany("INSERT INTO samples VALUES (?, ?, ?)", rows)
        base.close()

    return make


def vector_h5(count: int, features: int) -> Maker:
    """An HDF5 file with the contiguous data set `x`."""

    def make(path: Path) -> None:
        import h5py

        with h5py.File(path, "w") as file:
            file["x"] = vectors(count, features)
            file["labels"] = np.arange(count) % 10

    return make


def text_lines(count: int, words: int) -> Maker:
    """One text a line."""

    def make(path: Path) -> None:
        path.write_text("\n".join(texts(count, words)) + "\n")

    return make


def text_jsonl(count: int, words: int) -> Maker:
    """One JSON object a line: `text`, `label` and what else such files carry."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            for i, text in enumerate(texts(count, words)):
                more = {"id": i, "source": f"page-{i % 100}", "scores": [round(i % 7 / 7, 3)] * 20}
                file.write(json.dumps({**more, "text": text, "label": i % 10}) + "\n")

    return make


def webp_folder(count: int, size: int) -> Maker:
    """One lossy WebP for each image."""

    def write(image: np.ndarray) -> bytes:
        from PIL import Image

        out = io.BytesIO()
        Image.fromarray(image).save(out, "WEBP", quality=88)
        return out.getvalue()

    return folder_of(write, count, size, "webp")


def tensor_folder(count: int, size: int) -> Maker:
    """One file of `torch.save` for each image: a dict with `image`."""

    def write(image: np.ndarray) -> bytes:
        import torch

        out = io.BytesIO()
        torch.save({"image": torch.from_numpy(image), "size": image.shape[:2]}, out)
        return out.getvalue()

    return folder_of(write, count, size, "pt")


def image_lmdb(count: int, size: int) -> Maker:
    """JPEGs in a file of LMDB under their numbers."""

    def make(path: Path) -> None:
        import lmdb

        files = [encoded(picture(i, size), "jpg") for i in range(min(count, DISTINCT))]
        with (
            lmdb.open(str(path), map_size=1 << 30, subdir=False, lock=False) as base,
            base.begin(write=True) as writing,
        ):
            for i in range(count):
                writing.put(f"{i:06}".encode(), files[i % DISTINCT])

    return make


def image_zip(count: int, size: int, deflated: bool) -> Maker:
    """A zip with one npy for each image."""

    def make(path: Path) -> None:
        how = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
        with zipfile.ZipFile(path, "w", how) as archive:
            for i, image in enumerate(pictures(count, size)):
                out = io.BytesIO()
                np.save(out, image)
                archive.writestr(f"{i:05}.npy", out.getvalue())

    return make


def image_tiff(count: int, size: int, packed: bool) -> Maker:
    """A TIFF of one page for each image."""

    def make(path: Path) -> None:
        import tifffile

        with tifffile.TiffWriter(path) as pages:
            for image in pictures(count, size):
                pages.write(
                    image, photometric="rgb", compression="zlib" if packed else None, contiguous=False
                )

    return make


def row_groups(count: int, features: int, group: int) -> Maker:
    """Parquet with the columns `x` (lists) and `label`, in row groups of so many rows."""

    def make(path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = vectors(count, features)
        lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), features)
        table = pa.table({"x": lists, "label": np.arange(count) % 10})
        pq.write_table(table, path, row_group_size=group)

    return make


def arrow_rows(count: int, features: int) -> Maker:
    """A data set of Hugging Face's on disk, with `x` and `label`."""

    def make(path: Path) -> None:
        import datasets

        rows = {"x": list(vectors(count, features)), "label": (np.arange(count) % 10).tolist()}
        form = datasets.Features(
            {"x": datasets.Sequence(datasets.Value("float32")), "label": datasets.Value("int64")}
        )
        datasets.disable_progress_bars()
        datasets.Dataset.from_dict(rows, features=form).save_to_disk(str(path))

    return make


def records(count: int, features: int) -> Maker:
    """Records of one length: a byte with the label, then float32."""

    def make(path: Path) -> None:
        with path.open("wb") as file:
            for i, row in enumerate(vectors(count, features)):
                file.write(bytes([i % 10]) + row.tobytes())

    return make


def libsvm(count: int, features: int) -> Maker:
    """Lines of `label column:value …`, zeros left out."""

    def make(path: Path) -> None:
        with path.open("w") as file:
            for i, row in enumerate(vectors(count, features)):
                pairs = (f"{column}:{value:.3f}" for column, value in enumerate(row) if value)
                file.write(f"{i % 10} {' '.join(pairs)}\n")

    return make


def manifest(count: int, ending: str) -> Maker:
    """A CSV file with a header that lists files and more of them."""

    def make(path: Path) -> None:
        with path.open("w", newline="") as file:
            out = csv.writer(file)
            out.writerow(["file", "label", "split", "source"])
            for i in range(count):
                out.writerow([f"{i:05}.{ending}", i % 10, "train" if i % 5 else "extra", f"camera-{i % 7}"])

    return make


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
