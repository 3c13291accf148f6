from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.context import directory_target
from wattload.core.io import TRACE_DTYPE, IOKind, TracedFile, TracedOperations
from wattload.reports.runs.traces import OPERATION_COLUMNS, read_traces
from wattload.run.traces import operation_rows, write_operations


def _traced(*paths: Path) -> TracedOperations:
    rows = np.zeros(len(paths), dtype=TRACE_DTYPE)
    rows["submit_ns"] = np.arange(len(paths)) + 7
    rows["offset_bytes"] = 4096
    rows["latency_ns"] = 11
    rows["file"] = np.arange(len(paths))
    files = tuple(TracedFile(path, 8192) for path in paths)
    return TracedOperations(phase="read", kind=IOKind.READ, rows=rows, files=files)


def test_a_file_is_named_from_the_target_it_lies_in(tmp_path: Path) -> None:
    targets = [directory_target(tmp_path / name) for name in ("one", "two")]
    traced = _traced(tmp_path / "two" / "d" / "f", tmp_path / "one" / "g")
    rows = operation_rows([traced], targets, host="box", rank=3)
    assert rows == [
        (7, "box", 3, "read", "read", 1, "d/f", 8192, 4096, 11),
        (8, "box", 3, "read", "read", 0, "g", 8192, 4096, 11),
    ]


def test_a_file_next_to_every_target_keeps_its_name_alone(tmp_path: Path) -> None:
    rows = operation_rows(
        [_traced(Path("/other/f"))], [directory_target(tmp_path)], host="box", rank=0
    )
    assert rows[0][5:7] == (0, "f")


def test_the_trace_that_a_run_writes_is_the_one_that_the_report_reads(tmp_path: Path) -> None:
    rows = operation_rows(
        [_traced(tmp_path / "f")], [directory_target(tmp_path)], host="box", rank=0
    )
    named = write_operations(tmp_path, rows)
    assert (named.name, named.rows, named.columns) == ("operations", 1, OPERATION_COLUMNS)
    trace = read_traces(tmp_path, (named,), str).operations
    assert trace is not None
    assert (trace.time_ns.tolist(), trace.offset_bytes.tolist()) == ([7], [4096])
    assert (trace.file.words, trace.kind.words, trace.phase.words) == (("f",), ("read",), ("read",))


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_damaged_trace_of_operations_is_noted_even_where_they_are_not_drawn(
    tmp_path: Path, is_wanted: bool
) -> None:
    rows = operation_rows(
        [_traced(tmp_path / "f")], [directory_target(tmp_path)], host="box", rank=0
    )
    named = write_operations(tmp_path, rows)
    file = tmp_path / named.file
    file.write_bytes(file.read_bytes()[:-20])
    notes = read_traces(tmp_path, (named,), str, operations=is_wanted).notes
    assert any(
        note.startswith("The operations trace operations.parquet can't be") for note in notes
    )
