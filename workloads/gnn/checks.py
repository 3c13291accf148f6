"""The checks of graph training: rows are right, each came from one place, and times close."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from wattload.core.checks.io import is_path_as_counted, is_path_as_requested
from wattload.core.record.results import Check, Verdict, VerifiedBytes, amount
from wattload.core.record.run import RunRecord
from wattload.core.storage.extents import are_written
from wattload.core.units import format_bytes, format_percent
from wattload.core.workload import Contradictions, DeclaredCheck, DerivedMetrics, Figures
from wattload.loaders.data.cold_cache import is_cold
from wattload.workloads.gnn.agreement import contradictions
from wattload.workloads.gnn.metrics import MILLION, PHASE
from wattload.workloads.gnn.results import COUNTS, STAGES, Results

CLOSURE = 0.02
"""What the stages of serial steps may lack of their time."""
GPU_CLOCK = 0.02
"""What a stage may take longer by the GPU's clock than by the host's."""
_COUNTED_BY = ("direct", "gpu_queue")
_QUEUE = ("gpu_queue",)


def are_rows_right(figures: Figures) -> bool:
    """Return whether rows were compared, and none was wrong."""
    return amount(figures, "compared_rows") > 0 and amount(figures, "wrong_rows") == 0


def are_rows_counted(figures: Figures) -> bool:
    """Return whether each row came from one place, and storage gave the bytes of its rows."""
    placed = sum(amount(figures, name) for name in COUNTS)
    read_bytes = amount(figures, "storage_rows") * amount(figures, "read_bytes_per_row")
    is_whole = placed == amount(figures, "rows") and placed > 0
    return is_whole and read_bytes == amount(figures, "storage_bytes")


def are_times_closed(figures: Figures) -> bool:
    """Return whether the stages add up to the steps, and the GPU's clock agrees with the host's."""
    sum_s, wall_s = amount(figures, "stages_s"), amount(figures, "wall_s")
    for name in ("transfer", "training"):
        if figures[f"{name}_gpu_s"] is not None:
            by_host = amount(figures, f"{name}_s")
            if amount(figures, f"{name}_gpu_s") > (1 + GPU_CLOCK) * by_host:
                return False
    return (1 - CLOSURE) * wall_s <= sum_s <= (1 + 1e-6) * wall_s


def are_overlapped(figures: Figures) -> bool:
    """Return whether no stage took longer than all steps together."""
    return amount(figures, "longest_stage_s") <= (1 + CLOSURE) * amount(figures, "wall_s")


CHECKS = {
    "cold_cache": DeclaredCheck(since=3, holds=is_cold, optional=True),
    "written_extents": DeclaredCheck(since=3, holds=are_written, optional=True),
    "compared_rows": DeclaredCheck(since=3, holds=are_rows_right),
    "row_counts": DeclaredCheck(since=3, holds=are_rows_counted, made_only_by=_COUNTED_BY),
    "stage_times": DeclaredCheck(
        since=3,
        holds=are_times_closed,
        warns=lambda figures: not are_times_closed(figures),
        made_only_with={"overlap": "serial"},
    ),
    "overlapped_times": DeclaredCheck(
        since=3, holds=are_overlapped, made_only_with={"overlap": "ahead"}
    ),
    "data_path": DeclaredCheck(
        since=3,
        holds=is_path_as_requested,
        warns=is_path_as_counted,
        optional=True,
        made_only_by=_QUEUE,
    ),
}
"""The checks that only graph training has, and what their figures must be."""


def _aggregation_s(record: RunRecord) -> float:
    return amount(record.workload.details["stages"], "aggregation_s")


def _phase_s(record: RunRecord) -> float:
    return max(window.seconds for window in record.windows if window.name == PHASE)


def _step_s(record: RunRecord) -> float:
    return amount(record.workload.details, "wall_s") / amount(record.workload.details, "steps")


def _stage_s(name: str, record: RunRecord) -> float:
    return amount(record.workload.details["stages"], name)


def _rate_of(name: str, record: RunRecord) -> float:
    return amount(record.workload.details, name) / _aggregation_s(record)


def _share_of(name: str, record: RunRecord) -> float:
    return amount(record.workload.details, name) / amount(record.workload.details, "rows")


DERIVED: DerivedMetrics = {
    "step_s": _step_s,
    "wall_s": lambda record: amount(record.workload.details, "wall_s"),
    **{name: partial(_stage_s, name) for name in STAGES},
    "rows_per_s": partial(_rate_of, "rows"),
    "read_bytes_per_s": lambda record: (
        amount(record.workload.details, "storage_bytes") / _phase_s(record)
    ),
    "storage_rows_per_s": partial(_rate_of, "storage_rows"),
    "storage_bytes_per_s": partial(_rate_of, "storage_bytes"),
    "aggregation_share": lambda record: (
        _aggregation_s(record) / amount(record.workload.details, "wall_s")
    ),
    "cache_hit_rate": partial(_share_of, "cache_rows"),
    "host_hit_rate": partial(_share_of, "host_rows"),
    "read_amplification": lambda record: (
        _share_of("storage_bytes", record) / amount(record.workload.details, "row_bytes")
    ),
    "cpu_s_per_million_rows": lambda record: _share_of("cpu_s", record) * MILLION,
    "last_loss": lambda record: amount(record.workload.details, "last_loss"),
    "epoch_s": lambda record: _step_s(record) * amount(record.workload.details, "steps_per_epoch"),
}
"""The metrics that follow from other figures of a record."""

CONTRADICTIONS: Contradictions = contradictions
"""How details are compared with the other parts of a record."""


def compared_rows(results: Results, *, every: int, recomputes: bool) -> Check:
    """Return the check of the rows that the model took; a wrong one has ended the run before."""
    figures = {"compared_rows": results.compared_rows, "wrong_rows": 0, "compare_every": every}
    how = "recomputed from its number" if recomputes else "read again from its file"
    return Check(
        name="compared_rows",
        verdict="pass" if are_rows_right(figures) else "fail",
        sentence=(
            f"{results.compared_rows:,} of {results.rows:,} rows were compared where the model "
            f"takes them, each {how}: none was wrong."
        ),
        figures=figures,
        mandatory=True,
        verified=(
            VerifiedBytes(
                phase=PHASE,
                kind="read",
                moved_bytes=results.storage_bytes,
                verified_bytes=min(
                    results.compared_rows * results.row_bytes, results.storage_bytes
                ),
            ),
        )
        if results.storage_bytes
        else (),
    )


def row_counts(results: Results, *, read_bytes_per_row: int) -> Check:
    """Return the check that each row came from one place."""
    figures: dict[str, float | int | str | None] = {
        "rows": results.rows,
        **{name: results.counted(name) for name in COUNTS},
        "storage_bytes": results.storage_bytes,
        "read_bytes_per_row": read_bytes_per_row,
    }
    good = are_rows_counted(figures)
    listed = (
        f"{figures['storage_rows']:,} read from storage ({format_bytes(results.storage_bytes)}), "
        f"{figures['host_rows']:,} from host memory, {figures['cache_rows']:,} from the GPU's "
        f"cache and {figures['joined_rows']:,} joined to another's read"
    )
    return Check(
        name="row_counts",
        verdict="pass" if good else "fail",
        sentence=f"Of {results.rows:,} rows {listed}"
        + ("." if good else ": these must add up, with the bytes of the rows read."),
        figures=figures,
        mandatory=True,
    )


def times(results: Results) -> Check:
    """Return the check of the stages' times against the time of the steps."""
    stages = {name: results.stage_s(name) for name in STAGES}
    known = {name: seconds for name, seconds in stages.items() if seconds is not None}
    if results.overlaps:
        longest = max(known, key=lambda name: known[name])
        figures: dict[str, float | int | str | None] = {
            "longest_stage": longest,
            "longest_stage_s": known[longest],
            "wall_s": results.wall_s,
        }
        return Check(
            name="overlapped_times",
            verdict="pass" if are_overlapped(figures) else "fail",
            sentence=(
                f"The steps took {results.wall_s / known[longest]:.2f} times their longest stage, "
                f"{longest.removesuffix('_s')}; 1 would be a perfect overlap."
            ),
            figures=figures,
        )
    figures = {
        "stages_s": sum(known.values()),
        "wall_s": results.wall_s,
        **{name: stages[name] for name in ("transfer_s", "training_s")},
        **{name: results.gpu_s(name) for name in ("transfer_gpu_s", "training_gpu_s")},
    }
    verdict: Verdict = "pass" if are_times_closed(figures) else "warn"
    share = format_percent(sum(known.values()) / results.wall_s, 1)
    by_gpu = "; neither transfer nor training is longer by the GPU's own clock" * (
        figures["training_gpu_s"] is not None and verdict == "pass"
    )
    return Check(
        name="stage_times",
        verdict=verdict,
        sentence=f"The stages add up to {share} of the time of the steps{by_gpu}.",
        figures=figures,
    )


def outcome_checks(
    results: Results, *, every: int, recomputes: bool, read_bytes_per_row: int
) -> Sequence[Check]:
    made = [compared_rows(results, every=every, recomputes=recomputes), times(results)]
    if results.counted("storage_rows") is not None:
        made.append(row_counts(results, read_bytes_per_row=read_bytes_per_row))
    return made
