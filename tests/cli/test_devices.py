"""``wattload devices`` on this machine, on recorded ones, and with a model drive's admin queue."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from tests.cli.test_doctor import WATTS
from tests.core.storage.mounting import mounted
from tests.data.sysfs.tree import expand, write
from tests.model_host.drive import Model, ModelDrive, store
from tests.model_host.power import Meter
from tests.power.nvme.dumps import DUMPS
from tests.power.sources.sysfs_tree import ACPI, INA226, hwmon_tree, powercap_tree
from wattload.__main__ import main
from wattload.cli.devices import ControllerView, find_targets, show, view_controllers, view_meters
from wattload.core.errors import PowerPermissionError
from wattload.core.storage.targets import Target
from wattload.core.sysfs import Roots
from wattload.power.nvme.admin import AdminDevice, OpenDevice
from wattload.power.sources.ipmi import IpmiLink

Captured = pytest.CaptureFixture[str]


def closed(name: str) -> ModelDrive:
    raise PowerPermissionError(f"/dev/{name} can't be opened by user 1000: run as root")


def returning(device: AdminDevice) -> OpenDevice:
    return lambda _: device


def printed(targets: tuple[Target, ...], views: tuple[ControllerView, ...]) -> str:
    out = io.StringIO()
    show(targets, views, Console(file=out, width=200, highlight=False))
    return out.getvalue()


@pytest.fixture
def gen5(tmp_path: Path) -> Roots:
    return expand("gen5_in_gen4_slot", tmp_path / "machine", tmp_path)


def view(roots: Roots, folder: Path, model: Model) -> ControllerView:
    store(folder / "nvme0.json", model)
    (found,) = view_controllers(None, roots, lambda name: ModelDrive(folder, name))
    return found


def test_a_directory_is_shown_as_json(tmp_path: Path, capsys: Captured) -> None:
    assert main(["devices", "--json", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    (facts,) = document["targets"]
    assert facts["path"] == str(tmp_path)
    assert facts["file_system"]["type"]
    assert [set(each) for each in document["controllers"]] in (
        [],
        [{"facts", "state", "telemetry", "warnings", "refusal"}] * len(facts["controllers"]),
    )


def test_this_machine_is_shown_as_text(tmp_path: Path, capsys: Captured) -> None:
    assert main(["devices", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(str(tmp_path)[:20])


def test_without_directories_mounted_disks_are_listed_and_nothing_is_written(
    tmp_path: Path, capsys: Captured
) -> None:
    assert main(["devices", "--json"]) == 0
    targets = json.loads(capsys.readouterr().out)["targets"]
    assert [target["index"] for target in targets] == list(range(len(targets)))
    assert {target["file_system"]["category"] for target in targets} <= {"local", "network"}
    assert all("not tried" in t["missing"]["direct_io_offset_align_bytes"] for t in targets)


def test_a_mounted_file_system_is_listed_once(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(
        tmp_path / "proc/self/mountinfo",
        f"1 0 0:9 / / rw - tmpfs tmpfs rw\n"
        f"2 1 8:1 / {tmp_path} rw - ext4 /dev/sda1 rw\n"
        f"3 2 8:1 /a {tmp_path}/a rw - ext4 /dev/sda1 rw\n"
        f"4 1 8:2 / {tmp_path}/gone rw - ext4 /dev/sda2 rw\n",
    )
    targets = find_targets([], Roots(proc=tmp_path / "proc", sys=tmp_path / "sys"))
    assert [target.path for target in targets] == [tmp_path]


def test_a_missing_directory_is_one_sentence(capsys: Captured) -> None:
    assert main(["devices", "/no/such/place"]) == 2
    assert "/no/such/place does not exist" in capsys.readouterr().err


def test_a_controller_shows_link_states_and_what_it_offers(gen5: Roots, tmp_path: Path) -> None:
    found = view(gen5, tmp_path, Model(state=1, meter=Meter(measures=True)))
    text = printed((), (found,))
    assert "SAMSUNG MZWLO3T8HCLS-00A07, serial S7ABCD0X000001, firmware 1.0" in text
    assert "link: 16 GT/s x4, at most 32 GT/s x4" in text
    assert "runs below its maximum link: 16 of 32 GT/s" in text
    assert "power states, now in PS1" in text
    assert "PS0, at most 25 W, idle 5 W" in text
    assert "PS4, at most 0.05 W, non-operational" in text
    assert "offers: power state, declared bounds" in text
    assert "power measurement (log 25h)" in text
    assert found.refusal == ""
    assert found.facts.nvme_version == "2.3.0"


def test_a_controller_states_which_logs_report_its_power(gen5: Roots) -> None:
    dumps = {dump.name: dump for dump in DUMPS}
    offered: dict[str, set[str]] = {
        "synthetic-datacenter": {
            "interval power (SMART)",
            "lifetime energy (SMART)",
            "power measurement (log 25h)",
            "power limit (feature 23h)",
            "average power in whole watts (OCP log C0h)",
        },
        "synthetic-inspur": {"power (Inspur log C0h)"},
        "synthetic-client": set(),
    }
    for name, expected in offered.items():
        (found,) = view_controllers(["nvme0"], gen5, returning(dumps[name].device()))
        assert found.refusal == ""
        assert set(found.telemetry) == {"power state", "declared bounds", *expected}


def test_a_closed_admin_queue_leaves_what_sysfs_shows(gen5: Roots) -> None:
    (found,) = view_controllers(None, gen5, closed)
    text = printed((), (found,))
    assert "can't be opened by user 1000: run as root" in text
    assert "unknown: nvme_version, power_states" in text
    assert found.state.link_speed_gt_per_s == 16.0
    assert found.telemetry == ()


def test_without_the_capability_the_table_of_states_stays(gen5: Roots, tmp_path: Path) -> None:
    found = view(gen5, tmp_path, Model(privileged=False))
    text = printed((), (found,))
    assert "needs CAP_SYS_ADMIN" in found.refusal
    assert "now in an unknown state" in text
    assert "PS0, at most 25 W" in text


def test_a_drive_of_the_system_is_marked(tmp_path: Path) -> None:
    roots = expand("nvme_partition", tmp_path / "machine", tmp_path)
    (found,) = view_controllers(None, roots, closed)
    assert any("holds root or swap" in warning for warning in found.warnings)


def test_a_drive_that_may_be_the_systems_is_marked(tmp_path: Path) -> None:
    roots = expand("lvm_md_nvme", tmp_path / "machine", tmp_path)
    views = view_controllers(("nvme3",), roots, closed)
    assert len(views) == 1
    assert "nvme3 may hold root or swap" in views[0].warnings[-1]


def test_an_unknown_link_reports_why(tmp_path: Path) -> None:
    roots = expand("nvme_multipath", tmp_path / "machine", tmp_path)
    views = view_controllers(None, roots, closed)
    assert [each.facts.name for each in views] == ["nvme1", "nvme2"]
    assert "link: the function has no PCI Express link" in printed((), views)


def test_the_stack_is_drawn_with_what_raid_writes(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand("lvm_md_nvme", tmp_path / "machine", folder)
    text = printed(find_targets([str(folder)], roots), ())
    assert "md0  md, raid1 of 2 devices, 535.82 MB, writes 2 bytes per byte" in text
    assert "nvme4  controller, QEMU NVMe Ctrl, serial ra1" in text
    assert "There is no NVMe controller here" in text


def test_what_is_missing_of_a_target_reports_why(tmp_path: Path) -> None:
    with mounted(tmp_path / "memory", "-t", "tmpfs", "-o", "size=64k", "tmpfs") as folder:
        text = printed(find_targets([str(folder)]), ())
    assert "unknown: stack (tmpfs is memory: there is no block device under it)" in text


def test_meters_other_than_drives_are_shown_with_their_readings(tmp_path: Path) -> None:
    hwmon_tree(tmp_path, INA226, {**ACPI, "power1_average": "N/A"})
    roots = powercap_tree(tmp_path, {"intel-rapl:0": "package-0"})
    write(tmp_path / "ipmi0", "")
    meters = view_meters(roots, ipmi=tmp_path / "ipmi0", open_link=refused)
    assert [(each.source, each.name, each.scope) for each in meters] == [
        ("hwmon", "ina226/power1", "node"),
        ("hwmon", "power_meter/power1", "node"),
        ("rapl", "package-0", "node"),
        ("ipmi", "bmc", "node"),
    ]
    assert [each.reading for each in meters][::2] == ["11.40 W", "1.00 J counted"]
    assert "power_meter/power1 can't be read" in meters[1].reading
    out = io.StringIO()
    show((), (), Console(file=out, width=200, highlight=False), meters)
    assert "not of a drive, unless power.hwmon.rails=[NAME:DRIVE] assigns one" in out.getvalue()
    assert "ina226/power1  hwmon, node, 11.40 W" in out.getvalue()
    assert meters[3].reading == "/dev/ipmi0 can't be opened: start the sampler as root"


def test_meter_that_is_busy_reports_it(tmp_path: Path) -> None:
    class Busy:
        answers: ClassVar[list[bytes]] = [WATTS]

        def command(self, netfn: int, command: int, data: bytes) -> bytes:
            return self.answers.pop() if self.answers else b"\xc0"

        def close(self) -> None: ...

    write(tmp_path / "ipmi0", "")
    (meter,) = view_meters(Roots(sys=tmp_path), ipmi=tmp_path / "ipmi0", open_link=Busy)
    assert meter.reading == "no reading at the moment"


def refused() -> IpmiLink:
    raise PowerPermissionError("/dev/ipmi0 can't be opened: start the sampler as root")
