"""Checks on power sensors: one source against another, and whether a sensor was stuck."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from wattload.core.checks.verdicts import (
    CERTAIN,
    SIGMAS,
    judged,
    meter_of,
    of_host,
    of_meter,
    unknown,
)
from wattload.core.power import MEASURING, Boxcar, Counter, Evidence, Instant, Scope, SourceFacts
from wattload.core.record.energy import (
    LAG_ALLOWED_S,
    WINDOW_SHARE,
    EnergyRecord,
    PowerSourceRecord,
    SensorRecord,
)
from wattload.core.record.results import NO_DRIVE, NO_SENSOR, Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.record.target import ControllerFacts, ControllerRecord
from wattload.core.units import J_PER_WH, NS_PER_S

AGREE_SHARE = 0.01
"""Two sources agree within this share of the energy, or within their stated uncertainty."""
DIFFER_SHARE = 0.05
"""Beyond this share, two sources of one device do not measure the same thing."""

STUCK_S = 30.0
STUCK_SAMPLES = 100
FINE_W = 0.1
"""A sensor of this resolution or finer sees the power of a working drive change."""


def energy_cross_check(record: RunRecord) -> Sequence[Check]:
    """Compare the whole run's energy from several sources of one device.

    Two sources of equal evidence that are far apart, beyond three sigmas, fail the run: one of them
    is wrong. A drive that disagrees with a meter, or only estimates, is a warning.
    """
    groups: defaultdict[tuple[str, str, Scope, int, int], list[EnergyRecord]] = defaultdict(list)
    for energy in record.power.whole_run:
        key = (energy.host, energy.device, energy.scope, energy.start_ns, energy.end_ns)
        groups[key].append(energy)
    checks = [check for group in groups.values() for check in _pairs(record, group)]
    if checks:
        return checks
    sources = sorted({energy.source for energy in record.power.whole_run})
    reason = "there is no source"
    if sources:
        verb = (
            "is the only source"
            if len(sources) == 1
            else "did not read the same device over the same time"
        )
        reason = f"{' and '.join(sources)} {verb}"
    sentence = f"Nothing to compare the whole run's energy with: {reason}."
    cause = "one power sensor" if sources else NO_SENSOR
    return [unknown("energy_cross_check", sentence, cause=cause)]


def _pairs(record: RunRecord, group: Sequence[EnergyRecord]) -> Iterator[Check]:
    for one, other in combinations(group, 2):
        name = f"energy_cross_check_{one.device}_{one.source}_{other.source}"
        name += of_host(record, one.host)
        if one.energy_j is None or other.energy_j is None:
            silent = one if one.energy_j is None else other
            yield unknown(name, f"{silent.source} has no figure: {silent.missing['energy_j']}.")
        else:
            yield _pair(name, one, other, one.energy_j, other.energy_j)


def _pair(name: str, one: EnergyRecord, other: EnergyRecord, one_j: float, other_j: float) -> Check:
    stated_j = math.hypot(*one.uncertainty_parts_j.values(), *other.uncertainty_parts_j.values())
    most_j = max(abs(one_j), abs(other_j))
    allowed_j = max(stated_j, AGREE_SHARE * most_j)
    apart_j = abs(one_j - other_j)
    worst: Verdict = "warn"
    same_evidence = one.evidence is other.evidence and one.evidence is not Evidence.ESTIMATED
    if same_evidence and apart_j > max(CERTAIN * stated_j, DIFFER_SHARE * most_j):
        worst = "fail"
    check = judged(
        name,
        f"Over the whole run {one.source} reports {one_j:.6g} J and {other.source} {other_j:.6g} "
        f"J; the allowed difference is {allowed_j:.3g} J",
        ": one of them is wrong",
        holds=apart_j <= allowed_j,
        figures={"one_j": one_j, "other_j": other_j, "allowed_j": allowed_j},
        worst=worst,
    )
    return of_meter(one.scope, check, meter_of(one), meter_of(other))


def sensor_model(record: RunRecord) -> Sequence[Check]:
    """Compare each declared sensor with the one found in its readings.

    Energies use the sensor found. So if it differs from the declared one, the check of a chosen
    source fails, but its energy is still compared. If no sensor explains the readings of a chosen
    source, the failure is mandatory, and the run's energy is not compared. A difference within
    three sigmas only warns; where the readings are unexplained, that check is not made and the
    energy is not compared. For sources that are chosen in no phase, all are warnings. I/O figures
    are always compared.
    """
    chosen = {(each.host, each.source, each.device) for each in record.power.energy if each.chosen}
    return [
        _sensor(
            record,
            source,
            source.facts,
            source.found,
            is_chosen=(source.host, source.facts.name, source.facts.device) in chosen,
        )
        for source in record.power.sources
        if source.facts is not None and source.found is not None
    ]


def _sensor(
    record: RunRecord,
    source: PowerSourceRecord,
    facts: SourceFacts,
    found: SensorRecord,
    *,
    is_chosen: bool,
) -> Check:
    verdict: Verdict = "pass"
    if not (found.is_explained and found.is_as_declared):
        verdict = "fail" if is_chosen and _is_certain(facts, found) else "warn"
    late = f"{found.lag_s:.2f} ± {found.lag_uncertainty_s:.2f} s late"
    reads = "but reads" if not found.is_declared else "and reads"
    if not found.is_explained:
        remark = (
            f", but around the beginnings and ends of work they differ from it by "
            f"{found.edge_residual_w:.3g} W, elsewhere by {found.residual_w:.3g} W: no sensor "
            "explains them"
        )
        if is_chosen and verdict == "warn":
            verdict = "not_checked"
            remark += ", but its lag is too uncertain to be sure"
    elif not found.is_known:
        verdict, remark = "not_checked", "; power changed too little to show its lag"
    elif verdict != "pass":
        remark = "; its energy allows for this"
        if found.is_declared:
            late = f"but {late} (declared: 0 s)"
    else:
        remark = ""
    check = Check(
        name=f"sensor_model_{source.device}_{source.name}{of_host(record, source.host)}",
        verdict=verdict,
        mandatory=is_chosen and not found.is_explained,
        sentence=(
            f"{source.name} is declared as {_sensor_text(facts.sensor)} {reads} like "
            f"{_SHAPES[found.shape].format(found.window_s)}"
            f"{', ' + late if found.is_known else ''}{remark}."
        ),
        figures={
            "lag_s": found.lag_s,
            "lag_uncertainty_s": found.lag_uncertainty_s,
            "window_s": found.window_s,
            "window_uncertainty_s": found.window_uncertainty_s,
            "edge_residual_w": found.edge_residual_w,
            "residual_w": found.residual_w,
        },
    )
    return of_meter(facts.scope, check, (source.host, facts.name, facts.device))


def _is_certain(facts: SourceFacts, found: SensorRecord) -> bool:
    """Return whether a sensor differs from the declared one by more than three sigmas.

    Its shape was only taken as another one if the readings are far likelier with that.
    """
    sensor = facts.sensor
    shape = "mean" if isinstance(sensor, Counter) else sensor.kind
    declared_s = sensor.window_s if isinstance(sensor, Boxcar) else 0.0
    apart_s = abs(found.window_s - declared_s) - CERTAIN * found.window_uncertainty_s
    late_s = found.lag_s - CERTAIN * found.lag_uncertainty_s
    is_misfit = 0 < SIGMAS * found.residual_w < (found.edge_residual_w or 0.0)
    return (
        found.shape != shape
        or (not found.is_explained and is_misfit)
        or (not found.is_declared and apart_s > WINDOW_SHARE * declared_s)
        or (found.is_known and late_s > LAG_ALLOWED_S)
    )


_SHAPES = {
    "instant": "the power of the moment",
    "boxcar": "a mean over {:.2f} s",
    "rc": "a filter of {:.2f} s",
    "mean": "a counter",
}


def _sensor_text(sensor: object) -> str:
    if isinstance(sensor, Boxcar):
        return _SHAPES["boxcar"].format(sensor.window_s)
    return _SHAPES["mean" if isinstance(sensor, Counter) else "instant"]


def energy_lifetime(record: RunRecord) -> Sequence[Check]:
    """Compare the whole run's energy with the growth of the drive's lifetime counter (SMART OLEC).

    The counter, in Wh rounded up, is read before data generation and after the run. So the run
    used at most its growth plus 1 Wh, and at least that growth less 1 Wh and less what the drive
    can have used in the time around the run.
    """
    if not record.controllers:
        reason = "there is no NVMe controller under the target"
        return [_not_lifetime("energy_lifetime", reason, cause=NO_DRIVE)]
    return [_lifetime(record, controller) for controller in record.controllers]


def _not_lifetime(name: str, reason: str, cause: str = "") -> Check:
    sentence = f"No lifetime energy counter (SMART OLEC) to compare with: {reason}."
    return unknown(name, sentence, cause=cause)


def _lifetime(record: RunRecord, controller: ControllerRecord) -> Check:
    facts = controller.facts
    name = f"energy_lifetime_{facts.serial}{of_host(record, facts.host)}"
    grown_wh, reason = _grown_wh(controller)
    energy = _known_whole(record, facts)
    around_s = _seconds_around(record, facts.host, energy)
    if grown_wh is None or energy is None or energy.energy_j is None or around_s is None:
        return _not_lifetime(name, reason or "the whole run's energy is unknown")
    margin_j = _margin_j(energy, energy.energy_j)
    beyond_j = (CERTAIN - 1) * margin_j
    most_j = (grown_wh + 1) * J_PER_WH + margin_j
    greatest_w = _greatest_w(controller)
    least_j = 0.0
    if greatest_w is not None:
        least_j = (grown_wh - 1) * J_PER_WH - greatest_w * around_s - margin_j
    return judged(
        name,
        f"{facts.name} counted {grown_wh} Wh more, so the run used {max(0.0, least_j):.6g} to "
        f"{most_j:.6g} J; {energy.source} reports {energy.energy_j:.6g} J",
        ": one of them is wrong",
        holds=least_j <= energy.energy_j <= most_j,
        figures={
            "energy_j": energy.energy_j,
            "least_j": least_j,
            "most_j": most_j,
            "grown_wh": grown_wh,
        },
        worst="fail" if not least_j - beyond_j <= energy.energy_j <= most_j + beyond_j else "warn",
    )


def _margin_j(energy: EnergyRecord, energy_j: float) -> float:
    """Return the stated uncertainty of a figure, or ``DIFFER_SHARE`` of it if none is stated."""
    if energy.uncertainty_j is not None:
        return energy.uncertainty_j
    return DIFFER_SHARE * abs(energy_j)


def _known_whole(record: RunRecord, facts: ControllerFacts) -> EnergyRecord | None:
    """Return the whole run's energy from the first source with a figure for the controller."""
    found = (each for each in record.power.whole_run if each.energy_j is not None)
    key = (facts.host, facts.serial)
    return next((each for each in found if (each.host, each.device) == key), None)


