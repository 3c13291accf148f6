"""The metrics of a dlrm run: seconds, rates, and how the workers spent their time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from wattload.core.record.results import Metric, RateOf
from wattload.core.units import Unit, format_percent
from wattload.workloads.dlrm.conversion import (
    NUMBER_IDS,
    SCATTER_ROWS,
    SHUFFLE_ROWS,
    TO_BINARY,
    TO_PARQUET,
    TO_ROWS,
    Step,
)

_FORMS = {
    TO_PARQUET: ("TSV", "Parquet"),
    TO_BINARY: ("Parquet", "packed rows"),
    TO_ROWS: ("TSV", "packed rows"),
    NUMBER_IDS: ("ids", "their numbers"),
    SCATTER_ROWS: ("packed rows", "rows by bucket"),
    SHUFFLE_ROWS: ("rows by bucket", "shuffled rows"),
}
_OUTPUTS = {
    TO_PARQUET: "parquet_bytes",
    TO_BINARY: "packed_bytes",
    TO_ROWS: "packed_bytes",
    NUMBER_IDS: "numbered_bytes",
    SCATTER_ROWS: "scattered_bytes",
    SHUFFLE_ROWS: "shuffled_bytes",
}
"""What the record names the output of a phase."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """How the workers spent their time, as fractions of workers x seconds that sum to 1.

    ``on_core`` is CPU time and ``for_core`` the time waiting for a core. ``for_storage`` is the
    rest of a task's wall time (reads, writes, fsync), ``idle`` the time without a task.
    """

    on_core: float
    for_core: float
    for_storage: float
    idle: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTotal:
    """One phase over all rounds and ranks.

    ``seconds`` has one entry per round, by the slowest rank; ranks start together. Of its
    ``part_count`` parts, ``kept_count`` were finished by an earlier start, with their bytes;
    nothing else here counts them.
    """

    name: str
    seconds: tuple[float, ...]
    read_bytes: int
    written_bytes: int
    cpu_s: float
    unpack_cpu_s: float
    task_s: float
    run_queue_s: float | None
    peak_bytes: int
    part_count: int
    kept_count: int
    kept_read_bytes: int
    kept_written_bytes: int

    def shares(self, workers: int) -> Shares | None:
        """Return how ``workers`` spent their time; ``None`` without ``/proc/self/schedstat``.

        Their threads that unpack gz are not in it.
        """
        if self.run_queue_s is None:
            return None
        whole_s = workers * sum(self.seconds)
        cpu_s = max(self.cpu_s - self.unpack_cpu_s, 0.0)
        waited_s = max(self.task_s - cpu_s - self.run_queue_s, 0.0)
        busy_s = cpu_s + self.run_queue_s + waited_s
        return Shares(
            on_core=cpu_s / whole_s,
            for_core=self.run_queue_s / whole_s,
            for_storage=waited_s / whole_s,
            idle=max(1 - busy_s / whole_s, 0.0),
        )


def phase_total(name: str, ranks: Sequence[Sequence[Step]]) -> PhaseTotal:
    """Return the total of a phase from each rank's steps in the order of the rounds."""
    by_rank = [[step for step in steps if step.name == name] for steps in ranks]
    steps = [step for steps in by_rank for step in steps]
    costs = [cost for step in steps for cost in step.costs]
    queued = [cost.run_queue_s for cost in costs if cost.run_queue_s is not None]
    return PhaseTotal(
        name=name,
        seconds=tuple(
            max(step.seconds for step in round_) for round_ in zip(*by_rank, strict=True)
        ),
        read_bytes=sum(step.read_bytes for step in steps),
        written_bytes=sum(step.written_bytes for step in steps),
        cpu_s=sum(cost.cpu_s for cost in costs),
        unpack_cpu_s=sum(step.unpack_cpu_s for step in steps),
        task_s=sum(cost.wall_s for cost in costs),
        run_queue_s=sum(queued) if len(queued) == len(costs) else None,
        peak_bytes=max((cost.peak_bytes for cost in costs), default=0),
        part_count=len(costs) + sum(step.kept_count for step in steps),
        kept_count=sum(step.kept_count for step in steps),
        kept_read_bytes=sum(step.kept_read_bytes for step in steps),
        kept_written_bytes=sum(step.kept_written_bytes for step in steps),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMeasurement:
    """A whole run: its phases, rows and TSV bytes of one round, and the harness ceiling.

    ``gz_bytes`` is the size of the gz files that have some or all of the TSV.
    """

    phases: tuple[PhaseTotal, ...]
    tsv_bytes: int
    gz_bytes: int
    row_count: int
    workers: int
    ceiling_bytes_per_s: float

    @property
    def rounds(self) -> int:
        return len(self.phases[0].seconds)

    @property
    def seconds(self) -> float:
        return sum(sum(phase.seconds) for phase in self.phases)

    @property
    def tsv_bytes_per_s(self) -> float:
        """The TSV bytes of all rounds over the seconds of all phases."""
        return self.tsv_bytes * self.rounds / self.seconds

    @property
    def cpu_s(self) -> float:
        """The workers' CPU seconds in all phases of all rounds."""
        return sum(phase.cpu_s for phase in self.phases)

    def metrics(self) -> list[Metric]:
        """Return the metrics, the headline first."""
        whole = [
            Metric.of(
                "conversion_s", self.seconds / self.rounds, Unit.SECONDS, "lower",
                "Seconds from TSV to packed rows on the target, all phases; mean over the rounds.",
                headline=True,
            ),
            Metric.of(
                "tsv_bytes_per_s", self.tsv_bytes_per_s, Unit.BYTES_PER_SECOND, "higher",
                "TSV bytes converted, divided by the seconds of all phases.", headline=True,
            ),
            Metric.of(
                "rows_per_s", self.row_count * self.rounds / self.seconds,
                Unit.SAMPLES_PER_SECOND, "higher", "Rows divided by the seconds of all phases.",
            ),
            Metric.of(
                "cpu_s_per_byte", self.cpu_s / (self.tsv_bytes * self.rounds),
                Unit.SECONDS_PER_BYTE, "lower",
                "CPU seconds of the workers per TSV byte, all phases.",
            ),
        ]  # fmt: skip
        workers = [
            Metric.of(
                "harness_ceiling_bytes_per_s", self.ceiling_bytes_per_s, Unit.BYTES_PER_SECOND,
                "higher", "TSV bytes per second of all workers in parallel, from memory.",
            ),
            Metric.of(
                "worker_peak_bytes", max(phase.peak_bytes for phase in self.phases), Unit.BYTES,
                "lower", "Largest resident memory of any worker.",
            ),
        ]  # fmt: skip
        found = [*_without_kept(whole, self.phases), *workers]
        for phase in self.phases:
            found += _without_kept(self._phase_metrics(phase), [phase])
        return found

    def _phase_metrics(self, phase: PhaseTotal) -> Iterator[Metric]:
        seconds = sum(phase.seconds)
        source, result = _FORMS[phase.name]
        yield Metric.of(
            f"{phase.name}_s", seconds / self.rounds, Unit.SECONDS, "lower",
            f"Seconds from {source} to {result}, including fsync; mean over the rounds.",
            phase=phase.name,
        )  # fmt: skip
        directions: tuple[tuple[str, str, int, RateOf], ...] = (
            ("input", source, phase.read_bytes, "read"),
            ("output", result, phase.written_bytes, "written"),
        )
        for name, form, count, rate_of in directions:
            yield Metric.of(
                f"{phase.name}_{name}_bytes_per_s", count / seconds, Unit.BYTES_PER_SECOND,
                "higher", f"Bytes of {form} moved, divided by the seconds of the phase.",
                phase=phase.name, rate_of=rate_of,
            )  # fmt: skip
        yield Metric.of(
            f"{phase.name}_tsv_bytes_per_cpu_s",
            self.tsv_bytes * self.rounds / phase.cpu_s if phase.cpu_s else 0.0,
            Unit.BYTES_PER_SECOND, "higher",
            "TSV bytes per CPU second of the workers: the rate of one core.", phase=phase.name,
        )  # fmt: skip
        yield from self._share_metrics(phase)

    def _share_metrics(self, phase: PhaseTotal) -> Iterator[Metric]:
        shares = phase.shares(self.workers)
        meanings = {
            "on_core": "computing",
            "for_core": "waiting for a core",
            "for_storage": "waiting for reads, writes and fsync",
            "idle": "without a task",
        }
        for name, doing in meanings.items():
            yield Metric.of(
                f"{phase.name}_worker_{name}_fraction",
                None if shares is None else getattr(shares, name),
                Unit.FRACTION, "neither", f"Share of the workers' time {doing}.",
                phase=phase.name, reason="the kernel has no /proc/self/schedstat",
            )  # fmt: skip

    def details(self) -> dict[str, object]:
        """Return the figures behind the metrics, as JSON."""
        return {
            "workers": self.workers,
            "rounds": self.rounds,
            "row_count": self.row_count,
            "tsv_bytes": self.tsv_bytes,
            "gz_bytes": self.gz_bytes,
            "unpack_cpu_s": sum(phase.unpack_cpu_s for phase in self.phases) / self.rounds,
            **{_OUTPUTS[phase.name]: phase.written_bytes // self.rounds for phase in self.phases},
            **{f"{phase.name}_round_s": list(phase.seconds) for phase in self.phases},
            **{f"{phase.name}_kept_count": phase.kept_count for phase in self.phases},
        }

    def bottleneck(self) -> str:
        """Return a remark on how the workers spent their time."""
        shares = [phase.shares(self.workers) for phase in self.phases]
        known = [
            (share, sum(phase.seconds) / self.seconds)
            for share, phase in zip(shares, self.phases, strict=True)
            if share is not None
        ]
        if len(known) < len(shares):
            return "It is unknown what the workers waited for: the kernel has no schedstat."
        on_core = sum(share.on_core * weight for share, weight in known)
        for_core = sum(share.for_core * weight for share, weight in known)
        for_storage = sum(share.for_storage * weight for share, weight in known)
        bottleneck = "the cores" if on_core + for_core > for_storage else "the storage"
        workers = "worker spent" if self.workers == 1 else f"{self.workers} workers spent"
        possessive = "its" if self.workers == 1 else "their"
        return (
            f"The {workers} {format_percent(on_core)} of {possessive} time on a core, "
            f"{format_percent(for_core)} waiting for one and {format_percent(for_storage)} waiting "
            f"for storage: the bottleneck was {bottleneck}."
        )


def _without_kept(metrics: Iterable[Metric], phases: Sequence[PhaseTotal]) -> Iterator[Metric]:
    """Yield the metrics, without values if an earlier start did a part of the phases' work."""
    kept_count = sum(phase.kept_count for phase in phases)
    part_count = sum(phase.part_count for phase in phases)
    reason = f"{kept_count} of {part_count} files were finished by an earlier start"
    gap = {"value": None, "missing": {"value": reason}}
    for metric in metrics:
        yield metric.model_copy(update=gap) if kept_count else metric
