"""Checks on power: coverage, lost data, closure, and the sums over power states."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from wattload.core.power import MEASURING, Scope
from wattload.core.record.energy import EnergyRecord, HostPower, PowerStatistics
from wattload.core.record.host import HostRecord
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.results import NO_SENSOR, Check, Verdict
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, format_percent

COVERAGE_WARN, COVERAGE_FAIL = 0.99, 0.95
TOLERANCE = 1e-6
CLOSURE = 1e-3
SHIFT_WARN, SHIFT_FAIL = 0.005, 0.05
"""Shares of a phase's interval by which a meter's own log may be shifted against it."""
PEAK_TOLERANCE = 0.01
"""Shares by which peaks of means may contradict longer means: their lengths vary a little."""


def _selected(record: RunRecord) -> list[EnergyRecord]:
    return [energy for energy in record.power.energy if energy.chosen]


def power_coverage(record: RunRecord) -> Sequence[Check]:
    """Judge how much of each timed window its chosen trace covers, per device.

    If no source has a figure because coverage is too low, the best one is judged. If a weaker
    source replaced meters with low coverage, those meters are judged as strictly.
    """
    groups: defaultdict[tuple[str, str, str, Scope], list[EnergyRecord]] = defaultdict(list)
    for energy in record.power.energy:
        groups[energy.host, energy.phase, energy.device, energy.scope].append(energy)
    checks = [check for group in groups.values() for check in _coverages(record, group)]
    covered = {(host, phase) for host, phase, _, scope in groups if scope is Scope.DRIVE}
    bare = [w for w in record.timed_windows() if (w.host, w.name) not in covered]
    if bare:
        checks.append(
            Check(
                name="power_coverage",
                verdict="not_checked",
                sentence=record.power.choice,
                cause=_cause(record),
                figures={"phases": ", ".join(dict.fromkeys(window.name for window in bare))},
                mandatory=True,
            )
        )
    read = {(phase, device) for _, phase, device, scope in groups if scope is Scope.DRIVE}
    return [*checks, *_unread(record, {window.name for window in bare}, read)]


def _cause(record: RunRecord) -> str:
    """Return the cause of missing energies if no sensor was used; otherwise one has failed."""
    used = [source.facts for source in record.power.sources if source.used and source.facts]
    is_read = any(facts.scope is Scope.DRIVE and facts.measures for facts in used)
    return "" if is_read else NO_SENSOR


def _unread(
    record: RunRecord, bare: Container[str], read: Container[tuple[str, str]]
) -> Sequence[Check]:
    """Return a check per drive without a power source: the total energy lacks these drives."""
    return [
        Check(
            name=f"power_coverage_{phase}_{serial}",
            verdict="not_checked",
            sentence=f"No source reads the power of {serial}: {record.power.choice}",
            mandatory=True,
        )
        for phase in dict.fromkeys(window.name for window in record.timed_windows())
        for serial in record.unread_drives(phase)
        if phase not in bare and (phase, serial) not in read
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
    """Judge one trace; a gap in that of a node or GPU does not affect the drive's figure."""
    name = f"power_coverage_{energy.phase}_{energy.device}{of_host(record, energy.host)}"
    is_drive = energy.scope is Scope.DRIVE
    if energy.coverage is None:
        reason = energy.missing["coverage"]
        return Check(name=name, verdict="not_checked", mandatory=is_drive, sentence=reason)
    worst: Verdict = "fail" if is_drive else "warn"
    verdict: Verdict = (
        worst
        if energy.coverage < COVERAGE_FAIL
        else "warn"
        if energy.coverage < COVERAGE_WARN
        else "pass"
    )
    return Check(
        name=name,
        verdict=verdict,
        mandatory=is_drive,
        sentence=(
            f"The trace of {energy.source} covers {format_percent(energy.coverage, 2)} of "
            f"{energy.phase}."
        ),
        figures={"coverage": energy.coverage, "samples": energy.sample_count},
    )


def of_host(record: RunRecord, host: str) -> str:
    """Return the suffix of a check's name for a host; empty if the run has one host."""
    return f"_{host}" if len(record.hosts) > 1 else ""


def power_data_lost(record: RunRecord) -> Sequence[Check]:
    """Fail a run in which a meter reported dropped readings."""
    if not record.power.hosts:
        return [
            Check(
                name="power_data_lost",
                verdict="not_checked",
                sentence=record.power.choice,
                cause=NO_SENSOR,
            )
        ]
    return [check for host in record.power.hosts for check in _data_lost(record, host)]


