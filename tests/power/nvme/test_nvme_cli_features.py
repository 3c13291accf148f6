"""Features, namespaces, OCP and vendors' logs: nvme-cli decodes the same bytes."""

from __future__ import annotations

import re

import pytest

from tests.power.nvme.nvme_cli import (
    BY_NAME,
    DRIVES,
    NEEDED,
    Cli,
    having,
    on,
    with_feature,
)
from wattload.power.nvme.features import (
    is_saveable,
    read_background_power,
    read_power_state,
    read_thermal_management,
    read_transitions,
    read_write_cache,
)
from wattload.power.nvme.identify import (
    active_namespaces,
    decode_uuid_list,
    identify_controller,
    identify_namespace,
)
from wattload.power.nvme.logs import decode_ocp_smart, read_firmware_slot
from wattload.power.nvme.vendor import find_vendor_page, read_vendor_power

pytestmark = NEEDED


@on(*with_feature(0x02))
def test_power_management_agrees(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "2", "-n", "1", "-H")
    assert f"Power State   (PS): {read_power_state(cli.dump.device())}" in text


@on(*with_feature(0x10))
def test_thermal_thresholds_agree(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "0x10", "-n", "1", "-H")
    ours = read_thermal_management(cli.dump.device())
    printed = [int(kelvin) for kelvin in re.findall(r"\(TMT[12]\) : (\d+) Kelvin", text)]
    assert printed == [ours.light_k or 0, ours.heavy_k or 0]


@on(*with_feature(0x11))
def test_background_power_agrees(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "0x11", "-n", "1", "-H")
    assert f"(NOPPME): {read_background_power(cli.dump.device())}" in text


@on(*with_feature(0x06))
def test_write_cache_agrees(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "6", "-n", "1", "-H")
    assert ("(WCE): Enabled" in text) is read_write_cache(cli.dump.device())


@on(*(name for name in with_feature(0x02) if (0x02, 3) in BY_NAME[name].features))
def test_capabilities_of_a_feature_agree(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "2", "-n", "1", "-s", "3", "-H")
    assert ("is saveable" in text) is is_saveable(cli.dump.device(), 0x02)


@on(*(name for name in DRIVES if 0x00 in BY_NAME[name].identify))
def test_namespaces_agree(cli: Cli) -> None:
    device = cli.dump.device()
    listed = re.findall(r"\[ *\d+\]:0x([0-9a-f]+)", cli.text("list-ns", "-n", "1"))
    assert tuple(int(number, 16) for number in listed) == active_namespaces(device)
    printed, ours = cli.json("id-ns", "-n", "1"), identify_namespace(device, 1)
    block = 1 << printed["lbafs"][printed["flbas"] & 0xF]["ds"]
    assert block == ours.lba_bytes
    sizes = (ours.size_bytes, ours.capacity_bytes, ours.used_bytes)
    assert tuple(printed[name] * block for name in ("nsze", "ncap", "nuse")) == sizes
    assert printed["endgid"] == ours.endurance_group


@on(*having(0x03))
def test_firmware_slot_agrees(cli: Cli) -> None:
    (printed,) = cli.json("fw-log").values()
    (active,) = (value for name, value in printed.items() if "afi" in name)
    assert (int(active) & 7 or None) == read_firmware_slot(cli.dump.device())


@on(*with_feature(0x0C))
def test_transitions_agree(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "0x0c", "-n", "1", "-H")
    ours = read_transitions(cli.dump.device())
    found = re.findall(r"Entry\[ ?(\d+)\].*?\(ITPT\): (\d+) ms.*?\(ITPS\): (\d+)", text, re.DOTALL)
    rules = [(int(state), int(target), int(ms)) for state, ms, target in found if int(ms)]
    assert rules == [(r.state, r.target, round(r.idle_s * 1000)) for r in ours.transitions]
    assert ("(APSTE): Enabled" in text) is ours.enabled


@on("synthetic-datacenter")
def test_uuids_agree(cli: Cli) -> None:
    text = cli.text("id-uuid").lower().replace("-", "").replace(" ", "")
    for uuid in decode_uuid_list(cli.dump.identify[0x17]):
        assert uuid.hex in text


@on("synthetic-datacenter")
def test_extended_smart_agrees(cli: Cli) -> None:
    printed = cli.json("ocp smart-add-log")
    ours = decode_ocp_smart(cli.dump.logs[0xC0])
    assert printed["Physical media units written"]["lo"] == ours.media_written_bytes
    assert printed["Number of Thermal throttling events"] == ours.throttle_events


@pytest.mark.parametrize(
    ("cli", "command", "pattern"),
    [
        ("synthetic-inspur", "inspur nvme-vendor-log", r"power_info\(mcu\) *: (\d+) mW"),
        ("synthetic-dera", "dera stat", r"current_power *: (\d+) mW"),
        ("synthetic-memblaze", "memblaze smart-log-add", r"power_consumption .*curr: (\d+)"),
        ("synthetic-ymtc", "ymtc smart-log-add", r"power_consumption .*curr: (\d+)"),
    ],
    indirect=["cli"],
)
def test_vendor_s_watts_agree(cli: Cli, command: str, pattern: str) -> None:
    printed = re.search(pattern, cli.text(command))
    assert printed is not None
    device = cli.dump.device()
    controller = identify_controller(device)
    page = find_vendor_page(device, controller)
    assert page is not None
    ours = read_vendor_power(device, controller, page)
    assert ours is not None
    unit_w = 0.001 if "mW" in pattern else 1.0
    assert ours.power_w == pytest.approx(int(printed[1]) * unit_w)
