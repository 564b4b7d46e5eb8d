"""A plugin of pytest for `run.py`: does to the tests what the suite says, and writes what became of each of them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

ORDER = ["passed", "skipped", "failed", "error"]
"""From good to bad: of the parts of a test the worst counts."""

SUITE = os.environ["WELLFED_SUITE"]
WITH = os.environ["WELLFED_SUITE_WITH"] == "1"

outcomes: dict[str, str] = {}
reasons: dict[str, str] = {}
"""Of tests of tf.data that the shim skipped, why."""


def pytest_configure(config: Any) -> None:
    """Before anything is collected, as a test module may open images when it is imported."""
    if SUITE.startswith("tfdata"):
        # Python steps need torch, which may lie in another environment.
        sys.path += filter(None, [os.environ.get("WELLFED_SUITE_PACKAGES")])
        from absl import flags

        flags.FLAGS(sys.argv[:1])
        if WITH and SUITE == "tfdata-feed":
            import tfdata_feed

            tfdata_feed.install()
    elif WITH:
        import wellfed

        assert wellfed.accelerate().active


def pytest_collection_modifyitems(items: list[Any]) -> None:
    if not SUITE.startswith("tfdata"):
        return
    for item in items:
        if "_mode_graph" in item.name:
            item.add_marker(pytest.mark.skip(reason="graphs without eager mode"))
        if any(name in item.nodeid for name in ("PrefetchTest::testPrefetching", "MapTest::testPrefetch_")):
            # They would wait forever for calls that are counted.
            item.add_marker(pytest.mark.skip(reason="how much is made ahead"))
    if WITH and SUITE == "tfdata-verbs":
        import tfdata_verbs

        for module in {item.module for item in items}:
            tfdata_verbs.put_in(module)


def pytest_runtest_setup(item: Any) -> None:
    if SUITE == "tfdata-verbs" and WITH:
        import tfdata_verbs

        tfdata_verbs.notes.clear()
        tfdata_verbs.touched.clear()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: Any, call: Any) -> Iterator[None]:
    """A test that failed, or was skipped, for want of what wellfed does not have is skipped for that reason."""
    report = yield
    if SUITE == "tfdata-verbs" and WITH and call.when == "call":
        import tfdata_verbs

        reason = tfdata_verbs.notes[0] if tfdata_verbs.notes else ""
        if call.excinfo is not None and "tfdata_verbs.Verbs" in str(call.excinfo.value):
            reason = reason or "TensorFlow's own operations on a data set of wellfed's"
        if report.passed:
            # What is refused, and was to be, is as good as what is made.
            made = tfdata_verbs.touched or reason.startswith("refused")
            reason = "" if made else reason or "makes no data set of wellfed's"
        elif report.skipped and not reason:
            reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if reason:
            report.outcome, report.longrepr = "skipped", (str(item.path), 0, f"Skipped: {reason}")
            reasons[item.nodeid] = reason
    return report


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
    feed = sys.modules.get("tfdata_feed")
    fed = {} if feed is None else dict(feed.outcomes)
    with open(os.environ["WELLFED_SUITE_OUTCOMES"], "w") as file:
        json.dump({"outcomes": outcomes, "reasons": reasons, "fed": fed}, file)
