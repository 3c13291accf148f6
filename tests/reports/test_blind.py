"""Reports know no workload, loader or metric: what they say of one comes from its results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.reports.caches import cache_run
from tests.reports.gnn import gnn_run
from tests.reports.gpu_reads import reads_run
from tests.reports.random_reads import random_run
from tests.reports.random_writes import writes_run
from tests.reports.sessions import turn
from tests.reports.test_pages import accelerator_search, outside_program
from tests.reports.vectors import search_run
from tests.results.model_load.making import load_record
from tests.results.test_weight_stream import run as stream_run
from wattload.core.record.run import RunRecord
from wattload.results.figures import Figure
from wattload.results.reading import metrics_of
from wattload.results.registry import every_results

ROOT = Path(__file__).parents[2]
REPORTS = sorted((ROOT / "reports").rglob("*.py"))

ENGLISH = frozenset({"direct", "null", "data", "native", "arrow", "bounce", "checkpoint"})
"""Names that are words of the language too, and of other things of a report."""

OF_EVERY_RECORD = frozenset({"read_bytes", "written_bytes", "rest_s"})
"""Figures that are called as fields of every record are."""


@cache
def records() -> tuple[RunRecord, ...]:
    """Return records of all workloads that have figures, in each way that they are made."""
    runs = [turn("A", 0, 1e9, workload=kind) for kind in ("unet3d", "checkpoint", "dlrm")]
    runs += [gnn_run(), reads_run(), random_run(), random_run(cache_bytes=1 << 24)]
    runs += [writes_run(), writes_run(until="fill", draw="each_once")]
    runs += [*accelerator_search()[:1], *outside_program()]
    runs += [cache_run(layered=True), cache_run(users=None, request_rate=2.0, reads_directly=False)]
    runs += [search_run()]
    unet3d = runs[0].record
    retinanet = unet3d.workload.model_copy(update={"name": "retinanet"})
    images = unet3d.model_copy(update={"workload": retinanet})
    return (*(run.record for run in runs), images, load_record(), stream_run().record)


@cache
def names() -> frozenset[str]:
    """Return the names of all workloads, loaders and figures, functions' figures included."""
    folders = [ROOT / "configs" / group for group in ("workload", "loader")]
    found = {each.stem for folder in folders for each in folder.glob("*.yaml")}
    for results in every_results():
        found.add(results.name)
        found |= {each.name for each in results.figures if isinstance(each, Figure)}
    return frozenset(found | {each.name for record in records() for each in metrics_of(record)})


def test_the_records_have_the_figures_of_every_workload() -> None:
    with_figures = {each.name for each in every_results() if each.figures}
    assert with_figures <= {record.workload.name for record in records()}
    assert {"mean_latency_s", "failed_reads", "steady_write_bytes_per_s"} <= names()


def words(file: Path) -> Iterator[tuple[int, str]]:
    """Yield identifiers and literals with their lines; docstrings and imports' folders aside."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)) if id(node) not in docs:
                yield line, text
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield line, name
            case ast.alias(name=name):
                yield line, name.rpartition(".")[2]
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield line, name
            case ast.keyword(arg=str(name)):
                yield line, name


@pytest.mark.parametrize("file", REPORTS, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_report_names_no_workload_loader_or_metric(file: Path) -> None:
    known = "|".join(sorted(names() - ENGLISH - OF_EVERY_RECORD, key=len, reverse=True))
    pattern = re.compile(rf"(?<![a-z0-9])(?:{known})(?![a-z0-9])", re.IGNORECASE)
    found = [f"{line}: {text[:60]}" for line, text in words(file) if pattern.search(text)]
    assert not found