def _data_lost(record: RunRecord, host: HostPower) -> Sequence[Check]:
    name = f"power_data_lost{of_host(record, host.host)}"
    if host.data_lost:
        return [
            Check(
                name=name,
                verdict="fail",
                sentence=f"A meter dropped readings: {sentence}",
                mandatory=True,
            )
            for sentence in host.data_lost
        ]
    if host.lost:
        sentence = f"Dropped readings are unknown because the sampler was lost: {host.lost}"
        return [Check(name=name, verdict="not_checked", sentence=sentence)]
    if not any(source.used for source in record.power.sources if source.host == host.host):
        return [Check(name=name, verdict="not_checked", sentence=host.choice, cause=NO_SENSOR)]
    sentence = "No meter reported dropped readings."
    return [Check(name=name, verdict="pass", sentence=sentence, mandatory=True)]


def power_of_this_run(record: RunRecord) -> Sequence[Check]:
    """Exclude energy that replays a recording of another run from comparisons."""
    return [
        Check(
            name=f"power_of_this_run_{source.facts.device}_{source.facts.name}"
            + of_host(record, source.host),
            verdict="not_checked",
            sentence=(
                f"{source.facts.name} replays a recording of another run, so its energy is not "
                "compared; to attach a recording of this run, set power.replay.align=wall or "
                "monotonic."
            ),
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
    meter's own clock adds is unknown here.
    """
    power = record.config.get("power")
    replay = power.get("replay") if isinstance(power, Mapping) else None
    if not isinstance(replay, Mapping) or replay.get("align") != "wall":
        return []
    attached = {
        source.host
        for source in record.power.sources
        if source.used and source.facts is not None and source.facts.is_attached
    }
    return [_wall_clock(record, host) for host in record.hosts if host.facts.name in attached]


def _wall_clock(record: RunRecord, host: HostRecord) -> Check:
    name = f"wall_clock{of_host(record, host.facts.name)}"
    states = [state for state in (host.before, host.after) if state is not None]
    known = [
        abs(state.ntp_offset_s) + state.ntp_error_s
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
        return Check(
            name=name,
            verdict="not_checked",
            sentence=f"The meter's log is attached by UTC, but how far the host's clock is from it "
            f"is unknown: {reason}.",
        )
    shift_s, share = max(known), max(known) / _interval_s(shortest)
    verdict: Verdict = "fail" if share > SHIFT_FAIL else "warn" if share > SHIFT_WARN else "pass"
    return Check(
        name=name,
        verdict=verdict,
        mandatory=verdict == "fail",
        sentence=f"The meter's log is attached by UTC, from which the host's clock differs by up "
        f"to {shift_s:.3g} s: {format_percent(share, 2)} of an interval of {shortest.name}.",
        figures={"shift_s": shift_s, "interval_s": _interval_s(shortest), "share": share},
    )


def _interval_s(window: PhaseWindow) -> float:
    return window.active_s / len(window.active_intervals)


def power_statistics(record: RunRecord) -> Sequence[Check]:
    """Compare the peaks and the 99th percentile of each phase with its mean and its histogram.

    A mean over a second consists of shorter ones, so the largest of these is as large. Means that
    are not above the peak cover each interval but for the steps at its ends; so a phase's mean
    power is at most the peak times (1 + 3 n t / T), for n intervals of T seconds together and means
    over t. The histogram is of the same readings as the percentile.
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
            (1e-4, found.peak_100us_w),
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
    wrong += _histogram_faults(found)
    window = next(
        (w for w in record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
    )
    for length_s, watts in peaks:
        if window is None or energy.mean_w is None or not energy.seconds:
            continue
        lengths_s = [(end_ns - start_ns) / NS_PER_S for start_ns, end_ns in window.active_intervals]
        if min(lengths_s) < length_s or watts < 0:
            continue
        most_w = watts * (1 + 3 * length_s * len(lengths_s) / energy.seconds)
        stated_j = math.hypot(*energy.uncertainty_parts_j.values())
        margin_w = stated_j / energy.seconds + PEAK_TOLERANCE * watts
        if energy.mean_w > most_w + margin_w:
            wrong.append(
                f"the mean power is {energy.mean_w:.6g} W and the peak over {length_s:g} s only "
                f"{watts:.6g} W"
            )
    return Check(
        name=f"power_statistics_{energy.phase}_{energy.device}_{energy.source}"
        + of_host(record, energy.host),
        verdict="fail" if wrong else "pass",
        sentence=f"Figures of {energy.source}'s power in {energy.phase} contradict each other: "
        f"{'; '.join(wrong)}."
        if wrong
        else f"Peaks, percentile and histogram of {energy.source} in {energy.phase} agree.",
        figures={"mean_w": energy.mean_w} | {f"peak_{s:g}s_w": watts for s, watts in peaks},
    )


def _histogram_faults(found: PowerStatistics) -> Iterator[str]:
    """Yield what in a histogram contradicts the other figures of the same readings."""
    counts = [each.count for each in found.histogram]
    if sum(counts) != found.reading_count:
        yield f"the histogram has {sum(counts)} of {found.reading_count} readings"
        return
    if found.p99_w is None or found.bin_w is None:
        return
    rank = math.ceil(0.99 * found.reading_count)
    at = next(i for i, total in enumerate(accumulate(counts)) if total >= rank)
    lower_w, slack_w = found.histogram[at].lower_w, PEAK_TOLERANCE * found.bin_w
    if not lower_w - slack_w <= found.p99_w <= lower_w + found.bin_w + slack_w:
        yield (
            f"the 99th percentile is {found.p99_w:.6g} W, but by the histogram it is "
            f"{lower_w:g} to {lower_w + found.bin_w:g} W"
        )


def energy_closure(record: RunRecord) -> Sequence[Check]:
    """Compare each chosen energy with its mean power times the phase's active seconds."""
    checks = [_closure(record, energy) for energy in _selected(record)]
    if checks:
        return checks
    return [
        Check(
            name="energy_closure",
            verdict="not_checked",
            sentence="There is no energy to compare with power times time.",
            cause=_cause(record),
        )
    ]


def _closure(record: RunRecord, energy: EnergyRecord) -> Check:
    name = f"energy_closure_{energy.phase}_{energy.device}_{energy.scope}"
    name += of_host(record, energy.host)
    window = next(
        (w for w in record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
    )
    if energy.energy_j is None or energy.mean_w is None or window is None:
        reason = energy.missing.get("energy_j", f"phase {energy.phase} has no window")
        return Check(name=name, verdict="not_checked", sentence=f"No energy figure: {reason}.")
    product_j = energy.mean_w * window.active_s
    agree = abs(product_j - energy.energy_j) <= CLOSURE * abs(energy.energy_j)
    return Check(
        name=name,
        verdict="pass" if agree else "fail",
        sentence=(
            f"The energy is {energy.energy_j:.6g} J; mean power times the phase's seconds is "
            f"{product_j:.6g} J" + ("." if agree else ": these must be equal.")
        ),
        figures={"energy_j": energy.energy_j, "product_j": product_j},
    )


def power_state_shares(record: RunRecord) -> Sequence[Check]:
    """Compare the sums over observed power states with the window's seconds, bytes and joules.

    The bytes come from the phase's own counter. Both energy bounds are checked like the figure.
    """
    checks = []
    for energy in _selected(record):
        name = f"power_state_shares_{energy.phase}_{energy.device}{of_host(record, energy.host)}"
        if energy.states:
            checks.append(_shares(record, energy, name))
        elif energy.scope is Scope.DRIVE:
            checks.append(
                Check(name=name, verdict="not_checked", sentence="No power state was read.")
            )
    return checks


def _shares(record: RunRecord, energy: EnergyRecord, name: str) -> Check:
    apart = []
    seconds = math.fsum(share.seconds for share in energy.states)
    figures: dict[str, float | int | str | None] = {}
    for field, whole in _wholes(record, energy).items():
        parts = [getattr(share, field) for share in energy.states]
        if whole is None or None in parts:
            continue
        total = math.fsum(parts)
        figures |= {f"states_{field}": total, f"window_{field}": whole}
        if abs(total - whole) > TOLERANCE * max(abs(whole), 1.0):
            apart.append(field)
    return Check(
        name=name,
        verdict="fail" if apart else "pass",
        sentence=(
            f"The power states' seconds sum to {seconds:.3f} of {energy.seconds:.3f}"
            + (f"; {', '.join(apart)} do not sum to the window's total." if apart else ".")
        ),
        figures=figures,
    )


def _wholes(record: RunRecord, energy: EnergyRecord) -> dict[str, float | None]:
    """Return the totals that the shares must sum to, from independent counters."""
    window = next(
        (w for w in record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
    )
    return {
        "seconds": energy.seconds,
        "moved_bytes": None if window is None else window.read_bytes + window.written_bytes,
        "energy_j": energy.energy_j,
        "lower_j": energy.lower_j,
        "upper_j": energy.upper_j,
    }
