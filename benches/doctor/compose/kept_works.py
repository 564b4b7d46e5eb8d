"""Kept productions of work on samples: for final figures, not to develop rules with.

Invariant: nothing else imports these but `drawing.py`, and no rule is changed after a look at them (README.md).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

import kept_material
from grammar import KEPT, SIZE, Maker, Production, Script, Text
from storages import storage
from works import Work, shifted
from works_texts import RegexTokens


def features(script: Script) -> int:
    """Numbers of a row."""
    return int(getattr(storage(script), "features", 64))


@dataclass(frozen=True)
class RunLengthMask(Work):
    """A mask is found by its image's id and made of runs for each sample. Repaired: all when the data set is made."""

    runs: int = 100
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("pandas",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(runs=rng.choice([40, 200, 900]))

    def name(self, script: Script) -> str:
        return f"runs-{script.about.count}-{self.runs}.csv"

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "import pandas as pd")
        text.add(
            "top",
            """
            def rle_decode(code, shape):
                numbers = code.split()
                starts, lengths = (np.asarray(part, dtype=int) for part in (numbers[0::2], numbers[1::2]))
                mask = np.zeros(shape[0] * shape[1], np.uint8)
                for start, length in zip(starts - 1, lengths):
                    mask[start : start + length] = 1
                return mask.reshape(shape).T
            """,
        )
        read = f'pd.read_csv(DATA / "{self.name(script)}")'
        if self.cheap:
            text.add("init", f'codes = {read}["EncodedPixels"]')
            text.add("init", f"self.masks = np.stack([rle_decode(code, ({SIZE}, {SIZE})) for code in codes])")
            text.add("work", "image = image * self.masks[index][..., None]")
        else:
            text.add("init", f"self.runs = {read}")
            text.add(
                "work",
                f"""
                code = self.runs.loc[self.runs["ImageId"] == index, "EncodedPixels"].item()
                image = image * rle_decode(code, ({SIZE}, {SIZE}))[..., None]
                """,
            )

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): kept_material.run_lengths(script.about.count, self.runs)}

    def cost(self, script: Script) -> float:
        return 0.02 if self.cheap else 0.22 + self.runs * 5e-4


