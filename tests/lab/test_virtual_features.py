"""Features of the virtual drive: what nvme-cli sets is what we read, and the reverse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.virtual_runs import (
    INTERVAL_POWER,
    VIRTUAL,
    controller,
    tell,
    wattload,
)
from wattload.power.nvme.admin import NvmeAdmin, fetch, log_command
from wattload.power.nvme.features import (
    POWER_MANAGEMENT,
    get_command,
    read_background_power,
    read_power_state,
    read_transitions,
    set_command,
)
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.measurement import POWER_MEASUREMENT, START, STOP

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

LIMIT_9_W = 900 | 2 << 16


@pytest.fixture
def admin() -> Iterator[NvmeAdmin]:
    opened = NvmeAdmin(controller())
    yield opened
    opened.close()


def set_by_nvme_cli(admin: NvmeAdmin, feature: int, value: int) -> None:
    tell(["nvme", "set-feature", f"/dev/{admin.name}", f"-f{feature:#x}", f"-v{value:#x}"])


def get_by_nvme_cli(admin: NvmeAdmin, feature: int) -> int:
    reported = tell(["nvme", "get-feature", f"/dev/{admin.name}", f"-f{feature:#x}"])
    return int(reported.splitlines()[0].rsplit(":", 1)[1], 16)


def log_by_nvme_cli(admin: NvmeAdmin, page: int, size_bytes: int) -> bytes:
    command = ["nvme", "get-log", f"/dev/{admin.name}", f"-i{page:#x}", f"-l{size_bytes}", "-b"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def test_the_drive_says_what_it_can(admin: NvmeAdmin) -> None:
    reported = identify_controller(admin)
    assert reported.capabilities.power_measurement
    assert reported.capabilities.power_limit
    assert reported.capabilities.thermal_management
    assert reported.capabilities.power_sample_interval_s == pytest.approx(0.001)


@pytest.mark.parametrize("state", [1, 2, 0])
def test_state_set_by_either_is_read_by_the_other(admin: NvmeAdmin, state: int) -> None:
    set_by_nvme_cli(admin, 0x02, state)
    assert read_power_state(admin) == state
    fetch(admin, set_command(POWER_MANAGEMENT, "state", value=0))
    assert get_by_nvme_cli(admin, 0x02) == 0


@pytest.mark.parametrize(
    ("feature", "value", "default"),
    [(0x10, 330 << 16 | 340, 0), (0x04, 341, 343), (0xC7, 12, 25), (0x23, LIMIT_9_W, 0)],
)
def test_value_set_by_nvme_cli_is_what_we_read(
    admin: NvmeAdmin, feature: int, value: int, default: int
) -> None:
    set_by_nvme_cli(admin, feature, value)
    reported = fetch(admin, get_command(feature)).result
    set_by_nvme_cli(admin, feature, default)
    assert reported == value
    assert get_by_nvme_cli(admin, feature) == default


def test_background_power_is_read_alike(admin: NvmeAdmin) -> None:
    for value in (1, 0):
        set_by_nvme_cli(admin, 0x11, value)
        assert read_background_power(admin) == bool(value)


def test_kernel_asks_for_no_transition_that_takes_too_long(admin: NvmeAdmin) -> None:
    assert read_transitions(admin).transitions == ()


def test_log_bytes_are_the_same_by_either(admin: NvmeAdmin) -> None:
    fetch(admin, set_command(POWER_MEASUREMENT, "start", value=START))
    fetch(admin, set_command(POWER_MEASUREMENT, "stop", value=STOP))
    for page, size_bytes in ((0x25, 64), (0x05, 4096), (0x00, 1024)):
        assert log_by_nvme_cli(admin, page, size_bytes) == (
            fetch(admin, log_command(page, size_bytes)).data
        )


def test_power_calibrate_measures_the_delay_of_interval_power(tmp_path: Path) -> None:
    """This drive takes its time also for blocks that were never written."""
    reported = wattload("power", "calibrate", controller(), "--json", state_folder=tmp_path)
    found = {each["source"]: each["sensor"] for each in map(json.loads, reported.splitlines())}
    sensor = found[INTERVAL_POWER]
    assert sensor["basis"] == "calibrated", sensor["reason"]
    assert sensor["tau_s"] == pytest.approx(0.5, abs=max(0.05, sensor["tau_uncertainty_s"]))
