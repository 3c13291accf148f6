"""Print how large the repository is, by package and by workload: ``make size``.

Files, lines, code and statements are Python. A line of code has something other than a comment or
a docstring. Statements (``ast``, without docstrings) are also shown per line of code: if that
rises, lines became denser rather than fewer. Text is lines of YAML, templates, CSS, JavaScript, C
and CUDA. Only files that git tracks are counted. A file names a workload if the name is a word in
it or a part of an identifier.

    python tools/size.py [CHECKOUT]
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

SUITE = ("wattload", "workloads", "loaders", "power", "reports", "configs")
PRODUCT = (*SUITE, "benchmarks", "tools", "setup.py")
FOLDERS = (*PRODUCT, "tests")
C_SUFFIXES = (".c", ".h", ".cpp", ".cu", ".cuh")
TEXT_SUFFIXES = (".yaml", ".html", ".css", ".js", *C_SUFFIXES)
LAYOUT_TOKENS = (
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
)


@dataclass(frozen=True)
class Size:
    """What is counted of one file or of several."""

    files: int = 0
    lines: int = 0
    code: int = 0
    statements: int = 0
    text: int = 0
    c: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            self.files + other.files,
            self.lines + other.lines,
            self.code + other.code,
            self.statements + other.statements,
            self.text + other.text,
            self.c + other.c,
        )


def python_size(source: str) -> Size:
    """Count one Python file."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = [
        node
        for node in nodes
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    ]
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in LAYOUT_TOKENS:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in docstrings:
        code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    statements = sum(isinstance(node, ast.stmt) for node in nodes) - len(docstrings)
    return Size(1, source.count("\n"), len(code), statements)


def file_size(path: Path) -> Size:
    """Count one file; empty for data and other files that are not counted."""
    if path.suffix == ".py":
        return python_size(path.read_text())
    if path.suffix in TEXT_SUFFIXES:
        lines = path.read_text().count("\n")
        return Size(text=lines, c=lines if path.suffix in C_SUFFIXES else 0)
    return Size()


def total(sizes: Iterable[Size]) -> Size:
    return sum(sizes, Size())


def workload_of(path: Path, workloads: list[str]) -> str | None:
    """Return the workload that a file belongs to, ``None`` if it serves several or none."""
    if path.parts[0] == "workloads":
        name = path.parts[1].removesuffix(".py")
        return name if name in workloads else None
    is_named_after_one = (
        path.parts[0] == "reports"
        or path.parts[:2] == ("wattload", "results")
        or path.parts[:2] == ("configs", "workload")
    )
    if not is_named_after_one:
        return None
    stem = path.stem.removesuffix("s")
    named = [
        name
        for name in workloads
        if stem == name or stem.startswith(f"{name}_") or name.endswith(f"_{stem}")
    ]
    return max(named, key=len, default=None)


def row(name: str, size: Size) -> str:
    density = f"{size.statements / size.code:.3f}" if size.code else ""
    return (
        f"{name:28}{size.files:>7,}{size.lines:>10,}{size.code:>10,}{size.statements:>12,}"
        f"{density:>9}{size.text:>9,}"
    )


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=root, check=True, capture_output=True, text=True
    ).stdout
    paths = [
        Path(name)
        for name in listed.split("\0")
        if name and (root / name).is_file() and not (root / name).is_symlink()
    ]
    sizes = {path: file_size(root / path) for path in paths if path.parts[0] in FOLDERS}
    header = (
        f"{'':28}{'files':>7}{'lines':>10}{'code':>10}{'statements':>12}{'st/code':>9}{'text':>9}"
    )

    print(header)
    for folder in FOLDERS:
        inside = {path: size for path, size in sizes.items() if path.parts[0] == folder}
        print(row(folder, total(inside.values())))
        below = {parent for path in inside for parent in path.parents}
        for package in sorted(path for path in below if path.parent == Path(folder)):
            within = total(size for path, size in inside.items() if package in path.parents)
            if within != Size():
                print(row(f"  {package.name}", within))

    suite = {path: size for path, size in sizes.items() if path.parts[0] in SUITE}
    workloads = sorted(
        {
            path.parts[1].removesuffix(".py")
            for path in suite
            if path.parts[0] == "workloads" and path.parts[1] != "__init__.py"
        }
    )
    rooms = {path: workload_of(path, workloads) for path in suite}
    texts = {path: (root / path).read_text() for path, size in suite.items() if size != Size()}
    print(f"\n{header}  named in other files")
    for workload in workloads:
        own = total(suite[path] for path, owner in rooms.items() if owner == workload)
        word = re.compile(rf"(?<![a-z0-9]){workload}s?(?![a-z0-9])", re.IGNORECASE)
        elsewhere = [
            path for path, text in texts.items() if rooms[path] != workload and word.search(text)
        ]
        print(f"{row(workload, own)}{len(elsewhere):>8}")

    product = total(size for path, size in sizes.items() if path.parts[0] in PRODUCT)
    tests = total(size for path, size in sizes.items() if path.parts[0] == "tests")
    words = sum(len((root / path).read_text().split()) for path in paths if path.suffix == ".md")
    print(f"\n{header}")
    print(row("product", product))
    print(row("tests", tests))
    print(f"C and CUDA of the product: {product.c:,} lines; docs: {words:,} words")


if __name__ == "__main__":
    main()
