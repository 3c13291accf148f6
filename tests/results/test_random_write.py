"""Random writes: facts, figures, rounds, charts, and how long the drive rested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.records import Scenario, make_run, write_made_run
from tests.reports.random_writes import CAPACITY_BYTES, FRESH_SHARE, writes_run
from wattload.core.power import Channel
from wattload.core.record.run import RunRecord
from wattload.core.units import NS_PER_S
from wattload.reports.charts.steps import step_lines_figure
from wattload.reports.runs.load import Run as LoadedRun
from wattload.reports.runs.load import load_runs
from wattload.results.random_write.charts import (
    Drawn,
    Traced,
    amplification,
    drawn_runs,
    rate_charts,
    round_charts,
    steady_writes,
)
from wattload.results.random_write.facts import WriteFacts
from wattload.results.random_write.rounds import merged, rounds_of
from wattload.results.reading import checks_of, metrics_of, run_of
from wattload.results.view import Readings, Shown, ShownRun

Rows = dict[str, NDArray[Any]]


def with_facts(record: RunRecord, **changes: Any) -> RunRecord:
    workload = record.workload
    return record.model_copy(
        update={"workload": workload.model_copy(update={"facts": {**workload.facts, **changes}})}
    )


def values(record: RunRecord) -> Mapping[str, float | None]:
    return {each.name: each.value for each in metrics_of(record)}


def heads(record: RunRecord) -> list[str]:
    return [each.name for each in metrics_of(record) if each.headline]


def test_rates_are_bytes_over_seconds_of_all_writes_and_of_the_steady_window() -> None:
    record = writes_run(rate=1e9).record
    whole, steady = record.windows
    found = values(record)
    assert found["write_bytes_per_s"] == pytest.approx(whole.written_bytes / whole.seconds)
    assert found["steady_write_bytes_per_s"] == steady.written_bytes / steady.seconds
    assert found["steady_write_iops"] == pytest.approx(1.02e9 / 16384)
    assert found["fresh_over_steady"] == pytest.approx(2.4 / 1.02)
    assert heads(record) == ["steady_write_bytes_per_s"]


def test_only_writes_of_each_block_fill() -> None:
    fill = writes_run(until="fill", draw="each_once").record
    assert values(fill)["fill_seconds"] == fill.windows[0].seconds
    assert heads(fill) == ["fill_seconds", "write_bytes_per_s"]
    assert heads(writes_run(until="fill").record) == ["write_bytes_per_s"]


def test_a_pass_has_its_own_bytes_and_seconds() -> None:
    ends = [(10.0, 100), (30.0, 140)]
    passes = [{"end_s": s, "written_bytes": b, "operations": b} for s, b in ends]
    found = values(with_facts(writes_run(until="fill").record, passes=passes))
    assert found["pass_1_write_bytes_per_s"] == 10
    assert found["pass_2_write_bytes_per_s"] == 2


def test_a_range_that_another_run_prepared_has_no_fresh_rate() -> None:
    assert values(writes_run(condition="keep").record)["fresh_over_steady"] is None


@pytest.mark.parametrize(
    ("rest_s", "verdict", "sentence"),
    [
        (60.0, "pass", "The random writes began 60 s after the range was last written."),
        (61.0, "warn", "the drive may have collected garbage meanwhile."),
        (None, "not_checked", "was not prepared by wattload"),
    ],
)
def test_a_rest_lets_a_drive_collect_garbage(
    rest_s: float | None, verdict: str, sentence: str
) -> None:
    found = checks_of(with_facts(writes_run().record, rest_s=rest_s))
    check = next(each for each in found if each.name == "preparation_rest")
    assert check.verdict == verdict
    assert sentence in check.sentence


def rows(seconds: list[float], written: list[int], p99: list[float] | None = None) -> Rows:
    """Return the columns of a table whose rows last so long and wrote so much."""
    edges = (np.cumsum([0.0, *seconds]) * NS_PER_S).astype(np.int64)
    p99_s = np.array(p99 or [0.002] * len(seconds))
    return {
        "start_ns": edges[:-1].copy(),
        "end_ns": edges[1:],
        "written_bytes": np.array(written, dtype=np.int64),
        "p50_s": p99_s / 4,
        "p99_s": p99_s,
        "p9999_s": p99_s * 4,
    }


def test_a_round_has_its_slowest_and_its_fastest_second() -> None:
    written = [500] * 300
    written[70], written[130] = 100, 900
    seconds = rows([1.0] * 300, written)
    found = rounds_of(rows([60.0] * 5, [30_000, 29_600, 30_400, 30_000, 30_000]), seconds)
    assert found is not None
    assert not found.are_seconds
    assert found.slowest.tolist() == [500, 100, 500, 500, 500]
    assert found.fastest.tolist() == [500, 500, 900, 500, 500]
    assert found.edges_bytes.tolist() == [0, 30_000, 59_600, 90_000, 120_000, 150_000]
    assert found.edges_s.tolist() == [0, 60, 120, 180, 240, 300]


def test_fewer_than_five_rounds_are_shown_by_seconds() -> None:
    found = rounds_of(rows([60.0, 30.0], [600, 300]), rows([1.0] * 90, [10] * 90))
    assert found is not None
    assert found.are_seconds
    assert found.written_bytes.tolist() == [10] * 90


def test_merged_rounds_keep_bytes_and_the_highest_percentile() -> None:
    found = rounds_of(
        rows([60.0] * 7, [60, 120, 180, 240, 300, 360, 420], [1, 5, 2, 3, 4, 9, 6]),
        rows([1.0] * 420, [1] * 420),
    )
    assert found is not None
    few = merged(found, 4)
    assert few.written_bytes.tolist() == [180, 420, 660, 420]
    assert few.percentiles_s["p99_s"].tolist() == [5, 3, 9, 6]
    assert few.edges_s.tolist() == [0, 120, 240, 360, 420]
    assert merged(found, 7).edges_s.tolist() == found.edges_s.tolist()


def test_nothing_written_has_no_rounds() -> None:
    assert rounds_of(rows([], []), rows([], [])) is None


def written_run(folder: Path, **changes: Rows) -> LoadedRun:
    record, traces = make_run(Scenario())
    workload = record.workload.model_copy(update={"name": "random_write", "facts": {}})
    tables = {"rounds": rows([60.0] * 5, [600] * 5), "seconds": rows([1.0] * 300, [10] * 300)}
    (run,) = load_runs(
        [
            write_made_run(
                folder / "run",
                record.model_copy(update={"workload": workload}),
                {**traces, **{name: pa.table(own) for name, own in (tables | changes).items()}},
            )
        ]
    )
    return run


def test_the_tables_of_a_run_are_read_with_its_traces(tmp_path: Path) -> None:
    run = written_run(tmp_path)
    assert run.traces.tables["rounds"]["written_bytes"].tolist() == [600] * 5
    assert not run.traces.notes


@pytest.mark.parametrize("change", [-5, -60 * NS_PER_S])
def test_a_table_with_a_gap_is_a_note(tmp_path: Path, change: int) -> None:
    broken = rows([60.0] * 5, [600] * 5)
    broken["end_ns"][1] += change
    run = written_run(tmp_path, rounds=broken)
    assert "rounds" not in run.traces.tables
    assert "do not follow each other in time" in run.traces.notes[0]


def readings_of(run: LoadedRun, channel: Channel) -> list[Readings]:
    assert run.traces.power is not None
    return [Readings(each.time_ns, each.value) for each in run.traces.power.of(channel)]


def traced(letter: str = "", **changes: Any) -> Traced:
    run = writes_run(**changes)
    found = run_of(run.record)
    assert found is not None
    shown: ShownRun[WriteFacts] = ShownRun(
        run.record, found.facts, lambda *_: None, lambda _: "measured"
    )
    return Traced(letter, letter or "all runs", shown, run.traces.tables, 0,
                  partial(readings_of, run))  # fmt: skip


def drawn(**changes: Any) -> Drawn:
    (found,) = drawn_runs(Shown((), (), [traced(**changes)]))
    return found


def test_amplification_is_that_of_the_drives_own_counts() -> None:
    found = drawn(amplification=3.6)
    amplified = amplification(found)
    assert amplified is not None
    written = found.rounds.edges_bytes / CAPACITY_BYTES
    fresh, worn = written[1:] < FRESH_SHARE, written[:-1] > FRESH_SHARE + 0.02
    assert amplified[fresh] == pytest.approx(1.0, rel=0.01)
    assert amplified[worn] == pytest.approx(3.6, rel=0.01)


def with_readings(found: Drawn, change: Any) -> Drawn:
    kept = found.traced.readings
    return replace(
        found, traced=replace(found.traced, readings=lambda channel: change(channel, kept(channel)))
    )


def test_counts_read_less_than_thrice_a_round_give_no_amplification() -> None:
    def seldom(_: Channel, own: Sequence[Readings]) -> list[Readings]:
        return [Readings(each.time_ns[::4], each.value[::4]) for each in own]

    assert amplification(with_readings(drawn(), seldom)) is None


def test_a_drive_without_a_count_of_media_bytes_has_no_amplification() -> None:
    lacking = with_readings(
        drawn(), lambda channel, own: [] if channel is Channel.MEDIA_WRITTEN_BYTES else own
    )
    assert amplification(lacking) is None
    named = {chart.name: step_lines_figure(chart) for chart in round_charts([lacking])}
    assert [name for name, figure in named.items() if figure is None] == ["amplification"]


def test_the_steady_window_is_the_records_on_both_axes() -> None:
    assert steady_writes(drawn()) == pytest.approx((1.0, 1.25), abs=0.02)
    assert drawn(is_steady=False).steady_s is None


def test_both_arms_are_on_one_axis_over_time_and_over_drive_writes() -> None:
    arms = [traced("A", rate=1.9e9), traced("B", rate=1.3e9)]
    figures = [step_lines_figure(chart) for chart in rate_charts(Shown((), (), arms))]
    for figure in figures:
        assert figure is not None
        assert figure.svg.count("<svg") == 2  # the picture and its area: one pair of axes
        assert 'data-name="A"' in figure.svg
        assert 'data-name="B"' in figure.svg
        assert figure.svg.count('opacity="1.0"') == 2  # both steady windows
    over_time, over_writes = figures
    assert over_time is not None
    assert over_writes is not None
    assert " h</text>" in over_time.svg
    assert "drive writes" in over_writes.svg


def test_power_and_temperature_are_means_of_rounds() -> None:
    charts = {chart.name: chart for chart in round_charts([drawn(watts=12.0)])}
    assert np.mean(charts["power"].lines[0].values) == pytest.approx(12.0, rel=0.02)
    celsius = charts["temperature"].lines[0].values
    assert np.mean(celsius) == pytest.approx(318 + 6 - 273.15, abs=0.3)
