"""A client of the sampler: the commands that it sends, one at a time, and the run it announces.

A command that asks the run's folder is executed in steps, so that the server's loop never waits for
a client's file system. A run that has ended lets others follow at once; the process in its folder
may take longer.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from wattload import __version__
from wattload.core.errors import PowerError, WattloadError
from wattload.core.units import NS_PER_S
from wattload.power.sampler.access import Peer, SamplerHost, open_process
from wattload.power.sampler.protocol import (
    MAX_LINE_BYTES,
    PROTOCOL_VERSION,
    Abort,
    Command,
    Finish,
    Hello,
    LineBuffer,
    Open,
    Quiet,
    Start,
    Status,
    encode,
    parse,
    refusal,
)

if TYPE_CHECKING:
    from wattload.power.sampler.recording import Recording
    from wattload.power.sampler.run_folder import Answer, RunFolder, Steps

_LOG = logging.getLogger(__name__)
_RECEIVE_BYTES = 16 * 1024

_MAX_REFUSALS = 100
"""A working run is refused once or twice; a client with more refusals is dropped."""

_MAX_UNFINISHED = 8
"""Folders of one user that may hang at a time: each has a process that can't be ended."""

_MAX_DESCRIPTORS = 253
"""``SCM_MAX_FD``: the most that one message can carry."""

_SILENCE_LIMIT_S = 30.0
"""How long a run that has announced itself may keep others out without being under way."""

LIFE_LIMIT_S = 120.0
"""How long a run under way may keep a service silently. Its client speaks every 10 s; one that is
stopped, or does not follow the protocol, loses its run."""


@dataclass(slots=True)
class Departure:
    """The folder of a run that has ended, until its process has ended too."""

    folder: RunFolder
    steps: Steps[None] | None
    due_ns: int | None = None
    has_ended: bool = False

    @property
    def is_unfinished(self) -> bool:
        return self.steps is not None

    def watched(self) -> dict[int, tuple[int, Callable[[int], None]]]:
        """Return what to watch, with the events and a handler."""
        watched: dict[int, tuple[int, Callable[[int], None]]] = {
            self.folder.ended: (select.POLLIN, self._on_end)
        }
        if self.folder.reading is not None:
            watched[self.folder.reading] = select.POLLIN, lambda _: self._receive()
        if self.folder.writing is not None:
            watched[self.folder.writing] = select.POLLOUT, lambda _: self.folder.send()
        return watched

    def give_up(self) -> None:
        """Kill the process; one that waits for a file system may stay."""
        self.due_ns = None
        self._resume(self.folder.fail_late())
        self.folder.kill()

    def _receive(self) -> None:
        answer = self.folder.receive()
        if answer is not None:
            self._resume(answer)

    def _on_end(self, _: int) -> None:
        if self.folder.reading is not None:
            self._receive()  # it may have answered before it ended
        self.has_ended = True
        self.folder.reap()

    def _resume(self, answer: Answer | WattloadError) -> None:
        steps, self.steps = self.steps, None
        if steps is not None:
            with contextlib.suppress(StopIteration):
                _continue(steps, answer)