def _grown_wh(controller: ControllerRecord) -> tuple[int | None, str]:
    values = []
    for when, state in (("before", controller.before), ("after", controller.after)):
        if state is None or state.smart is None:
            return None, f"SMART was not read {when} the run"
        if state.smart.lifetime_energy_wh is None:
            return None, state.smart.missing["lifetime_energy_wh"]
        values.append(state.smart.lifetime_energy_wh)
    if values[1] < values[0]:
        return None, f"it fell from {values[0]} to {values[1]} Wh"
    return values[1] - values[0], ""


def _seconds_around(record: RunRecord, host: str, energy: EnergyRecord | None) -> float | None:
    """Return the seconds between both host readings that the run's energy does not cover."""
    found = next((each for each in record.hosts if each.facts.name == host), None)
    if found is None or found.after is None or energy is None:
        return None
    length_ns = found.after.clock.monotonic_ns - found.before.clock.monotonic_ns
    return max(0.0, length_ns / NS_PER_S - energy.seconds)


def _greatest_w(controller: ControllerRecord) -> float | None:
    watts = [state.max_w for state in controller.facts.power_states or ()]
    return max((w for w in watts if w is not None), default=None)


def power_within_bounds(record: RunRecord) -> Sequence[Check]:
    """Compare a drive's measured energy with the maximum that its power states allow."""
    return [
        _within(record, energy, bound, energy.energy_j, bound.upper_j)
        for energy in record.power.energy
        if energy.evidence in MEASURING and energy.energy_j is not None and energy.seconds >= 1
        for bound in record.power.energy
        if (bound.host, bound.device, bound.phase) == (energy.host, energy.device, energy.phase)
        if bound.upper_j is not None
    ]


