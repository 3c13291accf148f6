"""Whether a run, and its energy, are compared as valid.

Closure checks run before a page is drawn, in addition to the record's own checks: they compare the
figures of a record with each other and with its traces. An edited record fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot, isclose
from statistics import fmean

import numpy as np

from wattload.core.base_models import NOT_RECORDED
from wattload.core.histogram import BUCKET_COUNT, bucket_of, upper_end_ns
from wattload.core.power import Channel
from wattload.core.record.energy import EnergyRecord
from wattload.core.record.file import SealState
from wattload.core.record.phase import PhaseWindow, phase_windows
from wattload.core.record.results import SHARES, Check, Latency, Verdict, percentile_s
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S, Unit, format_bytes
from wattload.reports.runs.load import Run
from wattload.reports.runs.traces import Signal, ThroughputTrace

TIME_TOLERANCE_S = 1e-6
ENERGY_TOLERANCE = 1e-6
FIGURE_TOLERANCE = 1e-6
TRACE_ENERGY_TOLERANCE = 0.01
"""A trapezoid over the samples of an instant sensor, against the run's own integral."""

MOST_OPERATIONS = 1 << 53
MOST_S = float(MOST_OPERATIONS) / NS_PER_S
"""What a histogram counts and times exactly."""

MOVED = ("read_bytes", "written_bytes")
OF_SPANS = (
    *("timed", "start_ns", "end_ns", "start_spread_s", "end_spread_s", "rank_count"),
    *(*MOVED, "operations", "cpu_s", "intervals"),
)
"""The fields of a phase that follow from the spans of its ranks."""

TRACES = ("throughput", "power")
"""The traces that every complete run writes."""

SEAL_CHECK = "seal"
_TRACE_DIGEST = "trace_digest_"
_SEALS: Mapping[SealState, tuple[Verdict, str]] = {
    "holds": ("pass", "Its seal matches its content."),
    "broken": ("fail", "The record was edited after the run: its seal does not match its content."),
    "none": ("not_checked", "It has no seal, so edits can't be detected."),
}


def closure_checks(run: Run) -> tuple[Check, ...]:
    """Return every closure check of a run; each compares two independently stored figures."""
    record = run.record
    return (
        _seal(run),
        *_windows_span_their_seconds(record),
        *_windows_hold_their_spans(record),
        *_application_counters(record),
        *_latencies(record),
        *_net_energy(record),
        *_totals(record),
        *_traced_bytes(run),
        *_traced_energy(run),
        *_verified_bytes(record),
        *_traced_phases(run),
        *_traces(run),
    )


def _seal(run: Run) -> Check:
    verdict, sentence = _SEALS[run.seal]
    return Check(name=SEAL_CHECK, verdict=verdict, sentence=sentence)


def _check(name: str, holds: bool, sentence: str, **figures: float | int | str | None) -> Check:
    return Check(name=name, verdict="pass" if holds else "fail", sentence=sentence, figures=figures)


def _windows_span_their_seconds(record: RunRecord) -> Iterator[Check]:
    for window in record.windows:
        seconds = (window.end_ns - window.start_ns) / NS_PER_S
        active_s = sum(end - start for start, end in window.active_intervals) / NS_PER_S
        apart_s = max(abs(seconds - window.seconds), abs(active_s - window.active_s))
        yield _check(
            f"seconds_{window.name}_{window.host}",
            apart_s <= TIME_TOLERANCE_S,
            f"{window.name} lasted {window.seconds:.6f} s, {window.active_s:.6f} s of it active; "
            f"its start and end are {seconds:.6f} s apart, its intervals sum to {active_s:.6f} s.",
            stated_s=window.seconds,
            between_ends_s=seconds,
            stated_active_s=window.active_s,
            intervals_s=active_s,
        )


def _windows_hold_their_spans(record: RunRecord) -> Iterator[Check]:
    """Make each window again from the spans of its ranks."""
    backward = {(span.name, span.host) for span in record.spans if span.end_ns < span.start_ns}
    spans = [span for span in record.spans if (span.name, span.host) not in backward]
    made = {(window.name, window.host): window for window in phase_windows(spans)}
    for window in record.windows:
        of_spans = made.get((window.name, window.host))
        apart = [name for name in OF_SPANS if of_spans is None or _differ(window, of_spans, name)]
        spans_bytes = of_spans.read_bytes + of_spans.written_bytes if of_spans else 0
        stated_bytes = window.read_bytes + window.written_bytes
        yield _check(
            f"spans_{window.name}_{window.host}",
            not apart,
            f"{window.name}: the rank spans sum to {format_bytes(spans_bytes)}, the phase has "
            f"{format_bytes(stated_bytes)}" + (f"; {', '.join(apart)} differ." if apart else "."),
            spans_bytes=spans_bytes,
            stated_bytes=stated_bytes,
        )


