"""Data files are read again exactly when something about them has changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.allocation import unwrite
from tests.context import Context, ThreadCommunicator, context_at, directory_target, run_ranks
from wattload.core.errors import DataError
from wattload.loaders.data.data_folder import DataFolder
from wattload.loaders.data.verification import (
    TICK_NS,
    DataFile,
    FileState,
    VerifiedFile,
    content_of,
    digests_check,
    verify,
)

NAMES = ("a", "b", "c")
SIZE = 100_000


def settle() -> None:
    """Wait until a change of a file that exists would show in its times."""
    time.sleep(2 * TICK_NS / 1e9)


@pytest.fixture
def folder(tmp_path: Path) -> DataFolder:
    folder = DataFolder.claim(tmp_path, "w", {}, seed=0)
    for name in NAMES:
        folder.reserve(name)
        path = folder.path / name
        path.write_bytes(os.urandom(SIZE - 1) + b"\n")
        folder.record(name, SIZE, content_of(path, lambda _: None).sha256)
    settle()
    return folder


def wanted(folder: DataFolder) -> list[DataFile]:
    return [
        DataFile(
            folder=folder,
            name=name,
            path=folder.path / name,
            sha256=folder.entries[name].sha256,
            line_count=None,
            remedy="delete it",
        )
        for name in NAMES
    ]


def read_names(folder: DataFolder) -> list[str]:
    """Verify, and return the names of the files that were read."""
    files = verify(wanted(folder), context_at(folder.path.parent.parent))
    return [file.path.name for file in files if file.was_read]


def test_each_file_is_read_once(folder: DataFolder) -> None:
    assert read_names(folder) == list(NAMES)
    assert read_names(folder) == []
    assert folder.foreign() == ()


def touch(path: Path) -> None:
    os.utime(path)


def rewrite(path: Path) -> None:
    """Write the same bytes and restore the time of modification."""
    before = path.stat()
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_copy(path: Path) -> None:
    """Replace the file by a copy of it with the same times, owner and mode."""
    subprocess.run(["cp", "-a", path, path.with_name("copy")], check=True)
    path.with_name("copy").rename(path)


def change_mode(path: Path) -> None:
    path.chmod(0o600)


@pytest.mark.parametrize("change", [touch, rewrite, replace_by_copy, change_mode])
def test_a_file_that_may_have_changed_is_read_again(
    folder: DataFolder, change: Callable[[Path], None]
) -> None:
    read_names(folder)
    change(folder.path / "b")
    settle()
    assert read_names(folder) == ["b"]
    assert read_names(folder) == []


def flip(path: Path) -> None:
    """Flip one bit in place and restore the time of modification."""
    before = path.stat()
    with path.open("r+b", 0) as file:
        os.pwrite(file.fileno(), bytes([os.pread(file.fileno(), 1, 50_000)[0] ^ 1]), 50_000)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replace_by_changed_copy(path: Path) -> None:
    replace_by_copy(path)
    flip(path)


@pytest.mark.parametrize("change", [flip, replace_by_changed_copy, unwrite])
def test_changed_bytes_are_refused_although_the_time_was_restored(
    folder: DataFolder, change: Callable[[Path], None]
) -> None:
    read_names(folder)
    change(folder.path / "b")
    for _ in range(2):  # a refusal is not remembered as a verification
        with pytest.raises(DataError, match=r"/b is not what was written: .*; delete it"):
            read_names(folder)


def test_a_moved_extent_is_read_again(folder: DataFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    read_names(folder)
    state = FileState.of(folder.path / "a")
    if state.extents_sha256 is None:
        pytest.skip("the file system under the tests has no FIEMAP")
    moved = replace(state, extents_sha256="another map")
    monkeypatch.setattr(
        FileState,
        "of",
        lambda path, of=FileState.of: moved if path.name == "a" else of(path),
    )
    assert read_names(folder) == ["a"]


def test_a_copy_of_the_whole_folder_is_verified_anew(folder: DataFolder, tmp_path: Path) -> None:
    read_names(folder)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    copied = elsewhere / "wattload-data"
    subprocess.run(["cp", "-a", folder.path.parent, copied], check=True)
    copy = DataFolder(copied / folder.key, folder.key)
    flip(copy.path / "c")
    with pytest.raises(DataError, match=r"elsewhere/.*/c is not what was written"):
        read_names(copy)
    shutil.copy2(folder.path / "c", copy.path / "c")
    settle()
    assert read_names(copy) == list(NAMES)


def test_another_digest_in_the_manifest_is_compared_anew(folder: DataFolder) -> None:
    read_names(folder)
    folder.record("a", SIZE, "0" * 64)
    with pytest.raises(DataError, match=r"/a is not .* where 000000000000 was recorded"):
        read_names(folder)


def test_a_wrong_count_of_lines_is_refused(folder: DataFolder) -> None:
    lines = content_of(folder.path / "a", lambda _: None).line_count
    files = [replace(wanted(folder)[0], line_count=lines + 1)]
    with pytest.raises(DataError, match=f"it has {lines} lines where {lines + 1} were to be"):
        verify(files, context_at(folder.path.parent.parent))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"content": {}, "state": 1}}'])
def test_damaged_notes_mean_that_all_is_read_again(folder: DataFolder, text: str) -> None:
    read_names(folder)
    folder.verified = text
    assert read_names(folder) == list(NAMES)


def test_a_file_whose_changes_would_not_show_is_read_by_every_run() -> None:
    def state(ctime_ns: int) -> FileState:
        return FileState(1, 2, 3, 4, ctime_ns, None)

    now_ns = 1_700_000_000_123_456_789
    assert state(now_ns - TICK_NS - 1).shows_later_changes(now_ns)
    assert not state(now_ns - TICK_NS).shows_later_changes(now_ns), "within one tick"
    assert not state(now_ns + 1).shows_later_changes(now_ns), "the clock was set back"
    assert not state(1_600_000_000_000_000_000).shows_later_changes(now_ns), "whole seconds"


def test_ranks_share_the_reading_and_all_know_the_result(
    folder: DataFolder, tmp_path: Path
) -> None:
    contexts = [
        Context(targets=(directory_target(tmp_path),), communicator=communicator)
        for communicator in ThreadCommunicator.world(2)
    ]

    def of_rank(context: Context) -> list[VerifiedFile]:
        return verify(wanted(folder), context)

    first, second = run_ranks(contexts, of_rank)
    assert first == second
    assert [file.path.name for file in first] == list(NAMES)
    assert read_names(folder) == []


def test_a_file_that_changes_during_the_run_fails_the_check(folder: DataFolder) -> None:
    files = verify(wanted(folder), context_at(folder.path.parent.parent))
    check = digests_check(files)
    assert (check.verdict, check.figures["read_count"]) == ("pass", 3)
    flip(folder.path / "b")
    check = digests_check(files)
    assert (check.verdict, check.figures["changed_count"]) == ("fail", 1)
    assert "b was changed during the run" in check.sentence
    (folder.path / "c").unlink()
    assert digests_check(files).figures["changed_count"] == 2


def test_the_content_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    for content, lines in ((b"", 0), (b"\n", 1), (b"a\nb", 2), (b"a\nb\n" * 3_000_000, 6_000_000)):
        path.write_bytes(content)
        moved: list[int] = []
        found = content_of(path, moved.append)
        assert (found.size_bytes, found.line_count) == (len(content), lines)
        assert sum(moved) == len(content)


def test_a_link_in_the_place_of_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="symbolic links"):
        content_of(tmp_path / "link", lambda _: None)
