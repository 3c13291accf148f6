"""Identify Controller, SMART and the logs of a controller: nvme-cli decodes the same bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.power.nvme.nvme_cli import DRIVES, NEEDED, Cli, having, on
from wattload.power.nvme.identify import identify_controller
from wattload.power.nvme.logs import (
    decode_freezing_commands,
    decode_supported_pages,
    read_group_media_bytes,
    read_smart,
)

pytestmark = NEEDED


@on(*DRIVES)
def test_identify_controller_agrees(cli: Cli) -> None:
    printed, ours = cli.json("id-ctrl"), identify_controller(cli.dump.device())
    assert printed["vid"] == ours.vendor_id
    assert (printed["sn"].strip(), printed["mn"].strip()) == (ours.serial, ours.model)
    assert printed["fr"].strip() == ours.firmware
    version = printed["ver"]
    assert f"{version >> 16}.{version >> 8 & 255}.{version & 255}" == ours.version
    attributes = printed["ctratt"]
    assert bool(attributes >> 20 & 1) is ours.power_limit
    assert bool(attributes >> 21 & 1) is ours.power_measurement
    assert bool(attributes >> 1 & 1) is ours.permissive_mode
    assert printed["npss"] + 1 == len(ours.power_states)
    assert bool(printed["apsta"] & 1) is ours.apst_supported
    assert printed["wctemp"] == (ours.warning_temperature_k or 0)
    assert printed["cctemp"] == (ours.critical_temperature_k or 0)
    assert int(printed["tnvmcap"]) == (ours.capacity_bytes or 0)
    assert bool(printed["hctma"] & 1) is ours.thermal_management
    if ours.thermal_management:
        assert printed["mntmt"] == ours.lowest_managed_temperature_k
        assert printed["mxtmt"] == ours.highest_managed_temperature_k


@on(*DRIVES)
def test_power_states_agree(cli: Cli) -> None:
    printed, ours = cli.json("id-ctrl")["psds"], identify_controller(cli.dump.device()).power_states
    for theirs, state in zip(printed, ours, strict=False):
        fine = theirs["max_power_scale"] if "max_power_scale" in theirs else theirs["flags"] & 1
        asleep = (
            theirs["non-operational_state"]
            if "non-operational_state" in theirs
            else theirs["flags"] >> 1 & 1
        )
        watts = theirs["max_power"] / (10_000 if fine else 100)
        assert state.max_w == (pytest.approx(watts) if watts else None)
        assert state.operational is not bool(asleep)
        assert round((state.entry_latency_s or 0) * 1e6) == theirs["entry_lat"]
        assert round((state.exit_latency_s or 0) * 1e6) == theirs["exit_lat"]
        assert state.read_throughput_rank == theirs["read_tput"]
        assert state.read_latency_rank == theirs["read_lat"]
        assert state.write_throughput_rank == theirs["write_tput"]
        assert state.write_latency_rank == theirs["write_lat"]
        assert state.idle_w == in_watts(theirs["idle_power"], theirs["idle_scale"])
        assert state.active_w == in_watts(theirs["active_power"], theirs["active_scale"])
        assert state.active_workload == theirs["active_power_work"]


def in_watts(raw: int, scale: int) -> object:
    units = {1: 10_000, 2: 100}
    return pytest.approx(raw / units[scale]) if raw and scale in units else None


@on(*having(0x02))
def test_smart_agrees(cli: Cli) -> None:
    printed, ours = cli.json("smart-log"), read_smart(cli.dump.device())
    assert printed["critical_warning"] == ours.critical_warning
    assert printed["temperature"] == (ours.temperature_k or 0)
    assert printed["avail_spare"] == ours.available_spare_percent
    assert printed["spare_thresh"] == ours.spare_threshold_percent
    assert printed["percent_used"] == ours.percentage_used
    assert int(printed["data_units_read"]) * 512_000 == ours.read_bytes
    assert int(printed["data_units_written"]) * 512_000 == ours.written_bytes
    counters: Mapping[str, int] = {
        "host_read_commands": ours.read_commands,
        "host_write_commands": ours.write_commands,
        "controller_busy_time": ours.busy_minutes,
        "power_cycles": ours.power_cycles,
        "power_on_hours": ours.power_on_hours,
        "unsafe_shutdowns": ours.unsafe_shutdowns,
        "media_errors": ours.media_errors,
        "num_err_log_entries": ours.error_log_entries,
        "warning_temp_time": ours.warning_temperature_minutes,
        "critical_comp_time": ours.critical_temperature_minutes,
        "thm_temp1_trans_count": ours.thermal_transitions_1,
        "thm_temp2_trans_count": ours.thermal_transitions_2,
        "thm_temp1_total_time": ours.thermal_seconds_1,
        "thm_temp2_total_time": ours.thermal_seconds_2,
    }
    assert {name: int(printed[name]) for name in counters} == counters
    for number, kelvin in enumerate(ours.sensors_k, start=1):
        assert printed.get(f"temperature_sensor_{number}") == kelvin


@on(*having(0x09))
def test_endurance_group_agrees(cli: Cli) -> None:
    printed = cli.json("endurance-log", "-g", "1")
    media_bytes = read_group_media_bytes(cli.dump.device(), 1)
    assert int(printed["media_units_written"]) * 10**9 == media_bytes


@on(*having(0x05))
def test_effects_agree(cli: Cli) -> None:
    text = cli.text("effects-log", "-c", "0")
    found = re.findall(r"^ACS(\d+) .*\] ([0-9a-f]{8})$", text, re.MULTILINE)
    printed = {int(opcode): int(word, 16) for opcode, word in found}
    ours = decode_freezing_commands(cli.dump.logs[0x05])
    assert ours == {code for code, word in printed.items() if word & 0x7001E}


@on(*having(0x00))
def test_supported_pages_agree(cli: Cli) -> None:
    text = cli.text("supported-log-pages")
    printed = {int(page, 16) for page in re.findall(r"^LID 0x([0-9a-f]+) ", text, re.MULTILINE)}
    assert printed == decode_supported_pages(cli.dump.logs[0x00])
