"""The messages that a client may send to the sampler: seven commands, one JSON object per line.

A client names a run, controllers and block devices; it never sends a path, a length or an opcode.
The answer to any other message is an error, and nothing is done.

Since version 3, the client of a service sends ``status`` every 10 s while its run is under way, so
that one which is stopped does not keep the others out. In version 2 only the request contains the
period, and ``hello`` answers with the version of wattload. Version 1 sent the period twice.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wattload import __version__
from wattload.core import errors
from wattload.core.errors import PowerError, WattloadError

PROTOCOL_VERSION = 3
MAX_LINE_BYTES = 64 * 1024
MAX_DEVICES = 64

RUN_ID = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,120}")
"""No leading dot: ``..`` would be another folder."""

DEVICE_NAME = re.compile(r"(?!\.)[A-Za-z0-9!._-]{1,64}")
"""A controller (``nvme0``) or a block device (``vda``) as the kernel names it; no slash."""

_MAX_REASON = 2000
_MAX_SENTENCE = 4000

_MAX_BRACKETS = 256
"""Deeper nesting is refused, so that recursive code can't overflow its stack."""

_MAX_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Hello:
    """Start a run; its folder must exist in the sampler's own runs folder."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Open:
    """Open sources on devices and set the power state that ``request`` contains.

    ``request`` holds fields of ``wattload.power.config.PowerConfig``;
    ``wattload.power.sampler.access`` decides which of them a client may choose.
    """

    request: Mapping[str, Any]
    devices: tuple[str, ...]
    block_devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Start sampling."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Pause or resume reading the drives; other meters go on."""

    is_on: bool


@dataclass(frozen=True, slots=True)
class Status:
    """Request the sampler's progress."""


@dataclass(frozen=True, slots=True)
class Finish:
    """The run has ended normally."""


@dataclass(frozen=True, slots=True)
class Abort:
    """The run has failed or was aborted: write its record."""

    status: Literal["failed", "aborted"]
    reason: str


Command = Hello | Open | Start | Quiet | Status | Finish | Abort


@dataclass(slots=True)
class LineBuffer:
    """Splits a stream into lines of at most ``MAX_LINE_BYTES``."""

    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that ``data`` completes.

        Raises:
            PowerError: a line is too long; the rest of the stream can't be parsed.
        """
        self._rest += data
        *lines, rest = self._rest.split(b"\n")
        self._rest = bytearray(rest)
        if any(len(line) > MAX_LINE_BYTES for line in (*lines, rest)):
            raise PowerError(f"a message is longer than {MAX_LINE_BYTES} bytes")
        return [bytes(line) for line in lines]


def encode(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def refusal(error: WattloadError) -> dict[str, Any]:
    return {"ok": False, "kind": type(error).__name__, "error": str(error)[:_MAX_SENTENCE]}


def error_in(answer: Mapping[str, Any]) -> WattloadError:
    """Return the error in an answer, with the class that it had in the other process."""
    sentence = str(answer.get("error"))
    found = getattr(errors, str(answer.get("kind")), PowerError)
    is_ours = isinstance(found, type) and issubclass(found, WattloadError)
    return found(sentence) if is_ours else PowerError(sentence)


def parse(line: bytes) -> Command:
    """Return the command in a line.

    Raises:
        PowerError: the line is not a JSON object, its command is unknown, or a field is missing,
            unknown or invalid.
    """
    if line.count(b"{") + line.count(b"[") > _MAX_BRACKETS:
        raise PowerError(f"a message has more than {_MAX_BRACKETS} brackets")
    try:
        message = json.loads(line.decode())
        # JSON allows half a surrogate pair, which can't be encoded as text.
        json.dumps(message, ensure_ascii=False).encode()
    except ValueError as error:
        raise PowerError(f"a message is not valid JSON: {error}") from error
    if not isinstance(message, dict):
        raise PowerError("a message must be a JSON object")
    name = message.pop("command", None)
    reader = _READERS.get(name) if isinstance(name, str) else None
    if reader is None:
        raise PowerError(f"command must be one of {', '.join(_READERS)}; got {_abbreviated(name)}")
    command = reader(message)
    if message:
        raise PowerError(f"{name} has no field {_abbreviated(sorted(message)[0])}")
    return command


def _hello(message: dict[str, Any]) -> Hello:
    version = message.pop("protocol", None)
    if version != PROTOCOL_VERSION:
        raise PowerError(
            f"the sampler (wattload {__version__}) speaks protocol {PROTOCOL_VERSION}, the run "
            f"{_abbreviated(version)}: start both from the same wattload"
        )
    return Hello(_name(message.pop("run_id", None), "run_id", RUN_ID))


def _open(message: dict[str, Any]) -> Open:
    request = message.pop("request", None)
    if not isinstance(request, dict):
        raise PowerError(f"request must be an object, got {_abbreviated(request)}")
    return Open(
        request=request,
        devices=_names(message.pop("devices", None), "devices"),
        block_devices=_names(message.pop("block_devices", None), "block_devices"),
    )


def _quiet(message: dict[str, Any]) -> Quiet:
    is_on = message.pop("on", None)
    if not isinstance(is_on, bool):
        raise PowerError(f"on must be true or false, got {_abbreviated(is_on)}")
    return Quiet(is_on)


def _abort(message: dict[str, Any]) -> Abort:
    status = message.pop("status", None)
    if status not in ("failed", "aborted"):
        raise PowerError(f"status must be failed or aborted, got {_abbreviated(status)}")
    reason = message.pop("reason", None)
    if not isinstance(reason, str):
        raise PowerError(f"reason must be text, got {_abbreviated(reason)}")
    return Abort("failed" if status == "failed" else "aborted", reason[:_MAX_REASON])


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
        raise PowerError(f"{name} must match {pattern.pattern}, got {_abbreviated(value)}")
    return value


def _abbreviated(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 3] + "..."
