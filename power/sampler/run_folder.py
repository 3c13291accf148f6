"""A run's folder as the sampler reaches it: through a process with the rights of the run's user.

The sampler never waits for that process. A question is asked in one step of its loop and answered
in a later one, or fails at its deadline; samples that the process does not take in time are lost
and counted. Its answers are as untrusted as any message of a client, because its user may control
it. The conversation is in pipes, through which no descriptor can be passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import wattload
from wattload.core.errors import PowerError, WattloadError
from wattload.core.units import NS_PER_S
from wattload.power.sampler.access import Peer, SamplerHost
from wattload.power.sampler.protocol import LineBuffer, encode, error_in

ANSWER_LIMIT_S = 30.0
"""Longer than a busy disk and a large journal need."""

_PROGRAM = (sys.executable, "-P", "-m", "wattload.power.sampler.helper")
_ENVIRONMENT = ("WATTLOAD_STATE_DIR", "PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "LANG")
"""What Python needs; the service's own may hold passwords."""

_MAX_WAITING_BYTES = 4 << 20
"""Samples that a slow file system has not taken yet: minutes of them."""

_RECEIVE_BYTES = 64 * 1024
_CPU_CLOCK = 2
"""``CPUCLOCK_SCHED``: with the inverted process id above it, the clock of another process."""

Answer = Mapping[str, Any]
T = TypeVar("T")

Steps = Generator[None, Answer, T]
"""A command that asks questions about the run's folder: it is resumed with each answer."""


