"""Messages between a run, its sampler and a sampler service: one JSON object per line.

A run's commands are ``open``, ``start``, ``quiet``, ``status``, ``finish`` and ``abort``; each has
one answer. A service also sends ``samples`` between its answers.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any

from wattload.core import errors
from wattload.core.errors import PowerError, WattloadError

PROTOCOL_VERSION = 4
ANSWER_TIMEOUT_S = 180.0
"""Longer than the slowest power state change."""

_RECEIVE_BYTES = 64 * 1024

Message = Mapping[str, Any]


class MessageStream:
    """A connected socket that carries messages; several threads may send."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._rest = b""
        self._lock = threading.Lock()

    def fileno(self) -> int:
        return self._stream.fileno()

    def settimeout(self, seconds: float) -> None:
        self._stream.settimeout(seconds)

    def send(self, message: Message) -> None:
        """Send a message; raises ``OSError`` if the other side has ended."""
        data = json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"
        with self._lock:
            self._stream.sendall(data)

    def read(self) -> list[Message]:
        """Wait for data; return the messages that it completes, possibly none.

        Raises:
            EOFError: the other side has ended.
            PowerError: it sent something else than messages.
        """
        try:
            data = self._stream.recv(_RECEIVE_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            raise EOFError
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [_decoded(line) for line in lines]

    def receive(self) -> Message:
        """Wait for an answer to the only command under way; raises as ``read``."""
        while not (messages := self.read()):
            pass
        return messages[0]

    def close(self) -> None:
        """Close this process's copy of the connection; safe to call twice."""
        self._stream.close()


def _decoded(line: bytes) -> Message:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise PowerError(f"a message is not valid JSON: {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise PowerError(f"a message must be a JSON object, got {line[:80]!r}")
    return message


def refusal(error: WattloadError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": str(error)}


def error_in(answer: Message) -> WattloadError:
    """Return the error in an answer, with the class that it had in the other process."""
    sentence = str(answer.get("error"))
    found = getattr(errors, str(answer.get("kind")), PowerError)
    is_ours = isinstance(found, type) and issubclass(found, WattloadError)
    return found(sentence) if is_ours else PowerError(sentence)
