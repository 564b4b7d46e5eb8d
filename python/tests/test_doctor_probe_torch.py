"""The doctor's probe in scripts that use torch's loaders: which records it writes, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor_probe import Run, run

pytest.importorskip("torch")

TRAIN = """
    import sys, time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Numbers(Dataset):
        def __init__(self):
            self.transform = torch.nn.Identity()

        def __len__(self):
            return 96

        def __getitem__(self, i):
            with open("sample.bin", "rb") as file:
                data = file.read()
            time.sleep(0.002)
            return torch.rand(8) + len(data), i

    def main():
        workers = int(sys.argv[1])
        context = sys.argv[2] if workers else None
        torch.manual_seed(1)
        loader = DataLoader(Numbers(), batch_size=8, shuffle=True, num_workers=workers,
                            multiprocessing_context=context)
        model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        optimizer = torch.optim.SGD(model.parameters(), 1e-5)
        for epoch in range(2):
            for x, i in loader:
                loss = model(x).square().mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                print(loss.item().hex(), i.tolist())

    if __name__ == "__main__":
        main()
"""


def check_main(done: Run, workers: int, method: str | None) -> None:
    """What the training process wrote."""
    assert done.failures == ""
    assert done.code == 0, done.err
    hello = done.main("hello")[0]
    assert done.processes[done.pid][0] == hello
    assert (hello["v"], hello["pid"], hello["gil"]) == (1, done.pid, True)
    assert hello["argv"][0].endswith("script.py")
    (loader,) = done.main("loader")
    assert loader["framework"] == "torch"
    assert loader["class"] == "torch.utils.data.dataloader.DataLoader"
    assert (loader["dataset"], loader["transform"]) == ("Numbers", "Identity()")
    assert (loader["length"], loader["samples"], loader["batch_size"]) == (12, 96, 8)
    assert (loader["num_workers"], loader["multiprocessing_context"]) == (workers, method)
    assert loader["iterable"] is False
    assert loader["place"]["file"].endswith("script.py")
    assert "loader = DataLoader(Numbers()" in loader["place"]["code"] or loader["place"]["code"].startswith(
        "DataLoader(Numbers()"
    )
    assert [r["iter"] for r in done.main("iter")] == [0, 1]
    assert [r["iter"] for r in done.main("end")] == [0, 1]
    for iterator in (0, 1):
        records = [r for r in done.main("steps") if r["iter"] == iterator]
        assert [n for r in records for n in range(r["first"], r["first"] + len(r["t0"]))] == list(range(12))
        times = [t for r in records for pair in zip(r["t0"], r["t1"]) for t in pair]
        assert times == sorted(times)
        for first, second in (("c0", "c1"), ("p0", "p1")):
            clock = [c for r in records for pair in zip(r[first], r[second]) for c in pair]
            assert clock == sorted(clock)
            assert len(clock) == 24
        assert all(len(r["unpickle"]) == len(r["t0"]) for r in records)
    (batch,) = done.main("batch")
    assert batch["shapes"] == ["float32[8, 8]", "int64[8]"]
    assert (batch["tensors"], batch["bytes"], batch["pinned"]) == (2, 8 * 8 * 4 + 8 * 8, False)
    (model,) = done.main("model")
    assert model == {
        "k": "model",
        "module_calls": 4,
        "repeats": 1,
        "autocast": False,
        "parameters": 8 * 4 + 4 + 4 + 1,
        "optimizer": "torch.optim.sgd.SGD",
        "device": "cpu",
        "dtype": "float32",
    }
    assert "torch" in {r["name"] for r in done.main("module")}
    (end,) = done.main("exit")
    assert (end["reason"], end["exception"]) == ("finished", None)


def check_batches(done: Run, unseen: int) -> None:
    """What the process or the processes that made batches wrote; of so many batches the files were not counted yet."""
    # Measuring samples has a price, so that not all need be there; the first ones are.
    seen = done.column("samples", "index")
    assert len(seen) >= 8
    assert set(seen) <= set(range(96))
    assert sum(done.column("fetch", "n")) == 192
    opened = done.column("fetch", "opens")
    assert opened[:unseen] == [0] * unseen
    assert opened[unseen:] == done.column("fetch", "n")[unseen:]
    for record in done.of("fetch"):
        assert all(a < b for a, b in zip(record["t0"], record["t1"]))
        assert all(0 < c <= t1 - t0 for c, t0, t1 in zip(record["collate"], record["t0"], record["t1"]))
        assert record["every"] == 1
    assert set(done.column("samples", "opens")[8 * unseen :]) <= {1}
    for record in done.of("samples"):
        assert min(record["wall"]) > 0
        assert min(record["cpu"]) > 0
    for record in done.of("fetch"):
        asked = record.get("exact", range(len(record["n"])))
        assert min((record["bytes"][i] for i in asked), default=8000) >= 8000
        assert sum(record["bytes"]) == sum(record["bytes"][i] for i in asked)
    assert sum(r["opens"] for r in done.of("files")) == 192 - 8 * unseen
    assert {Path(p).name for p in done.column("files", "paths")} == {"sample.bin"}
    assert set(done.column("files", "sizes")) == {1000}


LISTENING = """
import sys
import torch
from torch.utils.data import DataLoader, Dataset

