"""The I/O engine against fio: sequential and random O_DIRECT I/O on the same files.

Both sides first try their settings. Then fio's fastest meets ours of the least CPU time that
reaches the goal, and fio meets itself.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks import engine_child, fio
from benchmarks.files import written_files
from benchmarks.measure import NotMeasuredError, Result, Rounds, rounds
from benchmarks.taken import Taken
from wattload.core.io import IOKind, IOOrder
from wattload.core.units import KIB, MIB

FILE_COUNT = 4
FILE_BYTES = 512 * MIB
SECONDS = 1.5
TRIALS = 5
"""Rounds in which the settings of both sides are tried; nothing of them is judged."""
SETUP_S = 0.6
"""Wall seconds that a run takes beside its timed part, for the estimate."""

OURS, FIO, AGAIN = "wattload", "fio", "fio again"
VERIFIED, AGAIN_OURS = "wattload, verified", "wattload again"
VERIFICATION = ("sequential 1 MiB read, verified ÷ not", "verification of every byte, CPU added")

Job = engine_child.Job | fio.Job


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kind of I/O: what is asked of it, and the settings that each side may choose from."""

    name: str
    kind: IOKind
    order: IOOrder
    block_bytes: int
    depths: Sequence[int]
    batches: Sequence[int] = (1,)
    direct: bool = True
    goal: float = 0.98

    @property
    def job_count(self) -> int:
        """How many settings are tried, of both sides."""
        return len(self.depths) * (1 + len(self.batches))

    def ours(self, files: Sequence[Path]) -> dict[str, engine_child.Job]:
        return {
            f"{OURS} QD {depth}": engine_child.Job(
                kind=self.kind,
                order=self.order,
                files=files,
                block_bytes=self.block_bytes,
                depth=depth,
                seconds=SECONDS,
                direct=self.direct,
            )
            for depth in self.depths
        }

    def fios(self, files: Sequence[Path]) -> dict[str, fio.Job]:
        return {
            f"{FIO} QD {depth} batch {batch}": fio.Job(
                kind=self.kind,
                order=self.order,
                files=files,
                block_bytes=self.block_bytes,
                depth=depth,
                batch=batch,
                seconds=SECONDS,
                direct=self.direct,
            )
            for depth in self.depths
            for batch in self.batches
        }


READ, WRITE = IOKind.READ, IOKind.WRITE
SEQUENTIAL, RANDOM = IOOrder.SEQUENTIAL, IOOrder.RANDOM
BATCHES = (1, 8, 32)
DEPTHS = (8, 32, 64)

CASES = (
    Case(
        name="sequential 1 MiB read",
        kind=READ,
        order=SEQUENTIAL,
        block_bytes=MIB,
        depths=DEPTHS,
        batches=(1, 8),
    ),
    Case(
        name="sequential 1 MiB write",
        kind=WRITE,
        order=SEQUENTIAL,
        block_bytes=MIB,
        depths=DEPTHS,
        batches=(1, 8),
    ),
    Case(
        name="random 4 KiB read, QD 32",
        kind=READ,
        order=RANDOM,
        block_bytes=4 * KIB,
        depths=(32,),
        batches=BATCHES,
    ),
    Case(
        name="random 4 KiB read, QD 128",
        kind=READ,
        order=RANDOM,
        block_bytes=4 * KIB,
        depths=(128,),
        batches=BATCHES,
    ),
    Case(
        name="random 16 KiB write, QD 32",
        kind=WRITE,
        order=RANDOM,
        block_bytes=16 * KIB,
        depths=(32,),
        batches=BATCHES,
    ),
)


def seconds(pairs: int) -> float:
    runs = sum(TRIALS * case.job_count + 3 * pairs for case in CASES)
    return 10 + (runs + 3 * pairs) * (SECONDS + SETUP_S)


def measure(target: Path, pairs: int) -> Iterator[Result]:
    """Yield speed and CPU time of each case, as ratios to fio's."""
    with written_files(target, FILE_COUNT, FILE_BYTES) as files:
        for case in CASES:
            yield from compare(case, files, pairs)
        yield from verification(files, pairs)


