"""What a rank says before it ends, and before it has the launcher kill it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from wattload.core.interrupts import unread_bytes
from wattload.run.ranks import reason_of

SAY_AND_DIE = (
    "import os, signal; from wattload.run.ranks import flush_stderr;"
    "flush_stderr('why'); print('said', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
)


def test_a_reason_with_a_path_that_is_no_text_can_be_encoded() -> None:
    path = os.fsdecode(b"/data/\xff")
    reason = reason_of(FileNotFoundError(2, "No such file", path))
    assert reason.encode() == b"[Errno 2] No such file: '/data/\\udcff'"


def test_the_writing_end_of_a_pipe_counts_the_unread_bytes() -> None:
    reading, writing = os.pipe()
    try:
        assert unread_bytes(writing) == 0
        os.write(writing, b"why\n")
        assert unread_bytes(writing) == 4
        os.read(reading, 4)
        assert unread_bytes(writing) == 0
    finally:
        os.close(reading)
        os.close(writing)


def test_a_file_has_nothing_to_wait_for(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as stream:
        stream.write(b"why\n")
        assert unread_bytes(stream.fileno()) == 0


def test_the_process_lives_until_its_line_was_read() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SAY_AND_DIE], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while not unread_bytes(process.stderr.fileno()):
            time.sleep(0.005)
        assert process.poll() is None
        assert process.stderr.read(4) == b"why\n"
        assert process.stdout.read() == b"said\n"
