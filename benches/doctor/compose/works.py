"""Work: what Python does to a sample after it was read."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from grammar import OPEN, SIZE, Maker, Production, Script, Text, outdented
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
class SaltAndPepper(Work):
    """A callable class that draws and sets pixels one by one. Repaired: all by NumPy."""

    pixels: int = 500
    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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


def features(script: Script) -> int:
    """Numbers of a row."""
    return int(getattr(storage(script), "features", 64))


@dataclass(frozen=True)
class RunLengthMask(Work):
    """A mask is found by its image's id and made of runs for each sample. Repaired: all when the data set is made."""

    runs: int = 100
    of: ClassVar[str] = OPEN
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
        return {self.name(script): material.run_lengths(script.about.count, self.runs)}

    def cost(self, script: Script) -> float:
        return 0.02 if self.cheap else 0.22 + self.runs * 5e-4


@dataclass(frozen=True)
class KeypointMaps(Work):
    """Maps of some points are computed pixel by pixel in Python. Repaired: by NumPy."""

    side: int = 16
    points: int = 4
    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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
    of: ClassVar[str] = OPEN
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
    SaltAndPepper,
    VectorizedGamma,
    WarpAffine,
    RollingMeans,
    Spectrum,
    RunLengthMask,
    KeypointMaps,
    TwoViews,
    ElasticFields,
    FlippedByTurns,
    LaggedSums,
    ListedLevels,
    DesignedFilter,
]
