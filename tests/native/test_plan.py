"""The parser of plans takes nothing on trust: bad fields are named, and no bytes harm it."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.native.driver import COMMON, SOURCES, STRICT, Build, Driver, compiler
from tests.native.plans import (
    CHECK,
    DESTINATION,
    DEVICE,
    DIRECT,
    FSYNC,
    LISTED,
    PLACED,
    RANDOM,
    SAMPLE,
    STAMP,
    WRITE,
    Plan,
)
from tests.native.seeds import plans, write_seeds

BAD_PLAN = -1
RUNS = 100_000

BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"kind": 2}, "kind 2"),
    ({"order": 3}, "order 3"),
    ({"allocation": 3}, "allocation 3"),
    ({"flags": 512}, "flags in 0x200"),
    ({"flags": SAMPLE}, "do not fit the kind"),
    ({"kind": WRITE, "flags": STAMP | SAMPLE}, "do not fit the kind"),
    ({"flags": STAMP}, "do not fit the kind"),
    ({"flags": FSYNC}, "do not fit the kind"),
    ({"kind": WRITE, "flags": CHECK}, "do not fit the kind"),
    ({"align": 3}, "alignment"),
    ({"align": 0}, "alignment"),
    ({"align": 1 << 21}, "alignment"),
    ({"block": 0}, "block length"),
    ({"block": 5000}, "block length"),
    ({"block": (1 << 30) + 4096}, "block length"),
    ({"block": 131072}, "block length must be at most the engine's 65536"),
    ({"align": 512, "block": 4096, "flags": CHECK, "extents": [(0, 512, 512)]}, "offset"),
    ({"depth": 0}, "depth"),
    ({"depth": 9}, "depth must be 1 to the engine's 8"),
    ({"depth": 4097}, "depth"),
    ({"operations": (1 << 62) + 1}, "operation count"),
    ({"duration_ns": (1 << 62) + 1}, "duration must be at most 2^62 ns"),
    ({"extents": [(1, 0, 4096)]}, "file 1 of 1"),
    ({"extents": [(0, 100, 4096)]}, "offset"),
    ({"extents": [(0, 0, 1 << 63)]}, "largest file"),
    ({"extents": [(0, (1 << 64) - 4096, 8192)]}, "largest file"),
    ({"ends": [5]}, "invalid end, 5"),
    ({"kind": WRITE, "extents": [(0, 0, 4096)], "ends": [100]}, "its file at 100"),
    ({"kind": WRITE, "extents": [(0, 0, 100)], "ends": [4096]}, "ends at 100"),
    ({"flags": DESTINATION, "destination": 100}, "destination offset"),
    ({"flags": DESTINATION, "region": 1}, "region 1 of 1"),
    ({"flags": DESTINATION, "destination": 7 * 65536}, "do not fit"),
    ({"flags": DESTINATION, "destination": 1 << 40}, "do not fit"),
    ({"flags": DESTINATION, "extents": [(0, 0, 8 * 65536 + 1)]}, "do not fit"),
    ({"flags": PLACED}, "do not fit the kind"),
    ({"flags": PLACED | DESTINATION | CHECK}, "do not fit the kind"),
    ({"flags": PLACED | DESTINATION, "word": 512}, "an extent's place must be a multiple of 4096"),
    ({"flags": PLACED | DESTINATION, "word": 1 << 63}, "an extent's place"),
    ({"flags": PLACED | DESTINATION, "word": 8 * 65536}, "do not fit"),
    ({"reserved": 1}, "reserved"),
    ({"listed": [0]}, "order 0 lists 1 blocks"),
    ({"order": LISTED, "listed": [0, 2]}, "listed block 1 is number 2, but the plan has only 2"),
    ({"order": LISTED, "listed": [0], "extents": []}, "has only 0 blocks"),
    ({"order": LISTED, "listed": [0], "operations": 1}, "listed blocks are read, without"),
    ({"order": LISTED, "listed": [0], "duration_ns": 1}, "listed blocks are read, without"),
    ({"order": LISTED, "listed": [0], "kind": WRITE}, "listed blocks are read, without"),
    ({"order": LISTED, "listed": [0] * 9, "flags": DESTINATION}, "do not fit"),
    ({"unit": 512}, "unit of stamps must be 512 or 4096, or 0 without stamps, got 512"),
    ({"flags": CHECK, "unit": 0}, "unit of stamps must be 512 or 4096"),
    ({"flags": CHECK, "unit": 1024}, "unit of stamps must be 512 or 4096"),
    ({"align": 512, "block": 512, "flags": CHECK, "unit": 4096}, "a multiple of 4096, got 512"),
    ({"align": 1, "block": 700, "flags": CHECK, "unit": 512}, "a multiple of 512, got 700"),
    (
        {
            "align": 1,
            "block": 512,
            "flags": CHECK,
            "unit": 512,
            "extents": [(0, 100, 512)],
        },
        "offset",
    ),
    ({"device": (131072, 0, 0, 0)}, "without a device"),
    ({"device": (0, 7, 0, 0)}, "without a device"),
    ({"device": (0, 0, 7, 0)}, "without a device"),
    ({"device": (0, 0, 0, 7)}, "without a device"),
    ({"flags": DEVICE, "device": (1 << 63, 7, 0, 0)}, "device's size must be at most"),
    ({"flags": DEVICE, "device": (131071, 7, 0, 0)}, "past the device's end at 131071"),
    (
        {"flags": DEVICE, "device": (131072, 7, 0, 0), "extents": [(0, 0, 131072), (0, 131072, 1)]},
        "past the device's end at 131072",
    ),
    (
        {"flags": DEVICE, "device": (131072, 7, 0, 0), "extents": [(0, 126976, 4097)]},
        "an extent ends at 131073, past the device's end at 131072",
    ),
    (
        {"flags": DEVICE, "device": (131072, 7, 0, 0), "paths": [Path("/a"), Path("/b")]},
        "one file, got 2",
    ),
    ({"paths": [Path("/" + "x" * 4096)]}, "path"),
]


@pytest.mark.parametrize(("fields", "text"), BAD_FIELDS)
def test_a_bad_field_is_named(driver: Driver, fields: dict[str, Any], text: str) -> None:
    plan = Plan(**{"paths": [Path("/a")], "extents": [(0, 0, 131072)], **fields})
    refused = driver.refusal(plan, backend="null")
    assert refused["code"] == BAD_PLAN
    assert text in refused["text"]


def test_bytes_that_are_no_plan_are_refused(driver: Driver) -> None:
    good = Plan(paths=[Path("/a")], extents=[(0, 0, 65536)], flags=DIRECT, order=RANDOM).encode()
    for bad in (b"", good[:135], good[:-1], good + b"\0", b"XXXX" + good[4:]):
        assert driver.refusal(bad, backend="null")["code"] == BAD_PLAN
    hole = good[:-1] + b"\0"
    assert driver.refusal(hole, backend="null")["text"] == "file 0 has an invalid path"
    far = good[:144] + struct.pack("<I", 0xFFFF_FFFF) + good[148:]
    assert driver.refusal(far, backend="null")["text"] == "file 0 has an invalid path"


def test_an_empty_plan_is_done_at_once(driver: Driver) -> None:
    for plan in (Plan(paths=[], extents=[]), Plan(paths=[], extents=[], operations=5)):
        job = driver.run(plan, backend="null").job
        assert (job["code"], job["operations"], job["bytes"]) == (0, 0, 0)


def test_mutated_plans_do_no_harm(build: Build, tmp_path: Path) -> None:
    files = [str(file) for file in write_seeds(tmp_path / "corpus", plans())]
    program = build("address", "fuzz_main.c", "fuzz_plan.c")
    ran = subprocess.run([program, str(RUNS), *files], capture_output=True, text=True, check=False)
    assert not ran.returncode, ran.stderr


def test_every_seed_is_a_good_plan(driver: Driver) -> None:
    outcome = driver.run(
        *[plan for plan in plans() if not plan[12] & DESTINATION], backend="null", block=65536
    )
    assert all(job["code"] == 0 for job in outcome.jobs)


@pytest.mark.thorough
@pytest.mark.parametrize("names", [("gcc",), ("clang", "clang-19", "clang-16", "clang-14")])
def test_a_compiler_takes_the_sources_without_a_warning(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    command = [compiler(*names), *COMMON, *STRICT, "-O2", "-c", *map(str, SOURCES.glob("*.c"))]
    made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
