"""What a damaged file does to the verdict on its run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.records import Scenario, write_run
from tests.reports.conftest import one
from wattload.core.checks.evaluation import evaluate
from wattload.core.record.file import read_record, write_record
from wattload.reports.runs.load import Run, load_runs
from wattload.reports.runs.validity import checks_of_files
from wattload.reports.stats.subject import make_subject

MEASURED = Scenario(
    run_id="run-a", workload="checkpoint", seconds=4.0, power="measured", virtual=False, ranks=2
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return one(tmp_path_factory.mktemp("closure"), MEASURED)


def failed(run: Run) -> set[str]:
    checks = (*evaluate(run.record), *checks_of_files(run))
    return {check.name for check in checks if check.verdict == "fail"}


def test_an_untouched_run_is_valid(run: Run) -> None:
    assert failed(run) == set()
    assert make_subject([run]).faults(run) == ()


def altered(run: Run, **changes: object) -> Run:
    return replace(run, record=run.record.model_copy(update=changes))


def test_an_altered_trace_file_is_found(tmp_path: Path) -> None:
    folder = write_run(tmp_path, MEASURED)
    other = write_run(tmp_path / "other", replace(MEASURED, seed=9))
    (folder / "power.parquet").write_bytes((other / "power.parquet").read_bytes())
    (run,) = load_runs([folder])
    assert "trace_digest_power" in failed(run)


@pytest.mark.parametrize("named", [True, False])
def test_a_run_without_its_traces_is_not_failed_and_gets_no_verdict(
    tmp_path: Path, named: bool
) -> None:
    folder = write_run(tmp_path, MEASURED)
    for name in ("power", "throughput"):
        (folder / f"{name}.parquet").unlink()
    if not named:
        write_record(read_record(folder).model_copy(update={"traces": ()}), folder)
    (run,) = load_runs([folder])
    assert failed(run) == set()
    subject = make_subject([run])
    (fault,) = subject.faults(run)
    assert fault.startswith("the mandatory check trace_digest_throughput is missing")
    (fault,) = subject.energy_faults(run)
    assert fault.startswith("the check trace_digest_power was not checked")


def test_traces_swapped_between_two_runs_fail_in_both(tmp_path: Path) -> None:
    first = write_run(tmp_path, MEASURED)
    second = write_run(tmp_path, replace(MEASURED, run_id="run-b", order=1, seed=9))
    (first / "throughput.parquet").rename(tmp_path / "held")
    (second / "throughput.parquet").rename(first / "throughput.parquet")
    (tmp_path / "held").rename(second / "throughput.parquet")
    for run in load_runs([first, second]):
        assert "trace_digest_throughput" in failed(run)


def test_a_damaged_trace_is_named_as_the_reason(tmp_path: Path) -> None:
    folder = write_run(tmp_path, MEASURED)
    file = folder / "throughput.parquet"
    file.write_bytes(file.read_bytes()[:-20])
    subject = make_subject(load_runs([folder]))
    (fault,) = subject.faults(subject.runs[0])
    assert fault == (
        "its trace throughput.parquet was damaged or changed after the run: its digest differs."
    )
