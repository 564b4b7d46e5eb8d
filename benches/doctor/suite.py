"""The planted cases: what each is, which answers are right, and how the gain of its fix is measured.

Invariant: what is right is written here and nowhere else; the scripts know nothing of the doctor, and the doctor
nothing of the scripts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FAMILIES = {
    "serial-loading": "loading",
    "collate": "cpu",
    "decode": "cpu",
    "augment": "cpu",
    "decompress": "cpu",
    "python-overhead": "cpu",
    "gil-contention": "cpu",
    "ipc": "cpu",
    "worker-restart": "loop",
    "long-tail": "loop",
    "storage-latency": "storage",
    "storage-bandwidth": "storage",
    "small-files": "storage",
    "network": "storage",
    "network-latency": "storage",
    "network-bandwidth": "storage",
    "network-throttled": "storage",
    "page-cache-thrash": "memory",
    "memory-limit": "memory",
    "page-faults": "memory",
    "garbage-collection": "cpu",
    "cpu-oversubscription": "contention",
    "noisy-neighbour": "contention",
    "h2d-copy": "loop",
    "launch-bound": "loop",
    "sync-logging": "loop",
    "compute-bound": "compute",
    "healthy": "healthy",
}
"""The verdicts, and the families of report.rs."""

FINE = frozenset({"healthy", "compute-bound"})
"""Nothing of the input is to be fixed."""

WORTH = 1.05
"""A gain below this is none: neither a fix that is asked for, nor a promise."""


@dataclass(frozen=True)
class Case:
    """One script."""

    number: str
    """As in the list of planted causes; h1, … and th are healthy controls, t1, … those on TensorFlow."""
    script: str
    accepted: tuple[str, ...]
    """Verdicts that are right; the first is the planted cause."""
    families: tuple[str, ...] = ()
    """Families that are right besides those of the accepted verdicts."""
    fixes: dict[str, str] = field(default_factory=lambda: {"": "yes"})
    """Value of `--fixed` for a verdict; "" is for any other. Empty: there is nothing to fix, so the true gain is 1."""
    runner_up: bool = False
    """Two causes are planted: one is the verdict, the other must be the runner-up."""
    seconds: float = 4.0
    """Time to train."""
    slow_seconds: float = 0.0
    """Time to train for every third seed (2, 5, …), if it differs."""
    warm: bool = False
    """Whether the data is read once before each run, so that all runs find the same in the page cache."""
    rounds: int = 1
    """How often the true gain is measured, with and without the fix in turns; the median counts."""
    needs: str = "torch"
    """Interpreter: `torch` or `tensorflow`."""

    @property
    def control(self) -> bool:
        """Whether it is a healthy control: a promise of a gain is a false alarm."""
        return "h" in self.number

    def time(self, seed: int) -> float:
        """How long to train: twice as long near the threshold, where two runs must tell a few percent apart."""
        # Which seeds those are, and which start workers by spawn, is drawn in planted/common.py and worker_restart.py.
        seconds = self.slow_seconds if self.slow_seconds and seed % 3 == 2 else self.seconds
        return 2 * seconds if seed % 5 == 4 else seconds

    def right(self, verdict: str, actual: float | None, named: float | None = None) -> bool:
        """Whether a verdict is right; where the fix gains less than 5 %, to see nothing is right, too.

        `actual` is the measured gain of the planted cause's fix, `named` of the fix that was named instead: if that
        gains 5 %, and as much as the planted one, another cause outweighs the planted one on this machine.
        """
        if verdict in self.accepted:
            return True
        if named is not None and not self.control and named >= max(WORTH, actual or 1.0):
            return True
        return actual is not None and actual < WORTH and verdict in FINE

    def right_family(
        self, verdict: str, family: str, actual: float | None, named: float | None = None
    ) -> bool:
        """Whether at least the family is right."""
        right = {FAMILIES[a] for a in self.accepted} | set(self.families)
        return self.right(verdict, actual, named) or family in right or FAMILIES.get(verdict) in right


NOTHING: dict[str, str] = {}

CASES = [
    Case("1", "serial_loading", ("serial-loading",)),
    Case("2", "saturated_decode", ("decode",)),
    Case("3", "heavy_augment", ("augment", "python-overhead")),
    Case("4", "decompression", ("decompress",)),
    Case("5", "storage_latency", ("storage-latency",)),
    Case("6", "storage_bandwidth", ("storage-bandwidth",)),
    Case("7", "network", ("network-bandwidth", "network")),
    Case("8", "small_files", ("small-files",), warm=True),
    Case("9", "memory_limit", ("page-cache-thrash", "memory-limit"), seconds=10.0),
    Case("10", "blas_threads", ("cpu-oversubscription",), seconds=6.0),
    Case("11", "worker_restart", ("worker-restart",), ("loading",), seconds=5.0, slow_seconds=45.0),
    Case("12", "many_tensors", ("collate", "ipc")),
    Case("13", "slow_sample", ("long-tail",), ("loading",), seconds=6.0),
    Case("14", "blocking_copy", ("h2d-copy",)),
    Case("15", "launch_bound", ("launch-bound",)),
    Case("16", "sync_logging", ("sync-logging",)),
    Case("17", "compute_bound", ("compute-bound",), ("healthy",), NOTHING),
    Case("18", "busy_neighbour", ("noisy-neighbour",), seconds=8.0),
    Case(
        "19",
        "two_stalls",
        # Files of 3 KB that are each waited for are small files, too: packed, nothing is waited for.
        ("storage-latency", "small-files", "augment", "python-overhead"),
        fixes={
            "storage-latency": "read",
            "small-files": "read",
            "augment": "augment",
            "python-overhead": "augment",
        },
        runner_up=True,
    ),
    Case("20", "network_latency", ("network-latency",), seconds=6.0),
    Case("21", "network_throttled", ("network-throttled",), seconds=6.0),
    Case("22", "store_connections", ("network-latency",), seconds=6.0),
    Case("23", "garbage", ("garbage-collection",)),
    Case("24", "page_faults", ("page-faults",)),
    Case("h1", "healthy_wait", ("healthy", "compute-bound"), (), NOTHING),
    Case("h2", "healthy_first_epoch", ("healthy", "compute-bound"), (), NOTHING, seconds=6.0),
    Case("h3", "healthy_trivial", ("healthy", "compute-bound"), (), NOTHING),
    Case("h4", "healthy_half_busy", ("healthy", "compute-bound"), (), NOTHING),
    # tf.data chooses its own number of calls, and one and the same script may differ by a third from run to run.
    Case("t1", "tf_serial_loading", ("serial-loading",), rounds=3, needs="tensorflow"),
    Case("t2", "tf_saturated_decode", ("decode",), rounds=3, needs="tensorflow"),
    Case("t5", "tf_storage_latency", ("storage-latency",), needs="tensorflow"),
    Case("t17", "tf_compute_bound", ("compute-bound",), ("healthy",), NOTHING, needs="tensorflow"),
    Case("th", "tf_healthy", ("healthy", "compute-bound"), (), NOTHING, seconds=6.0, needs="tensorflow"),
]


def chosen(names: str) -> list[Case]:
    """Cases by number or script, separated by commas; `all`, `healthy`, `tensorflow`."""
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    groups = {
        "all": lambda case: True,
        "healthy": lambda case: case.control,
        "tensorflow": lambda case: case.needs == "tensorflow",
    }
    known = {*groups, *(c.number for c in CASES), *(c.script for c in CASES)}
    if unknown := wanted - known:
        raise SystemExit(f"no such case: {', '.join(sorted(unknown))}\nhint: {', '.join(sorted(known))}")
    return [
        case
        for case in CASES
        if {case.number, case.script} & wanted or any(groups[g](case) for g in wanted if g in groups)
    ]