@dataclass(frozen=True)
class KeypointMaps(Work):
    """Maps of some points are computed pixel by pixel in Python. Repaired: by NumPy."""

    side: int = 16
    points: int = 4
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(side=rng.choice([8, 16, 24]), points=rng.choice([2, 5]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = """
                across = (np.arange(self.side) - x) ** 2
                down = (np.arange(self.side) - y) ** 2
                return np.exp(-(down[:, None] + across[None, :]) / (2 * self.sigma**2))
            """
        else:
            text.need("import math")
            body = """
                drawn = np.zeros((self.side, self.side))
                for row in range(self.side):
                    for column in range(self.side):
                        far = (row - y) ** 2 + (column - x) ** 2
                        drawn[row, column] = math.exp(-far / (2 * self.sigma**2))
                return drawn
            """
        text.add(
            "top",
            "class Heatmaps:\n"
            "    def __init__(self, side, sigma):\n"
            "        self.side, self.sigma = side, sigma\n\n"
            "    def one(self, x, y):\n" + shifted(body, 2) + "\n\n"
            "    def __call__(self, points):\n"
            "        return np.max([self.one(x, y) for x, y in points], axis=0)",
        )
        text.add("init", f"self.heatmaps = Heatmaps({self.side}, 2.0)")
        text.add(
            "work",
            f"""
            points = [(index * (k + 3) % {self.side}, index * (k + 7) % {self.side}) for k in range({self.points})]
            image[:{self.side}, :{self.side}, 2] = (255 * self.heatmaps(points)).astype(np.uint8)
            """,
        )

    def cost(self, script: Script) -> float:
        return 0.03 if self.cheap else self.side**2 * self.points * 3.5e-4


@dataclass(frozen=True)
class TwoViews(Work):
    """Two views of each image, as what learns from pairs wants them. Nothing to repair."""

    radius: int = 1
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(radius=rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import random", "import numpy as np", "from PIL import Image, ImageEnhance, ImageFilter")
        text.add(
            "top",
            f"""
            class TwoViews:
                def __init__(self, radius):
                    self.radius, self.random = radius, random.Random(0)

                def view(self, picture):
                    side = self.random.randint({SIZE // 2}, {SIZE})
                    left, top = (self.random.randint(0, {SIZE} - side) for _ in range(2))
                    box = (left, top, left + side, top + side)
                    picture = picture.resize(({SIZE}, {SIZE}), Image.Resampling.BICUBIC, box)
                    for change in (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color):
                        picture = change(picture).enhance(self.random.uniform(0.6, 1.4))
                    if self.random.random() < 0.5:
                        picture = picture.filter(ImageFilter.GaussianBlur(self.radius))
                    return torch.from_numpy(np.array(picture)).permute(2, 0, 1)

                def __call__(self, image):
                    picture = Image.fromarray(image)
                    return torch.stack([self.view(picture), self.view(picture)])
            """,
        )
        text.add("init", f"self.views = TwoViews({self.radius})")
        text.add("work", "views = self.views(image)")
        text.told["sample"] = "views"
        text.add("loop", "x, y = x.flatten(0, 1), y.repeat_interleave(2)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.9

    @property
    def random(self) -> bool:
        return True


@dataclass(frozen=True)
class ElasticFields(Work):
    """Images are bent by SciPy along fields that are drawn for each. Nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    needs: ClassVar[tuple[str, ...]] = ("scipy",)
    weight: ClassVar[float] = 0.6

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from scipy.ndimage import gaussian_filter, map_coordinates")
        text.add(
            "top",
            """
            def elastic_transform(image, alpha, sigma, random_state):
                shape = image.shape[:2]
                dx, dy = (gaussian_filter(random_state.rand(*shape) * 2 - 1, sigma) * alpha for _ in range(2))
                x, y = np.meshgrid(np.arange(shape[1]), np.arange(shape[0]))
                places = [y + dy, x + dx]
                bent = [map_coordinates(image[..., c], places, order=1, mode="reflect") for c in range(3)]
                return np.stack(bent, axis=-1)
            """,
        )
        text.add("work", "image = elastic_transform(image, 30, 4, np.random.RandomState(index))")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 1.2


@dataclass(frozen=True)
class FlippedByTurns(Work):
    """Images are flipped and made brighter by NumPy. Nothing to repair."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("image",)
    weight: ClassVar[float] = 0.7

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("init", "self.brighter = np.clip(np.arange(256) * 1.2 + 4, 0, 255).astype(np.uint8)")
        text.add(
            "work",
            """
            if index % 2:
                image = np.ascontiguousarray(image[:, ::-1])
            if index % 3 == 0:
                image = self.brighter[image]
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {}

    def cost(self, script: Script) -> float:
        return 0.015


@dataclass(frozen=True)
class LaggedSums(Work):
    """How a row agrees with itself some steps later is summed in Python. Repaired: by NumPy."""

    lags: int = 4
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(lags=rng.choice([2, 5, 12]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        if self.cheap:
            body = """
                centred = x.astype(np.float64) - x.mean(dtype=np.float64)
                return [centred[: len(x) - lag] @ centred[lag:] / len(x) for lag in range(lags)]
            """
        else:
            body = """
                values = x.tolist()
                mean = sum(values) / len(values)
                found = []
                for lag in range(lags):
                    total = 0.0
                    for i in range(len(values) - lag):
                        total += (values[i] - mean) * (values[i + lag] - mean)
                    found.append(total / len(values))
                return found
            """
        text.add("top", "def autocorrelation(x, lags):\n" + shifted(body))
        text.add("work", f"x = x.copy()\nx[:{self.lags}] = autocorrelation(x, {self.lags})")

    def cost(self, script: Script) -> float:
        return 0.01 + (0.0 if self.cheap else features(script) * self.lags * 1e-4)


@dataclass(frozen=True)
class ListedLevels(Work):
    """Values become levels, whose numbers are looked for in a list. Repaired: by `np.searchsorted`."""

    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.add("constants", "LEVELS = list(range(-40, 41))")
        if self.cheap:
            text.add(
                "methods",
                """
                def encode(self, x):
                    levels = np.clip((x.astype(np.float64) * 10).astype(int), LEVELS[0], LEVELS[-1])
                    return np.searchsorted(LEVELS, levels).astype(np.float32)
                """,
            )
        else:
            text.add(
                "methods",
                """
                def level(self, value):
                    return min(max(int(value * 10), LEVELS[0]), LEVELS[-1])

                def encode(self, x):
                    return np.array([LEVELS.index(self.level(value)) for value in x.tolist()], np.float32)
                """,
            )
        text.add("work", "x = self.encode(x)")

    def cost(self, script: Script) -> float:
        return 0.02 if self.cheap else features(script) * 9e-4


@dataclass(frozen=True)
class DesignedFilter(Work):
    """A filter of SciPy's is designed for each row that it is for. Repaired: once."""

    order: int = 4
    of: ClassVar[str] = KEPT
    kinds: ClassVar[tuple[str, ...]] = ("vector",)
    needs: ClassVar[tuple[str, ...]] = ("scipy",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(order=rng.choice([2, 5, 9]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from scipy import signal")
        made = f'signal.butter({self.order}, [0.05, 0.6], btype="band", output="sos")'
        if self.cheap:
            text.add("init", f"self.sections = {made}")
            text.add("work", "x = signal.sosfilt(self.sections, x).astype(np.float32)")
        else:
            text.add(
                "top",
                f"""
                def bandpass(x):
                    sections = {made}
                    return signal.sosfilt(sections, x)
                """,
            )
            text.add("work", "x = bandpass(x).astype(np.float32)")

    def cost(self, script: Script) -> float:
        return 0.04 if self.cheap else 0.45 + self.order * 0.03


@dataclass(frozen=True)
class WordPieces(RegexTokens):
    """Words are cut into their longest known pieces in Python. Repaired: once, when the data set is made."""

    of: ClassVar[str] = KEPT

    def constants(self) -> str:
        return """
            KNOWN = "the of sig ##nal im ##age deep bat ##ch learn ##ing and to lay ##er grad ##ient with".split()
            LETTERS = string.ascii_lowercase + string.digits
            PIECES = {piece: n for n, piece in enumerate([*KNOWN, *LETTERS, *(f"##{c}" for c in LETTERS)], 2)}
        """

    def tokenize(self) -> str:
        return """
            def pieces(word):
                begin, found = 0, []
                while begin < len(word):
                    for end in range(len(word), begin, -1):
                        piece = word[begin:end] if begin == 0 else "##" + word[begin:end]
                        if piece in PIECES:
                            break
                    else:
                        return [1]
                    found.append(PIECES[piece])
                    begin = end
                return found


            def tokenize(text):
                words = re.findall(r"\\w+|[^\\w\\s]", text.lower())
                return [number for word in words for number in pieces(word)]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import re", "import string")
        text.add("constants", self.constants())
        text.add("top", self.tokenize())
        self.call(text)

    def cost(self, script: Script) -> float:
        return 0.0 if self.cheap else getattr(storage(script), "words", 60) * 2.5e-3


@dataclass(frozen=True)
class FastTokenizer(RegexTokens):
    """A fast tokenizer of transformers', text by text. Repaired: all at once, when the data set is made."""

    of: ClassVar[str] = KEPT
    needs: ClassVar[tuple[str, ...]] = ("transformers",)
    weight: ClassVar[float] = 0.8

    def write(self, text: Text, script: Script) -> None:
        text.need("import os", "from tokenizers import Tokenizer, models, normalizers, pre_tokenizers")
        text.need("from transformers import PreTrainedTokenizerFast")
        text.add("constants", 'os.environ["TOKENIZERS_PARALLELISM"] = "false"')
        text.add(
            "top",
            """
            def tokenizer_of(texts):
                words = sorted({word for text in texts for word in text.lower().split()})
                vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *words])}
                tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
                tokenizer.normalizer = normalizers.Lowercase()
                tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
                return PreTrainedTokenizerFast(
                    tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
                )
            """,
        )
        some = f"[self.text(index) for index in range({min(200, script.about.count)})]"
        limits = "truncation=True, max_length=256"
        if self.cheap:
            text.add(
                "init",
                f"""
                tokenizer = tokenizer_of({some})
                texts = [self.text(index) for index in range(len(self))]
                self.tokens = tokenizer(texts, {limits})["input_ids"]
                """,
            )
            text.add("work", "tokens = self.tokens[index]")
        else:
            text.add("init", f"self.tokenizer = tokenizer_of({some})")
            text.add("work", f'tokens = self.tokenizer(self.text(index), {limits})["input_ids"]')

    def cost(self, script: Script) -> float:
        return 0.0 if self.cheap else 0.12 + getattr(storage(script), "words", 60) * 8e-4


@dataclass(frozen=True)
class KnownWords(RegexTokens):
    """Words are looked up in a vocabulary that was counted before: little that could be done once."""

    of: ClassVar[str] = KEPT

    def tokenize(self) -> str:
        return """
            def tokenize(self, text):
                return [self.vocabulary.get(word, 1) for word in text.lower().split()]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import collections")
        text.add("methods", self.tokenize())
        text.add(
            "init",
            """
            counts = collections.Counter()
            for index in range(len(self)):
                counts.update(self.text(index).lower().split())
            self.vocabulary = {word: rank for rank, (word, _) in enumerate(counts.most_common(2000), 2)}
            """,
        )
        if self.cheap:
            text.add("init", "self.tokens = [self.tokenize(self.text(index)) for index in range(len(self))]")
            text.add("work", "tokens = self.tokens[index]")
        else:
            text.add("work", "tokens = self.tokenize(self.text(index))")

    def cost(self, script: Script) -> float:
        return 0.0 if self.cheap else 0.003 + getattr(storage(script), "words", 60) * 8e-5


WORKS: list[type[Production]] = [
    RunLengthMask, KeypointMaps, TwoViews, ElasticFields, FlippedByTurns, LaggedSums, ListedLevels, DesignedFilter,
    WordPieces, FastTokenizer, KnownWords,
]  # fmt: skip
