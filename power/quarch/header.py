"""What a stream's header says: the period, the channels with their units, and the rails they make.

The layout is that of QIS's ``help.txt``, appendix A, header V3: XML with ``devicePeriod`` and
``mainPeriod`` (the period after resampling) and, for each channel, ``name`` (the rail), ``group``,
``units`` and ``dataPosition``, which is its column in a stripe, the time being column 0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from wattload.core.errors import ConfigError, PowerError

TOTAL = "tot"
"""The name of the sum that QIS forms of its power channels: never a rail of its own."""

_PERIOD = re.compile(r"(\d+) *(ns|us|ms|s)", re.IGNORECASE)
_PERIOD_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_PERIOD_TAGS = ("mainPeriod", "devicePeriod", "devicePerioduS")
_UNIT = re.compile(r"([nuµmkM]?)([VAW])")
_PREFIXES = {"n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6}
_RATED_VOLTS = re.compile(r"(\d+)[Vv](\d*).*")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChannel:
    """One column of a stripe: ``value * scale`` is in ``quantity``'s SI unit (V, A or W)."""

    rail: str
    quantity: str
    unit: str
    scale: float
    position: int


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
        """Return what one step of the power or current makes in watts, where the rail says it."""
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
        """Return the rail with what its watts come from."""
        return f"{self.name} ({' x '.join(each.unit for each in self.channels)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeader:
    """A stream: seconds between two stripes, and all its channels of volts, amperes and watts.

    ``time_unit_ns`` is the unit of a stripe's time, ``column_count`` how many numbers it has.
    """

    period_ns: int
    time_unit_ns: int
    column_count: int
    channels: tuple[StreamChannel, ...]

    def rails(self, wanted: Sequence[str]) -> tuple[Rail, ...]:
        """Return the rails that are named, all of them where none is.

        Raises:
            ConfigError: a rail is not in the stream.
            PowerError: no rail has a power channel, or volts and amperes.
        """
        names = list(dict.fromkeys(each.rail for each in self.channels))
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise ConfigError(
                f"power.quarch.rails has {unknown[0]!r}; the module streams {', '.join(names)}"
            )
        chosen = wanted or [name for name in names if name.lower() != TOTAL]
        rails = [rail for rail in map(self._rail, chosen) if rail is not None]
        missing = set(wanted) - {rail.name for rail in rails}
        if missing or not rails:
            raise PowerError(
                f"the module streams no power, nor volts and amperes, of "
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


def parse_header(text: str) -> StreamHeader:
    """Return what a V3 header says.

    Raises:
        PowerError: it is no such header, or its channels come at several rates.
    """
    root = _parsed(text)
    if len(root.findall(".//channels")) > 1:
        raise PowerError(
            "the module streams groups of channels at several rates; stream the drive's rails "
            "alone, or set one rate for all by `stream mode resample` in QIS"
        )
    positions = [int(_text(each, "dataPosition")) for each in root.iter("channel")]
    channels = tuple(filter(None, map(_channel, root.iter("channel"))))
    twice = Counter((each.rail, each.quantity) for each in channels).most_common(1)
    if not channels or twice[0][1] > 1:
        raise PowerError(
            "the stream's header names "
            + (f"{' '.join(twice[0][0])} twice" if channels else "no channel in V, A or W")
        )
    period_ns, unit_ns = _period(root)
    return StreamHeader(
        period_ns=period_ns,
        time_unit_ns=unit_ns,
        column_count=max(positions) + 1,
        channels=channels,
    )


def _parsed(text: str) -> ElementTree.Element:
    """Return the header's root; a document type, which could expand without end, is refused."""
    if "<!" in text:
        raise PowerError("the stream's header has a document type, which QIS never sends")
    try:
        return ElementTree.fromstring(text.strip())
    except ElementTree.ParseError as error:
        raise PowerError(f"the stream's header is no XML ({error}): {text[:60]!r}") from error


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

    Times are microseconds unless the header has a ``mainPeriod`` in ns alone (as quarchpy has it).
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
        raise PowerError(f"a channel in the stream's header has no {tag} that is one: {text!r}")
    return text
