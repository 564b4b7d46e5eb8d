"""Draws scripts: which productions stand together, and how many samples make an epoch of about a second."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, replace
from typing import ClassVar

import accesses
import collates
import decodings
import evaluations
import kept_evaluations
import kept_images
import kept_loops
import kept_pipelines
import kept_reading
import kept_storages
import kept_works
import limits
import loaders
import pipelines
import pipelines_models
import steps
import storages
import storages_images
import storages_tables
import storages_texts
import works
import works_texts
from grammar import KEPT, OPEN, PLAIN, SLOTS, About, Line, Production, Script, Text, plain

EPOCH_MS = 800.0
"""About what an epoch shall take: short enough for some in a run, long enough to be told from what stands around it."""

DATAFLOW = 0.15
"""Share of scripts on TensorFlow, where there is an interpreter for them."""

NOTHING = {
    "storage": 0.12,
    "access": 0.4,
    "work": 0.4,
    "collate": 0.55,
    "loader": 0.4,
    "logging": 0.55,
    "evaluation": 0.6,
    "limits": 0.75,
}
"""By slot, how often a production of neither set is drawn although there are others: most scripts have few faults."""


@dataclass(frozen=True)
class Torch(Production):
    """Torch's data set, loader and loop. Repaired: the loader is given to `wellfed.feed`."""

    slot: ClassVar[str] = "framework"
    feed: bool = False

    def write(self, text: Text, script: Script) -> None:
        text.need("import sys", "import time", "from pathlib import Path", "import torch")
        streams = storages.storage(script).form == "stream"
        if storages.storage(script).form != "tensors":
            base = "IterableDataset" if streams else "Dataset"
            text.need(f"from torch.utils.data import DataLoader, {base}")
        text.arrange = arranged
        if self.feed:
            text.need("import wellfed")
            text.add("feed", "loader = wellfed.feed(loader)")

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {} if self.feed else {"feed": {"framework": replace(self, feed=True)}}


def arranged(text: Text, script: Script) -> list[Line]:
    """A training script of torch's."""
    lines = plain('"""Trains a small model on data beside this file: `train.py [EPOCHS]`."""\n\n')
    lines += [("", ""), *merged(text.sorted_imports()), ("", "")]
    lines += plain('HERE = Path(__file__).resolve().parent\nDATA = HERE / "data"')
    lines += plain("EPOCHS = int(sys.argv[1]) if len(sys.argv) > 1 else 10")
    lines += text.take("constants") + text.take("top")
    if storages.storage(script).form != "tensors":
        lines += [("", ""), ("", ""), *dataset(text, script)]
    lines += [("", ""), ("", ""), *plain("def main():\n    torch.manual_seed(0)")]
    anew = "anew" in text.told
    lines += text.take("setup", 1) + ([] if anew else text.take("loader", 1) + text.take("feed", 1))
    lines += text.take("model", 1) + text.take("before", 1)
    lines += plain("""
    def main():
        for epoch in range(EPOCHS):
            begin = time.perf_counter()
            total, seen = 0.0, 0
    """)[1:]
    lines += text.take("loader", 2) + text.take("feed", 2) if anew else []
    lines += plain("""
    def main():
            for step, (x, y) in enumerate(loader):
    """)[1:]
    lines += text.take("loop", 3) + text.take("step", 3)
    lines += [("            seen += len(y)", "")]
    lines += text.take("log", 3) + text.take("after", 3) + text.take("epoch", 2)
    lines += plain("""
    def main():
            loss = float(total) / seen
            print(f"epoch {epoch}: loss {loss:.6f}, {time.perf_counter() - begin:.4f} s", flush=True)
    """)[1:]
    return [*lines, ("", ""), ("", ""), *plain('if __name__ == "__main__":\n    main()')]


def merged(imports: list[Line]) -> list[Line]:
    """Imports with one line a module, as people sort them."""
    names: dict[str, set[str]] = {}
    whole: list[Line] = []
    slots: dict[str, str] = {}
    for line, slot in imports:
        module, _, listed = line.partition(" import ")
        if not line.startswith("from ") or not listed:
            whole.append((line, slot))
            continue
        if module not in names:
            whole.append((module, slot))
        names.setdefault(module, set()).update(listed.split(", "))
        slots[module] = slot
    return [
        (f"{line} import {', '.join(sorted(names[line]))}" if line in names else line, slot)
        for line, slot in whole
    ]


def dataset(text: Text, script: Script) -> list[Line]:
    """The class of samples."""
    kind = script.about.kind
    default = {
        "image": "torch.from_numpy(image).permute(2, 0, 1)",
        "vector": "torch.from_numpy(x)",
        "text": "tokens",
    }[kind]
    sample = f"{text.told.get('sample', default)}, label"
    streams = storages.storage(script).form == "stream"
    lines = plain(f"class Samples({'IterableDataset' if streams else 'Dataset'}):")
    if begin := text.take("init", 2):
        lines += [*plain("class A:\n    def __init__(self):")[1:], *begin]
    if not streams:
        lines += [("", "")] if begin else []
        lines += plain(f"class A:\n    def __len__(self):\n        return {script.about.count}")[1:]
    if methods := text.take("methods", 1):
        lines += [("", ""), *methods] if len(lines) > 1 else methods
    if streams:
        lines += [("", "")] if len(lines) > 1 else []
        depth = 2 + int(text.told["depth"])
        lines += [*plain("class A:\n    def __iter__(self):")[1:], *text.take("iterate", 2)]
        lines += [
            *text.take("get", depth),
            *text.take("work", depth),
            (f"{'    ' * depth}yield {sample}", ""),
        ]
        return lines
    lines += [("", ""), *plain("class A:\n    def __getitem__(self, index):")[1:]]
    if lock := text.told.get("lock"):
        lines += [(f"        with {lock}:", "loader"), *text.take("get", 3)]
    else:
        lines += text.take("get", 2)
    return [*lines, *text.take("work", 2), (f"        return {sample}", "")]


