"""A whole run by the command line, and what is found out when its record is edited."""

from __future__ import annotations

from typing import Any

import pytest

from tests.run.running import record_of, run
from wattload.core.checks.evaluation import rechecked
from wattload.core.record.run import RunRecord

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
    done = run(folder, *WORDS)
    assert done.returncode == 0, done.stderr
    return record_of(folder)


def verdicts(record: RunRecord) -> dict[str, str]:
    return {check.name: check.verdict for check in rechecked(record).checks}


def with_details(record: RunRecord, **changes: Any) -> RunRecord:
    details = {**record.workload.details, **changes}
    workload = record.workload.model_copy(update={"details": details})
    return record.model_copy(update={"workload": workload})


def test_a_run_is_proved_by_its_counts(record: RunRecord) -> None:
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    for name in ("compared_rows", "row_counts", "stage_times", "data_path", "cold_cache",
                 "metrics_close", "details_close", "closure_read_bytes_per_s"):  # fmt: skip
        assert found[name] == "pass", name
    details = record.workload.details
    (window,) = record.timed_windows()
    assert (window.name, window.operations) == ("gnn", details["storage_rows"])
    assert window.read_bytes == details["storage_bytes"]
    assert details["host_rows"] > 0
    (path,) = record.workload.paths
    assert (path.path_effective, path.initiator) == ("cpu_queue", "cpu")
    assert any("batches of 64 seeds" in remark for remark in record.workload.remarks)


def test_edited_metrics_are_found_out(record: RunRecord) -> None:
    for edited in record.metrics:
        if edited.value is None:
            continue
        changed = tuple(
            each.model_copy(update={"value": (each.value or 0) * 1.1 + 1})
            if each.name == edited.name
            else each
            for each in record.metrics
        )
        found = verdicts(record.model_copy(update={"metrics": changed}))
        assert found["metrics_close"] == "fail", edited.name


@pytest.mark.parametrize(
    "name",
    ["rows", "storage_rows", "host_rows", "cache_rows", "joined_rows", "storage_bytes", "steps",
     "batch_seeds", "wall_s", "compared_rows", "wrong_rows", "row_payload_bytes", "rows_total",
     "edges_total", "feature_bytes", "last_loss", "first_loss", "hidden", "outstanding",
     "training_seeds", "operations", "read_bytes"],
)  # fmt: skip
def test_edited_details_are_found_out(record: RunRecord, name: str) -> None:
    edited = with_details(record, **{name: record.workload.details[name] * 2 + 1})
    assert "fail" in verdicts(edited).values(), name


@pytest.mark.parametrize(
    "changed",
    [
        {"fanouts": [3, 2, 2]},
        {"sampler": "dgl"},
        {"sampler": "torch"},
        {"trainer": "gpu", "gpu": {"address": "0000:01:00.0", "name": "NVIDIA H100"}},
        {"training_gpu_s": 1.0},
        {"eviction_s": 5.0},
        {"host_rows": 0},
    ],
)
def test_edited_conditions_are_found_out(record: RunRecord, changed: dict[str, Any]) -> None:
    assert verdicts(with_details(record, **changed))["details_close"] == "fail"


@pytest.mark.parametrize(
    ("name", "value"),
    [("limit_bytes", 1), ("method", "drop_cache"), ("budget_bytes", 1), ("host_rows_bytes", 0),
     ("topology_bytes", 1), ("batch_bytes", 4096), ("own_bytes", 1), ("peak_bytes", 1)],
)  # fmt: skip
def test_edited_memory_is_found_out(record: RunRecord, name: str, value: Any) -> None:
    memory = record.workload.details["memory"]
    if memory["method"] == "drop_cache" and name in ("limit_bytes", "method", "own_bytes"):
        pytest.skip("no memory limit can be set here")
    edited = with_details(record, memory={**memory, name: value})
    assert verdicts(edited)["details_close"] == "fail"


def test_hits_can_not_be_invented(record: RunRecord) -> None:
    details = record.workload.details
    moved = {
        "storage_rows": details["storage_rows"] - 10,
        "cache_rows": details["cache_rows"] + 10,
        "operations": details["operations"] - 10,
        "storage_bytes": details["storage_bytes"] - 40_960,
    }
    assert "fail" in verdicts(with_details(record, **moved)).values()
    checks = tuple(
        check.model_copy(update={"figures": {**check.figures, "host_rows": 1}})
        if check.name == "row_counts"
        else check
        for check in record.checks
    )
    assert verdicts(record.model_copy(update={"checks": checks}))["row_counts"] == "fail"
    stages = {**details["stages"], "training_s": details["wall_s"] * 2}
    assert "fail" in verdicts(with_details(record, stages=stages)).values()
    other = with_details(record, trainer="gpu", gpu=None)
    assert verdicts(other)["details_close"] == "fail"