add, hooks = sys.addaudithook, []
sys.addaudithook = lambda hook: (hooks.append(hook), add(hook))

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        if sys.argv[1] == "files":
            open("sample.bin", "rb").read()
        return torch.tensor(i)

for batch in DataLoader(Numbers(), 8, num_workers=int(sys.argv[2])):
    pass
print(len(hooks))
"""


@pytest.mark.parametrize(("reads", "workers", "hooks"), [("memory", 0, 0), ("files", 0, 1), ("files", 1, 0)])
def test_events_are_listened_to_where_files_are_read(
    tmp_path: Path, reads: str, workers: int, hooks: int
) -> None:
    # The hook of every process costs whatever else it does, and cannot be taken away.
    (tmp_path / "sample.bin").write_bytes(bytes(1000))
    done = run(tmp_path, LISTENING, reads, str(workers))
    assert done.out.split() == [str(hooks)]


@pytest.mark.parametrize("method", ["inline", "fork", "spawn", "forkserver"])
def test_training(tmp_path: Path, method: str) -> None:
    (tmp_path / "sample.bin").write_bytes(bytes(1000))
    arguments = ("0",) if method == "inline" else ("2", method)
    done = run(tmp_path, TRAIN, *arguments)
    check_main(done, len(arguments) and int(arguments[0]), None if method == "inline" else method)
    check_batches(done, 2 if method == "inline" else 0)
    if method == "inline":
        assert {r["worker"] for r in done.of("fetch")} == {-1}
        assert done.of("role") == []
        makers = {done.pid}
    else:
        assert sorted(r["worker"] for r in done.of("role")) == [0, 0, 1, 1]
        assert {r["num_workers"] for r in done.of("role")} == {2}
        assert {r["loader"] for r in done.of("fetch") + done.of("send") + done.of("samples")} == {0}
        makers = {pid for pid, records in done.processes.items() if any(r["k"] == "role" for r in records)}
        assert len(makers) == 4
        assert done.pid not in makers
        assert len(done.column("send", "bytes")) >= 24
        assert min(done.column("send", "bytes")) > 0
    assert any(any(f.endswith("Numbers.__getitem__") for f in frames) for frames, _ in done.stacks())
    gil = [r for pid in makers for r in done.of("gil", pid)]
    assert sum(r["n"] for r in gil) > 0
    # Frames are those of the script: none of ours.
    files = {f["file"] for r in done.of("frames") for f in r["rows"]}
    assert not any("wellfed_probe" in file for file in files)
    if method in ("inline", "fork"):
        plain = run(tmp_path, TRAIN, *arguments, probe=False)
        assert plain.out == done.out
        assert plain.err == done.err
        assert plain.processes == {}
