"""Data sets of one's own with masks, boxes, several images: what is read of them gives the samples that they give."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils import data as stock
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode, v2
from torchvision.transforms import transforms as v1

import several_sets as sets
import wellfed as wf
import wellfed.torch as wt
from torch_same import same

os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")

FLOAT = v2.ToDtype(
    {tv_tensors.Image: torch.float32, tv_tensors.Mask: torch.int64, "others": None}, scale=True
)
RESIZED = v2.Compose([v2.Resize((30, 36)), v2.RandomHorizontalFlip(1), v2.ToImage(), FLOAT])
CROPPED = v2.Compose(
    [v2.Pad(3, fill=2), v2.CenterCrop(36), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
)
FLIPPED = v2.Compose([v2.RandomHorizontalFlip(1), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
CLEAN = v2.Compose(
    [
        v2.Resize((30, 36)),
        v2.CenterCrop(20),
        v2.SanitizeBoundingBoxes(4),
        v2.ClampBoundingBoxes(),
        v2.ToImage(),
    ]
)
SMALL = v1.Compose([v1.Resize((30, 36)), v1.ToTensor()])
NEAREST = v1.Compose([v1.Resize((30, 36), InterpolationMode.NEAREST), v1.PILToTensor()])


def beside(batch: Any) -> Any:
    return tuple(zip(*batch))


MASKS: list[tuple[Any, dict[str, Any]]] = [
    (lambda root: sets.Tutorial(root, RESIZED), {}),
    (lambda root: sets.Tutorial(root, FLIPPED), {"collate_fn": beside}),
    (lambda root: sets.Wrapped(root, CROPPED), {}),
    (lambda root: sets.Nested(root, RESIZED), {}),
    (lambda root: sets.Apart(root, SMALL, SMALL), {}),
    (lambda root: sets.Apart(root, SMALL, NEAREST), {"collate_fn": beside}),
    (lambda root: sets.Binary(root), {}),
    (lambda root: sets.Whole(root), {"collate_fn": beside}),
    (lambda root: sets.Twice(root, SMALL, NEAREST), {}),
]


def native(loader: Any) -> bool:
    return "native: the engine makes whole batches" in loader.explain().splitlines()[0]


def batches(loader: Any, seed: int = 3, epochs: int = 2) -> list[Any]:
    found = []
    for epoch in range(epochs):
        # Transforms of torchvision draw where nothing depends on it, and so change the order of the next epoch.
        torch.manual_seed(seed + epoch)
        found.append(list(loader))
    return found


def check(dataset: Any, in_python: int | None = 0, **more: Any) -> Any:
    """Batches are the stock loader's, and the engine makes them."""
    theirs: Any = stock.DataLoader(dataset, **{"batch_size": 4, "shuffle": True, **more})
    ours = wf.feed(theirs)
    assert native(ours), ours.explain()
    assert same(batches(theirs), batches(ours))
    source = ours._planned().native_source
    assert in_python is None or source.in_python == in_python
    return ours


@pytest.mark.parametrize("mode", sets.MODES)
@pytest.mark.parametrize("place", range(len(MASKS)))
def test_masks_are_those_of_the_data_set(tmp_path: Path, mode: str, place: int) -> None:
    make, more = MASKS[place]
    check(make(sets.write(tmp_path, mode)), **more)


@pytest.mark.parametrize("mode", sets.MODES)
def test_numbers_of_classes(tmp_path: Path, mode: str) -> None:
    dataset = sets.Classes(sets.write(tmp_path, mode))
    if mode != "I;16":
        check(dataset)
        check(dataset, collate_fn=beside)
        return
    loader = wf.feed(stock.DataLoader(dataset, batch_size=4))
    assert "Pillow resizes images of 16 bits in a way of its own" in loader.explain()
    assert same(batches(stock.DataLoader(dataset, batch_size=4)), batches(loader))


@pytest.mark.parametrize("kind", [sets.Detection, sets.Sized])
@pytest.mark.parametrize("place", range(2))
def test_boxes_are_those_of_the_data_set(tmp_path: Path, kind: Any, place: int) -> None:
    dataset = kind(sets.write(tmp_path), [FLIPPED, CLEAN][place])
    if kind is sets.Sized and place:
        dataset.transforms = v2.Compose(CLEAN.transforms[1:])  # of tensors torchvision makes other pixels
    loader = check(dataset, collate_fn=beside, shuffle=False)
    for index, target in enumerate(next(iter(loader))[1]):
        wanted = dataset[index][1]["boxes"]
        assert (target["boxes"].format, target["boxes"].canvas_size) == (wanted.format, wanted.canvas_size)


