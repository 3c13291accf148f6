"""The time of the suite itself: to print its help, and for a run of nothing."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.child import output
from benchmarks.measure import Comparison, Figures, Row

WATTLOAD = (sys.executable, "-m", "wattload")

_seconds = partial(Row, figure="seconds", unit="s", sense="at_most")


def comparisons(target: Path) -> Iterator[Comparison]:
    """Measure ``--help`` and a run of ``workload=null``, each from start to end of its process."""
    yield Comparison(
        rows=(_seconds(name="wattload --help", goal=0.3),),
        ways={"help": partial(timed, [*WATTLOAD, "--help"])},
        warm=True,
    )
    with tempfile.TemporaryDirectory() as runs:
        options = ["workload=null", "power=none", f"target.path={target}", f"runs={runs}"]
        yield Comparison(
            rows=(_seconds(name="null run, power=none", goal=2.0),),
            ways={"null run": partial(timed, [*WATTLOAD, "run", *options])},
            warm=True,
        )


def timed(command: Sequence[str]) -> Figures:
    """Return the wall time of a command."""
    start_s = time.monotonic()
    output(command)
    return {"seconds": time.monotonic() - start_s}
