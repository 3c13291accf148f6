"""Reports know no workload, loader or metric: what they say of one comes from its results."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from wattload.results.figures import Figure
from wattload.results.registry import every_results

ROOT = Path(__file__).parents[2]
REPORTS = sorted((ROOT / "reports").rglob("*.py"))

ENGLISH = frozenset({"direct", "null", "data", "native", "arrow", "bounce", "checkpoint"})
"""Names that are words of the language too, and of other things of a report."""

OF_EVERY_RECORD = frozenset({"read_bytes", "written_bytes"})
"""Figures that are called as the fields of a phase are."""


def names() -> Iterator[str]:
    """Yield the names of all workloads, loaders and declared figures."""
    for group in ("workload", "loader"):
        yield from (each.stem for each in (ROOT / "configs" / group).glob("*.yaml"))
    for results in every_results():
        yield results.name
        yield from (each.name for each in results.figures if isinstance(each, Figure))


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
    known = "|".join(sorted(set(names()) - ENGLISH - OF_EVERY_RECORD, key=len, reverse=True))
    pattern = re.compile(rf"(?<![a-z0-9])(?:{known})(?![a-z0-9])", re.IGNORECASE)
    found = [f"{line}: {text[:60]}" for line, text in words(file) if pattern.search(text)]
    assert not found
