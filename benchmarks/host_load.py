"""``load=busy``: how far the shares that it holds are from those that were set.

The host has to be idle: other work counts in the shares.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.files import scratch
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row
from benchmarks.wattload_run import Run

_distance = partial(Row, unit="of all", sense="at_most")


def comparisons(target: Path) -> Iterator[Comparison]:
    """Measure the shares of a load that runs before a workload of reads."""
    with scratch(target) as folder:
        options = ["workload=gpu_random_read", "loader=direct", "scale=demo"]
        run = Run([*options, "load=busy", "power=none", f"target.path={folder}"])
        yield Comparison(
            rows=(
                _distance(name="load alone, CPU share - target", figure="cpu", goal=0.02),
                _distance(name="load alone, memory share - target", figure="memory", goal=0.03),
            ),
            ways={"alone": partial(_distances, run)},
            notes=[run.shown()],
        )


def _distances(run: Run) -> Figures:
    """Return how far the shares were from their targets before the workload began."""
    found = {}
    for load in run.record().loads:
        for level in load.levels:
            pairs = {
                "cpu": (level.cpu_share, load.cpu_share_asked),
                "memory": (level.memory_share, load.memory_share_asked),
            }
            for name, (share, target) in pairs.items():
                if level.stretch == "alone" and share is not None and target is not None:
                    found[name] = abs(share - target)
    if not found:
        raise NotMeasuredError("the record has no shares of the load")
    return found
