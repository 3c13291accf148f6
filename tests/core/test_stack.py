"""The way from a mount to its devices, and the drives that the system itself needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import expand, write
from wattload.core.mounts import Mount, find_mount, read_mounts
from wattload.core.stack import find_stack, system_drives, upper_mount
from wattload.core.sysfs import Roots


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
        ("rw,lowerdir=/a,upperdir=/seen", "lies on an overlay itself"),
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
        "tmpfs is memory: no block device lies under it",
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 0 0:30 / / rw - zfs tank/data rw", "zfs does not show"),
        ("1 0 0:30 / / rw - fuse.mergerfs a rw", "fuse.mergerfs does not show"),
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
    assert drives.unknown.startswith("what holds swap /var/x")
