"""A whole run by the command line, and what follows from its facts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.run.running import record_of, run_here
from wattload.core.record.run import RunRecord
from wattload.results.reading import judged, run_of

pytestmark = pytest.mark.slow

WORDS = (
    "workload=gnn",
    "scale=demo",
    "power=none",
    "loader=gpu_queue",
    "loader.requester=cpu",
    "accelerator.device=none",
    "workload.hidden=8",
    "workload.fanouts=[2,2,2]",
)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    folder = tmp_path_factory.mktemp("run")
    done = run_here(folder, *WORDS)
    assert done.returncode == 0, done.stderr
    return record_of(folder)


def verdicts(record: RunRecord) -> dict[str, str]:
    return {check.name: check.verdict for check in judged(record).checks}


def test_a_run_is_proved_by_its_counts(record: RunRecord) -> None:
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    for name in ("compared_rows", "row_counts", "stage_times", "data_path", "cold_cache"):
        assert found[name] == "pass", name
    run = run_of(record)
    assert run is not None
    (window,) = record.timed_windows()
    assert (window.name, window.operations) == ("gnn", run.facts.storage_rows)
    assert window.read_bytes == run.facts.storage_bytes
    assert run.facts.host_rows > 0
    (path,) = record.workload.paths
    assert (path.path_effective, path.initiator) == ("cpu_queue", "cpu")
    assert any("batches of 64 seeds" in remark for remark in record.workload.remarks)


def with_facts(record: RunRecord, **changes: Any) -> RunRecord:
    facts = {**record.workload.facts, **changes}
    workload = record.workload.model_copy(update={"facts": facts})
    return record.model_copy(update={"workload": workload})


@pytest.mark.parametrize(
    ("name", "check"),
    [("rows", "row_counts"), ("host_rows", "row_counts"), ("storage_bytes", "row_counts"),
     ("operations", "data_path")],
)  # fmt: skip
def test_counts_that_differ_fail(record: RunRecord, name: str, check: str) -> None:
    edited = with_facts(record, **{name: record.workload.facts[name] * 2 + 1})
    assert verdicts(edited)[check] == "fail"


def test_figures_are_computed_when_a_record_is_read(record: RunRecord) -> None:
    assert record.metrics == ()
    (rate,) = [each for each in judged(record).metrics if each.name == "rows_per_s"]
    half = with_facts(record, rows=record.workload.facts["rows"] // 2)
    (found,) = [each for each in judged(half).metrics if each.name == "rows_per_s"]
    assert found.value == pytest.approx((rate.value or 0) / 2, rel=1e-3)


def test_a_run_that_did_not_make_its_checks_gets_no_verdict(record: RunRecord) -> None:
    kept = tuple(check for check in record.checks if check.name != "cold_cache")
    found = {each.name: each for each in judged(record.model_copy(update={"checks": kept})).checks}
    assert (found["cold_cache"].verdict, found["cold_cache"].mandatory) == ("not_checked", True)
