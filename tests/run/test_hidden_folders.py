"""Folders of runs that were killed before the folder had its name, at each system call."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from wattload.cli.main import dispatch
from wattload.core.record.file import remove_unborn, unborn_folder
from wattload.run.folder import make_run_folder

MANY = 1000
CALLS = ("mkdir", "open", "write", "fsync", "rename", "unlink")


def hidden(runs: Path) -> list[Path]:
    return list(runs.glob(".*"))


def child(work: Callable[[], object]) -> int:
    """Do work in a process of its own; return how it ended (``waitpid``)."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]


def make(runs: Path, *, killed_at: int = MANY) -> None:
    """Make a run's folder; kill this process at a system call, counted from the first ``mkdir``."""
    count = -1

    def counted(real: Callable[..., object]) -> Callable[..., object]:
        def call(*given: object, **more: object) -> object:
            nonlocal count
            done = real(*given, **more)
            if count >= 0 or real is mkdir:
                count += 1
            if count == killed_at + 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return done

        return call

    mkdir = os.mkdir
    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    make_run_folder(runs / "run", {"seed": 1}, "{}")


@pytest.mark.thorough
def test_a_folder_that_was_never_born_goes_whenever_its_process_was_killed(tmp_path: Path) -> None:
    left = 0
    for step in range(MANY):
        runs = tmp_path / str(step)
        runs.mkdir()
        ended = child(partial(make, runs, killed_at=step))
        left += len(hidden(runs))
        remove_unborn(runs)
        assert hidden(runs) == []
        if ended != signal.SIGKILL:
            break
    assert ended == 0
    assert (runs / "run").is_dir()
    assert 0 < left < step  # some were killed after the folder had its name


def test_a_folder_whose_process_lives_stays(tmp_path: Path) -> None:
    there, go_on = os.pipe(), os.pipe()

    def work() -> None:
        mkdir = os.mkdir

        def held(*given: Any, **more: Any) -> None:
            mkdir(*given, **more)
            os.write(there[1], b".")
            os.read(go_on[0], 1)

        os.mkdir = held
        make(tmp_path)

    def watch() -> None:
        os.read(there[0], 1)
        (empty,) = hidden(tmp_path)
        assert not list(empty.iterdir())
        remove_unborn(tmp_path)
        assert hidden(tmp_path) == [empty]
        os.write(go_on[1], b".")

    pid = os.fork()
    if not pid:
        work()
        os._exit(0)
    watch()
    assert os.waitpid(pid, 0)[1] == 0
    assert (tmp_path / "run").is_dir()
    for each in (*there, *go_on):
        os.close(each)


def test_a_new_folder_of_another_boot_or_container_stays(tmp_path: Path) -> None:
    own = unborn_folder(tmp_path / "run").name
    boot, namespace, pid, start = own.removeprefix(".run.").removesuffix(".new").rsplit("-", 3)
    for maker in (f"{uuid4()}-{namespace}", f"{boot}-1"):
        folder = tmp_path / f".run.{maker}-{pid}-{int(start) + 1}.new"
        folder.mkdir()
        remove_unborn(tmp_path)
        assert folder.exists()
        folder.rmdir()
    (tmp_path / f".run.{boot}-{namespace}-{pid}-{int(start) + 1}.new").mkdir()
    remove_unborn(tmp_path)
    assert hidden(tmp_path) == []


def test_the_next_command_removes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    runs.mkdir()
    assert child(lambda: make(runs, killed_at=1)) == signal.SIGKILL
    assert hidden(runs)
    assert dispatch(["clean", "."]) == 0
    assert not hidden(runs)
