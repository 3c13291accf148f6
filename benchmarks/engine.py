"""The I/O engine against fio on the same files, and without a drive.

fio first tries its settings. The fastest is compared with ours at the same queue depth: CPU time
per operation depends more on the depth than on the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import engine_job, fio
from benchmarks.child import written_files
from benchmarks.measure import Comparison, Figures, NotMeasuredError, Row, Way, choice
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import GIB, KIB, MIB
from wattload.loaders.data.cold_cache import resident_fraction

FILE_COUNT = 4
FILE_BYTES = 512 * MIB
SECONDS = 1.5
OURS, FIO = "wattload", "fio"
DEPTHS = (8, 32, 64)
BATCHES = (1, 8, 32)

operations_per_s = partial(Row, figure="operations_per_s", unit="M/s", scale=1e-6)
bytes_per_s = partial(Row, figure="bytes_per_s", unit="GB/s", scale=1e-9)
cpu_per_operation = partial(
    Row,
    figure="cpu_s_per_operation",
    unit="CPU s per M",
    scale=1e6,
    goal=1.0,
    sense="at_most",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of I/O, and the settings that fio may choose from."""

    name: str
    kind: IOKind
    order: IOOrder
    block_bytes: int
    depths: Sequence[int]
    batches: Sequence[int] = BATCHES
    direct: bool = True
    goal: float | None = 0.98

    def ours(self, files: Sequence[Path]) -> list[engine_job.Job]:
        return [engine_job.Job(**self._task(files, depth)) for depth in self.depths]

    def fios(self, files: Sequence[Path]) -> list[fio.Job]:
        return [
            fio.Job(**self._task(files, depth), batch=batch)
            for depth in self.depths
            for batch in self.batches
        ]

    def _task(self, files: Sequence[Path], depth: int) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "order": self.order,
            "files": files,
            "block_bytes": self.block_bytes,
            "depth": depth,
            "seconds": SECONDS,
            "direct": self.direct,
        }


SEQUENTIAL = partial(Case, order=IOOrder.SEQUENTIAL, block_bytes=MIB, depths=DEPTHS, batches=(1, 8))
RANDOM = partial(Case, order=IOOrder.RANDOM)
READ = SEQUENTIAL(name="sequential 1 MiB read", kind=IOKind.READ)
WRITE = SEQUENTIAL(name="sequential 1 MiB write", kind=IOKind.WRITE)
RANDOM_WRITE = RANDOM(
    name="random 16 KiB write, QD 32", kind=IOKind.WRITE, block_bytes=16 * KIB, depths=(32,)
)
CASES = (
    READ,
    WRITE,
    RANDOM(name="random 4 KiB read, QD 32", kind=IOKind.READ, block_bytes=4 * KIB, depths=(32,)),
    RANDOM(name="random 4 KiB read, QD 128", kind=IOKind.READ, block_bytes=4 * KIB, depths=(128,)),
    RANDOM_WRITE,
)

HOT_BYTES = 256 * MIB
RESIDENT_LEAST = 0.99
"""A kernel that reclaims idle memory (DAMON) takes a page here and there, which does not matter."""
HOT = RANDOM(
    name="hot page cache, random 4 KiB read",
    kind=IOKind.READ,
    block_bytes=4 * KIB,
    depths=(32, 128),
    direct=False,
    goal=None,
)


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare speed and CPU time of each case with fio's, and verified with unverified reads."""
    with written_files(target, FILE_COUNT, FILE_BYTES) as files:
        for case in CASES:
            yield against_fio(case, files)
        yield _verification(files)


def against_fio(
    case: Case, files: Sequence[Path], wrapped: Callable[[Way], Way] = lambda way: way
) -> Comparison:
    """Compare speed and CPU time per operation with fio's; ``wrapped`` adds figures to both."""
    notes: list[str] = []
    ours = {job.depth: job for job in case.ours(files)}
    sides = {
        f"{ours[theirs.depth].shown()} ÷ {theirs.shown()}": (ours[theirs.depth], theirs)
        for theirs in case.fios(files)
    }
    tried = {name: wrapped(theirs) for name, (_, theirs) in sides.items()}
    chosen = choice(tried, "bytes_per_s", notes)

    def ours_at_its_depth() -> Figures:
        return wrapped(sides[chosen()][0])()

    def fastest_of_fio() -> Figures:
        return tried[chosen()]()

    speed = bytes_per_s if case.order is IOOrder.SEQUENTIAL else operations_per_s
    return Comparison(
        rows=(
            speed(name=f"{case.name} ÷ fio", goal=case.goal),
            cpu_per_operation(name=f"{case.name}, CPU ÷ fio's"),
        ),
        ways={OURS: ours_at_its_depth, FIO: fastest_of_fio},
        warm=not case.direct,
        notes=notes,
    )


def _verification(files: Sequence[Path]) -> Comparison:
    """Compare every block that is read with its stamp and its sum.

    The blocks of these files are not sealed; finding that out takes as long.
    """
    plain = READ.ours(files)[1]
    return Comparison(
        rows=(
            bytes_per_s(name="sequential 1 MiB read, verified ÷ not", goal=0.97),
            Row(
                name="sequential 1 MiB read, verified ÷ not, CPU",
                figure="cpu_s_per_byte",
                unit="CPU s per GB",
                scale=1e9,
            ),
        ),
        ways={"verified": replace(plain, is_verified=True), "not verified": plain},
    )


def ceilings(target: Path) -> Iterator[Comparison]:
    """Compare hot reads with fio's, then measure the engine on memory and on nothing."""
    with written_files(target, 1, HOT_BYTES) as (path,):
        path.read_bytes()

        def resident(way: Way) -> Way:
            return lambda: _resident(path, way())

        yield against_fio(HOT, [path], resident)
    for backend, goal in (("memory", None), ("null", 10.0)):
        job = replace(
            HOT.ours([Path(f"/{backend}")])[1], direct=True, backend=backend, nominal_bytes=GIB
        )
        yield Comparison(
            rows=(operations_per_s(name=f"engine on {backend}, 4 KiB", goal=goal),),
            ways={backend: job},
            warm=True,
            notes=[job.shown()],
        )


def _resident(path: Path, figures: Figures) -> Figures:
    found = resident_fraction([path])
    if found is None or found < RESIDENT_LEAST:
        raise NotMeasuredError(f"the file left the page cache (resident: {found})")
    return figures
