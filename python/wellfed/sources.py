"""Where samples come from. Each function opens a source and gives a `wellfed.Dataset`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from . import _arguments as check
from . import _native
from ._features import described
from ._ragged import Ragged
from ._steps.program import name_of
from .dataset import Dataset

if TYPE_CHECKING:
    from ._steps.stream import StreamDataset

__all__ = [
    "annotated_images",
    "cifar10",
    "cifar100",
    "coco_detection",
    "encoded_images",
    "from_dataset",
    "from_generator",
    "from_tensor_slices",
    "image_files",
    "image_folder",
    "mnist",
    "tfrecord",
    "voc_segmentation",
    "webdataset",
]

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
StorageOptions = Mapping[str, Any] | None


def _open(kind: str, **parameters: Any) -> Dataset:
    given = {k: v for k, v in parameters.items() if v is not None}
    return Dataset(_native.Dataset.open(check.to_json({"type": kind, **given})))


def image_folder(
    root: Path,
    *,
    labels: Literal["folders"] | None = "folders",
    extensions: str | Sequence[str] | None = None,
    allow_empty: bool = False,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Images in folders. Samples are (image, label), sorted as torchvision's ``ImageFolder`` sorts them.

    Args:
        root: A folder with one folder per class: a path or URL. Or a zip archive, or a folder in one
            (``photos.zip!/train``). Or a pattern such as ``photos/**/*.jpg``, which gives images without labels.
        labels: ``"folders"``; or None for images without labels, from ``root`` and all folders below it.
        extensions: Ends of names to take, such as ``[".jpg"]``, or one. None: those of torchvision; any, with a
            pattern.
        allow_empty: Accept classes without images.
        storage_options: What the store of a URL needs to know, as fsspec and pandas call it: ``endpoint_url``,
            ``region``, ``anon``, ``key``, ``secret``, ``profile`` and others.

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
    return _class_folders("image_folder", root, labels, extensions, allow_empty, storage_options)


def _class_folders(
    source: str, root: Path, labels: Any, extensions: Any, allow_empty: bool, storage_options: StorageOptions
) -> Dataset:
    """Folders of images or sounds, one for each class."""
    if labels not in ("folders", None):
        raise ValueError(f"labels is {labels!r}; it must be 'folders' or None")
    return _open(
        source,
        root=check.url(root, "root", storage_options),
        labels="folders" if labels else "none",
        extensions=None if extensions is None else check.names(extensions, "extensions"),
        allow_empty=bool(allow_empty),
    )


def image_files(
    paths: Iterable[Path | bytes], labels: Any = None, *, storage_options: StorageOptions = None
) -> Dataset:
    """Image files by their paths, in the order given. Samples are (image, label), or images without ``labels``.

    For lists that somebody else made: a file of names, a table, a data set of torchvision. Files are looked at when
    they are read; one that is missing is an error of its sample. A million paths take little more than their text.

    Args:
        paths: Any number of paths, or of URLs in one store. A file may occur more than once.
        labels: Whole numbers, one for each path.
        storage_options: As of `image_folder`.

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
    text, count = _text(paths)
    held = [(text, "uint8"), *_whole_numbers(labels)]
    return _open_arrays(
        "files", held, count=count, labels=labels is not None, **_storage(text, storage_options)
    )


def _storage(text: npt.NDArray[np.uint8], storage_options: StorageOptions) -> dict[str, str]:
    """Options for the store of listed files, on a URL of its scheme."""
    if storage_options is None or not len(text):
        return {}
    first = bytes(text[: 1 << 16]).split(b"\0")[0].decode(errors="replace")
    scheme, mark, _ = first.partition("://")
    return {"storage": check.url(f"{scheme}{mark}" if mark else first, "paths", storage_options)}


