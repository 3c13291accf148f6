"""The long truth table of `make lab-truth`: loads, states and ways of updating, by source."""

from __future__ import annotations

import pytest

from tests.lab import truth_table
from tests.lab.truth_table import Line
from tests.lab.virtual_runs import CHECKPOINT, OUT, UNET3D, VIRTUAL, prepare, run
from wattload.core.power import Evidence

pytestmark = [
    pytest.mark.lab_truth,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-truth`"),
]

PACED = (*UNET3D, "accelerator=h100")
"""Reads with pauses for the emulated accelerator."""
SPACED = (*CHECKPOINT, "workload.shrink_bytes=30000000", "workload.checkpoint_count=12")
"""Checkpoints of some 5 s, each read back before the next."""
LONG = (*CHECKPOINT, "workload.shrink_bytes=170000000", "workload.checkpoint_count=12")
"""2 GB written: over 300 s in PS0, for log 25h."""
DLRM = (
    "workload=dlrm",
    "scale=demo",
    "loader=native",
    "workload.row_count=1000000",
    "workload.rounds=1",
    "workload.workers=1",
    "workload.block_bytes=1048576",
    "workload.sample_row_groups=1",
)
"""The host parses for seconds, the drive reads and writes in between."""

LOADS = {
    "unet3d": UNET3D,
    "unet3d paced": PACED,
    "checkpoint": CHECKPOINT,
    "checkpoint spaced": (*SPACED, "workload.keep=1"),
    "checkpoint long": (*LONG, "workload.keep=1"),
    "dlrm": DLRM,
}
CASES = [
    *((load, state, updates)
      for load in ("unet3d", "checkpoint")
      for state in (0, 1, 2)
      for updates in ("sliding", "tumbling")),
    *((load, 0, updates)
      for load in ("unet3d paced", "checkpoint spaced")
      for updates in ("sliding", "tumbling")),
    ("checkpoint long", 0, "sliding"),
    *(("dlrm", 0, updates) for updates in ("sliding", "tumbling")),
]  # fmt: skip

LIMITS = {"nvme_ipm": 0.005, "nvme_25h": 0.005}
"""The largest error of a source over a window of 10 s, five minutes for log 25h."""
UNRESOLVED, UNRESOLVED_MAX = [("checkpoint spaced", "tumbling")], 0.03
"""A mean of a second that is replaced once a second does not show what happens in pauses of a fifth
of one: their energy is held to its own uncertainty without the drive's gain, up to this."""
LONG_ENOUGH_S = {"nvme_ipm": truth_table.LONG_S, "nvme_25h": 300.0}


@pytest.fixture(scope="module")
def table() -> list[Line]:
    for workload in (UNET3D, DLRM):
        prepare(*workload)
    return []


@pytest.mark.parametrize(("load", "state", "updates"), CASES)
def test_sources_agree_with_the_truth(
    table: list[Line], load: str, state: int, updates: str
) -> None:
    ran = run(*LOADS[load], state=state, label=load.replace(" ", "-"), updates=updates)
    found = truth_table.lines(ran, updates, load=load)
    table += found
    # Written at every case, so that a guest that is ended leaves what it knows.
    truth_table.write(OUT / "truth-table-long.csv", table)
    assert ran.record.status == "complete"
    evidence = {each.source: each.evidence for each in ran.energies()}
    for line in found:
        if line.upper_j is not None and evidence[line.source] is Evidence.BOUNDS:
            assert (line.lower_j or 0.0) <= line.truth_j <= line.upper_j, line
        if line.tail_error_j is not None and line.tail_uncertainty_j is not None:
            assert abs(line.tail_error_j) <= line.tail_uncertainty_j, line
        if line.energy_j is not None and line.source == "nvme_ipm":
            allowed_j = line.without_gain_j + truth_table.edge_j(line)
            assert abs(line.energy_j - line.truth_j) <= allowed_j, line
        if line.seconds >= LONG_ENOUGH_S.get(line.source, float("inf")):
            limit = LIMITS[line.source]
            if (load, updates) in UNRESOLVED:
                limit = min(max(limit, line.without_gain_j / line.truth_j), UNRESOLVED_MAX)
            assert line.error == pytest.approx(0, abs=limit), line
