"""Storages of texts."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

import material
from grammar import OPEN, Maker, Production, Script, Text
from storages import Storage


@dataclass(frozen=True)
class TextLines(Storage):
    """A file of one text a line, held in memory."""

    words: int = 60
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("text",)
    form: ClassVar[str] = "memory"

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([30, 100, 300]))

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}.txt"

    def write(self, text: Text, script: Script) -> None:
        text.add("init", f'self.lines = (DATA / "{self.name(script)}").read_text().splitlines()')
        text.add("methods", "def text(self, index):\n    return self.lines[index]")

    def reading(self, script: Script, source: str) -> str:
        return "label = index % 10"

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.text_lines(script.about.count, self.words)}


@dataclass(frozen=True)
class JsonLines(TextLines):
    """A file of one JSON object a line, of which each is parsed when it is asked for."""

    of: ClassVar[str] = OPEN

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}.jsonl"

    def write(self, text: Text, script: Script) -> None:
        text.need("import json")
        text.add("init", f'self.lines = (DATA / "{self.name(script)}").read_text().splitlines()')
        text.add("methods", 'def text(self, index):\n    return json.loads(self.lines[index])["text"]')

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.text_jsonl(script.about.count, self.words)}


@dataclass(frozen=True)
class ReadlinesEach(TextLines):
    """A file of one text a line, of which all lines are read for each sample. Repaired: once."""

    once: bool = False
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([20, 60, 120]))

    def write(self, text: Text, script: Script) -> None:
        path = f'DATA / "{self.name(script)}"'
        if self.once:
            text.add("init", f"with open({path}) as file:\n    self.lines = file.readlines()")
            text.add("methods", "def text(self, index):\n    return self.lines[index].rstrip()")
        else:
            text.add(
                "methods",
                f"""
                def text(self, index):
                    with open({path}) as file:
                        return file.readlines()[index].rstrip()
                """,
            )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"load-once": {"storage": replace(self, once=True)}}

    def cost(self, script: Script) -> float:
        return 0.02 + script.about.count * (5e-5 + self.words * 2.4e-6)


@dataclass(frozen=True)
class SoughtLines(TextLines):
    """A file of one text a line, whose beginnings are looked up once: nothing to repair."""

    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 0.8

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([30, 60, 120]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import itertools")
        text.add(
            "init",
            f"""
            self.path = DATA / "{self.name(script)}"
            with self.path.open("rb") as file:
                self.begins = [0, *itertools.accumulate(len(line) for line in file)]
            """,
        )
        text.add(
            "methods",
            """
            def text(self, index):
                with self.path.open("rb") as file:
                    file.seek(self.begins[index])
                    return file.readline().decode().rstrip()
            """,
        )

    def cost(self, script: Script) -> float:
        return 0.03


@dataclass(frozen=True)
class TextEach(TextLines):
    """A file for each text. Repaired: all in one, which is held in memory."""

    packed: bool = False
    of: ClassVar[str] = OPEN

    def name(self, script: Script) -> str:
        return f"texts-{script.about.count}-{self.words}{'.txt' if self.packed else '-files'}"

    def write(self, text: Text, script: Script) -> None:
        if self.packed:
            super().write(text, script)
            return
        text.add("init", f'self.paths = sorted((DATA / "{self.name(script)}").glob("*.txt"))')
        text.add(
            "methods",
            """
            def text(self, index):
                with open(self.paths[index], encoding="utf-8") as file:
                    return file.read().strip()
            """,
        )

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"pack": {"storage": replace(self, packed=True)}}

    def data(self, script: Script) -> dict[str, Maker]:
        if self.packed:
            return super().data(script)
        return {self.name(script): material.text_folder(script.about.count, self.words)}

    def cost(self, script: Script) -> float:
        return 0.0 if self.packed else 0.03


@dataclass(frozen=True)
class ReviewTable(TextLines):
    """Texts in a DataFrame, of which the one with an id is looked for, or a row taken. Repaired: a list."""

    how: str = "id"
    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("pandas",)

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([15, 60, 200]), rng.choice(["id", "row"]))

    def name(self, script: Script) -> str:
        return f"reviews-{script.about.count}-{self.words}.tsv"

    def write(self, text: Text, script: Script) -> None:
        text.need("import pandas as pd")
        text.add("init", f'reviews = pd.read_csv(DATA / "{self.name(script)}", sep="\\t")')
        kept = 'self.texts = reviews["text"].tolist()' if self.how == "list" else "self.reviews = reviews"
        text.add("init", kept)
        taken = {
            "id": 'self.reviews.loc[self.reviews["id"] == index, "text"].item()',
            "row": 'self.reviews.iloc[index]["text"]',
            "list": "self.texts[index]",
        }[self.how]
        text.add("methods", f"def text(self, index):\n    return {taken}")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"to-arrays": {"storage": replace(self, how="list")}}

    def data(self, script: Script) -> dict[str, Maker]:
        return {self.name(script): material.text_table(script.about.count, self.words)}

    def cost(self, script: Script) -> float:
        return {"id": 0.18, "row": 0.04, "list": 0.0}[self.how]


STORAGES: list[type[Production]] = [
    TextLines,
    JsonLines,
    ReadlinesEach,
    SoughtLines,
    TextEach,
    ReviewTable,
]
