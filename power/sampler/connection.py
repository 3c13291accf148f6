"""One client of the sampler: its messages, the run it speaks for, and how it ends."""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wattload.core.errors import PowerError, WattloadError
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.peer import Peer, open_process
from wattload.power.sampler.protocol import (
    PROTOCOL_VERSION,
    Abort,
    Command,
    Finish,
    Hello,
    LineBuffer,
    Open,
    Start,
    Status,
    encode,
    parse,
)

if TYPE_CHECKING:
    from wattload.power.sampler.recording import Recording

_LOG = logging.getLogger(__name__)

_RECEIVE_BYTES = 16 * 1024
_SEND_TIMEOUT_S = 5.0


class Connection:
    """A client that was let in. It may speak for several runs, one after the other."""

    def __init__(
        self,
        host: SamplerHost,
        stream: socket.socket,
        peer: Peer,
        run_at_hand: Callable[[], Recording | None],
    ) -> None:
        self._host = host
        self._peer = peer
        self._run_at_hand = run_at_hand
        self._buffer = LineBuffer()
        self.stream = stream
        self.stream.settimeout(_SEND_TIMEOUT_S)
        self.process = open_process(peer.pid)
        self.recording: Recording | None = None
        self.ended_by = ""
        """Why commands are refused now, if the sampler itself is ending."""

    @property
    def descriptors(self) -> list[int]:
        """What to watch: its messages, and its end where that can be seen."""
        process = [] if self.process is None else [self.process]
        return [self.stream.fileno(), *process]

    def receive(self) -> bool:
        """Answer what has arrived; returns false when the client has ended."""
        try:
            data = self.stream.recv(_RECEIVE_BYTES)
        except OSError:
            return False
        if not data:
            return False
        try:
            lines = self._buffer.feed(data)
        except PowerError as error:
            self._send(_refusal(error))
            return False
        return all(self._answer(line) for line in lines)

    def has_more(self) -> bool:
        """Return whether something has arrived that was not received yet."""
        return bool(select.select([self.stream], [], [], 0)[0])

    def lost(self, reason: str) -> None:
        """End the run of a client that ended without ``finish``, and write its record."""
        if self.recording is None:
            return
        self.recording.end()
        self.recording.write_record("aborted", reason)
        self.recording = None

    def close(self) -> None:
        """Give the descriptors back."""
        self.stream.close()
        if self.process is not None:
            os.close(self.process)
            self.process = None

    def _answer(self, line: bytes) -> bool:
        try:
            return self._send({"ok": True, **self._obey(parse(line))})
        except WattloadError as error:
            _LOG.info("refused: %s", error)
            return self._send(_refusal(error))

    def _obey(self, command: Command) -> Mapping[str, Any]:
        if self.ended_by:
            raise PowerError(self.ended_by)
        match command:
            case Hello(run_id):
                return self._greet(run_id)
            case Open():
                return {"report": self._current().open(command).model_dump(mode="json")}
            case Start():
                self._current().start()
                return {}
            case Status():
                return {"report": self._current().status().model_dump(mode="json")}
            case Finish():
                report = self._current().finish()
                self.recording = None
                return {"report": report.model_dump(mode="json")}
            case Abort(status, reason):
                recording = self._current()
                recording.end()
                recording.write_record(status, reason)
                self.recording = None
                return {}

    def _greet(self, run_id: str) -> Mapping[str, Any]:
        running = self._run_at_hand()
        if running is not None:
            raise PowerError(f"the sampler is busy with run {running.run_id}")
        from wattload.power.sampler.recording import Recording

        self.recording = Recording(self._host, self._peer, run_id)
        return {"protocol": PROTOCOL_VERSION, "host": self._host.name, "pid": os.getpid()}

    def _current(self) -> Recording:
        if self.recording is None:
            raise PowerError("say hello first: no run was named")
        return self.recording

    def _send(self, message: Mapping[str, Any]) -> bool:
        try:
            self.stream.sendall(encode(message))
        except OSError:
            return False
        return True


def _refusal(error: WattloadError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": str(error)}
