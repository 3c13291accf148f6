"""Checks on the conditions of a measurement.

They cover the host's ceilings, the length and steadiness of timed windows, and the start of
interleaved runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from wattload.core.checks.verdicts import judged, no_drive, of_host, unknown
from wattload.core.record.phase import PhaseWindow
from wattload.core.record.results import NO_UTILISATION, PACED, TOO_SHORT, Check, Metric
from wattload.core.record.run import RunRecord, RunStart, StartTemperature
from wattload.core.units import NS_PER_S, format_percent, format_rate

CEILING_FACTOR = 2.0
"""If the harness ceiling is below this multiple of the result, the host was measured as well."""
CEILING_SUFFIX = "_ceiling_bytes_per_s"

LONGEST_GAP_S = 600.0
"""Without an interruption, a session starts its next run within seconds, cooling not counted."""

AU_DLIO, AU_NOMINAL = "au_dlio", "au_nominal"
PACED_FROM = 0.9
"""The nominal utilisation that MLPerf Storage requires of ``unet3d``."""
AU_APART = 0.02
"""How far the two utilisations may be apart, in percentage points / 100."""
OVERSLEPT_S = 0.05
"""Sleep beyond the step time that any busy host may cause, however short the window."""

STOPPED_S = 1.0
STOPPED_SHARE = 0.05
"""A rank may be without a CPU, or stopped, for so long in a phase, or for this share of it."""

THROTTLED_SHARE = 0.01
"""The share of a timed phase for which a CPU quota may stop its processes."""

SHORT_S = 30.0
FEW_SAMPLES = 100
UNSTEADY = 0.10


def bottleneck(record: RunRecord) -> Sequence[Check]:
    """Compare the host's own ceilings (no drive in the loop) with the rates they bound."""
    ceilings = [m for m in record.metrics if m.name.endswith(CEILING_SUFFIX)]
    return [_ceiling_check(ceiling, bounded_rate(record, ceiling)) for ceiling in ceilings]


def bounded_rate(record: RunRecord, ceiling: Metric) -> Metric | None:
    """Return the rate that a ceiling bounds: the headline rate of its direction, else the first."""
    rates = [m for m in record.metrics if m.headline and m.unit == "B/s" and m.value is not None]
    direction = "read" if "read" in ceiling.name else "write"
    own = [rate for rate in rates if rate.name.startswith(direction)]
    return next(iter(own or rates), None)


def _ceiling_check(ceiling: Metric, rate: Metric | None) -> Check:
    name = f"bottleneck_{ceiling.name}"
    if ceiling.value is None or rate is None or rate.value is None or rate.value < 1:
        reason = ceiling.missing.get("value", "there is no rate to compare the ceiling with")
        return unknown(name, f"Not compared: {reason}.")
    factor = ceiling.value / rate.value
    return judged(
        name,
        f"Without a drive the same loop reaches {format_rate(ceiling.value)}, {factor:.1f} times "
        f"{rate.name}",
        ": the result is limited by the host as well",
        holds=factor >= CEILING_FACTOR,
        figures={
            "ceiling_bytes_per_s": ceiling.value,
            "result_bytes_per_s": rate.value,
            "factor": factor,
        },
    )


def start_temperature(record: RunRecord) -> Sequence[Check]:
    """Warn if a drive started warmer or colder than at the session's first compared run."""
    start = record.comparison.start
    if start is None:
        return []
    if not start.drives:
        return [no_drive("start_temperature", "the drive's temperature at the start")]
    return [_start(record, start, drive) for drive in start.drives]


def _start(record: RunRecord, start: RunStart, drive: StartTemperature) -> Check:
    name = f"start_temperature_{drive.serial}{of_host(record, drive.host)}"
    if drive.temperature_k is None or drive.reference_k is None:
        gaps = "; ".join(dict.fromkeys(drive.missing.values()))
        return unknown(
            name, f"The temperature of drive {drive.serial} at the start is unknown: {gaps}."
        )
    off_k = drive.temperature_k - drive.reference_k
    sentence = f"Drive {drive.serial} started {_off(off_k)} at the session's first run on it"
    if start.waited_s:
        sentence += f", after {start.waited_s:.0f} s of cooling"
    return judged(
        name,
        sentence,
        f"; the limit is {start.allowed_k:g} °C",
        holds=abs(off_k) <= start.allowed_k,
        figures={
            "start_k": drive.temperature_k,
            "reference_k": drive.reference_k,
            "allowed_k": start.allowed_k,
            "waited_s": start.waited_s,
            "limit_s": start.limit_s,
        },
    )


def _off(off_k: int) -> str:
    """Return a temperature difference in words; a kelvin is as large as a degree Celsius."""
    if not off_k:
        return "as warm as"
    return f"{abs(off_k)} °C {'warmer' if off_k > 0 else 'colder'} than"


