"""Rules of the house that import contracts can't express."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("wattload", "workloads", "loaders", "power", "reports", "configs")


def _modules(*folders: str) -> Iterator[tuple[Path, ast.Module]]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):  # does not follow links
            yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def test_packages_define_nothing_but_the_version() -> None:
    """A ``Config`` in an ``__init__`` made import cycles; a package is its docstring."""
    defining = [
        path
        for path, tree in _modules(*FOLDERS)
        if path.name == "__init__.py" and (len(tree.body) > 1 or ast.get_docstring(tree) is None)
    ]
    assert defining == [Path("wattload/__init__.py")]


def test_benchmarks_and_tools_do_not_depend_on_tests() -> None:
    imported = [
        (path, name)
        for path, tree in _modules("benchmarks", "tools")
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [a.name for a in node.names]
        )
        if name.partition(".")[0] == "tests"
    ]
    assert imported == []


def test_one_module_of_the_product_imports_mpi4py() -> None:
    """MPI is loaded after the sampler was started, and only where several ranks run."""
    importers = {
        path
        for path, tree in _modules(*FOLDERS)
        for node in ast.walk(tree)
        if (isinstance(node, ast.Import) and any(a.name.startswith("mpi4py") for a in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mpi4py"))
    }
    assert importers == {Path("wattload/run/ranks.py")}
