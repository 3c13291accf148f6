"""Extents of real files."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from wattload.core.storage import file_system
from wattload.core.storage.file_system import ExtentMap, count_extents, extent_map

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