class Runs:
    """The current run, and the folders of all runs whose process has not ended."""

    def __init__(self) -> None:
        self.current: Recording | None = None
        self.departures: list[Departure] = []
        self._announced: list[RunFolder] = []

    @property
    def is_unfinished(self) -> bool:
        return any(departure.is_unfinished for departure in self.departures)

    @property
    def due_ns(self) -> int | None:
        due = (departure.due_ns for departure in self.departures if not departure.has_ended)
        return min((due_ns for due_ns in due if due_ns is not None), default=None)

    def check(self, uid: int) -> None:
        """Raise ``PowerError`` if there is a run already, or too many folders of a user hang."""
        self.check_idle()
        folders = [*self._announced, *(departure.folder for departure in self.departures)]
        count = sum(folder.peer.uid == uid for folder in folders)
        if count >= _MAX_UNFINISHED:
            raise PowerError(
                f"{count} run folders of user {uid} have not answered yet, so the sampler takes "
                "no more runs of this user until their file systems answer"
            )

    def check_idle(self) -> None:
        """Raise ``PowerError`` if there is a run already."""
        if self.current is not None:
            raise PowerError(
                f"the sampler is busy with run {self.current.run_id}; wait for its end"
            )

    def announce(self, folder: RunFolder) -> None:
        """Count the folder of a run that wants to become the current one."""
        self._announced.append(folder)

    def leave(self, folder: RunFolder, steps: Steps[None] | None = None) -> None:
        """Let a process end after its last ``steps``, which are its own affair from now on."""
        from wattload.power.sampler.run_folder import ANSWER_LIMIT_S

        self._announced.remove(folder)
        if steps is not None:
            try:
                next(steps)
            except StopIteration:
                steps = None
        if steps is None:
            folder.end()
        self.departures.append(Departure(folder, steps, in_s(ANSWER_LIMIT_S)))

    def hurry(self, due_ns: int) -> None:
        """Give the processes no longer than ``due_ns``."""
        for departure in self.departures:
            if departure.due_ns is not None:
                departure.due_ns = min(departure.due_ns, due_ns)

    def run_due(self, now_ns: int) -> None:
        for departure in self.departures:
            if departure.due_ns is not None and now_ns >= departure.due_ns:
                departure.give_up()

    def forget_ended(self) -> None:
        self.departures = [each for each in self.departures if not each.has_ended]


def _continue(steps: Steps[Any], answer: Answer | WattloadError | None) -> None:
    """Resume a command with an answer or a failure; ``StopIteration`` has its result."""
    if isinstance(answer, WattloadError):
        steps.throw(answer)
    elif answer is None:
        next(steps)
    else:
        steps.send(answer)