def test_images_without_boxes_are_made_by_the_data_set(tmp_path: Path) -> None:
    dataset = sets.Detection(sets.write(tmp_path), FLIPPED)
    dataset.boxes[3], dataset.labels[3] = torch.zeros((0, 4)), []
    dataset.boxes[5] = torch.tensor(dataset.boxes[5], dtype=torch.float64)
    check(dataset, collate_fn=beside)


def test_boxes_that_change_are_seen_in_the_next_epoch(tmp_path: Path) -> None:
    dataset = sets.Detection(sets.write(tmp_path), FLIPPED)
    theirs: Any = stock.DataLoader(dataset, batch_size=4, collate_fn=beside)
    ours = wf.feed(theirs)
    assert same(batches(theirs), batches(ours))
    dataset.boxes[2][0][1] = 7.0
    dataset.labels[0][0] = 9
    assert same(batches(theirs), batches(ours))
    assert native(ours)


def test_image_and_mask_are_drawn_together(tmp_path: Path) -> None:
    """The image is its own mask: wherever both come to lie, they agree."""
    dataset = sets.Tutorial(sets.write(tmp_path))
    for image, mask in zip(dataset.images, dataset.masks, strict=True):
        grey = Image.open(image).convert("L")
        grey.save(mask)
        grey.convert("RGB").save(image, "png")
    dataset.transforms = v2.Compose([v2.RandomCrop(30), v2.RandomHorizontalFlip(), v2.ToImage()])
    loader = wf.feed(stock.DataLoader(dataset, batch_size=4))
    assert native(loader), loader.explain()
    seen = set()
    for _ in range(3):
        for images, masks in loader:
            assert torch.equal(images[:, 0], masks)
            seen.add(masks.sum().item())
    assert len(seen) > 6


@pytest.mark.parametrize("kind", sets.REFUSED, ids=lambda kind: kind.__name__)
def test_what_is_not_known_is_called_as_ever(tmp_path: Path, kind: Any) -> None:
    dataset = kind(sets.write(tmp_path), RESIZED)
    theirs: Any = stock.DataLoader(dataset, batch_size=4, collate_fn=list)
    ours = wf.feed(theirs)
    assert "Python: the data set runs as it is" in ours.explain()
    assert re.search(sets.REFUSED[kind], ours.explain()), ours.explain()
    assert same(batches(theirs), batches(ours))


def test_what_is_drawn_for_each_image_alone_stays_in_python(tmp_path: Path) -> None:
    drawn = v1.Compose([v1.RandomHorizontalFlip(), SMALL])
    loader = wf.feed(stock.DataLoader(sets.Apart(sets.write(tmp_path), drawn, drawn), batch_size=4))
    assert not native(loader)
    assert "drawn for one image of a sample is not drawn for the other" in loader.explain()
    loader = wf.feed(stock.DataLoader(sets.Apart(tmp_path, drawn, SMALL), batch_size=4))
    assert native(loader), loader.explain()


def test_masks_of_other_sizes_than_their_images(tmp_path: Path) -> None:
    root = sets.write(tmp_path)
    for path in sorted(root.glob("masks/*"))[2:4]:
        sets.mask(np.full((33, 44), 3, np.uint8), "P").save(path)
    check(sets.Tutorial(root, RESIZED))
    check(sets.Apart(root, SMALL, NEAREST))
    cropped = sets.Tutorial(root, v2.Compose([v2.RandomCrop((44, 52), pad_if_needed=True), v2.ToImage()]))
    loader = wf.feed(stock.DataLoader(cropped, batch_size=1))
    assert native(loader) or "sizes may differ" in loader.explain()
    with pytest.raises(Exception, match=r"HxW|sizes|size"):
        batches(stock.DataLoader(cropped, batch_size=4))
    with pytest.raises(Exception, match=r"HxW|sizes|size"):
        batches(wf.feed(stock.DataLoader(cropped, batch_size=4)))


def test_masks_of_different_modes_are_made_by_the_data_set(tmp_path: Path) -> None:
    root = sets.write(tmp_path)
    paths = sorted(root.glob("masks/*"))
    Image.open(paths[3]).convert("L").save(paths[3])
    check(sets.Tutorial(root, RESIZED))
    Image.open(paths[4]).convert("RGB").save(paths[4])
    check(sets.Nested(root, RESIZED))
    Image.fromarray(np.full((40, 52), 7, np.uint16)).save(paths[5])
    check(sets.Nested(root, RESIZED))
    dataset = stock.Subset(sets.Classes(root), [0, 1, 2, 3])
    check(dataset)