def pair_together(record: RunRecord) -> Sequence[Check]:
    """Warn of a block that was interrupted: drift between its runs is in their ratio."""
    gap_s, start = record.comparison.pair_gap_s, record.comparison.start
    if gap_s is None or start is None:
        return []
    if gap_s < 0:
        return [
            unknown(
                "pair_together",
                "The time since the block's first run is unknown: the wall clock was set back by "
                f"at least {-gap_s:.0f} s.",
            )
        ]
    return [
        judged(
            "pair_together",
            f"Pauses since the block's first run were {gap_s:.0f} s in all, including "
            f"{start.waited_s:.0f} s of cooling",
            ": the session was interrupted within the block",
            holds=record.comparison.idle_s <= LONGEST_GAP_S,
            figures={"gap_s": gap_s, "waited_s": start.waited_s, "allowed_s": LONGEST_GAP_S},
        )
    ]


def long_enough(record: RunRecord) -> Sequence[Check]:
    """Warn of timed windows under 30 s, or under 100 power samples where power is measured."""
    checks = []
    for window in record.timed_windows():
        if not window.read_bytes + window.written_bytes:
            continue
        samples = [
            e.sample_count
            for e in record.power.energy
            if e.phase == window.name and e.chosen and e.host == window.host
        ]
        few = min(samples, default=FEW_SAMPLES) < FEW_SAMPLES
        short = round(window.active_s, 1) < SHORT_S  # as the sentence shows it
        sentence = f"The phase {window.name} was active for {window.active_s:.1f} s"
        sentence += f", under {SHORT_S:.0f} s" if short else ""
        sentence += f", with {min(samples)} power samples, under {FEW_SAMPLES}" if few else ""
        checks.append(
            judged(
                f"short_run_{window.name}{of_host(record, window.host)}",
                sentence,
                ": caches and edge effects matter",
                holds=not (short or few),
                figures={"active_s": window.active_s, "samples": min(samples, default=None)},
            )
        )
    return checks


def is_paced(record: RunRecord, phase: str) -> bool:
    """Return whether emulated accelerators set the pace of a phase, and not the drive.

    They do at MLPerf's utilisation of 90 %: the loader then waits for them with full buffers.
    """
    utilisation = record.metric(AU_NOMINAL)
    if utilisation is None or utilisation.value is None or utilisation.phase != phase:
        return False
    return utilisation.value >= PACED_FROM


def halves_agree(record: RunRecord) -> Sequence[Check]:
    """Compare the rate of the first and the second half of each timed phase's active time.

    Several intervals, such as epochs, are halved by their number, without the middle one of an odd
    number: each begins with a burst of prefetching, so a cut within one favours its first part.
    """
    return [
        _halves_agree(record, window)
        for window in record.timed_windows()
        if window.read_bytes + window.written_bytes
    ]


def utilisations_agree(record: RunRecord) -> Sequence[Check]:
    """Compare the accelerator utilisation by DLIO's formula with the nominal one.

    DLIO counts a step as computing for as long as it lasted, so a process that was stopped or slept
    too long looks busy. The nominal utilisation counts the step time that was asked for. Their
    difference is the share of the window that was overslept.
    """
    known = {name: metric for name in (AU_DLIO, AU_NOMINAL) if (metric := record.metric(name))}
    if not known:
        return []
    dlio, nominal = (known[name].value if name in known else None for name in (AU_DLIO, AU_NOMINAL))
    if dlio is None or nominal is None:
        gaps = [metric.missing["value"] for metric in known.values() if metric.value is None]
        reason = next(iter(gaps), "the record has only one of the two utilisations")
        cause = NO_UTILISATION if dlio is nominal is None else ""
        sentence = f"The accelerator utilisation is unknown: {reason}."
        return [unknown("utilisations_agree", sentence, cause=cause)]
    phases = {metric.phase for metric in known.values()}
    active_s = max((w.active_s for w in record.timed_windows() if w.name in phases), default=0.0)
    return [
        judged(
            "utilisations_agree",
            f"The accelerator utilisation is {format_percent(dlio, 2)} by DLIO's formula and "
            f"{format_percent(nominal, 2)} by the nominal step time",
            ": the emulated accelerators slept too long, or were stopped",
            holds=abs(dlio - nominal) <= max(AU_APART, OVERSLEPT_S / max(active_s, 1e-12)),
            figures={AU_DLIO: dlio, AU_NOMINAL: nominal, "allowed_fraction": AU_APART},
            worst="fail",
        )
    ]


def ran_throughout(record: RunRecord) -> Sequence[Check]:
    """Fail a run whose processes did not run for over 1 s and 5 % of a timed phase.

    They were stopped by a signal, frozen with their container, or had no CPU. A thread that does no
    I/O counts it, so a drive that stalls is no such time. It is in the rank's own process:
    workers that are stopped alone are not seen. One rank is enough: a phase lasts until its last
    rank is through.
    """
    stopped = [
        (_stopped_s(record, window), window)
        for window in record.timed_windows()
        if window.active_s > 0
    ]
    known = [(max(ranks.values()), ranks, window) for ranks, window in stopped if ranks]
    if not known:  # a record of before, or no phase
        return []
    worst_s, ranks, window = max(
        known,
        key=lambda each: (_is_stopped(each[0], each[2]), each[0] / each[2].active_s),
    )
    who = "the rank's own process" if len(ranks) == 1 else "the ranks' own processes"
    if min(ranks.values()) < worst_s / 2:
        who = f"the own process of rank {max(ranks, key=lambda rank: ranks[rank])}"
    worst = ""
    if len(record.hosts) > 1:
        who += f" on {window.host}"
        worst = f", the most of {len(record.hosts)} hosts"
    return [
        judged(
            "ran_throughout",
            f"In the phase {window.name}, {who} did not run for {worst_s:.1f} s of "
            f"{window.active_s:.1f} s{worst}",
            ": stopped, frozen or without a CPU",
            holds=not _is_stopped(worst_s, window),
            figures={"stopped_s": worst_s, "active_s": window.active_s},
            worst="fail",
        )
    ]


