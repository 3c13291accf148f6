"""Random reads of 4 KiB with 512 in flight against fio: verified, not verified, and as a whole run.

A run of ``gpu_random_read`` compares the stamp and the sum of every block. fio does the same with
``verify=crc32c``. The engine and fio are also compared without it, which shows what it costs each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import engine_job, fio
from benchmarks.child import scratch, written_files
from benchmarks.engine import (
    FIO,
    OURS,
    RANDOM,
    against_fio,
    cpu_per_operation,
    operations_per_s,
)
from benchmarks.measure import Comparison, Figures, Way, fastest
from benchmarks.wattload_run import Run
from wattload.core.io import IOKind
from wattload.core.units import KIB, MIB

FILE_BYTES = 512 * MIB
CASE = RANDOM(
    name="random 4 KiB read, QD 512", kind=IOKind.READ, block_bytes=4 * KIB, depths=(512,)
)
FIO_VERIFIED = f"{FIO}, {fio.CHECKSUM}"


def comparisons(target: Path) -> Iterator[Comparison]:
    """Compare the engine with fio, then verified reads of both, then a whole run with fio."""
    with written_files(target, 1, FILE_BYTES) as files, scratch(target) as folder:
        yield against_fio(replace(CASE, name=f"{CASE.name}, not verified"), files)
        plain = CASE.ours(files)[0]
        verified: dict[str, Way] = {f"{OURS}, verified": replace(plain, is_verified=True)}
        yield _compare("verified ÷ not", {**verified, OURS: plain}, goal=None)
        sealed = folder / "sealed.bin"
        fio.seal(sealed, FILE_BYTES, CASE.block_bytes)
        notes: list[str] = []
        jobs = CASE.fios([sealed])
        theirs = _fastest([replace(job, is_verified=True) for job in jobs], notes)
        ways: dict[str, Way] = {**verified, FIO_VERIFIED: theirs}
        yield _compare(f"verified ÷ fio with verify={fio.CHECKSUM}", ways, notes=notes)
        ways = {FIO_VERIFIED: theirs, FIO: _fastest(jobs, notes)}
        yield _compare(f"fio with verify={fio.CHECKSUM} ÷ fio", ways, goal=None, notes=notes)
        run = Run(_options(folder))
        notes = [run.shown()]
        ways = {"loader=direct": partial(_whole, run), FIO: _fastest(jobs, notes)}
        yield _compare("a verified run ÷ fio", ways, goal=None, notes=notes)


def _compare(
    name: str, ways: dict[str, Way], *, goal: float | None = 0.98, notes: Sequence[str] = ()
) -> Comparison:
    """Compare the rate and the CPU time per read; without a ``goal`` both only inform."""
    return Comparison(
        rows=(
            operations_per_s(name=f"{CASE.name}, {name}", goal=goal),
            cpu_per_operation(name=f"{CASE.name}, {name}, CPU", goal=goal and 1.0),
        ),
        ways=ways,
        notes=notes,
    )


def _fastest(jobs: Sequence[engine_job.Job | fio.Job], notes: list[str]) -> Way:
    return fastest({job.shown(): job for job in jobs}, "operations_per_s", notes)


def _options(folder: Path) -> list[str]:
    return [
        *("workload=gpu_random_read", "loader=direct", f"workload.file_bytes={FILE_BYTES}"),
        *(f"workload.block_bytes={CASE.block_bytes}", f"workload.requesters={CASE.depths[0]}"),
        *("workload.duration_s=1.5", "power=none", f"target.path={folder}"),
    ]


def _whole(run: Run) -> Figures:
    """Return the rate and the CPU time of the reads of a whole run."""
    figures = run()
    return {
        "operations_per_s": figures["reads_per_s"],
        "cpu_s_per_operation": figures["cpu_s_per_million_reads"] / 1e6,
    }
