from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import ns, trace_of
from wattload.core.power import Boxcar, Channel, Counter, Instant
from wattload.power.energy.integration import tail_end

TIMES_S = np.round(np.arange(-10, 300) / 10, 6)
FLUSHED = np.where(TIMES_S < 7.95, 12.0, 5.2)


def seconds_to_calm(end_ns: int | None) -> float | None:
    return None if end_ns is None else (end_ns - ns(0)) / 1e9


def test_tail_ends_where_power_is_back_at_idle() -> None:
    end_ns = tail_end(
        trace_of(TIMES_S, FLUSHED), Instant(), idle_w=5.0, after_ns=ns(0), period_s=0.1
    )
    assert seconds_to_calm(end_ns) == pytest.approx(8.0)


def test_drive_that_was_calm_at_once_has_no_tail() -> None:
    trace = trace_of(TIMES_S, np.full(TIMES_S.size, 4.8))
    assert tail_end(trace, Instant(), idle_w=5.0, after_ns=ns(0), period_s=0.1) == ns(0)


def test_power_above_five_percent_of_idle_is_not_calm() -> None:
    trace = trace_of(TIMES_S, np.full(TIMES_S.size, 5.26))
    assert tail_end(trace, Instant(), idle_w=5.0, after_ns=ns(0), period_s=0.1) is None


def test_short_pause_between_two_flushes_is_not_calm() -> None:
    pausing = np.where((TIMES_S > 3) & (TIMES_S < 4.5), 5.0, FLUSHED)
    end_ns = tail_end(
        trace_of(TIMES_S, pausing), Instant(), idle_w=5.0, after_ns=ns(0), period_s=0.1
    )
    assert seconds_to_calm(end_ns) == pytest.approx(8.0)


def test_time_that_was_not_watched_is_not_known_to_be_calm() -> None:
    kept = (TIMES_S < 1) | (TIMES_S > 12)
    end_ns = tail_end(
        trace_of(TIMES_S[kept], np.full(int(kept.sum()), 5.0)),
        Instant(),
        idle_w=5.0,
        after_ns=ns(0),
        period_s=0.1,
    )
    assert seconds_to_calm(end_ns) == pytest.approx(12.1)


def test_no_tail_is_told_before_it_was_watched_long_enough() -> None:
    early = TIMES_S <= 9.8
    trace = trace_of(TIMES_S[early], FLUSHED[early])
    assert tail_end(trace, Instant(), idle_w=5.0, after_ns=ns(0), period_s=0.1) is None
    empty = trace_of([], [])
    assert tail_end(empty, Instant(), idle_w=5.0, after_ns=ns(0), period_s=0.1) is None


def test_mean_of_the_last_second_and_counter_tell_the_same_tail() -> None:
    sliding = np.convolve(np.concatenate((np.full(10, 12.0), FLUSHED)), np.full(10, 0.1), "valid")
    mean = trace_of(TIMES_S, sliding[: TIMES_S.size])
    sensor = Boxcar(window_s=1.0, update_period_s=0.0)
    found_s = seconds_to_calm(tail_end(mean, sensor, idle_w=5.0, after_ns=ns(0), period_s=0.1))
    assert found_s == pytest.approx(8.0, abs=0.6)
    joules = np.cumsum(FLUSHED) * 0.1
    counted = trace_of(TIMES_S, joules, channel=Channel.ENERGY_J)
    found_s = seconds_to_calm(
        tail_end(counted, Counter(quantum_j=0.001), idle_w=5.0, after_ns=ns(0), period_s=0.1)
    )
    assert found_s == pytest.approx(8.0, abs=0.2)
