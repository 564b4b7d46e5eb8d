"""Data sets of one's own whose images are encoded bytes in memory."""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset


class Base(Dataset[Any]):
    def __init__(self, paths: list[Path], transform: Any) -> None:
        self.blobs: Any = [path.read_bytes() for path in paths]
        self.labels = [place % 3 for place in range(len(paths))]
        self.transform = transform

    def __len__(self) -> int:
        return len(self.labels)


class Listed(Base):
    def __getitem__(self, i: int) -> Any:
        image = Image.open(io.BytesIO(self.blobs[i])).convert("RGB")
        return self.transform(image), self.labels[i]


class Kept(Base):
    """By name."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.names = [path.name for path in paths]
        self.blobs = dict(zip(self.names, self.blobs, strict=True))

    def __getitem__(self, i: int) -> Any:
        with io.BytesIO(self.blobs[self.names[i]]) as file:
            image = Image.open(file).convert("RGB")
        return {"x": self.transform(image), "name": self.names[i]}


class Rows(Base):
    """A table of pandas, as the files of Hugging Face's data sets are read."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        import pandas

        super().__init__(paths, transform)
        column = [{"bytes": blob, "path": None} for blob in self.blobs]
        self.table = pandas.DataFrame({"image": column, "label": self.labels})

    def __getitem__(self, i: int) -> Any:
        row = self.table.iloc[i]
        return self.transform(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")), row["label"]


class Arrow(Base):
    def __init__(self, paths: list[Path], transform: Any) -> None:
        import pyarrow

        super().__init__(paths, transform)
        self.table = pyarrow.table({"image": self.blobs, "label": self.labels})

    def __getitem__(self, i: int) -> Any:
        image = Image.open(io.BytesIO(self.table["image"][i].as_py())).convert("RGB")
        return self.transform(image), self.table["label"][i].as_py()


class Arrays(Base):
    """Arrays of bytes that may be changed."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.blobs = [np.frombuffer(blob, np.uint8).copy() for blob in self.blobs]

    def __getitem__(self, i: int) -> Any:
        return self.transform(Image.open(io.BytesIO(self.blobs[i])).convert("RGB")), torch.tensor(
            self.labels[i]
        )


class Hdf5(Base):
    """Arrays of any length in an HDF5 file."""

    def __init__(self, paths: list[Path], transform: Any) -> None:
        super().__init__(paths, transform)
        self.path = f"{tempfile.mkdtemp()}/bytes.h5"
        with h5py.File(self.path, "w") as file:
            images = file.create_dataset("images", (len(paths),), h5py.vlen_dtype(np.uint8))
            for place, blob in enumerate(self.blobs):
                images[place] = np.frombuffer(blob, np.uint8)
        self.blobs, self.file = None, None

    def __getitem__(self, i: int) -> Any:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.transform(Image.open(io.BytesIO(self.file["images"][i])).convert("RGB")), self.labels[i]


class Decoded(Base):
    """By OpenCV."""

    def __getitem__(self, i: int) -> Any:
        image = cv2.imdecode(np.frombuffer(self.blobs[i], dtype=np.uint8), cv2.IMREAD_COLOR)
        image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
        return torch.from_numpy(cv2.resize(image, (24, 20))).permute(2, 0, 1), self.labels[i]
