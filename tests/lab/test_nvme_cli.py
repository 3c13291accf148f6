"""nvme-cli and this suite read the same controllers, by the kernel's own drivers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.virtual_runs import VIRTUAL
from wattload.core.errors import PowerError
from wattload.power.nvme.admin import NvmeAdmin, fetch, log_command
from wattload.power.nvme.features import read_power_state, read_transitions
from wattload.power.nvme.identify import active_namespaces, identify_controller, identify_namespace
from wattload.power.nvme.logs import (
    EFFECTS_BYTES,
    EFFECTS_LOG,
    decode_freezing_commands,
    read_smart,
)

NVME = "/usr/sbin/nvme"
WAIT_S = 120

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(not VIRTUAL, reason="runs in the guest of `make lab`"),
]


def names() -> list[str]:
    """Return the guest's controllers, which are all of this suite."""
    return sorted(path.name for path in Path("/sys/class/nvme").glob("nvme*")) if VIRTUAL else []


@pytest.fixture(params=names() or [""])
def device(request: pytest.FixtureRequest) -> Iterator[NvmeAdmin]:
    opened = NvmeAdmin(request.param)
    yield opened
    opened.close()


def nvme(command: str, device: NvmeAdmin, *arguments: str) -> str:
    done = subprocess.run(
        [NVME, command, f"/dev/{device.name}", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


def told_by_json(command: str, device: NvmeAdmin, *arguments: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(nvme(command, device, *arguments, "-o", "json"))
    return parsed


def test_identity_and_power_states_agree(device: NvmeAdmin) -> None:
    reported, ours = told_by_json("id-ctrl", device), identify_controller(device)
    assert (reported["vid"], reported["sn"].strip()) == (ours.vendor_id, ours.serial)
    assert (reported["mn"].strip(), reported["fr"].strip()) == (ours.model, ours.firmware)
    assert bool(reported["ctratt"] >> 21 & 1) is ours.capabilities.power_measurement
    assert reported["npss"] + 1 == len(ours.power_states)
    for theirs, state in zip(reported["psds"], ours.power_states, strict=False):
        assert round((state.entry_latency_s or 0) * 1e6) == theirs["entry_lat"]
        assert round((state.exit_latency_s or 0) * 1e6) == theirs["exit_lat"]
        assert round((state.max_w or 0) * 10_000) in (
            theirs["max_power"],
            theirs["max_power"] * 100,
        )


def test_health_agrees(device: NvmeAdmin) -> None:
    before = read_smart(device)
    reported = told_by_json("smart-log", device)
    after = read_smart(device)
    kelvin = [log.temperature_k or 0 for log in (before, after)]
    assert min(kelvin) <= reported["temperature"] <= max(kelvin)
    # The drives serve other tests' leftovers meanwhile: a counter lies between two of our reads.
    for theirs, name in (
        ("data_units_read", "read_bytes"),
        ("data_units_written", "written_bytes"),
        ("host_read_commands", "read_commands"),
        ("host_write_commands", "write_commands"),
        ("power_cycles", "power_cycles"),
        ("thm_temp1_trans_count", "thermal_transitions_1"),
        ("thm_temp1_total_time", "thermal_seconds_1"),
    ):
        unit = 512_000 if theirs.startswith("data_units") else 1
        value = int(reported[theirs]) * unit
        assert getattr(before, name) <= value <= getattr(after, name), theirs


def test_power_state_agrees(device: NvmeAdmin) -> None:
    ours = read_power_state(device)
    reported = nvme("get-feature", device, "-f", "2", "-H")
    assert re.search(rf"\(PS\): {ours}\b", reported)


def test_transitions_agree_or_both_are_refused(device: NvmeAdmin) -> None:
    try:
        ours = read_transitions(device)
    except PowerError:
        with pytest.raises(AssertionError, match=r"(?i)invalid field"):
            nvme("get-feature", device, "-f", "0x0c", "-H")
        return
    reported = nvme("get-feature", device, "-f", "0x0c", "-H")
    assert ("(APSTE): Enabled" in reported) is ours.enabled


def test_effects_agree(device: NvmeAdmin) -> None:
    if not identify_controller(device).effects_log:
        pytest.skip("the drive has no effects log")
    raw = fetch(device, log_command(EFFECTS_LOG, EFFECTS_BYTES)).data
    ours = decode_freezing_commands(raw)
    # Without -c it asks for a register, which not every transport has, and prints nothing.
    text = nvme("effects-log", device, "-c", "0")
    found = re.findall(r"^ACS(\d+) .*\] ([0-9a-f]{8})$", text, re.MULTILINE)
    reported = {int(opcode): int(word, 16) for opcode, word in found}
    assert ours == {opcode for opcode, word in reported.items() if word & 0x7001E}


def test_namespaces_agree(device: NvmeAdmin) -> None:
    for number in active_namespaces(device):
        reported = told_by_json("id-ns", device, "-n", str(number))
        ours = identify_namespace(device, number)
        block = reported["lbafs"][reported["flbas"] & 0xF]
        assert 1 << block["ds"] == ours.lba_bytes
        assert reported["nsze"] * ours.lba_bytes == ours.size_bytes