def _text(paths: Iterable[Path | bytes], kind: str = "image") -> tuple[npt.NDArray[np.uint8], int]:
    """Paths in one text, with a zero byte between each two, and how many there are."""
    if isinstance(paths, str | bytes | os.PathLike):
        raise TypeError(
            f"{kind}_files takes a list of paths\nhint: {kind}_folder takes a folder or a pattern"
        )
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
    return _bytes(text), len(listed)


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
    return _encoded(chunks, starts, labels, {})


def _encoded(chunks: list[Any], starts: list[Any], labels: Any, more: dict[str, Any]) -> Dataset:
    held, count = [], 0
    for chunk, rows in zip(chunks, starts, strict=True):
        held += [(_bytes(chunk), "uint8"), *_whole_numbers(rows)]
        count += max(len(held[-1][0]) - 1, 0)
    held += _whole_numbers(labels)
    return _open_arrays("encoded", held, count=count, chunks=len(chunks), labels=labels is not None, **more)


def _encoded_sounds(data: list[Any], offsets: list[Any]) -> Dataset:
    """Encoded sounds that lie in memory, as `encoded_images` has images."""
    return _encoded(data, offsets, None, {"sounds": True})


def annotated_images(
    paths: Iterable[Path | bytes],
    *,
    masks: Iterable[Path | bytes] | None = None,
    mask_dtype: Literal["uint8", "uint16", "bool"] = "uint8",
    mask_mode: Literal["L"] | None = None,
    boxes: Sequence[Any] | None = None,
    box_format: Literal["XYXY", "XYWH", "CXCYWH"] = "XYXY",
    box_dtype: Literal["float32", "int64"] = "float32",
    labels: Sequence[Any] | None = None,
    keypoints: Sequence[Any] | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Image files with masks, boxes and points that follow their image. Samples are dicts: ``image`` and what is given.

    Args:
        paths: Images: paths, or URLs in one store.
        masks: For each image its mask: a PNG of one channel, with a palette or in grey.
        mask_dtype: uint8 for palettes and 8-bit grey, uint16 for 16-bit grey, bool for one bit. A batch of masks is an
            array ``[n, 1, height, width]``.
        mask_mode: "L" takes any image as a mask, and turns it into 8-bit grey as Pillow's ``convert("L")`` does: then
            indices of palettes are not kept.
        boxes: For each image its boxes, ``[n, 4]`` in pixels, any number of them. A batch of boxes is a list of
            arrays.
        box_format: What the four numbers are: ``XYXY`` (left, top, right, bottom), ``XYWH``, ``CXCYWH``.
        box_dtype: int64 for boxes of whole numbers: transforms truncate them as torchvision does.
        labels: For each image one whole number a box.
        keypoints: For each image its points, ``[n, 2]`` in pixels.
        storage_options: As of `image_folder`, for images and masks.

    Raises:
        ValueError: Numbers of entries differ, or a path is empty or not UTF-8.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> from PIL import Image
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> Image.new("RGB", (40, 30)).save(folder / "a.png")
        >>> ds = wf.annotated_images([folder / "a.png"], boxes=[[[0, 0, 10, 20]]], labels=[[3]])
        >>> batch = next(iter(ds.map(wf.transforms.Resize((60, 80))).batch(1).numpy()))
        >>> batch["image"].shape, batch["boxes"][0].tolist(), batch["labels"][0].tolist()
        ((1, 3, 60, 80), [[0.0, 0.0, 20.0, 40.0]], [3])
    """
    text, count = _text(paths)
    held, fields = [(text, "uint8")], []
    if masks is not None:
        held.append((_text(masks)[0], "uint8"))
        if mask_mode not in (None, "L"):
            raise ValueError(f"mask_mode is {mask_mode!r}; it must be 'L' or None")
        grey = {"grey": True} if mask_mode else {}
        fields.append({"name": "mask", "kind": {"mask": {"dtype": mask_dtype, **grey}}})
    if boxes is not None:
        held += _rows(boxes, np.dtype(box_dtype), 4)
        fields.append({"name": "boxes", "kind": {"boxes": {"format": box_format, "dtype": box_dtype}}})
    if labels is not None:
        held += _rows(labels, np.int64, 0)
        fields.append({"name": "labels", "kind": {"box_labels": {"dtype": "int64"}}})
    if keypoints is not None:
        held += _rows(keypoints, np.float32, 2)
        fields.append({"name": "keypoints", "kind": "keypoints"})
    return _open_arrays("annotated", held, count=count, fields=fields, **_storage(text, storage_options))


def _rows(given: Sequence[Any], dtype: Any, width: int) -> list[tuple[npt.NDArray[Any], str]]:
    """Rows of all images, and after how many rows each image's end."""
    shape = (-1, width) if width else (-1,)
    arrays = [np.asarray(rows, dtype).reshape(shape) for rows in given]
    ends = np.cumsum([len(rows) for rows in arrays], dtype=np.int64)
    rows = np.concatenate(arrays) if arrays else np.empty((0, width) if width else 0, dtype)
    return [(np.ascontiguousarray(rows), np.dtype(dtype).name), (ends, "int64")]


def voc_segmentation(
    root: Path, year: str = "2012", image_set: str = "train", *, storage_options: StorageOptions = None
) -> Dataset:
    """Photographs with masks in the layout of Pascal VOC. Samples are (image, mask).

    Masks keep the indices of their palette: a class a pixel, 255 where there is none. Transforms move image and mask
    together; a batch of masks is an array ``[n, 1, height, width]``.

    Args:
        root: A path or URL. The folder that the archive was unpacked in (with ``VOCdevkit``), or one that holds
            ``JPEGImages``, ``SegmentationClass`` and ``ImageSets/Segmentation`` itself.
        year: ``"2007"`` to ``"2012"``.
        image_set: Name of the list: ``"train"``, ``"val"``, ``"trainval"``, ``"test"``.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: There is no such folder or list.
    """
    url = check.url(root, "root", storage_options)
    return _open("voc_segmentation", root=url, year=str(year), image_set=image_set)


def coco_detection(
    root: Path,
    annFile: Path,  # noqa: N803 (torchvision's name)
    *,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Photographs with boxes in the layout of COCO. Samples are (image, target), in the order of the images' ids.

    A target is a dict: ``boxes``, float32 ``[n, 4]`` (left, top, right, bottom); ``labels``, int64 ``[n]``, ids of
    categories; ``iscrowd``, int64 ``[n]``; ``image_id``. An image without annotations has no boxes. In a batch boxes,
    labels and iscrowd are lists of arrays. Segmentations, keypoints and captions are not read.

    Args:
        root: The folder of images: a path or URL.
        annFile: The JSON file: a path or URL.
        storage_options: As of `image_folder`, for those of both that are URLs.

    Raises:
        FileNotFoundError: There is no such file.
        CorruptSampleError: It is no such JSON.
    """
    places = [check.path(root, "root"), check.path(annFile, "annFile")]
    # One of them may be local.
    far = [place for place in places if "://" in place] if storage_options is not None else []
    root, annFile = (check.url(place, "root", storage_options) if place in far else place for place in places)  # noqa: N806
    return _open("coco_detection", root=root, annotations=annFile)


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
    array, dtype = as_array(list(values) if isinstance(values, tuple) else values)
    if not len(array):
        array = array.astype(np.int64)
    if array.dtype.kind not in "iu" or array.ndim != 1:
        raise TypeError(
            f"labels and offsets must be whole numbers in one dimension, not {dtype} {array.shape}"
        )
    return [(_int64(array, "labels and offsets"), "int64")]


def webdataset(
    urls: Path | Sequence[Path],
    *,
    fields: str | Sequence[str] | None = None,
    index: Literal["memory", "sidecar"] = "memory",
    unpack_to: Path | None = None,
    storage_options: StorageOptions = None,
) -> Dataset:
    """Samples in tar shards or zip archives: files of one key are one sample, their extensions are its fields.

    Shards are indexed once, in parallel, so that access is random and the order is shuffled globally. The directory of
    a zip archive is its index; its files, stored or deflated, are checked by their CRC-32.

    Images (jpg, png and others) and sounds (wav, flac, mp3, ogg, oga, opus, m4a, aac, aif, aiff) are decoded, as those
    of `image_folder` and `audio_folder`.

    Args:
        urls: Shards: paths or URLs with braces (``train-{0000..0099}.tar``) or stars.
        fields: Extensions to take, in order; samples are tuples of them, also of one. ``"jpg;png"`` is one
            field, found under either extension. None: samples are dicts of ``__key__`` and their fields, which must
            be the same in all.
        index: An index that lies beside a shard and fits it is used; others are indexed. ``"memory"`` (default) keeps
            what it found in memory, ``"sidecar"`` in an index file beside each shard, for the next run.
        unpack_to: A folder on local disk that compressed shards (``.tar.gz``, ``.tar.zst``) are unpacked into, each
            once: such a stream cannot be entered in its middle. Unpacked files stay there and are used again as
            long as the shard has the same size and time of change.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A shard does not exist.
        ValueError: Samples differ in their fields, and ``fields`` does not say which to take; or some shards are
            compressed, and others are not.
        wellfed.UnsupportedSampleError: A shard is compressed, and there is no ``unpack_to``.

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
    return _open(
        "webdataset",
        urls=_urls(urls, storage_options),
        fields=None if fields is None else check.names(fields, "fields"),
        index=index,
        unpack_to=None if unpack_to is None else check.path(unpack_to, "unpack_to"),
    )


def _urls(given: Path | Sequence[Path], storage_options: StorageOptions, name: str = "urls") -> list[str]:
    """Paths or URLs, each perhaps several with ``::`` between them, with the options of their store."""
    paths = [given] if isinstance(given, str | bytes | os.PathLike) else list(given)
    texts = [check.path(path, name) for path in paths]
    if storage_options is None:
        return texts
    return ["::".join(check.url(url, name, storage_options) for url in text.split("::")) for text in texts]


def tfrecord(
    paths: Path | Sequence[Path],
    features: Mapping[str, Any] | None = None,
    *,
    sequence_features: Mapping[str, Any] | None = None,
    images: str | Sequence[str] = (),
    fields: str | Sequence[str] | None = None,
    compression: Literal["auto", "GZIP", "ZLIB", ""] | None = "auto",
    unpack_to: Path | None = None,
    index: Literal["memory", "sidecar"] = "memory",
    storage_options: StorageOptions = None,
) -> Dataset:
    """Records of TFRecord files: samples are their features, or without ``features`` their bytes.

    Files are indexed once, in parallel, so that access is random and the order is shuffled globally. All checksums are
    checked. TensorFlow is not needed.

    Args:
        paths: Files: paths or URLs with braces or stars (``train-*.tfrecord``).
        features: What ``tf.io.parse_example`` takes: names with `FixedLenFeature`, `VarLenFeature`, `RaggedFeature` or
            `FixedLenSequenceFeature`, wellfed's or TensorFlow's. Samples are dicts of them.
        sequence_features: Those of the feature lists of a ``tf.train.SequenceExample``, each a
            `FixedLenSequenceFeature`; ``features`` are then those of its context. Samples are pairs of both dicts.
        images: Names of features of dtype string that are encoded images. In wellfed's own features dtype
            ``"image"`` says the same.
        fields: Names of features to take, in order; samples are tuples of them, also of one. ``__key__`` and
            ``__url__`` are texts: where a record lies.
        compression: ``"auto"`` looks into the files; ``"GZIP"`` and ``"ZLIB"`` as TensorFlow calls them; None or ``""``
            for plain files.
        unpack_to: The folder that compressed files are unpacked into, once. They have no positions, and are refused
            without it.
        index: As of `webdataset`.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file does not exist.
        ValueError: A feature is of a form that is not supported.
        wellfed.UnsupportedSampleError: A file is compressed, and there is no ``unpack_to``.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "one.tfrecord"
        >>> header, record, crc = bytes.fromhex("0300000000000000b099490e"), b"abc", bytes.fromhex("6e57f121")
        >>> written = path.write_bytes(header + record + crc)
        >>> next(iter(wf.tfrecord(path).batch(1).numpy()))
        [b'abc']
        >>> features = {"label": wf.FixedLenFeature([], "int64"), "image": wf.FixedLenFeature([], "image")}
        >>> len(wf.tfrecord(path, features))
        1
    """
    known = {"auto": "auto", None: "none", "": "none", "GZIP": "gzip", "ZLIB": "zlib"}
    if compression not in known:
        raise ValueError(f"compression is {compression!r}; it must be 'auto', 'GZIP', 'ZLIB' or None")
    pictures = check.names(images, "images")
    unknown = [name for name in pictures if name not in (features or {})]
    if unknown:
        raise ValueError(f"images has {unknown[0]!r}, which is not among the features")
    return _open(
        "tfrecord",
        urls=_urls(paths, storage_options, "paths"),
        features=described(features, "features", pictures),
        sequence_features=described(sequence_features, "sequence_features", ()),
        fields=None if fields is None else check.names(fields, "fields"),
        compression=known[compression],
        unpack_to=None if unpack_to is None else check.path(unpack_to, "unpack_to"),
        index=index,
    )


def streamed_shards(paths: Sequence[str], fields: Sequence[str]) -> tuple[Dataset, list[range]]:
    """Tar shards as `webdataset` reads them, and the numbers of the samples of each.

    Raises:
        wellfed.UnsupportedSampleError: A stream over one of them, as of the library of that name, has other samples.
    """
    dataset = _open("webdataset", urls=list(paths), fields=list(fields), index="memory", as_streamed=True)
    return dataset, [range(start, end) for start, end in dataset._native.parts()]


def cifar10(root: Path, train: bool = True, *, storage_options: StorageOptions = None) -> Dataset:
    """CIFAR-10, binary or Python version. Samples are (image, label).

    Both versions are the same data set. The Python version is what torchvision downloads; its pickles are read as data,
    and nothing in them is run.

    Args:
        root: The folder with ``data_batch_1.bin`` or ``data_batch_1`` and its siblings, or the one above it, such as
            torchvision's ``root``: a path or URL. Of both versions the binary one is read.
        train: The 50,000 training images, or the 10,000 test images.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file is missing.
        wellfed.CorruptSampleError: A file is damaged, or is no such file.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> written = (root / "test_batch.bin").write_bytes(bytes([3]) + bytes(3072))
        >>> image, label = wf.cifar10(root, train=False).sample(0)
        >>> image.shape, int(label)
        ((3, 32, 32), 3)
    """
    return _open("cifar10", root=check.url(root, "root", storage_options), train=bool(train))


def cifar100(
    root: Path,
    train: bool = True,
    labels: Literal["fine", "coarse"] = "fine",
    *,
    storage_options: StorageOptions = None,
) -> Dataset:
    """CIFAR-100, binary or Python version, read as `cifar10` is. Samples are (image, label).

    Args:
        root: The folder with ``train.bin`` and ``test.bin``, or ``train`` and ``test``, or the one above it: a path or
            URL.
        train: The 50,000 training images, or the 10,000 test images.
        labels: The 100 fine classes, or the 20 coarse ones.
        storage_options: As of `image_folder`.

    Raises:
        FileNotFoundError: A file is missing.
        wellfed.CorruptSampleError: A file is damaged, or is no such file.

    Example:
        >>> import pathlib, tempfile
        >>> import wellfed as wf
        >>> root = pathlib.Path(tempfile.mkdtemp())
        >>> written = (root / "test.bin").write_bytes(bytes([3, 42]) + bytes(3072))
        >>> int(wf.cifar100(root, train=False).sample(0)[1])
        42
    """
    url = check.url(root, "root", storage_options)
    return _open("cifar100", root=url, train=bool(train), label=labels)


def mnist(root: Path, train: bool = True, *, storage_options: StorageOptions = None) -> Dataset:
    """MNIST, or a data set of its form, as IDX files, plain or ``.gz``. Samples are (image, label).

    Args:
        root: The folder with ``train-images-idx3-ubyte`` and its siblings: a path or URL.
        train: The training images, or the test images.
        storage_options: As of `image_folder`.

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
    return _open("mnist", root=check.url(root, "root", storage_options), train=bool(train))


def from_tensor_slices(tensors: Any, *, pixels: Literal["infer", "hwc", "chw", "never"] = "infer") -> Dataset:
    """Samples are the rows of arrays in memory.

    Arrays that are contiguous are used where they lie, without a copy: do not change them meanwhile. Others, and
    lists of numbers, are copied once. One-dimensional arrays are single numbers; those of int64 are labels.

    Rows that differ in length (tokens, points, sounds) are given as `Ragged`, which is used where it lies, or as a
    list of arrays, which is copied once. Batch them with `Dataset.padded_batch`, `Dataset.ragged_batch`,
    `Dataset.bucket_by_sequence_length` or `Dataset.batch_by_tokens`.

    Args:
        tensors: A NumPy array, torch CPU tensor, `Ragged` or list; or tuples and dicts of them, nested at will, of
            equal length. Samples have the same structure.
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
        >>> texts = [np.arange(3), np.arange(1), np.arange(2)]
        >>> tokens, label = next(iter(wf.from_tensor_slices((texts, np.arange(3))).padded_batch(2).numpy()))
        >>> tokens.tolist()
        [[0, 1, 2], [0, 0, 0]]
    """
    if pixels not in ("infer", "hwc", "chw", "never"):
        raise ValueError(f"pixels is {pixels!r}; it must be 'infer', 'hwc', 'chw' or 'never'")
    fields: list[dict[str, Any]] = []
    held: list[tuple[npt.NDArray[Any], str]] = []

    def field(value: Any, name: str) -> dict[str, Any]:
        rows = _ragged(value)
        parts = _ragged_parts(rows) if rows is not None else [as_array(value)]
        array, dtype = parts[0]
        spec: dict[str, Any] = {"name": name, "dtype": dtype, "shape": list(array.shape), "pixels": "infer"}
        if len(parts) == 2:
            spec["shape"] = [len(parts[1][0]) - 1, None, *array.shape[1:]]
            spec["values"] = len(array)
        if pixels == "never" or (dtype == "uint8" and len(spec["shape"]) in (3, 4)):
            spec["pixels"] = pixels
        fields.append(spec)
        held.extend(parts)
        return {"field": len(fields) - 1}

    spec = {"type": "tensor_slices", "structure": _structure(tensors, "", field), "fields": fields}
    return Dataset(_native.Dataset.open(check.to_json(spec), held), [[_keep(*pair) for pair in held]])


def _structure(value: Any, name: str, field: Callable[[Any, str], dict[str, Any]]) -> dict[str, Any]:
    """How samples are nested; `field` takes what is in them, with its name.

    No function inside of another one, which would know itself and so keep the arrays until they are collected.
    """
    inner = f"{name}." if name else ""
    if isinstance(value, Mapping):
        named = {str(key): item for key, item in value.items()}
        if len(named) != len(value):
            raise ValueError("two fields have the same name")
        return {"dict": [[key, _structure(item, inner + key, field)] for key, item in named.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_structure(item, f"{inner}{i}", field) for i, item in enumerate(value)]}
    return field(value, name or "0")


def _ragged(value: Any) -> Ragged | None:
    """`value` if its rows may differ in length; a list of arrays or lists that do is put together."""
    if isinstance(value, Ragged):
        return value
    if not isinstance(value, list) or not value:
        return None
    if not all(hasattr(item, "__len__") and not isinstance(item, str | bytes | Mapping) for item in value):
        return None
    if len({len(item) for item in value}) == 1:
        return None
    return Ragged.from_arrays(_detached(item) for item in value)


def _detached(value: Any) -> Any:
    """What NumPy can look into: a tensor without its gradient."""
    return value.detach() if type(value).__module__.partition(".")[0] == "torch" else value


def _ragged_parts(rows: Ragged) -> list[tuple[npt.NDArray[Any], str]]:
    """Values and offsets."""
    offsets, dtype = as_array(rows.offsets)
    if offsets.dtype.kind not in "iu" or offsets.ndim != 1:
        raise TypeError(f"offsets must be whole numbers in one dimension, not {dtype} {list(offsets.shape)}")
    return [as_array(rows.values), (_int64(offsets, "offsets"), "int64")]


def _int64(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.int64]:
    """Whole numbers as int64, in which none of them may become another one."""
    if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise ValueError(
            f"{what} go up to {int(array.max())}, but int64 ends at {np.iinfo(np.int64).max}\n"
            "hint: from_tensor_slices keeps uint64 as it is"
        )
    return np.ascontiguousarray(array, np.int64)


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
        raise TypeError("an array is wanted, not a tuple or dict")
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
    if array.dtype == np.float64 and isinstance(value, list) and all(type(item) is int for item in value):
        # NumPy makes floats of a list with numbers above int64 and smaller ones.
        try:
            array = np.asarray(value, np.uint64)
        except OverflowError:
            raise ValueError(
                "a list has whole numbers above int64 and below 0, and no dtype holds both"
            ) from None
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


def from_dataset(dataset: Any) -> Dataset | StreamDataset:
    """Samples of a data set of torch's, or of anything else that has ``len()`` and takes whole numbers in brackets.

    They are made in worker processes; the order, states and errors are as of every source. An ``IterableDataset`` is a
    stream, as of `from_generator`.

    Args:
        dataset: Map-style or iterable. It is sent to the workers as torch's ``DataLoader`` does it.

    Example:
        >>> import wellfed as wf
        >>> ds = wf.from_dataset(["a", "b", "c"]).shuffle(seed=1).map(str.upper).batch(3)
        >>> sorted(next(iter(ds.numpy(num_workers=0))))
        ['A', 'B', 'C']
    """
    name = type(dataset).__name__
    if not hasattr(dataset, "__getitem__") or _is_iterable_kind(dataset):
        if not hasattr(dataset, "__iter__"):
            raise TypeError(
                f"from_dataset takes a data set, not {name}: it has neither __getitem__ nor __iter__"
            )
        return _stream(dataset.__iter__, name)
    if not hasattr(dataset, "__len__"):
        raise TypeError(f"{name} has no len()\nhint: from_generator takes what has no index or no length")
    spec = {"type": "python", "name": name, "count": len(dataset)}
    return Dataset(_native.Dataset.open(check.to_json(spec)), steps=[dataset])


def from_generator(generator: Callable[[], Iterable[Any]]) -> StreamDataset:
    """Elements of a generator, as they come: a stream, which has no index.

    Args:
        generator: A function that gives an iterable; called at the beginning of each pass, in a worker process. What it
            draws from `random`, NumPy and torch is seeded by the number of the element and the epoch.

    Example:
        >>> import wellfed as wf
        >>> def squares():
        ...     for n in range(5):
        ...         yield n * n
        >>> [batch.tolist() for batch in wf.from_generator(squares).batch(3).numpy(num_workers=0)]
        [[0, 1, 4], [9, 16]]
    """
    if not callable(generator):
        raise TypeError(
            f"from_generator takes a function that gives an iterable, not {generator!r}\nhint: a generator that runs "
            "already could be gone through only once; give the function that makes it"
        )
    return _stream(generator, name_of(generator))


def _stream(make: Callable[[], Iterable[Any]], name: str) -> StreamDataset:
    from ._steps.stream import StreamDataset

    return StreamDataset(make, name)


def _is_iterable_kind(dataset: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(dataset, torch.utils.data.IterableDataset)
