"""Units of work of a run, and the rate within one of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.records import Scenario, make_run
from tests.reports.sessions import EMPTY
from wattload.reports.runs.load import Run
from wattload.reports.runs.phases import Phase, phases_of
from wattload.reports.runs.timeline import ends_of_spans, make_timeline, rates_within, units_of
from wattload.reports.runs.traces import Categories, ThroughputTrace

RECORD, _ = make_run(Scenario(run_id="run-a", workload="checkpoint", seconds=4.0))
BIN_S = 0.1


def phase(*intervals_s: tuple[float, float]) -> Phase:
    found = next(each for each in phases_of(RECORD) if each.name == "write")
    return replace(found, intervals_s=intervals_s)


def traced(time_s: list[float], written_bytes: list[float]) -> Run:
    """Return a run with this trace of its phase ``write``; times on the common clock."""
    zeros = np.zeros(len(time_s), dtype=np.int64)
    first_ns = RECORD.joined_windows[0].start_ns
    trace = ThroughputTrace(
        time_ns=np.array([first_ns + round(each * 1e9) for each in time_s], dtype=np.int64),
        host=Categories((RECORD.windows[0].host,), zeros),
        phase=Categories(("write",), zeros),
        read_bytes=zeros,
        written_bytes=np.array(written_bytes).astype(np.int64),
    )
    return Run(record=RECORD, traces=replace(EMPTY, throughput=trace))


def test_units_have_as_many_intervals_of_each_phase() -> None:
    once, twice = phase((0, 1), (4, 5)), phase((1, 2), (2, 3), (5, 6), (6, 7))
    units = units_of([once, twice], 2)
    assert [ends_of_spans(each) for each in units] == [(0, 3), (4, 7)]
    assert len(units_of([once, twice], 3)) == 1  # 2 intervals are no 3 units
    assert units_of([once], 0.5) == [[(once, once.intervals_s)]]


def test_a_save_of_half_a_second_has_its_real_rate() -> None:
    """It is 2 GB/s in each of 20 saves that take 0.55 s, whatever bins of the trace they begin in.

    Means over a second would be 1.1 GB/s.
    """
    starts = [0.97 * index for index in range(20)]
    own = phase(*((start, start + 0.55) for start in starts))
    times = np.arange(0, 20, BIN_S)
    moved = [
        2e9 * sum(max(min(at + BIN_S, end) - max(at, start), 0) for start, end in own.intervals_s)
        for at in times
    ]
    kept = [(at, each) for at, each in zip(times, moved, strict=True) if each > 0]
    run = traced(*map(list, zip(*kept, strict=True)))
    for unit in units_of([own], 20):
        found = rates_within(run, unit, 100)
        assert found is not None
        edges_s, rates = found
        assert (edges_s[0], edges_s[-1]) == ends_of_spans(unit)
        assert rates.mean() == pytest.approx(2e9, rel=0.02)
        assert rates.max() < 2.5e9


@given(st.lists(st.integers(0, 5_000_000), min_size=1, max_size=60), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_the_area_under_a_unit_is_the_bytes_of_it(counts: list[int], bins: int) -> None:
    times = [0.03 + BIN_S * index for index in range(len(counts))]
    own = phase((0.0, times[-1] + BIN_S))
    found = rates_within(
        traced(times, [float(each) for each in counts]), [(own, own.intervals_s)], bins
    )
    if found is None:
        assert not any(counts)
        return
    edges_s, rates = found
    assert rates.size <= bins
    assert (rates * np.diff(edges_s)).sum() == pytest.approx(sum(counts))


def test_a_pause_within_a_unit_is_a_gap_and_a_wait_for_a_batch_is_none() -> None:
    own = phase((0.0, 1.0), (2.0, 3.0))
    found = rates_within(traced([0.9, 2.9], [1e6, 1e6]), [(own, own.intervals_s)], 30)
    assert found is not None
    assert found[1].tolist() == pytest.approx([1e6] * 10 + [0.0] * 10 + [1e6] * 10, abs=1.0)


def test_an_interval_without_a_count_moved_nothing() -> None:
    own = phase((0.0, 1.0), (2.0, 3.0))
    found = rates_within(traced([0.9], [1e6]), [(own, own.intervals_s)], 30)
    assert found is not None
    assert found[1].tolist() == pytest.approx([1e6] * 10 + [0.0] * 20, abs=1.0)
    assert rates_within(traced([5.0], [1e6]), [(own, own.intervals_s)], 30) is None


def test_bytes_before_the_first_count_are_spread_from_the_start_of_their_phase() -> None:
    first = next(each for each in phases_of(RECORD) if each.name == "write")
    late = traced([first.start_s + 0.9], [1e9])
    (line,) = [each for each in make_timeline(late).rates if each.role == "write"]
    inside = (line.time_s > first.start_s - 1e-6) & (line.time_s < first.start_s + 0.85)
    assert line.value[inside].tolist() == pytest.approx([1e9] * 9)
