"""Extents of real files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from wattload.core.extents import count_extents

MIB = 1024 * 1024


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
