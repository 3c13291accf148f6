from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.records import Scenario, cluster_of, make_cluster, write_made_run, write_run
from tests.reports.conftest import one
from wattload.core.errors import RecordError
from wattload.core.record.clocks import CommonClock
from wattload.core.record.file import RECORD_FILE, read_record, write_record
from wattload.core.record.phase import TraceFile
from wattload.core.record.run import Comparison
from wattload.reports.runs.load import find_records, load_runs
from wattload.reports.runs.traces import read_traces

SHORT = Scenario(run_id="run-short", seconds=1.0)


def test_a_run_is_named_by_folder_record_or_folder_of_runs(tmp_path: Path) -> None:
    folder = write_run(tmp_path, SHORT)
    for path in (folder, folder / RECORD_FILE, tmp_path):
        assert find_records([path]).files == [folder / RECORD_FILE]


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="no-such-run does not exist"):
        load_runs([tmp_path / "no-such-run"])


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=f"{tmp_path.name} contains no record.json"):
        load_runs([tmp_path])


@pytest.mark.parametrize("keep", [0, 1, 100, -2])
def test_a_record_cut_short_is_one_sentence(tmp_path: Path, keep: int) -> None:
    file = write_run(tmp_path, SHORT) / RECORD_FILE
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(RecordError, match="can't be read as a record") as caught:
        load_runs([tmp_path])
    assert str(file) in str(caught.value)


def test_a_record_with_a_field_of_the_wrong_type_names_it(tmp_path: Path) -> None:
    file = write_run(tmp_path, SHORT) / RECORD_FILE
    document = json.loads(file.read_text())
    document["spans"][0]["cpu_s"] = "long"
    file.write_text(json.dumps(document))
    with pytest.raises(RecordError, match=r"spans\.0\.cpu_s"):
        load_runs([tmp_path])


def test_a_record_with_half_a_character_is_refused(tmp_path: Path) -> None:
    file = write_run(tmp_path, SHORT) / RECORD_FILE
    document = json.loads(file.read_text())
    document["config"]["note"] = "\ud800"
    file.write_text(json.dumps(document))
    with pytest.raises(RecordError, match="can't be read as a record"):
        load_runs([tmp_path])


def test_two_runs_with_one_id_are_refused(tmp_path: Path) -> None:
    folder = write_run(tmp_path, SHORT)
    shutil.copytree(folder, tmp_path / "again")
    with pytest.raises(RecordError, match="is a second record of the run run-short"):
        load_runs([tmp_path])
    with pytest.raises(RecordError, match="is a second record of the run run-short"):
        load_runs([folder, folder])


def test_traces_come_back_as_written(tmp_path: Path) -> None:
    run = one(tmp_path, Scenario(run_id="run-a", seconds=2.0, power="measured", virtual=False))
    trace = run.traces.throughput
    assert trace is not None
    assert trace.read_bytes.sum() + trace.written_bytes.sum() == sum(
        window.read_bytes + window.written_bytes for window in run.record.windows
    )
    assert run.traces.power is not None
    assert [(s.source, s.channel.value) for s in run.traces.power.signals] == [
        ("block", "read_bytes"),
        ("block", "written_bytes"),
        ("meter", "power_state"),
        ("meter", "power_w"),
    ]
    assert run.traces.notes == ()


def test_a_missing_trace_is_a_note_and_no_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, SHORT)
    (folder / "throughput.parquet").unlink()
    (run,) = load_runs([folder])
    assert run.traces.throughput is None
    assert run.traces.notes == (
        "The throughput trace throughput.parquet is missing from the run's folder.",
    )
    assert run.traces.power is not None


def test_a_record_that_names_no_trace_says_so(tmp_path: Path) -> None:
    traces = read_traces(tmp_path, (), str, clock=CommonClock({}))
    assert traces.notes == (
        "The record has no throughput trace.",
        "The record has no power trace.",
    )


def test_a_corrupt_trace_is_a_note_and_no_error(tmp_path: Path) -> None:
    folder = write_run(tmp_path, SHORT)
    file = folder / "power.parquet"
    file.write_bytes(file.read_bytes()[:200])
    (run,) = load_runs([folder])
    assert run.traces.power is None
    assert "can't be read" in run.traces.notes[0]


@pytest.mark.parametrize("place", ["../throughput.parquet", "/etc/hostname", "sub/power.parquet"])
def test_a_trace_outside_the_runs_folder_is_not_opened(tmp_path: Path, place: str) -> None:
    file = TraceFile(name="throughput", file=place, sha256="0", rows=1, columns=())
    traces = read_traces(tmp_path, (file,), str, clock=CommonClock({}))
    assert "outside the run's folder" in traces.notes[0]
    assert traces.digests == {}


def _note(folder: Path, table: pa.Table) -> str:
    file = folder / "throughput.parquet"
    pq.write_table(table, file)
    named = TraceFile(name="throughput", file=file.name, sha256="0", rows=1, columns=())
    return read_traces(folder, (named,), str, clock=CommonClock({})).notes[0]


