"""A whole run by the command line."""

from __future__ import annotations

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


def test_a_run_is_proved_by_its_counts(record: RunRecord) -> None:
    found = verdicts(record)
    assert not [name for name, verdict in found.items() if verdict == "fail"]
    for name in ("compared_rows", "row_counts", "stage_times", "data_path", "cold_cache",
                 "closure_read_bytes_per_s"):  # fmt: skip
        assert found[name] == "pass", name
    details = record.workload.details
    (window,) = record.timed_windows()
    assert (window.name, window.operations) == ("gnn", details["storage_rows"])
    assert window.read_bytes == details["storage_bytes"]
    assert details["host_rows"] > 0
    (path,) = record.workload.paths
    assert (path.path_effective, path.initiator) == ("cpu_queue", "cpu")
    assert any("batches of 64 seeds" in remark for remark in record.workload.remarks)
