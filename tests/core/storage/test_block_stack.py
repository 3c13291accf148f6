"""Block stacks of recorded machines: levels, copies written, and the drives of the system."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from tests.core.storage.loops import loop_device
from tests.data.sysfs.tree import expand, write
from wattload.core.record.target import BlockNode
from wattload.core.storage.block_stack import (
    block_node,
    btrfs_redundancy,
    device_stack,
    dm_redundancy,
    find_stack,
    is_virtual,
    md_redundancy,
    queue_facts,
    system_drives,
    upper_mount,
    walk,
)
from wattload.core.storage.controllers import controllers_under
from wattload.core.storage.file_system import Mount, find_mount, read_mounts
from wattload.core.storage.targets import Target, counting_devices, resolve_targets
from wattload.core.sysfs import Roots


def resolved(name: str, tmp_path: Path) -> Target:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand(name, tmp_path / "machine", folder)
    (target,) = resolve_targets([folder], host="box", roots=roots)
    return target


def stack_of(target: Target) -> BlockNode:
    assert target.facts.stack is not None, target.facts.missing
    return target.facts.stack


def outline(target: Target) -> list[tuple[str, str]]:
    return [(node.kind, node.name) for node in walk(stack_of(target))]


def test_a_partition_leads_to_namespace_and_controller(tmp_path: Path) -> None:
    target = resolved("nvme_partition", tmp_path)
    assert outline(target) == [
        ("partition", "nvme0n1p1"),
        ("namespace", "nvme0n1"),
        ("controller", "nvme0"),
    ]
    assert target.facts.controllers == ("dut0",)
    assert counting_devices(target) == ("nvme0n1",)
    assert target.facts.file_system is not None
    assert "noatime" in target.facts.file_system.mount_options
    assert not target.facts.file_system.is_root


def test_sizes_are_in_bytes_and_queues_belong_to_whole_disks(tmp_path: Path) -> None:
    partition, namespace, controller = walk(stack_of(resolved("nvme_partition", tmp_path)))
    assert (partition.size_bytes, namespace.size_bytes) == (209_715_200, 536_870_912)
    assert partition.queue is None
    assert "disk" in partition.missing["queue"]
    assert namespace.queue is not None
    assert namespace.queue.model_dump(exclude={"missing"}) == {
        "scheduler": "mq-deadline",
        "write_cache": "write back",
        "nr_requests": 256,
        "hardware_queues": 1,
        "max_sectors_kb": 512,
        "read_ahead_kb": 128,
        "wbt_lat_us": 2000,
        "logical_block_bytes": 512,
        "physical_block_bytes": 512,
        "rotational": False,
        "dma_alignment_bytes": 4,
    }
    assert controller.missing["size_bytes"] == "a controller is not a block device"


def test_lvm_on_md_leads_to_both_drives(tmp_path: Path) -> None:
    target = resolved("lvm_md_nvme", tmp_path)
    assert outline(target) == [
        ("device_mapper", "dm-0"),
        ("md", "md0"),
        ("namespace", "nvme3n1"),
        ("controller", "nvme3"),
        ("namespace", "nvme4n1"),
        ("controller", "nvme4"),
    ]
    assert target.facts.controllers == ("ra0", "ra1")
    assert target.facts.devices == counting_devices(target) == ("nvme3n1", "nvme4n1")


def test_each_level_reports_how_many_copies_it_writes(tmp_path: Path) -> None:
    nodes = {node.name: node for node in walk(stack_of(resolved("lvm_md_nvme", tmp_path)))}
    assert nodes["dm-0"].redundancy == 1
    assert nodes["dm-0"].model == "fast-data"
    assert nodes["md0"].redundancy == 2
    assert nodes["md0"].model == "raid1 of 2 devices"


def test_copies_of_all_levels_multiply(tmp_path: Path) -> None:
    stack = stack_of(resolved("lvm_md_nvme", tmp_path))
    assert stack.redundancy == 1
    assert stack.written_factor() == 2


def test_an_unknown_level_leaves_the_copies_open(tmp_path: Path) -> None:
    stack = stack_of(resolved("lvm_md_nvme", tmp_path))
    (md,) = stack.children
    unknown = md.model_copy(update={"redundancy": None})
    assert stack.model_copy(update={"children": (unknown,)}).written_factor() is None
    assert stack.model_copy(update={"children": (md, *md.children)}).written_factor() is None


def test_a_shared_namespace_shows_each_path_and_one_drive(tmp_path: Path) -> None:
    target = resolved("nvme_multipath", tmp_path)
    assert outline(target) == [
        ("namespace", "nvme1n1"),
        ("path", "nvme1c1n1"),
        ("controller", "nvme1"),
        ("path", "nvme1c2n1"),
        ("controller", "nvme2"),
    ]
    assert target.facts.controllers == ("mp0",)  # two controllers, one serial: one drive
    assert controllers_under(target) == ("nvme1", "nvme2")
    assert any("several paths" in warning for warning in target.facts.warnings)


def test_the_paths_of_a_shared_namespace_are_counted(tmp_path: Path) -> None:
    assert counting_devices(resolved("nvme_multipath", tmp_path)) == ("nvme1c1n1", "nvme1c2n1")


def test_a_virtio_disk_is_named_and_cold_means_guest_cold(tmp_path: Path) -> None:
    target = resolved("virtio", tmp_path)
    assert outline(target) == [("virtio", "vda")]
    assert stack_of(target).serial == "vd0"
    assert target.facts.virtual is True
    assert any("guest-cold" in warning for warning in target.facts.warnings)
    assert target.facts.controllers == ()


def test_a_scsi_disk_has_model_and_serial(tmp_path: Path) -> None:
    target = resolved("scsi", tmp_path)
    node = stack_of(target)
    assert (node.kind, node.name, node.model, node.serial) == (
        "scsi", "sda", "QEMU QEMU HARDDISK", "sd0",
    )  # fmt: skip
    assert target.facts.virtual is True


def test_a_drive_of_its_own_is_not_virtual(tmp_path: Path) -> None:
    target = resolved("gen5_in_gen4_slot", tmp_path)
    assert target.facts.virtual is False
    assert target.facts.warnings == ()


def test_a_btrfs_pool_leads_to_all_its_devices(tmp_path: Path) -> None:
    target = resolved("btrfs_raid1", tmp_path)
    assert [kind for kind, _ in outline(target)] == [
        "pool", "namespace", "controller", "namespace", "controller",
    ]  # fmt: skip
    assert stack_of(target).redundancy == 2
    assert counting_devices(target) == ("nvme3n1", "nvme4n1")


def test_btrfs_without_its_pool_shows_the_mounted_device(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand("btrfs_raid1", tmp_path / "machine", folder)
    (roots.sys / "fs").rename(roots.sys / "fs-away")
    (target,) = resolve_targets([folder], host="box", roots=roots)
    assert outline(target) == [("namespace", "nvme3n1"), ("controller", "nvme3")]


def test_a_loop_device_names_its_file_and_leads_below_it(tmp_path: Path) -> None:
    target = resolved("loop_nvme", tmp_path)
    assert outline(target) == [
        ("loop", "loop0"),
        ("namespace", "nvme3n1"),
        ("controller", "nvme3"),
    ]
    assert stack_of(target).model == "file /m/disk.img"
    assert counting_devices(target) == ("nvme3n1",)
    assert any("loop device" in warning for warning in target.facts.warnings)


def test_a_loop_device_over_a_loop_device_leads_below_both(tmp_path: Path) -> None:
    image, node = tmp_path / "drive.img", tmp_path / "node"
    with loop_device(image) as lower:
        os.mknod(node, 0o600 | stat.S_IFBLK, lower.stat().st_rdev)
        with loop_device(node, "--offset", "4096") as upper:
            node.unlink()  # a path says nothing
            above = device_stack((Path("/sys/block") / upper.name).resolve())
        below = device_stack((Path("/sys/block") / lower.name).resolve())
    assert [(node.kind, node.name) for node in walk(above)] == [
        ("loop", upper.name),
        *[(node.kind, node.name) for node in walk(below)],
    ]
    assert below.name == lower.name


def test_a_device_that_sysfs_does_not_show_is_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand("virtio", tmp_path / "machine", folder)
    (roots.sys / "dev/block/253:0").unlink()
    (target,) = resolve_targets([folder], host="box", roots=roots)
    assert target.facts.stack is None
    assert "253:0" in target.facts.missing["stack"]
    assert target.facts.virtual is None
    assert counting_devices(target) == ()


@pytest.mark.parametrize(
    ("name", "kind"),
    [("zram0", "ram"), ("nbd3", "network"), ("mmcblk0", "unknown"), ("sr0", "scsi")],
)
def test_other_devices_are_known_by_their_names(tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "sys/devices/virtual/block" / name
    write(folder / "size", "8\n")
    write(folder / "dev", "250:0\n")
    node = block_node(folder, Roots(sys=tmp_path / "sys"), lambda _: None)
    assert (node.kind, node.size_bytes, node.children) == (kind, 4096, ())


def test_a_xen_disk_is_virtual(tmp_path: Path) -> None:
    folder = tmp_path / "xvda"
    write(folder / "size", "8\n")
    assert is_virtual(block_node(folder, Roots(), lambda _: None))


def test_queue_settings_that_are_refused_have_reasons(tmp_path: Path) -> None:
    write(tmp_path / "queue/nr_requests", "many\n")
    queue = queue_facts(tmp_path)
    assert "'many'" in queue.missing["nr_requests"]
    assert queue.missing["scheduler"] == "the kernel does not show scheduler"
    assert queue.missing["hardware_queues"] == "it has no multi-queue folder"


def test_a_controller_without_serial_is_keyed_by_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    roots = expand("nvme_partition", tmp_path / "machine", folder)
    serial = (roots.sys / "class/nvme/nvme0").resolve() / "serial"
    serial.write_text(" " * 20)
    (target,) = resolve_targets([folder], host="box", roots=roots)
    assert target.facts.controllers == ("nvme0",)
    serial.unlink()
    (target,) = resolve_targets([folder], host="box", roots=roots)
    assert target.facts.controllers == ("nvme0",)


def mount_of(path: str, roots: Roots) -> tuple[Mount, tuple[Mount, ...]]:
    mounts = read_mounts(roots)
    mount = find_mount(Path(path), mounts)
    assert mount is not None
    return mount, mounts


def machine(tmp_path: Path, *mounts: str, swaps: str = "") -> Roots:
    write(tmp_path / "proc/self/mountinfo", "".join(f"{line}\n" for line in mounts))
    write(tmp_path / "proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n" + swaps)
    return Roots(sys=tmp_path / "sys", proc=tmp_path / "proc", top=tmp_path / "top")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("rw,lowerdir=/a", "no upper folder"),
        ("rw,lowerdir=/a,upperdir=up", "relatively (up)"),
        ("rw,lowerdir=/a,upperdir=/not/here", "can't be seen from here: No such file"),
        ("rw,lowerdir=/a,upperdir=/seen", "is on an overlay itself"),
    ],
)
def test_an_overlay_without_visible_upper_folder_has_a_reason(
    tmp_path: Path, options: str, reason: str
) -> None:
    roots = machine(tmp_path, f"1 0 0:30 / / rw - overlay overlay {options}")
    (tmp_path / "top/seen").mkdir(parents=True)
    mount, mounts = mount_of("/", roots)
    stack, said = find_stack(mount, mounts, roots)
    assert stack is None
    assert reason in said


def test_an_upper_folder_is_looked_up_among_the_mounts(tmp_path: Path) -> None:
    roots = machine(
        tmp_path,
        "1 0 0:30 / / rw - overlay overlay rw,upperdir=/var/up",
        "2 1 0:31 / /var rw - tmpfs tmpfs rw",
    )
    (tmp_path / "top/var/up").mkdir(parents=True)
    mount, mounts = mount_of("/", roots)
    below, _ = upper_mount(mount, mounts, roots)
    assert below is not None
    assert below.type == "tmpfs"
    assert find_stack(mount, mounts, roots) == (
        None,
        "tmpfs is memory: there is no block device under it",
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 0 0:30 / / rw - zfs tank/data rw", "which devices zfs uses"),
        ("1 0 0:30 / / rw - fuse.mergerfs a rw", "which devices fuse.mergerfs uses"),
        ("1 0 0:30 / / rw - btrfs /dev/no-such-disk rw", "no block device /dev/no-such-disk"),
    ],
)
def test_hidden_devices_have_a_reason(tmp_path: Path, line: str, reason: str) -> None:
    roots = machine(tmp_path, line)
    mount, mounts = mount_of("/", roots)
    stack, said = find_stack(mount, mounts, roots)
    assert stack is None
    assert reason in said


def test_root_names_the_drives_of_the_system(tmp_path: Path) -> None:
    roots = expand("nvme_partition", tmp_path / "machine", Path("/"))
    mountinfo = roots.proc / "self/mountinfo"
    mountinfo.write_text(mountinfo.read_text().splitlines()[1] + "\n")  # the partition is root
    (roots.proc / "swaps").write_text("Filename\tType\n")
    drives = system_drives(roots)
    assert (drives.controllers, drives.unknown) == (frozenset({"nvme0"}), None)
    assert drives.holds("nvme0") is True
    assert drives.holds("nvme1") is False


def test_a_swap_file_names_the_drive_it_lies_on(tmp_path: Path) -> None:
    roots = expand("nvme_partition", tmp_path / "machine", Path("/data"))
    (roots.proc / "swaps").write_text("Filename\tType\n/data/swap\\040file   file\t1\t0\t-2\n")
    assert system_drives(roots).controllers == {"nvme0"}


def test_an_unknown_swap_leaves_it_open(tmp_path: Path) -> None:
    roots = machine(
        tmp_path, "1 0 0:30 / / rw - tmpfs tmpfs rw", swaps="/dev/no-disk partition\t1\t0\t-2\n"
    )
    drives = system_drives(roots)
    assert drives.holds("nvme0") is None
    assert drives.unknown is not None
    assert "swap /dev/no-disk" in drives.unknown


def test_a_host_that_shows_no_mounts_leaves_it_open(tmp_path: Path) -> None:
    drives = system_drives(Roots(proc=tmp_path))
    assert drives.holds("nvme0") is None


def test_a_host_without_root_leaves_it_open(tmp_path: Path) -> None:
    roots = machine(tmp_path, "2 1 0:31 / /var rw - tmpfs tmpfs rw", swaps="/var/x file\t1\n")
    drives = system_drives(roots)
    assert drives.unknown is not None
    assert drives.unknown.startswith("the drive that holds swap /var/x")


@pytest.mark.parametrize(
    ("level", "numbers", "factor"),
    [
        ("raid0", {"raid_disks": 4}, 1.0),
        ("linear", {"raid_disks": 2}, 1.0),
        ("raid1", {"raid_disks": 3, "degraded": 0}, 3.0),
        ("raid1", {"raid_disks": 3, "degraded": 1}, 2.0),
        ("raid4", {"raid_disks": 3}, 1.5),
        ("raid5", {"raid_disks": 4}, 4 / 3),
        ("raid6", {"raid_disks": 6}, 1.5),
        ("raid10", {"raid_disks": 4, "layout": 0x102}, 2.0),
        ("raid10", {"raid_disks": 6, "layout": 0x203}, 6.0),
    ],
)
def test_md_level_and_members_give_the_factor(
    tmp_path: Path, level: str, numbers: dict[str, int], factor: float
) -> None:
    for name, value in numbers.items():
        write(tmp_path / "md" / name, f"{value}\n")
    write(tmp_path / "md/level", f"{level}\n")
    found, reason = md_redundancy(tmp_path)
    assert (found, reason) == (factor, "")


def test_an_unknown_md_level_has_a_reason(tmp_path: Path) -> None:
    write(tmp_path / "md/level", "container\n")
    write(tmp_path / "md/raid_disks", "2\n")
    factor, reason = md_redundancy(tmp_path)
    assert factor is None
    assert "container" in reason


def test_an_md_array_that_can_not_be_read_has_a_reason(tmp_path: Path) -> None:
    assert md_redundancy(tmp_path) == (None, "the kernel does not show level")


@pytest.mark.parametrize(
    ("uuid", "below", "factor"),
    [("LVM-abc", 1, 1.0), ("CRYPT-LUKS2-x", 2, 1.0), ("mpath-3600", 2, 1.0), ("LVM-abc", 4, None)],
)
def test_a_mapping_over_several_devices_is_not_guessed(
    tmp_path: Path, uuid: str, below: int, factor: float | None
) -> None:
    write(tmp_path / "dm/uuid", uuid)
    for number in range(below):
        (tmp_path / f"slaves/sd{number}").mkdir(parents=True)
    found, reason = dm_redundancy(tmp_path)
    assert found == factor
    assert bool(reason) is (factor is None)


def test_a_mapping_without_uuid_over_one_device_writes_once(tmp_path: Path) -> None:
    (tmp_path / "slaves/sda").mkdir(parents=True)
    assert dm_redundancy(tmp_path) == (1.0, "")


@pytest.mark.parametrize(
    ("profiles", "factor"),
    [
        (["single"], 1.0),
        (["dup"], 2.0),
        (["raid1c3"], 3.0),
        (["raid1", "single"], None),
        ([], None),
    ],
)
def test_btrfs_takes_the_one_data_profile(
    tmp_path: Path, profiles: list[str], factor: float | None
) -> None:
    for profile in profiles:
        (tmp_path / "allocation/data" / profile).mkdir(parents=True)
    write(tmp_path / "allocation/data/flags", "1\n")
    found, reason = btrfs_redundancy(tmp_path)
    assert found == factor
    assert bool(reason) is (factor is None)
