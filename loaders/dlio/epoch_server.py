"""Starts and ends DLIO, permits its epochs one by one, counts batches and keeps times.

An epoch begins when every process is ready for it, and has ended when every process has reported
its end. Between two epochs DLIO reads nothing, so that the page cache can be emptied.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from wattload.core.files import choose_folder
from wattload.core.io import HarnessWatch
from wattload.loaders.samples import Training

STDOUT, STDERR = "stdout.log", "stderr.log"
_END_TIMEOUT_S = 5.0
_POLL_S = 0.05
_TAIL_BYTES = 1 << 16
_EXCEPTION = re.compile(r"(?:[a-z_]\w*\.)*[A-Z]\w*(: .*)?$")
"""The line of a traceback that names the exception: the first that is not indented."""

_FRAME = re.compile(r"\s|[\^~]|File |Traceback ")
"""Starts the other lines of a traceback, also when two processes write theirs at once."""


_CHUNK_BYTES = 1 << 16


class Program:
    """Runs a command in ``folder``, where its output goes to two files.

    It has its own session: the terminal's Ctrl-C reaches only our process, and ``end`` reaches
    every process that did not leave the session.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Start the program.

        Raises:
            OSError: the command can't be started.
        """
        self._errors = folder / STDERR
        with (
            choose_folder(folder) as own,
            os.fdopen(own.create(STDOUT), "wb") as out,
            os.fdopen(own.create(STDERR), "wb") as errors,
        ):
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

        This includes processes that outlive the program itself.
        """
        for number in (signal.SIGTERM, signal.SIGKILL):
            give_up_s = time.monotonic() + _END_TIMEOUT_S
            for pid in self._members():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            while self._members() and time.monotonic() < give_up_s:
                time.sleep(_POLL_S)
        self._process.wait()
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def last_error_line(self) -> str:
        """Return the line that names the program's failure, '' without error output."""
        with self._errors.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - _TAIL_BYTES, 0))
            lines = file.read().decode(errors="replace").splitlines()
        return _failure_of(lines)

    def _members(self) -> list[int]:
        """Return the running processes of the session, without zombies."""
        self._process.poll()
        found = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            if int(fields[3]) == self._process.pid and fields[0] not in "ZX":
                found.append(int(entry.parent.name))
        return found


def _failure_of(lines: Sequence[str]) -> str:
    """Return the last line that names an exception, else the last that is not part of a traceback.

    A line below an indented one is certain to belong to a traceback. Between the tracebacks of two
    processes, only ``Name: message`` tells it apart.
    """
    named = [
        (above, line)
        for above, line in pairwise(["", *lines])
        if (match := _EXCEPTION.match(line)) and not line.startswith("SystemExit")
        if match[1] or above.startswith("  ")
    ]
    certain = [line for above, line in named if above.startswith("  ")]
    written = [line.strip() for line in lines if line.strip() and not _FRAME.match(line)]
    return (certain or [line for _, line in named] or written or [""])[-1]


@dataclass(slots=True)
class EpochReports:
    """The reports of one epoch, by rank: the fields of ``done`` and of ``spent``."""

    ready: set[int] = field(default_factory=set)
    batches: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    done: dict[int, dict[str, Any]] = field(default_factory=dict)
    spent: dict[int, dict[str, Any]] = field(default_factory=dict)


class EpochServer:
    """Listens on a Unix socket at ``address``; ``reports`` has what was received, by epoch."""

    def __init__(
        self,
        address: Path,
        training: Training,
        watch: HarnessWatch,
        prepare: Callable[[int], None],
    ) -> None:
        """Listen. ``prepare`` is called before each epoch but the first, before the watch."""
        self.reports = [EpochReports() for _ in range(training.epochs)]
        self._training = training
        self._watch = watch
        self._prepare = prepare
        self._connections: dict[socket.socket, bytes] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(address))
        self._listener.listen()
        self._selector.register(self._listener, selectors.EVENT_READ)

    def serve(self, program: Program) -> None:
        """Return when the program has ended and all its messages have been received."""
        self._selector.register(program.descriptor, selectors.EVENT_READ)
        ended = False
        while not ended:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._receive(key.fileobj)
                else:
                    ended = True
        for line in list(self._connections):
            self._drain(line)

    def close(self) -> None:
        """Close all connections, which ends any process that still waits for one."""
        self._selector.close()
        self._listener.close()
        for line in self._connections:
            line.close()

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        line.settimeout(1.0)
        self._connections[line] = b""
        self._selector.register(line, selectors.EVENT_READ)

    def _receive(self, line: socket.socket) -> bool:
        """Process received messages; return whether there may be more."""
        try:
            chunk = line.recv(_CHUNK_BYTES)
        except OSError:
            chunk = b""
        if not chunk:
            self._selector.unregister(line)
            return False
        *messages, self._connections[line] = (self._connections[line] + chunk).split(b"\n")
        for message in messages:
            self._handle(json.loads(message))
        return True

    def _drain(self, line: socket.socket) -> None:
        while line in self._selector.get_map() and self._receive(line):
            pass

    def _handle(self, message: dict[str, Any]) -> None:
        stretch, rank = message["epoch"] - 1, message["rank"]
        report = self.reports[stretch]
        if message["event"] == "ready":
            report.ready.add(rank)
            if len(report.ready) == self._training.accelerators:
                self._begin(stretch)
        elif message["event"] == "batch":
            step = report.batches[rank]
            report.batches[rank] += 1
            self._watch.moved(read_bytes=self._training.batch_bytes_read(stretch, rank, step))
        elif message["event"] == "done":
            report.done[rank] = message
            if len(report.done) == self._training.accelerators:
                self._watch.after(stretch)
        else:
            report.spent[rank] = message

    def _begin(self, stretch: int) -> None:
        if stretch:
            self._prepare(stretch)
        self._watch.before(stretch)
        for line in self._connections:
            with suppress(ConnectionError):  # the program's own exit status reports why
                line.sendall(b"\0")
