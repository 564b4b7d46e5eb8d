"""Statements that trials leave out."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import wellfed

INJECT = Path(wellfed.__file__).parent / "_doctor" / "inject"

TEXT = """\
def make(index):
    tokens = tokenize(index)
    return tokens


def train(loader, rows):
    for x in loader:
        loss = [model(one) for one in x]
        loss.backward()
        rows.append(loss.item())
        log(
            loss,
        )
"""


@pytest.fixture
def probe(monkeypatch):
    monkeypatch.syspath_prepend(str(INJECT))
    for name in [name for name in sys.modules if name.startswith("wellfed_probe")]:
        monkeypatch.delitem(sys.modules, name)
    from wellfed_probe import edits_left, kept

    return edits_left, kept


def forms(edits_left, text):
    source = sys.modules["wellfed_probe.source"].Source(text)
    return {(e["kind"], e["line"]): e["hunks"] for e in edits_left.left_out(source)}


def changed(text, hunks):
    lines = text.split("\n")
    for hunk in hunks:
        old = hunk["code"].split("\n")
        assert lines[hunk["line"] - 1 : hunk["line"] - 1 + len(old)] == old
        lines[hunk["line"] - 1 : hunk["line"] - 1 + len(old)] = hunk["change"].split("\n")
    return "\n".join(lines)


def test_statements_are_left_out_and_lines_keep_their_numbers(probe):
    edits, _ = probe
    found = forms(edits, TEXT)
    assert set(found) == {("keep", 2), ("keep", 8), ("first", 8), ("keep", 10), ("skip", 11)}
    for hunks in found.values():
        text = changed(TEXT, hunks)
        compile(text, "train.py", "exec")
        assert text.count("\n") == TEXT.count("\n")


STEPS = """\
@jax.jit
def update(params, x):
    return params - gradients(params, x)


class Model:
    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return normalize(x)


def train(loader, params):
    compiled = torch.compile(model)
    for x in loader:
        params = update(params, x)
        loss = compiled(x)
        train_step(x)
        grads = tape.gradient(loss, params)
        table = describe(x)
        log_step(table)
"""


def test_steps_of_training_and_layers_are_not_left_out(probe):
    edits, _ = probe
    found = forms(edits, STEPS)
    left = {line for kind, line in found if line > 14}
    assert left == {20, 21}
    assert all(kind != "first" for kind, _ in found)


def test_a_value_is_kept_by_the_shape_of_what_it_is_made_from(probe):
    edits, kept = probe
    calls = []
    names = {"tokenize": lambda index: calls.append(index) or [index]}
    exec(compile(changed(TEXT, forms(edits, TEXT)["keep", 2]), "train.py", "exec"), names)
    made = [names["make"](index) for index in range(20)]
    assert len(calls) == kept.EACH
    assert {tuple(one) for one in made} == {(index,) for index in range(kept.EACH)}
    made[-1].append(1)  # Whoever changes what they got changes no other's.
    assert all(len(names["make"](0)) == 1 for _ in range(kept.EACH))
    names["make"]("of another type")
    assert len(calls) == kept.EACH + 1


def test_what_is_used_up_is_made_anew_and_loops_have_one_turn(probe):
    _, kept = probe
    assert [list(kept.kept(-1, lambda: iter([1, 2]))) for _ in range(9)] == [[1, 2]] * 9
    assert list(kept.first([3, 4])) == [3]
