"""Whether a sensor of power went on measuring while its drive worked, or repeated a reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from wattload.core.checks.energy import of_host
from wattload.core.power import MEASURING, Boxcar, Instant, Scope, SourceFacts
from wattload.core.record.check import Check, Verdict
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.run import RunRecord

STUCK_S = 30.0
STUCK_SAMPLES = 100
FINE_W = 0.1
"""A sensor of this resolution or finer shows a working drive's power at least once otherwise."""


def power_updates(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a sensor repeated one reading while other accounts of the drive moved.

    What was repeated is a hole already (``EnergyRecord.stale_s``). Where nothing told flat power
    from a stuck sensor, a fine one is warned of that never changed in half a minute of work; a
    coarse one may tell the same, unless it told that very power at idle as well.
    """
    facts = {
        (s.host, s.facts.name, s.facts.device): s.facts for s in record.power.sources if s.facts
    }
    return [
        _updates(record, energy, source, changed)
        for energy, source, changed in _judged(record, facts)
    ]


def _judged(
    record: RunRecord, facts: dict[tuple[str, str, str], SourceFacts]
) -> Iterator[tuple[EnergyRecord, SourceFacts, int]]:
    """Yield the energies of readings of power in timed phases that moved bytes."""
    worked = {
        (window.name, window.host)
        for window in record.timed_windows()
        if window.read_bytes + window.written_bytes
    }
    for energy in record.power.energy:
        source = facts.get((energy.host, energy.source, energy.device))
        if source is None or energy.change_count is None or energy.evidence not in MEASURING:
            continue
        if energy.scope is not Scope.DRIVE and energy.freshness != "stale" and not _is_long(energy):
            continue
        if isinstance(source.sensor, Boxcar | Instant) and (energy.phase, energy.host) in worked:
            yield energy, source, energy.change_count


def _updates(record: RunRecord, energy: EnergyRecord, source: SourceFacts, changed: int) -> Check:
    is_stale = energy.freshness == "stale"
    verdict, told = _verdict(energy, source, changed)
    return Check(
        name=f"power_updates_{energy.phase}_{energy.device}_{energy.source}"
        + of_host(record, energy.host),
        verdict=verdict,
        mandatory=is_stale and energy.scope is Scope.DRIVE,
        sentence=(
            f"{energy.source} changed {changed} times in {energy.sample_count} readings of "
            f"{energy.phase}{told}."
        ),
        figures={
            "changed": changed,
            "samples": energy.sample_count,
            "mean_w": energy.mean_w,
            "stale_s": energy.stale_s,
        },
    )


def _verdict(energy: EnergyRecord, source: SourceFacts, changed: int) -> tuple[Verdict, str]:
    if energy.freshness == "stale":
        worst: Verdict = "fail" if energy.scope is Scope.DRIVE else "warn"
        return worst, (
            f" and stood still for {energy.stale_s:.1f} s in which {energy.freshness_reason}: it "
            "was stuck"
        )
    if changed == 0 and _looks_stuck(energy, source):
        return "warn", ": it looks stuck"
    if energy.freshness == "unjudged":
        return "not_checked", f", and whether it was stuck is unknown: {energy.freshness_reason}"
    if not energy.freshness and not _is_long(energy):
        return "not_checked", ", too few or in too short a time to tell whether it was stuck"
    return "pass", ""


def _is_long(energy: EnergyRecord) -> bool:
    return energy.seconds >= STUCK_S and energy.sample_count >= STUCK_SAMPLES


def _looks_stuck(energy: EnergyRecord, source: SourceFacts) -> bool:
    """Return whether one reading all through the work is more than flat power would explain."""
    is_fine = source.resolution_w is not None and source.resolution_w <= FINE_W
    idle_w, mean_w = energy.idle_w, energy.mean_w
    as_idle = idle_w is not None and mean_w is not None and abs(mean_w - idle_w) <= FINE_W
    return _is_long(energy) and (is_fine or as_idle)