class Connection:
    """An accepted client. It may announce several runs, one after the other."""

    def __init__(self, host: SamplerHost, stream: socket.socket, peer: Peer, runs: Runs) -> None:
        self._host = host
        self._runs = runs
        self._buffer = LineBuffer()
        self._lines: deque[bytes] = deque()
        self._answers = bytearray()
        self._refusal_count = 0
        self._steps: Steps[Mapping[str, Any]] | None = None
        self._last_command_ns = 0
        self._allowance_bytes: int | None = None
        self.peer = peer
        self._stream = stream
        self._stream.setblocking(False)
        self._process = open_process(peer.pid)
        self.recording: Recording | None = None
        self.ended_by = ""
        """Why commands are refused, while the sampler itself is ending."""

    @property
    def due_ns(self) -> int | None:
        """When this connection has something to do by itself; 0 for at once."""
        if self._steps is not None:
            due = [self._folder_due_ns()]
        else:
            is_at_once = self._has_command or self._allowance_bytes is not None
            due = [0] if is_at_once else [self._silence_due_ns()]
        due.append(self.recording.due_ns if self.recording else None)
        return min((moment_ns for moment_ns in due if moment_ns is not None), default=None)

    @property
    def _has_command(self) -> bool:
        return bool(self._lines) and not self._answers and self._steps is None

    def watched(self) -> Iterator[tuple[int, int, Callable[[], bool]]]:
        """Yield the descriptors to watch, the events, and what then returns whether to go on.

        While a command asks the run's folder, nothing is read from the client; while it has an
        answer to read, no further command.
        """
        if self._process is not None and self._allowance_bytes is None:
            yield self._process, select.POLLIN, self._note_end
        if self._answers:
            yield self._stream.fileno(), select.POLLOUT, self._send_waiting
        elif self._steps is None and not self._lines and self._allowance_bytes is None:
            yield self._stream.fileno(), select.POLLIN, self._receive
        folder = self.recording.folder if self.recording else None
        if folder is not None and folder.reading is not None:
            yield folder.reading, select.POLLIN, self._take_answer
        if folder is not None and folder.writing is not None:
            yield folder.writing, select.POLLOUT, self._write_folder

    def advance(self) -> bool:
        """Execute the oldest command; return false if the client is to be dropped.

        A client whose process has ended gets what it sent before; its children can't add more.
        """
        if self._has_command:
            self._last_command_ns = time.monotonic_ns()
            return self._execute_line(self._lines.popleft())
        if self._allowance_bytes is None or self._steps is not None:
            return True
        self._allowance_bytes -= _RECEIVE_BYTES
        return self._allowance_bytes > 0 and not self._answers and self._receive()

    def run_due(self, now_ns: int) -> str:
        """Sample the run if that is due; return why the client is to be dropped, else nothing."""
        folder_due_ns = self._folder_due_ns()
        if folder_due_ns is not None and now_ns >= folder_due_ns and self.recording is not None:
            failure = self.recording.folder.fail_late()
            return "" if self._resume(failure) else "its client ended or was dropped"
        silence_due_ns = self._silence_due_ns()
        if silence_due_ns is not None and now_ns >= silence_due_ns:
            if self.recording is not None and self.recording.is_under_way:
                reason = f"the run was stopped or hung: it sent nothing for {LIFE_LIMIT_S:g} s"
                self.refuse(f"{reason}, so the sampler has ended it")
            else:
                reason = f"the run was announced and not opened for {_SILENCE_LIMIT_S:g} s"
                self.refuse(f"{reason}, and others may be waiting: announce it again")
            return reason
        recording = self.recording
        if recording is None or recording.due_ns is None or now_ns < recording.due_ns:
            return ""
        return "" if self._tick(recording) else "the sampler failed"

    def refuse(self, sentence: str) -> None:
        """Send a last answer, as far as the client reads it."""
        self._send(refusal(PowerError(sentence)))

    def end_lost_run(self, reason: str) -> None:
        """End the run of a client that ended without ``finish``; its record is written later."""
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        recording = self.recording
        if recording is None:
            return
        _LOG.warning("run %s: %s", recording.run_id, reason)
        recording.end()
        self._release(recording.write_record("aborted", reason))

    def close(self) -> None:
        _hang_up(self._stream)
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _folder_due_ns(self) -> int | None:
        return self.recording.folder.due_ns if self.recording else None

    def _silence_due_ns(self) -> int | None:
        if self.recording is None or self._steps is not None:
            return None
        if not self.recording.is_under_way:
            return self._last_command_ns + int(_SILENCE_LIMIT_S * NS_PER_S)
        if not self._host.is_service:  # nobody else waits for it
            return None
        return self._last_command_ns + int(LIFE_LIMIT_S * NS_PER_S)

    def _note_end(self) -> bool:
        self._allowance_bytes = MAX_LINE_BYTES
        return True

    def _receive(self) -> bool:
        """Read what has arrived; return false when the client has ended."""
        try:
            data, descriptors, _, _ = socket.recv_fds(
                self._stream, _RECEIVE_BYTES, _MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return self._allowance_bytes is None
        except OSError:
            return False
        if descriptors:
            _close_aside(descriptors)
            self.refuse("a client may not send descriptors to the sampler")
            return False
        if not data:
            return False
        try:
            self._lines.extend(self._buffer.feed(data))
        except PowerError as error:
            self._send(refusal(error))
            return False
        return True

    def _execute_line(self, line: bytes) -> bool:
        def steps() -> Steps[Mapping[str, Any]]:
            return (yield from self._execute(parse(line)))

        self._steps = steps()
        return self._resume(None)

    def _take_answer(self) -> bool:
        answer = self.recording.folder.receive() if self.recording else None
        return answer is None or self._resume(answer)

    def _write_folder(self) -> bool:
        if self.recording is not None:
            self.recording.folder.send()
        return True

    def _resume(self, answer: Answer | WattloadError | None) -> bool:
        """Go on with the present command; return false if the client is to be dropped."""
        steps, self._steps = self._steps, None
        if steps is None:
            return True
        try:
            _continue(steps, answer)
        except StopIteration as stop:
            return self._send({"ok": True, **stop.value})
        except WattloadError as error:
            self._refusal_count += 1
            return self._send(refusal(error)) and self._refusal_count < _MAX_REFUSALS
        except Exception:
            if not self._host.is_service:
                raise
            # A bug in one run ends that run, not the service for all others.
            _LOG.exception("a client of user %d is dropped", self.peer.uid)
            self.refuse("the sampler failed at this command; see its log")
            return False
        self._steps = steps
        return True

    def _tick(self, recording: Recording) -> bool:
        try:
            recording.tick()
        except Exception:
            if not self._host.is_service:
                raise
            _LOG.exception("the run of user %d is dropped", self.peer.uid)
            return False
        return True

    def _execute(self, command: Command) -> Steps[Mapping[str, Any]]:
        if self.ended_by:
            raise PowerError(self.ended_by)
        match command:
            case Hello(run_id):
                return (yield from self._announce(run_id))
            case Open():
                opened = yield from self._current().open(command)
                return {"report": opened.model_dump(mode="json")}
            case Status():
                return {"report": self._current().status().model_dump(mode="json")}
            case Finish():
                finished = yield from self._current().finish()
                self._release()
                return {"report": finished.model_dump(mode="json")}
            case Start():
                yield from self._current().start()
            case Quiet(is_on):
                self._current().quiet(is_on=is_on)
            case Abort(status, reason):
                recording = self._current()
                recording.end()
                yield from recording.write_record(status, reason)
                self._release()
        return {}

    def _announce(self, run_id: str) -> Steps[Mapping[str, Any]]:
        self._runs.check(self.peer.uid)
        from wattload.power.sampler.recording import Recording

        self.recording = Recording(self._host, self.peer, run_id)
        self._runs.announce(self.recording.folder)
        try:
            yield from self.recording.enter()
            self._runs.check_idle()  # other clients were heard while the folder was entered
        except WattloadError:
            self._release()
            raise
        self._runs.current = self.recording
        _LOG.info("run %s of user %d", run_id, self.peer.uid)
        return {
            "protocol": PROTOCOL_VERSION,
            "version": __version__,
            "host": self._host.name,
            "pid": os.getpid(),
        }

    def _release(self, steps: Steps[None] | None = None) -> None:
        """Let other runs follow, whatever the process in this one's folder still does."""
        recording, self.recording = self.recording, None
        if recording is None:
            return
        if recording is self._runs.current:
            self._runs.current = None
        self._runs.leave(recording.folder, steps)

    def _current(self) -> Recording:
        if self.recording is None:
            raise PowerError("send hello first: no run was named")
        return self.recording

    def _send(self, message: Mapping[str, Any]) -> bool:
        self._answers += encode(message)
        return self._send_waiting()

    def _send_waiting(self) -> bool:
        """Send as much of the answers as the client reads; return false when it has ended."""
        try:
            sent = self._stream.send(self._answers)
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._answers[:sent]
        return True


def in_s(seconds: float) -> int:
    """Return the moment in so many seconds, by CLOCK_MONOTONIC in ns."""
    return time.monotonic_ns() + int(seconds * NS_PER_S)


def refuse(stream: socket.socket, sentence: str) -> None:
    """Send a last answer, as far as the client reads it, and close the connection."""
    stream.setblocking(False)
    with contextlib.suppress(OSError):
        stream.send(encode(refusal(PowerError(sentence))))
    _hang_up(stream)


def _hang_up(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        stream.shutdown(socket.SHUT_RDWR)
    _close_aside([stream.detach()])


def _close_aside(descriptors: Sequence[int]) -> None:
    """Close a client's socket, or descriptors that it sent, in a thread.

    Before Linux 6.16 a socket may hold descriptors that were sent and not received, and the last
    close of one may take as long as its sender likes (``SO_LINGER``, or a file system that hangs).
    """

    def close() -> None:
        for descriptor in descriptors:
            os.close(descriptor)

    with contextlib.suppress(RuntimeError):  # too many such threads: they stay open
        threading.Thread(target=close, daemon=True).start()
