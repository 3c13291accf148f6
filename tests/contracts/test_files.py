"""Files are written and removed in ``wattload.core.files`` alone, or for a reason given here."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("wattload", "workloads", "loaders", "power", "reports")
THE_MODULE = Path("wattload/core/files.py")

EXCEPTIONS = {
    ("loaders/dali/loader.py", "NamedTemporaryFile"): "a file of its own, made exclusively",
    ("loaders/dlio/harness.py", "copyfile"): "into a private folder of tempfile in memory",
    ("loaders/dlio/harness.py", "open"): "in a private folder of tempfile",
    ("loaders/dlio/harness.py", "symlink_to"): "in a private folder of tempfile",
    ("loaders/dlio/program.py", "open"): "the output of a program, in a folder of ours",
    ("power/sampler/service.py", "unlink"): "the socket",
    ("reports/render/card.py", "write_text"): "in a private folder of tempfile",
    ("reports/render/output.py", "unlink"): "a file of its own, made exclusively",
    ("wattload/core/interrupts.py", "unlink"): "shared memory that this process has mapped",
    ("power/sampler/client.py", "open"): "the null device, if there is no place for a log",
    ("power/sources/ipmi.py", "open"): "a device of the kernel",
    ("reports/render/output.py", "open"): "-o: the user may name links, pipes and devices",
    ("reports/render/output.py", "replace"): "-o: the user may name links, pipes and devices",
    ("wattload/core/storage/file_system.py", "open"): "a nameless file (O_TMPFILE), or only reads",
    ("wattload/core/storage/guard.py", "open"): "a block device, held exclusively",
    ("wattload/run/ranks.py", "open"): "the null device, in place of the error output",
    ("wattload/cli/terminal.py", "open"): "the null device, in place of a closed output",
    ("loaders/data/verification.py", "open"): "only reads",
    ("wattload/run/host_load/process.py", "write_text"): "a file of the kernel",
    ("wattload/core/host/block_trace.py", "rmdir"): "an instance of the kernel's trace, ours",
    ("wattload/core/host/block_trace.py", "write_text"): "a file of the kernel",
    ("wattload/core/host/memory_group.py", "open"): "a file of the kernel",
    ("wattload/core/host/memory_group.py", "rmdir"): "a control group of ours, without processes",
}
"""Each module and call that may open a file for writing, rename or remove one, and why."""

READS = {
    "O_RDONLY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK", "O_DIRECTORY", "O_DIRECT", "O_NOCTTY",
    "O_PATH",
}  # fmt: skip
WRITERS = {
    "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "mkstemp", "mknod", "mkfifo",
    "NamedTemporaryFile", "copy", "copy2", "copyfile", "move", "truncate",
}  # fmt: skip
OPENERS = {"open", "FileIO", "CountedFile", "OSFile", "memmap"}
SINKS = {"write_table": 1, "ParquetWriter": 0}
"""Writers of pyarrow, with the place of what they write to: an open file, which has these names."""
MODE = re.compile(r"[rwaxbt+]*[wax+][rwaxbt+]*")
REMOVERS = {"unlink", "rmdir", "remove", "removedirs", "rmtree"}
"""By path: what was proved may have been replaced by then, so these take a folder's descriptor."""
MODULES = {
    "copy": "shutil", "copy2": "shutil", "move": "shutil", "truncate": "os", "remove": "os",
}  # fmt: skip
"""Calls that only count in one module: lists are copied, too."""


def writing_calls(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the name and line of each call that writes, renames or removes a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = _writer(node)
            if name is not None:
                yield name, node.lineno


def _writer(call: ast.Call) -> str | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = function.value if isinstance(function, ast.Attribute) else None
    module = owner.id if isinstance(owner, ast.Name) else None
    is_writing = (
        (name in WRITERS and MODULES.get(name, module) == module)
        or (name in REMOVERS and MODULES.get(name, module) == module and not _has_folder(call))
        or (name in OPENERS and module != "os" and _has_writing_mode(call))
        or (name == "open" and module == "os" and not _only_reads(call))
        or (name in SINKS and not all(map(_is_open_file, call.args[SINKS[name] :][:1])))
        or (name == "save" and module == "OmegaConf")
        # str.replace takes two arguments, dataclasses.replace names what it replaces.
        or (name in {"replace", "rename"} and (module == "os" or _is_of_a_path(call)))
        or (name in {"link", "symlink"} and module == "os")
    )
    return name if is_writing else None


def _has_folder(call: ast.Call) -> bool:
    return any(keyword.arg == "dir_fd" for keyword in call.keywords)


def _has_writing_mode(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    texts = [each.value for each in given if isinstance(each, ast.Constant)]
    return any(isinstance(text, str) and MODE.fullmatch(text) for text in texts)


def _only_reads(call: ast.Call) -> bool:
    names = [node.attr for node in ast.walk(call.args[1]) if isinstance(node, ast.Attribute)]
    variables = [node.id for node in ast.walk(call.args[1]) if isinstance(node, ast.Name)]
    return set(names) <= READS and set(variables) <= {"os"}


def _is_open_file(argument: ast.expr) -> bool:
    return isinstance(argument, ast.Name) and argument.id in {"file", "sink"}


def _is_of_a_path(call: ast.Call) -> bool:
    return len(call.args) == 1 and not call.keywords


def test_files_are_written_through_one_module() -> None:
    found: dict[tuple[str, str], list[int]] = {}
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):  # does not follow links
            module = path.relative_to(ROOT)
            if module != THE_MODULE:
                for name, line in writing_calls(ast.parse(path.read_text(encoding="utf-8"))):
                    found.setdefault((str(module), name), []).append(line)
    elsewhere = {key: lines for key, lines in found.items() if key not in EXCEPTIONS}
    assert elsewhere == {}, "open these files with wattload.core.files, which proves them ours"
    assert EXCEPTIONS.keys() - found.keys() == set(), "these exceptions are no longer needed"


@pytest.mark.parametrize(
    "code",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "path.open('xb')",
        "path.open('r+')",
        "path.write_text('x')",
        "path.write_bytes(b'x')",
        "path.touch()",
        "path.rename(new)",
        "path.replace(new)",
        "os.open(path, os.O_WRONLY | os.O_CREAT)",
        "os.open(path, os.O_RDWR)",
        "os.open(path, flags)",
        "os.rename(old, new)",
        "path.unlink(missing_ok=True)",
        "os.remove(path)",
        "shutil.rmtree(path)",
        "rmtree(path)",
        "os.replace(old, new)",
        "tempfile.mkstemp()",
        "shutil.copy(old, new)",
        "io.FileIO(path, 'wb')",
        "parquet.ParquetWriter(path, schema)",
        "pq.write_table(table, path)",
        "OmegaConf.save(config, path)",
    ],
)
def test_the_rule_finds_every_way_to_write(code: str) -> None:
    assert len(list(writing_calls(ast.parse(code)))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "open(path)",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY | os.O_CLOEXEC)",
        "text.replace('a', 'b')",
        "replace(config, path=path)",
        "source.open()",
        "values.copy()",
        "values.remove(value)",
        "folder.remove(name)",
        "os.unlink(name, dir_fd=folder.descriptor)",
        "pq.write_table(table, file)",
        "os.fdopen(descriptor, 'wb')",
    ],
)
def test_the_rule_leaves_reading_alone(code: str) -> None:
    assert list(writing_calls(ast.parse(code))) == []
