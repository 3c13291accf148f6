"""Energy of a window by readings of power: straight lines between them, and holes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Floats, integrate, ns, samples_of, trace_of
from wattload.core.power import Evidence, Instant
from wattload.power.energy.integration import WindowResult
from wattload.power.energy.trace import Trace, traces

TIMES_S = np.round(np.arange(-20, 1200) / 10, 6)


def result_of(trace: Trace, start_s: float, end_s: float, period_s: float = 0.1) -> WindowResult:
    return integrate(trace, Instant(), ns(start_s), ns(end_s), period_s=period_s)


def test_ramp_is_exact_whatever_the_spacing() -> None:
    times_s: Floats = np.sort(np.random.default_rng(3).uniform(-3, 63, 400)).round(6)
    result = result_of(trace_of(times_s, 5 + 0.2 * times_s), 0.5, 59.5)
    expected_j = 5 * 59 + 0.1 * (59.5**2 - 0.25)
    assert result.energy_j == pytest.approx(expected_j, rel=1e-9)
    assert (result.coverage, result.reason) == (1, "")
    assert result.evidence is Evidence.SELF_REPORTED


def test_unsorted_samples_give_the_same_energy() -> None:
    times_s = np.arange(-1, 11, 0.5)
    watts = 10 + np.sin(times_s)
    order = np.random.default_rng(0).permutation(times_s.size)
    (trace,) = traces(samples_of(times_s[order], watts[order])).values()
    assert result_of(trace, 0, 10).energy_j == result_of(trace_of(times_s, watts), 0, 10).energy_j


def test_window_without_length_has_no_figure() -> None:
    result = result_of(trace_of([0.0, 1.0], [10.0, 20.0]), 0.5, 0.5)
    assert (result.energy_j, result.reason) == (None, "the window is empty")


@pytest.mark.parametrize(
    ("value", "evidence"), [(1.0, Evidence.ESTIMATED), (None, Evidence.MEASURED)]
)
def test_weakest_evidence_of_the_successful_reads_counts(
    value: float | None, evidence: Evidence
) -> None:
    samples = samples_of([0.0, 1.0, 3.0], [1.0, 1.0, 1.0], evidence=Evidence.MEASURED)
    samples += samples_of([2.0], [value], evidence=Evidence.ESTIMATED)
    (trace,) = traces(samples).values()
    assert trace.evidence(ns(0.2), ns(0.8)) is Evidence.MEASURED
    assert trace.evidence(ns(0.2), ns(2.5)) is evidence


def stepping(first_s: float, last_s: float) -> Trace:
    """Return 5 W up to second 10 and from second 90 on, 17 W between, without some seconds."""
    watts = np.where((TIMES_S > 10) & (TIMES_S <= 90), 17.0, 5.0)
    kept = (first_s >= TIMES_S) | (last_s <= TIMES_S)
    return trace_of(TIMES_S[kept], watts[kept])


@pytest.mark.parametrize(
    ("first_s", "last_s", "coverage", "energy_j"),
    [
        (40, 43, 1, 17 * 80 + 5 * 20),  # bridged
        (40, 44, 0.96, 17 * 80 + 5 * 20),
        (8, 12, 0.96, 5 * 8 + 11 * 4 + 17 * 78 + 5 * 10),
    ],
)
def test_hole_is_filled_with_the_power_around_it(
    first_s: float, last_s: float, coverage: float, energy_j: float
) -> None:
    result = result_of(stepping(first_s, last_s), 0, 100)
    assert result.coverage == pytest.approx(coverage, rel=1e-9)
    assert result.energy_j == pytest.approx(energy_j, abs=0.7)


def test_gap_grows_with_the_period() -> None:
    times_s = np.arange(-20, 120, 5.0)
    trace = trace_of(times_s, np.full(times_s.shape, 10.0))
    assert result_of(trace, 0, 100, period_s=5).coverage == 1.0
    assert result_of(trace, 0, 100, period_s=1).coverage == 0.0


def test_under_95_percent_there_is_no_figure() -> None:
    kept = (TIMES_S <= 40) | (TIMES_S >= 46)
    result = result_of(trace_of(TIMES_S[kept], np.full(int(kept.sum()), 10.0)), 0, 100)
    assert result.energy_j is None
    assert result.reason == "readings cover 94.0 % of the time; at least 95 % are required"


def test_no_reading_at_all_has_a_reason() -> None:
    result = result_of(trace_of([], []), 0, 10)
    assert (result.energy_j, result.sample_count) == (None, 0)
    assert result.reason == "no reading covers the time"
    assert result.evidence is Evidence.NONE
