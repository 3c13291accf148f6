"""What a client may say to the sampler: six commands, one JSON object per line.

A client names a run, controllers and block devices; it never sends a path or an opcode. Whatever
else arrives is answered with one sentence, and nothing is done.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wattload.core.errors import PowerError

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 64 * 1024
MAX_DEVICES = 64
SHORTEST_PERIOD_S = 0.01
LONGEST_PERIOD_S = 60.0

RUN_ID = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,120}")
"""No leading dot: ``..`` would be another folder."""

DEVICE_NAME = re.compile(r"(?!\.)[A-Za-z0-9!._-]{1,64}")
"""A controller (``nvme0``) or a block device (``vda``) as the kernel names it; no slash."""

_LONGEST_REASON = 2000


@dataclass(frozen=True, slots=True)
class Hello:
    """Begin with a run; its folder exists under the sampler's own runs folder."""

    run_id: str


@dataclass(frozen=True, slots=True)
class Open:
    """Open sources on devices, set the power state that ``request`` asks for.

    ``request`` holds fields of ``wattload.power.config.PowerConfig``.
    """

    request: Mapping[str, Any]
    devices: tuple[str, ...]
    block_devices: tuple[str, ...]
    period_s: float


@dataclass(frozen=True, slots=True)
class Start:
    """Begin to sample."""


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


Command = Hello | Open | Start | Status | Finish | Abort


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
    try:
        message = json.loads(line)
    except (ValueError, RecursionError) as error:
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
            f"the sampler speaks protocol {PROTOCOL_VERSION}, the run {_shown(version)}: "
            "start both from the same wattload"
        )
    return Hello(_name(message.pop("run_id", None), "run_id", RUN_ID))


def _open(message: dict[str, Any]) -> Open:
    request = message.pop("request", None)
    if not isinstance(request, dict):
        raise PowerError(f"request must be an object, got {_shown(request)}")
    period_s = message.pop("period_s", None)
    if isinstance(period_s, bool) or not isinstance(period_s, int | float):
        raise PowerError(f"period_s must be a number, got {_shown(period_s)}")
    if not SHORTEST_PERIOD_S <= period_s <= LONGEST_PERIOD_S:
        raise PowerError(
            f"period_s must be {SHORTEST_PERIOD_S:g} to {LONGEST_PERIOD_S:g}, got {period_s}"
        )
    return Open(
        request=request,
        devices=_names(message.pop("devices", None), "devices"),
        block_devices=_names(message.pop("block_devices", None), "block_devices"),
        period_s=float(period_s),
    )


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
    return text if len(text) <= 80 else text[:77] + "..."  # noqa: PLR2004 - one line of an answer
