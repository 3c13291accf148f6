"""What a run of random writes wrote, where, and whether it reached a steady state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wattload.core.record.run import RunRecord
from wattload.core.units import Unit
from wattload.reports.runs.phases import Phase, leading, stretches
from wattload.results.identity_cache import cache_by_identity
from wattload.results.quantity import MOST, UNIT_SPACE, Scale, percent, quantity, scaled, with_unit

WORKLOAD = "random_write"
STEADY = "steady"
"""The phase of the steady window."""
FILL_TIME, STEADY_RATE = "fill_seconds", "steady_write_bytes_per_s"
"""The metrics that answer which drive is faster."""

MOST_BYTES = 2**63
RAW_DRIVE, FILE = "raw drive", "file"
_HOUR_S, _MINUTE_S = 3600.0, 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One verdict on a steady state; ``reason`` is why there is none, else empty.

    Times are seconds since the first write; the fractions are the spread of the window's five
    rounds and the rise or fall of a line fitted to them, as shares of their mean.
    """

    reason: str
    start_s: float = 0.0
    end_s: float = 0.0
    range_fraction: float = 0.0
    excursion_fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomWrites:
    """The settings in effect and the verdicts of a run.

    ``where`` is the kind of target. ``headline`` needs both other verdicts. All three are ``None``
    if the draw has no steady state.
    """

    block_bytes: int
    queue_depth: int
    range_bytes: int
    range_words: str
    where: str
    draw: str
    until: str
    condition: str
    five_minutes: Judged | None
    drive: Judged | None
    headline: Judged | None

    @property
    def is_file(self) -> bool:
        """Whether a file was written and not a raw drive."""
        return self.where == FILE

    @property
    def words(self) -> str:
        """Settings in a few words: ``16.4 kB at QD 32, any block, 268 MB in a file``."""
        drawn = "each block once per pass" if self.draw == "each_once" else "any block"
        size = quantity(self.block_bytes, Unit.BYTES, 3)
        return f"{size} at QD{UNIT_SPACE}{self.queue_depth}, {drawn}, {self.range_words}"


@cache_by_identity
def random_writes(record: RunRecord) -> RandomWrites | None:
    """Return what a run of random writes did; ``None`` for another workload or older details."""
    details = record.workload.details
    range_bytes = _whole(details.get("range_bytes"))
    if record.workload.name != WORKLOAD or range_bytes < 1:
        return None
    kinds = {target.facts.kind for target in record.targets}
    where = RAW_DRIVE if kinds == {"block"} else FILE
    steady = details.get("steady")
    verdicts = steady if isinstance(steady, Mapping) else {}
    return RandomWrites(
        block_bytes=_whole(details.get("block_bytes")),
        queue_depth=_whole(details.get("queue_depth")),
        range_bytes=range_bytes,
        range_words=_range_words(record, range_bytes, where),
        where=where,
        draw=str(details.get("draw", "")),
        until=str(details.get("until", "")),
        condition=str(details.get("condition", "")),
        five_minutes=_judged(verdicts.get("five_minutes")),
        drive=_judged(verdicts.get("drive")),
        headline=_judged(verdicts.get("headline")),
    )


def measured_phase(record: RunRecord) -> Phase | None:
    """Return the phase that figures are of: the steady window, or else all random writes."""
    found = [*(each for each in stretches(record) if each.name == STEADY), *leading(record)]
    return next(iter(found), None)


def duration_scale(seconds: float) -> Scale:
    """Return the unit that suits a duration: hours, minutes or seconds."""
    if seconds < 2 * _MINUTE_S:
        return Scale(1.0, "s")
    return Scale(_MINUTE_S, "min") if seconds < 2 * _HOUR_S else Scale(_HOUR_S, "h")


def duration(seconds: float) -> str:
    """Return a duration in hours, minutes or seconds, whichever suits it."""
    scale = duration_scale(seconds)
    return with_unit(scaled(seconds, scale, 3), scale)


def _range_words(record: RunRecord, range_bytes: int, where: str) -> str:
    size = quantity(range_bytes, Unit.BYTES, 3)
    if where == FILE:
        return f"a file of {size}"
    if record.workload.details.get("is_whole_drive"):
        return "the whole drive"
    stacks = [target.facts.stack for target in record.targets]
    whole_bytes = stacks[0].size_bytes if len(stacks) == 1 and stacks[0] is not None else None
    if not whole_bytes:
        return f"the first {size} of the drive"
    return f"the first {percent(range_bytes / whole_bytes, 2)} of the drive"


def _judged(verdict: Any) -> Judged | None:  # noqa: ANN401 - JSON
    if not isinstance(verdict, Mapping):
        return None
    if not verdict.get("steady"):
        return Judged(reason=str(verdict.get("reason", "")) or "unknown")
    names = ("start_s", "end_s", "range_fraction", "excursion_fraction")
    values = [verdict.get(name) for name in names]
    known = [float(v) for v in values if isinstance(v, int | float) and 0 <= v < MOST]
    if len(known) < len(names):
        return Judged(reason="the record has no figures of it")
    return Judged(reason="", **dict(zip(names, known, strict=True)))


def _whole(value: Any) -> int:  # noqa: ANN401 - JSON
    """Return a count of a record's details; 0 if it is none that a drive can have."""
    return value if isinstance(value, int) and 0 < value < MOST_BYTES else 0
