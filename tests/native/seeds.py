"""Valid plans of every kind: the corpus that fuzzing starts from.

``python -m tests.native.seeds FOLDER`` writes one file per plan.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

from tests.native.plans import (
    CHECK,
    DESTINATION,
    DIRECT,
    EXTENDING,
    FSYNC,
    NO_CHANGE,
    OVERWRITE,
    PREALLOCATED,
    RANDOM,
    READ,
    SEQUENTIAL,
    STAMP,
    WRITE,
    Plan,
)

_READ_FLAGS = (0, DIRECT | CHECK, DIRECT | DESTINATION | NO_CHANGE)
_WRITE_FLAGS = (0, DIRECT | STAMP | FSYNC, DESTINATION)


def seeds() -> list[bytes]:
    """Return the plans' bytes."""
    plans = [
        Plan(paths=[Path("/a")], extents=[(0, 0, 65536)]),
        Plan(paths=[], extents=[]),
        Plan(paths=[Path("/a")], extents=[(0, 0, 0)], ends=[0], kind=WRITE),
        Plan(paths=[Path("/a")], extents=[(0, 7, 1000)], align=1, block=100, flags=0),
    ]
    for order, flags, operations in product((SEQUENTIAL, RANDOM), _READ_FLAGS, (0, 1000)):
        plans.append(replace(_many(READ, order, flags), operations=operations, trace_every=16))
    for allocation, flags in product((PREALLOCATED, OVERWRITE, EXTENDING), _WRITE_FLAGS):
        plans.append(replace(_many(WRITE, RANDOM, flags), allocation=allocation, rate=1 << 30))
    return [plan.encode() for plan in plans]


def _many(kind: int, order: int, flags: int) -> Plan:
    extents = [(0, 0, 10 * 65536), (1, 1 << 20, 3 * 65536), (2, 0, 1), (0, 1 << 30, 99 * 4096)]
    paths = [Path("/target/first"), Path("/target/second"), Path("/target/third")]
    return Plan(paths=paths, extents=extents, kind=kind, order=order, flags=flags)


def write_seeds(folder: Path) -> list[Path]:
    """Write the plans into files of a folder and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for number, plan in enumerate(seeds()):
        files.append(folder / f"{number:03d}.plan")
        files[-1].write_bytes(plan)
    return files


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1]))
