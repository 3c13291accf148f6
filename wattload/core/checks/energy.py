"""Checks on power: coverage, lost data, attached logs, and the peaks of readings."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from itertools import pairwise

from wattload.core.checks.verdicts import (
    CERTAIN,
    SIGMAS,
    judged,
    meter_of,
    of_host,
    of_meter,
    unknown,
)
from wattload.core.power import MEASURING, Scope
from wattload.core.record.energy import EnergyRecord, HostPower, Moment, PowerStatistics
from wattload.core.record.host import HostRecord
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.results import NO_SENSOR, Check, Meter, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, format_percent

COVERAGE_WARN, COVERAGE_FAIL = 0.99, 0.95
SHIFT_WARN, SHIFT_FAIL = 0.005, 0.05
"""Shares of a phase's interval by which a meter's own log may be shifted against it."""
PEAK_TOLERANCE = 0.01
"""Shares by which peaks of means may contradict longer means: their lengths vary a little."""
IDLE_TOLERANCE = 0.1
"""Share by which idle power after the job may differ from that before it, besides a step of the
sensor."""


def power_coverage(record: RunRecord) -> Sequence[Check]:
    """Judge how much of each timed window its chosen trace covers, per device.

    If no source has a figure because coverage is too low, the best one is judged. If a weaker
    source replaced meters with low coverage, those meters are judged as strictly.
    """
    groups: defaultdict[tuple[str, str, str, Scope], list[EnergyRecord]] = defaultdict(list)
    for energy in record.power.energy:
        groups[energy.host, energy.phase, energy.device, energy.scope].append(energy)
    checks = [check for group in groups.values() for check in _coverages(record, group)]
    covered = {
        (user, phase)
        for host, phase, device, scope in groups
        if scope is Scope.DRIVE
        for user in (host, *record.shared_drives.get(device, ()))
    }
    bare = [(w.host, w.name) for w in record.timed_windows() if (w.host, w.name) not in covered]
    if bare:
        phases = ", ".join(dict.fromkeys(phase for _, phase in bare))
        hosts = dict.fromkeys(host for host, _ in bare)
        of_some = f"On {', '.join(hosts)}: " if len(hosts) < len(record.hosts) else ""
        checks.append(
            unknown(
                "power_coverage",
                of_some + record.power.choice,
                cause=_cause(record),
                figures={"phases": phases},
                mandatory=True,
            )
        )
    read = {(host, phase, device) for host, phase, device, scope in groups if scope is Scope.DRIVE}
    return [*checks, *_unread(record, {*bare}, read)]


def _cause(record: RunRecord) -> str:
    """Return the cause of missing energies if no sensor was used; otherwise one has failed."""
    used = [source.facts for source in record.power.sources if source.used and source.facts]
    is_read = any(facts.scope is Scope.DRIVE and facts.measures for facts in used)
    return "" if is_read else NO_SENSOR


def _unread(
    record: RunRecord, bare: Container[tuple[str, str]], read: Container[tuple[str, str, str]]
) -> Sequence[Check]:
    """Return a check per drive without a power source: the total energy lacks these drives."""
    return [
        unknown(
            f"power_coverage_{phase}_{drive}{of_host(record, host)}",
            f"No source reads the power of {drive}: {record.power.choice}",
            mandatory=True,
        )
        for phase in dict.fromkeys(window.name for window in record.timed_windows())
        for host, drive in record.unread_drives(phase)
        if (host, phase) not in bare and (host, phase, drive) not in read
    ]


def _coverages(record: RunRecord, group: Sequence[EnergyRecord]) -> Sequence[Check]:
    selected = next((energy for energy in group if energy.chosen), None)
    measured = [energy for energy in group if energy.evidence in MEASURING]
    if selected is None:
        lost = [energy for energy in measured if (energy.coverage or 0.0) < COVERAGE_FAIL]
        best = max(lost or measured or group, key=lambda energy: energy.coverage or 0.0)
        return [_coverage(record, best)]
    if selected.evidence in MEASURING:
        return [_coverage(record, selected)]
    return [_coverage(record, selected), *(_replaced(record, energy) for energy in measured)]


def _replaced(record: RunRecord, energy: EnergyRecord) -> Check:
    """Judge a meter that bounds replaced: their coverage does not make up for its own."""
    check = _coverage(record, energy)
    changes: dict[str, object] = {"name": f"{check.name}_{energy.source}"}
    if energy.phase not in {window.name for window in record.timed_windows()}:
        changes |= {
            "verdict": "warn" if check.verdict == "fail" else check.verdict,
            "mandatory": False,
        }
    return check.model_copy(update=changes)


def _coverage(record: RunRecord, energy: EnergyRecord) -> Check:
    """Judge one trace."""
    name = f"power_coverage_{energy.phase}_{energy.device}{of_host(record, energy.host)}"
    if energy.coverage is None:
        is_of_drive = energy.scope is Scope.DRIVE
        if is_of_drive and record.power.requested != "auto":
            return _unheard(record, energy, name)
        return unknown(name, energy.missing["coverage"], mandatory=is_of_drive)
    verdict: Verdict = (
        "fail"
        if energy.coverage < COVERAGE_FAIL
        else "warn"
        if energy.coverage < COVERAGE_WARN
        else "pass"
    )
    refused = ""
    if verdict == "pass" and energy.evidence in MEASURING and energy.energy_j is None:
        verdict, refused = "warn", f" It gives no energy: {energy.missing['energy_j'].rstrip('.')}."
    check = Check(
        name=name,
        verdict=verdict,
        mandatory=True,
        sentence=(
            f"The trace of {energy.source} covers {format_percent(energy.coverage, 2)} of "
            f"{energy.phase}.{refused}"
        ),
        figures={"coverage": energy.coverage, "samples": energy.sample_count},
    )
    return of_meter(energy.scope, check, meter_of(energy))


def _unheard(record: RunRecord, energy: EnergyRecord, name: str) -> Check:
    """Fail a run in which a source that the user requested read nothing."""
    sources = [
        source.sentence
        for source in record.power.sources
        if source.used and (source.host, source.name, source.device) == meter_of(energy)
    ]
    return Check(
        name=name,
        verdict="fail",
        mandatory=True,
        sentence=f"No reading of {energy.source} lies in {energy.phase} (0 %). {' '.join(sources)}",
        figures={"coverage": 0.0, "samples": energy.sample_count},
    )


def power_data_lost(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a drive's meter lost readings; put one of another device in doubt."""
    if not record.power.hosts:
        return [unknown("power_data_lost", record.power.choice, cause=NO_SENSOR)]
    return [check for host in record.power.hosts for check in _data_lost(record, host)]


