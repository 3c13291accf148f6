"""Energy of a run as a whole, by every source that measures: figures to hold against each other.

A drive that integrates by itself (NVMe feature 25h) tells one mean of all the time between start
and stop. That is exact, and never split into phases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from wattload.core.power import Sample, Scope, SourceFacts, WindowEnergy
from wattload.core.record.energy import WHOLE_RUN, EnergyRecord
from wattload.core.units import NS_PER_S
from wattload.power.meter import Meter, Window
from wattload.power.trace import traces
from wattload.power.uncertainty import COVERAGE_FACTOR, Uncertainty


def whole_run_records(
    samples: Iterable[Sample],
    sources: Sequence[SourceFacts],
    own: Sequence[WindowEnergy],
    *,
    host: str,
    polled: Window | None = None,
    resets_ns: Mapping[str, Sequence[int]] | None = None,
) -> tuple[EnergyRecord, ...]:
    """Return the energy of the whole run by each source that measures a device.

    ``own`` are the energies that devices integrated by themselves; what was sampled of such a
    device is integrated over the very same window, else from its first sample to its last in
    ``polled``, the time in which drives were not left alone (``None``: always). ``resets_ns`` maps
    a device to its known restarts.
    """
    by_key = traces(samples)
    resets = resets_ns or {}
    meters = [
        Meter.build(by_key, facts, idle=None, resets_ns=resets.get(facts.device, ()))
        for facts in sources
    ]
    records = [own_record(energy, _scope(energy, sources), host=host) for energy in own]
    for meter in meters:
        if meter.measures:
            records += [
                meter.record(WHOLE_RUN, window, host=host)
                for window in _windows(meter, own, polled)
            ]
    return tuple(records)


def _windows(meter: Meter, own: Sequence[WindowEnergy], polled: Window | None) -> Sequence[Window]:
    span = meter.span()
    if span is None:
        return ()
    if polled is not None:
        span = max(span[0], polled[0]), min(span[1], polled[1])
    of_device = [energy for energy in own if energy.device == meter.facts.device]
    return list(dict.fromkeys((energy.start_ns, energy.end_ns) for energy in of_device)) or [span]


def _scope(energy: WindowEnergy, sources: Sequence[SourceFacts]) -> Scope:
    """Return what the energy covers: what other sources of the device do."""
    return next((facts.scope for facts in sources if facts.device == energy.device), Scope.DRIVE)


def own_record(energy: WindowEnergy, scope: Scope, *, host: str) -> EnergyRecord:
    """Return the record of an energy that a device integrated by itself."""
    seconds = (energy.end_ns - energy.start_ns) / NS_PER_S
    stated = _uncertainty(energy, seconds)
    figures = _figures(energy, seconds, stated)
    return EnergyRecord(
        host=host,
        device=energy.device,
        source=energy.source,
        scope=scope,
        evidence=energy.evidence,
        phase=WHOLE_RUN,
        start_ns=energy.start_ns,
        end_ns=energy.end_ns,
        seconds=seconds,
        uncertainty_parts_j=stated.parts_j,
        sample_count=1,
        histogram=energy.histogram,
        missing={name: why for name, (value, why) in figures.items() if value is None},
        **{name: value for name, (value, _) in figures.items()},
    )


def _figures(
    energy: WindowEnergy, seconds: float, stated: Uncertainty
) -> Mapping[str, tuple[float | None, str]]:
    """Return each figure of the record, and why there would be none."""
    energy_j = energy.energy_j if seconds > 0 else None
    reason = energy.reason or ("the device told no energy" if seconds > 0 else "it has no length")
    uncovered_s = energy.uncovered_s
    return {
        "energy_j": (energy_j, reason),
        "mean_w": (None if energy_j is None else energy_j / seconds, reason),
        "uncertainty_j": (stated.total_j, stated.reason or ""),
        "coverage": (
            None if uncovered_s is None or seconds <= 0 else max(0.0, 1 - uncovered_s / seconds),
            "the device does not tell how much of the time its mean is of",
        ),
        **dict.fromkeys(("lower_j", "upper_j"), (None, "it is a figure, no bound")),
        "change_count": (None, "it is one reading"),
        **dict.fromkeys(("idle_w", "net_j"), (None, "idle is no part of the whole run")),
    }


def _uncertainty(energy: WindowEnergy, seconds: float) -> Uncertainty:
    """Return gain, quantisation and gap at k = 2, as for a sampled energy.

    The gap is what the seconds that the mean leaves out may have held, from nothing to the greatest
    power that the device saw.
    """
    if energy.energy_j is None or seconds <= 0:
        return Uncertainty(total_j=None, parts_j={}, reason=energy.reason or "there is no energy")
    parts_j: dict[str, float] = {}
    if energy.accuracy_percent is not None:
        parts_j["gain"] = abs(energy.energy_j) * energy.accuracy_percent / 100
    if energy.resolution_w is not None:
        parts_j["quantisation"] = COVERAGE_FACTOR * energy.resolution_w / math.sqrt(12) * seconds
    gap_j = _gap_j(energy, energy.energy_j / seconds)
    if gap_j is not None:
        parts_j["gap"] = gap_j
    unknown = [name for name in ("gain", "quantisation", "gap") if name not in parts_j]
    if unknown:
        reason = (
            f"{energy.source} states nothing that the part {' and '.join(unknown)} follows from"
        )
        return Uncertainty(total_j=None, parts_j=parts_j, reason=reason)
    return Uncertainty(total_j=math.hypot(*parts_j.values()), parts_j=parts_j, reason=None)


def _gap_j(energy: WindowEnergy, mean_w: float) -> float | None:
    if energy.uncovered_s is None:
        return None
    if energy.uncovered_s == 0:
        return 0.0
    if energy.max_w is None:
        return None
    return max(mean_w, energy.max_w - mean_w) * energy.uncovered_s
