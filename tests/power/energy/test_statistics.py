"""Peaks, percentile and histogram of power whose course is known in closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.power.energy_facts import facts
from tests.power.energy_traces import Bursts, Floats, boxcar, ns, trace_of
from wattload.core.power import Boxcar, Counter, Instant, Sensor
from wattload.core.record.energy import PowerStatistics, SensorRecord
from wattload.power.energy.edges import Edges
from wattload.power.energy.integration import Window
from wattload.power.energy.profile import profile_of
from wattload.power.energy.statistics import power_statistics

PHASE = [(ns(10), ns(70))]
TIMES_S = np.arange(0, 80, 0.1)


def response(window_s: float = 0.0, lag_s: float = 0.0, **changes: Any) -> SensorRecord:
    return SensorRecord(
        **{
            "basis": "declared",
            "tau_s": lag_s + window_s / 2,
            "tau_uncertainty_s": 0.02,
            "kappa_s": window_s / 8,
            "kappa_uncertainty_s": 0.0,
            "settle_s": lag_s + window_s,
            "update_s": 0.0,
            "noise_w": 0.1,
            **changes,
        }
    )


def statistics(
    times_s: Floats,
    values: Any,
    sensor: Sensor | None = None,
    own: SensorRecord | None = None,
    *,
    windows: list[Window] = PHASE,
) -> PowerStatistics:
    source = facts("meter", sensor=sensor, resolution_w=0.001)
    if own is None:
        window_s = sensor.window_s if isinstance(sensor, Boxcar) else 0.0
        own = response(window_s, tau_uncertainty_s=0.0)
    trace = trace_of(times_s, values, channel=source.figure_channel)
    profile = profile_of(trace, source.sensor, period_s=0.1)
    edges = Edges(profile, own, quantum_j=None, work=[])
    return power_statistics(profile, edges, source, windows)


def test_a_ramp_read_ten_times_a_second() -> None:
    """10 W + 1 W/s: power rises from 79 to 80 W in the last second of the phase."""
    made = statistics(TIMES_S, 10 + TIMES_S)
    assert made.reading_count == 601
    assert made.peak_1s_w == pytest.approx(79.5)
    assert made.p99_w == pytest.approx(79.4)  # 594 of 600 steps above 20 W
    assert made.bin_w == 2.0
    assert [each.lower_w for each in made.histogram] == [20.0 + 2 * at for at in range(31)]
    assert [each.count for each in made.histogram] == [20] * 30 + [1]
    assert made.missing["peak_100ms_w"] == "its readings resolve 1 s"
    few = statistics(TIMES_S, 10 + TIMES_S, windows=[(ns(10), ns(15))])
    assert few.missing["p99_w"] == "there are 51 readings; a 99th percentile needs 100"


@pytest.mark.parametrize(
    ("sensor", "own"),
    [(Boxcar(window_s=1.0), None), (Instant(), response(1.0, basis="calibrated"))],
    ids=["declared", "calibrated"],
)
def test_a_sliding_mean_shows_peaks_of_its_window_alone(
    sensor: Sensor, own: SensorRecord | None
) -> None:
    """Bursts of 0.5 s at 25 W over 5 W: a mean over 1 s reaches 15 W."""
    work = Bursts(low_w=5, high_w=25, on_s=0.5, cycle_s=4.0)
    made = statistics(TIMES_S, boxcar(work.energy_j, 1.0, TIMES_S), sensor, own)
    assert made.peak_1s_w == pytest.approx(15.0)
    assert made.missing["peak_100ms_w"].startswith("its readings resolve ")


def test_a_counter_shows_means_between_its_counts() -> None:
    """Bursts of 0.2 s at 45 W over 5 W: 45 W over 0.1 s, and 13 W over 1 s."""
    work = Bursts(low_w=5, high_w=45, on_s=0.2, cycle_s=4.0)
    made = statistics(TIMES_S, work.energy_j(TIMES_S), Counter(quantum_j=1e-6))
    assert made.peak_100ms_w == pytest.approx(45.0)
    assert made.peak_1s_w == pytest.approx(13.0)


@pytest.mark.parametrize(
    ("sensor", "resolution_s"),
    [(Counter(quantum_j=1e-3, update_period_s=0.1), 1.0), (Counter(quantum_j=3.0), 3.0)],
)
def test_a_coarse_counter_resolves_ten_of_its_steps(sensor: Counter, resolution_s: float) -> None:
    made = statistics(TIMES_S, 10 * TIMES_S, sensor)
    assert made.resolution_s == pytest.approx(resolution_s)
    assert made.p99_w == pytest.approx(10.0)
    assert (made.peak_1s_w is None) == (resolution_s > 1)
    assert made.peak_100ms_w is None


def test_readings_belong_to_the_time_that_they_depend_on() -> None:
    """A mean over 1 s that comes 1.5 s late: what it reads after the phase is of its end."""
    values = boxcar(lambda t: 5 * t + 95 * np.clip(t - 70, 0, None), 1.0, TIMES_S - 1.5)
    late = response(1.0, lag_s=1.5)
    assert statistics(TIMES_S, values, Boxcar(window_s=1.0), late).peak_1s_w == pytest.approx(5.0)
    values = boxcar(lambda t: 5 * t + 95 * np.clip(t - 68, 0, 1), 1.0, TIMES_S - 1.5)
    assert statistics(TIMES_S, values, Boxcar(window_s=1.0), late).peak_1s_w == pytest.approx(100)


def test_a_reading_that_may_be_of_the_time_before_is_not_of_the_phase() -> None:
    watts = np.where(TIMES_S < 10.15, 90.0, 20.0)
    sure = statistics(TIMES_S, watts)
    unsure = statistics(TIMES_S, watts, own=response(tau_uncertainty_s=0.2))
    assert sure.peak_1s_w == pytest.approx(30.5)
    assert unsure.peak_1s_w == pytest.approx(20.0)


def test_a_mean_with_a_long_hole_is_not_formed() -> None:
    """High power around a hole of 1 s is not taken for a second of high power."""
    watts: list[float | None] = [5.0] * TIMES_S.size
    watts[400:405] = watts[415:420] = [100.0] * 5
    watts[405:415] = [None] * 10
    assert statistics(TIMES_S, watts).peak_1s_w == pytest.approx(47.75)


@given(
    watts=st.lists(st.floats(0, 1e4), min_size=2, max_size=300),
    sensor=st.sampled_from([Instant(), Boxcar(window_s=0.1), Boxcar(window_s=1.0)]),
    step_s=st.floats(0.001, 2),
)
def test_figures_of_any_readings_agree(watts: list[float], sensor: Sensor, step_s: float) -> None:
    times_s = step_s * np.arange(len(watts), dtype=np.float64)
    made = statistics(times_s, watts, sensor, windows=[(ns(0), ns(float(times_s[-1])))])
    assert sum(each.count for each in made.histogram) == made.reading_count <= len(watts)
    assert len(made.histogram) <= 32
    highest_w = max(watts)
    for peak_w in (made.peak_100ms_w, made.peak_1s_w, made.p99_w):
        assert peak_w is None or peak_w <= highest_w * (1 + 1e-9) + 1e-6
    if made.peak_100ms_w is not None and made.peak_1s_w is not None:
        assert made.peak_100ms_w >= made.peak_1s_w
