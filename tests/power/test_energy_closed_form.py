from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Bursts, Floats, ns, samples_of, trace_of
from wattload.core.power import Evidence, Instant
from wattload.power.energy import integrate
from wattload.power.trace import Trace, traces

EXACT = 1e-9


def energy_j(trace: Trace, start_s: float, end_s: float, period_s: float = 0.1) -> float:
    result = integrate(trace, Instant(), ns(start_s), ns(end_s), period_s=period_s)
    assert result.reason is None
    assert result.energy_j is not None
    assert result.coverage == 1.0
    return result.energy_j


def test_constant_power_is_watts_times_seconds() -> None:
    times_s = np.arange(-2, 64, 0.1)
    trace = trace_of(times_s, np.full(times_s.shape, 17.25))
    assert energy_j(trace, 0.037, 60.011) == pytest.approx(17.25 * 59.974, rel=EXACT)


def test_mean_power_is_energy_over_the_window() -> None:
    trace = trace_of(np.arange(-2, 64, 0.1), np.full(660, 17.25))
    result = integrate(trace, Instant(), ns(0), ns(60), period_s=0.1)
    assert result.mean_w == pytest.approx(17.25, rel=EXACT)
    assert result.seconds == 60
    assert result.sample_count == 601
    assert result.evidence is Evidence.SELF_REPORTED


def test_ramp_is_exact_whatever_the_spacing() -> None:
    times_s: Floats = np.sort(np.random.default_rng(3).uniform(-3, 63, 400)).round(6)
    trace = trace_of(times_s, 5 + 0.2 * times_s)
    assert energy_j(trace, 0.5, 59.5) == pytest.approx(5 * 59 + 0.1 * (59.5**2 - 0.25), rel=EXACT)


def test_both_edges_between_samples_are_interpolated() -> None:
    trace = trace_of([0.0, 1.0, 2.0], [10.0, 20.0, 10.0])
    expected = (12.5 + 20) / 2 * 0.75 + (20 + 17.5) / 2 * 0.25
    assert energy_j(trace, 0.25, 1.25) == pytest.approx(expected, rel=EXACT)


def test_window_inside_one_sample_interval_has_its_energy() -> None:
    trace = trace_of([0.0, 1.0], [10.0, 20.0])
    assert energy_j(trace, 0.25, 0.5) == pytest.approx(0.25 * 13.75, rel=EXACT)


def test_step_is_off_by_at_most_half_a_sample_interval() -> None:
    times_s = np.arange(-2.03, 13, 0.1)
    trace = trace_of(times_s, np.where(times_s < 4.0, 6.0, 21.0))
    true_j = 6 * 4 + 21 * 6
    assert abs(energy_j(trace, 0, 10) - true_j) <= 15 * 0.1 / 2
    assert energy_j(trace, 0, 10) != pytest.approx(true_j, rel=EXACT)


def test_step_that_is_sampled_on_both_sides_is_exact() -> None:
    trace = trace_of([-1.0, 4.0 - 1e-9, 4.0, 11.0], [6.0, 6.0, 21.0, 21.0])
    assert energy_j(trace, 0, 10, period_s=5) == pytest.approx(6 * 4 + 21 * 6, rel=EXACT)


def test_bursts_sampled_at_their_corners_are_exact() -> None:
    load = Bursts(low_w=5, high_w=21, on_s=2.3, cycle_s=7)
    starts = np.arange(-7, 70, 7.0)
    corners = np.sort(np.concatenate([starts - 1e-9, starts, starts + 2.3 - 1e-9, starts + 2.3]))
    trace = trace_of(corners, load.power_w(corners + 1e-10))
    assert energy_j(trace, 1.1, 58.7, period_s=2) == pytest.approx(
        load.between_j(1.1, 58.7), rel=EXACT
    )


def test_unsorted_samples_give_the_same_energy() -> None:
    times_s = np.arange(-1, 11, 0.5)
    watts = 10 + np.sin(times_s)
    order = np.random.default_rng(0).permutation(times_s.size)
    (trace,) = traces(samples_of(times_s[order], watts[order])).values()
    assert energy_j(trace, 0, 10) == energy_j(trace_of(times_s, watts), 0, 10)


def test_two_samples_at_one_moment_do_no_harm() -> None:
    trace = trace_of([0.0, 1.0, 1.0, 2.0], [10.0, 10.0, 20.0, 20.0])
    assert energy_j(trace, 0, 2) == pytest.approx(30, rel=EXACT)


def test_window_without_length_has_no_figure() -> None:
    trace = trace_of([0.0, 1.0], [10.0, 20.0])
    result = integrate(trace, Instant(), ns(0.5), ns(0.5), period_s=0.1)
    assert result.energy_j is None
    assert result.mean_w is None
    assert result.reason == "the window has no length"


def test_window_that_ends_before_it_starts_is_refused() -> None:
    trace = trace_of([0.0, 1.0], [10.0, 20.0])
    with pytest.raises(ValueError, match="must not end before it starts"):
        integrate(trace, Instant(), ns(1), ns(0), period_s=0.1)


def test_weakest_evidence_of_the_window_wins() -> None:
    samples = samples_of([0.0, 1.0, 2.0], [1.0, 1.0, 1.0], evidence=Evidence.MEASURED)
    samples += samples_of([3.0], [1.0], evidence=Evidence.ESTIMATED)
    (trace,) = traces(samples).values()
    assert trace.evidence(ns(0.2), ns(1.8)) is Evidence.MEASURED
    assert trace.evidence(ns(0.2), ns(2.5)) is Evidence.ESTIMATED


def test_failed_read_adds_no_evidence() -> None:
    samples = samples_of([0.0, 2.0], [1.0, 1.0], evidence=Evidence.MEASURED)
    samples += samples_of([1.0], [None], evidence=Evidence.ESTIMATED)
    (trace,) = traces(samples).values()
    assert trace.evidence(ns(0.2), ns(1.8)) is Evidence.MEASURED
