"""The protocol of QIS, the Quarch Instrument Server: commands, stream header, stripes.

Stripes are the lines of readings in a stream. The sources are QIS's ``help.txt`` (v1.47; the header
is in appendix A, V3), the client quarchpy 2.2.23, and the answers of QIS 1.55.1 without a module.
quarchpy itself is not used: it brings about 50 MB and a Java server, starts a thread for each
stream, writes the stream to a file and does not record when data arrives.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, PowerError

TOTAL = "tot"
"""The name that QIS gives to the sum of its power channels, which is not a rail."""

_PERIOD = re.compile(r"(\d+) *(ns|us|ms|s)", re.IGNORECASE)
_PERIOD_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_PERIOD_TAGS = ("mainPeriod", "devicePeriod", "devicePerioduS")
_UNIT = re.compile(r"([nuµmkM]?)([VAW])")
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
_RATED_VOLTS = re.compile(r"(\d+)[Vv](\d*).*")

CURSOR = b"\r\n>"
"""The end of every answer. In XML a ``>`` never follows the end of a line."""

ANSWER_TIMEOUT_S = 5.0
_LINE_END = b"\r\n"
_CONNECT_TIMEOUT_S = 5.0
_RECEIVE_BYTES = 256 * 1024

_END = "eof"
"""The end of a block with all available stripes; without it, more are available."""


class Qis:
    """A connection to QIS, for one module.

    Raises:
        PowerError: no server answers, or it does not send a greeting.
    """

    def __init__(self, host: str, port: int, module: str) -> None:
        self.place = f"{host}:{port}"
        self.module = module
        try:
            self._socket = socket.create_connection((host, port), _CONNECT_TIMEOUT_S)
        except OSError as error:
            raise PowerError(
                f"no QIS answers on {self.place} ({error.strerror or error}); start it on the "
                "host of the module, or set power.quarch.host and power.quarch.port"
            ) from error
        try:
            self._read_greeting()
        except PowerError:
            self.close()
            raise

    def command(self, command: str, *, timeout_s: float = ANSWER_TIMEOUT_S) -> str:
        """Return the answer to a command for the module, without the cursor.

        Raises:
            PowerError: the connection is lost, or the answer is not complete in time.
        """
        return self._exchange(f"{self.module} {command}", timeout_s)

    def server_command(self, command: str) -> str:
        """Return the answer to a command for QIS itself; see ``command``."""
        return self._exchange(command, ANSWER_TIMEOUT_S)

    def stream_state(self, *, timeout_s: float = ANSWER_TIMEOUT_S) -> StreamState:
        """Return whether the module streams, and if not, why."""
        lines = self.command("stream?", timeout_s=timeout_s).splitlines()
        return StreamState(lines[0].strip() if lines else "")

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _read_greeting(self) -> None:
        """Read the greeting: one line with the version, in QIS 1.55 without a cursor after it."""
        try:
            greeting = b""
            while not greeting.endswith((_LINE_END, CURSOR)):
                part = self._socket.recv(_RECEIVE_BYTES)
                if not part:
                    raise PowerError(f"{self.place} closed the connection: is QIS listening there?")
                greeting += part
        except OSError as error:
            raise PowerError(f"{self.place} did not send the greeting of QIS ({error})") from error

    def _exchange(self, line: str, timeout_s: float) -> str:
        try:
            self._socket.settimeout(timeout_s)
            self._socket.sendall(line.encode() + b"\r\n")
            answer = bytearray()
            while not answer.endswith(CURSOR):
                part = self._socket.recv(_RECEIVE_BYTES)
                if not part:
                    raise PowerError(f"QIS on {self.place} closed the connection during {line!r}")
                answer += part
        except OSError as error:
            raise PowerError(f"QIS on {self.place} did not answer {line!r} ({error})") from error
        # A late cursor of the greeting precedes the first answer.
        return answer[: -len(CURSOR)].decode(errors="replace").removeprefix(">")


@dataclass(frozen=True, slots=True)
class StreamState:
    """The answer to ``stream?``: ``Running``, or ``Stopped:`` and the reason."""

    sentence: str

    @property
    def is_running(self) -> bool:
        return self.sentence.lower().startswith("running")

    @property
    def lost_data(self) -> bool:
        text = self.sentence.lower()
        return "overrun" in text or "out of buffer" in text


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeader:
    """A stream: the time between two stripes, and all its channels of volts, amperes and watts.

    ``time_unit_ns`` is the unit of a stripe's time, ``column_count`` the number of its values.
    """

    period_ns: int
    time_unit_ns: int
    column_count: int
    channels: tuple[StreamChannel, ...]

    def rails(self, wanted: Sequence[str]) -> tuple[Rail, ...]:
        """Return the rails in ``wanted``, or all rails if it is empty.

        Raises:
            ConfigError: a rail is not in the stream.
            PowerError: a rail has neither a power channel nor both volts and amperes.
        """
        names = list(dict.fromkeys(each.rail for each in self.channels))
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ConfigError(
                f"power.quarch.rails has {unknown[0]!r}; the module streams {', '.join(names)}"
            )
        names_used = wanted or [name for name in names if name.lower() != TOTAL]
        rails = [rail for rail in map(self._rail, names_used) if rail is not None]
        missing = set(wanted) - {rail.name for rail in rails}
        if missing or not rails:
            raise PowerError(
                "the module streams neither power nor volts and amperes of "
                f"{', '.join(sorted(missing)) or 'any rail'}; enable these channels in QIS"
            )
        return tuple(rails)

    def _rail(self, name: str) -> Rail | None:
        found = {each.quantity: each for each in self.channels if each.rail == name}
        if "W" in found:
            return Rail(name=name, channels=(found["W"],))
        if "V" in found and "A" in found:
            return Rail(name=name, channels=(found["V"], found["A"]))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """A rail of the drive: its power channel, or its volts and amperes."""

    name: str
    channels: tuple[StreamChannel, ...]

    def watts(self, stripes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return watts, shape (n,), from stripes of shape (n, columns)."""
        watts = np.ones(stripes.shape[0])
        for channel in self.channels:
            watts *= stripes[:, channel.position] * channel.scale
        return watts

    def resolution_w(self) -> float | None:
        """Return one step of the power or current in watts, if the rail's name gives its volts."""
        first, *others = self.channels
        if not others:
            return first.scale
        rated = _RATED_VOLTS.fullmatch(self.name)
        if rated is None:
            return None
        volts = float(f"{rated[1]}.{rated[2] or 0}")
        (step_a,) = (each.scale for each in self.channels if each.quantity == "A")
        return volts * step_a

    def describe(self) -> str:
        """Return the rail's name with the units that its watts come from."""
        return f"{self.name} ({' x '.join(each.unit for each in self.channels)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChannel:
    """One column of a stripe: ``value * scale`` is in ``quantity``'s SI unit (V, A or W)."""

    rail: str
    quantity: str
    unit: str
    scale: float
    position: int


