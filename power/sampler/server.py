"""The sampler's loop: one thread, one client at a time, a Unix socket and absolute deadlines."""

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

from wattload.core.errors import PowerError
from wattload.core.units import NS_PER_S
from wattload.power.sampler.connection import Connection
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.peer import peer_of
from wattload.power.sampler.protocol import encode

_LOG = logging.getLogger(__name__)

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_FIRST_CLIENT_TIMEOUT_S = 60.0
"""A sampler of one run whose run died before it called must not stay for ever."""

_LAST_WORDS_S = 5.0
"""How long a run may live on after the sampler was told to end, to write its own record."""


class SamplerServer:
    """Serves client after client, or with ``once`` the first alone."""

    def __init__(
        self, host: SamplerHost, *, path: Path, once: bool, allowed_uids: frozenset[int]
    ) -> None:
        self._host = host
        self._path = path
        self._once = once
        self._allowed_uids = allowed_uids
        self._selector = selectors.DefaultSelector()
        self._connection: Connection | None = None
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
        with self._signals(), self._listening() as listener:
            try:
                # A client is connected by now and at work itself: this is the time to import.
                import_module("wattload.power.sampler.recording")
                while not self._is_done:
                    self._turn(listener)
            finally:
                self._drop("the sampler failed")
                self._selector.close()

    def _turn(self, listener: socket.socket) -> None:
        events = self._selector.select(self._timeout_s())
        # The listener last: a client that has ended must not make the next one hear "busy".
        for key, _ in sorted(events, key=lambda event: event[0].fileobj is listener):
            if key.fileobj is listener:
                self._accept(listener)
            elif key.data is None:
                self._on_signal(key.fd)
            elif key.data is self._connection and not self._hear(key.fd):
                self._drop("the run ended without finishing")
        self._act_on_time()

    def _hear(self, descriptor: int) -> bool:
        """Take what the client says; returns false when it has ended, its last words taken."""
        connection = self._connection
        if connection is None or descriptor != connection.process:
            return connection is not None and connection.receive()
        while connection.has_more() and connection.receive():
            pass
        return False

    def _timeout_s(self) -> float | None:
        due = [self._give_up_ns, self._connection.due_ns() if self._connection else None]
        moments = [each for each in due if each is not None]
        if not moments:
            return None
        return max(0.0, (min(moments) - time.monotonic_ns()) / NS_PER_S)

    def _act_on_time(self) -> None:
        now_ns = time.monotonic_ns()
        if self._give_up_ns is not None and now_ns >= self._give_up_ns:
            self._drop("the run outlived its sampler")
            self._is_done = True
        if self._connection is None:
            return
        if self._connection.is_silent(now_ns):
            self._drop("")
            return
        recording = self._connection.recording
        if recording is not None and recording.due_ns is not None and now_ns >= recording.due_ns:
            recording.tick()

    def _accept(self, listener: socket.socket) -> None:
        stream, _ = listener.accept()
        peer = peer_of(stream)
        refusal = ""
        if peer.uid not in self._allowed_uids:
            refusal = f"user {peer.uid} may not use this sampler; --allow-uid {peer.uid} permits it"
        elif self._connection is not None:
            recording = self._connection.recording
            run = f"run {recording.run_id}" if recording else "another client"
            refusal = f"the sampler is busy with {run}"
        if refusal:
            _refuse(stream, refusal)
            return
        self._connection = Connection(self._host, stream, peer)
        self._selector.register(stream, selectors.EVENT_READ, self._connection)
        if self._connection.process is not None:
            process = self._connection.process
            self._selector.register(process, selectors.EVENT_READ, self._connection)
        if self._once:
            self._give_up_ns = None

    def _drop(self, reason: str) -> None:
        """Let the client go; a run that it has not finished is ended for it."""
        connection = self._connection
        if connection is None:
            return
        self._connection = None
        self._selector.unregister(connection.stream)
        if connection.process is not None:
            self._selector.unregister(connection.process)
        try:
            connection.lost(reason)
        finally:
            connection.close()
        self._is_done = self._is_done or self._once or self._signal is not None

    def _on_signal(self, descriptor: int) -> None:
        """Restore at once; then wait a little for the run to write its own record."""
        number = os.read(descriptor, 1)
        if self._signal is not None or not number:
            return
        self._signal = signal.Signals(number[0])
        _LOG.info("ended by %s", self._signal.name)
        connection = self._connection
        if connection is None or connection.recording is None:
            self._is_done = True
            return
        connection.ended_by = f"the sampler was ended by {self._signal.name}"
        connection.recording.end()
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

    @contextlib.contextmanager
    def _listening(self) -> Iterator[socket.socket]:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._bind(listener)
            try:
                listener.listen(4)
                self._selector.register(listener, selectors.EVENT_READ)
                yield listener
            finally:
                # A client of one run removes the socket's folder as soon as it is connected.
                self._path.unlink(missing_ok=True)
        finally:
            listener.close()

    def _bind(self, listener: socket.socket) -> None:
        """Bind with mode 0600; others are let in only if ``--allow-uid`` names some.

        Then the mode must let them try, and ``SO_PEERCRED`` alone decides.
        """
        others = self._allowed_uids - {0, os.geteuid()}
        mask = os.umask(0o111 if others else 0o177)
        try:
            self._remove_stale()
            listener.bind(str(self._path))
        except OSError as error:
            raise PowerError(
                f"the socket {self._path} can't be made: {error.strerror or error}"
            ) from error
        finally:
            os.umask(mask)

    def _remove_stale(self) -> None:
        """Remove the socket of a sampler that was killed; a living one keeps its own."""
        if not self._path.is_socket():
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(self._path)) == 0:
                raise PowerError(f"a sampler listens on {self._path} already")
        self._path.unlink()


def _refuse(stream: socket.socket, sentence: str) -> None:
    stream.setblocking(False)
    with contextlib.suppress(OSError):
        stream.send(encode({"ok": False, "kind": "PowerError", "error": sentence}))
    stream.close()


def _ignore(number: int, frame: object) -> None:
    """Let the wakeup descriptor tell."""
