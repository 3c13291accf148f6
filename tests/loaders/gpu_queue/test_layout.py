"""Results of a queue lie in memory as the engine's header says."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import pytest

from wattload.loaders.engine.targets import Failure
from wattload.loaders.gpu_queue.native import PollerResult, Result, TargetResult
from wattload.loaders.gpu_queue.native_rows import RowsResult

SOURCES = Path(__file__).parents[3] / "loaders/engine/src"
STRUCTURES: dict[str, type[ctypes.Structure]] = {
    "wl_queue_failure": Failure,
    "wl_queue_result": Result,
    "wl_queue_target_result": TargetResult,
    "wl_queue_poller_result": PollerResult,
    "wl_rows_result": RowsResult,
}


def test_the_compiler_lays_results_out_as_ctypes_does(tmp_path: Path) -> None:
    lines, expected = [], []
    for name, structure in STRUCTURES.items():
        lines.append(f'printf("%zu 0\\n", sizeof({name}));')
        expected.append((ctypes.sizeof(structure), 0))
        for field, *_ in structure._fields_:
            at = f"offsetof({name}, {field}), sizeof((({name} *)0)->{field})"
            lines.append(f'printf("%zu %zu\\n", {at});')
            expected.append((getattr(structure, field).offset, getattr(structure, field).size))
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    include = '#include <stdio.h>\n#include "wattload_engine.h"'
    source.write_text(f"{include}\nint main(void) {{\n{chr(10).join(lines)}\n}}\n")
    try:
        subprocess.run(["cc", f"-I{SOURCES}", "-o", program, source], check=True)
    except FileNotFoundError:
        pytest.skip("there is no C compiler")
    printed = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    assert [tuple(map(int, line.split())) for line in printed.splitlines()] == expected