def _data_lost(record: RunRecord, host: HostPower) -> Sequence[Check]:
    name = f"power_data_lost{of_host(record, host.host)}"
    if host.data_lost:
        return [
            of_meter(
                each.scope,
                Check(
                    name=name,
                    verdict="fail",
                    sentence=f"A meter's readings were lost: {each.sentence.rstrip('.')}.",
                    mandatory=True,
                ),
                (host.host, each.source, each.device),
            )
            for each in host.data_lost
        ]
    if host.lost:
        sentence = f"Lost readings are unknown because the sampler was lost: {host.lost}"
        return [unknown(name, sentence)]
    if not any(source.used for source in record.power.sources if source.host == host.host):
        return [unknown(name, host.choice, cause=NO_SENSOR)]
    sentence = "No meter reported lost readings."
    return [Check(name=name, verdict="pass", sentence=sentence, mandatory=True)]


def power_of_this_run(record: RunRecord) -> Sequence[Check]:
    """Exclude energy that replays a recording of another run from comparisons."""
    return [
        unknown(
            f"power_of_this_run_{source.facts.device}_{source.facts.name}"
            + of_host(record, source.host),
            "Power was replayed from another run, not measured in this one, so its energy is not "
            "compared; to attach a recording of this run, set power.replay.align=wall or "
            "monotonic.",
            mandatory=True,
        )
        for source in record.power.sources
        if source.used and source.facts is not None and source.facts.is_of_another_run
        if source.facts.scope is Scope.DRIVE
    ]


def wall_clock(record: RunRecord) -> Sequence[Check]:
    """Judge the host's wall clock where a meter's own log is attached by it (``align=wall``).

    A log that is shifted by dt puts up to dt seconds of work outside of each interval of a phase,
    a share dt / T of one of T seconds. The energy model finds a log that is late, as a lag, but not
    one that is early. dt is the clock's offset plus its estimated error, as of NTP; what the
    meter's own clock adds is unknown here. Where that error makes up most of dt, the check is not
    made: the run is neither failed nor compared.
    """
    power = record.config.get("power")
    replay = power.get("replay") if isinstance(power, Mapping) else None
    if not isinstance(replay, Mapping) or replay.get("align") != "wall":
        return []
    attached: defaultdict[str, dict[Meter, Scope]] = defaultdict(dict)
    for source in record.power.sources:
        if source.used and (facts := source.facts) is not None and facts.is_attached:
            attached[source.host][source.host, facts.name, facts.device] = facts.scope
    return [
        of_meter(min(scopes.values(), key=list(Scope).index), _wall_clock(record, host), *scopes)
        for host in record.hosts
        if (scopes := attached.get(host.facts.name))
    ]