def _differ(window: PhaseWindow, other: PhaseWindow, name: str) -> bool:
    stated, found = getattr(window, name), getattr(other, name)
    if isinstance(stated, float):
        return not isclose(stated, found, rel_tol=FIGURE_TOLERANCE, abs_tol=TIME_TOLERANCE_S)
    is_stated = name != "intervals" or window.intervals  # older records have none
    return bool(is_stated) and stated != found


def _application_counters(record: RunRecord) -> Iterator[Check]:
    for window in record.windows:
        counters = [
            counter
            for counter in record.counters
            if counter.source == "application"
            and (counter.phase, counter.host) == (window.name, window.host)
        ]
        if not counters:
            continue
        counted = [sum(getattr(counter, name) or 0 for counter in counters) for name in MOVED]
        stated = [getattr(window, name) for name in MOVED]
        yield _check(
            f"counters_{window.name}_{window.host}",
            counted == stated,
            f"{window.name}: the application's counters have {_moved(counted)}, the phase has "
            f"{_moved(stated)}.",
            counters_bytes=sum(counted),
            stated_bytes=sum(stated),
        )


def _moved(moved_bytes: Sequence[int]) -> str:
    read, written = map(format_bytes, moved_bytes)
    return f"{read} read and {written} written"


def _latencies(record: RunRecord) -> Iterator[Check]:
    """Make the figures of each row again from its buckets.

    Only old records lack them, and the row of one rank, whose operations are in a row of several.
    """
    is_old = not any(host.clocks for host in record.hosts)
    for row in record.latencies:
        if not row.buckets and (is_old or not row.count or _is_in_another(row, record.latencies)):
            continue
        apart = list(_not_of_buckets(row)) if row.buckets else ["buckets"]
        yield _check(
            f"latencies_{row.phase}_{row.kind}_{row.operation_bytes}",
            not apart,
            f"{row.phase}: the histogram of {row.count} {row.kind}s gives other figures: "
            f"{', '.join(apart)}."
            if apart
            else f"{row.phase}: the latencies of {row.count} {row.kind}s are those of their "
            "histogram.",
        )


def _is_in_another(row: Latency, rows: Sequence[Latency]) -> bool:
    """Return whether another row has the buckets of all ranks, those of this one among them."""
    own = (row.phase, row.kind, row.operation_bytes)
    return any(
        each.buckets
        and own == (each.phase, each.kind, each.operation_bytes)
        and set(row.ranks) < set(each.ranks)
        and row.count < each.count
        for each in rows
    )


def _not_of_buckets(row: Latency) -> Iterator[str]:
    """Yield the names of the figures that the row's buckets contradict."""
    buckets = [bucket for bucket, _ in row.buckets]
    if buckets != sorted(set(buckets)) or not 0 <= buckets[0] <= buckets[-1] < BUCKET_COUNT:
        yield "buckets"
        return
    counts = [count for _, count in row.buckets]
    if min(counts) < 1 or sum(counts) != row.count or row.count > MOST_OPERATIONS:
        yield "count"
        return
    if not row.min_s <= row.mean_s <= row.max_s < MOST_S:
        yield "mean_s"
        return
    histogram = row.histogram()
    for name, share in SHARES.items():
        is_older = row.missing.get(name) == NOT_RECORDED
        if not is_older and getattr(row, name) != percentile_s(histogram, share):
            yield name
    if bucket_of(round(row.min_s * NS_PER_S)) != buckets[0]:
        yield "min_s"
    if bucket_of(round(row.max_s * NS_PER_S)) != buckets[-1]:
        yield "max_s"
    least_s = [row.min_s, *(upper_end_ns(bucket - 1) / NS_PER_S for bucket in buckets[1:])]
    most_s = [*(upper_end_ns(bucket) / NS_PER_S for bucket in buckets[:-1]), row.max_s]
    slack_s = FIGURE_TOLERANCE * row.max_s
    if not fmean(least_s, counts) - slack_s <= row.mean_s <= fmean(most_s, counts) + slack_s:
        yield "mean_s"


def _net_energy(record: RunRecord) -> Iterator[Check]:
    for energy in record.power.energy:
        if energy.net_j is None or energy.energy_j is None or energy.idle_w is None:
            continue
        net_j = energy.energy_j - energy.idle_w * energy.seconds
        yield _check(
            f"net_energy_{energy.phase}_{energy.device}_{energy.source}",
            abs(net_j - energy.net_j) <= ENERGY_TOLERANCE * max(abs(energy.energy_j), 1.0),
            f"{energy.phase}: the recorded net energy is {energy.net_j:.4f} J; gross minus idle "
            f"power times seconds is {net_j:.4f} J.",
            stated_j=energy.net_j,
            recomputed_j=net_j,
        )


