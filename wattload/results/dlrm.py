"""The results of dlrm: click logs, converted to training data in rounds of several phases."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from wattload.core.base_models import Frozen
from wattload.core.record.results import Better
from wattload.core.units import Unit
from wattload.results.checks import Observed, written_extents
from wattload.results.facts import Facts, Settings, divided, fact
from wattload.results.facts import Run as AnyRun
from wattload.results.figures import Figure
from wattload.results.quantity import percent
from wattload.results.registry import Results
from wattload.results.view import View, WorkerShares

TO_PARQUET = "tsv_to_parquet"
TO_BINARY = "parquet_to_binary"
TO_ROWS = "tsv_to_binary"
NUMBER_IDS = "number_ids"
SCATTER_ROWS = "scatter_rows"
SHUFFLE_ROWS = "shuffle_rows"
FORMS = {
    TO_PARQUET: ("TSV", "Parquet"),
    TO_BINARY: ("Parquet", "packed rows"),
    TO_ROWS: ("TSV", "packed rows"),
    NUMBER_IDS: ("ids", "their numbers"),
    SCATTER_ROWS: ("packed rows", "rows by bucket"),
    SHUFFLE_ROWS: ("rows by bucket", "shuffled rows"),
}
"""What a phase makes of what."""
NO_SCHEDSTAT = "the kernel has no /proc/self/schedstat"


class DlrmSettings(Settings):
    """The settings of the workload that are read here."""

    rounds: int


class PhaseWork(Frozen):
    """The work of one phase over all rounds and ranks.

    ``kept_count`` of its parts were finished by an earlier start; nothing else counts them.
    """

    cpu_s: float = fact("CPU time of the workers", "s", ge=0)
    unpack_cpu_s: float = fact("that of their threads that unpack gz", "s", ge=0)
    task_s: float = fact("time that workers had a task", "s", ge=0)
    run_queue_s: float | None = fact("time that they waited for a core; None: unknown", "s", ge=0)
    peak_bytes: int = fact("largest resident memory of a worker", "B", ge=0)
    part_count: int = fact("parts of the work: day files, columns, buckets", ge=0)
    kept_count: int = fact("parts that an earlier start had finished", ge=0)


class DlrmFacts(Facts):
    """The facts of a conversion."""

    settings: DlrmSettings = fact("of the workload", exclude=True)
    workers: int = fact("worker processes of all ranks", ge=1)
    tsv_bytes: int = fact("TSV of a round, unpacked", "B", ge=0)
    gz_bytes: int = fact("size of the gz files that have some or all of it", "B", ge=0)
    row_count: int = fact("rows of a round", ge=0)
    dropped_count: int = fact("lines of a round that were no rows, and were left out", ge=0)
    category_sizes: tuple[int, ...] = fact("rows of the embedding table of each numbered column")
    rare_id_counts: tuple[int, ...] = fact("ids of each numbered column that share a number")
    spilled_bytes: int = fact("ids of a round that memory had no room for", "B", ge=0)
    ceiling_bytes_per_s: float = fact("TSV rate of all workers from memory", "B/s", ge=0)
    phases: Mapping[str, PhaseWork] = fact("the phases of a round, in their order")


Run = AnyRun[DlrmFacts]


def seconds(run: Run, phase: str) -> float:
    """Return the seconds of a phase in all rounds: from the first rank's start to the last's end.

    Without a phase, of all phases.
    """
    names = [phase] if phase else run.facts.phases
    return sum(each.active_s for each in map(run.joined, names) if each is not None)


def _round_s(run: Run, phase: str) -> float:
    return seconds(run, phase) / run.facts.settings.rounds


def _works(run: Run, phase: str) -> Sequence[PhaseWork]:
    return [run.facts.phases[phase]] if phase else list(run.facts.phases.values())


def _cpu_s(run: Run, phase: str) -> float:
    return sum(work.cpu_s for work in _works(run, phase))


def _moved_tsv_bytes(run: Run) -> int:
    return run.facts.tsv_bytes * run.facts.settings.rounds


def _kept_text(run: Run, phase: str) -> str:
    """Return why there is no figure of a phase; empty if this start did all of its work."""
    works = _works(run, phase)
    kept = sum(work.kept_count for work in works)
    parts = sum(work.part_count for work in works)
    return f"{kept} of {parts} files were finished by an earlier start" if kept else ""


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """How the workers spent their time in a phase, in seconds of all of them.

    ``on_core`` is CPU time, ``for_core`` the time waiting for a core, ``for_storage`` the rest of
    the time of tasks (reads, writes, fsync), and ``idle`` the time without a task. Threads that
    unpack gz are not in it.
    """

    on_core: float
    for_core: float
    for_storage: float
    idle: float
    whole: float


def worker_times(run: Run, phase: str) -> WorkerTimes | None:
    """Return how the workers spent their time; ``None`` if it is unknown."""
    work = run.facts.phases[phase]
    if work.run_queue_s is None or work.kept_count:
        return None
    whole = run.facts.workers * seconds(run, phase)
    on_core = max(work.cpu_s - work.unpack_cpu_s, 0.0)
    for_storage = max(work.task_s - on_core - work.run_queue_s, 0.0)
    idle = max(whole - on_core - work.run_queue_s - for_storage, 0.0)
    return WorkerTimes(on_core, work.run_queue_s, for_storage, idle, whole)


def worker_shares(run: Run, phases: Sequence[str]) -> WorkerShares | None:
    """Return the shares of the workers' time in phases; ``None`` if they are unknown."""
    known = [worker_times(run, phase) for phase in phases if phase in run.facts.phases]
    times = [each for each in known if each is not None]
    whole = sum(each.whole for each in times)
    if len(times) < len(known) or not whole:
        return None
    return WorkerShares(
        on_core=sum(each.on_core for each in times) / whole,
        for_core=sum(each.for_core for each in times) / whole,
        for_storage=sum(each.for_storage for each in times) / whole,
    )