def _wall_clock(record: RunRecord, host: HostRecord) -> Check:
    name = f"wall_clock{of_host(record, host.facts.name)}"
    states = [state for state in (host.before, host.after) if state is not None]
    known = [
        (abs(state.ntp_offset_s) + state.ntp_error_s, abs(state.ntp_offset_s), state.ntp_error_s)
        for state in states
        if state.ntp_offset_s is not None and state.ntp_error_s is not None
    ]
    shortest = min(
        (window for window in record.timed_windows() if window.host == host.facts.name),
        key=_interval_s,
        default=None,
    )
    if len(known) < len(states) or shortest is None or not _interval_s(shortest):
        missing = (state.missing.get("ntp_offset_s") for state in states)
        reason = next((why for why in missing if why), "there is no timed phase")
        return unknown(
            name,
            "The meter's log is attached by UTC, but how far the host's clock is from it is "
            f"unknown: {reason}.",
        )
    shift_s, interval_s = max(known)[0], _interval_s(shortest)
    share = shift_s / interval_s
    verdict: Verdict = "warn" if share > SHIFT_WARN else "pass"
    remark = ""
    if share > SHIFT_FAIL:
        verdict = "fail"
        least_s = max(offset_s - SIGMAS * error_s for _, offset_s, error_s in known)
        if least_s <= SHIFT_FAIL * interval_s:
            verdict = "not_checked"
            remark = ", most of which is the uncertainty of that clock"
    return Check(
        name=name,
        verdict=verdict,
        mandatory=verdict in ("fail", "not_checked"),
        sentence=f"The meter's log is attached by UTC, from which the host's clock differs by up "
        f"to {shift_s:.3g} s: {format_percent(share, 2)} of an interval of {shortest.name}"
        f"{remark}.",
        figures={"shift_s": shift_s, "interval_s": _interval_s(shortest), "share": share},
    )


def _interval_s(window: PhaseWindow) -> float:
    return window.active_s / len(window.intervals)


def energy_remarks(record: RunRecord) -> Sequence[Check]:
    """Warn of what widened the uncertainty of an energy, per chosen source, each thing once."""
    groups: defaultdict[Meter, list[EnergyRecord]] = defaultdict(list)
    for energy in record.power.energy:
        if energy.chosen and energy.evidence in MEASURING and energy.energy_j is not None:
            groups[meter_of(energy)].append(energy)
    return [_remarks(record, group) for group in groups.values()]


def _remarks(record: RunRecord, group: Sequence[EnergyRecord]) -> Check:
    first = group[0]
    phases: defaultdict[str, list[str]] = defaultdict(list)
    for energy in group:
        for remark in energy.remarks:
            phases[remark].append(energy.phase)
    found = [f"{remark} ({', '.join(names)})" for remark, names in phases.items()]
    check = judged(
        f"energy_remarks_{first.device}_{first.source}{of_host(record, first.host)}",
        f"The uncertainty of energies by {first.source} allows for the following: "
        f"{'; '.join(found)}"
        if found
        else f"Nothing unusual widened the uncertainty of energies by {first.source}",
        "",
        holds=not found,
        figures={},
    )
    return of_meter(first.scope, check, meter_of(first))


def energy_tail(record: RunRecord) -> Sequence[Check]:
    """Warn of a drive that had not returned to idle power at the end of its rest.

    Where idle power after the job was another than before it, the drive may still have been at
    work: whether it had returned is not known.
    """
    return [
        _tail(record, energy, energy.work_j)
        for energy in record.power.energy
        if energy.chosen and energy.scope is Scope.DRIVE and energy.work_j is not None
    ]