def verification(files: Sequence[Path], pairs: int) -> list[Result]:
    """Return what it costs to compare every block that is read with its stamp and its sum.

    The blocks of these files are not sealed; finding that out takes as long.
    """
    plain = engine_child.Job(
        kind=READ, order=SEQUENTIAL, files=files, block_bytes=MIB, depth=32, seconds=SECONDS
    )
    verified = replace(plain, is_verified=True)
    ways = {VERIFIED: verified.take, OURS: plain.take, AGAIN_OURS: plain.take}
    try:
        taken = rounds(ways, pairs)
    except NotMeasuredError as error:
        return [Result(name=name, unit="", missing=str(error)) for name in VERIFICATION]
    cost = taken.values(Taken.cpu_s_per_gb)
    added = [high - low for high, low in zip(cost[VERIFIED], cost[OURS], strict=True)]
    return [
        Result(
            name=VERIFICATION[0],
            unit="GB/s",
            goal=0.97,
            values=taken.ratios(Taken.bytes_per_s, VERIFIED, OURS),
            noise=taken.ratios(Taken.bytes_per_s, AGAIN_OURS, OURS),
            figures=taken.values(Taken.gb_per_s),
            order=taken.order,
            raw=taken.as_json(Taken.as_json),
        ),
        Result(
            name=VERIFICATION[1],
            unit="CPU s per GB",
            values=added,
            value_unit="CPU s per GB",
            figures=cost,
            order=taken.order,
        ),
    ]


def compare(case: Case, files: Sequence[Path], pairs: int) -> list[Result]:
    """Return the ratios to fio of a case's speed and of its CPU time per byte or operation."""
    ours, fios = case.ours(files), case.fios(files)
    try:
        trials = rounds({name: job.take for name, job in (ours | fios).items()}, TRIALS)
        fio_best = fastest(trials.figures, fios)
        floor = case.goal * median_speed(trials.figures[fio_best])
        our_best = cheapest(trials.figures, ours, floor)
        yardstick = fios[fio_best].take
        ways = {OURS: ours[our_best].take, FIO: yardstick, AGAIN: yardstick}
        taken = rounds(ways, pairs, warm=not case.direct)
        notes = [f"{case.name}: {our_best} against {fio_best}, `{fios[fio_best].shown()}`"]
        return _results(case, taken, trials, notes)
    except NotMeasuredError as error:
        return _missing(case, str(error))


def fastest(figures: Mapping[str, Sequence[Taken]], names: Iterable[str]) -> str:
    return max(names, key=lambda name: median_speed(figures[name]))


def cheapest(figures: Mapping[str, Sequence[Taken]], names: Iterable[str], floor: float) -> str:
    """Return the setting of the least CPU time among those that reach ``floor``, in bytes/s.

    All by their medians. If none reaches it, the fastest is returned.
    """
    fast = [name for name in names if median_speed(figures[name]) >= floor]
    if not fast:
        return fastest(figures, names)
    return min(fast, key=lambda name: statistics.median(map(Taken.cpu_s_per_gb, figures[name])))


def median_speed(taken: Sequence[Taken]) -> float:
    return statistics.median(map(Taken.bytes_per_s, taken))


def _results(
    case: Case, taken: Rounds[Taken], trials: Rounds[Taken], notes: Sequence[str]
) -> list[Result]:
    speed, speed_unit = _speed(case)
    cost, cost_unit = _cost(case)
    raw = {"trials": trials.as_json(Taken.as_json), "pairs": taken.as_json(Taken.as_json)}
    return [
        Result(
            name=f"{case.name} ÷ fio",
            unit=speed_unit,
            goal=case.goal,
            values=taken.ratios(speed, OURS, FIO),
            noise=taken.ratios(speed, AGAIN, FIO),
            figures=taken.values(speed),
            order=taken.order,
            raw=raw,
            notes=notes,
        ),
        Result(
            name=f"{case.name}, CPU ÷ fio's",
            unit=cost_unit,
            goal=1.0,
            sense="at_most",
            values=taken.ratios(cost, OURS, FIO),
            noise=taken.ratios(cost, AGAIN, FIO),
            figures=taken.values(cost),
            order=taken.order,
        ),
    ]


def _missing(case: Case, reason: str) -> list[Result]:
    return [
        Result(name=f"{case.name} ÷ fio", unit="", goal=case.goal, missing=reason),
        Result(
            name=f"{case.name}, CPU ÷ fio's", unit="", goal=1.0, sense="at_most", missing=reason
        ),
    ]


def _speed(case: Case) -> tuple[Callable[[Taken], float], str]:
    if case.order is SEQUENTIAL:
        return Taken.gb_per_s, "GB/s"
    return Taken.million_per_s, "M/s"


def _cost(case: Case) -> tuple[Callable[[Taken], float], str]:
    if case.order is SEQUENTIAL:
        return Taken.cpu_s_per_gb, "CPU s per GB"
    return Taken.cpu_s_per_million, "CPU s per million"
