"""Where samples come from. Each function opens a source and gives a `wellfed.Dataset`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _arguments as check
from . import _native
from .dataset import Dataset

__all__ = [
    "cifar10",
    "cifar100",
    "encoded_images",
    "from_tensor_slices",
    "image_files",
    "image_folder",
    "mnist",
    "webdataset",
]

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def _open(kind: str, **parameters: Any) -> Dataset:
    given = {k: v for k, v in parameters.items() if v is not None}
    return Dataset(_native.Dataset.open(check.to_json({"type": kind, **given})))


def image_folder(
    root: Path,
    *,
    labels: Literal["folders"] | None = "folders",
    extensions: str | Sequence[str] | None = None,
    allow_empty: bool = False,
) -> Dataset:
    """Images in folders. Samples are (image, label), sorted as torchvision's ``ImageFolder`` sorts them.

    Args:
        root: A folder with one folder per class. Or a pattern such as ``photos/**/*.jpg``, which gives images
            without labels.
        labels: ``"folders"``; or None for images without labels, from ``root`` and all folders below it.
        extensions: Ends of names to take, such as ``[".jpg"]``, or one. None: those of torchvision; any, with a pattern.
        allow_empty: Accept classes without images.

    Raises:
        FileNotFoundError: There is no such folder, it has no class folders, or a class has no images.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("cat", "dog"):
        ...     (root / name).mkdir()
        ...     written = (root / name / "1.png").write_bytes(b"")  # files are only listed here
        >>> ds = wf.image_folder(root)
        >>> len(ds), ds.classes, ds.class_to_idx
        (2, ['cat', 'dog'], {'cat': 0, 'dog': 1})
    """
    if labels not in ("folders", None):
        raise ValueError(f"labels is {labels!r}; it must be 'folders' or None")
    return _open(
        "image_folder",
        root=check.path(root, "root"),
        labels="folders" if labels else "none",
        extensions=None if extensions is None else check.names(extensions, "extensions"),
        allow_empty=bool(allow_empty),
    )


def image_files(paths: Iterable[Path | bytes], labels: Any = None) -> Dataset:
    """Image files by their paths, in the order given. Samples are (image, label), or images without ``labels``.

    For lists that somebody else made: a file of names, a table, a data set of torchvision. Files are looked at when
    they are read; one that is missing is an error of its sample. A million paths take little more than their text.

    Args:
        paths: Any number of them. A file may occur more than once.
        labels: Whole numbers, one for each path.

    Raises:
        ValueError: Paths and labels differ in number, or a path is empty or not UTF-8.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for name in ("b.png", "a.png"):
        ...     Image.new("RGB", (4, 3)).save(folder / name)
        >>> ds = wf.image_files([folder / "b.png", folder / "a.png"], labels=[7, 3])
        >>> image, label = ds.sample(1)
        >>> image.shape, int(label)
        ((3, 3, 4), 3)
    """
    if isinstance(paths, str | bytes | os.PathLike):
        raise TypeError("image_files takes a list of paths\nhint: image_folder takes a folder or a pattern")
    listed = list(paths)
    # One text instead of a million strings: it is joined, checked and handed over at once.
    try:
        joined = "\0".join(listed)  # type: ignore[arg-type]
    except TypeError:
        joined = "\0".join(map(os.fsdecode, listed))
    try:
        text = joined.encode()
    except UnicodeEncodeError as e:
        index = joined.count(chr(0), 0, e.start)
        raise ValueError(f"path {index} is not UTF-8\nhint: rename it, for example with convmv") from None
    held = [(_bytes(text), "uint8"), *_whole_numbers(labels)]
    return _open_arrays("files", held, count=len(listed), labels=labels is not None)


def encoded_images(data: Any, offsets: Any, labels: Any = None) -> Dataset:
    """Encoded images (JPEG, PNG) that lie in memory: image ``i`` is ``data[offsets[i]:offsets[i + 1]]``.

    This is how Arrow stores a column of bytes, so that of a Parquet file or a Hugging Face data set can be used where
    it lies, without a copy, also if the memory is a file that is mapped. It is kept alive. Do not change it meanwhile.

    Args:
        data: Anything with the buffer protocol (bytes, a NumPy array, a ``pyarrow.Buffer``) or a uint8 torch tensor;
            or a list of them, one for each chunk.
        offsets: Whole numbers, one more than there are images; a list of such arrays if ``data`` is a list. int64 is
            used as it is, other types are copied.
        labels: Whole numbers, one for each image. Samples are (image, label), or images without.

    Raises:
        ValueError: Offsets fall or point outside of the data, or numbers of images and labels differ.

    Example:
        >>> import io
        >>> import wellfed as wf
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 3)).save(file, "png")
        >>> png = file.getvalue()
        >>> ds = wf.encoded_images(png + png, [0, len(png), 2 * len(png)], labels=[7, 3])
        >>> next(iter(ds.batch(2).numpy()))[0].shape
        (2, 3, 3, 4)
    """
    chunked = isinstance(data, list | tuple)
    chunks, starts = (list(data), list(offsets)) if chunked else ([data], [offsets])
    if len(chunks) != len(starts):
        raise ValueError(f"data has {len(chunks)} chunks, but there are offsets for {len(starts)}")
    held, count = [], 0
    for chunk, rows in zip(chunks, starts):
        held += [(_bytes(chunk), "uint8"), *_whole_numbers(rows)]
        count += max(len(held[-1][0]) - 1, 0)
    held += _whole_numbers(labels)
    return _open_arrays("encoded", held, count=count, chunks=len(chunks), labels=labels is not None)


def _open_arrays(kind: str, held: list[tuple[npt.NDArray[Any], str]], **parameters: Any) -> Dataset:
    native = _native.Dataset.open(check.to_json({"type": kind, **parameters}), held)
    return Dataset(native, [[array for array, _ in held]])


def _bytes(data: Any) -> npt.NDArray[np.uint8]:
    """The bytes of a buffer where they lie."""
    if isinstance(data, np.ndarray) or hasattr(data, "detach"):
        array, dtype = as_array(data)
        if dtype != "uint8" or array.ndim != 1:
            raise TypeError(
                f"data must be bytes, or uint8 in one dimension, not {dtype} of shape {array.shape}"
            )
        return array
    view = memoryview(data)
    return np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)


def _whole_numbers(values: Any) -> list[tuple[npt.NDArray[Any], str]]:
    """An int64 array, or nothing for None."""
    if values is None:
        return []
    array, dtype = as_array(values)
    if not len(array):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(
            f"labels and offsets must be whole numbers in one dimension, not {dtype} {array.shape}"
        )
    return [(np.ascontiguousarray(array, np.int64), "int64")]


def webdataset(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | None = None,
    index: Literal["memory", "sidecar"] = "memory",
) -> Dataset:
    """Samples in tar shards: files of one key belong to one sample, their extensions are its fields.

    Shards are indexed once, in parallel, so that access is random and the order is shuffled globally.

    Args:
        urls: Shards: paths with braces (``train-{0000..0099}.tar``) or stars.
        fields: Extensions to take, in order; samples are tuples of them, also of one. ``"jpg;png"`` is one field, found under
            either extension. None: samples are dicts of ``__key__`` and all fields of the first sample.
        index: ``"memory"`` indexes shards anew each time; ``"sidecar"`` keeps an index file
            beside each shard, and rebuilds it when the shard has changed.

    Raises:
        FileNotFoundError: A shard does not exist.
        wellfed.CorruptSampleError: A shard is no tar file, or is damaged.

    Example:
        >>> import io, pathlib, tarfile, tempfile
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "shard-0.tar"
        >>> with tarfile.open(path, "w") as tar:
        ...     for key in ("a", "b"):
        ...         for extension, data in (("txt", key.encode()), ("cls", b"7")):
        ...             member = tarfile.TarInfo(f"{key}.{extension}")
        ...             member.size = len(data)
        ...             tar.addfile(member, io.BytesIO(data))
        >>> ds = wf.webdataset(path, fields=["txt", "cls"])
        >>> list(ds.batch(2).numpy())
        [(['a', 'b'], array([7, 7]))]
    """
    paths = [urls] if isinstance(urls, str | bytes | os.PathLike) else list(urls)
    return _open(
        "webdataset",
        urls=[check.path(path, "urls") for path in paths],
        fields=None if fields is None else check.names(fields, "fields"),
        index=index,
    )


def cifar10(root: Path, train: bool = True) -> Dataset:
    """CIFAR-10 in its binary form. Samples are (image, label).

    Args:
        root: The folder with ``data_batch_1.bin`` and its siblings, or the one above it.
        train: The 50,000 training images, or the 10,000 test images.

    Raises:
        FileNotFoundError: A file is missing.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> written = (root / "test_batch.bin").write_bytes(bytes([3]) + bytes(3072))
        >>> image, label = wf.cifar10(root, train=False).sample(0)
        >>> image.shape, int(label)
        ((3, 32, 32), 3)
    """
    return _open("cifar10", root=check.path(root, "root"), train=bool(train))


def cifar100(root: Path, train: bool = True, labels: Literal["fine", "coarse"] = "fine") -> Dataset:
    """CIFAR-100 in its binary form. Samples are (image, label).

    Args:
        root: The folder with ``train.bin`` and ``test.bin``, or the one above it.
        train: The 50,000 training images, or the 10,000 test images.
        labels: The 100 fine classes, or the 20 coarse ones.

    Raises:
        FileNotFoundError: A file is missing.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> written = (root / "test.bin").write_bytes(bytes([3, 42]) + bytes(3072))
        >>> int(wf.cifar100(root, train=False).sample(0)[1])
        42
    """
    return _open("cifar100", root=check.path(root, "root"), train=bool(train), label=labels)


def mnist(root: Path, train: bool = True) -> Dataset:
    """MNIST, or a data set of its form, as IDX files, plain or ``.gz``. Samples are (image, label).

    Args:
        root: The folder with ``train-images-idx3-ubyte`` and its siblings.
        train: The training images, or the test images.

    Raises:
        FileNotFoundError: A file is missing.

    Example:
        >>> import pathlib, struct, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> images = struct.pack(">4i", 0x803, 2, 28, 28) + bytes(2 * 28 * 28)
        >>> labels = struct.pack(">2i", 0x801, 2) + bytes([5, 6])
        >>> a = (root / "t10k-images-idx3-ubyte").write_bytes(images)
        >>> b = (root / "t10k-labels-idx1-ubyte").write_bytes(labels)
        >>> image, label = wf.mnist(root, train=False).sample(1)
        >>> image.shape, int(label)
        ((1, 28, 28), 6)
    """
    return _open("mnist", root=check.path(root, "root"), train=bool(train))


def from_tensor_slices(tensors: Any, *, pixels: Literal["infer", "hwc", "chw", "never"] = "infer") -> Dataset:
    """Samples are the rows of arrays in memory.

    Arrays that are contiguous are used where they lie, without a copy: do not change them meanwhile. Others, and
    lists of numbers, are copied once. One-dimensional int64 arrays are labels.

    Args:
        tensors: A NumPy array or torch CPU tensor; or a tuple or dict of them, of equal length. Samples have the
            same structure.
        pixels: Which uint8 arrays are images, that transforms work on. ``"infer"``: ``[n, h, w]``,
            ``[n, h, w, c]`` or ``[n, c, h, w]`` with c of 1, 3 or 4. ``"hwc"`` and ``"chw"`` settle it where both
            fit. ``"never"``: none.

    Raises:
        TypeError: Something is no array of numbers.
        ValueError: Arrays differ in length.

    Example:
        >>> import numpy as np
        >>> import wellfed as wf
        >>> ds = wf.from_tensor_slices({"image": np.zeros((5, 8, 8, 3), np.uint8), "label": np.arange(5)})
        >>> batch = next(iter(ds.batch(5).numpy()))
        >>> batch["image"].shape, batch["label"]
        ((5, 3, 8, 8), array([0, 1, 2, 3, 4]))
    """
    if isinstance(tensors, Mapping):
        structure, named = "dict", {str(name): as_array(tensor) for name, tensor in tensors.items()}
        if len(named) != len(tensors):
            raise ValueError("two fields have the same name")
    elif isinstance(tensors, tuple):
        structure, named = "tuple", {str(i): as_array(tensor) for i, tensor in enumerate(tensors)}
    else:
        structure, named = "single", {"0": as_array(tensors)}
    if pixels not in ("infer", "hwc", "chw", "never"):
        raise ValueError(f"pixels is {pixels!r}; it must be 'infer', 'hwc', 'chw' or 'never'")
    fields = []
    for name, (array, dtype) in named.items():
        image = dtype == "uint8" and array.ndim in (3, 4)
        fields.append(
            {
                "name": name,
                "dtype": dtype,
                "shape": list(array.shape),
                "pixels": pixels if image or pixels == "never" else "infer",
            }
        )
    spec = {"type": "tensor_slices", "fields": fields, "structure": structure}
    held = list(named.values())
    return Dataset(_native.Dataset.open(check.to_json(spec), held), [[_keep(*pair) for pair in held]])


_DTYPES = frozenset(
    [
        "bool",
        "uint8",
        "int8",
        "uint16",
        "int16",
        "uint32",
        "int32",
        "uint64",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
    ]
)


def as_array(value: Any) -> tuple[npt.NDArray[Any], str]:
    """`value` as a contiguous NumPy array, without a copy if it can be, and the name of its dtype."""
    if isinstance(value, Mapping | tuple):
        raise TypeError("arrays may stand in one tuple or dict, not in nested ones")
    if isinstance(value, _BFloat16):
        return value.bits, "bfloat16"
    if type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "detach"):
        if value.device.type != "cpu":
            raise TypeError(f"a tensor is on {value.device}; it must be on the CPU\nhint: use tensor.cpu()")
        tensor = value.detach().contiguous()
        if str(tensor.dtype) == "torch.bfloat16":
            import torch

            return tensor.view(torch.int16).numpy(), "bfloat16"
        value = tensor.numpy()
    array = np.asarray(value)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.name not in _DTYPES:
        raise TypeError(f"an array has dtype {array.dtype}; it must be one of {', '.join(sorted(_DTYPES))}")
    if array.ndim == 0:
        raise ValueError("a single number has no rows to take samples from")
    return np.ascontiguousarray(array), array.dtype.name


class _BFloat16:
    """Elements of bfloat16, which NumPy cannot name, in a form that can be pickled without torch."""

    def __init__(self, bits: npt.NDArray[Any]) -> None:
        self.bits = bits


def _keep(array: npt.NDArray[Any], dtype: str) -> Any:
    return _BFloat16(array) if dtype == "bfloat16" else array
