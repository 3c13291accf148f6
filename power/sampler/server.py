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
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path

from wattload.core.errors import DataError, PowerError
from wattload.core.files import LockHeldError, choose_folder
from wattload.power.sampler.access import ROOT_UID, Access, Peer, SamplerHost, peer_of
from wattload.power.sampler.connection import Connection, Runs, in_s, refuse

_LOG = logging.getLogger(__name__)
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_MAX_CONNECTIONS = 32
"""A run connects before MPI starts and sends its first command later; others connect meanwhile."""

_MAX_PER_USER = 16
"""One user can't keep the others out by connecting often."""

_WAITING_CLIENTS = 32

_MAX_PATH_BYTES = 107
"""``struct sockaddr_un`` has 108 bytes for a path with its final zero byte."""

_SO_PASSRIGHTS = 83
"""``include/uapi/asm-generic/socket.h``; Linux 6.16 and later."""

_ACCEPT_PAUSE_S = 1.0
"""Without a free descriptor or memory, accepting again at once would fail for ever."""

_END_GRACE_S = 5.0
"""How long a run has to write its own record after the sampler got an ending signal, and how long
the process in its folder then has to write it instead."""


class SamplerServer:
    """Serves its clients, one run at a time."""

    def __init__(self, host: SamplerHost, access: Access) -> None:
        self._host = host
        self._access = access
        self._listener: socket.socket | None = None
        self._runs = Runs()
        self._connections: list[Connection] = []
        self._signal: signal.Signals | None = None
        self._signals_from = -1
        self._accepts_from_ns = 0
        self._deadline_ns: int | None = None
        self._is_done = False

    def serve(self, path: Path) -> None:
        """Listen on a path, and serve who connects, until a signal.

        Raises:
            PowerError: the socket can't be created.
        """
        with self._signals(), listening(path, self._access) as self._listener:
            self._serve()

    def serve_client(self, stream: socket.socket) -> None:
        """Serve a client that is connected already, until it ends or a signal ends it."""
        with self._signals():
            self._connections.append(Connection(self._host, stream, peer_of(stream), self._runs))
            self._serve()

    def _serve(self) -> None:
        try:
            # A client is busy itself before it sends a command, so importing now delays nobody.
            import_module("wattload.power.sampler.recording")
            while not self._is_done:
                self._step()
        finally:
            self._drop_all("the sampler failed")
            self._see_off()

    def _step(self) -> None:
        # The client with a run comes first: its end must not make another one hear "busy".
        connections = sorted(self._connections, key=lambda each: each.recording is None)
        watched: dict[int, tuple[int, Callable[[int], None]]] = {}
        for connection in connections:
            watched |= self._watched(connection)
        if self._listener is not None and time.monotonic_ns() >= self._accepts_from_ns:
            watched[self._listener.fileno()] = select.POLLIN, self._accept
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

    def _accept(self, _: int) -> None:
        assert self._listener is not None
        try:
            stream, _address = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                self._accepts_from_ns = in_s(_ACCEPT_PAUSE_S)
            _LOG.error("a client could not be accepted: %s", error)
            return
        peer = peer_of(stream)
        reason = self._refusal_reason(peer)
        if reason:
            refuse(stream, reason)
            return
        self._connections.append(Connection(self._host, stream, peer, self._runs))

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
        ends_with_its_clients = self._listener is None or self._signal is not None
        self._is_done = self._is_done or (ends_with_its_clients and not self._connections)

    def _drop_all(self, reason: str) -> None:
        for connection in list(self._connections):
            self._drop(connection, reason)

    def _see_off(self) -> None:
        """Wait for the records of ended runs; after a signal not for long."""
        if self._signal is not None:
            self._runs.hurry(in_s(_END_GRACE_S))
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
        self._runs.hurry(in_s(2 * _END_GRACE_S))
        recording = self._runs.current
        if recording is None:
            self._is_done = True
            return
        recording.end()
        for connection in self._connections:
            connection.ended_by = f"the sampler was ended by {self._signal.name}"
        self._deadline_ns = in_s(_END_GRACE_S)

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


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor reports the signal."""


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
            with contextlib.suppress(OSError):  # older kernels: see connection._close_aside
                listener.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
            listener.listen(_WAITING_CLIENTS)
            listener.setblocking(False)
            yield listener
        finally:
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
