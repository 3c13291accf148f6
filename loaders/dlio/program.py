"""A program with its processes: what it writes, what the kernel counts for them, and their end."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from wattload.core.errors import RunError
from wattload.core.host.counters import own_and_reaped_s
from wattload.core.interrupts import unlink_shared_memory
from wattload.core.launch import with_this_process
from wattload.core.processes import Family, running
from wattload.loaders.samples import ProcessCounts

STDOUT, STDERR = "stdout.log", "stderr.log"
_END_TIMEOUT_S = 5.0
_POLL_S = 0.05
_CHUNK_BYTES = 1 << 16

_EXCEPTION = re.compile(r"(?!SystemExit)[\w.]+(: |(Error|Exception|Interrupt)$)")
"""The line of a traceback that names the exception."""

_FRAME = re.compile(r"\s|[\^~]|File |Traceback ")
"""Starts the other lines of a traceback, also when two processes write theirs at once."""


class Program:
    """Runs a command in ``folder``, where its output goes to two files.

    It has its own session, so that the terminal's Ctrl-C reaches only our process. The kernel ends
    it with our process.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        """Start the program.

        Raises:
            OSError: the command can't be started.
        """
        self._errors = folder / STDERR
        self._marked: dict[int, _Counts] = {}
        with (folder / STDOUT).open("wb") as out:
            self._process = subprocess.Popen(
                with_this_process(command),
                bufsize=0,
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        assert self._process.stderr is not None  # for mypy
        self._pipe = self._process.stderr
        self._sessions = {self._process.pid}

    def lines(self) -> Iterator[str]:
        """Yield the lines of its error output as they come, until it has ended."""
        pipe = self._pipe
        os.set_blocking(pipe.fileno(), False)
        descriptor = os.pidfd_open(self._process.pid)
        poll = select.poll()
        for each in (pipe.fileno(), descriptor):
            poll.register(each, select.POLLIN)
        try:
            with self._errors.open("wb", buffering=0) as log:
                rest, ended = b"", False
                while not ended:
                    events = dict(poll.poll())
                    ended = descriptor in events
                    while chunk := pipe.read(_CHUNK_BYTES):
                        log.write(chunk)
                        *lines, rest = (rest + chunk).split(b"\n")
                        yield from (line.decode(errors="replace") for line in lines)
                    if events.get(pipe.fileno(), 0) & select.POLLHUP:
                        poll.unregister(pipe.fileno())
        finally:
            os.close(descriptor)

    def status(self) -> int:
        """Wait for the end and return the exit status, negative for a signal."""
        return self._process.wait()

    def end(self) -> None:
        """End all its processes, by SIGTERM and then SIGKILL; safe to call twice."""
        self._pipe.close()
        for number in (signal.SIGTERM, signal.SIGKILL):
            give_up_s = time.monotonic() + _END_TIMEOUT_S
            for pid in self._members():
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            while self._members() and time.monotonic() < give_up_s:
                time.sleep(_POLL_S)
        self._process.terminate()  # it may not have started the program
        self._process.wait()

    def last_error_line(self) -> str:
        """Return the last line that names an exception, else the last outside of a traceback."""
        lines = self._errors.read_text("utf-8", "replace").splitlines()
        named = [line for line in lines if _EXCEPTION.match(line)]
        written = [line.strip() for line in lines if line.strip() and not _FRAME.match(line)]
        return (named or written or [""])[-1]

    def mark(self) -> None:
        """Begin to count; processes that start later count from 0."""
        self._marked = self._counted()

    def unlink_shared_memory(self) -> None:
        """Remove the names of MPICH's shared memory, which a rank that is killed would leave.

        All ranks must have mapped it.
        """
        for pid in self._members():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                unlink_shared_memory(pid)

    def counts(self) -> ProcessCounts:
        """Return the counts of all processes since the mark, and move it to now.

        What has ended counts for the process that waited for it.

        Raises:
            RunError: a marked process has ended, and so has who waited for it.
        """
        found = self._counted()
        gone = self._marked.keys() - found.keys()
        if any(self._marked[pid].parent not in found for pid in gone):
            raise RunError("dlio-benchmark's processes ended before their CPU time was read")
        peaks = [_peak_bytes(pid) for pid in self._members()]
        before, self._marked = self._marked.values(), found
        return ProcessCounts(
            cpu_s=sum(now.cpu_s for now in found.values()) - sum(then.cpu_s for then in before),
            called_bytes=_growth(
                [now.called for now in found.values()], [then.called for then in before]
            ),
            storage_bytes=_growth(
                [now.storage for now in found.values()], [then.storage for then in before]
            ),
            peak_bytes=_growth(peaks, []),
        )

    def _counted(self) -> dict[int, _Counts]:
        """Return the counts of all its processes, those that were not waited for among them.

        None was waited for meanwhile: its counts would be in no process then, or in two.
        """
        while True:
            members = self._members(or_unreaped=True)
            found = {pid: _Counts.of(pid, family.parent) for pid, family in members.items()}
            if members.keys() <= self._members(or_unreaped=True).keys():
                return found

    def _members(self, *, or_unreaped: bool = False) -> Mapping[int, Family]:
        """Return its running processes: those of its session, and of its descendants' sessions.

        The launcher is none of them: it ends by itself, and costs the program nothing.
        """
        self._process.poll()
        processes = running(or_unreaped=or_unreaped)
        while True:
            found = {
                pid: family for pid, family in processes.items() if family.session in self._sessions
            }
            below = {family.session for family in processes.values() if family.parent in found}
            if below <= self._sessions:
                found.pop(self._process.pid, None)
                return found
            self._sessions |= below


@dataclass(frozen=True, slots=True)
class _Counts:
    """CPU seconds, and bytes as ``proc(5)`` counts them in ``/proc/PID/io``: rchar, read_bytes.

    When the process has ended, its ``parent`` has them.
    """

    parent: int
    cpu_s: float
    called: int | None
    storage: int | None

    @classmethod
    def of(cls, pid: int, parent: int) -> _Counts:
        """Return the counts of a process and of the children that it has waited for."""
        text = ""
        with suppress(OSError):
            text = Path(f"/proc/{pid}/io").read_text("ascii")
        counts = {name: int(count) for name, count in re.findall(r"(\w+): (\d+)", text)}
        return cls(parent, own_and_reaped_s(pid), counts.get("rchar"), counts.get("read_bytes"))


def _peak_bytes(pid: int) -> int | None:
    """Return the memory of a process at its peak; shared pages are divided (PSS).

    What it has released since its peak (VmHWM less VmRSS) counts as its own.
    """
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text("ascii")
        text += Path(f"/proc/{pid}/status").read_text("utf-8", "replace")
        fields = dict(line.partition(":")[::2] for line in text.splitlines())
        pss, peak, now = (int(fields[name].split()[0]) for name in ("Pss", "VmHWM", "VmRSS"))
    except (OSError, KeyError, IndexError):
        return None  # it has ended, or the kernel lacks the field
    return (pss + peak - now) * 1024


def _growth(now: Sequence[int | None], then: Sequence[int | None]) -> int | None:
    """Return a sum less an earlier one; ``None`` if the kernel did not report a part of them."""
    known = [[count for count in counts if count is not None] for counts in (now, then)]
    return sum(known[0]) - sum(known[1]) if sum(map(len, known)) == len(now) + len(then) else None
