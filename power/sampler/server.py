"""The sampler's server: one thread, one run at a time, a Unix socket, absolute deadlines.

The server never waits for a client: one that sends an incomplete line or reads no answers delays
only itself. It executes one command at a time, so that many clients can't delay the current run.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import selectors
import signal
import socket
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wattload import __version__
from wattload.core.errors import PowerError, WattloadError
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
)

if TYPE_CHECKING:
    from wattload.power.sampler.recording import Recording

_LOG = logging.getLogger(__name__)
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_RECEIVE_BYTES = 16 * 1024

_MAX_REFUSALS = 100
"""A working run is refused once or twice; a client with more refusals is dropped."""

_MAX_CONNECTIONS = 32
"""A run connects before MPI starts and sends its first command later; others connect meanwhile."""

_MAX_PER_USER = 16
"""One user can't keep the others out by connecting often."""

_WAITING_CLIENTS = 32

_MAX_PATH_BYTES = 107
"""``struct sockaddr_un`` has 108 bytes for a path with its final zero byte."""

_FIRST_CLIENT_TIMEOUT_S = 60.0
"""A sampler of one run ends if the run dies before it connects."""

_END_GRACE_S = 5.0
"""How long a run has to write its own record after the sampler got an ending signal."""


class SamplerServer:
    """Serves its clients, one run at a time; with ``once`` it ends with its last client."""

    def __init__(self, host: SamplerHost, *, path: Path, once: bool, access: Access) -> None:
        self._host = host
        self._path = path
        self._once = once
        self._access = access
        self._selector = selectors.DefaultSelector()
        self._connections: list[Connection] = []
        self._signal: signal.Signals | None = None
        self._deadline_ns: int | None = None
        if once:
            self._deadline_ns = time.monotonic_ns() + int(_FIRST_CLIENT_TIMEOUT_S * NS_PER_S)
        self._is_done = False

    def serve(self) -> None:
        """Listen until a signal or, with ``once``, until the client has ended.

        Raises:
            PowerError: the socket can't be created.
        """
        with self._signals(), listening(self._path, self._access) as listener:
            self._selector.register(listener, selectors.EVENT_READ)
            try:
                # A client has connected and is busy itself, so importing now delays nobody.
                import_module("wattload.power.sampler.recording")
                while not self._is_done:
                    self._step(listener)
            finally:
                self._drop_all("the sampler failed")
                self._selector.close()

    def _step(self, listener: socket.socket) -> None:
        # The client with a run comes first: its end must not make another one hear "busy".
        events = sorted(self._selector.select(self._timeout_s()), key=_has_no_run)
        for key, mask in events:
            if key.fileobj is listener:
                self._accept(listener)
            elif key.data is None:
                self._on_signal(key.fd)
            elif key.data in self._connections and not _handle(key.data, key.fd, mask):
                self._drop(key.data, "the run ended without finishing")
        for connection in list(self._connections):
            if connection.has_command and not connection.execute_next():
                self._drop(connection, "its client ended or was dropped")
            else:
                self._watch(connection)
        self._run_due()

    def _watch(self, connection: Connection) -> None:
        """Wait until the client reads its answer or sends a command, not for both at once."""
        events = selectors.EVENT_WRITE if connection.has_answer else selectors.EVENT_READ
        if self._selector.get_key(connection.stream).events != events:
            self._selector.modify(connection.stream, events, connection)

    def _recording(self) -> Recording | None:
        """Return the current run."""
        return next((each.recording for each in self._connections if each.recording), None)

    def _timeout_s(self) -> float | None:
        if any(connection.has_command for connection in self._connections):
            return 0.0
        recording = self._recording()
        due = (self._deadline_ns, recording.due_ns if recording else None)
        moments = [moment_ns for moment_ns in due if moment_ns is not None]
        if not moments:
            return None
        return max(0.0, (min(moments) - time.monotonic_ns()) / NS_PER_S)

    def _run_due(self) -> None:
        now_ns = time.monotonic_ns()
        if self._deadline_ns is not None and now_ns >= self._deadline_ns:
            self._drop_all("the run outlived its sampler")
            self._is_done = True
        for connection in list(self._connections):
            recording = connection.recording
            if recording is None or recording.due_ns is None or now_ns < recording.due_ns:
                continue
            if not connection.tick():
                self._drop(connection, "the sampler failed")

    def _accept(self, listener: socket.socket) -> None:
        try:
            stream, _ = listener.accept()
        except OSError as error:
            _LOG.error("a client could not be accepted: %s", error)
            return
        peer = peer_of(stream)
        refusal = self._refusal_reason(peer)
        if refusal:
            _refuse(stream, refusal)
            return
        connection = Connection(self._host, stream, peer, self._recording)
        self._connections.append(connection)
        for descriptor in connection.descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ, connection)
        if self._once:
            self._deadline_ns = None

    def _refusal_reason(self, peer: Peer) -> str:
        """Return the reason for refusing a connection; empty to accept it."""
        if not self._access.admits(peer):
            return (
                f"user {peer.uid} may not use this sampler; `wattload sampler --user {peer.uid}`, "
                "or --group with one of the user's groups, permits it"
            )
        own_count = sum(each.peer.uid == peer.uid for each in self._connections)
        if len(self._connections) >= _MAX_CONNECTIONS or own_count >= _MAX_PER_USER:
            return (
                f"the sampler has {len(self._connections)} clients, {own_count} of them "
                f"from user {peer.uid}; the limits are {_MAX_CONNECTIONS}, and "
                f"{_MAX_PER_USER} per user"
            )
        return ""

    def _drop(self, connection: Connection, reason: str) -> None:
        """Drop a client, and end its run if it has not finished."""
        self._connections.remove(connection)
        for descriptor in connection.descriptors:
            self._selector.unregister(descriptor)
        try:
            connection.end_lost_run(reason)
        finally:
            connection.close()
        ends_with_its_clients = self._once or self._signal is not None
        self._is_done = self._is_done or (ends_with_its_clients and not self._connections)

    def _drop_all(self, reason: str) -> None:
        for connection in list(self._connections):
            self._drop(connection, reason)

    def _on_signal(self, descriptor: int) -> None:
        """Restore at once; then give the run some time to write its own record."""
        number = os.read(descriptor, 1)
        if self._signal is not None or not number:
            return
        self._signal = signal.Signals(number[0])
        _LOG.info("ended by %s", self._signal.name)
        recording = self._recording()
        if recording is None:
            self._is_done = True
            return
        recording.end()
        for connection in self._connections:
            connection.ended_by = f"the sampler was ended by {self._signal.name}"
        self._deadline_ns = time.monotonic_ns() + int(_END_GRACE_S * NS_PER_S)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Turn the ending signals into bytes that the loop reads, until the block ends."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = {number: signal.signal(number, _ignore) for number in ENDING_SIGNALS}
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)


