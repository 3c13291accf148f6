"""A session whose run fails or is interrupted says where it stands, and each thing once."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from tests.run.running import DEADLINE_S, SLOW, command, environment, run_folder, until


@pytest.mark.parametrize(
    ("variables", "status", "said", "shows_progress"),
    [
        ({"WATTLOAD_TEST_STOP": "run"}, 130, "interrupted", False),
        ({"WATTLOAD_TEST_FAIL": "0"}, 2, "the record on this rank is torn", True),
    ],
)
def test_a_session_that_ends_early_says_how_to_go_on(
    tmp_path: Path, variables: dict[str, str], status: int, said: str, shows_progress: bool
) -> None:
    with subprocess.Popen(
        command(tmp_path, "-m", "repeat=2", *SLOW),
        env=environment(tmp_path, **variables),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        if status == 130:
            until((tmp_path / "target" / "waiting-0").exists, process)
            process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == status
    assert out == ""
    folder = run_folder(tmp_path)
    shown = f"  next        wattload check {folder} shows how far it got"
    lines = errors.splitlines()
    assert lines[lines.index(f"wattload: {said}") :] == [
        f"wattload: {said}",
        f"  record      {folder / 'record.json'}",
        *([shown] if shows_progress else []),
        "  session     0 of 2 runs finished; the same command resumes it; of finished runs it "
        "repeats only warm-ups",
    ]
