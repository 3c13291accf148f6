"""The sampler's loop: one thread, one run at a time, a Unix socket and absolute deadlines."""

from __future__ import annotations

import contextlib
import logging
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from wattload.core.units import NS_PER_S
from wattload.power.sampler.access import Access
from wattload.power.sampler.connection import Connection
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.listener import listening
from wattload.power.sampler.peer import Peer, peer_of
from wattload.power.sampler.protocol import encode

if TYPE_CHECKING:
    from wattload.power.sampler.recording import Recording

_LOG = logging.getLogger(__name__)

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_MOST_CONNECTIONS = 32
"""A run connects before MPI starts and speaks when it is ready: others must be let in meanwhile."""

_MOST_OF_A_USER = 16
"""No user can keep the others out by connecting."""

_FIRST_CLIENT_TIMEOUT_S = 60.0
"""A sampler of one run whose run died before it called must not stay for ever."""

_LAST_WORDS_S = 5.0
"""How long a run may live on after the sampler was told to end, to write its own record."""


class SamplerServer:
    """Serves whoever connects, one run at a time; with ``once`` ends with its last client."""

    def __init__(self, host: SamplerHost, *, path: Path, once: bool, access: Access) -> None:
        self._host = host
        self._path = path
        self._once = once
        self._access = access
        self._selector = selectors.DefaultSelector()
        self._connections: list[Connection] = []
        self._signal: signal.Signals | None = None
        self._give_up_ns: int | None = None
        if once:
            self._give_up_ns = time.monotonic_ns() + int(_FIRST_CLIENT_TIMEOUT_S * NS_PER_S)
        self._is_done = False

    def serve(self) -> None:
        """Listen until a signal or, with ``once``, until the client has ended.

        Raises:
            PowerError: the socket can't be made.
        """
        with self._signals(), listening(self._path, self._access) as listener:
            self._selector.register(listener, selectors.EVENT_READ)
            try:
                # A client is connected by now and at work itself: this is the time to import.
                import_module("wattload.power.sampler.recording")
                while not self._is_done:
                    self._turn(listener)
            finally:
                self._drop_all("the sampler failed")
                self._selector.close()

    def _turn(self, listener: socket.socket) -> None:
        # Whoever has a run comes first: its end must not make another hear "busy".
        events = sorted(self._selector.select(self._timeout_s()), key=_without_run)
        for key, mask in events:
            if key.fileobj is listener:
                self._accept(listener)
            elif key.data is None:
                self._on_signal(key.fd)
            elif key.data in self._connections and not _hear(key.data, key.fd, mask):
                self._drop(key.data, "the run ended without finishing")
        for connection in list(self._connections):
            if connection.has_command and not connection.obey_next():
                self._drop(connection, "its client ended or was given up")
            else:
                self._watch(connection)
        self._act_on_time()

    def _watch(self, connection: Connection) -> None:
        """Wait for the client to take its answer, or to say something; not for both at once."""
        events = selectors.EVENT_WRITE if connection.has_answer else selectors.EVENT_READ
        if self._selector.get_key(connection.stream).events != events:
            self._selector.modify(connection.stream, events, connection)

    def _recording(self) -> Recording | None:
        """Return the run at hand."""
        return next((each.recording for each in self._connections if each.recording), None)

    def _timeout_s(self) -> float | None:
        if any(connection.has_command for connection in self._connections):
            return 0.0
        recording = self._recording()
        due = (self._give_up_ns, recording.due_ns if recording else None)
        moments = [moment_ns for moment_ns in due if moment_ns is not None]
        if not moments:
            return None
        return max(0.0, (min(moments) - time.monotonic_ns()) / NS_PER_S)

    def _act_on_time(self) -> None:
        now_ns = time.monotonic_ns()
        if self._give_up_ns is not None and now_ns >= self._give_up_ns:
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
            _LOG.error("a client could not be let in: %s", error)
            return
        peer = peer_of(stream)
        refusal = self._why_not(peer)
        if refusal:
            _refuse(stream, refusal)
            return
        connection = Connection(self._host, stream, peer, self._recording)
        self._connections.append(connection)
        for descriptor in connection.descriptors:
            self._selector.register(descriptor, selectors.EVENT_READ, connection)
        if self._once:
            self._give_up_ns = None

    def _why_not(self, peer: Peer) -> str:
        """Return why whoever connected is not let in, if so."""
        if not self._access.admits(peer):
            return (
                f"user {peer.uid} may not use this sampler; `wattload sampler --user {peer.uid}`, "
                "or --group with one of the user's groups, permits it"
            )
        of_the_user = sum(each.peer.uid == peer.uid for each in self._connections)
        if len(self._connections) >= _MOST_CONNECTIONS or of_the_user >= _MOST_OF_A_USER:
            return (
                f"the sampler has {len(self._connections)} clients, {of_the_user} of them of user "
                f"{peer.uid}; it takes {_MOST_CONNECTIONS}, and {_MOST_OF_A_USER} of one user"
            )
        return ""

    def _drop(self, connection: Connection, reason: str) -> None:
        """Let a client go; a run that it has not finished is ended for it."""
        self._connections.remove(connection)
        for descriptor in connection.descriptors:
            self._selector.unregister(descriptor)
        try:
            connection.lost(reason)
        finally:
            connection.close()
        ends_with_its_clients = self._once or self._signal is not None
        self._is_done = self._is_done or (ends_with_its_clients and not self._connections)

    def _drop_all(self, reason: str) -> None:
        for connection in list(self._connections):
            self._drop(connection, reason)

    def _on_signal(self, descriptor: int) -> None:
        """Restore at once; then wait a little for the run to write its own record."""
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
        self._give_up_ns = time.monotonic_ns() + int(_LAST_WORDS_S * NS_PER_S)

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


def _without_run(event: tuple[selectors.SelectorKey, int]) -> bool:
    connection = event[0].data
    return not isinstance(connection, Connection) or connection.recording is None


def _hear(connection: Connection, descriptor: int, mask: int) -> bool:
    """Hear or answer a client; returns false when it has ended, its last words taken."""
    if descriptor == connection.process:
        connection.take_last_words()
        return False
    return connection.send() if mask & selectors.EVENT_WRITE else connection.receive()


def _refuse(stream: socket.socket, sentence: str) -> None:
    stream.setblocking(False)
    with contextlib.suppress(OSError):
        stream.send(encode({"ok": False, "kind": "PowerError", "error": sentence}))
    stream.close()


def _ignore(number: int, frame: object) -> None:
    """Let the wakeup descriptor tell."""
