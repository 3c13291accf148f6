"""The loop that serves one client: its commands, its samples, and its end.

However the client or this process ends, nothing is set, locked or open afterwards.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from pydantic import BaseModel

from wattload import __version__
from wattload.core.errors import PowerError, WattloadError
from wattload.core.record.energy import PowerStateRecord
from wattload.power.sampler.host import SamplerHost
from wattload.power.sampler.protocol import (
    SAME_VERSION,
    AbortReply,
    Message,
    MessageStream,
    OpenReply,
    refusal,
)
from wattload.power.sampler.recording import Recording
from wattload.power.sampler.samples import RoundTarget

ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_LOG = logging.getLogger(__name__)
CLIENT_GONE = "the run's process was killed or crashed; run the same command again"

_FIELDS: Mapping[str, set[str]] = {
    "open": {"run_id", "request", "devices", "block_devices"},
    "start": set(),
    "quiet": {"is_on"},
    "finish": set(),
    "abort": set(),
}
"""The fields of each command. ``open`` may also have ``replayed``, and its version comes first."""

MakeTarget = Callable[[str, float], RoundTarget]
"""Returns where the samples of a run go, for its name and their period in seconds."""


class Commands(Protocol):
    """What a client's commands do, for one run after the other.

    ``run_id`` is the run that may need a record, under way or aborted, and ``states`` are the power
    states of its drives.
    ``due_ns`` is when ``tick`` is due by CLOCK_MONOTONIC, ``None`` if it is not. ``watched`` has
    further descriptors, and what to call when they have data.
    """

    @property
    def run_id(self) -> str | None: ...

    @property
    def states(self) -> Sequence[PowerStateRecord]: ...

    @property
    def due_ns(self) -> int | None: ...

    @property
    def watched(self) -> Mapping[int, Callable[[], None]]: ...

    def tick(self) -> None: ...

    def execute(self, message: Message) -> Mapping[str, Any]:
        """Execute a command and return the fields of its answer; raises ``WattloadError``."""
        ...

    def end(self) -> None:
        """Restore and release everything."""
        ...


class Sampler:
    """Commands that read and set the drives of this host."""

    def __init__(self, host: SamplerHost, make_target: MakeTarget) -> None:
        self._host = host
        self._make_target = make_target
        self._recording: Recording | None = None

    @property
    def run_id(self) -> str | None:
        return self._recording.run_id if self._recording else None

    @property
    def states(self) -> Sequence[PowerStateRecord]:
        return self._recording.states if self._recording else ()

    @property
    def due_ns(self) -> int | None:
        return self._recording.due_ns if self._recording else None

    @property
    def watched(self) -> Mapping[int, Callable[[], None]]:
        return {}

    def tick(self) -> None:
        self._current().tick()

    def end(self) -> None:
        if self._recording is not None:
            self._recording.end()

    def execute(self, message: Message) -> Mapping[str, Any]:
        command, fields = _checked(message)
        reply: BaseModel | None = None
        match command:
            case "open":
                reply = self._open(**fields)
            case "start":
                self._current().start()
            case "quiet":
                self._current().quiet(**fields)
            case "finish":
                reply = self._current().finish()
                self._recording = None
            case "abort":
                self.end()
                reply = AbortReply(states=tuple(self.states))
        return {} if reply is None else {"report": reply.model_dump(mode="json")}

    def _open(self, *, run_id: str, **fields: Any) -> OpenReply:
        self.end()
        _LOG.info("run %s", run_id)
        self._recording = Recording(
            self._host, run_id, lambda period_s: self._make_target(run_id, period_s)
        )
        return self._recording.open(**fields)

    def _current(self) -> Recording:
        if self._recording is None:
            raise PowerError("send open first: there is no run")
        return self._recording


def _checked(message: Message) -> tuple[str, dict[str, Any]]:
    """Return a command and its fields.

    Raises:
        PowerError: the run is of another version, or the command or its fields are unknown.
    """
    fields = dict(message)
    command = str(fields.pop("command", None))
    if command == "open":  # first: the other fields may differ between versions
        version = fields.pop("version", "unknown")
        if version != __version__:
            raise PowerError(
                f"the version of the sampler is {__version__}, of the run {version}: {SAME_VERSION}"
            )
    optional = {"replayed"} if command == "open" else set()
    if fields.keys() - optional != _FIELDS.get(command):
        raise PowerError(
            f"unknown command {command} with the fields {', '.join(fields) or 'none'}: "
            f"{SAME_VERSION}"
        )
    return command, fields


def serve_client(stream: MessageStream, commands: Commands, *, parent: int | None = None) -> str:
    """Serve a client until it ends or a signal comes; return why its run ended, if it is dead.

    ``parent`` is a descriptor that becomes readable when the process of the client ends: a worker
    that it forked may keep the connection open. A further signal does not interrupt the end.
    """
    with _ending_signals() as signals:
        try:
            return _serve(stream, commands, signals, parent)
        finally:
            commands.end()


def _serve(stream: MessageStream, commands: Commands, signals: int, parent: int | None) -> str:
    while True:
        handlers = commands.watched
        poll = select.poll()
        parents = () if parent is None else (parent,)
        for descriptor in (stream.fileno(), signals, *handlers, *parents):
            poll.register(descriptor, select.POLLIN)
        due_ns = commands.due_ns
        left_ns = None if due_ns is None else max(0, due_ns - time.monotonic_ns())
        ready = dict(poll.poll(None if left_ns is None else left_ns / 1e6))
        if signals in ready:
            return ""  # the run lives, and will notice
        for descriptor, handle in handlers.items():
            if descriptor in ready:
                handle()
        if stream.fileno() in ready:
            try:
                for message in stream.read():
                    stream.send(_answer(commands, message))
            except (EOFError, OSError):
                return CLIENT_GONE
        elif parent in ready:
            return CLIENT_GONE
        if due_ns is not None and time.monotonic_ns() >= due_ns and commands.due_ns is not None:
            commands.tick()


def _answer(commands: Commands, message: Message) -> Message:
    try:
        return {"ok": True, **commands.execute(message)}
    except WattloadError as error:
        return refusal(error)


@contextmanager
def _ending_signals() -> Iterator[int]:
    """Turn the ending signals into bytes that can be read from a descriptor, during the block."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    before = {number: signal.signal(number, _ignore) for number in ENDING_SIGNALS}
    wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        yield reader
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, handler in before.items():
            signal.signal(number, handler)
        for descriptor in (reader, writer):
            os.close(descriptor)


def _ignore(number: int, frame: object) -> None:
    """Do nothing: the wakeup descriptor reports the signal."""


def process_of(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process ends; ``None`` if it has ended."""
    with suppress(OSError):
        return os.pidfd_open(pid)
    return None
