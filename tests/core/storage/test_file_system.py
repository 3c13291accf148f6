"""Mounts, O_DIRECT and extents, on this machine and from recordings."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import mmap
import os
from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from tests.data.sysfs.tree import write
from wattload.core.storage import file_system
from wattload.core.storage.file_system import (
    ExtentMap,
    count_extents,
    extent_map,
    find_direct_io,
    find_mount,
    is_on_root,
    read_mounts,
    scratch_file,
    statx_alignment,
)
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


def test_the_alignment_found_is_enough_for_a_direct_read_and_write(tmp_path: Path) -> None:
    found, reason = find_direct_io(tmp_path)
    if found is None:
        pytest.skip(f"no O_DIRECT under the tests: {reason}")
    size = max(found.offset_align_bytes, found.memory_align_bytes)
    with scratch_file(tmp_path, os.O_DIRECT) as descriptor, mmap.mmap(-1, size) as memory:
        memory[:] = b"w" * size
        assert os.pwritev(descriptor, [memory], size) == size
        memory[:] = bytes(size)
        assert os.preadv(descriptor, [memory], size) == size
        assert memory[:] == b"w" * size


def test_trying_out_agrees_with_statx(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_statx, _ = find_direct_io(tmp_path)
    if from_statx is None or from_statx.found_by != "statx":
        pytest.skip("statx does not tell alignments here")
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    tried, reason = find_direct_io(tmp_path)
    assert tried is not None, reason
    assert tried.found_by == "probe"
    assert tried.offset_align_bytes == max(512, from_statx.offset_align_bytes)


def test_a_file_system_that_refuses_is_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: (0, 0))
    assert find_direct_io(tmp_path) == (
        None,
        "the file system does not support O_DIRECT (statx)",
    )


def test_proc_allows_no_file() -> None:
    found, reason = find_direct_io(Path("/proc"))
    assert found is None
    assert reason is not None
    assert reason.startswith("no file can be created there")


def test_a_kernel_without_an_answer_gives_none() -> None:
    with Path("/proc/self/status").open("rb") as file:
        assert statx_alignment(file.fileno()) is None


def test_a_c_library_without_statx_gives_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: object())
    assert statx_alignment(0) is None


def test_a_closed_descriptor_gives_none() -> None:
    assert statx_alignment(-1) is None


@pytest.mark.parametrize("flags", [0, os.O_DIRECT])
def test_without_nameless_files_a_named_one_is_made_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int
) -> None:
    real_open = os.open

    def no_tmpfile(path: Path, wanted: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if wanted & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return real_open(path, wanted, mode, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", no_tmpfile)
    with scratch_file(tmp_path, flags) as descriptor:
        assert list(tmp_path.iterdir()) == []
        assert os.fstat(descriptor).st_nlink == 0


def test_a_refused_open_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real_open = os.open

    def no_direct(path: Path, wanted: int, mode: int = 0o777) -> int:
        if wanted & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_open(path, wanted, mode)

    monkeypatch.setattr(os, "open", no_direct)
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    assert find_direct_io(tmp_path) == (None, "open with O_DIRECT: Invalid argument")


def test_a_dropped_flag_is_no_direct_io(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "fcntl", lambda *_: os.O_RDWR)
    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    found, reason = find_direct_io(tmp_path)
    assert found is None
    assert reason is not None
    assert "ignored O_DIRECT" in reason


def test_a_larger_block_is_tried_where_512_bytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_write = os.pwritev

    def only(least: int) -> None:
        def write(descriptor: int, buffers: list[memoryview], offset: int) -> int:
            if len(buffers[0]) < least:
                raise OSError(errno.EINVAL, "Invalid argument")
            return real_write(descriptor, buffers, offset)

        monkeypatch.setattr(os, "pwritev", write)

    monkeypatch.setattr(file_system, "statx_alignment", lambda _: None)
    if find_direct_io(tmp_path)[0] is None:
        pytest.skip("no O_DIRECT under the tests")
    only(4096)
    found, _ = find_direct_io(tmp_path)
    assert found is not None
    assert (found.memory_align_bytes, found.offset_align_bytes) == (4096, 4096)
    only(8192)
    assert find_direct_io(tmp_path) == (None, "direct I/O of 4096 bytes: Invalid argument")


MIB = 1024 * 1024
SIZE = 1_000_001


def unwritten_bytes(path: Path) -> int | None:
    return extent_map(path).unwritten_bytes


def extents(path: Path) -> int:
    try:
        return count_extents(path)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            pytest.skip("the file system under the tests has no FIEMAP")
        raise


def test_an_empty_file_has_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert extents(tmp_path / "empty") == 0


def test_holes_part_a_file(tmp_path: Path) -> None:
    with (tmp_path / "holes").open("wb", 0) as file:
        for start in (0, 8 * MIB, 16 * MIB):
            os.pwrite(file.fileno(), b"x" * MIB, start)
    assert extents(tmp_path / "holes") >= 3


def test_a_file_system_without_fiemap_refuses() -> None:
    with pytest.raises(OSError, match="not supported"):
        count_extents(Path("/proc/self/status"))


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        count_extents(tmp_path / "link")


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.write_bytes(os.urandom(SIZE))
    return path


def test_a_file_that_was_written_whole_lacks_nothing(written: Path) -> None:
    assert unwritten_bytes(written) == 0


def test_holes_are_counted(written: Path) -> None:
    punch(written, 8192, 16384)
    punch(written, 65536, 4096)
    assert unwritten_bytes(written) == 16384 + 4096


def test_extents_that_were_never_written_are_counted_though_they_hold_blocks(
    written: Path,
) -> None:
    unwrite(written, 8192, 16384)
    status = written.stat()
    assert status.st_blocks * 512 >= status.st_size
    assert written.read_bytes()  # pages of zeros in memory make it no more written
    assert unwritten_bytes(written) == 16384


def test_a_hole_at_the_end_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4096))
    os.truncate(path, SIZE)
    assert unwritten_bytes(path) == SIZE - 4096
    path.write_bytes(b"")
    os.truncate(path, SIZE)
    assert unwritten_bytes(path) == SIZE


def test_more_extents_than_one_answer_holds_are_walked(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_system, "_ROOM", 2)
    for offset in range(0, 10 * 65536, 65536):
        punch(written, offset, 4096)
    assert unwritten_bytes(written) == 10 * 4096


def test_without_fiemap_holes_are_still_found(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no FIEMAP")

    monkeypatch.setattr(fcntl, "ioctl", refuses)
    assert extent_map(written) == ExtentMap(None, None)
    punch(written)
    assert unwritten_bytes(written) == 16384
    os.truncate(written, 2 * SIZE)
    assert (unwritten_bytes(written) or 0) >= 16384 + SIZE - 4096


def test_the_digest_of_a_map_follows_the_extents_and_not_the_bytes(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = extent_map(written).sha256
    with written.open("r+b", 0) as file:
        file.write(os.urandom(4096))
    assert before is not None
    assert extent_map(written).sha256 == before
    monkeypatch.setattr(file_system, "_ROOM", 1)
    assert extent_map(written).sha256 == before
    unwrite(written)
    unwritten = extent_map(written).sha256
    punch(written)
    assert len({before, unwritten, extent_map(written).sha256}) == 3


def test_any_other_failure_is_reported(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "ioctl", fails)
    with pytest.raises(OSError, match="broken"):
        unwritten_bytes(written)
