"""Which mount a path lies on, and what kind of file system that is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.sysfs.tree import write
from wattload.core.storage.file_system import find_mount, is_on_root, read_mounts
from wattload.core.sysfs import Roots

LINES = r"""
22 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw,discard
30 22 0:25 / /mnt rw,nosuid - tmpfs tmpfs rw,size=64k
31 30 259:0 / /mnt/fast rw,noatime shared:5 master:2 - xfs /dev/nvme0n1 rw,attr2
32 22 259:1 / /mnt/hidden rw - ext4 /dev/nvme1n1 rw
33 22 0:40 / /data/my\040disk rw - nfs4 server:/export rw,vers=4.2
34 22 8:2 /home /bind rw - ext4 /dev/sda2 rw,discard
35 33 0:50 / /data/my\040disk rw - fuse.sshfs user@host: rw
36 22 0:51 / /fuse rw - fuse.mergerfs a:b rw
37 22 0:52 / /what rw - newfs none rw
"""


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    write(tmp_path / "proc/self/mountinfo", LINES.lstrip())
    return Roots(proc=tmp_path / "proc")


@pytest.mark.parametrize(
    ("path", "point", "kind", "category"),
    [
        ("/", "/", "ext4", "local"),
        ("/home/me", "/", "ext4", "local"),
        ("/mntx", "/", "ext4", "local"),
        ("/mnt/other", "/mnt", "tmpfs", "memory"),
        ("/mnt/fast/deep/er", "/mnt/fast", "xfs", "local"),
        ("/fuse/x", "/fuse", "fuse.mergerfs", "fuse"),
        ("/what", "/what", "newfs", "unknown"),
    ],
)
def test_a_path_lies_on_the_mount_that_covers_it(
    roots: Roots, path: str, point: str, kind: str, category: str
) -> None:
    mount = find_mount(Path(path), read_mounts(roots))
    assert mount is not None
    assert (str(mount.mount_point), mount.type, mount.category) == (point, kind, category)


def test_a_mount_hidden_by_a_later_one_is_not_taken(roots: Roots) -> None:
    mount = find_mount(Path("/mnt/hidden"), read_mounts(roots))
    assert mount is not None
    assert mount.type == "tmpfs"  # /mnt covers /mnt/hidden of the root file system


def test_the_upper_of_two_mounts_on_one_point_is_taken(roots: Roots) -> None:
    mount = find_mount(Path("/data/my disk/file"), read_mounts(roots))
    assert mount is not None
    assert (mount.type, mount.category, mount.source) == ("fuse.sshfs", "network", "user@host:")


def test_options_of_mount_and_file_system_are_joined_once(roots: Roots) -> None:
    mount = find_mount(Path("/mnt/fast"), read_mounts(roots))
    assert mount is not None
    assert mount.options == ("rw", "noatime", "attr2")


def test_option_values_are_found_by_name(roots: Roots) -> None:
    mount = find_mount(Path("/mnt"), read_mounts(roots))
    assert mount is not None
    assert mount.option("size") == "64k"
    assert mount.option("siz") is None


def test_a_bind_mount_of_the_root_disk_counts_as_root(roots: Roots) -> None:
    mounts = read_mounts(roots)
    by_point = {str(mount.mount_point): mount for mount in mounts}
    assert is_on_root(by_point["/bind"], mounts)
    assert not is_on_root(by_point["/mnt/fast"], mounts)


def test_two_subvolumes_of_one_btrfs_are_one_file_system(tmp_path: Path) -> None:
    write(
        tmp_path / "proc/self/mountinfo",
        "22 1 0:30 /@ / rw - btrfs /dev/nvme0n1p3 rw,subvol=/@\n"
        "23 22 0:30 /@home /home rw - btrfs /dev/nvme0n1p3 rw,subvol=/@home\n"
        "24 22 0:44 / /fast rw - btrfs /dev/nvme1n1 rw\n",
    )
    mounts = read_mounts(Roots(proc=tmp_path / "proc"))
    assert [is_on_root(mount, mounts) for mount in mounts] == [True, True, False]


def test_without_a_root_no_path_has_a_mount(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/mountinfo", "23 22 0:30 / /home rw - tmpfs tmpfs rw\n")
    mounts = read_mounts(Roots(proc=tmp_path / "proc"))
    assert find_mount(Path("/home"), mounts) is None
    assert not is_on_root(mounts[0], mounts)


def test_every_mount_of_this_machine_is_parsed() -> None:
    mounts = read_mounts()
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    assert len(mounts) == len(lines)
    mount = find_mount(Path("/proc/self"), mounts)
    assert mount is not None
    assert mount.type == "proc"