GROUPS: dict[str, list[type[Production]]] = {
    "storage": [
        *storages.STORAGES,
        *storages_images.STORAGES,
        *storages_tables.STORAGES,
        *storages_texts.STORAGES,
        *kept_images.STORAGES,
        *kept_storages.STORAGES,
    ],
    "access": [*accesses.ACCESSES, *kept_reading.ACCESSES],
    "decoding": [*decodings.DECODINGS, *kept_reading.DECODINGS],
    "work": [*works.WORKS, *works_texts.WORKS, *kept_works.WORKS],
    "collate": [*collates.COLLATES, *kept_reading.COLLATES],
    "loader": [*loaders.LOADERS, *kept_loops.LOADERS],
    "step": [*steps.STEPS, *kept_loops.STEPS],
    "logging": [*evaluations.LOGGINGS, *kept_evaluations.LOGGINGS],
    "evaluation": [*evaluations.EVALUATIONS, *kept_evaluations.EVALUATIONS],
    "limits": [*limits.LIMITS, *kept_loops.LIMITS],
}
"""Productions of scripts on torch by slot, in the order in which they are drawn: what fits depends on those before."""


PIPELINES: list[type[Production]] = [
    *pipelines.PRODUCTIONS,
    *pipelines_models.PRODUCTIONS,
    *kept_pipelines.PIPELINES,
]
"""Those of scripts on TensorFlow."""


def productions() -> list[type[Production]]:
    """All there are."""
    return [Torch, *(part for group in GROUPS.values() for part in group), *PIPELINES]


CALM = 0.2
"""Share of scripts with as few faults as can be drawn: without them nothing says how often healthy ones are blamed."""


def choose(
    rng: random.Random, some: list[type[Production]], script: Script, of: str, slot: str
) -> Production:
    """One that fits, of the set or of neither."""
    nothing = 1.0 if script.about.calm and slot != "storage" else NOTHING.get(slot, 0.0)
    fitting = [part for part in some if part.of in (of, PLAIN) and part.fits(script)]
    own, neither = ([p for p in fitting if (p.of == PLAIN) is none] for none in (False, True))
    if not fitting:
        raise LookupError(f"nothing of the set {of} fits into the slot {slot} beside {script.names}")
    among = own if not neither else neither if not own or rng.random() < nothing else own
    picked = rng.choices(among, [part.weight for part in among])[0]
    return picked.draw(rng, script)


def draw(seed: int, of: str = OPEN, dataflow: bool = False, cores: int = 0, small: bool = False) -> Script:
    """The script of a seed: of the set `open` or `kept`; `dataflow` lets it be one of TensorFlow.

    `cores`: 0 for those of this machine, which is a part of what is drawn.
    """
    if of not in (OPEN, KEPT):
        raise ValueError(f"the set {of!r} is neither {OPEN} nor {KEPT}")
    rng = random.Random(f"{of}-{seed}")
    cores = cores or len(os.sched_getaffinity(0))
    # Drawn in any case, so that torch's scripts are the same whether there is TensorFlow or not.
    if rng.random() < DATAFLOW and dataflow:
        some = [part for part in PIPELINES if part.of in (of, PLAIN)]
        return pipelines.draw(rng, About(seed, "tensorflow", 512, 16, cores, small), some)
    kind = rng.choices(["image", "vector", "text"], [0.45, 0.37, 0.18])[0]
    batch = rng.choice({"image": [8, 16, 32], "vector": [16, 32, 64], "text": [8, 16, 32]}[kind])
    calm = random.Random(f"{of}-{seed}-calm").random() < CALM
    script = Script(About(seed, kind, 512, batch, cores, small, calm), {"framework": Torch()})
    for slot in SLOTS[1:]:
        script = script.having({slot: choose(rng, GROUPS[slot], script, of, slot)})
    return sized(script)


def sized(script: Script) -> Script:
    """With as many samples as make an epoch of about `EPOCH_MS`, and at least ten batches."""
    about = script.about
    if about.small:
        return Script(replace(about, count=4 * about.batch), script.parts)
    step = sum(part.cost_of_step(script) for part in script.parts.values())
    counts = [256, 512, 1024, 2048, 4096, 8192, 16384]
    if about.kind == "image":
        counts = counts[:4]
    least = [count for count in counts if count >= 10 * about.batch]
    best = Script(replace(about, count=least[0]), script.parts)
    for count in least[1:]:
        larger = Script(replace(about, count=count), script.parts)
        each = sum(part.cost(larger) for part in larger.parts.values())
        workers = max(1, min(getattr(larger["loader"], "workers", 1), about.cores))
        if each * count / workers + step * count / about.batch > EPOCH_MS:
            break
        best = larger
    return best