def _within(
    record: RunRecord, energy: EnergyRecord, bound: EnergyRecord, energy_j: float, upper_j: float
) -> Check:
    name = f"power_within_bounds_{energy.phase}_{energy.device}_{energy.source}"
    check = judged(
        name + of_host(record, energy.host),
        f"{energy.source} reports {energy_j:.6g} J in {energy.phase}; the drive's power states "
        f"allow {upper_j:.6g} J",
        ": it draws more than it declares",
        holds=energy_j <= upper_j + (energy.uncertainty_j or AGREE_SHARE * upper_j),
        figures={"energy_j": energy_j, "upper_j": upper_j, "source_of_bound": bound.source},
    )
    return of_meter(energy.scope, check, meter_of(energy))


def power_updates(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a sensor repeated one reading while the drive's activity changed.

    The repeated interval already counts as a gap (``EnergyRecord.stale_s``). If flat power can't be
    told from a stuck sensor, a fine sensor that never changed in half a minute of work is a
    warning. A coarse sensor is one only if it showed the same power at idle.
    """
    facts = {
        (s.host, s.facts.name, s.facts.device): s.facts for s in record.power.sources if s.facts
    }
    return [
        _updates(record, energy, source, changed)
        for energy, source, changed in _from_readings(record, facts)
    ]


def _from_readings(
    record: RunRecord, facts: dict[tuple[str, str, str], SourceFacts]
) -> Iterator[tuple[EnergyRecord, SourceFacts, int]]:
    """Yield energies from power readings in timed phases that moved bytes."""
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
    verdict, remark = _verdict(energy, source, changed)
    check = Check(
        name=f"power_updates_{energy.phase}_{energy.device}_{energy.source}"
        + of_host(record, energy.host),
        verdict=verdict,
        mandatory=energy.freshness == "stale",
        sentence=(
            f"{energy.source} changed {changed} times in {energy.sample_count} readings of "
            f"{energy.phase}{remark}."
        ),
        figures={
            "changed": changed,
            "samples": energy.sample_count,
            "mean_w": energy.mean_w,
            "stale_s": energy.stale_s,
        },
    )
    return of_meter(energy.scope, check, meter_of(energy))


def _verdict(energy: EnergyRecord, source: SourceFacts, changed: int) -> tuple[Verdict, str]:
    if energy.freshness == "stale":
        return "fail", (
            f" and did not change for {energy.stale_s:.1f} s in which {energy.freshness_reason}: "
            "it was stuck"
        )
    if changed == 0 and _looks_stuck(energy, source):
        return "warn", ": it looks stuck"
    if energy.freshness == "unjudged":
        return "not_checked", f"; whether it was stuck is unknown: {energy.freshness_reason}"
    if not energy.freshness and not _is_long(energy):
        return "not_checked", ", too few or in too short a time to show whether it was stuck"
    return "pass", ""


def _is_long(energy: EnergyRecord) -> bool:
    return energy.seconds >= STUCK_S and energy.sample_count >= STUCK_SAMPLES


def _looks_stuck(energy: EnergyRecord, source: SourceFacts) -> bool:
    """Return whether a constant reading during the work is unlikely to be flat power."""
    is_fine = source.resolution_w is not None and source.resolution_w <= FINE_W
    idle_w, mean_w = energy.idle_w, energy.mean_w
    as_idle = idle_w is not None and mean_w is not None and abs(mean_w - idle_w) <= FINE_W
    return _is_long(energy) and (is_fine or as_idle)
