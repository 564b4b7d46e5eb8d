"""Steps: a stand-in of a device, or a network on the CPU."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import ClassVar

from grammar import OPEN, SIZE, Production, Script, Text
from loaders import Loader
from storages import storage


@dataclass(frozen=True)
class Step(Production):
    """Forward, backward and update; `loss` has `.item()`, `total` sums over samples."""

    slot: ClassVar[str] = "step"

    def evaluating(self, script: Script) -> str:
        """An expression for what is computed of a batch `x`, `y` in evaluation; a float."""
        raise NotImplementedError


def milliseconds(rng: random.Random, script: Script) -> float:
    """How long a device takes a step: a third to three times as long as loading a batch; calm scripts twice or more."""
    about = script.about
    each = sum(part.cost(script) for part in script.parts.values())
    load = each * about.batch / max(1, min(getattr(script["loader"], "workers", 1), about.cores))
    most = 3.0 if about.small else 60.0
    times = 3 ** rng.uniform(-1, 1) if not about.calm else rng.uniform(2, 5)
    return round(min(max(load * times, 0.5 if not about.calm else 3.0), most), 2)


DEVICE = '''
class Result:
    """A number that the device is still working on."""

    def __init__(self, device, ready, value):
        self.device, self.ready, self.value = device, ready, value

    def item(self):
        self.device.wait(self.ready)
        return self.value


class Device:
    """Works on its own while the host goes on, as a GPU does."""

    def __init__(self):
        self.busy_until = 0.0

    def launch(self, batch, seconds):
        self.busy_until = max(time.perf_counter(), self.busy_until) + seconds
        return Result(self, self.busy_until, float(batch.float().mean()))

    def wait(self, until):
        left = until - time.perf_counter()
        if left > 0:
            time.sleep(left)
'''


@dataclass(frozen=True)
class AsyncDevice(Step):
    """A sleeping stand-in of a device, whose steps run in order while the host goes on."""

    ms: float = 5.0
    width: int = 64
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([16, 256, 1024]))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        text.add("top", DEVICE)
        text.add("constants", f"STEP = {self.ms / 1000:.5f}")
        text.add(
            "model",
            f"device = Device()\n"
            f"model = nn.Sequential(nn.Linear({self.width}, {self.width}), nn.Linear({self.width}, 10))",
        )
        text.add(
            "step",
            """
            loss = device.launch(x, STEP)
            device.wait(device.busy_until - 3 * STEP)  # its queue is not endless
            total += loss.value * len(x)
            """,
        )

    def evaluating(self, script: Script) -> str:
        return "device.launch(x, STEP / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class BlockingDevice(Step):
    """The same as a function that returns when the device is done."""

    ms: float = 5.0
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script))

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        text.add(
            "top",
            '''
            def train_step(batch, seconds):
                """Forward, backward and update on a device that takes so long."""
                time.sleep(seconds)
                return batch.float().mean()
            ''',
        )
        text.add("model", "model = nn.Sequential(nn.Linear(128, 128), nn.Linear(128, 10))")
        text.add("step", f"loss = train_step(x, {self.ms / 1000:.5f})\ntotal += loss.item() * len(x)")

    def evaluating(self, script: Script) -> str:
        return f"train_step(x, {self.ms / 3000:.5f}).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class Net(Step):
    """A network on the CPU, with torch's threads or so many. Repaired: one."""

    threads: int = field(default=0, kw_only=True)

    def head(self, script: Script, width: int) -> str:
        """Layers that make so many numbers of a sample."""
        kind, features = script.about.kind, getattr(storage(script), "features", 0)
        if kind == "image":
            return f"nn.AdaptiveAvgPool2d(8), nn.Flatten(), nn.Linear(192, {width})"
        return f"nn.Linear({features}, {width})" if kind == "vector" else f"nn.EmbeddingBag(10_000, {width})"

    def model(self, script: Script) -> str:
        """Lines that set `model`."""
        raise NotImplementedError

    def cost_of_step(self, script: Script) -> float:
        return 1.5

    def called(self, script: Script) -> str:
        """The model on a batch."""
        return "model(x.float() / 255)" if script.about.kind == "image" else "model(x)"

    def write(self, text: Text, script: Script) -> None:
        text.need("from torch import nn")
        if self.threads:
            text.add("setup", f"torch.set_num_threads({self.threads})")
        text.add(
            "model",
            f"{self.model(script)}\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
            "criterion = nn.CrossEntropyLoss()",
        )
        text.add(
            "step",
            f"""
            loss = criterion({self.called(script)}, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
            """,
        )

    def evaluating(self, script: Script) -> str:
        return f"float(({self.called(script)}.argmax(1) == y).float().mean())"

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {"fewer-threads": {"step": replace(self, threads=1)}}


