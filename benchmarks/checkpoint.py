"""Checkpoints by the direct loader: against fio's sequential write, torch.save and dcp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks import engine, jobs
from benchmarks.files import new_files
from benchmarks.measure import NotMeasuredError, Result, Rounds, rounds
from wattload.core.units import MIB

SCALE = "quick"
CHECKPOINT_COUNT = 2
FILE_COUNT = 2
FILE_BYTES = 512 * MIB
INFORMATION_PAIRS = 3
RUN_S = 8.0
"""About how long a run takes, its start included, for the estimate."""

OURS, FIO, AGAIN = "direct", "fio", "fio again"
WRITE_RATE = jobs.of("write_bytes_per_s", 1e-9)
GENERATOR_RATE = jobs.of("generator_ceiling_bytes_per_s", 1e-9)
PEAK_MB = jobs.of(jobs.PEAK_MEMORY, 1e-6)

FIO_CASE = engine.CASES[1]


def seconds(pairs: int) -> float:
    fio_runs = 2 * pairs + engine.TRIALS * len(FIO_CASE.depths) * len(FIO_CASE.batches)
    runs = 3 * pairs + 2 * INFORMATION_PAIRS + 4
    return 10 + fio_runs * (engine.SECONDS + engine.SETUP_S) + runs * RUN_S


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield speed, memory and the generator's ceiling, then the ratios to other libraries."""
    options = _options(target)
    with new_files(target, FILE_COUNT) as files:
        yield from _against_fio(options, files, pairs)
    yield _against("torch", options, pairs, goal=3.0)
    yield _against("dcp", options, min(pairs, INFORMATION_PAIRS), goal=None)


def _options(target: Path) -> list[str]:
    return [
        *("workload=checkpoint", f"scale={SCALE}"),
        f"workload.checkpoint_count={CHECKPOINT_COUNT}",
        *("power=none", f"target.path={target}"),
    ]


def _against_fio(options: Sequence[str], files: Sequence[Path], pairs: int) -> list[Result]:
    empties = [
        Result(name="checkpoint direct ÷ fio's sequential write", unit="GB/s", goal=0.95),
        Result(name="resident memory per rank", unit="MB", goal=256, sense="at_most"),
        Result(name="checkpoint generator, one thread", unit="GB/s", goal=4.0),
    ]
    fios = {name: replace(job, new_bytes=FILE_BYTES) for name, job in FIO_CASE.fios(files).items()}
    direct = [*options, f"loader={OURS}"]
    try:
        trials = rounds({name: job.take for name, job in fios.items()}, engine.TRIALS)
        job = fios[engine.fastest(trials.figures, fios)]

        def fio_rate() -> jobs.Figures:
            return {"write_bytes_per_s": job.take().bytes_per_s()}

        ways: dict[str, jobs.Take] = {
            OURS: partial(jobs.take, direct),
            FIO: fio_rate,
            AGAIN: fio_rate,
        }
        taken = rounds(ways, pairs)
        notes = [f"`wattload run {' '.join(direct)}`", f"`{job.shown()}`"]
        return _results(empties, taken, notes)
    except NotMeasuredError as error:
        return [replace(empty, missing=str(error)) for empty in empties]


def _results(
    empties: Sequence[Result], taken: Rounds[jobs.Figures], notes: Sequence[str]
) -> list[Result]:
    speed, memory, generator = empties
    ours = taken.figures[OURS]
    return [
        jobs.ratio(taken, WRITE_RATE, (OURS, FIO), replace(speed, notes=notes), AGAIN),
        replace(memory, values=[PEAK_MB(found) for found in ours], value_unit="MB"),
        replace(generator, values=[GENERATOR_RATE(found) for found in ours], value_unit="GB/s"),
    ]


def _against(loader: str, options: Sequence[str], pairs: int, *, goal: float | None) -> Result:
    note = f"`wattload run {' '.join(options)} loader=direct|{loader}`, {pairs} rounds"
    empty = Result(
        name=f"checkpoint write, direct ÷ {loader}", unit="GB/s", goal=goal, notes=[note]
    )
    try:
        taken = jobs.versus((OURS, loader), options, pairs)
        return jobs.ratio(taken, WRITE_RATE, (OURS, loader), empty)
    except NotMeasuredError as error:
        return replace(empty, missing=str(error))
