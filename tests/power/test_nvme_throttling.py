"""OCP's account of throttling in a controller's state, before and after a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.power.model_drive import Model, ModelDrive, store
from tests.power.model_power import Meter, ocp_bytes
from wattload.power.nvme.state import read_state, unreadable_state


@pytest.mark.parametrize(("events", "status"), [(0, 0), (5, 1)])
def test_events_and_status_are_read(tmp_path: Path, events: int, status: int) -> None:
    log = bytearray(ocp_bytes(Meter()))
    log[96], log[97] = events, status
    meter = Meter(pages={str(0xC0): log.hex()})
    store(tmp_path / "nvme0.json", Model(meter=meter))
    fields, missing = read_state(ModelDrive(tmp_path, "nvme0"))
    assert (fields["throttle_events"], fields["throttle_status"]) == (events, status)
    assert not {"throttle_events", "throttle_status"} & set(missing)


def test_drive_without_ocp_s_log_says_why(tmp_path: Path) -> None:
    store(tmp_path / "nvme0.json", Model())
    fields, missing = read_state(ModelDrive(tmp_path, "nvme0"))
    assert "throttle_events" not in fields
    assert "Invalid Log Page" in missing["throttle_events"]
    _, unread = unreadable_state("it is closed")
    assert unread["throttle_status"] == "it is closed"
