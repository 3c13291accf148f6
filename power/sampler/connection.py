"""One client of the sampler: its messages, the run it speaks for, and how it ends.

Nothing here waits for a client. One that sends no end of a line, or takes no answer, holds up
itself alone; one command is obeyed at a time, so that no number of them delays the run at hand.
"""

from __future__ import annotations

import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from wattload import __version__
from wattload.core.errors import PowerError, WattloadError
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.peer import Peer, open_process
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

_RECEIVE_BYTES = 16 * 1024

_MOST_REFUSALS = 100
"""A run that works is refused once or twice; whoever goes on after that many is none."""


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
        self._run_at_hand = run_at_hand
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
        """Why commands are refused now, if the sampler itself is ending."""

    @property
    def descriptors(self) -> list[int]:
        """What to watch: its messages, and its end where that can be seen."""
        process = [] if self.process is None else [self.process]
        return [self.stream.fileno(), *process]

    @property
    def has_command(self) -> bool:
        """Whether a command has arrived that is not obeyed yet, and its answer can be sent."""
        return bool(self._lines) and not self._answers

    @property
    def has_answer(self) -> bool:
        """Whether an answer waits for the client to take it; nothing is read meanwhile."""
        return bool(self._answers)

    def receive(self) -> bool:
        """Take what has arrived; returns false when the client has ended."""
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

    def obey_next(self) -> bool:
        """Obey and answer the oldest command; returns false where the client is given up."""
        line = self._lines.popleft()
        try:
            return self._send({"ok": True, **self._obey(parse(line))})
        except WattloadError as error:
            self._refusal_count += 1
            return self._send(_refusal(error)) and self._refusal_count < _MOST_REFUSALS
        except Exception:
            if not self._host.is_service:
                raise
            # A bug that one run meets ends that run, and not the service of all the others.
            _LOG.exception("a client of user %d is given up", self.peer.uid)
            self._send(_refusal(PowerError("the sampler failed at this; its log says why")))
            return False

    def tick(self) -> bool:
        """Sample the run; returns false where the client is given up for it."""
        try:
            self._current().tick()
        except Exception:
            if not self._host.is_service:
                raise
            _LOG.exception("the run of user %d is given up", self.peer.uid)
            return False
        return True

    def send(self) -> bool:
        """Send what the client takes of its answers; returns false when it has ended."""
        try:
            sent = self.stream.send(self._answers)
        except BlockingIOError:
            return True
        except OSError:
            return False
        del self._answers[:sent]
        return True

    def take_last_words(self) -> None:
        """Obey what a client that has ended said before; a child of its may not say more."""
        received_bytes = 0
        while received_bytes < MAX_LINE_BYTES:
            while self.has_command and self.obey_next():
                pass
            received_bytes += _RECEIVE_BYTES
            if self.has_answer or not self.receive() or not self._lines:
                return

    def lost(self, reason: str) -> None:
        """End the run of a client that ended without ``finish``, and write its record."""
        if self.recording is None:
            return
        _LOG.warning("run %s: %s", self.recording.run_id, reason)
        self.recording.end()
        self.recording.write_record("aborted", reason)
        self.recording = None

    def close(self) -> None:
        """Give the descriptors back."""
        self.stream.close()
        if self.process is not None:
            os.close(self.process)
            self.process = None

    def _obey(self, command: Command) -> Mapping[str, Any]:
        if self.ended_by:
            raise PowerError(self.ended_by)
        match command:
            case Hello(run_id):
                return self._greet(run_id)
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

    def _greet(self, run_id: str) -> Mapping[str, Any]:
        running = self._run_at_hand()
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
            raise PowerError("say hello first: no run was named")
        return self.recording

    def _send(self, message: Mapping[str, Any]) -> bool:
        self._answers += encode(message)
        return self.send()


def _refusal(error: WattloadError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": str(error)}
