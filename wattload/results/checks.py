"""Checks: figures of a run, what they must be, and the sentence about them, in one declaration.

A check compares two things that were counted by different means, and names the fault that makes
them differ. One that follows from a run's facts is evaluated whenever its record is read. One that
can only be made while a run lasts, such as of the page cache, is stored by the run, and declared
here as ``Observed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, Literal

from wattload.core.checks.io import path_check
from wattload.core.record.results import Check, Verdict
from wattload.results.facts import F, Run

CheckFigures = Mapping[str, float | int | str | None]

CheckSource = Callable[[Run[F]], Iterable[Check]]
"""Returns checks of a run: a ``CheckRule``, or a function that makes several."""


def passes(holds: bool, otherwise: Verdict = "fail") -> Verdict:
    return "pass" if holds else otherwise


@dataclass(frozen=True, kw_only=True)
class CheckRule(Generic[F]):
    """One check that follows from the facts of a run.

    ``fault`` is what makes it fail or warn. ``judge`` returns the verdict that ``figures`` support,
    ``sentence`` words both. Runs that it does not apply to have no such check.
    """

    name: str
    fault: str
    figures: Callable[[Run[F]], CheckFigures]
    judge: Callable[[CheckFigures], Verdict]
    sentence: Callable[[CheckFigures, Verdict], str]
    mandatory: bool | Callable[[Run[F]], bool] = False
    applies: Callable[[Run[F]], bool] = lambda _: True

    def __call__(self, run: Run[F]) -> Iterator[Check]:
        """Yield the check of a run that it applies to."""
        if not self.applies(run):
            return
        figures = self.figures(run)
        verdict = self.judge(figures)
        yield Check(
            name=self.name,
            verdict=verdict,
            sentence=self.sentence(figures, verdict),
            figures=dict(figures),
            mandatory=self.mandatory if isinstance(self.mandatory, bool) else self.mandatory(run),
        )


@dataclass(frozen=True, kw_only=True)
class Observed(Generic[F]):
    """A check that a complete run makes while it lasts, and stores.

    ``fault`` is what makes it fail. A run that it applies to and that lacks it gets no verdict. One
    that could not be made bars the verdict too, unless it is ``optional``, such as one that a file
    system can't answer.
    """

    name: str
    fault: str
    optional: bool = False
    applies: Callable[[Run[F]], bool] = lambda _: True


def cold_cache(applies: Callable[[Run[F]], bool] = lambda _: True) -> Observed[F]:
    """Return the declaration of ``loaders.data.cold_cache.cold_cache_check``."""
    return Observed(
        name="cold_cache",
        fault="data was in the page cache before it was read, so the drive was not",
        optional=True,
        applies=applies,
    )


def written_extents(applies: Callable[[Run[F]], bool] = lambda _: True) -> Observed[F]:
    """Return the declaration of ``core.checks.io.written_extents_check``."""
    return Observed(
        name="written_extents",
        fault="files have holes or unwritten extents, which are read without the drive",
        optional=True,
        applies=applies,
    )


COUNT_TOLERANCE = 0.02
"""What a loader may have read ahead, and not delivered, at the end of a phase."""


def counted_bytes(
    phase: str | Callable[[Run[F]], str],
    kind: Literal["read", "written"],
    delivered: Callable[[Run[F]], int],
    applies: Callable[[Run[F]], bool] = lambda _: True,
) -> CheckSource[F]:
    """Return the check of the bytes of a loader's results against those counted as they moved.

    The fault: operations that ended were not counted in their phase, or were counted twice.
    """

    def check(run: Run[F]) -> Iterator[Check]:
        name = phase if isinstance(phase, str) else phase(run)
        moved_bytes = run.record.moved_bytes(name, kind)
        if not applies(run) or not moved_bytes:
            return
        delivered_bytes = delivered(run)
        holds = abs(delivered_bytes / moved_bytes - 1) <= COUNT_TOLERANCE
        yield Check(
            name=f"counted_bytes_{name}",
            verdict=passes(holds),
            sentence=f"{delivered_bytes} bytes were {kind} by the loader's results, and "
            f"{moved_bytes} counted as they moved.",
            figures={"delivered_bytes": delivered_bytes, "moved_bytes": moved_bytes},
        )

    return check


def counted_latencies(
    phase: str | Callable[[Run[F]], str], operations: Callable[[Run[F]], int]
) -> CheckSource[F]:
    """Return the check of the number of latencies of reads against the reads counted apart.

    The fault: the latency of a read is in no bucket of the histogram, or in two.
    """

    def check(run: Run[F]) -> Iterator[Check]:
        name = phase if isinstance(phase, str) else phase(run)
        rows = [each for each in run.record.latencies if (each.phase, each.kind) == (name, "read")]
        if not rows:
            return
        timed, counted = sum(row.count for row in rows), operations(run)
        yield Check(
            name=f"counted_latencies_{name}",
            verdict=passes(timed == counted),
            sentence=f"The histogram has the latencies of {timed:,} reads; {counted:,} were "
            "counted.",
            figures={"latencies": timed, "operations": counted},
        )

    return check


CPU_TOLERANCE, CPU_TOLERANCE_S = 0.05, 0.5
"""How far CPU times of processes, which tick, may be apart: of the whole, and by rank."""


def cpu_within_tree(
    phase: str | Callable[[Run[F]], str], cpu_s: Callable[[Run[F]], float]
) -> CheckSource[F]:
    """Return the check of the readers' CPU time against that of the whole trees of processes.

    The fault: CPU time was counted twice, or in another unit or time than that of the phase.
    """

    def check(run: Run[F]) -> Iterator[Check]:
        name = phase if isinstance(phase, str) else phase(run)
        windows = run.windows(name)
        tree_s, own_s = sum(each.cpu_s for each in windows), cpu_s(run)
        if not tree_s:
            return
        spare_s = CPU_TOLERANCE * tree_s
        spare_s += sum(
            (CPU_TOLERANCE * each.seconds + CPU_TOLERANCE_S) * each.rank_count for each in windows
        )
        holds = own_s <= tree_s + spare_s
        yield Check(
            name=f"cpu_time_{name}",
            verdict=passes(holds),
            sentence=f"Reading took {own_s:.2f} CPU seconds of the {tree_s:.2f} of all processes"
            + ("." if holds else ": it can't be more."),
            figures={"cpu_s": own_s, "tree_cpu_s": tree_s},
        )

    return check


def counted_path(applies: Callable[[Run[F]], bool]) -> Observed[F]:
    """Return the declaration of ``data_path``, which a run has if its paths have counts."""
    return Observed(
        name="data_path", fault="nothing counted by which path reads came", applies=applies
    )


def data_path(
    operations: Callable[[Run[F]], int],
    block_bytes: Callable[[Run[F]], int | None],
    must_be_direct: Callable[[Run[F]], bool] = lambda _: False,
) -> CheckSource[F]:
    """Return the checks of paths by their counts, of so many timed reads of whole blocks.

    The fault: reads took another path than the one that the record names, or than a loader asked
    for that has to get it.
    """

    def checks(run: Run[F]) -> Iterator[Check]:
        for path in run.record.workload.paths:
            if path.counts is not None:
                yield path_check(
                    path.counts,
                    operations=operations(run),
                    block_bytes=block_bytes(run),
                    must_be_direct=must_be_direct(run),
                )

    return checks
