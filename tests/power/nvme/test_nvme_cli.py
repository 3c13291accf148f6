"""nvme-cli decodes the same bytes: a stand-in answers its ioctl, see answers.c."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.power.nvme.dumps import DUMPS, Dump
from wattload.power.nvme.features import (
    is_saveable,
    read_background_power,
    read_power_state,
    read_thermal_thresholds_k,
    read_transitions,
    read_write_cache,
)
from wattload.power.nvme.identify import (
    active_namespaces,
    decode_uuid_list,
    identify_controller,
    identify_namespace,
)
from wattload.power.nvme.logs import (
    decode_freezing_commands,
    decode_ocp_smart,
    decode_supported_pages,
    read_firmware_slot,
    read_group_media_bytes,
    read_smart,
)
from wattload.power.nvme.vendor import find_vendor_page, read_vendor_power

NVME = shutil.which("nvme") or "/usr/sbin/nvme"
COMPILER = shutil.which("cc") or shutil.which("gcc")
SOURCE = Path(__file__).with_name("answers.c")

pytestmark = [
    pytest.mark.skipif(not Path(NVME).exists(), reason="nvme-cli is not installed"),
    pytest.mark.skipif(COMPILER is None, reason="no C compiler"),
]

BY_NAME = {dump.name: dump for dump in DUMPS}
DRIVES = [name for name in BY_NAME if name != "synthetic-all-ones"]


def build(library: Path) -> Path:
    """Compile the stand-in."""
    command = [str(COMPILER), "-shared", "-fPIC", "-O1", "-Wall", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return library


class Cli:
    """nvme-cli on one dump; ``/dev/null`` is the device that it opens."""

    def __init__(self, library: Path, folder: Path, dump: Dump) -> None:
        self.dump = dump
        dump.write(folder)
        (folder / "admin-c0").write_bytes(bytes(4))  # Dera's plugin asks for a status first
        self._environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "WATTLOAD_ANSWERS": str(folder),
        }

    def text(self, command: str, *arguments: str) -> str:
        """Return what a command prints."""
        done = subprocess.run(
            [NVME, *command.split(), "/dev/null", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr or done.stdout
        return done.stdout

    def json(self, command: str, *arguments: str) -> dict[str, Any]:
        """Return what a command prints as JSON."""
        parsed: dict[str, Any] = json.loads(self.text(command, *arguments, "-o", "json"))
        return parsed


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on these dumps, each by way of the fixture ``cli``."""
    return pytest.mark.parametrize("cli", names, indirect=True)


def having(log: int) -> list[str]:
    """Return the dumps with a log page."""
    return [name for name in DRIVES if log in BY_NAME[name].logs]


def with_feature(number: int) -> list[str]:
    """Return the dumps with the current value of a feature."""
    return [name for name in DRIVES if (number, 0) in BY_NAME[name].features]


@pytest.fixture(scope="session")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("stand-in") / "answers.so")


@pytest.fixture
def cli(request: pytest.FixtureRequest, stand_in: Path, tmp_path: Path) -> Cli:
    return Cli(stand_in, tmp_path, BY_NAME[request.param])


@on(*DRIVES)
def test_identify_controller_agrees(cli: Cli) -> None:
    printed, ours = cli.json("id-ctrl"), identify_controller(cli.dump.device())
    assert printed["vid"] == ours.vendor_id
    assert (printed["sn"].strip(), printed["mn"].strip()) == (ours.serial, ours.model)
    assert printed["fr"].strip() == ours.firmware
    version = printed["ver"]
    assert f"{version >> 16}.{version >> 8 & 255}.{version & 255}" == ours.version
    attributes = printed["ctratt"]
    assert bool(attributes >> 20 & 1) is ours.capabilities.power_limit
    assert bool(attributes >> 21 & 1) is ours.capabilities.power_measurement
    assert bool(attributes >> 1 & 1) is ours.capabilities.permissive_mode
    assert printed["npss"] + 1 == len(ours.power_states)
    assert bool(printed["apsta"] & 1) is ours.capabilities.autonomous_transitions
    assert printed["wctemp"] == (ours.capabilities.warning_temperature_k or 0)
    assert printed["cctemp"] == (ours.capabilities.critical_temperature_k or 0)
    assert int(printed["tnvmcap"]) == (ours.capacity_bytes or 0)
    assert bool(printed["hctma"] & 1) is ours.capabilities.thermal_management
    if ours.capabilities.thermal_management:
        assert printed["mntmt"] == ours.capabilities.lowest_managed_temperature_k
        assert printed["mxtmt"] == ours.capabilities.highest_managed_temperature_k


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


@on(*with_feature(0x02))
def test_power_management_agrees(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "2", "-n", "1", "-H")
    assert f"Power State   (PS): {read_power_state(cli.dump.device())}" in text


@on(*with_feature(0x10))
def test_thermal_thresholds_agree(cli: Cli) -> None:
    text = cli.text("get-feature", "-f", "0x10", "-n", "1", "-H")
    light_k, heavy_k = read_thermal_thresholds_k(cli.dump.device())
    printed = [int(kelvin) for kelvin in re.findall(r"\(TMT[12]\) : (\d+) Kelvin", text)]
    assert printed == [light_k or 0, heavy_k or 0]


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