def parse_header(text: str) -> StreamHeader:
    """Return the content of a V3 header.

    Raises:
        PowerError: it is not such a header, or its channels have several rates.
    """
    try:
        root = ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as error:
        raise PowerError(
            f"the stream's header is not valid XML ({error}): {text[:60]!r}"
        ) from error
    if len(root.findall(".//channels")) > 1:
        raise PowerError(
            "the module streams groups of channels at several rates; stream the drive's rails "
            "alone, or set one rate for all by `stream mode resample` in QIS"
        )
    positions = [int(_text(each, "dataPosition")) for each in root.iter("channel")]
    channels = tuple(filter(None, map(_channel, root.iter("channel"))))
    most_common = Counter((each.rail, each.quantity) for each in channels).most_common(1)
    if not channels or most_common[0][1] > 1:
        raise PowerError(
            "the stream's header names "
            + (f"{' '.join(most_common[0][0])} twice" if channels else "no channel in V, A or W")
        )
    period_ns, unit_ns = _period(root)
    return StreamHeader(
        period_ns=period_ns,
        time_unit_ns=unit_ns,
        column_count=max(positions) + 1,
        channels=channels,
    )


def _channel(element: ElementTree.Element) -> StreamChannel | None:
    """Return a channel, ``None`` for one in another unit (status, trigger, digital)."""
    unit = _UNIT.fullmatch(_text(element, "units"))
    if unit is None:
        return None
    return StreamChannel(
        rail=_text(element, "name"),
        quantity=unit[2],
        unit=unit[0],
        scale=_PREFIXES[unit[1]],
        position=int(_text(element, "dataPosition")),
    )


def _period(root: ElementTree.Element) -> tuple[int, int]:
    """Return the time between stripes and the unit of their times, both in ns.

    Times are microseconds unless the header has only a ``mainPeriod`` in ns (as in quarchpy).
    """
    found = {
        tag: _PERIOD.fullmatch((root.findtext(f".//{tag}") or "").strip()) for tag in _PERIOD_TAGS
    }
    period = next((match for match in found.values() if match is not None), None)
    if period is None or not int(period[1]):
        raise PowerError(f"the stream's header has none of {', '.join(_PERIOD_TAGS)}")
    is_ns = period[2].lower() == "ns" and found["devicePeriod"] is None
    return int(period[1]) * _PERIOD_NS[period[2].lower()], 1 if is_ns else 1_000


def _text(element: ElementTree.Element, tag: str) -> str:
    text = (element.findtext(tag) or "").strip()
    if not text or (tag == "dataPosition" and not text.isdecimal()):
        raise PowerError(f"a channel in the stream's header has no valid {tag}: {text!r}")
    return text


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One answer to ``stream text all``, with stripes of shape (n, columns).

    ``is_all`` is false if QIS has more stripes already.
    """

    stripes: NDArray[np.float64]
    is_all: bool


def parse_block(text: str, column_count: int) -> Block:
    """Return the stripes in a block.

    Raises:
        PowerError: it holds other text, or a line with another number of values.
    """
    body = text.rstrip()
    is_all = body.endswith(_END)
    body = body.removesuffix(_END).rstrip()
    line_count = body.count("\n") + 1 if body else 0
    numbers = _numbers(body)
    if numbers.size != line_count * column_count:
        raise PowerError(
            f"QIS sent {line_count} stripes with {numbers.size} numbers; its header has "
            f"{column_count} per stripe"
        )
    return Block(numbers.reshape(line_count, column_count), is_all or line_count == 0)


def _numbers(body: str) -> NDArray[np.float64]:
    """Return the numbers in a text; whole ones, the usual case, are parsed eight times as fast."""
    if not body:
        return np.empty(0)
    is_whole = "." not in body and "e" not in body
    try:
        # NumPy refuses text or, by version, returns the numbers before it, which are too few.
        found = np.fromstring(body, dtype=np.int64 if is_whole else np.float64, sep=" ")
    except (DeprecationWarning, ValueError) as error:
        raise PowerError(f"QIS sent text instead of stripes: {body[:60]!r}") from error
    if not np.isfinite(found).all():
        raise PowerError(f"QIS sent a stripe with an invalid number: {body[:60]!r}")
    return found.astype(np.float64)