def _traced_bytes(run: Run) -> Iterator[Check]:
    if run.traces.throughput is None:
        return
    for window in run.record.windows:
        traced_bytes = _bytes_in(run.traces.throughput, window)
        stated_bytes = window.read_bytes + window.written_bytes
        yield _check(
            f"traced_bytes_{window.name}_{window.host}",
            traced_bytes == stated_bytes,
            f"{window.name}: the throughput trace sums to {format_bytes(traced_bytes)}, the phase "
            f"has {format_bytes(stated_bytes)}.",
            trace_bytes=traced_bytes,
            stated_bytes=stated_bytes,
        )


def _bytes_in(trace: ThroughputTrace, window: PhaseWindow) -> int:
    rows = trace.phase.are(window.name) & trace.host.are(window.host)
    return int(trace.read_bytes[rows].sum() + trace.written_bytes[rows].sum())


def _traced_energy(run: Run) -> Iterator[Check]:
    """Integrate instant sensors again; other sensors need more than a trapezoid.

    Their readings are as late as the energy model found. One that it found to be no instant sensor,
    or whose lag it could not find, is left out.
    """
    if run.traces.power is None:
        return
    sources = {
        (source.name, source.device): source.found
        for source in run.record.power.sources
        if source.facts is not None and source.facts.sensor.kind == "instant"
    }
    for energy in run.record.power.energy:
        key = (energy.source, energy.device)
        signal = run.traces.power.signal(Channel.POWER_W, *key)
        window = next(
            (w for w in run.record.windows if (w.name, w.host) == (energy.phase, energy.host)), None
        )
        if signal is None or window is None or energy.energy_j is None or key not in sources:
            continue
        found = sources[key]
        if found is not None and not (found.shape == "instant" and found.is_known):
            continue
        if (energy.coverage or 0) >= 1 - TRACE_ENERGY_TOLERANCE:
            late_ns = 0 if found is None else round(found.lag_s * NS_PER_S)
            yield _energy_check(signal, energy, window, late_ns)


def _energy_check(signal: Signal, energy: EnergyRecord, window: PhaseWindow, late_ns: int) -> Check:
    stated_j = energy.energy_j or 0.0
    traced_j = sum(
        trapezoid_j(signal, start_ns + late_ns, end_ns + late_ns)
        for start_ns, end_ns in window.active_intervals
    )
    # Between the readings at its edges, the model knows a phase's power better than a trapezoid.
    parts_j = (part for name, part in energy.uncertainty_parts_j.items() if name != "gain")
    slack_j = TRACE_ENERGY_TOLERANCE * max(abs(stated_j), 1e-9) + hypot(*parts_j)
    return _check(
        f"traced_energy_{energy.phase}_{energy.device}_{energy.source}",
        abs(traced_j - stated_j) <= slack_j,
        f"{energy.phase}: the trace of {energy.source} integrates to {traced_j:.4g} J, the record "
        f"has {stated_j:.4g} J.",
        trace_j=traced_j,
        stated_j=stated_j,
    )


def trapezoid_j(signal: Signal, start_ns: int, end_ns: int) -> float:
    """Return the trapezoid over [start, end] in joules; gaps are bridged, ends interpolated."""
    known = ~np.isnan(signal.value)
    time_ns, watts = signal.time_ns[known], signal.value[known]
    if time_ns.size == 0:
        return 0.0
    inside = (time_ns > start_ns) & (time_ns < end_ns)
    # Seconds from the window's start: ns since boot would lose digits in a float.
    ends_s = np.array([0.0, (end_ns - start_ns) / NS_PER_S])
    time_s = (time_ns - start_ns) / NS_PER_S
    ends_w = np.interp(ends_s, time_s, watts)
    times = np.concatenate((ends_s[:1], time_s[inside], ends_s[1:]))
    values = np.concatenate((ends_w[:1], watts[inside], ends_w[1:]))
    return float(np.trapezoid(values, times))