def _has_no_run(event: tuple[selectors.SelectorKey, int]) -> bool:
    connection = event[0].data
    return not isinstance(connection, Connection) or connection.recording is None


def _handle(connection: Connection, descriptor: int, mask: int) -> bool:
    """Read from or write to a client; return false when it has ended and its commands are done."""
    if descriptor == connection.process:
        connection.execute_pending()
        return False
    return connection.send() if mask & selectors.EVENT_WRITE else connection.receive()


def _refuse(stream: socket.socket, sentence: str) -> None:
    stream.setblocking(False)
    with contextlib.suppress(OSError):
        stream.send(encode({"ok": False, "kind": "PowerError", "error": sentence}))
    stream.close()


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor reports the signal."""


class Connection:
    """An accepted client. It may announce several runs, one after the other."""

    def __init__(
        self,
        host: SamplerHost,
        stream: socket.socket,
        peer: Peer,
        current_run: Callable[[], Recording | None],
    ) -> None:
        self._host = host
        self._current_run = current_run
        self._buffer = LineBuffer()
        self._lines: deque[bytes] = deque()
        self._answers = bytearray()
        self._refusal_count = 0
        self.peer = peer
        self.stream = stream
        self.stream.setblocking(False)
        self.process = open_process(peer.pid)
        self.recording: Recording | None = None
        self.ended_by = ""
        """Why commands are refused, while the sampler itself is ending."""

    @property
    def descriptors(self) -> list[int]:
        """The descriptors to watch: its socket, and its process if that is visible."""
        process = [] if self.process is None else [self.process]
        return [self.stream.fileno(), *process]

    @property
    def has_command(self) -> bool:
        """Whether a command is waiting, and its answer can be sent."""
        return bool(self._lines) and not self._answers

    @property
    def has_answer(self) -> bool:
        """Whether the client has an answer to read; until then nothing is read from it."""
        return bool(self._answers)

    def receive(self) -> bool:
        """Read what has arrived; return false when the client has ended."""
        if self._lines:
            return True
        try:
            data = self.stream.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not data:
            return False
        try:
            self._lines.extend(self._buffer.feed(data))
        except PowerError as error:
            self._send(_refusal(error))
            return False
        return True

    def execute_next(self) -> bool:
        """Execute and answer the oldest command; return false if the client is to be dropped."""
        line = self._lines.popleft()
        try:
            return self._send({"ok": True, **self._execute(parse(line))})
        except WattloadError as error:
            self._refusal_count += 1
            return self._send(_refusal(error)) and self._refusal_count < _MAX_REFUSALS
        except Exception:
            if not self._host.is_service:
                raise
            # A bug in one run ends that run, not the service for all others.
            _LOG.exception("a client of user %d is dropped", self.peer.uid)
            self._send(_refusal(PowerError("the sampler failed at this command; see its log")))
            return False

    def tick(self) -> bool:
        """Sample the run; return false if the client is to be dropped."""
        try:
            self._current().tick()
        except Exception:
            if not self._host.is_service:
                raise
            _LOG.exception("the run of user %d is dropped", self.peer.uid)
            return False
        return True

    def send(self) -> bool:
        """Send as much of the answers as the client reads; return false when it has ended."""
        try:
            sent = self.stream.send(self._answers)
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._answers[:sent]
        return True

    def execute_pending(self) -> None:
        """Execute the commands that a client sent before it ended; its children can't add more."""
        received_bytes = 0
        while received_bytes < MAX_LINE_BYTES:
            while self.has_command and self.execute_next():
                pass
            received_bytes += _RECEIVE_BYTES
            if self.has_answer or not self.receive() or not self._lines:
                return

    def end_lost_run(self, reason: str) -> None:
        """End the run of a client that ended without ``finish``, and write its record."""
        if self.recording is None:
            return
        _LOG.warning("run %s: %s", self.recording.run_id, reason)
        self.recording.end()
        self.recording.write_record("aborted", reason)
        self.recording = None

    def close(self) -> None:
        """Close the descriptors."""
        self.stream.close()
        if self.process is not None:
            os.close(self.process)
            self.process = None

    def _execute(self, command: Command) -> Mapping[str, Any]:
        if self.ended_by:
            raise PowerError(self.ended_by)
        match command:
            case Hello(run_id):
                return self._announce(run_id)
            case Open():
                return {"report": self._current().open(command).model_dump(mode="json")}
            case Status():
                return {"report": self._current().status().model_dump(mode="json")}
            case Finish():
                report = self._current().finish()
                self.recording = None
                return {"report": report.model_dump(mode="json")}
            case Start():
                self._current().start()
            case Quiet(is_on):
                self._current().quiet(is_on=is_on)
            case Abort(status, reason):
                recording = self._current()
                recording.end()
                recording.write_record(status, reason)
                self.recording = None
        return {}

    def _announce(self, run_id: str) -> Mapping[str, Any]:
        running = self._current_run()
        if running is not None:
            raise PowerError(f"the sampler is busy with run {running.run_id}")
        from wattload.power.sampler.recording import Recording

        self.recording = Recording(self._host, self.peer, run_id)
        _LOG.info("run %s of user %d", run_id, self.peer.uid)
        return {
            "protocol": PROTOCOL_VERSION,
            "version": __version__,
            "host": self._host.name,
            "pid": os.getpid(),
        }

    def _current(self) -> Recording:
        if self.recording is None:
            raise PowerError("send hello first: no run was named")
        return self.recording

    def _send(self, message: Mapping[str, Any]) -> bool:
        self._answers += encode(message)
        return self.send()


def _refusal(error: WattloadError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": str(error)}


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
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _check_folder(path.parent)
        descriptor = os.open(path.with_name(path.name + ".lock"), flags, 0o600)
    except OSError as error:
        raise PowerError(f"the socket {path} can't be created: {error}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise PowerError(f"a sampler already listens on {path}") from error
    try:
        yield
    finally:
        os.close(descriptor)


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
