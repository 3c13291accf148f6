"""docs/workloads.md has the headline figures of every workload, and no figure that none gives.

Each other figure is explained by its ``meaning``, without which there is no metric.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.training import epoch, facts_of, run_of_facts
from wattload.core.histogram import Histogram
from wattload.core.io import DataPath, PathCounts
from wattload.core.record.results import Metric
from wattload.core.units import Unit
from wattload.loaders.block_reads import ReadResult
from wattload.results.declaration import Results
from wattload.results.figures import Figure, evaluated
from wattload.results.registry import every_results
from wattload.results.unet3d.figures import FIGURES
from wattload.workloads.gpu_read import workload as gpu_read_workload
from wattload.workloads.gpu_read.metrics import metrics as gpu_read_metrics
from wattload.workloads.gpu_read.reads import RankReads, Reads
from wattload.workloads.unet3d import workload as unet3d_workload

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"


def of_unet3d() -> list[Metric]:
    run = run_of_facts(facts_of([epoch([1.0, 0.0], [1.0, 1.0])]))
    return list(evaluated(FIGURES, run))


def of_gpu_read() -> list[Metric]:
    counts = PathCounts(reads=1, read_bytes=4096)
    return list(gpu_read_metrics(reads_of(counts, threads=1), "gpu_read"))


def of_gpu_random_read() -> list[Metric]:
    counts = PathCounts(
        reads=1, read_bytes=512, requester="gpu", asked=1, taken=1, answered=1, delivered=2,
        requests=2, coalesced=0, hits=1, joined=0, misses=1, passed=0,
    )  # fmt: skip
    return list(gpu_read_metrics(reads_of(counts), "gpu_random_read"))


def reads_of(counts: PathCounts, threads: int | None = None) -> Reads:
    result = ReadResult(
        operations=1, start_ns=0, end_ns=1, cpu_s=1.0, latency=Histogram.of([1]), counts=counts
    )
    rank = RankReads(
        rank=0,
        host="box",
        gpu=None,
        targets=(0,),
        paths=(PAGE,),
        result=result,
        path=DataPath(data_path="host_memory", path_requested="cpu_queue"),
        checks=(),
    )
    return Reads(
        ranks=(rank,), phase="", engine="storage", block_bytes=512, read_bytes=512, in_flight=1,
        threads=threads,
    )  # fmt: skip


MADE = {
    unet3d_workload.Unet3d.name: of_unet3d,
    gpu_read_workload.GpuRead.name: of_gpu_read,
    gpu_read_workload.BY_REQUESTERS: of_gpu_random_read,
}


def explained(workload: str) -> set[str]:
    """Return the names in the first column of the table under ``| metric |`` of a section.

    ``PHASE`` in a name stands for any phase.
    """
    section = PAGE.read_text().split(f"\n## {workload}\n")[1].split("\n## ")[0]
    table = section.split("| metric |")[1].split("\n\n")[0]
    cells = [line.split("|")[1] for line in table.splitlines()[2:]]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.mark.parametrize("workload", MADE)
def test_every_headline_is_explained_and_no_figure_that_does_not_exist(workload: str) -> None:
    made = MADE[workload]()
    assert {metric.name for metric in made if metric.headline} <= explained(workload)
    assert _unknown(explained(workload), {metric.name for metric in made}) == set()


WITH_FIGURES = [results for results in every_results() if results.figures]


@pytest.mark.parametrize("results", WITH_FIGURES, ids=lambda results: results.name)
def test_the_same_of_figures_that_are_declared(results: Results[Any]) -> None:
    """A figure that only some runs have is declared by a function; it is not looked up."""
    declared = [each for each in results.figures if isinstance(each, Figure)]
    names = explained(results.name)
    assert {figure.name for figure in declared if figure.headline} <= names
    if len(declared) == len(results.figures):
        assert _unknown(names, {figure.name for figure in declared}) == set()


def _unknown(names: set[str], given: set[str]) -> set[str]:
    return {
        name
        for name in names
        if not any(re.fullmatch(name.replace("PHASE", "[a-z_]+"), each) for each in given)
    }


def test_a_metric_without_a_meaning_is_refused() -> None:
    with pytest.raises(ValidationError, match="meaning"):
        Metric.of("reads", 1.0, Unit.COUNT, "higher", "")
