from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.energy_traces import T0_NS
from wattload.core.power import Boxcar, Channel, Counter, Instant, Sensor
from wattload.power.energy.integration import WindowResult, integrate, window_curve
from wattload.power.energy.power_states import ENERGIES, DivisibleEnergy, shares
from wattload.power.energy.profile import Profile, profile_of
from wattload.power.energy.trace import ByteSeries, Trace, TraceKey

PERIOD_S = 0.5
SENSORS: tuple[Sensor, ...] = (
    Instant(),
    Boxcar(window_s=1.0, update_period_s=0.0),
    Boxcar(window_s=1.0, update_period_s=1.0),
    Boxcar(window_s=2.0, update_period_s=0.5),
    Counter(quantum_j=1e-9),
)


class Readings(NamedTuple):
    """Steps between reads in ns, and a value of each, None for a failed read."""

    steps_ns: list[int]
    values: list[float | None]


# Now and then a step of more than 3 s, which is a hole.
STEPS = st.one_of(
    st.integers(1_000_000, 900_000_000),
    st.integers(1_000_000, 900_000_000),
    st.integers(1_000_000, 6_000_000_000),
)
VALUES = st.one_of(st.floats(0.0, 500.0), st.floats(0.0, 500.0), st.none())


@st.composite
def readings(draw: st.DrawFn) -> Readings:
    steps = draw(st.lists(STEPS, min_size=2, max_size=40))
    values = draw(st.lists(VALUES, min_size=len(steps), max_size=len(steps)))
    return Readings(steps, values)


def trace_of(read: Readings, sensor: Sensor, shift_ns: int = 0) -> Trace:
    values = np.array([np.nan if value is None else value for value in read.values])
    channel = Channel.POWER_W
    if isinstance(sensor, Counter):
        channel = Channel.ENERGY_J
        values = np.where(np.isnan(values), np.nan, np.nancumsum(values))
    times = T0_NS + shift_ns + np.cumsum(np.array(read.steps_ns, dtype=np.int64))
    return Trace(
        key=TraceKey("meter", "SERIAL1", channel),
        time_ns=times,
        spread_ns=np.zeros_like(times),
        value=values,
        evidence_rank=np.ones(times.size, dtype=np.int8),
    )


def window_of(trace: Trace, fractions: tuple[float, float]) -> tuple[int, int]:
    """Return a window that lies anywhere in the trace or up to a tenth beyond it."""
    first, last = int(trace.time_ns[0]), int(trace.time_ns[-1])
    length = last - first + 1_000_000_000
    low, high = sorted(fractions)
    return first + int((low * 1.2 - 0.1) * length), first + int((high * 1.2 - 0.1) * length)


def result_of(trace: Trace, sensor: Sensor, window: tuple[int, int]) -> WindowResult:
    return integrate(trace, sensor, *window, period_s=PERIOD_S)


fractions = st.tuples(st.floats(0, 1), st.floats(0, 1))
sensors = st.sampled_from(SENSORS)


@given(readings(), fractions, st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_covered_energy_adds_up_over_a_split_window(
    read: Readings, ends: tuple[float, float], split: float
) -> None:
    sensor = Instant()
    trace = trace_of(read, sensor)
    start_ns, end_ns = window_of(trace, ends)
    middle_ns = start_ns + int(split * (end_ns - start_ns))
    whole = result_of(trace, sensor, (start_ns, end_ns))
    left = result_of(trace, sensor, (start_ns, middle_ns))
    right = result_of(trace, sensor, (middle_ns, end_ns))
    assert left.covered_s + right.covered_s == pytest.approx(whole.covered_s, abs=1e-9)
    assert left.covered_j + right.covered_j == pytest.approx(whole.covered_j, rel=1e-9, abs=1e-6)


@given(readings(), sensors, fractions, st.integers(-(10**15), 10**15))
@settings(max_examples=60, deadline=None)
def test_shift_of_all_times_changes_nothing(
    read: Readings, sensor: Sensor, ends: tuple[float, float], shift_ns: int
) -> None:
    if isinstance(sensor, Boxcar) and sensor.update_period_s:
        # The phase is a time too: shift by whole update periods.
        shift_ns -= shift_ns % round(sensor.update_period_s * 1e9)
    trace = trace_of(read, sensor)
    window = window_of(trace, ends)
    moved = (window[0] + shift_ns, window[1] + shift_ns)
    assert result_of(trace_of(read, sensor, shift_ns), sensor, moved) == result_of(
        trace, sensor, window
    )


@given(readings(), sensors, fractions)
@settings(max_examples=60, deadline=None)
def test_energy_lies_between_least_and_greatest_power(
    read: Readings, sensor: Sensor, ends: tuple[float, float]
) -> None:
    trace = trace_of(read, sensor)
    window = window_of(trace, ends)
    result = result_of(trace, sensor, window)
    assert 0 <= result.coverage <= 1
    assert (result.energy_j is None) == (result.reason is not None)
    if result.mean_w is None:
        return
    least_w, greatest_w = extremes_w(profile_of(trace, sensor, period_s=PERIOD_S), window)
    assert least_w - 1e-6 <= result.mean_w <= greatest_w + 1e-6


def extremes_w(profile: Profile, window: tuple[int, int]) -> tuple[float, float]:
    """Return the range of power in the window."""
    extremes = profile.range_w(*window)
    assert extremes is not None
    return extremes


@given(
    readings(), sensors, fractions, st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=40)
)
@settings(max_examples=60, deadline=None)
def test_shares_sum_to_the_totals(
    read: Readings,
    sensor: Sensor,
    ends: tuple[float, float],
    states: list[int | None],
) -> None:
    trace = trace_of(read, sensor)
    start_ns, end_ns = window_of(trace, ends)
    if start_ns == end_ns:
        return
    state_times = trace.time_ns - 123_456_789
    observed = Trace(
        key=TraceKey("drive", "SERIAL1", Channel.POWER_STATE),
        time_ns=state_times,
        spread_ns=np.zeros_like(state_times),
        value=np.array([np.nan if k is None else k for k in states[: state_times.size]]),
        evidence_rank=np.ones(state_times.size, dtype=np.int8),
    )
    curve = window_curve(
        profile_of(trace, sensor, period_s=PERIOD_S), trace.key.channel, start_ns, end_ns
    )
    moved = ByteSeries(
        time_ns=np.array([start_ns, end_ns]), moved_bytes=np.array([0.0, 1_234_567.0])
    )
    parts = shares(
        observed,
        dict.fromkeys(ENERGIES, DivisibleEnergy(curve=curve)),
        start_ns,
        end_ns,
        period_s=PERIOD_S,
        traffic=moved,
    )
    total_j = float(curve.energy_j(np.array([end_ns]))[0])
    assert sum(part.seconds for part in parts) == pytest.approx((end_ns - start_ns) / 1e9)
    assert sum(part.moved_bytes or 0 for part in parts) == 1_234_567
    assert sum(part.energy_j or 0.0 for part in parts) == pytest.approx(total_j, rel=1e-9, abs=1e-9)
