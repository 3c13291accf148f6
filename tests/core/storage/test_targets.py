"""Targets on this machine's own file systems: what is accepted, refused, and said of them."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.core.storage.mounting import mounted, mounted_image
from tests.data.sysfs.tree import write
from wattload.core.errors import TargetError
from wattload.core.storage.targets import (
    DATA_FOLDER_NAME,
    Target,
    TargetKind,
    check_writable,
    resolve_targets,
    target_state,
)
from wattload.core.sysfs import Roots

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MIB = 1024 * 1024


def resolve(path: Path) -> Target:
    (target,) = resolve_targets([path], host="box")
    return target


def test_a_directory_is_resolved_to_its_file_system(tmp_path: Path) -> None:
    target = resolve(tmp_path)
    assert (target.kind, target.path, target.index) == (TargetKind.DIRECTORY, tmp_path, 0)
    system = target.facts.file_system
    assert system is not None
    assert tmp_path.is_relative_to(system.mount_point)
    assert system.total_bytes == os.statvfs(tmp_path).f_frsize * os.statvfs(tmp_path).f_blocks
    assert target.data_folder == tmp_path / DATA_FOLDER_NAME


def test_the_stack_begins_at_the_device_that_stat_names(tmp_path: Path) -> None:
    number = tmp_path.stat().st_dev
    if os.major(number) == 0:
        pytest.skip("the file system under the tests has no block device")
    stack = resolve(tmp_path).facts.stack
    assert stack is not None
    assert stack.major_minor == f"{os.major(number)}:{os.minor(number)}"


def test_several_targets_keep_their_order(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("b", "a")]
    for folder in folders:
        folder.mkdir()
    targets = resolve_targets([str(folder) for folder in folders], host="box")
    assert [(target.index, target.path) for target in targets] == list(enumerate(folders))


def test_a_link_to_a_directory_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert resolve(tmp_path / "link").path == tmp_path / "real"


def test_resolving_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(resolve(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_no_target_is_refused() -> None:
    with pytest.raises(TargetError, match=r"no target was given; name a directory"):
        resolve_targets([], host="box")


def test_one_directory_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="named twice"):
        resolve_targets([tmp_path, tmp_path / "." / ""], host="box")


def test_a_missing_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"nowhere does not exist; create the directory"):
        resolve(tmp_path / "nowhere")


def test_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TargetError, match="is a file; name its folder"):
        resolve(tmp_path / "file")


def test_a_socket_or_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(TargetError, match="is not a directory"):
        resolve(tmp_path / "pipe")


def test_a_circle_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    with pytest.raises(TargetError, match="can't be used as a target"):
        resolve(tmp_path / "one")


def test_a_block_device_is_refused() -> None:
    nodes = [path for path in Path("/dev").iterdir() if path.is_block_device()]
    if not nodes:
        pytest.skip("no block device node in /dev")
    with pytest.raises(TargetError, match="is a block device; mount its file system"):
        resolve(nodes[0])


@ROOT_ONLY
@pytest.mark.parametrize("name", ["nvme7", "ng7n1"])
def test_an_nvme_character_device_is_refused(tmp_path: Path, name: str) -> None:
    node = tmp_path / name
    try:
        os.mknod(node, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("mknod is not allowed here")
    with pytest.raises(TargetError, match="is an NVMe character device"):
        resolve(node)


def test_mounts_that_can_not_be_read_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="the mounts of this host can't be read"):
        resolve_targets([tmp_path], host="box", roots=Roots(proc=tmp_path))


def test_a_path_without_mount_has_reasons(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/mountinfo", "1 0 0:9 / /elsewhere rw - tmpfs tmpfs rw\n")
    (target,) = resolve_targets([tmp_path], host="box", roots=Roots(proc=tmp_path / "proc"))
    assert target.facts.missing["file_system"] == "no mount covers the directory"


@pytest.mark.parametrize(
    ("line", "warning"),
    [
        ("0:40 / / rw - nfs4 server:/export rw", "the network and the server"),
        ("0:40 / / rw - fuse.mergerfs a:b rw", "a program in user space"),
        ("0:40 / / rw - tmpfs tmpfs rw", "nothing here reaches a drive"),
        ("0:40 / / rw - overlay overlay rw,lowerdir=/a", "mount the drive under test"),
        ("8:2 / / rw - btrfs /dev/sda2 rw,compress=zstd:1", "compresses"),
        ("8:2 / / rw - ext4 /dev/sda2 rw", "is on the root file system"),
    ],
)
def test_what_a_reader_must_know_is_a_warning(tmp_path: Path, line: str, warning: str) -> None:
    write(tmp_path / "proc/self/mountinfo", f"1 0 {line}\n")
    roots = Roots(proc=tmp_path / "proc", sys=tmp_path / "sys", top=tmp_path)
    (target,) = resolve_targets([tmp_path], host="box", roots=roots)
    assert any(warning in text for text in target.facts.warnings), target.facts.warnings


def test_a_network_target_has_one_node_and_no_devices(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/mountinfo", "1 0 0:40 / / rw - nfs4 server:/export rw\n")
    (target,) = resolve_targets([tmp_path], host="box", roots=Roots(proc=tmp_path / "proc"))
    assert target.facts.stack is not None
    assert (target.facts.stack.kind, target.facts.stack.name) == ("network", "server:/export")
    assert target.facts.devices == ()
    assert target.facts.missing["virtual"] == "the server's disks can't be seen from here"


def test_memory_has_no_stack() -> None:
    target = resolve(Path("/dev/shm"))
    if target.facts.file_system is None or target.facts.file_system.type != "tmpfs":
        pytest.skip("/dev/shm is no tmpfs here")
    assert target.facts.missing["stack"] == "tmpfs is memory: there is no block device under it"
    assert target.facts.virtual is False


def test_an_overlay_leads_to_the_disk_of_its_upper_folder(tmp_path: Path) -> None:
    for name in ("lower", "upper", "work"):
        (tmp_path / name).mkdir()
    options = ",".join(
        f"{option}={tmp_path / name}"
        for option, name in (("lowerdir", "lower"), ("upperdir", "upper"), ("workdir", "work"))
    )
    with mounted(tmp_path / "merged", "-t", "overlay", "-o", options, "overlay") as folder:
        target = resolve(folder)
        check_writable(target)
    below = resolve(tmp_path / "upper")
    assert target.facts.file_system is not None
    assert below.facts.file_system is not None
    assert target.facts.file_system.category == "overlay"
    assert target.facts.devices == below.facts.devices
    assert target.facts.file_system.is_root == below.facts.file_system.is_root


def test_a_loop_mount_leads_to_the_disk_of_its_file(tmp_path: Path) -> None:
    with mounted_image(tmp_path, size_bytes=8 * MIB) as folder:
        target = resolve(folder)
    assert target.facts.stack is not None
    assert target.facts.stack.kind == "loop"
    assert target.facts.stack.model == f"file {tmp_path / 'disk.img'}"
    below = resolve(tmp_path).facts
    assert target.facts.devices == (below.devices or (target.facts.stack.name,))


def test_a_read_only_file_system_is_refused(tmp_path: Path) -> None:
    with mounted(tmp_path / "ro", "-t", "tmpfs", "-o", "ro,size=64k", "tmpfs") as folder:
        target = resolve(folder)
        assert target.direct_io is None
        with pytest.raises(TargetError, match=r"read-only file system \(tmpfs mounted at"):
            check_writable(target)


def fill(file: BinaryIO) -> None:
    while True:
        file.write(bytes(1024))


def test_a_full_file_system_is_refused(tmp_path: Path) -> None:
    with mounted_image(tmp_path, size_bytes=4 * MIB) as folder:
        with (folder / "fill").open("wb", 0) as file, pytest.raises(OSError, match="No space"):
            fill(file)
        with pytest.raises(TargetError, match=r"mounted is full \(ext4"):
            check_writable(resolve(folder))


@ROOT_ONLY
def test_a_folder_of_somebody_else_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir(mode=0o755)
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == 0 and parent.is_relative_to(tempfile.gettempdir()):
            parent.chmod(parent.stat().st_mode | 0o055)
    os.seteuid(65534)
    try:
        target = resolve(folder)
        with pytest.raises(TargetError, match=r"is not writable by user 65534; run `sudo chown"):
            check_writable(target)
    finally:
        os.seteuid(0)
    assert target.direct_io_missing is not None
    assert "Permission denied" in target.direct_io_missing


def test_a_folder_that_went_away_can_not_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    target = resolve(folder)
    folder.rmdir()
    with pytest.raises(TargetError, match="gone can't be written"):
        check_writable(target)
    state = target_state(target, [])
    assert state.missing["free_bytes"] == "statvfs: No such file or directory"


def test_a_file_system_on_compressed_memory_is_a_warning(tmp_path: Path) -> None:
    write(tmp_path / "proc/self/mountinfo", "1 0 253:0 / / rw - ext4 /dev/zram0 rw\n")
    write(tmp_path / "sys/devices/virtual/block/zram0/size", "8\n")
    write(tmp_path / "sys/devices/virtual/block/zram0/dev", "253:0\n")
    (tmp_path / "sys/dev/block").mkdir(parents=True)
    (tmp_path / "sys/dev/block/253:0").symlink_to("../../devices/virtual/block/zram0")
    roots = Roots(proc=tmp_path / "proc", sys=tmp_path / "sys", top=tmp_path)
    (target,) = resolve_targets([tmp_path], host="box", roots=roots)
    assert any("block device is memory" in text for text in target.facts.warnings)


def test_a_state_counts_free_bytes_and_extents(tmp_path: Path) -> None:
    target = resolve(tmp_path)
    file = target.data_folder / "key" / "a.npz"
    write(file, bytes(MIB))
    elsewhere = tmp_path / "b"
    write(elsewhere, b"")
    state = target_state(target, [file, elsewhere])
    if state.extents_per_file is None:
        pytest.skip(state.missing["extents_per_file"])
    assert state.extents_per_file == {"key/a.npz": 1, "b": 0}
    assert state.free_bytes is not None
    assert 0 < state.free_bytes <= os.statvfs(tmp_path).f_frsize * os.statvfs(tmp_path).f_blocks
    assert state.fill_fraction is not None
    assert 0 < state.fill_fraction < 1


def test_extents_that_are_not_shown_have_a_reason(tmp_path: Path) -> None:
    state = target_state(resolve(tmp_path), [tmp_path / "missing"])
    assert state.missing["extents_per_file"] == "FIEMAP of missing: No such file or directory"
