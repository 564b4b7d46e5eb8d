"""Data sets of the user's own class: what is read of their source gives the samples that they give."""

from __future__ import annotations

import random
import re
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torchvision.transforms import transforms as v1
from torchvision.transforms import v2

import users_sets as sets
import wellfed as wf
import wellfed.torch as wt
from pictures import picture
from torch_same import same
from wellfed.torch._lower.resampling import different_tensors

SMALL = v1.Compose([v1.Resize(36), v1.CenterCrop(32), v1.ToTensor()])
RANDOM = v1.Compose([v1.RandomResizedCrop(24), v1.RandomHorizontalFlip(), v1.ToTensor()])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Files of two classes: JPEG and PNG, grey and colour, some to be turned."""
    folder = tmp_path_factory.mktemp("users")
    found = []
    for place in range(23):
        image = Image.fromarray(picture(place, 60 - place, 40 + place))
        if place % 7 == 3:
            image = image.convert("L")
        path = folder / f"{place % 2}" / f"{place:02d}.{'png' if place % 3 == 0 else 'jpg'}"
        path.parent.mkdir(exist_ok=True)
        exif = Image.Exif()
        exif[0x0112] = 1 + place % 8
        image.save(path, **({"exif": exif} if path.suffix == ".jpg" else {}))
        found.append(path)
    return found


def native(loader: Any) -> bool:
    return "native: the engine makes whole batches" in loader.explain().splitlines()[0]


def batches(loader: Any, seed: int = 3, epochs: int = 2) -> list[Any]:
    torch.manual_seed(seed)
    return [list(loader) for _ in range(epochs)]


@pytest.mark.parametrize("name", sets.READ)
@pytest.mark.parametrize("batch_size", [4, None])
def test_what_is_read_gives_the_same_samples(name: str, batch_size: int | None, paths: list[Path]) -> None:
    dataset = sets.READ[name](paths, SMALL)
    theirs = stock.DataLoader(dataset, batch_size=batch_size, shuffle=True)
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(batches(theirs), batches(ours))
    assert ours._planned().native_source.in_python == 0


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("chain", [SMALL, v1.Compose([SMALL, lambda image: image * 2])])
@pytest.mark.parametrize("collate", [None, list])
def test_what_the_data_set_expects_is_left_to_it(
    workers: int, chain: Any, collate: Any, paths: list[Path]
) -> None:
    theirs = stock.DataLoader(
        sets.Expects(paths, chain), batch_size=4, num_workers=workers, collate_fn=collate
    )
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" not in ours.explain()
    assert same(batches(theirs), batches(ours))


@pytest.mark.parametrize("kind", [sets.WithPaths, sets.Added])
def test_subclasses_of_known_data_sets_are_read_with_what_they_are_derived_from(
    kind: Any, paths: list[Path]
) -> None:
    dataset = kind(paths[0].parent.parent, SMALL)
    theirs = stock.DataLoader(dataset, batch_size=5, shuffle=True)
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(batches(theirs), batches(ours))


@pytest.mark.parametrize("kind", sets.REFUSED, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_not_known_is_called_as_ever(kind: Any, workers: int, paths: list[Path]) -> None:
    dataset = kind(paths, SMALL)
    collate = None if kind is not sets.Sizes else list
    theirs = stock.DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=collate)
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" in ours.explain()
    assert re.search(sets.REFUSED[kind], ours.explain()), ours.explain()
    found = []
    for data in (kind(paths, SMALL), kind(paths, SMALL)):
        random.seed(4)
        loader = stock.DataLoader(data, batch_size=4, num_workers=workers, collate_fn=collate)
        found.append(batches(wf.feed(loader) if found else loader, epochs=1))
    assert same(*found)


def equalized(image: Any) -> Any:
    """A step in Python."""
    return image.point(lambda value: 255 - value)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_step_in_python_comes_after_what_is_native(workers: int, paths: list[Path]) -> None:
    chain = v1.Compose([v1.Resize((20, 20)), equalized, v1.ToTensor()])
    for kind in (sets.Plain, sets.Named, sets.Listed):
        theirs = stock.DataLoader(kind(paths, chain), batch_size=4, num_workers=workers)
        ours = wf.feed(theirs)
        assert "partly native" in ours.explain()
        assert same(batches(theirs), batches(ours))


def test_samples_side_by_side_are_those_of_the_data_set(paths: list[Path]) -> None:
    chain = v1.Compose([v1.Resize(20), v1.ToTensor()])
    for kind in (sets.Plain, sets.Named, sets.Listed, sets.Alone):
        theirs: Any = stock.DataLoader(kind(paths, chain), batch_size=4, collate_fn=lambda batch: batch)
        ours = wf.feed(theirs)
        assert native(ours), ours.explain()
        assert same(batches(theirs), batches(ours))


def test_parts_and_mixtures(paths: list[Path]) -> None:
    plain, added = sets.Plain(paths, SMALL), sets.WithPaths(paths[0].parent.parent, SMALL)
    for dataset in (
        stock.Subset(plain, [5, 2, 2, 9, 0]),
        stock.ConcatDataset([plain, stock.Subset(sets.Plain(paths[:4], SMALL), [3, 1])]),
    ):
        theirs: Any = stock.DataLoader(dataset, batch_size=3, shuffle=True)
        ours = wf.feed(theirs)
        assert native(ours), ours.explain()
        assert same(batches(theirs), batches(ours))
    unlike: Any = stock.ConcatDataset([plain, added])
    assert "samples of its parts differ" in wf.feed(stock.DataLoader(unlike, batch_size=1)).explain()
    assert same(
        *(batches(loader) for loader in (stock.DataLoader(unlike), wf.feed(stock.DataLoader(unlike))))
    )


@pytest.mark.parametrize("workers", [0, 1])
def test_what_changes_between_epochs_is_seen(workers: int, paths: list[Path]) -> None:
    dataset = sets.Plain(paths, SMALL)
    theirs = stock.DataLoader(dataset, batch_size=4, num_workers=workers)
    ours = wf.feed(theirs)

    def check() -> None:
        assert native(ours), ours.explain()
        assert same(list(theirs), list(ours))

    check()
    dataset.labels[3] = 77
    check()
    dataset.paths.reverse()
    check()
    dataset.labels = [9] * len(paths)
    check()
    dataset.transform = v1.Compose([v1.Resize((16, 18)), v1.ToTensor()])
    check()
    dataset.transform.transforms.append(v1.Normalize(sets.MEAN, sets.STD))
    check()
    dataset.paths, dataset.labels = dataset.paths[:7], dataset.labels[:7]
    theirs, ours = stock.DataLoader(dataset, batch_size=4), wf.feed(stock.DataLoader(dataset, batch_size=4))
    check()


def test_labels_in_what_is_in_a_list_are_asked_for_again(paths: list[Path]) -> None:
    class Deep(sets.Base):
        def __getitem__(self, i: int) -> Any:
            return self.transform(Image.open(self.rows[i]["file"]).convert("RGB")), self.rows[i]["label"]

    dataset: Any = Deep(paths, SMALL)
    dataset.rows = [{"file": str(path), "label": place} for place, path in enumerate(paths)]
    ours = wt.DataLoader(dataset, batch_size=4)
    assert native(ours)
    assert torch.cat([labels for _, labels in ours]).tolist() == list(range(23))
    dataset.rows[5]["label"] = 1000
    dataset.rows[6]["file"] = str(paths[0])
    assert same(list(ours), list(stock.DataLoader(dataset, batch_size=4)))


def test_methods_that_are_replaced_are_seen(paths: list[Path]) -> None:
    class Own(sets.Base):
        def load(self, i: int) -> Any:
            return Image.open(self.paths[i]).convert("RGB")

        def __getitem__(self, i: int) -> Any:
            return self.transform(self.load(i)), i

    dataset = Own(paths, SMALL)
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    assert native(ours)
    assert same(list(theirs), list(ours))

    def load(self: Any, i: int) -> Any:
        return Image.open(self.paths[-i]).convert("RGB")

    Own.load = load  # type: ignore[method-assign]
    assert native(ours)
    assert same(list(theirs), list(ours))
    dataset.load = types.MethodType(lambda self, i: Image.new("RGB", (40, 40), (i, 0, 0)), dataset)  # type: ignore[method-assign]
    assert not native(ours)
    assert same(list(theirs), list(ours))
    del dataset.load

    def __getitem__(self: Any, i: int) -> Any:
        return self.transform(self.load(i)), i + 1

    Own.__getitem__ = __getitem__  # type: ignore[method-assign]
    assert native(ours)
    assert same(list(theirs), list(ours))


def test_files_that_the_engine_does_not_read(paths: list[Path], tmp_path: Path) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(paths[1].read_bytes()[:300])
    bitmap = tmp_path / "other.jpg"
    Image.fromarray(picture(1, 40, 40)).save(bitmap, "BMP")
    given = [*paths[:6], bitmap, *paths[6:9]]
    dataset = sets.Plain(given, SMALL)
    assert same(list(stock.DataLoader(dataset, batch_size=4)), list(wt.DataLoader(dataset, batch_size=4)))
    broken = sets.Plain([*given, bad], SMALL)
    with pytest.raises(OSError, match=r"(?i)truncated"):
        list(wt.DataLoader(broken, batch_size=4))
    # A data set that does something about it does it.
    kept = sets.Tuples([*given, bad], SMALL)
    ours = wt.DataLoader(kept, batch_size=4)
    assert native(ours)
    theirs = stock.DataLoader(kept, batch_size=4)
    try:
        expected = list(theirs)
    except OSError:  # Pillow opens it, and its pixels are asked for later
        with pytest.raises(OSError, match=r"(?i)truncated"):
            list(ours)
    else:
        assert same(expected, list(ours))
    gone = sets.Plain([*given, tmp_path / "gone.jpg"], SMALL)
    with pytest.raises(FileNotFoundError):
        list(wt.DataLoader(gone, batch_size=4))
    assert len(list(wt.DataLoader(gone, batch_size=4, on_error="skip"))) == 3


def test_images_whose_files_are_not_known_are_opened_by_the_data_set(paths: list[Path]) -> None:
    class Opened(sets.Base):
        def __getitem__(self, i: int) -> Any:
            return self.transform(Image.open(self.files[i]).convert("RGB")), i

    dataset: Any = Opened(paths[:4], SMALL)
    dataset.files = [open(path, "rb") for path in paths[:4]]  # noqa: SIM115
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" in ours.explain()
    assert same(list(theirs), list(ours))
    for file in dataset.files:
        file.close()
    dataset.files = [3] * 4
    with pytest.raises(AttributeError, match="read"):
        list(wf.feed(theirs))


def test_indices_that_become_a_part_of_the_sample(paths: list[Path]) -> None:
    dataset = sets.Alone(paths, SMALL)

    class Answers(sets.Base):
        def __getitem__(self, i: Any) -> Any:
            return self.transform(Image.open(self.paths[i]).convert("RGB")), i

    for sampler in ([3, 1, 2], np.array([3, 1, 2]), torch.tensor([3, 1, 2]), [-1, -2]):
        for whole in (dataset, Answers(paths, SMALL)):
            theirs: Any = stock.DataLoader(whole, batch_size=2, sampler=sampler)  # type: ignore[arg-type]
            assert same(list(theirs), list(wf.feed(theirs)))


def test_random_transforms_draw_anew(paths: list[Path]) -> None:
    ours = wt.DataLoader(sets.Plain(paths, RANDOM), batch_size=23)
    assert native(ours)
    [(first, _)], [(second, _)] = list(ours), list(ours)
    assert first.shape == second.shape == (23, 3, 24, 24)
    assert not torch.equal(first, second)


def seeded(worker: int) -> None:
    np.random.seed(torch.initial_seed() % 2**32)
    random.seed(torch.initial_seed() % 2**32)


def changing(worker: int) -> None:
    info = stock.get_worker_info()
    assert info is not None
    info.dataset.labels = [worker + 50] * 23


def test_workers_that_begin_with_a_function(paths: list[Path]) -> None:
    dataset = sets.Plain(paths, SMALL)
    assert native(wt.DataLoader(dataset, batch_size=4, num_workers=1, worker_init_fn=seeded))
    theirs = stock.DataLoader(dataset, batch_size=4, num_workers=1, worker_init_fn=changing)
    ours = wf.feed(theirs)
    assert not native(ours)
    assert "may change the data set" in ours.explain()
    assert same(list(theirs), list(ours))


def test_it_goes_on_where_it_was(paths: list[Path]) -> None:
    dataset = sets.Named(paths, RANDOM)
    loader = wt.DataLoader(dataset, batch_size=4, shuffle=True)
    given = iter(loader)
    for _ in range(2):
        next(given)
    state = loader.state_dict()
    rest = [*given, *loader]
    other = wt.DataLoader(dataset, batch_size=4, shuffle=True)
    torch.manual_seed(99)
    other.load_state_dict(state)
    assert same([*other, *other], rest)


def test_mixing_knows_images_and_labels(paths: list[Path]) -> None:
    mixup = v2.MixUp(num_classes=3)

    def collate(batch: Any) -> Any:
        return mixup(*stock.default_collate(batch))

    ours = wt.DataLoader(sets.Plain(paths, SMALL), batch_size=4, collate_fn=collate)
    assert native(ours), ours.explain()
    images, labels = next(iter(ours))
    assert images.shape == (4, 3, 32, 32)
    assert labels.shape == (4, 3)
    others = wt.DataLoader(sets.Listed(paths, SMALL), batch_size=4, collate_fn=collate)
    assert not native(others)


def test_pixels_are_those_of_the_library_that_the_script_uses(paths: list[Path]) -> None:
    """Of tensors torchvision makes other pixels than of Pillow images, and its first version others again."""
    chain = v2.Compose([v2.ToImage(), v2.Resize((20, 20)), v2.ToDtype(torch.float32, scale=True)])
    theirs: Any = stock.DataLoader(sets.Plain(paths, chain), batch_size=4)
    ours = wf.feed(theirs)
    assert native(ours) == (not different_tensors()), ours.explain()
    assert same(list(theirs), list(ours))
    theirs = stock.DataLoader(sets.Plain(paths, v1.Compose([v1.PILToTensor(), v1.Resize((20, 20))])), 4)
    ours = wf.feed(theirs)
    assert "v1 resamples tensors in another way" in ours.explain()
    assert same(list(theirs), list(ours))


def test_a_file_that_was_edited_since_is_not_believed(
    paths: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = """
