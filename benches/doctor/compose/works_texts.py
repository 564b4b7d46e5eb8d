"""Work on texts: how Python makes numbers of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import ClassVar

from grammar import OPEN, Production, Script, Text
from storages import storage
from works import Work


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


@dataclass(frozen=True)
class TrainedTokenizer(RegexTokens):
    """A tokenizer of Hugging Face's, trained on the texts. Repaired: they are tokenized when the data set is made."""

    of: ClassVar[str] = OPEN
    needs: ClassVar[tuple[str, ...]] = ("tokenizers",)

    def write(self, text: Text, script: Script) -> None:
        text.need("from tokenizers import Tokenizer, models, pre_tokenizers, trainers")
        text.add(
            "methods",
            """
            def learn(self):
                tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
                tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
                trainer = trainers.BpeTrainer(vocab_size=60, special_tokens=["[PAD]", "[UNK]"], show_progress=False)
                tokenizer.train_from_iterator((self.text(index) for index in range(200)), trainer)
                return tokenizer
            """.replace("200", str(min(200, script.about.count))),
        )
        if self.cheap:
            text.add("init", "tokenizer = self.learn()")
            text.add(
                "init",
                "self.tokens = [tokenizer.encode(self.text(index)).ids for index in range(len(self))]",
            )
            text.add("work", "tokens = self.tokens[index]")
        else:
            text.add("init", "self.tokenizer = self.learn()")
            text.add("work", "tokens = self.tokenizer.encode(self.text(index)).ids")

    def cost(self, script: Script) -> float:
        return 0.01 + getattr(storage(script), "words", 60) * 1.3e-3


@dataclass(frozen=True)
class CharacterGrams(RegexTokens):
    """Pieces of words are hashed one by one in Python. Repaired: once, when the data set is made."""

    longest: int = 4
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(longest=rng.choice([3, 4]))

    def constants(self) -> str:
        return f"SIZES = range(3, {self.longest + 1})"

    def tokenize(self) -> str:
        return """
            def pieces(word):
                for size in SIZES:
                    for begin in range(max(1, len(word) - size + 1)):
                        yield word[begin : begin + size]


            def tokenize(text):
                words = [f"<{word}>" for word in text.lower().split()]
                return [zlib.crc32(piece.encode()) % 9000 + 1 for word in words for piece in pieces(word)]
        """

    def write(self, text: Text, script: Script) -> None:
        text.need("import zlib")
        text.add("constants", self.constants())
        text.add("top", self.tokenize())
        self.call(text)

    def cost(self, script: Script) -> float:
        return getattr(storage(script), "words", 60) * (self.longest - 2) * 1.2e-3


WORKS: list[type[Production]] = [
    RegexTokens,
    CleanedTokens,
    TrainedTokenizer,
    CharacterGrams,
]
