"""Kept productions of work on samples: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import KEPT, SIZE, Production, Script, Text
from storages import storage
from works import Work, features, shifted
from works_texts import RegexTokens


@dataclass(frozen=True)
class SepiaLoop(Work):
    """Colours of a part are changed pixel by pixel in Python. Repaired: by NumPy."""

    side: int = 20
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(side=rng.choice([6, 16, 32, 56]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("constants", "SEPIA = [[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]]")
        if self.cheap:
            body = f"""
                part, mixing = image[:{self.side}, :{self.side}], np.array(SEPIA)
                mixed = sum(part[..., k, None] * mixing[:, k] for k in range(3))
                part[...] = np.minimum(mixed, 255).astype(np.uint8)
                return image
            """
        else:
            body = f"""
                for row in range({self.side}):
                    for column in range({self.side}):
                        red, green, blue = (int(value) for value in image[row, column])
                        mixed = [red * a + green * b + blue * c for a, b, c in SEPIA]
                        image[row, column] = [min(int(value), 255) for value in mixed]
                return image
            """
        text.add("top", "def sepia(image):\n" + shifted(body))
        text.add("work", "image = sepia(image)")

    def cost(self, script: Script) -> float:
        return 0.02 if self.cheap else self.side**2 * 2.6e-3


@dataclass(frozen=True)
class MatchedAnchors(Work):
    """Anchors are compared with boxes pair by pair in Python. Repaired: by NumPy."""

    anchors: int = 8
    boxes: int = 4
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(anchors=rng.choice([4, 8, 14]), boxes=rng.choice([1, 4, 8]))

    def write(self, text: Text, script: Script) -> None:
        step = SIZE // self.anchors
        text.need("import numpy as np")
        text.add(
            "constants",
            f"CENTRES = [(x, y) for y in range(0, {SIZE}, {step}) for x in range(0, {SIZE}, {step})]",
        )
        text.add("constants", "ANCHORS = [(x - 6, y - 6, x + 6, y + 6) for x, y in CENTRES]")
        if self.cheap:
            body = """
                first, other = np.array(ANCHORS, float)[:, None], np.array(boxes, float)[None]
                sides = np.minimum(first[..., 2:], other[..., 2:]) - np.maximum(first[..., :2], other[..., :2])
                shared = sides.clip(0).prod(-1)
                areas = [(some[..., 2:] - some[..., :2]).prod(-1) for some in (first, other)]
                return (shared / (areas[0] + areas[1] - shared)).max(1)
            """
        else:
            body = """
                best = []
                for a in ANCHORS:
                    overlaps = []
                    for b in boxes:
                        width = max(0, min(a[2], b[2]) - max(a[0], b[0]))
                        height = max(0, min(a[3], b[3]) - max(a[1], b[1]))
                        areas = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1])
                        overlaps.append(width * height / (areas - width * height))
                    best.append(max(overlaps))
                return np.array(best)
            """
        text.add("top", "def matched(boxes):\n" + shifted(body))
        text.add(
            "work",
            f"""
            corners = [((index * (k + 3)) % 40, (index * (k + 5)) % 40) for k in range({self.boxes})]
            targets = matched([(x, y, x + 9 + k, y + 14) for k, (x, y) in enumerate(corners)])
            image[0, :, 0] = int(255 * targets.max())
            """,
        )

    def cost(self, script: Script) -> float:
        return 0.05 if self.cheap else self.anchors**2 * self.boxes * 1e-3


@dataclass(frozen=True)
class ComposedEach(Work):
    """Transforms of torchvision's are put together for each sample. Repaired: once."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("torchvision",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from torchvision import transforms")
        text.add(
            "top",
            f"""
            def pipeline():
                return transforms.Compose([
                    transforms.ToPILImage(),
                    transforms.CenterCrop({SIZE - 8}),
                    transforms.Resize({SIZE}),
                    transforms.Grayscale(3),
                    transforms.PILToTensor(),
                ])
            """,
        )
        if self.cheap:
            text.add("init", "self.pipeline = pipeline()")
        text.add("work", f"image = {'self.pipeline' if self.cheap else 'pipeline()'}(image)")
        text.told["sample"] = "image"

    def cost(self, script: Script) -> float:
        return 0.3


