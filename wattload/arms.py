"""What the arms of a sweep over a drive's power are called, where the user names none.

A report compares runs by their label. Runs of one sweep that all carry the same one would be one
arm, and a sweep over power states asks for as many as there are states.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from wattload.power.config import KNOBS

_NO_ARM = ("seed", "repeat", "runs")
_FOREIGN = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST = 40
"""As long as a label may be; see ``RunConfig``."""

_AS_FOUND = "null"


def labelled(overrides: Sequence[str], swept: Collection[str]) -> tuple[str, ...]:
    """Return the overrides of one run of a sweep, with the label of its arm if it needs one.

    ``swept`` are the keys that differ between the sweep's runs. ``power.state=1`` of a sweep over
    states is the arm ``PS1``; other keys that are swept beside it are added.
    """
    pairs = [(key, value) for key, _, value in (text.partition("=") for text in overrides)]
    if not set(KNOBS) & set(swept) or any(key == "label" for key, _ in pairs):
        return tuple(overrides)
    parts = [_part(key, value) for key, value in pairs if key in swept and key not in _NO_ARM]
    return (*overrides, f"label={'-'.join(parts)[:_LONGEST]}")


def _part(key: str, value: str) -> str:
    """Return what one swept value adds to a label: letters, digits, dot, dash and underscore."""
    if value == _AS_FOUND:
        return f"{key.removeprefix('power.')}-as-found"
    if key == "power.state":
        return f"PS{value}"
    if key == "power.dssd_watts":
        return f"OCP{value}W"
    if key == "power.limit_w":
        return f"limit{value}W"
    return _FOREIGN.sub("_", value)
