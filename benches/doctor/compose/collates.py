"""Collating: how samples become a batch."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import ClassVar

from grammar import OPEN, SIZE, Production, Script, Text
from storages import storage


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
class ZippedLists(PaddedLists):
    """Lists are padded by `zip_longest`, and turned twice."""

    of: ClassVar[str] = OPEN

    def write(self, text: Text, script: Script) -> None:
        text.need("import itertools")
        text.told["collate"] = "collate"
        text.add(
            "top",
            """
            def collate(samples):
                columns = list(itertools.zip_longest(*[tokens for tokens, _ in samples], fillvalue=0))
                rows = [list(row) for row in zip(*columns)]
                return torch.tensor(rows), torch.tensor([int(label) for _, label in samples])
            """,
        )


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


@dataclass(frozen=True)
class ListCollate(Collate):
    """Arrays are made lists of numbers and tensors again. Repaired: stacked."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "collate"
        made = "torch.uint8" if script.about.kind == "image" else "torch.float32"
        text.add(
            "top",
            f"""
            def collate(samples):
                rows = torch.tensor([sample.tolist() for sample, _ in samples], dtype={made})
                return rows, torch.tensor([label for _, label in samples])
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"stack-arrays": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        values = SIZE * SIZE * 3 if script.about.kind == "image" else getattr(storage(script), "features", 64)
        return values * 6e-5


@dataclass(frozen=True)
class PadObject(Collate):
    """A callable object that makes lists longer by an element at a time. Repaired: `pad_sequence`."""

    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN
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


@dataclass(frozen=True)
class FilledTensor(Collate):
    """Tokens are set in a tensor one by one. Repaired: `pad_sequence`."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "Batcher()"
        text.add(
            "top",
            """
            class Batcher:
                def __init__(self, padding=0):
                    self.padding = padding

                def __call__(self, samples):
                    sequences, labels = zip(*samples)
                    ids = torch.full((len(sequences), max(map(len, sequences))), self.padding)
                    for row, sequence in enumerate(sequences):
                        for column, token in enumerate(sequence):
                            ids[row, column] = token
                    return ids, torch.tensor(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pad-sequence": {"collate": PadSequence()}}

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "words", 60) * 1.3 * 1.6e-3


@dataclass(frozen=True)
class LongestFirst(Collate):
    """Sequences are sorted by their length and set row by row: nothing to repair."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("text",)

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "longest_first"
        text.add(
            "top",
            """
            def longest_first(samples):
                samples = sorted(samples, key=lambda sample: len(sample[0]), reverse=True)
                ids = torch.zeros(len(samples), len(samples[0][0]), dtype=torch.long)
                for row, (tokens, _) in enumerate(samples):
                    ids[row, : len(tokens)] = torch.tensor(tokens)
                return ids, torch.tensor([label for _, label in samples])
            """,
        )


@dataclass(frozen=True)
class Unzipped(Collate):
    """Samples of a batch are sent one by one, and put together in the loop. Repaired: by the worker."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    def write(self, text: Text, script: Script) -> None:
        text.told["collate"] = "unzip"
        text.add("top", "def unzip(samples):\n    return tuple(zip(*samples))")
        text.add("loop", "x, y = torch.stack(x), torch.tensor(y)")
        # Before what others do to a batch.
        loop = text.sections["loop"]
        loop.insert(0, loop.pop())

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"few-tensors": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return 0.05


@dataclass(frozen=True)
class DoubleArrays(Collate):
    """Images become doubles, eight times as many bytes, before they are sent. Repaired: they stay as they are."""

    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image",)

    def write(self, text: Text, script: Script) -> None:
        text.need("import numpy as np")
        text.told["collate"] = "to_batch"
        text.add(
            "top",
            """
            def to_batch(samples):
                images = np.array([image.numpy() for image, _ in samples], dtype=np.float64)
                labels = np.array([label for _, label in samples])
                return torch.from_numpy(images), torch.from_numpy(labels)
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"stack-arrays": {"collate": Default()}}

    def cost(self, script: Script) -> float:
        return 0.06


COLLATES: list[type[Production]] = [
    Default,
    PadSequence,
    PaddedLists,
    ZippedLists,
    ManyTensors,
    ListCollate,
    PadObject,
    GrowingBatch,
    NumbersAlone,
    FilledTensor,
    LongestFirst,
    Unzipped,
    DoubleArrays,
]
