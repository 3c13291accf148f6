"""An outside program in a session of its own: started, waited for, ended with all its children."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

STDOUT, STDERR = "stdout.log", "stderr.log"
_PATIENCE_S = 5.0
_POLL_S = 0.05
_TAIL_BYTES = 1 << 16
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: .*)?$")
"""The line of a traceback that names the exception: the first that is not indented."""


class Program:
    """Runs a command in ``folder``, where its output goes to two files.

    It gets a session of its own: the terminal's Ctrl-C reaches us alone, and ``end`` reaches every
    process that did not leave the group.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Start it.

        Raises ``OSError`` where the command can't be started.
        """
        self._errors = folder / STDERR
        with (folder / STDOUT).open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        self.descriptor = os.pidfd_open(self._process.pid)

    def status(self) -> int:
        """Wait for the end and return the exit status, negative for a signal."""
        return self._process.wait()

    def end(self) -> None:
        """End every process of the session, by SIGTERM and then SIGKILL; safe to call twice.

        Also after the program itself has ended: a process that it started may live on.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            give_up_s = time.monotonic() + _PATIENCE_S
            for pid in self._members():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            while self._members() and time.monotonic() < give_up_s:
                time.sleep(_POLL_S)
        self._process.wait()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def last_words(self) -> str:
        """Return what the program said of its failure, on one line, '' where it said nothing."""
        with self._errors.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
        failures = [
            line
            for above, line in pairwise(lines)
            if above.startswith("  ") and _EXCEPTION.match(line) and "SystemExit" not in line
        ]
        said = [line.strip() for line in lines if line.strip()]
        return (failures or said or [""])[-1]

    def _members(self) -> list[int]:
        """Return the processes of the session that still run; a zombie does not."""
        self._process.poll()
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended while the others were looked at
            if int(fields[3]) == self._process.pid and fields[0] not in "ZX":
                found.append(int(entry.parent.name))
        return found
