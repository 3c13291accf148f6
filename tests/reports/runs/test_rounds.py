"""The rounds of random writes: from two tables, on disk and in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.records import Scenario, make_run, write_made_run
from wattload.core.units import NS_PER_S
from wattload.reports.runs.load import load_runs
from wattload.reports.runs.rounds import merged, rounds_of

Rows = dict[str, NDArray[Any]]


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
    by_round = rows([60.0] * 5, [30_000, 29_600, 30_400, 30_000, 30_000])
    found = rounds_of(by_round, seconds)
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
    assert merged(found, 7) is found


def test_rows_with_a_gap_between_them_are_refused() -> None:
    broken = rows([60.0] * 5, [1] * 5)
    broken["start_ns"][2] += 1
    with pytest.raises(ValueError, match="do not follow each other"):
        rounds_of(broken, rows([1.0] * 300, [1] * 300))


def test_nothing_written_has_no_rounds() -> None:
    assert rounds_of(rows([], []), rows([], [])) is None


def written_run(folder: Path, **changes: Rows) -> Path:
    record, traces = make_run(Scenario())
    tables = {"rounds": rows([60.0] * 5, [600] * 5), "seconds": rows([1.0] * 300, [10] * 300)}
    return write_made_run(
        folder / "run",
        record,
        {**traces, **{name: pa.table(own) for name, own in (tables | changes).items()}},
    )


def test_the_tables_of_a_run_are_read_with_its_traces(tmp_path: Path) -> None:
    (run,) = load_runs([written_run(tmp_path)])
    assert run.traces.rounds is not None
    assert run.traces.rounds.written_bytes.tolist() == [600] * 5
    assert not run.traces.notes


def test_a_table_that_can_not_be_drawn_is_a_note(tmp_path: Path) -> None:
    broken = rows([60.0] * 5, [600] * 5)
    broken["end_ns"][1] -= 5
    (run,) = load_runs([written_run(tmp_path, rounds=broken)])
    assert run.traces.rounds is None
    assert "do not follow each other in time" in run.traces.notes[0]


def test_a_table_with_other_columns_is_not_of_random_writes(tmp_path: Path) -> None:
    other = rows([60.0] * 5, [600] * 5)
    del other["p99_s"]
    (run,) = load_runs([written_run(tmp_path, rounds=other)])
    assert run.traces.rounds is None
    assert not run.traces.notes
