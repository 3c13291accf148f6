"""The sampler's server: one thread, one run at a time, a Unix socket, absolute deadlines.

The server never waits for a client, nor for its file system: one that sends an incomplete line,
reads no answers, or keeps its runs on a disk that hangs, delays only itself. It executes one
command at a time, so that many clients can't delay the current run.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import signal
import socket
import stat
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload import __version__
from wattload.core.errors import DataError, PowerError, WattloadError
from wattload.core.files import LockHeldError, choose_folder
from wattload.core.units import NS_PER_S
from wattload.power.sampler.access import (
    ROOT_UID,
    Access,
    Peer,
    SamplerHost,
    open_process,
    peer_of,
)
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
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_RECEIVE_BYTES = 16 * 1024

_MAX_REFUSALS = 100
"""A working run is refused once or twice; a client with more refusals is dropped."""

_MAX_CONNECTIONS = 32
"""A run connects before MPI starts and sends its first command later; others connect meanwhile."""

_MAX_PER_USER = 16
"""One user can't keep the others out by connecting often."""

_MAX_UNFINISHED = 8
"""Folders of one user that may hang at a time: each has a process that can't be ended."""

_WAITING_CLIENTS = 32

_MAX_PATH_BYTES = 107
"""``struct sockaddr_un`` has 108 bytes for a path with its final zero byte."""

_MAX_DESCRIPTORS = 253
"""``SCM_MAX_FD``: the most that one message can carry."""

_SO_PASSRIGHTS = 83
"""``include/uapi/asm-generic/socket.h``; Linux 6.16 and later."""

_FIRST_CLIENT_TIMEOUT_S = 60.0
"""A sampler of one run ends if the run dies before it connects."""

_SILENCE_LIMIT_S = 30.0
"""How long a run that has announced itself may keep others out without being under way."""

_ACCEPT_PAUSE_S = 1.0
"""Without a free descriptor or memory, accepting again at once would fail for ever."""

_END_GRACE_S = 5.0
"""How long a run has to write its own record after the sampler got an ending signal, and how long
the process in its folder then has to write it instead."""


