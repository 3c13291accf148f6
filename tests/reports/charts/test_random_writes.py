"""Charts of random writes against what the made-up drives did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.reports.random_writes import CAPACITY_BYTES, FRESH_SHARE, writes_run
from wattload.core.power import Channel
from wattload.reports.charts.random_writes import (
    WriteTrack,
    amplification,
    round_figures,
    write_figures,
    write_tracks,
)
from wattload.reports.charts.timeline import make_track
from wattload.reports.runs.traces import PowerTrace


def track(letter: str = "A", **changes: Any) -> WriteTrack:
    (found,) = write_tracks([make_track(letter, letter, writes_run(**changes))])
    return found


def test_amplification_is_that_of_the_drives_own_counts() -> None:
    found = track(amplification=3.6)
    values = amplification(found)
    assert values is not None
    written = found.edges_writes
    fresh, worn = written[1:] < FRESH_SHARE, written[:-1] > FRESH_SHARE + 0.02
    assert values[fresh] == pytest.approx(1.0, rel=0.01)
    assert values[worn] == pytest.approx(3.6, rel=0.01)


def test_counts_read_less_than_thrice_a_round_give_no_amplification() -> None:
    found = track()
    power = found.track.run.traces.power
    assert power is not None
    seldom = tuple(
        replace(each, time_ns=each.time_ns[::4], value=each.value[::4]) for each in power.signals
    )
    run = replace(
        found.track.run, traces=replace(found.track.run.traces, power=PowerTrace(signals=seldom))
    )
    assert amplification(replace(found, track=replace(found.track, run=run))) is None


def test_a_drive_without_a_count_of_media_bytes_has_no_amplification() -> None:
    found = track()
    power = found.track.run.traces.power
    assert power is not None
    kept = tuple(s for s in power.signals if s.channel is not Channel.MEDIA_WRITTEN_BYTES)
    run = replace(
        found.track.run, traces=replace(found.track.run.traces, power=PowerTrace(signals=kept))
    )
    lacking = replace(found, track=replace(found.track, run=run))
    assert amplification(lacking) is None
    names = [figure.name for figure in round_figures("w", "Writes", [lacking])]
    assert names == ["w-percentiles", "w-power", "w-temperature"]


def test_the_steady_window_is_the_records_on_both_axes() -> None:
    found = track()
    assert found.steady_s is not None
    assert found.steady_writes is not None
    assert found.steady_writes == pytest.approx((1.0, 1.25), abs=0.02)
    assert found.writes.range_bytes == CAPACITY_BYTES


def test_both_arms_are_on_one_axis_over_time_and_over_drive_writes() -> None:
    tracks = [track("A", rate=1.9e9), track("B", rate=1.3e9)]
    over_time, over_writes = write_figures("w", "Writes", tracks)
    for figure in (over_time, over_writes):
        assert figure.svg.count("<svg") == 2  # the picture and its area: one pair of axes
        assert 'data-name="A"' in figure.svg
        assert 'data-name="B"' in figure.svg
        assert figure.svg.count('opacity="1.0"') == 2  # both steady windows
    assert " h</text>" in over_time.svg
    assert "drive writes" in over_writes.svg


def test_a_run_that_is_not_steady_has_no_bar() -> None:
    over_time, _ = write_figures("w", "Writes", [track(is_steady=False)])
    assert 'opacity="1.0"' not in over_time.svg
    assert "Bars" not in over_time.caption


def test_power_and_temperature_are_means_of_rounds() -> None:
    found = track(watts=12.0)
    by_name = {each.name: each for each in round_figures("w", "Writes", [found])}
    watts = [float(cells[2].text) for cells in by_name["w-power"].table.rows]
    celsius = [float(cells[2].text) for cells in by_name["w-temperature"].table.rows]
    assert np.mean(watts) == pytest.approx(12.0, rel=0.02)
    assert np.mean(celsius) == pytest.approx(318 + 6 - 273.15, abs=0.3)


def test_runs_without_rounds_have_no_chart() -> None:
    run = writes_run()
    bare = replace(run, traces=replace(run.traces, rounds=None))
    assert write_tracks([make_track("A", "A", bare)]) == []
    assert write_figures("w", "Writes", []) == []