def _totals(record: RunRecord) -> Iterator[Check]:
    """Sum the energies that a total names: its keys are host/device/source/phase."""
    parts = {
        f"{energy.host}/{energy.device}/{energy.source}/{energy.phase}": energy.energy_j
        for energy in record.power.energy
    }
    for total in record.totals:
        if total.unit != Unit.JOULES or total.value is None:
            continue
        found = [parts.get(key) for key in total.keys]
        known = [part for part in found if part is not None]
        sum_j = sum(known)
        close = abs(sum_j - total.value) <= ENERGY_TOLERANCE * max(abs(total.value), 1.0)
        yield _check(
            f"total_{total.name}",
            close and len(known) == len(found),
            f"{total.name.replace('_', ' ')} is {total.value:.4f} J in the record; the "
            f"{len(known)} of {len(found)} parts with a figure sum to {sum_j:.4f} J.",
            stated_j=total.value,
            parts_j=sum_j,
        )


def _verified_bytes(record: RunRecord) -> Iterator[Check]:
    """Compare the bytes that a check states to have verified a share of with the phase's own."""
    for check in record.checks:
        for verified in check.verified:
            moved_bytes = record.moved_bytes(verified.phase, verified.kind)
            yield _check(
                f"verified_bytes_{check.name}_{verified.phase}_{verified.kind}",
                moved_bytes == verified.moved_bytes,
                f"{check.name} verified a share of {format_bytes(verified.moved_bytes)} "
                f"{verified.kind} in {verified.phase}; the phase has {format_bytes(moved_bytes)}.",
                stated_bytes=verified.moved_bytes,
                moved_bytes=moved_bytes,
            )


def _traced_phases(run: Run) -> Iterator[Check]:
    """Look for phases with bytes in the throughput trace that the record does not have."""
    trace = run.traces.throughput
    if trace is None:
        return
    known = {window.name for window in run.record.windows}
    unknown = [name for name in trace.phase.words if name not in known]
    yield _check(
        "traced_phases",
        not unknown,
        f"The throughput trace has phases that the record does not have: {', '.join(unknown)}."
        if unknown
        else "Every phase of the throughput trace is one of the record.",
        unknown_count=len(unknown),
    )


def _traces(run: Run) -> Iterator[Check]:
    """Compare each trace's file with the digest in the record; a missing file proves nothing."""
    for file in run.record.traces:
        name = f"{_TRACE_DIGEST}{file.name}"
        digest = run.traces.digests.get(file.name)
        if digest is None:
            yield Check(
                name=name,
                verdict="not_checked",
                sentence=f"{file.file} is missing or unreadable, so the record's figures can't be "
                "compared with it.",
                mandatory=file.name in TRACES,
            )
            continue
        same = digest == file.sha256
        yield _check(
            name,
            same,
            f"{file.file} has the recorded digest."
            if same
            else f"{file.file} was damaged or changed after the run: its digest differs.",
            stated=file.sha256[:16],
            found=digest[:16],
        )
    named = {file.name for file in run.record.traces}
    for name in TRACES:
        if run.sha256 and run.record.status == "complete" and name not in named:
            yield Check(
                name=f"{_TRACE_DIGEST}{name}",
                verdict="not_checked",
                sentence=f"The record names no {name} trace, which every complete run writes.",
                mandatory=True,
            )


WARM_UP = "it is a warm-up run"
_ENDED = {"failed": "the run failed", "aborted": "the run was aborted"}
_DONE = {"fail": "failed", "not_checked": "was not checked"}


def ending(record: RunRecord) -> tuple[str, str]:
    """Return how a run ended that is not complete, such as ``the run failed``, and why."""
    return _ENDED[record.status], record.status_reason or "no reason recorded"


def faults(run: Run, closures: Sequence[Check]) -> tuple[str, ...]:
    """Return why a run is not compared as valid; empty for a valid one."""
    record, found = run.record, []
    if record.comparison.warm_up:
        found.append(WARM_UP)
    if record.status != "complete":
        how, why = ending(record)
        found.append(f"{how}: {why}")
    found += [
        f"the check {check.name} failed: {check.sentence}"
        for check in record.checks
        if check.fails_run
    ]
    found += [_broken(check) for check in closures if check.verdict == "fail"]
    found += [
        f"the mandatory check {check.name} is missing: {check.sentence}"
        for check in (*record.checks, *closures)
        if check.bars_verdict and not check.is_of_power
    ]
    return tuple(found)


def energy_faults(run: Run, closures: Sequence[Check]) -> tuple[str, ...]:
    """Return why a run's energy is not compared, in addition to the faults of the run."""
    return tuple(
        f"the check {check.name} {_DONE[check.verdict]}: {check.sentence}"
        for check in (*run.record.checks, *closures)
        if check.bars_energy
    )


def _broken(check: Check) -> str:
    if check.name == SEAL_CHECK:
        return f"it was edited: {check.sentence}"
    if check.name.startswith(_TRACE_DIGEST):
        return f"its trace {check.sentence}"
    return f"its figures are inconsistent, {check.name}: {check.sentence}"
