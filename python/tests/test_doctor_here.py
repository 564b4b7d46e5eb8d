"""`wellfed.doctor()`: the doctor within the program that it watches."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor_probe import run

pytest.importorskip("torch")

SCRIPT = """
    import json, os, sys, time
    import torch, wellfed
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, i):
            time.sleep(0.002)
            return i

    def main():
        before = DataLoader(Slow(), batch_size=4)
        list(before)
        environment, path = dict(os.environ), list(sys.path)
        with wellfed.doctor() as first:
            print(first)
            for batch in before:
                pass
            for batch in DataLoader(Slow(), batch_size=8, num_workers=2, multiprocessing_context=sys.argv[1]):
                pass
            print("WELLFED_DOCTOR_DIR" in os.environ)
            directory = os.environ["WELLFED_DOCTOR_DIR"]
        print(os.path.exists(directory), dict(os.environ) == environment, sys.path == path)
        list(before)
        try:
            with wellfed.doctor(quiet=True) as second:
                for batch in before:
                    raise KeyError(3)
        except KeyError as e:
            print("raised", e)
        first.save("first.json")
        first.save("first.html")
        second.save("second.json")
        print(repr(first) == first.text, "iframe" in first._repr_html_())

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_from_inside(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # torch sets it when its compiler is imported, which torchvision does, which the doctor asks about a loader.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    done = run(tmp_path, SCRIPT, method, probe=False)
    assert done.code == 0, done.err
    assert done.out.splitlines() == [
        "<wellfed.doctor(): nothing seen yet>",
        "True",
        "False True True",
        "raised 3",
        "True True",
    ]
    first = json.loads((tmp_path / "first.json").read_text())
    assert first["schema"] == "wellfed.doctor/1"
    assert [r["steps"] for r in first["loaders"]] == [10, 5]
    assert first["exit"]["reason"] == "finished"
    assert first["machine"]["cores"] > 0
    assert done.err.startswith("wellfed doctor")
    assert first["verdict"]["title"].split()[0] in done.err
    assert (tmp_path / "first.html").read_text().startswith("<!")
    second = json.loads((tmp_path / "second.json").read_text())
    assert [r["steps"] for r in second["loaders"]] == [1]
    assert (second["exit"]["reason"], second["exit"]["exception"]) == ("exception", "KeyError: 3")


def test_within_a_doctor(tmp_path: Path) -> None:
    script = """
    import torch, wellfed
    from torch.utils.data import DataLoader

    with wellfed.doctor() as diagnosis:
        for batch in DataLoader(torch.arange(8), batch_size=2):
            pass
    print(diagnosis, diagnosis.data)
    """
    done = run(tmp_path, script)
    assert (done.code, done.err, done.failures) == (0, "", "")
    assert done.out == "This process is under the doctor already: the report will be that one's. {}\n"
    assert sum(len(r["t0"]) for r in done.main("steps")) == 4


def test_notebooks_have_a_magic(tmp_path: Path) -> None:
    pytest.importorskip("IPython")
    script = """
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "wellfed")
    shell.run_cell("import torch; from torch.utils.data import DataLoader")
    found = shell.run_cell_magic("doctor", "", "for b in DataLoader(torch.arange(8), batch_size=2): last = b.tolist()")
    print(shell.user_ns["last"], [r["steps"] for r in found.data["loaders"]])
    """
    done = run(tmp_path, script, probe=False)
    assert done.code == 0, done.err
    assert done.out == "[6, 7] [4]\n"
