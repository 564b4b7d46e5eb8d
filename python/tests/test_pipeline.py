"""Whole pipelines on generated data, held against the same work done with torchvision and Pillow."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder
from torchvision.transforms import v2

import wellfed as wf
from pictures import picture
from wellfed import transforms as T


def test_evaluation_equals_torchvision(photos: Path) -> None:
    chain = [
        v2.Resize(40),
        v2.CenterCrop(32),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
    ]
    reference = ImageFolder(str(photos), transform=v2.Compose(chain))
    ds = wf.image_folder(photos).map(
        T.Resize(40),
        T.CenterCrop(32),
        T.ToDtype(torch.float32, scale=True),
        T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD),
    )
    assert ds.classes == reference.classes
    assert ds.class_to_idx == reference.class_to_idx
    assert len(ds) == len(reference)
    images, labels = next(iter(ds.batch(len(ds)).torch()))
    assert images.dtype == torch.float32
    assert labels.dtype == torch.int64
    assert labels.tolist() == reference.targets
    for image, (expected, _) in zip(images, reference):
        assert torch.equal(image, expected)


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_decoding_equals_pillow(photos: Path, mode: Literal["RGB", "L"]) -> None:
    ds = wf.image_folder(photos).with_options(layout="NHWC", mode=mode)
    paths = [path for path, _ in ImageFolder(str(photos)).samples]
    for index in range(len(ds)):
        image, _ = ds.sample(index)
        expected = np.asarray(Image.open(paths[index]).convert(mode))
        np.testing.assert_array_equal(image.reshape(expected.shape), expected, paths[index])


def test_training_equals_torchvision(photos: Path) -> None:
    # A crop of more than the area never fits, so that both take the middle.
    crop = {"size": 32, "scale": (4.0, 4.0), "ratio": (1.0, 1.0)}
    chain = [v2.RandomResizedCrop(**crop), v2.RandomHorizontalFlip(1.0), v2.PILToTensor()]
    reference = ImageFolder(str(photos), transform=v2.Compose(chain))
    ds = wf.image_folder(photos).map(T.RandomResizedCrop(**crop), T.RandomHorizontalFlip(1.0))
    images, _ = next(iter(ds.batch(len(ds)).torch()))
    for image, (expected, _) in zip(images, reference):
        assert torch.equal(image, expected)


def test_fast_decoding_is_near_and_only_on_request(tmp_path: Path) -> None:
    for i in range(4):
        # Whole blocks, so that the smaller image has the same corners.
        image = Image.fromarray(picture(i, 500, 400)).resize((600, 752))
        image.save(tmp_path / f"{i}.jpg", quality=90, subsampling=i % 3)
    ds = wf.image_folder(tmp_path, labels=None).map(T.Resize(60), T.CenterCrop(51)).batch(4)
    (default,), (exact,), (fast,) = (
        list(batches) for batches in (ds.numpy(), ds.numpy(decode="exact"), ds.numpy(decode="fast"))
    )
    np.testing.assert_array_equal(default, exact)
    difference = np.abs(fast.astype(int) - exact)
    assert 0 < difference.mean() < 3
    with pytest.raises(wf.ConfigError, match="fast"):
        ds.numpy(decode="quick")  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1), ("RGBA", 4)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_modes_and_layouts(photos: Path, mode: str, channels: int, layout: str) -> None:
    ds = wf.image_folder(photos).map(T.Resize((20, 30))).batch(5)
    images, _ = next(iter(ds.numpy(mode=mode, layout=layout)))
    assert images.shape == ((5, channels, 20, 30) if layout == "NCHW" else (5, 20, 30, channels))
    assert images.dtype == np.uint8
    assert images.flags.c_contiguous


def test_training_runs_all_transforms(photos: Path) -> None:
    ds = (
        wf.image_folder(photos)
        .shuffle(seed=1)
        .map(T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1))
        .map(
            T.RandomRotation(10), T.GaussianBlur(3), T.RandomGrayscale(), T.ToDtype(torch.float32, scale=True)
        )
        .map(T.Normalize(wf.IMAGENET_MEAN, wf.IMAGENET_STD), T.RandomErasing(), field="image")
        .batch(8, drop_last=True)
    )
    for optimize in (True, False):
        batches = list(ds.torch(optimize=optimize))
        assert len(batches) == len(ds) == 3
        assert all(images.shape == (8, 3, 32, 32) and images.isfinite().all() for images, _ in batches)
    with pytest.raises(ValueError, match=r"label|no image"):
        list(wf.image_folder(photos).map(T.RandomHorizontalFlip(), field="label").torch())


@pytest.mark.usefixtures("epochs_not_counted")
def test_optimized_and_plain_programs_give_the_same_bits(photos: Path) -> None:
    chains = [
        [T.RandomResizedCrop(24), T.RandomHorizontalFlip(), T.ToTensor()],
        [
            T.RandomCrop(40, padding=3, pad_if_needed=True),
            T.RandomVerticalFlip(),
            T.Resize(20),
            T.CenterCrop(18),
        ],
        [T.Resize(30), T.RandomCrop(24), T.ToDtype("float16", scale=True), T.Normalize([0.5], [0.25])],
    ]
    for chain in chains:
        ds = wf.image_folder(photos).shuffle(seed=3).map(*chain).batch(5)
        for (a, la), (b, lb) in zip(ds.numpy(optimize=True), ds.numpy(optimize=False)):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(la, lb)


def test_explain_shows_plan_and_program_and_times(photos: Path) -> None:
    ds = wf.image_folder(photos).shuffle(seed=3).map(T.RandomResizedCrop(24), T.ToTensor()).batch(4)
    text = ds.explain()
    for word in ("image_folder", "shuffle", "RandomResizedCrop", "ToTensor", "batch"):
        assert word in text
    analyzed = ds.explain(analyze=True, batches=3)
    assert "decode" in analyzed
    assert "read" in analyzed


def test_repr_is_the_pipeline(photos: Path) -> None:
    ds = wf.image_folder(photos).shuffle(seed=3).shuffle(seed=4, reshuffle_each_iteration=False)
    ds = ds.shuffle(block_size=2).map(T.CenterCrop(3)).repeat(2).shard(0, 2)
    ds = ds.batch(4, drop_last=True).take(3).skip(1).with_options(mode="L", max_pixels=9)
    lines = repr(ds).split("\n    ")
    assert lines[0].startswith(f"image_folder({str(photos)!r}")
    assert lines[1:] == [
        ".shuffle(seed=3)",
        ".shuffle(seed=4, reshuffle_each_iteration=False)",
        ".shuffle(seed=0, block_size=2, window=16)",
        ".map(CenterCrop(size=(3, 3)))",
        ".repeat(count=2)",
        ".shard(rank=0, world_size=2)",
        ".batch(4, drop_last=True)",
        ".take(3)",
        ".skip(1)",
        ".with_options(mode='L', max_pixels=9)",
    ]


def test_verbs_leave_the_data_set_alone() -> None:
    ds = wf.from_tensor_slices(np.arange(10))
    ds.shuffle().batch(3).repeat(4).take(1).skip(1)
    assert [int(x) for x in ds.numpy()] == list(range(10))


def test_verbs_mean_what_tf_data_means() -> None:
    ds = wf.from_tensor_slices(np.arange(10))

    def values(dataset: wf.Dataset) -> list[object]:
        return [x.tolist() for x in dataset.numpy()]

    assert values(ds.take(3)) == [0, 1, 2]
    assert values(ds.skip(8)) == [8, 9]
    assert values(ds.take(20).skip(20)) == []
    assert values(ds.take(-1)) == list(range(10))
    assert values(ds.skip(-1)) == []
    assert values(ds.batch(4).take(-1).skip(2)) == [[8, 9]]
    assert values(ds.batch(4)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert values(ds.batch(4, drop_last=True)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert values(ds.batch(4).take(1)) == [[0, 1, 2, 3]]
    assert values(ds.batch(4).skip(2)) == [[8, 9]]
    assert values(ds.take(3).repeat(2)) == [0, 1, 2, 0, 1, 2]
    assert values(ds.take(3).repeat(2).batch(4)) == [[0, 1, 2, 0], [1, 2]]
    assert values(ds.batch(6).repeat(2)) == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9]] * 2
    assert sorted(values(ds.shuffle(seed=3))) == list(range(10))
    assert sorted(values(ds.shuffle(seed=3))) != values(ds.shuffle(seed=3))
    for forever in (ds.repeat(), ds.repeat(-1)):
        endless = iter(forever.batch(7).numpy())
        assert [len(next(endless)) for _ in range(50)] == [7] * 50
    with pytest.raises(TypeError, match="without end"):
        len(ds.repeat())
    with pytest.raises(TypeError, match="without end"):
        len(ds.repeat().numpy())


@pytest.mark.parametrize(
    ("verb", "argument", "error"),
    [
        ("batch", 0, ValueError),
        ("batch", -1, ValueError),
        ("batch", 1.5, TypeError),
        ("take", -2, ValueError),
        ("skip", -2, ValueError),
        ("skip", "a", TypeError),
        ("repeat", -2, ValueError),
        ("shuffle", -1, TypeError),
        ("shuffle", None, TypeError),
        ("map", None, TypeError),
    ],
)
def test_senseless_verbs_are_refused(verb: str, argument: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        getattr(wf.from_tensor_slices(np.arange(10)), verb)(argument)


def test_senseless_shards_and_options_are_refused() -> None:
    ds = wf.from_tensor_slices(np.arange(10))
    for rank, world_size in [(2, 2), (0, 0), (-1, 2)]:
        with pytest.raises(ValueError, match=r"rank|world_size"):
            ds.shard(rank, world_size)
    with pytest.raises(TypeError, match="there is no option workers\nhint: options are num_workers"):
        ds.with_options(workers=3)  # type: ignore[call-arg]
    for options in [{"on_error": "ignore"}, {"num_workers": "many"}, {"layout": "CHWN"}, {"num_workers": 0}]:
        with pytest.raises(wf.ConfigError):
            ds.numpy(**options)
    with pytest.raises(ValueError, match="at least one"):
        ds.map()


def test_numpy_numbers_are_numbers() -> None:
    ds = wf.from_tensor_slices(np.arange(10)).shuffle(seed=np.int64(3)).batch(np.int32(4)).take(np.uint8(1))
    assert [len(x) for x in ds.numpy()] == [4]


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shards")
    for shard in range(3):
        with tarfile.open(folder / f"train-{shard:04}.tar", "w") as tar:
            for i in range(5):
                number = shard * 5 + i
                image, array = io.BytesIO(), io.BytesIO()
                Image.new("RGB", (20, 16), (number, 0, 0)).save(image, "PNG")
                np.save(array, np.full((2, 3), number, np.float32))
                files = {
                    "png": image.getvalue(),
                    "cls": str(number).encode(),
                    "txt": f"sample {number} ä".encode(),
                    "json": json.dumps({"number": number, "list": [1, None]}).encode(),
                    "npy": array.getvalue(),
                    "bin": bytes([number]),
                }
                for extension, data in files.items():
                    member = tarfile.TarInfo(f"{number:03}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return folder


def test_webdataset_fields(shards: Path) -> None:
    fields = ["png", "cls", "txt", "json", "npy", "bin"]
    ds = wf.webdataset(shards / "train-{0000..0002}.tar", fields=fields).batch(15)
    images, labels, texts, objects, arrays, raw = next(iter(ds.torch()))
    assert images.shape == (15, 3, 16, 20)
    assert images[:, 0, 0, 0].tolist() == labels.tolist() == list(range(15))
    assert texts == [f"sample {i} ä" for i in range(15)]
    assert objects == [{"number": i, "list": [1, None]} for i in range(15)]
    assert arrays.shape == (15, 2, 3)
    assert arrays.dtype == torch.float32
    assert raw == [bytes([i]) for i in range(15)]


def test_webdataset_as_dicts_is_shuffled_globally(shards: Path) -> None:
    ds = wf.webdataset([shards / f"train-{i:04}.tar" for i in range(3)]).shuffle(seed=4).batch(5)
    seen = []
    for batch in ds.numpy():
        assert set(batch) >= {"__key__", "png", "cls", "txt", "json", "npy", "bin"}
        assert [int(key) for key in batch["__key__"]] == batch["cls"].tolist()
        assert len({label // 5 for label in batch["cls"].tolist()}) > 1
        seen += batch["cls"].tolist()
    assert sorted(seen) == list(range(15))


def test_webdataset_index_beside_the_shards(shards: Path, tmp_path: Path) -> None:
    for shard in shards.iterdir():
        (tmp_path / shard.name).write_bytes(shard.read_bytes())
    for _ in range(2):
        ds = wf.webdataset(tmp_path / "*.tar", fields=["cls"], index="sidecar").batch(15)
        assert next(iter(ds.numpy()))[0].tolist() == list(range(15))
    assert len(list(tmp_path.iterdir())) == 6


def test_flat_folders_and_patterns(photos: Path) -> None:
    every = wf.image_folder(photos, labels=None)
    assert len(every) == 24
    pattern = wf.image_folder(photos / "class0" / "*.jpg")
    count = len(list((photos / "class0").glob("*.jpg")))
    assert len(pattern) == count
    image = next(iter(pattern.map(T.CenterCrop(8)).batch(count).numpy()))
    assert image.shape == (count, 3, 8, 8)
    with pytest.raises(ValueError, match="labels"):
        wf.image_folder(photos, labels="files")  # type: ignore[arg-type]


def test_missing_things_are_file_not_found(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    opens = [
        lambda: wf.image_folder(tmp_path / "nothing"),
        lambda: wf.image_folder(tmp_path / "empty"),
        lambda: wf.webdataset(tmp_path / "x.tar"),
        lambda: wf.cifar10(tmp_path),
        lambda: wf.cifar100(tmp_path),
        lambda: wf.mnist(tmp_path),
    ]
    for call in opens:
        with pytest.raises(FileNotFoundError) as caught:
            call()
        assert isinstance(caught.value, wf.WellfedError)


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_structures_and_dtypes_survive(make: object) -> None:
    dtypes = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]
    arrays = {name: (np.arange(12).reshape(6, 2) % 5).astype(name) for name in dtypes}
    given = {name: make(array) for name, array in arrays.items()}
    for batch in wf.from_tensor_slices(given).batch(6).numpy():
        assert list(batch) == dtypes
        for name, array in arrays.items():
            assert batch[name].dtype == array.dtype
            np.testing.assert_array_equal(batch[name], array)
    for batch in wf.from_tensor_slices(tuple(given.values())).batch(6).torch():
        assert isinstance(batch, tuple)
        for tensor, array in zip(batch, arrays.values()):
            assert torch.equal(tensor, torch.from_numpy(array))
    (alone,) = wf.from_tensor_slices(given["int16"]).batch(6).torch()
    assert alone.dtype == torch.int16


def test_bfloat16_is_for_torch_only() -> None:
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(3, 2)
    ds = wf.from_tensor_slices({"x": tensor}).batch(3)
    (batch,) = ds.torch()
    assert torch.equal(batch["x"], tensor)
    with pytest.raises(TypeError, match=r"NumPy has no bfloat16\nhint: iterate as .torch\(\)"):
        list(ds.numpy())


def test_what_is_no_array_is_refused() -> None:
    for wrong, error in [
        (np.array(["a", "b"]), TypeError),
        (np.array([{}]), TypeError),
        (np.zeros(3, complex), TypeError),
        (np.float32(3), ValueError),
        ((np.arange(3), np.arange(4)), ValueError),
        ({"a": (np.arange(3), np.arange(4))}, ValueError),
        ([-1, 2**63], ValueError),
        ((), ValueError),
        ({}, ValueError),
    ]:
        with pytest.raises(error):
            wf.from_tensor_slices(wrong)
    with pytest.raises(ValueError, match="pixels"):
        wf.from_tensor_slices(np.zeros((1, 3, 3), np.uint8), pixels="bgr")  # type: ignore[arg-type]


def test_arrays_that_are_not_contiguous_are_copied() -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    for array in (base[:, ::2], base.T, base[::-1], base.astype(">f4")):
        (batch,) = wf.from_tensor_slices(array).batch(6).numpy()
        np.testing.assert_array_equal(batch, array)
    tensor = torch.arange(24.0).reshape(4, 6).t()
    (batch,) = wf.from_tensor_slices(tensor).batch(6).torch()
    assert torch.equal(batch, tensor)
    (batch,) = wf.from_tensor_slices(torch.ones(3, 2, requires_grad=True)).batch(3).torch()
    assert not batch.requires_grad


def test_planar_and_interleaved_images_give_the_same_batches() -> None:
    images = np.random.default_rng(0).integers(0, 256, (6, 32, 24, 3), dtype=np.uint8)
    planar = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    chain = (T.RandomCrop(20, padding=2), T.RandomHorizontalFlip(), T.ToTensor())
    (a,) = wf.from_tensor_slices(images).map(*chain).batch(6).numpy()
    (b,) = wf.from_tensor_slices(planar).map(*chain).batch(6).numpy()
    np.testing.assert_array_equal(a, b)


def test_samples_without_batch_have_no_batch_dimension(photos: Path) -> None:
    ds = wf.image_folder(photos).map(T.CenterCrop(10))
    for image, label in ds.take(2).torch():
        assert image.shape == (3, 10, 10)
        assert label.shape == ()
    image, label = ds.sample(3)
    again, _ = list(ds.numpy())[3]
    np.testing.assert_array_equal(image, again)
    with pytest.raises(wf.WellfedError):
        ds.sample(10_000)


@pytest.mark.usefixtures("epochs_not_counted")
def test_plans_survive_as_json(photos: Path) -> None:
    ds = wf.image_folder(photos).shuffle(seed=3).map(T.RandomResizedCrop(16)).batch(5).with_options(mode="L")
    again = wf.Dataset.from_json(ds.to_json())
    assert again.to_json() == ds.to_json()
    for (a, _), (b, _) in zip(ds.numpy(), again.numpy()):
        np.testing.assert_array_equal(a, b)
    for text in ("", "{}", '{"version": 99}', ds.to_json().replace('"version":2', '"version":3')):
        with pytest.raises(wf.ConfigError):
            wf.Dataset.from_json(text)


def test_device_names_are_checked() -> None:
    ds = wf.from_tensor_slices(np.zeros((2, 3), np.float32)).batch(2)
    (batch,) = ds.torch(device="cpu")
    assert batch.device.type == "cpu"
    with pytest.raises(RuntimeError):
        ds.torch(device="nowhere")
    # "meta" stands in for any device that is not the CPU.
    (batch,) = ds.torch(device="meta")
    assert batch.device.type == "meta"
