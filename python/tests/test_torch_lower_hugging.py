"""Data sets of Hugging Face's `datasets` with images: rows as the stock loader gives them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader as Stock
from torch.utils.data import Subset
from torchvision.transforms import transforms as v1

import wellfed.torch as wt
from pictures import picture
from torch_same import same

hf = pytest.importorskip("datasets")


def encoded(seed: int, kind: str, mode: str = "RGB") -> bytes:
    file = io.BytesIO()
    channels = 1 if mode == "L" else 3
    array = picture(seed, 24, 20, channels)
    image = Image.fromarray(array[..., 0] if channels == 1 else array)
    if mode == "P":
        image = image.convert("P")
    exif = Image.Exif()
    exif[0x0112] = 3 if seed == 1 else 1  # one of them stands on its head
    image.save(file, kind, exif=exif)
    return file.getvalue()


def table(kind: str = "png", mode: str = "RGB", feature: Any = None, count: int = 9) -> Any:
    features = {
        "label": hf.ClassLabel(names=["a", "b"]),
        "image": feature or hf.Image(),
        "name": hf.Value("string"),
        "weight": hf.Value("float32"),
    }
    rows = {
        "label": [i % 2 for i in range(count)],
        "image": [{"bytes": encoded(i, kind, mode), "path": None} for i in range(count)],
        "name": [f"row {i}" for i in range(count)],
        "weight": [i / 8 for i in range(count)],
    }
    return hf.Dataset.from_dict(rows, features=hf.Features(features))


def both(dataset: Any, native: bool, **arguments: Any) -> None:
    results = []
    for loader_of in (Stock, wt.DataLoader):
        torch.manual_seed(3)
        loader = loader_of(dataset, **arguments)
        results.append([list(loader), list(loader)])
    assert same(*results)
    assert loader.explain().splitlines()[0].startswith("DataLoader, native") == native, loader.explain()


CASES = {
    "png": lambda: table(),
    "grey png": lambda: table(mode="L"),
    "jpeg": lambda: table("jpeg", feature=hf.Image(mode="RGB")),
    "palette as rgb": lambda: table(mode="P", feature=hf.Image(mode="RGB")),
    "shuffled": lambda: table().shuffle(seed=1).select(range(2, 9)),
    "chunks": lambda: hf.concatenate_datasets([table(count=4), table(count=3)]),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", ["torch", "numpy"])
def test_rows_are_those_of_the_stock_loader(case: str, form: str) -> None:
    native = not (form == "numpy" and case == "grey png")
    both(CASES[case]().with_format(form), native, batch_size=4, shuffle=True)


def test_rows_of_subsets_columns_and_files_on_disk(tmp_path: Path) -> None:
    both(Subset(table().with_format("torch"), [5, 1, 1]), True, batch_size=2)
    both(table().with_format("torch", columns=["image", "weight"]), True, batch_size=4)
    table().save_to_disk(tmp_path / "set")
    both(hf.load_from_disk(str(tmp_path / "set")).with_format("torch"), True, batch_size=4)


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (
            lambda: table().with_format("torch").with_transform(lambda rows: {"x": rows["label"]}),
            "set_transform",
        ),
        (lambda: table("jpeg").with_format("torch"), "grey or colour"),
        (lambda: table(mode="P").with_format("torch"), "palettes"),
        (lambda: table().with_format("torch", dtype=torch.float32), "arguments"),
        (lambda: table("bmp").with_format("torch"), "neither JPEG nor PNG"),
    ],
)
def test_what_may_differ_stays_in_python(dataset: Any, words: str) -> None:
    made = dataset()
    assert words in wt.DataLoader(made, batch_size=3).explain()
    both(made, False, batch_size=3)


def test_plain_rows_have_pillow_images_which_nobody_can_stack() -> None:
    assert 'with_format("torch")' in wt.DataLoader(table(), batch_size=2).explain()
    with pytest.raises(TypeError, match="default_collate"):
        next(iter(wt.DataLoader(table(), batch_size=2)))


def test_a_new_format_is_seen() -> None:
    dataset = table().with_format("torch")
    loader = wt.DataLoader(dataset, batch_size=4)
    assert set(next(iter(loader))) == {"label", "image", "name", "weight"}
    dataset.set_format("torch", columns=["label"])
    assert set(next(iter(loader))) == {"label"}


# Rows that a function of the user changes.

CHAIN = v1.Compose([v1.Resize((12, 14)), v1.ToTensor()])


def listed(rows: Any) -> Any:
    return {"x": [CHAIN(image.convert("RGB")) for image in rows["image"]], "label": rows["label"]}


def kept(rows: Any) -> Any:
    rows["pixel_values"] = [CHAIN(image.convert("RGB")) for image in rows["image"]]
    del rows["image"]
    return rows


def popped(rows: Any) -> Any:
    images = [image.convert("RGB") for image in rows.pop("image")]
    rows["pixel_values"] = [CHAIN(image) for image in images]
    rows["twice"] = [2 * label for label in rows["label"]]
    return rows


def helped(rows: Any) -> Any:
    return {"x": [prepared(image) for image in rows["image"]], "name": rows["name"]}


def prepared(image: Any) -> Any:
    return CHAIN(image.convert("RGB"))


@pytest.mark.parametrize("kind", ["png", "jpeg"])
@pytest.mark.parametrize("function", [listed, kept, popped, helped])
def test_transforms_of_rows_are_read(function: Any, kind: str) -> None:
    made = table(kind)
    made.set_transform(function)
    both(made, True, batch_size=4, shuffle=True)
    both(made.select([5, 1, 2]), True, batch_size=2)
    both(Subset(made, [3, 3, 8]), True, batch_size=2)


def test_images_of_rows_may_be_files(tmp_path: Path) -> None:
    paths = []
    for place in range(6):
        path = tmp_path / f"{place}.jpg"
        path.write_bytes(encoded(place, "jpeg", "L" if place == 4 else "RGB"))
        paths.append(str(path))
    made = hf.Dataset.from_dict({"image": paths, "label": list(range(6))}).cast_column("image", hf.Image())
    both(made.with_transform(listed), True, batch_size=4, shuffle=True)
    paths[2] = str(tmp_path / "gone.jpg")
    gone = hf.Dataset.from_dict({"image": paths, "label": list(range(6))}).cast_column("image", hf.Image())
    with pytest.raises(FileNotFoundError):
        list(wt.DataLoader(gone.with_transform(listed), batch_size=4))


def test_a_transform_of_rows_that_is_exchanged_is_seen() -> None:
    made = table()
    made.set_transform(listed)
    loader = wt.DataLoader(made, batch_size=4)
    assert list(next(iter(loader))) == ["x", "label"]
    made.set_transform(kept)
    assert list(next(iter(loader))) == ["label", "name", "weight", "pixel_values"]
    made.reset_format()
    made.set_transform(lambda rows: {"n": [len(name) for name in rows["name"]]})
    assert next(iter(loader))["n"].tolist() == [5, 5, 5, 5]


def of_the_batch(rows: Any) -> Any:
    return {"x": [torch.tensor(len(rows["image"])) for _ in rows["image"]]}


def drawing(rows: Any) -> Any:
    return {"x": [CHAIN(image.convert("RGB")) + torch.rand(()) for image in rows["image"]]}


def sized(rows: Any) -> Any:
    return {
        "x": [CHAIN(image.convert("RGB")) for image in rows["image"]],
        "size": [i.size for i in rows["image"]],
    }


def some(rows: Any) -> Any:
    return {"x": [CHAIN(image.convert("RGB")) for image in rows["image"][:3]], "label": rows["label"]}


@pytest.mark.parametrize("function", [of_the_batch, drawing, sized, some])
def test_transforms_of_rows_that_do_more_are_called(function: Any) -> None:
    both(table().with_transform(function), False, batch_size=3)


def test_columns_beside_those_of_a_format_stay() -> None:
    made = table()
    made.set_format("torch", columns=["image", "label"], output_all_columns=True)
    both(made, False, batch_size=3)
    made.set_transform(listed, columns=["image", "label"], output_all_columns=True)
    both(made, False, batch_size=3)
    made.set_transform(listed, columns=["image", "label"])
    both(made, True, batch_size=3)
