"""Trace files of a run: tables of workloads, throughput, and single operations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.context import directory_target
from tests.damage import flip_bit
from tests.records import Scenario, make_run, write_made_run
from wattload.core.io import TRACE_DTYPE, IOKind, TracedFile, TracedOperations
from wattload.core.record.clocks import CommonClock
from wattload.core.record.file import read_record, write_record
from wattload.core.record.phase import TraceFile
from wattload.core.storage.targets import Target
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.traces import OPERATION_COLUMNS, read_traces
from wattload.reports.runs.validity import checks_of_files
from wattload.run.phases import BIN_NS, PhaseTraffic
from wattload.run.traces import RunTraces, placed_operations, read_throughput, write_named

ROUNDS = pa.table({"second": pa.array([0, 60]), "p99_s": pa.array([0.001, 0.002])})


def run_with(folder: Path, **changes: Any) -> tuple[Path, TraceFile]:
    """Write a run whose workload kept a table; return its folder and the table's file."""
    record, traces = make_run(Scenario(workload="checkpoint", virtual=False, **changes))
    place = write_made_run(folder / "run", record, traces)
    named = write_named(place, "rounds", ROUNDS)
    stored = read_record(place)
    write_record(stored.model_copy(update={"traces": (*stored.traces, named)}), place)
    return place, named


def verdict(run: Run) -> str:
    """Return the verdict on the digest of the table."""
    return next(c.verdict for c in checks_of_files(run) if c.name.endswith("rounds"))


def test_a_table_is_read_back_by_its_name(tmp_path: Path) -> None:
    place, named = run_with(tmp_path)
    assert (named.file, named.rows, named.columns) == ("rounds.parquet", 2, ("second", "p99_s"))
    assert pq.read_table(place / named.file).equals(ROUNDS)
    (run,) = load_runs([place])
    assert (verdict(run), run.traces.notes) == ("pass", ())


def test_a_changed_table_fails_the_check_of_its_digest(tmp_path: Path) -> None:
    place, named = run_with(tmp_path)
    pq.write_table(ROUNDS.slice(1), place / named.file)
    (run,) = load_runs([place])
    assert verdict(run) == "fail"


def test_a_damaged_table_fails_and_a_missing_one_is_noted(tmp_path: Path) -> None:
    place, named = run_with(tmp_path)
    flip_bit(place / named.file, 20, 3)
    (damaged,) = load_runs([place])
    assert verdict(damaged) == "fail"
    (place / named.file).unlink()
    (run,) = load_runs([place])
    assert verdict(run) == "not_checked"
    assert "rounds.parquet is missing" in run.traces.notes[0]


def test_a_table_outside_of_the_run_s_folder_is_not_read(tmp_path: Path) -> None:
    place, named = run_with(tmp_path)
    outside = named.model_copy(update={"file": "../rounds.parquet"})
    stored = read_record(place)
    write_record(stored.model_copy(update={"traces": (*stored.traces[:-1], outside)}), place)
    (run,) = load_runs([place])
    assert "is outside the run's folder" in run.traces.notes[0]


def test_two_runs_may_have_equal_tables(tmp_path: Path) -> None:
    one, _ = run_with(tmp_path / "one")
    other, _ = run_with(tmp_path / "two", run_id="other", seed=2, order=7)
    assert len(load_runs([one, other])) == 2


def _traffic(phase: str, bins: Sequence[int], rank: int = 0) -> PhaseTraffic:
    return PhaseTraffic(
        host="box",
        rank=rank,
        phase=phase,
        time_ns=BIN_NS * np.array(bins),
        read_bytes=np.array(bins),
        written_bytes=2 * np.array(bins),
    )


def test_throughput_is_read_back_by_rank_and_phase_in_order_of_time(tmp_path: Path) -> None:
    traffic = [
        _traffic("fill", range(40_000)),
        _traffic("write", [*range(39_990, 80_000)]),
        _traffic("fill", [5, 7], rank=1),
    ]
    with RunTraces(tmp_path) as written:
        written.add_throughput(traffic)
    named = written.files()[0]
    rows = pq.read_table(tmp_path / named.file)
    assert rows.num_rows == named.rows == 80_012
    times = rows.column("time_ns").to_numpy()
    assert (np.diff(times[:-2]) >= 0).all()
    assert rows.column("rank").to_pylist()[-2:] == [1, 1]
    found = read_throughput(tmp_path, [named])
    assert [(each.phase, each.rank) for each in found] == [("fill", 0), ("write", 0), ("fill", 1)]
    for each, other in zip(found, traffic, strict=True):
        assert (each.time_ns == other.time_ns).all()
        assert (each.read_bytes == other.read_bytes).all()
        assert (each.written_bytes == other.written_bytes).all()


def _traced(*paths: Path) -> TracedOperations:
    rows = np.zeros(len(paths), dtype=TRACE_DTYPE)
    rows["submit_ns"] = np.arange(len(paths)) + 7
    rows["offset_bytes"] = 4096
    rows["latency_ns"] = 11
    rows["file"] = np.arange(len(paths))
    files = tuple(TracedFile(path, 8192) for path in paths)
    return TracedOperations(phase="read", kind=IOKind.READ, rows=rows, files=files)


def write_operations(
    folder: Path, traced: TracedOperations, targets: Sequence[Target]
) -> TraceFile:
    """Write the operations of a rank; return the file."""
    with RunTraces(folder) as written:
        written.add_operations("box", 3, placed_operations([traced], targets))
    return written.files()[-1]


def test_a_file_is_named_from_the_target_it_lies_in(tmp_path: Path) -> None:
    targets = [directory_target(tmp_path / name) for name in ("one", "two")]
    traced = _traced(tmp_path / "two" / "d" / "f", tmp_path / "one" / "g")
    named = write_operations(tmp_path, traced, targets)
    rows = pq.read_table(tmp_path / named.file).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (7, "box", 3, "read", "read", 1, "d/f", 8192, 4096, 11),
        (8, "box", 3, "read", "read", 0, "g", 8192, 4096, 11),
    ]


def test_a_file_next_to_every_target_keeps_its_name_alone(tmp_path: Path) -> None:
    (placed,) = placed_operations([_traced(Path("/other/f"))], [directory_target(tmp_path)])
    assert placed.files == ((0, "f", 8192),)


def test_the_trace_that_a_run_writes_is_the_one_that_the_report_reads(tmp_path: Path) -> None:
    named = write_operations(tmp_path, _traced(tmp_path / "f"), [directory_target(tmp_path)])
    assert (named.name, named.rows, named.columns) == ("operations", 1, OPERATION_COLUMNS)
    trace = read_traces(tmp_path, (named,), str, clock=CommonClock({})).operations
    assert trace is not None
    assert (trace.time_ns.tolist(), trace.offset_bytes.tolist()) == ([7], [4096])
    assert (trace.file.words, trace.kind.words, trace.phase.words) == (("f",), ("read",), ("read",))


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_damaged_trace_of_operations_is_noted_even_where_they_are_not_drawn(
    tmp_path: Path, is_wanted: bool
) -> None:
    named = write_operations(tmp_path, _traced(tmp_path / "f"), [directory_target(tmp_path)])
    file = tmp_path / named.file
    file.write_bytes(file.read_bytes()[:-20])
    notes = read_traces(tmp_path, (named,), str, clock=CommonClock({}), operations=is_wanted).notes
    assert any(
        note.startswith("The operations trace operations.parquet can't be") for note in notes
    )
