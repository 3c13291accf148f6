"""docs/workloads.md has the headline figures of every workload, and no figure that none gives.

Each other figure is explained by its ``meaning``, without which there is no metric.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tests.records import run_of_facts
from tests.reports.gpu_reads import reads_run
from tests.reports.random_reads import random_run
from tests.training import epoch, facts_of
from wattload.core.record.results import Metric
from wattload.core.units import Unit
from wattload.results.figures import Figure, evaluated
from wattload.results.gpu_read.facts import BY_REQUESTERS, BY_THREADS
from wattload.results.registry import Results, every_results
from wattload.results.training.figures import FIGURES
from wattload.workloads.training import workload as unet3d_workload

PAGE = Path(__file__).parents[2] / "docs" / "workloads.md"


def of_unet3d() -> list[Metric]:
    run = run_of_facts(facts_of([epoch([1.0, 0.0], [1.0, 1.0])]))
    return list(evaluated(FIGURES, run))


MADE: dict[str, Callable[[], list[Metric]]] = {
    unet3d_workload.Unet3d.name: of_unet3d,
    BY_THREADS: lambda: list(reads_run().record.metrics),
    BY_REQUESTERS: lambda: list(random_run(cache_bytes=1 << 20).record.metrics),
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
    alike = [each.name for each in WITH_FIGURES if each.figures is results.figures]
    names = explained(next(name for name in alike if f"\n## {name}\n" in PAGE.read_text()))
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
