"""The grammar of composed scripts: productions fill slots, a script is one production a slot, a fix replaces some.

Invariant: a fix is the same script with productions of it replaced by their repaired forms, and nothing else. A script
is a function of its productions alone, so that plain and fixed differ in the lines that the fix is about.

Lines know the slot that wrote them: a place that the doctor names is compared with them, never with words.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

Maker = Callable[[Path], None]
"""Makes data at a path that does not exist yet: a file or a folder."""

OPEN, KEPT, PLAIN = "open", "kept", "plain"
"""Sets of productions: to develop rules with, for the final figures only, and, in both, that a thing is absent."""

SLOTS = (
    "framework",
    "storage",
    "access",
    "decoding",
    "work",
    "collate",
    "loader",
    "step",
    "logging",
    "evaluation",
    "limits",
)

SIZE = 64
"""Width and height of images as the model takes them."""


@dataclass(frozen=True)
class About:
    """What is drawn for a script before its productions."""

    seed: int
    kind: str
    """What a sample is: `image` (uint8, height x width x 3), `vector` (float32), `text`."""
    count: int
    """Samples of an epoch."""
    batch: int
    cores: int
    """Cores of this machine: what a right number of workers is."""
    small: bool = False
    """Little data and short steps, for tests."""
    calm: bool = False
    """Whether nothing is drawn that could be left out, and steps are long: such scripts are mostly healthy."""


@dataclass(frozen=True)
class Production:
    """One choice for a slot. Its fields are its magnitudes, drawn by `draw`."""

    slot: ClassVar[str] = ""
    of: ClassVar[str] = PLAIN
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector", "text")
    weight: ClassVar[float] = 1.0
    """How often it is drawn, as against the others of its slot."""
    needs: ClassVar[tuple[str, ...]] = ()
    """Libraries that its lines import and that may not be there: without them it is not drawn."""

    @classmethod
    def fits(cls, script: Script) -> bool:
        """Whether it can stand beside what was drawn before it, in the order of `SLOTS`."""
        return script.about.kind in cls.kinds and all(importlib.util.find_spec(name) for name in cls.needs)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        """One with magnitudes drawn at random."""
        return cls()

    def write(self, text: Text, script: Script) -> None:
        """Adds its lines."""

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        """Candidate fixes: for the name of each (of `truth.FIXES`), what replaces which slots."""
        return {}

    def data(self, script: Script) -> dict[str, Maker]:
        """What it reads, by name under the script's folder of data."""
        return {}

    def cost(self, script: Script) -> float:
        """About how many milliseconds of CPU it takes a sample: it sets the length of epochs and steps only."""
        return 0.0

    def cost_of_step(self, script: Script) -> float:
        """The same for each step of the loop."""
        return 0.0

    @property
    def random(self) -> bool:
        """Whether what it computes depends on random numbers, so that losses differ with the workers that draw them."""
        return False


@dataclass(frozen=True)
class Script:
    """A whole script: what is drawn for it, and its productions by slot."""

    about: About
    parts: dict[str, Production] = field(default_factory=dict)

    def __getitem__(self, slot: str) -> Production:
        return self.parts[slot]

    def having(self, replaced: dict[str, Production]) -> Script:
        """The same with other productions in some slots."""
        return Script(self.about, {**self.parts, **replaced})

    @property
    def names(self) -> dict[str, str]:
        """Names of its productions by slot."""
        return {slot: type(part).__name__ for slot, part in self.parts.items()}

    def fixes(self) -> dict[str, Script]:
        """The script with each candidate fix alone."""
        found: dict[str, Script] = {}
        for part in self.parts.values():
            for name, replaced in part.repairs(self).items():
                if name in found:
                    raise ValueError(f"two productions of seed {self.about.seed} offer the fix {name}")
                found[name] = self.having(replaced)
        return found

    def replaced(self, fix: str) -> tuple[str, ...]:
        """Slots that a fix replaces."""
        for part in self.parts.values():
            if fix in (repairs := part.repairs(self)):
                return tuple(repairs[fix])
        raise KeyError(fix)

    def data(self) -> dict[str, Maker]:
        """All that it reads."""
        return {name: make for part in self.parts.values() for name, make in part.data(self).items()}

    def lines(self) -> list[tuple[str, str]]:
        """The script, with the slot that wrote each line; empty for what all scripts have."""
        text = Text()
        for slot, part in self.parts.items():
            with text.written_by(slot):
                part.write(text, self)
        return text.arranged(self)

    def source(self) -> str:
        """The script."""
        return "\n".join(line for line, _ in self.lines()) + "\n"

    @property
    def random(self) -> bool:
        """Whether its losses depend on random numbers drawn by workers."""
        return any(part.random for part in self.parts.values())


Line = tuple[str, str]


@dataclass
class Text:
    """Lines of a script that is being written, by section."""

    imports: dict[str, str] = field(default_factory=dict)
    sections: dict[str, list[Line]] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)
    """What one production chooses and the frame heeds: names of `dataset`, `collate`, `sample`, `lock`, the `depth` of
    a stream's lines, `anew` for a loader that each epoch makes."""
    slot: str = ""
    arrange: Callable[[Text, Script], list[Line]] | None = None
    """Puts the sections together: the framework's."""

    @contextmanager
    def written_by(self, slot: str) -> Iterator[None]:
        """Lines that are added belong to a slot."""
        before, self.slot = self.slot, slot
        try:
            yield
        finally:
            self.slot = before

    def need(self, *imports: str) -> None:
        """Imports, as whole lines."""
        for line in imports:
            self.imports.setdefault(line, self.slot)

    def add(self, section: str, block: str) -> None:
        """Lines without their common indentation. Blocks of the section `top` stand apart."""
        lines = self.sections.setdefault(section, [])
        lines.extend([("", ""), ("", "")] if section == "top" else [])
        lines.extend((line, self.slot) for line in outdented(block))

    def take(self, section: str, indent: int = 0) -> list[Line]:
        """Lines of a section, indented by so many steps."""
        return indented(self.sections.get(section, []), indent)

    def arranged(self, script: Script) -> list[Line]:
        """The whole file."""
        if self.arrange is None:
            raise ValueError("a script needs a framework")
        return self.arrange(self, script)

    def sorted_imports(self) -> list[Line]:
        """Standard library first, then the others; `import` before `from`."""
        ordered = sorted(self.imports.items(), key=lambda item: (item[0].startswith("from"), item[0]))
        foreign = [i for i in ordered if i[0].split()[1].split(".")[0] not in sys.stdlib_module_names]
        return [*(item for item in ordered if item not in foreign), ("", ""), *foreign]


def outdented(block: str) -> list[str]:
    """Lines of a block without their common indentation and the empty ones around them."""
    lines = block.strip("\n").rstrip().split("\n")
    least = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return [line[least:].rstrip() for line in lines]


def indented(lines: list[Line], steps: int) -> list[Line]:
    """Lines moved to the right by steps of four."""
    return [(f"{'    ' * steps}{line}" if line else "", slot) for line, slot in lines]


def plain(block: str) -> list[Line]:
    """Lines that no production wrote."""
    return [(line, "") for line in outdented(block)]
