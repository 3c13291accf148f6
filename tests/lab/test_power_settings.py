"""Power settings and a sweep over power states, by the commands that users type."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.virtual_runs import (
    CHECK_FAILED,
    FINISHED,
    ROOT,
    SERIAL,
    VIRTUAL,
    controller,
    mount,
    tell,
    wattload,
)
from wattload.core.record.energy import PowerStateRecord
from wattload.core.record.file import RECORD_FILE, read_record
from wattload.core.record.run import RunRecord
from wattload.reports.stats.subject import ARMS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]

ALLOW = "power.allow_system_drive=true"
QUICK = ("workload=null", "scale=demo", ALLOW, "power.idle_s=0", "power.rest_max_s=0")
LIMIT_12_W = 1200 | 2 << 16
REFUSED = 2


@pytest.fixture
def name() -> Iterator[str]:
    name = controller()
    yield name
    wattload("power", "restore", name)
    assert (feature(name, 0x02), feature(name, 0x23)) == (0, 0)


def feature(name: str, identifier: int) -> int:
    """Return the current value of a feature as nvme-cli tells it."""
    reported = tell(["nvme", "get-feature", f"/dev/{name}", f"-f{identifier:#x}"])
    return int(reported.splitlines()[0].rsplit(":", 1)[1], 16)


def drive_of(record: RunRecord) -> PowerStateRecord:
    (state,) = [each for each in record.power.states if each.serial == SERIAL]
    return state


def test_limit_is_set_by_hand_and_put_back(name: str) -> None:
    reported = wattload("power", "set", name, "--limit", "12", "--allow-system-drive")
    assert "power limit none -> 12 W, verified" in reported
    assert feature(name, 0x23) == LIMIT_12_W
    assert "12 W" in wattload("power", "states", name)
    assert "restored to power limit none" in wattload("power", "restore", name)
    assert feature(name, 0x23) == 0


def test_limit_that_leaves_no_state_is_refused_by_the_drive(name: str) -> None:
    wattload("power", "set", name, "--limit", "0.5", "--allow-system-drive", status=(REFUSED,))
    assert feature(name, 0x23) == 0


def test_watts_of_a_drive_that_does_not_list_ocp_are_refused(name: str) -> None:
    before = feature(name, 0xC7)
    wattload("power", "set", name, "--watts", "12", "--allow-system-drive", status=(REFUSED,))
    assert feature(name, 0xC7) == before


def test_run_under_a_limit_records_it_and_puts_it_back(name: str, tmp_path: Path) -> None:
    wattload(
        "run", *QUICK, "power.limit_w=12", "power.set_timestamp=true",
        f"target.path={mount()}", f"runs={tmp_path}", status=(FINISHED, CHECK_FAILED),
    )  # fmt: skip
    (run,) = tmp_path.glob("*/" + RECORD_FILE)
    state = drive_of(read_record(run))
    limit, clock = state.settings
    assert (state.knob, limit.verified, limit.after) == ("power.limit_w", 12.0, 12.0)
    assert limit.restored is None
    assert clock.option == "power.set_timestamp"
    assert feature(name, 0x23) == 0


@pytest.mark.usefixtures("name")
def test_states_are_swept_in_turns_and_compared(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    command = (
        "run", "-m", *QUICK, "power.state=1,0", f"target.path={mount()}", f"runs={runs}",
    )  # fmt: skip
    wattload(*command, status=(FINISHED, CHECK_FAILED))
    records = [read_record(each) for each in sorted(runs.glob("*/" + RECORD_FILE))]
    records.sort(key=lambda record: record.comparison.order)
    assert [each.label for each in records] == ["PS1", "PS0"]
    states = [drive_of(record) for record in records]
    assert [each.verified for each in states] == [each.after for each in states] == [1, 0]
    assert {each.restored for each in states} == {0}
    assert [ARMS["power_state"](each) for each in records] == ["PS1", "PS0"]


def test_killed_run_s_limit_is_put_back_by_its_sampler(name: str, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "wattload", "run", *QUICK[:3], "power.limit_w=12",
            "power.idle_s=600", f"target.path={mount()}", f"runs={tmp_path}",
        ],
        cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            wait_for(lambda: feature(name, 0x23) == LIMIT_12_W)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    wait_for(lambda: list(tmp_path.glob("*/" + RECORD_FILE)) != [])
    assert feature(name, 0x23) == 0
    (run,) = tmp_path.glob("*/" + RECORD_FILE)
    assert json.loads(run.read_text(encoding="utf-8"))["status"] == "aborted"


def test_state_set_by_hand_during_a_run_is_left_until_it_is_accepted(
    name: str, tmp_path: Path
) -> None:
    process = subprocess.Popen(
        [
            sys.executable, "-m", "wattload", "run", *QUICK[:3], "power.state=1",
            "power.idle_s=600", f"target.path={mount()}", f"runs={tmp_path}",
        ],
        cwd=ROOT,
    )  # fmt: skip
    with process:
        try:
            wait_for(lambda: feature(name, 0x02) == 1)
            tell(["nvme", "set-feature", f"/dev/{name}", "-f2", "-v2"])
        finally:
            process.send_signal(signal.SIGINT)
    assert feature(name, 0x02) == 2
    reported = wattload("power", "restore", name, status=(1,))
    assert "left at power state 2, which something else has set since" in reported
    assert "the present power state 2 is kept" in wattload("power", "restore", name, "--keep")
    tell(["nvme", "set-feature", f"/dev/{name}", "-f2", "-v0"])


def wait_for(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; an emulated processor takes its time."""
    deadline_s = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline_s, "nothing came of it"
        time.sleep(0.2)
