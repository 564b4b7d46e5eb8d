"""Collate functions that stack samples and mix the batch: native batches, mixed by torchvision's own transforms."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data
from torch.utils import data
from torch.utils.data import DataLoader as Stock
from torch.utils.data import TensorDataset, default_collate
from torchvision.transforms import v2

import wellfed as wf
import wellfed.torch as wt
from torchvision_sets import image_folder
from wellfed._steps.seeds import mix as mixed_seed
from wellfed.torch._lower import lower
from wellfed.torch._lower.mixing import Mixing, mixing_of, only_stacks
from wellfed.torch._lower.native import NativeSource

CLASSES = 5
MIXUP, CUTMIX = v2.MixUp(num_classes=CLASSES), v2.CutMix(num_classes=CLASSES)
EITHER = v2.RandomChoice([CUTMIX, MIXUP])

CHAIN = v2.Compose([v2.Resize((24, 20)), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])


def collate_fn(batch: Any) -> Any:
    """As torchvision's documentation writes it."""
    return EITHER(*default_collate(batch))


def made(mix: Any, stack: Any = default_collate) -> list[Callable[[Any], Any]]:
    """Functions that mix, whose names belong to a function around them."""

    def in_steps(samples: Any) -> Any:
        images, labels = default_collate(samples)
        images, labels = mix(images, labels)
        return images, labels

    def at_once(samples: Any) -> Any:
        images, labels = stack(samples)
        return mix(images, labels)

    def whole(samples: Any) -> Any:
        stacked = data.default_collate(samples)
        return mix(*stacked)

    return [
        in_steps,
        at_once,
        whole,
        lambda batch: mix(*default_collate(batch)),
        lambda batch: mix(*stack(batch)),
        lambda batch: mix(*torch.utils.data.default_collate(batch)),
    ]


class Doubled(v2.MixUp):
    pass


def test_functions_are_known_by_what_they_do() -> None:
    assert mixing_of(collate_fn).transform is EITHER  # type: ignore[union-attr]
    for mix in (MIXUP, CUTMIX, EITHER, v2.RandomApply([MIXUP], 0.3)):
        for known in made(mix):
            found = mixing_of(known)
            assert found is not None, known
            assert found.transform is mix
    for stacks in (
        default_collate,
        lambda b: default_collate(b),
        lambda b: torch.utils.data.default_collate(b),
    ):
        assert only_stacks(stacks)
        assert mixing_of(stacks) is None
    assert not only_stacks(collate_fn)


def test_what_does_anything_else_is_not_known() -> None:
    others: list[Any] = [
        *made(Doubled(num_classes=CLASSES)),
        *made(lambda *batch: batch),
        *made(v2.RandomChoice([MIXUP, v2.Identity()])),
        *made(v2.RandomChoice([MIXUP, Doubled(num_classes=CLASSES)])),
        lambda batch: MIXUP(*default_collate(batch[:2])),
        lambda batch: MIXUP(*default_collate(batch), 1),
        lambda batch: MIXUP(default_collate(batch)),
        lambda batch, mix=MIXUP: mix(*default_collate(batch)),
        lambda batch: default_collate(MIXUP(*batch)),
        lambda batch: MIXUP(*list(batch)),
        lambda batch: MIXUP(*MIXUP(*default_collate(batch))),
        lambda *batch: MIXUP(*default_collate(batch)),
    ]
    stack = lambda batch: default_collate(batch[::-1])  # noqa: E731
    others += [known for place, known in enumerate(made(MIXUP, stack)) if place in (1, 4)]

    def swapped(batch: Any) -> Any:
        images, labels = default_collate(batch)
        return MIXUP(labels, images)

    changed = v2.MixUp(num_classes=CLASSES)
    changed.transform = lambda inpt, params: inpt  # type: ignore[method-assign]
    hooked = v2.MixUp(num_classes=CLASSES)
    hooked.register_forward_hook(lambda *_: None)
    for other in [*others, swapped, *made(changed), *made(hooked)]:
        assert mixing_of(other) is None, other
        assert not only_stacks(other)
    shadow = types.FunctionType(collate_fn.__code__, {"EITHER": EITHER, "default_collate": stack})
    assert mixing_of(shadow) is None


def mixed_by(images: torch.Tensor, labels: torch.Tensor, soft: torch.Tensor) -> torch.Tensor:
    """What `MixUp` makes of images, with the lambda that is in the labels that it made."""
    ones = torch.nn.functional.one_hot(labels, CLASSES).float()
    differs = (labels != labels.roll(1)).nonzero()
    assert len(differs)
    row = int(differs[0])
    lam = float(soft[row, labels[row]])
    assert torch.equal(soft, ones.roll(1, 0).mul_(1.0 - lam).add_(ones.mul(lam)))
    return images.roll(1, 0).mul_(1.0 - lam).add_(images.mul(lam))


