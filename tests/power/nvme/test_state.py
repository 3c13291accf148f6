"""OCP's account of throttling in a controller's state, before and after a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.model_host import packing
from tests.model_host.drive import FIVE_STATES, Model, ModelDrive, store
from tests.model_host.power import Meter, ocp_bytes
from tests.power.nvme.admin import Answers
from wattload.core.errors import PowerError
from wattload.core.record.target import ControllerState
from wattload.power.nvme.identify import decode_controller, decode_power_state
from wattload.power.nvme.state import (
    read_state,
    unreadable_state,
)

BY_SYSFS = (
    "pm_qos_latency_us", "aspm", "link_speed_gt_per_s", "link_width", "max_payload_bytes",
    "max_read_request_bytes", "aer_counts",
)  # fmt: skip


def read(folder: Path, model: Model) -> tuple[dict[str, Any], dict[str, str]]:
    store(folder / "nvme0.json", model)
    device = ModelDrive(folder, "nvme0")
    try:
        return read_state(device)
    finally:
        device.close()


def as_record(fields: dict[str, Any], missing: dict[str, str]) -> ControllerState:
    elsewhere = dict.fromkeys(BY_SYSFS, "read from sysfs")
    return ControllerState(
        **fields,
        **dict.fromkeys((*missing, *BY_SYSFS)),
        missing={**missing, **elsewhere},
    )


def test_every_admin_field_has_a_value_or_a_reason(tmp_path: Path) -> None:
    state = as_record(*read(tmp_path, Model(apst=True, ocp=True, saveable=True, state=2)))
    assert state.firmware == "1.0"
    assert state.firmware_slot == 2
    assert state.lba_bytes == 512
    assert state.namespace_size_bytes == 1 << 30
    assert state.namespace_used_bytes == 1 << 29
    assert state.capacity_bytes == 1 << 30
    assert state.unallocated_bytes == 0
    assert state.volatile_write_cache is True
    assert (state.power_state, state.power_state_default, state.power_state_saved) == (2, 0, 0)
    assert state.apst_enabled is True
    assert state.apst_table == ("from PS2 to PS3 after 0.2 s idle",)
    assert state.media_written_bytes == 123_456_789
    assert state.smart is not None
    assert state.smart.temperature_k == 310
    not_reported = {
        "lifetime_energy_wh",
        "interval_power_w",
        "interval_power_step_w",
        "interval_power_type",
    }
    assert state.smart.missing == dict.fromkeys(not_reported, "the drive reports 0")
    assert state.smart.sensors_k == (None,) * 8
    assert state.missing["thermal_light_k"] == "the drive has no host controlled thermal management"
    assert state.missing["background_power"] == "the drive has no permissive mode"


def test_poor_drive_says_why_it_has_no_more(tmp_path: Path) -> None:
    state = as_record(*read(tmp_path, Model(selects=False, temperature_k=0)))
    assert state.apst_enabled is False
    assert state.missing["apst_table"] == "the drive has no autonomous transitions"
    assert state.missing["power_state_default"].startswith("the drive reports only the current")
    assert "neither the OCP log C0h nor endurance groups" in state.missing["media_written_bytes"]
    assert state.smart is not None
    assert state.smart.missing["temperature_k"] == "the drive reports 0"


def test_without_permission_identify_still_answers(tmp_path: Path) -> None:
    state = as_record(*read(tmp_path, Model(privileged=False, apst=True)))
    assert state.namespace_size_bytes == 1 << 30
    assert "CAP_SYS_ADMIN" in state.missing["power_state"]
    assert "CAP_SYS_ADMIN" in state.missing["apst_enabled"]
    assert "CAP_SYS_ADMIN" in state.missing["smart"]


def test_drive_that_is_not_there_has_a_reason_for_everything(tmp_path: Path) -> None:
    with pytest.raises(PowerError) as caught:
        ModelDrive(tmp_path, "nvme0")
    fields, missing = unreadable_state(str(caught.value))
    assert fields == {}
    assert set(as_record({}, missing).missing.values()) == {
        "read from sysfs",
        "/dev/nvme0 can't be opened (No such file or directory)",
    }


def test_drive_that_does_not_identify_itself_has_a_reason_for_everything(tmp_path: Path) -> None:
    fields, missing = read(tmp_path, Model(failing=(0x06,)))
    assert fields == {}
    assert "Internal Error" in missing["smart"]


def test_namespaces_add_up_and_may_differ_in_block_size(tmp_path: Path) -> None:
    fields, missing = read(tmp_path, Model(namespaces=(9, 12)))
    assert fields["namespace_size_bytes"] == 2 << 30
    assert missing["lba_bytes"] == "its namespaces have different block sizes"


def test_controller_without_namespace_says_so(tmp_path: Path) -> None:
    fields, missing = read(tmp_path, Model(namespaces=()))
    assert "lba_bytes" not in fields
    assert missing["lba_bytes"] == "the controller has no active namespace"
    assert missing["capacity_bytes"] == "the drive reports no total capacity"


def test_media_bytes_come_from_the_endurance_group_where_there_is_no_ocp(tmp_path: Path) -> None:
    fields, _ = read(tmp_path, Model(endurance_group=3))
    assert fields["media_written_bytes"] == 7_000_000_000


def test_power_state_facts_explain_what_is_not_reported() -> None:
    facts = decode_power_state(replace(FIVE_STATES[3], enlat=0).pack(), 3)
    assert (facts.index, facts.operational, facts.max_w) == (3, False, 4.0)
    vaults = {"power_fail_recovery_s", "quiescence_vault_s", "power_fail_vault_s"}
    absent = {"entry_latency_s", "idle_w", "active_w", "idle_exit_latency_limit_s"}
    assert set(facts.missing) == absent | vaults
    assert (facts.write_latency_rank, facts.active_workload) == (3, 0)


def test_thermal_thresholds_and_background_power_are_read_where_the_drive_has_them() -> None:
    states = [packing.psd(mp=2500)]
    identify = packing.controller(states, ctratt=1 << 1, hctma=1)
    device = Answers(
        identify={1: identify}, features={(0x10, 0): (343 << 16, b""), (0x11, 0): (1, b"")}
    )
    fields, missing = read_state(device)
    assert (fields["thermal_light_k"], fields["background_power"]) == (343, True)
    assert missing["thermal_heavy_k"] == "the threshold is disabled"
    refused, reasons = read_state(Answers(identify={1: identify}))
    assert "thermal_light_k" not in refused
    assert "Invalid Field" in reasons["thermal_light_k"]
    assert "Invalid Field" in reasons["background_power"]


def test_capabilities_say_what_is_not_reported() -> None:
    rich = decode_controller(packing.controller(ctratt=1 << 21, mup=2800, mupa=2, msmt=60))
    facts = rich.capabilities
    assert (facts.power_measurement, facts.power_limit) == (True, False)
    assert (facts.unlimited_power_w, facts.longest_measurement_minutes) == (28.0, 60)
    assert facts.missing["power_sample_interval_s"] == "the drive reports 0"


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
