"""Decoding: how stored images are opened as arrays of the size in use."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, SIZE, Production, Script, Text
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


def whole(script: Script) -> str:
    """An expression for all bytes of what is decoded."""
    return "coded.read()" if storage(script).held else "coded.read_bytes()"


def jpegs(script: Script) -> bool:
    """Whether what is decoded are JPEGs, larger than they are used: decoders can make such smaller at less cost."""
    kind = storage(script)
    return (getattr(kind, "coded_as", "") or getattr(kind, "ending", "")) == "jpg" and getattr(
        kind, "size", 0
    ) >= 2 * SIZE


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
class TorchvisionDecode(Decoding):
    """`torchvision.io`, then resized."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("torchvision",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from torchvision.io import ImageReadMode, decode_image")
        text.need("from torchvision.transforms.v2 import functional as F")
        text.add(
            "get",
            f"""
            stored = torch.from_numpy(np.frombuffer({whole(script)}, np.uint8).copy())
            image = F.resize(decode_image(stored, ImageReadMode.RGB), [{SIZE}, {SIZE}], antialias=True)
            image = image.permute(1, 2, 0).numpy()
            """,
        )


@dataclass(frozen=True)
class OpencvDecode(Decoding):
    """OpenCV, then resized. Repaired: it decodes at half the size."""

    reduced: bool = False
    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("cv2",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np")
        how = "IMREAD_REDUCED_COLOR_2" if self.reduced else "IMREAD_COLOR"
        text.add(
            "get",
            f"""
            image = cv2.imdecode(np.frombuffer({whole(script)}, np.uint8), cv2.{how})
            image = cv2.resize(image, ({SIZE}, {SIZE}), interpolation=cv2.INTER_AREA)
            image = cv2.cvtColor(image, cv2.COLOR_BGR2RGB)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, reduced=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class FitDecode(Decoding):
    """A function as torchvision's loader, then cut and resized by Pillow. Repaired: `draft`."""

    draft: bool = False
    of: ClassVar[str] = OPEN

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
    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("cv2",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np")
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
            image = cv2.imdecode(np.frombuffer({whole(script)}, np.uint8), cv2.{how})
            image = shrunk(image, {SIZE})[:, :, ::-1].copy()
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, reduced=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class InterpolateDecode(Decoding):
    """Pillow, then resized as a tensor of floats. Repaired: `draft`."""

    draft: bool = False
    of: ClassVar[str] = OPEN

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
class Drafted(Decoding):
    """Images that are decoded whole or, repaired, smaller, if the decoder can."""

    reduced: bool = False

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"reduced-decoding": {"decoding": replace(self, reduced=True)}} if jpegs(script) else {}


@dataclass(frozen=True)
class Letterbox(Drafted):
    """OpenCV; sides keep their proportion, and what is left is filled. Repaired: it decodes at half the size."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("cv2",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import cv2", "import numpy as np")
        how = "IMREAD_REDUCED_COLOR_2" if self.reduced else "IMREAD_COLOR"
        text.add(
            "top",
            """
            def letterbox(image, size, colour=(114, 114, 114)):
                height, width = image.shape[:2]
                scale = min(size / height, size / width)
                new = round(width * scale), round(height * scale)
                how = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
                image = cv2.resize(image, new, interpolation=how)
                left, top = (size - new[0]) // 2, (size - new[1]) // 2
                right, bottom = size - new[0] - left, size - new[1] - top
                return cv2.copyMakeBorder(image, top, bottom, left, right, cv2.BORDER_CONSTANT, value=colour)
            """,
        )
        text.add(
            "get",
            f"""
            image = cv2.imdecode(np.frombuffer({whole(script)}, np.uint8), cv2.{how})
            image = np.ascontiguousarray(letterbox(image, {SIZE})[..., ::-1])
            """,
        )


@dataclass(frozen=True)
class AlbumentationsDecode(Drafted):
    """Pillow, then made smaller and cut by albumentations. Repaired: `draft`."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("albumentations",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import albumentations as A", "import numpy as np", "from PIL import Image")
        text.add("init", f"self.fit = A.Compose([A.SmallestMaxSize({SIZE}), A.CenterCrop({SIZE}, {SIZE})])")
        text.add("get", "opened = Image.open(coded)")
        if self.reduced:
            text.add("get", f'opened.draft("RGB", ({SIZE}, {SIZE}))')
        text.add("get", 'image = self.fit(image=np.array(opened.convert("RGB")))["image"]')


@dataclass(frozen=True)
class ThumbnailPaste(Decoding):
    """Pillow's `thumbnail`, which lets the decoder make images smaller, on a canvas: nothing to repair."""

    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np", "from PIL import Image")
        text.add(
            "methods",
            f"""
            def squared(self, source):
                with Image.open(source) as opened:
                    opened.thumbnail(({SIZE}, {SIZE}))
                    canvas = Image.new("RGB", ({SIZE}, {SIZE}))
                    canvas.paste(opened, tuple(({SIZE} - side) // 2 for side in opened.size))
                return np.array(canvas)
            """,
        )
        text.add("get", "image = self.squared(coded)")


DECODINGS: list[type[Production]] = [
    NotCoded,
    PillowResize,
    PillowCrop,
    TorchvisionDecode,
    OpencvDecode,
    FitDecode,
    PyramidDecode,
    InterpolateDecode,
    Letterbox,
    AlbumentationsDecode,
    ThumbnailPaste,
]