def test_batches_are_mixed_as_by_torchvision(tmp_path: Path) -> None:
    folder = image_folder(tmp_path, transform=CHAIN)
    plain = list(Stock(folder, 4))
    loader = wt.DataLoader(folder, 4, collate_fn=made(MIXUP)[3])
    assert lower(loader).kind == "native"
    lambdas = set()
    for _ in range(3):
        for (images, labels), (mixed, soft) in zip(plain, loader, strict=True):
            if len(labels.unique()) > 1:
                assert torch.equal(mixed, mixed_by(images, labels, soft))
                lambdas.add(float(soft[(labels != labels.roll(1)).nonzero()[0, 0]].max()))
    assert len(lambdas) > 2, "every epoch draws anew"
    cut = wt.DataLoader(folder, 4, collate_fn=made(CUTMIX)[0])
    for (images, _), (mixed, soft) in zip(plain, cut, strict=True):
        assert ((mixed == images) | (mixed == images.roll(1, 0))).all()
        assert torch.allclose(soft.sum(1), torch.ones(len(soft)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.uint8])
def test_draws_and_bits_are_those_of_the_transform(dtype: torch.dtype) -> None:
    weighted = v2.RandomChoice([CUTMIX, v2.MixUp(alpha=0.3, num_classes=CLASSES)], p=[1, 3])
    soft = v2.MixUp()
    for seed, mix in itertools.product(range(12), (MIXUP, CUTMIX, weighted, v2.RandomApply([MIXUP]), soft)):
        if dtype == torch.uint8 and mix is not CUTMIX:
            continue
        n = 1 + seed % 5
        images = (torch.rand(n, 3, 9, 13) * 200).to(dtype)
        labels = torch.randint(CLASSES, (n,)) if mix is not soft else torch.rand(n, CLASSES)
        torch.default_generator.manual_seed(mixed_seed(seed, 40))
        values, weights = mix(images.clone(), labels.clone())
        drawn = None
        if type(mix) in (v2.MixUp, v2.CutMix, v2.RandomChoice) and mix is not soft:
            drawn = Mixing(mix).draw((3, 9, 13), seed, 40)
            assert drawn is not None
            assert torch.equal(weights, drawn.labels(labels))
        made, given = Mixing(mix)([images, labels], seed, 40)
        assert torch.equal(values, made)
        assert torch.equal(weights, given)
        assert weights.dtype == given.dtype


