from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.allocation import punch, unwrite
from wattload.core.errors import DataError
from wattload.core.storage.file_system import written_extents_check


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(os.urandom(1 << 16))
    return paths


def test_files_that_were_written_pass(files: list[Path]) -> None:
    check = written_extents_check(files, remedy="")
    assert (check.verdict, check.figures["file_count"]) == ("pass", 2)


@pytest.mark.parametrize("hollow_out", [punch, unwrite])
def test_a_hollow_file_is_refused_with_what_to_do(
    files: list[Path], hollow_out: Callable[[Path], None]
) -> None:
    hollow_out(files[1])
    with pytest.raises(DataError, match=r"/b has 16.38 kB in holes .*the drive; delete it$"):
        written_extents_check(files, remedy="delete it")


def test_a_file_of_another_length_than_its_data_is_refused(files: list[Path]) -> None:
    os.truncate(files[0], 1 << 20)
    with pytest.raises(DataError, match=r"/a has 983.04 kB in holes"):
        written_extents_check(files, remedy="delete it")


def test_a_file_system_that_can_not_say_leaves_it_unchecked(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no FIEMAP")

    monkeypatch.setattr(fcntl, "ioctl", refuses)
    check = written_extents_check(files, remedy="")
    assert (check.verdict, check.figures["unknown_count"]) == ("not_checked", 2)
    assert "does not report unwritten extents" in check.sentence
    punch(files[0])
    with pytest.raises(DataError, match=r"/a has 16.38 kB in holes"):
        written_extents_check(files, remedy="")
