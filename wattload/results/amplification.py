"""Write amplification of a phase, by the drives' own counts."""

from __future__ import annotations

from typing import Any

from wattload.core.record.energy import WrittenRecord
from wattload.results.facts import Run, divided
from wattload.results.quantity import MISSING, number
from wattload.results.shapes import Word


def _counted(run: Run[Any], phase: str) -> list[WrittenRecord]:
    return [each for each in run.record.power.written if each.phase == phase]


def media_bytes(run: Run[Any], phase: str) -> int | None:
    """Return the bytes that the drives wrote to their media; ``None`` if one did not count them."""
    media = [each.media_written_bytes for each in _counted(run, phase)]
    return sum(filter(None, media)) if media and None not in media else None


def amplification(run: Run[Any], phase: str) -> Word:
    """Return media bytes ÷ host bytes of all drives in a phase, or why they are unknown."""
    found, media = _counted(run, phase), media_bytes(run, phase)
    host = [each.host_written_bytes for each in found]
    if media is None or None in host:
        reasons = (reason for each in found for reason in each.missing.values())
        return Word(MISSING, remark=next(reasons, ""))
    return Word(number(divided(media, sum(filter(None, host))), 3))