def _tail(record: RunRecord, energy: EnergyRecord, work_j: float) -> Check:
    name = f"energy_tail_{energy.phase}_{energy.device}_{energy.source}"
    name += of_host(record, energy.host)
    figures = {"work_j": work_j, "tail_j": energy.tail_j}
    idle_w = _idle_w(record, meter_of(energy))
    if not energy.is_at_least and "before" in idle_w and "after" in idle_w:
        before_w, after_w = idle_w["before"], idle_w["after"]
        most_w = IDLE_TOLERANCE * min(before_w, after_w) + _step_w(record, meter_of(energy))
        if abs(after_w - before_w) > most_w:
            return unknown(
                name,
                f"Idle power was {before_w:.3g} W before the job and {after_w:.3g} W after it, so "
                "it is unknown whether the drive had ended its work.",
                figures={**figures, "idle_before_w": before_w, "idle_after_w": after_w},
            )
    seconds = f"{record.power.rest_s or energy.rest_s:g} s after the job"
    sentence = f"The drive had returned to idle power {seconds}"
    if energy.is_at_least:
        sentence = (
            f"The drive had not returned to idle power {seconds}: its energy for the work is at "
            f"least {work_j:.6g} J"
        )
    return judged(name, sentence, "", holds=not energy.is_at_least, figures=figures)


def _idle_w(record: RunRecord, meter: Meter) -> Mapping[Moment, float]:
    """Return a meter's idle power by moment, in watts, under the reads that the job has too."""
    return {
        idle.moment: idle.mean_w
        for idle in record.power.idle
        if idle.polled and (idle.host, idle.source, idle.device) == meter
        if idle.mean_w is not None
    }


def _step_w(record: RunRecord, meter: Meter) -> float:
    """Return the least difference of two readings of a meter in watts, 0 if it is unknown."""
    return max(
        (
            source.sensor.step_w
            for source in record.power.sources
            if source.sensor is not None and (source.host, source.name, source.device) == meter
        ),
        default=0.0,
    )


def power_statistics(record: RunRecord) -> Sequence[Check]:
    """Compare the peaks of each phase's readings with each other and with its mean by the model.

    A mean over a second consists of shorter ones, so the largest of these is as large. Means that
    are not above the peak cover each interval but for the steps at its ends; so a phase's mean
    power is at most the peak times (1 + 3 n t / T), for n intervals of T seconds together and means
    over t. It fails if the energy model makes more of the readings than they hold, beyond three
    sigmas of the mean; it warns beyond two.
    """
    return [
        _statistics(record, energy, energy.statistics)
        for energy in record.power.energy
        if energy.statistics is not None
    ]


def _statistics(record: RunRecord, energy: EnergyRecord, found: PowerStatistics) -> Check:
    peaks = [
        (length_s, watts)
        for length_s, watts in (
            (0.1, found.peak_100ms_w),
            (1.0, found.peak_1s_w),
        )
        if watts is not None
    ]
    wrong = [
        f"a mean over {longer_s:g} s reached {mean_w:.6g} W and one over {length_s:g} s only "
        f"{watts:.6g} W"
        for (length_s, watts), (longer_s, mean_w) in pairwise(peaks)
        if watts < mean_w - PEAK_TOLERANCE * abs(mean_w)
    ]
    worst: Verdict = "fail" if wrong else "warn"
    window = next(
        (w for w in record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
    )
    for length_s, watts in peaks:
        if window is None or energy.mean_w is None or not energy.seconds:
            continue
        lengths_s = [(end_ns - start_ns) / NS_PER_S for start_ns, end_ns in window.intervals]
        if min(lengths_s) < length_s or watts < 0:
            continue
        most_w = watts * (1 + 3 * length_s * len(lengths_s) / energy.seconds)
        stated_w = math.hypot(*energy.uncertainty_parts_j.values()) / energy.seconds
        most_w += PEAK_TOLERANCE * watts
        if energy.mean_w > most_w + stated_w:
            if energy.mean_w > most_w + CERTAIN * stated_w:
                worst = "fail"
            wrong.append(
                f"the mean power is {energy.mean_w:.6g} W and the peak over {length_s:g} s only "
                f"{watts:.6g} W"
            )
    check = Check(
        name=f"power_statistics_{energy.phase}_{energy.device}_{energy.source}"
        + of_host(record, energy.host),
        verdict=worst if wrong else "pass",
        sentence=f"Figures of {energy.source}'s power in {energy.phase} contradict each other: "
        f"{'; '.join(wrong)}."
        if wrong
        else f"The peaks of {energy.source}'s readings in {energy.phase} agree with its mean.",
        figures={"mean_w": energy.mean_w} | {f"peak_{s:g}s_w": watts for s, watts in peaks},
    )
    return of_meter(energy.scope, check, meter_of(energy))
