from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from tests.context import context_at, directory_target
from wattload.workloads.unet3d import allocation
from wattload.workloads.unet3d.allocation import unwritten_bytes
from wattload.workloads.unet3d.config import Config
from wattload.workloads.unet3d.dataset import Dataset
from wattload.workloads.unet3d.generate import prepare

SIZE = 1_000_001


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
    monkeypatch.setattr(allocation, "_ROOM", 2)
    for offset in range(0, 10 * 65536, 65536):
        punch(written, offset, 4096)
    assert unwritten_bytes(written) == 10 * 4096


def test_without_fiemap_holes_are_still_found(
    written: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no FIEMAP")

    monkeypatch.setattr(fcntl, "ioctl", refuses)
    assert unwritten_bytes(written) == 0
    punch(written)
    assert unwritten_bytes(written) == 16384
    os.truncate(written, 2 * SIZE)
    assert unwritten_bytes(written) >= 16384 + SIZE - 4096


def test_any_other_failure_is_told(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(fcntl, "ioctl", fails)
    with pytest.raises(OSError, match="broken"):
        unwritten_bytes(written)


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_hollow_data_is_made_again(tmp_path: Path, hollow_out: object) -> None:
    def planned() -> Dataset:
        return Dataset(Config(record_divisor=640), 10, (directory_target(tmp_path),))

    first, _ = prepare(planned(), context_at(tmp_path))
    before = [path.read_bytes() for path in first.paths]
    for index in (2, 7):
        hollow_out(first.paths[index])  # type: ignore[operator]
    dataset = planned()
    assert dataset.missing(dataset.existing()) == [2, 7]
    second, reused = prepare(dataset, context_at(tmp_path))
    assert not reused
    assert second.hollow_count == 2
    assert [path.read_bytes() for path in second.paths] == before
    assert dataset.missing(dataset.existing()) == []
