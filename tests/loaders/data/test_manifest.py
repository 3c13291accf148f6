"""A line of a manifest is on the disk whole, or the caller is told, even where space runs out."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattload.core.errors import DataError
from wattload.loaders.data.data_folder import DataFolder, ManifestEntry, ManifestPart, read_parts

PART = ".wattload-manifest-0.jsonl"


@pytest.fixture
def small_target(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    target = tmp_path / "small"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(target)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this machine mounts no tmpfs")
    try:
        yield target
    finally:
        subprocess.run(["umount", str(target)], check=True)


def reserve_many(folder: DataFolder, accepted: set[str]) -> None:
    for number in range(10_000):
        folder.reserve(f"train/{number:05}")
        accepted.add(f"train/{number:05}")


def test_on_a_full_target_what_was_accepted_is_listed_and_nothing_else(small_target: Path) -> None:
    folder = DataFolder.claim(small_target, "w", {}, seed=0)
    accepted: set[str] = set()
    with pytest.raises(OSError, match="manifest-0") as refusal:
        reserve_many(folder, accepted)
    assert refusal.value.errno == errno.ENOSPC
    assert len(accepted) > 100
    assert folder.reserved == accepted
    assert read_parts(folder.path) == ({}, accepted)
    assert (folder.path / PART).read_bytes().endswith(b"\n")
    with pytest.raises(OSError, match="No space"):
        folder.reserve("train/99999")
    folder.close()
    again = DataFolder.claim(small_target, "w", {}, seed=0)
    assert again.reserved == accepted
    assert again.remove() == 0


LIMITED = """
import resource, sys
from pathlib import Path
from wattload.loaders.data.data_folder import ManifestPart
part, accepted = ManifestPart(Path(sys.argv[1]), 0), 0
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
try:
    while True:
        part.append(f"a{accepted}", None)
        accepted += 1
except OSError:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    part.append("after", None)
    print(accepted)
"""


def test_a_line_that_was_cut_short_is_taken_back_and_the_next_is_whole(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0).path
    command = [sys.executable, "-c", LIMITED, str(folder)]
    accepted = int(subprocess.run(command, capture_output=True, check=True).stdout)
    assert accepted > 10
    names = {f"a{number}" for number in range(accepted)} | {"after"}
    assert read_parts(folder) == ({}, names)


@pytest.mark.parametrize("torn", ['{"name": "b"', "{"])
def test_a_tail_that_was_torn_while_the_part_is_open_is_cut_off(tmp_path: Path, torn: str) -> None:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0).path
    part = ManifestPart(folder, 0)
    part.append("a", ManifestEntry(size_bytes=1, sha256=None))
    with (folder / PART).open("a") as file:
        file.write(torn)
    part.append("c", None)
    part.close()
    entries, reserved = read_parts(folder)
    assert (set(entries), reserved) == ({"a"}, {"c"})


def test_a_pipe_in_place_of_a_part_is_an_error(tmp_path: Path) -> None:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0)
    os.mkfifo(folder.path / PART)
    with pytest.raises(DataError, match="is a pipe"):
        folder.reserve("a")
    assert folder.reserved == set()
    with pytest.raises(DataError, match="is a pipe"):
        folder.reload()