@pytest.mark.parametrize("kind", ["MIXUP", "CUTMIX", "EITHER"])
def test_neither_workers_nor_a_resume_nor_other_draws_change_it(tmp_path: Path, kind: str) -> None:
    folder = image_folder(tmp_path, transform=CHAIN)
    mix = globals()[kind]

    def loader(workers: int) -> Any:
        return wt.DataLoader(folder, 3, shuffle=True, num_workers=workers, collate_fn=made(mix)[3])

    def epochs(workers: int, draws: int) -> list[Any]:
        torch.manual_seed(7)
        one, batches = loader(workers), []
        for _ in range(2):
            for batch in one:
                batches.append(batch)
        for _ in range(draws):
            torch.rand(1)
        return batches

    whole = epochs(0, 0)
    for other in (epochs(2, 0), epochs(1, 5)):
        for (a, b), (c, d) in zip(whole, other, strict=True):
            assert torch.equal(a, c)
            assert torch.equal(b, d)
    assert not torch.equal(whole[0][0], whole[len(whole) // 2][0])

    torch.manual_seed(7)
    begun = loader(2)
    batches = iter(begun)
    for _ in range(2):
        next(batches)
    state = begun.state_dict()
    resumed = loader(0)
    resumed.load_state_dict(state)
    rest = list(resumed)
    assert len(rest) == len(whole) // 2 - 2
    for (a, b), (c, d) in zip(whole[2:], rest):
        assert torch.equal(a, c)
        assert torch.equal(b, d)


ENDS: dict[str, Callable[[], list[Any]]] = {
    "float32": lambda: [v2.ToImage(), v2.ToDtype(torch.float32, scale=True)],
    "float16": lambda: [v2.ToImage(), v2.ToDtype(torch.float16, scale=True)],
    "bfloat16": lambda: [v2.ToImage(), v2.ToDtype(torch.bfloat16, scale=True)],
    "uint8": lambda: [v2.PILToTensor()],
}


@pytest.mark.parametrize("dtype", list(ENDS))
def test_the_engine_mixes_as_the_calling_thread_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    folder = image_folder(tmp_path, transform=v2.Compose([v2.Resize((24, 20)), *ENDS[dtype]()]))
    weighted = v2.RandomChoice([CUTMIX, v2.MixUp(alpha=0.3, num_classes=CLASSES + 2)], p=[1, 3])
    asked: list[int] = []
    for mix in (CUTMIX,) if dtype == "uint8" else (MIXUP, CUTMIX, weighted):

        def batches(mix: Any = mix) -> list[Any]:
            torch.manual_seed(5)
            loader = wt.DataLoader(folder, 3, shuffle=True, num_workers=1, collate_fn=made(mix)[3])
            return [batch for _ in range(3) for batch in loader]

        engine = batches()
        asked.clear()
        with monkeypatch.context() as patch:
            patch.setattr(NativeSource, "mixed_size", lambda self, native: asked.append(1))
            caller = batches()
        assert asked
        assert len(engine) == len(caller) > 5
        for (a, b), (c, d) in zip(engine, caller, strict=True):
            assert a.dtype == c.dtype == getattr(torch, dtype)
            assert torch.equal(a, c)
            assert torch.equal(b, d)
            assert b.dtype == d.dtype


def test_what_only_torchvision_mixes_stays_in_the_calling_thread(tmp_path: Path) -> None:
    folder = image_folder(tmp_path, transform=CHAIN)
    number = image_folder(tmp_path / "named", transform=CHAIN, target_transform=lambda label: label)
    own_labels = v2.MixUp(num_classes=CLASSES, labels_getter=lambda inputs: inputs[1])
    by_engine = {
        dataset_and_mix: "mixed by the engine"
        in wt.DataLoader(dataset_and_mix[0], 4, collate_fn=made(dataset_and_mix[1])[3]).explain()
        for dataset_and_mix in (
            (folder, MIXUP),
            (folder, EITHER),
            (number, MIXUP),
            (folder, own_labels),
            (folder, v2.RandomApply([MIXUP])),
            (folder, v2.MixUp(num_classes=1)),
        )
    }
    assert list(by_engine.values()) == [True, True, False, False, False, False]


def test_torchs_generator_is_left_alone(tmp_path: Path) -> None:
    folder = image_folder(tmp_path, transform=CHAIN)

    def after(collate: Any) -> torch.Tensor:
        torch.manual_seed(3)
        for _ in wt.DataLoader(folder, 3, shuffle=True, num_workers=1, collate_fn=collate):
            pass
        return torch.rand(4)

    assert torch.equal(after(None), after(made(EITHER)[3]))


def test_errors_are_torchvisions_and_the_loader_goes_on(tmp_path: Path) -> None:
    folder = image_folder(tmp_path, transform=v2.Compose([v2.Resize((8, 8)), v2.ToImage()]))
    few = v2.CutMix(num_classes=1)
    batches = iter(wt.DataLoader(folder, 3, shuffle=False, collate_fn=made(few)[3]))
    stock = iter(Stock(folder, 3, collate_fn=made(few)[3]))
    for _ in range(len(Stock(folder, 3))):
        outcomes = []
        for one in (batches, stock):
            try:
                outcomes.append(next(one)[1].shape)
            except RuntimeError as e:
                outcomes.append(str(e))
        assert outcomes[0] == outcomes[1]
    with pytest.raises(StopIteration):
        next(batches)
    with pytest.raises(RuntimeError, match="can't be cast"):
        next(iter(wt.DataLoader(folder, 3, collate_fn=made(MIXUP)[3])))  # of uint8


def test_a_name_that_means_something_else_later_is_noticed(tmp_path: Path) -> None:
    folder = image_folder(tmp_path, transform=CHAIN)
    scope: dict[str, Any] = {"mix": MIXUP, "default_collate": default_collate}
    exec("collate = lambda batch: mix(*default_collate(batch))", scope)
    loader = wt.DataLoader(folder, 4, collate_fn=scope["collate"])
    assert loader.explain().startswith("DataLoader, native")
    scope["mix"] = lambda images, labels: (images.shape, labels)
    assert next(iter(loader))[0] == (4, 3, 24, 20)
    scope["mix"] = CUTMIX
    assert next(iter(loader))[1].shape == (4, CLASSES)


def test_explain_says_who_mixes_and_never_advises_to_leave_it_out(tmp_path: Path) -> None:
    folder = image_folder(tmp_path, transform=CHAIN)
    text = wf.feed(Stock(folder, 4, collate_fn=collate_fn)).explain()
    assert "native: the engine makes whole batches" in text
    assert "mixed by the engine, with what torchvision's RandomChoice" in text
    text = wf.feed(Stock(folder, 4, collate_fn=made(v2.RandomApply([MIXUP]))[3])).explain()
    assert "torchvision's RandomApply" in text
    assert "mixes finished batches, in the calling process" in text
    steps = image_folder(tmp_path / "steps", transform=v2.Compose([CHAIN, lambda image: image]))
    rows = TensorDataset(torch.rand(6, 3, 4, 4), torch.zeros(6, dtype=torch.int64))
    for dataset, collate in ((folder, lambda b: b[0]), (steps, collate_fn), (rows, collate_fn)):
        text = wt.DataLoader(dataset, 4, collate_fn=collate).explain()
        assert "collate_fn" in text
        assert "leave collate_fn out" not in text
        assert not text.startswith("DataLoader, native")
    for dataset in (steps, rows):
        torch.manual_seed(1)
        one = list(wt.DataLoader(dataset, 3, collate_fn=collate_fn))
        torch.manual_seed(1)
        other = list(Stock(dataset, 3, collate_fn=collate_fn))
        assert all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in zip(one, other, strict=True))