@dataclass(frozen=True)
class SmallNet(Net):
    """Two layers."""

    of: ClassVar[str] = OPEN

    def model(self, script: Script) -> str:
        return f"model = nn.Sequential({self.head(script, 32)}, nn.ReLU(), nn.Linear(32, 10))"


@dataclass(frozen=True)
class LargerNet(Net):
    """Layers that keep the cores busy."""

    width: int = 512
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(32 if script.about.small else rng.choice([256, 512, 1024]))

    def model(self, script: Script) -> str:
        if script.about.kind == "image":
            channels = self.width // 32
            return (
                f"first = [nn.Conv2d(3, {channels}, 5, stride=2), nn.ReLU()]\n"
                f"second = [nn.Conv2d({channels}, {channels}, 3, padding=1), nn.ReLU()]\n"
                f"last = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear({4 * channels}, 10)]\n"
                "model = nn.Sequential(*first, *second, *last)"
            )
        return (
            f"first = [{self.head(script, self.width)}, nn.ReLU()]\n"
            f"second = [nn.Linear({self.width}, {self.width}), nn.ReLU(), nn.Linear({self.width}, 10)]\n"
            "model = nn.Sequential(*first, *second)"
        )

    def cost_of_step(self, script: Script) -> float:
        return 2.0 + (self.width / 256) ** 2 * script.about.batch / 16


@dataclass(frozen=True)
class Launching(Net):
    """One whose parts compute next to nothing. Repaired: a larger batch."""

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        loader = script["loader"]
        assert isinstance(loader, Loader)
        larger = replace(loader, batch=loader.batch * 4)
        return {**super().repairs(script), "larger-batch": {"loader": larger}}


@dataclass(frozen=True)
class ManyLayers(Launching):
    """Many layers that compute next to nothing. Repaired: a larger batch."""

    layers: int = 60
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(4 if script.about.small else rng.choice([20, 60, 120]))

    def model(self, script: Script) -> str:
        return (
            f"layers = [nn.Sequential(nn.Linear(24, 24), nn.Tanh()) for _ in range({self.layers})]\n"
            f"model = nn.Sequential({self.head(script, 24)}, *layers, nn.Linear(24, 10))"
        )

    def cost_of_step(self, script: Script) -> float:
        return 1.0 + 0.12 * self.layers


@dataclass(frozen=True)
class LoopedCell(Launching):
    """A recurrent cell that is called step by step in Python. Repaired: a larger batch."""

    times: int = 30
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(3 if script.about.small else rng.choice([10, 30, 60]))

    def model(self, script: Script) -> str:
        return f"model = Recurrent(nn.Sequential({self.head(script, 24)}), {self.times})"

    def cost_of_step(self, script: Script) -> float:
        return 1.0 + 0.25 * self.times

    def write(self, text: Text, script: Script) -> None:
        text.add(
            "top",
            """
            class Recurrent(nn.Module):
                def __init__(self, head, times):
                    super().__init__()
                    self.head, self.times = head, times
                    self.cell, self.out = nn.GRUCell(24, 24), nn.Linear(24, 10)

                def forward(self, x):
                    x = state = self.head(x)
                    for _ in range(self.times):
                        state = self.cell(x, state)
                    return self.out(state)
            """,
        )
        super().write(text, script)