def _figure(
    name: str,
    of: Callable[[Run], float | None],
    unit: Unit,
    better: Better,
    meaning: str,
    *,
    phase: str = "",
    label: str = "",
    headline: bool = False,
    reason: str = "the phases took no time",
) -> Figure[DlrmFacts]:
    """Return a figure without a value if an earlier start did a part of the phase, or of any."""
    return Figure(
        name=name,
        of=lambda run: None if _kept_text(run, phase) else of(run),
        unit=unit,
        better=better,
        meaning=meaning,
        phase=phase,
        label=label,
        headline=headline,
        reason=lambda run: _kept_text(run, phase) or reason,
    )


def _phase_figures(run: Run) -> Iterator[Figure[DlrmFacts]]:
    for phase in run.facts.phases:
        yield from _figures_of(phase)


def _figures_of(phase: str) -> Iterator[Figure[DlrmFacts]]:
    source, result = FORMS[phase]
    yield _figure(
        f"{phase}_s", lambda run: _round_s(run, phase), Unit.SECONDS, "lower",
        f"Seconds from {source} to {result}, including fsync; mean over the rounds.", phase=phase,
    )  # fmt: skip
    yield _figure(
        f"{phase}_input_bytes_per_s",
        lambda run: divided(sum(each.read_bytes for each in run.windows(phase)),
                            seconds(run, phase)),
        Unit.BYTES_PER_SECOND, "higher",
        f"Bytes of {source} moved, divided by the seconds of the phase.",
        phase=phase,
    )  # fmt: skip
    yield _figure(
        f"{phase}_output_bytes_per_s",
        lambda run: divided(sum(each.written_bytes for each in run.windows(phase)),
                            seconds(run, phase)),
        Unit.BYTES_PER_SECOND, "higher",
        f"Bytes of {result} moved, divided by the seconds of the phase.",
        phase=phase,
    )  # fmt: skip
    yield _figure(
        f"{phase}_tsv_bytes_per_cpu_s",
        lambda run: divided(_moved_tsv_bytes(run), _cpu_s(run, phase)) or 0.0,
        Unit.BYTES_PER_SECOND, "higher",
        "TSV bytes per CPU second of the workers: the rate of one core.", phase=phase,
    )  # fmt: skip
    meanings = {
        "on_core": "computing",
        "for_core": "waiting for a core",
        "for_storage": "waiting for reads, writes and fsync",
        "idle": "without a task",
    }
    for name, doing in meanings.items():
        yield _figure(
            f"{phase}_worker_{name}_fraction", _share(phase, name), Unit.FRACTION, "neither",
            f"Share of the workers' time {doing}.", phase=phase, reason=NO_SCHEDSTAT,
        )  # fmt: skip


