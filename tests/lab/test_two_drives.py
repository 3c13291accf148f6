"""Three workloads on two virtual drives, in the guest of `make lab-example`: the example's runs.

The records come to ``two-drives`` in the lab's ``out``. What the runs say of the drives is judged
on the page that is made of them; the drives' figures are invented.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.connect import attach_virtual
from tests.lab.virtual_runs import (
    CHECK_FAILED,
    FINISHED,
    OUT,
    VIRTUAL,
    VirtualDrive,
    wattload,
)
from tests.lab.virtual_ssd.design import GEN4, GEN5
from wattload.core.record.file import RECORD_FILE, read_record

pytestmark = [
    pytest.mark.lab_example,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab-example`"),
]

PAIRS = 6
"""Six give a ratio its interval."""
RUNS = OUT / "two-drives"
DESIGNS = {"virtual-gen5": GEN5, "virtual-gen4": GEN4}
LABELS = 'label="Virtual Gen5","Virtual Gen4"'
METER = ("power.allow_system_drive=true", "power.period_s=0.25")
POWER = (
    *METER,
    "power.idle_s=2",
    "power.quiet_s=1",
    "power.rest_max_s=4",
    "power.idle_after_s=6",
)
WORKLOADS = {
    "unet3d": ("accelerator=unpaced", "workload.epochs=2"),
    "checkpoint": ("workload.checkpoint_count=2",),
    "dlrm": (
        "loader=native",
        "workload.row_count=150000",
        "workload.rounds=1",
        "workload.workers=1",
        "workload.block_bytes=1048576",
        "workload.sample_row_groups=1",
    ),
}
"""Phases of 5 to 10 s on the faster drive: there are 16 runs of each, and an emulated processor,
which would be dlrm's limit with pyarrow."""


@pytest.fixture(scope="module")
def drives(tmp_path_factory: pytest.TempPathFactory) -> tuple[VirtualDrive, ...]:
    """Both drives, connected and mounted, their interval power calibrated."""
    made = []
    for name, design in DESIGNS.items():
        folder = tmp_path_factory.mktemp(name)
        attach_virtual(folder, design)
        drive = VirtualDrive(serial=design.serial, folder=folder, mount_point=Path("/run", name))
        drive.mount()
        wattload("power", "calibrate", f"target.path={drive.mount_point}", *METER)
        made.append(drive)
    return tuple(made)


@pytest.mark.parametrize("name", WORKLOADS)
def test_runs_are_complete_and_in_turns(drives: tuple[VirtualDrive, ...], name: str) -> None:
    workload = (f"workload={name}", "scale=demo", *WORKLOADS[name])
    wattload(
        "run", "-m", *workload, *POWER, LABELS, f"runs={RUNS / name}",
        f"target.path={','.join(str(drive.mount_point) for drive in drives)}",
        "interleave=abba", f"repeat={PAIRS}", status=(FINISHED, CHECK_FAILED),
    )  # fmt: skip
    records = [read_record(path) for path in (RUNS / name).glob(f"*/{RECORD_FILE}")]
    counted = [record for record in records if not record.comparison.warm_up]
    assert [record.status for record in counted] == ["complete"] * (2 * PAIRS)
    assert sorted(record.label for record in counted) == (
        ["Virtual Gen4"] * PAIRS + ["Virtual Gen5"] * PAIRS
    )
