"""Valid plans of every kind, and rows of Criteo's TSV: the corpora that fuzzing starts from.

``python -m tests.native.seeds FOLDER`` writes one file per seed below ``plan`` and ``rows``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from tests.native.plans import (
    CHECK,
    DESTINATION,
    DEVICE,
    DIRECT,
    EXTENDING,
    FSYNC,
    LISTED,
    NO_CHANGE,
    OVERWRITE,
    PLACED,
    PREALLOCATED,
    RANDOM,
    READ,
    SEQUENTIAL,
    STAMP,
    WRITE,
    Plan,
)
from wattload.loaders.data.criteo_synthetic import SyntheticDay

_READ_FLAGS = (0, DIRECT | CHECK, DIRECT | DESTINATION | NO_CHANGE, DESTINATION | PLACED)
_WRITE_FLAGS = (0, DIRECT | STAMP | FSYNC, DESTINATION)


def plans() -> list[bytes]:
    """Return the plans' bytes."""
    found = [
        Plan(paths=[Path("/a")], extents=[(0, 0, 65536)]),
        Plan(paths=[], extents=[]),
        Plan(paths=[Path("/a")], extents=[(0, 0, 655360)], order=LISTED, listed=[9, 0, 9]),
        Plan(paths=[Path("/a")], extents=[(0, 0, 0)], ends=[0], kind=WRITE),
        Plan(paths=[Path("/a")], extents=[(0, 7, 1000)], align=1, block=100, flags=0),
    ]
    for order, flags, operations in product((SEQUENTIAL, RANDOM), _READ_FLAGS, (0, 1000)):
        found.append(replace(_many(READ, order, flags), operations=operations, trace_every=16))
    for allocation, flags in product((PREALLOCATED, OVERWRITE, EXTENDING), _WRITE_FLAGS):
        found.append(replace(_many(WRITE, RANDOM, flags), allocation=allocation, rate=1 << 30))
    for kind, order in product((READ, WRITE), (SEQUENTIAL, RANDOM)):
        on_device = Plan(paths=[Path("/dev/a")], extents=[(0, 0, 100 * 65536)], kind=kind)
        on_device = replace(on_device, order=order, flags=DIRECT | DEVICE)
        found.append(replace(on_device, device=(100 * 65536, 259, 1, 41)))
    for kind, flags in ((READ, DIRECT | CHECK), (WRITE, DIRECT | STAMP)):
        sectors = Plan(paths=[Path("/a")], extents=[(0, 512, 512 * 1000)], kind=kind, unit=512)
        found.append(replace(sectors, flags=flags, block=512, align=512, order=RANDOM))
    return [plan.encode() for plan in found]


def _many(kind: int, order: int, flags: int) -> Plan:
    extents = [(0, 0, 10 * 65536), (1, 1 << 20, 3 * 65536), (2, 0, 1), (0, 1 << 30, 99 * 4096)]
    paths = [Path("/target/first"), Path("/target/second"), Path("/target/third")]
    return Plan(paths=paths, extents=extents, kind=kind, order=order, flags=flags)


def rows() -> list[bytes]:
    """Return some lines of text, with either line end."""
    texts = [SyntheticDay(seed, 0, 1 + 2 * seed).readall() for seed in range(8)]
    return [
        text.replace(b"\n", b"\r\n") if number % 2 else text for number, text in enumerate(texts)
    ]


def write_seeds(folder: Path, seeds: Sequence[bytes]) -> list[Path]:
    """Write seeds into files of a new folder and return their paths."""
    folder.mkdir(parents=True)
    files = [folder / f"{number:03d}" for number in range(len(seeds))]
    for file, seed in zip(files, seeds, strict=True):
        file.write_bytes(seed)
    return files


if __name__ == "__main__":
    write_seeds(Path(sys.argv[1], "plan"), plans())
    write_seeds(Path(sys.argv[1], "rows"), rows())
