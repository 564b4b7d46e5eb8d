"""Work: what Python does to a sample after it was read."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, SIZE, Production, Script, Text, outdented
from storages import storage


@dataclass(frozen=True)
class Work(Production):
    """What Python does to each sample. `cheap`: its repaired form, which computes the same."""

    slot: ClassVar[str] = "work"
    cheap: bool = False

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and storage(script).form != "tensors"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"cheaper-work": {"work": replace(self, cheap=True)}}


def shifted(block: str, steps: int = 1) -> str:
    """A block without its common indentation, moved to the right."""
    return "\n".join(("    " * steps + line) if line else "" for line in outdented(block))


@dataclass(frozen=True)
class NoWork(Work):
    """Samples are taken as they are."""

    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def fits(cls, script: Script) -> bool:
        return script.about.kind in cls.kinds

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}


@dataclass(frozen=True)
class SolarizeLoop(Work):
    """Pixels of a part are inverted one by one in Python. Repaired: by NumPy."""

    side: int = 32
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(side=rng.choice([12, 24, 40, 64]))

    def write(self, text: Text, script: Script) -> None:
        if self.cheap:
            text.need("import numpy as np")
            body = f"""
                part = image[:{self.side}, :{self.side}, 0]
                part[...] = np.where(part > threshold, 255 - part, part)
                return image
            """
        else:
            body = f"""
                for y in range({self.side}):
                    for x in range({self.side}):
                        value = int(image[y, x, 0])
                        if value > threshold:
                            image[y, x, 0] = 255 - value
                return image
            """
        text.add("top", "def solarize(image, threshold):\n" + shifted(body))
        text.add("work", "image = solarize(image, 128)")

    def cost(self, script: Script) -> float:
        return self.side**2 * 2e-4


@dataclass(frozen=True)
class BlurShifts(Work):
    """A mean of neighbours by one shifted copy for each. Repaired: along one side, then the other."""

    radius: int = 2
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(radius=rng.choice([1, 2, 3]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = f"""
                rows = sum(np.roll(image.astype(np.int32), d, 0) for d in range(-{self.radius}, {self.radius} + 1))
                total = sum(np.roll(rows, d, 1) for d in range(-{self.radius}, {self.radius} + 1))
                return (total // {(2 * self.radius + 1) ** 2}).astype(np.uint8)
            """
        else:
            body = f"""
                total = np.zeros(image.shape, np.int32)
                for dy in range(-{self.radius}, {self.radius} + 1):
                    for dx in range(-{self.radius}, {self.radius} + 1):
                        total += np.roll(image.astype(np.int32), (dy, dx), (0, 1))
                return (total // {(2 * self.radius + 1) ** 2}).astype(np.uint8)
            """
        text.add("top", "def blur(image):\n" + shifted(body))
        text.add("work", "image = blur(image)")

    def cost(self, script: Script) -> float:
        return (2 * self.radius + 1) ** 2 * 0.03


@dataclass(frozen=True)
class TorchFilter(Work):
    """A convolution by torch for each image, as often as drawn. Nothing to repair."""

    times: int = 1
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(times=rng.choice([1, 3, 6]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from torch.nn import functional as N")
        text.add(
            "top",
            """
            def sharpen(image, times):
                pixels = torch.from_numpy(image).permute(2, 0, 1).float()[None]
                kernel = torch.full((3, 1, 5, 5), -1.0 / 25)
                kernel[:, :, 2, 2] += 2.0
                for _ in range(times):
                    pixels = N.conv2d(pixels, kernel, padding=2, groups=3)
                return pixels[0].clamp(0, 255).byte().permute(1, 2, 0).numpy()
            """,
        )
        text.add("work", f"image = sharpen(image, {self.times})")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.1 + self.times * 0.2


@dataclass(frozen=True)
class TransformsV2(Work):
    """Transforms of `torchvision.transforms.v2` on tensors."""

    colours: bool = True
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("torchvision",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(colours=rng.random() < 0.6)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torchvision.transforms import v2")
        more = "v2.ColorJitter(0.2, 0.2, 0.2), " if self.colours else ""
        text.add(
            "init",
            f"""
            self.transform = v2.Compose([
                v2.RandomResizedCrop({SIZE}, antialias=True), v2.RandomHorizontalFlip(), {more}
            ])
            """.replace(", \n", ",\n"),
        )
        text.add("work", "image = self.transform(torch.from_numpy(image).permute(2, 0, 1))")
        text.told["sample"] = "image"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 1.2 if self.colours else 0.5

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class RandAugmented(Work):
    """RandAugment and others of `torchvision.transforms` on Pillow images."""

    operations: int = 2
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("torchvision",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(operations=rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from PIL import Image", "from torchvision import transforms as T")
        text.add(
            "init",
            f"""
            self.transform = T.Compose([
                T.RandomHorizontalFlip(),
                T.RandAugment({self.operations}),
                T.PILToTensor(),
            ])
            """,
        )
        text.add("work", "image = self.transform(Image.fromarray(image))")
        text.told["sample"] = "image"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.2 + 0.15 * self.operations

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class EqualizeLoop(Work):
    """A histogram is counted and applied pixel by pixel in Python. Repaired: by NumPy."""

    step: int = 2
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(step=rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = f"""
                grey = image[::{self.step}, ::{self.step}, 1]
                counts = np.bincount(grey.ravel(), minlength=256).cumsum()
                image[::{self.step}, ::{self.step}, 1] = counts[grey] * 255 // grey.size
                return image
            """
        else:
            body = f"""
                grey = image[::{self.step}, ::{self.step}, 1]
                counts = [0] * 256
                for value in grey.ravel().tolist():
                    counts[value] += 1
                for value in range(1, 256):
                    counts[value] += counts[value - 1]
                mapped = [counts[value] * 255 // grey.size for value in grey.ravel().tolist()]
                image[::{self.step}, ::{self.step}, 1] = np.array(mapped).reshape(grey.shape)
                return image
            """
        text.add("top", "def equalize(image):\n" + shifted(body))
        text.add("work", "image = equalize(image)")

    def cost(self, script: Script) -> float:
        return (SIZE / self.step) ** 2 * 1.6e-4


@dataclass(frozen=True)
class StandardizeList(Work):
    """Features are standardized one by one in Python. Repaired: by NumPy."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    weight: ClassVar[float] = 1.5

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = "return np.minimum(np.maximum((x.astype(np.float64) - 0.1) / 2.3, -3.0), 3.0).astype(np.float32)"
        else:
            body = """
                scaled = []
                for value in x.tolist():
                    value = (value - 0.1) / 2.3
                    scaled.append(min(max(value, -3.0), 3.0))
                return np.array(scaled, np.float32)
            """
        text.add("top", "def standardize(x):\n" + shifted(body))
        text.add("work", "x = standardize(x)")

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "features", 64) * 2e-4


@dataclass(frozen=True)
class BisectBins(Work):
    """Each feature is put into a bin by `bisect`. Repaired: by `np.searchsorted`."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    weight: ClassVar[float] = 1.5

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("constants", "EDGES = np.linspace(-4, 4, 65)")
        if self.cheap:
            body = 'return np.searchsorted(EDGES, x, side="right").astype(np.float32)'
        else:
            text.need("import bisect")
            text.add("constants", "EDGE_LIST = EDGES.tolist()")
            body = "return np.array([float(bisect.bisect_right(EDGE_LIST, value)) for value in x.tolist()], np.float32)"
        text.add("top", "def bins(x):\n" + shifted(body))
        text.add("work", "x = bins(x)")

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "features", 64) * 2.5e-4


@dataclass(frozen=True)
class RegexTokens(Work):
    """Texts are cut by a regular expression and hashed word by word. Repaired: once, when the data set is made."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def constants(self) -> str:
        return 'WORD = re.compile(r"\\w+|[^\\w\\s]")'

    def tokenize(self) -> str:
        return """
            def tokenize(text):
                return [zlib.crc32(word.lower().encode()) % 5000 + 1 for word in WORD.findall(text)]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import re", "import zlib")
        text.add("constants", self.constants())
        text.add("top", self.tokenize())
        self.call(text)

    def call(self, text: Text) -> None:
        """Lines that set `tokens`."""
        if self.cheap:
            text.add("init", "self.tokens = [tokenize(self.text(index)) for index in range(len(self))]")
            text.add("work", "tokens = self.tokens[index]")
        else:
            text.add("work", "tokens = tokenize(self.text(index))")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"tokenize-once": {"work": replace(self, cheap=True)}}

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "words", 60) * 7e-4


@dataclass(frozen=True)
class CleanedTokens(RegexTokens):
    """Texts are cleaned by some substitutions, then cut and counted."""

    of: ClassVar[str] = OPEN

    def constants(self) -> str:
        return 'COMMON = re.compile(r"\\b(the|of|and|to|in)\\b")'

    def tokenize(self) -> str:
        return """
            def tokenize(text):
                text = re.sub(r"\\d+", " number ", text.lower())
                text = re.sub(r"[^a-z ]+", " ", text)
                text = COMMON.sub(" ", text)
                words = re.sub(r"\\s+", " ", text).strip().split(" ")
                counts = collections.Counter(words)
                ranks = {word: rank for rank, (word, _) in enumerate(counts.most_common(), 1)}
                return [ranks[word] + zlib.crc32(word.encode()) % 4000 for word in words]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import collections")
        super().write(text, script)


WORKS: list[type[Production]] = [
    NoWork,
    SolarizeLoop,
    BlurShifts,
    TorchFilter,
    TransformsV2,
    RandAugmented,
    EqualizeLoop,
    StandardizeList,
    BisectBins,
    RegexTokens,
    CleanedTokens,
]
