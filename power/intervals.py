"""A phase that was entered several times: one energy over its active intervals, no pauses.

Between two epochs or two checkpoints a run does other things (it evicts caches, it reads what it
has written). Their joules belong to no byte of the phase, so the phase's energy is the sum over
its own intervals, over the same seconds as its active time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from wattload.core.power import Counter, Sensor, weakest
from wattload.core.record.energy import EnergyRecord, Freshness, PowerStateShare
from wattload.core.record.phase import PhaseWindow

_SYSTEMATIC = ("gain", "edge", "gap", "quantisation")
"""Parts of the uncertainty that are off the same way in every interval; the others are not.

A phase begins with work each time, so that each of its edges loses or gains joules alike. The step
of a counter (its quantisation) is no such part: where in its step a count stood differs from edge
to edge.
"""

_WORST_FIRST: tuple[Freshness, ...] = ("stale", "fresh", "unjudged", "")
"""An interval too short to tell tells nothing against one that was told."""

_SUMMED = ("energy_j", "lower_j", "upper_j", "net_j", "change_count")


def active_intervals(window: PhaseWindow) -> tuple[tuple[int, int], ...]:
    """Return start and end in ns of each active interval of the phase, in order of time."""
    return window.intervals or ((window.start_ns, window.end_ns),)


def joined(parts: Sequence[EnergyRecord], sensor: Sensor) -> EnergyRecord:
    """Return one record for the intervals of one phase, device and source, in order of time.

    A sum with a part missing is missing, for that part's reason. Coverage is weighted by seconds.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    stated_j = _uncertainty_parts(parts, is_counter=isinstance(sensor, Counter))
    values = {**_figures(parts), "uncertainty_j": _uncertainty(parts, stated_j)}
    worst = _least_fresh(parts)
    return EnergyRecord(
        host=first.host,
        device=first.device,
        source=first.source,
        scope=first.scope,
        evidence=weakest(part.evidence for part in parts),
        phase=first.phase,
        start_ns=first.start_ns,
        end_ns=parts[-1].end_ns,
        seconds=_seconds(parts),
        uncertainty_parts_j=stated_j,
        sample_count=sum(part.sample_count for part in parts),
        states=_joined_states(parts),
        stale_s=math.fsum(part.stale_s for part in parts),
        freshness=worst.freshness,
        freshness_reason=worst.freshness_reason,
        missing={name: _reason(parts, name) for name, value in values.items() if value is None},
        **values,
    )


def _seconds(parts: Sequence[EnergyRecord]) -> float:
    return sum(part.seconds for part in parts)


def _figures(parts: Sequence[EnergyRecord]) -> dict[str, float | None]:
    """Return the sums, and the means over all seconds of the parts."""
    seconds = _seconds(parts)
    sums = {name: _sum(parts, name) for name in _SUMMED}
    energy_j = sums["energy_j"]
    return {
        **sums,
        "coverage": _coverage(parts, seconds),
        "mean_w": energy_j / seconds if energy_j is not None and seconds else None,
        "idle_w": parts[0].idle_w,
    }


def _uncertainty(parts: Sequence[EnergyRecord], stated_j: Mapping[str, float]) -> float | None:
    known = all(part.uncertainty_j is not None for part in parts)
    return math.hypot(*stated_j.values()) if known else None


def _least_fresh(parts: Sequence[EnergyRecord]) -> EnergyRecord:
    """Return the part that says the worst of the sensor, of those that could be judged."""
    return min(parts, key=lambda part: _WORST_FIRST.index(part.freshness))


def _sum(parts: Sequence[EnergyRecord], name: str) -> float | None:
    values = [getattr(part, name) for part in parts]
    return None if None in values else sum(values)


def _coverage(parts: Sequence[EnergyRecord], seconds: float) -> float | None:
    covered_s = [None if part.coverage is None else part.coverage * part.seconds for part in parts]
    known_s = [value for value in covered_s if value is not None]
    return math.fsum(known_s) / seconds if len(known_s) == len(parts) and seconds else None


def _reason(parts: Sequence[EnergyRecord], name: str) -> str:
    """Return the first part's reason; a mean is missing where its energy is."""
    reasons = [part.missing[name] for part in parts if name in part.missing]
    return reasons[0] if reasons else "the phase has no length"


def _uncertainty_parts(parts: Sequence[EnergyRecord], *, is_counter: bool) -> Mapping[str, float]:
    systematic = _SYSTEMATIC[:-1] if is_counter else _SYSTEMATIC
    names = dict.fromkeys(name for part in parts for name in part.uncertainty_parts_j)
    found = {name: [part.uncertainty_parts_j.get(name, 0.0) for part in parts] for name in names}
    return {
        name: math.fsum(values) if name in systematic else math.hypot(*values)
        for name, values in found.items()
    }


def _joined_states(parts: Sequence[EnergyRecord]) -> tuple[PowerStateShare, ...]:
    groups: defaultdict[str, list[PowerStateShare]] = defaultdict(list)
    for part in parts:
        for share in part.states:
            groups[share.state].append(share)
    return tuple(_joined_share(state, shares) for state, shares in sorted(groups.items()))


def _joined_share(state: str, shares: Sequence[PowerStateShare]) -> PowerStateShare:
    values: dict[str, float | None] = {}
    missing: dict[str, str] = {}
    for name in ("moved_bytes", "energy_j", "lower_j", "upper_j"):
        known = [getattr(share, name) for share in shares]
        values[name] = None if None in known else sum(known)
        if values[name] is None:
            missing[name] = next(s.missing[name] for s in shares if name in s.missing)
    return PowerStateShare(
        state=state, seconds=sum(share.seconds for share in shares), missing=missing, **values
    )
