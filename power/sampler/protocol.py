"""Messages between a run, its sampler and a sampler service: one JSON object per line.

A run's commands are ``open``, ``start``, ``quiet``, ``finish`` and ``abort``; each has one answer.
The answers to ``open``, ``finish`` and ``abort`` contain a reply. A service also sends ``samples``
between its answers. Both sides must be of one version of wattload.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self, TypeVar

from pydantic import ValidationError

from wattload.core import errors
from wattload.core.base_models import Frozen, first_fault
from wattload.core.errors import PowerError, WattloadError
from wattload.core.power import WindowEnergy
from wattload.core.record.energy import (
    LostReadings,
    PowerSourceRecord,
    PowerStateRecord,
    SamplerRecord,
)
from wattload.core.record.target import PowerCapabilities, PowerStateFacts

ANSWER_TIMEOUT_S = 180.0
"""Longer than the slowest power state change."""

BEGIN = b"\n"
"""What a run sends first, with the descriptor of its sampler's log."""

SAME_VERSION = "start both from the same wattload"

_RECEIVE_BYTES = 64 * 1024

Message = Mapping[str, Any]
Reply = TypeVar("Reply", bound=Frozen)


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

    def close(self) -> None:
        """End the connection, even if a forked worker has a copy of it; safe to call twice."""
        with suppress(OSError):  # it has ended already
            self._stream.shutdown(socket.SHUT_RDWR)
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


def reply_in(answer: Message, kind: type[Reply]) -> Reply:
    """Return the reply in an answer; raises ``PowerError`` if it is of another version."""
    try:
        return kind.model_validate(answer.get("report"))
    except ValidationError as error:
        place, *_ = first_fault(error)
        raise PowerError(
            f"the sampler sent a reply that this wattload can't read ({place or 'report'}): "
            f"{SAME_VERSION}"
        ) from error


class ControllerReading(Frozen):
    """The part of a controller's state that admin commands report.

    ``fields`` are fields of ``ControllerState`` with their values, ``missing`` the reasons for the
    others. ``nvme_version``, the table ``power_states`` and ``power`` belong to
    ``ControllerFacts``; they are ``None`` if the controller can't be identified.
    """

    serial: str
    fields: Mapping[str, Any]
    missing: Mapping[str, str]
    nvme_version: str | None
    power_states: tuple[PowerStateFacts, ...] | None
    power: PowerCapabilities | None = None


class OpenReply(Frozen):
    """What can be sampled, and what was set. Controllers are keyed by name (``nvme0``).

    ``choice`` says which sources were selected for the drives and why. ``recovered`` has sentences
    about changes that earlier runs left behind.
    """

    host: str
    choice: str
    sources: tuple[PowerSourceRecord, ...]
    states: tuple[PowerStateRecord, ...]
    controllers: Mapping[str, ControllerReading]
    recovered: tuple[str, ...]


class FinishReply(Frozen):
    """The final state of the controllers, what was restored, and the cost of sampling.

    ``cost`` is ``None`` for a run that was not sampled.
    """

    states: tuple[PowerStateRecord, ...]
    controllers: Mapping[str, ControllerReading]
    own_energies: tuple[WindowEnergy, ...]
    data_lost: tuple[LostReadings, ...] = ()
    cost: SamplerRecord | None = None

    def with_counts(self, sample_count: int, lost_count: int) -> Self:
        """Return the reply with the samples that were written and lost in the end."""
        if self.cost is None:
            return self
        counts = {"sample_count": sample_count, "lost_sample_count": lost_count}
        return self.model_copy(update={"cost": self.cost.model_copy(update=counts)})


class AbortReply(Frozen):
    """What was restored after a run that failed."""

    states: tuple[PowerStateRecord, ...]
