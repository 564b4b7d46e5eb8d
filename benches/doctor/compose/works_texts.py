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


@dataclass(frozen=True)
class WordPieces(RegexTokens):
    """Words are cut into their longest known pieces in Python. Repaired: once, when the data set is made."""

    of: ClassVar[str] = OPEN

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

    of: ClassVar[str] = OPEN
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

    of: ClassVar[str] = OPEN

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
    RegexTokens,
    CleanedTokens,
    TrainedTokenizer,
    CharacterGrams,
    WordPieces,
    FastTokenizer,
    KnownWords,
]
