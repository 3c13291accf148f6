"""The group gnn: what is compared, and what is said of what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import gnn, jobs
from benchmarks.measure import NotMeasuredError, Result
from wattload.core.units import MIB


def record(**metrics: float) -> Any:
    """Return what the group reads of a record."""
    return SimpleNamespace(
        metrics=[SimpleNamespace(name=name, value=value) for name, value in metrics.items()],
        workload=SimpleNamespace(details={}),
        ranks=[],
        windows=[SimpleNamespace(name="generate", written_bytes=2 * 10**9, seconds=4.0)],
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Return all results of one pair on small files, with made-up runs."""
    runs = {
        "serial": record(sampling_s=1.0, aggregation_s=6.0, training_s=2.9, wall_s=10.0),
        "ahead": record(sampling_s=2.0, aggregation_s=6.0, training_s=5.0, wall_s=6.3),
    }

    def run(options: list[str]) -> Any:
        (overlap,) = (each for each in options if each.startswith("workload.overlap="))
        assert Path(options[-1].removeprefix("target.path=")).is_dir()
        return runs[overlap.removeprefix("workload.overlap=")]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gnn, "FILE_BYTES", 4 * MIB)
        patch.setattr(gnn, "MAPPED_ROWS", 256)
        patch.setattr(gnn, "SECONDS", 0.02)
        patch.setattr(gnn, "GRAPH", "igb_tiny")
        patch.setattr(gnn, "EDGES", 1 << 16)
        patch.setattr(gnn, "BATCHES", 1)
        patch.setattr(gnn, "gpus", lambda: ([], "no driver"))
        patch.setattr(jobs, "run", run)
        patch.setitem(sys.modules, "dgl", None)
        folder = tmp_path_factory.mktemp("target")
        found = {result.name: result for result in gnn.measure(folder, 1)}
        assert not list(folder.rglob("*.bin"))
    return found


def test_gathers_are_compared_on_the_cpu(results: dict[str, Result]) -> None:
    for name in (
        "direct ÷ engine",
        "direct ÷ engine, CPU per row",
        "direct ÷ mmap normal, cold",
        "direct ÷ mmap random, cold",
        "gpu_queue ÷ direct, CPU threads ask",
        "edges made, a core",
    ):
        assert results[name].missing is None, results[name].missing
        assert results[name].median > 0
    assert "times the bytes of its rows" in results["direct ÷ mmap random, cold"].notes[0]
    json.dumps([result.as_json() for result in results.values()])


def test_what_is_missing_is_named(results: dict[str, Result]) -> None:
    reasons = {name: each.missing for name, each in results.items() if each.missing}
    assert "pip install 'dgl==1.1.3'" in reasons.pop("C sampler ÷ DGL, one core each")
    assert set(reasons) == {
        "gpu_queue ÷ direct, a GPU asks",
        "gpu_queue from host memory ÷ pull ceiling",
        "transfer of a batch ÷ pinned copy",
        "torch sampler on a GPU, a batch",
    }
    assert set(reasons.values()) == {"needs a GPU: no driver"}


def test_runs_give_stages_overlap_and_writing(results: dict[str, Result]) -> None:
    assert results["serial stages ÷ wall"].median == pytest.approx(0.99)
    assert results["overlapped step ÷ longest stage"].median == pytest.approx(1.05)
    assert results["writing of the graph"].values == [0.5, 0.5]
    assert results["overlapped step ÷ longest stage"].notes == [
        "overlapped step: the longest stage was aggregation_s"
    ]


def test_a_record_without_steps_is_not_measured() -> None:
    with pytest.raises(NotMeasuredError, match="no wall_s"):
        gnn.recorded(record())
