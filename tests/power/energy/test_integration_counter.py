"""Energy of a window by a counter: wraps, resets, holes, and steps that are too coarse."""

from __future__ import annotations

import numpy as np
import pytest

from tests.power.energy_traces import Floats, integrate, ns, trace_of
from wattload.core.power import Channel, Counter
from wattload.power.energy.integration import WindowResult
from wattload.power.energy.profile import fall_count
from wattload.power.energy.trace import Trace

MILLIJOULE = Counter(quantum_j=0.001)
TIMES_S = np.round(np.arange(-20, 640) / 10, 6)
STEADY_J = 300 + 10 * TIMES_S
RESET_J = np.where(TIMES_S < 30.05, STEADY_J, 10 * (TIMES_S - 30.05))


def counter(joules: Floats, times_s: Floats = TIMES_S) -> Trace:
    return trace_of(times_s, joules, channel=Channel.ENERGY_J)


def result_of(
    trace: Trace,
    sensor: Counter = MILLIJOULE,
    start_s: float = 0,
    end_s: float = 60,
    resets_s: tuple[float, ...] = (),
) -> WindowResult:
    resets_ns = [ns(time_s) for time_s in resets_s]
    return integrate(trace, sensor, ns(start_s), ns(end_s), period_s=0.1, resets_ns=resets_ns)


def test_difference_of_a_counter_with_both_edges_interpolated() -> None:
    result = result_of(counter(STEADY_J), MILLIJOULE, 0.033, 60.077)
    assert result.energy_j == pytest.approx(10 * 60.044, rel=1e-9)
    assert result.coverage == pytest.approx(1, abs=1e-12)


def test_wrap_adds_the_range_once_per_fall() -> None:
    sensor, trace = Counter(quantum_j=0.001, wrap_j=65.5), counter(np.mod(STEADY_J, 65.5))
    assert np.count_nonzero(np.diff(trace.value) < 0) > 8
    assert result_of(trace, sensor).energy_j == pytest.approx(600, rel=1e-9)
    assert fall_count(trace, sensor) == 0


def test_counter_that_stands_still_has_not_wrapped() -> None:
    trace = counter(np.where(TIMES_S < 5.05, 10.0, 20.0))
    sensor = Counter(quantum_j=0.001, wrap_j=100)
    assert result_of(trace, sensor).energy_j == pytest.approx(10, rel=1e-9)


@pytest.mark.parametrize(
    ("joules", "wrap_j", "resets_s"),
    [
        (RESET_J, 262_144, (30.04,)),
        (STEADY_J, None, (30.04,)),
        (RESET_J, None, ()),
        # 10 kJ in a tenth of a second is more than any other power of the run.
        (np.where(TIMES_S < 30.05, 50_000 + 10 * TIMES_S, RESET_J), 60_000, ()),
    ],
    ids=["fall at a reset", "rise at a reset", "fall without a range", "impossible power"],
)
def test_reset_is_a_hole(joules: Floats, wrap_j: float | None, resets_s: tuple[float, ...]) -> None:
    sensor = Counter(quantum_j=0.001, wrap_j=wrap_j)
    result = result_of(counter(joules), sensor, resets_s=resets_s)
    assert result.coverage == pytest.approx(59.9 / 60, rel=1e-9)
    assert result.energy_j == pytest.approx(600, rel=1e-9)


@pytest.mark.parametrize("wrong_j", [-50.0, 0.0, 1e9, np.nan])
def test_one_wrong_or_failed_read_loses_nothing(wrong_j: float) -> None:
    joules = STEADY_J.copy()
    joules[300] = wrong_j
    result = result_of(counter(joules))
    assert result.energy_j == pytest.approx(600, rel=1e-9)
    assert result.coverage == pytest.approx(1, abs=1e-12)


def test_falls_are_counted() -> None:
    assert fall_count(counter(RESET_J), MILLIJOULE) == 1
    assert fall_count(trace_of([], [], channel=Channel.ENERGY_J), MILLIJOULE) == 0


def test_step_that_reaches_half_a_percent_is_refused() -> None:
    result = result_of(counter(STEADY_J), Counter(quantum_j=3.0))
    assert result.energy_j is None
    assert result.reason == (
        "the counter's step of 3 J is too coarse for 600 J; it must be under 0.5 % of the energy"
    )
    assert result_of(counter(STEADY_J), Counter(quantum_j=2.999)).energy_j is not None
    assert result_of(counter(np.full(TIMES_S.size, 5.0))).energy_j is None


@pytest.mark.parametrize("wrap_j", [None, 500.0])
@pytest.mark.parametrize("end_s", [60.0, 30.0])
def test_long_gap_is_a_hole_and_no_edge_is_interpolated_in_it(
    wrap_j: float | None, end_s: float
) -> None:
    kept = (TIMES_S <= 20) | (TIMES_S >= 40)
    joules = STEADY_J if wrap_j is None else np.mod(STEADY_J, wrap_j)
    sensor = Counter(quantum_j=0.001, wrap_j=wrap_j)
    result = result_of(counter(joules[kept], TIMES_S[kept]), sensor, end_s=end_s)
    assert result.coverage == pytest.approx(2 / 3, rel=1e-9)
    assert result.energy_j is None
