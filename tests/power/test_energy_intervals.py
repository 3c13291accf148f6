"""A phase that was entered several times: joules, seconds and bytes of its own intervals only."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.power.energy_facts import facts, window
from tests.power.energy_traces import ns
from wattload.core.power import Channel, Evidence, Sample
from wattload.core.record.energy import EnergyRecord
from wattload.power.account import build_energy_records
from wattload.power.traffic import ByteSeries

PERIOD_S = 0.1


def _samples(watts: Callable[[float], float], *, until_s: float = 20.0) -> list[Sample]:
    """Return a reading every 0.1 s, and power state 0 in the first ten seconds, then 1."""
    made = []
    for step in range(int(until_s / PERIOD_S) + 1):
        time_s = step * PERIOD_S
        for channel, value in (
            (Channel.POWER_W, watts(time_s)),
            (Channel.POWER_STATE, 0.0 if time_s < 10 else 1.0),
        ):
            made.append(
                Sample(
                    time_ns=ns(time_s),
                    spread_ns=0,
                    source="meter",
                    device="SERIAL1",
                    channel=channel,
                    value=value,
                    evidence=Evidence.MEASURED,
                )
            )
    return made


def _record(samples: list[Sample], *intervals: tuple[float, float]) -> EnergyRecord:
    whole = window("read", intervals[0][0], intervals[-1][1])
    phase = whole.model_copy(update={"intervals": tuple((ns(a), ns(b)) for a, b in intervals)})
    series = ByteSeries.from_bins(
        {ns(a): 1000 for a, _ in intervals},
        bin_ns=100_000_000,
        intervals=phase.intervals,
    )
    (record,) = build_energy_records(
        samples,
        [facts("meter", Evidence.MEASURED, accuracy_percent=1.0)],
        [phase],
        idle_window=(ns(0), ns(1)),
        host="host1",
        traffic={("read", "SERIAL1"): series},
    )
    return record


def test_the_pauses_between_intervals_cost_the_phase_nothing() -> None:
    busy = _samples(lambda s: 20.0 if 2 <= s <= 4 or 6 <= s <= 8 else 5.0)
    record = _record(busy, (2.0, 4.0), (6.0, 8.0))
    assert record.energy_j == pytest.approx(80.0, rel=1e-9)
    assert record.seconds == pytest.approx(4.0)
    assert record.mean_w == pytest.approx(20.0)
    assert record.net_j == pytest.approx(80.0 - 4 * 5.0)
    assert (record.start_ns, record.end_ns) == (ns(2.0), ns(8.0))
    assert record.chosen


def test_intervals_that_touch_are_worth_the_whole() -> None:
    ramp = _samples(lambda s: 3.0 + s)
    whole = _record(ramp, (2.0, 8.0))
    parts = _record(ramp, (2.0, 4.5), (4.5, 8.0))
    assert parts.energy_j == pytest.approx(whole.energy_j, rel=1e-9)
    assert parts.coverage == pytest.approx(1.0)


def test_states_and_bytes_sum_over_the_intervals() -> None:
    record = _record(_samples(lambda _: 10.0), (8.0, 9.0), (11.0, 14.0))
    shares = {share.state: share for share in record.states}
    assert shares["0"].seconds == pytest.approx(1.0)
    assert shares["1"].seconds == pytest.approx(3.0)
    assert sum(share.seconds for share in record.states) == pytest.approx(record.seconds)
    assert sum(share.moved_bytes or 0 for share in record.states) == 2000


def test_a_gain_error_is_the_same_in_every_interval() -> None:
    record = _record(_samples(lambda _: 10.0), (2.0, 4.0), (6.0, 8.0))
    assert record.uncertainty_parts_j["gain"] == pytest.approx(0.4)
    assert record.uncertainty_j is not None
    assert record.uncertainty_j >= record.uncertainty_parts_j["gain"]


def test_an_interval_without_samples_leaves_the_sum_missing_with_its_reason() -> None:
    record = _record(_samples(lambda _: 10.0, until_s=5.0), (2.0, 4.0), (16.0, 18.0))
    assert record.energy_j is None
    assert record.missing["energy_j"]
    assert record.coverage == pytest.approx(0.5)
