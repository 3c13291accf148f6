"""Values in Redfish documents, of which nothing is believed: a value of the right kind, or none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
"""Durations of ISO 8601 as DSP0266 has them."""
_PLACES_MAX = 9
_SECONDS_IN = {"days": 86400.0, "hours": 3600.0, "minutes": 60.0, "seconds": 1.0}


def number(value: object) -> float | None:
    """Return a finite number, ``None`` for whatever else a BMC writes there."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        found = float(value)
    except OverflowError:
        return None
    return found if math.isfinite(found) else None


def step(value: object) -> float:
    """Return the smallest step of a number as it is written: 0.1 for ``12.5``, 1 for ``12``."""
    exponent = value.as_tuple().exponent if isinstance(value, Decimal) else 0
    places = -exponent if isinstance(exponent, int) else 0
    return float(10.0 ** -min(max(places, 0), _PLACES_MAX))


def percent(sensor: Mapping[str, Any], reading: float) -> float | None:
    """Return a Sensor's greatest error in percent of its reading, ``None`` where it states none.

    ``ReadingAccuracy`` is in the reading's unit; ``Accuracy``, deprecated since Sensor 1.8, in
    percent.
    """
    absolute, relative = number(sensor.get("ReadingAccuracy")), number(sensor.get("Accuracy"))
    if absolute is not None and absolute > 0:
        return 100 * absolute / reading
    return relative if relative is not None and relative > 0 else None


def seconds(value: object) -> float | None:
    """Return the seconds of a duration like ``PT1M30S``, ``None`` where it is none or zero."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    parts = found.groupdict(default="0")
    return sum(float(parts[name]) * length_s for name, length_s in _SECONDS_IN.items()) or None


def age_s(reading_time: object, now: datetime | None) -> float | None:
    """Return how old a reading is by the BMC's own clock, ``None`` where that can't be told."""
    if not isinstance(reading_time, str) or now is None:
        return None
    try:
        taken = datetime.fromisoformat(reading_time)
        return (now - taken).total_seconds()
    except (ValueError, TypeError):  # a time without zone can't be compared
        return None


def reference(document: Mapping[str, Any], name: str) -> str | None:
    """Return the path that a property refers to; what leads to another host is no reference."""
    value = document.get(name)
    path = value.get("@odata.id") if isinstance(value, dict) else value
    return path if isinstance(path, str) and is_path(path) else None


def references(document: Mapping[str, Any], name: str) -> Sequence[str]:
    """Return the paths in a list of references, in its order."""
    members = document.get(name)
    found = [
        reference({name: member}, name) for member in (members if isinstance(members, list) else [])
    ]
    return [path.rstrip("/") for path in found if path is not None]


def is_path(text: str) -> bool:
    """Return whether a text is a path of this host that fits a request line."""
    is_plain = text.isascii() and text.isprintable() and " " not in text
    return is_plain and text.startswith("/") and not text.startswith("//")
