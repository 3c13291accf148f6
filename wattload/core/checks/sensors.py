"""Checks on power sensors: one source against another, and whether a sensor was stuck."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

from wattload.core.checks.verdicts import (
    CERTAIN,
    judged,
    meter_of,
    of_host,
    of_meter,
    unknown,
)
from wattload.core.power import (
    MEASURING,
    Boxcar,
    Evidence,
    Instant,
    Integral,
    Scope,
    SourceFacts,
)
from wattload.core.record.energy import EnergyRecord, PowerSourceRecord, SensorRecord
from wattload.core.record.results import NO_CALIBRATION, NO_DRIVE, NO_SENSOR, Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.record.sensor_text import delay_text
from wattload.core.record.target import ControllerFacts, ControllerRecord
from wattload.core.units import J_PER_WH, NS_PER_S, format_percent

AGREE_SHARE = 0.01
"""Two sources agree within this share of the energy, or within their stated uncertainty."""
OWN_SHARE = 0.02
"""The same for the energy that a drive integrates itself, and that of its reported power."""
DIFFER_SHARE = 0.05
"""Beyond this share, two sources of one device do not measure the same thing."""

SILENT_SHARE = 0.5
"""A source that can't have seen this share of another's step of power ignored the load."""

STUCK_S = 30.0
STUCK_SAMPLES = 100
FINE_W = 0.1
"""A sensor of this resolution or finer sees the power of a working drive change."""


def energy_cross_check(record: RunRecord) -> Sequence[Check]:
    """Compare the whole run's energy from several sources of one device.

    Two sources agree within 1 % or both their uncertainties. If they are of equal evidence, and far
    apart, beyond three sigmas, they fail the run: one of them is wrong. A drive that disagrees with
    a meter, or only estimates, is a warning. So is a drive that disagrees with itself: the energy
    that it integrates over the run (NVMe feature 25h) and the integral of the power that it reports
    are counted apart, and agree within 2 %.
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
    if any(each.facts and each.facts.has_declared_readings for each in record.power.sources):
        cause = "power only declared"
    return [unknown("energy_cross_check", sentence, cause=cause)]


def _pairs(record: RunRecord, group: Sequence[EnergyRecord]) -> Iterator[Check]:
    for one, other in combinations(group, 2):
        name = f"energy_cross_check_{one.device}_{one.source}_{other.source}"
        name += of_host(record, one.host)
        if one.energy_j is None or other.energy_j is None:
            silent = one if one.energy_j is None else other
            yield unknown(name, f"{silent.source} has no figure: {silent.missing['energy_j']}.")
        else:
            own = _is_integral(record, one) or _is_integral(record, other)
            yield _pair(name, one, other, one.energy_j, other.energy_j, by_integral=own)


def _is_integral(record: RunRecord, energy: EnergyRecord) -> bool:
    """Return whether the device itself integrated an energy."""
    return any(
        isinstance(source.facts.sensor, Integral)
        for source in record.power.sources
        if source.facts is not None
        if (source.host, source.facts.name, source.facts.device) == meter_of(energy)
    )


def _pair(
    name: str,
    one: EnergyRecord,
    other: EnergyRecord,
    one_j: float,
    other_j: float,
    *,
    by_integral: bool,
) -> Check:
    stated_j = math.hypot(*one.uncertainty_parts_j.values(), *other.uncertainty_parts_j.values())
    most_j = max(abs(one_j), abs(other_j))
    allowed_j = max(stated_j, (OWN_SHARE if by_integral else AGREE_SHARE) * most_j)
    apart_j = abs(one_j - other_j)
    worst: Verdict = "warn"
    is_equal = one.evidence is other.evidence and one.evidence is not Evidence.ESTIMATED
    if is_equal and not by_integral and apart_j > max(CERTAIN * stated_j, DIFFER_SHARE * most_j):
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


def sensor_calibrated(record: RunRecord) -> Sequence[Check]:
    """Compare the delay of each sensor of a drive with its calibration by a known load.

    Energies use the calibrated delay, so a sensor that differs from the declared one is a warning:
    beyond three sigmas, and by more than 1 % of the energy of a phase. So is one that a fast train
    of pulses showed to alias or to be not linear. A source whose readings ignored the load that
    another source of the drive followed can't be of this drive: that fails the run. But a source
    whose noise could hide half of the other's step is only not calibrated.
    """
    followed: defaultdict[tuple[str, str], float] = defaultdict(float)
    for source in record.power.sources:
        if source.sensor is not None and source.sensor.responds:
            key = (source.host, source.device)
            followed[key] = max(followed[key], source.sensor.jump_w or 0.0)
    return [
        _calibrated(record, source, source.sensor, followed[source.host, source.device])
        for source in record.power.sources
        if source.sensor is not None and source.facts is not None
        if source.facts.scope is Scope.DRIVE
    ]


def _calibrated(
    record: RunRecord, source: PowerSourceRecord, sensor: SensorRecord, followed_w: float
) -> Check:
    """Judge one sensor; ``followed_w`` is the step of power that the device's sensors showed."""
    name = f"sensor_calibrated_{source.device}_{source.name}{of_host(record, source.host)}"
    figures = {
        "tau_s": sensor.tau_s,
        "tau_uncertainty_s": sensor.tau_uncertainty_s,
        "declared_tau_s": sensor.declared_tau_s,
        "train_share": sensor.train_share,
        "train_ripple": sensor.train_ripple,
    }
    most_w = math.inf if sensor.jump_most_w is None else sensor.jump_most_w
    if sensor.responds is False and most_w < SILENT_SHARE * followed_w:
        return Check(
            name=name,
            verdict="fail",
            mandatory=True,
            sentence=f"{source.name} did not respond to a known load of {source.device} that "
            "another source followed: it measures something else.",
            figures=figures,
        )
    if sensor.basis != "calibrated":
        sentence = f"{source.name} is {delay_text(sensor)} late as declared ({sensor.reason})."
        return unknown(name, sentence, figures=figures, cause=_cause(record, source))
    faults = [*_train_fault(sensor), *_delay_fault(record, source, sensor)]
    return judged(
        name,
        f"{source.name} is {delay_text(sensor)} late by its calibration, which its energies use",
        f"; {'; '.join(faults)}",
        holds=not faults,
        figures=figures,
    )


