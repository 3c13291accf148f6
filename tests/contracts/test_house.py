"""Rules of the house that import contracts can't express."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("wattload", "workloads", "loaders", "power", "reports", "configs")


def _imports(*folders: str, of: str) -> Iterator[Path]:
    """Yield the modules that import a package, or from it."""
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):  # does not follow links
            text = path.read_text(encoding="utf-8")
            if of not in text:
                continue
            for node in ast.walk(ast.parse(text)):
                names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom):
                    names = [node.module or ""]
                if of in {name.partition(".")[0] for name in names}:
                    yield path.relative_to(ROOT)


def test_packages_define_nothing_but_the_version() -> None:
    """A ``Config`` in an ``__init__`` made import cycles; a package is its docstring."""
    packages = [path for folder in FOLDERS for path in (ROOT / folder).rglob("__init__.py")]
    trees = {path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in packages}
    defining = [
        path
        for path, tree in trees.items()
        if len(tree.body) > 1 or ast.get_docstring(tree) is None
    ]
    assert defining == [Path("wattload/__init__.py")]


def test_benchmarks_and_tools_do_not_depend_on_tests() -> None:
    assert list(_imports("benchmarks", "tools", of="tests")) == []


def test_one_module_of_the_product_imports_mpi4py() -> None:
    """MPI is loaded after the sampler was started, and only where several ranks run."""
    assert set(_imports(*FOLDERS, of="mpi4py")) == {Path("wattload/run/ranks.py")}