@dataclass(frozen=True)
class HolesCut(Work):
    """Some holes are cut by NumPy: nothing to repair."""

    holes: int = 4
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(holes=rng.choice([1, 6, 16]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add(
            "methods",
            f"""
            def cutout(self, image, seed):
                rng = np.random.default_rng(seed)
                for top, left in rng.integers(0, {SIZE - 8}, ({self.holes}, 2)):
                    image[top : top + 8, left : left + 8] = 0
                return image
            """,
        )
        text.add("work", "image = self.cutout(image, index)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.03 + self.holes * 1e-3


@dataclass(frozen=True)
class LevelledContrast(Work):
    """Contrast is levelled by OpenCV: nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("cv2",)
    weight: ClassVar[float] = 0.7

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2")
        text.add(
            "top",
            """
            def levelled(image):
                lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
                lab[..., 0] = cv2.createCLAHE(2.0, (4, 4)).apply(lab[..., 0])
                return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)
            """,
        )
        text.add("work", "image = levelled(image)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.25


@dataclass(frozen=True)
class CompandedSound(Work):
    """A signal is sharpened and companded value by value in Python. Repaired: by NumPy."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = """
                sharp = np.append(x[:1], x[1:] - 0.97 * x[:-1]).astype(np.float64)
                return (np.sign(sharp) * np.log1p(255 * np.abs(sharp)) / np.log(256)).astype(np.float32)
            """
        else:
            text.need("import math")
            body = """
                values = [float(value) for value in x]
                sharp = [values[0]]
                for i in range(1, len(values)):
                    sharp.append(values[i] - 0.97 * values[i - 1])
                loud = [math.copysign(math.log1p(255 * abs(value)) / math.log(256), value) for value in sharp]
                return np.array(loud, np.float32)
            """
        text.add("top", "def companded(x):\n" + shifted(body))
        text.add("work", "x = companded(x)")

    def cost(self, script: Script) -> float:
        return 0.02 if self.cheap else features(script) * 5e-4


@dataclass(frozen=True)
class MelBankEach(Work):
    """A bank of filters is made in Python for each sound. Repaired: once."""

    bands: int = 8
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and features(script) >= 16

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(bands=min(rng.choice([4, 12, 40]), features(script) // 4))

    def write(self, text: Text, script: Script) -> None:
        number = features(script)
        text.need("import numpy as np")
        text.add(
            "top",
            f"""
            def filter_bank(bands, bins):
                mels = np.linspace(0, 2595 * np.log10(1 + 8000 / 700), bands + 2)
                edges = (700 * (10 ** (mels / 2595) - 1) / 8000 * (bins - 1)).tolist()
                bank = np.zeros((bands, bins))
                for band in range(bands):
                    low, middle, high = edges[band : band + 3]
                    for k in range(bins):
                        rise, fall = (k - low) / (middle - low), (high - k) / (high - middle)
                        bank[band, k] = max(0.0, min(rise, fall))
                return bank


            def mel_features(x, bank):
                power = np.abs(np.fft.rfft(x * np.hanning({number}))) ** 2
                return np.concatenate([np.log1p(bank @ power), x[{self.bands}:]]).astype(np.float32)
            """,
        )
        made = f"filter_bank({self.bands}, {number // 2 + 1})"
        if self.cheap:
            text.add("init", f"self.bank = {made}")
        text.add("work", f"x = mel_features(x, {'self.bank' if self.cheap else made})")

    def cost(self, script: Script) -> float:
        return 0.03 + (0.0 if self.cheap else self.bands * features(script) / 2 * 4e-4)


@dataclass(frozen=True)
class SmoothedSeries(Work):
    """A series is smoothed step by step in Python. Repaired: by a filter of SciPy's."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("scipy",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            text.need("from scipy.signal import lfilter")
            body = """
                smooth, _ = lfilter([alpha], [1.0, alpha - 1.0], x.astype(np.float64), zi=[(1 - alpha) * float(x[0])])
                return smooth.astype(np.float32)
            """
        else:
            body = """
                smooth = np.zeros(len(x), np.float32)
                state = float(x[0])
                for i in range(len(x)):
                    state = alpha * float(x[i]) + (1 - alpha) * state
                    smooth[i] = state
                return smooth
            """
        text.add("top", "def exponential(x, alpha):\n" + shifted(body))
        text.add("work", "x = exponential(x, 0.3)")

    def cost(self, script: Script) -> float:
        return 0.03 if self.cheap else features(script) * 2.5e-4


@dataclass(frozen=True)
class RankedByIndex(Work):
    """Values become ranks, which are looked for in a sorted list. Repaired: by NumPy."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    @classmethod
    def fits(cls, script: Script) -> bool:
        return super().fits(script) and features(script) <= 512

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            ranks = "np.searchsorted(np.sort(x), x)"
        else:
            text.add("methods", "def ranks(self, values):\n    ordered = sorted(values)")
            text.sections["methods"].append(
                ("    return [ordered.index(value) for value in values]", self.slot)
            )
            ranks = "np.array(self.ranks(x.tolist()))"
        text.add("work", f"x = ({ranks} / len(x)).astype(np.float32)")

    def cost(self, script: Script) -> float:
        return 0.02 if self.cheap else features(script) * (1e-4 + features(script) * 8e-6)


@dataclass(frozen=True)
class ScaledAndShifted(Work):
    """Rows are scaled and shifted by a little, by NumPy: nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    weight: ClassVar[float] = 0.8

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("init", "self.scales = np.random.default_rng(0).uniform(0.9, 1.1, 10).astype(np.float32)")
        text.add(
            "work", "x = x * self.scales[label] + np.float32(0.01)\nx = np.nan_to_num(x, nan=0.0).clip(-5, 5)"
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.02


@dataclass(frozen=True)
class ListedVocabulary(RegexTokens):
    """Words are looked for in a list. Repaired: in a dict, or once, when the data set is made."""

    others: int = 300
    mapped: bool = False
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(others=rng.choice([20, 300, 1000]))

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            f"""
            def words(text):
                return text.lower().replace(",", " ,").replace(".", " .").split()


            def vocabulary(texts):
                seen = {{word for text in texts for word in words(text)}}
                return [*(f"##{{n}}" for n in range({self.others})), *sorted(seen)]
            """,
        )
        some = f"self.text(index) for index in range({min(100, script.about.count)})"
        if self.mapped:
            text.add("init", f"known = vocabulary({some})")
            text.add("init", "self.numbers = {word: number for number, word in enumerate(known)}")
            number = "self.numbers.get(word, 0)"
        else:
            text.add("init", f"self.known = vocabulary({some})")
            number = "self.known.index(word) if word in self.known else 0"
        text.add("methods", f"def encode(self, text):\n    return [{number} for word in words(text)]")
        if self.cheap:
            text.add("init", "self.tokens = [self.encode(self.text(index)) for index in range(len(self))]")
        text.add(
            "work", f"tokens = {'self.tokens[index]' if self.cheap else 'self.encode(self.text(index))'}"
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "cheaper-work": {"work": replace(self, mapped=True)}}

    def cost(self, script: Script) -> float:
        if self.cheap:
            return 0.0
        each = 1.5e-4 if self.mapped else 2e-4 + (self.others + 100) * 3e-5
        return getattr(storage(script), "words", 60) * each


@dataclass(frozen=True)
class StemmedWords(RegexTokens):
    """Texts are normalized, common words left out and endings cut. Repaired: once, when the data set is made."""

    of: ClassVar[str] = KEPT

    def constants(self) -> str:
        return (
            'COMMON = "a an and at by for from in is it of on or that the this to was with".split()\n'
            'ENDINGS = ("ational", "ingly", "ients", "ient", "ings", "ing", "ed", "es", "s")'
        )

    def tokenize(self) -> str:
        return """
            def stem(word):
                for ending in ENDINGS:
                    if word.endswith(ending) and len(word) > len(ending) + 2:
                        return word[: -len(ending)]
                return word


            def tokenize(text):
                text = unicodedata.normalize("NFKD", html.unescape(text)).encode("ascii", "ignore").decode()
                found = []
                for word in text.lower().split():
                    word = word.strip(string.punctuation)
                    if word and word not in COMMON:
                        found.append(zlib.crc32(stem(word).encode()) % 8000 + 1)
                return found or [0]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import html", "import string", "import unicodedata", "import zlib")
        text.add("constants", self.constants())
        text.add("top", self.tokenize())
        self.call(text)

    def cost(self, script: Script) -> float:
        return 0.0 if self.cheap else 0.01 + getattr(storage(script), "words", 60) * 1.3e-3


@dataclass(frozen=True)
class ByteTokens(RegexTokens):
    """Bytes of a text are its tokens: little that could be done once."""

    longest: int = 200
    of: ClassVar[str] = KEPT

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(longest=rng.choice([64, 256, 600]))

    def tokenize(self) -> str:
        return f"""
            def tokenize(text):
                return [byte + 3 for byte in text.encode()[:{self.longest}]]
        """

    def write(self, text: Text, script: Script) -> None:
        text.add("top", self.tokenize())
        self.call(text)

    def cost(self, script: Script) -> float:
        return 0.0 if self.cheap else 0.002 + self.longest * 3e-5


WORKS: list[type[Production]] = [
    SepiaLoop, MatchedAnchors, ComposedEach, HolesCut, LevelledContrast, CompandedSound, MelBankEach, SmoothedSeries,
    RankedByIndex, ScaledAndShifted, ListedVocabulary, StemmedWords, ByteTokens,
]  # fmt: skip