def _share(phase: str, name: str) -> Callable[[Run], float | None]:
    def of(run: Run) -> float | None:
        times = worker_times(run, phase)
        return None if times is None else divided(getattr(times, name), times.whole)

    return of


FIGURES = (
    _figure(
        "conversion_s", lambda run: _round_s(run, ""), Unit.SECONDS, "lower",
        "Seconds from TSV to packed rows on the target, all phases; mean over the rounds.",
        headline=True,
    ),
    _figure(
        "tsv_bytes_per_s", lambda run: divided(_moved_tsv_bytes(run), seconds(run, "")),
        Unit.BYTES_PER_SECOND, "higher",
        "TSV bytes converted, divided by the seconds of all phases.", headline=True,
    ),
    _figure(
        "rows_per_s", lambda run: divided(run.facts.row_count, _round_s(run, "")),
        Unit.SAMPLES_PER_SECOND, "higher", "Rows divided by the seconds of all phases.",
        label="rows per second",
    ),
    _figure(
        "cpu_s_per_byte", lambda run: divided(_cpu_s(run, ""), _moved_tsv_bytes(run)),
        Unit.SECONDS_PER_BYTE, "lower", "CPU seconds of the workers per TSV byte, all phases.",
    ),
    Figure[DlrmFacts](
        name="harness_ceiling_bytes_per_s", of=lambda run: run.facts.ceiling_bytes_per_s,
        unit=Unit.BYTES_PER_SECOND, better="higher",
        meaning="TSV bytes per second of all workers in parallel, from memory.",
    ),
    Figure[DlrmFacts](
        name="worker_peak_bytes",
        of=lambda run: max(work.peak_bytes for work in run.facts.phases.values()),
        unit=Unit.BYTES, better="lower", meaning="Largest resident memory of any worker.",
    ),
    lambda run: list(_phase_figures(run)),
)  # fmt: skip


def _observed(name: str, fault: str, *, phase: str = "") -> Observed[DlrmFacts]:
    """Return the declaration of a check of runs with a phase; without one, of all runs."""
    return Observed(
        name=name, fault=fault, applies=lambda run: not phase or phase in run.facts.phases
    )


OBSERVED = (
    *(
        _observed(
            f"cold_cache_{phase}",
            "the page cache held parts of the files before the phase",
            phase=phase,
        )
        for phase in FORMS
    ),
    written_extents(),
    _observed("data_digests", "the day files changed while they were converted"),
    _observed(
        "dlrm_content",
        "the drive returned other bytes than the files have, or kept others than were written",
    ),
    _observed("dlrm_rows", "the conversion lost or doubled a row"),
    _observed("dlrm_sample", "the conversion made another value of a field"),
    _observed("dlrm_tsv_bytes", "a part of the day files was skipped or read twice"),
    _observed(
        "dlrm_numbers",
        "an id has two numbers, or one that is not that of its frequency",
        phase=NUMBER_IDS,
    ),
    _observed("dlrm_shuffle", "the shuffle lost, doubled or changed a row", phase=SHUFFLE_ROWS),
)


def _lines(run: Run) -> Mapping[str, str]:
    """Return how the workers spent their time, for a terminal."""
    shares = worker_shares(run, list(run.facts.phases))
    if shares is None:
        return {}
    on_core, for_core, for_storage = (
        percent(share, 2) for share in (shares.on_core, shares.for_core, shares.for_storage)
    )
    return {
        "workers": f"{on_core} of their time on a core, {for_core} waiting for one, {for_storage} "
        "waiting for storage"
    }


RESULTS = Results(
    name="dlrm",
    facts=DlrmFacts,
    figures=FIGURES,
    observed=OBSERVED,
    view=View[DlrmFacts](
        title="DLRM",
        work=lambda run, _: ("round", float(run.facts.settings.rounds)),
        workers=worker_shares,
        lines=_lines,
    ),
)