def test_a_trace_without_its_columns_or_with_nulls_is_a_note(tmp_path: Path) -> None:
    good = pq.read_table(write_run(tmp_path, SHORT) / "throughput.parquet")
    assert "missing columns: rank" in _note(tmp_path, good.drop_columns(["rank"]))
    nulls = pa.nulls(good.num_rows, pa.int64())
    holed = good.set_column(good.schema.get_field_index("read_bytes"), "read_bytes", nulls)
    assert "is null" in _note(tmp_path, holed)


def test_a_trace_that_spans_months_is_not_laid_out_in_memory(tmp_path: Path) -> None:
    good = pq.read_table(write_run(tmp_path, SHORT) / "throughput.parquet")
    times = pa.array([0] * (good.num_rows - 1) + [2**62], pa.int64())
    assert "30 days" in _note(tmp_path, good.set_column(0, "time_ns", times))


def test_hosts_that_booted_months_apart_have_traces_on_one_clock(tmp_path: Path) -> None:
    first, second = cluster_of("ada", "bob", power="measured", seconds=1.0)
    record, traces = make_cluster([first, replace(second, boot_ns=10**17)])
    (run,) = load_runs([write_made_run(tmp_path / "run", record, traces)])
    assert run.traces.notes == ()
    assert run.traces.throughput is not None
    assert run.traces.throughput.time_ns.max() > 10**17


def test_an_empty_trace_is_a_trace(tmp_path: Path) -> None:
    folder = write_run(tmp_path, SHORT)
    for name in ("throughput", "power"):
        file = folder / f"{name}.parquet"
        pq.write_table(pq.read_table(file).slice(0, 0), file)
    (run,) = load_runs([folder])
    assert run.traces.throughput is not None
    assert run.traces.throughput.time_ns.size == 0
    assert run.traces.power is not None
    assert run.traces.power.signals == ()


def test_a_trace_in_several_row_groups_is_one_trace(tmp_path: Path) -> None:
    run = one(tmp_path, SHORT)
    file = tmp_path / SHORT.run_id / "throughput.parquet"
    pq.write_table(pq.read_table(file), file, row_group_size=3)
    (again,) = load_runs([tmp_path])
    assert run.traces.throughput is not None
    assert again.traces.throughput is not None
    assert again.traces.throughput.phase.words == run.traces.throughput.phase.words
    assert (again.traces.throughput.phase.numbers == run.traces.throughput.phase.numbers).all()


def test_a_power_trace_of_many_batches_and_out_of_order_is_put_in_order(tmp_path: Path) -> None:
    folder = write_run(tmp_path, SHORT)
    file = folder / "power.parquet"
    short = pq.read_table(file)
    backwards = short.take(pa.array(range(short.num_rows - 1, -1, -1)))
    pq.write_table(backwards, file, row_group_size=7)
    (mixed,) = load_runs([folder])
    pq.write_table(short, file)
    (plain,) = load_runs([folder])
    assert mixed.traces.power is not None
    assert plain.traces.power is not None
    pairs = zip(mixed.traces.power.signals, plain.traces.power.signals, strict=True)
    for one_signal, other in pairs:
        assert (one_signal.source, one_signal.device) == (other.source, other.device)
        assert one_signal.time_ns.tolist() == other.time_ns.tolist()
        assert one_signal.value.tolist() == pytest.approx(other.value.tolist(), nan_ok=True)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"command": ("wattload", "run")},
        {"label": "B"},
        {"comparison": Comparison(session_id="s9", arm="B", block=7, order=15)},
    ],
)
def test_a_run_copied_under_another_id_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    folder = write_run(tmp_path, SHORT)
    copy = tmp_path / "run-other"
    shutil.copytree(folder, copy)
    record = read_record(folder).model_copy(update={"run_id": "run-other", **change})
    write_record(record, copy)
    with pytest.raises(RecordError) as caught:
        load_runs([tmp_path])
    assert str(caught.value).endswith(
        "run-short/record.json is a second record of the run in run-other under another id: both "
        "have the same start and phase times"
    )


@pytest.mark.parametrize("other", [{"host": "box2"}, {"order": 1}])
def test_runs_of_another_host_or_moment_are_two(tmp_path: Path, other: dict[str, Any]) -> None:
    write_run(tmp_path, SHORT)
    write_run(tmp_path, replace(SHORT, run_id="run-b", **other))
    assert len(load_runs([tmp_path])) == 2


def test_a_folder_that_cannot_be_listed_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Path) -> list[str]:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(
        RecordError, match=r"can't list .*: Permission denied; name a readable folder"
    ):
        load_runs([tmp_path])


def test_a_record_that_is_a_link_to_nowhere_is_not_left_out(tmp_path: Path) -> None:
    write_run(tmp_path, SHORT)
    (tmp_path / "run-x").mkdir()
    (tmp_path / "run-x" / RECORD_FILE).symlink_to("moved.json")
    with pytest.raises(RecordError, match=r"a link to moved\.json, which does not exist"):
        load_runs([tmp_path])
