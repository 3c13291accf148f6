from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Bursts, Floats, ns, samples_of, trace_of
from wattload.core.power import Channel, Evidence, Instant
from wattload.power.energy.integration import WindowResult, integrate
from wattload.power.energy.trace import Trace, traces

EXACT = 1e-9


def energy_j(trace: Trace, start_s: float, end_s: float, period_s: float = 0.1) -> float:
    result = integrate(trace, Instant(), ns(start_s), ns(end_s), period_s=period_s)
    assert result.reason is None
    assert result.energy_j is not None
    assert result.coverage == 1.0
    return result.energy_j


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


def test_window_inside_one_sample_interval_has_its_energy() -> None:
    trace = trace_of([0.0, 1.0], [10.0, 20.0])
    assert energy_j(trace, 0.25, 0.5) == pytest.approx(0.25 * 13.75, rel=EXACT)


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
    assert result.reason == "the window is empty"


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


def result_of(trace: Trace, start_s: float, end_s: float, period_s: float = 0.1) -> WindowResult:
    return integrate(trace, Instant(), ns(start_s), ns(end_s), period_s=period_s)


def with_hole(first_s: float, last_s: float, watts: float = 10.0) -> Trace:
    times_s = np.round(np.arange(-20, 1200) / 10, 6)
    kept = times_s[(times_s <= first_s) | (times_s >= last_s)]
    return trace_of(kept, np.full(kept.shape, watts))


def test_gap_longer_than_three_seconds_is_not_covered() -> None:
    result = result_of(with_hole(40, 44), 0, 100)
    assert result.coverage == pytest.approx(0.96, rel=1e-9)
    assert result.covered_s == pytest.approx(96, rel=1e-9)
    assert result.covered_j == pytest.approx(960, rel=1e-9)


def test_hole_in_flat_power_is_filled_with_it() -> None:
    result = result_of(with_hole(40, 44), 0, 100)
    assert result.energy_j == pytest.approx(1000, rel=1e-9)
    assert result.mean_w == pytest.approx(10, rel=1e-9)


def stepping(first_s: float, last_s: float) -> Trace:
    """Return 5 W up to second 10 and from second 90 on, 17 W between, without some seconds."""
    times_s = np.round(np.arange(-20, 1200) / 10, 6)
    watts = np.where((times_s > 10) & (times_s <= 90), 17.0, 5.0)
    kept = (times_s <= first_s) | (times_s >= last_s)
    return trace_of(times_s[kept], watts[kept])


@pytest.mark.parametrize(("first_s", "last_s"), [(-3, 3.5), (96.5, 130)])
def test_hole_at_an_edge_is_filled_with_the_power_beside_it(first_s: float, last_s: float) -> None:
    """The drive idles at both ends of a run, where readings begin late and end early."""
    result = result_of(stepping(first_s, last_s), 0, 100)
    assert result.coverage == pytest.approx(0.965, rel=1e-9)
    assert result.energy_j == pytest.approx(17 * 80 + 5 * 20, abs=1e-6)


def test_hole_amid_a_window_is_filled_with_the_mean_of_both_sides() -> None:
    result = result_of(stepping(8, 12), 0, 100)
    assert result.energy_j == pytest.approx(5 * 8 + 11 * 4 + 17 * 78 + 5 * 10, abs=0.7)


def test_gap_of_three_seconds_is_bridged() -> None:
    assert result_of(with_hole(40, 43), 0, 100).coverage == pytest.approx(1, rel=1e-12)


def test_gap_grows_with_the_period() -> None:
    times_s = np.arange(-20, 120, 5.0)
    trace = trace_of(times_s, np.full(times_s.shape, 10.0))
    assert result_of(trace, 0, 100, period_s=5).coverage == 1.0
    assert result_of(trace, 0, 100, period_s=1).coverage == 0.0


def test_under_95_percent_there_is_no_figure_and_the_part_is_told() -> None:
    result = result_of(with_hole(40, 46), 0, 100)
    assert result.energy_j is None
    assert result.mean_w is None
    assert result.covered_j == pytest.approx(940, rel=1e-9)
    assert result.reason == (
        "readings cover 94.0 % of the window (940 J in 94 of 100 s); at least 95 % are required"
    )


def test_failed_read_is_a_hole_not_zero_watts() -> None:
    times_s = np.arange(-1, 12, 0.1)
    values: list[float | None] = [10.0] * times_s.size
    values[50] = None
    result = result_of(trace_of(times_s, values), 0, 10)
    assert result.covered_s == pytest.approx(9.8, rel=1e-9)
    assert result.energy_j == pytest.approx(100, rel=1e-9)
    assert result.sample_count == 100


def test_trace_that_ends_inside_the_window_leaves_its_end_uncovered() -> None:
    times_s = np.arange(-1, 9.65, 0.1)
    result = result_of(trace_of(times_s, np.full(times_s.shape, 4.0)), 0, 10)
    assert result.coverage == pytest.approx(0.96, rel=1e-9)


def test_no_reading_at_all_has_a_reason() -> None:
    result = result_of(trace_of([], []), 0, 10)
    assert result.energy_j is None
    assert result.reason == "no reading covers the window"
    assert result.evidence is Evidence.NONE
    assert result.sample_count == 0


@pytest.mark.parametrize(
    ("channel", "expected_j"), [(Channel.LOWER_W, 5.0 * 100), (Channel.UPPER_W, 25 * 50 + 20 * 50)]
)
def test_bound_takes_the_wider_value_where_the_state_changed(
    channel: Channel, expected_j: float
) -> None:
    values = [5.0, 5.0, 5.0, 5.0] if channel is Channel.LOWER_W else [25.0, 25.0, 20.0, 20.0]
    trace = trace_of([-50, 0, 50, 100], values, channel=channel)
    result = result_of(trace, 0, 100, period_s=50)
    assert result.energy_j == pytest.approx(expected_j, rel=1e-9)


def test_upper_bound_fills_a_hole_at_its_highest() -> None:
    times_s = np.arange(-1, 102, 1.0)
    watts = np.where(times_s < 50, 25.0, 20.0)
    kept = (times_s <= 90) | (times_s >= 94)
    trace = trace_of(times_s[kept], watts[kept], channel=Channel.UPPER_W)
    result = result_of(trace, 0, 100, period_s=1)
    assert result.coverage == pytest.approx(0.96, rel=1e-9)
    assert result.energy_j == pytest.approx(25 * 50 + 20 * 46 + 25 * 4, rel=1e-9)


def test_lower_bound_fills_a_hole_at_its_lowest() -> None:
    times_s = np.arange(-1, 102, 1.0)
    watts = np.where(times_s < 50, 3.0, 5.0)
    kept = (times_s <= 90) | (times_s >= 94)
    trace = trace_of(times_s[kept], watts[kept], channel=Channel.LOWER_W)
    result = result_of(trace, 0, 100, period_s=1)
    assert result.energy_j == pytest.approx(3 * 50 + 5 * 46 + 3 * 4, rel=1e-9)
