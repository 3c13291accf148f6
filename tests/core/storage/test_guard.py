"""The guard of whole drives: what a drive is, whose it is, its health, and other hosts."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.storage.drives import (
    HEALTHY,
    Bench,
    FakeNvme,
    fill,
    refuse_nvme,
)
from tests.core.storage.loops import (
    SIZE_BYTES,
    add_partition,
    digest,
    loop_device,
    must,
)
from wattload.core.errors import TargetError
from wattload.core.storage.block_stack import block_node
from wattload.core.storage.guard import Guard, Permission
from wattload.core.storage.raw_device import (
    DriveName,
    attachment_text,
    drive_name,
    require_same,
)
from wattload.core.storage.raw_writes import RawWriteLog
from wattload.core.storage.targets import TargetKind, resolve_targets
from wattload.core.sysfs import Roots
from wattload.run.raw_drive import is_sealed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can attach loop devices")


def test_a_blank_drive_is_accepted(bench: Bench) -> None:
    guard = bench.accepted()
    assert guard.content is not None
    assert 1024 <= len(guard.content.blank) <= 1026
    assert not guard.findings


def test_a_partition_is_refused(bench: Bench) -> None:
    add_partition(bench.device, "1", "2048", "20480")
    part = Path(f"{bench.device}p1")
    before = digest(bench.device)
    with pytest.raises(TargetError, match=r"p1 is a partition; name the whole drive"):
        resolve_targets([part], host="here", kind=TargetKind.BLOCK)
    assert digest(bench.device) == before


def test_a_read_only_drive_is_refused(tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with loop_device(image, "--read-only") as device:
        found = Bench(device, image, RawWriteLog(tmp_path / "state")).refused()
    assert "is read-only" in found


def test_blocks_smaller_than_those_of_the_drive_are_refused(tmp_path: Path) -> None:
    image = tmp_path / "drive.img"
    with loop_device(image, "--sector-size", "4096") as device:
        bench = Bench(device, image, RawWriteLog(tmp_path / "state"))
        with pytest.raises(TargetError, match=r"logical blocks of 4096 bytes"):
            bench.guard(block_bytes=512).claim()
        bench.accepted()


def test_a_drive_needs_its_serial(bench: Bench) -> None:
    assert "is not the drive of that serial" in bench.refused(serial="S1")
    guard = Guard(
        bench.target,
        Permission(serials=(), overwrite=frozenset(), shared=False),
        bench.log,
        read_nvme=refuse_nvme,
        is_sealed=is_sealed,
    )
    with pytest.raises(TargetError, match=r"all of which would be overwritten; give target.serial"):
        guard.claim()


def test_no_message_has_a_serial(bench: Bench) -> None:
    target = bench.target
    assert target.facts.stack is not None
    folder = Path("/sys/block") / bench.device.name
    serial = drive_name(bench.device, folder, target.facts.stack).serial
    inspected = bench.guard(serial="S1").inspect()
    assert inspected.refusals
    assert not [each for each in inspected.refusals if serial in each.sentence]
    assert not [each for each in inspected.refusals if str(bench.image) in each.sentence]


@pytest.mark.parametrize("change", ["deleted", "replaced", "disguised"])
def test_a_backing_file_that_is_not_at_its_path_is_refused(bench: Bench, change: str) -> None:
    bench.accepted()
    bench.image.unlink()
    if change == "replaced":
        bench.image.write_bytes(bytes(SIZE_BYTES))
    elif change == "disguised":
        bench.image.with_name("drive.img (deleted)").write_bytes(bytes(SIZE_BYTES))
    assert "over a file that is not at its path any more" in bench.refused()


def test_a_loop_device_over_a_device_is_refused_whatever_its_node(
    bench: Bench, tmp_path: Path
) -> None:
    number, node = bench.device.stat().st_rdev, tmp_path / "node"
    os.mknod(node, 0o600 | stat.S_IFBLK, number)
    with loop_device(node) as device:
        node.unlink()
        upper = Bench(device, node, bench.log)
        assert f"over another device ({bench.device.name}); name that one" in upper.refused()


def test_an_exchanged_drive_is_refused(bench: Bench) -> None:
    guard = bench.guard()
    other = bench.image.with_name("other.img")
    with other.open("wb") as file:
        file.truncate(SIZE_BYTES)
    must("losetup", "--detach", str(bench.device))
    must("losetup", str(bench.device), str(other))
    before = digest(bench.device)
    exchanged = pytest.raises(TargetError, match=r"was exchanged \(disk sequence \d+, now \d+\)")
    with bench.device.open("rb") as opened, exchanged:
        require_same(opened.fileno(), guard.identity)
    with pytest.raises(TargetError, match=r"is not the drive of that serial"):
        guard.claim()
    assert digest(bench.device) == before


def test_a_plan_changes_nothing_and_holds_nothing(bench: Bench) -> None:
    must("mkfs.ext4", "-q", str(bench.device))
    before = digest(bench.device)
    found = bench.guard().inspect()
    assert [each.can_be_lifted for each in found.refusals] == [True]
    assert digest(bench.device) == before
    assert not bench.log.path.exists()


def test_a_healthy_drive_of_one_host_is_accepted(nvme: FakeNvme) -> None:
    assert nvme.refusals() == []


def test_a_drive_that_does_not_tell_its_health_is_refused(nvme: FakeNvme) -> None:
    assert "the health of" in nvme.refusals(None)[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"critical_warning": 4}, "reports a critical warning (0x04)"),
        ({"spare_percent": 10}, "has 10 % of its spare left, and its threshold is 10 %"),
        ({"percentage_used": 100}, "has used 100 % of its endurance; name another drive, or, "),
        ({"is_shareable": True}, "another host may write to it"),
        ({"is_reserved": True}, "is reserved by a host"),
        ({"controller_count": 2}, "has 2 controllers in its subsystem"),
        ({"used_bytes": 4096}, "target.overwrite=[unsampled]"),
    ],
)
def test_a_drive_in_doubt_is_refused(nvme: FakeNvme, changes: dict[str, Any], words: str) -> None:
    (found,) = nvme.refusals(replace(HEALTHY, **changes))
    assert words in found


def test_doubts_are_lifted_by_their_names_and_health_is_not(nvme: FakeNvme) -> None:
    shared = replace(HEALTHY, is_shareable=True, is_reserved=True, controller_count=2)
    assert nvme.refusals(shared, shared=True) == []
    doubts = replace(HEALTHY, used_bytes=4096, percentage_used=120)
    assert nvme.refusals(doubts, overwrite=frozenset({"unsampled", "worn"})) == []
    broken = replace(HEALTHY, critical_warning=1)
    everything = frozenset({"unsampled", "worn", "unknown"})
    assert nvme.refusals(broken, overwrite=everything, shared=True)


def test_a_drive_on_a_network_is_shared(nvme: FakeNvme) -> None:
    (nvme.roots.sys / "devices/nvme0/transport").write_text("tcp\n")
    assert "is attached by tcp" in nvme.refusals()[0]


@pytest.mark.parametrize(
    ("place", "model", "words"),
    [
        ("pci/ata3/host2/target2:0:0/2:0:0:0/block/sda", "ATA Samsung SSD 870", ""),
        ("pci/usb2/2-1/host4/target4:0:0/4:0:0:0/block/sda", "SanDisk Extreme", ""),
        ("pci/host1/port-1:0/end_device-1:0/target1:0:0/1:0:0:0/block/sda", "SEAGATE ST18", ""),
        (
            "platform/host3/session1/target3:0:0/3:0:0:0/block/sda",
            "LIO-ORG disk",
            "not known to be",
        ),
        ("pci/host5/rport-5:0-2/target5:0:0/5:0:0:0/block/sda", "NETAPP LUN", "not known to be"),
        ("pci/host6/target6:0:0/6:0:0:0/block/sda", "Linux scsi_debug", "not known to be private"),
        ("pci/virtio2/host7/target7:0:0/7:0:0:0/block/sda", "QEMU QEMU HARDDISK", "a hypervisor's"),
        ("pci/ata1/host0/target0:0:0/0:0:0:0/block/sda", "ATA QEMU HARDDISK", "a hypervisor's"),
        ("pci/end_device-1:0/target1:0:0/1:0:0:0/block/sda", "VMware Virtual disk", "a hypervisor"),
        ("pci/virtio1/block/vda", "", "a hypervisor's disk"),
    ],
)
def test_only_what_is_known_to_be_private_is_not_shared(
    tmp_path: Path, place: str, model: str, words: str
) -> None:
    folder = tmp_path / "devices" / place
    vendor, _, name = model.partition(" ")
    fill(folder, size="2048", dev="8:0", device__vendor=vendor, device__model=name)
    stack = block_node(folder, Roots(sys=tmp_path), lambda _: None)
    found = attachment_text(stack, folder)
    assert words in found if words else not found


def test_a_device_in_memory_has_a_name_that_its_successor_has_not(tmp_path: Path) -> None:
    roots = Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path)
    fill(roots.proc / "sys/kernel/random", boot_id="b1")

    def name_of(name: str, **files: str) -> DriveName:
        folder = roots.sys / "block" / name
        fill(folder, size="2048", dev="1:0", **files)
        return drive_name(folder, folder, block_node(folder, roots, lambda _: None), roots)

    ram = name_of("ram0", diskseq="7")
    assert (ram.serial, ram.accepted) == ("ram0:7:b1", frozenset({"ram0:7"}))
    assert name_of("pmem0", device__uuid="u1").accepted == {"u1"}
    with pytest.raises(TargetError, match=r"can't be told from other drives"):
        name_of("pmem1")
    assert name_of("zram0").accepted == {"zram0"}


def test_one_of_several_namespaces_needs_its_number(nvme: FakeNvme) -> None:
    (nvme.disk.parent / "nvme0n2").mkdir()
    assert "is not the drive of that serial" in nvme.refusals()[0]
    assert nvme.refusals(serial="S1:1") == []
    assert nvme.refusals(serial="S1:2")


def test_a_zoned_drive_is_refused(nvme: FakeNvme) -> None:
    (nvme.disk / "queue/zoned").write_text("host-managed\n")
    assert "is zoned (host-managed)" in nvme.refusals()[0]


@pytest.mark.parametrize("missing", ["ro", "queue/zoned", "holders"])
def test_what_can_not_be_read_refuses(nvme: FakeNvme, missing: str) -> None:
    place = nvme.disk / missing
    if place.is_dir():
        place.rmdir()
    else:
        place.unlink()
    assert "can't be read" in nvme.refusals()[0]


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("28 27 {} / / rw - ext4 /dev/nvme0n1 rw", "root"),
        ("28 27 {} / /boot rw - ext4 /dev/nvme0n1 rw", "/boot"),
        ("28 27 {} / /boot/efi rw - vfat /dev/nvme0n1 rw", "/boot/efi"),
    ],
)
def test_a_drive_of_the_system_is_refused(nvme: FakeNvme, line: str, held: str) -> None:
    number = (nvme.disk / "dev").read_text().strip()
    lines = [] if held == "root" else ["27 1 0:21 / / rw - tmpfs tmpfs rw"]
    text = "\n".join([*lines, line.format(number)])
    (nvme.roots.proc / "self/mountinfo").write_text(f"{text}\n")
    assert f"holds the running system ({held})" in nvme.refusals()[0]


def test_an_unknown_root_refuses_unless_only_an_overlay_hides_it(nvme: FakeNvme) -> None:
    mountinfo = nvme.roots.proc / "self/mountinfo"
    mountinfo.write_text("27 1 0:21 / / rw - zfs tank rw\n")
    assert "whether" in nvme.refusals()[0]
    mountinfo.write_text("27 1 0:21 / / rw - overlay overlay rw,upperdir=/gone/upper\n")
    assert nvme.refusals() == []
