"""What a client may say to the sampler: seven commands, one JSON object per line.

A client names a run, controllers and block devices; it never sends a path, a length or an opcode.
Whatever else arrives is answered with one sentence, and nothing is done.

Version 2: the period is part of the request alone, and ``hello`` answers with the wattload that it
comes from. Version 1 had it twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wattload import __version__
from wattload.core.errors import PowerError

PROTOCOL_VERSION = 2
MAX_LINE_BYTES = 64 * 1024
MAX_DEVICES = 64

RUN_ID = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,120}")
"""No leading dot: ``..`` would be another folder."""

DEVICE_NAME = re.compile(r"(?!\.)[A-Za-z0-9!._-]{1,64}")
"""A controller (``nvme0``) or a block device (``vda``) as the kernel names it; no slash."""

_LONGEST_REASON = 2000

_MOST_BRACKETS = 256
"""No message nests deeper than that, so that whatever walks through one has stack enough."""

_SHOWN_LETTERS = 80


@dataclass(frozen=True, slots=True)
class Hello:
    """Begin with a run; its folder exists under the sampler's own runs folder."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Open:
    """Open sources on devices, set the power state that ``request`` asks for.

    ``request`` holds fields of ``wattload.power.config.PowerConfig``; which of them a client may
    choose ``wattload.power.sampler.request`` says.
    """

    request: Mapping[str, Any]
    devices: tuple[str, ...]
    block_devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to sample."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Leave the drives alone, or read them again; other meters go on either way."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Ask how far it is."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The run has ended as it should."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The run has ended otherwise: write its record."""

    status: Literal["failed", "aborted"]
    reason: str


Command = Hello | Open | Start | Quiet | Status | Finish | Abort


@dataclass(slots=True)
class LineBuffer:
    """Cuts a stream into lines of at most ``MAX_LINE_BYTES``."""

    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete with ``data``.

        Raises:
            PowerError: a line is too long; nothing after it can be understood.
        """
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if any(len(line) > MAX_LINE_BYTES for line in (*lines, rest)):
            raise PowerError(f"a message is longer than {MAX_LINE_BYTES} bytes")
        return [bytes(line) for line in lines]


def encode(message: Mapping[str, Any]) -> bytes:
    """Return a message as one line."""
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def parse(line: bytes) -> Command:
    """Return the command in a line.

    Raises:
        PowerError: it is no JSON object, names no command, or a field is missing, foreign or wrong.
    """
    if line.count(b"{") + line.count(b"[") > _MOST_BRACKETS:
        raise PowerError(f"a message has more than {_MOST_BRACKETS} brackets")
    try:
        message = json.loads(line.decode())
        # Half a surrogate pair is JSON, and no text that anything could write down.
        json.dumps(message, ensure_ascii=False).encode()
    except ValueError as error:
        raise PowerError(f"a message is no JSON: {error}") from error
    if not isinstance(message, dict):
        raise PowerError("a message must be a JSON object")
    name = message.pop("command", None)
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise PowerError(f"command must be one of {', '.join(_READERS)}; got {_shown(name)}")
    command = reader(message)
    if message:
        raise PowerError(f"{name} has no field {_shown(sorted(message)[0])}")
    return command


def _hello(message: dict[str, Any]) -> Hello:
    version = message.pop("protocol", None)
    if version != PROTOCOL_VERSION:
        raise PowerError(
            f"the sampler (wattload {__version__}) speaks protocol {PROTOCOL_VERSION}, the run "
            f"{_shown(version)}: start both from the same wattload"
        )
    return Hello(_name(message.pop("run_id", None), "run_id", RUN_ID))


def _open(message: dict[str, Any]) -> Open:
    request = message.pop("request", None)
    if not isinstance(request, dict):
        raise PowerError(f"request must be an object, got {_shown(request)}")
    return Open(
        request=request,
        devices=_names(message.pop("devices", None), "devices"),
        block_devices=_names(message.pop("block_devices", None), "block_devices"),
    )


def _quiet(message: dict[str, Any]) -> Quiet:
    is_on = message.pop("on", None)
    if not isinstance(is_on, bool):
        raise PowerError(f"on must be true or false, got {_shown(is_on)}")
    return Quiet(is_on)


def _abort(message: dict[str, Any]) -> Abort:
    status = message.pop("status", None)
    if status not in ("failed", "aborted"):
        raise PowerError(f"status must be failed or aborted, got {_shown(status)}")
    reason = message.pop("reason", None)
    if not isinstance(reason, str):
        raise PowerError(f"reason must be text, got {_shown(reason)}")
    return Abort("failed" if status == "failed" else "aborted", reason[:_LONGEST_REASON])


_READERS: dict[str, Callable[[dict[str, Any]], Command]] = {
    "hello": _hello,
    "open": _open,
    "start": lambda _: Start(),
    "quiet": _quiet,
    "status": lambda _: Status(),
    "finish": lambda _: Finish(),
    "abort": _abort,
}


def _names(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_DEVICES:
        raise PowerError(f"{name} must be a list of at most {MAX_DEVICES} names")
    return tuple(dict.fromkeys(_name(each, name, DEVICE_NAME) for each in value))


def _name(value: object, name: str, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise PowerError(f"{name} must match {pattern.pattern}, got {_shown(value)}")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_LETTERS else text[: _SHOWN_LETTERS - 3] + "..."
