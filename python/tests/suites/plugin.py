"""A plugin of pytest for `run.py`: switches `wellfed.accelerate` on, and writes what became of each test."""

from __future__ import annotations

import json
import os
from typing import Any

ORDER = ["passed", "skipped", "failed", "error"]
"""From good to bad: of the parts of a test the worst counts."""

outcomes: dict[str, str] = {}


def pytest_configure(config: Any) -> None:
    """Before anything is collected, as a test module may open images when it is imported."""
    if os.environ.get("WELLFED_SUITE_ACCELERATE") == "1":
        import wellfed

        assert wellfed.accelerate().active


def pytest_runtest_logreport(report: Any) -> None:
    outcome = report.outcome
    if outcome == "failed" and report.when != "call":
        outcome = "error"
    before = outcomes.get(report.nodeid, "passed")
    outcomes[report.nodeid] = max(before, outcome, key=ORDER.index)


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        outcomes[report.nodeid] = "error"


def pytest_sessionfinish(session: Any) -> None:
    with open(os.environ["WELLFED_SUITE_OUTCOMES"], "w") as file:
        json.dump(outcomes, file)
