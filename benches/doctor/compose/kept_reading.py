"""Kept productions of access, decoding, work and collating: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import kept_material
from accesses import Access, Kept, OwnPart
from collates import Collate, Default, PadSequence
from decodings import Decoding, jpegs
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from kept_storages import ZippedArrays
from storages import storage
from works import RegexTokens, Work, shifted


def outside(text: Text, script: Script, source: str, steps: int) -> None:
    """Adds the storage's lines that read a sample to a function outside of the data set."""
    for line in storage(script).reading(script, source).split("\n"):
        text.sections["top"].append(("    " * steps + line, "storage"))


@dataclass(frozen=True)
class ManifestEach(Access):
    """A CSV file says which files there are, and is read for each sample. Repaired: the folder is listed once."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files",)

    def name(self, script: Script) -> str:
        return f"manifest-{script.about.count}-{storage(script).ending}.csv"  # type: ignore[attr-defined]

    def write(self, text: Text, script: Script) -> None:
        text.need("import csv")
        text.add(
            "top",
            f"""
            def entries():
                with (DATA / "{self.name(script)}").open(newline="") as file:
                    return list(csv.DictReader(file))
            """,
        )
        text.add("get", f'path = DATA / "{storage(script).name(script)}" / entries()[index]["file"]')
        self.read(text, script, "path")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"list-once": {"access": Kept(self.shuffle)}}

    def data(self, script: Script) -> dict[str, Maker]:
        ending = storage(script).ending  # type: ignore[attr-defined]
        return {self.name(script): kept_material.manifest(script.about.count, ending)}

    def cost(self, script: Script) -> float:
        return 0.02 + script.about.count * 1.1e-3


@dataclass(frozen=True)
class FetchFunction(Access):
    """A function outside of the data set opens the container for each sample. Repaired: once for each worker."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("container",)

    def write(self, text: Text, script: Script) -> None:
        kind = storage(script)
        got = "coded" if kind.encoded else "image" if script.about.kind == "image" else "x"
        mapped = "np.load(" in kind.opening(script)
        first = f"file = {kind.opening(script)}" if mapped else f"with {kind.opening(script)} as file:"
        text.add("top", f"def fetch(index):\n    {first}")
        outside(text, script, "file", 1 if mapped else 2)
        text.sections["top"].append((f"    return {got}, label", self.slot))
        text.add("get", f"{got}, label = fetch(index)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"keep-open": {"access": Kept(self.shuffle)}}

    def cost(self, script: Script) -> float:
        kind = storage(script)
        if isinstance(kind, ZippedArrays):
            return kind.open_ms(script)
        return {"TiffPages": 0.6, "ParquetGroups": 0.2, "PackedRecords": 0.02}.get(type(kind).__name__, 0.1)


@dataclass(frozen=True)
class CachedHandle(Access):
    """What is open is kept by a cache, for each process its own: nothing to repair."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("container",)
    weight: ClassVar[float] = 0.5

    def write(self, text: Text, script: Script) -> None:
        text.need("import functools", "import os")
        text.add(
            "top",
            f"""
            @functools.lru_cache(maxsize=1)
            def opened(process):
                return {storage(script).opening(script)}
            """,
        )
        text.add("get", "file = opened(os.getpid())")
        self.read(text, script, "file")


@dataclass(frozen=True)
class PermutedSubset(Access):
    """A `Subset` in an order that was drawn once: nothing to repair."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("files", "container", "memory")
    weight: ClassVar[float] = 0.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(False)

    def write(self, text: Text, script: Script) -> None:
        text.need("import random", "from torch.utils.data import DataLoader, Dataset, Subset")
        count = script.about.count
        text.add("setup", f"order = random.Random(1).sample(range({count}), {count})")
        text.told["dataset"] = "Subset(Samples(), order)"
        Kept(False).write(text, script)


@dataclass(frozen=True)
class ParsesThenSlices(Access):
    """Each worker parses a whole stream into a list, of which it takes a slice. Repaired: only its own are parsed."""

    of: ClassVar[str] = KEPT
    forms: ClassVar[tuple[str, ...]] = ("stream",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.utils.data import get_worker_info")
        text.told["depth"] = "1"
        text.add("top", "def parse(line):")
        outside(text, script, "line", 1)
        text.sections["top"].append(("    return x, label", self.slot))
        text.add(
            "iterate",
            f"""
            info = get_worker_info()
            begin, step = (info.id, info.num_workers) if info is not None else (0, 1)
            with {storage(script).opening(script)} as file:
                rows = [parse(line) for line in file]
            for x, label in rows[begin::step]:
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"own-part": {"access": OwnPart(False)}}


@dataclass(frozen=True)
class FitDecode(Decoding):
    """A function as torchvision's loader, then cut and resized by Pillow. Repaired: `draft`."""

    draft: bool = False
    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image, ImageOps")
        text.add("top", "def pil_loader(source):\n    with Image.open(source) as opened:")
        if self.draft:
            text.sections["top"].append((f'        opened.draft("RGB", ({SIZE}, {SIZE}))', self.slot))
        text.sections["top"].append(('        return opened.convert("RGB")', self.slot))
        text.add("get", f"image = np.array(ImageOps.fit(pil_loader(coded), ({SIZE}, {SIZE})))")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, draft=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class PyramidDecode(Decoding):
    """OpenCV, halved by `pyrDown` until little is left to resize. Repaired: it decodes at half the size."""

    reduced: bool = False
    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("cv2",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np")
        whole = "coded.getbuffer()" if storage(script).form == "container" else "coded.read_bytes()"
        how = "IMREAD_REDUCED_COLOR_2" if self.reduced else "IMREAD_COLOR"
        text.add(
            "top",
            """
            def shrunk(image, size):
                while min(image.shape[:2]) >= 2 * size:
                    image = cv2.pyrDown(image)
                return cv2.resize(image, (size, size))
            """,
        )
        text.add(
            "get",
            f"""
            image = cv2.imdecode(np.frombuffer({whole}, np.uint8), cv2.{how})
            image = shrunk(image, {SIZE})[:, :, ::-1].copy()
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, reduced=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class InterpolateDecode(Decoding):
    """Pillow, then resized as a tensor of floats. Repaired: `draft`."""

    draft: bool = False
    of: ClassVar[str] = KEPT

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image", "from torch.nn import functional as N")
        draft = f'\n        opened.draft("RGB", ({SIZE}, {SIZE}))' if self.draft else ""
        text.add(
            "methods",
            f"def tensor(self, source):\n    with Image.open(source) as opened:{draft}\n"
            '        pixels = np.array(opened.convert("RGB"))\n'
            "    return torch.from_numpy(pixels).permute(2, 0, 1).float()",
        )
        text.add(
            "get",
            f"""
            pixels = self.tensor(coded)[None]
            pixels = N.interpolate(pixels, ({SIZE}, {SIZE}), mode="bilinear", antialias=True)
            image = pixels[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, draft=True)}} if jpegs(script) else {}

    def cost(self, script: Script) -> float:
        return 0.05 + getattr(storage(script), "size", SIZE) ** 2 * 2e-6


@dataclass(frozen=True)
class SaltAndPepper(Work):
    """A callable class that draws and sets pixels one by one. Repaired: all by NumPy."""

    pixels: int = 500
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(pixels=rng.choice([200, 600, 1500]))

    def write(self, text: Text, script: Script) -> None:
        if self.cheap:
            text.need("import numpy as np")
            made = "np.random.default_rng(0)"
            body = f"""
                ys, xs = self.random.integers(0, {SIZE}, (2, self.pixels))
                image[ys, xs] = self.random.choice([0, 255], (self.pixels, 1))
                return image
            """
        else:
            text.need("import random")
            made = "random.Random(0)"
            body = f"""
                for _ in range(self.pixels):
                    y, x = self.random.randrange({SIZE}), self.random.randrange({SIZE})
                    image[y, x] = 255 if self.random.random() < 0.5 else 0
                return image
            """
        text.add(
            "top",
            "class SaltAndPepper:\n    def __init__(self, pixels):\n"
            f"        self.pixels, self.random = pixels, {made}\n\n"
            "    def __call__(self, image):\n" + shifted(body, 2),
        )
        text.add("init", f"self.noise = SaltAndPepper({self.pixels})")
        text.add("work", "image = self.noise(image)")

    def cost(self, script: Script) -> float:
        return self.pixels * 7e-4

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class VectorizedGamma(Work):
    """A function of Python by `np.vectorize` on each pixel of some channels. Repaired: a table."""

    channels: int = 1
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(channels=rng.choice([1, 2, 3]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("top", "def gamma(value):\n    return int(255 * (value / 255) ** 0.8)")
        some = f"image[..., :{self.channels}]"
        if self.cheap:
            text.add("init", "self.table = np.array([gamma(value) for value in range(256)], np.uint8)")
            text.add("work", f"{some} = self.table[{some}]")
        else:
            text.add("init", "self.bend = np.vectorize(gamma, otypes=[np.uint8])")
            text.add("work", f"{some} = self.bend({some})")

    def cost(self, script: Script) -> float:
        return SIZE**2 * self.channels * 1.6e-4


@dataclass(frozen=True)
class WarpAffine(Work):
    """Images are turned by OpenCV. Nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("cv2",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2")
        half = SIZE // 2
        text.add(
            "methods",
            f"""
            def turned(self, image, degrees):
                matrix = cv2.getRotationMatrix2D(({half}, {half}), degrees, 1.1)
                return cv2.warpAffine(image, matrix, ({SIZE}, {SIZE}), borderMode=cv2.BORDER_REFLECT)
            """,
        )
        text.add("work", "image = self.turned(image, index % 31 - 15)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.03


@dataclass(frozen=True)
class RollingMeans(Work):
    """Means of a window by pandas for each row. Repaired: by sums of NumPy's."""

    window: int = 8
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("pandas",)
    weight: ClassVar[float] = 1.5

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(window=rng.choice([3, 8, 12]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = f"""
                ends = np.arange(1, len(x) + 1)
                begins = np.maximum(ends - {self.window}, 0)
                sums = np.concatenate([[0.0], np.cumsum(x, dtype=np.float64)])
                return ((sums[ends] - sums[begins]) / (ends - begins)).astype(np.float32)
            """
        else:
            text.need("import pandas as pd")
            body = f"""
                series = pd.Series(x)
                return series.rolling({self.window}, min_periods=1).mean().to_numpy(np.float32)
            """
        text.add("top", "def smooth(x):\n" + shifted(body))
        text.add("work", "x = smooth(x)")

    def cost(self, script: Script) -> float:
        return 0.07


@dataclass(frozen=True)
class Spectrum(Work):
    """Rows are taken as signals, of which the spectrum is learnt from. Nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("init", f"self.window = np.hanning({getattr(storage(script), 'features', 64)})")
        text.add("work", "x = np.log1p(np.abs(np.fft.fft(x * self.window))).astype(np.float32)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.01


@dataclass(frozen=True)
class TrainedTokenizer(RegexTokens):
    """A tokenizer of Hugging Face's, trained on the texts. Repaired: they are tokenized when the data set is made."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("tokenizers",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from tokenizers import Tokenizer, models, pre_tokenizers, trainers")
        text.add(
            "methods",
            """
            def learn(self):
                tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
                tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
                trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
                tokenizer.train_from_iterator((self.text(index) for index in range(200)), trainer)
                return tokenizer
            """.replace("200", str(min(200, script.about.count))),
        )
        if self.cheap:
            text.add("init", "tokenizer = self.learn()")
            text.add(
                "init",
                "self.tokens = [tokenizer.encode(self.text(index)).ids for index in range(len(self))]",
            )
            text.add("work", "tokens = self.tokens[index]")
        else:
            text.add("init", "self.tokenizer = self.learn()")
            text.add("work", "tokens = self.tokenizer.encode(self.text(index)).ids")

    def cost(self, script: Script) -> float:
        return 0.01 + getattr(storage(script), "words", 60) * 1.3e-3


@dataclass(frozen=True)
class CharacterGrams(RegexTokens):
    """Pieces of words are hashed one by one in Python. Repaired: once, when the data set is made."""

    longest: int = 4
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(longest=rng.choice([3, 4]))

    def constants(self) -> str:
        return f"SIZES = range(3, {self.longest + 1})"

    def tokenize(self) -> str:
        return """
            def pieces(word):
                for size in SIZES:
                    for begin in range(max(1, len(word) - size + 1)):
                        yield word[begin : begin + size]


            def tokenize(text):
                words = [f"<{word}>" for word in text.lower().split()]
                return [zlib.crc32(piece.encode()) % 9000 + 1 for word in words for piece in pieces(word)]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import zlib")
        text.add("constants", self.constants())
        text.add("top", self.tokenize())
        self.call(text)

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "words", 60) * (self.longest - 2) * 1.2e-3


@dataclass(frozen=True)
class PadObject(Collate):
    """A callable object that makes lists longer by an element at a time. Repaired: `pad_sequence`."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "Padding(0)"
        text.add(
            "top",
            """
            class Padding:
                def __init__(self, value):
                    self.value = value

                def __call__(self, samples):
                    longest = max(len(tokens) for tokens, _ in samples)
                    rows, labels = [], []
                    for tokens, label in samples:
                        while len(tokens) < longest:
                            tokens = tokens + [self.value]
                        rows.append(torch.tensor(tokens))
                        labels.append(label)
                    return torch.stack(rows), torch.tensor(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pad-sequence": {"collate": PadSequence()}}

    def cost(self, script: Script) -> float:
        # About 4.5 pieces a word for each size of them; it is quadratic in the lengths.
        tokens = getattr(storage(script), "words", 60) * 4.5 * (getattr(script["work"], "longest", 3) - 2)
        return 0.02 + tokens**2 * 8e-7


@dataclass(frozen=True)
class GrowingBatch(Collate):
    """A batch that grows by `torch.cat`, a sample at a time. Repaired: stacked."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "gather"
        text.add(
            "top",
            """
            def gather(samples):
                rows, labels = torch.tensor([]), torch.tensor([], dtype=torch.long)
                for sample, label in samples:
                    rows = torch.cat([rows, sample.float()[None]])
                    labels = torch.cat([labels, torch.tensor([label])])
                return rows, labels
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"stack-arrays": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        values = SIZE * SIZE * 3 if script.about.kind == "image" else getattr(storage(script), "features", 64)
        return 0.015 + values * (1e-6 + script.about.batch * 2e-7)


@dataclass(frozen=True)
class NumbersAlone(Collate):
    """A sample is a list of numbers, of which each becomes a tensor of its own. Repaired: one tensor."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and getattr(storage(script), "features", 64) <= 128

    def write(self, text: Text, script: Script) -> None:
        text.told["sample"] = "x.tolist()"
        text.add("loop", "x = torch.stack(x, 1).float()")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"few-tensors": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "features", 64) * 5e-4


ACCESSES: list[type[Production]] = [
    ManifestEach, FetchFunction, CachedHandle, PermutedSubset, ParsesThenSlices,
]  # fmt: skip
DECODINGS: list[type[Production]] = [FitDecode, PyramidDecode, InterpolateDecode]
WORKS: list[type[Production]] = [
    SaltAndPepper, VectorizedGamma, WarpAffine, RollingMeans, Spectrum, TrainedTokenizer, CharacterGrams,
]  # fmt: skip
COLLATES: list[type[Production]] = [PadObject, GrowingBatch, NumbersAlone]
