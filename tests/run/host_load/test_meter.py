"""The level between readings: what of its quotas a load did."""

from __future__ import annotations

import pytest

from wattload.loaders.engine.load import LoadCounts
from wattload.run.host_load.meter import Peak, work_fraction

PEAK = Peak(traffic_bytes_per_s=200.0, copied_bytes_per_s=100.0, units_per_s=10.0)


def counts(copied: int, due_bytes: int, units: int, due_units: int) -> LoadCounts:
    return LoadCounts(
        time_ns=0, copied_bytes=copied, due_bytes=due_bytes, units=units, due_units=due_units
    )


@pytest.mark.parametrize(
    ("last", "fraction"),
    [
        (counts(150, 300, 10, 10), 2.5 / 4),  # 1.5 s of 3 s of copies, 1 s of 1 s of arithmetic
        (counts(150, 300, 0, 0), 0.5),
        (counts(0, 0, 4, 10), 0.4),
        (counts(0, 0, 0, 0), None),
    ],
)
def test_work_is_weighted_by_its_time_at_the_peak(last: LoadCounts, fraction: float | None) -> None:
    assert work_fraction(counts(0, 0, 0, 0), last, PEAK) == (
        fraction if fraction is None else pytest.approx(fraction)
    )
