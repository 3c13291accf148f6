"""What holds for the energies of any readings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.power.energy_traces import T0_NS, trace_of
from wattload.core.power import Boxcar, Channel, Counter, Instant, Sensor
from wattload.power.energy.power_states import shares
from wattload.power.energy.profile import fill_holes, profile_of
from wattload.power.energy.source_ledger import ENERGIES
from wattload.power.energy.trace import Times, Trace, Values

PERIOD_S = 0.5
SENSORS = st.sampled_from(
    [
        Instant(),
        Boxcar(window_s=1.0, update_period_s=0.0),
        Boxcar(window_s=2.0, update_period_s=0.5),
        Counter(quantum_j=1e-9),
    ]
)
# Now and then a step of more than 3 s, which is a hole.
STEPS_S = st.one_of(st.floats(0.001, 0.9), st.floats(0.001, 0.9), st.floats(0.001, 6.0))
READINGS = st.lists(
    st.tuples(STEPS_S, st.one_of(st.floats(0.0, 500.0), st.floats(0.0, 500.0), st.none())),
    min_size=2,
    max_size=40,
)
SHARES = st.tuples(st.floats(0, 1), st.floats(0, 1))
Readings = list[tuple[float, float | None]]


def read(readings: Readings, sensor: Sensor, shift_s: float = 0.0) -> Trace:
    times_s = np.cumsum([step_s for step_s, _ in readings]) + shift_s
    values = np.array([np.nan if value is None else value for _, value in readings])
    if isinstance(sensor, Counter):
        counts = np.where(np.isnan(values), np.nan, np.nancumsum(values))
        return trace_of(times_s, counts, channel=Channel.ENERGY_J)
    return trace_of(times_s, values)


def window_of(trace: Trace, shares_of: tuple[float, float]) -> tuple[int, int]:
    """Return a window that lies anywhere in the trace or up to a tenth beyond it."""
    first, last = int(trace.time_ns[0]), int(trace.time_ns[-1])
    length = last - first + 1_000_000_000
    low, high = sorted(shares_of)
    return first + int((low * 1.2 - 0.1) * length), first + int((high * 1.2 - 0.1) * length)


@settings(max_examples=40)
@given(READINGS, SENSORS, SHARES, st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=40))
def test_shares_sum_to_the_totals(
    readings: Readings, sensor: Sensor, ends: tuple[float, float], states: list[int | None]
) -> None:
    trace = read(readings, sensor)
    start_ns, end_ns = window_of(trace, ends)
    if start_ns == end_ns:
        return
    observed = trace_of(
        (trace.time_ns - T0_NS) / 1e9 - 0.123,
        [None if each is None else float(each) for each in states[: trace.time_ns.size]],
        channel=Channel.POWER_STATE,
    )
    whole = fill_holes(profile_of(trace, sensor, period_s=PERIOD_S))

    def energy_j(time_ns: Times) -> Values:
        return whole.cumulative(time_ns)[0]

    def moved_bytes(time_ns: Times) -> Values:
        return np.rint(np.interp(time_ns, (start_ns, end_ns), (0, 1_234_567)))

    totals = dict.fromkeys(ENERGIES, (energy_j, "")) | {"moved_bytes": (moved_bytes, "")}
    parts = shares(observed, totals, [(start_ns, end_ns)], period_s=PERIOD_S)
    total_j = float(np.diff(energy_j(np.array([start_ns, end_ns])))[0])
    assert sum(part.seconds for part in parts) == pytest.approx((end_ns - start_ns) / 1e9)
    assert sum(part.moved_bytes or 0 for part in parts) == 1_234_567
    assert sum(part.energy_j or 0.0 for part in parts) == pytest.approx(total_j, rel=1e-9, abs=1e-9)
