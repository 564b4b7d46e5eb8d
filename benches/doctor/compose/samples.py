"""What is done to a sample after it was read: decoding, Python work, putting samples together."""

from __future__ import annotations

import importlib.util
import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, SIZE, Production, Script, Text, outdented
from storages import storage


@dataclass(frozen=True)
class Decoding(Production):
    """Opens what a storage of images has as `coded`, a path or a file in memory, as `image` at the size in use."""

    slot: ClassVar[str] = "decoding"
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and storage(script).encoded


@dataclass(frozen=True)
class NotCoded(Decoding):
    """There is nothing to decode."""

    kinds: ClassVar[tuple[str, ...]] = ("image", "vector", "text")

    @classmethod
    def fits(cls, script: Script) -> bool:
        return not storage(script).encoded


def jpegs(script: Script) -> bool:
    """Whether what is decoded are JPEGs, larger than they are used: decoders can make such smaller at less cost."""
    kind = storage(script)
    return getattr(kind, "ending", "") == "jpg" and getattr(kind, "size", 0) >= 2 * SIZE


@dataclass(frozen=True)
class PillowResize(Decoding):
    """Pillow, whole, then resized. Repaired: `draft`, by which the decoder makes them smaller."""

    draft: bool = False
    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image")
        text.add("get", "opened = Image.open(coded)")
        if self.draft:
            text.add("get", f'opened.draft("RGB", ({SIZE}, {SIZE}))')
        text.add("get", f'image = np.array(opened.convert("RGB").resize(({SIZE}, {SIZE})))')

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, draft=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class PillowCrop(Decoding):
    """Pillow, of which the middle is cut out. What it costs to decode the rest is for the storage to spare."""

    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image")
        text.add(
            "get",
            f"""
            image = np.array(Image.open(coded).convert("RGB"))
            top = (image.shape[0] - {SIZE}) // 2
            image = image[top : top + {SIZE}, top : top + {SIZE}].copy()
            """,
        )


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

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and importlib.util.find_spec("torchvision") is not None

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
class Collate(Production):
    """How samples become a batch."""

    slot: ClassVar[str] = "collate"

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and storage(script).form != "tensors"


@dataclass(frozen=True)
class Default(Collate):
    """As torch does by itself."""

    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")
    weight: ClassVar[float] = 1.5

    @classmethod
    def fits(cls, script: Script) -> bool:
        return script.about.kind in cls.kinds


@dataclass(frozen=True)
class PadSequence(Collate):
    """Sequences are padded by `pad_sequence`."""

    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch.nn.utils.rnn import pad_sequence")
        text.told["collate"] = "collate"
        text.add(
            "top",
            """
            def collate(samples):
                rows = [torch.tensor(tokens) for tokens, _ in samples]
                return pad_sequence(rows, batch_first=True), torch.tensor([label for _, label in samples])
            """,
        )


@dataclass(frozen=True)
class PaddedLists(Collate):
    """Lists are padded element by element in Python. Repaired: `pad_sequence`."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "collate"
        text.add(
            "top",
            """
            def collate(samples):
                longest = max(len(tokens) for tokens, _ in samples)
                rows, labels = [], []
                for tokens, label in samples:
                    row = []
                    for position in range(longest):
                        row.append(tokens[position] if position < len(tokens) else 0)
                    rows.append(row)
                    labels.append(label)
                return torch.tensor(rows), torch.tensor(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pad-sequence": {"collate": PadSequence()}}


@dataclass(frozen=True)
class ManyTensors(Collate):
    """A sample is a dict of many small tensors. Repaired: one tensor."""

    tensors: int = 32
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        features = getattr(storage(script), "features", 64)
        return cls(min(features, rng.choice([8, 32, 64])))

    def write(self, text: Text, script: Script) -> None:
        names = f'{{f"x{{i}}": part for i, part in enumerate(torch.from_numpy(x).chunk({self.tensors}))}}'
        text.add("work", f"pieces = {names}")
        text.told["sample"] = "pieces"
        text.add("loop", "x = torch.cat([part for part in x.values()], 1)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"few-tensors": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return self.tensors * 4e-3


def shifted(block: str, steps: int = 1) -> str:
    """A block without its common indentation, moved to the right."""
    return "\n".join(("    " * steps + line) if line else "" for line in outdented(block))


DECODINGS: list[type[Production]] = [NotCoded, PillowResize, PillowCrop]
WORKS: list[type[Production]] = [
    NoWork, SolarizeLoop, BlurShifts, TorchFilter, TransformsV2, StandardizeList, RegexTokens,
]  # fmt: skip
COLLATES: list[type[Production]] = [Default, PadSequence, PaddedLists, ManyTensors]