class SamplerServer:
    """Serves its clients, one run at a time; with ``once`` it ends with its last client."""

    def __init__(self, host: SamplerHost, *, path: Path, once: bool, access: Access) -> None:
        self._host = host
        self._path = path
        self._once = once
        self._access = access
        self._runs = Runs()
        self._connections: list[Connection] = []
        self._signal: signal.Signals | None = None
        self._signals_from = -1
        self._accepts_from_ns = 0
        self._deadline_ns: int | None = None
        if once:
            self._deadline_ns = _in_s(_FIRST_CLIENT_TIMEOUT_S)
        self._is_done = False

    def serve(self) -> None:
        """Listen until a signal or, with ``once``, until the client has ended.

        Raises:
            PowerError: the socket can't be created.
        """
        with self._signals(), listening(self._path, self._access) as listener:
            try:
                # A client has connected and is busy itself, so importing now delays nobody.
                import_module("wattload.power.sampler.recording")
                while not self._is_done:
                    self._step(listener)
            finally:
                self._drop_all("the sampler failed")
                self._see_off()

    def _step(self, listener: socket.socket) -> None:
        # The client with a run comes first: its end must not make another one hear "busy".
        connections = sorted(self._connections, key=lambda each: each.recording is None)
        watched: dict[int, tuple[int, Callable[[int], None]]] = {}
        for connection in connections:
            watched |= self._watched(connection)
        if time.monotonic_ns() >= self._accepts_from_ns:
            watched[listener.fileno()] = select.POLLIN, lambda _: self._accept(listener)
        self._wait(watched, self._due_ns())
        for connection in connections:
            if connection in self._connections and not connection.advance():
                self._drop(connection, "its client ended or was dropped")
        self._run_due()

    def _wait(
        self, watched: Mapping[int, tuple[int, Callable[[int], None]]], due_ns: int | None
    ) -> None:
        """Wait for what is watched, for signals and departures; call the handlers."""
        handlers = {**watched, self._signals_from: (select.POLLIN, self._on_signal)}
        for departure in self._runs.departures:
            handlers |= departure.watched()
        poll = select.poll()
        for descriptor, (events, _) in handlers.items():
            poll.register(descriptor, events)
        left_ns = None if due_ns is None else max(0, due_ns - time.monotonic_ns())
        ready = dict(poll.poll(None if left_ns is None else left_ns / 1e6))
        for descriptor, (_, handle) in handlers.items():
            if descriptor in ready:
                handle(ready[descriptor])
        self._runs.forget_ended()

    def _watched(self, connection: Connection) -> dict[int, tuple[int, Callable[[int], None]]]:
        def when_good(step: Callable[[], bool], reason: str) -> Callable[[int], None]:
            def handle(_: int) -> None:
                # An earlier event of this round may have dropped it, and closed the descriptor.
                if connection in self._connections and not step():
                    self._drop(connection, reason)

            return handle

        return {
            descriptor: (events, when_good(step, "the run ended without finishing"))
            for descriptor, events, step in connection.watched()
        }

    def _due_ns(self) -> int | None:
        """Return when to wake up; at once if a command waits."""
        due = [self._deadline_ns, self._accepts_from_ns or None, self._runs.due_ns]
        due += [connection.due_ns for connection in self._connections]
        return min((moment_ns for moment_ns in due if moment_ns is not None), default=None)

    def _run_due(self) -> None:
        now_ns = time.monotonic_ns()
        if now_ns >= self._accepts_from_ns:
            self._accepts_from_ns = 0
        if self._deadline_ns is not None and now_ns >= self._deadline_ns:
            self._drop_all("the run outlived its sampler")
            self._is_done = True
        for connection in list(self._connections):
            reason = connection.run_due(now_ns)
            if reason:
                self._drop(connection, reason)
        self._runs.run_due(now_ns)

    def _accept(self, listener: socket.socket) -> None:
        try:
            stream, _ = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._accepts_from_ns = _in_s(_ACCEPT_PAUSE_S)
            _LOG.error("a client could not be accepted: %s", error)
            return
        peer = peer_of(stream)
        reason = self._refusal_reason(peer)
        if reason:
            _refuse(stream, reason)
            return
        self._connections.append(Connection(self._host, stream, peer, self._runs))
        if self._once:
            self._deadline_ns = None

    def _refusal_reason(self, peer: Peer) -> str:
        """Return the reason for refusing a connection; empty to accept it."""
        if not self._access.admits(peer):
            return (
                f"user {peer.uid} may not use this sampler; `wattload sampler --user {peer.uid}`, "
                "or --group with one of the user's groups, permits it"
            )
        counts = Counter(each.peer.uid for each in self._connections)
        if counts[peer.uid] >= _MAX_PER_USER:
            return (
                f"user {peer.uid} has {counts[peer.uid]} connections to the sampler, the most "
                "that one user may have: end some of that user's runs"
            )
        if len(self._connections) >= _MAX_CONNECTIONS and not self._make_room(peer, counts):
            return (
                f"the sampler has {len(self._connections)} clients, the most that it serves: try "
                "again later"
            )
        return ""

    def _make_room(self, peer: Peer, counts: Mapping[int, int]) -> bool:
        """Drop the oldest client without a run of the user with most clients, if that is fair."""
        uid, most = max(counts.items(), key=lambda item: item[1])
        idle = [each for each in self._connections if each.peer.uid == uid and not each.recording]
        if most <= counts.get(peer.uid, 0) + 1 or not idle:
            return False
        idle[0].refuse("the sampler has many clients, and this one has announced no run")
        self._drop(idle[0], "")
        return True

    def _drop(self, connection: Connection, reason: str) -> None:
        """Drop a client, and end its run if it has not finished."""
        self._connections.remove(connection)
        try:
            connection.end_lost_run(reason)
        finally:
            connection.close()
        ends_with_its_clients = self._once or self._signal is not None
        self._is_done = self._is_done or (ends_with_its_clients and not self._connections)

    def _drop_all(self, reason: str) -> None:
        for connection in list(self._connections):
            self._drop(connection, reason)

    def _see_off(self) -> None:
        """Wait for the records of ended runs; after a signal not for long."""
        if self._signal is not None:
            self._runs.hurry(_in_s(_END_GRACE_S))
        while self._runs.is_unfinished:
            self._wait({}, self._runs.due_ns)
            self._runs.run_due(time.monotonic_ns())

    def _on_signal(self, _: int) -> None:
        """Restore at once; then give the run some time to write its own record."""
        number = os.read(self._signals_from, 1)
        if self._signal is not None or not number:
            return
        self._signal = signal.Signals(number[0])
        _LOG.info("ended by %s", self._signal.name)
        self._runs.hurry(_in_s(2 * _END_GRACE_S))
        recording = self._runs.current
        if recording is None:
            self._is_done = True
            return
        recording.end()
        for connection in self._connections:
            connection.ended_by = f"the sampler was ended by {self._signal.name}"
        self._deadline_ns = _in_s(_END_GRACE_S)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn the ending signals into bytes that the loop reads, until the block ends."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, _ignore) for number in ENDING_SIGNALS}
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._signals_from = reader
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)