@dataclass(frozen=True)
class ThreadDevice(Step):
    """A stand-in of a device that a thread of an executor's plays, with a queue that is not endless."""

    ms: float = 5.0
    width: int = 64
    depth: int = 2
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([32, 128, 384]), rng.choice([1, 2, 4]))

    def write(self, text: Text, script: Script) -> None:
        text.need(
            "import threading", "from concurrent.futures import ThreadPoolExecutor", "from torch import nn"
        )
        text.add("constants", f"SECONDS = {self.ms / 1000:.5f}")
        text.add(
            "top",
            '''
            class Later:
                """What a device will have computed."""

                def __init__(self, future, value):
                    self.future, self.value = future, value

                def item(self):
                    self.future.result()
                    return self.value


            class Accelerator:
                """Works through what is queued while the host goes on."""

                def __init__(self, depth):
                    self.pool = ThreadPoolExecutor(1)
                    self.places = threading.BoundedSemaphore(depth)

                def run(self, batch, seconds):
                    self.places.acquire()
                    return Later(self.pool.submit(self.work, seconds), float(batch.float().mean()))

                def work(self, seconds):
                    time.sleep(seconds)
                    self.places.release()
            ''',
        )
        text.add(
            "model",
            f"accelerator = Accelerator({self.depth})\n"
            f"model = nn.Sequential(nn.Linear({self.width}, {self.width}), nn.Linear({self.width}, 10))",
        )
        text.add("step", "loss = accelerator.run(x, SECONDS)\ntotal += loss.value * len(x)")

    def evaluating(self, script: Script) -> str:
        return "accelerator.run(x, SECONDS / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class Accumulated(Net):
    """A batch is learnt from in small parts, whose gradients add up. Repaired: at once."""

    parts: int = 4
    width: int = 48
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([2, 4, 8]), rng.choice([32, 64]))

    def model(self, script: Script) -> str:
        return (
            f"blocks = [nn.Sequential(nn.Linear({self.width}, {self.width}), nn.LayerNorm({self.width}), nn.GELU())\n"
            "          for _ in range(4)]\n"
            f"model = nn.Sequential({self.head(script, self.width)}, *blocks, nn.Linear({self.width}, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.parts == 1:
            return
        called = self.called(script).replace("x", "part")
        text.sections["step"].clear()
        text.add(
            "step",
            f"""
            optimizer.zero_grad()
            for part, labels in zip(x.chunk({self.parts}), y.chunk({self.parts})):
                loss = criterion({called}, labels) / {self.parts}
                loss.backward()
                total += loss.detach() * len(x)
            optimizer.step()
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 0.4 + 0.5 * self.parts

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "larger-batch": {"step": replace(self, parts=1)}}


@dataclass(frozen=True)
class Averaged(Net):
    """Averages of weights are kept by name after each step. Repaired: for all weights at once."""

    layers: int = 12
    at_once: bool = False
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(3 if script.about.small else rng.choice([4, 10, 20]))

    def model(self, script: Script) -> str:
        made = "AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))"
        return (
            f"layers = [m for _ in range({self.layers}) for m in (nn.Linear(32, 32), nn.ReLU())]\n"
            f"model = nn.Sequential({self.head(script, 32)}, *layers, nn.Linear(32, 10))\n"
            f"average = {made if self.at_once else 'copy.deepcopy(model)'}"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.at_once:
            text.need("from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn")
            text.add("step", "average.update_parameters(model)")
            return
        text.need("import copy")
        text.add(
            "top",
            """
            @torch.no_grad()
            def update_average(average, model, decay):
                for name, weights in model.state_dict().items():
                    kept = average.state_dict()[name]
                    kept.copy_(decay * kept + (1 - decay) * weights)
            """,
        )
        text.add("step", "update_average(average, model, 0.999)")

    def cost_of_step(self, script: Script) -> float:
        return 0.5 + 0.1 * self.layers + 0.006 * self.layers**2

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "average-at-once": {"step": replace(self, at_once=True)}}


@dataclass(frozen=True)
class AttentionNet(Net):
    """Patches of images, or parts of rows, that attend to each other."""

    width: int = 32
    layers: int = 1
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(16, 1) if script.about.small else cls(rng.choice([32, 64]), rng.choice([1, 2]))

    def model(self, script: Script) -> str:
        return f"model = Attending({self.width}, {self.layers})"

    def write(self, text: Text, script: Script) -> None:
        features = getattr(storage(script), "features", 0)
        cut = (
            "nn.Sequential(nn.Conv2d(3, width, 8, stride=8), nn.Flatten(2))"
            if script.about.kind == "image"
            else f"nn.Sequential(nn.Linear({features}, 8 * width), nn.Unflatten(1, (width, 8)))"
        )
        text.add(
            "top",
            f"""
            class Attending(nn.Module):
                def __init__(self, width, layers):
                    super().__init__()
                    self.cut = {cut}
                    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True)
                    self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
                    self.out = nn.Linear(width, 10)

                def forward(self, x):
                    return self.out(self.layers(self.cut(x).transpose(1, 2)).mean(1))
            """,
        )
        super().write(text, script)

    def cost_of_step(self, script: Script) -> float:
        tokens = 64 if script.about.kind == "image" else 8
        return 0.6 + self.layers * (0.6 + script.about.batch * tokens * self.width * 6e-5)


@dataclass(frozen=True)
class RemoteDevice(Step):
    """A stand-in of a device that another process plays, which is told of steps through a pipe."""

    ms: float = 5.0
    width: int = 64
    depth: int = 2
    of: ClassVar[str] = OPEN
    weight: ClassVar[float] = 2.0

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(milliseconds(rng, script), rng.choice([48, 200, 512]), rng.choice([1, 2, 3]))

    def write(self, text: Text, script: Script) -> None:
        text.need("import multiprocessing", "from torch import nn")
        text.add("constants", f"STEP_SECONDS = {self.ms / 1000:.5f}")
        text.add(
            "top",
            '''
            def serve(pipe):
                """What a device does: one step after the other."""
                while True:
                    time.sleep(pipe.recv())
                    pipe.send("done")


            class Pending:
                def __init__(self, remote, value):
                    self.remote, self.value = remote, value

                def item(self):
                    self.remote.finish()
                    return self.value


            class Remote:
                def __init__(self, depth):
                    self.depth, self.running = depth, 0
                    self.pipe, theirs = multiprocessing.Pipe()
                    multiprocessing.Process(target=serve, args=(theirs,), daemon=True).start()

                def finish(self, left=0):
                    while self.running > left:
                        self.pipe.recv()
                        self.running -= 1

                def step(self, batch, seconds):
                    self.finish(self.depth - 1)
                    self.pipe.send(seconds)
                    self.running += 1
                    return Pending(self, float(batch.float().mean()))
            ''',
        )
        text.add(
            "model",
            f"remote = Remote({self.depth})\n"
            f"model = nn.Sequential(nn.Linear({self.width}, {self.width}), nn.Linear({self.width}, 10))",
        )
        text.add("step", "loss = remote.step(x, STEP_SECONDS)\ntotal += loss.value * len(x)")

    def evaluating(self, script: Script) -> str:
        return "remote.step(x, STEP_SECONDS / 3).item()"

    def cost_of_step(self, script: Script) -> float:
        return self.ms


@dataclass(frozen=True)
class SequenceNet(Net):
    """Some rows of an image, or parts of a row, one after the other through a recurrent layer."""

    width: int = 32
    of: ClassVar[str] = OPEN
    kinds: ClassVar[tuple[str, ...]] = ("image", "vector")

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(8 if script.about.small else rng.choice([16, 64, 128]))

    def model(self, script: Script) -> str:
        return f"model = SequenceNet({self.width})"

    def write(self, text: Text, script: Script) -> None:
        image = script.about.kind == "image"
        inputs = SIZE if image else getattr(storage(script), "features", 64) // 8
        cut = "x.mean(1)[:, ::4]" if image else "x.unflatten(1, (8, -1))"
        text.add(
            "top",
            f"""
            class SequenceNet(nn.Module):
                def __init__(self, width):
                    super().__init__()
                    self.layer = nn.GRU({inputs}, width, batch_first=True)
                    self.out = nn.Linear(width, 10)

                def forward(self, x):
                    _, last = self.layer({cut})
                    return self.out(last[0])
            """,
        )
        super().write(text, script)

    def cost_of_step(self, script: Script) -> float:
        steps = SIZE // 4 if script.about.kind == "image" else 8
        return 1.0 + steps * (0.06 + script.about.batch * self.width * 2e-5)


@dataclass(frozen=True)
class OneByOne(Net):
    """Samples of a batch go through the model one by one. Repaired: all together."""

    width: int = 48
    together: bool = False
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(rng.choice([16, 64]))

    def model(self, script: Script) -> str:
        return (
            f"hidden = [nn.Linear({self.width}, {self.width}), nn.SiLU()]\n"
            f"model = nn.Sequential({self.head(script, self.width)}, nn.SiLU(), *hidden, nn.Linear({self.width}, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        if self.together:
            return
        called = self.called(script).replace("x", "one[None]")
        text.sections["step"].clear()
        text.add(
            "step",
            f"""
            each = [criterion({called}, label[None]) for one, label in zip(x, y)]
            loss = torch.stack(each).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(x)
            """,
        )

    def cost_of_step(self, script: Script) -> float:
        return 0.8 if self.together else 0.8 + 0.25 * script.about.batch

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "forward-at-once": {"step": replace(self, together=True)}}


@dataclass(frozen=True)
class ClippedByHand(Net):
    """Norms of gradients are taken one by one before they are clipped. Repaired: by one call."""

    layers: int = 12
    at_once: bool = False
    of: ClassVar[str] = OPEN

    @classmethod
    def draw(cls, rng: random.Random, script: Script) -> Production:
        return cls(3 if script.about.small else rng.choice([4, 16, 40]))

    def model(self, script: Script) -> str:
        return (
            f"blocks = [nn.Sequential(nn.LayerNorm(40), nn.Linear(40, 40), nn.GELU()) for _ in range({self.layers})]\n"
            f"model = nn.Sequential({self.head(script, 40)}, *blocks, nn.Linear(40, 10))"
        )

    def write(self, text: Text, script: Script) -> None:
        super().write(text, script)
        lines = text.sections["step"]
        place = next(i for i, (line, _) in enumerate(lines) if line == "optimizer.step()")
        if self.at_once:
            clipping = ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"]
        else:
            text.add(
                "top",
                """
                def clip_gradients(model, most):
                    squares = 0.0
                    for weights in model.parameters():
                        if weights.grad is not None:
                            squares += weights.grad.data.norm(2).item() ** 2
                    for weights in model.parameters():
                        if weights.grad is not None and squares > most**2:
                            weights.grad.data = weights.grad.data * (most / squares**0.5)
                """,
            )
            clipping = ["clip_gradients(model, 1.0)"]
        lines[place:place] = [(line, self.slot) for line in clipping]

    def cost_of_step(self, script: Script) -> float:
        return 1.0 + self.layers * (0.16 if self.at_once else 0.2)

    def repairs(self, script: Script) -> dict[str, dict[str, Production]]:
        return {**super().repairs(script), "clip-at-once": {"step": replace(self, at_once=True)}}


STEPS: list[type[Production]] = [
    AsyncDevice,
    BlockingDevice,
    SmallNet,
    LargerNet,
    ManyLayers,
    LoopedCell,
    ThreadDevice,
    Accumulated,
    Averaged,
    AttentionNet,
    RemoteDevice,
    SequenceNet,
    OneByOne,
    ClippedByHand,
]