def cpu_throttled(record: RunRecord) -> Sequence[Check]:
    """Warn if a CPU quota stopped a host's control group for over 1 % of a timed phase.

    Ranks of a host may share the group: the one that saw most of it counts. The kernel counts each
    CPU's seconds, so that the share is of as many CPUs as the quota allows, one at least. Without a
    quota there is nothing to check.
    """
    limits = {host.facts.name: host.facts.cgroup_cpu_limit for host in record.hosts}
    checks = []
    for host, limit in limits.items():
        windows = [each for each in record.timed_windows() if each.host == host and each.active_s]
        lost = [(_throttled_s(record, window), window) for window in windows]
        if limit is None or not lost:
            continue
        worst_s, window = max(lost, key=lambda each: each[0] / each[1].active_s)
        allowed_s = window.active_s * max(limit, 1)
        checks.append(
            judged(
                f"cpu_throttled{of_host(record, host)}",
                f"In the phase {window.name}, the quota of {limit:g} CPUs stopped processes for "
                f"{worst_s:.2f} of {allowed_s:.1f} CPU seconds in {window.active_s:.1f} s",
                ": the quota limits the result as well",
                holds=worst_s <= THROTTLED_SHARE * allowed_s,
                figures={"limit": limit, "throttled_s": worst_s, "active_s": window.active_s},
            )
        )
    return checks


def _throttled_s(record: RunRecord, window: PhaseWindow) -> float:
    """Return the most that a rank counted in a window; CPU seconds."""
    by_rank: dict[int, float] = defaultdict(float)
    for span in record.spans_by_phase[window.host, window.name]:
        by_rank[span.rank] += span.throttled_s or 0.0
    return max(by_rank.values())


def _is_stopped(stopped_s: float, window: PhaseWindow) -> bool:
    return stopped_s > STOPPED_S and stopped_s > STOPPED_SHARE * window.active_s


def _stopped_s(record: RunRecord, window: PhaseWindow) -> dict[int, float]:
    """Return for how long each rank of a window did not run; empty if that was not counted."""
    found: dict[int, float] = {}
    for span in record.spans_by_phase[window.host, window.name]:
        if span.stopped_s is not None:
            found[span.rank] = found.get(span.rank, 0.0) + span.stopped_s
    return {rank: min(seconds, window.active_s) for rank, seconds in found.items()}


def _halves_agree(record: RunRecord, window: PhaseWindow) -> Check:
    name = f"steady_{window.name}{of_host(record, window.host)}"
    count = len(window.intervals)
    halves = window.half_rates_bytes_per_s
    if halves is None:
        return unknown(
            name,
            f"{window.name} was active for {window.active_s:.2f} s, too short to compare its "
            "halves.",
            cause=TOO_SHORT,
        )
    first, second = "the first half of its active time", "the second"
    if count > 1:
        first, second = f"the first {count // 2} of {count} intervals", f"the last {count // 2}"
        intervals = window.intervals
        halves = (
            _rate(record, window, intervals[: count // 2]),
            _rate(record, window, intervals[-(count // 2) :]),
        )
    elif is_paced(record, window.name):
        sentence = (
            f"The emulated accelerator set the pace of {window.name}, which began with a burst of "
            "prefetching, so its halves are not compared."
        )
        return unknown(name, sentence, cause=PACED)
    return judged(
        name,
        f"{window.name} moved {format_rate(halves[0])} in {first} and {format_rate(halves[1])} in "
        f"{second}",
        ": more than 10 % apart, not steady",
        holds=abs(halves[1] - halves[0]) / max(*halves, 1e-12) <= UNSTEADY,
        figures={"first_bytes_per_s": halves[0], "second_bytes_per_s": halves[1]},
    )


def _rate(record: RunRecord, window: PhaseWindow, intervals: Sequence[tuple[int, int]]) -> float:
    """Return the rate of a phase in B/s over some of its intervals, by the bytes of its spans."""
    start_ns, end_ns = intervals[0][0], intervals[-1][1]
    moved_bytes = sum(
        span.read_bytes + span.written_bytes
        for span in record.spans_by_phase[window.host, window.name]
        if start_ns <= span.start_ns < end_ns
    )
    return moved_bytes * NS_PER_S / max(1, sum(end - start for start, end in intervals))
