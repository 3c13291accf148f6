"""The metrics of random writes: how long they took, and what the drive sustains."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from wattload.core.io import IOReading
from wattload.core.record.results import Latency, Metric, latencies_of
from wattload.core.units import NS_PER_S, Unit
from wattload.workloads.random_write.config import Condition, Config, Draw, Until
from wattload.workloads.random_write.writing import PHASE, STEADY_PHASE, Written

WHOLE_SECOND_S = 0.9
"""Shorter rows, at the end, are not judged as seconds."""

figure = partial(Metric.of, phase=PHASE)
"""Create a metric of this phase; see ``Metric.of``."""


def metrics(config: Config, written: Written) -> Iterator[Metric]:
    """Yield the metrics of a run, its headline first."""
    seconds = (written.end_ns - written.record.start.time_ns) / NS_PER_S
    total = written.total
    is_steady = config.until is Until.steady
    if config.until is Until.fill and config.drawn is Draw.each_once:
        yield figure(
            "fill_seconds",
            seconds,
            Unit.SECONDS,
            "lower",
            f"time to write the range {config.most_passes} times, with the last flush",
            headline=True,
        )
    if is_steady or written.steady is not None:
        yield from _steady(config, written, is_headline=is_steady)
    yield figure(
        "write_bytes_per_s",
        total.moved_bytes / seconds,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes written / time, with the last flush",
        headline=not is_steady,
        rate_of="written",
    )
    yield figure(
        "written_bytes", float(total.moved_bytes), Unit.BYTES, "neither", "random bytes written"
    )
    yield figure(
        "write_iops",
        total.operation_count / seconds,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "writes / time, with the last flush",
    )
    rates = written.record.seconds.rates_bytes_per_s(least_s=WHOLE_SECOND_S)
    yield figure(
        "slowest_second_bytes_per_s",
        min(rates, default=None),
        Unit.BYTES_PER_SECOND,
        "higher",
        "the lowest rate of a second",
        reason="it took less than a second",
    )
    if not is_steady:
        yield from _passes(written)


def latencies(config: Config, written: Written) -> tuple[Latency, ...]:
    """Return the latencies of all writes, and those of the steady state."""
    of = partial(latencies_of, kind="write", operation_bytes=config.block_bytes)
    return (
        *of(written.total.latency, phase=PHASE),
        *of(written.steady_latency, phase=STEADY_PHASE),
    )


def _steady(config: Config, written: Written, *, is_headline: bool) -> Iterator[Metric]:
    """Yield what the drive sustains; without a steady state the reason why there is no figure."""
    of_steady = partial(Metric.of, phase=STEADY_PHASE if written.steady else PHASE)
    reason = "" if written.judge is None else written.judge.headline.reason
    rate = iops = fresh = None
    if written.steady is not None:
        first, last = written.steady
        seconds = (last.time_ns - first.time_ns) / NS_PER_S
        rate = (last.written_bytes - first.written_bytes) / seconds
        iops = rate / config.block_bytes
        if config.prepared is Condition.sequential:
            fresh = _first_minute(written) / rate
        else:
            reason = "the range was not prepared by this run"
    yield of_steady(
        "steady_write_bytes_per_s",
        rate,
        Unit.BYTES_PER_SECOND,
        "higher",
        "bytes written / time in the steady state" + _limit(config),
        headline=is_headline,
        reason=reason,
        rate_of="written" if rate is not None else "",
    )
    yield of_steady(
        "steady_write_iops",
        iops,
        Unit.SAMPLES_PER_SECOND,
        "higher",
        "writes / time in the steady state",
        reason=reason,
    )
    yield figure(
        "fresh_over_steady",
        fresh,
        Unit.FRACTION,
        "neither",
        "rate of the first minute / steady rate",
        reason=reason,
    )


def _limit(config: Config) -> str:
    return "" if config.rate_bytes_per_s is None else ", limited by workload.rate_bytes_per_s"


def _first_minute(written: Written) -> float:
    return written.record.rounds.rates_bytes_per_s()[0]


def _passes(written: Written) -> Iterator[Metric]:
    before: IOReading = written.record.start
    for number, reading in enumerate(written.passes, start=1):
        seconds = (reading.time_ns - before.time_ns) / NS_PER_S
        yield figure(
            f"pass_{number}_write_bytes_per_s",
            (reading.moved_bytes - before.moved_bytes) / seconds,
            Unit.BYTES_PER_SECOND,
            "higher",
            f"bytes / time of pass {number}",
        )
        before = reading
