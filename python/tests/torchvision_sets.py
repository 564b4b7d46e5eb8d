"""torchvision's data sets over tiny files, each built by its own constructor."""

from __future__ import annotations

import csv
import json
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from torchvision import datasets

from pictures import picture

COUNT = 6


def _jpeg(path: Path, seed: int, height: int = 40, width: int = 52) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture(seed, height, width)).save(path, quality=90)


def _folders(root: Path, classes: tuple[str, ...] = ("ant", "bee"), count: int = COUNT) -> Path:
    for i in range(count):
        _jpeg(root / classes[i % len(classes)] / f"{i}.jpg", i, 40 + i, 52 - i)
    return root


def image_folder(root: Path, **extra: Any) -> Any:
    return datasets.ImageFolder(_folders(root / "x"), **extra)


def dataset_folder(root: Path, **extra: Any) -> Any:
    from torchvision.datasets.folder import default_loader

    return datasets.DatasetFolder(str(_folders(root / "x")), default_loader, extensions=(".jpg",), **extra)


def country211(root: Path, **extra: Any) -> Any:
    _folders(root / "country211" / "train")
    return datasets.Country211(root, **extra)


def eurosat(root: Path, **extra: Any) -> Any:
    _folders(root / "eurosat" / "2750")
    return datasets.EuroSAT(str(root), **extra)


def food101(root: Path, **extra: Any) -> Any:
    base = root / "food-101"
    _folders(base / "images")
    (base / "meta").mkdir()
    (base / "meta" / "train.json").write_text(
        json.dumps({"ant": ["ant/0", "ant/2"], "bee": ["bee/1", "bee/3"]})
    )
    return datasets.Food101(root, **extra)


def dtd(root: Path, **extra: Any) -> Any:
    base = root / "dtd" / "dtd"
    _folders(base / "images")
    (base / "labels").mkdir()
    (base / "labels" / "train1.txt").write_text("ant/0.jpg\nbee/1.jpg\nant/2.jpg\n")
    return datasets.DTD(root, **extra)


def aircraft(root: Path, **extra: Any) -> Any:
    data = root / "fgvc-aircraft-2013b" / "data"
    for i in range(4):
        _jpeg(data / "images" / f"{i:07d}.jpg", i)
    (data / "variants.txt").write_text("A\nB\n")
    (data / "images_variant_trainval.txt").write_text("".join(f"{i:07d} {'AB'[i % 2]}\n" for i in range(4)))
    return datasets.FGVCAircraft(str(root), **extra)


def flowers(root: Path, **extra: Any) -> Any:
    scipy_io = pytest.importorskip("scipy.io")
    base = root / "flowers-102"
    for i in range(1, 5):
        _jpeg(base / "jpg" / f"image_{i:05d}.jpg", i)
    scipy_io.savemat(base / "imagelabels.mat", {"labels": np.array([[3, 1, 2, 1]])})
    scipy_io.savemat(base / "setid.mat", {"trnid": np.array([[4, 2, 1]]), "valid": [[3]], "tstid": [[3]]})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
        return datasets.Flowers102(root, **extra)


def sun397(root: Path, **extra: Any) -> Any:
    base = root / "SUN397"
    for i in range(4):
        _jpeg(base / "a" / ("abbey", "zoo")[i % 2] / f"sun_{i}.jpg", i)
    (base / "ClassName.txt").write_text("/a/abbey\n/a/zoo\n")
    return datasets.SUN397(root, **extra)


def pets(root: Path, **extra: Any) -> Any:
    base = root / "oxford-iiit-pet"
    for i in range(4):
        _jpeg(base / "images" / f"Cat_{i}.jpg", i)
    (base / "annotations" / "trimaps").mkdir(parents=True)
    (base / "annotations" / "trainval.txt").write_text(
        "".join(f"Cat_{i} {1 + i % 2} 1 1\n" for i in range(4))
    )
    return datasets.OxfordIIITPet(root, **extra)


def rendered(root: Path, **extra: Any) -> Any:
    for i in range(4):
        path = root / "rendered-sst2" / "train" / ("negative", "positive")[i % 2] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture(i, 40, 52)).save(path)
    return datasets.RenderedSST2(root, **extra)


def imagenette(root: Path, **extra: Any) -> Any:
    for i, wnid in enumerate(sorted(datasets.Imagenette._WNID_TO_CLASS)):
        _jpeg(root / "imagenette2" / "train" / wnid / f"{i}.JPEG", i)
    return datasets.Imagenette(root, **extra)


def gtsrb(root: Path, **extra: Any) -> Any:
    # As unpacked; its files are PPM.
    folder = root / "gtsrb" / "GTSRB" / "Final_Test" / "Images"
    folder.mkdir(parents=True)
    with open(root / "gtsrb" / "GT-final_test.csv", "w", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["Filename", "ClassId"])
        for i in range(4):
            Image.fromarray(picture(i, 30, 31)).save(folder / f"{i:05d}.ppm")
            rows.writerow([f"{i:05d}.ppm", i])
    return datasets.GTSRB(root, split="test", **extra)


def caltech101(root: Path, **extra: Any) -> Any:
    base = root / "caltech101"
    for name in ("ant", "bee"):
        for i in range(1, 4):
            _jpeg(base / "101_ObjectCategories" / name / f"image_{i:04d}.jpg", i)
        (base / "Annotations" / name).mkdir(parents=True)
    (base / "101_ObjectCategories" / "BACKGROUND_Google").mkdir()
    return datasets.Caltech101(root, **extra)