class RunFolder:
    """The process that works in one run's folder; see ``helper`` for what it does.

    Raises:
        PowerError: it can't be started.
    """

    def __init__(self, host: SamplerHost, peer: Peer, run_id: str) -> None:
        self.path = host.runs / run_id
        self.peer = peer
        self._host = host
        self._waiting = bytearray()
        self._answers = LineBuffer()
        self._deadline_ns: int | None = None
        self._question = 0
        self._is_asking = False
        self._failure = f"the process that works in the run folder {self.path} has ended"
        self._passed_count = 0
        self._lost_count = 0
        self._cpu_s = 0.0
        self._process = _started()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._commands = self._process.stdin.fileno()
        self._replies = self._process.stdout.fileno()
        os.set_blocking(self._commands, False)
        os.set_blocking(self._replies, False)
        self.ended = os.pidfd_open(self._process.pid)
        """Readable when the process has ended."""

    @property
    def due_ns(self) -> int | None:
        """When the present question fails; ``None`` if nothing is asked."""
        return self._deadline_ns if self._is_asking else None

    @property
    def reading(self) -> int | None:
        """The descriptor of the answers; ``None`` if nothing is asked."""
        return self._replies if self._is_asking else None

    @property
    def writing(self) -> int | None:
        """The descriptor of the messages, if some wait for the process to take them."""
        return self._commands if self._waiting and self._commands >= 0 else None

    @property
    def sample_counts(self) -> tuple[int, int]:
        """The samples passed on so far, and those lost because the process did not take them."""
        return self._passed_count, self._lost_count

    def enter(self) -> Steps[None]:
        """Become the user and check that the folder is a run's of that user."""
        peer, runs = self.peer, str(self._host.runs)
        yield from self._ask(
            "enter",
            uid=peer.uid,
            gid=peer.gid,
            groups=peer.groups,
            runs=runs,
            run_id=self.path.name,
            owner=peer.uid if self._host.is_service else None,
        )

    def replay(self, **fields: object) -> Steps[Answer]:
        """Open the trace in the folder; return the facts of its source."""
        return (yield from self._ask("replay", **fields))

    def start(self, **fields: object) -> Steps[None]:
        name, host = self._host.samples_name, self._host.name
        yield from self._ask("start", name=name, host=host, **fields)

    def write(self, lines: Sequence[str]) -> None:
        """Pass on a round of samples; they are lost if the process is too far behind."""
        if self._commands < 0 or len(self._waiting) > _MAX_WAITING_BYTES:
            self._lost_count += len(lines)
            return
        self._passed_count += len(lines)
        self._send("write", lines=lines)

    def finish(self) -> Steps[tuple[int, int]]:
        """Close the samples file and end the process; return the samples written and lost.

        If the file system does not answer, it is unknown what was written, so all count as lost.
        """
        try:
            answer = yield from self._ask("close")
            written, lost = int(answer["sample_count"]), int(answer["lost_count"])
        except (WattloadError, LookupError, TypeError, ValueError):
            return 0, self._passed_count + self._lost_count
        finally:
            self.end()
        return written, lost + self._lost_count

    def write_record(self, **fields: object) -> Steps[None]:
        """Write the record of a run that has none, and end the process."""
        try:
            yield from self._ask("record", **fields)
        finally:
            self.end()

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far, in seconds."""
        with suppress(OSError):
            self._cpu_s = time.clock_gettime(~self._process.pid << 3 | _CPU_CLOCK)
        return self._cpu_s

    def receive(self) -> Answer | WattloadError | None:
        """Read what has arrived: the answer or the failure of the question; ``None`` if neither."""
        try:
            data = os.read(self._replies, _RECEIVE_BYTES)
            lines = self._answers.feed(data)
        except BlockingIOError:
            return None
        except (OSError, PowerError) as error:
            return self.fail(f"gave an unreadable answer ({error})")
        if not data:
            return self.fail("ended before it answered")
        found = (self._answered(line) for line in lines)
        return next((answer for answer in found if answer is not None), None)

    def fail(self, what: str) -> PowerError:
        """Kill the process and return the failure of the present question."""
        self._is_asking = False
        self._failure = f"the process that works in the run folder {self.path} {what}"
        self.kill()
        return PowerError(self._failure)

    def fail_late(self) -> PowerError:
        """Kill the process, which has missed a deadline; return the failure."""
        return self.fail(
            f"has not answered for {ANSWER_LIMIT_S:g} s: its file system hangs, or its user has "
            "stopped it"
        )

    def send(self) -> None:
        """Write as much of the waiting messages as the process takes."""
        try:
            written = os.write(self._commands, self._waiting)
        except BlockingIOError:
            return
        except OSError:
            self._waiting.clear()
            self._close_commands()
            return
        del self._waiting[:written]

    def end(self) -> None:
        """Let the process end, as soon as it has done what it was asked; safe to call twice."""
        self._is_asking = False
        self._close_commands()

    def kill(self) -> None:
        """Kill the process; one that waits for a file system may die later, or never."""
        self._waiting.clear()
        self._close_commands()
        with suppress(OSError):  # it has ended, or this service lacks CAP_KILL
            self._process.kill()

    def reap(self) -> None:
        self.cpu_s()
        self._process.wait()
        self._close_commands()
        os.close(self.ended)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _ask(self, do: str, **fields: object) -> Steps[Answer]:
        if self._commands < 0:
            raise PowerError(self._failure)
        self._deadline_ns = time.monotonic_ns() + int(ANSWER_LIMIT_S * NS_PER_S)
        self._is_asking = True
        self._question += 1
        self._send(do, question=self._question, **fields)
        return (yield)

    def _answered(self, line: bytes) -> Answer | WattloadError | None:
        """Return the answer in a line, ``None`` if it answers a question that was given up."""
        try:
            answer = json.loads(line)
            if answer["question"] != self._question:
                return None
            self._is_asking = False
            return dict(answer) if answer["ok"] is True else error_in(answer)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            return self.fail(f"gave an unreadable answer ({type(error).__name__})")

    def _send(self, do: str, **fields: object) -> None:
        self._waiting += encode({"do": do, **fields})
        self.send()

    def _close_commands(self) -> None:
        if self._commands >= 0:
            self._commands = -1
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()


def _started() -> subprocess.Popen[bytes]:
    """Exec the process: it inherits no descriptor, and none of the service's secrets."""
    root = str(Path(wattload.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        return subprocess.Popen(
            _PROGRAM,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={**kept, "PYTHONPATH": os.pathsep.join(paths)},
        )
    except OSError as error:
        raise PowerError(
            f"the process for the run's folder can't be started: {error.strerror}"
        ) from error
