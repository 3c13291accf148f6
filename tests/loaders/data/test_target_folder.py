"""One run, data generation or clean works on a target at a time."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from wattload.core.errors import ForeignFileError, TargetError
from wattload.loaders.data.target_folder import TargetLock

HOLDER = """
import sys
from pathlib import Path
from wattload.loaders.data.target_folder import TargetLock
lock = TargetLock.acquire(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def lock_file(target: Path) -> Path:
    return target / "wattload-data" / ".wattload-lock"


def test_a_target_that_another_process_works_on_is_refused_with_its_id(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        works = rf"another wattload run or clean works on {tmp_path} \(process {holder.pid}\); wait"
        with pytest.raises(TargetError, match=works):
            TargetLock.acquire(tmp_path)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        with TargetLock.acquire(tmp_path):  # a holder that was killed holds nothing
            assert lock_file(tmp_path).read_text() == f"{os.getpid()}\n"


def test_a_released_target_can_be_locked_again(tmp_path: Path) -> None:
    lock = TargetLock.acquire(tmp_path)
    with pytest.raises(TargetError, match=rf"\(process {os.getpid()}\)"):
        TargetLock.acquire(tmp_path)
    lock.release()
    lock.release()
    with TargetLock.acquire(tmp_path):
        pass
    TargetLock.acquire(tmp_path).release()


def test_a_holder_that_can_not_be_told_is_left_out(tmp_path: Path) -> None:
    with TargetLock.acquire(tmp_path):
        lock_file(tmp_path).write_text("")
        with pytest.raises(TargetError, match=f"works on {tmp_path}; wait"):
            TargetLock.acquire(tmp_path)


def test_the_file_is_closed_to_readers_who_could_lock_it(tmp_path: Path) -> None:
    mask = os.umask(0)
    try:
        with TargetLock.acquire(tmp_path):
            assert stat.S_IMODE(lock_file(tmp_path).stat().st_mode) == 0o600
    finally:
        os.umask(mask)


FORKER = """
import os, sys
from pathlib import Path
from wattload.loaders.data.target_folder import TargetLock
with TargetLock.acquire(Path(sys.argv[1])) as lock:
    if os.fork() == 0:
        lock.release()
        print("forked", flush=True)
        sys.stdin.read()
        os._exit(0)
    os.waitpid(-1, 0) if sys.argv[2] == "waits" else sys.stdin.readline()
    os._exit(0)
"""


@pytest.mark.parametrize("parent", ["waits", "dies"])
def test_a_forked_process_neither_holds_nor_drops_the_lock(tmp_path: Path, parent: str) -> None:
    command = [sys.executable, "-c", FORKER, str(tmp_path), parent]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"forked\n"
        with pytest.raises(TargetError, match=f"process {process.pid}"):
            TargetLock.acquire(tmp_path)
        if parent == "dies":
            process.send_signal(signal.SIGKILL)
            process.wait()
            TargetLock.acquire(tmp_path).release()  # while the forked process still lives


def test_a_started_program_does_not_get_the_file(tmp_path: Path) -> None:
    with TargetLock.acquire(tmp_path):
        command = ["ls", "-l", "/proc/self/fd"]
        listed = subprocess.run(command, capture_output=True, check=True, close_fds=False)
    assert b".wattload-lock" not in listed.stdout


def test_removal_leaves_nothing_in_an_empty_target(tmp_path: Path) -> None:
    TargetLock.acquire(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


def test_removal_keeps_a_data_folder_in_which_something_lies(tmp_path: Path) -> None:
    lock = TargetLock.acquire(tmp_path)
    (tmp_path / "wattload-data" / "mine").write_text("mine")
    lock.remove()
    assert [path.name for path in (tmp_path / "wattload-data").iterdir()] == ["mine"]


def test_a_lock_on_a_removed_file_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wattload.core import files

    cleaner = TargetLock.acquire(tmp_path)
    lock = files._lock

    def remove_before(descriptor: int) -> None:
        if cleaner._lock in files._held:
            cleaner.remove()  # between the open and the flock of the process that comes
        lock(descriptor)

    monkeypatch.setattr(files, "_lock", remove_before)
    with (
        TargetLock.acquire(tmp_path),
        pytest.raises(TargetError, match="another wattload run"),
    ):
        TargetLock.acquire(tmp_path)


def test_a_target_that_went_away_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "target").mkdir()
    monkeypatch.chdir(tmp_path / "target")
    (tmp_path / "target").rmdir()
    with pytest.raises(TargetError, match="can't be locked"):
        TargetLock.acquire(Path())


def test_a_missing_target_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="is not a directory"):
        TargetLock.acquire(tmp_path / "none")


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "hanging link"])
def test_what_stands_in_place_of_the_lock_is_an_error(tmp_path: Path, kind: str) -> None:
    (tmp_path / "wattload-data").mkdir()
    mine = tmp_path / "mine"
    if kind != "hanging link":
        mine.write_text("mine")
    if kind == "pipe":
        os.mkfifo(lock_file(tmp_path))
    elif kind == "folder":
        lock_file(tmp_path).mkdir()
    else:
        lock_file(tmp_path).symlink_to(mine)
    with pytest.raises(ForeignFileError, match=r"wattload-lock is .*remove it"):
        TargetLock.acquire(tmp_path)
    assert mine.exists() == (kind != "hanging link")


def test_a_link_in_place_of_the_data_folder_is_an_error(tmp_path: Path) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    target.mkdir()
    outside.mkdir()
    (target / "wattload-data").symlink_to(outside)
    with pytest.raises(ForeignFileError, match="wattload-data is a symbolic link"):
        TargetLock.acquire(target)
    assert list(outside.iterdir()) == []