from PIL import Image

class Edited:
    def __init__(self, paths, transform):
        self.paths, self.transform = paths, transform
    def __len__(self):
        return len(self.paths)
    def __getitem__(self, i):
        return self.transform(Image.open(self.paths[i]).convert("RGB")), i
"""
    file = tmp_path / "edited_set.py"
    file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    import edited_set  # type: ignore[import-not-found]

    dataset = edited_set.Edited(paths, SMALL)
    assert native(wt.DataLoader(dataset, batch_size=4))
    file.write_text(text.replace(", i\n", ", i * 10000\n"))
    ours = wt.DataLoader(dataset, batch_size=4)
    assert not native(ours)
    assert same(list(stock.DataLoader(dataset, batch_size=4)), list(ours))


def test_the_opencv_way(paths: list[Path]) -> None:
    cv2 = pytest.importorskip("cv2")
    from wellfed._accelerate import opencv

    if not opencv.applies():
        pytest.skip(f"OpenCV is {cv2.__version__}, whose pixels are not known")

    class Read(sets.Base):
        def __getitem__(self, i: int) -> Any:
            image = cv2.imread(self.paths[i])
            image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
            image = cv2.resize(image, (24, 20))
            return torch.from_numpy(image).permute(2, 0, 1).float() / 255, i

    files = [path for path in paths if path.suffix == ".jpg"]
    theirs: Any = stock.DataLoader(Read(files, None), batch_size=4)
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(list(theirs), list(ours))


def test_the_way_of_albumentations(paths: list[Path]) -> None:
    albumentations = pytest.importorskip("albumentations")
    from albumentations.pytorch import ToTensorV2

    class Read(sets.Base):
        def __getitem__(self, i: int) -> Any:
            image = np.array(Image.open(self.paths[i]).convert("RGB"))
            return {"pixels": self.transform(image=image)["image"], "label": self.labels[i]}

    chain = albumentations.Compose(
        [albumentations.CenterCrop(20, 20), albumentations.Normalize(), ToTensorV2()]
    )
    theirs: Any = stock.DataLoader(Read(paths, chain), batch_size=4)
    ours = wf.feed(theirs)
    assert same(list(theirs), list(ours))
    assert native(ours), ours.explain()


def mode_of(image: Any) -> torch.Tensor:
    image.load()
    return torch.tensor([len(image.mode)])


def test_images_of_the_mode_of_their_file_are_left_to_pillow(paths: list[Path]) -> None:
    class Raw(sets.Base):
        def __getitem__(self, i: int) -> Any:
            return self.transform(Image.open(self.paths[i])), i

    theirs: Any = stock.DataLoader(Raw(paths, mode_of), batch_size=4)
    ours = wf.feed(theirs)
    assert "grey or colour" in ours.explain()
    assert same(list(theirs), list(ours))
    converted = v2.Compose([v2.RGB(), v2.Resize((20, 20)), mode_of])
    theirs = stock.DataLoader(Raw(paths, converted), batch_size=4)
    ours = wf.feed(theirs)
    assert "partly native" in ours.explain()
    assert same(list(theirs), list(ours))


# Images in memory.


@pytest.mark.parametrize("colour", [True, False])
def test_images_in_an_array_are_read_where_they_lie(colour: bool) -> None:
    class Images(sets.Base):
        def __getitem__(self, i: int) -> Any:
            return self.transform(Image.fromarray(self.images[i])), self.labels[i]

    dataset: Any = Images([Path("unused")] * 11, v1.Compose([v1.CenterCrop(12), v1.ToTensor()]))
    dataset.images = np.stack([picture(place, 14, 16) for place in range(11)])
    if not colour:
        dataset.images = np.ascontiguousarray(dataset.images[..., 0])
    theirs = stock.DataLoader(dataset, batch_size=4, shuffle=True)
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(batches(theirs), batches(ours))
    dataset.images[3] = 7
    assert same(batches(theirs), batches(ours))
    dataset.images = dataset.images[::-1]  # of which the engine reads nothing
    assert same(batches(theirs), batches(ours))


def test_images_in_an_hdf5_file_are_read_where_they_lie(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "images.h5"

    class Images(stock.Dataset[Any]):
        def __init__(self) -> None:
            self.file: Any = None

        def __len__(self) -> int:
            return 9

        def __getitem__(self, i: int) -> Any:
            if self.file is None:
                self.file = h5py.File(path, "r")
            image = torch.from_numpy(self.file["train"]["images"][i]).permute(2, 0, 1).float() / 255
            return image, int(self.file["train/labels"][i]), self.file["weights"][i]

    def write(seed: int, **storage: Any) -> None:
        path.unlink(missing_ok=True)
        with h5py.File(path, "w") as file:
            images = np.stack([picture(place, 14, 16) for place in range(seed, seed + 9)])
            file.create_dataset("train/images", data=images, **storage)
            file["train/labels"] = np.arange(9)
            file["weights"] = np.linspace(0, 1, 27, dtype=np.float32).reshape(9, 3)

    write(0)
    for workers in (0, 1):
        ours = wt.DataLoader(Images(), batch_size=4, num_workers=workers)
        assert native(ours), ours.explain()
        assert same(list(ours), list(stock.DataLoader(Images(), batch_size=4)))
    write(5)
    assert same(list(ours), list(stock.DataLoader(Images(), batch_size=4)))
    write(2, chunks=(1, 14, 16, 3), compression="gzip")
    assert same(list(ours), list(stock.DataLoader(Images(), batch_size=4)))
    assert native(ours)  # unpacked into memory