def caltech256(root: Path, **extra: Any) -> Any:
    base = root / "caltech256" / "256_ObjectCategories"
    for y, name in enumerate(("001.ant", "002.bee"), 1):
        for i in range(1, 4):
            _jpeg(base / name / f"{y:03d}_{i:04d}.jpg", i)
    return datasets.Caltech256(root, **extra)


def _cifar(kind: Any, folder: str, files: list[str], key: str, root: Path, **extra: Any) -> Any:
    (root / folder).mkdir()
    for i, name in enumerate(files):
        images = np.stack([picture(10 * i + j, 32, 32).transpose(2, 0, 1).reshape(-1) for j in range(3)])
        (root / folder / name).write_bytes(pickle.dumps({"data": images, key: [i % 10, 1, 2]}))
    meta = kind.meta
    (root / folder / meta["filename"]).write_bytes(pickle.dumps({meta["key"]: [str(i) for i in range(100)]}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchvision.datasets.cifar.check_integrity", lambda *a: True)
        return kind(root, **extra)


def cifar10(root: Path, **extra: Any) -> Any:
    files = [f"data_batch_{i}" for i in range(1, 6)]
    return _cifar(datasets.CIFAR10, "cifar-10-batches-py", files, "labels", root, **extra)


def cifar100(root: Path, **extra: Any) -> Any:
    return _cifar(datasets.CIFAR100, "cifar-100-python", ["train"], "fine_labels", root, **extra)


def _idx(path: Path, array: np.ndarray[Any, Any], kind: int = 8) -> None:
    head = struct.pack(">BBBB", 0, 0, kind, array.ndim) + struct.pack(f">{array.ndim}i", *array.shape)
    path.write_bytes(head + array.astype(">i4" if kind == 0x0C else np.uint8).tobytes())


def _mnist(name: str) -> Callable[..., Any]:
    def build(root: Path, **extra: Any) -> Any:
        raw = root / name / "raw"
        raw.mkdir(parents=True)
        images = np.stack([picture(i, 28, 28, 1)[..., 0] for i in range(5)])
        prefix = "emnist-digits-train-" if name == "EMNIST" else "train-"
        _idx(raw / f"{prefix}images-idx3-ubyte", images)
        _idx(raw / f"{prefix}labels-idx1-ubyte", np.arange(5))
        if name == "EMNIST":
            for rest in ("images-idx3-ubyte", "labels-idx1-ubyte"):
                (raw / f"emnist-digits-test-{rest}").write_bytes((raw / f"{prefix}{rest}").read_bytes())
            extra["split"] = "digits"
        for missing in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
            (raw / missing).write_bytes(b"")
        return getattr(datasets, name)(root, **extra)

    return build


def qmnist(root: Path, **extra: Any) -> Any:
    raw = root / "QMNIST" / "raw"
    raw.mkdir(parents=True)
    _idx(raw / "qmnist-train-images-idx3-ubyte", np.stack([picture(i, 28, 28, 1)[..., 0] for i in range(5)]))
    _idx(raw / "qmnist-train-labels-idx2-int", np.arange(40).reshape(5, 8), 0x0C)
    return datasets.QMNIST(root, what="train", **extra)


def svhn(root: Path, **extra: Any) -> Any:
    scipy_io = pytest.importorskip("scipy.io")
    images = np.stack([picture(i, 32, 32) for i in range(5)], axis=3)
    scipy_io.savemat(
        root / "train_32x32.mat", {"X": images, "y": np.array([[1], [10], [3], [4], [5]], np.uint8)}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.SVHN, "_check_integrity", lambda self: True)
        return datasets.SVHN(root, **extra)


def stl10(root: Path, **extra: Any) -> Any:
    base = root / "stl10_binary"
    base.mkdir()
    images = np.stack([picture(i, 96, 96).transpose(2, 1, 0) for i in range(4)])
    (base / "train_X.bin").write_bytes(images.tobytes())
    (base / "train_y.bin").write_bytes(bytes([1, 2, 3, 10]))
    (base / "class_names.txt").write_text("a\nb\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(datasets.STL10, "_check_integrity", lambda self: True)
        return datasets.STL10(str(root), **extra)


def usps(root: Path, **extra: Any) -> Any:
    import bz2

    lines = []
    for i in range(4):
        values = picture(i, 16, 16, 1).reshape(-1) / 127.5 - 1
        lines.append(f"{i + 1} " + " ".join(f"{j + 1}:{v:.6f}" for j, v in enumerate(values)))
    (root / "usps.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torchvision.datasets.usps.download_url", lambda *a, **k: None)
        return datasets.USPS(root, download=True, **extra)


# Data sets that are read natively whole.
READ = {
    "ImageFolder": image_folder,
    "DatasetFolder": dataset_folder,
    "Country211": country211,
    "EuroSAT": eurosat,
    "Food101": food101,
    "DTD": dtd,
    "FGVCAircraft": aircraft,
    "Flowers102": flowers,
    "SUN397": sun397,
    "OxfordIIITPet": pets,
    "RenderedSST2": rendered,
    "Imagenette": imagenette,
    "GTSRB": gtsrb,
    "CIFAR10": cifar10,
    "CIFAR100": cifar100,
    "MNIST": _mnist("MNIST"),
    "FashionMNIST": _mnist("FashionMNIST"),
    "KMNIST": _mnist("KMNIST"),
    "EMNIST": _mnist("EMNIST"),
    "QMNIST": qmnist,
    "SVHN": svhn,
    "STL10": stl10,
    "USPS": usps,
}

# Those whose images keep the mode of their file.
ANY_MODE = {"Caltech101": caltech101, "Caltech256": caltech256}

__all__ = ["ANY_MODE", "READ"]
