"""The doctor's probe and all kinds of loaders."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_probe import run

pytest.importorskip("torch")

MANY = """
    import copy, inspect, pickle, sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset, TensorDataset

    class Stream(IterableDataset):
        def __len__(self):
            return 20

        def __iter__(self):
            info = torch.utils.data.get_worker_info()
            first, stride = (0, 1) if info is None else (info.id, info.num_workers)
            for i in range(first, 20, stride):
                time.sleep(0.002)
                yield {"x": torch.full((3,), float(i)), "text": str(i)}

    class Slow(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            time.sleep(0.002)
            return i

    class Whole(Slow):
        def __getitems__(self, indices):
            return [self[i] for i in indices]

    class Own(DataLoader):
        def __init__(self, data, size=4):
            super().__init__(data, batch_size=size)

        def __iter__(self):
            for batch in super().__iter__():
                yield batch + 1

    def main():
        print(inspect.signature(DataLoader.__init__), inspect.signature(DataLoader), DataLoader.__init__.__qualname__)
        stream = DataLoader(Stream(), batch_size=4)                              # 0
        print([b["text"] for b in stream], [b["x"].sum().item() for b in stream])
        print(len(stream))
        shared = DataLoader(Stream(), batch_size=4, num_workers=2, persistent_workers=True)  # 1
        for epoch in range(2):
            print(sorted(t for b in shared for t in b["text"]))
        plain = DataLoader(Subset(Slow(), range(2, 8)), batch_size=3, collate_fn=tuple)      # 2
        print(list(plain), vars(plain).keys())
        other = pickle.loads(pickle.dumps(plain))                                # 3, when it is iterated
        print(list(other), vars(other).keys(), copy.copy(plain).batch_size)
        print(list(DataLoader(Whole(), batch_size=6)))                           # 4
        print(list(Own(Slow())))                                                 # 5
        single = DataLoader(Slow(), batch_size=None)                             # 6
        print(list(single))
        try:
            plain.batch_size = 5
        except ValueError as e:
            print(e)
        try:
            DataLoader(Slow(), prefetch_factor=2)
        except ValueError as e:
            print(e)
        print([a + b for a, b in zip(single, single)])
        for batch in single:
            break
        inner = DataLoader(Slow(), batch_size=6)                                 # 7
        for a in DataLoader(Slow(), batch_size=6):                               # 8
            for b in inner:
                print((a * b).sum())

    if __name__ == "__main__":
        main()
"""


def test_kinds_of_torch_loaders(tmp_path: Path) -> None:
    done = run(tmp_path, MANY)
    assert done.failures == ""
    plain = run(tmp_path, MANY, probe=False)
    assert (done.code, done.out, done.err) == (plain.code, plain.out, plain.err) == (0, plain.out, plain.err)
    loaders = {r["loader"]: r for r in done.main("loader")}
    assert len(loaders) == len(done.main("loader"))
    numbers = {(r["loader"], r["iter"]) for r in done.main("iter")}
    stream, shared, subset, pickled, whole, own, single, inner, outer = loaders.values()
    assert stream["iterable"]
    assert stream["length"] is None
    assert (shared["num_workers"], shared["persistent_workers"], shared["prefetch_factor"]) == (2, True, 2)
    assert subset["dataset"] == "torch.utils.data.dataset.Subset(Slow)"
    assert subset["collate"] == "tuple"
    assert pickled["dataset"] == subset["dataset"]
    assert whole["dataset"] == "Whole"
    assert own["class"] == "Own"
    assert single["batch_size"] is None
    assert {(0, 0), (0, 1), (1, 0), (1, 1)} <= numbers

    def steps(loader: dict[str, object], iterator: int = 0) -> int:
        number = loader["loader"]
        records = [r for r in done.main("steps") if (r["loader"], r["iter"]) == (number, iterator)]
        return sum(len(r["t0"]) for r in records)

    assert [steps(r) for r in (stream, shared, subset, pickled, whole, own, single)] == [5, 6, 2, 2, 2, 3, 12]
    assert steps(shared, 1) == 6
    # Two at a time, and one that was left.
    assert [steps(single, i) for i in (1, 2, 3)] == [12, 12, 1]
    assert steps(outer) == 2
    assert [steps(inner, i) for i in (0, 1)] == [2, 2]
    # Samples of a Subset are seen one by one, those of whole batches are not.
    assert {i for r in done.of("samples") if r["loader"] == subset["loader"] for i in r["index"]} <= {
        *range(2, 8)
    }
    assert any(r["loader"] == subset["loader"] for r in done.of("samples"))
    assert [r for r in done.of("samples") if r["loader"] == whole["loader"]] == []
    assert sum(n for r in done.of("fetch") if r["loader"] == whole["loader"] for n in r["n"]) == 12
    assert len(list(done.of("role"))) == 2
    assert {r["loader"] for r in done.of("fetch") if r["worker"] >= 0} == {shared["loader"]}
    (batch,) = [r for r in done.main("batch") if r["loader"] == stream["loader"]]
    assert batch["shapes"] == ["float32[4, 3]"]


OUTLOOK = """
    import os
    from PIL import Image
    from torch.utils.data import DataLoader, Dataset
    from torchvision import datasets, transforms as T

    class Own(Dataset):
        def __init__(self, folder):
            self.paths = [path for path, _ in folder.samples]

        def __len__(self):
            return len(self.paths)

        def __getitem__(self, i):
            return T.ToTensor()(Image.open(self.paths[i]).convert("RGB"))

    def main():
        for name in "ab":
            os.makedirs(f"data/{name}", exist_ok=True)
            for i in range(3):
                Image.new("RGB", (40, 30), (i, 9, 90)).save(f"data/{name}/{i}.jpg")
        chain = T.Compose([T.Resize((8, 8)), T.ToTensor()])
        folder = datasets.ImageFolder("data", chain)
        for loader in (DataLoader(folder, 2), DataLoader(Own(folder), 2, num_workers=1), DataLoader([1, 2])):
            for epoch in range(2):
                print(len(list(loader)))
        print(folder.transform is chain)

    if __name__ == "__main__":
        main()
"""


def test_what_would_run_natively_is_noted_once(tmp_path: Path) -> None:
    done = run(tmp_path, OUTLOOK)
    assert done.failures == ""
    assert (done.code, done.out) == (0, "3\n" * 4 + "2\n" * 2 + "True\n"), done.err
    assert len(done.main("loader")) == 3
    noted = [(r["loader"], r["plan"], r["images"]) for r in done.main("fed")]
    assert noted == [(0, "native", False), (1, "python", True), (2, "python", True)]
    assert "wellfed" not in [r["name"] for r in done.main("module")]


STATEFUL = """
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    def main():
        for workers in (0, 2):
            loader = StatefulDataLoader(torch.arange(24), batch_size=4, num_workers=workers)
            batches = iter(loader)
            print([next(batches).tolist() for _ in range(2)])
            state = loader.state_dict()
            other = StatefulDataLoader(torch.arange(24), batch_size=4, num_workers=workers)
            other.load_state_dict(state)
            print([b.tolist() for b in other])

    if __name__ == "__main__":
        main()
"""


def test_stateful_loader(tmp_path: Path) -> None:
    pytest.importorskip("torchdata.stateful_dataloader")
    done = run(tmp_path, STATEFUL)
    assert done.failures == ""
    plain = run(tmp_path, STATEFUL, probe=False)
    assert (done.code, done.out) == (plain.code, plain.out)
    assert done.code == 0
    assert [r["class"].rpartition(".")[2] for r in done.main("loader")] == ["StatefulDataLoader"] * 4
    counts = [sum(len(s["t0"]) for s in done.main("steps") if s["loader"] == n) for n in range(4)]
    assert counts == [2, 4, 2, 4]
    assert sorted(r["worker"] for r in done.of("role")) == [0, 0, 1, 1]
    assert {r["loader"] for r in done.of("fetch")} == {0, 1, 2, 3}


WELLFED = """
    import sys, time
    import numpy as np
    import torch
    import wellfed as wf
    from torch.utils.data import Dataset, TensorDataset
    from wellfed.torch import DataLoader

    class Slow(Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, i):
            time.sleep(0.002)
            return torch.full((3,), float(i))

    def main():
        print([b.sum().item() for b in DataLoader(Slow(), batch_size=4)])
        for method in sys.argv[1:]:
            loader = DataLoader(Slow(), batch_size=4, num_workers=2, multiprocessing_context=method)
            print([b.sum().item() for epoch in range(2) for b in loader])
        rows = DataLoader(TensorDataset(torch.arange(12)), batch_size=4)
        print([b.tolist() for epoch in range(2) for (b,) in rows])
        native = wf.from_tensor_slices(np.arange(20)).batch(5).numpy()
        print([b.tolist() for epoch in range(2) for b in native], repr(native))

    if __name__ == "__main__":
        main()
"""


def test_loaders_of_wellfed(tmp_path: Path) -> None:
    methods = ("fork", "spawn")
    done = run(tmp_path, WELLFED, *methods)
    assert done.failures == ""
    plain = run(tmp_path, WELLFED, *methods, probe=False)
    assert (done.code, done.out) == (plain.code, plain.out)
    assert done.code == 0, done.err
    frameworks = [r["framework"] for r in done.main("loader")]
    assert frameworks == ["wellfed.torch"] * 4 + ["wellfed"]
    steps = [sum(len(s["t0"]) for s in done.main("steps") if s["loader"] == n) for n in range(5)]
    assert steps == [4, 8, 8, 6, 8]
    assert sum(n for r in done.of("fetch") if r["loader"] == 0 for n in r["n"]) == 16
    assert len(done.of("role")) == 8
    for loader in (1, 2):
        assert sum(n for r in done.of("fetch") if r["loader"] == loader for n in r["n"]) == 32
        assert sum(len(r["bytes"]) for r in done.of("send") if r["loader"] == loader) == 8
        indices = {i for r in done.of("samples") if r["loader"] == loader for i in r["index"]}
        assert indices
        assert indices <= set(range(16))
    native = done.main("loader")[4]
    assert (native["class"], native["length"]) == ("wellfed.Loader", 4)
    assert [r["shapes"] for r in done.main("batch")][-1] == ["int64[5]"]
