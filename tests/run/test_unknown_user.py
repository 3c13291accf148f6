"""Whole commands as a user that the host does not know, such as a container's."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.power.nobody import as_nobody, folder_for_all, need_nobody
from wattload.core.home import STAND_INS

UNKNOWN_UID = 54321
COMMAND = "import sys; from wattload.__main__ import main; sys.exit(main(sys.argv[1:]))"


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder of the unknown user, with a target; remove what it leaves elsewhere."""
    need_nobody()
    with folder_for_all() as made:
        for path in (made / "own", made / "own/target"):
            path.mkdir()
            os.chown(path, UNKNOWN_UID, UNKNOWN_UID)
        yield made / "own"
    for stand_in in STAND_INS:
        shutil.rmtree(stand_in / f"wattload-{UNKNOWN_UID}", ignore_errors=True)


def run(*arguments: str, **environment: str) -> tuple[int, str]:
    """Run a command as the unknown user; return its status and all that it printed."""
    with as_nobody(COMMAND, *arguments, environment=environment, uid=UNKNOWN_UID) as process:
        output, errors = process.communicate(timeout=60)
    return process.returncode, output + errors


def test_a_run_and_what_follows_it_work(folder: Path) -> None:
    target = f"target.path={folder / 'target'}"
    runs = str(folder / "runs")
    null = ["workload=null", "power=none", "scale=demo", target, f"runs={runs}"]
    status, words = run("run", *null)
    assert status == 0, words
    for command in (
        ["check", runs],
        ["report", runs, "-o", str(folder / "page.html")],
        ["doctor"],
        ["clean", str(folder / "target")],
    ):
        status, words = run(*command)
        assert status == 0, words
    assert (STAND_INS[0] / f"wattload-{UNKNOWN_UID}").stat().st_mode & 0o777 == 0o700


def test_torch_reads_for_a_user_without_a_name_and_with_a_long_temporary_folder(
    folder: Path,
) -> None:
    long = folder / ("t" * 80)
    long.mkdir()
    os.chown(long, UNKNOWN_UID, UNKNOWN_UID)
    small = [
        "workload.sizes=dlio",
        "workload.file_count=7",
        "workload.epochs=1",
        "accelerator=unpaced",
    ]
    given = ["workload=unet3d", "loader=torch", "scale=demo", "power=none", *small]
    target = [f"target.path={folder / 'target'}", f"runs={folder / 'runs'}"]
    status, words = run("run", *given, *target, TMPDIR=str(long))
    assert status in (0, 3), words  # 3: checks of a host that does something else meanwhile
    assert "Error" not in words
