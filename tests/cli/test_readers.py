"""Nobody reads the output any more: no command ends because of it, or with another status."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, SLOW, command, environment, record_of, until

WATTLOAD = (sys.executable, "-m", "wattload")


@pytest.mark.parametrize(
    ("words", "status", "unbuffered"),
    [
        (["settings"], 0, ""),
        (["settings"], 0, "1"),
        (["--help"], 0, "1"),
        (["doctor"], 0, ""),
        (["report", "nothing"], 2, "1"),
        (["no"], 2, ""),
    ],
)
def test_a_closed_pipe_changes_no_status(
    tmp_path: Path, words: list[str], status: int, unbuffered: str
) -> None:
    source, sink = os.pipe()
    os.close(source)
    variables = environment(tmp_path, PYTHONUNBUFFERED=unbuffered)
    done = subprocess.run(
        [*WATTLOAD, *words],
        env=variables,
        cwd=tmp_path,
        stdout=sink,
        stderr=sink,
        timeout=DEADLINE_S,
        check=False,
    )
    os.close(sink)
    assert done.returncode == status


@pytest.mark.parametrize("closing", ["2>&-", ">&- 2>&-"])
def test_closed_streams_change_no_status(tmp_path: Path, closing: str) -> None:
    words = command(tmp_path, "workload=null", "power=none")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closing}', "run", *words],
        env=environment(tmp_path),
        cwd=tmp_path,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0
    assert record_of(tmp_path).status == "complete"


def test_a_run_goes_on_when_its_reader_has_its_line(tmp_path: Path) -> None:
    """As with ``wattload run ... 2>&1 | head -1``: all that follows is written to a closed pipe."""
    source, sink = os.pipe()
    with subprocess.Popen(
        command(tmp_path, *SLOW),
        env=environment(tmp_path, WATTLOAD_TEST_STOP="nap"),
        cwd=tmp_path,
        stdout=sink,
        stderr=sink,
        text=True,
    ) as process:
        os.close(sink)
        with os.fdopen(source) as reader:
            assert reader.readline()
        until((tmp_path / "target" / "waiting-0").exists, process)
        (tmp_path / "target" / "go-on").touch()
        # No device moved the bytes that it counts, unless others moved as many.
        assert process.wait(timeout=DEADLINE_S) in (0, 3)
    assert record_of(tmp_path).status == "complete"


def test_a_run_goes_on_when_its_terminal_is_closed(tmp_path: Path) -> None:
    """Writes to it then fail with EIO."""
    terminal, end = pty.openpty()
    with subprocess.Popen(
        command(tmp_path, *SLOW),
        env=environment(tmp_path, WATTLOAD_TEST_STOP="nap"),
        cwd=tmp_path,
        stdout=end,
        stderr=end,
        text=True,
        start_new_session=True,
    ) as process:
        os.close(end)
        until((tmp_path / "target" / "waiting-0").exists, process)
        os.close(terminal)
        (tmp_path / "target" / "go-on").touch()
        # No device moved the bytes that it counts, unless others moved as many.
        assert process.wait(timeout=DEADLINE_S) in (0, 3)
    assert record_of(tmp_path).status == "complete"
