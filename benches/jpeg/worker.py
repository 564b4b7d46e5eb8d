"""Python's JPEG decoders behind the line protocol of the Rust benchmark program (see `src/main.rs`).

Each decodes from bytes in memory into a new array or tensor, as its users do. Needs whichever of simplejpeg,
OpenCV, torchvision and Pillow are installed; the others are not offered.
"""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Decode = Callable[[bytes], Any]


def simplejpeg() -> Decode:
    import simplejpeg

    return lambda data: simplejpeg.decode_jpeg(data, "RGB")


def opencv() -> Decode:
    import cv2
    import numpy as np

    cv2.setNumThreads(1)
    return lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def torchvision() -> Decode:
    import numpy as np
    import torch
    from torchvision.io import ImageReadMode, decode_jpeg

    torch.set_num_threads(1)
    mode = ImageReadMode.RGB
    # A copy, because torch wants memory that it may write.
    return lambda data: decode_jpeg(torch.from_numpy(np.frombuffer(data, np.uint8).copy()), mode)


def pillow() -> Decode:
    from PIL import Image

    def decode(data: bytes) -> Any:
        image = Image.open(io.BytesIO(data))
        return image.convert("RGB")

    return decode


MAKERS = {"simplejpeg": simplejpeg, "opencv": opencv, "torchvision": torchvision, "pillow": pillow}


def main() -> None:
    """Answer requests until the input ends."""
    decoders: dict[str, Decode] = {}
    for name, make in MAKERS.items():
        try:
            decoders[name] = make()
        except ImportError:
            continue
    sets: dict[str, list[bytes]] = {}
    for line in sys.stdin:
        words = line.split()
        if words[:1] == ["load"]:
            sets[words[1]] = [path.read_bytes() for path in sorted(Path(words[2]).iterdir())]
            print("ok", len(sets[words[1]]), sum(map(len, sets[words[1]])), flush=True)
        elif words[:1] == ["contenders"]:
            print("ok", *decoders, flush=True)
        elif words[:1] == ["measure"] and words[1] in decoders and words[2] in sets:
            decode, files = decoders[words[1]], sets[words[2]]
            start = time.process_time()
            for data in files:
                decode(data)
            print("ok", time.process_time() - start, len(files), flush=True)
        else:
            print("error not understood:", line.strip(), flush=True)


if __name__ == "__main__":
    main()