def _cause(record: RunRecord, source: PowerSourceRecord) -> str:
    """Return the cause if a source has no calibration; one that failed was to show something."""
    key = (source.host, source.name, source.device)
    tried = ((each.host, each.source, each.device) for each in record.power.calibrations)
    return "" if key in tried else NO_CALIBRATION


def _train_fault(sensor: SensorRecord) -> Iterator[str]:
    share = format_percent(abs(sensor.train_share or 0))
    if sensor.is_aliasing and sensor.is_train_off:
        yield (
            f"its mean of a fast train of pulses is {share} of their height wrong: the meter "
            "aliases or is not linear, and U is the range of its readings"
        )
    elif sensor.is_aliasing:
        yield (
            "its readings of a fast train of pulses are not means but samples of moments: the "
            "meter aliases, and U is the range of its readings"
        )
    elif sensor.is_train_off:
        yield (
            f"it falls {abs(sensor.fall_later_s):.2f} s later than it rises, so its mean of a fast "
            f"train of pulses is {share} of their height off, which U covers: the drive works on, "
            "or the meter decays slowly"
        )


def _delay_fault(
    record: RunRecord, source: PowerSourceRecord, sensor: SensorRecord
) -> Iterator[str]:
    """Yield how a calibrated delay differs from the declared one, if energies show it."""
    if sensor.declared_tau_s is None:
        return
    apart_s = abs(sensor.tau_s - sensor.declared_tau_s)
    share = max(
        (_moved_share(record, each, apart_s) for each in _energies(record, source)), default=0
    )
    if apart_s > CERTAIN * sensor.tau_uncertainty_s and share > AGREE_SHARE:
        yield (
            f"{sensor.declared_tau_s:.2f} s were declared, which can be "
            f"{format_percent(share)} of a phase's energy"
        )


def _energies(record: RunRecord, source: PowerSourceRecord) -> Iterator[EnergyRecord]:
    key = (source.host, source.name, source.device)
    yield from (each for each in record.power.energy if meter_of(each) == key and each.energy_j)


def _moved_share(record: RunRecord, energy: EnergyRecord, delay_s: float) -> float:
    """Return the share of a phase's energy that a delay moves over the ends of its intervals."""
    window = next(
        (w for w in record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
    )
    if window is None or not energy.energy_j or energy.mean_w is None:
        return 0.0
    jump_w = abs(energy.mean_w - (energy.idle_w or 0.0))
    return len(window.intervals) * delay_s * jump_w / abs(energy.energy_j)


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
    """Judge whether a sensor repeated one reading through a phase that moved bytes.

    A fine sensor that never changed in half a minute of work looks stuck: a warning. It fails the
    run if it showed the same power at idle while another source of the device changed. A coarse
    sensor is a warning only if it showed the same power at idle.
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
        source = facts.get(meter_of(energy))
        if source is None or energy.change_count is None or energy.evidence not in MEASURING:
            continue
        if energy.scope is not Scope.DRIVE and not _is_long(energy):
            continue
        if isinstance(source.sensor, Boxcar | Instant) and (energy.phase, energy.host) in worked:
            yield energy, source, energy.change_count


def _updates(record: RunRecord, energy: EnergyRecord, source: SourceFacts, changed: int) -> Check:
    verdict: Verdict = "pass"
    remark = ""
    if not changed and not _is_long(energy):
        verdict, remark = "not_checked", ", too few or in too short a time to show that it is stuck"
    elif not changed:
        verdict, remark = _constant(record, energy, source)
    check = Check(
        name=f"power_updates_{energy.phase}_{energy.device}_{energy.source}"
        + of_host(record, energy.host),
        verdict=verdict,
        mandatory=verdict == "fail",
        sentence=(
            f"{energy.source} changed {changed} times in {energy.sample_count} readings of "
            f"{energy.phase}{remark}."
        ),
        figures={
            "changed": changed,
            "samples": energy.sample_count,
            "mean_w": energy.mean_w,
            "idle_w": energy.idle_w,
        },
    )
    return of_meter(energy.scope, check, meter_of(energy))


def _is_long(energy: EnergyRecord) -> bool:
    return energy.seconds >= STUCK_S and energy.sample_count >= STUCK_SAMPLES


def _constant(record: RunRecord, energy: EnergyRecord, source: SourceFacts) -> tuple[Verdict, str]:
    """Judge a reading that was constant during long work."""
    is_fine = source.resolution_w is not None and source.resolution_w <= FINE_W
    idle_w, mean_w = energy.idle_w, energy.mean_w
    as_idle = idle_w is not None and mean_w is not None and abs(mean_w - idle_w) <= FINE_W
    place = (energy.host, energy.device, energy.phase)
    others = [
        each.source
        for each in record.power.energy
        if (each.host, each.device, each.phase) == place and each.evidence in MEASURING
        if each.change_count
    ]
    if is_fine and as_idle and others:
        return "fail", f" and shows the same at idle, but {others[0]} changed: it was stuck"
    return ("warn", ": it looks stuck") if is_fine or as_idle else ("pass", "")
