"""The header as Python reads it is the header as the compiler does."""

from __future__ import annotations

import ctypes
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

from wattload.loaders.engine import header, library

INCLUDES = "".join(f'#include "{name}"\n' for name in header.FILES)


def test_the_compiler_lays_structures_out_and_counts_as_python_does(tmp_path: Path) -> None:
    text = "".join((header.SOURCES / name).read_text() for name in header.FILES)
    names = re.findall(r"^} (wl_\w+);$", text, re.MULTILINE)
    assert {"wl_error", "wl_result", "wl_queue_result", "wl_rows_result", "wl_synthetic"} < {*names}
    lines, expected = [], []
    for name in names:
        structure = header.struct(name)
        lines.append(f'printf("%zu 0\\n", sizeof({name}));')
        expected.append((ctypes.sizeof(structure), 0))
        for field, *_ in structure._fields_:
            at = f"offsetof({name}, {field}), sizeof((({name} *)0)->{field})"
            lines.append(f'printf("%zu %zu\\n", {at});')
            expected.append((getattr(structure, field).offset, getattr(structure, field).size))
    for name, value in header.constants().items():
        lines.append(f'printf("%lld 0\\n", (long long){name});')
        expected.append((value, 0))
    assert header.constants()["WL_HANGS"] == library.HANGS < 0
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    body = "\n".join(lines)
    source.write_text(f"#include <stdio.h>\n{INCLUDES}int main(void) {{\n{body}\n}}\n")
    try:
        subprocess.run(["cc", f"-I{header.SOURCES}", "-o", program, source], check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [tuple(map(int, line.split())) for line in printed.splitlines()] == expected


def test_every_function_of_the_library_is_declared_for_ctypes() -> None:
    text = "".join((header.SOURCES / name).read_text() for name in header.FILES)
    declared = re.findall(r"^WL_API [^;]*?(wl_\w+)\(", text, re.MULTILINE)
    assert [name for name, *_ in header.prototypes()] == declared


def test_numbers_go_by_value_and_memory_by_address() -> None:
    types = {name: (arguments, result) for name, arguments, result in header.prototypes()}
    error = ctypes.POINTER(library.Error)
    assert types["wl_abi"] == ([], ctypes.c_uint32)
    assert types["wl_job_wait"] == ([ctypes.c_void_p, ctypes.c_uint32], ctypes.c_int32)
    assert types["wl_backend_probe"] == ([ctypes.c_char_p, error], ctypes.c_int32)
    assert types["wl_rows_kept"] == ([ctypes.c_void_p], ctypes.POINTER(ctypes.c_uint8))
    assert types["wl_queue_stop"] == ([ctypes.c_void_p], None)


def test_threads_that_need_a_structure_first_get_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fields, both = header._fields, Barrier(2)

    def slow(body: str) -> list[tuple[str, Any]]:
        """Let both threads make the structure at once, if they may."""
        with suppress(BrokenBarrierError):
            both.wait(timeout=0.2)
        return list(fields(body))

    monkeypatch.setattr(header, "_structs", {})
    monkeypatch.setattr(header, "_fields", slow)
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(header.struct, ["wl_setup"] * 2)
    assert first is second
