"""`feed(loader, device="cuda", on_device=...)`: the same batches, by the kernels on the host and on a device."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

import wellfed as wf
from few_photographs import few_photographs
from wellfed._share import SETTLE
from wellfed.torch import DataLoader as Fed
from wellfed.torch._device import Staged
from wellfed.torch._left import LeftImages
from wellfed.torch._lower import left as of_left
from wellfed.torch._nested import map_leaves

torchvision = pytest.importorskip("torchvision")
from torchvision.datasets import ImageFolder  # noqa: E402
from torchvision.transforms import v2  # noqa: E402

gpu = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="NO CUDA DEVICE: what it makes is not compared"
)
TRANSFORM = v2.Compose(
    [
        v2.RandomResizedCrop(32),
        v2.RandomHorizontalFlip(),
        v2.ToImage(),
        v2.ToDtype(torch.float32, scale=True),
        v2.Normalize((0.4, 0.5, 0.6), (0.2, 0.2, 0.3)),
    ]
)
FIXED = v2.Compose([v2.Resize((20, 24)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> str:
    return few_photographs(tmp_path_factory.mktemp("photos"))


class Pages:
    """Stands in for what page-locks memory: it keeps count."""

    def __init__(self, device: torch.device) -> None:
        self.page_lock, self.begun, self.locked = self, 0, set[int]()

    def begin(self) -> None:
        self.begun += 1

    def lock(self, address: int, nbytes: int) -> None:
        self.locked.add(address)

    def unlock(self, address: int) -> None:
        self.locked.discard(address)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Pages]:
    """Those that were made."""
    made: list[Pages] = []

    def make(device: torch.device) -> Pages:
        made.append(Pages(device))
        return made[-1]

    monkeypatch.setattr(of_left, "BatchPages", make)
    return made


def left_to_cuda(loader: Any, kind: str = "decode", **arguments: Any) -> Fed[Any]:
    """The loader with images left to a device that is not there: batches as they are before they go to it."""
    fed: Fed[Any] = wf.feed(loader, **arguments)
    fed.device, fed.on_device = torch.device("cuda"), kind  # type: ignore[assignment]
    return fed


def finished(batch: Any) -> Any:
    """By the kernels on the host."""
    return map_leaves(batch, lambda images: images.to("cpu"), lambda value: isinstance(value, LeftImages))


def leaves(batch: Any) -> list[Any]:
    found: list[Any] = []
    map_leaves(batch, lambda one: found.append(one) or one, lambda value: hasattr(value, "to"))  # type: ignore[func-returns-value]
    return found


def compare(plain: Any, left: Any) -> int:
    """How many batches had left images; all batches must be the same."""
    count = 0
    for wanted, batch in zip(plain, left, strict=True):
        count += any(isinstance(one, LeftImages) for one in leaves(batch))
        given = finished(batch)
        assert type(given) is type(wanted)
        for one, other in zip(leaves(wanted), leaves(given), strict=True):
            assert one.dtype == other.dtype
            assert torch.equal(one, other)
    return count


def loader_of(photos: str, transform: Any = TRANSFORM, **arguments: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    arguments = {"batch_size": 5, "shuffle": True, "generator": generator, **arguments}
    return DataLoader(ImageFolder(photos, transform), **arguments)


@pytest.mark.parametrize("kind", ["resize", "decode", "auto"])
def test_batches_are_those_of_the_engine(photos: str, pages: list[Pages], kind: str) -> None:
    plain, left = wf.feed(loader_of(photos)), left_to_cuda(loader_of(photos), kind)
    for _ in range(3):
        assert compare(plain, left._make_iterator()) == 4
    assert f"on_device={kind}" in left.explain()
    assert "RandomResizedCrop" in left.explain().split(f"on_device={kind}")[1]
    (made,) = pages
    assert made.begun == 3
    assert made.locked
    counts = left._planned().native_source.left.decoded  # type: ignore[union-attr]
    assert sum(counts.values()) == 54
    assert (counts["device"] > 0) == (kind == "decode")


def test_the_share_of_the_device_is_measured(photos: str, pages: list[Pages]) -> None:
    plain, left = wf.feed(loader_of(photos)), left_to_cuda(loader_of(photos), "auto")
    share = left._planned().native_source.left.share  # type: ignore[union-attr]
    assert share is not None
    for part in (0.5, 1.0):
        share.share = part
        assert compare(plain, left._make_iterator()) == 4
    iterator = left._make_iterator()
    share._apply(0.0)
    assert compare(plain, iterator) == 4
    assert share._settle == 0
    assert share._count == 12 - SETTLE - 1, (
        "each batch is noted, and of the last pass the first begins the clock"
    )
    assert left._planned().native_source.left.decoded["device"] > 10  # type: ignore[union-attr]


def test_states_and_orders_are_the_same(photos: str, pages: list[Pages]) -> None:
    dataset = loader_of(photos).dataset
    plain, resumed = Fed(dataset, 4, shuffle=True), Fed(dataset, 4, shuffle=True)
    ahead = iter(plain)
    next(ahead)
    resumed.load_state_dict(plain.state_dict())
    resumed.device, resumed.on_device = torch.device("cuda"), "decode"
    resumed._iterator_from = lambda resume: resumed._make_iterator(resume)  # type: ignore[method-assign]
    assert compare(ahead, iter(resumed)) == 4


def test_the_device_stage_finishes_them(photos: str, pages: list[Pages]) -> None:
    class Stage:
        ahead = True

        def enter_thread(self) -> None:
            pass

        def begin(self, batch: Any) -> Any:
            return finished(batch)

        def finish(self, staged: Any) -> Any:
            return staged

    plain, left = wf.feed(loader_of(photos)), left_to_cuda(loader_of(photos))
    staged: Any = Staged(left._make_iterator(), Stage())  # type: ignore[arg-type]
    assert compare(plain, staged) == 0


def test_floats_are_cast_when_they_are_finished(photos: str, pages: list[Pages]) -> None:
    plain = wf.feed(loader_of(photos), float_dtype="bfloat16")
    left = left_to_cuda(loader_of(photos), float_dtype="bfloat16")
    assert compare(plain, left._make_iterator()) == 4


@pytest.mark.parametrize("mix", [v2.MixUp, v2.CutMix])
def test_batches_are_mixed_where_they_are_finished(photos: str, pages: list[Pages], mix: Any) -> None:
    mixing = mix(num_classes=2)

    def collate(batch: Any) -> Any:
        return mixing(*torch.utils.data.default_collate(batch))

    torch.manual_seed(5)
    plain = wf.feed(loader_of(photos, collate_fn=collate))
    assert "mixed by the engine" in plain.explain()
    left = left_to_cuda(loader_of(photos, collate_fn=collate))
    for _ in range(2):
        assert compare(plain, left._make_iterator()) == 4


def test_keys_of_collate_functions_are_kept(photos: str, pages: list[Pages]) -> None:
    def collate(batch: Any) -> Any:
        return {
            "labels": torch.tensor([label for _, label in batch]),
            "pixels": torch.stack([image for image, _ in batch]),
        }

    plain = wf.feed(loader_of(photos, collate_fn=collate))
    left = left_to_cuda(loader_of(photos, collate_fn=collate))
    assert compare(plain, left._make_iterator()) == 4


def test_rows_of_streams_are_left_too(pages: list[Pages]) -> None:
    hf = pytest.importorskip("datasets")
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), np.uint8)).save(buffer, "JPEG")
    rows = {"image": [{"bytes": buffer.getvalue(), "path": None}] * 7, "label": list(range(7))}
    features = hf.Features({"image": hf.Image(), "label": hf.Value("int64")})

    def small(row: Any) -> Any:
        return {"image": FIXED(row["image"].convert("RGB"))}

    def loader() -> Fed[Any]:
        table = hf.Dataset.from_dict(rows, features=features).to_iterable_dataset().map(small)
        return Fed(table, batch_size=3)

    left = left_to_cuda(loader())
    assert compare(loader(), left._make_iterator()) == 3
    assert "on_device=decode" in left.explain()
    assert pages[0].begun == 1


def test_what_devices_do_not_run_stays_with_the_engine(photos: str, pages: list[Pages]) -> None:
    transform = v2.Compose([*FIXED.transforms, v2.GaussianNoise()])
    plain, left = wf.feed(loader_of(photos, transform)), left_to_cuda(loader_of(photos, transform))
    if plain._planned().kind != "native":
        pytest.skip("the engine does not make this noise")
    assert compare(plain, left._make_iterator()) == 0
    assert "not possible" in left.explain()


def test_what_the_engine_cannot_make_the_data_set_makes(tmp_path: Path, pages: list[Pages]) -> None:
    (tmp_path / "a").mkdir()
    noise = np.random.default_rng(0).integers(0, 256, (40, 50, 3), np.uint8)
    for k in range(6):
        Image.fromarray(noise).save(tmp_path / "a" / f"{k}.jpg", "PCX" if k == 4 else "JPEG")
    arguments: dict[str, Any] = {"batch_size": 2, "shuffle": False}
    plain = wf.feed(loader_of(str(tmp_path), FIXED, **arguments))
    left = left_to_cuda(loader_of(str(tmp_path), FIXED, **arguments))
    assert compare(plain, left._make_iterator()) == 2
    assert "1 batches so far" in left.explain()


def test_wrong_use_is_told(photos: str, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = loader_of(photos)
    with pytest.raises(ValueError, match="on_device is 'gpu'; it is one of"):
        wf.feed(loader, device="cuda", on_device="gpu")
    with pytest.raises(ValueError, match=r"device is None\nhint: device=\"cuda\", on_device="):
        wf.feed(loader, on_device="decode")
    with pytest.raises(ValueError, match="device is 'cpu'"):
        wf.feed(loader, device="cpu", on_device="decode")
    monkeypatch.setattr("wellfed.torch._loader.target", torch.device)
    given: Any = {"device": "cuda", "on_device": "decode"}

    def refused(loader: Any, words: str, **arguments: Any) -> None:
        with pytest.raises(ValueError, match=words):
            wf.feed(loader, **given, **arguments)

    refused(loader, r"native=False was given\nhint: leave native=False out", native=False)
    with_python = v2.Compose([v2.Lambda(lambda x: x), *FIXED.transforms])
    refused(loader_of(photos, with_python), "the engine makes whole, and here Lambda")
    refused(DataLoader(TensorDataset(torch.arange(6))), "no images to decode")
    refused(loader_of(photos, batch_size=None, shuffle=False), "without a batch size")
    refused(loader_of(photos, collate_fn=lambda batch: tuple(zip(*batch))), "stand side by side")
    fed = wf.feed(loader, **given)
    assert (fed.device, fed.on_device) == (torch.device("cuda"), "decode")
    assert wf.feed(fed, batch_size=3).on_device == "decode"
    fed.dataset.transform = with_python
    with pytest.raises(ValueError, match="here Lambda"):
        iter(fed)


@gpu
@pytest.mark.parametrize("kind", ["resize", "decode", "auto"])
def test_a_device_makes_the_same_bits(photos: str, kind: Any) -> None:
    plain = wf.feed(loader_of(photos))
    fed = wf.feed(loader_of(photos), device="cuda", on_device=kind)
    for _ in range(4):
        for (wanted, labels), (images, others) in zip(plain, fed, strict=True):
            assert images.is_cuda
            assert torch.equal(images.cpu(), wanted)
            assert torch.equal(others.cpu(), labels)
    mixing = v2.MixUp(num_classes=2)

    def collate(batch: Any) -> Any:
        return mixing(*torch.utils.data.default_collate(batch))

    plain = wf.feed(loader_of(photos, collate_fn=collate), float_dtype="float16")
    fed = wf.feed(loader_of(photos, collate_fn=collate), device="cuda", on_device=kind, float_dtype="float16")
    for (wanted, labels), (images, others) in zip(plain, fed, strict=True):
        assert torch.equal(images.cpu(), wanted)
        assert torch.equal(others.cpu(), labels)
