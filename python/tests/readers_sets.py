"""Data sets of one's own over readers of containers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import h5py
import lmdb
import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from PIL import Image
from torch.utils.data import Dataset


def written(folder: Path, paths: list[Path]) -> str:
    """A database of the images, under several keys."""
    with lmdb.open(str(folder), map_size=1 << 26) as env, env.begin(write=True) as txn:
        for place, path in enumerate(paths):
            txn.put(f"{place:08d}".encode(), path.read_bytes())
            txn.put(str(place).encode(), path.read_bytes())
            txn.put(f"label-{place}".encode(), str(place % 5).encode())
            txn.put(f"array-{place}".encode(), np.arange(6, dtype=np.float32).tobytes())
    return str(folder)


class Base(Dataset[Any]):
    def __init__(self, path: str, length: int, transform: Any) -> None:
        self.path, self.length, self.transform = path, length, transform
        self.labels = [place % 3 for place in range(length)]
        self.keys = [f"{place:08d}".encode() for place in range(length)]
        self.env: Any = None
        self.prepare()

    def prepare(self) -> None:
        self.env = lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False)

    def close(self) -> None:
        if self.env is not None:
            self.env.close()

    def __len__(self) -> int:
        return self.length


class Keys(Base):
    def __getitem__(self, index: int) -> Any:
        with self.env.begin(write=False) as txn:
            data = txn.get(self.keys[index])
        image = Image.open(io.BytesIO(data)).convert("RGB")
        if self.transform is not None:
            image = self.transform(image)
        return image, self.labels[index]


class Formatted(Base):
    """With a label under another key."""

    def __getitem__(self, index: int) -> Any:
        with self.env.begin() as txn:
            data = txn.get(f"{index:08d}".encode("ascii"))
            label = int(txn.get(f"label-{index}".encode()).decode())
        buffer = io.BytesIO(data)
        return {"image": self.transform(Image.open(buffer).convert("RGB")), "label": label}


class Late(Base):
    """Opened by each process when it needs it."""

    def prepare(self) -> None:
        pass

    def __getitem__(self, index: int) -> Any:
        if self.env is None:
            self.env = lmdb.open(self.path, readonly=True, lock=False)
        with self.env.begin(write=False) as txn:
            data = txn.get(str(index).encode())
            label = int(txn.get(f"label-{index}".encode()))
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), label


class Held(Base):
    """Without a with statement."""

    def __getitem__(self, index: int) -> Any:
        txn = self.env.begin(write=False)
        data = txn.get(self.keys[index])
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), self.labels[index]


class Decoded(Base):
    """By OpenCV."""

    def __getitem__(self, index: int) -> Any:
        with self.env.begin(write=False) as txn:
            data = txn.get(self.keys[index])
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return torch.from_numpy(cv2.resize(image, (24, 20))).permute(2, 0, 1), self.labels[index]


class Numbers(Base):
    def __getitem__(self, index: int) -> Any:
        with self.env.begin(write=False) as txn:
            data = txn.get(f"array-{index}".encode())
        return torch.from_numpy(np.frombuffer(data, dtype=np.float32).reshape(2, 3).copy()), self.labels[
            index
        ]


class Writes(Base):
    def __getitem__(self, index: int) -> Any:
        with self.env.begin(write=True) as txn:
            data = txn.get(self.keys[index])
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), self.labels[index]

    def prepare(self) -> None:
        self.env = lmdb.open(self.path, map_size=1 << 26)


class Buffers(Base):
    def __getitem__(self, index: int) -> Any:
        with self.env.begin(buffers=True) as txn:
            image = Image.open(io.BytesIO(txn.get(self.keys[index]))).convert("RGB")
        return self.transform(image), self.labels[index]


class Cursors(Base):
    def __getitem__(self, index: int) -> Any:
        with self.env.begin() as txn:
            data = txn.cursor().get(self.keys[index])
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), self.labels[index]


class Ended(Base):
    """Uses a transaction behind its block, which LMDB refuses."""

    def __getitem__(self, index: int) -> Any:
        with self.env.begin() as txn:
            pass
        data = txn.get(self.keys[index])
        return self.transform(Image.open(io.BytesIO(data)).convert("RGB")), self.labels[index]


class Table(Dataset[Any]):
    """A Parquet file that is read as a whole."""

    def __init__(self, path: Path, paths: list[Path], transform: Any) -> None:
        images = [{"bytes": one.read_bytes(), "path": one.name} for one in paths]
        labels = [place % 3 for place in range(len(paths))]
        table = pyarrow.table({"bytes": [one["bytes"] for one in images], "image": images, "label": labels})
        pyarrow.parquet.write_table(table, path, row_group_size=5)
        with pyarrow.ipc.new_file(f"{path}.arrow", table.schema) as file:
            file.write_table(table, 5)
        self.path, self.length, self.transform = path, len(paths), transform
        self.table = self.load()

    def load(self) -> Any:
        return pyarrow.parquet.read_table(self.path)

    def __len__(self) -> int:
        return self.length


class Columns(Table):
    def __getitem__(self, index: int) -> Any:
        image = Image.open(io.BytesIO(self.table.column("bytes")[index].as_py())).convert("RGB")
        return self.transform(image), self.table.column("label")[index].as_py()


class Mapped(Table):
    """An Arrow file that is mapped, with the images of Hugging Face."""

    def load(self) -> Any:
        return pyarrow.ipc.open_file(pyarrow.memory_map(f"{self.path}.arrow")).read_all()

    def __getitem__(self, index: int) -> Any:
        image = Image.open(io.BytesIO(self.table["image"][index].as_py()["bytes"])).convert("RGB")
        return self.transform(image), self.table["label"][index].as_py()


class Frame(Table):
    def load(self) -> Any:
        return super().load().to_pandas()

    def __getitem__(self, index: int) -> Any:
        image = Image.open(io.BytesIO(self.table.iloc[index]["bytes"])).convert("RGB")
        return self.transform(image), self.table.iloc[index]["label"]


class Chunked(Dataset[Any]):
    """Arrays of an HDF5 file that lie in it in compressed chunks."""

    def __init__(self, path: Path, transform: Any) -> None:
        rng = np.random.default_rng(1)
        with h5py.File(path, "w") as file:
            images = rng.integers(0, 256, (20, 40, 44, 3), np.uint8)
            file.create_dataset("images", data=images, chunks=(3, 40, 44, 3), compression="gzip")
            file.create_dataset("values", data=rng.random((20, 5), np.float32), chunks=(4, 5), shuffle=True)
            file.create_dataset("labels", data=np.arange(20), chunks=(6,))
        self.path, self.transform, self.file = path, transform, None

    def __len__(self) -> int:
        return 20


class ChunkedImages(Chunked):
    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        image = Image.fromarray(self.file["images"][index])
        return self.transform(image), int(self.file["labels"][index])


class ChunkedValues(Chunked):
    def __getitem__(self, index: int) -> Any:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return torch.from_numpy(self.file["values"][index]), self.file["labels"][index]
