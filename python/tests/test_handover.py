"""`Dataset.tf`, `.keras` and `.jax` with the real frameworks: the checks in `handover/`, each in its own process.

None of the frameworks can be forked after it was imported, which the tests beside this one would do. TensorFlow has an
environment of its own, as in `test_doctor_tensorflow`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import wellfed as wf

HERE = Path(__file__).parent / "handover"
HOME = Path(wf.__file__).parent.parent


def interpreter(package: str) -> str:
    """An interpreter that has the package, or skips."""
    if importlib.util.find_spec(package):
        return sys.executable
    other = os.environ.get("WELLFED_TENSORFLOW_PYTHON")
    if package == "tensorflow" and other:
        return other
    pytest.skip(
        f"NOT TESTED HERE: no {package}; WELLFED_TENSORFLOW_PYTHON may name an interpreter with TensorFlow"
    )


@pytest.mark.parametrize(
    ("package", "backend", "checks"),
    [
        (
            "tensorflow",
            "tensorflow",
            [
                "check_tensorflow.py",
                "check_sparse.py",
                "check_keras.py",
                "check_streams.py",
                "check_guide.py",
            ],
        ),
        (
            "jax",
            "jax",
            ["check_jax.py", "check_keras.py", "check_streams.py", "check_guide.py"],
        ),
        pytest.param("jax", "jax", ["check_jax_left.py"], id="jax_left"),
        ("keras", "torch", ["check_keras.py", "check_streams.py"]),
    ],
)
def test_checks(package: str, backend: str, checks: list[str]) -> None:
    python = interpreter(package)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (HOME, Path(__file__).parent))),
        "KERAS_BACKEND": backend,
        "WELLFED_MORE_PACKAGES": str(Path(torch.__file__).parents[1]),
    }
    command = [
        python,
        "-m",
        "pytest",
        "-c",
        str(HERE / "pytest.ini"),
        "-p",
        "no:cacheprovider",
        "-q",
        "--tb=short",
    ]
    done = subprocess.run(
        [*command, *(str(HERE / check) for check in checks)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout, done.stdout


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "keras", "jax"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
import numpy as np
import wellfed as wf

ds = wf.from_tensor_slices(np.arange(4)).batch(2)
assert not {"tensorflow", "keras", "jax"} & set(sys.modules)
for method in (ds.tf, ds.keras, ds.jax):
    try:
        method()
    except ModuleNotFoundError as e:
        print(e)
"""


def test_frameworks_are_asked_for_late_and_named_where_they_are_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env=os.environ | {"PYTHONPATH": str(HOME)},
        capture_output=True,
        text=True,
        check=True,
    )
    for name in ("TensorFlow", "Keras", "JAX"):
        assert f"needs {name}, which is not installed\nhint: install" in done.stdout


def test_columns_are_known_before_the_first_batch() -> None:
    """What loaders say of their columns against what they give."""
    random = np.random.default_rng(5)
    ragged = [random.integers(0, 9, (n, 2)) for n in (3, 0, 2, 5, 1)]
    values = {"r": ragged, "x": np.zeros((5, 3, 2), np.float16), "y": np.arange(5, dtype=np.uint16)}
    ds = wf.from_tensor_slices(values)
    loaders = [
        ds.ragged_batch(2),
        ds.padded_batch(2, lengths=True),
        ds.padded_batch(2, mask=True),
        ds.padded_batch(2, lengths=True, mask=True),
        ds.padded_batch(2, padded_shapes={"r": [6, None]}),
        ds.padded_batch(5, multiple_of=4),
        ds,
    ]
    for made in loaders:
        loader = made.numpy()
        assert isinstance(loader, wf.Loader)
        columns = loader._open().columns()
        assert [name for name, *_ in columns] == ["r", "x", "y"]
        for batch in loader:
            for name, kind, dtype, sides, lengths, mask in columns:
                value, count = batch[name], 0 if made is ds else 1
                if mask is not None:
                    assert value[-1].dtype == bool
                    assert value[-1].shape == (len(value[0]), value[0].shape[count + mask])
                if lengths or mask is not None:
                    value = value[0]
                if kind == "ragged":
                    assert isinstance(value, wf.Ragged)
                    value, count = value.values, 1
                assert str(value.dtype) == dtype
                assert len(value.shape) == count + len(sides)
                assert all(a in (None, b) for a, b in zip(sides, value.shape[count:]))