def test_lists_of_another_order_or_length(tmp_path: Path) -> None:
    dataset = sets.Tutorial(sets.write(tmp_path), RESIZED)
    for path, place in zip(dataset.images, range(20), strict=False):
        Image.open(path).resize((50, 40)).save(path)
        Image.open(dataset.masks[place]).resize((50, 40)).save(dataset.masks[place])
    dataset.masks.reverse()
    check(dataset)
    dataset.masks.append("never")
    check(dataset)
    del dataset.masks[4:]
    theirs, ours = (stock.DataLoader(dataset, batch_size=4), wf.feed(stock.DataLoader(dataset, batch_size=4)))
    assert "IndexError" in ours.explain()
    for loader in (theirs, ours):
        with pytest.raises(IndexError):
            batches(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_missing_files(tmp_path: Path, workers: int) -> None:
    dataset = sets.Tutorial(sets.write(tmp_path), RESIZED)
    os.remove(dataset.masks[5])
    Path(dataset.images[9]).write_bytes(b"no image")
    good = [i for i in range(len(dataset)) if i not in (5, 9)]
    found = {}
    for on_error in ("raise", "skip", "replace"):
        loader = wt.DataLoader(dataset, batch_size=3, num_workers=workers, on_error=on_error)
        assert native(loader)
        if on_error == "raise":
            with pytest.raises(FileNotFoundError):
                list(loader)
            continue
        found[on_error] = list(loader)
        assert [error.index for error in loader.errors()] == [5, 9]
    assert sum(len(images) for images, _ in found["skip"]) == len(good)
    images, masks = (torch.cat(column) for column in zip(*found["skip"], strict=True))
    for place, row in enumerate(good):
        assert same([images[place], masks[place]], [part.as_subclass(torch.Tensor) for part in dataset[row]])
    assert sum(len(images) for images, _ in found["replace"]) == len(dataset)


def test_parts_samplers_and_resuming(tmp_path: Path) -> None:
    one, other = sets.Tutorial(sets.write(tmp_path), RESIZED), sets.Tutorial(tmp_path, RESIZED)
    check(stock.Subset(one, [5, 2, 2, 9, 0]))
    check(stock.random_split(one, [7, 4], torch.Generator().manual_seed(1))[0])
    check(stock.ConcatDataset([one, stock.Subset(other, [3, 1])]))
    check(one, shuffle=False, sampler=[4, 4, 1, 0, 7])
    unlike: Any = stock.ConcatDataset([one, sets.Apart(tmp_path, SMALL, SMALL)])
    loader = wf.feed(stock.DataLoader(unlike, batch_size=4))
    assert not native(loader)
    drawn = v2.Compose([v2.RandomCrop(30), v2.RandomHorizontalFlip(), v2.ToImage()])
    for dataset in (sets.Tutorial(tmp_path, drawn), sets.Apart(tmp_path, SMALL, NEAREST)):
        whole = wt.DataLoader(dataset, batch_size=3, shuffle=True, num_workers=1)
        torch.manual_seed(4)
        iterator = iter(whole)
        begun = [next(iterator), next(iterator)]
        state = whole.state_dict()
        rest = list(iterator)
        again = wt.DataLoader(dataset, batch_size=3, shuffle=True, num_workers=1)
        again.load_state_dict(state)
        assert len(begun) + len(rest) == 4
        assert same(rest, list(again))


def test_what_was_read_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    dataset = sets.Apart(sets.write(tmp_path), SMALL, NEAREST)
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    assert same(batches(theirs), batches(ours))
    dataset.masks[2] = dataset.masks[0]
    assert same(batches(theirs), batches(ours))
    dataset.mask_transform = SMALL
    assert same(batches(theirs), batches(ours))
    assert native(ours)


def test_boxes_that_are_dropped_later_take_their_labels_along(tmp_path: Path) -> None:
    dataset = sets.Detection(
        sets.write(tmp_path), v2.Compose([v2.Resize((30, 36)), v2.CenterCrop(8), v2.ToImage()])
    )
    theirs: Any = stock.DataLoader(dataset, batch_size=4, collate_fn=beside)
    ours = wf.feed(theirs)
    assert native(ours)
    assert same(batches(theirs), batches(ours))
    dataset.transforms.transforms.append(v2.SanitizeBoundingBoxes(3))
    assert same(batches(theirs), batches(ours))
    dataset.transforms = v2.Compose(
        [*dataset.transforms.transforms[:3], v2.SanitizeBoundingBoxes(labels_getter=None)]
    )
    assert same(batches(theirs), batches(ours))
    assert native(ours)


def test_masks_of_other_types_are_filled_with_their_numbers(tmp_path: Path) -> None:
    class Long(sets.Tutorial):
        def __getitem__(self, i: int) -> Any:
            mask = tv_tensors.Mask(torch.from_numpy(np.array(Image.open(self.masks[i]))).long())
            return self.transforms(Image.open(self.images[i]).convert("RGB"), mask)

    for fill in (0, 7, 300, 0.5):
        chain = v2.Compose(
            [v2.Pad(5, fill={tv_tensors.Mask: fill, "others": 0}), v2.CenterCrop(50), v2.ToImage()]
        )
        theirs: Any = stock.DataLoader(Long(sets.write(tmp_path), chain), batch_size=4)
        ours = wf.feed(theirs)
        assert same(batches(theirs), batches(ours))
        assert native(ours) == (fill in (0, 7)), ours.explain()


def test_batches_that_one_of_several_loaders_refuses(tmp_path: Path) -> None:
    dataset = sets.Apart(sets.write(tmp_path), SMALL, SMALL)
    theirs: Any = stock.DataLoader(dataset, batch_size=4)
    ours = wf.feed(theirs)
    source = ours._planned().native_source
    acquire = source.acquire

    def limited() -> Any:
        made = acquire()
        second = made._loaders[1]

        class Limited:
            def submit(self, rows: Any) -> None:
                if 5 in rows:
                    raise wf.LimitExceededError("too large")
                second.submit(rows)

            def __getattr__(self, name: str) -> Any:
                return getattr(second, name)

        made._loaders[1] = Limited()
        return made

    source.acquire = limited
    assert same(list(theirs), list(ours))
    assert source.in_python == 1


@pytest.mark.parametrize("given", [None, 64 << 20])
def test_loaders_of_several_images_share_the_budget(tmp_path: Path, given: int | None) -> None:
    def budgets(dataset: Any) -> list[int]:
        source = wt.DataLoader(dataset, batch_size=4, memory_budget=given)._planned().native_source
        loaders = source.acquire()
        return [
            json.loads(loader.stats()[0])["memory_budget"]
            for loader in getattr(loaders, "_loaders", [loaders])
        ]

    root = sets.write(tmp_path)
    (whole,) = budgets(sets.Tutorial(root, RESIZED))
    assert given in (None, whole)
    assert budgets(sets.Apart(root, SMALL, SMALL)) == [whole // 2] * 2


def test_several_iterators_live_at_once(tmp_path: Path) -> None:
    dataset = sets.Apart(sets.write(tmp_path), SMALL, SMALL)
    theirs: Any = stock.DataLoader(dataset, batch_size=2)
    ours = wf.feed(theirs)
    assert same(list(zip(theirs, theirs, strict=True)), list(zip(ours, ours, strict=True)))


def test_pipelines_of_albumentations_with_masks(tmp_path: Path) -> None:
    A = pytest.importorskip("albumentations")
    from albumentations.pytorch import ToTensorV2

    import albumentations_sets as more

    root = sets.write(tmp_path)
    normal = A.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    for chain in (
        [A.Resize(30, 36), A.HorizontalFlip(p=1), normal, ToTensorV2()],
        [A.CenterCrop(30, 30), A.VerticalFlip(p=1), A.Resize(60, 50), ToTensorV2()],
    ):
        for kind in (more.WithMask, more.WithFloats):
            check(kind(root, A.Compose(chain)))
    for turn in (
        A.Rotate((23, 23), p=1),
        A.Rotate((-70, -70), border_mode=4, p=1),
        A.SafeRotate((31, 31), p=1),
        A.Affine((0.8, 0.8), {"x": (0.1, 0.1), "y": (-0.07, -0.07)}, rotate=(12, 12), shear=(5, 5), p=1),
        A.Rotate((23, 23), fill=7, fill_mask=7, p=1),
    ):
        check(more.WithMask(root, A.Compose([turn, A.Resize(30, 36), ToTensorV2()])))
    apart = wf.feed(
        stock.DataLoader(
            more.WithMask(root, A.Compose([A.Rotate(fill_mask=255), A.Resize(9, 9)])), batch_size=4
        )
    )
    assert "fill_mask 255" in apart.explain()
    drawn = wf.feed(
        stock.DataLoader(more.WithMask(root, A.Compose([A.Transpose(), A.Resize(9, 9)])), batch_size=4)
    )
    assert "what it does to masks" in drawn.explain()
    # Pipelines refuse masks of other sizes than their images.
    sets.mask(np.zeros((9, 9), np.uint8), "P").save(sorted(root.glob("masks/*"))[2])
    for loader in (stock.DataLoader, lambda *a, **k: wf.feed(stock.DataLoader(*a, **k))):
        with pytest.raises(ValueError, match="equal"):
            batches(loader(more.WithMask(root, A.Compose([A.Resize(30, 36), ToTensorV2()])), batch_size=4))
