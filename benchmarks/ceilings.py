"""The engine without a drive: hot page cache, memory, and nothing at all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import engine
from benchmarks.files import written_files
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Way
from wattload.core.io import IOKind
from wattload.core.units import GIB, KIB, MIB
from wattload.loaders.data.cold_cache import resident_fraction

FILE_BYTES = 256 * MIB
RESIDENT_LEAST = 0.99
"""A kernel that reclaims idle memory (DAMON) takes a page here and there, which does not matter."""
HOT = engine.RANDOM(
    name="hot page cache, random 4 KiB read",
    kind=IOKind.READ,
    block_bytes=4 * KIB,
    depths=(32, 128),
    direct=False,
    goal=None,
)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare hot reads with fio's, then measure the engine on memory and on nothing."""
    with written_files(target, 1, FILE_BYTES) as (path,):
        path.read_bytes()

        def resident(way: Way) -> Way:
            return lambda: _resident(path, way())

        yield engine.against_fio(HOT, [path], resident)
    for backend, goal in (("memory", None), ("null", 10.0)):
        job = replace(
            HOT.ours([Path(f"/{backend}")])[1], direct=True, backend=backend, nominal_bytes=GIB
        )
        yield Comparison(
            rows=(engine.operations_per_s(name=f"engine on {backend}, 4 KiB", goal=goal),),
            ways={backend: job},
            warm=True,
            notes=[job.shown()],
        )


def _resident(path: Path, figures: Figures) -> Figures:
    found = resident_fraction([path])
    if found is None or found < RESIDENT_LEAST:
        raise NotMeasuredError(f"the file left the page cache (resident: {found})")
    return figures
