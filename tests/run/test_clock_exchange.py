"""How far hosts' clocks are apart, measured through MPI, with offsets injected in the clocks."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, environment, mpirun
from wattload.core.record.host import ClockOffset
from wattload.run.clocks import exchange
from wattload.run.ranks import LocalCommunicator

AHEAD_NS = 123_456_789_012_345
REPETITIONS = 100

PROGRAM = f"""
import json, time
from mpi4py import MPI
from wattload.run.clocks import exchange
from wattload.run.ranks import MpiCommunicator

leaders = MpiCommunicator(MPI.COMM_WORLD)
ahead_ns = leaders.rank * {AHEAD_NS}
clock = lambda: time.monotonic_ns() + ahead_ns
found = [exchange(leaders, clock) for _ in range({REPETITIONS})]
gathered = leaders.gather([each and each.model_dump() for each in found])
if leaders.rank == 0:
    print(json.dumps(gathered))
"""


@pytest.mark.slow
def test_the_stated_bound_holds(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    done = subprocess.run(
        [mpirun(), "-n", "2", sys.executable, "-c", PROGRAM],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=True,
    )
    root, leader = json.loads(done.stdout)
    assert root == [None] * REPETITIONS
    found = [ClockOffset(**each) for each in leader]
    assert len(found) == REPETITIONS
    for each in found:
        assert abs(each.offset_ns - AHEAD_NS) <= each.bound_ns
    worst = max(abs(each.offset_ns - AHEAD_NS) / each.bound_ns for each in found)
    largest_ns = max(each.bound_ns for each in found)
    record_property("worst_error_by_bound", worst)
    record_property("largest_bound_ns", largest_ns)
    print(f"largest error / bound {worst:.3f}, largest bound {largest_ns} ns")


def test_a_process_alone_and_one_that_is_no_leader_exchange_nothing() -> None:
    assert exchange(LocalCommunicator()) is None
    assert exchange(None) is None