def _in_s(seconds: float) -> int:
    return time.monotonic_ns() + int(seconds * NS_PER_S)


def _refuse(stream: socket.socket, sentence: str) -> None:
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


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor reports the signal."""


@dataclass(slots=True)
class Departure:
    """The folder of a run that has ended, until its process has ended too."""

    folder: RunFolder
    steps: Steps[None] | None
    due_ns: int | None = None
    has_ended: bool = False

    @property
    def is_unfinished(self) -> bool:
        """Whether a record is still being written."""
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
        """Whether a record is still being written."""
        return any(departure.is_unfinished for departure in self.departures)

    @property
    def due_ns(self) -> int | None:
        """When the next process is to be given up."""
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
            raise PowerError(f"the sampler is busy with run {self.current.run_id}")

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
        self.departures.append(Departure(folder, steps, _in_s(ANSWER_LIMIT_S)))

    def hurry(self, due_ns: int) -> None:
        """Give the processes no longer than ``due_ns``."""
        for departure in self.departures:
            if departure.due_ns is not None:
                departure.due_ns = min(departure.due_ns, due_ns)

    def run_due(self, now_ns: int) -> None:
        """Give up the processes whose time is over."""
        for departure in self.departures:
            if departure.due_ns is not None and now_ns >= departure.due_ns:
                departure.give_up()

    def forget_ended(self) -> None:
        """Forget the folders whose process has ended."""
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
        """Close the descriptors."""
        _hang_up(self._stream)
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def _folder_due_ns(self) -> int | None:
        return self.recording.folder.due_ns if self.recording else None

    def _silence_due_ns(self) -> int | None:
        if self.recording is None or self.recording.is_under_way or self._steps is not None:
            return None
        return self._last_command_ns + int(_SILENCE_LIMIT_S * NS_PER_S)

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


@contextlib.contextmanager
def listening(path: Path, access: Access) -> Iterator[socket.socket]:
    """Listen on a path until the block ends, then remove it.

    Raises:
        PowerError: the socket can't be created, its folder is open to others, or a sampler uses it.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise PowerError(
            f"the path of a socket may have at most {_MAX_PATH_BYTES} bytes; {path} is longer"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, _locked(path):
        try:
            _remove_stale(path)
            _bind(listener, path, access)
        except OSError as error:
            raise PowerError(f"the socket {path} can't be created: {error}") from error
        try:
            with contextlib.suppress(OSError):  # older kernels: see _close_aside
                listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
            listener.listen(_WAITING_CLIENTS)
            listener.setblocking(False)
            yield listener
        finally:
            # A client of one run removes the socket's folder as soon as it is connected.
            path.unlink(missing_ok=True)


def _bind(listener: socket.socket, path: Path, access: Access) -> None:
    """Create the socket closed to all others, so that no client connects too early."""
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    if access.socket_gid is not None:
        os.chown(path, -1, access.socket_gid, follow_symlinks=False)
    path.chmod(access.socket_mode)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second sampler off the path; the kernel releases the lock when this one ends."""
    try:
        _check_folder(path.parent)
        with choose_folder(path.parent) as folder:
            lock = folder.lock(path.name + ".lock")
    except LockHeldError as error:
        raise PowerError(f"a sampler already listens on {path}") from error
    except (OSError, DataError) as error:
        raise PowerError(f"the socket {path} can't be created: {error}") from error
    try:
        yield
    finally:
        lock.release()


def _check_folder(folder: Path) -> None:
    """Refuse a folder in which another user could replace the socket."""
    found = folder.stat()
    is_others = found.st_uid not in (ROOT_UID, os.geteuid())
    is_open = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    if is_others or is_open:
        raise PowerError(
            f"the socket's folder {folder} belongs to user {found.st_uid} and has mode "
            f"{stat.S_IMODE(found.st_mode):04o}: others could replace the socket; choose "
            "a folder that only the sampler's user can write to, e.g. /run/wattload"
        )


def _remove_stale(path: Path) -> None:
    """Remove the socket of a sampler that was killed, but no other kind of file."""
    with contextlib.suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.lstat().st_mode):
            path.unlink()
